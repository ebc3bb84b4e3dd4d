/* expression_types.c: C's conversions. See expression_types.h.
 *
 * A row computes in the class of its result and converts its inputs to it, so that most conversions need no record.
 * Comparisons compute in the promoted class of their inputs: inputs of other classes are converted by a copy.
 */
#include <string.h>

#include "base/text.h"
#include "core/ir/dtype.h"
#include "core/ops/op.h"
#include "expression/expression_types.h"

typedef struct resolver {
  const hr_expression *e;
  hr_expr_program *program;
  const hr_view *inputs;
  hr_dtype t;
  int rank;
  const int64_t *dims;
  int *value_of; /* of each node */
} resolver;

/* ---- types ---- */

typedef struct type {
  hr_dtype dtype;
  bool is_weak;
} type;

static bool is_floating(hr_dtype dtype) {
  return hr_dtype_is_real(dtype);
}

/* C's promotion of one operand. */
static hr_dtype promoted(hr_dtype dtype) {
  hr_class cls = hr_dtype_arithmetic_class(dtype);
  return cls == HR_CLASS_I32 ? HR_DTYPE_I32 : cls == HR_CLASS_F32 ? HR_DTYPE_F32 : dtype;
}

static int rank_of(hr_dtype dtype) {
  switch (dtype) {
    case HR_DTYPE_F64:
      return 6;
    case HR_DTYPE_F32:
      return 5;
    case HR_DTYPE_U64:
      return 4;
    case HR_DTYPE_I64:
      return 3;
    case HR_DTYPE_U32:
      return 2;
    default:
      return 1;
  }
}

/* C's common type of two operands. */
static type common_type(type a, type b) {
  a.dtype = promoted(a.dtype);
  b.dtype = promoted(b.dtype);
  if (a.is_weak != b.is_weak) {
    type other = a.is_weak ? b : a;
    return is_floating(other.dtype) ? other : (type){HR_DTYPE_F64, true};
  }
  return rank_of(a.dtype) >= rank_of(b.dtype) ? a : b;
}

static type type_of(const resolver *r, int value) {
  const hr_expr_value *v = &r->program->values.data[value];
  return (type){v->dtype, v->is_weak};
}

/* ---- values ---- */

static int add_value(resolver *r, const hr_expr_value *value) {
  return hr_vector_push(&r->program->values, *value) ? (int)r->program->values.count - 1 : -1;
}

static bool is_number(const resolver *r, int value) {
  return r->program->values.data[value].kind == HR_EXPR_NUMBER;
}

static int add_row(resolver *r, hr_op op, type result, int count, const int *operands) {
  hr_expr_value value = {
      .kind = HR_EXPR_ROW, .dtype = result.dtype, .is_weak = result.is_weak, .op = op, .operand_count = count};
  for (int i = 0; i < count; ++i) {
    if (operands[i] < 0) {
      return -1;
    }
    value.operands[i] = operands[i];
  }
  return add_value(r, &value);
}

/* The value in another dtype. */
static int convert(resolver *r, int value, type wanted) {
  if (value >= 0 && type_of(r, value).dtype == wanted.dtype && !is_number(r, value)) {
    return value;
  }
  return add_row(r, HR_OP_COPY, wanted, 1, &value);
}

/* Rows need a tensor among their operands. */
static void need_tensor(resolver *r, int count, int *operands, type common) {
  for (int i = 0; i < count; ++i) {
    if (operands[i] < 0 || !is_number(r, operands[i])) {
      return;
    }
  }
  operands[0] = convert(r, operands[0], common);
}

static hr_status fail(const resolver *r, const hr_expr_node *node, const char *what, hr_dtype found) {
  return hr__expr_error(HR_STATUS_INVALID_ARGUMENT, "expression", r->e->text, node->column, "%s, found %s", what,
                        hr_dtype_name(found));
}

/* ---- nodes ---- */

static int resolve_input(resolver *r, const hr_expr_node *node, hr_dtype dtype) {
  const hr_view *view = r->inputs != NULL ? &r->inputs[node->number] : NULL;
  hr_expr_value value = {.kind = HR_EXPR_VIEW, .dtype = dtype, .input = (int)node->number};
  if (view != NULL && view->scalar != NULL) {
    value.kind = HR_EXPR_NUMBER;
    value.number = *view->scalar;
    return add_value(r, &value);
  }
  value.dtype = view != NULL ? view->dtype : dtype;
  int made = add_value(r, &value);
  return made < 0 ? -1 : convert(r, made, (type){dtype, false});
}

static int resolve_literal(resolver *r, const hr_expr_node *node) {
  bool is_real = node->kind == HR_EXPR_REAL;
  hr_expr_value value = {.kind = HR_EXPR_NUMBER,
                         .dtype = node->dtype,
                         .is_weak = is_real && node->dtype == HR_DTYPE_F64,
                         .input = -1,
                         .number = is_real ? hr_scalar_f64(node->real) : hr_scalar_i64(node->number)};
  return add_value(r, &value);
}

static hr_status resolve_place(resolver *r, const hr_expr_node *node, int *out_value) {
  int64_t dim = node->number < 0 ? node->number + r->rank : node->number;
  bool is_element = node->kind == HR_EXPR_INDEX;
  if (!is_element && r->dims != NULL && (dim < 0 || dim >= r->rank)) {
    return hr__expr_error(HR_STATUS_INVALID_ARGUMENT, "expression", r->e->text, node->column,
                          "expected a dim of a tensor with %d, found %lld", r->rank, (long long)node->number);
  }
  hr_expr_value value = {.kind = HR_EXPR_PLACE, .dtype = HR_DTYPE_I64, .dim = is_element ? -1 : (int)dim};
  if (node->kind == HR_EXPR_SIZE) {
    value.kind = HR_EXPR_NUMBER;
    value.input = -1;
    value.number = hr_scalar_i64(r->dims != NULL ? r->dims[dim] : 0);
  }
  *out_value = add_value(r, &value);
  return HR_OK;
}

static int resolve_comparison(resolver *r, hr_op op, int count, int *operands, type common) {
  need_tensor(r, count, operands, common);
  for (int i = 0; i < count; ++i) {
    if (operands[i] < 0) {
      return -1;
    }
    hr_class cls = hr_dtype_class(type_of(r, operands[i]).dtype);
    if (!is_number(r, operands[i]) && cls != hr_dtype_class(common.dtype)) {
      operands[i] = convert(r, operands[i], common);
    }
  }
  return add_row(r, op, (type){HR_DTYPE_BOOL, false}, count, operands);
}

/* The negative of a number that a run passes is another number of the run. */
static bool is_negated_number(const resolver *r, hr_op op, int value, type common) {
  return op == HR_OP_NEG && is_number(r, value) && is_floating(type_of(r, value).dtype) && is_floating(common.dtype) &&
         r->program->values.data[value].number.dtype == HR_DTYPE_F64;
}

static int negate_number(resolver *r, int value, type common) {
  hr_expr_value negated = r->program->values.data[value];
  negated.dtype = common.dtype;
  negated.is_negated = !negated.is_negated;
  negated.number.value.f[0] = -negated.number.value.f[0];
  return add_value(r, &negated);
}

static int resolve_arithmetic(resolver *r, hr_op op, int count, int *operands, type common) {
  if (is_negated_number(r, op, operands[0], common)) {
    return negate_number(r, operands[0], common);
  }
  need_tensor(r, count, operands, common);
  return add_row(r, op, common, count, operands);
}

static int resolve_selection(resolver *r, int *operands) {
  type common = common_type(type_of(r, operands[1]), type_of(r, operands[2]));
  operands[0] = convert(r, operands[0], (type){HR_DTYPE_BOOL, false});
  return add_row(r, HR_OP_WHERE, common, 3, operands);
}

static hr_status resolve_function(resolver *r, const hr_expr_node *node, int *out_value) {
  const hr_expr_row *row = hr__expr_row(node->function);
  int operands[HR_EXPR_OPERANDS_MAX] = {-1, -1, -1};
  for (int i = 0; i < row->arity; ++i) {
    operands[i] = r->value_of[node->operands[i]];
  }
  type first = type_of(r, operands[0]), common = {promoted(first.dtype), first.is_weak};
  if (row->arity == 2) {
    common = common_type(first, type_of(r, operands[1]));
  }
  bool is_real = is_floating(common.dtype);
  hr_op op = row->op;
  switch (row->rule) {
    case HR_EXPR_RULE_SELECT:
      *out_value = resolve_selection(r, operands);
      return HR_OK;
    case HR_EXPR_RULE_LOGICAL:
      need_tensor(r, row->arity, operands, (type){HR_DTYPE_BOOL, false});
      *out_value = add_row(r, op, (type){HR_DTYPE_BOOL, false}, row->arity, operands);
      return HR_OK;
    case HR_EXPR_RULE_TEST:
      common = is_real ? common : (type){HR_DTYPE_F64, false};
      *out_value = resolve_comparison(r, op, row->arity, operands, common);
      return HR_OK;
    case HR_EXPR_RULE_COMPARE:
      *out_value = resolve_comparison(r, op, row->arity, operands, common);
      return HR_OK;
    case HR_EXPR_RULE_FLOATING:
      common = is_real ? common : (type){HR_DTYPE_F64, false};
      break;
    case HR_EXPR_RULE_DIVIDE:
      op = is_real ? op : HR_OP_DIV_TRUNC;
      break;
    case HR_EXPR_RULE_SHIFT:
      if (is_real) {
        return fail(r, node, "expected integers as operands of a shift", common.dtype);
      }
      common = (type){promoted(first.dtype), false};
      break;
    case HR_EXPR_RULE_MODULO:
      if (is_real) {
        return fail(r, node, "expected integers as operands of % (fmod is for floating numbers)", common.dtype);
      }
      break;
    case HR_EXPR_RULE_INTEGER:
      if (is_real) {
        return fail(r, node, "expected integers as operands", common.dtype);
      }
      break;
    case HR_EXPR_RULE_ARITHMETIC:
      break;
  }
  *out_value = resolve_arithmetic(r, op, row->arity, operands, common);
  return HR_OK;
}

static hr_status resolve_node(resolver *r, const hr_expr_node *node, int *out_value) {
  hr_dtype dtype = node->dtype == HR_DTYPE_NONE ? r->t : node->dtype;
  switch (node->kind) {
    case HR_EXPR_INPUT:
      *out_value = resolve_input(r, node, dtype);
      return HR_OK;
    case HR_EXPR_WHOLE:
    case HR_EXPR_REAL:
      *out_value = resolve_literal(r, node);
      return HR_OK;
    case HR_EXPR_CAST:
      *out_value = convert(r, r->value_of[node->operands[0]], (type){dtype, false});
      return HR_OK;
    case HR_EXPR_APPLY:
      return resolve_function(r, node, out_value);
    default:
      return resolve_place(r, node, out_value);
  }
}

/* ---- whole expressions ---- */

static hr_status check_t(const hr_expression *e, hr_dtype t) {
  bool uses_t = false;
  for (size_t n = 0; n < e->nodes.count; ++n) {
    hr_expr_kind kind = e->nodes.data[n].kind;
    uses_t |= (kind == HR_EXPR_INPUT || kind == HR_EXPR_CAST) && e->nodes.data[n].dtype == HR_DTYPE_NONE;
  }
  bool is_served = (hr_dtype_is_integer(t) || hr_dtype_is_real(t)) && !hr_dtype_is_float8(t);
  if (uses_t && !is_served) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                          "expression \"%.40s\": expected T to be an integer or a floating dtype, found %s", e->text,
                          hr_dtype_name(t));
  }
  return HR_OK;
}

/* A literal or number as an output, or an input itself, is copied. */
static int finish_output(resolver *r, int value) {
  if (value < 0 || r->program->values.data[value].kind == HR_EXPR_ROW) {
    return value;
  }
  return add_row(r, HR_OP_COPY, type_of(r, value), 1, &value);
}

static hr_status resolve_nodes(resolver *r, const bool *needed) {
  for (size_t n = 0; n < r->e->nodes.count; ++n) {
    r->value_of[n] = -1;
    if (!needed[n]) {
      continue;
    }
    HR_RETURN_IF_ERROR(resolve_node(r, &r->e->nodes.data[n], &r->value_of[n]));
    if (r->value_of[n] < 0) {
      return hr__expr_too_large(r->e, r->e->text);
    }
  }
  return HR_OK;
}

static void mark_needed(const hr_expression *e, const bool *is_wanted, bool *needed) {
  for (size_t o = 0; o < e->outputs.count; ++o) {
    if (e->outputs.data[o].node >= 0 && (is_wanted == NULL || is_wanted[o])) {
      needed[e->outputs.data[o].node] = true;
    }
  }
  for (size_t n = e->nodes.count; n-- > 0;) {
    for (int i = 0; needed[n] && i < HR_EXPR_OPERANDS_MAX; ++i) {
      if (e->nodes.data[n].operands[i] >= 0) {
        needed[e->nodes.data[n].operands[i]] = true;
      }
    }
  }
}

static hr_status resolve_outputs(resolver *r, const bool *is_wanted) {
  for (size_t o = 0; o < r->e->outputs.count; ++o) {
    int node = r->e->outputs.data[o].node;
    r->program->outputs[o] = -1;
    if (node >= 0 && (is_wanted == NULL || is_wanted[o])) {
      r->program->outputs[o] = finish_output(r, r->value_of[node]);
      if (r->program->outputs[o] < 0) {
        return hr__expr_too_large(r->e, r->e->text);
      }
    }
  }
  return HR_OK;
}

hr_status hr__expr_resolve(const hr_expression *e, hr_dtype t, const hr_view *inputs, int rank, const int64_t *dims,
                           const bool *is_wanted, hr_expr_program *out_program) {
  memset(out_program, 0, sizeof *out_program);
  HR_RETURN_IF_ERROR(check_t(e, t));
  resolver r = {.e = e, .program = out_program, .inputs = inputs, .t = t, .rank = rank, .dims = dims};
  r.value_of = hr_malloc((e->nodes.count + 1) * sizeof *r.value_of);
  bool *needed = hr_calloc(e->nodes.count + 1, sizeof *needed);
  hr_status status = HR_OK;
  if (r.value_of == NULL || needed == NULL) {
    status = hr__expr_too_large(e, e->text);
    goto done;
  }
  mark_needed(e, is_wanted, needed);
  status = resolve_nodes(&r, needed);
  if (status == HR_OK) {
    status = resolve_outputs(&r, is_wanted);
  }
done:
  hr_free(needed);
  hr_free(r.value_of);
  if (status != HR_OK) {
    hr__expr_program_fini(out_program);
  }
  return status;
}

void hr__expr_program_fini(hr_expr_program *program) {
  hr_vector_fini(&program->values);
}

hr_status hr_expression_check(const hr_expression *expression, hr_dtype t) {
  hr_expr_program program;
  HR_RETURN_IF_ERROR(hr__expr_resolve(expression, t, NULL, 0, NULL, NULL, &program));
  hr__expr_program_fini(&program);
  return HR_OK;
}

/* ---- printing ---- */

static void print_value(hr_text *out, const hr_expr_value *v) {
  const char *dtype = hr_dtype_name(v->dtype);
  if (v->kind == HR_EXPR_VIEW) {
    hr_text_printf(out, "input %d %s", v->input, dtype);
  } else if (v->kind == HR_EXPR_PLACE) {
    hr_text_printf(out, "place %d", v->dim);
  } else if (v->kind == HR_EXPR_ROW) {
    hr_text_printf(out, "row %s %s", hr_op_table(v->op)->name, dtype);
    for (int i = 0; i < v->operand_count; ++i) {
      hr_text_printf(out, " %d", v->operands[i]);
    }
  } else if (v->input >= 0) {
    hr_text_printf(out, "number %d %s%s", v->input, dtype, v->is_negated ? " negated" : "");
  } else if (v->number.dtype == HR_DTYPE_F64) {
    hr_text_printf(out, "literal %.17g %s", v->number.value.f[0], dtype);
  } else {
    hr_text_printf(out, "literal %lld %s", (long long)v->number.value.i, dtype);
  }
  hr_text_char(out, '\n');
}

hr_status hr_expression_print(const hr_expression *expression, hr_dtype t, uint64_t numbers, int rank,
                              const int64_t *dims, char *buffer, size_t bytes, size_t *out_length) {
  hr_view inputs[HR_EXPRESSION_INPUTS_MAX] = {{0}};
  const hr_scalar zero = hr_scalar_f64(0);
  for (size_t i = 0; i < expression->inputs.count; ++i) {
    hr_dtype dtype = expression->inputs.data[i].dtype;
    inputs[i].dtype = dtype == HR_DTYPE_NONE ? t : dtype;
    inputs[i].scalar = numbers >> i & 1 ? &zero : NULL;
  }
  hr_expr_program program;
  HR_RETURN_IF_ERROR(hr__expr_resolve(expression, t, inputs, rank, dims, NULL, &program));
  hr_text text = {0};
  for (size_t v = 0; v < program.values.count; ++v) {
    print_value(&text, &program.values.data[v]);
  }
  hr_text_append(&text, "outputs");
  for (size_t o = 0; o < expression->outputs.count; ++o) {
    hr_text_printf(&text, " %d", program.outputs[o]);
  }
  *out_length = text.length;
  if (bytes > 0) {
    size_t shown = text.length < bytes ? text.length : bytes - 1;
    memcpy(buffer, hr_text_chars(&text), shown);
    buffer[shown] = '\0';
  }
  hr_status status = hr_text_status(&text);
  hr_text_fini(&text);
  hr__expr_program_fini(&program);
  return status;
}
