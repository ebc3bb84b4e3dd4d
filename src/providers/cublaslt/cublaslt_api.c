/* cublaslt_api.c: finds cuBLASLt at run time. See cublaslt_api.h. */
#include "providers/cublaslt/cublaslt_api.h"

#include <stdio.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/gpu_model.h"
#include "base/log.h"
#include "base/places.h"
#include "base/thread.h"

static void init_library(void *part) {
  hr__cublaslt_library *library = part;
  hr__vendor_init(&library->vendor);
  hr_mutex_init(&library->handles_mutex);
}

const hr_context_part hr__cublaslt_library_kind = {.bytes = sizeof(hr__cublaslt_library), .init = init_library};

static const char *const symbols[] = {
#define CUBLASLT_SYMBOL(type, name, args) "cublasLt" #name,
#include "providers/cublaslt/cublaslt_symbols.def"
#undef CUBLASLT_SYMBOL
};

static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};

hr_status hr__cublaslt_status(int code, const char *what) {
  if (code == CUBLASLT_SUCCESS) {
    return HR_OK;
  }
  hr_status_code canonical = code == CUBLASLT_ALLOC_FAILED    ? HR_STATUS_RESOURCE_EXHAUSTED
                             : code == CUBLASLT_NOT_SUPPORTED ? HR_STATUS_UNIMPLEMENTED
                                                              : HR_STATUS_INTERNAL;
  return hr_status_make(canonical, "cuBLASLt: %s: status %d, %s", what, code, hr__cublaslt()->GetStatusString(code));
}

/* Finds the library's functions, and the driver's function that returns the current device. */
static hr_status find_symbols(hr_dynlib *library, void **addresses) {
  hr_dynlib driver = {0};
  HR_RETURN_IF_ERROR(hr_places_open_cuda(names, library));
  HR_RETURN_IF_ERROR(hr_dynlib_symbols(library, sizeof symbols / sizeof *symbols, symbols, addresses));
  HR_RETURN_IF_ERROR(hr_dynlib_open("libcuda.so.1", &driver));
  return hr_dynlib_symbol(&driver, "cuCtxGetDevice", (void **)(void *)&hr__cublaslt_opened()->device);
}

static hr_status open_library(void) {
  hr_dynlib library = {0};
  void *addresses[sizeof symbols / sizeof *symbols];
  hr_status status = find_symbols(&library, addresses);
  if (status != HR_OK) {
    hr_status unavailable = hr_status_make(
        HR_STATUS_UNAVAILABLE, "cuBLASLt 12 or 13 and a driver (set HEADRACE_CUDA_LIBS to the library's folder): %s",
        hr_status_message(status));
    hr_status_free(status);
    hr_dynlib_close(&library);
    return unavailable;
  }
  memcpy(&hr__cublaslt_opened()->table, addresses, sizeof addresses);
  snprintf(hr__cublaslt_opened()->version, sizeof hr__cublaslt_opened()->version, "%zu", hr__cublaslt()->GetVersion());
  hr_log(HR_LOG_DEVICE, "cuBLASLt %s", hr__cublaslt_opened()->version);
  return HR_OK;
}

hr_status hr__cublaslt_open(void) {
  return hr__gpu_model() != NULL ? HR_OK : hr__vendor_open(&hr__cublaslt_opened()->vendor, open_library);
}

hr_status hr__cublaslt_handle(cublaslt_handle *out_handle) {
  hr__cublaslt_library *library = hr__cublaslt_opened();
  int device = -1, code = library->device(&device);
  if (code != 0 || device < 0 || device >= HR__CUBLASLT_DEVICES_MAX) {
    return hr_status_make(HR_STATUS_INTERNAL, "cuBLASLt: no device is current on this thread: status %d, device %d",
                          code, device);
  }
  hr_status status = HR_OK;
  hr_mutex_lock(&library->handles_mutex);
  if (library->handles[device] == NULL) {
    status = hr__cublaslt_status(hr__cublaslt()->Create(&library->handles[device]), "a context");
  }
  *out_handle = library->handles[device];
  hr_mutex_unlock(&library->handles_mutex);
  return status;
}
