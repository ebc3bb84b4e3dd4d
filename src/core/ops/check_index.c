/* check_index.c: shapes of what moves elements about: joining, padding, gathering and scattering, numbers of rows and
 * columns (check_shape.h). */
#include <string.h>

#include "core/ops/check_shape.h"

typedef hr__checked checked;

/* ---- index maps ---- */

static hr_status check_cat(const checked *c) {
  const hr_view *y = hr__checked_output(c, 0);
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], y));
  int dim = (int)c->ints[0];
  int64_t sum = 0;
  for (int i = 0; i < c->input_count; ++i) {
    const hr_view *x = hr__checked_input(c, i);
    if (x == NULL || x->rank != y->rank || x->rank == 0) {
      return FAIL(c, "input %d has %d dims, the output %d", i, x == NULL ? 0 : x->rank, y->rank);
    }
    for (int d = 0; d < y->rank; ++d) {
      if (d != dim && x->dims[d] != y->dims[d]) {
        return FAIL(c, "dim %d of input %d is %lld, of the output %lld", d, i, (long long)x->dims[d],
                    (long long)y->dims[d]);
      }
    }
    sum += x->dims[dim];
  }
  return sum == y->dims[dim] ? HR_OK
                             : FAIL(c, "dim %d of the inputs is %lld in all, of the output %lld", dim, (long long)sum,
                                    (long long)y->dims[dim]);
}

static hr_status check_pad(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *y = hr__checked_output(c, 0);
  if (c->int_count != 2 * x->rank || y->rank != x->rank) {
    return FAIL(c, "%d ints and an output of %d dims for an input of %d", c->int_count, y->rank, x->rank);
  }
  HR_RETURN_IF_ERROR(hr__want_small(c, c->int_count, c->ints));
  for (int d = 0; d < x->rank; ++d) {
    int64_t before = c->ints[d], after = c->ints[x->rank + d];
    if (y->dims[d] != x->dims[d] + before + after) {
      return FAIL(c, "dim %d: %lld + %lld before + %lld after != %lld", d, (long long)x->dims[d], (long long)before,
                  (long long)after, (long long)y->dims[d]);
    }
  }
  return HR_OK;
}

/* `large` is `small` with borders that `small` has the elements for. */
static hr_status check_borders(const checked *c, const hr_view *small, const hr_view *large) {
  if (c->int_count != 2 * small->rank + 1 || large->rank != small->rank) {
    return FAIL(c, "%d ints for operands of %d and %d dims", c->int_count, small->rank, large->rank);
  }
  HR_RETURN_IF_ERROR(hr__want_small(c, c->int_count, c->ints));
  bool repeats = c->ints[0] != 0;
  for (int d = 0; d < small->rank; ++d) {
    int64_t before = c->ints[1 + d], after = c->ints[1 + small->rank + d], in = small->dims[d];
    int64_t most = repeats ? (in > 0 ? INT32_MAX : 0) : in > 0 ? in - 1 : 0;
    if (before < 0 || after < 0 || before > most || after > most) {
      return FAIL(c, "dim %d of %lld elements gets %lld before and %lld after", d, (long long)in, (long long)before,
                  (long long)after);
    }
    if (large->dims[d] != in + before + after) {
      return FAIL(c, "dim %d: %lld + %lld before + %lld after != %lld", d, (long long)in, (long long)before,
                  (long long)after, (long long)large->dims[d]);
    }
  }
  return HR_OK;
}

static hr_status check_pad_border(const checked *c) {
  return check_borders(c, hr__checked_input(c, 0), hr__checked_output(c, 0));
}

static hr_status check_pad_border_backward(const checked *c) {
  return check_borders(c, hr__checked_output(c, 0), hr__checked_input(c, 0));
}

static hr_status check_index_select(const checked *c) {
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
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the output", hr__checked_output(c, 0), rank, rank));
  return hr__want_dims(c, "the output", hr__checked_output(c, 0), rank, dims);
}

/* index is no larger than `other`, `dim` aside where it may be anything. */
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

static hr_status check_gather(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0), *index = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], x));
  HR_RETURN_IF_ERROR(want_within(c, index, "an input", x, c->ints[0]));
  return hr__want_like(c, "the output", hr__checked_output(c, 0), index);
}

static hr_status check_scatter(const checked *c) {
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
  return source->buffer == NULL ? HR_OK : want_within(c, index, "a source", source, -1);
}

/* The dims that indices select from x. */
static hr_status selected_dims(const checked *c, const hr_view *x, int *out_rank, int64_t *dims) {
  int64_t mask = c->ints[0], position = c->ints[1];
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

static hr_status check_index(const checked *c) {
  int rank = 0;
  int64_t dims[2 * HR_RANK_MAX];
  HR_RETURN_IF_ERROR(selected_dims(c, hr__checked_input(c, 0), &rank, dims));
  return hr__want_dims(c, "the output", hr__checked_output(c, 0), rank, dims);
}

static hr_status check_index_put(const checked *c) {
  int rank = 0;
  int64_t dims[2 * HR_RANK_MAX];
  HR_RETURN_IF_ERROR(selected_dims(c, hr__checked_output(c, 0), &rank, dims));
  return hr__want_spread(c, "the values", hr__checked_input(c, 0), rank, dims);
}

static hr_status check_index_add(const checked *c) {
  const hr_view *index = hr__checked_input(c, 0), *source = hr__checked_input(c, 1), *y = hr__checked_output(c, 0);
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the index", index, 0, 1));
  HR_RETURN_IF_ERROR(hr__want_dim(c, c->ints[0], y));
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < y->rank; ++d) {
    dims[d] = d == c->ints[0] ? hr__view_count(index) : y->dims[d];
  }
  return y->rank == 0 || source->rank == 0 ? hr__want_one(c, "the source", source)
                                           : hr__want_dims(c, "the source", source, y->rank, dims);
}

static hr_status check_embedding_backward(const checked *c) {
  const hr_view *dy = hr__checked_input(c, 0), *index = hr__checked_input(c, 1), *dweight = hr__checked_output(c, 0);
  HR_RETURN_IF_ERROR(hr__want_integer(c, "the index", index));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "dweight", dweight, 2, 2));
  HR_RETURN_IF_ERROR(hr__want_rank(c, "the index", index, 0, HR_RANK_MAX - 1));
  int64_t dims[HR_RANK_MAX];
  if (index->rank > 0) {
    memcpy(dims, index->dims, (size_t)index->rank * sizeof *dims);
  }
  dims[index->rank] = dweight->dims[1];
  return hr__want_dims(c, "dy", dy, index->rank + 1, dims);
}

static hr_status check_segments(const checked *c) {
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
  return hr__want_dims(c, "the output", hr__checked_output(c, 0), 2, (int64_t[]){begin->dims[0], x->dims[1]});
}

static hr_status check_tri(const checked *c) {
  HR_RETURN_IF_ERROR(hr__want_rank(c, "x", hr__checked_input(c, 0), 2, HR_RANK_MAX));
  return hr__want_like(c, "the output", hr__checked_output(c, 0), hr__checked_input(c, 0));
}

static hr_status check_vector(const checked *c) {
  return hr__want_rank(c, "the output", hr__checked_output(c, 0), 1, 1);
}

static hr_status check_matrix(const checked *c) {
  return hr__want_rank(c, "the output", hr__checked_output(c, 0), 2, 2);
}

static hr_status check_check_index(const checked *c) {
  const hr_view *x = hr__checked_input(c, 0);
  return x->buffer == NULL || x->dtype != HR_DTYPE_I64 ? FAIL(c, "expected an i64 tensor") : hr__want_one(c, "x", x);
}

/* ---- the table ---- */

const hr__shape_row hr__index_shapes[HR_OP_COUNT] = {
    [HR_OP_CAT] = {HR__SHAPE_ANY, 0, 1, 1, 1, 0, check_cat},
    [HR_OP_PAD] = {1, 1, 1, 1, 0, 1, check_pad},
    [HR_OP_PAD_BORDER] = {1, 1, 1, 1, 1, 0, check_pad_border},
    [HR_OP_PAD_BORDER_BACKWARD] = {1, 1, 1, 1, 1, 0, check_pad_border_backward},
    [HR_OP_INDEX_SELECT] = {2, 3, 1, 1, 1, 0, check_index_select},
    [HR_OP_GATHER] = {2, 3, 1, 1, 1, 0, check_gather},
    [HR_OP_SCATTER] = {2, 3, 1, 1, 2, 0, check_scatter},
    [HR_OP_INDEX] = {HR_RANK_MAX + 1, 3, 1, 1, 2, 0, check_index},
    [HR_OP_INDEX_PUT] = {HR_RANK_MAX + 1, 3, 1, 1, 3, 0, check_index_put},
    [HR_OP_INDEX_ADD] = {2, 3, 1, 1, 1, 1, check_index_add},
    [HR_OP_EMBEDDING_BACKWARD] = {2, 3, 1, 1, 2, 0, check_embedding_backward},
    [HR_OP_SEGMENTS] = {5, 7, 1, 1, 2, 1, check_segments},
    [HR_OP_TRI] = {1, 1, 1, 1, 1, 1, check_tri},
    [HR_OP_ARANGE] = {0, 0, 1, 1, 0, 2, check_vector},
    [HR_OP_EYE] = {0, 0, 1, 1, 0, 0, check_matrix},
    [HR_OP_CHECK_INDEX] = {1, 1, 0, 0, 3, 0, check_check_index},
};
