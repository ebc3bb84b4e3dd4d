/* prefix.h: the part of a trace that still runs when memory is short.
 *
 * A program that can't have its memory does not run at all, but the records in front of the one that asks for too much
 * have been recorded before it: a training loop catches the error, halves the batch and goes on, and the step of the
 * optimizer before it counts. So they run, as a program of their own. The records behind are dropped first: what only
 * they would have read is dead in that program.
 *
 * The longest prefix is found by bisection, each half of it compiled and given its memory for a try.
 */
#ifndef HEADRACE_ENGINE_PREFIX_H_
#define HEADRACE_ENGINE_PREFIX_H_

#include "engine/stream.h"

/* The pending records have failed with `status`, which is consumed, and nothing of them has run. Runs what can be run
 * of them if memory was short; drops all others and invalidates their results. Returns the failure, when all work that
 * was handed over has run. The stream is locked. */
HR_MUST_USE hr_status hr__stream_run_prefix(hr_stream *stream, hr_status status);

#endif
