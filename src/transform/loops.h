/* loops.h: composites as the records of their loops. */
#ifndef HEADRACE_TRANSFORM_LOOPS_H_
#define HEADRACE_TRANSFORM_LOOPS_H_

#include "headrace/hook.h"

/* Records the loops of a composite in place of it: the rows that its lowering emits, on the same buffers. *out_is_done:
 * false if these are no records, because they combine by index otherwise than by sums; then nothing is recorded. */
hr_status hr__record_loops(hr_stream *stream, const hr_hook_record *record, bool *out_is_done);

#endif
