/* Libraries and programs that wheels bring are found beside this one, and beside the Python that loaded it. */
#include "base/places.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "hr_test.h"

static char root[64];

/* A library at a path below the root, which is a link to libm. */
static void make_library(const char *path) {
  char full[256], libm[4096];
  void *handle = dlopen("libm.so.6", RTLD_NOW);
  Dl_info info;
  HR_ASSERT(handle != NULL && dladdr(dlsym(handle, "cbrt"), &info) != 0);
  snprintf(libm, sizeof libm, "%s", info.dli_fname);
  snprintf(full, sizeof full, "%s/%s", root, path);
  for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
    *at = '\0';
    (void)!mkdir(full, 0700);
  }
  HR_ASSERT_EQ(symlink(libm, full), 0);
}

static void begin(void) {
  snprintf(root, sizeof root, "/tmp/headrace_places_XXXXXX");
  HR_ASSERT_NOT_NULL(mkdtemp(root));
  unsetenv("VIRTUAL_ENV");
  unsetenv("CONDA_PREFIX");
}

static void end(void) {
  hr_folder_remove(root);
  unsetenv("VIRTUAL_ENV");
  hr__env_reload();
}

static void check_opened(const hr_place *place, const char *path) {
  char full[256];
  hr_text opened = {0};
  hr_dynlib library = {0};
  HR_ASSERT_OK(hr_places_open(place, &opened, &library));
  snprintf(full, sizeof full, "%s/%s", root, path);
  HR_ASSERT_STR_EQ(hr_text_chars(&opened), full);
  hr_dynlib_close(&library);
  hr_text_fini(&opened);
}

HR_TEST(wheels_libraries_are_found_in_an_activated_environment) {
  begin();
  unsetenv("HEADRACE_ONEDNN");
  unsetenv("HEADRACE_LAPACK");
  hr__env_reload();
  make_library("lib/libdnnl.so.3");
  make_library("lib/python3.99/site-packages/scipy_openblas32/lib/libscipy_openblas.so");
  setenv("VIRTUAL_ENV", root, 1);
  check_opened(&hr_place_onednn, "lib/libdnnl.so.3");
  check_opened(&hr_place_lapack, "lib/python3.99/site-packages/scipy_openblas32/lib/libscipy_openblas.so");
  end();
}

/* Like torch's library, which loads this one. */
HR_TEST(wheels_libraries_are_found_beside_a_loaded_one) {
  char full[256];
  begin();
  make_library("lib/libdnnl.so.3");
  make_library("lib/python3.99/site-packages/nvidia/cu13/lib/libcudart.so.13");
  snprintf(full, sizeof full, "cp %s/lib/libdnnl.so.3 %s/lib/python3.99/site-packages/libloaded.so", root, root);
  HR_ASSERT_EQ(system(full), 0);
  snprintf(full, sizeof full, "%s/lib/python3.99/site-packages/libloaded.so", root);
  void *handle = dlopen(full, RTLD_NOW | RTLD_LOCAL);
  HR_ASSERT_NOT_NULL(handle);
  check_opened(&hr_place_onednn, "lib/libdnnl.so.3");
  static const char *const folders[] = {"nvidia/*/lib", NULL};
  hr_text found = {0};
  HR_ASSERT(hr_places_find(folders, true, &found));
  snprintf(full, sizeof full, "%s/lib/python3.99/site-packages/nvidia/cu13/lib", root);
  HR_ASSERT_CONTAINS(hr_text_chars(&found), full);
  hr_text_fini(&found);
  dlclose(handle);
  end();
}

HR_TEST(wheels_libraries_are_found_by_the_name_of_the_interpreter_that_runs) {
  char name[128], *before = program_invocation_name;
  begin();
  make_library("lib/libdnnl.so.3");
  snprintf(name, sizeof name, "%s/bin", root);
  HR_ASSERT_EQ(mkdir(name, 0700), 0);
  snprintf(name, sizeof name, "%s/bin/python", root);
  program_invocation_name = name;
  check_opened(&hr_place_onednn, "lib/libdnnl.so.3");
  program_invocation_name = before;
  end();
}

HR_TEST(a_variable_wins_and_its_failure_is_named) {
  hr_dynlib library = {0};
  begin();
  make_library("lib/libdnnl.so.3");
  setenv("VIRTUAL_ENV", root, 1);
  setenv("HEADRACE_ONEDNN", "/nowhere/libdnnl.so.3", 1);
  hr__env_reload();
  HR_ASSERT_ERROR(hr_places_open(&hr_place_onednn, NULL, &library), HR_STATUS_NOT_FOUND, "/nowhere/libdnnl.so.3");
  unsetenv("HEADRACE_ONEDNN");
  end();
}
