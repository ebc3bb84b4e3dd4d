/* Lanes of a device whose work runs later than its jobs: of a stand-in (late_stand_in.h), and of a GPU, if there is
 * one. lanes_test.c tests what all devices share.
 */
#include "hr_test.h"

#include "engine/stream.h"
#include "headrace/mark.h"
#include "late_stand_in.h"
#include "random_streams.h"

/* ---- devices ---- */

/* Always at the same address, which profiles remember. */
static void with_stand_in(void (*test)(hr_device *device)) {
  static hr_device device;
  static hr_driver driver;
  driver = hr__late_driver();
  hr__stand_in_open(&device, &driver, "late");
  device.properties.is_host = false;
  device.lanes_max = STREAMS;
  test(&device);
  hr__stand_in_close(&device);
}

/* A test of the GPU may have opened its lanes before. */
static void with_gpu(void (*test)(hr_device *device)) {
  hr_device *device;
  hr_status status = hr_device_open("cuda", &device);
  if (status != HR_OK) {
    fprintf(stderr, "no GPU: %s\n", hr_status_message(status));
    hr_status_ignore(status);
    return;
  }
  device->lanes_max = STREAMS;
  test(device);
  hr_device_release(device);
}

static void with_each(void (*test)(hr_device *device)) {
  with_stand_in(test);
  with_gpu(test);
}

/* ---- random programs ---- */

static void run_random_streams(hr_device *device) {
  check_random_streams(device, (uint64_t)hr_test_count(4), false);
}

HR_TEST(a_random_program_has_the_same_results_on_several_streams) {
  with_each(run_random_streams);
}

/* ---- two streams ---- */

enum { N = 1 << 20, SMALL = 1 << 10, ROUNDS = 30 };

static hr_view view_of(hr_buffer *buffer, const int64_t *n) {
  static const int64_t stride = 1;
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 1, .dims = n, .strides = &stride};
}

static hr_buffer *make(hr_device *device, int64_t n) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(device, (size_t)n * sizeof(float), &buffer));
  return buffer;
}

static void add(hr_stream *stream, hr_buffer *in, const int64_t *n, double value, hr_buffer *out) {
  hr_scalar scalar = hr_scalar_f64(value);
  record_2(stream, HR_OP_ADD, view_of(in, n), number(&scalar), view_of(out, n));
}

static void fill(hr_stream *stream, hr_buffer *buffer, const int64_t *n, double value) {
  hr_scalar scalar = hr_scalar_f64(value);
  record_1(stream, HR_OP_COPY, number(&scalar), view_of(buffer, n));
}

/* All elements of the buffer are this number. */
static void check_all(hr_stream *stream, hr_buffer *buffer, const int64_t *n, float expected) {
  static float values[N];
  hr_view view = view_of(buffer, n);
  HR_ASSERT_OK(hr_stream_read(stream, &view, values));
  for (int64_t i = 0; i < *n; ++i) {
    HR_ASSERT(values[i] == expected);
  }
}

typedef struct two_streams {
  hr_device *device;
  hr_stream *a, *b;
} two_streams;

static const int64_t n = N, small = SMALL;

/* From now on the lane of `stream` records events, since the other one follows it. */
static void cross(hr_device *device, hr_stream *stream, hr_stream *other) {
  hr_buffer *x = make(device, small);
  fill(stream, x, &small, 1);
  check_all(other, x, &small, 1);
  hr_buffer_release(x);
}

static two_streams open_two(hr_device *device) {
  two_streams t = {.device = device};
  HR_ASSERT_OK(hr_stream_create(device, &t.a));
  HR_ASSERT_OK(hr_stream_create(device, &t.b));
  hr_stream_set_mode(t.a, HR_MODE_FUSE);
  hr_stream_set_mode(t.b, HR_MODE_FUSE);
  HR_ASSERT(t.a->lane != t.b->lane);
  cross(device, t.a, t.b);
  cross(device, t.b, t.a);
  return t;
}

static void close_two(two_streams *t) {
  hr_stream_release(t->a);
  hr_stream_release(t->b);
}

/* One stream counts a buffer up, the other copies it, and the host reads the copies: each read after a write, each
 * write after a read. */
static void pass_to_and_fro(hr_device *device) {
  two_streams t = open_two(device);
  hr_buffer *x = make(device, n), *y = make(device, n);
  fill(t.a, x, &n, 0);
  for (int i = 1; i <= ROUNDS; ++i) {
    add(t.a, x, &n, 1, x);
    HR_ASSERT_OK(hr_stream_commit(t.a));
    add(t.b, x, &n, 0.5, y);
    HR_ASSERT_OK(hr_stream_commit(t.b));
    add(t.a, x, &n, 1, x);
    HR_ASSERT_OK(hr_stream_commit(t.a));
    if (i % 5 == 0) {
      check_all(i % 2 == 0 ? t.a : t.b, y, &n, (float)(2 * i - 1) + 0.5F);
    }
  }
  check_all(t.b, x, &n, 2 * ROUNDS);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_two(&t);
}

HR_TEST(a_stream_reads_what_another_one_has_written_and_writes_what_it_has_read) {
  with_each(pass_to_and_fro);
}

/* Buffers that one stream still uses are released; new ones of the same size get their memory, in the other stream and
 * from the host. */
static void reuse_memory(hr_device *device) {
  static float host[N];
  two_streams t = open_two(device);
  hr_buffer *sum = make(device, n), *copies = make(device, n);
  fill(t.a, sum, &n, 0);
  for (int i = 1; i <= ROUNDS; ++i) {
    hr_buffer *x = make(device, n), *y = make(device, n), *z = make(device, n);
    hr_view view = view_of(z, &n);
    fill(t.a, x, &n, i);
    HR_ASSERT_OK(hr_stream_commit(t.a));
    record_2(t.a, HR_OP_ADD, view_of(x, &n), view_of(sum, &n), view_of(sum, &n));
    HR_ASSERT_OK(hr_stream_commit(t.a));
    hr_buffer_release(x);
    fill(t.b, y, &n, 1000);
    HR_ASSERT_OK(hr_stream_commit(t.b));
    hr_buffer_release(y);
    for (int j = 0; j < N; ++j) {
      host[j] = (float)(2000 + i);
    }
    HR_ASSERT_OK(hr_stream_write(i % 2 == 0 ? t.b : t.a, &view, host));
    add(i % 3 == 0 ? t.a : t.b, z, &n, 1, copies);
    hr_buffer_release(z);
  }
  check_all(t.b, sum, &n, ROUNDS * (ROUNDS + 1) / 2);
  check_all(t.a, copies, &n, 2001 + ROUNDS);
  hr_buffer_release(sum);
  hr_buffer_release(copies);
  close_two(&t);
}

HR_TEST(memory_is_reused_after_its_last_use_in_any_stream) {
  with_each(reuse_memory);
}

/* Memory goes back to the driver while the other stream works. */
static void trim_memory(hr_device *device) {
  two_streams t = open_two(device);
  hr_buffer *x = make(device, n);
  fill(t.a, x, &n, 0);
  for (int i = 0; i < ROUNDS; ++i) {
    hr_buffer *y = make(device, n);
    add(t.a, x, &n, 1, x);
    HR_ASSERT_OK(hr_stream_commit(t.a));
    fill(t.b, y, &n, i);
    add(t.b, x, &n, i, y);
    HR_ASSERT_OK(hr_stream_commit(t.b));
    hr_buffer_release(y);
    if (i % 7 == 0) {
      hr_device_memory_trim(device);
    }
  }
  check_all(t.b, x, &n, ROUNDS);
  hr_buffer_release(x);
  close_two(&t);
}

HR_TEST(memory_is_given_back_after_its_last_use_in_any_stream) {
  with_each(trim_memory);
}

/* x[index], of one element. */
static void pick(hr_stream *stream, hr_buffer *x, hr_buffer *index, hr_buffer *out) {
  static const int64_t one = 1, stride = 1, dim = 0;
  const hr_view in[2] = {view_of(x, &small),
                         {.buffer = index, .dtype = HR_DTYPE_I64, .rank = 1, .dims = &one, .strides = &stride}};
  hr_view to = view_of(out, &one);
  hr_attrs attrs = {.int_count = 1, .ints = &dim};
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_GATHER, &attrs, 2, in, 1, &to));
}

static void set_index(hr_stream *stream, hr_buffer *index, double value) {
  static const int64_t one = 1, stride = 1;
  hr_scalar scalar = hr_scalar_i64((int64_t)value);
  record_1(stream, HR_OP_COPY, number(&scalar),
           (hr_view){.buffer = index, .dtype = HR_DTYPE_I64, .rank = 1, .dims = &one, .strides = &stride});
}

static void fail_in_one(hr_device *device) {
  static const int64_t one = 1;
  two_streams t = open_two(device);
  hr_buffer *x = make(device, small), *y = make(device, n), *index = make(device, 2), *picked = make(device, 1);
  fill(t.a, x, &small, 7);
  fill(t.b, y, &n, 0);
  set_index(t.a, index, SMALL);
  HR_ASSERT_OK(hr_stream_commit(t.a));
  pick(t.a, x, index, picked);
  HR_ASSERT_OK(hr_stream_commit(t.a));
  for (int i = 0; i < ROUNDS; ++i) {
    add(t.b, y, &n, 1, y);
    HR_ASSERT_OK(hr_stream_commit(t.b));
  }
  check_all(t.b, y, &n, ROUNDS);
  HR_ASSERT_ERROR(hr_stream_synchronize(t.a), HR_STATUS_INVALID_ARGUMENT, "index 1024 is out of bounds");
  set_index(t.a, index, SMALL - 1);
  pick(t.a, x, index, picked);
  check_all(t.b, picked, &one, 7);
  hr_buffer_release(x);
  hr_buffer_release(y);
  hr_buffer_release(index);
  hr_buffer_release(picked);
  close_two(&t);
}

HR_TEST(a_failure_in_one_stream_leaves_the_other_alone) {
  with_each(fail_in_one);
}

/* ---- work of the stand-in that is submitted, and held at a gate ---- */

typedef struct gate {
  hr_queue queue;
  hr_queue_job opener;
} gate;

static void nothing(hr_queue_job *job) {
  (void)job;
}

static void make_gate(gate *g) {
  *g = (gate){.opener.run = nothing};
  hr_queue_init(&g->queue);
}

/* Work that the stream's lane submits from now on waits for the gate. */
static void hold(hr_stream *stream, gate *g) {
  late_work *work = late_new(stream->lane->impl, NULL, 0);
  work->awaited = &g->queue;
  work->number = 1;
  late_push(work);
}

/* Work that need not wait has run by then. */
static void open_gate(gate *g) {
  for (int64_t end = hr_clock_ns() + INT64_C(20000000); hr_clock_ns() < end;) {
    hr_thread_relax();
  }
  (void)hr_queue_push(&g->queue, &g->opener);
}

static void free_gate(gate *g) {
  hr_queue_close(&g->queue);
  hr_queue_fini(&g->queue);
}

static void overlap(hr_device *device) {
  gate g;
  two_streams t = open_two(device);
  hr_buffer *x = make(device, small), *y = make(device, small), *z = make(device, small);
  make_gate(&g);
  fill(t.a, x, &small, 1);
  HR_ASSERT_OK(hr_stream_synchronize(t.a));
  hold(t.a, &g);
  add(t.a, x, &small, 1, y);
  HR_ASSERT_OK(hr_stream_commit(t.a));
  add(t.b, x, &small, 2, z);
  check_all(t.b, z, &small, 3); /* reads the same */
  add(t.b, y, &small, 1, z);
  HR_ASSERT_OK(hr_stream_commit(t.b)); /* follows it without waiting on the host */
  hr_queue_drain(&t.b->lane->queue);
  hr_mark *mark;
  HR_ASSERT_OK(hr_mark_create(t.b, &mark));
  HR_ASSERT(!hr_mark_is_reached(mark));
  open_gate(&g);
  check_all(t.b, z, &small, 3);
  HR_ASSERT(hr_mark_is_reached(mark));
  hr_mark_release(mark);
  hr_buffer_release(x);
  hr_buffer_release(y);
  hr_buffer_release(z);
  close_two(&t);
  free_gate(&g);
}

/* A job has ended when its work is submitted, which is no sign that the results exist. */
static void look_at_state(hr_device *device) {
  gate g;
  two_streams t = open_two(device);
  hr_buffer *x = make(device, small), *y = make(device, small);
  make_gate(&g);
  fill(t.a, x, &small, 1);
  HR_ASSERT_EQ(hr_buffer_status(t.a, x, NULL), HR_BUFFER_PENDING);
  HR_ASSERT_OK(hr_stream_synchronize(t.a));
  HR_ASSERT_EQ(hr_buffer_status(t.a, x, NULL), HR_BUFFER_DONE);
  hold(t.a, &g);
  add(t.a, x, &small, 1, y);
  HR_ASSERT_OK(hr_stream_commit(t.a));
  hr_queue_drain(&t.a->lane->queue);
  HR_ASSERT_EQ(hr_buffer_status(t.a, y, NULL), HR_BUFFER_PENDING);
  open_gate(&g);
  HR_ASSERT_OK(hr_stream_synchronize(t.a));
  HR_ASSERT_EQ(hr_buffer_status(t.a, y, NULL), HR_BUFFER_DONE);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_two(&t);
  free_gate(&g);
}

HR_TEST(a_buffer_is_pending_until_the_device_has_run_its_work) {
  with_stand_in(look_at_state);
}

HR_TEST(work_follows_work_of_another_stream_without_a_wait_of_the_host) {
  with_stand_in(overlap);
}

enum { FACTORS = 80, TALL = 600 };

/* y = x * f for each column. f = exp(v) * g is a temporary, and cached if v and g are those of the run before. */
static void record_factors(hr_stream *stream, hr_buffer *x, hr_buffer *v, hr_buffer *g, hr_buffer *y) {
  static const int64_t row[1] = {FACTORS}, tall[2] = {TALL, FACTORS}, dense[2] = {FACTORS, 1}, spread[2] = {0, 1};
  hr_buffer *factors = make(stream->device, FACTORS);
  hr_view f = view_of(factors, row);
  record_1(stream, HR_OP_EXP, view_of(v, row), f);
  record_2(stream, HR_OP_MUL, f, view_of(g, row), f);
  hr_view from = {.buffer = x, .dtype = HR_DTYPE_F32, .rank = 2, .dims = tall, .strides = dense}, all = from, to = from;
  all.buffer = factors, all.strides = spread;
  to.buffer = y;
  record_2(stream, HR_OP_MUL, from, all, to);
  hr_buffer_release(factors);
}

/* Returns when the work is submitted. */
static void submit(hr_stream *stream) {
  HR_ASSERT_OK(hr_stream_commit(stream));
  hr_queue_drain(&stream->lane->queue);
}

static void multiply_factors(hr_stream *stream, hr_buffer *x, hr_buffer *v, hr_buffer *g, hr_buffer *y) {
  record_factors(stream, x, v, g, y);
  submit(stream);
}

static const int64_t factors = FACTORS, tall = TALL * FACTORS;

/* A lane's block of temporaries grows while its work is held: the other stream gets the old one. */
static void grow_temporaries(hr_device *device) {
  gate g;
  two_streams t = open_two(device);
  hr_buffer *x = make(device, tall), *v = make(device, factors), *w = make(device, factors), *y = make(device, tall);
  hr_buffer *z = make(device, tall);
  make_gate(&g);
  fill(t.a, x, &tall, 3), fill(t.a, v, &factors, 0), fill(t.a, w, &factors, 2), fill(t.a, y, &tall, 0);
  fill(t.a, z, &tall, 0);
  submit(t.a);
  multiply_factors(t.a, x, v, w, y);
  fill(t.a, w, &factors, 4);
  HR_ASSERT_OK(hr_stream_synchronize(t.a));
  HR_ASSERT_NOT_NULL(t.a->lane->shared);
  void *address = t.a->lane->shared->address;
  const int64_t count = (int64_t)(t.a->lane->shared->bytes / sizeof(float));
  hr_buffer *others[8];
  hold(t.a, &g);
  multiply_factors(t.a, x, v, w, y);
  record_factors(t.a, x, v, w, y);
  record_factors(t.a, x, w, v, z);
  submit(t.a);
  HR_ASSERT(t.a->lane->shared->address != address);
  for (int i = 0; i < 8; ++i) {
    fill(t.b, others[i] = make(device, count), &count, 9);
  }
  submit(t.b);
  bool is_reused = false;
  for (int i = 0; i < 8; ++i) {
    is_reused |= hr__buffer_address(others[i]) == address;
  }
  HR_ASSERT(is_reused);
  open_gate(&g);
  for (int i = 0; i < 8; ++i) {
    check_all(t.b, others[i], &count, 9);
  }
  check_all(t.b, y, &tall, 12);
  check_all(t.b, z, &tall, 0);
  hr_buffer *const all[] = {x, v, w, y, z};
  hr__buffers_release(sizeof all / sizeof *all, all);
  hr__buffers_release(8, others);
  close_two(&t);
  free_gate(&g);
}

HR_TEST(temporaries_of_one_lane_become_memory_of_another_after_their_last_use) {
  with_stand_in(grow_temporaries);
}

/* Both made and read while the device holds the work; then their memory becomes that of other buffers. */
static void share_weights(hr_device *device) {
  gate making, reading;
  two_streams t = open_two(device);
  hr_buffer *x = make(device, tall), *v = make(device, factors), *g = make(device, factors), *y = make(device, tall);
  hr_buffer *z = make(device, tall), *others[3];
  make_gate(&making);
  make_gate(&reading);
  fill(t.a, x, &tall, 3), fill(t.a, v, &factors, 0), fill(t.a, g, &factors, 2), fill(t.a, y, &tall, 0),
      fill(t.b, z, &tall, 0);
  HR_ASSERT_OK(hr_stream_synchronize(t.b));
  HR_ASSERT_OK(hr_stream_synchronize(t.a));
  multiply_factors(t.a, x, v, g, y);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  hold(t.a, &making);
  multiply_factors(t.a, x, v, g, y);
  HR_ASSERT(hr__cached_weights_bytes() >= FACTORS * (int64_t)sizeof(float));
  multiply_factors(t.b, x, v, g, z);
  open_gate(&making);
  check_all(t.b, z, &tall, 6);
  check_all(t.a, y, &tall, 6);
  hold(t.b, &reading);
  multiply_factors(t.b, x, v, g, z);
  hr_buffer_release(v);
  hr_buffer_release(g);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  for (int i = 0; i < 3; ++i) {
    fill(t.a, others[i] = make(device, factors), &factors, 50);
  }
  submit(t.a);
  open_gate(&reading);
  check_all(t.b, z, &tall, 6);
  check_all(t.a, others[2], &factors, 50);
  hr_buffer *const rest[] = {x, y, z, others[0], others[1], others[2]};
  hr__buffers_release(sizeof rest / sizeof *rest, rest);
  close_two(&t);
  free_gate(&making);
  free_gate(&reading);
}

HR_TEST(cached_weights_are_read_after_they_are_made_and_freed_after_they_are_read) {
  with_stand_in(share_weights);
}
