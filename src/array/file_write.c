/* file_write.c: files of arrays, written beside the target and renamed at the end. */
#include <string.h>

#include "array/array_file.h"
#include "base/allocator.h"
#include "base/disk_file.h"

/* ---- formats ---- */

hr_status hr__write(hr__writer *to, const void *bytes, size_t count) {
  to->at += count;
  return count > 0 ? to->write(to->arg, bytes, count) : HR_OK;
}

hr_status hr__write_text(hr__writer *to, const hr_text *text) {
  HR_RETURN_IF_ERROR(hr_text_status(text));
  return hr__write(to, hr_text_chars(text), text->length);
}

hr_status hr__writer_read(hr__writer *to, const hr_tensor *x, size_t *out_bytes, char **out_elements) {
  size_t bytes = (size_t)hr_tensor_count(x) * hr_dtype_size(x->dtype);
  char *elements = hr_malloc(bytes);
  if (elements == NULL) {
    return hr__file_no_memory(bytes);
  }
  hr_status status = bytes > 0 ? hr_array_read(to->stream, x, elements) : HR_OK;
  if (status != HR_OK) {
    hr_free(elements);
    return status;
  }
  *out_bytes = bytes, *out_elements = elements;
  return HR_OK;
}

hr_status hr__write_array(hr__writer *to, const hr_tensor *x) {
  size_t bytes = 0;
  char *elements = NULL;
  HR_RETURN_IF_ERROR(hr__writer_read(to, x, &bytes, &elements));
  hr_status status = hr__write(to, elements, bytes);
  hr_free(elements);
  return status;
}

static hr_status write_npy(hr__writer *to) {
  hr_text header = {0};
  hr_status status = hr__npy_header(to->contents->arrays[0], &header);
  status = status == HR_OK ? hr__write_text(to, &header) : status;
  hr_text_fini(&header);
  return status == HR_OK ? hr__write_array(to, to->contents->arrays[0]) : status;
}

static hr_status write_safetensors(hr__writer *to) {
  hr_text header = {0};
  int count = to->contents->count;
  int *order = hr_calloc((size_t)count + 1, sizeof *order);
  hr_status status = order != NULL ? hr__safetensors_header(to->contents, order, &header)
                                   : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %d arrays", count);
  status = status == HR_OK ? hr__write_text(to, &header) : status;
  for (int i = 0; i < count && status == HR_OK; ++i) {
    status = hr__write_array(to, to->contents->arrays[order[i]]);
  }
  hr_text_fini(&header);
  hr_free(order);
  return status;
}

static hr_status check_names(const hr_file_contents *contents) {
  const char **names = hr_calloc((size_t)contents->count + 1, sizeof *names);
  if (names == NULL) {
    return hr__file_no_memory((size_t)contents->count * sizeof *names);
  }
  memcpy(names, contents->names, (size_t)contents->count * sizeof *names);
  const char *name = hr__file_repeated_name(contents->count, names);
  hr_free(names);
  return name == NULL ? HR_OK : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "two arrays have the name '%.200s'", name);
}

static hr_status check_contents(const hr_file_contents *contents) {
  hr_file_format format = contents->format;
  if ((int)format < 0 || format >= HR_FILE_FORMAT_COUNT) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "format %d can't be written", (int)format);
  }
  if (contents->count < 0 || contents->value_count < 0 || (format == HR_FILE_NPY && contents->count != 1)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%d arrays, expected one in npy", contents->count);
  }
  if ((format == HR_FILE_NPY || format == HR_FILE_NPZ) && contents->value_count != 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%d values of metadata, expected none in npy and npz",
                          contents->value_count);
  }
  return format == HR_FILE_NPY || contents->count == 0 ? HR_OK : check_names(contents);
}

hr_status hr_file_write_to(hr_stream *stream, hr_status (*write)(void *arg, const void *bytes, size_t count), void *arg,
                           const hr_file_contents *contents) {
  static hr_status (*const writers[HR_FILE_FORMAT_COUNT])(hr__writer *) = {[HR_FILE_NPY] = write_npy,
                                                                           [HR_FILE_SAFETENSORS] = write_safetensors,
                                                                           [HR_FILE_NPZ] = hr__npz_write,
                                                                           [HR_FILE_GGUF] = hr__gguf_write};
  hr__writer to = {.stream = stream, .contents = contents, .write = write, .arg = arg};
  HR_RETURN_IF_ERROR(check_contents(contents));
  return writers[contents->format](&to);
}

/* ---- files ---- */

hr_status hr_file_write(hr_stream *stream, const char *path, const hr_file_contents *contents) {
  hr__replacement to;
  hr_status status = hr__replacement_begin(path, &to);
  status = status == HR_OK ? hr_file_write_to(stream, hr__replacement_write, &to, contents) : status;
  return hr_status_annotate(hr__replacement_end(&to, status), "%s", path);
}
