/* nccl_watch.h: finds calls of NCCL that do not end in time, which NCCL itself waits for forever.
 *
 * A call is noted before it is given to NCCL, whose functions may wait for other ranks too, and has an event of the
 * device behind it afterwards. Calls end in their order, so only the first one is looked at. */
#ifndef HEADRACE_NCCL_NCCL_WATCH_H_
#define HEADRACE_NCCL_NCCL_WATCH_H_

#include "base/thread.h"
#include "headrace/group.h"
#include "runtime/device.h"

enum { HR__NCCL_WATCHED = 32, HR__NCCL_NAME = 32 };

typedef struct hr__nccl_call {
  char name[HR__NCCL_NAME];
  int64_t timeout_ns, begin_ns, slow_ns; /* slow_ns: the age of the next on_slow */
  uint64_t number;
  void *event;      /* created once */
  bool is_enqueued; /* the event is recorded */
} hr__nccl_call;

typedef struct hr__nccl_watch {
  hr_device *device;
  /* Both are called on the watching thread: of a call that takes longer than a second, then less and less often; false
   * ends the watch. And once of a call that is late, which also does. */
  bool (*on_slow)(void *arg);
  void (*on_late)(void *arg, const hr__nccl_call *call);
  void *arg;
  hr_mutex mutex; /* guards what follows */
  hr_cond changed;
  hr_thread thread;
  hr__nccl_call calls[HR__NCCL_WATCHED]; /* a ring; if it is full, later calls are not watched: the first is late */
  unsigned first, count;
  uint64_t last_number;
  bool is_open; /* the last call is not enqueued yet, and others may join it */
  bool is_ending;
} hr__nccl_watch;

void hr__nccl_watch_init(hr__nccl_watch *watch, hr_device *device);
/* Starts the thread. */
HR_MUST_USE hr_status hr__nccl_watch_start(hr__nccl_watch *watch, bool (*on_slow)(void *arg),
                                           void (*on_late)(void *arg, const hr__nccl_call *call), void *arg);
/* Ends the thread and frees the events. */
void hr__nccl_watch_fini(hr__nccl_watch *watch);

/* A call begins. Those that begin together, before hr__nccl_watch_enqueued, count as one with the first one's name. */
void hr__nccl_watch_expect(hr__nccl_watch *watch, const hr_group_call *call);
/* The calls are in the queue of one of the device's openings, or have failed (`status`), and are not expected any more.
 */
void hr__nccl_watch_enqueued(hr__nccl_watch *watch, void *opening, hr_status status);

#endif
