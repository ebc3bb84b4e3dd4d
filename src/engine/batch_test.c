/* The steps that run in one launch: tested with hand-written schedules, and through a stream against strict mode's
 * bits. */
#include "hr_test.h"

#include "base/thread.h"
#include "engine/instance.h"
#include "headrace/stream.h"

/* ---- schedules by hand ---- */

enum { STEPS_MAX = 300, ARGS = 2, PASSES_MAX = 3 };
static const int64_t length[1] = {100}, forward[1] = {1}, backward[1] = {-1}, still[1] = {0};

/* Step i reads buffer 2 i and writes buffer 2 i + 1, 100 elements of each, half a piece of work; a test changes that.
 */
typedef struct made {
  hr_instance instance;
  hr_plan plan;
  hr_place places[STEPS_MAX * ARGS];
  hr_exec_step steps[STEPS_MAX];
  hr_step sources[STEPS_MAX];
  hr_kernel kernels[STEPS_MAX];
  hr_host_kernel hosts[STEPS_MAX];
  hr_step_call calls[STEPS_MAX];
  hr_host_pass passes[STEPS_MAX][PASSES_MAX];
  hr_kernel_arg args[STEPS_MAX][ARGS];
  hr_access accesses[STEPS_MAX][ARGS];
} made;

static made *make(int count) {
  static made m;
  memset(&m, 0, sizeof m);
  for (int i = 0; i < count; ++i) {
    for (int a = 0; a < ARGS; ++a) {
      m.places[i * ARGS + a].kind = HR_PLACE_BOUND;
      m.args[i][a] = (hr_kernel_arg){.buffer = (uint32_t)(i * ARGS + a), .is_read = a == 0, .is_written = a == 1};
      m.accesses[i][a] = (hr_access){.arg = a, .dtype = HR_DTYPE_F32, .strides = forward};
    }
    m.kernels[i] = (hr_kernel){.name = "step",
                               .rank = 1,
                               .dims = length,
                               .arg_count = ARGS,
                               .args = m.args[i],
                               .access_count = ARGS,
                               .accesses = m.accesses[i]};
    m.sources[i] = (hr_step){.kind = HR_STEP_KERNEL, .kernel = &m.kernels[i]};
    for (int pass = 0; pass < PASSES_MAX; ++pass) {
      m.passes[i][pass] = (hr_host_pass){.units = 5, .grain = 10};
    }
    m.hosts[i] = (hr_host_kernel){.pass_count = 1, .passes = m.passes[i]};
    m.calls[i] = (hr_step_call){.written = &m.hosts[i]};
    m.steps[i] = (hr_exec_step){.kind = HR_STEP_KERNEL, .call = &m.calls[i]};
  }
  m.instance.steps = m.steps;
  m.instance.step_count = m.instance.kernel_count = count;
  m.plan.schedule.places = m.places;
  m.plan.schedule.steps = m.sources;
  m.instance.plan = &m.plan;
  return &m;
}

/* True if steps 0 and 1 of two run in one launch. */
static bool are_together(made *m) {
  hr__batch_steps(&m->instance);
  HR_ASSERT(m->steps[0].batch == 2 ? m->instance.kernel_count == 1 : m->steps[0].batch == 1 && m->steps[1].batch == 1);
  return m->steps[0].batch == 2;
}

HR_TEST(steps_that_share_nothing_written_run_together) {
  made *m = make(2);
  HR_ASSERT(are_together(m));
  m = make(2);
  m->args[1][0].buffer = m->args[0][0].buffer; /* both read it */
  HR_ASSERT(are_together(m));
  m = make(2);
  m->args[1][0].buffer = m->args[0][1].buffer; /* the second reads the first one's output */
  HR_ASSERT(!are_together(m));
  m = make(2);
  m->args[1][1].buffer = m->args[0][0].buffer; /* the second writes the first one's input */
  HR_ASSERT(!are_together(m));
  m = make(2);
  m->args[1][1].buffer = m->args[0][1].buffer; /* both write it */
  HR_ASSERT(!are_together(m));
  m = make(3);
  m->args[2][0].buffer = m->args[0][1].buffer; /* not of the one before */
  hr__batch_steps(&m->instance);
  HR_ASSERT_EQ(m->steps[0].batch, 2);
  HR_ASSERT_EQ(m->steps[2].batch, 1);
}

HR_TEST(parts_of_one_buffer_are_told_apart_by_bytes) {
  static const struct {
    int64_t offset;
    const int64_t *strides;
    hr_dtype dtype;
    int term_count;
    bool together;
  } cases[] = {{100, forward, HR_DTYPE_F32, 0, true},   {99, forward, HR_DTYPE_F32, 0, false},
               {-100, forward, HR_DTYPE_F32, 0, true},  {-99, forward, HR_DTYPE_F32, 0, false},
               {199, backward, HR_DTYPE_F32, 0, true},  {198, backward, HR_DTYPE_F32, 0, false},
               {100, still, HR_DTYPE_F32, 0, true},     {99, still, HR_DTYPE_F32, 0, false},
               {50, forward, HR_DTYPE_F64, 0, true},    {49, forward, HR_DTYPE_F64, 0, false},
               {400, forward, HR_DTYPE_U8, 0, true},    {399, forward, HR_DTYPE_U8, 0, false},
               {1000, forward, HR_DTYPE_F32, 1, false}, {-1000, forward, HR_DTYPE_F32, 1, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    made *m = make(2);
    m->args[1][1].buffer = m->args[0][1].buffer;
    m->accesses[1][1] = (hr_access){.arg = 1,
                                    .dtype = cases[i].dtype,
                                    .offset = cases[i].offset,
                                    .strides = cases[i].strides,
                                    .term_count = cases[i].term_count};
    HR_ASSERT_EQ(are_together(m), cases[i].together);
  }
  made *m = make(2); /* a second access of the same argument reaches the other part */
  m->args[1][1].buffer = m->args[0][1].buffer;
  m->accesses[1][1].offset = 100;
  m->accesses[1][0].arg = 1;
  HR_ASSERT(!are_together(m));
}

HR_TEST(temporaries_are_told_apart_by_place) {
  for (int i = 0; i < 3; ++i) {
    made *m = make(2);
    m->places[0] = (hr_place){HR_PLACE_ARENA, 512, 400};                             /* dies in step 0 */
    m->places[3] = (hr_place){HR_PLACE_ARENA, (size_t[]){0, 448, 960}[i], 448 + 64}; /* made in step 1 */
    HR_ASSERT_EQ(are_together(m), i != 1);
  }
  made *m = make(2);
  m->places[3] = (hr_place){HR_PLACE_ARENA, 0, 400};
  HR_ASSERT(are_together(m));
}

HR_TEST(a_batch_has_workspace_for_each_and_a_limit) {
  made *m = make(STEPS_MAX);
  for (int i = 0; i < STEPS_MAX; ++i) {
    m->hosts[i].workspace_bytes = 1 + (size_t)i % 100;
  }
  size_t bytes = hr__batch_steps(&m->instance), end = 0;
  HR_ASSERT(m->steps[0].batch < STEPS_MAX);
  HR_ASSERT_EQ(m->instance.batch_most, m->steps[0].batch);
  HR_ASSERT_EQ(m->instance.kernel_count, 2);
  for (int i = 0; i < m->steps[0].batch; ++i) {
    HR_ASSERT(m->steps[i].workspace_offset >= end && m->steps[i].workspace_offset % 64 == 0);
    end = m->steps[i].workspace_offset + m->hosts[i].workspace_bytes;
  }
  HR_ASSERT(bytes >= end);
  m = make(2);
  m->hosts[0].workspace_bytes = m->hosts[1].workspace_bytes = 3 << 20;
  HR_ASSERT(!are_together(m));
  HR_ASSERT_EQ(hr__batch_steps(&m->instance), 3 << 20);
}

HR_TEST(other_steps_and_large_second_passes_run_alone) {
  made *m = make(3);
  m->steps[1].kind = HR_STEP_CHECK;
  hr__batch_steps(&m->instance);
  HR_ASSERT(m->steps[0].batch == 1 && m->steps[1].batch == 1 && m->steps[2].batch == 1);
  for (int i = 0; i < 2; ++i) {
    m = make(2);
    m->hosts[i].pass_count = 3;
    m->passes[i][0].units = 1000;
    HR_ASSERT(are_together(m));
    m->passes[i][2].units = 11;
    m->instance.kernel_count = 2;
    HR_ASSERT(!are_together(m));
  }
}

HR_TEST(small_steps_are_worth_a_team_together) {
  made *m = make(3);
  hr__batch_steps(&m->instance);
  HR_ASSERT(!m->instance.needs_team);
  m = make(4);
  hr__batch_steps(&m->instance);
  HR_ASSERT(m->instance.needs_team);
}

HR_TEST(steps_of_a_host_run_together_on_several_threads) {
  int threads = hr_thread_count();
  made *m = make(2);
  m->plan.device_kind.properties.is_host = true;
  hr_thread_count_set(1);
  HR_ASSERT(!are_together(m));
  m->plan.device_kind.properties.is_host = false; /* a device has threads of its own */
  m->instance.kernel_count = 2;
  HR_ASSERT(are_together(m));
  m->plan.device_kind.properties.is_host = true;
  hr_thread_count_set(2);
  HR_ASSERT(are_together(m));
  hr_thread_count_set(threads);
}

/* ---- through a stream ---- */

enum { TENSORS = 24, MOST = 40000, NORMS = TENSORS };

static int64_t length_of(int i) {
  static const int64_t lengths[] = {1, 64, 3, 9408, 4097, 40000, 0, 255};
  return lengths[i % 8] - (lengths[i % 8] > 100 ? i : 0);
}

/* An optimizer with clipping, on tensors of many lengths: norms into parts of one buffer, a total, scaling by it, an
 * average. Then each tensor is combined with the next one's first element, which the step before has written. */
static void record_updates(hr_stream *stream, hr_buffer *const *x, hr_buffer *const *m, hr_buffer *norms,
                           hr_buffer *total) {
  static const int64_t one[1] = {1}, many[1] = {NORMS}, zero[1] = {0};
  int64_t flat_ints[1] = {1};
  hr_attrs flat = {.ints = flat_ints, .int_count = 1};
  hr_scalar weight = hr_scalar_f64(0.1);
  hr_view number = {.scalar = &weight, .dtype = weight.dtype};
  for (int i = 0; i < TENSORS; ++i) {
    int64_t dims[1] = {length_of(i)};
    hr_view in = {.buffer = x[i], .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = one};
    hr_view out = {.buffer = norms, .dtype = HR_DTYPE_F32, .rank = 1, .offset = i, .dims = one, .strides = one};
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_SUM, &flat, 1, &in, 1, &out));
  }
  hr_view list = {.buffer = norms, .dtype = HR_DTYPE_F32, .rank = 1, .dims = many, .strides = one};
  hr_view sum = {.buffer = total, .dtype = HR_DTYPE_F32, .rank = 1, .dims = one, .strides = one};
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_SUM, &flat, 1, &list, 1, &sum));
  for (int i = 0; i < TENSORS; ++i) {
    int64_t dims[1] = {length_of(i)};
    hr_view xs = {.buffer = x[i], .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = one}, ms = xs, wide = sum;
    ms.buffer = m[i];
    wide.dims = dims;
    wide.strides = zero;
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MUL, NULL, 2, (hr_view[]){xs, wide}, 1, &xs));
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_LERP, NULL, 3, (hr_view[]){ms, xs, number}, 1, &ms));
  }
  for (int i = 0; i + 1 < TENSORS; ++i) {
    int64_t dims[1] = {length_of(i)};
    hr_view xs = {.buffer = x[i], .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = one}, next = xs;
    next.buffer = x[i + 1];
    next.strides = zero;
    if (length_of(i + 1) > 0) {
      HR_ASSERT_OK(hr_stream_record(stream, HR_OP_ADD, NULL, 2, (hr_view[]){next, xs}, 1, &xs));
    }
  }
}

/* Three rounds of updates; all their results, in out_values. */
static hr_stats run_updates(hr_mode mode, float *out_values) {
  static const int64_t one[1] = {1}, many[1] = {NORMS}, most[1] = {MOST};
  hr_device *device;
  hr_stream *stream;
  hr_buffer *x[TENSORS], *m[TENSORS], *norms, *total;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  hr_stream_set_mode(stream, mode);
  HR_ASSERT_OK(hr_buffer_create(device, NORMS * sizeof(float), &norms));
  HR_ASSERT_OK(hr_buffer_create(device, sizeof(float), &total));
  float *values = hr_malloc(MOST * sizeof *values);
  hr_view view = {.dtype = HR_DTYPE_F32, .rank = 1, .dims = most, .strides = one};
  for (int i = 0; i < TENSORS; ++i) {
    HR_ASSERT_OK(hr_buffer_create(device, MOST * sizeof(float), &x[i]));
    HR_ASSERT_OK(hr_buffer_create(device, MOST * sizeof(float), &m[i]));
    for (int k = 0; k < MOST; ++k) {
      values[k] = (float)((k * 31 + i * 17) % 101 - 50) / 5000;
    }
    view.buffer = x[i];
    HR_ASSERT_OK(hr_stream_write(stream, &view, values));
    view.buffer = m[i];
    HR_ASSERT_OK(hr_stream_write(stream, &view, values));
  }
  hr_stats before, after;
  hr_stream_stats(stream, &before);
  for (int round = 0; round < 3; ++round) {
    record_updates(stream, x, m, norms, total);
    HR_ASSERT_OK(hr_stream_commit(stream));
  }
  hr_stream_stats(stream, &after);
  for (int i = 0; i < TENSORS; ++i) {
    view.buffer = x[i];
    HR_ASSERT_OK(hr_stream_read(stream, &view, out_values + (2 * i) * MOST));
    view.buffer = m[i];
    HR_ASSERT_OK(hr_stream_read(stream, &view, out_values + (2 * i + 1) * MOST));
    hr_buffer_release(x[i]);
    hr_buffer_release(m[i]);
  }
  hr_view list = {.buffer = norms, .dtype = HR_DTYPE_F32, .rank = 1, .dims = many, .strides = one};
  HR_ASSERT_OK(hr_stream_read(stream, &list, out_values + 2 * TENSORS * MOST));
  hr_buffer_release(norms);
  hr_buffer_release(total);
  hr_free(values);
  hr_stream_release(stream);
  hr_device_release(device);
  after.groups -= before.groups;
  after.kernels -= before.kernels;
  return after;
}

HR_TEST(batches_have_the_bits_of_single_steps) {
  size_t count = 2 * TENSORS * MOST + NORMS;
  float *single = hr_malloc(count * sizeof *single), *together = hr_malloc(count * sizeof *together);
  HR_ASSERT(single != NULL && together != NULL);
  int threads = hr_thread_count();
  hr_thread_count_set(2);
  run_updates(HR_MODE_STRICT, single);
  hr_stats stats = run_updates(HR_MODE_FUSE, together);
  HR_ASSERT_BYTES_EQ(together, single, count * sizeof *single);
  hr_thread_count_set(threads);
  HR_ASSERT(stats.groups > 0 && stats.kernels * 2 < stats.groups);
  hr_free(single);
  hr_free(together);
}
