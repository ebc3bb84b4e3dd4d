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

/* The dims of x in another order: dim i of the result is dim order[i]. */
static const hr_tensor *permuted(hr__formula *f, const hr_tensor *x, const int *order) {
  hr_tensor *view = hr__view(f, x);
  for (int d = 0; view != NULL && d < x->rank; ++d) {
    view->dims[d] = x->dims[order[d]], view->strides[d] = x->strides[order[d]];
  }
  return view != NULL ? view : x;
}

/* The places of dims with blocks inside of them: of each dim of x the blocks, and of each block its elements. If
 * `is_split`, those are behind their own dim, else beside the depth. */
static void find_places(const blocks *b, int rank, bool is_split, int *outer, int *inner) {
  for (int d = 0, to = 0; d < rank; ++d) {
    bool is_depth = !is_split && d == b->depth;
    if (!is_depth || b->is_depth_first) {
      outer[d] = to++;
    }
    for (int i = 0; is_depth && i < b->count; ++i) {
      inner[i] = to++;
    }
    if (is_depth && !b->is_depth_first) {
      outer[d] = to++;
    }
    if (is_split && b->at[d] >= 0) {
      inner[b->at[d]] = to++;
    }
  }
}

/* x's elements with those of blocks moved from their dims to the depth (if `is_split`), or back. */
static hr_status rearranged(const hr__function_call *c, const blocks *b, bool is_split, const int64_t *joined) {
  const hr_tensor *x = c->inputs[0];
  int outer[2][HR_RANK_MAX], inner[2][HR_RANK_MAX], order[HR_RANK_MAX];
  int64_t dims[HR_RANK_MAX];
  find_places(b, x->rank, is_split, outer[0], inner[0]);
  find_places(b, x->rank, !is_split, outer[1], inner[1]);
  for (int d = 0; d < x->rank; ++d) {
    order[outer[1][d]] = outer[0][d];
    dims[outer[0][d]] =
        is_split ? x->dims[d] / (b->at[d] >= 0 ? b->sizes[b->at[d]] : 1) : x->dims[d] / (d == b->depth ? b->all : 1);
  }
  for (int i = 0; i < b->count; ++i) {
    order[inner[1][i]] = inner[0][i], dims[inner[0][i]] = b->sizes[i];
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *y = permuted(&f, hr__as_dims(&f, x, x->rank + b->count, dims), order);
  return hr__formula_end(&f, hr__as_dims(&f, y, x->rank, joined));
}

/* The dims of the result: blocked ones by their blocks, and the depth times all of them, or the inverse. */
static hr_status joined_dims(const hr__function_call *c, const blocks *b, bool is_split, int64_t *dims) {
  const hr_tensor *x = c->inputs[0];
  for (int d = 0; d < x->rank; ++d) {
    int64_t block = b->at[d] >= 0 ? b->sizes[b->at[d]] : 1, depth = d == b->depth ? b->all : 1;
    int64_t divisor = is_split ? block : depth, factor = is_split ? depth : block;
    if (x->dims[d] % divisor != 0) {
      return HR__CALL_FAIL(c, "dim %d has size %lld, expected a multiple of %lld", d, (long long)x->dims[d],
                           (long long)divisor);
    }
    if (__builtin_mul_overflow(x->dims[d] / divisor, factor, &dims[d])) {
      return HR__CALL_FAIL(c, "dim %d is too large", d);
    }
  }
  return HR_OK;
}

static hr_status emit_blocks(const hr__function_call *c, bool is_split) {
  blocks b;
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(read_blocks(c, &b));
  HR_RETURN_IF_ERROR(joined_dims(c, &b, is_split, dims));
  return rearranged(c, &b, is_split, dims);
}

hr_status hr__emit_space_to_depth(const hr__function_call *c) {
  return emit_blocks(c, true);
}

hr_status hr__emit_depth_to_space(const hr__function_call *c) {
  return emit_blocks(c, false);
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
