/* extensions.c: the lists of functions beside the table: layouts and shardings.
 *
 * Clients that find none of these read the optimized program in their place, for each program that they compile.
 */
#include <string.h>

#include "executable.h"
#include "profiler.h"

/* ---- layouts ---- */

/* Layouts live as long as the process. */
static pjrt_error *destroy_layout(pjrt_args_self *args) {
  (void)args;
  return NULL;
}

static void free_nothing(void *owned) {
  (void)owned;
}

static pjrt_error *serialize_layout(pjrt_args_bytes *args) {
  const pjrt_memory_layout *layout = args->self;
  args->bytes = layout->text, args->bytes_size = strlen(layout->text);
  args->owned = NULL, args->free = free_nothing;
  return NULL;
}

static pjrt_error *default_layout(pjrt_args_default_layout *args) {
  args->layout = hrj_layout_row_major((int)args->rank);
  return NULL;
}

static pjrt_error *buffer_layout(pjrt_args_pointer *args) {
  args->pointer = (void *)(uintptr_t)((pjrt_buffer *)args->self)->layout;
  return NULL;
}

static pjrt_error *output_layouts(pjrt_args_counted *args) {
  args->count = (size_t)args->executable->main.output_count, args->list = args->executable->output_layouts;
  return NULL;
}

static pjrt_error *input_layouts(pjrt_args_counted *args) {
  args->count = (size_t)args->executable->main.input_count, args->list = args->executable->input_layouts;
  return NULL;
}

/* ---- shardings ---- */

static pjrt_error *input_shardings(pjrt_args_kinds *args) {
  args->count = (size_t)args->executable->main.input_count;
  args->kinds = (const char *const *)args->executable->input_shardings; /* NULL: there is one device */
  args->kind_sizes = args->executable->input_sharding_sizes;
  return NULL;
}

static pjrt_error *output_shardings(pjrt_args_kinds *args) {
  args->count = (size_t)args->executable->main.output_count;
  args->kinds = args->count > 0 ? (const char *const *)args->executable->output_shardings : NULL;
  args->kind_sizes = args->executable->output_sharding_sizes;
  return NULL;
}

/* ---- the lists ---- */

typedef struct extension {
  size_t struct_size;
  int type;
  void *next;
  pjrt_function functions[7];
} extension;

enum { LAYOUTS = 4, SHARDINGS = 19 };
#define SIZE_OF(count) (offsetof(extension, functions) + (count) * sizeof(pjrt_function))

static extension shardings = {.struct_size = SIZE_OF(2),
                              .type = SHARDINGS,
                              .functions = {(pjrt_function)input_shardings, (pjrt_function)output_shardings}};
static extension layouts = {.struct_size = SIZE_OF(7),
                            .type = LAYOUTS,
                            .next = &shardings,
                            .functions = {(pjrt_function)destroy_layout, (pjrt_function)serialize_layout,
                                          (pjrt_function)default_layout, (pjrt_function)buffer_layout,
                                          (pjrt_function)default_layout, (pjrt_function)output_layouts,
                                          (pjrt_function)input_layouts}};

void *hrj_extensions(void) {
  return hrj_profiler_extension(&layouts);
}
