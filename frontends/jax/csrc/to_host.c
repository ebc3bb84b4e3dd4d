/* to_host.c: copies of buffers in memory of the host.
 *
 * Contents that are there are copied at once. Otherwise a call of the stream copies them, while the client goes on;
 * a device whose memory is not the host's is waited for.
 */
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

/* Bytes from `offset` on, or all elements with strides. */
typedef struct copy_job {
  hr_tensor tensor; /* row-major: dims are in the order of the buffer's layout */
  int64_t byte_strides[HR_RANK_MAX];
  bool is_raw;
  size_t offset, bytes;
  void *target;
  pjrt_event *event;
  bool has_run;
} copy_job;

static pjrt_error *no_memory(void) {
  return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a copy");
}

static void copy(const copy_job *job, const void *source) {
  if (job->is_raw) {
    memcpy(job->target, (const char *)source + job->offset, job->bytes);
  } else {
    hrj_strided_unpack(job->target, job->byte_strides, source, &job->tensor);
  }
}

static hr_status run(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs) {
  copy_job *job = arg;
  (void)input_count, (void)output_count, (void)outputs;
  copy(job, inputs[0]);
  job->has_run = true;
  return HR_OK;
}

static void finish(void *arg) {
  copy_job *job = arg;
  hrj_event_called(job->event, job->has_run);
  free(job);
}

static pjrt_error *copy_later(pjrt_buffer *buffer, const copy_job *wanted, pjrt_event **out_event) {
  copy_job *job = malloc(sizeof *job);
  pjrt_event *event = hrj_event_of_call(buffer);
  if (job == NULL || event == NULL) {
    free(job);
    hrj_event_release(event);
    return no_memory();
  }
  *job = *wanted;
  job->event = event;
  hrj_event_retain(event);
  hr_status status = hr_stream_call(buffer->device->stream, run, job, finish, 1, &buffer->tensor.buffer, 0, NULL);
  if (status != HR_OK) {
    free(job);
    hrj_event_release(event);
    hrj_event_release(event);
    return hrj_error(status);
  }
  *out_event = event;
  return NULL;
}

static pjrt_error *copy_from_device(pjrt_buffer *buffer, const copy_job *job) {
  void *staging = malloc(hrj_buffer_bytes(buffer));
  if (staging == NULL) {
    return no_memory();
  }
  hr_tensor stored = hrj_layout_stored(buffer->layout, &buffer->tensor, NULL, NULL);
  hr_view view = hr_tensor_view(&stored);
  hr_status status = hr_stream_read(buffer->device->stream, &view, staging);
  if (status == HR_OK) {
    copy(job, staging);
  }
  free(staging);
  return hrj_error(status);
}

/* The buffer is held. */
static pjrt_error *copy_now_or_later(pjrt_buffer *buffer, const copy_job *job, pjrt_event **out_event) {
  *out_event = hrj_event_done();
  if (job->bytes == 0) {
    return NULL;
  }
  if (!buffer->device->is_host) {
    return copy_from_device(buffer, job);
  }
  pjrt_event *ready = hrj_event_of_buffer(buffer);
  if (ready == NULL) {
    return no_memory();
  }
  if (ready != hrj_event_done()) {
    hrj_event_release(ready);
    return copy_later(buffer, job, out_event);
  }
  void *address;
  HRJ_RETURN_IF_ERROR(hrj_buffer_address(buffer, &address));
  copy(job, address);
  return NULL;
}

static pjrt_error *start(pjrt_buffer *buffer, const copy_job *job, pjrt_event **out_event) {
  if (!hrj_buffer_hold(buffer)) {
    return hrj_error(hrj_buffer_deleted(buffer, "copy to the host"));
  }
  pjrt_error *error = copy_now_or_later(buffer, job, out_event);
  hrj_buffer_drop(buffer);
  return error;
}

/* Byte strides of the buffer's dims on the host, of which the layout NULL is the buffer's. */
static hr_status list_strides(const pjrt_layout *layout, const pjrt_buffer *buffer, int64_t *out_strides) {
  const hr_tensor *tensor = &buffer->tensor;
  int64_t size = (int64_t)hr_dtype_size(tensor->dtype);
  const pjrt_memory_layout *order = buffer->layout;
  if (layout != NULL && layout->kind == PJRT_LAYOUT_STRIDES) {
    if (layout->of.strides.rank != (size_t)tensor->rank) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": a host layout of %zu dims, expected %d",
                            layout->of.strides.rank, tensor->rank);
    }
    memcpy(out_strides, layout->of.strides.byte_strides, (size_t)tensor->rank * sizeof *out_strides);
    return HR_OK;
  }
  if (layout != NULL) {
    HR_RETURN_IF_ERROR(hrj_layout_read(layout, (size_t)tensor->rank, &order));
  }
  hrj_layout_strides(order, tensor->dims, size, out_strides);
  return HR_OK;
}

pjrt_error *hrj_Buffer_ToHostBuffer(pjrt_args_to_host *args) {
  pjrt_buffer *buffer = args->buffer;
  size_t bytes = hrj_buffer_bytes(buffer);
  if (args->data == NULL) {
    args->data_size = bytes;
    return NULL;
  }
  if (args->data_size < bytes) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": %zu bytes of host memory for a buffer of %zu",
                          args->data_size, bytes);
  }
  int64_t strides[HR_RANK_MAX];
  copy_job job = {.bytes = bytes, .target = args->data};
  HRJ_RETURN_IF_ERROR(list_strides(args->layout, buffer, strides));
  job.tensor = hrj_layout_stored(buffer->layout, &buffer->tensor, strides, job.byte_strides);
  return start(buffer, &job, &args->event);
}

static pjrt_error *check_range(const pjrt_buffer *buffer, int64_t offset, int64_t size) {
  int64_t bytes = (int64_t)hrj_buffer_bytes(buffer);
  if (offset < 0 || size < 0 || offset > bytes || size > bytes - offset) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": bytes %lld to %lld of a buffer of %lld bytes",
                          (long long)offset, (long long)offset + (long long)size, (long long)bytes);
  }
  return NULL;
}

pjrt_error *hrj_Buffer_CopyRawToHost(pjrt_args_raw_to_host *args) {
  pjrt_buffer *buffer = args->buffer;
  pjrt_error *error = check_range(buffer, args->offset, args->size);
  if (error != NULL) {
    return error;
  }
  copy_job job = {.is_raw = true, .offset = (size_t)args->offset, .bytes = (size_t)args->size, .target = args->data};
  return start(buffer, &job, &args->event);
}

/* ---- copies whose target comes later ---- */

typedef struct raw_future {
  pjrt_buffer *buffer; /* held */
  copy_job job;
  pjrt_event *event; /* of the whole, with a reference */
} raw_future;

static void finish_future(raw_future *future, hr_status status) {
  hrj_event_set(future->event, status);
  hrj_event_release(future->event);
  hrj_buffer_drop(future->buffer);
  free(future);
}

static hr_status status_of(pjrt_error *error) {
  if (error == NULL) {
    return HR_OK;
  }
  pjrt_args_text text = {.self = error};
  pjrt_args_int code = {.self = error};
  hrj_Error_Message(&text);
  hrj_Error_GetCode(&code);
  hr_status status = hr_status_make((hr_status_code)code.number, "%.*s", (int)text.text_size, text.text);
  hrj_Error_Destroy(&(pjrt_args_self){.self = error});
  return status;
}

static void copied(pjrt_error *error, void *arg) {
  finish_future(arg, status_of(error));
}

/* The target, or a failure to have one. */
static void target_is_ready(pjrt_args_future *args) {
  raw_future *future = args->data;
  pjrt_event *event = NULL;
  if (args->code != HR_STATUS_OK) {
    finish_future(future, hr_status_make((hr_status_code)args->code, "%.*s", (int)args->message_size, args->message));
    return;
  }
  future->job.target = args->target;
  pjrt_error *error = copy_now_or_later(future->buffer, &future->job, &event);
  pjrt_args_on_ready on_ready = {.event = event, .callback = copied, .arg = future};
  error = error == NULL ? hrj_Event_OnReady(&on_ready) : error;
  hrj_event_release(event);
  if (error != NULL) {
    finish_future(future, status_of(error));
  }
}

pjrt_error *hrj_Buffer_CopyRawToHostFuture(pjrt_args_raw_future *args) {
  pjrt_buffer *buffer = args->buffer;
  pjrt_error *error = check_range(buffer, args->offset, args->size);
  if (error != NULL) {
    return error;
  }
  raw_future *future = calloc(1, sizeof *future);
  pjrt_event *event = hrj_event_create();
  if (future == NULL || event == NULL || !hrj_buffer_hold(buffer)) {
    bool has_room = future != NULL && event != NULL;
    free(future);
    hrj_event_release(event);
    return has_room ? hrj_error(hrj_buffer_deleted(buffer, "copy to the host")) : no_memory();
  }
  hrj_event_retain(event);
  future->buffer = buffer, future->event = event;
  future->job = (copy_job){.is_raw = true, .offset = (size_t)args->offset, .bytes = (size_t)args->size};
  args->event = event, args->data = future, args->ready = target_is_ready;
  return NULL;
}
