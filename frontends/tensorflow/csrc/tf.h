/* tf.h: own declarations of TensorFlow's C interface for pluggable devices, version 2.19, as a plug-in sees it.
 *
 * Structs begin with their size and a pointer that is reserved. They grow at their end alone, and each side sets the
 * size that it was compiled with. Opaque objects are TensorFlow's. Functions of TensorFlow are in the table `tf`
 * (symbols.def, eager.def), which tf_resolve fills from the libraries of the process.
 */
#ifndef HEADRACE_TENSORFLOW_TF_H_
#define HEADRACE_TENSORFLOW_TF_H_

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TF_TESTED_VERSION "2.19.1"
#define TF_STRUCT_SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

typedef unsigned char tf_bool;
typedef struct TF_Status tf_status;
typedef struct TF_Tensor tf_tensor;
typedef struct TF_KernelBuilder tf_builder;
typedef struct TF_OpKernelConstruction tf_construction;
typedef struct TF_OpKernelContext tf_context;
typedef struct TF_VariableInputLockHolder tf_locks;
typedef struct TF_GrapplerItem tf_item;
typedef struct TF_OpDefinitionBuilder tf_op_builder;
typedef struct TF_ShapeInferenceContext tf_inference;
typedef struct TF_FunctionLibraryDefinition tf_library;
typedef struct TFE_Context tf_eager;
typedef struct TFE_TensorHandle tf_handle;

typedef struct tf_string_view {
  const char *data;
  size_t size;
} tf_string_view;

typedef struct tf_buffer {
  const void *data;
  size_t size;
  void (*release)(void *data, size_t size);
} tf_buffer;

typedef enum tf_dtype {
  TF_FLOAT = 1,
  TF_DOUBLE = 2,
  TF_INT32 = 3,
  TF_UINT8 = 4,
  TF_INT16 = 5,
  TF_INT8 = 6,
  TF_STRING = 7,
  TF_COMPLEX64 = 8,
  TF_INT64 = 9,
  TF_BOOL = 10,
  TF_QINT8 = 11,
  TF_QUINT8 = 12,
  TF_QINT32 = 13,
  TF_BFLOAT16 = 14,
  TF_QINT16 = 15,
  TF_QUINT16 = 16,
  TF_UINT16 = 17,
  TF_COMPLEX128 = 18,
  TF_HALF = 19,
  TF_RESOURCE = 20,
  TF_VARIANT = 21,
  TF_UINT32 = 22,
  TF_UINT64 = 23,
  TF_FLOAT8_E5M2 = 24,
  TF_FLOAT8_E4M3FN = 25,
  TF_DTYPE_COUNT
} tf_dtype;

/* ---- devices ---- */

typedef struct tf_stream tf_stream; /* the plug-in's */
typedef struct tf_event tf_event;
typedef struct tf_timer tf_timer;

typedef struct tf_memory {
  size_t size_of;
  void *reserved;
  void *address;
  uint64_t bytes;
  uint64_t payload;
} tf_memory;

typedef struct tf_device {
  size_t size_of;
  void *reserved;
  int32_t ordinal;
  void *handle; /* the plug-in's */
  const char *hardware_name, *vendor, *bus_id;
} tf_device;

typedef struct tf_allocator_stats {
  size_t size_of;
  int64_t allocations, bytes, bytes_peak, largest;
  int8_t has_limit;
  int64_t limit;
  int64_t reserved, reserved_peak;
  int8_t has_reservable_limit;
  int64_t reservable_limit;
  int64_t largest_free;
} tf_allocator_stats;

typedef enum tf_event_status {
  TF_EVENT_UNKNOWN = 0,
  TF_EVENT_ERROR,
  TF_EVENT_PENDING,
  TF_EVENT_COMPLETE
} tf_event_status;

typedef struct tf_executor {
  size_t size_of;
  void *reserved;
  void (*allocate)(const tf_device *, uint64_t bytes, int64_t space, tf_memory *out_memory);
  void (*deallocate)(const tf_device *, tf_memory *);
  void *(*allocate_host)(const tf_device *, uint64_t bytes);
  void (*deallocate_host)(const tf_device *, void *);
  void *(*allocate_unified)(const tf_device *, uint64_t bytes);
  void (*deallocate_unified)(const tf_device *, void *);
  tf_bool (*allocator_stats)(const tf_device *, tf_allocator_stats *out_stats);
  tf_bool (*memory_usage)(const tf_device *, int64_t *out_free, int64_t *out_total);
  void (*create_stream)(const tf_device *, tf_stream **out_stream, tf_status *);
  void (*destroy_stream)(const tf_device *, tf_stream *);
  void (*stream_waits_for)(const tf_device *, tf_stream *dependent, tf_stream *other, tf_status *);
  void (*stream_status)(const tf_device *, tf_stream *, tf_status *);
  void (*create_event)(const tf_device *, tf_event **out_event, tf_status *);
  void (*destroy_event)(const tf_device *, tf_event *);
  tf_event_status (*event_status)(const tf_device *, tf_event *);
  void (*record_event)(const tf_device *, tf_stream *, tf_event *, tf_status *);
  void (*wait_for_event)(const tf_device *, tf_stream *, tf_event *, tf_status *);
  void (*create_timer)(const tf_device *, tf_timer **out_timer, tf_status *);
  void (*destroy_timer)(const tf_device *, tf_timer *);
  void (*start_timer)(const tf_device *, tf_stream *, tf_timer *, tf_status *);
  void (*stop_timer)(const tf_device *, tf_stream *, tf_timer *, tf_status *);
  void (*copy_out)(const tf_device *, tf_stream *, void *, const tf_memory *, uint64_t bytes, tf_status *);
  void (*copy_in)(const tf_device *, tf_stream *, tf_memory *, const void *, uint64_t bytes, tf_status *);
  void (*copy)(const tf_device *, tf_stream *, tf_memory *, const tf_memory *, uint64_t bytes, tf_status *);
  void (*copy_out_now)(const tf_device *, void *, const tf_memory *, uint64_t bytes, tf_status *);
  void (*copy_in_now)(const tf_device *, tf_memory *, const void *, uint64_t bytes, tf_status *);
  void (*copy_now)(const tf_device *, tf_memory *, const tf_memory *, uint64_t bytes, tf_status *);
  void (*wait_event)(const tf_device *, tf_event *, tf_status *);
  void (*wait_stream)(const tf_device *, tf_stream *, tf_status *);
  void (*synchronize)(const tf_device *, tf_status *);
  void (*zero)(const tf_device *, tf_stream *, tf_memory *, uint64_t bytes, tf_status *);
  void (*fill)(const tf_device *, tf_stream *, tf_memory *, uint8_t pattern, uint64_t bytes, tf_status *);
  void (*fill32)(const tf_device *, tf_stream *, tf_memory *, uint32_t pattern, uint64_t bytes, tf_status *);
  tf_bool (*call_host)(const tf_device *, tf_stream *, void (*function)(void *, tf_status *), void *arg);
} tf_executor;

typedef struct tf_timer_functions {
  size_t size_of;
  void *reserved;
  uint64_t (*nanoseconds)(tf_timer *);
} tf_timer_functions;

typedef struct tf_device_functions {
  size_t size_of;
  void *reserved;
  int32_t (*numa_node)(const tf_device *);
  int64_t (*bandwidth)(const tf_device *);
  double (*gflops)(const tf_device *);
} tf_device_functions;

typedef struct tf_platform {
  size_t size_of;
  void *reserved;
  const char *name, *type;
  tf_bool has_unified_memory, uses_bfc_allocator, grows_memory;
} tf_platform;

typedef struct tf_create_device {
  size_t size_of;
  void *reserved;
  int32_t ordinal;
  tf_device *device;
} tf_create_device;
typedef struct tf_create_device_functions {
  size_t size_of;
  void *reserved;
  tf_device_functions *functions;
} tf_create_device_functions;
typedef struct tf_create_executor {
  size_t size_of;
  void *reserved;
  tf_executor *executor;
} tf_create_executor;

typedef struct tf_platform_functions {
  size_t size_of;
  void *reserved;
  void (*device_count)(const tf_platform *, int *out_count, tf_status *);
  void (*create_device)(const tf_platform *, tf_create_device *, tf_status *);
  void (*destroy_device)(const tf_platform *, tf_device *);
  void (*create_device_functions)(const tf_platform *, tf_create_device_functions *, tf_status *);
  void (*destroy_device_functions)(const tf_platform *, tf_device_functions *);
  void (*create_executor)(const tf_platform *, tf_create_executor *, tf_status *);
  void (*destroy_executor)(const tf_platform *, tf_executor *);
  void (*create_timer_functions)(const tf_platform *, tf_timer_functions *, tf_status *);
  void (*destroy_timer_functions)(const tf_platform *, tf_timer_functions *);
} tf_platform_functions;

typedef struct tf_registration {
  size_t size_of;
  void *reserved;
  int32_t major, minor, patch;
  tf_platform *platform;
  tf_platform_functions *functions;
  void (*destroy_platform)(tf_platform *);
  void (*destroy_functions)(tf_platform_functions *);
} tf_registration;

static_assert(TF_STRUCT_SIZE(tf_executor, call_host) == 2 * 8 + 34 * 8, "the executor of 2.19 has 34 functions");
static_assert(TF_STRUCT_SIZE(tf_platform, grows_memory) == 35, "the platform of 2.19");
static_assert(TF_STRUCT_SIZE(tf_registration, destroy_functions) == 64, "the registration of 2.19");

/* ---- optimizers of graphs ---- */

typedef struct tf_optimizer_passes {
  size_t size_of;
  void *reserved;
  int pass[19]; /* 0: as it is, 1: off, 2: on */
} tf_optimizer_passes;
enum {
  TF_PASS_OFF = 1,
  TF_PASS_LAYOUT = 12,
  TF_PASS_REMAPPING = 13,
  TF_PASS_MEMORY = 17,
  TF_PASS_SCOPED_ALLOCATOR = 18
};

typedef struct tf_optimizer {
  size_t size_of;
  void *reserved;
  void *(*create)(void);
  void (*optimize)(void *, const tf_buffer *graph, const tf_item *, tf_buffer *out_graph, tf_status *);
  void (*destroy)(void *);
} tf_optimizer;

typedef struct tf_optimizer_registration {
  size_t size_of;
  void *reserved;
  int32_t major, minor, patch;
  const char *device_type;
  tf_optimizer_passes *passes;
  tf_optimizer *optimizer;
} tf_optimizer_registration;

/* ---- profilers ---- */

typedef struct tf_profiler {
  size_t size_of;
  void *reserved;
  const char *device_type;
} tf_profiler;

typedef struct tf_profiler_functions {
  size_t size_of;
  void *reserved;
  void (*start)(const tf_profiler *, tf_status *);
  void (*stop)(const tf_profiler *, tf_status *);
  /* Without a buffer the size is wanted. */
  void (*collect)(const tf_profiler *, uint8_t *buffer, size_t *size, tf_status *);
} tf_profiler_functions;

typedef struct tf_profiler_registration {
  size_t size_of;
  void *reserved;
  int32_t major, minor, patch;
  tf_profiler *profiler;
  tf_profiler_functions *functions;
  void (*destroy_profiler)(tf_profiler *);
  void (*destroy_functions)(tf_profiler_functions *);
} tf_profiler_registration;

static_assert(TF_STRUCT_SIZE(tf_profiler_registration, destroy_functions) == 64, "the registration of 2.19");

/* ---- functions of TensorFlow ---- */

typedef void *(*tf_create_kernel)(tf_construction *);
typedef void (*tf_compute)(void *, tf_context *);
typedef void (*tf_copy_tensor)(tf_context *, tf_tensor *source, tf_tensor *target);

#define SYMBOL(result, name, arguments) result(*name) arguments;
typedef struct tf_symbols {
#include "eager.def"
#include "symbols.def"
} tf_symbols;
#undef SYMBOL
extern tf_symbols tf;

/* Fills the table. False: the process has no TensorFlow of the tested version, and `text` tells why. */
bool tf_resolve(size_t bytes, char *text);
/* True after tf.config.experimental.enable_op_determinism(). */
bool tf_is_deterministic(void);

#endif
