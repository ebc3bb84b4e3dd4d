/* profiler.c: the profiler of the plug-in, which TensorFlow starts and stops with its own.
 *
 * It has a profile of the core (headrace/profile.h) of all devices. The first call of a kernel in a profile adds the
 * name of its node, or those of a cluster's nodes, to a list; the places in this list are correlations of records.
 *
 * TensorFlow has one profile at a time. Threads: any.
 */
#include "profiler.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "plugin.h"
#include "profile_space.h"

enum { RING_BYTES = 64 << 20, NAME_MAX_BYTES = 512 };

atomic_bool htf_profiler_is_on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static hr_profile *profile;
static profile_space space = {.platform = HTF_TYPE};
static uint32_t session; /* the number of the start */
static char **names;     /* of the correlations from 1 on; NULL: none */
static size_t name_count, name_room;

/* ---- names ---- */

static void forget_names(void) {
  for (size_t i = 0; i < name_count; ++i) {
    free(names[i]);
  }
  free(names);
  names = NULL, name_count = name_room = 0;
}

static bool reserve_names(size_t count) {
  size_t wanted = name_count + count;
  if (wanted > name_room) {
    wanted = wanted > 2 * name_room ? wanted : 2 * name_room;
    char **grown = realloc(names, wanted * sizeof *grown);
    if (grown == NULL) {
      return false;
    }
    names = grown, name_room = wanted;
  }
  return true;
}

/* TensorFlow's tools take a text name:type apart. */
static void add_name(const char *name, size_t size, const char *op) {
  char text[NAME_MAX_BYTES];
  snprintf(text, sizeof text, "%.*s:%s", (int)size, name, op);
  names[name_count++] = strdup(text);
}

/* Adds a node and those of its body, and returns the first one's correlation; 0: no memory. */
static uint32_t add_names(tf_context *context, const char *op, const htf_body *body) {
  const int inner = body != NULL ? body->node_count : 0;
  if (!reserve_names((size_t)inner + 1)) {
    return 0;
  }
  tf_string_view name = tf.GetOpKernelName(context);
  const uint32_t first = (uint32_t)name_count + 1;
  add_name(name.data, name.size, op);
  for (int i = 0; i < inner; ++i) {
    add_name(body->nodes[i].name, strlen(body->nodes[i].name), body->nodes[i].kernel->row->op);
  }
  return first;
}

void htf_profile_begin(atomic_ullong *profiled, tf_context *context, const char *op, const htf_body *body) {
  pthread_mutex_lock(&lock);
  unsigned long long kept = atomic_load(profiled);
  if (kept >> 32 != session) {
    kept = (unsigned long long)session << 32 | add_names(context, op, body);
    atomic_store(profiled, kept);
  }
  pthread_mutex_unlock(&lock);
  hr_profile_correlate((uint32_t)kept);
}

void htf_profile_end(void) {
  hr_profile_correlate(0);
}

static void add_nodes(void *arg, const hr_profile_record *record, xspace_bytes *stats) {
  (void)arg;
  xspace_list list = {0};
  for (int64_t i = 0; record->correlations != NULL && i < record->operation_count; ++i) {
    uint64_t correlation = record->correlations[i];
    xspace_list_add(&list, correlation > 0 && correlation <= name_count ? names[correlation - 1] : NULL);
  }
  xspace_event_text(stats, XSPACE_STAT_OP, list.text);
}

/* ---- the functions ---- */

static hr_status start_profile(void) {
  hr_profile_release(profile);
  profile = NULL;
  HR_RETURN_IF_ERROR(hr_profile_create(NULL, RING_BYTES, 0, &profile));
  forget_names();
  profile_space_fini(&space);
  profile_space_start(&space);
  ++session;
  return hr_profile_start(profile);
}

static void start(const tf_profiler *profiler, tf_status *status) {
  (void)profiler;
  pthread_mutex_lock(&lock);
  bool has_failed = htf_fails(start_profile(), status);
  pthread_mutex_unlock(&lock);
  atomic_store(&htf_profiler_is_on, !has_failed);
}

static hr_status stop_profile(void) {
  HR_RETURN_IF_ERROR(hr_profile_stop(profile));
  space.add_stats = add_nodes;
  hr_status status = profile_space_write(&space, profile);
  hr_profile_release(profile);
  profile = NULL;
  return status;
}

/* Work that has been recorded runs before. */
static void stop(const tf_profiler *profiler, tf_status *status) {
  (void)profiler;
  atomic_store(&htf_profiler_is_on, false);
  for (int i = 0; i < HTF_DEVICES_MAX; ++i) {
    if (htf_device_at(i) != NULL) {
      htf_synchronize(htf_device_at(i));
    }
  }
  pthread_mutex_lock(&lock);
  if (profile != NULL) {
    (void)htf_fails(stop_profile(), status);
  }
  pthread_mutex_unlock(&lock);
}

static void collect(const tf_profiler *profiler, uint8_t *buffer, size_t *size, tf_status *status) {
  (void)profiler;
  pthread_mutex_lock(&lock);
  if (buffer == NULL || *size < space.data.size) {
    *size = space.data.size;
    if (buffer != NULL) {
      tf.SetStatus(status, HR_STATUS_INVALID_ARGUMENT, "headrace: the buffer is too small for the profile");
    }
  } else if (space.data.size > 0) {
    *size = space.data.size;
    memcpy(buffer, space.data.data, space.data.size);
  }
  pthread_mutex_unlock(&lock);
}

static void destroy_profiler(tf_profiler *profiler) {
  (void)profiler;
}

static void destroy_functions(tf_profiler_functions *functions) {
  (void)functions;
}

/* TensorFlow calls this when it loads the plug-in. */
HTF_EXPORT void TF_InitProfiler(tf_profiler_registration *registration, tf_status *status) {
  (void)status;
  registration->size_of = TF_STRUCT_SIZE(tf_profiler_registration, destroy_functions);
  registration->profiler->size_of = TF_STRUCT_SIZE(tf_profiler, device_type);
  registration->profiler->device_type = HTF_TYPE;
  *registration->functions = (tf_profiler_functions){
      .size_of = TF_STRUCT_SIZE(tf_profiler_functions, collect), .start = start, .stop = stop, .collect = collect};
  registration->destroy_profiler = destroy_profiler;
  registration->destroy_functions = destroy_functions;
}
