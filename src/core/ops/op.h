/* op.h (core): the tables made from ops.def. */
#ifndef HEADRACE_CORE_OP_H_
#define HEADRACE_CORE_OP_H_

#include <stdbool.h>

#include "core/ir/dtype.h"
#include "core/ir/program.h"
#include "headrace/op.h"

typedef enum hr_op_family {
  HR_FAMILY_NONE = 0,
  HR_FAMILY_POINTWISE,
  HR_FAMILY_REDUCE,
  HR_FAMILY_ARGREDUCE,
  HR_FAMILY_CONTRACTION,
  HR_FAMILY_COMPOSITE,
  HR_FAMILY_LIBRARY,
  HR_FAMILY_SPECIAL
} hr_op_family;

typedef enum hr_op_rule {
  HR_RULE_NONE = 0,
  HR_RULE_SAME,
  HR_RULE_COMPARE,
  HR_RULE_LOGICAL,
  HR_RULE_WHERE,
  HR_RULE_CAST,
  HR_RULE_PART,
  HR_RULE_SEEDED
} hr_op_rule;

typedef enum hr_accuracy { HR_ACCURACY_EXACT = 0, HR_ACCURACY_ULP, HR_ACCURACY_ABS } hr_accuracy;

typedef struct hr_builder hr_builder;
/* Rewrites one node of stream form (composite or contraction) into loop nodes, contractions and special nodes. */
typedef hr_status (*hr_lower_fn)(hr_builder *builder, const hr_node *node);

typedef struct hr_op_row {
  const char *name;
  hr_op_family family;
  int arity; /* inputs of a POINTWISE, REDUCE (1), ARGREDUCE (2) row; -1: see doc */
  hr_op_rule rule;
  bool has_integer, has_real, has_complex;
  hr_accuracy accuracy;
  hr_lower_fn lower;                                               /* composites and contractions */
  const char *integer_text, *real_text, *complex_text;             /* expressions; combine or better for reductions */
  const char *integer_identity, *real_identity, *complex_identity; /* reductions */
  const char *shapes;                                              /* library rows: see ops.def */
  int int_count, scalar_count;                                     /* the same: attributes */
  const char *doc;
} hr_op_row;

const hr_op_row *hr_op_table(hr_op op); /* HR_OP_NONE's row for what is not an operation */
hr_op hr_op_parse(const char *name);    /* HR_OP_NONE when unknown */

/* The class in which a pointwise, reduce or argreduce node computes, and the class of its result register before the
 * conversion to the output's dtype. Scalars are weak (hr_dtype_promote_scalar). */
hr_class hr_node_compute_class(const hr_program *program, const hr_node *node);
hr_class hr_op_result_class(hr_op op, hr_class compute);

/* True if numbers among the node's inputs count as a != 0 before it computes: the one rule from a number to bool. 0.5,
 * infinities and NaN are true, and 2^40 is, whatever integer the node computes in. */
bool hr_node_number_is_truth(const hr_node *node);

/* Shape, dtype and operand checks of one recorded operation, before it is appended: the messages name the operation,
 * the values and what was expected. */
HR_MUST_USE hr_status hr_op_check(hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                                  int output_count, const hr_view *outputs);

#endif
