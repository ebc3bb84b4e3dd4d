#include "engine/prepare_steps.h"

#include <stdatomic.h>
#include <string.h>

#include "base/env.h"
#include "base/hash.h"
#include "base/integer.h"
#include "base/log.h"
#include "base/table.h"
#include "base/team.h"
#include "base/thread.h"
#include "core/ir/dtype.h"
#include "core/ops/call.h"
#include "engine/compile_queue.h"
#include "engine/device_code.h"
#include "engine/profile.h"
#include "engine/shared_calls.h"
#include "runtime/function_table.h"

/* Operations below a microsecond are not tuned: thresholds for the host, and for other devices. */
static const int64_t CHOICE_FLOPS_MIN = 100000, CHOICE_FLOPS_MIN_DEVICE = 1000000;
/* Of a brief instance. */
enum { BRIEF_STEPS_MAX = 16, BRIEF_BYTES_MAX = 1 << 21, BRIEF_FLOPS_MAX = 1 << 22 };
enum { TINY_STEPS_MAX = 128, TINY_BYTES_MAX = 1 << 16, TINY_FLOPS_MAX = 1 << 16 }; /* of kernels alone */

static hr_status no_memory(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %s", what);
}

/* False: kernels are texts that the device's driver compiles. */
static bool has_host_kernels(const hr_device *device) {
  return device->driver->dialect == HR_DIALECT_HOST;
}

static bool worth_team(const hr_host_kernel *kernel) {
  for (int i = 0; i < kernel->pass_count; ++i) {
    const hr_host_pass *pass = &kernel->passes[i];
    if (pass->units / (pass->grain > 0 ? pass->grain : 1) > 1) {
      return true;
    }
  }
  return false;
}

/* A reference to the step's kernel: that of an earlier step that it is like, or by its key. */
static hr_status acquire(const hr_instance *instance, hr_device *device, hr_exec_step *step) {
  const hr_step *source = hr__step_source(instance, step);
  step->cached = source->like > 0 ? instance->steps[source->like - 1].cached : NULL;
  if (step->cached != NULL) {
    hr__kernel_retain(step->cached);
    return HR_OK;
  }
  return hr__kernel_acquire(source->kernel, device, &step->cached);
}

static hr_status make_kernel(const hr_instance *instance, hr_device *device, hr_exec_step *step) {
  const hr_kernel *kernel = hr__step_source(instance, step)->kernel;
  if (hr_log_is_on(HR_LOG_SOURCE)) {
    hr_text text = {0};
    hr_status_ignore(hr_kernel_print(kernel, &text));
    hr_log(HR_LOG_SOURCE, "%s", hr_text_chars(&text));
    hr_text_fini(&text);
  }
  return acquire(instance, device, step);
}

/* The node as a kernel that its provider has written. */
static hr_status make_written(hr_instance *instance, hr_device *device, hr_exec_step *step) {
  const hr_node *node = hr__step_source(instance, step)->node;
  hr_device_source source;
  hr_step_call *call = step->call;
  HR_RETURN_IF_ERROR(call->ready.algorithm.provider->write(&instance->plan->schedule.program, node, &source));
  hr_status status = hr__device_kernel_create_written(
      &source, device, hr__node_name(node), node->input_count + node->output_count, node->scalar_count, &call->written);
  hr_text_fini(&source.text);
  return status;
}

static const hr_provider *const *providers_of(const hr_device *device, const hr_node *node) {
  return hr__algorithms_providers_of(device->driver->dialect, node->op);
}

/* The tuning-cache entry of the step; NULL: it is not tuned. */
static hr_tuning_entry *find_entry(const hr_instance *instance, hr_device *device, const hr_exec_step *step) {
  bool is_fixed = atomic_load_explicit(&device->is_deterministic, memory_order_relaxed);
  int64_t flops = instance->plan->costs[step - instance->steps].flops;
  bool is_worth = flops >= (device->properties.is_host ? CHOICE_FLOPS_MIN : CHOICE_FLOPS_MIN_DEVICE);
  const hr_node *node = hr__step_source(instance, step)->node;
  return !is_fixed && device->properties.has_contents && is_worth
             ? hr__algorithms_find_entry(providers_of(device, node), device, &instance->plan->schedule.program, node)
             : NULL;
}

/* Prepares the node, and starts autotuning if it is worth it and no result is known. */
static hr_status prepare(hr_instance *instance, hr_device *device, hr_exec_step *step) {
  const hr_program *program = &instance->plan->schedule.program;
  const hr_node *node = hr__step_source(instance, step)->node;
  const hr_provider *const *providers = providers_of(device, node);
  bool is_host = device->properties.is_host;
  hr_step_call *call = step->call;
  hr_tuning_entry *tuning_entry = find_entry(instance, device, step);
  HR_RETURN_IF_ERROR(hr__algorithms_prepare(device, providers, program, node, tuning_entry, &call->ready));
  if (call->ready.algorithm.provider->write != NULL) {
    return make_written(instance, device, step);
  }
  call->workspace_bytes = call->ready.workspace_bytes;
  if (tuning_entry != NULL && call->ready.fallback == NULL) {
    call->tuning = hr__tuning_create(device, providers, program, node, &call->ready, tuning_entry);
    if (call->tuning != NULL && !is_host && call->workspace_bytes < HR_TUNING_WORKSPACE) {
      call->workspace_bytes = HR_TUNING_WORKSPACE;
    }
  }
  return HR_OK;
}

/* The earlier step whose prepared call does for this one, or NULL. Calls of a host's libraries also keep what they
 * derive from their weights; those of a device keep nothing, so weights may differ. */
static const hr_exec_step *find_like(const hr_instance *instance, const hr_device *device, hr_shared_calls *calls,
                                     const hr_exec_step *step) {
  const hr_plan *plan = instance->plan;
  uint32_t constants = device->properties.is_host ? (uint32_t)plan->key.buffer_count : 0;
  size_t like = hr__shared_calls_find(calls, &plan->schedule.program, hr__step_source(instance, step)->node, constants,
                                      (size_t)(step - instance->steps) + 1);
  const hr_exec_step *first = like > 0 ? &instance->steps[like - 1] : NULL;
  return first != NULL && first->call->ready.fallback == NULL ? first : NULL;
}

/* From its operands' offsets the prepared object finds this step's. */
static hr_status find_moves(const hr_instance *instance, const hr_exec_step *step, const hr_exec_step *first,
                            int64_t **out_moves) {
  const hr_node *node = hr__step_source(instance, step)->node, *like = hr__step_source(instance, first)->node;
  int operands = node->input_count + node->output_count;
  *out_moves = NULL;
  for (int i = 0; i < operands; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    int64_t move = x->kind == HR_OPERAND_VALUE
                       ? (x->offset - hr_node_operand(like, i)->offset) * (int64_t)hr_dtype_size(x->dtype)
                       : 0;
    if (move != 0 && *out_moves == NULL) {
      *out_moves = hr_calloc((size_t)(operands + node->scalar_count), sizeof **out_moves);
      HR_RETURN_IF_ERROR(*out_moves != NULL ? HR_OK : no_memory("arguments"));
    }
    if (move != 0) {
      (*out_moves)[i] = move;
    }
  }
  return HR_OK;
}

/* A call that the step has alone; takes `moves` over. */
static hr_status make_call(hr_exec_step *step, const hr_step_call *from, int64_t *moves) {
  step->call = hr_malloc(sizeof *step->call);
  if (step->call == NULL) {
    hr_free(moves);
    return no_memory("a library call");
  }
  *step->call = *from;
  step->call->moves = moves;
  step->call->is_renumbered = false;
  return HR_OK;
}

/* Prepares the node, or takes what an earlier step prepared for one like it. A written kernel has its operands' offsets
 * in its words: steps share it if these are the same. */
static hr_status prepare_once(hr_instance *instance, hr_device *device, hr_shared_calls *calls, hr_exec_step *step) {
  const hr_exec_step *first = find_like(instance, device, calls, step);
  int64_t *moves = NULL;
  HR_RETURN_IF_ERROR(first != NULL ? find_moves(instance, step, first, &moves) : HR_OK);
  if (first == NULL || (first->call->written != NULL && moves != NULL)) {
    hr_free(moves);
    HR_RETURN_IF_ERROR(make_call(step, &(hr_step_call){.first = step}, NULL));
    return prepare(instance, device, step);
  }
  step->call = first->call;
  return moves != NULL ? make_call(step, first->call, moves) : HR_OK;
}

static hr_status prepare_check(const hr_index_source *source, const hr_node *node, hr_check *out_check) {
  if (node->input_count != 1 || node->inputs[0].kind != HR_OPERAND_VALUE || node->int_count < 3) {
    return hr_status_make(HR_STATUS_INTERNAL, "check_index: %d inputs, %d ints", node->input_count, node->int_count);
  }
  *out_check = (hr_check){.source = *source,
                          .least = node->ints[0],
                          .end = node->ints[1],
                          .offset = node->inputs[0].offset * (int64_t)hr_dtype_size(node->inputs[0].dtype),
                          .message = (int)node->ints[2]};
  return HR_OK;
}

static hr_status prepare_step(hr_instance *instance, hr_device *device, hr_shared_calls *calls, hr_exec_step *step) {
  ptrdiff_t i = step - instance->steps;
  if (step->kind == HR_STEP_CHECK) {
    return prepare_check(&instance->plan->indices[i], hr__step_source(instance, step)->node,
                         &instance->checks.data[step->check]);
  }
  return step->kind == HR_STEP_KERNEL ? make_kernel(instance, device, step)
                                      : prepare_once(instance, device, calls, step);
}

/* ---- arguments: the same for all dims of a structure ---- */

/* The lists of an instance while they grow. */
typedef struct step_lists {
  HR_VECTOR(uint32_t) args, scalars;
} step_lists;

static bool push_operand(step_lists *lists, const hr_operand *operand) {
  return hr_vector_push(&lists->args, operand->kind == HR_OPERAND_VALUE    ? hr__arg_of_buffer(operand->index)
                                      : operand->kind == HR_OPERAND_SCALAR ? hr__arg_of_scalar(operand->index)
                                                                           : (uint32_t)HR_ABSENT_ARG);
}

static bool list_kernel_args(step_lists *lists, const hr_kernel *kernel) {
  bool ok = true;
  for (int i = 0; ok && i < kernel->arg_count; ++i) {
    ok = hr_vector_push(&lists->args, hr__arg_of_buffer(kernel->args[i].buffer));
  }
  for (int i = 0; ok && i < kernel->scalar_count; ++i) {
    ok = hr_vector_push(&lists->scalars, kernel->scalars[i]);
  }
  return ok;
}

/* `is_written`: the scalars are also those of a kernel. */
static bool list_library_args(step_lists *lists, const hr_node *node, bool is_written) {
  bool ok = true;
  for (int i = 0; ok && i < node->input_count + node->output_count; ++i) {
    ok = push_operand(lists, hr_node_operand((hr_node *)node, i));
  }
  for (uint32_t i = 0; ok && i < (uint32_t)node->scalar_count; ++i) {
    ok = hr_vector_push(&lists->args, hr__arg_of_scalar(node->scalar_base + i)) &&
         (!is_written || hr_vector_push(&lists->scalars, node->scalar_base + i));
  }
  return ok;
}

static hr_status list_args(hr_instance *instance, step_lists *lists, hr_exec_step *step) {
  const hr_node *node = hr__step_source(instance, step)->node;
  bool ok = true;
  if (step->kind == HR_STEP_KERNEL) {
    ok = list_kernel_args(lists, hr__step_source(instance, step)->kernel);
  } else if (step->kind == HR_STEP_LIBRARY) {
    ok = list_library_args(lists, node, step->call->written != NULL);
    ++instance->library_count;
  } else {
    ok = push_operand(lists, &node->inputs[0]);
  }
  step[1].arg_first = (uint32_t)lists->args.count;
  step[1].scalar_first = (uint32_t)lists->scalars.count;
  return ok ? HR_OK : no_memory("arguments");
}

static hr_status keep_lists(hr_instance *instance, const step_lists *lists) {
  instance->args = hr_narrow_make(lists->args.count, lists->args.data);
  instance->scalars = instance->args != NULL ? hr_narrow_make(lists->scalars.count, lists->scalars.data) : NULL;
  return instance->scalars != NULL ? HR_OK : no_memory("arguments");
}

/* ---- what all steps need ---- */

/* Notes what the step's library caches something of; *out_team: it is worth more than one thread. False: no memory. */
static bool note_library(hr_instance *instance, const hr_exec_step *step, bool *out_team) {
  const hr_ready *ready = &step->call->ready;
  const hr_provider *provider = ready->algorithm.provider;
  const hr_node *node = hr__step_source(instance, step)->node;
  int source = provider->keeps != NULL ? provider->keeps(ready->prepared) : -1;
  *out_team = provider->needs_team != NULL && provider->needs_team(ready->prepared);
  return source < 0 || node->inputs[source].index >= instance->plan->key.buffer_count ||
         hr_vector_push(&instance->sources, node->inputs[source].index);
}

/* A function that others wait for (headrace/function.h, is_late) ends with them. */
static bool is_function(const hr_instance *instance, const hr_exec_step *step, int64_t kind) {
  const hr_node *node = step->kind == HR_STEP_LIBRARY ? hr__step_source(instance, step)->node : NULL;
  return node != NULL && node->op == HR_OP_CALL && node->ints[HR__CALL_NUMBER] <= 0 &&
         node->ints[HR__CALL_EFFECTS] == kind;
}

/* True if there are kernels alone, of few elements each. */
static bool is_tiny(const hr_instance *instance) {
  const hr_plan *plan = instance->plan;
  return instance->library_count == 0 && instance->step_count <= TINY_STEPS_MAX && plan->bytes <= TINY_BYTES_MAX &&
         plan->flops <= TINY_FLOPS_MAX;
}

/* True if it takes some 40 us: few steps with a known amount of work, and none is a kernel worth a second thread. */
static bool is_brief(const hr_instance *instance) {
  const hr_plan *plan = instance->plan;
  bool is = is_tiny(instance) || (instance->step_count <= BRIEF_STEPS_MAX && plan->bytes <= BRIEF_BYTES_MAX &&
                                  plan->flops <= BRIEF_FLOPS_MAX);
  for (int i = 0; is && i < instance->step_count; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    if (step->kind == HR_STEP_LIBRARY) {
      const hr_node *node = hr__step_source(instance, step)->node;
      is = hr_op_table(node->op)->family == HR_FAMILY_CONTRACTION || is_function(instance, step, HR_CALL_SHORT);
    } else {
      is = hr__step_has_kernel(step) && !worth_team(hr__step_kernel(step));
    }
  }
  return is;
}

/* Notes of the steps what a run needs to know. `may_differ`: see hr__batch_steps_again; `summaries` may be NULL. */
static hr_status note_steps(hr_instance *instance, const hr_device *device, const bool *may_differ,
                            hr_step_summary *summaries) {
  instance->needs_team = instance->has_tunings = instance->may_be_endless = instance->waits_for_others = false;
  instance->short_count = 0;
  hr_vector_clear(&instance->sources);
  for (int i = 0; i < instance->step_count; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    bool is_known = may_differ != NULL && !may_differ[i];
    bool needs = is_known ? summaries[i].needs_team : hr__step_has_kernel(step) && worth_team(hr__step_kernel(step));
    if (step->kind == HR_STEP_LIBRARY && step->call->written == NULL && !note_library(instance, step, &needs)) {
      return no_memory("sources");
    }
    if (summaries != NULL) {
      summaries[i].needs_team = needs;
    }
    instance->needs_team |= needs;
    instance->may_be_endless |= is_function(instance, step, HR_CALL_ENDLESS);
    instance->waits_for_others |= is_function(instance, step, HR_CALL_LATE);
    instance->short_count += is_function(instance, step, HR_CALL_SHORT);
    instance->has_tunings |= step->call != NULL && step->call->tuning != NULL && device->properties.is_host;
  }
  return HR_OK;
}

static hr_status finish_steps(hr_instance *instance, const hr_device *device, const bool *may_differ,
                              hr_step_summary *summaries) {
  HR_RETURN_IF_ERROR(note_steps(instance, device, may_differ, summaries));
  instance->is_brief = is_brief(instance);
  size_t arena = hr_align_up(instance->plan->schedule.arena_bytes, HR_WORKSPACE_ALIGNMENT);
  instance->shared_bytes =
      arena + (summaries != NULL ? hr__batch_steps_again(instance, may_differ, summaries) : hr__batch_steps(instance));
  if (hr_env_choice(HR_ENV_JIT) == HR_ENV_JIT_WAIT) {
    hr__compile_queue_wait();
  }
  return HR_OK;
}

/* Loads the code of all kernels onto a device that compiles texts. */
static hr_status load_kernels(hr_instance *instance, hr_device *device) {
  const hr_host_kernel **kernels = hr_calloc((size_t)instance->step_count + 1, sizeof *kernels);
  int count = 0;
  if (kernels == NULL) {
    return no_memory("kernels");
  }
  for (int i = 0; i < instance->step_count; ++i) {
    if (hr__step_has_kernel(&instance->steps[i])) {
      kernels[count++] = hr__step_kernel(&instance->steps[i]);
    }
  }
  hr_status status = hr__device_kernels_load(device, count, kernels);
  hr_free((void *)kernels);
  return status;
}

typedef struct making {
  hr_instance *instance;
  hr_device *device;
  _Atomic(hr_status) failure; /* the first one */
} making;

static void make_some(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  making *m = arg;
  hr_context *before = hr__context_enter(m->device->context);
  for (int64_t i = begin; i < end; ++i) {
    hr_exec_step *step = &m->instance->steps[i];
    bool is_first = step->kind == HR_STEP_KERNEL && hr__step_source(m->instance, step)->like == 0;
    hr_status status = is_first ? make_kernel(m->instance, m->device, step) : HR_OK, none = HR_OK;
    if (status != HR_OK && !atomic_compare_exchange_strong(&m->failure, &none, status)) {
      hr_status_ignore(status);
    }
  }
  (void)hr__context_enter(before);
}

/* A device's kernels are texts, which take 20 to 40 us each to write: all threads share them. Steps that are like
 * others wait for those. */
static hr_status make_kernels(hr_instance *instance, hr_device *device) {
  enum { GRAIN = 4 };
  making m = {.instance = instance, .device = device};
  hr_parallel_for(instance->step_count, GRAIN, make_some, &m);
  hr__team_rest(); /* the device works now: threads that spin would only take its host's cores */
  return atomic_load(&m.failure);
}

/* One after the other, before all other steps: their code stays in the caches. */
static hr_status make_host_kernels(hr_instance *instance, hr_device *device) {
  hr_status status = HR_OK;
  for (int i = 0; status == HR_OK && i < instance->step_count; ++i) {
    hr_exec_step *step = &instance->steps[i];
    status = step->kind == HR_STEP_KERNEL ? make_kernel(instance, device, step) : HR_OK;
  }
  return status;
}

/* The steps with what they have of their own, empty. */
static hr_status begin_steps(hr_instance *instance) {
  const hr_schedule *schedule = &instance->plan->schedule;
  size_t steps = (size_t)schedule->step_count;
  instance->steps = hr_calloc(steps + 1, sizeof *instance->steps);
  if (instance->steps == NULL) {
    return no_memory("steps");
  }
  instance->step_count = schedule->step_count;
  for (size_t i = 0; i < steps; ++i) {
    hr_exec_step *step = &instance->steps[i];
    step->kind = schedule->steps[i].kind;
    step->check = (int)instance->checks.count;
    bool is_check = step->kind == HR_STEP_CHECK;
    HR_RETURN_IF_ERROR(!is_check || hr_vector_push(&instance->checks, (hr_check){0}) ? HR_OK : no_memory("checks"));
  }
  return HR_OK;
}

static hr_status make_steps(hr_instance *instance, hr_device *device, hr_shared_calls *calls, step_lists *lists) {
  const hr_schedule *schedule = &instance->plan->schedule;
  HR_RETURN_IF_ERROR(begin_steps(instance));
  HR_RETURN_IF_ERROR(has_host_kernels(device) ? make_host_kernels(instance, device) : make_kernels(instance, device));
  for (int i = 0; i < schedule->step_count; ++i) {
    hr_exec_step *step = &instance->steps[i];
    HR_RETURN_IF_ERROR(step->cached == NULL ? prepare_step(instance, device, calls, step) : HR_OK);
    HR_RETURN_IF_ERROR(list_args(instance, lists, step));
  }
  HR_RETURN_IF_ERROR(keep_lists(instance, lists));
  return finish_steps(instance, device, NULL, NULL);
}

hr_status hr__steps_prepare(hr_instance *instance, hr_device *device) {
  hr_shared_calls calls = {0};
  step_lists lists = {{0}};
  hr_status status = make_steps(instance, device, &calls, &lists);
  hr__shared_calls_fini(&calls);
  hr_vector_fini(&lists.args);
  hr_vector_fini(&lists.scalars);
  HR_RETURN_IF_ERROR(status);
  return has_host_kernels(device) ? HR_OK : load_kernels(instance, device);
}

/* ---- again, with other numbers ---- */

/* Begins to load memory. */
static void fetch(const void *at, size_t bytes) {
  enum { LINE = 64, INTO_L2 = 2 };
  for (size_t i = 0; i < bytes; i += LINE) {
    __builtin_prefetch((const char *)at + i, 1, INTO_L2);
  }
}

/* About what is read of objects whose size is not known. */
enum { KERNEL_BYTES = 768, NODE_BYTES = 640, CALL_BYTES = 512, CACHED_BYTES = 128, HOST_BYTES = 512, FORM_BYTES = 640 };

static void fetch_host_kernel(const hr_host_kernel *kernel) {
  for (int i = 0; kernel != NULL && i < HR_HOST_KERNEL_INTERNED_MAX; ++i) {
    if (kernel->interned[i] != NULL) {
      fetch(kernel->interned[i], FORM_BYTES);
    }
  }
}

/* The nodes that libraries have declined, which are asked about again. */
static void fetch_declined(const hr_schedule *schedule) {
  for (int i = 0; i < schedule->declined_count; ++i) {
    fetch(&schedule->declined[i], NODE_BYTES);
  }
}

/* Begins to load what is reached through what hr__steps_fetch loads, but what host kernels refer to. */
static void fetch_further(const hr_exec_step *step) {
  const hr_step_call *call = step->call;
  fetch(hr__step_kernel(step), HOST_BYTES);
  if (call != NULL && call->ready.prepared != NULL) {
    fetch(call->ready.prepared, CALL_BYTES);
    fetch(call->ready.node, call->ready.node != NULL ? NODE_BYTES : 0);
  }
}

void hr__steps_fetch(const hr_instance *instance, const bool *varies) {
  if (varies[instance->step_count]) {
    fetch_declined(&instance->plan->schedule);
  }
  for (int i = 0; i < instance->step_count; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    if (varies[i] && step->kind == HR_STEP_KERNEL) {
      fetch(hr__step_source(instance, step)->kernel, KERNEL_BYTES);
      fetch(step->cached, CACHED_BYTES);
    } else if (varies[i]) {
      fetch(hr__step_source(instance, step)->node, NODE_BYTES);
    }
  }
  for (int i = 0; i < instance->step_count; ++i) {
    if (varies[i]) {
      fetch_further(&instance->steps[i]);
    }
  }
  for (int i = 0; i < instance->step_count; ++i) {
    if (varies[i]) {
      fetch_host_kernel(hr__step_kernel(&instance->steps[i]));
    }
  }
}

static void destroy_call(hr_step_call *call) {
  if (call->written != NULL) {
    call->written->destroy(call->written);
  }
  hr__tuning_release(call->tuning);
  hr__ready_fini(&call->ready);
  hr_free(call);
}

/* Steps that run its call were released before. */
static void release_step(hr_exec_step *step) {
  hr_step_call *call = step->call;
  hr__kernel_release(step->cached);
  if (call != NULL && hr__step_like(step) == NULL) {
    destroy_call(call);
  } else if (call != NULL && call->moves != NULL) {
    hr_free(call->moves);
    hr_free(call);
  }
  step->cached = NULL, step->call = NULL;
}

void hr__steps_release(hr_instance *instance) {
  for (int i = instance->step_count; i-- > 0;) {
    release_step(&instance->steps[i]);
  }
  hr_free(instance->steps);
}

/* A step changes with the step whose library call it shares. */
static void spread_changes(hr_instance *instance, bool *is_changed) {
  for (int i = 0; i < instance->step_count; ++i) {
    const hr_exec_step *like = hr__step_like(&instance->steps[i]);
    is_changed[i] |= like != NULL && is_changed[like - instance->steps];
  }
}

bool hr__steps_find_like(const hr_instance *instance, int *out_like) {
  hr_table first = {0}; /* the first step of each kernel, from 1 on */
  bool ok = true;
  for (int i = 0; ok && i < instance->step_count; ++i) {
    uint64_t hash = hr_hash_mix(HR_HASH_SEED, (uint64_t)(uintptr_t)instance->steps[i].cached);
    uintptr_t known = instance->steps[i].cached != NULL ? (uintptr_t)hr_table_get(&first, hash) : 0;
    bool is_same = known != 0 && instance->steps[known - 1].cached == instance->steps[i].cached;
    out_like[i] = is_same ? (int)known - 1 : -1;
    ok = instance->steps[i].cached == NULL || known != 0 || hr_table_put(&first, hash, (void *)((uintptr_t)i + 1));
  }
  hr_table_fini(&first);
  return ok;
}

/* True if two steps whose kernel forms had the same structure have the same numbers, whatever the dims are. */
static bool have_same_numbers(const hr_step_numbers *n, int a, int b) {
  return n->same[a] == n->same[b];
}

/* Gives the step's library call the new numbers in place; false: it has to be released and prepared. Dims that come
 * once are not tuned. */
static bool renumber_call(const hr_instance *instance, hr_device *device, int i) {
  const hr_exec_step *step = &instance->steps[i];
  const hr_node *node = hr__step_source(instance, step)->node;
  hr_step_call *call = step->call;
  if (call->ready.prepared == NULL || !hr__ready_renumber(providers_of(device, node), &instance->plan->schedule.program,
                                                          node, find_entry(instance, device, step), &call->ready)) {
    return false;
  }
  hr__tuning_release(call->tuning);
  call->tuning = NULL;
  call->workspace_bytes = call->ready.workspace_bytes;
  call->is_renumbered = true;
  return true;
}

/* The same for a step that shares the call of an earlier one, if the two still have the same numbers. */
static bool follow_call(const hr_instance *instance, const hr_step_numbers *n, int i) {
  int like = (int)(hr__step_like(&instance->steps[i]) - instance->steps);
  bool has_moves = instance->steps[i].call->moves != NULL; /* they are found anew */
  return !has_moves && n->is_done[like] && have_same_numbers(n, i, like);
}

/* Renumbers the changed library calls for which that is possible, and notes them. */
static void renumber_calls(const hr_instance *instance, hr_device *device, const hr_step_numbers *n) {
  for (int i = 0; i < instance->step_count; ++i) {
    bool is_changed_call = n->is_changed[i] && instance->steps[i].kind == HR_STEP_LIBRARY;
    bool is_follower = is_changed_call && hr__step_like(&instance->steps[i]) != NULL;
    n->is_done[i] = is_changed_call && (is_follower ? follow_call(instance, n, i) : renumber_call(instance, device, i));
  }
}

/* The step gets a reference to an earlier one's kernel, unless it has it. */
static void share_with(hr_exec_step *step, hr_cached_kernel *cached) {
  hr_cached_kernel *last = step->cached;
  if (last != cached) {
    hr__kernel_retain(cached);
    hr__kernel_release(last);
    step->cached = cached;
  }
}

/* New dims mostly come once: the kernel is this instance's alone, the last one if it can have other numbers. */
static hr_status renew_kernel(hr_instance *instance, hr_device *device, const hr_step_numbers *n, int i) {
  hr_exec_step *step = &instance->steps[i];
  hr_cached_kernel *last = step->cached;
  int like = n->like[i];
  if (like >= 0 && have_same_numbers(n, i, like)) {
    share_with(step, instance->steps[like].cached);
  } else if (last == NULL ||
             !hr__kernel_renumber(last, hr__step_source(instance, step)->kernel, n->summaries[i].references)) {
    step->cached = NULL;
    hr_status status = hr__kernel_create_private(hr__step_source(instance, step)->kernel, device, last, &step->cached);
    hr__kernel_release(last);
    HR_RETURN_IF_ERROR(status);
  }
  return HR_OK;
}

/* Dims that stay may stay for long: the kernel may be compiled. */
static hr_status share_kernel(const hr_instance *instance, hr_device *device, hr_exec_step *step) {
  hr_cached_kernel *own = step->cached;
  hr_status status = make_kernel(instance, device, step);
  if (status == HR_OK) {
    hr__kernel_release(own);
  }
  return status;
}

/* The same for a library call, which may be tuned. */
static void tune_call(const hr_instance *instance, hr_device *device, const hr_exec_step *step) {
  hr_step_call *call = step->call;
  hr_tuning_entry *entry = find_entry(instance, device, step);
  const hr_program *program = &instance->plan->schedule.program;
  call->is_renumbered = false;
  if (entry != NULL) {
    const hr_node *node = hr__step_source(instance, step)->node;
    call->tuning = hr__tuning_create(device, providers_of(device, node), program, node, &call->ready, entry);
  }
}

/* False: kernels are compiled for the host, or logged, when they are made. */
static bool may_renew_kernels(const hr_device *device) {
  bool is_waited_for = has_host_kernels(device) && hr_env_choice(HR_ENV_JIT) == HR_ENV_JIT_WAIT;
  return !is_waited_for && !hr_log_is_on(HR_LOG_SOURCE);
}

static hr_status keep_step(hr_instance *instance, hr_device *device, hr_exec_step *step) {
  if (step->call != NULL && step->call->is_renumbered) {
    tune_call(instance, device, step);
  }
  bool may_compile = step->cached != NULL && has_host_kernels(device) && hr__kernel_is_private(step->cached);
  return may_compile ? share_kernel(instance, device, step) : HR_OK;
}

/* The lists of arguments stay: a call must not become a kernel with scalars, or cease to be one. */
static hr_status renew_call(hr_instance *instance, hr_device *device, hr_shared_calls *calls, hr_exec_step *step) {
  HR_RETURN_IF_ERROR(hr__plan_check_kept(instance->plan, (int)(step - instance->steps), device));
  HR_RETURN_IF_ERROR(prepare_step(instance, device, calls, step));
  int scalars = step->call->written != NULL ? hr__step_source(instance, step)->node->scalar_count : 0;
  return scalars == hr__step_scalar_count(step)
             ? HR_OK
             : hr_status_make(HR_STATUS_FAILED_PRECONDITION, "general plan: another kind of kernel for these dims");
}

static hr_status renew_step(hr_instance *instance, hr_device *device, hr_shared_calls *calls, const hr_step_numbers *n,
                            int i) {
  hr_exec_step *step = &instance->steps[i];
  if (!n->is_changed[i]) {
    return keep_step(instance, device, step);
  }
  if (step->kind == HR_STEP_LIBRARY) {
    return renew_call(instance, device, calls, step);
  }
  return step->kind == HR_STEP_KERNEL && may_renew_kernels(device) ? renew_kernel(instance, device, n, i)
                                                                   : prepare_step(instance, device, calls, step);
}

/* Kernels whose code is unloaded with the last one: they are destroyed after their successors are made. */
typedef HR_VECTOR(hr_host_kernel *) retired_kernels;

static void retire(hr_exec_step *step, retired_kernels *retired) {
  hr_step_call *call = step->call;
  if (call != NULL && call->written != NULL && hr__step_like(step) == NULL && hr_vector_push(retired, call->written)) {
    call->written = NULL;
  }
  release_step(step);
}

static void destroy_retired(retired_kernels *retired) {
  for (size_t i = 0; i < retired->count; ++i) {
    retired->data[i]->destroy(retired->data[i]);
  }
  hr_vector_fini(retired);
}

/* True if the step's kernel gets its numbers with that of the earlier step that it is like. */
static bool follows_kernel(const hr_step_numbers *n, int i) {
  return n->like[i] >= 0 && have_same_numbers(n, i, n->like[i]);
}

/* Counts the references to each changed step's kernel that the steps which follow it have as well. */
static void count_references(const hr_instance *instance, const hr_step_numbers *n) {
  for (int i = 0; i < instance->step_count; ++i) {
    n->summaries[i].references = 1;
    if (n->is_changed[i] && instance->steps[i].kind == HR_STEP_KERNEL && follows_kernel(n, i)) {
      n->summaries[n->like[i]].references += instance->steps[i].cached == instance->steps[n->like[i]].cached;
    }
  }
}

/* Releases what is made anew. */
static void release_changed(hr_instance *instance, const hr_device *device, const hr_step_numbers *n,
                            retired_kernels *retired) {
  bool keeps = may_renew_kernels(device);
  count_references(instance, n);
  for (int i = instance->step_count - 1; i >= 0; --i) { /* sharers before the one that they share with */
    bool is_kept = keeps && instance->steps[i].kind == HR_STEP_KERNEL && (n->like[i] < 0 || follows_kernel(n, i));
    if (n->is_changed[i] && !n->is_done[i] && !is_kept) {
      retire(&instance->steps[i], retired);
    }
  }
}

hr_status hr__steps_prepare_changed(hr_instance *instance, hr_device *device, const hr_step_numbers *numbers) {
  hr_shared_calls calls = {0};
  retired_kernels retired = {0};
  hr_status status = HR_OK;
  spread_changes(instance, numbers->is_changed);
  renumber_calls(instance, device, numbers);
  release_changed(instance, device, numbers, &retired);
  for (int i = 0; status == HR_OK && i < instance->step_count; ++i) {
    bool is_left = numbers->is_done[i] || (!numbers->is_changed[i] && !numbers->varies[i]);
    status = is_left ? HR_OK : renew_step(instance, device, &calls, numbers, i);
  }
  hr__shared_calls_fini(&calls);
  destroy_retired(&retired);
  HR_RETURN_IF_ERROR(status);
  for (int i = 0; i < instance->step_count; ++i) {
    numbers->is_done[i] = numbers->is_changed[i] || numbers->varies[i];
  }
  HR_RETURN_IF_ERROR(
      finish_steps(instance, device, numbers->may_all_differ ? NULL : numbers->is_done, numbers->summaries));
  return has_host_kernels(device) ? HR_OK : load_kernels(instance, device);
}
