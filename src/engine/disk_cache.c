#include "engine/disk_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/vector.h"

enum { PATH_MOST = 4096, FILE_MOST = 64 << 20 };
#define MAGIC UINT64_C(0x3165636172646168) /* "hadrace1" */

/* What each file ends with. */
typedef struct footer {
  uint64_t magic, length, name_length, checksum; /* of everything before */
} footer;

/* ---- the folder ---- */

static hr_status check_folder(const char *path) {
  struct stat info;
  if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "no cache of kernels: \"%s\" is no folder", path);
  }
  if (info.st_uid != geteuid()) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "no cache of kernels: \"%s\" belongs to somebody else", path);
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "no cache of kernels: others may write to \"%s\"", path);
  }
  return HR_OK;
}

/* Makes a folder and those above it. */
static void make_folders(char *path) {
  for (char *at = path + 1; *at != 0; ++at) {
    if (*at == '/') {
      *at = 0;
      (void)!mkdir(path, 0700);
      *at = '/';
    }
  }
  (void)!mkdir(path, 0700);
}

static bool choose_folder(char *out_path) {
  const char *given = hr_env_text(HR_ENV_CACHE), *cache = hr_env_system("XDG_CACHE_HOME"),
             *home = hr_env_system("HOME");
  if (strcmp(given, "-") == 0) {
    return false;
  }
  int length = given[0] == '/'   ? snprintf(out_path, PATH_MOST, "%s", given)
               : given[0] != 0   ? -1
               : cache[0] == '/' ? snprintf(out_path, PATH_MOST, "%s/headrace", cache)
               : home[0] == '/'  ? snprintf(out_path, PATH_MOST, "%s/.cache/headrace", home)
                                 : -1;
  return length > 0 && length < PATH_MOST - 128;
}

hr_status hr__disk_cache_open(uint64_t identity, hr_disk_cache *out_cache) {
  char path[PATH_MOST];
  if (!choose_folder(path)) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "no cache of kernels: HEADRACE_CACHE names no absolute path");
  }
  make_folders(path);
  HR_RETURN_IF_ERROR(check_folder(path));
  size_t length = strlen(path) + 1;
  char *folder = hr_malloc(length);
  if (folder == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a path");
  }
  memcpy(folder, path, length);
  *out_cache = (hr_disk_cache){.folder = folder, .identity = identity};
  return HR_OK;
}

void hr__disk_cache_fini(hr_disk_cache *cache) {
  hr_free(cache->folder);
  cache->folder = NULL;
}

/* ---- files ---- */

/* Two hashes: names of different texts are different as far as anybody will see. */
static void name_of(const hr_disk_cache *cache, const char *text, size_t length, const char *suffix, char *out_name) {
  uint64_t a = hr_hash_bytes(HR_HASH_SEED ^ cache->identity, text, length);
  uint64_t b = hr_hash_bytes(a ^ HR_HASH_MULTIPLIER, text, length);
  snprintf(out_name, 128, "%016llx-%016llx%016llx.%s", (unsigned long long)cache->identity, (unsigned long long)a,
           (unsigned long long)b, suffix);
}

/* A file of ours, with its footer checked; free the bytes with hr_free. NULL when there is no sound one. */
static char *read_file(const char *path, footer *out_footer) {
  int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info;
  char *bytes = NULL;
  if (file < 0) {
    return NULL;
  }
  bool ok = fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
            (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && info.st_size >= (off_t)sizeof *out_footer &&
            info.st_size <= FILE_MOST;
  size_t size = ok ? (size_t)info.st_size : 0;
  bytes = ok ? hr_malloc(size) : NULL;
  size_t have = 0;
  while (bytes != NULL && have < size) {
    ssize_t count = read(file, bytes + have, size - have);
    if (count <= 0 && !(count < 0 && errno == EINTR)) {
      break;
    }
    have += count > 0 ? (size_t)count : 0;
  }
  close(file);
  if (bytes == NULL || have != size) {
    hr_free(bytes);
    return NULL;
  }
  size -= sizeof *out_footer;
  memcpy(out_footer, bytes + size, sizeof *out_footer);
  if (out_footer->magic != MAGIC || out_footer->length != size || out_footer->name_length > size ||
      out_footer->checksum != hr_hash_bytes(HR_HASH_SEED, bytes, size)) {
    hr_free(bytes);
    return NULL;
  }
  return bytes;
}

static bool write_all(int file, const void *bytes, size_t count) {
  const char *at = bytes;
  while (count > 0) {
    ssize_t written = write(file, at, count);
    if (written < 0 && errno != EINTR) {
      return false;
    }
    at += written > 0 ? written : 0;
    count -= written > 0 ? (size_t)written : 0;
  }
  return true;
}

/* Writes a file under another name, and renames it. */
static hr_status write_file(const char *path, const char *bytes, size_t length, size_t name_length) {
  char draft[PATH_MOST];
  footer end = {MAGIC, length, name_length, hr_hash_bytes(HR_HASH_SEED, bytes, length)};
  snprintf(draft, sizeof draft, "%s.XXXXXX", path);
  int file = mkstemp(draft);
  bool ok = file >= 0 && write_all(file, bytes, length) && write_all(file, &end, sizeof end);
  ok = file >= 0 && close(file) == 0 && ok;
  if (ok && rename(draft, path) == 0) {
    return HR_OK;
  }
  if (file >= 0) {
    unlink(draft);
  }
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "\"%s\" can't be written: %s", path, strerror(errno));
}

/* ---- kernels and libraries ---- */

/* A reference is the text, then the name of the library. */
bool hr__disk_cache_find(const hr_disk_cache *cache, const char *text, size_t length, hr_text *out_path) {
  char name[128], path[PATH_MOST];
  footer end;
  name_of(cache, text, length, "ref", name);
  snprintf(path, sizeof path, "%s/%s", cache->folder, name);
  char *reference = read_file(path, &end);
  if (reference == NULL) {
    return false;
  }
  size_t name_length = (size_t)end.name_length, text_length = (size_t)end.length - name_length;
  bool ok = text_length == length && memcmp(reference, text, length) == 0 &&
            memchr(reference + length, '/', name_length) == NULL;
  hr_text_clear(out_path);
  hr_text_printf(out_path, "%s/%.*s", cache->folder, ok ? (int)name_length : 0, reference + text_length);
  hr_free(reference);
  char *library = ok && hr_text_status(out_path) == NULL ? read_file(hr_text_chars(out_path), &end) : NULL;
  ok = library != NULL;
  hr_free(library);
  if (ok) { /* used just now */
    utimensat(AT_FDCWD, path, NULL, 0);
    utimensat(AT_FDCWD, hr_text_chars(out_path), NULL, 0);
  }
  return ok;
}

hr_status hr__disk_cache_add_library(const hr_disk_cache *cache, const char *text, size_t length, const char *path,
                                     hr_text *out_path) {
  char name[128];
  FILE *file = fopen(path, "rb");
  struct stat info;
  if (file == NULL || fstat(fileno(file), &info) != 0 || info.st_size > FILE_MOST) {
    if (file != NULL) {
      fclose(file);
    }
    return hr_status_make(HR_STATUS_NOT_FOUND, "\"%s\" can't be read", path);
  }
  size_t size = (size_t)info.st_size;
  char *bytes = hr_malloc(size + 1);
  bool ok = bytes != NULL && fread(bytes, 1, size, file) == size;
  fclose(file);
  name_of(cache, text, length, "so", name);
  hr_text_clear(out_path);
  hr_text_printf(out_path, "%s/%s", cache->folder, name);
  hr_status status = ok ? hr_text_status(out_path) : hr_status_make(HR_STATUS_NOT_FOUND, "\"%s\" can't be read", path);
  if (status == NULL) {
    status = write_file(hr_text_chars(out_path), bytes, size, 0);
  }
  hr_free(bytes);
  return status;
}

hr_status hr__disk_cache_add_kernel(const hr_disk_cache *cache, const char *text, size_t length, const char *path) {
  char name[128], to[PATH_MOST];
  const char *library = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
  hr_text bytes = {0};
  name_of(cache, text, length, "ref", name);
  snprintf(to, sizeof to, "%s/%s", cache->folder, name);
  hr_text_append_bytes(&bytes, text, length);
  hr_text_append(&bytes, library);
  hr_status status = hr_text_status(&bytes);
  if (status == NULL) {
    status = write_file(to, bytes.data, bytes.length, strlen(library));
  }
  hr_text_fini(&bytes);
  return status;
}

/* Images and choices are the text, then what it stands for. */
static bool find_entry(const hr_disk_cache *cache, const char *text, size_t length, const char *suffix,
                       hr_text *out_bytes) {
  char name[128], path[PATH_MOST];
  footer end;
  name_of(cache, text, length, suffix, name);
  snprintf(path, sizeof path, "%s/%s", cache->folder, name);
  char *bytes = read_file(path, &end);
  bool ok = bytes != NULL && end.length - end.name_length == length && memcmp(bytes, text, length) == 0 &&
            hr_text_append_bytes(out_bytes, bytes + length, (size_t)end.name_length);
  hr_free(bytes);
  if (ok) {
    utimensat(AT_FDCWD, path, NULL, 0);
  }
  return ok;
}

static hr_status add_entry(const hr_disk_cache *cache, const char *text, size_t length, const char *suffix,
                           const char *bytes, size_t byte_count) {
  char name[128], path[PATH_MOST];
  hr_text whole = {0};
  name_of(cache, text, length, suffix, name);
  snprintf(path, sizeof path, "%s/%s", cache->folder, name);
  hr_text_append_bytes(&whole, text, length);
  hr_text_append_bytes(&whole, bytes, byte_count);
  hr_status status = hr_text_status(&whole);
  if (status == NULL) {
    status = write_file(path, whole.data, whole.length, byte_count);
  }
  hr_text_fini(&whole);
  return status;
}

bool hr__disk_cache_find_image(const hr_disk_cache *cache, const char *text, size_t length, hr_text *out_image) {
  return find_entry(cache, text, length, "image", out_image);
}

hr_status hr__disk_cache_add_image(const hr_disk_cache *cache, const char *text, size_t length, const char *image,
                                   size_t image_length) {
  return add_entry(cache, text, length, "image", image, image_length);
}

bool hr__disk_cache_find_tuning(const hr_disk_cache *cache, const char *key, size_t length, hr_text *out_value) {
  return find_entry(cache, key, length, "choice", out_value);
}

hr_status hr__disk_cache_add_tuning(const hr_disk_cache *cache, const char *key, size_t length, const char *value,
                                    size_t value_length) {
  return add_entry(cache, key, length, "choice", value, value_length);
}

/* ---- size ---- */

typedef struct kept_file {
  char name[160];
  int64_t bytes;
  struct timespec used;
} kept_file;

static int compare_age(const void *a, const void *b) {
  const struct timespec *x = &((const kept_file *)a)->used, *y = &((const kept_file *)b)->used;
  return x->tv_sec != y->tv_sec ? (x->tv_sec < y->tv_sec ? -1 : 1)
                                : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

void hr__disk_cache_trim(const hr_disk_cache *cache) {
  HR_VECTOR(kept_file) files = {0};
  int64_t total = 0, limit = hr_env_int(HR_ENV_CACHE_BYTES);
  DIR *folder = opendir(cache->folder);
  for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    kept_file file;
    struct stat info;
    if (strlen(entry->d_name) >= sizeof file.name ||
        fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) {
      continue;
    }
    snprintf(file.name, sizeof file.name, "%s", entry->d_name);
    file.bytes = (int64_t)info.st_blocks * 512;
    file.used = info.st_mtim;
    total += file.bytes;
    if (!hr_vector_push(&files, file)) {
      break;
    }
  }
  if (total > limit && files.count > 0) {
    qsort(files.data, files.count, sizeof *files.data, compare_age);
    for (size_t i = 0; i < files.count && total > limit - limit / 8; ++i) {
      total -= files.data[i].bytes;
      unlinkat(dirfd(folder), files.data[i].name, 0);
    }
  }
  if (folder != NULL) {
    closedir(folder);
  }
  hr_vector_fini(&files);
}
