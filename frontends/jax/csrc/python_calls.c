/* python_calls.c: callbacks of Python. Numbers are never used twice. A name has a number of the process, too, since
 * programs may be kept on disk: those of another process have other callbacks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "python_calls.h"

typedef struct callback {
  int64_t id;
  int references;
  struct callback *next; /* in `live` or `dead` */
} callback;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static callback *live, *dead;
static int64_t next_id;
static uint64_t process; /* 0: not chosen yet */
static _Atomic(hrj_python_caller) caller;
static _Thread_local char *failure;

static const char prefix[] = "headrace_python";

void headrace_jax_set_caller(hrj_python_caller function) {
  atomic_store(&caller, function);
}

void headrace_jax_set_failure(const char *message) {
  free(failure);
  failure = strdup(message);
}

static uint64_t choose_process(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t mixed = ((uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec) ^ ((uint64_t)getpid() << 40);
  return mixed | 1;
}

int64_t headrace_jax_create_callback(char *out_name, size_t room) {
  callback *made = malloc(sizeof *made);
  if (made == NULL) {
    return -1;
  }
  pthread_mutex_lock(&lock);
  process = process != 0 ? process : choose_process();
  *made = (callback){.id = next_id++, .references = 1, .next = live};
  live = made;
  snprintf(out_name, room, "%s:%016llx:%lld", prefix, (unsigned long long)process, (long long)made->id);
  pthread_mutex_unlock(&lock);
  return made->id;
}

/* The place of a callback in `live`, with the lock. */
static callback **find(int64_t id) {
  callback **place = &live;
  while (*place != NULL && (*place)->id != id) {
    place = &(*place)->next;
  }
  return place;
}

void headrace_jax_release_callback(int64_t id) {
  pthread_mutex_lock(&lock);
  callback **place = find(id), *found = *place;
  if (found != NULL && --found->references == 0) {
    *place = found->next;
    found->next = dead, dead = found;
  }
  pthread_mutex_unlock(&lock);
}

int headrace_jax_dead_callbacks(int64_t *out_ids, int room) {
  int count = 0;
  pthread_mutex_lock(&lock);
  while (dead != NULL && count < room) {
    callback *first = dead;
    dead = first->next;
    out_ids[count++] = first->id;
    free(first);
  }
  pthread_mutex_unlock(&lock);
  return count;
}

/* ---- as functions of the host ---- */

static hr_status run(const hr_function_call *call) {
  hrj_python_caller function = atomic_load(&caller);
  if (function == NULL) {
    return hr_status_make(HR_STATUS_CANCELLED, "Python has ended, or has set no function for callbacks");
  }
  int64_t id = (int64_t)(intptr_t)call->arg;
  if (function(id, call->input_count, call->inputs, call->output_count, call->outputs) == 0) {
    return HR_OK;
  }
  hr_status status = hr_status_make(HR_STATUS_INTERNAL, "%s", failure != NULL ? failure : "it failed");
  free(failure);
  failure = NULL;
  return status;
}

static void release(void *arg) {
  headrace_jax_release_callback((int64_t)(intptr_t)arg);
}

hr_status hrj_python_find(const char *name, hr_function_spec *out_spec) {
  unsigned long long of = 0;
  long long id = -1;
  char end = 0;
  if (strncmp(name, prefix, sizeof prefix - 1) != 0 ||
      sscanf(name + sizeof prefix - 1, ":%llx:%lld%c", &of, &id, &end) < 2 || (end != '\0' && end != '@')) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "there is no function \"%.100s\"", name);
  }
  pthread_mutex_lock(&lock);
  callback *found = of == process ? *find(id) : NULL;
  if (found != NULL) {
    ++found->references;
  }
  pthread_mutex_unlock(&lock);
  if (found == NULL) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION,
                          "callback %lld is one of another process, or is gone: trace the program again", id);
  }
  *out_spec = (hr_function_spec){
      .name = "callback", .run = run, .arg = (void *)(intptr_t)id, .release = release, .is_on_host = true};
  return HR_OK;
}

hr_status hrj_python_place_of(const char *name, hrj_python_place *out_place) {
  const char *text = strchr(name, '@');
  char *rest = NULL;
  *out_place = (hrj_python_place){.device = -1};
  if (text == NULL) {
    return HR_OK;
  }
  long long device = strtoll(text + 1, &rest, 10);
  bool is_right = rest != text + 1 && device >= 0 && device < HR_STABLEHLO_DEVICES_MAX;
  while (is_right && *rest == ':' && out_place->result_count < HR_FUNCTION_OPERANDS_MAX) {
    out_place->result_bytes[out_place->result_count++] = (size_t)strtoull(rest + 1, &rest, 10);
  }
  if (!is_right || *rest != '\0') {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the call \"%.100s\" has no device, or too many results", name);
  }
  out_place->device = (int)device;
  return HR_OK;
}
