/* Interrupts: work in flight ends between two steps, as after a failure; older results are not lost. */
#include "hr_test.h"

#include "engine/stream.h"

enum { COUNT = 1 << 18, STEPS = 400 };
#include "vectors.h"

typedef struct fixture {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *old; /* of ones */
  atomic_int calls;
} fixture;

static hr_buffer *make(const fixture *f) {
  return make_vector(f->device);
}

static float read_last(const fixture *f, hr_buffer *buffer) {
  float *values = hr_malloc(COUNT * sizeof *values);
  hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, values));
  float value = values[COUNT - 1];
  hr_free(values);
  return value;
}

static void open_fixture(fixture *f) {
  HR_ASSERT_OK(hr_device_open("cpu", &f->device));
  HR_ASSERT_OK(hr_stream_create(f->device, &f->stream));
  hr_stream_set_mode(f->stream, HR_MODE_FUSE);
  f->old = make(f);
  fill(f->stream, f->old, 1);
  HR_ASSERT_OK(hr_stream_synchronize(f->stream));
}

static void close_fixture(fixture *f) {
  hr_buffer_release(f->old);
  hr_stream_release(f->stream);
  hr_device_release(f->device);
}

/* Running sums of running sums of `old`: a chain of steps. The first and the last are given to the caller. */
static void record_chain(const fixture *f, int steps, hr_buffer **out_first, hr_buffer **out_last) {
  const int64_t ints[1] = {0};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  hr_buffer *x = f->old;
  for (int i = 0; i < steps; ++i) {
    hr_buffer *y = make(f);
    hr_view in = view_of(x), out = view_of(y);
    HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_CUMSUM, &attrs, 1, &in, 1, &out));
    if (i == 0) {
      *out_first = y;
    } else if (i > 1) {
      hr_buffer_release(x);
    }
    x = y;
  }
  *out_last = x;
}

static bool want_at_the_third_call(void *arg) {
  fixture *f = arg;
  return atomic_fetch_add(&f->calls, 1) == 2;
}

/* True for the error of a program that ended between two steps. The third call may also come before the first step or
 * after the last. */
static bool ended_within_a_program(hr_status status) {
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_CANCELLED);
  bool within = strstr(hr_status_message(status), "interrupted after") != NULL;
  hr_status_free(status);
  return within;
}

HR_TEST(a_wait_that_is_interrupted_ends_between_two_steps_of_a_program) {
  fixture f = {0};
  open_fixture(&f);
  f.stream->long_bytes = 0;
  hr_stream_set_interrupt_check(f.stream, want_at_the_third_call, &f);
  hr_buffer *first = NULL, *last = NULL;
  bool found = false;
  for (int round = 0; round < 1000; ++round) { /* enough steps for this duration on this machine */
    record_chain(&f, STEPS, &first, &last);
    hr_status status = hr_stream_synchronize(f.stream);
    if (status != HR_OK && (found = ended_within_a_program(status))) {
      break;
    }
    if (status != HR_OK) {
      atomic_store(&f.calls, 0);
    }
    hr_buffer_release(first);
    hr_buffer_release(last);
  }
  HR_ASSERT(found);
  HR_ASSERT(!hr__buffer_is_invalid(first) && hr__buffer_is_invalid(last));
  HR_ASSERT_NEAR(read_last(&f, first), COUNT, 0);
  HR_ASSERT_NEAR(read_last(&f, f.old), 1, 0);
  float value;
  const int64_t one[1] = {1};
  hr_view view = view_of(last);
  view.dims = one;
  HR_ASSERT_STATUS(hr_stream_read(f.stream, &view, &value), HR_STATUS_CANCELLED);
  hr_buffer_release(first);
  hr_buffer_release(last);
  record_chain(&f, 1, &first, &last); /* the stream goes on */
  HR_ASSERT_NEAR(read_last(&f, last), COUNT, 0);
  hr_buffer_release(last);
  close_fixture(&f);
}

/* The host records faster than the device runs: the record that waits for a place in the queue is interrupted. */
HR_TEST(a_record_that_waits_for_the_device_is_interrupted) {
  fixture f = {0};
  open_fixture(&f);
  f.stream->long_bytes = 0;
  f.stream->policy.records_max = 4 * STEPS; /* waits that are longer than the time between two checks */
  hr_stream_set_interrupt_check(f.stream, want_at_the_third_call, &f);
  hr_buffer *first = NULL, *last = NULL;
  const int64_t ints[1] = {0};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  hr_status status = HR_OK;
  for (int i = 0; i < 1000 * STEPS && status == HR_OK; ++i) { /* more than the queue holds, on any machine */
    first = first != NULL ? first : make(&f);
    hr_view in = view_of(i == 0 ? f.old : first), out = view_of(first);
    status = hr_stream_record(f.stream, HR_OP_CUMSUM, &attrs, 1, &in, 1, &out);
  }
  HR_ASSERT_ERROR(status, HR_STATUS_CANCELLED, "interrupted");
  HR_ASSERT_NEAR(read_last(&f, f.old), 1, 0); /* reported once, and the stream goes on */
  record_chain(&f, 1, &last, &last);
  HR_ASSERT_NEAR(read_last(&f, last), COUNT, 0);
  hr_buffer_release(last);
  hr_buffer_release(first);
  close_fixture(&f);
}

/* Every job from number `next` on is interrupted before it begins. */
HR_TEST(work_that_was_handed_over_and_not_begun_does_not_begin) {
  fixture f = {0};
  open_fixture(&f);
  atomic_store(&f.stream->interrupted, atomic_load(&f.stream->handed) + 2);
  hr_buffer *x = make(&f), *y = make(&f);
  fill(f.stream, f.old, 5);
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  fill(f.stream, x, 6);
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  fill(f.stream, y, 7); /* after the interrupt, but before its report */
  HR_ASSERT_ERROR(hr_stream_synchronize(f.stream), HR_STATUS_CANCELLED, "interrupted before it began");
  HR_ASSERT_NEAR(read_last(&f, f.old), 1, 0);
  HR_ASSERT(hr__buffer_is_invalid(x) && hr__buffer_is_invalid(y));
  fill(f.stream, y, 8);
  HR_ASSERT_NEAR(read_last(&f, y), 8, 0);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

HR_TEST(an_interrupt_without_work_does_nothing) {
  fixture f = {0};
  open_fixture(&f);
  hr_stream_interrupt(f.stream);
  fill(f.stream, f.old, 3);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_NEAR(read_last(&f, f.old), 3, 0);
  close_fixture(&f);
}

static bool want_always(void *arg) {
  fixture *f = arg;
  atomic_fetch_add(&f->calls, 1);
  return true;
}

/* Short programs run on the waiting thread: no interrupt is polled, and they finish. */
HR_TEST(short_programs_finish_before_signals_are_checked) {
  fixture f = {0};
  open_fixture(&f);
  hr_stream_set_interrupt_check(f.stream, want_always, &f);
  fill(f.stream, f.old, 4);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_EQ(atomic_load(&f.calls), 0);
  HR_ASSERT_NEAR(read_last(&f, f.old), 4, 0);
  close_fixture(&f);
}
