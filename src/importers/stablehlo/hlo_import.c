/* hlo_import.c: a module's main function as a graph. */
#include <stdio.h>

#include "base/allocator.h"
#include "base/disk_file.h"
#include "importers/stablehlo/hlo.h"

#define WRONG(...) hr_status_make(HR_STATUS_INVALID_ARGUMENT, __VA_ARGS__)

static bool is_function(const hr__vhlo_op *op) {
  return strcmp(op->name->dialect, "vhlo") == 0 && strcmp(op->name->name, "func_v1") == 0;
}

/* The region of the module. */
static const hr__vhlo_region *body_of(const hr__vhlo_module *module) {
  const hr__vhlo_region *top = &module->top;
  return top->op_count == 1 && top->ops[0].region_count == 1 ? &top->ops[0].regions[0] : NULL;
}

hr_status hr__hlo_find_main(const hr__vhlo_module *module, hr__vhlo_op **functions, hr__vhlo_op **out_main) {
  const hr__vhlo_region *body = body_of(module);
  int count = 0;
  for (int i = 0; body != NULL && i < body->op_count; ++i) {
    hr__vhlo_op *op = &body->ops[i];
    int name = is_function(op) ? hr__vhlo_string(module, hr__vhlo_find(module, op, "sym_name")) : -1;
    if (name < 0 || op->region_count != 1) {
      continue;
    }
    if (functions != NULL) {
      functions[name] = op;
    }
    bool is_main = strcmp(module->strings[name], "main") == 0;
    *out_main = is_main || count == 0 ? op : *out_main;
    count = is_main ? INT32_MIN : count + 1;
  }
  return count == 1 || count < 0 ? HR_OK : WRONG("%d functions, and none of them is main", count);
}

static hr_status add_input(hr__hlo_import *import, int dictionary, int index, hr__vhlo_value *argument) {
  hr__vhlo_type type;
  hr__vhlo_sharding sharding;
  char name[32];
  bool is_known = hr__vhlo_type_of(&import->module, argument->type, &type);
  if (!is_known || (!type.is_token && type.dtype == HR_DTYPE_NONE)) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "input %d has type %s (%d), which is not supported", index,
                          hr__vhlo_type_name(type.code), type.code);
  }
  if (type.is_token) {
    return HR_OK;
  }
  hr_type wanted = {.dtype = type.dtype, .rank = type.rank};
  for (int d = 0; d < type.rank; ++d) {
    if (type.dims[d] < 0) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "dim %d of input %d has no size: export the program for some", d,
                            index);
    }
    wanted.dims[d] = type.dims[d];
  }
  snprintf(name, sizeof name, "arg%d", index);
  bool is_shard = hr__hlo_device_count(import) > 1 && hr__hlo_main_sharding(&import->module, dictionary, &sharding);
  HR_RETURN_IF_ERROR(is_shard ? hr__hlo_shard_type(&sharding, &wanted) : HR_OK);
  argument->value = hr_graph_input(import->graph, name, &wanted);
  if (is_shard && argument->value != 0) {
    hr__hlo_set_shard(import, argument, argument->value, &sharding);
  }
  return hr_graph_status(import->graph);
}

/* The attributes of main's inputs and outputs. */
typedef struct dictionaries {
  int *inputs, *outputs;
} dictionaries;

static hr_value output_of(hr__hlo_import *import, const hr__vhlo_op *function, const dictionaries *of,
                          const hr__vhlo_op *end, int index) {
  hr__hlo hlo = {.import = import, .graph = import->graph, .op = end};
  hr__vhlo_value *value = end->operands[index];
  hr__vhlo_sharding sharding;
  bool is_shard = hr__hlo_device_count(import) > 1 &&
                  hr__hlo_result_sharding(&import->module, function, of->inputs, of->outputs[index], value, &sharding);
  return is_shard ? hr__hlo_local(&hlo, value, &sharding) : hr__hlo_value(&hlo, value);
}

static hr_status add_outputs(hr__hlo_import *import, const hr__vhlo_op *function, const dictionaries *of,
                             const hr__vhlo_op *end) {
  for (int i = 0; i < end->operand_count; ++i) {
    char name[32];
    hr__vhlo_type type;
    bool is_token = hr__vhlo_type_of(&import->module, end->operands[i]->type, &type) && type.is_token;
    if (!is_token) {
      snprintf(name, sizeof name, "result%d", i);
      hr_graph_output(import->graph, name, output_of(import, function, of, end, i));
    }
  }
  if (import->effect != 0) {
    hr_graph_output(import->graph, "effects", import->effect);
  }
  return hr_graph_status(import->graph);
}

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for its inputs and outputs");
}

static hr_status fill_main(hr__hlo_import *import, hr__vhlo_op *function, dictionaries *of) {
  const hr__vhlo_region *region = &function->regions[0];
  const hr__vhlo_op *end = NULL;
  of->inputs = hr__hlo_dictionaries(&import->module, function, "arg_attrs", region->argument_count);
  if (of->inputs == NULL) {
    return no_memory();
  }
  for (int i = 0; i < region->argument_count; ++i) {
    HR_RETURN_IF_ERROR(add_input(import, of->inputs[i], i, &region->arguments[i]));
  }
  HR_RETURN_IF_ERROR(hr__hlo_run(import, region, true, &end));
  of->outputs = hr__hlo_dictionaries(&import->module, function, "res_attrs", end->operand_count);
  return of->outputs != NULL ? add_outputs(import, function, of, end) : no_memory();
}

static hr_status import_main(hr__hlo_import *import, hr__vhlo_op *function) {
  dictionaries of = {NULL, NULL};
  function->is_open = true;
  hr_status status = fill_main(import, function, &of);
  hr_free(of.inputs);
  hr_free(of.outputs);
  return status;
}

static hr_status import_module(hr__hlo_import *import) {
  hr__vhlo_module *module = &import->module;
  hr__vhlo_op *function = NULL;
  import->functions = hr__vhlo_array(module, (size_t)module->string_count, sizeof *import->functions);
  if (import->functions == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for its functions");
  }
  HR_RETURN_IF_ERROR(hr__hlo_find_main(module, import->functions, &function));
  HR_RETURN_IF_ERROR(hr_graph_create(&import->graph));
  import->main = import->graph;
  return import_main(import, function);
}

hr_status hr_stablehlo_open_program(const char *name, const void *bytes, size_t size,
                                    const hr_stablehlo_options *options, hr_graph **out_graph) {
  hr__hlo_import import = {
      .ops_left = HR__HLO_OPS_MAX + (int64_t)(size / 4), .unpacked_left = HR__HLO_UNPACKED_MAX, .options = options};
  hr_status status = hr__vhlo_read((hr__span){bytes, size}, &import.module);
  status = status == HR_OK ? import_module(&import) : status;
  hr__vhlo_fini(&import.module);
  if (status == HR_OK) {
    *out_graph = import.graph;
  } else {
    hr_graph_release(import.graph);
  }
  return hr_status_annotate(status, "%s", name);
}

hr_status hr_stablehlo_open_bytes(const char *name, const void *bytes, size_t size, hr_graph **out_graph) {
  return hr_stablehlo_open_program(name, bytes, size, NULL, out_graph);
}

hr_status hr_stablehlo_open(const char *path, hr_graph **out_graph) {
  void *bytes = NULL;
  size_t size = 0;
  HR_RETURN_IF_ERROR(hr_status_annotate(hr__disk_map(path, &bytes, &size), "%s", path));
  hr_status status = hr_stablehlo_open_bytes(path, bytes, size, out_graph);
  hr__disk_unmap(bytes, size);
  return status;
}

bool hr_stablehlo_is_one(const void *bytes, size_t size) {
  return hr__vhlo_is_file((hr__span){bytes, size});
}

bool hr_stablehlo_is_file(const char *path) {
  char bytes[8];
  return hr_stablehlo_is_one(bytes, hr__disk_head(path, bytes, sizeof bytes));
}
