/* Products over named dims and reductions of several records, against plain loops. */
#include "functional/functional_test.h"

/* ---- einsum against loops over all letters ---- */

/* Elements 1, 2, 3, ... modulo 7, less 3, as a view with turned dims. */
static hr_tensor turned(int rank, const int64_t *dims) {
  float values[MOST];
  int64_t reversed[HR_RANK_MAX], axes[HR_RANK_MAX];
  for (int i = 0; i < MOST; ++i) {
    values[i] = (float)(i * 5 % 7 - 3);
  }
  for (int d = 0; d < rank; ++d) {
    reversed[d] = dims[rank - 1 - d], axes[d] = rank - 1 - d;
  }
  hr_tensor whole = tensor_of(HR_DTYPE_F32, rank, reversed, values);
  hr_attribute given = {.kind = HR_ATTRIBUTE_INTS, .count = rank, .value = {.ints = axes}};
  hr_tensor x = apply(HR_FUNCTIONAL_PERMUTE_DIMS, ON(&whole), 1, &given);
  hr_tensor_release(&whole);
  return x;
}

/* The row-major place of the letters' indices in a term, of which `end` is the first character behind. */
static int64_t place_in(const char *term, const char *end, const int64_t *index, const int64_t *sizes) {
  int64_t place = 0;
  for (; term != end; ++term) {
    place = place * sizes[*term - 'a'] + index[*term - 'a'];
  }
  return place;
}

static const char *end_of(const char *term) {
  return term + strcspn(term, ",-");
}

/* The sums over all indices of all letters. */
static int64_t plain_einsum(const char *equation, float values[][MOST], const int64_t *sizes, float *out) {
  const char *result = strstr(equation, "->") + 2;
  int64_t index[26], all = 1, count = 1;
  for (int l = 0; l < 26; ++l) {
    all *= sizes[l];
  }
  for (const char *letter = result; *letter != 0; ++letter) {
    count *= sizes[*letter - 'a'];
  }
  memset(out, 0, (size_t)count * sizeof *out);
  for (int64_t i = 0; i < all; ++i) {
    int64_t rest = i;
    for (int l = 0; l < 26; ++l) {
      index[l] = rest % sizes[l];
      rest /= sizes[l];
    }
    float product = 1;
    int operand = 0;
    for (const char *term = equation; *term != '-'; term = end_of(term) + (*end_of(term) == ',')) {
      product *= values[operand++][place_in(term, end_of(term), index, sizes)];
    }
    out[place_in(result, result + strlen(result), index, sizes)] += product;
  }
  return count;
}

static void check_einsum(const char *equation) {
  static float values[8][MOST], expected[MOST];
  int64_t sizes[26];
  hr_tensor operands[8];
  const hr_tensor *pointers[8];
  int count = 0;
  for (int l = 0; l < 26; ++l) {
    sizes[l] = strchr(equation, 'a' + l) != NULL ? 2 + l % 3 : 1;
  }
  for (const char *term = equation; *term != '-'; term = end_of(term) + (*end_of(term) == ',')) {
    int64_t dims[HR_RANK_MAX];
    int rank = 0;
    for (const char *letter = term; letter != end_of(term); ++letter) {
      dims[rank++] = sizes[*letter - 'a'];
    }
    operands[count] = turned(rank, dims);
    pointers[count] = &operands[count];
    read(&operands[count], values[count]);
    ++count;
  }
  hr_attribute text = {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = equation}};
  hr_tensor y = apply(HR_FUNCTIONAL_EINSUM, count, pointers, 1, &text);
  expect_values(&y, plain_einsum(equation, values, sizes, expected), expected);
  hr_tensor_release(&y);
  for (int i = 0; i < count; ++i) {
    hr_tensor_release(&operands[i]);
  }
}

HR_TEST(einsum_against_loops_over_all_letters) {
  static const char *const equations[] = {
      "ij,jk->ik",   "ij,jk->ki",  "bij,bjk->bik", "i,j->ij",        "i,i->",           "ij->ji",    "ij->",
      "ii->i",       "ii->",       "iij->j",       "abc,cd,de->abe", "bhqd,bhkd->bhqk", "ab,ab->ab", "ab,ab->a",
      "abc,dce->ad", "a,b,c->cab", "ijk,jil->kl",  "aab,bc->ca",     "abcd,dcef->fabe", "ab,cd->",   "a,ab,b->",
      "abc,b->ac",   ",a->a",      "abc->b"};
  for (size_t i = 0; i < sizeof equations / sizeof *equations; ++i) {
    check_einsum(equations[i]);
  }
}

static void fail_einsum(const char *message, const char *equation, int count, const hr_tensor *const *inputs) {
  hr_attribute text = {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = equation}};
  expect_failure(message, HR_FUNCTIONAL_EINSUM, count, inputs, 1, &text);
}

HR_TEST(einsum_reports_what_is_wrong_with_an_equation) {
  hr_tensor x = counted(DIMS(2, 3)), y = counted(DIMS(2, 4));
  hr_attribute text = {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = "ba"}};
  hr_tensor sorted = apply(HR_FUNCTIONAL_EINSUM, ON(&x), 1, &text);
  expect_type(&sorted, HR_DTYPE_F32, DIMS(3, 2));
  fail_einsum("term 0 of \"i->i\" has not the 2 letters", "i->i", ON(&x));
  fail_einsum("\"ij,jk->k\" has more terms than the 1 operands", "ij,jk->k", ON(&x));
  fail_einsum("\"ij\" has fewer terms than the 2 operands", "ij", ON(&x, &y));
  fail_einsum("dim 1 of operand 1 has size 4, expected 3", "ij,ij->ij", ON(&x, &y));
  fail_einsum("a letter twice or one of no operand", "ij->ik", ON(&x));
  fail_einsum("a letter twice or one of no operand", "ij->ii", ON(&x));
  fail_einsum("term 0 of \"..j\" has not", "..j", ON(&x));
  fail_einsum("term 0 of \"...j...\" has not", "...j...", ON(&x));
  fail_einsum("term 0 of \"...ijk\" has not", "...ijk", ON(&x));
  fail_einsum("dim 0 of operand 1 has size 2, expected 3", "...,...j->...j", ON(&x, &y));
  fail_einsum("has no result", "ij->i,", ON(&x));
  RELEASE(&x, &y, &sorted);
}

static hr_tensor einsum(const char *equation, int count, const hr_tensor *const *inputs) {
  hr_attribute text = {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = equation}};
  return apply(HR_FUNCTIONAL_EINSUM, count, inputs, 1, &text);
}

HR_TEST(einsum_broadcasts_dims_without_names) {
  hr_tensor x = counted(DIMS(2, 1, 2, 3)), y = counted(DIMS(2, 3, 2)),
            v = tensor_of(HR_DTYPE_F32, DIMS(3), F32(1, 2, 3));
  const hr_tensor *both[2] = {&x, &y};
  hr_tensor z = einsum("...ij,...jk->...ik", 2, both), product = apply(HR_FUNCTIONAL_MATMUL, 2, both, PLAIN);
  float expected[MOST];
  expect_type(&z, HR_DTYPE_F32, DIMS(2, 2, 2, 2));
  read(&product, expected);
  expect_values(&z, 16, expected);
  hr_tensor_release(&z);
  z = einsum("...ij,...jk", 2, both);
  expect_values(&z, 16, expected);
  hr_tensor_release(&z);
  GIVES(einsum("...j,j->...", ON(&x, &v)), 8, 26, 44, 62);
  GIVES(einsum("...,...", ON(&v, &v)), 1, 4, 9);
  GIVES(einsum("...j->j", ON(&x)), 18, 22, 26);
  z = einsum("i...->...i", ON(&y));
  expect_type(&z, HR_DTYPE_F32, DIMS(3, 2, 2));
  EXPECT(&z, 0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11);
  hr_tensor_release(&z);
  z = einsum("...,", ON(&x, &(hr_tensor){.dtype = HR_DTYPE_F32, .buffer = v.buffer, .offset = 1}));
  expect_type(&z, HR_DTYPE_F32, DIMS(2, 1, 2, 3));
  EXPECT(&z, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22);
  RELEASE(&x, &y, &v, &z, &product);
}

/* ---- products of two tensors ---- */

HR_TEST(products_of_two_tensors) {
  hr_tensor x = counted(DIMS(2, 3)), y = counted(DIMS(3, 2)), v = tensor_of(HR_DTYPE_F32, DIMS(3), F32(1, 2, 3)), z;
  GIVES(apply(HR_FUNCTIONAL_TENSORDOT, ON(&x, &y), WITH(INTS_OF(1), INTS_OF(0))), 10, 13, 28, 40);
  GIVES(apply(HR_FUNCTIONAL_TENSORDOT, ON(&x, &x), WITH(INTS_OF(0, 1), INTS_OF(0, 1))), 55);
  GIVES(apply(HR_FUNCTIONAL_TENSORDOT, ON(&x, &x), PLAIN), 55);
  GIVES(apply(HR_FUNCTIONAL_INNER, ON(&x, &v), PLAIN), 8, 26);
  z = apply(HR_FUNCTIONAL_OUTER, ON(&y, &v), PLAIN);
  expect_type(&z, HR_DTYPE_F32, DIMS(6, 3));
  hr_tensor_release(&z);
  GIVES(apply(HR_FUNCTIONAL_OUTER, ON(&v, &v), PLAIN), 1, 2, 3, 2, 4, 6, 3, 6, 9);
  z = apply(HR_FUNCTIONAL_KRON, ON(&v, &x), PLAIN);
  expect_type(&z, HR_DTYPE_F32, DIMS(2, 9));
  EXPECT(&z, 0, 1, 2, 0, 2, 4, 0, 3, 6, 3, 4, 5, 6, 8, 10, 9, 12, 15);
  hr_tensor_release(&z);
  GIVES(apply(HR_FUNCTIONAL_VECDOT, ON(&x, &v), PLAIN), 8, 26);
  hr_tensor columns = apply(HR_FUNCTIONAL_SWAPAXES, ON(&x), PLAIN);
  GIVES(apply(HR_FUNCTIONAL_VECDOT, ON(&columns, &columns), WITH(INT_OF(0))), 5, 50);
  GIVES(apply(HR_FUNCTIONAL_CROSS, ON(&x, &v), PLAIN), -1, 2, -1, 2, -4, 2);
  hr_tensor i = tensor_of(HR_DTYPE_C64, DIMS(2), F32(0, 1, 2, 0));
  GIVES(apply(HR_FUNCTIONAL_VECDOT, ON(&i, &i), PLAIN), 5);
  expect_failure("axis 1 of x has size 3, axis 1 of y 2", HR_FUNCTIONAL_TENSORDOT, ON(&x, &y),
                 WITH(INTS_OF(1), INTS_OF(1)));
  expect_failure("an axis is given twice", HR_FUNCTIONAL_TENSORDOT, ON(&x, &x), WITH(INTS_OF(1, 1), INTS_OF(1, 1)));
  expect_failure("1 axes of x and 0 of y", HR_FUNCTIONAL_TENSORDOT, ON(&x, &y), WITH(INTS_OF(1)));
  expect_failure("cross: axis 1 has size 2, expected 3", HR_FUNCTIONAL_CROSS, ON(&y, &y), PLAIN);
  expect_failure("vecdot: axis -1 is out of range for 0 dims", HR_FUNCTIONAL_VECDOT,
                 ON(&(hr_tensor){.dtype = HR_DTYPE_F32, .buffer = x.buffer}, &v), PLAIN);
  hr_tensor none = counted(DIMS(0, 3));
  z = apply(HR_FUNCTIONAL_INNER, ON(&none, &v), PLAIN);
  expect_type(&z, HR_DTYPE_F32, DIMS(0));
  RELEASE(&x, &y, &v, &z, &columns, &i, &none);
}

HR_TEST(diagonals_and_moved_dims) {
  hr_tensor x = counted(DIMS(3, 4)), y;
  y = apply(HR_FUNCTIONAL_DIAGONAL, ON(&x), WITH(INT_OF(2)));
  HR_ASSERT(y.buffer == x.buffer);
  EXPECT(&y, 2, 7);
  hr_tensor_release(&y);
  GIVES(apply(HR_FUNCTIONAL_DIAGONAL, ON(&x), WITH(INT_OF(-1))), 4, 9);
  GIVES(apply(HR_FUNCTIONAL_TRACE, ON(&x), PLAIN), 15);
  y = apply(HR_FUNCTIONAL_DIAGONAL, ON(&x), WITH(INT_OF(9)));
  expect_type(&y, HR_DTYPE_F32, DIMS(0));
  hr_tensor_release(&y);
  hr_tensor v = tensor_of(HR_DTYPE_F32, DIMS(2), F32(NAN, 5));
  GIVES(apply(HR_FUNCTIONAL_DIAG, ON(&v), PLAIN), NAN, 0, 0, 5);
  GIVES(apply(HR_FUNCTIONAL_DIAG, ON(&v), WITH(INT_OF(-1))), 0, 0, 0, NAN, 0, 0, 0, 5, 0);
  GIVES(apply(HR_FUNCTIONAL_REPEAT, ON(&v), WITH(INT_OF(2))), NAN, NAN, 5, 5);
  y = apply(HR_FUNCTIONAL_REPEAT, ON(&x), WITH(INT_OF(0), INT_OF(0)));
  expect_type(&y, HR_DTYPE_F32, DIMS(0, 4));
  hr_tensor_release(&y);
  hr_tensor cube = counted(DIMS(2, 3, 4));
  y = apply(HR_FUNCTIONAL_MOVEAXIS, ON(&cube), PLAIN);
  expect_type(&y, HR_DTYPE_F32, DIMS(3, 4, 2));
  HR_ASSERT(y.buffer == cube.buffer);
  GIVES(apply(HR_FUNCTIONAL_LINSPACE, 0, NULL, WITH(REAL_OF(hr_scalar_i64(1)), REAL_OF(hr_scalar_i64(2)), INT_OF(5))),
        1, 1.25F, 1.5F, 1.75F, 2);
  GIVES(apply(HR_FUNCTIONAL_LINSPACE, 0, NULL, WITH(DEFAULT, DEFAULT, INT_OF(4), FLAG_OF(0))), 0, 0.25F, 0.5F, 0.75F);
  GIVES(apply(HR_FUNCTIONAL_LINSPACE, 0, NULL, WITH(REAL_OF(hr_scalar_i64(3)), DEFAULT, INT_OF(1))), 3);
  expect_failure("diagonal: axis 1 is given twice", HR_FUNCTIONAL_DIAGONAL, ON(&x), WITH(INT_OF(0), INT_OF(1)));
  expect_failure("diag: 2 dims, expected 1", HR_FUNCTIONAL_DIAG, ON(&x), PLAIN);
  RELEASE(&x, &y, &v, &cube);
}

/* ---- reductions ---- */

HR_TEST(reductions_without_nan) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2, 3), F32(1, NAN, 3, NAN, NAN, NAN)), y;
  hr_attribute axis = INTS_OF(1);
  GIVES(apply(HR_FUNCTIONAL_NANSUM, ON(&x), 1, &axis), 4, 0);
  GIVES(apply(HR_FUNCTIONAL_NANPROD, ON(&x), 1, &axis), 3, 1);
  GIVES(apply(HR_FUNCTIONAL_NANMAX, ON(&x), 1, &axis), 3, NAN);
  GIVES(apply(HR_FUNCTIONAL_NANMIN, ON(&x), 1, &axis), 1, NAN);
  GIVES(apply(HR_FUNCTIONAL_NANMEAN, ON(&x), 1, &axis), 2, NAN);
  GIVES(apply(HR_FUNCTIONAL_NANVAR, ON(&x), 1, &axis), 1, NAN);
  GIVES(apply(HR_FUNCTIONAL_NANSTD, ON(&x), WITH(INTS_OF(1), DEFAULT, REAL_OF(hr_scalar_i64(1)))), 1.41421356F, NAN);
  GIVES(apply(HR_FUNCTIONAL_COUNT_NONZERO, ON(&x), PLAIN), 6);
  y = apply(HR_FUNCTIONAL_NANMEAN, ON(&x), WITH(DEFAULT, FLAG_OF(1)));
  expect_type(&y, HR_DTYPE_F32, DIMS(1, 1));
  EXPECT(&y, 2);
  hr_tensor_release(&y);
  hr_tensor integers = tensor_of(HR_DTYPE_I32, DIMS(2), (const int32_t[]){-7, 4});
  GIVES(apply(HR_FUNCTIONAL_NANMAX, ON(&integers), PLAIN), 4);
  GIVES(apply(HR_FUNCTIONAL_NANSUM, ON(&integers), PLAIN), -3);
  GIVES(apply(HR_FUNCTIONAL_PTP, ON(&integers), PLAIN), 11);
  GIVES(apply(HR_FUNCTIONAL_VECTOR_NORM, ON(&integers), PLAIN), 8.06225775F);
  RELEASE(&x, &integers);
}

HR_TEST(norms_quantiles_and_differences) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(2, 4), F32(3, -4, 0, 1, 8, 2, NAN, 6)), y;
  hr_attribute rows[3] = {INTS_OF(1), FLAG_OF(0), REAL_OF(hr_scalar_i64(1))};
  hr_tensor z = apply(HR_FUNCTIONAL_NAN_TO_NUM, ON(&x), PLAIN);
  GIVES(apply(HR_FUNCTIONAL_VECTOR_NORM, ON(&z), 1, rows), 5.09901951F, 10.19803903F);
  GIVES(apply(HR_FUNCTIONAL_VECTOR_NORM, ON(&z), 3, rows), 8, 16);
  rows[2].value.number = hr_scalar_i64(0);
  GIVES(apply(HR_FUNCTIONAL_VECTOR_NORM, ON(&z), 3, rows), 3, 3);
  rows[2].value.number = hr_scalar_f64((double)INFINITY);
  GIVES(apply(HR_FUNCTIONAL_VECTOR_NORM, ON(&z), 3, rows), 4, 8);
  rows[2].value.number = hr_scalar_i64(3);
  GIVES(apply(HR_FUNCTIONAL_VECTOR_NORM, ON(&z), 3, rows), 4.51435744F, 9.02871489F);
  GIVES(apply(HR_FUNCTIONAL_MEDIAN, ON(&x), 1, rows), 0.5F, NAN);
  GIVES(apply(HR_FUNCTIONAL_MEDIAN, ON(&z), PLAIN), 1.5F);
  y = apply(HR_FUNCTIONAL_QUANTILE, ON(&z), WITH(INTS_OF(0), FLAG_OF(1), REAL_OF(hr_scalar_f64(0.25))));
  expect_type(&y, HR_DTYPE_F32, DIMS(1, 4));
  EXPECT(&y, 4.25F, -2.5F, 0, 2.25F);
  GIVES(apply(HR_FUNCTIONAL_DIFF, ON(&z), PLAIN), -7, 4, 1, -6, -2, 6);
  GIVES(apply(HR_FUNCTIONAL_DIFF, ON(&z), WITH(INT_OF(2))), 11, -3, 4, 8);
  GIVES(apply(HR_FUNCTIONAL_TRAPEZOID, ON(&z), WITH(REAL_OF(hr_scalar_f64(0.5)))), -1, 4.5F);
  GIVES(apply(HR_FUNCTIONAL_CUMULATIVE_MAX, ON(&x), PLAIN), 3, 3, 3, 3, 8, 8, NAN, NAN);
  GIVES(apply(HR_FUNCTIONAL_CUMULATIVE_MIN, ON(&z), WITH(INT_OF(0))), 3, -4, 0, 1, 3, -4, 0, 1);
  GIVES(apply(HR_FUNCTIONAL_COV, ON(&z), PLAIN), 8.66666667F, 7.33333333F, 7.33333333F, 13.33333333F);
  hr_tensor none = counted(DIMS(0));
  expect_failure("quantile: q is 0.5 of 0 elements", HR_FUNCTIONAL_QUANTILE, ON(&none), PLAIN);
  expect_failure("quantile: q is 2 of 8 elements", HR_FUNCTIONAL_QUANTILE, ON(&z),
                 WITH(DEFAULT, DEFAULT, REAL_OF(hr_scalar_i64(2))));
  expect_failure("diff: n is -1, expected 0 to 8", HR_FUNCTIONAL_DIFF, ON(&z), WITH(INT_OF(-1)));
  hr_tensor short_one = apply(HR_FUNCTIONAL_DIFF, ON(&none), PLAIN);
  expect_type(&short_one, HR_DTYPE_F32, DIMS(0));
  RELEASE(&x, &y, &z, &none, &short_one);
}

HR_TEST(running_sums_with_their_first_number) {
  hr_tensor x = counted(DIMS(2, 3)), none = counted(DIMS(2, 0)), y;
  hr_attribute initial[2] = {INT_OF(1), FLAG_OF(1)};
  GIVES(apply(HR_FUNCTIONAL_CUMULATIVE_SUM, ON(&x), 2, initial), 0, 0, 1, 3, 0, 3, 7, 12);
  GIVES(apply(HR_FUNCTIONAL_CUMULATIVE_PROD, ON(&x), WITH(INT_OF(0), FLAG_OF(1))), 1, 1, 1, 0, 1, 2, 0, 4, 10);
  GIVES(apply(HR_FUNCTIONAL_CUMULATIVE_PROD, ON(&none), 2, initial), 1, 1);
  hr_tensor integers = tensor_of(HR_DTYPE_I32, DIMS(2), (const int32_t[]){3, 4});
  y = apply(HR_FUNCTIONAL_CUMULATIVE_SUM, ON(&integers), WITH(DEFAULT, FLAG_OF(1)));
  expect_type(&y, HR_DTYPE_I64, DIMS(3));
  EXPECT(&y, 0, 3, 7);
  RELEASE(&x, &none, &integers, &y);
}

HR_TEST(rounding_to_decimals) {
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(7), F32(0.125F, -2.375F, 25, 35, INFINITY, NAN, 1e30F));
  GIVES(apply(HR_FUNCTIONAL_ROUND, ON(&x), WITH(INT_OF(2))), 0.12F, -2.38F, 25, 35, INFINITY, NAN, 1e30F);
  GIVES(apply(HR_FUNCTIONAL_ROUND, ON(&x), WITH(INT_OF(-1))), 0, 0, 20, 40, INFINITY, NAN, 1e30F);
  hr_tensor integers = tensor_of(HR_DTYPE_I32, DIMS(6), (const int32_t[]){15, 25, -15, -25, 26, -14});
  GIVES(apply(HR_FUNCTIONAL_ROUND, ON(&integers), WITH(INT_OF(-1))), 20, 20, -20, -20, 30, -10);
  GIVES(apply(HR_FUNCTIONAL_ROUND, ON(&integers), WITH(INT_OF(3))), 15, 25, -15, -25, 26, -14);
  expect_failure("round: 23 decimals, expected -18 to 22", HR_FUNCTIONAL_ROUND, ON(&x), WITH(INT_OF(23)));
  RELEASE(&x, &integers);
}
