/* hlo_constant.c: constants. Those with one element for all become numbers, which kernels have as arguments. */
#include "base/allocator.h"
#include "graph/graph_node.h"
#include "headrace/array.h"
#include "importers/stablehlo/hlo.h"

static int64_t count_of(const hr__vhlo_type *type) {
  int64_t count = 1;
  for (int d = 0; d < type->rank; ++d) {
    count *= type->dims[d];
  }
  return count;
}

/* Integers of less than 8 bits stand in the lower bits of bytes. */
static hr_value add_elements(hr__hlo *hlo, const hr__vhlo_type *type, const void *elements) {
  hr_type wanted = {.dtype = type->dtype, .rank = type->rank};
  memcpy(wanted.dims, type->dims, sizeof wanted.dims);
  return hr__hlo_wrapped(hlo, hr_graph_constant(hlo->graph, &wanted, elements), type);
}

/* One bit for each element, the first in the lowest one. */
static hr_value add_flags(hr__hlo *hlo, const hr__vhlo_type *type, hr__span bytes, int64_t count) {
  if (bytes.size != ((size_t)count + 7) / 8) {
    return HR__HLO_WRONG(hlo, "a constant of %lld flags has %zu bytes", (long long)count, bytes.size);
  }
  if (count > hlo->import->unpacked_left) {
    return hr__hlo_fail(hlo, HR_STATUS_RESOURCE_EXHAUSTED, "constants have more than %d flags", HR__HLO_UNPACKED_MAX);
  }
  hlo->import->unpacked_left -= count;
  bool *flags = hr_malloc((size_t)count + 1);
  if (flags == NULL) {
    return hr__hlo_fail(hlo, HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a constant");
  }
  for (int64_t i = 0; i < count; ++i) {
    flags[i] = (bytes.data[i / 8] >> (i % 8)) & 1;
  }
  hr_value value = add_elements(hlo, type, flags);
  hr_free(flags);
  return value;
}

static hr_value add_constant(hr__hlo *hlo, int attribute) {
  hr__vhlo_type type;
  hr__span bytes;
  if (!hr__vhlo_tensor(&hlo->import->module, attribute, &type, &bytes)) {
    return HR__HLO_REFUSE(hlo, "the elements of a constant are no tensor");
  }
  int64_t count = count_of(&type);
  size_t size = hr_dtype_size(type.dtype);
  bool is_flag = type.dtype == HR_DTYPE_BOOL;
  if (size == 0 || count < 0) {
    return HR__HLO_REFUSE(hlo, "a constant of type %s (%d)", hr__vhlo_type_name(type.code), type.code);
  }
  bool is_splat = bytes.size == size && (!is_flag || count == 1 || bytes.data[0] == 0 || bytes.data[0] == 0xff);
  if (is_splat) {
    bool flag = bytes.data[0] != 0;
    hr_scalar number = hr_scalar_of(type.dtype, is_flag ? (const void *)&flag : bytes.data);
    return hr__hlo_wrapped(hlo, hr__hlo_full(hlo, number, type.dtype, type.rank, type.dims), &type);
  }
  if (is_flag) {
    return add_flags(hlo, &type, bytes, count);
  }
  if ((uint64_t)count > bytes.size || bytes.size != (uint64_t)count * size) {
    return HR__HLO_WRONG(hlo, "a constant of %lld elements has %zu bytes", (long long)count, bytes.size);
  }
  return add_elements(hlo, &type, bytes.data);
}

/* Elements are there once for each graph. */
hr_value hr__hlo_constant(hr__hlo *hlo, int attribute) {
  if (attribute < 0) {
    return HR__HLO_WRONG(hlo, "a constant without elements");
  }
  hr__vhlo_entry *entry = &hlo->import->module.attributes[attribute];
  if (entry->graph != hlo->graph || entry->value == 0) {
    bool is_shared = entry->value != 0 && hr__graph_node_of(entry->graph, entry->value)->kind == HR__NODE_CONSTANT;
    entry->value = is_shared ? hr__graph_share_constant(hlo->graph, hr__graph_node_of(entry->graph, entry->value))
                             : add_constant(hlo, attribute);
    entry->graph = hlo->graph;
  }
  return entry->value;
}

void hr__hlo_lower_constant(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 0, 1, -1)) {
    hr__hlo_set(hlo, 0, hr__hlo_constant(hlo, hr__vhlo_find(&hlo->import->module, hlo->op, "value")));
  }
}

/* The constant that a value is, as it stands or broadcast. */
static bool constant_of(const hr__vhlo_module *module, const hr__vhlo_value *value, hr__vhlo_type *out_type,
                        hr__span *out_bytes) {
  const hr__vhlo_op *op = value->op;
  while (op != NULL && strcmp(op->name->name, "broadcast_in_dim_v1") == 0 && op->operand_count == 1) {
    op = op->operands[0]->op;
  }
  return op != NULL && strcmp(op->name->name, "constant_v1") == 0 &&
         hr__vhlo_tensor(module, hr__vhlo_find(module, op, "value"), out_type, out_bytes);
}

/* One with one element for all. */
static bool number_of(const hr__vhlo_module *module, const hr__vhlo_value *value, hr__vhlo_type *out_type,
                      hr__span *out_bytes) {
  return constant_of(module, value, out_type, out_bytes) && out_bytes->size == hr_dtype_size(out_type->dtype) &&
         out_bytes->size > 0;
}

bool hr__hlo_number_of(const hr__hlo *hlo, const hr__vhlo_value *value, hr_scalar *out_number) {
  hr__vhlo_type type;
  hr__span bytes;
  if (!number_of(&hlo->import->module, value, &type, &bytes)) {
    return false;
  }
  bool flag = bytes.data[0] != 0;
  *out_number = hr_scalar_of(type.dtype, type.dtype == HR_DTYPE_BOOL ? (const void *)&flag : bytes.data);
  return true;
}

bool hr__hlo_constant_ints(hr__hlo *hlo, int index, int count, int64_t *out_numbers) {
  const hr__vhlo_module *module = &hlo->import->module;
  const hr__vhlo_op *op = index < hlo->op->operand_count ? hlo->op->operands[index]->op : NULL;
  hr__vhlo_type type;
  hr__span bytes;
  bool is_constant = op != NULL && strcmp(op->name->name, "constant_v1") == 0;
  if (!is_constant || !hr__vhlo_tensor(module, hr__vhlo_find(module, op, "value"), &type, &bytes)) {
    HR__HLO_REFUSE(hlo, "operand %d is no constant", index);
    return false;
  }
  size_t size = hr_dtype_size(type.dtype);
  bool is_integer = type.dtype >= HR_DTYPE_U8 && type.dtype <= HR_DTYPE_I64;
  if (!is_integer || count_of(&type) != count || (bytes.size != size && bytes.size != size * (size_t)count)) {
    HR__HLO_WRONG(hlo, "operand %d has not %d integers", index, count);
    return false;
  }
  for (int i = 0; i < count; ++i) {
    hr_scalar number = hr_scalar_of(type.dtype, bytes.data + (bytes.size == size ? 0 : (size_t)i * size));
    out_numbers[i] = number.value.i;
  }
  return true;
}

bool hr__hlo_is_zero(hr__hlo *hlo, int index) {
  hr__vhlo_type type;
  hr__span bytes;
  if (index >= hlo->op->operand_count || !constant_of(&hlo->import->module, hlo->op->operands[index], &type, &bytes)) {
    return false;
  }
  size_t used = 0;
  while (used < bytes.size && bytes.data[used] == 0) {
    ++used;
  }
  return used == bytes.size;
}
