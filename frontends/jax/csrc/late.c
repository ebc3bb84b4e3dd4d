/* late.c: buffers whose contents come later: from transfers of the host, from another buffer, or after a dependency.
 *
 *   transfer manager   bytes arrive in pieces; the last one, or a failure, completes a buffer
 *   alias              another buffer fulfils it
 *   dependency         a donated buffer, whose use has to wait for a function of the client
 *
 * A buffer that is complete before its first use gets its contents by a recorded write or copy. If it is used before, a
 * function is recorded in its place that waits on the stream's thread: later work of the device waits with it, as in a
 * device's queue. An alias cannot wait this way, since its contents come from later work of the stream: its use fails.
 *
 * Lock order: that of a late buffer before the core's. The function needs the lock of its late buffer alone.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugin.h"

enum { LOOK_NS = 50000000 }; /* between looks for interrupts */

struct hrj_late {
  atomic_int references; /* of the buffer, of who completes it, and of the function */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pjrt_device *device;
  hr_tensor tensor; /* with a reference to its buffer */
  hr_tensor source; /* of a dependency: copied when it is complete; buffer NULL: there is none */
  char *bytes;      /* of transfers; NULL: there are none */
  size_t size;
  bool is_complete, is_expected;
  hr_status failure; /* of a complete one */
};

static pjrt_error *no_memory(void) {
  return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a buffer that comes later");
}

static void release(void *arg) {
  hrj_late *late = arg;
  if (late == NULL || atomic_fetch_sub(&late->references, 1) != 1) {
    return;
  }
  hr_buffer_release(late->tensor.buffer);
  hr_buffer_release(late->source.buffer);
  hr_status_free(late->failure);
  pthread_cond_destroy(&late->changed);
  pthread_mutex_destroy(&late->lock);
  free(late->bytes);
  free(late);
}

static hrj_late *retain(hrj_late *late) {
  atomic_fetch_add(&late->references, 1);
  return late;
}

/* ---- the function that waits ---- */

static void wait_a_little(hrj_late *late) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += LOOK_NS;
  until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
  pthread_cond_timedwait(&late->changed, &late->lock, &until);
}

static hr_status wait_and_fill(const hr_function_call *call) {
  hrj_late *late = call->arg;
  const unsigned interrupts = hrj_interrupt_count();
  pthread_mutex_lock(&late->lock);
  while (!late->is_complete && hrj_interrupt_count() == interrupts) {
    wait_a_little(late);
  }
  hr_status status = !late->is_complete ? hr_status_make(HR_STATUS_CANCELLED, "interrupted before the contents came")
                     : late->failure != HR_OK ? hr_status_clone(late->failure)
                                              : HR_OK;
  pthread_mutex_unlock(&late->lock);
  if (status == HR_OK && late->size > 0) {
    memcpy(call->outputs[0], late->bytes != NULL ? late->bytes : call->inputs[0], late->size);
  }
  return status;
}

/* Records what waits for the contents. The lock is held. */
static hr_status record_wait(hrj_late *late) {
  const bool is_alias = late->bytes == NULL && late->source.buffer == NULL;
  if (is_alias) {
    return hrj_tensor_fail(
        late->device, &late->tensor,
        hr_status_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": a buffer is used before its contents have come"));
  }
  const hr_function_spec spec = {
      .name = "wait for contents", .run = wait_and_fill, .arg = retain(late), .release = release, .is_on_host = true};
  const hr_view output = hr_tensor_view(&late->tensor), input = hr_tensor_view(&late->source);
  return hr_function_record(late->device->stream, &spec, late->source.buffer != NULL, &input, 1, &output);
}

void hrj_late_expect(pjrt_buffer *buffer) {
  hrj_late *late = atomic_exchange(&buffer->late, NULL);
  if (late == NULL) {
    return;
  }
  pthread_mutex_lock(&late->lock);
  if (!late->is_complete && !late->is_expected) {
    late->is_expected = true;
    hr_status_ignore(record_wait(late)); /* the buffer is then undefined, as after a failure */
  }
  pthread_mutex_unlock(&late->lock);
  release(late);
}

void hrj_late_forget(pjrt_buffer *buffer) {
  release(atomic_exchange(&buffer->late, NULL));
}

/* ---- completion ---- */

static hr_status fill(hrj_late *late) {
  const hr_view to = hr_tensor_view(&late->tensor), from = hr_tensor_view(&late->source);
  if (late->size == 0) {
    return HR_OK;
  }
  return late->bytes != NULL ? hr_stream_write(late->device->stream, &to, late->bytes)
                             : hr_stream_record(late->device->stream, HR_OP_COPY, NULL, 1, &from, 1, &to);
}

/* Gives the buffer its contents, or the failure, which it takes over. FAILED_PRECONDITION if it has them. */
static hr_status complete(hrj_late *late, hr_status failure) {
  pthread_mutex_lock(&late->lock);
  hr_status status = HR_OK;
  if (late->is_complete) {
    status = hr_status_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": the buffer has its contents already");
    hr_status_free(failure);
  } else if (late->is_expected) {
    late->failure = failure;
  } else if (atomic_load(&late->references) == 1) { /* the buffer is gone */
    hr_status_free(failure);
  } else {
    status = failure != HR_OK ? hrj_tensor_fail(late->device, &late->tensor, failure) : fill(late);
  }
  late->is_complete = true;
  pthread_cond_broadcast(&late->changed);
  pthread_mutex_unlock(&late->lock);
  return status;
}

/* ---- making ---- */

/* A buffer of a tensor without one. One reference to *out_late is the caller's. */
static pjrt_error *create(pjrt_device *device, pjrt_memory *memory, pjrt_type type, const pjrt_memory_layout *layout,
                          const hr_tensor *tensor, bool has_bytes, pjrt_buffer **out_buffer, hrj_late **out_late) {
  hrj_late *late = calloc(1, sizeof *late);
  pjrt_buffer *buffer = hrj_buffer_create(device, memory, type, layout, tensor);
  size_t size = (size_t)hr_tensor_count(tensor) * hr_dtype_size(tensor->dtype);
  char *bytes = has_bytes ? calloc(size + 1, 1) : NULL;
  if (late == NULL || buffer == NULL || (has_bytes && bytes == NULL)) {
    free(late), free(buffer), free(bytes);
    return no_memory();
  }
  hr_status status = hr_buffer_create(device->device, size, &buffer->tensor.buffer);
  if (status != HR_OK) {
    free(late), free(buffer), free(bytes);
    return hrj_error(status);
  }
  atomic_init(&late->references, 2);
  pthread_mutex_init(&late->lock, NULL);
  pthread_cond_init(&late->changed, NULL);
  late->device = device, late->bytes = bytes, late->size = size;
  late->tensor = hrj_layout_stored(layout, &buffer->tensor, NULL, NULL);
  hr_buffer_retain(late->tensor.buffer);
  atomic_init(&buffer->late, late);
  *out_buffer = buffer, *out_late = late;
  return NULL;
}

/* ---- transfer managers ---- */

typedef struct transfer {
  pjrt_buffer *buffer; /* NULL: the client has it */
  hrj_late *late;
  const pjrt_memory_layout *layout;
} transfer;

struct pjrt_transfers {
  pjrt_device *device;
  pthread_mutex_t lock; /* of the buffers */
  size_t count;
  transfer list[];
};

static void destroy_transfers(pjrt_transfers *transfers, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    transfer *t = &transfers->list[i];
    if (t->buffer != NULL) {
      hrj_Buffer_Destroy(&(pjrt_args_self){.self = t->buffer});
    } else {
      hr_status_ignore(complete(
          t->late, hr_status_make(HR_STATUS_ABORTED,
                                  HRJ_PLATFORM ": the transfers of buffer %zu ended without its contents", i)));
    }
    release(t->late);
  }
  pthread_mutex_destroy(&transfers->lock);
  free(transfers);
}

static pjrt_error *create_transfer(const pjrt_args_transfers *args, pjrt_device *device, size_t i, transfer *out) {
  const pjrt_shape *shape = &args->shapes[i];
  const pjrt_layout *wanted = i < args->layout_count && args->layouts != NULL ? args->layouts[i] : NULL;
  hr_tensor tensor;
  HRJ_RETURN_IF_ERROR(hrj_layout_read(wanted, shape->rank, &out->layout));
  HRJ_RETURN_IF_ERROR(hrj_tensor_make(shape->type, shape->dims, shape->rank, out->layout, &tensor));
  return create(device, args->memory, shape->type, out->layout, &tensor, true, &out->buffer, &out->late);
}

pjrt_error *hrj_Client_CreateBuffersForAsyncHostToDevice(pjrt_args_transfers *args) {
  pjrt_transfers *transfers = calloc(1, sizeof *transfers + args->count * sizeof *transfers->list);
  if (transfers == NULL) {
    return no_memory();
  }
  transfers->device = hrj_device_of(args->client, NULL, args->memory);
  transfers->count = args->count;
  pthread_mutex_init(&transfers->lock, NULL);
  for (size_t i = 0; i < args->count; ++i) {
    pjrt_error *error = create_transfer(args, transfers->device, i, &transfers->list[i]);
    if (error != NULL) {
      destroy_transfers(transfers, i);
      return error;
    }
  }
  args->transfers = transfers;
  return NULL;
}

pjrt_error *hrj_AsyncHostToDeviceTransferManager_Destroy(pjrt_args_self *args) {
  pjrt_transfers *transfers = args->self;
  if (transfers != NULL) {
    destroy_transfers(transfers, transfers->count);
  }
  return NULL;
}

static pjrt_error *find(pjrt_transfers *transfers, int number, transfer **out_transfer) {
  if (number < 0 || (size_t)number >= transfers->count) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": buffer %d of a transfer of %zu buffers", number,
                          transfers->count);
  }
  *out_transfer = &transfers->list[number];
  return NULL;
}

/* Copies bytes of a buffer that is not complete. */
static hr_status put(hrj_late *late, const void *data, int64_t offset, int64_t size) {
  int64_t most = (int64_t)late->size;
  if (offset < 0 || size < 0 || offset > most || size > most - offset) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": bytes %lld to %lld of a buffer of %lld bytes",
                          (long long)offset, (long long)offset + (long long)size, (long long)most);
  }
  pthread_mutex_lock(&late->lock);
  bool is_complete = late->is_complete;
  if (!is_complete && size > 0) {
    memcpy(late->bytes + offset, data, (size_t)size);
  }
  pthread_mutex_unlock(&late->lock);
  return !is_complete
             ? HR_OK
             : hr_status_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": the buffer has its contents already");
}

/* The caller's bytes are no longer used when the call returns. */
pjrt_error *hrj_AsyncHostToDeviceTransferManager_TransferData(pjrt_args_transfer_data *args) {
  transfer *t = NULL;
  pjrt_error *error = find(args->transfers, args->number, &t);
  if (error != NULL) {
    return error;
  }
  HRJ_RETURN_IF_ERROR(put(t->late, args->data, args->offset, args->size));
  HRJ_RETURN_IF_ERROR(args->is_last ? complete(t->late, HR_OK) : HR_OK);
  args->done = hrj_event_done();
  return NULL;
}

pjrt_error *hrj_AsyncHostToDeviceTransferManager_TransferLiteral(pjrt_args_transfer_literal *args) {
  transfer *t = NULL;
  pjrt_error *error = find(args->transfers, args->number, &t);
  if (error != NULL) {
    return error;
  }
  const pjrt_memory_layout *layout;
  hr_tensor tensor;
  HRJ_RETURN_IF_ERROR(hrj_layout_read(args->layout, args->rank, &layout));
  HRJ_RETURN_IF_ERROR(hrj_tensor_make(args->type, args->dims, args->rank, layout, &tensor));
  const size_t size = (size_t)hr_tensor_count(&tensor) * hr_dtype_size(tensor.dtype);
  if (size != t->late->size || tensor.rank != t->late->tensor.rank) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": %zu bytes of %d dims for a buffer of %zu of %d",
                          size, tensor.rank, t->late->size, t->late->tensor.rank);
  }
  char *packed = malloc(size + 1);
  if (packed == NULL) {
    return no_memory();
  }
  int64_t strides[HR_RANK_MAX];
  hrj_layout_strides(layout, args->dims, (int64_t)hr_dtype_size(tensor.dtype), strides);
  hrj_host_pack(args->type, args->data, &tensor, strides, t->layout, packed);
  hr_status status = put(t->late, packed, 0, (int64_t)size);
  free(packed);
  HRJ_RETURN_IF_ERROR(status);
  HRJ_RETURN_IF_ERROR(complete(t->late, HR_OK));
  args->done = hrj_event_done();
  return NULL;
}

pjrt_error *hrj_AsyncHostToDeviceTransferManager_RetrieveBuffer(pjrt_args_transfer_buffer *args) {
  transfer *t = NULL;
  pjrt_error *error = find(args->transfers, args->number, &t);
  if (error != NULL) {
    return error;
  }
  pthread_mutex_lock(&args->transfers->lock);
  args->buffer = t->buffer;
  t->buffer = NULL;
  pthread_mutex_unlock(&args->transfers->lock);
  return args->buffer != NULL ? NULL
                              : hrj_error_make(HR_STATUS_FAILED_PRECONDITION,
                                               HRJ_PLATFORM ": buffer %d has been retrieved", args->number);
}

pjrt_error *hrj_AsyncHostToDeviceTransferManager_Device(pjrt_args_pointer *args) {
  args->pointer = ((pjrt_transfers *)args->self)->device;
  return NULL;
}

pjrt_error *hrj_AsyncHostToDeviceTransferManager_BufferCount(pjrt_args_size *args) {
  args->size = (int64_t)((pjrt_transfers *)args->self)->count;
  return NULL;
}

pjrt_error *hrj_AsyncHostToDeviceTransferManager_BufferSize(pjrt_args_transfer_size *args) {
  transfer *t = NULL;
  pjrt_error *error = find(args->transfers, args->number, &t);
  if (error == NULL) {
    args->size = t->late->size;
  }
  return error;
}

pjrt_error *hrj_AsyncHostToDeviceTransferManager_SetBufferError(pjrt_args_transfer_error *args) {
  transfer *t = NULL;
  pjrt_error *error = find(args->transfers, args->number, &t);
  return error != NULL ? error
                       : hrj_error(complete(t->late, hr_status_make((hr_status_code)args->code, "%.*s",
                                                                    (int)args->message_size, args->message)));
}

/* Metadata are for a client's own profiles. */
pjrt_error *hrj_AsyncHostToDeviceTransferManager_AddMetadata(pjrt_args_transfer_metadata *args) {
  (void)args;
  return NULL;
}

/* ---- aliases ---- */

pjrt_error *hrj_Client_CreateAliasBuffer(pjrt_args_alias *args) {
  const pjrt_memory_layout *layout;
  hr_tensor tensor;
  HRJ_RETURN_IF_ERROR(hrj_layout_read(args->layout, args->rank, &layout));
  HRJ_RETURN_IF_ERROR(hrj_tensor_make(args->type, args->dims, args->rank, layout, &tensor));
  pjrt_device *device = hrj_device_of(args->client, NULL, args->memory);
  return create(device, args->memory, args->type, layout, &tensor, false, &args->buffer, &args->promise);
}

static bool are_alike(const hr_tensor *x, const hr_tensor *y) {
  bool are = x->dtype == y->dtype && x->rank == y->rank;
  for (int d = 0; are && d < x->rank; ++d) {
    are = x->dims[d] == y->dims[d];
  }
  return are;
}

/* The contents of a buffer of the same device, which is held. */
static hr_status fulfil(hrj_late *late, pjrt_buffer *buffer) {
  hr_tensor stored = hrj_layout_stored(buffer->layout, &buffer->tensor, NULL, NULL);
  if (buffer->device != late->device || !are_alike(&stored, &late->tensor)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          HRJ_PLATFORM ": an alias is fulfilled by a buffer of another device, type or layout");
  }
  pthread_mutex_lock(&late->lock);
  bool is_first = late->source.buffer == NULL && !late->is_expected;
  if (is_first) {
    late->source = stored;
    hr_buffer_retain(stored.buffer);
  }
  pthread_mutex_unlock(&late->lock);
  return is_first ? complete(late, HR_OK)
                  : hr_status_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": an alias has been used or fulfilled");
}

/* Ends the promise, whatever becomes of it. */
pjrt_error *hrj_Client_FulfillAliasBuffer(pjrt_args_fulfil *args) {
  hrj_late *late = args->promise;
  hr_status status;
  if (args->code != HR_STATUS_OK) {
    status = complete(late, hr_status_make((hr_status_code)args->code, "%.*s", (int)args->message_size, args->message));
  } else if (!hrj_buffer_hold(args->buffer)) {
    status = hrj_buffer_deleted(args->buffer, "fulfil an alias");
  } else {
    status = fulfil(late, args->buffer);
    hrj_buffer_drop(args->buffer);
  }
  release(late);
  return hrj_error(status);
}

/* ---- dependencies ---- */

/* The client calls it once, with the dependency's failure. */
static void dependency_is_ready(pjrt_args_dependency *args) {
  hrj_late *late = args->data;
  hr_status failure = args->code == HR_STATUS_OK
                          ? HR_OK
                          : hr_status_make((hr_status_code)args->code, "%.*s", (int)args->message_size, args->message);
  hr_status_ignore(complete(late, failure));
  release(late);
}

pjrt_error *hrj_Buffer_DonateWithControlDependency(pjrt_args_donate *args) {
  pjrt_buffer *buffer = args->buffer;
  if (!hrj_buffer_hold(buffer)) {
    return hrj_error(hrj_buffer_deleted(buffer, "donation"));
  }
  hrj_late *late;
  hr_tensor tensor = buffer->tensor;
  tensor.buffer = NULL;
  pjrt_error *error =
      create(buffer->device, buffer->memory, buffer->type, buffer->layout, &tensor, false, &args->out, &late);
  if (error == NULL) {
    late->source = hrj_layout_stored(buffer->layout, &buffer->tensor, NULL, NULL);
    hr_buffer_retain(late->source.buffer);
    hrj_buffer_delete(buffer);
    args->data = late, args->ready = dependency_is_ready;
  }
  hrj_buffer_drop(buffer);
  return error;
}
