#include "engine/host_compiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/hash.h"
#include "base/process.h"

enum { PATH_MOST = 4096, OUTPUT_MOST = 600, FLAGS_MOST = 48 };

/* The order of operations is the text's: no contraction; arguments may be the same memory; integers wrap. Loops are
 * vectorised, and straight code is not: gcc 12 then takes a double that was rounded to float and made double again for
 * what it was before. */
static const char *const flags[] = {
    "-x",
    "c",
    "-std=gnu11",
    "-O3",
    "-march=native",
#if defined(__x86_64__)
    "-mprefer-vector-width=512", /* where there are such; compilers take 256 on Intel's */
#endif
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-tree-slp-vectorize",
    "-ffp-contract=off",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-semantic-interposition",
    "-fvisibility=hidden",
    "-shared",
    "-fPIC",
    "-w"};

atomic_bool hr__host_compiler_cancel;

/* ---- which ---- */

static bool is_program(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

/* Looks a name up as a shell would. */
static bool look_up(const char *name, char *out_path) {
  if (strchr(name, '/') != NULL) {
    return snprintf(out_path, PATH_MOST, "%s", name) < PATH_MOST && is_program(out_path);
  }
  const char *at = hr_env_system("PATH");
  while (*at != 0) {
    size_t length = strcspn(at, ":");
    if (length > 0 && at[0] == '/' && snprintf(out_path, PATH_MOST, "%.*s/%s", (int)length, at, name) < PATH_MOST &&
        is_program(out_path)) {
      return true;
    }
    at += length + (at[length] == ':');
  }
  return false;
}

hr_status hr__host_compiler_find(const char **out_path) {
  static char path[PATH_MOST];
  static const char *const names[] = {"gcc", "cc", "clang"};
  const char *chosen = hr_env_text(HR_ENV_CC);
  if (chosen[0] != 0) {
    *out_path = path;
    return look_up(chosen, path) ? HR_OK
                                 : hr_status_make(HR_STATUS_NOT_FOUND, "no compiler \"%s\" (HEADRACE_CC)", chosen);
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (look_up(names[i], path)) {
      *out_path = path;
      return HR_OK;
    }
  }
  return hr_status_make(HR_STATUS_NOT_FOUND, "no gcc, cc or clang in PATH");
}

/* ---- running ---- */

static hr_status make_folder(hr_text *out_path) {
  const char *given = hr_env_system("TMPDIR"), *root = given[0] == '/' ? given : "/tmp";
  char path[PATH_MOST];
  if (snprintf(path, sizeof path, "%s/headrace-XXXXXX", root) >= (int)sizeof path || mkdtemp(path) == NULL) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "no folder can be made in \"%s\"", root);
  }
  hr_text_append(out_path, path);
  return hr_text_status(out_path);
}

static hr_status write_file(const char *path, const char *bytes, size_t count) {
  FILE *file = fopen(path, "wbx");
  bool ok = file != NULL && fwrite(bytes, 1, count, file) == count;
  ok = file != NULL && fclose(file) == 0 && ok;
  return ok ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "\"%s\" can't be written", path);
}

/* The first words of a file, on one line. */
static void read_words(const char *path, char *out_words, size_t bytes) {
  FILE *file = fopen(path, "rb");
  size_t count = file != NULL ? fread(out_words, 1, bytes - 1, file) : 0;
  out_words[count] = 0;
  for (size_t i = 0; i < count; ++i) {
    out_words[i] = out_words[i] == '\n' ? ' ' : out_words[i];
  }
  if (file != NULL) {
    fclose(file);
  }
}

void hr__host_compiler_remove(const char *path) {
  static const char *const names[] = {"kernels.c", "kernels.so", "output"};
  char full[PATH_MOST];
  size_t folder = strlen(path);
  while (folder > 0 && path[folder] != '/') {
    --folder;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    snprintf(full, sizeof full, "%.*s/%s", (int)folder, path, names[i]);
    unlink(full);
  }
  snprintf(full, sizeof full, "%.*s", (int)folder, path);
  rmdir(full);
}

static int64_t time_limit(void) {
  return hr_env_int(HR_ENV_CC_SECONDS) * 1000000000;
}

hr_status hr__host_compile(const char *text, size_t length, const char *const *more, hr_text *out_path) {
  const char *compiler, *arguments[FLAGS_MOST];
  HR_RETURN_IF_ERROR(hr__host_compiler_find(&compiler));
  hr_text source = {0}, output = {0};
  hr_text_clear(out_path);
  hr_status status = make_folder(out_path);
  if (status == NULL) {
    hr_text_printf(&source, "%s/kernels.c", hr_text_chars(out_path));
    hr_text_printf(&output, "%s/output", hr_text_chars(out_path));
    hr_text_append(out_path, "/kernels.so");
    status = hr_text_status(&source);
    status = status != NULL ? status : hr_text_status(&output);
    status = status != NULL ? status : hr_text_status(out_path);
    status = status != NULL ? status : write_file(hr_text_chars(&source), text, length);
    int count = 0;
    arguments[count++] = compiler;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; ++i) {
      arguments[count++] = flags[i];
    }
    for (; more != NULL && *more != NULL && count < FLAGS_MOST - 5; ++more) {
      arguments[count++] = *more;
    }
    arguments[count++] = "-o";
    arguments[count++] = hr_text_chars(out_path);
    arguments[count++] = hr_text_chars(&source);
    arguments[count++] = "-lm";
    arguments[count] = NULL;
    if (status == NULL) {
      status = hr_process_run(arguments, hr_text_chars(&output), time_limit(), &hr__host_compiler_cancel);
    }
    if (status != NULL) {
      char words[OUTPUT_MOST];
      read_words(hr_text_chars(&output), words, sizeof words);
      status = words[0] != 0 ? hr_status_annotate(status, "%s", words) : status;
      hr__host_compiler_remove(hr_text_chars(out_path));
    }
  }
  hr_text_fini(&source);
  hr_text_fini(&output);
  return status;
}

/* ---- identity ---- */

static uint64_t hash_file_lines(uint64_t hash, const char *path, const char *prefix_a, const char *prefix_b) {
  FILE *file = fopen(path, "rb");
  char line[4096];
  int found = 0;
  while (file != NULL && found < 2 && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, prefix_a, strlen(prefix_a)) == 0 || strncmp(line, prefix_b, strlen(prefix_b)) == 0) {
      hash = hr_hash_bytes(hash, line, strlen(line));
      ++found;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return hash;
}

static hr_status hash_version(const char *compiler, uint64_t *hash, bool *out_is_gcc) {
  hr_text folder = {0}, output = {0};
  hr_status status = make_folder(&folder);
  if (status == NULL) {
    hr_text_printf(&output, "%s/output", hr_text_chars(&folder));
    const char *const arguments[] = {compiler, "--version", NULL};
    status = hr_process_run(arguments, hr_text_chars(&output), time_limit(), &hr__host_compiler_cancel);
    char words[OUTPUT_MOST];
    read_words(hr_text_chars(&output), words, sizeof words);
    *hash = hr_hash_bytes(*hash, words, strlen(words));
    *out_is_gcc = strstr(words, "clang") == NULL;
    hr__host_compiler_remove(hr_text_chars(&output));
  }
  hr_text_fini(&folder);
  hr_text_fini(&output);
  return status;
}

hr_status hr__host_compiler_identity(uint64_t *out_hash, bool *out_is_gcc) {
  const char *compiler;
  HR_RETURN_IF_ERROR(hr__host_compiler_find(&compiler));
  struct stat info = {0};
  if (stat(compiler, &info) != 0) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "no compiler \"%s\"", compiler);
  }
  uint64_t numbers[] = {(uint64_t)info.st_mtime, (uint64_t)info.st_size, (uint64_t)info.st_ino};
  uint64_t hash = hr_hash_bytes(HR_HASH_SEED, compiler, strlen(compiler));
  hash = hr_hash_words(hash, numbers, sizeof numbers / sizeof *numbers);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; ++i) {
    hash = hr_hash_bytes(hash, flags[i], strlen(flags[i]));
  }
  HR_RETURN_IF_ERROR(hash_version(compiler, &hash, out_is_gcc));
  *out_hash = hash_file_lines(hash, "/proc/cpuinfo", "model name", "flags");
  return HR_OK;
}
