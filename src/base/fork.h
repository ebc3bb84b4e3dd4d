/* fork.h: the core in a process that forks.
 *
 * A child of fork has one thread, the one that called fork, and the memory as it was then. The core registers one
 * handler for all its state, because the order matters:
 *
 *   before     parts of contexts (context.h) in the order of their locks: each waits until its threads hold nothing of
 *              it, and locks itself; then the heap
 *   parent     unlocks all in reverse order
 *   child      unlocks all in reverse order; each part forgets its threads, which start again at the next use
 *
 * Waiting for a device's work has a bound: see engine/stream_fork.c.
 */
#ifndef HEADRACE_BASE_FORK_H_
#define HEADRACE_BASE_FORK_H_

#include <stdbool.h>

/* Registers the handlers below, once for the process; context.c has its state. False: the system refused, and a child
 * must not use the core. */
bool hr__fork_prepare(void);

/* The handlers. One thread at a time is between the first one and one of the others. */
void hr__fork_begin(void);
void hr__fork_end(void);
void hr__fork_end_in_child(void);

#endif
