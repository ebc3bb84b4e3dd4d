/* buffer.c: buffers: a tensor that owns its buffer alone or shares it with others, since nobody writes to either.
 *
 * Tensors fill their buffers, in the order of their layout. The struct lives until the client destroys the handle;
 * `holds` keeps the memory.
 */
#include <stdlib.h>

#include "plugin.h"

enum { FREE_MAX = 1024 };

/* Free structs: the results of a program are created and destroyed together, and malloc is slow with many equal blocks.
 * A thread takes the whole list to use it. Each has the number of structs from it on. */
static _Atomic(pjrt_buffer *) free_structs;

/* Makes `list` the list, and frees one that another thread has made meanwhile. */
static void put_list(pjrt_buffer *list) {
  pjrt_buffer *other = atomic_exchange(&free_structs, list);
  while (other != NULL) {
    pjrt_buffer *next = other->next;
    free(other);
    other = next;
  }
}

static pjrt_buffer *take_struct(void) {
  pjrt_buffer *first = atomic_exchange(&free_structs, NULL);
  if (first == NULL) {
    return malloc(sizeof *first);
  }
  put_list(first->next);
  return first;
}

static void return_struct(pjrt_buffer *buffer) {
  buffer->next = atomic_exchange(&free_structs, NULL);
  buffer->free_count = 1 + (buffer->next != NULL ? buffer->next->free_count : 0);
  if (buffer->free_count > FREE_MAX) {
    put_list(buffer->next);
    free(buffer);
  } else {
    put_list(buffer);
  }
}

pjrt_buffer *hrj_buffer_create(pjrt_device *device, pjrt_memory *memory, pjrt_type type,
                               const pjrt_memory_layout *layout, const hr_tensor *tensor) {
  pjrt_buffer *buffer = take_struct();
  if (buffer != NULL) {
    buffer->device = device, buffer->memory = memory != NULL ? memory : &device->memories[0];
    buffer->type = type, buffer->tensor = *tensor, buffer->layout = layout;
    atomic_init(&buffer->holds, 1);
    atomic_init(&buffer->is_deleted, false);
    buffer->is_of_host = buffer->is_borrowed = false;
    atomic_init(&buffer->late, NULL);
  }
  return buffer;
}

bool hrj_buffer_hold(pjrt_buffer *buffer) {
  if (atomic_load(&buffer->is_deleted)) {
    return false;
  }
  int holds = atomic_load(&buffer->holds);
  while (holds > 0 && !atomic_compare_exchange_weak(&buffer->holds, &holds, holds + 1)) {
  }
  if (holds > 0 && atomic_load_explicit(&buffer->late, memory_order_relaxed) != NULL) {
    hrj_late_expect(buffer);
  }
  return holds > 0;
}

void hrj_buffer_drop(pjrt_buffer *buffer) {
  if (atomic_fetch_sub(&buffer->holds, 1) == 1) {
    hr_buffer_release(buffer->tensor.buffer);
  }
}

void hrj_buffer_return(pjrt_buffer *buffer) {
  pjrt_device *device = buffer->device;
  if (buffer->is_borrowed && !atomic_load(&device->has_callbacks) &&
      hr_buffer_status(device->stream, buffer->tensor.buffer, NULL) == HR_BUFFER_PENDING) {
    hrj_device_settle(device);
  }
}

bool hrj_buffer_delete(pjrt_buffer *buffer) {
  if (atomic_exchange(&buffer->is_deleted, true)) {
    return false;
  }
  hrj_buffer_return(buffer);
  hrj_buffer_drop(buffer);
  return true;
}

hr_status hrj_buffer_deleted(const pjrt_buffer *buffer, const char *call) {
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: the buffer (%s, %d dims) has been deleted or donated", call,
                        hrj_type_name(buffer->type), buffer->tensor.rank);
}

size_t hrj_buffer_bytes(const pjrt_buffer *buffer) {
  return (size_t)hr_tensor_count(&buffer->tensor) * hr_dtype_size(buffer->tensor.dtype);
}

hr_status hrj_tensor_make(pjrt_type type, const int64_t *dims, size_t rank, const pjrt_memory_layout *layout,
                          hr_tensor *out_tensor) {
  hr_tensor tensor = {.dtype = hrj_dtype_of(type), .rank = (int)rank};
  if (tensor.dtype == HR_DTYPE_NONE) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, HRJ_PLATFORM ": there are no buffers of type %s (%d)",
                          hrj_type_name(type), (int)type);
  }
  if (rank > HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": a buffer of %zu dims, expected at most %d", rank,
                          HR_RANK_MAX);
  }
  int64_t bytes = (int64_t)hr_dtype_size(tensor.dtype);
  for (int d = (int)rank - 1; d >= 0; --d) {
    if (dims[d] < 0 || __builtin_mul_overflow(bytes, dims[d] > 0 ? dims[d] : 1, &bytes)) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                            HRJ_PLATFORM ": dim %d of a buffer is %lld, too many or negative", d, (long long)dims[d]);
    }
    tensor.dims[d] = dims[d];
  }
  hrj_layout_strides(layout != NULL ? layout : hrj_layout_row_major((int)rank), dims, 1, tensor.strides);
  *out_tensor = tensor;
  return HR_OK;
}

hr_status hrj_buffer_address(pjrt_buffer *buffer, void **out_address) {
  return hr_stream_address(buffer->device->stream, buffer->tensor.buffer, out_address);
}

/* ---- the table ---- */

pjrt_error *hrj_Buffer_Destroy(pjrt_args_self *args) {
  pjrt_buffer *buffer = args->self;
  if (buffer != NULL) {
    hrj_buffer_delete(buffer);
    hrj_late_forget(buffer);
    return_struct(buffer);
  }
  return NULL;
}

pjrt_error *hrj_Buffer_Delete(pjrt_args_self *args) {
  hrj_buffer_delete(args->self);
  return NULL;
}

pjrt_error *hrj_Buffer_IsDeleted(pjrt_args_flag *args) {
  args->flag = atomic_load(&((pjrt_buffer *)args->self)->is_deleted);
  return NULL;
}

pjrt_error *hrj_Buffer_ElementType(pjrt_args_int *args) {
  args->number = (int)((pjrt_buffer *)args->self)->type;
  return NULL;
}

pjrt_error *hrj_Buffer_Dimensions(pjrt_args_list *args) {
  pjrt_buffer *buffer = args->self;
  args->list = buffer->tensor.dims, args->count = (size_t)buffer->tensor.rank;
  return NULL;
}

pjrt_error *hrj_Buffer_UnpaddedDimensions(pjrt_args_list *args) {
  return hrj_Buffer_Dimensions(args);
}

pjrt_error *hrj_Buffer_DynamicDimensionIndices(pjrt_args_list *args) {
  args->list = NULL, args->count = 0;
  return NULL;
}

pjrt_error *hrj_Buffer_GetMemoryLayout(pjrt_args_layout *args) {
  const pjrt_memory_layout *layout = args->buffer->layout;
  args->layout = (pjrt_layout){.struct_size = sizeof args->layout, .kind = PJRT_LAYOUT_TILED};
  args->layout.of.tiled.struct_size = sizeof args->layout.of.tiled;
  args->layout.of.tiled.minor_to_major = layout->minor_to_major;
  args->layout.of.tiled.rank = (size_t)layout->rank;
  return NULL;
}

pjrt_error *hrj_Buffer_OnDeviceSizeInBytes(pjrt_args_size *args) {
  args->size = (int64_t)hrj_buffer_bytes(args->self);
  return NULL;
}

pjrt_error *hrj_Buffer_Device(pjrt_args_pointer *args) {
  args->pointer = ((pjrt_buffer *)args->self)->device;
  return NULL;
}

pjrt_error *hrj_Buffer_Memory(pjrt_args_pointer *args) {
  args->pointer = ((pjrt_buffer *)args->self)->memory;
  return NULL;
}

pjrt_error *hrj_Buffer_IsOnCpu(pjrt_args_flag *args) {
  args->flag = ((pjrt_buffer *)args->self)->device->is_host;
  return NULL;
}

pjrt_error *hrj_Buffer_ReadyEvent(pjrt_args_pointer *args) {
  pjrt_buffer *buffer = args->self;
  if (!hrj_buffer_hold(buffer)) {
    return hrj_error(hrj_buffer_deleted(buffer, "ready event"));
  }
  pjrt_event *event = hrj_event_of_buffer(buffer);
  hrj_buffer_drop(buffer);
  if (event == NULL) {
    return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for an event");
  }
  args->pointer = event;
  return NULL;
}

/* ---- addresses: valid while an external reference, or the buffer, is there ---- */

pjrt_error *hrj_Buffer_IncreaseExternalReferenceCount(pjrt_args_self *args) {
  return hrj_buffer_hold(args->self) ? NULL : hrj_error(hrj_buffer_deleted(args->self, "external reference"));
}

pjrt_error *hrj_Buffer_DecreaseExternalReferenceCount(pjrt_args_self *args) {
  pjrt_buffer *buffer = args->self;
  if (atomic_load(&buffer->holds) <= (atomic_load(&buffer->is_deleted) ? 0 : 1)) {
    return hrj_error_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": the buffer has no external reference");
  }
  hrj_buffer_drop(buffer);
  return NULL;
}

/* An external reference may outlive the buffer, so that a deleted one with holds still has an address. */
pjrt_error *hrj_Buffer_OpaqueDeviceMemoryDataPointer(pjrt_args_pointer *args) {
  pjrt_buffer *buffer = args->self;
  int holds = atomic_load(&buffer->holds);
  if (holds == 0) {
    return hrj_error(hrj_buffer_deleted(buffer, "address"));
  }
  hrj_late_expect(buffer);
  HRJ_RETURN_IF_ERROR(hrj_buffer_address(buffer, &args->pointer));
  return NULL;
}

pjrt_error *hrj_Buffer_UnsafePointer(pjrt_args_pointer *args) {
  return hrj_Buffer_OpaqueDeviceMemoryDataPointer(args);
}

/* ---- buffers of buffers ---- */

/* A buffer with the same memory. */
static pjrt_error *share(pjrt_buffer *buffer, pjrt_memory *memory, pjrt_type type, const pjrt_memory_layout *layout,
                         const hr_tensor *tensor, pjrt_buffer **out_buffer) {
  pjrt_buffer *made = hrj_buffer_create(buffer->device, memory, type, layout, tensor);
  if (made == NULL) {
    return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a buffer");
  }
  hr_buffer_retain(made->tensor.buffer);
  *out_buffer = made;
  return NULL;
}

static pjrt_error *copy_between(pjrt_buffer *buffer, pjrt_memory *memory, pjrt_buffer **out_buffer) {
  pjrt_device *target = memory->device;
  hr_tensor tensor = buffer->tensor;
  HRJ_RETURN_IF_ERROR(hr_buffer_create(target->device, hrj_buffer_bytes(buffer), &tensor.buffer));
  hr_tensor target_bytes = hrj_layout_stored(buffer->layout, &tensor, NULL, NULL);
  hr_tensor bytes = hrj_layout_stored(buffer->layout, &buffer->tensor, NULL, NULL);
  hr_view to = hr_tensor_view(&target_bytes), from = hr_tensor_view(&bytes);
  hr_status status = hr_stream_write_from(target->stream, &to, buffer->device->stream, &from);
  pjrt_buffer *made = status == HR_OK ? hrj_buffer_create(target, memory, buffer->type, buffer->layout, &tensor) : NULL;
  if (made == NULL) {
    hr_buffer_release(tensor.buffer);
    return status != HR_OK ? hrj_error(status)
                           : hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a buffer");
  }
  *out_buffer = made;
  return NULL;
}

static pjrt_error *copy_to(pjrt_args_copy *args, pjrt_memory *target) {
  pjrt_buffer *buffer = args->buffer;
  if (!hrj_buffer_hold(buffer)) {
    return hrj_error(hrj_buffer_deleted(buffer, "copy"));
  }
  pjrt_error *error = target->device == buffer->device
                          ? share(buffer, target, buffer->type, buffer->layout, &buffer->tensor, &args->copy)
                          : copy_between(buffer, target, &args->copy);
  hrj_buffer_drop(buffer);
  return error;
}

pjrt_error *hrj_Buffer_CopyToDevice(pjrt_args_copy *args) {
  return copy_to(args, &((pjrt_device *)args->target)->memories[0]);
}

pjrt_error *hrj_Buffer_CopyToMemory(pjrt_args_copy *args) {
  return copy_to(args, args->target);
}

pjrt_error *hrj_Buffer_Bitcast(pjrt_args_bitcast *args) {
  pjrt_buffer *buffer = args->buffer;
  const pjrt_memory_layout *layout;
  hr_tensor tensor;
  HRJ_RETURN_IF_ERROR(hrj_layout_read(args->layout, args->rank, &layout));
  HRJ_RETURN_IF_ERROR(hrj_tensor_make(args->type, args->dims, args->rank, layout, &tensor));
  size_t bytes = (size_t)hr_tensor_count(&tensor) * hr_dtype_size(tensor.dtype);
  if (bytes != hrj_buffer_bytes(buffer)) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": bitcast: %zu bytes, the buffer has %zu", bytes,
                          hrj_buffer_bytes(buffer));
  }
  if (!hrj_buffer_hold(buffer)) {
    return hrj_error(hrj_buffer_deleted(buffer, "bitcast"));
  }
  tensor.buffer = buffer->tensor.buffer;
  pjrt_error *error = share(buffer, buffer->memory, args->type, layout, &tensor, &args->out);
  hrj_buffer_drop(buffer);
  return error;
}
