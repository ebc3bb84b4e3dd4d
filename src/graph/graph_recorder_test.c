/* Graphs recorded from functions on a stream. */
#include "graph/graph_test.h"
#include "headrace/array.h"

static const float weights[6] = {1, -2, 3, 4, -5, 6};

/* relu(x w + 1) w^T with its maximum, as a program would compute it */
static void compute(const hr_tensor *x, const hr_tensor *w, hr_tensor *out, hr_tensor *out_largest) {
  hr_tensor one = hr_tensor_number(hr_scalar_i64(1));
  hr_tensor product = apply(HR_FUNCTIONAL_MATMUL, ON(x, w), PLAIN);
  hr_tensor sum = apply(HR_FUNCTIONAL_ADD, ON(&product, &one), PLAIN),
            relu = apply(HR_FUNCTIONAL_RELU, ON(&sum), PLAIN);
  hr_tensor turned = apply(HR_FUNCTIONAL_SWAPAXES, ON(w), PLAIN);
  *out = apply(HR_FUNCTIONAL_MATMUL, ON(&relu, &turned), PLAIN);
  *out_largest = apply(HR_FUNCTIONAL_MAX, ON(out), WITH(INTS_OF(1), FLAG_OF(1)));
  RELEASE(&product, &sum, &relu, &turned);
}

HR_TEST(functions_become_nodes) {
  hr_graph *g = new_graph();
  hr_graph_recorder *recorder = NULL;
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "n 2"), value = 0;
  hr_tensor example = counted(DIMS(3, 2)), w = tensor_of(HR_DTYPE_F32, DIMS(2, 3), weights), out, largest, again,
            unused;
  HR_ASSERT_OK(hr_graph_recorder_begin(stream, g, &recorder));
  HR_ASSERT_OK(hr_graph_recorder_bind(recorder, &example, x));
  HR_ASSERT_ERROR(hr_graph_recorder_bind(recorder, &w, 99), HR_STATUS_INVALID_ARGUMENT, "there is no value 99");
  compute(&example, &w, &out, &largest);
  HR_ASSERT_OK(hr_graph_recorder_find(recorder, &out, &value));
  hr_graph_output(g, "y", value);
  HR_ASSERT_OK(hr_graph_recorder_find(recorder, &largest, &value));
  hr_graph_output(g, "largest", value);
  HR_ASSERT_OK(hr_graph_recorder_end(recorder));
  expect_text(g, "graph 1\n"
                 "input %x f32[n, 2]\n"
                 "constant %0 f32[2, 3] = [1.0, -2.0, 3.0, 4.0, -5.0, 6.0]\n"
                 "%1 = matmul(%x, %0)  ; f32[n, 3]\n"
                 "%2 = add(%1, 1)  ; f32[n, 3]\n"
                 "%3 = relu(%2)  ; f32[n, 3]\n"
                 "%4 = swapaxes(%0)  ; f32[3, 2]\n"
                 "%5 = matmul(%3, %4)  ; f32[n, 2]\n"
                 "%6 = max(%5, axis=[1], keepdims=true)  ; f32[n, 1]\n"
                 "output y = %5\n"
                 "output largest = %6\n");
  hr_tensor other = counted(DIMS(4, 2)), results[2];
  const hr_tensor *inputs[1] = {&other};
  HR_ASSERT_OK(hr_graph_apply(g, stream, 1, inputs, 2, results));
  compute(&other, &w, &again, &unused);
  float got[8], wanted[8];
  read(&results[0], got);
  read(&again, wanted);
  HR_ASSERT_BYTES_EQ(got, wanted, sizeof got);
  RELEASE(&example, &w, &out, &largest, &again, &unused, &other, &results[0], &results[1]);
  hr_graph_release(g);
}

HR_TEST(records_of_no_function_are_refused) {
  hr_graph *g = new_graph();
  hr_graph_recorder *recorder = NULL;
  hr_tensor x = counted(DIMS(2));
  hr_view view = hr_tensor_view(&x);
  HR_ASSERT_OK(hr_graph_recorder_begin(stream, g, &recorder));
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_NEG, NULL, 1, &view, 1, &view));
  HR_ASSERT_ERROR(hr_graph_recorder_end(recorder), HR_STATUS_UNIMPLEMENTED, "neg was recorded");
  hr_tensor_release(&x);
  hr_graph_release(g);
}

HR_TEST(views_that_no_function_made_are_no_constants) {
  hr_graph *g = new_graph();
  hr_graph_recorder *recorder = NULL;
  hr_tensor x = counted(DIMS(4)), w = counted(DIMS(4)), half = {0}, both, turned, out;
  const hr_index odd = {.kind = HR_INDEX_SLICE, .begin = 1, .end = 4, .step = 2};
  const hr_tensor *inputs[1] = {&half};
  hr_value value = 0;
  HR_ASSERT_OK(hr_graph_recorder_begin(stream, g, &recorder));
  HR_ASSERT_OK(hr_graph_recorder_bind(recorder, &x, input_of(g, "x", HR_DTYPE_F32, "4")));
  HR_ASSERT_OK(hr_array_index(&x, 1, &odd, &half));
  HR_ASSERT_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_NEGATIVE, 1, inputs, 0, NULL, 1, &out),
                  HR_STATUS_UNIMPLEMENTED, "a view f32[2] of \"x\" that no function made");
  hr_tensor_release(&half);
  both = apply(HR_FUNCTIONAL_ADD, ON(&x, &w), PLAIN);
  HR_ASSERT_OK(hr_array_index(&both, 1, &odd, &half));
  HR_ASSERT_STATUS(hr_graph_recorder_find(recorder, &half, &value), HR_STATUS_UNIMPLEMENTED);
  hr_tensor_release(&half);
  turned = apply(HR_FUNCTIONAL_FLIP, ON(&w), PLAIN);
  HR_ASSERT_OK(hr_array_index(&w, 1, &odd, &half)); /* of a constant */
  HR_ASSERT_OK(hr_graph_recorder_find(recorder, &half, &value));
  HR_ASSERT_OK(hr_graph_recorder_end(recorder));
  RELEASE(&x, &w, &half, &both, &turned);
  hr_graph_release(g);
}

HR_TEST(a_function_that_fails_adds_no_result) {
  hr_graph *g = new_graph();
  hr_graph_recorder *recorder = NULL;
  hr_tensor x = counted(DIMS(2)), y = counted(DIMS(3)), out;
  const hr_tensor *inputs[2] = {&x, &y};
  HR_ASSERT_OK(hr_graph_recorder_begin(stream, g, &recorder));
  HR_ASSERT_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_ADD, 2, inputs, 0, NULL, 1, &out),
                  HR_STATUS_INVALID_ARGUMENT, "add: ");
  HR_ASSERT_OK(hr_graph_recorder_end(recorder));
  HR_ASSERT_STATUS(hr_graph_status(g), HR_STATUS_INVALID_ARGUMENT);
  hr_tensor_release(&x);
  hr_tensor_release(&y);
  hr_graph_release(g);
}

HR_TEST(lists_become_a_node_for_each_tuple) {
  hr_graph *g = new_graph();
  hr_graph_recorder *recorder = NULL;
  hr_tensor x = counted(DIMS(2)), y = counted(DIMS(3)), out[2];
  const hr_tensor *inputs[2] = {&x, &y};
  HR_ASSERT_OK(hr_graph_recorder_begin(stream, g, &recorder));
  HR_ASSERT_OK(hr_functional_apply_each(stream, HR_FUNCTIONAL_SQUARE, 2, 2, inputs, out));
  HR_ASSERT_OK(hr_graph_recorder_end(recorder));
  HR_ASSERT_EQ(hr_graph_operation_count(g), 2);
  EXPECT(&out[1], 0, 1, 4);
  RELEASE(&x, &y, &out[0], &out[1]);
  hr_graph_release(g);
}
