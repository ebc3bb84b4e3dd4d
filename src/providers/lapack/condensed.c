/* condensed.c: forms of matrices with few numbers below the diagonal: Schur, Hessenberg, tridiagonal. */
#include <string.h>

#include "core/ops/op.h"
#include "providers/lapack/lapack.h"

/* ---- Schur ---- */

typedef struct schur_call {
  hr__matrices m;
  const char *job;
  int ld;
  void *wr, *wi, *rwork; /* parts of the values of real matrices */
} schur_call;

static int schur_one(const schur_call *s, void *a, void *vectors, void *values, void *work, int length) {
  int info = 0, selected = 0;
  const hr__matrices *m = &s->m;
  if (m->kind >= 2) {
    hr__lapack()->COMPLEX_gees[m->kind - 2](s->job, "N", NULL, &m->rows, a, &s->ld, &selected, values, vectors, &s->ld,
                                            work, &length, s->rwork, NULL, &info, 1, 1);
  } else {
    hr__lapack()->REAL_gees[m->kind](s->job, "N", NULL, &m->rows, a, &s->ld, &selected, s->wr, s->wi, vectors, &s->ld,
                                     work, &length, NULL, &info, 1, 1);
  }
  return info;
}

/* Real and imaginary parts as complex numbers. */
static void join(const schur_call *s, void *values) {
  for (int i = 0; i < s->m.rows; ++i) {
    if (s->m.kind == 0) {
      ((hr_c64 *)values)[i] = (hr_c64){((const float *)s->wr)[i], ((const float *)s->wi)[i]};
    } else {
      ((hr_c128 *)values)[i] = (hr_c128){((const double *)s->wr)[i], ((const double *)s->wi)[i]};
    }
  }
}

static hr_status schur_item(const hr__library_call *call, const schur_call *s, int64_t item, void *values, void *work,
                            int length) {
  enum { FORM, VECTORS, VALUES, INFO };
  void *vectors = hr__item(&call->outputs[VECTORS], item, s->m.count);
  void *out = call->outputs[VALUES].data != NULL ? hr__item(&call->outputs[VALUES], item, s->m.rows) : values;
  void *a = hr__matrix_copy(&call->inputs[0], &call->outputs[FORM], item, &s->m);
  bool is_finite = hr__lapack_is_finite(a, s->m.kind, s->m.count);
  int info = is_finite ? schur_one(s, a, vectors, out, work, length) : 1;
  HR_RETURN_IF_ERROR(hr__info_check("gees", info));
  if (info == 0 && s->m.kind < 2) {
    join(s, out);
  }
  return hr__lapack_reports(call, INFO, item, info) || info == 0
             ? HR_OK
             : hr_status_make(HR_STATUS_ABORTED, "schur: matrix %lld %s", (long long)item,
                              is_finite ? "did not converge" : "has numbers that are not finite");
}

static hr_status schur(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  schur_call s = {.m = hr__matrices_of(&call->inputs[0]), .job = call->outputs[1].data != NULL ? "V" : "N"};
  double queried[2] = {0};
  s.ld = hr__leading(s.m.rows);
  (void)schur_one(&s, NULL, NULL, NULL, queried, -1);
  int length = hr__lapack_length(s.m.kind, queried);
  size_t bytes = (size_t)length * (size_t)s.m.size, row = (size_t)(s.m.rows + 1) * sizeof(hr_c128);
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, bytes + 4 * row));
  void *memory = hr__work_take(&work, bytes), *values = hr__work_take(&work, row);
  s.wr = hr__work_take(&work, row), s.wi = hr__work_take(&work, row), s.rwork = hr__work_take(&work, row);
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    status = schur_item(call, &s, item, values, memory, length);
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_schur(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) * 25, schur);
}

/* ---- Hessenberg ---- */

static hr_status hessenberg(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  int low = (int)call->node->ints[0], high = (int)call->node->ints[1], ld = hr__leading(m.rows), length = -1, info = 0;
  double queried[2] = {0};
  hr__lapack()->ALL_gehrd[m.kind](&m.rows, &low, &high, NULL, &ld, NULL, queried, &length, &info);
  length = hr__lapack_length(m.kind, queried);
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, (size_t)length * (size_t)m.size));
  void *memory = hr__work_take(&work, (size_t)length * (size_t)m.size);
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    void *a = hr__matrix_copy(&call->inputs[0], &call->outputs[0], item, &m);
    hr__lapack()->ALL_gehrd[m.kind](&m.rows, &low, &high, a, &ld, hr__item(&call->outputs[1], item, m.rows - 1), memory,
                                    &length, &info);
    status = hr__info_check("gehrd", info);
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_hessenberg(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  int64_t low = call->node->ints[0], high = call->node->ints[1];
  if (low < 1 || low > high || high > m.rows) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hessenberg: rows %lld to %lld of %d", (long long)low,
                          (long long)high, m.rows);
  }
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) * 10 / 3, hessenberg);
}

/* ---- tridiagonal ---- */

static int tridiagonal_one(const hr__matrices *m, const char *uplo, void *a, void *const parts[3], void *work,
                           int length) {
  int ld = hr__leading(m->rows), info = 0;
  if (m->kind >= 2) {
    hr__lapack()->COMPLEX_hetrd[m->kind - 2](uplo, &m->rows, a, &ld, parts[0], parts[1], parts[2], work, &length, &info,
                                             1);
  } else {
    hr__lapack()->REAL_sytrd[m->kind](uplo, &m->rows, a, &ld, parts[0], parts[1], parts[2], work, &length, &info, 1);
  }
  return info;
}

static hr_status tridiagonal(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  const char *uplo = call->node->ints[0] != 0 ? "U" : "L";
  double queried[2] = {0};
  (void)tridiagonal_one(&m, uplo, NULL, (void *const[3]){NULL, NULL, NULL}, queried, -1);
  int length = hr__lapack_length(m.kind, queried);
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, (size_t)length * (size_t)m.size));
  void *memory = hr__work_take(&work, (size_t)length * (size_t)m.size);
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    void *a = hr__matrix_copy(&call->inputs[0], &call->outputs[0], item, &m), *parts[3];
    for (int i = 0; i < 3; ++i) {
      parts[i] = hr__item(&call->outputs[1 + i], item, i == 0 ? m.rows : m.rows - 1);
    }
    status = hr__info_check("sytrd", tridiagonal_one(&m, uplo, a, parts, memory, length));
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_tridiagonal(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) * 4 / 3, tridiagonal);
}
