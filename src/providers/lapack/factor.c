/* factor.c: Cholesky, LU, LDL and QR factors, and the matrices that reflectors make. */
#include <string.h>

#include "core/ops/op.h"
#include "providers/lapack/lapack.h"

/* ---- in place, without work memory ---- */

/* Factors a matrix in place; returns LAPACK's info. */
typedef int (*factor_fn)(const hr__library_call *call, const hr__matrices *m, int64_t item, void *a);

/* Copies matrices to the first output and factors them there; LAPACK's info of each goes to the last output. */
static hr_status factor_items(const hr__library_call *call, int64_t begin, int64_t end, const char *what,
                              factor_fn factor) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  int32_t *infos = call->outputs[call->node->output_count - 1].data;
  for (int64_t item = begin; item < end; ++item) {
    int info = factor(call, &m, item, hr__matrix_copy(&call->inputs[0], &call->outputs[0], item, &m));
    HR_RETURN_IF_ERROR(hr__info_check(what, info));
    infos[item] = info;
  }
  return HR_OK;
}

/* ---- Cholesky ---- */

/* Zeroes the triangle that is not the factor; `upper` of the column-major matrix. */
static void clear_triangle(char *a, const hr__matrices *m, bool upper) {
  for (int64_t column = 0; column < m->columns; ++column) {
    char *from = a + column * m->rows * m->size;
    if (upper) {
      memset(from + (column + 1) * m->size, 0, (size_t)((m->rows - column - 1) * m->size));
    } else {
      memset(from, 0, (size_t)(column * m->size));
    }
  }
}

static int cholesky_one(const hr__library_call *call, const hr__matrices *m, int64_t item, void *a) {
  (void)item;
  bool upper = call->node->ints[0] != 0;
  int ld = hr__leading(m->rows), info = 0;
  hr__lapack()->ALL_potrf[m->kind](upper ? "U" : "L", &m->rows, a, &ld, &info, 1);
  clear_triangle(a, m, upper);
  return info;
}

static hr_status cholesky(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  return factor_items(call, begin, end, "potrf", cholesky_one);
}

hr_status hr__lapack_cholesky(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) / 3, cholesky);
}

/* The other triangle of a Hermitian matrix. */
#define MIRROR(type, value)                                                         \
  for (int64_t i = 0; i < m->rows; ++i) {                                           \
    for (int64_t j = 0; j < i; ++j) {                                               \
      type *low = (type *)a + j * m->rows + i, *high = (type *)a + i * m->rows + j; \
      type *to = upper ? low : high, from = upper ? *high : *low;                   \
      *to = value;                                                                  \
    }                                                                               \
  }
static void mirror(void *a, const hr__matrices *m, bool upper) {
  switch (m->kind) {
    case 0:
      MIRROR(float, from)
      break;
    case 1:
      MIRROR(double, from)
      break;
    case 2:
      MIRROR(hr_c64, ((hr_c64){from.re, -from.im}))
      break;
    default:
      MIRROR(hr_c128, ((hr_c128){from.re, -from.im}))
      break;
  }
}

static int invert_one(const hr__library_call *call, const hr__matrices *m, int64_t item, void *a) {
  (void)item;
  bool upper = call->node->ints[0] != 0;
  int ld = hr__leading(m->rows), info = 0;
  hr__lapack()->ALL_potri[m->kind](upper ? "U" : "L", &m->rows, a, &ld, &info, 1);
  mirror(a, m, upper);
  return info;
}

static hr_status cholesky_inverse(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  return factor_items(call, begin, end, "potri", invert_one);
}

hr_status hr__lapack_cholesky_inverse(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  double flops = hr__cube(&m) * 32; /* products of large blocks only: threads pay off earlier than elsewhere */
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), flops, cholesky_inverse);
}

/* ---- LU ---- */

static int lu_one(const hr__library_call *call, const hr__matrices *m, int64_t item, void *a) {
  int ld = hr__leading(m->rows), least = m->rows < m->columns ? m->rows : m->columns, info = 0;
  hr__lapack()->ALL_getrf[m->kind](&m->rows, &m->columns, a, &ld, (int *)call->outputs[1].data + item * least, &info);
  return info;
}

static hr_status lu(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  return factor_items(call, begin, end, "getrf", lu_one);
}

hr_status hr__lapack_lu(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) * 2 / 3, lu);
}

/* ---- LDL ---- */

static void ldl_one(const hr__matrices *m, bool hermitian, void *a, int ld, int *pivots, void *work, int length,
                    int *info) {
  if (hermitian && m->kind >= 2) {
    hr__lapack()->COMPLEX_hetrf[m->kind - 2]("L", &m->rows, a, &ld, pivots, work, &length, info, 1);
  } else {
    hr__lapack()->ALL_sytrf[m->kind]("L", &m->rows, a, &ld, pivots, work, &length, info, 1);
  }
}

static hr_status ldl(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  bool hermitian = call->node->ints[0] != 0;
  int ld = hr__leading(m.rows), info = 0;
  double queried[2] = {0};
  ldl_one(&m, hermitian, NULL, ld, NULL, queried, -1, &info);
  int length = hr__lapack_length(m.kind, queried);
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, (size_t)(length * m.size)));
  void *memory = hr__work_take(&work, (size_t)(length * m.size));
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    void *a = hr__matrix_copy(&call->inputs[0], &call->outputs[0], item, &m);
    ldl_one(&m, hermitian, a, ld, (int *)call->outputs[1].data + item * m.rows, memory, length, &info);
    status = hr__info_check("sytrf", info);
    clear_triangle(a, &m, false);
    ((int32_t *)call->outputs[2].data)[item] = info;
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_ldl(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) / 3, ldl);
}

/* ---- QR and reflectors ---- */

static hr_status qr(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  int ld = hr__leading(m.rows), least = m.rows < m.columns ? m.rows : m.columns, length = -1, info = 0;
  double queried[2] = {0};
  hr__lapack()->ALL_geqrf[m.kind](&m.rows, &m.columns, NULL, &ld, NULL, queried, &length, &info);
  length = hr__lapack_length(m.kind, queried);
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, (size_t)(length * m.size)));
  void *memory = hr__work_take(&work, (size_t)(length * m.size));
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    void *a = hr__matrix_copy(&call->inputs[0], &call->outputs[0], item, &m);
    hr__lapack()->ALL_geqrf[m.kind](&m.rows, &m.columns, a, &ld, hr__item(&call->outputs[1], item, least), memory,
                                    &length, &info);
    status = hr__info_check("geqrf", info);
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_qr(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) * 2, qr);
}

static int qr_pivoted_one(const hr__matrices *m, void *a, int *pivots, void *tau, void *work, int length, void *reals) {
  int ld = hr__leading(m->rows), info = 0;
  if (m->kind >= 2) {
    hr__lapack()->COMPLEX_geqp3[m->kind - 2](&m->rows, &m->columns, a, &ld, pivots, tau, work, &length, reals, &info);
  } else {
    hr__lapack()->REAL_geqp3[m->kind](&m->rows, &m->columns, a, &ld, pivots, tau, work, &length, &info);
  }
  return info;
}

static hr_status qr_pivoted(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  int least = m.rows < m.columns ? m.rows : m.columns;
  double queried[2] = {0};
  (void)qr_pivoted_one(&m, NULL, NULL, NULL, queried, -1, NULL);
  int length = hr__lapack_length(m.kind, queried);
  size_t bytes = (size_t)length * (size_t)m.size, reals = (size_t)(2 * m.columns + 1) * sizeof(double);
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, bytes + reals));
  void *memory = hr__work_take(&work, bytes), *rwork = hr__work_take(&work, reals);
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    int *pivots = hr__item(&call->outputs[1], item, m.columns);
    memcpy(pivots, hr__item(&call->inputs[1], item, m.columns), (size_t)m.columns * sizeof *pivots);
    void *a = hr__matrix_copy(&call->inputs[0], &call->outputs[0], item, &m);
    int info = qr_pivoted_one(&m, a, pivots, hr__item(&call->outputs[2], item, least), memory, length, rwork);
    status = hr__info_check("geqp3", info);
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_qr_pivoted(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) * 4, qr_pivoted);
}

static void reflectors_one(const hr__matrices *m, int count, void *a, int ld, const void *tau, void *work, int length,
                           int *info) {
  if (m->kind >= 2) {
    hr__lapack()->COMPLEX_ungqr[m->kind - 2](&m->rows, &m->columns, &count, a, &ld, tau, work, &length, info);
  } else {
    hr__lapack()->REAL_orgqr[m->kind](&m->rows, &m->columns, &count, a, &ld, tau, work, &length, info);
  }
}

static hr_status reflectors(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  int ld = hr__leading(m.rows), count = (int)hr__dim(&call->inputs[1], 0), info = 0;
  double queried[2] = {0};
  reflectors_one(&m, count, NULL, ld, NULL, queried, -1, &info);
  int length = hr__lapack_length(m.kind, queried);
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, (size_t)(length * m.size)));
  void *memory = hr__work_take(&work, (size_t)(length * m.size));
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    void *a = hr__matrix_copy(&call->inputs[0], &call->outputs[0], item, &m);
    reflectors_one(&m, count, a, ld, hr__item(&call->inputs[1], item, count), memory, length, &info);
    status = hr__info_check("orgqr", info);
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_reflectors(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  if (m.columns > m.rows || hr__dim(&call->inputs[1], 0) > m.columns) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "reflectors: %lld of them for a %d x %d matrix",
                          (long long)hr__dim(&call->inputs[1], 0), m.rows, m.columns);
  }
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) * 2, reflectors);
}

typedef struct reflection {
  hr__matrices a, c;
  int count, ld_a, ld_c;
  bool by_rows; /* of C, if the reflectors are to the right of it */
  const char *side, *trans;
} reflection;

static void reflect_one(const reflection *r, const void *a, const void *tau, void *c, void *work, int length,
                        int *info) {
  if (r->a.kind >= 2) {
    hr__lapack()->COMPLEX_unmqr[r->a.kind - 2](r->side, r->trans, &r->c.rows, &r->c.columns, &r->count, a, &r->ld_a,
                                               tau, c, &r->ld_c, work, &length, info, 1, 1);
  } else {
    hr__lapack()->REAL_ormqr[r->a.kind](r->side, r->trans, &r->c.rows, &r->c.columns, &r->count, a, &r->ld_a, tau, c,
                                        &r->ld_c, work, &length, info, 1, 1);
  }
}

static reflection read_reflection(const hr__library_call *call) {
  reflection r = {.a = hr__matrices_of(&call->inputs[0]), .c = hr__matrices_of(&call->inputs[2])};
  r.count = (int)hr__dim(&call->inputs[1], 0);
  r.ld_a = hr__leading(r.a.rows), r.ld_c = hr__leading(r.c.rows);
  r.by_rows = call->node->ints[0] == 0;
  r.side = r.by_rows ? "R" : "L";
  r.trans = call->node->ints[1] == 0 ? "N" : r.a.kind >= 2 ? "C" : "T";
  return r;
}

static hr_status reflect(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  reflection r = read_reflection(call);
  double queried[2] = {0};
  int info = 0;
  reflect_one(&r, NULL, NULL, NULL, queried, -1, &info);
  int length = hr__lapack_length(r.a.kind, queried);
  hr__work work;
  size_t copy = (size_t)(r.a.count * r.a.size), bytes = (size_t)(length * r.a.size);
  HR_RETURN_IF_ERROR(hr__work_begin(&work, bytes + copy));
  void *memory = hr__work_take(&work, bytes), *a = hr__work_take(&work, copy);
  hr_status status = HR_OK;
  for (int64_t unit = begin; unit < end && status == HR_OK; ++unit) {
    hr__part part = hr__part_copy(call, &call->inputs[2], r.by_rows, unit);
    r.c = part.b;
    memcpy(a, hr__item(&call->inputs[0], part.item, r.a.count), copy); /* it is written to, and restored */
    reflect_one(&r, a, hr__item(&call->inputs[1], part.item, r.count), part.x, memory, length, &info);
    status = hr__info_check("ormqr", info);
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_reflect(const hr__library_call *call) {
  reflection r = read_reflection(call);
  if (r.a.rows != (r.by_rows ? r.c.columns : r.c.rows) || r.count > r.a.rows || r.a.columns < r.count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "reflect: %d reflectors of %d elements for a %d x %d matrix",
                          r.count, r.a.rows, r.c.rows, r.c.columns);
  }
  double flops = 4.0 * r.count * (double)r.c.count * (r.c.kind >= 2 ? 4 : 1);
  return hr__lapack_each_part(call, &call->inputs[2], r.by_rows, flops, reflect);
}
