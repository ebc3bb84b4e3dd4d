// awaited.h: collectives in pending programs, for which other ranks wait.
//
// A collective that is a step of a program begins when the program is committed, mostly because the host needs a value.
// A host that waits for something else meanwhile, such as a barrier by another backend, might wait for a rank that
// waits for the collective. So hints to the stream follow: before the first collective of the next backward pass, and
// from a thread of their own while the last collective has not begun. Threads: any.
#pragma once

#include "job.h"

namespace headrace {

// Before a collective is recorded in a backward pass: those of earlier passes must not wait for its end.
void hint_due();
// After that.
void note_awaited(hr_stream *stream, std::shared_ptr<Outcome> outcome);
// Commits the collectives that are pending.
void commit_awaited();
// Before a collective in this stream: those of another one must have ended.
void end_awaited_of_others(hr_stream *stream);

} // namespace headrace
