/* program_runner.c: see program_runner.h. */
#include "program_runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/host_compiler.h"
#include "interp/interp.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HIDE(memory, bytes) __asan_poison_memory_region(memory, bytes)
#define SHOW(memory, bytes) __asan_unpoison_memory_region(memory, bytes)
#else
#define HIDE(memory, bytes) (void)(memory)
#define SHOW(memory, bytes) (void)(memory)
#endif

enum { ALIGNMENT = 64 };

static size_t whole_lines(size_t bytes) {
  return (bytes / ALIGNMENT + 1) * ALIGNMENT;
}

void *hr__exact_alloc(size_t bytes) {
  char *memory = aligned_alloc(ALIGNMENT, whole_lines(bytes));
  HIDE(memory + bytes, whole_lines(bytes) - bytes);
  return memory;
}

void hr__exact_free(void *memory, size_t bytes) {
  if (memory != NULL) {
    SHOW((char *)memory + bytes, whole_lines(bytes) - bytes);
    free(memory);
  }
}

void **hr__memory_copy(const hr_program *program, void *const *memory) {
  void **copy = calloc((size_t)program->buffer_count + 1, sizeof *copy);
  for (int b = 0; b < program->buffer_count; ++b) {
    size_t bytes = program->buffers[b].bytes;
    copy[b] = hr__exact_alloc(bytes);
    memcpy(copy[b], memory[b], bytes);
  }
  return copy;
}

void hr__memory_free(const hr_program *program, void **memory) {
  for (int b = 0; b < program->buffer_count; ++b) {
    hr__exact_free(memory[b], program->buffers[b].bytes);
  }
  free(memory);
}

/* ---- running ---- */

typedef struct run {
  const hr_schedule *schedule;
  void **memory;
  char *arena;
  const hr_scalar *arguments;
  hr__run_options options;
} run;

static void run_kernel(const run *r, const hr_host_kernel *host, void **args, const hr_scalar *scalars) {
  hr_host_call call = {.args = args,
                       .scalars = scalars,
                       .workspace = hr__exact_alloc(host->workspace_bytes),
                       .scratch = hr__exact_alloc(host->scratch_bytes)};
  memset(call.workspace, 0x7f, host->workspace_bytes);
  for (int pass = 0; pass < host->pass_count; ++pass) {
    int64_t units = host->passes[pass].units, step = r->options.cut > 0 ? r->options.cut : units,
            ranges = step > 0 ? (units + step - 1) / step : 0;
    for (int64_t k = 0; k < ranges; ++k) {
      int64_t begin = (r->options.is_reversed ? ranges - 1 - k : k) * step;
      memset(call.scratch, 0x7f, host->scratch_bytes);
      host->run(host, pass, &call, begin, begin + step < units ? begin + step : units);
    }
  }
  hr__exact_free(call.workspace, host->workspace_bytes);
  hr__exact_free(call.scratch, host->scratch_bytes);
}

static void *address_of(const run *r, uint32_t buffer) {
  const hr_place *place = &r->schedule->places[buffer];
  return place->kind == HR_PLACE_ARENA   ? r->arena + place->offset
         : place->kind == HR_PLACE_BOUND ? r->memory[buffer]
                                         : NULL;
}

static hr_status run_step(const run *r, const hr_kernel *kernel) {
  hr_host_kernel *own = NULL;
  const hr_host_kernel *host = r->options.host != NULL ? r->options.host(r->options.host_ctx, kernel) : NULL;
  if (host == NULL) {
    HR_RETURN_IF_ERROR(hr_interp_create(kernel, &own));
    host = own;
  }
  void **args = calloc((size_t)kernel->arg_count + 1, sizeof *args);
  hr_scalar *scalars = calloc((size_t)kernel->scalar_count + 1, sizeof *scalars);
  for (int a = 0; a < kernel->arg_count; ++a) {
    args[a] = address_of(r, kernel->args[a].buffer);
  }
  for (int s = 0; s < kernel->scalar_count; ++s) {
    const hr_program_scalar *scalar = &r->schedule->program.scalars[kernel->scalars[s]];
    scalars[s] = scalar->is_constant ? scalar->value : r->arguments[scalar->argument];
  }
  run_kernel(r, host, args, scalars);
  if (own != NULL) {
    own->destroy(own);
  }
  free(args);
  free(scalars);
  return HR_OK;
}

static hr_status run_check(const run *r, const hr_node *node) {
  const hr_operand *x = &node->inputs[0];
  int64_t worst;
  memcpy(&worst, (char *)address_of(r, x->index) + x->offset * (int64_t)sizeof worst, sizeof worst);
  return worst == INT64_MIN ? HR_OK
                            : hr_status_make(HR_STATUS_OUT_OF_RANGE, "index %lld not in [%lld, %lld)", (long long)worst,
                                             (long long)node->ints[0], (long long)node->ints[1]);
}

static bool keeps_products(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return node->op == HR_OP_MATMUL && node->epilogue_count == 0;
}

/* A product that the compiler did not lower: computed directly on its operands. */
static hr_status run_product(const run *r, int n) {
  const hr_program *program = &r->schedule->program;
  hr_program single;
  HR_RETURN_IF_ERROR(hr__single_node(program, n, &single));
  hr__to_stream_form(&single);
  void **memory = calloc((size_t)program->buffer_count + 1, sizeof *memory);
  for (int b = 0; b < program->buffer_count; ++b) {
    memory[b] = address_of(r, (uint32_t)b);
  }
  hr_status status = hr__run_interpreted(&single, memory, r->arguments, (hr__run_options){0});
  free(memory);
  hr_program_fini(&single);
  return status;
}

static void count_grown(const hr_program *program, const hr_program *compiled, int64_t *grown) {
  for (int b = 0; grown != NULL && b < program->buffer_count; ++b) {
    *grown += compiled->buffers[b].bytes > program->buffers[b].bytes;
  }
}

static hr_status compile(const hr_program *program, const hr_target *target, hr__run_options options,
                         hr_schedule *out_schedule) {
  bool is_repeated = false;
  if (options.repeated != NULL) {
    HR_RETURN_IF_ERROR(hr_compile_repeats(program, target, out_schedule, &is_repeated));
    *options.repeated += is_repeated;
  }
  return is_repeated ? HR_OK : hr_compile(program, target, out_schedule);
}

hr_status hr__run_interpreted(const hr_program *program, void **memory, const hr_scalar *arguments,
                              hr__run_options options) {
  hr_target target = {.verify = true,
                      .resident_row_bytes = options.resident_row_bytes,
                      .recompute_bytes = options.recompute_bytes,
                      .keeps = options.row_alignment > 0 ? keeps_products : NULL,
                      .row_alignment = options.row_alignment,
                      .split_bytes = options.split_bytes > 0   ? options.split_bytes
                                     : options.split_terms > 0 ? INT64_MAX
                                                               : 0,
                      .split_terms = options.split_terms,
                      .depth_work = options.depth_work};
  hr_schedule schedule;
  HR_RETURN_IF_ERROR(compile(program, &target, options, &schedule));
  count_grown(program, &schedule.program, options.grown);
  run r = {&schedule, memory, hr__exact_alloc(schedule.arena_bytes), arguments, options};
  memset(r.arena, 0x7f, schedule.arena_bytes);
  hr_status status = HR_OK;
  for (int s = 0; s < schedule.step_count && status == HR_OK; ++s) {
    const hr_step *step = &schedule.steps[s];
    if (step->kind == HR_STEP_KERNEL) {
      status = run_step(&r, step->kernel);
    } else if (step->kind == HR_STEP_CHECK) {
      status = run_check(&r, step->node);
    } else {
      status = run_product(&r, (int)(step->node - schedule.program.nodes));
    }
  }
  hr__exact_free(r.arena, schedule.arena_bytes);
  hr_schedule_fini(&schedule);
  return status;
}

/* ---- parts of programs ---- */

static hr_status part_of(const hr_program *program, int copies, hr_program *out_program) {
  bool ok = true;
  hr_program_init(out_program);
  for (int copy = 0; copy < copies; ++copy) {
    for (int b = 0; b < program->buffer_count; ++b) {
      ok &= hr_program_add_buffer(out_program, program->buffers[b].bytes, false, false) != UINT32_MAX;
    }
  }
  for (int s = 0; s < program->scalar_count; ++s) {
    const hr_program_scalar *scalar = &program->scalars[s];
    ok &= (scalar->is_constant ? hr_program_add_constant(out_program, scalar->value)
                               : hr_program_add_argument(out_program, scalar->dtype)) != UINT32_MAX;
  }
  out_program->bound_count = out_program->buffer_count;
  return ok ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a part of a program");
}

hr_status hr__single_node(const hr_program *program, int n, hr_program *out_program) {
  HR_RETURN_IF_ERROR(part_of(program, 1, out_program));
  return hr_program_append(out_program, &program->nodes[n])
             ? HR_OK
             : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a node");
}

hr_status hr__detached_node(const hr_program *program, int n, hr_program *out_program) {
  HR_RETURN_IF_ERROR(part_of(program, 2, out_program));
  hr_node node = program->nodes[n];
  hr_operand *inputs = calloc((size_t)node.input_count + 1, sizeof *inputs);
  for (int i = 0; i < node.input_count; ++i) {
    inputs[i] = node.inputs[i];
    inputs[i].index += inputs[i].kind == HR_OPERAND_VALUE ? (uint32_t)program->buffer_count : 0;
  }
  node.inputs = inputs;
  bool ok = hr_program_append(out_program, &node);
  free(inputs);
  return ok ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a node");
}

void hr__to_stream_form(hr_program *program) {
  for (int n = 0; n < program->node_count; ++n) {
    hr_node *node = &program->nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      hr_node_operand(node, i)->version = 0;
    }
  }
  for (int b = 0; b < program->buffer_count; ++b) {
    program->buffers[b].versions = 0;
  }
  program->is_value_form = false;
}

/* ---- comparing ---- */

static bool same_element(hr_dtype dtype, const char *a, const char *b) {
  size_t size = hr_dtype_size(dtype);
  if (memcmp(a, b, size) == 0) {
    return true;
  }
  if (dtype == HR_DTYPE_F64) {
    double x, y;
    memcpy(&x, a, size), memcpy(&y, b, size);
    return x != x && y != y;
  }
  float x = 0, y = 0;
  uint16_t p, q;
  if (dtype == HR_DTYPE_F32) {
    memcpy(&x, a, size), memcpy(&y, b, size);
  } else if (dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_BF16) {
    memcpy(&p, a, size), memcpy(&q, b, size);
    x = dtype == HR_DTYPE_F16 ? hr_f16_to_f32(p) : hr_bf16_to_f32(p);
    y = dtype == HR_DTYPE_F16 ? hr_f16_to_f32(q) : hr_bf16_to_f32(q);
  } else if (hr_dtype_is_float8(dtype)) {
    x = hr_f8_to_f32(dtype, *(const uint8_t *)a), y = hr_f8_to_f32(dtype, *(const uint8_t *)b);
  }
  return x != x && y != y;
}

static bool is_same_memory(const generated *g, uint64_t seed, const char *what, void *const *a, void *const *b) {
  for (int i = 0; i < g->buffer_count; ++i) {
    hr_dtype whole = g->dtypes[i];
    hr_dtype dtype = whole == HR_DTYPE_C64 ? HR_DTYPE_F32 : whole == HR_DTYPE_C128 ? HR_DTYPE_F64 : whole;
    size_t size = hr_dtype_size(dtype);
    for (size_t at = 0; at + size <= g->bytes[i]; at += size) {
      if (!same_element(dtype, (char *)a[i] + at, (char *)b[i] + at)) {
        hr_text text = {0};
        hr_status_ignore(hr_program_print(&g->program, &text));
        fprintf(stderr, "%s\n", hr_text_chars(&text));

        fprintf(stderr, "interpreted, compiled:");
        for (size_t n = 0; n < size; ++n) {
          fprintf(stderr, " %02x %02x", ((unsigned char *)a[i])[at + n], ((unsigned char *)b[i])[at + n]);
        }
        fprintf(stderr, "\nseed %llu: %s: buffer %%%d, element %zu\n", (unsigned long long)seed, what, i, at / size);
        hr_text_fini(&text);
        return false;
      }
    }
  }
  return true;
}

bool hr__runs_alike(const generated *g, uint64_t seed, const char *what, hr__run_options options) {
  hr__run_options plain = options;
  plain.host = NULL;
  void **a = hr__memory_copy(&g->program, g->memory), **c = hr__memory_copy(&g->program, g->memory);
  hr_status interpreted = hr__run_interpreted(&g->program, a, g->arguments, plain);
  hr_status compiled = hr__run_interpreted(&g->program, c, g->arguments, options);
  bool is_same = hr_status_code_of(interpreted) == hr_status_code_of(compiled);
  if (!is_same) {
    fprintf(stderr, "seed %llu: %s: \"%s\" interpreted, \"%s\" compiled\n", (unsigned long long)seed, what,
            hr_status_message(interpreted), hr_status_message(compiled));
  }
  is_same = is_same && is_same_memory(g, seed, what, a, c);
  hr_status_free(interpreted);
  hr_status_free(compiled);
  hr__memory_free(&g->program, a);
  hr__memory_free(&g->program, c);
  return is_same;
}

/* ---- settings ---- */

bool hr__has_compiler(void) {
  hr_host_compiler compiler;
  hr_status status = hr__host_compiler_find(0, &compiler);
  bool has = status == HR_OK;
  if (!has) {
    printf("not tested: %s\n", hr_status_message(status));
  }
  hr_status_free(status);
  return has;
}

bool hr__has_emulator(void) {
#if defined(__SANITIZE_THREAD__)
  printf("not tested: texts of devices, under the thread sanitizer\n");
  return false;
#else
  return hr__has_compiler();
#endif
}

long hr__setting(const char *name, long value) {
  const char *text = getenv(name);
  return text != NULL ? atol(text) : value;
}
