/* The host allocator: the core's heap or a table in its place, and a countdown after which tests make allocations fail.
 */
#include "base/allocator.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>

#include "base/fork.h"
#include "base/heap.h"
#include "headrace/memory.h"

/* One for the process, because contexts are allocated here too. */
static struct {
  hr_allocator host; /* a zeroed one: the core's own heap */
  hr_heap own;
  pthread_once_t own_once;
  atomic_int_least64_t host_blocks; /* alive */
  atomic_bool fuse_lit;             /* `fuse_left` counts */
  atomic_int_least64_t fuse_left, fuse_failures;
} heap = {.own_once = PTHREAD_ONCE_INIT};

void hr__allocator_begin_fork(void) {
  hr__heap_before_fork(&heap.own);
}

void hr__allocator_end_fork(void) {
  hr__heap_after_fork(&heap.own);
}

/* Sanitizers watch the blocks of the C library alone. */
static void open_own(void) {
  hr__heap_init(&heap.own);
#if !defined(HR_SANITIZED)
  if (hr__fork_prepare()) {
    hr__heap_reserve(&heap.own);
  }
#endif
}

static hr_heap *own_heap(void) {
  if (__builtin_expect(atomic_load_explicit(&heap.own.base, memory_order_acquire) == 0, 0)) {
    (void)pthread_once(&heap.own_once, open_own);
  }
  return &heap.own;
}

/* True if a test has made this allocation fail. */
static bool must_fail(void) {
  if (__builtin_expect(!atomic_load_explicit(&heap.fuse_lit, memory_order_relaxed), 1)) {
    return false;
  }
  if (atomic_fetch_sub(&heap.fuse_left, 1) > 0) {
    return false;
  }
  atomic_fetch_add(&heap.fuse_failures, 1);
  return true;
}

void *hr_malloc(size_t bytes) {
  if (must_fail()) {
    return NULL;
  }
  if (__builtin_expect(heap.host.alloc == NULL, 1)) {
    return hr__heap_alloc(own_heap(), bytes);
  }
  void *block = heap.host.alloc(heap.host.ctx, bytes > 0 ? bytes : 1);
  atomic_fetch_add_explicit(&heap.host_blocks, block != NULL, memory_order_relaxed);
  return block;
}

void *hr_calloc(size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    return NULL;
  }
  void *block = hr_malloc(bytes);
  if (block != NULL) {
    memset(block, 0, bytes);
  }
  return block;
}

void *hr_realloc(void *block, size_t bytes) {
  if (must_fail()) {
    return NULL;
  }
  if (heap.host.realloc == NULL) {
    return hr__heap_realloc(own_heap(), block, bytes);
  }
  void *moved = heap.host.realloc(heap.host.ctx, block, bytes > 0 ? bytes : 1);
  atomic_fetch_add_explicit(&heap.host_blocks, moved != NULL && block == NULL, memory_order_relaxed);
  return moved;
}

void hr_free(void *block) {
  if (block == NULL) {
    return;
  }
  if (__builtin_expect(heap.host.free == NULL, 1)) {
    hr__heap_free(own_heap(), block);
    return;
  }
  atomic_fetch_sub_explicit(&heap.host_blocks, 1, memory_order_relaxed);
  heap.host.free(heap.host.ctx, block);
}

/* The word before the aligned address holds the block's start. */
void *hr_aligned_malloc(size_t bytes, size_t alignment) {
  assert(alignment != 0 && (alignment & (alignment - 1)) == 0);
  size_t slack = alignment + sizeof(void *);
  if (bytes > SIZE_MAX - slack) {
    return NULL;
  }
  char *start = hr_malloc(bytes + slack);
  if (start == NULL) {
    return NULL;
  }
  uintptr_t address = ((uintptr_t)start + slack - 1) & ~(uintptr_t)(alignment - 1);
  char *block = start + (address - (uintptr_t)start);
  memcpy(block - sizeof(void *), &start, sizeof(void *));
  return block;
}

void hr_aligned_free(void *block) {
  if (block != NULL) {
    void *start = NULL;
    memcpy(&start, (char *)block - sizeof(void *), sizeof(void *));
    hr_free(start);
  }
}

void hr_huge_pages_advise(void *block, size_t bytes) {
#ifdef MADV_HUGEPAGE
  char *first = (char *)(((uintptr_t)block + HR_HUGE_PAGE - 1) & ~(uintptr_t)(HR_HUGE_PAGE - 1));
  char *last = (char *)(((uintptr_t)block + bytes) & ~(uintptr_t)(HR_HUGE_PAGE - 1));
  if (bytes >= HR_HUGE_PAGE && last > first) {
    madvise(first, (size_t)(last - first), MADV_HUGEPAGE);
  }
#else
  (void)block, (void)bytes;
#endif
}

void hr_host_memory_trim(void) {
  hr__heap_trim(own_heap());
#ifdef __GLIBC__
  (void)malloc_trim(0);
#endif
}

size_t hr_heap_bytes(void) {
  return hr__heap_bytes(own_heap());
}

void hr__allocator_set(const hr_allocator *allocator) {
  assert(hr__allocator_live() == 0);
  heap.host = allocator != NULL ? *allocator : (hr_allocator){0};
}

void hr__allocator_fail_after(int64_t n) {
  atomic_store(&heap.fuse_left, n);
  atomic_store(&heap.fuse_failures, 0);
  atomic_store(&heap.fuse_lit, n >= 0);
}

int64_t hr__allocator_failures(void) {
  return atomic_load(&heap.fuse_failures);
}

int64_t hr__allocator_live(void) {
  return atomic_load_explicit(&heap.host_blocks, memory_order_relaxed) + hr__heap_live(own_heap());
}
