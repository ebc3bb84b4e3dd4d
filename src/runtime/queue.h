/* queue.h: the work of one device, in order, on one thread.
 *
 * Jobs run one after another in the order in which they were pushed. The thread starts with the first push and owns the
 * thread team of parallel loops, because a team costs more when two host threads use it in turn. A caller that would
 * wait anyway may run its job on its own thread when nothing is queued or running: begin_inline, end_inline. And a
 * caller that will wait soon may have a thread of the team begin (lead): whoever uses the queue next takes part, and
 * ends the job.
 *
 * Pushing waits while HR_QUEUE_LIMIT jobs are pending, so that a host that only records can't run away from the device.
 * Threads: any; a job must not push to its own queue or wait for it.
 */
#ifndef HEADRACE_RUNTIME_QUEUE_H_
#define HEADRACE_RUNTIME_QUEUE_H_

#include <stdatomic.h>

#include "base/context.h"
#include "base/thread.h"

enum { HR_QUEUE_LIMIT = 4 };

typedef struct hr_queue_job {
  void (*run)(struct hr_queue_job *job); /* owns the job from here on */
  struct hr_queue_job *next;
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
  _Atomic(hr_queue_job *) led;     /* begun, and nobody has ended it yet; it is_running */
  uint64_t lead;                   /* of the team */
  atomic_uint_least64_t pushed;    /* jobs ever given, those run inline too */
  atomic_uint_least64_t completed; /* jobs ever ended */
} hr_queue;

/* Its jobs run in the context that is current here. */
void hr_queue_init(hr_queue *queue);
/* Runs what is pending, ends the thread. The queue may be used again afterwards. */
void hr_queue_stop(hr_queue *queue);
/* Waits for everything pushed so far, ends the thread for good: what comes later runs on the thread that pushes it. For
 * the end of the process. */
void hr_queue_close(hr_queue *queue);
/* Behind hr_queue_close. */
void hr_queue_fini(hr_queue *queue);
/* Appends a job; its number is the argument of hr_queue_wait. When no thread can be had, the job runs here. */
uint64_t hr_queue_push(hr_queue *queue, hr_queue_job *job);
/* True when nothing is queued or running: until end_inline the caller is the one who runs. */
bool hr_queue_begin_inline(hr_queue *queue);
void hr_queue_end_inline(hr_queue *queue);
/* When nothing is queued or running, and the team has a thread that is awake: it calls work(job), and job->run is
 * called when whoever uses the queue next has waited for that. `work` calls no library that has threads of its own. */
bool hr_queue_submit_early(hr_queue *queue, hr_queue_job *job, void (*work)(void *job));
/* Ends what was begun by hr_queue_submit_early, if something was. */
void hr_queue_settle(hr_queue *queue);
/* Waits until job `number` and all before it have ended. */
void hr_queue_wait(hr_queue *queue, uint64_t number);
/* The same, but returns false when hr_clock_ns reaches the deadline. */
bool hr_queue_wait_until(hr_queue *queue, uint64_t number, int64_t deadline_ns);
/* Waits until everything pushed so far has ended. */
void hr_queue_drain(hr_queue *queue);

#endif
