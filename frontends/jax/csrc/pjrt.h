/* pjrt.h: own declarations of the PJRT C ABI, version 0.114, as a plug-in sees it.
 *
 * The ABI is a table of functions. Each has one argument, a struct that begins with its size and a list of extensions,
 * followed by inputs and outputs. Structs grow at their end alone: a caller that is older passes a smaller size, and
 * fields beyond it must not be touched. All versions with the major number 0 have this order.
 *
 * Structs of the same layout share one declaration here. Fields that this plug-in does not use are declared as well,
 * since they give the others their places. The static assertions hold the sizes that clients of 0.112 and 0.114 pass.
 */
#ifndef HEADRACE_JAX_PJRT_H_
#define HEADRACE_JAX_PJRT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJRT_MAJOR = 0, PJRT_MINOR = 114 };

#define PJRT_HEAD     \
  size_t struct_size; \
  void *extensions
/* True if the caller's struct has the field. */
#define PJRT_HAS(args, field) ((args)->struct_size >= offsetof(__typeof__(*(args)), field) + sizeof((args)->field))

/* The plug-in's own objects: handles for the caller. */
typedef struct pjrt_error pjrt_error;
typedef struct pjrt_event pjrt_event;
typedef struct pjrt_client pjrt_client;
typedef struct pjrt_device pjrt_device; /* also its description */
typedef struct pjrt_memory pjrt_memory;
typedef struct pjrt_executable pjrt_executable; /* also a loaded one */
typedef struct pjrt_buffer pjrt_buffer;
typedef struct pjrt_transfers pjrt_transfers; /* a manager of asynchronous transfers */
typedef struct hrj_late hrj_late;             /* the promise of a buffer's contents */

/* Numbers are hr_status_code's. */
typedef int pjrt_error_code;

typedef enum pjrt_type {
  PJRT_TYPE_INVALID = 0,
  PJRT_TYPE_PRED,
  PJRT_TYPE_S8,
  PJRT_TYPE_S16,
  PJRT_TYPE_S32,
  PJRT_TYPE_S64,
  PJRT_TYPE_U8,
  PJRT_TYPE_U16,
  PJRT_TYPE_U32,
  PJRT_TYPE_U64,
  PJRT_TYPE_F16,
  PJRT_TYPE_F32,
  PJRT_TYPE_F64,
  PJRT_TYPE_BF16,
  PJRT_TYPE_C64,
  PJRT_TYPE_C128,
  PJRT_TYPE_F8E5M2,
  PJRT_TYPE_F8E4M3FN,
  PJRT_TYPE_F8E4M3B11FNUZ,
  PJRT_TYPE_F8E5M2FNUZ,
  PJRT_TYPE_F8E4M3FNUZ,
  PJRT_TYPE_S4, /* on the host, numbers of less than 8 bits have a byte each */
  PJRT_TYPE_U4,
  PJRT_TYPE_TOKEN,
  PJRT_TYPE_S2,
  PJRT_TYPE_U2,
  PJRT_TYPE_F8E4M3,
  PJRT_TYPE_F8E3M4,
  PJRT_TYPE_F8E8M0FNU,
  PJRT_TYPE_F4E2M1FN,
  PJRT_TYPE_S1,
  PJRT_TYPE_U1,
  PJRT_TYPE_COUNT
} pjrt_type;

typedef enum pjrt_value_kind {
  PJRT_VALUE_STRING = 0,
  PJRT_VALUE_INT64,
  PJRT_VALUE_INT64_LIST,
  PJRT_VALUE_FLOAT,
  PJRT_VALUE_BOOL
} pjrt_value_kind;

typedef struct pjrt_named_value {
  PJRT_HEAD;
  const char *name;
  size_t name_size;
  pjrt_value_kind kind;
  union {
    const char *string;
    int64_t integer;
    const int64_t *integers;
    float real;
    bool flag;
  } value;
  size_t value_size; /* of strings and lists; otherwise 1 */
} pjrt_named_value;

/* ---- structs that several functions share ---- */

typedef struct pjrt_args {
  PJRT_HEAD;
} pjrt_args;
typedef struct pjrt_args_self {
  PJRT_HEAD;
  void *self;
} pjrt_args_self;
typedef struct pjrt_args_text {
  PJRT_HEAD;
  const void *self;
  const char *text; /* out, as all below `self` */
  size_t text_size;
} pjrt_args_text;
typedef struct pjrt_args_flag {
  PJRT_HEAD;
  void *self;
  bool flag;
} pjrt_args_flag;
typedef struct pjrt_args_int {
  PJRT_HEAD;
  void *self;
  int number;
} pjrt_args_int;
typedef struct pjrt_args_size {
  PJRT_HEAD;
  void *self;
  int64_t size; /* int64_t or size_t */
} pjrt_args_size;
typedef struct pjrt_args_pointer {
  PJRT_HEAD;
  void *self;
  void *pointer;
} pjrt_args_pointer;
typedef struct pjrt_args_list {
  PJRT_HEAD;
  void *self;
  const void *list;
  size_t count;
} pjrt_args_list;
typedef struct pjrt_args_lookup {
  PJRT_HEAD;
  pjrt_client *client;
  int id;
  pjrt_device *device;
} pjrt_args_lookup;

/* ---- errors ---- */

typedef void (*pjrt_payload_visitor)(const char *key, size_t key_size, const char *value, size_t value_size, void *arg);

typedef struct pjrt_error_table {
  size_t struct_size;
  size_t instance_size;
  void *extensions;
  void (*destroy)(pjrt_error *error);
  void (*message)(const pjrt_error *error, const char **out_text, size_t *out_size);
  pjrt_error_code (*get_code)(const pjrt_error *error);
  void (*for_each_payload)(const pjrt_error *error, pjrt_payload_visitor visitor, void *arg);
} pjrt_error_table;

typedef struct pjrt_args_payload {
  PJRT_HEAD;
  const pjrt_error *error;
  pjrt_payload_visitor visitor;
  void *arg;
} pjrt_args_payload;

/* ---- plug-in, events ---- */

typedef struct pjrt_args_attributes {
  PJRT_HEAD;
  const pjrt_named_value *list;
  size_t count;
} pjrt_args_attributes;

/* The error, or NULL, is the callback's. */
typedef void (*pjrt_ready_callback)(pjrt_error *error, void *arg);
typedef struct pjrt_args_on_ready {
  PJRT_HEAD;
  pjrt_event *event;
  pjrt_ready_callback callback;
  void *arg;
} pjrt_args_on_ready;
typedef struct pjrt_args_event_set {
  PJRT_HEAD;
  pjrt_event *event;
  pjrt_error_code code;
  const char *message;
  size_t message_size;
} pjrt_args_event_set;

/* ---- clients, devices, memories ---- */

typedef struct pjrt_args_client_create {
  PJRT_HEAD;
  const pjrt_named_value *options;
  size_t option_count;
  void *key_value_functions[4]; /* of stores that processes share */
  pjrt_client *client;
  void *try_get_functions[2];
} pjrt_args_client_create;
typedef struct pjrt_args_assignment {
  PJRT_HEAD;
  pjrt_client *client;
  int replicas, partitions;
  size_t count;
  int *devices;
} pjrt_args_assignment;
typedef struct pjrt_args_description_attributes {
  PJRT_HEAD;
  pjrt_device *device;
  size_t count;
  const pjrt_named_value *list;
} pjrt_args_description_attributes;
typedef struct pjrt_args_device_attributes {
  PJRT_HEAD;
  pjrt_device *device;
  const pjrt_named_value *list;
  size_t count;
  void *owned;
  void (*free)(void *owned);
} pjrt_args_device_attributes;

typedef struct pjrt_optional_size {
  int64_t size;
  bool is_set;
} pjrt_optional_size;
typedef struct pjrt_args_memory_stats {
  PJRT_HEAD;
  pjrt_device *device;
  int64_t bytes_in_use;
  pjrt_optional_size peak_bytes_in_use, allocation_count, largest_allocation, limit, reserved, peak_reserved;
  pjrt_optional_size reservable_limit, largest_free_block, pool_bytes, peak_pool_bytes, peak_allocated_bytes;
} pjrt_args_memory_stats;

typedef struct pjrt_memory_table {
  size_t struct_size;
  void *extensions;
  size_t instance_size;
  void *(*get_user_data)(pjrt_memory *memory, const void *key);
  void (*set_user_data)(pjrt_memory *memory, const void *key, void *data, void (*free)(void *data));
} pjrt_memory_table;

/* ---- programs ---- */

typedef struct pjrt_program {
  PJRT_HEAD;
  char *code;
  size_t code_size;
  const char *format;
  size_t format_size;
} pjrt_program;
typedef struct pjrt_args_compile {
  PJRT_HEAD;
  pjrt_client *client;
  const pjrt_program *program;
  const char *options;
  size_t options_size;
  pjrt_executable *executable;
} pjrt_args_compile;
/* Bytes, and an object that owns them, with its destructor. */
typedef struct pjrt_args_bytes {
  PJRT_HEAD;
  const void *self;
  const char *bytes;
  size_t bytes_size;
  void *owned;
  void (*free)(void *owned);
} pjrt_args_bytes;
typedef struct pjrt_args_optimized {
  PJRT_HEAD;
  const pjrt_executable *executable;
  pjrt_program *program; /* code NULL: its size is wanted; else it is filled in */
} pjrt_args_optimized;
typedef struct pjrt_args_deserialize {
  PJRT_HEAD;
  pjrt_client *client;
  const char *bytes;
  size_t bytes_size;
  pjrt_executable *executable; /* out */
  const char *options;         /* NULL: those that were serialized */
  size_t options_size;
} pjrt_args_deserialize;
typedef struct pjrt_args_load {
  PJRT_HEAD;
  pjrt_client *client;
  const pjrt_executable *executable;
  const char *options; /* NULL: those of the executable */
  size_t options_size;
  pjrt_executable *loaded;
} pjrt_args_load;
typedef struct pjrt_args_compile_for {
  PJRT_HEAD;
  pjrt_client *topology;
  const pjrt_program *program;
  const char *options;
  size_t options_size;
  pjrt_client *client; /* or NULL */
  pjrt_executable *executable;
} pjrt_args_compile_for;
typedef struct pjrt_args_topology {
  PJRT_HEAD;
  const char *name;
  size_t name_size;
  const pjrt_named_value *options;
  size_t option_count;
  pjrt_client *topology;
} pjrt_args_topology;
typedef struct pjrt_args_topology_bytes {
  PJRT_HEAD;
  const char *bytes;
  size_t bytes_size;
  pjrt_client *topology;
} pjrt_args_topology_bytes;
typedef struct pjrt_logical_id {
  int replica, partition;
} pjrt_logical_id;
typedef struct pjrt_args_dims {
  PJRT_HEAD;
  pjrt_executable *executable;
  size_t count;
  const int64_t *dims; /* of all outputs, one after another */
  const size_t *ranks;
} pjrt_args_dims;
typedef struct pjrt_args_kinds {
  PJRT_HEAD;
  pjrt_executable *executable;
  size_t count;
  const char *const *kinds;
  const size_t *kind_sizes;
} pjrt_args_kinds;
typedef struct pjrt_memory_layout pjrt_memory_layout;
typedef struct pjrt_args_default_layout {
  PJRT_HEAD;
  void *client; /* or a topology */
  pjrt_type type;
  const int64_t *dims;
  size_t rank;
  const pjrt_memory_layout *layout;
} pjrt_args_default_layout;
typedef struct pjrt_args_counted {
  PJRT_HEAD;
  pjrt_executable *executable;
  size_t count;
  const pjrt_memory_layout *const *list;
} pjrt_args_counted;
typedef struct pjrt_args_costs {
  PJRT_HEAD;
  pjrt_executable *executable;
  size_t count;
  const pjrt_named_value *list;
} pjrt_args_costs;
typedef struct pjrt_args_program_memory {
  PJRT_HEAD;
  pjrt_executable *executable;
  int64_t code, arguments, outputs, aliases, temporaries; /* bytes on the device */
  int64_t host_code, host_arguments, host_outputs, host_aliases, host_temporaries;
  int64_t peak, total, total_allocations, indefinite_allocations, peak_unpadded;
} pjrt_args_program_memory;

typedef struct pjrt_execute_options {
  PJRT_HEAD;
  void *send_callbacks, *receive_callbacks;
  size_t send_count, receive_count;
  int launch_id;
  const int64_t *kept_inputs; /* numbers of inputs that are not donated */
  size_t kept_input_count;
  void *context;
  const char *call_location;
  size_t task_count;
  int *task_ids;
  int64_t *incarnation_ids;
  void *slices;
  bool is_major_to_minor;
  void *output_callbacks;
  size_t output_callback_count;
} pjrt_execute_options;
typedef struct pjrt_args_execute {
  PJRT_HEAD;
  pjrt_executable *executable;
  const pjrt_execute_options *options;
  pjrt_buffer *const *const *argument_lists; /* [devices][arguments] */
  size_t device_count, argument_count;
  pjrt_buffer **const *output_lists; /* [devices][outputs], filled in */
  pjrt_event **complete_events;      /* NULL, or [devices], filled in */
  pjrt_device *device;
} pjrt_args_execute;

/* ---- buffers ---- */

typedef enum pjrt_layout_kind { PJRT_LAYOUT_TILED = 0, PJRT_LAYOUT_STRIDES } pjrt_layout_kind;
typedef struct pjrt_layout {
  PJRT_HEAD;
  union {
    struct {
      PJRT_HEAD;
      const int64_t *minor_to_major;
      size_t rank;
      const int64_t *tile_dims;
      const size_t *tile_dim_counts;
      size_t tile_count;
    } tiled;
    struct {
      PJRT_HEAD;
      const int64_t *byte_strides;
      size_t rank;
    } strides;
  } of;
  pjrt_layout_kind kind;
} pjrt_layout;

typedef enum pjrt_host_semantics {
  PJRT_HOST_DURING_CALL = 0,   /* the caller may change its memory after the call */
  PJRT_HOST_UNTIL_TRANSFERRED, /* ... after the event */
  PJRT_HOST_ZERO_COPY,         /* the same; the buffer may use the memory as its own until the event */
  PJRT_HOST_MUTABLE_ZERO_COPY  /* the same, and may write it */
} pjrt_host_semantics;

typedef struct pjrt_args_from_host {
  PJRT_HEAD;
  pjrt_client *client;
  const void *data;
  pjrt_type type;
  const int64_t *dims;
  size_t rank;
  const int64_t *byte_strides; /* NULL: row-major */
  size_t stride_count;
  pjrt_host_semantics semantics;
  pjrt_device *device; /* or NULL */
  pjrt_memory *memory; /* or NULL */
  const pjrt_layout *layout;
  pjrt_event *done; /* out: the caller's memory is no longer used */
  pjrt_buffer *buffer;
} pjrt_args_from_host;
typedef struct pjrt_args_view {
  PJRT_HEAD;
  pjrt_client *client;
  void *address;
  const int64_t *dims;
  size_t rank;
  pjrt_type type;
  const pjrt_layout *layout;
  pjrt_device *device;
  void (*on_delete)(void *address, void *arg);
  void *arg;
  intptr_t stream;
  pjrt_buffer *buffer;
  pjrt_memory *memory;
} pjrt_args_view;
typedef struct pjrt_args_error_buffer {
  PJRT_HEAD;
  pjrt_client *client;
  pjrt_error_code code;
  const char *message;
  size_t message_size;
  const int64_t *dims;
  size_t rank;
  pjrt_type type;
  const pjrt_layout *layout;
  pjrt_memory *memory;
  pjrt_buffer *buffer;
} pjrt_args_error_buffer;
typedef struct pjrt_args_dma {
  PJRT_HEAD;
  pjrt_client *client;
  void *data;
  size_t size; /* of a map */
} pjrt_args_dma;
typedef struct pjrt_args_tracking {
  PJRT_HEAD;
  pjrt_device *device;
  const char *description;
  size_t description_size;
  void *event;
} pjrt_args_tracking;
typedef struct pjrt_args_future {
  size_t struct_size;
  void *data;
  pjrt_error_code code;
  const char *message;
  size_t message_size;
  void *target;
} pjrt_args_future;
/* Shapes of the buffers of a transfer manager. */
typedef struct pjrt_shape {
  PJRT_HEAD;
  const int64_t *dims;
  size_t rank;
  pjrt_type type;
} pjrt_shape;
typedef struct pjrt_args_transfers {
  PJRT_HEAD;
  pjrt_client *client;
  const pjrt_shape *shapes;
  size_t count;
  const pjrt_layout *const *layouts; /* NULL, or of each buffer */
  size_t layout_count;
  pjrt_memory *memory;
  pjrt_transfers *transfers;
} pjrt_args_transfers;
typedef struct pjrt_args_transfer_data {
  PJRT_HEAD;
  pjrt_transfers *transfers;
  int number;
  const void *data;
  int64_t offset, size;
  bool is_last;
  pjrt_event *done;
} pjrt_args_transfer_data;
typedef struct pjrt_args_transfer_literal {
  PJRT_HEAD;
  pjrt_transfers *transfers;
  int number;
  const void *data;
  const int64_t *dims;
  size_t rank;
  pjrt_type type;
  const pjrt_layout *layout; /* of the data */
  pjrt_event *done;
} pjrt_args_transfer_literal;
typedef struct pjrt_args_transfer_buffer {
  PJRT_HEAD;
  pjrt_transfers *transfers;
  int number;
  pjrt_buffer *buffer;
} pjrt_args_transfer_buffer;
typedef struct pjrt_args_transfer_size {
  PJRT_HEAD;
  pjrt_transfers *transfers;
  int number;
  size_t size;
} pjrt_args_transfer_size;
typedef struct pjrt_args_transfer_error {
  PJRT_HEAD;
  pjrt_transfers *transfers;
  int number;
  pjrt_error_code code;
  const char *message;
  size_t message_size;
} pjrt_args_transfer_error;
typedef struct pjrt_args_transfer_metadata {
  PJRT_HEAD;
  pjrt_transfers *transfers;
  const pjrt_named_value *list;
  size_t count;
} pjrt_args_transfer_metadata;
typedef struct pjrt_args_alias {
  PJRT_HEAD;
  pjrt_client *client;
  pjrt_memory *memory;
  const int64_t *dims;
  size_t rank;
  pjrt_type type;
  const pjrt_layout *layout;
  pjrt_buffer *buffer;
  hrj_late *promise;
} pjrt_args_alias;
typedef struct pjrt_args_fulfil {
  PJRT_HEAD;
  pjrt_client *client;
  pjrt_buffer *buffer;
  pjrt_error_code code;
  const char *message;
  size_t message_size;
  hrj_late *promise;
} pjrt_args_fulfil;
typedef struct pjrt_args_dependency {
  size_t struct_size;
  void *data;
  pjrt_error_code code;
  const char *message;
  size_t message_size;
} pjrt_args_dependency;
typedef struct pjrt_args_donate {
  PJRT_HEAD;
  pjrt_buffer *buffer;
  void *data; /* out: to pass to the function */
  void (*ready)(pjrt_args_dependency *args);
  pjrt_buffer *out;
} pjrt_args_donate;
typedef struct pjrt_args_poison {
  PJRT_HEAD;
  pjrt_device *device;
  int launch_id;
  pjrt_error_code code;
  const char *message;
  size_t message_size;
  bool is_poisoned;
} pjrt_args_poison;
typedef struct pjrt_args_raw_future {
  PJRT_HEAD;
  pjrt_buffer *buffer;
  int64_t offset, size;
  pjrt_event *event;
  void *data; /* to pass to the function */
  void (*ready)(pjrt_args_future *args);
} pjrt_args_raw_future;
typedef struct pjrt_args_uninitialized {
  PJRT_HEAD;
  pjrt_client *client;
  const int64_t *dims;
  size_t rank;
  pjrt_type type;
  const pjrt_layout *layout;
  pjrt_device *device;
  pjrt_memory *memory;
  pjrt_buffer *buffer;
} pjrt_args_uninitialized;
typedef struct pjrt_args_to_host {
  PJRT_HEAD;
  pjrt_buffer *buffer;
  const pjrt_layout *layout; /* NULL: row-major */
  void *data;                /* NULL: the size is wanted alone */
  size_t data_size;
  pjrt_event *event;
} pjrt_args_to_host;
typedef struct pjrt_args_raw_to_host {
  PJRT_HEAD;
  pjrt_buffer *buffer;
  void *data;
  int64_t offset, size;
  pjrt_event *event;
} pjrt_args_raw_to_host;
typedef struct pjrt_args_copy {
  PJRT_HEAD;
  pjrt_buffer *buffer;
  void *target; /* a device or a memory */
  pjrt_buffer *copy;
} pjrt_args_copy;
typedef struct pjrt_args_bitcast {
  PJRT_HEAD;
  pjrt_buffer *buffer;
  pjrt_type type;
  const int64_t *dims;
  size_t rank;
  const pjrt_layout *layout;
  pjrt_buffer *out;
} pjrt_args_bitcast;
typedef struct pjrt_args_layout {
  PJRT_HEAD;
  pjrt_buffer *buffer;
  pjrt_layout layout;
} pjrt_args_layout;

/* ---- the table ---- */

typedef void (*pjrt_function)(void);
#define PJRT_PLACE_DONE(name, args) PJRT_ENTRY_##name,
#define PJRT_PLACE_NONE(name) PJRT_ENTRY_##name,
enum {
#define DONE PJRT_PLACE_DONE
#define NONE PJRT_PLACE_NONE
#include "entries.def"
#undef DONE
#undef NONE
  PJRT_ENTRIES
};
typedef struct pjrt_table {
  PJRT_HEAD;
  struct {
    PJRT_HEAD;
    int major, minor;
  } version;
  pjrt_function entries[PJRT_ENTRIES];
} pjrt_table;

_Static_assert(PJRT_ENTRIES == 138 && sizeof(pjrt_table) == 1144, "the table of 0.114");
_Static_assert(PJRT_ENTRY_Buffer_Destroy == 58 && PJRT_ENTRY_Client_Load == 129, "places in the table");
_Static_assert(sizeof(pjrt_args_execute) == 80 && sizeof(pjrt_execute_options) == 144, "as clients of 0.112 pass");
_Static_assert(sizeof(pjrt_args_client_create) == 88, "as clients of 0.112 pass");
_Static_assert(sizeof(pjrt_named_value) == 56 && sizeof(pjrt_args_attributes) == 32, "named values");
_Static_assert(sizeof(pjrt_args_memory_stats) == 32 + 11 * 16, "memory statistics");

#endif
