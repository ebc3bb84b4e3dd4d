/* hlo_run.c: lowers the operations of regions and functions, and checks their results. */
#include "base/allocator.h"
#include "core/ir/dtype.h"
#include "graph/graph_node.h"
#include "importers/stablehlo/hlo.h"

static bool is_named(const hr__vhlo_op *op, const char *dialect, const char *name) {
  return strcmp(op->name->dialect, dialect) == 0 && strcmp(op->name->name, name) == 0;
}

/* "add" of "add_v1". */
static size_t length_of(const char *name) {
  const char *end = strrchr(name, '_');
  return end != NULL && end[1] == 'v' ? (size_t)(end - name) : strlen(name);
}

/* ---- results ---- */

static void describe(hr_text *text, hr_dtype dtype, int rank, const int64_t *dims) {
  hr_text_printf(text, "%s[", hr_dtype_name(dtype));
  for (int d = 0; d < rank; ++d) {
    hr_text_printf(text, "%s%lld", d > 0 ? "," : "", (long long)dims[d]);
  }
  hr_text_append(text, "]");
}

static hr_status wrong_result(int index, const hr_type *got, const hr__vhlo_type *wanted) {
  hr_text text = {0};
  describe(&text, got->dtype, got->rank, got->dims);
  hr_text_append(&text, ", the file has ");
  describe(&text, wanted->dtype, wanted->rank, wanted->dims);
  hr_status status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "result %d is %s", index, hr_text_chars(&text));
  hr_text_fini(&text);
  return status;
}

/* Dims that the file or the graph does not have as numbers fit all others. */
static bool fits(const hr_type *got, const hr__vhlo_type *wanted) {
  if (got->dtype != wanted->dtype || got->rank != wanted->rank) {
    return false;
  }
  for (int d = 0; d < got->rank; ++d) {
    if (got->dims[d] != wanted->dims[d] && got->dims[d] >= 0 && wanted->dims[d] >= 0) {
      return false;
    }
  }
  return true;
}

static hr_status check_results(const hr__hlo *hlo) {
  for (int i = 0; i < hlo->op->result_count; ++i) {
    hr__vhlo_type wanted;
    hr_type got;
    const hr__vhlo_value *result = &hlo->op->results[i];
    bool is_known = hr__vhlo_type_of(&hlo->import->module, result->type, &wanted);
    if (!is_known || wanted.is_token || wanted.code == HR__VHLO_TUPLE || wanted.code == HR__VHLO_FUTURE) {
      continue;
    }
    if (result->value == 0 && result->shards != NULL) {
      continue;
    }
    if (result->value == 0) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "result %d has no value", i);
    }
    HR_RETURN_IF_ERROR(hr_graph_type(hlo->graph, result->value, &got));
    if (!fits(&got, &wanted)) {
      return wrong_result(i, &got, &wanted);
    }
  }
  return HR_OK;
}

/* ---- operations ---- */

/* The results are the operands. */
void hr__hlo_lower_pass(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, hlo->op->result_count, -1, -1)) {
    for (int i = 0; i < hlo->op->result_count; ++i) {
      hr__hlo_set_same(hlo, i);
    }
  }
}

/* A tuple is its operands, which its elements find. */
void hr__hlo_lower_tuple(hr__hlo *hlo) {
  hr__hlo_expect(hlo, -1, 1, 0);
}

void hr__hlo_lower_tuple_element(hr__hlo *hlo) {
  int64_t index = hr__hlo_int(hlo, "index", 0);
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  const hr__vhlo_op *tuple = hlo->op->operands[0]->op;
  if (tuple == NULL || !is_named(tuple, "vhlo", "tuple_v1")) {
    HR__HLO_REFUSE(hlo, "a tuple that is no result of an operation tuple");
  } else if (index < 0 || index >= tuple->operand_count) {
    HR__HLO_WRONG(hlo, "element %lld of %d", (long long)index, tuple->operand_count);
  } else if (hr__hlo_result_type(hlo, 0).code == HR__VHLO_TUPLE) {
    hlo->op->results[0].op = tuple->operands[index]->op; /* which made it, and has its elements */
  } else {
    hr__hlo_set(hlo, 0, hr__hlo_value(hlo, tuple->operands[index]));
  }
}

/* Tokens order nothing here: effects keep the program's order. */
void hr__hlo_lower_token(hr__hlo *hlo) {
  hr__hlo_expect(hlo, -1, 1, 0);
}

/* One device has all of each tensor. */
static void lower_sharding(hr__hlo *hlo) {
  if (is_named(hlo->op, "sdy", "mesh") || is_named(hlo->op, "sdy", "sharding_group")) {
    return;
  }
  bool is_manual = is_named(hlo->op, "sdy", "manual_computation") && hlo->op->region_count == 1;
  if (is_manual && hr__hlo_device_count(hlo->import) > 1) {
    hr__hlo_lower_manual(hlo);
    return;
  }
  if (is_manual) {
    hr__hlo_return(hlo, &hlo->op->regions[0]);
    return;
  }
  if (hr__hlo_device_count(hlo->import) < 2 || !hr__hlo_lower_terms(hlo)) {
    hr__hlo_lower_pass(hlo);
  }
}

/* The lowerings that take floats of 8 bits and quantized elements as they are: those that move elements or convert
 * them, and regions. */
static bool moves(void (*lower)(hr__hlo *hlo)) {
  static void (*const all[])(hr__hlo * hlo) = {hr__hlo_lower_all_gather,
                                               hr__hlo_lower_all_to_all,
                                               hr__hlo_lower_async_done,
                                               hr__hlo_lower_async_start,
                                               hr__hlo_lower_bitcast_convert,
                                               hr__hlo_lower_broadcast,
                                               hr__hlo_lower_broadcast_in_dim,
                                               hr__hlo_lower_call,
                                               hr__hlo_lower_case,
                                               hr__hlo_lower_collective_broadcast,
                                               hr__hlo_lower_collective_permute,
                                               hr__hlo_lower_composite,
                                               hr__hlo_lower_concatenate,
                                               hr__hlo_lower_constant,
                                               hr__hlo_lower_convert,
                                               hr__hlo_lower_custom_call,
                                               hr__hlo_lower_dynamic_reshape,
                                               hr__hlo_lower_if,
                                               hr__hlo_lower_pass,
                                               hr__hlo_lower_reshape,
                                               hr__hlo_lower_reverse,
                                               hr__hlo_lower_slice,
                                               hr__hlo_lower_token,
                                               hr__hlo_lower_transpose,
                                               hr__hlo_lower_tuple,
                                               hr__hlo_lower_tuple_element,
                                               hr__hlo_lower_while};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    if (all[i] == lower) {
      return true;
    }
  }
  return false;
}

static void lower(hr__hlo *hlo) {
  const hr__vhlo_name *name = hlo->op->name;
  if (strcmp(name->dialect, "sdy") == 0) {
    lower_sharding(hlo);
    return;
  }
  if (is_named(hlo->op, "builtin", "unrealized_conversion_cast")) {
    hr__hlo_lower_pass(hlo);
    return;
  }
  bool is_ours = strcmp(name->dialect, "vhlo") == 0;
  const hr__hlo_row *row = is_ours ? hr__hlo_find(name->name, length_of(name->name)) : NULL;
  if (row == NULL) {
    HR__HLO_REFUSE(hlo, "this operation is not supported");
    return;
  }
  hlo->function = row->function;
  hlo->widens = !moves(row->lower);
  if (!hlo->widens || hr__hlo_may_quantize(hlo)) {
    row->lower(hlo);
  }
}

/* add ("jit(f)/add" f.py:3) */
static hr_status annotate(const hr__hlo *hlo, hr_status status) {
  hr_text text = {0};
  const char *name = hlo->op->name->name;
  hr__vhlo_locate(&hlo->import->module, hlo->op->location, &text);
  status = text.length > 0 ? hr_status_annotate(status, "%.*s (%s)", (int)length_of(name), name, hr_text_chars(&text))
                           : hr_status_annotate(status, "%.*s", (int)length_of(name), name);
  hr_text_fini(&text);
  return status;
}

/* Results of regions have 8 bits. */
static bool is_wide(const hr__hlo *hlo, hr_value value) {
  hr_type type = {0};
  hr_status_ignore(hr_graph_type(hlo->graph, value, &type));
  return value != 0 && !hr_dtype_is_float8(type.dtype);
}

/* Integers of 2 and 4 bits, which have 8 here, floats of 8 bits, which were computed in f32, and quantized elements. */
static void wrap_results(hr__hlo *hlo) {
  bool widens = hlo->widens;
  hlo->widens = false;
  for (int i = 0; i < hlo->op->result_count && !hr__hlo_failed(hlo); ++i) {
    hr__vhlo_type type = hr__hlo_result_type(hlo, i);
    hr_value value = hlo->op->results[i].value;
    if (hr__hlo_narrow(&type) > 0 && value != 0) { /* else it has shards, which are wrapped */
      hr__hlo_set(hlo, i, hr__hlo_wrapped(hlo, value, &type));
    } else if (widens && hr__hlo_is_quantized(&type) && value != 0) {
      hr__hlo_set(hlo, i, hr__hlo_quantized(hlo, value, &type));
    } else if (widens && hr_dtype_is_float8(type.dtype) && is_wide(hlo, value)) {
      hr__hlo_set(hlo, i, hr__hlo_to_float8(hlo, value, HR_DTYPE_F32, type.dtype));
    }
  }
}

static hr_status lower_op(hr__hlo_import *import, const hr__vhlo_op *op, bool checks_types) {
  hr__hlo hlo = {.import = import, .graph = import->graph, .op = op, .checks_types = checks_types};
  if (--import->ops_left < 0) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "the program has more than %d operations, with those of calls",
                          HR__HLO_OPS_MAX);
  }
  hr_graph_origin(import->graph, (uint32_t)op->location + 1);
  lower(&hlo);
  wrap_results(&hlo);
  hr_status status = hr__hlo_failed(&hlo) ? hr_graph_status(import->graph) : HR_OK;
  status = status == HR_OK && checks_types ? check_results(&hlo) : status;
  return status == HR_OK ? HR_OK : annotate(&hlo, status);
}

bool hr__hlo_is_return(const hr__vhlo_op *op) {
  return is_named(op, "vhlo", "return_v1") || is_named(op, "sdy", "return");
}

hr_status hr__hlo_run(hr__hlo_import *import, const hr__vhlo_region *region, bool checks_types,
                      const hr__vhlo_op **out_return) {
  if (import->depth >= HR__HLO_CALLS_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "more than %d calls and regions in each other",
                          HR__HLO_CALLS_MAX);
  }
  ++import->depth;
  hr_status status = HR_OK;
  *out_return = NULL;
  for (int i = 0; i < region->op_count && *out_return == NULL && status == HR_OK; ++i) {
    if (hr__hlo_is_return(&region->ops[i])) {
      *out_return = &region->ops[i];
    } else {
      status = lower_op(import, &region->ops[i], checks_types);
    }
  }
  --import->depth;
  return status == HR_OK && *out_return == NULL
             ? hr_status_make(HR_STATUS_INVALID_ARGUMENT, "a region without a return")
             : status;
}

void hr__hlo_fail_with(hr__hlo *hlo, hr_status status) {
  if (hr__hlo_failed(hlo)) {
    hr_status_ignore(hr_graph_take_failure(hlo->graph));
  }
  hr__graph_fail(hlo->graph, status);
}

int hr__hlo_inline(hr__hlo *hlo, const hr__vhlo_region *region, int argument_count, const hr_value *arguments, int room,
                   hr_value *out_results, bool checks_types) {
  const hr__vhlo_op *end = NULL;
  if (region->argument_count != argument_count) {
    HR__HLO_WRONG(hlo, "%d arguments for a region that has %d", argument_count, region->argument_count);
    return -1;
  }
  for (int i = 0; i < argument_count; ++i) {
    region->arguments[i].value = arguments[i], region->arguments[i].shards = NULL;
  }
  hr_status status = hr__hlo_run(hlo->import, region, checks_types, &end);
  if (status != HR_OK) {
    hr__hlo_fail_with(hlo, status);
    return -1;
  }
  for (int i = 0; i < end->operand_count && i < room; ++i) {
    out_results[i] = hr__hlo_value(hlo, end->operands[i]);
  }
  return end->operand_count;
}

void hr__hlo_return_of(hr__hlo *hlo, const hr__vhlo_region *region, int operand_count) {
  const hr__vhlo_op *op = hlo->op;
  hr_value *values = hr_calloc((size_t)operand_count + (size_t)op->result_count + 1, sizeof *values);
  if (values == NULL) {
    hr__hlo_fail(hlo, HR_STATUS_RESOURCE_EXHAUSTED, "no memory for its values");
    return;
  }
  hr_value *results = values + operand_count;
  for (int i = 0; i < operand_count; ++i) {
    values[i] = hr__hlo_input(hlo, i);
  }
  int count = hr__hlo_inline(hlo, region, operand_count, values, op->result_count, results, hlo->checks_types);
  if (count >= 0 && count != op->result_count) {
    HR__HLO_WRONG(hlo, "%d results, expected %d", count, op->result_count);
  }
  for (int i = 0; i < op->result_count && count == op->result_count; ++i) {
    hr__hlo_set(hlo, i, results[i]);
  }
  hr_free(values);
}

void hr__hlo_return(hr__hlo *hlo, const hr__vhlo_region *region) {
  hr__hlo_return_of(hlo, region, hlo->op->operand_count);
}

/* ---- calls ---- */

void hr__hlo_call(hr__hlo *hlo, const char *attribute) {
  hr__hlo_import *import = hlo->import;
  int name = hr__vhlo_string(&import->module, hr__vhlo_find(&import->module, hlo->op, attribute));
  hr__vhlo_op *function = name >= 0 ? import->functions[name] : NULL;
  if (function == NULL || function->region_count != 1 || function->is_open) {
    HR__HLO_WRONG(hlo, "%s %.100s", function != NULL && function->is_open ? "a call of itself by" : "no function",
                  name >= 0 ? import->module.strings[name] : "");
    return;
  }
  function->is_open = true;
  hr__hlo_return(hlo, &function->regions[0]);
  function->is_open = false;
}

void hr__hlo_lower_call(hr__hlo *hlo) {
  hr__hlo_call(hlo, "callee");
}

/* ---- composites and custom calls, by name ---- */

typedef struct named {
  const char *name;
  void (*lower)(hr__hlo *hlo);
  hr_functional function;
} named;

static const named names[] = {
#define HR_HLO_NAMED(name, lower, FUNCTION) {name, hr__hlo_lower_##lower, HR_FUNCTIONAL_##FUNCTION},
#include "importers/stablehlo/names.def"
#undef HR_HLO_NAMED
};

static bool is_like(const char *pattern, const char *name) {
  while (*pattern != '\0' && (*pattern == *name || (*pattern == '?' && *name != '\0'))) {
    ++pattern, ++name;
  }
  return *pattern == '\0' && *name == '\0';
}

static const named *find_name(const char *name) {
  for (size_t i = 0; name != NULL && i < sizeof names / sizeof *names; ++i) {
    if (is_like(names[i].name, name)) {
      return &names[i];
    }
  }
  return NULL;
}

bool hr__hlo_is_named(const char *name) {
  return find_name(name) != NULL;
}

/* Composites of the plug-in have one operand, and more if their decomposition has constants that were computed before.
 */
static bool has_more_operands(const hr__hlo *hlo, const char *name) {
  return strncmp(name, "headrace.", 9) == 0 && hlo->op->operand_count > 1;
}

/* A composite without a row is its decomposition. Rows compute in f32 for floats of 8 bits. */
void hr__hlo_lower_composite(hr__hlo *hlo) {
  const char *name = hr__hlo_text(hlo, "name");
  const named *row = find_name(name);
  if (row == NULL || has_more_operands(hlo, name)) {
    hr__hlo_call(hlo, "decomposition");
    return;
  }
  hlo->function = row->function, hlo->widens = true;
  row->lower(hlo);
}

void hr__hlo_lower_custom_call(hr__hlo *hlo) {
  const char *name = hr__hlo_text(hlo, "call_target_name");
  const named *row = find_name(name);
  if (row == NULL) {
    hr__hlo_lower_host(hlo, name);
    return;
  }
  hlo->function = row->function;
  row->lower(hlo);
}
