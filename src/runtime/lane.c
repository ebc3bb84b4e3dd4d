#include "runtime/lane.h"

#include "base/allocator.h"
#include "base/log.h"
#include "runtime/device.h"

void hr__lane_init(hr_lane *lane, hr_device *device, int number) {
  lane->device = device;
  lane->number = number;
  hr_queue_init(&lane->queue);
  hr_mutex_init(&lane->mutex);
  hr__recent_init(&lane->recent);
}

static void free_events(hr_lane *lane) {
  for (int i = 0; lane->events != NULL && i < HR_LANE_EVENTS; ++i) {
    if (lane->events[i].event != NULL) {
      lane->device->driver->event_destroy(lane->impl, lane->events[i].event);
    }
  }
  hr_free(lane->events);
}

void hr__lane_fini(hr_lane *lane) {
  const hr_driver *driver = lane->device->driver;
  free_events(lane);
  if (lane->number > 0 && lane->impl != NULL) {
    driver->close(lane->impl);
  }
  hr_queue_fini(&lane->queue);
  hr_mutex_fini(&lane->mutex);
}

/* ---- opening ---- */

/* Before the lane's jobs are noted. */
static void make_events(hr_lane *lane) {
  if (lane->events == NULL && hr__device_runs_later(lane->device)) {
    lane->events = hr_calloc(HR_LANE_EVENTS, sizeof *lane->events);
  }
}

/* Work that was handed to the first lane while it was the only one is noted in no block: all of it comes first. */
static void begin(hr_lane *lane, void *impl) {
  hr_device *device = lane->device;
  hr_mutex_lock(&lane->mutex);
  hr_mutex_lock(&device->order_mutex);
  lane->impl = impl;
  make_events(lane);
  make_events(&device->lanes[0]);
  const hr_tickets before = {{device->lanes[0].handed}};
  atomic_store(&device->has_several_lanes, true);
  hr__lane_follow(lane, &before);
  hr_mutex_unlock(&device->order_mutex);
  hr_mutex_unlock(&lane->mutex);
}

/* False if the driver can't open the device once more. */
static bool open_lane(hr_lane *lane) {
  hr_device *device = lane->device;
  void *impl = NULL;
  hr_status status = lane->impl == NULL ? device->driver->open(device->ordinal, &impl) : HR_OK;
  if (status != HR_OK) {
    hr_log(HR_LOG_DEVICE, "device %s: no lane %d: %s", device->name, lane->number, hr_status_message(status));
    hr_status_ignore(status);
    return false;
  }
  if (impl != NULL) {
    begin(lane, impl);
  }
  return true;
}

/* The first lane if it is free, else the one of the others with the fewest streams. */
static hr_lane *least_used(hr_device *device) {
  hr_lane *least = &device->lanes[0];
  for (int i = 1; i < device->lanes_max && device->lanes[0].streams > 0; ++i) {
    hr_lane *lane = &device->lanes[i];
    least = least->number == 0 || lane->streams < least->streams ? lane : least;
  }
  return least;
}

hr_lane *hr__lane_choose(hr_device *device) {
  hr_mutex_lock(&device->streams_mutex);
  hr_lane *lane = least_used(device);
  lane = open_lane(lane) ? lane : &device->lanes[0];
  ++lane->streams;
  hr_mutex_unlock(&device->streams_mutex);
  return lane;
}

void hr__lane_leave(hr_lane *lane) {
  hr_mutex_lock(&lane->device->streams_mutex);
  --lane->streams;
  hr_mutex_unlock(&lane->device->streams_mutex);
}

void *hr__lane_opening(hr_device *device, const void *queue) {
  if (device->driver->native == NULL) {
    return device->impl;
  }
  void *found = device->driver->native(device->impl) == queue ? device->impl : NULL;
  hr_mutex_lock(&device->order_mutex);
  for (int i = 1; i < HR_LANES_MAX && found == NULL; ++i) {
    void *impl = device->lanes[i].impl;
    found = impl != NULL && device->driver->native(impl) == queue ? impl : NULL;
  }
  hr_mutex_unlock(&device->order_mutex);
  return found;
}

/* ---- temporaries ---- */

/* Uses of the block that are noted at once: those before it is the lane's, or while it was. Its queue is drained. */
static void note_shared(hr_lane *lane) {
  hr_device *device = lane->device;
  hr_tickets before = {{0}};
  if (lane->shared == NULL || !hr__device_runs_later(device)) {
    return;
  }
  hr_mutex_lock(&device->order_mutex);
  hr__lane_use(lane, lane->handed, true, &lane->shared->uses, &before);
  hr__lane_follow(lane, &before);
  hr_mutex_unlock(&device->order_mutex);
}

static void set_shared(hr_lane *lane, hr_block *block) {
  int64_t bytes =
      (block != NULL ? (int64_t)block->bytes : 0) - (lane->shared != NULL ? (int64_t)lane->shared->bytes : 0);
  atomic_fetch_add_explicit(&lane->device->lane_bytes, bytes, memory_order_relaxed);
  lane->shared = block;
}

/* Growing lengths need a little more each time. On a host pages that nothing touches cost nothing, so a larger block
 * gets room for later ones. */
static hr_status grow_shared(hr_lane *lane, size_t bytes) {
  hr_device *device = lane->device;
  size_t room = lane->shared != NULL && device->properties.is_host ? bytes / 4 : 0;
  note_shared(lane);
  hr_block *before = lane->shared, *block = NULL;
  set_shared(lane, NULL);
  hr_caching_allocator_give_back(&device->allocator, before);
  hr_status status = hr_caching_allocator_alloc(&device->allocator, bytes + room, &block);
  if (room > 0 && hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_status_free(status);
    status = hr_caching_allocator_alloc(&device->allocator, bytes, &block);
  }
  set_shared(lane, block);
  note_shared(lane);
  return status;
}

/* Notes the need of a job; true if the block is large, and jobs needed less than half of it lately. */
static bool is_outsized(hr_lane *lane, size_t bytes) {
  enum { LARGE = 64 << 20 };
  bool may_shrink = lane->device->properties.is_host && lane->shared != NULL && lane->shared->bytes > LARGE;
  return may_shrink && hr__recent_note(&lane->recent, (int64_t)bytes) &&
         hr__recent_most(&lane->recent) < (int64_t)(lane->shared->bytes / 2);
}

hr_status hr__lane_shared(hr_lane *lane, size_t bytes, void **out_address) {
  if (bytes > 0 && (lane->shared == NULL || lane->shared->bytes < bytes)) {
    hr_queue_drain(&lane->queue);
    HR_RETURN_IF_ERROR(grow_shared(lane, bytes));
    hr__recent_note(&lane->recent, (int64_t)bytes);
  } else if (is_outsized(lane, bytes)) {
    hr_queue_drain(&lane->queue);
    HR_RETURN_IF_ERROR(grow_shared(lane, (size_t)hr_max(hr__recent_most(&lane->recent), 1)));
  }
  *out_address = lane->shared != NULL ? lane->shared->address : NULL;
  return HR_OK;
}

void hr__lane_free_shared(hr_lane *lane) {
  hr_queue_drain(&lane->queue);
  note_shared(lane);
  hr_block *before = lane->shared;
  set_shared(lane, NULL);
  hr_caching_allocator_free(&lane->device->allocator, before);
}

/* ---- order ---- */

static void add_ticket(hr_tickets *tickets, uint64_t number, uint64_t ticket) {
  if (tickets->of[number] < ticket) {
    tickets->of[number] = ticket;
  }
}

void hr__lane_use(const hr_lane *lane, uint64_t ticket, bool writes, hr_block_uses *uses, hr_tickets *tickets) {
  uint64_t own = lane != NULL ? (uint64_t)lane->number : HR_LANES_MAX;
  uint64_t writer = uses->written % HR_LANES_MAX;
  if (writer != own) {
    add_ticket(tickets, writer, uses->written / HR_LANES_MAX);
  }
  for (uint64_t other = 0; writes && other < HR_LANES_MAX; ++other) {
    if (other != own) {
      add_ticket(tickets, other, uses->last.of[other]);
    }
  }
  if (lane == NULL) {
    return;
  }
  uses->last.of[own] = ticket;
  if (writes) {
    uses->written = ticket * HR_LANES_MAX + own;
  }
}

static bool is_reached(const hr_device *device, int number, uint64_t ticket) {
  return ticket == 0 || atomic_load_explicit(&device->lanes[number].reached, memory_order_acquire) >= ticket;
}

bool hr__tickets_are_reached(const hr_device *device, const hr_tickets *tickets) {
  bool are = true;
  for (int i = 0; are && i < HR_LANES_MAX; ++i) {
    are = is_reached(device, i, tickets->of[i]);
  }
  return are;
}

/* A job that was begun early is finished here: no later use of its queue may come. */
static bool wait_for(hr_lane *lane, uint64_t ticket, int64_t deadline_ns) {
  bool is_early = true;
  hr_queue_settle(&lane->queue);
  hr_mutex_lock(&lane->queue.mutex);
  while (!is_reached(lane->device, lane->number, ticket) && is_early) {
    is_early = hr_cond_wait_until(&lane->queue.done, &lane->queue.mutex, deadline_ns);
  }
  hr_mutex_unlock(&lane->queue.mutex);
  return is_reached(lane->device, lane->number, ticket);
}

bool hr__tickets_wait_until(hr_device *device, const hr_tickets *tickets, int64_t deadline_ns) {
  bool are = true;
  for (int i = 0; are && i < HR_LANES_MAX; ++i) {
    are = is_reached(device, i, tickets->of[i]) || wait_for(&device->lanes[i], tickets->of[i], deadline_ns);
  }
  return are;
}

typedef struct note {
  hr_queue_job job; /* first */
  hr_lane *lane;
  hr_tickets tickets;
} note;

static void wait_in_queue(hr_queue_job *job) {
  note *n = (note *)job;
  hr__lane_follow_here(n->lane, &n->tickets);
  hr_free(n);
}

void hr__lane_follow(hr_lane *lane, const hr_tickets *tickets) {
  note *n = hr__tickets_are_reached(lane->device, tickets) ? NULL : hr_malloc(sizeof *n);
  if (n == NULL) {
    hr__lane_follow_here(lane, tickets);
    return;
  }
  *n = (note){.job.run = wait_in_queue, .lane = lane, .tickets = *tickets};
  hr_queue_push_note(&lane->queue, &n->job);
}

/* ---- order of work that runs later than its job ---- */

static void record_event(hr_lane *lane, uint64_t ticket) {
  const hr_driver *driver = lane->device->driver;
  hr_lane_event *place = &lane->events[ticket % HR_LANE_EVENTS];
  hr_status status = place->event == NULL ? driver->event_create(lane->impl, &place->event) : HR_OK;
  status = status == HR_OK ? driver->event_record(lane->impl, place->event) : status;
  if (status == HR_OK) {
    atomic_store_explicit(&place->ticket, ticket, memory_order_release);
  }
  hr_status_ignore(status);
}

void hr__lane_reach(hr_lane *lane, uint64_t ticket) {
  if (atomic_load_explicit(&lane->watched, memory_order_acquire) > 0 && lane->events != NULL) {
    atomic_fetch_sub_explicit(&lane->watched, 1, memory_order_relaxed);
    record_event(lane, ticket);
  }
  atomic_store_explicit(&lane->reached, ticket, memory_order_release);
}

void hr__lane_note_submitted(hr_lane *lane) {
  if (lane->device->driver->flush != NULL) {
    atomic_fetch_add_explicit(&lane->submitted, 1, memory_order_release);
  }
}

hr_status hr__lane_flush(hr_lane *lane) {
  if (lane->device->driver->flush == NULL) {
    return HR_OK;
  }
  uint64_t submitted = atomic_load_explicit(&lane->submitted, memory_order_acquire);
  hr_status status = lane->device->driver->flush(lane->impl);
  uint64_t ended = atomic_load_explicit(&lane->ended, memory_order_relaxed);
  while (ended < submitted && !atomic_compare_exchange_weak_explicit(&lane->ended, &ended, submitted,
                                                                     memory_order_release, memory_order_relaxed)) {
  }
  return status;
}

bool hr__lane_may_run(const hr_lane *lane) {
  uint64_t ended = atomic_load_explicit(&lane->ended, memory_order_acquire);
  return atomic_load_explicit(&lane->submitted, memory_order_acquire) > ended;
}

/* The event after the work of a ticket that is reached, or after later work of its lane; NULL: there is none. */
static void *event_of(hr_lane *lane, uint64_t ticket) {
  const hr_lane_event *place = lane->events != NULL ? &lane->events[ticket % HR_LANE_EVENTS] : NULL;
  atomic_store_explicit(&lane->watched, HR_LANE_EVENTS, memory_order_release);
  return place != NULL && atomic_load_explicit(&place->ticket, memory_order_acquire) >= ticket ? place->event : NULL;
}

/* Follows all that an opening of the driver was given so far. */
static hr_status follow_all(const hr_lane *lane, void *impl) {
  const hr_driver *driver = lane->device->driver;
  void *event;
  HR_RETURN_IF_ERROR(driver->event_create(impl, &event));
  hr_status status = driver->event_record(impl, event);
  status = status == HR_OK ? driver->event_follow(lane->impl, event) : status;
  driver->event_destroy(impl, event);
  return status;
}

/* If the device can't wait, the host does; a failure is reported by the other lane's own waits. */
static void follow_event(const hr_lane *lane, void *event, void *impl) {
  const hr_driver *driver = lane->device->driver;
  hr_status status = event != NULL ? driver->event_follow(lane->impl, event) : follow_all(lane, impl);
  if (status != HR_OK) {
    hr_status_ignore(driver->flush(impl));
  }
  hr_status_ignore(status);
}

void hr__lane_follow_here(hr_lane *lane, const hr_tickets *tickets) {
  hr_lane *lanes = lane->device->lanes;
  (void)hr__tickets_wait_until(lane->device, tickets, INT64_MAX);
  for (int i = 0; hr__device_runs_later(lane->device) && i < HR_LANES_MAX; ++i) {
    uint64_t ticket = i != lane->number ? tickets->of[i] : 0;
    if (atomic_load_explicit(&lane->followed[i], memory_order_acquire) < ticket) {
      follow_event(lane, event_of(&lanes[i], ticket), lanes[i].impl);
      atomic_store_explicit(&lane->followed[i], ticket, memory_order_release);
    }
  }
}

void hr__lane_follow_queue(hr_lane *lane) {
  if (lane->number > 0 && hr__device_runs_later(lane->device)) {
    follow_event(lane, NULL, lane->device->impl);
  }
}

static hr_status finish_ticket(hr_lane *lane, uint64_t ticket) {
  void *event = event_of(lane, ticket);
  return event != NULL ? lane->device->driver->event_wait(lane->impl, event) : lane->device->driver->flush(lane->impl);
}

hr_status hr__tickets_finish(hr_device *device, const hr_tickets *tickets) {
  hr_status status = HR_OK;
  for (int i = 0; hr__device_runs_later(device) && i < HR_LANES_MAX && status == HR_OK; ++i) {
    status = tickets->of[i] > 0 ? finish_ticket(&device->lanes[i], tickets->of[i]) : HR_OK;
  }
  return status;
}

/* ---- work outside of jobs ---- */

uint64_t hr__lane_begin_use(hr_lane *lane, bool writes, hr_block *block) {
  hr_device *device = lane->device;
  hr_tickets before = {{0}};
  hr_mutex_lock(&lane->mutex);
  hr_mutex_lock(&device->order_mutex);
  uint64_t ticket = hr__lane_hand(lane);
  hr__lane_use(lane, ticket, writes, &block->uses, &before);
  hr_mutex_unlock(&device->order_mutex);
  hr__lane_follow_here(lane, &before);
  return ticket;
}

typedef struct point {
  hr_queue_job job; /* first */
  hr_lane *lane;
  uint64_t ticket;
} point;

static void reach_point(hr_queue_job *job) {
  point *p = (point *)job;
  hr__lane_reach(p->lane, p->ticket);
  hr_free(p);
}

/* Without memory for a note, the queue is drained first. */
void hr__lane_end_use(hr_lane *lane, uint64_t ticket) {
  bool is_inline = hr_queue_begin_inline(&lane->queue);
  point *p = is_inline ? NULL : hr_malloc(sizeof *p);
  if (p != NULL) {
    *p = (point){.job.run = reach_point, .lane = lane, .ticket = ticket};
    hr_queue_push_note(&lane->queue, &p->job);
  } else {
    if (!is_inline) {
      hr_queue_drain(&lane->queue);
    }
    hr__lane_reach(lane, ticket);
  }
  if (is_inline) {
    hr_queue_end_inline(&lane->queue);
  }
  hr_mutex_unlock(&lane->mutex);
}

/* ---- the team ---- */

bool hr__lane_take_team(hr_lane *lane) {
  return !atomic_exchange_explicit(&lane->device->is_team_taken, true, memory_order_acquire);
}

void hr__lane_return_team(hr_lane *lane, bool has_team) {
  if (has_team) {
    atomic_store_explicit(&lane->device->is_team_taken, false, memory_order_release);
  }
}
