/* cuda_api.c: finds the CUDA driver at run time. See cuda_api.h. */
#include "drivers/cuda/cuda_api.h"

#include <string.h>

#include "base/dynlib.h"
#include "base/gpu_model.h"

static void init_library(void *part) {
  hr__cuda_library *library = part;
  hr__vendor_init(&library->vendor);
  hr_mutex_init(&library->openings_mutex);
}

const hr_context_part hr__cuda_library_kind = {.bytes = sizeof(hr__cuda_library), .init = init_library};

static const char *const names[] = {
#define CUDA_SYMBOL(name, args) #name,
#include "drivers/cuda/cuda_symbols.def"
#undef CUDA_SYMBOL
};

static const char *const more_names[] = {
#define CUDA_SYMBOL(name, args) #name,
#include "drivers/cuda/cuda_graph_symbols.def"
/* after the graph functions */
#include "drivers/cuda/cuda_edge_symbols.def"
#undef CUDA_SYMBOL
};

/* Sections of the table: required functions first, then those that may be missing. */
enum {
  NAME_COUNT = sizeof names / sizeof *names,
  MORE_COUNT = sizeof more_names / sizeof *more_names,
  GRAPH_NAME_COUNT = MORE_COUNT - 1
};
_Static_assert(sizeof(hr__cuda_table) == (NAME_COUNT + MORE_COUNT) * sizeof(void *),
               "the table is an array of function pointers");

hr_status hr__cuda_status(int code, const char *what) {
  if (code == CUDA_SUCCESS) {
    return HR_OK;
  }
  const char *name = NULL, *text = NULL;
  if (hr__cuda()->cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL) {
    name = "unknown error";
  }
  if (hr__cuda()->cuGetErrorString(code, &text) != CUDA_SUCCESS || text == NULL) {
    text = "no description";
  }
  hr_status_code canonical = code == CUDA_ERROR_OUT_OF_MEMORY   ? HR_STATUS_RESOURCE_EXHAUSTED
                             : code == CUDA_ERROR_NO_DEVICE     ? HR_STATUS_NOT_FOUND
                             : code == CUDA_ERROR_NOT_SUPPORTED ? HR_STATUS_UNIMPLEMENTED
                                                                : HR_STATUS_INTERNAL;
  return hr_status_make(canonical, "cuda: %s: %s (%d): %s", what, name, code, text);
}

static hr_status load_library(void) {
  hr_dynlib library = {0};
  HR_RETURN_IF_ERROR(hr_dynlib_open("libcuda.so.1", &library));
  void *addresses[NAME_COUNT + MORE_COUNT] = {0};
  hr_status status = hr_dynlib_symbols(&library, NAME_COUNT, names, addresses);
  if (status != HR_OK) {
    hr_dynlib_close(&library);
    return hr_status_annotate(status, "cuda: a driver for CUDA 11 or later is needed");
  }
  for (int i = 0; i < MORE_COUNT; ++i) {
    hr_status_ignore(hr_dynlib_symbol(&library, more_names[i], &addresses[NAME_COUNT + i]));
  }
  memcpy(&hr__cuda_opened()->table, addresses, sizeof addresses);
  return HR_OK;
}

bool hr__cuda_has_graphs(void) {
  void *addresses[NAME_COUNT + MORE_COUNT];
  bool has_all = true;
  memcpy(addresses, hr__cuda(), sizeof addresses);
  for (int i = 0; i < GRAPH_NAME_COUNT; ++i) {
    has_all &= addresses[NAME_COUNT + i] != NULL;
  }
  return has_all;
}

static hr_status open_library(void) {
  int count = 0;
  if (hr__gpu_model() != NULL) {
    hr__cuda_opened()->table = hr__cuda_model_table;
    hr__cuda_opened()->device_count = 1;
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(load_library());
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda()->cuInit(0), "cuInit"));
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda()->cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (count < 1) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "cuda: the driver shows no device");
  }
  hr__cuda_opened()->device_count = count;
  return HR_OK;
}

hr_status hr__cuda_open(int *out_count) {
  hr__cuda_library *library = hr__cuda_opened();
  hr_status status = hr__vendor_open(&library->vendor, open_library);
  *out_count = library->device_count;
  return status;
}

void hr__cuda_replace(const hr__cuda_table *table, int count) {
  hr__cuda_library *library = hr__cuda_opened();
  library->device_count = table != NULL ? count : 0;
  if (table != NULL) {
    library->table = *table;
  }
  hr__vendor_set(&library->vendor, table != NULL);
}
