/* Functions of the host in graphs: results, order of effects, loops, branches, failures, lifetime. */
#include "session/session_test.h"

static void close_stream(void) {
  hr_stream_release(stream);
  hr_device_release(device);
  stream = NULL;
}

typedef struct notes {
  int runs, releases;
  float seen[16];
} notes;

/* y = 2 x of one element; notes x. */
static hr_status twice(const hr_function_call *call) {
  notes *n = call->arg;
  float x = *(const float *)call->inputs[0];
  n->seen[n->runs++ % 16] = x;
  *(float *)call->outputs[0] = 2 * x;
  if (call->output_count > 1) {
    *(bool *)call->outputs[1] = false;
  }
  return x < 1000 ? HR_OK : hr_status_make(HR_STATUS_INTERNAL, "%g is too much", (double)x);
}

static void count_release(void *arg) {
  ++((notes *)arg)->releases;
}

static hr_value add_twice(hr_graph *graph, notes *n, hr_value x, hr_value token) {
  const hr_type types[2] = {type_of(HR_DTYPE_F32, "1"), type_of(HR_DTYPE_BOOL, "1")};
  const hr_function_spec spec = {.name = "twice", .run = twice, .arg = n, .release = count_release};
  return hr_graph_host(graph, &spec, token != 0 ? 2 : 1, (const hr_value[]){x, token}, token != 0 ? 2 : 1, types);
}

static float run_of(hr_session *session, float number) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(1), &number), results[2] = {0};
  const hr_tensor *inputs[1] = {&x};
  float got = 0;
  int count = hr_graph_output_count(hr_session_graph(session));
  HR_ASSERT_OK(hr_session_run(session, 1, inputs, count, results));
  read(&results[0], &got);
  for (int i = 0; i < count; ++i) {
    hr_tensor_release(&results[i]);
  }
  hr_tensor_release(&x);
  return got;
}

HR_TEST(a_function_of_the_host_runs_in_each_run) {
  notes n = {0};
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "1");
  hr_value y = add_twice(g, &n, ADD(g, ADD, VALUES(x, hr_graph_number(g, hr_scalar_f64(1))), 0, NULL), 0);
  add_twice(g, &n, x, 0); /* no output needs it */
  hr_graph_output(g, "y", ADD(g, NEGATIVE, VALUES(y), 0, NULL));
  hr_session *session = session_of(g, NULL);
  hr_graph_release(g);
  for (int i = 0; i < 3; ++i) {
    HR_ASSERT(run_of(session, (float)i) == -2 * (float)(i + 1));
  }
  HR_ASSERT_EQ(n.runs, 3);
  hr_session_release(session);
  close_stream();
  HR_ASSERT_EQ(n.releases, 2);
}

HR_TEST(effects_keep_their_order) {
  notes n = {0};
  static const bool start[1] = {false};
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "1"), token = constant_of(g, HR_DTYPE_BOOL, "1", start);
  for (int i = 0; i < 4; ++i) {
    hr_value number = hr_graph_number(g, hr_scalar_f64(i));
    token = add_twice(g, &n, ADD(g, ADD, VALUES(x, number), 0, NULL), token) + 1;
  }
  hr_graph_output(g, "x", x);
  hr_graph_output(g, "token", token);
  hr_session *session = session_of(g, NULL);
  hr_graph_release(g);
  HR_ASSERT(run_of(session, 5) == 5);
  HR_ASSERT_EQ(n.runs, 4);
  for (int i = 0; i < 4; ++i) {
    HR_ASSERT(n.seen[i] == 5 + (float)i);
  }
  hr_session_release(session);
  close_stream();
  HR_ASSERT_EQ(n.releases, 4);
}

/* Doubles x until it is at least 100, or 3 times. */
static hr_graph *loop(notes *n, bool is_counted) {
  hr_graph *body = new_graph(), *condition = new_graph(), *g = new_graph();
  if (is_counted) {
    hr_graph_input(body, "i", &(hr_type){.dtype = HR_DTYPE_I64});
  }
  hr_graph_output(body, "x", add_twice(body, n, input_of(body, "x", HR_DTYPE_F32, "1"), 0));
  hr_value x = input_of(condition, "x", HR_DTYPE_F32, "1"), limit = hr_graph_number(condition, hr_scalar_f64(100));
  hr_graph_output(condition, "c", ADD(condition, LESS, VALUES(x, limit), 0, NULL));
  hr_value start = input_of(g, "x", HR_DTYPE_F32, "1"), count = hr_graph_number(g, hr_scalar_i64(3));
  hr_graph_output(g, "y",
                  is_counted ? hr_graph_for(g, count, body, 1, VALUES(start))
                             : hr_graph_while(g, condition, body, 1, VALUES(start)));
  hr_graph_release(body);
  hr_graph_release(condition);
  return g;
}

HR_TEST(a_loop_calls_the_function_in_each_iteration) {
  for (int is_counted = 0; is_counted < 2; ++is_counted) {
    notes n = {0};
    hr_graph *g = loop(&n, is_counted == 1);
    hr_session *session = session_of(g, NULL);
    hr_graph_release(g);
    HR_ASSERT(run_of(session, 3) == (is_counted ? 24 : 192));
    HR_ASSERT_EQ(n.runs, is_counted ? 3 : 6);
    hr_session_release(session);
    close_stream();
    HR_ASSERT_EQ(n.releases, 1);
  }
}

HR_TEST(a_failure_is_reported_with_the_name) {
  notes n = {0};
  hr_graph *g = new_graph();
  hr_graph_output(g, "y", add_twice(g, &n, input_of(g, "x", HR_DTYPE_F32, "1"), 0));
  hr_session *session = session_of(g, NULL);
  hr_graph_release(g);
  float number = 2000;
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(1), &number), y;
  const hr_tensor *inputs[1] = {&x};
  HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &y));
  HR_ASSERT_ERROR(hr_stream_synchronize(stream), HR_STATUS_INTERNAL, "twice: 2000 is too much");
  hr_tensor_release(&y);
  hr_tensor_release(&x);
  HR_ASSERT(run_of(session, 3) == 6);
  hr_session_release(session);
}

HR_TEST(functions_that_cannot_be_are_refused) {
  notes n = {0};
  hr_graph *g = new_graph();
  const hr_type symbolic = type_of(HR_DTYPE_F32, "n");
  const hr_function_spec spec = {.run = twice, .arg = &n, .release = count_release};
  HR_ASSERT_EQ(hr_graph_host(g, &spec, 0, NULL, 1, &symbolic), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "the type of result 0 has no dtype");
  HR_ASSERT_EQ(n.releases, 1);
  HR_ASSERT_EQ(hr_graph_host(g, &spec, 0, NULL, 0, NULL), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "it has no results");
  HR_ASSERT_EQ(n.releases, 2);
  hr_graph_release(g);
  static const char text[] = "graph 1\ninput %x f32[1]\n%0 = host(twice, %x)\noutput y = %0\n";
  HR_ASSERT_ERROR(hr_graph_parse(text, sizeof text - 1, NULL, &g), HR_STATUS_UNIMPLEMENTED, "function of the host");
}
