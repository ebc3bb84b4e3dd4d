/* from_host.c: buffers from memory of the host.
 *
 * If the device's memory is the host's, many dense elements are used in place when the caller allows it, and others are
 * copied once; nothing is recorded, and the buffer is ready at once. Other devices get them by a recorded copy.
 *
 * JAX passes arrays of NumPy to programs in this way, too, and its programs write to them after the call. So the end of
 * such a buffer, which comes with the call's, waits for its work (hrj_buffer_return).
 */
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

enum { ALIGNMENT = 64, SMALL_BYTES = 1 << 16 }; /* a copy of fewer bytes costs less than a wait */

static pjrt_error *no_memory(size_t bytes) {
  return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a buffer of %zu bytes", bytes);
}

/* Byte strides of the source's dims; true if they are those of the tensor's dense elements. */
static bool list_strides(const pjrt_args_from_host *args, const hr_tensor *tensor, int64_t *out_strides) {
  int64_t size = (int64_t)hr_dtype_size(tensor->dtype);
  bool is_dense = true;
  hrj_layout_strides(hrj_layout_row_major(tensor->rank), tensor->dims, size, out_strides);
  for (int d = 0; d < tensor->rank; ++d) {
    int64_t dense = tensor->strides[d] * size;
    if (args->byte_strides != NULL && args->stride_count == args->rank) {
      out_strides[d] = args->byte_strides[d];
    }
    is_dense &= out_strides[d] == dense || tensor->dims[d] == 1;
  }
  return is_dense || hr_tensor_count(tensor) == 0;
}

/* The bits of integers that fill their byte in part, else 0. */
static int narrow_bits(pjrt_type type) {
  return type == PJRT_TYPE_S4 || type == PJRT_TYPE_U4 || type == PJRT_TYPE_F4E2M1FN ? 4
         : type == PJRT_TYPE_S2 || type == PJRT_TYPE_U2                             ? 2
                                                                                    : 0;
}

/* Dense, row-major elements. Integers of 2 and 4 bits become whole bytes: the host's other bits have no meaning. */
static void pack(pjrt_type type, const void *data, const hr_tensor *tensor, const int64_t *strides, void *target) {
  int bits = narrow_bits(type);
  hrj_strided_pack(target, data, tensor, strides);
  int64_t count = bits > 0 ? hr_tensor_count(tensor) : 0;
  unsigned mask = (1u << bits) - 1, sign = tensor->dtype == HR_DTYPE_I8 ? 1u << bits >> 1 : 0;
  for (uint8_t *at = target, *end = at + count; at < end; ++at) {
    *at = (uint8_t)(((*at & mask) ^ sign) - sign);
  }
}

void hrj_host_pack(pjrt_type type, const void *data, const hr_tensor *tensor, const int64_t *byte_strides,
                   const pjrt_memory_layout *layout, void *target) {
  int64_t strides[HR_RANK_MAX];
  hr_tensor like = *tensor;
  hrj_layout_strides(layout, tensor->dims, 1, like.strides);
  const hr_tensor stored = hrj_layout_stored(layout, &like, byte_strides, strides);
  pack(type, data, &stored, strides, target);
}

/* A copy that a buffer owns, counted in the device's statistics. */
typedef struct host_copy {
  pjrt_device *device;
  long long bytes;
  _Alignas(ALIGNMENT) char elements[];
} host_copy;

static void free_copy(void *arg) {
  host_copy *copy = arg;
  pjrt_client *client = copy->device->client;
  atomic_fetch_sub(&copy->device->host_bytes, copy->bytes);
  free(copy);
  hrj_client_release(client);
}

static host_copy *make_copy(pjrt_device *device, size_t bytes) {
  size_t size = (sizeof(host_copy) + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  host_copy *copy = size > bytes ? aligned_alloc(ALIGNMENT, size) : NULL;
  if (copy != NULL) {
    copy->device = device, copy->bytes = (long long)bytes;
    hrj_client_retain(device->client);
    long long now = atomic_fetch_add(&device->host_bytes, copy->bytes) + copy->bytes;
    long long peak = atomic_load(&device->host_bytes_peak);
    while (now > peak && !atomic_compare_exchange_weak(&device->host_bytes_peak, &peak, now)) {
    }
  }
  return copy;
}

static pjrt_error *copy_to_host_device(const pjrt_args_from_host *args, pjrt_device *device, const int64_t *strides,
                                       hr_tensor *tensor) {
  size_t bytes = (size_t)hr_tensor_count(tensor) * hr_dtype_size(tensor->dtype);
  host_copy *copy = make_copy(device, bytes);
  if (copy == NULL) {
    return no_memory(bytes);
  }
  pack(args->type, args->data, tensor, strides, copy->elements);
  hr_status status = hr_buffer_adopt(device->device, bytes, copy->elements, free_copy, copy, &tensor->buffer);
  if (status != HR_OK) {
    free_copy(copy);
    return hrj_error(status);
  }
  hr_buffer_set_constant(tensor->buffer);
  return NULL;
}

static pjrt_error *write_to_device(const pjrt_args_from_host *args, pjrt_device *device, const int64_t *strides,
                                   bool is_dense, hr_tensor *tensor) {
  size_t bytes = (size_t)hr_tensor_count(tensor) * hr_dtype_size(tensor->dtype);
  void *packed = is_dense ? NULL : malloc(bytes);
  if (!is_dense && packed == NULL) {
    return no_memory(bytes);
  }
  if (!is_dense) {
    pack(args->type, args->data, tensor, strides, packed);
  }
  hr_status status = hr_buffer_create(device->device, bytes, &tensor->buffer);
  if (status == HR_OK) {
    hr_view view = hr_tensor_view(tensor);
    status = hr_stream_write(device->stream, &view, is_dense ? args->data : packed);
    if (status != HR_OK) {
      hr_buffer_release(tensor->buffer);
    }
  }
  free(packed);
  return hrj_error(status);
}

static void set_event(void *arg) {
  hrj_event_set(arg, HR_OK);
  hrj_event_release(arg);
}

/* Uses the caller's memory until the buffer is gone. False: it has to be copied. */
static bool use_in_place(pjrt_device *device, void *data, hr_tensor *tensor, pjrt_event **out_done) {
  size_t bytes = (size_t)hr_tensor_count(tensor) * hr_dtype_size(tensor->dtype);
  if (bytes < SMALL_BYTES || (uintptr_t)data % ALIGNMENT != 0 || atomic_load(&device->has_callbacks)) {
    return false;
  }
  pjrt_event *event = hrj_event_create();
  if (event == NULL) {
    return false;
  }
  hrj_event_retain(event); /* one reference for the buffer, one for the caller */
  hr_status status = hr_buffer_adopt(device->device, bytes, data, set_event, event, &tensor->buffer);
  if (status != HR_OK) {
    hr_status_ignore(status);
    hrj_event_release(event);
    hrj_event_release(event);
    return false;
  }
  hr_buffer_set_constant(tensor->buffer);
  *out_done = event;
  return true;
}

/* The memory of a row-major tensor. */
static pjrt_error *fill(pjrt_args_from_host *args, pjrt_device *device, const int64_t *strides, bool is_dense,
                        hr_tensor *tensor, pjrt_event **out_done) {
  if (hr_tensor_count(tensor) == 0) {
    return hrj_error(hr_buffer_create(device->device, 0, &tensor->buffer));
  }
  if (!device->is_host) {
    return write_to_device(args, device, strides, is_dense, tensor);
  }
  bool may_use = args->semantics == PJRT_HOST_ZERO_COPY || args->semantics == PJRT_HOST_MUTABLE_ZERO_COPY;
  if (may_use && is_dense && use_in_place(device, (void *)args->data, tensor, out_done)) {
    return NULL;
  }
  return copy_to_host_device(args, device, strides, tensor);
}

pjrt_error *hrj_Client_BufferFromHostBuffer(pjrt_args_from_host *args) {
  pjrt_device *device = hrj_device_of(args->client, args->device, args->memory);
  const pjrt_memory_layout *layout;
  hr_tensor tensor;
  HRJ_RETURN_IF_ERROR(hrj_layout_read(args->layout, args->rank, &layout));
  HRJ_RETURN_IF_ERROR(hrj_tensor_make(args->type, args->dims, args->rank, layout, &tensor));
  int64_t strides[HR_RANK_MAX], stored_strides[HR_RANK_MAX];
  bool is_dense = list_strides(args, &tensor, strides) && narrow_bits(args->type) == 0;
  hr_tensor stored = hrj_layout_stored(layout, &tensor, strides, stored_strides);
  pjrt_event *done = hrj_event_done();
  pjrt_error *error = fill(args, device, stored_strides, is_dense, &stored, &done);
  if (error != NULL) {
    return error;
  }
  tensor.buffer = stored.buffer;
  pjrt_buffer *buffer = hrj_buffer_create(device, args->memory, args->type, layout, &tensor);
  if (buffer == NULL) {
    hr_buffer_release(tensor.buffer);
    hrj_event_release(done);
    return no_memory(sizeof *buffer);
  }
  buffer->is_of_host = device->is_host;
  buffer->is_borrowed = done != hrj_event_done();
  args->buffer = buffer, args->done = done;
  return NULL;
}

/* ---- memory of others, and none ---- */

/* What a client calls when the buffer is gone. */
typedef struct foreign_memory {
  void (*on_delete)(void *address, void *arg);
  void *address, *arg;
} foreign_memory;

static void release_foreign(void *arg) {
  foreign_memory *memory = arg;
  if (memory->on_delete != NULL) {
    memory->on_delete(memory->address, memory->arg);
  }
  free(memory);
}

/* Memory is used as it is, at any address that the core reads. */
pjrt_error *hrj_Client_CreateViewOfDeviceBuffer(pjrt_args_view *args) {
  pjrt_memory *in = PJRT_HAS(args, memory) ? args->memory : NULL;
  pjrt_device *device = hrj_device_of(args->client, args->device, in);
  const pjrt_memory_layout *layout;
  HRJ_RETURN_IF_ERROR(hrj_layout_read(args->layout, args->rank, &layout));
  hr_tensor tensor;
  HRJ_RETURN_IF_ERROR(hrj_tensor_make(args->type, args->dims, args->rank, layout, &tensor));
  int64_t count = hr_tensor_count(&tensor);
  if (count > 0 && args->address == NULL) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": no address of %lld elements", (long long)count);
  }
  foreign_memory *memory = malloc(sizeof *memory);
  pjrt_buffer *buffer = hrj_buffer_create(device, in, args->type, layout, &tensor);
  if (memory == NULL || buffer == NULL) {
    free(memory);
    free(buffer);
    return no_memory(sizeof *memory);
  }
  *memory = (foreign_memory){.on_delete = args->on_delete, .address = args->address, .arg = args->arg};
  hr_status status = count == 0 ? hr_buffer_create(device->device, 0, &buffer->tensor.buffer)
                                : hr_buffer_adopt_elements(device->device, tensor.dtype, count, args->address,
                                                           release_foreign, memory, &buffer->tensor.buffer);
  if (status != HR_OK) {
    free(memory);
    free(buffer);
    return hrj_error(status);
  }
  if (count == 0) {
    release_foreign(memory);
  }
  buffer->is_borrowed = device->is_host && count > 0;
  args->buffer = buffer;
  return NULL;
}

pjrt_error *hrj_Client_CreateUninitializedBuffer(pjrt_args_uninitialized *args) {
  pjrt_device *device = hrj_device_of(args->client, args->device, args->memory);
  const pjrt_memory_layout *layout;
  hr_tensor tensor;
  HRJ_RETURN_IF_ERROR(hrj_layout_read(args->layout, args->rank, &layout));
  HRJ_RETURN_IF_ERROR(hrj_tensor_make(args->type, args->dims, args->rank, layout, &tensor));
  size_t bytes = (size_t)hr_tensor_count(&tensor) * hr_dtype_size(tensor.dtype);
  HRJ_RETURN_IF_ERROR(hr_buffer_create(device->device, bytes, &tensor.buffer));
  pjrt_buffer *buffer = hrj_buffer_create(device, args->memory, args->type, layout, &tensor);
  if (buffer == NULL) {
    hr_buffer_release(tensor.buffer);
    return no_memory(bytes);
  }
  args->buffer = buffer;
  return NULL;
}

/* ---- buffers that have failed ---- */

static hr_status fail(const hr_function_call *call) {
  return hr_status_clone(call->arg);
}

static void free_status(void *arg) {
  hr_status_free(arg);
}

hr_status hrj_tensor_fail(pjrt_device *device, const hr_tensor *tensor, hr_status failure) {
  const hr_function_spec spec = {.name = "failed buffer", .run = fail, .arg = failure, .release = free_status};
  const hr_view view = hr_tensor_view(tensor);
  return hr_function_record(device->stream, &spec, 0, NULL, 1, &view);
}

pjrt_error *hrj_Client_CreateErrorBuffer(pjrt_args_error_buffer *args) {
  pjrt_args_uninitialized made = {.client = args->client,
                                  .dims = args->dims,
                                  .rank = args->rank,
                                  .type = args->type,
                                  .layout = args->layout,
                                  .memory = args->memory};
  pjrt_error *error = hrj_Client_CreateUninitializedBuffer(&made);
  if (error != NULL) {
    return error;
  }
  hr_status status =
      hrj_tensor_fail(made.buffer->device, &made.buffer->tensor,
                      hr_status_make((hr_status_code)args->code, "%.*s", (int)args->message_size, args->message));
  if (status != HR_OK) {
    hrj_Buffer_Destroy(&(pjrt_args_self){.self = made.buffer});
    return hrj_error(status);
  }
  args->buffer = made.buffer;
  return NULL;
}
