/* device.h: what a driver offers, and an open device.
 *
 * A driver knows bytes, addresses and kernels; it knows no operation and no dtype. It is one table of functions, and
 * reaches the rest through hr_drivers (src/drivers/driver_table.c) alone. Members marked optional may be NULL; their
 * default is named there.
 *
 * Threads: the engine calls launch, call, copy_within, fill, submit, event and graph functions of one device from one
 * thread at a time, in the order in which the work shall happen. allocate, free, properties, memory_info, flush,
 * copy_in and copy_out may be called from any thread at any time, and so may copy_peer; memory that is copied from or
 * to is not in use by work that was given and has not run, unless the call comes in that order too: then it waits for
 * the work.
 *
 * An open device is that table, the caching allocator over it, the queue that runs its work in order, and one block
 * that the executables share for their temporaries.
 */
#ifndef HEADRACE_RUNTIME_DEVICE_H_
#define HEADRACE_RUNTIME_DEVICE_H_

#include "base/context.h"
#include "base/device_kernel.h"
#include "base/text.h"
#include "headrace/stream.h"
#include "runtime/caching_allocator.h"
#include "runtime/queue.h"

typedef struct hr_device_properties {
  char description[128]; /* for people */
  int workers;           /* threads or compute units */
  int block_bytes;       /* of its own that a block of a kernel's threads can have; 0: nobody asks */
  bool is_host;          /* the host may dereference addresses of allocate */
  bool has_contents;     /* false: nothing is computed, and whatever is read is zero */
} hr_device_properties;

typedef hr_status (*hr_host_fn)(void *arg);

typedef struct hr_driver {
  const char *name;
  hr_dialect dialect; /* of the kernels that launch takes */
  /* Devices of this kind on this machine; 0 when the driver has none. */
  int (*count)(void);
  /* Why there is none: an error while count() is 0. Optional. */
  hr_status (*why_none)(void);
  /* Opens device `ordinal` < count(); *out_impl is the driver's own struct, handed to every function below. Opening a
   * device twice gives two of them. */
  hr_status (*open)(int ordinal, void **out_impl);
  /* Blocks, events and graphs are gone by then. Work that was given and nobody waited for has run or never will. */
  void (*close)(void *impl);
  void (*properties)(void *impl, hr_device_properties *out_properties);
  /* Bytes that could be allocated now, and in all. */
  void (*memory_info)(void *impl, int64_t *out_free_bytes, int64_t *out_total_bytes);

  /* A block aligned to at least 64, of undefined contents; RESOURCE_EXHAUSTED when there is none. `bytes` > 0. */
  hr_status (*allocate)(void *impl, size_t bytes, void **out_address);
  /* `bytes` as they were asked for. Work that uses the block may still be on its way. */
  void (*free)(void *impl, void *address, size_t bytes);

  /* Copies and fills of nothing do nothing. */
  hr_status (*copy_in)(void *impl, void *to, const void *host, size_t bytes);
  hr_status (*copy_out)(void *impl, void *host, const void *from, size_t bytes);
  hr_status (*copy_within)(void *impl, void *to, const void *from, size_t bytes); /* ranges don't overlap */
  /* From another device of this driver; what has been given to that one has run, and the bytes are there when this
   * returns. In order with this one's work, as copy_in is. Optional: through host memory. */
  hr_status (*copy_peer)(void *impl, void *to, void *from_impl, const void *from, size_t bytes);
  /* Writes `count` copies of a pattern of 1, 2, 4, 8 or 16 bytes. */
  hr_status (*fill)(void *impl, void *to, const void *pattern, size_t pattern_bytes, size_t count);

  /* Runs all passes of `count` > 0 kernels, none of which touches what another one writes: in any order, or at once.
   * The list is the caller's and may be gone afterwards. call.scratch is ignored: the driver gives each of its threads
   * its own. Where the dialect is not the host's, each kernel is the first member of an hr_device_kernel. */
  hr_status (*launch)(void *impl, int count, const hr_host_launch *launches);
  /* Runs a host function on the device's memory in order with its kernels: a library's kernel. Optional: fn(arg). */
  hr_status (*call)(void *impl, hr_host_fn fn, void *arg);
  /* Texts in the driver's dialect, all four together: compiler appends what decides, besides a text, what its image is;
   * compile makes an image of a text (appended to *out_image), on any thread, several at once; load makes its functions
   * callable on the device. Only where the dialect is not the host's. */
  hr_status (*compiler)(void *impl, hr_text *out_name);
  hr_status (*compile)(void *impl, const char *text, size_t length, hr_text *out_image);
  hr_status (*load)(void *impl, const void *image, size_t bytes, int count, const char *const *names, void **out_module,
                    void **out_functions);
  void (*unload)(void *impl, void *module);
  /* The queue of the device's work, for libraries. Optional: NULL. */
  void *(*native)(void *impl);
  /* Between the two the device is current on this thread, for libraries that are called outside of `call`; leave
   * brings back what was current before. Pairs may nest. Optional, both together: there is nothing to do. */
  hr_status (*enter)(void *impl);
  void (*leave)(void *impl);
  /* Graphs: work that is captured once and given again as a whole. Optional, all five together: each piece is given by
   * itself.
   *
   * From capture_begin to capture_end what the calling thread gives by launch, and by call to *out_queue (which stands
   * for native's), is kept and does not run; nothing else is given in between, and other threads' copies go their own
   * way. capture_end makes a graph of it; with NULL, or on failure, the work is forgotten. graph_launch gives all of
   * it, in order, with the addresses and scalars of the capture, any number of times; what libraries and load made has
   * to live as long as the graph. graph_update changes the arguments of the kernel that was the `index`th of those
   * given to launch, for later launches of the graph; the kernel itself is the same. graph_destroy accepts NULL, and
   * graphs whose work is on its way; it may come from any thread. */
  hr_status (*capture_begin)(void *impl, void **out_queue);
  hr_status (*capture_end)(void *impl, void **out_graph);
  hr_status (*graph_update)(void *impl, void *graph, int index, const hr_host_launch *launch);
  hr_status (*graph_launch)(void *impl, void *graph);
  void (*graph_destroy)(void *impl, void *graph);
  /* Hands collected work to the device, without waiting. Optional: work starts when it is given. */
  hr_status (*submit)(void *impl);
  /* Waits until everything given so far has run. Optional: it has. */
  hr_status (*flush)(void *impl);

  /* Points in the order of work. Optional, all five together: no events; profiles then have host times alone. */
  hr_status (*event_create)(void *impl, void **out_event);
  void (*event_destroy)(void *impl, void *event);
  hr_status (*event_record)(void *impl, void *event);
  hr_status (*event_wait)(void *impl, void *event); /* on the host; at once when it was never recorded */
  /* FAILED_PRECONDITION when one of them was never recorded. */
  hr_status (*event_elapsed)(void *impl, void *begin, void *end, int64_t *out_ns);
  /* The device's clock. Optional: hr_clock_ns. */
  int64_t (*timestamp)(void *impl);
} hr_driver;

/* All drivers of this build, NULL-terminated. */
extern const hr_driver *const hr_drivers[];

struct hr_device {
  hr_context *context; /* that it was opened in */
  const hr_driver *driver;
  void *impl;
  int ordinal;
  int count; /* references; guarded by the registry's lock */
  char name[32];
  hr_device_properties properties;
  hr_caching_allocator allocator;
  hr_queue queue;
  hr_mutex bind_mutex;   /* held while a buffer gets its memory */
  hr_mutex shared_mutex; /* guards what follows; held from choosing the block until the job is in the queue */
  hr_block *shared;      /* temporaries and workspace of whatever runs; NULL while none was needed */
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

/* Makes the shared block at least `bytes` long and gives its address. The caller holds shared_mutex. Growing waits for
 * the queue to run dry, so that no job loses its temporaries. On failure the old block is gone as well. */
HR_MUST_USE hr_status hr__device_shared(hr_device *device, size_t bytes, void **out_address);
/* Waits until the queue has run dry, and gives the shared block back: where memory is short. */
void hr__device_release_shared(hr_device *device);

#endif
