/* op.h (core): the tables generated from ops.def, whose head explains the columns. */
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

typedef enum hr_op_cost {
  HR_COST_PLAIN = 0,
  HR_COST_CHEAP,
  HR_COST_DIVISION,
  HR_COST_CALL,
  HR_COST_SERIES,
  HR_COST_SCALAR
} hr_op_cost;

typedef enum hr_op_trait { /* bits */
                           HR_TRAIT_STORED = 1,
                           HR_TRAIT_PICKS = 2,
                           HR_TRAIT_SIGNS = 4,
                           HR_TRAIT_NEAR = 8,
                           HR_TRAIT_NO_BOOL = 16,
                           HR_TRAIT_UPDATES = 32,
                           HR_TRAIT_LARGE = 64,
                           HR_TRAIT_WEIGHTS = 128,
                           HR_TRAIT_UNEVEN = 256,
                           HR_TRAIT_WINDOWS = 512,
                           HR_TRAIT_FAILS = 1024
} hr_op_trait;

typedef struct hr_builder hr_builder;
/* Rewrites one node of stream form (composite or contraction) into loop nodes, contractions and special nodes. */
typedef hr_status (*hr_lower_fn)(hr_builder *builder, const hr_node *node);

typedef struct hr__checked hr__checked;
/* Checks the operands and attributes of one operation and infers its outputs' types (core/ops/infer.h). */
typedef hr_status (*hr_infer_fn)(const hr__checked *c);

enum { HR_OPERANDS_ANY = -1 };

/* The largest number of operands, and a bit for each required one. */
typedef struct hr_op_operands {
  int max;
  uint32_t needed;
} hr_op_operands;

typedef struct hr_op_row {
  const char *name;
  hr_op_family family;
  int arity; /* inputs of a POINTWISE, REDUCE (1), ARGREDUCE (2) row; -1: see `doc` */
  hr_op_rule rule;
  bool has_integer, has_real, has_complex;
  hr_accuracy accuracy;
  hr_op_cost cost;
  unsigned traits;                                     /* of hr_op_trait */
  hr_op combine;                                       /* reductions: the element-wise row of two elements */
  hr_lower_fn lower;                                   /* composites and contractions */
  const char *integer_text, *real_text, *complex_text; /* expressions; combine or better for reductions */
  const char *integer_identity, *real_identity, *complex_identity; /* reductions */
  const char *shapes;                                              /* library rows: see ops.def */
  hr_infer_fn infer;                                               /* contractions, composites, special rows */
  hr_op_operands inputs, outputs;                                  /* the same */
  int int_count, scalar_count; /* attributes: the least number; library rows: exactly */
  const char *doc;
} hr_op_row;

extern const hr_op_row hr__op_rows[HR_OP_COUNT] __attribute__((visibility("hidden")));

/* HR_OP_NONE's row for other numbers. */
static inline const hr_op_row *hr_op_table(hr_op op) {
  return &hr__op_rows[(unsigned)op < HR_OP_COUNT ? op : HR_OP_NONE];
}
hr_op hr_op_parse(const char *name); /* HR_OP_NONE when unknown */

/* The class in which a pointwise, reduce or argreduce node computes, and the class of its result register before the
 * conversion to the output's dtype. Scalars are weak (hr_dtype_promote_scalar). */
hr_class hr_node_compute_class(const hr_program *program, const hr_node *node);
hr_class hr_op_result_class(hr_op op, hr_class compute);

/* True if numbers among the node's inputs are converted by a != 0 before it computes: the only rule from a number to
 * bool. 0.5, infinities, NaN and 2^40 are true for every integer class. */
bool hr_node_number_is_truth(const hr_node *node);

/* True if a reduction of the row over no elements has a value; *out_value is that value. */
bool hr_op_identity(hr_op op, int64_t *out_value);

/* True for convolutions and their gradients, whose ints are a convolution's. */
static inline bool hr_op_is_convolution(hr_op op) {
  return op == HR_OP_CONV || op == HR_OP_CONV_BACKWARD_DATA || op == HR_OP_CONV_BACKWARD_WEIGHT;
}

/* Checks one recorded operation before it is appended: its views are inside their buffers, and the outputs' dims match
 * hr_op_infer. An element-wise output may be larger: inputs are broadcast to it. Messages name the operation, the
 * values and the expected ones. */
HR_MUST_USE hr_status hr_op_check(hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                                  int output_count, const hr_view *outputs);

#endif
