/* The cost of a small repeated step: products of one row with softshrink between them, captured once and replayed.
 *
 *   step_bench [steps]
 *
 * Prints microseconds a step, the best of some repetitions:
 *
 * - On the null device, where all time is Headrace's own: creating the result's buffer, appending the graph, key,
 *   lookup, binding, submission, waiting.
 * - On the CPU, where the weights come from the cores' caches.
 *
 * Sizes: a network of four layers, one of sixteen small ones, and one large layer that comes from memory.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "headrace/part.h"

enum { LAYERS_MAX = 16, REPEATS = 40 };

static void check(hr_status status) {
  if (status != HR_OK) {
    fprintf(stderr, "step_bench: %s\n", hr_status_message(status));
    exit(1);
  }
}

typedef struct network {
  const char *name;
  int layers;
  int64_t sizes[LAYERS_MAX + 1];
} network;

typedef struct bench {
  const network *net;
  hr_device *device;
  hr_stream *stream;
  hr_part *graph;
  hr_buffer *params[1 + 2 * LAYERS_MAX]; /* the input; weights and biases */
  hr_buffer *values[2 * LAYERS_MAX];     /* of the capture */
  size_t result_bytes;
} bench;

static hr_buffer *make_buffer(hr_device *device, int64_t count) {
  hr_buffer *buffer;
  check(hr_buffer_create(device, (size_t)count * sizeof(float), &buffer));
  return buffer;
}

static hr_buffer *make_values(const bench *b, int64_t count) {
  hr_buffer *buffer = make_buffer(b->device, count);
  float *values = malloc((size_t)count * sizeof *values);
  int64_t stride = 1;
  hr_view view = {.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 1, .dims = &count, .strides = &stride};
  for (int64_t i = 0; values != NULL && i < count; ++i) {
    values[i] = (float)(i % 17 - 8) / 16;
  }
  if (values != NULL) {
    check(hr_stream_write(b->stream, &view, values));
  }
  free(values);
  return buffer;
}

/* y = x W (+ bias); weights are stored with the inner dim last, as in torch. */
static void record_layer(hr_stream *capture, hr_buffer **buffers, int64_t inner, int64_t columns, hr_buffer *y) {
  int64_t x_dims[2] = {1, inner}, x_strides[2] = {inner, 1}, w_dims[2] = {inner, columns}, w_strides[2] = {1, inner};
  int64_t y_dims[2] = {1, columns}, y_strides[2] = {columns, 1}, bias_strides[2] = {0, 1};
  hr_view inputs[3] = {
      {.buffer = buffers[0], .dtype = HR_DTYPE_F32, .rank = 2, .dims = x_dims, .strides = x_strides},
      {.buffer = buffers[1], .dtype = HR_DTYPE_F32, .rank = 2, .dims = w_dims, .strides = w_strides},
      {.buffer = buffers[2], .dtype = HR_DTYPE_F32, .rank = 2, .dims = y_dims, .strides = bias_strides}};
  hr_view out = {.buffer = y, .dtype = HR_DTYPE_F32, .rank = 2, .dims = y_dims, .strides = y_strides};
  check(hr_stream_record(capture, HR_OP_MATMUL, NULL, 3, inputs, 1, &out));
}

static void record_shrink(hr_stream *capture, hr_buffer *x, int64_t count, hr_buffer *y) {
  int64_t stride = 1;
  hr_scalar half = hr_scalar_f64(0.5);
  hr_view inputs[2] = {{.buffer = x, .dtype = HR_DTYPE_F32, .rank = 1, .dims = &count, .strides = &stride},
                       {.scalar = &half, .dtype = half.dtype}};
  hr_view out = {.buffer = y, .dtype = HR_DTYPE_F32, .rank = 1, .dims = &count, .strides = &stride};
  check(hr_stream_record(capture, HR_OP_SOFTSHRINK, NULL, 2, inputs, 1, &out));
}

/* The graph's result is the last operation's. */
static void capture_network(bench *b) {
  hr_stream *capture;
  const network *net = b->net;
  int value_count = 0;
  check(hr_capture_create(b->device, &capture));
  b->params[0] = make_values(b, net->sizes[0]);
  hr_buffer *x = b->params[0];
  for (int i = 0; i < net->layers; ++i) {
    int64_t inner = net->sizes[i], columns = net->sizes[i + 1];
    b->params[1 + 2 * i] = make_values(b, inner * columns);
    b->params[2 + 2 * i] = make_values(b, columns);
    hr_buffer *buffers[3] = {x, b->params[1 + 2 * i], b->params[2 + 2 * i]};
    for (int k = 0; k < 2; ++k) {
      b->values[value_count++] = make_buffer(b->device, columns);
    }
    record_layer(capture, buffers, inner, columns, b->values[value_count - 2]);
    record_shrink(capture, b->values[value_count - 2], columns, b->values[value_count - 1]);
    x = b->values[value_count - 1];
  }
  b->result_bytes = (size_t)net->sizes[net->layers] * sizeof(float);
  hr_part_spec spec = {.param_count = 1 + 2 * net->layers, .result_count = 1, .params = b->params, .results = &x};
  check(hr_part_create(capture, &spec, &b->graph));
  hr_stream_release(capture);
  for (int i = 0; i < value_count; ++i) {
    hr_buffer_release(b->values[i]);
  }
}

static double time_steps(bench *b, int steps) {
  double best = 0;
  for (int r = 0; r < REPEATS; ++r) {
    int64_t begin = hr_clock_ns();
    for (int i = 0; i < steps; ++i) {
      hr_buffer *result;
      check(hr_buffer_create(b->device, b->result_bytes, &result));
      check(hr_part_run(b->stream, b->graph, b->params, &result, NULL));
      hr_part_submit_early(b->stream, b->graph);
      check(hr_stream_synchronize(b->stream));
      hr_buffer_release(result);
    }
    double each = (double)(hr_clock_ns() - begin) / steps;
    best = best == 0 || each < best ? each : best;
  }
  return best * 1e-3;
}

static double run_network(const network *net, const char *device, int steps) {
  bench b = {.net = net};
  check(hr_device_open(device, &b.device));
  check(hr_stream_create(b.device, &b.stream));
  capture_network(&b);
  double us = time_steps(&b, steps);
  for (int i = 0; i < 1 + 2 * net->layers; ++i) {
    hr_buffer_release(b.params[i]);
  }
  hr_part_release(b.graph);
  hr_stream_release(b.stream);
  hr_device_release(b.device);
  return us;
}

int main(int argc, char **argv) {
  int steps = argc > 1 ? atoi(argv[1]) : 500;
  static const network networks[] = {
      {"784-256-256-256-10", 4, {784, 256, 256, 256, 10}},
      {"16 layers of 64", 16, {64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64}},
      {"768-50257 (154 MB)", 1, {768, 50257}},
  };
  for (size_t i = 0; i < sizeof networks / sizeof *networks; ++i) {
    const network *net = &networks[i];
    bool is_large = net->sizes[0] * net->sizes[1] > 1 << 22;
    printf("%-20s %2d operations: null %6.2f us, cpu %8.2f us\n", net->name, 2 * net->layers,
           run_network(net, "null", steps), run_network(net, "cpu", is_large ? steps / 500 + 1 : steps));
  }
  return 0;
}
