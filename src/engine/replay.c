#include "engine/replay.h"

#include <string.h>

#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/run_steps.h"
#include "engine/weights.h"

enum {
  SETS_MAX = 4,     /* sets of addresses that have graphs */
  RECENT_MAX = 8,   /* sets of addresses that are counted */
  RUNS_MIN = 3,     /* with the same addresses; the last one is captured */
  RUNS_MOST = 4096, /* the most that are required if addresses change all the time */
  LAUNCHES_MIN = 3  /* worth a graph */
};

/* Steps [first, end) as one graph. */
typedef struct segment {
  int first, end;
} segment;

typedef struct address_set {
  void **addresses;   /* of the key's buffers, of the shared block, and of cached weights */
  void **graphs;      /* of each segment; NULL: not captured yet */
  hr_scalar *scalars; /* of the instance's list: the graphs' present values */
  uint64_t last_use;
} address_set;

struct hr_replay {
  hr_device *device;
  bool is_off; /* something failed once */
  int segment_count;
  segment *segments;
  size_t address_count;
  void **addresses; /* of this run */
  int set_count;
  address_set sets[SETS_MAX];
  struct {
    uint64_t hash;
    int runs;
  } recent[RECENT_MAX];
  int next_recent;
  int runs_wanted;
  uint64_t use;
};

/* ---- segments ---- */

/* False for library calls that read scalars when they are called, may prepare data for contents, or do other work each
 * time, and for the host's waits. */
static bool can_capture(const hr_instance *instance, const hr_exec_step *step) {
  const hr_program *program = &instance->plan->schedule.program;
  const hr_provider *provider = step->call != NULL ? step->call->ready.algorithm.provider : NULL;
  bool can = hr__step_has_kernel(step) || (provider != NULL && !provider->runs_anew && provider->stamp == NULL &&
                                           provider->keeps == NULL && step->call->ready.fallback == NULL);
  for (int i = 0; can && !hr__step_has_kernel(step) && i < hr__step_arg_count(step); ++i) {
    uint32_t scalar;
    can = !hr__step_scalar(instance, step, i, &scalar) || program->scalars[scalar].is_constant;
  }
  return can;
}

/* The steps from `first` on that one graph can hold. */
static segment segment_at(const hr_instance *instance, int first) {
  segment s = {.first = first, .end = first};
  while (s.end < instance->step_count && can_capture(instance, &instance->steps[s.end])) {
    s.end += instance->steps[s.end].batch;
  }
  return s;
}

static void find_segments(const hr_instance *instance, hr_replay *replay) {
  for (int at = 0; at < instance->step_count;) {
    segment s = segment_at(instance, at);
    if (s.end - s.first >= LAUNCHES_MIN) {
      replay->segments[replay->segment_count++] = s;
    }
    at = s.end > at ? s.end : at + instance->steps[at].batch;
  }
}

/* ---- life ---- */

static void free_set(hr_replay *replay, address_set *set) {
  for (int s = 0; set->graphs != NULL && s < replay->segment_count; ++s) {
    replay->device->driver->graph_destroy(replay->device->impl, set->graphs[s]);
  }
  hr_free((void *)set->graphs);
  hr_free((void *)set->addresses);
  hr_free(set->scalars);
  *set = (address_set){0};
}

static void free_sets(hr_replay *replay) {
  while (replay->set_count > 0) {
    free_set(replay, &replay->sets[--replay->set_count]);
  }
}

void hr__replay_release(hr_replay *replay) {
  if (replay != NULL) {
    free_sets(replay);
    hr_free(replay->segments);
    hr_free((void *)replay->addresses);
    hr_free(replay);
  }
}

hr_replay *hr__replay_create(const hr_instance *instance, hr_device *device) {
  if (device->driver->capture_begin == NULL || hr_env_choice(HR_ENV_GRAPHS) == HR_ENV_GRAPHS_OFF) {
    return NULL;
  }
  hr_replay *replay = hr_calloc(1, sizeof *replay);
  if (replay == NULL) {
    return NULL;
  }
  replay->device = device;
  replay->runs_wanted = RUNS_MIN;
  replay->address_count = instance->plan->key.buffer_count + 1 + instance->weights.count;
  replay->segments = hr_calloc((size_t)instance->step_count + 1, sizeof *replay->segments);
  replay->addresses = hr_calloc(replay->address_count, sizeof(void *));
  if (replay->segments != NULL && replay->addresses != NULL) {
    find_segments(instance, replay);
  }
  for (int i = 0; i < replay->segment_count; ++i) {
    hr_log(HR_LOG_SCHEDULE, "  steps %d to %d can be a graph", replay->segments[i].first, replay->segments[i].end - 1);
  }
  if (replay->segment_count == 0) {
    hr__replay_release(replay);
    return NULL;
  }
  return replay;
}

/* ---- sets of addresses ---- */

/* Counts the runs with the addresses of this one, among the remembered ones. */
static int count_run(hr_replay *replay, uint64_t hash) {
  for (int i = 0; i < RECENT_MAX; ++i) {
    if (replay->recent[i].hash == hash) {
      return ++replay->recent[i].runs;
    }
  }
  replay->recent[replay->next_recent].hash = hash;
  replay->recent[replay->next_recent].runs = 1;
  replay->next_recent = (replay->next_recent + 1) % RECENT_MAX;
  return 1;
}

/* A place for another set. If one is evicted, the next one must be seen more often: capturing costs more than some runs
 * save. */
static address_set *take_place(hr_replay *replay) {
  if (replay->set_count < SETS_MAX) {
    return &replay->sets[replay->set_count++];
  }
  address_set *oldest = &replay->sets[0];
  for (int i = 1; i < SETS_MAX; ++i) {
    oldest = replay->sets[i].last_use < oldest->last_use ? &replay->sets[i] : oldest;
  }
  free_set(replay, oldest);
  replay->runs_wanted = 2 * replay->runs_wanted < RUNS_MOST ? 2 * replay->runs_wanted : RUNS_MOST;
  return oldest;
}

static address_set *add_set(const hr_instance *instance, hr_replay *replay) {
  address_set set = {.addresses = hr_calloc(replay->address_count, sizeof(void *)),
                     .graphs = hr_calloc((size_t)replay->segment_count, sizeof(void *)),
                     .scalars = hr_calloc(instance->scalars->count + 1, sizeof(hr_scalar))};
  if (set.addresses == NULL || set.graphs == NULL || set.scalars == NULL) {
    free_set(replay, &set);
    return NULL;
  }
  memcpy((void *)set.addresses, (const void *)replay->addresses, replay->address_count * sizeof(void *));
  address_set *place = take_place(replay);
  *place = set;
  return place;
}

/* Collects the addresses of this run. Without a cached weight its step is part of the graph. */
static void note_addresses(const hr_instance *instance, hr_replay *replay, const hr_run *run,
                           const hr_run_scratch *scratch) {
  size_t count = instance->plan->key.buffer_count;
  if (count > 0) {
    memcpy((void *)replay->addresses, (const void *)run->bound, count * sizeof(void *));
  }
  replay->addresses[count] = instance->shared_bytes > 0 ? run->shared : NULL;
  for (size_t i = 0; i < instance->weights.count; ++i) {
    const hr_cached_weights *kept = scratch->weights.data[i].cached_weights;
    replay->addresses[count + 1 + i] = kept != NULL ? hr__cached_weights_data(kept) : NULL;
  }
}

/* The set of this run's addresses; NULL: they have not been seen often enough. */
static address_set *find_set(const hr_instance *instance, hr_replay *replay, const hr_run *run,
                             const hr_run_scratch *scratch) {
  size_t bytes = replay->address_count * sizeof(void *);
  note_addresses(instance, replay, run, scratch);
  address_set *set = NULL;
  for (int i = 0; set == NULL && i < replay->set_count; ++i) {
    bool fits = memcmp((const void *)replay->sets[i].addresses, (const void *)replay->addresses, bytes) == 0;
    set = fits ? &replay->sets[i] : NULL;
  }
  if (set == NULL &&
      count_run(replay, hr_hash_bytes(HR_HASH_SEED, (const void *)replay->addresses, bytes)) >= replay->runs_wanted) {
    set = add_set(instance, replay);
  }
  if (set != NULL) {
    set->last_use = ++replay->use;
  }
  return set;
}

/* ---- capture and launch ---- */

/* Stores the present scalars of a graph's kernels. */
static void note_scalars(const hr_instance *instance, const segment *s, const hr_run_scratch *scratch,
                         hr_scalar *scalars) {
  for (int i = s->first; i < s->end; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    if (hr__step_scalar_count(step) > 0) {
      memcpy(scalars + step->scalar_first, scratch->scalars.data + step->scalar_first,
             (size_t)hr__step_scalar_count(step) * sizeof *scalars);
    }
  }
}

static hr_status capture(const hr_instance *instance, const segment *s, hr_run *run, hr_run_scratch *scratch,
                         void **out_graph) {
  const hr_driver *driver = run->device->driver;
  void *queue = NULL;
  int compiled_count = run->compiled_count;
  const atomic_uint_least64_t *interrupted = run->interrupted;
  HR_RETURN_IF_ERROR(driver->capture_begin(run->impl, &queue));
  run->interrupted = NULL; /* nothing runs here */
  hr_status status = hr__run_steps(instance, s->first, s->end, run, scratch, queue);
  run->interrupted = interrupted;
  run->compiled_count = compiled_count;
  hr_status ended = driver->capture_end(run->impl, status == HR_OK ? out_graph : NULL);
  if (status != HR_OK) {
    hr_status_ignore(ended);
    return status;
  }
  if (ended == HR_OK) {
    ++run->graph_builds;
    hr_log(HR_LOG_DEVICE, "program %016llx: steps %d to %d are a graph", (unsigned long long)instance->plan->key.hash,
           s->first, s->end - 1);
  }
  return ended;
}

static bool are_same(const hr_scalar *a, const hr_scalar *b, int count) {
  bool same = true;
  for (int i = 0; same && i < count; ++i) {
    same = a[i].dtype == b[i].dtype && memcmp(&a[i].value, &b[i].value, sizeof a[i].value) == 0;
  }
  return same;
}

/* Updates the kernels whose scalars differ in this run. */
static hr_status update(const hr_instance *instance, const segment *s, hr_run *run, hr_run_scratch *scratch,
                        void *graph, hr_scalar *scalars) {
  for (int i = s->first, kernel = 0; i < s->end; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    const hr_scalar *now = scratch->scalars.data + step->scalar_first;
    if (hr__weights_has(step, scratch)) {
      continue;
    }
    if (hr__step_has_kernel(step) && !are_same(scalars + step->scalar_first, now, hr__step_scalar_count(step))) {
      const hr_host_launch launch = hr__step_launch(instance, step, run, scratch);
      HR_RETURN_IF_ERROR(run->device->driver->graph_update(run->impl, graph, kernel, &launch));
      ++run->graph_updates;
    }
    kernel += hr__step_has_kernel(step);
  }
  return HR_OK;
}

static hr_status launch(const hr_instance *instance, const segment *s, hr_run *run, hr_run_scratch *scratch,
                        void **graph, hr_scalar *scalars) {
  const hr_driver *driver = run->device->driver;
  HR_RETURN_IF_ERROR(*graph == NULL ? capture(instance, s, run, scratch, graph)
                                    : update(instance, s, run, scratch, *graph, scalars));
  note_scalars(instance, s, scratch, scalars);
  HR_RETURN_IF_ERROR(driver->graph_launch(run->impl, *graph));
  ++run->graph_launches;
  for (int i = s->first; i < s->end; i += instance->steps[i].batch) {
    run->compiled_count += instance->steps[i].kind == HR_STEP_KERNEL;
  }
  return HR_OK;
}

/* Gives up graphs after a failure. No step of the segment has run; running the steps will report the cause unless it
 * was the graph. */
static void give_up(const hr_instance *instance, hr_replay *replay, hr_status status) {
  hr_log(HR_LOG_DEVICE, "program %016llx: no graphs any more: %s", (unsigned long long)instance->plan->key.hash,
         hr_status_message(status));
  hr_status_free(status);
  replay->is_off = true;
  free_sets(replay);
}

hr_status hr__replay_run(const hr_instance *instance, hr_run *run, hr_run_scratch *scratch) {
  hr_replay *replay = instance->replay;
  address_set *set = replay->is_off ? NULL : find_set(instance, replay, run, scratch);
  int done = 0;
  for (int i = 0; set != NULL && i < replay->segment_count; ++i) {
    const segment *s = &replay->segments[i];
    if (hr__weights_has_all(&instance->steps[s->first], s->end - s->first, scratch)) {
      continue;
    }
    HR_RETURN_IF_ERROR(hr__run_steps(instance, done, s->first, run, scratch, NULL));
    done = s->first;
    if (hr__run_is_interrupted(run)) {
      break; /* the following steps report it */
    }
    hr_status status = launch(instance, s, run, scratch, &set->graphs[i], set->scalars);
    done = status == HR_OK ? s->end : s->first;
    if (status != HR_OK) {
      give_up(instance, replay, status);
      set = NULL;
    }
  }
  return hr__run_steps(instance, done, instance->step_count, run, scratch, NULL);
}
