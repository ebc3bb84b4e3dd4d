/* tensor_test.h: a stream and tensors for tests. */
#ifndef HEADRACE_TENSOR_TEST_H_
#define HEADRACE_TENSOR_TEST_H_

#include "hr_test.h"

#include "engine/compile_queue.h"
#include "headrace/functional.h"

static hr_device *device;
static hr_stream *stream;

static inline void open_stream(void) {
  if (stream == NULL) {
    HR_ASSERT_OK(hr_device_open("cpu", &device));
    HR_ASSERT_OK(hr_stream_create(device, &stream));
  }
}

/* Waits until the kernels of earlier tests are compiled, which allocates, too: before HR_TEST_OOM. */
static inline void wait_for_kernels(void) {
  hr__compile_queue_wait();
}

#define DIMS(...)                                                           \
  (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { \
    __VA_ARGS__                                                             \
  }

/* A row-major tensor whose elements have no values yet. */
static inline hr_tensor new_tensor(hr_dtype dtype, int rank, const int64_t *dims) {
  open_stream();
  hr_tensor x = {.dtype = dtype, .rank = rank};
  int64_t count = 1;
  for (int d = rank - 1; d >= 0; --d) {
    x.dims[d] = dims[d], x.strides[d] = count;
    count *= dims[d];
  }
  HR_ASSERT_OK(hr_buffer_create(device, (size_t)count * hr_dtype_size(dtype), &x.buffer));
  return x;
}

#endif
