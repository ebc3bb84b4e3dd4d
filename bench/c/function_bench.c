/* The cost of a function of functional.h beside the bare record of its row: x + y of 4 floats on the CPU.
 *
 *   function_bench [rounds]
 *
 * Prints nanoseconds of an operation: recorded alone; kept, with commit and run; dropped. Each is the best of the
 * rounds, because neighbours on the machine only add time.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "headrace/functional.h"

enum { OPERATIONS = 1000 };

typedef struct bench {
  hr_device *device;
  hr_stream *stream;
  hr_tensor x, y, kept[OPERATIONS];
} bench;

static void check(hr_status status) {
  if (status != HR_OK) {
    fprintf(stderr, "function_bench: %s\n", hr_status_message(status));
    exit(1);
  }
}

static hr_view view_of(const hr_tensor *x) {
  return (hr_view){.buffer = x->buffer, .dtype = x->dtype, .rank = x->rank, .dims = x->dims, .strides = x->strides};
}

static hr_tensor make(const bench *b) {
  hr_tensor x;
  x.dtype = HR_DTYPE_F32, x.rank = 1, x.dims[0] = 4, x.strides[0] = 1, x.offset = 0, x.number.dtype = HR_DTYPE_NONE;
  check(hr_buffer_create(b->device, 16, &x.buffer));
  return x;
}

/* The bare record: the result's type is known. */
static void add_row(const bench *b, hr_tensor *out) {
  out->dtype = HR_DTYPE_F32, out->rank = 1, out->dims[0] = 4, out->strides[0] = 1, out->offset = 0;
  check(hr_buffer_create(b->device, 16, &out->buffer));
  hr_view inputs[2] = {view_of(&b->x), view_of(&b->y)}, output = view_of(out);
  check(hr_stream_record(b->stream, HR_OP_ADD, NULL, 2, inputs, 1, &output));
}

static void add_function(const bench *b, hr_tensor *out) {
  const hr_tensor *inputs[2] = {&b->x, &b->y};
  check(hr_functional_apply(b->stream, HR_FUNCTIONAL_ADD, 2, inputs, 0, NULL, 1, out));
}

static void keep_best(double *best, int64_t ns) {
  double each = (double)ns / OPERATIONS;
  *best = *best == 0 || each < *best ? each : *best;
}

static void run_kept(bench *b, void (*add)(const bench *, hr_tensor *), double *record, double *all) {
  int64_t begin = hr_clock_ns();
  for (int i = 0; i < OPERATIONS; ++i) {
    add(b, &b->kept[i]);
  }
  keep_best(record, hr_clock_ns() - begin);
  check(hr_stream_synchronize(b->stream));
  keep_best(all, hr_clock_ns() - begin);
  for (int i = 0; i < OPERATIONS; ++i) {
    hr_buffer_release(b->kept[i].buffer);
  }
}

static void run_dropped(bench *b, void (*add)(const bench *, hr_tensor *), double *best) {
  int64_t begin = hr_clock_ns();
  for (int i = 0; i < OPERATIONS; ++i) {
    hr_tensor z;
    add(b, &z);
    hr_buffer_release(z.buffer);
  }
  check(hr_stream_synchronize(b->stream));
  keep_best(best, hr_clock_ns() - begin);
}

int main(int argc, char **argv) {
  static bench b;
  int rounds = argc > 1 ? atoi(argv[1]) : 1000;
  double record[2] = {0}, kept[2] = {0}, dropped[2] = {0};
  check(hr_device_open("cpu", &b.device));
  check(hr_stream_create(b.device, &b.stream));
  b.x = make(&b), b.y = make(&b);
  hr_view x = view_of(&b.x), y = view_of(&b.y);
  check(hr_stream_write(b.stream, &x, (float[]){1, 2, 3, 4}));
  check(hr_stream_write(b.stream, &y, (float[]){1, 2, 3, 4}));
  for (int i = 0; i < rounds; ++i) {
    for (int way = 0; way < 2; ++way) {
      run_kept(&b, way == 0 ? add_row : add_function, &record[way], &kept[way]);
      run_dropped(&b, way == 0 ? add_row : add_function, &dropped[way]);
    }
  }
  printf("%-32s %9s %9s\n", "ns an operation, x + y", "row", "function");
  printf("%-32s %9.1f %9.1f\n", "recorded", record[0], record[1]);
  printf("%-32s %9.1f %9.1f\n", "kept, with commit and run", kept[0], kept[1]);
  printf("%-32s %9.1f %9.1f\n", "dropped, with commit", dropped[0], dropped[1]);
  hr_tensor_release(&b.x), hr_tensor_release(&b.y);
  hr_stream_release(b.stream), hr_device_release(b.device);
  return 0;
}
