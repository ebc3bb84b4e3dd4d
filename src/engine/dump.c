#include "engine/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/env.h"
#include "base/log.h"
#include "engine/record_note.h"

static void print_value(hr_text *text, const hr_scalar *scalar) {
  if (scalar->dtype == HR_DTYPE_C128) {
    hr_text_printf(text, "%.17g %.17g", scalar->value.f[0], scalar->value.f[1]);
  } else if (scalar->dtype == HR_DTYPE_F64) {
    hr_text_printf(text, "%.17g", scalar->value.f[0]);
  } else if (scalar->dtype == HR_DTYPE_U64) {
    hr_text_printf(text, "%" PRIu64, scalar->value.u);
  } else {
    hr_text_printf(text, "%" PRId64, scalar->value.i);
  }
}

static hr_status print(const hr_program *program, const char *device, const hr_scalar *arguments, hr_text *text) {
  hr_text_printf(text, "; device %s\n", device);
  for (int i = 0; i < program->argument_count; ++i) {
    hr_text_printf(text, "; argument %d %s ", i, hr_dtype_name(arguments[i].dtype));
    print_value(text, &arguments[i]);
    hr_text_char(text, '\n');
  }
  HR_RETURN_IF_ERROR(hr_program_print(program, text));
  return hr_text_status(text);
}

static hr_status write_file(const char *path, const char *mode, const hr_text *text) {
  FILE *file = fopen(path, mode);
  bool ok = file != NULL && fwrite(hr_text_chars(text), 1, text->length, file) == text->length;
  if (file != NULL && fclose(file) != 0) {
    ok = false;
  }
  return ok ? HR_OK : hr_status_make(HR_STATUS_NOT_FOUND, "can't write \"%s\": %s", path, strerror(errno));
}

enum { PATH_BYTES = 4200 };

static void make_path(const char *folder, uint64_t hash, char out_path[PATH_BYTES]) {
  snprintf(out_path, PATH_BYTES, "%s/%016" PRIx64 ".hr", folder, hash);
}

static void report(hr_status status) {
  if (status != HR_OK) {
    hr_log(HR_LOG_WARNING, "HEADRACE_DUMP: %s", hr_status_message(status));
    hr_status_free(status);
  }
}

void hr__dump_program(const hr_program *program, uint64_t hash, const char *device, const hr_scalar *arguments) {
  const char *folder = hr_env_text(HR_ENV_DUMP);
  if (folder[0] == '\0') {
    return;
  }
  char path[PATH_BYTES];
  hr_text text = {0};
  make_path(folder, hash, path);
  hr_status status = print(program, device, arguments, &text);
  if (status == HR_OK) {
    (void)mkdir(folder, 0777); /* any problem is reported when the file is written */
    status = write_file(path, "w", &text);
  }
  report(status);
  hr_text_fini(&text);
}

void hr__dump_places(uint64_t hash, size_t count, const hr_operation_mark *marks) {
  char path[PATH_BYTES];
  hr_text text = {0}, name = {0};
  for (size_t i = 0; i < count; ++i) {
    hr_text_clear(&name);
    hr__records_place(marks[i].correlation, &name);
    if (name.length > 0) {
      hr_text_printf(&text, "; place %zu %s\n", i, hr_text_chars(&name));
    }
  }
  if (text.length > 0) {
    make_path(hr_env_text(HR_ENV_DUMP), hash, path);
    report(write_file(path, "a", &text));
  }
  hr_text_fini(&name);
  hr_text_fini(&text);
}

bool hr__dump_is_on(void) {
  return hr_env_text(HR_ENV_DUMP)[0] != '\0';
}

bool hr_profile_wants_places(void) {
  return hr__dump_is_on() || hr_log_is_on(HR_LOG_KERNEL);
}

void hr__dump_log(const hr_program *program) {
  hr_text text = {0};
  hr_status_ignore(hr_program_print(program, &text));
  hr_log(HR_LOG_PROGRAM, "%s", hr_text_chars(&text));
  hr_text_fini(&text);
}
