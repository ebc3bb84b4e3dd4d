/* handle_range.h: unmapped addresses, one slot for each buffer.
 *
 * A range of address space (16 TB, or less if the system grants less) is reserved without access and cut into 4,096
 * segments. A segment holds slots of one power of two, at least 64 bytes and longer than the buffer, so that the
 * address one past the end still belongs to it. Larger slots span several segments. The segment of an address gives the
 * slot size, and a table of the segment gives the owner, without a search.
 *
 * Slots are never freed: their owners are pooled and reused with the same slot. Threads: take needs the caller's lock;
 * owner may be called at any time.
 */
#ifndef HEADRACE_RUNTIME_HANDLE_RANGE_H_
#define HEADRACE_RUNTIME_HANDLE_RANGE_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "headrace/status.h"

enum { HR_HANDLE_SHIFT_MIN = 6, HR_HANDLE_SHIFT_MAX = 44, HR_HANDLE_SEGMENTS = 4096 };

typedef _Atomic(void *) hr_handle_owner;

typedef struct hr_handle_segment {
  _Atomic(hr_handle_owner *) owners; /* of each slot; published when the fields below are set */
  int shift;                         /* slots of 2^shift bytes */
  int first;                         /* the segment in which the slot begins: for slots longer than a segment */
} hr_handle_segment;

/* Zeroed: nothing is reserved yet. */
typedef struct hr_handle_range {
  atomic_uintptr_t base;
  int shift, segment_shift; /* of the sizes of the range and of its segments */
  int segments_used;
  hr_handle_segment segments[HR_HANDLE_SEGMENTS];
  struct {
    int segment;
    size_t used, count; /* slots of that segment */
  } current[HR_HANDLE_SHIFT_MAX + 1];
} hr_handle_range;

/* The slot size (as a power of two) for a buffer; HR_HANDLE_SHIFT_MAX + 1 if the buffer is too large. */
static inline int hr__handle_shift(size_t bytes) {
  int shift = bytes < 64 ? HR_HANDLE_SHIFT_MIN : 64 - __builtin_clzll((unsigned long long)bytes);
  return shift <= HR_HANDLE_SHIFT_MAX ? shift : HR_HANDLE_SHIFT_MAX + 1;
}

/* Allocates a slot of 2^shift bytes for `owner`. */
HR_MUST_USE hr_status hr__handle_take(hr_handle_range *range, int shift, void *owner, void **out_address);
/* The owner of the slot that holds `address`, or NULL, and the slot's first address. */
void *hr__handle_owner(hr_handle_range *range, const void *address, void **out_begin);
/* True for every address of the reserved range. */
bool hr__handle_is_within(hr_handle_range *range, const void *address);

#endif
