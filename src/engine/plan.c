#include "engine/plan.h"

#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/table.h"
#include "base/thread.h"
#include "engine/algorithms.h"
#include "engine/dump.h"
#include "engine/step_costs.h"

enum { RESIDENT_ROW_BYTES = 1 << 18, HOIST_BYTES = 1 << 15, DEVICE_HOIST_BYTES = 1 << 25, HASTEN_BYTES = 1 << 20 };

/* The plans of a context that are in use. */
typedef struct plans {
  hr_mutex mutex;
  hr_table table; /* by hash; plans with equal hashes are chained */
  hr_generals generals;
  /* By hash_lengths, and by structure: the first plan, which waits to be learned from, or &is_learned. */
  hr_table waiting;
  bool keeps_nodes;
} plans;

static const char is_learned;

static void retain_locked(void *plan);
static void release_locked(void *plan);

static void init_plans(void *part) {
  plans *own = part;
  hr_mutex_init(&own->mutex);
  own->generals = (hr_generals){.retain = retain_locked, .release = release_locked};
}

/* Models that have settled hold kernels, whose part may end before. */
static void stop_plans(void *part) {
  plans *own = part;
  hr_mutex_lock(&own->mutex);
  hr__generals_fini(&own->generals);
  hr_mutex_unlock(&own->mutex);
}

/* All users of plans have released them. */
static void fini_plans(void *part) {
  plans *own = part;
  hr__generals_fini(&own->generals);
  hr_table_fini(&own->waiting);
  hr_table_fini(&own->table);
  hr_mutex_fini(&own->mutex);
}

static plans *own_plans(void) {
  static const hr_context_part kind = {
      .bytes = sizeof(plans), .init = init_plans, .stop = stop_plans, .fini = fini_plans};
  return hr__context_part(hr__context(), HR_CONTEXT_PLANS, &kind);
}

static hr_status no_memory(const char *what) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %s", what);
}

/* ---- steps and the buffers they write ---- */

/* `writes`: of each of the key's buffers 1 + the step that writes it last; 0: none. */
static void note_write(const hr_plan *plan, uint32_t buffer, int step, uint32_t *writes) {
  if (buffer < plan->key.buffer_count) {
    writes[buffer] = (uint32_t)step + 1;
  }
}

/* The last check among those of the recorded operations up to each; -1: none. NULL when memory is out. */
static int *find_checks(hr_plan *plan) {
  const size_t count = plan->key.record_count;
  int *checks = hr_arena_alloc(&plan->schedule.program.arena, (count + 1) * sizeof *checks);
  for (size_t r = 0; checks != NULL && r < count; ++r) {
    checks[r] = -1;
  }
  for (int i = 0; checks != NULL && i < plan->schedule.step_count; ++i) {
    const hr_step *step = &plan->schedule.steps[i];
    if (step->kind == HR_STEP_CHECK) {
      checks[step->node->origin] = i;
    }
  }
  for (size_t r = 1; checks != NULL && r < count; ++r) {
    checks[r] = checks[r] > checks[r - 1] ? checks[r] : checks[r - 1];
  }
  return checks;
}

/* The result of an operation counts as written only after its own check has passed, although both may run in any
 * order. False when memory is out. */
static bool wait_for_checks(hr_plan *plan, uint32_t *writes) {
  const hr_program *program = &plan->schedule.program;
  const int *checks = find_checks(plan);
  for (int n = 0; checks != NULL && n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    for (int j = 0; j < node->output_count; ++j) {
      uint32_t buffer = node->outputs[j].index;
      if (node->outputs[j].kind == HR_OPERAND_VALUE && buffer < plan->key.buffer_count && writes[buffer] > 0 &&
          (int)writes[buffer] - 1 < checks[node->origin]) {
        note_write(plan, buffer, checks[node->origin], writes);
      }
    }
  }
  return checks != NULL;
}

/* `writes`: of each buffer, the last step that writes it and 1; 0: none does. */
static hr_status keep_writes(hr_plan *plan, const uint32_t *writes) {
  HR_VECTOR(uint32_t) list = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < plan->key.buffer_count; ++i) {
    ok = writes[i] == 0 || (hr_vector_push(&list, (uint32_t)i) && hr_vector_push(&list, writes[i] - 1));
  }
  plan->writes = plan->own_writes = ok ? hr_narrow_make(list.count, list.data) : NULL;
  hr_vector_fini(&list);
  return plan->writes != NULL ? HR_OK : no_memory("writes");
}

/* Finds the step that writes each bound buffer last: a run that ends at or before it leaves the buffer unfinished. */
static hr_status find_writes(hr_plan *plan) {
  uint32_t *writes = hr_arena_calloc(&plan->schedule.program.arena, plan->key.buffer_count + 1, sizeof *writes);
  if (writes == NULL) {
    return no_memory("writes");
  }
  for (int i = 0; i < plan->schedule.step_count; ++i) {
    const hr_step *step = &plan->schedule.steps[i];
    for (int j = 0; step->kind == HR_STEP_KERNEL && j < step->kernel->arg_count; ++j) {
      if (step->kernel->args[j].is_written) {
        note_write(plan, step->kernel->args[j].buffer, i, writes);
      }
    }
    for (int j = 0; step->kind == HR_STEP_LIBRARY && j < step->node->output_count; ++j) {
      if (step->node->outputs[j].kind == HR_OPERAND_VALUE) {
        note_write(plan, step->node->outputs[j].index, i, writes);
      }
    }
  }
  HR_RETURN_IF_ERROR(wait_for_checks(plan, writes) ? HR_OK : no_memory("checks"));
  return keep_writes(plan, writes);
}

bool hr__plan_writes(const hr_plan *plan, uint32_t local) {
  size_t first = 0, end = hr__plan_write_count(plan);
  while (first < end) {
    size_t middle = first + (end - first) / 2;
    bool is_before = hr__plan_write(plan, middle).local < local;
    first = is_before ? middle + 1 : first;
    end = is_before ? end : middle;
  }
  return first < hr__plan_write_count(plan) && hr__plan_write(plan, first).local == local;
}

/* ---- compiling ---- */

static size_t bytes_of_layouts(const hr_key *key) {
  return key->layouts != NULL ? 2 * key->buffer_count * sizeof *key->layouts : 0;
}

static size_t bytes_of_key(const hr_key *key) {
  return key->word_count * sizeof *key->words + key->local_count * sizeof *key->locals +
         key->buffer_count * sizeof *key->shapes + bytes_of_layouts(key);
}

static char *append(char *at, const void *list, size_t bytes) {
  if (bytes > 0) {
    memcpy(at, list, bytes);
  }
  return at + bytes;
}

/* Copies a key into a block of its bytes. */
static void copy_key(const hr_key *key, void *block, hr_key *out_copy) {
  size_t shapes = key->buffer_count * sizeof *key->shapes, layouts = bytes_of_layouts(key);
  hr_key copy = *key;
  char *at = block;
  copy.words = (const uint64_t *)(void *)at;
  at = append(at, key->words, key->word_count * sizeof *key->words);
  copy.shapes = (const uint64_t *)(void *)at;
  at = append(at, key->shapes, shapes);
  copy.layouts = key->layouts != NULL ? (const uint64_t *)(void *)at : NULL;
  at = append(at, key->layouts, layouts);
  copy.locals = (const uint32_t *)(void *)at;
  (void)append(at, key->locals, key->local_count * sizeof *key->locals);
  *out_copy = copy;
}

static hr_status keep_key(hr_plan *plan, const hr_key *key) {
  plan->key_block = hr_malloc(bytes_of_key(key));
  if (plan->key_block == NULL) {
    return no_memory("a program");
  }
  copy_key(key, plan->key_block, &plan->key);
  return HR_OK;
}

/* The key of a model, with all words. */
static const hr_key *key_of_model(const hr_plan *model) {
  return model->model_words != NULL ? &model->model_key : &model->key;
}

/* Of the key of a copy, keeps what differs from its model's, if there is memory. */
static void settle_key(hr_plan *plan) {
  hr_key rest = plan->key;
  rest.word_count = rest.local_count = 0;
  void *block = hr_malloc(bytes_of_key(&rest));
  if (block == NULL || !hr__key_changes_make(key_of_model(plan->model), &plan->key, &plan->key_changes)) {
    hr_free(block);
    return;
  }
  copy_key(&rest, block, &rest);
  plan->key.words = NULL, plan->key.locals = NULL;
  plan->key.shapes = rest.shapes, plan->key.layouts = rest.layouts;
  hr_free(plan->key_block);
  plan->key_block = block;
}

static size_t bytes_of_kept_key(const hr_plan *plan) {
  hr_key key = plan->key;
  if (plan->folded.words != NULL) {
    return bytes_of_layouts(&key) + hr__folded_key_bytes(&plan->folded);
  }
  bool has_changes = plan->key_changes.all != NULL;
  key.word_count = has_changes ? 0 : key.word_count;
  key.local_count = has_changes ? 0 : key.local_count;
  return bytes_of_key(&key) + plan->key_changes.count * sizeof *plan->key_changes.all;
}

hr_status hr__plan_decode_key(const hr_plan *plan, hr_program *out_program, uint64_t **out_words) {
  *out_words = NULL;
  hr_key key = plan->key;
  uint64_t *words = NULL;
  if (plan->folded.words != NULL) {
    words = hr__folded_key_unfold(&plan->folded, &key);
  } else if (plan->key_changes.all != NULL) {
    words = hr_malloc(key.word_count * sizeof *words);
  } else {
    return hr__key_decode(&key, out_program);
  }
  if (words == NULL) {
    return no_memory("a program's records");
  }
  if (plan->key_changes.all != NULL) {
    hr__key_changes_apply(key_of_model(plan->model), &plan->key_changes, words);
    key.words = words, key.locals = key_of_model(plan->model)->locals;
  }
  *out_words = words;
  return hr__key_decode(&key, out_program);
}

static hr_status count_costs(hr_plan *plan) {
  plan->costs = hr_calloc((size_t)plan->schedule.step_count + 1, sizeof *plan->costs);
  if (plan->costs == NULL) {
    return no_memory("costs");
  }
  for (int i = 0; i < plan->schedule.step_count; ++i) {
    hr_step_count_cost(&plan->schedule.steps[i], &plan->costs[i]);
    plan->bytes += plan->costs[i].bytes_read + plan->costs[i].bytes_written;
    plan->flops += plan->costs[i].flops;
  }
  return HR_OK;
}

/* Finds the sources of the indices that checks read, while all nodes exist. */
static hr_status find_indices(hr_plan *plan) {
  const hr_schedule *schedule = &plan->schedule;
  plan->indices = hr_calloc((size_t)schedule->step_count + 1, sizeof *plan->indices);
  if (plan->indices == NULL) {
    return no_memory("checks");
  }
  for (int i = 0; i < schedule->step_count; ++i) {
    const hr_node *node = schedule->steps[i].node;
    if (schedule->steps[i].kind == HR_STEP_CHECK && node->input_count == 1) {
      plan->indices[i] = hr__index_source_find(&schedule->program, node);
    }
  }
  return HR_OK;
}

/* Repeated cells are compiled once, unless somebody looks at all nodes. */
static hr_status compile_program(hr_plan *plan, const hr_program *program, const hr_target *target) {
  bool is_repeated = false;
  if (!own_plans()->keeps_nodes && !hr_log_is_on(HR_LOG_PROGRAM) && !hr__dump_is_on() &&
      hr_env_choice(HR_ENV_REPEATS) != HR_ENV_REPEATS_OFF) {
    HR_RETURN_IF_ERROR(hr_compile_repeats(program, target, &plan->schedule, &is_repeated));
  }
  plan->is_compact = is_repeated;
  return is_repeated ? HR_OK : hr_compile(program, target, &plan->schedule);
}

/* Notes the results that take memory over, donated values' (`donations`, or NULL) among them. With other dims other
 * values may have equal sizes, so a plan with donations is no model. */
static void note_takes(hr_plan *plan, const uint32_t *donations) {
  hr_program *program = &plan->schedule.program;
  for (int b = 0; b < program->bound_count; ++b) {
    uint32_t donor = donations != NULL ? donations[b] : 0;
    program->buffers[b].takes = donor != 0 ? donor : program->buffers[b].takes;
    program->has_rounds |= donor != 0;
    plan->takes_memory |= program->buffers[b].takes != 0;
  }
}

/* On one thread of a host nothing runs side by side. A bound would only give some dims another structure. */
static int64_t hoist_bytes(const hr_device *device) {
  return !device->properties.is_host ? DEVICE_HOIST_BYTES : hr_thread_count() > 1 ? HOIST_BYTES : 0;
}

static hr_status compile(hr_plan *plan, const hr_key *key, hr_device *device, const hr_scalar *arguments) {
  hr_dialect dialect = device->driver->dialect;
  hr_target target = {.keeps = hr__algorithms_providers(dialect)[0] != NULL ? hr__algorithms_keep : NULL,
                      .keeps_ctx = device,
                      .may_keep = hr__algorithms_may_keep,
                      .resident_row_bytes = RESIDENT_ROW_BYTES,
                      .hoist_bytes = hoist_bytes(device),
                      .hasten_bytes = device->properties.is_host ? HASTEN_BYTES : 0,
                      .explains = own_plans()->keeps_nodes,
                      .verify = hr_log_is_on(HR_LOG_VERIFY)};
  hr_program program;
  hr__algorithms_layouts(device, &target);
  HR_RETURN_IF_ERROR(hr__key_decode(key, &program));
  const uint32_t *takes = NULL;
  hr_status status = hr_rooms(&program);
  status = status == HR_OK ? hr_donate(&program, &takes) : status;
  if (status == HR_OK) {
    hr__dump_program(&program, key->hash, device->name, arguments);
    status = compile_program(plan, &program, &target);
  }
  if (status == HR_OK) {
    note_takes(plan, takes);
  }
  hr_program_fini(&program);
  if (status == HR_OK && hr_log_is_on(HR_LOG_PROGRAM)) {
    hr__dump_log(&plan->schedule.program);
  }
  return status;
}

static bool has_calls(const hr_program *program) {
  bool has = false;
  for (int i = 0; !has && i < program->node_count; ++i) {
    has = program->nodes[i].op == HR_OP_CALL;
  }
  return has;
}

/* True if a plan that was compiled may be settled: the log names kernels with their dims. */
static bool may_be_packed(const hr_plan *plan) {
  return !plan->schedule.is_refused && !hr_log_is_on(HR_LOG_KERNEL) && !has_calls(&plan->schedule.program);
}

/* ---- general plans ---- */

/* Devices of a kind; see is_of_kind. */
static uint64_t hash_kind(const hr_device *device) {
  const hr_device_properties *p = &device->properties;
  uint64_t hash = hr_hash_bytes((uint64_t)(uintptr_t)device->driver, p->description, strlen(p->description));
  hash = hr_hash_mix(hr_hash_mix(hash, (uint64_t)p->workers), (uint64_t)p->block_bytes);
  return hr_hash_mix(hash, (uint64_t)p->is_host << 1 | (uint64_t)p->has_contents);
}

static hr_status other_nodes(void) {
  return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "general plan: libraries run other nodes with these dims");
}

hr_status hr__plan_check_kept(const hr_plan *plan, int step, hr_device *device) {
  const hr_schedule *schedule = &plan->schedule;
  return hr__algorithms_keep(device, &schedule->program, schedule->steps[step].node) ? HR_OK : other_nodes();
}

/* OK if libraries still decline the nodes that they declined. */
static hr_status check_declined(const hr_schedule *schedule, hr_device *device) {
  bool are = true;
  for (int i = 0; are && i < schedule->declined_count; ++i) {
    are = !hr__algorithms_keep(device, &schedule->program, &schedule->declined[i]);
  }
  return are ? HR_OK : other_nodes();
}

/* OK if libraries run the same nodes with their new dims. */
static hr_status check_all(const hr_plan *plan, hr_device *device) {
  for (int i = 0; i < plan->schedule.step_count; ++i) {
    bool is_library = plan->schedule.steps[i].kind == HR_STEP_LIBRARY;
    HR_RETURN_IF_ERROR(is_library ? hr__plan_check_kept(plan, i, device) : HR_OK);
  }
  return check_declined(&plan->schedule, device);
}

/* The schedule of a model, and the sources of its checks' indices. */
static const hr_schedule *schedule_of(const hr_plan *model) {
  return model->unpacked != NULL ? &model->unpacked->schedule : &model->schedule;
}
static const hr_index_source *indices_of(const hr_plan *model) {
  return model->unpacked != NULL ? model->unpacked->indices : model->indices;
}

static hr_status copy_lists(const hr_plan *model, const int64_t *counts, hr_plan *plan) {
  size_t steps = (size_t)model->schedule.step_count;
  plan->writes = model->writes;
  plan->indices = hr_calloc(steps + 1, sizeof *plan->indices);
  if (plan->indices == NULL) {
    return no_memory("a plan's lists");
  }
  memcpy(plan->indices, indices_of(model), steps * sizeof *plan->indices);
  for (size_t i = 0; i < steps; ++i) {
    plan->indices[i].count = counts[i];
  }
  return HR_OK;
}

/* Behind the schedule's numbers there is a count of each step's index, which changes with the step. */
static hr_status add_places(const hr_plan *plan, size_t count, const hr_number_terms *terms, hr_number_places *places) {
  bool ok = true;
  for (size_t i = places->all.count; ok && i < terms->count; ++i) {
    const hr_number_term *term = &terms->data[i];
    size_t step = term->at - count;
    ok = hr_vector_push(&places->all,
                        (hr_number_place){&plan->indices[step].count, term->value, (uint32_t)step + 1, HR_NUMBER_WORD});
  }
  return ok ? HR_OK : no_memory("a plan's numbers");
}

/* The plan as a copy of its model with other numbers. */
static hr_status renumber(const hr_plan *model, const hr_general_numbers *numbers, hr_device *device, hr_plan *plan,
                          hr_number_places *out_places) {
  size_t steps = (size_t)model->schedule.step_count, count = numbers->all.count - steps;
  HR_RETURN_IF_ERROR(hr_schedule_copy(schedule_of(model), &plan->schedule));
  HR_RETURN_IF_ERROR(hr_schedule_renumber(&plan->schedule, count, numbers->all.data, &numbers->terms, out_places));
  HR_RETURN_IF_ERROR(check_all(plan, device));
  HR_RETURN_IF_ERROR(copy_lists(model, numbers->all.data + count, plan));
  return out_places != NULL ? add_places(plan, count, &numbers->terms, out_places) : HR_OK;
}

/* The lock is not held if the plan has a model. */
static void destroy(hr_plan *plan) {
  hr__plan_release(plan->model);
  hr__key_changes_fini(&plan->key_changes);
  hr__folded_key_fini(&plan->folded);
  hr_free(plan->model_words);
  hr_schedule_fini(&plan->schedule);
  if (plan->compiled.program == NULL) {
    hr_free(plan->packed);
  }
  hr__packed_schedule_fini(&plan->compiled);
  hr__unpacked_schedule_destroy(plan->unpacked);
  hr_free(plan->bindings);
  hr_free(plan->costs);
  hr_free(plan->packed_costs);
  hr_free(plan->own_writes);
  hr_free(plan->args);
  hr_free(plan->scalars);
  hr_free(plan->indices);
  hr_free(plan->key_block);
  hr_free(plan);
}

/* An empty plan of the key. */
static hr_status begin(const hr_key *key, const hr_device *device, hr_plan **out_plan) {
  hr_plan *plan = hr_calloc(1, sizeof *plan);
  hr_status status = plan != NULL ? keep_key(plan, key) : no_memory("a program");
  if (status != HR_OK) {
    hr_free(plan);
    return status;
  }
  plan->device_kind = (hr_device_kind){device->driver, device->properties};
  plan->reference_count = 1;
  *out_plan = plan;
  return HR_OK;
}

static void count_footprint(hr_plan *plan) {
  size_t of_run = plan->compiled.program != NULL ? plan->compiled.footprint + plan->bindings->bytes
                  : plan->packed != NULL ? sizeof *plan->packed + plan->packed->byte_count + plan->bindings->bytes
                                         : 0;
  size_t of_step =
      (plan->costs != NULL ? sizeof *plan->costs : 0) + (plan->indices != NULL ? sizeof *plan->indices : 0);
  plan->footprint = sizeof *plan + hr_schedule_footprint(&plan->schedule) + bytes_of_kept_key(plan) + of_run +
                    plan->packed_cost_bytes + (size_t)plan->schedule.step_count * of_step +
                    (plan->own_writes != NULL ? hr_narrow_bytes(plan->own_writes) : 0);
}

/* Frees what runs don't need, or leaves that for hr__plan_settle_compiled. */
static hr_status leave_rest(hr_plan *plan, const hr_device *device) {
  plan->will_settle = may_be_packed(plan) && device->properties.is_host;
  return plan->is_compact    ? HR_OK
         : plan->will_settle ? hr_schedule_narrow(&plan->schedule)
                             : hr_schedule_compact(&plan->schedule);
}

static hr_status copy_writes(const hr_plan *from, hr_plan *plan) {
  size_t bytes = hr_narrow_bytes(from->writes);
  plan->writes = plan->own_writes = hr_malloc(bytes);
  if (plan->own_writes == NULL) {
    return no_memory("writes");
  }
  memcpy(plan->own_writes, from->writes, bytes);
  return HR_OK;
}

static hr_status create(const hr_key *key, hr_device *device, const hr_scalar *arguments, hr_plan **out_plan) {
  hr_plan *plan = NULL;
  HR_RETURN_IF_ERROR(begin(key, device, &plan));
  hr_status status = compile(plan, key, device, arguments);
  status = status == HR_OK ? count_costs(plan) : status;
  status = status == HR_OK ? find_writes(plan) : status;
  status = status == HR_OK ? find_indices(plan) : status;
  status = status == HR_OK && !own_plans()->keeps_nodes ? leave_rest(plan, device) : status;
  if (status != HR_OK) {
    destroy(plan);
    return status;
  }
  count_footprint(plan);
  *out_plan = plan;
  return HR_OK;
}

hr_plan *hr__plan_create_general(const hr_key *key, hr_device *device, hr_plan *model,
                                 const hr_general_numbers *numbers, hr_number_places *out_places) {
  hr_plan *plan = NULL;
  hr_status status = begin(key, device, &plan);
  status = status == HR_OK ? renumber(model, numbers, device, plan, out_places) : status;
  status = status == HR_OK ? count_costs(plan) : status;
  if (status != HR_OK) {
    hr_log(HR_LOG_DEVICE, "%s", hr_status_message(status));
    hr_status_ignore(status);
    if (plan != NULL) {
      destroy(plan);
    }
    return NULL;
  }
  plan->is_general = true;
  plan->takes_memory = model->takes_memory;
  plan->owner = model->owner;
  hr_mutex_lock(&model->owner->mutex);
  retain_locked(model);
  hr_mutex_unlock(&model->owner->mutex);
  plan->model = model;
  count_footprint(plan);
  return plan;
}

/* Without memory the schedule stays. */
static void pack(hr_plan *plan) {
  hr_packed_program *packed = hr_program_pack(&plan->schedule.program, &schedule_of(plan->model)->program);
  hr_bindings *bindings = packed != NULL ? hr__bindings_make(&plan->schedule) : NULL;
  if (bindings == NULL || !hr_schedule_drop_lists(&plan->schedule)) {
    hr_free(bindings);
    hr_free(packed);
    return;
  }
  plan->packed = packed, plan->bindings = bindings;
}

/* Without memory they stay. */
static void pack_costs(hr_plan *plan) {
  size_t bytes = 0;
  plan->packed_costs = hr__step_costs_pack(plan->schedule.step_count, plan->costs, &bytes);
  if (plan->packed_costs != NULL) {
    plan->packed_cost_bytes = bytes;
    hr_free(plan->costs);
    plan->costs = NULL;
  }
}

const hr_step_cost *hr__plan_costs(hr_plan *plan) {
  if (plan->costs == NULL) {
    plan->costs = hr__step_costs_unpack(plan->schedule.step_count, plan->packed_costs);
  }
  return plan->costs;
}

void hr__plan_settle(hr_plan *plan) {
  plan->is_settled = true;
  hr_schedule_drop_forms(&plan->schedule);
  if (!has_calls(&plan->schedule.program)) {
    pack(plan);
  }
  hr_free(plan->indices);
  plan->indices = NULL;
  pack_costs(plan);
  settle_key(plan);
  count_footprint(plan);
}

/* The packed form of a compiled plan. */
typedef struct settled {
  hr_packed_schedule compiled;
  hr_bindings *bindings;
  hr_schedule schedule; /* what is left of it */
  uint8_t *costs;
  size_t cost_bytes;
  hr_folded_key folded; /* the key's lists, but the layouts, which are in .. */
  void *key_block;
  hr_key key;
} settled;

static void settled_fini(settled *s) {
  hr__packed_schedule_fini(&s->compiled);
  hr_free(s->bindings);
  hr_schedule_fini(&s->schedule);
  hr_free(s->costs);
  hr__folded_key_fini(&s->folded);
  hr_free(s->key_block);
}

/* The key without its lists, and these folded; false when memory is out. */
static bool fold_key(const hr_key *key, settled *out) {
  size_t bytes = bytes_of_layouts(key);
  out->key = *key;
  out->key.words = out->key.shapes = NULL, out->key.locals = NULL;
  if (!hr__folded_key_make(key, &out->folded)) {
    return false;
  }
  out->key.layouts = out->key_block = bytes > 0 ? hr_malloc(bytes) : NULL;
  if (out->key_block != NULL) {
    memcpy(out->key_block, key->layouts, bytes);
  }
  return bytes == 0 || out->key_block != NULL;
}

/* The counts, sizes and origins of a schedule; false when memory is out. */
static bool copy_rest(const hr_schedule *schedule, hr_schedule *out) {
  *out = *schedule;
  hr_program_init(&out->program);
  hr_arena_init(&out->forms, schedule->origin_bytes);
  out->origins = hr_arena_dup(&out->forms, schedule->origins, schedule->origin_bytes);
  out->steps = NULL, out->places = NULL, out->declined = NULL;
  out->declined_count = 0;
  return out->origins != NULL;
}

static bool settled_make(const hr_plan *plan, hr_cached_kernel *const *kernels, settled *out) {
  bool ok = hr__packed_schedule_make(&plan->schedule, plan->indices, kernels, &out->compiled);
  out->bindings = ok ? hr__bindings_make(&plan->schedule) : NULL;
  out->costs = ok ? hr__step_costs_pack(plan->schedule.step_count, plan->costs, &out->cost_bytes) : NULL;
  return out->bindings != NULL && out->costs != NULL && copy_rest(&plan->schedule, &out->schedule) &&
         fold_key(&plan->key, out);
}

/* Exchanges what the plan has for what it becomes. The list is locked. */
static void settle_locked(hr_plan *plan, settled *s, settled *out_old, hr_step_cost **out_costs,
                          hr_index_source **out_indices) {
  *out_old = (settled){.schedule = plan->schedule, .key_block = plan->key_block};
  plan->key = s->key, plan->key_block = s->key_block, plan->folded = s->folded;
  *out_costs = plan->costs, *out_indices = plan->indices;
  plan->schedule = s->schedule;
  plan->compiled = s->compiled, plan->packed = s->compiled.program, plan->bindings = s->bindings;
  plan->packed_costs = s->costs, plan->packed_cost_bytes = s->cost_bytes;
  plan->costs = NULL, plan->indices = NULL;
  plan->is_settled = true;
  plan->will_settle = false;
  *s = (settled){0};
}

void hr__plan_settle_compiled(hr_plan *plan, hr_cached_kernel *const *kernels, hr_narrow *args, hr_narrow *scalars) {
  settled s = {0}, old = {0};
  hr_step_cost *costs = NULL;
  hr_index_source *indices = NULL;
  bool ok = plan->will_settle && settled_make(plan, kernels, &s);
  hr_mutex_lock(&plan->owner->mutex);
  if (ok && plan->reference_count == 1 && !plan->is_settled) {
    settle_locked(plan, &s, &old, &costs, &indices);
    plan->args = args, plan->scalars = scalars;
  }
  hr_mutex_unlock(&plan->owner->mutex);
  settled_fini(&s);
  settled_fini(&old);
  hr_free(costs);
  hr_free(indices);
  count_footprint(plan);
}

/* In place: keys of one structure mostly have the same counts. */
static hr_status replace_key(hr_plan *plan, const hr_key *key) {
  if (bytes_of_key(key) == bytes_of_key(&plan->key)) {
    copy_key(key, plan->key_block, &plan->key);
    return HR_OK;
  }
  hr_free(plan->key_block);
  return keep_key(plan, key);
}

static void recount_cost(hr_plan *plan, int step) {
  hr_step_cost *cost = &plan->costs[step];
  plan->bytes -= cost->bytes_read + cost->bytes_written;
  plan->flops -= cost->flops;
  hr_step_count_cost(&plan->schedule.steps[step], cost);
  plan->bytes += cost->bytes_read + cost->bytes_written;
  plan->flops += cost->flops;
}

/* The costs one after the other, and the number of one that is flops. */
enum { COST_MEMBERS = 3, COST_FLOPS = 2 };
_Static_assert(sizeof(hr_step_cost) == COST_MEMBERS * sizeof(int64_t), "three numbers");

/* Costs that are polynomials get their values. */
static void replace_costs(hr_plan *plan, const hr_plan_numbers *numbers) {
  int64_t *costs = (int64_t *)(void *)plan->costs, bytes = 0, flops = 0;
  for (size_t i = 0; i < numbers->estimates->count; ++i) {
    const hr_number_term *term = &numbers->estimates->data[i];
    if (term->value != HR_GENERAL_NO_VALUE && numbers->is_new[term->value]) {
      int64_t more = numbers->values[term->value] - costs[term->at];
      *(term->at % COST_MEMBERS == COST_FLOPS ? &flops : &bytes) += more;
      costs[term->at] += more;
    }
  }
  plan->bytes += bytes;
  plan->flops += flops;
}

/* Costs of the changed steps. Those of a kernel's arguments are not kept, unless they are counted. */
static void renew_costs(hr_plan *plan, const hr_plan_numbers *numbers, const bool *is_changed) {
  const hr_schedule *schedule = &plan->schedule;
  replace_costs(plan, numbers);
  for (int i = 0; i < schedule->step_count; ++i) {
    const hr_step *step = &schedule->steps[i];
    if (is_changed[i + 1] && numbers->is_counted[i]) {
      hr_schedule_count_traffic(schedule, step);
      recount_cost(plan, i);
    } else if (is_changed[i + 1] && step->kind == HR_STEP_KERNEL) {
      hr_kernel *kernel = (hr_kernel *)step->kernel;
      kernel->bytes = plan->costs[i].bytes_read + plan->costs[i].bytes_written;
      kernel->flops = plan->costs[i].flops;
    }
  }
}

hr_status hr__plan_renumber(hr_plan *plan, const hr_key *key, hr_device *device, hr_number_places *places,
                            const hr_plan_numbers *numbers, bool *out_changed) {
  hr_schedule *schedule = &plan->schedule;
  size_t steps = (size_t)schedule->step_count;
  HR_RETURN_IF_ERROR(hr_schedule_replace(schedule, places, numbers->values, numbers->is_new, out_changed));
  HR_RETURN_IF_ERROR(out_changed[steps + 1] ? check_declined(schedule, device) : HR_OK);
  renew_costs(plan, numbers, out_changed);
  return replace_key(plan, key);
}

bool *hr__plan_find_counted(const hr_plan *plan, const hr_number_terms *estimates) {
  bool *is_counted = hr_calloc((size_t)plan->schedule.step_count + 1, sizeof *is_counted);
  for (size_t i = 0; is_counted != NULL && i < estimates->count; ++i) {
    is_counted[estimates->data[i].at / COST_MEMBERS] |= estimates->data[i].value == HR_GENERAL_NO_VALUE;
  }
  return is_counted;
}

/* ---- sharing ---- */

static bool has_records_of(const hr_key *own, const hr_key *key) {
  return own->record_count == key->record_count && own->word_count == key->word_count &&
         own->local_count == key->local_count && own->buffer_count == key->buffer_count &&
         memcmp(own->words, key->words, key->word_count * sizeof *key->words) == 0 &&
         memcmp(own->locals, key->locals, key->local_count * sizeof *key->locals) == 0;
}

/* Words, numbers of buffers, and shapes. */
static bool has_lists_of(const hr_plan *plan, const hr_key *key) {
  const hr_key *own = &plan->key;
  if (plan->folded.words != NULL) {
    return own->record_count == key->record_count && hr__folded_key_fits(&plan->folded, key);
  }
  return (plan->key_changes.all != NULL ? hr__key_changes_fit(key_of_model(plan->model), &plan->key_changes, key)
                                        : has_records_of(own, key)) &&
         memcmp(own->shapes, key->shapes, key->buffer_count * sizeof *key->shapes) == 0;
}

bool hr__plan_fits(const hr_plan *plan, const hr_key *key) {
  const hr_key *own = &plan->key;
  return has_lists_of(plan, key) && own->threads == key->threads && (own->layouts == NULL) == (key->layouts == NULL) &&
         (key->layouts == NULL ||
          memcmp(own->layouts, key->layouts, 2 * key->buffer_count * sizeof *key->layouts) == 0);
}

/* Devices of one driver that have the same properties run the same programs. */
static bool is_of_kind(const hr_device_kind *kind, const hr_device *device) {
  const hr_device_properties *a = &kind->properties, *b = &device->properties;
  return kind->driver == device->driver && strcmp(a->description, b->description) == 0 && a->workers == b->workers &&
         a->block_bytes == b->block_bytes && a->is_host == b->is_host && a->has_contents == b->has_contents;
}

/* The plan of a key, retained, or NULL. The list is locked. */
static hr_plan *find_shared(const plans *own, const hr_key *key, const hr_device *device) {
  hr_plan *plan = hr_table_get(&own->table, key->hash);
  while (plan != NULL && (plan->will_settle || !is_of_kind(&plan->device_kind, device) || !hr__plan_fits(plan, key))) {
    plan = plan->next_same;
  }
  if (plan != NULL) {
    ++plan->reference_count;
  }
  return plan;
}

/* Adds a plan to the list; without memory for the list, the plan is its maker's alone. The list is locked. */
static void share(plans *own, hr_plan *plan) {
  plan->next_same = hr_table_get(&own->table, plan->key.hash);
  plan->is_shared = hr_table_put(&own->table, plan->key.hash, plan);
}

static void share_one(plans *own, hr_plan *plan) {
  hr_mutex_lock(&own->mutex);
  share(own, plan);
  hr_mutex_unlock(&own->mutex);
}

/* Removes a plan from the list. Nothing can fail: the slot exists, or its entry is removed. The list is locked. */
static void withdraw(plans *own, const hr_plan *plan) {
  hr_plan *first = hr_table_get(&own->table, plan->key.hash);
  if (first != plan) {
    while (first->next_same != plan) {
      first = first->next_same;
    }
    first->next_same = plan->next_same;
  } else if (plan->next_same != NULL) {
    (void)!hr_table_put(&own->table, plan->key.hash, plan->next_same);
  } else {
    hr_table_remove(&own->table, plan->key.hash);
    if (own->table.count == 0) {
      hr_table_fini(&own->table);
    }
  }
}

static void retain_locked(void *plan) {
  ++((hr_plan *)plan)->reference_count;
}

/* Nothing is learned from a plan that ends before a second one of its name. The list is locked. */
static void stop_waiting(hr_plan *plan) {
  hr_table *waiting = &plan->owner->waiting;
  if (plan->is_waiting && hr_table_get(waiting, plan->name) == plan) {
    hr_table_remove(waiting, plan->name);
    if (waiting->count == 0) {
      hr_table_fini(waiting);
    }
  }
  plan->is_waiting = false;
}

/* Drops a reference; true if it was the last. The list is locked. */
static bool drop(hr_plan *plan) {
  bool is_last = --plan->reference_count == 0;
  if (is_last) {
    stop_waiting(plan);
  }
  if (is_last && plan->is_shared) {
    withdraw(plan->owner, plan);
  }
  return is_last;
}

static void release_locked(void *plan) {
  if (drop(plan)) {
    destroy(plan);
  }
}

/* Keys of one structure have lists of the same lengths. */
static uint64_t hash_lengths(const hr_key *key, uint64_t kind) {
  const uint64_t words[] = {kind,
                            key->word_count,
                            key->record_count,
                            key->buffer_count,
                            key->local_count,
                            (uint64_t)(key->layouts != NULL),
                            (uint64_t)key->threads};
  return hr_hash_words(HR_HASH_SEED, words, sizeof words / sizeof *words);
}

hr_general_find hr__plan_find_model(hr_key *key, hr_device *device, int skipped, bool wants_all,
                                    hr_general_numbers *out_numbers, hr_plan **out_model) {
  plans *own = own_plans();
  void *model = NULL;
  if (own->keeps_nodes || hr_env_choice(HR_ENV_GENERAL_PLANS) == HR_ENV_GENERAL_PLANS_OFF ||
      hr_log_is_on(HR_LOG_PROGRAM) || hr__dump_is_on()) { /* the latter show what is compiled */
    return HR_GENERAL_UNKNOWN;
  }
  uint64_t kind = hash_kind(device);
  hr_mutex_lock(&own->mutex);
  bool may_be = hr_table_get(&own->waiting, hash_lengths(key, kind)) == &is_learned;
  hr_general_find found = may_be ? hr__generals_find(&own->generals, key, kind, skipped, wants_all, out_numbers, &model)
                                 : HR_GENERAL_UNKNOWN;
  if (found == HR_GENERAL_FOUND) {
    retain_locked(model);
  }
  hr_mutex_unlock(&own->mutex);
  *out_model = model;
  return found;
}

/* A plan from a general plan of the key's structure, or NULL: *out_refused if there is one. */
static hr_plan *find_general(hr_key *key, hr_device *device, bool *out_refused) {
  hr_general_numbers numbers = {0};
  hr_plan *model = NULL, *plan = NULL;
  hr_general_find found = HR_GENERAL_FOUND;
  for (int tried = 0; plan == NULL && found == HR_GENERAL_FOUND; ++tried) {
    found = hr__plan_find_model(key, device, tried, true, &numbers, &model);
    if (found == HR_GENERAL_FOUND) {
      plan = hr__plan_create_general(key, device, model, &numbers, NULL);
      hr__plan_release(model);
    }
  }
  hr__general_numbers_fini(&numbers);
  *out_refused = plan == NULL && found != HR_GENERAL_UNKNOWN;
  return plan;
}

/* The list is locked. */
static void close_model(hr_plan *plan) {
  hr__unpacked_schedule_destroy(plan->unpacked);
  hr_free(plan->model_words);
  plan->unpacked = NULL, plan->model_words = NULL;
}

/* The schedule of a settled plan; NULL when memory is out. */
static hr_unpacked_schedule *unpack(const hr_plan *plan) {
  return hr__packed_schedule_unpack(&plan->compiled, &plan->schedule,
                                    &(hr_step_args){.args = plan->args, .scalars = plan->scalars});
}

/* Unpacks a settled plan; false when memory is out. The list is locked. */
static bool open_model(hr_plan *plan) {
  if (!plan->is_settled || plan->unpacked != NULL) {
    return true;
  }
  plan->unpacked = unpack(plan);
  plan->model_key = plan->key;
  plan->model_words = hr__folded_key_unfold(&plan->folded, &plan->model_key);
  if (plan->unpacked == NULL || plan->model_words == NULL) {
    close_model(plan);
    return false;
  }
  return true;
}

/* Of a settled plan only a model stays unpacked. The list is locked. */
static void learn_now(plans *own, hr_plan *plan, uint64_t kind) {
  size_t steps = (size_t)plan->schedule.step_count;
  int references = plan->reference_count;
  bool is_model = plan->unpacked != NULL;
  int64_t *counts = open_model(plan) ? hr_malloc((steps + 1) * sizeof *counts) : NULL;
  hr_step_cost *unpacked =
      plan->packed_costs != NULL ? hr__step_costs_unpack(plan->schedule.step_count, plan->packed_costs) : NULL;
  const hr_step_cost *costs = plan->packed_costs != NULL ? unpacked : plan->costs;
  for (size_t i = 0; counts != NULL && i < steps; ++i) {
    counts[i] = indices_of(plan)[i].count;
  }
  if (counts != NULL && costs != NULL) {
    hr_key key = *key_of_model(plan);
    const hr_general_extras extras = {steps, COST_MEMBERS * steps, counts, (const int64_t *)(const void *)costs};
    hr__generals_learn(&own->generals, &key, kind, schedule_of(plan), &extras, plan);
  }
  hr_free(counts);
  hr_free(unpacked);
  if (!is_model && plan->reference_count == references) {
    close_model(plan);
  }
}

/* The plan waits under a name for a second one. True if there was one before: then `learn_from` is called with that
 * one, if it still waits. The list is locked. */
static bool meet(plans *own, hr_plan *plan, uint64_t name, uint64_t kind,
                 void (*learn_from)(plans *own, hr_plan *plan, uint64_t kind)) {
  enum { NAMES_MAX = 1024 };
  hr_plan *waiting = hr_table_get(&own->waiting, name);
  if (waiting == NULL) {
    if (own->waiting.count >= NAMES_MAX) {
      hr_table_clear(&own->waiting);
    }
    plan->name = name;
    plan->is_waiting = hr_table_put(&own->waiting, name, plan);
  } else if ((void *)waiting != &is_learned) {
    waiting->is_waiting = false;
    (void)!hr_table_put(&own->waiting, name, (void *)&is_learned); /* in its slot */
    learn_from(own, waiting, kind);
  }
  return waiting != NULL;
}

/* 0: memory is out. */
static uint64_t structure_of(hr_plan *plan) {
  if (plan->folded.words == NULL) {
    return hr__key_structure(&plan->key);
  }
  hr_key key = plan->key;
  uint64_t *words = hr__folded_key_unfold(&plan->folded, &key);
  uint64_t structure = words != NULL ? hr__key_structure(&key) : 0;
  hr_free(words);
  return structure;
}

/* Lists of the same lengths may differ in structure, as packed sequences do. The list is locked. */
static void learn_structure(plans *own, hr_plan *plan, uint64_t kind) {
  uint64_t structure = structure_of(plan);
  if (structure != 0 && meet(own, plan, hr_hash_mix(structure, kind), kind, learn_now)) {
    learn_now(own, plan, kind);
  }
}

/* Most programs keep their dims, and nothing has to be learned from them: the first plan waits for a second one of the
 * same structure. Structures are compared if lengths are equal. The list is locked. */
static void learn(plans *own, hr_plan *plan, const hr_device *device) {
  bool may_vary = !plan->schedule.is_refused && !plan->schedule.program.has_rounds;
  if (own->keeps_nodes || !may_vary || hr_env_choice(HR_ENV_GENERAL_PLANS) == HR_ENV_GENERAL_PLANS_OFF) {
    return;
  }
  uint64_t kind = hash_kind(device);
  if (meet(own, plan, hash_lengths(&plan->key, kind), kind, learn_structure)) {
    learn_structure(own, plan, kind);
  }
}

/* A model is not settled: it is copied again and again. */
static hr_status keep_model(hr_plan *plan) {
  plan->will_settle = false;
  hr_status status = plan->is_compact ? HR_OK : hr_schedule_compact(&plan->schedule);
  count_footprint(plan);
  return status;
}

/* A settled plan as one that an instance can be made of: another one. Releases the plan. NULL: there is no memory. */
static hr_plan *reopen(hr_plan *from, const hr_key *key, hr_device *device) {
  hr_plan *plan = NULL;
  hr_unpacked_schedule *unpacked = unpack(from);
  hr_status status = unpacked != NULL ? begin(key, device, &plan) : no_memory("a program");
  if (status == HR_OK) {
    plan->owner = from->owner;
    plan->schedule = unpacked->schedule, plan->indices = unpacked->indices;
    *unpacked = (hr_unpacked_schedule){0};
    plan->takes_memory = from->takes_memory, plan->was_refused = from->was_refused;
    plan->will_settle = true;
    status = count_costs(plan);
    status = status == HR_OK ? copy_writes(from, plan) : status;
  }
  hr__unpacked_schedule_destroy(unpacked);
  if (status != HR_OK && plan != NULL) {
    destroy(plan);
    plan = NULL;
  }
  hr_status_ignore(status);
  hr__plan_release(from);
  if (plan != NULL) {
    count_footprint(plan);
  }
  return plan;
}

hr_status hr__plan_acquire(const hr_key *key, hr_device *device, const hr_scalar *arguments, hr_plan **out_plan,
                           bool *out_is_new) {
  plans *own = own_plans();
  hr_key hashed = *key;
  hr__key_hash(&hashed);
  hr_mutex_lock(&own->mutex);
  hr_plan *plan = find_shared(own, &hashed, device);
  hr_mutex_unlock(&own->mutex);
  if (plan != NULL && plan->is_settled) {
    plan = reopen(plan, &hashed, device);
    if (plan != NULL) {
      share_one(own, plan);
    }
  }
  *out_is_new = plan == NULL;
  if (plan == NULL) { /* two streams may compile the same; both plans are right */
    bool was_refused;
    plan = find_general(&hashed, device, &was_refused);
    bool is_general = plan != NULL;
    if (!is_general) {
      HR_RETURN_IF_ERROR(create(&hashed, device, arguments, &plan));
      plan->was_refused = was_refused;
    }
    plan->owner = own;
    if (!is_general) {
      hr_mutex_lock(&own->mutex);
      share(own, plan);
      learn(own, plan, device);
      hr_status status = plan->will_settle && plan->reference_count > 1 ? keep_model(plan) : HR_OK;
      hr_mutex_unlock(&own->mutex);
      if (status != HR_OK) {
        hr__plan_release(plan);
        return status;
      }
    }
  }
  *out_plan = plan;
  return HR_OK;
}

void hr__plans_keep_nodes(void) {
  plans *own = own_plans();
  hr_mutex_lock(&own->mutex);
  own->keeps_nodes = true;
  hr_mutex_unlock(&own->mutex);
}

void hr__plan_release(hr_plan *plan) {
  if (plan == NULL) {
    return;
  }
  plans *own = plan->owner;
  hr_mutex_lock(&own->mutex);
  bool is_last = drop(plan);
  hr_mutex_unlock(&own->mutex);
  if (is_last) {
    destroy(plan);
  }
}
