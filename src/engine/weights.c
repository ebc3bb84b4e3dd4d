#include "engine/weights.h"

#include <string.h>

#include "base/integer.h"
#include "core/ops/op.h"

/* A large result is cached to save its traffic, from BYTES_MIN on; a small one of small buffers to save its launch. */
enum { BYTES_MIN = 1 << 15, SMALL_BYTES_MAX = 1 << 16, ALIGNMENT = 64 };
/* Behind the kernel's words: contents and scalars, then the serials of cached parts. */
enum { SCALARS_MAX = 4, SCALAR_WORDS = 3, OWN_WORDS = HR_WEIGHT_SOURCES_MAX + SCALARS_MAX * SCALAR_WORDS };
enum { TAIL_WORDS = OWN_WORDS + HR_WEIGHT_SOURCES_MAX };

/* ---- finding them ---- */

static size_t bytes_of(const hr_instance *instance, uint32_t buffer) {
  return instance->plan->schedule.program.buffers[buffer].bytes;
}

/* The known weight that makes the buffer; -1: none does. */
static int maker_of(const hr_instance *instance, uint32_t buffer) {
  for (size_t i = 0; i < instance->weights.count; ++i) {
    const hr_weight *w = &instance->weights.data[i];
    for (int j = 0; j < w->made_count; ++j) {
      if (w->made[j] == buffer) {
        return (int)i;
      }
    }
  }
  return -1;
}

static bool add_part(hr_weight *w, int part) {
  for (int i = 0; i < w->part_count; ++i) {
    if (w->parts[i] == part) {
      return true;
    }
  }
  if (w->part_count == HR_WEIGHT_SOURCES_MAX) {
    return false;
  }
  w->parts[w->part_count++] = part;
  return true;
}

/* True for a buffer of the key whose contents are those of before the run. */
static bool has_contents(const hr_instance *instance, uint32_t buffer) {
  const hr_plan *plan = instance->plan;
  return buffer < plan->key.buffer_count && !hr__plan_writes(plan, buffer) &&
         !plan->schedule.program.buffers[buffer].is_fresh;
}

static bool add_source(const hr_instance *instance, hr_weight *w, uint32_t buffer) {
  int maker = maker_of(instance, buffer);
  if (maker >= 0) {
    return add_part(w, maker);
  }
  if (!has_contents(instance, buffer) || w->source_count == HR_WEIGHT_SOURCES_MAX) {
    return false;
  }
  w->sources[w->source_count++] = buffer;
  return true;
}

static bool add_made(const hr_instance *instance, hr_weight *w, uint32_t buffer) {
  if (w->made_count == HR_WEIGHT_RESULTS_MAX || instance->plan->schedule.places[buffer].kind != HR_PLACE_ARENA) {
    return false;
  }
  w->places[w->made_count] = w->bytes;
  w->made[w->made_count++] = buffer;
  w->bytes += hr_align_up(bytes_of(instance, buffer), ALIGNMENT);
  return true;
}

/* Divides the kernel's arguments into inputs and results; false if there are others, or too many. */
static bool find_ends(const hr_instance *instance, const hr_kernel *kernel, hr_weight *w) {
  bool is = kernel->scalar_count <= SCALARS_MAX;
  for (int i = 0; is && i < kernel->arg_count; ++i) {
    const hr_kernel_arg *arg = &kernel->args[i];
    is = !arg->is_read ? add_made(instance, w, arg->buffer) : !arg->is_written && add_source(instance, w, arg->buffer);
  }
  return is && w->source_count + w->part_count > 0 && w->made_count > 0;
}

static bool is_small(const hr_instance *instance, uint32_t buffer) {
  return bytes_of(instance, buffer) <= SMALL_BYTES_MAX;
}

static bool reads_as_weights(const hr_node *node, uint32_t buffer) {
  for (int i = 0; i < node->input_count; ++i) {
    if (i != 1 && node->inputs[i].kind == HR_OPERAND_VALUE && node->inputs[i].index == buffer) {
      return false;
    }
  }
  return (hr_op_table(node->op)->traits & HR_TRAIT_WEIGHTS) != 0;
}

static bool touches(const hr_instance *instance, const hr_exec_step *step, uint32_t buffer) {
  bool does = false;
  for (int i = 0; i < hr__step_arg_count(step); ++i) {
    does |= hr_narrow_at(instance->args, step->arg_first + (size_t)i) == hr__arg_of_buffer(buffer);
  }
  return does;
}

static bool writes(const hr_instance *instance, const hr_exec_step *step, uint32_t buffer) {
  bool does = false;
  const hr_kernel *kernel = hr__step_source(instance, step)->kernel;
  for (int i = 0; step->kind == HR_STEP_KERNEL && i < kernel->arg_count; ++i) {
    does |= kernel->args[i].buffer == buffer && kernel->args[i].is_written;
  }
  const hr_node *node = hr__step_source(instance, step)->node;
  for (int i = 0; step->kind == HR_STEP_LIBRARY && i < node->output_count; ++i) {
    does |= node->outputs[i].kind == HR_OPERAND_VALUE && node->outputs[i].index == buffer;
  }
  return does;
}

/* True if no other step writes the result, and, if it must serve as weights, only contractions read it, as such. */
static bool is_only_read(const hr_instance *instance, const hr_weight *w, uint32_t buffer, bool by_contractions) {
  const hr_place *place = &instance->plan->schedule.places[buffer];
  bool is = true;
  for (int i = place->first; is && i <= place->last; ++i) { /* no other step touches it */
    const hr_exec_step *step = &instance->steps[i];
    if (i != w->step && touches(instance, step, buffer)) {
      is = !writes(instance, step, buffer) &&
           (!by_contractions ||
            (step->kind == HR_STEP_LIBRARY && reads_as_weights(hr__step_source(instance, step)->node, buffer)));
    }
  }
  return is;
}

static bool is_worth_keeping(const hr_instance *instance, const hr_weight *w) {
  bool is = w->bytes >= BYTES_MIN, is_all_small = w->bytes <= SMALL_BYTES_MAX;
  for (int i = 0; i < w->source_count; ++i) {
    is_all_small = is_all_small && is_small(instance, w->sources[i]);
  }
  is = is || is_all_small;
  for (int i = 0; is && i < w->made_count; ++i) {
    is = is_only_read(instance, w, w->made[i], !is_all_small && !is_small(instance, w->made[i]));
  }
  return is;
}

/* The key of the kernel as whole words, and room for its inputs. */
static bool begin_recipe(const hr_kernel *kernel, hr_weight *w) {
  hr_kernel_key key = {0};
  bool ok = hr_kernel_make_key(kernel, &key);
  w->kernel_words = (key.count + sizeof *w->recipe.data - 1) / sizeof *w->recipe.data;
  ok = ok && hr_vector_reserve(&w->recipe, w->kernel_words + TAIL_WORDS);
  if (ok) {
    w->recipe.count = w->kernel_words + TAIL_WORDS;
    memset(w->recipe.data, 0, w->recipe.count * sizeof *w->recipe.data);
    memcpy(w->recipe.data, key.data, key.count);
  }
  hr_vector_fini(&key);
  return ok;
}

static bool note(hr_instance *instance, const hr_weight *w) {
  bool ok = true;
  for (int i = 0; ok && i < w->source_count; ++i) {
    ok = hr_vector_push(&instance->sources, w->sources[i]);
  }
  ok = ok && hr_vector_push(&instance->weights, *w);
  if (!ok) {
    return false;
  }
  instance->steps[w->step].weight = (int)instance->weights.count - 1;
  return begin_recipe(hr__step_source(instance, &instance->steps[w->step])->kernel,
                      &instance->weights.data[instance->weights.count - 1]);
}

/* True if the kernel makes temporaries of buffers that have contents and of those that candidates make. */
static bool is_candidate(const hr_instance *instance, const hr_kernel *kernel, const bool *is_made) {
  bool is = kernel->scalar_count <= SCALARS_MAX;
  for (int i = 0; is && i < kernel->arg_count; ++i) {
    const hr_kernel_arg *arg = &kernel->args[i];
    is = arg->is_read ? !arg->is_written && (is_made[arg->buffer] || has_contents(instance, arg->buffer))
                      : instance->plan->schedule.places[arg->buffer].kind == HR_PLACE_ARENA;
  }
  return is;
}

bool *hr__weights_find_candidates(const hr_instance *instance) {
  size_t steps = (size_t)instance->step_count, buffers = (size_t)instance->plan->schedule.program.buffer_count;
  bool *may_be = hr_calloc(steps + buffers + 1, sizeof *may_be);
  bool *is_made = may_be != NULL ? may_be + steps : NULL;
  for (size_t i = 0; may_be != NULL && i < steps; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    const hr_kernel *kernel = step->kind == HR_STEP_KERNEL ? hr__step_source(instance, step)->kernel : NULL;
    may_be[i] = kernel != NULL && is_candidate(instance, kernel, is_made);
    for (int a = 0; may_be[i] && a < kernel->arg_count; ++a) {
      is_made[kernel->args[a].buffer] |= kernel->args[a].is_written;
    }
  }
  return may_be;
}

bool hr__weights_find(hr_instance *instance, const bool *may_be) {
  bool ok = true;
  for (int i = 0; ok && i < instance->step_count; ++i) {
    if (may_be != NULL && !may_be[i]) {
      continue;
    }
    hr_exec_step *step = &instance->steps[i];
    hr_weight w = {.step = i};
    step->weight = -1;
    if (step->kind == HR_STEP_KERNEL && find_ends(instance, hr__step_source(instance, step)->kernel, &w) &&
        is_worth_keeping(instance, &w)) {
      ok = note(instance, &w);
    }
  }
  return ok;
}

void hr__weights_fini(hr_instance *instance) {
  for (size_t i = 0; i < instance->weights.count; ++i) {
    hr_vector_fini(&instance->weights.data[i].recipe);
  }
  hr_vector_fini(&instance->weights);
}

/* ---- runs ---- */

/* The newest of the stamps: it changes whenever one of the others does. 0: some contents are unknown. */
static uint64_t find_stamps(const hr_instance *instance, const hr_weight *w, const hr_run *run, uint64_t *out_stamps) {
  uint64_t newest = 0;
  bool is_known = run->stamps != NULL || w->source_count == 0;
  for (int i = 0; is_known && i < w->source_count; ++i) {
    out_stamps[i] = run->stamps[w->sources[i]];
    is_known = out_stamps[i] != 0;
    newest = out_stamps[i] > newest ? out_stamps[i] : newest;
  }
  for (int i = 0; is_known && i < w->part_count; ++i) {
    uint64_t stamp = instance->weights.data[w->parts[i]].stamp;
    is_known = stamp != 0;
    newest = stamp > newest ? stamp : newest;
  }
  return is_known ? newest : 0;
}

/* Updates the contents and scalars in the recipe; true if they are unchanged. */
static bool renew_own(const hr_instance *instance, hr_weight *w, const hr_run *run, const hr_run_scratch *scratch) {
  const hr_exec_step *step = &instance->steps[w->step];
  uint64_t own[OWN_WORDS] = {0}, *at = w->recipe.data + w->kernel_words;
  w->stamp = find_stamps(instance, w, run, own);
  for (int i = 0; i < hr__step_scalar_count(step); ++i) {
    const hr_scalar *scalar = &scratch->values.data[hr_narrow_at(instance->scalars, step->scalar_first + (size_t)i)];
    uint64_t *words = own + HR_WEIGHT_SOURCES_MAX + i * SCALAR_WORDS;
    words[0] = (uint64_t)scalar->dtype;
    memcpy(words + 1, &scalar->value, sizeof scalar->value);
  }
  bool is_same = memcmp(at, own, sizeof own) == 0;
  memcpy(at, own, sizeof own);
  return is_same;
}

/* Updates its parts; true if all of them are cached. */
static bool renew_parts(hr_weight *w, const hr_run_scratch *scratch) {
  uint64_t *at = w->recipe.data + w->kernel_words + OWN_WORDS;
  bool are_kept = true;
  for (int i = 0; i < w->part_count; ++i) {
    const hr_cached_weights *part = scratch->weights.data[w->parts[i]].cached_weights;
    are_kept &= part != NULL;
    at[i] = part != NULL ? hr__cached_weights_serial(part) : 0;
  }
  return are_kept;
}

/* Notes the run's use of a cached weight, and lets the run follow other lanes' uses before. A new one is dropped if its
 * memory is still in use by jobs that have not ended, which may follow this one. */
static void note_use(const hr_run *run, hr_run_weight *found) {
  hr_tickets before = {{0}};
  if (found->cached_weights == NULL || !hr__device_runs_later(run->device)) {
    return;
  }
  hr__cached_weights_use(found->cached_weights, run->lane, run->ticket, found->is_new, &before);
  if (found->is_new && !hr__tickets_are_reached(run->device, &before)) {
    hr__cached_weights_release(found->cached_weights);
    *found = (hr_run_weight){0};
  } else {
    hr__lane_follow_here(run->lane, &before);
  }
}

/* The cached weight, or the one that this run will make: if the last run had the same contents and scalars. */
static hr_run_weight find_cached(const hr_instance *instance, hr_weight *w, const hr_run *run,
                                 const hr_run_scratch *scratch) {
  bool is_seen = renew_own(instance, w, run, scratch);
  hr_run_weight found = {0};
  if (w->stamp == 0 || !renew_parts(w, scratch)) {
    return found;
  }
  found.cached_weights = hr__cached_weights_find(w->stamp, w->recipe.data, w->recipe.count);
  if (found.cached_weights == NULL && is_seen) {
    found.cached_weights = hr__cached_weights_create(run->device, w->stamp, w->recipe.data, w->recipe.count, w->bytes);
    found.is_new = found.cached_weights != NULL;
  }
  note_use(run, &found);
  return found;
}

bool hr__weights_bind(const hr_instance *instance, const hr_run *run, hr_run_scratch *scratch) {
  bool has_new = false;
  for (size_t i = 0; i < instance->weights.count; ++i) {
    hr_weight *w = &instance->weights.data[i];
    const hr_run_weight found = scratch->weights.data[i] = find_cached(instance, w, run, scratch);
    char *at = found.cached_weights != NULL ? hr__cached_weights_data(found.cached_weights) : NULL;
    for (int j = 0; at != NULL && j < w->made_count; ++j) {
      scratch->addresses.data[w->made[j]] = at + w->places[j];
    }
    has_new |= found.is_new;
  }
  return has_new;
}

void hr__weights_unbind(const hr_instance *instance, hr_run_scratch *scratch, bool succeeded) {
  for (size_t i = 0; i < instance->weights.count; ++i) {
    hr_run_weight *found = &scratch->weights.data[i];
    if (found->is_new && succeeded) {
      hr__cached_weights_publish(found->cached_weights);
    }
    hr__cached_weights_release(found->cached_weights);
    *found = (hr_run_weight){0};
  }
}
