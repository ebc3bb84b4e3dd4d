/* shared_memory.h: memory of the host in a file, so that other processes can map it (headrace/share.h). */
#ifndef HEADRACE_RUNTIME_SHARED_MEMORY_H_
#define HEADRACE_RUNTIME_SHARED_MEMORY_H_

#include "headrace/share.h"
#include "runtime/buffer.h"

/* Moves a buffer with memory into a file, unless it lies in one; nobody uses the buffer meanwhile. `keeps_former`: the
 * former memory lives as long as the new one. The file stays the buffer's. */
HR_MUST_USE hr_status hr__buffer_move_to_file(hr_buffer *buffer, bool keeps_former, int *out_file);

#endif
