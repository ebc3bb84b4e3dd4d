/* infer_index.c: rules of the rows that move elements: joining, padding, gathering and scattering, triangles and ranges
 * (infer.h). */
#include <string.h>

#include "core/ops/index_row.h"
#include "core/ops/infer.h"

typedef hr__checked checked;

/* ---- index maps ---- */

hr_status hr__infer_cat(const checked *c) {
  const hr_view *first = hr__checked_input(c, 0);
  if (first == NULL || first->rank == 0) {
    return FAIL(c, "input 0 is %s, expected a tensor with dims", first == NULL ? "absent" : "without dims");
  }
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], first));
  int dim = (int)c->ints[0], rank = first->rank;
  hr_dtype dtype = HR_DTYPE_NONE;
  int64_t dims[HR_RANK_MAX], sum = 0;
  memcpy(dims, first->dims, (size_t)rank * sizeof *dims);
  for (int i = 0; i < c->input_count; ++i) {
    const hr_view *x = hr__checked_input(c, i);
    if (x == NULL || x->rank != rank) {
      return FAIL(c, "input %d has %d dims, expected %d as input 0 has", i, x == NULL ? 0 : x->rank, rank);
    }
    for (int d = 0; d < rank; ++d) {
      if (d != dim && x->dims[d] != dims[d]) {
        return FAIL(c, "dim %d of input %d is %lld, of the output %lld", d, i, (long long)x->dims[d],
                    (long long)dims[d]);
      }
    }
    sum += x->dims[dim];
    dtype = c->types != NULL ? hr_dtype_promote(dtype, x->dtype) : dtype;
  }
  dims[dim] = sum;
  const hr_view *y = c->types == NULL ? hr__checked_output(c, 0) : NULL;
  if (y != NULL && y->rank == rank && y->dims[dim] != sum) {
    return FAIL(c, "dim %d of the inputs is %lld in all, of the output %lld", dim, (long long)sum,
                (long long)y->dims[dim]);
  }
  return hr__give(c, 0, "the output", dtype, rank, dims);
}

/* Gives x's dims with before[d] more elements at the start and after[d] at the end; negative numbers crop. */
static hr_status give_padded(const checked *c, const hr_view *x, const int64_t *before, const int64_t *after) {
  int64_t dims[HR_RANK_MAX];
  const hr_view *y = c->types == NULL ? hr__checked_output(c, 0) : NULL;
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = x->dims[d] + before[d] + after[d];
    bool is_checked = y != NULL && y->rank == x->rank;
    if (is_checked ? y->dims[d] != dims[d] : dims[d] < 0) {
      return FAIL(c, "dim %d: %lld + %lld before + %lld after != %lld", d, (long long)x->dims[d], (long long)before[d],
                  (long long)after[d], is_checked ? (long long)y->dims[d] : 0);
    }
  }
  return hr__give(c, 0, "the output", x->dtype, x->rank, dims);
}

hr_status hr__infer_pad(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  if (c->int_count != 2 * x->rank) {
    return FAIL(c, "%d ints for an input of %d dims, expected %d", c->int_count, x->rank, 2 * x->rank);
  }
  HR_RETURN_IF_ERROR(hr__want_small(c, c->int_count, c->ints));
  return give_padded(c, x, c->ints, c->ints + x->rank);
}

/* The widest border of a dim of `in` elements, by the kind: reflect, replicate, symmetric, wrap. */
static int64_t widest_border(int64_t kind, int64_t in) {
  const int64_t most[4] = {in - 1, INT32_MAX, in, in};
  return in > 0 ? most[kind] : 0;
}

/* `small` must have the elements that its borders copy. */
static hr_status check_borders(const checked *c, const hr_view *small) {
  if (c->ints[0] < 0 || c->ints[0] > 3) {
    return FAIL(c, "kind %lld of border, expected 0 to 3", (long long)c->ints[0]);
  }
  for (int d = 0; d < small->rank; ++d) {
    int64_t before = c->ints[1 + d], after = c->ints[1 + small->rank + d], in = small->dims[d];
    int64_t most = widest_border(c->ints[0], in);
    if (before < 0 || after < 0 || before > most || after > most) {
      return FAIL(c, "dim %d of %lld elements gets %lld before and %lld after", d, (long long)in, (long long)before,
                  (long long)after);
    }
  }
  return HR_OK;
}

static hr_status check_border_ints(const checked *c, int rank) {
  return c->int_count == 2 * rank + 1
             ? hr__want_small(c, c->int_count, c->ints)
             : FAIL(c, "%d ints for an input of %d dims, expected %d", c->int_count, rank, 2 * rank + 1);
}

hr_status hr__infer_pad_border(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(check_border_ints(c, x->rank));
  HR_RETURN_IF_ERROR(check_borders(c, x));
  return give_padded(c, x, c->ints + 1, c->ints + 1 + x->rank);
}

hr_status hr__infer_pad_border_backward(const checked *c) {
  const hr_view *dy = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(check_border_ints(c, dy->rank));
  hr__made dx;
  hr__make_like(&dx, dy);
  for (int d = 0; d < dy->rank; ++d) {
    dx.dims[d] -= c->ints[1 + d] + c->ints[1 + dy->rank + d];
  }
  HR_RETURN_IF_ERROR(check_borders(c, &dx.view));
  return hr__give_like(c, 0, "dx", dy->dtype, &dx.view);
}

hr_status hr__infer_index_select(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *index = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], x));
  int64_t dims[2 * HR_RANK_MAX];
  int rank = 0;
  for (int d = 0; d < c->ints[0] && d < x->rank; ++d) {
    dims[rank++] = x->dims[d];
  }
  for (int d = 0; d < index->rank; ++d) {
    dims[rank++] = index->dims[d];
  }
  for (int d = (int)c->ints[0] + 1; d < x->rank; ++d) {
    dims[rank++] = x->dims[d];
  }
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the output", c->types == NULL ? hr__checked_output(c, 0) : NULL, rank, rank));
  return rank <= HR_RANK_MAX ? hr__give(c, 0, "the output", x->dtype, rank, dims)
                             : FAIL(c, "an output of %d dims, expected at most %d", rank, HR_RANK_MAX);
}

/* index must not be larger than `other`, except in `dim`. */
static hr_status want_within(const checked *c, const hr_view *index, const char *what, const hr_view *other,
                             int64_t dim) {
  char found[HR__DIMS_TEXT], limit[HR__DIMS_TEXT];
  int rank = index->rank;
  bool is_fit = rank == other->rank || (rank <= 1 && other->rank <= 1);
  for (int d = 0; is_fit && d < rank && d < other->rank; ++d) {
    is_fit = d == dim || index->dims[d] <= other->dims[d];
  }
  return is_fit ? HR_OK
                : FAIL(c, "the index's dims %s don't fit into %s of %s", hr__view_dims(index, found), what,
                       hr__view_dims(other, limit));
}

hr_status hr__infer_gather(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *index = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], x));
  HR_RETURN_IF_ERROR(want_within(c, index, "an input", x, c->ints[0]));
  return hr__give_like(c, 0, "the output", x->dtype, index);
}

hr_status hr__infer_scatter(const checked *c) {
  const hr_view *index = hr__checked_input(c, 0), *source = hr__checked_input(c, 1), *y = hr__checked_output(c, 0);
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], y));
  if (c->ints[1] < HR_STORE_SET || c->ints[1] > HR_STORE_MIN) {
    return FAIL(c, "mode %lld, expected 0 to 4", (long long)c->ints[1]);
  }
  if (c->ints[1] >= HR_STORE_MAX && hr_dtype_is_complex(y->dtype)) {
    return FAIL(c, "complex numbers have no order, so there is no mode %lld", (long long)c->ints[1]);
  }
  HR_RETURN_IF_ERROR(want_within(c, index, "an output", y, c->ints[0]));
  hr__keep(c, 0, hr__dtype_of(source), y);
  return source->buffer == NULL ? HR_OK : want_within(c, index, "a source", source, -1);
}

/* The dims that indices select from x. */
static hr_status selected_dims(const checked *c, const hr_view *x, int *out_rank, int64_t *dims) {
  int64_t mask = hr__index_mask(c->ints[0]), position = c->ints[1];
  int count = c->input_count - 1, index_rank = count > 0 ? c->inputs[1].rank : 0;
  if (count < 1 || mask < 0 || mask >> x->rank != 0 || __builtin_popcountll((unsigned long long)mask) != count) {
    return FAIL(c, "mask 0x%llx of %d dims for %d indices", (unsigned long long)mask, x->rank, count);
  }
  if (position < 0 || position > x->rank - count || x->rank - count + index_rank > HR_RANK_MAX) {
    return FAIL(c, "the index's %d dims at %lld of %d", index_rank, (long long)position, x->rank - count);
  }
  int64_t common[HR_RANK_MAX];
  for (int d = 0; d < index_rank; ++d) {
    common[d] = 1;
  }
  for (int i = 1; i <= count; ++i) {
    HR_RETURN_IF_ERROR(hr__want_integer(c, "an index", &c->inputs[i]));
    HR_RETURN_IF_ERROR(hr__want_rank(c, "an index", &c->inputs[i], index_rank, index_rank));
    for (int d = 0; d < index_rank; ++d) {
      int64_t dim = c->inputs[i].dims[d];
      if (dim != 1 && common[d] != 1 && dim != common[d]) {
        return FAIL(c, "dim %d of the indices differs: %lld != %lld", d, (long long)common[d], (long long)dim);
      }
      common[d] = dim != 1 ? dim : common[d];
    }
  }
  int kept = 0;
  for (int d = 0; d < x->rank; ++d) {
    if ((mask >> d & 1) == 0) {
      dims[kept < position ? kept : kept + index_rank] = x->dims[d];
      ++kept;
    }
  }
  memcpy(dims + position, common, (size_t)index_rank * sizeof *common);
  *out_rank = kept + index_rank;
  return HR_OK;
}

hr_status hr__infer_index(const checked *c) {
  int rank = 0;
  int64_t dims[2 * HR_RANK_MAX];
  HR_RETURN_IF_ERROR(selected_dims(c, hr__checked_input(c, 0), &rank, dims));
  return hr__give(c, 0, "the output", c->inputs[0].dtype, rank, dims);
}

hr_status hr__infer_index_put(const checked *c) {
  int rank = 0;
  int64_t dims[2 * HR_RANK_MAX];
  HR_RETURN_IF_ERROR(selected_dims(c, hr__checked_output(c, 0), &rank, dims));
  hr__keep(c, 0, hr__dtype_of(hr__checked_input(c, 0)), hr__checked_output(c, 0));
  return hr__want_spread(c, "the values", hr__checked_input(c, 0), rank, dims);
}

hr_status hr__infer_index_add(const checked *c) {
  const hr_view *index = hr__checked_input(c, 0), *source = hr__checked_input(c, 1), *y = hr__checked_output(c, 0);
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the index", index, 0, 1));
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], y));
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < y->rank; ++d) {
    dims[d] = d == c->ints[0] ? hr__view_count(index) : y->dims[d];
  }
  hr__keep(c, 0, hr__dtype_of(source), y);
  return y->rank == 0 || source->rank == 0 ? hr__want_one(c, "the source", source)
                                           : hr__want_dims(c, "the source", source, y->rank, dims);
}

hr_status hr__infer_embedding_backward(const checked *c) {
  const hr_view *dy = hr__checked_input(c, 0), *index = hr__checked_input(c, 1), *dweight = hr__given_output(c, 0);
  if (dweight == NULL) {
    return hr__refuse_choice(c, 0);
  }
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "dweight", dweight, 2, 2));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the index", index, 0, HR_RANK_MAX - 1));
  int64_t dims[HR_RANK_MAX];
  if (index->rank > 0) {
    memcpy(dims, index->dims, (size_t)index->rank * sizeof *dims);
  }
  dims[index->rank] = dweight->dims[1];
  hr__keep(c, 0, dy->dtype, dweight);
  return hr__want_dims(c, "dy", dy, index->rank + 1, dims);
}

hr_status hr__infer_segments(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *begin = hr__checked_input(c, 1), *index = hr__checked_input(c, 3);
  const hr_view *factor = hr__checked_input(c, 4);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 2, 2));
  HR_RETURN_IF_ERROR(hr__want_integer(c, "begin", begin));
  HR_RETURN_IF_ERROR(hr__want_integer(c, "end", hr__checked_input(c, 2)));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "begin", begin, 1, 1));
  HR_RETURN_IF_ERROR(hr__want_like(c, "end", hr__checked_input(c, 2), begin));
  if (index != NULL) {
    HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", index));
    HR_RETURN_IF_ERROR(hr__want_rank(c, "the index", index, 1, 1));
  }
  if (factor != NULL) {
    HR_RETURN_IF_ERROR(hr__want_dims(c, "the factors", factor, 1, index != NULL ? index->dims : x->dims));
  }
  if (c->ints[0] < HR_STORE_ADD || c->ints[0] > HR_STORE_MIN) {
    return FAIL(c, "there is no reduction %lld, expected 1 to 4", (long long)c->ints[0]);
  }
  return hr__give(c, 0, "the output", x->dtype, 2, (int64_t[]){begin->dims[0], x->dims[1]});
}

hr_status hr__infer_tri(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", x, 2, HR_RANK_MAX));
  return hr__give_like(c, 0, "the output", x->dtype, x);
}

/* An output of `rank` dims, which the caller chooses. */
static hr_status infer_given(const checked *c, int rank, hr_dtype dtype) {
  const hr_view *y = hr__given_output(c, 0);
  if (y == NULL) {
    return hr__refuse_choice(c, 0);
  }
  hr__keep(c, 0, dtype, y);
  return hr__want_rank(c, "the output", y, rank, rank);
}

hr_status hr__infer_vector(const checked *c) {
  bool is_integer = true;
  for (int i = 0; i < c->scalar_count; ++i) {
    is_integer &= hr_dtype_is_integer(c->scalars[i].dtype);
  }
  return infer_given(c, 1, is_integer ? HR_DTYPE_I64 : HR_DTYPE_F32);
}

hr_status hr__infer_matrix(const checked *c) {
  return infer_given(c, 2, HR_DTYPE_F32);
}

hr_status hr__infer_nothing(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  return x->buffer == NULL || x->dtype != HR_DTYPE_I64 ? FAIL(c, "expected an i64 tensor") : hr__want_one(c, "x", x);
}
