#include "engine/general_instance.h"

#include "base/log.h"
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
  hr_vector_fini(&g->numbers);
  hr_free(g->parts);
  hr_free(g->is_changed);
  hr_free(g->like);
  *g = (hr_general_instance){0};
}

void hr__general_instances_fini(hr_general_instances *instances) {
  for (size_t i = 0; i < instances->count; ++i) {
    fini(instances, &instances->all[i]);
  }
  hr_free(instances->sightings);
  hr_vector_fini(&instances->spare);
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

static hr_status find_parts(hr_general_instance *g, const hr_schedule *schedule) {
  size_t count = hr_schedule_part_count(schedule);
  g->parts = hr_calloc(count + 1, sizeof *g->parts);
  g->is_changed = hr_calloc(2 * count, sizeof *g->is_changed);
  g->like = hr_calloc(count, sizeof *g->like);
  if (g->parts == NULL || g->is_changed == NULL || g->like == NULL || !hr_schedule_find_parts(schedule, g->parts) ||
      !hr__steps_find_like(g->instance, g->like)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the parts of a general plan");
  }
  return HR_OK;
}

/* Takes over the numbers and the reference to the model, also when it fails. */
static hr_status create(const hr_key *key, hr_device *device, hr_plan *model, hr_numbers *numbers,
                        hr_general_instance *out) {
  *out = (hr_general_instance){.model = model, .numbers = *numbers};
  *numbers = (hr_numbers){0};
  hr_plan *plan = hr__plan_create_general(key, device, model, &out->numbers);
  if (plan == NULL) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "general plan: none for these dims");
  }
  HR_RETURN_IF_ERROR(hr__instance_create_of(plan, device, &out->instance));
  return find_parts(out, &plan->schedule);
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
  hr_vector_fini(&instances->spare);
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

static hr_status renumber(hr_general_instance *g, const hr_key *key, hr_device *device, hr_numbers *numbers) {
  hr_instance *instance = g->instance;
  hr__run_description_forget(instance);
  HR_RETURN_IF_ERROR(hr__plan_renumber(instance->plan, key, device, g->parts, &g->numbers, numbers, g->is_changed));
  hr_numbers before = g->numbers;
  g->numbers = *numbers;
  *numbers = before;
  bool *is_done = g->is_changed + hr_schedule_part_count(&instance->plan->schedule);
  g->is_dear = is_dear(g, device);
  const hr_step_numbers changes = {g->is_changed + 1, is_done, g->like, g->parts + 1, g->numbers.data};
  HR_RETURN_IF_ERROR(hr__steps_prepare_changed(instance, device, &changes));
  hr__weights_fini(instance);
  return hr__weights_find(instance) ? HR_OK
                                    : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for weights");
}

/* One of the model's that no run holds, or NULL. */
static hr_general_instance *find_idle(hr_general_instances *instances, const hr_plan *model) {
  hr_general_instance *found = NULL;
  for (size_t i = 0; found == NULL && i < instances->count; ++i) {
    hr_general_instance *g = &instances->all[i];
    found = g->model == model && hr_refcount_is_one(&g->instance->refcount) ? g : NULL;
  }
  return found;
}

/* The idle instance with these numbers, or a new one; NULL: the key is better off with its own, or a guard refuses the
 * numbers (*out_refused). */
static hr_general_instance *number_one(hr_general_instances *instances, const hr_key *key, hr_device *device,
                                       hr_plan *model, hr_numbers *numbers, bool *out_refused) {
  hr_general_instance *g = find_idle(instances, model);
  *out_refused = false;
  if (g != NULL) {
    hr__plan_release(model);
    if (g->is_dear) {
      return NULL;
    }
  }
  bool is_new = g == NULL;
  g = is_new ? make_room(instances) : g;
  hr_status status = is_new ? create(key, device, model, numbers, g) : renumber(g, key, device, numbers);
  if (status == HR_OK) {
    return g;
  }
  hr_log(HR_LOG_DEVICE, "%s", hr_status_message(status));
  hr_status_ignore(status);
  drop(instances, g);
  *out_refused = true;
  return NULL;
}

hr_instance *hr__general_instance_find(hr_general_instances *instances, hr_key *key, hr_device *device, uint32_t now,
                                       uint32_t reach) {
  hr_plan *model = NULL;
  if (sight(instances, key->hash, own_from(device, reach == UINT32_MAX), now, reach)) {
    return NULL;
  }
  hr_general_instance *g = NULL;
  bool is_refused = true;
  for (int tried = 0; is_refused; ++tried) {
    hr_vector_clear(&instances->spare);
    is_refused = hr__plan_find_model(key, device, tried, &instances->spare, &model) == HR_GENERAL_FOUND;
    if (is_refused) {
      g = number_one(instances, key, device, model, &instances->spare, &is_refused);
    }
  }
  if (g == NULL) {
    return NULL;
  }
  count_bytes(instances, g, (int64_t)(g->instance->footprint + g->numbers.capacity * sizeof *g->numbers.data));
  g->last_use = ++instances->uses;
  return g->instance;
}
