/* executable_bytes.c: programs as bytes: the program and the options that they were compiled from. Compiled code
 * belongs to the process's cache, which is on disk, too: a program that is read again compiles as fast as one that ran
 * before.
 *
 *   magic (8), the platform's version (64), size of the options (8), options, program
 */
#include <stdlib.h>
#include <string.h>

#include "executable.h"

typedef struct head {
  char magic[8], version[64];
  uint64_t options_size;
} head;

static const char magic[8] = "HRJAX\1\0";

static head head_of(size_t options_size) {
  head h = {.options_size = options_size};
  memcpy(h.magic, magic, sizeof magic);
  strncpy(h.version, hrj_platform_version(), sizeof h.version - 1);
  return h;
}

static void free_bytes(void *owned) {
  free(owned);
}

static void free_nothing(void *owned) {
  (void)owned;
}

pjrt_error *hrj_Executable_Serialize(pjrt_args_bytes *args) {
  const pjrt_executable *executable = args->self;
  const head h = head_of(executable->options_size);
  size_t size = sizeof h + executable->options_size + executable->code_size;
  char *bytes = malloc(size);
  if (bytes == NULL) {
    return hrj_error_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for a program of %zu bytes",
                          size);
  }
  memcpy(bytes, &h, sizeof h);
  memcpy(bytes + sizeof h, executable->options, executable->options_size);
  memcpy(bytes + sizeof h + executable->options_size, executable->code, executable->code_size);
  args->bytes = bytes, args->bytes_size = size;
  args->owned = bytes, args->free = free_bytes;
  return NULL;
}

pjrt_error *hrj_Executable_DeserializeAndLoad(pjrt_args_deserialize *args) {
  head h = {{0}};
  const head expected = head_of(0);
  bool has_head = args->bytes_size >= sizeof h;
  if (has_head) {
    memcpy(&h, args->bytes, sizeof h);
  }
  if (!has_head || memcmp(h.magic, magic, sizeof magic) != 0 || h.options_size > args->bytes_size - sizeof h) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": %zu bytes are no serialized program",
                          args->bytes_size);
  }
  if (memcmp(h.version, expected.version, sizeof h.version) != 0) {
    return hrj_error_make(HR_STATUS_FAILED_PRECONDITION, HRJ_PLATFORM ": a program of \"%.*s\", this is \"%s\"",
                          (int)sizeof h.version, h.version, expected.version);
  }
  const char *options = args->bytes + sizeof h, *code = options + h.options_size;
  size_t code_size = args->bytes_size - sizeof h - h.options_size, options_size = h.options_size;
  if (PJRT_HAS(args, options_size) && args->options != NULL) {
    options = args->options, options_size = args->options_size;
  }
  return hrj_compile(args->client, code, code_size, options, options_size, &args->executable);
}

pjrt_error *hrj_Client_Load(pjrt_args_load *args) {
  const pjrt_executable *from = args->executable;
  const bool has_options = args->options != NULL && args->options_size > 0;
  return hrj_compile(args->client, from->code, from->code_size, has_options ? args->options : from->options,
                     has_options ? args->options_size : from->options_size, &args->loaded);
}

pjrt_error *hrj_Executable_GetCompileOptions(pjrt_args_bytes *args) {
  const pjrt_executable *executable = args->self;
  args->bytes = executable->options, args->bytes_size = executable->options_size;
  args->owned = NULL, args->free = free_nothing;
  return NULL;
}

/* The program as it came: what runs is chosen when a stream commits it, with its neighbours. Of a program over several
 * devices that is divided among them, it is the program of one device, which the note has (headrace_jax/_shardings.py).
 */
pjrt_error *hrj_Executable_OptimizedProgram(pjrt_args_optimized *args) {
  const pjrt_executable *executable = args->executable;
  pjrt_program *program = args->program;
  const char *code = executable->device_count > 1 ? executable->main.note : executable->code;
  if (code == NULL) { /* XLA can't show the operations of its partitioner */
    return hrj_error_make(HR_STATUS_UNIMPLEMENTED, HRJ_PLATFORM ": the program over several devices has no text");
  }
  size_t size = executable->device_count > 1 ? strlen(code) : executable->code_size;
  program->format = "mlir", program->format_size = strlen("mlir");
  if (program->code == NULL) {
    program->code_size = size;
    return NULL;
  }
  if (program->code_size < size) {
    return hrj_error_make(HR_STATUS_INVALID_ARGUMENT, HRJ_PLATFORM ": %zu bytes for a program of %zu",
                          program->code_size, size);
  }
  memcpy(program->code, code, size);
  return NULL;
}
