/* memory.h: a device's memory in detail: quantities with their peaks and sums, and a walk over its blocks; a trim of
 * the process's own. The few numbers that most programs need are in hr_device_memory_stats (stream.h).
 *
 * A device reserves *segments* from its driver. Small blocks are cut from segments of one block size; a larger block is
 * a segment of its own. A block is in use if a buffer or the temporaries of programs have it.
 *
 * Threads: any.
 */
#ifndef HEADRACE_MEMORY_H_
#define HEADRACE_MEMORY_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A quantity: now, its maximum since hr_device_memory_reset_peak, and the sums of its increases and decreases since
 * hr_device_memory_reset_totals. */
typedef struct hr_gauge {
  int64_t current, peak, increased, decreased;
} hr_gauge;

/* The kind of a block: in a slab or on its own. HR_MEMORY_ALL stands for both. */
typedef enum hr_memory_pool { HR_MEMORY_ALL = 0, HR_MEMORY_SMALL, HR_MEMORY_LARGE, HR_MEMORY_POOLS } hr_memory_pool;

typedef struct hr_memory_gauges {
  hr_gauge blocks[HR_MEMORY_POOLS];    /* in use */
  hr_gauge bytes[HR_MEMORY_POOLS];     /* of these, as rounded */
  hr_gauge requested[HR_MEMORY_POOLS]; /* of these, before rounding */
  hr_gauge segments[HR_MEMORY_POOLS];
  hr_gauge reserved[HR_MEMORY_POOLS]; /* bytes of segments */
  int64_t retries;                    /* requests for which cached memory was returned first */
  int64_t failures;                   /* requests that got no memory */
} hr_memory_gauges;

/* The first `bytes` bytes of a device's gauges. A gauge that this library lacks is 0. */
HR_API void hr_device_memory_gauges_read(hr_device *device, size_t bytes, hr_memory_gauges *out_gauges);
static inline void hr_device_memory_gauges(hr_device *device, hr_memory_gauges *out_gauges) {
  hr_device_memory_gauges_read(device, sizeof *out_gauges, out_gauges);
}
/* Sets the sums of all gauges to 0, and the numbers of retries and failures. */
HR_API void hr_device_memory_reset_totals(hr_device *device);

typedef struct hr_memory_block {
  void *segment; /* its address */
  size_t segment_bytes;
  void *address;
  size_t bytes;     /* as rounded */
  size_t requested; /* 0: free */
  bool is_small;
} hr_memory_block;

/* Calls visit(arg, block) for every block, those of a segment one after another. The device's memory is locked: `visit`
 * must use nothing of the library. */
HR_API void hr_device_memory_walk(hr_device *device, void (*visit)(void *arg, const hr_memory_block *block), void *arg);

typedef enum hr_memory_action {
  HR_MEMORY_ALLOCATED = 0, /* a block is used from here on */
  HR_MEMORY_OWNED,         /* by the buffer of this handle; comes after the former */
  HR_MEMORY_FREED,
  HR_MEMORY_SEGMENT_ALLOCATED,
  HR_MEMORY_SEGMENT_FREED,
  HR_MEMORY_REFUSED /* there was no memory */
} hr_memory_action;

typedef struct hr_memory_event {
  hr_memory_action action;
  void *address;
  size_t bytes; /* of a block: requested ones */
  void *handle; /* OWNED: of hr_buffer_handle */
  int64_t ns;   /* of hr_profile_clock_ns */
} hr_memory_event;

/* From now on, observe(arg, event) is called for each event of a device's memory. NULL ends that; when the call
 * returns, the former function is not running any more. The device's memory is locked meanwhile: `observe` must use
 * nothing of the library. */
HR_API void hr_device_memory_observe(hr_device *device, void (*observe)(void *arg, const hr_memory_event *event),
                                     void *arg);

/* Gives the process's free memory on the host back to the system: that of the library's heap, and the C library's if it
 * has such a call. Waits for no device. hr_device_memory_trim and hr_stream_trim do this, too. */
HR_API void hr_host_memory_trim(void);

#ifdef __cplusplus
}
#endif

#endif
