/* caching_allocator.h: a device's memory, kept for reuse.
 *
 * Sizes are rounded up: to eighths of powers of two up to 1 MB, to 64 KB up to 16 MB, to 2 MB above, so that at most
 * about an eighth is lost. Blocks of up to 32 KB are cut from slabs of 256 KB of one size each; larger ones are the
 * driver's own, and a free one serves any request of which it wastes at most an eighth. Nothing goes back to the driver
 * until `trim`, or until the driver or the limit refuses: then cached blocks are returned, largest first, what is
 * derived from weights (cached_weights.h) goes as well, and the request is tried again.
 *
 * A host's memory is everybody's (that of drivers without graphs): where sizes change all the time, and the driver has
 * to be asked again, what is free is at most twice as much as was ever in use at once, or 128 MB; the blocks that were
 * freed first go back.
 *
 * Of the blocks that serve as well, a request gets the one at the lowest address. So a program that repeats itself
 * finds the same addresses again, whatever the order in which it lets go of them (engine/replay.h). Larger blocks of a
 * driver without graphs are the exception: there the last one that was freed comes first. Memory is reused in the order
 * in which it was freed: the engine frees what a commit used after it has run, or earlier where everything that may
 * touch the block runs in order behind it. Threads: any; one lock.
 */
#ifndef HEADRACE_RUNTIME_CACHING_ALLOCATOR_H_
#define HEADRACE_RUNTIME_CACHING_ALLOCATOR_H_

#include "base/context.h"
#include "base/thread.h"
#include "base/vector.h"
#include "headrace/stream.h"

struct hr_driver;
typedef struct hr_slab hr_slab;

/* Memory in use. */
typedef struct hr_block {
  void *address;
  size_t bytes;  /* rounded */
  hr_slab *slab; /* NULL: the driver's own block, or the host's */
  uint64_t age;  /* of a free one: how many were freed before */
  /* Of the host's: what takes the memory back. */
  void (*release)(void *arg);
  void *arg;
} hr_block;

enum { HR_ALLOCATOR_SMALL_MAX = 32768, HR_ALLOCATOR_CLASSES = 8 + 6 * 8, HR_ALLOCATOR_SLAB = 262144 };

typedef struct hr_caching_allocator {
  const struct hr_driver *driver;
  hr_context *context; /* whose derived contents go when memory is out */
  void *impl;
  const char *name; /* of the device, for messages */
  hr_mutex mutex;
  hr_slab *slabs[HR_ALLOCATOR_CLASSES]; /* those with a free block */
  HR_VECTOR(hr_block *) free_blocks;    /* the driver's own that are free, by size */
  uint64_t freed_count;
  hr_memory_stats stats;
} hr_caching_allocator;

/* `limit_bytes` 0: none. `name` must outlive the allocator. Its context is the one that is current here. */
void hr_caching_allocator_init(hr_caching_allocator *allocator, const struct hr_driver *driver, void *impl,
                               const char *name, int64_t limit_bytes);
/* Returns everything that is cached; blocks in use stay usable, and may be freed later. */
void hr_caching_allocator_trim(hr_caching_allocator *allocator);
/* A block of at least `bytes` bytes, aligned to 64. RESOURCE_EXHAUSTED names what was asked for and what there is;
 * nothing has changed then but the cache. */
HR_MUST_USE hr_status hr_caching_allocator_alloc(hr_caching_allocator *allocator, size_t bytes, hr_block **out_block);
void hr_caching_allocator_free(hr_caching_allocator *allocator, hr_block *block); /* NULL: nothing */
/* A block of memory that is not the allocator's: `release` gets it back, and no figure counts it. NULL without host
 * memory. */
hr_block *hr__block_adopt(size_t bytes, void *address, void (*release)(void *arg), void *arg);
void hr_caching_allocator_limit(hr_caching_allocator *allocator, int64_t bytes);
/* Everything but the device's own figures. */
void hr_caching_allocator_stats(hr_caching_allocator *allocator, hr_memory_stats *out_stats);
void hr_caching_allocator_reset_peak(hr_caching_allocator *allocator);

/* The size that a request becomes. */
size_t hr__caching_allocator_round(size_t bytes);

#endif
