#include "base/disk_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocator.h"

hr_status hr__disk_failure(const char *what) {
  hr_status_code code = errno == ENOENT || errno == ENOTDIR ? HR_STATUS_NOT_FOUND
                        : errno == EACCES || errno == EPERM ? HR_STATUS_PERMISSION_DENIED
                                                            : HR_STATUS_UNAVAILABLE;
  return hr_status_make(code, "%s: %s", what, strerror(errno));
}

/* ---- reading ---- */

static hr_status map_descriptor(int descriptor, void **out_bytes, size_t *out_size) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) {
    return hr__disk_failure("stat");
  }
  if (!S_ISREG(info.st_mode)) {
    return hr_status_make(HR_STATUS_UNAVAILABLE, "is no regular file");
  }
  if (info.st_size == 0) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "is empty");
  }
  void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
  if (bytes == MAP_FAILED) {
    return hr__disk_failure("map");
  }
  hr_huge_pages_advise(bytes, (size_t)info.st_size); /* of weights, where the system keeps files in huge pages */
  *out_bytes = bytes, *out_size = (size_t)info.st_size;
  return HR_OK;
}

static bool is_private(int descriptor) {
  struct stat info;
  return fstat(descriptor, &info) == 0 && (info.st_uid == geteuid() || info.st_uid == 0) &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

hr_status hr__disk_map_owned(const char *path, void **out_bytes, size_t *out_size, bool *out_is_private) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return hr__disk_failure("open");
  }
  *out_is_private = is_private(descriptor);
  hr_status status = map_descriptor(descriptor, out_bytes, out_size);
  (void)close(descriptor);
  return status;
}

hr_status hr__disk_map(const char *path, void **out_bytes, size_t *out_size) {
  bool is_private = false;
  return hr__disk_map_owned(path, out_bytes, out_size, &is_private);
}

/* Opens one name of a location, below `folder`, which is closed. */
static hr_status open_name(int *folder, const char *name, size_t length, bool is_folder) {
  enum { NAME_MAX_BYTES = 255 };
  char copy[NAME_MAX_BYTES + 1];
  if (length == 0 || length > NAME_MAX_BYTES || strncmp(name, "..", length) == 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "its location has to be in the folder, without \"..\"");
  }
  memcpy(copy, name, length);
  copy[length] = '\0';
  int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | (is_folder ? O_DIRECTORY : 0);
  int descriptor = openat(*folder, copy, flags);
  bool may_be_link = errno == ELOOP || (is_folder && errno == ENOTDIR);
  hr_status status = descriptor < 0 ? hr__disk_failure(may_be_link ? "open, links are not followed" : "open") : HR_OK;
  (void)close(*folder);
  *folder = descriptor;
  return status;
}

static hr_status open_folder_of(const char *path, int *out_folder) {
  const char *slash = strrchr(path, '/');
  char *folder = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
  if (folder == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for its path");
  }
  *out_folder = open(folder, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  hr_status status = *out_folder < 0 ? hr__disk_failure("open the folder") : HR_OK;
  free(folder);
  return status;
}

hr_status hr__disk_map_beside(const char *path, const char *location, void **out_bytes, size_t *out_size) {
  int descriptor = -1;
  HR_RETURN_IF_ERROR(open_folder_of(path, &descriptor));
  hr_status status = HR_OK;
  for (const char *name = location; status == HR_OK && name != NULL;) {
    const char *slash = strchr(name, '/');
    size_t length = slash != NULL ? (size_t)(slash - name) : strlen(name);
    status = open_name(&descriptor, name, length, slash != NULL);
    name = slash != NULL ? slash + 1 : NULL;
  }
  status = status == HR_OK ? map_descriptor(descriptor, out_bytes, out_size) : status;
  if (descriptor >= 0) {
    (void)close(descriptor);
  }
  return status;
}

void hr__disk_unmap(void *bytes, size_t size) {
  (void)munmap(bytes, size);
}

size_t hr__disk_head(const char *path, void *out_bytes, size_t size) {
  FILE *file = fopen(path, "rb");
  size_t count = file != NULL ? fread(out_bytes, 1, size, file) : 0;
  if (file != NULL) {
    fclose(file);
  }
  return count;
}

/* ---- writing ---- */

hr_status hr__replacement_begin(const char *path, hr__replacement *to) {
  struct stat info;
  char *resolved = realpath(path, NULL);
  *to = (hr__replacement){.descriptor = -1, .target = resolved != NULL ? resolved : strdup(path)};
  if (to->target == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for its path");
  }
  bool exists = stat(to->target, &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "is no regular file");
  }
  for (int i = 0; i < 1000 && to->descriptor < 0; ++i) {
    hr_text_clear(&to->temporary);
    hr_text_printf(&to->temporary, "%s.%ld.%d.tmp", to->target, (long)getpid(), i);
    HR_RETURN_IF_ERROR(hr_text_status(&to->temporary));
    to->descriptor = open(hr_text_chars(&to->temporary), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (to->descriptor < 0 && errno != EEXIST) {
      break;
    }
  }
  if (to->descriptor < 0) {
    return hr__disk_failure("open for writing");
  }
  if (exists) {
    (void)fchmod(to->descriptor, info.st_mode & 0777);
  }
  return HR_OK;
}

hr_status hr__replacement_write(void *replacement, const void *bytes, size_t count) {
  const hr__replacement *to = replacement;
  for (const char *at = bytes; count > 0;) {
    ssize_t written = write(to->descriptor, at, count < 1 << 30 ? count : 1 << 30);
    if (written < 0 && errno != EINTR) {
      return hr__disk_failure("write");
    }
    written = written > 0 ? written : 0;
    at += written, count -= (size_t)written;
  }
  return HR_OK;
}

static hr_status close_and_rename(hr__replacement *to, hr_status status) {
  if (close(to->descriptor) != 0 && status == HR_OK) {
    status = hr__disk_failure("close");
  }
  if (status == HR_OK && rename(hr_text_chars(&to->temporary), to->target) != 0) {
    status = hr__disk_failure("rename");
  }
  if (status != HR_OK) {
    (void)unlink(hr_text_chars(&to->temporary));
  }
  return status;
}

hr_status hr__replacement_end(hr__replacement *to, hr_status status) {
  status = to->descriptor >= 0 ? close_and_rename(to, status) : status;
  hr_text_fini(&to->temporary);
  free(to->target);
  return status;
}
