/* late.h: work that is put off until its result is needed, and that a thread of the context may do before.
 *
 * The thread takes the work in the order in which it was begun. A result must not depend on the thread that makes it.
 * It reports no failures: work without a result is repeated by whoever needs it, and fails there.
 *
 * There is no thread if the process has one core, or its loops one thread: then all work waits for its claim.
 */
#ifndef HEADRACE_BASE_LATE_H_
#define HEADRACE_BASE_LATE_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct hr_late_queue hr_late_queue; /* a context's */

/* Zeroed at first. It stays where it is from its begin to its claim. */
typedef struct hr_late {
  void (*make)(void *arg);
  void *arg;
  hr_late_queue *queue;
  struct hr_late *next, *before; /* while it waits for the thread */
  bool is_waiting;               /* guarded by the queue */
  atomic_bool is_begun;          /* and not yet claimed */
} hr_late;

typedef struct hr_late_counts {
  int64_t made_ns;   /* time that the thread spent */
  int64_t waited_ns; /* time for which claims waited, or that was noted */
} hr_late_counts;

/* Lets the current context's thread call make(arg). */
void hr__late_begin(hr_late *late, void (*make)(void *arg), void *arg);
/* When it returns, `make` has returned, or will never be called. Does nothing for what is not begun. */
void hr__late_claim(hr_late *late);
/* Counts time that a claimer has spent on such work itself. */
void hr__late_note(int64_t ns);
/* The current context's. */
void hr__late_count(hr_late_counts *out_counts);

#endif
