/* check_shape.h: what the checks of shapes share (check_shape.c): a table for each family of rows, and how operands
 * relate.
 *
 * Relations take absent views for granted. Their messages begin with the row's name and say what was found and what
 * expected.
 */
#ifndef HEADRACE_CORE_CHECK_SHAPE_H_
#define HEADRACE_CORE_CHECK_SHAPE_H_

#include <stdio.h>

#include "core/ops/check_internal.h"

#define FAIL(c, format, ...) \
  hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: " format, (c)->name __VA_OPT__(, ) __VA_ARGS__)

enum { HR__SHAPE_ANY = -1 };

/* Inputs and outputs at most (HR__SHAPE_ANY: no limit), bits of those that must be there, ints and scalars at least. */
typedef struct hr__shape_row {
  int inputs_max;
  uint32_t inputs_needed;
  int outputs_max;
  uint32_t outputs_needed;
  int ints_min, scalars_min;
  hr_status (*check)(const hr__checked *c); /* NULL: a row of another table */
} hr__shape_row;

extern const hr__shape_row hr__layer_shapes[HR_OP_COUNT], hr__window_shapes[HR_OP_COUNT], hr__index_shapes[HR_OP_COUNT];

/* NULL: absent. */
static inline const hr_view *hr__checked_input(const hr__checked *c, int i) {
  return i < c->input_count && hr__view_is_present(&c->inputs[i]) ? &c->inputs[i] : NULL;
}
static inline const hr_view *hr__checked_output(const hr__checked *c, int i) {
  return i < c->output_count && hr__view_is_present(&c->outputs[i]) ? &c->outputs[i] : NULL;
}

/* Exactly these dims; those of another view; a vector; one element. */
hr_status hr__want_dims(const hr__checked *c, const char *what, const hr_view *view, int rank, const int64_t *dims);
hr_status hr__want_like(const hr__checked *c, const char *what, const hr_view *view, const hr_view *other);
hr_status hr__want_vector(const hr__checked *c, const char *what, const hr_view *view, int64_t count);
hr_status hr__want_one(const hr__checked *c, const char *what, const hr_view *view);
/* So many dims. */
hr_status hr__refuse_rank(const hr__checked *c, const char *what, const hr_view *view, int min, int max);
static inline hr_status hr__want_rank(const hr__checked *c, const char *what, const hr_view *view, int min, int max) {
  bool is_fit = view == NULL || (view->rank >= min && view->rank <= max);
  return __builtin_expect(is_fit, 1) ? HR_OK : hr__refuse_rank(c, what, view, min, max);
}
/* Dims that can be broadcast to these. */
hr_status hr__want_spread(const hr__checked *c, const char *what, const hr_view *view, int rank, const int64_t *dims);
hr_status hr__want_integer(const hr__checked *c, const char *what, const hr_view *view);
/* Sizes, strides and paddings that sums and products of 64 bits can take. */
hr_status hr__want_small(const hr__checked *c, int count, const int64_t *ints);
/* A dim of the view, which is there. */
hr_status hr__want_dim(const hr__checked *c, int64_t dim, const hr_view *view);

#endif
