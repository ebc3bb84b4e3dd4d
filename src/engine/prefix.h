/* prefix.h: runs the part of a trace that still has memory when memory is short.
 *
 * A program that can't have its memory does not run at all. But the records before the one that needs too much were
 * recorded before it: a training loop that catches the error, halves the batch and continues expects the earlier
 * optimizer step to be done. So they run as a program of their own. The later records are dropped first: values that
 * only those would have read are dead in that program.
 *
 * The longest prefix is found by bisection; each candidate is compiled and given its memory as a trial.
 */
#ifndef HEADRACE_ENGINE_PREFIX_H_
#define HEADRACE_ENGINE_PREFIX_H_

#include "engine/stream.h"

/* The pending records have failed with `status`, which is consumed, and none of them has run. If memory was short, runs
 * the longest prefix that can run. Drops all others and invalidates their results. Returns the failure, after all
 * submitted work has run. The stream is locked. */
HR_MUST_USE hr_status hr__stream_run_prefix(hr_stream *stream, hr_status status);

#endif
