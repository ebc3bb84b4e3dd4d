/* plugin.h: the objects of the device for TensorFlow, and what its files share.
 *
 * TensorFlow has four streams a device; behind them is one hr_stream, in which kernels and copies are recorded. So
 * streams need not wait for one another, and an event is complete at once: a copy to the device takes its bytes when it
 * is recorded, and a copy to the host waits.
 *
 * A tensor's address is the handle of a late-bound buffer, which maps nothing: memory comes when work needs it, and
 * temporaries of a fused program get none.
 *
 * Commits: kernels never wait. When a kernel of another step comes, and the last step recorded several, its work is
 * handed over to the device. So each call of a function is one program, which the cache has from the second call on.
 *
 * Threads: any.
 */
#ifndef HEADRACE_TENSORFLOW_PLUGIN_H_
#define HEADRACE_TENSORFLOW_PLUGIN_H_

#include <stdatomic.h>

#include "headrace/functional.h"
#include "tf.h"

#define HTF_TYPE "HEADRACE"
#define HTF_EXPORT __attribute__((visibility("default")))

typedef struct htf_device {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *empty; /* of tensors without elements */
  char name[96], bus_id[16];
  atomic_llong step; /* of the last kernel */
  atomic_int step_kernels;
  _Atomic(hr_status) failure; /* of work, that a synchronization met and the next copy to the host reports */
} htf_device;

/* The plug-in's part of TensorFlow's streams. */
struct tf_stream {
  htf_device *device;
};

/* True if the process has the TensorFlow that the device needs. The first call prints a line if not. */
bool htf_is_ready(void);

enum { HTF_DEVICES_MAX = 64 };
/* FAILED_PRECONDITION in a forked child of a process that has a device: TensorFlow's threads are not there, and it
 * would wait for them. The first call there prints a line, too, since TensorFlow does not report each failure. */
HR_MUST_USE hr_status htf_check_process(void);

/* Keeps a device for the calls of Python (stats.c); NULL when it ends. */
void htf_device_list(int ordinal, htf_device *device);
/* NULL if TensorFlow has not created it. */
htf_device *htf_device_at(int ordinal);
/* The one that a buffer is of; NULL if it is gone. */
htf_device *htf_device_of(const hr_buffer *buffer);

/* Waits for the device's work. A failure is kept for the next copy to the host. */
void htf_synchronize(htf_device *device);

/* Changes TensorFlow's Python code (python.c). */
void htf_change_python(void);
/* Functions that are one cluster (direct.c). */
int64_t headrace_tensorflow_watch(bool begins);
int headrace_tensorflow_find(tf_handle *const *results, int count, int64_t begin, int most, int64_t *out_numbers);
/* Memory of devices (stats.c). */
bool headrace_tensorflow_memory_stats(int ordinal, size_t bytes, hr_memory_stats *out_stats);
bool headrace_tensorflow_reset_peak(int ordinal);
/* Copies of eager tensors (copies.c). */
tf_handle *headrace_tensorflow_read(tf_handle *tensor);
tf_handle *headrace_tensorflow_write(tf_eager *context, const char *name, tf_handle *tensor);

/* ---- statuses and dtypes ---- */

/* Reports and frees a status; true if it is a failure. */
bool htf_fails(hr_status status, tf_status *out_status);
/* A status of TensorFlow's; HR_OK for OK. */
hr_status htf_status_of(const tf_status *status);
/* HR_DTYPE_NONE if a dtype has no counterpart. */
hr_dtype htf_dtype_of(int dtype);
/* TF_DTYPE_COUNT if it has none. */
int htf_dtype_from(hr_dtype dtype);

/* ---- memory ---- */

/* Makes the next allocation of this thread take over a buffer (of at least its size) instead of creating one. Called
 * with NULL afterwards, it drops what was not taken. */
void htf_offer_buffer(hr_buffer *buffer);
/* The functions of the executor. */
void htf_allocate(const tf_device *device, uint64_t bytes, int64_t space, tf_memory *out_memory);
void htf_deallocate(const tf_device *device, tf_memory *memory);

#endif
