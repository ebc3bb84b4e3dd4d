/* program_oracle.c: see program_oracle.h. */
#include "program_oracle.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/op.h"
#include "program_runner.h"

enum { ULPS = 6, TERM_ULPS = 64 };

/* Bounds of an element's operands. */
typedef struct terms {
  double count, sum;       /* of the magnitudes that are finite */
  double log_up, log_down; /* sums of the positive and the negative logarithms to base 2 */
  double product;          /* of 1 + magnitude */
  int infinite;
} terms;

typedef struct oracle {
  const hr_program *program;
  const hr_node *node;
  void **memory;
  const hr_scalar *arguments;
  hr_class cls;
  int64_t domain; /* elements */
  terms *terms;   /* of each element of the output's buffer; NULL: results are exact, or need none */
} oracle;

static bool is_reduction(const hr_node *node) {
  return hr_op_table(node->op)->family == HR_FAMILY_REDUCE;
}

static bool is_rounded_reduction(const oracle *o) {
  return (o->node->op == HR_OP_SUM || o->node->op == HR_OP_PROD) && o->cls >= HR_CLASS_F32;
}

static bool is_exact(const oracle *o) {
  return is_reduction(o->node) ? !is_rounded_reduction(o)
                               : hr_op_table(o->node->op)->accuracy == HR_ACCURACY_EXACT || o->cls < HR_CLASS_F32;
}

static bool needs_terms(const oracle *o) {
  return !is_exact(o) && (is_reduction(o->node) || hr_op_table(o->node->op)->accuracy == HR_ACCURACY_ABS);
}

/* ---- operands as doubles ---- */

/* Input `i` over the whole domain, read by the reference; free it. */
static hr_status read_input(const oracle *o, int i, double **out_values) {
  const hr_node *node = o->node;
  const hr_operand *out = &node->outputs[0];
  hr_program copy;
  HR_RETURN_IF_ERROR(hr__single_node(o->program, 0, &copy));
  copy.node_count = 0;
  size_t bytes = (size_t)o->domain * sizeof(double);
  uint32_t buffer = hr_program_add_buffer(&copy, bytes, false, false);
  copy.bound_count = copy.buffer_count;
  int64_t strides[HR_RANK_MAX], step = 1;
  for (int d = out->rank - 1; d >= 0; --d) {
    strides[d] = step;
    step *= out->dims[d];
  }
  hr_operand to = {.kind = HR_OPERAND_VALUE,
                   .dtype = HR_DTYPE_F64,
                   .index = buffer,
                   .rank = out->rank,
                   .dims = out->dims,
                   .strides = strides,
                   .fill = HR_NO_SCALAR};
  hr_operand inputs[12]; /* the selected one, then all, for its index terms */
  hr_index_term named[8];
  inputs[0] = node->inputs[i];
  for (int k = 0; k < node->input_count; ++k) {
    inputs[k + 1] = node->inputs[k];
  }
  for (int t = 0; t < inputs[0].term_count; ++t) {
    named[t] = inputs[0].terms[t];
    ++named[t].input;
  }
  inputs[0].terms = named;
  hr_node load = {.op = HR_OP_COPY,
                  .is_loop = true,
                  .input_count = node->input_count + 1,
                  .inputs = inputs,
                  .output_count = 1,
                  .outputs = &to};
  *out_values = malloc(bytes + 1);
  void **memory = calloc((size_t)copy.buffer_count, sizeof *memory);
  memcpy(memory, o->memory, (size_t)o->program->buffer_count * sizeof *memory);
  memory[buffer] = *out_values;
  hr_status status = hr_program_append(&copy, &load)
                         ? hr_program_evaluate(&copy, memory, o->arguments)
                         : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a node");
  free(memory);
  hr_program_fini(&copy);
  return status;
}

static void take_term(terms *t, double value) {
  double magnitude = fabs(value);
  t->count += 1;
  t->infinite += isinf(magnitude);
  if (isfinite(magnitude)) {
    t->sum += magnitude;
    t->product *= 1 + magnitude;
    t->log_up += magnitude > 1 ? log2(magnitude) : 0;
    t->log_down += magnitude < 1 && magnitude > 0 ? log2(magnitude) : 0;
  }
}

/* The element of the output's buffer for each element of the domain. */
static void add_terms(oracle *o, const double *values) {
  const hr_operand *out = &o->node->outputs[0];
  int64_t at[HR_RANK_MAX] = {0}, element = out->offset;
  for (int64_t i = 0; i < o->domain; ++i) {
    take_term(&o->terms[element], values[i]);
    for (int d = out->rank - 1; d >= 0; --d) {
      element += out->strides[d];
      if (++at[d] < out->dims[d]) {
        break;
      }
      element -= out->dims[d] * out->strides[d];
      at[d] = 0;
    }
  }
}

static hr_status find_terms(oracle *o) {
  const hr_operand *out = &o->node->outputs[0];
  size_t count = o->program->buffers[out->index].bytes / hr_dtype_size(out->dtype);
  o->terms = calloc(count + 1, sizeof *o->terms);
  for (size_t k = 0; k < count; ++k) {
    o->terms[k].product = 1;
  }
  for (int i = 0; i < hr_op_table(o->node->op)->arity; ++i) {
    double *values = NULL;
    HR_RETURN_IF_ERROR(read_input(o, i, &values));
    add_terms(o, values);
    free(values);
  }
  return HR_OK;
}

/* ---- comparing ---- */

typedef struct format {
  double epsilon, smallest, largest; /* distance of 1 to the next number, least number above 0, largest finite */
} format;

static format format_of(hr_dtype dtype) {
  switch (dtype) {
    case HR_DTYPE_F16:
      return (format){0x1p-10, 0x1p-24, 65504};
    case HR_DTYPE_BF16:
      return (format){0x1p-7, 0x1p-133, 0x1.fep127};
    case HR_DTYPE_F32:
      return (format){FLT_EPSILON, 0x1p-149, FLT_MAX};
    default:
      return (format){DBL_EPSILON, 0x1p-1074, DBL_MAX};
  }
}

static double read_real(hr_dtype dtype, const char *at) {
  uint16_t half;
  float single;
  double twice;
  switch (dtype) {
    case HR_DTYPE_F16:
      memcpy(&half, at, sizeof half);
      return (double)hr_f16_to_f32(half);
    case HR_DTYPE_BF16:
      memcpy(&half, at, sizeof half);
      return (double)hr_bf16_to_f32(half);
    case HR_DTYPE_F8E4M3FN:
    case HR_DTYPE_F8E5M2:
    case HR_DTYPE_F8E4M3FNUZ:
    case HR_DTYPE_F8E5M2FNUZ:
    case HR_DTYPE_F8E8M0FNU:
    case HR_DTYPE_F8E4M3:
    case HR_DTYPE_F8E3M4:
    case HR_DTYPE_F8E4M3B11FNUZ:
    case HR_DTYPE_F4E2M1FN:
      return (double)hr_f8_to_f32(dtype, *(const uint8_t *)at);
    case HR_DTYPE_F32:
      memcpy(&single, at, sizeof single);
      return (double)single;
    default:
      memcpy(&twice, at, sizeof twice);
      return twice;
  }
}

/* How far a result may be off, before it is rounded to the output's dtype; negative: anything goes. */
static double tolerance(const oracle *o, double expected, int64_t element) {
  format f = format_of(o->cls == HR_CLASS_F32 ? HR_DTYPE_F32 : HR_DTYPE_F64);
  double result = isfinite(expected) ? fabs(expected) : f.largest;
  if (o->terms == NULL) {
    return ULPS * (f.epsilon * result + f.smallest);
  }
  const terms *t = &o->terms[element];
  if (o->node->op == HR_OP_PROD) {
    double room = log2(f.largest) - 2;
    return t->log_up > room || t->log_down < -room ? -1 : (t->count + 1) * f.epsilon * result;
  }
  if (o->node->op == HR_OP_SUM) {
    double steps = t->count < HR_REDUCE_CHUNK ? t->count : HR_REDUCE_CHUNK;
    return t->sum > f.largest / 4 ? -1 : (steps + 8) * f.epsilon * t->sum;
  }
  return TERM_ULPS * f.epsilon * (t->product + result);
}

/* True if a gradient of infinity meets a slope so near to 0 that it may be 0: the product is NaN, or an infinity. */
static bool is_lost_slope(const oracle *o, double actual, double expected, int64_t element) {
  hr_op op = o->node->op;
  bool is_gradient = op == HR_OP_GELU_BACKWARD || op == HR_OP_GELU_TANH_BACKWARD || op == HR_OP_SILU_BACKWARD ||
                     op == HR_OP_SOFTPLUS_BACKWARD;
  return is_gradient && o->terms[element].infinite == 1 &&
         ((isnan(actual) && isinf(expected)) || (isinf(actual) && isnan(expected)));
}

static bool is_close(const oracle *o, hr_dtype dtype, double actual, double expected, int64_t element) {
  if (isnan(actual) && isnan(expected)) {
    return true;
  }
  if (actual == expected) { /* zeros: the remainder of large terms may have either sign */
    return o->terms != NULL || signbit(actual) == signbit(expected);
  }
  double allowed = tolerance(o, expected, element);
  if (allowed < 0 || (o->terms != NULL && is_lost_slope(o, actual, expected, element))) {
    return true;
  }
  format f = format_of(dtype);
  double a = isinf(actual) ? copysign(f.largest, actual) : actual;
  double e = isinf(expected) ? copysign(f.largest, expected) : expected;
  bool is_narrow = hr_dtype_is_narrow(dtype);
  allowed += is_narrow ? f.epsilon * fabs(e) + f.smallest : 0;
  return fabs(a - e) <= allowed; /* false for NaN */
}

static hr_status compare(const oracle *o, const char *actual, const char *expected) {
  const hr_operand *out = &o->node->outputs[0];
  int64_t size = (int64_t)hr_dtype_size(out->dtype), count = (int64_t)o->program->buffers[out->index].bytes / size;
  bool is_real = hr_dtype_is_real(out->dtype);
  for (int64_t k = 0; k < count; ++k) {
    const char *a = actual + k * size, *e = expected + k * size;
    if (memcmp(a, e, (size_t)size) == 0) {
      continue;
    }
    double x = is_real ? read_real(out->dtype, a) : 0, y = is_real ? read_real(out->dtype, e) : 0;
    bool both_nan = isnan(x) && isnan(y);
    bool both_zero =
        is_real && x == 0 && y == 0 && is_reduction(o->node); /* amax: the later of two zeros in any order */
    if (!both_nan && !both_zero && (!is_real || is_exact(o) || !is_close(o, out->dtype, x, y, k))) {
      int64_t raw[2] = {0};
      memcpy(&raw[0], a, (size_t)size), memcpy(&raw[1], e, (size_t)size);
      return hr_status_make(
          HR_STATUS_INTERNAL,
          "%s in %s: element %lld of buffer %u (%s) is %.17g (0x%llx), the reference gives %.17g (0x%llx)",
          hr_op_table(o->node->op)->name, hr_class_name(o->cls), (long long)k, out->index, hr_dtype_name(out->dtype), x,
          (unsigned long long)raw[0], y, (unsigned long long)raw[1]);
    }
  }
  return HR_OK;
}

static hr_status run_check(const hr_program *program, void **memory, const hr_scalar *arguments) {
  hr_status expected = hr_program_evaluate(program, memory, arguments);
  hr_status actual = hr__run_interpreted(program, memory, arguments, (hr__run_options){0});
  bool same = hr_status_code_of(expected) == hr_status_code_of(actual);
  hr_status_ignore(expected);
  if (!same) {
    hr_status_ignore(actual);
    return hr_status_make(HR_STATUS_INTERNAL, "only one of interpreter and reference finds an index out of range");
  }
  return actual;
}

static bool has_complex(const hr_node *node) {
  bool found = hr_dtype_is_complex(node->outputs[0].dtype);
  for (int i = 0; i < node->input_count; ++i) {
    found |= hr_dtype_is_complex(node->inputs[i].dtype);
  }
  return found;
}

hr_status hr__run_checked(const hr_program *program, void **memory, const hr_scalar *arguments) {
  const hr_node *node = &program->nodes[0];
  if (!node->is_loop) {
    return run_check(program, memory, arguments);
  }
  if (has_complex(node)) {
    return hr__run_interpreted(program, memory, arguments, (hr__run_options){0});
  }
  const hr_operand *out = &node->outputs[0];
  oracle o = {.program = program, .node = node, .memory = memory, .arguments = arguments, .domain = 1};
  o.cls = hr_node_compute_class(program, node);
  for (int d = 0; d < out->rank; ++d) {
    o.domain *= out->dims[d];
  }
  size_t bytes = program->buffers[out->index].bytes;
  void *mine = memory[out->index], *expected = hr__exact_alloc(bytes);
  memcpy(expected, mine, bytes);
  hr_status status = needs_terms(&o) && o.domain > 0 ? find_terms(&o) : HR_OK;
  if (status == HR_OK) {
    memory[out->index] = expected;
    status = hr_program_evaluate(program, memory, arguments);
    memory[out->index] = mine;
    if (status != HR_OK) { /* an unchecked index */
      hr_status inner = status;
      status = hr_status_make(HR_STATUS_INTERNAL, "the reference fails: %s", hr_status_message(inner));
      hr_status_free(inner);
    }
  }
  status = status != HR_OK ? status : hr__run_interpreted(program, memory, arguments, (hr__run_options){0});
  status = status != HR_OK ? status : compare(&o, mine, expected);
  hr__exact_free(expected, bytes);
  free(o.terms);
  return status;
}
