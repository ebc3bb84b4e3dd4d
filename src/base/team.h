/* team.h: a team of threads of our own, for parallel loops of a few microseconds.
 *
 * A loop costs its caller a store and a look at each worker's line of memory, where OpenMP's regions call the system
 * twice. The threads look out for the next loop for a while (TEAM_WATCH_NS) before they sleep, and nobody waits for one
 * that sleeps or has lost its core: the caller takes every share that its worker has not begun.
 *
 * A thread of the team may also *lead*: it runs what the caller will wait for, and loops in there are the team's, while
 * the caller is still on its way to waiting. From then on the caller is a worker like the others.
 *
 * Threads: one loop, or lead, at a time. A child of fork has no team until its first loop.
 */
#ifndef HEADRACE_BASE_TEAM_H_
#define HEADRACE_BASE_TEAM_H_

#include "base/thread.h"

/* Runs a loop on `workers` threads at most, the caller among them; false when another thread's loop is running. */
bool hr__team_run(int64_t units, int workers, hr_range_fn fn, void *arg);
/* Has an idle thread of the team run `fn(arg)`; *out_lead is what hr__team_join takes. False when nothing was begun:
 * the team is busy, or its threads sleep, and waking one would take longer than what is gained. `fn` must not call a
 * library with threads of its own. */
bool hr__team_submit_early(void (*fn)(void *arg), void *arg, uint64_t *out_lead);
/* Returns when that has run; until then takes part in its loops, or runs it here if nobody has begun. By any threads,
 * as often as they like, but from inside of a loop or a lead. */
void hr__team_join(uint64_t lead);
/* True on a thread that leads, outside of its loops. */
bool hr__team_runs_early(void);
/* True inside of a loop of the team. */
bool hr__team_is_inside(void);
/* Has idle threads sleep at once, until the next loop: somebody else wants their cores. */
void hr__team_rest(void);
/* The same for a library that has a team of its own. For a while loops had better run on that one: its threads look out
 * for work. */
void hr__team_leave_to_library(void);
bool hr__team_is_near_library(void);

/* Others want the cores: threads that look out for work, ours and a library's, sleep instead while this lasts. A thread
 * that finds that it has lost its core says so; two losses in a short while count. `now_ns`: of hr_clock_ns. */
void hr__team_note_loss(int64_t now_ns);
/* Notes whether the calling thread was taken off its core since it was asked last. Looks every few milliseconds. */
void hr__team_look_for_losses(int64_t now_ns);
bool hr__team_is_crowded(int64_t now_ns);

/* Runs the share of `worker` of `workers` shares, which differ by at most one unit. */
void hr__run_share(int64_t units, int workers, int worker, hr_range_fn fn, void *arg);

#endif /* HEADRACE_BASE_TEAM_H_ */
