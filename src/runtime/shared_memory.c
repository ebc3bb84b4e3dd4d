/* shared_memory.c: see shared_memory.h and headrace/share.h. */
#include "runtime/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocator.h"

/* What stands behind a shared block: a mapped file, or memory that a driver has opened. */
typedef struct shared_memory {
  hr_device *device;
  void *base;   /* of the mapping, or what the driver opened */
  size_t bytes; /* of the mapping */
  int file;     /* -1: the driver's */
  hr_block *former;
  void (*release)(void *arg); /* NULL: nothing */
  void *arg;
} shared_memory;

static void unmap(const shared_memory *shared) {
  if (shared->file >= 0) {
    munmap(shared->base, shared->bytes);
  } else {
    shared->device->driver->close_shared(shared->device->impl, shared->base);
  }
}

static void release_memory(void *arg) {
  shared_memory *shared = arg;
  unmap(shared);
  if (shared->file >= 0) {
    close(shared->file);
  }
  hr_caching_allocator_free(&shared->device->allocator, shared->former);
  if (shared->release != NULL) {
    shared->release(shared->arg);
  }
  hr_free(shared);
}

static hr_status failure(const char *what, size_t bytes, int error) {
  bool is_full = error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE;
  return hr_status_make(is_full ? HR_STATUS_RESOURCE_EXHAUSTED : HR_STATUS_INVALID_ARGUMENT,
                        "sharing %zu bytes between processes: %s: %s", bytes, what, strerror(error));
}

/* ---- the sender ---- */

/* A file without a name. */
static int make_file(void) {
#ifdef __linux__
  return memfd_create("headrace-shared", MFD_CLOEXEC);
#else
  char name[32] = "/tmp/headrace-XXXXXX";
  int file = mkstemp(name);
  if (file >= 0) {
    unlink(name);
    fcntl(file, F_SETFD, FD_CLOEXEC);
  }
  return file;
#endif
}

/* Pages are reserved now: one that is missing later would end the process. */
static hr_status map_new_file(shared_memory *shared) {
  shared->file = make_file();
  if (shared->file < 0) {
    return failure("a file", shared->bytes, errno);
  }
  int error = posix_fallocate(shared->file, 0, (off_t)shared->bytes);
  if (error == 0) {
    shared->base = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->file, 0);
    error = shared->base == MAP_FAILED ? errno : 0;
  }
  if (error != 0) {
    close(shared->file);
    return failure("reserving memory", shared->bytes, error);
  }
  return HR_OK;
}

static void replace_memory(hr_buffer *buffer, hr_block *block, shared_memory *shared, bool keeps_former) {
  hr_device *device = buffer->device;
  hr_mutex_lock(&device->bind_mutex);
  hr_block *former = buffer->block;
  memcpy(shared->base, hr__buffer_address(buffer), buffer->bytes);
  buffer->block = block;
  atomic_store_explicit(&buffer->capacity, 0, memory_order_relaxed);
  atomic_store_explicit(&buffer->address, shared->base, memory_order_release);
  hr_mutex_unlock(&device->bind_mutex);
  if (keeps_former) {
    shared->former = former;
  } else {
    hr_caching_allocator_free(&device->allocator, former);
  }
}

hr_status hr__buffer_move_to_file(hr_buffer *buffer, bool keeps_former, int *out_file) {
  if (buffer->block->release == &release_memory) {
    *out_file = ((shared_memory *)buffer->block->arg)->file;
    return HR_OK;
  }
  shared_memory *shared = hr_calloc(1, sizeof *shared);
  hr_block *block = hr__block_adopt(buffer->bytes, NULL, &release_memory, shared);
  if (shared == NULL || block == NULL) {
    hr_free(shared);
    hr_free(block);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory to share a buffer");
  }
  *shared = (shared_memory){.device = buffer->device, .bytes = buffer->bytes};
  hr_status status = map_new_file(shared);
  if (status != HR_OK) {
    hr_free(shared);
    hr_free(block);
    return status;
  }
  block->address = shared->base;
  replace_memory(buffer, block, shared, keeps_former);
  *out_file = shared->file;
  return HR_OK;
}

/* ---- the receiver ---- */

static hr_status map_file(shared_memory *shared, int64_t end) {
  struct stat found;
  if (fstat(shared->file, &found) != 0) {
    return failure("the file", shared->bytes, errno);
  }
  if (found.st_size < end) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "shared memory of %lld bytes: expected a file of at least %lld",
                          (long long)found.st_size, (long long)end);
  }
  shared->base = mmap(NULL, shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->file, 0);
  return shared->base == MAP_FAILED ? failure("mapping the file", shared->bytes, errno) : HR_OK;
}

static hr_status open_memory(shared_memory *shared, const hr_shared *from) {
  const hr_device *device = shared->device;
  if (shared->file >= 0) {
    return map_file(shared, from->bytes);
  }
  return device->driver->open_shared(device->impl, from->name, &shared->base);
}

static hr_status check_shared(const hr_device *device, const hr_shared *shared, int file) {
  bool is_file = device->properties.is_host;
  if (!is_file && device->driver->open_shared == NULL) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s can't share memory between processes", device->name);
  }
  if (shared->bytes <= 0 || shared->offset < 0 || is_file != (file >= 0) || (is_file && shared->offset != 0)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "%s: shared memory of %lld bytes at %lld with file %d: expected some bytes%s", device->name,
                          (long long)shared->bytes, (long long)shared->offset, file,
                          is_file ? " at 0 and a file" : " and no file");
  }
  return HR_OK;
}

hr_status hr_buffer_open(hr_device *device, const hr_shared *shared, int file, void (*release)(void *arg), void *arg,
                         hr_buffer **out_buffer) {
  HR_RETURN_IF_ERROR(check_shared(device, shared, file));
  shared_memory *memory = hr_calloc(1, sizeof *memory);
  if (memory == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory to open a shared buffer");
  }
  *memory = (shared_memory){.device = device, .bytes = (size_t)shared->bytes, .file = file};
  hr_status status = open_memory(memory, shared);
  if (status == HR_OK) {
    char *address = (char *)memory->base + shared->offset;
    status = hr__buffer_adopt(device, memory->bytes, address, &release_memory, memory, out_buffer);
    if (status == HR_OK) {
      memory->release = release;
      memory->arg = arg;
      return HR_OK;
    }
    unmap(memory);
  }
  hr_free(memory);
  return status;
}
