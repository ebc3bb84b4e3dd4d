/* recent.h: the largest amount of a quantity lately: of two windows of time, the current one and the one before. So
 * memory that was needed once is not kept for ever, and what is needed in turns is. */
#ifndef HEADRACE_RUNTIME_RECENT_H_
#define HEADRACE_RUNTIME_RECENT_H_

#include "base/integer.h"
#include "base/thread.h"

#define HR_RECENT_WINDOW_NS INT64_C(10000000000)

typedef struct hr_recent {
  int64_t most[2]; /* of the current window, and of the one before */
  int64_t begin_ns, window_ns;
} hr_recent;

static inline void hr__recent_init(hr_recent *recent) {
  *recent = (hr_recent){.begin_ns = hr_clock_ns(), .window_ns = HR_RECENT_WINDOW_NS};
}

/* Notes an amount; true if that begins another window. */
static inline bool hr__recent_note(hr_recent *recent, int64_t amount) {
  recent->most[0] = hr_max(recent->most[0], amount);
  int64_t now = hr_clock_ns();
  if (now - recent->begin_ns < recent->window_ns) {
    return false;
  }
  recent->most[1] = recent->most[0], recent->most[0] = amount;
  recent->begin_ns = now;
  return true;
}

static inline int64_t hr__recent_most(const hr_recent *recent) {
  return hr_max(recent->most[0], recent->most[1]);
}

#endif
