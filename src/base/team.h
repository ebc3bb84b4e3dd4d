/* team.h: a team of threads of our own, for parallel loops of a few microseconds.
 *
 * A loop costs its caller a store and a look at each worker's line of memory, where OpenMP's regions call the system twice. The
 * threads look out for the next loop for a while (TEAM_WATCH_NS) before they sleep, and nobody waits for one that sleeps or has lost
 * its core: the caller takes every share that its worker has not begun.
 *
 * Threads: one loop at a time. A child of fork has no team until its first loop.
 */
#ifndef HEADRACE_BASE_TEAM_H_
#define HEADRACE_BASE_TEAM_H_

#include "base/thread.h"

/* Runs a loop on `workers` threads at most, the caller among them; false when another thread's loop is running. */
bool hr__team_run(int64_t units, int workers, hr_range_fn fn, void *arg);
/* True inside of a loop of the team. */
bool hr__team_is_inside(void);
/* Has idle threads sleep at once, until the next loop: somebody else wants their cores. */
void hr__team_rest(void);

/* Runs the share of `worker` of `workers` shares, which differ by at most one unit. */
void hr__run_share(int64_t units, int workers, int worker, hr_range_fn fn, void *arg);

#endif /* HEADRACE_BASE_TEAM_H_ */
