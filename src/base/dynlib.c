/* dlopen and dlsym, with statuses. */
#include "base/dynlib.h"

#include <dlfcn.h>

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
