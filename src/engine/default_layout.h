/* default_layout.h: buffers that the compiler has laid out (hr_program_buffer::layout) lie plain again.
 *
 * A buffer that outlives the program that made it may carry a layout to later programs, which follow it. Whoever can't,
 * an address, a copy to the host or a program with another view, has it made plain once. Its bytes are permuted, never
 * computed with.
 */
#ifndef HEADRACE_ENGINE_DEFAULT_LAYOUT_H_
#define HEADRACE_ENGINE_DEFAULT_LAYOUT_H_

#include "engine/stream.h"

/* Has the buffer's elements lie where views say, behind everything that was handed over. The stream is locked. */
HR_MUST_USE hr_status hr__stream_restore_default_layout(hr_stream *stream, hr_buffer *buffer, bool will_wait);

#endif
