/* Functions of the functional layer against plain loops; each call is also inferred without a stream. */
#include "headrace/part.h"

#include "functional/functional_test.h"

/* ---- element-wise ---- */

HR_TEST(operands_are_broadcast_and_numbers_are_weak) {
  hr_tensor x = counted(DIMS(2, 3)), row = tensor_of(HR_DTYPE_F32, DIMS(3), F32(10, 20, 30));
  hr_tensor half = hr_tensor_number(hr_scalar_f64(0.5)), sum = apply(HR_FUNCTIONAL_ADD, ON(&x, &row), PLAIN);
  expect_type(&sum, HR_DTYPE_F32, DIMS(2, 3));
  EXPECT(&sum, 10, 21, 32, 13, 24, 35);
  hr_tensor scaled = apply(HR_FUNCTIONAL_MULTIPLY, ON(&sum, &half), PLAIN);
  EXPECT(&scaled, 5, 10.5F, 16, 6.5F, 12, 17.5F);
  hr_tensor integers = tensor_of(HR_DTYPE_I64, DIMS(2), (const int64_t[]){3, -4});
  hr_tensor quotients = apply(HR_FUNCTIONAL_DIVIDE, ON(&integers, &half), PLAIN);
  expect_type(&quotients, HR_DTYPE_F32, DIMS(2));
  EXPECT(&quotients, 6, -8);
  hr_tensor is_less = apply(HR_FUNCTIONAL_LESS, ON(&integers, &half), PLAIN);
  expect_type(&is_less, HR_DTYPE_BOOL, DIMS(2));
  hr_tensor chosen = apply(HR_FUNCTIONAL_WHERE, ON(&is_less, &integers, &half), PLAIN);
  expect_type(&chosen, HR_DTYPE_F32, DIMS(2));
  EXPECT(&chosen, 0.5F, -4);
  hr_tensor *all[] = {&x, &row, &sum, &scaled, &integers, &quotients, &is_less, &chosen};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    hr_tensor_release(all[i]);
  }
}

HR_TEST(dtypes_choose_the_row_where_one_has_two) {
  const float parts[4] = {3, 4, 0, -2};
  hr_tensor x = tensor_of(HR_DTYPE_C64, DIMS(2), parts), size = apply(HR_FUNCTIONAL_ABS, ON(&x), PLAIN);
  expect_type(&size, HR_DTYPE_F32, DIMS(2));
  EXPECT(&size, 5, 2);
  hr_tensor flags = tensor_of(HR_DTYPE_BOOL, DIMS(2), (const uint8_t[]){1, 0});
  hr_tensor not = apply(HR_FUNCTIONAL_BITWISE_INVERT, ON(&flags), PLAIN);
  expect_type(&not, HR_DTYPE_BOOL, DIMS(2));
  EXPECT(&not, 0, 1);
  hr_tensor bytes = tensor_of(HR_DTYPE_U8, DIMS(2), (const uint8_t[]){1, 0});
  hr_tensor inverted = apply(HR_FUNCTIONAL_BITWISE_INVERT, ON(&bytes), PLAIN);
  EXPECT(&inverted, 254, 255);
  hr_tensor *all[] = {&x, &size, &flags, &not, &bytes, &inverted};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    hr_tensor_release(all[i]);
  }
}

/* ---- reductions ---- */

HR_TEST(reductions_drop_or_keep_dims) {
  hr_tensor x = counted(DIMS(2, 3)), y;
  y = apply(HR_FUNCTIONAL_SUM, ON(&x), PLAIN);
  expect_type(&y, HR_DTYPE_F32, 0, NULL);
  EXPECT(&y, 15);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_SUM, ON(&x), WITH(INTS_OF(-1), FLAG_OF(1)));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 1));
  EXPECT(&y, 3, 12);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_MAX, ON(&x), WITH(INTS_OF(0)));
  expect_type(&y, HR_DTYPE_F32, DIMS(3));
  EXPECT(&y, 3, 4, 5);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_SUM, ON(&x), WITH(INTS_OF(0), DEFAULT, DTYPE_OF(HR_DTYPE_F64)));
  expect_type(&y, HR_DTYPE_F64, DIMS(3));
  EXPECT(&y, 3, 5, 7);
  hr_tensor_release(&y);
  hr_attribute no_axes = {.kind = HR_ATTRIBUTE_INTS};
  y = apply(HR_FUNCTIONAL_SUM, ON(&x), 1, &no_axes);
  EXPECT(&y, 0, 1, 2, 3, 4, 5);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_VAR, ON(&x), WITH(INTS_OF(1), DEFAULT, REAL_OF(hr_scalar_i64(1))));
  EXPECT(&y, 1, 1);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_STD, ON(&x), WITH(INTS_OF(1)));
  EXPECT(&y, 0.81649658F, 0.81649658F);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_ARGMAX, ON(&x), PLAIN);
  expect_type(&y, HR_DTYPE_I64, 0, NULL);
  EXPECT(&y, 5);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_ARGMIN, ON(&x), WITH(DEFAULT, FLAG_OF(1)));
  expect_type(&y, HR_DTYPE_I64, DIMS(1, 1));
  EXPECT(&y, 0);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_ARGMAX, ON(&x), WITH(INTS_OF(-2)));
  expect_type(&y, HR_DTYPE_I64, DIMS(3));
  EXPECT(&y, 1, 1, 1);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_CUMULATIVE_SUM, ON(&x), PLAIN);
  EXPECT(&y, 0, 1, 3, 3, 7, 12);
  hr_tensor_release(&y);
  hr_tensor_release(&x);
}

/* ---- products, tensors one after the other, indices ---- */

HR_TEST(a_batch_times_one_matrix_is_one_product_of_all_rows) {
  hr_tensor x = counted(DIMS(2, 2, 3)), w = tensor_of(HR_DTYPE_F32, DIMS(3, 2), F32(1, 0, 0, 1, 1, -1)), y;
  y = apply(HR_FUNCTIONAL_MATMUL, ON(&x, &w), PLAIN);
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 2, 2));
  EXPECT(&y, 2, -1, 8, -1, 14, -1, 20, -1);
  hr_tensor turned = apply(HR_FUNCTIONAL_PERMUTE_DIMS, ON(&x), WITH(INTS_OF(1, 0, 2))); /* rows without one distance */
  hr_tensor z = apply(HR_FUNCTIONAL_MATMUL, ON(&turned, &w), PLAIN);
  EXPECT(&z, 2, -1, 14, -1, 8, -1, 20, -1);
  hr_tensor none = tensor_of(HR_DTYPE_F32, DIMS(0, 2, 3), NULL);
  hr_tensor empty = apply(HR_FUNCTIONAL_MATMUL, ON(&none, &w), PLAIN);
  expect_type(&empty, HR_DTYPE_F32, DIMS(0, 2, 2));
  RELEASE(&x, &w, &y, &turned, &z, &none, &empty);
}

HR_TEST(vectors_are_rows_and_columns_of_products) {
  hr_tensor a = counted(DIMS(2, 3)), v = tensor_of(HR_DTYPE_I32, DIMS(3), (const int32_t[]){1, 0, 2}), y;
  y = apply(HR_FUNCTIONAL_MATMUL, ON(&a, &v), PLAIN);
  expect_type(&y, HR_DTYPE_F32, DIMS(2));
  EXPECT(&y, 4, 13);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_MATMUL, ON(&v, &v), PLAIN);
  expect_type(&y, HR_DTYPE_I32, 0, NULL);
  EXPECT(&y, 5);
  hr_tensor_release(&y);
  hr_tensor batch = counted(DIMS(2, 3, 1)), pair = tensor_of(HR_DTYPE_F32, DIMS(2), F32(1, -1));
  y = apply(HR_FUNCTIONAL_MATMUL, ON(&a, &batch), PLAIN);
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 2, 1));
  EXPECT(&y, 5, 14, 14, 50);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_MATMUL, ON(&pair, &a), PLAIN);
  EXPECT(&y, -3, -3, -3);
  hr_tensor *all[] = {&a, &v, &y, &batch, &pair};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    hr_tensor_release(all[i]);
  }
}

HR_TEST(tensors_are_joined_and_indexed) {
  hr_tensor a = counted(DIMS(2, 2)), b = tensor_of(HR_DTYPE_F32, DIMS(2, 1), F32(7, 8)), y;
  y = apply(HR_FUNCTIONAL_CONCAT, ON(&a, &b, &a), WITH(INT_OF(-1)));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 5));
  EXPECT(&y, 0, 1, 7, 0, 1, 2, 3, 8, 2, 3);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_STACK, ON(&a, &a), WITH(INT_OF(-1)));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 2, 2));
  EXPECT(&y, 0, 0, 1, 1, 2, 2, 3, 3);
  hr_tensor_release(&y);
  hr_tensor index = tensor_of(HR_DTYPE_I64, DIMS(3), (const int64_t[]){1, 0, 1});
  y = apply(HR_FUNCTIONAL_TAKE, ON(&a, &index), WITH(INT_OF(1)));
  EXPECT(&y, 1, 0, 1, 3, 2, 3);
  hr_tensor_release(&y);
  hr_tensor places = tensor_of(HR_DTYPE_I64, DIMS(2, 1), (const int64_t[]){1, 0});
  y = apply(HR_FUNCTIONAL_TAKE_ALONG_AXIS, ON(&a, &places), PLAIN);
  EXPECT(&y, 1, 2);
  hr_tensor *all[] = {&a, &b, &y, &index, &places};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    hr_tensor_release(all[i]);
  }
}

HR_TEST(tensors_are_made_of_numbers) {
  hr_tensor seven = hr_tensor_number(hr_scalar_i64(7)), y;
  y = apply(HR_FUNCTIONAL_FULL, ON(&seven), WITH(INTS_OF(2, 2)));
  expect_type(&y, HR_DTYPE_I64, DIMS(2, 2));
  EXPECT(&y, 7, 7, 7, 7);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_FULL, ON(&seven), WITH(INTS_OF(1), DTYPE_OF(HR_DTYPE_BF16)));
  expect_type(&y, HR_DTYPE_BF16, DIMS(1));
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_ARANGE, 0, NULL,
            WITH(REAL_OF(hr_scalar_i64(5)), REAL_OF(hr_scalar_i64(0)), REAL_OF(hr_scalar_i64(-2))));
  expect_type(&y, HR_DTYPE_I64, DIMS(3));
  EXPECT(&y, 5, 3, 1);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_ARANGE, 0, NULL, WITH(DEFAULT, REAL_OF(hr_scalar_f64(0.75)), REAL_OF(hr_scalar_f64(0.25))));
  expect_type(&y, HR_DTYPE_F32, DIMS(3));
  EXPECT(&y, 0, 0.25F, 0.5F);
  hr_tensor_release(&y);
  const int64_t huge = (1LL << 53) + 1;
  y = apply(HR_FUNCTIONAL_ARANGE, 0, NULL,
            WITH(REAL_OF(hr_scalar_i64(huge)), REAL_OF(hr_scalar_i64(huge + 2)), REAL_OF(hr_scalar_i64(1))));
  expect_type(&y, HR_DTYPE_I64, DIMS(2));
  hr_tensor_release(&y);
  y = apply(
      HR_FUNCTIONAL_ARANGE, 0, NULL,
      WITH(REAL_OF(hr_scalar_i64(INT64_MAX)), REAL_OF(hr_scalar_i64(INT64_MIN)), REAL_OF(hr_scalar_i64(INT64_MIN))));
  expect_type(&y, HR_DTYPE_I64, DIMS(2));
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_EYE, 0, NULL, WITH(INT_OF(2), INT_OF(3)));
  EXPECT(&y, 1, 0, 0, 0, 1, 0);
  hr_tensor_release(&y);
}

/* ---- in order, borders, layers ---- */

HR_TEST(elements_are_sorted_along_any_axis) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(3, 2), F32(3, 1, 1, 5, 2, 5)), both[2], y;
  hr_attribute axis[2] = {INT_OF(0), FLAG_OF(1)};
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_SORT, ON(&x), 2, axis, 2, both));
  expect_type(&both[1], HR_DTYPE_I64, DIMS(3, 2));
  EXPECT(&both[0], 3, 5, 2, 5, 1, 1);
  EXPECT(&both[1], 0, 1, 2, 2, 1, 0);
  hr_tensor_release(&both[0]);
  hr_tensor_release(&both[1]);
  y = apply(HR_FUNCTIONAL_SORT, ON(&x), PLAIN);
  EXPECT(&y, 1, 3, 1, 5, 2, 5);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_ARGSORT, ON(&x), WITH(INT_OF(-2)));
  expect_type(&y, HR_DTYPE_I64, DIMS(3, 2));
  EXPECT(&y, 1, 0, 2, 1, 0, 2);
  hr_tensor_release(&y);
  hr_attribute two[2] = {INT_OF(2), INT_OF(0)};
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_TOPK, ON(&x), 2, two, 2, both));
  EXPECT(&both[0], 3, 5, 2, 5);
  expect_type(&both[1], HR_DTYPE_I64, DIMS(2, 2));
  hr_tensor_release(&both[0]);
  hr_tensor_release(&both[1]);
  expect_failure("topk: k is 4, expected 0 to 3", HR_FUNCTIONAL_TOPK, ON(&x), WITH(INT_OF(4), INT_OF(0)));
  HR_ASSERT_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_SORT, ON(&x), PLAIN, 3, both), HR_STATUS_INVALID_ARGUMENT,
                  "sort: 3 results, expected 1 to 2");
  hr_tensor_release(&x);
}

HR_TEST(borders_repetitions_and_triangles) {
  hr_tensor x = counted(DIMS(2, 3)), y;
  y = apply(HR_FUNCTIONAL_PAD, ON(&x), WITH(INTS_OF(1, 0), INTS_OF(0, -1), REAL_OF(hr_scalar_f64(9))));
  expect_type(&y, HR_DTYPE_F32, DIMS(3, 2));
  EXPECT(&y, 9, 9, 0, 1, 3, 4);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_PAD_REFLECT, ON(&x), WITH(INTS_OF(0, 2), INTS_OF(0, 1)));
  EXPECT(&y, 2, 1, 0, 1, 2, 1, 5, 4, 3, 4, 5, 4);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_PAD_EDGE, ON(&x), WITH(INTS_OF(0, 1), INTS_OF(0, 0)));
  EXPECT(&y, 0, 0, 1, 2, 3, 3, 4, 5);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_TILE, ON(&x), WITH(INTS_OF(2, 1, 2)));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 2, 6));
  EXPECT(&y, 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_ROLL, ON(&x), WITH(INT_OF(-4), INT_OF(-1)));
  EXPECT(&y, 1, 2, 0, 4, 5, 3);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_TRIU, ON(&x), WITH(INT_OF(1)));
  EXPECT(&y, 0, 1, 2, 0, 0, 5);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_TRIL, ON(&x), PLAIN);
  EXPECT(&y, 0, 0, 0, 3, 4, 0);
  hr_tensor_release(&y);
  hr_tensor odd = tensor_of(HR_DTYPE_F32, DIMS(3), F32(1, INFINITY, NAN));
  y = apply(HR_FUNCTIONAL_ISFINITE, ON(&odd), PLAIN);
  EXPECT(&y, 1, 0, 0);
  hr_tensor_release(&y);
  hr_tensor_release(&odd);
  hr_tensor_release(&x);
}

HR_TEST(transposed_convolutions) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(1, 1, 2), F32(1, 2)),
            w = tensor_of(HR_DTYPE_F32, DIMS(1, 1, 3), F32(1, 10, 100));
  hr_tensor y = apply(HR_FUNCTIONAL_CONV_TRANSPOSE, ON(&x, &w), WITH(INTS_OF(2), INTS_OF(0), INTS_OF(0), INTS_OF(1)));
  expect_type(&y, HR_DTYPE_F32, DIMS(1, 1, 5));
  EXPECT(&y, 1, 10, 102, 20, 200);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_CONV_TRANSPOSE, ON(&x, &w), WITH(INTS_OF(2), INTS_OF(1), INTS_OF(0), INTS_OF(1)));
  EXPECT(&y, 10, 102, 20, 200);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_CONV_TRANSPOSE, ON(&x, &w), WITH(INTS_OF(2), INTS_OF(1), INTS_OF(-1), INTS_OF(1)));
  EXPECT(&y, 10, 102, 20, 200, 0);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_CONV_TRANSPOSE, ON(&x, &w), WITH(INTS_OF(1), INTS_OF(-1), INTS_OF(2), INTS_OF(2)));
  EXPECT(&y, 0, 1, 2, 10, 20); /* of 1, 2, 10, 20, 100, 200 */
  hr_tensor *all[] = {&x, &w, &y};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    hr_tensor_release(all[i]);
  }
}

HR_TEST(layers_against_plain_loops) {
  hr_tensor x = counted(DIMS(1, 1, 5)), w = tensor_of(HR_DTYPE_F32, DIMS(1, 1, 2), F32(1, -2)), y;
  hr_tensor bias = tensor_of(HR_DTYPE_F32, DIMS(1), F32(10));
  y = apply(HR_FUNCTIONAL_CONV, ON(&x, &w, &bias), WITH(INTS_OF(2), INTS_OF(1), INTS_OF(0), INTS_OF(1)));
  expect_type(&y, HR_DTYPE_F32, DIMS(1, 1, 3)); /* of 0, 0, 1, 2, 3, 4 */
  EXPECT(&y, 10, 7, 5);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_CONV, ON(&x, &w, NULL), WITH(INTS_OF(1), INTS_OF(1), INTS_OF(1), INTS_OF(3)));
  EXPECT(&y, -4, -6, -7, 2);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_CONV, ON(&x, &w, NULL), WITH(INTS_OF(1), INTS_OF(1), INTS_OF(2), INTS_OF(2)));
  EXPECT(&y, -2, -4, -5, -6, 3, 4);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_MAX_POOL, ON(&x), WITH(INTS_OF(2), INTS_OF(2), INTS_OF(0)));
  EXPECT(&y, 1, 3);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_AVG_POOL, ON(&x), WITH(INTS_OF(2), INTS_OF(2), INTS_OF(1), FLAG_OF(0)));
  EXPECT(&y, 0, 1.5F, 3.5F);
  hr_tensor_release(&y);
  hr_tensor rows = tensor_of(HR_DTYPE_F32, DIMS(2, 2), F32(3, 4, -1, 1));
  hr_tensor weight = tensor_of(HR_DTYPE_F32, DIMS(2), F32(1, 10));
  hr_attribute no_eps = REAL_OF(hr_scalar_i64(0));
  y = apply(HR_FUNCTIONAL_RMS_NORM, ON(&rows, &weight), 1, &no_eps);
  EXPECT(&y, 0.84852814F, 11.3137085F, -1, 10);
  hr_tensor_release(&y);
  hr_tensor large = tensor_of(HR_DTYPE_F16, DIMS(1, 2), (uint16_t[]){0x6000, 0xE000}); /* 512, -512 */
  y = apply(HR_FUNCTIONAL_RMS_NORM, ON(&large, NULL), 1, &no_eps);                     /* squares overflow in f16 */
  expect_type(&y, HR_DTYPE_F16, DIMS(1, 2));
  EXPECT(&y, 1, -1);
  hr_tensor_release(&y);
  hr_tensor_release(&large);
  y = apply(HR_FUNCTIONAL_LAYER_NORM, ON(&rows, NULL, &weight), WITH(INT_OF(1), REAL_OF(hr_scalar_i64(0))));
  EXPECT(&y, 0, 11, 0, 11);
  hr_tensor_release(&y);
  hr_tensor q = tensor_of(HR_DTYPE_F32, DIMS(1, 1, 2, 1), F32(1, 2)), v = counted(DIMS(1, 1, 2, 1));
  y = apply(HR_FUNCTIONAL_ATTENTION, ON(&q, &q, &v, NULL), WITH(FLAG_OF(1)));
  EXPECT(&y, 0, 0.88079708F); /* 1 / (1 + exp(2 - 4)) */
  hr_tensor *all[] = {&x, &w, &bias, &rows, &weight, &q, &v, &y};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    hr_tensor_release(all[i]);
  }
}

/* ---- views ---- */

/* A tensor and the numbers that a plain array of indices would hold. */
typedef struct modelled {
  hr_tensor tensor;
  float values[MOST];
} modelled;

static uint32_t random_state = 1;
static int64_t below(int64_t n) {
  random_state = random_state * 1664525u + 1013904223u;
  return (int64_t)(random_state >> 8) % n;
}

/* The element of the old tensor at the place of element i of the new one: places are mapped dim by dim. */
typedef void (*place_map)(const hr_tensor *old, const int64_t *numbers, const int64_t *place, int64_t *old_place);

static void step(modelled *m, hr_functional function, int attribute_count, const hr_attribute *attributes,
                 const int64_t *numbers, place_map map) {
  const hr_tensor *input = &m->tensor;
  hr_tensor result = apply(function, 1, &input, attribute_count, attributes), old = m->tensor;
  float values[MOST];
  int64_t count = hr_tensor_count(&result);
  HR_ASSERT(count <= MOST);
  for (int64_t i = 0; i < count; ++i) {
    int64_t place[HR_RANK_MAX], old_place[HR_RANK_MAX] = {0}, rest = i, at = 0;
    for (int d = result.rank - 1; d >= 0; --d) {
      place[d] = rest % result.dims[d];
      rest /= result.dims[d];
    }
    map(&old, numbers, place, old_place);
    for (int d = 0; d < old.rank; ++d) {
      at = at * old.dims[d] + old_place[d];
    }
    values[i] = m->values[at];
  }
  memcpy(m->values, values, sizeof values);
  m->tensor = result;
  hr_tensor_release(&old);
}

static void map_permuted(const hr_tensor *old, const int64_t *axes, const int64_t *place, int64_t *old_place) {
  for (int d = 0; d < old->rank; ++d) {
    old_place[axes[d]] = place[d];
  }
}

static void map_flipped(const hr_tensor *old, const int64_t *axes, const int64_t *place, int64_t *old_place) {
  for (int d = 0; d < old->rank; ++d) {
    old_place[d] = d == axes[0] ? old->dims[d] - 1 - place[d] : place[d];
  }
}

static void map_sliced(const hr_tensor *old, const int64_t *numbers, const int64_t *place, int64_t *old_place) {
  for (int d = 0; d < old->rank; ++d) {
    old_place[d] = numbers[d] + place[d] * numbers[HR_RANK_MAX + d];
  }
}

static void map_broadcast(const hr_tensor *old, const int64_t *rank, const int64_t *place, int64_t *old_place) {
  for (int d = 0; d < old->rank; ++d) {
    old_place[d] = old->dims[d] == 1 ? 0 : place[rank[0] - old->rank + d];
  }
}

static void map_flat(const hr_tensor *old, const int64_t *dims, const int64_t *place, int64_t *old_place) {
  int64_t at = 0;
  for (int d = 0; d < (int)dims[HR_RANK_MAX]; ++d) {
    at = at * dims[d] + place[d];
  }
  for (int d = old->rank - 1; d >= 0; --d) {
    old_place[d] = at % old->dims[d];
    at /= old->dims[d];
  }
}

static void permute(modelled *m) {
  int64_t axes[HR_RANK_MAX] = {0};
  int rank = m->tensor.rank;
  for (int d = 0; d < rank; ++d) {
    int other = (int)below(d + 1);
    axes[d] = axes[other], axes[other] = d;
  }
  hr_attribute given = {.kind = HR_ATTRIBUTE_INTS, .count = rank, .value = {.ints = axes}};
  step(m, HR_FUNCTIONAL_PERMUTE_DIMS, 1, &given, axes, map_permuted);
}

static void flip(modelled *m) {
  int64_t axis = below(m->tensor.rank);
  hr_attribute given = {.kind = HR_ATTRIBUTE_INTS, .count = 1, .value = {.ints = &axis}};
  step(m, HR_FUNCTIONAL_FLIP, 1, &given, &axis, map_flipped);
}

static void slice(modelled *m) {
  int64_t numbers[2 * HR_RANK_MAX], counts[HR_RANK_MAX];
  int rank = m->tensor.rank;
  for (int d = 0; d < rank; ++d) {
    int64_t size = m->tensor.dims[d], first = below(size), last = below(size), way = last - first;
    int64_t step = way == 0 ? 1 : 1 + below(way < 0 ? -way : way);
    numbers[d] = first, numbers[HR_RANK_MAX + d] = way < 0 ? -step : step;
    counts[d] = (way < 0 ? -way : way) / step + 1;
  }
  hr_attribute given[3] = {{.kind = HR_ATTRIBUTE_INTS, .count = rank, .value = {.ints = numbers}},
                           {.kind = HR_ATTRIBUTE_INTS, .count = rank, .value = {.ints = counts}},
                           {.kind = HR_ATTRIBUTE_INTS, .count = rank, .value = {.ints = numbers + HR_RANK_MAX}}};
  step(m, HR_FUNCTIONAL_SLICE, 3, given, numbers, map_sliced);
}

static void broadcast(modelled *m) {
  int64_t dims[HR_RANK_MAX], rank = m->tensor.rank, added = rank < 5 ? below(2) : 0;
  for (int d = 0; d < rank; ++d) {
    bool is_repeated = m->tensor.dims[d] == 1 && hr_tensor_count(&m->tensor) * 12 < MOST;
    dims[added + d] = is_repeated ? 1 + below(3) : m->tensor.dims[d];
  }
  dims[0] = added != 0 ? 1 + below(2) : dims[0];
  rank += added;
  hr_attribute given = {.kind = HR_ATTRIBUTE_INTS, .count = (int)rank, .value = {.ints = dims}};
  if (hr_tensor_count(&m->tensor) * 64 < MOST) {
    step(m, HR_FUNCTIONAL_BROADCAST_TO, 1, &given, &rank, map_broadcast);
  }
}

/* Other dims of as many elements, with some of size 1. */
static void reshape(modelled *m) {
  int64_t dims[HR_RANK_MAX + 1], left = hr_tensor_count(&m->tensor);
  int rank = 0;
  while (left > 1 && rank < 4) {
    int64_t part = 1 + below(left);
    while (left % part != 0) {
      --part;
    }
    dims[rank++] = part;
    left /= part;
  }
  dims[rank++] = left;
  dims[HR_RANK_MAX] = rank;
  hr_attribute given = {.kind = HR_ATTRIBUTE_INTS, .count = rank, .value = {.ints = dims}};
  step(m, HR_FUNCTIONAL_RESHAPE, 1, &given, dims, map_flat);
}

HR_TEST(random_views_of_views_have_the_elements_of_plain_arrays) {
  static void (*const steps[])(modelled *) = {permute, flip, slice, broadcast, reshape};
  for (int program = 0; program < 400; ++program) {
    modelled m = {.tensor = counted(DIMS(2 + below(4), 1 + below(3), 1, 3 + below(5)))};
    for (int i = 0; i < MOST; ++i) {
      m.values[i] = (float)i;
    }
    for (int i = 0; i < 6; ++i) {
      steps[below(5)](&m);
    }
    expect_values(&m.tensor, hr_tensor_count(&m.tensor), m.values);
    hr_tensor_release(&m.tensor);
  }
}

HR_TEST(reshaping_shares_memory_where_strides_allow_it) {
  hr_tensor x = counted(DIMS(4, 6)), y = apply(HR_FUNCTIONAL_RESHAPE, ON(&x), WITH(INTS_OF(2, -1, 3)));
  HR_ASSERT(y.buffer == x.buffer);
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 4, 3));
  hr_tensor turned = apply(HR_FUNCTIONAL_PERMUTE_DIMS, ON(&x), PLAIN);
  hr_tensor copied = apply(HR_FUNCTIONAL_RESHAPE, ON(&turned), WITH(INTS_OF(24)));
  HR_ASSERT(copied.buffer != x.buffer);
  hr_tensor empty = tensor_of(HR_DTYPE_F32, DIMS(0, 3), F32(0));
  hr_tensor other = apply(HR_FUNCTIONAL_RESHAPE, ON(&empty), WITH(INTS_OF(5, 0, 2)));
  expect_type(&other, HR_DTYPE_F32, DIMS(5, 0, 2));
  hr_tensor line = apply(HR_FUNCTIONAL_EXPAND_DIMS, ON(&x), WITH(INTS_OF(0, -1)));
  expect_type(&line, HR_DTYPE_F32, DIMS(1, 4, 6, 1));
  hr_tensor back = apply(HR_FUNCTIONAL_SQUEEZE, ON(&line), PLAIN);
  expect_type(&back, HR_DTYPE_F32, DIMS(4, 6));
  hr_tensor *all[] = {&x, &y, &turned, &copied, &empty, &other, &line, &back};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    hr_tensor_release(all[i]);
  }
}

/* ---- failures ---- */

HR_TEST(failures_name_the_actual_and_the_expected_value) {
  hr_tensor x = counted(DIMS(2, 3)), none = {0}, number = hr_tensor_number(hr_scalar_i64(1));
  expect_failure("there is no function number 9999", (hr_functional)9999, ON(&x), PLAIN);
  expect_failure("add: 1 inputs, expected 2", HR_FUNCTIONAL_ADD, ON(&x), PLAIN);
  expect_failure("concat: 0 inputs, expected 1 or more", HR_FUNCTIONAL_CONCAT, 0, NULL, PLAIN);
  expect_failure("add: input 1 (y) is absent", HR_FUNCTIONAL_ADD, ON(&x, NULL), PLAIN);
  expect_failure("add: input 1 (y) has no buffer", HR_FUNCTIONAL_ADD, ON(&x, &none), PLAIN);
  expect_failure("sum: input 0 (x) is a number, expected a tensor", HR_FUNCTIONAL_SUM, ON(&number), PLAIN);
  expect_failure("reshape: input 0 (x) is a number", HR_FUNCTIONAL_RESHAPE, ON(&number), WITH(INTS_OF(1, 1)));
  expect_failure("sum: axis 2 is out of range for 2 dims", HR_FUNCTIONAL_SUM, ON(&x), WITH(INTS_OF(2)));
  expect_failure("sum: axis -2 is given twice", HR_FUNCTIONAL_SUM, ON(&x), WITH(INTS_OF(0, -2)));
  expect_failure("sum: attribute axis is an integer, expected integers", HR_FUNCTIONAL_SUM, ON(&x), WITH(INT_OF(0)));
  expect_failure("softmax: 2 attributes, expected 1", HR_FUNCTIONAL_SOFTMAX, ON(&x), WITH(INT_OF(0), INT_OF(0)));
  expect_failure("reshape: attribute shape is nothing, expected integers", HR_FUNCTIONAL_RESHAPE, ON(&x), PLAIN);
  expect_failure("reshape: dims [2,3] can't become [4]", HR_FUNCTIONAL_RESHAPE, ON(&x), WITH(INTS_OF(4)));
  expect_failure("reshape: dims [2,3] can't become [-1,-1]", HR_FUNCTIONAL_RESHAPE, ON(&x), WITH(INTS_OF(-1, -1)));
  expect_failure("argmax: 2 axes, expected one or none", HR_FUNCTIONAL_ARGMAX, ON(&x), WITH(INTS_OF(0, 1)));
  expect_failure("squeeze: axis 1 has size 3, expected 1", HR_FUNCTIONAL_SQUEEZE, ON(&x), WITH(INTS_OF(1)));
  expect_failure("broadcast_to: dims [2,3] can't be broadcast to [3,3]", HR_FUNCTIONAL_BROADCAST_TO, ON(&x),
                 WITH(INTS_OF(3, 3)));
  expect_failure("slice: 3 elements from 0 with step 2 are not inside of dim 1 of size 3", HR_FUNCTIONAL_SLICE, ON(&x),
                 WITH(INTS_OF(0, 0), INTS_OF(1, 3), INTS_OF(1, 2)));
  expect_failure("slice: 1 integers of count for 2 dims", HR_FUNCTIONAL_SLICE, ON(&x),
                 WITH(INTS_OF(0, 0), INTS_OF(1), INTS_OF(1, 2)));
  expect_failure("matmul: inner sizes differ: 3 != 2", HR_FUNCTIONAL_MATMUL, ON(&x, &x), PLAIN);
  hr_tensor one = apply(HR_FUNCTIONAL_ASTYPE, ON(&number), WITH(DTYPE_OF(HR_DTYPE_F32)));
  EXPECT(&one, 1);
  expect_failure("matmul: an input has no dims", HR_FUNCTIONAL_MATMUL, ON(&x, &one), PLAIN);
  expect_failure("stack: input 1 has dims [], the first one [2,3]", HR_FUNCTIONAL_STACK, ON(&x, &one), PLAIN);
  const char *too_large = "dims [8589934593,8589934593] are too large";
  expect_failure(too_large, HR_FUNCTIONAL_BROADCAST_TO, ON(&one), WITH(INTS_OF(8589934593, 8589934593)));
  expect_failure(too_large, HR_FUNCTIONAL_TILE, ON(&one), WITH(INTS_OF(8589934593, 8589934593)));
  expect_failure(too_large, HR_FUNCTIONAL_AS_STRIDED, ON(&one),
                 WITH(INTS_OF(8589934593, 8589934593), INTS_OF(0, 0), INT_OF(0)));
  hr_tensor_release(&one);
  expect_failure("arange: 0 to 1 with step 0 has no number of elements", HR_FUNCTIONAL_ARANGE, 0, NULL,
                 WITH(DEFAULT, REAL_OF(hr_scalar_i64(1)), REAL_OF(hr_scalar_i64(0))));
  expect_failure("full: dims [-1]: dim 0 is negative", HR_FUNCTIONAL_FULL, ON(&number), WITH(INTS_OF(-1)));
  expect_failure("is too large", HR_FUNCTIONAL_FULL, ON(&number), WITH(INTS_OF(INT64_MAX, 2)));
  hr_tensor_release(&x);
}

/* A function of lists has the results of its calls one by one: shapes, dtypes and strides may differ. */
HR_TEST(functions_of_lists_are_one_record) {
  hr_tensor a = counted(DIMS(2, 3)), b = counted(DIMS(4)), empty = new_tensor(HR_DTYPE_F32, DIMS(0));
  hr_tensor half = hr_tensor_number(hr_scalar_f64(0.5)), column = a, results[3], wide;
  hr_attribute f64 = DTYPE_OF(HR_DTYPE_F64);
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_ASTYPE, ON(&b), 1, &f64, 1, &wide));
  column.rank = 1, column.strides[0] = 3, column.dims[0] = 2, column.offset = 1;
  hr_stats before, after;
  hr_stream_stats_read(stream, sizeof before, &before);
  const hr_tensor *inputs[6] = {&a, &wide, &empty, &half, &wide, &half};
  HR_ASSERT_OK(hr_functional_apply_each(stream, HR_FUNCTIONAL_MULTIPLY, 3, 6, inputs, results));
  hr_stream_stats_read(stream, sizeof after, &after);
  HR_ASSERT_EQ(after.operations - before.operations, 1);
  HR_ASSERT_EQ(results[1].dtype, HR_DTYPE_F64);
  HR_ASSERT_EQ(hr_tensor_count(&results[2]), 0);
  EXPECT(&results[0], 0, 0.5f, 1, 1.5f, 2, 2.5f);
  EXPECT(&results[1], 0, 1, 4, 9);
  hr_tensor_release(&results[0]), hr_tensor_release(&results[1]), hr_tensor_release(&results[2]);
  const hr_tensor *columns[2] = {&column, &b};
  HR_ASSERT_OK(hr_functional_apply_each(stream, HR_FUNCTIONAL_SQUARE, 2, 2, columns, results));
  EXPECT(&results[0], 1, 16);
  EXPECT(&results[1], 0, 1, 4, 9);
  hr_tensor_release(&results[0]), hr_tensor_release(&results[1]);
  HR_ASSERT_OK(hr_functional_apply_each(NULL, HR_FUNCTIONAL_SQUARE, 2, 2, columns, results));
  HR_ASSERT(results[0].buffer == NULL && results[1].dims[0] == 4);
  HR_ASSERT_ERROR(hr_functional_apply_each(stream, HR_FUNCTIONAL_MULTIPLY, 2, 3, inputs, results),
                  HR_STATUS_INVALID_ARGUMENT, "multiply: 3 inputs for 2 results, expected 2 for each");
  HR_ASSERT_ERROR(hr_functional_apply_each(stream, HR_FUNCTIONAL_SUM, 1, 1, inputs, results),
                  HR_STATUS_INVALID_ARGUMENT, "sum: it can't be applied to lists");
  columns[1] = NULL;
  HR_ASSERT_ERROR(hr_functional_apply_each(stream, HR_FUNCTIONAL_SQUARE, 2, 2, columns, results),
                  HR_STATUS_INVALID_ARGUMENT, "square: input 1 of list 0 is absent");
  hr_tensor_release(&a), hr_tensor_release(&b), hr_tensor_release(&wide), hr_tensor_release(&empty);
}

/* Every function has a name of its own, by which it is found. */
HR_TEST(functions_are_found_by_name) {
  for (int i = 1; i < HR_FUNCTIONAL_COUNT; ++i) {
    HR_ASSERT_EQ(hr_functional_find(hr_functional_name((hr_functional)i)), i);
  }
  HR_ASSERT_EQ(hr_functional_find("tanhh"), HR_FUNCTIONAL_NONE);
  HR_ASSERT(strcmp(hr_functional_name(HR_FUNCTIONAL_COUNT), "none") == 0);
}

/* A capture records functions as a stream does; its part gives their result. */
HR_TEST(captures_record_functions) {
  hr_tensor x = counted(DIMS(2, 3)), result = {.dtype = HR_DTYPE_F32, .rank = 1, .dims = {2}, .strides = {1}};
  hr_stream *capture;
  HR_ASSERT_OK(hr_capture_create(device, &capture));
  hr_tensor squares, sums;
  hr_attribute axis = INTS_OF(1);
  HR_ASSERT_OK(hr_functional_apply(capture, HR_FUNCTIONAL_SQUARE, ON(&x), PLAIN, 1, &squares));
  HR_ASSERT_OK(hr_functional_apply(capture, HR_FUNCTIONAL_SUM, ON(&squares), 1, &axis, 1, &sums));
  hr_tensor_release(&squares);
  hr_part *part;
  hr_part_spec spec = {.param_count = 1, .result_count = 1, .params = &x.buffer, .results = &sums.buffer};
  HR_ASSERT_OK(hr_part_create(capture, &spec, &part));
  HR_ASSERT_OK(hr_buffer_create(device, 2 * sizeof(float), &result.buffer));
  HR_ASSERT_OK(hr_part_run(stream, part, &x.buffer, &result.buffer, NULL));
  EXPECT(&result, 5, 50);
  hr_tensor_release(&x);
  hr_tensor_release(&sums);
  hr_tensor_release(&result);
  hr_part_release(part);
  hr_stream_release(capture);
}

HR_TEST(results_of_more_dims_than_tensors_have_are_refused) {
  int64_t ones[HR_RANK_MAX];
  for (int d = 0; d < HR_RANK_MAX; ++d) {
    ones[d] = 1;
  }
  hr_tensor x = counted(HR_RANK_MAX, ones);
  const hr_attribute no_axes = {.kind = HR_ATTRIBUTE_INTS};
  expect_failure("17 dims, expected at most 16", HR_FUNCTIONAL_QUANTILE, ON(&x), 1, &no_axes);
  hr_tensor_release(&x);
}

HR_TEST(row_major_strides_count_sizes_of_0_as_1) {
  static const struct {
    int rank;
    int64_t dims[3], strides[3];
  } cases[] = {{0, {0}, {0}}, {3, {2, 3, 4}, {12, 4, 1}}, {3, {2, 0, 4}, {4, 4, 1}}, {2, {0, 5}, {5, 1}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    hr_tensor x = {.rank = cases[i].rank};
    memcpy(x.dims, cases[i].dims, sizeof cases[i].dims);
    hr_tensor_set_row_major(&x);
    for (int d = 0; d < x.rank; ++d) {
      HR_ASSERT_EQ(x.strides[d], cases[i].strides[d]);
    }
    HR_ASSERT(hr_tensor_is_row_major(&x));
  }
}
