/* Captures, parts and loops without host memory: what fails is reported and has changed nothing, and the same works
 * when there is memory again.
 */
#include "hr_test.h"

#include "engine/stream.h"
#include "headrace/loop.h"
#include "headrace/part.h"

enum { COUNT = 64, HELD_MAX = 4096, RECORDS = 2, ITERATIONS = 3, SIZES = 16 };
#include "vectors.h"

typedef struct fixture {
  hr_device *device;
  hr_stream *stream, *capture;
  hr_part *inner;
  size_t temporary_bytes; /* of its temporary, of which it uses a vector */
  hr_buffer *x, *y;       /* without contents */
  hr_buffer *held[HELD_MAX];
  int held_count;
} fixture;

/* (x + 3) * x, with a temporary. */
static void capture_inner(fixture *f) {
  hr_scalar three = hr_scalar_f64(3);
  hr_buffer *sum;
  HR_ASSERT_OK(hr_buffer_create(f->device, f->temporary_bytes, &sum));
  hr_view x = view_of(f->x), y = view_of(f->y), between = view_of(sum);
  hr_view added[2] = {x, {.scalar = &three, .dtype = three.dtype}}, multiplied[2] = {between, x};
  HR_ASSERT_OK(hr_stream_record(f->capture, HR_OP_ADD, NULL, 2, added, 1, &between));
  HR_ASSERT_OK(hr_stream_record(f->capture, HR_OP_MUL, NULL, 2, multiplied, 1, &y));
  hr_buffer_release(sum);
  const hr_part_spec spec = {.param_count = 1, .params = &f->x, .result_count = 1, .results = &f->y};
  HR_ASSERT_OK(hr_part_create(f->capture, &spec, &f->inner));
}

static void open_fixture(fixture *f, size_t temporary_bytes) {
  f->held_count = 0, f->temporary_bytes = temporary_bytes;
  HR_ASSERT_OK(hr_device_open("cpu", &f->device));
  HR_ASSERT_OK(hr_stream_create(f->device, &f->stream));
  HR_ASSERT_OK(hr_capture_create(f->device, &f->capture));
  f->x = make_vector(f->device), f->y = make_vector(f->device);
  capture_inner(f);
}

static void close_fixture(fixture *f) {
  hr_part_release(f->inner);
  hr_buffer_release(f->x);
  hr_buffer_release(f->y);
  hr__buffers_release((size_t)f->held_count, f->held);
  hr_stream_release(f->capture);
  hr_stream_release(f->stream);
  hr_device_release(f->device);
}

/* Takes the process's free buffers of the temporary's size, so that the next one needs memory. */
static void hold_free_buffers(fixture *f) {
  hr_status status = HR_OK;
  hr__allocator_fail_after(0);
  while (status == HR_OK && f->held_count < HELD_MAX) {
    status = hr_buffer_create(f->device, f->temporary_bytes, &f->held[f->held_count]);
    f->held_count += status == HR_OK;
  }
  hr__allocator_fail_after(-1);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_RESOURCE_EXHAUSTED);
  hr_status_ignore(status);
}

static void expect(fixture *f, hr_buffer *buffer, float value) {
  float values[COUNT];
  hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, values));
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_NEAR(values[i], value, 0);
  }
}

static hr_buffer *make_ones(fixture *f) {
  float values[COUNT];
  hr_buffer *buffer = make_vector(f->device);
  hr_view view = view_of(buffer);
  for (int i = 0; i < COUNT; ++i) {
    values[i] = 1;
  }
  HR_ASSERT_OK(hr_stream_write(f->stream, &view, values));
  return buffer;
}

/* The part or the loop that a capture becomes. */
typedef struct outer {
  bool is_loop;
  hr_part *part;
  hr_loop *loop;
} outer;

static hr_status make_outer(const fixture *f, outer *o) {
  const hr_part_spec part = {.param_count = 1, .params = &f->x, .result_count = 1, .results = &f->y};
  const hr_loop_spec loop = {.carried_count = 1,
                             .param_count = 1,
                             .params = &f->x,
                             .result_count = 1,
                             .results = &f->y,
                             .count_max = ITERATIONS};
  return o->is_loop ? hr_loop_create(f->capture, &loop, &o->loop) : hr_part_create(f->capture, &part, &o->part);
}

/* The loop belongs to the record. */
static hr_status run_outer(const fixture *f, outer *o, hr_buffer *in, hr_buffer *out) {
  hr_view from = view_of(in), to = view_of(out);
  if (!o->is_loop) {
    return hr_part_run(f->stream, o->part, &in, &out, NULL);
  }
  const hr_function_spec spec = {.run = hr_loop_run, .arg = o->loop, .release = hr_loop_free};
  o->loop = NULL;
  return hr_function_record(f->stream, &spec, 1, &from, 1, &to);
}

static float result_of(const outer *o) {
  float x = 1;
  for (int i = 0; i < (o->is_loop ? ITERATIONS : 1); ++i) {
    x = (x + 3) * x;
  }
  return x;
}

static void check_outer(fixture *f, outer *o) {
  hr_buffer *in = make_ones(f), *out = make_vector(f->device);
  HR_ASSERT_OK(run_outer(f, o, in, out));
  expect(f, out, result_of(o));
  hr_buffer_release(in);
  hr_buffer_release(out);
}

/* True if the `n`th allocation of the capture of a run fails. */
static bool capture_without_memory(int64_t n, bool is_loop) {
  fixture f;
  outer o = {.is_loop = is_loop};
  open_fixture(&f, COUNT * sizeof(float) << n % SIZES); /* so that each size has few buffers */
  hold_free_buffers(&f);
  const hr_trace *pending = &f.capture->pending;
  hr__allocator_fail_after(n);
  hr_status status = hr_part_run(f.capture, f.inner, &f.x, &f.y, NULL);
  size_t recorded = status == HR_OK ? RECORDS : 0;
  HR_ASSERT_EQ(pending->records.count, recorded);
  HR_ASSERT_EQ(pending->buffers.count, recorded == 0 ? 0 : 3);
  status = status == HR_OK ? make_outer(&f, &o) : status;
  bool has_failed = hr__allocator_failures() > 0;
  hr__allocator_fail_after(-1);
  if (status != HR_OK) {
    HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_RESOURCE_EXHAUSTED);
    HR_ASSERT(pending->records.count == recorded || (is_loop && pending->records.count == 0));
    if (pending->records.count == 0) {
      HR_ASSERT_OK(hr_part_run(f.capture, f.inner, &f.x, &f.y, NULL));
    }
    HR_ASSERT_OK(make_outer(&f, &o));
  }
  hr_status_ignore(status);
  check_outer(&f, &o);
  hr_part_release(o.part);
  close_fixture(&f);
  return has_failed;
}

static int64_t capture_until_memory_lasts(bool is_loop) {
  int64_t n = 0;
  while (capture_without_memory(n, is_loop)) {
    HR_ASSERT(++n < 5000);
  }
  return n;
}

HR_TEST(a_run_in_a_capture_without_memory_changes_nothing) {
  HR_ASSERT(capture_until_memory_lasts(false) > 8);
}

HR_TEST(a_loop_without_memory_is_none) {
  HR_ASSERT(capture_until_memory_lasts(true) > 8);
}

/* True if the `n`th allocation of a loop's run fails. */
static bool run_without_memory(int64_t n) {
  fixture f;
  outer loops[2] = {{.is_loop = true}, {.is_loop = true}};
  open_fixture(&f, COUNT * sizeof(float));
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(hr_part_run(f.capture, f.inner, &f.x, &f.y, NULL));
    HR_ASSERT_OK(make_outer(&f, &loops[i]));
  }
  hr_buffer *in = make_ones(&f), *out = make_vector(f.device);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  hr__allocator_fail_after(n);
  hr_status status = run_outer(&f, &loops[0], in, out);
  status = status == HR_OK ? hr_stream_synchronize(f.stream) : status;
  bool has_failed = hr__allocator_failures() > 0;
  hr__allocator_fail_after(-1);
  if (status == HR_OK) {
    expect(&f, out, result_of(&loops[0]));
  } else {
    HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_RESOURCE_EXHAUSTED);
  }
  hr_status_ignore(status);
  expect(&f, in, 1);
  check_outer(&f, &loops[1]);
  hr_buffer_release(in);
  hr_buffer_release(out);
  close_fixture(&f);
  return has_failed;
}

HR_TEST(a_run_of_a_loop_without_memory_fails_alone) {
  int64_t n = 0;
  while (run_without_memory(n)) {
    HR_ASSERT(++n < 5000);
  }
  HR_ASSERT(n > 4);
}
