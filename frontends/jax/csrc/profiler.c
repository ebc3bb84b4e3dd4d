/* profiler.c: the profiler of the plug-in, which JAX starts and stops with its own: jax.profiler.trace.
 *
 * It has a profile of the core (headrace/profile.h) of all devices. Each call of a program sets the number of the
 * program as the upper half of its records' correlations; the lower half is the place of each operation. A profiler
 * holds the programs that were called, and reads the places from their files when the data are collected.
 *
 * One profiler is started at a time. Threads: any.
 */
#include "profiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headrace/profile.h"
#include "profile_space.h"

enum { RING_BYTES = 64 << 20 };

/* The place of an operation: a correlation, and the texts that were found. */
typedef struct place {
  uint64_t correlation;
  char *name, *source;
} place;

typedef struct profiler {
  hr_profile *profile;
  bool is_started, has_data;
  pjrt_executable **executables;
  size_t executable_count, executable_room;
  place *places; /* sorted, each once */
  size_t place_count, place_room;
  profile_space space;
} profiler;

atomic_bool hrj_profiler_is_on, hrj_places_are_wanted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `started` and its programs */
static profiler *started;
static atomic_uint session; /* the number of the start */

static bool make_room(void **items, size_t *room, size_t count, size_t size) {
  size_t wanted = count < *room ? *room : *room > 0 ? 2 * *room : 64;
  void *grown = wanted > *room ? realloc(*items, wanted * size) : *items;
  if (grown != NULL) {
    *items = grown, *room = wanted;
  }
  return grown != NULL;
}

/* ---- calls ---- */

static void hold(profiler *p, pjrt_executable *executable) {
  if (make_room((void **)&p->executables, &p->executable_room, p->executable_count, sizeof(pjrt_executable *))) {
    atomic_fetch_add(&executable->references, 1);
    hrj_client_retain(executable->device->client);
    p->executables[p->executable_count++] = executable;
  }
}

void hrj_profiler_begin_call(pjrt_executable *executable) {
  unsigned now = atomic_load(&session);
  if (atomic_load(&hrj_places_are_wanted)) {
    hrj_places_keep(executable);
  }
  if (atomic_exchange(&executable->profiled, now) != now) {
    pthread_mutex_lock(&lock);
    if (started != NULL) {
      hold(started, executable);
    }
    pthread_mutex_unlock(&lock);
  }
  hr_profile_correlate((uint64_t)executable->number << 32);
}

void hrj_profiler_end_call(void) {
  hr_profile_correlate(0);
}

static const pjrt_executable *find_executable(const profiler *p, uint64_t correlation) {
  for (size_t i = 0; i < p->executable_count; ++i) {
    if (p->executables[i]->number == correlation >> 32) {
      return p->executables[i];
    }
  }
  return NULL;
}

/* ---- places ---- */

static int compare(const void *a, const void *b) {
  uint64_t x = ((const place *)a)->correlation, y = ((const place *)b)->correlation;
  return (x > y) - (x < y);
}

static void note_places(void *arg, const hr_profile_record *record) {
  profiler *p = arg;
  for (int64_t i = 0; record->correlations != NULL && i < record->operation_count; ++i) {
    uint64_t correlation = record->correlations[i];
    bool is_last = p->place_count > 0 && p->places[p->place_count - 1].correlation == correlation;
    if ((uint32_t)correlation == 0 || is_last ||
        !make_room((void **)&p->places, &p->place_room, p->place_count, sizeof *p->places)) {
      continue;
    }
    p->places[p->place_count++] = (place){.correlation = correlation};
  }
}

static void drop_copies(profiler *p) {
  size_t count = 0;
  if (p->place_count > 0) {
    qsort(p->places, p->place_count, sizeof *p->places, compare);
  }
  for (size_t i = 0; i < p->place_count; ++i) {
    if (count == 0 || p->places[count - 1].correlation != p->places[i].correlation) {
      p->places[count++] = p->places[i];
    }
  }
  p->place_count = count;
}

static void set_place(void *arg, int index, const char *name, const char *source) {
  place *at = (place *)arg + index;
  at->name = strdup(name), at->source = strdup(source);
}

/* Of the places from `first` on, which one program has. */
static void read_places(profiler *p, size_t first, size_t end) {
  const pjrt_executable *executable = find_executable(p, p->places[first].correlation);
  uint32_t *origins = malloc((end - first) * sizeof *origins);
  for (size_t i = first; i < end && origins != NULL; ++i) {
    origins[i - first] = (uint32_t)p->places[i].correlation;
  }
  if (executable != NULL && origins != NULL) {
    hr_status_ignore(hr_stablehlo_places(executable->code, executable->code_size, (int)(end - first), origins,
                                         set_place, p->places + first));
  }
  free(origins);
}

static void find_places(profiler *p) {
  drop_copies(p);
  for (size_t first = 0, end; first < p->place_count; first = end) {
    for (end = first + 1; end < p->place_count; ++end) {
      if (p->places[end].correlation >> 32 != p->places[first].correlation >> 32) {
        break;
      }
    }
    read_places(p, first, end);
  }
}

static void free_places(profiler *p) {
  for (size_t i = 0; i < p->place_count; ++i) {
    free(p->places[i].name);
    free(p->places[i].source);
  }
  free(p->places);
  p->places = NULL, p->place_count = p->place_room = 0;
}

/* ---- events ---- */

static void add_places(void *arg, const hr_profile_record *record, xspace_bytes *stats) {
  const profiler *p = arg;
  xspace_list names = {0}, sources = {0}, modules = {0};
  for (int64_t i = 0; record->correlations != NULL && i < record->operation_count; ++i) {
    const place wanted = {.correlation = record->correlations[i]};
    const place *found =
        p->place_count > 0 ? bsearch(&wanted, p->places, p->place_count, sizeof *p->places, compare) : NULL;
    const pjrt_executable *executable = find_executable(p, wanted.correlation);
    xspace_list_add(&names, found != NULL ? found->name : NULL);
    xspace_list_add(&sources, found != NULL ? found->source : NULL);
    xspace_list_add(&modules, executable != NULL ? executable->main.name : NULL);
  }
  xspace_event_text(stats, XSPACE_STAT_MODULE, modules.text);
  xspace_event_text(stats, XSPACE_STAT_OP, names.text);
  xspace_event_text(stats, XSPACE_STAT_SOURCE, sources.text);
}

static hr_status collect(profiler *p) {
  HR_RETURN_IF_ERROR(hr_profile_read(p->profile, sizeof(hr_profile_record), note_places, p));
  find_places(p);
  p->space.add_stats = add_places, p->space.arg = p;
  hr_status status = profile_space_write(&p->space, p->profile);
  free_places(p);
  p->has_data = status == HR_OK;
  return status;
}

/* ---- the functions ---- */

typedef struct args_create {
  size_t struct_size;
  const char *options;
  size_t options_size;
  profiler *profiler; /* out */
} args_create;
typedef struct args_profiler {
  size_t struct_size;
  profiler *profiler;
} args_profiler;
typedef struct args_collect {
  size_t struct_size;
  profiler *profiler;
  uint8_t *buffer; /* NULL: the size is wanted, or the data as they are */
  size_t size;
} args_collect;

static void forget_programs(profiler *p) {
  for (size_t i = 0; i < p->executable_count; ++i) {
    pjrt_client *client = p->executables[i]->device->client;
    hrj_executable_release(p->executables[i]);
    hrj_client_release(client);
  }
  free(p->executables);
  p->executables = NULL, p->executable_count = p->executable_room = 0;
}

static pjrt_error *create(args_create *args) {
  profiler *made = calloc(1, sizeof *made);
  hr_status status = made != NULL ? hr_profile_create(NULL, RING_BYTES, 0, &made->profile)
                                  : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory");
  if (status != HR_OK) {
    free(made);
    return hrj_error(status);
  }
  made->space.platform = HRJ_PLATFORM;
  args->profiler = made;
  return NULL;
}

static void end(profiler *p) {
  pthread_mutex_lock(&lock);
  bool is_last = started == p;
  started = is_last ? NULL : started;
  pthread_mutex_unlock(&lock);
  if (is_last) {
    atomic_store(&hrj_profiler_is_on, atomic_load(&hrj_places_are_wanted));
    p->is_started = false;
  }
}

static pjrt_error *destroy(args_profiler *args) {
  profiler *p = args->profiler;
  if (p != NULL) {
    end(p);
    hr_profile_release(p->profile);
    forget_programs(p);
    profile_space_fini(&p->space);
    free(p);
  }
  return NULL;
}

static pjrt_error *start(args_profiler *args) {
  profiler *p = args->profiler;
  pthread_mutex_lock(&lock);
  bool is_free = started == NULL;
  started = is_free ? p : started;
  pthread_mutex_unlock(&lock);
  if (!is_free) {
    return hrj_error_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": another profile is started");
  }
  hr_status status = hr_profile_start(p->profile);
  if (status != HR_OK) {
    end(p);
    return hrj_error(status);
  }
  profile_space_start(&p->space);
  p->is_started = true;
  atomic_fetch_add(&session, 1);
  atomic_store(&hrj_profiler_is_on, true);
  return NULL;
}

/* Work that has been recorded runs before. Devices with callbacks are not waited for: their programs have run, and
 * other work may need a lock that the caller has. */
static pjrt_error *stop(args_profiler *args) {
  profiler *p = args->profiler;
  if (!p->is_started) {
    return NULL;
  }
  end(p);
  for (size_t i = 0; i < p->executable_count; ++i) {
    for (int d = 0; d < p->executables[i]->device_count; ++d) {
      pjrt_device *device = p->executables[i]->devices[d];
      if (!atomic_load(&device->has_callbacks)) {
        hrj_device_settle(device);
      }
    }
  }
  return hrj_error(hr_profile_stop(p->profile));
}

static pjrt_error *collect_data(args_collect *args) {
  profiler *p = args->profiler;
  if (p->is_started) {
    return hrj_error_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": the profile has not been stopped");
  }
  HRJ_RETURN_IF_ERROR(p->has_data ? HR_OK : collect(p));
  const xspace_bytes *data = &p->space.data;
  args->size = data->size;
  if (args->buffer == NULL) {
    args->buffer = (uint8_t *)data->data;
  } else if (data->size > 0) {
    memcpy(args->buffer, data->data, data->size);
  }
  return NULL;
}

static void destroy_error(pjrt_args_self *args) {
  hrj_Error_Destroy(args);
}

/* PLUGIN_Profiler_Api. Structs of errors are those of the table: a pointer of the list is in place of extensions. */
static const struct {
  size_t struct_size;
  void *private;
  pjrt_function functions[8];
} functions = {.struct_size = sizeof functions,
               .functions = {(pjrt_function)destroy_error, (pjrt_function)hrj_Error_Message,
                             (pjrt_function)hrj_Error_GetCode, (pjrt_function)create, (pjrt_function)destroy,
                             (pjrt_function)start, (pjrt_function)stop, (pjrt_function)collect_data}};

enum { PROFILER = 1 }; /* the extension's type */

void *hrj_profiler_extension(void *next) {
  static struct {
    size_t struct_size;
    int type;
    void *next;
    const void *functions;
    int64_t context; /* of arguments of calls */
  } extension = {.struct_size = sizeof extension, .type = PROFILER, .functions = &functions};
  extension.next = next;
  return &extension;
}
