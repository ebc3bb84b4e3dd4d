/* hlo_main.c: the inputs and outputs of a module's main function, tokens among them, which inputs are donated, and the
 * layouts of all.
 *
 * A graph has no tokens, so that its inputs and outputs have other numbers. Callers that call main as the file has it
 * need both.
 */
#include "base/allocator.h"
#include "importers/stablehlo/hlo.h"

static int donation_of(const hr__vhlo_module *module, int dictionary, int output_count) {
  int64_t number;
  if (hr__vhlo_int(module, hr__vhlo_dictionary(module, dictionary, "tf.aliasing_output"), &number)) {
    return number >= 0 && number < output_count ? (int)number : HR_STABLEHLO_KEPT;
  }
  bool is_donor = hr__vhlo_int(module, hr__vhlo_dictionary(module, dictionary, "jax.buffer_donor"), &number);
  return is_donor && number != 0 ? HR_STABLEHLO_ANY : HR_STABLEHLO_KEPT;
}

/* The number of a value in the graph, of which *count have numbers. */
static int number_of(const hr__vhlo_module *module, const hr__vhlo_value *value, int *count) {
  hr__vhlo_type type;
  bool is_token = hr__vhlo_type_of(module, value->type, &type) && type.is_token;
  return is_token ? HR_STABLEHLO_TOKEN : (*count)++;
}

static int bits_of(const hr__vhlo_module *module, const hr__vhlo_value *value) {
  hr__vhlo_type type;
  return hr__vhlo_type_of(module, value->type, &type) ? hr__hlo_narrow(&type) : 0;
}

static const hr__vhlo_op *return_of(const hr__vhlo_region *region) {
  for (int i = 0; i < region->op_count; ++i) {
    if (hr__hlo_is_return(&region->ops[i])) {
      return &region->ops[i];
    }
  }
  return NULL;
}

static void list_donations(const hr__vhlo_module *module, const int *dictionaries, hr_stablehlo_main *lists) {
  for (int i = 0; i < lists->input_count; ++i) {
    lists->donations[i] =
        dictionaries[i] >= 0 ? donation_of(module, dictionaries[i], lists->output_count) : HR_STABLEHLO_KEPT;
  }
}

/* The devices by their shards. */
static void list_shards(const hr__vhlo_sharding *s, hr_stablehlo_shards *out) {
  out->rank = s->rank, out->terms = hr__vhlo_shards(s, HR__VHLO_TERMS);
  int64_t shards = out->terms;
  for (int d = 0; d < s->rank; ++d) {
    out->parts[d] = hr__vhlo_shards(s, d);
    shards *= out->parts[d];
  }
  for (int64_t shard = 0; shard < shards && shards > 1; ++shard) {
    for (int i = 0; i < s->mesh.device_count; ++i) {
      int64_t number = 0;
      for (int d = 0; d < s->rank; ++d) {
        number = number * out->parts[d] + hr__vhlo_shard(s, s->mesh.devices[i], d);
      }
      number = number * out->terms + hr__vhlo_shard(s, s->mesh.devices[i], HR__VHLO_TERMS);
      if (number == shard && out->device_count < HR_STABLEHLO_DEVICES_MAX) {
        out->devices[out->device_count++] = s->mesh.devices[i];
      }
    }
  }
}

static void list_all_shards(const hr__vhlo_module *module, const hr__vhlo_op *function, const int *arguments,
                            const int *results, const hr__vhlo_op *end, hr_stablehlo_main *lists) {
  hr__vhlo_sharding s;
  for (int i = 0; i < lists->input_count; ++i) {
    if (hr__hlo_main_sharding(module, arguments[i], &s)) {
      list_shards(&s, &lists->input_shards[i]);
    }
  }
  for (int i = 0; i < lists->output_count; ++i) {
    if (hr__hlo_result_sharding(module, function, arguments, results[i], end->operands[i], &s)) {
      list_shards(&s, &lists->output_shards[i]);
    }
  }
}

static hr_status list_layouts(const hr__vhlo_module *module, const hr__vhlo_region *region, const int *arguments,
                              const int *results, const hr__vhlo_op *end, hr_stablehlo_main *lists) {
  for (int i = 0; i < lists->input_count; ++i) {
    hr_status status = hr__hlo_input_layout(module, arguments[i], &region->arguments[i], &lists->input_layouts[i]);
    HR_RETURN_IF_ERROR(hr_status_annotate(status, "input %d", i));
  }
  for (int i = 0; i < lists->output_count; ++i) {
    hr_status status = hr__hlo_output_layout(module, region, lists->input_layouts, results[i], end->operands[i],
                                             &lists->output_layouts[i]);
    HR_RETURN_IF_ERROR(hr_status_annotate(status, "output %d", i));
  }
  return HR_OK;
}

static hr_status list_values(const hr__vhlo_module *module, const hr__vhlo_op *function, hr_stablehlo_main *lists) {
  const hr__vhlo_region *region = &function->regions[0];
  const hr__vhlo_op *end = return_of(region);
  if (end == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "a region without a return");
  }
  lists->input_count = region->argument_count, lists->output_count = end->operand_count;
  lists->inputs = hr_calloc((size_t)lists->input_count + 1, sizeof *lists->inputs);
  lists->outputs = hr_calloc((size_t)lists->output_count + 1, sizeof *lists->outputs);
  lists->donations = hr_calloc((size_t)lists->input_count + 1, sizeof *lists->donations);
  lists->output_bits = hr_calloc((size_t)lists->output_count + 1, sizeof *lists->output_bits);
  lists->input_shards = hr_calloc((size_t)lists->input_count + 1, sizeof *lists->input_shards);
  lists->output_shards = hr_calloc((size_t)lists->output_count + 1, sizeof *lists->output_shards);
  lists->input_layouts = hr_calloc((size_t)lists->input_count + 1, sizeof *lists->input_layouts);
  lists->output_layouts = hr_calloc((size_t)lists->output_count + 1, sizeof *lists->output_layouts);
  int *arguments = hr__hlo_dictionaries(module, function, "arg_attrs", lists->input_count);
  int *results = hr__hlo_dictionaries(module, function, "res_attrs", lists->output_count);
  if (lists->inputs == NULL || lists->outputs == NULL || lists->donations == NULL || arguments == NULL ||
      results == NULL || lists->input_shards == NULL || lists->output_shards == NULL || lists->input_layouts == NULL ||
      lists->output_layouts == NULL || lists->output_bits == NULL) {
    hr_free(arguments);
    hr_free(results);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %d inputs and %d outputs", lists->input_count,
                          lists->output_count);
  }
  for (int i = 0, count = 0; i < lists->input_count; ++i) {
    lists->inputs[i] = number_of(module, &region->arguments[i], &count);
  }
  for (int i = 0, count = 0; i < lists->output_count; ++i) {
    lists->outputs[i] = number_of(module, end->operands[i], &count);
    lists->output_bits[i] = bits_of(module, end->operands[i]);
  }
  list_donations(module, arguments, lists);
  list_all_shards(module, function, arguments, results, end, lists);
  hr_status status = list_layouts(module, region, arguments, results, end, lists);
  hr_free(arguments);
  hr_free(results);
  return status;
}

/* A text of the file; NULL if it is NULL. */
static hr_status copy_text(const char *text, char **out_text) {
  size_t size = text != NULL ? strlen(text) + 1 : 0;
  *out_text = text != NULL ? hr_malloc(size) : NULL;
  if (text != NULL && *out_text == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a text of %zu bytes", size);
  }
  if (text != NULL) {
    memcpy(*out_text, text, size);
  }
  return HR_OK;
}

/* The module's name, which is optional, is the first of its properties, or an attribute in old files. */
static const char *module_name(const hr__vhlo_module *module) {
  if (module->top.op_count != 1) {
    return NULL;
  }
  const hr__vhlo_op *op = &module->top.ops[0];
  hr__reader properties = hr__reader_of(op->properties);
  uint64_t first = op->properties.size > 0 ? hr__read_number(&properties) : 0;
  bool has_property = (first & 1) != 0 && !properties.has_failed && first >> 1 < (uint64_t)module->attribute_count;
  return hr__vhlo_text(module,
                       has_property ? (int)(first >> 1) : hr__vhlo_dictionary(module, op->dictionary, "sym_name"));
}

static hr_status read_main(const hr__vhlo_module *module, hr_stablehlo_main *lists) {
  hr__vhlo_op *function = NULL;
  HR_RETURN_IF_ERROR(hr__hlo_find_main(module, NULL, &function));
  const char *note = hr__vhlo_text(module, hr__vhlo_dictionary(module, function->dictionary, "headrace.note"));
  HR_RETURN_IF_ERROR(copy_text(note, &lists->note));
  HR_RETURN_IF_ERROR(copy_text(module_name(module), &lists->name));
  return list_values(module, function, lists);
}

hr_status hr_stablehlo_read_main(const void *bytes, size_t size, hr_stablehlo_main *out_main) {
  hr__vhlo_module module;
  hr_stablehlo_main lists = {0};
  hr_status status = hr__vhlo_read((hr__span){bytes, size}, &module);
  status = status == HR_OK ? read_main(&module, &lists) : status;
  hr__vhlo_fini(&module);
  if (status == HR_OK) {
    *out_main = lists;
  } else {
    hr_stablehlo_main_fini(&lists);
  }
  return status;
}

void hr_stablehlo_main_fini(hr_stablehlo_main *lists) {
  hr_free(lists->inputs);
  hr_free(lists->outputs);
  hr_free(lists->donations);
  hr_free(lists->output_bits);
  hr_free(lists->input_shards);
  hr_free(lists->output_shards);
  hr_free(lists->input_layouts);
  hr_free(lists->output_layouts);
  hr_free(lists->name);
  hr_free(lists->note);
  *lists = (hr_stablehlo_main){0};
}
