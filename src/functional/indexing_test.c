/* Updates at indices, results whose dims depend on data, random numbers of a key. */
#include "headrace/part.h"

#include "functional/functional_test.h"

static hr_tensor integers(int rank, const int64_t *dims, const int64_t *values) {
  return tensor_of(HR_DTYPE_I64, rank, dims, values);
}
#define I64(...)      \
  (const int64_t[]) { \
    __VA_ARGS__       \
  }
#define TEXT_OF(word)                                     \
  {                                                       \
    .kind = HR_ATTRIBUTE_TEXT, .value = {.text = (word) } \
  }

HR_TEST(updates_leave_their_input_alone) {
  hr_tensor x = counted(DIMS(2, 3)), at = integers(DIMS(2, 2), I64(0, 2, 1, 1)), v = counted(DIMS(2, 2)), y;
  y = apply(HR_FUNCTIONAL_PUT_ALONG_AXIS, ON(&x, &at, &v), PLAIN);
  EXPECT(&y, 0, 1, 1, 3, 3, 5);
  hr_tensor_release(&y);
  GIVES(apply(HR_FUNCTIONAL_PUT_ALONG_AXIS, ON(&x, &at, &v), WITH(INT_OF(1), TEXT_OF("add"))), 0, 1, 3, 3, 9, 5);
  GIVES(apply(HR_FUNCTIONAL_PUT_ALONG_AXIS, ON(&x, &at, &v), WITH(INT_OF(1), TEXT_OF("multiply"))), 0, 1, 2, 3, 24, 5);
  GIVES(apply(HR_FUNCTIONAL_PUT_ALONG_AXIS, ON(&x, &at, &v), WITH(INT_OF(1), TEXT_OF("min"))), 0, 1, 1, 3, 2, 5);
  EXPECT(&x, 0, 1, 2, 3, 4, 5);
  hr_tensor turned = apply(HR_FUNCTIONAL_SWAPAXES, ON(&x), PLAIN),
            two = tensor_of(HR_DTYPE_I32, DIMS(1), (const int32_t[]){9});
  y = apply(HR_FUNCTIONAL_PUT_ALONG_AXIS, ON(&turned, &at, &two), WITH(INT_OF(0)));
  expect_type(&y, HR_DTYPE_F32, DIMS(3, 2));
  EXPECT(&y, 9, 3, 9, 9, 2, 9);
  hr_tensor_release(&y);
  hr_tensor rows = integers(DIMS(2), I64(1, 1)), more = counted(DIMS(2, 3));
  GIVES(apply(HR_FUNCTIONAL_INDEX_ADD, ON(&x, &rows, &more), WITH(INT_OF(0), REAL_OF(hr_scalar_i64(2)))), 0, 1, 2, 9,
        14, 19);
  hr_tensor mask = tensor_of(HR_DTYPE_BOOL, DIMS(3), (const uint8_t[]){1, 0, 1}),
            number = hr_tensor_number(hr_scalar_f64(7.5));
  GIVES(apply(HR_FUNCTIONAL_MASKED_FILL, ON(&x, &mask, &number), PLAIN), 7.5F, 1, 7.5F, 7.5F, 4, 7.5F);
  hr_tensor line = integers(DIMS(4), I64(0, 2, 1, 1)),
            spread = tensor_of(HR_DTYPE_BOOL, DIMS(2), (const uint8_t[]){0, 1});
  GIVES(apply(HR_FUNCTIONAL_MASKED_SCATTER, ON(&x, &spread, &two), PLAIN), 0, 1, 2, 9, 9, 9);
  hr_tensor whole = tensor_of(HR_DTYPE_BOOL, DIMS(2, 3), (const uint8_t[]){1, 0, 1, 0, 1, 1});
  GIVES(apply(HR_FUNCTIONAL_MASKED_SCATTER, ON(&x, &whole, &line), PLAIN), 0, 1, 2, 3, 1, 1);
  expect_failure("put_along_axis: attribute mode is \"div\", expected one of set, add", HR_FUNCTIONAL_PUT_ALONG_AXIS,
                 ON(&x, &at, &v), WITH(INT_OF(1), TEXT_OF("div")));
  RELEASE(&x, &at, &v, &turned, &two, &rows, &more, &mask, &line, &spread, &whole);
}

HR_TEST(scattered_values_have_at_most_16_dims) {
  const int64_t ones[HR_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  hr_tensor x = counted(HR_RANK_MAX, ones), line = tensor_of(HR_DTYPE_F32, DIMS(1), F32(7));
  hr_tensor all = tensor_of(HR_DTYPE_BOOL, 0, NULL, (const uint8_t[]){1});
  hr_tensor first = tensor_of(HR_DTYPE_BOOL, DIMS(1), (const uint8_t[]){1});
  GIVES(apply(HR_FUNCTIONAL_MASKED_SCATTER, ON(&x, &first, &line), PLAIN), 7);
  expect_failure("masked_scatter: more than 16 dims", HR_FUNCTIONAL_MASKED_SCATTER, ON(&x, &all, &line), PLAIN);
  RELEASE(&x, &line, &all, &first);
}

HR_TEST(slices_are_updated) {
  hr_tensor x = counted(DIMS(3, 3)), v = tensor_of(HR_DTYPE_F32, DIMS(2), F32(10, 20));
  hr_attribute slice[4] = {INTS_OF(2, 0), INTS_OF(2, 2), INTS_OF(-2, 2), TEXT_OF("set")};
  GIVES(apply(HR_FUNCTIONAL_SLICE_UPDATE, ON(&x, &v), 4, slice), 10, 1, 20, 3, 4, 5, 10, 7, 20);
  slice[3].value.text = "add";
  GIVES(apply(HR_FUNCTIONAL_SLICE_UPDATE, ON(&x, &v), 4, slice), 10, 1, 22, 3, 4, 5, 16, 7, 28);
  slice[3].value.text = "max";
  GIVES(apply(HR_FUNCTIONAL_SLICE_UPDATE, ON(&x, &v), 4, slice), 10, 1, 20, 3, 4, 5, 10, 7, 20);
  slice[3].value.text = "min";
  GIVES(apply(HR_FUNCTIONAL_SLICE_UPDATE, ON(&x, &v), 4, slice), 0, 1, 2, 3, 4, 5, 6, 7, 8);
  slice[3].value.text = "multiply";
  GIVES(apply(HR_FUNCTIONAL_SLICE_UPDATE, ON(&x, &v), 4, slice), 0, 1, 40, 3, 4, 5, 60, 7, 160);
  EXPECT(&x, 0, 1, 2, 3, 4, 5, 6, 7, 8);
  hr_attribute outside[3] = {INTS_OF(2, 0), INTS_OF(2, 2), INTS_OF(1, 1)};
  expect_failure("2 elements from 2 with step 1 are not inside", HR_FUNCTIONAL_SLICE_UPDATE, ON(&x, &v), 3, outside);
  RELEASE(&x, &v);
}

HR_TEST(several_axes_are_indexed) {
  hr_tensor x = counted(DIMS(2, 3, 4)), i = integers(DIMS(2, 1), I64(0, 1)), j = integers(DIMS(2), I64(3, 0)), y;
  y = apply(HR_FUNCTIONAL_INDEX, ON(&x, &i, &j), WITH(INTS_OF(0, 2)));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 2, 3));
  EXPECT(&y, 3, 7, 11, 0, 4, 8, 15, 19, 23, 12, 16, 20);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_INDEX, ON(&x, &i, &j), WITH(INTS_OF(1, 2)));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 2, 2));
  EXPECT(&y, 3, 0, 7, 4, 15, 12, 19, 16);
  hr_tensor_release(&y);
  hr_tensor one = tensor_of(HR_DTYPE_F32, DIMS(1), F32(100)), twice = integers(DIMS(3), I64(1, 0, 1)),
            v = counted(DIMS(4));
  hr_tensor flat = counted(DIMS(4));
  GIVES(apply(HR_FUNCTIONAL_INDEX_PUT, ON(&flat, &one, &twice), WITH(INTS_OF(0))), 100, 100, 2, 3);
  GIVES(apply(HR_FUNCTIONAL_INDEX_PUT, ON(&flat, &one, &twice), WITH(INTS_OF(0), TEXT_OF("add"))), 100, 201, 2, 3);
  expect_failure("1 axes for 2 tensors", HR_FUNCTIONAL_INDEX, ON(&x, &i, &j), WITH(INTS_OF(1)));
  expect_failure("axis 0 is behind axis 1", HR_FUNCTIONAL_INDEX, ON(&x, &i, &j), WITH(INTS_OF(1, 0)));
  RELEASE(&x, &i, &j, &one, &twice, &v, &flat);
}

HR_TEST(places_and_counts) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(4), F32(1, 2, 2, 5)), v = counted(DIMS(2, 3)), y;
  y = apply(HR_FUNCTIONAL_SEARCHSORTED, ON(&x, &v), PLAIN);
  expect_type(&y, HR_DTYPE_I64, DIMS(2, 3));
  EXPECT(&y, 0, 0, 1, 3, 3, 3);
  hr_tensor_release(&y);
  GIVES(apply(HR_FUNCTIONAL_SEARCHSORTED, ON(&x, &v), WITH(TEXT_OF("right"))), 0, 1, 3, 3, 3, 4);
  GIVES(apply(HR_FUNCTIONAL_DIGITIZE, ON(&v, &x), PLAIN), 0, 1, 3, 3, 3, 4);
  hr_tensor n = tensor_of(HR_DTYPE_I32, DIMS(4), (const int32_t[]){3, 0, 3, 1});
  GIVES(apply(HR_FUNCTIONAL_BINCOUNT, ON(&n, NULL), WITH(INT_OF(5))), 1, 1, 0, 2, 0);
  GIVES(apply(HR_FUNCTIONAL_BINCOUNT, ON(&n, &x), WITH(INT_OF(4))), 2, 5, 0, 3);
  hr_tensor odd = tensor_of(HR_DTYPE_F32, DIMS(6), F32(0, 0.25F, 1, 2, -1, NAN));
  GIVES(apply(HR_FUNCTIONAL_HISTOGRAM, ON(&odd), WITH(INT_OF(4))), 1, 1, 0, 1);
  expect_failure("2 dims of ordered numbers, expected 1", HR_FUNCTIONAL_SEARCHSORTED, ON(&v, &x), PLAIN);
  RELEASE(&x, &v, &n, &odd);
}

/* ---- dims that depend on data ---- */

HR_TEST(dims_that_depend_on_data) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2, 3), F32(0, 7, 0, 5, 0, NAN)), y, all[4];
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_NONZERO, ON(&x), PLAIN, 1, &y));
  expect_type(&y, HR_DTYPE_I64, DIMS(2, 3));
  EXPECT(&y, 0, 1, 1, 1, 0, 2);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_NONZERO, ON(&x), WITH(INT_OF(4)));
  EXPECT(&y, 0, 1, 1, -1, 1, 0, 2, -1);
  hr_tensor_release(&y);
  hr_tensor mask = tensor_of(HR_DTYPE_BOOL, DIMS(3), (const uint8_t[]){1, 0, 1});
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_COMPRESS, ON(&mask, &x), WITH(INT_OF(1)), 1, &y));
  EXPECT(&y, 0, 0, 5, NAN);
  hr_tensor_release(&y);
  hr_tensor z = tensor_of(HR_DTYPE_I64, DIMS(2, 2), I64(5, 2, 5, 3));
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_UNIQUE, ON(&z), PLAIN, 4, all));
  EXPECT(&all[0], 2, 3, 5);
  EXPECT(&all[1], 1, 3, 0);
  expect_type(&all[2], HR_DTYPE_I64, DIMS(2, 2));
  EXPECT(&all[2], 2, 0, 2, 1);
  EXPECT(&all[3], 1, 1, 2);
  hr_tensor type = x, none = counted(DIMS(0, 3)), result;
  type.buffer = NULL;
  HR_ASSERT_ERROR(hr_functional_apply(NULL, HR_FUNCTIONAL_NONZERO, ON(&type), PLAIN, 1, &result),
                  HR_STATUS_UNIMPLEMENTED, "the result's dims depend on data");
  hr_stream *capture;
  HR_ASSERT_OK(hr_capture_create(device, &capture));
  hr_status status = hr_functional_apply(capture, HR_FUNCTIONAL_UNIQUE, ON(&z), PLAIN, 1, &result);
  HR_ASSERT_NOT_NULL(status);
  hr_status_free(status);
  hr_stream_release(capture);
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_NONZERO, ON(&none), PLAIN, 1, &y));
  expect_type(&y, HR_DTYPE_I64, DIMS(2, 0));
  RELEASE(&x, &y, &mask, &z, &none, &all[0], &all[1], &all[2], &all[3]);
}

/* ---- random numbers ---- */

static hr_tensor key_of(int64_t seed) {
  return apply(HR_FUNCTIONAL_KEY, 0, NULL, WITH(INT_OF(seed)));
}

/* The mean and variance of 4,000 samples. */
static void expect_moments(hr_functional function, double mean, double variance, double tolerance) {
  hr_tensor key = key_of(3), x = apply(function, ON(&key), WITH(INTS_OF(40, 100)));
  double values[MOST], sum = 0, squares = 0;
  read_doubles(&x, values);
  for (int i = 0; i < 4000; ++i) {
    sum += values[i], squares += values[i] * values[i];
  }
  sum /= 4000, squares /= 4000;
  HR_ASSERT_NEAR(sum, mean, tolerance);
  HR_ASSERT_NEAR(squares - sum * sum, variance, 2 * tolerance);
  RELEASE(&key, &x);
}

HR_TEST(samples_have_the_moments_of_their_distribution) {
  expect_moments(HR_FUNCTIONAL_UNIFORM, 0.5, 1.0 / 12, 0.02);
  expect_moments(HR_FUNCTIONAL_NORMAL, 0, 1, 0.05);
  expect_moments(HR_FUNCTIONAL_TRUNCATED_NORMAL, 0, 0.7737, 0.05);
  expect_moments(HR_FUNCTIONAL_GUMBEL, 0.5772, 1.6449, 0.1);
  expect_moments(HR_FUNCTIONAL_EXPONENTIAL, 1, 1, 0.1);
  expect_moments(HR_FUNCTIONAL_LAPLACE, 0, 2, 0.15);
}

HR_TEST(keys_are_split_and_give_the_same_numbers_again) {
  hr_tensor key = key_of((INT64_C(5) << 32) + 7), pair, a, b;
  expect_type(&key, HR_DTYPE_U32, DIMS(2));
  EXPECT(&key, 7, 5);
  pair = apply(HR_FUNCTIONAL_SPLIT, ON(&key), PLAIN);
  expect_type(&pair, HR_DTYPE_U32, DIMS(2, 2));
  uint32_t halves[4];
  hr_view view = {.buffer = pair.buffer, .dtype = HR_DTYPE_U32, .rank = 2, .dims = pair.dims, .strides = pair.strides};
  HR_ASSERT_OK(hr_stream_read(stream, &view, halves));
  HR_ASSERT(halves[0] != halves[2] && halves[1] != halves[3] && halves[0] != halves[1]);
  a = apply(HR_FUNCTIONAL_UNIFORM, ON(&key), WITH(INTS_OF(6)));
  b = apply(HR_FUNCTIONAL_UNIFORM, ON(&key), WITH(INTS_OF(2, 3)));
  float numbers[2][6];
  read(&a, numbers[0]), read(&b, numbers[1]);
  HR_ASSERT(memcmp(numbers[0], numbers[1], sizeof numbers[0]) == 0);
  RELEASE(&a, &b);
  hr_tensor folded = apply(HR_FUNCTIONAL_FOLD_IN, ON(&key), WITH(INT_OF(1)));
  expect_type(&folded, HR_DTYPE_U32, DIMS(2));
  a = apply(HR_FUNCTIONAL_UNIFORM, ON(&folded), WITH(INTS_OF(6)));
  read(&a, numbers[1]);
  HR_ASSERT(numbers[0][0] != numbers[1][0]);
  hr_tensor type = key, many; /* the number of elements is none of f64 */
  type.buffer = NULL;
  HR_ASSERT_OK(
      hr_functional_apply(NULL, HR_FUNCTIONAL_UNIFORM, ON(&type), WITH(INTS_OF(603079913, 603079913)), 1, &many));
  expect_type(&many, HR_DTYPE_F32, DIMS(603079913, 603079913));
  hr_tensor wrong = counted(DIMS(2));
  expect_failure("uniform: the key is f32 [2], expected u32 [2]", HR_FUNCTIONAL_UNIFORM, ON(&wrong), WITH(INTS_OF(2)));
  expect_failure("dim 0 is -1, expected at least 0", HR_FUNCTIONAL_NORMAL, ON(&key), WITH(INTS_OF(-1)));
  RELEASE(&key, &pair, &a, &folded, &wrong);
}

HR_TEST(discrete_samples) {
  hr_tensor key = key_of(11), x, half = hr_tensor_number(hr_scalar_f64(0.25));
  float values[MOST];
  x = apply(HR_FUNCTIONAL_RANDINT, ON(&key), WITH(INTS_OF(4000), INT_OF(-2), INT_OF(3)));
  expect_type(&x, HR_DTYPE_I32, DIMS(4000));
  read(&x, values);
  int counts[5] = {0}, hits = 0;
  for (int i = 0; i < 4000; ++i) {
    HR_ASSERT(values[i] >= -2 && values[i] <= 2);
    ++counts[(int)values[i] + 2];
  }
  for (int i = 0; i < 5; ++i) {
    HR_ASSERT_NEAR(counts[i], 800, 120);
  }
  hr_tensor_release(&x);
  x = apply(HR_FUNCTIONAL_BERNOULLI, ON(&key, &half), WITH(INTS_OF(4000)));
  expect_type(&x, HR_DTYPE_BOOL, DIMS(4000));
  read(&x, values);
  for (int i = 0; i < 4000; ++i) {
    hits += values[i] != 0;
  }
  HR_ASSERT_NEAR(hits, 1000, 120);
  hr_tensor_release(&x);
  hr_tensor logits = tensor_of(HR_DTYPE_F32, DIMS(2), F32(0, 1.0986123F));
  const int64_t wide[2] = {2000, 2};
  hr_attribute shape = {.kind = HR_ATTRIBUTE_INTS, .count = 2, .value = {.ints = wide}};
  hr_tensor spread = apply(HR_FUNCTIONAL_BROADCAST_TO, ON(&logits), 1, &shape);
  x = apply(HR_FUNCTIONAL_CATEGORICAL, ON(&key, &spread), PLAIN);
  expect_type(&x, HR_DTYPE_I64, DIMS(2000));
  read(&x, values);
  hits = 0;
  for (int i = 0; i < 2000; ++i) {
    hits += values[i] != 0;
  }
  HR_ASSERT_NEAR(hits, 1500, 100);
  hr_tensor_release(&x);
  hr_tensor line = counted(DIMS(100));
  x = apply(HR_FUNCTIONAL_PERMUTATION, ON(&key, &line), PLAIN);
  read(&x, values);
  int moved = 0, seen[100] = {0};
  for (int i = 0; i < 100; ++i) {
    moved += values[i] != (float)i;
    ++seen[(int)values[i]];
  }
  for (int i = 0; i < 100; ++i) {
    HR_ASSERT_EQ(seen[i], 1);
  }
  HR_ASSERT(moved > 80);
  hr_tensor_release(&x);
  x = apply(HR_FUNCTIONAL_RANDOM_BITS, ON(&key), WITH(INTS_OF(64), DTYPE_OF(HR_DTYPE_U8)));
  expect_type(&x, HR_DTYPE_U8, DIMS(64));
  expect_failure("dtype f32, expected an integer", HR_FUNCTIONAL_RANDOM_BITS, ON(&key),
                 WITH(INTS_OF(2), DTYPE_OF(HR_DTYPE_F32)));
  RELEASE(&key, &x, &logits, &spread, &line);
}

/* ---- indices that may be out of range ---- */

HR_TEST(reads_clip_or_drop_indices_out_of_range) {
  hr_tensor x = counted(DIMS(2, 3)), at = integers(DIMS(2, 2), I64(-1, 5, 2, -4)), none = counted(DIMS(2, 0)), y;
  hr_attribute clip[2] = {INT_OF(1), TEXT_OF("clip")}, drop[2] = {INT_OF(1), TEXT_OF("drop")};
  y = apply(HR_FUNCTIONAL_TAKE, ON(&x, &at), 2, clip);
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 2, 2));
  EXPECT(&y, 0, 2, 2, 0, 3, 5, 5, 3);
  hr_tensor_release(&y);
  GIVES(apply(HR_FUNCTIONAL_TAKE, ON(&x, &at), 2, drop), 0, 0, 2, 0, 0, 0, 5, 0);
  hr_tensor rows = integers(DIMS(2), I64(1, 2));
  y = apply(HR_FUNCTIONAL_TAKE, ON(&x, &rows), WITH(INT_OF(0), TEXT_OF("drop")));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 3));
  EXPECT(&y, 3, 4, 5, 0, 0, 0);
  hr_tensor_release(&y);
  GIVES(apply(HR_FUNCTIONAL_TAKE_ALONG_AXIS, ON(&x, &at), 2, clip), 0, 2, 5, 3);
  GIVES(apply(HR_FUNCTIONAL_TAKE_ALONG_AXIS, ON(&x, &at), 2, drop), 0, 0, 5, 0);
  GIVES(apply(HR_FUNCTIONAL_TAKE, ON(&none, &at), 2, drop), 0, 0, 0, 0, 0, 0, 0, 0);
  expect_failure("take: axis 1 has no elements", HR_FUNCTIONAL_TAKE, ON(&none, &at), 2, clip);
  expect_failure("take: indices of f32, expected integers", HR_FUNCTIONAL_TAKE, ON(&x, &x), 2, clip);
  RELEASE(&x, &at, &rows, &none);
}

HR_TEST(slices_from_a_tensor_are_moved_inside) {
  hr_tensor x = counted(DIMS(3, 4)), v = tensor_of(HR_DTYPE_F32, DIMS(2, 2), F32(-1, -2, -3, -4)), y;
  hr_tensor at = integers(DIMS(2), I64(1, 1)), low = integers(DIMS(2), I64(-5, 9));
  hr_attribute sizes = INTS_OF(2, 2), none = INTS_OF(0, 4), large = INTS_OF(2, 5);
  GIVES(apply(HR_FUNCTIONAL_DYNAMIC_SLICE, ON(&x, &at), 1, &sizes), 5, 6, 9, 10);
  GIVES(apply(HR_FUNCTIONAL_DYNAMIC_SLICE, ON(&x, &low), 1, &sizes), 2, 3, 6, 7);
  y = apply(HR_FUNCTIONAL_DYNAMIC_SLICE, ON(&x, &low), 1, &none);
  expect_type(&y, HR_DTYPE_F32, DIMS(0, 4));
  hr_tensor_release(&y);
  GIVES(apply(HR_FUNCTIONAL_DYNAMIC_SLICE_UPDATE, ON(&x, &v, &low), PLAIN), 0, 1, -1, -2, 4, 5, -3, -4, 8, 9, 10, 11);
  hr_tensor turned = apply(HR_FUNCTIONAL_SWAPAXES, ON(&x), PLAIN);
  GIVES(apply(HR_FUNCTIONAL_DYNAMIC_SLICE, ON(&turned, &at), 1, &sizes), 5, 9, 6, 10);
  EXPECT(&x, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
  expect_failure("size 5 of dim 1, expected 0 to 4", HR_FUNCTIONAL_DYNAMIC_SLICE, ON(&x, &at), 1, &large);
  expect_failure("start of dims [3,4] and 2 sizes for 2 dims", HR_FUNCTIONAL_DYNAMIC_SLICE, ON(&x, &x), 1, &sizes);
  expect_failure(
      "indices of f32, expected integers", HR_FUNCTIONAL_DYNAMIC_SLICE_UPDATE,
      ON(&x, &v, &(hr_tensor){.dtype = HR_DTYPE_F32, .buffer = v.buffer, .rank = 1, .dims = {2}, .strides = {1}}),
      PLAIN);
  RELEASE(&x, &v, &at, &low, &turned);
}

HR_TEST(values_at_indices_are_combined) {
  hr_tensor x = counted(DIMS(2, 3, 2)), two = tensor_of(HR_DTYPE_F32, DIMS(1), F32(2)), y;
  hr_tensor a = integers(DIMS(3), I64(0, 1, -1)), b = integers(DIMS(3), I64(2, 0, 0)), c = integers(DIMS(1), I64(1));
  hr_attribute first[2] = {INTS_OF(0, 1), TEXT_OF("multiply")}, apart[2] = {INTS_OF(0, 2), TEXT_OF("max")};
  y = apply(HR_FUNCTIONAL_INDEX_PUT, ON(&x, &two, &a, &b), 2, first);
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 3, 2));
  EXPECT(&y, 0, 1, 2, 3, 8, 10, 24, 28, 8, 9, 10, 11);
  hr_tensor_release(&y);
  hr_tensor rows = tensor_of(HR_DTYPE_F32, DIMS(3, 3), F32(2, 2, 2, 20, 0, 0, 0, 30, 1));
  GIVES(apply(HR_FUNCTIONAL_INDEX_PUT, ON(&x, &rows, &a, &c), 2, apart), 0, 2, 2, 3, 4, 5, 6, 20, 8, 30, 10, 11);
  hr_tensor middle = integers(DIMS(2, 2), I64(0, 1, 1, 2)),
            low = tensor_of(HR_DTYPE_F32, DIMS(2, 2, 1), F32(-1, 2, 100, 3));
  GIVES(apply(HR_FUNCTIONAL_INDEX_PUT, ON(&x, &low, &middle), WITH(INTS_OF(1), TEXT_OF("min"))), -1, -1, 2, 2, 3, 3, -1,
        -1, 2, 2, 3, 3);
  RELEASE(&x, &two, &a, &b, &c, &rows, &middle, &low);
}

static void expect_late_failure(const char *text, int count, const hr_tensor *const *inputs, hr_attribute *given) {
  float values[MOST];
  hr_tensor y = apply(HR_FUNCTIONAL_INDEX_PUT, count, inputs, 2, given);
  hr_view view = hr_tensor_view(&y);
  hr_status status = hr_stream_read(stream, &view, values);
  HR_ASSERT_NOT_NULL(status);
  if (strstr(hr_status_message(status), text) == NULL) {
    HR_FAIL("\"%s\" is not in \"%s\"", text, hr_status_message(status));
  }
  hr_status_free(status);
  hr_tensor_release(&y);
}

HR_TEST(combined_values_out_of_range_are_errors) {
  hr_tensor x = counted(DIMS(2, 3)), two = tensor_of(HR_DTYPE_F32, DIMS(1), F32(2));
  hr_tensor a = integers(DIMS(1), I64(0)), b = integers(DIMS(1), I64(3));
  hr_attribute both[2] = {INTS_OF(0, 1), TEXT_OF("max")}, one[2] = {INTS_OF(1), TEXT_OF("max")};
  expect_late_failure("6", ON(&x, &two, &a, &b), both);
  expect_late_failure("3", ON(&x, &two, &b), one);
  RELEASE(&x, &two, &a, &b);
}
