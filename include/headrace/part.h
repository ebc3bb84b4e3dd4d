/* part.h: operations that were recorded once, to be appended to a stream again and again.
 *
 * A frontend that traces (torch.compile) knows that a part of a program repeats. It records that part once on a
 * *capture*, a stream that runs nothing, and makes a part of it. Running the part appends its records to a stream with
 * other buffers in the places of the captured ones: as if they had been recorded one by one, for a few nanoseconds
 * each. So what runs is one trace with whatever stands before and behind it in the stream: it is fused, cached,
 * ordered, and fails like everything else there. Nothing of a part is compiled before the stream commits it.
 *
 *   capture    hr_capture_create, hr_stream_record ..., hr_part_create, hr_stream_release
 *   run        hr_part_run(stream, part, parameters, results, arguments), hr_part_submit_early(stream, part) ...
 *
 * The buffers of a part are
 *   parameters  given to each run, in the order of the spec; read, or written in place
 *   results     made by the frontend for each run, without memory: bound when the stream commits
 *   constants   had memory when the part was made: the part keeps them; it may not write them
 *   temporaries all others; each run has its own, which nobody else sees
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

/* A stream without an end: takes records and hr_stream_write, never commits. What would wait for a value fails with
 * FAILED_PRECONDITION, and so does a change of mode. Released with hr_stream_release. */
HR_API HR_MUST_USE hr_status hr_capture_create(hr_device *device, hr_stream **out_capture);
/* How many scalars have been captured: the next record's are numbered from here, first its attributes', then the
 * numbers among its operands. */
HR_API int64_t hr_capture_scalar_count(hr_stream *capture);

/* The buffers that the captured records use, in the order of their first use; borrowed. A frontend that captures a
 * backward pass on a second capture finds in both what the first has to keep for the second. */
HR_API int64_t hr_capture_buffer_count(hr_stream *capture);
HR_API hr_buffer *hr_capture_buffer(hr_stream *capture, int64_t index);
/* Whether the captured records use a buffer. */
HR_API bool hr_capture_uses(hr_stream *capture, const hr_buffer *buffer);
/* Whether a buffer has memory, so that a part would keep it as a constant. */
HR_API bool hr_buffer_has_memory(const hr_buffer *buffer);

/* What the caller knows of a part. The buffers are those that were recorded; one that no record used may be named. */
typedef struct hr_part_spec {
  int param_count, result_count, argument_count;
  hr_buffer *const *params;  /* each once */
  hr_buffer *const *results; /* each once; no parameter, and without memory */
  const int64_t *arguments;  /* numbers of the scalars that each run passes; all others stay as captured */
} hr_part_spec;

/* Makes a part of everything that the capture holds, which is empty then. FAILED_PRECONDITION when a record writes a
 * constant, or reads contents that neither a parameter nor an earlier record gave; then the capture stays as it was. */
HR_API HR_MUST_USE hr_status hr_part_create(hr_stream *capture, const hr_part_spec *spec, hr_part **out_part);
/* Adds and drops a reference; NULL is fine. */
HR_API void hr_part_retain(hr_part *part);
HR_API void hr_part_release(hr_part *part);
/* The number of captured records. */
HR_API int64_t hr_part_record_count(const hr_part *part);
/* What running the part does with parameter `param`: HR_PART_READS and HR_PART_WRITES, or 0. A parameter that it does
 * not use may be NULL. */
HR_API int hr_part_param_use(const hr_part *part, int param);

/* Appends the part to a stream of its device. Parameters are at least as large as the captured ones, and may be one
 * buffer in several places; arguments are of the captured kinds. Errors are those of hr_stream_record. On failure
 * nothing has been appended. */
HR_API HR_MUST_USE hr_status hr_part_run(hr_stream *stream, const hr_part *part, hr_buffer *const *params,
                                         hr_buffer *const *results, const hr_scalar *arguments);

/* To be called after hr_part_run, when the caller has let go of buffers that it need not see any more: what is held is
 * stored. On a device beside the host, hands over what is pending, if the device may have nothing to do: the first part
 * since a wait, or when much is pending. A large result is not made yet, but together with what reads it; so it need
 * not be stored if it dies. Failures are reported by whoever waits. */
HR_API void hr_part_submit_early(hr_stream *stream, const hr_part *part);

#ifdef __cplusplus
}
#endif

#endif
