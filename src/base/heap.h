/* heap.h: the core's small blocks, apart from the C library's heap.
 *
 * Cached programs keep thousands of small blocks for long. In a heap that others use for large blocks that come and go,
 * such as results of several MB, they would stay between these and leave holes of free pages.
 *
 * Here all blocks of a chunk have one size, a *class*. Chunks lie in a reserved range of addresses, so that the chunk
 * of a block follows from its address; what describes a chunk lies apart from it. Pages of a few empty chunks are kept.
 * Larger blocks, and all if the system refuses the range, are the C library's.
 *
 * Threads: safe from any. A child of fork can go on with it, see hr__heap_before_fork.
 */
#ifndef HEADRACE_BASE_HEAP_H_
#define HEADRACE_BASE_HEAP_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/thread.h"

enum {
  HR_HEAP_CHUNK = 64 << 10, /* bytes */
  HR_HEAP_BLOCK_MAX = HR_HEAP_CHUNK,
  HR_HEAP_CLASSES = 48, /* 16 bytes apart up to 256, then four for each doubling */
  HR_HEAP_KEPT_MAX = 64 /* empty chunks */
};

typedef struct hr_heap_chunk hr_heap_chunk;

/* The chunks of blocks of one size. */
typedef struct hr_heap_class {
  hr_mutex mutex;
  hr_heap_chunk *open; /* the list of those with room */
  int64_t live;        /* blocks in use */
} hr_heap_class;

typedef struct hr_heap {
  hr_mutex mutex;              /* guards what follows; taken after a class's */
  atomic_uintptr_t base;       /* of the range; 0: there is none */
  size_t end, chunk_count;     /* chunks in the range, and those that were used so far */
  hr_heap_chunk *kept, *bare;  /* lists of empty chunks: with pages, and without */
  size_t kept_count;           /* in the first list */
  atomic_size_t busy;          /* chunks that are in no such list */
  atomic_int_least64_t others; /* blocks in use that are the C library's */
  hr_heap_class classes[HR_HEAP_CLASSES];
} hr_heap;

/* A zeroed heap has no range. */
void hr__heap_init(hr_heap *heap);
/* Reserves the range, or a smaller one; without any the blocks stay the C library's. */
void hr__heap_reserve(hr_heap *heap);

/* As malloc, realloc and free, whose `block` is not NULL. */
void *hr__heap_alloc(hr_heap *heap, size_t bytes);
void *hr__heap_realloc(hr_heap *heap, void *block, size_t bytes);
void hr__heap_free(hr_heap *heap, void *block);

/* Gives the pages of empty chunks back to the system. */
void hr__heap_trim(hr_heap *heap);
/* Blocks in use. */
int64_t hr__heap_live(hr_heap *heap);
/* Bytes of chunks whose pages the system may hold. */
size_t hr__heap_bytes(hr_heap *heap);

/* Lock all for a fork, and unlock in both processes. */
void hr__heap_before_fork(hr_heap *heap);
void hr__heap_after_fork(hr_heap *heap);

#endif
