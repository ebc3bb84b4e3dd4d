/* gather.c: meetings of devices. One lock serves all meetings of a program: they are short. */
#include "gather.h"

#include <stdlib.h>
#include <string.h>

typedef struct meeting {
  int count, arrived;
  unsigned phase; /* of both waits of each gather */
  int devices[HR_STABLEHLO_DEVICES_MAX];
  const void *inputs[HR_STABLEHLO_DEVICES_MAX];
  struct meeting *next;
} meeting;

struct hrj_meetings {
  atomic_int references;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool is_broken;
  hr_status failure; /* the first that broke them, if it is known */
  meeting *first;
};

typedef struct gather {
  hrj_meetings *meetings;
  meeting *of;
  hrj_links *links;
  int place;
  size_t bytes;
} gather;

hrj_meetings *hrj_meetings_create(void) {
  hrj_meetings *meetings = calloc(1, sizeof *meetings);
  if (meetings != NULL) {
    atomic_init(&meetings->references, 1);
    pthread_mutex_init(&meetings->lock, NULL);
    pthread_cond_init(&meetings->changed, NULL);
  }
  return meetings;
}

void hrj_meetings_release(hrj_meetings *meetings) {
  if (meetings == NULL || atomic_fetch_sub(&meetings->references, 1) != 1) {
    return;
  }
  while (meetings->first != NULL) {
    meeting *next = meetings->first->next;
    free(meetings->first);
    meetings->first = next;
  }
  hr_status_free(meetings->failure);
  pthread_cond_destroy(&meetings->changed);
  pthread_mutex_destroy(&meetings->lock);
  free(meetings);
}

static void break_with(hrj_meetings *meetings, hr_status failure) {
  pthread_mutex_lock(&meetings->lock);
  if (!meetings->is_broken && failure != HR_OK) {
    meetings->failure = hr_status_clone(failure);
  }
  meetings->is_broken = true;
  pthread_cond_broadcast(&meetings->changed);
  pthread_mutex_unlock(&meetings->lock);
}

void hrj_meetings_break(hrj_meetings *meetings) {
  break_with(meetings, HR_OK);
}

/* The failure of a device that waits for one that has failed. */
static hr_status aborted(hrj_meetings *meetings) {
  pthread_mutex_lock(&meetings->lock);
  const char *reason = meetings->failure != HR_OK ? hr_status_message(meetings->failure) : NULL;
  hr_status status = hr_status_make(HR_STATUS_ABORTED, "another device of the program has failed%s%s",
                                    reason != NULL ? ": " : "", reason != NULL ? reason : "");
  pthread_mutex_unlock(&meetings->lock);
  return status;
}

static void work_has_ended(void *arg, hr_status status) {
  hrj_meetings *meetings = arg;
  if (status != HR_OK) {
    break_with(meetings, status);
  }
  hrj_meetings_release(meetings);
}

hr_status hrj_meetings_watch(hrj_meetings *meetings, hr_stream *stream) {
  atomic_fetch_add(&meetings->references, 1);
  hr_status status = hr_stream_mark(stream, work_has_ended, meetings);
  if (status != HR_OK) {
    hrj_meetings_release(meetings);
  }
  return status;
}

void hrj_meetings_mend(hrj_meetings *meetings) {
  pthread_mutex_lock(&meetings->lock);
  meetings->is_broken = false;
  hr_status_free(meetings->failure);
  meetings->failure = HR_OK;
  for (meeting *m = meetings->first; m != NULL; m = m->next) {
    m->arrived = 0;
  }
  pthread_mutex_unlock(&meetings->lock);
}

bool hrj_meetings_are_broken(hrj_meetings *meetings) {
  pthread_mutex_lock(&meetings->lock);
  bool is_broken = meetings->is_broken;
  pthread_mutex_unlock(&meetings->lock);
  return is_broken;
}

/* ---- functions ---- */

/* Waits until all have come, with the lock. */
static bool meet(hrj_meetings *meetings, meeting *m) {
  unsigned phase = m->phase;
  if (++m->arrived == m->count) {
    m->arrived = 0, ++m->phase;
    pthread_cond_broadcast(&meetings->changed);
  }
  while (m->phase == phase && !meetings->is_broken) {
    pthread_cond_wait(&meetings->changed, &meetings->lock);
  }
  return m->phase != phase;
}

static bool wait_for_others(const gather *g, const void *input) {
  pthread_mutex_lock(&g->meetings->lock);
  if (input != NULL) {
    g->of->inputs[g->place] = input;
  }
  bool have_come = meet(g->meetings, g->of);
  pthread_mutex_unlock(&g->meetings->lock);
  return have_come;
}

static hr_status run(const hr_function_call *call) {
  const gather *g = call->arg;
  bool is_whole = wait_for_others(g, call->inputs[0]);
  for (int i = 0; i < g->of->count && is_whole; ++i) {
    memcpy((char *)call->outputs[0] + (size_t)i * g->bytes, g->of->inputs[i], g->bytes);
  }
  is_whole = is_whole && wait_for_others(g, NULL);
  *(bool *)call->outputs[1] = false;
  return is_whole ? HR_OK : aborted(g->meetings);
}

/* On GPUs with links: work that all have begun ends without the host. */
static hr_status run_linked(const hr_function_call *call) {
  const gather *g = call->arg;
  hr_status status =
      wait_for_others(g, NULL) ? hrj_links_gather(g->links, g->place, g->bytes, call) : aborted(g->meetings);
  if (status != HR_OK) {
    break_with(g->meetings, status);
  }
  return status;
}

static void release(void *arg) {
  gather *g = arg;
  hrj_meetings_release(g->meetings);
  free(g);
}

/* The meeting of these devices, with the lock; NULL: no memory. */
static meeting *find(hrj_meetings *meetings, int count, const int *devices) {
  meeting *m = meetings->first;
  while (m != NULL && (m->count != count || memcmp(m->devices, devices, (size_t)count * sizeof *devices) != 0)) {
    m = m->next;
  }
  if (m == NULL && (m = calloc(1, sizeof *m)) != NULL) {
    m->count = count, m->next = meetings->first;
    memcpy(m->devices, devices, (size_t)count * sizeof *devices);
    meetings->first = m;
  }
  return m;
}

hr_status hrj_gather(hrj_meetings *meetings, hrj_links *links, int device, int count, const int *devices, size_t bytes,
                     hr_function_spec *out_spec) {
  gather *g = calloc(1, sizeof *g);
  pthread_mutex_lock(&meetings->lock);
  meeting *m = g != NULL && count <= HR_STABLEHLO_DEVICES_MAX ? find(meetings, count, devices) : NULL;
  pthread_mutex_unlock(&meetings->lock);
  if (m == NULL) {
    free(g);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a gather");
  }
  atomic_fetch_add(&meetings->references, 1);
  *g = (gather){.meetings = meetings, .of = m, .links = links, .bytes = bytes};
  while (g->place < count - 1 && devices[g->place] != device) {
    ++g->place;
  }
  *out_spec = (hr_function_spec){.name = "gather",
                                 .run = links != NULL ? run_linked : run,
                                 .arg = g,
                                 .release = release,
                                 .is_on_host = links == NULL};
  return HR_OK;
}

/* ---- calls of one device ---- */

typedef struct once {
  gather meeting; /* of all devices; places are their numbers */
  int root, result_count;
  hr_function_spec inner;
  size_t result_bytes[];
} once;

static hr_status run_inner(const once *o, const hr_function_call *call) {
  hr_function_call inner = *call;
  inner.arg = o->inner.arg;
  hr_status status = o->inner.run(&inner);
  if (status != HR_OK) {
    break_with(o->meeting.meetings, status);
  }
  return status;
}

/* The root's outputs, when it has run. */
static bool copy_results(const once *o, const hr_function_call *call) {
  const gather *g = &o->meeting;
  bool is_whole = wait_for_others(g, call->outputs);
  void *const *from = is_whole ? g->of->inputs[o->root] : NULL;
  for (int i = 0; i < o->result_count && is_whole && g->place != o->root; ++i) {
    memcpy(call->outputs[i], from[i], o->result_bytes[i]);
  }
  return is_whole && wait_for_others(g, NULL);
}

static hr_status run_once(const hr_function_call *call) {
  const once *o = call->arg;
  if (o->meeting.place == o->root) {
    HR_RETURN_IF_ERROR(run_inner(o, call));
  }
  bool is_whole = o->result_count == 0 || copy_results(o, call);
  if (call->output_count > o->result_count) { /* the flag that orders effects */
    *(bool *)call->outputs[o->result_count] = false;
  }
  return is_whole ? HR_OK : aborted(o->meeting.meetings);
}

static void release_once(void *arg) {
  once *o = arg;
  if (o->inner.release != NULL) {
    o->inner.release(o->inner.arg);
  }
  hrj_meetings_release(o->meeting.meetings);
  free(o);
}

hr_status hrj_once(hrj_meetings *meetings, int device, int device_count, int root, int result_count,
                   const size_t *result_bytes, const hr_function_spec *inner, hr_function_spec *out_spec) {
  int devices[HR_STABLEHLO_DEVICES_MAX];
  once *o = calloc(1, sizeof *o + (size_t)result_count * sizeof *result_bytes);
  for (int i = 0; i < device_count; ++i) {
    devices[i] = i;
  }
  pthread_mutex_lock(&meetings->lock);
  meeting *m = o != NULL ? find(meetings, device_count, devices) : NULL;
  pthread_mutex_unlock(&meetings->lock);
  if (m == NULL) {
    free(o);
    inner->release(inner->arg);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a call");
  }
  atomic_fetch_add(&meetings->references, 1);
  o->meeting = (gather){.meetings = meetings, .of = m, .place = device};
  o->root = root, o->result_count = result_count, o->inner = *inner;
  memcpy(o->result_bytes, result_bytes, (size_t)result_count * sizeof *result_bytes);
  *out_spec =
      (hr_function_spec){.name = inner->name, .run = run_once, .arg = o, .release = release_once, .is_on_host = true};
  return HR_OK;
}
