/* indexing.c: elements at indices: read, and written into a copy.
 *
 * Functions do not change their inputs: an update copies x and records the row that writes into the copy. An index out
 * of range is an error of the run. The dims of nonzero, compress and unique depend on data: such a function waits for
 * the stream and reads one number, unless its size is given; an inference and a capture then fail.
 */
#include "functional/scatter.h"

/* A copy of x that rows may write into; NULL after a failure. */
static const hr_tensor *copied(hr__formula *f, const hr_tensor *x) {
  return hr__copied(f, x, x->dtype, x->rank, x->dims);
}

/* Records a row whose output exists. */
static void write_into(hr__formula *f, hr_op op, const hr_attrs *attrs, int count, const hr_tensor *const *inputs,
                       const hr_tensor *out) {
  if (!hr__formula_failed(f)) {
    hr__formula_fail(f, hr__write_row(f->call, op, attrs, count, inputs, out));
  }
}

const hr_tensor *hr__places(hr__formula *f, const hr_tensor *at) {
  if (!hr_dtype_is_integer(at->dtype) || at->dtype == HR_DTYPE_BOOL) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "indices of %s, expected integers", hr_dtype_name(at->dtype)));
    return at;
  }
  return hr__as_dtype(f, at, HR_DTYPE_I64);
}

const hr_tensor *hr__from_end(hr__formula *f, const hr_tensor *at, int64_t size) {
  at = hr__places(f, at);
  const hr_tensor *is_negative = hr__binary(f, HR_OP_LT, at, hr__integer(f, 0));
  return hr__ternary(f, HR_OP_WHERE, is_negative, hr__binary(f, HR_OP_ADD, at, hr__integer(f, size)), at);
}

/* ---- along one axis ---- */

hr_status hr__emit_put_along_axis(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *indices = c->inputs[1], *values = c->inputs[2];
  int axis, mode;
  bool drops;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), x->rank, &axis));
  HR_RETURN_IF_ERROR(hr__read_update_mode(c, 1, &mode));
  HR_RETURN_IF_ERROR(hr__read_bounds(c, 2, &drops));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *places = drops ? hr__places(&f, indices) : hr__from_end(&f, indices, x->dims[axis]);
  hr__update update = hr__update_begin(&f, mode, x, hr__spread(&f, values, indices->rank, indices->dims));
  return hr__formula_end(&f, hr__scattered(&f, &update, axis, places, drops));
}

hr_status hr__emit_index_add(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), x->rank, &axis));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *inputs[2] = {hr__from_end(&f, c->inputs[1], x->dims[axis]),
                                hr__as_dtype(&f, c->inputs[2], x->dtype)};
  const hr_tensor *y = copied(&f, x);
  const int64_t ints[1] = {axis};
  hr_scalar alpha = hr__real_attribute(c, 1);
  hr_attrs attrs = {.int_count = 1, .scalar_count = 1, .ints = ints, .scalars = &alpha};
  write_into(&f, HR_OP_INDEX_ADD, &attrs, 2, inputs, y);
  return hr__formula_end(&f, y);
}

hr_status hr__emit_masked_fill(const hr__function_call *c) {
  const hr_tensor *inputs[3] = {c->inputs[1], c->inputs[2], c->inputs[0]};
  return hr__record_one(c, HR_OP_WHERE, NULL, 3, inputs, c->inputs[0]->dtype, c->output);
}

/* ---- slices where a mask is true, without a wait: each one's number is the count of true elements before it ---- */

static const hr_tensor *numbers_of_true(hr__formula *f, const hr_tensor *mask) {
  int64_t count = 0;
  hr__count_elements(mask->rank, mask->dims, &count);
  const hr_tensor *line = hr__as_dtype(f, hr__as_dims(f, mask, 1, &count), HR_DTYPE_I64);
  const hr_tensor *sums = hr__along(f, HR_OP_CUMSUM, line, 0);
  return hr__as_dims(f, hr__binary(f, HR_OP_SUB, sums, hr__integer(f, 1)), mask->rank, mask->dims);
}

static hr_status check_mask_and_source(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *mask = c->inputs[1], *source = c->inputs[2];
  bool fits = mask->rank <= x->rank;
  for (int d = 0; fits && d < mask->rank; ++d) {
    fits = mask->dims[d] == x->dims[d];
  }
  if (mask->dtype != HR_DTYPE_BOOL || !fits) {
    return HR__CALL_FAIL(c, "mask of dtype %s and %d dims, expected bool and the first dims of x",
                         hr_dtype_name(mask->dtype), mask->rank);
  }
  if (source->rank < 1 || source->rank > 1 + x->rank - mask->rank) {
    return HR__CALL_FAIL(c, "source has %d dims, expected 1 to %d", source->rank, 1 + x->rank - mask->rank);
  }
  return HR_OK;
}

hr_status hr__emit_masked_scatter(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *mask = c->inputs[1], *source = c->inputs[2];
  HR_RETURN_IF_ERROR(check_mask_and_source(c));
  hr__formula f;
  hr__formula_begin(&f, c);
  if (source->dims[0] == 0) {
    return hr__formula_end(&f, copied(&f, x));
  }
  while (!hr__formula_failed(&f) && source->rank < 1 + x->rank - mask->rank) {
    source = hr__with_dim(&f, source, 1);
  }
  const hr_attribute by[2] = {{.kind = HR_ATTRIBUTE_INT}, {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = "clip"}}};
  const hr_tensor *both[2] = {hr__as_dtype(&f, source, x->dtype), numbers_of_true(&f, mask)};
  const hr_tensor *slices = hr__function(&f, HR_FUNCTIONAL_TAKE, 2, both, 2, by);
  while (!hr__formula_failed(&f) && mask->rank < x->rank) {
    mask = hr__with_dim(&f, mask, mask->rank);
  }
  return hr__formula_end(&f, hr__ternary(&f, HR_OP_WHERE, mask, slices, x));
}

/* ---- slices ---- */

hr_status hr__emit_slice_update(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int mode;
  HR_RETURN_IF_ERROR(hr__read_update_mode(c, 3, &mode));
  const hr_op ops[HR__UPDATE_MODES] = {HR_OP_COPY,
                                       HR_OP_ADD,
                                       HR_OP_MUL,
                                       HR_OP_MAXIMUM,
                                       HR_OP_MINIMUM,
                                       HR_OP_SUB,
                                       hr_dtype_is_integer(x->dtype) ? HR_OP_DIV_TRUNC : HR_OP_DIV};
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *y = copied(&f, x), *part = hr__function(&f, HR_FUNCTIONAL_SLICE, 1, &y, 3, c->attributes);
  const hr_tensor *values = hr__spread(&f, hr__as_dtype(&f, c->inputs[1], x->dtype), part->rank, part->dims);
  const hr_tensor *inputs[2] = {mode == HR__UPDATE_SET ? values : part, values};
  write_into(&f, ops[mode], NULL, mode == HR__UPDATE_SET ? 1 : 2, inputs, part);
  return hr__formula_end(&f, y);
}

/* ---- indices of several axes: the tensor, values, then one tensor of indices for each axis ---- */

/* The mask of the axes and where the indices' dims go: to the place of the axes if those are adjacent and the flag is
 * not set, else in front. */
static hr_status indexed_axes(const hr__function_call *c, int first, int is_first, int64_t *out_mask,
                              int64_t *out_place) {
  const hr_attribute *axes = &c->attributes[0];
  int rank = c->inputs[0]->rank, last = -1;
  *out_mask = 0, *out_place = 0;
  if (axes->count != c->input_count - first || axes->count < 1) {
    return HR__CALL_FAIL(c, "%d axes for %d tensors of indices", axes->count, c->input_count - first);
  }
  for (int i = 0; i < axes->count; ++i) {
    int axis;
    HR_RETURN_IF_ERROR(hr__check_axis(c, axes->value.ints[i], rank, &axis));
    if (axis <= last) {
      return HR__CALL_FAIL(c, "axis %d is behind axis %d, expected increasing ones", axis, last);
    }
    *out_place = i == 0 ? axis : axis == last + 1 ? *out_place : 0;
    *out_mask |= INT64_C(1) << axis;
    last = axis;
  }
  for (int d = 0, gaps = 0, was = 0; d < rank; ++d) {
    int is = (int)(*out_mask >> d & 1);
    gaps += is && !was;
    was = is;
    *out_place = gaps > 1 || is_first ? 0 : *out_place;
  }
  return HR_OK;
}

/* The tensors of indices, broadcast to each other. */
static int spread_indices(hr__formula *f, int first, const hr_tensor **out) {
  const hr__function_call *c = f->call;
  int rank = 0, count = c->input_count - first;
  int64_t dims[HR_RANK_MAX];
  for (int i = first; i < c->input_count; ++i) {
    rank = c->inputs[i]->rank > rank ? c->inputs[i]->rank : rank;
  }
  for (int d = 0; d < rank; ++d) {
    dims[d] = 1;
    for (int i = first; i < c->input_count; ++i) {
      int at = d - (rank - c->inputs[i]->rank);
      dims[d] = at >= 0 && c->inputs[i]->dims[at] != 1 ? c->inputs[i]->dims[at] : dims[d];
    }
  }
  for (int i = 0; i < count; ++i) {
    out[i] = hr__spread(f, c->inputs[first + i], rank, dims);
  }
  return count;
}

hr_status hr__emit_index(const hr__function_call *c) {
  enum { AXES, FIRST };
  int64_t ints[2];
  HR_RETURN_IF_ERROR(indexed_axes(c, 1, (int)hr__int_attribute(c, FIRST), &ints[0], &ints[1]));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *inputs[HR_RANK_MAX + 1] = {c->inputs[0]};
  int count = 1 + spread_indices(&f, 1, inputs + 1);
  hr_attrs attrs = {.int_count = 2, .ints = ints};
  return hr__formula_end(&f, hr__step(&f, HR_OP_INDEX, &attrs, count, inputs, HR_DTYPE_NONE));
}

/* Row-major places of indices of several axes, of which there are `all`. One out of range is so in all, too. */
static const hr_tensor *joined_indices(hr__formula *f, const hr_tensor *x, int64_t mask, int count,
                                       const hr_tensor *const *indices, int64_t all) {
  const hr_tensor *places = NULL, *is_outside = NULL, *zero = hr__integer(f, 0);
  for (int d = 0, i = 0; d < x->rank && i < count; ++d) {
    if ((mask >> d & 1) != 0) {
      const hr_tensor *size = hr__integer(f, x->dims[d]), *at = hr__from_end(f, indices[i++], x->dims[d]);
      const hr_tensor *is_bad =
          hr__binary(f, HR_OP_LOGICAL_OR, hr__binary(f, HR_OP_LT, at, zero), hr__binary(f, HR_OP_GE, at, size));
      places = places == NULL ? at : hr__binary(f, HR_OP_ADD, hr__binary(f, HR_OP_MUL, places, size), at);
      is_outside = is_outside == NULL ? is_bad : hr__binary(f, HR_OP_LOGICAL_OR, is_outside, is_bad);
    }
  }
  return hr__ternary(f, HR_OP_WHERE, is_outside, count == 1 ? indices[0] : hr__integer(f, all), places);
}

/* A view with the dims of the mask first. */
static const hr_tensor *with_first(hr__formula *f, const hr_tensor *x, int64_t mask) {
  hr_tensor *view = hr__view(f, x);
  for (int d = 0, to = 0; view != NULL && d < x->rank; ++d) {
    if ((mask >> d & 1) != 0) {
      hr__move_dim(view, d, to++);
    }
  }
  return view != NULL ? view : x;
}

/* Values combined with a copy of x whose indexed axes stand first, as one dim; the others are another one. */
static const hr_tensor *combined(hr__formula *f, const hr_tensor *x, const int64_t *ints, int count,
                                 const hr_tensor *const *inputs) {
  const int64_t mask = ints[0], place = ints[1], scatter[3] = {0, ints[2], 1};
  int index_rank = inputs[1]->rank, rank = 0;
  int64_t dims[2 * HR_RANK_MAX], flat[2] = {1, 1}, index_flat[2] = {1, 1};
  const hr_tensor *y = copied(f, with_first(f, x, mask));
  for (int d = 0; d < x->rank; ++d) {
    flat[(mask >> d & 1) == 0] *= x->dims[d];
    if ((mask >> d & 1) == 0) {
      dims[rank < place ? rank : rank + index_rank] = x->dims[d];
      ++rank;
    }
  }
  if (rank + index_rank > HR_RANK_MAX) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "more than %d dims", HR_RANK_MAX));
  }
  if (hr__formula_failed(f)) {
    return y;
  }
  memcpy(dims + place, inputs[1]->dims, (size_t)index_rank * sizeof *dims);
  int64_t value_count[2] = {1, flat[1]}, index_mask = ((INT64_C(1) << index_rank) - 1) << place;
  for (int d = 0; d < index_rank; ++d) {
    value_count[0] *= inputs[1]->dims[d];
  }
  index_flat[0] = value_count[0];
  const hr_tensor *values = with_first(f, hr__spread(f, inputs[0], rank + index_rank, dims), index_mask);
  const hr_tensor *places = joined_indices(f, x, mask, count, inputs + 1, flat[0]);
  const hr_tensor *sources[2] = {hr__spread(f, hr__as_dims(f, places, 2, index_flat), 2, value_count),
                                 hr__as_dims(f, values, 2, value_count)};
  hr_attrs attrs = {.int_count = 3, .ints = scatter};
  write_into(f, HR_OP_SCATTER, &attrs, 2, sources, hr__as_dims(f, y, 2, flat));
  hr_tensor *view = hr__view(f, y);
  for (int d = 0, at = 0, other = count; view != NULL && d < x->rank; ++d) {
    int from = (mask >> d & 1) != 0 ? at++ : other++;
    view->dims[d] = y->dims[from], view->strides[d] = y->strides[from];
  }
  return view != NULL ? view : y;
}

hr_status hr__emit_index_put(const hr__function_call *c) {
  enum { AXES, MODE, FIRST };
  int64_t ints[3];
  int mode;
  if (c->input_count < 3) {
    return HR__CALL_FAIL(c, "%d inputs, expected x, values and indices", c->input_count);
  }
  HR_RETURN_IF_ERROR(indexed_axes(c, 2, (int)hr__int_attribute(c, FIRST), &ints[0], &ints[1]));
  HR_RETURN_IF_ERROR(hr__read_update_mode(c, MODE, &mode));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = c->inputs[0];
  hr__update update = hr__update_begin(&f, mode, x, c->inputs[1]);
  const hr_tensor *inputs[HR_RANK_MAX + 1] = {update.values};
  int count = 1 + spread_indices(&f, 2, inputs + 1);
  ints[2] = update.mode;
  if (update.mode > HR__UPDATE_ADD) {
    const hr_tensor *result = hr__formula_failed(&f) ? x : combined(&f, update.base, ints, count - 1, inputs);
    return hr__formula_end(&f, hr__update_end(&f, &update, result));
  }
  const hr_tensor *y = copied(&f, x);
  hr_attrs attrs = {.int_count = 3, .ints = ints};
  write_into(&f, HR_OP_INDEX_PUT, &attrs, count, inputs, y);
  return hr__formula_end(&f, y);
}

/* ---- places in ordered numbers, counts ---- */

static const hr_tensor *search(hr__formula *f, const hr_tensor *ordered, const hr_tensor *values, bool is_behind) {
  const hr__function_call *c = f->call;
  int64_t count;
  if (ordered->rank != 1 || !hr__count_elements(values->rank, values->dims, &count)) {
    hr__formula_fail(f, HR__CALL_FAIL(c, "%d dims of ordered numbers, expected 1", ordered->rank));
    return ordered;
  }
  const hr_tensor *pair[2] = {ordered, values};
  hr_dtype dtype = hr__promoted(f, 2, pair);
  const hr_tensor *flat = hr__dense(f, hr__as_dims(f, hr__as_dtype(f, values, dtype), 1, &count));
  const hr_tensor *inputs[3] = {hr__dense(f, hr__as_dtype(f, ordered, dtype)), flat, NULL};
  const int64_t ints[1] = {is_behind};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  const hr_tensor *places = hr__step(f, HR_OP_SEARCH, &attrs, 3, inputs, HR_DTYPE_I64);
  return hr__formula_failed(f) ? places : hr__as_dims(f, places, values->rank, values->dims);
}

static const char *const sides[] = {"left", "right"};

hr_status hr__emit_searchsorted(const hr__function_call *c) {
  int side;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, 0, 2, sides, &side));
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, search(&f, c->inputs[0], c->inputs[1], side == 1));
}

/* True if an element of `values`, one line, equals x. */
static const hr_tensor *is_among(hr__formula *f, const hr_tensor *x, const hr_tensor *values) {
  if (hr__formula_failed(f)) {
    return x;
  }
  if (hr_dtype_is_complex(x->dtype)) { /* they have no order */
    const hr_tensor *pairs = hr__binary(f, HR_OP_EQ, hr__with_dim(f, x, x->rank), values);
    return hr__reduced(f, HR_OP_ANY, pairs, 1u << x->rank);
  }
  const hr_tensor *ordered = hr__function(f, HR_FUNCTIONAL_SORT, 1, &values, 0, NULL);
  if (hr__formula_failed(f)) {
    return x;
  }
  const hr_tensor *last = hr__integer(f, values->dims[0] - 1);
  const hr_tensor *at[2] = {ordered, hr__binary(f, HR_OP_MINIMUM, search(f, ordered, x, false), last)};
  return hr__binary(f, HR_OP_EQ, hr__function(f, HR_FUNCTIONAL_TAKE, 2, at, 0, NULL), x);
}

hr_status hr__emit_isin(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *values = c->inputs[1];
  bool is_inverted = hr__int_attribute(c, 0) != 0;
  int64_t count;
  hr__formula f;
  hr__formula_begin(&f, c);
  if (!hr__count_elements(values->rank, values->dims, &count) || count == 0) {
    return hr__formula_end(
        &f, hr__copied(&f, hr__number(&f, hr_scalar_bool(is_inverted)), HR_DTYPE_BOOL, x->rank, x->dims));
  }
  hr_dtype dtype = hr__promoted(&f, 2, c->inputs);
  dtype = dtype == HR_DTYPE_BOOL ? HR_DTYPE_U8 : dtype;
  const hr_tensor *line = hr__as_dtype(&f, hr__as_dims(&f, values, 1, &count), dtype);
  const hr_tensor *y = is_among(&f, hr__as_dtype(&f, x, dtype), line);
  return hr__formula_end(&f, is_inverted ? hr__unary(&f, HR_OP_LOGICAL_NOT, y) : y);
}

hr_status hr__emit_digitize(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, search(&f, c->inputs[1], c->inputs[0], hr__int_attribute(c, 0) == 0));
}

/* Zeros, to which ones or weights are added at indices of a line. */
static const hr_tensor *count_at(hr__formula *f, const hr_tensor *indices, const hr_tensor *weights, int64_t length) {
  hr_dtype dtype = weights != NULL ? weights->dtype : HR_DTYPE_I64;
  const hr_tensor *y = hr__copied(f, hr__integer(f, 0), dtype, 1, &length);
  const hr_tensor *one = hr__copied(f, hr__integer(f, 1), dtype, 0, NULL);
  const hr_tensor *inputs[2] = {indices, hr__spread(f, weights != NULL ? weights : one, 1, indices->dims)};
  const int64_t ints[3] = {0, HR__UPDATE_ADD, 1};
  hr_attrs attrs = {.int_count = 3, .ints = ints};
  write_into(f, HR_OP_SCATTER, &attrs, 2, inputs, y);
  return y;
}

hr_status hr__emit_bincount(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int64_t length = hr__int_attribute(c, 0);
  if (x->rank != 1 || length < 0) {
    return HR__CALL_FAIL(c, "%d dims and length %lld, expected 1 dim and a length", x->rank, (long long)length);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, count_at(&f, hr__as_dtype(&f, x, HR_DTYPE_I64), c->inputs[1], length));
}

/* Bins of equal width; the last one includes its upper end. Numbers outside are counted in one more, which goes. */
hr_status hr__emit_histogram(const hr__function_call *c) {
  enum { BINS, LOW, HIGH };
  const hr_tensor *x = c->inputs[0];
  int64_t bins = hr__int_attribute(c, BINS), count;
  hr_scalar ends[2] = {hr__real_attribute(c, LOW), hr__real_attribute(c, HIGH)};
  double low = hr_scalar_as_f64(&ends[0]), high = hr_scalar_as_f64(&ends[1]);
  if (bins < 1 || !(low < high) || !hr__count_elements(x->rank, x->dims, &count)) {
    return HR__CALL_FAIL(c, "%lld bins from %g to %g", (long long)bins, low, high);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  x = hr__as_dtype(&f, hr__as_dims(&f, x, 1, &count), x->dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32);
  const hr_tensor *is_inside = hr__binary(&f, HR_OP_LOGICAL_AND, hr__binary(&f, HR_OP_GE, x, hr__real(&f, low)),
                                          hr__binary(&f, HR_OP_LE, x, hr__real(&f, high)));
  const hr_tensor *place = hr__binary(&f, HR_OP_SUB, x, hr__real(&f, low));
  place = hr__binary(&f, HR_OP_MUL, place, hr__real(&f, (double)bins / (high - low)));
  place = hr__ternary(&f, HR_OP_CLAMP, place, hr__integer(&f, 0), hr__integer(&f, bins - 1));
  place = hr__ternary(&f, HR_OP_WHERE, is_inside, place, hr__real(&f, (double)bins));
  const hr_tensor *counts = count_at(&f, hr__as_dtype(&f, place, HR_DTYPE_I64), NULL, bins + 1);
  return hr__formula_end(&f, hr__part(&f, counts, 0, 0, bins));
}

/* ---- results whose dims depend on data ---- */

/* Waits for one i64. */
static int64_t read_count(hr__formula *f, const hr_tensor *count) {
  const hr__function_call *c = f->call;
  int64_t value = 0;
  if (hr__formula_failed(f)) {
    return 0;
  }
  if (c->stream == NULL) {
    hr__formula_fail(f, hr_status_make(HR_STATUS_UNIMPLEMENTED,
                                       "%s: the result's dims depend on data, which an "
                                       "inference does not read; give the size",
                                       c->row->name));
    return 0;
  }
  hr_view view = {.buffer = count->buffer, .dtype = HR_DTYPE_I64, .rank = 0, .offset = count->offset};
  hr__formula_fail(f, hr_stream_read(c->stream, &view, &value));
  return value;
}

/* The row-major places of true elements: `size` of them, -1 behind the last one; size < 0: as many as there are. */
static const hr_tensor *places_of(hr__formula *f, const hr_tensor *mask, int64_t size) {
  int64_t count = 0;
  hr__count_elements(mask->rank, mask->dims, &count);
  const hr_tensor *flat = hr__dense(f, hr__as_dims(f, mask, 1, &count));
  if (size < 0) {
    size = count == 0 ? 0 : read_count(f, hr__reduced(f, HR_OP_SUM, flat, 1));
  }
  if (count == 0 || size == 0) {
    return hr__copied(f, hr__integer(f, -1), HR_DTYPE_I64, 1, &size);
  }
  hr_tensor result = {.dtype = HR_DTYPE_I64, .rank = 1, .dims = {size}, .strides = {1}}, *outputs[1] = {&result};
  if (hr__formula_failed(f)) {
    return flat;
  }
  hr_status status = hr__record_row(f->call, HR_OP_PLACES, NULL, 1, &flat, 1, outputs);
  hr__formula_fail(f, status);
  if (hr__formula_failed(f)) {
    return flat;
  }
  const hr_tensor *kept = hr__view(f, &result);
  hr_tensor_release(&result);
  return kept != NULL ? kept : flat;
}

static const hr_tensor *as_mask(hr__formula *f, const hr_tensor *x) {
  return x->dtype == HR_DTYPE_BOOL ? x : hr__binary(f, HR_OP_NE, x, hr__integer(f, 0));
}

/* [rank, count]: the coordinates of row-major places, -1 for those that are not. */
hr_status hr__emit_nonzero(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *lines[HR_RANK_MAX];
  if (x->rank == 0) {
    return HR__CALL_FAIL(c, "x has no dims, expected at least one");
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *places = places_of(&f, as_mask(&f, x), hr__int_attribute(c, 0)), *rest = places;
  const hr_tensor *is_none = hr__binary(&f, HR_OP_LT, places, hr__integer(&f, 0));
  for (int d = x->rank - 1; d >= 0; --d) {
    const hr_tensor *size = hr__integer(&f, x->dims[d] > 0 ? x->dims[d] : 1);
    const hr_tensor *line = hr__binary(&f, HR_OP_REMAINDER, rest, size);
    lines[d] = hr__with_dim(&f, hr__ternary(&f, HR_OP_WHERE, is_none, hr__integer(&f, -1), line), 0);
    rest = hr__binary(&f, HR_OP_DIV_FLOOR, rest, size);
  }
  const int64_t ints[1] = {0};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  return hr__formula_end(&f, hr__step(&f, HR_OP_CAT, &attrs, x->rank, lines, HR_DTYPE_NONE));
}

/* x's elements where the condition is true, in row-major order; along an axis for a condition of one dim. */
hr_status hr__emit_compress(const hr__function_call *c) {
  enum { ALONG };
  const hr_tensor *condition = c->inputs[0], *x = c->inputs[1];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, ALONG), x->rank, &axis));
  if (condition->rank != 1 || condition->dims[0] != x->dims[axis]) {
    return HR__CALL_FAIL(c, "the condition has %d dims, expected 1 of size %lld", condition->rank,
                         (long long)x->dims[axis]);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *inputs[2] = {x, places_of(&f, as_mask(&f, condition), -1)};
  return hr__formula_end(&f, hr__along_pair(&f, HR_OP_INDEX_SELECT, inputs, axis));
}

/* Numbers as rows of one element, complex ones of two: their parts. */
static const hr_tensor *rows_of(hr__formula *f, const hr_tensor *flat, int64_t count) {
  const hr_tensor *dense = hr__dense(f, hr__as_dims(f, flat, 2, (int64_t[]){count, 1}));
  hr_tensor *parts = hr_dtype_is_complex(flat->dtype) ? hr__view(f, dense) : NULL;
  if (parts == NULL) {
    return dense;
  }
  parts->dtype = hr__dtype_real(flat->dtype);
  parts->offset *= 2, parts->dims[1] = 2, parts->strides[0] = 2, parts->strides[1] = 1;
  return parts;
}

/* The distinct elements of the flattened x in order (complex ones by their real parts, then by the others), first
 * indices, inverse, counts. */
hr_status hr__emit_unique(const hr__function_call *c) {
  enum { FIRST, INVERSE, COUNTS, FOUND, ROW_RESULTS };
  const hr_tensor *x = c->inputs[0];
  int64_t count = 0;
  hr__count_elements(x->rank, x->dims, &count);
  hr__formula f;
  hr__formula_begin(&f, c);
  const int64_t ints[1] = {0};
  const hr_tensor *flat = hr__as_dims(&f, x, 1, &count), *rows = rows_of(&f, flat, count);
  const hr_tensor *none = hr__copied(&f, hr__integer(&f, 0), HR_DTYPE_I64, 1, &(int64_t){0});
  if (count == 0) {
    const hr_tensor *results[4] = {flat, none, hr__as_dims(&f, none, x->rank, x->dims), none};
    return hr__formula_finish(&f, 4, results);
  }
  hr_tensor found[ROW_RESULTS] = {
      {.dtype = HR_DTYPE_I64}, {.dtype = HR_DTYPE_I64}, {.dtype = HR_DTYPE_I64}, {.dtype = HR_DTYPE_I64}};
  hr_tensor *outputs[ROW_RESULTS] = {&found[0], &found[1], &found[2], &found[3]};
  const hr_tensor *kept[ROW_RESULTS] = {none, none, none, none};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  if (!hr__formula_failed(&f)) {
    hr_status status = hr__record_row(c, HR_OP_UNIQUE, &attrs, 1, &rows, ROW_RESULTS, outputs);
    for (int i = 0; status == HR_OK && i < ROW_RESULTS; ++i) {
      kept[i] = hr__view(&f, &found[i]);
      hr_tensor_release(&found[i]);
    }
    hr__formula_fail(&f, status);
  }
  int64_t different = read_count(&f, hr__without(&f, kept[FOUND], kept[FOUND]->rank > 0 ? 1 : 0));
  const hr_tensor *first = hr__part(&f, kept[FIRST], 0, 0, different), *pair[2] = {flat, first};
  const hr_tensor *results[4] = {hr__along_pair(&f, HR_OP_INDEX_SELECT, pair, 0), first,
                                 hr__as_dims(&f, kept[INVERSE], x->rank, x->dims),
                                 hr__part(&f, kept[COUNTS], 0, 0, different)};
  return hr__formula_finish(&f, 4, results);
}
