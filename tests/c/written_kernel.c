#include "written_kernel.h"

#include <string.h>

#include "base/dynlib.h"
#include "base/hash.h"
#include "base/integer.h"
#include "base/vector.h"
#include "compiler/emit_device.h"
#include "device_emulator.h"
#include "drivers/cuda/nvrtc.h"
#include "engine/host_compiler.h"

enum { ALIGNMENT = 64, CANARY = 0xFF };

/* ---- on the host ---- */

/* Each text that was compiled, until the process ends. */
typedef struct compiled {
  uint64_t hash;
  hr_dynlib library;
} compiled;

static HR_VECTOR(compiled) libraries;

static hr_status compile_emulated(const hr_text *source, hr_dynlib *out_library) {
  hr_text text = {0}, path = {0};
  hr_status status = hr_emit_device_prelude(HR_DEVICE_TEXT_EMULATED, &text);
  if (status == HR_OK) {
    hr_text_append_bytes(&text, source->data, source->length);
    status = hr_text_status(&text);
  }
  if (status == HR_OK) {
    status = hr__host_compile(NULL, text.data, text.length, hr__emulated_flags, &path);
  }
  if (status == HR_OK) {
    status = hr_dynlib_open(hr_text_chars(&path), out_library);
    hr__host_compiler_remove(hr_text_chars(&path));
  }
  hr_text_fini(&text);
  hr_text_fini(&path);
  return status;
}

static hr_status find_library(const hr_text *source, hr_dynlib *out_library) {
  compiled made = {.hash = hr_hash_bytes(HR_HASH_SEED, source->data, source->length)};
  for (size_t i = 0; i < libraries.count; ++i) {
    if (libraries.data[i].hash == made.hash) {
      *out_library = libraries.data[i].library;
      return HR_OK;
    }
  }
  HR_RETURN_IF_ERROR(compile_emulated(source, &made.library));
  *out_library = made.library;
  return hr_vector_push(&libraries, made) ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory");
}

hr_status hr__written_create(const hr_provider *provider, const hr_program *program, const hr_node *node,
                             hr_host_kernel **out_kernel) {
  hr_device_source source;
  hr_dynlib library;
  HR_RETURN_IF_ERROR(provider->write(program, node, &source));
  hr_status status = find_library(&source.text, &library);
  if (status == HR_OK) {
    status = hr__emulated_create_written(&library, &source, node->input_count + node->output_count, node->scalar_count,
                                         out_kernel);
  }
  hr_text_fini(&source.text);
  return status;
}

hr_status hr__written_run(const hr_host_kernel *kernel, void *const *args, const hr_scalar *scalars) {
  size_t bytes = hr_align_up(kernel->workspace_bytes + ALIGNMENT, ALIGNMENT), at = kernel->workspace_bytes;
  unsigned char *workspace = hr_aligned_malloc(bytes, ALIGNMENT);
  if (workspace == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no %zu bytes of workspace", bytes);
  }
  memset(workspace, CANARY, bytes);
  hr_host_call call = {.args = args, .scalars = scalars, .workspace = workspace};
  for (int pass = 0; pass < kernel->pass_count; ++pass) {
    kernel->run(kernel, pass, &call, 0, 1);
  }
  while (at < bytes && workspace[at] == CANARY) {
    ++at;
  }
  hr_aligned_free(workspace);
  return at == bytes ? HR_OK
                     : hr_status_make(HR_STATUS_INTERNAL, "byte %zu of %zu of workspace was written", at,
                                      kernel->workspace_bytes);
}

/* ---- for CUDA devices ---- */

hr_status hr__written_compile(const hr_provider *provider, const hr_program *program, int architecture,
                              bool *out_is_there) {
  hr_device_source source;
  hr_text text = {0}, image = {0};
  HR_RETURN_IF_ERROR(provider->write(program, &program->nodes[0], &source));
  hr_status status = hr_emit_device_prelude(HR_DEVICE_TEXT_CUDA, &text);
  if (status == HR_OK) {
    hr_text_append_bytes(&text, source.text.data, source.text.length);
    status = hr_text_status(&text);
  }
  if (status == HR_OK) {
    status = hr__nvrtc_compile(architecture, text.data, text.length, &image);
  }
  *out_is_there = hr_status_code_of(status) != HR_STATUS_NOT_FOUND;
  if (status == HR_OK && image.length == 0) {
    status = hr_status_make(HR_STATUS_INTERNAL, "NVRTC gave no code");
  }
  if (!*out_is_there) {
    hr_status_ignore(status);
    status = HR_OK;
  }
  hr_text_fini(&image);
  hr_text_fini(&text);
  hr_text_fini(&source.text);
  return status;
}
