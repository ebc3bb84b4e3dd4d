/* stream.h: devices, buffers and the stream of operations, with which a frontend runs eager code.
 *
 * A frontend creates buffers (no memory yet), records operations on views of them, and releases buffers that its
 * program dropped. Recording runs nothing. The stream commits the pending operations when the host needs a value, when
 * enough is pending, or on request. They then run as one fused program, and buffers that nobody can read any more get
 * no memory.
 *
 * Threads: every function may be called from any thread; a stream and its device have one lock each.
 */
#ifndef HEADRACE_STREAM_H_
#define HEADRACE_STREAM_H_

#include <stdbool.h>

#include "headrace/dtype.h"
#include "headrace/op.h"
#include "headrace/stats.h"
#include "headrace/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_device hr_device;
typedef struct hr_stream hr_stream;
typedef struct hr_buffer hr_buffer;

/* ---- devices ------------------------------------------------------------------------------------------------ */

/* The number of devices of the driver that `name` begins with ("cuda" or "cuda:1"); opens none. NOT_FOUND for an
 * unknown driver, with the list of drivers. */
HR_API HR_MUST_USE hr_status hr_device_count(const char *name, int *out_count);
/* Opens a device by name: "cpu", "cuda:1", "null". Opening the same name again gives the same device. The caller owns
 * one reference. NOT_FOUND lists the drivers, or states why the driver has no such device. */
HR_API HR_MUST_USE hr_status hr_device_open(const char *name, hr_device **out_device);
/* Adds and drops a reference; NULL is fine. */
HR_API void hr_device_retain(hr_device *device);
HR_API void hr_device_release(hr_device *device);
/* The device's name, such as "cuda:1"; lives as long as the device. */
HR_API const char *hr_device_name(const hr_device *device);
/* The device's own queue, for libraries: CUDA's CUstream, which lives as long as the device. NULL if the driver has
 * none. Work in it precedes, in the device's order,
 *
 * - later work of the device's first stream,
 * - later work of a stream whose hr_stream_call function submitted it,
 * - all work on memory that is adopted afterwards (hr_buffer_adopt). */
HR_API void *hr_device_queue(const hr_device *device);

typedef struct hr_device_info {
  const char *driver;      /* the name's first part; lives as long as the process, like the description */
  const char *description; /* the model, for messages */
  int ordinal;             /* among the driver's devices, from 0 */
  int workers;             /* threads, or multiprocessors */
  bool is_host;            /* its memory is the host's */
  int64_t total_bytes;
} hr_device_info;

/* Fills in a device's description: the first `bytes` bytes of it. New fields come last, and a field that this library
 * lacks is 0. */
HR_API void hr_device_describe_read(const hr_device *device, size_t bytes, hr_device_info *out_info);
static inline void hr_device_describe(const hr_device *device, hr_device_info *out_info) {
  hr_device_describe_read(device, sizeof *out_info, out_info);
}

/* The device's memory, now and at its peak: the first `bytes` bytes of the counters. A counter that this library lacks
 * is 0. */
HR_API void hr_device_memory_stats_read(hr_device *device, size_t bytes, hr_memory_stats *out_stats);
static inline void hr_device_memory_stats(hr_device *device, hr_memory_stats *out_stats) {
  hr_device_memory_stats_read(device, sizeof *out_stats, out_stats);
}
/* Sets both peaks to the current values. */
HR_API void hr_device_memory_reset_peak(hr_device *device);
/* Limits the bytes that the device reserves; 0 removes the limit. Memory that is reserved already stays. */
HR_API void hr_device_memory_limit(hr_device *device, int64_t bytes);
/* Returns cached memory to the driver. On a host the block that programs share for temporaries goes with it, after
 * pending runs. */
HR_API void hr_device_memory_trim(hr_device *device);

/* ---- buffers ------------------------------------------------------------------------------------------------- */

/* A buffer of `bytes` bytes without memory: it gets memory when a commit or hr_stream_address needs it. The caller owns
 * one reference. Contents are undefined until they are written. Fails only for lack of host memory. */
HR_API HR_MUST_USE hr_status hr_buffer_create(hr_device *device, size_t bytes, hr_buffer **out_buffer);
/* A buffer on existing memory that the device's kernels can use, with its contents: `bytes` > 0 bytes at `address`,
 * aligned to 16 (else FAILED_PRECONDITION). That is the host's memory if the device's is the host's, else the device's
 * own. The owner may go on to read and write the memory while no work on the buffer is pending
 * (hr_stream_synchronize). When the memory is no longer needed, release(arg) is
 * called once, from any thread; never if this call fails. Such memory does not count in the device's statistics and
 * limit. */
HR_API HR_MUST_USE hr_status hr_buffer_adopt(hr_device *device, size_t bytes, void *address, void (*release)(void *arg),
                                             void *arg, hr_buffer **out_buffer);
/* The same for `count` > 0 elements that are only read, at a multiple of the dtype's size; on processors of x86-64 at
 * any address (else FAILED_PRECONDITION). */
HR_API HR_MUST_USE hr_status hr_buffer_adopt_elements(hr_device *device, hr_dtype dtype, int64_t count, void *address,
                                                      void (*release)(void *arg), void *arg, hr_buffer **out_buffer);
/* Promises that nobody writes to adopted memory while the buffer lives, so that results made from its contents, such as
 * packed weights, may be kept. Call it before the buffer's first use. */
HR_API void hr_buffer_set_constant(hr_buffer *buffer);
/* Allows results of pending work to take over the buffer's memory, if nobody else holds the buffer when that work is
 * committed. Has no effect on adopted memory, and on devices other than the host. */
HR_API void hr_buffer_donate(hr_buffer *buffer);
/* Adds a reference; NULL is fine. */
HR_API void hr_buffer_retain(hr_buffer *buffer);
/* Drops a reference; NULL is fine. At the next commit a buffer that only the stream still holds is dead: its stores may
 * be eliminated. */
HR_API void hr_buffer_release(hr_buffer *buffer);
/* The size in bytes, and the device (borrowed). */
HR_API size_t hr_buffer_bytes(const hr_buffer *buffer);
HR_API hr_device *hr_buffer_device(const hr_buffer *buffer);
/* A number, never 0, that identifies the buffer also after its release: no other one of the process has it. */
HR_API uint64_t hr_buffer_serial(const hr_buffer *buffer);
/* A pointer that identifies the buffer: the start of `bytes` bytes of reserved address space that map nothing, aligned
 * to 64 and unique while the buffer lives. It must not be dereferenced. For frameworks that require a pointer. */
HR_API void *hr_buffer_handle(const hr_buffer *buffer);
/* The buffer whose handle range contains `address`, with a new reference, and the offset in it; NULL if there is
 * none. */
HR_API hr_buffer *hr_buffer_from_handle(const void *address, size_t *out_offset_bytes);
/* For messages about a handle that was dereferenced: what an address inside of the reserved range belongs to, as text
 * of less than `bytes` bytes ("byte 12 of a buffer of 4000 bytes of device cpu"). False for other addresses. A handler
 * of signals may call this. */
HR_API bool hr_handle_describe(const void *address, size_t bytes, char *out_text);

/* ---- views --------------------------------------------------------------------------------------------------- */

/* A tensor as an operation sees it; borrowed for the call. The position of element (i0, i1, ...) is offset +
 * i0*strides[0] + i1*strides[1] + ..., in elements of dtype from the buffer's start. Strides may be 0 or negative.
 *
 * An input may also be a number: buffer NULL, scalar set, rank 0. For an optional input that is absent, both are
 * NULL. */
typedef struct hr_view {
  hr_buffer *buffer;
  const hr_scalar *scalar;
  hr_dtype dtype;
  int rank;
  int64_t offset;
  const int64_t *dims, *strides;
} hr_view;

/* ---- streams ------------------------------------------------------------------------------------------------- */

typedef enum hr_mode {
  HR_MODE_FUSE = 0, /* defer, fuse, run at commit */
  HR_MODE_EAGER,    /* run each operation when it is recorded, without waiting for it */
  HR_MODE_STRICT    /* run each operation when it is recorded and report its error at its line */
} hr_mode;

/* A stream of a device, in the mode of HEADRACE_MODE. The caller owns one reference; the stream retains the device.
 *
 * A device may have several streams. A buffer may be used in any of them: a record that reads a buffer runs after the
 * writes of it that were recorded before in other streams, and a record that writes one also after the reads. For that,
 * other streams' pending work may be committed. Other work of two streams may run at the same time, if the driver can
 * do that. The failures of a stream concern another one only if it uses a buffer that is invalid because of them. */
HR_API HR_MUST_USE hr_status hr_stream_create(hr_device *device, hr_stream **out_stream);
/* Opens the libraries of a host device on a thread of its own, while the caller records its first operations; if work
 * has one thread, at once. Without it the first commit opens them, and waits some tens of milliseconds. From then on
 * another thread generates the code of a library that a record will probably need. Once for the process; never
 * fails. */
HR_API void hr_stream_open_libraries(hr_stream *stream);
/* Waits for these threads, if they run, and lets no other begin. A caller of hr_stream_open_libraries calls it before
 * exit(), which frees a library's memory even while another thread opens it. */
HR_API void hr_libraries_wait(void);
/* The stream's device, borrowed. */
HR_API hr_device *hr_stream_device(const hr_stream *stream);
/* Adds and drops a reference; NULL is fine. Dropping the last one synchronizes; errors are ignored. */
HR_API void hr_stream_retain(hr_stream *stream);
HR_API void hr_stream_release(hr_stream *stream);
/* Sets the mode for operations recorded from now on. The modes eager and strict commit pending operations; a capture
 * keeps its mode. */
HR_API void hr_stream_set_mode(hr_stream *stream, hr_mode mode);
HR_API hr_mode hr_stream_mode(const hr_stream *stream);

/* Appends one operation; in fuse mode, runs nothing. Shapes and dtypes are checked here: INVALID_ARGUMENT names the
 * actual and the expected value. Outputs may alias inputs: the output view of an in-place operation is an input view.
 *
 * An element-wise operation whose row has `arity` inputs may be recorded over lists: n*arity inputs, list after list
 * (a0..an-1, b0..bn-1, ...), and n outputs. A scalar or absent operand still fills n places. */
HR_API HR_MUST_USE hr_status hr_stream_record(hr_stream *stream, hr_op op, const hr_attrs *attrs, int input_count,
                                              const hr_view *inputs, int output_count, const hr_view *outputs);

/* The same with one output that is new: it has the type that hr_op_infer gives for these operands, in a buffer of its
 * size from hr_buffer_create that nothing has used, and to which only the caller refers. The output is not checked
 * again, which takes a quarter of the time of a small record. */
HR_API HR_MUST_USE hr_status hr_stream_record_new(hr_stream *stream, hr_op op, const hr_attrs *attrs, int input_count,
                                                  const hr_view *inputs, const hr_view *output);

/* hr_op_infer, hr_buffer_create and hr_stream_record_new in one call, in less than half of their time, for the common
 * case of an element-wise operation without attributes:
 *   - its tensors have one dtype, the same dims without a 0, and row-major strides without gaps;
 *   - its numbers do not change the dtype;
 *   - the stream has no hook that gets functions (hook.h). Other hooks get the record.
 * out: the result has out's dtype, buffer, dims and strides, of which the last two are a tensor's and borrowed. The
 * caller owns the buffer. In any other case, errors among them, out->buffer is NULL and nothing is recorded. */
HR_API HR_MUST_USE hr_status hr_stream_record_alike(hr_stream *stream, hr_op op, int input_count, const hr_view *inputs,
                                                    hr_view *out);

/* Submits everything pending to the device. Errors of the work itself are reported by the call that waits for it, or by
 * a record that uses an invalid buffer. Between a failure and its report all work is dropped, as after an exception. */
HR_API HR_MUST_USE hr_status hr_stream_commit(hr_stream *stream);
/* Work recorded between the two calls runs on at most `count` threads of the host, and on no more than
 * HEADRACE_THREADS. Each call commits what is pending, so that the work is programs of its own; its results have the
 * same bits. Another thread's work in between has the limit, too. A thread that begins waits for the end of another
 * one's limit; begun limits don't nest. INVALID_ARGUMENT for a count below 1 or above 1,024, or a capture. After a
 * failure of `begin` there is nothing to end. */
HR_API HR_MUST_USE hr_status hr_stream_begin_threads(hr_stream *stream, int count);
HR_API HR_MUST_USE hr_status hr_stream_end_threads(hr_stream *stream);
/* Work recorded in `stream` from now on runs after everything recorded in `other` until now, which is committed. Waits
 * for nothing. INVALID_ARGUMENT for streams of two devices. */
HR_API HR_MUST_USE hr_status hr_stream_wait_for(hr_stream *stream, hr_stream *other);
typedef enum hr_hint {
  HR_HINT_PASS_BEGINS = 0, /* a pass over the program, such as the backward pass, begins or has ended */
  HR_HINT_AWAITED,         /* others, such as another process, wait for the function that was recorded last */
  HR_HINT_DUE,             /* commits everything if others wait for a pending function */
  HR_HINT_PAUSED,          /* the same, if nothing was recorded since the last of these hints: the host may wait, too */
  HR_HINT_CALL_BEGINS, /* buffers will be donated and released when the call has been recorded: no commit before, .. */
  HR_HINT_CALL_ENDS    /* .. unless a value is needed. Each call has both hints; calls may nest */
} hr_hint;
/* Reports the frontend's position in its program. The stream may use it to decide when to commit; results do not depend
 * on it. Errors are reported by the call that waits. */
HR_API void hr_stream_hint(hr_stream *stream, hr_hint hint);
/* Commits and waits for the work of this stream. Reports the first error since the last wait, unless a record has
 * reported it already. */
HR_API HR_MUST_USE hr_status hr_stream_synchronize(hr_stream *stream);
/* The same without a wait, for callers with a lock that others need meanwhile, such as an interpreter's: runs the
 * pending operations here if that takes microseconds, that is, on a host if they are few small ones which the stream
 * has run before. True: all work has run, without a failure. False: hr_stream_synchronize is needed. */
HR_API bool hr_stream_finish_short(hr_stream *stream);
/* The same for callers without such a lock: commits everything pending on a host, and runs it here unless it may take
 * more than some tens of milliseconds, calls functions that wait for others, or earlier work has not ended. False: the
 * work goes on, or has failed, or another thread is recording. */
HR_API bool hr_stream_finish_soon(hr_stream *stream);
/* Commits, waits, and copies the view's elements to host memory, row-major and without gaps. */
HR_API HR_MUST_USE hr_status hr_stream_read(hr_stream *stream, const hr_view *view, void *out_bytes);

/* A failure of this stream ends the program that has failed, and later work that uses its results, but no other work:
 * for frontends whose programs belong to several threads and change nothing in place. A read of a buffer, or of its
 * address, fails only if that buffer has. Without it, all work between a failure and its report is dropped. Call it
 * before the first record. */
HR_API void hr_stream_keep_failures_apart(hr_stream *stream);

/* Interrupts the work that was submitted and has not run. The program that runs ends before its next step; later
 * ones do not begin. This is a failure like others, with the code CANCELLED: the next wait reports it, buffers that
 * were not made are invalid, older ones have the contents that the finished steps gave them. Operations recorded after
 * the report run as usual. Any thread may call this, and so may a signal handler. */
HR_API void hr_stream_interrupt(hr_stream *stream);
enum { HR_INTERRUPT_CHECK_MS = 50 };
/* Sets a function that each thread calls while it waits for the stream, every HR_INTERRUPT_CHECK_MS and with no lock
 * held. If it returns true, the stream is interrupted and the wait reports CANCELLED, even if all work had finished.
 * Long programs then run on the device's thread instead of the waiting one. Default: NULL, none. Set it before the
 * first record. */
HR_API void hr_stream_set_interrupt_check(hr_stream *stream, bool (*wants_interrupt)(void *arg), void *arg);
/* CANCELLED if that function returns true now: for callers that record for a long time without a wait. Work that was
 * submitted, or recorded, goes on. */
HR_API HR_MUST_USE hr_status hr_stream_check_interrupt(hr_stream *stream);

/* Copies row-major host elements to a staging buffer now and records a copy of it to `view`; commits nothing. */
HR_API HR_MUST_USE hr_status hr_stream_write(hr_stream *stream, const hr_view *view, const void *bytes);
/* Copies between devices: commits and waits on `source_stream`, then writes as hr_stream_write does. The elements of
 * `source` are row-major without gaps. Both views have the same dtype and number of elements. The copy is direct if the
 * driver can do that. */
HR_API HR_MUST_USE hr_status hr_stream_write_from(hr_stream *stream, const hr_view *view, hr_stream *source_stream,
                                                  const hr_view *source);
/* Commits, waits, binds the buffer to memory and returns its address on the device, valid until the buffer is
 * released. */
HR_API HR_MUST_USE hr_status hr_stream_address(hr_stream *stream, hr_buffer *buffer, void **out_address);

/* True if a write to the buffer would be seen through the caller's reference alone: pending work of the stream may hold
 * others. False for memory that was adopted, or whose address was given out. */
HR_API bool hr_buffer_is_unique(hr_stream *stream, const hr_buffer *buffer);

/* Reads the first `bytes` bytes of the counters; a counter that this library lacks is 0. docs/watching.md explains
 * each. */
HR_API void hr_stream_stats_read(hr_stream *stream, size_t bytes, hr_stats *out_stats);
static inline void hr_stream_stats(hr_stream *stream, hr_stats *out_stats) {
  hr_stream_stats_read(stream, sizeof *out_stats, out_stats);
}
/* Sets the counters to 0. */
HR_API void hr_stream_reset_stats(hr_stream *stream);
/* Frees the compiled programs that the stream keeps, but those that ran since the last call: a loop that trims in each
 * iteration compiles once more, not each time. With them goes what libraries answered about their operations. */
HR_API void hr_stream_trim(hr_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
