/* Two independent pieces of work: both in one stream, and each in a stream of its own.
 *
 *   streams_bench [device]      HEADRACE_LANES=1 shows streams that share their queue
 *
 * Prints milliseconds of host time until both are done, medians of some repetitions:
 *
 *   rows       softmax of four long rows: few blocks of threads, for a long time
 *   layers     products of 256 x 256 matrices, one after another: many short kernels
 *   product    products of 4,096 x 4,096: one kernel occupies the whole device
 *   writes     the second piece copies from the host, the first one is `rows`
 *   turns      the streams take turns at one small buffer: what an order between them costs
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "headrace/stream.h"

enum { REPEATS = 9, TURNS = 200, LAYERS = 40 };

static void check(hr_status status) {
  if (status != HR_OK) {
    fprintf(stderr, "streams_bench: %s\n", hr_status_message(status));
    exit(1);
  }
}

typedef struct matrix {
  hr_buffer *buffer;
  int64_t dims[2], strides[2];
} matrix;

typedef struct piece {
  hr_device *device;
  hr_stream *stream;
  matrix x, y, w;
  float *host;
} piece;

static hr_view view_of(const matrix *m) {
  return (hr_view){.buffer = m->buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = m->dims, .strides = m->strides};
}

static void fill(hr_stream *stream, const matrix *m, double value) {
  hr_scalar scalar = hr_scalar_f64(value);
  hr_view in = {.scalar = &scalar, .dtype = scalar.dtype}, out = view_of(m);
  check(hr_stream_record(stream, HR_OP_COPY, NULL, 1, &in, 1, &out));
}

static void make_matrix(const piece *p, int64_t rows, int64_t columns, double value, matrix *m) {
  *m = (matrix){.dims = {rows, columns}, .strides = {columns, 1}};
  check(hr_buffer_create(p->device, (size_t)(rows * columns) * sizeof(float), &m->buffer));
  fill(p->stream, m, value);
}

static void make_piece(piece *p, int64_t rows, int64_t columns) {
  make_matrix(p, rows, columns, 1, &p->x);
  make_matrix(p, rows, columns, 1, &p->y);
  make_matrix(p, rows <= 8 ? 1 : columns, columns, 1.0 / (double)columns, &p->w);
  p->host = calloc((size_t)(rows * columns), sizeof *p->host);
  check(hr_stream_synchronize(p->stream));
}

static void free_piece(piece *p) {
  hr_buffer_release(p->x.buffer);
  hr_buffer_release(p->y.buffer);
  hr_buffer_release(p->w.buffer);
  free(p->host);
}

static void run_rows(piece *p) {
  const int64_t dim = 1;
  hr_attrs attrs = {.int_count = 1, .ints = &dim};
  hr_view in = view_of(&p->x), out = view_of(&p->y);
  check(hr_stream_record(p->stream, HR_OP_SOFTMAX, &attrs, 1, &in, 1, &out));
  check(hr_stream_commit(p->stream));
}

static void multiply(piece *p, const matrix *from, const matrix *to) {
  hr_view in[3] = {view_of(from), view_of(&p->w), {0}}, out = view_of(to);
  check(hr_stream_record(p->stream, HR_OP_MATMUL, NULL, 3, in, 1, &out));
}

static void run_layers(piece *p) {
  for (int i = 0; i < LAYERS; ++i) {
    multiply(p, i % 2 == 0 ? &p->x : &p->y, i % 2 == 0 ? &p->y : &p->x);
  }
  check(hr_stream_commit(p->stream));
}

static void run_product(piece *p) {
  multiply(p, &p->x, &p->y);
  check(hr_stream_commit(p->stream));
}

static void run_writes(piece *p) {
  hr_view view = view_of(&p->x);
  check(hr_stream_write(p->stream, &view, p->host));
  check(hr_stream_commit(p->stream));
}

typedef void (*work_fn)(piece *p);

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Milliseconds of both pieces; either may be NULL. */
static double time_both(piece *p, piece *q, work_fn first, work_fn second) {
  double ms[REPEATS];
  for (int i = -3; i < REPEATS; ++i) { /* the first ones compile, and capture graphs */
    int64_t begin = hr_clock_ns();
    if (first != NULL) {
      first(p);
    }
    if (second != NULL) {
      second(q);
    }
    check(hr_stream_synchronize(p->stream));
    check(hr_stream_synchronize(q->stream));
    ms[i < 0 ? 0 : i] = (double)(hr_clock_ns() - begin) * 1e-6;
  }
  qsort(ms, REPEATS, sizeof *ms, compare);
  return ms[REPEATS / 2];
}

static void compare_streams(hr_stream *const streams[2], hr_device *device, const char *name, work_fn first,
                            work_fn second, int64_t rows, int64_t columns) {
  piece p = {.device = device, .stream = streams[0]}, q = {.device = device, .stream = streams[1]};
  make_piece(&p, rows, columns);
  make_piece(&q, rows, columns);
  double one = time_both(&p, &q, first, NULL), other = time_both(&p, &q, NULL, second);
  double apart = time_both(&p, &q, first, second);
  q.stream = streams[0];
  double together = time_both(&p, &q, first, second);
  printf("%-8s %8.3f %8.3f   both: one stream %8.3f, two streams %8.3f\n", name, one, other, together, apart);
  free_piece(&p);
  free_piece(&q);
}

static void add_one(hr_stream *stream, const matrix *m) {
  hr_scalar scalar = hr_scalar_f64(1);
  hr_view in[2] = {view_of(m), {.scalar = &scalar, .dtype = scalar.dtype}}, out = view_of(m);
  check(hr_stream_record(stream, HR_OP_ADD, NULL, 2, in, 1, &out));
  check(hr_stream_commit(stream));
}

static double time_turns(hr_device *device, hr_stream *const streams[2], int count) {
  piece p = {.device = device, .stream = streams[0]};
  double ms[REPEATS];
  make_piece(&p, 8, 1024);
  for (int i = 0; i < REPEATS; ++i) {
    int64_t begin = hr_clock_ns();
    for (int turn = 0; turn < TURNS; ++turn) {
      add_one(streams[turn % count], &p.x);
    }
    check(hr_stream_synchronize(streams[0]));
    check(hr_stream_synchronize(streams[1]));
    ms[i] = (double)(hr_clock_ns() - begin) * 1e-6;
  }
  free_piece(&p);
  qsort(ms, REPEATS, sizeof *ms, compare);
  return ms[REPEATS / 2];
}

int main(int argc, char **argv) {
  hr_device *device;
  hr_stream *streams[2];
  check(hr_device_open(argc > 1 ? argv[1] : "cpu", &device));
  for (int i = 0; i < 2; ++i) {
    check(hr_stream_create(device, &streams[i]));
    hr_stream_set_mode(streams[i], HR_MODE_FUSE);
  }
  compare_streams(streams, device, "rows", run_rows, run_rows, 4, 1 << 20);
  compare_streams(streams, device, "layers", run_layers, run_layers, 256, 256);
  compare_streams(streams, device, "product", run_product, run_product, 4096, 4096);
  compare_streams(streams, device, "writes", run_rows, run_writes, 4, 1 << 20);
  printf("turns    one stream %8.3f, two streams %8.3f\n", time_turns(device, streams, 1),
         time_turns(device, streams, 2));
  for (int i = 0; i < 2; ++i) {
    hr_stream_release(streams[i]);
  }
  hr_device_release(device);
  return 0;
}
