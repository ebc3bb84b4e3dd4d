/* Streams of one device whose work overlaps: each runs in its own lane, and only memory that they share orders them. */
#include "cpu_stand_in.h"

#include "base/thread.h"
#include "engine/stream.h"
#include "headrace/mark.h"
#include "random_streams.h"

enum { COUNT = 24, LONG_MS = 50 };
#include "vectors.h"

static const int64_t NS_PER_MS = 1000000;

/* A function of the host that waits until the test opens it. */
typedef struct gate {
  atomic_bool is_open, is_reached;
} gate;

typedef struct fixture {
  hr_device *device;
  hr_stream *a, *b;
  gate gate;
} fixture;

static void open_fixture(fixture *f) {
  *f = (fixture){0};
  HR_ASSERT_OK(hr_device_open("cpu", &f->device));
  HR_ASSERT_OK(hr_stream_create(f->device, &f->a));
  HR_ASSERT_OK(hr_stream_create(f->device, &f->b));
  hr_stream_set_mode(f->a, HR_MODE_FUSE);
  hr_stream_set_mode(f->b, HR_MODE_FUSE);
  HR_ASSERT_EQ(f->a->lane->number, 0);
  HR_ASSERT_EQ(f->b->lane->number, 1);
}

static void close_fixture(fixture *f) {
  hr_stream_release(f->a);
  hr_stream_release(f->b);
  hr_device_release(f->device);
}

static hr_buffer *make(const fixture *f) {
  return make_vector(f->device);
}

static void sleep_ms(int ms) {
  for (int64_t end = hr_clock_ns() + ms * NS_PER_MS; hr_clock_ns() < end;) {
    hr_thread_relax();
  }
}

/* outputs[0] = 2 * inputs[0], or 1 without an input, once the gate is open. */
static hr_status wait_at_gate(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  gate *g = arg;
  atomic_store(&g->is_reached, true);
  while (!atomic_load(&g->is_open)) {
    sleep_ms(1);
  }
  for (int i = 0; i < COUNT && output_count > 0; ++i) {
    ((float *)outputs[0])[i] = input_count > 0 ? 2 * ((const float *)inputs[0])[i] : 1;
  }
  return HR_OK;
}

/* Blocks the stream until the gate is opened; the output may be NULL. */
static void block(hr_stream *stream, gate *g, hr_buffer *in, hr_buffer *out) {
  HR_ASSERT_OK(hr_stream_call(stream, wait_at_gate, g, NULL, in != NULL, &in, out != NULL, &out));
}

static void open_later(void *arg) {
  sleep_ms(LONG_MS);
  atomic_store(&((gate *)arg)->is_open, true);
}

HR_TEST(a_stream_finishes_while_another_one_is_blocked) {
  fixture f;
  open_fixture(&f);
  hr_buffer *x = make(&f), *y = make(&f), *shared = make(&f);
  fill(f.a, shared, 4);
  HR_ASSERT_OK(hr_stream_synchronize(f.a));
  block(f.a, &f.gate, shared, x);
  record(f.b, HR_OP_ADD, shared, 1, y);
  HR_ASSERT_NEAR(read_first(f.b, y), 5, 0);
  HR_ASSERT_OK(hr_stream_synchronize(f.b));
  HR_ASSERT_EQ(hr_buffer_status(f.b, x, NULL), HR_BUFFER_PENDING);
  HR_ASSERT_EQ(hr_buffer_status(f.b, y, NULL), HR_BUFFER_DONE);
  atomic_store(&f.gate.is_open, true);
  HR_ASSERT_NEAR(read_first(f.a, x), 8, 0);
  hr_buffer_release(x);
  hr_buffer_release(y);
  hr_buffer_release(shared);
  close_fixture(&f);
}

typedef struct pusher {
  hr_stream *stream;
  hr_buffer *x;
  hr_status status;
} pusher;

static void push_many(void *arg) {
  pusher *p = arg;
  hr_scalar one = hr_scalar_f64(1);
  hr_view inputs[2] = {view_of(p->x), {.scalar = &one, .dtype = one.dtype}}, output = view_of(p->x);
  for (int i = 0; i < 3 * HR_QUEUE_LIMIT && p->status == HR_OK; ++i) {
    p->status = hr_stream_record(p->stream, HR_OP_ADD, NULL, 2, inputs, 1, &output);
    p->status = p->status == HR_OK ? hr_stream_commit(p->stream) : p->status;
  }
}

HR_TEST(a_full_queue_does_not_hold_up_another_stream) {
  fixture f;
  open_fixture(&f);
  hr_buffer *x = make(&f), *y = make(&f);
  hr_thread thread;
  fill(f.a, x, 0);
  block(f.a, &f.gate, NULL, NULL);
  pusher p = {f.a, x, HR_OK};
  HR_ASSERT_OK(hr_thread_start("pusher", push_many, &p, &thread));
  sleep_ms(LONG_MS); /* the pusher waits for a place now */
  for (int i = 0; i < 10; ++i) {
    fill(f.b, y, i);
    HR_ASSERT_NEAR(read_first(f.b, y), i, 0);
  }
  atomic_store(&f.gate.is_open, true);
  hr_thread_join(&thread);
  HR_ASSERT_OK(p.status);
  HR_ASSERT_NEAR(read_first(f.b, x), 3 * HR_QUEUE_LIMIT, 0);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

/* The gate opens while the other stream's work is in its queue, or the host waits. */
static void run_with_opener(fixture *f, void (*test)(fixture *f, hr_buffer *x, hr_buffer *y)) {
  hr_thread thread;
  open_fixture(f);
  hr_buffer *x = make(f), *y = make(f);
  fill(f->a, x, 3);
  fill(f->a, y, 0);
  HR_ASSERT_OK(hr_stream_synchronize(f->a));
  HR_ASSERT_OK(hr_thread_start("opener", open_later, &f->gate, &thread));
  test(f, x, y);
  hr_thread_join(&thread);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(f);
}

static void read_after_write(fixture *f, hr_buffer *x, hr_buffer *y) {
  block(f->a, &f->gate, x, x);
  record(f->b, HR_OP_ADD, x, 1, y);
  HR_ASSERT_NEAR(read_first(f->b, y), 7, 0);
}

static void write_after_read(fixture *f, hr_buffer *x, hr_buffer *y) {
  block(f->a, &f->gate, x, y);
  fill(f->b, x, 100);
  HR_ASSERT_NEAR(read_first(f->b, x), 100, 0);
  HR_ASSERT_NEAR(read_first(f->b, y), 6, 0);
}

static void write_after_write(fixture *f, hr_buffer *x, hr_buffer *y) {
  block(f->a, &f->gate, y, x);
  fill(f->b, x, 5);
  HR_ASSERT_NEAR(read_first(f->a, x), 5, 0);
}

static void host_reads(fixture *f, hr_buffer *x, hr_buffer *y) {
  block(f->a, &f->gate, x, y);
  HR_ASSERT_NEAR(read_first(f->b, x), 3, 0); /* is read there, too */
  HR_ASSERT(!atomic_load(&f->gate.is_open));
  HR_ASSERT_NEAR(read_first(f->b, y), 6, 0);
  HR_ASSERT(atomic_load(&f->gate.is_open));
}

static void host_takes_address(fixture *f, hr_buffer *x, hr_buffer *y) {
  void *address;
  block(f->a, &f->gate, x, y);
  HR_ASSERT_OK(hr_stream_address(f->b, x, &address));
  HR_ASSERT(atomic_load(&f->gate.is_open)); /* its holder may write */
}

static void host_writes(fixture *f, hr_buffer *x, hr_buffer *y) {
  float values[COUNT] = {9};
  hr_view view = view_of(x);
  block(f->a, &f->gate, x, y);
  HR_ASSERT_OK(hr_stream_write(f->b, &view, values));
  HR_ASSERT_NEAR(read_first(f->b, x), 9, 0);
  HR_ASSERT_NEAR(read_first(f->a, y), 6, 0);
}

static void wait_for_all(fixture *f, hr_buffer *x, hr_buffer *y) {
  hr_mark *mark;
  block(f->a, &f->gate, x, y);
  HR_ASSERT_OK(hr_stream_wait_for(f->b, f->a));
  HR_ASSERT(!atomic_load(&f->gate.is_open));
  HR_ASSERT_OK(hr_mark_create(f->b, &mark));
  HR_ASSERT(!hr_mark_is_reached(mark));
  HR_ASSERT_OK(hr_stream_synchronize(f->b));
  HR_ASSERT(atomic_load(&f->gate.is_open));
  HR_ASSERT(hr_mark_is_reached(mark));
  hr_mark_release(mark);
}

static void call_after_call(fixture *f, hr_buffer *x, hr_buffer *y) {
  gate second = {.is_open = true};
  (void)x, (void)y;
  block(f->a, &f->gate, NULL, NULL);
  block(f->b, &second, NULL, NULL);
  sleep_ms(LONG_MS / 5);
  HR_ASSERT(!atomic_load(&second.is_reached) || atomic_load(&f->gate.is_open));
  HR_ASSERT_OK(hr_stream_synchronize(f->b));
  HR_ASSERT(atomic_load(&f->gate.is_open));
}

HR_TEST(work_that_shares_memory_has_the_recorded_order) {
  void (*const tests[])(fixture *, hr_buffer *, hr_buffer *) = {read_after_write, write_after_read,   write_after_write,
                                                                host_reads,       host_takes_address, host_writes,
                                                                wait_for_all,     call_after_call};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; ++i) {
    fixture f;
    run_with_opener(&f, tests[i]);
  }
}

static hr_status refuse(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  (void)wait_at_gate(arg, input_count, inputs, output_count, outputs);
  return hr_status_make(HR_STATUS_ABORTED, "refused");
}

HR_TEST(a_failure_in_one_lane_reaches_the_other_by_its_buffers_alone) {
  fixture f;
  open_fixture(&f);
  hr_buffer *bad = make(&f), *y = make(&f), *z = make(&f);
  HR_ASSERT_OK(hr_stream_call(f.a, refuse, &f.gate, NULL, 0, NULL, 1, &bad));
  fill(f.b, y, 2);
  HR_ASSERT_NEAR(read_first(f.b, y), 2, 0);
  record(f.b, HR_OP_ADD, y, 1, y);
  HR_ASSERT_OK(hr_stream_commit(f.b));
  record(f.b, HR_OP_ADD, bad, 1, z); /* not known yet: it will fail in its turn */
  HR_ASSERT_OK(hr_stream_commit(f.b));
  atomic_store(&f.gate.is_open, true);
  HR_ASSERT_ERROR(hr_stream_synchronize(f.b), HR_STATUS_ABORTED, "refused");
  HR_ASSERT_ERROR(hr_stream_synchronize(f.a), HR_STATUS_ABORTED, "refused");
  HR_ASSERT_NEAR(read_first(f.b, y), 3, 0);
  fill(f.a, bad, 1);
  HR_ASSERT_NEAR(read_first(f.b, bad), 1, 0);
  hr_buffer_release(bad);
  hr_buffer_release(y);
  hr_buffer_release(z);
  close_fixture(&f);
}

HR_TEST(an_interrupt_ends_the_work_of_its_stream_alone) {
  fixture f;
  open_fixture(&f);
  hr_buffer *x = make(&f), *y = make(&f);
  fill(f.a, x, 1);
  HR_ASSERT_OK(hr_stream_synchronize(f.a));
  block(f.a, &f.gate, NULL, NULL);
  record(f.a, HR_OP_ADD, x, 1, x);
  HR_ASSERT_OK(hr_stream_commit(f.a));
  fill(f.b, y, 2);
  hr_stream_interrupt(f.a);
  HR_ASSERT_NEAR(read_first(f.b, y), 2, 0);
  atomic_store(&f.gate.is_open, true);
  HR_ASSERT_STATUS(hr_stream_synchronize(f.a), HR_STATUS_CANCELLED);
  HR_ASSERT_NEAR(read_first(f.b, x), 1, 0);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

static bool interrupts(void *arg) {
  (void)arg;
  return true;
}

HR_TEST(an_interrupt_ends_the_wait_for_another_lane) {
  fixture f;
  open_fixture(&f);
  hr_buffer *x = make(&f);
  float values[COUNT];
  hr_view view = view_of(x);
  hr_stream_set_interrupt_check(f.b, interrupts, NULL);
  block(f.a, &f.gate, NULL, x);
  HR_ASSERT_STATUS(hr_stream_read(f.b, &view, values), HR_STATUS_CANCELLED);
  atomic_store(&f.gate.is_open, true);
  HR_ASSERT_NEAR(read_first(f.a, x), 1, 0);
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(the_first_lane_belongs_to_one_stream) {
  fixture f;
  hr_stream *c;
  open_fixture(&f);
  HR_ASSERT_OK(hr_stream_create(f.device, &c));
  HR_ASSERT_EQ(c->lane->number, 1);
  hr_stream_release(f.a);
  HR_ASSERT_OK(hr_stream_create(f.device, &f.a));
  HR_ASSERT_EQ(f.a->lane->number, 0);
  hr_stream_release(c);
  close_fixture(&f);
}

/* ---- random programs ---- */

static const hr_driver *cpu;

static hr_status launch_slowly(void *impl, int count, const hr_host_launch *launches) {
  static _Thread_local uint64_t launched;
  for (uint64_t i = 0, spins = ++launched * UINT64_C(2654435761) % 20000; i < spins; ++i) {
    hr_thread_relax();
  }
  return cpu->launch(impl, count, launches);
}

HR_TEST(a_random_program_has_the_same_results_on_several_streams) {
  hr_device device;
  cpu = hr__cpu_driver();
  hr_driver driver = *cpu;
  driver.launch = launch_slowly;
  hr__stand_in_open(&device, &driver, "slow");
  check_random_streams(&device, (uint64_t)hr_test_count(8), true);
  hr__stand_in_close(&device);
}
