/* expression_gradient.c: the gradient of an expression, by the rules of functions.def.
 *
 *   y = x * l      inputs x, l, gy     outputs gx = gy * l, gl = gy * x
 *
 * From the last node to the first, a node's gradient is the sum of what its readers give it. Nodes that depend on no
 * floating input have none.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/ir/dtype.h"
#include "expression/expression_nodes.h"

typedef struct differentiator {
  const hr_expression *from;
  hr_expression *e;
  int *gradient;   /* of each node of `from`; -1: 0 */
  bool *is_active; /* it depends on a floating input */
} differentiator;

static bool is_floating(hr_dtype dtype) {
  return dtype == HR_DTYPE_NONE || hr_dtype_is_real(dtype);
}

/* ---- inputs and outputs ---- */

static hr_status name_gradient(const hr_expression *e, const hr_expr_variable *of, hr_expr_variable *out_variable) {
  *out_variable = *of;
  out_variable->node = -1;
  out_variable->has_type = true;
  if (snprintf(out_variable->name, HR_EXPR_NAME_MAX, "g%s", of->name) >= HR_EXPR_NAME_MAX) {
    return hr__expr_error(HR_STATUS_INVALID_ARGUMENT, "expression", e->text, 1,
                          "expected names of at most 62 characters for a gradient, found %s", of->name);
  }
  return HR_OK;
}

/* The gradients of outputs become inputs; returns the first one. Forward outputs become temporaries. */
static hr_status add_gradient_inputs(hr_expression *e) {
  for (size_t o = 0; o < e->outputs.count; ++o) {
    hr_expr_variable made, *output = &e->outputs.data[o];
    if (is_floating(output->dtype)) {
      HR_RETURN_IF_ERROR(name_gradient(e, output, &made));
      hr_expr_node node = {.kind = HR_EXPR_INPUT,
                           .dtype = made.dtype,
                           .operands = {-1, -1, -1},
                           .number = (int64_t)e->inputs.count,
                           .column = 1};
      if (e->inputs.count >= HR_EXPRESSION_INPUTS_MAX) {
        return hr__expr_error(HR_STATUS_INVALID_ARGUMENT, "expression", e->text, 1,
                              "expected at most %d inputs and outputs for a gradient", (int)HR_EXPRESSION_INPUTS_MAX);
      }
      made.node = hr__expr_add(e, &node);
      if (made.node < 0 || !hr_vector_push(&e->inputs, made)) {
        return hr__expr_too_large(e, e->text);
      }
    }
    if (!hr_vector_push(&e->temporaries, *output)) {
      return hr__expr_too_large(e, e->text);
    }
  }
  e->outputs.count = 0;
  return HR_OK;
}

static hr_status add_gradient_outputs(hr_expression *e, const hr_expression *from) {
  for (size_t i = 0; i < from->inputs.count; ++i) {
    hr_expr_variable made;
    if (is_floating(from->inputs.data[i].dtype)) {
      HR_RETURN_IF_ERROR(name_gradient(e, &from->inputs.data[i], &made));
      if (!hr_vector_push(&e->outputs, made)) {
        return hr__expr_too_large(e, e->text);
      }
    }
  }
  return HR_OK;
}

/* ---- derivatives ---- */

static bool can_pass(const hr_expr_node *node, int operand) {
  if (node->kind == HR_EXPR_APPLY) {
    return *hr__expr_row(node->function)->gradients[operand] != '\0';
  }
  return node->kind == HR_EXPR_CAST && is_floating(node->dtype);
}

static void find_active(differentiator *d) {
  for (size_t n = 0; n < d->from->nodes.count; ++n) {
    const hr_expr_node *node = &d->from->nodes.data[n];
    d->is_active[n] = node->kind == HR_EXPR_INPUT && is_floating(node->dtype);
    for (int i = 0; i < HR_EXPR_OPERANDS_MAX && node->operands[i] >= 0; ++i) {
      d->is_active[n] |= d->is_active[node->operands[i]] && can_pass(node, i);
    }
  }
}

static hr_status add_to(differentiator *d, int node, int gradient) {
  if (d->gradient[node] >= 0) {
    const int operands[2] = {d->gradient[node], gradient};
    gradient = hr__expr_apply(d->e, HR_EXPR_ADD, operands, d->from->nodes.data[node].column);
  }
  d->gradient[node] = gradient;
  return gradient >= 0 ? HR_OK : hr__expr_too_large(d->e, d->from->text);
}

static hr_status pass_gradient(differentiator *d, int n, int operand) {
  const hr_expr_node node = d->from->nodes.data[n];
  int gradient = d->gradient[n];
  if (node.kind == HR_EXPR_APPLY) {
    const hr_expr_row *row = hr__expr_row(node.function);
    const int values[5] = {node.operands[0], node.operands[1], node.operands[2], n, d->gradient[n]};
    if (*row->gradients[operand] == '?') {
      return hr__expr_error(HR_STATUS_UNIMPLEMENTED, "expression", d->from->text, node.column,
                            "the derivative of %s is not known: pass a text for the gradient", row->name);
    }
    HR_RETURN_IF_ERROR(hr__expr_parse_rule(d->e, row->gradients[operand], values, node.column, &gradient));
  }
  return add_to(d, node.operands[operand], gradient);
}

static hr_status start_from_outputs(differentiator *d) {
  size_t input = d->from->inputs.count;
  for (size_t o = 0; o < d->from->outputs.count; ++o) {
    if (is_floating(d->from->outputs.data[o].dtype)) {
      int node = d->from->outputs.data[o].node, given = d->e->inputs.data[input++].node;
      if (node >= 0) { /* an output of a gradient may be 0 */
        HR_RETURN_IF_ERROR(add_to(d, node, given));
      }
    }
  }
  return HR_OK;
}

static hr_status derive(differentiator *d) {
  find_active(d);
  HR_RETURN_IF_ERROR(start_from_outputs(d));
  for (int n = (int)d->from->nodes.count - 1; n >= 0; --n) {
    const hr_expr_node *node = &d->from->nodes.data[n];
    for (int i = 0; d->gradient[n] >= 0 && i < HR_EXPR_OPERANDS_MAX && node->operands[i] >= 0; ++i) {
      if (d->is_active[node->operands[i]] && can_pass(node, i)) {
        HR_RETURN_IF_ERROR(pass_gradient(d, n, i));
      }
    }
  }
  size_t output = 0;
  for (size_t i = 0; i < d->from->inputs.count; ++i) {
    const hr_expr_variable *input = &d->from->inputs.data[i];
    if (is_floating(input->dtype)) {
      hr_expr_variable *target = &d->e->outputs.data[output++];
      int gradient = d->gradient[input->node];
      target->node = gradient < 0 ? -1 : hr__expr_cast(d->e, gradient, target->dtype, 1);
    }
  }
  return HR_OK;
}

static hr_status derive_all(const hr_expression *from, hr_expression *e) {
  differentiator d = {.from = from, .e = e};
  d.gradient = hr_malloc((from->nodes.count + 1) * sizeof *d.gradient);
  d.is_active = hr_calloc(from->nodes.count + 1, sizeof *d.is_active);
  hr_status status = HR_OK;
  if (d.gradient == NULL || d.is_active == NULL) {
    status = hr__expr_too_large(e, from->text);
  } else {
    memset(d.gradient, -1, (from->nodes.count + 1) * sizeof *d.gradient);
    status = derive(&d);
  }
  hr_free(d.gradient);
  hr_free(d.is_active);
  return status;
}

/* ---- the text of a gradient ---- */

static hr_status parse_gradient(hr_expression *e, const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = hr_malloc(bytes);
  if (copy == NULL) {
    return hr__expr_too_large(NULL, text);
  }
  memcpy(copy, text, bytes);
  hr_free(e->text); /* later messages are about this one: the forward text is checked */
  e->text = copy;
  HR_RETURN_IF_ERROR(hr__expr_parse_text(e, copy));
  for (size_t o = 0; o < e->outputs.count; ++o) {
    if (e->outputs.data[o].node >= 0) {
      return HR_OK;
    }
  }
  return hr__expr_error(HR_STATUS_INVALID_ARGUMENT, "expression", text, INT_MAX,
                        "expected an assignment to the gradient of an input, %s, found the end",
                        e->outputs.count > 0 ? e->outputs.data[0].name : "of which none is floating");
}

hr_status hr_expression_gradient(const hr_expression *expression, const char *text, hr_expression **out_gradient) {
  HR_RETURN_IF_ERROR(text != NULL ? hr__expr_check_length(text) : HR_OK);
  hr_expression *e = hr__expr_copy(expression);
  if (e == NULL) {
    return hr__expr_too_large(NULL, expression->text);
  }
  hr_status status = add_gradient_inputs(e);
  if (status == HR_OK) {
    status = add_gradient_outputs(e, expression);
  }
  if (status == HR_OK) {
    status = text != NULL ? parse_gradient(e, text) : derive_all(expression, e);
  }
  return hr__expr_finish(e, status, out_gradient);
}
