/* part.h: captured records, which can be appended to a stream repeatedly.
 *
 * For a part of a program that repeats (torch.compile traces find these), a frontend records the part once on a
 * *capture*, a stream that runs nothing, and creates an hr_part from it. Running the part appends its records to a
 * stream with the run's buffers in place of the captured ones, as if they had been recorded one by one, at a cost of a
 * few nanoseconds a record. So the records of a part form one trace with their neighbours in the stream: they are
 * fused, cached, ordered, and fail like all others. Nothing of a part is compiled before the stream commits it.
 *
 *   capture    hr_capture_create, hr_stream_record ..., hr_part_create, hr_stream_release
 *   run        hr_part_run(stream, part, parameters, results, arguments), hr_part_submit_early(stream, part) ...
 *
 * The buffers of a part are
 *   parameters  passed to each run, in the order of the spec; read, or written in place
 *   results     created by the frontend for each run, without memory; bound when the stream commits
 *   constants   had memory when the part was made; the part retains them and may not write them
 *   temporaries all others; each run has its own, invisible outside of it
 *
 * Threads: a part never changes; a capture belongs to one thread at a time.
 */
#ifndef HEADRACE_PART_H_
#define HEADRACE_PART_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_part hr_part;

enum { HR_PART_READS = 1, HR_PART_WRITES = 2 };

/* A stream that accepts records and hr_stream_write, and never commits. Functions that would wait for a value fail with
 * FAILED_PRECONDITION; hr_stream_set_mode has no effect. The caller owns one reference (hr_stream_release). */
HR_API HR_MUST_USE hr_status hr_capture_create(hr_device *device, hr_stream **out_capture);
/* The number of captured scalars. The next record's scalars are numbered from here: first its attributes', then the
 * numbers among its operands. */
HR_API int64_t hr_capture_scalar_count(hr_stream *capture);
/* The captured scalar with this number; a false bool if there is none. */
HR_API hr_scalar hr_capture_scalar(hr_stream *capture, int64_t index);

/* Gives the records that were captured since the last call an origin, which their runs have in profiles
 * (hr_profile_origin). Nothing happens on other streams. */
HR_API void hr_capture_origin(hr_stream *capture, uint32_t origin);

/* The buffers of the captured records, in the order of their first use; borrowed. If a backward pass is captured on a
 * second capture, the buffers in both are those that the first part has to keep for the second. */
HR_API int64_t hr_capture_buffer_count(hr_stream *capture);
HR_API hr_buffer *hr_capture_buffer(hr_stream *capture, int64_t index);
/* True if nothing but the captured records holds buffer `index`: a part may make it a temporary. */
HR_API bool hr_capture_holds_alone(hr_stream *capture, int64_t index);
/* True if the captured records use the buffer. */
HR_API bool hr_capture_uses(hr_stream *capture, const hr_buffer *buffer);
/* True if the buffer has memory, so that a part would retain it as a constant. */
HR_API bool hr_buffer_has_memory(const hr_buffer *buffer);

/* The interface of a part: recorded buffers, by role. A buffer that no record uses is allowed. */
typedef struct hr_part_spec {
  int param_count, result_count, argument_count;
  hr_buffer *const *params;  /* each once */
  hr_buffer *const *results; /* each once; no parameter, and without memory */
  const int64_t *arguments;  /* indices of the scalars that each run passes; all others stay as captured */
} hr_part_spec;

/* Makes a part of all captured records and empties the capture. The caller owns one reference. FAILED_PRECONDITION if a
 * record writes a constant, or reads contents that come from neither a parameter nor an earlier record; the capture
 * then stays as it was. */
HR_API HR_MUST_USE hr_status hr_part_create(hr_stream *capture, const hr_part_spec *spec, hr_part **out_part);
/* Adds and drops a reference; NULL is fine. */
HR_API void hr_part_retain(hr_part *part);
HR_API void hr_part_release(hr_part *part);
/* The number of captured records. */
HR_API int64_t hr_part_record_count(const hr_part *part);
/* The host memory of the records; buffers are not counted. */
HR_API int64_t hr_part_host_bytes(const hr_part *part);
/* The use of parameter `param` by a run: a sum of HR_PART_READS and HR_PART_WRITES, or 0. A run accepts NULL for an
 * unused parameter. */
HR_API int hr_part_param_use(const hr_part *part, int param);

/* Appends the part to a stream of its device. Parameters are at least as large (in bytes) as the captured ones; one
 * buffer may stand for several. Arguments have the captured kinds. Errors are those of hr_stream_record; on failure
 * nothing is appended. */
HR_API HR_MUST_USE hr_status hr_part_run(hr_stream *stream, const hr_part *part, hr_buffer *const *params,
                                         hr_buffer *const *results, const hr_scalar *arguments);

/* To be called after hr_part_run, when the caller has released the buffers that it will not read: buffers that are
 * still held are stored. On a device beside the host, submits the pending work if the device may be idle: the first
 * part since a wait, or when much is pending. A large result waits for its readers, so that it need not be stored if it
 * dies. Failures are reported by the next wait. */
HR_API void hr_part_submit_early(hr_stream *stream, const hr_part *part);

#ifdef __cplusplus
}
#endif

#endif
