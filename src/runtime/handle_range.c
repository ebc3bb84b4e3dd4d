#include "runtime/handle_range.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

enum { SEGMENT_COUNT_SHIFT = 12, RANGE_SHIFT_MIN = 32 };
#if defined(__SANITIZE_THREAD__)
enum { RANGE_SHIFT_MAX = 38 }; /* the sanitizer leaves programs little address space */
#else
enum { RANGE_SHIFT_MAX = 44 };
#endif

/* Reserves the range, or as much of it as the system grants. */
static hr_status reserve(hr_handle_range *range) {
  for (int shift = RANGE_SHIFT_MAX; shift >= RANGE_SHIFT_MIN; --shift) {
    void *base = mmap(NULL, (size_t)1 << shift, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) {
      range->shift = shift;
      range->segment_shift = shift - SEGMENT_COUNT_SHIFT;
      atomic_store_explicit(&range->base, (uintptr_t)base, memory_order_release);
      return HR_OK;
    }
  }
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "buffer handles: can't reserve %d GB of address space: %s",
                        1 << (RANGE_SHIFT_MIN - 30), strerror(errno));
}

/* Adds segments for slots of a size that has none left. */
static hr_status add_segment(hr_handle_range *range, int shift) {
  int span = shift > range->segment_shift ? 1 << (shift - range->segment_shift) : 1;
  if (shift > range->shift || range->segments_used + span > HR_HANDLE_SEGMENTS) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "buffer handles: no address space left for 2^%d bytes", shift);
  }
  size_t count = shift < range->segment_shift ? (size_t)1 << (range->segment_shift - shift) : 1;
  void *table = mmap(NULL, count * sizeof(hr_handle_owner), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "buffer handles: no memory for a table: %s", strerror(errno));
  }
  int first = range->segments_used;
  for (int i = 0; i < span; ++i) {
    range->segments[first + i].shift = shift;
    range->segments[first + i].first = first;
    atomic_store_explicit(&range->segments[first + i].owners, (hr_handle_owner *)table, memory_order_release);
  }
  range->segments_used += span;
  range->current[shift].segment = first;
  range->current[shift].used = 0;
  range->current[shift].count = count;
  return HR_OK;
}

hr_status hr__handle_take(hr_handle_range *range, int shift, void *owner, void **out_address) {
  if (shift > HR_HANDLE_SHIFT_MAX) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "buffer handles: a buffer can't have 2^%d bytes", shift);
  }
  if (atomic_load_explicit(&range->base, memory_order_relaxed) == 0) {
    HR_RETURN_IF_ERROR(reserve(range));
  }
  if (range->current[shift].used == range->current[shift].count) {
    HR_RETURN_IF_ERROR(add_segment(range, shift));
  }
  size_t slot = range->current[shift].used++;
  int at = range->current[shift].segment;
  hr_handle_owner *owners = atomic_load_explicit(&range->segments[at].owners, memory_order_relaxed);
  atomic_store_explicit(&owners[slot], owner, memory_order_release);
  uintptr_t base = atomic_load_explicit(&range->base, memory_order_relaxed);
  *out_address = (void *)(base + ((uintptr_t)at << range->segment_shift) + ((uintptr_t)slot << shift));
  return HR_OK;
}

bool hr__handle_is_within(hr_handle_range *range, const void *address) {
  uintptr_t base = atomic_load_explicit(&range->base, memory_order_acquire);
  return base != 0 && (uintptr_t)address >= base && ((uintptr_t)address - base) >> range->shift == 0;
}

void *hr__handle_owner(hr_handle_range *range, const void *address, void **out_begin) {
  uintptr_t base = atomic_load_explicit(&range->base, memory_order_acquire);
  uintptr_t distance = (uintptr_t)address - base;
  if (!hr__handle_is_within(range, address)) {
    return NULL;
  }
  hr_handle_segment *entry = &range->segments[distance >> range->segment_shift];
  hr_handle_owner *owners = atomic_load_explicit(&entry->owners, memory_order_acquire);
  if (owners == NULL) {
    return NULL;
  }
  uintptr_t begin = (uintptr_t)entry->first << range->segment_shift;
  size_t slot = (size_t)((distance - begin) >> entry->shift);
  *out_begin = (void *)(base + begin + ((uintptr_t)slot << entry->shift));
  return atomic_load_explicit(&owners[slot], memory_order_acquire);
}
