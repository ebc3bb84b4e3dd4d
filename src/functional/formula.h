/* formula.h: functions of several records, written as expressions.
 *
 * A formula keeps the intermediate tensors of a call and the first failure. After a failure its steps do nothing and
 * return an empty tensor of rank 0, so that an expression needs no check between its steps. Steps return tensors that
 * the formula owns; hr__formula_end gives one of them, or an input, to the caller of the function.
 */
#ifndef HEADRACE_FUNCTIONAL_FORMULA_H_
#define HEADRACE_FUNCTIONAL_FORMULA_H_

#include "core/ir/dtype.h"
#include "functional/functions.h"

enum { HR__FORMULA_STEPS = 256 };

typedef struct hr__formula {
  const hr__function_call *call;
  hr_status status;
  int count;
  hr_tensor values[HR__FORMULA_STEPS]; /* of which `count` are set */
} hr__formula;

static inline void hr__formula_begin(hr__formula *f, const hr__function_call *call) {
  f->call = call, f->status = HR_OK, f->count = 0;
}
/* Gives the results, in the order of the call's outputs, and releases the others. NULL: no result of this output. */
hr_status hr__formula_finish(hr__formula *f, int count, const hr_tensor *const *results);
static inline hr_status hr__formula_end(hr__formula *f, const hr_tensor *result) {
  return hr__formula_finish(f, 1, &result);
}
static inline bool hr__formula_failed(const hr__formula *f) {
  return f->status != HR_OK;
}
/* The failure becomes the formula's, if it has none yet. */
void hr__formula_fail(hr__formula *f, hr_status status);

/* A number: weak in promotion, an argument of each run. */
const hr_tensor *hr__number(hr__formula *f, hr_scalar number);
static inline const hr_tensor *hr__real(hr__formula *f, double number) {
  return hr__number(f, hr_scalar_f64(number));
}
static inline const hr_tensor *hr__integer(hr__formula *f, int64_t number) {
  return hr__number(f, hr_scalar_i64(number));
}

/* The dtype in which functions compute whose sums or squares would overflow: f32 for integers and floats of 16 bits. */
static inline hr_dtype hr__wide_dtype(hr_dtype dtype) {
  bool is_small = hr_dtype_is_integer(dtype) || dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_BF16;
  return is_small ? HR_DTYPE_F32 : dtype;
}

/* A record with one output. attrs: NULL for none. dtype: NONE, or the output's. */
const hr_tensor *hr__step(hr__formula *f, hr_op op, const hr_attrs *attrs, int input_count,
                          const hr_tensor *const *inputs, hr_dtype dtype);
const hr_tensor *hr__unary(hr__formula *f, hr_op op, const hr_tensor *x);
const hr_tensor *hr__binary(hr__formula *f, hr_op op, const hr_tensor *x, const hr_tensor *y);
const hr_tensor *hr__ternary(hr__formula *f, hr_op op, const hr_tensor *x, const hr_tensor *y, const hr_tensor *z);
static inline const hr_tensor *hr__plus(hr__formula *f, const hr_tensor *x, const hr_tensor *y) {
  return hr__binary(f, HR_OP_ADD, x, y);
}
static inline const hr_tensor *hr__times(hr__formula *f, const hr_tensor *x, const hr_tensor *y) {
  return hr__binary(f, HR_OP_MUL, x, y);
}
/* A place for an output of hr__record_to, with this dtype (NONE: the row's). rank, dims: those that the row lets the
 * caller choose, or 0. Empty after a failure. */
hr_tensor *hr__output(hr__formula *f, hr_dtype dtype, int rank, const int64_t *dims);
/* A record with several outputs; NULL for absent ones. */
void hr__record_to(hr__formula *f, hr_op op, const hr_attrs *attrs, int input_count, const hr_tensor *const *inputs,
                   int output_count, hr_tensor *const *outputs);
/* A reduction or composite whose only attribute is an integer: a mask of dims, which keep size 1, or a dim. */
const hr_tensor *hr__along(hr__formula *f, hr_op op, const hr_tensor *x, int64_t which);
/* The same in another dtype, NONE: the row's. */
const hr_tensor *hr__along_as(hr__formula *f, hr_op op, const hr_tensor *x, int64_t which, hr_dtype dtype);
/* The same of two inputs. */
const hr_tensor *hr__along_pair(hr__formula *f, hr_op op, const hr_tensor *const pair[2], int64_t which);
/* Indices in i64; a failure for other dtypes than integers. */
const hr_tensor *hr__places(hr__formula *f, const hr_tensor *at);
/* The same, with negative ones counted from the end of `size` elements. */
const hr_tensor *hr__from_end(hr__formula *f, const hr_tensor *at, int64_t size);
/* A reduction over the dims of a mask, which the result lacks. */
const hr_tensor *hr__reduced(hr__formula *f, hr_op op, const hr_tensor *x, uint32_t mask);
/* The largest or smallest numbers of the call's first input, which is complex, over the dims of a mask, which its
 * keepdims keeps. Numbers with a NaN are the best ones, or count only among themselves. */
const hr_tensor *hr__best_complex(hr__formula *f, uint32_t mask, bool is_max, bool has_nans);
/* A function of the table, with its first result. */
const hr_tensor *hr__function(hr__formula *f, hr_functional function, int input_count, const hr_tensor *const *inputs,
                              int attribute_count, const hr_attribute *attributes);

/* 0, 1, ... count - 1 in i64 along dim d of a tensor of this rank, whose other dims have size 1. */
const hr_tensor *hr__counted(hr__formula *f, int64_t count, int rank, int d);

/* x in this dtype; with other dims of as many elements; broadcast; in row-major order. Views where possible. */
const hr_tensor *hr__as_dtype(hr__formula *f, const hr_tensor *x, hr_dtype dtype);
const hr_tensor *hr__as_dims(hr__formula *f, const hr_tensor *x, int rank, const int64_t *dims);
const hr_tensor *hr__spread(hr__formula *f, const hr_tensor *x, int rank, const int64_t *dims);
const hr_tensor *hr__dense(hr__formula *f, const hr_tensor *x);
/* A view without the dims of the mask, whose size is 1. */
const hr_tensor *hr__without(hr__formula *f, const hr_tensor *x, uint32_t mask);
/* A view that the caller may change: dims, strides and offset. NULL after a failure. */
hr_tensor *hr__view(hr__formula *f, const hr_tensor *x);
/* A view with dim `from` at place `to`; with another dim of size 1 at this place; of `count` elements from `first` on
 * along a dim. */
const hr_tensor *hr__moved(hr__formula *f, const hr_tensor *x, int from, int to);
const hr_tensor *hr__with_dim(hr__formula *f, const hr_tensor *x, int at);
const hr_tensor *hr__part(hr__formula *f, const hr_tensor *x, int dim, int64_t first, int64_t count);
/* x with zeros behind it, up to this size of a dim. */
const hr_tensor *hr__extended(hr__formula *f, const hr_tensor *x, int dim, int64_t size);
/* x's elements at these distances of each dim, with `value` between neighbours; a copy unless all distances are 1. */
const hr_tensor *hr__spaced(hr__formula *f, const hr_tensor *x, const int64_t *distances, hr_scalar value);
/* A copy of x, row-major, of these dims, to which x is broadcast. */
const hr_tensor *hr__copied(hr__formula *f, const hr_tensor *x, hr_dtype dtype, int rank, const int64_t *dims);

/* The dtype to which operands are promoted; NONE after a failure. */
hr_dtype hr__promoted(hr__formula *f, int count, const hr_tensor *const *inputs);

#endif
