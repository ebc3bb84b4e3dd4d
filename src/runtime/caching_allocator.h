/* caching_allocator.h: a device's memory, kept for reuse.
 *
 * Sizes are rounded up, so that at most about an eighth is lost:
 *
 *   up to 1 MB      to eighths of powers of two
 *   up to 16 MB     to 64 KB
 *   above           to 2 MB
 *
 * Blocks of a host between a page and 1 MB are rounded to powers of two instead: pages that nobody touches cost nothing
 * there, and values that grow with each step, such as the caches of beams, keep their blocks.
 *
 * Blocks of up to 32 KB are cut from slabs of 256 KB, each of one block size. Larger blocks are allocated from the
 * driver one by one; a free one serves any request of which it wastes at most an eighth.
 *
 * Memory returns to the driver on `trim`, and if the driver or the limit refuses a request. In the second case cached
 * blocks are returned, largest first, cached weights (cached_weights.h) are dropped, and the request is retried.
 *
 * Drivers without graphs allocate host memory, which other processes share. If their sizes change all the time, the
 * free memory of large blocks is limited to 16 MB or twice the peak in use of the last 10 to 20 seconds (the larger of
 * both): the blocks freed first are returned. From half of it on, a request gets a block of up to twice its size.
 *
 * Of several suitable blocks a request gets the one at the lowest address. So a repeated program gets the same
 * addresses again, in any order of its releases (engine/replay.h). Exception: for the larger blocks of a driver without
 * graphs the last one freed comes first.
 *
 * Memory is reused in the order in which it was freed. The engine frees a commit's memory after the commit has run, or
 * earlier if all users of the block run in order after it. Threads: any; one lock.
 */
#ifndef HEADRACE_RUNTIME_CACHING_ALLOCATOR_H_
#define HEADRACE_RUNTIME_CACHING_ALLOCATOR_H_

#include "base/context.h"
#include "base/thread.h"
#include "base/vector.h"
#include "headrace/memory.h"
#include "runtime/lane.h"
#include "runtime/recent.h"

struct hr_driver;
typedef struct hr_slab hr_slab;

/* Memory in use. */
typedef struct hr_block {
  void *address;
  size_t bytes;     /* rounded */
  size_t requested; /* 0: free */
  hr_slab *slab;    /* NULL: the driver's own block, or the host's */
  uint64_t age;     /* of a free one: the number of blocks freed before */
  /* Of adopted memory: returns it to its owner. */
  void (*release)(void *arg);
  void *arg;
  struct hr_block *next, *before; /* of the driver's own that are in use */
  hr_block_uses uses;             /* last ones, those before the block was freed too */
} hr_block;

enum {
  HR_ALLOCATOR_PAGE = 4096,
  HR_ALLOCATOR_SMALL_MAX = 32768,
  HR_ALLOCATOR_CLASSES = 8 + 6 * 8,
  HR_ALLOCATOR_SLAB = 262144,
  HR_ALLOCATOR_FREE_MIN = 16 << 20
};

typedef struct hr_caching_allocator {
  const struct hr_driver *driver;
  hr_context *context; /* whose cached weights are dropped when memory is out */
  void *impl;
  const char *name; /* of the device, for messages */
  hr_mutex mutex;
  hr_slab *slabs[HR_ALLOCATOR_CLASSES]; /* those with a free block */
  hr_slab *all_slabs;
  hr_block *used;                    /* the driver's own that are in use */
  HR_VECTOR(hr_block *) free_blocks; /* the driver's own that are free, by size */
  uint64_t freed_count;
  int64_t limit_bytes; /* of reserved memory; 0: no limit */
  int64_t allocation_count, driver_allocation_count;
  hr_memory_gauges gauges;
  hr_recent recent;                                         /* bytes of large blocks in use */
  void (*observe)(void *arg, const hr_memory_event *event); /* NULL: nobody */
  void *observe_arg;
} hr_caching_allocator;

/* `limit_bytes` 0: no limit. `name` must outlive the allocator. Its context is the one that is current here. */
void hr_caching_allocator_init(hr_caching_allocator *allocator, const struct hr_driver *driver, void *impl,
                               const char *name, int64_t limit_bytes);
/* Returns all cached memory; blocks in use stay valid and may be freed later. */
void hr_caching_allocator_trim(hr_caching_allocator *allocator);
/* A block of at least `bytes` bytes, aligned to 64. RESOURCE_EXHAUSTED names the request and the free memory; then only
 * the cache has changed. */
HR_MUST_USE hr_status hr_caching_allocator_alloc(hr_caching_allocator *allocator, size_t bytes, hr_block **out_block);
void hr_caching_allocator_free(hr_caching_allocator *allocator, hr_block *block); /* NULL: nothing */
/* The same for a block whose size no later request will have. If other processes share the memory, it goes back to the
 * driver. */
void hr_caching_allocator_give_back(hr_caching_allocator *allocator, hr_block *block);
/* A block over memory that is not the allocator's: `release` frees it, and no statistic counts it. NULL if host memory
 * is exhausted. */
hr_block *hr__block_adopt(size_t bytes, void *address, void (*release)(void *arg), void *arg);
void hr_caching_allocator_limit(hr_caching_allocator *allocator, int64_t bytes);
/* All statistics except the device's own. */
void hr_caching_allocator_stats(hr_caching_allocator *allocator, hr_memory_stats *out_stats);
void hr_caching_allocator_reset_peak(hr_caching_allocator *allocator);
/* Tells the observer that a block in use is the buffer's of this handle. */
void hr_caching_allocator_note_owner(hr_caching_allocator *allocator, const hr_block *block, void *handle);
/* headrace/memory.h has the contracts of these. */
void hr_caching_allocator_observe(hr_caching_allocator *allocator,
                                  void (*observe)(void *arg, const hr_memory_event *event), void *arg);
void hr_caching_allocator_gauges(hr_caching_allocator *allocator, hr_memory_gauges *out_gauges);
void hr_caching_allocator_reset_totals(hr_caching_allocator *allocator);
void hr_caching_allocator_walk(hr_caching_allocator *allocator, void (*visit)(void *arg, const hr_memory_block *block),
                               void *arg);

/* The rounded size of a request. */
size_t hr__caching_allocator_round(size_t bytes);

#endif
