/* Functions with a gradient of their own: nested tapes, writes inside of them, outputs that are inputs, errors, failing
 * allocations. */
#include "base/allocator.h"
#include "headrace/transform.h"
#include "tensor_test.h"

/* ---- tensors of f64 with 2 elements ---- */

static hr_tensor pair(double a, double b) {
  hr_tensor x = new_tensor(HR_DTYPE_F64, DIMS(2));
  hr_view view = hr_tensor_view(&x);
  HR_ASSERT_OK(hr_stream_write(stream, &view, (const double[]){a, b}));
  return x;
}

static void expect_pair(const hr_tensor *x, double a, double b) {
  double values[2];
  hr_view view = hr_tensor_view(x);
  HR_ASSERT_EQ(x->dtype, HR_DTYPE_F64);
  HR_ASSERT_OK(hr_stream_read(stream, &view, values));
  HR_ASSERT_NEAR(values[0], a, 1e-12);
  HR_ASSERT_NEAR(values[1], b, 1e-12);
}

static hr_status record(hr_op op, const hr_tensor *x, const hr_tensor *y, const hr_tensor *out) {
  hr_view inputs[2] = {hr_tensor_view(x), y != NULL ? hr_tensor_view(y) : (hr_view){0}}, output = hr_tensor_view(out);
  return hr_stream_record(stream, op, NULL, y != NULL ? 2 : 1, inputs, 1, &output);
}

static hr_status multiply(const hr_tensor *x, const hr_tensor *y, hr_tensor *out) {
  const hr_tensor *inputs[2] = {x, y};
  return hr_functional_apply(stream, HR_FUNCTIONAL_MULTIPLY, 2, inputs, 0, NULL, 1, out);
}

/* ---- f(x) = x * x, whose gradient is said to be g * x * x * x ---- */

static int releases;

static void count_release(void *arg) {
  ++*(int *)arg;
}

static hr_status cube(const hr_custom_call *call) {
  hr_tensor square, product;
  HR_ASSERT(call->input_count == 1 && call->output_count == 1 && call->stream == stream);
  HR_RETURN_IF_ERROR(multiply(&call->inputs[0], &call->inputs[0], &square));
  hr_status status = multiply(&square, &call->inputs[0], &product);
  hr_tensor_release(&square);
  HR_RETURN_IF_ERROR(status);
  status = multiply(&product, &call->cotangents[0], &call->gradients[0]);
  hr_tensor_release(&product);
  return status;
}

static const hr_custom_spec cubed = {"cubed", cube, &releases, count_release};

static hr_status square_of(const hr_tensor *x, const hr_custom_spec *spec, hr_tensor *out) {
  hr_custom *custom;
  hr_tensor *outputs[1] = {out};
  HR_RETURN_IF_ERROR(hr_custom_begin(stream, &custom));
  hr_status status = multiply(x, x, out);
  if (status != HR_OK) {
    hr_status_ignore(hr_custom_end(custom, NULL, 0, NULL, 0, NULL));
    return status;
  }
  status = hr_custom_end(custom, spec, 1, &x, 1, outputs);
  if (status != HR_OK) {
    hr_tensor_release(out);
  }
  return status;
}

HR_TEST(the_gradient_is_the_functions) {
  hr_tape *outer, *inner;
  hr_tensor x = pair(2, 3), y, gradient, second;
  const hr_tensor *in = &x, *end = &y, *first = &gradient;
  releases = 0;
  HR_ASSERT_OK(hr_tape_begin(stream, &outer));
  HR_ASSERT_OK(hr_tape_watch(outer, 1, &in));
  HR_ASSERT_OK(hr_tape_begin(stream, &inner));
  HR_ASSERT_OK(hr_tape_watch(inner, 1, &in));
  HR_ASSERT_OK(square_of(&x, &cubed, &y));
  expect_pair(&y, 4, 9);
  HR_ASSERT_OK(hr_tape_gradient(inner, 1, &end, NULL, 1, &in, &gradient));
  expect_pair(&gradient, 8, 27);
  hr_tape_destroy(inner);
  HR_ASSERT_EQ(releases, 0);
  HR_ASSERT_OK(hr_tape_gradient(outer, 1, &first, NULL, 1, &in, &second)); /* the outer tape has seen 8 x^3 */
  expect_pair(&second, 12, 27);
  hr_tensor_release(&second);
  HR_ASSERT_OK(hr_tape_gradient(outer, 1, &end, NULL, 1, &in, &second));
  expect_pair(&second, 8, 27);
  hr_tape_destroy(outer);
  HR_ASSERT_EQ(releases, 1);
  hr_tensor_release(&x);
  hr_tensor_release(&y);
  hr_tensor_release(&gradient);
  hr_tensor_release(&second);
}

static hr_status scale_tangent(const hr_custom_call *call) {
  HR_ASSERT(call->input_count == 1 && call->output_count == 1 && call->stream == stream);
  return multiply(&call->inputs[0], &call->tangents[0], &call->products[0]);
}

static hr_status give_integers(const hr_custom_call *call) {
  (void)call;
  call->products[0] = new_tensor(HR_DTYPE_I64, DIMS(2));
  return HR_OK;
}

HR_TEST(the_product_is_the_functions_or_that_of_its_gradient) {
  const hr_custom_spec specs[3] = {{"cubed", cube, &releases, count_release},
                                   {"scaled", cube, &releases, count_release, scale_tangent},
                                   {"integers", cube, &releases, count_release, give_integers}};
  hr_tensor x = pair(2, 3), t = pair(1, 10), y, z, product;
  const hr_tensor *in = &x, *tangent = &t, *end = &z;
  for (int i = 0; i < 3; ++i) {
    hr_tape *tape;
    releases = 0;
    HR_ASSERT_OK(hr_tape_begin(stream, &tape));
    HR_ASSERT_OK(hr_tape_watch(tape, 1, &in));
    HR_ASSERT_OK(square_of(&x, &specs[i], &y));
    HR_ASSERT_OK(multiply(&y, &x, &z)); /* dz = dy x + y dx */
    if (i == 2) {
      HR_ASSERT_ERROR(hr_tape_product(tape, 1, &in, &tangent, 1, &end, &product), HR_STATUS_INVALID_ARGUMENT,
                      "the product of output 0 is i64[2], expected f64[2]");
    } else {
      HR_ASSERT_OK(hr_tape_product(tape, 1, &in, &tangent, 1, &end, &product));
      expect_pair(&product, i == 0 ? 8 * 2 + 4 : 2 * 2 + 4, i == 0 ? 270 * 3 + 90 : 30 * 3 + 90);
      hr_tensor_release(&product);
    }
    hr_tape_destroy(tape);
    HR_ASSERT_EQ(releases, 1);
    hr_tensor_release(&y);
    hr_tensor_release(&z);
  }
  hr_tensor_release(&x);
  hr_tensor_release(&t);
}

HR_TEST(a_function_in_a_function_is_constant_for_outer_tapes) {
  hr_tape *tape;
  hr_custom *custom;
  hr_tensor x = pair(2, 3), square, y, gradient;
  hr_tensor *outputs[1] = {&y};
  const hr_tensor *in = &x, *end = &y;
  releases = 0;
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &in));
  HR_ASSERT_OK(hr_custom_begin(stream, &custom));
  HR_ASSERT_OK(square_of(&x, &cubed, &square));
  HR_ASSERT_EQ(releases, 1);
  HR_ASSERT_OK(multiply(&square, &x, &y));
  HR_ASSERT_OK(hr_custom_end(custom, &cubed, 1, &in, 1, outputs));
  HR_ASSERT_OK(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient));
  expect_pair(&gradient, 8, 27);
  hr_tape_destroy(tape);
  hr_tensor_release(&x);
  hr_tensor_release(&square);
  hr_tensor_release(&y);
  hr_tensor_release(&gradient);
}

/* The tape has x for the gradient of x * x, and the outer one differentiates the copy that it gets. */
HR_TEST(writes_in_a_function_leave_kept_values) {
  hr_tape *outer, *inner;
  hr_custom *custom;
  hr_tensor x = pair(2, 3), other = pair(5, 7), y, gradient, second;
  const hr_tensor *in = &x, *end = &y, *first = &gradient;
  hr_tensor z = pair(0, 0);
  HR_ASSERT_OK(hr_tape_begin(stream, &outer));
  HR_ASSERT_OK(hr_tape_watch(outer, 1, &in));
  HR_ASSERT_OK(record(HR_OP_COPY, &x, NULL, &z));
  HR_ASSERT_OK(hr_tape_begin(stream, &inner));
  HR_ASSERT_OK(hr_tape_watch(inner, 1, &in));
  HR_ASSERT_OK(multiply(&x, &z, &y)); /* both tapes keep z */
  HR_ASSERT_OK(hr_custom_begin(stream, &custom));
  HR_ASSERT_OK(record(HR_OP_COPY, &other, NULL, &z)); /* now z is constant */
  HR_ASSERT_OK(hr_custom_end(custom, NULL, 0, NULL, 0, NULL));
  HR_ASSERT_OK(record(HR_OP_MUL, &y, &z, &y));
  expect_pair(&y, 20, 63);
  HR_ASSERT_OK(hr_tape_gradient(inner, 1, &end, NULL, 1, &in, &gradient)); /* other * z, z constant */
  expect_pair(&gradient, 10, 21);
  HR_ASSERT_OK(hr_tape_gradient(outer, 1, &first, NULL, 1, &in, &second)); /* for which z is x */
  expect_pair(&second, 5, 7);
  hr_tensor_release(&second);
  HR_ASSERT_OK(hr_tape_gradient(outer, 1, &end, NULL, 1, &in, &second));
  expect_pair(&second, 20, 42);
  hr_tape_destroy(inner);
  hr_tape_destroy(outer);
  hr_tensor_release(&x);
  hr_tensor_release(&other);
  hr_tensor_release(&y);
  hr_tensor_release(&z);
  hr_tensor_release(&gradient);
  hr_tensor_release(&second);
}

static hr_status give_cotangents(const hr_custom_call *call) {
  const hr_tensor ten = hr_tensor_number(hr_scalar_f64(10)), *first = &call->cotangents[0];
  hr_tensor scaled;
  const hr_tensor *inputs[2] = {first, &scaled};
  HR_RETURN_IF_ERROR(multiply(&call->cotangents[1], &ten, &scaled));
  hr_status status = hr_functional_apply(stream, HR_FUNCTIONAL_ADD, 2, inputs, 0, NULL, 1, &call->gradients[0]);
  hr_tensor_release(&scaled);
  return status;
}

HR_TEST(outputs_that_are_inputs_get_memory_of_their_own) {
  static const hr_custom_spec spec = {"twice", give_cotangents, NULL, NULL};
  hr_tape *tape;
  hr_custom *custom;
  hr_tensor x = pair(2, 3), first, second, gradient;
  hr_tensor *outputs[2] = {&first, &second};
  const hr_tensor *in = &x, *ends[3] = {&first, &second, &x};
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &in));
  HR_ASSERT_OK(hr_custom_begin(stream, &custom));
  first = second = x;
  hr_buffer_retain(x.buffer);
  hr_buffer_retain(x.buffer);
  HR_ASSERT_OK(hr_custom_end(custom, &spec, 1, &in, 2, outputs));
  HR_ASSERT(first.buffer != x.buffer && second.buffer != x.buffer && first.buffer != second.buffer);
  HR_ASSERT_OK(hr_tape_gradient(tape, 3, ends, NULL, 1, &in, &gradient));
  expect_pair(&gradient, 12, 12);
  hr_tape_destroy(tape);
  hr_tensor_release(&x);
  hr_tensor_release(&first);
  hr_tensor_release(&second);
  hr_tensor_release(&gradient);
}

static hr_status give_scalar(const hr_custom_call *call) {
  call->gradients[0] = new_tensor(HR_DTYPE_F64, 0, NULL);
  return HR_OK;
}

static hr_status fail(const hr_custom_call *call) {
  call->gradients[0] = call->inputs[0];
  hr_buffer_retain(call->inputs[0].buffer);
  return hr_status_make(HR_STATUS_OUT_OF_RANGE, "mine");
}

HR_TEST(wrong_functions_are_errors) {
  static const hr_custom_spec scalar = {NULL, give_scalar, NULL, NULL}, failing = {"failing", fail, NULL, NULL};
  hr_tape *tape;
  hr_custom *custom;
  hr_tensor x = pair(2, 3), y, gradient, number = hr_tensor_number(hr_scalar_f64(2));
  hr_tensor *outputs[1] = {&y};
  const hr_tensor *in = &x, *end = &y, *two = &number;
  releases = 0;
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &in));
  HR_ASSERT_OK(hr_custom_begin(stream, &custom));
  HR_ASSERT_OK(multiply(&x, &x, &y));
  HR_ASSERT_ERROR(hr_custom_end(custom, &cubed, 1, &two, 1, outputs), HR_STATUS_INVALID_ARGUMENT,
                  "input 0 has no buffer");
  HR_ASSERT_EQ(releases, 1);
  hr_tensor_release(&y);
  HR_ASSERT_OK(square_of(&x, &scalar, &y));
  HR_ASSERT_ERROR(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient), HR_STATUS_INVALID_ARGUMENT,
                  "custom function: the gradient of input 0 is f64[], expected f64[2]");
  hr_tensor_release(&y);
  HR_ASSERT_OK(square_of(&x, &failing, &y));
  HR_ASSERT_ERROR(hr_tape_gradient(tape, 1, &end, NULL, 1, &in, &gradient), HR_STATUS_OUT_OF_RANGE, "mine");
  hr_tape_destroy(tape);
  hr_tensor_release(&x);
  hr_tensor_release(&y);
}

static hr_status differentiate(hr_tape *tape, const hr_tensor *x) {
  hr_tensor y, gradient;
  const hr_tensor *end = &y;
  HR_RETURN_IF_ERROR(hr_tape_watch(tape, 1, &x));
  HR_RETURN_IF_ERROR(square_of(x, &cubed, &y));
  hr_status status = hr_tape_gradient(tape, 1, &end, NULL, 1, &x, &gradient);
  hr_tensor_release(&y);
  HR_RETURN_IF_ERROR(status);
  hr_tensor_release(&gradient);
  return HR_OK;
}

static hr_status tape_all(const hr_tensor *x) {
  hr_tape *tape;
  HR_RETURN_IF_ERROR(hr_tape_begin(stream, &tape));
  hr_status status = differentiate(tape, x);
  hr_tape_destroy(tape);
  return status;
}

HR_TEST(failing_allocations_release_the_function) {
  hr_tensor x = pair(2, 3);
  HR_ASSERT_OK(tape_all(&x));
  for (int64_t n = 0;; ++n) {
    releases = 0;
    hr__allocator_fail_after(n);
    hr_status status = tape_all(&x);
    int64_t failures = hr__allocator_failures();
    hr__allocator_fail_after(-1);
    if (status != HR_OK) {
      HR_ASSERT_STATUS(status, HR_STATUS_RESOURCE_EXHAUSTED);
    }
    HR_ASSERT(releases <= 1);
    HR_ASSERT_OK(hr_stream_synchronize(stream));
    if (failures == 0) {
      HR_ASSERT_EQ(releases, 1);
      break;
    }
  }
  hr_tensor_release(&x);
}
