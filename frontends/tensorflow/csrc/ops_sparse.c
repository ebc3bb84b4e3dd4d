/* ops_sparse.c: rules of optimizers' steps of some rows of variables. An index that occurs twice has its steps in
 * order, as on TensorFlow's CPU device, so a function of the host makes them. It is recorded like an operation.
 */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "halves.h"
#include "slots.h"

enum { NUMBERS_MAX = 5 };

typedef enum step_kind {
  MOMENTUM = 0,
  KERAS_MOMENTUM,
  ADAGRAD,
  ADAGRAD_DA,
  ADADELTA,
  RMS_PROP,
  CENTERED_RMS_PROP,
  PROXIMAL_DESCENT,
  PROXIMAL_ADAGRAD,
  FTRL,
  STEPS
} step_kind;

typedef struct step_options {
  bool use_nesterov, update_slots, multiply_linear_by_lr;
  int numbers;
} step_options;

/* The argument of the function. */
typedef struct rows_plan {
  step_kind step;
  step_options options;
  hr_dtype dtype;
  const char *op;
  int64_t count, rows, width; /* indices, rows of the variable, elements of a row */
} rows_plan;

/* ---- the steps of a row, for each type ---- */

#define T float
#define NAME(name) f32_##name
#define SQRT sqrtf
#define ABS fabsf
#define POW powf
#define SHRINK(x, by) copysignf(fmaxf(fabsf(x) - (by), 0), x)
typedef void (*f32_step)(T *const *, const T *, const T *, const step_options *, int64_t);
#include "sparse_steps.h"
#undef T
#undef NAME
#undef SQRT
#undef ABS
#undef POW
#undef SHRINK

#define T double
#define NAME(name) f64_##name
#define SQRT sqrt
#define ABS fabs
#define POW pow
#define SHRINK(x, by) copysign(fmax(fabs(x) - (by), 0), x)
typedef void (*f64_step)(T *const *, const T *, const T *, const step_options *, int64_t);
#include "sparse_steps.h"
#undef T
#undef NAME
#undef SQRT

#define IS_COMPLEX
#define T float complex
#define NAME(name) c64_##name
#define SQRT csqrtf
typedef void (*c64_step)(T *const *, const T *, const T *, const step_options *, int64_t);
#include "sparse_steps.h"
#undef T
#undef NAME
#undef SQRT

#define T double complex
#define NAME(name) c128_##name
#define SQRT csqrt
typedef void (*c128_step)(T *const *, const T *, const T *, const step_options *, int64_t);
#include "sparse_steps.h"

/* ---- floats of 16 bits: in f32, a row at a time ---- */

static float widen_bf16(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint16_t narrow_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return x != x ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void widen_row(hr_dtype dtype, const void *row, float *out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits = ((const uint16_t *)row)[i];
    out[i] = dtype == HR_DTYPE_F16 ? htf_widen_f16(bits) : widen_bf16(bits);
  }
}

static void narrow_row(hr_dtype dtype, const float *row, void *out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    ((uint16_t *)out)[i] = dtype == HR_DTYPE_F16 ? htf_narrow_f16(row[i]) : narrow_bf16(row[i]);
  }
}

/* One step of a row, through f32. `slots` and `gradient` are scratch. */
static void run_row16(const rows_plan *p, const hr_function_call *call, const float *numbers, int64_t row, int64_t at,
                      float *const *slots, float *gradient) {
  for (int s = 0; s < call->output_count; ++s) {
    widen_row(p->dtype, (uint16_t *)call->outputs[s] + row * p->width, slots[s], p->width);
  }
  widen_row(p->dtype, (const uint16_t *)call->inputs[1] + at * p->width, gradient, p->width);
  f32_steps[p->step](slots, gradient, numbers, &p->options, p->width);
  for (int s = 0; s < call->output_count; ++s) {
    narrow_row(p->dtype, slots[s], (uint16_t *)call->outputs[s] + row * p->width, p->width);
  }
}

/* As f32_run. The numbers come in f32. -2: no memory. */
static int64_t run16(const rows_plan *p, const hr_function_call *call) {
  float *scratch = malloc((size_t)(HTF_SLOTS_MAX + 1) * (size_t)p->width * sizeof *scratch), numbers[NUMBERS_MAX] = {0};
  float *slots[HTF_SLOTS_MAX];
  int64_t wrong = scratch != NULL ? -1 : -2;
  for (int s = 0; s < HTF_SLOTS_MAX; ++s) {
    slots[s] = scratch + (s + 1) * p->width;
  }
  for (int i = 0; i < p->options.numbers; ++i) {
    numbers[i] = *(const float *)call->inputs[2 + i];
  }
  for (int64_t i = 0; i < p->count && wrong == -1; ++i) {
    int64_t row = ((const int64_t *)call->inputs[0])[i];
    if (row < 0 || row >= p->rows) {
      wrong = i;
    } else {
      run_row16(p, call, numbers, row, i, slots, scratch);
    }
  }
  free(scratch);
  return wrong;
}

/* ---- the function of the host ---- */

static hr_status run_rows(const hr_function_call *call) {
  const rows_plan *p = call->arg;
  int64_t wrong = p->dtype == HR_DTYPE_F32    ? f32_run(p, call)
                  : p->dtype == HR_DTYPE_F64  ? f64_run(p, call)
                  : p->dtype == HR_DTYPE_C64  ? c64_run(p, call)
                  : p->dtype == HR_DTYPE_C128 ? c128_run(p, call)
                                              : run16(p, call);
  if (wrong == -2) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a row of %lld elements", (long long)p->width);
  }
  return wrong < 0 ? HR_OK
                   : hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                    "%s: index %lld at offset %lld in indices is out of range of %lld rows", p->op,
                                    (long long)((const int64_t *)call->inputs[0])[wrong], (long long)wrong,
                                    (long long)p->rows);
}

/* ---- the rules ---- */

/* InvalidArgumentError unless slots have the variable's dims, and gradients those of a row for each index. */
static void check_rows(htf_node *node, const htf_slots *opened, htf_value gradient, htf_value indices) {
  htf_value variable = opened->values[0];
  htf_check_slots(node, opened, variable);
  if (htf_has_failed(node)) {
    return;
  }
  bool fits = variable->rank >= 1 && indices->rank == 1 && gradient->rank == variable->rank &&
              gradient->dims[0] == indices->dims[0];
  for (int d = 1; fits && d < variable->rank; ++d) {
    fits = gradient->dims[d] == variable->dims[d];
  }
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: the gradient must have a row of the variable for each index: it has %d dims, the indices %d, the "
             "variable %d",
             node->kernel->row->op, gradient->rank, indices->rank, variable->rank);
  }
}

static void record_steps(htf_node *node, const htf_slots *opened, step_kind step, int gradient, int numbers) {
  htf_value inputs[2 + NUMBERS_MAX] = {htf_input(node, gradient + 1), htf_input(node, gradient)};
  check_rows(node, opened, inputs[1], inputs[0]);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value variable = opened->values[0];
  bool is_short = hr_dtype_size(variable->dtype) == 2;
  inputs[0] = htf_cast(node, inputs[0], HR_DTYPE_I64);
  for (int i = 0, input = opened->count; i < numbers; ++i, ++input) {
    input += input == gradient ? 2 : 0;
    inputs[2 + i] = htf_cast(node, htf_input(node, input), is_short ? HR_DTYPE_F32 : variable->dtype);
    if (!htf_has_failed(node) && inputs[2 + i]->rank != 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: number %d is not a scalar, it has %d dims", node->kernel->row->op,
               i, inputs[2 + i]->rank);
    }
  }
  if (htf_has_failed(node) || hr_tensor_count(inputs[1]) == 0) {
    return;
  }
  rows_plan *plan = htf_new_argument(node, sizeof *plan);
  if (plan == NULL) {
    return;
  }
  *plan = (rows_plan){step, {.numbers = numbers}, variable->dtype, node->kernel->row->op};
  plan->count = inputs[0]->dims[0], plan->rows = variable->dims[0];
  plan->width = hr_tensor_count(variable) / plan->rows;
  plan->options.use_nesterov = htf_has_flag(node, "use_nesterov");
  plan->options.update_slots = htf_has_flag(node, "update_slots");
  plan->options.multiply_linear_by_lr = htf_has_flag(node, "multiply_linear_by_lr");
  htf_record_function(node, run_rows, plan, 2 + numbers, inputs, opened->count, opened->count, opened->values);
}

static void apply_rows(htf_node *node, step_kind step, int slots, int gradient, int numbers) {
  htf_slots opened = htf_open_slots(node, slots, htf_flag(node, "use_locking"), true);
  if (!htf_has_failed(node)) {
    record_steps(node, &opened, step, gradient, numbers);
  }
  htf_close_slots(&opened);
}

void htf_sparse_momentum(htf_node *node) {
  apply_rows(node, MOMENTUM, 2, 3, 2);
}

void htf_sparse_keras_momentum(htf_node *node) {
  apply_rows(node, KERAS_MOMENTUM, 2, 3, 2);
}

void htf_sparse_adagrad(htf_node *node) {
  apply_rows(node, ADAGRAD, 2, 3, 1);
}

void htf_sparse_adagrad_v2(htf_node *node) {
  apply_rows(node, ADAGRAD, 2, 4, 2);
}

void htf_sparse_adagrad_da(htf_node *node) {
  apply_rows(node, ADAGRAD_DA, 3, 3, 4);
}

void htf_sparse_adadelta(htf_node *node) {
  apply_rows(node, ADADELTA, 3, 6, 3);
}

void htf_sparse_rms_prop(htf_node *node) {
  apply_rows(node, RMS_PROP, 3, 7, 4);
}

void htf_sparse_centered_rms_prop(htf_node *node) {
  apply_rows(node, CENTERED_RMS_PROP, 4, 8, 4);
}

void htf_sparse_proximal_descent(htf_node *node) {
  apply_rows(node, PROXIMAL_DESCENT, 1, 4, 3);
}

void htf_sparse_proximal_adagrad(htf_node *node) {
  apply_rows(node, PROXIMAL_ADAGRAD, 2, 5, 3);
}

void htf_sparse_ftrl(htf_node *node) {
  apply_rows(node, FTRL, 3, 3, 4);
}

void htf_sparse_ftrl_v2(htf_node *node) {
  apply_rows(node, FTRL, 3, 3, 5);
}
