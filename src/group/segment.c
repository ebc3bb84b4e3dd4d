/* segment.c: creating, joining and leaving a group, and waiting for its ranks.
 *
 * A rank that ends without leaving is noticed by its lock: each rank holds a lock on one byte of the segment's file,
 * which the system drops with the process, even if nobody has waited for that process yet. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include "base/allocator.h"
#include "base/integer.h"
#include "group/segment.h"

static const unsigned long MAGIC = 0x6865616472616365; /* "headrace" */
enum {
  VERSION = 2,
  SLOT_BYTES_MAX = 1 << 20,
  SLOT_BYTES_MIN = 32 << 10,
  SLOTS_BYTES = 16 << 20, /* of all ranks, if that gives slots of the smallest size */
  RING_BYTES_MAX = 256 << 10,
  RING_BYTES_MIN = 4 << 10,
  RINGS_BYTES = 4 << 20,
};
static const int64_t SPIN_NS = 60000, SLEEP_NS = 20000000;

/* ---- the layout ---- */

static size_t tables_at(int size) {
  return hr_align_up(sizeof(hr_group_header) + (size_t)size * sizeof(hr_group_rank), 4096);
}

static size_t rings_at(int size) {
  return hr_align_up(tables_at(size) + 2 * (size_t)size * (size_t)size * sizeof(hr_group_row), 4096);
}

static size_t slots_at(int size, int64_t ring_bytes) {
  size_t ring = sizeof(hr_group_ring) + (size_t)ring_bytes;
  return hr_align_up(rings_at(size) + (size_t)size * (size_t)size * ring, 4096);
}

static size_t segment_bytes(int size, int64_t slot_bytes, int64_t ring_bytes) {
  return slots_at(size, ring_bytes) + 2 * (size_t)size * (size_t)slot_bytes;
}

hr_group_row *hr__group_table(const hr_group *group, int rank, unsigned round) {
  char *tables = (char *)group->header + tables_at(group->size);
  return (hr_group_row *)tables + (2 * rank + (int)(round & 1)) * group->size;
}

char *hr__group_slot(const hr_group *group, int rank, unsigned round) {
  char *slots = (char *)group->header + slots_at(group->size, group->header->ring_bytes);
  return slots + (2 * rank + (int)(round & 1)) * group->header->slot_bytes;
}

hr_group_ring *hr__group_ring(const hr_group *group, int from, int to) {
  size_t bytes = sizeof(hr_group_ring) + (size_t)group->header->ring_bytes;
  char *rings = (char *)group->header + rings_at(group->size);
  return (hr_group_ring *)(rings + ((size_t)from * (size_t)group->size + (size_t)to) * bytes);
}

char *hr__group_ring_data(const hr_group *group, int from, int to) {
  return (char *)(hr__group_ring(group, from, to) + 1);
}

/* A power of two between the limits, so that `count` of them stay within `total` if they can. */
static int64_t share_of(int64_t total, int64_t count, int64_t low, int64_t high) {
  while (high > low && high * count > total) {
    high /= 2;
  }
  return high;
}

/* ---- bells ---- */

/* Sleeps while the bell's value is `seen`, and at most `ns`; may wake earlier. */
static void sleep_on(atomic_uint *bell, unsigned seen, int64_t ns) {
#ifdef __linux__
  struct timespec limit = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  syscall(SYS_futex, bell, FUTEX_WAIT, seen, &limit, NULL, 0);
#else
  struct timespec nap = {.tv_nsec = ns < 100000 ? ns : 100000};
  (void)bell, (void)seen;
  nanosleep(&nap, NULL);
#endif
}

static void wake_all(atomic_uint *bell) {
#ifdef __linux__
  syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#else
  (void)bell;
#endif
}

void hr__group_ring_bell(hr_group *group, int rank) {
  hr_group_rank *to = &group->header->ranks[rank];
  atomic_fetch_add(&to->bell, 1);
  if (atomic_load(&to->sleepers) > 0) {
    wake_all(&to->bell);
  }
}

/* ---- the lock of a living rank ---- */

static struct flock lock_of(int rank, short type) {
  return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
}

static bool has_ended(const hr_group *group, int rank) {
  const hr_group_rank *it = &group->header->ranks[rank];
  if (!atomic_load(&it->joined) || it->process == (int32_t)group->process) {
    return false; /* a process sees none of its own locks; several ranks in one process are for tests */
  }
  struct flock lock = lock_of(rank, F_WRLCK);
  return fcntl(group->file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

/* ---- failures ---- */

void hr_group_break(hr_group *group, const char *reason) {
  hr_group_header *header = group->header;
  int none = 0;
  if (atomic_compare_exchange_strong(&header->broken, &none, 1)) {
    snprintf(header->text, sizeof header->text, "%s", reason);
    atomic_store(&header->broken, 2);
  }
  for (int i = 0; i < group->size; ++i) {
    hr__group_ring_bell(group, i);
  }
}

hr_status hr__group_failure(const hr_group *group) {
  switch (atomic_load(&group->header->broken)) {
    case 0:
      return HR_OK;
    case 1:
      return hr_status_make(HR_STATUS_UNAVAILABLE, "the group is broken");
    default:
      return hr_status_make(HR_STATUS_UNAVAILABLE, "the group is broken: %.*s", HR_GROUP_TEXT - 1, group->header->text);
  }
}

/* ---- waits ---- */

int64_t hr__group_deadline(const hr_group_call *call) {
  int64_t now = hr_clock_ns();
  return call->timeout_ns > INT64_MAX - now ? INT64_MAX : now + call->timeout_ns;
}

static hr_status break_because(hr_group *group, const char *reason) {
  hr_group_break(group, reason);
  return hr__group_failure(group);
}

void hr__group_note_processor(hr_group *group) {
  atomic_store_explicit(&group->header->ranks[group->rank].processor, hr_thread_processor(), memory_order_relaxed);
}

static int processor_of(const hr_group *group, int rank) {
  return atomic_load_explicit(&group->header->ranks[rank].processor, memory_order_relaxed);
}

static bool shares_processor(const hr_group *group, int rank) {
  int its = processor_of(group, rank);
  return its >= 0 && its == hr_thread_processor();
}

void hr__group_part_from(hr_group *group, int rank) {
  if (!shares_processor(group, rank)) {
    return;
  }
  int used[HR_GROUP_SIZE_MAX], count = 0;
  for (int i = 0; i < group->size; ++i) {
    if (i != group->rank) {
      used[count++] = processor_of(group, i);
    }
  }
  if (hr_thread_move(used, count, &group->places)) {
    hr__group_note_processor(group);
  }
}

/* After a wait was in vain for a while. */
static hr_status look_around(hr_group *group, const char *name, int64_t deadline_ns, int other, bool (*is_done)(void *),
                             void *arg) {
  char reason[HR_GROUP_TEXT];
  hr_status status = hr__group_failure(group);
  if (status != HR_OK) {
    return is_done(arg) ? (hr_status_ignore(status), HR_OK) : status;
  }
  bool has_left = other >= 0 && atomic_load(&group->header->ranks[other].left);
  if (has_left || (other >= 0 && has_ended(group, other))) {
    if (is_done(arg)) {
      return HR_OK;
    }
    snprintf(reason, sizeof reason, "rank %d has %s, and rank %d needs it for %s", other, has_left ? "left" : "ended",
             group->rank, name);
    return break_because(group, reason);
  }
  if (hr_clock_ns() >= deadline_ns) {
    if (other >= 0) {
      snprintf(reason, sizeof reason, "%s: rank %d has waited for rank %d until its timeout", name, group->rank, other);
    } else {
      snprintf(reason, sizeof reason, "%s: rank %d has waited for other ranks until its timeout", name, group->rank);
    }
    hr_group_break(group, reason);
    return hr_status_make(HR_STATUS_DEADLINE_EXCEEDED, "%s", reason);
  }
  return HR_OK;
}

static void sleep_until(hr_group *group, int64_t wake_ns, bool (*is_done)(void *), void *arg) {
  hr_group_rank *own = &group->header->ranks[group->rank];
  atomic_fetch_add(&own->sleepers, 1);
  unsigned seen = atomic_load(&own->bell);
  int64_t left_ns = wake_ns - hr_clock_ns();
  if (!is_done(arg) && left_ns > 0) {
    sleep_on(&own->bell, seen, left_ns);
  }
  atomic_fetch_sub(&own->sleepers, 1);
}

hr_status hr__group_wait(hr_group *group, const char *name, int64_t deadline_ns, int other, bool (*is_done)(void *arg),
                         void *arg) {
  if (is_done(arg)) {
    return HR_OK;
  }
  int64_t begin = hr_clock_ns();
  do {
    for (int i = 0; i < 32; ++i) {
      if (is_done(arg)) {
        return HR_OK;
      }
      hr_thread_relax();
    }
  } while ((other < 0 || !shares_processor(group, other)) && hr_clock_ns() - begin < SPIN_NS);
  for (int64_t look_ns = 0;;) {
    int64_t now = hr_clock_ns();
    if (now >= look_ns) {
      HR_RETURN_IF_ERROR(look_around(group, name, deadline_ns, other, is_done, arg));
      look_ns = now + SLEEP_NS;
    }
    sleep_until(group, hr_min(look_ns, deadline_ns), is_done, arg);
    if (is_done(arg)) {
      return HR_OK;
    }
    if (atomic_load_explicit(&group->header->broken, memory_order_relaxed) != 0 || hr_clock_ns() >= deadline_ns) {
      look_ns = 0;
    }
  }
}

/* ---- begin and end ---- */

static hr_status system_failure(const char *what, const char *name) {
  int error = errno;
  hr_status_code code = error == EEXIST   ? HR_STATUS_ALREADY_EXISTS
                        : error == ENOENT ? HR_STATUS_NOT_FOUND
                        : error == EACCES ? HR_STATUS_PERMISSION_DENIED
                        : error == ENOSPC ? HR_STATUS_RESOURCE_EXHAUSTED
                        : error == ENOMEM ? HR_STATUS_RESOURCE_EXHAUSTED
                                          : HR_STATUS_UNKNOWN;
  return hr_status_make(code, "group \"%s\": %s: %s", name, what, strerror(error));
}

static hr_status allocate(const char *name, int rank, int size, hr_group **out_group) {
  if (name == NULL || strlen(name) > sizeof((hr_group *)0)->name - 2 || size < 1 || size > HR_GROUP_SIZE_MAX ||
      rank < 0 || rank >= size) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "group \"%s\": rank %d of %d; expected a name of at most %zu bytes, a size from 1 to %d",
                          name == NULL ? "" : name, rank, size, sizeof((hr_group *)0)->name - 2, HR_GROUP_SIZE_MAX);
  }
  hr_group *group = hr_calloc(1, sizeof *group);
  if (group == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "group \"%s\": out of host memory", name);
  }
  atomic_init(&group->references, 1);
  group->rank = rank;
  group->size = size;
  group->process = getpid();
  group->file = -1;
  snprintf(group->name, sizeof group->name, "/%s", name);
  *out_group = group;
  return HR_OK;
}

static void unmap(hr_group *group) {
  if (group->header != NULL) {
    munmap(group->header, group->bytes);
  }
  if (group->file >= 0) {
    close(group->file);
  }
  hr_free(group);
}

static hr_status map(hr_group *group) {
  void *at = mmap(NULL, group->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, group->file, 0);
  if (at == MAP_FAILED) {
    return system_failure("mmap", group->name);
  }
  group->header = at;
  return HR_OK;
}

/* Memory is reserved now: a page that is missing later would end the process. */
static hr_status make_segment(hr_group *group) {
  int64_t slot = share_of(SLOTS_BYTES, 2 * group->size, SLOT_BYTES_MIN, SLOT_BYTES_MAX);
  int64_t ring = share_of(RINGS_BYTES, (int64_t)group->size * group->size, RING_BYTES_MIN, RING_BYTES_MAX);
  group->bytes = segment_bytes(group->size, slot, ring);
  group->file = shm_open(group->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (group->file < 0) {
    return system_failure("shm_open", group->name);
  }
  int error = posix_fallocate(group->file, 0, (off_t)group->bytes);
  if (error != 0) {
    errno = error;
    hr_status status = system_failure("reserving shared memory", group->name);
    shm_unlink(group->name);
    return status;
  }
  hr_status status = map(group);
  if (status != HR_OK) {
    shm_unlink(group->name);
    return status;
  }
  group->header->size = group->size;
  group->header->version = VERSION;
  group->header->slot_bytes = slot;
  group->header->ring_bytes = ring;
  for (int i = 0; i < group->size; ++i) {
    atomic_store(&group->header->ranks[i].processor, -1);
  }
  atomic_store(&group->header->magic, MAGIC);
  return HR_OK;
}

static hr_status find_segment(hr_group *group) {
  group->file = shm_open(group->name, O_RDWR | O_CLOEXEC, 0);
  if (group->file < 0) {
    return system_failure("shm_open", group->name);
  }
  struct stat found;
  if (fstat(group->file, &found) != 0) {
    return system_failure("fstat", group->name);
  }
  group->bytes = (size_t)found.st_size;
  if (group->bytes < sizeof(hr_group_header)) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "group \"%s\": the segment is not ready", group->name);
  }
  HR_RETURN_IF_ERROR(map(group));
  const hr_group_header *header = group->header;
  if (atomic_load(&group->header->magic) != MAGIC || header->version != VERSION || header->size != group->size ||
      group->bytes < segment_bytes(group->size, header->slot_bytes, header->ring_bytes)) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION,
                          "group \"%s\": the segment is of %d ranks (version %d), and this is one of %d (version %d)",
                          group->name, header->size, header->version, group->size, VERSION);
  }
  return HR_OK;
}

static hr_status enter(hr_group *group) {
  hr_group_rank *own = &group->header->ranks[group->rank];
  if (atomic_load(&own->joined)) {
    return hr_status_make(HR_STATUS_ALREADY_EXISTS, "group \"%s\": rank %d has joined already", group->name,
                          group->rank);
  }
  struct flock lock = lock_of(group->rank, F_WRLCK);
  if (fcntl(group->file, F_SETLK, &lock) != 0) {
    return system_failure("fcntl", group->name);
  }
  own->process = (int32_t)group->process;
  HR_RETURN_IF_ERROR(hr__messages_init(group));
  atomic_store(&own->joined, true);
  return HR_OK;
}

static hr_status begin(const char *name, int rank, int size, hr_status (*open)(hr_group *), hr_group **out_group) {
  hr_group *group = NULL;
  HR_RETURN_IF_ERROR(allocate(name, rank, size, &group));
  hr_status status = open(group);
  if (status == HR_OK) {
    status = enter(group);
    if (status != HR_OK && rank == 0) {
      shm_unlink(group->name);
    }
  }
  if (status != HR_OK) {
    unmap(group);
    return status;
  }
  *out_group = group;
  return HR_OK;
}

hr_status hr_group_create(const char *name, int size, hr_group **out_group) {
  return begin(name, 0, size, make_segment, out_group);
}

hr_status hr_group_join(const char *name, int rank, int size, hr_group **out_group) {
  return begin(name, rank, size, find_segment, out_group);
}

void hr_group_hide(hr_group *group) {
  shm_unlink(group->name);
}

void hr_group_retain(hr_group *group) {
  if (group != NULL) {
    atomic_fetch_add(&group->references, 1);
  }
}

/* A forked child has the memory, but is no rank: its parent goes on. */
void hr_group_release(hr_group *group) {
  if (group == NULL || atomic_fetch_sub(&group->references, 1) != 1) {
    return;
  }
  if (group->process == getpid()) {
    hr__messages_fini(group);
    atomic_store(&group->header->ranks[group->rank].left, true);
    for (int i = 0; i < group->size; ++i) {
      hr__group_ring_bell(group, i);
    }
  }
  unmap(group);
}
