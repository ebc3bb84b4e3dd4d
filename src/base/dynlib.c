/* dlopen and dlsym, with statuses. */
#include "base/dynlib.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

hr_status hr_dynlib_open(const char *path, hr_dynlib *out_library) {
  dlerror();
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    const char *reason = dlerror();
    return hr_status_make(HR_STATUS_NOT_FOUND, "library \"%s\": %s", path, reason != NULL ? reason : "can't be loaded");
  }
  out_library->handle = handle;
  return HR_OK;
}

/* ---- descriptors ---- */

enum { SPELLING_BYTES = 192 };

/* A path of the descriptor that no other file shares. The loader returns an already loaded library of the same name,
 * and descriptor numbers are reused. So the path encodes the file's identity in slashes and dots. */
static bool spell(int file, char out_path[SPELLING_BYTES]) {
  struct stat info;
  if (fstat(file, &info) != 0) {
    return false;
  }
  uint64_t words[] = {(uint64_t)info.st_dev, (uint64_t)info.st_ino};
  uint64_t bits = hr_hash_words(HR_HASH_SEED, words, 2);
  char *at = out_path + snprintf(out_path, SPELLING_BYTES, "/proc/self/fd");
  for (int i = 0; i < 64; ++i) {
    *at++ = '/';
    if ((bits >> i & 1) != 0) {
      *at++ = '.';
    }
  }
  snprintf(at, (size_t)(out_path + SPELLING_BYTES - at), "/%d", file);
  return true;
}

/* A copy in memory, to which no mount option such as noexec applies; -1 on failure. */
static int copy_to_memory(int file) {
  enum { MAY_RUN = 0x10 }; /* MFD_EXEC, since Linux 6.3 */
  struct stat info;
  int copy = memfd_create("headrace", MFD_CLOEXEC | MAY_RUN);
  copy = copy < 0 && errno == EINVAL ? memfd_create("headrace", MFD_CLOEXEC) : copy;
  off_t at = 0;
  bool is_whole = copy >= 0 && fstat(file, &info) == 0;
  while (is_whole && at < info.st_size) {
    ssize_t count = sendfile(copy, file, &at, (size_t)(info.st_size - at));
    is_whole = count > 0 || (count < 0 && errno == EINTR);
  }
  if (!is_whole && copy >= 0) {
    close(copy);
    copy = -1;
  }
  return copy;
}

hr_status hr_dynlib_open_file(int file, hr_dynlib *out_library) {
  char path[SPELLING_BYTES];
  if (!spell(file, path)) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "library: %s", strerror(errno));
  }
  hr_status status = hr_dynlib_open(path, out_library);
  int copy = status != HR_OK ? copy_to_memory(file) : -1;
  if (copy >= 0 && spell(copy, path)) {
    hr_status again = hr_dynlib_open(path, out_library);
    hr_status_ignore(again == HR_OK ? status : again);
    status = again == HR_OK ? HR_OK : status;
  }
  if (copy >= 0) {
    close(copy);
  }
  if (status == HR_OK) {
    return HR_OK;
  }
  const char *why = strrchr(hr_status_message(status), ':'); /* drops the path in front, which is meaningless */
  hr_status plain = hr_status_make(HR_STATUS_NOT_FOUND, "a compiled library can't be loaded%s", why != NULL ? why : "");
  hr_status_ignore(status);
  return plain;
}

/* ---- searching ---- */

/* Tries one file of a search; true if it was opened. *first_error keeps the first failure. */
static bool try_open(const char *path, hr_dynlib *out_library, hr_status *first_error) {
  hr_status status = hr_dynlib_open(path, out_library);
  if (status != HR_OK && *first_error == NULL) {
    *first_error = status;
  } else {
    hr_status_ignore(status);
  }
  return status == HR_OK;
}

/* Tries the names in one folder, whose name has `length` characters. If `length` is 0, tries the bare names. */
static bool try_folder(const char *folder, size_t length, const char *const *names, hr_dynlib *out_library,
                       hr_status *first_error) {
  char path[PATH_MAX];
  for (; *names != NULL; ++names) {
    int written = snprintf(path, sizeof path, "%.*s%s%s", (int)length, folder, length > 0 ? "/" : "", *names);
    if (written > 0 && (size_t)written < sizeof path && try_open(path, out_library, first_error)) {
      return true;
    }
  }
  return false;
}

hr_status hr_dynlib_find(const char *folders, const char *const *names, hr_dynlib *out_library) {
  hr_status first_error = HR_OK;
  bool found = false;
  for (const char *folder = folders; *folder != '\0' && !found;) {
    size_t length = strcspn(folder, ":");
    found = length > 0 && try_folder(folder, length, names, out_library, &first_error);
    folder += length + (folder[length] == ':');
  }
  if (!found && !try_folder("", 0, names, out_library, &first_error)) {
    return first_error;
  }
  hr_status_ignore(first_error);
  return HR_OK;
}

hr_status hr_dynlib_symbol(const hr_dynlib *library, const char *name, void **out_address) {
  if (library->handle == NULL) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "symbol \"%s\": the library is not open", name);
  }
  dlerror();
  void *address = dlsym(library->handle, name);
  if (address == NULL) {
    const char *reason = dlerror();
    return hr_status_make(HR_STATUS_NOT_FOUND, "symbol \"%s\": %s", name,
                          reason != NULL ? reason : "its address is NULL");
  }
  *out_address = address;
  return HR_OK;
}

hr_status hr_dynlib_symbols(const hr_dynlib *library, size_t count, const char *const *names, void **out_addresses) {
  for (size_t i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(hr_dynlib_symbol(library, names[i], &out_addresses[i]));
  }
  return HR_OK;
}

void hr_dynlib_close(hr_dynlib *library) {
  if (library != NULL && library->handle != NULL) {
    dlclose(library->handle);
    library->handle = NULL;
  }
}

/* ---- memory ---- */

static bool has_address(const struct dl_phdr_info *info, const ElfW(Phdr) * segment, uintptr_t address) {
  uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
  return segment->p_type == PT_LOAD && begin <= address && address - begin < segment->p_memsz;
}

/* Code that the loader has relocated is not the file's, so a library with text relocations keeps it. */
static bool is_relocated(const struct dl_phdr_info *info) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
      const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
      for (; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_TEXTREL || (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_TEXTREL) != 0)) {
          return true;
        }
      }
    }
  }
  return false;
}

/* Whole pages of the segment, which may not be written. */
static int trim_segment(struct dl_phdr_info *info, size_t bytes, void *arg) {
  (void)bytes;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    if (has_address(info, segment, *(const uintptr_t *)arg)) {
      uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = info->dlpi_addr + segment->p_vaddr;
      uintptr_t first = (begin + page - 1) / page * page, end = (begin + segment->p_filesz) / page * page;
      if ((segment->p_flags & PF_W) == 0 && !is_relocated(info) && first < end) {
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
      }
      return 1;
    }
  }
  return 0;
}

void hr_dynlib_trim(const void *address) {
  uintptr_t wanted = (uintptr_t)address;
  (void)dl_iterate_phdr(trim_segment, &wanted);
}
