/* memory.c: tensors' memory: late-bound buffers behind handles. */
#include "direct.h"
#include "plugin.h"

static _Thread_local hr_buffer *offered;

void htf_offer_buffer(hr_buffer *buffer) {
  hr_buffer_release(offered);
  offered = buffer;
}

static hr_buffer *take_offered(const hr_device *device, uint64_t bytes) {
  hr_buffer *buffer = offered;
  if (buffer == NULL || hr_buffer_bytes(buffer) < bytes || hr_buffer_device(buffer) != device) {
    return NULL;
  }
  offered = NULL;
  return buffer;
}

/* An address of NULL makes TensorFlow report ResourceExhaustedError. */
void htf_allocate(const tf_device *device, uint64_t bytes, int64_t space, tf_memory *out_memory) {
  (void)space;
  htf_device *self = device->handle;
  hr_buffer *buffer = take_offered(self->device, bytes);
  hr_status failure = htf_check_process();
  if (failure != HR_OK) {
    hr_status_free(failure);
  } else if (buffer == NULL) {
    hr_status_ignore(hr_buffer_create(self->device, bytes, &buffer));
  }
  out_memory->size_of = TF_STRUCT_SIZE(tf_memory, payload);
  out_memory->address = buffer != NULL ? hr_buffer_handle(buffer) : NULL;
  out_memory->bytes = buffer != NULL ? bytes : 0;
  htf_direct_forget(out_memory->address);
}

void htf_deallocate(const tf_device *device, tf_memory *memory) {
  (void)device;
  size_t offset = 0;
  hr_buffer *buffer = memory->address != NULL ? hr_buffer_from_handle(memory->address, &offset) : NULL;
  if (buffer != NULL) {
    hr_buffer_release(buffer); /* of the search */
    hr_buffer_release(buffer); /* of the tensor */
  }
  memory->address = NULL, memory->bytes = 0;
}
