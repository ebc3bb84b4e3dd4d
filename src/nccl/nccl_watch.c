/* nccl_watch.c: see nccl_watch.h. */
#include "nccl/nccl_watch.h"

#include <stdio.h>

#include "base/integer.h"

enum { LOOK_MS = 50 };
#define SLOW_NS INT64_C(1000000000)
#define SLOW_NS_APART (16 * SLOW_NS)

void hr__nccl_watch_init(hr__nccl_watch *watch, hr_device *device) {
  watch->device = device;
  hr_mutex_init(&watch->mutex);
  hr_cond_init(&watch->changed);
}

/* ---- calls ---- */

static hr__nccl_call *call_at(hr__nccl_watch *watch, unsigned place) {
  return &watch->calls[(watch->first + place) % HR__NCCL_WATCHED];
}

void hr__nccl_watch_expect(hr__nccl_watch *watch, const hr_group_call *call) {
  hr_mutex_lock(&watch->mutex);
  if (!watch->is_open) {
    ++watch->last_number;
    watch->is_open = watch->on_late != NULL && watch->count < HR__NCCL_WATCHED;
    if (watch->is_open) {
      hr__nccl_call *it = call_at(watch, watch->count++);
      snprintf(it->name, sizeof it->name, "%s", call->name);
      it->timeout_ns = call->timeout_ns;
      it->begin_ns = hr_clock_ns();
      it->slow_ns = SLOW_NS;
      it->number = watch->last_number;
      it->is_enqueued = false;
      hr_cond_signal(&watch->changed);
    }
  }
  hr_mutex_unlock(&watch->mutex);
}

static hr_status record(const hr__nccl_watch *watch, void *opening, hr__nccl_call *call) {
  const hr_device *device = watch->device;
  if (device->driver->event_is_done == NULL || opening == NULL) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s has no events", device->name); /* its calls have ended */
  }
  if (call->event == NULL) {
    HR_RETURN_IF_ERROR(device->driver->event_create(device->impl, &call->event));
  }
  return device->driver->event_record(opening, call->event);
}

void hr__nccl_watch_enqueued(hr__nccl_watch *watch, void *opening, hr_status status) {
  hr_mutex_lock(&watch->mutex);
  if (watch->is_open) {
    hr__nccl_call *last = call_at(watch, watch->count - 1);
    hr_status recorded = status == HR_OK ? record(watch, opening, last) : HR_OK;
    last->is_enqueued = status == HR_OK && recorded == HR_OK;
    watch->count -= !last->is_enqueued;
    watch->is_open = false;
    hr_status_ignore(recorded);
  }
  hr_mutex_unlock(&watch->mutex);
}

/* ---- the thread ---- */

/* Removes calls that have ended. The watch is locked. */
static void remove_ended(hr__nccl_watch *watch) {
  const hr_device *device = watch->device;
  bool is_done = true;
  while (watch->count > 0 && is_done) {
    const hr__nccl_call *first = call_at(watch, 0);
    is_done = first->is_enqueued && device->driver->event_is_done(device->impl, first->event);
    if (is_done) {
      watch->first = (watch->first + 1) % HR__NCCL_WATCHED;
      --watch->count;
    }
  }
}

/* Unlocks the watch around on_slow, which may wait. */
static bool check_slow(hr__nccl_watch *watch) {
  hr__nccl_call *first = call_at(watch, 0);
  if (watch->count == 0 || hr_clock_ns() - first->begin_ns <= first->slow_ns) {
    return true;
  }
  first->slow_ns += hr_min(first->slow_ns, SLOW_NS_APART);
  hr_mutex_unlock(&watch->mutex);
  bool is_fine = watch->on_slow(watch->arg);
  hr_mutex_lock(&watch->mutex);
  return is_fine;
}

static void look(void *arg) {
  hr__nccl_watch *watch = arg;
  bool is_late = false, is_fine = true;
  hr_mutex_lock(&watch->mutex);
  while (!watch->is_ending && !is_late && is_fine) {
    if (watch->count == 0) {
      hr_cond_wait(&watch->changed, &watch->mutex);
    } else {
      (void)hr_cond_wait_until(&watch->changed, &watch->mutex, hr_clock_ns() + LOOK_MS * INT64_C(1000000));
    }
    remove_ended(watch);
    is_fine = check_slow(watch);
    is_late = watch->count > 0 && hr_clock_ns() - call_at(watch, 0)->begin_ns > call_at(watch, 0)->timeout_ns;
  }
  const hr__nccl_call late = *call_at(watch, 0);
  hr_mutex_unlock(&watch->mutex);
  if (is_late && is_fine) {
    watch->on_late(watch->arg, &late);
  }
}

hr_status hr__nccl_watch_start(hr__nccl_watch *watch, bool (*on_slow)(void *arg),
                               void (*on_late)(void *arg, const hr__nccl_call *call), void *arg) {
  watch->arg = arg;
  watch->on_slow = on_slow;
  watch->on_late = on_late;
  hr_status status = hr_thread_start("hr-nccl", look, watch, &watch->thread);
  if (status != HR_OK) {
    watch->on_late = NULL;
  }
  return status;
}

void hr__nccl_watch_fini(hr__nccl_watch *watch) {
  hr_mutex_lock(&watch->mutex);
  watch->is_ending = true;
  hr_cond_signal(&watch->changed);
  hr_mutex_unlock(&watch->mutex);
  hr_thread_join(&watch->thread);
  for (int i = 0; i < HR__NCCL_WATCHED; ++i) {
    if (watch->calls[i].event != NULL) {
      watch->device->driver->event_destroy(watch->device->impl, watch->calls[i].event);
    }
  }
  hr_cond_fini(&watch->changed);
  hr_mutex_fini(&watch->mutex);
}
