/* ranges.h: named ranges of a thread's time, told to profilers that take them: NVTX (Nsight) and ITT (VTune).
 *
 * A profiler names its library in the environment of the program that it starts; without it ranges are a branch:
 *
 *   NVTX_INJECTION64_PATH    is initialized by NVTX's protocol, version 3: it stores its functions in our table
 *   INTEL_LIBITTNOTIFY64     exports ITT's functions, which are called directly, in the domain "headrace"
 *
 * Both may be present. The library is opened at the first range, stays open, and is called on the thread whose range it
 * is. Ranges nest.
 */
#ifndef HEADRACE_BASE_RANGES_H_
#define HEADRACE_BASE_RANGES_H_

#include "base/context.h"

/* The head of the process's part. */
typedef struct hr_ranges {
  atomic_bool is_off; /* false at first: the first range looks for a profiler */
} hr_ranges;

extern const hr_context_part hr__ranges_part;

static inline bool hr__ranges_are_on(void) {
#if defined(HEADRACE_NO_PROBES) /* see probe.h */
  return false;
#else
  const hr_ranges *ranges = hr__context_part(&hr__context_first, HR_CONTEXT_RANGES, &hr__ranges_part);
  return __builtin_expect(!atomic_load_explicit(&ranges->is_off, memory_order_relaxed), 0);
#endif
}

void hr__range_push(const char *name);
void hr__range_pop(void);

/* `name` is computed only if a profiler takes it, and copied by the profiler. */
#define HR_RANGE_BEGIN(name)   \
  do {                         \
    if (hr__ranges_are_on()) { \
      hr__range_push(name);    \
    }                          \
  } while (0)

#define HR_RANGE_END()         \
  do {                         \
    if (hr__ranges_are_on()) { \
      hr__range_pop();         \
    }                          \
  } while (0)

#endif
