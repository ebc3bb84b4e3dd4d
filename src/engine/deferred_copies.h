/* deferred_copies.h: copies that a commit leaves to the next one.
 *
 *   pending    %3 = conv_backward_weight(%1, %2)      committed   the same; %3 counts as dead
 *              %4 = mul(%3, $0)
 *              %4 = all_reduce(%4)                    pending     %3 = copy(%4)
 *              %3 = copy(%4)
 *              %0 = sub_scaled(%0, %3, $1)
 *
 * DistributedDataParallel copies averages from its buckets to the gradients. In the committed program the readers of
 * such a copy read its source. Usually the gradient dies before the next commit, so that the copy never runs, and the
 * gradient never gets memory.
 *
 * A copy is deferred if
 *   - it writes all of a buffer that had no contents before the trace and is visible afterwards;
 *   - a function has written its source, which is visible, too;
 *   - no later record writes one of the two.
 *
 * If the committed program fails, the caller drops the pending copies, and their results are invalid.
 */
#ifndef HEADRACE_ENGINE_DEFERRED_COPIES_H_
#define HEADRACE_ENGINE_DEFERRED_COPIES_H_

#include "engine/trace.h"

/* Repeats such copies of `trace` in `rest`, which is empty, and notes their buffers in the trace. Without host memory
 * the remaining ones are not deferred. */
void hr__defer_copies(hr_trace *trace, hr_trace *rest);
/* After a commit that failed: the copies are the trace's alone again. */
void hr__recall_copies(hr_trace *trace, hr_trace *rest);

#endif
