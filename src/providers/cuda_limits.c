#include "providers/cuda_limits.h"

#include <stdint.h>

#include "base/dynlib.h"
#include "base/gpu_model.h"
#include "base/log.h"

static int least(int a, int b) {
  return a < b ? a : b;
}

/* CUDA's attributes of devices: the multiprocessors, the compute capability, and the maximum bytes of shared memory of
 * a block. */
enum { PROCESSORS = 16, CAPABILITY_MAJOR = 75, SHARED_BYTES_OPTIN = 97 };

static hr_status ask(const char *provider, hr__cuda_limits *out_limits) {
  const hr_gpu_model *model = hr__gpu_model();
  if (model != NULL) {
    *out_limits = (hr__cuda_limits){model->architecture / 10, model->block_bytes, model->processors};
    return HR_OK;
  }
  hr_dynlib driver = {0};
  int (*count_devices)(int *), (*get_device)(int *, int), (*get_attribute)(int *, int, int);
  int count = 0, device = 0, values[3] = {0};
  hr__cuda_limits limits = {INT32_MAX, INT32_MAX, INT32_MAX};
  HR_RETURN_IF_ERROR(hr_dynlib_open("libcuda.so.1", &driver));
  HR_RETURN_IF_ERROR(hr_dynlib_symbol(&driver, "cuDeviceGetCount", (void **)(void *)&count_devices));
  HR_RETURN_IF_ERROR(hr_dynlib_symbol(&driver, "cuDeviceGet", (void **)(void *)&get_device));
  HR_RETURN_IF_ERROR(hr_dynlib_symbol(&driver, "cuDeviceGetAttribute", (void **)(void *)&get_attribute));
  int code = count_devices(&count);
  for (int i = 0; code == 0 && i < count; ++i) {
    code = get_device(&device, i);
    code = code == 0 ? get_attribute(&values[0], CAPABILITY_MAJOR, device) : code;
    code = code == 0 ? get_attribute(&values[1], SHARED_BYTES_OPTIN, device) : code;
    code = code == 0 ? get_attribute(&values[2], PROCESSORS, device) : code;
    limits = (hr__cuda_limits){least(limits.architecture, values[0]), least(limits.shared_bytes, values[1]),
                               least(limits.processors, values[2])};
  }
  if (code != 0 || count == 0) {
    return hr_status_make(HR_STATUS_UNAVAILABLE, "%s: %d devices, status %d", provider, count, code);
  }
  *out_limits = limits;
  return HR_OK;
}

hr_status hr__cuda_limits_find(const char *provider, int architecture_min) {
  hr__cuda_limits limits;
  HR_RETURN_IF_ERROR(ask(provider, &limits));
  if (limits.architecture < architecture_min) {
    return hr_status_make(HR_STATUS_UNAVAILABLE, "%s: a device of compute capability %d.x, needs %d.0", provider,
                          limits.architecture, architecture_min);
  }
  *hr__cuda_limits_known() = limits;
  hr_log(HR_LOG_DEVICE, "%s: %d bytes of shared memory, %d multiprocessors", provider, limits.shared_bytes,
         limits.processors);
  return HR_OK;
}
