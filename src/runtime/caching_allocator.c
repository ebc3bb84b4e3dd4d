/* Small blocks come from slabs, all others from a list sorted by size, then by address. The list is an array: a device
 * has at most some hundreds of free blocks, and moving their pointers costs less than walking a tree. The free blocks
 * of a slab are a bit set of two levels. */
#include "runtime/caching_allocator.h"

#include <stdio.h>
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "runtime/cached_weights.h"
#include "runtime/device.h"

enum { LISTED_SIZES = 4 };                         /* in the message of a refusal */
enum { SLAB_WORDS = HR_ALLOCATOR_SLAB / 64 / 64 }; /* the smallest blocks have 64 bytes */
_Static_assert(SLAB_WORDS == 64, "a word says which words have bits");

struct hr_slab {
  char *address;
  int size_class, block_count, free_count;
  uint64_t words, free[SLAB_WORDS]; /* a bit for each word that is not 0; a bit for each free block */
  hr_slab *next, *before;           /* among those of its class with a free block, by address */
  hr_slab *next_of_all, *before_of_all;
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

static bool is_shared_with_others(const hr_caching_allocator *allocator) {
  return allocator->driver->capture_begin == NULL;
}

/* The size of a block. On a host memory that is never touched costs nothing, so blocks of a page to 1 MB are rounded to
 * powers of two: values that grow with each step keep their blocks, whose pages are there and in the caches. */
static size_t round_block(const hr_caching_allocator *allocator, size_t bytes) {
  if (!is_shared_with_others(allocator) || bytes <= HR_ALLOCATOR_PAGE || bytes > (size_t)1 << 20) {
    return hr__caching_allocator_round(bytes);
  }
  return hr_align_up(bytes, (size_t)1 << (floor_log2(bytes - 1) + 1));
}

void hr_caching_allocator_init(hr_caching_allocator *allocator, const struct hr_driver *driver, void *impl,
                               const char *name, int64_t limit_bytes) {
  *allocator = (hr_caching_allocator){.driver = driver, .context = hr__context(), .impl = impl, .name = name};
  allocator->limit_bytes = limit_bytes;
  hr__recent_init(&allocator->recent);
  hr_mutex_init(&allocator->mutex);
}

static int64_t allocated_bytes(const hr_caching_allocator *allocator) {
  return allocator->gauges.bytes[HR_MEMORY_ALL].current;
}

static int64_t reserved_bytes(const hr_caching_allocator *allocator) {
  return allocator->gauges.reserved[HR_MEMORY_ALL].current;
}

/* ---- events ---- */

static void tell(const hr_caching_allocator *allocator, hr_memory_action action, void *address, size_t bytes,
                 void *handle) {
  if (__builtin_expect(allocator->observe != NULL, 0)) {
    allocator->observe(
        allocator->observe_arg,
        &(const hr_memory_event){
            .action = action, .address = address, .bytes = bytes, .handle = handle, .ns = hr_clock_ns()});
  }
}

/* ---- quantities ---- */

static void increase_one(hr_gauge *gauge, int64_t amount) {
  gauge->current += amount;
  gauge->increased += amount;
  gauge->peak = gauge->current > gauge->peak ? gauge->current : gauge->peak;
}

static void increase(hr_gauge *gauges, bool is_small, int64_t amount) {
  increase_one(&gauges[HR_MEMORY_ALL], amount);
  increase_one(&gauges[is_small ? HR_MEMORY_SMALL : HR_MEMORY_LARGE], amount);
}

static void decrease(hr_gauge *gauges, bool is_small, int64_t amount) {
  hr_gauge *all = &gauges[HR_MEMORY_ALL], *own = &gauges[is_small ? HR_MEMORY_SMALL : HR_MEMORY_LARGE];
  all->current -= amount;
  all->decreased += amount;
  own->current -= amount;
  own->decreased += amount;
}

static void count_use(hr_caching_allocator *allocator, const hr_block *block) {
  hr_memory_gauges *gauges = &allocator->gauges;
  bool is_small = block->slab != NULL;
  increase(gauges->blocks, is_small, 1);
  increase(gauges->bytes, is_small, (int64_t)block->bytes);
  increase(gauges->requested, is_small, (int64_t)block->requested);
  tell(allocator, HR_MEMORY_ALLOCATED, block->address, block->requested, NULL);
}

/* The end of that: the block is free from here on. */
static void count_end(hr_caching_allocator *allocator, hr_block *block) {
  hr_memory_gauges *gauges = &allocator->gauges;
  bool is_small = block->slab != NULL;
  decrease(gauges->blocks, is_small, 1);
  decrease(gauges->bytes, is_small, (int64_t)block->bytes);
  decrease(gauges->requested, is_small, (int64_t)block->requested);
  tell(allocator, HR_MEMORY_FREED, block->address, block->requested, NULL);
  block->requested = 0;
}

/* ---- the driver's memory ---- */

static void driver_free(hr_caching_allocator *allocator, void *address, size_t bytes, bool is_small) {
  allocator->driver->free(allocator->impl, address, bytes);
  decrease(allocator->gauges.segments, is_small, 1);
  decrease(allocator->gauges.reserved, is_small, (int64_t)bytes);
  tell(allocator, HR_MEMORY_SEGMENT_FREED, address, bytes, NULL);
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

static void free_slab(hr_caching_allocator *allocator, hr_slab *slab) {
  unlink_slab(allocator, slab);
  *(slab->before_of_all != NULL ? &slab->before_of_all->next_of_all : &allocator->all_slabs) = slab->next_of_all;
  if (slab->next_of_all != NULL) {
    slab->next_of_all->before_of_all = slab->before_of_all;
  }
  driver_free(allocator, slab->address, HR_ALLOCATOR_SLAB, true);
  hr_free(slab);
}

/* Returns cached memory, largest blocks first, until at most `target` bytes are reserved. */
static void shrink(hr_caching_allocator *allocator, int64_t target) {
  while (allocator->free_blocks.count > 0 && reserved_bytes(allocator) > target) {
    hr_block *block = hr_vector_pop(&allocator->free_blocks);
    driver_free(allocator, block->address, block->bytes, false);
    hr_free(block);
  }
  for (int i = 0; i < HR_ALLOCATOR_CLASSES; ++i) {
    for (hr_slab *slab = allocator->slabs[i], *next; slab != NULL; slab = next) {
      next = slab->next;
      if (slab->free_count == slab->block_count && reserved_bytes(allocator) > target) {
        free_slab(allocator, slab);
      }
    }
  }
}

/* Appends the largest sizes of blocks in use, and how many blocks have each. */
static void list_largest(const hr_caching_allocator *allocator, char *text, size_t room) {
  size_t below = SIZE_MAX, used = 0;
  text[0] = '\0';
  for (int i = 0; i < LISTED_SIZES && used < room; ++i) {
    size_t most = 0, count = 0;
    for (const hr_block *block = allocator->used; block != NULL; block = block->next) {
      count = block->requested < below && block->requested > most ? 0 : count;
      most = block->requested < below && block->requested > most ? block->requested : most;
      count += block->requested == most;
    }
    if (most == 0) {
      return;
    }
    used += (size_t)snprintf(text + used, room - used, "%s%zu of %zu bytes", i == 0 ? "; the largest in use: " : ", ",
                             count, most);
    below = most;
  }
}

static hr_status refuse(const hr_caching_allocator *allocator, size_t wanted, const char *reason) {
  char largest[256];
  list_largest(allocator, largest, sizeof largest);
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED,
                        "%s: out of memory: %zu bytes requested, %lld allocated, %lld reserved, limit %lld%s%s%s",
                        allocator->name, wanted, (long long)allocated_bytes(allocator),
                        (long long)reserved_bytes(allocator), (long long)allocator->limit_bytes,
                        reason != NULL ? ": " : "", reason != NULL ? reason : "", largest);
}

/* Drops cached weights; unlocked, because their memory may be this allocator's. */
static void forget_cached_weights(hr_caching_allocator *allocator) {
  hr_mutex_unlock(&allocator->mutex);
  hr_context *before = hr__context_enter(allocator->context);
  hr__cached_weights_forget_all();
  (void)hr__context_enter(before);
  hr_mutex_lock(&allocator->mutex);
}

/* True if another `bytes` bytes are more than the device may reserve. */
static bool is_above_limit(const hr_caching_allocator *allocator, size_t bytes) {
  return allocator->limit_bytes > 0 && reserved_bytes(allocator) + (int64_t)bytes > allocator->limit_bytes;
}

/* Allocates from the driver. Frees cached blocks first if the limit requires it, or if the driver has no memory. */
static hr_status driver_alloc(hr_caching_allocator *allocator, size_t bytes, size_t wanted, bool is_small,
                              void **out_address) {
  if (bytes > INT64_MAX / 4) {
    return refuse(allocator, wanted, "no device has so much");
  }
  if (is_above_limit(allocator, bytes)) {
    ++allocator->gauges.retries;
    shrink(allocator, allocator->limit_bytes - (int64_t)bytes);
    if (is_above_limit(allocator, bytes)) {
      forget_cached_weights(allocator);
      shrink(allocator, allocator->limit_bytes - (int64_t)bytes);
    }
    if (is_above_limit(allocator, bytes)) {
      return refuse(allocator, wanted, NULL);
    }
  }
  hr_status status = allocator->driver->allocate(allocator->impl, bytes, out_address);
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_status_free(status);
    ++allocator->gauges.retries;
    forget_cached_weights(allocator);
    shrink(allocator, 0);
    status = allocator->driver->allocate(allocator->impl, bytes, out_address);
  }
  if (status != HR_OK) {
    hr_status refused = refuse(allocator, wanted, hr_status_message(status));
    hr_status_free(status);
    return refused;
  }
  ++allocator->driver_allocation_count;
  increase(allocator->gauges.segments, is_small, 1);
  increase(allocator->gauges.reserved, is_small, (int64_t)bytes);
  tell(allocator, HR_MEMORY_SEGMENT_ALLOCATED, *out_address, bytes, NULL);
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
  hr_status status = driver_alloc(allocator, HR_ALLOCATOR_SLAB, wanted, true, &address);
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
  slab->next_of_all = allocator->all_slabs;
  if (slab->next_of_all != NULL) {
    slab->next_of_all->before_of_all = slab;
  }
  allocator->all_slabs = slab;
  return HR_OK;
}

static hr_status alloc_small(hr_caching_allocator *allocator, size_t wanted, hr_block **out_block) {
  int size_class;
  size_t bytes = round_eighths(round_block(allocator, wanted), &size_class);
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

/* True if other processes could use the free large blocks, and these exceed their limit divided by `divisor`. */
static bool has_much_free(const hr_caching_allocator *allocator, int64_t divisor) {
  const hr_memory_gauges *gauges = &allocator->gauges;
  int64_t most = hr_max(2 * hr__recent_most(&allocator->recent), HR_ALLOCATOR_FREE_MIN);
  int64_t free_bytes = gauges->reserved[HR_MEMORY_LARGE].current - gauges->bytes[HR_MEMORY_LARGE].current;
  return is_shared_with_others(allocator) && free_bytes > most / divisor;
}

/* Returns the blocks that were freed first, until little is free. */
static void release_old(hr_caching_allocator *allocator) {
  while (allocator->free_blocks.count > 0 && has_much_free(allocator, 1)) {
    size_t oldest = 0;
    for (size_t i = 1; i < allocator->free_blocks.count; ++i) {
      oldest = allocator->free_blocks.data[i]->age < allocator->free_blocks.data[oldest]->age ? i : oldest;
    }
    hr_block *block = allocator->free_blocks.data[oldest];
    take_large(allocator, oldest);
    driver_free(allocator, block->address, block->bytes, false);
    hr_free(block);
  }
}

static void link_used(hr_caching_allocator *allocator, hr_block *block) {
  block->before = NULL;
  block->next = allocator->used;
  if (block->next != NULL) {
    block->next->before = block;
  }
  allocator->used = block;
}

static void unlink_used(hr_caching_allocator *allocator, hr_block *block) {
  *(block->before != NULL ? &block->before->next : &allocator->used) = block->next;
  if (block->next != NULL) {
    block->next->before = block->before;
  }
}

static hr_status alloc_large(hr_caching_allocator *allocator, size_t wanted, hr_block **out_block) {
  size_t bytes = round_block(allocator, wanted), at = find_large(allocator, bytes, NULL);
  size_t waste = has_much_free(allocator, 2) ? 2 * hr__caching_allocator_round(wanted) - bytes : bytes / 8;
  if (at < allocator->free_blocks.count && allocator->free_blocks.data[at]->bytes - bytes <= waste) {
    *out_block = allocator->free_blocks.data[at];
    take_large(allocator, at);
    link_used(allocator, *out_block);
    return HR_OK;
  }
  hr_block *block = hr_calloc(1, sizeof *block);
  if (block == NULL) {
    return refuse(allocator, wanted, "no host memory");
  }
  release_old(allocator);
  hr_status status = driver_alloc(allocator, bytes, wanted, false, &block->address);
  if (status != HR_OK) {
    hr_free(block);
    return status;
  }
  block->bytes = bytes;
  link_used(allocator, block);
  *out_block = block;
  return HR_OK;
}

/* If the list can't grow, the block goes back to the driver. */
static void free_large(hr_caching_allocator *allocator, hr_block *block) {
  unlink_used(allocator, block);
  if (!hr_vector_reserve(&allocator->free_blocks, allocator->free_blocks.count + 1)) {
    driver_free(allocator, block->address, block->bytes, false);
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

/* Free memory that exceeds its limit because less was in use lately goes back. */
static void note_recent(hr_caching_allocator *allocator, const hr_block *block) {
  int64_t in_use = allocator->gauges.bytes[HR_MEMORY_LARGE].current;
  if (block->slab == NULL && hr__recent_note(&allocator->recent, in_use)) {
    release_old(allocator);
  }
}

/* ---- entry points ---- */

hr_status hr_caching_allocator_alloc(hr_caching_allocator *allocator, size_t bytes, hr_block **out_block) {
  hr_mutex_lock(&allocator->mutex);
  hr_block *block = NULL;
  hr_status status =
      bytes <= HR_ALLOCATOR_SMALL_MAX ? alloc_small(allocator, bytes, &block) : alloc_large(allocator, bytes, &block);
  if (status == HR_OK) {
    ++allocator->allocation_count;
    block->requested = bytes > 0 ? bytes : 1;
    count_use(allocator, block);
    note_recent(allocator, block);
    *out_block = block;
  } else {
    ++allocator->gauges.failures;
    tell(allocator, HR_MEMORY_REFUSED, NULL, bytes, NULL);
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
  count_end(allocator, block);
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
  count_end(allocator, block);
  unlink_used(allocator, block);
  driver_free(allocator, block->address, block->bytes, false);
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
  allocator->limit_bytes = bytes > 0 ? bytes : 0;
  if (bytes > 0) {
    shrink(allocator, bytes);
  }
  hr_mutex_unlock(&allocator->mutex);
}

void hr_caching_allocator_stats(hr_caching_allocator *allocator, hr_memory_stats *out_stats) {
  hr_mutex_lock(&allocator->mutex);
  const hr_gauge *bytes = &allocator->gauges.bytes[HR_MEMORY_ALL],
                 *reserved = &allocator->gauges.reserved[HR_MEMORY_ALL];
  *out_stats = (hr_memory_stats){.allocated_bytes = bytes->current,
                                 .allocated_bytes_peak = bytes->peak,
                                 .reserved_bytes = reserved->current,
                                 .reserved_bytes_peak = reserved->peak,
                                 .limit_bytes = allocator->limit_bytes,
                                 .allocation_count = allocator->allocation_count,
                                 .driver_allocation_count = allocator->driver_allocation_count};
  hr_mutex_unlock(&allocator->mutex);
}

typedef void (*gauge_fn)(hr_gauge *gauge);

static void each_gauge(hr_memory_gauges *gauges, gauge_fn fn) {
  hr_gauge *const kinds[] = {gauges->blocks, gauges->bytes, gauges->requested, gauges->segments, gauges->reserved};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
    for (int pool = 0; pool < HR_MEMORY_POOLS; ++pool) {
      fn(&kinds[i][pool]);
    }
  }
}

static void reset_peak(hr_gauge *gauge) {
  gauge->peak = gauge->current;
}

static void reset_totals(hr_gauge *gauge) {
  gauge->increased = gauge->decreased = 0;
}

void hr_caching_allocator_reset_peak(hr_caching_allocator *allocator) {
  hr_mutex_lock(&allocator->mutex);
  each_gauge(&allocator->gauges, reset_peak);
  hr_mutex_unlock(&allocator->mutex);
}

void hr_caching_allocator_reset_totals(hr_caching_allocator *allocator) {
  hr_mutex_lock(&allocator->mutex);
  each_gauge(&allocator->gauges, reset_totals);
  allocator->gauges.retries = allocator->gauges.failures = 0;
  hr_mutex_unlock(&allocator->mutex);
}

void hr_caching_allocator_observe(hr_caching_allocator *allocator,
                                  void (*observe)(void *arg, const hr_memory_event *event), void *arg) {
  hr_mutex_lock(&allocator->mutex);
  allocator->observe = observe;
  allocator->observe_arg = arg;
  hr_mutex_unlock(&allocator->mutex);
}

void hr_caching_allocator_note_owner(hr_caching_allocator *allocator, const hr_block *block, void *handle) {
  hr_mutex_lock(&allocator->mutex);
  tell(allocator, HR_MEMORY_OWNED, block->address, block->requested, handle);
  hr_mutex_unlock(&allocator->mutex);
}

void hr_caching_allocator_gauges(hr_caching_allocator *allocator, hr_memory_gauges *out_gauges) {
  hr_mutex_lock(&allocator->mutex);
  *out_gauges = allocator->gauges;
  hr_mutex_unlock(&allocator->mutex);
}

static hr_memory_block describe(const hr_block *block) {
  const hr_slab *slab = block->slab;
  return (hr_memory_block){.segment = slab != NULL ? slab->address : block->address,
                           .segment_bytes = slab != NULL ? HR_ALLOCATOR_SLAB : block->bytes,
                           .address = block->address,
                           .bytes = block->bytes,
                           .requested = block->requested,
                           .is_small = slab != NULL};
}

void hr_caching_allocator_walk(hr_caching_allocator *allocator, void (*visit)(void *arg, const hr_memory_block *block),
                               void *arg) {
  hr_mutex_lock(&allocator->mutex);
  for (const hr_slab *slab = allocator->all_slabs; slab != NULL; slab = slab->next_of_all) {
    for (int i = 0; i < slab->block_count; ++i) {
      const hr_memory_block described = describe(&slab->blocks[i]);
      visit(arg, &described);
    }
  }
  for (const hr_block *block = allocator->used; block != NULL; block = block->next) {
    const hr_memory_block described = describe(block);
    visit(arg, &described);
  }
  for (size_t i = 0; i < allocator->free_blocks.count; ++i) {
    const hr_memory_block described = describe(allocator->free_blocks.data[i]);
    visit(arg, &described);
  }
  hr_mutex_unlock(&allocator->mutex);
}
