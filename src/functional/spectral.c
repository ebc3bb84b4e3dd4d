/* spectral.c: orthonormal factors, singular values, eigenvalues. */
#include "functional/matrices.h"

static const hr_tensor *part_of(hr__formula *f, const hr_tensor *x, int from_end, int64_t count) {
  return hr__formula_failed(f) ? x : hr__part(f, x, x->rank - from_end, 0, count);
}

/* ---- QR ---- */

/* The first `width` columns of the product of the reflectors, of which `x`, column-major, has all or less. */
static const hr_tensor *product(hr__formula *f, const hr_tensor *x, const hr_tensor *factors, int64_t width) {
  if (hr__formula_failed(f)) {
    return x;
  }
  int64_t columns = x->dims[x->rank - 2];
  if (width < columns) {
    x = hr__dense(f, part_of(f, x, 2, width));
  } else if (width > columns) {
    x = hr__extended(f, x, x->rank - 2, width);
  }
  const hr_tensor *inputs[2] = {x, factors};
  return hr__transposed(f, hr__step(f, HR_OP_REFLECTORS, NULL, 2, inputs, HR_DTYPE_NONE));
}

/* Places of `count` outputs, in `outputs` and `results`. */
static void place(hr__formula *f, int count, hr_tensor **outputs, const hr_tensor **results) {
  for (int i = 0; i < count; ++i) {
    outputs[i] = hr__output(f, HR_DTYPE_NONE, 0, NULL);
    results[i] = outputs[i];
  }
}

/* Zeros of x's batch dims and one of this size. */
static const hr_tensor *zeros(hr__formula *f, const hr_tensor *x, hr_dtype dtype, int64_t size) {
  int64_t dims[HR_RANK_MAX];
  hr__copy_dims(x->rank - 2, x->dims, dims);
  dims[x->rank - 2] = size;
  return hr__filled(f, 0, dtype, x->rank - 1, dims);
}

static int64_t least_of(const hr__formula *f, const hr_tensor *x) {
  int64_t rows = hr__row_count(f, x), columns = hr__column_count(f, x);
  return rows < columns ? rows : columns;
}

hr_status hr__emit_geqrf(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__matrices(&f, 0), *results[2] = {a, a};
  if (!hr__formula_failed(&f) && hr_tensor_count(a) == 0) {
    results[1] = zeros(&f, a, a->dtype, least_of(&f, a));
  } else if (!hr__formula_failed(&f)) {
    const hr_tensor *x = hr__columns(&f, a);
    hr_tensor *outputs[2];
    place(&f, 2, outputs, results);
    hr__record_to(&f, HR_OP_QR, NULL, 1, &x, 2, outputs);
    results[0] = hr__transposed(&f, outputs[0]);
  }
  return hr__formula_finish(&f, 2, results);
}

hr_status hr__emit_geqp3(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__matrices(&f, 0), *pivots = hr__dense(&f, hr__as_dtype(&f, c->inputs[1], HR_DTYPE_I32));
  const hr_tensor *results[3] = {a, pivots, a};
  if (!hr__formula_failed(&f) && hr_tensor_count(a) == 0) {
    results[2] = zeros(&f, a, a->dtype, least_of(&f, a));
  } else if (!hr__formula_failed(&f)) {
    const hr_tensor *inputs[2] = {hr__columns(&f, a), pivots};
    hr_tensor *outputs[3];
    place(&f, 3, outputs, results);
    hr__record_to(&f, HR_OP_QR_PIVOTED, NULL, 2, inputs, 3, outputs);
    results[0] = hr__transposed(&f, outputs[0]);
  }
  return hr__formula_finish(&f, 3, results);
}

hr_status hr__emit_householder_product(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__matrices(&f, 0);
  if (hr__formula_failed(&f) || hr_tensor_count(a) == 0) {
    return hr__formula_end(&f, a);
  }
  const hr_tensor *tau = hr__dense(&f, hr__as_dtype(&f, c->inputs[1], a->dtype));
  return hr__formula_end(&f, product(&f, hr__columns(&f, a), tau, hr__column_count(&f, a)));
}

hr_status hr__emit_ormqr(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__matrices(&f, 0), *y = hr__matrices(&f, 2);
  if (hr__formula_failed(&f) || hr_tensor_count(y) == 0 || hr_tensor_count(a) == 0) {
    return hr__formula_end(&f, y);
  }
  const int64_t ints[2] = {hr__int_attribute(c, 0) != 0, hr__int_attribute(c, 1) != 0};
  hr_attrs attrs = {.int_count = 2, .ints = ints};
  const hr_tensor *tau = hr__dense(&f, hr__as_dtype(&f, c->inputs[1], a->dtype));
  const hr_tensor *inputs[3] = {hr__columns(&f, a), tau, hr__columns(&f, hr__as_dtype(&f, y, a->dtype))};
  return hr__formula_end(&f, hr__transposed(&f, hr__step(&f, HR_OP_REFLECT, &attrs, 3, inputs, HR_DTYPE_NONE)));
}

hr_status hr__emit_qr(const hr__function_call *c) {
  static const char *const words[] = {"reduced", "complete"};
  int word;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, 0, 2, words, &word));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__matrices(&f, 0), *results[2] = {a, a};
  int64_t rows = hr__row_count(&f, a), columns = hr__column_count(&f, a);
  int64_t width = word == 1 || rows < columns ? rows : columns;
  if (hr__formula_failed(&f)) {
    return hr__formula_finish(&f, 2, results);
  }
  if (hr_tensor_count(a) == 0) {
    int64_t dims[HR_RANK_MAX];
    hr__copy_dims(a->rank, a->dims, dims);
    dims[a->rank - 2] = width;
    results[0] = hr__identities(&f, a, rows, width);
    results[1] = hr__filled(&f, 0, a->dtype, a->rank, dims);
    return hr__formula_finish(&f, 2, results);
  }
  const hr_tensor *x = hr__columns(&f, a);
  hr_tensor *outputs[2] = {hr__output(&f, HR_DTYPE_NONE, 0, NULL), hr__output(&f, HR_DTYPE_NONE, 0, NULL)};
  hr__record_to(&f, HR_OP_QR, NULL, 1, &x, 2, outputs);
  results[0] = product(&f, outputs[0], outputs[1], width);
  const hr_tensor *upper = part_of(&f, hr__transposed(&f, outputs[0]), 2, width);
  results[1] = hr__function(&f, HR_FUNCTIONAL_TRIU, 1, &upper, 0, NULL);
  return hr__formula_finish(&f, 2, results);
}

/* ---- singular values ---- */

static hr_status decompose(const hr__function_call *c, bool has_vectors, bool is_full, bool has_info) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__matrices(&f, 0);
  int64_t rows = hr__row_count(&f, a), columns = hr__column_count(&f, a), least = rows < columns ? rows : columns;
  const hr_tensor *u = NULL, *s = NULL, *vh = NULL, *info = NULL;
  if (hr__formula_failed(&f)) {
    return hr__formula_end(&f, NULL);
  }
  if (hr_tensor_count(a) == 0) {
    int64_t dims[HR_RANK_MAX];
    hr__copy_dims(a->rank, a->dims, dims);
    dims[a->rank - 2] = least;
    s = hr__filled(&f, 0, hr__dtype_real(a->dtype), a->rank - 1, dims);
    u = hr__identities(&f, a, rows, is_full ? rows : least);
    vh = hr__identities(&f, a, is_full ? columns : least, columns);
    info = has_info ? hr__filled(&f, 0, HR_DTYPE_I32, a->rank - 2, a->dims) : NULL;
  } else {
    const hr_tensor *x = hr__columns(&f, a);
    const int64_t full = is_full;
    hr_attrs attrs = {.int_count = 1, .ints = &full};
    hr_tensor *outputs[4] = {NULL, NULL, NULL, NULL};
    for (int i = 0; i < 3 + has_info; ++i) {
      outputs[i] = i == 1 || i == 3 || has_vectors ? hr__output(&f, HR_DTYPE_NONE, 0, NULL) : NULL;
    }
    hr__record_to(&f, HR_OP_SVD, &attrs, 1, &x, 3 + has_info, outputs);
    s = outputs[1], info = outputs[3];
    u = has_vectors ? hr__transposed(&f, outputs[0]) : NULL;
    vh = has_vectors ? hr__transposed(&f, outputs[2]) : NULL;
  }
  const hr_tensor *results[4] = {u, s, vh, info};
  return has_vectors ? hr__formula_finish(&f, 3 + has_info, results) : hr__formula_end(&f, s);
}

hr_status hr__emit_svd(const hr__function_call *c) {
  return decompose(c, true, hr__int_attribute(c, 0) != 0, false);
}
hr_status hr__emit_svd_ex(const hr__function_call *c) {
  return decompose(c, true, hr__int_attribute(c, 0) != 0, true);
}
hr_status hr__emit_svdvals(const hr__function_call *c) {
  return decompose(c, false, false, false);
}

/* ---- eigenvalues ---- */

/* The first `count` outputs of the row: values, vectors (of any matrix right, then left ones), info. */
static hr_status eigen(const hr__function_call *c, hr_op op, const hr_attrs *attrs, int count) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__square_matrices(&f, 0), *results[4] = {a, a, a, a};
  int info = op == HR_OP_EIG ? 3 : 2;
  if (hr__formula_failed(&f)) {
    return hr__formula_finish(&f, count, results);
  }
  if (hr_tensor_count(a) == 0) {
    hr_dtype real = hr__dtype_real(a->dtype), complex = hr__dtype_complex(real);
    results[0] = hr__filled(&f, 0, op == HR_OP_EIG ? complex : real, a->rank - 1, a->dims);
    results[1] = hr__filled(&f, 0, op == HR_OP_EIG ? complex : a->dtype, a->rank, a->dims);
    results[2] = results[1];
    results[info] = count > info ? hr__filled(&f, 0, HR_DTYPE_I32, a->rank - 2, a->dims) : NULL;
    return hr__formula_finish(&f, count, results);
  }
  const hr_tensor *x = hr__columns(&f, a);
  hr_tensor *outputs[4];
  place(&f, count, outputs, results);
  hr__record_to(&f, op, attrs, 1, &x, count, outputs);
  for (int i = 1; i < count && i < info; ++i) {
    results[i] = hr__transposed(&f, outputs[i]);
  }
  return hr__formula_finish(&f, count, results);
}

static hr_status hermitian(const hr__function_call *c, int count) {
  static const char *const words[] = {"L", "U"};
  int word;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, 0, 2, words, &word));
  const int64_t is_upper = word;
  hr_attrs attrs = {.int_count = 1, .ints = &is_upper};
  return eigen(c, HR_OP_EIGH, &attrs, count);
}

hr_status hr__emit_eigh(const hr__function_call *c) {
  return hermitian(c, 2);
}
hr_status hr__emit_eigh_ex(const hr__function_call *c) {
  return hermitian(c, 3);
}
hr_status hr__emit_eigvalsh(const hr__function_call *c) {
  return hermitian(c, 1);
}
hr_status hr__emit_eig(const hr__function_call *c) {
  return eigen(c, HR_OP_EIG, NULL, 2);
}
hr_status hr__emit_eig_ex(const hr__function_call *c) {
  return eigen(c, HR_OP_EIG, NULL, 4);
}
hr_status hr__emit_eigvals(const hr__function_call *c) {
  return eigen(c, HR_OP_EIG, NULL, 1);
}

/* ---- condensed forms ---- */

hr_status hr__emit_schur(const hr__function_call *c) {
  enum { FORM, VECTORS, VALUES, INFO, RESULTS };
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__square_matrices(&f, 0), *results[RESULTS] = {a, a, a, a};
  if (!hr__formula_failed(&f) && hr_tensor_count(a) == 0) {
    results[VALUES] = zeros(&f, a, hr__dtype_complex(hr__dtype_real(a->dtype)), hr__row_count(&f, a));
    results[INFO] = hr__filled(&f, 0, HR_DTYPE_I32, a->rank - 2, a->dims);
  } else if (!hr__formula_failed(&f)) {
    const hr_tensor *x = hr__columns(&f, a);
    hr_tensor *outputs[RESULTS];
    place(&f, RESULTS, outputs, results);
    hr__record_to(&f, HR_OP_SCHUR, NULL, 1, &x, RESULTS, outputs);
    results[FORM] = hr__transposed(&f, outputs[FORM]), results[VECTORS] = hr__transposed(&f, outputs[VECTORS]);
  }
  return hr__formula_finish(&f, RESULTS, results);
}

hr_status hr__emit_hessenberg(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__square_matrices(&f, 0), *results[2] = {a, a};
  int64_t n = hr__row_count(&f, a), high = hr__int_attribute(c, 1);
  if (!hr__formula_failed(&f) && hr_tensor_count(a) == 0) {
    results[1] = zeros(&f, a, a->dtype, n > 0 ? n - 1 : 0);
  } else if (!hr__formula_failed(&f)) {
    const hr_tensor *x = hr__columns(&f, a);
    const int64_t ints[2] = {hr__int_attribute(c, 0), high == 0 ? n : high};
    hr_attrs attrs = {.int_count = 2, .ints = ints};
    hr_tensor *outputs[2];
    place(&f, 2, outputs, results);
    hr__record_to(&f, HR_OP_HESSENBERG, &attrs, 1, &x, 2, outputs);
    results[0] = hr__transposed(&f, outputs[0]);
  }
  return hr__formula_finish(&f, 2, results);
}

hr_status hr__emit_tridiagonal(const hr__function_call *c) {
  static const char *const words[] = {"L", "U"};
  int word;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, 0, 2, words, &word));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__square_matrices(&f, 0), *results[4] = {a, a, a, a};
  int64_t n = hr__row_count(&f, a), beside = n > 0 ? n - 1 : 0;
  if (!hr__formula_failed(&f) && hr_tensor_count(a) == 0) {
    results[1] = zeros(&f, a, hr__dtype_real(a->dtype), n);
    results[2] = zeros(&f, a, hr__dtype_real(a->dtype), beside);
    results[3] = zeros(&f, a, a->dtype, beside);
  } else if (!hr__formula_failed(&f)) {
    const hr_tensor *x = hr__columns(&f, a);
    const int64_t is_upper = word;
    hr_attrs attrs = {.int_count = 1, .ints = &is_upper};
    hr_tensor *outputs[4];
    place(&f, 4, outputs, results);
    hr__record_to(&f, HR_OP_TRIDIAGONAL, &attrs, 1, &x, 4, outputs);
    results[0] = hr__transposed(&f, outputs[0]);
  }
  return hr__formula_finish(&f, 4, results);
}
