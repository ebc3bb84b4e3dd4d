/* cublaslt_api.c: finds cuBLASLt at run time. See cublaslt_api.h. */
#include "providers/cublaslt/cublaslt_api.h"

#include <string.h>

#include "base/dynlib.h"
#include "base/env.h"
#include "base/log.h"
#include "base/thread.h"

enum { DEVICES_MAX = 64 };

hr__cublaslt_table hr__cublaslt;
int (*hr__cublaslt_device)(int *out_device);

static hr_mutex handles_mutex = HR_MUTEX_INITIALIZER;
static cublaslt_handle handles[DEVICES_MAX];

static const char *const symbols[] = {
#define CUBLASLT_SYMBOL(type, name, args) "cublasLt" #name,
#include "providers/cublaslt/cublaslt_symbols.def"
#undef CUBLASLT_SYMBOL
};

static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};

hr_status hr__cublaslt_status(int code, const char *what) {
  if (code == CUBLASLT_SUCCESS) {
    return NULL;
  }
  hr_status_code canonical = code == CUBLASLT_ALLOC_FAILED    ? HR_STATUS_RESOURCE_EXHAUSTED
                             : code == CUBLASLT_NOT_SUPPORTED ? HR_STATUS_UNIMPLEMENTED
                                                              : HR_STATUS_INTERNAL;
  return hr_status_make(canonical, "cuBLASLt: %s: status %d, %s", what, code, hr__cublaslt.GetStatusString(code));
}

/* The library, and the one function of the driver's that says whose context is asked for. */
static hr_status find_symbols(hr_dynlib *library, void **addresses) {
  hr_dynlib driver = {0};
  HR_RETURN_IF_ERROR(hr_dynlib_find(hr_env_text(HR_ENV_CUDA_LIBS), names, library));
  HR_RETURN_IF_ERROR(hr_dynlib_symbols(library, sizeof symbols / sizeof *symbols, symbols, addresses));
  HR_RETURN_IF_ERROR(hr_dynlib_open("libcuda.so.1", &driver));
  return hr_dynlib_symbol(&driver, "cuCtxGetDevice", (void **)(void *)&hr__cublaslt_device);
}

hr_status hr__cublaslt_open(void) {
  hr_dynlib library = {0};
  void *addresses[sizeof symbols / sizeof *symbols];
  hr_status status = find_symbols(&library, addresses);
  if (status != NULL) {
    hr_status unavailable = hr_status_make(
        HR_STATUS_UNAVAILABLE, "cuBLASLt 12 or 13 and a driver (set HEADRACE_CUDA_LIBS to the library's folder): %s",
        hr_status_message(status));
    hr_status_free(status);
    hr_dynlib_close(&library);
    return unavailable;
  }
  memcpy(&hr__cublaslt, addresses, sizeof addresses);
  hr_log(HR_LOG_DEVICE, "cuBLASLt %zu", hr__cublaslt.GetVersion());
  return NULL;
}

hr_status hr__cublaslt_handle(cublaslt_handle *out_handle) {
  int device = -1, code = hr__cublaslt_device(&device);
  if (code != 0 || device < 0 || device >= DEVICES_MAX) {
    return hr_status_make(HR_STATUS_INTERNAL, "cuBLASLt: no device is current on this thread: status %d, device %d",
                          code, device);
  }
  hr_status status = NULL;
  hr_mutex_lock(&handles_mutex);
  if (handles[device] == NULL) {
    status = hr__cublaslt_status(hr__cublaslt.Create(&handles[device]), "a context");
  }
  *out_handle = handles[device];
  hr_mutex_unlock(&handles_mutex);
  return status;
}
