/* solve.c: linear systems with given factors, and least squares. */
#include <string.h>

#include "core/ops/op.h"
#include "providers/lapack/lapack.h"

/* ---- by factors: each copies B to the output and solves there ---- */

typedef hr_status (*solve_fn)(const hr__library_call *call, const hr__part *part);

static hr_status solve_parts(const hr__library_call *call, const hr__tensor *right, bool by_rows, solve_fn solve,
                             int64_t begin, int64_t end) {
  for (int64_t unit = begin; unit < end; ++unit) {
    hr__part part = hr__part_copy(call, right, by_rows, unit);
    HR_RETURN_IF_ERROR(solve(call, &part));
  }
  return HR_OK;
}

static double solve_flops(const hr__matrices *b, int n) {
  return 2.0 * n * (double)b->count * (b->kind >= 2 ? 4 : 1);
}

static hr_status cholesky_solve_one(const hr__library_call *call, const hr__part *part) {
  const hr__matrices *b = &part->b;
  int n = b->rows, info = 0;
  const void *a = hr__item(&call->inputs[1], part->item, (int64_t)n * n);
  hr__lapack()->ALL_potrs[b->kind](call->node->ints[0] != 0 ? "U" : "L", &n, &b->columns, a, &part->ld, part->x,
                                   &part->ld, &info, 1);
  return hr__info_check("potrs", info);
}

static hr_status cholesky_solve(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  return solve_parts(call, &call->inputs[0], false, cholesky_solve_one, begin, end);
}

hr_status hr__lapack_cholesky_solve(const hr__library_call *call) {
  hr__matrices b = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each_part(call, &call->inputs[0], false, solve_flops(&b, b.rows), cholesky_solve);
}

static hr_status lu_solve_one(const hr__library_call *call, const hr__part *part) {
  const hr__matrices *b = &part->b;
  static const char *const trans[] = {"N", "T", "C"};
  int n = b->rows, info = 0;
  const void *a = hr__item(&call->inputs[0], part->item, (int64_t)n * n);
  const int *pivots = hr__item(&call->inputs[1], part->item, n);
  hr__lapack()->ALL_getrs[b->kind](trans[call->node->ints[0]], &n, &b->columns, a, &part->ld, pivots, part->x,
                                   &part->ld, &info, 1);
  return hr__info_check("getrs", info);
}

static hr_status lu_solve(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  return solve_parts(call, &call->inputs[2], false, lu_solve_one, begin, end);
}

/* Pivots come from a tensor of arbitrary contents. */
static hr_status check_pivots(const hr__tensor *pivots, int n) {
  const int *at = pivots->data;
  for (int64_t i = 0; i < pivots->count; ++i) {
    if (at[i] < 1 || at[i] > n) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                            "pivots given to lu_solve must all be greater or equal to 1 and at most %d", n);
    }
  }
  return HR_OK;
}

hr_status hr__lapack_lu_solve(const hr__library_call *call) {
  hr__matrices b = hr__matrices_of(&call->inputs[2]);
  if (call->node->ints[0] < 0 || call->node->ints[0] > 2) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "lu_solve: transposition %lld", (long long)call->node->ints[0]);
  }
  HR_RETURN_IF_ERROR(check_pivots(&call->inputs[1], b.rows));
  return hr__lapack_each_part(call, &call->inputs[2], false, solve_flops(&b, b.rows), lu_solve);
}

static hr_status ldl_solve_one(const hr__library_call *call, const hr__part *part) {
  const hr__matrices *b = &part->b;
  int n = b->rows, info = 0;
  const void *a = hr__item(&call->inputs[0], part->item, (int64_t)n * n);
  const int *pivots = hr__item(&call->inputs[1], part->item, n);
  if (call->node->ints[0] != 0 && b->kind >= 2) {
    hr__lapack()->COMPLEX_hetrs[b->kind - 2]("L", &n, &b->columns, a, &part->ld, pivots, part->x, &part->ld, &info, 1);
  } else {
    hr__lapack()->ALL_sytrs[b->kind]("L", &n, &b->columns, a, &part->ld, pivots, part->x, &part->ld, &info, 1);
  }
  return hr__info_check("sytrs", info);
}

static hr_status ldl_solve(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  return solve_parts(call, &call->inputs[2], false, ldl_solve_one, begin, end);
}

static hr_status check_ldl_pivots(const hr__tensor *pivots, int n) {
  const int *at = pivots->data;
  for (int64_t i = 0; i < pivots->count; ++i) {
    if (at[i] == 0 || at[i] > n || at[i] < -n) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "ldl_solve: pivot %d of a matrix of %d rows", at[i], n);
    }
  }
  return HR_OK;
}

hr_status hr__lapack_ldl_solve(const hr__library_call *call) {
  hr__matrices b = hr__matrices_of(&call->inputs[2]);
  HR_RETURN_IF_ERROR(check_ldl_pivots(&call->inputs[1], b.rows));
  return hr__lapack_each_part(call, &call->inputs[2], false, solve_flops(&b, b.rows), ldl_solve);
}

/* ---- triangles ---- */

static hr_status triangular_one(const hr__library_call *call, const hr__part *part) {
  static const char *const trans[] = {"N", "T", "C"};
  const int64_t *ints = call->node->ints;
  const hr__matrices *b = &part->b;
  bool is_left = ints[3] != 0;
  int n = is_left ? b->rows : b->columns, ld = hr__leading(n);
  const void *a = hr__item(&call->inputs[0], part->item, (int64_t)n * n);
  hr__lapack()->ALL_trsm[b->kind](is_left ? "L" : "R", ints[0] != 0 ? "U" : "L", trans[ints[1]],
                                  ints[2] != 0 ? "U" : "N", &b->rows, &b->columns, hr__lapack_one(b->kind), a, &ld,
                                  part->x, &part->ld, 1, 1, 1, 1);
  return HR_OK;
}

static hr_status triangular(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  return solve_parts(call, &call->inputs[1], call->node->ints[3] == 0, triangular_one, begin, end);
}

hr_status hr__lapack_triangular_solve(const hr__library_call *call) {
  hr__matrices b = hr__matrices_of(&call->inputs[1]);
  int n = call->node->ints[3] != 0 ? b.rows : b.columns;
  if (hr__dim(&call->inputs[0], 0) != n || call->node->ints[1] < 0 || call->node->ints[1] > 2) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "triangular_solve: %lld x %lld for %d x %d, transposition %lld",
                          (long long)hr__dim(&call->inputs[0], 0), (long long)hr__dim(&call->inputs[0], 1), b.rows,
                          b.columns, (long long)call->node->ints[1]);
  }
  return hr__lapack_each_part(call, &call->inputs[1], call->node->ints[3] == 0, solve_flops(&b, n) / 2, triangular);
}

/* ---- tridiagonal matrices ---- */

enum { BELOW, MAIN, ABOVE, RIGHT };

/* The diagonals as LAPACK has them, in `diagonals`; the first one lacks its first element, the last one its last. */
static hr_status solve_tridiagonal(const hr__library_call *call, int64_t item, char *diagonals) {
  hr__matrices b = hr__matrices_of(&call->inputs[RIGHT]);
  int n = b.rows, ld = hr__leading(n), info = 0;
  size_t row = (size_t)(n * b.size);
  for (int i = BELOW; i <= ABOVE; ++i) {
    memcpy(diagonals + (size_t)i * row, hr__item(&call->inputs[i], item, n), row);
  }
  hr__lapack()->ALL_gtsv[b.kind](&n, &b.columns, diagonals + b.size, diagonals + row, diagonals + 2 * row,
                                 hr__matrix_copy(&call->inputs[RIGHT], &call->outputs[0], item, &b), &ld, &info);
  HR_RETURN_IF_ERROR(hr__info_check("gtsv", info));
  for (int i = BELOW; i <= ABOVE && call->node->output_count > 1 + i; ++i) {
    if (call->outputs[1 + i].data != NULL) {
      memcpy(hr__item(&call->outputs[1 + i], item, n), diagonals + (size_t)i * row, row);
    }
  }
  return hr__lapack_reports(call, 4, item, info) || info == 0
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "tridiagonal_solve: matrix %lld is singular: pivot %d",
                              (long long)item, info);
}

static hr_status solve_tridiagonals(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  hr__matrices b = hr__matrices_of(&call->inputs[RIGHT]);
  size_t bytes = (size_t)(3 * b.rows * b.size);
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, bytes));
  void *diagonals = hr__work_take(&work, bytes);
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    status = solve_tridiagonal(call, item, diagonals);
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_tridiagonal_solve(const hr__library_call *call) {
  hr__matrices b = hr__matrices_of(&call->inputs[RIGHT]);
  double flops = 10.0 * (double)b.count * (b.kind >= 2 ? 4 : 1);
  return hr__library_spread(call, hr__items(&call->inputs[RIGHT], 2), (int64_t)(flops / 2) + 500, solve_tridiagonals);
}

/* ---- least squares ---- */

enum { GELS, GELSY, GELSD, GELSS };

typedef struct squares {
  hr__matrices a, b, x; /* x as high as the higher of a and b */
  int driver, ld_a, ld_x, least;
  union {
    float single;
    double twice;
  } rcond[1];
  void *rwork;
  int *iwork, *pivots;
} squares;

static squares read_squares(const hr__library_call *call) {
  squares s = {.a = hr__matrices_of(&call->inputs[0]),
               .b = hr__matrices_of(&call->inputs[1]),
               .x = hr__matrices_of(&call->outputs[0]),
               .driver = (int)call->node->ints[0]};
  s.least = s.a.rows < s.a.columns ? s.a.rows : s.a.columns;
  s.ld_a = hr__leading(s.a.rows), s.ld_x = hr__leading(s.x.rows);
  double rcond = call->scalars[0].value.f[0];
  if ((s.a.kind & 1) != 0) {
    s.rcond->twice = rcond;
  } else {
    s.rcond->single = (float)rcond;
  }
  return s;
}

static int squares_one(const squares *s, void *a, void *x, void *values, int *rank, void *work, int length) {
  const hr__lapack_table *l = hr__lapack();
  int kind = s->a.kind, complex = kind - 2, info = 0;
  const int *m = &s->a.rows, *n = &s->a.columns, *k = &s->x.columns, *lda = &s->ld_a, *ldx = &s->ld_x;
  switch (s->driver) {
    case GELS:
      l->ALL_gels[kind]("N", m, n, k, a, lda, x, ldx, work, &length, &info, 1);
      break;
    case GELSY:
      if (complex >= 0) {
        l->COMPLEX_gelsy[complex](m, n, k, a, lda, x, ldx, s->pivots, s->rcond, rank, work, &length, s->rwork, &info);
      } else {
        l->REAL_gelsy[kind](m, n, k, a, lda, x, ldx, s->pivots, s->rcond, rank, work, &length, &info);
      }
      break;
    case GELSD:
      if (complex >= 0) {
        l->COMPLEX_gelsd[complex](m, n, k, a, lda, x, ldx, values, s->rcond, rank, work, &length, s->rwork, s->iwork,
                                  &info);
      } else {
        l->REAL_gelsd[kind](m, n, k, a, lda, x, ldx, values, s->rcond, rank, work, &length, s->iwork, &info);
      }
      break;
    default:
      if (complex >= 0) {
        l->COMPLEX_gelss[complex](m, n, k, a, lda, x, ldx, values, s->rcond, rank, work, &length, s->rwork, &info);
      } else {
        l->REAL_gelss[kind](m, n, k, a, lda, x, ldx, values, s->rcond, rank, work, &length, &info);
      }
      break;
  }
  return info;
}

/* B, padded with zeros to the height of the solution. */
static void *copy_right(const hr__library_call *call, const squares *s, int64_t item) {
  char *to = hr__item(&call->outputs[0], item, s->x.count);
  const char *from = hr__item(&call->inputs[1], item, s->b.count);
  memset(to, 0, (size_t)(s->x.count * s->x.size));
  for (int column = 0; column < s->b.columns; ++column) {
    memcpy(to + column * s->x.rows * s->x.size, from + column * s->b.rows * s->b.size, (size_t)(s->b.rows * s->b.size));
  }
  return to;
}

/* Real and integer work of gelsd, the largest of them, by LAPACK's formulas with the smallest leaf of 25. */
static int64_t divisions(int least) {
  int64_t levels = 1;
  for (int64_t n = least / 26; n > 0; n /= 2) {
    ++levels;
  }
  return levels;
}

static hr_status least_squares(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  squares s = read_squares(call);
  int64_t levels = divisions(s.least), columns = s.a.columns, least = s.least > 0 ? s.least : 1;
  int64_t reals =
      10 * columns + 2 * columns * 25 + 8 * columns * levels + 3 * 25 * s.x.columns +
      (26 * 26 > columns * (1 + s.x.columns) + 2 * s.x.columns ? 26 * 26
                                                               : columns * (1 + s.x.columns) + 2 * s.x.columns);
  reals += 10 * least + 2 * least * 25 + 8 * least * levels + 5 * least;
  size_t sizes[] = {(size_t)reals * 8, (size_t)(3 * least * levels + 11 * least) * 4, (size_t)columns * 4 + 4,
                    (size_t)(s.a.count * s.a.size), (size_t)least * 8};
  int queried_rank = 0, queried_int[64] = {0};
  double queried[2] = {0}, queried_reals[64] = {0};
  squares query = s;
  query.rwork = queried_reals, query.iwork = queried_int;
  (void)squares_one(&query, NULL, NULL, NULL, &queried_rank, queried, -1);
  int length = hr__lapack_length(s.a.kind, queried);
  hr__work work;
  HR_RETURN_IF_ERROR(
      hr__work_begin(&work, sizes[0] + sizes[1] + sizes[2] + sizes[3] + sizes[4] + (size_t)length * (size_t)s.a.size));
  void *memory = hr__work_take(&work, (size_t)length * (size_t)s.a.size);
  s.rwork = hr__work_take(&work, sizes[0]);
  s.iwork = hr__work_take(&work, sizes[1]);
  s.pivots = hr__work_take(&work, sizes[2]);
  void *a = hr__work_take(&work, sizes[3]), *spare = hr__work_take(&work, sizes[4]);
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    int rank = 0;
    void *values = hr__item(&call->outputs[2], item, s.least);
    memcpy(a, hr__item(&call->inputs[0], item, s.a.count), sizes[3]);
    memset(s.pivots, 0, sizes[2]);
    int info = squares_one(&s, a, copy_right(call, &s, item), values != NULL ? values : spare, &rank, memory, length);
    status = hr__info_check("least squares", info);
    if (info > 0 && s.driver == GELS) {
      status = hr_status_make(HR_STATUS_ABORTED,
                              "linalg.lstsq: The least squares solution could not be computed because the input matrix "
                              "does not have full rank (error code: %d).",
                              info);
    } else if (info > 0) {
      status =
          hr_status_make(HR_STATUS_ABORTED, "linalg.lstsq: SVD algorithm did not converge (error code: %d).", info);
    }
    if (call->outputs[1].data != NULL) {
      ((int64_t *)call->outputs[1].data)[item] = rank;
    }
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_least_squares(const hr__library_call *call) {
  squares s = read_squares(call);
  int most = s.a.rows > s.a.columns ? s.a.rows : s.a.columns;
  if (s.x.rows != most || s.driver < GELS || s.driver > GELSS ||
      (call->outputs[2].data != NULL && hr__dim(&call->outputs[2], 0) != s.least)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "least_squares: %d rows for a solution of a %d x %d matrix, driver %d", s.x.rows, s.a.rows,
                          s.a.columns, s.driver);
  }
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&s.a) * 4, least_squares);
}
