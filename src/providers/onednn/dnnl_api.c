/* dnnl_api.c: finds oneDNN at run time. See dnnl_api.h. */
#include "providers/onednn/dnnl_api.h"

#include <string.h>

#include "base/dynlib.h"
#include "base/log.h"
#include "base/places.h"

static void init_library(void *part) {
  hr__dnnl_library *library = part;
  hr__vendor_init(&library->vendor);
  hr_mutex_init(&library->answers.mutex);
  hr_mutex_init(&library->primitives.mutex);
}

const hr_context_part hr__dnnl_library_kind = {.bytes = sizeof(hr__dnnl_library), .init = init_library};

static const char *const names[] = {
#define DNNL_SYMBOL(type, name, args) "dnnl_" #name,
#include "providers/onednn/dnnl_symbols.def"
#undef DNNL_SYMBOL
};

hr_status hr__dnnl_status(int code, const char *what) {
  if (code == DNNL_SUCCESS) {
    return HR_OK;
  }
  hr_status_code canonical = code == DNNL_OUT_OF_MEMORY   ? HR_STATUS_RESOURCE_EXHAUSTED
                             : code == DNNL_UNIMPLEMENTED ? HR_STATUS_UNIMPLEMENTED
                                                          : HR_STATUS_INTERNAL;
  return hr_status_make(canonical, "oneDNN: %s: status %d", what, code);
}

/* Everything works without oneDNN, but slowly, so the log gives the reason. */
static hr_status open_library(hr_dynlib *out_library) {
  hr_text path = {0};
  hr_status status = hr_places_open(&hr_place_onednn, &path, out_library);
  hr_log(HR_LOG_DEVICE, "oneDNN: %s", status == HR_OK ? hr_text_chars(&path) : hr_status_message(status));
  hr_text_fini(&path);
  if (status != HR_OK) {
    hr_log_once("oneDNN could not be loaded (%s): matrix products and convolutions run slowly. `pip install "
                "onednn-cpu-gomp` brings it; HEADRACE_ONEDNN names another libdnnl.so.3",
                hr_status_message(status));
  }
  return status;
}

hr_status hr__dnnl_open(void) {
  hr_dynlib library = {0};
  HR_RETURN_IF_ERROR(open_library(&library));
  void *addresses[sizeof names / sizeof *names];
  hr_status status = hr_dynlib_symbols(&library, sizeof names / sizeof *names, names, addresses);
  if (status != HR_OK) {
    hr_dynlib_close(&library);
    return hr_status_annotate(status, "oneDNN: version 3 is needed");
  }
  memcpy(&hr__dnnl_opened()->table, addresses, sizeof addresses);
  return hr__dnnl_status(hr__dnnl()->engine_create(&hr__dnnl_opened()->engine, DNNL_CPU, 0), "engine");
}
