/* order.h: the values of a line in order.
 *
 * Each value becomes a key, an unsigned integer in the order of the values: -0 and +0 have the same, all NaN have the
 * largest. The key is stored with the value's place in the line. So no two elements are equal and every sorting
 * algorithm is stable:
 *
 *   keys of up to 32 bits   key << 32 | place, one uint64_t
 *   keys of 64 bits         {key, place}
 *
 * Lines of fewer than 2^32 values; no complex numbers.
 */
#ifndef HEADRACE_PROVIDERS_HOST_ORDER_H_
#define HEADRACE_PROVIDERS_HOST_ORDER_H_

#include <stdbool.h>

#include "core/ir/dtype.h"

typedef struct hr__pair {
  uint64_t key, place;
} hr__pair;

typedef struct hr__order {
  bool is_packed;
  int key_bits;
  int64_t count;
  void *elements, *other; /* uint64_t or hr__pair; the second as scratch, which sorting swaps with the first */
} hr__order;

bool hr__order_supports(hr_dtype dtype, int64_t count);
/* Bytes of a line's elements; a sort needs twice as many. */
size_t hr__order_bytes(hr_dtype dtype, int64_t count);
/* An order over memory for elements; `other` may be NULL if nothing is sorted. */
hr__order hr__order_make(hr_dtype dtype, int64_t count, void *elements, void *other);
/* Fills elements [begin, end) from a line; descending reverses the order, but not that of equal values. */
void hr__order_fill(hr__order *order, hr_dtype dtype, const void *line, bool descending, int64_t begin, int64_t end);
/* Sorts elements [begin, end); the result may be in `other` (then returns true, and the two are not swapped). */
bool hr__order_sort_range(const hr__order *order, int64_t begin, int64_t end);
/* Sorts all. */
void hr__order_sort(hr__order *order);
/* Keeps the `first` smallest, in the order of their places. 0 < first <= count */
void hr__order_select(hr__order *order, int64_t first);
/* The `first` smallest of a line, in the order of their places, without filling the rest: order->count becomes `first`.
 * Needs room for hr__order_least_room(first) elements in both memories; first > 0. */
void hr__order_fill_least(hr__order *order, hr_dtype dtype, const void *line, bool descending, int64_t first);
static inline int64_t hr__order_least_room(int64_t first) {
  return 2 * first + 512;
}
/* The number of values of a line for each value of the first HR__ORDER_BIN_BITS bits of a key, and the number of NaN.
 */
enum { HR__ORDER_BIN_BITS = 11 };
void hr__order_count(hr_dtype dtype, const void *line, int64_t count, uint32_t *out_counts, int64_t *out_nans);
/* Fills an order with only the elements of a line that begin with `bin`; order->count becomes their number. */
void hr__order_fill_bin(hr__order *order, hr_dtype dtype, const void *line, uint64_t bin);
/* Merges the sorted runs [a, b) and [b, c) of `elements` and writes elements [from, to) of the result into the same
 * places of `other`.
 */
void hr__order_merge(const hr__order *order, int64_t a, int64_t b, int64_t c, int64_t from, int64_t to);

static inline int64_t hr__order_place(const hr__order *order, int64_t i) {
  return order->is_packed ? (int64_t)(((const uint64_t *)order->elements)[i] & UINT32_MAX)
                          : (int64_t)((const hr__pair *)order->elements)[i].place;
}
static inline uint64_t hr__order_key(const hr__order *order, int64_t i) {
  return order->is_packed ? ((const uint64_t *)order->elements)[i] >> 32 : ((const hr__pair *)order->elements)[i].key;
}

/* The key of one value. */
uint64_t hr__order_key_of(hr_dtype dtype, const void *value);
/* The number of an ordered line's values that come before `key`; equal ones, too, if it stands after them. `places`
 * (or NULL) holds each value's place in the line; -1 if one of those is outside. */
int64_t hr__order_search(hr_dtype dtype, const void *line, const int64_t *places, int64_t count, uint64_t key,
                         bool behind);
/* The same for each of many values, in a line that is already ordered. */
void hr__order_search_all(hr_dtype dtype, const void *line, int64_t count, const void *values, int64_t value_count,
                          bool behind, int64_t *out_found);
/* Marks the values of a line of at least one that differ from the one before; the first does, and every NaN. */
void hr__order_differ(hr_dtype dtype, const void *line, int64_t count, bool *out_differs);

#endif
