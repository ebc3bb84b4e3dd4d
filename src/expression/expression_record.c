/* expression_record.c: records of an expression's rows, and instances. See headrace/expression.h.
 *
 * Temporaries have the outputs' dims and strides. Only the stream holds them afterwards, so they get no memory. A
 * conversion of a row's result to a narrower dtype of the same class is part of the row.
 */
#include <string.h>

#include "core/ir/dtype.h"
#include "core/ops/op.h"
#include "expression/expression_types.h"

/* A number of each run: the captured scalar, and the input that it comes from. */
typedef struct argument {
  int64_t scalar;
  int input;
  bool is_negated;
} argument;

typedef HR_VECTOR(argument) argument_vector;

typedef struct recorder {
  hr_stream *stream;
  hr_device *device;
  const hr_expression *e;
  hr_dtype t;
  const hr_view *inputs, *outputs;
  hr_expr_program program;
  int *uses;         /* of each value */
  hr_view *views;    /* of each row and place; buffer NULL: not made */
  hr_buffer **owned; /* temporaries: a reference each */
  int rank;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX], row_major[HR_RANK_MAX];
  int64_t (*place_strides)[HR_RANK_MAX]; /* of places */
  size_t extent, elements;               /* of a temporary; of an output */
  argument_vector *arguments;            /* not NULL while an instance is captured */
} recorder;

/* ---- operands ---- */

static bool is_wanted(const hr_view *view) {
  return view->buffer != NULL || view->dtype != HR_DTYPE_NONE;
}

static const hr_view *first_output(const recorder *r) {
  for (size_t o = 0; o < r->e->outputs.count; ++o) {
    if (is_wanted(&r->outputs[o]) && r->e->outputs.data[o].node >= 0) {
      return &r->outputs[o];
    }
  }
  return NULL;
}

static hr_status check_output(const recorder *r, size_t o) {
  const hr_view *view = &r->outputs[o];
  hr_dtype wanted = r->e->outputs.data[o].dtype == HR_DTYPE_NONE ? r->t : r->e->outputs.data[o].dtype;
  if (view->dtype != wanted) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "expression: output %s is %s, expected %s",
                          r->e->outputs.data[o].name, hr_dtype_name(view->dtype), hr_dtype_name(wanted));
  }
  bool is_same = view->rank == r->rank;
  for (int d = 0; is_same && d < r->rank; ++d) {
    is_same = view->dims[d] == r->dims[d];
  }
  return is_same ? HR_OK
                 : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "expression: output %s has other dims than the first one",
                                  r->e->outputs.data[o].name);
}

static hr_status check_input(const recorder *r, size_t i) {
  const hr_view *view = &r->inputs[i];
  const hr_expr_variable *variable = &r->e->inputs.data[i];
  if (view->scalar != NULL) {
    return HR_OK;
  }
  if (variable->dtype != HR_DTYPE_NONE && view->dtype != variable->dtype) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "expression: input %s is %s, expected %s", variable->name,
                          hr_dtype_name(view->dtype), hr_dtype_name(variable->dtype));
  }
  bool fits = view->rank <= r->rank;
  for (int d = 1; fits && d <= view->rank; ++d) {
    int64_t own = view->dims[view->rank - d];
    fits = own == 1 || own == r->dims[r->rank - d];
  }
  return fits ? HR_OK
              : hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                               "expression: the dims of input %s can't be broadcast to those of the outputs",
                               variable->name);
}

/* The dims and strides of temporaries: the first output's, if it has no gaps. */
static hr_status find_dims(recorder *r) {
  const hr_view *first = first_output(r);
  if (first == NULL) {
    return HR_OK;
  }
  r->rank = first->rank;
  if (r->rank < 0 || r->rank > HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "expression: expected at most %d dims, found %d",
                          (int)HR_RANK_MAX, r->rank);
  }
  size_t count = 1, last = 0;
  bool is_forward = true;
  for (int d = r->rank - 1; d >= 0; --d) {
    r->dims[d] = first->dims[d];
    r->row_major[d] = (int64_t)count;
    count *= (size_t)(first->dims[d] > 0 ? first->dims[d] : 0);
    is_forward &= first->strides[d] > 0;
    last += first->dims[d] > 0 ? (size_t)(first->dims[d] - 1) * (size_t)first->strides[d] : 0;
  }
  memcpy(r->strides, is_forward && last + 1 == count ? first->strides : r->row_major,
         (size_t)r->rank * sizeof *r->strides);
  r->elements = r->extent = count;
  for (size_t o = 0; o < r->e->outputs.count; ++o) {
    if (is_wanted(&r->outputs[o])) {
      HR_RETURN_IF_ERROR(check_output(r, o));
    }
  }
  for (size_t i = 0; i < r->e->inputs.count; ++i) {
    HR_RETURN_IF_ERROR(check_input(r, i));
  }
  return HR_OK;
}

/* True if the output's buffer is that of an input or of an earlier output. */
static bool shares_memory(const recorder *r, size_t output) {
  const hr_buffer *buffer = r->outputs[output].buffer;
  for (size_t i = 0; i < r->e->inputs.count; ++i) {
    if (r->inputs[i].buffer == buffer && buffer != NULL) {
      return true;
    }
  }
  for (size_t o = 0; o < output; ++o) {
    if (r->outputs[o].buffer == buffer && buffer != NULL) {
      return true;
    }
  }
  return false;
}

/* ---- rows ---- */

static void count_uses(recorder *r) {
  for (size_t v = 0; v < r->program.values.count; ++v) {
    const hr_expr_value *value = &r->program.values.data[v];
    for (int i = 0; i < value->operand_count; ++i) {
      ++r->uses[value->operands[i]];
    }
  }
  for (size_t o = 0; o < r->e->outputs.count; ++o) {
    if (r->program.outputs[o] >= 0) {
      ++r->uses[r->program.outputs[o]];
    }
  }
}

/* Makes the row compute in the dtype of its only reader, a copy. */
static void fold_conversions(recorder *r) {
  for (size_t v = 0; v < r->program.values.count; ++v) {
    hr_expr_value *copy = &r->program.values.data[v];
    if (copy->kind != HR_EXPR_ROW || copy->op != HR_OP_COPY || copy->dtype == HR_DTYPE_BOOL) {
      continue;
    }
    hr_expr_value *row = &r->program.values.data[copy->operands[0]];
    hr_op_rule rule = hr_op_table(row->op)->rule;
    bool shifts = row->op == HR_OP_SHIFT_LEFT || row->op == HR_OP_SHIFT_RIGHT; /* by the width of their dtype */
    bool computes = row->kind == HR_EXPR_ROW && (rule == HR_RULE_SAME || rule == HR_RULE_WHERE) && !shifts;
    if (computes && r->uses[copy->operands[0]] == 1 && !hr_dtype_is_narrow(row->dtype) &&
        hr_dtype_class(row->dtype) == hr_dtype_arithmetic_class(copy->dtype)) {
      r->uses[copy->operands[0]] = 0;
      hr_expr_value folded = *row;
      folded.dtype = copy->dtype;
      *copy = folded;
    }
  }
}

static hr_status make_temporary(recorder *r, size_t value, size_t elements) {
  hr_view *view = &r->views[value];
  view->dtype = r->program.values.data[value].dtype;
  view->rank = r->rank;
  view->dims = r->dims;
  view->strides = r->strides;
  HR_RETURN_IF_ERROR(hr_buffer_create(r->device, elements * hr_dtype_size(view->dtype), &r->owned[value]));
  view->buffer = r->owned[value];
  return HR_OK;
}

/* A captured number of the record that follows, the k-th of its numbers. */
static bool note_number(recorder *r, const hr_expr_value *value, int64_t scalar) {
  if (r->arguments == NULL || value->input < 0) {
    return true;
  }
  argument made = {.scalar = scalar, .input = value->input, .is_negated = value->is_negated};
  return hr_vector_push(r->arguments, made);
}

static hr_status record_row(recorder *r, const hr_expr_value *value, const hr_view *output) {
  hr_view operands[HR_EXPR_OPERANDS_MAX];
  int64_t scalar = r->arguments != NULL ? hr_capture_scalar_count(r->stream) : 0;
  for (int i = 0; i < value->operand_count; ++i) {
    const hr_expr_value *operand = &r->program.values.data[value->operands[i]];
    if (operand->kind == HR_EXPR_NUMBER) {
      operands[i] = (hr_view){.scalar = &operand->number, .dtype = operand->number.dtype};
      if (!note_number(r, operand, scalar++)) {
        return hr__expr_too_large(r->e, r->e->text);
      }
    } else {
      operands[i] = operand->kind == HR_EXPR_VIEW ? r->inputs[operand->input] : r->views[value->operands[i]];
    }
  }
  return hr_stream_record(r->stream, value->op, NULL, value->operand_count, operands, 1, output);
}

/* Indices: a row of numbers, which is read by dim `dim` alone. */
static hr_status record_place(recorder *r, size_t index, const hr_expr_value *value) {
  int64_t count = value->dim < 0 ? (int64_t)r->elements : r->dims[value->dim], step = 1;
  HR_RETURN_IF_ERROR(make_temporary(r, index, (size_t)count));
  hr_view output = r->views[index];
  output.rank = 1;
  output.dims = &count;
  output.strides = &step;
  for (int d = 0; d < r->rank; ++d) {
    r->place_strides[index][d] = value->dim < 0 ? r->row_major[d] : d == value->dim;
  }
  r->views[index].strides = r->place_strides[index];
  const hr_scalar scalars[2] = {hr_scalar_i64(0), hr_scalar_i64(1)};
  const hr_attrs attrs = {.scalar_count = 2, .scalars = scalars};
  return hr_stream_record(r->stream, HR_OP_ARANGE, &attrs, 0, NULL, 1, &output);
}

/* The output that a row may write directly; -1: a temporary. */
static int direct_output(const recorder *r, size_t value) {
  for (size_t o = 0; o < r->e->outputs.count; ++o) {
    if (r->program.outputs[o] == (int)value && !shares_memory(r, o)) {
      return (int)o;
    }
  }
  return -1;
}

static hr_status record_value(recorder *r, size_t index) {
  const hr_expr_value *value = &r->program.values.data[index];
  if (r->uses[index] == 0 || value->kind == HR_EXPR_VIEW || value->kind == HR_EXPR_NUMBER) {
    return HR_OK;
  }
  if (value->kind == HR_EXPR_PLACE) {
    return record_place(r, index, value);
  }
  int output = direct_output(r, index);
  if (output >= 0) {
    r->views[index] = r->outputs[output];
  } else {
    HR_RETURN_IF_ERROR(make_temporary(r, index, r->extent));
  }
  return record_row(r, value, &r->views[index]);
}

/* Outputs that no row wrote directly. */
static hr_status copy_outputs(recorder *r) {
  for (size_t o = 0; o < r->e->outputs.count; ++o) {
    int value = r->program.outputs[o];
    if (value >= 0 && direct_output(r, (size_t)value) != (int)o) {
      HR_RETURN_IF_ERROR(hr_stream_record(r->stream, HR_OP_COPY, NULL, 1, &r->views[value], 1, &r->outputs[o]));
    }
  }
  return HR_OK;
}

static hr_status record_all(recorder *r) {
  size_t count = r->program.values.count;
  r->uses = hr_calloc(count + 1, sizeof *r->uses);
  r->views = hr_calloc(count + 1, sizeof *r->views);
  r->owned = hr_calloc(count + 1, sizeof *r->owned);
  r->place_strides = hr_calloc(count + 1, sizeof *r->place_strides);
  if (r->uses == NULL || r->views == NULL || r->owned == NULL || r->place_strides == NULL) {
    return hr__expr_too_large(r->e, r->e->text);
  }
  count_uses(r);
  fold_conversions(r);
  for (size_t v = 0; v < count; ++v) {
    HR_RETURN_IF_ERROR(record_value(r, v));
  }
  return copy_outputs(r);
}

static void fini(recorder *r) {
  for (size_t v = 0; r->owned != NULL && v < r->program.values.count; ++v) {
    hr_buffer_release(r->owned[v]);
  }
  hr_free(r->uses);
  hr_free(r->views);
  hr_free(r->owned);
  hr_free(r->place_strides);
  hr__expr_program_fini(&r->program);
}

static hr_status record(recorder *r) {
  HR_RETURN_IF_ERROR(find_dims(r));
  if (r->elements == 0) {
    return HR_OK;
  }
  bool wanted[HR_EXPRESSION_OUTPUTS_MAX];
  for (size_t o = 0; o < r->e->outputs.count; ++o) {
    wanted[o] = is_wanted(&r->outputs[o]);
  }
  HR_RETURN_IF_ERROR(hr__expr_resolve(r->e, r->t, r->inputs, r->rank, r->dims, wanted, &r->program));
  hr_status status = record_all(r);
  fini(r);
  return status;
}

hr_status hr_expression_record(hr_stream *stream, const hr_expression *expression, hr_dtype t, const hr_view *inputs,
                               const hr_view *outputs) {
  recorder r = {.stream = stream, .e = expression, .t = t, .inputs = inputs, .outputs = outputs};
  const hr_view *first = first_output(&r);
  if (first == NULL) {
    return HR_OK;
  }
  r.device = hr_buffer_device(first->buffer);
  return record(&r);
}

/* ---- instances ---- */

struct hr_expression_instance {
  hr_part *part;
  int param_count, result_count, argument_count;
  int params[HR_EXPRESSION_INPUTS_MAX], results[HR_EXPRESSION_OUTPUTS_MAX]; /* which inputs and outputs */
  argument *arguments;
};

/* A buffer for the elements of a view. */
static hr_status make_placeholder(hr_device *device, hr_view *view) {
  int64_t last = view->offset;
  for (int d = 0; d < view->rank; ++d) {
    last += view->dims[d] > 0 && view->strides[d] > 0 ? (view->dims[d] - 1) * view->strides[d] : 0;
  }
  return hr_buffer_create(device, (size_t)(last + 1) * hr_dtype_size(view->dtype), &view->buffer);
}

typedef struct capture {
  hr_stream *stream;
  hr_view inputs[HR_EXPRESSION_INPUTS_MAX], outputs[HR_EXPRESSION_OUTPUTS_MAX];
  argument_vector arguments;
} capture;

static hr_status make_placeholders(hr_device *device, const hr_expression *e, capture *c,
                                   hr_expression_instance *instance) {
  for (size_t i = 0; i < e->inputs.count; ++i) {
    if (c->inputs[i].scalar == NULL && e->used[e->inputs.data[i].node]) {
      HR_RETURN_IF_ERROR(make_placeholder(device, &c->inputs[i]));
      instance->params[instance->param_count++] = (int)i;
    }
  }
  for (size_t o = 0; o < e->outputs.count; ++o) {
    if (is_wanted(&c->outputs[o]) && e->outputs.data[o].node >= 0) {
      HR_RETURN_IF_ERROR(make_placeholder(device, &c->outputs[o]));
      instance->results[instance->result_count++] = (int)o;
    }
  }
  return HR_OK;
}

static hr_status make_part(capture *c, hr_expression_instance *instance) {
  hr_buffer *params[HR_EXPRESSION_INPUTS_MAX], *results[HR_EXPRESSION_OUTPUTS_MAX];
  for (int i = 0; i < instance->param_count; ++i) {
    params[i] = c->inputs[instance->params[i]].buffer;
  }
  for (int o = 0; o < instance->result_count; ++o) {
    results[o] = c->outputs[instance->results[o]].buffer;
  }
  size_t count = c->arguments.count;
  int64_t *scalars = hr_malloc((count + 1) * sizeof *scalars);
  if (scalars == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for an expression");
  }
  for (size_t i = 0; i < count; ++i) {
    scalars[i] = c->arguments.data[i].scalar;
  }
  hr_part_spec spec = {.param_count = instance->param_count,
                       .result_count = instance->result_count,
                       .argument_count = (int)count,
                       .params = params,
                       .results = results,
                       .arguments = scalars};
  hr_status status = hr_part_create(c->stream, &spec, &instance->part);
  hr_free(scalars);
  if (status == HR_OK) {
    instance->argument_count = (int)count;
    instance->arguments = c->arguments.data;
    memset(&c->arguments, 0, sizeof c->arguments);
  }
  return status;
}

static void fini_capture(capture *c, const hr_expression *e) {
  for (size_t i = 0; i < e->inputs.count; ++i) {
    hr_buffer_release(c->inputs[i].buffer);
  }
  for (size_t o = 0; o < e->outputs.count; ++o) {
    hr_buffer_release(c->outputs[o].buffer);
  }
  hr_vector_fini(&c->arguments);
  hr_stream_release(c->stream);
}

static void copy_views(hr_view *to, const hr_view *from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = from[i];
    to[i].buffer = NULL;
  }
}

hr_status hr_expression_instance_create(hr_device *device, const hr_expression *expression, hr_dtype t,
                                        const hr_view *inputs, const hr_view *outputs,
                                        hr_expression_instance **out_instance) {
  hr_expression_instance *instance = hr_calloc(1, sizeof *instance);
  if (instance == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for an expression");
  }
  capture c = {0};
  copy_views(c.inputs, inputs, expression->inputs.count);
  copy_views(c.outputs, outputs, expression->outputs.count);
  hr_status status = hr_capture_create(device, &c.stream);
  if (status == HR_OK) {
    status = make_placeholders(device, expression, &c, instance);
  }
  if (status == HR_OK) {
    recorder r = {.stream = c.stream,
                  .device = device,
                  .e = expression,
                  .t = t,
                  .inputs = c.inputs,
                  .outputs = c.outputs,
                  .arguments = &c.arguments};
    status = record(&r);
  }
  if (status == HR_OK) {
    status = make_part(&c, instance);
  }
  fini_capture(&c, expression);
  if (status != HR_OK) {
    hr_expression_instance_destroy(instance);
    return status;
  }
  *out_instance = instance;
  return HR_OK;
}

void hr_expression_instance_destroy(hr_expression_instance *instance) {
  if (instance != NULL) {
    hr_part_release(instance->part);
    hr_free(instance->arguments);
    hr_free(instance);
  }
}

hr_status hr_expression_instance_run(hr_stream *stream, const hr_expression_instance *instance,
                                     hr_buffer *const *inputs, hr_buffer *const *outputs, const hr_scalar *numbers) {
  enum { FEW = 64 };
  hr_buffer *params[HR_EXPRESSION_INPUTS_MAX], *results[HR_EXPRESSION_OUTPUTS_MAX];
  hr_scalar few[FEW], *scalars = few;
  few[0] = (hr_scalar){0}; /* there may be none */
  for (int i = 0; i < instance->param_count; ++i) {
    params[i] = inputs[instance->params[i]];
  }
  for (int o = 0; o < instance->result_count; ++o) {
    results[o] = outputs[instance->results[o]];
  }
  if (instance->argument_count > FEW &&
      (scalars = hr_malloc((size_t)instance->argument_count * sizeof *scalars)) == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for an expression");
  }
  for (int i = 0; i < instance->argument_count; ++i) {
    const argument *a = &instance->arguments[i];
    scalars[i] = numbers[a->input];
    if (a->is_negated) {
      scalars[i].value.f[0] = -scalars[i].value.f[0];
    }
  }
  hr_status status = hr_part_run(stream, instance->part, params, results, scalars);
  if (scalars != few) {
    hr_free(scalars);
  }
  return status;
}
