/* The tables generated from ops.def, and the classes in which nodes compute. */
#include "core/ops/op.h"

#include <string.h>

#include "core/ir/build.h"
#include "core/ops/infer.h"

#define HAS_INTEGER_I true
#define HAS_INTEGER_F false
#define HAS_INTEGER_C false
#define HAS_INTEGER_IF true
#define HAS_INTEGER_FC false
#define HAS_INTEGER_IFC true
#define HAS_REAL_I false
#define HAS_REAL_F true
#define HAS_REAL_C false
#define HAS_REAL_IF true
#define HAS_REAL_FC true
#define HAS_REAL_IFC true
#define HAS_COMPLEX_I false
#define HAS_COMPLEX_F false
#define HAS_COMPLEX_C true
#define HAS_COMPLEX_IF false
#define HAS_COMPLEX_FC true
#define HAS_COMPLEX_IFC true

#define CLASSES(classes) \
  .has_integer = HAS_INTEGER_##classes, .has_real = HAS_REAL_##classes, .has_complex = HAS_COMPLEX_##classes

/* The words of the columns cost and traits. */
enum {
  NONE = 0,
  STORED = HR_TRAIT_STORED,
  PICKS = HR_TRAIT_PICKS,
  SIGNS = HR_TRAIT_SIGNS,
  NEAR = HR_TRAIT_NEAR,
  NO_BOOL = HR_TRAIT_NO_BOOL,
  UPDATES = HR_TRAIT_UPDATES,
  LARGE = HR_TRAIT_LARGE,
  WEIGHTS = HR_TRAIT_WEIGHTS,
  UNEVEN = HR_TRAIT_UNEVEN,
  WINDOWS = HR_TRAIT_WINDOWS,
  FAILS = HR_TRAIT_FAILS
};

/* (1, 0, MORE) as hr_op_operands: up to seven operands, then END. */
enum { MORE = 2, END = 3 };
#define OPERANDS(...) OPERANDS_(__VA_ARGS__ __VA_OPT__(, ) END, END, END, END, END, END, END, END)
#define OPERANDS_(a, b, c, d, e, f, g, ...)                                                                            \
  {                                                                                                                    \
    .max = IS(MORE, a) + IS(MORE, b) + IS(MORE, c) + IS(MORE, d) + IS(MORE, e) + IS(MORE, f) + IS(MORE, g) > 0         \
               ? HR_OPERANDS_ANY                                                                                       \
               : 7 - IS(END, a) - IS(END, b) - IS(END, c) - IS(END, d) - IS(END, e) - IS(END, f) - IS(END, g),         \
    .needed = IS(1, a) | IS(1, b) << 1 | IS(1, c) << 2 | IS(1, d) << 3 | IS(1, e) << 4 | IS(1, f) << 5 | IS(1, g) << 6 \
  }
#define IS(what, operand) ((operand) == (what))

#define OPERAND_COLUMNS(op_infer, op_inputs, op_outputs, ints, scalars, op_traits)                                \
  .infer = hr__infer_##op_infer, .inputs = OPERANDS op_inputs, .outputs = OPERANDS op_outputs, .int_count = ints, \
  .scalar_count = scalars, .traits = op_traits

#define HR_POINTWISE(NAME, op_name, op_arity, op_rule, classes, op_accuracy, op_cost, op_traits, integer, real, \
                     complex, op_doc)                                                                           \
  [HR_OP_##NAME] = {.name = #op_name,                                                                           \
                    .family = HR_FAMILY_POINTWISE,                                                              \
                    .arity = op_arity,                                                                          \
                    .rule = HR_RULE_##op_rule,                                                                  \
                    CLASSES(classes),                                                                           \
                    .accuracy = HR_ACCURACY_##op_accuracy,                                                      \
                    .cost = HR_COST_##op_cost,                                                                  \
                    .traits = op_traits,                                                                        \
                    .integer_text = HAS_INTEGER_##classes ? #integer : NULL,                                    \
                    .real_text = HAS_REAL_##classes ? #real : NULL,                                             \
                    .complex_text = HAS_COMPLEX_##classes ? #complex : NULL,                                    \
                    .doc = op_doc},
#define HR_REDUCE(NAME, op_name, op_rule, op_combine, op_traits, classes, identity_i, identity_f, identity_c, \
                  combine_i, combine_f, combine_c, op_doc)                                                    \
  [HR_OP_##NAME] = {.name = #op_name,                                                                         \
                    .family = HR_FAMILY_REDUCE,                                                               \
                    .arity = 1,                                                                               \
                    .rule = HR_RULE_##op_rule,                                                                \
                    .combine = HR_OP_##op_combine,                                                            \
                    .traits = op_traits,                                                                      \
                    CLASSES(classes),                                                                         \
                    .accuracy = HR_ACCURACY_ABS,                                                              \
                    .integer_text = HAS_INTEGER_##classes ? #combine_i : NULL,                                \
                    .real_text = HAS_REAL_##classes ? #combine_f : NULL,                                      \
                    .complex_text = HAS_COMPLEX_##classes ? #combine_c : NULL,                                \
                    .integer_identity = HAS_INTEGER_##classes ? #identity_i : NULL,                           \
                    .real_identity = HAS_REAL_##classes ? #identity_f : NULL,                                 \
                    .complex_identity = HAS_COMPLEX_##classes ? #identity_c : NULL,                           \
                    .doc = op_doc},
#define HR_ARGREDUCE(NAME, op_name, better_i, better_f, op_doc) \
  [HR_OP_##NAME] = {.name = #op_name,                           \
                    .family = HR_FAMILY_ARGREDUCE,              \
                    .arity = 2,                                 \
                    CLASSES(IF),                                \
                    .integer_text = #better_i,                  \
                    .real_text = #better_f,                     \
                    .doc = op_doc},
#define HR_CONTRACTION(NAME, op_name, op_infer, op_inputs, op_outputs, ints, scalars, op_traits, op_doc) \
  [HR_OP_##NAME] = {.name = #op_name,                                                                    \
                    .family = HR_FAMILY_CONTRACTION,                                                     \
                    .arity = -1,                                                                         \
                    CLASSES(IFC),                                                                        \
                    .accuracy = HR_ACCURACY_ABS,                                                         \
                    .lower = hr__lower_##op_name,                                                        \
                    OPERAND_COLUMNS(op_infer, op_inputs, op_outputs, ints, scalars, op_traits),          \
                    .doc = op_doc},
#define HR_COMPOSITE(NAME, op_name, op_lower, op_infer, op_inputs, op_outputs, ints, scalars, op_traits, op_doc) \
  [HR_OP_##NAME] = {.name = #op_name,                                                                            \
                    .family = HR_FAMILY_COMPOSITE,                                                               \
                    .arity = -1,                                                                                 \
                    CLASSES(IFC),                                                                                \
                    .accuracy = HR_ACCURACY_ABS,                                                                 \
                    .lower = hr__lower_##op_lower,                                                               \
                    OPERAND_COLUMNS(op_infer, op_inputs, op_outputs, ints, scalars, op_traits),                  \
                    .doc = op_doc},
#define HR_LIBRARY(NAME, op_name, op_shapes, ints, scalars, op_traits, op_doc) \
  [HR_OP_##NAME] = {.name = #op_name,                               \
                    .family = HR_FAMILY_LIBRARY,                    \
                    .arity = -1,                                    \
                    CLASSES(IFC),                                   \
                    .accuracy = HR_ACCURACY_ABS,                    \
                    .shapes = op_shapes,                            \
                    .int_count = ints,                              \
                    .scalar_count = scalars, \
                    .traits = (op_traits),                        \
                    .doc = op_doc},
#define HR_SPECIAL(NAME, op_name, op_infer, op_inputs, op_outputs, ints, scalars, op_traits, op_doc) \
  [HR_OP_##NAME] = {.name = #op_name,                                                                \
                    .family = HR_FAMILY_SPECIAL,                                                     \
                    .arity = -1,                                                                     \
                    .has_integer = true,                                                             \
                    OPERAND_COLUMNS(op_infer, op_inputs, op_outputs, ints, scalars, op_traits),      \
                    .doc = op_doc},

const hr_op_row hr__op_rows[HR_OP_COUNT] = {
    [HR_OP_NONE] = {.name = "none", .arity = -1, .doc = "not an operation"},
#include "core/ops/ops.def"
};

hr_op hr_op_parse(const char *name) {
  for (int op = HR_OP_NONE + 1; op < HR_OP_COUNT; ++op) {
    if (name != NULL && strcmp(hr__op_rows[op].name, name) == 0) {
      return (hr_op)op;
    }
  }
  return HR_OP_NONE;
}

bool hr_op_identity(hr_op op, int64_t *out_value) {
  const char *text = hr_op_table(op)->integer_identity;
  bool is_number = text != NULL && (text[0] == '0' || text[0] == '1') && text[1] == '\0';
  *out_value = is_number ? text[0] - '0' : 0;
  return is_number;
}

/* The promoted dtype of a comparison's inputs; numbers of the host are weak unless all inputs are numbers. */
static hr_dtype promoted_inputs(const hr_node *node, int count) {
  hr_dtype tensors = HR_DTYPE_NONE, scalars = HR_DTYPE_NONE;
  for (int i = 0; i < count && i < node->input_count; ++i) {
    const hr_operand *input = &node->inputs[i];
    hr_dtype *side = input->kind == HR_OPERAND_SCALAR ? &scalars : &tensors;
    *side = hr_dtype_promote(*side, input->dtype);
  }
  if (tensors == HR_DTYPE_NONE) {
    return scalars;
  }
  return hr_dtype_promote_scalar(tensors, scalars);
}

static hr_class complex_class(hr_dtype dtype) {
  return dtype == HR_DTYPE_C128 || dtype == HR_DTYPE_F64 ? HR_CLASS_C128 : HR_CLASS_C64;
}

hr_class hr_node_compute_class(const hr_program *program, const hr_node *node) {
  (void)program; /* an operand carries the dtype of its scalar */
  const hr_op_row *row = hr_op_table(node->op);
  hr_dtype input = node->input_count > 0 ? node->inputs[0].dtype : HR_DTYPE_NONE;
  hr_dtype output = node->output_count > 0 ? node->outputs[0].dtype : HR_DTYPE_NONE;
  if (row->family == HR_FAMILY_ARGREDUCE) {
    return hr_dtype_arithmetic_class(input);
  }
  switch (row->rule) {
    case HR_RULE_COMPARE:
      return hr_dtype_arithmetic_class(promoted_inputs(node, row->arity));
    case HR_RULE_LOGICAL:
      return HR_CLASS_B8;
    case HR_RULE_CAST:
      return hr_dtype_class(input);
    case HR_RULE_PART:
      return complex_class(input);
    case HR_RULE_WHERE:
      return hr_dtype_class(output);
    case HR_RULE_SAME:
    case HR_RULE_SEEDED:
      return hr_dtype_arithmetic_class(output);
    case HR_RULE_NONE:
      break;
  }
  return HR_CLASS_NONE;
}

bool hr_node_number_is_truth(const hr_node *node) {
  return node->output_count > 0 && node->outputs[0].dtype == HR_DTYPE_BOOL &&
         hr_op_table(node->op)->family == HR_FAMILY_POINTWISE && hr_op_table(node->op)->rule == HR_RULE_SAME;
}

hr_class hr_op_result_class(hr_op op, hr_class compute) {
  const hr_op_row *row = hr_op_table(op);
  if (row->family == HR_FAMILY_ARGREDUCE) {
    return HR_CLASS_I64;
  }
  switch (row->rule) {
    case HR_RULE_COMPARE:
    case HR_RULE_LOGICAL:
      return HR_CLASS_B8;
    case HR_RULE_PART:
      return compute == HR_CLASS_C128 ? HR_CLASS_F64 : HR_CLASS_F32;
    default:
      return compute;
  }
}
