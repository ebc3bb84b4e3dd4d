/* Reference counts of API objects. `create` starts at one; the call that drops the last one frees the object. */
#ifndef HEADRACE_BASE_REFCOUNT_H_
#define HEADRACE_BASE_REFCOUNT_H_

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct hr_refcount {
  atomic_int_least32_t count;
} hr_refcount;

static inline void hr_refcount_init(hr_refcount *refcount) {
  atomic_init(&refcount->count, 1);
}

/* Needs a reference that the caller holds or borrows. */
static inline void hr_refcount_retain(hr_refcount *refcount) {
  int_least32_t before = atomic_fetch_add_explicit(&refcount->count, 1, memory_order_relaxed);
  assert(before > 0);
  (void)before;
}

/* True when this was the last reference: all writes of other owners are visible, and the caller frees the object. */
static inline bool hr_refcount_release(hr_refcount *refcount) {
  int_least32_t before = atomic_fetch_sub_explicit(&refcount->count, 1, memory_order_acq_rel);
  assert(before > 0);
  return before == 1;
}

/* True when the caller holds the only reference. */
static inline bool hr_refcount_is_one(const hr_refcount *refcount) {
  return atomic_load_explicit(&refcount->count, memory_order_acquire) == 1;
}

#endif /* HEADRACE_BASE_REFCOUNT_H_ */
