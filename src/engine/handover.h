/* handover.h: results of library calls that a kernel takes in parts.
 *
 *   before   %g = matmul(%x, %y), all of it            after    rows 0 to 7 of %g, and of the update
 *            %p, %m, %v = update(%p, %m, %v, %g)                rows 8 to 15 ..
 *
 * An update waits for memory, which a product leaves idle. So the product's threads run the update on the rows that
 * they have just made, whose elements are in their caches, and request the other arrays' rows meanwhile. This is
 * decided when steps become launches, for a call and an element-wise kernel right behind it. The call runs the kernel
 * once that is compiled, and if its units are whole rows of the call's. Otherwise they run one after the other; bits
 * are the same.
 */
#ifndef HEADRACE_ENGINE_HANDOVER_H_
#define HEADRACE_ENGINE_HANDOVER_H_

#include "engine/instance.h"
#include "engine/run_scratch.h"

/* Bits of the arrays beside the result, among the first arguments of the next step's kernel, if that may take the
 * result of step `first`, a library's call; else 0. */
uint8_t hr__find_taker(const hr_instance *instance, int first);
/* The next step's kernel as a taker of the step's result; false while it is interpreted, or needs memory. */
bool hr__make_taker(const hr_exec_step *step, const hr_device *device, const hr_host_launch *launch,
                    hr_host_taker *out_taker);

#endif
