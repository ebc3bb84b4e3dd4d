/* The cost of a busy neighbour: the first run of a small network, and its steps, beside processes that never sleep.
 *
 *   neighbour_bench [steps]
 *
 * For 0, 1 and 2 neighbours a fresh process opens the CPU and runs steps. A step has two library products with
 * element-wise operations and a sum between them; the host reads its result. Prints milliseconds: the first run, then
 * the median, the mean and the slowest of twenty of the later ones. Nothing is compiled, and nothing is stored on disk.
 * HEADRACE_THREADS and HEADRACE_ONEDNN apply as usual.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "headrace/stream.h"

enum { ROWS = 128, INNER = 512, NEIGHBOURS_MAX = 2, STEPS_MAX = 100000 };

static void check(hr_status status) {
  if (status != HR_OK) {
    fprintf(stderr, "neighbour_bench: %s\n", hr_status_message(status));
    exit(1);
  }
}

typedef struct network {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *x, *weights[2];
} network;

static hr_buffer *make_buffer(const network *n, int64_t count) {
  hr_buffer *buffer;
  check(hr_buffer_create(n->device, (size_t)count * sizeof(float), &buffer));
  return buffer;
}

static hr_buffer *make_values(const network *n, int64_t count) {
  hr_buffer *buffer = make_buffer(n, count);
  float *values = malloc((size_t)count * sizeof *values);
  int64_t stride = 1;
  hr_view view = {.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 1, .dims = &count, .strides = &stride};
  for (int64_t i = 0; values != NULL && i < count; ++i) {
    values[i] = (float)(i % 17 - 8) / 64;
  }
  if (values != NULL) {
    check(hr_stream_write(n->stream, &view, values));
  }
  free(values);
  return buffer;
}

static hr_view matrix(hr_buffer *buffer, const int64_t *dims, const int64_t *strides) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
}

/* One step: returns the sum of tanh(tanh(x a) b). */
static float run_step(const network *n) {
  static const int64_t dims[2] = {ROWS, INNER}, w_dims[2] = {INNER, INNER}, strides[2] = {INNER, 1}, none[2] = {0, 0};
  static const int64_t one[2] = {1, 1}, mask = 3;
  float sum = 0;
  hr_buffer *values[5], *x = n->x;
  for (int i = 0; i < 2; ++i) {
    values[2 * i] = make_buffer(n, ROWS * INNER);
    values[2 * i + 1] = make_buffer(n, ROWS * INNER);
    hr_view product = matrix(values[2 * i], dims, strides), y = matrix(values[2 * i + 1], dims, strides);
    hr_view inputs[3] = {matrix(x, dims, strides), matrix(n->weights[i], w_dims, strides), {.dtype = HR_DTYPE_F32}};
    inputs[2] = matrix(n->weights[i], dims, (const int64_t[2]){0, 1});
    check(hr_stream_record(n->stream, HR_OP_MATMUL, NULL, 3, inputs, 1, &product));
    check(hr_stream_record(n->stream, HR_OP_TANH, NULL, 1, &product, 1, &y));
    x = values[2 * i + 1];
  }
  values[4] = make_buffer(n, 1);
  hr_view all = matrix(x, dims, strides), out = matrix(values[4], one, none);
  hr_attrs attrs = {.ints = &mask, .int_count = 1};
  check(hr_stream_record(n->stream, HR_OP_SUM, &attrs, 1, &all, 1, &out));
  check(hr_stream_read(n->stream, &out, &sum));
  for (int i = 0; i < 5; ++i) {
    hr_buffer_release(values[i]);
  }
  return sum;
}

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* Runs in its own process. */
static void measure(int neighbours, int steps) {
  static int64_t ns[STEPS_MAX];
  network n;
  int64_t begin = hr_clock_ns(), total = 0;
  check(hr_device_open("cpu", &n.device));
  check(hr_stream_create(n.device, &n.stream));
  n.x = make_values(&n, ROWS * INNER);
  n.weights[0] = make_values(&n, INNER * INNER);
  n.weights[1] = make_values(&n, INNER * INNER);
  float first = run_step(&n);
  double first_ms = (double)(hr_clock_ns() - begin) * 1e-6;
  for (int i = 0; i < steps; ++i) {
    begin = hr_clock_ns();
    if (run_step(&n) != first) {
      fprintf(stderr, "neighbour_bench: another result\n");
    }
    ns[i] = hr_clock_ns() - begin;
    total += ns[i];
  }
  qsort(ns, (size_t)steps, sizeof *ns, compare);
  printf("%d neighbours: first %8.1f ms, then %7.2f median, %7.2f mean, %7.2f at 95 %%\n", neighbours, first_ms,
         (double)ns[steps / 2] * 1e-6, (double)total / steps * 1e-6, (double)ns[steps * 19 / 20] * 1e-6);
  fflush(stdout);
  _exit(0);
}

static void spin(void) {
  for (volatile long i = 0;; ++i) {
  }
}

int main(int argc, char **argv) {
  int steps = argc > 1 ? atoi(argv[1]) : 200;
  steps = steps < 20 ? 20 : steps > STEPS_MAX ? STEPS_MAX : steps;
  setenv("HEADRACE_JIT", "off", 0);
  setenv("HEADRACE_CACHE", "-", 0);
  for (int neighbours = 0; neighbours <= NEIGHBOURS_MAX; ++neighbours) {
    pid_t pids[NEIGHBOURS_MAX] = {0};
    for (int i = 0; i < neighbours; ++i) {
      pids[i] = fork();
      if (pids[i] == 0) {
        spin();
      }
    }
    pid_t child = fork();
    if (child == 0) {
      measure(neighbours, steps);
    }
    (void)waitpid(child, NULL, 0);
    for (int i = 0; i < neighbours; ++i) {
      kill(pids[i], SIGKILL);
      (void)waitpid(pids[i], NULL, 0);
    }
  }
  return 0;
}
