#include "importers/onnx/onnx_file.h"

#include "base/allocator.h"
#include "base/disk_file.h"

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory to open it");
}

static hr_status create_file(hr__onnx_file **out_file) {
  hr__onnx_file *file = hr_calloc(1, sizeof *file);
  if (file == NULL) {
    return no_memory();
  }
  hr_refcount_init(&file->refcount);
  *out_file = file;
  return HR_OK;
}

void hr__onnx_file_retain(void *arg) {
  hr__onnx_file *file = arg;
  hr_refcount_retain(&file->refcount);
}

void hr__onnx_file_release(void *arg) {
  hr__onnx_file *file = arg;
  if (file == NULL || !hr_refcount_release(&file->refcount)) {
    return;
  }
  if (file->is_mapped) {
    hr__disk_unmap((void *)(uintptr_t)file->bytes.data, file->bytes.size);
  } else {
    hr_aligned_free((void *)(uintptr_t)file->bytes.data);
  }
  hr_free(file->location);
  hr_free(file);
}

hr_status hr__onnx_file_open(const char *path, hr__onnx_file **out_file) {
  hr__onnx_file *file = NULL;
  void *bytes = NULL;
  HR_RETURN_IF_ERROR(create_file(&file));
  hr_status status = hr__disk_map(path, &bytes, &file->bytes.size);
  file->bytes.data = bytes, file->is_mapped = bytes != NULL;
  if (status != HR_OK) {
    hr__onnx_file_release(file);
    return status;
  }
  *out_file = file;
  return HR_OK;
}

hr_status hr__onnx_file_copy(const void *bytes, size_t size, hr__onnx_file **out_file) {
  enum { ALIGNMENT = 64 };
  hr__onnx_file *file = NULL;
  HR_RETURN_IF_ERROR(create_file(&file));
  void *copy = hr_aligned_malloc(size + 1, ALIGNMENT);
  if (copy == NULL) {
    hr__onnx_file_release(file);
    return no_memory();
  }
  if (size > 0) {
    memcpy(copy, bytes, size);
  }
  file->bytes = (hr__span){copy, size};
  *out_file = file;
  return HR_OK;
}

/* ---- external data ---- */

enum { LOCATION_MAX = 1023 };

static hr_status map_location(const char *model, hr__span location, hr__onnx_file **out_file) {
  hr__onnx_file *file = NULL;
  void *bytes = NULL;
  HR_RETURN_IF_ERROR(create_file(&file));
  file->location = hr_malloc(location.size + 1);
  hr_status status = file->location != NULL ? HR_OK : no_memory();
  if (status == HR_OK) {
    memcpy(file->location, location.data, location.size);
    file->location[location.size] = '\0';
    status = hr__disk_map_beside(model, file->location, &bytes, &file->bytes.size);
    status = hr_status_annotate(status, "external data \"%s\"", file->location);
  }
  file->bytes.data = bytes, file->is_mapped = bytes != NULL;
  if (status != HR_OK) {
    hr__onnx_file_release(file);
    return status;
  }
  *out_file = file;
  return HR_OK;
}

hr_status hr__onnx_file_beside(hr__onnx_file *first, const char *model, hr__span location, hr__onnx_file **out_file) {
  if (model == NULL || location.size == 0 || location.size > LOCATION_MAX || !hr__span_is_text(location)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, model == NULL
                                                          ? "external data of a model without a folder"
                                                          : "the location of external data is no name of a file");
  }
  for (hr__onnx_file *file = first->next; file != NULL; file = file->next) {
    if (hr__span_is(location, file->location)) {
      *out_file = file;
      return HR_OK;
    }
  }
  HR_RETURN_IF_ERROR(map_location(model, location, out_file));
  (*out_file)->next = first->next, first->next = *out_file;
  return HR_OK;
}
