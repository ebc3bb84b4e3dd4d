#include "engine/host_compiler.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/context.h"
#include "base/cpu.h"
#include "base/env.h"
#include "base/folder.h"
#include "base/hash.h"
#include "base/places.h"
#include "base/process.h"

enum { PATH_MOST = 4096, OUTPUT_MOST = 600, SOURCE_OUTPUT_MOST = 4000, FLAGS_MOST = 48 };

/* The order of operations is the text's: no contraction; arguments may be the same memory; integers wrap. Loops are
 * vectorised, straight code is not: there gcc 12 treats a double that was rounded to float and converted back as
 * unrounded. */
static const char *const flags[] = {"-x",
                                    "c",
                                    "-std=gnu11",
                                    "-O3",
#if defined(__x86_64__)
                                    "-mprefer-vector-width=512", /* if these exist; compilers use 256 bits on Intel's */
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
                                    "-fPIC"};
static const char *const generated_flags[] = {"-w", NULL};
static const char *const source_flags[] = {"-Werror=implicit-function-declaration", "-Werror=implicit-int",
                                           "-Werror=int-conversion", "-Werror=incompatible-pointer-types", NULL};

atomic_bool *hr__host_compiler_cancel(void) {
  static const hr_context_part kind = {.bytes = sizeof(atomic_bool)};
  return hr__context_part(hr__context(), HR_CONTEXT_HOST_COMPILER, &kind);
}

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

static bool has_name(const char *path, const char *name) {
  const char *last = strrchr(path, '/');
  return strcmp(last != NULL ? last + 1 : path, name) == 0;
}

/* zig, as packaged in Python's wheel. */
static bool find_wheel(char *out_path) {
  static const char *const patterns[] = {"ziglang/zig", NULL};
  hr_text path = {0};
  bool found = hr_places_find(patterns, false, &path) && path.length < PATH_MOST && is_program(hr_text_chars(&path));
  if (found) {
    memcpy(out_path, hr_text_chars(&path), path.length + 1);
  }
  hr_text_fini(&path);
  return found;
}

hr_status hr__host_compiler_find(int rank, hr_host_compiler *out_compiler) {
  static const char *const names[] = {"gcc", "cc", "clang"};
  const char *chosen = hr_env_text(HR_ENV_CC);
  if (chosen[0] != 0) {
    bool found = rank == 0 && look_up(chosen, out_compiler->path);
    out_compiler->is_zig = found && has_name(out_compiler->path, "zig");
    return found ? HR_OK : hr_status_make(HR_STATUS_NOT_FOUND, "no compiler \"%s\", which HEADRACE_CC names", chosen);
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (look_up(names[i], out_compiler->path) && rank-- == 0) {
      out_compiler->is_zig = false;
      return HR_OK;
    }
  }
  if (find_wheel(out_compiler->path) && rank-- == 0) {
    out_compiler->is_zig = true;
    return HR_OK;
  }
  return hr_status_make(HR_STATUS_NOT_FOUND,
                        "no C compiler: no gcc, cc or clang in PATH, and no ziglang among Python's "
                        "packages. `pip install headrace[compiler]` or `apt install gcc` brings "
                        "one, HEADRACE_CC names another");
}

/* ---- running ---- */

static hr_status write_file(const char *path, const char *bytes, size_t count) {
  FILE *file = fopen(path, "wbx");
  bool ok = file != NULL && fwrite(bytes, 1, count, file) == count;
  ok = file != NULL && fclose(file) == 0 && ok;
  return ok ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "\"%s\" can't be written", path);
}

/* Reads the beginning of a file. */
static void read_words(const char *path, char *out_words, size_t bytes) {
  FILE *file = fopen(path, "rb");
  size_t count = file != NULL ? fread(out_words, 1, bytes - 1, file) : 0;
  out_words[count] = 0;
  if (file != NULL) {
    fclose(file);
  }
}

void hr__host_compiler_remove(const char *path) {
  char folder[PATH_MOST];
  size_t length = strlen(path);
  while (length > 0 && path[length] != '/') {
    --length;
  }
  if (length > 0 && length < sizeof folder) {
    snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    hr_folder_remove(folder);
  }
}

static int64_t time_limit(void) {
  return hr_env_int(HR_ENV_CC_SECONDS) * 1000000000;
}

/* Runs the compiler, with all its output files in the private folder. */
static hr_status run(const char *const *arguments, const char *folder, const char *output) {
  char variables[3][PATH_MOST + 32];
  const char *environment[] = {variables[0], variables[1], variables[2], NULL};
  snprintf(variables[0], sizeof variables[0], "TMPDIR=%s", folder);
  snprintf(variables[1], sizeof variables[1], "ZIG_LOCAL_CACHE_DIR=%s", folder);
  snprintf(variables[2], sizeof variables[2], "ZIG_GLOBAL_CACHE_DIR=%s", folder);
  return hr_process_run(arguments, environment, output, time_limit(), hr__host_compiler_cancel());
}

/* The path of libm: zig would spend ten seconds on building one of its own, of the glibc version that it assumes for
 * this system. */
static const char *find_libm(Dl_info *info) {
  double (*function)(double, double, double) = fma;
  void *address;
  memcpy(&address, &function, sizeof address);
  bool is_library = dladdr(address, info) != 0 && info->dli_fname != NULL && strstr(info->dli_fname, "/libm") != NULL;
  return is_library ? info->dli_fname : NULL;
}

typedef struct files {
  hr_text folder, source, library, output;
  bool is_source; /* a user's */
} files;

static void add_flags(const hr_host_compiler *compiler, const char *const *more, const files *f, Dl_info *info,
                      const char **out_arguments) {
  int count = 0;
  const char *const *of_text = f->is_source ? source_flags : generated_flags;
  out_arguments[count++] = compiler->path;
  if (compiler->is_zig) {
    out_arguments[count++] = "cc";
    out_arguments[count++] = "-nostdlib";
  }
  out_arguments[count++] = hr_cpu_option(compiler->is_zig);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; ++i) {
    out_arguments[count++] = flags[i];
  }
  for (; *of_text != NULL; ++of_text) {
    out_arguments[count++] = *of_text;
  }
  for (; more != NULL && *more != NULL && count < FLAGS_MOST - 8; ++more) {
    out_arguments[count++] = *more;
  }
  out_arguments[count++] = "-o";
  out_arguments[count++] = hr_text_chars(&f->library);
  out_arguments[count++] = hr_text_chars(&f->source);
  if (!compiler->is_zig) {
    out_arguments[count++] = "-lm";
  } else if (find_libm(info) != NULL) {
    out_arguments[count++] = "-x";
    out_arguments[count++] = "none";
    out_arguments[count++] = find_libm(info);
  }
  out_arguments[count] = NULL;
}

/* A failed compiler's status, with the beginning of its output on one line. */
static hr_status blame_text(hr_status status, const files *f) {
  char words[OUTPUT_MOST];
  read_words(hr_text_chars(&f->output), words, sizeof words);
  for (char *at = words; (at = strchr(at, '\n')) != NULL;) {
    *at = ' ';
  }
  return words[0] != 0 ? hr_status_annotate(status, "%s", words) : status;
}

static hr_status blame_source(hr_status status, const files *f) {
  char words[SOURCE_OUTPUT_MOST];
  read_words(hr_text_chars(&f->output), words, sizeof words);
  if (hr_status_code_of(status) != HR_STATUS_INTERNAL || words[0] == 0) {
    return hr_status_annotate(status, "the kernel source does not compile");
  }
  hr_status_free(status);
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the kernel source does not compile:\n%s", words);
}

static hr_status compile(const hr_host_compiler *compiler, const char *text, size_t length, const char *const *more,
                         files *f) {
  const char *arguments[FLAGS_MOST];
  Dl_info info;
  struct stat made;
  HR_RETURN_IF_ERROR(hr_folder_make_temporary(&f->folder));
  hr_text_printf(&f->source, "%s/kernels.c", hr_text_chars(&f->folder));
  hr_text_printf(&f->library, "%s/kernels.so", hr_text_chars(&f->folder));
  hr_text_printf(&f->output, "%s/output", hr_text_chars(&f->folder));
  HR_RETURN_IF_ERROR(hr_text_status(&f->source));
  HR_RETURN_IF_ERROR(hr_text_status(&f->library));
  HR_RETURN_IF_ERROR(hr_text_status(&f->output));
  HR_RETURN_IF_ERROR(write_file(hr_text_chars(&f->source), text, length));
  add_flags(compiler, more, f, &info, arguments);
  hr_status status = run(arguments, hr_text_chars(&f->folder), hr_text_chars(&f->output));
  if (status != HR_OK) {
    return f->is_source ? blame_source(status, f) : blame_text(status, f);
  }
  return stat(hr_text_chars(&f->library), &made) == 0
             ? HR_OK
             : hr_status_make(HR_STATUS_INTERNAL, "\"%s\" made no library", compiler->path);
}

static hr_status compile_files(const hr_host_compiler *compiler, const char *text, size_t length,
                               const char *const *more, bool is_source, hr_text *out_path) {
  files f = {.is_source = is_source};
  hr_status status = compile(compiler, text, length, more, &f);
  if (status == HR_OK) {
    hr_text_clear(out_path);
    hr_text_append(out_path, hr_text_chars(&f.library));
    status = hr_text_status(out_path);
  }
  if (status != HR_OK && f.folder.length > 0) {
    hr_folder_remove(hr_text_chars(&f.folder));
  }
  hr_text_fini(&f.folder);
  hr_text_fini(&f.source);
  hr_text_fini(&f.library);
  hr_text_fini(&f.output);
  return status;
}

hr_status hr__host_compile(const hr_host_compiler *compiler, const char *text, size_t length, const char *const *more,
                           hr_text *out_path) {
  hr_host_compiler first;
  if (compiler == NULL) {
    HR_RETURN_IF_ERROR(hr__host_compiler_find(0, &first));
    compiler = &first;
  }
  return compile_files(compiler, text, length, more, false, out_path);
}

hr_status hr__host_compile_source(const hr_host_compiler *compiler, const char *text, size_t length,
                                  hr_text *out_path) {
  return compile_files(compiler, text, length, NULL, true, out_path);
}

hr_status hr__host_compiler_try(const hr_host_compiler *compiler) {
  static const char text[] = "__attribute__((visibility(\"default\"))) int hr_tuning(void) { return 42; }\n";
  hr_text path = {0};
  hr_status status = hr__host_compile(compiler, text, sizeof text - 1, NULL, &path);
  if (status == HR_OK) {
    hr__host_compiler_remove(hr_text_chars(&path));
  }
  hr_text_fini(&path);
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

static hr_status hash_version(const hr_host_compiler *compiler, uint64_t *hash, bool *out_is_gcc,
                              hr_text *out_version) {
  hr_text folder = {0}, output = {0};
  hr_status status = hr_folder_make_temporary(&folder);
  if (status == HR_OK) {
    hr_text_printf(&output, "%s/output", hr_text_chars(&folder));
    const char *const arguments[] = {compiler->path, compiler->is_zig ? "cc" : "--version",
                                     compiler->is_zig ? "--version" : NULL, NULL};
    status = run(arguments, hr_text_chars(&folder), hr_text_chars(&output));
    char words[OUTPUT_MOST];
    read_words(hr_text_chars(&output), words, sizeof words);
    *hash = hr_hash_bytes(*hash, words, strlen(words));
    *out_is_gcc = strstr(words, "clang") == NULL;
    if (out_version != NULL) {
      hr_text_append_bytes(out_version, words, strcspn(words, "\n"));
    }
    hr_folder_remove(hr_text_chars(&folder));
  }
  hr_text_fini(&folder);
  hr_text_fini(&output);
  return status;
}

hr_status hr__host_compiler_identity(const hr_host_compiler *compiler, uint64_t *out_hash, bool *out_is_gcc,
                                     hr_text *out_version) {
  struct stat info = {0};
  if (stat(compiler->path, &info) != 0) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "no compiler \"%s\"", compiler->path);
  }
  uint64_t numbers[] = {(uint64_t)info.st_mtime, (uint64_t)info.st_size, (uint64_t)info.st_ino, compiler->is_zig};
  uint64_t hash = hr_hash_bytes(HR_HASH_SEED, compiler->path, strlen(compiler->path));
  hash = hr_hash_words(hash, numbers, sizeof numbers / sizeof *numbers);
  hash = hr_hash_bytes(hash, hr_cpu_option(false), strlen(hr_cpu_option(false)));
  for (size_t i = 0; i < sizeof flags / sizeof *flags; ++i) {
    hash = hr_hash_bytes(hash, flags[i], strlen(flags[i]));
  }
  hash = hr_hash_bytes(hash, generated_flags[0], strlen(generated_flags[0]));
  HR_RETURN_IF_ERROR(hash_version(compiler, &hash, out_is_gcc, out_version));
  *out_hash = hash_file_lines(hash, "/proc/cpuinfo", "model name", "flags");
  return HR_OK;
}
