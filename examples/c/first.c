/* first.c: x = relu(2 * x) in C: two operations that run as one kernel when x is read. cc first.c -lheadrace */
#include <stdio.h>

#include "headrace/stream.h"

static hr_status run(hr_stream *stream, hr_buffer *buffer, float values[4]) {
  const int64_t dims[] = {4}, strides[] = {1};
  const hr_scalar two = hr_scalar_f64(2); /* an argument of each run: another number needs no new program */
  const hr_view x = {.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = strides};
  const hr_view factors[] = {x, {.scalar = &two, .dtype = two.dtype}};
  HR_RETURN_IF_ERROR(hr_stream_write(stream, &x, values));
  HR_RETURN_IF_ERROR(hr_stream_record(stream, HR_OP_MUL, NULL, 2, factors, 1, &x));
  HR_RETURN_IF_ERROR(hr_stream_record(stream, HR_OP_RELU, NULL, 1, &x, 1, &x));
  return hr_stream_read(stream, &x, values);
}

int main(void) {
  float values[] = {-1, 0, 1, 2};
  hr_device *device = NULL;
  hr_stream *stream = NULL;
  hr_buffer *buffer = NULL;
  hr_status status = hr_device_open("cpu", &device);
  status = status != HR_OK ? status : hr_stream_create(device, &stream);
  status = status != HR_OK ? status : hr_buffer_create(device, sizeof values, &buffer); /* no memory yet */
  status = status != HR_OK ? status : run(stream, buffer, values);
  printf("%s: %g %g %g %g\n", hr_status_message(status), values[0], values[1], values[2], values[3]);
  hr_buffer_release(buffer), hr_stream_release(stream), hr_device_release(device), hr_status_free(status);
  return 0;
}
