#include "engine/compiled_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/dynlib.h"
#include "base/refcount.h"

struct hr_library {
  hr_refcount refcount;
  hr_dynlib dynlib;
};

typedef struct compiled_kernel {
  hr_host_kernel base;
  hr_library *library;
  hr_compiled_pass functions[HR_HOST_KERNEL_PASS_MAX];
  hr_host_pass passes[HR_HOST_KERNEL_PASS_MAX];
  int64_t extents[HR_EMISSION_EXTENTS];
  char title[];
} compiled_kernel;

hr_status hr__library_open_file(int file, hr_library **out_library) {
  hr_library *library = hr_calloc(1, sizeof *library);
  if (library == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a compiled library");
  }
  hr_refcount_init(&library->refcount);
  hr_status status = hr_dynlib_open_file(file, &library->dynlib);
  if (status != HR_OK) {
    hr_free(library);
    return status;
  }
  *out_library = library;
  return HR_OK;
}

hr_status hr__library_open(const char *path, hr_library **out_library) {
  int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "library \"%s\": %s", path, strerror(errno));
  }
  hr_status status = hr__library_open_file(file, out_library);
  close(file);
  return status;
}

void hr__library_release(hr_library *library) {
  if (library != NULL && hr_refcount_release(&library->refcount)) {
    hr_dynlib_close(&library->dynlib);
    hr_free(library);
  }
}

static void run(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  const compiled_kernel *compiled = (const compiled_kernel *)kernel;
  compiled->functions[pass](call->args, call->scalars, compiled->extents, call->workspace, call->scratch, begin, end);
}

static void destroy(hr_host_kernel *kernel) {
  compiled_kernel *compiled = (compiled_kernel *)kernel;
  hr__library_release(compiled->library);
  hr_free(compiled);
}

bool hr__kernel_is_compiled(const hr_host_kernel *kernel) {
  return kernel->run == run;
}

hr_compiled_pass hr__compiled_kernel_pass(const hr_host_kernel *kernel, int pass, const int64_t **out_extents) {
  const compiled_kernel *compiled = (const compiled_kernel *)kernel;
  if (!hr__kernel_is_compiled(kernel)) {
    return NULL;
  }
  *out_extents = compiled->extents;
  return compiled->functions[pass];
}

hr_status hr__compiled_kernel_create(hr_library *library, const char *name, const hr_emission *emission,
                                     const char *title, int64_t bytes, hr_host_kernel **out_kernel) {
  size_t length = strlen(title);
  compiled_kernel *kernel = hr_calloc(1, sizeof *kernel + length + 1);
  if (kernel == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for kernel %s", title);
  }
  memcpy(kernel->title, title, length + 1);
  memcpy(kernel->extents, emission->extents, sizeof kernel->extents);
  kernel->base = (hr_host_kernel){.name = kernel->title,
                                  .pass_count = emission->pass_count,
                                  .passes = kernel->passes,
                                  .workspace_bytes = emission->workspace_bytes,
                                  .scratch_bytes = emission->scratch_bytes,
                                  .bytes = bytes,
                                  .piece = emission->piece,
                                  .run = run,
                                  .destroy = destroy};
  for (int pass = 0; pass < emission->pass_count; ++pass) {
    char symbol[128];
    void *address;
    snprintf(symbol, sizeof symbol, "%s_%d", name, pass);
    hr_status status = hr_dynlib_symbol(&library->dynlib, symbol, &address);
    if (status != HR_OK) {
      hr_free(kernel);
      return status;
    }
    memcpy(&kernel->functions[pass], &address, sizeof address);
    kernel->passes[pass] = (hr_host_pass){emission->units[pass], emission->grain[pass]};
  }
  hr_refcount_retain(&library->refcount);
  kernel->library = library;
  *out_kernel = &kernel->base;
  return HR_OK;
}
