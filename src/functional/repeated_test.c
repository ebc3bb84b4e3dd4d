/* Padding with elements of x and with spaces, and parts of x, against the places of the elements that they show. */
#include "functional/functional_test.h"

/* ---- borders ---- */

enum { EDGE, REFLECT, SYMMETRIC, WRAP, KINDS };
static const hr_functional functions[KINDS] = {HR_FUNCTIONAL_PAD_EDGE, HR_FUNCTIONAL_PAD_REFLECT,
                                               HR_FUNCTIONAL_PAD_SYMMETRIC, HR_FUNCTIONAL_PAD_WRAP};

/* The place among n elements that place `at` of the infinite extension shows. */
static int place_of(int kind, int at, int n) {
  int ends = kind == REFLECT ? 1 : 0, period = kind == WRAP ? n : 2 * (n - ends);
  if (kind == EDGE || period == 0) {
    return at < 0 ? 0 : at < n ? at : n - 1;
  }
  at = ((at % period) + period) % period;
  return at < n ? at : 2 * n - 1 - ends - at;
}

static void expect_border(int kind, int n, int before, int after) {
  hr_tensor x = counted(DIMS(2, n)), y;
  int crop = before < 0 ? -before : 0, size = n + before + after;
  int inner = n - crop - (after < 0 ? -after : 0), lead = before > 0 ? before : 0;
  float expected[MOST];
  for (int i = 0; i < 2 * size; ++i) {
    expected[i] = (float)(i / size * n + crop + place_of(kind, i % size - lead, inner));
  }
  y = apply(functions[kind], ON(&x), WITH(INTS_OF(0, before), INTS_OF(0, after)));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, size));
  expect_values(&y, 2 * size, expected);
  RELEASE(&x, &y);
}

HR_TEST(borders_of_any_width) {
  for (int kind = 0; kind < KINDS; ++kind) {
    for (int n = 1; n <= 4; ++n) {
      for (int side = 0; side < 14 * 14; ++side) {
        int before = side / 14, after = side % 14;
        expect_border(kind, n, before - (n > 2), after - (n > 3));
      }
    }
  }
}

HR_TEST(borders_of_several_dims_and_of_single_elements) {
  hr_tensor x = counted(DIMS(2, 1, 3)), y;
  y = apply(HR_FUNCTIONAL_PAD_REFLECT, ON(&x), WITH(INTS_OF(1, 2, 0), INTS_OF(0, 0, 3)));
  expect_type(&y, HR_DTYPE_F32, DIMS(3, 3, 6));
  for (int plane = 0; plane < 3; ++plane) {
    for (int row = 0; row < 3; ++row) {
      float first = plane == 1 ? 0 : 3;
      hr_tensor line = y;
      line.rank = 1, line.dims[0] = 6, line.strides[0] = 1, line.offset = 18 * plane + 6 * row;
      EXPECT(&line, first, first + 1, first + 2, first + 1, first, first + 1);
    }
  }
  hr_tensor_release(&y);
  hr_tensor empty = counted(DIMS(0, 2));
  GIVES(apply(HR_FUNCTIONAL_PAD_WRAP, ON(&x), WITH(INTS_OF(0, 0, 0), INTS_OF(0, 0, 0))), 0, 1, 2, 3, 4, 5);
  y = apply(HR_FUNCTIONAL_PAD_WRAP, ON(&empty), WITH(INTS_OF(0, 1), INTS_OF(0, 1)));
  expect_type(&y, HR_DTYPE_F32, DIMS(0, 4));
  expect_failure("pad_wrap: dim 0 without elements gets 1 before and 0 after", HR_FUNCTIONAL_PAD_WRAP, ON(&empty),
                 WITH(INTS_OF(1, 0), INTS_OF(0, 0)));
  expect_failure("pad_edge: -2 before and -1 after of dim 0 with 2 elements", HR_FUNCTIONAL_PAD_EDGE, ON(&x),
                 WITH(INTS_OF(-2, 0, 0), INTS_OF(-1, 0, 0)));
  expect_failure("pad_symmetric: 2147483648 before", HR_FUNCTIONAL_PAD_SYMMETRIC, ON(&x),
                 WITH(INTS_OF(0, 0, 2147483648), INTS_OF(0, 0, 0)));
  expect_failure("pad_reflect: 2 and 3 integers for 3 dims", HR_FUNCTIONAL_PAD_REFLECT, ON(&x),
                 WITH(INTS_OF(1, 1), INTS_OF(0, 0, 0)));
  RELEASE(&x, &y, &empty);
}

/* ---- spaces ---- */

HR_TEST(elements_between_neighbours_and_cropped_sides) {
  hr_tensor x = counted(DIMS(2, 3)), empty = counted(DIMS(0, 1)), y;
  hr_attribute value = REAL_OF(hr_scalar_i64(9));
  y = apply(HR_FUNCTIONAL_PAD, ON(&x), WITH(INTS_OF(0, 1), INTS_OF(0, 0), value, INTS_OF(1, 0)));
  expect_type(&y, HR_DTYPE_F32, DIMS(3, 4));
  EXPECT(&y, 9, 0, 1, 2, 9, 9, 9, 9, 9, 3, 4, 5);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_PAD, ON(&x), WITH(INTS_OF(0, -2), INTS_OF(-1, 1), value, INTS_OF(0, 2)));
  expect_type(&y, HR_DTYPE_F32, DIMS(1, 6));
  EXPECT(&y, 9, 1, 9, 9, 2, 9);
  hr_tensor_release(&y);
  y = apply(HR_FUNCTIONAL_PAD, ON(&empty), WITH(INTS_OF(1, 0), INTS_OF(1, 0), value, INTS_OF(5, 5)));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 1));
  EXPECT(&y, 9, 9);
  expect_failure("pad: -1 elements of interior in dim 1, expected 0 to 2147483646", HR_FUNCTIONAL_PAD, ON(&x),
                 WITH(INTS_OF(0, 0), INTS_OF(0, 0), value, INTS_OF(0, -1)));
  expect_failure("pad: 1 integers of interior for 2 dims", HR_FUNCTIONAL_PAD, ON(&x),
                 WITH(INTS_OF(0, 0), INTS_OF(0, 0), value, INTS_OF(1)));
  expect_failure("pad: dim 1: 5 + -6 before", HR_FUNCTIONAL_PAD, ON(&x),
                 WITH(INTS_OF(0, -6), INTS_OF(0, 0), value, INTS_OF(0, 1)));
  RELEASE(&x, &y, &empty);
}

/* ---- parts ---- */

HR_TEST(parts_of_equal_size_and_between_indices) {
  hr_tensor x = counted(DIMS(2, 5)), parts[32];
  const hr_tensor *given = &x;
  const hr_attribute three[2] = {INT_OF(-1), INT_OF(3)};
  int count = 0;
  HR_ASSERT_OK(hr_functional_result_count(HR_FUNCTIONAL_ARRAY_SPLIT, 1, &given, 2, three, &count));
  HR_ASSERT_EQ(count, 3);
  apply_all(HR_FUNCTIONAL_ARRAY_SPLIT, 1, &given, 2, three, 3, parts);
  EXPECT(&parts[0], 0, 1, 5, 6);
  EXPECT(&parts[1], 2, 3, 7, 8);
  EXPECT(&parts[2], 4, 9);
  RELEASE(&parts[0], &parts[1], &parts[2]);
  const hr_attribute between[3] = {INT_OF(1), DEFAULT, INTS_OF(-1, 2, 9)};
  apply_all(HR_FUNCTIONAL_ARRAY_SPLIT, 1, &given, 3, between, 4, parts);
  EXPECT(&parts[0], 0, 1, 2, 3, 5, 6, 7, 8);
  expect_type(&parts[1], HR_DTYPE_F32, DIMS(2, 0));
  EXPECT(&parts[2], 2, 3, 4, 7, 8, 9);
  expect_type(&parts[3], HR_DTYPE_F32, DIMS(2, 0));
  RELEASE(&parts[0], &parts[1], &parts[2], &parts[3]);
  int64_t many[31] = {1, 2, 3, 4};
  for (int i = 4; i < 31; ++i) {
    many[i] = 5;
  }
  const hr_attribute list[3] = {INT_OF(1), DEFAULT, {.kind = HR_ATTRIBUTE_INTS, .count = 31, .value = {.ints = many}}};
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_ARRAY_SPLIT, 1, &given, 3, list, 32, parts));
  EXPECT(&parts[4], 4, 9);
  for (int i = 0; i < 32; ++i) {
    HR_ASSERT_EQ(parts[i].dims[1], i < 5);
    hr_tensor_release(&parts[i]);
  }
  expect_failure("array_split: 0 sections, expected 1", HR_FUNCTIONAL_ARRAY_SPLIT, ON(&x), WITH(INT_OF(0), INT_OF(0)));
  expect_failure("array_split: neither sections nor indices, expected one of both", HR_FUNCTIONAL_ARRAY_SPLIT, ON(&x),
                 PLAIN);
  hr_tensor_release(&x);
}

/* ---- repetitions ---- */

/* The place in x of the element `at` of x repeated. */
static int place_in_tile(int at, int rank, const int64_t *dims, const int64_t *counts) {
  int place = 0;
  for (int d = rank - 1, step = 1; d >= 0; --d) {
    int size = (int)(dims[d] * counts[d]);
    place += at % size % (int)dims[d] * step;
    at /= size, step *= (int)dims[d];
  }
  return place;
}

static void expect_tile(int rank, const int64_t *dims, const int64_t *counts) {
  hr_tensor x = counted(rank, dims);
  int64_t sizes[HR_RANK_MAX];
  int all = 1;
  for (int d = 0; d < rank; ++d) {
    sizes[d] = dims[d] * counts[d], all *= (int)sizes[d];
  }
  float expected[MOST];
  HR_ASSERT(all <= MOST);
  for (int i = 0; i < all; ++i) {
    expected[i] = (float)place_in_tile(i, rank, dims, counts);
  }
  const hr_attribute times = {.kind = HR_ATTRIBUTE_INTS, .count = rank, .value = {.ints = counts}};
  hr_tensor y = apply(HR_FUNCTIONAL_TILE, ON(&x), 1, &times);
  expect_type(&y, HR_DTYPE_F32, rank, sizes);
  expect_values(&y, all, expected);
  RELEASE(&x, &y);
}

HR_TEST(repetitions_of_many_dims) {
  const int64_t twos[HR_RANK_MAX] = {2, 2, 2, 2, 2, 2, 2, 2},
                ones[HR_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  int64_t dims[HR_RANK_MAX], counts[HR_RANK_MAX];
  for (int rank = 1; rank < HR_RANK_MAX; ++rank) {
    for (int shift = 0; shift < 4; ++shift) {
      for (int d = 0; d < rank; ++d) {
        dims[d] = d % 4 == shift ? 2 : 1;
        counts[d] = (d + shift) % 3 == 0 ? 2 : 1;
      }
      expect_tile(rank, dims, counts);
    }
  }
  expect_tile(8, ones, twos);
  expect_tile(HR_RANK_MAX, ones, ones);
  hr_tensor x = counted(HR_RANK_MAX, ones);
  const hr_attribute times = {.kind = HR_ATTRIBUTE_INTS, .count = HR_RANK_MAX, .value = {.ints = twos}};
  expect_failure("tile: repetitions of 16 dims, expected at most 15", HR_FUNCTIONAL_TILE, ON(&x), 1, &times);
  hr_tensor_release(&x);
}
