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
#include <time.h>

#include "headrace/profile.h"
#include "xspace.h"

enum { RING_BYTES = 64 << 20, JOINED_MAX = 1024, PLANES_MAX = 80 };

/* The place of an operation: a correlation, and the texts that were found. */
typedef struct place {
  uint64_t correlation;
  char *name, *source;
} place;

typedef struct profiler {
  hr_profile *profile;
  bool is_started, has_data;
  int64_t begin_ns, wall_ns; /* of the start, by the clock of records and by the wall clock */
  pjrt_executable **executables;
  size_t executable_count, executable_room;
  place *places; /* sorted, each once */
  size_t place_count, place_room;
  hrj_plane *planes;
  int plane_count;
  hrj_bytes data;
} profiler;

atomic_bool hrj_profiler_is_on;
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

enum { LINE_KERNELS = 0, LINE_PROGRAMS, LINE_COMPILERS, LINE_COPIES };
static const char *const line_names[HRJ_LINES] = {"kernels and library calls", "programs", "compilers", "copies"};

static int line_of(hr_profile_kind kind) {
  switch (kind) {
    case HR_PROFILE_KERNEL:
    case HR_PROFILE_LIBRARY:
    case HR_PROFILE_CHECK:
      return LINE_KERNELS;
    case HR_PROFILE_RUN:
      return LINE_PROGRAMS;
    case HR_PROFILE_COMPILE:
    case HR_PROFILE_KERNEL_COMPILE:
    case HR_PROFILE_KERNEL_LOAD:
      return LINE_COMPILERS;
    case HR_PROFILE_COPY_IN:
    case HR_PROFILE_COPY_OUT:
    case HR_PROFILE_COPY_BETWEEN:
      return LINE_COPIES;
    default:
      return -1;
  }
}

/* The plane of a device; NULL: there are too many, or no memory. */
static hrj_plane *plane_of(profiler *p, const char *device) {
  char name[sizeof p->planes->name];
  snprintf(name, sizeof name, "/device:CUSTOM:" HRJ_PLATFORM " %s", device[0] != '\0' ? device : "compilers");
  for (int i = 0; i < p->plane_count; ++i) {
    if (strcmp(p->planes[i].name, name) == 0) {
      return &p->planes[i];
    }
  }
  if (p->planes == NULL) {
    p->planes = calloc(PLANES_MAX, sizeof *p->planes);
  }
  if (p->planes == NULL || p->plane_count == PLANES_MAX) {
    return NULL;
  }
  memcpy(p->planes[p->plane_count].name, name, sizeof name);
  return &p->planes[p->plane_count++];
}

/* A list of different texts, cut at its room. */
typedef struct joined {
  size_t size;
  char text[JOINED_MAX];
} joined;

static void join(joined *list, const char *text) {
  size_t size = text != NULL ? strlen(text) : 0;
  const char *at = size > 0 && list->size > 0 ? strstr(list->text, text) : NULL;
  bool is_there = at != NULL && (at[size] == ';' || at[size] == '\0');
  if (size == 0 || is_there || list->size + size + 3 > sizeof list->text) {
    return;
  }
  list->size += (size_t)snprintf(list->text + list->size, sizeof list->text - list->size, "%s%s",
                                 list->size > 0 ? "; " : "", text);
}

static void join_places(const profiler *p, const hr_profile_record *record, joined *names, joined *sources,
                        joined *modules) {
  for (int64_t i = 0; record->correlations != NULL && i < record->operation_count; ++i) {
    const place wanted = {.correlation = record->correlations[i]};
    const place *found =
        p->place_count > 0 ? bsearch(&wanted, p->places, p->place_count, sizeof *p->places, compare) : NULL;
    const pjrt_executable *executable = find_executable(p, wanted.correlation);
    join(names, found != NULL ? found->name : NULL);
    join(sources, found != NULL ? found->source : NULL);
    join(modules, executable != NULL ? executable->main.name : NULL);
  }
}

static const char *runner_of(const hr_profile_record *record) {
  return record->provider[0] != '\0'                   ? record->provider
         : record->tier == HR_PROFILE_TIER_COMPILED    ? "compiled"
         : record->tier == HR_PROFILE_TIER_INTERPRETED ? "interpreted"
                                                       : "";
}

static void list_stats(const profiler *p, const hr_profile_record *record, hrj_bytes *stats) {
  joined names = {0}, sources = {0}, modules = {0}, operations = {0};
  char program[24] = "";
  join_places(p, record, &names, &sources, &modules);
  for (int64_t i = 0; record->operation_names != NULL && i < record->operation_count; ++i) {
    join(&operations, record->operation_names[i]);
  }
  if (record->program != 0) {
    snprintf(program, sizeof program, "%016llx", (unsigned long long)record->program);
  }
  hrj_event_text(stats, HRJ_STAT_MODULE, modules.text);
  hrj_event_text(stats, HRJ_STAT_OP, names.text);
  hrj_event_text(stats, HRJ_STAT_SOURCE, sources.text);
  hrj_event_number(stats, HRJ_STAT_BYTES, record->bytes_read + record->bytes_written);
  hrj_event_number(stats, HRJ_STAT_FLOPS, record->flops);
  hrj_event_text(stats, HRJ_STAT_SHAPES, record->shapes);
  hrj_event_text(stats, HRJ_STAT_BY, runner_of(record));
  hrj_event_text(stats, HRJ_STAT_OPERATIONS, operations.text);
  hrj_event_text(stats, HRJ_STAT_PROGRAM, program);
  hrj_event_number(stats, HRJ_STAT_RUN, (int64_t)record->run);
}

static void add_event(void *arg, const hr_profile_record *record) {
  profiler *p = arg;
  int line = line_of(record->kind);
  hrj_plane *plane = line >= 0 ? plane_of(p, record->device) : NULL;
  hrj_bytes stats = {0};
  if (plane != NULL) {
    list_stats(p, record, &stats);
    const char *name = record->name[0] != '\0' ? record->name : "program";
    hrj_plane_event(plane, line, name, record->begin_ns - p->begin_ns, record->end_ns - p->begin_ns, &stats);
    hrj_bytes_fini(&stats);
  }
}

/* XSpace's field 3: warnings. */
static void warn_of_lost(const profiler *p, hrj_bytes *space) {
  hr_profile_counts counts = {0};
  char text[96];
  hr_profile_counts_read(p->profile, sizeof counts, &counts);
  if (counts.summed + counts.lost > 0) {
    snprintf(text, sizeof text, HRJ_PLATFORM ": the oldest %lld records of the profile are lost",
             (long long)(counts.summed + counts.lost));
    hrj_bytes_text(space, 3, text, strlen(text));
  }
}

static hr_status collect(profiler *p) {
  HR_RETURN_IF_ERROR(hr_profile_read(p->profile, sizeof(hr_profile_record), note_places, p));
  find_places(p);
  hr_status status = hr_profile_read(p->profile, sizeof(hr_profile_record), add_event, p);
  for (int i = 0; i < p->plane_count; ++i) {
    if (status == HR_OK) {
      hrj_space_plane(&p->data, &p->planes[i], line_names, p->wall_ns);
    }
    hrj_plane_fini(&p->planes[i]);
  }
  free(p->planes);
  p->planes = NULL, p->plane_count = 0;
  free_places(p);
  HR_RETURN_IF_ERROR(status);
  warn_of_lost(p, &p->data);
  p->has_data = true;
  return p->data.has_failed
             ? hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a profile")
             : HR_OK;
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
  args->profiler = made;
  return NULL;
}

static void end(profiler *p) {
  pthread_mutex_lock(&lock);
  bool is_last = started == p;
  started = is_last ? NULL : started;
  pthread_mutex_unlock(&lock);
  if (is_last) {
    atomic_store(&hrj_profiler_is_on, false);
    p->is_started = false;
  }
}

static pjrt_error *destroy(args_profiler *args) {
  profiler *p = args->profiler;
  if (p != NULL) {
    end(p);
    hr_profile_release(p->profile);
    forget_programs(p);
    hrj_bytes_fini(&p->data);
    free(p);
  }
  return NULL;
}

static int64_t wall_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
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
  p->begin_ns = hr_profile_clock_ns(), p->wall_ns = wall_ns(), p->is_started = true;
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
  args->size = p->data.size;
  if (args->buffer == NULL) {
    args->buffer = (uint8_t *)p->data.data;
  } else if (p->data.size > 0) {
    memcpy(args->buffer, p->data.data, p->data.size);
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
