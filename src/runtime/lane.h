/* lane.h: one of the sequences of work that a device runs beside each other.
 *
 * A lane consists of a queue with its thread, the driver's own queue (another opening of the device), and one block of
 * temporaries. The work of a lane runs in order. Between lanes only memory orders the work: each block notes which job
 * of which lane used it last.
 *
 *   a job       follows, of the other lanes,
 *   reads       the last job that wrote the block
 *   writes      the last jobs that used it
 *
 * The work of a driver with event_follow may still run when its job has ended. There an event of the driver's queue is
 * recorded at the end of a job, and the driver's queue of a job waits for the events of those that it follows. Lanes
 * that nobody follows record none: then an event is recorded when it is needed, and stands for later jobs as well.
 *
 * Jobs have tickets, numbers in their lane. A job that must follow others gets a note in front of it in its queue,
 * which waits until these are reached. A ticket is given when the device's order_mutex is held, and from then until the
 * push its lane's mutex. So the jobs of a device have one order, and each follows earlier ones alone.
 *
 * Lane 0 is the device's own, and belongs to its first stream. Others are opened for the streams after it. While there
 * is only one lane nothing is noted.
 *
 * Locks, in this order: a lane's mutex, the device's order_mutex, its bind_mutex, a queue's.
 */
#ifndef HEADRACE_RUNTIME_LANE_H_
#define HEADRACE_RUNTIME_LANE_H_

#include <stdatomic.h>

#include "runtime/queue.h"
#include "runtime/recent.h"

enum { HR_LANES_MAX = 4, HR_LANE_EVENTS = 32 };

struct hr_block;
struct hr_device;

/* A point of a lane's work on the device, at or after the end of the job with this ticket. */
typedef struct hr_lane_event {
  void *event; /* NULL until it is needed */
  atomic_uint_least64_t ticket;
} hr_lane_event;

typedef struct hr_lane {
  struct hr_device *device;
  int number;
  void *impl; /* the driver's; the device's own for lane 0; NULL: not opened */
  hr_queue queue;
  hr_mutex mutex;                /* held from choosing the block of temporaries until the job is in the queue */
  struct hr_block *shared;       /* temporaries and workspace of the running job; NULL until some are needed */
  hr_recent recent;              /* bytes that jobs needed of a large one */
  int streams;                   /* that have it; guarded by the device's streams_mutex */
  uint64_t handed;               /* the last ticket; guarded by the device's order_mutex */
  atomic_uint_least64_t reached; /* the last ticket whose job has ended */
  atomic_uint_least64_t submitted, ended; /* jobs given to a driver with flush; those of which a flush has returned */
  hr_lane_event *events;                  /* that of ticket t is at t % HR_LANE_EVENTS, or was; NULL: there are none */
  atomic_int watched; /* so many of the next jobs get an event, because others have followed the lane lately */
  atomic_uint_least64_t followed[HR_LANES_MAX]; /* tickets of other lanes that its work on the device follows */
} hr_lane;

/* A ticket of each lane; 0: none. */
typedef struct hr_tickets {
  uint64_t of[HR_LANES_MAX];
} hr_tickets;

/* The last uses of a block of memory. Guarded by the device's order_mutex. */
typedef struct hr_block_uses {
  hr_tickets last;
  uint64_t written; /* the last write: ticket * HR_LANES_MAX + lane */
} hr_block_uses;

/* Its jobs run in the context that is current here. */
void hr__lane_init(hr_lane *lane, struct hr_device *device, int number);
/* After hr_queue_close. Closes the driver's opening, unless it is the device's own. */
void hr__lane_fini(hr_lane *lane);

/* The lane of a new stream: the device's own unless a stream has it, else one of the others. */
hr_lane *hr__lane_choose(struct hr_device *device);
/* The stream is gone. */
void hr__lane_leave(hr_lane *lane);
/* The driver's opening that has this queue; NULL: none. A driver without queues has one opening. Any thread. */
void *hr__lane_opening(struct hr_device *device, const void *queue);

/* Grows the block of temporaries to at least `bytes` and returns its address. The caller holds the lane's mutex.
 * Growing drains the queue first, so that no job loses its temporaries. On failure the old block is gone as well. On a
 * host a large block of which less than half was needed for 10 seconds shrinks. */
HR_MUST_USE hr_status hr__lane_shared(hr_lane *lane, size_t bytes, void **out_address);
/* Drains the queue and frees the block of temporaries. The caller holds the lane's mutex. */
void hr__lane_free_shared(hr_lane *lane);

/* The ticket of the next job. Both mutexes are held. */
static inline uint64_t hr__lane_hand(hr_lane *lane) {
  return ++lane->handed;
}

/* A job, which the lane's queue runs, is about to end. */
void hr__lane_reach(hr_lane *lane, uint64_t ticket);

/* The driver has been given a job's work, which may run later. */
void hr__lane_note_submitted(hr_lane *lane);
/* Waits until the driver has run all work that it was given; the failure of that work, or of the device. */
HR_MUST_USE hr_status hr__lane_flush(hr_lane *lane);
/* True until a flush has returned after the last work that was submitted: it may still run. */
bool hr__lane_may_run(const hr_lane *lane);

/* Adds the tickets, of lanes other than `lane`, that a job with such a use must follow. Then notes the use. `lane` NULL
 * stands for the host: all lanes are others, and nothing is noted. Memory that is no buffer's needs no lock: its owner
 * notes the writes, and each lane its own reads. */
void hr__lane_use(const hr_lane *lane, uint64_t ticket, bool writes, hr_block_uses *uses, hr_tickets *tickets);
/* Work that is pushed to the lane from now on follows these tickets. Waits for nothing, unless there is no memory for a
 * note. Both mutexes are held. */
void hr__lane_follow(hr_lane *lane, const hr_tickets *tickets);
/* The same for work that this thread submits to the lane's driver; waits until the tickets are reached. */
void hr__lane_follow_here(hr_lane *lane, const hr_tickets *tickets);
/* The same for all work in the device's own queue (hr_device_queue), which a function of the host may have submitted.
 */
void hr__lane_follow_queue(hr_lane *lane);
bool hr__tickets_are_reached(const struct hr_device *device, const hr_tickets *tickets);
/* Waits until these tickets are reached; false if hr_clock_ns reaches the deadline before. */
bool hr__tickets_wait_until(struct hr_device *device, const hr_tickets *tickets, int64_t deadline_ns);
/* Waits until the work of these tickets, which are reached, has run. */
HR_MUST_USE hr_status hr__tickets_finish(struct hr_device *device, const hr_tickets *tickets);

/* Work that this thread submits to the lane's driver outside of a job: between the two calls it may use the block. It
 * comes after earlier uses, and other lanes' jobs with the block follow it. The lane's mutex is held in between. */
uint64_t hr__lane_begin_use(hr_lane *lane, bool writes, struct hr_block *block);
void hr__lane_end_use(hr_lane *lane, uint64_t ticket);

/* The team of parallel loops belongs to one job of a device at a time, the one that begins first. Loops of the others
 * run on their own threads (hr_parallel_set_alone); libraries with teams of their own still use these. True if the job
 * has the team. */
bool hr__lane_take_team(hr_lane *lane);
void hr__lane_return_team(hr_lane *lane, bool has_team);

#endif
