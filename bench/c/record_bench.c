/* The cost of recording and committing, on the null device: nothing computes, so all measured time is Headrace's own.
 *
 *   record_bench [rounds]
 *
 * Prints nanoseconds for recording an addition, recording a convolution, creating and dropping a buffer, and committing
 * a cached program (per operation). The last lines are what a started profile (headrace/profile.h) adds. Each is the
 * best of some repetitions, because neighbours on the machine only add time.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "headrace/profile.h"
#include "headrace/stream.h"

enum { OPERATIONS = 200, REPEATS = 7, FILLING = 20 };

static void check(hr_status status) {
  if (status != HR_OK) {
    fprintf(stderr, "record_bench: %s\n", hr_status_message(status));
    exit(1);
  }
}

static hr_buffer *make_buffer(hr_device *device, size_t bytes) {
  hr_buffer *buffer;
  check(hr_buffer_create(device, bytes, &buffer));
  return buffer;
}

typedef struct bench {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *x, *y, *image, *weight, *result;
  double add, conv, buffer, commit, step, record_one, kernel; /* nanoseconds, the best so far */
} bench;

static void keep_best(double *best, int64_t ns, int count) {
  double each = (double)ns / count;
  *best = *best == 0 || each < *best ? each : *best;
}

/* y = x + y, in place. */
static void record_add(bench *b) {
  static const int64_t dims[2] = {64, 128}, strides[2] = {128, 1};
  hr_view inputs[2] = {{.buffer = b->x, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides},
                       {.buffer = b->y, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides}};
  check(hr_stream_record(b->stream, HR_OP_ADD, NULL, 2, inputs, 1, &inputs[1]));
}

static void record_conv(bench *b) {
  static const int64_t x_dims[4] = {8, 16, 28, 28}, x_strides[4] = {12544, 784, 28, 1};
  static const int64_t w_dims[4] = {16, 16, 3, 3}, w_strides[4] = {144, 9, 3, 1};
  static const int64_t ints[] = {2, 1, 1, 1, 1, 1, 1, 1};
  hr_attrs attrs = {.int_count = 8, .ints = ints};
  hr_view inputs[3] = {{.buffer = b->image, .dtype = HR_DTYPE_F32, .rank = 4, .dims = x_dims, .strides = x_strides},
                       {.buffer = b->weight, .dtype = HR_DTYPE_F32, .rank = 4, .dims = w_dims, .strides = w_strides},
                       {0}};
  hr_view output = {.buffer = b->result, .dtype = HR_DTYPE_F32, .rank = 4, .dims = x_dims, .strides = x_strides};
  check(hr_stream_record(b->stream, HR_OP_CONV, &attrs, 3, inputs, 1, &output));
}

static void run_once(bench *b, int operations) {
  int64_t begin = hr_clock_ns();
  for (int i = 0; i < operations; ++i) {
    record_add(b);
  }
  int64_t recorded = hr_clock_ns();
  check(hr_stream_commit(b->stream));
  int64_t committed = hr_clock_ns();
  check(hr_stream_synchronize(b->stream));
  keep_best(&b->add, recorded - begin, operations);
  keep_best(&b->commit, committed - recorded, operations);
  keep_best(&b->step, hr_clock_ns() - begin, operations);
}

static void run_conv(bench *b, int operations) {
  int64_t begin = hr_clock_ns();
  for (int i = 0; i < operations; ++i) {
    record_conv(b);
  }
  keep_best(&b->conv, hr_clock_ns() - begin, operations);
  check(hr_stream_synchronize(b->stream));
}

static void run_buffers(bench *b, int count) {
  int64_t begin = hr_clock_ns();
  for (int i = 0; i < count; ++i) {
    hr_buffer_release(make_buffer(b->device, 4096));
  }
  keep_best(&b->buffer, hr_clock_ns() - begin, count);
}

/* A chain of running sums, each a kernel of its own: x to y and back. */
static void run_kernels(bench *b, int count) {
  static const int64_t dims[2] = {64, 128}, strides[2] = {128, 1}, axis[] = {1};
  hr_attrs attrs = {.int_count = 1, .ints = axis};
  hr_view views[2] = {{.buffer = b->x, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides},
                      {.buffer = b->y, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides}};
  int64_t begin = hr_clock_ns();
  for (int i = 0; i < count; ++i) {
    check(hr_stream_record(b->stream, HR_OP_CUMSUM, &attrs, 1, &views[i % 2], 1, &views[1 - i % 2]));
  }
  int64_t recorded = hr_clock_ns();
  check(hr_stream_synchronize(b->stream));
  keep_best(&b->record_one, recorded - begin, count);
  keep_best(&b->kernel, hr_clock_ns() - recorded, count);
}

/* Rounds without a profile and with one alternate. The ring is full from the tenth round on, which costs more. */
static void print_profiled(const bench *b, int rounds) {
  bench plain = *b, profiled = *b;
  hr_profile *profile;
  check(hr_profile_create(b->device, 1 << 16, 0, &profile));
  for (int i = 0; i < REPEATS * rounds; ++i) {
    profiled.kernel = i < FILLING ? 0 : profiled.kernel;
    run_kernels(&plain, OPERATIONS);
    check(hr_profile_start(profile));
    hr_profile_correlate(1);
    run_kernels(&profiled, OPERATIONS);
    hr_profile_correlate(0);
    check(hr_profile_stop(profile));
  }
  hr_profile_release(profile);
  printf("a profile adds to an operation      %7.1f ns to %.1f\n", profiled.record_one - plain.record_one,
         plain.record_one);
  printf("... and to a kernel                 %7.1f ns to %.1f\n", profiled.kernel - plain.kernel, plain.kernel);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 200;
  bench b = {0};
  check(hr_device_open("null", &b.device));
  check(hr_stream_create(b.device, &b.stream));
  b.x = make_buffer(b.device, 64 * 128 * 4);
  b.y = make_buffer(b.device, 64 * 128 * 4);
  b.image = make_buffer(b.device, 8 * 12544 * 4);
  b.weight = make_buffer(b.device, 16 * 144 * 4);
  b.result = make_buffer(b.device, 8 * 12544 * 4);
  for (int i = 0; i < REPEATS * rounds; ++i) {
    run_once(&b, OPERATIONS);
    run_buffers(&b, OPERATIONS);
    run_conv(&b, OPERATIONS);
  }
  bench small = {.device = b.device, .stream = b.stream, .x = b.x, .y = b.y};
  for (int i = 0; i < REPEATS * rounds; ++i) {
    run_once(&small, 1);
  }
  printf("record add, 3 views of rank 2       %7.1f ns\n", b.add);
  printf("record conv, 3 views of rank 4      %7.1f ns\n", b.conv);
  printf("buffer create and release           %7.1f ns\n", b.buffer);
  printf("commit of %d cached operations     %7.1f ns an operation\n", OPERATIONS, b.commit);
  printf("record, commit, wait                %7.1f ns an operation\n", b.step);
  printf("the same with one operation         %7.1f ns\n", small.step);
  print_profiled(&b, rounds);
  hr_buffer *all[] = {b.x, b.y, b.image, b.weight, b.result};
  for (int i = 0; i < 5; ++i) {
    hr_buffer_release(all[i]);
  }
  hr_stream_release(b.stream);
  hr_device_release(b.device);
  return 0;
}
