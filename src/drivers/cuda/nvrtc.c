/* nvrtc.c: see nvrtc.h. Each compilation has its own program, which makes NVRTC thread-safe. */
#include "drivers/cuda/nvrtc.h"

#include <stdio.h>
#include <string.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/dynlib.h"
#include "base/places.h"
#include "base/vendor.h"

typedef struct nvrtc_program *nvrtcProgram;

enum { NVRTC_SUCCESS = 0, NVRTC_ERROR_OUT_OF_MEMORY = 1 };
enum { LOG_LINES = 8, LOG_BYTES = 800 }; /* of a compiler's log that go into a status */

typedef struct nvrtc_table {
#define NVRTC_SYMBOL(type, name, args) type(*name) args;
#include "drivers/cuda/nvrtc_symbols.def"
#undef NVRTC_SYMBOL
} nvrtc_table;

/* The library, once per process. */
typedef struct nvrtc_library {
  hr_vendor vendor;
  nvrtc_table table;
} nvrtc_library;

static void init_library(void *part) {
  hr__vendor_init(&((nvrtc_library *)part)->vendor);
}

static nvrtc_library *opened(void) {
  static const hr_context_part kind = {.bytes = sizeof(nvrtc_library), .init = init_library};
  return hr__context_part(&hr__context_first, HR_CONTEXT_NVRTC, &kind);
}

static const nvrtc_table *nvrtc(void) {
  return &opened()->table;
}

static const char *const names[] = {
#define NVRTC_SYMBOL(type, name, args) "nvrtc" #name,
#include "drivers/cuda/nvrtc_symbols.def"
#undef NVRTC_SYMBOL
};

enum { NAME_COUNT = sizeof names / sizeof *names };
_Static_assert(sizeof(nvrtc_table) == NAME_COUNT * sizeof(void *), "the table is an array of function pointers");

static hr_status nvrtc_status(int code, const char *what) {
  if (code == NVRTC_SUCCESS) {
    return HR_OK;
  }
  return hr_status_make(code == NVRTC_ERROR_OUT_OF_MEMORY ? HR_STATUS_RESOURCE_EXHAUSTED : HR_STATUS_INTERNAL,
                        "NVRTC: %s: %s", what, nvrtc()->GetErrorString(code));
}

/* NVRTC opens its second library by name when it first compiles. Opening it here first lets NVRTC find it even if the
 * folder is not in the loader's path; a failure is reported when it is needed. */
static void open_builtins(void) {
  int major, minor;
  char name[64];
  hr_dynlib library = {0};
  if (nvrtc()->Version(&major, &minor) == NVRTC_SUCCESS) {
    snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
    hr_status_ignore(hr_places_open_cuda((const char *const[]){name, NULL}, &library));
  }
}

static hr_status open_library(void) {
  static const char *const files[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", NULL};
  hr_dynlib library = {0};
  hr_status status = hr_places_open_cuda(files, &library);
  if (status != HR_OK) {
    return hr_status_annotate(status, "NVRTC (set HEADRACE_CUDA_LIBS to the folder of libnvrtc.so.13)");
  }
  void *addresses[NAME_COUNT];
  status = hr_dynlib_symbols(&library, NAME_COUNT, names, addresses);
  if (status != HR_OK) {
    hr_dynlib_close(&library);
    return hr_status_annotate(status, "NVRTC: version 11.2 or later is needed");
  }
  memcpy(&opened()->table, addresses, sizeof addresses);
  open_builtins();
  return HR_OK;
}

static hr_status open_once(void) {
  return hr__vendor_open(&opened()->vendor, open_library);
}

/* Truncates a log after its first lines. */
static void cut_log(char *log, size_t bytes) {
  size_t at = 0;
  for (int lines = 0; at < bytes && at < LOG_BYTES && log[at] != '\0' && lines < LOG_LINES; ++at) {
    lines += log[at] == '\n';
  }
  while (at > 0 && log[at - 1] == '\n') {
    --at;
  }
  log[at < bytes ? at : bytes - 1] = '\0';
}

/* NVRTC's log of a text that it rejected, as a status. */
static hr_status refusal(nvrtcProgram program, int code) {
  hr_status status = nvrtc_status(code, "compilation");
  size_t bytes = 0;
  if (nvrtc()->GetProgramLogSize(program, &bytes) != NVRTC_SUCCESS || bytes <= 1) {
    return status;
  }
  char *log = hr_calloc(bytes, 1);
  if (log != NULL && nvrtc()->GetProgramLog(program, log) == NVRTC_SUCCESS) {
    cut_log(log, bytes);
    hr_status with_log = hr_status_make(hr_status_code_of(status), "%s\n%s", hr_status_message(status), log);
    hr_status_free(status);
    status = with_log;
  }
  hr_free(log);
  return status;
}

static hr_status append_image(nvrtcProgram program, hr_text *out_image) {
  size_t bytes = 0;
  HR_RETURN_IF_ERROR(nvrtc_status(nvrtc()->GetCUBINSize(program, &bytes), "size of the cubin"));
  if (bytes == 0) {
    return hr_status_make(HR_STATUS_INTERNAL, "NVRTC: the compilation gave no cubin");
  }
  char *image = hr_malloc(bytes);
  if (image == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cuda: no host memory for a cubin of %zu bytes", bytes);
  }
  hr_status status = nvrtc_status(nvrtc()->GetCUBIN(program, image), "cubin");
  if (status == HR_OK) {
    (void)hr_text_append_bytes(out_image, image, bytes);
    status = hr_text_status(out_image);
  }
  hr_free(image);
  return status;
}

enum { OPTIONS = 4 };

static void make_options(int architecture, char target[48], const char *options[OPTIONS]) {
  snprintf(target, 48, "--gpu-architecture=sm_%d", architecture);
  options[0] = target, options[1] = "--fmad=false", options[2] = "--std=c++17";
  options[3] = "--device-as-default-execution-space";
}

hr_status hr__nvrtc_name(int architecture, hr_text *out_name) {
  char target[48];
  const char *options[OPTIONS];
  int major = 0, minor = 0;
  HR_RETURN_IF_ERROR(open_once());
  HR_RETURN_IF_ERROR(nvrtc_status(nvrtc()->Version(&major, &minor), "version"));
  make_options(architecture, target, options);
  hr_text_printf(out_name, "nvrtc %d.%d", major, minor);
  for (int i = 0; i < OPTIONS; ++i) {
    hr_text_printf(out_name, " %s", options[i]);
  }
  return hr_text_status(out_name);
}

static hr_status compile_program(nvrtcProgram program, int architecture, hr_text *out_image) {
  char target[48];
  const char *options[OPTIONS];
  make_options(architecture, target, options);
  int code = nvrtc()->CompileProgram(program, OPTIONS, options);
  return code != NVRTC_SUCCESS ? refusal(program, code) : append_image(program, out_image);
}

hr_status hr__nvrtc_compile(int architecture, const char *text, size_t length, hr_text *out_image) {
  HR_RETURN_IF_ERROR(open_once());
  char *terminated = hr_malloc(length + 1);
  if (terminated == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cuda: no host memory for a text of %zu bytes", length);
  }
  memcpy(terminated, text, length);
  terminated[length] = '\0';
  nvrtcProgram program = NULL;
  hr_status status = nvrtc_status(nvrtc()->CreateProgram(&program, terminated, "kernel.cu", 0, NULL, NULL), "program");
  if (status == HR_OK) {
    status = compile_program(program, architecture, out_image);
    (void)nvrtc()->DestroyProgram(&program);
  }
  hr_free(terminated);
  return status;
}
