/* Threads: several use one session, sessions with the same inner graphs, and variables. */
#include <stdatomic.h>

#include "base/thread.h"
#include "headrace/array.h"
#include "session/session_test.h"

enum { THREADS = 4, RUNS = 60 };

typedef struct worker {
  hr_session *session;
  hr_graph *inner;
  int number;
  atomic_int *failures;
} worker;

static void run_workers(hr_thread_fn run, hr_session *session, hr_graph *inner) {
  hr_thread threads[THREADS];
  worker workers[THREADS];
  atomic_int failures = 0;
  for (int i = 0; i < THREADS; ++i) {
    workers[i] = (worker){session, inner, i, &failures};
    HR_ASSERT_OK(hr_thread_start("worker", run, &workers[i], &threads[i]));
  }
  for (int i = 0; i < THREADS; ++i) {
    hr_thread_join(&threads[i]);
  }
  HR_ASSERT_EQ(failures, 0);
}

static void expect(const worker *w, bool is_right) {
  atomic_fetch_add(w->failures, !is_right);
}

/* Runs the session for x [n] of one number; output 0 is twice that number in all elements. */
static void run_once(const worker *w, hr_session *session, int64_t n, int outputs) {
  float elements[8], got[8] = {0};
  hr_tensor x = {0}, y[2] = {{0}};
  const hr_tensor *inputs[1] = {&x};
  for (int64_t i = 0; i < n; ++i) {
    elements[i] = (float)(w->number + 1);
  }
  hr_status status = hr_array_from_host(stream, HR_DTYPE_F32, 1, &n, elements, &x);
  status = status == HR_OK ? hr_session_run(session, 1, inputs, outputs, y) : status;
  status = status == HR_OK ? hr_array_read(stream, &y[0], got) : status;
  for (int64_t i = 0; i < n; ++i) {
    expect(w, got[i] == 2 * elements[i]);
  }
  expect(w, status == HR_OK);
  hr_status_free(status);
  for (int i = 0; i < outputs; ++i) {
    hr_tensor_release(&y[i]);
  }
  hr_tensor_release(&x);
}

static void run_dims(void *arg) {
  const worker *w = arg;
  for (int i = 0; i < RUNS; ++i) {
    run_once(w, w->session, 1 + (i + w->number) % 6, 1);
  }
}

HR_TEST(threads_share_instances) {
  open_stream();
  hr_graph *g = graph_of("graph 1\ninput %x f32[n]\n%0 = add(%x, %x)\noutput y = %0\n");
  static const int kept[2] = {6, 2};
  for (int i = 0; i < 2; ++i) {
    hr_session *session = session_of(g, &(hr_session_options){.instances_max = kept[i]});
    run_workers(run_dims, session, NULL);
    const hr_session_stats stats = stats_of(session);
    HR_ASSERT_EQ(stats.runs, THREADS * RUNS);
    HR_ASSERT_EQ(stats.hits + stats.instances, THREADS * RUNS);
    HR_ASSERT_EQ(stats.kept, kept[i]);
    HR_ASSERT(i == 1 || stats.instances == 6);
    hr_session_release(session);
  }
  hr_graph_release(g);
}

/* A loop of the device, whose inner graphs have instances of their own. */
HR_TEST(threads_share_live_instances) {
  open_stream();
  hr_graph *g = graph_of(
      "graph 2\nfunction @0 {\ninput %a f32[n]\ninput %x f32[n]\n%s = add(%a, %x)\noutput s = %s\n}\n"
      "function @1 {\ninput %a f32[n]\ninput %x f32[n]\n%d = multiply(%x, 2)\n%c = less(%a, %d)\n%all = all(%c)\n"
      "output c = %all\n}\ninput %x f32[n]\n%z = subtract(%x, %x)\n%0 = while(@0, @1, %z, %x, carried=1)\n"
      "output y = %0\n");
  hr_session *session = session_of(g, NULL);
  run_workers(run_dims, session, NULL);
  HR_ASSERT_EQ(stats_of(session).waits, THREADS * RUNS * 3);
  hr_session_release(session);
  hr_graph_release(g);
}

/* A graph and a session of its own, with a function of all threads. */
static void call_inner(void *arg) {
  const worker *w = arg;
  for (int i = 0; i < RUNS / 4; ++i) {
    hr_graph *g = NULL;
    hr_session *session = NULL;
    const hr_type type = {.dtype = HR_DTYPE_F32, .rank = 1, .dims = {-1}, .symbols = {"k"}};
    hr_status status = hr_graph_create(&g);
    hr_value x = hr_graph_input(g, "x", &type);
    hr_graph_output(g, "y", hr_graph_call(g, w->inner, 1, &x));
    status = status == HR_OK ? hr_graph_status(g) : status;
    status = status == HR_OK ? hr_session_create(stream, g, NULL, &session) : status;
    expect(w, status == HR_OK);
    hr_status_free(status);
    if (session != NULL) {
      run_once(w, session, 1 + i % 3, 1);
    }
    hr_session_release(session);
    hr_graph_release(g);
  }
}

HR_TEST(threads_share_inner_graphs) {
  open_stream();
  hr_graph *inner = graph_of("graph 1\ninput %x f32[n]\n%0 = add(%x, %x)\noutput y = %0\n");
  run_workers(call_inner, NULL, inner);
  hr_graph_release(inner);
}

static void count_runs(void *arg) {
  const worker *w = arg;
  for (int i = 0; i < RUNS; ++i) {
    hr_tensor value = {0};
    run_once(w, w->session, 2, 1);
    hr_status status = hr_session_variable(w->session, "w", &value);
    expect(w, status == HR_OK);
    hr_status_free(status);
    hr_tensor_release(&value);
  }
}

HR_TEST(runs_that_assign_follow_each_other) {
  open_stream();
  hr_graph *g = graph_of("graph 2\ninput %x f32[n]\nvariable %w f32[1] = [0.0]\n%0 = add(%w, 1)\nassign %w = %0\n"
                         "%1 = add(%x, %x)\noutput y = %1\n");
  hr_session *session = session_of(g, NULL);
  hr_tensor w;
  run_workers(count_runs, session, NULL);
  HR_ASSERT_OK(hr_session_variable(session, "w", &w));
  EXPECT(&w, THREADS * RUNS);
  hr_tensor_release(&w);
  hr_session_release(session);
  hr_graph_release(g);
}
