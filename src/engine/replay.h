/* replay.h: an instance's launches as graphs of the driver, so that a repeated program is launched as a whole.
 *
 * The steps are split into segments that a graph can hold: kernels, and library calls whose operands are addresses
 * alone. A check of indices, which waits for the device, ends a segment. A run with addresses that were seen before is
 * captured, segment by segment; later runs with these addresses launch the graphs. Scalars may differ from run to run:
 * kernels with changed scalars are updated first. A few sets of addresses have graphs at a time; other runs go step by
 * step, as does everything after the first failure of a capture.
 *
 * Threads: the thread that runs the stream's jobs, one at a time. Create and release while no job has the instance.
 */
#ifndef HEADRACE_ENGINE_REPLAY_H_
#define HEADRACE_ENGINE_REPLAY_H_

#include "engine/run_scratch.h"

/* NULL if nothing is worth a graph, if the device has none, or if there is no host memory. */
hr_replay *hr__replay_create(const hr_instance *instance, hr_device *device);
/* NULL: nothing. The kernels and prepared libraries that the graphs launch must still exist. */
void hr__replay_release(hr_replay *replay);

/* Runs all steps of an instance that has a replay; the scratch is bound. */
HR_MUST_USE hr_status hr__replay_run(const hr_instance *instance, hr_run *run, hr_run_scratch *scratch);

#endif
