/* Graphs: building, types with symbols, text, rewriting, and their results on a stream. */
#include "graph/graph_test.h"

#include "graph/graph_node.h"

static const float weights[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

/* ---- types ---- */

HR_TEST(types_have_symbols_and_expressions_of_them) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 3"), w = constant_of(g, HR_DTYPE_F32, "3 4", weights);
  expect_graph_type(g, ADD(g, MATMUL, VALUES(x, w), 0, NULL), "f32[n,4]");
  expect_graph_type(g, ADD(g, CONCAT, VALUES(x, x), 0, NULL), "f32[2*n,3]");
  hr_graph_release(g);
}

HR_TEST(dims_that_depend_on_symbols_are_described) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 3"), y = input_of(g, "y", HR_DTYPE_F32, "n m");
  hr_value row = constant_of(g, HR_DTYPE_F32, "1 3", weights);
  expect_graph_type(g, ADD(g, CONCAT, VALUES(x, row), 0, NULL), "f32[n+1,3]");
  expect_graph_type(g, ADD(g, RESHAPE, VALUES(y), ATTRIBUTES_OF({"shape", INTS_OF(-1)})), "f32[n*m]");
  expect_graph_type(g, ADD(g, RESHAPE, VALUES(x), ATTRIBUTES_OF({"shape", INTS_OF(-1)})), "f32[3*n]");
  expect_graph_type(g, ADD(g, RESHAPE, VALUES(y), ATTRIBUTES_OF({"shape", INTS_OF(-1, 2)})), "f32[?,2]");
  hr_value flat = ADD(g, RESHAPE, VALUES(x), ATTRIBUTES_OF({"shape", INTS_OF(-1)}));
  expect_graph_type(g, ADD(g, ADD, VALUES(flat, hr_graph_number(g, hr_scalar_f64(1))), 0, NULL), "f32[3*n]");
  expect_graph_type(g, ADD(g, SUM, VALUES(y), ATTRIBUTES_OF({"axis", INTS_OF(0)})), "f32[m]");
  expect_graph_type(g, hr_graph_shape(g, y), "i64[2]");
  expect_graph_type(g, hr_graph_symbol(g, "n"), "i64[]");
  hr_value sorted = ADD(g, TOPK, VALUES(x), ATTRIBUTES_OF({"k", INT_OF(2)}));
  HR_ASSERT_EQ(hr_graph_result_count(g, sorted), 2);
  expect_graph_type(g, sorted + 1, "i64[n,2]");
  hr_graph_release(g);
}

HR_TEST(dims_of_small_sizes_are_described_by_no_other) {
  hr_graph *g = graph_of(
      "graph 1\ninput %x f32[n, 3]\n%k = minimum(n, 5)\n%a = slice(%x, begin=[0, 0], count=[%k, 3], step=[1, 1])\n"
      "%l = maximum(n, 4)\n%b = full(1.0, shape=[%l, 2])\n%c = concat(%x, %x, %a)\n"
      "%d = squeeze(%x)\n");
  expect_graph_type(g, hr_graph_find(g, "a"), "f32[?,3]");
  expect_graph_type(g, hr_graph_find(g, "b"), "f32[?,2]");
  expect_graph_type(g, hr_graph_find(g, "d"), "f32[n,3]");
  hr_graph_release(read_back(g));
  hr_graph_release(g);
}

HR_TEST(inputs_keep_their_symbols_if_few_sizes_are_valid) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_U8, "n 144115188075855872"); /* too large but for a small n */
  expect_graph_type(g, x, "u8[n,144115188075855872]");
  hr_graph_output(g, "y", x);
  hr_graph_release(read_back(g));
  hr_graph_release(g);
}

/* At the only valid sizes, m is 5 and n 7: m + 2 is no n. */
HR_TEST(a_size_that_one_point_shows_is_no_symbol) {
  hr_graph *g = graph_of("graph 1\ninput %x bool[m, 268435456, 4]\ninput %z f32[n]\n"
                         "%y = pad_symmetric(%x, before=[4, 1, 2147483647], after=[-2, -2, 5])\noutput y = %y\n");
  expect_graph_type(g, hr_graph_find(g, "y"), "bool[?,?,?]");
  hr_graph_release(read_back(g));
  hr_graph_release(g);
}

/* ---- errors ---- */

static void expect_refusal(hr_graph *g, hr_status_code code, const char *part) {
  HR_ASSERT_ERROR(hr_graph_status(g), code, part);
  HR_ASSERT_EQ(hr_graph_symbol(g, "n"), 0); /* nothing is added after a failure */
  HR_ASSERT_ERROR(hr_graph_status(g), code, part);
  hr_graph_release(g);
}

HR_TEST(a_graph_of_some_outputs_or_other_types) {
  hr_graph *g = graph_of("graph 1\ninput %x f32[2, 3]\ninput %y f32[3]\n%a = exp(%x)\n%b = add(%x, %y)\n"
                         "output a = %a\noutput b = %b\n");
  const int second[] = {1}, turned[] = {1, 0}, wrong[] = {2};
  hr_graph *some = NULL;
  HR_ASSERT_OK(hr_graph_derive(g, &(hr_graph_change){.output_count = 1, .outputs = second}, &some));
  HR_ASSERT_EQ(hr_graph_operation_count(some), 1);
  HR_ASSERT_EQ(hr_graph_input_count(some), 2);
  HR_ASSERT_STR_EQ(hr_graph_output_name(some, 0), "b");
  hr_graph_release(some);
  HR_ASSERT_OK(hr_graph_derive(g, &(hr_graph_change){.output_count = 2, .outputs = turned}, &some));
  HR_ASSERT_STR_EQ(hr_graph_output_name(some, 1), "a");
  hr_graph_release(some);
  HR_ASSERT_ERROR(hr_graph_derive(g, &(hr_graph_change){.output_count = 1, .outputs = wrong}, &some),
                  HR_STATUS_INVALID_ARGUMENT, "output number 2");

  hr_type types[2] = {{.dtype = HR_DTYPE_F32, .rank = 2, .dims = {-1, -1}, .symbols = {"n", "m"}},
                      {.dtype = HR_DTYPE_F32, .rank = 1, .dims = {-1}, .symbols = {"m"}}};
  HR_ASSERT_OK(hr_graph_derive(g, &(hr_graph_change){.inputs = types}, &some));
  expect_graph_type(some, hr_graph_output_value(some, 1), "f32[n,m]");
  hr_graph_release(some);
  types[1].symbols[0] = "k"; /* another dim than m */
  HR_ASSERT_ERROR(hr_graph_derive(g, &(hr_graph_change){.inputs = types}, &some), HR_STATUS_INVALID_ARGUMENT, "add: ");
  hr_graph_release(g);
}

HR_TEST(a_graph_goes_on_when_its_failure_is_taken) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n");
  HR_ASSERT_OK(hr_graph_take_failure(g));
  HR_ASSERT_EQ(input_of(g, "x", HR_DTYPE_F32, "m"), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_ALREADY_EXISTS, "\"x\"");
  HR_ASSERT_EQ(input_of(g, "y", HR_DTYPE_F32, "m nan"), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "\"nan\"");
  HR_ASSERT_EQ(ADD(g, SUM, VALUES(x), ATTRIBUTES_OF({"axis", INTS_OF(3)})), 0);
  HR_ASSERT_ERROR(hr_graph_take_failure(g), HR_STATUS_INVALID_ARGUMENT, "axis 3");
  HR_ASSERT_OK(hr_graph_status(g));
  HR_ASSERT_EQ(hr_graph_input_count(g), 1); /* what failed is not there */
  HR_ASSERT_EQ(hr_graph_symbol_count(g), 1);
  HR_ASSERT_EQ(hr_graph_operation_count(g), 0);
  hr_graph_output(g, "y", ADD(g, SQRT, VALUES(x), 0, NULL));
  hr_graph_release(read_back(g));
  hr_graph_release(g);
}

HR_TEST(the_first_failure_stays_and_names_the_values) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n"), y = input_of(g, "y", HR_DTYPE_F32, "m");
  HR_ASSERT_EQ(ADD(g, ADD, VALUES(x, y), 0, NULL), 0);
  expect_refusal(g, HR_STATUS_INVALID_ARGUMENT, "of x f32[n], y f32[m]: add: ");

  g = new_graph();
  input_of(g, "x", HR_DTYPE_F32, "n");
  HR_ASSERT_EQ(input_of(g, "x", HR_DTYPE_F32, "n"), 0);
  expect_refusal(g, HR_STATUS_ALREADY_EXISTS, "two values have the name \"x\"");

  g = new_graph();
  x = input_of(g, "x", HR_DTYPE_F32, "n");
  HR_ASSERT_EQ(ADD(g, SUM, VALUES(x), ATTRIBUTES_OF({"axes", INTS_OF(0)})), 0);
  expect_refusal(g, HR_STATUS_INVALID_ARGUMENT, "sum: attribute \"axes\" is not known");

  g = new_graph();
  x = input_of(g, "x", HR_DTYPE_F32, "n");
  HR_ASSERT_EQ(ADD(g, ADD, VALUES(x, 77), 0, NULL), 0);
  expect_refusal(g, HR_STATUS_INVALID_ARGUMENT, "add: there is no value 77");

  g = new_graph();
  HR_ASSERT_EQ(input_of(g, "x", HR_DTYPE_F32, "nan"), 0);
  expect_refusal(g, HR_STATUS_INVALID_ARGUMENT, "symbol \"nan\"");

  g = new_graph();
  x = input_of(g, "x", HR_DTYPE_F32, "n");
  hr_graph_output(g, "y", x);
  hr_graph_output(g, "y", x);
  expect_refusal(g, HR_STATUS_ALREADY_EXISTS, "two outputs have the name \"y\"");

  g = new_graph();
  x = input_of(g, "x", HR_DTYPE_F32, "0 n");
  HR_ASSERT_EQ(ADD(g, UNSTACK, VALUES(x), 0, NULL), 0);
  expect_refusal(g, HR_STATUS_INVALID_ARGUMENT, "unstack: it has no results");

  g = new_graph();
  x = input_of(g, "x", HR_DTYPE_I64, "n");
  HR_ASSERT_EQ(hr_graph_gradient(g, x, 0, 1, &x), 0);
  expect_refusal(g, HR_STATUS_INVALID_ARGUMENT, "gradient: value \"x\" is not floating");

  g = new_graph();
  HR_ASSERT_EQ(input_of(g, "x", HR_DTYPE_F32, "4611686018427387904 n"), 0);
  expect_refusal(g, HR_STATUS_INVALID_ARGUMENT, "too large");

  g = new_graph();
  x = input_of(g, "x", HR_DTYPE_F32, "n");
  y = ADD(g, RESHAPE, VALUES(x),
          ATTRIBUTES_OF({"shape", {.kind = HR_ATTRIBUTE_INTS}, NULL, ADD(g, ARGSORT, VALUES(x), 0, NULL)}));
  expect_refusal(g, HR_STATUS_UNIMPLEMENTED, "reshape: attribute shape depends on \"%2\", which is not computed on");
}

/* ---- text ---- */

HR_TEST(text_is_readable_and_reads_back) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 3"), w = constant_of(g, HR_DTYPE_F32, "3 4", weights);
  hr_value scale = constant_of(g, HR_DTYPE_F32, "4", weights), n = hr_graph_symbol(g, "n");
  hr_graph_name(g, w, "layer.weight");
  hr_value y = ADD(g, MATMUL, VALUES(x, w), 0, NULL), half = hr_graph_number(g, hr_scalar_f64(0.5));
  hr_value z = ADD(g, ADDCMUL, VALUES(y, y, scale), ATTRIBUTES_OF({"value", REAL_OF(hr_scalar_i64(2))}));
  hr_graph_name(g, z, "z");
  hr_value flat = ADD(g, RESHAPE, VALUES(z), ATTRIBUTES_OF({"shape", INTS_OF(2, 0, -1), (hr_value[]){0, n, 0}}));
  (void)flat;
  hr_value shape = hr_graph_shape(g, z);
  hr_value same = ADD(g, RESHAPE, VALUES(z), ATTRIBUTES_OF({"shape", {.kind = HR_ATTRIBUTE_INTS}, NULL, shape}));
  hr_value top = ADD(g, TOPK, VALUES(same), ATTRIBUTES_OF({"k", INT_OF(2)}, {"largest", FLAG_OF(0)}));
  hr_value product = ADD(g, MULTIPLY, VALUES(top, half), 0, NULL);
  hr_value gelu = ADD(g, GELU, VALUES(product),
                      ATTRIBUTES_OF({"approximate", {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = "tanh"}}}));
  hr_value cast = ADD(g, ASTYPE, VALUES(gelu), ATTRIBUTES_OF({"dtype", DTYPE_OF(HR_DTYPE_F64)}));
  hr_value gradient = hr_graph_gradient(g, gelu, 0, 2, (hr_value[]){x, w});
  hr_graph_output(g, "result", cast);
  hr_graph_output(g, "a b", top + 1);
  hr_graph_output(g, "d/dw", gradient + 1);
  expect_text(g, "graph 1\n"
                 "input %x f32[n, 3]\n"
                 "constant %\"layer.weight\" f32[3, 4] = #0\n"
                 "constant %0 f32[4] = [1.0, 2.0, 3.0, 4.0]\n"
                 "%1 = matmul(%x, %\"layer.weight\")  ; f32[n, 4]\n"
                 "%z = addcmul(%1, %1, %0, value=2)  ; f32[n, 4]\n"
                 "%2 = reshape(%z, shape=[2, n, -1])  ; f32[2, n, 2]\n"
                 "%3 = shape(%z)  ; i64[2]\n"
                 "%4 = reshape(%z, shape=%3)  ; f32[n, 4]\n"
                 "%5, %6 = topk(%4, k=2, largest=false)  ; f32[n, 2], i64[n, 2]\n"
                 "%7 = multiply(%5, 0.5)  ; f32[n, 2]\n"
                 "%8 = gelu(%7, approximate=\"tanh\")  ; f32[n, 2]\n"
                 "%9 = astype(%8, dtype=f64)  ; f64[n, 2]\n"
                 "%10, %11 = gradient(%8, %x, %\"layer.weight\")  ; f32[n, 3], f32[3, 4]\n"
                 "output result = %9\n"
                 "output \"a b\" = %6\n"
                 "output \"d/dw\" = %11\n");
  hr_graph *read = read_back(g);
  HR_ASSERT_EQ(hr_graph_constant_count(read), 2);
  HR_ASSERT_EQ(hr_graph_constant_bytes(read), 64);
  hr_graph_release(read);
  hr_graph_release(g);
}

HR_TEST(numbers_of_all_kinds_read_back) {
  hr_graph *g = new_graph();
  const hr_scalar numbers[] = {hr_scalar_bool(1),       hr_scalar_i64(-7),        hr_scalar_u64(UINT64_MAX),
                               hr_scalar_f64(2),        hr_scalar_f64(-0.1),      hr_scalar_f64(1e300),
                               hr_scalar_f64(INFINITY), hr_scalar_f64(-INFINITY), hr_scalar_c128(1, -2.5),
                               hr_scalar_i64(INT64_MIN)};
  hr_value x = input_of(g, "x", HR_DTYPE_C128, "n");
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    hr_value number = hr_graph_number(g, numbers[i]);
    x = ADD(g, MULTIPLY, VALUES(x, number), 0, NULL);
  }
  hr_graph_output(g, "y", x);
  char *text = print_of(g);
  HR_ASSERT_CONTAINS(text, ", true)");
  HR_ASSERT_CONTAINS(text, ", 18446744073709551615u)");
  HR_ASSERT_CONTAINS(text, ", 2.0)");
  HR_ASSERT_CONTAINS(text, ", (1.0, -2.5))");
  free(text);
  hr_graph_release(read_back(g));
  hr_graph_release(g);
}

HR_TEST(lists_may_be_empty) {
  hr_graph *g = graph_of("graph 1\ninput %x f32[]\n%0 = broadcast_to(%x, shape=[])\noutput y = %0\n");
  hr_graph_release(read_back(g));
  hr_graph_release(g);
}

HR_TEST(names_have_one_limit) {
  hr_graph *g = new_graph();
  char name[HR_GRAPH_NAME_MAX + 2];
  memset(name, 'n', sizeof name);
  name[HR_GRAPH_NAME_MAX] = '\0';
  const hr_type type = {.dtype = HR_DTYPE_F32, .rank = 1, .dims = {-1}, .symbols = {name}};
  hr_value x = hr_graph_input(g, name, &type);
  hr_graph_output(g, name, ADD(g, EXP, VALUES(x), 0, NULL));
  HR_ASSERT_OK(hr_graph_status(g));
  hr_graph_release(read_back(g));
  hr_graph_release(g);
  g = new_graph();
  name[HR_GRAPH_NAME_MAX] = 'n', name[HR_GRAPH_NAME_MAX + 1] = '\0';
  HR_ASSERT_EQ(hr_graph_input(g, "x", &type), 0);
  HR_ASSERT_STATUS(hr_graph_status(g), HR_STATUS_INVALID_ARGUMENT);
  hr_graph_release(g);
  g = new_graph();
  x = input_of(g, "x", HR_DTYPE_F32, "2 2");
  hr_attribute text = {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = "ij\n->ji"}};
  HR_ASSERT_EQ(ADD(g, EINSUM, VALUES(x), ATTRIBUTES_OF({"equation", text})), 0);
  HR_ASSERT_ERROR(hr_graph_status(g), HR_STATUS_INVALID_ARGUMENT, "einsum: attribute equation has no text");
  hr_graph_release(g);
}

static void expect_parse_error(const char *text, const char *part) {
  hr_graph *g = NULL;
  HR_ASSERT_ERROR(hr_graph_parse(text, strlen(text), NULL, &g), HR_STATUS_INVALID_ARGUMENT, part);
  HR_ASSERT_NULL(g);
}

HR_TEST(errors_of_text_have_a_place) {
  expect_parse_error("", "line 1, column 1: expected \"graph 1\", found the end");
  expect_parse_error("graph 1\ninput %x f33[n]\n", "line 2, column 13: expected a dtype");
  expect_parse_error("graph 1\ninput %x f32[n]\n%y = ad(%x, %x)\n", "line 3: there is no function \"ad\"");
  expect_parse_error("graph 1\ninput %x f32[n]\n%y = add(%x, %z)\n", "line 3: no earlier value has the name \"z\"");
  expect_parse_error("graph 1\ninput %x f32[n]\n%y = add(%x, %y)\n", "no earlier value has the name \"y\"");
  expect_parse_error("graph 1\ninput %x f32[n]\n%0 = add(%x, %0)\n", "the number of an earlier value");
  expect_parse_error("graph 1\ninput %x f32[n]\n%y = sum(%x, axis=[1])\n",
                     "line 3: of x f32[n]: sum: axis 1 is out of");
  expect_parse_error("graph 1\ninput %x f32[n]\n%y = sum(%x, axes=[1])\n", "an attribute of the function");
  expect_parse_error("graph 1\nconstant %c f32[65536] = #0\n", "the number of elements that there are");
  expect_parse_error("graph 1\nconstant %c i64[2] = [1, x]\n", "line 2, column 27");
  expect_parse_error("graph 1\nconstant %c i64[2] = [1, 2, 3]\n", "expected ']'");
  expect_parse_error("graph 1\ninput %x f32[9223372036854775807, 9223372036854775807]\n", "too large");
  expect_parse_error("graph 1\ninput %x f32[n]\n%0, %1 = topk(%x, k=_)\n", "expected a number or a value before this");
  expect_parse_error("graph 1\ninput %x f32[n]\n%0 = sum(%x, axis=[_])\n", "expected a number or a value before this");
  expect_parse_error("graph 1\ninput %x f32[n]\n%0 = sum(%x, axis=_)\n", "expected a number or a value before this");
  expect_parse_error("graph 1\n%0 = arange(stop=_)\n", "expected a number or a value before this");
  expect_parse_error("graph 1\nconstant %c u8[2] = [300, 1]\n", "line 2: constant: 300 is no u8");
  expect_parse_error("graph 1\nconstant %c u8[2] = [1, -1]\n", "line 2: constant: -1 is no u8");
  expect_parse_error("graph 1\nconstant %c bool[1] = [2]\n", "line 2: constant: 2 is no bool");
  expect_parse_error("graph 1\nconstant %c f32[1] = [1e300]\n", "line 2: constant: 1e300 is too large for f32");
  expect_parse_error("graph 1\nconstant %c f64[1] = [-1e999]\n", "line 2: constant: -1e999 is too large for f64");
  expect_parse_error("graph 1\ninput %x f32[1099511627776, 1099511627776]\n", "too large");
  expect_parse_error("graph 1\nconstant %c f32[1099511627776] = [1.0]\n", "line 2, column ");
  hr_graph *g = NULL;
  HR_ASSERT_ERROR(hr_graph_parse("graph 1\ninput %x f32[n]\ninput %x f32[n]\n", 40, NULL, &g), HR_STATUS_ALREADY_EXISTS,
                  "line 3: graph: two values have the name \"x\"");
  HR_ASSERT_ERROR(hr_graph_parse("graph 1\ninput %x f32[n]\noutput y = %x\noutput y = %x\n", 53, NULL, &g),
                  HR_STATUS_ALREADY_EXISTS, "line 4: graph: two outputs have the name \"y\"");
  HR_ASSERT_ERROR(hr_graph_parse("graph 1\ninput %\"a\0b\" f32[n]\n", 31, NULL, &g), HR_STATUS_INVALID_ARGUMENT,
                  "line 2, column ");
  HR_ASSERT_ERROR(hr_graph_parse("graph 3\n", 8, NULL, &g), HR_STATUS_UNIMPLEMENTED, "version 3, expected 1 or 2");
}

/* ---- integers of the host ---- */

HR_TEST(shapes_are_computed_on_the_host) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 4");
  hr_value shape = hr_graph_shape(g, x), zero = constant_of(g, HR_DTYPE_I64, "", (int64_t[]){0});
  hr_value n = ADD(g, TAKE, VALUES(shape, zero), 0, NULL), two = hr_graph_number(g, hr_scalar_i64(2));
  hr_value doubled = ADD(g, MULTIPLY, VALUES(n, two), 0, NULL);
  hr_value half = constant_of(g, HR_DTYPE_I64, "1", (int64_t[]){2});
  hr_value first = ADD(g, EXPAND_DIMS, VALUES(doubled), ATTRIBUTES_OF({"axis", INTS_OF(0)}));
  hr_value both = ADD(g, CONCAT, VALUES(first, half), 0, NULL);
  hr_value y = ADD(g, RESHAPE, VALUES(x), ATTRIBUTES_OF({"shape", {.kind = HR_ATTRIBUTE_INTS}, NULL, both}));
  expect_graph_type(g, y, "f32[2*n,2]");
  hr_value range = ADD(g, ARANGE, 0, NULL, ATTRIBUTES_OF({"stop", REAL_OF(hr_scalar_i64(0)), &n}));
  expect_graph_type(g, range, "i64[n]");
  hr_value sum = ADD(g, ADD, VALUES(y, hr_graph_number(g, hr_scalar_i64(1))), 0, NULL);
  hr_graph_output(g, "y", sum);
  hr_graph_output(g, "range", range);
  hr_graph_output(g, "n", n);
  hr_tensor in = counted(DIMS(3, 4)), out[3];
  const hr_tensor *inputs[1] = {&in};
  HR_ASSERT_OK(hr_graph_apply(g, stream, 1, inputs, 3, out));
  expect_type(&out[0], HR_DTYPE_F32, DIMS(6, 2));
  EXPECT(&out[0], 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
  expect_type(&out[1], HR_DTYPE_I64, DIMS(3));
  EXPECT(&out[1], 0, 1, 2);
  expect_type(&out[2], HR_DTYPE_I64, 0, NULL);
  EXPECT(&out[2], 3);
  for (int i = 0; i < 3; ++i) {
    hr_tensor_release(&out[i]);
  }
  HR_ASSERT_OK(hr_graph_apply(g, NULL, 1, inputs, 3, out));
  expect_type(&out[0], HR_DTYPE_F32, DIMS(6, 2));
  HR_ASSERT_NULL(out[0].buffer);
  hr_tensor_release(&in);
  hr_graph_release(g);
}

/* Functions of integers, each on the host and on the stream: with a value that is an input there. */
typedef struct integer_case {
  hr_functional function;
  int count; /* of inputs */
} integer_case;

HR_TEST(integers_of_the_host_equal_those_of_a_stream) {
  static const integer_case cases[] = {
      {HR_FUNCTIONAL_ADD, 2},           {HR_FUNCTIONAL_SUBTRACT, 2},    {HR_FUNCTIONAL_MULTIPLY, 2},
      {HR_FUNCTIONAL_FLOOR_DIVIDE, 2},  {HR_FUNCTIONAL_REMAINDER, 2},   {HR_FUNCTIONAL_MAXIMUM, 2},
      {HR_FUNCTIONAL_MINIMUM, 2},       {HR_FUNCTIONAL_EQUAL, 2},       {HR_FUNCTIONAL_LESS, 2},
      {HR_FUNCTIONAL_GREATER_EQUAL, 2}, {HR_FUNCTIONAL_NEGATIVE, 1},    {HR_FUNCTIONAL_ABS, 1},
      {HR_FUNCTIONAL_LOGICAL_AND, 2},   {HR_FUNCTIONAL_LOGICAL_NOT, 1}, {HR_FUNCTIONAL_FLIP, 1},
      {HR_FUNCTIONAL_PERMUTE_DIMS, 1},  {HR_FUNCTIONAL_SUM, 1},         {HR_FUNCTIONAL_PROD, 1},
      {HR_FUNCTIONAL_MAX, 1},           {HR_FUNCTIONAL_MIN, 1},         {HR_FUNCTIONAL_STACK, 2},
      {HR_FUNCTIONAL_CONCAT, 2},        {HR_FUNCTIONAL_WHERE, 3}};
  static const hr_dtype dtypes[] = {HR_DTYPE_I64, HR_DTYPE_I32, HR_DTYPE_I8, HR_DTYPE_U8, HR_DTYPE_BOOL};
  static const int64_t numbers[2][6] = {{-7, 3, 0, 127, -128, 1}, {2, -3, 0, 1, -1, 5}};
  open_stream();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    for (int d = 0; d < 25; ++d) {
      hr_dtype pair[3] = {dtypes[d % 5], dtypes[d / 5], dtypes[d / 5]};
      hr_tensor tensors[3], expected, out;
      const hr_tensor *inputs[3] = {&tensors[0], &tensors[1], &tensors[2]};
      hr_value values[3];
      hr_graph *g = new_graph();
      hr_type type = {.rank = 2, .dims = {2, 3}};
      for (int k = 0; k < cases[i].count; ++k) {
        char elements[6 * 8];
        for (int e = 0; e < 6; ++e) {
          int64_t number = pair[k] == HR_DTYPE_BOOL ? numbers[k % 2][e] > 0 : numbers[k % 2][e];
          memcpy(elements + (size_t)e * hr_dtype_size(pair[k]), &number, hr_dtype_size(pair[k]));
        }
        type.dtype = pair[k];
        values[k] = hr_graph_constant(g, &type, elements);
        tensors[k] = tensor_of(pair[k], DIMS(2, 3), elements);
      }
      hr_status status = hr_functional_apply(stream, cases[i].function, cases[i].count, inputs, 0, NULL, 1, &expected);
      if (status != HR_OK) { /* a dtype that the function refuses */
        hr_status_ignore(status);
        HR_ASSERT_EQ(hr_graph_add(g, cases[i].function, cases[i].count, values, 0, NULL), 0);
      } else {
        hr_graph_output(g, "y", hr_graph_add(g, cases[i].function, cases[i].count, values, 0, NULL));
        HR_ASSERT_OK(hr_graph_apply(g, stream, 0, NULL, 1, &out));
        expect_type(&out, expected.dtype, expected.rank, expected.dims);
        float wanted[MOST], got[MOST];
        read(&expected, wanted);
        read(&out, got);
        for (int64_t e = 0; e < hr_tensor_count(&out); ++e) {
          if (wanted[e] != got[e]) {
            HR_FAIL("%s of %s, %s: element %d is %g, expected %g", hr_functional_name(cases[i].function),
                    hr_dtype_name(pair[0]), hr_dtype_name(pair[1]), (int)e, (double)got[e], (double)wanted[e]);
          }
        }
        hr_tensor_release(&expected);
        hr_tensor_release(&out);
      }
      for (int k = 0; k < cases[i].count; ++k) {
        hr_tensor_release(&tensors[k]);
      }
      hr_graph_release(g);
    }
  }
}

HR_TEST(remainders_of_the_smallest_integer) {
  hr_graph *g = graph_of("graph 1\nconstant %a i64[2] = [-9223372036854775808, -7]\n%r = remainder(%a, 3)\n"
                         "output r = %r\n");
  hr_tensor out;
  HR_ASSERT_OK(hr_graph_apply(g, stream, 0, NULL, 1, &out));
  EXPECT(&out, 1, 2);
  hr_tensor_release(&out);
  hr_graph_release(g);
}

/* Beyond a limit of memory the stream computes numbers, with the same results. */
HR_TEST(numbers_of_the_host_have_a_limit_of_memory) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n"), n = hr_graph_symbol(g, "n");
  hr_value last = ADD(g, ARANGE, 0, NULL,
                      ATTRIBUTES_OF({"stop", {.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr_scalar_i64(1024)}}}));
  for (int i = 0; i < 5000; ++i) {
    last = ADD(g, ADD, VALUES(last, n), 0, NULL);
  }
  HR_ASSERT(x > 0 && g->host_bytes > HR__GRAPH_HOST_BYTES / 2 && g->host_bytes <= HR__GRAPH_HOST_BYTES);
  hr_graph_output(g, "last", last);
  hr_tensor in = counted(DIMS(2)), out;
  const hr_tensor *inputs[1] = {&in};
  HR_ASSERT_OK(hr_graph_apply(g, stream, 1, inputs, 1, &out));
  float values[MOST];
  read(&out, values);
  HR_ASSERT(values[0] == 10000 && values[1023] == 11023);
  RELEASE(&in, &out);
  hr_graph_release(g);
}

static void expect_symbols_refused(const char *text, const char *part) {
  hr_graph *g = NULL;
  HR_ASSERT_ERROR(hr_graph_parse(text, strlen(text), NULL, &g), HR_STATUS_UNIMPLEMENTED, part);
}

HR_TEST(results_whose_rank_depends_on_symbols_are_refused) {
  expect_symbols_refused(
      "graph 1\ninput %x f32[n]\n%k = minimum(n, 7)\n%j = subtract(12, %k)\n%l = full(1, shape=[%j])\n"
      "%r = full(1.0, shape=%l)\noutput r = %r\n",
      "full: the rank of result 0 depends on symbols");
  expect_symbols_refused("graph 1\ninput %x f32[n]\n%k = minimum(n, 7)\n%l = full(1, shape=[%k])\n"
                         "%r = full(1.0, shape=%l)\noutput r = %r\n",
                         "full: the rank of result 0 depends on symbols");
}

/* ---- rewriting ---- */

HR_TEST(costs_follow_from_dims) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "8 3"), w = input_of(g, "w", HR_DTYPE_F32, "3 4");
  hr_value y = ADD(g, EXP, VALUES(ADD(g, MATMUL, VALUES(x, w), 0, NULL)), 0, NULL);
  hr_graph_output(g, "y", ADD(g, SUM, VALUES(ADD(g, ADD, VALUES(y, y), 0, NULL)), 0, NULL));
  HR_ASSERT_OK(hr_graph_status(g));
  hr_graph_cost cost;
  hr_graph_cost_of(g, &cost);
  HR_ASSERT(cost.operations == 2 * 8 * 4 * 3 + 32 + 32 && cost.transcendentals == 32);
  hr_graph_release(g);
}

HR_TEST(simplify_removes_joins_and_folds) {
  hr_graph *g = new_graph(), *simple = NULL;
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 4"), unused = input_of(g, "unused", HR_DTYPE_F32, "n");
  hr_value w = constant_of(g, HR_DTYPE_F32, "3 4", weights), two = hr_graph_number(g, hr_scalar_f64(2));
  hr_value w2 = constant_of(g, HR_DTYPE_F32, "3 4", weights);
  hr_value transposed = ADD(g, PERMUTE_DIMS, VALUES(w), 0, NULL), again = ADD(g, PERMUTE_DIMS, VALUES(w2), 0, NULL);
  hr_value twice = ADD(g, MULTIPLY, VALUES(transposed, two), 0, NULL);
  hr_value twice_again = ADD(g, MULTIPLY, VALUES(again, hr_graph_number(g, hr_scalar_f64(2))), 0, NULL);
  hr_value a = ADD(g, MATMUL, VALUES(x, twice), 0, NULL), b = ADD(g, MATMUL, VALUES(x, twice_again), 0, NULL);
  hr_value dead = ADD(g, EXP, VALUES(unused), 0, NULL);
  HR_ASSERT(dead > 0);
  hr_graph_output(g, "y", ADD(g, ADD, VALUES(a, b), 0, NULL));
  HR_ASSERT_OK(hr_graph_simplify(g, NULL, &simple));
  expect_text(simple, "graph 1\n"
                      "input %x f32[n, 4]\n"
                      "input %unused f32[n]\n"
                      "constant %0 f32[3, 4] = #0\n"
                      "%1 = permute_dims(%0)  ; f32[4, 3]\n"
                      "%2 = multiply(%1, 2.0)  ; f32[4, 3]\n"
                      "%3 = matmul(%x, %2)  ; f32[n, 3]\n"
                      "%4 = add(%3, %3)  ; f32[n, 3]\n"
                      "output y = %4\n");
  hr_graph_release(simple);
  open_stream();
  HR_ASSERT_OK(hr_graph_simplify(g, stream, &simple));
  expect_text(simple, "graph 1\n"
                      "input %x f32[n, 4]\n"
                      "input %unused f32[n]\n"
                      "constant %0 f32[4, 3] = #0\n"
                      "%1 = matmul(%x, %0)  ; f32[n, 3]\n"
                      "%2 = add(%1, %1)  ; f32[n, 3]\n"
                      "output y = %2\n");
  hr_graph_elements folded = hr_graph_data(simple, 0);
  HR_ASSERT(((const float *)folded.address)[1] == 10 && ((const float *)folded.address)[3] == 4);
  hr_graph_release(simple);
  hr_graph_release(g);
}

/* Also of a second convolution that is alike and read in whole, and of one whose gradient is wanted. */
HR_TEST(simplify_shortens_convolutions_before_pools) {
  open_stream();
  static const char text[] =
      "graph 1\ninput %x f32[n, 1, 7, 7]\ninput %w f32[2, 1, 5, 5]\ninput %b f32[2]\n"
      "%0 = conv(%x, %w, %b, stride=[1, 1], before=[2, 2], after=[2, 0], dilation=[1, 1])\n%1 = relu(%0)\n"
      "%2 = max_pool(%1, window=[2, 2], stride=[2, 2], padding=[0, 0])\n"
      "%3 = conv(%x, %w, %b, stride=[1, 1], before=[2, 2], after=[2, 0], dilation=[1, 1])\n"
      "%4 = conv(%x, %w, %b, stride=[1, 1], before=[2, 2], after=[2, 2], dilation=[1, 1])\n"
      "%5 = max_pool(%4, window=[3, 3], stride=[2, 2], padding=[1, 1])\noutput pooled = %2\noutput whole = %3\n"
      "output all = %5\n";
  hr_graph *g = graph_of(text), *simple = NULL;
  HR_ASSERT_OK(hr_graph_simplify(g, stream, &simple));
  expect_text(simple,
              "graph 1\ninput %x f32[n, 1, 7, 7]\ninput %w f32[2, 1, 5, 5]\ninput %b f32[2]\n"
              "%0 = conv(%x, %w, %b, stride=[1, 1], before=[2, 2], after=[1, 0], dilation=[1, 1])  ; f32[n, 2, 6, 5]\n"
              "%1 = relu(%0)  ; f32[n, 2, 6, 5]\n"
              "%2 = max_pool(%1, window=[2, 2], stride=[2, 2], padding=[0, 0])  ; f32[n, 2, 3, 2]\n"
              "%3 = conv(%x, %w, %b, stride=[1, 1], before=[2, 2], after=[2, 0], dilation=[1, 1])  ; f32[n, 2, 7, 5]\n"
              "%4 = conv(%x, %w, %b, stride=[1, 1], before=[2, 2], after=[2, 2], dilation=[1, 1])  ; f32[n, 2, 7, 7]\n"
              "%5 = max_pool(%4, window=[3, 3], stride=[2, 2], padding=[1, 1])  ; f32[n, 2, 4, 4]\n"
              "output pooled = %2\noutput whole = %3\noutput all = %5\n");
  hr_tensor x = counted(DIMS(2, 1, 7, 7)), w = counted(DIMS(2, 1, 5, 5)), b = counted(DIMS(2)), out[2][3];
  const hr_tensor *inputs[3] = {&x, &w, &b};
  HR_ASSERT_OK(hr_graph_apply(g, stream, 3, inputs, 3, out[0]));
  HR_ASSERT_OK(hr_graph_apply(simple, stream, 3, inputs, 3, out[1]));
  for (int i = 0; i < 3; ++i) {
    float expected[MOST];
    read(&out[0][i], expected);
    expect_values(&out[1][i], hr_tensor_count(&out[0][i]), expected);
    RELEASE(&out[0][i], &out[1][i]);
  }
  RELEASE(&x, &w, &b);
  hr_graph_release(simple);
  HR_ASSERT_OK(hr_graph_simplify(g, NULL, &simple));
  expect_graph_type(simple, hr_graph_output_value(simple, 0), "f32[n,2,3,2]");
  hr_graph_release(simple);
  hr_graph_release(g);
}

HR_TEST(simplify_keeps_what_gradients_are_taken_by) {
  hr_graph *g = new_graph(), *simple = NULL;
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n");
  hr_value a = ADD(g, SQUARE, VALUES(x), 0, NULL), b = ADD(g, SQUARE, VALUES(x), 0, NULL);
  hr_value y = ADD(g, MULTIPLY, VALUES(a, b), 0, NULL);
  hr_graph_output(g, "by a", hr_graph_gradient(g, y, 0, 1, &a)); /* b, not 2 b */
  HR_ASSERT_OK(hr_graph_simplify(g, NULL, &simple));
  hr_tensor in = tensor_of(HR_DTYPE_F32, DIMS(2), F32(3, -2)), out;
  const hr_tensor *inputs[1] = {&in};
  HR_ASSERT_OK(hr_graph_apply(simple, stream, 1, inputs, 1, &out));
  EXPECT(&out, 9, 4);
  hr_tensor_release(&in);
  hr_tensor_release(&out);
  hr_graph_release(simple);
  hr_graph_release(g);
}

/* Operands that are one number everywhere, and those that must stay: they give the result its dims or dtype, their
 * number is rounded, or a gradient is by them. */
HR_TEST(simplify_reads_numbers_in_place_of_tensors) {
  static const char text[] =
      "graph 1\ninput %x f32[2, 3]\ninput %k f32[n]\n%h = full(0.5, shape=[2, 3], dtype=f32)\n"
      "%s = full(-0.0, shape=[], dtype=f32)\n%w = full(7.0, shape=[], dtype=f32)\n"
      "%a = multiply(%h, %x)\n%b = where(%x, %a, %s)\n%c = add(%k, %w)\noutput b = %b\noutput c = %c\n";
  static const char stays[] =
      "graph 1\ninput %x f32[3]\n%h = full(0.1, shape=[3], dtype=f32)\n%r = full(2.0, shape=[2, 1], "
      "dtype=f32)\n%d = full(2.0, shape=[], dtype=f64)\n%a = add(%x, %h)\n%b = add(%a, %r)\n"
      "%c = pow(%b, %d)\n%e = multiply(%h, %r)\noutput c = %c\noutput e = %e\n";
  hr_graph *g = graph_of(text), *other = graph_of(stays), *simple = NULL;
  open_stream();
  HR_ASSERT_OK(hr_graph_simplify(g, stream, &simple));
  expect_text(simple, "graph 1\ninput %x f32[2, 3]\ninput %k f32[n]\n%a = multiply(0.5, %x)  ; f32[2, 3]\n"
                      "%b = where(%x, %a, -0.0)  ; f32[2, 3]\n%c = add(%k, 7.0)  ; f32[n]\noutput b = %b\n"
                      "output c = %c\n");
  hr_graph_release(simple);
  HR_ASSERT_OK(hr_graph_simplify(other, stream, &simple));
  HR_ASSERT_EQ(hr_graph_operation_count(simple), hr_graph_operation_count(other));
  hr_graph_release(simple);
  hr_graph_release(other);
  hr_graph_release(g);
}

/* Sizes that are values and sizes that are numbers in one list. With 14 inputs, "shape=[%s]" once had the key of
 * "shape=[8, 0]". */
HR_TEST(simplify_joins_no_lists_of_different_lengths) {
  char text[1024] = "graph 1\n";
  size_t length = strlen(text);
  for (int i = 0; i < 14; ++i) {
    length += (size_t)snprintf(text + length, sizeof text - length, "input %%x%d f32[n]\n", i);
  }
  snprintf(text + length, sizeof text - length,
           "%%c = number(1.0)\n%%s = symbol(n)\n%%a = full(%%c, shape=[8, 0])\n%%b = full(%%c, shape=[%%s])\n"
           "output b = %%b\noutput a = %%a\n");
  hr_graph *g = graph_of(text), *simple = NULL;
  HR_ASSERT_OK(hr_graph_simplify(g, NULL, &simple));
  expect_graph_type(simple, hr_graph_output_value(simple, 0), "f32[n]");
  hr_graph_release(simple);
  hr_graph_release(g);
}

HR_TEST(a_large_factor_is_not_turned) {
  static float large[128 * 128];
  hr_graph *g = new_graph(), *simple = NULL;
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 128"), w = constant_of(g, HR_DTYPE_F32, "128 128", large);
  hr_value v = constant_of(g, HR_DTYPE_F32, "128 128", large);
  hr_value turned = ADD(g, PERMUTE_DIMS, VALUES(w), 0, NULL), other = ADD(g, PERMUTE_DIMS, VALUES(v), 0, NULL);
  hr_value product = ADD(g, MATMUL, VALUES(x, turned), 0, NULL);
  hr_graph_output(g, "y", product);
  hr_graph_output(g, "z", other);
  open_stream();
  HR_ASSERT_OK(hr_graph_simplify(g, stream, &simple));
  expect_text(simple, "graph 1\ninput %x f32[n, 128]\nconstant %0 f32[128, 128] = #0\n"
                      "%1 = permute_dims(%0)  ; f32[128, 128]\nconstant %2 f32[128, 128] = #1\n"
                      "%3 = matmul(%x, %1)  ; f32[n, 128]\noutput y = %3\noutput z = %2\n");
  hr_graph_release(simple);
  hr_graph_release(g);
}

HR_TEST(folding_adds_no_sizes_beyond_64_bits) {
  static int16_t zeros[1 << 15];
  hr_graph *g = new_graph(), *simple = NULL;
  hr_value inputs[8];
  for (int i = 0; i < 8; ++i) { /* eight results of 2^61 bytes */
    hr_type type = {.dtype = HR_DTYPE_I16, .rank = 4, .dims = {1, 1, 1, 1}};
    type.dims[i % 4] = 1 << 15;
    inputs[i] = hr_graph_constant(g, &type, zeros);
  }
  hr_value all = ADD(g, BROADCAST_ARRAYS, 8, inputs, 0, NULL);
  hr_graph_output(g, "all", all);
  HR_ASSERT_OK(hr_graph_simplify(g, stream, &simple));
  HR_ASSERT_EQ(hr_graph_operation_count(simple), 1);
  hr_graph_release(simple);
  hr_graph_release(g);
}

/* ---- gradients ---- */

HR_TEST(gradients_of_gradients) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n"), w = constant_of(g, HR_DTYPE_F32, "", weights + 2);
  hr_value cube = ADD(g, MULTIPLY, VALUES(x, ADD(g, SQUARE, VALUES(x), 0, NULL)), 0, NULL);
  hr_value y = ADD(g, MULTIPLY, VALUES(cube, w), 0, NULL); /* 3 x^3 */
  hr_value by[2] = {x, w}, first = hr_graph_gradient(g, y, 0, 2, by), second = hr_graph_gradient(g, first, 0, 1, &x);
  hr_value seeded = hr_graph_gradient(g, y, x, 1, &x);
  hr_graph_output(g, "dx", first);
  hr_graph_output(g, "dw", first + 1);
  hr_graph_output(g, "ddx", second);
  hr_graph_output(g, "x dx", seeded);
  expect_graph_type(g, second, "f32[n]");
  hr_graph *read = read_back(g);
  hr_tensor in = tensor_of(HR_DTYPE_F32, DIMS(2), F32(1, -2)), out[4];
  const hr_tensor *inputs[1] = {&in};
  HR_ASSERT_OK(hr_graph_apply(read, stream, 1, inputs, 4, out));
  EXPECT(&out[0], 9, 36);
  EXPECT(&out[1], -7);
  EXPECT(&out[2], 18, -36);
  EXPECT(&out[3], 9, -72);
  for (int i = 0; i < 4; ++i) {
    hr_tensor_release(&out[i]);
  }
  hr_tensor_release(&in);
  hr_graph_release(read);
  hr_graph_release(g);
}

/* Compares the only output for the input [1, 2, 3], which is all inputs, on a stream and from a session's copy. */
static void expect_answer(const char *text, int count, const float *expected) {
  hr_graph *g = graph_of(text), *simple = NULL;
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(3), F32(1, 2, 3)), out;
  const hr_tensor *inputs[16];
  for (int i = 0; i < 16; ++i) {
    inputs[i] = &x;
  }
  HR_ASSERT_OK(hr_graph_simplify(g, stream, &simple));
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(hr_graph_apply(i == 0 ? g : simple, stream, hr_graph_input_count(g), inputs, 1, &out));
    HR_ASSERT_EQ(hr_tensor_count(&out), count);
    expect_values(&out, count, expected);
    hr_tensor_release(&out);
  }
  hr_tensor_release(&x);
  hr_graph_release(simple);
  hr_graph_release(g);
}

HR_TEST(gradients_by_views_count_the_uses_of_the_view_alone) {
  expect_answer(
      "graph 1\ninput %x f32[3]\n%v = positive(%x)\n%p = multiply(%x, %v)\n%g = gradient(%p, %v)\noutput g = %g\n", 3,
      F32(1, 2, 3));
  expect_answer("graph 1\ninput %x f32[3]\n%v = reshape(%x, shape=[3])\n%p = multiply(%x, %v)\n%g = gradient(%p, %v)\n"
                "output g = %g\n",
                3, F32(1, 2, 3));
  expect_answer("graph 1\ninput %x f32[3]\n%v = permute_dims(%x)\n%p = multiply(%x, %v)\n%g = gradient(%p, %x)\n"
                "%h = gradient(%p, %v)\noutput g = %g\n",
                3, F32(2, 4, 6));
  expect_answer("graph 1\ninput %x f32[3]\n%v = slice(%x, begin=[0], count=[2], step=[1])\n%p = multiply(%x, %x)\n"
                "%q = sum(%v)\n%s = sum(%p)\n%l = add(%s, %q)\n%g = gradient(%l, %v)\noutput g = %g\n",
                2, F32(1, 1));
  expect_answer("graph 1\ninput %x f32[3]\n%0, %1 = broadcast_arrays(%x, %x)\n%p = multiply(%0, %1)\n"
                "%g = gradient(%p, %0)\noutput g = %g\n",
                3, F32(1, 2, 3));
}

HR_TEST(one_tensor_given_as_two_inputs_is_two_values_for_a_gradient) {
  static const char format[] =
      "graph 1\ninput %%x f32[3]\ninput %%y f32[3]\n%%p = multiply(%%x, %%y)\n%%0 = gradient(%%p, %%%c)\noutput g = "
      "%%0\n";
  char text[256];
  snprintf(text, sizeof text, format, 'x');
  expect_answer(text, 3, F32(1, 2, 3));
  snprintf(text, sizeof text, format, 'y');
  expect_answer(text, 3, F32(1, 2, 3));
}

/* ---- binding ---- */

HR_TEST(inputs_are_checked_by_name) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 3"), y = input_of(g, "y", HR_DTYPE_F32, "n");
  hr_graph_output(g, "z",
                  ADD(g, ADD, VALUES(x, ADD(g, EXPAND_DIMS, VALUES(y), ATTRIBUTES_OF({"axis", INTS_OF(1)}))), 0, NULL));
  HR_ASSERT_OK(hr_graph_status(g));
  hr_tensor a = counted(DIMS(2, 3)), b = counted(DIMS(4)), c = counted(DIMS(2, 4)), out;
  const hr_tensor *both[2] = {&a, &b};
  HR_ASSERT_ERROR(hr_graph_apply(g, stream, 2, both, 1, &out), HR_STATUS_INVALID_ARGUMENT,
                  "input \"y\": dim 0 (n) is 4, but input \"x\" has n = 2");
  both[0] = &c;
  HR_ASSERT_ERROR(hr_graph_apply(g, stream, 2, both, 1, &out), HR_STATUS_INVALID_ARGUMENT,
                  "input \"x\" is f32[2,4], expected f32[n,3]");
  both[0] = NULL;
  HR_ASSERT_ERROR(hr_graph_apply(g, stream, 2, both, 1, &out), HR_STATUS_INVALID_ARGUMENT, "input \"x\" is absent");
  HR_ASSERT_ERROR(hr_graph_apply(g, stream, 1, both, 1, &out), HR_STATUS_INVALID_ARGUMENT,
                  "1 inputs and 1 results, expected 2 and 1");
  hr_tensor_release(&a);
  hr_tensor_release(&b);
  hr_tensor_release(&c);
  hr_graph_release(g);
}

/* ---- memory ---- */

static int released;

static void count_release(void *arg) {
  ++*(int *)arg;
}

HR_TEST(adopted_constants_are_released_once) {
  hr_graph *g = new_graph(), *copy = NULL;
  hr_type type = {.dtype = HR_DTYPE_F32, .rank = 1, .dims = {12}};
  released = 0;
  hr_value c = hr_graph_constant_adopt(g, &type, weights, count_release, &released);
  hr_graph_output(g, "c", c);
  HR_ASSERT_OK(hr_graph_simplify(g, NULL, &copy));
  hr_graph_release(g);
  HR_ASSERT_EQ(released, 0);
  hr_graph_release(copy);
  HR_ASSERT_EQ(released, 1);
  g = new_graph();
  type.dims[0] = -1;
  HR_ASSERT_EQ(hr_graph_constant_adopt(g, &type, weights, count_release, &released), 0);
  HR_ASSERT_EQ(released, 2);
  hr_graph_release(g);
}

static hr_status build(hr_graph *g) {
  const hr_type type = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {-1, 3}, .symbols = {"n"}};
  const hr_type square = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {3, 3}};
  hr_value x = hr_graph_input(g, "x", &type), w = hr_graph_constant(g, &square, weights);
  hr_value y = ADD(g, MATMUL, VALUES(x, w), 0, NULL);
  hr_value n = hr_graph_symbol(g, "n"),
           z = ADD(g, RESHAPE, VALUES(y), ATTRIBUTES_OF({"shape", INTS_OF(0, -1), (hr_value[]){n, 0}}));
  hr_value dw = hr_graph_gradient(g, z, 0, 1, &w);
  hr_graph_name(g, z, "z");
  hr_graph_output(g, NULL, z);
  hr_graph_output(g, "dw", dw);
  return hr_graph_status(g);
}

static hr_status drop_text(void *arg, const void *bytes, size_t count) {
  (void)arg, (void)bytes, (void)count;
  return HR_OK;
}

static hr_status build_print_and_simplify(void) {
  hr_graph *g = NULL, *simple = NULL;
  HR_RETURN_IF_ERROR(hr_graph_create(&g));
  hr_status status = build(g);
  status = status == HR_OK ? hr_graph_print(g, drop_text, NULL) : status;
  status = status == HR_OK ? hr_graph_simplify(g, NULL, &simple) : status;
  hr_graph_release(simple);
  hr_graph_release(g);
  return status;
}

HR_TEST(building_survives_failing_allocations) {
  HR_TEST_OOM(build_print_and_simplify);
}

static hr_status parse(void) {
  static const char text[] =
      "graph 1\ninput %x f32[n, 3]\nconstant %\"c\" i64[2] = [1, 2]\n%0, %y = topk(%x, k=2)\n"
      "%1 = reshape(%0, shape=[n, -1])\n%2 = sum(%1, axis=[0, 1])\n%3 = multiply(%2, 0.5)\noutput y = %3\n";
  hr_graph *g = NULL;
  hr_status status = hr_graph_parse(text, sizeof text - 1, NULL, &g);
  if (status == HR_OK) {
    hr_graph_release(g);
  }
  return status;
}

HR_TEST(parsing_survives_failing_allocations) {
  HR_TEST_OOM(parse);
}
