/* index_source.h: ranges of indices that are known on the host, so that a check of them needs no read of the device.
 *
 *   %3 = nll_loss(.., %2)     the host wrote %2, with numbers from 0 to 9: all of them are below 10
 *   %4 = embedding(.., %1)    the host has read %1, the token before
 *   %5 = index_select(.., %4) %4 = arange(0, 1) of 1,024 elements
 *
 * A check (HR_STEP_CHECK) waits for the device, and the work after it begins only then. But labels and tokens come
 * from the host, and positions are counted. A known range may be wider than the indices in use, never narrower: it
 * covers all numbers of the buffer, as the host has written or read them. If it does not decide the check, the device's
 * result is read.
 *
 * Threads: any. The device's order_mutex guards the notes.
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

/* The source of the indices that a check covers. */
typedef struct hr_index_source {
  hr_index_source_kind kind;
  hr_dtype dtype;
  uint32_t buffer;      /* BUFFER */
  uint32_t start, step; /* COUNT: scalars of the program */
  int64_t count;
} hr_index_source;

/* Finds the source for CHECK_INDEX node `check` of a program in value form. */
hr_index_source hr__index_source_find(const hr_program *program, const hr_node *check);

/* Notes integers that are written to all bytes of a buffer without contents. Other dtypes are ignored. */
void hr__index_source_note(hr_buffer *buffer, hr_dtype dtype, const void *values, size_t bytes);

/* The same for all bytes of a buffer that the host has read. `stamp`: that of the buffer when the copy began. Nothing
 * is noted if it is another one by now, or if the buffer is larger than indices that a program looks at. */
enum { HR_INDEX_SEEN_BYTES_MAX = 4096 };
void hr__index_source_note_seen(hr_buffer *buffer, uint64_t stamp, hr_dtype dtype, const void *values, size_t bytes);

/* The smallest and the largest number that may be among the indices; false if unknown. `buffers` and `stamps` are the
 * run's (0: the run writes that buffer, or its address was given out), `values` those of the program's scalars. */
bool hr__index_source_range(const hr_index_source *source, hr_buffer *const *buffers, const uint64_t *stamps,
                            const hr_scalar *values, int64_t *out_min, int64_t *out_max);

#endif
