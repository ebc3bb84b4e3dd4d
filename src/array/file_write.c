/* file_write.c: files of arrays, written beside the target and renamed at the end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "array/array_file.h"
#include "base/allocator.h"

typedef struct writer {
  int descriptor;
  hr_text temporary;
} writer;

static hr_status write_bytes(writer *to, const void *bytes, size_t count) {
  for (const char *at = bytes; count > 0;) {
    ssize_t written = write(to->descriptor, at, count < 1 << 30 ? count : 1 << 30);
    if (written < 0 && errno != EINTR) {
      return hr__file_failure("write");
    }
    written = written > 0 ? written : 0;
    at += written, count -= (size_t)written;
  }
  return HR_OK;
}

static hr_status write_array(hr_stream *stream, writer *to, const hr_tensor *x) {
  size_t bytes = (size_t)hr_tensor_count(x) * hr_dtype_size(x->dtype);
  if (bytes == 0) {
    return HR_OK;
  }
  char *elements = hr_malloc(bytes);
  if (elements == NULL) {
    return hr__file_no_memory(bytes);
  }
  hr_status status = hr_array_read(stream, x, elements);
  status = status == HR_OK ? write_bytes(to, elements, bytes) : status;
  hr_free(elements);
  return status;
}

static hr_status write_npy(hr_stream *stream, writer *to, const hr_tensor *x) {
  hr_text header = {0};
  hr_status status = hr__npy_header(x, &header);
  status = status == HR_OK ? write_bytes(to, hr_text_chars(&header), header.length) : status;
  hr_text_fini(&header);
  return status == HR_OK ? write_array(stream, to, x) : status;
}

static hr_status write_safetensors(hr_stream *stream, writer *to, int count, const char *const *names,
                                   const hr_tensor *const *arrays, int text_count, const hr_file_text *texts) {
  hr_text header = {0};
  int *order = hr_calloc((size_t)count + 1, sizeof *order);
  hr_status status = order != NULL ? hr__safetensors_header(count, names, arrays, text_count, texts, order, &header)
                                   : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %d arrays", count);
  status = status == HR_OK ? write_bytes(to, hr_text_chars(&header), header.length) : status;
  for (int i = 0; i < count && status == HR_OK; ++i) {
    status = write_array(stream, to, arrays[order[i]]);
  }
  hr_text_fini(&header);
  hr_free(order);
  return status;
}

/* A new file beside the target, with the mode that the target has or would get. */
static hr_status open_writer(const char *target, writer *to) {
  struct stat info;
  bool exists = stat(target, &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "is no regular file");
  }
  for (int i = 0; i < 1000 && to->descriptor < 0; ++i) {
    hr_text_clear(&to->temporary);
    hr_text_printf(&to->temporary, "%s.%ld.%d.tmp", target, (long)getpid(), i);
    HR_RETURN_IF_ERROR(hr_text_status(&to->temporary));
    to->descriptor = open(hr_text_chars(&to->temporary), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (to->descriptor < 0 && errno != EEXIST) {
      break;
    }
  }
  if (to->descriptor < 0) {
    return hr__file_failure("open for writing");
  }
  if (exists) {
    (void)fchmod(to->descriptor, info.st_mode & 0777);
  }
  return HR_OK;
}

static hr_status close_writer(writer *to, const char *target, hr_status status) {
  if (to->descriptor < 0) {
    return status;
  }
  if (close(to->descriptor) != 0 && status == HR_OK) {
    status = hr__file_failure("close");
  }
  if (status == HR_OK && rename(hr_text_chars(&to->temporary), target) != 0) {
    status = hr__file_failure("rename");
  }
  if (status != HR_OK) {
    (void)unlink(hr_text_chars(&to->temporary));
  }
  return status;
}

static hr_status check_request(hr_file_format format, int count, int text_count) {
  if (format != HR_FILE_NPY && format != HR_FILE_SAFETENSORS) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "format %d can't be written", (int)format);
  }
  if (count < 0 || text_count < 0 || (format == HR_FILE_NPY && (count != 1 || text_count != 0))) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%d arrays and %d texts, expected one array in npy", count,
                          text_count);
  }
  return HR_OK;
}

hr_status hr_file_write(hr_stream *stream, const char *path, hr_file_format format, int count, const char *const *names,
                        const hr_tensor *const *arrays, int text_count, const hr_file_text *texts) {
  hr_status status = check_request(format, count, text_count);
  char *resolved = status == HR_OK ? realpath(path, NULL) : NULL; /* a link stays, and its target is replaced */
  const char *target = resolved != NULL ? resolved : path;
  writer to = {.descriptor = -1};
  status = status == HR_OK ? open_writer(target, &to) : status;
  if (status == HR_OK) {
    status = format == HR_FILE_NPY ? write_npy(stream, &to, arrays[0])
                                   : write_safetensors(stream, &to, count, names, arrays, text_count, texts);
  }
  status = close_writer(&to, target, status);
  hr_text_fini(&to.temporary);
  free(resolved);
  return hr_status_annotate(status, "%s", path);
}
