/* dnnl_api.c: finds oneDNN at run time. See dnnl_api.h. */
#include "providers/onednn/dnnl_api.h"

#include <string.h>

#include "base/dynlib.h"
#include "base/env.h"
#include "base/log.h"

static void init_library(void *part) {
  hr__vendor_init(&((hr__dnnl_library *)part)->vendor);
}

const hr_context_part hr__dnnl_library_kind = {.bytes = sizeof(hr__dnnl_library), .init = init_library};

static const char *const names[] = {
#define DNNL_SYMBOL(type, name, args) "dnnl_" #name,
#include "providers/onednn/dnnl_symbols.def"
#undef DNNL_SYMBOL
};

hr_status hr__dnnl_status(int code, const char *what) {
  if (code == DNNL_SUCCESS) {
    return NULL;
  }
  hr_status_code canonical = code == DNNL_OUT_OF_MEMORY   ? HR_STATUS_RESOURCE_EXHAUSTED
                             : code == DNNL_UNIMPLEMENTED ? HR_STATUS_UNIMPLEMENTED
                                                          : HR_STATUS_INTERNAL;
  return hr_status_make(canonical, "oneDNN: %s: status %d", what, code);
}

static hr_status open_library(hr_dynlib *out_library) {
  const char *path = hr_env_text(HR_ENV_ONEDNN);
  if (path[0] != 0) {
    return hr_dynlib_open(path, out_library);
  }
  hr_status status = hr_dynlib_open("libdnnl.so.3", out_library);
  if (status != NULL) {
    return hr_status_annotate(status, "oneDNN (set HEADRACE_ONEDNN to the path of libdnnl.so.3)");
  }
  return NULL;
}

hr_status hr__dnnl_open(void) {
  hr_dynlib library = {0};
  HR_RETURN_IF_ERROR(open_library(&library));
  void *addresses[sizeof names / sizeof *names];
  hr_status status = hr_dynlib_symbols(&library, sizeof names / sizeof *names, names, addresses);
  if (status != NULL) {
    hr_dynlib_close(&library);
    return hr_status_annotate(status, "oneDNN: version 3 is needed");
  }
  memcpy(&hr__dnnl_opened()->table, addresses, sizeof addresses);
  return hr__dnnl_status(hr__dnnl()->engine_create(&hr__dnnl_opened()->engine, DNNL_CPU, 0), "engine");
}
