/* The disk cache: it touches only its own files, in a folder that no other user can replace, and loads exactly the
 * bytes that it has checked.
 */
#include "engine/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "cache_folder.h"

#include "base/dynlib.h"
#include "base/env.h"
#include "engine/host_compiler.h"

static hr_disk_cache begin(void) {
  hr_disk_cache cache;
  make_root(NULL);
  setenv("HEADRACE_CACHE_BYTES", "64K", 1);
  hr__env_reload();
  HR_ASSERT_OK(hr__disk_cache_open(1, &cache));
  return cache;
}

static void end(hr_disk_cache *cache) {
  hr__disk_cache_fini(cache);
  unsetenv("HEADRACE_CACHE_BYTES");
  remove_root();
  hr__env_reload();
}

static void write_file(const char *directory, const char *name, size_t bytes) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  HR_ASSERT(file >= 0);
  for (char block[4096] = {1}; bytes > 0; bytes -= bytes < sizeof block ? bytes : sizeof block) {
    size_t part = bytes < sizeof block ? bytes : sizeof block;
    HR_ASSERT_EQ(write(file, block, part), (ssize_t)part);
  }
  close(file);
}

static bool has_file(const char *directory, const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return access(path, F_OK) == 0;
}

/* Adds `count` images of two blocks. */
static void add_images(const hr_disk_cache *cache, int first, int count) {
  char text[64], image[4096] = {7};
  for (int k = first; k < first + count; ++k) {
    snprintf(text, sizeof text, "text %d", k);
    HR_ASSERT_OK(hr__disk_cache_add_image(cache, text, strlen(text), image, sizeof image));
    hr__disk_cache_trim(cache);
  }
}

/* ---- whose files ---- */

#define OWN_NAME "0123456789abcdef-0123456789abcdef0123456789abcdef"

HR_TEST(files_of_the_user_stay_whatever_the_limit) {
  hr_disk_cache cache = begin();
  write_file(root, "thesis.tex", 100000);
  write_file(root, OWN_NAME ".so", 100000); /* even of the cache's naming: it is not in the cache's folder */
  write_file(folder, "thesis.bib", 100000);
  write_file(folder, OWN_NAME ".so.bak", 100000);
  add_images(&cache, 0, 60);
  HR_ASSERT(each_file(".image", NULL) * 8192 <= 65536 && each_file(".image", NULL) > 4);
  HR_ASSERT(has_file(root, "thesis.tex") && has_file(root, OWN_NAME ".so"));
  HR_ASSERT(has_file(folder, "thesis.bib") && has_file(folder, OWN_NAME ".so.bak"));
  end(&cache);
}

HR_TEST(the_folder_has_a_tag_for_backups) {
  hr_disk_cache cache = begin();
  char path[256], text[64] = "";
  snprintf(path, sizeof path, "%s/CACHEDIR.TAG", folder);
  FILE *file = fopen(path, "r");
  HR_ASSERT(file != NULL && fgets(text, sizeof text, file) != NULL);
  fclose(file);
  HR_ASSERT_STR_EQ(text, "Signature: 8a477f597d28d172789f06886806bc55\n");
  end(&cache);
}

HR_TEST(a_program_that_closes_all_files_and_opens_others_keeps_them) {
  hr_disk_cache cache = begin();
  char other[] = "/tmp/headrace_other_XXXXXX";
  HR_ASSERT_NOT_NULL(mkdtemp(other));
  int directory = open(other, O_RDONLY | O_DIRECTORY);
  HR_ASSERT_EQ(dup2(directory, cache.folder), cache.folder);
  hr_status status = hr__disk_cache_add_image(&cache, "text", 4, "code", 4);
  HR_ASSERT(status != HR_OK);
  hr_status_ignore(status);
  HR_ASSERT_EQ(rmdir(other), 0); /* it is empty */
  int number = cache.folder;
  hr__disk_cache_fini(&cache);
  HR_ASSERT_EQ(fcntl(number, F_GETFD), 0); /* and still open */
  close(number);
  close(directory);
  end(&cache);
}

/* ---- size ---- */

HR_TEST(the_folder_stays_below_its_limit) {
  hr_disk_cache cache = begin();
  hr_text name = {0};
  char text[64];
  int file = open("/proc/self/exe", O_RDONLY), found;
  char path[] = "/tmp/headrace_library_XXXXXX";
  close(file);
  file = mkstemp(path);
  HR_ASSERT_EQ(write(file, path, sizeof path), (ssize_t)sizeof path);
  for (int k = 0; k < 40; ++k) { /* 4 KB blocks */
    snprintf(text, sizeof text, "text %d", k);
    HR_ASSERT_OK(hr__disk_cache_add_library(&cache, text, strlen(text), file, &name));
    HR_ASSERT_OK(hr__disk_cache_add_kernel(&cache, text, strlen(text), hr_text_chars(&name)));
    hr__disk_cache_trim(&cache);
    HR_ASSERT((each_file(".so", NULL) + each_file(".ref", NULL)) * 4096 <= 65536);
  }
  close(file);
  unlink(path);
  HR_ASSERT(hr__disk_cache_find(&cache, "text 39", 7, &found));
  close(found);
  HR_ASSERT(!hr__disk_cache_find(&cache, "text 0", 6, &found));
  hr_text_clear(&name);
  HR_ASSERT(!hr__disk_cache_find_image(&cache, "kernel", 6, &name));
  HR_ASSERT_OK(hr__disk_cache_add_image(&cache, "kernel", 6, "\0code\0", 6));
  HR_ASSERT(hr__disk_cache_find_image(&cache, "kernel", 6, &name));
  HR_ASSERT(name.length == 6 && memcmp(name.data, "\0code\0", 6) == 0);
  HR_ASSERT(!hr__disk_cache_find_image(&cache, "kerne", 5, &name));
  hr_text_fini(&name);
  end(&cache);
}

/* A file that appears without the cache's doing is seen by a walk alone. */
HR_TEST(trimming_walks_over_the_folder_only_when_its_noted_size_passes_the_limit) {
  hr_disk_cache cache = begin();
  int64_t files, bytes;
  add_images(&cache, 0, 2);
  write_file(folder, OWN_NAME ".image", 100000);
  add_images(&cache, 2, 3);
  HR_ASSERT_EQ(each_file(".image", NULL), 6);
  hr__disk_cache_measure(&cache, &files, &bytes);
  HR_ASSERT(files == 6 && bytes > 100000);
  add_images(&cache, 5, 10);
  HR_ASSERT(!has_file(folder, OWN_NAME ".image"));
  HR_ASSERT(each_file(".image", NULL) * 8192 <= 65536);
  end(&cache);
}

HR_TEST(unfinished_drafts_are_removed) {
  hr_disk_cache cache = begin();
  char path[256];
  write_file(folder, OWN_NAME ".so.0a1b2c", 10);
  write_file(folder, OWN_NAME ".so.0a1b2d", 10);
  snprintf(path, sizeof path, "%s/%s", folder, OWN_NAME ".so.0a1b2d");
  const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  HR_ASSERT_EQ(utimensat(AT_FDCWD, path, old, 0), 0);
  hr__disk_cache_trim(&cache);
  HR_ASSERT(has_file(folder, OWN_NAME ".so.0a1b2c") && !has_file(folder, OWN_NAME ".so.0a1b2d"));
  end(&cache);
}

/* ---- whose folder ---- */

static hr_status try_open(const char *path) {
  int opened = -1;
  hr_status status = hr_folder_open(path, &opened);
  if (status == HR_OK) {
    close(opened);
  }
  return status;
}

HR_TEST(a_folder_that_others_can_exchange_is_refused) {
  char path[256], link[256];
  make_root(NULL);
  snprintf(path, sizeof path, "%s/a/b", root);
  snprintf(link, sizeof link, "%s/link", root);
  HR_ASSERT_OK(try_open(path));
  HR_ASSERT_EQ(chmod(path, 0770), 0);
  HR_ASSERT_ERROR(try_open(path), HR_STATUS_FAILED_PRECONDITION, "can be written to by other users");
  HR_ASSERT_EQ(chmod(path, 0755), 0);
  HR_ASSERT_OK(try_open(path));
  HR_ASSERT_EQ(chmod(root, 0777), 0);
  HR_ASSERT_ERROR(try_open(path), HR_STATUS_FAILED_PRECONDITION, "a folder above it can be written to by other users");
  HR_ASSERT_EQ(chmod(root, 01777), 0); /* sticky: as /tmp */
  HR_ASSERT_OK(try_open(path));
  HR_ASSERT_EQ(symlink(path, link), 0); /* links are resolved, and then their target is checked */
  HR_ASSERT_OK(try_open(link));
  HR_ASSERT_EQ(chmod(path, 0777), 0);
  HR_ASSERT_ERROR(try_open(link), HR_STATUS_FAILED_PRECONDITION, "can be written to by other users");
  HR_ASSERT_ERROR(try_open("relative"), HR_STATUS_FAILED_PRECONDITION, "no absolute path");
  HR_ASSERT_ERROR(try_open("/proc/nowhere/at/all"), HR_STATUS_FAILED_PRECONDITION, "can't be made");
  if (geteuid() == 0) {
    HR_ASSERT_EQ(chmod(path, 0755) + chown(path, 12345, 12345), 0);
    HR_ASSERT_ERROR(try_open(path), HR_STATUS_FAILED_PRECONDITION, "belongs to another user");
  }
  remove_root();
}

/* ---- loaded bytes ---- */

static int load_answer(int file) {
  hr_dynlib library = {0};
  void *address;
  int (*answer)(void);
  HR_ASSERT_OK(hr_dynlib_open_file(file, &library));
  HR_ASSERT_OK(hr_dynlib_symbol(&library, "answer", &address));
  memcpy(&answer, &address, sizeof address);
  int value = answer();
  hr_dynlib_close(&library);
  return value;
}

/* Makes a library that returns a number, stored in the cache for `text` (or NULL); returns a descriptor. */
static int make_library(const hr_disk_cache *cache, const char *text, int number) {
  hr_text path = {0}, name = {0};
  char source[128];
  snprintf(source, sizeof source, "__attribute__((visibility(\"default\"))) int answer(void) { return %d; }\n", number);
  HR_ASSERT_OK(hr__host_compile(NULL, source, strlen(source), NULL, &path));
  int file = open(hr_text_chars(&path), O_RDONLY | O_CLOEXEC);
  HR_ASSERT(file >= 0);
  if (text != NULL) {
    HR_ASSERT_OK(hr__disk_cache_add_library(cache, text, strlen(text), file, &name));
    HR_ASSERT_OK(hr__disk_cache_add_kernel(cache, text, strlen(text), hr_text_chars(&name)));
  }
  hr__host_compiler_remove(hr_text_chars(&path));
  hr_text_fini(&path);
  hr_text_fini(&name);
  return file;
}

static void skip_without_compiler(void) {
  hr_host_compiler compiler;
  hr_status status = hr__host_compiler_find(0, &compiler);
  bool found = status == HR_OK;
  hr_status_ignore(status);
  if (!found) {
    HR_SKIP("no compiler");
  }
}

HR_TEST(the_checked_bytes_are_the_loaded_bytes) {
  skip_without_compiler();
  hr_disk_cache cache = begin();
  int file, other;
  close(make_library(&cache, "text", 41));
  HR_ASSERT(hr__disk_cache_find(&cache, "text", 4, &file));
  close(make_library(&cache, "text", 43)); /* another one replaces the name between the check and the loading */
  HR_ASSERT(hr__disk_cache_find(&cache, "text", 4, &other));
  HR_ASSERT_EQ(load_answer(file), 41);
  HR_ASSERT_EQ(load_answer(other), 43);
  close(file);
  close(other);
  end(&cache);
}

/* The loader treats libraries of the same name as the same library, and numbers of descriptors are used again. */
HR_TEST(libraries_with_the_same_descriptor_are_distinguished) {
  skip_without_compiler();
  hr_dynlib library = {0};
  int first = make_library(NULL, NULL, 1);
  HR_ASSERT_OK(hr_dynlib_open_file(first, &library)); /* stays open */
  close(first);
  int second = make_library(NULL, NULL, 2);
  HR_ASSERT_EQ(second, first);
  HR_ASSERT_EQ(load_answer(second), 2);
  close(second);
  hr_dynlib_close(&library);
}
