/* eigen.c: singular values, eigenvalues and their vectors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/ops/op.h"
#include "providers/lapack/lapack.h"

static int64_t real_size(int kind) {
  return (kind & 1) != 0 ? 8 : 4;
}

bool hr__lapack_is_finite(const void *data, int kind, int64_t count) {
  count *= kind >= 2 ? 2 : 1;
  for (int64_t i = 0; i < count; ++i) {
    if (!((kind & 1) != 0 ? isfinite(((const double *)data)[i]) : isfinite(((const float *)data)[i]))) {
      return false;
    }
  }
  return true;
}

static hr_status not_converged(const char *name, int64_t items, int64_t item, int info, bool finite) {
  char batch[48] = "";
  if (items > 1) {
    snprintf(batch, sizeof batch, "(Batch element %lld): ", (long long)item);
  }
  return finite ? hr_status_make(
                      HR_STATUS_ABORTED,
                      "%s: %sThe algorithm failed to converge because the input matrix is ill-conditioned or has "
                      "too many repeated values (error code: %d).",
                      name, batch, info)
                : hr_status_make(
                      HR_STATUS_ABORTED,
                      "%s: %sThe algorithm failed to converge because the input matrix contained non-finite values.",
                      name, batch);
}

/* ---- reports ---- */

static void fill_nan(const hr__tensor *x, int64_t item, int64_t items) {
  int64_t count = x->count / items * (hr_dtype_is_complex(x->dtype) ? 2 : 1);
  for (int64_t i = item * count; i < (item + 1) * count; ++i) {
    if ((hr__lapack_kind(x->dtype) & 1) != 0) {
      ((double *)x->data)[i] = (double)NAN;
    } else {
      ((float *)x->data)[i] = NAN;
    }
  }
}

bool hr__lapack_reports(const hr__library_call *call, int place, int64_t item, int info) {
  if (call->node->output_count <= place || call->outputs[place].data == NULL) {
    return false;
  }
  ((int32_t *)call->outputs[place].data)[item] = info;
  for (int i = 0; i < place && info > 0; ++i) {
    if (call->outputs[i].data != NULL) {
      fill_nan(&call->outputs[i], item, hr__items(&call->inputs[0], 2));
    }
  }
  return true;
}

/* ---- singular values ---- */

typedef struct svd_call {
  hr__matrices m;
  const char *job;
  int ld, ld_u, ld_v, least, u_columns, v_rows;
  void *rwork;
  int *iwork;
} svd_call;

static svd_call read_svd(const hr__library_call *call) {
  svd_call s = {.m = hr__matrices_of(&call->inputs[0])};
  bool has_vectors = call->outputs[0].data != NULL;
  s.least = s.m.rows < s.m.columns ? s.m.rows : s.m.columns;
  s.u_columns = has_vectors ? (int)hr__dim(&call->outputs[0], 1) : s.least;
  s.v_rows = has_vectors ? (int)hr__dim(&call->outputs[2], 0) : s.least;
  s.job = !has_vectors ? "N" : call->node->ints[0] != 0 ? "A" : "S";
  s.ld = s.ld_u = hr__leading(s.m.rows);
  s.ld_v = hr__leading(s.v_rows);
  return s;
}

static int svd_one(const svd_call *s, void *a, void *values, void *u, void *v, void *work, int length) {
  int info = 0;
  const hr__matrices *m = &s->m;
  if (m->kind >= 2) {
    hr__lapack()->COMPLEX_gesdd[m->kind - 2](s->job, &m->rows, &m->columns, a, &s->ld, values, u, &s->ld_u, v, &s->ld_v,
                                             work, &length, s->rwork, s->iwork, &info, 1);
  } else {
    hr__lapack()->REAL_gesdd[m->kind](s->job, &m->rows, &m->columns, a, &s->ld, values, u, &s->ld_u, v, &s->ld_v, work,
                                      &length, s->iwork, &info, 1);
  }
  return info;
}

static hr_status svd(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  svd_call s = read_svd(call);
  int64_t least = s.least, most = s.m.rows > s.m.columns ? s.m.rows : s.m.columns;
  int64_t reals = least * (5 * least + 7 > 2 * most + 2 * least + 1 ? 5 * least + 7 : 2 * most + 2 * least + 1);
  size_t real_bytes = (size_t)((reals + 7 * least + 1) * real_size(s.m.kind)), int_bytes = (size_t)(8 * least + 1) * 4;
  size_t copy = (size_t)(s.m.count * s.m.size);
  double queried[2] = {0};
  (void)svd_one(&s, NULL, NULL, NULL, NULL, queried, -1);
  int length = hr__lapack_length(s.m.kind, queried);
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, real_bytes + int_bytes + copy + (size_t)length * (size_t)s.m.size));
  void *memory = hr__work_take(&work, (size_t)length * (size_t)s.m.size);
  s.rwork = hr__work_take(&work, real_bytes);
  s.iwork = hr__work_take(&work, int_bytes);
  void *a = hr__work_take(&work, copy);
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    const void *from = hr__item(&call->inputs[0], item, s.m.count);
    bool finite = hr__lapack_is_finite(from, s.m.kind, s.m.count);
    memcpy(a, from, copy);
    int info = !finite ? 1
                       : svd_one(&s, a, hr__item(&call->outputs[1], item, least),
                                 hr__item(&call->outputs[0], item, (int64_t)s.m.rows * s.u_columns),
                                 hr__item(&call->outputs[2], item, (int64_t)s.v_rows * s.m.columns), memory, length);
    status = info >= 0 && hr__lapack_reports(call, 3, item, info) ? HR_OK
             : info > 0 ? not_converged("linalg.svd", hr__items(&call->inputs[0], 2), item, info, finite)
                        : hr__info_check("gesdd", info);
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_svd(const hr__library_call *call) {
  svd_call s = read_svd(call);
  bool full = call->node->ints[0] != 0, has_u = call->outputs[0].data != NULL, has_v = call->outputs[2].data != NULL;
  if (has_u != has_v || hr__dim(&call->outputs[1], 0) != s.least ||
      (has_u && (s.u_columns != (full ? s.m.rows : s.least) || s.v_rows != (full ? s.m.columns : s.least)))) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "svd: outputs of other sizes than a %d x %d matrix has", s.m.rows,
                          s.m.columns);
  }
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&s.m) * (has_u ? 20 : 5), svd);
}

/* ---- Hermitian matrices ---- */

typedef struct eigh_call {
  hr__matrices m;
  const char *job, *uplo;
  int ld, reals, ints; /* elements of work memory */
  void *rwork;
  int *iwork;
} eigh_call;

static int eigh_one(const eigh_call *e, void *a, void *values, void *work, int length) {
  int info = 0, reals = length < 0 ? -1 : e->reals, ints = length < 0 ? -1 : e->ints;
  const hr__matrices *m = &e->m;
  if (m->kind >= 2) {
    hr__lapack()->COMPLEX_heevd[m->kind - 2](e->job, e->uplo, &m->rows, a, &e->ld, values, work, &length, e->rwork,
                                             &reals, e->iwork, &ints, &info, 1, 1);
  } else {
    hr__lapack()->REAL_syevd[m->kind](e->job, e->uplo, &m->rows, a, &e->ld, values, work, &length, e->iwork, &ints,
                                      &info, 1, 1);
  }
  return info;
}

static hr_status eigh(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  bool has_vectors = call->outputs[1].data != NULL;
  eigh_call e = {.m = hr__matrices_of(&call->inputs[0]), .job = has_vectors ? "V" : "N"};
  double queried[2] = {0}, queried_reals[2] = {0};
  int queried_ints[2] = {0};
  e.uplo = call->node->ints[0] != 0 ? "U" : "L";
  e.ld = hr__leading(e.m.rows);
  e.rwork = queried_reals, e.iwork = queried_ints;
  (void)eigh_one(&e, NULL, NULL, queried, -1);
  int length = hr__lapack_length(e.m.kind, queried);
  e.reals = e.m.kind >= 2 ? hr__lapack_length(e.m.kind, queried_reals) : 1;
  e.ints = queried_ints[0] > 0 ? queried_ints[0] : 1;
  size_t copy = has_vectors ? 0 : (size_t)(e.m.count * e.m.size), bytes = (size_t)length * (size_t)e.m.size;
  hr__work work;
  HR_RETURN_IF_ERROR(
      hr__work_begin(&work, bytes + copy + (size_t)(e.reals * real_size(e.m.kind)) + (size_t)e.ints * sizeof(int)));
  void *memory = hr__work_take(&work, bytes), *spare = hr__work_take(&work, copy);
  e.rwork = hr__work_take(&work, (size_t)(e.reals * real_size(e.m.kind)));
  e.iwork = hr__work_take(&work, (size_t)e.ints * sizeof(int));
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    const void *from = hr__item(&call->inputs[0], item, e.m.count);
    void *a = has_vectors ? hr__item(&call->outputs[1], item, e.m.count) : spare;
    bool finite = hr__lapack_is_finite(from, e.m.kind, e.m.count);
    memcpy(a, from, (size_t)(e.m.count * e.m.size));
    int info = finite ? eigh_one(&e, a, hr__item(&call->outputs[0], item, e.m.rows), memory, length) : 1;
    status = info >= 0 && hr__lapack_reports(call, 2, item, info) ? HR_OK
             : info > 0 ? not_converged("linalg.eigh", hr__items(&call->inputs[0], 2), item, info, finite)
                        : hr__info_check("syevd", info);
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_eigh(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) * 9, eigh);
}

/* ---- any square matrix ---- */

/* Real matrices: eigenvalues come as real and imaginary parts, the vectors of a conjugate pair as one real and one
 * imaginary column. */
#define JOIN(type, complex_type)                                                                            \
  static void join_##type(int n, const type *wr, const type *wi, const type *columns, complex_type *values, \
                          complex_type *vectors) {                                                          \
    for (int j = 0; j < n; ++j) {                                                                           \
      values[j] = (complex_type){wr[j], wi[j]};                                                             \
    }                                                                                                       \
    for (int64_t j = 0; vectors != NULL && j < n; ++j) {                                                    \
      bool is_pair = wi[j] != 0 && j + 1 < n;                                                               \
      for (int64_t i = 0; i < n; ++i) {                                                                     \
        type re = columns[j * n + i], im = is_pair ? columns[(j + 1) * n + i] : 0;                          \
        vectors[j * n + i] = (complex_type){re, im};                                                        \
        if (is_pair) {                                                                                      \
          vectors[(j + 1) * n + i] = (complex_type){re, -im};                                               \
        }                                                                                                   \
      }                                                                                                     \
      j += is_pair;                                                                                         \
    }                                                                                                       \
  }
JOIN(float, hr_c64)
JOIN(double, hr_c128)

typedef struct eig_call {
  hr__matrices m;
  const char *left, *right;
  int ld;
  void *wr, *wi, *columns[2], *rwork; /* columns (right, left) and parts of values of real matrices */
} eig_call;

static int eig_one(const eig_call *e, void *a, void *values, void *const vectors[2], void *work, int length) {
  int info = 0;
  const hr__matrices *m = &e->m;
  if (m->kind >= 2) {
    hr__lapack()->COMPLEX_geev[m->kind - 2](e->left, e->right, &m->rows, a, &e->ld, values, vectors[1], &e->ld,
                                            vectors[0], &e->ld, work, &length, e->rwork, &info, 1, 1);
    return info;
  }
  hr__lapack()->REAL_geev[m->kind](e->left, e->right, &m->rows, a, &e->ld, e->wr, e->wi, e->columns[1], &e->ld,
                                   e->columns[0], &e->ld, work, &length, &info, 1, 1);
  for (int i = 0; i < 2 && length >= 0 && info == 0; ++i) {
    if (m->kind == 0) {
      join_float(m->rows, e->wr, e->wi, e->columns[i], values, vectors[i]);
    } else {
      join_double(m->rows, e->wr, e->wi, e->columns[i], values, vectors[i]);
    }
  }
  return info;
}

static hr_status eig_item(const hr__library_call *call, const eig_call *e, int64_t item, void *a, void *work,
                          int length) {
  enum { VALUES, RIGHT, LEFT, INFO };
  const void *from = hr__item(&call->inputs[0], item, e->m.count);
  bool has_left = call->node->output_count > LEFT;
  void *const vectors[2] = {hr__item(&call->outputs[RIGHT], item, e->m.count),
                            has_left ? hr__item(&call->outputs[LEFT], item, e->m.count) : NULL};
  memcpy(a, from, (size_t)(e->m.count * e->m.size));
  bool finite = hr__lapack_is_finite(from, e->m.kind, e->m.count);
  int info = finite ? eig_one(e, a, hr__item(&call->outputs[VALUES], item, e->m.rows), vectors, work, length) : 1;
  if (info >= 0 && hr__lapack_reports(call, INFO, item, info)) {
    return HR_OK;
  }
  return !finite    ? hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                     "torch.linalg.eig: input tensor should not contain infs or NaNs.")
         : info > 0 ? not_converged("linalg.eig", hr__items(&call->inputs[0], 2), item, info, true)
                    : hr__info_check("geev", info);
}

static hr_status eig(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  bool has_left = call->node->output_count > 2 && call->outputs[2].data != NULL;
  eig_call e = {.m = hr__matrices_of(&call->inputs[0]), .left = has_left ? "V" : "N"};
  e.right = call->outputs[1].data != NULL ? "V" : "N";
  double queried[2] = {0}, queried_reals[2] = {0};
  e.ld = hr__leading(e.m.rows);
  e.rwork = queried_reals;
  (void)eig_one(&e, NULL, NULL, (void *const[2]){NULL, NULL}, queried, -1);
  int length = hr__lapack_length(e.m.kind, queried);
  size_t copy = (size_t)(e.m.count * e.m.size), row = (size_t)(2 * e.m.rows + 1) * 8;
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, 3 * copy + 3 * row + (size_t)length * (size_t)e.m.size));
  void *memory = hr__work_take(&work, (size_t)length * (size_t)e.m.size), *a = hr__work_take(&work, copy);
  e.columns[0] = hr__work_take(&work, copy), e.columns[1] = hr__work_take(&work, copy);
  e.wr = hr__work_take(&work, row), e.wi = hr__work_take(&work, row), e.rwork = hr__work_take(&work, row);
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    status = eig_item(call, &e, item, a, memory, length);
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_eig(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) * 5, eig);
}
