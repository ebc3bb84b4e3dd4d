/* windows.c: windows on tensors: reductions of windows over any dims, columns, stencils, and convolutions with all
 * their attributes. Padding and zeros between elements are copies; windows are views whose elements overlap. */
#include <math.h>

#include "functional/windows.h"

#include "base/integer.h"

/* ---- lists of integers, one for each of `count` dims ---- */

hr_status hr__window_list(const hr__function_call *c, int index, int count, int64_t value, int64_t least,
                          int64_t *out) {
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

enum { EXPLICIT, SAME, SAME_LOWER, VALID, PADDINGS };
static const char *const paddings[PADDINGS] = {"explicit", "same", "same_lower", "valid"};

/* The padding that gives one window for each stride of the input, rounded up; of an odd number the one more behind, or
 * in front. */
static void pad_same(hr__windows *w, const int64_t *dims, bool is_lower) {
  for (int d = 0; d < w->count; ++d) {
    int64_t in = dims[w->first + d], out = hr_divide_up(in, w->stride[d]);
    int64_t total = (out - 1) * w->stride[d] + (w->size[d] - 1) * w->dilation[d] + 1 - in;
    total = total > 0 && in > 0 ? total : 0;
    w->before[d] = is_lower ? total - total / 2 : total / 2, w->after[d] = total - w->before[d];
  }
}

/* The attributes stride, before, after, dilation, input_dilation from `index` on, and padding, at `padding`. */
static hr_status read_windows(const hr__function_call *c, int index, int padding, hr__windows *w) {
  int kind = EXPLICIT;
  HR_RETURN_IF_ERROR(hr__window_list(c, index, w->count, 1, 1, w->stride));
  HR_RETURN_IF_ERROR(hr__window_list(c, index + 1, w->count, 0, -INT32_MAX, w->before));
  HR_RETURN_IF_ERROR(hr__window_list(c, index + 2, w->count, 0, -INT32_MAX, w->after));
  HR_RETURN_IF_ERROR(hr__window_list(c, index + 3, w->count, 1, 1, w->dilation));
  HR_RETURN_IF_ERROR(hr__window_list(c, index + 4, w->count, 1, 1, w->input_dilation));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, padding, PADDINGS, paddings, &kind));
  bool has_sides = hr__given_attribute(c, index + 1) != NULL || hr__given_attribute(c, index + 2) != NULL;
  if (kind != EXPLICIT && has_sides) {
    return HR__CALL_FAIL(c, "before or after with padding %s, expected explicit", paddings[kind]);
  }
  return HR_OK;
}

/* ---- copies of x ---- */

/* The dims of x with spaces between the elements of the windows' dims. */
static void spaced_dims(const hr__windows *w, const hr_tensor *x, int64_t *dims) {
  hr__copy_dims(x->rank, x->dims, dims);
  for (int d = 0; d < w->count; ++d) {
    int64_t *dim = &dims[w->first + d];
    *dim = *dim > 0 ? (*dim - 1) * w->input_dilation[d] + 1 : 0;
  }
}

/* x with `value` between neighbours of the windows' dims. */
static const hr_tensor *with_spaces(hr__formula *f, const hr_tensor *x, const hr__windows *w, hr_scalar value) {
  int64_t distances[HR_RANK_MAX];
  for (int d = 0; d < HR_RANK_MAX; ++d) {
    bool is_inside = d >= w->first && d < w->first + w->count;
    distances[d] = is_inside ? w->input_dilation[d - w->first] : 1;
  }
  return hr__spaced(f, x, distances, value);
}

const hr_tensor *hr__window_sides(hr__formula *f, const hr_tensor *x, const hr__windows *w, hr_scalar value) {
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

int64_t hr__window_room(const hr__windows *w, int d, int64_t size) {
  return size - w->dilation[d] * (w->size[d] - 1) - 1;
}

int64_t hr__window_count(const hr__windows *w, int d, int64_t size) {
  int64_t room = hr__window_room(w, d, size);
  return room < 0 ? 0 : room / w->stride[d] + 1;
}

const hr_tensor *hr__window_view(hr__formula *f, const hr_tensor *x, const hr__windows *w) {
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
    view->dims[at] = hr__window_count(w, d, x->dims[at]), view->strides[at] = x->strides[at] * w->stride[d];
  }
  return view;
}

bool hr__windows_are_even(const hr__windows *w) {
  return memcmp(w->before, w->after, (size_t)w->count * sizeof *w->before) == 0;
}

/* ---- reductions of windows ---- */

enum { SUM, MAX, MIN, PROD, MEAN, ANY, ALL, MODES };
static const char *const modes[MODES] = {"sum", "max", "min", "prod", "mean", "any", "all"};

hr_scalar hr__extreme(hr_dtype dtype, bool is_highest) {
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
  return mode == MAX || mode == MIN ? hr__extreme(dtype, mode == MIN) : hr_scalar_i64(mode == PROD || mode == ALL);
}

static const hr_tensor *reduced(hr__formula *f, const hr_tensor *x, const hr__windows *w, int mode) {
  static const hr_op rows[MODES] = {HR_OP_SUM, HR_OP_AMAX, HR_OP_AMIN, HR_OP_PROD, HR_OP_SUM, HR_OP_ANY, HR_OP_ALL};
  hr_scalar identity = identity_of(mode, hr__formula_failed(f) ? HR_DTYPE_F32 : x->dtype);
  x = hr__window_sides(f, with_spaces(f, x, w, identity), w, identity);
  const hr_tensor *view = hr__window_view(f, x, w);
  if (hr__formula_failed(f)) {
    return x;
  }
  uint32_t mask = ((1u << w->count) - 1) << (view->rank - w->count);
  hr_dtype dtype = mode == ANY || mode == ALL ? HR_DTYPE_BOOL : x->dtype;
  return hr__without(f, hr__along_as(f, rows[mode], view, mask, dtype), mask);
}

/* The number of elements that a window has outside of padding and spaces. */
static const hr_tensor *counts_of(hr__formula *f, const hr_tensor *x, const hr__windows *w) {
  const hr_tensor *one = hr__copied(f, hr__integer(f, 1), x->dtype, x->rank, x->dims);
  return reduced(f, one, w, SUM);
}

/* The sides by the attribute `padding`. Negative ones may not remove more than all elements. */
static hr_status finish_windows(const hr__function_call *c, int padding, const hr_tensor *x, hr__windows *w) {
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
  hr__windows w = {.first = 0, .count = x->rank};
  int mode;
  HR_RETURN_IF_ERROR(hr__window_list(c, WINDOW, x->rank, 1, 1, w.size));
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

/* A convolution's row: its operand, and its integers, with the padding behind if that differs. */
typedef struct row {
  const hr_tensor *x;
  int int_count;
  int64_t ints[4 * HR_RANK_MAX + 2];
} row;

/* x without the elements that negative padding removes; *w has no such padding then. */
static const hr_tensor *without_sides(hr__formula *f, const hr_tensor *x, hr__windows *w) {
  for (int d = 0; d < w->count && !hr__formula_failed(f); ++d) {
    int64_t *before = &w->before[d], *after = &w->after[d], first = *before < 0 ? -*before : 0;
    int64_t left = x->dims[w->first + d] - first + (*after < 0 ? *after : 0);
    if ((*before < 0 || *after < 0) && left >= 0) {
      x = hr__part(f, x, w->first + d, first, left);
      *before = *before < 0 ? 0 : *before, *after = *after < 0 ? 0 : *after;
    }
  }
  return x;
}

/* Rows skip padding, as XLA does for most shapes: an infinite weight times a zero is none of their products. Only what
 * a row or the device lacks is written as zeros: uneven padding, or more of it than elements are left. */
static row row_of(hr__formula *f, const hr__windows *given, const hr_tensor *x, const int64_t *stride,
                  const int64_t *dilation, int64_t groups) {
  hr__windows w = *given;
  row r = {.x = without_sides(f, x, &w)};
  int n = w.count;
  bool is_even = hr__windows_are_even(&w), is_row = is_even || hr__skips_padding(f->call);
  for (int d = 0; d < n; ++d) {
    is_row &= w.before[d] >= 0 && w.after[d] >= 0;
  }
  r.x = is_row ? r.x : hr__window_sides(f, r.x, &w, hr_scalar_i64(0));
  r.ints[0] = n, r.ints[3 * n + 1] = groups;
  for (int d = 0; d < n; ++d) {
    r.ints[1 + d] = stride[d], r.ints[1 + n + d] = is_row ? w.before[d] : 0, r.ints[1 + 2 * n + d] = dilation[d];
    r.ints[2 + 3 * n + d] = w.after[d];
  }
  r.int_count = is_row && !is_even ? 4 * n + 2 : 3 * n + 2;
  return r;
}

static const hr_tensor *convolved(hr__formula *f, const hr__windows *w, const hr_tensor *const operands[3],
                                  int64_t groups) {
  row r = row_of(f, w, operands[0], w->stride, w->dilation, groups);
  const hr_tensor *inputs[3] = {r.x, operands[1], operands[2]};
  hr_attrs attrs = {.int_count = r.int_count, .ints = r.ints};
  return hr__step(f, HR_OP_CONV, &attrs, inputs[2] != NULL ? 3 : 2, inputs, HR_DTYPE_NONE);
}

/* ---- gradients of weights ---- */

/* True if the row of such gradients is the better one. Every convolution is also the gradient of a weight, with
 * examples and features in each other's place; the gradients that JAX writes have a kernel as large as the forward
 * result. */
static bool is_weight_gradient(const hr__windows *w, const hr_tensor *x, const hr_tensor *weight) {
  enum { LARGE = 64 };
  bool is_float =
      x->dtype == HR_DTYPE_F32 || x->dtype == HR_DTYPE_F64 || x->dtype == HR_DTYPE_BF16 || x->dtype == HR_DTYPE_F16;
  double kernel = 1, result = 1;
  for (int d = 0; d < w->count; ++d) {
    int64_t size = x->dims[2 + d] + w->before[d] + w->after[d];
    int64_t rest = hr__window_count(w, d, size) > 0 ? hr__window_room(w, d, size) % w->stride[d] : -1;
    if (rest < 0 || rest >= w->dilation[d]) { /* such a gradient has fewer elements than its row gives */
      return false;
    }
    kernel *= (double)w->size[d], result *= (double)hr__window_count(w, d, size);
  }
  return is_float && x->dtype == weight->dtype && kernel > result && (result > 1 || kernel >= LARGE) &&
         x->dims[0] > 0 && x->dims[1] > 0 && weight->dims[0] > 0;
}

/* Examples are features, the kernel is the gradient of the forward result, strides and dilations change places. */
static const hr_tensor *weight_gradient(hr__formula *f, const hr__windows *w, const hr_tensor *x,
                                        const hr_tensor *weight) {
  static const int turned[HR_RANK_MAX] = {1, 0, 2, 3, 4, 5, 6, 7};
  row r = row_of(f, w, x, w->dilation, w->stride, 1);
  const hr_tensor *inputs[2] = {ordered(f, r.x, turned, false), ordered(f, weight, turned, false)};
  hr_attrs attrs = {.int_count = r.int_count, .ints = r.ints};
  return ordered(f, hr__step(f, HR_OP_CONV_BACKWARD_WEIGHT, &attrs, 2, inputs, HR_DTYPE_NONE), turned, false);
}

/* ---- gradients of images ---- */

/* True for a convolution of spaced elements by the row of such gradients, which does not multiply the zeros. */
static bool is_image_gradient(const hr__windows *w, const hr_tensor *x, const hr_tensor *weight, int64_t groups) {
  bool is_float =
      x->dtype == HR_DTYPE_F32 || x->dtype == HR_DTYPE_F64 || x->dtype == HR_DTYPE_BF16 || x->dtype == HR_DTYPE_F16;
  bool is_spaced = false, is_plain = is_float && x->dtype == weight->dtype && hr_tensor_count(x) > 0 &&
                                     hr_tensor_count(weight) > 0 && x->dims[1] % groups == 0 &&
                                     weight->dims[0] % groups == 0 && weight->dims[1] * groups == x->dims[1];
  for (int d = 0; d < w->count; ++d) {
    int64_t spaced = (x->dims[2 + d] - 1) * w->input_dilation[d] + 1;
    is_spaced |= w->input_dilation[d] > 1;
    is_plain &= hr__window_count(w, d, spaced + w->before[d] + w->after[d]) > 0;
  }
  return is_spaced && is_plain;
}

/* [g O, C, ..] as [g C, O, ..]. */
static const hr_tensor *turned_groups(hr__formula *f, const hr_tensor *weight, int64_t groups) {
  if (hr__formula_failed(f) || groups == 1) {
    return hr__moved(f, weight, 0, 1);
  }
  int64_t dims[HR_RANK_MAX + 1], merged[HR_RANK_MAX];
  hr__copy_dims(weight->rank, weight->dims, merged);
  dims[0] = groups, dims[1] = merged[0] / groups;
  hr__copy_dims(weight->rank - 1, merged + 1, dims + 2);
  const hr_tensor *parts = hr__moved(f, hr__as_dims(f, weight, weight->rank + 1, dims), 1, 2);
  merged[0] = groups * dims[2], merged[1] = dims[1];
  return hr__as_dims(f, parts, weight->rank, merged);
}

/* Every stride-th element of the planes. */
static const hr_tensor *strided(hr__formula *f, const hr__windows *w, const hr_tensor *x) {
  hr_tensor *view = hr__view(f, x);
  for (int d = 0; view != NULL && d < w->count; ++d) {
    view->dims[w->first + d] = hr_divide_up(view->dims[w->first + d], w->stride[d]);
    view->strides[w->first + d] *= w->stride[d];
  }
  return view != NULL ? view : x;
}

/* [O] as [O, 1, ..]. */
static const hr_tensor *bias_over(hr__formula *f, const hr_tensor *bias, int planes) {
  for (int d = 0; d < planes; ++d) {
    bias = hr__with_dim(f, bias, bias->rank);
  }
  return bias;
}

/* The spaces are the strides of the forward convolution, whose kernel is reversed; its sides are what the kernel
 * reaches beyond the elements. Windows with a stride are some of those without. */
static const hr_tensor *image_gradient(hr__formula *f, const hr__windows *w, const hr_tensor *x,
                                       const hr_tensor *weight, int64_t groups) {
  int64_t before[HR_RANK_MAX], after[HR_RANK_MAX];
  for (int d = 0; d < w->count; ++d) {
    int64_t reach = w->dilation[d] * (w->size[d] - 1);
    before[d] = reach - w->before[d], after[d] = reach - w->after[d];
  }
  const int64_t *lists[4] = {w->input_dilation, before, after, w->dilation};
  hr_attribute attributes[5] = {[4] = {.kind = HR_ATTRIBUTE_INT, .value = {.integer = groups}}};
  for (int i = 0; i < 4; ++i) {
    attributes[i] = (hr_attribute){.kind = HR_ATTRIBUTE_INTS, .count = w->count, .value = {.ints = lists[i]}};
  }
  const hr_tensor *inputs[2] = {x, turned_groups(f, flipped(f, weight), groups)};
  return strided(f, w, hr__function(f, HR_FUNCTIONAL_CONV_TRANSPOSE, 2, inputs, 5, attributes));
}

/* By the row that has the fewest products: operands are x, the weight and the bias or NULL, in the rows' order. */
static const hr_tensor *convolution_of(hr__formula *f, const hr__windows *w, const hr_tensor *const operands[3],
                                       int64_t groups) {
  const hr_tensor *x = operands[0], *weight = operands[1], *bias = operands[2];
  if (hr__formula_failed(f)) {
    return x;
  }
  if (is_image_gradient(w, x, weight, groups)) {
    const hr_tensor *y = image_gradient(f, w, x, weight, groups);
    return bias != NULL ? hr__binary(f, HR_OP_ADD, y, bias_over(f, bias, w->count)) : y;
  }
  x = with_spaces(f, x, w, hr_scalar_i64(0));
  if (!hr__formula_failed(f) && groups == 1 && bias == NULL && is_weight_gradient(w, x, weight)) {
    return weight_gradient(f, w, x, weight);
  }
  return convolved(f, w, (const hr_tensor *const[3]){x, weight, bias}, groups);
}

hr_status hr__emit_conv_general(const hr__function_call *c) {
  enum { STRIDE, GROUPS = STRIDE + 5, BATCH_GROUPS, PADDING, LAYOUT, FLIP };
  const hr_tensor *x = c->inputs[0], *weight = c->inputs[1];
  hr__windows w = {.first = 2, .count = x->rank - 2};
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
  weight = hr__int_attribute(c, FLIP) != 0 ? flipped(&f, weight) : weight;
  const hr_tensor *operands[3] = {with_grouped_batch(&f, x, batch_groups), weight, c->inputs[2]};
  const hr_tensor *y = convolution_of(&f, &w, operands, groups * batch_groups);
  return hr__formula_end(&f, ordered(&f, y, l.place[2], true));
}
