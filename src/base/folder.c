/* folder.c: see folder.h. */
#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/env.h"

enum { DEPTH_MAX = 16 };                       /* of a temporary folder */
static const uint64_t ROOM_BYTES = 8ull << 20; /* for a few compiled kernels */

static hr_status refuse(const char *path, const char *why) {
  return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "folder \"%s\" %s", path, why);
}

/* ---- walking ---- */

/* NULL if no other user can replace the folder's contents, else the reason. `is_own`: the wanted folder, not a parent.
 */
static const char *distrust(int folder, bool is_own) {
  struct stat info;
  if (fstat(folder, &info) != 0) {
    return strerror(errno);
  }
  if (info.st_uid != geteuid() && (is_own || info.st_uid != 0)) {
    return "belongs to another user";
  }
  bool is_open = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  return is_open && (is_own || (info.st_mode & S_ISVTX) == 0) ? "can be written to by other users" : NULL;
}

/* Opens the folder `name` inside *folder, which becomes the new descriptor, or -1 on failure. `path` up to `end` is its
 * path, for messages. */
static hr_status step_down(int *folder, char *path, const char *name, char *end, bool creates) {
  char kept = *end;
  *end = '\0';
  hr_status status = HR_OK;
  const char *why = distrust(*folder, false);
  if (why != NULL) {
    status = hr_status_make(HR_STATUS_FAILED_PRECONDITION, "folder \"%s\": a folder above it %s", path, why);
  }
  if (status == HR_OK && creates && mkdirat(*folder, name, 0700) != 0 && errno != EEXIST) {
    status = hr_status_make(HR_STATUS_FAILED_PRECONDITION, "folder \"%s\" can't be made: %s", path, strerror(errno));
  }
  int next = status == HR_OK ? openat(*folder, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
  if (status == HR_OK && next < 0) {
    status = hr_status_make(HR_STATUS_FAILED_PRECONDITION, "folder \"%s\" can't be opened: %s", path, strerror(errno));
  }
  close(*folder);
  *folder = next;
  *end = kept;
  return status;
}

/* Walks `path` from the root and creates the components after the first `existing` characters. */
static hr_status walk(char *path, size_t existing, int *out_folder) {
  int folder = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  char *at = path;
  hr_status status = folder >= 0 ? HR_OK : refuse("/", strerror(errno));
  while (status == HR_OK && *(at += strspn(at, "/")) != '\0') {
    char name[NAME_MAX + 1], *end = at + strcspn(at, "/");
    size_t length = (size_t)(end - at);
    bool creates = (size_t)(at - path) >= existing;
    if (length > NAME_MAX || (creates && length == 2 && memcmp(at, "..", 2) == 0)) {
      status = refuse(path, "has a part that is no name");
      break;
    }
    memcpy(name, at, length);
    name[length] = '\0';
    status = step_down(&folder, path, name, end, creates);
    at = end;
  }
  if (status != HR_OK && folder >= 0) {
    close(folder);
  }
  *out_folder = status == HR_OK ? folder : -1;
  return status;
}

/* Resolves the part of a path that exists; `out_existing` is the length of the resolved part. */
static bool resolve(const char *path, char out_path[PATH_MAX], size_t *out_existing) {
  char front[PATH_MAX], real[PATH_MAX];
  size_t length = strlen(path);
  if (length >= sizeof front) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(front, path, length + 1);
  while (realpath(front[0] != '\0' ? front : "/", real) == NULL) {
    if (errno != ENOENT) {
      return false;
    }
    *strrchr(front, '/') = '\0';
  }
  *out_existing = strlen(real);
  errno = ENAMETOOLONG;
  return snprintf(out_path, PATH_MAX, "%s%s", real, path + strlen(front)) < PATH_MAX;
}

/* Opens the folder for reading through the descriptor that was checked. */
static hr_status open_own(const char *path, int checked, int *out_folder) {
  const char *why = distrust(checked, true);
  int folder = why == NULL ? openat(checked, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (why == NULL && folder < 0) {
    why = strerror(errno);
  }
  if (why != NULL) {
    return refuse(path, why);
  }
  *out_folder = folder;
  return HR_OK;
}

hr_status hr_folder_open(const char *path, int *out_folder) {
  char real[PATH_MAX];
  size_t existing;
  int checked;
  if (path[0] != '/') {
    return refuse(path, "is no absolute path");
  }
  if (!resolve(path, real, &existing)) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "folder \"%s\": %s", path, strerror(errno));
  }
  HR_RETURN_IF_ERROR(walk(real, existing, &checked));
  hr_status status = open_own(path, checked, out_folder);
  close(checked);
  return status;
}

/* ---- temporary folders ---- */

static bool has_room(int folder) {
  struct statvfs info;
  return fstatvfs(folder, &info) != 0 || (uint64_t)info.f_bavail * info.f_frsize >= ROOM_BYTES;
}

/* A new folder below `root` that no other user can replace. */
static hr_status make_below(const char *root, hr_text *out_path) {
  char path[PATH_MAX], real[PATH_MAX];
  int folder;
  if (root[0] != '/' || realpath(root, real) == NULL) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "\"%s\": %s", root, strerror(root[0] != '/' ? ENOENT : errno));
  }
  HR_RETURN_IF_ERROR(walk(real, strlen(real), &folder));
  const char *why = distrust(folder, false);
  why = why == NULL && !has_room(folder) ? "is full" : why;
  close(folder);
  if (why == NULL && snprintf(path, sizeof path, "%s/headrace-XXXXXX", real) >= (int)sizeof path) {
    why = "has too long a path";
  }
  if (why == NULL && mkdtemp(path) == NULL) {
    why = strerror(errno);
  }
  if (why != NULL) {
    return refuse(root, why);
  }
  hr_text_append(out_path, path);
  return hr_text_status(out_path);
}

hr_status hr_folder_make_temporary(hr_text *out_path) {
  const char *given = hr_env_system("TMPDIR");
  const char *roots[] = {given[0] != '\0' ? given : "/tmp", "/tmp", "/var/tmp", "/dev/shm"};
  hr_status first = HR_OK;
  for (size_t i = 0; i < sizeof roots / sizeof *roots; ++i) {
    hr_status status = make_below(roots[i], out_path);
    if (status == HR_OK) {
      hr_status_ignore(first);
      return HR_OK;
    }
    if (first == HR_OK) {
      first = status;
    } else {
      hr_status_ignore(status);
    }
  }
  hr_status why = hr_status_make(HR_STATUS_NOT_FOUND, "no folder for temporary files (TMPDIR names one): %s",
                                 hr_status_message(first));
  hr_status_ignore(first);
  return why;
}

static void remove_below(int parent, const char *name, int depth) {
  int folder = depth < DEPTH_MAX ? openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
  DIR *files = folder >= 0 ? fdopendir(folder) : NULL;
  for (struct dirent *entry; files != NULL && (entry = readdir(files)) != NULL;) {
    bool is_link_up = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (!is_link_up && unlinkat(dirfd(files), entry->d_name, 0) != 0) {
      remove_below(dirfd(files), entry->d_name, depth + 1);
    }
  }
  if (files != NULL) {
    closedir(files);
  } else if (folder >= 0) {
    close(folder);
  }
  unlinkat(parent, name, AT_REMOVEDIR);
}

void hr_folder_remove(const char *path) {
  remove_below(AT_FDCWD, path, 0);
}
