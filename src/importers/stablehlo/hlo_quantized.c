/* hlo_quantized.c: quantized elements: integers that stand for (integer - zero) * scale.
 *
 * Values of such a type are the integers. An operation that computes gets the numbers, and its results become integers
 * again, rounded to the nearest, the even one of two, within the type's bounds. Those that move elements, calls, loops
 * and branches keep the integers.
 */
#include "base/allocator.h"
#include "importers/stablehlo/hlo.h"

bool hr__hlo_is_quantized(const hr__vhlo_type *type) {
  return type->code == HR__VHLO_QUANTIZED || type->code == HR__VHLO_QUANTIZED_AXIS;
}

static bool is_quantized(const hr__hlo *hlo, const hr__vhlo_value *value) {
  hr__vhlo_type type;
  return hr__vhlo_type_of(&hlo->import->module, value->type, &type) && hr__hlo_is_quantized(&type);
}

bool hr__hlo_may_quantize(hr__hlo *hlo) {
  const hr__vhlo_op *op = hlo->op;
  bool has_any = false;
  for (int i = 0; i < op->operand_count + op->result_count; ++i) {
    has_any |= is_quantized(hlo, i < op->operand_count ? op->operands[i] : &op->results[i - op->operand_count]);
  }
  if (has_any && op->region_count > 0) {
    HR__HLO_REFUSE(hlo, "a region of quantized elements");
  } else if (has_any && hr__hlo_device_count(hlo->import) > 1) {
    HR__HLO_REFUSE(hlo, "quantized elements of a program over several devices");
  }
  return !hr__hlo_failed(hlo);
}

/* Scales or zeros in the dtype of the numbers: one number, or those of a dim. */
static hr_value add_list(hr__hlo *hlo, const hr__vhlo_quantization *q, int rank, bool are_scales) {
  hr__reader reader = are_scales ? q->scales : q->zeros;
  double *numbers = hr_malloc((size_t)q->count * sizeof *numbers + 1);
  if (numbers == NULL || (hlo->import->unpacked_left -= (int64_t)sizeof *numbers * q->count) < 0) {
    hr_free(numbers);
    return hr__hlo_fail(hlo, HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %d scales", q->count);
  }
  for (int i = 0; i < q->count; ++i) {
    numbers[i] = are_scales ? hr__vhlo_scale(&reader) : (double)hr__read_signed(&reader);
  }
  hr_type type = {.dtype = HR_DTYPE_F64, .rank = q->axis >= 0 ? rank : 0};
  for (int d = 0; d < type.rank; ++d) {
    type.dims[d] = d == q->axis ? q->count : 1;
  }
  hr_value value = q->axis < 0 ? hr__hlo_number(hlo, numbers[0]) : hr_graph_constant(hlo->graph, &type, numbers);
  hr_free(numbers);
  return q->axis < 0 ? value : hr__hlo_cast(hlo, value, q->expressed);
}

static bool read(hr__hlo *hlo, const hr__vhlo_type *type, hr__vhlo_quantization *out) {
  if (!hr__vhlo_quantization_of(&hlo->import->module, type->element, out)) {
    HR__HLO_REFUSE(hlo, "a quantized type without integers or numbers");
  } else if (out->axis >= type->rank || (out->axis >= 0 && type->dims[out->axis] != out->count)) {
    HR__HLO_WRONG(hlo, "%d scales along dim %d", out->count, out->axis);
  }
  return !hr__hlo_failed(hlo);
}

hr_value hr__hlo_dequantized(hr__hlo *hlo, hr_value x, const hr__vhlo_type *type) {
  hr__vhlo_quantization q;
  if (!read(hlo, type, &q)) {
    return 0;
  }
  hr_value distance = CALL(hlo, SUBTRACT, hr__hlo_cast(hlo, x, q.expressed), add_list(hlo, &q, type->rank, false));
  return CALL(hlo, MULTIPLY, distance, add_list(hlo, &q, type->rank, true));
}

hr_value hr__hlo_quantized(hr__hlo *hlo, hr_value x, const hr__vhlo_type *type) {
  hr__vhlo_quantization q;
  if (!read(hlo, type, &q)) {
    return 0;
  }
  hr_value scaled = CALL(hlo, DIVIDE, hr__hlo_cast(hlo, x, q.expressed), add_list(hlo, &q, type->rank, true));
  hr_value moved = CALL(hlo, ADD, CALL(hlo, ROUND, scaled), add_list(hlo, &q, type->rank, false));
  moved = CALL(hlo, MAXIMUM, moved, hr__hlo_number(hlo, (double)q.min));
  moved = CALL(hlo, MINIMUM, moved, hr__hlo_number(hlo, (double)q.max));
  return hr__hlo_convert(hlo, moved, q.expressed, q.stored);
}

/* The caller makes numbers of a quantized operand, and a quantized result of numbers. */
void hr__hlo_lower_quantize(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set(hlo, 0, hr__hlo_cast(hlo, hr__hlo_input(hlo, 0), hr__hlo_result_type(hlo, 0).dtype));
  }
}
