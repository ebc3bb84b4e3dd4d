/* message.c: messages between two ranks, beside the collectives.
 *
 * Each ordered pair of ranks has a ring. A message that does not fit, or comes after one that did not, is copied and
 * written by a thread of the sender's, as the receiver makes room. Messages with other tags than the wanted one are
 * kept by the receiver. */
#include <string.h>
#include <time.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "group/segment.h"

enum { ALIGNMENT = 16 };

typedef struct head {
  int32_t tag, dtype;
  int64_t bytes;
} head;
_Static_assert(sizeof(head) == ALIGNMENT, "the head of a message is one unit of its ring");

struct hr_outgoing {
  hr_outgoing *next;
  size_t bytes, written; /* of the block below, head included */
  char block[];
};

struct hr_incoming {
  hr_incoming *next;
  int from;
  head head;
  char data[];
};

/* ---- rings ---- */

static size_t room_in(const hr_group *group, hr_group_ring *ring) {
  return (size_t)group->header->ring_bytes -
         (size_t)(atomic_load(&ring->written) - atomic_load_explicit(&ring->read, memory_order_acquire));
}

static void copy_in(const hr_group *group, int to, const char *from, size_t bytes) {
  hr_group_ring *ring = hr__group_ring(group, group->rank, to);
  char *data = hr__group_ring_data(group, group->rank, to);
  size_t size = (size_t)group->header->ring_bytes, at = (size_t)(atomic_load(&ring->written) % size);
  size_t first = bytes < size - at ? bytes : size - at;
  memcpy(data + at, from, first);
  memcpy(data, from + first, bytes - first);
  atomic_fetch_add(&ring->written, bytes);
}

/* Reads up to `bytes` of what is there; `to` NULL drops them. */
static size_t copy_out(const hr_group *group, int from, char *to, size_t bytes) {
  hr_group_ring *ring = hr__group_ring(group, from, group->rank);
  const char *data = hr__group_ring_data(group, from, group->rank);
  size_t size = (size_t)group->header->ring_bytes, at = (size_t)(atomic_load(&ring->read) % size);
  size_t there = (size_t)(atomic_load(&ring->written) - atomic_load(&ring->read));
  bytes = bytes < there ? bytes : there;
  size_t first = bytes < size - at ? bytes : size - at;
  if (to != NULL) {
    memcpy(to, data + at, first);
    memcpy(to + first, data, bytes - first);
  }
  atomic_fetch_add(&ring->read, bytes);
  return bytes;
}

/* ---- sending ---- */

/* Writes what fits of the messages for a rank; true if something did. The mutex is held. */
static bool push(hr_group *group, int to) {
  bool has_moved = false;
  for (hr_outgoing *message; (message = group->outgoing_first[to]) != NULL;) {
    size_t room = room_in(group, hr__group_ring(group, group->rank, to));
    size_t bytes = message->bytes - message->written;
    bytes = bytes < room ? bytes : room;
    copy_in(group, to, message->block + message->written, bytes);
    message->written += bytes;
    has_moved = has_moved || bytes > 0;
    if (message->written < message->bytes) {
      break;
    }
    group->outgoing_first[to] = message->next;
    group->outgoing_last[to] = message->next == NULL ? NULL : group->outgoing_last[to];
    hr_free(message);
  }
  if (has_moved) {
    hr__group_ring_bell(group, to);
  }
  return has_moved;
}

typedef struct outlook {
  hr_group *group;
  bool has_room, is_empty;
} outlook;

/* True if the thread has something to do, or must end. */
static bool can_push(void *arg) {
  outlook *o = arg;
  hr_group *group = o->group;
  hr_mutex_lock(&group->mutex);
  o->has_room = false;
  o->is_empty = true;
  for (int i = 0; i < group->size; ++i) {
    if (group->outgoing_first[i] != NULL) {
      o->is_empty = false;
      o->has_room = o->has_room || room_in(group, hr__group_ring(group, group->rank, i)) > 0;
    }
  }
  bool is_over = group->stops;
  hr_mutex_unlock(&group->mutex);
  return o->has_room || is_over;
}

static void send_queued(void *arg) {
  hr_group *group = arg;
  outlook o = {.group = group};
  for (;;) {
    /* The bell also rings for a new message. A wait without a deadline ends if the group breaks. */
    hr_status status = hr__group_wait(group, "messages", INT64_MAX, -1, can_push, &o);
    bool is_broken = status != HR_OK;
    hr_status_ignore(status);
    if (is_broken || !o.has_room) {
      return;
    }
    hr_mutex_lock(&group->mutex);
    for (int i = 0; i < group->size; ++i) {
      (void)push(group, i);
    }
    hr_mutex_unlock(&group->mutex);
  }
}

static size_t bytes_in_ring(int64_t bytes) {
  return sizeof(head) + hr_align_up((size_t)bytes, ALIGNMENT);
}

static hr_outgoing *copy_message(const head *h, const void *data) {
  size_t bytes = bytes_in_ring(h->bytes);
  hr_outgoing *message = hr_malloc(sizeof *message + bytes);
  if (message != NULL) {
    *message = (hr_outgoing){.bytes = bytes};
    memcpy(message->block, h, sizeof *h);
    if (h->bytes > 0) {
      memcpy(message->block + sizeof *h, data, (size_t)h->bytes);
    }
    memset(message->block + sizeof *h + h->bytes, 0, bytes - sizeof *h - (size_t)h->bytes);
  }
  return message;
}

/* The mutex is held. */
static hr_status queue_message(hr_group *group, int to, hr_outgoing *message) {
  if (!group->has_sender) {
    HR_RETURN_IF_ERROR(hr_thread_start("headrace-send", send_queued, group, &group->sender));
    group->has_sender = true;
  }
  if (group->outgoing_last[to] != NULL) {
    group->outgoing_last[to]->next = message;
  } else {
    group->outgoing_first[to] = message;
  }
  group->outgoing_last[to] = message;
  (void)push(group, to);
  hr__group_ring_bell(group, group->rank);
  return HR_OK;
}

hr_status hr_group_send(hr_group *group, const hr_group_call *call, int to, int tag, const void *data, int64_t bytes) {
  if (to < 0 || to >= group->size || bytes < 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %lld bytes to rank %d of %d", call->name, (long long)bytes,
                          to, group->size);
  }
  HR_RETURN_IF_ERROR(hr__group_failure(group));
  head h = {tag, (int32_t)call->dtype, bytes};
  hr_outgoing *message = copy_message(&h, data);
  if (message == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no host memory for %lld bytes", call->name,
                          (long long)bytes);
  }
  hr_mutex_lock(&group->mutex);
  hr_status status = HR_OK;
  if (group->outgoing_first[to] == NULL && room_in(group, hr__group_ring(group, group->rank, to)) >= message->bytes) {
    copy_in(group, to, message->block, message->bytes);
    hr__group_ring_bell(group, to);
    hr_free(message);
  } else {
    status = queue_message(group, to, message);
    if (status != HR_OK) {
      hr_free(message);
    }
  }
  hr_mutex_unlock(&group->mutex);
  return status;
}

/* ---- receiving ---- */

typedef struct search {
  hr_group *group;
  int from; /* -1: any */
  int found;
} search;

static bool finds_head(void *arg) {
  search *s = arg;
  for (int i = s->from < 0 ? 0 : s->from; i < (s->from < 0 ? s->group->size : s->from + 1); ++i) {
    hr_group_ring *ring = hr__group_ring(s->group, i, s->group->rank);
    if (atomic_load_explicit(&ring->written, memory_order_acquire) != atomic_load(&ring->read)) {
      s->found = i;
      return true;
    }
  }
  return false;
}

/* Reads exactly `bytes` bytes; `to` NULL drops them. */
static hr_status read_exactly(hr_group *group, const hr_group_call *call, int64_t deadline_ns, int from, char *to,
                              size_t bytes) {
  for (size_t got = 0; got < bytes;) {
    search s = {group, from, -1};
    HR_RETURN_IF_ERROR(hr__group_wait(group, call->name, deadline_ns, from, finds_head, &s));
    got += copy_out(group, from, to == NULL ? NULL : to + got, bytes - got);
    hr__group_ring_bell(group, from);
  }
  return HR_OK;
}

/* The same, with the bytes that fill the last unit. */
static hr_status read_all(hr_group *group, const hr_group_call *call, int64_t deadline_ns, int from, char *to,
                          size_t bytes) {
  HR_RETURN_IF_ERROR(read_exactly(group, call, deadline_ns, from, to, bytes));
  return read_exactly(group, call, deadline_ns, from, NULL, hr_align_up(bytes, ALIGNMENT) - bytes);
}

static hr_status check_head(const hr_group_call *call, const head *h, int from, int64_t bytes) {
  if (h->bytes != bytes || h->dtype != (int32_t)call->dtype) {
    return hr_status_make(
        HR_STATUS_INVALID_ARGUMENT, "%s: rank %d has sent %lld bytes of %s; %lld bytes of %s expected", call->name,
        from, (long long)h->bytes, hr_dtype_name((hr_dtype)h->dtype), (long long)bytes, hr_dtype_name(call->dtype));
  }
  return HR_OK;
}

/* A message that was kept; NULL if there is none. */
static hr_incoming *take_kept(hr_group *group, int from, int tag) {
  for (hr_incoming **at = &group->incoming; *at != NULL; at = &(*at)->next) {
    hr_incoming *message = *at;
    if ((from < 0 || message->from == from) && message->head.tag == tag) {
      *at = message->next;
      return message;
    }
  }
  return NULL;
}

static hr_status keep(hr_group *group, const hr_group_call *call, int64_t deadline_ns, int from, const head *h) {
  hr_incoming *message = hr_malloc(sizeof *message + hr_align_up((size_t)h->bytes, ALIGNMENT));
  if (message == NULL) {
    hr_group_break(group, "no host memory for a message");
    return hr__group_failure(group);
  }
  *message = (hr_incoming){.from = from, .head = *h};
  hr_status status = read_all(group, call, deadline_ns, from, message->data, (size_t)h->bytes);
  if (status != HR_OK) {
    hr_free(message);
    return status;
  }
  hr_incoming **end = &group->incoming;
  while (*end != NULL) {
    end = &(*end)->next;
  }
  *end = message;
  return HR_OK;
}

static hr_status use_kept(const hr_group_call *call, hr_incoming *message, void *data, int64_t bytes, int *out_from) {
  hr_status status = check_head(call, &message->head, message->from, bytes);
  if (status == HR_OK) {
    if (bytes > 0) {
      memcpy(data, message->data, (size_t)bytes);
    }
    *out_from = message->from;
  }
  hr_free(message);
  return status;
}

static hr_status receive(hr_group *group, const hr_group_call *call, int64_t deadline_ns, int from, int tag, void *data,
                         int64_t bytes, int *out_from) {
  hr_incoming *kept = take_kept(group, from, tag);
  if (kept != NULL) {
    return use_kept(call, kept, data, bytes, out_from);
  }
  for (;;) {
    search s = {group, from, -1};
    HR_RETURN_IF_ERROR(hr__group_wait(group, call->name, deadline_ns, from, finds_head, &s));
    head h;
    HR_RETURN_IF_ERROR(read_all(group, call, deadline_ns, s.found, (char *)&h, sizeof h));
    if (h.tag == tag) {
      hr_status status = check_head(call, &h, s.found, bytes);
      hr_status read = read_all(group, call, deadline_ns, s.found, status == HR_OK ? data : NULL, (size_t)h.bytes);
      *out_from = s.found;
      hr_status_ignore(status != HR_OK ? read : HR_OK);
      return status != HR_OK ? status : read;
    }
    HR_RETURN_IF_ERROR(keep(group, call, deadline_ns, s.found, &h));
  }
}

hr_status hr_group_receive(hr_group *group, const hr_group_call *call, int from, int tag, void *data, int64_t bytes,
                           int *out_from) {
  if (from >= group->size || bytes < 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %lld bytes from rank %d of %d", call->name, (long long)bytes,
                          from, group->size);
  }
  HR_RETURN_IF_ERROR(hr__group_failure(group));
  int64_t deadline_ns = hr__group_deadline(call);
  int found = -1;
  hr_mutex_lock(&group->read_mutex);
  hr_status status = receive(group, call, deadline_ns, from, tag, data, bytes, &found);
  hr_mutex_unlock(&group->read_mutex);
  if (status == HR_OK && out_from != NULL) {
    *out_from = found;
  }
  return status;
}

/* ---- begin and end ---- */

hr_status hr__messages_init(hr_group *group) {
  group->outgoing_first = hr_calloc(2 * (size_t)group->size, sizeof *group->outgoing_first);
  if (group->outgoing_first == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "group: out of host memory");
  }
  group->outgoing_last = group->outgoing_first + group->size;
  hr_mutex_init(&group->mutex);
  hr_mutex_init(&group->read_mutex);
  return HR_OK;
}

/* True if some message has a receiver that may still read it. */
static bool is_sending(hr_group *group) {
  bool is = false;
  hr_mutex_lock(&group->mutex);
  for (int i = 0; i < group->size; ++i) {
    is = is || (group->outgoing_first[i] != NULL && i != group->rank && !atomic_load(&group->header->ranks[i].left));
  }
  hr_mutex_unlock(&group->mutex);
  return is && atomic_load(&group->header->broken) == 0;
}

static void stop_sender(hr_group *group) {
  int64_t deadline_ns = hr_clock_ns() + (int64_t)HR_GROUP_LINGER_MS * 1000000;
  while (is_sending(group) && hr_clock_ns() < deadline_ns) {
    struct timespec nap = {.tv_nsec = 1000000};
    nanosleep(&nap, NULL);
  }
  hr_mutex_lock(&group->mutex);
  group->stops = true;
  hr_mutex_unlock(&group->mutex);
  hr__group_ring_bell(group, group->rank);
  hr_thread_join(&group->sender);
}

void hr__messages_fini(hr_group *group) {
  if (group->has_sender) {
    stop_sender(group);
  }
  for (int i = 0; i < group->size; ++i) {
    for (hr_outgoing *message; (message = group->outgoing_first[i]) != NULL;) {
      group->outgoing_first[i] = message->next;
      hr_free(message);
    }
  }
  for (hr_incoming *message; (message = group->incoming) != NULL;) {
    group->incoming = message->next;
    hr_free(message);
  }
  hr_free(group->outgoing_first);
  hr_mutex_fini(&group->mutex);
  hr_mutex_fini(&group->read_mutex);
}
