/* check_internal.h: what the checks of recorded operations share. */
#ifndef HEADRACE_CORE_CHECK_INTERNAL_H_
#define HEADRACE_CORE_CHECK_INTERNAL_H_

#include "core/ops/op.h"

/* One recorded operation under check. */
typedef struct hr__checked {
  hr_op op;
  const char *name;
  int input_count, output_count, int_count, scalar_count;
  const hr_view *inputs, *outputs;
  const int64_t *ints;
  const hr_scalar *scalars;
} hr__checked;

static inline bool hr__view_is_present(const hr_view *view) {
  return view->buffer != NULL || view->scalar != NULL;
}

static inline int64_t hr__view_count(const hr_view *view) {
  int64_t count = 1;
  for (int d = 0; d < view->rank; ++d) {
    count *= view->dims[d];
  }
  return count;
}

/* "[2,3]" in `text` of at least HR__DIMS_TEXT bytes. */
enum { HR__DIMS_TEXT = 16 * 21 + 3 };
const char *hr__view_dims(const hr_view *view, char *text);

/* The view lies in its buffer; outputs also don't visit an element twice. Tells what is wrong. */
hr_status hr__check_input(const hr__checked *c, int i);
hr_status hr__check_output(const hr__checked *c, int i);

/* `out` has `x`'s rank, and 1 in the dims of mask. */
hr_status hr__check_reduced(const hr__checked *c, const hr_view *x, const hr_view *out, int64_t mask);

/* The same of a library row, by what `shapes` says in ops.def. */
hr_status hr__check_library(const hr__checked *c);

/* Counts, attributes and shapes of a contraction, composite or special node whose views have been checked. */
hr_status hr__check_shapes(const hr__checked *c);

#endif
