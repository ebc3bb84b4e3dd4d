/* The heap: chunks of 64 KB in a reserved range, each with blocks of one size. */
#include "base/heap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/integer.h"

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

#define RANGE_MAX ((size_t)1 << 34) /* bytes */
#define RANGE_MIN ((size_t)1 << 28)
enum { CHUNKS_AT_ONCE = 16, SMALL_MAX = 256, GRAIN = 16, PER_DOUBLING = 4 };

struct hr_heap_chunk {
  hr_heap_chunk *next, *previous; /* in the list that it is in */
  void *free;                     /* the first free block, which holds the address of the next one */
  uint32_t block_bytes;
  uint16_t room, used, fresh; /* blocks in all, in use, and used so far */
  uint8_t class;
};
_Static_assert(HR_HEAP_CHUNK / GRAIN <= UINT16_MAX, "blocks are counted in 16 bits");

/* ---- classes ---- */

static int class_of(size_t bytes) {
  if (bytes <= SMALL_MAX) {
    return bytes == 0 ? 0 : (int)((bytes - 1) / GRAIN);
  }
  int shift = 63 - __builtin_clzll((unsigned long long)bytes - 1); /* 2^shift < bytes <= 2^(shift + 1) */
  int quarter = (int)((bytes - 1) >> (shift - 2) & (PER_DOUBLING - 1));
  return SMALL_MAX / GRAIN + (shift - 8) * PER_DOUBLING + quarter;
}

static size_t bytes_of(int class) {
  if (class < SMALL_MAX / GRAIN) {
    return (size_t)(class + 1) * GRAIN;
  }
  int above = class - SMALL_MAX / GRAIN;
  return (size_t)(PER_DOUBLING + 1 + above % PER_DOUBLING) << (6 + above / PER_DOUBLING);
}

/* ---- chunks ---- */

static hr_heap_chunk *table_of(uintptr_t base) {
  return (hr_heap_chunk *)base; /* NOLINT(performance-no-int-to-ptr) */
}

static char *bytes_of_chunk(uintptr_t base, const hr_heap_chunk *chunk) {
  return (char *)base + (size_t)(chunk - table_of(base)) * HR_HEAP_CHUNK; /* NOLINT(performance-no-int-to-ptr) */
}

/* The chunk of a block; NULL: it is the C library's. */
static hr_heap_chunk *chunk_of(hr_heap *heap, const void *block) {
  uintptr_t base = atomic_load_explicit(&heap->base, memory_order_acquire);
  size_t index = ((uintptr_t)block - base) / HR_HEAP_CHUNK;
  return base != 0 && index < heap->end ? table_of(base) + index : NULL;
}

/* The range begins with the table of its chunks. */
static bool reserve_bytes(hr_heap *heap, size_t bytes) {
  char *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) {
    return false;
  }
  size_t count = bytes / HR_HEAP_CHUNK - 1; /* the first one is cut to align the others */
  size_t table = hr_align_up(count * sizeof(hr_heap_chunk), HR_HEAP_CHUNK);
  char *base = start + (-(uintptr_t)start & (HR_HEAP_CHUNK - 1));
  if (mprotect(base, table, PROT_READ | PROT_WRITE) != 0) {
    munmap(start, bytes);
    return false;
  }
  heap->end = count;
  heap->chunk_count = table / HR_HEAP_CHUNK;
  atomic_store_explicit(&heap->base, (uintptr_t)base, memory_order_release);
  return true;
}

void hr__heap_init(hr_heap *heap) {
  *heap = (hr_heap){0};
  hr_mutex_init(&heap->mutex);
  for (int i = 0; i < HR_HEAP_CLASSES; ++i) {
    hr_mutex_init(&heap->classes[i].mutex);
  }
}

/* The most of a process's addresses that the heap takes: a part, if they are limited (RLIMIT_AS, `ulimit -v`). */
static size_t most_reserved(void) {
  enum { LEFT = 16 };
  struct rlimit limit;
  bool is_limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited && limit.rlim_cur / LEFT < RANGE_MAX ? (size_t)(limit.rlim_cur / LEFT) : RANGE_MAX;
}

void hr__heap_reserve(hr_heap *heap) {
  for (size_t bytes = most_reserved(); bytes >= RANGE_MIN && !reserve_bytes(heap, bytes);) {
    bytes /= 2;
  }
}

/* Adds chunks at the end of those so far. The heap is locked. */
static void add_bare(hr_heap *heap) {
  uintptr_t base = atomic_load_explicit(&heap->base, memory_order_relaxed);
  size_t left = heap->end - heap->chunk_count, count = left < CHUNKS_AT_ONCE ? left : CHUNKS_AT_ONCE;
  hr_heap_chunk *first = table_of(base) + heap->chunk_count;
  if (count == 0 || mprotect(bytes_of_chunk(base, first), count * HR_HEAP_CHUNK, PROT_READ | PROT_WRITE) != 0) {
    return;
  }
  for (size_t i = count; i-- > 0;) {
    first[i].next = heap->bare;
    heap->bare = &first[i];
  }
  heap->chunk_count += count;
}

static hr_heap_chunk *pop(hr_heap_chunk **list) {
  hr_heap_chunk *chunk = *list;
  if (chunk != NULL) {
    *list = chunk->next;
  }
  return chunk;
}

/* An empty chunk for blocks of a class; NULL: there is no more memory. */
static hr_heap_chunk *take_chunk(hr_heap *heap, int class) {
  hr_mutex_lock(&heap->mutex);
  hr_heap_chunk *chunk = pop(&heap->kept);
  if (chunk != NULL) {
    --heap->kept_count;
  } else {
    if (heap->bare == NULL) {
      add_bare(heap);
    }
    chunk = pop(&heap->bare);
  }
  hr_mutex_unlock(&heap->mutex);
  if (chunk != NULL) {
    atomic_fetch_add_explicit(&heap->busy, 1, memory_order_relaxed);
    uint32_t bytes = (uint32_t)bytes_of(class);
    *chunk = (hr_heap_chunk){.class = (uint8_t) class, .block_bytes = bytes, .room = (uint16_t)(HR_HEAP_CHUNK / bytes)};
  }
  return chunk;
}

static void give_back_pages(hr_heap *heap, hr_heap_chunk *chunk) {
  uintptr_t base = atomic_load_explicit(&heap->base, memory_order_relaxed);
  (void)madvise(bytes_of_chunk(base, chunk), HR_HEAP_CHUNK, MADV_DONTNEED);
}

/* Takes an empty chunk back. */
static void keep_chunk(hr_heap *heap, hr_heap_chunk *chunk) {
  hr_mutex_lock(&heap->mutex);
  bool is_kept = heap->kept_count < HR_HEAP_KEPT_MAX;
  if (!is_kept) {
    give_back_pages(heap, chunk);
  }
  hr_heap_chunk **list = is_kept ? &heap->kept : &heap->bare;
  chunk->next = *list;
  *list = chunk;
  heap->kept_count += is_kept;
  hr_mutex_unlock(&heap->mutex);
  atomic_fetch_sub_explicit(&heap->busy, 1, memory_order_relaxed);
}

int64_t hr__heap_live(hr_heap *heap) {
  int64_t live = atomic_load_explicit(&heap->others, memory_order_relaxed);
  for (int i = 0; i < HR_HEAP_CLASSES; ++i) {
    hr_mutex_lock(&heap->classes[i].mutex);
    live += heap->classes[i].live;
    hr_mutex_unlock(&heap->classes[i].mutex);
  }
  return live;
}

size_t hr__heap_bytes(hr_heap *heap) {
  hr_mutex_lock(&heap->mutex);
  size_t kept = heap->kept_count;
  hr_mutex_unlock(&heap->mutex);
  return (kept + atomic_load_explicit(&heap->busy, memory_order_relaxed)) * HR_HEAP_CHUNK;
}

/* ---- blocks ---- */

static void link_open(hr_heap_class *class, hr_heap_chunk *chunk) {
  chunk->previous = NULL;
  chunk->next = class->open;
  if (class->open != NULL) {
    class->open->previous = chunk;
  }
  class->open = chunk;
}

static void unlink_open(hr_heap_class *class, hr_heap_chunk *chunk) {
  *(chunk->previous != NULL ? &chunk->previous->next : &class->open) = chunk->next;
  if (chunk->next != NULL) {
    chunk->next->previous = chunk->previous;
  }
}

static void *take_block(uintptr_t base, hr_heap_chunk *chunk) {
  void *block = chunk->free;
  if (block != NULL) {
    memcpy(&chunk->free, block, sizeof chunk->free);
  } else {
    block = bytes_of_chunk(base, chunk) + (size_t)chunk->fresh++ * chunk->block_bytes;
  }
  ++chunk->used;
  return block;
}

/* NULL: there is no memory. */
static void *alloc_of_class(hr_heap *heap, int number) {
  hr_heap_class *class = &heap->classes[number];
  hr_mutex_lock(&class->mutex);
  hr_heap_chunk *chunk = class->open;
  if (chunk == NULL && (chunk = take_chunk(heap, number)) != NULL) {
    link_open(class, chunk);
  }
  void *block = chunk == NULL ? NULL : take_block(atomic_load_explicit(&heap->base, memory_order_relaxed), chunk);
  if (chunk != NULL && chunk->used == chunk->room) {
    unlink_open(class, chunk);
  }
  class->live += block != NULL;
  hr_mutex_unlock(&class->mutex);
  return block;
}

void *hr__heap_alloc(hr_heap *heap, size_t bytes) {
  bool is_ours = bytes <= HR_HEAP_BLOCK_MAX && atomic_load_explicit(&heap->base, memory_order_acquire) != 0;
  void *block = is_ours ? alloc_of_class(heap, class_of(bytes)) : NULL;
  if (block == NULL) {
    block = malloc(bytes > 0 ? bytes : 1);
    atomic_fetch_add_explicit(&heap->others, block != NULL, memory_order_relaxed);
  }
  return block;
}

/* The last empty chunk of a class stays with it. */
static void free_in(hr_heap *heap, hr_heap_chunk *chunk, void *block) {
  hr_heap_class *class = &heap->classes[chunk->class];
  hr_mutex_lock(&class->mutex);
  memcpy(block, &chunk->free, sizeof chunk->free);
  chunk->free = block;
  --class->live;
  if (chunk->used-- == chunk->room) {
    link_open(class, chunk);
  }
  bool is_empty = chunk->used == 0 && (chunk->next != NULL || chunk->previous != NULL);
  if (is_empty) {
    unlink_open(class, chunk);
  }
  hr_mutex_unlock(&class->mutex);
  if (is_empty) {
    keep_chunk(heap, chunk);
  }
}

void hr__heap_free(hr_heap *heap, void *block) {
  hr_heap_chunk *chunk = chunk_of(heap, block);
  if (chunk != NULL) {
    free_in(heap, chunk, block);
    return;
  }
  atomic_fetch_sub_explicit(&heap->others, 1, memory_order_relaxed);
  free(block);
}

void *hr__heap_realloc(hr_heap *heap, void *block, size_t bytes) {
  if (block == NULL) {
    return hr__heap_alloc(heap, bytes);
  }
  const hr_heap_chunk *chunk = chunk_of(heap, block);
  if (chunk == NULL) {
    return realloc(block, bytes > 0 ? bytes : 1);
  }
  size_t before = chunk->block_bytes;
  if (bytes <= before && bytes >= before / 2) {
    return block;
  }
  void *moved = hr__heap_alloc(heap, bytes);
  if (moved != NULL) {
    memcpy(moved, block, bytes < before ? bytes : before);
    hr__heap_free(heap, block);
  }
  return moved;
}

/* Takes the empty chunks of a class, which it kept for its next blocks. */
static void drop_empty(hr_heap *heap, hr_heap_class *class) {
  hr_mutex_lock(&class->mutex);
  for (hr_heap_chunk *chunk = class->open, *next; chunk != NULL; chunk = next) {
    next = chunk->next;
    if (chunk->used == 0) {
      unlink_open(class, chunk);
      keep_chunk(heap, chunk);
    }
  }
  hr_mutex_unlock(&class->mutex);
}

void hr__heap_trim(hr_heap *heap) {
  if (atomic_load_explicit(&heap->base, memory_order_acquire) == 0) {
    return;
  }
  for (int i = 0; i < HR_HEAP_CLASSES; ++i) {
    drop_empty(heap, &heap->classes[i]);
  }
  hr_mutex_lock(&heap->mutex);
  for (hr_heap_chunk *chunk; (chunk = pop(&heap->kept)) != NULL;) {
    give_back_pages(heap, chunk);
    chunk->next = heap->bare;
    heap->bare = chunk;
  }
  heap->kept_count = 0;
  hr_mutex_unlock(&heap->mutex);
}

/* ---- forks ---- */

void hr__heap_before_fork(hr_heap *heap) {
  for (int i = 0; i < HR_HEAP_CLASSES; ++i) {
    hr_mutex_lock(&heap->classes[i].mutex);
  }
  hr_mutex_lock(&heap->mutex);
}

void hr__heap_after_fork(hr_heap *heap) {
  hr_mutex_unlock(&heap->mutex);
  for (int i = 0; i < HR_HEAP_CLASSES; ++i) {
    hr_mutex_unlock(&heap->classes[i].mutex);
  }
}
