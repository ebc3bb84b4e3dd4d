/* Arrays: elements in and out, indices against plain loops, and who sees a write. */
#include "headrace/array.h"

#include "tensor_test.h"

#define AT(i) \
  { .kind = HR_INDEX_AT, .begin = (i) }
#define FROM(b, e, s) \
  { .kind = HR_INDEX_SLICE, .has_begin = true, .has_end = true, .begin = (b), .end = (e), .step = (s) }
#define ALL \
  { .kind = HR_INDEX_SLICE, .step = 1 }
#define BACK \
  { .kind = HR_INDEX_SLICE, .step = -1 }
#define NEW \
  { .kind = HR_INDEX_NEW }
#define REST \
  { .kind = HR_INDEX_REST }
#define INDEX(...)                                                                        \
  (int)(sizeof((const hr_index[]){__VA_ARGS__}) / sizeof(hr_index)), (const hr_index[]) { \
    __VA_ARGS__                                                                           \
  }

/* 0, 1, 2, ... */
static hr_tensor counted(int rank, const int64_t *dims) {
  static float values[4096];
  hr_tensor x = {0};
  open_stream();
  for (int i = 0; i < 4096; ++i) {
    values[i] = (float)i;
  }
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_F32, rank, dims, values, &x));
  return x;
}

static void expect(const hr_tensor *x, int64_t count, const float *expected) {
  float values[4096];
  HR_ASSERT_EQ(hr_tensor_count(x), count);
  HR_ASSERT_OK(hr_array_read(stream, x, values));
  for (int64_t i = 0; i < count; ++i) {
    HR_ASSERT_NEAR(values[i], expected[i], 1e-6);
  }
}
#define EXPECT(x, ...) expect(x, sizeof((const float[]){__VA_ARGS__}) / sizeof(float), (const float[]){__VA_ARGS__})

/* ---- in and out ---- */

HR_TEST(elements_come_back_as_numbers) {
  static const struct {
    hr_dtype dtype;
    union {
      uint64_t bits;
      float single[2];
      double wide[2];
    } element;
    hr_scalar expected;
  } rows[] = {
      {HR_DTYPE_BOOL, {1}, {HR_DTYPE_BOOL, {1}}},
      {HR_DTYPE_U8, {200}, {HR_DTYPE_I64, {200}}},
      {HR_DTYPE_I8, {0xff}, {HR_DTYPE_I64, {-1}}},
      {HR_DTYPE_U16, {0xffff}, {HR_DTYPE_I64, {65535}}},
      {HR_DTYPE_I16, {0x8000}, {HR_DTYPE_I64, {-32768}}},
      {HR_DTYPE_U32, {0xffffffff}, {HR_DTYPE_I64, {4294967295}}},
      {HR_DTYPE_I32, {0xfffffffe}, {HR_DTYPE_I64, {-2}}},
      {HR_DTYPE_I64, {UINT64_MAX}, {HR_DTYPE_I64, {-1}}},
      {HR_DTYPE_U64, {UINT64_MAX}, {HR_DTYPE_U64, {.u = UINT64_MAX}}},
      {HR_DTYPE_F16, {0x3e00}, {HR_DTYPE_F64, {.f = {1.5}}}},
      {HR_DTYPE_BF16, {0xc020}, {HR_DTYPE_F64, {.f = {-2.5}}}},
      {HR_DTYPE_F32, {.single = {0.25f}}, {HR_DTYPE_F64, {.f = {0.25}}}},
      {HR_DTYPE_F64, {.wide = {1e300}}, {HR_DTYPE_F64, {.f = {1e300}}}},
      {HR_DTYPE_C64, {.single = {1, -2}}, {HR_DTYPE_C128, {.f = {1, -2}}}},
      {HR_DTYPE_C128, {.wide = {1, -2}}, {HR_DTYPE_C128, {.f = {1, -2}}}},
      {HR_DTYPE_F8E5M2, {0x3c}, {HR_DTYPE_F64, {.f = {1}}}},
  };
  open_stream();
  for (size_t k = 0; k < sizeof rows / sizeof *rows; ++k) {
    hr_tensor x = {0};
    hr_scalar value;
    HR_ASSERT_OK(hr_array_from_host(stream, rows[k].dtype, 2, (const int64_t[]){1, 1}, &rows[k].element, &x));
    HR_ASSERT_OK(hr_array_item(stream, &x, &value));
    HR_ASSERT_EQ(value.dtype, rows[k].expected.dtype);
    HR_ASSERT_EQ(value.value.i, rows[k].expected.value.i);
    if (value.dtype == HR_DTYPE_C128) {
      HR_ASSERT_NEAR(value.value.f[1], rows[k].expected.value.f[1], 0);
    }
    hr_tensor_release(&x);
  }
}

HR_TEST(wrong_types_are_refused) {
  hr_tensor x = {0};
  hr_scalar value;
  open_stream();
  HR_ASSERT_ERROR(hr_array_from_host(stream, HR_DTYPE_F32, 1, (const int64_t[]){-1}, NULL, &x),
                  HR_STATUS_INVALID_ARGUMENT, "dim 0 of 1 is -1");
  HR_ASSERT_ERROR(hr_array_from_host(stream, HR_DTYPE_F32, 2, (const int64_t[]){INT64_MAX, 4}, NULL, &x),
                  HR_STATUS_INVALID_ARGUMENT, "dim 0 of 2");
  HR_ASSERT_ERROR(hr_array_from_host(stream, HR_DTYPE_NONE, 0, NULL, NULL, &x), HR_STATUS_INVALID_ARGUMENT, "dtype 0");
  HR_ASSERT_ERROR(hr_array_from_host(stream, HR_DTYPE_F32, 17, NULL, NULL, &x), HR_STATUS_INVALID_ARGUMENT, "17 dims");
  HR_ASSERT_NULL(x.buffer);
  x = counted(DIMS(2, 1));
  HR_ASSERT_ERROR(hr_array_item(stream, &x, &value), HR_STATUS_INVALID_ARGUMENT, "item: dim 0 has size 2");
  hr_tensor_release(&x);
}

static void count_release(void *arg) {
  ++*(int *)arg;
}

HR_TEST(memory_of_others_is_an_array) {
  _Alignas(16) float memory[12];
  int released = 0;
  hr_tensor x = {0}, sum = {0};
  open_stream();
  for (int i = 0; i < 12; ++i) {
    memory[i] = (float)i;
  }
  /* backwards along both dims, every other column */
  HR_ASSERT_OK(hr_array_adopt(stream, HR_DTYPE_F32, 2, (const int64_t[]){2, 3}, (const int64_t[]){-6, -2}, memory + 10,
                              count_release, &released, &x));
  EXPECT(&x, 10, 8, 6, 4, 2, 0);
  HR_ASSERT(!hr_buffer_is_unique(stream, x.buffer));
  HR_ASSERT_OK(hr_array_binary(stream, HR_FUNCTIONAL_ADD, &x, &x, &sum));
  hr_tensor five = hr_tensor_number(hr_scalar_i64(5));
  HR_ASSERT_OK(hr_array_assign(stream, &x, INDEX(AT(0)), &five));
  EXPECT(&x, 5, 5, 5, 4, 2, 0);
  EXPECT(&sum, 20, 16, 12, 8, 4, 0);
  HR_ASSERT_NEAR(memory[10], 10, 0);
  HR_ASSERT_EQ(released, 1);
  HR_ASSERT_ERROR(
      hr_array_adopt(stream, HR_DTYPE_F32, 1, (const int64_t[]){2}, NULL, memory + 1, count_release, &released, &x),
      HR_STATUS_FAILED_PRECONDITION, "aligned to 16");
  HR_ASSERT_ERROR(hr_array_adopt(stream, HR_DTYPE_F32, 2, (const int64_t[]){3, 3},
                                 (const int64_t[]){INT64_MAX / 2, INT64_MAX / 2}, memory, count_release, &released, &x),
                  HR_STATUS_INVALID_ARGUMENT, "address space");
  HR_ASSERT_EQ(released, 1);
  HR_ASSERT_OK(
      hr_array_adopt(stream, HR_DTYPE_F32, 2, (const int64_t[]){0, 3}, NULL, NULL, count_release, &released, &x));
  HR_ASSERT_EQ(released, 2);
  HR_ASSERT_EQ(hr_tensor_count(&x), 0);
  hr_tensor_release(&x), hr_tensor_release(&sum);
}

/* ---- indices ---- */

HR_TEST(indices_select_as_in_python) {
  hr_tensor x = counted(DIMS(2, 3)), y = {0};
  HR_ASSERT_OK(hr_array_index(&x, INDEX(AT(-1)), &y));
  EXPECT(&y, 3, 4, 5);
  HR_ASSERT_OK(hr_array_index(&x, INDEX(REST, AT(1)), &y));
  EXPECT(&y, 1, 4);
  HR_ASSERT_OK(hr_array_index(&x, INDEX(BACK, BACK), &y));
  EXPECT(&y, 5, 4, 3, 2, 1, 0);
  HR_ASSERT_OK(hr_array_index(&x, INDEX(NEW, ALL, NEW, FROM(-100, 100, 2)), &y));
  HR_ASSERT_EQ(y.rank, 4);
  EXPECT(&y, 0, 2, 3, 5);
  HR_ASSERT_OK(hr_array_index(&x, INDEX(AT(1), AT(2)), &y));
  HR_ASSERT_EQ(y.rank, 0);
  EXPECT(&y, 5);
  HR_ASSERT_OK(hr_array_index(&y, 0, NULL, &y)); /* in place, without indices */
  EXPECT(&y, 5);
  HR_ASSERT_OK(hr_array_index(&x, INDEX(FROM(2, 1, 1)), &y));
  HR_ASSERT_EQ(hr_tensor_count(&y), 0);
  HR_ASSERT_OK(hr_array_index(&x, INDEX(ALL, FROM(0, INT64_MAX, INT64_MAX)), &y));
  EXPECT(&y, 0, 3);
  HR_ASSERT_OK(hr_array_index(&x, INDEX(ALL, FROM(2, INT64_MIN, INT64_MIN)), &y));
  EXPECT(&y, 2, 5);
  hr_tensor_release(&x), hr_tensor_release(&y);
}

/* Python's rule, step by step: range(*slice.indices(size)). */
static int plain_slice(int64_t size, const hr_index *slice, float *values) {
  int64_t low = slice->step < 0 ? -1 : 0, high = slice->step < 0 ? size - 1 : size,
          ends[2] = {slice->begin, slice->end};
  for (int i = 0; i < 2; ++i) {
    ends[i] += ends[i] < 0 ? size : 0;
    ends[i] = ends[i] < low ? low : ends[i] > high ? high : ends[i];
  }
  ends[0] = slice->has_begin ? ends[0] : slice->step < 0 ? high : low;
  ends[1] = slice->has_end ? ends[1] : slice->step < 0 ? low : high;
  int count = 0;
  for (int64_t i = ends[0]; slice->step < 0 ? i > ends[1] : i < ends[1]; i += slice->step) {
    values[count++] = (float)i;
  }
  return count;
}

HR_TEST(slices_against_plain_loops) {
  for (int64_t size = 0; size < 5; ++size) {
    hr_tensor x = counted(DIMS(size)), y = {0};
    for (int k = 0; k < 4 * 13 * 13 * 7; ++k) {
      int64_t step = k / 4 % 7 - 3;
      hr_index slice = {.kind = HR_INDEX_SLICE,
                        .has_begin = k & 1,
                        .has_end = (k & 2) != 0,
                        .begin = k / 28 % 13 - 6,
                        .end = k / 364 - 6,
                        .step = step != 0 ? step : 5};
      float values[8];
      int count = plain_slice(size, &slice, values);
      HR_ASSERT_OK(hr_array_index(&x, 1, &slice, &y));
      HR_ASSERT_EQ(y.dims[0], count);
      for (int i = 0; i < count; ++i) {
        HR_ASSERT_EQ(y.offset + i * y.strides[0], (int64_t)values[i]);
      }
    }
    hr_tensor_release(&x), hr_tensor_release(&y);
  }
}

HR_TEST(indices_out_of_range_are_named) {
  hr_tensor x = counted(DIMS(2, 3)), y = {0};
  HR_ASSERT_ERROR(hr_array_index(&x, INDEX(AT(0), AT(3)), &y), HR_STATUS_OUT_OF_RANGE,
                  "index 3 is out of bounds for axis 1 with size 3");
  HR_ASSERT_ERROR(hr_array_index(&x, INDEX(AT(-3)), &y), HR_STATUS_OUT_OF_RANGE, "index -3 is out of bounds");
  HR_ASSERT_ERROR(hr_array_index(&x, INDEX(AT(0), AT(0), AT(0)), &y), HR_STATUS_OUT_OF_RANGE,
                  "too many indices for array: array is 2-dimensional, but 3 were indexed");
  HR_ASSERT_ERROR(hr_array_index(&x, INDEX(REST, REST), &y), HR_STATUS_OUT_OF_RANGE, "single ellipsis");
  HR_ASSERT_ERROR(hr_array_index(&x, INDEX(FROM(0, 1, 0)), &y), HR_STATUS_INVALID_ARGUMENT, "step cannot be zero");
  hr_index many[HR_RANK_MAX] = {NEW, NEW, NEW, NEW, NEW, NEW, NEW, NEW, NEW, NEW, NEW, NEW, NEW, NEW, NEW, NEW};
  HR_ASSERT_ERROR(hr_array_index(&x, 15, many, &y), HR_STATUS_OUT_OF_RANGE, "17 dims");
  HR_ASSERT_NULL(y.buffer);
  hr_tensor_release(&x);
}

#define ARRAY(at) \
  { .kind = HR_INDEX_ARRAY, .array = (at) }

static hr_tensor integers(int rank, const int64_t *dims, const int64_t *values) {
  hr_tensor x = {0};
  open_stream();
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_I64, rank, dims, values, &x));
  return x;
}

static hr_tensor mask(int rank, const int64_t *dims, const bool *values) {
  hr_tensor x = {0};
  open_stream();
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_BOOL, rank, dims, values, &x));
  return x;
}

HR_TEST(arrays_select_elements) {
  hr_tensor x = counted(DIMS(2, 3, 4)), y = {0};
  hr_tensor two = integers(DIMS(2), (const int64_t[]){-1, 0}), column = integers(DIMS(2, 1), (const int64_t[]){0, 1});
  hr_tensor some = mask(DIMS(2, 3), (const bool[]){false, true, false, false, false, true});
  HR_ASSERT_OK(hr_array_select(stream, &x, INDEX(AT(0), ARRAY(&two), AT(1)), &y));
  EXPECT(&y, 9, 1);
  HR_ASSERT_OK(hr_array_select(stream, &x, INDEX(ARRAY(&column), ARRAY(&two), AT(0)), &y)); /* broadcast */
  EXPECT(&y, 8, 0, 20, 12);
  HR_ASSERT_OK(hr_array_select(stream, &x, INDEX(AT(0), FROM(0, 3, 2), ARRAY(&two)), &y)); /* their dims first */
  HR_ASSERT_EQ(y.dims[0], 2);
  EXPECT(&y, 3, 11, 0, 8);
  HR_ASSERT_OK(hr_array_select(stream, &x, INDEX(ARRAY(&some), FROM(0, 2, 1)), &y));
  EXPECT(&y, 4, 5, 20, 21);
  HR_ASSERT_ERROR(hr_array_index(&x, INDEX(ARRAY(&two)), &y), HR_STATUS_INVALID_ARGUMENT, "index 0 is an array");
  HR_ASSERT_ERROR(hr_array_select(stream, &x, INDEX(AT(0), ARRAY(&some)), &y), HR_STATUS_OUT_OF_RANGE,
                  "along axis 1; size of axis is 3 but size of corresponding boolean axis is 2");
  EXPECT(&y, 4, 5, 20, 21); /* unchanged */
  hr_tensor_release(&x), hr_tensor_release(&y), hr_tensor_release(&two), hr_tensor_release(&column);
  hr_tensor_release(&some);
}

/* ---- writes ---- */

HR_TEST(arrays_and_masks_are_updated) {
  hr_tensor x = counted(DIMS(2, 3)), twice = integers(DIMS(3), (const int64_t[]){0, 2, 2});
  hr_tensor some = mask(DIMS(2, 3), (const bool[]){false, true, false, false, false, true});
  hr_tensor ten = hr_tensor_number(hr_scalar_i64(10));
  hr_buffer *before = x.buffer;
  HR_ASSERT_OK(hr_array_update(stream, &x, INDEX(AT(1), ARRAY(&twice)), &ten, HR_UPDATE_ADD));
  EXPECT(&x, 0, 1, 2, 13, 4, 25);
  HR_ASSERT_OK(hr_array_assign(stream, &x, INDEX(ARRAY(&some)), &ten));
  EXPECT(&x, 0, 10, 2, 13, 4, 10);
  HR_ASSERT(x.buffer == before); /* in place */
  HR_ASSERT_OK(hr_array_update(stream, &x, INDEX(ALL, ARRAY(&twice)), &ten, HR_UPDATE_MULTIPLY));
  EXPECT(&x, 0, 10, 200, 130, 4, 1000);
  HR_ASSERT_OK(hr_array_update(stream, &x, INDEX(AT(0)), &ten, HR_UPDATE_MAX));
  EXPECT(&x, 10, 10, 200, 130, 4, 1000);
  hr_tensor_release(&x), hr_tensor_release(&twice), hr_tensor_release(&some);
}

HR_TEST(a_write_is_seen_by_its_array_alone) {
  hr_tensor x = counted(DIMS(2, 3)), row = {0}, sum = {0}, nine = hr_tensor_number(hr_scalar_i64(9));
  hr_buffer *before = x.buffer;
  HR_ASSERT_OK(hr_array_assign(stream, &x, INDEX(AT(0), AT(0)), &nine)); /* nobody else sees it: in place */
  HR_ASSERT(x.buffer == before);
  HR_ASSERT_OK(hr_array_binary(stream, HR_FUNCTIONAL_ADD, &x, &x, &sum)); /* pending work reads the old elements */
  HR_ASSERT_OK(hr_array_assign(stream, &x, INDEX(AT(0), AT(1)), &nine));
  HR_ASSERT(x.buffer == before);
  HR_ASSERT_OK(hr_array_index(&x, INDEX(AT(0)), &row));
  HR_ASSERT(!hr_buffer_is_unique(stream, x.buffer));
  HR_ASSERT_OK(hr_array_assign(stream, &x, INDEX(ALL, AT(2)), &nine)); /* the row sees it: a copy */
  HR_ASSERT(x.buffer != before);
  EXPECT(&row, 9, 9, 2);
  EXPECT(&x, 9, 9, 9, 3, 4, 9);
  EXPECT(&sum, 18, 2, 4, 6, 8, 10);
  HR_ASSERT(hr_buffer_is_unique(stream, row.buffer));
  HR_ASSERT_OK(hr_array_assign(stream, &x, INDEX(BACK), &row)); /* broadcast, in a reversed view */
  EXPECT(&x, 9, 9, 2, 9, 9, 2);
  hr_tensor_release(&x), hr_tensor_release(&row), hr_tensor_release(&sum);
}

HR_TEST(a_write_from_its_own_elements) {
  hr_tensor x = counted(DIMS(4)), head = {0};
  HR_ASSERT_OK(hr_array_index(&x, INDEX(FROM(0, 3, 1)), &head));
  HR_ASSERT_OK(hr_array_assign(stream, &x, INDEX(FROM(1, 4, 1)), &head));
  EXPECT(&x, 0, 0, 1, 2);
  hr_tensor_release(&x), hr_tensor_release(&head);
}

HR_TEST(repeated_elements_are_written_once) {
  hr_tensor x = counted(DIMS(2)), wide, seven = hr_tensor_number(hr_scalar_f64(7));
  const hr_tensor *inputs[1] = {&x};
  hr_attribute shape = {.kind = HR_ATTRIBUTE_INTS, .count = 2, .value = {.ints = (const int64_t[]){3, 2}}};
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_BROADCAST_TO, 1, inputs, 1, &shape, 1, &wide));
  hr_tensor_release(&x);
  HR_ASSERT_OK(hr_array_assign(stream, &wide, INDEX(AT(1), AT(1)), &seven));
  EXPECT(&wide, 0, 1, 0, 7, 0, 1);
  hr_tensor_release(&wide);
}

HR_TEST(values_are_converted_and_broadcast) {
  hr_tensor x = {0}, ones = counted(DIMS(1, 1, 3)), bad = counted(DIMS(2));
  HR_ASSERT_OK(
      hr_array_from_host(stream, HR_DTYPE_I32, 2, (const int64_t[]){2, 3}, (const int32_t[]){9, 9, 9, 9, 9, 9}, &x));
  HR_ASSERT_OK(hr_array_assign(stream, &x, INDEX(AT(1)), &ones));
  int32_t values[6];
  HR_ASSERT_OK(hr_array_read(stream, &x, values));
  HR_ASSERT(values[0] == 9 && values[2] == 9 && values[3] == 0 && values[5] == 2);
  HR_ASSERT_ERROR(hr_array_assign(stream, &x, INDEX(AT(0)), &bad), HR_STATUS_INVALID_ARGUMENT, "can't be broadcast");
  HR_ASSERT_ERROR(hr_array_assign(stream, &x, INDEX(AT(2)), &ones), HR_STATUS_OUT_OF_RANGE, "index 2");
  HR_ASSERT_OK(hr_array_read(stream, &x, values));
  HR_ASSERT(values[0] == 9 && values[5] == 2);
  hr_tensor_release(&x), hr_tensor_release(&ones), hr_tensor_release(&bad);
}

HR_TEST(addresses_and_other_streams_make_a_buffer_shared) {
  hr_tensor x = counted(DIMS(4));
  void *address;
  HR_ASSERT(hr_buffer_is_unique(stream, x.buffer)); /* with its write pending */
  HR_ASSERT_OK(hr_stream_commit(stream));
  HR_ASSERT(hr_buffer_is_unique(stream, x.buffer)); /* on its way */
  HR_ASSERT_OK(hr_stream_synchronize(stream));
  HR_ASSERT(hr_buffer_is_unique(stream, x.buffer));
  hr_buffer_retain(x.buffer);
  HR_ASSERT(!hr_buffer_is_unique(stream, x.buffer));
  hr_buffer_release(x.buffer);
  hr_stream *other;
  HR_ASSERT_OK(hr_stream_create(device, &other));
  hr_tensor y = {0};
  HR_ASSERT_OK(hr_array_unary(other, HR_FUNCTIONAL_NEGATIVE, &x, &y));
  HR_ASSERT(!hr_buffer_is_unique(stream, x.buffer));
  HR_ASSERT_OK(hr_stream_synchronize(other));
  HR_ASSERT(hr_buffer_is_unique(stream, x.buffer));
  hr_tensor_release(&y);
  hr_stream_release(other);
  HR_ASSERT_OK(hr_stream_address(stream, x.buffer, &address));
  HR_ASSERT(!hr_buffer_is_unique(stream, x.buffer));
  hr_tensor_release(&x);
}

HR_TEST(deferred_failures_are_reported_by_the_wait) {
  hr_tensor x = counted(DIMS(4)), index = {0}, taken;
  const int64_t wrong[2] = {1, 9};
  float values[2];
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_I64, 1, (const int64_t[]){2}, wrong, &index));
  const hr_tensor *inputs[2] = {&x, &index};
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_TAKE, 2, inputs, 0, NULL, 1, &taken));
  HR_ASSERT_ERROR(hr_array_read(stream, &taken, values), HR_STATUS_OUT_OF_RANGE,
                  "index 9 is out of bounds for dimension with size 4");
  hr_tensor_release(&x), hr_tensor_release(&index), hr_tensor_release(&taken);
}
