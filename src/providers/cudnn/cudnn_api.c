/* cudnn_api.c: finds cuDNN at run time. See cudnn_api.h. */
#include "providers/cudnn/cudnn_api.h"

#include <stdio.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/gpu_model.h"
#include "base/log.h"
#include "base/places.h"
#include "base/thread.h"

static void init_library(void *part) {
  hr__cudnn_library *library = part;
  hr__vendor_init(&library->vendor);
  hr_mutex_init(&library->handles_mutex);
  hr_mutex_init(&library->plans_mutex);
}

const hr_context_part hr__cudnn_library_kind = {.bytes = sizeof(hr__cudnn_library), .init = init_library};

static const char *const symbols[] = {
#define CUDNN_SYMBOL(type, name, args) "cudnn" #name,
#include "providers/cudnn/cudnn_symbols.def"
#undef CUDNN_SYMBOL
};

static const char *const names[] = {"libcudnn.so.9", NULL};

hr_status hr__cudnn_status(int code, const char *what) {
  if (code == CUDNN_SUCCESS) {
    return HR_OK;
  }
  bool is_unsupported = code >= CUDNN_NOT_SUPPORTED && code < CUDNN_INTERNAL_ERROR;
  return hr_status_make(is_unsupported ? HR_STATUS_UNIMPLEMENTED : HR_STATUS_INTERNAL, "cuDNN: %s: status %d, %s", what,
                        code, hr__cudnn()->GetErrorString(code));
}

static const char *const driver_symbols[] = {"cuCtxGetDevice", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemsetD8_v2",
                                             "cuMemcpyDtoH_v2"};
enum { DRIVER_SYMBOLS = sizeof driver_symbols / sizeof *driver_symbols };

static hr_status find_symbols(hr_dynlib *library, void **addresses, void **driver_addresses) {
  hr_dynlib driver = {0};
  HR_RETURN_IF_ERROR(hr_places_open_cuda(names, library));
  HR_RETURN_IF_ERROR(hr_dynlib_symbols(library, sizeof symbols / sizeof *symbols, symbols, addresses));
  HR_RETURN_IF_ERROR(hr_dynlib_open("libcuda.so.1", &driver));
  return hr_dynlib_symbols(&driver, DRIVER_SYMBOLS, driver_symbols, driver_addresses);
}

static hr_status open_library(void) {
  hr_dynlib library = {0};
  void *addresses[sizeof symbols / sizeof *symbols], *driver_addresses[DRIVER_SYMBOLS];
  hr_status status = find_symbols(&library, addresses, driver_addresses);
  if (status != HR_OK) {
    hr_status unavailable = hr_status_make(HR_STATUS_UNAVAILABLE,
                                           "cuDNN 9 and a driver (set HEADRACE_CUDA_LIBS to the library's folder): %s",
                                           hr_status_message(status));
    hr_status_free(status);
    hr_dynlib_close(&library);
    return unavailable;
  }
  memcpy(&hr__cudnn_opened()->table, addresses, sizeof addresses);
  memcpy(&hr__cudnn_opened()->driver, driver_addresses, sizeof driver_addresses);
  snprintf(hr__cudnn_opened()->version, sizeof hr__cudnn_opened()->version, "%zu", hr__cudnn()->GetVersion());
  hr_log(HR_LOG_DEVICE, "cuDNN %s", hr__cudnn_opened()->version);
  return HR_OK;
}

hr_status hr__cudnn_open(void) {
  return hr__gpu_model() != NULL ? HR_OK : hr__vendor_open(&hr__cudnn_opened()->vendor, open_library);
}

static hr_status handle_of(int device, void *queue) {
  cudnn_handle *handles = hr__cudnn_opened()->handles;
  if (handles[device] == NULL) {
    HR_RETURN_IF_ERROR(hr__cudnn_status(hr__cudnn()->Create(&handles[device]), "a context"));
  }
  return hr__cudnn_status(hr__cudnn()->SetStream(handles[device], queue), "a queue");
}

hr_status hr__cudnn_lock(void *queue, cudnn_handle *out_handle) {
  int device = -1, code = hr__cudnn_driver()->CtxGetDevice(&device);
  if (code != 0 || device < 0 || device >= HR__CUDNN_DEVICES_MAX) {
    return hr_status_make(HR_STATUS_INTERNAL, "cuDNN: no device is current on this thread: status %d, device %d", code,
                          device);
  }
  hr_mutex_lock(&hr__cudnn_opened()->handles_mutex);
  hr_status status = handle_of(device, queue);
  if (status != HR_OK) {
    hr_mutex_unlock(&hr__cudnn_opened()->handles_mutex);
    return status;
  }
  *out_handle = hr__cudnn_opened()->handles[device];
  return HR_OK;
}

void hr__cudnn_unlock(void) {
  hr_mutex_unlock(&hr__cudnn_opened()->handles_mutex);
}
