/* blocks.c: blocks of a plane as a part of another dim, and windows of a plane as columns.
 *
 * A dim of n * b elements is one of n blocks of b elements. Space to depth: the dims inside of blocks are moved to the
 * depth and joined with it: in front of it (order dcr) or behind it (order crd); depth to space is the inverse. With
 * the batch as the depth they are space to batch and batch to space.
 */
#include "functional/formula.h"

typedef struct blocks {
  int count, depth;           /* of blocked dims; the dim that has the elements of blocks */
  int at[HR_RANK_MAX];        /* for each dim of x the number of its block, or -1 */
  int axes[HR_RANK_MAX];      /* the blocked dims */
  int64_t sizes[HR_RANK_MAX]; /* of the blocks */
  int64_t all;                /* their product */
  bool is_depth_first;        /* order crd */
} blocks;

enum { BLOCKS, AXES, DEPTH, ORDER };
static const char *const orders[2] = {"dcr", "crd"};

static hr_status read_axes(const hr__function_call *c, blocks *b) {
  const hr_attribute *given = hr__given_attribute(c, AXES);
  const hr_tensor *x = c->inputs[0];
  if (given != NULL && given->count != b->count) {
    return HR__CALL_FAIL(c, "%d axes for %d blocks", given->count, b->count);
  }
  for (int d = 0; d < x->rank; ++d) {
    b->at[d] = -1;
  }
  for (int i = 0; i < b->count; ++i) {
    int axis;
    HR_RETURN_IF_ERROR(hr__check_axis(c, given != NULL ? given->value.ints[i] : i - b->count, x->rank, &axis));
    if (b->at[axis] >= 0 || axis == b->depth) {
      return HR__CALL_FAIL(c, "axis %d is given twice, or is the depth", axis);
    }
    b->at[axis] = i, b->axes[i] = axis;
  }
  return HR_OK;
}

static hr_status read_blocks(const hr__function_call *c, blocks *b) {
  const hr_attribute *sizes = &c->attributes[BLOCKS];
  const hr_tensor *x = c->inputs[0];
  int order;
  b->count = sizes->count, b->all = 1;
  if (b->count < 1 || b->count >= x->rank || x->rank + b->count > HR_RANK_MAX) {
    return HR__CALL_FAIL(c, "%d blocks of %d dims, expected fewer than dims, and %d dims in all", b->count, x->rank,
                         HR_RANK_MAX);
  }
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, DEPTH), x->rank, &b->depth));
  HR_RETURN_IF_ERROR(hr__word_attribute(c, ORDER, 2, orders, &order));
  HR_RETURN_IF_ERROR(read_axes(c, b));
  b->is_depth_first = order == 1;
  for (int i = 0; i < b->count; ++i) {
    b->sizes[i] = sizes->value.ints[i];
    if (b->sizes[i] < 1 || b->sizes[i] > INT32_MAX || __builtin_mul_overflow(b->all, b->sizes[i], &b->all)) {
      return HR__CALL_FAIL(c, "block %d has size %lld, expected at least 1", i, (long long)sizes->value.ints[i]);
    }
  }
  return HR_OK;
}

/* Each blocked dim as two: the blocks, and the elements inside of one. */
static hr_status split_dims(const hr__function_call *c, const blocks *b, int64_t *dims) {
  const hr_tensor *x = c->inputs[0];
  for (int d = 0, to = 0; d < x->rank; ++d) {
    int64_t size = b->at[d] >= 0 ? b->sizes[b->at[d]] : 1;
    if (x->dims[d] % size != 0) {
      return HR__CALL_FAIL(c, "dim %d has size %lld, expected a multiple of %lld", d, (long long)x->dims[d],
                           (long long)size);
    }
    dims[to++] = x->dims[d] / size;
    if (b->at[d] >= 0) {
      dims[to++] = size;
    }
  }
  return HR_OK;
}

/* The dims of x split and in another order: dim i of the result is dim order[i]. */
static const hr_tensor *permuted(hr__formula *f, const hr_tensor *x, const int *order) {
  hr_tensor *view = hr__view(f, x);
  for (int d = 0; view != NULL && d < x->rank; ++d) {
    view->dims[d] = x->dims[order[d]], view->strides[d] = x->strides[order[d]];
  }
  return view != NULL ? view : x;
}

hr_status hr__emit_space_to_depth(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  blocks b;
  int64_t dims[HR_RANK_MAX], joined[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(read_blocks(c, &b));
  HR_RETURN_IF_ERROR(split_dims(c, &b, dims));
  int outer[HR_RANK_MAX], inner[HR_RANK_MAX], order[HR_RANK_MAX], to = 0;
  for (int d = 0, from = 0; d < x->rank; ++d) {
    outer[d] = from++;
    joined[d] = x->dims[d] / (b.at[d] >= 0 ? b.sizes[b.at[d]] : 1);
    if (b.at[d] >= 0) {
      inner[b.at[d]] = from++;
    }
  }
  for (int d = 0; d < x->rank; ++d) {
    bool is_depth = d == b.depth;
    if (!is_depth || b.is_depth_first) {
      order[to++] = outer[d];
    }
    for (int i = 0; is_depth && i < b.count; ++i) {
      order[to++] = inner[i];
    }
    if (is_depth && !b.is_depth_first) {
      order[to++] = outer[d];
    }
  }
  if (__builtin_mul_overflow(joined[b.depth], b.all, &joined[b.depth])) {
    return HR__CALL_FAIL(c, "the depth is too large");
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *y = permuted(&f, hr__as_dims(&f, x, x->rank + b.count, dims), order);
  return hr__formula_end(&f, hr__as_dims(&f, y, x->rank, joined));
}

hr_status hr__emit_depth_to_space(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  blocks b;
  HR_RETURN_IF_ERROR(read_blocks(c, &b));
  if (x->dims[b.depth] % b.all != 0) {
    return HR__CALL_FAIL(c, "dim %d has size %lld, expected a multiple of %lld", b.depth, (long long)x->dims[b.depth],
                         (long long)b.all);
  }
  int64_t dims[HR_RANK_MAX], joined[HR_RANK_MAX];
  int order[HR_RANK_MAX], outer[HR_RANK_MAX], inner[HR_RANK_MAX], to = 0;
  for (int d = 0, from = 0; d < x->rank; ++d) {
    bool is_depth = d == b.depth;
    joined[d] = is_depth ? x->dims[d] / b.all : x->dims[d];
    if (!is_depth || b.is_depth_first) {
      dims[from] = joined[d], outer[d] = from++;
    }
    for (int i = 0; is_depth && i < b.count; ++i) {
      dims[from] = b.sizes[i], inner[i] = from++;
    }
    if (is_depth && !b.is_depth_first) {
      dims[from] = joined[d], outer[d] = from++;
    }
  }
  for (int d = 0; d < x->rank; ++d) {
    order[to++] = outer[d];
    if (b.at[d] >= 0) {
      order[to++] = inner[b.at[d]];
      if (__builtin_mul_overflow(joined[d], b.sizes[b.at[d]], &joined[d])) {
        return HR__CALL_FAIL(c, "dim %d is too large", d);
      }
    }
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *y = permuted(&f, hr__as_dims(&f, x, x->rank + b.count, dims), order);
  return hr__formula_end(&f, hr__as_dims(&f, y, x->rank, joined));
}

/* ---- diagonals of the last two dims ---- */

hr_status hr__emit_band_part(const hr__function_call *c) {
  const hr_functional parts[2] = {HR_FUNCTIONAL_TRIU, HR_FUNCTIONAL_TRIL};
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *y = c->inputs[0];
  if (y->rank < 2) {
    hr__formula_fail(&f, HR__CALL_FAIL(c, "%d dims, expected at least 2", y->rank));
  }
  for (int i = 0; i < 2 && !hr__formula_failed(&f); ++i) {
    int64_t count = hr__int_attribute(c, i);
    const hr_attribute k = {.kind = HR_ATTRIBUTE_INT, .value = {.integer = i == 0 ? -count : count}};
    y = count >= 0 ? hr__function(&f, parts[i], 1, &y, 1, &k) : y;
  }
  return hr__formula_end(&f, y);
}
