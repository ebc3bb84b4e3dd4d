/* team.h: our own thread team, for parallel loops of a few microseconds.
 *
 * A loop costs its caller one store and one read of each worker's cache line; an OpenMP region makes two system calls.
 * The threads spin for a while (TEAM_WATCH_NS) before they sleep. A loop never waits for a thread that sleeps or has
 * lost its core: the caller runs every share that its worker has not begun.
 *
 * A thread of the team may also run an *early job*: the work that the caller will wait for, before the caller waits.
 * Loops of that work run on the team. When the caller waits (joins), it becomes a worker like the others.
 *
 * Threads: one loop or early job at a time. A child of fork has no team until its first loop.
 */
#ifndef HEADRACE_BASE_TEAM_H_
#define HEADRACE_BASE_TEAM_H_

#include "base/thread.h"

/* Runs a loop on at most `workers` threads, including the caller; false if another thread's loop is running. */
bool hr__team_run(int64_t units, int workers, hr_range_fn fn, void *arg);
/* Runs `fn(arg)` on an idle thread of the team; pass *out_early to hr__team_join. False if nothing was started, because
 * the team is busy or asleep: waking a thread would take longer than it gains. `fn` must not call a library with
 * threads of its own. */
bool hr__team_submit_early(void (*fn)(void *arg), void *arg, uint64_t *out_early);
/* Returns when that job has run. Until then the caller runs shares of its loops, or the job itself if no thread has
 * begun it. Any thread may call it any number of times, except inside a loop or an early job. */
void hr__team_join(uint64_t early);
/* True on a thread that runs an early job, outside of its loops. */
bool hr__team_runs_early(void);
/* True inside of a loop of the team, and on a thread whose loops run on it alone. */
bool hr__team_is_inside(void);
/* Puts idle threads to sleep until the next loop, to free their cores. */
void hr__team_rest(void);
/* The same before a library that has its own team. For a while loops should run on that team, because its threads spin.
 */
void hr__team_leave_to_library(void);
bool hr__team_is_near_library(void);

/* Reports that the calling thread lost its core. After two losses in a short time the machine counts as crowded:
 * spinning threads, ours and a library's, sleep instead while that lasts. `now_ns` is a time of hr_clock_ns. */
void hr__team_note_loss(int64_t now_ns);
/* Checks every few milliseconds if another process took the calling thread's core since the last check. */
void hr__team_look_for_losses(int64_t now_ns);
bool hr__team_is_crowded(int64_t now_ns);

/* Counts a loop or a library's call of several threads (hr_parallel_peak_take). */
void hr__team_note_threads(int count);

/* fork.h's. The thread that forks ends its OpenMP team. */
void hr__parallel_begin_fork(void);
/* Called in a child: it has this thread alone. */
void hr__team_forget(void);

/* Runs the share of `worker` of `workers` shares, which differ by at most one unit. */
void hr__run_share(int64_t units, int workers, int worker, hr_range_fn fn, void *arg);

#endif /* HEADRACE_BASE_TEAM_H_ */
