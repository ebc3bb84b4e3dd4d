/* Host memory: the only functions through which the core allocates it.
 *
 * `hr_malloc` and its family use the core's own heap (heap.h), or a table that tests, and embedders with a heap of
 * their own, install. They count the blocks alive and can be made to fail, so that tests reach every out-of-memory
 * path.
 *
 * Tensor data does not come from here: a device's allocator owns it.
 * Threads: safe from any thread. Only replacing the table is not, and requires that no block is alive.
 */
#ifndef HEADRACE_BASE_ALLOCATOR_H_
#define HEADRACE_BASE_ALLOCATOR_H_

#include <stddef.h>
#include <stdint.h>

/* A heap. Blocks are aligned for any scalar type; `bytes` is never 0. */
typedef struct hr_allocator {
  void *(*alloc)(void *ctx, size_t bytes);                /* NULL when there is none */
  void *(*realloc)(void *ctx, void *block, size_t bytes); /* NULL leaves `block` as it was; `block` may be NULL */
  void (*free)(void *ctx, void *block);                   /* `block` is never NULL */
  void *ctx;
} hr_allocator;

/* A block of at least `bytes` bytes (0 counts as 1), or NULL. */
void *hr_malloc(size_t bytes) __attribute__((malloc));
/* A zeroed array, or NULL, also when the product overflows. */
void *hr_calloc(size_t count, size_t size) __attribute__((malloc));
/* Resizes; NULL leaves `block` alive. `block` NULL allocates. */
void *hr_realloc(void *block, size_t bytes);
void hr_free(void *block);

/* A block aligned to `alignment`, a power of two. Free it with `hr_aligned_free`. */
void *hr_aligned_malloc(size_t bytes, size_t alignment);
void hr_aligned_free(void *block);

/* Bytes of a huge page, where the system has them. */
#define HR_HUGE_PAGE ((size_t)2 << 20)
/* Asks for huge pages in a block of HR_HUGE_PAGE bytes or more that is read again and again: fewer TLB misses. Before
 * the block is written, or read if it is a file's mapping. */
void hr_huge_pages_advise(void *block, size_t bytes);

/* Bytes of the chunks of the core's heap (heap.h), whose free ones hr_host_memory_trim gives back. */
size_t hr_heap_bytes(void);

/* Installs a heap; NULL installs the core's own (heap.h). Only while `hr__allocator_live()` is 0. */
void hr__allocator_set(const hr_allocator *allocator);

/* The next `n` allocations succeed and all later ones fail, until the next call. Negative: none fails. A resize counts
 * as an allocation. */
void hr__allocator_fail_after(int64_t n);
/* How many allocations were made to fail since the last `hr__allocator_fail_after`. */
int64_t hr__allocator_failures(void);
/* Blocks alive now. */
int64_t hr__allocator_live(void);

/* fork.h's: lock the heap, and unlock it in both processes. */
void hr__allocator_begin_fork(void);
void hr__allocator_end_fork(void);

#endif /* HEADRACE_BASE_ALLOCATOR_H_ */
