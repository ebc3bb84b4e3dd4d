/* loop.h: captured records as the body of a loop, which is one operation of a stream.
 *
 * A frontend records one iteration on a capture (part.h) and makes a loop of it. The body is compiled once. The loop is
 * a function of function.h: hr_function_record with hr_loop_run and the loop as its argument. A run repeats the body's
 * kernels on the thread that runs the stream's work, and records nothing.
 *
 *   capture    hr_capture_create, hr_stream_record ..., hr_loop_create, hr_stream_release
 *   run        hr_function_record(stream, {.run = hr_loop_run, .arg = loop, .release = hr_loop_free}, ...)
 *
 * An iteration reads the carried values of the one before, one slice of each sequence, and values that stay. It
 * computes the next carried values, and one slice of each stacked result. All are row-major.
 *
 * Devices: those whose memory is the host's. Threads: any.
 */
#ifndef HEADRACE_LOOP_H_
#define HEADRACE_LOOP_H_

#include "headrace/function.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_loop hr_loop;

typedef struct hr_loop_spec {
  int carried_count, sequence_count;
  int param_count;           /* carried values, slices of the sequences, then values that stay */
  hr_buffer *const *params;  /* of the captured records; each once */
  int result_count;          /* next carried values, then slices of the stacked results */
  hr_buffer *const *results; /* the same, written by the records; no parameters */
  hr_buffer *number;         /* NULL, or where the body reads the iteration's number: one i64 */
  hr_buffer *condition;      /* NULL, or a bool that the body computes; false: the iteration is the last one */
  int64_t count_max;         /* the number of iterations, or with a condition its bound */
} hr_loop_spec;

/* Makes a loop of all captured records and empties the capture. The caller owns it. UNIMPLEMENTED for records that
 * cannot be repeated this way; the capture is then as it was, or empty. */
HR_API HR_MUST_USE hr_status hr_loop_create(hr_stream *capture, const hr_loop_spec *spec, hr_loop **out_loop);
/* Frees a loop (an hr_loop *); NULL is fine. */
HR_API void hr_loop_free(void *loop);
/* True if all its iterations take some 100 us at most: the function may be one that is_short (function.h). */
HR_API bool hr_loop_is_short(const hr_loop *loop);
/* The function. Inputs: with a condition a bool, true if there is a first iteration; carried values; sequences; values
 * that stay. Outputs: carried values at the end; stacked results. Its failures are those of the body's records, and
 * CANCELLED after hr_stream_interrupt. */
HR_API HR_MUST_USE hr_status hr_loop_run(const hr_function_call *call);

#ifdef __cplusplus
}
#endif

#endif
