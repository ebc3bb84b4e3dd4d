/* Small blocks come from slabs, all others from a list sorted by size, then by address. The list is an array: a device
 * has at most some hundreds of free blocks, and moving their pointers costs less than walking a tree. The free blocks
 * of a slab are a bit set of two levels. */
#include "runtime/caching_allocator.h"

#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "runtime/cached_weights.h"
#include "runtime/device.h"

enum { SLAB_WORDS = HR_ALLOCATOR_SLAB / 64 / 64 }; /* the smallest blocks have 64 bytes */
static const int64_t FREE_BYTES_MIN = 128 << 20;
_Static_assert(SLAB_WORDS == 64, "a word says which words have bits");

struct hr_slab {
  char *address;
  int size_class, block_count, free_count;
  uint64_t words, free[SLAB_WORDS]; /* a bit for each word that is not 0; a bit for each free block */
  hr_slab *next, *before;           /* among those of its class with a free block, by address */
  hr_block blocks[];
};

static int floor_log2(size_t value) {
  return 63 - __builtin_clzll((unsigned long long)value);
}

/* Rounds to eighths of a power of two, at least to 64; *out_class counts the sizes up. */
static size_t round_eighths(size_t bytes, int *out_class) {
  if (bytes <= 512) {
    size_t units = bytes > 0 ? (bytes + 63) / 64 : 1;
    *out_class = (int)units - 1;
    return units * 64;
  }
  int exponent = floor_log2(bytes - 1);
  size_t step = (size_t)1 << (exponent - 3);
  size_t units = (bytes + step - 1) / step; /* 9 to 16 */
  *out_class = 8 + (exponent - 9) * 8 + (int)units - 9;
  return units * step;
}

static size_t round_to(size_t bytes, size_t unit) {
  size_t rounded = hr_align_up(bytes, unit);
  return rounded >= bytes ? rounded : bytes;
}

size_t hr__caching_allocator_round(size_t bytes) {
  int size_class;
  if (bytes <= (size_t)1 << 20) {
    return round_eighths(bytes, &size_class);
  }
  return round_to(bytes, bytes <= (size_t)16 << 20 ? (size_t)64 << 10 : (size_t)2 << 20);
}

void hr_caching_allocator_init(hr_caching_allocator *allocator, const struct hr_driver *driver, void *impl,
                               const char *name, int64_t limit_bytes) {
  *allocator = (hr_caching_allocator){.driver = driver, .context = hr__context(), .impl = impl, .name = name};
  allocator->stats.limit_bytes = limit_bytes;
  hr_mutex_init(&allocator->mutex);
}

/* ---- the driver's memory ---- */

static void driver_free(hr_caching_allocator *allocator, void *address, size_t bytes) {
  allocator->driver->free(allocator->impl, address, bytes);
  allocator->stats.reserved_bytes -= (int64_t)bytes;
}

static void unlink_slab(hr_caching_allocator *allocator, hr_slab *slab) {
  *(slab->before != NULL ? &slab->before->next : &allocator->slabs[slab->size_class]) = slab->next;
  if (slab->next != NULL) {
    slab->next->before = slab->before;
  }
  slab->next = slab->before = NULL;
}

static void link_slab(hr_caching_allocator *allocator, hr_slab *slab) {
  hr_slab **place = &allocator->slabs[slab->size_class], *before = NULL;
  while (*place != NULL && (*place)->address < slab->address) {
    before = *place;
    place = &before->next;
  }
  slab->before = before;
  slab->next = *place;
  if (*place != NULL) {
    (*place)->before = slab;
  }
  *place = slab;
}

/* Returns cached memory, largest blocks first, until at most `target` bytes are reserved. */
static void shrink(hr_caching_allocator *allocator, int64_t target) {
  while (allocator->free_blocks.count > 0 && allocator->stats.reserved_bytes > target) {
    hr_block *block = hr_vector_pop(&allocator->free_blocks);
    driver_free(allocator, block->address, block->bytes);
    hr_free(block);
  }
  for (int i = 0; i < HR_ALLOCATOR_CLASSES; ++i) {
    for (hr_slab *slab = allocator->slabs[i], *next; slab != NULL; slab = next) {
      next = slab->next;
      if (slab->free_count == slab->block_count && allocator->stats.reserved_bytes > target) {
        unlink_slab(allocator, slab);
        driver_free(allocator, slab->address, HR_ALLOCATOR_SLAB);
        hr_free(slab);
      }
    }
  }
}

static hr_status refuse(const hr_caching_allocator *allocator, size_t wanted, const char *reason) {
  const hr_memory_stats *stats = &allocator->stats;
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED,
                        "%s: out of memory: %zu bytes requested, %lld allocated, %lld reserved, limit %lld%s%s",
                        allocator->name, wanted, (long long)stats->allocated_bytes, (long long)stats->reserved_bytes,
                        (long long)stats->limit_bytes, reason != NULL ? ": " : "", reason != NULL ? reason : "");
}

/* Drops cached weights; unlocked, because their memory may be this allocator's. */
static void forget_cached_weights(hr_caching_allocator *allocator) {
  hr_mutex_unlock(&allocator->mutex);
  hr_context *before = hr__context_enter(allocator->context);
  hr__cached_weights_forget_all();
  (void)hr__context_enter(before);
  hr_mutex_lock(&allocator->mutex);
}

/* Allocates from the driver. Frees cached blocks first if the limit requires it, or if the driver has no memory. */
static hr_status driver_alloc(hr_caching_allocator *allocator, size_t bytes, size_t wanted, void **out_address) {
  hr_memory_stats *stats = &allocator->stats;
  if (bytes > INT64_MAX / 4) {
    return refuse(allocator, wanted, "no device has so much");
  }
  if (stats->limit_bytes > 0 && stats->reserved_bytes + (int64_t)bytes > stats->limit_bytes) {
    shrink(allocator, stats->limit_bytes - (int64_t)bytes);
    if (stats->reserved_bytes + (int64_t)bytes > stats->limit_bytes) {
      forget_cached_weights(allocator);
      shrink(allocator, stats->limit_bytes - (int64_t)bytes);
    }
    if (stats->reserved_bytes + (int64_t)bytes > stats->limit_bytes) {
      return refuse(allocator, wanted, NULL);
    }
  }
  hr_status status = allocator->driver->allocate(allocator->impl, bytes, out_address);
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_status_free(status);
    forget_cached_weights(allocator);
    shrink(allocator, 0);
    status = allocator->driver->allocate(allocator->impl, bytes, out_address);
  }
  if (status != HR_OK) {
    hr_status refused = refuse(allocator, wanted, hr_status_message(status));
    hr_status_free(status);
    return refused;
  }
  ++stats->driver_allocation_count;
  stats->reserved_bytes += (int64_t)bytes;
  stats->reserved_bytes_peak =
      stats->reserved_bytes > stats->reserved_bytes_peak ? stats->reserved_bytes : stats->reserved_bytes_peak;
  return HR_OK;
}

/* ---- small blocks ---- */

static void mark_free(hr_slab *slab, int block) {
  slab->free[block / 64] |= UINT64_C(1) << (block % 64);
  slab->words |= UINT64_C(1) << (block / 64);
}

/* The first free block of a slab that has one. */
static hr_block *take_first(hr_slab *slab) {
  int word = __builtin_ctzll(slab->words), bit = __builtin_ctzll(slab->free[word]);
  slab->free[word] &= slab->free[word] - 1;
  if (slab->free[word] == 0) {
    slab->words &= slab->words - 1;
  }
  return &slab->blocks[word * 64 + bit];
}

static hr_status add_slab(hr_caching_allocator *allocator, int size_class, size_t bytes, size_t wanted) {
  int count = (int)(HR_ALLOCATOR_SLAB / bytes);
  hr_slab *slab = hr_calloc(1, sizeof *slab + (size_t)count * sizeof slab->blocks[0]);
  if (slab == NULL) {
    return refuse(allocator, wanted, "no host memory");
  }
  void *address;
  hr_status status = driver_alloc(allocator, HR_ALLOCATOR_SLAB, wanted, &address);
  if (status != HR_OK) {
    hr_free(slab);
    return status;
  }
  slab->address = address;
  slab->size_class = size_class;
  slab->block_count = slab->free_count = count;
  for (int i = 0; i < count; ++i) {
    slab->blocks[i] = (hr_block){.address = slab->address + (size_t)i * bytes, .bytes = bytes, .slab = slab};
    mark_free(slab, i);
  }
  link_slab(allocator, slab);
  return HR_OK;
}

static hr_status alloc_small(hr_caching_allocator *allocator, size_t wanted, hr_block **out_block) {
  int size_class;
  size_t bytes = round_eighths(wanted, &size_class);
  if (allocator->slabs[size_class] == NULL) {
    HR_RETURN_IF_ERROR(add_slab(allocator, size_class, bytes, wanted));
  }
  hr_slab *slab = allocator->slabs[size_class];
  *out_block = take_first(slab);
  if (--slab->free_count == 0) {
    unlink_slab(allocator, slab);
  }
  return HR_OK;
}

static void free_small(hr_caching_allocator *allocator, hr_block *block) {
  hr_slab *slab = block->slab;
  mark_free(slab, (int)(block - slab->blocks));
  if (slab->free_count++ == 0) {
    link_slab(allocator, slab);
  }
}

/* ---- large blocks ---- */

/* The first free block of more than `bytes`, or of so many from `address` on. */
static size_t find_large(const hr_caching_allocator *allocator, size_t bytes, const char *address) {
  size_t low = 0, high = allocator->free_blocks.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const hr_block *block = allocator->free_blocks.data[middle];
    if (block->bytes < bytes || (block->bytes == bytes && (const char *)block->address < address)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static void take_large(hr_caching_allocator *allocator, size_t at) {
  hr_block **data = allocator->free_blocks.data;
  memmove(data + at, data + at + 1, (--allocator->free_blocks.count - at) * sizeof *data);
}

static bool is_shared_with_others(const hr_caching_allocator *allocator) {
  return allocator->driver->capture_begin == NULL;
}

/* Returns the blocks that were freed first, until little is free compared to the peak in use. */
static void release_old(hr_caching_allocator *allocator) {
  const hr_memory_stats *stats = &allocator->stats;
  int64_t most = hr_max(2 * stats->allocated_bytes_peak, FREE_BYTES_MIN);
  while (allocator->free_blocks.count > 0 && stats->reserved_bytes - stats->allocated_bytes > most) {
    size_t oldest = 0;
    for (size_t i = 1; i < allocator->free_blocks.count; ++i) {
      oldest = allocator->free_blocks.data[i]->age < allocator->free_blocks.data[oldest]->age ? i : oldest;
    }
    hr_block *block = allocator->free_blocks.data[oldest];
    take_large(allocator, oldest);
    driver_free(allocator, block->address, block->bytes);
    hr_free(block);
  }
}

static hr_status alloc_large(hr_caching_allocator *allocator, size_t wanted, hr_block **out_block) {
  size_t bytes = hr__caching_allocator_round(wanted), at = find_large(allocator, bytes, NULL);
  if (at < allocator->free_blocks.count && allocator->free_blocks.data[at]->bytes - bytes <= bytes / 8) {
    *out_block = allocator->free_blocks.data[at];
    take_large(allocator, at);
    return HR_OK;
  }
  hr_block *block = hr_calloc(1, sizeof *block);
  if (block == NULL) {
    return refuse(allocator, wanted, "no host memory");
  }
  if (is_shared_with_others(allocator)) {
    release_old(allocator);
  }
  hr_status status = driver_alloc(allocator, bytes, wanted, &block->address);
  if (status != HR_OK) {
    hr_free(block);
    return status;
  }
  block->bytes = bytes;
  *out_block = block;
  return HR_OK;
}

/* If the list can't grow, the block goes back to the driver. */
static void free_large(hr_caching_allocator *allocator, hr_block *block) {
  if (!hr_vector_reserve(&allocator->free_blocks, allocator->free_blocks.count + 1)) {
    driver_free(allocator, block->address, block->bytes);
    hr_free(block);
    return;
  }
  bool by_address =
      !is_shared_with_others(allocator); /* otherwise the block used last, which is in the host's caches */
  block->age = allocator->freed_count++;
  size_t at = find_large(allocator, block->bytes, by_address ? block->address : NULL);
  hr_block **data = allocator->free_blocks.data;
  memmove(data + at + 1, data + at, (allocator->free_blocks.count++ - at) * sizeof *data);
  data[at] = block;
}

/* ---- entry points ---- */

hr_status hr_caching_allocator_alloc(hr_caching_allocator *allocator, size_t bytes, hr_block **out_block) {
  hr_mutex_lock(&allocator->mutex);
  hr_block *block = NULL;
  hr_status status =
      bytes <= HR_ALLOCATOR_SMALL_MAX ? alloc_small(allocator, bytes, &block) : alloc_large(allocator, bytes, &block);
  if (status == HR_OK) {
    hr_memory_stats *stats = &allocator->stats;
    ++stats->allocation_count;
    stats->allocated_bytes += (int64_t)block->bytes;
    if (stats->allocated_bytes > stats->allocated_bytes_peak) {
      stats->allocated_bytes_peak = stats->allocated_bytes;
    }
    *out_block = block;
  }
  hr_mutex_unlock(&allocator->mutex);
  return status;
}

hr_block *hr__block_adopt(size_t bytes, void *address, void (*release)(void *arg), void *arg) {
  hr_block *block = hr_calloc(1, sizeof *block);
  if (block != NULL) {
    *block = (hr_block){.address = address, .bytes = bytes, .release = release, .arg = arg};
  }
  return block;
}

void hr_caching_allocator_free(hr_caching_allocator *allocator, hr_block *block) {
  if (block == NULL) {
    return;
  }
  if (block->release != NULL) {
    block->release(block->arg);
    hr_free(block);
    return;
  }
  hr_mutex_lock(&allocator->mutex);
  allocator->stats.allocated_bytes -= (int64_t)block->bytes;
  if (block->slab != NULL) {
    free_small(allocator, block);
  } else {
    free_large(allocator, block);
  }
  hr_mutex_unlock(&allocator->mutex);
}

void hr_caching_allocator_give_back(hr_caching_allocator *allocator, hr_block *block) {
  if (block == NULL || block->release != NULL || block->slab != NULL || !is_shared_with_others(allocator)) {
    hr_caching_allocator_free(allocator, block);
    return;
  }
  hr_mutex_lock(&allocator->mutex);
  allocator->stats.allocated_bytes -= (int64_t)block->bytes;
  driver_free(allocator, block->address, block->bytes);
  hr_mutex_unlock(&allocator->mutex);
  hr_free(block);
}

void hr_caching_allocator_trim(hr_caching_allocator *allocator) {
  hr_mutex_lock(&allocator->mutex);
  shrink(allocator, 0);
  if (allocator->free_blocks.count == 0) {
    hr_vector_fini(&allocator->free_blocks);
  }
  hr_mutex_unlock(&allocator->mutex);
}

void hr_caching_allocator_limit(hr_caching_allocator *allocator, int64_t bytes) {
  hr_mutex_lock(&allocator->mutex);
  allocator->stats.limit_bytes = bytes > 0 ? bytes : 0;
  if (bytes > 0) {
    shrink(allocator, bytes);
  }
  hr_mutex_unlock(&allocator->mutex);
}

void hr_caching_allocator_stats(hr_caching_allocator *allocator, hr_memory_stats *out_stats) {
  hr_mutex_lock(&allocator->mutex);
  *out_stats = allocator->stats;
  hr_mutex_unlock(&allocator->mutex);
}

void hr_caching_allocator_reset_peak(hr_caching_allocator *allocator) {
  hr_mutex_lock(&allocator->mutex);
  allocator->stats.allocated_bytes_peak = allocator->stats.allocated_bytes;
  allocator->stats.reserved_bytes_peak = allocator->stats.reserved_bytes;
  hr_mutex_unlock(&allocator->mutex);
}
