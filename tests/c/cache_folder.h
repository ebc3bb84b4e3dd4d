/* cache_folder.h: a temporary folder for a test of the disk cache: HEADRACE_CACHE names `root`, the files are in
 * `folder`. */
#ifndef HEADRACE_TESTS_CACHE_FOLDER_H_
#define HEADRACE_TESTS_CACHE_FOLDER_H_

#include <dirent.h>
#include <unistd.h>

#include "base/folder.h"
#include "hr_test.h"

static char root[64], folder[128];

/* `shared` (or NULL): one that another process made. */
static inline void make_root(const char *shared) {
  snprintf(root, sizeof root, "%s", shared != NULL ? shared : "/tmp/headrace_test_XXXXXX");
  HR_ASSERT(shared != NULL || mkdtemp(root) != NULL);
  snprintf(folder, sizeof folder, "%s/headrace-kernels", root);
  setenv("HEADRACE_CACHE", root, 1);
}

static inline void remove_root(void) {
  unsetenv("HEADRACE_CACHE");
  hr_folder_remove(root);
  HR_ASSERT(access(root, F_OK) != 0);
}

/* Calls fn (or NULL) for each file of the cache whose name ends so, except its tag and its size; returns their number.
 */
static inline int each_file(const char *suffix, void (*fn)(const char *path)) {
  int found = 0;
  DIR *files = opendir(folder);
  for (struct dirent *entry; files != NULL && (entry = readdir(files)) != NULL;) {
    size_t length = strlen(entry->d_name), wanted = strlen(suffix);
    bool is_own =
        entry->d_name[0] == '.' || strcmp(entry->d_name, "CACHEDIR.TAG") == 0 || strcmp(entry->d_name, "SIZE") == 0;
    if (!is_own && length >= wanted && strcmp(entry->d_name + length - wanted, suffix) == 0) {
      char path[512];
      snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
      ++found;
      if (fn != NULL) {
        fn(path);
      }
    }
  }
  if (files != NULL) {
    closedir(files);
  }
  return found;
}

#endif
