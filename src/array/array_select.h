/* array_select.h: indices of which some are arrays, resolved: a view by the others, and arrays for some of its axes. */
#ifndef HEADRACE_ARRAY_ARRAY_SELECT_H_
#define HEADRACE_ARRAY_ARRAY_SELECT_H_

#include "headrace/array.h"

enum { HR_INDICES_MAX = 2 * HR_RANK_MAX + 1 };

typedef struct hr_selection {
  int index_count, array_count;
  hr_index indices[HR_INDICES_MAX]; /* of the view: whole dims in the place of arrays */
  hr_tensor arrays[HR_RANK_MAX];    /* integers; the selection has their references */
  int64_t axes[HR_RANK_MAX];        /* of the view, increasing */
  int axis, last;                   /* the next axis of the view; the last index that is an integer or an array */
  bool is_first;                    /* the arrays' dims come first: the indices have another one between them */
} hr_selection;

/* Resolves indices; masks wait. The caller ends the selection, after a failure, too. */
HR_MUST_USE hr_status hr__select(hr_stream *stream, const hr_tensor *x, int count, const hr_index *indices,
                                 hr_selection *out);
/* OUT_OF_RANGE unless a mask's dims are those of x from this one on. */
HR_MUST_USE hr_status hr__check_mask(const hr_tensor *mask, const hr_tensor *x, int dim);
void hr__selection_end(hr_selection *selection);

#endif
