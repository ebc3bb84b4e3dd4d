/* device.h: the driver interface, and an open device.
 *
 * A driver handles bytes, addresses and kernels, never operations or dtypes. It is one table of functions, found only
 * through hr_drivers (src/drivers/driver_table.c). Members marked optional may be NULL; their default is named there.
 *
 * Threads:
 *
 * - The engine calls launch, call, copy_within, fill, submit, event and graph functions of one opening of a device from
 *   one thread at a time, in the order of the work.
 * - allocate, free, properties, memory_info, flush, copy_in, copy_out, copy_peer, event_create, event_record,
 *   event_wait and event_follow may be called from any thread at any time.
 * - Memory that is copied from or to is not in use by submitted work that has not run. Exception: a copy that is called
 *   in the order of the work waits for that work.
 *
 * An open device consists of that table, the caching allocator over it, and lanes (lane.h), which run its work. Each
 * lane has an opening of its own; the first one's has the memory.
 */
#ifndef HEADRACE_RUNTIME_DEVICE_H_
#define HEADRACE_RUNTIME_DEVICE_H_

#include <stdatomic.h>

#include "base/context.h"
#include "base/device_kernel.h"
#include "base/text.h"
#include "headrace/stream.h"
#include "runtime/caching_allocator.h"
#include "runtime/lane.h"

typedef struct hr_device_properties {
  char description[128]; /* for display */
  int workers;           /* threads or compute units */
  int block_bytes;       /* shared memory available to one block of threads; 0: not applicable */
  double memory_gbs;     /* peak of its memory, 1e9 bytes a second; 0: not known, or the host's */
  bool is_host;          /* the host may dereference addresses of allocate */
  bool has_contents;     /* false: nothing is computed, and reads give zeros */
  int lanes;             /* openings whose work may run at the same time, on the memory of one of them; 0: one */
} hr_device_properties;

typedef hr_status (*hr_host_fn)(void *arg);

typedef struct hr_driver {
  const char *name;
  hr_dialect dialect; /* of the kernels that launch takes */
  /* Number of devices of this kind on this machine; 0 if the driver has none. */
  int (*count)(void);
  /* The reason why there are none: an error while count() is 0. Optional. */
  hr_status (*why_none)(void);
  /* Opens device `ordinal` < count(); *out_impl is the driver's own struct, passed to every function below. Opening a
   * device twice gives two of them, each with its own order of work, on the same memory. */
  hr_status (*open)(int ordinal, void **out_impl);
  /* Blocks, events and graphs are already destroyed. Submitted work without a later wait has run or never will. */
  void (*close)(void *impl);
  void (*properties)(void *impl, hr_device_properties *out_properties);
  /* Bytes that could be allocated now, and the total. */
  void (*memory_info)(void *impl, int64_t *out_free_bytes, int64_t *out_total_bytes);

  /* A block aligned to at least 64 bytes, of undefined contents; RESOURCE_EXHAUSTED if no memory is left. `bytes` > 0.
   */
  hr_status (*allocate)(void *impl, size_t bytes, void **out_address);
  /* `bytes` is the size passed to allocate. Work of any opening that uses the block may still be in flight. */
  void (*free)(void *impl, void *address, size_t bytes);

  /* Copies and fills of 0 bytes do nothing. */
  hr_status (*copy_in)(void *impl, void *to, const void *host, size_t bytes);
  hr_status (*copy_out)(void *impl, void *host, const void *from, size_t bytes);
  hr_status (*copy_within)(void *impl, void *to, const void *from, size_t bytes); /* ranges don't overlap */
  /* Copies from another device of this driver. Work submitted to that device has run, and the bytes have arrived on
   * return. In order with this device's work, as copy_in is. Optional: through host memory. */
  hr_status (*copy_peer)(void *impl, void *to, void *from_impl, const void *from, size_t bytes);
  /* Memory in other processes of this machine. Optional, all three together; not for memory of the host.
   *
   * - share names the driver's memory in which `address` lies (HR_SHARED_NAME_BYTES bytes), and its offset there.
   * - open_shared makes what another process has named usable; *out_base is where it begins. Several times in a process
   *   is possible; close_shared is called for each. */
  hr_status (*share)(void *impl, void *address, unsigned char *out_name, int64_t *out_offset);
  hr_status (*open_shared)(void *impl, const unsigned char *name, void **out_base);
  void (*close_shared)(void *impl, void *base);
  /* Writes `count` copies of a pattern of 1, 2, 4, 8 or 16 bytes. */
  hr_status (*fill)(void *impl, void *to, const void *pattern, size_t pattern_bytes, size_t count);

  /* Runs all passes of `count` > 0 kernels, in any order or at once: none of them touches memory that another one
   * writes. The list is the caller's and may be gone afterwards. call.scratch is ignored: the driver gives each of its
   * threads its own. If the dialect is not the host's, each kernel is the first member of an hr_device_kernel. */
  hr_status (*launch)(void *impl, int count, const hr_host_launch *launches);
  /* Runs a host function (a library's kernel) on the device's memory in order with the device's kernels. Optional:
   * fn(arg). */
  hr_status (*call)(void *impl, hr_host_fn fn, void *arg);
  /* Kernels as texts in the driver's dialect; all four or none, and only if the dialect is not the host's. compiler
   * appends everything that determines an image besides its text. compile appends the image of a text to *out_image, on
   * any thread, several at once. load makes the image's functions callable on the device. */
  hr_status (*compiler)(void *impl, hr_text *out_name);
  hr_status (*compile)(void *impl, const char *text, size_t length, hr_text *out_image);
  hr_status (*load)(void *impl, const void *image, size_t bytes, int count, const char *const *names, void **out_module,
                    void **out_functions);
  void (*unload)(void *impl, void *module);
  /* The queue of the device's work, for libraries. Optional: NULL. */
  void *(*native)(void *impl);
  /* Between the two the device is current on this thread, for libraries that are called outside of `call`; leave
   * restores the previous one. Pairs may nest. Optional, both together: nothing to do. */
  hr_status (*enter)(void *impl);
  void (*leave)(void *impl);
  /* Graphs: work that is captured once and launched again as a whole. Optional, all five together: without them each
   * piece of work is submitted by itself.
   *
   * - capture_begin, capture_end: in between, work that the calling thread submits by launch, and by call to *out_queue
   *   (which replaces native's queue), is recorded and does not run. Nothing else is submitted in between; other
   *   threads' copies are not captured. capture_end makes a graph of the work; with NULL, or on failure, the work is
   *   dropped.
   * - graph_launch runs all of it, in order, with the addresses and scalars of the capture, any number of times.
   *   Objects of libraries and of load must live as long as the graph.
   * - graph_update changes the arguments of the `index`th kernel passed to launch, for later launches of the graph; the
   *   kernel itself stays the same.
   * - graph_destroy accepts NULL, and graphs whose work is in flight; any thread. */
  hr_status (*capture_begin)(void *impl, void **out_queue);
  hr_status (*capture_end)(void *impl, void **out_graph);
  hr_status (*graph_update)(void *impl, void *graph, int index, const hr_host_launch *launch);
  hr_status (*graph_launch)(void *impl, void *graph);
  void (*graph_destroy)(void *impl, void *graph);
  /* Submits collected work to the device, without waiting. Optional: work starts immediately. */
  hr_status (*submit)(void *impl);
  /* Waits until all work submitted so far has run. Optional: it already has. */
  hr_status (*flush)(void *impl);

  /* Points in the order of work. Optional, all five together: without events profiles have host times only. */
  hr_status (*event_create)(void *impl, void **out_event);
  void (*event_destroy)(void *impl, void *event);
  hr_status (*event_record)(void *impl, void *event);
  hr_status (*event_wait)(void *impl,
                          void *event); /* waits on the host; returns at once if the event was never recorded */
  /* Work that is submitted from now on begins after the work before an event that was recorded, in this or another
   * opening of the device. If another thread records it meanwhile, either point counts. Does not wait on the host.
   * Optional: work has run when the function that submits it returns, or the device has one lane. */
  hr_status (*event_follow)(void *impl, void *event);
  /* True once the work before a recorded event has run, or has failed. Never waits. Optional: it has. */
  bool (*event_is_done)(void *impl, void *event);
  /* FAILED_PRECONDITION if one of them was never recorded. */
  hr_status (*event_elapsed)(void *impl, void *begin, void *end, int64_t *out_ns);
  /* The device's clock. Optional: hr_clock_ns. */
  int64_t (*timestamp)(void *impl);
} hr_driver;

/* All drivers of this build, NULL-terminated. */
extern const hr_driver *const hr_drivers[];

struct hr_device {
  hr_context *context; /* its context */
  const hr_driver *driver;
  void *impl;
  int ordinal;
  int count; /* references; guarded by the registry's lock */
  char name[32];
  atomic_int recorded; /* flags of engine/records.h; 0: no profile is started */
  hr_device_properties properties;
  hr_caching_allocator allocator;
  hr_lane lanes[HR_LANES_MAX];
  int lanes_max;                      /* those that may be opened */
  atomic_bool has_several_lanes;      /* open ones; set under order_mutex, for good */
  atomic_bool is_team_taken;          /* by a job */
  bool is_quiet, is_held;             /* for a fork: its streams are locked and its work has ended; it is locked, too */
  bool is_lost;                       /* this is a forked child, which cannot use the device */
  atomic_bool is_observed;            /* somebody observes its memory */
  atomic_bool is_deterministic;       /* programs are compiled without the tuning cache */
  atomic_int_least64_t program_bytes; /* of the host: the programs that streams keep */
  atomic_int_least64_t lane_bytes;    /* the lanes' blocks of temporaries */
  atomic_int_least64_t total_bytes;   /* of the device's memory; 0: not read yet */
  hr_mutex streams_mutex;             /* guards the list of streams; before the locks of the streams */
  hr_stream *streams;                 /* linked by the engine; captures are none of them */
  atomic_int stream_count;            /* of that list */
  hr_mutex bind_mutex;                /* held while memory is allocated for a buffer */
  hr_mutex order_mutex;               /* held while a job gets its place in the order of the device's jobs */
  hr_block_uses calls; /* guarded by it: functions of the host use it as a block, and so run one at a time */
};

/* The driver's enter and leave, with their defaults. */
HR_MUST_USE static inline hr_status hr__device_enter(hr_device *device) {
  return device->driver->enter != NULL ? device->driver->enter(device->impl) : HR_OK;
}

static inline void hr__device_leave(hr_device *device) {
  if (device->driver->leave != NULL) {
    device->driver->leave(device->impl);
  }
}

/* True if a lane's work may run after its job has ended, beside that of other lanes. */
static inline bool hr__device_runs_later(const hr_device *device) {
  return device->driver->event_follow != NULL && device->lanes_max > 1;
}

/* Drains the queues of all lanes. */
void hr__device_drain(hr_device *device);
/* Waits for the work that all lanes have submitted. */
HR_MUST_USE hr_status hr__device_flush(hr_device *device);
/* Finishes jobs that were begun early. */
void hr__device_settle(hr_device *device);
/* FAILED_PRECONDITION in a forked child that cannot use the device; `what` names the call. */
HR_MUST_USE hr_status hr__device_check(const hr_device *device, const char *what);
/* Waits until the queues of all lanes are empty; false if hr_clock_ns reaches the deadline before. */
bool hr__device_drain_until(hr_device *device, int64_t deadline_ns);
/* The process forks, and no stream has the device busy. Locks lanes and memory; false, with nothing locked: other
 * threads had some for too long. */
bool hr__device_begin_fork(hr_device *device, int64_t deadline_ns);
void hr__device_end_fork(hr_device *device, bool is_child);
/* In a forked child that cannot use the device: its work, or its driver's state, stayed in the parent. */
void hr__device_lose(hr_device *device);
/* Until unlock no job is handed over: locks all lanes, and the order. */
void hr__device_lock_lanes(hr_device *device);
void hr__device_unlock_lanes(hr_device *device);
/* Drains the queues and frees the blocks of temporaries: for when memory is short. */
void hr__device_release_shared(hr_device *device);

#endif
