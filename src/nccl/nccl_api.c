/* nccl_api.c: finds NCCL at run time. See nccl_api.h. */
#include "nccl/nccl_api.h"

#include <string.h>

#include "base/dynlib.h"
#include "base/env.h"
#include "base/log.h"
#include "base/places.h"

typedef struct nccl_library {
  hr_vendor vendor; /* first */
  hr__nccl_table table;
} nccl_library;

static void init_library(void *part) {
  hr__vendor_init(&((nccl_library *)part)->vendor);
}

static nccl_library *opened(void) {
  static const hr_context_part kind = {.bytes = sizeof(nccl_library), .init = init_library};
  return hr__context_part(&hr__context_first, HR_CONTEXT_NCCL, &kind);
}

static const char *const symbols[] = {
#define NCCL_SYMBOL(type, name, args) "nccl" #name,
#include "nccl/nccl_symbols.def"
#undef NCCL_SYMBOL
};
_Static_assert(sizeof(hr__nccl_table) == sizeof symbols, "a table of functions alone");

static hr_status find_symbols(hr_dynlib *library, void **addresses) {
  static const char *const names[] = {"libnccl.so.2", NULL};
  const char *given = hr_env_text(HR_ENV_NCCL);
  HR_RETURN_IF_ERROR(given[0] != '\0' ? hr_dynlib_open(given, library) : hr_places_open_cuda(names, library));
  return hr_dynlib_symbols(library, sizeof symbols / sizeof *symbols, symbols, addresses);
}

static hr_status open_library(void) {
  hr_dynlib library = {0};
  void *addresses[sizeof symbols / sizeof *symbols];
  hr_status status = find_symbols(&library, addresses);
  if (status != HR_OK) {
    hr_status unavailable = hr_status_make(
        HR_STATUS_UNAVAILABLE, "NCCL 2 (set HEADRACE_NCCL to the library's path): %s", hr_status_message(status));
    hr_status_free(status);
    hr_dynlib_close(&library);
    return unavailable;
  }
  memcpy(&opened()->table, addresses, sizeof addresses);
  int version = 0;
  HR_RETURN_IF_ERROR(hr__nccl_status(hr__nccl()->GetVersion(&version), "its version"));
  hr_log(HR_LOG_DEVICE, "NCCL %d", version);
  return HR_OK;
}

hr_status hr__nccl_open(void) {
  return hr__vendor_open(&opened()->vendor, open_library);
}

const hr__nccl_table *hr__nccl(void) {
  return &opened()->table;
}

hr_status hr__nccl_status(int result, const char *what) {
  if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) {
    return HR_OK;
  }
  return hr_status_make(HR_STATUS_UNAVAILABLE, "NCCL: %s: %s (%d)", what, hr__nccl()->GetErrorString(result), result);
}
