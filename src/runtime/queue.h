/* queue.h: the work of one device, in order, on one thread.
 *
 * Jobs run in the order in which they were pushed. The thread starts with the first push and owns the thread team of
 * parallel loops, because a team costs more when two host threads use it in turn. Two shortcuts avoid waiting for that
 * thread:
 *
 * - If nothing is queued or running, a caller that would wait anyway may run its job on its own thread: begin_inline,
 *   end_inline.
 * - A caller that will wait soon may start its job on a thread of the team (submit_early). The next user of the queue
 *   takes part in the job and finishes it.
 *
 * Pushing blocks while HR_QUEUE_LIMIT jobs are pending, which bounds how far a recording host gets ahead of the device.
 * The bound of work that somebody is called back for is HR_QUEUE_AHEAD. Notes, which only tell that they were reached,
 * have no bound and don't count.
 * Threads: any; a job must not push to its own queue or wait for it.
 */
#ifndef HEADRACE_RUNTIME_QUEUE_H_
#define HEADRACE_RUNTIME_QUEUE_H_

#include <stdatomic.h>

#include "base/context.h"
#include "base/thread.h"

enum { HR_QUEUE_LIMIT = 4, HR_QUEUE_AHEAD = 64 };

typedef struct hr_queue_job {
  void (*run)(struct hr_queue_job *job); /* owned by the job from here on */
  struct hr_queue_job *next;
  bool is_note; /* it doesn't count as pending */
} hr_queue_job;

typedef struct hr_queue {
  hr_context *context; /* in which jobs run */
  hr_mutex mutex;
  hr_cond wake; /* a job came, or stop */
  hr_cond done; /* a job ended */
  hr_queue_job *first, *last;
  int pending; /* waiting, not running */
  bool is_running, stop;
  hr_thread thread;
  _Atomic(hr_queue_job *) early_job; /* submitted early and not finished yet; is_running */
  uint64_t early;                    /* of the team */
  atomic_uint_least64_t pushed;      /* jobs ever given, those run inline too */
  atomic_uint_least64_t completed;   /* jobs ever ended */
} hr_queue;

/* Its jobs run in the context that is current here. */
void hr_queue_init(hr_queue *queue);
/* Runs pending work and ends the thread. The queue may be used again afterwards. */
void hr_queue_stop(hr_queue *queue);
/* Runs the pending jobs and ends the thread for good: later jobs run on the thread that pushes them. For the end of the
 * process. */
void hr_queue_close(hr_queue *queue);
/* Behind hr_queue_close. */
void hr_queue_fini(hr_queue *queue);
/* Appends a job and returns its number for hr_queue_wait. If no thread can be created, the job runs here. */
uint64_t hr_queue_push(hr_queue *queue, hr_queue_job *job);
/* The same with a limit of pending jobs of the caller's. */
uint64_t hr_queue_push_within(hr_queue *queue, hr_queue_job *job, int limit);
/* The same for a job that is short and keeps no memory of the device: it never waits for a place. */
uint64_t hr_queue_push_note(hr_queue *queue, hr_queue_job *job);
/* The process forks. Waits until all jobs have ended, and keeps the queue locked. False: they had not when hr_clock_ns
 * reached the deadline; the queue is not locked. */
bool hr_queue_begin_fork(hr_queue *queue, int64_t deadline_ns);
/* Unlocks it. A child's queue has no thread until the next push. */
void hr_queue_end_fork(hr_queue *queue, bool is_child);
/* In a child, behind hr_queue_begin_fork that was false: work and thread stayed in the parent. The queue is empty, and
 * runs later jobs on the thread that pushes them. */
void hr_queue_lose(hr_queue *queue);
/* True if all jobs given so far have ended. Takes no lock. */
static inline bool hr_queue_is_drained(const hr_queue *queue) {
  hr_queue *q = (hr_queue *)queue;
  return atomic_load_explicit(&q->completed, memory_order_acquire) ==
         atomic_load_explicit(&q->pushed, memory_order_relaxed);
}
/* True if `count` jobs can be pushed without waiting for a place. */
bool hr_queue_has_room(hr_queue *queue, int count);
/* Waits until a job can be pushed without waiting for a place; false: hr_clock_ns reached the deadline. */
bool hr_queue_wait_for_room(hr_queue *queue, int64_t deadline_ns);
/* True if nothing is queued or running: until end_inline the caller's thread runs the jobs. */
bool hr_queue_begin_inline(hr_queue *queue);
void hr_queue_end_inline(hr_queue *queue);
/* If nothing is queued or running and a thread of the team is awake, that thread calls work(job). The next user of the
 * queue waits for it, then calls job->run. `work` calls no library that has threads of its own. */
bool hr_queue_submit_early(hr_queue *queue, hr_queue_job *job, void (*work)(void *job));
/* Finishes a job started by hr_queue_submit_early, if there is one. */
void hr_queue_settle(hr_queue *queue);
/* Waits until job `number` and all before it have ended. */
void hr_queue_wait(hr_queue *queue, uint64_t number);
/* The same, but returns false when hr_clock_ns reaches the deadline. */
bool hr_queue_wait_until(hr_queue *queue, uint64_t number, int64_t deadline_ns);
/* Waits until everything pushed so far has ended. */
void hr_queue_drain(hr_queue *queue);

#endif
