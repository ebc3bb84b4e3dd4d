/* The queue: a linked list under a mutex. The thread spins for a few microseconds before it sleeps: waking it costs
 * more than most gaps between the commits of a loop. */
#include "runtime/queue.h"

#include <limits.h>

#include "base/team.h"

enum { SPIN_ROUNDS = 200 };

void hr_queue_init(hr_queue *queue) {
  *queue = (hr_queue){.context = hr__context()};
  hr_mutex_init(&queue->mutex);
  hr_cond_init(&queue->wake);
  hr_cond_init(&queue->done);
}

static void run_job(hr_queue *queue, hr_queue_job *job) {
  hr_context *before = hr__context_enter(queue->context);
  job->run(job);
  (void)hr__context_enter(before);
}

/* Called with the mutex held, which is released while a job runs. */
static void finish_job(hr_queue *queue) {
  queue->is_running = false;
  atomic_fetch_add_explicit(&queue->completed, 1, memory_order_release);
  hr_cond_broadcast(&queue->done);
}

static void run_next(hr_queue *queue) {
  hr_queue_job *job = queue->first;
  queue->first = job->next;
  if (queue->first == NULL) {
    queue->last = NULL;
  }
  queue->pending -= !job->is_note;
  queue->is_running = true;
  hr_mutex_unlock(&queue->mutex);
  run_job(queue, job);
  hr_mutex_lock(&queue->mutex);
  finish_job(queue);
}

/* Spins until a job arrives or the time is up. */
static void spin(hr_queue *queue) {
  uint64_t done = atomic_load_explicit(&queue->completed, memory_order_relaxed);
  for (int i = 0; i < SPIN_ROUNDS && atomic_load_explicit(&queue->pushed, memory_order_relaxed) == done; ++i) {
    hr_thread_relax();
  }
}

static void run_thread(void *arg) {
  hr_queue *queue = arg;
  hr_mutex_lock(&queue->mutex);
  for (;;) {
    if (queue->first != NULL && !queue->is_running) {
      run_next(queue);
      if (queue->first == NULL && !queue->stop) {
        hr_mutex_unlock(&queue->mutex);
        spin(queue);
        hr_mutex_lock(&queue->mutex);
      }
    } else if (queue->first != NULL && atomic_load_explicit(&queue->early_job, memory_order_relaxed) != NULL) {
      hr_mutex_unlock(&queue->mutex);
      hr_queue_settle(queue);
      hr_mutex_lock(&queue->mutex);
    } else if (queue->first == NULL && queue->stop) {
      break;
    } else {
      hr_cond_wait(&queue->wake, &queue->mutex);
    }
  }
  hr_mutex_unlock(&queue->mutex);
}

/* Runs the pending jobs and ends the thread. Until `stop` is false again, jobs run on the thread that pushes them.
 * Returns the previous value of `stop`. */
static bool end_thread(hr_queue *queue) {
  hr_queue_settle(queue);
  hr_mutex_lock(&queue->mutex);
  bool stop = queue->stop;
  hr_thread thread = queue->thread;
  queue->thread = (hr_thread){0};
  queue->stop = true;
  hr_cond_broadcast(&queue->wake);
  hr_mutex_unlock(&queue->mutex);
  hr_thread_join(&thread);
  return stop;
}

void hr_queue_stop(hr_queue *queue) {
  bool is_closed = end_thread(queue);
  hr_mutex_lock(&queue->mutex);
  queue->stop = is_closed;
  hr_mutex_unlock(&queue->mutex);
}

void hr_queue_close(hr_queue *queue) {
  hr_queue_drain(queue);
  (void)end_thread(queue);
}

void hr_queue_fini(hr_queue *queue) {
  hr_cond_fini(&queue->wake);
  hr_cond_fini(&queue->done);
  hr_mutex_fini(&queue->mutex);
}

/* Called with the mutex held: runs the job on this thread, after everything before it. */
static void run_here(hr_queue *queue, hr_queue_job *job) {
  while (queue->is_running || queue->first != NULL) {
    hr_cond_wait(&queue->done, &queue->mutex);
  }
  queue->is_running = true;
  hr_mutex_unlock(&queue->mutex);
  run_job(queue, job);
  hr_mutex_lock(&queue->mutex);
  finish_job(queue);
}

/* Called with the mutex held; false if there can be no thread. */
static bool has_thread(hr_queue *queue) {
  if (!queue->thread.started && !queue->stop) {
    hr_status_ignore(hr_thread_start("headrace-run", run_thread, queue, &queue->thread));
  }
  return queue->thread.started;
}

/* Called with the mutex held. */
static void append(hr_queue *queue, hr_queue_job *job) {
  job->next = NULL;
  if (queue->last != NULL) {
    queue->last->next = job;
  } else {
    queue->first = job;
  }
  queue->last = job;
  queue->pending += !job->is_note;
  hr_cond_signal(&queue->wake);
}

/* A job that was begun early is ended by the thread, so that the caller need not wait for it. */
uint64_t hr_queue_push_within(hr_queue *queue, hr_queue_job *job, int limit) {
  hr_mutex_lock(&queue->mutex);
  bool has = has_thread(queue);
  while (queue->pending >= limit) {
    hr_cond_wait(&queue->done, &queue->mutex);
  }
  uint64_t number = atomic_fetch_add_explicit(&queue->pushed, 1, memory_order_relaxed) + 1;
  if (has) {
    append(queue, job);
    hr_mutex_unlock(&queue->mutex);
    return number;
  }
  hr_mutex_unlock(&queue->mutex);
  hr_queue_settle(queue);
  hr_mutex_lock(&queue->mutex);
  run_here(queue, job);
  hr_mutex_unlock(&queue->mutex);
  return number;
}

uint64_t hr_queue_push(hr_queue *queue, hr_queue_job *job) {
  job->is_note = false;
  return hr_queue_push_within(queue, job, HR_QUEUE_LIMIT);
}

uint64_t hr_queue_push_note(hr_queue *queue, hr_queue_job *job) {
  job->is_note = true;
  return hr_queue_push_within(queue, job, INT_MAX);
}

/* Called with the mutex held. */
static bool is_idle(const hr_queue *queue) {
  return !queue->is_running && queue->first == NULL;
}

bool hr_queue_has_room(hr_queue *queue, int count) {
  hr_mutex_lock(&queue->mutex);
  bool has_room = queue->pending + count <= HR_QUEUE_LIMIT;
  hr_mutex_unlock(&queue->mutex);
  return has_room;
}

bool hr_queue_wait_for_room(hr_queue *queue, int64_t deadline_ns) {
  hr_mutex_lock(&queue->mutex);
  bool is_early = true;
  while (queue->pending >= HR_QUEUE_LIMIT && is_early) {
    is_early = hr_cond_wait_until(&queue->done, &queue->mutex, deadline_ns);
  }
  bool has_room = queue->pending < HR_QUEUE_LIMIT;
  hr_mutex_unlock(&queue->mutex);
  return has_room;
}

bool hr_queue_begin_inline(hr_queue *queue) {
  hr_queue_settle(queue);
  hr_mutex_lock(&queue->mutex);
  bool is_free = is_idle(queue);
  if (is_free) {
    queue->is_running = true;
    atomic_fetch_add_explicit(&queue->pushed, 1, memory_order_relaxed);
  }
  hr_mutex_unlock(&queue->mutex);
  return is_free;
}

void hr_queue_end_inline(hr_queue *queue) {
  hr_mutex_lock(&queue->mutex);
  finish_job(queue);
  if (queue->first != NULL) {
    hr_cond_signal(&queue->wake);
  }
  hr_mutex_unlock(&queue->mutex);
}

bool hr_queue_submit_early(hr_queue *queue, hr_queue_job *job, void (*work)(void *job)) {
  hr_mutex_lock(&queue->mutex);
  hr_context *before = hr__context_enter(queue->context);
  bool is_early = is_idle(queue) && !queue->stop && hr__team_submit_early(work, job, &queue->early);
  (void)hr__context_enter(before);
  if (is_early) {
    queue->is_running = true;
    atomic_fetch_add_explicit(&queue->pushed, 1, memory_order_relaxed);
    atomic_store_explicit(&queue->early_job, job, memory_order_release);
  }
  hr_mutex_unlock(&queue->mutex);
  return is_early;
}

void hr_queue_settle(hr_queue *queue) {
  if (atomic_load_explicit(&queue->early_job, memory_order_relaxed) == NULL) {
    return;
  }
  hr_mutex_lock(&queue->mutex);
  hr_queue_job *job = atomic_exchange(&queue->early_job, NULL);
  uint64_t early = queue->early;
  hr_mutex_unlock(&queue->mutex);
  if (job != NULL) {
    hr__team_join(early);
    run_job(queue, job);
    hr_queue_end_inline(queue);
  }
}

static bool has_ended(const hr_queue *queue, uint64_t number) {
  return atomic_load_explicit(&queue->completed, memory_order_acquire) >= number;
}

/* Finishes a job that was submitted early and spins for a while; false: the job has not ended yet. */
static bool wait_briefly(hr_queue *queue, uint64_t number) {
  hr_queue_settle(queue);
  for (int i = 0; i < SPIN_ROUNDS; ++i) {
    if (has_ended(queue, number)) {
      return true;
    }
    hr_thread_relax();
  }
  return false;
}

void hr_queue_wait(hr_queue *queue, uint64_t number) {
  if (wait_briefly(queue, number)) {
    return;
  }
  hr_mutex_lock(&queue->mutex);
  while (!has_ended(queue, number)) {
    hr_cond_wait(&queue->done, &queue->mutex);
  }
  hr_mutex_unlock(&queue->mutex);
}

bool hr_queue_wait_until(hr_queue *queue, uint64_t number, int64_t deadline_ns) {
  if (wait_briefly(queue, number)) {
    return true;
  }
  hr_mutex_lock(&queue->mutex);
  bool is_early = true;
  while (!has_ended(queue, number) && is_early) {
    is_early = hr_cond_wait_until(&queue->done, &queue->mutex, deadline_ns);
  }
  hr_mutex_unlock(&queue->mutex);
  return has_ended(queue, number);
}

void hr_queue_drain(hr_queue *queue) {
  hr_queue_wait(queue, atomic_load_explicit(&queue->pushed, memory_order_relaxed));
}

/* ---- forks ---- */

bool hr_queue_begin_fork(hr_queue *queue, int64_t deadline_ns) {
  hr_queue_settle(queue);
  if (!hr__mutex_lock_until(&queue->mutex, deadline_ns)) {
    return false;
  }
  bool is_early = true;
  while (!is_idle(queue) && is_early) {
    is_early = hr_cond_wait_until(&queue->done, &queue->mutex, deadline_ns);
  }
  if (!is_idle(queue)) {
    hr_mutex_unlock(&queue->mutex);
    return false;
  }
  return true;
}

static void forget_thread(hr_queue *queue) {
  queue->thread = (hr_thread){0};
  hr_cond_init(&queue->wake);
  hr_cond_init(&queue->done);
}

void hr_queue_end_fork(hr_queue *queue, bool is_child) {
  if (is_child) {
    forget_thread(queue);
  }
  hr_mutex_unlock(&queue->mutex);
}

void hr_queue_lose(hr_queue *queue) {
  hr_mutex_init(&queue->mutex);
  forget_thread(queue);
  queue->first = queue->last = NULL;
  queue->pending = 0;
  queue->is_running = false;
  queue->stop = true;
  atomic_store(&queue->early_job, NULL);
  atomic_store(&queue->completed, atomic_load(&queue->pushed));
}
