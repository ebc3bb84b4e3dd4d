#include "runtime/lane.h"

#include "base/allocator.h"
#include "base/log.h"
#include "runtime/device.h"

void hr__lane_init(hr_lane *lane, hr_device *device, int number) {
  lane->device = device;
  lane->number = number;
  hr_queue_init(&lane->queue);
  hr_mutex_init(&lane->mutex);
}

void hr__lane_fini(hr_lane *lane) {
  hr_queue_fini(&lane->queue);
  hr_mutex_fini(&lane->mutex);
}

/* ---- opening ---- */

/* Work that was handed to the first lane while it was the only one is noted in no block: all of it comes first. */
static void begin_notes(hr_lane *lane) {
  hr_device *device = lane->device;
  hr_mutex_lock(&lane->mutex);
  hr_mutex_lock(&device->order_mutex);
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
    lane->impl = impl;
    begin_notes(lane);
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

/* ---- temporaries ---- */

/* Growing lengths need a little more each time. On a host pages that nothing touches cost nothing, so a larger block
 * gets room for later ones. */
static hr_status grow_shared(hr_lane *lane, size_t bytes) {
  hr_device *device = lane->device;
  size_t room = lane->shared != NULL && device->properties.is_host ? bytes / 4 : 0;
  hr_caching_allocator_give_back(&device->allocator, lane->shared);
  lane->shared = NULL;
  hr_status status = hr_caching_allocator_alloc(&device->allocator, bytes + room, &lane->shared);
  if (room > 0 && hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_status_free(status);
    status = hr_caching_allocator_alloc(&device->allocator, bytes, &lane->shared);
  }
  return status;
}

hr_status hr__lane_shared(hr_lane *lane, size_t bytes, void **out_address) {
  if (bytes > 0 && (lane->shared == NULL || lane->shared->bytes < bytes)) {
    hr_queue_drain(&lane->queue);
    HR_RETURN_IF_ERROR(grow_shared(lane, bytes));
  }
  *out_address = lane->shared != NULL ? lane->shared->address : NULL;
  return HR_OK;
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

static bool are_reached(const hr_device *device, const hr_tickets *tickets) {
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
  hr_device *device;
  hr_tickets tickets;
} note;

static void wait_in_queue(hr_queue_job *job) {
  note *n = (note *)job;
  (void)hr__tickets_wait_until(n->device, &n->tickets, INT64_MAX);
  hr_free(n);
}

void hr__lane_follow(hr_lane *lane, const hr_tickets *tickets) {
  hr_device *device = lane->device;
  if (are_reached(device, tickets)) {
    return;
  }
  note *n = hr_malloc(sizeof *n);
  if (n == NULL) {
    (void)hr__tickets_wait_until(device, tickets, INT64_MAX);
    return;
  }
  *n = (note){.job.run = wait_in_queue, .device = device, .tickets = *tickets};
  hr_queue_push_note(&lane->queue, &n->job);
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
