/* index_source.h: indices that the host knows, so that a check of them needs no look at the device.
 *
 *   %3 = nll_loss(.., %2)     %2 was written by the host, which saw numbers from 0 to 9: all of them are below 10
 *   %5 = index_select(.., %4) %4 = arange(0, 1) of 1,024 elements
 *
 * A check (HR_STEP_CHECK) waits for the device, and what is behind it begins only then. Labels and tokens come from the
 * host, though, and positions are counted. What a check finds in that way may be less than the truth, never more:
 * numbers of a buffer are all that the host has ever put there, whichever of them are used. Where they don't answer,
 * the device is asked.
 *
 * Threads: noting, the stream's lock; asking, whoever runs the device's jobs.
 */
#ifndef HEADRACE_ENGINE_INDEX_SOURCE_H_
#define HEADRACE_ENGINE_INDEX_SOURCE_H_

#include "core/ir/program.h"
#include "runtime/buffer.h"

typedef enum hr_index_source_kind {
  HR_INDEX_UNKNOWN = 0,
  HR_INDEX_BUFFER, /* elements of a caller's buffer, as they were before the program */
  HR_INDEX_COUNT   /* start, start + step, .. */
} hr_index_source_kind;

/* Where the indices come from that a check looks at. */
typedef struct hr_index_source {
  hr_index_source_kind kind;
  hr_dtype dtype;
  uint32_t buffer;      /* BUFFER */
  uint32_t start, step; /* COUNT: scalars of the program */
  int64_t count;
} hr_index_source;

/* Finds out for CHECK_INDEX node `check` of a program in value form. */
hr_index_source hr__index_source_find(const hr_program *program, const hr_node *check);

/* Integers are being written to a buffer that had no contents: all of its bytes. Other dtypes are not looked at. */
void hr__index_source_note(hr_buffer *buffer, hr_dtype dtype, const void *values, size_t bytes);

/* The smallest and the largest number that may be among the indices; false: nobody knows. `buffers` and `stamps` are
 * the run's (0: the run writes that buffer, or somebody has its address), `values` those of the program's scalars. */
bool hr__index_source_range(const hr_index_source *source, hr_buffer *const *buffers, const uint64_t *stamps,
                            const hr_scalar *values, int64_t *out_min, int64_t *out_max);

#endif
