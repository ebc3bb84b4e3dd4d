/* Two runtime contexts in one process: streams in both, each with its own devices, caches and settings. */
#include "hr_test.h"

#include "base/arena.h"
#include "base/context.h"
#include "base/thread.h"
#include "engine/compile_queue.h"
#include "engine/kernel_cache.h"
#include "engine/stream.h"

enum { COUNT = 4096 };
#include "vectors.h"

/* A context with a device, a stream and two buffers. */
typedef struct world {
  hr_context *context;
  hr_device *device;
  hr_stream *stream;
  hr_buffer *x, *y;
} world;

static world open_world(const char *device) {
  world w;
  float values[COUNT];
  HR_ASSERT_OK(hr__context_create(&w.context));
  hr_context *before = hr__context_enter(w.context);
  HR_ASSERT_OK(hr_device_open(device, &w.device));
  hr__context_enter(before);
  HR_ASSERT_OK(hr_stream_create(w.device, &w.stream));
  HR_ASSERT_OK(hr_buffer_create(w.device, sizeof values, &w.x));
  HR_ASSERT_OK(hr_buffer_create(w.device, sizeof values, &w.y));
  for (int i = 0; i < COUNT; ++i) {
    values[i] = (float)i;
  }
  hr_view view = view_of(w.x);
  HR_ASSERT_OK(hr_stream_write(w.stream, &view, values));
  return w;
}

static void close_world(world *w) {
  hr_buffer_release(w->x);
  hr_buffer_release(w->y);
  hr_stream_release(w->stream);
  hr_device_release(w->device);
  hr__context_destroy(w->context);
}

/* y = (x + factor) * x, and a read of one element. */
static void step(world *w, double factor) {
  float values[COUNT];
  hr_scalar scalar = hr_scalar_f64(factor);
  hr_view x = view_of(w->x), y = view_of(w->y), number = {.scalar = &scalar, .dtype = scalar.dtype};
  HR_ASSERT_OK(hr_stream_record(w->stream, HR_OP_ADD, NULL, 2, (const hr_view[]){x, number}, 1, &y));
  HR_ASSERT_OK(hr_stream_record(w->stream, HR_OP_MUL, NULL, 2, (const hr_view[]){y, x}, 1, &y));
  HR_ASSERT_OK(hr_stream_read(w->stream, &y, values));
  HR_ASSERT_EQ(values[7], (float)((7 + factor) * 7));
  HR_ASSERT_EQ(values[COUNT - 1], (float)((COUNT - 1 + factor) * (COUNT - 1)));
}

static size_t kernels_of(const world *w) {
  hr_context *before = hr__context_enter(w->context);
  size_t count = hr__kernel_cache_count();
  hr__context_enter(before);
  return count;
}

HR_TEST(one_of_two_contexts_goes_and_the_other_works_on) {
  world first = open_world("cpu"); /* libraries are opened here, and stay */
  step(&first, 1);
  close_world(&first);
  hr_arena_forget();
  int64_t live = hr__allocator_live();
  world a = open_world("cpu"), b = open_world("cpu");
  HR_ASSERT(a.device != b.device && a.device->context == a.context && b.device->context == b.context);
  for (int i = 0; i < 3; ++i) {
    step(&a, i);
    step(&b, i + 10);
  }
  HR_ASSERT_EQ(kernels_of(&a), 1);
  HR_ASSERT_EQ(kernels_of(&b), 1);
  HR_ASSERT(hr__context() == &hr__context_first);
  close_world(&a);
  for (int i = 0; i < 3; ++i) {
    step(&b, i + 20);
  }
  HR_ASSERT_EQ(kernels_of(&b), 1);
  close_world(&b);
  hr_arena_forget();
  HR_ASSERT_EQ(hr__allocator_live(), live);
}

HR_TEST(a_stream_has_its_contexts_settings) {
  setenv("HEADRACE_MODE", "eager", 1);
  world eager = open_world("cpu");
  setenv("HEADRACE_MODE", "fuse", 1);
  world fuse = open_world("cpu");
  unsetenv("HEADRACE_MODE");
  HR_ASSERT_EQ(hr_stream_mode(eager.stream), HR_MODE_EAGER);
  HR_ASSERT_EQ(hr_stream_mode(fuse.stream), HR_MODE_FUSE);
  step(&eager, 3);
  step(&fuse, 3);
  hr_stats stats;
  hr_stream_stats(eager.stream, &stats);
  HR_ASSERT_EQ(stats.kernels, 2);
  hr_stream_stats(fuse.stream, &stats);
  HR_ASSERT_EQ(stats.kernels, 1);
  close_world(&eager);
  close_world(&fuse);
}

HR_TEST(each_context_compiles_for_itself_and_its_compiler_ends_with_it) {
  hr_stats stats;
  setenv("HEADRACE_JIT", "wait", 1);
  setenv("HEADRACE_CACHE", "-", 1);
  world a = open_world("cpu"), b = open_world("cpu");
  step(&a, 1);
  hr_stream_stats(a.stream, &stats);
  int64_t made = stats.jit_compiled + stats.jit_unable;
  hr_stream_stats(b.stream, &stats);
  HR_ASSERT_EQ(stats.jit_compiled + stats.jit_unable, 0);
  close_world(&a);
  step(&b, 2);
  hr_stream_stats(b.stream, &stats);
  HR_ASSERT_EQ(stats.jit_compiled + stats.jit_unable, made);
  close_world(&b);
  unsetenv("HEADRACE_JIT");
  unsetenv("HEADRACE_CACHE");
}

typedef struct runner {
  world w;
  int steps;
} runner;

static void run_steps(void *arg) {
  runner *r = arg;
  for (int i = 0; i < r->steps; ++i) {
    step(&r->w, i);
  }
}

HR_TEST(contexts_work_on_threads_of_their_own) {
  enum { THREADS = 3 };
  runner runners[THREADS];
  hr_thread threads[THREADS];
  for (int i = 0; i < THREADS; ++i) {
    runners[i] = (runner){open_world("cpu"), 40};
    HR_ASSERT_OK(hr_thread_start("context", run_steps, &runners[i], &threads[i]));
  }
  for (int i = 0; i < THREADS; ++i) {
    hr_thread_join(&threads[i]);
    close_world(&runners[i].w);
  }
}

/* Two contexts with the null device: each has its own counters. */
HR_TEST(the_default_context_sees_nothing_of_others) {
  hr_device *device;
  HR_ASSERT_OK(hr_device_open("null", &device));
  HR_ASSERT(device->context == &hr__context_first);
  world w = open_world("null");
  HR_ASSERT(w.device != device);
  hr_memory_stats before, after;
  hr_device_memory_stats(device, &before);
  float values[COUNT];
  hr_view x = view_of(w.x), y = view_of(w.y);
  HR_ASSERT_OK(hr_stream_record(w.stream, HR_OP_MUL, NULL, 2, (const hr_view[]){x, x}, 1, &y));
  HR_ASSERT_OK(hr_stream_read(w.stream, &y, values));
  hr_device_memory_stats(device, &after);
  HR_ASSERT_EQ(before.allocation_count, after.allocation_count);
  close_world(&w);
  hr_device_release(device);
}
