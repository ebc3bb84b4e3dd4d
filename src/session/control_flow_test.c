/* Control flow and variables: graphs as text, applied to a stream and run by sessions, with the same answers. */
#include <stdio.h>
#include <sys/resource.h>

#include "headrace/package.h"
#include "headrace/part.h"
#include "session/session_test.h"

enum { OUTPUTS_MAX = 4 };

typedef struct answer {
  int rank;
  int64_t dims[4];
  const float *values;
} answer;

static void expect_answers(const hr_tensor *out, int count, const answer *expected) {
  for (int i = 0; i < count; ++i) {
    HR_ASSERT_EQ(out[i].rank, expected[i].rank);
    for (int d = 0; d < out[i].rank; ++d) {
      HR_ASSERT_EQ(out[i].dims[d], expected[i].dims[d]);
    }
    expect_values(&out[i], hr_tensor_count(&out[i]), expected[i].values);
  }
}

static void release_each(int count, hr_tensor *tensors) {
  for (int i = 0; i < count; ++i) {
    hr_tensor_release(&tensors[i]);
  }
}

/* The graph and its text read back, on a stream, and by sessions with and without simplification, each twice. Returns
 * the waits of a run. */
static int64_t check(const char *text, int input_count, const hr_tensor *inputs, int count, const answer *expected) {
  hr_graph *g = graph_of(text), *again = read_back(g);
  const hr_tensor *places[OUTPUTS_MAX];
  hr_tensor out[OUTPUTS_MAX];
  int64_t waits = 0;
  open_stream();
  for (int i = 0; i < input_count; ++i) {
    places[i] = &inputs[i];
  }
  HR_ASSERT_OK(hr_graph_apply(again, stream, input_count, places, count, out));
  expect_answers(out, count, expected);
  release_each(count, out);
  for (int i = 0; i < 4; ++i) {
    hr_session *session = session_of(i % 2 == 0 ? g : again, &(hr_session_options){.keeps_operations = i < 2});
    for (int run = 0; run < 2; ++run) {
      HR_ASSERT_OK(hr_session_run(session, input_count, places, count, out));
      expect_answers(out, count, expected);
      for (int k = 0; k < count; ++k) {
        for (int j = 0; j < input_count; ++j) {
          HR_ASSERT(out[k].buffer != inputs[j].buffer);
        }
        HR_ASSERT(k == 0 || out[k].buffer != out[k - 1].buffer);
      }
      release_each(count, out);
    }
    HR_ASSERT_EQ(stats_of(session).waits % 2, 0);
    waits = stats_of(session).waits / 2;
    hr_session_release(session);
  }
  hr_graph_release(again);
  hr_graph_release(g);
  return waits;
}

static hr_tensor bool_of(bool value) {
  const uint8_t element = value;
  return tensor_of(HR_DTYPE_BOOL, 0, NULL, &element);
}
static hr_tensor i64_of(int64_t value) {
  return tensor_of(HR_DTYPE_I64, 0, NULL, &value);
}

/* ---- calls and conditions ---- */

HR_TEST(a_call_is_the_callee_for_its_arguments) {
  open_stream();
  const hr_tensor x = counted(DIMS(2, 3));
  HR_ASSERT_EQ(check("graph 2\nfunction @0 {\ninput %a f32[n]\ninput %b f32[n]\n%s = add(%a, %b)\noutput s = %s\n"
                     "output b = %b\n}\nfunction @1 {\ninput %m f32[k, 3]\nconstant %c f32[3] = [1.0, 2.0, 3.0]\n"
                     "%r = sum(%m, axis=[0])\n%0, %1 = call(@0, %r, %c)\noutput s = %0\noutput b = %1\n}\n"
                     "input %x f32[n, 3]\n%0, %1 = call(@1, %x)\n%2, %3 = call(@0, %0, %1)\noutput p = %0\n"
                     "output q = %2\noutput b = %3\n",
                     1, &x, 3, (answer[]){{1, {3}, F32(4, 7, 10)}, {1, {3}, F32(5, 9, 13)}, {1, {3}, F32(1, 2, 3)}}),
               0);
  hr_tensor_release((hr_tensor *)&x);
}

static const char choice[] =
    "graph 2\nfunction @0 {\ninput %a f32[n]\n%s = multiply(%a, 2)\noutput s = %s\n}\n"
    "function @1 {\ninput %a f32[n]\n%s = concat(%a, %a)\noutput s = %s\n}\n"
    "input %c bool[]\ninput %x f32[n]\n%y = if(@0, @1, %c, %x)\n%z = add(%y, 1)\noutput z = %z\n";

HR_TEST(a_condition_of_the_device_is_waited_for) {
  open_stream();
  hr_tensor inputs[2] = {bool_of(true), counted(DIMS(2))};
  HR_ASSERT_EQ(check(choice, 2, inputs, 1, (answer[]){{1, {2}, F32(1, 3)}}), 1);
  hr_tensor_release(&inputs[0]);
  inputs[0] = bool_of(false);
  HR_ASSERT_EQ(check(choice, 2, inputs, 1, (answer[]){{1, {4}, F32(1, 2, 1, 2)}}), 1);
  release_each(2, inputs);
}

HR_TEST(a_condition_of_shapes_is_known) {
  open_stream();
  static const char text[] = "graph 2\nfunction @0 {\ninput %a f32[n]\n%s = multiply(%a, 2)\noutput s = %s\n}\n"
                             "function @1 {\ninput %a f32[n]\n%s = negative(%a)\noutput s = %s\n}\n"
                             "input %x f32[n]\n%c = greater(n, 2)\n%y = if(@0, @1, %c, %x)\noutput y = %y\n";
  const hr_tensor two = counted(DIMS(2)), three = counted(DIMS(3));
  HR_ASSERT_EQ(check(text, 1, &two, 1, (answer[]){{1, {2}, F32(0, -1)}}), 0);
  HR_ASSERT_EQ(check(text, 1, &three, 1, (answer[]){{1, {3}, F32(0, 2, 4)}}), 0);
  hr_tensor_release((hr_tensor *)&two);
  hr_tensor_release((hr_tensor *)&three);
}

/* ---- loops ---- */

HR_TEST(a_known_count_becomes_one_part) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[2]\ninput %b f32[2]\n%s = add(%a, %b)\n"
      "%t = add(%s, %i)\noutput s = %t\noutput i = %i\n}\ninput %x f32[n]\ninput %y f32[2]\n"
      "%0, %1 = for(@0, n, %y, %y, carried=1)\noutput y = %0\noutput i = %1\n";
  hr_tensor inputs[2] = {counted(DIMS(3)), counted(DIMS(2))};
  HR_ASSERT_EQ(check(text, 2, inputs, 2, (answer[]){{1, {2}, F32(3, 7)}, {1, {3}, F32(0, 1, 2)}}), 0);
  hr_graph *g = graph_of(text);
  expect_graph_type(g, hr_graph_output_value(g, 0), "f32[2]");
  expect_graph_type(g, hr_graph_output_value(g, 1), "i64[n]");
  hr_session *session = session_of(g, NULL);
  const hr_tensor *places[2] = {&inputs[0], &inputs[1]};
  HR_ASSERT_OK(hr_session_warm(session, 2, places));
  HR_ASSERT(stats_of(session).records >= 6);
  HR_ASSERT_EQ(stats_of(session).instances, 1);
  hr_session_release(session);
  hr_graph_release(g);
  release_each(2, inputs);
}

HR_TEST(no_iteration_leaves_the_start_and_stacks_nothing) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[m]\n%t = add(%a, 1)\n%r = stack(%a, %a)\noutput t = %t\n"
      "output r = %r\n}\ninput %k i64[]\ninput %y f32[m]\n%0, %1 = for(@0, %k, %y, carried=1)\noutput y = %0\n"
      "output r = %1\n";
  for (int64_t count = -1; count < 1; ++count) {
    hr_tensor inputs[2] = {i64_of(count), counted(DIMS(3))};
    HR_ASSERT_EQ(check(text, 2, inputs, 2, (answer[]){{1, {3}, F32(0, 1, 2)}, {3, {0, 2, 3}, NULL}}), 1);
    release_each(2, inputs);
  }
  hr_tensor inputs[2] = {i64_of(2), counted(DIMS(1))};
  HR_ASSERT_EQ(check(text, 2, inputs, 2, (answer[]){{1, {1}, F32(2)}, {3, {2, 2, 1}, F32(0, 0, 1, 1)}}), 1);
  release_each(2, inputs);
}

/* Bodies that are not valid without an iteration, or whose dims only the device has. */
HR_TEST(no_iteration_fails) {
  open_stream();
  static const char branches[] =
      "graph 2\nfunction @0 {\ninput %a f32[]\n%0 = stack(%a, %a)\noutput r = %0\n}\nfunction @1 {\n"
      "input %a f32[]\n%0 = stack(%a, %a, %a)\noutput r = %0\n}\nfunction @2 {\ninput %a f32[]\ninput %x f32[m]\n"
      "%c = greater(%a, 1)\n%0 = if(@0, @1, %c, %a)\n%1 = if(@0, @0, %c, %a)\n%2 = nonzero(%x)\n%3 = add(%x, 1)\n"
      "output u = %0\noutput v = %1\noutput w = %2\noutput z = %3\n}\ninput %xs f32[n]\ninput %x f32[m]\n"
      "%0, %1, %2, %3 = scan(@2, %xs, %x, carried=0, sequences=1)\noutput u = %0\noutput v = %1\noutput w = %2\n"
      "output z = %3\n";
  hr_tensor inputs[2] = {counted(DIMS(0)), counted(DIMS(3))};
  check(branches, 2, inputs, 4,
        (answer[]){{2, {0, 0}, NULL}, {2, {0, 2}, NULL}, {3, {0, 1, 0}, NULL}, {2, {0, 3}, NULL}});
  release_each(2, inputs);
  inputs[0] = counted(DIMS(1)), inputs[1] = tensor_of(HR_DTYPE_F32, DIMS(2), F32(0, 2));
  check(branches, 2, inputs, 4,
        (answer[]){{2, {1, 3}, F32(0, 0, 0)}, {2, {1, 2}, F32(0, 0)}, {3, {1, 1, 1}, F32(1)}, {2, {1, 2}, F32(1, 3)}});
  release_each(2, inputs);
  static const char rows[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %s f32[2]\ninput %a f32[n, 2]\n%r = read(%i)\n"
      "%p = slice(%a, begin=[%r, 0], count=[1, 2], step=[1, 1])\n%q = reshape(%p, shape=[2])\n%t = add(%s, %q)\n"
      "output s = %t\noutput q = %q\n}\ninput %x f32[n, 2]\nconstant %z f32[2] = [1.0, 2.0]\n"
      "%0, %1 = for(@0, n, %z, %x, carried=1)\noutput s = %0\noutput q = %1\n";
  inputs[0] = counted(DIMS(0, 2)), inputs[1] = counted(DIMS(1, 2));
  HR_ASSERT_EQ(check(rows, 1, inputs, 2, (answer[]){{1, {2}, F32(1, 2)}, {2, {0, 2}, NULL}}), 0);
  HR_ASSERT_EQ(check(rows, 1, inputs + 1, 2, (answer[]){{1, {2}, F32(1, 3)}, {2, {1, 2}, F32(0, 1)}}), 0);
  release_each(2, inputs);
}

HR_TEST(a_loop_with_a_counter_does_not_wait) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[]\n%j = add(%i, 2)\n%b = multiply(%a, 2)\noutput j = %j\n"
      "output b = %b\n}\nfunction @1 {\ninput %i i64[]\ninput %a f32[]\n%c = less(%i, 7)\noutput c = %c\n}\n"
      "input %x f32[]\nconstant %z i64[] = [0]\n%0, %1 = while(@0, @1, %z, %x, carried=2)\noutput i = %0\n"
      "output x = %1\n";
  const hr_tensor x = tensor_of(HR_DTYPE_F32, 0, NULL, F32(3));
  HR_ASSERT_EQ(check(text, 1, &x, 2, (answer[]){{0, {0}, F32(8)}, {0, {0}, F32(48)}}), 0);
  hr_tensor_release((hr_tensor *)&x);
}

/* Doubles x until it is above a limit, and collects what it was. */
static const char doubling[] =
    "graph 2\nfunction @0 {\ninput %a f32[]\ninput %l f32[]\n%b = multiply(%a, 2)\noutput b = %b\noutput a = %a\n}\n"
    "function @1 {\ninput %a f32[]\ninput %l f32[]\n%c = less_equal(%a, %l)\noutput c = %c\n}\n"
    "input %x f32[]\ninput %l f32[]\n%0, %1 = while(@0, @1, %x, %l, carried=1)\n%2 = sum(%1)\noutput x = %0\n"
    "output all = %1\noutput sum = %2\n";

HR_TEST(a_while_loop_reads_its_condition) {
  open_stream();
  hr_tensor inputs[2] = {tensor_of(HR_DTYPE_F32, 0, NULL, F32(3)), tensor_of(HR_DTYPE_F32, 0, NULL, F32(20))};
  HR_ASSERT_EQ(check(doubling, 2, inputs, 3, (answer[]){{0, {0}, F32(24)}, {1, {3}, F32(3, 6, 12)}, {0, {0}, F32(21)}}),
               4);
  hr_graph *g = graph_of(doubling);
  expect_graph_type(g, hr_graph_output_value(g, 1), "f32[?]");
  hr_session *session = session_of(g, NULL);
  const hr_tensor *places[2] = {&inputs[0], &inputs[1]};
  hr_tensor out[3];
  for (int i = 0; i < 3; ++i) {
    HR_ASSERT_OK(hr_session_run(session, 2, places, 3, out));
    release_each(3, out);
    HR_ASSERT_EQ(stats_of(session).instances, 3); /* of the graph, the condition and the body */
  }
  hr_session_release(session);
  hr_graph_release(g);
  release_each(2, inputs);
}

HR_TEST(carried_dims_may_change) {
  open_stream();
  static const char text[] = "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[n]\ninput %x f32[1]\n%b = "
                             "concat(%a, %x)\noutput b = %b\n}\n"
                             "input %k i64[]\ninput %x f32[1]\n%0 = for(@0, %k, %x, %x, carried=1)\noutput y = %0\n";
  hr_graph *g = graph_of(text);
  expect_graph_type(g, hr_graph_output_value(g, 0), "f32[?]");
  hr_graph_release(g);
  hr_tensor inputs[2] = {i64_of(3), tensor_of(HR_DTYPE_F32, DIMS(1), F32(5))};
  HR_ASSERT_EQ(check(text, 2, inputs, 1, (answer[]){{1, {4}, F32(5, 5, 5, 5)}}), 1);
  release_each(2, inputs);
}

HR_TEST(a_scan_has_slices_and_stacks) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %s f32[]\ninput %a f32[]\ninput %b i64[2]\ninput %c f32[]\n%t = add(%s, %a)\n"
      "%u = multiply(%b, %c)\noutput s = %t\noutput t = %t\noutput u = %u\n}\n"
      "input %x f32[n]\ninput %b i64[n, 2]\nconstant %z f32[] = [10.0]\n"
      "%0, %1, %2 = scan(@0, %z, %x, %b, %z, carried=1, sequences=2)\noutput s = %0\noutput t = %1\noutput u = %2\n";
  const int64_t pairs[6] = {1, 2, 3, 4, 5, 6};
  hr_tensor inputs[2] = {counted(DIMS(3)), tensor_of(HR_DTYPE_I64, DIMS(3, 2), pairs)};
  hr_graph *g = graph_of(text);
  expect_graph_type(g, hr_graph_output_value(g, 2), "f32[n,2]");
  hr_graph_release(g);
  HR_ASSERT_EQ(
      check(text, 2, inputs, 3,
            (answer[]){{0, {0}, F32(13)}, {1, {3}, F32(10, 11, 13)}, {2, {3, 2}, F32(10, 20, 30, 40, 50, 60)}}),
      0);
  release_each(2, inputs);
  inputs[0] = counted(DIMS(0)), inputs[1] = tensor_of(HR_DTYPE_I64, DIMS(0, 2), pairs);
  HR_ASSERT_EQ(check(text, 2, inputs, 3, (answer[]){{0, {0}, F32(10)}, {1, {0}, NULL}, {2, {0, 2}, NULL}}), 0);
  release_each(2, inputs);
}

HR_TEST(slices_of_turned_sequences) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %s f32[2]\ninput %a f32[2]\n%h = divide(%s, 2)\n%t = add(%h, %a)\noutput t = "
      "%t\n}\n"
      "input %x f32[2, n]\n%f = flip(%x, axis=[1])\n%y = moveaxis(%f, source=1, destination=0)\nconstant %z f32[2] = "
      "[0.0, 0.0]\n%0 = scan(@0, %z, %y, carried=1, sequences=1)\noutput s = %0\n";
  hr_tensor x = counted(DIMS(2, 3)); /* rows 2 1 0 and 5 4 3: halves of sums */
  HR_ASSERT_EQ(check(text, 1, &x, 1, (answer[]){{1, {2}, F32(1, 6.25F)}}), 0);
  hr_tensor_release(&x);
}

/* Slices at the number of an iteration are views. Starts are bounded: -1 is 0, 4 is 3. */
HR_TEST(slices_at_the_number_of_an_iteration) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %ys f32[4]\ninput %xs f32[4]\n%j = subtract(%i, 1)\n"
      "%at = reshape(%j, shape=[1])\n%x = dynamic_slice(%xs, %at, sizes=[1])\n%f = astype(%i, dtype=f32)\n"
      "%t = multiply(%x, 10.0)\n%y = add(%t, %f)\n%new = dynamic_slice_update(%ys, %y, %at)\noutput ys = %new\n"
      "output x = %x\n}\ninput %xs f32[4]\ninput %ys f32[4]\ninput %k f32[m]\n"
      "%0, %1 = for(@0, m, %ys, %xs, carried=1)\noutput ys = %0\noutput xs = %1\n";
  hr_tensor inputs[3] = {counted(DIMS(4)), counted(DIMS(4)), counted(DIMS(6))};
  const answer expected[2] = {{1, {4}, F32(1, 12, 23, 35)}, {2, {6, 1}, F32(0, 0, 1, 2, 3, 3)}};
  HR_ASSERT_EQ(check(text, 3, inputs, 2, expected), 0);
  hr_graph *g = graph_of(text);
  hr_session *session = session_of(g, NULL);
  const hr_tensor *places[3] = {&inputs[0], &inputs[1], &inputs[2]};
  HR_ASSERT_OK(hr_session_warm(session, 3, places));
  HR_ASSERT(stats_of(session).records < 6 * 7); /* an index would be checked, and the slice copied */
  hr_session_release(session);
  hr_graph_release(g);
  release_each(3, inputs);
}

HR_TEST(loops_inside_of_loops) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[]\ninput %x f32[]\n%b = add(%a, %x)\noutput b = %b\n}\n"
      "function @1 {\ninput %i i64[]\ninput %a f32[]\ninput %x f32[]\n%b = for(@0, %i, %a, %x, carried=1)\n"
      "output b = %b\n}\ninput %k i64[]\ninput %x f32[]\nconstant %z f32[] = [0.0]\n"
      "%0 = for(@1, 4, %z, %x, carried=1)\n%1 = for(@1, %k, %z, %x, carried=1)\noutput p = %0\noutput q = %1\n";
  hr_tensor inputs[2] = {i64_of(5), tensor_of(HR_DTYPE_F32, 0, NULL, F32(2))};
  HR_ASSERT_EQ(check(text, 2, inputs, 2, (answer[]){{0, {0}, F32(12)}, {0, {0}, F32(20)}}), 1);
  release_each(2, inputs);
}

HR_TEST(long_loops_have_one_instance) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[]\n%b = add(%a, %i)\noutput b = %b\n}\n"
      "input %x f32[]\n%0 = for(@0, 40000, %x, carried=1)\noutput y = %0\n";
  hr_graph *g = graph_of(text);
  hr_session *session = session_of(g, NULL);
  const hr_tensor x = tensor_of(HR_DTYPE_F32, 0, NULL, F32(0)), *places[1] = {&x};
  hr_tensor y;
  HR_ASSERT_OK(hr_session_run(session, 1, places, 1, &y));
  float got;
  read(&y, &got);
  HR_ASSERT(is_close((double)got, 40000.0 * 39999 / 2, 1e-3));
  HR_ASSERT_EQ(stats_of(session).instances, 1);
  hr_tensor_release(&y);
  hr_tensor_release((hr_tensor *)&x);
  hr_session_release(session);
  hr_graph_release(g);
}

HR_TEST(long_loops_with_a_counter_do_not_wait) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[2]\n%j = add(%i, 1)\n%b = subtract(%i, %a)\n%s = "
      "shape(%a)\n"
      "%k = multiply(%s, %i)\n%e = exp(%a)\noutput j = %j\noutput b = %b\noutput k = %k\n}\n"
      "function @1 {\ninput %i i64[]\ninput %a f32[2]\n%c = less(%i, 20000)\noutput c = %c\n}\ninput %x f32[2]\n"
      "constant %z i64[] = [0]\n%0, %1, %2 = while(@0, @1, %z, %x, carried=2)\n%3 = sum(%2)\noutput i = %0\n"
      "output x = %1\noutput k = %3\n";
  const hr_tensor x = counted(DIMS(2));
  HR_ASSERT_EQ(
      check(text, 1, &x, 3, (answer[]){{0, {0}, F32(20000)}, {1, {2}, F32(10000, 10001)}, {0, {0}, F32(399980000)}}),
      0);
  hr_tensor_release((hr_tensor *)&x);
}

/* ---- dims that depend on data ---- */

/* KiB that the process had at most. */
static int64_t peak_kib(void) {
  struct rusage usage;
  HR_ASSERT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_maxrss;
}

static void run_loop(hr_session *session, int64_t count, int results, const double *expected) {
  const double limit = (double)count;
  hr_tensor inputs[2] = {i64_of(count), tensor_of(HR_DTYPE_F64, 0, NULL, &limit)}, out[2];
  const hr_tensor *places[2] = {&inputs[0], &inputs[1]};
  double got[2];
  HR_ASSERT_OK(hr_session_run(session, 2, places, results, out));
  for (int i = 0; i < results; ++i) {
    read_doubles(&out[i], &got[i]);
    HR_ASSERT(got[i] == expected[i]);
  }
  release_each(results, out);
  release_each(2, inputs);
}

/* A condition of the device, a counter of the host, and outputs that are stacked. */
HR_TEST(memory_does_not_depend_on_iterations) {
  enum { FEW = 50000, MANY = 150000, KIB_MOST = 12000 }; /* 400 bytes an iteration were 39,000 */
  static const char *const texts[2] = {
      "graph 2\nfunction @0 {\ninput %a f64[]\ninput %l f64[]\n%s = add(%a, 1)\noutput s = %s\n}\n"
      "function @1 {\ninput %a f64[]\ninput %l f64[]\n%c = less(%a, %l)\noutput c = %c\n}\ninput %n i64[]\n"
      "input %l f64[]\nconstant %z f64[] = [0.0]\n%0 = while(@0, @1, %z, %l, carried=1)\noutput a = %0\n",
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f64[]\n%s = add(%a, 1)\n%t = multiply(%i, %a)\n"
      "output s = %s\noutput t = %t\n}\ninput %n i64[]\ninput %l f64[]\nconstant %z f64[] = [0.0]\n"
      "%0, %1 = for(@0, %n, %z, carried=1)\n%2 = sum(%1)\noutput a = %0\noutput t = %2\n"};
  for (int t = 0; t < 2; ++t) {
    hr_graph *g = graph_of(texts[t]);
    hr_session *session = session_of(g, NULL);
    int64_t count = FEW, before = 0;
    for (int i = 0; i < 2; ++i, count = MANY) {
      double squares = (double)(count - 1) * (double)count * (double)(2 * count - 1) / 6;
      run_loop(session, count, 1 + t, (double[]){(double)count, squares});
      before = i == 0 ? peak_kib() : before;
    }
#ifndef __SANITIZE_ADDRESS__ /* it keeps freed memory */
    HR_ASSERT(peak_kib() - before < KIB_MOST);
#else
    (void)before;
#endif
    hr_session_release(session);
    hr_graph_release(g);
  }
}

static bool wants_end(void *arg) {
  return ++*(int *)arg > 1;
}

HR_TEST(a_loop_without_end_is_interrupted) {
  int checks = 0;
  open_stream();
  hr_graph *g = graph_of(
      "graph 2\nfunction @0 {\ninput %a f32[]\ninput %d f32[]\n%s = add(%a, %d)\noutput s = %s\n}\n"
      "function @1 {\ninput %a f32[]\ninput %d f32[]\n%c = less(%a, 3)\noutput c = %c\n}\nvariable %v f32[] = [0.0]\n"
      "input %d f32[]\n%0 = while(@0, @1, %v, %d, carried=1)\nassign %v = %0\noutput a = %0\n");
  hr_session *session = session_of(g, NULL);
  hr_tensor steps[2] = {tensor_of(HR_DTYPE_F32, 0, NULL, F32(0)), tensor_of(HR_DTYPE_F32, 0, NULL, F32(2))}, out;
  const hr_tensor *places[2] = {&steps[0], &steps[1]};
  hr_stream_set_interrupt_check(stream, wants_end, &checks);
  HR_ASSERT_STATUS(hr_session_run(session, 1, &places[0], 1, &out), HR_STATUS_CANCELLED);
  hr_stream_set_interrupt_check(stream, NULL, NULL);
  HR_ASSERT_OK(hr_session_run(session, 1, &places[1], 1, &out)); /* from the value before */
  EXPECT(&out, 4);
  hr_tensor_release(&out);
  release_each(2, steps);
  hr_session_release(session);
  hr_graph_release(g);
}

/* %n of the first function is an operand, in the second one it is also a size. */
HR_TEST(instances_have_the_numbers_that_matter) {
  open_stream();
  static const char *const results[2] = {"%1 = multiply(%0, 2)", "%k = read(%n)\n%1 = tile(%0, repetitions=[%k])"};
  for (int f = 0; f < 2; ++f) {
    char text[1024];
    snprintf(
        text, sizeof text,
        "graph 2\nfunction @0 {\ninput %%z f32[m]\ninput %%n i64[]\n%%0 = multiply(%%z, %%n)\n%s\noutput y = %%1\n}\n"
        "input %%x f32[n]\ninput %%z f32[2]\n%%c = nonzero(%%x)\n%%0 = call(@0, %%z, n)\noutput c = %%c\n"
        "output y = %%0\n",
        results[f]);
    hr_graph *g = graph_of(text);
    hr_session *session = session_of(g, NULL);
    for (int64_t n = 2; n < 5; ++n) {
      hr_tensor inputs[2] = {counted(DIMS(n)), tensor_of(HR_DTYPE_F32, DIMS(2), F32(1, 10))}, out[2];
      const hr_tensor *places[2] = {&inputs[0], &inputs[1]};
      float got[8];
      HR_ASSERT_OK(hr_session_run(session, 2, places, 2, out));
      read(&out[1], got);
      HR_ASSERT_EQ(out[1].dims[0], f == 0 ? 2 : 2 * n);
      for (int64_t i = 0; i < out[1].dims[0]; ++i) {
        HR_ASSERT(got[i] == (float)(n * (2 - f) * (i % 2 == 0 ? 1 : 10)));
      }
      release_each(2, out);
      release_each(2, inputs);
    }
    HR_ASSERT_EQ(stats_of(session).instances, f == 0 ? 3 + 1 : 3 + 3); /* live ones of the graph, then the function's */
    hr_session_release(session);
    hr_graph_release(g);
  }
}

HR_TEST(counts_of_the_device_are_dims) {
  open_stream();
  hr_graph *g = graph_of("graph 2\ninput %x f32[n]\n%m = greater(%x, 1)\n%y = compress(%m, %x)\n%u, %v, %w, %t = "
                         "unique(%x)\n%z = compress(%m, %x)\n%s = add(%y, %z)\noutput y = %y\noutput u = %u\n"
                         "output w = %w\noutput t = %t\noutput s = %s\n");
  expect_graph_type(g, hr_graph_output_value(g, 0), "f32[?]");
  expect_graph_type(g, hr_graph_output_value(g, 1), "f32[?]");
  expect_graph_type(g, hr_graph_output_value(g, 2), "i64[n]");
  expect_graph_type(g, hr_graph_output_value(g, 3), "i64[?]");
  expect_graph_type(g, hr_graph_output_value(g, 4), "f32[?]");
  hr_graph_release(g);
  static const char counts[] =
      "graph 2\ninput %x f32[n]\n%m = greater(%x, 1)\n%y = compress(%m, %x)\n%i = nonzero(%m)\n%z = multiply(%y, %i)\n"
      "%u, %v, %w, %t = unique(%x)\n%q = add(%t, 0)\noutput y = %y\noutput z = %z\noutput u = %u\noutput q = %q\n";
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(4), F32(3, 1, 3, 2));
  HR_ASSERT_EQ(
      check(counts, 1, &x, 4,
            (answer[]){
                {1, {3}, F32(3, 3, 2)}, {2, {1, 3}, F32(0, 6, 6)}, {1, {3}, F32(1, 2, 3)}, {1, {3}, F32(1, 1, 2)}}),
      3);
  hr_tensor_release(&x);
  x = tensor_of(HR_DTYPE_F32, DIMS(2), F32(0, 0));
  HR_ASSERT_EQ(
      check(counts, 1, &x, 4, (answer[]){{1, {0}, NULL}, {2, {1, 0}, NULL}, {1, {1}, F32(0)}, {1, {1}, F32(2)}}), 3);
  hr_tensor_release(&x);
}

HR_TEST(counts_of_boxes_are_dims) {
  open_stream();
  static const char text[] = "graph 2\ninput %b f32[1, n, 4]\ninput %s f32[1, 1, n]\n%i = non_max_suppression(%b, %s)\n"
                             "%j = multiply(%i, 2)\noutput i = %i\noutput j = %j\n";
  hr_graph *g = graph_of(text);
  expect_graph_type(g, hr_graph_output_value(g, 1), "i64[?,3]");
  hr_graph_release(g);
  hr_tensor inputs[2] = {tensor_of(HR_DTYPE_F32, DIMS(1, 3, 4), F32(0, 0, 1, 1, 0, 0, 1, 2, 5, 5, 6, 6)),
                         tensor_of(HR_DTYPE_F32, DIMS(1, 1, 3), F32(1, 2, 3))};
  HR_ASSERT_EQ(
      check(text, 2, inputs, 2, (answer[]){{2, {2, 3}, F32(0, 0, 2, 0, 0, 1)}, {2, {2, 3}, F32(0, 0, 4, 0, 0, 2)}}), 1);
  release_each(2, inputs);
}

HR_TEST(operations_between_waits_have_instances) {
  open_stream();
  static const char text[] =
      "graph 2\ninput %x f32[n, 3]\nconstant %w f32[3, 2] = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]\n%p = matmul(%x, %w)\n"
      "%q = relu(%p)\n%s = sum(%q, axis=[1])\n%m = greater(%s, 3)\n%y = compress(%m, %q)\n%e = add(%y, 1)\n"
      "%d = shape(%q)\nconstant %one i64[] = [1]\n%k = take(%d, %one)\n%f = reshape(%e, shape=[%k, -1])\n%r = sum(%f, "
      "axis=[1])\n"
      "%c = sum(%m)\n%t = read(%c)\n%a = arange(stop=%t)\n%b = multiply(%a, 2)\n%z = add(%b, 1)\noutput r = %r\n"
      "output z = %z\noutput k = %k\n";
  hr_graph *g = graph_of(text);
  hr_session *session = session_of(g, NULL);
  static const float rows[4][3] = {{1, 2, 0}, {1, 1, 2}, {0, 1, 3}, {5, 0, 0}};
  static const int chosen[4] = {2, 3, 2, 3}, instances[4] = {4, 6, 6, 6}; /* the graph, and three pieces */
  static const float sums[4][2] = {{8, 9}, {12, 12}, {8, 9}, {12, 12}};
  for (int i = 0; i < 4; ++i) {
    float elements[4][3];
    memcpy(elements, rows, sizeof rows);
    elements[3][0] = chosen[i] == 3 ? 5 : 0;
    hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(4, 3), elements), out[3];
    const hr_tensor *places[1] = {&x};
    HR_ASSERT_OK(hr_session_run(session, 1, places, 3, out));
    HR_ASSERT_EQ(out[1].dims[0], chosen[i]);
    expect_values(&out[1], chosen[i], F32(1, 3, 5));
    EXPECT(&out[2], 2);
    float got[2];
    read(&out[0], got);
    if (got[0] != sums[i][0] || got[1] != sums[i][1]) {
      HR_FAIL("sums %g and %g in run %d", (double)got[0], (double)got[1], i);
    }
    HR_ASSERT_EQ(stats_of(session).instances, instances[i]);
    release_each(3, out);
    hr_tensor_release(&x);
  }
  hr_session_release(session);
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(4, 3), rows);
  HR_ASSERT_EQ(check(text, 1, &x, 3, (answer[]){{1, {2}, F32(12, 12)}, {1, {3}, F32(1, 3, 5)}, {0, {0}, F32(2)}}), 2);
  hr_tensor_release(&x);
  hr_graph_release(g);
}

/* Types come from a few numbers in place of n, of which none shows that %c has at most 7000 elements. */
HR_TEST(runs_do_not_rely_on_descriptions_of_dims) {
  open_stream();
  static const char text[] =
      "graph 2\ninput %x f32[n]\n%nz = nonzero(%x)\nconstant %l i64[] = [7000]\nconstant %h i64[] = [1]\n"
      "%m = minimum(n, %l)\n%o = minimum(n, %h)\n%c = slice(%x, begin=[0], count=[%m], step=[1])\n"
      "%d = slice(%x, begin=[0], count=[%o], step=[1])\n%q = nonzero(%c)\n%0 = sum(%c)\n%1 = divide(%0, n)\n"
      "%2 = sum(%x)\n%3 = add(%1, %2)\n%s = shape(%c)\n%4 = divide(%3, %s)\n%5 = sum(%d)\n%6 = arange(stop=n)\n"
      "%7 = multiply(%6, %5)\n%8 = sum(%7)\n%9 = max(%nz)\n%10 = max(%q)\n%11 = add(%9, %10)\noutput a = %1\noutput b "
      "= %4\noutput c = %8\noutput d = %11\n";
  static float ones[20000];
  hr_graph *g = graph_of(text);
  for (int i = 0; i < 20000; ++i) {
    ones[i] = 1;
  }
  hr_session *session = session_of(g, NULL);
  HR_ASSERT(hr_graph_inner_count(hr_session_graph(session)) > 0);
  hr_session_release(session);
  hr_graph_release(g);
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(20000), ones);
  HR_ASSERT_EQ(
      check(text, 1, &x, 4,
            (answer[]){
                {0, {0}, F32(0.35F)}, {1, {1}, F32(20000.35F / 7000)}, {0, {0}, F32(199990000)}, {0, {0}, F32(26998)}}),
      2);
  hr_tensor_release(&x);
  x = tensor_of(HR_DTYPE_F32, DIMS(2), ones);
  HR_ASSERT_EQ(
      check(text, 1, &x, 4, (answer[]){{0, {0}, F32(1)}, {1, {1}, F32(1.5F)}, {0, {0}, F32(1)}, {0, {0}, F32(2)}}), 2);
  hr_tensor_release(&x);
}

/* A dim that is 1 at all of these numbers, but not for n = 0. */
HR_TEST(runs_do_not_rely_on_constant_dims) {
  open_stream();
  static const char text[] =
      "graph 2\ninput %x f32[n]\nconstant %h i64[] = [1]\n%o = minimum(n, %h)\n"
      "%d = slice(%x, begin=[0], count=[%o], step=[1])\n%q = nonzero(%d)\n%0 = multiply(%d, 2)\n%1 = add(%0, 1)\n"
      "output y = %1\noutput q = %q\n";
  for (int64_t n = 0; n < 3; ++n) {
    hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(n), F32(4, 5, 6));
    HR_ASSERT_EQ(check(text, 1, &x, 2, (answer[]){{1, {n > 0}, F32(9)}, {2, {1, n > 0}, F32(0)}}), n > 0);
    hr_tensor_release(&x);
  }
}

HR_TEST(numbers_that_are_read_are_attributes) {
  open_stream();
  static const char text[] = "graph 2\ninput %k i64[]\ninput %x f32[n]\n%r = read(%k)\n%a = arange(stop=%r)\n"
                             "%p = slice(%x, begin=[%r], count=[1], step=[1])\noutput a = %a\noutput p = %p\n";
  hr_tensor inputs[2] = {i64_of(2), counted(DIMS(4))};
  HR_ASSERT_EQ(check(text, 2, inputs, 2, (answer[]){{1, {2}, F32(0, 1)}, {1, {1}, F32(2)}}), 1);
  hr_tensor_release(&inputs[0]);
  inputs[0] = i64_of(3);
  HR_ASSERT_EQ(check(text, 2, inputs, 2, (answer[]){{1, {3}, F32(0, 1, 2)}, {1, {1}, F32(3)}}), 1);
  release_each(2, inputs);
}

HR_TEST(the_number_of_an_iteration_is_read_without_a_wait) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %s f32[]\ninput %x f32[n]\n%r = read(%i)\n"
      "%p = slice(%x, begin=[%r], count=[1], step=[1])\n%q = reshape(%p, shape=[])\n%t = add(%s, %q)\noutput t = "
      "%t\n}\n"
      "input %k i64[]\ninput %x f32[n]\nconstant %z f32[] = [0.0]\n%0 = for(@0, 3, %z, %x, carried=1)\n"
      "%1 = for(@0, %k, %z, %x, carried=1)\noutput p = %0\noutput q = %1\n";
  hr_tensor inputs[2] = {i64_of(4), counted(DIMS(4))};
  HR_ASSERT_EQ(check(text, 2, inputs, 2, (answer[]){{0, {0}, F32(3)}, {0, {0}, F32(6)}}), 1);
  release_each(2, inputs);
}

HR_TEST(captures_and_inferences_read_nothing) {
  open_stream();
  hr_graph *g = graph_of(choice);
  hr_tensor inputs[2] = {bool_of(true), counted(DIMS(2))}, out;
  const hr_tensor *places[2] = {&inputs[0], &inputs[1]};
  HR_ASSERT_ERROR(hr_graph_apply(g, NULL, 2, places, 1, &out), HR_STATUS_UNIMPLEMENTED,
                  "\"y\": \"c\": the condition is computed by the device");
  hr_stream *capture = NULL;
  HR_ASSERT_OK(hr_capture_create(device, &capture));
  HR_ASSERT_ERROR(hr_graph_apply(g, capture, 2, places, 1, &out), HR_STATUS_UNIMPLEMENTED,
                  "\"y\": \"c\": the condition is computed by the device: a capture can't wait");
  hr_stream_release(capture);
  release_each(2, inputs);
  hr_graph_release(g);
}

HR_TEST(failures_inside_name_the_values) {
  open_stream();
  hr_graph *g =
      graph_of("graph 2\nfunction @0 {\ninput %a f32[n]\n%half = reshape(%a, shape=[-1, 2])\noutput h = %half\n}\n"
               "input %x f32[n]\n%y = call(@0, %x)\noutput y = %y\n");
  hr_session *session = session_of(g, NULL);
  hr_tensor odd = counted(DIMS(3)), even = counted(DIMS(4)), out;
  const hr_tensor *places[1] = {&odd};
  HR_ASSERT_ERROR(hr_session_run(session, 1, places, 1, &out), HR_STATUS_INVALID_ARGUMENT,
                  "\"y\": \"half\": reshape: ");
  places[0] = &even;
  HR_ASSERT_OK(hr_session_run(session, 1, places, 1, &out));
  EXPECT(&out, 0, 1, 2, 3);
  RELEASE(&odd, &even, &out);
  hr_session_release(session);
  hr_graph_release(g);
}

/* ---- variables ---- */

HR_TEST(variables_keep_their_values_between_runs) {
  open_stream();
  hr_graph *g = graph_of("graph 2\nvariable %w f32[2] = [1.0, 2.0]\nvariable %v f32[2] = [5.0, 6.0]\n"
                         "variable %u f32[2] = [0.0, 0.0]\ninput %x f32[2]\n%s = add(%w, %x)\nassign %w = %s\n"
                         "assign %v = %w\noutput s = %s\noutput v = %v\noutput u = %u\n"),
           *again = read_back(g);
  hr_graph_release(g);
  hr_session *session = session_of(again, NULL);
  hr_graph_release(again);
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2), F32(10, 20)), out[3], w;
  const hr_tensor *places[1] = {&x};
  HR_ASSERT_OK(hr_session_run(session, 1, places, 3, out));
  EXPECT(&out[0], 11, 22);
  EXPECT(&out[1], 5, 6);
  EXPECT(&out[2], 0, 0);
  release_each(3, out);
  HR_ASSERT_OK(hr_session_run(session, 1, places, 3, out));
  EXPECT(&out[0], 21, 42);
  EXPECT(&out[1], 1, 2); /* the value from before the first run's end */
  release_each(3, out);
  HR_ASSERT_OK(hr_session_variable(session, "w", &w));
  EXPECT(&w, 21, 42);
  hr_tensor_release(&w);
  HR_ASSERT_OK(hr_session_set_variable(session, "w", &x));
  HR_ASSERT_OK(hr_session_run(session, 1, places, 3, out));
  EXPECT(&out[0], 20, 40);
  EXPECT(&out[1], 11, 22);
  release_each(3, out);
  EXPECT(&x, 10, 20);
  hr_tensor wrong = counted(DIMS(3));
  HR_ASSERT_ERROR(hr_session_set_variable(session, "w", &wrong), HR_STATUS_INVALID_ARGUMENT,
                  "variable \"w\" is given f32[3], expected f32[2]");
  HR_ASSERT_ERROR(hr_session_variable(session, "x", &w), HR_STATUS_NOT_FOUND, "there is no variable \"x\"");
  RELEASE(&wrong, &x);
  hr_session_release(session);
}

HR_TEST(variables_and_conditions_train_together) {
  open_stream();
  hr_graph *g =
      graph_of("graph 2\nfunction @0 {\ninput %w f64[2]\n%y = multiply(%w, 0.5)\noutput y = %y\n}\n"
               "function @1 {\ninput %w f64[2]\noutput y = %w\n}\nvariable %w f64[2] = [4.0, 1.0]\ninput %t f64[2]\n"
               "%e = subtract(%w, %t)\n%q = square(%e)\n%l = sum(%q)\n%g = gradient(%l, %w)\n%h = multiply(%g, 0.25)\n"
               "%n = subtract(%w, %h)\n%c = greater(%l, 1)\n%r = if(@1, @0, %c, %n)\nassign %w = %r\noutput l = %l\n");
  hr_session *session = session_of(g, NULL);
  const double target[2] = {2, 1};
  hr_tensor t = tensor_of(HR_DTYPE_F64, DIMS(2), target), l, w;
  const hr_tensor *places[1] = {&t};
  double losses[2], value[2];
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(hr_session_run(session, 1, places, 1, &l));
    read_doubles(&l, &losses[i]);
    hr_tensor_release(&l);
  }
  HR_ASSERT(losses[0] == 4 && losses[1] == 1); /* 4 to 3, then to 2.5 and half of that */
  HR_ASSERT_OK(hr_session_variable(session, "w", &w));
  read_doubles(&w, value);
  HR_ASSERT(value[0] == 1.25 && value[1] == 0.5);
  HR_ASSERT_EQ(stats_of(session).waits, 2);
  RELEASE(&w, &t);
  hr_session_release(session);
  hr_graph_release(g);
}

/* In a part, and with a count of the device. */
HR_TEST(variables_have_memory_of_their_own) {
  open_stream();
  static const char *const waits[2] = {"", "%nz = nonzero(%x)\n%k = max(%nz)\noutput k = %k\n"};
  for (int i = 0; i < 2; ++i) {
    char text[1024];
    snprintf(text, sizeof text,
             "graph 2\ninput %%x f32[n]\nvariable %%w f32[2] = [1.0, 2.0]\nvariable %%v f32[2] = [0.0, 0.0]\n"
             "variable %%u f32[2] = [5.0, 6.0]\nvariable %%c f32[2] = [0.0, 0.0]\nconstant %%d f32[2] = [8.0, 9.0]\n"
             "%%s = slice(%%x, begin=[0], count=[2], step=[1])\n%%0 = add(%%w, %%s)\nassign %%w = %%0\n"
             "assign %%v = %%s\nassign %%c = %%d\noutput y = %%0\noutput z = %%u\n%s",
             waits[i]);
    hr_graph *g = graph_of(text);
    hr_session *session = session_of(g, NULL);
    hr_graph_release(g);
    hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2), F32(10, 20)), out[3], all[4], u;
    const hr_tensor *places[1] = {&x};
    static const char *const names[4] = {"w", "v", "c", "u"};
    HR_ASSERT_OK(hr_session_variable(session, "u", &u));
    HR_ASSERT_OK(hr_session_run(session, 1, places, 2 + i, out));
    for (int v = 0; v < 4; ++v) {
      HR_ASSERT_OK(hr_session_variable(session, names[v], &all[v]));
      HR_ASSERT(all[v].buffer != out[0].buffer && all[v].buffer != out[1].buffer && all[v].buffer != x.buffer);
    }
    HR_ASSERT(all[3].buffer == u.buffer); /* not assigned: not copied */
    EXPECT(&all[0], 11, 22);
    EXPECT(&all[1], 10, 20);
    EXPECT(&all[2], 8, 9);
    release_each(4, all);
    release_each(2 + i, out);
    RELEASE(&x, &u);
    hr_session_release(session);
  }
}

HR_TEST(a_variable_is_set_to_a_copy) {
  open_stream();
  hr_graph *g = graph_of("graph 2\nvariable %w f32[2] = [1.0, 2.0]\n%0 = multiply(%w, 2)\noutput y = %0\n");
  hr_session *session = session_of(g, NULL);
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2), F32(3, 4)), w, y;
  HR_ASSERT_OK(hr_session_set_variable(session, "w", &x));
  const hr_view view = hr_tensor_view(&x);
  HR_ASSERT_OK(hr_stream_write(stream, &view, F32(9, 9))); /* into the same buffer */
  HR_ASSERT_OK(hr_session_run(session, 0, NULL, 1, &y));
  EXPECT(&y, 6, 8);
  HR_ASSERT_OK(hr_session_variable(session, "w", &w));
  HR_ASSERT(w.buffer != x.buffer);
  EXPECT(&w, 3, 4);
  RELEASE(&w, &x);
  hr_tensor_release(&y);
  hr_session_release(session);
  hr_graph_release(g);
}

/* Of a graph that waits, too, which the session cuts into functions: the package has none of these. */
HR_TEST(a_snapshot_has_the_values_of_variables) {
  open_stream();
  static const char *const waits[2] = {"", "%nz = nonzero(%x)\n%k = max(%nz)\n%l = add(%k, 1)\noutput l = %l\n"};
  for (int i = 0; i < 2; ++i) {
    char text[512], path[] = "/tmp/snapshot.XXXXXX";
    snprintf(text, sizeof text,
             "graph 2\ninput %%x f32[n]\nvariable %%w f32[2] = [1.0, 2.0]\nvariable %%v i64[] = [7]\n"
             "%%0 = multiply(%%w, 2)\nassign %%w = %%0\n%%1 = add(%%x, 1)\noutput y = %%1\noutput v = %%v\n%s",
             waits[i]);
    hr_graph *g = graph_of(text), *snapshot = NULL, *read = NULL;
    hr_session *session = session_of(g, NULL), *again = NULL;
    hr_tensor x = counted(DIMS(3)), out[3], w;
    const hr_tensor *places[1] = {&x};
    for (int run = 0; run < 2; ++run) {
      HR_ASSERT_OK(hr_session_run(session, 1, places, 2 + i, out));
      release_each(2 + i, out);
    }
    HR_ASSERT_OK(hr_session_snapshot(session, &snapshot));
    HR_ASSERT_EQ(hr_graph_inner_count(snapshot), 0);
    HR_ASSERT(mkstemp(path) >= 0);
    HR_ASSERT_OK(hr_package_write(snapshot, path, 0, NULL));
    hr_package *package = NULL;
    HR_ASSERT_OK(hr_package_open(path, &package));
    HR_ASSERT_OK(hr_package_graph(package, &read));
    hr_package_close(package);
    again = session_of(read, NULL);
    HR_ASSERT_OK(hr_session_variable(again, "w", &w));
    EXPECT(&w, 4, 8);
    hr_tensor_release(&w);
    HR_ASSERT_OK(hr_session_run(again, 1, places, 2 + i, out));
    EXPECT(&out[0], 1, 2, 3);
    release_each(2 + i, out);
    hr_tensor_release(&x);
    hr_session_release(session);
    hr_session_release(again);
    hr_graph_release(read);
    hr_graph_release(snapshot);
    hr_graph_release(g);
    remove(path);
  }
}

HR_TEST(a_number_that_is_an_argument_stays_a_number) {
  open_stream();
  hr_graph *g =
      graph_of("graph 2\nfunction @0 {\ninput %a f64[]\ninput %x f32[n]\n%y = multiply(%x, %a)\noutput y = %x\n"
               "output a = %a\noutput p = %y\n}\nvariable %w f32[2] = [1.0, 2.0]\ninput %x f32[n]\n"
               "%0, %1, %2 = call(@0, 0.5, %x)\n%3 = multiply(%w, 0.5)\n%4, %5, %6 = call(@0, 0.5, %x)\n"
               "assign %w = %3\noutput y = %0\noutput a = %5\noutput p = %2\noutput w = %3\n");
  hr_tensor x = counted(DIMS(3)), out[4];
  const hr_tensor *places[1] = {&x};
  for (int i = 0; i < 2; ++i) {
    hr_session *session = session_of(g, &(hr_session_options){.keeps_operations = i == 0});
    for (int run = 0; run < 2; ++run) {
      double half;
      HR_ASSERT_OK(hr_session_run(session, 1, places, 4, out));
      EXPECT(&out[0], 0, 1, 2);
      expect_type(&out[1], HR_DTYPE_F64, 0, NULL);
      read_doubles(&out[1], &half);
      HR_ASSERT(half == 0.5);
      expect_type(&out[2], HR_DTYPE_F64, DIMS(3)); /* an f64 inside the function */
      expect_type(&out[3], HR_DTYPE_F32, DIMS(2));
      expect_values(&out[3], 2, run == 0 ? F32(0.5F, 1) : F32(0.25F, 0.5F));
      release_each(4, out);
    }
    hr_session_release(session);
  }
  hr_tensor_release(&x);
  hr_graph_release(g);
}

/* ---- gradients ---- */

/* The gradient of output 0 by input 0 against differences, in f64. The text's outputs: a number, its gradient. */
static void check_gradient(const char *text, int count, const double *at, const hr_tensor *others) {
  enum { MOST_ELEMENTS = 8 };
  hr_graph *g = graph_of(text);
  hr_session *session = session_of(g, NULL);
  double values[MOST_ELEMENTS], gradient[MOST_ELEMENTS], sides[2];
  const double step = 1e-5;
  for (int i = -1; i < 2 * count; ++i) {
    memcpy(values, at, (size_t)count * sizeof *values);
    if (i >= 0) {
      values[i / 2] += i % 2 == 0 ? step : -step;
    }
    hr_tensor x = tensor_of(HR_DTYPE_F64, DIMS(count), values), out[2];
    const hr_tensor *places[3] = {&x, others, others != NULL ? others + 1 : NULL};
    HR_ASSERT_OK(hr_session_run(session, hr_graph_input_count(g), places, 2, out));
    read_doubles(&out[0], &sides[(i + 2) % 2]);
    if (i < 0) {
      expect_type(&out[1], HR_DTYPE_F64, DIMS(count));
      read_doubles(&out[1], gradient);
    }
    if (i % 2 == 1) {
      HR_ASSERT(is_close(gradient[i / 2], (sides[0] - sides[1]) / (2 * step), 1e-7));
    }
    RELEASE(&x, &out[0], &out[1]);
  }
  hr_session_release(session);
  hr_graph_release(g);
}

HR_TEST(gradients_through_calls_and_conditions) {
  open_stream();
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %a f64[n]\ninput %b f64[n]\n%s = sin(%a)\n%t = multiply(%s, %b)\noutput t = "
      "%t\n}\n"
      "function @1 {\ninput %a f64[n]\ninput %b f64[n]\n%s = exp(%b)\noutput t = %s\n}\n"
      "input %x f64[n]\ninput %c bool[]\n%y = call(@0, %x, %x)\n%z = if(@0, @1, %c, %y, %x)\n%w = multiply(%z, %y)\n"
      "%l = sum(%w)\n%g = gradient(%l, %x)\noutput l = %l\noutput g = %g\n";
  for (int i = 0; i < 2; ++i) {
    hr_tensor c = bool_of(i == 0);
    check_gradient(text, 3, (double[]){0.3, -1.2, 2}, &c);
    hr_tensor_release(&c);
  }
}

HR_TEST(gradients_through_loops) {
  open_stream();
  static const char loops[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f64[n]\ninput %x f64[n]\n%s = tanh(%a)\n%p = multiply(%s, %x)\n"
      "%t = add(%p, %i)\noutput t = %t\noutput s = %s\n}\ninput %x f64[n]\ninput %k i64[]\n"
      "%0, %1 = for(@0, %k, %x, %x, carried=1)\n%2 = sum(%0)\n%3 = multiply(%1, %1)\n%4 = sum(%3)\n%l = add(%2, %4)\n"
      "%g = gradient(%l, %x)\noutput l = %l\noutput g = %g\n";
  for (int64_t count = 0; count < 4; count += 3) {
    hr_tensor k = i64_of(count);
    check_gradient(loops, 2, (double[]){0.3, -1.2}, &k);
    hr_tensor_release(&k);
  }
  check_gradient("graph 2\nfunction @0 {\ninput %s f64[]\ninput %a f64[]\n%p = multiply(%s, %a)\n%t = sin(%p)\n"
                 "output s = %t\noutput t = %t\n}\ninput %x f64[n]\nconstant %z f64[] = [0.7]\n"
                 "%0, %1 = scan(@0, %z, %x, carried=1, sequences=1)\n%2 = exp(%1)\n%3 = sum(%2)\n%l = add(%0, %3)\n"
                 "%g = gradient(%l, %x)\noutput l = %l\noutput g = %g\n",
                 4, (double[]){0.3, -1.2, 2, 0.9}, NULL);
  check_gradient("graph 2\nfunction @0 {\ninput %a f64[n]\n%b = multiply(%a, %a)\noutput b = %b\n}\n"
                 "function @1 {\ninput %a f64[n]\n%s = sum(%a)\n%c = less(%s, 100)\noutput c = %c\n}\n"
                 "input %x f64[n]\n%y = while(@0, @1, %x, carried=1)\n%l = sum(%y)\n%g = gradient(%l, %x)\n"
                 "output l = %l\noutput g = %g\n",
                 2, (double[]){1.5, -1.2}, NULL);
}

HR_TEST(a_body_may_have_gradients_of_its_own) {
  open_stream();
  static const char text[] = /* Newton's steps to the square root of x, and how it changes with x */
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f64[n]\ninput %x f64[n]\n%s = square(%a)\n%f = subtract(%s, "
      "%x)\n"
      "%d = gradient(%f, %a)\n%q = divide(%f, %d)\n%t = subtract(%a, %q)\noutput t = %t\n}\n"
      "input %x f64[n]\nconstant %one f64[1] = [1.0]\n%s = shape(%x)\n%b = broadcast_to(%one, shape=%s)\n"
      "%0 = for(@0, 8, %b, %x, carried=1)\n%l = sum(%0)\n%g = gradient(%l, %x)\noutput l = %l\noutput g = %g\n";
  check_gradient(text, 2, (double[]){2, 9}, NULL);
  hr_graph *g = graph_of(text);
  const double at[2] = {4, 9};
  hr_tensor x = tensor_of(HR_DTYPE_F64, DIMS(2), at), out[2];
  const hr_tensor *places[1] = {&x};
  double l, dx[2];
  HR_ASSERT_OK(hr_graph_apply(g, stream, 1, places, 2, out));
  read_doubles(&out[0], &l);
  read_doubles(&out[1], dx);
  HR_ASSERT(is_close(l, 5, 1e-9) && is_close(dx[0], 0.25, 1e-9) && is_close(dx[1], 1.0 / 6, 1e-9));
  RELEASE(&x, &out[0], &out[1]);
  hr_graph_release(g);
}

HR_TEST(gradients_do_not_count_other_values_in_the_same_memory) {
  open_stream();
  static const char constants[] =
      "graph 2\nfunction @0 {\ninput %x f32[2]\nconstant %c f32[2] = [3.0, 5.0]\n%y = multiply(%x, %c)\n"
      "output c = %c\noutput y = %y\n}\ninput %x f32[2]\n%0, %1 = call(@0, %x)\n%2, %3 = call(@0, %x)\n"
      "%4 = multiply(%0, %2)\n%5 = gradient(%4, %0)\noutput g = %5\n";
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2), F32(1, 2));
  HR_ASSERT_EQ(check(constants, 1, &x, 1, (answer[]){{1, {2}, F32(3, 5)}}), 0);
  static const char body[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[2]\nconstant %c f32[2] = [3.0, 5.0]\n"
      "%0 = multiply(%a, %c)\n%1 = gradient(%0, %a)\noutput a = %c\noutput g = %1\n}\ninput %x f32[2]\n"
      "input %k i64[]\n%0, %1 = for(@0, %k, %x, carried=1)\noutput g = %1\n";
  hr_tensor inputs[2] = {x, i64_of(3)};
  HR_ASSERT_EQ(check(body, 2, inputs, 1, (answer[]){{2, {3, 2}, F32(3, 5, 3, 5, 3, 5)}}), 1);
  release_each(2, inputs);
}

/* Live runs, for the count is read: variables with one value, and a variable that is an input. */
HR_TEST(gradients_by_variables_in_the_same_memory) {
  open_stream();
  hr_graph *g = graph_of("graph 2\ninput %x f32[2]\ninput %k i64[]\nvariable %a f32[2] = [1.0, 2.0]\n"
                         "variable %b f32[2] = [3.0, 4.0]\n%s = add(%a, %b)\n%r = read(%k)\n%t = add(%s, %r)\n"
                         "%p = multiply(%a, %b)\n%q = multiply(%p, %x)\n%g = gradient(%q, %a)\n"
                         "%h = gradient(%q, %x)\nassign %a = %t\nassign %b = %t\noutput g = %g\noutput h = %h\n");
  hr_session *session = session_of(g, NULL);
  hr_graph_release(g);
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2), F32(1, 1)), k = i64_of(1), out[2], a;
  const hr_tensor *places[2] = {&x, &k};
  HR_ASSERT_OK(hr_session_run(session, 2, places, 2, out)); /* a and b become 5, 7 */
  EXPECT(&out[0], 3, 4);
  EXPECT(&out[1], 3, 8);
  release_each(2, out);
  HR_ASSERT_OK(hr_session_variable(session, "a", &a));
  EXPECT(&a, 5, 7);
  places[0] = &a;
  HR_ASSERT_OK(hr_session_run(session, 2, places, 2, out));
  EXPECT(&out[0], 25, 49);
  EXPECT(&out[1], 25, 49);
  release_each(2, out);
  RELEASE(&a, &x, &k);
  hr_session_release(session);
}

/* ---- packages and memory ---- */

HR_TEST(packages_keep_functions_and_variables) {
  open_stream();
  hr_graph *g = new_graph(), *body = new_graph(), *opened = NULL;
  float large[100];
  for (int i = 0; i < 100; ++i) {
    large[i] = (float)i;
  }
  hr_value i = input_of(body, "i", HR_DTYPE_I64, ""), a = input_of(body, "a", HR_DTYPE_F32, "100");
  (void)i;
  hr_graph_output(body, "b", ADD(body, ADD, VALUES(a, constant_of(body, HR_DTYPE_F32, "100", large)), 0, NULL));
  const hr_type type = type_of(HR_DTYPE_F32, "100");
  hr_value w = hr_graph_variable(g, "w", &type, large), two = hr_graph_number(g, hr_scalar_i64(2));
  hr_value y = hr_graph_for(g, two, body, 1, 1, &w);
  hr_graph_assign(g, w, y);
  hr_graph_output(g, "y", y);
  HR_ASSERT_OK(hr_graph_status(g));
  HR_ASSERT_EQ(hr_graph_constant_count(g), 2);
  HR_ASSERT_EQ(hr_graph_constant_bytes(g), 800);
  HR_ASSERT_EQ(hr_graph_data_count(g), 2);
  hr_graph_release(body);
  char path[] = "/tmp/control_flow_test.XXXXXX";
  int file = mkstemp(path);
  HR_ASSERT(file >= 0);
  HR_ASSERT_OK(hr_package_write(g, path, 0, NULL));
  hr_graph_release(g);
  hr_package *package = NULL;
  HR_ASSERT_OK(hr_package_open(path, &package));
  HR_ASSERT_OK(hr_package_verify(package));
  HR_ASSERT_OK(hr_package_graph(package, &opened));
  hr_package_close(package);
  remove(path);
  hr_session *session = session_of(opened, NULL);
  hr_graph_release(opened);
  hr_tensor out;
  for (int run = 1; run < 3; ++run) {
    HR_ASSERT_OK(hr_session_run(session, 0, NULL, 1, &out));
    float got[100];
    read(&out, got);
    HR_ASSERT(got[1] == 1 + 2.0F * (float)run && got[99] == 99 * (1 + 2.0F * (float)run));
    hr_tensor_release(&out);
  }
  hr_session_release(session);
}

HR_TEST(a_package_with_functions_opens_for_ever) {
  open_stream();
  hr_package *package = NULL;
  hr_graph *g = NULL;
  HR_ASSERT_OK(hr_package_open("tests/data/loop_v1.hrpkg", &package));
  HR_ASSERT_OK(hr_package_graph(package, &g));
  hr_package_close(package);
  hr_session *session = session_of(g, NULL);
  hr_graph_release(g);
  hr_tensor conditions[2] = {bool_of(true), bool_of(false)}, out[2];
  for (int i = 0; i < 2; ++i) { /* 1, 2 plus 0, 1 and 2, doubled; then the same, negated */
    const hr_tensor *places[1] = {&conditions[i]};
    HR_ASSERT_OK(hr_session_run(session, 1, places, 2, out));
    expect_values(&out[0], 2, i == 0 ? F32(8, 10) : F32(-11, -13));
    expect_values(&out[1], 6, i == 0 ? F32(1, 2, 1, 2, 2, 3) : F32(8, 10, 8, 10, 9, 11));
    release_each(2, out);
  }
  hr_session_release(session);
  release_each(2, conditions);
}

static hr_status open_and_instantiate(void) {
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[n]\n%b = add(%a, 1.5)\noutput b = %b\noutput a = %a\n}\n"
      "function @1 {\ninput %a f32[n]\n%s = sum(%a, axis=[0], keepdims=true)\noutput s = %s\n}\n"
      "function @2 {\ninput %a f32[n]\n%s = slice(%a, begin=[0], count=[1], step=[1])\noutput s = %s\n}\n"
      "variable %w f32[2] = [1.0, 2.0]\ninput %x f32[n]\n%c = greater(n, 1)\n%y = if(@1, @2, %c, %x)\n"
      "%0, %1 = for(@0, n, %y, carried=1)\n%2, %3 = scan(@3, %0, %1, carried=1, sequences=1)\noutput y = %2\n";
  static const char scanned[] =
      "function @3 {\ninput %a f32[n]\ninput %b f32[n]\n%c = multiply(%a, %b)\noutput c = %c\noutput b = %b\n}\n";
  char whole[2048];
  const char *variable = strstr(text, "variable");
  snprintf(whole, sizeof whole, "%.*s%s%s", (int)(variable - text), text, scanned, variable);
  hr_graph *g = NULL;
  hr_session *session = NULL;
  const hr_tensor x = {.dtype = HR_DTYPE_F32, .rank = 1, .dims = {3}, .strides = {1}}, *places[1] = {&x};
  hr_status status = hr_graph_parse(whole, strlen(whole), NULL, &g);
  status = status == HR_OK ? hr_session_create(stream, g, NULL, &session) : status;
  status = status == HR_OK ? hr_session_warm(session, 1, places) : status;
  hr_session_release(session);
  hr_graph_release(g);
  return status;
}

HR_TEST(control_flow_survives_failing_allocations) {
  open_stream();
  wait_for_kernels();
  HR_TEST_OOM(open_and_instantiate);
}
