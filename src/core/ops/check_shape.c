/* Checks of contractions, composites and special nodes: which operands must be there, how many attributes, and how the
 * shapes of operands relate, as the rows' documentation says. What the checks accept, the lowerings can lower. The
 * families' checks are in files of their own, each with a table.
 */
#include "core/ops/check_shape.h"

#include <string.h>

typedef hr__checked checked;

/* ---- relations ---- */

hr_status hr__want_dims(const checked *c, const char *what, const hr_view *view, int rank, const int64_t *dims) {
  if (view == NULL ||
      (view->rank == rank && (rank == 0 || memcmp(view->dims, dims, (size_t)rank * sizeof *dims) == 0))) {
    return HR_OK;
  }
  char found[HR__DIMS_TEXT], wanted[HR__DIMS_TEXT];
  hr_view expected = {.rank = rank, .dims = dims};
  return FAIL(c, "%s has dims %s, expected %s", what, hr__view_dims(view, found), hr__view_dims(&expected, wanted));
}

hr_status hr__want_like(const checked *c, const char *what, const hr_view *view, const hr_view *other) {
  return hr__want_dims(c, what, view, other->rank, other->dims);
}

hr_status hr__want_vector(const checked *c, const char *what, const hr_view *view, int64_t count) {
  return hr__want_dims(c, what, view, 1, &count);
}

hr_status hr__want_one(const checked *c, const char *what, const hr_view *view) {
  char found[HR__DIMS_TEXT];
  return view == NULL || hr__view_count(view) == 1
             ? HR_OK
             : FAIL(c, "%s has dims %s, expected one element", what, hr__view_dims(view, found));
}

hr_status hr__refuse_rank(const checked *c, const char *what, const hr_view *view, int min, int max) {
  char found[HR__DIMS_TEXT];
  return min == max ? FAIL(c, "%s has dims %s, expected %d of them", what, hr__view_dims(view, found), min)
                    : FAIL(c, "%s has dims %s, expected %d to %d of them", what, hr__view_dims(view, found), min, max);
}

hr_status hr__want_spread(const checked *c, const char *what, const hr_view *view, int rank, const int64_t *dims) {
  if (view == NULL) {
    return HR_OK;
  }
  bool is_fit = view->rank <= rank;
  for (int d = 0; is_fit && d < view->rank; ++d) {
    is_fit = view->dims[d] == 1 || view->dims[d] == dims[rank - view->rank + d];
  }
  if (is_fit) {
    return HR_OK;
  }
  char found[HR__DIMS_TEXT], wanted[HR__DIMS_TEXT];
  hr_view expected = {.rank = rank, .dims = dims};
  return FAIL(c, "%s of dims %s can't be broadcast to %s", what, hr__view_dims(view, found),
              hr__view_dims(&expected, wanted));
}

hr_status hr__want_integer(const checked *c, const char *what, const hr_view *view) {
  hr_dtype dtype = view == NULL                                   ? HR_DTYPE_I64
                   : view->scalar != NULL && view->buffer == NULL ? view->scalar->dtype
                                                                  : view->dtype;
  return hr_dtype_is_integer(dtype) ? HR_OK : FAIL(c, "%s is %s, expected integers", what, hr_dtype_name(dtype));
}

hr_status hr__want_small(const checked *c, int count, const int64_t *ints) {
  for (int i = 0; i < count; ++i) {
    if (ints[i] < INT32_MIN || ints[i] > INT32_MAX) {
      return FAIL(c, "int %d is %lld, expected 32 bits", i, (long long)ints[i]);
    }
  }
  return HR_OK;
}

hr_status hr__want_dim(const checked *c, int64_t dim, const hr_view *view) {
  int rank = view->rank > 0 ? view->rank : 1;
  return dim >= 0 && dim < rank ? HR_OK : FAIL(c, "dim %lld of %d", (long long)dim, view->rank);
}

/* ---- the tables ---- */

static const hr__shape_row *find_row(hr_op op) {
  static const hr__shape_row *const tables[] = {hr__layer_shapes, hr__window_shapes, hr__index_shapes};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
    if (tables[i][op].check != NULL) {
      return &tables[i][op];
    }
  }
  return NULL;
}

static hr_status check_present(const checked *c, const char *side, int count, const hr_view *views, int max,
                               uint32_t needed) {
  if (max != HR__SHAPE_ANY && count > max) {
    return FAIL(c, "%d %ss, expected at most %d", count, side, max);
  }
  for (int i = 0; needed >> i != 0; ++i) {
    if ((needed >> i & 1u) != 0 && (i >= count || !hr__view_is_present(&views[i]))) {
      return FAIL(c, "%s %d is absent", side, i);
    }
  }
  return HR_OK;
}

hr_status hr__check_shapes(const hr__checked *c) {
  const hr__shape_row *row = find_row(c->op);
  if (row == NULL) {
    return hr_status_make(HR_STATUS_INTERNAL, "%s has no shape rule", c->name);
  }
  HR_RETURN_IF_ERROR(check_present(c, "input", c->input_count, c->inputs, row->inputs_max, row->inputs_needed));
  HR_RETURN_IF_ERROR(check_present(c, "output", c->output_count, c->outputs, row->outputs_max, row->outputs_needed));
  if (c->int_count < row->ints_min || c->scalar_count < row->scalars_min) {
    return FAIL(c, "%d ints and %d scalars, expected %d and %d", c->int_count, c->scalar_count, row->ints_min,
                row->scalars_min);
  }
  return row->check(c);
}
