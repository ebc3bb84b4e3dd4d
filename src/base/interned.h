/* interned.h: immutable blocks of bytes, of which equal ones exist once in a process.
 *
 * Kernels of one structure have equal lists: steps, registers, names. Cached programs have thousands of such kernels.
 * A block is counted: each request for its bytes is a reference. Threads: any.
 */
#ifndef HEADRACE_BASE_INTERNED_H_
#define HEADRACE_BASE_INTERNED_H_

#include <stdbool.h>
#include <stddef.h>

/* The block of these bytes, aligned to 16; +1. NULL when memory is out. Bytes of padding count, too. */
const void *hr_interned_acquire(const void *bytes, size_t count);
/* One more reference to a block. */
void hr_interned_retain(const void *block);
void hr_interned_release(const void *block); /* NULL: nothing */
/* The block's host memory, divided by its references. */
size_t hr_interned_share(const void *block);
/* Blocks in use, for tests. */
size_t hr_interned_count(void);

#endif
