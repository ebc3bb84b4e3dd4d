/* reads.c: values of eager tensors for Python (reading.py).
 *
 * TensorFlow's own copy to the host ends in a callback that two threads hand over to one another. It takes as long as
 * a small function. The copy here is made in the thread of the caller.
 */
#include "plugin.h"

typedef struct read {
  int dtype, rank;
  int64_t dims[HR_RANK_MAX], bytes;
} read;

/* Waits until an asynchronous tensor has its dims. False if it is none of numbers. */
static bool describe(tf_handle *tensor, read *r, tf_status *status) {
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
static bool may_read(const htf_device *device) {
  hr_status failure = htf_check_process();
  bool is_same_process = failure == HR_OK;
  hr_status_free(failure);
  return is_same_process && device != NULL && atomic_load(&device->failure) == HR_OK;
}

/* False if TensorFlow's copy has to serve the tensor. */
static bool copy_out(tf_handle *tensor, const read *r, void *out_bytes, tf_status *status) {
  static const int64_t stride = 1;
  size_t offset = 0;
  void *address = tf.TensorHandleDevicePointer(tensor, status); /* which synchronizes */
  hr_buffer *buffer = tf.GetCode(status) == 0 ? hr_buffer_from_handle(address, &offset) : NULL;
  htf_device *device = buffer != NULL ? htf_device_of(buffer) : NULL;
  bool is_read = may_read(device);
  if (is_read) {
    const hr_view view = {.buffer = buffer,
                          .dtype = HR_DTYPE_U8,
                          .rank = 1,
                          .offset = (int64_t)offset,
                          .dims = &r->bytes,
                          .strides = &stride};
    hr_status failure = hr_stream_read(device->stream, &view, out_bytes);
    is_read = failure == HR_OK;
    if (!is_read) {
      hr_status_free(atomic_exchange(&device->failure, failure));
    }
  }
  hr_buffer_release(buffer);
  return is_read;
}

HTF_EXPORT tf_handle *headrace_tensorflow_read(tf_handle *tensor) {
  tf_status *status = tf.NewStatus();
  tf_tensor *host = NULL;
  tf_handle *copy = NULL;
  read r;
  if (describe(tensor, &r, status)) {
    host = tf.AllocateTensor(r.dtype, r.dims, r.rank, (size_t)r.bytes);
  }
  if (host != NULL && copy_out(tensor, &r, tf.TensorData(host), status)) {
    copy = tf.NewTensorHandle(host, status);
  }
  if (host != NULL) {
    tf.DeleteTensor(host);
  }
  tf.DeleteStatus(status);
  return copy;
}
