/* scatter.h: updates of elements at indices, in the modes of put_along_axis. */
#ifndef HEADRACE_FUNCTIONAL_SCATTER_H_
#define HEADRACE_FUNCTIONAL_SCATTER_H_

#include "functional/formula.h"

/* The first ones in the order of row SCATTER. */
typedef enum hr__update_mode {
  HR__UPDATE_SET = 0,
  HR__UPDATE_ADD,
  HR__UPDATE_MULTIPLY,
  HR__UPDATE_MAX,
  HR__UPDATE_MIN,
  HR__UPDATE_SUBTRACT,
  HR__UPDATE_DIVIDE,
  HR__UPDATE_MODES
} hr__update_mode;

/* An update by a row that has the first modes: subtract adds negative values; divide multiplies ones with the values,
 * by which x is divided at the end. */
typedef struct hr__update {
  const hr_tensor *x, *base, *values; /* the row changes a copy of base */
  int mode;                           /* the row's */
  bool divides;
} hr__update;

/* The mode's number in an attribute of words. */
hr_status hr__read_update_mode(const hr__function_call *c, int index, int *out_mode);
/* values: converted to x's dtype. */
hr__update hr__update_begin(hr__formula *f, int mode, const hr_tensor *x, const hr_tensor *values);
/* The result, from the changed copy of base. */
const hr_tensor *hr__update_end(hr__formula *f, const hr__update *update, const hr_tensor *y);
/* A copy of base that the row SCATTER changed along an axis. places: i64; if `drops`, those out of range write nothing.
 */
const hr_tensor *hr__scattered(hr__formula *f, const hr__update *update, int axis, const hr_tensor *places, bool drops);
/* The attribute `bounds`: true for drop, false for error. */
hr_status hr__read_bounds(const hr__function_call *c, int index, bool *out_drops);

#endif
