/* context.c: see context.h. Parts are placed in bytes that the context already owns, so creating one never fails. */
#include "base/context.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/fork.h"

#ifdef PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP
#define RECURSIVE_MUTEX PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP
#else
#define RECURSIVE_MUTEX PTHREAD_RECURSIVE_MUTEX_INITIALIZER
#endif

/* State of the process, which no context can own. */
static struct {
  pthread_mutex_t mutex; /* guards `others`; held from the begin of a fork to its end */
  pthread_once_t fork_once;
  bool is_fork_prepared;
  hr_context *others;
  atomic_int pid;                                  /* process that registered the exit handler; 0: none */
  _Alignas(64) char first_bytes[HR_CONTEXT_BYTES]; /* of the default context */
} process = {.mutex = PTHREAD_MUTEX_INITIALIZER, .fork_once = PTHREAD_ONCE_INIT};

hr_context hr__context_first = {.log_level = INT_MAX, .mutex = RECURSIVE_MUTEX, .bytes = process.first_bytes};
_Thread_local hr_context *hr__context_now HR__CONTEXT_TLS = &hr__context_first;

/* ---- parts ---- */

/* A context that is too small for its parts is a bug of ours. It ends the process in every build, because a part beyond
 * the end would share its bytes with other state. */
static void *take_bytes(hr_context *context, size_t bytes) {
  size_t begin = (context->used + 63) & ~(size_t)63;
  if (bytes > HR_CONTEXT_BYTES || begin > HR_CONTEXT_BYTES - bytes) {
    fprintf(stderr, "headrace: the parts of a context need more than HR_CONTEXT_BYTES, %d\n", HR_CONTEXT_BYTES);
    abort();
  }
  context->used = begin + bytes;
  return context->bytes + begin;
}

void *hr__context_make(hr_context *context, hr_context_slot slot, const hr_context_part *kind) {
  pthread_mutex_lock(&context->mutex);
  void *part = atomic_load_explicit(&context->parts[slot], memory_order_relaxed);
  if (part == NULL) {
    (void)hr__fork_prepare();
    part = take_bytes(context, kind->bytes);
    if (kind->init != NULL) {
      kind->init(part);
    }
    context->kinds[slot] = kind;
    context->order[context->part_count++] = slot;
    atomic_store_explicit(&context->parts[slot], part, memory_order_release);
  }
  pthread_mutex_unlock(&context->mutex);
  return part;
}

/* Newest part first. The lock is not held, because threads that are ending may still look up parts. */
static void stop_parts(hr_context *context) {
  pthread_mutex_lock(&context->mutex);
  int count = context->part_count;
  pthread_mutex_unlock(&context->mutex);
  hr_context *before = hr__context_enter(context);
  for (int i = count - 1; i >= 0; --i) {
    hr_context_slot slot = context->order[i];
    if (context->kinds[slot]->stop != NULL) {
      context->kinds[slot]->stop(atomic_load(&context->parts[slot]));
    }
  }
  (void)hr__context_enter(before);
}

static void destroy_parts(hr_context *context) {
  hr_context *before = hr__context_enter(context);
  while (context->part_count > 0) {
    hr_context_slot slot = context->order[--context->part_count];
    void *part = atomic_load(&context->parts[slot]);
    if (context->kinds[slot]->fini != NULL) {
      context->kinds[slot]->fini(part);
    }
    atomic_store(&context->parts[slot], NULL);
  }
  (void)hr__context_enter(before);
}

/* ---- contexts ---- */

hr_status hr__context_create(hr_context **out_context) {
  hr_context *context = hr_calloc(1, sizeof *context);
  char *bytes = context != NULL ? hr_aligned_malloc(HR_CONTEXT_BYTES, 64) : NULL;
  if (bytes == NULL) {
    hr_free(context);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a context");
  }
  memset(bytes, 0, HR_CONTEXT_BYTES);
  context->bytes = bytes;
  context->mutex = (pthread_mutex_t)RECURSIVE_MUTEX;
  atomic_init(&context->log_level, INT_MAX);
  pthread_mutex_lock(&process.mutex);
  context->next = process.others;
  process.others = context;
  pthread_mutex_unlock(&process.mutex);
  *out_context = context;
  return HR_OK;
}

static void unlink_context(const hr_context *context) {
  pthread_mutex_lock(&process.mutex);
  hr_context **at = &process.others;
  while (*at != context) {
    at = &(*at)->next;
  }
  *at = context->next;
  pthread_mutex_unlock(&process.mutex);
}

void hr__context_destroy(hr_context *context) {
  if (context == NULL) {
    return;
  }
  assert(context != &hr__context_first && context != hr__context());
  unlink_context(context);
  stop_parts(context);
  destroy_parts(context);
  pthread_mutex_destroy(&context->mutex);
  hr_aligned_free(context->bytes);
  hr_free(context);
}

/* ---- forks ---- */

static void prepare_fork(void) {
  process.is_fork_prepared = pthread_atfork(hr__fork_begin, hr__fork_end, hr__fork_end_in_child) == 0;
}

bool hr__fork_prepare(void) {
  (void)pthread_once(&process.fork_once, prepare_fork);
  return process.is_fork_prepared;
}

/* The parts that lock themselves for a fork, in the order of their locks: work that the first ones wait for may need
 * the later ones. */
static const hr_context_slot fork_order[] = {
    HR_CONTEXT_STREAMS, HR_CONTEXT_LATE,   HR_CONTEXT_PROVIDERS, HR_CONTEXT_COMPILE_QUEUE,
    HR_CONTEXT_DEVICES, HR_CONTEXT_HOLDER, HR_CONTEXT_LOG};
enum { FORK_PARTS = sizeof fork_order / sizeof *fork_order };

static void begin_fork(hr_context *context) {
  hr_context *before = hr__context_enter(context);
  for (int i = 0; i < FORK_PARTS; ++i) {
    hr_context_slot slot = fork_order[i];
    void *part = atomic_load_explicit(&context->parts[slot], memory_order_acquire);
    context->forks[slot] = part != NULL && context->kinds[slot]->begin_fork != NULL;
    if (context->forks[slot]) {
      context->kinds[slot]->begin_fork(part);
    }
  }
  (void)hr__context_enter(before);
  pthread_mutex_lock(&context->mutex);
}

/* The thread has another number in a child, so that it cannot unlock a recursive lock. */
static void end_fork(hr_context *context, bool is_child) {
  if (is_child) {
    context->mutex = (pthread_mutex_t)RECURSIVE_MUTEX;
  } else {
    pthread_mutex_unlock(&context->mutex);
  }
  hr_context *before = hr__context_enter(context);
  for (int i = FORK_PARTS - 1; i >= 0; --i) {
    hr_context_slot slot = fork_order[i];
    if (context->forks[slot]) {
      context->kinds[slot]->end_fork(atomic_load(&context->parts[slot]), is_child);
    }
  }
  (void)hr__context_enter(before);
}

void hr__contexts_begin_fork(void) {
  pthread_mutex_lock(&process.mutex);
  begin_fork(&hr__context_first);
  for (hr_context *context = process.others; context != NULL; context = context->next) {
    begin_fork(context);
  }
}

void hr__contexts_end_fork(bool is_child) {
  for (hr_context *context = process.others; context != NULL; context = context->next) {
    end_fork(context, is_child);
  }
  end_fork(&hr__context_first, is_child);
  if (is_child && atomic_load(&process.pid) != 0) {
    atomic_store(&process.pid, (int)getpid());
  }
  pthread_mutex_unlock(&process.mutex);
}

/* ---- the end of the process ---- */

static void stop_all(void) {
  if (getpid() != atomic_load(&process.pid)) {
    return;
  }
  stop_parts(&hr__context_first);
  pthread_mutex_lock(&process.mutex);
  hr_context *context = process.others;
  pthread_mutex_unlock(&process.mutex);
  for (; context != NULL; context = context->next) {
    stop_parts(context);
  }
}

/* If the handler can't be registered, contexts are not stopped at exit. */
void hr__contexts_stop_at_exit(void) {
  int nobody = 0;
  (void)atomic_compare_exchange_strong(&process.pid, &nobody, (int)getpid());
  (void)atexit(stop_all);
}
