/* module_compile.c: see module_compile.h. */
#include "module/module_compile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "compiler/emit.h"

/* Chooses the first compiler from `rank` on that can be identified, and opens the cache of what it makes. */
static hr_status choose(hr__module_compiler *c) {
  while (!c->is_found) {
    uint64_t identity;
    bool is_gcc;
    hr_status status = hr__host_compiler_find(c->rank, &c->compiler);
    if (status != HR_OK) {
      hr_status why =
          hr_status_make(HR_STATUS_UNAVAILABLE, "kernels in C need a compiler: %s", hr_status_message(status));
      hr_status_free(status);
      return why;
    }
    status = hr__host_compiler_identity(&c->compiler, &identity, &is_gcc, NULL);
    c->is_found = status == HR_OK;
    c->rank += !c->is_found;
    hr_status_ignore(status);
    if (c->is_found) {
      status = hr__disk_cache_open(identity, &c->disk);
      c->has_disk = status == HR_OK;
      hr_status_ignore(status);
    }
  }
  return HR_OK;
}

static void leave_compiler(hr__module_compiler *c) {
  if (c->has_disk) {
    hr__disk_cache_fini(&c->disk);
  }
  c->is_found = c->has_disk = false;
  ++c->rank;
}

/* True if the compiler makes nothing, whatever the text. */
static bool is_unusable(hr__module_compiler *c, hr_status status) {
  if (c->has_worked || hr_status_code_of(status) != HR_STATUS_INVALID_ARGUMENT) {
    return false;
  }
  hr_status tried = hr__host_compiler_try(&c->compiler);
  c->has_worked = tried == HR_OK;
  hr_status_ignore(tried);
  return !c->has_worked;
}

/* Keeps the library on disk, and loads it from there: its file still exists when a profiler looks for names. */
static hr_status keep_and_open(hr__module_compiler *c, const hr_text *text, const char *path, hr_dynlib *out_library) {
  hr_text name = {0};
  int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), kept = -1;
  if (file < 0) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "\"%s\": %s", path, strerror(errno));
  }
  if (c->has_disk) {
    hr_status stored = hr__disk_cache_add_library(&c->disk, text->data, text->length, file, &name);
    if (stored == HR_OK) {
      stored = hr__disk_cache_add_kernel(&c->disk, text->data, text->length, hr_text_chars(&name));
    }
    bool is_kept = stored == HR_OK && hr__disk_cache_find(&c->disk, text->data, text->length, &kept);
    hr_status_ignore(stored);
    hr__disk_cache_trim(&c->disk);
    kept = is_kept ? kept : -1;
  }
  hr_status status = hr_dynlib_open_file(kept >= 0 ? kept : file, out_library);
  if (kept >= 0) {
    close(kept);
  }
  close(file);
  hr_text_fini(&name);
  return status;
}

static hr_status compile(hr__module_compiler *c, const hr_text *text, hr_dynlib *out_library) {
  hr_text whole = {0}, path = {0};
  hr_status status = hr_emit_prelude(&whole);
  hr_text_append_bytes(&whole, text->data, text->length);
  status = status == HR_OK ? hr_text_status(&whole) : status;
  if (status == HR_OK) {
    hr_log(HR_LOG_SOURCE, "%s", hr_text_chars(text));
    status = hr__host_compile_source(&c->compiler, whole.data, whole.length, &path);
  }
  if (status == HR_OK) {
    c->has_worked = true;
    status = keep_and_open(c, text, hr_text_chars(&path), out_library);
    hr__host_compiler_remove(hr_text_chars(&path));
  }
  hr_text_fini(&whole);
  hr_text_fini(&path);
  return status;
}

static bool find(const hr__module_compiler *c, const hr_text *text, hr_dynlib *out_library) {
  int file = -1;
  if (!c->has_disk || !hr__disk_cache_find(&c->disk, text->data, text->length, &file)) {
    return false;
  }
  hr_status status = hr_dynlib_open_file(file, out_library);
  close(file);
  bool is_found = status == HR_OK;
  hr_status_ignore(status);
  return is_found;
}

hr_status hr__module_compile(hr__module_compiler *compiler, const hr_text *text, hr_dynlib *out_library) {
  for (;;) {
    HR_RETURN_IF_ERROR(choose(compiler));
    if (find(compiler, text, out_library)) {
      return HR_OK;
    }
    hr_status status = compile(compiler, text, out_library);
    if (!is_unusable(compiler, status)) {
      return status;
    }
    hr_status_free(status);
    leave_compiler(compiler);
  }
}

void hr__module_compiler_fini(hr__module_compiler *compiler) {
  if (compiler->has_disk) {
    hr__disk_cache_fini(&compiler->disk);
  }
}
