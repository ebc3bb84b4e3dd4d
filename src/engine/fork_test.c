/* A process that has used the core forks: the child goes on with all of it, or gets an error. An alarm ends a child
 * that hangs. */
#include "hr_test.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "base/thread.h"
#include "cache_folder.h"
#include "engine/compile_queue.h"
#include "engine/stream.h"
#include "headrace/mark.h"

enum { COUNT = 1000, SIDE = 192, HANGS_AFTER_S = 30 };
#include "vectors.h"

typedef struct fixture {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *x;
} fixture;

static float number(int i) {
  return (float)i * 0.25f - 7;
}

static fixture open_on(const char *name) {
  fixture f;
  float values[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    values[i] = number(i);
  }
  HR_ASSERT_OK(hr_device_open(name, &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.stream));
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof values, &f.x));
  hr_view view = view_of(f.x);
  HR_ASSERT_OK(hr_stream_write(f.stream, &view, values));
  return f;
}

static fixture open_fixture(void) {
  return open_on("cpu");
}

static void close_fixture(fixture *f) {
  hr_buffer_release(f->x);
  hr_stream_release(f->stream);
  hr_device_release(f->device);
}

/* ---- programs of one kernel each: bit k of `which` selects the k-th operation ---- */

enum { STEPS = 7 };
static const hr_op op_of_bit[2] = {HR_OP_ADD, HR_OP_MAXIMUM};

static hr_buffer *record_chain(const fixture *f, int which) {
  hr_buffer *y = f->x;
  hr_buffer_retain(y);
  for (int k = 0; k < STEPS; ++k) {
    hr_buffer *next;
    HR_ASSERT_OK(hr_buffer_create(f->device, COUNT * sizeof(float), &next));
    const hr_scalar scalar = hr_scalar_f64(k - 2);
    hr_view in[] = {view_of(y), {.scalar = &scalar, .dtype = HR_DTYPE_F32}}, out = view_of(next);
    HR_ASSERT_OK(hr_stream_record(f->stream, op_of_bit[which >> k & 1], NULL, 2, in, 1, &out));
    hr_buffer_release(y);
    y = next;
  }
  return y;
}

static bool has_chain(const fixture *f, hr_buffer *y, int which) {
  float values[COUNT];
  hr_view view = view_of(y);
  hr_status status = hr_stream_read(f->stream, &view, values);
  bool is_right = status == HR_OK;
  hr_status_ignore(status);
  for (int i = 0; i < COUNT && is_right; ++i) {
    float wanted = number(i);
    for (int k = 0; k < STEPS; ++k) {
      wanted = which >> k & 1 ? fmaxf(wanted, (float)(k - 2)) : wanted + (float)(k - 2);
    }
    is_right = values[i] == wanted;
  }
  return is_right;
}

static bool run_chain(const fixture *f, int which) {
  hr_buffer *y = record_chain(f, which);
  bool is_right = has_chain(f, y, which);
  hr_buffer_release(y);
  return is_right;
}

/* ---- products, which libraries with OpenMP compute ---- */

static const int64_t square_dims[2] = {SIDE, SIDE}, square_strides[2] = {SIDE, 1};

static hr_view square(hr_buffer *buffer) {
  return (hr_view){.dtype = HR_DTYPE_F32, .rank = 2, .dims = square_dims, .strides = square_strides, .buffer = buffer};
}

static hr_buffer *create_square(const fixture *f) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(f->device, sizeof(float) * SIDE * SIDE, &buffer));
  return buffer;
}

static hr_buffer *record_ones(const fixture *f) {
  hr_buffer *ones = create_square(f);
  const hr_scalar one = hr_scalar_f64(1);
  hr_view value = {.scalar = &one, .dtype = one.dtype}, out = square(ones);
  HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_COPY, NULL, 1, &value, 1, &out));
  return ones;
}

static hr_buffer *record_product(const fixture *f, hr_buffer *a, hr_buffer *b) {
  hr_buffer *product = create_square(f);
  hr_view in[3] = {square(a), square(b), {0}}, out = square(product);
  HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_MATMUL, NULL, 3, in, 1, &out));
  return product;
}

static bool has_all(const fixture *f, hr_buffer *buffer, float value) {
  static float values[SIDE * SIDE];
  hr_view view = square(buffer);
  hr_status status = hr_stream_read(f->stream, &view, values);
  bool is_right = status == HR_OK;
  hr_status_ignore(status);
  for (int i = 0; i < SIDE * SIDE && is_right; ++i) {
    is_right = values[i] == value;
  }
  return is_right;
}

/* ---- children ---- */

static void expect_success(pid_t child) {
  int outcome = -1;
  HR_ASSERT(child > 0 && waitpid(child, &outcome, 0) == child);
  HR_ASSERT_EQ(outcome, 0);
}

static void begin(const char *jit) {
  make_root(NULL);
  setenv("HEADRACE_JIT", jit, 1);
  hr__env_reload();
  hr__compile_queue_reset();
}

static void end(void) {
  hr__compile_queue_wait();
  remove_root();
  unsetenv("HEADRACE_CACHE");
  unsetenv("HEADRACE_JIT");
  hr__env_reload();
  hr__compile_queue_reset();
}

#ifdef __SANITIZE_THREAD__
#define SKIP_IF_CHILDREN_HAVE_NO_THREADS HR_SKIP("the sanitizer lets no child of a process with threads start its own")
#else
#define SKIP_IF_CHILDREN_HAVE_NO_THREADS ((void)0)
#endif

/* The parent's compiler is in the middle of kernels; the child compiles them for itself, and others. */
HR_TEST(a_child_goes_on_amid_compilations) {
  SKIP_IF_CHILDREN_HAVE_NO_THREADS;
  enum { FORKS = 40 };
  begin("auto");
  fixture f = open_fixture();
  for (int i = 0; i < FORKS; ++i) {
    HR_ASSERT(run_chain(&f, i) && run_chain(&f, i)); /* the second use asks for code */
    hr_buffer *pending = record_chain(&f, i + 1);
    usleep((useconds_t)(i * 731 % 9000));
    pid_t child = fork();
    if (child == 0) {
      alarm(HANGS_AFTER_S);
      bool is_right = has_chain(&f, pending, i + 1);
      for (int k = 0; k < 3; ++k) {
        is_right = is_right && run_chain(&f, i) && run_chain(&f, 127 - i);
      }
      if (i % 8 == 0) {
        hr__compile_queue_wait();
        is_right = is_right && run_chain(&f, i) && run_chain(&f, 127 - i);
      }
      _exit(is_right ? 0 : 1);
    }
    HR_ASSERT(has_chain(&f, pending, i + 1));
    hr_buffer_release(pending);
    expect_success(child);
  }
  close_fixture(&f);
  end();
}

/* Work that was handed over runs once, in the parent; the child reads it, and runs its own on threads of its own. */
HR_TEST(a_child_has_the_values_of_work_in_flight) {
  SKIP_IF_CHILDREN_HAVE_NO_THREADS;
  enum { FORKS = 20 };
  fixture f = open_fixture();
  hr_stream_set_mode(f.stream, HR_MODE_FUSE);
  hr_buffer *ones = record_ones(&f);
  for (int i = 0; i < FORKS; ++i) {
    hr_buffer *product = record_product(&f, ones, ones), *next = record_product(&f, product, ones);
    HR_ASSERT_OK(i % 2 == 0 ? hr_stream_commit(f.stream) : HR_OK);
    HR_ASSERT(i % 4 != 3 || has_all(&f, next, (float)SIDE * SIDE)); /* a library has a team of this thread */
    pid_t child = fork();
    if (child == 0) {
      alarm(HANGS_AFTER_S);
      bool is_right = has_all(&f, next, (float)SIDE * SIDE) && has_all(&f, product, SIDE);
      hr_buffer *own = record_product(&f, ones, product);
      is_right = is_right && has_all(&f, own, (float)SIDE * SIDE) && run_chain(&f, i);
      hr_buffer_release(own);
      if (i % 5 == 0) {
        exit(is_right ? 0 : 1); /* NOLINT(concurrency-mt-unsafe) */
      }
      _exit(is_right ? 0 : 1);
    }
    HR_ASSERT(has_all(&f, next, (float)SIDE * SIDE));
    hr_buffer_release(product);
    hr_buffer_release(next);
    expect_success(child);
  }
  hr_buffer_release(ones);
  close_fixture(&f);
}

/* ---- other threads ---- */

typedef struct busy {
  hr_thread thread;
  atomic_bool ends;
  atomic_int rounds;
  bool is_right;
} busy;

static void work_on(void *arg) {
  busy *b = arg;
  fixture f = open_fixture();
  for (b->is_right = true; b->is_right && !atomic_load(&b->ends); atomic_fetch_add(&b->rounds, 1)) {
    b->is_right = run_chain(&f, atomic_load(&b->rounds) % 64);
  }
  close_fixture(&f);
}

HR_TEST(a_child_goes_on_while_other_threads_of_its_parent_work) {
  SKIP_IF_CHILDREN_HAVE_NO_THREADS;
  enum { FORKS = 40 };
  static busy threads[2];
  begin("auto");
  fixture f = open_fixture();
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(hr_thread_start("busy", work_on, &threads[i], &threads[i].thread));
  }
  for (int i = 0; i < FORKS; ++i) {
    HR_ASSERT(run_chain(&f, i));
    pid_t child = fork();
    if (child == 0) {
      alarm(HANGS_AFTER_S);
      _exit(run_chain(&f, i) && run_chain(&f, 127 - i) ? 0 : 1);
    }
    expect_success(child);
  }
  for (int i = 0; i < 2; ++i) {
    atomic_store(&threads[i].ends, true);
    hr_thread_join(&threads[i].thread);
    HR_ASSERT(threads[i].is_right);
  }
  close_fixture(&f);
  end();
}

/* ---- work that does not end in time ---- */

static atomic_int calls, gate;

static hr_status wait_at_gate(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  (void)arg, (void)input_count, (void)inputs, (void)output_count, (void)outputs;
  while (atomic_load(&gate) == 0) {
    usleep(100);
  }
  atomic_fetch_add(&calls, 1);
  return HR_OK;
}

static bool refuses(hr_status status) {
  bool is_right =
      hr_status_code_of(status) == HR_STATUS_FAILED_PRECONDITION && strstr(hr_status_message(status), "spawn") != NULL;
  hr_status_ignore(status);
  return is_right;
}

/* A child that cannot use the device; `y` has values in the parent. */
static bool all_is_refused(fixture *f, const char *name, hr_buffer *y) {
  float values[COUNT];
  hr_view out = view_of(y);
  hr_device *device;
  bool is_right = refuses(hr_stream_read(f->stream, &out, values)) && refuses(hr_stream_synchronize(f->stream)) &&
                  refuses(hr_device_open(name, &device));
  hr_buffer *z = record_chain(f, 5);
  is_right = is_right && refuses(hr_stream_commit(f->stream));
  hr_buffer_release(z);
  hr_buffer_release(y);
  close_fixture(f);
  return is_right;
}

/* Nothing waits for the parent's work, not even the end of the process. */
HR_TEST(a_child_of_a_busy_device_gets_errors) {
  fixture f = open_fixture();
  hr_buffer *y = record_chain(&f, 3);
  HR_ASSERT(has_chain(&f, y, 3));
  atomic_store(&gate, 0);
  HR_ASSERT_OK(hr_stream_call(f.stream, wait_at_gate, NULL, NULL, 1, &f.x, 1, &y));
  pid_t child = fork();
  if (child == 0) {
    alarm(HANGS_AFTER_S);
    bool is_right = all_is_refused(&f, "cpu", y) && atomic_load(&calls) == 0;
    exit(is_right ? 0 : 1); /* NOLINT(concurrency-mt-unsafe) */
  }
  expect_success(child);
  atomic_store(&gate, 1);
  HR_ASSERT_OK(hr_stream_synchronize(f.stream));
  HR_ASSERT_EQ(atomic_load(&calls), 1);
  hr_buffer_release(y);
  HR_ASSERT(run_chain(&f, 9));
  close_fixture(&f);
}

HR_TEST(a_child_of_a_device_beside_the_host_gets_errors) {
  int count = 0;
  hr_status_ignore(hr_device_count("cuda", &count));
  if (count == 0) {
    HR_SKIP("there is no such device");
  }
  fixture f = open_on("cuda"), host = open_fixture();
  for (int i = 0; i < 5; ++i) {
    hr_buffer *y = record_chain(&f, i);
    HR_ASSERT(i % 2 == 0 || has_chain(&f, y, i));
    pid_t child = fork();
    if (child == 0) {
      alarm(HANGS_AFTER_S);
      bool is_right = all_is_refused(&f, "cuda", y) && run_chain(&host, i);
      exit(is_right ? 0 : 1); /* NOLINT(concurrency-mt-unsafe) */
    }
    expect_success(child);
    HR_ASSERT(has_chain(&f, y, i));
    hr_buffer_release(y);
  }
  close_fixture(&host);
  close_fixture(&f);
}
