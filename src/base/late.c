#include "base/late.h"

#include "base/context.h"
#include "base/thread.h"

struct hr_late_queue {
  hr_mutex mutex;
  hr_cond wake, done;
  hr_thread thread;
  bool stops;
  hr_late *first, *last;
  const hr_late *current; /* the thread is in its `make` */
  _Atomic int64_t made_ns, waited_ns;
};

static void init_queue(void *part) {
  hr_late_queue *queue = part;
  hr_mutex_init(&queue->mutex);
  hr_cond_init(&queue->wake);
  hr_cond_init(&queue->done);
}

/* Work that still waits is made by those who claim it. */
static void stop_queue(void *part) {
  hr_late_queue *queue = part;
  hr_mutex_lock(&queue->mutex);
  queue->stops = true;
  hr_cond_broadcast(&queue->wake);
  hr_mutex_unlock(&queue->mutex);
  hr_thread_join(&queue->thread);
}

static void fini_queue(void *part) {
  hr_late_queue *queue = part;
  hr_cond_fini(&queue->wake);
  hr_cond_fini(&queue->done);
  hr_mutex_fini(&queue->mutex);
}

/* ---- fork: a child has no thread, and gets nothing that is half made ---- */

static void begin_fork(void *part) {
  hr_late_queue *queue = part;
  hr_mutex_lock(&queue->mutex);
  while (queue->current != NULL) {
    hr_cond_wait(&queue->done, &queue->mutex);
  }
}

static void end_fork(void *part, bool is_child) {
  hr_late_queue *queue = part;
  if (is_child) {
    queue->thread = (hr_thread){0};
    hr_cond_init(&queue->wake);
    hr_cond_init(&queue->done);
  }
  hr_mutex_unlock(&queue->mutex);
}

static hr_late_queue *queue_of(hr_context *context) {
  static const hr_context_part kind = {.bytes = sizeof(hr_late_queue),
                                       .init = init_queue,
                                       .stop = stop_queue,
                                       .fini = fini_queue,
                                       .begin_fork = begin_fork,
                                       .end_fork = end_fork};
  return hr__context_part(context, HR_CONTEXT_LATE, &kind);
}

/* ---- the thread ---- */

static void unlink(hr_late_queue *queue, hr_late *late) {
  *(late->before != NULL ? &late->before->next : &queue->first) = late->next;
  *(late->next != NULL ? &late->next->before : &queue->last) = late->before;
  late->next = late->before = NULL;
  late->is_waiting = false;
}

static void run_thread(void *arg) {
  hr_late_queue *queue = arg;
  hr_mutex_lock(&queue->mutex);
  while (!queue->stops) {
    hr_late *late = queue->first;
    if (late == NULL) {
      hr_cond_wait(&queue->wake, &queue->mutex);
      continue;
    }
    unlink(queue, late);
    queue->current = late;
    hr_mutex_unlock(&queue->mutex);
    int64_t begin = hr_clock_ns();
    late->make(late->arg);
    atomic_fetch_add(&queue->made_ns, hr_clock_ns() - begin);
    hr_mutex_lock(&queue->mutex);
    queue->current = NULL;
    hr_cond_broadcast(&queue->done);
  }
  hr_mutex_unlock(&queue->mutex);
}

/* Called with the queue locked. */
static bool has_thread(hr_late_queue *queue) {
  if (queue->stops || queue->thread.started || hr_thread_count() == 1 || hr_core_count() == 1) {
    return queue->thread.started && !queue->stops;
  }
  hr__contexts_stop_at_exit();
  hr_status_ignore(hr_thread_start("headrace-late", run_thread, queue, &queue->thread));
  return queue->thread.started;
}

/* ---- those who use it ---- */

void hr__late_begin(hr_late *late, void (*make)(void *arg), void *arg) {
  hr_late_queue *queue = queue_of(hr__context());
  *late = (hr_late){.make = make, .arg = arg, .queue = queue};
  hr_mutex_lock(&queue->mutex);
  if (has_thread(queue)) {
    late->before = queue->last;
    *(queue->last != NULL ? &queue->last->next : &queue->first) = late;
    queue->last = late;
    late->is_waiting = true;
    atomic_store_explicit(&late->is_begun, true, memory_order_relaxed);
    hr_cond_signal(&queue->wake);
  }
  hr_mutex_unlock(&queue->mutex);
}

void hr__late_claim(hr_late *late) {
  if (!atomic_load_explicit(&late->is_begun, memory_order_relaxed)) { /* written by claimers alone */
    return;
  }
  hr_late_queue *queue = late->queue;
  hr_mutex_lock(&queue->mutex);
  if (late->is_waiting) {
    unlink(queue, late);
  } else if (queue->current == late) {
    int64_t begin = hr_clock_ns();
    while (queue->current == late) {
      hr_cond_wait(&queue->done, &queue->mutex);
    }
    atomic_fetch_add(&queue->waited_ns, hr_clock_ns() - begin);
  }
  atomic_store_explicit(&late->is_begun, false, memory_order_relaxed);
  hr_mutex_unlock(&queue->mutex);
}

void hr__late_note(int64_t ns) {
  atomic_fetch_add(&queue_of(hr__context())->waited_ns, ns);
}

void hr__late_count(hr_late_counts *out_counts) {
  const hr_late_queue *queue = queue_of(hr__context());
  out_counts->made_ns = atomic_load(&queue->made_ns);
  out_counts->waited_ns = atomic_load(&queue->waited_ns);
}
