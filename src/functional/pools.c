/* pools.c: pools on planes. Planes of up to three dims are pooled by their rows; others, and pools of powers, by a
 * reduction of a view of all windows. */
#include <math.h>

#include "functional/scatter.h"
#include "functional/windows.h"

/* ---- pools on planes, by their rows ---- */

typedef struct pool {
  const hr__function_call *call;
  bool is_mean, counts_padding, is_ceil;
  bool has_row;        /* else the pool is a reduction of a view */
  hr__windows windows; /* of the last dims of x; before and after are the row's padding, if they are alike */
} pool;

/* The attributes of a pool, the fourth of which is another one if `has_own`. */
static hr_status read_pool(const hr__function_call *c, bool has_own, pool *p) {
  enum { WINDOW, STRIDE, PADDING, OWN };
  hr__windows *w = &p->windows;
  const hr_tensor *x = c->inputs[0];
  p->call = c, p->is_mean = c->row->op == HR_OP_AVG_POOL;
  p->counts_padding = p->is_mean && hr__int_attribute(c, OWN) != 0;
  int n = c->attributes[WINDOW].count, after = has_own ? OWN + 1 : OWN;
  if (n < 1 || n > x->rank) {
    return HR__CALL_FAIL(c, "%d integers of window for %d dims, expected 1 to %d, and as many of stride and padding", n,
                         x->rank, x->rank);
  }
  p->has_row = n <= 3 && x->rank > n && x->rank <= n + 2;
  w->count = n, w->first = x->rank - n;
  HR_RETURN_IF_ERROR(hr__window_list(c, WINDOW, n, 1, 1, w->size));
  HR_RETURN_IF_ERROR(hr__window_list(c, STRIDE, n, 1, 1, w->stride));
  HR_RETURN_IF_ERROR(hr__window_list(c, PADDING, n, 0, 0, w->before));
  HR_RETURN_IF_ERROR(hr__window_list(c, hr__given_attribute(c, after) != NULL ? after : PADDING, n, 0, 0, w->after));
  HR_RETURN_IF_ERROR(hr__window_list(c, after + 1, n, 1, 1, w->dilation));
  p->is_ceil = hr__int_attribute(c, after + 2) != 0;
  return HR_OK;
}

/* Windows of the plane with both paddings; rounded up, the last one begins inside of x or of the padding before it. */
static int64_t pooled_size(const pool *p, int d) {
  const hr__windows *w = &p->windows;
  int64_t own = w->before[d] + p->call->inputs[0]->dims[w->first + d], size = own + w->after[d];
  int64_t count = hr__window_count(w, d, size);
  bool has_more = p->is_ceil && hr__window_room(w, d, size) % w->stride[d] > 0 && count * w->stride[d] < own;
  return count + has_more;
}

/* The row's outputs for x, whose padding is `padded` by a copy, or left to the row. */
static void record_pool(hr__formula *f, const pool *p, const hr_tensor *x, bool is_padded, int count,
                        const hr_tensor *out[2]) {
  const hr__windows *w = &p->windows;
  int n = w->count;
  int64_t ints[4 * HR_RANK_MAX + 2], dims[HR_RANK_MAX];
  if (hr__formula_failed(f)) {
    return;
  }
  hr__copy_dims(x->rank, x->dims, dims);
  for (int d = 0; d < n; ++d) {
    int64_t padding = is_padded ? 0 : w->before[d];
    ints[d] = w->size[d], ints[n + d] = w->stride[d], ints[2 * n + d] = padding, ints[3 * n + d] = w->dilation[d];
    dims[w->first + d] = pooled_size(p, d);
  }
  ints[4 * n] = p->counts_padding, ints[4 * n + 1] = 0; /* divided by the window's size */
  hr_attrs attrs = {.int_count = 4 * n + 2 * p->is_mean, .ints = ints};
  hr_tensor *outputs[2] = {NULL};
  for (int i = 0; i < count; ++i) {
    outputs[i] = hr__output(f, HR_DTYPE_NONE, x->rank, dims);
    out[i] = outputs[i];
  }
  hr__record_to(f, p->call->row->op, &attrs, 1, &x, count, outputs);
}

static const hr_tensor *pooled(hr__formula *f, const pool *p, const hr_tensor *x, bool is_padded) {
  const hr_tensor *out[2] = {x, NULL};
  record_pool(f, p, x, is_padded, 1, out);
  return out[0];
}

/* Means of windows on different padding: those of x divided by those of ones. */
static const hr_tensor *uneven_mean(hr__formula *f, pool *p, const hr_tensor *x) {
  const hr__windows *w = &p->windows;
  hr_scalar zero = hr_scalar_i64(0);
  const hr_tensor *sums = hr__window_sides(f, x, w, zero);
  if (hr__formula_failed(f)) {
    return x;
  }
  const hr_tensor *like = p->counts_padding ? sums : x;
  const hr_tensor *ones = hr__copied(f, hr__integer(f, 1), x->dtype, like->rank, like->dims);
  ones = p->counts_padding ? ones : hr__window_sides(f, ones, w, zero);
  p->counts_padding = true;
  return hr__binary(f, HR_OP_DIV, pooled(f, p, sums, true), pooled(f, p, ones, true));
}

/* ---- pools by a view ---- */

/* The windows with so much padding behind that the last one, which rounding up adds, is there. */
static hr__windows whole_windows(const pool *p) {
  hr__windows w = p->windows;
  for (int d = 0; d < w.count; ++d) {
    int64_t least = (pooled_size(p, d) - 1) * w.stride[d] + (w.size[d] - 1) * w.dilation[d] + 1;
    int64_t own = w.before[d] + p->call->inputs[0]->dims[w.first + d];
    w.after[d] = least > own + w.after[d] ? least - own : w.after[d];
  }
  return w;
}

/* The windows of x, with `value` in their padding, reduced by a row. */
static const hr_tensor *reduced(hr__formula *f, const hr_tensor *x, const hr__windows *w, hr_op op, hr_scalar value) {
  const hr_tensor *view = hr__window_view(f, hr__window_sides(f, x, w, value), w);
  if (hr__formula_failed(f)) {
    return x;
  }
  uint32_t mask = ((1u << w->count) - 1) << (view->rank - w->count);
  return hr__without(f, hr__along_as(f, op, view, mask, x->dtype), mask);
}

static const hr_tensor *reduced_mean(hr__formula *f, const pool *p, const hr_tensor *x) {
  hr__windows w = whole_windows(p), rest = w;
  hr_scalar zero = hr_scalar_i64(0);
  const hr_tensor *from = hr_dtype_is_integer(x->dtype) ? hr__as_dtype(f, x, HR_DTYPE_F32) : x;
  const hr_tensor *sums = reduced(f, from, &w, HR_OP_SUM, zero);
  int64_t dims[HR_RANK_MAX];
  hr__copy_dims(x->rank, x->dims, dims);
  for (int d = 0; p->counts_padding && d < w.count; ++d) {
    dims[w.first + d] += w.before[d] + p->windows.after[d];
    rest.before[d] = 0, rest.after[d] = w.after[d] - p->windows.after[d];
  }
  const hr_tensor *ones = hr__copied(f, hr__integer(f, 1), from->dtype, x->rank, dims);
  return hr__binary(f, HR_OP_DIV, sums, reduced(f, ones, &rest, HR_OP_SUM, zero));
}

static const hr_tensor *pooled_view(hr__formula *f, const pool *p, const hr_tensor *x) {
  hr__windows w = whole_windows(p);
  return p->is_mean ? reduced_mean(f, p, x) : reduced(f, x, &w, HR_OP_AMAX, hr__extreme(x->dtype, false));
}

hr_status hr__emit_pool(const hr__function_call *c) {
  pool p = {0};
  HR_RETURN_IF_ERROR(read_pool(c, c->row->op == HR_OP_AVG_POOL, &p));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0];
  if (!p.has_row) {
    return hr__formula_end(&f, pooled_view(&f, &p, x));
  }
  if (hr__windows_are_even(&p.windows)) {
    return hr__formula_end(&f, pooled(&f, &p, x, false));
  }
  if (p.is_mean) {
    return hr__formula_end(&f, uneven_mean(&f, &p, x));
  }
  hr_scalar lowest = hr__extreme(x->dtype, false);
  return hr__formula_end(&f, pooled(&f, &p, hr__window_sides(&f, x, &p.windows, lowest), true));
}

/* (sum of |x|^p)^(1 / p) */
/* Sums of powers to the power of 1 / n. The gradient of windows without another element than 0 is 0. */
static const hr_tensor *root_of(hr__formula *f, const hr_tensor *sums, double n, bool is_square) {
  const hr_tensor *is_zero = hr__binary(f, HR_OP_EQ, sums, hr__integer(f, 0));
  const hr_tensor *safe = hr__ternary(f, HR_OP_WHERE, is_zero, hr__integer(f, 1), sums);
  const hr_tensor *root =
      is_square ? hr__unary(f, HR_OP_SQRT, safe) : hr__binary(f, HR_OP_POW, safe, hr__real(f, 1 / n));
  return hr__ternary(f, HR_OP_WHERE, is_zero, hr__integer(f, 0), root);
}

hr_status hr__emit_lp_pool(const hr__function_call *c) {
  enum { POWER = 3 };
  pool p = {0};
  HR_RETURN_IF_ERROR(read_pool(c, true, &p));
  hr_scalar power = hr__real_attribute(c, POWER);
  double n = hr_scalar_as_f64(&power);
  if (!(n > 0)) {
    return HR__CALL_FAIL(c, "p is %g, expected a positive number", n);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  hr__windows w = whole_windows(&p);
  const hr_tensor *x = hr__as_dtype(&f, c->inputs[0], hr__wide_dtype(c->inputs[0]->dtype));
  hr_dtype dtype = hr_dtype_is_integer(c->inputs[0]->dtype) ? HR_DTYPE_F32 : c->inputs[0]->dtype;
  bool is_square = fabs(n - 2) <= 0, is_best = isinf(n);
  const hr_tensor *size = is_square ? x : hr__unary(&f, HR_OP_ABS, x);
  const hr_tensor *powers = is_square ? hr__unary(&f, HR_OP_SQUARE, x)
                            : is_best ? size
                                      : hr__binary(&f, HR_OP_POW, size, hr__real(&f, n));
  const hr_tensor *sums = reduced(&f, powers, &w, is_best ? HR_OP_AMAX : HR_OP_SUM, hr_scalar_i64(0));
  return hr__formula_end(&f, hr__as_dtype(&f, is_best ? sums : root_of(&f, sums, n, is_square), dtype));
}

/* ---- places of largest elements ---- */

enum { PLANE, TENSOR, COLUMN_MAJOR, WINDOW_PLACE, PLACES };
static const char *const place_words[PLACES] = {"plane", "tensor", "column_major", "window"};

static const hr_tensor *scaled(hr__formula *f, const hr_tensor *x, int64_t factor) {
  return factor == 1 ? x : hr__times(f, x, hr__integer(f, factor));
}

/* Row-major places in `count` dims as one tensor of coordinates for each. */
static void coordinates(hr__formula *f, const hr_tensor *places, int count, const int64_t *dims,
                        const hr_tensor **out) {
  for (int d = count - 1; d >= 0; --d) {
    const hr_tensor *size = hr__integer(f, dims[d] > 0 ? dims[d] : 1);
    out[d] = d > 0 ? hr__binary(f, HR_OP_REMAINDER, places, size) : places;
    places = d > 0 ? hr__binary(f, HR_OP_DIV_FLOOR, places, size) : places;
  }
}

/* Coordinates in x of elements of windows. The first element of a window may stand in the padding if no element is
 * larger than the padding's; then the window's first one inside of x is as large. */
static const hr_tensor *inside(hr__formula *f, const hr__windows *w, int d, const hr_tensor *at) {
  const hr_tensor *first = hr__binary(f, HR_OP_REMAINDER, at, hr__integer(f, w->dilation[d]));
  return hr__ternary(f, HR_OP_WHERE, hr__binary(f, HR_OP_LT, at, hr__integer(f, 0)), first, at);
}

/* The coordinates in x's plane as places of this kind. */
static const hr_tensor *as_places(hr__formula *f, const pool *p, int kind, const hr_tensor *const *at) {
  const hr__windows *w = &p->windows;
  const hr_tensor *x = p->call->inputs[0], *sum = NULL;
  int64_t step = 1, lead_step;
  for (int i = 0; i < w->count; ++i) {
    int d = kind == COLUMN_MAJOR ? i : w->count - 1 - i;
    const hr_tensor *place = at[d];
    if (kind == WINDOW_PLACE) {
      const hr_tensor *windows = hr__counted(f, pooled_size(p, d), x->rank, w->first + d);
      const hr_tensor *first = hr__binary(f, HR_OP_SUB, scaled(f, windows, w->stride[d]), hr__integer(f, w->before[d]));
      place = hr__binary(f, HR_OP_DIV_FLOOR, hr__binary(f, HR_OP_SUB, place, first), hr__integer(f, w->dilation[d]));
    }
    sum = sum == NULL ? scaled(f, place, step) : hr__plus(f, sum, scaled(f, place, step));
    step *= kind == WINDOW_PLACE ? w->size[d] : x->dims[w->first + d];
  }
  lead_step = step;
  for (int d = w->first - 1; (kind == TENSOR || kind == COLUMN_MAJOR) && d >= 0; --d) {
    sum = hr__plus(f, sum, scaled(f, hr__counted(f, x->dims[d], x->rank, d), lead_step));
    lead_step *= x->dims[d];
  }
  return sum;
}

/* The largest elements, and their coordinates, by the row. */
static void find_by_row(hr__formula *f, const pool *p, const hr_tensor *out[2], const hr_tensor **at) {
  const hr__windows *w = &p->windows;
  const hr_tensor *x = p->call->inputs[0];
  bool is_even = hr__windows_are_even(w);
  int64_t dims[HR_RANK_MAX] = {0};
  record_pool(f, p, is_even ? x : hr__window_sides(f, x, w, hr__extreme(x->dtype, false)), !is_even, 2, out);
  for (int d = 0; d < w->count; ++d) {
    dims[d] = x->dims[w->first + d] + (is_even ? 0 : w->before[d] + w->after[d]);
  }
  coordinates(f, out[1], w->count, dims, at);
  for (int d = 0; !is_even && d < w->count; ++d) {
    at[d] = inside(f, w, d, hr__binary(f, HR_OP_SUB, at[d], hr__integer(f, w->before[d])));
  }
}

/* The same by a copy of all windows. */
static void find_by_view(hr__formula *f, const pool *p, const hr_tensor *out[2], const hr_tensor **at) {
  hr__windows w = whole_windows(p);
  const hr_tensor *x = p->call->inputs[0];
  const hr_tensor *view = hr__window_view(f, hr__window_sides(f, x, &w, hr__extreme(x->dtype, false)), &w);
  int64_t dims[HR_RANK_MAX + 1], all = 1;
  if (hr__formula_failed(f)) {
    return;
  }
  for (int d = 0; d < w.count; ++d) {
    all *= w.size[d];
  }
  hr__copy_dims(x->rank, view->dims, dims);
  dims[x->rank] = all;
  const hr_tensor *flat = hr__as_dims(f, view, x->rank + 1, dims);
  const hr_tensor *places = hr__reduced(f, HR_OP_ARGMAX, flat, 1u << x->rank);
  out[0] = hr__reduced(f, HR_OP_AMAX, flat, 1u << x->rank);
  coordinates(f, places, w.count, w.size, at);
  for (int d = 0; d < w.count; ++d) {
    const hr_tensor *windows = hr__counted(f, dims[w.first + d], x->rank, w.first + d);
    const hr_tensor *first = hr__binary(f, HR_OP_SUB, scaled(f, windows, w.stride[d]), hr__integer(f, w.before[d]));
    at[d] = inside(f, &w, d, hr__plus(f, first, scaled(f, at[d], w.dilation[d])));
  }
}

hr_status hr__emit_max_pool_places(const hr__function_call *c) {
  enum { KIND = 6 };
  pool p = {0};
  int kind;
  HR_RETURN_IF_ERROR(read_pool(c, false, &p));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, KIND, PLACES, place_words, &kind));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0], *out[2] = {x, x}, *at[HR_RANK_MAX] = {NULL};
  if (p.has_row && kind == PLANE && hr__windows_are_even(&p.windows)) {
    record_pool(&f, &p, x, false, 2, out);
    return hr__formula_finish(&f, 2, out);
  }
  (p.has_row ? find_by_row : find_by_view)(&f, &p, out, at);
  out[1] = hr__formula_failed(&f) ? x : as_places(&f, &p, kind, at);
  return hr__formula_finish(&f, 2, out);
}

hr_status hr__emit_max_pool_gradient(const hr__function_call *c) {
  enum { SHAPE, WINDOW, STRIDE, PADDING, DILATION, PLANE_DIMS_MAX = 3 };
  const hr_tensor *gradients = c->inputs[0], *const inputs[2] = {gradients, c->inputs[1]};
  int n = c->attributes[SHAPE].count, lead = gradients->rank - n;
  int64_t ints[4 * PLANE_DIMS_MAX], dims[HR_RANK_MAX];
  if (n < 1 || n > PLANE_DIMS_MAX || lead < 1 || lead > 2) {
    return HR__CALL_FAIL(c, "%d integers of shape for %d dims of gradients, expected 1 to %d and 1 or 2 dims in front",
                         n, gradients->rank, PLANE_DIMS_MAX);
  }
  hr__copy_dims(gradients->rank, gradients->dims, dims);
  HR_RETURN_IF_ERROR(hr__window_list(c, SHAPE, n, 0, 0, dims + lead));
  HR_RETURN_IF_ERROR(hr__window_list(c, WINDOW, n, 1, 1, ints));
  HR_RETURN_IF_ERROR(hr__window_list(c, STRIDE, n, 1, 1, ints + n));
  HR_RETURN_IF_ERROR(hr__window_list(c, PADDING, n, 0, 0, ints + 2 * n));
  HR_RETURN_IF_ERROR(hr__window_list(c, DILATION, n, 1, 1, ints + 3 * n));
  hr__formula f;
  hr__formula_begin(&f, c);
  hr_attrs attrs = {.int_count = 4 * n, .ints = ints};
  hr_tensor *out = hr__output(&f, HR_DTYPE_NONE, gradients->rank, dims);
  hr__record_to(&f, HR_OP_MAX_POOL_BACKWARD, &attrs, 2, inputs, 1, &out);
  return hr__formula_end(&f, out);
}

/* The elements at their places of planes of zeros. */
hr_status hr__emit_max_unpool(const hr__function_call *c) {
  enum { SHAPE, KIND, MODE };
  static const char *const modes[2] = {"set", "add"};
  const hr_tensor *x = c->inputs[0], *places = c->inputs[1];
  const hr_attribute *shape = &c->attributes[SHAPE];
  int kind, mode, lead = x->rank - shape->count;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, KIND, 2, place_words, &kind));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, MODE, 2, modes, &mode));
  if (lead < 0 || places->rank != x->rank || memcmp(places->dims, x->dims, (size_t)x->rank * sizeof *x->dims) != 0) {
    return HR__CALL_FAIL(c, "%d dims of x and %d of indices, which must be the same, for a plane of %d", x->rank,
                         places->rank, shape->count);
  }
  int64_t dims[HR_RANK_MAX], flat[2] = {1, 1}, all[2] = {1, 1};
  for (int d = 0; d < x->rank; ++d) {
    int of = kind == TENSOR || d >= lead;
    dims[d] = d < lead ? x->dims[d] : shape->value.ints[d - lead];
    flat[of] *= x->dims[d];
    if (dims[d] < 0 || __builtin_mul_overflow(all[of], dims[d], &all[of])) {
      return HR__CALL_FAIL(c, "dim %d is %lld", d, (long long)dims[d]);
    }
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *zeros = hr__copied(&f, hr__integer(&f, 0), x->dtype, 2, all), *at = hr__places(&f, places);
  const hr_tensor *inputs[2] = {hr__as_dims(&f, at, 2, flat), hr__as_dims(&f, x, 2, flat)};
  hr__update update = hr__update_begin(&f, mode, zeros, inputs[1]);
  return hr__formula_end(&f, hr__as_dims(&f, hr__scattered(&f, &update, 1, inputs[0], false), x->rank, dims));
}
