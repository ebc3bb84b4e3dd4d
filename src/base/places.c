/* places.c: see places.h. */
#include "base/places.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- roots ---- */

/* True if `roots` has the folder of `length` characters already. */
static bool has_root(const hr_text *roots, const char *folder, size_t length) {
  for (const char *at = hr_text_chars(roots); *at != '\0'; at += at[0] == ':') {
    size_t span = strcspn(at, ":");
    if (span == length && memcmp(at, folder, length) == 0) {
      return true;
    }
    at += span;
  }
  return false;
}

static void add_root(hr_text *roots, const char *folder, size_t length) {
  if (length > 0 && memchr(folder, ':', length) == NULL && !has_root(roots, folder, length)) {
    hr_text_append(roots, roots->length > 0 ? ":" : "");
    hr_text_append_bytes(roots, folder, length);
  }
}

/* The length of a path without its last `count` parts. */
static size_t above(const char *path, size_t length, int count) {
  for (; count > 0 && length > 0; --count) {
    while (length > 0 && path[--length] != '/') {
    }
  }
  return length;
}

/* The length of the part of a path up to and with its site-packages (Debian: dist-packages); 0 for none. */
static size_t site_of(const char *path) {
  static const char *const names[] = {"/site-packages/", "/dist-packages/"};
  for (int i = 0; i < 2; ++i) {
    const char *found = strstr(path, names[i]);
    if (found != NULL) {
      return (size_t)(found - path) + strlen(names[i]) - 1;
    }
  }
  return 0;
}

/* Adds site-packages, and the prefix three folders above. */
static void add_site(hr_text *roots, const char *path) {
  size_t length = site_of(path);
  add_root(roots, path, length);
  add_root(roots, path, above(path, length, 3));
}

static int add_loaded(struct dl_phdr_info *info, size_t bytes, void *roots) {
  char real[PATH_MAX];
  (void)bytes;
  if (info->dlpi_name != NULL && site_of(info->dlpi_name) > 0) {
    add_site(roots, info->dlpi_name);
    if (realpath(info->dlpi_name, real) != NULL && site_of(real) > 0) {
      add_site(roots, real);
    }
  }
  return 0;
}

/* The path of this library, or of the program that it is linked into. */
static bool find_self(char out_path[PATH_MAX]) {
  Dl_info info;
  return (dladdr((void *)(uintptr_t)&hr_places_list, &info) != 0 && info.dli_fname != NULL &&
          strchr(info.dli_fname, '/') != NULL && realpath(info.dli_fname, out_path) != NULL) ||
         realpath("/proc/self/exe", out_path) != NULL;
}

/* Adds the site-packages below a prefix of `length` characters. */
static void add_sites_below(hr_text *roots, const char *prefix, size_t length) {
  char pattern[PATH_MAX];
  glob_t found = {0};
  int written = snprintf(pattern, sizeof pattern, "%.*s/lib/python3.*/site-packages", (int)length, prefix);
  if (written > 0 && written < (int)sizeof pattern && glob(pattern, 0, NULL, &found) == 0) {
    for (size_t i = found.gl_pathc; i > 0; --i) { /* the latest first */
      add_root(roots, found.gl_pathv[i - 1], strlen(found.gl_pathv[i - 1]));
    }
  }
  globfree(&found);
}

static void add_prefix(hr_text *roots, const char *prefix, size_t length) {
  add_root(roots, prefix, length);
  add_sites_below(roots, prefix, length);
}

/* Adds the prefix of a virtual environment whose interpreter runs. The interpreter's name is below it; the file that
 * the link resolves to is not. */
static void add_interpreter(hr_text *roots) {
  char path[PATH_MAX], real[PATH_MAX];
  const char *name = program_invocation_name, *last = strrchr(name, '/');
  int written = last != NULL ? snprintf(path, sizeof path, "%.*s/..", (int)(last - name), name) : 0;
  if (written > 0 && written < (int)sizeof path && realpath(path, real) != NULL) {
    add_prefix(roots, real, strlen(real));
  }
}

void hr_places_list(hr_text *out_roots) {
  char self[PATH_MAX], program[PATH_MAX];
  hr_text roots = {0};
  bool has_self = find_self(self);
  if (has_self) {
    add_root(&roots, self, above(self, strlen(self), 1));
    add_site(&roots, self);
  }
  dl_iterate_phdr(add_loaded, &roots);
  if (has_self) {
    add_prefix(&roots, self, above(self, strlen(self), 2));
    add_root(&roots, self,
             above(self, strlen(self), 3)); /* `pip install --target`: FOLDER/headrace/lib/libheadrace.so */
  }
  if (realpath("/proc/self/exe", program) != NULL) {
    add_prefix(&roots, program, above(program, strlen(program), 2));
  }
  add_interpreter(&roots);
  const char *variables[] = {hr_env_system("VIRTUAL_ENV"), hr_env_system("CONDA_PREFIX")};
  for (int i = 0; i < 2; ++i) {
    add_prefix(&roots, variables[i], variables[i][0] == '/' ? strlen(variables[i]) : 0);
  }
  hr_text_append_bytes(out_roots, hr_text_chars(&roots), roots.length);
  hr_text_fini(&roots);
}

/* ---- searching ---- */

/* Appends the paths that match a pattern below the root of `length` characters. */
static bool find_below(const char *root, size_t length, const char *pattern, bool all, hr_text *out_paths) {
  char full[PATH_MAX];
  glob_t found = {0};
  int written = snprintf(full, sizeof full, "%.*s/%s", (int)length, root, pattern);
  bool has_any = written > 0 && written < (int)sizeof full && glob(full, 0, NULL, &found) == 0 && found.gl_pathc > 0;
  for (size_t i = 0; has_any && i < (all ? found.gl_pathc : 1); ++i) {
    hr_text_append(out_paths, all && out_paths->length > 0 ? ":" : "");
    hr_text_append(out_paths, found.gl_pathv[i]);
  }
  globfree(&found);
  return has_any;
}

bool hr_places_find(const char *const *patterns, bool all, hr_text *out_paths) {
  hr_text roots = {0};
  bool has_any = false;
  hr_places_list(&roots);
  for (; *patterns != NULL && (all || !has_any); ++patterns) {
    for (const char *at = hr_text_chars(&roots); *at != '\0' && (all || !has_any); at += at[0] == ':') {
      size_t length = strcspn(at, ":");
      has_any |= find_below(at, length, *patterns, all, out_paths);
      at += length;
    }
  }
  hr_text_fini(&roots);
  return has_any;
}

/* ---- opening ---- */

const hr_place hr_place_onednn = {
    .given = HR_ENV_ONEDNN, .patterns = {"libdnnl.so.3", "lib/libdnnl.so.3"}, .names = {"libdnnl.so.3"}};

const hr_place hr_place_lapack = {.given = HR_ENV_LAPACK,
                                  .patterns = {"scipy_openblas32/lib/libscipy_openblas.so", "libscipy_openblas.so"},
                                  .names = {"libscipy_openblas.so", "libopenblas.so.0", "liblapack.so.3"}};

static hr_status open_named(const char *path, hr_text *out_path, hr_dynlib *out_library) {
  HR_RETURN_IF_ERROR(hr_dynlib_open(path, out_library));
  if (out_path != NULL) {
    hr_text_append(out_path, path);
  }
  return HR_OK;
}

hr_status hr_places_open(const hr_place *place, hr_text *out_path, hr_dynlib *out_library) {
  const char *given = hr_env_text(place->given);
  if (given[0] != '\0') {
    return open_named(given, out_path, out_library);
  }
  hr_text found = {0};
  hr_status first = HR_OK;
  bool is_open = false;
  if (hr_places_find(place->patterns, false, &found)) {
    first = open_named(hr_text_chars(&found), out_path, out_library);
    is_open = first == HR_OK;
  }
  for (const char *const *name = place->names; *name != NULL && !is_open; ++name) {
    hr_status status = open_named(*name, out_path, out_library);
    is_open = status == HR_OK;
    if (is_open || first == HR_OK) {
      hr_status_ignore(first);
      first = status;
    } else {
      hr_status_ignore(status);
    }
  }
  hr_text_fini(&found);
  return first;
}

hr_status hr_places_open_cuda(const char *const *names, hr_dynlib *out_library) {
  static const char *const patterns[] = {"nvidia/*/lib", NULL};
  const char *given = hr_env_text(HR_ENV_CUDA_LIBS);
  hr_text folders = {0};
  if (given[0] != '\0' || !hr_places_find(patterns, true, &folders)) {
    hr_text_append(&folders, given);
  }
  hr_status status = hr_text_status(&folders);
  status = status != HR_OK ? status : hr_dynlib_find(hr_text_chars(&folders), names, out_library);
  hr_text_fini(&folders);
  return status;
}
