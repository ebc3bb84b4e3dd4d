/* vmap_rows.c: rules of rows whose operands need more than a leading dim. */
#include "core/ops/index_row.h"
#include "transform/vmap_record.h"

#include <string.h>

/* ---- products ---- */

/* The examples of rows or columns as one matrix: [N, 1, K] as [N, K], and [N, K, 1] as [K, N]. */
static void fold_line(const hr__record_of_all *r, const hr__operand_of_all *x, bool is_rows, hr__lifted *out) {
  int examples = is_rows ? 0 : 1, line = is_rows ? 1 : 0;
  out->view = x->view;
  out->view.dims = out->dims, out->view.strides = out->strides;
  out->dims[examples] = r->vmap->size, out->strides[examples] = x->stride;
  out->dims[line] = x->view.dims[line], out->strides[line] = x->view.strides[line];
}

/* A matrix that is the same in all times vectors, or vectors times such a matrix: one product. */
static bool is_line_product(const hr__record_of_all *r, bool *out_is_rows) {
  const hr__operand_of_all *a = &r->inputs[0], *b = &r->inputs[1], *out = &r->outputs[0];
  bool has_bias = r->input_count > 2 && r->inputs[2].view.buffer != NULL;
  *out_is_rows = a->is_mapped;
  return !has_bias && a->view.rank == 2 && b->view.rank == 2 && a->is_mapped != b->is_mapped &&
         out->view.dims[a->is_mapped ? 0 : 1] == 1;
}

/* Rows of all examples times a matrix that is the same in all: the letters of one product, or NULL. A bias is the same
 * for all rows, or folded with them. */
static const char *row_product(const hr__record_of_all *r) {
  const hr__operand_of_all *a = &r->inputs[0], *b = &r->inputs[1], *out = &r->outputs[0];
  const hr__operand_of_all *bias = r->input_count > 2 && !hr__is_absent(&r->inputs[2]) ? &r->inputs[2] : NULL;
  bool is = a->is_mapped && !b->is_mapped && a->view.rank == 2 && b->view.rank == 2 && out->view.rank == 2 &&
            hr__is_even(r, a, 0) && hr__is_even(r, out, 0);
  if (!is || bias == NULL) {
    return is ? "fss" : NULL;
  }
  if (bias->is_mapped) {
    bool has_rows = bias->view.rank == 2 && bias->view.dims[0] == out->view.dims[0];
    return has_rows && hr__is_even(r, bias, 0) ? "fsf" : NULL;
  }
  return bias->view.rank < 2 || bias->view.dims[0] == 1 ? "fss" : NULL;
}

hr_status hr__vmap_matmul(const hr__record_of_all *r, bool *out_is_done) {
  const char *letters = row_product(r);
  if (letters != NULL) {
    return hr__record_folded(r, letters, "f", out_is_done);
  }
  hr__lifted lifted[4];
  hr_view views[4];
  int count = r->input_count, rank = r->outputs[0].view.rank;
  bool is_rows;
  if (is_line_product(r, &is_rows)) {
    fold_line(r, &r->inputs[is_rows ? 0 : 1], is_rows, &lifted[0]);
    fold_line(r, &r->outputs[0], is_rows, &lifted[1]);
    views[is_rows ? 0 : 1] = lifted[0].view, views[is_rows ? 1 : 0] = r->inputs[is_rows ? 1 : 0].view;
    for (int i = 2; i < count; ++i) {
      views[i] = r->inputs[i].view;
    }
    views[count] = lifted[1].view;
    return hr__pass_all(r, r->attrs, views);
  }
  bool is_either_mapped = r->inputs[0].is_mapped || r->inputs[1].is_mapped;
  for (int i = 0; i <= count; ++i) {
    const hr__operand_of_all *x = i < count ? &r->inputs[i] : &r->outputs[0];
    bool is_lifted = x->is_mapped || (i == 0 && !is_either_mapped);
    if (is_lifted) {
      hr__lift(r, x, rank, &lifted[i]);
    }
    views[i] = is_lifted ? lifted[i].view : x->view;
  }
  return hr__pass_all(r, r->attrs, views);
}

/* Rows times numbers that are the same in all examples are more rows. Other matrices are a batch. */
hr_status hr__vmap_quantized_matmul(const hr__record_of_all *r, bool *out_is_done) {
  bool is_batch = r->inputs[0].view.rank == 3;
  bool is_same = true;
  for (int i = 1; i < r->input_count; ++i) {
    is_same = is_same && !r->inputs[i].is_mapped;
  }
  const char *letters = is_batch ? "ffff" : is_same ? "fsss" : "llll";
  return hr__record_folded(r, letters, is_batch || is_same ? "f" : "l", out_is_done);
}

/* ---- padding ---- */

/* The examples get no elements: a 0 in front of `before` and of `after`. */
static hr_status record_padded(const hr__record_of_all *r, int first) {
  int rank = r->inputs[0].view.rank;
  int64_t ints[2 * HR_RANK_MAX + 3];
  hr__lifted lifted[2];
  memcpy(ints, r->attrs->ints, (size_t)first * sizeof *ints);
  ints[first] = ints[first + 1 + rank] = 0;
  for (int d = 0; d < rank; ++d) {
    ints[first + 1 + d] = r->attrs->ints[first + d];
    ints[first + 2 + rank + d] = r->attrs->ints[first + rank + d];
  }
  hr_attrs attrs = *r->attrs;
  attrs.ints = ints, attrs.int_count += 2;
  hr__lift(r, &r->inputs[0], rank, &lifted[0]);
  hr__lift(r, &r->outputs[0], rank, &lifted[1]);
  return hr__pass_all(r, &attrs, (const hr_view[]){lifted[0].view, lifted[1].view});
}

hr_status hr__vmap_pad(const hr__record_of_all *r, bool *out_is_done) {
  (void)out_is_done;
  return record_padded(r, 0);
}

hr_status hr__vmap_pad_border(const hr__record_of_all *r, bool *out_is_done) {
  (void)out_is_done;
  return record_padded(r, 1);
}

/* ---- indices ---- */

/* 0, 1, ... of the examples, [N, 1, .., 1] before `rank` dims. The buffer is the caller's. */
static hr_status number_examples(const hr__record_of_all *r, int rank, hr__lifted *out, hr_buffer **out_buffer) {
  int64_t size = r->vmap->size, stride = 1;
  const hr_scalar scalars[2] = {hr_scalar_i64(0), hr_scalar_i64(1)};
  const hr_attrs attrs = {.scalar_count = 2, .scalars = scalars};
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(r->vmap->stream), (size_t)size * sizeof size, out_buffer));
  const hr_view line = {*out_buffer, NULL, HR_DTYPE_I64, 1, 0, &size, &stride};
  hr_status status = hr__pass(r, HR_OP_ARANGE, &attrs, 0, NULL, 1, &line);
  if (status != HR_OK) {
    hr_buffer_release(*out_buffer);
    return status;
  }
  const hr__operand_of_all number = {{*out_buffer, NULL, HR_DTYPE_I64, 0, 0, NULL, NULL}, 1, true};
  hr__lift(r, &number, rank, out);
  return HR_OK;
}

/* Rows INDEX and INDEX_PUT: the tensor that is indexed and another one, x and y or y and values, and the indices. */
typedef struct indexing {
  const hr__record_of_all *record;
  const hr__operand_of_all *indices;
  int count; /* of indices */
  bool is_x_mapped, is_index_mapped;
  int position;
  hr__lifted lifted[HR_RANK_MAX + 1];
  hr_view views[HR_RANK_MAX + 3]; /* input 0, the indices, the output */
  hr_buffer *numbers;             /* of the examples, if these are one more index */
} indexing;

static bool is_any_mapped(int count, const hr__operand_of_all *operands) {
  for (int i = 0; i < count; ++i) {
    if (operands[i].is_mapped) {
      return true;
    }
  }
  return false;
}

/* The views of indices, with numbers of the examples in front of them if x differs, too. */
static hr_status lift_indices(indexing *x) {
  const hr__record_of_all *r = x->record;
  int rank = x->indices[0].view.rank, first = x->is_x_mapped && x->is_index_mapped;
  if (first == 1) {
    HR_RETURN_IF_ERROR(number_examples(r, rank, &x->lifted[0], &x->numbers));
    x->views[1] = x->lifted[0].view;
  }
  for (int i = 0; i < x->count; ++i) {
    if (x->is_index_mapped) {
      hr__lift(r, &x->indices[i], rank, &x->lifted[first + i]);
    }
    x->views[1 + first + i] = x->is_index_mapped ? x->lifted[first + i].view : x->indices[i].view;
  }
  x->count += first;
  return HR_OK;
}

/* Passes the row on, with ints of which the first two are the mask and the position. */
static hr_status pass_indexed(const indexing *x) {
  const hr__record_of_all *r = x->record;
  int64_t ints[3] = {r->attrs->ints[0], r->attrs->ints[1], r->attrs->int_count > 2 ? r->attrs->ints[2] : 0};
  hr_attrs attrs = *r->attrs;
  attrs.ints = ints;
  if (x->is_x_mapped) {
    ints[0] = (ints[0] & HR_INDEX_BOUNDED) | hr__index_mask(ints[0]) << 1 | x->is_index_mapped;
    ints[1] += !x->is_index_mapped;
  }
  return hr__pass(r, r->op, &attrs, 1 + x->count, x->views, 1, &x->views[1 + x->count]);
}

hr_status hr__vmap_index(const hr__record_of_all *r, bool *out_is_done) {
  indexing x = {.record = r, .indices = r->inputs + 1, .count = r->input_count - 1};
  x.is_x_mapped = r->inputs[0].is_mapped, x.is_index_mapped = is_any_mapped(x.count, x.indices);
  *out_is_done = (x.is_x_mapped || x.is_index_mapped) && x.count < HR_RANK_MAX;
  if (!*out_is_done) {
    return HR_OK;
  }
  hr__lifted from, to;
  HR_RETURN_IF_ERROR(lift_indices(&x));
  hr__lift(r, &r->inputs[0], r->inputs[0].view.rank, &from);
  hr__lift(r, &r->outputs[0], r->outputs[0].view.rank, &to);
  if (x.is_index_mapped) {
    hr__move_examples(&to, (int)r->attrs->ints[1]);
  }
  x.views[0] = x.is_x_mapped ? from.view : r->inputs[0].view;
  x.views[1 + x.count] = to.view;
  hr_status status = pass_indexed(&x);
  hr_buffer_release(x.numbers);
  return status;
}

hr_status hr__vmap_index_put(const hr__record_of_all *r, bool *out_is_done) {
  const hr__operand_of_all *values = &r->inputs[0], *y = &r->outputs[0];
  indexing x = {.record = r, .indices = r->inputs + 1, .count = r->input_count - 1, .is_x_mapped = true};
  x.is_index_mapped = is_any_mapped(x.count, x.indices);
  int rank = y->view.rank - x.count + x.indices[0].view.rank; /* of the selection */
  *out_is_done = rank < HR_RANK_MAX && x.count < HR_RANK_MAX;
  if (!*out_is_done) {
    return HR_OK;
  }
  hr__lifted from, to;
  HR_RETURN_IF_ERROR(lift_indices(&x));
  x.views[0] = values->view;
  if (!hr__is_absent(values) && (values->is_mapped || x.is_index_mapped)) {
    hr__lift(r, values, rank, &from);
    if (x.is_index_mapped) {
      hr__move_examples(&from, (int)r->attrs->ints[1]);
    }
    x.views[0] = from.view;
  }
  hr__lift(r, y, y->view.rank, &to);
  x.views[1 + x.count] = to.view;
  hr_status status = pass_indexed(&x);
  hr_buffer_release(x.numbers);
  return status;
}

/* A tensor of one element, with `rank` dims of size 1. */
static hr_status create_one(const hr__record_of_all *r, hr_dtype dtype, int rank, hr__lifted *out) {
  out->view = (hr_view){.dtype = dtype, .rank = rank, .dims = out->dims, .strides = out->strides};
  for (int d = 0; d < rank; ++d) {
    out->dims[d] = out->strides[d] = 1;
  }
  return hr_buffer_create(hr_stream_device(r->vmap->stream), hr_dtype_size(dtype), &out->view.buffer);
}

/* Fails at the wait if the smallest of all indices is negative: row INDEX counts those from the end. */
static hr_status record_check(const hr__record_of_all *r, const hr__lifted *indices, hr__lifted *least,
                              hr__lifted *is_bad) {
  const int64_t mask = (INT64_C(1) << indices->view.rank) - 1, bounds[3] = {0, INT64_MAX, 0};
  const hr_scalar zero = hr_scalar_i64(0), none = hr_scalar_i64(INT64_MIN);
  const hr_view zero_view = {.scalar = &zero}, none_view = {.scalar = &none};
  const hr_attrs reduced = {.int_count = 1, .ints = &mask}, checked = {.int_count = 3, .ints = bounds};
  const hr_view compared[2] = {least->view, zero_view}, chosen[3] = {is_bad->view, least->view, none_view};
  HR_RETURN_IF_ERROR(hr__pass(r, HR_OP_AMIN, &reduced, 1, &indices->view, 1, &least->view));
  HR_RETURN_IF_ERROR(hr__pass(r, HR_OP_LT, NULL, 2, compared, 1, &is_bad->view));
  HR_RETURN_IF_ERROR(hr__pass(r, HR_OP_WHERE, NULL, 3, chosen, 1, &least->view));
  return hr__pass(r, HR_OP_CHECK_INDEX, &checked, 1, &least->view, 0, NULL);
}

static hr_status refuse_negative(const hr__record_of_all *r, const hr__operand_of_all *index) {
  hr__lifted indices, least = {.view.buffer = NULL}, is_bad = {.view.buffer = NULL};
  hr__lift(r, index, index->view.rank, &indices);
  for (int d = 0; d < indices.view.rank; ++d) {
    if (indices.dims[d] == 0) {
      return HR_OK;
    }
  }
  hr_status status = create_one(r, HR_DTYPE_I64, indices.view.rank, &least);
  status = status == HR_OK ? create_one(r, HR_DTYPE_BOOL, indices.view.rank, &is_bad) : status;
  status = status == HR_OK ? record_check(r, &indices, &least, &is_bad) : status;
  hr_buffer_release(least.view.buffer);
  hr_buffer_release(is_bad.view.buffer);
  return status;
}

/* Examples of x and of the index: the row INDEX with one index more. */
static hr_status select_from_examples(const hr__record_of_all *r, bool *out_is_done) {
  const int64_t ints[2] = {INT64_C(1) << r->attrs->ints[0], r->attrs->ints[0]};
  const hr_attrs attrs = {.int_count = 2, .ints = ints};
  hr__record_of_all index = *r;
  index.op = HR_OP_INDEX, index.attrs = &attrs;
  HR_RETURN_IF_ERROR(refuse_negative(r, &r->inputs[1]));
  return hr__vmap_index(&index, out_is_done);
}

hr_status hr__vmap_index_select(const hr__record_of_all *r, bool *out_is_done) {
  const hr__operand_of_all *x = &r->inputs[0], *index = &r->inputs[1];
  *out_is_done = x->view.rank > 0;
  if (!*out_is_done || (x->is_mapped && index->is_mapped)) {
    return *out_is_done ? select_from_examples(r, out_is_done) : HR_OK;
  }
  int64_t dim = r->attrs->ints[0] + !index->is_mapped;
  hr_attrs attrs = *r->attrs;
  attrs.ints = &dim;
  const hr__operand_of_all *lifted = index->is_mapped ? index : x;
  hr__lifted from, to;
  hr__lift(r, lifted, lifted->view.rank, &from);
  hr__lift(r, &r->outputs[0], r->outputs[0].view.rank, &to);
  if (index->is_mapped) {
    hr__move_examples(&to, (int)dim);
  }
  const hr_view views[3] = {index->is_mapped ? x->view : from.view, index->is_mapped ? from.view : index->view,
                            to.view};
  return hr__pass_all(r, &attrs, views);
}

hr_status hr__vmap_index_add(const hr__record_of_all *r, bool *out_is_done) {
  const hr__operand_of_all *source = &r->inputs[1], *y = &r->outputs[0];
  *out_is_done = !r->inputs[0].is_mapped && y->view.rank > 0 && source->view.rank > 0;
  if (!*out_is_done) {
    return HR_OK;
  }
  const int64_t dim = r->attrs->ints[0] + 1;
  hr_attrs attrs = *r->attrs;
  attrs.ints = &dim;
  hr__lifted lifted[2];
  hr__lift(r, source, source->view.rank, &lifted[0]);
  hr__lift(r, y, y->view.rank, &lifted[1]);
  return hr__pass_all(r, &attrs, (const hr_view[]){r->inputs[0].view, lifted[0].view, lifted[1].view});
}

/* Examples without an offending index have the smallest number. */
hr_status hr__vmap_check_index(const hr__record_of_all *r, bool *out_is_done) {
  (void)out_is_done;
  if (r->vmap->size == 0) {
    return HR_OK;
  }
  hr__lifted all, largest;
  hr__operand_of_all one = r->inputs[0];
  const int64_t mask = 1;
  const hr_attrs attrs = {.int_count = 1, .ints = &mask};
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(r->vmap->stream), sizeof(int64_t), &one.view.buffer));
  one.view.offset = 0;
  hr__lift(r, &r->inputs[0], r->inputs[0].view.rank, &all);
  hr__lift(r, &one, one.view.rank, &largest);
  largest.dims[0] = 1;
  hr_status status = hr__pass(r, HR_OP_AMAX, &attrs, 1, &all.view, 1, &largest.view);
  status = status == HR_OK ? hr__pass_all(r, r->attrs, &largest.view) : status;
  hr_buffer_release(one.view.buffer);
  return status;
}
