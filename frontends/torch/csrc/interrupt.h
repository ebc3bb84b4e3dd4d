// interrupt.h: Ctrl-C, and any other signal whose Python handler raises, ends a wait for a device.
//
// Python runs signal handlers on the main thread, between two bytecodes. A wait in here is one bytecode, so the main
// thread checks for signals while it waits. The first handler that raises interrupts the stream; its exception is
// rethrown where the program waited.
#pragma once

#include <torch/csrc/Exceptions.h>

#include "headrace/stream.h"

namespace headrace {

// Makes waits for the stream end when a signal handler raises.
void watch_signals(hr_stream *stream);
// Throws the exception that a handler raised while this thread waited, if there is one.
void rethrow_raised();

} // namespace headrace
