/* Several streams of one device: the results are those of the order in which the program recorded. */
#include "hr_test.h"

#include "base/thread.h"
#include "engine/stream.h"
#include "headrace/mark.h"
#include "headrace/part.h"

enum { COUNT = 24 };
#include "vectors.h"

typedef struct fixture {
  hr_device *device;
  hr_stream *a, *b;
} fixture;

static fixture open_fixture(const char *name) {
  fixture f;
  HR_ASSERT_OK(hr_device_open(name, &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.a));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.b));
  hr_stream_set_mode(f.a, HR_MODE_FUSE);
  hr_stream_set_mode(f.b, HR_MODE_FUSE);
  return f;
}

static void close_fixture(fixture *f) {
  hr_stream_release(f->a);
  hr_stream_release(f->b);
  HR_ASSERT_EQ(atomic_load(&f->device->stream_count), 0);
  hr_device_release(f->device);
}

static hr_buffer *make(const fixture *f) {
  return make_vector(f->device);
}

static size_t pending(hr_stream *stream) {
  hr_mutex_lock(&stream->mutex);
  size_t count = stream->pending.records.count;
  hr_mutex_unlock(&stream->mutex);
  return count;
}

HR_TEST(a_pending_write_is_read_in_another_stream) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make(&f), *y = make(&f);
  fill(f.a, x, 3);
  record(f.b, HR_OP_MUL, x, 2, y);
  HR_ASSERT_EQ(pending(f.a), 0);
  HR_ASSERT_EQ(pending(f.b), 1);
  HR_ASSERT_NEAR(read_first(f.b, y), 6, 0);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

HR_TEST(a_pending_read_comes_before_a_write_in_another_stream) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make(&f), *y = make(&f);
  fill(f.a, x, 3);
  HR_ASSERT_OK(hr_stream_synchronize(f.a));
  record(f.a, HR_OP_MUL, x, 2, y);
  fill(f.b, x, 10);
  HR_ASSERT_NEAR(read_first(f.b, x), 10, 0);
  HR_ASSERT_NEAR(read_first(f.a, y), 6, 0);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

HR_TEST(streams_that_read_the_same_buffer_stay_pending) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make(&f), *y[4] = {make(&f), make(&f), make(&f), make(&f)};
  fill(f.a, x, 3);
  for (int i = 0; i < 4; ++i) {
    record(i % 2 == 0 ? f.b : f.a, HR_OP_MUL, x, i + 1, y[i]);
  }
  HR_ASSERT_EQ(pending(f.a), 2);
  HR_ASSERT_EQ(pending(f.b), 2);
  record(f.a, HR_OP_ADD, x, 1, x); /* now the other one's reads are in the way */
  HR_ASSERT_EQ(pending(f.a), 3);
  HR_ASSERT_EQ(pending(f.b), 0);
  for (int i = 0; i < 4; ++i) {
    HR_ASSERT_NEAR(read_first(f.a, y[i]), 3 * (i + 1), 0);
    hr_buffer_release(y[i]);
  }
  HR_ASSERT_NEAR(read_first(f.b, x), 4, 0);
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(a_ping_pong_of_updates_has_the_recorded_order) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make(&f);
  fill(f.a, x, 1);
  double expected = 1;
  for (int i = 0; i < 12; ++i) {
    record(i % 3 == 0 ? f.a : f.b, i % 2 == 0 ? HR_OP_ADD : HR_OP_MUL, x, 2, x);
    expected = i % 2 == 0 ? expected + 2 : expected * 2;
  }
  HR_ASSERT_NEAR(read_first(f.a, x), expected, 0);
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(writes_before_the_second_stream_exists_are_seen) {
  fixture f;
  HR_ASSERT_OK(hr_device_open("cpu", &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.a));
  hr_stream_set_mode(f.a, HR_MODE_FUSE);
  hr_buffer *x = make(&f);
  fill(f.a, x, 5);
  HR_ASSERT_OK(hr_stream_create(f.device, &f.b));
  HR_ASSERT_NEAR(read_first(f.b, x), 5, 0);
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(host_copies_follow_the_other_stream) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make(&f), *y = make(&f);
  float values[COUNT] = {7};
  hr_view view = view_of(x);
  fill(f.a, x, 1);
  record(f.a, HR_OP_ADD, x, 1, y);
  HR_ASSERT_OK(hr_stream_write(f.b, &view, values)); /* after that read */
  HR_ASSERT_NEAR(read_first(f.a, y), 2, 0);
  HR_ASSERT_NEAR(read_first(f.a, x), 7, 0);
  fill(f.a, x, 4);
  void *address;
  HR_ASSERT_OK(hr_stream_address(f.b, x, &address));
  HR_ASSERT_NEAR(*(float *)address, 4, 0);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

static hr_status double_it(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  (void)arg, (void)input_count, (void)output_count;
  for (int i = 0; i < COUNT; ++i) {
    ((float *)outputs[0])[i] = 2 * ((const float *)inputs[0])[i];
  }
  return HR_OK;
}

HR_TEST(a_call_follows_the_other_stream) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make(&f), *y = make(&f);
  fill(f.a, x, 3);
  HR_ASSERT_OK(hr_stream_call(f.b, double_it, NULL, NULL, 1, &x, 1, &y));
  record(f.a, HR_OP_ADD, y, 1, x);
  HR_ASSERT_NEAR(read_first(f.a, x), 7, 0);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

HR_TEST(a_part_follows_the_other_stream) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make(&f), *y = make(&f), *z = make(&f);
  hr_stream *capture;
  hr_part *part;
  fill(f.a, x, 3);
  HR_ASSERT_OK(hr_capture_create(f.device, &capture));
  record(capture, HR_OP_ADD, x, 1, y);
  hr_part_spec spec = {.param_count = 1, .result_count = 1, .params = &x, .results = &y};
  HR_ASSERT_OK(hr_part_create(capture, &spec, &part));
  HR_ASSERT_OK(hr_part_run(f.b, part, &x, &y, NULL)); /* x is pending in a, though the capture saw it last */
  HR_ASSERT_EQ(pending(f.a), 0);
  record(f.a, HR_OP_MUL, y, 2, z);
  HR_ASSERT_EQ(pending(f.b), 0);
  HR_ASSERT_NEAR(read_first(f.a, z), 8, 0);
  hr_part_release(part);
  hr_stream_release(capture);
  hr_buffer_release(x);
  hr_buffer_release(y);
  hr_buffer_release(z);
  close_fixture(&f);
}

HR_TEST(waiting_for_a_stream_commits_it) {
  fixture f = open_fixture("cpu");
  hr_device *null;
  hr_stream *far;
  hr_buffer *x = make(&f);
  fill(f.a, x, 3);
  HR_ASSERT_OK(hr_stream_wait_for(f.a, f.a));
  HR_ASSERT_EQ(pending(f.a), 1);
  HR_ASSERT_OK(hr_stream_wait_for(f.b, f.a));
  HR_ASSERT_EQ(pending(f.a), 0);
  HR_ASSERT_OK(hr_device_open("null", &null));
  HR_ASSERT_OK(hr_stream_create(null, &far));
  HR_ASSERT_ERROR(hr_stream_wait_for(far, f.a), HR_STATUS_INVALID_ARGUMENT, "\"null\" can't wait for one of \"cpu\"");
  HR_ASSERT_ERROR(hr_stream_wait_for(NULL, f.a), HR_STATUS_INVALID_ARGUMENT, "NULL argument");
  hr_stream_release(far);
  hr_device_release(null);
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(a_buffer_pending_in_any_stream_is_pending) {
  fixture f = open_fixture("cpu");
  hr_buffer *x = make(&f);
  fill(f.a, x, 3);
  HR_ASSERT_EQ(hr_buffer_status(f.b, x, NULL), HR_BUFFER_PENDING);
  HR_ASSERT_OK(hr_stream_synchronize(f.a));
  HR_ASSERT_EQ(hr_buffer_status(f.b, x, NULL), HR_BUFFER_DONE);
  hr_buffer_release(x);
  close_fixture(&f);
}

static hr_status refuse(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  (void)arg, (void)input_count, (void)inputs, (void)output_count, (void)outputs;
  return hr_status_make(HR_STATUS_ABORTED, "refused");
}

HR_TEST(a_failure_reaches_the_other_stream_by_its_buffers_alone) {
  fixture f = open_fixture("cpu");
  hr_buffer *bad = make(&f), *good = make(&f), *y = make(&f);
  HR_ASSERT_OK(hr_stream_call(f.a, refuse, NULL, NULL, 0, NULL, 1, &bad));
  fill(f.b, good, 2);
  record(f.b, HR_OP_ADD, good, 1, y);
  HR_ASSERT_NEAR(read_first(f.b, y), 3, 0);
  HR_ASSERT_ERROR(hr_stream_synchronize(f.a), HR_STATUS_ABORTED, "refused");
  HR_ASSERT_ERROR(try_record(f.b, HR_OP_ADD, bad, 1, y), HR_STATUS_ABORTED, "refused");
  HR_ASSERT_NEAR(read_first(f.b, y), 3, 0);
  HR_ASSERT_NEAR(read_first(f.a, good), 2, 0);
  hr_buffer_release(bad);
  hr_buffer_release(good);
  hr_buffer_release(y);
  close_fixture(&f);
}

/* ---- threads ---- */

enum { ROUNDS = 400 };

typedef struct worker {
  fixture f;
  hr_stream *stream;
  hr_buffer *shared, *sum;
  hr_status status;
} worker;

static void add_shared(void *arg) {
  worker *w = arg;
  hr_view inputs[2] = {view_of(w->sum), view_of(w->shared)}, output = view_of(w->sum);
  for (int i = 0; i < ROUNDS && w->status == HR_OK; ++i) {
    w->status = hr_stream_record(w->stream, HR_OP_ADD, NULL, 2, inputs, 1, &output);
    if (i % 90 == 13 && w->status == HR_OK) {
      w->status = hr_stream_wait_for(w->stream, w->stream == w->f.a ? w->f.b : w->f.a);
    }
  }
}

HR_TEST(threads_with_a_stream_each_read_what_a_third_stream_wrote) {
  fixture f = open_fixture("cpu");
  hr_stream *third;
  hr_thread threads[2];
  HR_ASSERT_OK(hr_stream_create(f.device, &third));
  hr_stream_set_mode(third, HR_MODE_FUSE);
  hr_buffer *shared = make(&f);
  fill(third, shared, 2);
  worker workers[2] = {{f, f.a, shared, make(&f), HR_OK}, {f, f.b, shared, make(&f), HR_OK}};
  for (int i = 0; i < 2; ++i) {
    fill(third, workers[i].sum, i);
    HR_ASSERT_OK(hr_thread_start("worker", add_shared, &workers[i], &threads[i]));
  }
  for (int i = 0; i < 2; ++i) {
    hr_thread_join(&threads[i]);
    HR_ASSERT_OK(workers[i].status);
    HR_ASSERT_NEAR(read_first(third, workers[i].sum), 2 * ROUNDS + i, 0);
    hr_buffer_release(workers[i].sum);
  }
  hr_buffer_release(shared);
  hr_stream_release(third);
  close_fixture(&f);
}
