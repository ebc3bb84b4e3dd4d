/* random_streams.h: random programs on the streams of a device, whose buffers come and go.
 *
 * All contents are small integers, so that results are the same however the operations are divided into programs, and
 * whichever algorithm multiplies matrices.
 */
#ifndef HEADRACE_TESTS_RANDOM_STREAMS_H_
#define HEADRACE_TESTS_RANDOM_STREAMS_H_

#include <string.h>

#include "hr_test.h"

#include "engine/stream.h"

enum { STREAMS = HR_LANES_MAX, BUFFERS = 10, OPERATIONS = 600, ROWS_MAX = 400, COLUMNS = 96, LAYERS = 3, IMAGE = 64 };
enum { RESULTS = BUFFERS * ROWS_MAX * COLUMNS };

typedef struct random_world {
  hr_device *device;
  hr_stream *streams[STREAMS];
  hr_buffer *buffers[BUFFERS];
  int64_t rows[BUFFERS];
  hr_buffer *weights[2], *images[2]; /* COLUMNS x COLUMNS, which change rarely; IMAGE x COLUMNS */
  uint64_t seed;
  bool has_host_functions; /* the host can use the device's memory */
} random_world;

static uint64_t next(random_world *w) {
  w->seed = w->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return w->seed >> 33;
}

typedef struct random_view {
  int64_t dims[2], strides[2];
  hr_view view;
} random_view;

static void view_of_rows(hr_buffer *buffer, int64_t rows, random_view *v) {
  *v = (random_view){.dims = {rows, COLUMNS}, .strides = {COLUMNS, 1}};
  v->view = (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = v->dims, .strides = v->strides};
}

static void record_1(hr_stream *stream, hr_op op, hr_view in, hr_view out) {
  HR_ASSERT_OK(hr_stream_record(stream, op, NULL, 1, &in, 1, &out));
}

static void record_2(hr_stream *stream, hr_op op, hr_view a, hr_view b, hr_view out) {
  const hr_view in[2] = {a, b};
  HR_ASSERT_OK(hr_stream_record(stream, op, NULL, 2, in, 1, &out));
}

static hr_view number(const hr_scalar *scalar) {
  return (hr_view){.scalar = scalar, .dtype = scalar->dtype};
}

static hr_buffer *make_rows(const random_world *w, int64_t rows) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(w->device, (size_t)rows * COLUMNS * sizeof(float), &buffer));
  return buffer;
}

/* Numbers from 0 to 3, written by the host, or one of them everywhere. */
static void set_rows(random_world *w, hr_stream *stream, hr_buffer *buffer, int64_t rows) {
  static float values[ROWS_MAX * COLUMNS];
  hr_scalar scalar = hr_scalar_f64((double)(next(w) % 4));
  random_view v;
  view_of_rows(buffer, rows, &v);
  if (next(w) % 2 == 0) {
    record_1(stream, HR_OP_COPY, number(&scalar), v.view);
    return;
  }
  for (int64_t i = 0; i < rows * COLUMNS; ++i) {
    values[i] = (float)((uint64_t)(i * 7 + i / 5) % 4);
  }
  HR_ASSERT_OK(hr_stream_write(stream, &v.view, values));
}

/* Another buffer, with contents, in place of the old one, whose memory is then free for others. */
static void renew(random_world *w, hr_stream *stream, int i) {
  hr_buffer_release(w->buffers[i]);
  w->rows[i] = 1 + (int64_t)(next(w) % ROWS_MAX);
  w->buffers[i] = make_rows(w, w->rows[i]);
  set_rows(w, stream, w->buffers[i], w->rows[i]);
}

/* out = floor(3 sin(a) + b / 2) in the rows that all three have, by a temporary. */
static void combine(random_world *w, hr_stream *stream, int a, int b, int out) {
  int64_t rows = w->rows[a] < w->rows[b] ? w->rows[a] : w->rows[b];
  rows = rows < w->rows[out] ? rows : w->rows[out];
  hr_buffer *temporary = make_rows(w, rows);
  hr_scalar three = hr_scalar_f64(3), half = hr_scalar_f64(0.5);
  random_view x, y, z, t;
  view_of_rows(w->buffers[a], rows, &x);
  view_of_rows(w->buffers[b], rows, &y);
  view_of_rows(w->buffers[out], rows, &z);
  view_of_rows(temporary, rows, &t);
  record_1(stream, HR_OP_SIN, x.view, t.view);
  record_2(stream, HR_OP_MUL, t.view, number(&three), t.view);
  record_2(stream, HR_OP_MUL, y.view, number(&half), z.view);
  record_2(stream, HR_OP_ADD, t.view, z.view, z.view);
  record_1(stream, HR_OP_FLOOR, z.view, z.view);
  hr_buffer_release(temporary);
}

/* An image through layers x = floor(3 sin(x * (2 weight))): a program that repeats, with temporaries, and the doubled
 * weights cached. */
static void run_layers(random_world *w, hr_stream *stream, int image) {
  hr_scalar two = hr_scalar_f64(2), three = hr_scalar_f64(3);
  random_view x, y, weight, doubled;
  HR_ASSERT_OK(hr_stream_commit(stream));
  view_of_rows(w->images[image], IMAGE, &x);
  for (int i = 0; i < LAYERS; ++i) {
    hr_buffer *product = make_rows(w, IMAGE), *factor = make_rows(w, COLUMNS);
    view_of_rows(w->weights[i % 2], COLUMNS, &weight);
    view_of_rows(factor, COLUMNS, &doubled);
    view_of_rows(product, IMAGE, &y);
    record_2(stream, HR_OP_MUL, weight.view, number(&two), doubled.view);
    const hr_view in[3] = {x.view, doubled.view, {0}};
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MATMUL, NULL, 3, in, 1, &y.view));
    record_1(stream, HR_OP_SIN, y.view, y.view);
    record_2(stream, HR_OP_MUL, y.view, number(&three), y.view);
    record_1(stream, HR_OP_FLOOR, y.view, x.view);
    hr_buffer_release(product);
    hr_buffer_release(factor);
  }
  HR_ASSERT_OK(hr_stream_commit(stream));
}

static hr_status add_on_host(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  (void)arg, (void)input_count, (void)output_count;
  for (int i = 0; i < COLUMNS; ++i) {
    ((float *)outputs[0])[i] = ((const float *)inputs[0])[i] - ((const float *)inputs[1])[i] > 0 ? 2 : 3;
  }
  return HR_OK;
}

static void call_host(const random_world *w, hr_stream *stream, int a, int out) {
  hr_buffer *inputs[2] = {w->buffers[a], w->buffers[out]};
  if (w->has_host_functions) {
    HR_ASSERT_OK(hr_stream_call(stream, add_on_host, NULL, NULL, 2, inputs, 1, &inputs[1]));
  }
}

static void read_row(const random_world *w, hr_stream *stream, int a) {
  float row[COLUMNS];
  random_view v;
  view_of_rows(w->buffers[a], 1, &v);
  HR_ASSERT_OK(hr_stream_read(stream, &v.view, row));
}

static void do_one(random_world *w, hr_stream *stream, hr_stream *other) {
  int a = (int)(next(w) % BUFFERS), b = (int)(next(w) % BUFFERS), out = (int)(next(w) % BUFFERS);
  uint64_t kind = next(w) % 24;
  if (kind < 2) {
    renew(w, stream, out);
  } else if (kind == 2) {
    call_host(w, stream, a, out);
  } else if (kind == 3) {
    read_row(w, stream, a);
  } else if (kind == 4) {
    HR_ASSERT_OK(hr_stream_wait_for(stream, other));
  } else if (kind < 7) {
    HR_ASSERT_OK(hr_stream_commit(stream));
  } else if (kind < 11) {
    run_layers(w, stream, out % 2);
  } else if (kind == 11) {
    set_rows(w, stream, w->buffers[out], w->rows[out]);
  } else if (kind == 12 && b < BUFFERS / 2) {
    set_rows(w, stream, w->weights[out % 2], COLUMNS);
  } else {
    combine(w, stream, a, b, out);
  }
}

static void make_world(random_world *w, int stream_count) {
  for (int i = 0; i < stream_count; ++i) {
    HR_ASSERT_OK(hr_stream_create(w->device, &w->streams[i]));
    hr_stream_set_mode(w->streams[i], HR_MODE_FUSE);
    HR_ASSERT_EQ(w->streams[i]->lane->number, i);
  }
  for (int i = 0; i < BUFFERS; ++i) {
    renew(w, w->streams[0], i);
  }
  for (int i = 0; i < 2; ++i) {
    w->weights[i] = make_rows(w, COLUMNS);
    w->images[i] = make_rows(w, IMAGE);
    set_rows(w, w->streams[0], w->weights[i], COLUMNS);
    set_rows(w, w->streams[0], w->images[i], IMAGE);
  }
}

static void read_all(hr_stream *stream, hr_buffer *buffer, int64_t rows, float *out_rows) {
  random_view v;
  view_of_rows(buffer, rows, &v);
  HR_ASSERT_OK(hr_stream_read(stream, &v.view, out_rows));
  hr_buffer_release(buffer);
}

/* Runs a random program on so many streams; *out_rows are the contents of all buffers and images at the end. */
static void run_random(random_world w, int stream_count, float *out_rows) {
  make_world(&w, stream_count);
  for (int64_t i = 0; i < hr_test_count(OPERATIONS); ++i) {
    uint64_t stream = next(&w), other = next(&w);
    do_one(&w, w.streams[stream % (uint64_t)stream_count], w.streams[other % (uint64_t)stream_count]);
  }
  memset(out_rows, 0, sizeof(float) * (RESULTS + 2 * IMAGE * COLUMNS));
  for (int i = 0; i < BUFFERS; ++i) {
    read_all(w.streams[i % stream_count], w.buffers[i], w.rows[i], out_rows + i * ROWS_MAX * COLUMNS);
  }
  for (int i = 0; i < 2; ++i) {
    read_all(w.streams[i % stream_count], w.images[i], IMAGE, out_rows + RESULTS + i * IMAGE * COLUMNS);
    hr_buffer_release(w.weights[i]);
  }
  for (int i = stream_count; i-- > 0;) {
    hr_stream_release(w.streams[i]);
  }
}

/* So many programs have the same results on one stream and on several, each with a lane of its own. */
static void check_random_streams(hr_device *device, uint64_t programs, bool has_host_functions) {
  static float expected[RESULTS + 2 * IMAGE * COLUMNS], found[RESULTS + 2 * IMAGE * COLUMNS];
  device->lanes_max = STREAMS;
  for (uint64_t seed = 1; seed <= programs; ++seed) {
    const random_world w = {.device = device, .seed = seed, .has_host_functions = has_host_functions};
    run_random(w, 1, expected);
    for (int streams = 2; streams <= STREAMS; ++streams) {
      run_random(w, streams, found);
      HR_ASSERT(memcmp(expected, found, sizeof expected) == 0);
    }
  }
}

#endif
