/* hlo_host.c: custom calls that are functions of the host, and the order of their effects.
 *
 * A function with an effect has one more operand and one more result, a flag, which makes a chain of all of them: none
 * is dropped, and each runs after the one before it. Loops and branches with effects carry the flag (hlo_control.c).
 */
#include "base/allocator.h"
#include "importers/stablehlo/hlo.h"

static const hr_type effect_type = {.dtype = HR_DTYPE_BOOL, .rank = 1, .dims = {1}};

hr_value hr__hlo_effect(hr__hlo_import *import) {
  static const bool none[1] = {false};
  if (import->effect == 0) {
    import->effect = hr_graph_constant(import->graph, &effect_type, none);
  }
  return import->effect;
}

/* ---- which regions have effects ---- */

static bool function_has_effects(const hr__hlo_import *import, int name) {
  hr__vhlo_op *function = name >= 0 ? import->functions[name] : NULL;
  if (function == NULL || function->region_count != 1) {
    return false;
  }
  if (function->effects == HR__VHLO_EFFECTS_UNKNOWN) {
    function->effects = HR__VHLO_NO_EFFECTS; /* of calls of itself, which are refused later */
    function->effects = hr__hlo_has_effects(import, &function->regions[0]) ? HR__VHLO_HAS_EFFECTS : HR__VHLO_NO_EFFECTS;
  }
  return function->effects == HR__VHLO_HAS_EFFECTS;
}

static bool is_between_devices(const hr__vhlo_name *name) {
  static const char *const starts[] = {"all_gather_v", "all_reduce_v", "all_to_all_v", "collective_",
                                       "reduce_scatter_v"};
  bool is_one = strcmp(name->dialect, "sdy") == 0 && strcmp(name->name, "manual_computation") == 0;
  for (size_t i = 0; i < sizeof starts / sizeof *starts; ++i) {
    is_one = is_one || strncmp(name->name, starts[i], strlen(starts[i])) == 0;
  }
  return is_one;
}

static bool op_has_effects(const hr__hlo_import *import, const hr__vhlo_op *op) {
  const hr__vhlo_module *module = &import->module;
  int64_t has_effect = 0;
  if (hr__hlo_device_count(import) > 1 && is_between_devices(op->name)) {
    return true;
  }
  if (strncmp(op->name->name, "call_v", 6) == 0) {
    return function_has_effects(import, hr__vhlo_string(module, hr__vhlo_find(module, op, "callee")));
  }
  if (strncmp(op->name->name, "composite_v", 11) == 0) {
    return function_has_effects(import, hr__vhlo_string(module, hr__vhlo_find(module, op, "decomposition")));
  }
  if (strncmp(op->name->name, "custom_call_v", 13) != 0) {
    return false;
  }
  const char *name = hr__vhlo_text(module, hr__vhlo_find(module, op, "call_target_name"));
  return name != NULL && !hr__hlo_is_named(name) &&
         hr__vhlo_int(module, hr__vhlo_find(module, op, "has_side_effect"), &has_effect) && has_effect != 0;
}

bool hr__hlo_has_effects(const hr__hlo_import *import, const hr__vhlo_region *region) {
  for (int i = 0; i < region->op_count; ++i) {
    const hr__vhlo_op *op = &region->ops[i];
    bool has_effects = op_has_effects(import, op);
    for (int k = 0; k < op->region_count && !has_effects; ++k) {
      has_effects = hr__hlo_has_effects(import, &op->regions[k]);
    }
    if (has_effects) {
      return true;
    }
  }
  return false;
}

/* ---- calls ---- */

typedef struct operands {
  hr_value *inputs; /* then the flag */
  hr_type *types;   /* of results, then of the flag */
  int input_count, result_count;
} operands;

static bool list_operands(hr__hlo *hlo, operands *o) {
  for (int i = 0; i < hlo->op->operand_count; ++i) {
    if (!hr__hlo_input_type(hlo, i).is_token) {
      o->inputs[o->input_count++] = hr__hlo_input(hlo, i);
    }
  }
  for (int i = 0; i < hlo->op->result_count; ++i) {
    const hr__vhlo_type type = hr__hlo_result_type(hlo, i);
    if (type.is_token) {
      continue;
    }
    if (type.dtype == HR_DTYPE_NONE) {
      HR__HLO_REFUSE(hlo, "result %d has a type (%d) that is not supported", i, type.code);
      return false;
    }
    hr_type *to = &o->types[o->result_count++];
    to->dtype = type.dtype, to->rank = type.rank;
    memcpy(to->dims, type.dims, sizeof to->dims);
  }
  return !hr__hlo_failed(hlo);
}

static void add_call(hr__hlo *hlo, const hr_function_spec *spec, operands *o, bool has_effect) {
  if (has_effect) {
    o->inputs[o->input_count++] = hr__hlo_effect(hlo->import);
    o->types[o->result_count++] = effect_type;
  }
  hr_value first = hr_graph_host(hlo->graph, spec, o->input_count, o->inputs, o->result_count, o->types);
  hr_value next = first;
  for (int i = 0; i < hlo->op->result_count && first != 0; ++i) {
    if (!hr__hlo_result_type(hlo, i).is_token) {
      hr__hlo_set(hlo, i, next++);
    }
  }
  if (has_effect) {
    hlo->import->effect = first != 0 ? next : 0;
  }
}

static void call_function(hr__hlo *hlo, const hr_function_spec *spec) {
  const hr__vhlo_op *op = hlo->op;
  operands o = {.inputs = hr_calloc((size_t)op->operand_count + 1, sizeof *o.inputs),
                .types = hr_calloc((size_t)op->result_count + 1, sizeof *o.types)};
  bool is_right = o.inputs != NULL && o.types != NULL;
  if (!is_right) {
    hr__hlo_fail(hlo, HR_STATUS_RESOURCE_EXHAUSTED, "no memory for its values");
  }
  is_right = is_right && list_operands(hlo, &o);
  bool has_effect = is_right && hr__hlo_int(hlo, "has_side_effect", 0) != 0;
  if (is_right && (has_effect || o.result_count > 0)) {
    add_call(hlo, spec, &o, has_effect);
  } else if (spec->release != NULL) {
    spec->release(spec->arg);
  }
  hr_free(o.inputs);
  hr_free(o.types);
}

void hr__hlo_lower_host(hr__hlo *hlo, const char *name) {
  const hr_stablehlo_options *options = hlo->import->options;
  hr_function_spec spec = {0};
  hr_status status = name != NULL && options != NULL && options->find_function != NULL
                         ? options->find_function(options->arg, name, &spec)
                         : hr_status_make(HR_STATUS_NOT_FOUND, "there are no functions");
  if (hr_status_code_of(status) == HR_STATUS_NOT_FOUND) {
    hr_status_free(status);
    HR__HLO_REFUSE(hlo, "custom call \"%.100s\" is not supported", name != NULL ? name : "");
  } else if (status != HR_OK) {
    hr__hlo_fail_with(hlo, status);
  } else {
    call_function(hlo, &spec);
  }
}
