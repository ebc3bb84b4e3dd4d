/* Models of a few nodes, and such models damaged. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_limits.h"
#include "headrace/array.h"
#include "headrace/session.h"
#include "hr_test.h"
#include "importers/onnx/onnx_test.h"
#include "importers/wire.h"

static const int64_t rows[2] = {-1, 3}, vector[1] = {3}, two[1] = {2};

/* y = relu(x @ w + b), reshaped to [n * 3] by a function of the model. */
static void put_layer(hr_text *text) {
  static const float w[9] = {1, 0, 0, 0, 1, 0, 0, 0, -1}, b[3] = {0.5f, -8, 0};
  static const int64_t shape[1] = {-1}, square[2] = {3, 3}, one[1] = {1};
  hr_protobuf_int(text, 1, 8);
  hr_protobuf_string(text, 2, "a test");
  size_t graph = hr_protobuf_begin(text, 7);
  put_node(text, 1, "product", "MatMul", "x w", "p");
  put_node(text, 1, "", "Add", "p b", "s");
  hr_protobuf_end(text, begin_node(text, 1, "flat", "FlatRelu", "s", "y"));
  put_tensor(text, 5, "w", FLOAT, 2, square, w, sizeof w);
  put_tensor(text, 5, "b", FLOAT, 1, vector, b, sizeof b);
  put_value_info(text, 11, "x", FLOAT, 2, rows);
  put_value_info(text, 12, "y", FLOAT, 1, rows);
  hr_protobuf_end(text, graph);
  put_opset(text, 8, "", 21);
  size_t function = hr_protobuf_begin(text, 25);
  hr_protobuf_string(text, 1, "FlatRelu");
  hr_protobuf_string(text, 4, "a");
  hr_protobuf_string(text, 5, "c");
  put_node(text, 7, "", "Relu", "a", "b");
  size_t constant = begin_node(text, 7, "", "Constant", "", "shape");
  size_t attribute = hr_protobuf_begin(text, 5);
  hr_protobuf_string(text, 1, "value");
  put_tensor(text, 5, "", INT64, 1, one, shape, sizeof shape);
  hr_protobuf_int(text, 20, 4);
  hr_protobuf_end(text, attribute);
  hr_protobuf_end(text, constant);
  put_node(text, 7, "", "Reshape", "b shape", "c");
  put_opset(text, 9, "", 21);
  hr_protobuf_end(text, function);
}

/* A model of nodes that `put` adds, with the inputs x f32[n, 3], v f32[3] and k i64[2], and the output y. */
static void put_model(hr_text *text, void (*put)(hr_text *text), int64_t opset) {
  hr_protobuf_int(text, 1, 8);
  size_t graph = hr_protobuf_begin(text, 7);
  put(text);
  put_value_info(text, 11, "x", FLOAT, 2, rows);
  put_value_info(text, 11, "v", FLOAT, 1, vector);
  put_value_info(text, 11, "k", INT64, 1, two);
  put_value_info(text, 12, "y", FLOAT, 2, rows);
  hr_protobuf_end(text, graph);
  put_opset(text, 8, "", opset);
}

static hr_status open_nodes(void (*put)(hr_text *text), int64_t opset, const hr_onnx_options *options,
                            hr_graph **out_graph) {
  hr_text text = {0};
  put_model(&text, put, opset);
  hr_status status = hr_onnx_open_bytes("model.onnx", text.data, text.length, options, out_graph);
  hr_text_fini(&text);
  return status;
}

static void refuse(void (*put)(hr_text *text), int64_t opset, hr_status_code code, const char *part) {
  hr_graph *graph = NULL;
  HR_ASSERT_ERROR(open_nodes(put, opset, NULL, &graph), code, part);
}

/* Runs a graph with inputs of the open kind and compares all elements of its one output, which are f32. */
static void run_graph(const hr_graph *graph, int input_count, const hr_tensor *const *inputs, hr_stream *stream,
                      int count, const float *wanted) {
  hr_session *session = NULL;
  hr_tensor y;
  float actual[64];
  int64_t elements = 1;
  HR_ASSERT_OK(hr_session_create(stream, graph, NULL, &session));
  HR_ASSERT_OK(hr_session_run(session, input_count, inputs, 1, &y));
  for (int d = 0; d < y.rank; ++d) {
    elements *= y.dims[d];
  }
  HR_ASSERT_EQ(y.dtype, HR_DTYPE_F32);
  HR_ASSERT_EQ(elements, count);
  HR_ASSERT(count <= 64);
  HR_ASSERT_OK(hr_array_read(stream, &y, actual));
  for (int i = 0; i < count; ++i) {
    HR_ASSERT(actual[i] == wanted[i] || fabsf(actual[i] - wanted[i]) <= 1e-6f);
  }
  hr_tensor_release(&y);
  hr_session_release(session);
}

/* Runs it for the rows (1 2 3) and (-4 10 -6) of x, or for none, and for v = (1 2 3) and k = (3 2), if it has them. */
static void run_rows(const hr_graph *graph, int64_t row_count, int count, const float *wanted) {
  hr_device *device = NULL;
  hr_stream *stream = NULL;
  hr_tensor all[3] = {{0}};
  const hr_tensor *inputs[3] = {&all[0], &all[1], &all[2]};
  const int64_t dims[2] = {row_count, 3}, sizes[2] = {3, 2};
  const float numbers[6] = {1, 2, 3, -4, 10, -6};
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_F32, 2, dims, numbers, &all[0]));
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_F32, 1, vector, numbers, &all[1]));
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_I64, 1, two, sizes, &all[2]));
  run_graph(graph, hr_graph_input_count(graph), inputs, stream, count, wanted);
  for (int i = 0; i < 3; ++i) {
    hr_tensor_release(&all[i]);
  }
  hr_stream_release(stream);
  hr_device_release(device);
}

static void check_numbers(void (*put)(hr_text *text), int64_t opset, int64_t row_count, int count,
                          const float *wanted) {
  hr_graph *graph = NULL;
  HR_ASSERT_OK(open_nodes(put, opset, NULL, &graph));
  run_rows(graph, row_count, count, wanted);
  hr_graph_release(graph);
}

HR_TEST(a_model_answers) {
  hr_text text = {0};
  hr_graph *graph = NULL;
  hr_type type;
  put_layer(&text);
  HR_ASSERT_OK(hr_onnx_open_bytes("model.onnx", text.data, text.length, NULL, &graph));
  HR_ASSERT_OK(hr_graph_type(graph, hr_graph_output_value(graph, 0), &type));
  HR_ASSERT_STR_EQ(type.symbols[0], "3*n");
  run_rows(graph, 2, 6, (const float[]){1.5f, 0, 0, 0, 2, 6});
  hr_graph_release(graph);
  const hr_onnx_dim n = {"n", 4};
  const hr_onnx_options options = {.dim_count = 1, .dims = &n};
  HR_ASSERT_OK(hr_onnx_open_bytes("model.onnx", text.data, text.length, &options, &graph));
  HR_ASSERT_OK(hr_graph_type(graph, hr_graph_output_value(graph, 0), &type));
  HR_ASSERT_EQ(type.dims[0], 12);
  hr_graph_release(graph);
  hr_text_fini(&text);
}

/* ---- refused models ---- */

static void put_unknown(hr_text *text) {
  put_node(text, 1, "first", "Relu", "x", "r");
  put_node(text, 1, "conv_3", "Convolve", "r", "y");
}
static void put_wrong_dims(hr_text *text) {
  put_node(text, 1, "sum", "MatMul", "v x", "y");
  put_node(text, 1, "bad", "MatMul", "x x", "z");
}
static void put_two_outputs(hr_text *text) {
  put_node(text, 1, "", "Relu", "x", "y");
  put_node(text, 1, "", "Relu", "x", "y");
}
static void put_circle(hr_text *text) {
  put_node(text, 1, "", "Add", "x y", "y");
}
static void put_gelu(hr_text *text) {
  put_node(text, 1, "", "Gelu", "x", "y");
}
static void put_control_character(hr_text *text) {
  put_node(text, 1, "", "Relu", "x", "a\x01");
}
static void put_large_tensor(hr_text *text) {
  const int64_t huge[2] = {(int64_t)1 << 20, (int64_t)1 << 20};
  const float element = 1;
  put_node(text, 1, "", "Relu", "x", "y");
  put_tensor(text, 5, "w", FLOAT, 2, huge, &element, sizeof element);
}
static void put_overflow(hr_text *text) {
  const int64_t huge[3] = {(int64_t)1 << 40, (int64_t)1 << 40, 4};
  put_node(text, 1, "", "Relu", "x", "y");
  put_tensor(text, 5, "w", FLOAT, 3, huge, NULL, 0);
}
static void put_zero_in_a_name(hr_text *text) {
  size_t node = begin_node(text, 1, "", "Relu", "x", "");
  put_bytes(text, 2, "a\0b", 3);
  hr_protobuf_end(text, node);
}
static void put_unknown_data_type(hr_text *text) {
  const float element = 1;
  put_node(text, 1, "", "Relu", "x", "y");
  put_tensor(text, 5, "w", 77, 0, NULL, &element, sizeof element);
}
static void put_unknown_domain(hr_text *text) {
  size_t node = begin_node(text, 1, "mine", "Relu", "x", "y");
  hr_protobuf_string(text, 7, "org.example");
  hr_protobuf_end(text, node);
}
/* A weight for 4 channels on an input of 3. */
static void put_channels(hr_text *text) {
  static const float weight[2 * 4];
  const int64_t dims[3] = {2, 4, 1}, image[3] = {1, 3, 4};
  static const float pixels[12];
  put_tensor(text, 5, "w", FLOAT, 3, dims, weight, sizeof weight);
  put_tensor(text, 5, "image", FLOAT, 3, image, pixels, sizeof pixels);
  put_node(text, 1, "conv_3", "Conv", "image w", "y");
}
static void put_missing_output(hr_text *text) {
  put_node(text, 1, "", "Relu", "x", "z");
}

HR_TEST(wrong_models_are_refused_with_the_node) {
  refuse(put_unknown, 21, HR_STATUS_UNIMPLEMENTED,
         "model.onnx: node 1 \"conv_3\" (Convolve): the operator is not known");
  refuse(put_wrong_dims, 21, HR_STATUS_INVALID_ARGUMENT, "model.onnx: node ");
  refuse(put_two_outputs, 21, HR_STATUS_DATA_LOSS, "two values have the name \"y\"");
  refuse(put_circle, 21, HR_STATUS_DATA_LOSS, "input 1 \"y\" is no value before it");
  refuse(put_gelu, 19, HR_STATUS_INVALID_ARGUMENT, "operator set 19 does not have the operator");
  refuse(put_gelu, 28, HR_STATUS_UNIMPLEMENTED, "operator set 28, expected 1 to 27");
  refuse(put_control_character, 21, HR_STATUS_DATA_LOSS, "control characters");
  refuse(put_large_tensor, 21, HR_STATUS_DATA_LOSS, "a tensor has 4 bytes, its dims and data type need 4398046511104");
  refuse(put_overflow, 21, HR_STATUS_DATA_LOSS,
         "model.onnx: initializer \"w\": a tensor has dims [1099511627776,1099511627776,4], expected fewer elements");
  refuse(put_zero_in_a_name, 21, HR_STATUS_DATA_LOSS, "control characters");
  refuse(put_unknown_data_type, 21, HR_STATUS_UNIMPLEMENTED, "initializer \"w\": a tensor has data type 77");
  refuse(put_unknown_domain, 21, HR_STATUS_UNIMPLEMENTED,
         "node 0 \"mine\" (Relu): the operator of domain \"org.example\" is not known");
  refuse(put_channels, 21, HR_STATUS_INVALID_ARGUMENT,
         "conv_3\" (Conv): of %2 f32[1,3,4], %1 f32[2,4,1]: conv: x has 3 channels, the weight expects 4");
  refuse(put_missing_output, 21, HR_STATUS_DATA_LOSS, "output 0 is no value of the graph");
}

/* Function `name` that calls `callee` twice. */
static void put_function(hr_text *text, const char *name, const char *callee) {
  size_t function = hr_protobuf_begin(text, 25);
  hr_protobuf_string(text, 1, name);
  hr_protobuf_string(text, 4, "a");
  hr_protobuf_string(text, 5, "c");
  put_node(text, 7, "", callee, "a", "b");
  put_node(text, 7, "", callee, "b", "c");
  put_opset(text, 9, "", 21);
  hr_protobuf_end(text, function);
}

/* f calls itself; or f0 calls f1 twice, which calls f2 twice ... */
static hr_status open_calls(int depth, hr_graph **out_graph) {
  hr_text text = {0};
  size_t graph = hr_protobuf_begin(&text, 7);
  put_node(&text, 1, "", "f0", "x", "y");
  put_value_info(&text, 11, "x", FLOAT, 2, rows);
  put_value_info(&text, 12, "y", FLOAT, 2, rows);
  hr_protobuf_end(&text, graph);
  put_opset(&text, 8, "", 21);
  for (int i = 0; i < depth; ++i) {
    char name[16], callee[16];
    snprintf(name, sizeof name, "f%d", i);
    snprintf(callee, sizeof callee, i + 1 < depth ? "f%d" : depth > 1 ? "Relu" : "f0", i + 1);
    put_function(&text, name, callee);
  }
  hr_status status = hr_onnx_open_bytes("model.onnx", text.data, text.length, NULL, out_graph);
  hr_text_fini(&text);
  return status;
}

HR_TEST(functions_that_call_themselves_are_refused) {
  hr_graph *graph = NULL;
  HR_ASSERT_ERROR(open_calls(1, &graph), HR_STATUS_INVALID_ARGUMENT, "more than 32 deep in each other");
  HR_ASSERT_ERROR(open_calls(30, &graph), HR_STATUS_INVALID_ARGUMENT, "more than 262144 nodes");
  HR_ASSERT_OK(open_calls(5, &graph));
  HR_ASSERT_EQ(hr_graph_operation_count(graph), 32);
  hr_graph_release(graph);
}

/* ---- inputs on which dims depend ---- */

static void put_reshape(hr_text *text) {
  put_node(text, 1, "", "Reshape", "x k", "y");
}

HR_TEST(a_value_takes_the_place_of_an_input_on_which_dims_depend) {
  const int64_t shape[2] = {3, -1};
  const hr_onnx_constant constants[2] = {
      {"v", {.dtype = HR_DTYPE_F32, .rank = 1, .dims = {3}, .address = (const float[]){1, 2, 3}}},
      {"k", {.dtype = HR_DTYPE_I64, .rank = 1, .dims = {2}, .address = shape}}};
  const hr_onnx_options options = {.constant_count = 2, .constants = constants};
  hr_graph *graph = NULL;
  HR_ASSERT_OK(open_nodes(put_reshape, 21, &options, &graph));
  HR_ASSERT_EQ(hr_graph_input_count(graph), 2); /* x and v, which is needed by no dim */
  hr_graph_release(graph);
}

/* A run waits for the shape, which is an input. */
HR_TEST(without_a_value_a_run_reads_the_input) {
  hr_graph *graph = NULL;
  hr_type type;
  HR_ASSERT_OK(open_nodes(put_reshape, 21, NULL, &graph));
  HR_ASSERT_EQ(hr_graph_input_count(graph), 3);
  HR_ASSERT_OK(hr_graph_type(graph, hr_graph_output_value(graph, 0), &type));
  HR_ASSERT_EQ(type.rank, 2);
  hr_graph_release(graph);
}

/* ---- sizes that depend on symbols ---- */

static void put_flatten(hr_text *text) {
  size_t node = begin_node(text, 1, "", "Flatten", "x", "y");
  put_int(text, "axis", 2);
  hr_protobuf_end(text, node);
}

/* Rows 1, 3, ... of x, all but the last. */
static void put_slice(hr_text *text) {
  static const int64_t numbers[4] = {1, -1, 0, 2}, one[1] = {1};
  static const char *const names[4] = {"begin", "end", "axes", "steps"};
  for (int i = 0; i < 4; ++i) {
    put_tensor(text, 5, names[i], INT64, 1, one, &numbers[i], sizeof numbers[i]);
  }
  put_node(text, 1, "", "Slice", "x begin end axes steps", "y");
}

/* The dims of y for 7 rows of x. */
static void check_dims(void (*put)(hr_text *text), const char *symbol, int64_t first, int64_t second) {
  hr_graph *graph = NULL;
  hr_type type;
  HR_ASSERT_OK(open_nodes(put, 21, NULL, &graph));
  HR_ASSERT_OK(hr_graph_type(graph, hr_graph_output_value(graph, 0), &type));
  HR_ASSERT_STR_EQ(type.symbols[0], symbol);
  const hr_tensor x = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {7, 3}, .strides = {3, 1}};
  const hr_tensor v = {.dtype = HR_DTYPE_F32, .rank = 1, .dims = {3}, .strides = {1}};
  const hr_tensor k = {.dtype = HR_DTYPE_I64, .rank = 1, .dims = {2}, .strides = {1}};
  const hr_tensor *inputs[3] = {&x, &v, &k};
  hr_tensor y;
  HR_ASSERT_OK(hr_graph_apply(graph, NULL, 3, inputs, 1, &y));
  HR_ASSERT_EQ(y.dims[0], first);
  HR_ASSERT_EQ(y.dims[1], second);
  hr_graph_release(graph);
}

HR_TEST(sizes_follow_symbols) {
  check_dims(put_flatten, "3*n", 21, 1);
  check_dims(put_slice, "?", 3, 3);
}

/* Names in the file that differ only in characters that a symbol has not. */
static void put_symbols(hr_text *text) {
  put_value_info(text, 11, "z", FLOAT, 3, (const int64_t[]){-2, -3, -2});
  put_node(text, 1, "", "Relu", "z", "y");
}

HR_TEST(symbols_of_other_names_are_others) {
  hr_graph *graph = NULL;
  hr_type type;
  HR_ASSERT_OK(open_nodes(put_symbols, 21, NULL, &graph));
  HR_ASSERT_OK(hr_graph_type(graph, hr_graph_output_value(graph, 0), &type));
  HR_ASSERT_STR_EQ(type.symbols[0], "n_1");
  HR_ASSERT_STR_EQ(type.symbols[1], "n_1_2");
  HR_ASSERT_STR_EQ(type.symbols[2], "n_1");
  hr_graph_release(graph);
}

/* ---- subgraphs ---- */

/* A graph as an attribute, with one node and one output. */
static void put_body(hr_text *text, const char *name, const char *op, const char *inputs, const char *output) {
  size_t attribute = hr_protobuf_begin(text, 5);
  hr_protobuf_string(text, 1, name);
  size_t graph = hr_protobuf_begin(text, 6);
  put_node(text, 1, "", op, inputs, output);
  put_value_info(text, 12, output, FLOAT, 2, rows);
  hr_protobuf_end(text, graph);
  hr_protobuf_int(text, 20, 5);
  hr_protobuf_end(text, attribute);
}

static void put_condition(hr_text *text, bool is_true) {
  const int64_t none[1] = {0};
  const uint8_t byte = is_true;
  put_tensor(text, 5, "c", 9, 0, none, &byte, 1);
}

/* y = c ? x + v : relu(x) */
static void put_if(hr_text *text) {
  size_t node = begin_node(text, 1, "", "If", "c", "y");
  put_body(text, "then_branch", "Add", "x v", "a");
  put_body(text, "else_branch", "Relu", "x", "b");
  hr_protobuf_end(text, node);
}
static void put_true_if(hr_text *text) {
  put_condition(text, true);
  put_if(text);
}
static void put_false_if(hr_text *text) {
  put_condition(text, false);
  put_if(text);
}
static void put_open_if(hr_text *text) {
  put_node(text, 1, "", "ReduceSum", "v", "s");
  put_node(text, 1, "", "IsNaN", "s", "c");
  put_if(text);
}

static hr_status append_text(void *arg, const void *bytes, size_t count) {
  hr_text_append_bytes(arg, bytes, count);
  return hr_text_status(arg);
}

static bool has_function(const hr_graph *graph, const char *name) {
  hr_text text = {0};
  HR_ASSERT_OK(hr_graph_print(graph, append_text, &text));
  bool is_there = strstr(hr_text_chars(&text), name) != NULL;
  hr_text_fini(&text);
  return is_there;
}

static void check_if(void (*put)(hr_text *text), bool has_sum, bool has_relu) {
  hr_graph *graph = NULL;
  const hr_onnx_dim n = {"n", 4};
  const hr_onnx_options options = {.dim_count = 1, .dims = &n};
  HR_ASSERT_OK(open_nodes(put, 21, &options, &graph));
  HR_ASSERT_EQ(has_function(graph, "add("), has_sum);
  HR_ASSERT_EQ(has_function(graph, "relu("), has_relu);
  hr_graph_release(graph);
}

HR_TEST(a_known_branch_takes_the_place_of_its_node) {
  check_if(put_true_if, true, false);
  check_if(put_false_if, false, true);
  check_if(put_open_if, true, true);
}

/* y = c ? x as one data type : x as another, as f32. */
static void put_cast_body(hr_text *text, const char *name, int data_type, const char *output) {
  size_t attribute = hr_protobuf_begin(text, 5);
  hr_protobuf_string(text, 1, name);
  size_t graph = hr_protobuf_begin(text, 6), node = begin_node(text, 1, "", "Cast", "x", output);
  put_int(text, "to", data_type);
  hr_protobuf_end(text, node);
  put_value_info(text, 12, output, data_type, 2, rows);
  hr_protobuf_end(text, graph);
  hr_protobuf_int(text, 20, 5);
  hr_protobuf_end(text, attribute);
}
static void put_casts(hr_text *text, const char *condition, int first, int second) {
  size_t node = begin_node(text, 1, "", "If", condition, "z");
  put_cast_body(text, "then_branch", first, "a");
  put_cast_body(text, "else_branch", second, "b");
  hr_protobuf_end(text, node);
  node = begin_node(text, 1, "", "Cast", "z", "y");
  put_int(text, "to", FLOAT);
  hr_protobuf_end(text, node);
}
static void put_open_casts(hr_text *text, int first, int second) {
  put_node(text, 1, "", "ReduceSum", "v", "s");
  put_node(text, 1, "", "IsNaN", "s", "c");
  put_casts(text, "c", first, second);
}
static void put_float_or_integer(hr_text *text) {
  put_open_casts(text, FLOAT, INT64);
}
static void put_uint4_or_uint8(hr_text *text) {
  put_open_casts(text, UINT4, UINT8);
}
static void put_uint8_or_uint4(hr_text *text) {
  put_open_casts(text, UINT8, UINT4);
}
static void put_uint4s(hr_text *text) {
  put_open_casts(text, UINT4, UINT4);
}
static void put_known_casts(hr_text *text) {
  put_condition(text, true);
  put_casts(text, "c", UINT4, UINT8);
}

HR_TEST(branches_of_an_unknown_condition_have_one_data_type) {
  refuse(put_float_or_integer, 21, HR_STATUS_UNIMPLEMENTED,
         "result 0 is FLOAT in the then branch and INT64 in the else branch, expected one data type");
  refuse(put_uint4_or_uint8, 21, HR_STATUS_UNIMPLEMENTED,
         "result 0 is UINT4 in the then branch and UINT8 in the else branch, expected one data type");
  refuse(put_uint8_or_uint4, 21, HR_STATUS_UNIMPLEMENTED,
         "result 0 is UINT8 in the then branch and UINT4 in the else branch, expected one data type");
}

HR_TEST(a_narrow_type_of_both_branches_or_the_known_one_passes) {
  hr_graph *graph = NULL;
  HR_ASSERT_OK(open_nodes(put_uint4s, 21, NULL, &graph));
  HR_ASSERT(has_function(graph, " = if("));
  run_rows(graph, 1, 3, (const float[]){1, 2, 3});
  hr_graph_release(graph);
  HR_ASSERT_OK(open_nodes(put_known_casts, 21, NULL, &graph));
  run_rows(graph, 1, 3, (const float[]){1, 2, 3});
  hr_graph_release(graph);
}

static void put_compress(hr_text *text) {
  put_condition(text, true);
  put_node(text, 1, "", "Compress", "x c", "y");
}

HR_TEST(a_dim_that_an_input_lacks_is_an_error) {
  refuse(put_compress, 21, HR_STATUS_INVALID_ARGUMENT, "an input has 0 dims, dim 0 is needed");
}

/* y = relu(...(x)), `count` times or without an end. */
static void put_loop(hr_text *text, int64_t count, const char *inputs) {
  const int64_t none[1] = {0};
  put_tensor(text, 5, "m", INT64, 0, none, &count, sizeof count);
  size_t node = begin_node(text, 1, "", "Loop", inputs, "y");
  size_t attribute = hr_protobuf_begin(text, 5);
  hr_protobuf_string(text, 1, "body");
  size_t graph = hr_protobuf_begin(text, 6);
  put_node(text, 1, "", "Relu", "state", "next");
  put_node(text, 1, "", "Identity", "go", "still");
  put_value_info(text, 11, "i", INT64, 0, none);
  put_value_info(text, 11, "go", 9, 0, none);
  put_value_info(text, 11, "state", FLOAT, 2, rows);
  put_value_info(text, 12, "still", 9, 0, none);
  put_value_info(text, 12, "next", FLOAT, 2, rows);
  hr_protobuf_end(text, graph);
  hr_protobuf_end(text, attribute);
  hr_protobuf_end(text, node);
}
static void put_three(hr_text *text) {
  put_loop(text, 3, "m  x");
}
static void put_many(hr_text *text) {
  put_loop(text, INT64_MAX, "m  x");
}
static void put_endless(hr_text *text) {
  put_loop(text, 0, "  x");
}

HR_TEST(a_body_is_mapped_once) {
  hr_graph *graph = NULL;
  HR_ASSERT_OK(open_nodes(put_three, 21, NULL, &graph));
  HR_ASSERT_EQ(hr_graph_operation_count(graph), 1);
  HR_ASSERT(has_function(graph, " = for(@0, "));
  run_rows(graph, 2, 6, (const float[]){1, 2, 3, 0, 10, 0});
  hr_graph_release(graph);
  HR_ASSERT_OK(open_nodes(put_many, 21, NULL, &graph));
  hr_graph_release(graph);
  refuse(put_endless, 21, HR_STATUS_INVALID_ARGUMENT, "a loop without an end");
}

/* y = a sequence of x, after 60,000 runs of a body with 400 initializers. */
static void put_names(hr_text *text) {
  const int64_t none[1] = {0}, count = 60000;
  const float number = 1;
  char name[16];
  put_tensor(text, 5, "m", INT64, 0, none, &count, sizeof count);
  put_node(text, 1, "", "SequenceConstruct", "x", "list");
  size_t node = begin_node(text, 1, "", "Loop", "m  list", "y"), attribute = hr_protobuf_begin(text, 5);
  hr_protobuf_string(text, 1, "body");
  size_t graph = hr_protobuf_begin(text, 6);
  for (int i = 0; i < 400; ++i) {
    snprintf(name, sizeof name, "w%d", i);
    put_tensor(text, 5, name, FLOAT, 0, none, &number, sizeof number);
  }
  put_value_info(text, 11, "i", INT64, 0, none);
  put_value_info(text, 11, "go", 9, 0, none);
  put_value_info(text, 11, "state", FLOAT, 2, rows);
  put_value_info(text, 12, "go", 9, 0, none);
  put_value_info(text, 12, "state", FLOAT, 2, rows);
  hr_protobuf_end(text, graph);
  hr_protobuf_end(text, attribute);
  hr_protobuf_end(text, node);
}

HR_TEST(names_of_a_loop_are_counted) {
  refuse(put_names, 21, HR_STATUS_INVALID_ARGUMENT, "more than 8388608 names, elements of sequences");
}

/* ---- lists of another length ---- */

static void put_cast(hr_text *text, const char *from, const char *to, int data_type) {
  size_t node = begin_node(text, 1, "", "Cast", from, to);
  put_int(text, "to", data_type);
  hr_protobuf_end(text, node);
}

/* A tensor as an initializer: integers, or elements that are 1. */
static void put_integers(hr_text *text, const char *name, int count, const int64_t *numbers) {
  put_tensor(text, 5, name, INT64, 1, (const int64_t[]){count}, numbers, (size_t)count * sizeof *numbers);
}
static void put_ones(hr_text *text, const char *name, int rank, const int64_t *dims) {
  float ones[64];
  size_t count = 1;
  for (int d = 0; d < rank; ++d) {
    count *= (size_t)dims[d];
  }
  HR_ASSERT(count <= 64);
  for (size_t i = 0; i < count; ++i) {
    ones[i] = 1;
  }
  put_tensor(text, 5, name, FLOAT, rank, dims, ones, count * sizeof *ones);
}

static void put_expand(hr_text *text) {
  int64_t shape[64];
  for (int i = 0; i < 64; ++i) {
    shape[i] = 1;
  }
  put_integers(text, "s", 64, shape);
  put_node(text, 1, "", "Expand", "x s", "y");
}
static void put_few_ends(hr_text *text) {
  put_integers(text, "b", 2, (const int64_t[]){0, 0});
  put_integers(text, "e", 1, (const int64_t[]){1});
  put_node(text, 1, "", "Slice", "x b e", "y");
}
static void put_many_slices(hr_text *text) {
  put_integers(text, "b", 3, (const int64_t[]){0, 0, 0});
  put_node(text, 1, "", "Slice", "x b b", "y");
}
static void put_few_axes(hr_text *text) {
  put_integers(text, "b", 2, (const int64_t[]){0, 0});
  put_integers(text, "a", 1, (const int64_t[]){1});
  put_node(text, 1, "", "Slice", "x b b a", "y");
}
static void put_empty_matrix(hr_text *text) {
  put_tensor(text, 5, "s", INT64, 2, (const int64_t[]){3, 0}, NULL, 0);
}
static void put_matrix_shape(hr_text *text) {
  put_empty_matrix(text);
  put_node(text, 1, "", "Reshape", "x s", "y");
}
static void put_matrix_expand(hr_text *text) {
  put_empty_matrix(text);
  put_node(text, 1, "", "Expand", "x s", "y");
}
static void put_matrix_pads(hr_text *text) {
  put_tensor(text, 5, "s", INT64, 2, (const int64_t[]){4, 0}, NULL, 0);
  put_node(text, 1, "", "Pad", "x s", "y");
}
static void put_transposed(hr_text *text, int count) {
  put_ones(text, "w", 4, (const int64_t[]){1, 1, 2, 2});
  size_t node = begin_node(text, 1, "", "ConvTranspose", "w w", "y");
  put_ints(text, "output_shape", count, (const int64_t[]){1, 1, 3, 3});
  hr_protobuf_end(text, node);
}
static void put_one_size(hr_text *text) {
  put_transposed(text, 1);
}
static void put_three_sizes(hr_text *text) {
  put_transposed(text, 3);
}
static void put_empty_condition(hr_text *text) {
  put_tensor(text, 5, "c", 9, 1, (const int64_t[]){0}, NULL, 0);
  put_if(text);
}

HR_TEST(lists_of_another_length_are_refused) {
  refuse(put_expand, 21, HR_STATUS_UNIMPLEMENTED, "64 dims, expected at most 16");
  refuse(put_few_ends, 21, HR_STATUS_INVALID_ARGUMENT, "2 starts, 1 ends");
  refuse(put_many_slices, 21, HR_STATUS_INVALID_ARGUMENT, "3 starts, 3 ends, -1 axes and -1 steps (-1: none) for 2");
  refuse(put_few_axes, 21, HR_STATUS_INVALID_ARGUMENT, "2 starts, 2 ends, 1 axes");
  refuse(put_matrix_shape, 21, HR_STATUS_INVALID_ARGUMENT, "integers with 2 dims, expected 1");
  refuse(put_matrix_expand, 21, HR_STATUS_INVALID_ARGUMENT, "integers with 2 dims, expected 1");
  refuse(put_matrix_pads, 21, HR_STATUS_INVALID_ARGUMENT, "integers with 2 dims, expected 1");
  refuse(put_one_size, 21, HR_STATUS_INVALID_ARGUMENT, "output_shape has 1 integers, expected 2 or 4");
  refuse(put_three_sizes, 21, HR_STATUS_INVALID_ARGUMENT, "output_shape has 3 integers, expected 2 or 4");
  refuse(put_empty_condition, 21, HR_STATUS_INVALID_ARGUMENT, "a condition without an element");
}

/* ---- results ---- */

/* The places of the largest elements of rows, in the whole tensor. */
static void put_places(hr_text *text) {
  put_integers(text, "a", 2, (const int64_t[]){1, 2});
  put_node(text, 1, "", "Unsqueeze", "x a", "u");
  size_t node = begin_node(text, 1, "", "MaxPool", "u", "m i");
  put_ints(text, "kernel_shape", 2, (const int64_t[]){1, 3});
  hr_protobuf_end(text, node);
  put_cast(text, "i", "y", FLOAT);
}

HR_TEST(places_of_pools_follow_symbols) {
  check_numbers(put_places, 21, 2, 2, (const float[]){2, 4});
}

static void put_old_division(hr_text *text) {
  static const int32_t a[4] = {7, 7, -7, -7}, b[2] = {1, 2};
  put_tensor(text, 5, "a", INT32, 2, (const int64_t[]){2, 2}, a, sizeof a);
  put_tensor(text, 5, "b", INT32, 1, two, b, sizeof b);
  size_t node = begin_node(text, 1, "", "Div", "a b", "q");
  put_int(text, "axis", 0);
  put_int(text, "broadcast", 1);
  hr_protobuf_end(text, node);
  put_cast(text, "q", "y", FLOAT);
}

HR_TEST(old_integer_division_has_an_axis) {
  check_numbers(put_old_division, 6, 1, 4, (const float[]){7, 7, -3, -3});
}

/* Integers as the data type of an initializer that all of these operators have arranged. */
static void put_narrow(hr_text *text) {
  static const int32_t numbers[4] = {9, 17, 3, -20};
  static const uint8_t two_numbers = 0x21;
  put_tensor(text, 5, "q", INT4, 2, (const int64_t[]){1, 2}, &two_numbers, 1);
  put_tensor(text, 5, "w", INT32, 1, (const int64_t[]){4}, numbers, sizeof numbers);
  put_integers(text, "zero", 1, (const int64_t[]){0});
  put_integers(text, "one", 1, (const int64_t[]){1});
  put_integers(text, "two", 2, (const int64_t[]){2, 2});
  put_integers(text, "four", 4, (const int64_t[]){0, 0, 0, 0});
  put_node(text, 1, "", "Transpose", "q", "a");
  put_node(text, 1, "", "Flatten", "a", "b");
  put_node(text, 1, "", "Squeeze", "b one", "c");
  put_node(text, 1, "", "Unsqueeze", "c one", "d");
  put_node(text, 1, "", "Slice", "d zero one", "e");
  size_t node = begin_node(text, 1, "", "Concat", "e e", "f");
  put_int(text, "axis", 0);
  hr_protobuf_end(text, node);
  put_node(text, 1, "", "Split", "f", "g");
  put_node(text, 1, "", "Expand", "g two", "h");
  put_node(text, 1, "", "Tile", "h two", "i");
  put_node(text, 1, "", "Gather", "i zero", "j");
  put_node(text, 1, "", "Pad", "j four", "l");
  put_node(text, 1, "", "CastLike", "w l", "m");
  put_cast(text, "m", "y", FLOAT);
}

HR_TEST(narrow_integers_stay_narrow) {
  check_numbers(put_narrow, 21, 1, 4, (const float[]){-7, 1, 3, -4});
}

/* Both axes have the smaller scale, 1.5, and sizes 3 and 5. */
static void put_ratio(hr_text *text) {
  static const float numbers[6] = {0, 1, 2, 3, 4, 5};
  put_tensor(text, 5, "c", FLOAT, 2, (const int64_t[]){2, 3}, numbers, sizeof numbers);
  put_integers(text, "s", 2, (const int64_t[]){3, 6});
  size_t node = begin_node(text, 1, "", "Resize", "c   s", "y");
  put_text(text, "mode", "linear");
  put_text(text, "keep_aspect_ratio_policy", "not_larger");
  hr_protobuf_end(text, node);
}

HR_TEST(a_kept_ratio_is_the_scale_of_all_axes) {
  const float at[3] = {0, 0.5f, 1}, columns[5] = {0, 0.5f, 7.0f / 6, 11.0f / 6, 2};
  float wanted[15];
  for (int i = 0; i < 15; ++i) {
    wanted[i] = 3 * at[i / 5] + columns[i % 5];
  }
  check_numbers(put_ratio, 21, 1, 15, wanted);
}

static void put_softmax(hr_text *text) {
  size_t node = begin_node(text, 1, "", "Softmax", "x", "y");
  put_int(text, "axis", 1);
  hr_protobuf_end(text, node);
}

HR_TEST(old_softmax_of_the_last_axis_has_symbols) {
  const float small = expf(-1) / (1 + expf(-1) + expf(-2)), less = small * expf(-1);
  check_numbers(put_softmax, 11, 1, 3, (const float[]){less, small, small * expf(1)});
}

/* The last of 17 parts of one or two elements. */
static void put_split(hr_text *text, int size_count) {
  int64_t sizes[18];
  for (int i = 0; i < 18; ++i) {
    sizes[i] = i < 16 ? 1 : 2;
  }
  put_ones(text, "c", 1, (const int64_t[]){18});
  size_t node = begin_node(text, 1, "", "Split", "c", "a b c0 d e f g h i j l m n o p q y");
  put_ints(text, "split", size_count, sizes);
  hr_protobuf_end(text, node);
}
static void put_wide_split(hr_text *text) {
  put_split(text, 17);
}
static void put_wrong_split(hr_text *text) {
  put_split(text, 18);
}

HR_TEST(a_split_has_as_many_sizes_as_outputs) {
  check_numbers(put_wide_split, 11, 1, 2, (const float[]){1, 1});
  refuse(put_wrong_split, 11, HR_STATUS_INVALID_ARGUMENT, "18 sizes for 17 outputs");
}

/* The first part of (1 2 3): all of it, if parts have at most this many elements. */
static void put_sequence(hr_text *text, int64_t each) {
  static const int64_t none[1] = {0}, zero = 0;
  put_tensor(text, 5, "each", INT64, 0, none, &each, sizeof each);
  put_tensor(text, 5, "zero", INT64, 0, none, &zero, sizeof zero);
  put_node(text, 1, "", "SplitToSequence", "v each", "s");
}
static void put_large_parts(hr_text *text) {
  put_sequence(text, INT64_MAX);
  put_node(text, 1, "", "SequenceAt", "s zero", "y");
}
/* x, in front of all three parts, or at a place before that. */
static void put_insert(hr_text *text, int64_t place) {
  put_sequence(text, 1);
  put_tensor(text, 5, "place", INT64, 0, NULL, &place, sizeof place);
  put_node(text, 1, "", "SequenceInsert", "s x place", "t");
  put_node(text, 1, "", "SequenceAt", "t zero", "y");
}
static void put_first(hr_text *text) {
  put_insert(text, -3);
}
static void put_before_first(hr_text *text) {
  put_insert(text, -4);
}

HR_TEST(places_in_sequences_are_bounded) {
  check_numbers(put_large_parts, 21, 1, 3, (const float[]){1, 2, 3});
  check_numbers(put_first, 21, 1, 3, (const float[]){1, 2, 3});
  refuse(put_before_first, 21, HR_STATUS_INVALID_ARGUMENT, "position -4 in a sequence of 3 elements");
}

/* The sum of the absolute numbers of x: p is 1, as a float. The data type is a text. */
static void put_first_versions(hr_text *text) {
  static const float numbers[4] = {1, -2, 3, -4};
  put_tensor(text, 5, "c", FLOAT, 4, (const int64_t[]){1, 1, 2, 2}, numbers, sizeof numbers);
  size_t node = begin_node(text, 1, "", "LpPool", "c", "p");
  put_ints(text, "kernel_shape", 2, (const int64_t[]){2, 2});
  put_real(text, "p", 1);
  hr_protobuf_end(text, node);
  node = begin_node(text, 1, "", "Cast", "p", "y");
  put_text(text, "to", "FLOAT");
  hr_protobuf_end(text, node);
}

HR_TEST(attributes_of_the_first_versions_are_read) {
  check_numbers(put_first_versions, 1, 1, 1, (const float[]){10});
}

/* ---- activations of recurrent layers ---- */

static void put_hard_sigmoid(hr_text *text) {
  put_ones(text, "w", 3, (const int64_t[]){1, 1, 1});
  size_t node = begin_node(text, 1, "", "RNN", "w w w", "y");
  put_int(text, "hidden_size", 1);
  size_t attribute = hr_protobuf_begin(text, 5);
  hr_protobuf_string(text, 1, "activations");
  hr_protobuf_string(text, 9, "HardSigmoid");
  hr_protobuf_int(text, 20, 8);
  hr_protobuf_end(text, attribute);
  hr_protobuf_end(text, node);
}

/* The layer's slope is another one. */
HR_TEST(a_recurrent_layer_with_hard_sigmoid_is_refused) {
  refuse(put_hard_sigmoid, 21, HR_STATUS_UNIMPLEMENTED, "activation \"HardSigmoid\"");
}

/* ---- external data ---- */

static void put_stored(hr_text *text, const char *name, uint64_t type, int64_t count, const char *location,
                       const char *offset) {
  size_t tensor = hr_protobuf_begin(text, 5);
  hr_protobuf_int(text, 1, (uint64_t)count);
  hr_protobuf_int(text, 2, type);
  hr_protobuf_string(text, 8, name);
  const char *const entries[4] = {"location", location, "offset", offset};
  for (int i = 0; i < 4; i += 2) {
    size_t entry = hr_protobuf_begin(text, 13);
    hr_protobuf_string(text, 1, entries[i]);
    hr_protobuf_string(text, 2, entries[i + 1]);
    hr_protobuf_end(text, entry);
  }
  hr_protobuf_int(text, 14, 1);
  hr_protobuf_end(text, tensor);
}

static void write_file(const char *path, const void *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  HR_ASSERT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

/* Ends a model of opset 21, writes it into the folder and opens it there. Frees the text. */
static hr_status open_in_folder(const char *folder, hr_text *text, size_t graph, hr_graph **out_graph) {
  char path[256];
  hr_protobuf_end(text, graph);
  put_opset(text, 8, "", 21);
  snprintf(path, sizeof path, "%s/model.onnx", folder);
  write_file(path, text->data, text->length);
  hr_text_fini(text);
  return hr_onnx_open(path, NULL, out_graph);
}

static hr_status open_external(const char *folder, const char *location, const char *offset, hr_graph **out_graph) {
  hr_text text = {0};
  size_t graph = hr_protobuf_begin(&text, 7);
  put_node(&text, 1, "", "Add", "x w", "y");
  put_stored(&text, "w", FLOAT, 3, location, offset);
  put_value_info(&text, 11, "x", FLOAT, 2, rows);
  put_value_info(&text, 12, "y", FLOAT, 2, rows);
  return open_in_folder(folder, &text, graph, out_graph);
}

HR_TEST(external_data_is_read_from_the_models_folder_alone) {
  char folder[] = "/tmp/onnx_test_XXXXXX", path[256];
  const float numbers[4] = {0, 1, 2, 3};
  hr_graph *graph = NULL;
  HR_ASSERT(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/part", folder);
  HR_ASSERT(mkdir(path, 0700) == 0);
  snprintf(path, sizeof path, "%s/part/w.bin", folder);
  write_file(path, numbers, sizeof numbers);
  HR_ASSERT_OK(open_external(folder, "part/w.bin", "4", &graph));
  HR_ASSERT_EQ(hr_graph_constant_bytes(graph), 12);
  hr_graph_release(graph);
  HR_ASSERT_ERROR(open_external(folder, "part/w.bin", "8", &graph), HR_STATUS_DATA_LOSS,
                  "do not fit a file of 16 bytes");
  HR_ASSERT_ERROR(open_external(folder, "part/w.bin", "99999999999999999999", &graph), HR_STATUS_DATA_LOSS,
                  "no number");
  HR_ASSERT_ERROR(open_external(folder, "part/../part/w.bin", "0", &graph), HR_STATUS_INVALID_ARGUMENT,
                  "without \"..\"");
  HR_ASSERT_ERROR(open_external(folder, path, "0", &graph), HR_STATUS_INVALID_ARGUMENT, "in the folder");
  HR_ASSERT_ERROR(open_external(folder, "none", "0", &graph), HR_STATUS_NOT_FOUND, "external data \"none\"");
  char link_path[256];
  snprintf(link_path, sizeof link_path, "%s/link", folder);
  HR_ASSERT(symlink(path, link_path) == 0);
  HR_ASSERT_ERROR(open_external(folder, "link", "0", &graph), HR_STATUS_UNAVAILABLE, "links are not followed");
  remove(link_path);
  snprintf(path, sizeof path, "%s/part", folder);
  HR_ASSERT(symlink(path, link_path) == 0);
  HR_ASSERT_ERROR(open_external(folder, "link/w.bin", "0", &graph), HR_STATUS_NOT_FOUND, "links are not followed");
  remove(link_path);
  snprintf(path, sizeof path, "%s/part/w.bin", folder);
  remove(path);
  snprintf(path, sizeof path, "%s/part", folder);
  rmdir(path);
  snprintf(path, sizeof path, "%s/model.onnx", folder);
  remove(path);
  rmdir(folder);
}

/* A model of `count` initializers of `bytes` each, `step` bytes apart in a file of 64 KB. */
static hr_status open_ranges(const char *folder, int count, int64_t bytes, int64_t step, hr_graph **out_graph) {
  hr_text text = {0};
  size_t graph = hr_protobuf_begin(&text, 7);
  put_node(&text, 1, "", "Identity", "w0", "y");
  for (int i = 0; i < count; ++i) {
    char name[16], offset[24];
    snprintf(name, sizeof name, "w%d", i);
    snprintf(offset, sizeof offset, "%lld", (long long)(i * step));
    put_stored(&text, name, UINT8, bytes, "w.bin", offset);
  }
  put_value_info(&text, 12, "y", UINT8, 1, (int64_t[]){bytes});
  return open_in_folder(folder, &text, graph, out_graph);
}

HR_TEST(external_data_that_overlaps_is_one_constant_or_bounded) {
  enum { FILE_BYTES = 1 << 16, MANY = 4096, SMALL = 4096 };
  char folder[] = "/tmp/onnx_test_XXXXXX", path[256];
  static const char bytes[FILE_BYTES];
  hr_graph *graph = NULL;
  HR_ASSERT(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/w.bin", folder);
  write_file(path, bytes, sizeof bytes);
  HR_ASSERT_OK(open_ranges(folder, MANY, SMALL, 0, &graph));
  HR_ASSERT_EQ(hr_graph_constant_bytes(graph), SMALL);
  hr_graph_release(graph);
  HR_ASSERT_OK(open_ranges(folder, 100, SMALL, 1, &graph));
  HR_ASSERT_EQ(hr_graph_constant_bytes(graph), 100 * SMALL);
  hr_graph_release(graph);
  HR_ASSERT_ERROR(open_ranges(folder, MANY, SMALL, 1, &graph), HR_STATUS_DATA_LOSS,
                  "\"w.bin\" of 65536 bytes: tensors that overlap have 4329472 bytes in all");
  HR_ASSERT_ERROR(open_ranges(folder, FILE_BYTES / 2, FILE_BYTES / 2, 1, &graph), HR_STATUS_DATA_LOSS, "overlap");
  remove(path);
  snprintf(path, sizeof path, "%s/model.onnx", folder);
  remove(path);
  rmdir(folder);
}

/* ---- texts ---- */

/* ---- constants ---- */

enum { WIDE = 8192 };

/* y = the sum of x @ w; w: 1, 2 and 3 in the last column, at an address that depends on the length of `name`. */
static void put_wide(hr_text *text, const char *name) {
  static float w[3 * WIDE];
  const int64_t dims[2] = {3, WIDE};
  char inputs[16];
  for (int i = 0; i < 3; ++i) {
    w[i * WIDE + WIDE - 1] = (float)(i + 1);
  }
  snprintf(inputs, sizeof inputs, "x %s", name);
  put_node(text, 1, name, "MatMul", inputs, "p");
  size_t node = begin_node(text, 1, "", "ReduceSum", "p", "y");
  put_int(text, "keepdims", 0);
  hr_protobuf_end(text, node);
  put_tensor(text, 5, name, FLOAT, 2, dims, w, sizeof w);
}
static void put_wide_1(hr_text *text) {
  put_wide(text, "w");
}
static void put_wide_2(hr_text *text) {
  put_wide(text, "ww");
}
static void put_wide_3(hr_text *text) {
  put_wide(text, "www");
}
static void put_wide_4(hr_text *text) {
  put_wide(text, "wwww");
}

/* Bytes of constants that a session of the graph copies. */
static int64_t copied_bytes(const hr_graph *graph) {
  hr_device *device = NULL;
  hr_stream *stream = NULL;
  hr_session *session = NULL;
  hr_session_stats stats;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  HR_ASSERT_OK(hr_session_create(stream, graph, NULL, &session));
  hr_session_stats_read(session, sizeof stats, &stats);
  hr_session_release(session);
  hr_stream_release(stream);
  hr_device_release(device);
  return stats.constant_bytes_copied;
}

HR_TEST(large_constants_stay_at_any_address) {
  void (*const puts[4])(hr_text * text) = {put_wide_1, put_wide_2, put_wide_3, put_wide_4};
  unsigned addresses = 0;
  for (int i = 0; i < 4; ++i) {
    hr_graph *graph = NULL;
    HR_ASSERT_OK(open_nodes(puts[i], 21, NULL, &graph));
    run_rows(graph, 2, 1, (const float[]){12});
    addresses |= 1u << ((uintptr_t)hr_graph_data(graph, 0).address & 3);
#if defined(__x86_64__) && !defined(HR_SANITIZED)
    HR_ASSERT_EQ(copied_bytes(graph), 0);
#endif
    hr_graph_release(graph);
  }
  HR_ASSERT_EQ(addresses, 15); /* multiples of 4, and three others */
}

static void put_maximum(hr_text *text) {
  size_t node = begin_node(text, 1, "", "ReduceMax", "x", "y");
  put_ints(text, "axes", 1, (const int64_t[]){0});
  hr_protobuf_end(text, node);
}
static void put_place(hr_text *text) {
  put_node(text, 1, "", "ArgMax", "x", "y");
}

/* n is a symbol, which is 0 in this run. */
static void check_no_rows(void (*put)(hr_text *text), const char *part) {
  hr_graph *graph = NULL;
  hr_device *device = NULL;
  hr_stream *stream = NULL;
  hr_session *session = NULL;
  hr_tensor all[3] = {{0}}, y;
  const hr_tensor *inputs[3] = {&all[0], &all[1], &all[2]};
  const int64_t none[2] = {0, 3}, numbers[3] = {0};
  HR_ASSERT_OK(open_nodes(put, 11, NULL, &graph));
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_F32, 2, none, NULL, &all[0]));
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_F32, 1, vector, numbers, &all[1]));
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_I64, 1, two, numbers, &all[2]));
  HR_ASSERT_OK(hr_session_create(stream, graph, NULL, &session));
  HR_ASSERT_ERROR(hr_session_run(session, 3, inputs, 1, &y), HR_STATUS_INVALID_ARGUMENT, part);
  for (int i = 0; i < 3; ++i) {
    hr_tensor_release(&all[i]);
  }
  hr_session_release(session);
  hr_stream_release(stream);
  hr_device_release(device);
  hr_graph_release(graph);
}

HR_TEST(a_maximum_of_no_rows_is_an_error_of_the_run) {
  check_no_rows(put_maximum, "amax: no elements to reduce in dims [0,3]");
  check_no_rows(put_place, "argmax: no elements to reduce in dims [0,3]");
}

HR_TEST(names_are_utf8_without_control_characters) {
  static const char *const right[] = {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
  static const char *const wrong[] = {"\x01",     "a\x7f", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xe2\x82", "\xff"};
  for (size_t i = 0; i < sizeof right / sizeof *right; ++i) {
    HR_ASSERT(hr__span_is_text((hr__span){(const uint8_t *)right[i], strlen(right[i])}));
  }
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    HR_ASSERT(!hr__span_is_text((hr__span){(const uint8_t *)wrong[i], strlen(wrong[i])}));
  }
  HR_ASSERT(!hr__span_is_text((hr__span){(const uint8_t *)"a\0b", 3}));
}

/* ---- damaged files ---- */

static uint64_t state = 1;

static uint64_t draw(uint64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % below;
}

/* Changes some bytes, or moves a piece over another one. Most changes keep the lengths of messages. */
static void mutate(char *bytes, size_t size) {
  for (uint64_t i = 0; i <= draw(4); ++i) {
    size_t at = draw(size), length = 1 + draw(16), from = draw(size);
    if (draw(3) != 0) {
      bytes[at] = (char)(draw(2) == 0 ? draw(256) : (uint64_t)(bytes[at] ^ (1 << draw(8))));
    } else if (at + length <= size && from + length <= size) {
      memmove(bytes + at, bytes + from, length);
    }
  }
}

static bool try_model(const char *bytes, size_t size) {
  hr_graph *graph = NULL;
  hr_status status = hr_onnx_open_bytes("model.onnx", bytes, size, NULL, &graph);
  bool is_right = status == HR_OK;
  hr_status_ignore(status);
  if (is_right) {
    hr_graph_release(graph);
  }
  return is_right;
}

typedef struct sample_nodes {
  void (*put)(hr_text *text);
  int64_t opset;
} sample_nodes;
/* The first is a whole model. */
static const sample_nodes samples[] = {
    {put_layer, 0},    {put_gelu, 21},         {put_open_if, 21}, {put_true_if, 21}, {put_three, 21},
    {put_symbols, 21}, {put_flatten, 21},      {put_places, 21},  {put_narrow, 21},  {put_ratio, 21},
    {put_softmax, 11}, {put_wide_split, 11},   {put_first, 21},   {put_maximum, 21}, {put_old_division, 6},
    {put_reshape, 21}, {put_first_versions, 1}};
enum { SAMPLES = sizeof samples / sizeof *samples };

/* Each of the models in turn, changed; the number of those that open. */
static int64_t try_changed(const hr_text *models, int64_t count, uint64_t first) {
  int64_t right = 0;
  char *changed = malloc(1 << 16);
  file_limits_begin();
  for (int64_t i = 0; i < count; ++i) {
    const hr_text *model = &models[i % SAMPLES];
    HR_ASSERT(model->length <= 1 << 16);
    state = (uint64_t)i + first;
    file_limits_start((int64_t)state);
    memcpy(changed, model->data, model->length);
    mutate(changed, model->length);
    right += try_model(changed, model->length);
    file_limits_check(model->length);
  }
  file_limits_end();
  free(changed);
  return right;
}

HR_TEST(damaged_models_open_or_are_refused) {
  hr_text models[SAMPLES] = {{0}};
  const char *wanted = getenv("HEADRACE_TEST_FILES"), *first = getenv("HEADRACE_TEST_SEED");
  int64_t count = wanted != NULL ? atoll(wanted) : hr_test_count(100000);
  for (int m = 0; m < SAMPLES; ++m) {
    if (samples[m].opset == 0) {
      samples[m].put(&models[m]);
    } else {
      put_model(&models[m], samples[m].put, samples[m].opset);
    }
    HR_ASSERT(try_model(models[m].data, models[m].length));
  }
  int64_t right = try_changed(models, count, first != NULL ? (uint64_t)atoll(first) : 0);
  HR_ASSERT(right > 0 && right < count);
  for (int m = 0; m < SAMPLES; ++m) {
    for (size_t end = 0; end < models[m].length; ++end) {
      (void)try_model(models[m].data, end);
    }
    HR_ASSERT(!try_model(models[m].data, models[m].length / 2));
    hr_text_fini(&models[m]);
  }
}

/* ---- memory ---- */

static hr_text sample;

static hr_status open_sample(void) {
  hr_graph *graph = NULL;
  HR_RETURN_IF_ERROR(hr_onnx_open_bytes("model.onnx", sample.data, sample.length, NULL, &graph));
  hr_graph_release(graph);
  return HR_OK;
}

HR_TEST(an_import_survives_failing_allocations) {
  put_layer(&sample);
  HR_TEST_OOM(open_sample);
  hr_text_fini(&sample);
}
