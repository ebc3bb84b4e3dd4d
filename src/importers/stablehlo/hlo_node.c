/* hlo_node.c: what lowerings use: operands, attributes, and usual functions. */
#include <stdarg.h>
#include <stdlib.h>

#include "core/ir/dtype.h"
#include "graph/graph_node.h"
#include "importers/stablehlo/hlo.h"

/* ---- the table ---- */

static const hr__hlo_row rows[] = {
#define HR_HLO(name, lower, FUNCTION) {#name, hr__hlo_lower_##lower, HR_FUNCTIONAL_##FUNCTION},
#include "importers/stablehlo/operations.def"
#undef HR_HLO
};

typedef struct key {
  const char *name;
  size_t length;
} key;

static int compare_rows(const void *wanted, const void *element) {
  const key *k = wanted;
  const hr__hlo_row *row = element;
  int order = strncmp(k->name, row->name, k->length);
  return order != 0 ? order : row->name[k->length] == '\0' ? 0 : -1;
}

const hr__hlo_row *hr__hlo_find(const char *name, size_t length) {
  return bsearch(&(key){name, length}, rows, sizeof rows / sizeof *rows, sizeof *rows, compare_rows);
}

/* ---- failures ---- */

hr_value hr__hlo_fail(hr__hlo *hlo, hr_status_code code, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  hr_text_format(text, sizeof text, format, args);
  va_end(args);
  return hr__graph_fail(hlo->graph, hr_status_make(code, "%s", text));
}

bool hr__hlo_failed(const hr__hlo *hlo) {
  return hlo->graph->failure != HR_OK;
}

bool hr__hlo_type(const hr__hlo *hlo, hr_value value, hr_type *out_type) {
  hr_status status = hr_graph_type(hlo->graph, value, out_type);
  bool is_found = status == HR_OK;
  hr_status_ignore(status);
  return is_found;
}

/* ---- operands and results ---- */

static hr_dtype wide_dtype(const hr__hlo *hlo, const hr__vhlo_type *type) {
  hr__vhlo_quantization quantization;
  if (hr__hlo_is_quantized(type)) {
    bool is_whole = hr__vhlo_quantization_of(&hlo->import->module, type->element, &quantization);
    return is_whole ? quantization.expressed : HR_DTYPE_NONE;
  }
  return hr_dtype_is_float8(type->dtype) ? HR_DTYPE_F32 : type->dtype;
}

static hr__vhlo_type type_of(const hr__hlo *hlo, const hr__vhlo_value *value) {
  hr__vhlo_type type;
  bool is_known = hr__vhlo_type_of(&hlo->import->module, value->type, &type);
  if (is_known && hlo->widens) {
    type.dtype = wide_dtype(hlo, &type);
  }
  return is_known ? type : (hr__vhlo_type){0};
}

hr_value hr__hlo_input(hr__hlo *hlo, int index) {
  hr__vhlo_type type;
  if (index >= hlo->op->operand_count) {
    return 0;
  }
  hr__vhlo_value *value = hlo->op->operands[index];
  hr_value x = hr__hlo_value(hlo, value);
  if (x == 0 || !hlo->widens || !hr__vhlo_type_of(&hlo->import->module, value->type, &type)) {
    return x;
  }
  return hr__hlo_is_quantized(&type)      ? hr__hlo_dequantized(hlo, x, &type)
         : hr_dtype_is_float8(type.dtype) ? hr__hlo_cast(hlo, x, HR_DTYPE_F32)
                                          : x;
}

hr__vhlo_type hr__hlo_input_type(const hr__hlo *hlo, int index) {
  return index < hlo->op->operand_count ? type_of(hlo, hlo->op->operands[index]) : (hr__vhlo_type){0};
}

hr__vhlo_type hr__hlo_result_type(const hr__hlo *hlo, int index) {
  return index < hlo->op->result_count ? type_of(hlo, &hlo->op->results[index]) : (hr__vhlo_type){0};
}

bool hr__hlo_expect(hr__hlo *hlo, int operands, int results, int regions) {
  const hr__vhlo_op *op = hlo->op;
  if ((operands < 0 || op->operand_count == operands) && (results < 0 || op->result_count == results) &&
      (regions < 0 || op->region_count == regions)) {
    return !hr__hlo_failed(hlo);
  }
  HR__HLO_WRONG(hlo, "it has %d operands, %d results and %d regions", op->operand_count, op->result_count,
                op->region_count);
  return false;
}

void hr__hlo_set(hr__hlo *hlo, int index, hr_value value) {
  if (index < hlo->op->result_count) {
    hlo->op->results[index].value = value;
    hlo->op->results[index].shards = NULL;
  }
}

/* ---- attributes ---- */

int64_t hr__hlo_int(hr__hlo *hlo, const char *name, int64_t otherwise) {
  int attribute = hr__vhlo_find(&hlo->import->module, hlo->op, name);
  int64_t number = otherwise;
  if (attribute >= 0 && !hr__vhlo_int(&hlo->import->module, attribute, &number)) {
    HR__HLO_WRONG(hlo, "attribute %s is no integer", name);
  }
  return number;
}

int hr__hlo_ints(hr__hlo *hlo, const char *name, int64_t *out_numbers) {
  int attribute = hr__vhlo_find(&hlo->import->module, hlo->op, name);
  int count = attribute >= 0 ? hr__vhlo_ints(&hlo->import->module, attribute, out_numbers) : -1;
  if (attribute >= 0 && count < 0) {
    HR__HLO_WRONG(hlo, "attribute %s is no list of at most %d integers", name, HR__VHLO_PLACES_MAX);
  }
  return count;
}

bool hr__hlo_int_list(hr__hlo *hlo, const char *name, int count, int64_t otherwise, int64_t *out_numbers) {
  int64_t numbers[HR__VHLO_PLACES_MAX];
  int found = hr__hlo_ints(hlo, name, numbers);
  if (found >= 0 && found != count) {
    HR__HLO_WRONG(hlo, "attribute %s has %d integers, expected %d", name, found, count);
  }
  for (int i = 0; i < count; ++i) {
    out_numbers[i] = found == count ? numbers[i] : otherwise;
  }
  return !hr__hlo_failed(hlo);
}

int hr__hlo_axes(hr__hlo *hlo, const char *name, int rank, int64_t *out_axes) {
  int64_t numbers[HR__VHLO_PLACES_MAX];
  int count = hr__hlo_ints(hlo, name, numbers);
  uint32_t seen = 0;
  for (int i = 0; i < count; ++i) {
    if (numbers[i] < 0 || numbers[i] >= rank || (seen >> numbers[i] & 1) != 0) {
      HR__HLO_WRONG(hlo, "attribute %s: %lld is no dim of %d, or there twice", name, (long long)numbers[i], rank);
      return -1;
    }
    seen |= 1u << numbers[i];
    out_axes[i] = numbers[i];
  }
  return hr__hlo_failed(hlo) ? -1 : count < 0 ? 0 : count;
}

const char *hr__hlo_text(hr__hlo *hlo, const char *name) {
  return hr__vhlo_text(&hlo->import->module, hr__vhlo_find(&hlo->import->module, hlo->op, name));
}

bool hr__hlo_has_sizes(hr__hlo *hlo) {
  hr__vhlo_type type = hr__hlo_result_type(hlo, 0);
  for (int d = 0; d < type.rank; ++d) {
    if (type.dims[d] < 0) {
      HR__HLO_REFUSE(hlo, "dim %d of the result has no size: export the program for some", d);
      return false;
    }
  }
  return !hr__hlo_failed(hlo);
}

/* ---- usual functions ---- */

hr_value hr__hlo_number(hr__hlo *hlo, double number) {
  return hr_graph_number(hlo->graph, hr_scalar_f64(number));
}

hr_value hr__hlo_whole(hr__hlo *hlo, int64_t number) {
  return hr_graph_number(hlo->graph, hr_scalar_i64(number));
}

hr_value hr__hlo_cast(const hr__hlo *hlo, hr_value x, hr_dtype dtype) {
  return ADD(hlo, ASTYPE, IN(x), WITH(hr__with_dtype("dtype", dtype), hr__with_flag("copy", false)));
}

hr_value hr__hlo_reshape(hr__hlo *hlo, hr_value x, int rank, const int64_t *dims) {
  return ADD(hlo, RESHAPE, IN(x), WITH(hr__with_ints("shape", rank, dims)));
}

hr_value hr__hlo_permute(hr__hlo *hlo, hr_value x, int rank, const int64_t *axes) {
  bool is_identity = true;
  for (int i = 0; i < rank; ++i) {
    is_identity = is_identity && axes[i] == i;
  }
  return is_identity ? x : ADD(hlo, PERMUTE_DIMS, IN(x), WITH(hr__with_ints("axes", rank, axes)));
}

hr_value hr__hlo_broadcast(hr__hlo *hlo, hr_value x, int rank, const int64_t *dims) {
  return ADD(hlo, BROADCAST_TO, IN(x), WITH(hr__with_ints("shape", rank, dims)));
}

hr_value hr__hlo_full(hr__hlo *hlo, hr_scalar number, hr_dtype dtype, int rank, const int64_t *dims) {
  hr_value value = hr_graph_number(hlo->graph, number);
  return ADD(hlo, FULL, IN(value), WITH(hr__with_ints("shape", rank, dims), hr__with_dtype("dtype", dtype)));
}
