#include "engine/disk_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/env.h"
#include "base/folder.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/vector.h"

enum { NAME_BYTES = 128, FILE_MOST = 64 << 20, DRAFT_SECONDS = 3600, BLOCK = 4096 };
#define MAGIC UINT64_C(0x3165636172646168) /* "hadrace1" */

/* The end of each file. */
typedef struct footer {
  uint64_t magic, length, name_length, checksum; /* of everything before */
} footer;

/* ---- the folder ---- */

/* The user's home: HOME, or the system's entry. */
static bool find_home(char *out_path, size_t bytes) {
  const char *home = hr_env_system("HOME");
  struct passwd user, *found = NULL;
  char room[4096];
  if (home[0] == '\0' && getpwuid_r(geteuid(), &user, room, sizeof room, &found) == 0 && found != NULL) {
    home = user.pw_dir;
  }
  return home[0] != '\0' && (size_t)snprintf(out_path, bytes, "%s", home) < bytes;
}

bool hr__disk_cache_path(hr_text *out_path) {
  const char *given = hr_env_text(HR_ENV_CACHE), *cache = hr_env_system("XDG_CACHE_HOME");
  char home[4096];
  if (given[0] != '\0') { /* foreign files may be there */
    return strcmp(given, "-") != 0 && hr_text_printf(out_path, "%s/headrace-kernels", given);
  }
  if (cache[0] == '/') {
    return hr_text_printf(out_path, "%s/headrace", cache);
  }
  return find_home(home, sizeof home) && hr_text_printf(out_path, "%s/.cache/headrace", home);
}

/* See https://bford.info/cachedir: only the first 43 bytes count. */
static void write_tag(int folder) {
  static const char text[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                             "# Kernels that Headrace has compiled. They are made again when they are missing.\n";
  int file = openat(folder, "CACHEDIR.TAG", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file >= 0) {
    (void)!write(file, text, sizeof text - 1);
    close(file);
  }
}

static hr_status open_folder(int *out_folder) {
  hr_text path = {0};
  hr_status status = HR_OK;
  if (!hr__disk_cache_path(&path)) {
    status = hr_status_make(HR_STATUS_FAILED_PRECONDITION, "there is no HOME");
  }
  status = status != HR_OK ? status : hr_text_status(&path);
  status = status != HR_OK ? status : hr_folder_open(hr_text_chars(&path), out_folder);
  hr_text_fini(&path);
  return status;
}

hr_status hr__disk_cache_open(uint64_t identity, hr_disk_cache *out_cache) {
  int folder = -1;
  struct stat info;
  if (strcmp(hr_env_text(HR_ENV_CACHE), "-") == 0) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "no cache of kernels: HEADRACE_CACHE is -");
  }
  hr_status status = open_folder(&folder);
  if (status == HR_OK && fstat(folder, &info) != 0) {
    close(folder);
    status = hr_status_make(HR_STATUS_FAILED_PRECONDITION, "%s", strerror(errno));
  }
  if (status != HR_OK) {
    hr_log_once(
        "compiled kernels are not kept, each process compiles its own: %s; HEADRACE_CACHE names another folder, or - "
        "for none",
        hr_status_message(status));
    return hr_status_annotate(status, "no cache of kernels");
  }
  write_tag(folder);
  *out_cache = (hr_disk_cache){.folder = folder, .device = info.st_dev, .inode = info.st_ino, .identity = identity};
  return HR_OK;
}

/* The descriptor, if it is still the folder's; else one that every call rejects. */
static int folder_of(const hr_disk_cache *cache) {
  struct stat info;
  bool is_ours = fstat(cache->folder, &info) == 0 && info.st_dev == cache->device && info.st_ino == cache->inode;
  return is_ours ? cache->folder : -1;
}

void hr__disk_cache_fini(hr_disk_cache *cache) {
  if (folder_of(cache) >= 0) {
    close(cache->folder);
  }
  cache->folder = -1;
}

/* ---- size ---- */

/* The contents of SIZE. Processes that add at the same time may lose one another's bytes: then a walk comes later. */
typedef struct size_note {
  uint64_t magic;
  int64_t bytes;
} size_note;

static bool read_size(int folder, size_note *out_note) {
  int file = openat(folder, "SIZE", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  bool ok = file >= 0 && read(file, out_note, sizeof *out_note) == sizeof *out_note && out_note->magic == MAGIC &&
            out_note->bytes >= 0;
  if (file >= 0) {
    close(file);
  }
  return ok;
}

static void write_size(int folder, int64_t bytes) {
  size_note note = {MAGIC, bytes};
  int file = openat(folder, "SIZE", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file >= 0) {
    (void)!write(file, &note, sizeof note);
    close(file);
  }
}

static void grow(int folder, size_t bytes) {
  size_note note;
  if (read_size(folder, &note)) {
    write_size(folder, note.bytes + (int64_t)(bytes / BLOCK + 1) * BLOCK);
  }
}

/* ---- files ---- */

uint64_t hr__disk_cache_hash(const hr_disk_cache *cache, const char *key, size_t length) {
  return hr_hash_bytes(HR_HASH_SEED ^ cache->identity, key, length);
}

/* The name of a text: two hashes, so that collisions are practically impossible. */
static void name_of(const hr_disk_cache *cache, const char *text, size_t length, const char *suffix,
                    char out_name[NAME_BYTES]) {
  uint64_t a = hr__disk_cache_hash(cache, text, length);
  uint64_t b = hr_hash_bytes(a ^ HR_HASH_MULTIPLIER, text, length);
  snprintf(out_name, NAME_BYTES, "%016llx-%016llx%016llx.%s", (unsigned long long)cache->identity,
           (unsigned long long)a, (unsigned long long)b, suffix);
}

/* The bytes of an open file of ours, and its footer, checked; free them with hr_free. NULL if it is damaged. */
static char *read_bytes(int file, footer *out_footer) {
  struct stat info;
  bool ok = fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
            (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && info.st_size >= (off_t)sizeof *out_footer &&
            info.st_size <= FILE_MOST;
  size_t size = ok ? (size_t)info.st_size : 0, have = 0;
  char *bytes = ok ? hr_malloc(size) : NULL;
  while (bytes != NULL && have < size) {
    ssize_t count = pread(file, bytes + have, size - have, (off_t)have);
    if (count <= 0 && !(count < 0 && errno == EINTR)) {
      break;
    }
    have += count > 0 ? (size_t)count : 0;
  }
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

/* Reads a file of ours by its name. `out_file` (or NULL) stays open if the file is intact. */
static char *read_file(const hr_disk_cache *cache, const char *name, footer *out_footer, int *out_file) {
  int file = openat(folder_of(cache), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  char *bytes = file >= 0 ? read_bytes(file, out_footer) : NULL;
  if (bytes != NULL && out_file != NULL) {
    *out_file = file;
  } else if (file >= 0) {
    close(file);
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

/* Creates a file with the final name plus a suffix. */
static int open_draft(int folder, const char *name, char out_draft[NAME_BYTES + 8]) {
  struct timespec now;
  for (int attempt = 0; attempt < 100; ++attempt) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t words[] = {(uint64_t)now.tv_nsec, (uint64_t)now.tv_sec, (uint64_t)getpid(), (uint64_t)(uintptr_t)&now};
    snprintf(out_draft, NAME_BYTES + 8, "%s.%06x", name, (unsigned)(hr_hash_words(HR_HASH_SEED, words, 4) & 0xffffff));
    int file = openat(folder, out_draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file >= 0 || errno != EEXIST) {
      return file;
    }
  }
  return -1;
}

/* Writes a file under another name, and renames it. */
static hr_status write_file(const hr_disk_cache *cache, const char *name, const char *bytes, size_t length,
                            size_t name_length) {
  char draft[NAME_BYTES + 8];
  footer end = {MAGIC, length, name_length, hr_hash_bytes(HR_HASH_SEED, bytes, length)};
  int folder = folder_of(cache), file = open_draft(folder, name, draft);
  bool ok = file >= 0 && write_all(file, bytes, length) && write_all(file, &end, sizeof end);
  ok = file >= 0 && close(file) == 0 && ok;
  if (ok && renameat(folder, draft, folder, name) == 0) {
    grow(folder, length + sizeof end);
    return HR_OK;
  }
  hr_status status =
      hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "\"%s\" of the cache can't be written: %s", name, strerror(errno));
  if (file >= 0) {
    unlinkat(folder, draft, 0);
  }
  return status;
}

/* ---- kernels and libraries ---- */

/* A reference is the text, then the name of the library, which is copied to `out_library`. */
static bool find_library(const hr_disk_cache *cache, const char *reference, const char *text, size_t length,
                         char out_library[NAME_BYTES]) {
  footer end;
  char *bytes = read_file(cache, reference, &end, NULL);
  size_t name_length = bytes != NULL ? (size_t)end.name_length : 0;
  bool ok = bytes != NULL && (size_t)end.length - name_length == length && memcmp(bytes, text, length) == 0 &&
            name_length < NAME_BYTES && memchr(bytes + length, '/', name_length) == NULL;
  if (ok) {
    memcpy(out_library, bytes + length, name_length);
    out_library[name_length] = '\0';
  }
  hr_free(bytes);
  return ok;
}

bool hr__disk_cache_find(const hr_disk_cache *cache, const char *text, size_t length, int *out_file) {
  char reference[NAME_BYTES], library[NAME_BYTES];
  footer end;
  name_of(cache, text, length, "ref", reference);
  char *bytes =
      find_library(cache, reference, text, length, library) ? read_file(cache, library, &end, out_file) : NULL;
  if (bytes != NULL) { /* updates its time of last use */
    utimensat(folder_of(cache), reference, NULL, 0);
    futimens(*out_file, NULL);
  }
  hr_free(bytes);
  return bytes != NULL;
}

hr_status hr__disk_cache_add_library(const hr_disk_cache *cache, const char *text, size_t length, int library,
                                     hr_text *out_name) {
  char name[NAME_BYTES];
  struct stat info;
  size_t size = fstat(library, &info) == 0 && info.st_size <= FILE_MOST ? (size_t)info.st_size : 0;
  char *bytes = hr_malloc(size + 1);
  if (bytes == NULL || size == 0 || pread(library, bytes, size, 0) != (ssize_t)size) {
    hr_free(bytes);
    return hr_status_make(HR_STATUS_NOT_FOUND, "a compiled library can't be read");
  }
  name_of(cache, text, length, "so", name);
  hr_text_clear(out_name);
  hr_text_append(out_name, name);
  hr_status status = hr_text_status(out_name);
  status = status != HR_OK ? status : write_file(cache, name, bytes, size, 0);
  hr_free(bytes);
  return status;
}

/* Entries other than libraries: the text, then its value. */
static bool find_entry(const hr_disk_cache *cache, const char *text, size_t length, const char *suffix,
                       hr_text *out_bytes) {
  char name[NAME_BYTES];
  footer end;
  name_of(cache, text, length, suffix, name);
  char *bytes = read_file(cache, name, &end, NULL);
  bool ok = bytes != NULL && end.length - end.name_length == length && memcmp(bytes, text, length) == 0 &&
            hr_text_append_bytes(out_bytes, bytes + length, (size_t)end.name_length);
  hr_free(bytes);
  if (ok) {
    utimensat(folder_of(cache), name, NULL, 0);
  }
  return ok;
}

static hr_status add_entry(const hr_disk_cache *cache, const char *text, size_t length, const char *suffix,
                           const char *bytes, size_t byte_count) {
  char name[NAME_BYTES];
  hr_text whole = {0};
  name_of(cache, text, length, suffix, name);
  hr_text_append_bytes(&whole, text, length);
  hr_text_append_bytes(&whole, bytes, byte_count);
  hr_status status = hr_text_status(&whole);
  status = status != HR_OK ? status : write_file(cache, name, whole.data, whole.length, byte_count);
  hr_text_fini(&whole);
  return status;
}

hr_status hr__disk_cache_add_kernel(const hr_disk_cache *cache, const char *text, size_t length, const char *name) {
  return add_entry(cache, text, length, "ref", name, strlen(name));
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

/* ---- trimming ---- */

typedef struct kept_file {
  char name[NAME_BYTES + 8];
  int64_t bytes;
  struct timespec used;
} kept_file;

typedef HR_VECTOR(kept_file) kept_files;

static bool is_hex(const char *text, size_t count) {
  return strspn(text, "0123456789abcdef") >= count;
}

/* True for a name that name_of makes; *is_draft if it is one of a file that was not finished. */
static bool is_ours(const char *name, bool *is_draft) {
  static const char *const suffixes[] = {"so", "ref", "image", "choice"};
  if (!is_hex(name, 16) || name[16] != '-' || !is_hex(name + 17, 32) || name[49] != '.') {
    return false;
  }
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; ++i) {
    size_t length = strlen(suffixes[i]);
    const char *rest = name + 50 + length;
    if (strncmp(name + 50, suffixes[i], length) == 0) {
      *is_draft = rest[0] == '.' && is_hex(rest + 1, 6) && rest[7] == '\0';
      return rest[0] == '\0' || *is_draft;
    }
  }
  return false;
}

/* The names in a folder, or NULL; closedir ends them. */
static DIR *open_names(int folder) {
  int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *names = copy >= 0 ? fdopendir(copy) : NULL;
  if (names == NULL && copy >= 0) {
    close(copy);
  }
  return names;
}

/* The hash in a name of a tuning-cache entry; false for other names. */
static bool read_hash(const hr_disk_cache *cache, const char *name, uint64_t *out_hash) {
  bool is_draft;
  if (!is_ours(name, &is_draft) || is_draft || strcmp(name + 50, "choice") != 0 ||
      strtoull(name, NULL, 16) != cache->identity) {
    return false;
  }
  char digits[17] = {0};
  memcpy(digits, name + 17, 16);
  *out_hash = strtoull(digits, NULL, 16);
  return true;
}

bool hr__disk_cache_list_tunings(const hr_disk_cache *cache, size_t most, hr_table *out_hashes) {
  DIR *names = open_names(folder_of(cache));
  bool ok = names != NULL;
  for (struct dirent *entry; ok && (entry = readdir(names)) != NULL;) {
    uint64_t hash;
    ok = !read_hash(cache, entry->d_name, &hash) ||
         (out_hashes->count < most && hr_table_put(out_hashes, hash, out_hashes));
  }
  if (names != NULL) {
    closedir(names);
  }
  return ok;
}

/* Lists our files; removes drafts that are too old to be in progress. */
static int64_t list_files(int folder, kept_files *out_files) {
  DIR *entries = open_names(folder);
  int64_t total = 0;
  for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
    kept_file file;
    struct stat info;
    bool is_draft;
    if (!is_ours(entry->d_name, &is_draft) || fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode)) {
      continue;
    }
    if (is_draft) {
      if (time(NULL) - info.st_mtime > DRAFT_SECONDS) {
        unlinkat(folder, entry->d_name, 0);
      }
      continue;
    }
    memcpy(file.name, entry->d_name, strlen(entry->d_name) + 1); /* is_ours bounds it */
    file.bytes = (int64_t)info.st_blocks * 512;
    file.used = info.st_mtim;
    total += file.bytes;
    if (!hr_vector_push(out_files, file)) {
      break;
    }
  }
  if (entries != NULL) {
    closedir(entries);
  }
  return total;
}

static int compare_age(const void *a, const void *b) {
  const struct timespec *x = &((const kept_file *)a)->used, *y = &((const kept_file *)b)->used;
  return x->tv_sec != y->tv_sec ? (x->tv_sec < y->tv_sec ? -1 : 1)
                                : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

void hr__disk_cache_trim(const hr_disk_cache *cache) {
  int folder = folder_of(cache);
  int64_t limit = hr_env_int(HR_ENV_CACHE_BYTES);
  size_note note;
  if (folder < 0 || (read_size(folder, &note) && note.bytes <= limit)) {
    return;
  }
  kept_files files = {0};
  int64_t total = list_files(folder, &files);
  if (total > limit && files.count > 0) {
    qsort(files.data, files.count, sizeof *files.data, compare_age);
    for (size_t i = 0; i < files.count && total > limit - limit / 8; ++i) {
      total -= files.data[i].bytes;
      unlinkat(folder, files.data[i].name, 0);
    }
  }
  write_size(folder, total);
  hr_vector_fini(&files);
}

void hr__disk_cache_measure(const hr_disk_cache *cache, int64_t *out_files, int64_t *out_bytes) {
  kept_files files = {0};
  *out_bytes = list_files(folder_of(cache), &files);
  *out_files = (int64_t)files.count;
  hr_vector_fini(&files);
}

/* ---- files as bytes ---- */

static hr_status visit_file(const hr_disk_cache *cache, const char *name,
                            hr_status (*visit)(void *arg, const hr_kernel_file *file), void *arg) {
  footer end;
  char *bytes = read_file(cache, name, &end, NULL);
  if (bytes == NULL) {
    return HR_OK;
  }
  const hr_kernel_file file = {name, bytes, (size_t)end.length, (size_t)end.name_length};
  hr_status status = visit(arg, &file);
  hr_free(bytes);
  return status;
}

hr_status hr__disk_cache_each(const hr_disk_cache *cache, int64_t since_ns,
                              hr_status (*visit)(void *arg, const hr_kernel_file *file), void *arg) {
  enum { NS_PER_S = 1000000000 };
  kept_files files = {0};
  hr_status status = HR_OK;
  (void)list_files(folder_of(cache), &files);
  for (size_t i = 0; status == HR_OK && i < files.count; ++i) {
    const struct timespec *used = &files.data[i].used;
    bool is_recent = (int64_t)used->tv_sec * NS_PER_S + used->tv_nsec >= since_ns;
    status = is_recent ? visit_file(cache, files.data[i].name, visit, arg) : HR_OK;
  }
  hr_vector_fini(&files);
  return status;
}

hr_status hr__disk_cache_add_file(const hr_disk_cache *cache, const hr_kernel_file *file) {
  footer end;
  bool is_draft = true;
  if (strlen(file->name) >= NAME_BYTES || !is_ours(file->name, &is_draft) || is_draft || file->text_size > file->size ||
      file->size > FILE_MOST - sizeof end) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "\"%.64s\" of %zu bytes is no file of a cache of kernels",
                          file->name, file->size);
  }
  char *bytes = read_file(cache, file->name, &end, NULL);
  if (bytes != NULL) {
    hr_free(bytes);
    return HR_OK;
  }
  return write_file(cache, file->name, file->bytes, file->size, file->text_size);
}
