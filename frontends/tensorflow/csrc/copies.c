/* copies.c: copies between eager tensors of the host and the device for Python (copies.py).
 *
 * TensorFlow's own copies end in a callback that two threads hand over to one another. It takes as long as a small
 * function. The copies here are made in the thread of the caller. NULL: TensorFlow's own copy serves the tensor, or
 * reports the error.
 */
#include "plugin.h"

typedef struct numbers {
  int dtype, rank;
  int64_t dims[HR_RANK_MAX], bytes;
} numbers;

/* Waits until an asynchronous tensor has its dims. False if it is none of numbers. */
static bool describe(tf_handle *tensor, numbers *r, tf_status *status) {
  r->dtype = tf.TensorHandleDataType(tensor);
  hr_dtype dtype = htf_dtype_of(r->dtype);
  r->rank = dtype != HR_DTYPE_NONE ? tf.TensorHandleNumDims(tensor, status) : HR_RANK_MAX + 1;
  if (tf.GetCode(status) != 0 || r->rank > HR_RANK_MAX) {
    return false;
  }
  r->bytes = (int64_t)hr_dtype_size(dtype);
  for (int i = 0; i < r->rank && tf.GetCode(status) == 0; ++i) {
    r->dims[i] = tf.TensorHandleDim(tensor, i, status);
    r->bytes *= r->dims[i];
  }
  return tf.GetCode(status) == 0 && r->bytes > 0;
}

/* True if the tensor's memory is a device's that works; TensorFlow's copy reports failures. */
static bool is_usable(const htf_device *device) {
  hr_status failure = htf_check_process();
  bool is_same_process = failure == HR_OK;
  hr_status_free(failure);
  return is_same_process && device != NULL && atomic_load(&device->failure) == HR_OK;
}

static hr_view view_bytes(hr_buffer *buffer, size_t offset, const int64_t *bytes) {
  static const int64_t stride = 1;
  return (hr_view){
      .buffer = buffer, .dtype = HR_DTYPE_U8, .rank = 1, .offset = (int64_t)offset, .dims = bytes, .strides = &stride};
}

/* False if TensorFlow's copy has to serve the tensor. */
static bool copy_out(tf_handle *tensor, const numbers *r, void *out_bytes, tf_status *status) {
  size_t offset = 0;
  void *address = tf.TensorHandleDevicePointer(tensor, status); /* which synchronizes */
  hr_buffer *buffer = tf.GetCode(status) == 0 ? hr_buffer_from_handle(address, &offset) : NULL;
  htf_device *device = buffer != NULL ? htf_device_of(buffer) : NULL;
  bool is_read = is_usable(device);
  if (is_read) {
    const hr_view view = view_bytes(buffer, offset, &r->bytes);
    hr_status failure = hr_stream_read(device->stream, &view, out_bytes);
    is_read = failure == HR_OK;
    if (!is_read) {
      hr_status_free(atomic_exchange(&device->failure, failure));
    }
  }
  hr_buffer_release(buffer);
  return is_read;
}

#define HTF_NO_MEMORY ((tf_handle *)(intptr_t)-1)

/* A copy of a device's tensor on the host; HTF_NO_MEMORY if the host has none for it. */
HTF_EXPORT tf_handle *headrace_tensorflow_read(tf_handle *tensor) {
  tf_status *status = tf.NewStatus();
  tf_tensor *host = NULL;
  tf_handle *copy = NULL;
  numbers r;
  if (describe(tensor, &r, status)) {
    host = tf.AllocateTensor(r.dtype, r.dims, r.rank, (size_t)r.bytes);
  }
  if (host != NULL && tf.TensorData(host) == NULL) { /* no memory */
    copy = HTF_NO_MEMORY;
  } else if (host != NULL && copy_out(tensor, &r, tf.TensorData(host), status)) {
    copy = tf.NewTensorHandle(host, status);
  }
  if (host != NULL) {
    tf.DeleteTensor(host);
  }
  tf.DeleteStatus(status);
  return copy;
}

static void release_memory(void *address, size_t bytes, void *arg) {
  tf_memory memory = {.address = address, .bytes = bytes};
  (void)arg;
  htf_deallocate(NULL, &memory);
}

/* An address with a copy of the bytes; NULL after a failure. */
static void *copy_in(const htf_device *device, const void *bytes, int64_t count) {
  hr_buffer *buffer = NULL;
  hr_status failure = hr_buffer_create(device->device, (size_t)count, &buffer);
  if (failure == HR_OK) {
    const hr_view view = view_bytes(buffer, 0, &count);
    failure = hr_stream_write(device->stream, &view, bytes);
  }
  if (failure != HR_OK) {
    hr_status_free(failure);
    hr_buffer_release(buffer);
    return NULL;
  }
  return hr_buffer_handle(buffer);
}

/* A copy of a tensor of the host on the only device, whose name in TensorFlow is `name`. Numbers of int32 stay where
 * they are, as TensorFlow's do. */
HTF_EXPORT tf_handle *headrace_tensorflow_write(tf_eager *context, const char *name, tf_handle *tensor) {
  htf_device *device = htf_device_at(1) == NULL ? htf_device_at(0) : NULL;
  tf_status *status = tf.NewStatus();
  tf_handle *copy = NULL;
  numbers r;
  if (is_usable(device) && describe(tensor, &r, status) && r.dtype != TF_INT32) {
    const void *bytes = tf.TensorHandleDevicePointer(tensor, status);
    void *address = tf.GetCode(status) == 0 ? copy_in(device, bytes, r.bytes) : NULL;
    copy = address != NULL ? tf.NewTensorHandleFromDeviceMemory(context, name, r.dtype, r.dims, r.rank, address,
                                                                (size_t)r.bytes, release_memory, NULL, status)
                           : NULL;
  }
  tf.DeleteStatus(status);
  return copy;
}
