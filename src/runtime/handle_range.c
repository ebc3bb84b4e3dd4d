#include "runtime/handle_range.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

enum { SEGMENT_COUNT = 4096, SEGMENT_COUNT_SHIFT = 12, RANGE_SHIFT_MIN = 32 };
#if defined(__SANITIZE_THREAD__)
enum { RANGE_SHIFT_MAX = 38 }; /* the sanitizer leaves programs little room */
#else
enum { RANGE_SHIFT_MAX = 44 };
#endif

typedef _Atomic(void *) owner_slot;

typedef struct segment {
  _Atomic(owner_slot *) owners; /* of each slot; published when the fields below are set */
  int shift;                    /* slots of 2^shift bytes */
  int first;                    /* the segment in which the slot begins: for slots longer than a segment */
} segment;

static atomic_uintptr_t range_base;
static int range_shift, segment_shift;
static int segments_used;
static segment segments[SEGMENT_COUNT];
static struct {
  int segment;
  size_t used, count; /* slots of that segment */
} current[HR_HANDLE_SHIFT_MAX + 1];

/* Reserves the range: as much as the system gives. */
static hr_status reserve(void) {
  for (int shift = RANGE_SHIFT_MAX; shift >= RANGE_SHIFT_MIN; shift--) {
    void *base = mmap(NULL, (size_t)1 << shift, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) {
      range_shift = shift;
      segment_shift = shift - SEGMENT_COUNT_SHIFT;
      atomic_store_explicit(&range_base, (uintptr_t)base, memory_order_release);
      return HR_OK;
    }
  }
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "buffer handles: can't reserve %d GB of address space: %s",
                        1 << (RANGE_SHIFT_MIN - 30), strerror(errno));
}

/* Takes the segments for slots of a size that has none left. */
static hr_status add_segment(int shift) {
  int span = shift > segment_shift ? 1 << (shift - segment_shift) : 1;
  if (shift > range_shift || segments_used + span > SEGMENT_COUNT) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "buffer handles: no address space left for 2^%d bytes", shift);
  }
  size_t count = shift < segment_shift ? (size_t)1 << (segment_shift - shift) : 1;
  void *table = mmap(NULL, count * sizeof(owner_slot), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "buffer handles: no memory for a table: %s", strerror(errno));
  }
  int first = segments_used;
  for (int i = 0; i < span; i++) {
    segments[first + i].shift = shift;
    segments[first + i].first = first;
    atomic_store_explicit(&segments[first + i].owners, (owner_slot *)table, memory_order_release);
  }
  segments_used += span;
  current[shift].segment = first;
  current[shift].used = 0;
  current[shift].count = count;
  return HR_OK;
}

hr_status hr__handle_take(int shift, void *owner, void **out_address) {
  if (shift > HR_HANDLE_SHIFT_MAX) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "buffer handles: a buffer can't have 2^%d bytes", shift);
  }
  if (atomic_load_explicit(&range_base, memory_order_relaxed) == 0) {
    HR_RETURN_IF_ERROR(reserve());
  }
  if (current[shift].used == current[shift].count) {
    HR_RETURN_IF_ERROR(add_segment(shift));
  }
  size_t slot = current[shift].used++;
  int at = current[shift].segment;
  owner_slot *owners = atomic_load_explicit(&segments[at].owners, memory_order_relaxed);
  atomic_store_explicit(&owners[slot], owner, memory_order_release);
  uintptr_t base = atomic_load_explicit(&range_base, memory_order_relaxed);
  *out_address = (void *)(base + ((uintptr_t)at << segment_shift) + ((uintptr_t)slot << shift));
  return HR_OK;
}

void *hr__handle_owner(const void *address, void **out_begin) {
  uintptr_t base = atomic_load_explicit(&range_base, memory_order_acquire);
  uintptr_t distance = (uintptr_t)address - base;
  if (base == 0 || (uintptr_t)address < base || distance >> range_shift != 0) {
    return NULL;
  }
  segment *entry = &segments[distance >> segment_shift];
  owner_slot *owners = atomic_load_explicit(&entry->owners, memory_order_acquire);
  if (owners == NULL) {
    return NULL;
  }
  uintptr_t begin = (uintptr_t)entry->first << segment_shift;
  size_t slot = (size_t)((distance - begin) >> entry->shift);
  *out_begin = (void *)(base + begin + ((uintptr_t)slot << entry->shift));
  return atomic_load_explicit(&owners[slot], memory_order_acquire);
}
