/* dlopen and dlsym, with statuses. */
#include "base/dynlib.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

hr_status hr_dynlib_open(const char *path, hr_dynlib *out_library) {
  dlerror();
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    const char *reason = dlerror();
    return hr_status_make(HR_STATUS_NOT_FOUND, "library \"%s\": %s", path, reason != NULL ? reason : "can't be loaded");
  }
  out_library->handle = handle;
  return NULL;
}

/* One file of a search: true when it is open. *first_error keeps the first failure. */
static bool try_open(const char *path, hr_dynlib *out_library, hr_status *first_error) {
  hr_status status = hr_dynlib_open(path, out_library);
  if (status != NULL && *first_error == NULL) {
    *first_error = status;
  } else {
    hr_status_ignore(status);
  }
  return status == NULL;
}

/* The names in one folder, whose name has `length` characters; none when that is 0: by themselves. */
static bool try_folder(const char *folder, size_t length, const char *const *names, hr_dynlib *out_library,
                       hr_status *first_error) {
  char path[PATH_MAX];
  for (; *names != NULL; names++) {
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
  return NULL;
}

hr_status hr_dynlib_symbols(const hr_dynlib *library, size_t count, const char *const *names, void **out_addresses) {
  for (size_t i = 0; i < count; i++) {
    HR_RETURN_IF_ERROR(hr_dynlib_symbol(library, names[i], &out_addresses[i]));
  }
  return NULL;
}

void hr_dynlib_close(hr_dynlib *library) {
  if (library != NULL && library->handle != NULL) {
    dlclose(library->handle);
    library->handle = NULL;
  }
}
