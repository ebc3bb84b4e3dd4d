/* plugin.h: the objects behind the handles of the PJRT table, and what its files share.
 *
 * A client has the devices of one driver. Each device has one stream, to which all programs, copies and reads of its
 * buffers are appended; it has one memory, which shows the same bytes. An executable is a session on the stream of its
 * device. Recording waits for nothing, so that calls fuse with their neighbours.
 *
 * Completion: the event of a call is ready when the call has been recorded, since the stream keeps what the work needs,
 * or when its callbacks have run, if they have effects.
 * Events of buffers tell when the contents are there (event.c).
 *
 * Errors: every function returns NULL or an error that the caller destroys. A call with a wrong argument fails at
 * once; deferred work that fails makes its results invalid, and their events report the failure.
 *
 * Threads: any. No function of the caller is called while a lock is held, neither one of these files nor the core's.
 */
#ifndef HEADRACE_JAX_PLUGIN_H_
#define HEADRACE_JAX_PLUGIN_H_

#include <pthread.h>
#include <stdatomic.h>

#include "headrace/functional.h"
#include "headrace/importer.h"
#include "headrace/mark.h"
#include "headrace/session.h"
#include "pjrt.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof *(array))

/* Functions of the table: hrj_Buffer_Delete and so on. */
#define DONE(name, args) pjrt_error *hrj_##name(args *);
#define NONE(name)
#include "entries.def"
#undef DONE
#undef NONE

/* The list of extensions of the table. */
void *hrj_extensions(void);

/* ---- errors ---- */

/* The error of a status, which it takes over; NULL for OK. Never fails. */
pjrt_error *hrj_error(hr_status status);
/* The same of a code and a printf format. */
pjrt_error *hrj_error_make(hr_status_code code, const char *format, ...) HR_PRINTF(2, 3);
/* Leaves the enclosing function with the error of a status unless it is OK. */
#define HRJ_RETURN_IF_ERROR(expr)    \
  do {                               \
    hr_status hrj_status_ = (expr);  \
    if (hrj_status_ != HR_OK) {      \
      return hrj_error(hrj_status_); \
    }                                \
  } while (0)

/* ---- dtypes ---- */

/* A type of the ABI as it is stored: HR_DTYPE_NONE if it can't be. Types of less than a byte, and formats of one byte
 * that the core lacks, are bytes. */
hr_dtype hrj_dtype_of(pjrt_type type);
/* The type of elements that are stored in a dtype and have so many bits, 0: those of the dtype; INVALID if there is
 * none. */
pjrt_type hrj_type_of(hr_dtype dtype, int bits);
/* "s32", "bf16", ... */
const char *hrj_type_name(pjrt_type type);

/* ---- clients and devices ---- */

typedef struct hrj_user_data hrj_user_data;

struct pjrt_memory {
  const pjrt_memory_table *table; /* first, as the ABI demands */
  pjrt_device *device;
  hr_stablehlo_memory kind;
  pthread_mutex_t lock;
  hrj_user_data *user_data;
  char text[64];
};

enum { HRJ_MEMORIES_MAX = HR_STABLEHLO_UNPINNED_HOST + 1 };

struct pjrt_device {
  pjrt_client *client;
  int number;
  hr_device *device;
  hr_stream *stream;
  bool is_host;
  bool is_null; /* HEADRACE_JAX_NOP: programs do nothing */
  char name[48], kind[96];
  int memory_count; /* the host has all kinds, which are the same memory */
  pjrt_memory memories[HRJ_MEMORIES_MAX];
  pjrt_memory *memory_list[HRJ_MEMORIES_MAX];
  pjrt_device *self[1];                     /* lists of one */
  atomic_llong host_bytes, host_bytes_peak; /* of copies from the host that the core does not count */
  atomic_uint failures;                     /* that were reported to the stream (event.c) */
  atomic_bool has_callbacks;                /* a program was compiled that calls functions of the caller */
  atomic_llong given_bytes;                 /* see hrj_device_trim */
  atomic_uint calls_since;
};

struct pjrt_client {
  atomic_int references; /* of the handle, and of each copy that its devices count */
  bool is_topology;
  pthread_mutex_t launching; /* of a program over several devices, which all get its calls in one order */
  pthread_mutex_t linking;   /* of `links` */
  struct hrj_links *links;   /* between GPUs (links.h) */
  pjrt_client *next;         /* of the open ones */
  int device_count;
  pjrt_device *devices;
  pjrt_device **device_list;
  int memory_count;
  pjrt_memory **memory_list; /* of all devices */
};

/* The platform's name and version, for messages and for JAX. */
#define HRJ_PLATFORM "headrace"
const char *hrj_platform_version(void);
/* Sets up and ends a device's memory of a kind. */
hr_status hrj_memory_init(pjrt_memory *memory, pjrt_device *device, hr_stablehlo_memory kind);
void hrj_memory_fini(pjrt_memory *memory);
/* The device's memory of a kind; its first one if it has none of that kind. */
pjrt_memory *hrj_memory_of(pjrt_device *device, hr_stablehlo_memory kind);
const char *hrj_memory_kind(hr_stablehlo_memory kind);
/* Adds and drops a reference. */
void hrj_client_retain(pjrt_client *client);
void hrj_client_release(pjrt_client *client);
/* The device that a call names by itself or by its memory; the client's first if both are NULL. */
pjrt_device *hrj_device_of(pjrt_client *client, pjrt_device *device, pjrt_memory *memory);

/* True if a signal should end what the thread waits for (interrupt.c). */
bool hrj_wants_interrupt(void *arg);
/* Registers a function that Python calls when it ends, before exit(). False: it will not be called. */
bool hrj_call_at_exit(void (*function)(void));
/* Python calls it after Ctrl-C in a wait of JAX's own: cancels the pending work of all clients, and waits until the
 * step or iteration that runs has ended. */
HR_API void headrace_jax_interrupt(void);
/* Interrupts so far. */
unsigned hrj_interrupt_count(void);

/* ---- layouts ---- */

struct pjrt_memory_layout {
  int rank;
  bool is_row_major;
  int64_t minor_to_major[HR_RANK_MAX];
  char text[48];
  pjrt_memory_layout *next;
};

/* The layout of an order of dims, which is a permutation; NULL: no memory. */
const pjrt_memory_layout *hrj_layout_find(int rank, const int64_t *minor_to_major);
const pjrt_memory_layout *hrj_layout_row_major(int rank);
/* A layout as a client gives it; NULL is row-major. UNIMPLEMENTED if it has tiles or strides. */
hr_status hrj_layout_read(const pjrt_layout *layout, size_t rank, const pjrt_memory_layout **out_layout);
/* The strides of dense elements, of which one takes `element`. */
void hrj_layout_strides(const pjrt_memory_layout *layout, const int64_t *dims, int64_t element, int64_t *out_strides);
/* A tensor with its dims in the order of the layout, so that its strides are row-major; the same of other strides of
 * its dims, unless they are NULL. */
hr_tensor hrj_layout_stored(const pjrt_memory_layout *layout, const hr_tensor *tensor, const int64_t *strides,
                            int64_t *out_strides);

/* ---- buffers ---- */

/* `holds` keeps the tensor: 1 until the buffer is deleted, and one for each call that uses it, for each event, and for
 * each external reference. The tensor's buffer is released with the last. */
struct pjrt_buffer {
  pjrt_device *device;
  pjrt_memory *memory;
  hr_tensor tensor;
  pjrt_type type;
  atomic_int holds;
  atomic_bool is_deleted;
  const pjrt_memory_layout *layout; /* of the tensor's strides */
  bool is_of_host;                  /* its contents came from the caller's memory */
  bool is_borrowed;                 /* its memory is the caller's, who may write it when the buffer is deleted */
  _Atomic(hrj_late *) late;         /* contents that may not have come yet (late.c); NULL: they have */
  pjrt_buffer *next;                /* of a free struct (buffer.c) */
  int free_count;
};

/* A buffer of a tensor with the strides of a layout, in `memory` of the device, or in the device's first one (NULL). It
 * takes over the tensor's reference on success. NULL: no host memory. */
pjrt_buffer *hrj_buffer_create(pjrt_device *device, pjrt_memory *memory, pjrt_type type,
                               const pjrt_memory_layout *layout, const hr_tensor *tensor);
/* Keeps the tensor until hrj_buffer_drop. False if the buffer is deleted. */
bool hrj_buffer_hold(pjrt_buffer *buffer);
void hrj_buffer_drop(pjrt_buffer *buffer);
/* Waits for the work with a borrowed buffer, unless callbacks may be a part of it: the caller may hold a lock that they
 * need. */
void hrj_buffer_return(pjrt_buffer *buffer);
/* Deletes a buffer: its memory is freed when nothing holds it. False if that was done before. */
bool hrj_buffer_delete(pjrt_buffer *buffer);
/* The failure of a call with a deleted buffer. */
hr_status hrj_buffer_deleted(const pjrt_buffer *buffer, const char *call);
/* The bytes of all elements. */
size_t hrj_buffer_bytes(const pjrt_buffer *buffer);
/* A tensor of a layout without a buffer; INVALID_ARGUMENT or UNIMPLEMENTED for a type or dims that can't be. layout:
 * NULL: row-major. */
hr_status hrj_tensor_make(pjrt_type type, const int64_t *dims, size_t rank, const pjrt_memory_layout *layout,
                          hr_tensor *out_tensor);
/* Records a step that fails in place of one that makes the tensor's contents; takes over the failure. */
hr_status hrj_tensor_fail(pjrt_device *device, const hr_tensor *tensor, hr_status failure);
/* The address of the elements in the order of their layout, for which the stream is waited; valid while the buffer is
 * held. */
hr_status hrj_buffer_address(pjrt_buffer *buffer, void **out_address);

/* Records a wait for contents that have not come, at the first use of a buffer. Part of hrj_buffer_hold. */
void hrj_late_expect(pjrt_buffer *buffer);
/* The buffer is gone, whose contents need not come. */
void hrj_late_forget(pjrt_buffer *buffer);

/* ---- events ---- */

/* An event that is ready; never destroyed, and never NULL. */
pjrt_event *hrj_event_done(void);
/* An event that hrj_event_set makes ready. The caller owns one reference; NULL: no memory. */
pjrt_event *hrj_event_create(void);
/* Makes an event ready, takes over the status, and calls what waits for it. */
void hrj_event_set(pjrt_event *event, hr_status status);
/* Adds and drops a reference. */
void hrj_event_retain(pjrt_event *event);
void hrj_event_release(pjrt_event *event);
/* An event that is ready when the buffer's contents are there; NULL: no memory. */
pjrt_event *hrj_event_of(pjrt_device *device, hr_buffer *buffer);
pjrt_event *hrj_event_of_buffer(pjrt_buffer *buffer);

/* Waits for the device's work. Failures stay with the buffers that they belong to: no later work reports them. */
void hrj_device_settle(pjrt_device *device);
/* The caller frees what it has donated some time after, and the C library keeps it. hrj_device_trim, called before each
 * execution, gives it back to the system a few calls later, if it is much. */
void hrj_device_note_given(pjrt_device *device, size_t bytes);
void hrj_device_trim(pjrt_device *device);

/* An event that hrj_event_called makes ready, from the release function of a hr_stream_call that reads the buffer:
 * without a failure if the function has run, else with the buffer's. The caller owns one reference, and
 * hrj_event_called drops another one. NULL: no memory. */
pjrt_event *hrj_event_of_call(pjrt_buffer *buffer);
void hrj_event_called(pjrt_event *event, bool has_run);

/* ---- host memory ---- */

/* Elements of the host, of any byte strides of the tensor's dims, as a buffer of a layout stores them. */
void hrj_host_pack(pjrt_type type, const void *data, const hr_tensor *tensor, const int64_t *byte_strides,
                   const pjrt_memory_layout *layout, void *target);
/* Copies elements between host memory of any strides (in bytes) and dense ones. */
void hrj_strided_pack(void *target, const void *source, const hr_tensor *tensor, const int64_t *byte_strides);
void hrj_strided_unpack(void *target, const int64_t *byte_strides, const void *source, const hr_tensor *tensor);

/* ---- compile options ---- */

typedef struct hrj_compile_options {
  int64_t replicas, partitions;
  int device_count; /* of the device assignment, partition after partition; 0: none is given */
  int64_t devices[HR_STABLEHLO_DEVICES_MAX];
  char unknown[64]; /* an option of the caller that no compiler has; "": none */
} hrj_compile_options;
/* Reads the serialised options of a compile; any bytes are safe. */
hrj_compile_options hrj_compile_options_read(const char *bytes, size_t size);

#endif
