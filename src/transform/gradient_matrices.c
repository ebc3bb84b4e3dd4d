/* gradient_matrices.c: gradients of decompositions and linear systems.
 *
 * The rows' matrices are column-major: an operand is the transpose of the matrix A that the formulas below read. G, the
 * gradient of A, is such that the change of the loss is the real part of tr(G^H dA). Formulas: M. B. Giles, Collected
 * matrix derivative results for forward and reverse mode algorithmic differentiation (2008), and their complex forms
 * with PyTorch's conventions. They are infinite or NaN where the decomposition is no function with a derivative: at
 * equal eigenvalues or singular values if vectors have a gradient, and at singular matrices.
 */
#include "functional/matrices.h"
#include "transform/gradients.h"

/* ---- operands ---- */

/* The matrix of an operand, and of the gradient of output i; NULL: none. */
static const hr_tensor *matrix(hr__formula *f, const hr__operand *operand) {
  hr_tensor number;
  return hr__transposed(f, hr__value(operand, &number));
}

static const hr_tensor *matrix_g(hr__formula *f, const hr__backward *b, int i) {
  const hr_tensor *g = hr__g(b, i);
  return g != NULL ? hr__transposed(f, g) : NULL;
}

/* Adds to the gradient of input i. */
static void give_value(hr__formula *f, const hr__backward *b, int i, const hr_tensor *gradient) {
  if (hr__wants(b, i) && !hr__formula_failed(f)) {
    hr__formula_fail(f, hr__adjoint_add(b->adjoints, &b->call, hr__taped_input(b, i), gradient));
  }
}

/* Adds to the gradient of the matrix that input i is. */
static void give(hr__formula *f, const hr__backward *b, int i, const hr_tensor *gradient) {
  if (hr__wants(b, i) && !hr__formula_failed(f)) {
    give_value(f, b, i, hr__transposed(f, gradient));
  }
}

static hr_status finish(hr__formula *f) {
  return hr__formula_finish(f, 0, NULL);
}

/* ---- algebra ---- */

static const hr_tensor *times(hr__formula *f, const hr_tensor *a, const hr_tensor *b) {
  return hr__binary(f, HR_OP_MATMUL, a, b);
}

static const hr_tensor *plus(hr__formula *f, const hr_tensor *a, const hr_tensor *b) {
  return hr__binary(f, HR_OP_ADD, a, b);
}

static const hr_tensor *minus(hr__formula *f, const hr_tensor *a, const hr_tensor *b) {
  return hr__binary(f, HR_OP_SUB, a, b);
}

static const hr_tensor *conjugate(hr__formula *f, const hr_tensor *a) {
  return hr_dtype_is_complex(a->dtype) ? hr__unary(f, HR_OP_CONJ, a) : a;
}

static const hr_tensor *adjoint(hr__formula *f, const hr_tensor *a) {
  return conjugate(f, hr__transposed(f, a));
}

static const hr_tensor *triangle(hr__formula *f, hr_functional function, const hr_tensor *x, int64_t k) {
  const hr_attribute diagonal = {.kind = HR_ATTRIBUTE_INT, .value = {.integer = k}};
  return hr__function(f, function, 1, &x, 1, &diagonal);
}

static const hr_tensor *lower(hr__formula *f, const hr_tensor *x, int64_t k) {
  return triangle(f, HR_FUNCTIONAL_TRIL, x, k);
}

static const hr_tensor *upper(hr__formula *f, const hr_tensor *x, int64_t k) {
  return triangle(f, HR_FUNCTIONAL_TRIU, x, k);
}

/* Rows, or columns (from the end: 2 or 1), from `first` on. */
static const hr_tensor *part(hr__formula *f, const hr_tensor *x, int from_end, int64_t first, int64_t count) {
  return hr__formula_failed(f) ? x : hr__part(f, x, x->rank - from_end, first, count);
}

static const hr_tensor *block(hr__formula *f, const hr_tensor *x, int64_t rows, int64_t columns) {
  return part(f, part(f, x, 2, 0, rows), 1, 0, columns);
}

static const hr_tensor *joined(hr__formula *f, const hr_tensor *a, const hr_tensor *b, int64_t axis) {
  const hr_tensor *both[2] = {a, b};
  const hr_attribute along = {.kind = HR_ATTRIBUTE_INT, .value = {.integer = axis}};
  return hr__function(f, HR_FUNCTIONAL_CONCAT, 2, both, 1, &along);
}

/* Vectors as one row each, or as one column each, which scale the columns or rows of matrices. */
static const hr_tensor *as_row(hr__formula *f, const hr_tensor *x) {
  return hr__formula_failed(f) ? x : hr__with_dim(f, x, x->rank - 1);
}

static const hr_tensor *as_column(hr__formula *f, const hr_tensor *x) {
  return hr__formula_failed(f) ? x : hr__with_dim(f, x, x->rank);
}

static const hr_tensor *diagonal_of(hr__formula *f, const hr_tensor *x) {
  return hr__function(f, HR_FUNCTIONAL_DIAGONAL, 1, &x, 0, NULL);
}

/* Square matrices with other numbers on the diagonal: a number, or vectors as rows. */
static const hr_tensor *with_diagonal(hr__formula *f, const hr_tensor *x, const hr_tensor *numbers) {
  int64_t n = hr__row_count(f, x);
  const hr_tensor *ones = hr__formula_failed(f) ? x : hr__identities(f, x, n, n);
  return hr__ternary(f, HR_OP_WHERE, hr__binary(f, HR_OP_NE, ones, hr__integer(f, 0)), numbers, x);
}

/* Of vectors: entry i, j is number j minus number i; 1 on the diagonal, so that further derivatives are finite. */
static const hr_tensor *differences(hr__formula *f, const hr_tensor *x) {
  return with_diagonal(f, minus(f, as_row(f, x), as_column(f, x)), hr__integer(f, 1));
}

static const hr_tensor *skew(hr__formula *f, const hr_tensor *x) {
  return minus(f, x, adjoint(f, x));
}

/* ---- systems ---- */

enum { PLAIN = 0, TRANSPOSED = 1, ADJOINT = 2 };

typedef struct triangular {
  bool is_upper;
  int mode;
  bool has_ones, is_left;
} triangular;

/* op(A) X = B, or X op(A) = B: of A one triangle is read. */
static const hr_tensor *solve_triangle(hr__formula *f, const hr_tensor *a, const hr_tensor *b, triangular how) {
  const hr_tensor *inputs[2] = {hr__columns(f, a), hr__columns(f, b)};
  const int64_t ints[4] = {how.is_upper, how.mode, how.has_ones, how.is_left};
  hr_attrs attrs = {.int_count = 4, .ints = ints};
  return hr__transposed(f, hr__step(f, HR_OP_TRIANGULAR_SOLVE, &attrs, 2, inputs, HR_DTYPE_NONE));
}

/* The gradient of A from that of op(A). */
static const hr_tensor *of_operator(hr__formula *f, const hr_tensor *g, int mode) {
  return mode == PLAIN ? g : mode == ADJOINT ? adjoint(f, g) : hr__transposed(f, g);
}

/* op(A)^-H: the inverse of A^H; of A for the adjoint; of the conjugate of A for the transpose. */
static int mode_of_adjoint(int mode) {
  return mode == PLAIN ? ADJOINT : PLAIN;
}

hr_status hr__gradient_triangular_solve(hr__backward *b) {
  const int64_t *ints = b->record->attrs.ints;
  triangular how = {ints[0] != 0, (int)ints[1], ints[2] != 0, ints[3] != 0}, back = how;
  back.mode = mode_of_adjoint(how.mode);
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  const hr_tensor *a = matrix(&f, hr__taped_input(b, 0)), *used = how.mode == TRANSPOSED ? conjugate(&f, a) : a;
  const hr_tensor *right = solve_triangle(&f, used, matrix_g(&f, b, 0), back);
  give(&f, b, 1, right);
  if (hr__wants(b, 0)) {
    const hr_tensor *x = adjoint(&f, matrix(&f, hr__taped_output(b, 0)));
    const hr_tensor *g = how.is_left ? times(&f, right, x) : times(&f, x, right);
    g = of_operator(&f, hr__unary(&f, HR_OP_NEG, g), how.mode);
    give(&f, b, 0, how.is_upper ? upper(&f, g, how.has_ones) : lower(&f, g, -(int64_t)how.has_ones));
  }
  return finish(&f);
}

/* ---- tridiagonal systems ---- */

/* Element i of the last dim is x's element i - distance, 1 or -1, or 0. */
static const hr_tensor *shifted(hr__formula *f, const hr_tensor *x, int64_t distance) {
  if (hr__formula_failed(f)) {
    return x;
  }
  int64_t ints[2 * HR_RANK_MAX] = {0};
  ints[x->rank - 1] = distance;
  ints[2 * x->rank - 1] = -distance;
  hr_scalar zero = hr_scalar_i64(0);
  hr_attrs attrs = {.int_count = 2 * x->rank, .scalar_count = 1, .ints = ints, .scalars = &zero};
  return hr__step(f, HR_OP_PAD, &attrs, 1, &x, HR_DTYPE_NONE);
}

/* A^H L = G gives G_B = L, and G_A = -L X^H at the three diagonals. The rows of operands are columns of matrices. */
hr_status hr__gradient_tridiagonal_solve(hr__backward *b) {
  hr_tensor numbers[4];
  const hr_tensor *diagonals[3];
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  for (int i = 0; i < 3; ++i) {
    diagonals[i] = conjugate(&f, hr__value(hr__taped_input(b, i), &numbers[i]));
  }
  const hr_tensor *inputs[4] = {shifted(&f, diagonals[2], 1), diagonals[1], shifted(&f, diagonals[0], -1), NULL};
  inputs[3] = hr__dense(&f, hr__g(b, 0));
  const hr_tensor *right = hr__step(&f, HR_OP_TRIDIAGONAL_SOLVE, NULL, 4, inputs, HR_DTYPE_NONE);
  give_value(&f, b, 3, right);
  const hr_tensor *x = conjugate(&f, hr__value(hr__taped_output(b, 0), &numbers[3]));
  for (int i = 0; i < 3; ++i) {
    if (hr__wants(b, i) && !hr__formula_failed(&f)) {
      const hr_tensor *product = hr__times(&f, right, i == 1 ? x : shifted(&f, x, i == 0 ? 1 : -1));
      product = hr__formula_failed(&f) ? x : hr__reduced(&f, HR_OP_SUM, product, 1U << (product->rank - 2));
      give_value(&f, b, i, hr__unary(&f, HR_OP_NEG, product));
    }
  }
  return finish(&f);
}

/* ---- LU ---- */

/* The place of each row: row i of L U is row order[i] of A. */
static const hr_tensor *order_of(hr__formula *f, const hr_tensor *pivots, const hr_tensor *a) {
  int64_t dims[HR_RANK_MAX];
  if (hr__formula_failed(f)) {
    return pivots;
  }
  hr__copy_dims(a->rank, a->dims, dims);
  hr_tensor *order = hr__output(f, HR_DTYPE_NONE, a->rank - 1, dims);
  hr__record_to(f, HR_OP_LU_PERMUTATION, NULL, 1, &pivots, 1, &order);
  return order;
}

/* Row order[i] of x as row i. */
static const hr_tensor *in_order(hr__formula *f, const hr_tensor *x, const hr_tensor *order) {
  const hr_tensor *index = as_column(f, order);
  if (hr__formula_failed(f)) {
    return x;
  }
  const hr_tensor *inputs[2] = {x, hr__spread(f, index, x->rank, x->dims)};
  const int64_t dim = x->rank - 2;
  hr_attrs attrs = {.int_count = 1, .ints = &dim};
  return hr__step(f, HR_OP_GATHER, &attrs, 2, inputs, HR_DTYPE_NONE);
}

static const hr_tensor *inverse_order(hr__formula *f, const hr_tensor *order) {
  return hr__function(f, HR_FUNCTIONAL_ARGSORT, 1, &order, 0, NULL);
}

/* The gradients of L below its diagonal and of U, as one matrix, of square factors by that of L U. */
static const hr_tensor *gradient_of_factors(hr__formula *f, const hr_tensor *lu, const hr_tensor *g) {
  const hr_tensor *of_lower = times(f, g, adjoint(f, upper(f, lu, 0)));
  const hr_tensor *of_upper = plus(f, g, times(f, adjoint(f, lower(f, lu, -1)), g));
  return plus(f, lower(f, of_lower, -1), upper(f, of_upper, 0));
}

static const hr_tensor *lu_solved(hr__formula *f, const hr_tensor *lu, const hr_tensor *pivots, const hr_tensor *right,
                                  int64_t mode) {
  const hr_tensor *inputs[3] = {hr__columns(f, lu), pivots, hr__columns(f, right)};
  hr_attrs attrs = {.int_count = 1, .ints = &mode};
  return hr__transposed(f, hr__step(f, HR_OP_LU_SOLVE, &attrs, 3, inputs, HR_DTYPE_NONE));
}

hr_status hr__gradient_lu_solve(hr__backward *b) {
  int mode = (int)b->record->attrs.ints[0], back = mode_of_adjoint(mode);
  hr_tensor number;
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  const hr_tensor *lu = matrix(&f, hr__taped_input(b, 0)), *pivots = hr__value(hr__taped_input(b, 1), &number);
  const hr_tensor *g = matrix_g(&f, b, 0);
  const hr_tensor *right = mode == TRANSPOSED ? conjugate(&f, lu_solved(&f, lu, pivots, conjugate(&f, g), back))
                                              : lu_solved(&f, lu, pivots, g, back);
  give(&f, b, 2, right);
  if (hr__wants(b, 0)) {
    const hr_tensor *x = adjoint(&f, matrix(&f, hr__taped_output(b, 0)));
    const hr_tensor *of_a = of_operator(&f, hr__unary(&f, HR_OP_NEG, times(&f, right, x)), mode);
    give(&f, b, 0, gradient_of_factors(&f, lu, in_order(&f, of_a, order_of(&f, pivots, lu))));
  }
  return finish(&f);
}

/* The gradient of L U = [L1; L2] [U1 U2], of which L2 or U2 may be empty, by the factors in one matrix:
 * L1^-H (lower(L1^H G_L1 - G_U2 U2^H) + upper(G_U1 U1^H - L2^H G_L2)) U1^-H, and L1^-H G_U2 or G_L2 U1^-H. */
static const hr_tensor *gradient_of_product(hr__formula *f, const hr_tensor *lu, const hr_tensor *g) {
  static const triangular by_lower = {false, ADJOINT, true, true}, by_upper = {true, ADJOINT, false, false};
  int64_t rows = hr__row_count(f, lu), columns = hr__column_count(f, lu), k = rows < columns ? rows : columns;
  const hr_tensor *first = block(f, lu, k, k), *first_g = block(f, g, k, k), *more = NULL, *more_g = NULL;
  const hr_tensor *strict = lower(f, first_g, -1);
  const hr_tensor *low = plus(f, strict, times(f, adjoint(f, lower(f, first, -1)), strict));
  const hr_tensor *up = times(f, upper(f, first_g, 0), adjoint(f, upper(f, first, 0)));
  int axis = columns > k ? 1 : 2;
  if (rows != columns) {
    int64_t count = rows + columns - 2 * k;
    more = part(f, lu, axis, k, count), more_g = part(f, g, axis, k, count);
    low = axis == 1 ? minus(f, low, times(f, more_g, adjoint(f, more))) : low;
    up = axis == 2 ? minus(f, up, times(f, adjoint(f, more), more_g)) : up;
  }
  const hr_tensor *result = plus(f, lower(f, low, -1), upper(f, up, 0));
  result = solve_triangle(f, first, solve_triangle(f, first, result, by_lower), by_upper);
  return more_g == NULL ? result
                        : joined(f, result, solve_triangle(f, first, more_g, axis == 1 ? by_lower : by_upper), -axis);
}

hr_status hr__gradient_lu(hr__backward *b) {
  hr_tensor number;
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  const hr_tensor *lu = matrix(&f, hr__taped_output(b, 0)), *pivots = hr__value(hr__taped_output(b, 1), &number);
  const hr_tensor *product = gradient_of_product(&f, lu, matrix_g(&f, b, 0));
  give(&f, b, 0, in_order(&f, product, inverse_order(&f, order_of(&f, pivots, lu))));
  return finish(&f);
}

/* ---- Cholesky ---- */

/* With A = L L^H and S = lower(L^H G_L): L^-H (S, Hermitian with half of it on each side) L^-1. */
hr_status hr__gradient_cholesky(hr__backward *b) {
  static const triangular first = {false, ADJOINT, false, true}, second = {false, PLAIN, false, false};
  bool is_upper = b->record->attrs.ints[0] != 0;
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  const hr_tensor *y = matrix(&f, hr__taped_output(b, 0)), *g = matrix_g(&f, b, 0);
  const hr_tensor *factor = is_upper ? adjoint(&f, upper(&f, y, 0)) : lower(&f, y, 0);
  g = is_upper ? adjoint(&f, upper(&f, g, 0)) : lower(&f, g, 0);
  const hr_tensor *s = lower(&f, times(&f, adjoint(&f, factor), g), 0), *strict = lower(&f, s, -1);
  const hr_tensor *twice = plus(&f, plus(&f, s, strict), adjoint(&f, plus(&f, s, strict)));
  const hr_tensor *half = hr__binary(&f, HR_OP_MUL, twice, hr__real(&f, 0.25));
  give(&f, b, 0, solve_triangle(&f, factor, solve_triangle(&f, factor, half, first), second));
  return finish(&f);
}

/* The gradient of a factor by that of A. */
static const hr_tensor *gradient_of_root(hr__formula *f, const hr_tensor *factor, const hr_tensor *g, bool is_upper) {
  const hr_tensor *both = plus(f, g, adjoint(f, g));
  return is_upper ? upper(f, times(f, upper(f, factor, 0), both), 0) : lower(f, times(f, both, lower(f, factor, 0)), 0);
}

/* in: B, factor */
hr_status hr__gradient_cholesky_solve(hr__backward *b) {
  bool is_upper = b->record->attrs.ints[0] != 0;
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  const hr_tensor *factor = matrix(&f, hr__taped_input(b, 1)), *g = matrix_g(&f, b, 0);
  const hr_tensor *inputs[2] = {hr__columns(&f, g), hr__columns(&f, factor)};
  const hr_tensor *right =
      hr__transposed(&f, hr__step(&f, HR_OP_CHOLESKY_SOLVE, &b->record->attrs, 2, inputs, HR_DTYPE_NONE));
  give(&f, b, 0, right);
  if (hr__wants(b, 1)) {
    const hr_tensor *x = adjoint(&f, matrix(&f, hr__taped_output(b, 0)));
    const hr_tensor *of_a = hr__unary(&f, HR_OP_NEG, times(&f, right, x));
    give(&f, b, 1, gradient_of_root(&f, factor, of_a, is_upper));
  }
  return finish(&f);
}

hr_status hr__gradient_cholesky_inverse(hr__backward *b) {
  bool is_upper = b->record->attrs.ints[0] != 0;
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  const hr_tensor *y = adjoint(&f, matrix(&f, hr__taped_output(b, 0)));
  const hr_tensor *of_a = hr__unary(&f, HR_OP_NEG, times(&f, y, times(&f, matrix_g(&f, b, 0), y)));
  give(&f, b, 0, gradient_of_root(&f, matrix(&f, hr__taped_input(b, 0)), of_a, is_upper));
  return finish(&f);
}

/* ---- LDL ---- */

/* X = A^-1 B for a symmetric or Hermitian A. The factors have no gradient. */
hr_status hr__gradient_ldl_solve(hr__backward *b) {
  hr_tensor number;
  hr__formula f;
  if (hr__wants(b, 0)) {
    return hr__refuse_gradient(b, 0, "factors depend on the choice of pivots");
  }
  hr__formula_begin(&f, &b->call);
  bool is_hermitian = b->record->attrs.ints[0] != 0;
  const hr_tensor *g = matrix_g(&f, b, 0), *factors = matrix(&f, hr__taped_input(b, 0));
  g = is_hermitian ? g : conjugate(&f, g);
  const hr_tensor *inputs[3] = {hr__columns(&f, factors), hr__value(hr__taped_input(b, 1), &number),
                                hr__columns(&f, g)};
  const hr_tensor *x = hr__step(&f, HR_OP_LDL_SOLVE, &b->record->attrs, 3, inputs, HR_DTYPE_NONE);
  give_value(&f, b, 2, is_hermitian ? x : conjugate(&f, x));
  return finish(&f);
}

/* ---- products of reflectors ---- */

/* Q, the first N columns of H1 H2 ... HK, in its compact form (R. Schreiber, C. Van Loan, A storage-efficient WY
 * representation for products of Householder transformations, 1989): E - V T Y, where E has the first N columns of the
 * identity, V ones on its diagonal, and Y = V^H E. T = (I + D U)^-1 D, where D has the factors on its diagonal and U is
 * V^H V above its diagonal. */
typedef struct reflectors {
  int64_t rows, columns;              /* of Q */
  const hr_tensor *v, *y, *d, *u, *s; /* d: as a column; s: D U */
  const hr_tensor *t;
} reflectors;

static void read_reflectors(hr__formula *f, const hr__backward *b, reflectors *q) {
  static const triangular by_s = {true, PLAIN, true, true};
  hr_tensor number;
  const hr_tensor *all = matrix(f, hr__taped_input(b, 0)), *factors = hr__value(hr__taped_input(b, 1), &number);
  int64_t count = hr__formula_failed(f) ? 0 : factors->dims[factors->rank - 1];
  q->rows = hr__row_count(f, all), q->columns = hr__column_count(f, all);
  q->v = plus(f, lower(f, part(f, all, 1, 0, count), -1), hr__identities(f, all, q->rows, count));
  q->y = adjoint(f, part(f, q->v, 2, 0, q->columns));
  q->d = as_column(f, factors);
  q->u = upper(f, times(f, adjoint(f, q->v), q->v), 1);
  q->s = hr__binary(f, HR_OP_MUL, q->d, q->u);
  const hr_tensor *diagonal = hr__binary(f, HR_OP_MUL, q->d, hr__identities(f, all, count, count));
  q->t = solve_triangle(f, q->s, diagonal, by_s);
}

static const hr_tensor *extended(hr__formula *f, const hr_tensor *x, int from_end, int64_t size) {
  bool is_same = hr__formula_failed(f) || x->dims[x->rank - from_end] == size;
  return is_same ? x : hr__extended(f, x, x->rank - from_end, size);
}

/* Q C, C Q, or with Q^H: that of C with the other one of Q and Q^H. */
hr_status hr__gradient_reflect(hr__backward *b) {
  const int64_t *ints = b->record->attrs.ints, back[2] = {ints[0], ints[1] == 0};
  hr_attrs attrs = {.int_count = 2, .ints = back};
  hr_tensor numbers[2];
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  const hr_tensor *inputs[3] = {hr__value(hr__taped_input(b, 0), &numbers[0]),
                                hr__value(hr__taped_input(b, 1), &numbers[1]), NULL};
  inputs[2] = hr__dense(&f, hr__g(b, 0));
  give_value(&f, b, 2, hr__step(&f, HR_OP_REFLECT, &attrs, 3, inputs, HR_DTYPE_NONE));
  return finish(&f);
}

hr_status hr__gradient_reflectors(hr__backward *b) {
  static const triangular by_adjoint = {true, ADJOINT, true, true};
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  reflectors q;
  read_reflectors(&f, b, &q);
  const hr_tensor *g = hr__unary(&f, HR_OP_NEG, matrix_g(&f, b, 0)), *vg = times(&f, adjoint(&f, q.v), g);
  const hr_tensor *of_y = times(&f, adjoint(&f, q.t), vg), *of_t = times(&f, vg, adjoint(&f, q.y));
  of_t = solve_triangle(&f, q.s, of_t, by_adjoint);
  const hr_tensor *of_s = hr__unary(&f, HR_OP_NEG, times(&f, of_t, adjoint(&f, q.t)));
  const hr_tensor *of_d = plus(&f, of_t, times(&f, of_s, adjoint(&f, q.u)));
  give_value(&f, b, 1, diagonal_of(&f, of_d));
  const hr_tensor *of_u = upper(&f, hr__binary(&f, HR_OP_MUL, conjugate(&f, q.d), of_s), 1);
  const hr_tensor *of_v = times(&f, q.v, plus(&f, of_u, adjoint(&f, of_u)));
  of_v = plus(&f, of_v, times(&f, g, adjoint(&f, times(&f, q.t, q.y))));
  of_v = plus(&f, of_v, extended(&f, adjoint(&f, of_y), 2, q.rows));
  give(&f, b, 0, extended(&f, lower(&f, of_v, -1), 1, q.columns));
  return finish(&f);
}

/* ---- least squares ---- */

/* With P, the pseudoinverse of A, and G_B = P^H G_X: G_A = R (P G_B)^H + P^H X (G_X - A^H G_B)^H - G_B X^H, where R is
 * B - A X, for matrices A whose rank does not change (G. H. Golub, V. Pereyra, The differentiation of pseudo-inverses,
 * 1973). P is the solution of A P = I. X is the first N rows of the output; other rows have no gradient. */
hr_status hr__gradient_least_squares(hr__backward *b) {
  hr__formula f;
  if (hr__g(b, 2) != NULL) {
    return hr__refuse_gradient(b, 0, "singular values; hr.linalg.svd has their gradient");
  }
  hr__formula_begin(&f, &b->call);
  const hr_tensor *a = matrix(&f, hr__taped_input(b, 0));
  int64_t rows = hr__row_count(&f, a), columns = hr__column_count(&f, a);
  const hr_tensor *inputs[2] = {hr__columns(&f, a), hr__columns(&f, hr__identities(&f, a, rows, rows))};
  const hr_tensor *inverse = hr__step(&f, HR_OP_LEAST_SQUARES, &b->record->attrs, 2, inputs, HR_DTYPE_NONE);
  inverse = part(&f, hr__transposed(&f, inverse), 2, 0, columns);
  const hr_tensor *g = part(&f, matrix_g(&f, b, 0), 2, 0, columns), *of_b = times(&f, adjoint(&f, inverse), g);
  give(&f, b, 1, of_b);
  if (hr__wants(b, 0)) {
    const hr_tensor *x = part(&f, matrix(&f, hr__taped_output(b, 0)), 2, 0, columns);
    const hr_tensor *rest = minus(&f, matrix(&f, hr__taped_input(b, 1)), times(&f, a, x));
    const hr_tensor *outside_a = minus(&f, g, times(&f, adjoint(&f, a), of_b));
    const hr_tensor *sum = times(&f, rest, adjoint(&f, times(&f, inverse, of_b)));
    sum = plus(&f, sum, times(&f, times(&f, adjoint(&f, inverse), x), adjoint(&f, outside_a)));
    give(&f, b, 0, minus(&f, sum, times(&f, of_b, adjoint(&f, x))));
  }
  return finish(&f);
}

/* ---- eigenvalues and singular values ---- */

/* The value of an output that is no matrix. */
static const hr_tensor *vectors(const hr__backward *b, int i, hr_tensor *number) {
  return hr__value(hr__taped_output(b, i), number);
}

/* The Hermitian part of V (V^H G_V / (w_j - w_i), the diagonal G_w) V^H */
hr_status hr__gradient_eigh(hr__backward *b) {
  hr_tensor number;
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  const hr_tensor *v = matrix(&f, hr__taped_output(b, 1)), *w = vectors(b, 0, &number), *g = hr__g(b, 0);
  const hr_tensor *of_v = matrix_g(&f, b, 1), *back = adjoint(&f, v);
  if (of_v == NULL) {
    give(&f, b, 0, times(&f, hr__binary(&f, HR_OP_MUL, v, as_row(&f, g)), back));
    return finish(&f);
  }
  const hr_tensor *inner = hr__binary(&f, HR_OP_DIV, times(&f, back, of_v), differences(&f, w));
  inner = with_diagonal(&f, inner, g != NULL ? as_row(&f, g) : hr__integer(&f, 0));
  const hr_tensor *g_of_a = times(&f, v, times(&f, inner, back));
  give(&f, b, 0, hr__binary(&f, HR_OP_MUL, plus(&f, g_of_a, adjoint(&f, g_of_a)), hr__real(&f, 0.5)));
  return finish(&f);
}

/* V^-H ((D - V^H V Re diag(D)) / conj(w_j - w_i), the diagonal G_w) V^H with D = V^H G_V */
hr_status hr__gradient_eig(hr__backward *b) {
  hr_tensor number;
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  const hr_tensor *v = matrix(&f, hr__taped_output(b, 1)), *w = vectors(b, 0, &number), *g = hr__g(b, 0);
  const hr_tensor *of_v = matrix_g(&f, b, 1), *back = adjoint(&f, v), *right;
  if (of_v == NULL) {
    right = hr__binary(&f, HR_OP_MUL, as_column(&f, g), back);
  } else {
    const hr_tensor *d = times(&f, back, of_v), *norms = times(&f, back, v);
    const hr_tensor *size = as_row(&f, hr__unary(&f, HR_OP_REAL, diagonal_of(&f, d)));
    d = minus(&f, d, hr__binary(&f, HR_OP_MUL, norms, size));
    d = hr__binary(&f, HR_OP_DIV, d, conjugate(&f, differences(&f, w)));
    d = with_diagonal(&f, d, g != NULL ? as_row(&f, g) : hr__integer(&f, 0));
    right = times(&f, d, back);
  }
  const hr_tensor *equation[2] = {back, right};
  give(&f, b, 0, hr__function(&f, HR_FUNCTIONAL_SOLVE, 2, equation, 0, NULL));
  return finish(&f);
}

/* The gradients of U, S and V^H, and what they are of: the first min(M, N) vectors. */
typedef struct singular {
  const hr_tensor *u, *s, *vh, *of_u, *of_s, *of_vh; /* of_..: NULL: none */
} singular;

static void read_singular(hr__formula *f, const hr__backward *b, singular *x, hr_tensor *number) {
  x->u = matrix(f, hr__taped_output(b, 0)), x->vh = matrix(f, hr__taped_output(b, 2)), x->s = vectors(b, 1, number);
  int64_t count = hr__formula_failed(f) ? 0 : x->s->dims[x->s->rank - 1];
  x->u = part(f, x->u, 1, 0, count), x->vh = part(f, x->vh, 2, 0, count);
  x->of_u = matrix_g(f, b, 0), x->of_s = hr__g(b, 1), x->of_vh = matrix_g(f, b, 2);
  x->of_u = x->of_u != NULL ? part(f, x->of_u, 1, 0, count) : NULL;
  x->of_vh = x->of_vh != NULL ? part(f, x->of_vh, 2, 0, count) : NULL;
}

/* (skew(U^H G_U) S + S skew(V^H G_V)) / (s_j^2 - s_i^2), the diagonal G_S; complex: and the diagonal of the first skew
 * matrix / 2 s. Without gradients of vectors: NULL. */
static const hr_tensor *inner_of_vectors(hr__formula *f, const singular *x) {
  const hr_tensor *sum = NULL, *phase = NULL;
  if (x->of_u != NULL) {
    const hr_tensor *turn = skew(f, times(f, adjoint(f, x->u), x->of_u));
    sum = hr__binary(f, HR_OP_MUL, turn, as_row(f, x->s));
    phase = hr_dtype_is_complex(turn->dtype) ? hr__binary(f, HR_OP_DIV, diagonal_of(f, turn), x->s) : NULL;
  }
  if (x->of_vh != NULL) {
    const hr_tensor *turn = skew(f, times(f, x->vh, adjoint(f, x->of_vh)));
    const hr_tensor *scaled = hr__binary(f, HR_OP_MUL, turn, as_column(f, x->s));
    sum = sum != NULL ? plus(f, sum, scaled) : scaled;
  }
  if (sum == NULL) {
    return NULL;
  }
  const hr_tensor *diagonal = x->of_s != NULL ? as_row(f, x->of_s) : hr__integer(f, 0);
  if (phase != NULL && x->of_vh != NULL) {
    diagonal = plus(f, hr__binary(f, HR_OP_MUL, as_row(f, phase), hr__real(f, 0.5)), diagonal);
  }
  const hr_tensor *squares = hr__unary(f, HR_OP_SQUARE, x->s);
  return with_diagonal(f, hr__binary(f, HR_OP_DIV, sum, differences(f, squares)), diagonal);
}

/* x - basis basis^H x */
static const hr_tensor *outside(hr__formula *f, const hr_tensor *x, const hr_tensor *basis) {
  return minus(f, x, times(f, basis, times(f, adjoint(f, basis), x)));
}

/* U inner V^H, and the parts of the vectors' gradients outside of their spaces: (I - U U^H) G_U / S V^H, and the like.
 */
hr_status hr__gradient_svd(hr__backward *b) {
  hr_tensor number;
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  singular x;
  read_singular(&f, b, &x, &number);
  const hr_tensor *inner = inner_of_vectors(&f, &x), *left;
  left = inner != NULL ? times(&f, x.u, inner) : hr__binary(&f, HR_OP_MUL, x.u, as_row(&f, x.of_s));
  if (x.of_u != NULL && hr__row_count(&f, x.u) > hr__column_count(&f, x.u)) {
    left = plus(&f, left, outside(&f, hr__binary(&f, HR_OP_DIV, x.of_u, as_row(&f, x.s)), x.u));
  }
  const hr_tensor *result = times(&f, left, x.vh);
  if (x.of_vh != NULL && hr__column_count(&f, x.vh) > hr__row_count(&f, x.vh)) {
    const hr_tensor *of_v = hr__binary(&f, HR_OP_DIV, adjoint(&f, x.of_vh), as_row(&f, x.s));
    result = plus(&f, result, times(&f, x.u, adjoint(&f, outside(&f, of_v, adjoint(&f, x.vh)))));
  }
  give(&f, b, 0, result);
  return finish(&f);
}

/* ---- the exponential ---- */

/* The upper right block of exp([A^H G; 0 A^H]). */
hr_status hr__gradient_matrix_exp(hr__backward *b) {
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  const hr_tensor *a = adjoint(&f, matrix(&f, hr__taped_input(b, 0))), *g = matrix_g(&f, b, 0);
  int64_t n = hr__row_count(&f, a);
  const hr_tensor *zero = hr__formula_failed(&f) ? a : hr__filled(&f, 0, a->dtype, a->rank, a->dims);
  const hr_tensor *all = hr__columns(&f, joined(&f, joined(&f, a, g, -1), joined(&f, zero, a, -1), -2));
  const hr_tensor *exponential = hr__transposed(&f, hr__unary(&f, HR_OP_MATRIX_EXP, all));
  give(&f, b, 0, part(&f, part(&f, exponential, 2, 0, n), 1, n, n));
  return finish(&f);
}
