/* run_clock.h: when the steps of a run began and ended, on the axis of hr_clock_ns.
 *
 * On a device with events, one is put into the work after each step. When all steps are submitted, the host waits once,
 * for the last one, and counts back from the time at that moment. Elsewhere, and if each step's time is wanted at once,
 * the host waits for each step.
 *
 * Threads: the one that runs the steps.
 */
#ifndef HEADRACE_ENGINE_RUN_CLOCK_H_
#define HEADRACE_ENGINE_RUN_CLOCK_H_

#include "engine/run_scratch.h"

typedef struct hr_run_clock {
  const hr_driver *driver;
  void *impl;
  bool is_on;
  void **events; /* those of ticks 0 to count - 1; NULL: by waiting */
  int count, capacity;
} hr_run_clock;

/* Begins: the first tick is now. With `tick_max` > 0, so many further ones follow at most, and each may be an event;
 * with 0 each is a time. */
HR_MUST_USE hr_status hr__run_clock_begin(hr_run_clock *clock, const hr_run *run, int tick_max, int64_t *out_tick);
/* A point after the work submitted so far: with events its number, else its time. The clock has begun. */
HR_MUST_USE hr_status hr__run_clock_tick(hr_run_clock *clock, int64_t *out_tick);
/* Makes times of the ticks in a list of launches, whose `end` is 0 where there is none; on failure there are none. Then
 * ends the clock, which may be one that has not begun. */
HR_MUST_USE hr_status hr__run_clock_resolve(hr_run_clock *clock, int count, hr_launch_time *times);

#endif
