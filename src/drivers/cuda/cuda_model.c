/* cuda_model.c: a table that stands for libcuda if a model of a GPU is set (base/gpu_model.h).
 *
 * It computes nothing. Addresses of the device are numbers that nothing reads; copies from it give zeros. Streams,
 * events, modules and contexts are one token. It has no graphs, so that each kernel is submitted by itself.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/allocator.h"
#include "base/gpu_model.h"
#include "drivers/cuda/cuda_api.h"

enum { ALIGNMENT = 512 };
#define TOTAL_BYTES ((size_t)80 << 30)
#define FIRST_ADDRESS ((uintptr_t)1 << 40)

static int model_token(void **out) {
  *out = (void *)FIRST_ADDRESS;
  return CUDA_SUCCESS;
}

static int model_error(int error, const char **text) {
  (void)error;
  *text = "an error of the model of a GPU";
  return CUDA_SUCCESS;
}

static int model_device(int *device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

static int model_name(char *name, int bytes, int device) {
  (void)device;
  snprintf(name, (size_t)bytes, "model of a GPU");
  return CUDA_SUCCESS;
}

/* 0: not known. */
static int model_attribute(int *value, int attribute, int device) {
  const hr_gpu_model *model = hr__gpu_model();
  (void)device;
  *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                ? model->processors
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR          ? model->architecture / 10
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR          ? model->architecture % 10
           : attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? model->block_bytes
                                                                                : 0;
  return CUDA_SUCCESS;
}

static int model_total(size_t *bytes, int device) {
  (void)device;
  *bytes = TOTAL_BYTES;
  return CUDA_SUCCESS;
}

static int model_memory(size_t *free_bytes, size_t *total_bytes) {
  *free_bytes = *total_bytes = TOTAL_BYTES;
  return CUDA_SUCCESS;
}

static int model_retain(CUcontext *context, int device) {
  (void)device;
  return model_token((void **)context);
}

static int model_release(int device) {
  (void)device;
  return CUDA_SUCCESS;
}

static int model_push(CUcontext context) {
  (void)context;
  return CUDA_SUCCESS;
}

static int model_pop(CUcontext *context) {
  return model_token((void **)context);
}

static int model_stream(CUstream *stream, unsigned flags) {
  (void)flags;
  return model_token((void **)stream);
}

static int model_wait(CUstream stream) {
  (void)stream;
  return CUDA_SUCCESS;
}

static int model_follow(CUstream stream, CUevent event, unsigned flags) {
  (void)stream, (void)event, (void)flags;
  return CUDA_SUCCESS;
}

static int model_event(CUevent *event, unsigned flags) {
  (void)flags;
  return model_token((void **)event);
}

static int model_record(CUevent event, CUstream stream) {
  (void)event, (void)stream;
  return CUDA_SUCCESS;
}

static int model_event_done(CUevent event) {
  (void)event;
  return CUDA_SUCCESS;
}

static int model_elapsed(float *milliseconds, CUevent begin, CUevent end) {
  (void)begin, (void)end;
  *milliseconds = 0;
  return CUDA_SUCCESS;
}

/* Each block has addresses of its own, which no later block gets. */
static int model_allocate(void **address, size_t bytes) {
  size_t room = (bytes / ALIGNMENT + 1) * ALIGNMENT;
  *address = (void *)(FIRST_ADDRESS + atomic_fetch_add(&hr__cuda_opened()->model_bytes, room));
  return CUDA_SUCCESS;
}

static int model_free(void *address) {
  (void)address;
  return CUDA_SUCCESS;
}

static int model_pinned(void **address, size_t bytes, unsigned flags) {
  (void)flags;
  *address = hr_aligned_malloc(bytes, ALIGNMENT);
  return *address != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static int model_unpin(void *address) {
  hr_aligned_free(address);
  return CUDA_SUCCESS;
}

static int model_copy(void *to, const void *from, size_t bytes, CUstream stream) {
  (void)to, (void)from, (void)bytes, (void)stream;
  return CUDA_SUCCESS;
}

static int model_copy_out(void *to, const void *from, size_t bytes, CUstream stream) {
  (void)from, (void)stream;
  memset(to, 0, bytes);
  return CUDA_SUCCESS;
}

static int model_set_8(void *to, unsigned char value, size_t count, CUstream stream) {
  (void)to, (void)value, (void)count, (void)stream;
  return CUDA_SUCCESS;
}

static int model_set_16(void *to, unsigned short value, size_t count, CUstream stream) {
  (void)to, (void)value, (void)count, (void)stream;
  return CUDA_SUCCESS;
}

static int model_set_32(void *to, unsigned value, size_t count, CUstream stream) {
  (void)to, (void)value, (void)count, (void)stream;
  return CUDA_SUCCESS;
}

static int model_rows_8(void *to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream) {
  (void)to, (void)pitch, (void)value, (void)width, (void)height, (void)stream;
  return CUDA_SUCCESS;
}

static int model_rows_16(void *to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream) {
  (void)to, (void)pitch, (void)value, (void)width, (void)height, (void)stream;
  return CUDA_SUCCESS;
}

static int model_rows_32(void *to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream) {
  (void)to, (void)pitch, (void)value, (void)width, (void)height, (void)stream;
  return CUDA_SUCCESS;
}

static int model_load(CUmodule *module, const void *image) {
  (void)image;
  return model_token((void **)module);
}

static int model_function(CUfunction *function, CUmodule module, const char *name) {
  (void)module, (void)name;
  return model_token((void **)function);
}

static int model_unload(CUmodule module) {
  (void)module;
  return CUDA_SUCCESS;
}

static int model_allow(CUfunction function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return CUDA_SUCCESS;
}

static int model_launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,
                        void **extra) {
  (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
  (void)shared_bytes, (void)stream, (void)parameters, (void)extra;
  return CUDA_SUCCESS;
}

/* Sharing memory and copies between devices are for real ones. */
const hr__cuda_table hr__cuda_model_table = {.cuGetErrorName = model_error,
                                             .cuGetErrorString = model_error,
                                             .cuDeviceGet = model_device,
                                             .cuDeviceGetName = model_name,
                                             .cuDeviceGetAttribute = model_attribute,
                                             .cuDeviceTotalMem_v2 = model_total,
                                             .cuDevicePrimaryCtxRetain = model_retain,
                                             .cuDevicePrimaryCtxRelease_v2 = model_release,
                                             .cuCtxPushCurrent_v2 = model_push,
                                             .cuCtxPopCurrent_v2 = model_pop,
                                             .cuStreamCreate = model_stream,
                                             .cuStreamSynchronize = model_wait,
                                             .cuStreamDestroy_v2 = model_wait,
                                             .cuStreamWaitEvent = model_follow,
                                             .cuEventCreate = model_event,
                                             .cuEventRecord = model_record,
                                             .cuEventSynchronize = model_event_done,
                                             .cuEventQuery = model_event_done,
                                             .cuEventElapsedTime = model_elapsed,
                                             .cuEventDestroy_v2 = model_event_done,
                                             .cuMemGetInfo_v2 = model_memory,
                                             .cuMemAlloc_v2 = model_allocate,
                                             .cuMemFree_v2 = model_free,
                                             .cuMemHostAlloc = model_pinned,
                                             .cuMemFreeHost = model_unpin,
                                             .cuMemcpyHtoDAsync_v2 = model_copy,
                                             .cuMemcpyDtoHAsync_v2 = model_copy_out,
                                             .cuMemcpyDtoDAsync_v2 = model_copy,
                                             .cuMemsetD8Async = model_set_8,
                                             .cuMemsetD16Async = model_set_16,
                                             .cuMemsetD32Async = model_set_32,
                                             .cuMemsetD2D8Async = model_rows_8,
                                             .cuMemsetD2D16Async = model_rows_16,
                                             .cuMemsetD2D32Async = model_rows_32,
                                             .cuModuleLoadData = model_load,
                                             .cuModuleGetFunction = model_function,
                                             .cuModuleUnload = model_unload,
                                             .cuFuncSetAttribute = model_allow,
                                             .cuLaunchKernel = model_launch};
