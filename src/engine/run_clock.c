#include "engine/run_clock.h"

#include "base/allocator.h"
#include "base/thread.h"

hr_status hr__run_clock_begin(hr_run_clock *clock, const hr_run *run, int tick_max, int64_t *out_tick) {
  *clock = (hr_run_clock){.driver = run->device->driver, .impl = run->impl, .is_on = true};
  if (tick_max > 0 && clock->driver->event_record != NULL) {
    clock->capacity = tick_max + 1;
    clock->events = hr_calloc((size_t)clock->capacity, sizeof *clock->events);
    if (clock->events == NULL) {
      return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a profile's events");
    }
  }
  if (clock->events != NULL) {
    return hr__run_clock_tick(clock, out_tick);
  }
  *out_tick = hr_clock_ns();
  return HR_OK;
}

static hr_status record(hr_run_clock *clock, int64_t *out_tick) {
  void **event = &clock->events[clock->count];
  HR_RETURN_IF_ERROR(clock->driver->event_create(clock->impl, event));
  *out_tick = clock->count++;
  return clock->driver->event_record(clock->impl, *event);
}

hr_status hr__run_clock_tick(hr_run_clock *clock, int64_t *out_tick) {
  if (clock->events != NULL && clock->count < clock->capacity) {
    return record(clock, out_tick);
  }
  if (clock->driver->flush != NULL) { /* the time of the work, not of its submission */
    HR_RETURN_IF_ERROR(clock->driver->flush(clock->impl));
  }
  *out_tick = hr_clock_ns(); /* reading the clock takes some tens of nanoseconds */
  return HR_OK;
}

static void end_clock(hr_run_clock *clock) {
  for (int i = 0; i < clock->count; ++i) {
    clock->driver->event_destroy(clock->impl, clock->events[i]);
  }
  if (clock->events != NULL) {
    hr_free(clock->events);
  }
  *clock = (hr_run_clock){0};
}

/* The time of an event, from that of the last one. */
static hr_status time_of(const hr_run_clock *clock, int64_t tick, int64_t last_ns, int64_t *out_ns) {
  int64_t elapsed = 0;
  HR_RETURN_IF_ERROR(
      clock->driver->event_elapsed(clock->impl, clock->events[tick], clock->events[clock->count - 1], &elapsed));
  *out_ns = last_ns - elapsed;
  return HR_OK;
}

hr_status hr__run_clock_resolve(hr_run_clock *clock, int count, hr_launch_time *times) {
  hr_status status = HR_OK;
  if (clock->events != NULL && clock->count > 0) {
    if (clock->driver->submit != NULL) {
      status = clock->driver->submit(clock->impl);
    }
    status = status != HR_OK ? status : clock->driver->event_wait(clock->impl, clock->events[clock->count - 1]);
    int64_t last_ns = hr_clock_ns();
    for (int i = 0; i < count && status == HR_OK; ++i) {
      if (times[i].end == 0) {
        continue;
      }
      status = time_of(clock, times[i].begin, last_ns, &times[i].begin);
      status = status != HR_OK ? status : time_of(clock, times[i].end, last_ns, &times[i].end);
    }
  }
  for (int i = 0; i < count && status != HR_OK; ++i) {
    times[i] = (hr_launch_time){0};
  }
  end_clock(clock);
  return status;
}
