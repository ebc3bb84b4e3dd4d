/* default_layout.h: returns buffers with a layout of the compiler's (hr_program_buffer::layout) to the default layout.
 *
 * A buffer that outlives the program that made it may carry a layout to later programs, which use it. Some uses can't:
 * an address, a copy to the host, or a program with another view. They return the buffer to its default layout once.
 * Its bytes are permuted, never computed with.
 */
#ifndef HEADRACE_ENGINE_DEFAULT_LAYOUT_H_
#define HEADRACE_ENGINE_DEFAULT_LAYOUT_H_

#include "engine/stream.h"

/* Returns the buffer to its default layout, after all submitted work. The stream is locked. */
HR_MUST_USE hr_status hr__stream_restore_default_layout(hr_stream *stream, hr_buffer *buffer, bool will_wait);

#endif
