/* windows.c: windows on tensors: pools on planes, reductions of windows over any dims, and convolutions with all their
 * attributes. Padding and zeros between elements are copies; windows are views whose elements overlap. */
#include <math.h>

#include "base/integer.h"
#include "functional/formula.h"

/* ---- lists of integers, one for each of `count` dims ---- */

/* The attribute's, or `value` for each without it. */
static hr_status list_of(const hr__function_call *c, int index, int count, int64_t value, int64_t least, int64_t *out) {
  const hr_attribute *given = hr__given_attribute(c, index);
  if (given != NULL && given->count != count) {
    return HR__CALL_FAIL(c, "%d integers of %s for %d dims", given->count, c->row->attributes[index].name, count);
  }
  for (int d = 0; d < count; ++d) {
    out[d] = given != NULL ? given->value.ints[d] : value;
    if (out[d] < least || out[d] > INT32_MAX) {
      return HR__CALL_FAIL(c, "%s of dim %d is %lld, expected %lld to %d", c->row->attributes[index].name, d,
                           (long long)out[d], (long long)least, INT32_MAX);
    }
  }
  return HR_OK;
}

/* Windows along `count` dims of a tensor, which begin at dim `first`. */
typedef struct windows {
  int first, count;
  int64_t size[HR_RANK_MAX], stride[HR_RANK_MAX], before[HR_RANK_MAX], after[HR_RANK_MAX];
  int64_t dilation[HR_RANK_MAX], input_dilation[HR_RANK_MAX];
} windows;

enum { EXPLICIT, SAME, SAME_LOWER, VALID, PADDINGS };
static const char *const paddings[PADDINGS] = {"explicit", "same", "same_lower", "valid"};

/* The padding that gives one window for each stride of the input, rounded up; of an odd number the one more behind, or
 * in front. */
static void pad_same(windows *w, const int64_t *dims, bool is_lower) {
  for (int d = 0; d < w->count; ++d) {
    int64_t in = dims[w->first + d], out = hr_divide_up(in, w->stride[d]);
    int64_t total = (out - 1) * w->stride[d] + (w->size[d] - 1) * w->dilation[d] + 1 - in;
    total = total > 0 && in > 0 ? total : 0;
    w->before[d] = is_lower ? total - total / 2 : total / 2, w->after[d] = total - w->before[d];
  }
}

/* The attributes stride, before, after, dilation, input_dilation from `index` on, and padding, at `padding`. */
static hr_status read_windows(const hr__function_call *c, int index, int padding, windows *w) {
  int kind = EXPLICIT;
  HR_RETURN_IF_ERROR(list_of(c, index, w->count, 1, 1, w->stride));
  HR_RETURN_IF_ERROR(list_of(c, index + 1, w->count, 0, -INT32_MAX, w->before));
  HR_RETURN_IF_ERROR(list_of(c, index + 2, w->count, 0, -INT32_MAX, w->after));
  HR_RETURN_IF_ERROR(list_of(c, index + 3, w->count, 1, 1, w->dilation));
  HR_RETURN_IF_ERROR(list_of(c, index + 4, w->count, 1, 1, w->input_dilation));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, padding, PADDINGS, paddings, &kind));
  bool has_sides = hr__given_attribute(c, index + 1) != NULL || hr__given_attribute(c, index + 2) != NULL;
  if (kind != EXPLICIT && has_sides) {
    return HR__CALL_FAIL(c, "before or after with padding %s, expected explicit", paddings[kind]);
  }
  return HR_OK;
}

/* ---- copies of x ---- */

/* The dims of x with spaces between the elements of the windows' dims. */
static void spaced_dims(const windows *w, const hr_tensor *x, int64_t *dims) {
  hr__copy_dims(x->rank, x->dims, dims);
  for (int d = 0; d < w->count; ++d) {
    int64_t *dim = &dims[w->first + d];
    *dim = *dim > 0 ? (*dim - 1) * w->input_dilation[d] + 1 : 0;
  }
}

/* x with `value` between neighbours of the windows' dims. */
static const hr_tensor *with_spaces(hr__formula *f, const hr_tensor *x, const windows *w, hr_scalar value) {
  int64_t distances[HR_RANK_MAX];
  for (int d = 0; d < HR_RANK_MAX; ++d) {
    bool is_inside = d >= w->first && d < w->first + w->count;
    distances[d] = is_inside ? w->input_dilation[d - w->first] : 1;
  }
  return hr__spaced(f, x, distances, value);
}

/* x with `value` on both sides of the windows' dims; negative numbers remove elements. */
static const hr_tensor *with_sides(hr__formula *f, const hr_tensor *x, const windows *w, hr_scalar value) {
  int64_t ints[2 * HR_RANK_MAX] = {0}, any = 0;
  if (hr__formula_failed(f)) {
    return x;
  }
  for (int d = 0; d < w->count; ++d) {
    ints[w->first + d] = w->before[d], ints[x->rank + w->first + d] = w->after[d];
    any |= w->before[d] | w->after[d];
  }
  hr_attrs attrs = {.int_count = 2 * x->rank, .scalar_count = 1, .ints = ints, .scalars = &value};
  return any == 0 ? x : hr__step(f, HR_OP_PAD, &attrs, 1, &x, x->dtype);
}

/* The places behind the first at which a window of a dim of this size, with its padding, may begin; -1 or less: none.
 */
static int64_t window_room(const windows *w, int d, int64_t size) {
  return size - w->dilation[d] * (w->size[d] - 1) - 1;
}

static int64_t window_count(const windows *w, int d, int64_t size) {
  int64_t room = window_room(w, d, size);
  return room < 0 ? 0 : room / w->stride[d] + 1;
}

/* x's windows as a view: the dims of windows, then those inside of them. */
static const hr_tensor *windows_of(hr__formula *f, const hr_tensor *x, const windows *w) {
  if (!hr__formula_failed(f) && x->rank + w->count > HR_RANK_MAX) {
    hr__formula_fail(
        f, HR__CALL_FAIL(f->call, "%d dims and %d of windows, expected at most %d", x->rank, w->count, HR_RANK_MAX));
  }
  hr_tensor *view = hr__view(f, x);
  if (view == NULL) {
    return x;
  }
  for (int d = 0; d < w->count; ++d) {
    int at = w->first + d, inside = view->rank++;
    view->dims[inside] = w->size[d], view->strides[inside] = x->strides[at] * w->dilation[d];
    view->dims[at] = window_count(w, d, x->dims[at]), view->strides[at] = x->strides[at] * w->stride[d];
  }
  return view;
}

/* ---- reductions of windows ---- */

enum { SUM, MAX, MIN, PROD, MEAN, ANY, ALL, MODES };
static const char *const modes[MODES] = {"sum", "max", "min", "prod", "mean", "any", "all"};

/* The lowest or highest number of a dtype. */
static hr_scalar extreme(hr_dtype dtype, bool is_highest) {
  int bits = 8 * (int)hr_dtype_size(dtype);
  if (dtype == HR_DTYPE_BOOL) {
    return hr_scalar_bool(is_highest);
  }
  if (!hr_dtype_is_integer(dtype)) {
    return hr_scalar_f64(is_highest ? INFINITY : -INFINITY);
  }
  bool is_unsigned = dtype == HR_DTYPE_U8 || dtype == HR_DTYPE_U16 || dtype == HR_DTYPE_U32 || dtype == HR_DTYPE_U64;
  if (is_unsigned) {
    return is_highest ? hr_scalar_u64(UINT64_MAX >> (64 - bits)) : hr_scalar_u64(0);
  }
  int64_t most = (int64_t)(UINT64_MAX >> (65 - bits));
  return hr_scalar_i64(is_highest ? most : -most - 1);
}

static hr_scalar identity_of(int mode, hr_dtype dtype) {
  return mode == MAX || mode == MIN ? extreme(dtype, mode == MIN) : hr_scalar_i64(mode == PROD || mode == ALL);
}

static const hr_tensor *reduced(hr__formula *f, const hr_tensor *x, const windows *w, int mode) {
  static const hr_op rows[MODES] = {HR_OP_SUM, HR_OP_AMAX, HR_OP_AMIN, HR_OP_PROD, HR_OP_SUM, HR_OP_ANY, HR_OP_ALL};
  hr_scalar identity = identity_of(mode, hr__formula_failed(f) ? HR_DTYPE_F32 : x->dtype);
  x = with_sides(f, with_spaces(f, x, w, identity), w, identity);
  const hr_tensor *view = windows_of(f, x, w);
  if (hr__formula_failed(f)) {
    return x;
  }
  uint32_t mask = ((1u << w->count) - 1) << (view->rank - w->count);
  hr_dtype dtype = mode == ANY || mode == ALL ? HR_DTYPE_BOOL : x->dtype;
  return hr__without(f, hr__along_as(f, rows[mode], view, mask, dtype), mask);
}

/* The number of elements that a window has outside of padding and spaces. */
static const hr_tensor *counts_of(hr__formula *f, const hr_tensor *x, const windows *w) {
  const hr_tensor *one = hr__copied(f, hr__integer(f, 1), x->dtype, x->rank, x->dims);
  return reduced(f, one, w, SUM);
}

/* The sides by the attribute `padding`. Negative ones may not remove more than all elements. */
static hr_status finish_windows(const hr__function_call *c, int padding, const hr_tensor *x, windows *w) {
  int64_t dims[HR_RANK_MAX];
  int kind;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, padding, PADDINGS, paddings, &kind));
  spaced_dims(w, x, dims);
  if (kind == SAME || kind == SAME_LOWER) {
    pad_same(w, dims, kind == SAME_LOWER);
  }
  for (int d = 0; d < w->count; ++d) {
    int64_t size = dims[w->first + d];
    if (size + w->before[d] + w->after[d] < 0) {
      return HR__CALL_FAIL(c, "padding %lld and %lld of dim %d with %lld elements", (long long)w->before[d],
                           (long long)w->after[d], w->first + d, (long long)size);
    }
  }
  return HR_OK;
}

hr_status hr__emit_reduce_window(const hr__function_call *c) {
  enum { WINDOW, STRIDE, MODE = STRIDE + 5, PADDING };
  const hr_tensor *x = c->inputs[0];
  windows w = {.first = 0, .count = x->rank};
  int mode;
  HR_RETURN_IF_ERROR(list_of(c, WINDOW, x->rank, 1, 1, w.size));
  HR_RETURN_IF_ERROR(read_windows(c, STRIDE, PADDING, &w));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, MODE, MODES, modes, &mode));
  HR_RETURN_IF_ERROR(finish_windows(c, PADDING, x, &w));
  hr__formula f;
  hr__formula_begin(&f, c);
  bool is_mean_of_integers = mode == MEAN && hr_dtype_is_integer(x->dtype);
  const hr_tensor *from = is_mean_of_integers ? hr__as_dtype(&f, x, HR_DTYPE_F32) : x;
  const hr_tensor *y = reduced(&f, from, &w, mode);
  if (mode == MEAN && !hr__formula_failed(&f)) {
    y = hr__binary(&f, HR_OP_DIV, y, counts_of(&f, from, &w));
  }
  return hr__formula_end(&f, y);
}

/* ---- pools on planes, by their rows ---- */

typedef struct pool {
  const hr__function_call *call;
  bool is_mean, counts_padding, is_ceil;
  windows windows; /* of the last dims of x; before and after are the row's padding, if they are alike */
} pool;

static hr_status read_pool(const hr__function_call *c, pool *p) {
  enum { WINDOW, STRIDE, PADDING, COUNT_PADDING };
  windows *w = &p->windows;
  const hr_tensor *x = c->inputs[0];
  p->call = c, p->is_mean = c->row->op == HR_OP_AVG_POOL;
  p->counts_padding = p->is_mean && hr__int_attribute(c, COUNT_PADDING) != 0;
  int n = c->attributes[WINDOW].count, after = p->is_mean ? COUNT_PADDING + 1 : COUNT_PADDING;
  if (n < 1 || n > 3 || x->rank < n + 1 || x->rank > n + 2) {
    return HR__CALL_FAIL(c, "%d integers of window for %d dims, expected 1 to 3, and as many of stride and padding", n,
                         x->rank);
  }
  w->count = n, w->first = x->rank - n;
  HR_RETURN_IF_ERROR(list_of(c, WINDOW, n, 1, 1, w->size));
  HR_RETURN_IF_ERROR(list_of(c, STRIDE, n, 1, 1, w->stride));
  HR_RETURN_IF_ERROR(list_of(c, PADDING, n, 0, 0, w->before));
  HR_RETURN_IF_ERROR(list_of(c, hr__given_attribute(c, after) != NULL ? after : PADDING, n, 0, 0, w->after));
  HR_RETURN_IF_ERROR(list_of(c, after + 1, n, 1, 1, w->dilation));
  p->is_ceil = hr__int_attribute(c, after + 2) != 0;
  return HR_OK;
}

static bool is_symmetric(const windows *w) {
  return memcmp(w->before, w->after, (size_t)w->count * sizeof *w->before) == 0;
}

/* Windows of the plane with both paddings; rounded up, the last one begins inside of x or of the padding before it. */
static int64_t pooled_size(const pool *p, int d) {
  const windows *w = &p->windows;
  int64_t own = w->before[d] + p->call->inputs[0]->dims[w->first + d], size = own + w->after[d];
  int64_t count = window_count(w, d, size);
  bool has_more = p->is_ceil && window_room(w, d, size) % w->stride[d] > 0 && count * w->stride[d] < own;
  return count + has_more;
}

/* The row's outputs for x, whose padding is `padded` by a copy, or left to the row. */
static void record_pool(hr__formula *f, const pool *p, const hr_tensor *x, bool is_padded, int count,
                        const hr_tensor *out[2]) {
  const windows *w = &p->windows;
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
  const windows *w = &p->windows;
  hr_scalar zero = hr_scalar_i64(0);
  const hr_tensor *sums = with_sides(f, x, w, zero);
  if (hr__formula_failed(f)) {
    return x;
  }
  const hr_tensor *like = p->counts_padding ? sums : x;
  const hr_tensor *ones = hr__copied(f, hr__integer(f, 1), x->dtype, like->rank, like->dims);
  ones = p->counts_padding ? ones : with_sides(f, ones, w, zero);
  p->counts_padding = true;
  return hr__binary(f, HR_OP_DIV, pooled(f, p, sums, true), pooled(f, p, ones, true));
}

hr_status hr__emit_pool(const hr__function_call *c) {
  pool p = {0};
  HR_RETURN_IF_ERROR(read_pool(c, &p));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0];
  if (is_symmetric(&p.windows)) {
    return hr__formula_end(&f, pooled(&f, &p, x, false));
  }
  if (p.is_mean) {
    return hr__formula_end(&f, uneven_mean(&f, &p, x));
  }
  return hr__formula_end(&f, pooled(&f, &p, with_sides(&f, x, &p.windows, extreme(x->dtype, false)), true));
}

/* Places in a padded plane as places in x's. */
static const hr_tensor *without_sides(hr__formula *f, const windows *w, const hr_tensor *at, const hr_tensor *x) {
  const hr_tensor *sum = NULL;
  int64_t step = 1;
  for (int d = w->count - 1; d >= 0; --d) {
    int64_t size = x->dims[w->first + d];
    hr_scalar padded = hr_scalar_i64(size + w->before[d] + w->after[d]);
    const hr_tensor *place = d > 0 ? hr__binary(f, HR_OP_REMAINDER, at, hr__number(f, padded)) : at;
    place = hr__binary(f, HR_OP_SUB, place, hr__integer(f, w->before[d]));
    place = hr__binary(f, HR_OP_MUL, place, hr__integer(f, step));
    sum = sum == NULL ? place : hr__binary(f, HR_OP_ADD, sum, place);
    at = d > 0 ? hr__binary(f, HR_OP_DIV_FLOOR, at, hr__number(f, padded)) : at;
    step *= size;
  }
  return sum;
}

hr_status hr__emit_max_pool_places(const hr__function_call *c) {
  pool p = {0};
  HR_RETURN_IF_ERROR(read_pool(c, &p));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0], *out[2] = {x, x};
  bool is_even = is_symmetric(&p.windows);
  record_pool(&f, &p, is_even ? x : with_sides(&f, x, &p.windows, extreme(x->dtype, false)), !is_even, 2, out);
  out[1] = is_even ? out[1] : without_sides(&f, &p.windows, out[1], x);
  return hr__formula_finish(&f, 2, out);
}

/* ---- convolutions of any layout ---- */

/* The places of the dims in the row's order: batch, features, then planes 0, 1, ... */
typedef struct layout {
  int count;
  int place[3][HR_RANK_MAX]; /* of x, weight, result */
} layout;

/* One word of the text, such as bf01; its end, or NULL. */
static const char *read_word(const char *text, const char *front, int count, int *place) {
  unsigned seen = 0;
  for (int i = 0; i < count; ++i, ++text) {
    const char *at = *text != '\0' ? strchr(front, *text) : NULL;
    int dim = at != NULL ? (int)(at - front) : *text >= '0' && *text < '0' + count - 2 ? *text - '0' + 2 : -1;
    if (dim < 0 || (seen >> dim & 1u) != 0) {
      return NULL;
    }
    seen |= 1u << dim;
    place[dim] = i;
  }
  return text;
}

static hr_status read_layout(const hr__function_call *c, int index, int rank, layout *l) {
  const char *text = hr__text_attribute(c, index), *at = text;
  l->count = rank;
  for (int d = 0; d < rank; ++d) {
    l->place[0][d] = l->place[1][d] = l->place[2][d] = d;
  }
  if (*text == '\0') {
    return HR_OK;
  }
  at = read_word(at, "bf", rank, l->place[0]);
  at = at != NULL && *at == ',' ? read_word(at + 1, "oi", rank, l->place[1]) : NULL;
  at = at != NULL && strncmp(at, "->", 2) == 0 ? read_word(at + 2, "bf", rank, l->place[2]) : NULL;
  return at != NULL && *at == '\0'
             ? HR_OK
             : HR__CALL_FAIL(c, "layout \"%s\" of %d dims, expected words as in bf01,oi01->bf01", text, rank);
}

/* x with its dims in the row's order; or, inverse, a result in the caller's. */
static const hr_tensor *ordered(hr__formula *f, const hr_tensor *x, const int *place, bool is_inverse) {
  hr_tensor *view = hr__view(f, x);
  if (view == NULL) {
    return x;
  }
  for (int d = 0; d < x->rank; ++d) {
    int from = is_inverse ? d : place[d], to = is_inverse ? place[d] : d;
    view->dims[to] = x->dims[from], view->strides[to] = x->strides[from];
  }
  return view;
}

/* The order of elements reversed in all dims but the first two. */
static const hr_tensor *flipped(hr__formula *f, const hr_tensor *x) {
  hr_tensor *view = hr__view(f, x);
  for (int d = 2; view != NULL && d < view->rank; ++d) {
    view->offset += view->dims[d] > 0 ? (view->dims[d] - 1) * view->strides[d] : 0;
    view->strides[d] = -view->strides[d];
  }
  return view != NULL ? view : x;
}

/* Groups of examples as groups of features: [g, N, C, ..] as [N, g * C, ..]. */
static const hr_tensor *with_grouped_batch(hr__formula *f, const hr_tensor *x, int64_t groups) {
  if (groups == 1 || hr__formula_failed(f)) {
    return x;
  }
  int64_t dims[HR_RANK_MAX + 1], merged[HR_RANK_MAX];
  hr__copy_dims(x->rank, x->dims, merged);
  merged[0] = x->dims[0] / groups, merged[1] = groups * x->dims[1];
  dims[0] = groups, dims[1] = merged[0];
  for (int d = 1; d < x->rank; ++d) {
    dims[d + 1] = x->dims[d];
  }
  return hr__as_dims(f, hr__moved(f, hr__as_dims(f, x, x->rank + 1, dims), 0, 1), x->rank, merged);
}

static hr_status check_groups(const hr__function_call *c, const hr_tensor *x, int64_t groups, int64_t batch_groups) {
  if (groups < 1 || batch_groups < 1 || (groups > 1 && batch_groups > 1)) {
    return HR__CALL_FAIL(c, "%lld groups and %lld batch_groups, expected positive numbers, one of them 1",
                         (long long)groups, (long long)batch_groups);
  }
  return x->dims[0] % batch_groups == 0
             ? HR_OK
             : HR__CALL_FAIL(c, "%lld batch_groups of %lld examples", (long long)batch_groups, (long long)x->dims[0]);
}

static const hr_tensor *convolved(hr__formula *f, const windows *w, const hr_tensor *const operands[3],
                                  int64_t groups) {
  int n = w->count;
  int64_t ints[3 * HR_RANK_MAX + 2] = {n};
  bool is_row = is_symmetric(w);
  for (int d = 0; d < n; ++d) {
    is_row &= w->before[d] >= 0;
  }
  for (int d = 0; d < n; ++d) {
    ints[1 + d] = w->stride[d], ints[1 + n + d] = is_row ? w->before[d] : 0, ints[1 + 2 * n + d] = w->dilation[d];
  }
  ints[3 * n + 1] = groups;
  const hr_tensor *inputs[3] = {is_row ? operands[0] : with_sides(f, operands[0], w, hr_scalar_i64(0)), operands[1],
                                operands[2]};
  hr_attrs attrs = {.int_count = 3 * n + 2, .ints = ints};
  return hr__step(f, HR_OP_CONV, &attrs, inputs[2] != NULL ? 3 : 2, inputs, HR_DTYPE_NONE);
}

hr_status hr__emit_conv_general(const hr__function_call *c) {
  enum { STRIDE, GROUPS = STRIDE + 5, BATCH_GROUPS, PADDING, LAYOUT, FLIP };
  const hr_tensor *x = c->inputs[0], *weight = c->inputs[1];
  windows w = {.first = 2, .count = x->rank - 2};
  layout l;
  if (x->rank < 3 || x->rank > 5 || weight->rank != x->rank) {
    return HR__CALL_FAIL(c, "%d dims of x and %d of the weight, expected 3 to 5", x->rank, weight->rank);
  }
  HR_RETURN_IF_ERROR(read_layout(c, LAYOUT, x->rank, &l));
  HR_RETURN_IF_ERROR(read_windows(c, STRIDE, PADDING, &w));
  hr__formula f;
  hr__formula_begin(&f, c);
  x = ordered(&f, x, l.place[0], false);
  weight = ordered(&f, weight, l.place[1], false);
  for (int d = 0; d < w.count; ++d) {
    w.size[d] = weight->dims[2 + d];
  }
  int64_t groups = hr__int_attribute(c, GROUPS), batch_groups = hr__int_attribute(c, BATCH_GROUPS);
  hr__formula_fail(&f, check_groups(c, x, groups, batch_groups));
  hr__formula_fail(&f, finish_windows(c, PADDING, x, &w));
  x = with_spaces(&f, with_grouped_batch(&f, x, batch_groups), &w, hr_scalar_i64(0));
  weight = hr__int_attribute(c, FLIP) != 0 ? flipped(&f, weight) : weight;
  const hr_tensor *operands[3] = {x, weight, c->inputs[2]};
  const hr_tensor *y = convolved(&f, &w, operands, groups * batch_groups);
  return hr__formula_end(&f, ordered(&f, y, l.place[2], true));
}
