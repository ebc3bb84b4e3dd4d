/* module_record.c: records runs of kernels, as HR_OP_CALL. */
#include <math.h>
#include <string.h>

#include "core/ir/dtype.h"
#include "core/ir/program.h"
#include "core/ops/call.h"
#include "engine/host_view.h"
#include "module/module_internal.h"

enum { DIMS = 3 };
static const int64_t THREADS_MOST = (int64_t)1 << 48;

/* A run: the operands in the order of the row. */
typedef struct run {
  const hr__module_head *head;
  const hr_function *function;
  int input_count, output_count, updated_count, scalar_count;
  hr_view inputs[HR_MODULE_PARAMETERS_MAX], outputs[HR_MODULE_PARAMETERS_MAX];
  hr_scalar scalars[HR_MODULE_PARAMETERS_MAX];
} run;

/* ---- numbers ---- */

static hr_status refuse_number(const run *r, const hr__module_parameter *p, const hr_scalar *number) {
  const char *dtype = hr__module_type(p->dtype);
  if (number->dtype == HR_DTYPE_F64 || number->dtype == HR_DTYPE_C128) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "kernel %s, parameter %s: expected a number of type %s, found %g%s", r->head->name, p->name,
                          dtype, number->value.f[0], number->dtype == HR_DTYPE_C128 ? " + ... i" : "");
  }
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "kernel %s, parameter %s: expected a number of type %s, found %lld",
                        r->head->name, p->name, dtype, (long long)number->value.i);
}

/* The range of the smaller integers. */
static bool is_in_range(hr_dtype dtype, int64_t value) {
  int bits = 8 * (int)hr_dtype_size(dtype);
  bool is_unsigned = dtype == HR_DTYPE_U8 || dtype == HR_DTYPE_U16 || dtype == HR_DTYPE_U32;
  int64_t most = ((int64_t)1 << (is_unsigned ? bits : bits - 1)) - 1;
  return value <= most && value >= (is_unsigned ? 0 : -most - 1);
}

/* Of the parameter's type, or an error: a number is not rounded to an integer, and does not wrap. */
static hr_status convert_number(const run *r, const hr__module_parameter *p, const hr_scalar *number,
                                hr_scalar *out_number) {
  if (number->dtype == HR_DTYPE_C128) {
    return refuse_number(r, p, number);
  }
  if (hr_dtype_is_real(p->dtype)) {
    double value = number->dtype == HR_DTYPE_F64   ? number->value.f[0]
                   : number->dtype == HR_DTYPE_U64 ? (double)(uint64_t)number->value.i
                                                   : (double)number->value.i;
    *out_number = hr_scalar_f64(value);
    return HR_OK;
  }
  *out_number = *number;
  if (number->dtype == HR_DTYPE_F64) {
    double value = number->value.f[0];
    if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0) || value != trunc(value)) {
      return refuse_number(r, p, number);
    }
    *out_number = hr_scalar_i64((int64_t)value);
  }
  int64_t value = out_number->value.i;
  bool is_large = number->dtype == HR_DTYPE_U64 && value < 0;
  bool fits = p->dtype == HR_DTYPE_BOOL  ? true
              : p->dtype == HR_DTYPE_U64 ? is_large || value >= 0
              : p->dtype == HR_DTYPE_I64 ? !is_large
                                         : !is_large && is_in_range(p->dtype, value);
  if (!fits) {
    return refuse_number(r, p, number);
  }
  *out_number = p->dtype == HR_DTYPE_BOOL ? hr_scalar_bool(value != 0) : hr_scalar_i64(value);
  return HR_OK;
}

/* ---- operands ---- */

static hr_status check_operand(const run *r, const hr__module_parameter *p, const hr_view *view) {
  if (view->buffer == NULL || view->dtype != p->dtype) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "kernel %s, parameter %s: expected a tensor of %s, found %s%s",
                          r->head->name, p->name, hr_dtype_name(p->dtype), view->buffer == NULL ? "" : "a tensor of ",
                          view->buffer != NULL   ? hr_dtype_name(view->dtype)
                          : view->scalar != NULL ? "a number"
                                                 : "none");
  }
  return HR_OK;
}

static hr_status take(run *r, const hr__module_parameter *p, const hr_view *view) {
  if (p->kind == HR_PARAMETER_NUMBER) {
    if (view->buffer != NULL || view->scalar == NULL) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                            "kernel %s, parameter %s: expected a number of type %s, found %s", r->head->name, p->name,
                            hr__module_type(p->dtype), view->buffer != NULL ? "a tensor" : "none");
    }
    return convert_number(r, p, view->scalar, &r->scalars[r->scalar_count++]);
  }
  HR_RETURN_IF_ERROR(check_operand(r, p, view));
  if (p->kind != HR_PARAMETER_OUT) {
    r->inputs[r->input_count++] = *view;
  }
  if (p->kind != HR_PARAMETER_IN) {
    r->outputs[r->output_count++] = *view;
  }
  r->updated_count += p->kind == HR_PARAMETER_INOUT;
  return HR_OK;
}

/* Updated operands first, then the others. */
static hr_status take_all(run *r, const hr_view *arguments) {
  for (int others = 0; others < 2; ++others) {
    for (int p = 0; p < r->head->parameter_count; ++p) {
      const hr__module_parameter *parameter = &r->head->parameters[p];
      if ((parameter->kind != HR_PARAMETER_INOUT) == others) {
        HR_RETURN_IF_ERROR(take(r, parameter, &arguments[p]));
      }
    }
  }
  return HR_OK;
}

static hr_operand operand_of(const hr_view *view) {
  return (hr_operand){.kind = HR_OPERAND_VALUE,
                      .dtype = view->dtype,
                      .rank = view->rank,
                      .offset = view->offset,
                      .dims = view->dims,
                      .strides = view->strides,
                      .fill = HR_NO_SCALAR};
}

bool hr__views_share_memory(int count, const hr_view *views, int *out_first, int *out_second) {
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < i; ++j) {
      hr_operand a = operand_of(&views[i]), b = operand_of(&views[j]);
      if (views[i].buffer == views[j].buffer && hr_operands_may_overlap(&a, &b)) {
        *out_first = j, *out_second = i;
        return true;
      }
    }
  }
  return false;
}

static hr_status check_outputs(const run *r) {
  int first, second;
  return !hr__views_share_memory(r->output_count, r->outputs, &first, &second)
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "kernel %s: outputs %s and %s share memory", r->head->name,
                              r->function->output_names[first], r->function->output_names[second]);
}

/* ---- the grid ---- */

static hr_status check_sizes(const run *r, const char *what, const int64_t *sizes, int64_t *out_sizes) {
  int64_t product = 1;
  for (int d = 0; d < DIMS; ++d) {
    if (sizes[d] < 0 || sizes[d] > THREADS_MOST || (sizes[d] > 0 && product > THREADS_MOST / sizes[d])) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "kernel %s: %s (%lld, %lld, %lld): expected 0 to 2^48 in all",
                            r->head->name, what, (long long)sizes[0], (long long)sizes[1], (long long)sizes[2]);
    }
    product *= sizes[d] > 0 ? sizes[d] : 1;
    out_sizes[d] = sizes[d];
  }
  return HR_OK;
}

/* The first operand that is written, in the order of the parameters. */
static int64_t count_elements(const run *r, const hr_view *arguments) {
  int p = 0;
  while (r->head->parameters[p].kind != HR_PARAMETER_OUT && r->head->parameters[p].kind != HR_PARAMETER_INOUT) {
    ++p;
  }
  return hr__view_count(&arguments[p]);
}

hr_status hr_module_record(hr_stream *stream, const hr_module *module, int kernel, const hr_view *arguments,
                           const int64_t *threads, const int64_t *group) {
  static const int64_t no_group[DIMS];
  if (stream == NULL || module == NULL || arguments == NULL || kernel < 0 || (size_t)kernel >= module->c.heads.count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_module_record: NULL argument, or no kernel %d", kernel);
  }
  run r = {.head = &module->c.heads.data[kernel], .function = &module->kernels[kernel].function};
  HR_RETURN_IF_ERROR(take_all(&r, arguments));
  HR_RETURN_IF_ERROR(check_outputs(&r));
  int64_t ints[HR__CALL_INTS] = {r.function->number, r.updated_count, 0};
  const int64_t elements[DIMS] = {threads == NULL ? count_elements(&r, arguments) : 0, 1, 1};
  HR_RETURN_IF_ERROR(check_sizes(&r, "threads", threads != NULL ? threads : elements, ints + 3));
  HR_RETURN_IF_ERROR(check_sizes(&r, "group", group != NULL ? group : no_group, ints + 6));
  const hr_attrs attrs = {
      .int_count = HR__CALL_INTS, .ints = ints, .scalar_count = r.scalar_count, .scalars = r.scalars};
  hr_status status = hr_stream_record(stream, HR_OP_CALL, &attrs, r.input_count, r.inputs, r.output_count, r.outputs);
  return hr_status_annotate(status, "kernel %s", r.head->name);
}
