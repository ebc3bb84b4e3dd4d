/* expression_types.h: an expression with types: rows of ops.def on typed values, for one dtype of T and one set of
 * inputs that are numbers.
 *
 *   float x, double l    y = x > l        0: input 0 f32   1: number of input 1 f64   2: copy f64 0   3: gt bool 2, 1
 */
#ifndef HEADRACE_EXPRESSION_TYPES_H_
#define HEADRACE_EXPRESSION_TYPES_H_

#include "expression/expression_nodes.h"

typedef enum hr_expr_value_kind {
  HR_EXPR_VIEW,   /* input `input` */
  HR_EXPR_NUMBER, /* the number of input `input`, or its negative; a literal if input is -1 */
  HR_EXPR_ROW,    /* a row of ops.def */
  HR_EXPR_PLACE   /* indices along dim `dim`, or of elements if it is -1 */
} hr_expr_value_kind;

typedef struct hr_expr_value {
  hr_expr_value_kind kind;
  hr_dtype dtype;
  bool is_weak; /* floating, and does not widen: computed in f64 among themselves */
  bool is_negated;
  hr_op op;
  int operand_count, operands[HR_EXPR_OPERANDS_MAX], input, dim;
  hr_scalar number;
} hr_expr_value;

typedef struct hr_expr_program {
  HR_VECTOR(hr_expr_value) values;
  int outputs[HR_EXPRESSION_OUTPUTS_MAX]; /* values; -1: not wanted */
} hr_expr_program;

/* inputs: views or numbers, of which dtype and scalar are read; NULL stands for views of the signature's types. dims:
 * NULL: they are not known, and size(d) is 0. is_wanted: NULL: all outputs. */
HR_MUST_USE hr_status hr__expr_resolve(const hr_expression *expression, hr_dtype t, const hr_view *inputs, int rank,
                                       const int64_t *dims, const bool *is_wanted, hr_expr_program *out_program);
void hr__expr_program_fini(hr_expr_program *program);

#endif
