#include "engine/executable.h"

#include <string.h>

#include "base/env.h"
#include "base/hash.h"
#include "base/integer.h"
#include "base/log.h"
#include "core/ops/op.h"
#include "engine/compile_queue.h"
#include "engine/device_code.h"
#include "engine/dump.h"
#include "engine/machine.h"
#include "engine/replay.h"
#include "engine/weights.h"
#include "runtime/registry.h"

/* Below a microsecond nothing is worth a choice: on the host, and elsewhere. */
static const int64_t CHOICE_FLOPS_MIN = 100000, CHOICE_FLOPS_MIN_DEVICE = 1000000;
enum { STAMPS_MAX = 8, WORKSPACE_ALIGNMENT = 64, RESIDENT_ROW_BYTES = 1 << 18 };
enum { HOIST_BYTES = 1 << 15, DEVICE_HOIST_BYTES = 1 << 25 };

/* ---- making steps ---- */

/* Arguments of a step are numbers of buffers; those of a library may also be scalars, or absent. */
static const uint32_t SCALAR_ARG = UINT32_C(1) << 31, ABSENT_ARG = UINT32_MAX;

static hr_status no_memory(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %s", what);
}

static bool worth_team(const hr_host_kernel *kernel) {
  for (int i = 0; i < kernel->pass_count; i++) {
    int64_t grain = kernel->grain[i] > 0 ? kernel->grain[i] : 1;
    if (kernel->units[i] / grain > 1) {
      return true;
    }
  }
  return false;
}

static hr_status make_kernel(hr_executable *executable, hr_device *device, hr_exec_step *step) {
  const hr_kernel *kernel = step->source->kernel;
  if (hr_log_is_on(HR_LOG_SOURCE)) {
    hr_text text = {0};
    hr_status_ignore(hr_kernel_print(kernel, &text));
    hr_log(HR_LOG_SOURCE, "%s", hr_text_chars(&text));
    hr_text_fini(&text);
  }
  HR_RETURN_IF_ERROR(hr__kernel_acquire(kernel, device, &step->cached));
  step->kernel = hr__kernel_host(step->cached);
  step->arg_count = kernel->arg_count;
  step->scalar_count = kernel->scalar_count;
  for (int i = 0; i < kernel->arg_count; i++) {
    if (!hr_vector_push(&executable->args, kernel->args[i].buffer)) {
      return no_memory("arguments");
    }
  }
  for (int i = 0; i < kernel->scalar_count; i++) {
    if (!hr_vector_push(&executable->scalars, kernel->scalars[i])) {
      return no_memory("scalars");
    }
  }
  step->workspace_bytes = step->kernel->workspace_bytes;
  executable->needs_team |= worth_team(step->kernel);
  executable->kernel_count++;
  return HR_OK;
}

static bool push_operand(hr_executable *executable, const hr_operand *operand) {
  return hr_vector_push(&executable->args, operand->kind == HR_OPERAND_VALUE    ? operand->index
                                           : operand->kind == HR_OPERAND_SCALAR ? operand->index | SCALAR_ARG
                                                                                : ABSENT_ARG);
}

/* The node as a kernel that its provider has written. */
static hr_status make_written(hr_executable *executable, hr_device *device, hr_exec_step *step) {
  const hr_node *node = step->source->node;
  hr_device_source source;
  HR_RETURN_IF_ERROR(step->library.algorithm.provider->write(&executable->schedule.program, node, &source));
  hr_status status =
      hr__device_kernel_create_written(&source, device, hr_op_table(node->op)->name,
                                       node->input_count + node->output_count, node->scalar_count, &step->written);
  hr_text_fini(&source.text);
  HR_RETURN_IF_ERROR(status);
  step->kernel = step->written;
  step->scalar_count = node->scalar_count;
  step->workspace_bytes = step->kernel->workspace_bytes;
  for (uint32_t i = 0; i < (uint32_t)node->scalar_count; i++) {
    if (!hr_vector_push(&executable->scalars, node->scalar_base + i)) {
      return no_memory("scalars");
    }
  }
  return HR_OK;
}

/* Prepares the node, and has its ways tried where it is worth the while and nobody knows which is best. */
static hr_status prepare(hr_executable *executable, hr_device *device, hr_exec_step *step) {
  const hr_provider *const *providers = hr__algorithms_providers(device->driver->dialect);
  const hr_program *program = &executable->schedule.program;
  const hr_node *node = step->source->node;
  hr_text key = {0};
  bool is_host = device->properties.is_host;
  hr_tuning_entry *tuning_entry = NULL;
  if (device->properties.has_contents && step->cost.flops >= (is_host ? CHOICE_FLOPS_MIN : CHOICE_FLOPS_MIN_DEVICE)) {
    hr__algorithms_key(providers, device, program, node, &key);
    tuning_entry = hr_text_chars(&key)[0] != 0 ? hr__tuning_entry_find(key.data, key.length) : NULL;
  }
  hr_text_fini(&key);
  HR_RETURN_IF_ERROR(hr__algorithms_prepare(device, providers, program, node, tuning_entry, &step->library));
  if (step->library.algorithm.provider->write != NULL) {
    return make_written(executable, device, step);
  }
  step->workspace_bytes = step->library.workspace_bytes;
  if (tuning_entry != NULL && step->library.fallback == NULL) {
    step->tuning = hr__tuning_create(device, providers, program, node, &step->library.algorithm, tuning_entry);
    executable->has_tunings |= step->tuning != NULL && is_host;
    if (step->tuning != NULL && !is_host && step->workspace_bytes < HR_TUNING_WORKSPACE) {
      step->workspace_bytes = HR_TUNING_WORKSPACE;
    }
  }
  return HR_OK;
}

static hr_status make_library(hr_executable *executable, hr_device *device, hr_exec_step *step) {
  const hr_node *node = step->source->node;
  hr_step_count_cost(step->source, &step->cost);
  HR_RETURN_IF_ERROR(prepare(executable, device, step));
  step->arg_count = node->input_count + node->output_count + node->scalar_count;
  bool ok = true;
  for (int i = 0; ok && i < node->input_count; i++) {
    ok = push_operand(executable, &node->inputs[i]);
  }
  for (int i = 0; ok && i < node->output_count; i++) {
    ok = push_operand(executable, &node->outputs[i]);
  }
  for (uint32_t i = 0; ok && i < (uint32_t)node->scalar_count; i++) {
    ok = hr_vector_push(&executable->args, (node->scalar_base + i) | SCALAR_ARG);
  }
  executable->library_count++;
  if (step->kernel != NULL) {
    return ok ? HR_OK : no_memory("arguments");
  }
  const hr_provider *provider = step->library.algorithm.provider;
  int source = provider->keeps != NULL ? provider->keeps(step->library.prepared) : -1;
  if (ok && source >= 0 && node->inputs[source].index < executable->key.buffer_count) {
    ok = hr_vector_push(&executable->sources, node->inputs[source].index);
  }
  executable->needs_team |= provider->needs_team != NULL && provider->needs_team(step->library.prepared);
  return ok ? HR_OK : no_memory("arguments");
}

static hr_status make_check(hr_executable *executable, hr_exec_step *step) {
  const hr_node *node = step->source->node;
  if (node->input_count != 1 || node->inputs[0].kind != HR_OPERAND_VALUE || node->int_count < 3) {
    return hr_status_make(HR_STATUS_INTERNAL, "check_index: %d inputs, %d ints", node->input_count, node->int_count);
  }
  step->arg_count = 1;
  step->indices = hr__index_source_find(&executable->schedule.program, node);
  return hr_vector_push(&executable->args, node->inputs[0].index) ? HR_OK : no_memory("arguments");
}

/* Brings the code of all kernels onto a device that takes texts. */
static hr_status load_kernels(hr_executable *executable, hr_device *device) {
  const hr_host_kernel **kernels = hr_calloc((size_t)executable->step_count + 1, sizeof *kernels);
  int count = 0;
  if (kernels == NULL) {
    return no_memory("kernels");
  }
  for (int i = 0; i < executable->step_count; i++) {
    if (executable->steps[i].kernel != NULL) {
      kernels[count++] = executable->steps[i].kernel;
    }
  }
  hr_status status = hr__device_kernels_load(device, count, kernels);
  hr_free((void *)kernels);
  return status;
}

static hr_status make_steps(hr_executable *executable, hr_device *device) {
  const hr_schedule *schedule = &executable->schedule;
  executable->steps = hr_calloc((size_t)schedule->step_count + 1, sizeof *executable->steps);
  if (executable->steps == NULL) {
    return no_memory("steps");
  }
  for (int i = 0; i < schedule->step_count; i++) {
    hr_exec_step *step = &executable->steps[executable->step_count++];
    *step = (hr_exec_step){.kind = schedule->steps[i].kind,
                           .source = &schedule->steps[i],
                           .arg_first = executable->args.count,
                           .scalar_first = executable->scalars.count};
    HR_RETURN_IF_ERROR(step->kind == HR_STEP_KERNEL    ? make_kernel(executable, device, step)
                       : step->kind == HR_STEP_LIBRARY ? make_library(executable, device, step)
                                                       : make_check(executable, step));
    hr_step_count_cost(step->source, &step->cost);
    executable->bytes += step->cost.bytes_read + step->cost.bytes_written;
    executable->flops += step->cost.flops;
  }
  size_t arena = hr_align_up(schedule->arena_bytes, WORKSPACE_ALIGNMENT);
  executable->shared_bytes = arena + hr__batch_steps(executable);
  return device->driver->dialect != HR_DIALECT_HOST ? load_kernels(executable, device) : HR_OK;
}

static void note_write(hr_executable *executable, uint32_t buffer, int step) {
  if (buffer < executable->key.buffer_count) {
    executable->last_write[buffer] = step;
  }
}

/* What an operation made counts as written no sooner than its own check has passed, although both may run in any order.
 */
static void wait_for_check(hr_executable *executable, int check) {
  const hr_program *program = &executable->schedule.program;
  uint32_t origin = executable->steps[check].source->node->origin;
  for (int n = 0; n < program->node_count; n++) {
    const hr_node *node = &program->nodes[n];
    for (int j = 0; node->origin >= origin && j < node->output_count; j++) {
      uint32_t buffer = node->outputs[j].index;
      if (node->outputs[j].kind == HR_OPERAND_VALUE && buffer < executable->key.buffer_count &&
          executable->last_write[buffer] >= 0 && executable->last_write[buffer] < check) {
        executable->last_write[buffer] = check;
      }
    }
  }
}

/* Which step writes each bound buffer last: a run that ends at or before it leaves the buffer unfinished. */
static hr_status find_writes(hr_executable *executable) {
  executable->last_write = hr_calloc(executable->key.buffer_count + 1, sizeof *executable->last_write);
  if (executable->last_write == NULL) {
    return no_memory("writes");
  }
  for (size_t i = 0; i < executable->key.buffer_count; i++) {
    executable->last_write[i] = -1;
  }
  for (int i = 0; i < executable->step_count; i++) {
    const hr_step *step = executable->steps[i].source;
    for (int j = 0; step->kind == HR_STEP_KERNEL && j < step->kernel->arg_count; j++) {
      if (step->kernel->args[j].is_written) {
        note_write(executable, step->kernel->args[j].buffer, i);
      }
    }
    for (int j = 0; step->kind == HR_STEP_LIBRARY && j < step->node->output_count; j++) {
      if (step->node->outputs[j].kind == HR_OPERAND_VALUE) {
        note_write(executable, step->node->outputs[j].index, i);
      }
    }
  }
  for (int i = 0; i < executable->step_count; i++) {
    if (executable->steps[i].kind == HR_STEP_CHECK) {
      wait_for_check(executable, i);
    }
  }
  return HR_OK;
}

static void log_schedule(const hr_executable *executable) {
  const hr_schedule *schedule = &executable->schedule;
  hr_log(HR_LOG_SCHEDULE, "program %016llx: %zu records, %d steps, arena %zu, shared %zu, %d of %d buffers elided%s",
         (unsigned long long)executable->key.hash, executable->key.record_count, executable->step_count,
         schedule->arena_bytes, executable->shared_bytes, schedule->elided_count, schedule->program.buffer_count,
         executable->schedule.is_refused ? ", refused: buffers have to be plain before"
         : executable->needs_team        ? ""
                                         : ", small");
  for (int i = 0; hr_log_is_on(HR_LOG_SCHEDULE) && i < executable->step_count; i++) {
    const hr_exec_step *step = &executable->steps[i];
    hr_text text = {0};
    hr_step_describe(step->source,
                     step->library.algorithm.provider != NULL ? step->library.algorithm.provider->name : NULL, &text);
    hr_log(HR_LOG_SCHEDULE, "  step %d: %s%s", i, hr_text_chars(&text),
           step->batch == 0 ? ", with the one before" : "");
    hr_text_fini(&text);
  }
}

/* ---- life ---- */

static bool copy_key(const hr_key *key, hr_key *out_copy) {
  size_t words = key->word_count * sizeof *key->words, locals = key->local_count * sizeof *key->locals;
  size_t shapes = key->buffer_count * sizeof *key->shapes, layouts = key->layouts != NULL ? shapes : 0;
  char *block = hr_malloc(words + shapes + layouts + locals);
  if (block == NULL) {
    return false;
  }
  *out_copy = *key;
  memcpy(block, key->words, words);
  if (shapes > 0) {
    memcpy(block + words, key->shapes, shapes);
    memcpy(block + words + shapes + layouts, key->locals, locals);
  }
  if (layouts > 0) {
    memcpy(block + words + shapes, key->layouts, layouts);
    out_copy->layouts = (const uint64_t *)(void *)(block + words + shapes);
  }
  out_copy->words = (const uint64_t *)(void *)block;
  out_copy->shapes = (const uint64_t *)(void *)(block + words);
  out_copy->locals = (const uint32_t *)(void *)(block + words + shapes + layouts);
  return true;
}

static void destroy(hr_executable *executable) {
  hr__replay_release(executable->replay); /* before what its graphs launch */
  for (int i = 0; i < executable->step_count; i++) {
    hr_exec_step *step = &executable->steps[i];
    hr__kernel_release(step->cached);
    if (step->written != NULL) {
      step->written->destroy(step->written);
    }
    hr__tuning_release(step->tuning);
    hr__ready_fini(&step->library);
  }
  hr_schedule_fini(&executable->schedule);
  hr_free(executable->steps);
  hr__weights_fini(executable);
  hr_free(executable->last_write);
  hr_vector_fini(&executable->args);
  hr_vector_fini(&executable->scalars);
  hr_vector_fini(&executable->sources);
  hr_free((void *)executable->key.words);
  hr_free(executable);
}

static hr_status compile(hr_executable *executable, const hr_key *key, hr_device *device, const hr_scalar *arguments) {
  hr_dialect dialect = device->driver->dialect;
  hr_target target = {.keeps = hr__algorithms_providers(dialect)[0] != NULL ? hr__algorithms_keep : NULL,
                      .keeps_ctx = device,
                      .resident_row_bytes = RESIDENT_ROW_BYTES,
                      .hoist_bytes = device->properties.is_host ? HOIST_BYTES : DEVICE_HOIST_BYTES,
                      .verify = hr_log_is_on(HR_LOG_VERIFY)};
  hr_program program;
  hr__algorithms_layouts(dialect, &target);
  HR_RETURN_IF_ERROR(hr__key_decode(key, &program));
  hr__dump_program(&program, key->hash, device->name, arguments);
  hr_status status = hr_compile(&program, &target, &executable->schedule);
  hr_program_fini(&program);
  HR_RETURN_IF_ERROR(status);
  if (hr_log_is_on(HR_LOG_PROGRAM)) {
    hr__dump_log(&executable->schedule.program);
  }
  return executable->schedule.is_refused ? HR_OK : make_steps(executable, device);
}

hr_status hr__executable_create(const hr_key *key, hr_device *device, const hr_scalar *arguments,
                                hr_executable **out_executable) {
  hr_executable *executable = hr_calloc(1, sizeof *executable);
  if (executable == NULL) {
    return no_memory("a program");
  }
  hr_refcount_init(&executable->refcount);
  atomic_init(&executable->submit_ns, INT64_MAX);
  hr_status status = copy_key(key, &executable->key) ? compile(executable, key, device, arguments) : no_memory("a key");
  if (status == NULL) {
    status = find_writes(executable);
  }
  if (status == NULL && !hr__weights_find(executable)) {
    status = no_memory("weights");
  }
  if (status != NULL) {
    destroy(executable);
    return status;
  }
  if (hr_env_choice(HR_ENV_JIT) == HR_ENV_JIT_WAIT) {
    hr__compile_queue_wait();
  }
  executable->elided_count = executable->schedule.elided_count;
  executable->footprint = sizeof *executable + executable->schedule.program.arena.bytes_allocated +
                          key->word_count * 8 + key->buffer_count * 12 + key->local_count * 4 +
                          (size_t)executable->step_count * (sizeof(hr_exec_step) + 4096);
  log_schedule(executable);
  executable->replay = executable->schedule.is_refused ? NULL : hr__replay_create(executable, device);
  *out_executable = executable;
  return HR_OK;
}

void hr__executable_release(hr_executable *executable) {
  if (executable != NULL && hr_refcount_release(&executable->refcount)) {
    destroy(executable);
  }
}

bool hr__executable_fits(const hr_executable *executable, const hr_key *key) {
  const hr_key *own = &executable->key;
  return own->record_count == key->record_count && own->word_count == key->word_count &&
         own->local_count == key->local_count && own->buffer_count == key->buffer_count &&
         memcmp(own->words, key->words, key->word_count * sizeof *key->words) == 0 &&
         memcmp(own->locals, key->locals, key->local_count * sizeof *key->locals) == 0 &&
         memcmp(own->shapes, key->shapes, key->buffer_count * sizeof *key->shapes) == 0 &&
         (own->layouts == NULL) == (key->layouts == NULL) &&
         (key->layouts == NULL || memcmp(own->layouts, key->layouts, key->buffer_count * sizeof *key->layouts) == 0);
}

/* ---- running ---- */

bool hr__executable_can_submit_early(const hr_executable *executable) {
  for (int i = 0; executable->needs_team && i < executable->step_count; i++) {
    const hr_exec_step *step = &executable->steps[i];
    if ((step->library.prepared != NULL && step->library.algorithm.provider->has_threads) ||
        (step->tuning != NULL && !hr__tuning_is_over(step->tuning))) {
      return false;
    }
  }
  return executable->needs_team;
}

hr_status hr__run_scratch_reserve(hr_run_scratch *scratch, const hr_executable *executable) {
  const hr_program *program = &executable->schedule.program;
  bool ok = hr_vector_reserve(&scratch->addresses, (size_t)program->buffer_count + 1) &&
            hr_vector_reserve(&scratch->args, executable->args.count + 1) &&
            hr_vector_reserve(&scratch->values, (size_t)program->scalar_count + 1) &&
            hr_vector_reserve(&scratch->scalars, executable->scalars.count + 1) &&
            hr_vector_reserve(&scratch->launches, (size_t)executable->batch_most + 1) &&
            hr_vector_reserve(&scratch->weights, executable->weights.count);
  return ok ? HR_OK : no_memory("the arguments of a run");
}

void hr__run_scratch_fini(hr_run_scratch *scratch) {
  hr_vector_fini(&scratch->addresses);
  hr_vector_fini(&scratch->args);
  hr_vector_fini(&scratch->values);
  hr_vector_fini(&scratch->scalars);
  hr_vector_fini(&scratch->launches);
  hr_vector_fini(&scratch->weights);
}

/* Fills the flat lists of addresses and scalars; gives whether the run makes something that is kept. */
static bool bind(const hr_executable *executable, const hr_run *run, hr_run_scratch *scratch) {
  const hr_program *program = &executable->schedule.program;
  const hr_place *places = executable->schedule.places;
  for (int i = 0; i < program->buffer_count; i++) {
    scratch->addresses.data[i] = places[i].kind == HR_PLACE_ARENA   ? (char *)run->shared + places[i].offset
                                 : places[i].kind == HR_PLACE_BOUND ? run->bound[i]
                                                                    : NULL;
  }
  for (int i = 0; i < program->scalar_count; i++) {
    const hr_program_scalar *scalar = &program->scalars[i];
    scratch->values.data[i] = scalar->is_constant ? scalar->value : run->arguments[scalar->argument];
  }
  bool makes_weights = hr__weights_bind(executable, run, scratch);
  for (size_t i = 0; i < executable->args.count; i++) {
    uint32_t arg = executable->args.data[i];
    scratch->args.data[i] = arg == ABSENT_ARG         ? NULL
                            : (arg & SCALAR_ARG) != 0 ? (void *)&scratch->values.data[arg & ~SCALAR_ARG]
                                                      : scratch->addresses.data[arg];
  }
  for (size_t i = 0; i < executable->scalars.count; i++) {
    scratch->scalars.data[i] = scratch->values.data[executable->scalars.data[i]];
  }
  return makes_weights;
}

static hr_status index_error(const hr_node *node, int64_t value) {
  long long index = (long long)value, upper = (long long)node->ints[1];
  switch (node->ints[2]) {
    case 0:
      return hr_status_make(HR_STATUS_OUT_OF_RANGE, "index %lld is out of bounds for dimension with size %lld", index,
                            upper);
    case 1:
      return hr_status_make(HR_STATUS_OUT_OF_RANGE, "Target %lld is out of bounds.", index);
    case 3:
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "ZeroDivisionError");
    default:
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "index %lld is out of bounds: it is not in [%lld, %lld)", index,
                            (long long)node->ints[0], upper);
  }
}

/* Looks at the offending index that a kernel left, unless the host knows that there is none; a device without contents
 * has none. */
static hr_status run_check(const hr_exec_step *step, hr_run *run, const hr_run_scratch *scratch, void *const *args) {
  int64_t value = INT64_MIN, least, most;
  const hr_device *device = run->device;
  const hr_node *node = step->source->node;
  bool is_known =
      hr__index_source_range(&step->indices, run->buffers, run->stamps, scratch->values.data, &least, &most);
  if (!device->properties.has_contents || (is_known && least >= node->ints[0] && most < node->ints[1])) {
    return HR_OK;
  }
  const char *from = (const char *)args[0] + node->inputs[0].offset * (int64_t)sizeof value;
  run->has_waited = true;
  HR_RETURN_IF_ERROR(device->driver->copy_out(device->impl, &value, from, sizeof value));
  return value == INT64_MIN ? HR_OK : index_error(node, value);
}

/* Behind the arena; NULL where no step needs memory. */
static void *workspace_of(const hr_executable *executable, const hr_run *run) {
  size_t arena = hr_align_up(executable->schedule.arena_bytes, WORKSPACE_ALIGNMENT);
  return run->shared != NULL ? (char *)run->shared + arena : NULL;
}

bool hr__step_scalar(const hr_executable *executable, const hr_exec_step *step, int i, uint32_t *out_scalar) {
  uint32_t arg = executable->args.data[step->arg_first + (size_t)i];
  *out_scalar = arg & ~SCALAR_ARG;
  return arg != ABSENT_ARG && (arg & SCALAR_ARG) != 0;
}

hr_host_launch hr__step_launch(const hr_executable *executable, const hr_exec_step *step, const hr_run *run,
                               const hr_run_scratch *scratch) {
  char *workspace = workspace_of(executable, run);
  bool is_cached = step->cached != NULL && run->device->properties.has_contents;
  return (hr_host_launch){is_cached ? hr__kernel_use(step->cached) : step->kernel,
                          {.args = scratch->args.data + step->arg_first,
                           .scalars = scratch->scalars.data + step->scalar_first,
                           .workspace = workspace != NULL ? workspace + step->workspace_offset : NULL}};
}

/* Shares out how long a batch took among its interpreted kernels. */
static void spend(const hr_exec_step *first, const hr_run_scratch *scratch, int64_t ns) {
  const hr_host_launch *launch = scratch->launches.data;
  for (int i = 0; i < first->batch; i++) {
    if (hr__weights_has(&first[i], scratch)) {
      continue;
    }
    if (first[i].cached != NULL && launch->kernel == first[i].kernel) {
      hr__kernel_spend(first[i].cached, ns / first->batch);
    }
    launch++;
  }
}

/* Launches the kernel and those that run at once with it, without those whose result is there. */
static hr_status run_kernels(const hr_executable *executable, const hr_exec_step *first, hr_run *run,
                             hr_run_scratch *scratch) {
  hr_device *device = run->device;
  bool all_compiled = true, is_timed = false;
  int count = 0;
  for (int i = 0; i < first->batch; i++) {
    if (hr__weights_has(&first[i], scratch)) {
      continue;
    }
    hr_host_launch *launch = &scratch->launches.data[count++];
    *launch = hr__step_launch(executable, &first[i], run, scratch);
    bool is_compiled = launch->kernel != first[i].kernel || device->driver->dialect != HR_DIALECT_HOST;
    all_compiled &= is_compiled;
    is_timed |= !is_compiled && first[i].cached != NULL && hr__kernel_is_timed(first[i].cached);
  }
  run->compiled_count += all_compiled && first->kind == HR_STEP_KERNEL;
  int64_t begin = is_timed ? hr_clock_ns() : 0;
  HR_RETURN_IF_ERROR(device->driver->launch(device->impl, count, scratch->launches.data));
  if (is_timed) {
    spend(first, scratch, hr_clock_ns() - begin);
  }
  return HR_OK;
}

/* What a library is told of the contents of its operands, if it asks. */
static void find_stamps(const hr_executable *executable, const hr_exec_step *step, const hr_run *run,
                        uint64_t stamps[STAMPS_MAX]) {
  bool asks = run->stamps != NULL && (step->tuning != NULL || step->library.algorithm.provider->stamp != NULL);
  for (int i = 0; asks && i < step->arg_count && i < STAMPS_MAX; i++) {
    uint32_t buffer = executable->args.data[step->arg_first + (size_t)i];
    stamps[i] = buffer < executable->key.buffer_count ? run->stamps[buffer] : 0;
  }
}

static hr_status run_library(const hr_executable *executable, const hr_exec_step *step, hr_run *run, void *const *args,
                             void *queue) {
  uint64_t stamps[STAMPS_MAX] = {0};
  find_stamps(executable, step, run, stamps);
  char *workspace = workspace_of(executable, run);
  bool is_profile = run->step_ns != NULL || hr_log_is_on(HR_LOG_KERNEL); /* of the step alone */
  bool is_settled = !run->device->properties.is_host;
  if (step->tuning == NULL || (is_profile && !is_settled)) {
    return hr__ready_run(run->device, &step->library, args, stamps, workspace, queue);
  }
  size_t bytes = workspace != NULL ? executable->shared_bytes - (size_t)(workspace - (char *)run->shared) : 0;
  const hr_tuning_call call = {args, stamps, workspace, bytes, queue};
  return is_settled ? hr__tuning_run_settled(step->tuning, &step->library, &call)
                    : hr__tuning_run(step->tuning, &step->library, &call);
}

static hr_status run_step(const hr_executable *executable, const hr_exec_step *step, hr_run *run,
                          hr_run_scratch *scratch, void *queue) {
  void *const *args = scratch->args.data + step->arg_first;
  if (step->kernel != NULL) {
    return run_kernels(executable, step, run, scratch);
  }
  if (step->kind == HR_STEP_CHECK) {
    return run_check(step, run, scratch, args);
  }
  return run_library(executable, step, run, args, queue);
}

static int64_t bytes_of(const hr_exec_step *step) {
  return step->cost.bytes_read + step->cost.bytes_written;
}

/* The time of a batch, among its steps by the bytes that they move. */
static void share_time(const hr_exec_step *first, int64_t ns, int64_t *out_step_ns) {
  double bytes = 0, share = (double)ns / first->batch;
  for (int i = 0; i < first->batch; i++) {
    bytes += (double)bytes_of(&first[i]);
  }
  for (int i = 0; i < first->batch; i++) {
    out_step_ns[i] = (int64_t)(bytes > 0 ? (double)ns * (double)bytes_of(&first[i]) / bytes : share);
  }
}

/* "  12.5 us  0.79 MB  62.9 GB/s  84 %  530.1 GFLOP/s  95 %  NAME": the shares are of what the machine can do. */
static void log_step(const hr_exec_step *step, int64_t ns, const hr_machine *machine) {
  hr_text text = {0};
  double time = (double)(ns > 0 ? ns : 1), bytes = 0;
  for (int i = 0; i < step->batch; i++) {
    bytes += (double)bytes_of(&step[i]);
  }
  hr_text_printf(&text, "%9.1f us %9.3f MB %7.1f GB/s", (double)ns * 1e-3, bytes * 1e-6, bytes / time);
  if (machine != NULL && machine->read_gbs > 0) {
    hr_text_printf(&text, " %4.0f %%", 100 * bytes / time / machine->read_gbs);
  }
  if (step->kind == HR_STEP_LIBRARY) {
    hr_text_printf(&text, " %7.1f GFLOP/s", (double)step->cost.flops / time);
    if (machine != NULL && machine->peak_gflops > 0) {
      hr_text_printf(&text, " %4.0f %%", 100 * (double)step->cost.flops / time / machine->peak_gflops);
    }
  }
  hr_text_append(&text, "  ");
  hr_step_describe(step->source,
                   step->library.algorithm.provider != NULL ? step->library.algorithm.provider->name : NULL, &text);
  if (step->batch > 1) {
    hr_text_printf(&text, " and %d more", step->batch - 1);
  }
  hr_log(HR_LOG_KERNEL, "%s", hr_text_chars(&text));
  hr_text_fini(&text);
}

hr_status hr__executable_run_steps(const hr_executable *executable, int first, int end, hr_run *run,
                                   hr_run_scratch *scratch, void *queue) {
  hr_device *device = run->device;
  bool is_logged = hr_log_is_on(HR_LOG_KERNEL), is_timed = is_logged || run->step_ns != NULL;
  const hr_machine *machine = is_logged && device->properties.has_contents ? hr__machine() : NULL;
  if (queue == NULL && first < end && executable->library_count > 0 && device->driver->native != NULL) {
    queue = device->driver->native(device->impl);
  }
  for (int i = first; i < end; i += executable->steps[i].batch) {
    if (hr__run_is_interrupted(run)) {
      run->failed_step = i;
      return hr_status_make(HR_STATUS_CANCELLED, "interrupted after %d of %d steps", i, executable->step_count);
    }
    if (hr__weights_has_all(&executable->steps[i], executable->steps[i].batch, scratch)) {
      run->compiled_count += executable->steps[i].kind == HR_STEP_KERNEL;
      continue;
    }
    int64_t begin = is_timed ? hr_clock_ns() : 0;
    hr_status status = run_step(executable, &executable->steps[i], run, scratch, queue);
    if (status != NULL) {
      run->failed_step = i;
      return status;
    }
    if (is_timed && device->driver->flush != NULL) { /* the time of the work, not of handing it over */
      HR_RETURN_IF_ERROR(device->driver->flush(device->impl));
    }
    int64_t ns = is_timed ? hr_clock_ns() - begin : 0;
    if (run->step_ns != NULL) {
      share_time(&executable->steps[i], ns, &run->step_ns[i]);
    }
    if (is_logged) {
      log_step(&executable->steps[i], ns, machine);
    }
  }
  return HR_OK;
}

hr_status hr__executable_run(const hr_executable *executable, hr_run *run, hr_run_scratch *scratch) {
  const hr_driver *driver = run->device->driver;
  bool is_timed = run->step_ns != NULL || hr_log_is_on(HR_LOG_KERNEL);
  int64_t begin = executable->has_tunings ? hr_clock_ns() : 0;
  bool makes_weights = bind(executable, run, scratch);
  hr_status status = executable->replay != NULL && !is_timed && !makes_weights
                         ? hr__replay_run(executable, run, scratch)
                         : hr__executable_run_steps(executable, 0, executable->step_count, run, scratch, NULL);
  hr__weights_unbind(executable, scratch, status == NULL);
  HR_RETURN_IF_ERROR(status);
  run->failed_step = executable->step_count;
  if (executable->has_tunings) {
    hr__tuning_allow(hr_clock_ns() - begin);
  }
  return driver->submit != NULL ? driver->submit(run->device->impl) : HR_OK;
}
