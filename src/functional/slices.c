/* slices.c: slices at rows of an index tensor, read or written, with dims of windows and of batches in any order: the
 * gather and scatter of XLA. Dims of which slices are a part get an index; the others are copied as a whole, behind the
 * indexed ones. A slice that is read is moved into x; one that is written and leaves x writes nothing at all. */
#include "functional/slices.h"
#include "core/ops/index_row.h"

/* ---- attributes: map, window, collapsed, x_batch, index_batch, vector_dim ---- */

enum { MAP, WINDOW, COLLAPSED, X_BATCH, INDEX_BATCH, VECTOR_DIM, LISTS = VECTOR_DIM };

/* A list of different dims below `limit`, as their mask. */
static hr_status read_dims(const hr__function_call *c, int index, int limit, uint32_t *out_mask) {
  const hr_attribute *list = hr__given_attribute(c, index);
  *out_mask = 0;
  for (int i = 0; list != NULL && i < list->count; ++i) {
    int64_t d = list->value.ints[i];
    if (d < 0 || d >= limit || (*out_mask >> d & 1u) != 0) {
      return HR__CALL_FAIL(c, "dim %lld of %s, expected different dims below %d", (long long)d,
                           c->row->attributes[index].name, limit);
    }
    *out_mask |= 1u << d;
  }
  return HR_OK;
}

static int list_count(const hr__function_call *c, int index) {
  const hr_attribute *list = hr__given_attribute(c, index);
  return list != NULL ? list->count : 0;
}

static int list_dim(const hr__function_call *c, int index, int i) {
  return (int)c->attributes[index].value.ints[i];
}

/* The dims of the indices that are not components, and the number of components. */
static hr_status read_indices(const hr__function_call *c, int first, hr__slices *s) {
  const hr_tensor *indices = c->inputs[1];
  int64_t vector = hr__int_attribute(c, first + VECTOR_DIM);
  int rank = indices->rank, count = list_count(c, first + MAP);
  vector = vector < 0 ? rank - 1 : vector;
  if (!hr_dtype_is_integer(indices->dtype) || indices->dtype == HR_DTYPE_BOOL || vector < 0 || vector > rank) {
    return HR__CALL_FAIL(c, "indices of %s with %d dims and vector_dim %lld", hr_dtype_name(indices->dtype), rank,
                         (long long)vector);
  }
  int64_t components = vector < rank ? indices->dims[vector] : 1;
  s->batch_rank = vector < rank ? rank - 1 : rank;
  return components == count
             ? HR_OK
             : HR__CALL_FAIL(c, "%lld components of indices, expected %d, as in map", (long long)components, count);
}

/* The attributes from `first` on, of a call with x and indices. */
static hr_status read_slices(const hr__function_call *c, int first, hr__slices *s) {
  const hr_tensor *x = c->inputs[0];
  uint32_t masks[LISTS];
  HR_RETURN_IF_ERROR(read_indices(c, first, s));
  int windows = list_count(c, first + WINDOW);
  s->rank = x->rank, s->rank_all = s->batch_rank + windows;
  if (s->rank_all > HR_RANK_MAX) {
    return HR__CALL_FAIL(c, "%d dims of slices, expected at most %d", s->rank_all, HR_RANK_MAX);
  }
  const int limits[LISTS] = {x->rank, s->rank_all, x->rank, x->rank, s->batch_rank};
  for (int i = 0; i < LISTS; ++i) {
    HR_RETURN_IF_ERROR(read_dims(c, first + i, limits[i], &masks[i]));
  }
  int batches = list_count(c, first + X_BATCH);
  if (batches != list_count(c, first + INDEX_BATCH) || (masks[X_BATCH] & (masks[COLLAPSED] | masks[MAP])) != 0 ||
      windows + batches + list_count(c, first + COLLAPSED) != x->rank) {
    return HR__CALL_FAIL(c, "%d dims of windows, %d collapsed ones and %d and %d of batches for x of %d dims", windows,
                         list_count(c, first + COLLAPSED), batches, list_count(c, first + INDEX_BATCH), x->rank);
  }
  for (int d = 0, window = 0; d < x->rank; ++d) {
    bool is_gone = ((masks[COLLAPSED] | masks[X_BATCH]) >> d & 1u) != 0;
    s->dims[d] = x->dims[d], s->component[d] = s->batch[d] = -1;
    s->place[d] = is_gone ? -1 : list_dim(c, first + WINDOW, window++);
  }
  for (int i = 0; i < list_count(c, first + MAP); ++i) {
    s->component[list_dim(c, first + MAP, i)] = i;
  }
  for (int i = 0; i < batches; ++i) {
    s->batch[list_dim(c, first + X_BATCH, i)] = list_dim(c, first + INDEX_BATCH, i);
  }
  for (int d = 0, batch = 0; d < s->rank_all; ++d) {
    if ((masks[WINDOW] >> d & 1u) == 0) {
      s->batch_place[batch++] = d;
    }
  }
  return HR_OK;
}

/* The sizes of slices fit x, and x's dims of the batch those of the indices. */
static hr_status check_sizes(const hr__function_call *c, const hr__slices *s, int vector) {
  for (int d = 0; d < s->rank; ++d) {
    bool has_none = s->batch[d] >= 0 && s->dims[d] == 0; /* then there are no slices */
    if (s->size[d] < 0 || (s->size[d] > s->dims[d] && !has_none) || (s->place[d] < 0 && s->size[d] != 1)) {
      return HR__CALL_FAIL(c, "size %lld of slices along dim %d of %lld elements%s", (long long)s->size[d], d,
                           (long long)s->dims[d], s->place[d] < 0 ? ", expected 1" : "");
    }
    int at = s->batch[d] < 0 ? -1 : s->batch[d] < vector ? s->batch[d] : s->batch[d] + 1;
    if (at >= 0 && c->inputs[1]->dims[at] != s->dims[d]) {
      return HR__CALL_FAIL(c, "batch dim %d of x is %lld, of indices %lld", d, (long long)s->dims[d],
                           (long long)c->inputs[1]->dims[at]);
    }
  }
  return HR_OK;
}

static int vector_of(const hr__function_call *c, int first) {
  int64_t vector = hr__int_attribute(c, first + VECTOR_DIM);
  return (int)(vector < 0 ? c->inputs[1]->rank - 1 : vector);
}

/* In i64; numbers beyond it become the largest one, which is outside of any tensor as well. */
static const hr_tensor *signed_places(hr__formula *f, const hr_tensor *at) {
  if (at->dtype == HR_DTYPE_U64) {
    at = hr__binary(f, HR_OP_MINIMUM, at, hr__number(f, hr_scalar_u64(INT64_MAX)));
  }
  return hr__places(f, at);
}

static void set_indices(hr__formula *f, int vector, hr__slices *s) {
  const hr_tensor *at = signed_places(f, f->call->inputs[1]);
  if (vector == at->rank) {
    at = hr__with_dim(f, at, vector);
  }
  s->indices = hr__formula_failed(f) ? at : hr__moved(f, at, vector, at->rank - 1);
}

/* ---- places ---- */

/* True for a dim whose index differs between a slice's elements. */
static bool has_steps(const hr__slices *s, int d) {
  return s->batch[d] < 0 && s->place[d] >= 0 && s->size[d] != 1 && !hr__slice_is_whole(s, d);
}

/* The number of dims before d that have steps. */
static int steps_before(const hr__slices *s, int d) {
  int count = 0;
  for (int e = 0; e < d; ++e) {
    count += has_steps(s, e);
  }
  return count;
}

/* The first index of each slice along dim d, with dims of size 1 for the steps; NULL: 0. */
static const hr_tensor *first_of(hr__formula *f, const hr__slices *s, int d) {
  if (s->component[d] < 0) {
    return NULL;
  }
  const hr_tensor *first = hr__part(f, s->indices, s->batch_rank, s->component[d], 1);
  int count = steps_before(s, s->rank);
  if (count == 0) {
    return hr__without(f, first, 1u << s->batch_rank);
  }
  for (int i = 1; i < count; ++i) {
    first = hr__formula_failed(f) ? first : hr__with_dim(f, first, s->batch_rank);
  }
  return first;
}

const hr_tensor *hr__slice_places(hr__formula *f, const hr__slices *s, int d, bool is_clamped) {
  int steps = steps_before(s, s->rank), rank = s->batch_rank + steps;
  if (s->batch[d] >= 0) {
    return hr__counted(f, s->dims[d], rank, s->batch[d]);
  }
  const hr_tensor *first = first_of(f, s, d);
  if (first != NULL && is_clamped) {
    first = hr__ternary(f, HR_OP_CLAMP, first, hr__integer(f, 0), hr__integer(f, s->dims[d] - s->size[d]));
  }
  if (!has_steps(s, d)) {
    return first != NULL ? first : hr__copied(f, hr__integer(f, 0), HR_DTYPE_I64, 0, NULL);
  }
  const hr_tensor *step = hr__counted(f, s->size[d], rank, s->batch_rank + steps_before(s, d));
  return first != NULL ? hr__plus(f, first, step) : step;
}

/* The dims of all places, broadcast. */
static int place_dims(const hr__slices *s, int64_t *dims) {
  int rank = s->batch_rank;
  hr__copy_dims(rank, s->indices->dims, dims);
  for (int d = 0; d < s->rank; ++d) {
    if (has_steps(s, d)) {
      dims[rank++] = s->size[d];
    }
  }
  return rank;
}

/* For each dim of x its number in a tensor with the dims of places, then those that slices have as a whole; -1: none.
 * Returns the number of dims. */
static int ordered_dims(const hr__slices *s, int *at) {
  int rank = s->batch_rank;
  for (int d = 0; d < s->rank; ++d) {
    at[d] = has_steps(s, d) ? rank++ : -1;
  }
  for (int d = 0; d < s->rank; ++d) {
    at[d] = hr__slice_is_whole(s, d) ? rank++ : at[d];
  }
  return rank;
}

/* ---- reading ---- */

/* A view of slices in the caller's order of dims. */
static const hr_tensor *in_order(hr__formula *f, const hr_tensor *y, const hr__slices *s) {
  int at[HR_RANK_MAX];
  hr_tensor *view = hr__view(f, y);
  if (view == NULL) {
    return y;
  }
  ordered_dims(s, at);
  view->rank = s->rank_all;
  for (int b = 0; b < s->batch_rank; ++b) {
    view->dims[s->batch_place[b]] = y->dims[b], view->strides[s->batch_place[b]] = y->strides[b];
  }
  for (int d = 0; d < s->rank; ++d) {
    if (s->place[d] >= 0) {
      view->dims[s->place[d]] = at[d] >= 0 ? y->dims[at[d]] : 1;
      view->strides[s->place[d]] = at[d] >= 0 ? y->strides[at[d]] : 1;
    }
  }
  return view;
}

const hr_tensor *hr__read_slices(hr__formula *f, const hr_tensor *x, const hr__slices *given) {
  hr__slices slices = *given, *s = &slices;
  for (int d = 0; d < s->rank; ++d) { /* a slice that begins at 0 is a part of x */
    if (s->component[d] < 0 && s->batch[d] < 0 && s->size[d] < s->dims[d]) {
      x = hr__part(f, x, d, 0, s->size[d]), s->dims[d] = s->size[d];
    }
  }
  int64_t dims[HR_RANK_MAX + HR_RANK_MAX], mask = 0;
  const hr_tensor *inputs[HR_RANK_MAX + 1] = {x};
  int rank = hr__formula_failed(f) ? 0 : place_dims(s, dims), count = 1;
  for (int d = 0; d < s->rank && !hr__formula_failed(f); ++d) {
    if (!hr__slice_is_whole(s, d)) {
      inputs[count++] = hr__spread(f, hr__slice_places(f, s, d, true), rank, dims);
      mask |= INT64_C(1) << d;
    }
  }
  if (hr__formula_failed(f)) {
    return x;
  }
  if (count == 1) { /* the same for all indices */
    hr__copy_dims(x->rank, x->dims, dims + rank);
    return in_order(f, hr__spread(f, x, rank + x->rank, dims), s);
  }
  const int64_t ints[2] = {mask | HR_INDEX_BOUNDED, 0};
  hr_attrs attrs = {.int_count = 2, .ints = ints};
  const hr_tensor *y = hr__step(f, HR_OP_INDEX, &attrs, count, inputs, HR_DTYPE_NONE);
  return hr__formula_failed(f) ? y : in_order(f, y, s);
}

hr_status hr__emit_gather_slices(const hr__function_call *c) {
  enum { SIZES, FIRST };
  hr__slices s;
  const hr_attribute *sizes = &c->attributes[SIZES];
  HR_RETURN_IF_ERROR(read_slices(c, FIRST, &s));
  if (sizes->count != s.rank) {
    return HR__CALL_FAIL(c, "%d sizes for x of %d dims", sizes->count, s.rank);
  }
  for (int d = 0; d < s.rank; ++d) {
    s.size[d] = sizes->value.ints[d];
  }
  HR_RETURN_IF_ERROR(check_sizes(c, &s, vector_of(c, FIRST)));
  hr__formula f;
  hr__formula_begin(&f, c);
  set_indices(&f, vector_of(c, FIRST), &s);
  return hr__formula_end(&f, hr__read_slices(&f, c->inputs[0], &s));
}

/* ---- writing ---- */

/* True for slices inside of x. */
static const hr_tensor *inside_of(hr__formula *f, const hr__slices *s) {
  const hr_tensor *all = NULL;
  for (int d = 0; d < s->rank && !hr__formula_failed(f); ++d) {
    const hr_tensor *first = first_of(f, s, d);
    if (first != NULL) {
      const hr_tensor *is_inside = hr__binary(f, HR_OP_LOGICAL_AND, hr__binary(f, HR_OP_GE, first, hr__integer(f, 0)),
                                              hr__binary(f, HR_OP_LE, first, hr__integer(f, s->dims[d] - s->size[d])));
      all = all == NULL ? is_inside : hr__binary(f, HR_OP_LOGICAL_AND, all, is_inside);
    }
  }
  return all;
}

/* The row-major number of each slice's element among the indexed dims of x, -1 outside. */
static const hr_tensor *numbers_of(hr__formula *f, const hr__slices *s) {
  const hr_tensor *number = NULL, *mask = inside_of(f, s);
  for (int d = 0; d < s->rank && !hr__formula_failed(f); ++d) {
    if (!hr__slice_is_whole(s, d)) {
      const hr_tensor *at = hr__slice_places(f, s, d, false);
      number = number == NULL ? at : hr__plus(f, hr__times(f, number, hr__integer(f, s->dims[d])), at);
    }
  }
  number = number != NULL ? number : hr__copied(f, hr__integer(f, 0), HR_DTYPE_I64, 0, NULL);
  return mask == NULL ? number : hr__ternary(f, HR_OP_WHERE, mask, number, hr__integer(f, -1));
}

/* x's dims with the indexed ones first, and the numbers of elements of both parts. */
static const hr_tensor *indexed_first(hr__formula *f, const hr_tensor *x, const hr__slices *s, int *order,
                                      int64_t *counts) {
  hr_tensor *view = hr__view(f, x);
  int to = 0;
  counts[0] = counts[1] = 1;
  for (int is_whole = 0; is_whole < 2; ++is_whole) {
    for (int d = 0; d < s->rank; ++d) {
      if (hr__slice_is_whole(s, d) == is_whole) {
        order[to++] = d;
        counts[is_whole] *= x->dims[d];
      }
    }
  }
  for (int d = 0; view != NULL && d < s->rank; ++d) {
    view->dims[d] = x->dims[order[d]], view->strides[d] = x->strides[order[d]];
  }
  return view != NULL ? view : x;
}

/* Slices with the dims of places first, then those that slices have as a whole. */
static const hr_tensor *places_first(hr__formula *f, const hr_tensor *values, const hr__slices *s) {
  int at[HR_RANK_MAX], rank = ordered_dims(s, at);
  hr_tensor *view = hr__view(f, values);
  if (view == NULL) {
    return values;
  }
  view->rank = rank;
  for (int b = 0; b < s->batch_rank; ++b) {
    view->dims[b] = values->dims[s->batch_place[b]], view->strides[b] = values->strides[s->batch_place[b]];
  }
  for (int d = 0; d < s->rank; ++d) {
    if (at[d] >= 0) {
      view->dims[at[d]] = s->place[d] >= 0 ? values->dims[s->place[d]] : 1;
      view->strides[at[d]] = s->place[d] >= 0 ? values->strides[s->place[d]] : 1;
    }
  }
  return view;
}

static const hr_tensor *with_slices(hr__formula *f, const hr__slices *s, int mode) {
  int order[HR_RANK_MAX];
  int64_t counts[2], dims[HR_RANK_MAX], lines[2];
  const hr_tensor *x = indexed_first(f, f->call->inputs[0], s, order, counts), *numbers = numbers_of(f, s);
  int rank = hr__formula_failed(f) ? 0 : place_dims(s, dims);
  lines[1] = counts[1];
  if (hr__formula_failed(f) || !hr__count_elements(rank, dims, &lines[0])) {
    return x;
  }
  const hr_tensor *values = hr__as_dims(f, places_first(f, f->call->inputs[2], s), 2, lines);
  const hr_tensor *flat = hr__as_dims(f, x, 2, counts);
  numbers = hr__as_dims(f, hr__spread(f, numbers, rank, dims), 2, (int64_t[]){lines[0], 1});
  numbers = hr__spread(f, numbers, 2, lines);
  if (hr__formula_failed(f)) {
    return x;
  }
  hr__update update = hr__update_begin(f, mode, flat, values);
  const hr_tensor *y = hr__scattered(f, &update, 0, numbers, true);
  y = hr__formula_failed(f) ? y : hr__as_dims(f, y, s->rank, x->dims);
  hr_tensor *view = hr__view(f, y);
  for (int d = 0; view != NULL && d < s->rank; ++d) {
    view->dims[order[d]] = y->dims[d], view->strides[order[d]] = y->strides[d];
  }
  return view != NULL ? view : y;
}

/* The dims of windows are those of values; the others are the indices'. */
static hr_status check_values(const hr__function_call *c, hr__slices *s, int vector) {
  const hr_tensor *values = c->inputs[2];
  if (values->rank != s->rank_all) {
    return HR__CALL_FAIL(c, "%d dims of values, expected %d", values->rank, s->rank_all);
  }
  for (int b = 0; b < s->batch_rank; ++b) {
    int64_t size = c->inputs[1]->dims[b < vector ? b : b + 1], actual = values->dims[s->batch_place[b]];
    if (actual != size) {
      return HR__CALL_FAIL(c, "dim %d of values is %lld, of indices %lld", s->batch_place[b], (long long)actual,
                           (long long)size);
    }
  }
  for (int d = 0; d < s->rank; ++d) {
    s->size[d] = s->place[d] >= 0 ? values->dims[s->place[d]] : 1;
  }
  return check_sizes(c, s, vector);
}

hr_status hr__emit_scatter_slices(const hr__function_call *c) {
  enum { MODE = LISTS + 1 };
  hr__slices s;
  const hr_tensor *x = c->inputs[0];
  int mode, vector = vector_of(c, 0);
  HR_RETURN_IF_ERROR(read_slices(c, 0, &s));
  HR_RETURN_IF_ERROR(hr__read_update_mode(c, MODE, &mode));
  hr__formula f;
  int64_t elements;
  if (hr__count_elements(x->rank, x->dims, &elements) && elements == 0) { /* all slices are out of range */
    hr__formula_begin(&f, c);
    return hr__formula_end(&f, hr__copied(&f, x, x->dtype, x->rank, x->dims));
  }
  HR_RETURN_IF_ERROR(check_values(c, &s, vector));
  hr__formula_begin(&f, c);
  set_indices(&f, vector, &s);
  return hr__formula_end(&f, with_slices(&f, &s, mode));
}

/* ---- one slice, at a start [rank] ---- */

static hr_status read_slice(const hr__function_call *c, const hr_tensor *start, int count, const int64_t *sizes,
                            hr__slices *s) {
  const hr_tensor *x = c->inputs[0];
  if (start->rank != 1 || start->dims[0] != x->rank || count != x->rank) {
    char text[HR__SHAPE_TEXT];
    return HR__CALL_FAIL(c, "start of dims %s and %d sizes for %d dims", hr__shape_text(start->rank, start->dims, text),
                         count, x->rank);
  }
  *s = (hr__slices){.rank = x->rank, .batch_rank = 0, .rank_all = x->rank};
  for (int d = 0; d < count; ++d) {
    if (sizes[d] < 0 || sizes[d] > x->dims[d]) {
      return HR__CALL_FAIL(c, "size %lld of dim %d, expected 0 to %lld", (long long)sizes[d], d, (long long)x->dims[d]);
    }
    s->dims[d] = x->dims[d], s->size[d] = sizes[d];
    s->component[d] = s->place[d] = d, s->batch[d] = -1;
  }
  return HR_OK;
}

hr_status hr__emit_dynamic_slice(const hr__function_call *c) {
  const hr_attribute *sizes = &c->attributes[0];
  hr__slices s;
  HR_RETURN_IF_ERROR(read_slice(c, c->inputs[1], sizes->count, sizes->value.ints, &s));
  hr__formula f;
  hr__formula_begin(&f, c);
  s.indices = signed_places(&f, c->inputs[1]);
  return hr__formula_end(&f, hr__read_slices(&f, c->inputs[0], &s));
}

hr_status hr__emit_dynamic_slice_update(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *values = c->inputs[1];
  hr__slices s;
  HR_RETURN_IF_ERROR(read_slice(c, c->inputs[2], values->rank, values->dims, &s));
  hr__formula f;
  hr__formula_begin(&f, c);
  s.indices = signed_places(&f, c->inputs[2]);
  const hr_tensor *inputs[HR_RANK_MAX + 1] = {hr__as_dtype(&f, values, x->dtype)};
  int64_t dims[HR_RANK_MAX], mask = 0;
  int rank = hr__formula_failed(&f) ? 0 : place_dims(&s, dims), count = 1;
  for (int d = 0; d < s.rank && !hr__formula_failed(&f); ++d) {
    if (!hr__slice_is_whole(&s, d)) {
      inputs[count++] = hr__spread(&f, hr__slice_places(&f, &s, d, true), rank, dims);
      mask |= INT64_C(1) << d;
    }
  }
  if (count == 1 || hr__formula_failed(&f)) {
    return hr__formula_end(&f, inputs[0]);
  }
  const hr_tensor *y = hr__copied(&f, x, x->dtype, x->rank, x->dims);
  inputs[0] = places_first(&f, inputs[0], &s);
  const int64_t ints[3] = {mask | HR_INDEX_BOUNDED, 0, 0};
  hr_attrs attrs = {.int_count = 3, .ints = ints};
  if (!hr__formula_failed(&f)) {
    hr__formula_fail(&f, hr__write_row(c, HR_OP_INDEX_PUT, &attrs, count, inputs, y));
  }
  return hr__formula_end(&f, y);
}
