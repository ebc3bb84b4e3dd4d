/* Products that hand their results over to an update: what it computes, and when it is a launch of its own. */
#include "engine/handover.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/cpu.h"
#include "engine/algorithms.h"
#include "headrace/stream.h"
#include "hr_test.h"

enum { ROWS = 512, DEPTH = 128, COLUMNS = 768, ROUNDS = 4 };
static const int64_t x_dims[2] = {DEPTH, ROWS}, x_t[2] = {ROWS, DEPTH}, y_dims[2] = {DEPTH, COLUMNS};
static const int64_t p_dims[2] = {ROWS, COLUMNS}, p_t[2] = {COLUMNS, ROWS};
static const int64_t by_rows[2] = {ROWS, 1}, by_rows_t[2] = {1, ROWS}, by_columns[2] = {COLUMNS, 1};
static const int64_t by_columns_t[2] = {1, COLUMNS};

static hr_view view_of(hr_buffer *buffer, const int64_t *dims, const int64_t *strides) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
}

typedef struct world {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *x, *y, *u, *p, *z;
  float *x_values, *y_values, *p_values;
} world;

static hr_buffer *make(const world *w, int64_t count, const float *values) {
  hr_buffer *buffer;
  int64_t dims[2] = {1, count}, strides[2] = {count, 1};
  HR_ASSERT_OK(hr_buffer_create(w->device, (size_t)count * sizeof *values, &buffer));
  hr_view view = view_of(buffer, dims, strides);
  if (values != NULL) {
    HR_ASSERT_OK(hr_stream_write(w->stream, &view, values));
  }
  return buffer;
}

static float *numbers(int64_t count, uint32_t seed) {
  float *to = malloc((size_t)count * sizeof *to);
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    to[i] = (float)((int)((seed >> 24) % 3) - 1);
  }
  return to;
}

static world open_world(void) {
  world w;
  setenv("HEADRACE_JIT", "wait", 1);
  setenv("HEADRACE_CACHE", "-", 1);
  HR_ASSERT_OK(hr_device_open("cpu", &w.device));
  HR_ASSERT_OK(hr_stream_create(w.device, &w.stream));
  float *u = calloc(DEPTH * COLUMNS, sizeof *u); /* one column of p for each row */
  for (int64_t r = 0; r < DEPTH; ++r) {
    u[r * COLUMNS + r * 6] = 1;
  }
  w.x_values = numbers(DEPTH * ROWS, 1), w.y_values = numbers(DEPTH * COLUMNS, 2);
  w.p_values = numbers(ROWS * COLUMNS, 3);
  w.x = make(&w, DEPTH * ROWS, w.x_values), w.y = make(&w, DEPTH * COLUMNS, w.y_values);
  w.u = make(&w, DEPTH * COLUMNS, u), w.p = make(&w, ROWS * COLUMNS, w.p_values);
  w.z = make(&w, DEPTH * ROWS, NULL);
  HR_ASSERT_OK(hr_stream_synchronize(w.stream));
  free(u);
  return w;
}

static void close_world(world *w) {
  hr_buffer *const all[] = {w->x, w->y, w->u, w->p, w->z};
  for (int i = 0; i < 5; ++i) {
    hr_buffer_release(all[i]);
  }
  hr_stream_release(w->stream);
  hr_device_release(w->device);
  free(w->x_values), free(w->y_values), free(w->p_values);
}

/* g = x^T y; z = u p^T; p -= g g, or another array of its size does. Returns the launches of kernels. */
static int64_t step(world *w, hr_buffer *to) {
  hr_stats before, after;
  hr_buffer *g = make(w, ROWS * COLUMNS, NULL), *square = make(w, ROWS * COLUMNS, NULL);
  hr_view left[2] = {view_of(w->x, x_t, by_rows_t), view_of(w->y, y_dims, by_columns)};
  hr_view right[2] = {view_of(w->u, y_dims, by_columns), view_of(w->p, p_t, by_columns_t)};
  hr_view product = view_of(g, p_dims, by_columns), z = view_of(w->z, x_dims, by_rows);
  hr_view squares = view_of(square, p_dims, by_columns), p = view_of(to, p_dims, by_columns);
  hr_stream_stats(w->stream, &before);
  HR_ASSERT_OK(hr_stream_record(w->stream, HR_OP_MATMUL, NULL, 2, left, 1, &product));
  HR_ASSERT_OK(hr_stream_record(w->stream, HR_OP_MATMUL, NULL, 2, right, 1, &z));
  HR_ASSERT_OK(hr_stream_record(w->stream, HR_OP_MUL, NULL, 2, (hr_view[]){product, product}, 1, &squares));
  HR_ASSERT_OK(hr_stream_record(w->stream, HR_OP_SUB, NULL, 2, (hr_view[]){p, squares}, 1, &p));
  hr_buffer_release(g), hr_buffer_release(square);
  HR_ASSERT_OK(hr_stream_synchronize(w->stream));
  hr_stream_stats(w->stream, &after);
  return after.kernels - before.kernels;
}

/* The same on the host: small whole numbers, which are exact. */
static void expect(world *w) {
  float *z = malloc(DEPTH * ROWS * sizeof *z), *p = malloc(ROWS * COLUMNS * sizeof *p);
  hr_view from_z = view_of(w->z, x_dims, by_rows), from_p = view_of(w->p, p_dims, by_columns);
  HR_ASSERT_OK(hr_stream_read(w->stream, &from_z, z));
  HR_ASSERT_OK(hr_stream_read(w->stream, &from_p, p));
  for (int64_t r = 0; r < DEPTH; ++r) {
    for (int64_t c = 0; c < ROWS; ++c) {
      HR_ASSERT_NEAR(z[r * ROWS + c], w->p_values[c * COLUMNS + r * 6], 0);
    }
  }
  for (int64_t i = 0; i < ROWS * COLUMNS; ++i) {
    float g = 0;
    for (int64_t k = 0; k < DEPTH; ++k) {
      g += w->x_values[k * ROWS + i / COLUMNS] * w->y_values[k * COLUMNS + i % COLUMNS];
    }
    w->p_values[i] -= g * g;
    HR_ASSERT_NEAR(p[i], w->p_values[i], 0);
  }
  free(z), free(p);
}

/* ---- pairs by hand ---- */

static bool hands_over(const hr_prepared *prepared) {
  return *(const bool *)prepared;
}

/* Step 0 computes buffer 2 of buffers 0 and 1; step 1 changes buffer 3 by it and by the number in buffer 4. */
enum { BUFFERS = 5, ARGS = 3, SIDE = 8 };
typedef struct made {
  hr_instance instance;
  hr_plan plan;
  hr_place places[BUFFERS];
  hr_step sources[2];
  hr_exec_step steps[3];
  hr_step_call call;
  uint32_t args[2 * ARGS];
  hr_kernel kernel;
  hr_kernel_arg kernel_args[ARGS];
  hr_access accesses[ARGS + 1];
  int64_t dims[2], dense[2], constant[2], transposed[2];
  bool hands_over;
} made;

static made *pair(void) {
  static const hr_provider provider = {.hands_over = hands_over};
  static made m;
  memset(&m, 0, sizeof m);
  m.hands_over = true;
  m.dims[0] = m.dims[1] = SIDE, m.dense[0] = SIDE, m.dense[1] = 1, m.transposed[0] = 1, m.transposed[1] = SIDE;
  for (int b = 0; b < BUFFERS; ++b) {
    m.places[b] = (hr_place){.kind = HR_PLACE_ARENA, .offset = (size_t)b << 10, .bytes = SIDE * SIDE * sizeof(float)};
  }
  m.call.ready = (hr_ready){.algorithm = {&provider, HR_ALGORITHM_OWN}, .prepared = (hr_prepared *)&m.hands_over};
  for (int i = 0; i < ARGS; ++i) {
    m.args[i] = hr__arg_of_buffer((uint32_t)i);
    m.args[ARGS + i] = hr__arg_of_buffer((uint32_t)(i + 2));
    m.kernel_args[i] = (hr_kernel_arg){.buffer = (uint32_t)(i + 2), .is_read = true, .is_written = i == 1};
    m.accesses[i] = (hr_access){.arg = i, .dtype = HR_DTYPE_F32, .strides = i == 2 ? m.constant : m.dense};
  }
  m.accesses[ARGS] = m.accesses[1]; /* its store */
  m.kernel = (hr_kernel){.rank = 2,
                         .dims = m.dims,
                         .arg_count = ARGS,
                         .args = m.kernel_args,
                         .access_count = ARGS + 1,
                         .accesses = m.accesses};
  m.sources[1] = (hr_step){.kind = HR_STEP_KERNEL, .kernel = &m.kernel};
  m.steps[0] = (hr_exec_step){.kind = HR_STEP_LIBRARY, .call = &m.call};
  m.steps[1] = (hr_exec_step){.kind = HR_STEP_KERNEL, .cached = (hr_cached_kernel *)&m, .arg_first = ARGS};
  m.steps[2].arg_first = 2 * ARGS;
  m.plan.schedule.places = m.places, m.plan.schedule.steps = m.sources;
  m.instance = (hr_instance){.plan = &m.plan, .step_count = 2, .steps = m.steps};
  return &m;
}

static uint8_t find_taker(made *m) {
  m->instance.args = hr_narrow_make(2 * ARGS, m->args);
  HR_ASSERT_NOT_NULL(m->instance.args);
  uint8_t taker = hr__find_taker(&m->instance, 0);
  hr_free(m->instance.args);
  return taker;
}

#define EXPECT(is_taken, change)                     \
  do {                                               \
    made *m = pair();                                \
    change;                                          \
    HR_ASSERT_EQ(find_taker(m), (is_taken) ? 2 : 0); \
  } while (0)

HR_TEST(kernels_that_take_a_result) {
  EXPECT(true, (void)m);
  EXPECT(false, m->hands_over = false);
  EXPECT(false, m->instance.step_count = 1);
  EXPECT(false, m->steps[1].cached = NULL);
  EXPECT(false, m->call.tuning = (hr_tuning *)m); /* others are timed */
  EXPECT(false, m->kernel.order = HR_ORDER_LANES);
  EXPECT(false, m->kernel.is_repeated = true);
  EXPECT(false, m->dims[0] = SIDE - 1); /* a part of the result */
}

HR_TEST(elements_have_one_order_in_all_arrays) {
  for (int i = 0; i < 3; ++i) {
    EXPECT(false, m->accesses[i].strides = m->transposed);
    EXPECT(false, m->accesses[i].term_count = 1);
    EXPECT(false, m->accesses[i].bound_count = 1);
  }
  EXPECT(false, m->accesses[0].offset = 1);
  EXPECT(false, m->accesses[1].offset = 1);
  EXPECT(false, m->accesses[0].strides = m->constant);
  EXPECT(false, m->accesses[0].dtype = HR_DTYPE_F16);
  EXPECT(false, m->accesses[1].dtype = HR_DTYPE_F16);
  EXPECT(false, m->accesses[2].arg = 1); /* an element of an array that changes */
  EXPECT(false, m->accesses[2].arg = 0);
}

HR_TEST(what_a_call_uses_stays_as_it_is) {
  EXPECT(false, m->kernel_args[0].is_written = true);
  EXPECT(false, m->kernel_args[1].buffer = 0);
  EXPECT(false, m->places[3].offset = m->places[1].offset + 64);
  EXPECT(false, m->places[4].offset = m->places[2].offset + 64);
  EXPECT(true, m->kernel_args[2].buffer = 0); /* both read it */
  EXPECT(true, m->args[1] = HR_ABSENT_ARG);
  EXPECT(false, m->args[2] = hr__arg_of_scalar(0));
}

/* ---- a stream ---- */

static bool has_sgemm(void) {
  bool has = false;
  for (const hr_provider *const *p = hr__algorithms_providers(HR_DIALECT_HOST); *p != NULL; ++p) {
    has |= strcmp((*p)->name, "sgemm") == 0;
  }
  return has;
}

HR_TEST(an_update_takes_its_gradient) {
  world w = open_world();
  int64_t kernels = 0;
  for (int i = 0; i < ROUNDS; ++i) {
    kernels = step(&w, w.p);
    expect(&w);
  }
  HR_ASSERT_EQ(kernels == 0, has_sgemm() && hr_cpu_has(HR_CPU_AVX512F));
  close_world(&w);
}
