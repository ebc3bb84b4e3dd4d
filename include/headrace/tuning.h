/* tuning.h: which algorithm of a library runs an operation.
 *
 * A stream picks algorithms by an estimate, or as measured: in this process where a device replays programs as a whole,
 * or by an earlier process that left its result in the tuning cache. Algorithms differ in rounding. HEADRACE_TUNING
 * sets the same for a whole process.
 */
#ifndef HEADRACE_TUNING_H_
#define HEADRACE_TUNING_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True: nothing is measured or read from the tuning cache for programs that the stream compiles from here on, so that
 * every process of one machine picks the same algorithms. Commits what is pending; programs that were compiled before
 * are dropped. */
HR_API HR_MUST_USE hr_status hr_stream_set_deterministic(hr_stream *stream, bool is_deterministic);

#ifdef __cplusplus
}
#endif

#endif
