#include "base/dynlib.h"

#include <stdlib.h>
#include <unistd.h>

#include "hr_test.h"

HR_TEST(a_library_is_found_in_its_folder_or_by_the_loader) {
  static const char *const hidden[] = {"libnothing_here.so", "libhidden.so", NULL};
  static const char *const known[] = {"libnothing_here.so", "libm.so.6", NULL};
  char folder[] = "/tmp/hr_dynlib_XXXXXX", file[64], real[4096], folders[128];
  hr_dynlib library = {0};
  void *address;
  FILE *maps = fopen("/proc/self/maps", "r"); /* finds the path of libm, which is loaded */
  HR_ASSERT_NOT_NULL(maps);
  bool found = false;
  while (!found && fscanf(maps, "%*s %*s %*s %*s %*s%4095[^\n]", real) >= 0) {
    found = strstr(real, "/libm.so.6") != NULL || strstr(real, "/libm-") != NULL;
  }
  fclose(maps);
  HR_ASSERT_OK(hr_dynlib_find("/nonexistent::/nowhere", known, &library));
  HR_ASSERT_OK(hr_dynlib_symbol(&library, "cos", &address));
  hr_dynlib_close(&library);
  HR_ASSERT_ERROR(hr_dynlib_find("/nonexistent", hidden, &library), HR_STATUS_NOT_FOUND,
                  "/nonexistent/libnothing_here.so");
  HR_ASSERT_ERROR(hr_dynlib_find("", hidden, &library), HR_STATUS_NOT_FOUND, "\"libnothing_here.so\"");
  if (!found) {
    HR_SKIP("no path of libm");
  }
  HR_ASSERT_NOT_NULL(mkdtemp(folder));
  snprintf(file, sizeof file, "%s/libhidden.so", folder);
  snprintf(folders, sizeof folders, "/nonexistent:%s", folder);
  HR_ASSERT_EQ(symlink(strchr(real, '/'), file), 0);
  hr_status status = hr_dynlib_find(folders, hidden, &library);
  unlink(file);
  rmdir(folder);
  HR_ASSERT_OK(status);
  HR_ASSERT_OK(hr_dynlib_symbol(&library, "cos", &address));
  hr_dynlib_close(&library);
}

/* libm's code answers after its pages were unmapped. An address of no library has no effect. */
HR_TEST(trimmed_code_is_mapped_again) {
  static const char *const names[] = {"libm.so.6", NULL};
  hr_dynlib library = {0};
  void *address;
  int local = 0;
  HR_ASSERT_OK(hr_dynlib_find("", names, &library));
  HR_ASSERT_OK(hr_dynlib_symbol(&library, "exp2", &address));
  double (*function)(double) = (double (*)(double))address;
  HR_ASSERT(function(3) == 8);
  hr_dynlib_trim(address);
  hr_dynlib_trim(&local);
  hr_dynlib_trim(NULL);
  HR_ASSERT(function(5) == 32);
  hr_dynlib_close(&library);
}
