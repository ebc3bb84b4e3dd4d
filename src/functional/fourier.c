/* fourier.c: Fourier transforms along axes with padding and trimming.
 *
 * The rows transform the last dim of dense operands: an axis is moved there and back, so results may have its elements
 * innermost in memory. The factor of the norm is applied by the last transform of a call. */
#include <math.h>

#include "functional/formula.h"

enum { SIZES, AXES, NORM }; /* the attributes */

typedef struct plan {
  int count;
  int axes[HR_RANK_MAX];
  int64_t sizes[HR_RANK_MAX]; /* of the signal: in an inverse real transform, of the result */
  double factor;
} plan;

static hr_dtype complex_of(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64 || dtype == HR_DTYPE_C128 ? HR_DTYPE_C128 : HR_DTYPE_C64;
}

static hr_dtype real_of(hr_dtype dtype) {
  return complex_of(dtype) == HR_DTYPE_C128 ? HR_DTYPE_F64 : HR_DTYPE_F32;
}

static hr_status set_factor(const hr__function_call *c, bool is_inverse, plan *p) {
  static const char *const words[] = {"backward", "ortho", "forward"};
  int word;
  double count = 1;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, NORM, 3, words, &word));
  for (int i = 0; i < p->count; ++i) {
    count *= (double)p->sizes[i];
  }
  p->factor = word == 1 ? 1 / sqrt(count) : (word == 2) != is_inverse ? 1 / count : 1;
  return HR_OK;
}

/* is_half: x has the first half of the last axis' symmetric values. */
static hr_status set_size(const hr__function_call *c, int i, bool is_half, plan *p) {
  const hr_attribute *sizes = hr__given_attribute(c, SIZES);
  int64_t size = c->inputs[0]->dims[p->axes[i]];
  if (sizes != NULL) { /* -1: as x, also for a half */
    size = sizes->value.ints[i] != -1 ? sizes->value.ints[i] : size;
  } else if (is_half && i == p->count - 1) {
    size = 2 * size - 2;
  }
  if (size < 1) {
    return HR__CALL_FAIL(c, "%lld points along axis %d, expected at least 1", (long long)size, p->axes[i]);
  }
  p->sizes[i] = size;
  return HR_OK;
}

/* The axes of a function of one axis, or of several. */
static hr_status set_axes(const hr__function_call *c, bool has_several, plan *p) {
  const hr_attribute *sizes = hr__given_attribute(c, SIZES), *axes = has_several ? hr__given_attribute(c, AXES) : NULL;
  int rank = c->inputs[0]->rank;
  p->count = axes != NULL ? axes->count : !has_several ? 1 : sizes != NULL ? sizes->count : rank;
  if (sizes != NULL && sizes->count != p->count) {
    return HR__CALL_FAIL(c, "%d sizes for %d axes", sizes->count, p->count);
  }
  if (p->count < 1 || p->count > rank) {
    return HR__CALL_FAIL(c, "%d axes of %d dims", p->count, rank);
  }
  for (int i = 0; i < p->count; ++i) {
    int64_t axis = axes != NULL ? axes->value.ints[i] : has_several ? rank - p->count + i : hr__int_attribute(c, AXES);
    HR_RETURN_IF_ERROR(hr__check_axis(c, axis, rank, &p->axes[i]));
  }
  return HR_OK;
}

static hr_status make_plan(const hr__function_call *c, bool has_several, bool is_inverse, bool is_half, plan *p) {
  HR_RETURN_IF_ERROR(set_axes(c, has_several, p));
  for (int i = 0; i < p->count; ++i) {
    HR_RETURN_IF_ERROR(set_size(c, i, is_half, p));
  }
  return set_factor(c, is_inverse, p);
}

/* The last dim with this length: a part, or zeros behind. */
static const hr_tensor *resized(hr__formula *f, const hr_tensor *x, int64_t size) {
  int last = x->rank - 1;
  if (hr__formula_failed(f) || x->dims[last] == size) {
    return x;
  }
  return x->dims[last] > size ? hr__part(f, x, last, 0, size) : hr__extended(f, x, last, size);
}

/* A transform of `from` elements along an axis, with `to` results. */
static const hr_tensor *transformed(hr__formula *f, hr_op op, const hr_tensor *x, int axis, int64_t from, int64_t to,
                                    bool is_inverse, double factor) {
  if (hr__formula_failed(f)) {
    return x;
  }
  int last = x->rank - 1;
  x = hr__dense(f, resized(f, hr__moved(f, x, axis, last), from));
  if (hr__formula_failed(f)) {
    return x;
  }
  int64_t dims[HR_RANK_MAX];
  hr__copy_dims(last + 1, x->dims, dims);
  dims[last] = to;
  hr_dtype dtype = op == HR_OP_FFT_HALF ? real_of(x->dtype) : complex_of(x->dtype);
  if (hr_tensor_count(x) == 0) { /* of other dims */
    return hr__moved(f, hr__copied(f, hr__integer(f, 0), dtype, last + 1, dims), last, axis);
  }
  const int64_t ints[2] = {is_inverse, 0};
  hr_scalar number = hr_scalar_f64(factor);
  hr_attrs attrs = {.int_count = op == HR_OP_FFT ? 2 : 0, .scalar_count = 1, .ints = ints, .scalars = &number};
  hr_tensor *out = hr__output(f, dtype, last + 1, dims);
  hr__record_to(f, op, &attrs, 1, &x, 1, &out);
  return hr__moved(f, out, last, axis);
}

/* Complex transforms along the first `count` axes of the plan, in reverse order; the last one has the factor. */
static const hr_tensor *all_complex(hr__formula *f, const hr_tensor *x, const plan *p, int count, bool is_inverse,
                                    double factor) {
  for (int i = count - 1; i >= 0; --i) {
    x = transformed(f, HR_OP_FFT, x, p->axes[i], p->sizes[i], p->sizes[i], is_inverse, i == 0 ? factor : 1);
  }
  return x;
}

/* ---- the functions ---- */

static hr_status complex_transform(const hr__function_call *c, bool has_several, bool is_inverse) {
  plan p;
  HR_RETURN_IF_ERROR(make_plan(c, has_several, is_inverse, false, &p));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = hr__as_dtype(&f, c->inputs[0], complex_of(c->inputs[0]->dtype));
  return hr__formula_end(&f, all_complex(&f, x, &p, p.count, is_inverse, p.factor));
}

static hr_status check_real(const hr__function_call *c) {
  hr_dtype dtype = c->inputs[0]->dtype;
  return hr_dtype_is_complex(dtype) ? HR__CALL_FAIL(c, "x has dtype %s, expected real numbers", hr_dtype_name(dtype))
                                    : HR_OK;
}

/* is_inverse: the factor of an inverse transform, and conjugate results. */
static hr_status real_transform(const hr__function_call *c, bool has_several, bool is_inverse) {
  plan p;
  HR_RETURN_IF_ERROR(check_real(c));
  HR_RETURN_IF_ERROR(make_plan(c, has_several, is_inverse, false, &p));
  hr__formula f;
  hr__formula_begin(&f, c);
  int last = p.count - 1;
  const hr_tensor *x = hr__as_dtype(&f, c->inputs[0], real_of(c->inputs[0]->dtype));
  const hr_tensor *y = transformed(&f, HR_OP_FFT_REAL, x, p.axes[last], p.sizes[last], p.sizes[last] / 2 + 1, false,
                                   last == 0 ? p.factor : 1);
  y = all_complex(&f, y, &p, last, false, p.factor);
  return hr__formula_end(&f, is_inverse ? hr__unary(&f, HR_OP_CONJ, y) : y);
}

/* is_forward: the factor of a forward transform, of conjugate values. */
static hr_status half_transform(const hr__function_call *c, bool has_several, bool is_forward) {
  plan p;
  HR_RETURN_IF_ERROR(make_plan(c, has_several, !is_forward, true, &p));
  hr__formula f;
  hr__formula_begin(&f, c);
  int last = p.count - 1;
  const hr_tensor *x = hr__as_dtype(&f, c->inputs[0], complex_of(c->inputs[0]->dtype));
  x = is_forward ? hr__unary(&f, HR_OP_CONJ, x) : x;
  x = all_complex(&f, x, &p, last, true, 1);
  return hr__formula_end(
      &f, transformed(&f, HR_OP_FFT_HALF, x, p.axes[last], p.sizes[last] / 2 + 1, p.sizes[last], true, p.factor));
}

hr_status hr__emit_fft(const hr__function_call *c) {
  return complex_transform(c, false, false);
}
hr_status hr__emit_ifft(const hr__function_call *c) {
  return complex_transform(c, false, true);
}
hr_status hr__emit_fftn(const hr__function_call *c) {
  return complex_transform(c, true, false);
}
hr_status hr__emit_ifftn(const hr__function_call *c) {
  return complex_transform(c, true, true);
}
hr_status hr__emit_rfft(const hr__function_call *c) {
  return real_transform(c, false, false);
}
hr_status hr__emit_rfftn(const hr__function_call *c) {
  return real_transform(c, true, false);
}
hr_status hr__emit_ihfft(const hr__function_call *c) {
  return real_transform(c, false, true);
}
hr_status hr__emit_irfft(const hr__function_call *c) {
  return half_transform(c, false, false);
}
hr_status hr__emit_irfftn(const hr__function_call *c) {
  return half_transform(c, true, false);
}
hr_status hr__emit_hfft(const hr__function_call *c) {
  return half_transform(c, false, true);
}
