/* Lowerings of index maps: concatenation, padding, gathers, scatters, triangles, ranges, running sums.
 *
 * Gathers and scatters become one loop node whose operand carries index terms, after a range check of each index:
 *
 *   y = index_select(x[5,8], i[3]) dim 0      check_index(i, 5)
 *                                             y[3,8] = copy(x{0,1} + i[3,1] * 8)
 *
 * Scattering nodes name the dims along which two elements may have the same target. Those run in order, so that sums
 * are reproducible and the last of several plain writes wins.
 */
#include <math.h>

#include "core/ir/dtype.h"
#include "core/ops/index_row.h"
#include "core/ops/lower.h"

enum { MESSAGE_INDEX = 0, MESSAGE_GATHER = 2 };

static const hr_operand absent = {.kind = HR_OPERAND_NONE};

static void emit_fill(hr_builder *b, hr_operand out, hr_operand value) {
  if (hr_operand_count(out) > 0) {
    hr_emit1(b, HR_OP_COPY, out, value);
  }
}

static void check_range(hr_builder *b, hr_operand index, int64_t extent, bool allow_negative, int message) {
  if (hr_operand_count(index) > 0) {
    hr_emit_check_index(b, index, extent, allow_negative, message, absent);
  }
}

/* A tensor of rank 0 counts as a vector of one element. */
static hr_operand at_least_vector(hr_builder *b, hr_operand x) {
  return hr_is_present(x) && x.kind == HR_OPERAND_VALUE && x.rank == 0 ? hr_view_insert(b, x, 0, 1) : x;
}

/* Inserts dims[0..count) at position `at`, with stride 0. */
static hr_operand insert_dims(hr_builder *b, hr_operand x, int at, int count, const int64_t *dims) {
  for (int i = 0; i < count; ++i) {
    x = hr_view_insert(b, x, at + i, dims[i]);
  }
  return x;
}

hr_status hr__lower_cat(hr_builder *b, const hr_node *node) {
  hr_operand y = hr_node_output(node, 0);
  int dim = (int)node->ints[0];
  int64_t start = 0;
  for (int i = 0; i < node->input_count; ++i) {
    hr_operand x = node->inputs[i];
    if (x.rank != y.rank) {
      continue; /* empty vectors join tensors of any rank */
    }
    int64_t count = x.dims[dim];
    if (hr_operand_count(x) > 0) {
      hr_emit1(b, HR_OP_COPY, hr_view_slice(b, y, dim, start, count, 1), x);
    }
    start += count;
  }
  return HR_OK;
}

hr_status hr__lower_pad(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0), fill = hr_build_attr(b, node, 0);
  int rank = y.rank;
  const int64_t *before = node->ints, *after = node->ints + rank;
  if (hr_operand_count(y) == 0 || hr_operand_count(x) == 0) {
    emit_fill(b, y, fill);
    return HR_OK;
  }
  int64_t offset = x.offset;
  for (int d = 0; d < rank; ++d) {
    offset -= before[d] * x.strides[d];
  }
  hr_operand moved = hr_view_strided(b, x, rank, y.dims, x.strides, offset);
  for (int d = 0; d < rank; ++d) {
    int64_t strides[HR_RANK_MAX] = {0};
    strides[d] = 1;
    if (before[d] > 0 || after[d] > 0) {
      moved = hr_view_bound(b, moved, -before[d], strides, x.dims[d]);
    }
  }
  hr_emit1(b, HR_OP_COPY, y, hr_view_fill(b, moved, fill));
  return HR_OK;
}

/* ---- gathers ---- */

/* After an error the builder returns absent operands: functions that read one return early, and the builder reports it.
 *
 * Replaces dim `dim` of x by `count` dims along which inputs[input] moves the address. */
static hr_operand indexed(hr_builder *b, hr_operand x, int dim, int input, int count, const int64_t *dims) {
  if (!hr_is_present(x)) {
    return x;
  }
  int64_t stride = x.strides[dim], extent = x.dims[dim];
  return hr_view_term(b, insert_dims(b, hr_view_remove(b, x, dim), dim, count, dims), input, stride, extent);
}

hr_status hr__lower_index_select(hr_builder *b, const hr_node *node) {
  hr_operand x = at_least_vector(b, hr_node_input(node, 0)), index = hr_node_input(node, 1);
  hr_operand y = hr_node_output(node, 0);
  int dim = (int)node->ints[0];
  if (index.rank == 0 && y.rank == x.rank) {
    index = at_least_vector(b, index);
  }
  if (y.rank < index.rank + x.rank - 1) {
    y = at_least_vector(b, y);
  }
  if (b->status != HR_OK) {
    return HR_OK;
  }
  check_range(b, index, x.dims[dim], false, MESSAGE_INDEX);
  if (hr_operand_count(y) == 0 || x.dims[dim] == 0) {
    return HR_OK;
  }
  hr_operand map = insert_dims(b, index, 0, dim, x.dims);
  map = insert_dims(b, map, map.rank, x.rank - dim - 1, x.dims + dim + 1);
  hr_operand inputs[2] = {indexed(b, x, dim, 1, index.rank, index.dims), map};
  hr_emit_gather(b, y, 2, inputs);
  return HR_OK;
}

/* x cut to `dims` except in dim `dim`, which becomes index term `input` of that many elements. */
static hr_operand indexed_along(hr_builder *b, hr_operand x, int dim, int input, const int64_t *dims) {
  for (int d = 0, rank = x.rank; d < rank && hr_is_present(x); ++d) {
    if (d != dim && x.dims[d] != dims[d]) {
      x = hr_view_slice(b, x, d, 0, dims[d], 1);
    }
  }
  return indexed(b, x, dim, input, 1, dims + dim);
}

hr_status hr__lower_gather(hr_builder *b, const hr_node *node) {
  hr_operand x = at_least_vector(b, hr_node_input(node, 0)), index = at_least_vector(b, hr_node_input(node, 1));
  hr_operand y = at_least_vector(b, hr_node_output(node, 0));
  int dim = (int)node->ints[0];
  if (b->status != HR_OK) {
    return HR_OK;
  }
  check_range(b, index, x.dims[dim], false, MESSAGE_GATHER);
  if (hr_operand_count(y) > 0 && x.dims[dim] > 0) {
    hr_operand inputs[2] = {indexed_along(b, x, dim, 1, index.dims), index};
    hr_emit_gather(b, y, 2, inputs);
  }
  return HR_OK;
}

hr_status hr__lower_scatter(hr_builder *b, const hr_node *node) {
  hr_operand index = at_least_vector(b, hr_node_input(node, 0)), source = at_least_vector(b, hr_node_input(node, 1));
  hr_operand y = at_least_vector(b, hr_node_output(node, 0));
  int dim = (int)node->ints[0];
  if (b->status != HR_OK) {
    return HR_OK;
  }
  if (node->ints[2] != HR_SCATTER_BOUNDED) {
    check_range(b, index, y.dims[dim], false, node->ints[2] != 0 ? MESSAGE_INDEX : MESSAGE_GATHER);
  }
  if (hr_operand_count(index) == 0 || y.dims[dim] == 0) {
    return HR_OK;
  }
  for (int d = 0; d < index.rank && source.kind == HR_OPERAND_VALUE; ++d) {
    if (source.dims[d] != index.dims[d]) {
      source = hr_view_slice(b, source, d, 0, index.dims[d], 1);
    }
  }
  hr_operand inputs[2] = {source, index}, sum = y;
  hr_store_mode mode = (hr_store_mode)node->ints[1];
  hr_dtype dtype = mode == HR_STORE_ADD ? hr__wide(y.dtype) : y.dtype;
  if (dtype != y.dtype) { /* sums of narrow numbers are rounded once */
    sum = hr_make1(b, HR_OP_COPY, dtype, y);
  }
  hr_emit_scatter(b, mode, indexed_along(b, sum, dim, 1, index.dims), 2, inputs, 1u << dim);
  hr__deliver(b, y, dtype, sum);
  return HR_OK;
}

/* ---- advanced indexing ---- */

typedef struct selection {
  int rank, position, index_rank; /* index dims are [position, position + index_rank) */
  int64_t dims[HR_RANK_MAX];
  bool is_empty, is_wrong; /* no elements; or an index into an empty dim */
} selection;

/* The dims that `count` indices select from x: the kept dims of x around the indices' common dims. */
static selection select_dims(hr_operand x, uint32_t mask, int position, int count, const hr_operand *index) {
  selection s = {.position = position, .index_rank = count > 0 ? index[0].rank : 0};
  int kept = 0;
  for (int d = 0; d < x.rank; ++d) {
    if ((mask >> d & 1) == 0) {
      s.dims[kept < position ? kept : kept + s.index_rank] = x.dims[d];
      ++kept;
    }
  }
  for (int d = 0; d < s.index_rank; ++d) {
    int64_t dim = 1;
    for (int i = 0; i < count; ++i) {
      dim = index[i].dims[d] != 1 ? index[i].dims[d] : dim;
    }
    s.dims[position + d] = dim;
  }
  s.rank = kept + s.index_rank;
  for (int d = 0; d < s.rank; ++d) {
    s.is_empty |= s.dims[d] == 0;
  }
  for (int d = 0; d < x.rank; ++d) {
    s.is_wrong |= (mask >> d & 1) != 0 && x.dims[d] == 0;
  }
  return s;
}

/* x over the selection's dims, with a term for each indexed dim: inputs[1], inputs[2], ... */
static hr_operand select_operand(hr_builder *b, hr_operand x, uint32_t mask, const selection *s) {
  hr_operand view = x;
  for (int d = x.rank - 1; d >= 0; --d) {
    if (mask >> d & 1) {
      view = hr_view_remove(b, view, d);
    }
  }
  view = insert_dims(b, view, s->position, s->index_rank, s->dims + s->position);
  for (int d = 0, input = 1; d < x.rank; ++d) {
    if (mask >> d & 1) {
      view = hr_view_term(b, view, input++, x.strides[d], x.dims[d]);
    }
  }
  return view;
}

/* Range checks of the indices, and the indices over the selection's dims. */
static void select_indices(hr_builder *b, hr_operand x, int64_t word, const selection *s, const hr_operand *index,
                           hr_operand *out_index) {
  uint32_t mask = (uint32_t)word;
  for (int d = 0, i = 0; d < x.rank; ++d) {
    if ((mask >> d & 1) == 0) {
      continue;
    }
    if (!hr__index_is_bounded(word)) {
      check_range(b, index[i], x.dims[d], true, MESSAGE_INDEX);
    }
    hr_operand view = hr_view_broadcast(b, index[i], s->index_rank, s->dims + s->position);
    view = insert_dims(b, view, 0, s->position, s->dims);
    int end = s->position + s->index_rank;
    out_index[i++] = insert_dims(b, view, end, s->rank - end, s->dims + end);
  }
}

hr_status hr__lower_index(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0), inputs[HR_RANK_MAX + 1];
  uint32_t mask = (uint32_t)node->ints[0];
  int count = node->input_count - 1;
  selection s = select_dims(x, mask, (int)node->ints[1], count, node->inputs + 1);
  select_indices(b, x, node->ints[0], &s, node->inputs + 1, inputs + 1);
  if (!s.is_empty && !s.is_wrong) {
    inputs[0] = select_operand(b, x, mask, &s);
    hr_emit_gather(b, y, count + 1, inputs);
  }
  return HR_OK;
}

hr_status hr__lower_index_put(hr_builder *b, const hr_node *node) {
  hr_operand values = hr_node_input(node, 0), y = hr_node_output(node, 0), inputs[HR_RANK_MAX + 1];
  uint32_t mask = (uint32_t)node->ints[0];
  int count = node->input_count - 1;
  selection s = select_dims(y, mask, (int)node->ints[1], count, node->inputs + 1);
  select_indices(b, y, node->ints[0], &s, node->inputs + 1, inputs + 1);
  if (s.is_empty || s.is_wrong) {
    return HR_OK;
  }
  inputs[0] = values.kind == HR_OPERAND_VALUE ? hr_view_broadcast(b, values, s.rank, s.dims) : values;
  uint32_t ordered = hr__mask_range(s.position, s.index_rank);
  hr_emit_scatter(b, node->ints[2] != 0 ? HR_STORE_ADD : HR_STORE_SET, select_operand(b, y, mask, &s), count + 1,
                  inputs, ordered);
  return HR_OK;
}

hr_status hr__lower_index_add(hr_builder *b, const hr_node *node) {
  hr_operand index = at_least_vector(b, hr_node_input(node, 0)), source = at_least_vector(b, hr_node_input(node, 1));
  hr_operand y = at_least_vector(b, hr_node_output(node, 0));
  int dim = (int)node->ints[0];
  if (b->status != HR_OK) {
    return HR_OK;
  }
  check_range(b, index, y.dims[dim], false, y.rank > 1 ? MESSAGE_GATHER : MESSAGE_INDEX);
  if (hr_operand_count(source) == 0 || y.dims[dim] == 0) {
    return HR_OK;
  }
  hr_operand map = insert_dims(b, index, 0, dim, source.dims);
  map = insert_dims(b, map, dim + 1, source.rank - dim - 1, source.dims + dim + 1);
  hr_operand scaled = hr_build_temp_like(b, source, hr__wide(y.dtype));
  hr_emit2(b, HR_OP_MUL, scaled, source, hr_build_attr(b, node, 0));
  hr_operand inputs[2] = {scaled, map};
  hr_emit_scatter(b, HR_STORE_ADD, indexed_along(b, y, dim, 1, source.dims), 2, inputs, 1u << dim);
  return HR_OK;
}

/* ---- gradient of an embedding ---- */

/* 1 / (number of occurrences of each token's index), over the dims of `index`. */
static hr_operand inverse_frequency(hr_builder *b, hr_operand index, int64_t vocabulary) {
  hr_operand counts = hr_build_temp(b, HR_DTYPE_F64, 1, &vocabulary);
  hr_emit1(b, HR_OP_COPY, counts, hr_build_f64(b, 0));
  hr_operand inputs[2] = {hr_build_f64(b, 1), index};
  uint32_t all = hr__mask_range(0, index.rank);
  hr_emit_scatter(b, HR_STORE_ADD, indexed(b, counts, 0, 1, index.rank, index.dims), 2, inputs, all);
  hr_operand mine = hr_build_temp_like(b, index, HR_DTYPE_F64);
  inputs[0] = indexed(b, counts, 0, 1, index.rank, index.dims);
  hr_emit_gather(b, mine, 2, inputs);
  return hr_make1(b, HR_OP_RECIPROCAL, HR_DTYPE_F64, mine);
}

hr_status hr__lower_embedding_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), index = at_least_vector(b, hr_node_input(node, 1));
  hr_operand dweight = hr_node_output(node, 0);
  int64_t padding = node->ints[0], features = dweight.dims[1];
  dy = at_least_vector(b, dy.rank == 1 ? hr_view_insert(b, dy, 0, 1) : dy);
  check_range(b, index, dweight.dims[0], false, MESSAGE_INDEX);
  hr_dtype dtype = hr__wide(dweight.dtype);
  hr_operand sum = dtype == dweight.dtype ? dweight : hr_build_temp_like(b, dweight, dtype);
  emit_fill(b, sum, hr_build_f64(b, 0));
  if (hr_operand_count(dy) > 0 && hr_operand_count(sum) > 0) {
    hr_operand map = hr_view_insert(b, index, index.rank, features);
    hr_operand inputs[2] = {dy, map};
    if (node->ints[1] != 0) {
      hr_operand scale = inverse_frequency(b, index, dweight.dims[0]);
      inputs[0] = hr_make2(b, HR_OP_MUL, dtype, inputs[0], hr_view_insert(b, scale, scale.rank, features));
    }
    if (padding >= 0) {
      hr_operand keep = hr_make2(b, HR_OP_NE, HR_DTYPE_BOOL, map, hr_build_i64(b, padding));
      inputs[0] = hr_make3(b, HR_OP_WHERE, dtype, keep, inputs[0], hr_build_f64(b, 0));
    }
    hr_emit_scatter(b, HR_STORE_ADD, indexed(b, sum, 0, 1, index.rank, index.dims), 2, inputs,
                    hr__mask_range(0, index.rank));
  }
  if (dtype != dweight.dtype && hr_operand_count(dweight) > 0) {
    hr_emit1(b, HR_OP_COPY, dweight, sum);
  }
  return HR_OK;
}

/* ---- computed from the index alone ---- */

/* column - row over the last two dims. */
static hr_operand diagonal_number(hr_builder *b, hr_operand x) {
  int64_t strides[HR_RANK_MAX] = {0};
  strides[x.rank - 2] = -1, strides[x.rank - 1] = 1;
  return hr_build_index(b, x.rank, x.dims, 0, strides);
}

hr_status hr__lower_tri(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  if (hr_operand_count(y) > 0) {
    hr_operand keep = hr_make2(b, node->ints[0] != 0 ? HR_OP_GE : HR_OP_LE, HR_DTYPE_BOOL, diagonal_number(b, y),
                               hr_build_attr(b, node, 0));
    hr_emit3(b, HR_OP_WHERE, y, keep, x, hr_build_i64(b, 0));
  }
  return HR_OK;
}

hr_status hr__lower_eye(hr_builder *b, const hr_node *node) {
  hr_operand y = hr_node_output(node, 0);
  if (hr_operand_count(y) > 0) {
    hr_operand on = hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, diagonal_number(b, y), hr_build_i64(b, 0));
    hr_emit1(b, HR_OP_COPY, y, on);
  }
  return HR_OK;
}

/* Integers are exact; floating point is computed in double and rounded once. */
hr_status hr__lower_arange(hr_builder *b, const hr_node *node) {
  hr_operand y = hr_node_output(node, 0), start = hr_build_attr(b, node, 0), step = hr_build_attr(b, node, 1);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  int64_t one = 1;
  hr_operand index = hr_build_index(b, 1, y.dims, 0, &one);
  bool direct = hr_dtype_is_integer(y.dtype) || y.dtype == HR_DTYPE_F64 || hr_dtype_is_complex(y.dtype);
  hr_operand wide = direct ? y : hr_build_temp_like(b, y, HR_DTYPE_F64);
  hr_emit3(b, HR_OP_ADD_SCALED, wide, start, index, step);
  if (!direct) {
    hr_emit1(b, HR_OP_COPY, y, wide);
  }
  return HR_OK;
}

/* ---- running sums and products ---- */

enum { CUMSUM_DIRECT_MAX = 64 };

/* y[.., i, ..] = sum over j of x[.., j, ..] where 0 <= i - j: one reduction over a triangle. */
static void cumsum_direct(hr_builder *b, hr_operand x, hr_operand y, int dim) {
  int64_t n = x.dims[dim], strides[HR_RANK_MAX] = {0};
  strides[dim] = 1, strides[dim + 1] = -1;
  hr_operand triangle = hr_view_bound(b, hr_view_insert(b, x, dim, n), 0, strides, n);
  hr_emit_reduce(b, HR_OP_SUM, hr_view_insert(b, y, dim + 1, 1), triangle, 1u << (dim + 1));
}

/* Doubling (Hillis and Steele): after step k every element is the sum of the 2^k elements that end with it. `none` is
 * the neutral element, used before the first element. */
static void doubling(hr_builder *b, hr_op op, double none, hr_operand x, hr_operand y, int dim) {
  int64_t n = x.dims[dim], strides[HR_RANK_MAX] = {0};
  strides[dim] = 1;
  b->program->has_rounds = true;
  for (int64_t distance = 1; distance < n && hr_is_present(x); distance *= 2) {
    hr_operand next = distance * 2 >= n ? y : hr_build_temp_like(b, y, hr__wide(y.dtype));
    hr_operand before = hr_view_strided(b, x, x.rank, x.dims, x.strides, x.offset - distance * x.strides[dim]);
    before = hr_view_bound(b, before, -distance, strides, n);
    hr_emit2(b, op, next, x, none != 0 ? hr_view_fill(b, before, hr_build_f64(b, none)) : before);
    x = next;
  }
}

hr_status hr__lower_cumsum(hr_builder *b, const hr_node *node) {
  hr_operand x = at_least_vector(b, hr_node_input(node, 0)), y = at_least_vector(b, hr_node_output(node, 0));
  int dim = (int)node->ints[0];
  if (hr_operand_count(x) == 0 || hr_operand_count(y) == 0) {
    return HR_OK;
  }
  if (x.dims[dim] == 1) {
    hr_emit1(b, HR_OP_COPY, y, x);
  } else if (x.dims[dim] <= CUMSUM_DIRECT_MAX && x.rank < HR_RANK_MAX) {
    cumsum_direct(b, x, y, dim);
  } else {
    doubling(b, HR_OP_ADD, 0, x, y, dim);
  }
  return HR_OK;
}

static hr_status scan(hr_builder *b, const hr_node *node, hr_op op, double none) {
  hr_operand x = at_least_vector(b, hr_node_input(node, 0)), y = at_least_vector(b, hr_node_output(node, 0));
  int dim = (int)node->ints[0];
  if (hr_operand_count(x) == 0 || hr_operand_count(y) == 0) {
    return HR_OK;
  }
  if (x.dims[dim] == 1) {
    hr_emit1(b, HR_OP_COPY, y, x);
  } else {
    doubling(b, op, none, x, y, dim);
  }
  return HR_OK;
}

hr_status hr__lower_cumprod(hr_builder *b, const hr_node *node) {
  return scan(b, node, HR_OP_MUL, 1);
}
hr_status hr__lower_logcumsumexp(hr_builder *b, const hr_node *node) {
  return scan(b, node, HR_OP_LOGADDEXP, -INFINITY);
}

/* ---- rows over segments ---- */

/* counts[places[i]] += number, over [0, count). */
static void mark(hr_builder *b, hr_operand counts, hr_operand places, int64_t number) {
  hr_operand inputs[2] = {hr_build_i64(b, number), places};
  hr_emit_scatter(b, HR_STORE_ADD, indexed(b, counts, 0, 1, 1, places.dims), 2, inputs, 1);
}

static hr_operand running_sum(hr_builder *b, hr_operand x) {
  hr_operand y = hr_build_temp_like(b, x, x.dtype);
  if (hr_operand_count(x) == 1) {
    return x;
  }
  doubling(b, HR_OP_ADD, 0, x, y, 0);
  return y;
}

/* The segment of each of `count` rows; the number of segments if it has none. Counts the segments begun up to a row:
 * the row is in the last of these unless as many have ended. */
static hr_operand segment_numbers(hr_builder *b, hr_operand begin, hr_operand end, int64_t count) {
  int64_t places = count + 1;
  hr_operand begun = hr_build_temp(b, HR_DTYPE_I64, 1, &places), open = hr_build_temp(b, HR_DTYPE_I64, 1, &places);
  emit_fill(b, begun, hr_build_i64(b, 0));
  emit_fill(b, open, hr_build_i64(b, 0));
  mark(b, begun, begin, 1), mark(b, open, begin, 1), mark(b, open, end, -1);
  hr_operand number = hr_make2(b, HR_OP_SUB, HR_DTYPE_I64, running_sum(b, begun), hr_build_i64(b, 1));
  hr_operand is_inside = hr_make2(b, HR_OP_GT, HR_DTYPE_BOOL, running_sum(b, open), hr_build_i64(b, 0));
  hr_operand owner = hr_make3(b, HR_OP_WHERE, HR_DTYPE_I64, is_inside, number, hr_build_i64(b, begin.dims[0]));
  return b->status == HR_OK ? hr_view_slice(b, owner, 0, 0, count, 1) : absent;
}

void hr__check_segments(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), index = hr_node_input(node, 3);
  int64_t count = hr_is_present(index) ? index.dims[0] : x.dims[0];
  check_range(b, hr_node_input(node, 1), count + 1, false, MESSAGE_INDEX);
  check_range(b, hr_node_input(node, 2), count + 1, false, MESSAGE_INDEX);
  check_range(b, index, x.dims[0], false, MESSAGE_INDEX);
}

hr_status hr__lower_segments(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), begin = hr_node_input(node, 1), end = hr_node_input(node, 2);
  hr_operand index = hr_node_input(node, 3), factor = hr_node_input(node, 4), y = hr_node_output(node, 0);
  hr_operand start = hr_build_attr(b, node, 0);
  int64_t count = hr_is_present(index) ? index.dims[0] : x.dims[0], columns = x.dims[1];
  hr__check_segments(b, node);
  if (count == 0 || hr_operand_count(y) == 0 || x.dims[0] == 0 || b->status != HR_OK) {
    emit_fill(b, y, start);
    return HR_OK;
  }
  hr_dtype dtype = node->ints[0] == HR_STORE_ADD ? hr__wide(y.dtype) : y.dtype;
  hr_operand owner = segment_numbers(b, begin, end, count), rows = x;
  if (hr_is_present(index)) {
    if (node->ints[1] >= 0) {
      hr_operand is_kept = hr_make2(b, HR_OP_NE, HR_DTYPE_BOOL, index, hr_build_i64(b, node->ints[1]));
      owner = hr_make3(b, HR_OP_WHERE, HR_DTYPE_I64, is_kept, owner, hr_build_i64(b, begin.dims[0]));
    }
    rows = hr_build_temp(b, x.dtype, 2, (int64_t[]){count, columns});
    hr_operand inputs[2] = {indexed(b, x, 0, 1, 1, &count), hr_view_insert(b, index, 1, columns)};
    hr_emit_gather(b, rows, 2, inputs);
  }
  if (hr_is_present(factor)) {
    rows = hr_make2(b, HR_OP_MUL, dtype, rows, hr_view_insert(b, factor, 1, columns));
  }
  int64_t dims[2] = {begin.dims[0] + 1, columns}; /* one more for rows without a segment */
  hr_operand sums = hr_build_temp(b, dtype, 2, dims);
  emit_fill(b, sums, start);
  if (b->status == HR_OK) {
    hr_operand inputs[2] = {rows, hr_view_insert(b, owner, 1, columns)};
    hr_emit_scatter(b, (hr_store_mode)node->ints[0], indexed(b, sums, 0, 1, 1, &count), 2, inputs, 1);
    hr_emit1(b, HR_OP_COPY, y, hr_view_slice(b, sums, 0, 0, begin.dims[0], 1));
  }
  return HR_OK;
}
