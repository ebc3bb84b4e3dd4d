/* executable.c: programs: a graph, read from StableHLO's portable format, and its session on a device.
 *
 * One object is the executable and the loaded one: each handle has a reference. A program over several devices is
 * imported once for each, as the program of that device (headrace/importer.h), with functions between them (gather.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executable.h"
#include "python_calls.h"

static pjrt_error *no_memory(void) {
  return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a program");
}

static hr_status no_room(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a program");
}

void hrj_executable_release(pjrt_executable *executable) {
  if (executable == NULL || atomic_fetch_sub(&executable->references, 1) != 1) {
    return;
  }
  for (int i = 0; executable->sessions != NULL && i < executable->device_count; ++i) {
    hr_session_release(executable->sessions[i]);
  }
  for (int i = 0; executable->input_shardings != NULL && i < executable->main.input_count; ++i) {
    free(executable->input_shardings[i]);
  }
  for (int i = 0; executable->output_shardings != NULL && i < executable->main.output_count; ++i) {
    free(executable->output_shardings[i]);
  }
  free(executable->input_shardings);
  free(executable->output_shardings);
  free(executable->input_sharding_sizes);
  free(executable->output_sharding_sizes);
  hrj_meetings_release(executable->meetings);
  free(executable->sessions);
  free(executable->devices);
  free(executable->logical_ids);
  free(executable->assignment);
  hr_stablehlo_main_fini(&executable->main);
  free(executable->outputs);
  free(executable->types);
  free(executable->dims);
  free(executable->ranks);
  free(executable->kinds);
  free(executable->kind_sizes);
  free(executable->input_layouts);
  free(executable->output_layouts);
  free(executable->donated);
  free(executable->code);
  free(executable->options);
  free(executable);
}

/* ---- compile ---- */

/* The layout that the program states; row-major for a token, or a program that is divided in other ranks. */
static const pjrt_memory_layout *layout_of(const hr_stablehlo_layout *stated, int rank) {
  int64_t minor_to_major[HR_RANK_MAX];
  for (int i = 0; i < rank; ++i) {
    minor_to_major[i] = stated->minor_to_major[i];
  }
  return stated->rank == rank ? hrj_layout_find(rank, minor_to_major) : hrj_layout_row_major(rank);
}

static hr_status add_output(pjrt_executable *executable, const hr_type *type, int index, size_t *dim_count) {
  pjrt_type of = hrj_type_of(type->dtype, executable->main.output_bits[index]);
  for (int d = 0; d < type->rank; ++d) {
    if (type->dims[d] < 0) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, HRJ_PLATFORM ": dim %d of output %d is no number", d, index);
    }
    executable->dims[(*dim_count)++] = type->dims[d];
  }
  executable->types[index] = of;
  executable->ranks[index] = (size_t)type->rank;
  const pjrt_memory_layout *layout = layout_of(&executable->main.output_layouts[index], type->rank);
  if (layout == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a layout");
  }
  executable->output_layouts[index] = layout;
  HR_RETURN_IF_ERROR(hrj_tensor_make(of, type->dims, (size_t)type->rank, layout, &executable->outputs[index]));
  executable->output_bytes +=
      hr_tensor_count(&executable->outputs[index]) * (int64_t)hr_dtype_size(executable->outputs[index].dtype);
  return HR_OK;
}

/* A token has no elements: its call orders effects. JAX passes tokens as arrays of this type. */
static const hr_type token_type = {.dtype = HR_DTYPE_BOOL, .rank = 1};

static hr_status list_outputs(pjrt_executable *executable, const hr_graph *graph) {
  size_t dim_count = 0;
  for (int i = 0; i < executable->main.output_count; ++i) {
    int number = executable->main.outputs[i];
    hr_type type = token_type;
    if (number != HR_STABLEHLO_TOKEN) {
      HR_RETURN_IF_ERROR(hr_graph_type(graph, hr_graph_output_value(graph, number), &type));
    }
    HR_RETURN_IF_ERROR(add_output(executable, &type, i, &dim_count));
  }
  return HR_OK;
}

static int64_t bytes_of(const hr_type *type) {
  int64_t bytes = (int64_t)hr_dtype_size(type->dtype);
  for (int d = 0; d < type->rank; ++d) {
    bytes *= type->dims[d];
  }
  return bytes;
}

static hr_status list_inputs(pjrt_executable *executable, const hr_graph *graph) {
  const hr_stablehlo_main *main = &executable->main;
  for (int i = 0; i < main->input_count; ++i) {
    executable->input_layouts[i] = hrj_layout_row_major(token_type.rank);
    if (main->inputs[i] == HR_STABLEHLO_TOKEN) {
      continue;
    }
    hr_type type;
    HR_RETURN_IF_ERROR(hr_graph_type(graph, hr_graph_input_value(graph, main->inputs[i]), &type));
    executable->input_layouts[i] = layout_of(&main->input_layouts[i], type.rank);
    if (executable->input_layouts[i] == NULL) {
      return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a layout");
    }
    executable->input_bytes += bytes_of(&type);
  }
  return HR_OK;
}

static int64_t bytes_of_output(const pjrt_executable *executable, int output) {
  const hr_tensor *tensor = &executable->outputs[output];
  return hr_tensor_count(tensor) * (int64_t)hr_dtype_size(tensor->dtype);
}

/* Marks an output of this size that no other input has; false: there is none, and the caller keeps the input. */
static bool find_output(const pjrt_executable *executable, int64_t bytes, bool *taken) {
  for (int i = 0; i < executable->main.output_count; ++i) {
    if (!taken[i] && bytes_of_output(executable, i) == bytes) {
      taken[i] = true;
      return true;
    }
  }
  return false;
}

static hr_status list_donated(pjrt_executable *executable, const hr_graph *graph) {
  const hr_stablehlo_main *main = &executable->main;
  bool *taken = calloc((size_t)main->output_count + 1, sizeof *taken);
  hr_status status = taken != NULL ? HR_OK : no_room();
  for (int i = 0; i < main->input_count && status == HR_OK; ++i) {
    if (main->donations[i] >= 0) {
      taken[main->donations[i]] = true;
    }
  }
  for (int i = 0; i < main->input_count && status == HR_OK; ++i) {
    hr_type type = token_type;
    if (main->donations[i] == HR_STABLEHLO_KEPT || main->inputs[i] == HR_STABLEHLO_TOKEN) {
      continue;
    }
    status = hr_graph_type(graph, hr_graph_input_value(graph, main->inputs[i]), &type);
    bool has_output = main->donations[i] >= 0 || (status == HR_OK && find_output(executable, bytes_of(&type), taken));
    if (status == HR_OK && has_output) {
      executable->donated[executable->donated_count++] = i;
      executable->donated_bytes += bytes_of(&type);
    }
  }
  free(taken);
  return status;
}

static void list_kinds(pjrt_executable *executable) {
  int inputs = executable->main.input_count;
  for (int i = 0; i < inputs + executable->main.output_count; ++i) {
    const hr_stablehlo_layout *layout =
        i < inputs ? &executable->main.input_layouts[i] : &executable->main.output_layouts[i - inputs];
    const pjrt_memory *memory = hrj_memory_of(executable->devices[0], layout->memory);
    executable->kinds[i] = hrj_memory_kind(memory->kind), executable->kind_sizes[i] = strlen(executable->kinds[i]);
  }
}

static bool reserve(pjrt_executable *executable) {
  size_t outputs = (size_t)executable->main.output_count + 1, inputs = (size_t)executable->main.input_count + 1;
  executable->outputs = calloc(outputs, sizeof *executable->outputs);
  executable->types = calloc(outputs, sizeof *executable->types);
  executable->dims = calloc(outputs * HR_RANK_MAX, sizeof *executable->dims);
  executable->ranks = calloc(outputs, sizeof *executable->ranks);
  executable->kinds = calloc(inputs + outputs, sizeof *executable->kinds);
  executable->kind_sizes = calloc(inputs + outputs, sizeof *executable->kind_sizes);
  executable->donated = calloc(inputs, sizeof *executable->donated);
  executable->input_layouts = calloc(inputs, sizeof(pjrt_memory_layout *));
  executable->output_layouts = calloc(outputs, sizeof(pjrt_memory_layout *));
  return executable->outputs != NULL && executable->types != NULL && executable->dims != NULL &&
         executable->ranks != NULL && executable->kinds != NULL && executable->kind_sizes != NULL &&
         executable->donated != NULL && executable->input_layouts != NULL && executable->output_layouts != NULL;
}

/* FNV-1a of the program and its options. */
static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
  }
  return hash;
}

static void describe(pjrt_executable *executable) {
  uint64_t hash = hash_bytes(14695981039346656037u, executable->code, executable->code_size);
  snprintf(executable->fingerprint, sizeof executable->fingerprint, "hr%016llx",
           (unsigned long long)hash_bytes(hash, executable->options, executable->options_size));
}

/* DeviceAssignmentProto: one replica, a computation for each partition, their devices; all numbers are below 128. */
static bool assign_devices(pjrt_executable *executable) {
  size_t count = (size_t)executable->device_count;
  executable->assignment_size = 4 + 5 * count;
  executable->assignment = malloc(executable->assignment_size);
  executable->logical_ids = calloc(count + 1, sizeof *executable->logical_ids);
  if (executable->assignment == NULL || executable->logical_ids == NULL) {
    return false;
  }
  memcpy(executable->assignment, (unsigned char[]){0x08, 1, 0x10, (unsigned char)count}, 4);
  for (size_t i = 0; i < count; ++i) {
    unsigned char number = (unsigned char)executable->devices[i]->number;
    memcpy(executable->assignment + 4 + 5 * i, (unsigned char[]){0x1a, 3, 0x0a, 1, number}, 5);
    executable->logical_ids[i] = (pjrt_logical_id){0, (int)i};
  }
  return true;
}

static pjrt_named_value cost_of(const char *name, double value) {
  return (pjrt_named_value){.struct_size = sizeof(pjrt_named_value),
                            .name = name,
                            .name_size = strlen(name),
                            .kind = PJRT_VALUE_FLOAT,
                            .value.real = (float)value,
                            .value_size = 1};
}

/* As JAX names them. Bytes are those of inputs and outputs, which a run that fuses everything reads and writes. */
static void list_costs(pjrt_executable *executable, const hr_graph *graph) {
  hr_graph_cost cost;
  hr_graph_cost_of(graph, &cost);
  executable->costs[0] = cost_of("flops", cost.operations);
  executable->costs[1] = cost_of("transcendentals", cost.transcendentals);
  executable->costs[2] = cost_of("bytes accessed", (double)(executable->input_bytes + executable->output_bytes));
}

/* The outputs of main that are no tokens. */
static int count_results(const hr_stablehlo_main *main) {
  int count = 0;
  for (int i = 0; i < main->output_count; ++i) {
    count += main->outputs[i] != HR_STABLEHLO_TOKEN;
  }
  return count;
}

static hr_status list_operands(pjrt_executable *executable, const hr_graph *graph) {
  HR_RETURN_IF_ERROR(hr_stablehlo_read_main(executable->code, executable->code_size, &executable->main));
  executable->graph_input_count = hr_graph_input_count(graph);
  executable->graph_output_count = hr_graph_output_count(graph);
  atomic_init(&executable->waits, hr_graph_inner_count(graph) > 0);
  executable->has_effects = executable->graph_output_count > count_results(&executable->main);
  if (!reserve(executable)) {
    return no_room();
  }
  list_kinds(executable);
  HR_RETURN_IF_ERROR(list_inputs(executable, graph));
  HR_RETURN_IF_ERROR(list_outputs(executable, graph));
  HR_RETURN_IF_ERROR(list_donated(executable, graph));
  list_costs(executable, graph);
  return HR_OK;
}

/* A partition that is compiled. */
typedef struct partition {
  pjrt_executable *executable;
  int number;
} partition;

static hr_status find_function(void *arg, const char *name, hr_function_spec *out_spec) {
  const partition *p = arg;
  int count = p->executable->device_count;
  hrj_python_place place;
  hr_function_spec spec;
  HR_RETURN_IF_ERROR(hrj_python_find(name, &spec));
  p->executable->has_callbacks = true;
  atomic_store(&p->executable->devices[p->number]->has_callbacks, true);
  hr_status status = hrj_python_place_of(name, &place);
  if (status == HR_OK && count > 1 && place.device >= count) {
    status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "a call on device %d, expected one of %d", place.device, count);
  }
  if (status != HR_OK) {
    spec.release(spec.arg);
    return status;
  }
  *out_spec = spec;
  return count > 1 && place.device >= 0 ? hrj_once(p->executable->meetings, p->number, count, place.device,
                                                   place.result_count, place.result_bytes, &spec, out_spec)
                                        : HR_OK;
}

static hr_status find_gather(void *arg, int count, const int *devices, size_t bytes, hr_function_spec *out_spec) {
  const partition *p = arg;
  pjrt_device *members[HR_STABLEHLO_DEVICES_MAX];
  hrj_links *links;
  for (int i = 0; i < count; ++i) {
    members[i] = p->executable->devices[devices[i]];
  }
  HR_RETURN_IF_ERROR(hrj_links_find(p->executable->device->client, count, members, &links));
  return hrj_gather(p->executable->meetings, links, p->number, count, devices, bytes, out_spec);
}

static hr_status load_partition(pjrt_executable *executable, int number) {
  hr_graph *graph;
  pjrt_device *device = executable->devices[number];
  partition p = {executable, number};
  const hr_stablehlo_options options = {.find_function = find_function,
                                        .arg = &p,
                                        .device_count = executable->device_count,
                                        .device_number = number,
                                        .find_gather = find_gather};
  HR_RETURN_IF_ERROR(
      hr_stablehlo_open_program(HRJ_PLATFORM, executable->code, executable->code_size, &options, &graph));
  hr_status status = number == 0 ? list_operands(executable, graph) : HR_OK;
  if (status == HR_OK && !device->is_null) {
    status = hr_session_create(device->stream, graph, NULL, &executable->sessions[number]);
  }
  hr_graph_release(graph);
  return status;
}

static hr_status load(pjrt_executable *executable) {
  for (int i = 0; i < executable->device_count; ++i) {
    HR_RETURN_IF_ERROR(load_partition(executable, i));
  }
  return executable->device_count > 1 ? hrj_list_shardings(executable) : HR_OK;
}

static char *copy_bytes(const char *bytes, size_t size) {
  char *copy = malloc(size + 1);
  return copy != NULL ? memcpy(copy, bytes, size) : NULL;
}

static hr_status check_options(const pjrt_client *client, const hrj_compile_options *options) {
  if (options->unknown[0] != '\0') {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "No such compile option: '%s'", options->unknown);
  }
  if (options->replicas != 1) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, HRJ_PLATFORM ": a program of %lld replicas, expected one",
                          (long long)options->replicas);
  }
  if (options->partitions < 1 || options->partitions > client->device_count ||
      options->partitions > HR_STABLEHLO_DEVICES_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": a program over %lld devices, there are %d",
                          (long long)options->partitions, client->device_count);
  }
  for (int i = 0; i < options->device_count; ++i) {
    if (options->devices[i] < 0 || options->devices[i] >= client->device_count) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": device %lld of %d",
                            (long long)options->devices[i], client->device_count);
    }
  }
  return HR_OK;
}

static hr_status find_devices(pjrt_client *client, const hrj_compile_options *options, pjrt_executable *executable) {
  size_t count = (size_t)options->partitions;
  executable->device_count = (int)count;
  executable->devices = calloc(count + 1, sizeof(pjrt_device *));
  executable->sessions = calloc(count + 1, sizeof(hr_session *));
  executable->meetings = count > 1 ? hrj_meetings_create() : NULL;
  if (executable->devices == NULL || executable->sessions == NULL || (count > 1 && executable->meetings == NULL)) {
    return no_room();
  }
  for (int i = 0; i < (int)count; ++i) {
    executable->devices[i] = &client->devices[i < options->device_count ? options->devices[i] : i];
  }
  executable->device = executable->devices[0];
  return assign_devices(executable) ? HR_OK : no_room();
}

static hr_status build(pjrt_client *client, pjrt_executable *executable) {
  const hrj_compile_options options = hrj_compile_options_read(executable->options, executable->options_size);
  HR_RETURN_IF_ERROR(check_options(client, &options));
  HR_RETURN_IF_ERROR(find_devices(client, &options, executable));
  describe(executable);
  return load(executable);
}

pjrt_error *hrj_compile(pjrt_client *client, const char *code, size_t code_size, const char *options,
                        size_t options_size, pjrt_executable **out_executable) {
  pjrt_executable *executable = calloc(1, sizeof *executable);
  if (executable == NULL) {
    return no_memory();
  }
  static atomic_uint number;
  executable->number = atomic_fetch_add(&number, 1) + 1;
  atomic_init(&executable->references, 1);
  executable->code = copy_bytes(code, code_size), executable->code_size = code_size;
  executable->options = copy_bytes(options, options_size), executable->options_size = options_size;
  bool has_room = executable->code != NULL && executable->options != NULL;
  hr_status status = has_room ? build(client, executable) : no_room();
  if (status != HR_OK) {
    hrj_executable_release(executable);
    return hrj_error(status);
  }
  *out_executable = executable;
  return NULL;
}

static pjrt_error *check_format(const pjrt_program *program) {
  static const char format[] = "mlir";
  if (program->format_size != sizeof format - 1 || memcmp(program->format, format, sizeof format - 1) != 0) {
    return hrj_error_make(HR_STATUS_UNIMPLEMENTED, HRJ_PLATFORM ": programs of format \"%.*s\", expected \"mlir\"",
                          (int)program->format_size, program->format);
  }
  return NULL;
}

pjrt_error *hrj_Client_Compile(pjrt_args_compile *args) {
  const pjrt_program *program = args->program;
  pjrt_error *error = check_format(program);
  return error != NULL ? error
                       : hrj_compile(args->client, program->code, program->code_size, args->options, args->options_size,
                                     &args->executable);
}

/* A topology is a client: the program is for the devices that are here. */
pjrt_error *hrj_Compile(pjrt_args_compile_for *args) {
  const pjrt_program *program = args->program;
  pjrt_error *error = check_format(program);
  return error != NULL ? error
                       : hrj_compile(args->client != NULL ? args->client : args->topology, program->code,
                                     program->code_size, args->options, args->options_size, &args->executable);
}

/* ---- handles ---- */

pjrt_error *hrj_Executable_Destroy(pjrt_args_self *args) {
  hrj_executable_release(args->self);
  return NULL;
}

pjrt_error *hrj_LoadedExecutable_Destroy(pjrt_args_self *args) {
  hrj_executable_release(args->self);
  return NULL;
}

pjrt_error *hrj_LoadedExecutable_GetExecutable(pjrt_args_pointer *args) {
  atomic_fetch_add(&((pjrt_executable *)args->self)->references, 1);
  args->pointer = args->self;
  return NULL;
}

pjrt_error *hrj_LoadedExecutable_Delete(pjrt_args_self *args) {
  atomic_store(&((pjrt_executable *)args->self)->is_deleted, true);
  return NULL;
}

pjrt_error *hrj_LoadedExecutable_IsDeleted(pjrt_args_flag *args) {
  args->flag = atomic_load(&((pjrt_executable *)args->self)->is_deleted);
  return NULL;
}

/* ---- what a program is ---- */

pjrt_error *hrj_Executable_Name(pjrt_args_text *args) {
  const pjrt_executable *executable = args->self;
  args->text = executable->main.name != NULL ? executable->main.name : HRJ_PLATFORM;
  args->text_size = strlen(args->text);
  return NULL;
}

pjrt_error *hrj_Executable_NumReplicas(pjrt_args_size *args) {
  args->size = 1;
  return NULL;
}

pjrt_error *hrj_Executable_NumPartitions(pjrt_args_size *args) {
  args->size = ((pjrt_executable *)args->self)->device_count;
  return NULL;
}

pjrt_error *hrj_Executable_NumOutputs(pjrt_args_size *args) {
  args->size = ((pjrt_executable *)args->self)->main.output_count;
  return NULL;
}

/* Code belongs to the process's cache, not to a program. */
pjrt_error *hrj_Executable_SizeOfGeneratedCodeInBytes(pjrt_args_size *args) {
  args->size = 0;
  return NULL;
}

pjrt_error *hrj_Executable_Fingerprint(pjrt_args_text *args) {
  const pjrt_executable *executable = args->self;
  args->text = executable->fingerprint, args->text_size = strlen(executable->fingerprint);
  return NULL;
}

pjrt_error *hrj_LoadedExecutable_Fingerprint(pjrt_args_text *args) {
  return hrj_Executable_Fingerprint(args);
}

pjrt_error *hrj_Executable_OutputElementTypes(pjrt_args_list *args) {
  pjrt_executable *executable = args->self;
  args->list = executable->types, args->count = (size_t)executable->main.output_count;
  return NULL;
}

pjrt_error *hrj_Executable_OutputDimensions(pjrt_args_dims *args) {
  args->count = (size_t)args->executable->main.output_count;
  args->dims = args->executable->dims, args->ranks = args->executable->ranks;
  return NULL;
}

pjrt_error *hrj_Executable_OutputMemoryKinds(pjrt_args_kinds *args) {
  int inputs = args->executable->main.input_count;
  args->count = (size_t)args->executable->main.output_count;
  args->kinds = args->executable->kinds + inputs, args->kind_sizes = args->executable->kind_sizes + inputs;
  return NULL;
}

pjrt_error *hrj_Executable_ParameterMemoryKinds(pjrt_args_kinds *args) {
  args->count = (size_t)args->executable->main.input_count;
  args->kinds = args->executable->kinds, args->kind_sizes = args->executable->kind_sizes;
  return NULL;
}

/* Temporaries share memory with those of other programs and are known when a program runs: they are not counted. */
pjrt_error *hrj_Executable_GetCompiledMemoryStats(pjrt_args_program_memory *args) {
  const pjrt_executable *executable = args->executable;
  size_t head = offsetof(pjrt_args_program_memory, code);
  size_t size = args->struct_size < sizeof *args ? args->struct_size : sizeof *args;
  pjrt_args_program_memory stats = {
      .arguments = executable->input_bytes, .outputs = executable->output_bytes, .aliases = executable->donated_bytes};
  stats.peak = stats.arguments + stats.outputs - stats.aliases;
  stats.total = stats.total_allocations = stats.peak_unpadded = stats.peak;
  if (size > head) {
    memcpy((char *)args + head, (const char *)&stats + head, size - head);
  }
  return NULL;
}

pjrt_error *hrj_Executable_GetCostAnalysis(pjrt_args_costs *args) {
  args->list = args->executable->costs, args->count = ARRAY_SIZE(args->executable->costs);
  return NULL;
}

pjrt_error *hrj_LoadedExecutable_AddressableDevices(pjrt_args_list *args) {
  pjrt_executable *executable = args->self;
  args->list = executable->devices, args->count = (size_t)executable->device_count;
  return NULL;
}

pjrt_error *hrj_LoadedExecutable_AddressableDeviceLogicalIds(pjrt_args_list *args) {
  pjrt_executable *executable = args->self;
  args->list = executable->logical_ids, args->count = (size_t)executable->device_count;
  return NULL;
}

static void free_nothing(void *owned) {
  (void)owned;
}

pjrt_error *hrj_LoadedExecutable_GetDeviceAssignment(pjrt_args_bytes *args) {
  const pjrt_executable *executable = args->self;
  args->bytes = (const char *)executable->assignment, args->bytes_size = executable->assignment_size;
  args->owned = NULL, args->free = free_nothing;
  return NULL;
}
