/* short_memory.h: the operation of a trace that had no memory, in the message of the failure.
 *
 *   the result f32[4000,4000] of add: cpu: out of memory: 64000000 bytes requested, ...
 *   temporaries, the largest f32[2500,2500] of matmul, jit(f)/dot_general model.py:7: cpu: out of memory: ...
 *
 * The place in the frontend's program follows if names of places are on (headrace/profile.h).
 */
#ifndef HEADRACE_ENGINE_SHORT_MEMORY_H_
#define HEADRACE_ENGINE_SHORT_MEMORY_H_

#include "engine/plan.h"

enum { HR_SHORT_OF_TEMPORARIES = -1 };

/* Names the operation that writes buffer `local` of the trace first, whose key and plan these are. Of temporaries the
 * largest one's is named, or if it is a workspace, that of the largest result. Takes over `status`, and returns it as
 * it is if no operation is found. */
HR_MUST_USE hr_status hr__short_memory_name(const hr_trace *trace, const hr_key *key, const hr_plan *plan,
                                            int64_t local, hr_status status);

#endif
