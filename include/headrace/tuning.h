/* tuning.h: the choice of a library's algorithm for an operation.
 *
 * A stream chooses algorithms by an estimate or by measurements: its own, on devices that replay programs as a whole,
 * or those of an earlier process in the tuning cache. Algorithms differ in rounding. HEADRACE_TUNING sets the same for
 * a whole process.
 */
#ifndef HEADRACE_TUNING_H_
#define HEADRACE_TUNING_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True: nothing is measured or read from the tuning cache for programs that the stream compiles from here on, so that
 * every process of one machine picks the same algorithms. Commits pending operations; drops programs that were compiled
 * before. */
HR_API HR_MUST_USE hr_status hr_stream_set_deterministic(hr_stream *stream, bool is_deterministic);

#ifdef __cplusplus
}
#endif

#endif
