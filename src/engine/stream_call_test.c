/* Functions of the host in a stream's work: hr_stream_call, hr_stream_mark, hr_buffer_status. */
#include "hr_test.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/dynlib.h"
#include "base/thread.h"
#include "engine/stream.h"
#include "headrace/mark.h"
#include "headrace/part.h"

enum { COUNT = 64, MANY = 300 };
#include "vectors.h"

typedef struct world {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *a, *b;
} world;

static world begin(const char *name) {
  world w;
  HR_ASSERT_OK(hr_device_open(name, &w.device));
  HR_ASSERT_OK(hr_stream_create(w.device, &w.stream));
  HR_ASSERT_OK(hr_buffer_create(w.device, COUNT * sizeof(float), &w.a));
  HR_ASSERT_OK(hr_buffer_create(w.device, COUNT * sizeof(float), &w.b));
  return w;
}

static void end(world *w) {
  hr_buffer_release(w->a);
  hr_buffer_release(w->b);
  hr_stream_release(w->stream);
  hr_device_release(w->device);
}

static hr_status try_add_one(hr_stream *stream, hr_buffer *from, hr_buffer *to) {
  const hr_scalar one = hr_scalar_f64(1);
  const hr_view in[] = {view_of(from), {.scalar = &one, .dtype = HR_DTYPE_F32}}, out = view_of(to);
  return hr_stream_record(stream, HR_OP_ADD, &(hr_attrs){0}, 2, in, 1, &out);
}

static void add_one(hr_stream *stream, hr_buffer *from, hr_buffer *to) {
  HR_ASSERT_OK(try_add_one(stream, from, to));
}

static void expect(hr_stream *stream, hr_buffer *buffer, float value) {
  float values[COUNT];
  const hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_stream_read(stream, &view, values));
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_EQ(values[i], value);
  }
}

/* ---- calls ---- */

typedef struct tally {
  atomic_int calls, releases, opened, begun;
  hr_status_code code; /* what the function returns */
  int blocks;          /* it waits until `opened` */
} tally;

static hr_status double_all(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  tally *t = arg;
  atomic_fetch_add(&t->begun, 1);
  while (t->blocks && atomic_load(&t->opened) == 0) {
    usleep(100);
  }
  atomic_fetch_add(&t->calls, 1);
  for (int i = 0; i < input_count && i < output_count; ++i) {
    for (int k = 0; k < COUNT; ++k) {
      ((float *)outputs[i])[k] = 2 * ((const float *)inputs[i])[k];
    }
  }
  return t->code == HR_STATUS_OK ? HR_OK : hr_status_make(t->code, "the peer has closed the connection");
}

static void count_release(void *arg) {
  atomic_fetch_add(&((tally *)arg)->releases, 1);
}

static hr_status call(hr_stream *stream, tally *t, hr_buffer *from, hr_buffer *to) {
  return hr_stream_call(stream, double_all, t, count_release, 1, &from, 1, &to);
}

HR_TEST(a_call_runs_between_the_work_before_and_after) {
  world w = begin("cpu");
  tally t = {0};
  fill(w.stream, w.a, 3);
  HR_ASSERT_OK(call(w.stream, &t, w.a, w.b));
  add_one(w.stream, w.b, w.a);
  HR_ASSERT_OK(call(w.stream, &t, w.a, w.a)); /* in place */
  add_one(w.stream, w.a, w.a);
  expect(w.stream, w.a, 15);
  expect(w.stream, w.b, 6);
  HR_ASSERT_EQ(atomic_load(&t.calls), 2);
  HR_ASSERT_EQ(atomic_load(&t.releases), 2);
  end(&w);
}

HR_TEST(a_call_without_buffers_or_with_empty_ones_runs) {
  world w = begin("cpu");
  tally t = {0};
  hr_buffer *empty;
  HR_ASSERT_OK(hr_buffer_create(w.device, 0, &empty));
  HR_ASSERT_OK(hr_stream_call(w.stream, double_all, &t, NULL, 0, NULL, 0, NULL));
  HR_ASSERT_OK(hr_stream_call(w.stream, double_all, &t, NULL, 1, &empty, 0, NULL));
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  HR_ASSERT_EQ(atomic_load(&t.calls), 2);
  HR_ASSERT_EQ(atomic_load(&t.releases), 0);
  hr_buffer_release(empty);
  end(&w);
}

/* The function blocks until the host has recorded much more: a host that waited would hang. */
HR_TEST(the_recording_thread_does_not_wait_for_a_call) {
  world w = begin("cpu");
  tally gate = {.blocks = 1}, t = {0};
  fill(w.stream, w.a, 1);
  HR_ASSERT_OK(call(w.stream, &gate, w.a, w.b));
  for (int i = 0; i < 20; ++i) {
    add_one(w.stream, w.b, w.b);
    HR_ASSERT_OK(call(w.stream, &t, w.b, w.a));
  }
  HR_ASSERT_EQ(atomic_load(&gate.calls), 0);
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.b, NULL), HR_BUFFER_PENDING);
  atomic_store(&gate.opened, 1);
  expect(w.stream, w.a, 44);
  HR_ASSERT_EQ(atomic_load(&t.calls), 20);
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.b, NULL), HR_BUFFER_DONE);
  end(&w);
}

HR_TEST(the_buffers_of_a_call_may_be_released_at_once) {
  world w = begin("cpu");
  tally t = {.blocks = 1};
  hr_buffer *input;
  HR_ASSERT_OK(hr_buffer_create(w.device, COUNT * sizeof(float), &input));
  fill(w.stream, input, 5);
  HR_ASSERT_OK(call(w.stream, &t, input, w.b));
  hr_buffer_release(input);
  HR_ASSERT_OK(hr_buffer_create(w.device, COUNT * sizeof(float), &input));
  fill(w.stream, input, 7);
  HR_ASSERT_OK(hr_stream_commit(w.stream));
  atomic_store(&t.opened, 1);
  expect(w.stream, w.b, 10);
  hr_buffer_release(input);
  end(&w);
}

HR_TEST(the_failure_of_a_call_is_that_of_the_work) {
  world w = begin("cpu");
  tally bad = {.code = HR_STATUS_UNAVAILABLE}, t = {0};
  fill(w.stream, w.a, 2);
  HR_ASSERT_OK(call(w.stream, &bad, w.a, w.b));
  HR_ASSERT_OK(call(w.stream, &t, w.a, w.a)); /* dropped: the failure is not reported yet */
  HR_ASSERT_ERROR(hr_stream_synchronize(w.stream), HR_STATUS_UNAVAILABLE, "the peer has closed");
  HR_ASSERT_EQ(atomic_load(&t.calls), 0);
  HR_ASSERT_EQ(atomic_load(&t.releases), 1);
  HR_ASSERT_EQ(atomic_load(&bad.releases), 1);
  expect(w.stream, w.a, 2);
  hr_status failure;
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.b, &failure), HR_BUFFER_FAILED);
  HR_ASSERT_ERROR(failure, HR_STATUS_UNAVAILABLE, "the peer has closed");
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.a, &failure), HR_BUFFER_DONE);
  HR_ASSERT_OK(failure);
  HR_ASSERT_ERROR(try_add_one(w.stream, w.b, w.a), HR_STATUS_UNAVAILABLE, "the peer has closed");
  HR_ASSERT_ERROR(call(w.stream, &t, w.b, w.a), HR_STATUS_UNAVAILABLE, "the peer has closed");
  HR_ASSERT_OK(call(w.stream, &t, w.a, w.b)); /* b is written again */
  expect(w.stream, w.b, 4);
  end(&w);
}

HR_TEST(a_call_that_fails_in_place_invalidates_older_contents) {
  world w = begin("cpu");
  tally bad = {.code = HR_STATUS_UNAVAILABLE};
  fill(w.stream, w.a, 2);
  expect(w.stream, w.a, 2);
  HR_ASSERT_OK(call(w.stream, &bad, w.a, w.a));
  HR_ASSERT_ERROR(hr_stream_synchronize(w.stream), HR_STATUS_UNAVAILABLE, "the peer has closed");
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.a, NULL), HR_BUFFER_FAILED);
  end(&w);
}

HR_TEST(a_call_is_dropped_after_an_interrupt) {
  world w = begin("cpu");
  tally gate = {.blocks = 1}, t = {0};
  fill(w.stream, w.a, 2);
  HR_ASSERT_OK(call(w.stream, &gate, w.a, w.b));
  HR_ASSERT_OK(call(w.stream, &t, w.a, w.a));
  while (atomic_load(&gate.begun) == 0) {
    usleep(100);
  }
  hr_stream_interrupt(w.stream); /* not of the call that has begun */
  atomic_store(&gate.opened, 1);
  HR_ASSERT_ERROR(hr_stream_synchronize(w.stream), HR_STATUS_CANCELLED, "interrupted");
  HR_ASSERT_EQ(atomic_load(&t.calls), 0);
  HR_ASSERT_EQ(atomic_load(&t.releases), 1);
  HR_ASSERT_OK(call(w.stream, &t, w.b, w.b));
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  HR_ASSERT_EQ(atomic_load(&t.calls), 1);
  end(&w);
}

HR_TEST(wrong_calls_are_refused) {
  world w = begin("cpu");
  tally t = {0};
  hr_device *other;
  hr_buffer *foreign, *none = NULL;
  hr_stream *capture;
  HR_ASSERT_OK(hr_device_open("null", &other));
  HR_ASSERT_OK(hr_buffer_create(other, 16, &foreign));
  HR_ASSERT_OK(hr_capture_create(w.device, &capture));
  HR_ASSERT_ERROR(hr_stream_call(w.stream, NULL, &t, NULL, 0, NULL, 0, NULL), HR_STATUS_INVALID_ARGUMENT, "NULL");
  HR_ASSERT_ERROR(call(w.stream, &t, foreign, w.a), HR_STATUS_INVALID_ARGUMENT,
                  "input 0 is a buffer of device \"null\"");
  HR_ASSERT_ERROR(call(w.stream, &t, w.a, none), HR_STATUS_INVALID_ARGUMENT, "output 0 is NULL");
  HR_ASSERT_ERROR(hr_stream_call(w.stream, double_all, &t, NULL, -1, &w.a, 0, NULL), HR_STATUS_INVALID_ARGUMENT,
                  "-1 inputs");
  HR_ASSERT_ERROR(hr_stream_call(w.stream, double_all, &t, NULL, 1, NULL, 0, NULL), HR_STATUS_INVALID_ARGUMENT,
                  "1 inputs at NULL");
  HR_ASSERT_ERROR(call(capture, &t, w.a, w.b), HR_STATUS_FAILED_PRECONDITION, "capture");
  HR_ASSERT_ERROR(hr_stream_mark(capture, NULL, NULL), HR_STATUS_INVALID_ARGUMENT, "NULL");
  hr_stream_release(capture);
  hr_buffer_release(foreign);
  hr_device_release(other);
  HR_ASSERT_EQ(atomic_load(&t.calls), 0);
  HR_ASSERT_EQ(atomic_load(&t.releases), 0);
  end(&w);
}

HR_TEST(the_modes_eager_and_strict_have_calls) {
  for (hr_mode mode = HR_MODE_EAGER; mode <= HR_MODE_STRICT; ++mode) {
    world w = begin("cpu");
    tally t = {0}, bad = {.code = HR_STATUS_UNAVAILABLE};
    hr_stream_set_mode(w.stream, mode);
    fill(w.stream, w.a, 4);
    HR_ASSERT_OK(call(w.stream, &t, w.a, w.b));
    HR_ASSERT(mode == HR_MODE_EAGER || atomic_load(&t.calls) == 1);
    add_one(w.stream, w.b, w.b);
    expect(w.stream, w.b, 9);
    hr_status status = call(w.stream, &bad, w.a, w.b);
    status = mode == HR_MODE_EAGER && status == HR_OK ? hr_stream_synchronize(w.stream) : status;
    HR_ASSERT_ERROR(status, HR_STATUS_UNAVAILABLE, "the peer has closed");
    end(&w);
  }
}

/* ---- marks with functions ---- */

typedef struct journal {
  atomic_int count;
  hr_status_code codes[MANY];
  char message[64];
} journal;

static void append(void *arg, hr_status status) {
  journal *l = arg;
  int at = atomic_load(&l->count);
  l->codes[at] = hr_status_code_of(status);
  snprintf(l->message, sizeof l->message, "%s", hr_status_message(status));
  atomic_store(&l->count, at + 1);
}

static void wait_for_count(journal *l, int count) {
  for (int i = 0; i < 20000 && atomic_load(&l->count) < count; ++i) {
    usleep(500);
  }
  HR_ASSERT_EQ(atomic_load(&l->count), count);
}

HR_TEST(a_mark_calls_its_function_without_a_wait) {
  world w = begin("cpu");
  journal l = {0};
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l)); /* of a stream without work */
  wait_for_count(&l, 1);
  fill(w.stream, w.a, 1);
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  wait_for_count(&l, 2);
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.a, NULL), HR_BUFFER_DONE);
  HR_ASSERT_EQ(l.codes[0], HR_STATUS_OK);
  HR_ASSERT_EQ(l.codes[1], HR_STATUS_OK);
  end(&w);
}

HR_TEST(a_mark_gets_the_failure_of_the_work_before_it) {
  world w = begin("cpu");
  journal l = {0};
  tally bad = {.code = HR_STATUS_DATA_LOSS};
  fill(w.stream, w.a, 1);
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  HR_ASSERT_OK(call(w.stream, &bad, w.a, w.b));
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  HR_ASSERT_ERROR(hr_stream_synchronize(w.stream), HR_STATUS_DATA_LOSS, "the peer has closed");
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l)); /* it was reported */
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  HR_ASSERT_EQ(atomic_load(&l.count), 4);
  HR_ASSERT_EQ(l.codes[0], HR_STATUS_OK);
  HR_ASSERT_EQ(l.codes[1], HR_STATUS_DATA_LOSS);
  HR_ASSERT_EQ(l.codes[2], HR_STATUS_DATA_LOSS);
  HR_ASSERT_EQ(l.codes[3], HR_STATUS_OK);
  end(&w);
}

/* The commit in front of the mark fails: its program has no memory. */
HR_TEST(a_mark_gets_the_failure_of_its_own_commit) {
  world w = begin("cpu");
  journal l = {0};
  enum { LARGE = 64 << 20 };
  hr_buffer *large;
  const int64_t large_dims[] = {LARGE / 4};
  const hr_scalar one = hr_scalar_f64(1);
  HR_ASSERT_OK(hr_buffer_create(w.device, LARGE, &large));
  const hr_view in = {.scalar = &one, .dtype = HR_DTYPE_F32},
                out = {
                    .buffer = large, .dtype = HR_DTYPE_F32, .rank = 1, .dims = large_dims, .strides = vector_strides};
  hr_device_memory_limit(w.device, LARGE / 2);
  HR_ASSERT_OK(hr_stream_record(w.stream, HR_OP_COPY, &(hr_attrs){0}, 1, &in, 1, &out));
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  wait_for_count(&l, 1);
  HR_ASSERT_EQ(l.codes[0], HR_STATUS_RESOURCE_EXHAUSTED);
  HR_ASSERT_EQ(hr_buffer_status(w.stream, large, NULL), HR_BUFFER_FAILED);
  HR_ASSERT_ERROR(hr_stream_synchronize(w.stream), HR_STATUS_RESOURCE_EXHAUSTED, "");
  hr_device_memory_limit(w.device, 0);
  hr_buffer_release(large);
  end(&w);
}

HR_TEST(many_marks_and_calls_keep_their_order) {
  world w = begin("cpu");
  journal l = {0};
  tally gate = {.blocks = 1};
  hr_buffer *one = w.a;
  fill(w.stream, w.a, 0);
  HR_ASSERT_OK(hr_stream_call(w.stream, double_all, &gate, NULL, 1, &one, 1, &one));
  for (int i = 0; i < MANY - 1; ++i) { /* more than the queue's limit: marks don't count */
    HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  }
  HR_ASSERT_EQ(atomic_load(&l.count), 0);
  atomic_store(&gate.opened, 1);
  for (int i = 0; i < MANY; ++i) {
    add_one(w.stream, w.a, w.a);
    HR_ASSERT_OK(hr_stream_call(w.stream, double_all, &gate, NULL, 0, NULL, 0, NULL));
  }
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  expect(w.stream, w.a, MANY);
  HR_ASSERT_EQ(atomic_load(&l.count), MANY);
  HR_ASSERT_EQ(atomic_load(&gate.calls), MANY + 1);
  end(&w);
}

/* Hundreds of results that become ready at once wait for the device once. */
HR_TEST(marks_at_the_same_place_are_one_note) {
  world w = begin("cpu");
  journal l = {0};
  tally gate = {.blocks = 1};
  fill(w.stream, w.a, 1);
  HR_ASSERT_OK(call(w.stream, &gate, w.a, w.a));
  const atomic_uint_least64_t *pushed = &w.stream->lane->queue.pushed;
  uint64_t before = atomic_load(pushed);
  for (int i = 0; i < 10; ++i) {
    HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  }
  HR_ASSERT_EQ(atomic_load(pushed), before + 1);
  add_one(w.stream, w.a, w.b);
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l)); /* after other work */
  uint64_t after = atomic_load(pushed);
  HR_ASSERT(after > before + 2);
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  HR_ASSERT_EQ(atomic_load(pushed), after);
  HR_ASSERT_EQ(atomic_load(&l.count), 0);
  atomic_store(&gate.opened, 1);
  wait_for_count(&l, 12);
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l)); /* after the last one was reached */
  wait_for_count(&l, 13);
  end(&w);
}

typedef struct racer {
  world *w;
  journal l;
  tally t;
} racer;

static void race(void *arg) {
  racer *r = arg;
  hr_buffer *mine;
  hr_status_ignore(hr_buffer_create(r->w->device, COUNT * sizeof(float), &mine));
  for (int i = 0; i < 100; ++i) {
    const hr_scalar one = hr_scalar_f64(1);
    const hr_view in = {.scalar = &one, .dtype = HR_DTYPE_F32}, out = view_of(mine);
    hr_status_ignore(hr_stream_record(r->w->stream, HR_OP_COPY, &(hr_attrs){0}, 1, &in, 1, &out));
    hr_status_ignore(call(r->w->stream, &r->t, mine, mine));
    hr_status_ignore(hr_stream_mark(r->w->stream, append, &r->l));
    (void)hr_buffer_status(r->w->stream, mine, NULL);
  }
  hr_buffer_release(mine);
}

HR_TEST(threads_may_mark_and_call_at_once) {
  world w = begin("cpu");
  static racer racers[4];
  hr_thread threads[4];
  for (int i = 0; i < 4; ++i) {
    racers[i] = (racer){.w = &w};
    HR_ASSERT_OK(hr_thread_start("racer", race, &racers[i], &threads[i]));
  }
  for (int i = 0; i < 4; ++i) {
    hr_thread_join(&threads[i]);
  }
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  for (int i = 0; i < 4; ++i) {
    HR_ASSERT_EQ(atomic_load(&racers[i].l.count), 100);
    HR_ASSERT_EQ(atomic_load(&racers[i].t.calls), 100);
    HR_ASSERT_EQ(atomic_load(&racers[i].t.releases), 100);
  }
  end(&w);
}

/* Pending functions are called in the parent alone; the child gets an error instead of a wait for ever. */
HR_TEST(a_forked_child_calls_nothing) {
  world w = begin("cpu");
  journal l = {0};
  tally gate = {.blocks = 1};
  HR_ASSERT_OK(call(w.stream, &gate, w.a, w.b));
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  pid_t child = fork();
  if (child == 0) {
    hr_status mark = hr_stream_mark(w.stream, append, &l), called = call(w.stream, &gate, w.a, w.b);
    hr_mark *place;
    hr_status made = hr_mark_create(w.stream, &place);
    bool is_right = hr_status_code_of(mark) == HR_STATUS_FAILED_PRECONDITION &&
                    hr_status_code_of(called) == HR_STATUS_FAILED_PRECONDITION &&
                    hr_status_code_of(made) == HR_STATUS_FAILED_PRECONDITION && atomic_load(&l.count) == 0;
    _exit(is_right ? 0 : 1);
  }
  int outcome = -1;
  HR_ASSERT(waitpid(child, &outcome, 0) == child);
  HR_ASSERT_EQ(outcome, 0);
  atomic_store(&gate.opened, 1);
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  HR_ASSERT_EQ(atomic_load(&l.count), 1);
  end(&w);
}

HR_TEST(pending_functions_are_called_before_a_stream_goes) {
  world w = begin("cpu");
  journal l = {0};
  tally t = {0};
  fill(w.stream, w.a, 1);
  HR_ASSERT_OK(call(w.stream, &t, w.a, w.b));
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  end(&w);
  HR_ASSERT_EQ(atomic_load(&l.count), 1);
  HR_ASSERT_EQ(atomic_load(&t.releases), 1);
}

/* ---- states of buffers ---- */

HR_TEST(a_buffer_is_pending_until_its_work_has_ended) {
  world w = begin("cpu");
  tally gate = {.blocks = 1};
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.a, NULL), HR_BUFFER_DONE); /* nothing was recorded */
  fill(w.stream, w.a, 1);
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.a, NULL), HR_BUFFER_PENDING);
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.a, NULL), HR_BUFFER_DONE);
  HR_ASSERT_OK(call(w.stream, &gate, w.a, w.b));
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.b, NULL), HR_BUFFER_PENDING);
  atomic_store(&gate.opened, 1);
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.b, NULL), HR_BUFFER_DONE);
  end(&w);
}

/* ---- a device beside the host ---- */

typedef struct gpu_copies {
  hr_dynlib library;
  int (*to_host)(void *to, uint64_t from, size_t bytes), (*to_device)(uint64_t to, const void *from, size_t bytes);
} gpu_copies;

static hr_status fail(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  (void)input_count, (void)inputs, (void)output_count, (void)outputs;
  return hr_status_make(((tally *)arg)->code, "the peer has closed the connection");
}

/* Copies through the host, by the vendor's library: the device is current. */
static hr_status double_on_gpu(void *arg, int input_count, void *const *inputs, int output_count,
                               void *const *outputs) {
  const gpu_copies *copies = arg;
  float values[COUNT];
  int error = copies->to_host(values, (uint64_t)(uintptr_t)inputs[0], sizeof values);
  for (int i = 0; i < COUNT; ++i) {
    values[i] *= 2;
  }
  error = error == 0 ? copies->to_device((uint64_t)(uintptr_t)outputs[0], values, sizeof values) : error;
  return error == 0 && input_count == 1 && output_count == 1 ? HR_OK
                                                             : hr_status_make(HR_STATUS_INTERNAL, "error %d", error);
}

HR_TEST(a_device_beside_the_host_has_calls_and_marks) {
  int count = 0;
  hr_status_ignore(hr_device_count("cuda", &count));
  if (count == 0) {
    HR_SKIP("there is no such device");
  }
  gpu_copies copies;
  HR_ASSERT_OK(hr_dynlib_open("libcuda.so.1", &copies.library));
  HR_ASSERT_OK(hr_dynlib_symbol(&copies.library, "cuMemcpyDtoH_v2", (void **)&copies.to_host));
  HR_ASSERT_OK(hr_dynlib_symbol(&copies.library, "cuMemcpyHtoD_v2", (void **)&copies.to_device));
  world w = begin("cuda");
  journal l = {0};
  fill(w.stream, w.a, 3);
  for (int i = 0; i < 10; ++i) {
    HR_ASSERT_OK(hr_stream_call(w.stream, double_on_gpu, &copies, NULL, 1, &w.a, 1, &w.b));
    add_one(w.stream, w.b, w.a);
    HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  }
  expect(w.stream, w.a, 4 * 1024 - 1);
  HR_ASSERT_EQ(atomic_load(&l.count), 10);
  tally bad = {.code = HR_STATUS_UNAVAILABLE};
  HR_ASSERT_OK(hr_stream_call(w.stream, fail, &bad, NULL, 1, &w.a, 1, &w.b));
  HR_ASSERT_OK(hr_stream_mark(w.stream, append, &l));
  HR_ASSERT_ERROR(hr_stream_synchronize(w.stream), HR_STATUS_UNAVAILABLE, "the peer has closed");
  HR_ASSERT_EQ(l.codes[10], HR_STATUS_UNAVAILABLE);
  HR_ASSERT_EQ(hr_buffer_status(w.stream, w.b, NULL), HR_BUFFER_FAILED);
  expect(w.stream, w.a, 4 * 1024 - 1);
  end(&w);
  hr_dynlib_close(&copies.library);
}
