/* Activations, special functions and comparisons against plain C, in every floating dtype, on strided views. */
#include <float.h>

#include "functional/functional_test.h"

/* ---- functions of one element ---- */

enum { SAMPLES = 24 };

static const double samples[SAMPLES] = {0,    -0.0, 1,    -1,   0.5,     -0.5,     0.25, -0.25, 2,    -2,    3,    -3,
                                        3.25, -3.5, 6.25, -7.5, 1.09375, -1.03125, 0.75, -0.75, 12.5, -11.5, 21.5, NAN};

/* The samples as a view [4, 3, 2] of a larger buffer, with turned dims, a negative stride and an offset. */
static hr_tensor strided(hr_dtype dtype, int count, const double *numbers) {
  double spread[2 * SAMPLES] = {0};
  for (int i = 0; i < count; ++i) {
    spread[2 * (count - 1 - i)] = numbers[i];
  }
  hr_tensor wide = tensor_of(HR_DTYPE_F64, DIMS(2 * SAMPLES), spread);
  hr_tensor x = apply(HR_FUNCTIONAL_ASTYPE, ON(&wide), WITH(DTYPE_OF(dtype)));
  hr_tensor_release(&wide);
  x.rank = 3, x.offset = 2 * (count - 1);
  x.dims[0] = 2, x.dims[1] = 3, x.dims[2] = count / 6;
  x.strides[0] = -2 * count / 2, x.strides[1] = -2 * count / 6, x.strides[2] = -2;
  return x;
}

static double tolerance_of(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64 ? 1e-12 : dtype == HR_DTYPE_F32 ? 4e-6 : dtype == HR_DTYPE_F16 ? 4e-3 : 3e-2;
}

typedef double (*plain_function)(double x);

static void check_one(hr_dtype dtype, hr_functional function, plain_function plain, int attribute_count,
                      const hr_attribute *attributes) {
  hr_tensor x = strided(dtype, SAMPLES, samples), y = apply(function, ON(&x), attribute_count, attributes);
  double actual[SAMPLES];
  expect_type(&y, dtype, DIMS(2, 3, 4));
  read_doubles(&y, actual);
  for (int i = 0; i < SAMPLES; ++i) {
    double expected = plain(samples[i]);
    if (!is_close(actual[i], expected, tolerance_of(dtype))) {
      HR_FAIL("%s of %g in %s is %.17g, expected %.17g", hr_functional_name(function), samples[i], hr_dtype_name(dtype),
              actual[i], expected);
    }
  }
  RELEASE(&x, &y);
}

/* In every floating dtype, of no elements, and of integers, which become f32. */
static void check(hr_functional function, plain_function plain, int attribute_count, const hr_attribute *attributes) {
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_F64, HR_DTYPE_F16, HR_DTYPE_BF16};
  for (int i = 0; i < 4; ++i) {
    check_one(dtypes[i], function, plain, attribute_count, attributes);
  }
  hr_tensor none = tensor_of(HR_DTYPE_F32, DIMS(0, 3), samples);
  hr_tensor y = apply(function, ON(&none), attribute_count, attributes);
  expect_type(&y, HR_DTYPE_F32, DIMS(0, 3));
  RELEASE(&none, &y);
}

static double plain_gelu(double x) {
  return x * 0.5 * erfc(-x / sqrt(2));
}
static double plain_gelu_tanh(double x) {
  return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double plain_gelu_sigmoid(double x) {
  return x / (1 + exp(-1.702 * x));
}
static double plain_softshrink(double x) {
  return x > 0.5 ? x - 0.5 : x < -0.5 ? x + 0.5 : isnan(x) ? x : 0;
}
static double plain_hard_shrink(double x) {
  return x >= -2 && x <= 2 ? 0 : x;
}
static double plain_threshold(double x) {
  return x <= 1 ? 7 : x;
}
static double plain_step(double x) {
  return x > 0.5 ? 1 : 0;
}
static double plain_relu2(double x) {
  return isnan(x) || x > 0 ? x * x : 0;
}
static double plain_clamp(double x) {
  return isnan(x) ? x : fmin(fmax(x, -1), 1);
}
static double plain_relu6(double x) {
  return isnan(x) ? x : fmin(fmax(x, 0), 6);
}
static double plain_leaky_relu(double x) {
  return x > 0 ? x : 0.01 * x;
}
static double plain_elu(double x) {
  return x > 0 ? x : 1.5 * expm1(x);
}
static double plain_celu(double x) {
  return x > 0 ? x : 2 * expm1(x / 2);
}
static double plain_selu(double x) {
  return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x));
}
static double plain_hard_sigmoid(double x) {
  return isnan(x) ? x : fmin(fmax((x + 3) / 6, 0), 1);
}
static double plain_onnx_hard_sigmoid(double x) {
  return isnan(x) ? x : fmin(fmax(0.25 * x + 0.5, 0), 1);
}
static double plain_hardswish(double x) {
  return x * plain_hard_sigmoid(x);
}
static double plain_softplus(double x) {
  return 2 * x > 20 ? x : log1p(exp(2 * x)) / 2;
}
static double plain_softsign(double x) {
  return x / (1 + fabs(x));
}
static double plain_mish(double x) {
  return x * tanh(log1p(exp(x)));
}
static double plain_log_sigmoid(double x) {
  return -log1p(exp(-x));
}

HR_TEST(activations_against_plain_c) {
  hr_attribute tanh_word = {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = "tanh"}};
  hr_attribute sigmoid_word = {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = "sigmoid"}};
  check(HR_FUNCTIONAL_GELU, plain_gelu, PLAIN);
  check(HR_FUNCTIONAL_GELU, plain_gelu_tanh, 1, &tanh_word);
  check(HR_FUNCTIONAL_GELU, plain_gelu_sigmoid, 1, &sigmoid_word);
  check(HR_FUNCTIONAL_SOFTSHRINK, plain_softshrink, PLAIN);
  check(HR_FUNCTIONAL_HARD_SHRINK, plain_hard_shrink, WITH(REAL_OF(hr_scalar_i64(2))));
  check(HR_FUNCTIONAL_THRESHOLD, plain_threshold, WITH(REAL_OF(hr_scalar_i64(1)), REAL_OF(hr_scalar_f64(7))));
  check(HR_FUNCTIONAL_STEP, plain_step, WITH(REAL_OF(hr_scalar_f64(0.5))));
  check(HR_FUNCTIONAL_RELU2, plain_relu2, PLAIN);
  check(HR_FUNCTIONAL_RELU6, plain_relu6, PLAIN);
  check(HR_FUNCTIONAL_HARD_TANH, plain_clamp, PLAIN);
  check(HR_FUNCTIONAL_LEAKY_RELU, plain_leaky_relu, PLAIN);
  check(HR_FUNCTIONAL_ELU, plain_elu, WITH(REAL_OF(hr_scalar_f64(1.5))));
  check(HR_FUNCTIONAL_CELU, plain_celu, WITH(REAL_OF(hr_scalar_i64(2))));
  check(HR_FUNCTIONAL_SELU, plain_selu, PLAIN);
  check(HR_FUNCTIONAL_HARD_SIGMOID, plain_hard_sigmoid, PLAIN);
  check(HR_FUNCTIONAL_HARD_SIGMOID, plain_onnx_hard_sigmoid, WITH(REAL_OF(hr_scalar_f64(0.25))));
  check(HR_FUNCTIONAL_HARDSWISH, plain_hardswish, PLAIN);
  check(HR_FUNCTIONAL_SOFTPLUS, plain_softplus, WITH(REAL_OF(hr_scalar_i64(2))));
  check(HR_FUNCTIONAL_SOFTSIGN, plain_softsign, PLAIN);
  check(HR_FUNCTIONAL_MISH, plain_mish, PLAIN);
  check(HR_FUNCTIONAL_LOG_SIGMOID, plain_log_sigmoid, PLAIN);
}

static double plain_degrees(double x) {
  return x * 57.29577951308232;
}
static double plain_radians(double x) {
  return x * 0.017453292519943295;
}
static double plain_frac(double x) {
  return x - trunc(x);
}
static double plain_positive(double x) {
  return x;
}
static double plain_nan_to_num(double x) {
  return isnan(x) ? 4 : x;
}
static double plain_ndtr(double x) {
  return 0.5 * erfc(-x / sqrt(2));
}
static double plain_sinc(double x) {
  return x == 0 ? 1 : sin(3.14159265358979323846 * x) / (3.14159265358979323846 * x);
}
static double plain_entr(double x) {
  return isnan(x) ? x : x < 0 ? -INFINITY : x == 0 ? 0 : -x * log(x);
}
static double plain_angle(double x) {
  return isnan(x) ? x : x < 0 ? 3.14159265358979323846 : 0;
}
static double plain_logit(double x) {
  double y = isnan(x) ? x : fmin(fmax(x, 0.125), 0.875);
  return log(y / (1 - y));
}

HR_TEST(element_wise_functions_against_plain_c) {
  check(HR_FUNCTIONAL_DEGREES, plain_degrees, PLAIN);
  check(HR_FUNCTIONAL_RADIANS, plain_radians, PLAIN);
  check(HR_FUNCTIONAL_FRAC, plain_frac, PLAIN);
  check(HR_FUNCTIONAL_POSITIVE, plain_positive, PLAIN);
  check(HR_FUNCTIONAL_CBRT, cbrt, PLAIN);
  check(HR_FUNCTIONAL_ERFC, erfc, PLAIN);
  check(HR_FUNCTIONAL_NAN_TO_NUM, plain_nan_to_num, WITH(REAL_OF(hr_scalar_i64(4))));
  check(HR_FUNCTIONAL_NDTR, plain_ndtr, PLAIN);
  check(HR_FUNCTIONAL_SINC, plain_sinc, PLAIN);
  check(HR_FUNCTIONAL_ENTR, plain_entr, PLAIN);
  check(HR_FUNCTIONAL_ANGLE, plain_angle, PLAIN);
  check(HR_FUNCTIONAL_LOGIT, plain_logit, WITH(REAL_OF(hr_scalar_f64(0.125))));
  check(HR_FUNCTIONAL_J0, j0, PLAIN);
  check(HR_FUNCTIONAL_J1, j1, PLAIN);
}

/* Values from tables (Abramowitz and Stegun). */
HR_TEST(special_functions_have_the_values_of_tables) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2), F32(1, 2)), n = tensor_of(HR_DTYPE_F32, DIMS(2), F32(2, 3)), y;
  GIVES(apply(HR_FUNCTIONAL_I0, ON(&x), PLAIN), 1.26606588F, 2.2795853F);
  GIVES(apply(HR_FUNCTIONAL_I0E, ON(&x), PLAIN), 0.46575961F, 0.30850832F);
  GIVES(apply(HR_FUNCTIONAL_I1, ON(&x), PLAIN), 0.56515910F, 1.5906369F);
  GIVES(apply(HR_FUNCTIONAL_I1E, ON(&x), PLAIN), 0.20791042F, 0.21526929F);
  GIVES(apply(HR_FUNCTIONAL_K0, ON(&x), PLAIN), 0.42102444F, 0.11389387F);
  GIVES(apply(HR_FUNCTIONAL_K1, ON(&x), PLAIN), 0.60190723F, 0.13986588F);
  GIVES(apply(HR_FUNCTIONAL_K0E, ON(&x), PLAIN), 1.14446308F, 0.84156822F);
  GIVES(apply(HR_FUNCTIONAL_K1E, ON(&x), PLAIN), 1.63615349F, 1.03347685F);
  GIVES(apply(HR_FUNCTIONAL_Y0, ON(&x), PLAIN), 0.08825696F, 0.51037567F);
  GIVES(apply(HR_FUNCTIONAL_Y1, ON(&x), PLAIN), -0.78121282F, -0.10703243F);
  GIVES(apply(HR_FUNCTIONAL_SPHERICAL_J0, ON(&x), PLAIN), 0.84147098F, 0.45464871F);
  GIVES(apply(HR_FUNCTIONAL_AIRY_AI, ON(&x), PLAIN), 0.13529242F, 0.03492413F);
  GIVES(apply(HR_FUNCTIONAL_TRIGAMMA, ON(&x), PLAIN), 1.64493407F, 0.64493407F);
  GIVES(apply(HR_FUNCTIONAL_POLYGAMMA, ON(&n, &x), PLAIN), -2.40411381F, 0.49393940F);
  GIVES(apply(HR_FUNCTIONAL_ZETA, ON(&n, &x), PLAIN), 1.64493407F, 0.20205690F);
  GIVES(apply(HR_FUNCTIONAL_GAMMAINC, ON(&x, &x), PLAIN), 0.63212056F, 0.59399415F);
  GIVES(apply(HR_FUNCTIONAL_GAMMAINCC, ON(&x, &x), PLAIN), 0.36787944F, 0.40600585F);
  GIVES(apply(HR_FUNCTIONAL_ERFCX, ON(&x), PLAIN), 0.42758358F, 0.25539568F);
  GIVES(apply(HR_FUNCTIONAL_LOG_NDTR, ON(&x), PLAIN), -0.17275378F, -0.02301291F);
  GIVES(apply(HR_FUNCTIONAL_XLOGY, ON(&x, &n), PLAIN), 0.69314718F, 2.19722458F);
  GIVES(apply(HR_FUNCTIONAL_XLOG1PY, ON(&x, &n), PLAIN), 1.09861229F, 2.77258872F);
  GIVES(apply(HR_FUNCTIONAL_LOGADDEXP2, ON(&x, &n), PLAIN), 2.5849625F, 3.5849625F);
  GIVES(apply(HR_FUNCTIONAL_CHEBYSHEV_T, ON(&x, &n), PLAIN), 1, 26);
  GIVES(apply(HR_FUNCTIONAL_CHEBYSHEV_U, ON(&x, &n), PLAIN), 3, 56);
  GIVES(apply(HR_FUNCTIONAL_CHEBYSHEV_V, ON(&x, &n), PLAIN), 1, 41);
  GIVES(apply(HR_FUNCTIONAL_CHEBYSHEV_W, ON(&x, &n), PLAIN), 5, 71);
  GIVES(apply(HR_FUNCTIONAL_SHIFTED_CHEBYSHEV_T, ON(&x, &n), PLAIN), 1, 99);
  GIVES(apply(HR_FUNCTIONAL_SHIFTED_CHEBYSHEV_U, ON(&x, &n), PLAIN), 3, 204);
  GIVES(apply(HR_FUNCTIONAL_SHIFTED_CHEBYSHEV_V, ON(&x, &n), PLAIN), 1, 169);
  GIVES(apply(HR_FUNCTIONAL_SHIFTED_CHEBYSHEV_W, ON(&x, &n), PLAIN), 5, 239);
  GIVES(apply(HR_FUNCTIONAL_HERMITE_H, ON(&x, &n), PLAIN), 2, 40);
  GIVES(apply(HR_FUNCTIONAL_HERMITE_HE, ON(&x, &n), PLAIN), 0, 2);
  GIVES(apply(HR_FUNCTIONAL_LAGUERRE, ON(&x, &n), PLAIN), -0.5F, -0.33333333F);
  GIVES(apply(HR_FUNCTIONAL_LEGENDRE, ON(&x, &n), PLAIN), 1, 17);
  hr_tensor p = tensor_of(HR_DTYPE_F64, DIMS(3), (const double[]){0.5, 0.97724986805182079, 1});
  y = apply(HR_FUNCTIONAL_NDTRI, ON(&p), PLAIN);
  expect_type(&y, HR_DTYPE_F64, DIMS(3));
  EXPECT(&y, 0, 2, INFINITY);
  RELEASE(&x, &n, &p, &y);
}

/* ---- more operands, more results ---- */

HR_TEST(bounds_of_clip_may_be_absent) {
  hr_tensor x = counted(DIMS(5)), low = hr_tensor_number(hr_scalar_i64(1)),
            high = tensor_of(HR_DTYPE_F32, DIMS(), F32(3));
  GIVES(apply(HR_FUNCTIONAL_CLIP, ON(&x, &low, &high), PLAIN), 1, 1, 2, 3, 3);
  GIVES(apply(HR_FUNCTIONAL_CLIP, ON(&x, &low, NULL), PLAIN), 1, 1, 2, 3, 4);
  GIVES(apply(HR_FUNCTIONAL_CLIP, ON(&x, NULL, &high), PLAIN), 0, 1, 2, 3, 3);
  GIVES(apply(HR_FUNCTIONAL_CLIP, ON(&x, NULL, NULL), PLAIN), 0, 1, 2, 3, 4);
  RELEASE(&x, &high);
}

HR_TEST(activations_of_two_operands) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2, 4), F32(1, -2, 3, NAN, -1, 2, 0, 4)), y;
  hr_tensor slope = tensor_of(HR_DTYPE_F32, DIMS(4), F32(0.5F, 0.25F, 2, 1));
  GIVES(apply(HR_FUNCTIONAL_PRELU, ON(&x, &slope), PLAIN), 1, -0.5F, 3, NAN, -0.5F, 2, 0, 4);
  y = apply(HR_FUNCTIONAL_GLU, ON(&x), PLAIN);
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 2));
  EXPECT(&y, 0.95257413F, NAN, -0.5F, 1.96402758F);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_GLU, ON(&x), WITH(INT_OF(0)));
  expect_type(&y, HR_DTYPE_F32, DIMS(1, 4));
  EXPECT(&y, 0.26894142F, -1.76159416F, 1.5F, NAN);
  hr_tensor odd = counted(DIMS(3)), one = tensor_of(HR_DTYPE_F32, DIMS(), F32(3));
  expect_failure("glu: axis 0 has size 3, expected an even one", HR_FUNCTIONAL_GLU, ON(&odd), PLAIN);
  expect_failure("glu: axis -1 is out of range for 0 dims", HR_FUNCTIONAL_GLU, ON(&one), PLAIN);
  hr_attribute word = {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = "cosh"}};
  expect_failure("gelu: attribute approximate is \"cosh\", expected one of none, tanh, sigmoid", HR_FUNCTIONAL_GELU,
                 ON(&odd), 1, &word);
  expect_failure("gelu: attribute approximate is a number, expected text", HR_FUNCTIONAL_GELU, ON(&odd),
                 WITH(REAL_OF(hr_scalar_i64(1))));
  GIVES(apply(HR_FUNCTIONAL_SOFTMIN, ON(&odd), PLAIN), 0.66524096F, 0.24472847F, 0.09003057F);
  hr_tensor integers = tensor_of(HR_DTYPE_I32, DIMS(2), (const int32_t[]){-3, 4});
  y = (hr_tensor_release(&y), apply(HR_FUNCTIONAL_STEP, ON(&integers), PLAIN));
  expect_type(&y, HR_DTYPE_I32, DIMS(2));
  EXPECT(&y, 0, 1);
  RELEASE(&x, &slope, &y, &odd, &one, &integers);
}

HR_TEST(pairs_of_results) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(4), F32(7.5F, -7.5F, -INFINITY, NAN)), both[2];
  hr_tensor two = hr_tensor_number(hr_scalar_i64(2));
  apply_all(HR_FUNCTIONAL_DIVMOD, ON(&x, &two), PLAIN, 2, both);
  EXPECT(&both[0], 3, -4, NAN, NAN);
  float rests[4];
  read(&both[1], rests);
  HR_ASSERT(rests[0] == 1.5F && rests[1] == 0.5F && isnan(rests[3]));
  RELEASE(&both[0], &both[1]);
  apply_all(HR_FUNCTIONAL_MODF, ON(&x), PLAIN, 2, both);
  EXPECT(&both[0], 0.5F, -0.5F, 0, NAN);
  EXPECT(&both[1], 7, -7, -INFINITY, NAN);
  RELEASE(&both[0], &both[1]);
  apply_all(HR_FUNCTIONAL_FREXP, ON(&x), PLAIN, 2, both);
  EXPECT(&both[0], 0.9375F, -0.9375F, -INFINITY, NAN);
  expect_type(&both[1], HR_DTYPE_I32, DIMS(4));
  EXPECT(&both[1], 3, 3, 0, 0);
  GIVES(apply(HR_FUNCTIONAL_LDEXP, ON(&both[0], &both[1]), PLAIN), 7.5F, -7.5F, -INFINITY, NAN);
  hr_tensor far = tensor_of(HR_DTYPE_I32, DIMS(4), (const int32_t[]){-149, 127, 0, 0});
  GIVES(apply(HR_FUNCTIONAL_LDEXP, ON(&both[0], &far), PLAIN), 0, -1.59507355e38F, -INFINITY, NAN);
  RELEASE(&x, &both[0], &both[1], &far);
}

HR_TEST(complex_numbers_have_parts_and_angles) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2), F32(3, 2)), y = tensor_of(HR_DTYPE_F32, DIMS(2), F32(4, 0)), z;
  z = apply(HR_FUNCTIONAL_COMPLEX, ON(&x, &y), PLAIN);
  expect_type(&z, HR_DTYPE_C64, DIMS(2));
  GIVES(apply(HR_FUNCTIONAL_IMAG, ON(&z), PLAIN), 4, 0);
  GIVES(apply(HR_FUNCTIONAL_ANGLE, ON(&z), PLAIN), 0.92729522F, 0);
  hr_tensor_release(&z);
  z = apply(HR_FUNCTIONAL_POLAR, ON(&x, &y), PLAIN);
  GIVES(apply(HR_FUNCTIONAL_REAL, ON(&z), PLAIN), -1.96093086F, 2);
  RELEASE(&x, &y, &z);
}

HR_TEST(infinities_become_the_largest_number_of_the_dtype) {
  const double odd[6] = {NAN, INFINITY, -INFINITY, 1, 2, 3};
  static const struct {
    hr_dtype dtype;
    double most;
  } rows[] = {{HR_DTYPE_F16, 65504}, {HR_DTYPE_BF16, 0x1.fep127}, {HR_DTYPE_F32, FLT_MAX}, {HR_DTYPE_F64, DBL_MAX}};
  for (int i = 0; i < 4; ++i) {
    hr_tensor x = strided(rows[i].dtype, 6, odd), y = apply(HR_FUNCTIONAL_NAN_TO_NUM, ON(&x), PLAIN);
    double values[6];
    read_doubles(&y, values);
    HR_ASSERT(values[0] == 0 && values[1] == rows[i].most && values[2] == -rows[i].most && values[5] == 3);
    RELEASE(&x, &y);
  }
  hr_tensor x = tensor_of(HR_DTYPE_I32, DIMS(1), (const int32_t[]){5});
  GIVES(apply(HR_FUNCTIONAL_NAN_TO_NUM, ON(&x), PLAIN), 5);
  hr_tensor_release(&x);
}

/* ---- comparison ---- */

HR_TEST(tensors_are_nearly_equal) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(6), F32(1, INFINITY, NAN, -INFINITY, 0, 5)), y;
  y = tensor_of(HR_DTYPE_F32, DIMS(6), F32(1.000001F, INFINITY, NAN, INFINITY, 1e-9F, INFINITY));
  hr_attribute nan_equals[3] = {DEFAULT, DEFAULT, FLAG_OF(1)};
  GIVES(apply(HR_FUNCTIONAL_ISCLOSE, ON(&x, &y), PLAIN), 1, 1, 0, 0, 1, 0);
  GIVES(apply(HR_FUNCTIONAL_ISCLOSE, ON(&x, &y), 3, nan_equals), 1, 1, 1, 0, 1, 0);
  GIVES(apply(HR_FUNCTIONAL_ISPOSINF, ON(&x), PLAIN), 0, 1, 0, 0, 0, 0);
  GIVES(apply(HR_FUNCTIONAL_ISNEGINF, ON(&x), PLAIN), 0, 0, 0, 1, 0, 0);
  GIVES(apply(HR_FUNCTIONAL_ARRAY_EQUAL, ON(&x, &x), PLAIN), 0);
  GIVES(apply(HR_FUNCTIONAL_ARRAY_EQUAL, ON(&x, &x), 1, nan_equals + 2), 1);
  hr_tensor integers = tensor_of(HR_DTYPE_I64, DIMS(2), (const int64_t[]){INT64_MAX, INT64_MIN});
  hr_tensor zero = hr_tensor_number(hr_scalar_i64(0)), none = tensor_of(HR_DTYPE_F32, DIMS(0), samples), all;
  GIVES(apply(HR_FUNCTIONAL_ISCLOSE, ON(&integers, &zero), PLAIN), 0, 0);
  all = apply(HR_FUNCTIONAL_ALLCLOSE, ON(&integers, &integers), PLAIN);
  expect_type(&all, HR_DTYPE_BOOL, 0, NULL);
  EXPECT(&all, 1);
  GIVES(apply(HR_FUNCTIONAL_ALLCLOSE, ON(&x, &y), 3, nan_equals), 0);
  GIVES(apply(HR_FUNCTIONAL_ALLCLOSE, ON(&none, &none), PLAIN), 1);
  GIVES(apply(HR_FUNCTIONAL_ARRAY_EQUAL, ON(&x, &none), PLAIN), 0);
  expect_failure("sub: ", HR_FUNCTIONAL_ISCLOSE, ON(&x, &integers), PLAIN);
  RELEASE(&x, &y, &integers, &none, &all);
}
