/* cuda_internal.h: an open CUDA device, and declarations shared by its files.
 *
 * All work of an opening goes into one stream, which does not wait for the process's legacy stream. Memory, modules and
 * graphs may be in use in the streams of other openings of the device: before they are freed all of these are waited
 * for.
 *
 * CUDA's functions use the context that is current on the calling thread. Each entry of the driver pushes its own
 * context (enter) and pops it (leave), so that the caller's current device does not change. The context is the device's
 * primary one, which libraries and frameworks in the process share.
 *
 * After an error like an illegal address CUDA returns that error from every later call in the process; so do we, and
 * nothing blocks.
 */
#ifndef HEADRACE_DRIVERS_CUDA_CUDA_INTERNAL_H_
#define HEADRACE_DRIVERS_CUDA_CUDA_INTERNAL_H_

#include <stdatomic.h>

#include "base/device_kernel.h"
#include "base/thread.h"
#include "drivers/cuda/cuda_api.h"

enum { HR_CUDA_SLOTS = 4, HR_CUDA_SLOT_BYTES = 1 << 20 };

/* Pinned host memory between a caller's memory and the device's. Threads: its mutex. */
typedef struct hr__cuda_staging {
  hr_mutex mutex;
  char *memory;                  /* pinned; HR_CUDA_SLOTS slots */
  CUevent copied[HR_CUDA_SLOTS]; /* after the copies of each slot */
  int slot;                      /* the current slot of copies in, filled from `used` on */
  size_t used;
} hr__cuda_staging;

/* A function with shared memory above the default limit, or large clusters, enabled. */
typedef struct hr__cuda_allowed {
  CUfunction function;
  uint64_t unloads; /* of modules, when it was enabled */
  int shared;       /* bytes */
} hr__cuda_allowed;

enum { HR_CUDA_ALLOWED = 256 };

typedef struct hr__cuda_device {
  int device;
  CUcontext context;
  CUstream stream;
  struct hr__cuda_graph *capture; /* the stream that kernels go to instead while capturing; NULL: none */
  CUstream capture_stream;        /* made for the first capture */
  char name[64];
  int workers, architecture; /* multiprocessors; 90 for compute capability 9.0 */
  int block_bytes;           /* of shared memory */
  double memory_gbs;         /* peak; 0: not known */
  size_t total_bytes;
  atomic_uint_least64_t peers; /* bit d: access to device d's memory was requested */
  hr__cuda_staging in, out;
  hr__cuda_allowed allowed[HR_CUDA_ALLOWED]; /* by address; of the thread that launches */
  struct hr__cuda_device *next;              /* opening */
} hr__cuda_device;

/* Between these two calls, on one thread, CUDA's functions use this device. */
HR_MUST_USE hr_status hr__cuda_enter(hr__cuda_device *device);
void hr__cuda_leave(void);
/* Waits for the work that all openings of this device have submitted; called in between. */
void hr__cuda_wait(const hr__cuda_device *device);

/* Staging, copies and fills are called in between. fini accepts a partly finished init. */
HR_MUST_USE hr_status hr__cuda_staging_init(hr__cuda_staging *staging);
void hr__cuda_staging_fini(hr__cuda_staging *staging);

/* CUDA accepts 4,096 bytes of parameters. */
enum { HR_CUDA_WORDS_MAX = 4096 / 8 };
/* Lays out a kernel's parameters as device_kernel.h specifies. */
HR_MUST_USE hr_status hr__cuda_pack(const hr_device_kernel *kernel, const hr_host_call *call, uint64_t *words,
                                    size_t *out_bytes);

/* Launches the passes of a kernel. */
HR_MUST_USE hr_status hr__cuda_launch_kernel(hr__cuda_device *device, const hr_host_launch *launch);

/* cuda_graph.c. Between begin and end launches go to device->capture_stream; hr__cuda_capture_launch does so for a list
 * of them. hr__cuda_capture_pass is called after each pass, hr__cuda_capture_early before one that may start early;
 * both do nothing outside of a capture. */
HR_MUST_USE hr_status hr__cuda_capture_begin(void *impl, void **out_queue);
HR_MUST_USE hr_status hr__cuda_capture_launch(hr__cuda_device *device, int count, const hr_host_launch *launches);
HR_MUST_USE hr_status hr__cuda_capture_early(hr__cuda_device *device);
HR_MUST_USE hr_status hr__cuda_capture_pass(hr__cuda_device *device);
HR_MUST_USE hr_status hr__cuda_capture_end(void *impl, void **out_graph);
HR_MUST_USE hr_status hr__cuda_graph_update(void *impl, void *graph, int index, const hr_host_launch *launch);
HR_MUST_USE hr_status hr__cuda_graph_launch(void *impl, void *graph);
void hr__cuda_graph_destroy(void *impl, void *graph);

HR_MUST_USE hr_status hr__cuda_copy_in(hr__cuda_device *device, void *to, const void *host, size_t bytes);
HR_MUST_USE hr_status hr__cuda_copy_out(hr__cuda_device *device, void *host, const void *from, size_t bytes);
HR_MUST_USE hr_status hr__cuda_copy_peer(hr__cuda_device *device, void *to, const hr__cuda_device *source,
                                         const void *from, size_t bytes);
HR_MUST_USE hr_status hr__cuda_fill(hr__cuda_device *device, void *to, const void *pattern, size_t pattern_bytes,
                                    size_t count);

#endif
