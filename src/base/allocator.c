/* The host allocator: a replaceable table, two counters, and a countdown after which tests make allocations fail. */
#include "base/allocator.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>

static void *libc_alloc(void *ctx, size_t bytes) {
  (void)ctx;
  return malloc(bytes);
}

static void *libc_realloc(void *ctx, void *block, size_t bytes) {
  (void)ctx;
  return realloc(block, bytes);
}

static void libc_free(void *ctx, void *block) {
  (void)ctx;
  free(block);
}

static const hr_allocator libc_allocator = {.alloc = libc_alloc, .realloc = libc_realloc, .free = libc_free};

/* One for the process, because contexts are allocated here too. */
static struct {
  hr_allocator host;
  atomic_int_least64_t live_blocks, total_blocks;
  atomic_bool fuse_lit; /* `fuse_left` counts */
  atomic_int_least64_t fuse_left, fuse_failures;
} heap = {.host = {.alloc = libc_alloc, .realloc = libc_realloc, .free = libc_free}};

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

static void count_new(void) {
  atomic_fetch_add_explicit(&heap.live_blocks, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&heap.total_blocks, 1, memory_order_relaxed);
}

void *hr_malloc(size_t bytes) {
  if (must_fail()) {
    return NULL;
  }
  void *block = heap.host.alloc(heap.host.ctx, bytes > 0 ? bytes : 1);
  if (block != NULL) {
    count_new();
  }
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
  void *moved = heap.host.realloc(heap.host.ctx, block, bytes > 0 ? bytes : 1);
  if (moved != NULL && block == NULL) {
    count_new();
  }
  return moved;
}

void hr_free(void *block) {
  if (block != NULL) {
    atomic_fetch_sub_explicit(&heap.live_blocks, 1, memory_order_relaxed);
    heap.host.free(heap.host.ctx, block);
  }
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

void hr_heap_trim(void) {
#ifdef __GLIBC__
  (void)malloc_trim(0);
#endif
}

void hr__allocator_set(const hr_allocator *allocator) {
  assert(hr__allocator_live() == 0);
  heap.host = allocator != NULL ? *allocator : libc_allocator;
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
  return atomic_load_explicit(&heap.live_blocks, memory_order_relaxed);
}

int64_t hr__allocator_total(void) {
  return atomic_load_explicit(&heap.total_blocks, memory_order_relaxed);
}
