/* expression_nodes.h: an expression inside: a list of nodes in the order of computation, without types.
 *
 *   y = x > l ? x - l : 0        0: input 0   1: input 1   2: > 0 1   3: - 0 1   4: integer 0   5: ?: 2 3 4
 *
 * A node's operands come before it, and equal nodes are one. Types are found for each dtype of T (expression_types.h).
 */
#ifndef HEADRACE_EXPRESSION_NODES_H_
#define HEADRACE_EXPRESSION_NODES_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/refcount.h"
#include "base/vector.h"
#include "headrace/expression.h"

enum { HR_EXPR_NODES_MAX = 8192, HR_EXPR_NAME_MAX = 64, HR_EXPR_TEXT_MAX = 1 << 16, HR_EXPR_OPERANDS_MAX = 3 };

typedef enum hr_expr_function {
#define HR_FUNCTION(ID, name, arity, rule, ROW, da, db, dc) HR_EXPR_##ID,
#define HR_DEFINED(name, arity, text)
#include "expression/functions.def"
#undef HR_FUNCTION
#undef HR_DEFINED
  HR_EXPR_FUNCTION_COUNT
} hr_expr_function;

typedef enum hr_expr_rule {
  HR_EXPR_RULE_ARITHMETIC,
  HR_EXPR_RULE_FLOATING,
  HR_EXPR_RULE_INTEGER,
  HR_EXPR_RULE_SHIFT,
  HR_EXPR_RULE_DIVIDE,
  HR_EXPR_RULE_MODULO,
  HR_EXPR_RULE_COMPARE,
  HR_EXPR_RULE_TEST,
  HR_EXPR_RULE_LOGICAL,
  HR_EXPR_RULE_SELECT
} hr_expr_rule;

typedef struct hr_expr_row {
  const char *name;
  int arity;
  hr_expr_rule rule;
  hr_op op;
  const char *gradients[HR_EXPR_OPERANDS_MAX];
} hr_expr_row;

const hr_expr_row *hr__expr_row(hr_expr_function function);
/* The function with this name and its number of operands; COUNT if there is none. *out_text: its definition, if it has
 * one. */
hr_expr_function hr__expr_find_function(const char *name, size_t length, int *out_arity, const char **out_text);

typedef enum hr_expr_kind {
  HR_EXPR_INPUT,   /* number: which */
  HR_EXPR_WHOLE,   /* an integer literal, number, of `dtype` */
  HR_EXPR_REAL,    /* a floating literal, real; dtype F32, or F64 for one that does not widen */
  HR_EXPR_CAST,    /* operand 0 as `dtype`; NONE is T */
  HR_EXPR_APPLY,   /* `function` of the operands */
  HR_EXPR_INDEX,   /* i */
  HR_EXPR_INDEX_D, /* the index along dim `number` */
  HR_EXPR_SIZE     /* the size of dim `number` */
} hr_expr_kind;

typedef struct hr_expr_node {
  hr_expr_kind kind;
  hr_expr_function function;
  hr_dtype dtype;
  int operands[HR_EXPR_OPERANDS_MAX]; /* -1: none */
  int64_t number;
  double real;
  int column; /* for messages */
} hr_expr_node;

typedef struct hr_expr_variable {
  char name[HR_EXPR_NAME_MAX];
  hr_dtype dtype; /* NONE: T, or of a temporary its value's */
  bool has_type;
  int node; /* its value; -1: not assigned */
} hr_expr_variable;

struct hr_expression {
  hr_refcount refcount;
  char *text; /* for messages; as parsed */
  HR_VECTOR(hr_expr_node) nodes;
  HR_VECTOR(hr_expr_variable) inputs;
  HR_VECTOR(hr_expr_variable) outputs;
  HR_VECTOR(hr_expr_variable) temporaries;
  bool *used; /* of each node: an output depends on it */
};

/* An empty expression; NULL if memory is out. */
hr_expression *hr__expr_create(const char *text);
hr_expression *hr__expr_copy(const hr_expression *expression);

/* Adds a node, or finds an equal one; its number, or -1 if memory or HR_EXPR_NODES_MAX is out. Literals are folded. */
int hr__expr_add(hr_expression *expression, const hr_expr_node *node);
int hr__expr_whole(hr_expression *expression, int64_t number, hr_dtype dtype, int column);
int hr__expr_real(hr_expression *expression, double real, hr_dtype dtype, int column);
int hr__expr_cast(hr_expression *expression, int operand, hr_dtype dtype, int column);
int hr__expr_apply(hr_expression *expression, hr_expr_function function, const int *operands, int column);

/* The end of making an expression: finds the nodes that outputs depend on, and gives it. If `status` is an error, or
 * if this fails, the expression is released and the error returned. */
HR_MUST_USE hr_status hr__expr_finish(hr_expression *expression, hr_status status, hr_expression **out_expression);

HR_MUST_USE hr_status hr__expr_check_length(const char *text);
/* An error at a column of `text` (from 1), of which it prints a part. */
HR_MUST_USE hr_status hr__expr_error(hr_status_code code, const char *what, const char *text, int column,
                                     const char *format, ...) HR_PRINTF(5, 6);
/* The error if hr__expr_add fails; expression: NULL if there is none yet. */
HR_MUST_USE hr_status hr__expr_too_large(const hr_expression *expression, const char *text);

/* ---- parsing (expression_parse.c) ---- */

/* Parses assignments into the expression. Temporaries stay visible to later texts. */
HR_MUST_USE hr_status hr__expr_parse_text(hr_expression *expression, const char *text);
HR_MUST_USE hr_status hr__expr_parse_signature(hr_expression *expression, const char *signature);
/* Parses one expression of a table, with values for its names: a, b, c, y, g. Gives its node. */
HR_MUST_USE hr_status hr__expr_parse_rule(hr_expression *expression, const char *text, const int values[5], int column,
                                          int *out_node);

#endif
