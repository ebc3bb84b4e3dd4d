#include "engine/general_instance.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/table.h"
#include "engine/instantiate.h"
#include "engine/prepare_steps.h"
#include "engine/run_description.h"
#include "engine/weights.h"

enum { SIGHTINGS = 4096, COUNT_MASK = 7, OWN_FROM = 2, OWN_FROM_BESIDE = 1, OWN_FROM_FULL = 7 };
_Static_assert(OWN_FROM_FULL <= COUNT_MASK, "the count has room");

static void count_bytes(const hr_general_instances *instances, hr_general_instance *g, int64_t bytes) {
  atomic_fetch_add_explicit(instances->total, bytes - g->bytes, memory_order_relaxed);
  g->bytes = bytes;
}

static void fini(const hr_general_instances *instances, hr_general_instance *g) {
  count_bytes(instances, g, 0);
  hr__instance_release(g->instance);
  hr__plan_release(g->model);
  hr_vector_fini(&g->values);
  hr_vector_fini(&g->places.all);
  hr_vector_fini(&g->estimates);
  hr_free(g->is_counted);
  hr_free(g->is_changed);
  hr_free(g->like);
  hr_free(g->same);
  hr_free(g->varies);
  hr_free(g->summaries);
  hr_free(g->may_be_weights);
  *g = (hr_general_instance){0};
}

void hr__general_instances_fini(hr_general_instances *instances) {
  for (size_t i = 0; i < instances->count; ++i) {
    fini(instances, &instances->all[i]);
  }
  hr_free(instances->sightings);
  hr__general_numbers_fini(&instances->spare);
  *instances = (hr_general_instances){.total = instances->total};
}

/* True if the key was met at least `least` times before, the last time at most `reach` programs ago. A key may be
 * forgotten for another one. */
static bool sight(hr_general_instances *instances, uint64_t hash, uint32_t least, uint32_t now, uint32_t reach) {
  if (instances->sightings == NULL) {
    instances->sightings = hr_calloc(SIGHTINGS, sizeof *instances->sightings);
  }
  if (instances->sightings == NULL) {
    return false;
  }
  hr_sighting *known = &instances->sightings[hash % SIGHTINGS];
  uint32_t name = (uint32_t)(hash >> 32) & ~(uint32_t)COUNT_MASK;
  uint32_t times = (known->name & ~(uint32_t)COUNT_MASK) == name ? known->name & COUNT_MASK : 0;
  bool is_often = times >= least && now - known->last_use <= reach;
  uint32_t more = times < COUNT_MASK ? times + 1 : times;
  *known = (hr_sighting){name | (!is_often ? more : least == OWN_FROM_FULL ? 0 : times), now};
  return is_often;
}

/* A device beside the host gains more from an instance of the key's own: graphs, and kernels for these dims. */
static uint32_t own_from(const hr_device *device, bool has_room) {
  return !device->properties.is_host ? OWN_FROM_BESIDE : has_room ? OWN_FROM : OWN_FROM_FULL;
}

/* ---- making one ---- */

/* The numbers of a schedule's parts. Of those that vary, `all` names the value. */
typedef struct part_numbers {
  size_t *first;
  int64_t *all;
  bool *varies;
} part_numbers;

static void part_numbers_fini(part_numbers *n) {
  hr_free(n->first);
  hr_free(n->all);
  hr_free(n->varies);
}

static bool part_numbers_make(const hr_schedule *schedule, const hr_general_numbers *numbers, part_numbers *out) {
  size_t count = numbers->all.count;
  out->first = hr_malloc((hr_schedule_part_count(schedule) + 1) * sizeof *out->first);
  out->all = hr_malloc((count + 1) * sizeof *out->all);
  out->varies = hr_calloc(count + 1, sizeof *out->varies);
  if (out->first == NULL || out->all == NULL || out->varies == NULL || !hr_schedule_find_parts(schedule, out->first)) {
    return false;
  }
  memcpy(out->all, numbers->all.data, count * sizeof *out->all);
  for (size_t i = 0; i < numbers->terms.count; ++i) {
    const hr_number_term *term = &numbers->terms.data[i];
    out->all[term->at] = INT64_MIN + (int64_t)term->value; /* no number that is used: hashes differ, too */
    out->varies[term->at] = true;
  }
  return true;
}

static bool are_equal(const part_numbers *n, int a, int b) {
  size_t at = n->first[a + 1], other = n->first[b + 1], count = n->first[a + 2] - at;
  return count == n->first[b + 2] - other && memcmp(n->all + at, n->all + other, count * sizeof *n->all) == 0 &&
         memcmp(n->varies + at, n->varies + other, count * sizeof *n->varies) == 0;
}

/* For each step, the first one whose numbers are the same for all dims. */
static bool find_same(const part_numbers *n, int step_count, int *out_same) {
  hr_table first = {0}; /* steps from 1 on, by the hash of their numbers */
  bool ok = true;
  for (int i = 0; ok && i < step_count; ++i) {
    size_t at = n->first[i + 1];
    uint64_t hash = hr_hash_words(HR_HASH_SEED, (const uint64_t *)n->all + at, n->first[i + 2] - at);
    uintptr_t known = (uintptr_t)hr_table_get(&first, hash);
    out_same[i] = known != 0 && are_equal(n, i, (int)known - 1) ? (int)known - 1 : i;
    ok = known != 0 || hr_table_put(&first, hash, (void *)((uintptr_t)i + 1));
  }
  hr_table_fini(&first);
  return ok;
}

/* Also of the part behind the steps: the declined nodes. */
static void find_varying(hr_general_instance *g, int step_count) {
  for (size_t i = 0; i < g->places.all.count; ++i) {
    uint32_t part = g->places.all.data[i].part;
    if (part > 0 && part <= (uint32_t)step_count + 1) {
      g->varies[part - 1] = true;
    }
  }
}

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the steps of a general plan");
}

static hr_status find_steps(hr_general_instance *g, const hr_schedule *schedule, const hr_general_numbers *numbers) {
  size_t count = hr_schedule_part_count(schedule);
  part_numbers n = {0};
  g->is_changed = hr_calloc(2 * count + numbers->values.count, sizeof *g->is_changed);
  g->like = hr_calloc(count, sizeof *g->like);
  g->same = hr_calloc(count, sizeof *g->same);
  g->varies = hr_calloc(count, sizeof *g->varies);
  g->summaries = hr_calloc(count, sizeof *g->summaries);
  g->may_be_weights = hr__weights_find_candidates(g->instance);
  bool ok = g->is_changed != NULL && g->like != NULL && g->same != NULL && g->varies != NULL && g->summaries != NULL &&
            g->may_be_weights != NULL && part_numbers_make(schedule, numbers, &n) &&
            find_same(&n, schedule->step_count, g->same) && hr__steps_find_like(g->instance, g->like);
  part_numbers_fini(&n);
  if (ok) {
    find_varying(g, schedule->step_count);
  }
  return ok ? HR_OK : no_memory();
}

/* Takes over the values and the reference to the model, also when it fails. */
static hr_status create(const hr_key *key, hr_device *device, hr_plan *model, hr_general_numbers *numbers,
                        hr_general_instance *out) {
  *out = (hr_general_instance){.model = model, .serial = numbers->serial};
  hr_plan *plan = hr__plan_create_general(key, device, model, numbers, &out->places);
  if (plan == NULL) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "general plan: none for these dims");
  }
  HR_RETURN_IF_ERROR(hr__instance_create_of(plan, device, &out->instance));
  HR_RETURN_IF_ERROR(find_steps(out, &plan->schedule, numbers));
  out->is_counted = hr__plan_find_counted(plan, &numbers->estimates);
  out->values = numbers->values, out->estimates = numbers->estimates;
  numbers->values = (hr_numbers){0}, numbers->estimates = (hr_number_terms){0};
  return out->is_counted != NULL ? HR_OK : no_memory();
}

/* The place for one more: free, or that of the one whose last use is longest ago. */
static hr_general_instance *make_room(hr_general_instances *instances) {
  if (instances->count < HR_GENERAL_INSTANCES_MAX) {
    return &instances->all[instances->count++];
  }
  hr_general_instance *oldest = &instances->all[0];
  for (size_t i = 1; i < instances->count; ++i) {
    oldest = instances->all[i].last_use < oldest->last_use ? &instances->all[i] : oldest;
  }
  fini(instances, oldest);
  return oldest;
}

static void drop(hr_general_instances *instances, hr_general_instance *g) {
  fini(instances, g);
  *g = instances->all[--instances->count];
  instances->all[instances->count] = (hr_general_instance){0};
}

void hr__general_instances_trim(hr_general_instances *instances) {
  for (size_t i = instances->count; i-- > 0;) {
    if (instances->uses_at_trim == 0 || instances->all[i].last_use <= instances->uses_at_trim) {
      drop(instances, &instances->all[i]);
    }
  }
  instances->uses_at_trim = instances->uses;
  hr__general_numbers_fini(&instances->spare);
}

/* ---- new numbers ---- */

/* On a device beside the host, most of the time of new dims is that of the texts of kernels, by which their numbers are
 * found. If nearly all steps change, an instance of the key's own costs hardly more, and serves the key again. */
static bool is_dear(const hr_general_instance *g, const hr_device *device) {
  int steps = g->instance->step_count, changed = 0;
  for (int i = 0; i < steps; ++i) {
    changed += g->is_changed[i + 1];
  }
  return !device->properties.is_host && 3 * changed > 2 * steps;
}

static hr_status renumber(hr_general_instance *g, const hr_key *key, hr_device *device, hr_numbers *values) {
  hr_instance *instance = g->instance;
  size_t parts = hr_schedule_part_count(&instance->plan->schedule);
  bool *is_done = g->is_changed + parts, *is_new = is_done + parts;
  hr__run_description_forget(instance);
  hr__steps_fetch(instance, g->varies);
  for (size_t i = 0; i < values->count; ++i) {
    is_new[i] = values->data[i] != g->values.data[i];
  }
  const hr_plan_numbers numbers = {values->data, is_new, &g->estimates, g->is_counted};
  HR_RETURN_IF_ERROR(hr__plan_renumber(instance->plan, key, device, &g->places, &numbers, g->is_changed));
  hr_numbers before = g->values;
  g->values = *values;
  *values = before;
  g->is_dear = is_dear(g, device);
  const hr_step_numbers changes = {.is_changed = g->is_changed + 1,
                                   .is_done = is_done,
                                   .varies = g->varies,
                                   .like = g->like,
                                   .same = g->same,
                                   .may_all_differ = !g->has_summaries || g->places.were_moved,
                                   .summaries = g->summaries};
  HR_RETURN_IF_ERROR(hr__steps_prepare_changed(instance, device, &changes));
  g->has_summaries = true;
  hr__weights_fini(instance);
  return hr__weights_find(instance, g->may_be_weights)
             ? HR_OK
             : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for weights");
}

/* One of the general plan's that no run holds, or NULL. */
static hr_general_instance *find_idle(hr_general_instances *instances, uint64_t serial) {
  hr_general_instance *found = NULL;
  for (size_t i = 0; found == NULL && i < instances->count; ++i) {
    hr_general_instance *g = &instances->all[i];
    found = g->serial == serial && hr_refcount_is_one(&g->instance->refcount) ? g : NULL;
  }
  return found;
}

/* The instance that was made or renumbered; NULL if that failed: it is dropped. */
static hr_general_instance *unless_failed(hr_general_instances *instances, hr_general_instance *g, hr_status status) {
  if (status == HR_OK) {
    return g;
  }
  hr_log(HR_LOG_DEVICE, "%s", hr_status_message(status));
  hr_status_ignore(status);
  drop(instances, g);
  return NULL;
}

/* A new one for the key, of the general plan that comes after `skipped` others. */
static hr_general_instance *make_one(hr_general_instances *instances, hr_key *key, hr_device *device, int skipped) {
  hr_plan *model = NULL;
  if (hr__plan_find_model(key, device, skipped, true, &instances->spare, &model) != HR_GENERAL_FOUND) {
    return NULL;
  }
  hr_general_instance *g = make_room(instances);
  return unless_failed(instances, g, create(key, device, model, &instances->spare, g));
}

/* The idle instance with new numbers; NULL: a guard refuses them. */
static hr_general_instance *number_one(hr_general_instances *instances, const hr_key *key, hr_device *device,
                                       hr_general_instance *g) {
  return unless_failed(instances, g, renumber(g, key, device, &instances->spare.values));
}

/* The first general plan that no guard refuses; NULL: there is none, or the key is better off with its own instance. */
static hr_general_instance *find_one(hr_general_instances *instances, hr_key *key, hr_device *device) {
  hr_general_instance *g = NULL;
  hr_plan *model = NULL;
  for (int tried = 0;
       g == NULL && hr__plan_find_model(key, device, tried, false, &instances->spare, &model) == HR_GENERAL_FOUND;
       ++tried) {
    hr_general_instance *idle = find_idle(instances, instances->spare.serial);
    hr__plan_release(model);
    if (idle != NULL && idle->is_dear) {
      return NULL;
    }
    g = idle != NULL ? number_one(instances, key, device, idle) : make_one(instances, key, device, tried);
  }
  return g;
}

hr_instance *hr__general_instance_find(hr_general_instances *instances, hr_key *key, hr_device *device, uint32_t now,
                                       uint32_t reach) {
  if (sight(instances, key->hash, own_from(device, reach == UINT32_MAX), now, reach)) {
    return NULL;
  }
  hr_general_instance *g = find_one(instances, key, device);
  if (g == NULL) {
    return NULL;
  }
  count_bytes(instances, g, (int64_t)(g->instance->footprint + g->places.all.capacity * sizeof *g->places.all.data));
  g->last_use = ++instances->uses;
  return g->instance;
}
