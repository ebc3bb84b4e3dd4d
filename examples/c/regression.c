/* regression.c: fits y = x w by gradient descent on arrays. Each step is one program, from the second step on a cached
 * one. cc regression.c -lheadrace */
#include <stdio.h>

#include "headrace/array.h"

#define DO(expression) status = status != HR_OK ? status : (expression)

int main(void) {
  float points[64][3], values[64], weights[3] = {0};
  for (int i = 0; i < 64; ++i) {
    points[i][0] = (float)(i % 4) / 2, points[i][1] = (float)(i % 5) / 2, points[i][2] = 1;
    values[i] = 3 * points[i][0] - 2 * points[i][1] + 0.5f;
  }
  hr_device *device = NULL;
  hr_stream *stream = NULL;
  hr_tensor x = {0}, xt = {0}, y = {0}, w = {0}, error = {0}, slope = {0};
  hr_tensor rate = hr_tensor_number(hr_scalar_f64(0.2 / 64));
  hr_status status = hr_device_open("cpu", &device);
  DO(hr_stream_create(device, &stream));
  DO(hr_array_from_host(stream, HR_DTYPE_F32, 2, (const int64_t[]){64, 3}, points, &x));
  DO(hr_array_from_host(stream, HR_DTYPE_F32, 1, (const int64_t[]){64}, values, &y));
  DO(hr_array_from_host(stream, HR_DTYPE_F32, 1, (const int64_t[]){3}, weights, &w));
  DO(hr_array_unary(stream, HR_FUNCTIONAL_PERMUTE_DIMS, &x, &xt)); /* a view */
  for (int step = 0; step < 400; ++step) {
    DO(hr_array_binary(stream, HR_FUNCTIONAL_MATMUL, &x, &w, &error)); /* x w */
    DO(hr_array_binary(stream, HR_FUNCTIONAL_SUBTRACT, &error, &y, &error));
    DO(hr_array_binary(stream, HR_FUNCTIONAL_MATMUL, &xt, &error, &slope)); /* of half the squared error */
    DO(hr_array_binary(stream, HR_FUNCTIONAL_MULTIPLY, &slope, &rate, &slope));
    DO(hr_array_binary(stream, HR_FUNCTIONAL_SUBTRACT, &w, &slope, &w));
    DO(hr_stream_commit(stream));
  }
  DO(hr_array_read(stream, &w, weights));
  printf("%s: w = %.3f %.3f %.3f\n", hr_status_message(status), weights[0], weights[1], weights[2]);
  hr_tensor_release(&x), hr_tensor_release(&xt), hr_tensor_release(&y), hr_tensor_release(&w);
  hr_tensor_release(&error), hr_tensor_release(&slope);
  hr_stream_release(stream), hr_device_release(device), hr_status_free(status);
  return 0;
}
