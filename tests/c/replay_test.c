/* replay_test.c: repeated programs give the same bits as graphs of the driver and step by step.
 *
 * The CPU stands in for a device with graphs: its driver gets a capture that records launches and library calls instead
 * of running them. Its graphs run the recorded work with the latest arguments. The reference is the CPU itself.
 */
#include <pthread.h>
#include <time.h>

#include "hr_test.h"

#include "base/env.h"
#include "cpu_stand_in.h"
#include "engine/stream.h"
#include "program_runner.h"
#include "program_stream.h"

/* ---- the device ---- */

/* A kernel, or a library's call. */
typedef struct node {
  hr_host_launch launch;
  const hr_exec_step *step; /* the launch that it belongs to */
  void **args;
  hr_scalar *scalars;
  void *workspace;
} node;

typedef struct graph {
  int count, kernel_count;
  node nodes[512];
} graph;

typedef enum fault { NO_FAULT, BEGIN_FAILS, END_FAILS, UPDATE_FAILS, LAUNCH_FAILS, FAULTS } fault;

static hr_driver driver; /* the CPU's, changed */
static hr_device device;
static const hr_driver *cpu;
static hr_stream *current; /* whose programs run */
static graph *captured;    /* NULL: nothing is */
static int live_graphs, launched_graphs, updated_nodes;
static fault wanted_fault;
static int queue_word; /* whose address is the queue of a capture */
static bool captures_calls;

static hr_status fail(fault f, const char *what) {
  return wanted_fault == f ? hr_status_make(HR_STATUS_INTERNAL, "the stand-in's %s", what) : HR_OK;
}

/* The step of a program in the cache that the kernel belongs to, by the place of its arguments. */
static const hr_exec_step *step_of(const hr_host_launch *launch) {
  for (hr_instance *e = current->cache.newest; e != NULL; e = e->older) {
    for (int i = 0; i < e->step_count; ++i) {
      if (e->steps[i].kind == HR_STEP_KERNEL && hr__step_kernel(&e->steps[i]) == launch->kernel) {
        return &e->steps[i];
      }
    }
  }
  HR_FAIL("a launch of no kernel");
  return NULL;
}

static void keep_arguments(node *n, int arg_count, void *const *args, int scalar_count, const hr_scalar *scalars) {
  n->args = calloc((size_t)arg_count + 1, sizeof *n->args);
  n->scalars = calloc((size_t)scalar_count + 1, sizeof *n->scalars);
  memcpy((void *)n->args, (const void *)args, (size_t)arg_count * sizeof *args);
  if (scalar_count > 0) {
    memcpy(n->scalars, scalars, (size_t)scalar_count * sizeof *scalars);
  }
}

static void drop_arguments(node *n) {
  free((void *)n->args);
  free(n->scalars);
}

static node *add_node(void) {
  HR_ASSERT(captured->count < (int)(sizeof captured->nodes / sizeof *captured->nodes));
  return &captured->nodes[captured->count++];
}

static void keep_kernel(node *n, const hr_host_launch *launch) {
  n->step = step_of(launch);
  n->launch = *launch;
  keep_arguments(n, hr__step_arg_count(n->step), launch->call.args, hr__step_scalar_count(n->step),
                 launch->call.scalars);
  n->launch.call.args = n->args, n->launch.call.scalars = n->scalars;
}

static hr_status stand_in_launch(void *impl, int count, const hr_host_launch *launches) {
  if (captured == NULL) {
    return cpu->launch(impl, count, launches);
  }
  for (int i = 0; i < count; ++i) {
    keep_kernel(add_node(), &launches[i]);
    ++captured->kernel_count;
  }
  return HR_OK;
}

static hr_status stand_in_call(void *impl, hr_host_fn fn, void *arg) {
  (void)impl;
  if (captured != NULL && !captures_calls) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "a library of the host in a capture");
  }
  return fn(arg);
}

static void *stand_in_native(void *impl) {
  return impl;
}

static void destroy(graph *g) {
  for (int i = 0; i < g->count; ++i) {
    drop_arguments(&g->nodes[i]);
  }
  free(g);
  --live_graphs;
}

static hr_status capture_begin(void *impl, void **out_queue) {
  (void)impl;
  HR_ASSERT_NULL(captured);
  HR_RETURN_IF_ERROR(fail(BEGIN_FAILS, "begin"));
  captured = calloc(1, sizeof *captured);
  ++live_graphs;
  *out_queue = &queue_word;
  return HR_OK;
}

static hr_status capture_end(void *impl, void **out_graph) {
  (void)impl;
  graph *g = captured;
  captured = NULL;
  hr_status status = fail(END_FAILS, "end");
  if (status != HR_OK || out_graph == NULL) {
    destroy(g);
  } else {
    *out_graph = g;
  }
  return status;
}

static hr_status graph_update(void *impl, void *updated, int index, const hr_host_launch *launch) {
  (void)impl;
  graph *g = updated;
  HR_RETURN_IF_ERROR(fail(UPDATE_FAILS, "update"));
  HR_ASSERT(index >= 0 && index < g->kernel_count);
  node *n = g->nodes;
  for (int kernels = 0; kernels < index || n->step->kind != HR_STEP_KERNEL; ++n) {
    kernels += n->step->kind == HR_STEP_KERNEL;
  }
  HR_ASSERT(n->launch.kernel == launch->kernel);
  drop_arguments(n);
  keep_kernel(n, launch);
  ++updated_nodes;
  return HR_OK;
}

static hr_status graph_launch(void *impl, void *launched) {
  const graph *g = launched;
  HR_ASSERT_NULL(captured);
  HR_RETURN_IF_ERROR(fail(LAUNCH_FAILS, "launch"));
  ++launched_graphs;
  for (int i = 0; i < g->count; ++i) {
    const node *n = &g->nodes[i];
    HR_RETURN_IF_ERROR(
        n->step->kind == HR_STEP_KERNEL
            ? cpu->launch(impl, 1, &n->launch)
            : n->step->call->ready.algorithm.provider->run(n->step->call->ready.prepared, n->args, n->workspace, impl));
  }
  return HR_OK;
}

static void graph_destroy(void *impl, void *g) {
  (void)impl;
  if (g != NULL) {
    destroy(g);
  }
}

static void open_stand_in(hr__side *side) {
  setenv("HEADRACE_JIT", "off", 1); /* a kernel stays itself */
  hr__env_reload();
  cpu = hr__cpu_driver();
  driver = *cpu;
  driver.launch = stand_in_launch;
  driver.call = stand_in_call;
  driver.native = stand_in_native;
  driver.capture_begin = capture_begin;
  driver.capture_end = capture_end;
  driver.graph_update = graph_update;
  driver.graph_launch = graph_launch;
  driver.graph_destroy = graph_destroy;
  hr__stand_in_open(&device, &driver, "stand-in");
  side->device = &device;
  HR_ASSERT_OK(hr_stream_create(&device, &side->stream));
  hr_stream_set_mode(side->stream, HR_MODE_FUSE);
  current = side->stream;
  wanted_fault = NO_FAULT, captures_calls = false;
  live_graphs = launched_graphs = updated_nodes = 0;
}

static void close_stand_in(hr__side *side) {
  hr_stream_release(side->stream);
  hr__stand_in_close(&device);
  HR_ASSERT_EQ(live_graphs, 0); /* they went with their programs */
}

static void open_cpu(hr__side *side) {
  HR_ASSERT_OK(hr_device_open("cpu", &side->device));
  HR_ASSERT_OK(hr_stream_create(side->device, &side->stream));
  hr_stream_set_mode(side->stream, HR_MODE_FUSE);
}

static void close_cpu(hr__side *side) {
  hr_stream_release(side->stream);
  hr_device_release(side->device);
}

static hr_stats stats_of(const hr__side *side) {
  hr_stats stats;
  hr_stream_stats(side->stream, &stats);
  return stats;
}

/* ---- a program of some steps ---- */

enum { ROWS = 48, COLUMNS = 80, COUNT = ROWS * COLUMNS };
static const int64_t dims[2] = {ROWS, COLUMNS}, strides[2] = {COLUMNS, 1}, sum_dims[2] = {1, COLUMNS}, wide[2] = {0, 1};

static hr_view view_of(hr_buffer *buffer) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
}

static hr_buffer *make(const hr__side *side) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(side->device, COUNT * sizeof(float), &buffer));
  return buffer;
}

static hr_buffer *make_ramp(const hr__side *side, float step) {
  static float values[COUNT];
  hr_buffer *buffer = make(side);
  hr_view view = view_of(buffer);
  for (int i = 0; i < COUNT; ++i) {
    values[i] = (float)((i * 37) % 101 - 50) * step;
  }
  HR_ASSERT_OK(hr_stream_write(side->stream, &view, values));
  return buffer;
}

/* x -= the sums of its columns * by, three times, then out = x + by: a kernel for each sum, and one for the rest. */
static hr_status record_steps(const hr__side *side, hr_buffer *x, hr_buffer *out, double by) {
  hr_scalar number = hr_scalar_f64(by);
  hr_view scalar = {.scalar = &number, .dtype = number.dtype}, xs = view_of(x), to = view_of(out);
  hr_attrs attrs = {.int_count = 1, .ints = (const int64_t[]){1}};
  for (int round = 0; round < 3; ++round) {
    hr_buffer *sum;
    HR_RETURN_IF_ERROR(hr_buffer_create(side->device, COLUMNS * sizeof(float), &sum));
    hr_view sums = {.buffer = sum, .dtype = HR_DTYPE_F32, .rank = 2, .dims = sum_dims, .strides = strides};
    hr_view spread = {.buffer = sum, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = wide};
    hr_status status = hr_stream_record(side->stream, HR_OP_SUM, &attrs, 1, &xs, 1, &sums);
    if (status == HR_OK) {
      status = hr_stream_record(side->stream, HR_OP_MUL, NULL, 2, (hr_view[]){sums, scalar}, 1, &sums);
    }
    if (status == HR_OK) {
      status = hr_stream_record(side->stream, HR_OP_SUB, NULL, 2, (hr_view[]){xs, spread}, 1, &xs);
    }
    hr_buffer_release(sum);
    HR_RETURN_IF_ERROR(status);
  }
  return hr_stream_record(side->stream, HR_OP_ADD, NULL, 2, (hr_view[]){xs, scalar}, 1, &to);
}

static void check_same(const hr__side *a, hr_buffer *x, const hr__side *b, hr_buffer *y) {
  static float left[COUNT], right[COUNT];
  hr_view from_x = view_of(x), from_y = view_of(y);
  HR_ASSERT_OK(hr_stream_read(a->stream, &from_x, left));
  HR_ASSERT_OK(hr_stream_read(b->stream, &from_y, right));
  HR_ASSERT_BYTES_EQ(left, right, sizeof left);
}

typedef struct twins {
  hr__side sides[2]; /* the stand-in, the CPU */
  hr_buffer *x[2];
} twins;

static void open_twins(twins *t) {
  open_stand_in(&t->sides[0]);
  open_cpu(&t->sides[1]);
  for (int s = 0; s < 2; ++s) {
    t->x[s] = make_ramp(&t->sides[s], 0.01f);
  }
}

static void close_twins(twins *t) {
  for (int s = 0; s < 2; ++s) {
    hr_buffer_release(t->x[s]);
  }
  close_cpu(&t->sides[1]);
  close_stand_in(&t->sides[0]);
}

/* Runs the steps on both, with outputs that the caller releases, and compares the results. */
static void run_twins(twins *t, double by, hr_buffer **out) {
  for (int s = 0; s < 2; ++s) {
    out[s] = make(&t->sides[s]);
    HR_ASSERT_OK(record_steps(&t->sides[s], t->x[s], out[s], by));
    HR_ASSERT_OK(hr_stream_synchronize(t->sides[s].stream));
  }
  check_same(&t->sides[0], out[0], &t->sides[1], out[1]);
  check_same(&t->sides[0], t->x[0], &t->sides[1], t->x[1]);
}

static void release(hr_buffer **out) {
  hr_buffer_release(out[0]);
  hr_buffer_release(out[1]);
}

HR_TEST(a_program_is_a_graph_from_the_third_run_on_and_takes_other_scalars) {
  twins t;
  hr_buffer *out[2];
  open_twins(&t);
  for (int run = 1; run <= 8; ++run) {
    run_twins(&t, run < 6 ? 0.01 * run : 0.06, out);
    release(out);
    hr_stats stats = stats_of(&t.sides[0]);
    HR_ASSERT_EQ(stats.graph_builds, run < 3 ? 0 : 1);
    HR_ASSERT_EQ(stats.graph_launches, run < 3 ? 0 : run - 2);
    HR_ASSERT_EQ(launched_graphs, stats.graph_launches);
    HR_ASSERT_EQ(updated_nodes, stats.graph_updates);
    HR_ASSERT(run != 3 || updated_nodes == 0);
    HR_ASSERT(run < 4 || updated_nodes >= 3);
    HR_ASSERT(stats.groups >= run * 3); /* counters of runs are unchanged */
  }
  HR_ASSERT_EQ(updated_nodes % 3, 0); /* in runs 4, 5 and 6 alone */
  HR_ASSERT_EQ(stats_of(&t.sides[1]).graph_launches, 0);
  close_twins(&t);
}

HR_TEST(a_few_sets_of_addresses_have_graphs_and_others_go_step_by_step) {
  enum { OUTS = 24 };
  static const int widths[] = {1, 3, 4, 7, 10};
  for (size_t w = 0; w < sizeof widths / sizeof *widths; ++w) {
    twins t;
    hr_buffer *outs[OUTS][2] = {{0}};
    open_twins(&t);
    for (int run = 0; run < 20 * widths[w]; ++run) { /* as many outputs live at once, each at an address of its own */
      hr_buffer **out = outs[run % widths[w]];
      if (out[0] != NULL) {
        release(out);
      }
      run_twins(&t, 0.01, out);
    }
    hr_stats stats = stats_of(&t.sides[0]);
    HR_ASSERT(live_graphs <= 4 && stats.graph_builds >= live_graphs);
    if (widths[w] <= 4) {
      HR_ASSERT(stats.graph_launches >= 10 * widths[w]);
      HR_ASSERT(stats.graph_builds <= 4);
    }
    HR_ASSERT(stats.graph_builds <= 4 + 3); /* hardly any are built if addresses change all the time */
    for (int i = 0; i < OUTS; ++i) {
      if (outs[i][0] != NULL) {
        release(outs[i]);
      }
    }
    close_twins(&t);
  }
}

HR_TEST(whatever_fails_the_steps_run_as_before) {
  for (int f = BEGIN_FAILS; f < FAULTS; ++f) {
    for (int when = 3; when <= 5; ++when) {
      twins t;
      hr_buffer *out[2];
      open_twins(&t);
      for (int run = 1; run <= 8; ++run) {
        wanted_fault = run >= when ? (fault)f : NO_FAULT;
        run_twins(&t, 0.01 * run, out);
        release(out);
      }
      bool is_over = f == LAUNCH_FAILS || f == UPDATE_FAILS || ((f == BEGIN_FAILS || f == END_FAILS) && when == 3);
      HR_ASSERT_EQ(live_graphs, is_over ? 0 : 1);
      HR_ASSERT(!is_over || launched_graphs <= when - 2);
      close_twins(&t);
    }
  }
}

HR_TEST(a_failure_is_tried_once) {
  twins t;
  hr_buffer *out[2];
  open_twins(&t);
  for (int run = 1; run <= 8; ++run) {
    wanted_fault = run == 3 ? END_FAILS : NO_FAULT;
    run_twins(&t, 0.01, out);
    release(out);
  }
  HR_ASSERT_EQ(stats_of(&t.sides[0]).graph_launches, 0);
  close_twins(&t);
}

/* ---- checks ---- */

/* The steps, rows of x picked by an index in between, and the steps again: the check of the index cuts them. */
static hr_status record_picks(const hr__side *side, hr_buffer *x, hr_buffer *index, hr_buffer *out, double by) {
  const int64_t count[1] = {ROWS}, one[1] = {1};
  hr_attrs attrs = {.int_count = 1, .ints = (const int64_t[]){0}};
  hr_buffer *picked;
  HR_RETURN_IF_ERROR(record_steps(side, x, out, by));
  HR_RETURN_IF_ERROR(hr_buffer_create(side->device, COUNT * sizeof(float), &picked));
  hr_view to = view_of(picked),
          rows = {.buffer = index, .dtype = HR_DTYPE_I64, .rank = 1, .dims = count, .strides = one};
  hr_status status =
      hr_stream_record(side->stream, HR_OP_INDEX_SELECT, &attrs, 2, (hr_view[]){view_of(out), rows}, 1, &to);
  if (status == HR_OK) {
    status = record_steps(side, picked, out, by);
  }
  hr_buffer_release(picked);
  return status;
}

static void write_index(const hr__side *side, hr_buffer *buffer, int64_t last) {
  int64_t values[ROWS];
  const int64_t count[1] = {ROWS}, one[1] = {1};
  for (int64_t i = 0; i < ROWS; ++i) {
    values[i] = (i * 7) % ROWS;
  }
  values[ROWS - 1] = last;
  hr_view view = {.buffer = buffer, .dtype = HR_DTYPE_I64, .rank = 1, .dims = count, .strides = one};
  HR_ASSERT_OK(hr_stream_write(side->stream, &view, values));
  HR_ASSERT_OK(hr_stream_synchronize(side->stream));
}

HR_TEST(checks_cut_graphs_and_what_follows_a_failed_one_does_not_run) {
  twins t;
  hr_buffer *out[2], *index[2];
  open_twins(&t);
  for (int s = 0; s < 2; ++s) {
    out[s] = make_ramp(&t.sides[s], 1);
    HR_ASSERT_OK(hr_buffer_create(t.sides[s].device, ROWS * sizeof(int64_t), &index[s]));
  }
  for (int run = 1; run <= 10; ++run) {
    bool is_bad = run == 2 || run == 6 || run == 7;
    int launched = launched_graphs;
    for (int s = 0; s < 2; ++s) {
      write_index(&t.sides[s], index[s], is_bad ? ROWS : run);
      hr_status status = record_picks(&t.sides[s], t.x[s], index[s], out[s], 0.01 * run);
      status = status != HR_OK ? status : hr_stream_synchronize(t.sides[s].stream);
      HR_ASSERT_EQ(hr_status_code_of(status), is_bad ? HR_STATUS_OUT_OF_RANGE : HR_STATUS_OK);
      hr_status_free(status);
    }
    check_same(&t.sides[0], out[0], &t.sides[1], out[1]);
    check_same(&t.sides[0], t.x[0], &t.sides[1], t.x[1]);
    HR_ASSERT(run < 3 || launched_graphs > launched);
  }
  HR_ASSERT(live_graphs >= 1); /* before the check there may be too few steps for one */
  for (int s = 0; s < 2; ++s) {
    hr_buffer_release(out[s]);
    hr_buffer_release(index[s]);
  }
  close_twins(&t);
}

/* ---- libraries ---- */

/* Stands for a library of the device: its run gives the call to the queue of a capture, or makes it. */
static hr_provider library;
static const hr_provider *made_library;
static int library_calls;

static hr_status run_library(hr_prepared *prepared, void *const *args, void *workspace, void *queue) {
  if (queue != &queue_word) {
    HR_ASSERT(queue == device.impl && captured == NULL);
    ++library_calls;
    return made_library->run(prepared, args, workspace, NULL);
  }
  node *n = add_node();
  for (hr_instance *e = current->cache.newest; e != NULL; e = e->older) {
    for (int i = 0; i < e->step_count; ++i) {
      const hr_step_call *call = e->steps[i].call;
      n->step = call != NULL && call->ready.prepared == prepared ? &e->steps[i] : n->step;
    }
  }
  HR_ASSERT_NOT_NULL(n->step);
  keep_arguments(n, hr__step_arg_count(n->step), args, 0, NULL);
  n->workspace = workspace;
  return HR_OK;
}

/* Has the library's steps of the newest program run by ours from now on. */
static void stand_for_libraries(void) {
  const hr_instance *e = current->cache.newest;
  for (int i = 0; i < e->step_count; ++i) {
    hr_algorithm *algorithm = e->steps[i].call != NULL ? &e->steps[i].call->ready.algorithm : NULL;
    if (algorithm != NULL && algorithm->provider != &library) {
      made_library = algorithm->provider;
      library = *made_library;
      library.run = run_library;
      algorithm->provider = &library;
    }
  }
}

/* The steps; x plus the product of out's first values with x as a matrix; the steps again. */
static hr_status record_product(const hr__side *side, hr_buffer *x, hr_buffer *out, double by) {
  static const int64_t row[2] = {1, ROWS};
  hr_buffer *product;
  hr_view xs = view_of(x);
  HR_RETURN_IF_ERROR(record_steps(side, x, out, by));
  HR_RETURN_IF_ERROR(hr_buffer_create(side->device, COLUMNS * sizeof(float), &product));
  hr_view factors[3] = {view_of(out), xs, {0}}, spread = view_of(product), sums = spread;
  factors[0].dims = row, sums.dims = sum_dims, spread.strides = wide;
  hr_status status = hr_stream_record(side->stream, HR_OP_MATMUL, NULL, 3, factors, 1, &sums);
  if (status == HR_OK) {
    status = hr_stream_record(side->stream, HR_OP_ADD, NULL, 2, (hr_view[]){xs, spread}, 1, &xs);
  }
  if (status == HR_OK) {
    status = record_steps(side, x, out, by);
  }
  hr_buffer_release(product);
  return status;
}

HR_TEST(library_calls_are_part_of_a_graph) {
  twins t;
  hr_buffer *out[2];
  open_twins(&t);
  out[0] = make_ramp(&t.sides[0], 1), out[1] = make_ramp(&t.sides[1], 1);
  captures_calls = true;
  library_calls = 0;
  for (int run = 1; run <= 6; ++run) {
    for (int s = 0; s < 2; ++s) {
      HR_ASSERT_OK(record_product(&t.sides[s], t.x[s], out[s], 0.01 * run));
      HR_ASSERT_OK(hr_stream_synchronize(t.sides[s].stream));
    }
    check_same(&t.sides[0], out[0], &t.sides[1], out[1]);
    check_same(&t.sides[0], t.x[0], &t.sides[1], t.x[1]);
    stand_for_libraries();
  }
  HR_ASSERT_EQ(library_calls, 1 + 4); /* in run 2, and by graphs */
  HR_ASSERT_EQ(stats_of(&t.sides[0]).graph_launches, 4);
  HR_ASSERT_EQ(stats_of(&t.sides[0]).library_calls, 6);
  hr_buffer_release(out[0]);
  hr_buffer_release(out[1]);
  close_twins(&t);
}

enum { WEIGHT_ROWS = 400 };

/* The steps, and the product of out's first values with w, integers, as f32; w changes from time to time. */
static hr_status record_weights(const hr__side *side, hr_buffer *x, hr_buffer *w, hr_buffer *out, double by) {
  static const int64_t row[2] = {1, WEIGHT_ROWS}, tall[2] = {WEIGHT_ROWS, COLUMNS};
  hr_buffer *made;
  HR_RETURN_IF_ERROR(record_steps(side, x, out, by));
  HR_RETURN_IF_ERROR(hr_buffer_create(side->device, WEIGHT_ROWS * COLUMNS * sizeof(float), &made));
  hr_view narrow = view_of(w), to = view_of(made), factors[3] = {view_of(out), to, {0}}, sums = view_of(x);
  narrow.dtype = HR_DTYPE_I16, narrow.dims = tall, to.dims = factors[1].dims = tall;
  factors[0].dims = row, sums.dims = sum_dims;
  hr_status status = hr_stream_record(side->stream, HR_OP_COPY, NULL, 1, &narrow, 1, &to);
  if (status == HR_OK) {
    status = hr_stream_record(side->stream, HR_OP_MATMUL, NULL, 3, factors, 1, &sums);
  }
  hr_buffer_release(made);
  return status;
}

HR_TEST(graphs_leave_out_what_is_kept_of_weights_until_they_change) {
  static int16_t values[WEIGHT_ROWS * COLUMNS];
  static const int64_t tall[2] = {WEIGHT_ROWS, COLUMNS};
  twins t;
  hr_buffer *out[2], *w[2];
  open_twins(&t);
  for (int s = 0; s < 2; ++s) {
    out[s] = make_ramp(&t.sides[s], 0.01f);
    HR_ASSERT_OK(hr_buffer_create(t.sides[s].device, sizeof values, &w[s]));
  }
  int with_graphs = 0;
  captures_calls = true;
  for (int run = 0; run < 24; ++run) {
    bool changes = run % 12 == 0 || run == 17;
    for (int i = 0; i < WEIGHT_ROWS * COLUMNS; ++i) {
      values[i] = (int16_t)((i * 31 + run) % 7 - 3);
    }
    int launched_before = launched_graphs;
    for (int s = 0; s < 2; ++s) {
      hr_view narrow = view_of(w[s]);
      narrow.dtype = HR_DTYPE_I16, narrow.dims = tall;
      if (changes) {
        HR_ASSERT_OK(hr_stream_write(t.sides[s].stream, &narrow, values));
      }
      HR_ASSERT_OK(record_weights(&t.sides[s], t.x[s], w[s], out[s], 0.001 * run));
      HR_ASSERT_OK(hr_stream_synchronize(t.sides[s].stream));
    }
    check_same(&t.sides[0], out[0], &t.sides[1], out[1]);
    check_same(&t.sides[0], t.x[0], &t.sides[1], t.x[1]);
    with_graphs += launched_graphs > launched_before;
    stand_for_libraries();
  }
  HR_ASSERT(with_graphs >= 10);
  for (int s = 0; s < 2; ++s) {
    hr_buffer_release(out[s]);
    hr_buffer_release(w[s]);
  }
  close_twins(&t);
}

/* ---- memory, tools, the switch ---- */

/* The third run, which captures, with the `n`th allocation from here on failing; false when none failed. */
static bool capture_without_memory(int64_t n) {
  twins t;
  hr_buffer *out[2];
  open_twins(&t);
  for (int run = 1; run <= 2; ++run) {
    run_twins(&t, 0.01, out);
    release(out);
  }
  out[0] = make(&t.sides[0]), out[1] = make(&t.sides[1]);
  HR_ASSERT_OK(record_steps(&t.sides[0], t.x[0], out[0], 0.02));
  HR_ASSERT_OK(record_steps(&t.sides[1], t.x[1], out[1], 0.02));
  hr__allocator_fail_after(n);
  hr_status status = hr_stream_synchronize(t.sides[0].stream);
  bool has_failed = hr__allocator_failures() > 0;
  hr__allocator_fail_after(-1);
  HR_ASSERT_OK(status); /* a graph is not needed */
  check_same(&t.sides[0], out[0], &t.sides[1], out[1]);
  release(out);
  run_twins(&t, 0.03, out);
  release(out);
  close_twins(&t);
  return has_failed;
}

HR_TEST(without_host_memory_steps_run_one_by_one) {
  int64_t n = 0;
  while (capture_without_memory(n)) {
    ++n;
  }
  HR_ASSERT(n >= 3);
}

static void watch(void *ctx, hr_instance *instance, hr_buffer *const *buffers, const int64_t *step_ns) {
  (void)instance, (void)buffers, (void)step_ns;
  ++*(int *)ctx;
}

HR_TEST(runs_that_are_timed_go_step_by_step) {
  twins t;
  hr_buffer *out[2];
  int watched = 0;
  open_twins(&t);
  t.sides[0].stream->watch = watch;
  t.sides[0].stream->watch_ctx = &watched;
  for (int run = 1; run <= 5; ++run) {
    run_twins(&t, 0.01, out);
    release(out);
  }
  HR_ASSERT_EQ(launched_graphs, 0);
  HR_ASSERT_EQ(watched, 5);
  close_twins(&t);
}

HR_TEST(graphs_can_be_switched_off) {
  twins t;
  hr_buffer *out[2];
  setenv("HEADRACE_GRAPHS", "off", 1);
  open_twins(&t);
  for (int run = 1; run <= 5; ++run) {
    run_twins(&t, 0.01, out);
    release(out);
  }
  HR_ASSERT_EQ(launched_graphs, 0);
  close_twins(&t);
  unsetenv("HEADRACE_GRAPHS");
}

/* ---- random programs ---- */

static bool are_alike(hr__side *sides, const generated *g, uint64_t seed, int run) {
  bool alike = true;
  for (int b = 0; alike && b < g->buffer_count; ++b) {
    char *bytes[2];
    hr_status_code codes[2];
    for (int s = 0; s < 2; ++s) {
      int64_t length[1], one[1];
      hr_view view = hr__side_bytes(&sides[s], g, b, length, one);
      bytes[s] = calloc(g->bytes[b] + 1, 1);
      hr_status status = hr_stream_read(sides[s].stream, &view, bytes[s]);
      codes[s] = hr_status_code_of(status);
      hr_status_free(status);
    }
    alike = codes[0] == codes[1] && memcmp(bytes[0], bytes[1], g->bytes[b]) == 0;
    if (!alike) {
      fprintf(stderr, "seed %llu: buffer %%%d differs after run %d\n", (unsigned long long)seed, b, run);
    }
    free(bytes[0]);
    free(bytes[1]);
  }
  return alike;
}

/* Some runs of one program with other numbers each time. */
static bool check_program(hr__side *sides, uint64_t seed) {
  generated g;
  bool alike = true;
  HR_ASSERT_OK(hr__generate_program(seed, 8 + (int)(seed % 25), &g));
  for (int s = 0; s < 2; ++s) {
    HR_ASSERT_OK(hr__side_fill(&sides[s], &g));
  }
  for (int run = 1; alike && run <= 6; ++run) {
    hr_status_code codes[2];
    for (int s = 0; s < 2; ++s) {
      hr_status status = hr__side_run(&sides[s], &g);
      codes[s] = hr_status_code_of(status);
      hr_status_free(status);
    }
    alike = codes[0] == codes[1] && are_alike(sides, &g, seed, run);
    for (int s = 0; s < 2 && seed % 2 == 1; ++s) { /* half of them from the same contents each time */
      HR_ASSERT_OK(hr__side_refill(&sides[s], &g));
    }
    for (int i = 0; run >= 3 && i < g.program.argument_count; ++i) {
      if (g.arguments[i].dtype == HR_DTYPE_F64) {
        g.arguments[i].value.f[0] *= 0.75;
      }
    }
  }
  for (int s = 0; s < 2; ++s) {
    hr__side_drop(&sides[s], &g);
  }
  hr__generated_fini(&g);
  return alike;
}

HR_TEST(random_programs_have_the_same_bits_as_graphs) {
  long count = hr__setting("HEADRACE_TEST_PROGRAMS", hr_test_count(150)), first = hr__setting("HEADRACE_TEST_SEED", 1),
       failures = 0;
  hr__side sides[2];
  open_stand_in(&sides[0]);
  open_cpu(&sides[1]);
  for (long k = 0; k < count && failures < 5; ++k) {
    failures += !check_program(sides, (uint64_t)(first + k));
  }
  hr_stats stats = stats_of(&sides[0]);
  fprintf(stderr, "  %lld graphs were made and launched %lld times, with %d updates\n", (long long)stats.graph_builds,
          (long long)stats.graph_launches, updated_nodes);
  HR_ASSERT_EQ(failures, 0);
  HR_ASSERT(stats.graph_launches > count);
  close_cpu(&sides[1]);
  close_stand_in(&sides[0]);
}

/* ---- threads that submit a program ---- */

static hr_status (*plain_launch)(void *impl, int count, const hr_host_launch *launches);
static pthread_t launched_by;
static int nap_ms;

static hr_status watched_launch(void *impl, int count, const hr_host_launch *launches) {
  launched_by = pthread_self();
  nanosleep(&(struct timespec){.tv_nsec = nap_ms * 1000000L}, NULL);
  return plain_launch(impl, count, launches);
}

/* Commits the steps without waiting, as streams do while they continue recording, then waits. True if this thread
 * launched them.
 */
static bool launches_here(const hr__side *side, hr_buffer *x) {
  hr_buffer *out = make(side);
  HR_ASSERT_OK(record_steps(side, x, out, 0.25));
  HR_ASSERT_OK(hr_stream_commit(side->stream));
  HR_ASSERT_OK(hr_stream_synchronize(side->stream));
  hr_buffer_release(out);
  return pthread_equal(launched_by, pthread_self()) != 0;
}

HR_TEST(a_program_that_was_given_to_a_device_quickly_is_given_by_the_calling_thread) {
  hr__side side;
  open_stand_in(&side);
  plain_launch = driver.launch, driver.launch = watched_launch;
  driver.capture_begin = NULL;
  device.properties.is_host = false;
  hr_buffer *x = make_ramp(&side, 0.01f);
  HR_ASSERT(!launches_here(&side, x)); /* not measured yet */
  hr_instance *program = side.stream->cache.newest;
  HR_ASSERT(atomic_load(&program->submit_ns) < INT64_MAX);
  atomic_store(&program->submit_ns, 1000);
  nap_ms = 20;
  HR_ASSERT(launches_here(&side, x));
  HR_ASSERT(atomic_load(&program->submit_ns) >= 20000000);
  HR_ASSERT(!launches_here(&side, x));
  nap_ms = 0;
  hr_buffer_release(x);
  close_stand_in(&side);
}
