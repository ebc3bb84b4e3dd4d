/* Control flow and variables: types, text, and what is refused. src/session/control_flow_test.c runs them. */
#include "graph/graph_test.h"

static void expect_refusal(const char *text, const char *part) {
  hr_graph *g = NULL;
  HR_ASSERT_ERROR(hr_graph_parse(text, strlen(text), NULL, &g), HR_STATUS_INVALID_ARGUMENT, part);
}

/* a [n], b [n]: their sum, and a */
static hr_graph *sum_graph(void) {
  hr_graph *g = new_graph();
  hr_value a = input_of(g, "a", HR_DTYPE_F32, "n"), b = input_of(g, "b", HR_DTYPE_F32, "n");
  hr_graph_output(g, "s", ADD(g, ADD, VALUES(a, b), 0, NULL));
  hr_graph_output(g, "a", a);
  return g;
}

HR_TEST(types_of_control_flow_follow_their_arguments) {
  hr_graph *g = new_graph(), *sum = sum_graph(), *twice = new_graph();
  hr_value a = input_of(twice, "a", HR_DTYPE_F32, "k"), b = input_of(twice, "b", HR_DTYPE_F32, "k");
  hr_graph_output(twice, "s", ADD(twice, CONCAT, VALUES(a, b), 0, NULL));
  hr_graph_output(twice, "b", b);
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "m"), y = input_of(g, "y", HR_DTYPE_F32, "m");
  hr_value c = input_of(g, "c", HR_DTYPE_BOOL, ""), xs = input_of(g, "xs", HR_DTYPE_F32, "t m");
  hr_value call = hr_graph_call(g, sum, VALUES(x, y));
  expect_graph_type(g, call, "f32[m]");
  HR_ASSERT_EQ(hr_graph_result_count(g, call), 2);
  hr_value either = hr_graph_if(g, c, sum, twice, VALUES(x, y));
  expect_graph_type(g, either, "f32[?]");
  expect_graph_type(g, either + 1, "f32[m]");
  hr_value scan = hr_graph_scan(g, sum, 1, 1, VALUES(x, xs));
  expect_graph_type(g, scan, "f32[m]");
  expect_graph_type(g, scan + 1, "f32[t,m]");
  hr_value grown = hr_graph_scan(g, twice, 0, 2, VALUES(xs, xs));
  expect_graph_type(g, grown, "f32[t,2*m]");
  hr_graph_output(g, "grown", grown);
  HR_ASSERT_EQ(hr_graph_inner_count(g), 2); /* each once */
  HR_ASSERT(hr_graph_inner(g, 0) == sum && hr_graph_inner(g, 2) == NULL);
  HR_ASSERT_EQ(hr_graph_operation_count(g), 4);
  hr_graph_release(sum);
  hr_graph_release(twice);
  hr_graph_release(read_back(g));
  hr_graph_release(g);
}

static hr_status build_choosing(void) {
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %a f32[3]\n%b = negative(%a)\noutput b = %b\n}\n"
      "function @1 {\ninput %a f32[3]\ninput %c f32[]\n%d = less(%c, 0)\n%r = if(@0, @0, %d, %a)\noutput r = %r\n}\n"
      "input %xs f32[m,3]\ninput %cs f32[m]\ninput %c f32[]\n"
      "%y = vmap(@1, %xs, %c, in=[0, _], out=[0])\noutput y = %y\n";
  hr_graph *graph = NULL;
  HR_RETURN_IF_ERROR(hr_graph_parse(text, strlen(text), NULL, &graph));
  hr_value xs = hr_graph_find(graph, "xs"), cs = hr_graph_find(graph, "cs");
  hr_graph *callee = (hr_graph *)(uintptr_t)hr_graph_inner(graph, 1);
  HR_ASSERT_EQ(hr_graph_vmap(graph, callee, VALUES(xs, cs), (const int[]){0, 0}, (const int[]){0}), 0);
  hr_status status = hr_graph_take_failure(graph);
  hr_graph_release(graph);
  HR_ASSERT(status != HR_OK);
  const char *expected = "vmap: the condition of if \"r\" differs between slices, expected one that is the same in all";
  if (strcmp(hr_status_message(status), expected) == 0) {
    hr_status_free(status);
    return HR_OK;
  }
  return status;
}

HR_TEST(slices_may_not_choose_a_branch) {
  HR_TEST_OOM(build_choosing);
}

HR_TEST(a_vmap_has_a_dim_of_slices) {
  hr_graph *g = new_graph(), *sum = sum_graph();
  hr_value xs = input_of(g, "xs", HR_DTYPE_F32, "m 3"), y = input_of(g, "y", HR_DTYPE_F32, "3");
  hr_value first = hr_graph_vmap(g, sum, VALUES(xs, y), (const int[]){0, -1}, (const int[]){1, 0});
  expect_graph_type(g, first, "f32[3,m]");
  expect_graph_type(g, first + 1, "f32[m,3]");
  HR_ASSERT_EQ(hr_graph_vmap(g, sum, VALUES(xs, xs), (const int[]){0, 1}, (const int[]){0, 0}), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "vmap: argument 1 has 3 slices, expected");
  HR_ASSERT_EQ(hr_graph_vmap(g, sum, VALUES(y, y), (const int[]){-1, -1}, (const int[]){0, 0}), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "vmap: no argument is sliced");
  HR_ASSERT_EQ(hr_graph_vmap(g, sum, VALUES(xs, xs), (const int[]){2, 2}, (const int[]){0, 0}), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "but is sliced along axis 2");
  HR_ASSERT_EQ(hr_graph_vmap(g, sum, VALUES(xs, xs), (const int[]){0, 0}, (const int[]){0, 2}), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "a result of 1 dims gets a new dim 2");
  hr_graph_release(sum);
  hr_graph_release(read_back(g));
  hr_graph_release(g);
}

HR_TEST(text_has_functions_first) {
  static const char text[] =
      "graph 2\nfunction @0 {\ninput %a f32[]\ninput %limit f32[]\n%0 = multiply(%a, 2)  ; f32[]\noutput next = %0\n"
      "output all = %a\n}\nfunction @1 {\ninput %a f32[]\ninput %limit f32[]\n%0 = less(%a, %limit)  ; bool[]\n"
      "output c = %0\n}\nfunction @2 {\ninput %x f32[]\ninput %limit f32[]\n"
      "%0, %1 = while(@0, @1, %x, %limit, carried=1)  ; f32[], f32[?]\noutput x = %0\noutput all = %1\n}\n"
      "variable %w f32[2] = [1.0, 2.0]\ninput %x f32[]\nconstant %l f32[] = [8.0]\ninput %k i64[]\n"
      "%0, %y = call(@2, %x, %l)  ; f32[], f32[?]\n%1, %2 = if(@2, @2, %k, %0, %x)  ; f32[], f32[?]\n"
      "%3, %4 = scan(@2, %y, %y, carried=0, sequences=2)  ; f32[?], f32[?, ?]\n%5 = read(%k)  ; i64[]\n"
      "%6 = arange(stop=%5)  ; i64[?]\n%7 = add(%w, %1)  ; f32[2]\nassign %w = %7\noutput y = %y\noutput w = %w\n"
      "output r = %6\n";
  hr_graph *g = graph_of(text);
  expect_text(g, text);
  HR_ASSERT_EQ(hr_graph_variable_count(g), 1);
  HR_ASSERT_EQ(hr_graph_variable_value(g, 0), hr_graph_find(g, "w"));
  HR_ASSERT(hr_graph_assigned_value(g, 0) > hr_graph_variable_value(g, 0));
  HR_ASSERT_EQ(hr_graph_assigned_value(g, 1), 0);
  hr_graph_release(g);
}

HR_TEST(a_graph_that_another_one_uses_does_not_change) {
  hr_graph *g = new_graph(), *sum = sum_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "m");
  hr_graph_call(g, sum, VALUES(x, x));
  HR_ASSERT_OK(hr_graph_status(g));
  HR_ASSERT_EQ(input_of(sum, "c", HR_DTYPE_F32, "n"), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(sum), HR_STATUS_FAILED_PRECONDITION, "another graph uses it");
  HR_ASSERT_EQ(hr_graph_call(sum, g, VALUES(1, 2)), 0); /* nor does it contain itself */
  HR_ASSERT_ERROR(hr_graph_take_failure(sum), HR_STATUS_INVALID_ARGUMENT, "");
  HR_ASSERT_EQ(hr_graph_call(g, g, 1, &x), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "its own inner graph");
  hr_graph_release(sum);
  hr_graph_release(g);
}

HR_TEST(interfaces_of_functions_are_checked) {
  hr_graph *g = new_graph(), *sum = sum_graph(), *empty = new_graph(), *state = new_graph();
  const hr_type type = type_of(HR_DTYPE_F32, "2");
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "m"), h = input_of(g, "h", HR_DTYPE_F64, "m");
  hr_graph_output(state, "w", hr_graph_variable(state, "w", &type, (float[]){1, 2}));
  HR_ASSERT_EQ(hr_graph_call(g, sum, 1, &x), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT,
                  "call: an inner graph has 2 inputs, expected 1");
  HR_ASSERT_EQ(hr_graph_call(g, sum, VALUES(x, h)), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "input \"b\" is f64");
  HR_ASSERT_EQ(hr_graph_call(g, sum, VALUES(x, 0)), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "argument 1 is absent");
  HR_ASSERT_EQ(hr_graph_call(g, sum, VALUES(x, 99)), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "no value 99");
  HR_ASSERT_EQ(hr_graph_call(g, empty, 0, NULL), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "an output");
  HR_ASSERT_EQ(hr_graph_call(g, state, 0, NULL), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "expected no variables");
  HR_ASSERT_EQ(hr_graph_while(g, sum, sum, 1, VALUES(x, x)), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "a condition of 2 outputs");
  HR_ASSERT_EQ(hr_graph_if(g, x, sum, sum, VALUES(x, x)), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "the condition is f32");
  HR_ASSERT_EQ(hr_graph_scan(g, sum, 0, 2, VALUES(x, x)), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "input \"a\"");
  HR_ASSERT_EQ(hr_graph_scan(g, sum, 1, 2, VALUES(x, x)), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "scan: 1 carried values and 2 sequences");
  HR_ASSERT_EQ(hr_graph_read(g, x), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "read: its input is f32");
  HR_ASSERT_EQ(hr_graph_inner_count(g), 0); /* what failed is not there */
  hr_graph_call(g, sum, VALUES(x, x));
  HR_ASSERT_OK(hr_graph_status(g));
  HR_ASSERT_EQ(hr_graph_inner_count(g), 1);
  hr_graph *const all[] = {g, sum, empty, state};
  for (int i = 0; i < 4; ++i) {
    hr_graph_release(all[i]);
  }
}

HR_TEST(loops_keep_dtype_and_rank) {
  expect_refusal(
      "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[n]\n%b = astype(%a, dtype=f64)\noutput b = %b\n}\n"
      "input %x f32[n]\n%0 = for(@0, 3, %x, carried=1)\n",
      "carried value 0 is f32[");
  expect_refusal("graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[n]\n%b = sum(%a)\noutput b = %b\n}\n"
                 "input %x f32[n]\n%0 = for(@0, 3, %x, carried=1)\n",
                 "and after an iteration f32[]");
  expect_refusal("graph 2\nfunction @0 {\ninput %a f32[n]\noutput b = %a\n}\nfunction @1 {\ninput %a f32[n]\n"
                 "%b = astype(%a, dtype=f64)\noutput b = %b\n}\ninput %c bool[]\ninput %x f32[n]\n"
                 "%0 = if(@0, @1, %c, %x)\n",
                 "if: result 0 is f32[");
  expect_refusal("graph 2\nfunction @0 {\ninput %a f32[n]\noutput b = %a\n}\nfunction @1 {\ninput %a f32[n]\n"
                 "output b = %a\n}\ninput %x f32[n]\n%0 = while(@0, @1, %x, carried=1)\n",
                 "while: the condition is f32[");
}

HR_TEST(errors_of_functions_have_a_place) {
  expect_refusal("graph 2\nfunction @1 {\n", "line 2, column 12: expected the next number of a function");
  expect_refusal("graph 2\nfunction @0 {\ninput %x f32[]\noutput x = %x\n", "expected '}' of the function");
  expect_refusal("graph 2\n}\n", "line 2, column 2: expected a function before this");
  expect_refusal("graph 2\nfunction @0 {\nfunction @1 {\n", "line 3, column 9: expected functions in front of all");
  expect_refusal("graph 2\ninput %x f32[]\nfunction @0 {\n", "line 3, column 9: expected functions in front of all");
  expect_refusal("graph 2\nfunction @0 {\ninput %x f32[]\n%y = call(@0, %x)\noutput y = %y\n}\n",
                 "line 4, column 13: expected the number of an earlier function");
  expect_refusal("graph 2\nfunction @0 {\ninput %x f32[]\noutput x = %x\n}\ninput %y f32[]\n%0 = add(%y, %x)\n",
                 "line 7: no earlier value has the name \"x\"");
  expect_refusal("graph 2\nfunction @0 {\ninput %x f32[]\noutput x = %x\n}\ninput %y f32[]\n%0 = if(@0, @0)\n",
                 "a condition or a count");
  expect_refusal("graph 2\nfunction @0 {\ninput %x f32[]\noutput x = %x\n}\ninput %y f32[]\n"
                 "%0 = call(@0, %y, carried=1)\n",
                 "expected an operand before this");
  expect_refusal("graph 2\nfunction @0 {\ninput %x f32[]\noutput x = %x\n}\ninput %y f32[]\n"
                 "%0 = scan(@0, %y, carried=-1)\n",
                 "a number of arguments");
  expect_refusal("graph 2\nvariable %w f32[n] = [1.0]\n", "at most 64 integers");
  expect_refusal("graph 2\nvariable %0 f32[1] = [1.0]\n", "a name of the variable");
  expect_refusal("graph 2\nvariable %w f32[1] = [1.0]\nassign %w = 1.0\n", "different types");
  expect_refusal("graph 2\nvariable %w f32[1] = [1.0]\ninput %x f32[2]\nassign %w = %x\n", "different types");
  expect_refusal("graph 2\nvariable %w f32[1] = [1.0]\nassign %w = %w\nassign %w = %w\n", "assigned twice");
  expect_refusal("graph 2\ninput %x f32[1]\nassign %x = %x\n", "expected a variable");
}

/* Of so many symbols, each dim that depends on data could be one. */
HR_TEST(unknown_dims_are_no_symbols) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n"), y[100];
  for (int i = 0; i < HR_GRAPH_SYMBOLS_MAX - 1; ++i) {
    char name[16];
    snprintf(name, sizeof name, "s%d", i);
    input_of(g, name, HR_DTYPE_F32, name);
  }
  for (int i = 0; i < 100; ++i) {
    y[i] = ADD(g, NONZERO, VALUES(x), 0, NULL);
    expect_graph_type(g, y[i], "i64[1,?]");
    x = ADD(g, ASTYPE, VALUES(x), ATTRIBUTES_OF({"dtype", {.kind = HR_ATTRIBUTE_DTYPE, .value.dtype = HR_DTYPE_F32}}));
  }
  for (int i = 1; i < 100; ++i) { /* nor are they one another */
    HR_ASSERT_EQ(ADD(g, ADD, VALUES(y[0], y[i]), 0, NULL), 0);
    HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "add: ");
  }
  hr_graph_release(g);
}

/* ---- bounds ---- */

/* Numbers inside of functions are freed: they do not count. */
HR_TEST(many_calls_leave_room_for_numbers) {
  static const char text[] = "graph 2\nfunction @0 {\ninput %x f32[]\n%a = arange(stop=1000)\n%m = sum(%a)\n"
                             "%y = add(%x, %m)\noutput y = %y\n}\ninput %x f32[]\n%0 = call(@0, %x)\n";
  hr_graph *g = graph_of(text), *function = (hr_graph *)(uintptr_t)hr_graph_inner(g, 0);
  hr_value x = hr_graph_find(g, "x");
  for (int i = 0; i < 600; ++i) {
    HR_ASSERT(hr_graph_call(g, function, 1, &x) != 0);
  }
  const hr_attribute stop = {.kind = HR_ATTRIBUTE_REAL, .value.number = hr_scalar_i64(1000)};
  const hr_graph_attribute attribute = {.name = "stop", .value = stop};
  hr_value numbers = hr_graph_add(g, HR_FUNCTIONAL_ARANGE, 0, NULL, 1, &attribute);
  hr_value most = ADD(g, MAX, VALUES(numbers), 0, NULL);
  const hr_graph_attribute computed = {.name = "stop", .value = stop, .values = &most};
  expect_graph_type(g, hr_graph_add(g, HR_FUNCTIONAL_ARANGE, 0, NULL, 1, &computed), "i64[999]");
  hr_graph_release(g);
}

/* Functions that call the one before them so often, `depth` of them; then a call of the last. */
static char *write_chain(int depth, int calls) {
  char *text = malloc((size_t)(depth + 2) * (size_t)(calls + 4) * 64), *at = text;
  at += sprintf(at, "graph 2\nfunction @0 {\ninput %%x f32[]\n%%0 = add(%%x, 1)\noutput y = %%0\n}\n");
  for (int f = 1; f < depth; ++f) {
    at += sprintf(at, "function @%d {\ninput %%x f32[]\n", f);
    for (int c = 0; c < calls; ++c) {
      at += sprintf(at, "%%%d = call(@%d, %%x)\n", c, f - 1);
    }
    at += sprintf(at, "output y = %%%d\n}\n", calls - 1);
  }
  sprintf(at, "input %%x f32[]\n%%0 = call(@%d, %%x)\noutput y = %%0\n", depth - 1);
  return text;
}

HR_TEST(functions_are_bounded_in_depth_and_operations) {
  char *deep = write_chain(HR_GRAPH_DEPTH_MAX, 1), *deeper = write_chain(HR_GRAPH_DEPTH_MAX + 1, 1);
  char *wide = write_chain(24, 2);
  hr_graph_release(graph_of(deep));
  expect_refusal(deeper, "expected no variables, an output, and depth at most 31");
  expect_refusal(wide, "more than 1048576 values");
  free(deep);
  free(deeper);
  free(wide);
}

/* Each is short, with many results: refused before they take memory and seconds. */
HR_TEST(results_are_bounded) {
  char text[4096] = "graph 2\n", *at = text + strlen(text);
  hr_graph *many = new_graph(), *g = new_graph();
  hr_value x = input_of(many, "x", HR_DTYPE_F32, "30000"), y = input_of(g, "y", HR_DTYPE_F32, "30000");
  hr_graph_output(many, "y", ADD(many, UNSTACK, VALUES(x), 0, NULL));
  const int calls = HR_GRAPH_INNER_MAX / 30004; /* of 30,002 values and outputs each */
  for (int i = 0; i < calls; ++i) {
    hr_graph_call(g, many, 1, &y);
  }
  HR_ASSERT_OK(hr_graph_status(g));
  HR_ASSERT_EQ(hr_graph_call(g, many, 1, &y), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "more than 1048576 values of inner graphs");
  for (hr_status_code code = HR_STATUS_OK; code == HR_STATUS_OK && hr_graph_operation_count(g) < calls + 18;) {
    ADD(g, UNSTACK, VALUES(y), 0, NULL);
    hr_status status = hr_graph_status(g);
    code = hr_status_code_of(status);
    hr_status_ignore(status);
  }
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "unstack: operations have more than 262144");
  HR_ASSERT_EQ(hr_graph_operation_count(g), calls + 8);
  for (int i = 0; i < 10; ++i) {
    at += sprintf(at, "function @%d {\ninput %%x f32[30000]\n%%0 = unstack(%%x)\noutput y = %%0\n}\n", i);
  }
  expect_refusal(text, "line 46");
  hr_graph_release(many);
  hr_graph_release(g);
}

HR_TEST(simplify_rewrites_functions) {
  open_stream();
  hr_graph *g = graph_of("graph 2\nfunction @0 {\ninput %a f32[n]\nconstant %c f32[1] = [2.0]\n%0 = add(%c, %c)\n"
                         "%1 = multiply(%a, %0)\n%2 = sin(%a)\noutput y = %1\n}\nfunction @1 {\ninput %a f32[n]\n"
                         "%0 = call(@0, %a)\n%1 = call(@0, %a)\n%2 = add(%0, %1)\noutput y = %2\n}\n"
                         "input %x f32[n]\n%0 = call(@1, %x)\n%1 = call(@1, %x)\n%2 = add(%0, %1)\noutput y = %2\n"),
           *simple = NULL;
  HR_ASSERT_OK(hr_graph_simplify(g, stream, &simple));
  expect_text(simple, "graph 2\nfunction @0 {\ninput %a f32[n]\nconstant %0 f32[1] = [4.0]\n"
                      "%1 = multiply(%a, %0)  ; f32[n]\noutput y = %1\n}\nfunction @1 {\ninput %a f32[n]\n"
                      "%0 = call(@0, %a)  ; f32[n]\n%1 = add(%0, %0)  ; f32[n]\noutput y = %1\n}\ninput %x f32[n]\n"
                      "%0 = call(@1, %x)  ; f32[n]\n%1 = add(%0, %0)  ; f32[n]\noutput y = %1\n");
  hr_graph_release(simple);
  hr_graph_release(g);
}

HR_TEST(a_slice_of_two_reads_has_an_unknown_size) {
  static const char *const sizes[2] = {"4", "n"};
  for (int i = 0; i < 2; ++i) {
    char text[512];
    hr_type type;
    snprintf(text, sizeof text,
             "graph 2\ninput %%x f32[%s]\ninput %%b i64[]\ninput %%e i64[]\n%%n = shape(%%x)\n%%s = squeeze(%%n)\n"
             "%%0 = read(%%b)\n%%1 = read(%%e)\n%%2 = minimum(%%0, %%s)\n%%3 = minimum(%%1, %%s)\n"
             "%%4 = subtract(%%3, %%2)\n%%5 = maximum(%%4, 0)\n%%y = slice(%%x, begin=[%%2], count=[%%5], step=[1])\n",
             sizes[i]);
    hr_graph *g = graph_of(text);
    HR_ASSERT_OK(hr_graph_type(g, hr_graph_find(g, "y"), &type));
    HR_ASSERT_STR_EQ(type.symbols[0], "?");
    hr_graph_release(g);
  }
}

HR_TEST(products_get_rounded_factors) {
  hr_graph *g = graph_of(
      "graph 2\nfunction @0 {\ninput %a f32[n, 3]\nconstant %w f32[3, 1] = [1.0, 2.0, 3.0]\n%0 = matmul(%a, %w)\n"
      "output y = %0\n}\ninput %x f32[n, 3]\n%y = call(@0, %x)\n%0 = add(%y, 1)\noutput y = %0\n");
  hr_graph *rounded = NULL;
  HR_ASSERT_OK(hr_graph_round_products(g, HR_DTYPE_BF16, &rounded));
  expect_text(rounded,
              "graph 2\nfunction @0 {\ninput %a f32[n, 3]\nconstant %w f32[3, 1] = [1.0, 2.0, 3.0]\n"
              "%0 = astype(%a, dtype=bf16)  ; bf16[n, 3]\n%1 = astype(%w, dtype=bf16)  ; bf16[3, 1]\n"
              "%2 = matmul(%0, %1)  ; bf16[n, 1]\n%3 = astype(%2, dtype=f32)  ; f32[n, 1]\noutput y = %3\n}\n"
              "input %x f32[n, 3]\n%y = call(@0, %x)  ; f32[n, 1]\n%0 = add(%y, 1)  ; f32[n, 1]\noutput y = %0\n");
  hr_graph_release(rounded);
  HR_ASSERT_ERROR(hr_graph_round_products(g, HR_DTYPE_F64, &rounded), HR_STATUS_INVALID_ARGUMENT,
                  "factors of products in f64, expected bf16 or f16");
  hr_graph_release(g);
}

HR_TEST(operations_that_keep_elements_stay_rounded_between_products) {
  open_stream();
  hr_graph *g = graph_of("graph 1\ninput %x f32[n, 3, 4]\ninput %w f32[2, 2]\n%0 = reshape(%x, shape=[6, n, 2])\n"
                         "%1 = matmul(%0, %w)\n%2 = relu(%1)\n%3 = permute_dims(%2, axes=[1, 0, 2])\n"
                         "%4 = matmul(%3, %w)\n%5 = add(%4, %3)\n%6 = matmul(%5, %w)\noutput y = %6\n");
  hr_graph *rounded = NULL, *simple = NULL;
  HR_ASSERT_OK(hr_graph_round_products(g, HR_DTYPE_BF16, &rounded));
  HR_ASSERT_OK(hr_graph_simplify(rounded, stream, &simple));
  expect_text(simple, "graph 1\ninput %x f32[n, 3, 4]\ninput %w f32[2, 2]\n"
                      "%0 = reshape(%x, shape=[6, n, 2])  ; f32[6, n, 2]\n"
                      "%1 = astype(%0, dtype=bf16)  ; bf16[6, n, 2]\n%2 = astype(%w, dtype=bf16)  ; bf16[2, 2]\n"
                      "%3 = matmul(%1, %2)  ; bf16[6, n, 2]\n%4 = relu(%3)  ; bf16[6, n, 2]\n"
                      "%5 = permute_dims(%4, axes=[1, 0, 2])  ; bf16[n, 6, 2]\n"
                      "%6 = matmul(%5, %2)  ; bf16[n, 6, 2]\n%7 = add(%6, %5)  ; bf16[n, 6, 2]\n"
                      "%8 = matmul(%7, %2)  ; bf16[n, 6, 2]\n%9 = astype(%8, dtype=f32)  ; f32[n, 6, 2]\n"
                      "output y = %9\n");
  hr_graph_release(simple);
  hr_graph_release(rounded);
  hr_graph_release(g);
}

HR_TEST(rounded_factors_with_long_rows_are_stored_by_columns) {
  enum { INNER = 256, WIDTH = 4096 };
  static float large[INNER * WIDTH];
  hr_graph *g = new_graph(), *rounded = NULL;
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 256");
  hr_value wide = constant_of(g, HR_DTYPE_F32, "256 4096", large);
  hr_value long_ = constant_of(g, HR_DTYPE_F32, "4096 256", large);
  hr_value y = ADD(g, MATMUL, VALUES(x, wide), 0, NULL);
  hr_graph_output(g, "y", ADD(g, MATMUL, VALUES(y, long_), 0, NULL));
  HR_ASSERT_OK(hr_graph_round_products(g, HR_DTYPE_BF16, &rounded));
  expect_text(rounded, "graph 1\ninput %x f32[n, 256]\nconstant %0 f32[256, 4096] = #0\n"
                       "constant %1 f32[4096, 256] = #1\n%2 = astype(%x, dtype=bf16)  ; bf16[n, 256]\n"
                       "%3 = permute_dims(%0)  ; f32[4096, 256]\n%4 = astype(%3, dtype=bf16)  ; bf16[4096, 256]\n"
                       "%5 = permute_dims(%4)  ; bf16[256, 4096]\n%6 = matmul(%2, %5)  ; bf16[n, 4096]\n"
                       "%7 = astype(%6, dtype=f32)  ; f32[n, 4096]\n%8 = astype(%1, dtype=bf16)  ; bf16[4096, 256]\n"
                       "%9 = matmul(%6, %8)  ; bf16[n, 256]\n%10 = astype(%9, dtype=f32)  ; f32[n, 256]\n"
                       "output y = %10\n");
  hr_graph_release(rounded);
  hr_graph_release(g);
}
