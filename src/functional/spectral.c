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

static hr_status decompose(const hr__function_call *c, bool has_vectors, bool is_full) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__matrices(&f, 0);
  int64_t rows = hr__row_count(&f, a), columns = hr__column_count(&f, a), least = rows < columns ? rows : columns;
  const hr_tensor *u = NULL, *s = NULL, *vh = NULL;
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
  } else {
    const hr_tensor *x = hr__columns(&f, a);
    const int64_t full = is_full;
    hr_attrs attrs = {.int_count = 1, .ints = &full};
    hr_tensor *outputs[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 3; ++i) {
      outputs[i] = i == 1 || has_vectors ? hr__output(&f, HR_DTYPE_NONE, 0, NULL) : NULL;
    }
    hr__record_to(&f, HR_OP_SVD, &attrs, 1, &x, 3, outputs);
    s = outputs[1];
    u = has_vectors ? hr__transposed(&f, outputs[0]) : NULL;
    vh = has_vectors ? hr__transposed(&f, outputs[2]) : NULL;
  }
  const hr_tensor *results[3] = {u, s, vh};
  return has_vectors ? hr__formula_finish(&f, 3, results) : hr__formula_end(&f, s);
}

hr_status hr__emit_svd(const hr__function_call *c) {
  return decompose(c, true, hr__int_attribute(c, 0) != 0);
}
hr_status hr__emit_svdvals(const hr__function_call *c) {
  return decompose(c, false, false);
}

/* ---- eigenvalues ---- */

/* Of dtypes `values` and `vectors`; has_vectors: the second result. */
static hr_status eigen(const hr__function_call *c, hr_op op, const hr_attrs *attrs, bool has_vectors) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *a = hr__square_matrices(&f, 0), *results[2] = {a, a};
  if (hr__formula_failed(&f)) {
    return hr__formula_finish(&f, 2, results);
  }
  if (hr_tensor_count(a) == 0) {
    hr_dtype real = hr__dtype_real(a->dtype), complex = hr__dtype_complex(real);
    results[0] = hr__filled(&f, 0, op == HR_OP_EIG ? complex : real, a->rank - 1, a->dims);
    results[1] = hr__filled(&f, 0, op == HR_OP_EIG ? complex : a->dtype, a->rank, a->dims);
    return hr__formula_finish(&f, 2, results);
  }
  const hr_tensor *x = hr__columns(&f, a);
  hr_tensor *outputs[2] = {hr__output(&f, HR_DTYPE_NONE, 0, NULL), NULL};
  outputs[1] = has_vectors ? hr__output(&f, HR_DTYPE_NONE, 0, NULL) : NULL;
  hr__record_to(&f, op, attrs, 1, &x, 2, outputs);
  results[0] = outputs[0];
  results[1] = has_vectors ? hr__transposed(&f, outputs[1]) : NULL;
  return hr__formula_finish(&f, has_vectors ? 2 : 1, results);
}

static hr_status hermitian(const hr__function_call *c, bool has_vectors) {
  static const char *const words[] = {"L", "U"};
  int word;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, 0, 2, words, &word));
  const int64_t is_upper = word;
  hr_attrs attrs = {.int_count = 1, .ints = &is_upper};
  return eigen(c, HR_OP_EIGH, &attrs, has_vectors);
}

hr_status hr__emit_eigh(const hr__function_call *c) {
  return hermitian(c, true);
}
hr_status hr__emit_eigvalsh(const hr__function_call *c) {
  return hermitian(c, false);
}
hr_status hr__emit_eig(const hr__function_call *c) {
  return eigen(c, HR_OP_EIG, NULL, true);
}
hr_status hr__emit_eigvals(const hr__function_call *c) {
  return eigen(c, HR_OP_EIG, NULL, false);
}
