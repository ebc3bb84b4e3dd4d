/* interpolation.c: other sizes of dims, one dim after the other.
 *
 * An element of the result is a weighted sum of elements of x along the dim, its taps, or the nearest one. Place i of
 * the result is place (a * i + b) / c of x; the names of a, b and c, of rounding and of taps are those of ONNX's
 * Resize, version 19. Places are computed in f64 with one division: they are exact if they are representable.
 *
 *   nearest      the rounded place
 *   linear       2 taps, weights 1 - distance
 *   cubic        4 taps, Keys' polynomials with a parameter, A
 *   antialias    the filter and the number of its taps grow with the distance of the result's elements in x;
 *                weights sum to 1
 *
 * The row RESAMPLE computes the cases that it has; its gradient needs no scatter.
 */
#include <math.h>

#include "functional/formula.h"

enum { AXES, SIZES, SCALES, MODE, COORDINATES, ROUNDING, ANTIALIAS, CUBIC, EXCLUDES, REGION, OUTSIDE };
enum { NEAREST, LINEAR, CUBICS, MODES };
static const char *const modes[MODES] = {"nearest", "linear", "cubic"};
enum { MOST_TAPS = 1 << 26 };
enum { HALF_PIXEL, SYMMETRIC, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, TF_HALF_PIXEL, CROP, KINDS };
static const char *const kinds[KINDS] = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                                         "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"};
enum { PREFER_FLOOR, PREFER_CEIL, FLOORS, CEILS, ROUNDINGS };
static const char *const roundings[ROUNDINGS] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};

/* One dim, and how it is resized. */
typedef struct line {
  const hr__function_call *call;
  int axis, mode, kind, rounding;
  bool is_antialiased, excludes, has_outside;
  int64_t in, out;
  double scale;      /* 0: out / in */
  double begin, end; /* of the region, in units of in - 1 */
  double cubic;
} line;

/* ---- places ---- */

/* Elements of x for one of the result; of other ends than those of pixels, too, as in ONNX. */
static double ratio_of(const line *l) {
  return l->scale > 0 ? 1 / l->scale : (double)l->in / (double)l->out;
}

/* a, b and c: one element of the result is p / q elements of x. */
static void find_places(const line *l, double abc[3]) {
  double n = (double)l->in, m = (double)l->out, p = l->scale > 0 ? 1 : n, q = l->scale > 0 ? l->scale : m;
  bool is_one = l->out <= 1;
  const double all[KINDS][3] = {[HALF_PIXEL] = {2 * p, p - q, 2 * q},
                                [SYMMETRIC] = {2 * p, (n - 1) * q + (1 - m) * p, 2 * q},
                                [PYTORCH_HALF_PIXEL] = {is_one ? 0 : 2 * p, is_one ? 0 : p - q, 2 * q},
                                [ALIGN_CORNERS] = {n - 1, 0, is_one ? 1 : m - 1},
                                [ASYMMETRIC] = {p, 0, q},
                                [TF_HALF_PIXEL] = {2 * p, p, 2 * q},
                                [CROP] = {is_one ? 0 : (l->end - l->begin) * (n - 1),
                                          is_one ? 0.5 * (l->begin + l->end) * (n - 1) : l->begin * (n - 1) * (m - 1),
                                          is_one ? 1 : m - 1}};
  memcpy(abc, all[l->kind], sizeof all[0]);
}

/* start, start + step, ... */
static const hr_tensor *numbers(hr__formula *f, hr_dtype dtype, int64_t count, hr_scalar start, hr_scalar step) {
  const hr_scalar scalars[2] = {start, step};
  hr_attrs attrs = {.scalar_count = 2, .scalars = scalars};
  hr_tensor *out = hr__output(f, dtype, 1, &count);
  hr__record_to(f, HR_OP_ARANGE, &attrs, 0, NULL, 1, &out);
  return out;
}

static const hr_tensor *places_of(hr__formula *f, const line *l) {
  double abc[3];
  find_places(l, abc);
  const hr_tensor *all = numbers(f, HR_DTYPE_F64, l->out, hr_scalar_f64(abc[1]), hr_scalar_f64(abc[0]));
  return hr__binary(f, HR_OP_DIV, all, hr__real(f, abc[2]));
}

/* Numbers of elements of x in i64. */
static const hr_tensor *elements_at(hr__formula *f, const line *l, const hr_tensor *places) {
  const hr_tensor *at = hr__as_dtype(f, places, HR_DTYPE_I64);
  return hr__ternary(f, HR_OP_CLAMP, at, hr__integer(f, 0), hr__integer(f, l->in - 1));
}

static const hr_tensor *rounded(hr__formula *f, const line *l, const hr_tensor *places) {
  if (l->rounding == CEILS) {
    return hr__unary(f, HR_OP_CEIL, places);
  }
  const hr_tensor *whole = hr__unary(f, HR_OP_FLOOR, places);
  if (l->rounding == FLOORS) {
    return whole;
  }
  const hr_tensor *rest = hr__binary(f, HR_OP_SUB, places, whole);
  const hr_tensor *is_up = hr__binary(f, l->rounding == PREFER_CEIL ? HR_OP_GE : HR_OP_GT, rest, hr__real(f, 0.5));
  return hr__binary(f, HR_OP_ADD, whole, is_up);
}

/* ---- taps ---- */

static const hr_tensor *affine(hr__formula *f, const hr_tensor *x, double factor, double term) {
  return hr__binary(f, HR_OP_ADD, hr__binary(f, HR_OP_MUL, x, hr__real(f, factor)), hr__real(f, term));
}

/* The cubic filter of parameter a at d >= 0. */
static const hr_tensor *cubic_at(hr__formula *f, const hr_tensor *d, double a) {
  const hr_tensor *near = hr__binary(f, HR_OP_MUL, affine(f, d, a + 2, -(a + 3)), hr__unary(f, HR_OP_SQUARE, d));
  near = hr__binary(f, HR_OP_ADD, near, hr__real(f, 1));
  const hr_tensor *far = affine(f, hr__binary(f, HR_OP_MUL, affine(f, d, 1, -5), d), 1, 8);
  far = affine(f, hr__binary(f, HR_OP_MUL, far, d), a, -4 * a);
  far = hr__ternary(f, HR_OP_WHERE, hr__binary(f, HR_OP_LT, d, hr__integer(f, 2)), far, hr__real(f, 0));
  return hr__ternary(f, HR_OP_WHERE, hr__binary(f, HR_OP_LE, d, hr__integer(f, 1)), near, far);
}

static const hr_tensor *filter_at(hr__formula *f, const line *l, const hr_tensor *d) {
  return l->mode == CUBICS ? cubic_at(f, d, l->cubic)
                           : hr__binary(f, HR_OP_MAXIMUM, affine(f, d, -1, 1), hr__real(f, 0));
}

/* Weights [out, K] without those of elements outside of x, if that is wanted, of sum 1. */
static const hr_tensor *normalised(hr__formula *f, const line *l, const hr_tensor *weights, const hr_tensor *elements) {
  if (l->excludes) {
    const hr_tensor *is_inside = hr__binary(f, HR_OP_LOGICAL_AND, hr__binary(f, HR_OP_GE, elements, hr__integer(f, 0)),
                                            hr__binary(f, HR_OP_LT, elements, hr__integer(f, l->in)));
    weights = hr__ternary(f, HR_OP_WHERE, is_inside, weights, hr__real(f, 0));
  }
  if (!l->excludes && !l->is_antialiased) {
    return weights;
  }
  const hr_tensor *sum = hr__along(f, HR_OP_SUM, weights, 1 << 1);
  const hr_tensor *is_none = hr__binary(f, HR_OP_EQ, sum, hr__integer(f, 0));
  return hr__binary(f, HR_OP_DIV, weights, hr__ternary(f, HR_OP_WHERE, is_none, hr__real(f, 1), sum));
}

/* Elements [out, K], inside of x, and their weights. */
static void find_taps(hr__formula *f, const line *l, const hr_tensor *places, const hr_tensor **elements,
                      const hr_tensor **weights) {
  double width = l->is_antialiased ? fmax(ratio_of(l), 1) : 1, reach = ceil((l->mode == CUBICS ? 2 : 1) * width);
  if (!(reach < MOST_TAPS / 2)) {
    hr__formula_fail(f,
                     HR__CALL_FAIL(l->call, "%g taps of axis %d, expected at most %d", 2 * reach, l->axis, MOST_TAPS));
    reach = 1;
  }
  int64_t count = (int64_t)(2 * reach), dims[2] = {l->out, 1};
  const hr_tensor *column = hr__formula_failed(f) ? places : hr__as_dims(f, places, 2, dims);
  const hr_tensor *first = hr__unary(f, HR_OP_FLOOR, column);
  const hr_tensor *taps = numbers(f, HR_DTYPE_F64, count, hr_scalar_i64(1 - count / 2), hr_scalar_i64(1));
  const hr_tensor *all = hr__binary(f, HR_OP_ADD, first, taps);
  const hr_tensor *distance = hr__unary(f, HR_OP_ABS, hr__binary(f, HR_OP_SUB, column, all));
  distance = width > 1 ? hr__binary(f, HR_OP_DIV, distance, hr__real(f, width)) : distance;
  *weights = normalised(f, l, filter_at(f, l, distance), all);
  *elements = elements_at(f, l, all);
}

/* The tensor with dims of size 1 behind, for those of x behind the axis. */
static const hr_tensor *beside(hr__formula *f, const hr_tensor *table, int rank, int axis) {
  int64_t dims[2 * HR_RANK_MAX];
  if (hr__formula_failed(f)) {
    return table;
  }
  hr__copy_dims(table->rank, table->dims, dims);
  int count = table->rank;
  for (int d = axis + 1; d < rank; ++d) {
    dims[count++] = 1;
  }
  return hr__as_dims(f, table, count, dims);
}

static const hr_tensor *weighted_sum(hr__formula *f, const line *l, const hr_tensor *x, const hr_tensor *places) {
  const hr_tensor *elements, *weights;
  bool is_double = x->dtype == HR_DTYPE_F64 || x->dtype == HR_DTYPE_C128;
  find_taps(f, l, places, &elements, &weights);
  const hr_tensor *pair[2] = {x, elements};
  const hr_tensor *taps = hr__along_pair(f, HR_OP_INDEX_SELECT, pair, l->axis);
  weights = beside(f, hr__as_dtype(f, weights, is_double ? HR_DTYPE_F64 : HR_DTYPE_F32), x->rank, l->axis);
  return hr__reduced(f, HR_OP_SUM, hr__binary(f, HR_OP_MUL, taps, weights), 1u << (l->axis + 1));
}

/* ---- one dim ---- */

/* The attribute `outside` for places outside of x. */
static const hr_tensor *with_outside(hr__formula *f, const line *l, const hr_tensor *y, const hr_tensor *places) {
  const hr_tensor *is_outside = hr__binary(f, HR_OP_LOGICAL_OR, hr__binary(f, HR_OP_LT, places, hr__integer(f, 0)),
                                           hr__binary(f, HR_OP_GT, places, hr__integer(f, l->in - 1)));
  const hr_tensor *value = hr__number(f, hr__real_attribute(l->call, OUTSIDE));
  hr_dtype dtype = hr__formula_failed(f) ? HR_DTYPE_NONE : y->dtype;
  y = hr__ternary(f, HR_OP_WHERE, beside(f, is_outside, y->rank, l->axis), value, y);
  return dtype == HR_DTYPE_NONE ? y : hr__as_dtype(f, y, dtype);
}

/* The kind of the row RESAMPLE; -1: it has none. */
static int row_kind(const line *l) {
  bool is_plain = l->kind == HALF_PIXEL || (l->kind == PYTORCH_HALF_PIXEL && l->out > 1) ||
                  (l->kind == SYMMETRIC && (l->scale == 0 || (double)l->out == (double)l->in * l->scale));
  bool is_aligned = l->kind == ALIGN_CORNERS, is_cubic = l->mode == CUBICS;
  if (l->mode == NEAREST || l->has_outside || l->excludes != l->is_antialiased || !(is_plain || is_aligned)) {
    return -1;
  }
  if (l->is_antialiased) {
    return !is_plain ? -1 : !is_cubic ? 4 : l->cubic == -0.5 ? 5 : -1;
  }
  return !is_cubic ? 2 : l->cubic == -0.75 ? 3 : -1;
}

static const hr_tensor *resampled(hr__formula *f, const line *l, const hr_tensor *x, int kind) {
  double reach = (l->mode == CUBICS ? 2 : 1) * fmax(ratio_of(l), 1);
  const int64_t ints[4] = {l->axis, kind, l->kind == ALIGN_CORNERS,
                           l->is_antialiased ? 2 * (int64_t)ceil(reach) + 1 : 0};
  hr_scalar scale = hr_scalar_f64(l->scale);
  hr_attrs attrs = {.int_count = 4, .scalar_count = 1, .ints = ints, .scalars = &scale};
  int64_t dims[HR_RANK_MAX];
  if (hr__formula_failed(f)) {
    return x;
  }
  hr__copy_dims(x->rank, x->dims, dims);
  dims[l->axis] = l->out;
  hr_tensor *out = hr__output(f, HR_DTYPE_NONE, x->rank, dims);
  hr__record_to(f, HR_OP_RESAMPLE, &attrs, 1, &x, 1, &out);
  return out;
}

/* The number of copies of each element that follow it, if that is all; else 0. */
static int64_t copies_of(const line *l) {
  bool is_plain = (l->kind == ASYMMETRIC && l->rounding == FLOORS) ||
                  (l->kind == HALF_PIXEL && (l->rounding == PREFER_FLOOR || l->rounding == PREFER_CEIL));
  bool is_whole = l->mode == NEAREST && is_plain && l->in > 0 && l->out % l->in == 0;
  return is_whole && (l->scale == 0 || l->scale == (double)(l->out / l->in)) ? l->out / l->in : 0;
}

static const hr_tensor *nearest(hr__formula *f, const line *l, const hr_tensor *x) {
  int64_t copies = copies_of(l);
  if (copies > 0) {
    const hr_attribute times[2] = {{.kind = HR_ATTRIBUTE_INT, .value = {.integer = copies}},
                                   {.kind = HR_ATTRIBUTE_INT, .value = {.integer = l->axis}}};
    return hr__function(f, HR_FUNCTIONAL_REPEAT, 1, &x, 2, times);
  }
  const hr_tensor *places = places_of(f, l), *pair[2] = {x, elements_at(f, l, rounded(f, l, places))};
  const hr_tensor *y = hr__along_pair(f, HR_OP_INDEX_SELECT, pair, l->axis);
  return l->has_outside ? with_outside(f, l, y, places) : y;
}

static const hr_tensor *resized(hr__formula *f, const line *l, const hr_tensor *x) {
  if (l->out == 0) {
    return hr__part(f, x, l->axis, 0, 0);
  }
  if (l->mode == NEAREST) {
    return nearest(f, l, x);
  }
  int kind = row_kind(l);
  if (kind >= 0) {
    return resampled(f, l, x, kind);
  }
  const hr_tensor *places = places_of(f, l), *y = weighted_sum(f, l, x, places);
  return l->has_outside ? with_outside(f, l, y, places) : y;
}

/* ---- attributes ---- */

static hr_status read_words(const hr__function_call *c, line *l) {
  hr_scalar cubic = hr__real_attribute(c, CUBIC);
  HR_RETURN_IF_ERROR(hr__word_attribute(c, MODE, MODES, modes, &l->mode));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, COORDINATES, KINDS, kinds, &l->kind));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, ROUNDING, ROUNDINGS, roundings, &l->rounding));
  l->call = c, l->cubic = hr_scalar_as_f64(&cubic);
  l->is_antialiased = hr__int_attribute(c, ANTIALIAS) != 0 && l->mode != NEAREST;
  l->excludes = hr__int_attribute(c, EXCLUDES) != 0 && l->mode != NEAREST;
  l->has_outside = hr__given_attribute(c, OUTSIDE) != NULL;
  if (hr__int_attribute(c, ANTIALIAS) != 0 && l->mode == NEAREST) {
    return HR__CALL_FAIL(c, "antialias with mode nearest, expected linear or cubic");
  }
  return HR_OK;
}

static int count_given(const hr__function_call *c, int index) {
  const hr_attribute *given = hr__given_attribute(c, index);
  return given != NULL ? given->count : -1;
}

/* As many sizes, scales and halves of the region as axes. */
static hr_status check_counts(const hr__function_call *c, const line *l, int axes) {
  int sizes = count_given(c, SIZES), scales = count_given(c, SCALES), region = count_given(c, REGION);
  if (sizes < 0 && scales < 0) {
    return HR__CALL_FAIL(c, "neither sizes nor scales are given");
  }
  if ((sizes >= 0 && sizes != axes) || (scales >= 0 && scales != axes)) {
    return HR__CALL_FAIL(c, "%d %s for %d axes", sizes >= 0 && sizes != axes ? sizes : scales,
                         sizes >= 0 && sizes != axes ? "sizes" : "scales", axes);
  }
  if ((region >= 0 || l->kind == CROP) && region != 2 * axes) {
    return HR__CALL_FAIL(c, "%d numbers of region for %d axes, expected a begin for each, then an end for each",
                         region < 0 ? 0 : region, axes);
  }
  return HR_OK;
}

static hr_status read_sizes(const hr__function_call *c, int number, int axes, line *l) {
  const hr_attribute *sizes = hr__given_attribute(c, SIZES), *scales = hr__given_attribute(c, SCALES);
  const hr_attribute *region = hr__given_attribute(c, REGION);
  l->in = c->inputs[0]->dims[l->axis];
  l->scale = scales != NULL ? scales->value.reals[number] : 0;
  if (scales != NULL && !(l->scale > 0 && l->scale < 0x1p31)) {
    return HR__CALL_FAIL(c, "scale %g of axis %d, expected a positive number", l->scale, l->axis);
  }
  double out = sizes != NULL ? (double)sizes->value.ints[number] : floor((double)l->in * l->scale);
  if (!(out >= 0 && out < 0x1p53) || (l->in == 0 && out > 0)) {
    return HR__CALL_FAIL(c, "size %.0f of axis %d with %lld elements", out, l->axis, (long long)l->in);
  }
  l->out = (int64_t)out;
  l->begin = region != NULL ? region->value.reals[number] : 0;
  l->end = region != NULL ? region->value.reals[axes + number] : 1;
  return HR_OK;
}

/* The axes in their order; all without the attribute. */
static hr_status read_axes(const hr__function_call *c, int *out_axes, int *out_count) {
  const hr_attribute *given = hr__given_attribute(c, AXES);
  int rank = c->inputs[0]->rank;
  uint32_t mask;
  HR_RETURN_IF_ERROR(hr__axes_attribute(c, AXES, rank, &mask));
  *out_count = given != NULL ? given->count : rank;
  for (int i = 0; i < *out_count; ++i) {
    out_axes[i] = i;
    if (given != NULL) {
      HR_RETURN_IF_ERROR(hr__check_axis(c, given->value.ints[i], rank, &out_axes[i]));
    }
  }
  return HR_OK;
}

/* x, which is released, gets the result of one dim. */
static hr_status resize_dim(const line *l, hr_tensor *x) {
  hr__formula f;
  hr_tensor result;
  hr__function_call call = *l->call;
  call.output = &result, call.output_count = 1;
  hr__formula_begin(&f, &call);
  hr_status status = hr__formula_end(&f, resized(&f, l, x));
  if (status == HR_OK) {
    hr_tensor_release(x);
    hr__copy_tensor(&result, x);
  }
  return status;
}

static hr_status resize_dims(const hr__function_call *c, line *l, hr_tensor *x) {
  int axes[HR_RANK_MAX], count;
  HR_RETURN_IF_ERROR(read_axes(c, axes, &count));
  HR_RETURN_IF_ERROR(check_counts(c, l, count));
  for (int i = 0; i < count; ++i) {
    l->axis = axes[i];
    HR_RETURN_IF_ERROR(read_sizes(c, i, count, l));
    bool is_same = l->in == l->out && (l->scale == 0 || l->scale == 1) && l->kind != CROP && l->kind != TF_HALF_PIXEL;
    if (!is_same) {
      HR_RETURN_IF_ERROR(resize_dim(l, x));
    }
  }
  return HR_OK;
}

hr_status hr__emit_interpolate(const hr__function_call *c) {
  line l = {.call = c};
  const hr_tensor *x = c->inputs[0];
  HR_RETURN_IF_ERROR(read_words(c, &l));
  hr_dtype dtype = l.mode == NEAREST ? x->dtype : hr__wide_dtype(x->dtype); /* of sums of taps */
  hr_tensor wide;
  HR_RETURN_IF_ERROR(hr__convert(c, x, dtype, &wide));
  hr_status status = resize_dims(c, &l, &wide);
  if (status == HR_OK) {
    status = hr__convert(c, &wide, hr_dtype_is_integer(x->dtype) ? dtype : x->dtype, c->output);
  }
  hr_tensor_release(&wide);
  return status;
}

/* ---- places given by a tensor ---- */

hr_status hr__emit_grid_sample(const hr__function_call *c) {
  enum { GRID_MODE, PADDING, ALIGNED };
  static const char *const grid_modes[3] = {"linear", "nearest", "cubic"};
  static const char *const paddings[3] = {"zeros", "border", "reflection"};
  int mode, padding;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, GRID_MODE, 3, grid_modes, &mode));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, PADDING, 3, paddings, &padding));
  const int64_t ints[3] = {mode, padding, hr__int_attribute(c, ALIGNED)};
  hr_attrs attrs = {.int_count = 3, .ints = ints};
  return hr__record_one(c, c->row->op, &attrs, 2, c->inputs, HR_DTYPE_NONE, c->output);
}
