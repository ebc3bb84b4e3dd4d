/* linear.c: Cholesky and LU factors, linear systems, determinants. */
#include "functional/matrices.h"

/* ---- Cholesky ---- */

hr_status hr__emit_cholesky(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  bool is_upper = hr__int_attribute(c, 0) != 0;
  const hr_tensor *a = hr__square_matrices(&f, 0), *x = hr__columns(&f, a);
  if (hr__formula_failed(&f) || hr_tensor_count(x) == 0) {
    return hr__formula_end(&f, x);
  }
  /* The lower triangle is read for both: the upper factor is the adjoint of the lower one. */
  const int64_t lower = 0;
  hr_attrs attrs = {.int_count = 1, .ints = &lower};
  hr_tensor *outputs[2] = {hr__output(&f, HR_DTYPE_NONE, 0, NULL), hr__output(&f, HR_DTYPE_NONE, 0, NULL)};
  hr__record_to(&f, HR_OP_CHOLESKY, &attrs, 1, &x, 2, outputs);
  hr__check_info(&f, outputs[1], "not positive-definite");
  const hr_tensor *factor = hr__transposed(&f, outputs[0]);
  const hr_attribute none = {.kind = HR_ATTRIBUTE_NONE};
  factor = hr__function(&f, HR_FUNCTIONAL_TRIL, 1, &factor, 1, &none);
  if (!is_upper) {
    return hr__formula_end(&f, factor);
  }
  return hr__formula_end(&f, hr__unary(&f, HR_OP_CONJ, hr__transposed(&f, factor)));
}

/* The row's matrices are column-major: its upper triangle is the upper one of x. */
hr_status hr__emit_cholesky_ex(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const int64_t is_upper = hr__int_attribute(c, 0) != 0;
  const hr_tensor *a = hr__square_matrices(&f, 0), *x = hr__columns(&f, a), *results[2] = {x, x};
  if (hr__formula_failed(&f)) {
    return hr__formula_finish(&f, 2, results);
  }
  if (hr_tensor_count(x) == 0) {
    results[1] = hr__filled(&f, 0, HR_DTYPE_I32, a->rank - 2, a->dims);
    return hr__formula_finish(&f, 2, results);
  }
  hr_attrs attrs = {.int_count = 1, .ints = &is_upper};
  hr_tensor *outputs[2] = {hr__output(&f, HR_DTYPE_NONE, 0, NULL), hr__output(&f, HR_DTYPE_NONE, 0, NULL)};
  hr__record_to(&f, HR_OP_CHOLESKY, &attrs, 1, &x, 2, outputs);
  results[0] = hr__transposed(&f, outputs[0]), results[1] = outputs[1];
  return hr__formula_finish(&f, 2, results);
}

/* ---- LU ---- */

typedef struct factors {
  const hr_tensor *lu, *pivots, *info; /* lu: transposed, dense */
} factors;

static factors factored(hr__formula *f, const hr_tensor *a) {
  const hr_tensor *x = hr__columns(f, a);
  hr_tensor *outputs[3];
  for (int i = 0; i < 3; ++i) {
    outputs[i] = hr__output(f, HR_DTYPE_NONE, 0, NULL);
  }
  hr__record_to(f, HR_OP_LU, NULL, 1, &x, 3, outputs);
  return (factors){outputs[0], outputs[1], outputs[2]};
}

static const hr_tensor *triangle(hr__formula *f, hr_functional function, const hr_tensor *x, int64_t k) {
  const hr_attribute diagonal = {.kind = HR_ATTRIBUTE_INT, .value = {.integer = k}};
  return hr__function(f, function, 1, &x, 1, &diagonal);
}

static const hr_tensor *permutation(hr__formula *f, const hr_tensor *pivots, int64_t rows) {
  if (hr__formula_failed(f)) {
    return pivots;
  }
  int64_t dims[HR_RANK_MAX];
  hr__copy_dims(pivots->rank, pivots->dims, dims);
  dims[pivots->rank - 1] = rows;
  hr_tensor *order = hr__output(f, HR_DTYPE_NONE, pivots->rank, dims);
  hr__record_to(f, HR_OP_LU_PERMUTATION, NULL, 1, &pivots, 1, &order);
  return order;
}

hr_status hr__emit_lu_permutation(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = hr__dense(&f, hr__as_dtype(&f, c->inputs[0], HR_DTYPE_I32));
  int64_t rows = hr__int_attribute(c, 0);
  if (x->rank == 0) {
    hr__formula_fail(&f, HR__CALL_FAIL(c, "pivots without dims"));
    return hr__formula_end(&f, x);
  }
  int64_t count = x->dims[x->rank - 1], dims[HR_RANK_MAX];
  rows = rows == -1 ? count : rows;
  if (rows < count) {
    hr__formula_fail(&f, HR__CALL_FAIL(c, "%lld rows for %lld pivots", (long long)rows, (long long)count));
  } else if (!hr__formula_failed(&f) && hr_tensor_count(x) == 0) {
    hr__copy_dims(x->rank, x->dims, dims);
    dims[x->rank - 1] = rows;
    return hr__formula_end(&f, hr__spread(&f, hr__counted(&f, rows, x->rank, x->rank - 1), x->rank, dims));
  }
  return hr__formula_end(&f, permutation(&f, x, rows));
}

hr_status hr__emit_lu(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__matrices(&f, 0);
  int64_t rows = hr__row_count(&f, a), columns = hr__column_count(&f, a), least = rows < columns ? rows : columns;
  if (hr__formula_failed(&f)) {
    return hr__formula_end(&f, a);
  }
  if (hr_tensor_count(a) == 0) {
    hr__formula_fail(&f, HR__CALL_FAIL(c, "matrices without elements"));
    return hr__formula_end(&f, a);
  }
  factors lu = factored(&f, a);
  const hr_tensor *order = permutation(&f, lu.pivots, rows);
  const hr_tensor *both = hr__transposed(&f, lu.lu), *lower, *upper;
  if (hr__formula_failed(&f)) {
    return hr__formula_end(&f, both);
  }
  lower = triangle(&f, HR_FUNCTIONAL_TRIL, hr__part(&f, both, a->rank - 1, 0, least), -1);
  lower = hr__binary(&f, HR_OP_ADD, lower, hr__identities(&f, a, rows, least));
  upper = triangle(&f, HR_FUNCTIONAL_TRIU, hr__part(&f, both, a->rank - 2, 0, least), 0);
  const hr_tensor *results[3] = {order, lower, upper};
  return hr__formula_finish(&f, 3, results);
}

hr_status hr__emit_lu_factor(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__matrices(&f, 0), *results[3] = {a, a, a};
  if (!hr__formula_failed(&f) && hr_tensor_count(a) == 0) {
    int64_t rows = hr__row_count(&f, a), columns = hr__column_count(&f, a), dims[HR_RANK_MAX];
    hr__copy_dims(a->rank, a->dims, dims);
    dims[a->rank - 2] = rows < columns ? rows : columns;
    results[1] = hr__filled(&f, 0, HR_DTYPE_I32, a->rank - 1, dims);
    results[2] = hr__filled(&f, 0, HR_DTYPE_I32, a->rank - 2, dims);
  } else if (!hr__formula_failed(&f)) {
    factors lu = factored(&f, a);
    results[0] = hr__transposed(&f, lu.lu), results[1] = lu.pivots, results[2] = lu.info;
  }
  return hr__formula_finish(&f, 3, results);
}

/* ---- systems ---- */

/* The batch dims of a and b broadcast; fails if they don't fit. */
static int batch_of(hr__formula *f, const hr_tensor *a, const hr_tensor *b, int64_t *dims) {
  int rank = (a->rank > b->rank ? a->rank : b->rank) - 2;
  for (int d = 0; d < rank; ++d) {
    int i = d - rank + a->rank - 2, j = d - rank + b->rank - 2;
    int64_t m = i >= 0 ? a->dims[i] : 1, n = j >= 0 ? b->dims[j] : 1;
    if (m != n && m != 1 && n != 1) {
      char left[HR__SHAPE_TEXT], right[HR__SHAPE_TEXT];
      hr__formula_fail(f,
                       HR__CALL_FAIL(f->call, "batch dims of %s and %s can't be broadcast",
                                     hr__shape_text(a->rank, a->dims, left), hr__shape_text(b->rank, b->dims, right)));
      return 0;
    }
    dims[d] = m != 1 ? m : n;
  }
  return rank;
}

/* x with `own` dims behind a batch, dense. */
static const hr_tensor *in_batch(hr__formula *f, const hr_tensor *x, int own, int rank, int64_t *dims) {
  if (hr__formula_failed(f)) {
    return x;
  }
  memcpy(dims + rank, x->dims + x->rank - own, (size_t)own * sizeof *dims);
  return hr__dense(f, hr__spread(f, x, rank + own, dims));
}

typedef struct equation {
  const hr_tensor *a, *b; /* of one dtype; b: matrices, whose columns are the right sides, or its rows */
  bool is_vector, by_rows;
  int rank; /* of the batch */
  int64_t dims[HR_RANK_MAX];
} equation;

static void read_equation(hr__formula *f, equation *e) {
  const hr_tensor *y = f->call->inputs[1], *given[2] = {f->call->inputs[0], y};
  int own = e->by_rows ? y->rank - 1 : y->rank - 2; /* the dim of one right side */
  e->is_vector = y->rank == 1;
  e->a = hr__square_matrices(f, 0);
  hr_dtype dtype = hr__promoted(f, 2, given);
  dtype = hr_dtype_is_integer(dtype) ? HR_DTYPE_F32 : dtype;
  if (!hr__formula_failed(f) && (y->rank == 0 || y->dims[e->is_vector ? 0 : own] != hr__row_count(f, e->a))) {
    char left[HR__SHAPE_TEXT], right[HR__SHAPE_TEXT];
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "right sides of dims %s don't fit matrices of dims %s",
                                      hr__shape_text(y->rank, y->dims, right),
                                      hr__shape_text(e->a->rank, e->a->dims, left)));
  }
  if (!hr__formula_failed(f) && !hr__has_factors(dtype)) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "right sides of dtype %s", hr_dtype_name(y->dtype)));
  }
  if (hr__formula_failed(f)) {
    return;
  }
  e->a = hr__as_dtype(f, e->a, dtype);
  e->b = hr__as_dtype(f, e->is_vector ? hr__with_dim(f, y, e->by_rows ? 0 : 1) : y, dtype);
  e->rank = hr__formula_failed(f) ? 0 : batch_of(f, e->a, e->b, e->dims);
}

/* True if the solution has no elements; it is then `out_empty`. */
static bool is_empty(hr__formula *f, const equation *e, const hr_tensor **out_empty) {
  int64_t dims[HR_RANK_MAX], count;
  hr__copy_dims(e->rank, e->dims, dims);
  dims[e->rank] = hr__row_count(f, e->b), dims[e->rank + 1] = hr__column_count(f, e->b);
  if (hr__formula_failed(f) || !hr__count_elements(e->rank + 2, dims, &count) || count > 0) {
    return false;
  }
  *out_empty = hr__filled(f, 0, e->b->dtype, e->rank + 2, dims);
  return true;
}

static hr_status end_equation(hr__formula *f, const equation *e, const hr_tensor *z) {
  bool is_vector = e->is_vector && !hr__formula_failed(f);
  return hr__formula_end(f, is_vector ? hr__without(f, z, 1u << (z->rank - (e->by_rows ? 2 : 1))) : z);
}

static const hr_tensor *solved(hr__formula *f, const hr_tensor *a, const hr_tensor *columns, int rank, int64_t *dims) {
  factors lu = factored(f, a);
  hr__check_info(f, lu.info, "singular");
  const hr_tensor *inputs[3] = {in_batch(f, lu.lu, 2, rank, dims), in_batch(f, lu.pivots, 1, rank, dims), columns};
  const int64_t plain = 0;
  hr_attrs attrs = {.int_count = 1, .ints = &plain};
  return hr__transposed(f, hr__step(f, HR_OP_LU_SOLVE, &attrs, 3, inputs, HR_DTYPE_NONE));
}

/* The way to solve an equation whose solution has elements. */
typedef const hr_tensor *(*solver)(hr__formula *f, equation *e);

static hr_status emit_equation(const hr__function_call *c, bool by_rows, solver solve) {
  hr__formula f;
  hr__formula_begin(&f, c);
  equation e = {.by_rows = by_rows};
  read_equation(&f, &e);
  const hr_tensor *z = NULL;
  if (!hr__formula_failed(&f) && !is_empty(&f, &e, &z)) {
    z = solve(&f, &e);
  }
  return end_equation(&f, &e, z);
}

static const hr_tensor *solve_any(hr__formula *f, equation *e) {
  return solved(f, e->a, in_batch(f, hr__transposed(f, e->b), 2, e->rank, e->dims), e->rank, e->dims);
}

static const hr_tensor *solve_triangle(hr__formula *f, equation *e) {
  const hr__function_call *c = f->call;
  const hr_tensor *inputs[2] = {in_batch(f, hr__transposed(f, e->a), 2, e->rank, e->dims),
                                in_batch(f, hr__transposed(f, e->b), 2, e->rank, e->dims)};
  static const char *const words[] = {"none", "transpose", "adjoint"};
  int word = 0;
  hr__formula_fail(f, hr__word_attribute(c, 3, 3, words, &word));
  const int64_t ints[4] = {hr__int_attribute(c, 0) != 0, word, hr__int_attribute(c, 1) != 0, !e->by_rows};
  hr_attrs attrs = {.int_count = 4, .ints = ints};
  return hr__transposed(f, hr__step(f, HR_OP_TRIANGULAR_SOLVE, &attrs, 2, inputs, HR_DTYPE_NONE));
}

hr_status hr__emit_solve(const hr__function_call *c) {
  return emit_equation(c, false, solve_any);
}

hr_status hr__emit_solve_triangular(const hr__function_call *c) {
  return emit_equation(c, hr__int_attribute(c, 2) == 0, solve_triangle);
}

hr_status hr__emit_tridiagonal_solve(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *y = hr__matrices(&f, 3), *results[5] = {y, c->inputs[0], c->inputs[1], c->inputs[2], y};
  if (hr__formula_failed(&f)) {
    return hr__formula_finish(&f, 5, results);
  }
  if (hr_tensor_count(y) == 0) {
    results[4] = hr__filled(&f, 0, HR_DTYPE_I32, y->rank - 2, y->dims);
    return hr__formula_finish(&f, 5, results);
  }
  const hr_tensor *inputs[4] = {NULL, NULL, NULL, hr__columns(&f, y)};
  hr_tensor *outputs[5];
  for (int i = 0; i < 3; ++i) {
    inputs[i] = hr__dense(&f, hr__as_dtype(&f, c->inputs[i], y->dtype));
  }
  for (int i = 0; i < 5; ++i) {
    outputs[i] = hr__output(&f, HR_DTYPE_NONE, 0, NULL);
    results[i] = outputs[i];
  }
  hr__record_to(&f, HR_OP_TRIDIAGONAL_SOLVE, NULL, 4, inputs, 5, outputs);
  results[0] = hr__transposed(&f, outputs[0]);
  return hr__formula_finish(&f, 5, results);
}

hr_status hr__emit_inv(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__square_matrices(&f, 0);
  if (hr__formula_failed(&f) || hr_tensor_count(a) == 0) {
    return hr__formula_end(&f, hr__dense(&f, a));
  }
  int64_t n = hr__row_count(&f, a), dims[HR_RANK_MAX];
  hr__copy_dims(a->rank, a->dims, dims);
  return hr__formula_end(&f, solved(&f, a, hr__identities(&f, a, n, n), a->rank - 2, dims));
}

/* ---- determinants ---- */

/* 1, or -1 for an odd number of exchanged rows: the pivots that are not their own row. */
static const hr_tensor *sign_of(hr__formula *f, const hr_tensor *pivots) {
  if (hr__formula_failed(f)) {
    return pivots;
  }
  int last = pivots->rank - 1;
  const hr_attribute range[4] = {
      {.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr_scalar_i64(1)}},
      {.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr_scalar_i64(pivots->dims[last] + 1)}},
      {.kind = HR_ATTRIBUTE_NONE},
      {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = HR_DTYPE_I32}}};
  const hr_tensor *own = hr__function(f, HR_FUNCTIONAL_ARANGE, 0, NULL, 4, range);
  const hr_tensor *moved = hr__binary(f, HR_OP_NE, pivots, own);
  const hr_tensor *signs = hr__ternary(f, HR_OP_WHERE, moved, hr__integer(f, -1), hr__integer(f, 1));
  return hr__reduced(f, HR_OP_PROD, signs, 1u << last);
}

static const hr_tensor *diagonal_of(hr__formula *f, const hr_tensor *x) {
  return hr__function(f, HR_FUNCTIONAL_DIAGONAL, 1, &x, 0, NULL);
}

static const hr_tensor *along_last(hr__formula *f, hr_op op, const hr_tensor *x) {
  if (hr__formula_failed(f)) {
    return x;
  }
  return hr__reduced(f, op, x, 1u << (x->rank - 1));
}

hr_status hr__emit_det(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__square_matrices(&f, 0);
  if (hr__formula_failed(&f)) {
    return hr__formula_end(&f, a);
  }
  if (hr_tensor_count(a) == 0) {
    return hr__formula_end(&f, hr__filled(&f, 1, a->dtype, a->rank - 2, a->dims));
  }
  factors lu = factored(&f, a);
  const hr_tensor *sign = hr__as_dtype(&f, sign_of(&f, lu.pivots), a->dtype);
  return hr__formula_end(&f, hr__binary(&f, HR_OP_MUL, sign, along_last(&f, HR_OP_PROD, diagonal_of(&f, lu.lu))));
}

/* x / |x|, 0 for 0. */
static const hr_tensor *direction(hr__formula *f, const hr_tensor *x, const hr_tensor *size) {
  if (hr__formula_failed(f)) {
    return x;
  }
  if (!hr_dtype_is_complex(x->dtype)) {
    return hr__unary(f, HR_OP_SIGN, x);
  }
  const hr_tensor *is_zero = hr__binary(f, HR_OP_EQ, size, hr__integer(f, 0));
  return hr__ternary(f, HR_OP_WHERE, is_zero, hr__integer(f, 0), hr__binary(f, HR_OP_DIV, x, size));
}

hr_status hr__emit_slogdet(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__square_matrices(&f, 0), *results[2] = {a, a};
  if (hr__formula_failed(&f)) {
    return hr__formula_finish(&f, 2, results);
  }
  if (hr_tensor_count(a) == 0) {
    results[0] = hr__filled(&f, 1, a->dtype, a->rank - 2, a->dims);
    results[1] = hr__filled(&f, 0, hr__dtype_real(a->dtype), a->rank - 2, a->dims);
    return hr__formula_finish(&f, 2, results);
  }
  factors lu = factored(&f, a);
  const hr_tensor *diagonal = diagonal_of(&f, lu.lu),
                  *size = hr__function(&f, HR_FUNCTIONAL_ABS, 1, &diagonal, 0, NULL);
  const hr_tensor *signs = along_last(&f, HR_OP_PROD, direction(&f, diagonal, size));
  results[0] = hr__binary(&f, HR_OP_MUL, hr__as_dtype(&f, sign_of(&f, lu.pivots), a->dtype), signs);
  results[1] = along_last(&f, HR_OP_SUM, hr__unary(&f, HR_OP_LOG, size));
  return hr__formula_finish(&f, 2, results);
}
