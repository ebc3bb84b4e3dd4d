/* Views of operands for lowerings: the same elements with other dims. They emit no nodes, except the copy that a merge
 * or a reshape needs if strides do not allow a view.
 *
 * A view has several maps over the same dims: the address, and one for each bound. `remap` applies a change of dims to
 * all of them. A scalar operand has a map of zeros and is treated alike.
 */
#include <string.h>

#include "core/ir/build.h"
#include "core/ir/build_internal.h"

/* Computes new strides of one map from its old ones; may add to the map's offset. False if no strides fit. */
typedef bool (*remap_fn)(const void *change, const hr_operand *x, const int64_t *strides, int64_t *out_strides,
                         int64_t *offset);

/* x with the given dims and every map changed by `fn`; *out_ok is true if all maps allow it. */
static hr_operand remap(hr_builder *b, hr_operand x, int rank, const int64_t *dims, remap_fn fn, const void *change,
                        bool *out_ok) {
  *out_ok = true;
  if (b->status != HR_OK) {
    return HR__NO_OPERAND;
  }
  if (x.kind == HR_OPERAND_NONE) {
    return hr__build_fail(b, "a view of an absent operand");
  }
  if (rank < 0 || rank > HR_RANK_MAX) {
    return hr__build_fail(b, "a view of %d dims: at most %d", rank, HR_RANK_MAX);
  }
  hr_arena *arena = &b->program->arena;
  int64_t *new_dims = hr_arena_dup_words(arena, dims, rank);
  int64_t *strides = HR_ARENA_ARRAY(arena, int64_t, (size_t)rank);
  hr_bound *bounds = x.bound_count > 0 ? hr_arena_dup(arena, x.bounds, (size_t)x.bound_count * sizeof *bounds) : NULL;
  if (new_dims == NULL || strides == NULL || (x.bound_count > 0 && bounds == NULL)) {
    return hr__build_no_memory(b);
  }
  hr_operand y = x;
  if (!fn(change, &x, x.strides, strides, &y.offset)) {
    *out_ok = false;
    return x;
  }
  for (int i = 0; i < x.bound_count; ++i) {
    int64_t *bound_strides = HR_ARENA_ARRAY(arena, int64_t, (size_t)rank);
    if (bound_strides == NULL) {
      return hr__build_no_memory(b);
    }
    if (!fn(change, &x, x.bounds[i].strides, bound_strides, &bounds[i].offset)) {
      *out_ok = false;
      return x;
    }
    bounds[i].strides = bound_strides;
  }
  y.rank = rank, y.dims = new_dims, y.strides = strides, y.bounds = bounds;
  return y;
}

/* ---- broadcast, permute, insert, remove, slice, split ---- */

typedef struct broadcast_change {
  int rank;
  const int64_t *dims;
} broadcast_change;

static bool broadcast(const void *change, const hr_operand *x, const int64_t *strides, int64_t *out, int64_t *offset) {
  (void)offset;
  const broadcast_change *to = change;
  int added = to->rank - x->rank;
  for (int d = 0; d < x->rank; ++d) {
    out[added + d] = x->dims[d] == to->dims[added + d] ? strides[d] : 0;
  }
  return true; /* the rest is zeroed */
}

hr_operand hr_view_broadcast(hr_builder *b, hr_operand x, int rank, const int64_t *dims) {
  if (b->status == HR_OK) {
    bool is_fit = x.rank <= rank, is_same = x.rank == rank && hr_is_present(x);
    for (int d = 0; is_same && d < rank; ++d) {
      is_same = x.dims[d] == dims[d];
    }
    if (is_same) {
      return x;
    }
    for (int d = 0; is_fit && d < x.rank; ++d) {
      is_fit = x.dims[d] == dims[rank - x.rank + d] || x.dims[d] == 1;
    }
    if (!is_fit) {
      return hr__build_fail_dims(b, "can't broadcast", x.rank, x.dims, rank, dims);
    }
  }
  bool ok;
  return remap(b, x, rank, dims, broadcast, &(broadcast_change){rank, dims}, &ok);
}

static bool permute(const void *change, const hr_operand *x, const int64_t *strides, int64_t *out, int64_t *offset) {
  (void)offset;
  const int *order = change;
  for (int d = 0; d < x->rank; ++d) {
    out[d] = strides[order[d]];
  }
  return true;
}

hr_operand hr_view_permute(hr_builder *b, hr_operand x, const int *order) {
  int64_t dims[HR_RANK_MAX] = {0};
  uint32_t seen = 0;
  for (int d = 0; b->status == HR_OK && d < x.rank; ++d) {
    if (order[d] < 0 || order[d] >= x.rank || (seen >> order[d] & 1u) != 0) {
      return hr__build_fail(b, "permute: %d at %d of %d dims", order[d], d, x.rank);
    }
    seen |= 1u << order[d];
    dims[d] = x.dims[order[d]];
  }
  bool ok;
  return remap(b, x, x.rank, dims, permute, order, &ok);
}

static bool insert(const void *change, const hr_operand *x, const int64_t *strides, int64_t *out, int64_t *offset) {
  (void)offset;
  int at = *(const int *)change;
  for (int d = 0; d < x->rank; ++d) {
    out[d < at ? d : d + 1] = strides[d];
  }
  return true;
}

hr_operand hr_view_insert(hr_builder *b, hr_operand x, int at, int64_t dim) {
  int64_t dims[HR_RANK_MAX] = {0};
  if (b->status == HR_OK && (at < 0 || at > x.rank || x.rank >= HR_RANK_MAX || dim < 0)) {
    return hr__build_fail(b, "insert: dim %d of size %lld into %d dims", at, (long long)dim, x.rank);
  }
  for (int d = 0; b->status == HR_OK && d <= x.rank; ++d) {
    dims[d] = d == at ? dim : x.dims[d < at ? d : d - 1];
  }
  bool ok;
  return remap(b, x, x.rank + 1, dims, insert, &at, &ok);
}

static bool drop(const void *change, const hr_operand *x, const int64_t *strides, int64_t *out, int64_t *offset) {
  (void)offset;
  int at = *(const int *)change;
  for (int d = 0; d < x->rank - 1; ++d) {
    out[d] = strides[d < at ? d : d + 1];
  }
  return true;
}

hr_operand hr_view_remove(hr_builder *b, hr_operand x, int at) {
  int64_t dims[HR_RANK_MAX] = {0};
  if (b->status == HR_OK && (at < 0 || at >= x.rank)) {
    return hr__build_fail(b, "remove: dim %d of %d dims", at, x.rank);
  }
  for (int d = 0; b->status == HR_OK && d < x.rank - 1; ++d) {
    dims[d] = x.dims[d < at ? d : d + 1];
  }
  bool ok;
  return remap(b, x, x.rank - 1, dims, drop, &at, &ok);
}

typedef struct slice_change {
  int dim;
  int64_t start, step;
} slice_change;

static bool slice(const void *change, const hr_operand *x, const int64_t *strides, int64_t *out, int64_t *offset) {
  const slice_change *s = change;
  memcpy(out, strides, (size_t)x->rank * sizeof *out);
  *offset += s->start * strides[s->dim];
  out[s->dim] *= s->step;
  return true;
}

hr_operand hr_view_slice(hr_builder *b, hr_operand x, int dim, int64_t start, int64_t count, int64_t step) {
  int64_t dims[HR_RANK_MAX] = {0};
  if (b->status == HR_OK) {
    if (dim < 0 || dim >= x.rank || count < 0) {
      return hr__build_fail(b, "slice: dim %d of %d dims, %lld elements", dim, x.rank, (long long)count);
    }
    memcpy(dims, x.dims, (size_t)x.rank * sizeof *dims);
    dims[dim] = count;
  }
  bool ok;
  return remap(b, x, x.rank, dims, slice, &(slice_change){dim, start, step}, &ok);
}

typedef struct split_change {
  int dim;
  int64_t inner;
} split_change;

static bool split(const void *change, const hr_operand *x, const int64_t *strides, int64_t *out, int64_t *offset) {
  (void)offset;
  const split_change *s = change;
  for (int d = 0; d < x->rank; ++d) {
    out[d <= s->dim ? d : d + 1] = strides[d];
  }
  out[s->dim + 1] = strides[s->dim];
  out[s->dim] = strides[s->dim] * s->inner;
  return true;
}

hr_operand hr_view_split(hr_builder *b, hr_operand x, int dim, int64_t inner) {
  int64_t dims[HR_RANK_MAX] = {0};
  if (b->status == HR_OK) {
    if (dim < 0 || dim >= x.rank || x.rank >= HR_RANK_MAX) {
      return hr__build_fail(b, "split: dim %d of %d dims", dim, x.rank);
    }
    if (inner < 1 || x.dims[dim] % inner != 0) {
      return hr__build_fail(b, "split: %lld is no multiple of %lld", (long long)x.dims[dim], (long long)inner);
    }
    for (int d = 0; d <= x.rank; ++d) {
      dims[d] = d < dim ? x.dims[d] : d == dim ? x.dims[d] / inner : d == dim + 1 ? inner : x.dims[d - 1];
    }
  }
  bool ok;
  return remap(b, x, x.rank + 1, dims, split, &(split_change){dim, inner}, &ok);
}

/* ---- reshape ---- */

typedef struct reshape_change {
  int rank;
  const int64_t *dims;
} reshape_change;

static int64_t count_of(int rank, const int64_t *dims) {
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    count *= dims[d];
  }
  return count;
}

/* Walks both lists of dims from the front in groups of equal products; within a group the old dims must be mergeable.
 */
static bool reshape(const void *change, const hr_operand *x, const int64_t *strides, int64_t *out, int64_t *offset) {
  (void)offset;
  const reshape_change *to = change;
  if (count_of(to->rank, to->dims) == 0) {
    return true;
  }
  int64_t dims[HR_RANK_MAX], steps[HR_RANK_MAX]; /* the old dims other than 1 */
  int rank = 0;
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] != 1) {
      dims[rank] = x->dims[d], steps[rank++] = strides[d];
    }
  }
  int from = 0, at = 0;
  while (from < rank) {
    int from_end = from + 1, at_end = at;
    int64_t from_count = dims[from], at_count = 1;
    while (from_count != at_count || at_end == at) {
      if (at_count < from_count) {
        at_count *= to->dims[at_end++];
      } else {
        from_count *= dims[from_end++];
      }
    }
    for (int d = from; d + 1 < from_end; ++d) {
      if (steps[d] != steps[d + 1] * dims[d + 1]) {
        return false;
      }
    }
    int64_t step = steps[from_end - 1];
    for (int d = at_end - 1; d >= at; --d) {
      out[d] = step;
      step *= to->dims[d];
    }
    from = from_end, at = at_end;
  }
  for (; at < to->rank; ++at) {
    out[at] = 0; /* dims of 1 are left */
  }
  return true;
}

hr_operand hr_view_reshape(hr_builder *b, hr_operand x, int rank, const int64_t *dims) {
  if (b->status != HR_OK) {
    return HR__NO_OPERAND;
  }
  if (rank >= 0 && rank <= HR_RANK_MAX && count_of(rank, dims) != count_of(x.rank, x.dims)) {
    return hr__build_fail_dims(b, "can't reshape", x.rank, x.dims, rank, dims);
  }
  reshape_change change = {rank, dims};
  bool ok;
  hr_operand y = remap(b, x, rank, dims, reshape, &change, &ok);
  if (ok || b->status != HR_OK) {
    return y;
  }
  if (x.term_count > 0) {
    return hr__build_fail(b, "a reshape of an operand with index terms needs a copy");
  }
  hr_operand copy = hr_build_temp_like(b, x, x.dtype);
  hr_emit1(b, HR_OP_COPY, copy, x);
  return remap(b, copy, rank, dims, reshape, &change, &ok);
}

hr_operand hr_view_merge(hr_builder *b, hr_operand x, int first, int count) {
  int64_t dims[HR_RANK_MAX + 1] = {0};
  if (b->status != HR_OK) {
    return HR__NO_OPERAND;
  }
  if (first < 0 || count < 0 || first + count > x.rank) {
    return hr__build_fail(b, "merge: dims %d to %d of %d", first, first + count, x.rank);
  }
  int rank = x.rank - count + 1;
  for (int d = 0; d < rank; ++d) {
    dims[d] = d < first ? x.dims[d] : d == first ? count_of(count, x.dims + first) : x.dims[d + count - 1];
  }
  return hr_view_reshape(b, x, rank, dims);
}

hr_operand hr_view_strided(hr_builder *b, hr_operand x, int rank, const int64_t *dims, const int64_t *strides,
                           int64_t offset) {
  if (b->status != HR_OK) {
    return HR__NO_OPERAND;
  }
  hr_arena *arena = &b->program->arena;
  if (rank < 0 || rank > HR_RANK_MAX || x.kind == HR_OPERAND_NONE) {
    return hr__build_fail(b, "a strided view of %d dims", rank);
  }
  x.rank = rank;
  x.offset = offset;
  x.dims = hr_arena_dup_words(arena, dims, rank);
  x.strides = hr_arena_dup_words(arena, strides, rank);
  x.term_count = x.bound_count = 0;
  x.terms = NULL, x.bounds = NULL;
  return x.dims != NULL && x.strides != NULL ? x : hr__build_no_memory(b);
}

/* ---- index maps ---- */

hr_operand hr_view_term(hr_builder *b, hr_operand x, int input, int64_t stride, int64_t extent) {
  if (b->status != HR_OK) {
    return HR__NO_OPERAND;
  }
  if (x.kind != HR_OPERAND_VALUE) {
    return hr__build_fail(b, "an index term on an operand without elements");
  }
  hr_index_term *terms = HR_ARENA_ARRAY(&b->program->arena, hr_index_term, (size_t)x.term_count + 1);
  if (terms == NULL) {
    return hr__build_no_memory(b);
  }
  if (x.term_count > 0) {
    memcpy(terms, x.terms, (size_t)x.term_count * sizeof *terms);
  }
  terms[x.term_count] = (hr_index_term){.input = input, .stride = stride, .extent = extent};
  x.terms = terms;
  ++x.term_count;
  return x;
}

hr_operand hr_view_bound(hr_builder *b, hr_operand x, int64_t offset, const int64_t *strides, int64_t extent) {
  if (b->status != HR_OK) {
    return HR__NO_OPERAND;
  }
  if (x.kind == HR_OPERAND_NONE) {
    return hr__build_fail(b, "a bound on an absent operand");
  }
  hr_arena *arena = &b->program->arena;
  hr_bound *bounds = HR_ARENA_ARRAY(arena, hr_bound, (size_t)x.bound_count + 1);
  int64_t *own = hr_arena_dup_words(arena, strides, x.rank);
  if (bounds == NULL || own == NULL) {
    return hr__build_no_memory(b);
  }
  if (x.bound_count > 0) {
    memcpy(bounds, x.bounds, (size_t)x.bound_count * sizeof *bounds);
  }
  bounds[x.bound_count] = (hr_bound){.offset = offset, .extent = extent, .strides = own};
  x.bounds = bounds;
  ++x.bound_count;
  return x;
}

hr_operand hr_view_fill(hr_builder *b, hr_operand x, hr_operand scalar) {
  if (b->status != HR_OK) {
    return HR__NO_OPERAND;
  }
  if (scalar.kind != HR_OPERAND_SCALAR) {
    return hr__build_fail(b, "a fill that is no scalar");
  }
  x.fill = scalar.index;
  return x;
}

bool hr_operand_is_contiguous(hr_operand x) {
  int64_t step = 1;
  if (x.kind != HR_OPERAND_VALUE || x.term_count > 0 || x.bound_count > 0) {
    return false;
  }
  for (int d = x.rank - 1; d >= 0; --d) {
    if (x.dims[d] == 0) {
      return true;
    }
    if (x.dims[d] != 1 && x.strides[d] != step) {
      return false;
    }
    step *= x.dims[d];
  }
  return true;
}
