/* stream.h: devices, buffers and the stream of operations: what a frontend needs to run eager code.
 *
 * A frontend creates buffers (no memory yet), records operations on views of them, and lets go of buffers that its
 * program dropped. Recording runs nothing. The stream commits what is pending when the host needs a value, when enough
 * is pending, or when it is told to; then the pending operations run as one fused program, and what nobody can see any
 * more never gets memory.
 *
 * Threads: every function may be called from any thread; a stream and its device have one lock each.
 */
#ifndef HEADRACE_STREAM_H_
#define HEADRACE_STREAM_H_

#include <stdbool.h>

#include "headrace/dtype.h"
#include "headrace/op.h"
#include "headrace/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HR_RANK_MAX = 16 }; /* dimensions of a view at most */

typedef struct hr_device hr_device;
typedef struct hr_stream hr_stream;
typedef struct hr_buffer hr_buffer;

/* ---- devices ------------------------------------------------------------------------------------------------ */

/* How many devices the driver has that a name begins with, "cuda" as well as "cuda:1"; opens none. NOT_FOUND lists the drivers. */
HR_API HR_MUST_USE hr_status hr_device_count(const char *name, int *out_count);
/* Opens a device by name: "cpu", "cuda:1", "null". Opening the same name again gives the same device, retained. */
HR_API HR_MUST_USE hr_status hr_device_open(const char *name, hr_device **out_device);
HR_API void hr_device_retain(hr_device *device);
HR_API void hr_device_release(hr_device *device);
HR_API const char *hr_device_name(const hr_device *device);

typedef struct hr_device_info {
  const char *driver;      /* the name's first part; it and the description live as long as the process */
  const char *description; /* for people */
  int ordinal;             /* among the driver's devices */
  int workers;             /* threads, or multiprocessors */
  bool is_host;            /* its memory is the host's */
  int64_t total_bytes;
} hr_device_info;

HR_API void hr_device_describe(const hr_device *device, hr_device_info *out_info);

typedef struct hr_memory_stats { /* bytes */
  int64_t allocated_bytes;       /* bound to live buffers and to the temporaries of executables */
  int64_t allocated_bytes_peak;
  int64_t reserved_bytes; /* allocated and cached */
  int64_t reserved_bytes_peak;
  int64_t limit_bytes; /* no more than this is reserved; 0: no limit */
  int64_t allocation_count;
  int64_t driver_allocation_count; /* those that the cache could not serve */
  int64_t device_free_bytes, device_total_bytes;
} hr_memory_stats;

HR_API void hr_device_memory_stats(hr_device *device, hr_memory_stats *out_stats);
HR_API void hr_device_memory_reset_peak(hr_device *device);
/* Limits what the device reserves; 0 lifts the limit. */
HR_API void hr_device_memory_limit(hr_device *device, int64_t bytes);
/* Returns cached memory to the driver. */
HR_API void hr_device_memory_trim(hr_device *device);

/* ---- buffers ------------------------------------------------------------------------------------------------- */

/* A buffer of `bytes` bytes with a count of one and no memory yet: the planner binds it at commit, or an address does.
 * Its contents are undefined until they are written. */
HR_API HR_MUST_USE hr_status hr_buffer_create(hr_device *device, size_t bytes, hr_buffer **out_buffer);
/* A buffer that has memory, with its contents: the host's `bytes` > 0 bytes at `address`, aligned to 64, of a device whose memory is
 * the host's (else FAILED_PRECONDITION). When it is not needed any more, release(arg) is called, once and from any thread; where this
 * fails, never. Such memory is no part of the device's memory statistics and limit. */
HR_API HR_MUST_USE hr_status hr_buffer_adopt(hr_device *device, size_t bytes, void *address, void (*release)(void *arg),
                                             void *arg, hr_buffer **out_buffer);
HR_API void hr_buffer_retain(hr_buffer *buffer); /* NULL: nothing */
/* Drops one count. At the next commit a buffer that only the stream still holds is dead: its stores may vanish. */
HR_API void hr_buffer_release(hr_buffer *buffer); /* NULL: nothing */
HR_API size_t hr_buffer_bytes(const hr_buffer *buffer);
HR_API hr_device *hr_buffer_device(const hr_buffer *buffer); /* borrowed */
/* A buffer's name among addresses: `bytes` bytes of reserved address space that map nothing, aligned to 64 and unique
 * while the buffer lives. Frameworks that insist on a pointer get this one. */
HR_API void *hr_buffer_handle(const hr_buffer *buffer);
/* The buffer whose handle range holds `address`, retained, and how far inside; NULL when there is none. */
HR_API hr_buffer *hr_buffer_from_handle(const void *address, size_t *out_offset_bytes);

/* ---- views --------------------------------------------------------------------------------------------------- */

/* A tensor as an operation sees it; borrowed for the call. Element (i0, i1, ...) lies at
 * offset + i0*strides[0] + i1*strides[1] + ..., counted in elements of dtype from the buffer's start.
 *
 * An input may also be a number: buffer NULL and scalar set (rank 0). An optional input that is absent has both NULL. */
typedef struct hr_view {
  hr_buffer *buffer;
  const hr_scalar *scalar;
  hr_dtype dtype;
  int rank;
  int64_t offset;
  const int64_t *dims, *strides;
} hr_view;

/* What an operation takes besides tensors. `ints` (dims, kernel sizes, flags, dtypes) are part of the program;
 * `scalars` (eps, momentum, probability, seeds) are arguments of each run. The rows of op.h say their order. */
typedef struct hr_attrs {
  int int_count, scalar_count;
  const int64_t *ints;
  const hr_scalar *scalars;
} hr_attrs;

/* ---- streams ------------------------------------------------------------------------------------------------- */

typedef enum hr_mode {
  HR_MODE_FUSE = 0, /* defer, fuse, run at commit */
  HR_MODE_EAGER,    /* run each operation when it is recorded, without waiting for it */
  HR_MODE_STRICT    /* run each operation when it is recorded and report its error at its line */
} hr_mode;

HR_API HR_MUST_USE hr_status hr_stream_create(hr_device *device, hr_stream **out_stream);
HR_API void hr_stream_retain(hr_stream *stream);
HR_API void hr_stream_release(hr_stream *stream);
HR_API void hr_stream_set_mode(hr_stream *stream, hr_mode mode);
HR_API hr_mode hr_stream_mode(const hr_stream *stream);

/* Appends one operation; runs nothing (in fuse mode). Shapes and dtypes are checked here, so that an error belongs to
 * the line that caused it. Outputs may alias inputs: an in-place operation is one whose output view is an input view.
 *
 * An element-wise operation whose row has `arity` inputs may be recorded over lists: n*arity inputs, list after list
 * (a0..an-1, b0..bn-1, ...), and n outputs; a scalar or absent operand then still fills n places. */
HR_API HR_MUST_USE hr_status hr_stream_record(hr_stream *stream, hr_op op, const hr_attrs *attrs, int input_count,
                                              const hr_view *inputs, int output_count, const hr_view *outputs);

/* Hands everything pending to the device. Errors of the work itself are reported by the call that waits for it, or by a record that
 * uses what was not made. Between a failure and its report all work is dropped, as if an exception had ended the program there. */
HR_API HR_MUST_USE hr_status hr_stream_commit(hr_stream *stream);
/* Commits and waits. Reports the first error since the last wait, unless a record has reported it. */
HR_API HR_MUST_USE hr_status hr_stream_synchronize(hr_stream *stream);
/* Commits, waits, and copies the view's elements, row-major, to host memory. */
HR_API HR_MUST_USE hr_status hr_stream_read(hr_stream *stream, const hr_view *view, void *out_bytes);
/* Takes a snapshot of row-major host elements now and records a copy of it to `view`; commits nothing. */
HR_API HR_MUST_USE hr_status hr_stream_write(hr_stream *stream, const hr_view *view, const void *bytes);
/* Commits and waits on `source_stream`, and does as hr_stream_write with the elements of `source`, which lie there row-major without gaps: from
 * one device to another, directly where the driver can. Both views have the same dtype and number of elements. */
HR_API HR_MUST_USE hr_status hr_stream_write_from(hr_stream *stream, const hr_view *view, hr_stream *source_stream,
                                                  const hr_view *source);
/* Commits, waits, binds the buffer to memory and gives its address, valid until the buffer is released. */
HR_API HR_MUST_USE hr_status hr_stream_address(hr_stream *stream, hr_buffer *buffer, void **out_address);

typedef struct hr_stats { /* counts since creation or the last reset */
  int64_t operations;     /* recorded */
  int64_t commits;        /* stretches handed to the device */
  int64_t commits_by_read, commits_by_limit, commits_by_request, commits_by_mode;
  int64_t cache_hits;          /* commits whose program was compiled before */
  int64_t cache_entries;       /* programs kept now */
  int64_t compiles;            /* programs compiled */
  int64_t compile_ns;          /* time they took */
  int64_t groups;              /* of fused operations that ran: kernels, library calls, checks of indices */
  int64_t kernels;             /* launches of fused kernels; one may have several */
  int64_t kernels_interpreted; /* of those, by the block interpreter; the others ran as compiled code */
  int64_t library_calls;       /* provider kernels launched */
  int64_t bytes_moved;         /* that kernels and library calls read and wrote, each element once a call */
  int64_t bytes_copied_in, bytes_copied_out; /* host to device, device to host */
  int64_t temporary_bytes;                   /* arena of the largest program */
  int64_t temporaries_elided;                /* buffers that never got memory */
  int64_t derived_bytes;                     /* in the process: kept now, weights in layouts of libraries */
  int64_t jit_compiled;                      /* in the process: kernels that the system's compiler made */
  int64_t jit_loaded;                        /* ... that the disk cache had */
  int64_t jit_unable;                        /* ... that stay interpreted */
  int64_t jit_ns;                            /* time that compilers took, in the background */
  int64_t jit_waiting;                       /* kernels that wait for a compiler now, or that it works on */
  int64_t graph_launches;                    /* graphs of the driver that were launched, each for many of the groups */
  int64_t graph_builds;                      /* ... that were captured for it */
  int64_t graph_updates;                     /* kernels of graphs that got other numbers before a launch */
  int64_t layouts_undone; /* buffers that lay as a library likes it, and were brought back into order */
} hr_stats;

HR_API void hr_stream_stats(hr_stream *stream, hr_stats *out_stats);
HR_API void hr_stream_reset_stats(hr_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
