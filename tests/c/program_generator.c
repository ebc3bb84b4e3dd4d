/* program_generator.c: see program_generator.h. */
#include "program_generator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "interp/interp.h"

enum { BUFFERS_MAX = 64, TENSORS_MAX = 96, DIM_POOL = 10 };

typedef struct tensor {
  hr_operand operand;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  bool is_writable; /* no element twice */
} tensor;

typedef struct maker {
  uint64_t state;
  generated *g;
  int64_t base[3];
  tensor tensors[TENSORS_MAX];
  int tensor_count, argument_count;
} maker;

static uint64_t next(maker *m) {
  m->state ^= m->state << 13;
  m->state ^= m->state >> 7;
  m->state ^= m->state << 17;
  return m->state;
}

static int pick(maker *m, int count) {
  return (int)(next(m) % (uint64_t)count);
}

static double uniform(maker *m) {
  return (double)(next(m) >> 11) / 9007199254740992.0;
}

static void store_element(hr_dtype dtype, void *to, double value) {
  switch (dtype) {
    case HR_DTYPE_BOOL:
      *(uint8_t *)to = value > 0;
      break;
    case HR_DTYPE_U8:
      *(uint8_t *)to = (uint8_t)(int)(value * 20 + 64);
      break;
    case HR_DTYPE_I32:
      *(int32_t *)to = (int32_t)(value * 20);
      break;
    case HR_DTYPE_I64:
      *(int64_t *)to = (int64_t)(value * 20);
      break;
    case HR_DTYPE_F16:
      *(uint16_t *)to = hr_f32_to_f16((float)value);
      break;
    case HR_DTYPE_BF16:
      *(uint16_t *)to = hr_f32_to_bf16((float)value);
      break;
    case HR_DTYPE_F32:
      *(float *)to = (float)value;
      break;
    default:
      *(double *)to = value;
      break;
  }
}

static double special(maker *m) {
  switch (pick(m, 40)) {
    case 0:
      return INFINITY;
    case 1:
      return -INFINITY;
    case 2:
      return NAN;
    case 3:
      return -0.0;
    default:
      return uniform(m) * 6 - 3;
  }
}

/* A new buffer of dtype with `count` elements; contents are random. */
static uint32_t add_buffer(maker *m, hr_dtype dtype, int64_t count, bool is_dead, bool is_fresh) {
  generated *g = m->g;
  size_t size = hr_dtype_size(dtype), bytes = (size_t)count * size;
  uint32_t b = hr_program_add_buffer(&g->program, bytes, is_dead, is_fresh);
  g->bytes[b] = bytes;
  g->dtypes[b] = dtype;
  g->memory[b] = calloc(1, bytes + 64);
  bool specials = pick(m, 4) == 0;
  for (int64_t i = 0; i < count; ++i) {
    store_element(dtype, (char *)g->memory[b] + (size_t)i * size, specials ? special(m) : uniform(m) * 6 - 3);
  }
  g->buffer_count = (int)b + 1;
  return b;
}

static tensor *add_tensor(maker *m, uint32_t buffer, hr_dtype dtype, int rank, const int64_t *dims,
                          const int64_t *strides, int64_t offset, bool is_writable) {
  if (m->tensor_count == TENSORS_MAX) {
    m->tensor_count = TENSORS_MAX / 2; /* forget the younger half */
  }
  tensor *t = &m->tensors[m->tensor_count++];
  memset(t, 0, sizeof *t);
  memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
  memcpy(t->strides, strides, (size_t)rank * sizeof *strides);
  t->operand.kind = HR_OPERAND_VALUE;
  t->operand.dtype = dtype;
  t->operand.index = buffer;
  t->operand.rank = rank;
  t->operand.offset = offset;
  t->operand.fill = HR_NO_SCALAR;
  t->operand.dims = t->dims;
  t->operand.strides = t->strides;
  t->is_writable = is_writable;
  return t;
}

static tensor *add_dense(maker *m, hr_dtype dtype, int rank, const int64_t *dims, bool is_dead, bool is_fresh) {
  int64_t strides[HR_RANK_MAX], count = 1;
  for (int d = rank - 1; d >= 0; --d) {
    strides[d] = count;
    count *= dims[d];
  }
  return add_tensor(m, add_buffer(m, dtype, count, is_dead, is_fresh), dtype, rank, dims, strides, 0, true);
}

/* A view of the base shape on a larger buffer: sliced, stepped, transposed or reversed. */
static void add_strange(maker *m, hr_dtype dtype) {
  int64_t strides[3], count = 1, offset = 0;
  int order[3] = {0, 1, 2}, a = pick(m, 3), b = pick(m, 3), swap = order[a];
  order[a] = order[b], order[b] = swap;
  for (int k = 2; k >= 0; --k) {
    int d = order[k];
    int step = 1 + pick(m, 2);
    strides[d] = count * step;
    count *= m->base[d] * step + pick(m, 2);
    if (pick(m, 5) == 0) {
      offset += strides[d] * (m->base[d] - 1);
      strides[d] = -strides[d];
    }
  }
  add_tensor(m, add_buffer(m, dtype, count + 8, false, false), dtype, 3, m->base, strides, offset + pick(m, 8), true);
}

static hr_dtype random_dtype(maker *m) {
  static const hr_dtype pool[] = {HR_DTYPE_F32,  HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F64, HR_DTYPE_F16,
                                  HR_DTYPE_BF16, HR_DTYPE_I64, HR_DTYPE_I32, HR_DTYPE_U8,  HR_DTYPE_BOOL};
  return pool[pick(m, (int)(sizeof pool / sizeof *pool))];
}

static hr_operand scalar_operand(maker *m) {
  hr_operand operand = {.kind = HR_OPERAND_SCALAR, .dtype = HR_DTYPE_F64, .fill = HR_NO_SCALAR};
  operand.index = hr_program_add_argument(&m->g->program, HR_DTYPE_F64);
  m->g->arguments[m->argument_count++] = hr_scalar_f64(floor(uniform(m) * 16 - 8) / 4);
  return operand;
}

static hr_operand random_input(maker *m, bool is_real) {
  if (pick(m, 6) == 0) {
    return scalar_operand(m);
  }
  for (int tries = 0; tries < 20; ++tries) {
    const tensor *t = &m->tensors[pick(m, m->tensor_count)];
    if (!is_real || hr_dtype_is_real(t->operand.dtype)) {
      return t->operand;
    }
  }
  return m->tensors[0].operand;
}

/* A tensor of the base shape to write to: fresh, or one that exists. */
static hr_operand output_tensor(maker *m, hr_dtype dtype) {
  if (pick(m, 3) == 0) {
    for (int tries = 0; tries < 12; ++tries) {
      const tensor *t = &m->tensors[pick(m, m->tensor_count)];
      if (t->is_writable && t->operand.dtype == dtype && t->operand.rank == 3 &&
          memcmp(t->dims, m->base, sizeof m->base) == 0) {
        return t->operand;
      }
    }
  }
  return add_dense(m, dtype, 3, m->base, pick(m, 2) == 0, true)->operand;
}

static void append(maker *m, hr_op op, int input_count, hr_operand *inputs, hr_operand output, int int_count,
                   const int64_t *ints, uint32_t scalar_base, int scalar_count) {
  hr_node node = {.op = op,
                  .input_count = input_count,
                  .inputs = inputs,
                  .output_count = 1,
                  .outputs = &output,
                  .int_count = int_count,
                  .ints = ints,
                  .scalar_base = scalar_base,
                  .scalar_count = scalar_count};
  (void)hr_program_append(&m->g->program, &node);
}

static void add_pointwise(maker *m) {
  static const hr_op pool[] = {HR_OP_ADD,     HR_OP_SUB,   HR_OP_MUL,    HR_OP_DIV,        HR_OP_MAXIMUM,
                               HR_OP_EXP,     HR_OP_TANH,  HR_OP_SQRT,   HR_OP_ABS,        HR_OP_NEG,
                               HR_OP_SIGMOID, HR_OP_ERF,   HR_OP_RELU,   HR_OP_COPY,       HR_OP_ADDCMUL,
                               HR_OP_LERP,    HR_OP_CLAMP, HR_OP_GELU,   HR_OP_ADD_SCALED, HR_OP_LOG,
                               HR_OP_FLOOR,   HR_OP_SIN,   HR_OP_SQUARE, HR_OP_RECIPROCAL, HR_OP_POW};
  hr_op op = pool[pick(m, (int)(sizeof pool / sizeof *pool))];
  static const int arity[] = {2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 3, 3, 1, 3, 1, 1, 1, 1, 1, 2};
  int count = 1;
  for (size_t k = 0; k < sizeof pool / sizeof *pool; ++k) {
    count = pool[k] == op ? arity[k] : count;
  }
  hr_dtype dtype = pick(m, 5) == 0 ? HR_DTYPE_F64 : pick(m, 5) == 0 ? HR_DTYPE_BF16 : HR_DTYPE_F32;
  hr_operand inputs[4];
  for (int i = 0; i < count; ++i) {
    inputs[i] = random_input(m, false);
  }
  append(m, op, count, inputs, output_tensor(m, op == HR_OP_COPY ? random_dtype(m) : dtype), 0, NULL, 0, 0);
}

static void add_comparison(maker *m) {
  static const hr_op pool[] = {HR_OP_LT, HR_OP_GE, HR_OP_EQ, HR_OP_LOGICAL_AND};
  hr_operand inputs[3] = {random_input(m, false), random_input(m, false)};
  hr_operand mask = output_tensor(m, HR_DTYPE_BOOL);
  append(m, pool[pick(m, 4)], 2, inputs, mask, 0, NULL, 0, 0);
  inputs[0] = mask, inputs[1] = random_input(m, true), inputs[2] = random_input(m, true);
  append(m, HR_OP_WHERE, 3, inputs, output_tensor(m, HR_DTYPE_F32), 0, NULL, 0, 0);
}

static hr_operand full_tensor(maker *m) {
  for (int tries = 0; tries < 40; ++tries) {
    const tensor *t = &m->tensors[pick(m, m->tensor_count)];
    if (t->operand.rank == 3 && memcmp(t->dims, m->base, sizeof m->base) == 0 && hr_dtype_is_real(t->operand.dtype)) {
      return t->operand;
    }
  }
  return add_dense(m, HR_DTYPE_F32, 3, m->base, false, false)->operand;
}

static void add_reduction(maker *m) {
  static const hr_op pool[] = {HR_OP_SUM, HR_OP_SUM, HR_OP_AMAX, HR_OP_AMIN, HR_OP_MEAN};
  int64_t mask = 1 + pick(m, 7), dims[3];
  hr_operand x = full_tensor(m);
  for (int d = 0; d < 3; ++d) {
    dims[d] = (mask >> d & 1) ? 1 : m->base[d];
  }
  hr_dtype dtype = x.dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  append(m, pool[pick(m, 5)], 1, &x, add_dense(m, dtype, 3, dims, pick(m, 2) == 0, true)->operand, 1, &mask, 0, 0);
}

static void add_rows(maker *m) {
  hr_operand inputs[3] = {full_tensor(m)};
  int64_t dim = pick(m, 3);
  hr_operand out = output_tensor(m, inputs[0].dtype);
  if (pick(m, 2) == 0) {
    append(m, pick(m, 2) ? HR_OP_SOFTMAX : HR_OP_LOG_SOFTMAX, 1, inputs, out, 1, &dim, 0, 0);
    return;
  }
  int64_t trailing = 1 + pick(m, 2);
  hr_operand eps = scalar_operand(m);
  m->g->arguments[m->argument_count - 1] = hr_scalar_f64(1e-5);
  append(m, HR_OP_LAYER_NORM, 1, inputs, out, 1, &trailing, eps.index, 1);
}

hr_status hr__generate_program(uint64_t seed, int node_count, generated *g) {
  static const int64_t pool[DIM_POOL] = {1, 2, 3, 5, 8, 17, 33, 64, 100, 1};
  maker m = {.state = seed * 0x9e3779b97f4a7c15ull + 0x1234567, .g = g};
  memset(g, 0, sizeof *g);
  hr_program_init(&g->program);
  g->bytes = calloc(BUFFERS_MAX + 4 * (size_t)node_count, sizeof *g->bytes);
  g->dtypes = calloc(BUFFERS_MAX + 4 * (size_t)node_count, sizeof *g->dtypes);
  g->memory = calloc(BUFFERS_MAX + 4 * (size_t)node_count, sizeof *g->memory);
  g->arguments = calloc(8 * (size_t)node_count + 8, sizeof *g->arguments);
  next(&m);
  for (int d = 0; d < 3; ++d) {
    m.base[d] = pool[pick(&m, DIM_POOL)];
  }
  if (pick(&m, 6) == 0) {
    m.base[2] = 1000 + pick(&m, 9000);
    m.base[1] = 1 + pick(&m, 3);
    m.base[0] = 1 + pick(&m, 3);
  }
  for (int k = 0; k < 3; ++k) {
    add_dense(&m, k == 0 ? HR_DTYPE_F32 : random_dtype(&m), 3, m.base, false, false);
    add_strange(&m, k == 0 ? HR_DTYPE_F32 : random_dtype(&m));
  }
  add_dense(&m, HR_DTYPE_F32, 1, &m.base[2], false, false);
  int64_t column[3] = {m.base[0], 1, 1};
  add_dense(&m, HR_DTYPE_F32, 3, column, false, false);
  for (int n = 0; n < node_count; ++n) {
    int kind = pick(&m, 10);
    if (kind < 6) {
      add_pointwise(&m);
    } else if (kind < 7) {
      add_comparison(&m);
    } else if (kind < 9) {
      add_reduction(&m);
    } else {
      add_rows(&m);
    }
  }
  g->program.bound_count = g->program.buffer_count;
  return NULL;
}

void hr__generated_fini(generated *g) {
  for (int b = 0; b < g->buffer_count; ++b) {
    free(g->memory[b]);
  }
  free(g->memory);
  free(g->bytes);
  free(g->dtypes);
  free(g->arguments);
  hr_program_fini(&g->program);
}

void **hr__memory_copy(const generated *g) {
  void **memory = calloc((size_t)g->buffer_count + 1, sizeof *memory);
  for (int b = 0; b < g->buffer_count; ++b) {
    memory[b] = aligned_alloc(64, (g->bytes[b] + 127) / 64 * 64);
    memcpy(memory[b], g->memory[b], g->bytes[b]);
  }
  return memory;
}

void hr__memory_free(const generated *g, void **memory) {
  for (int b = 0; b < g->buffer_count; ++b) {
    free(memory[b]);
  }
  free(memory);
}

/* ---- running ---- */

static void run_kernel(const hr_host_kernel *host, void **args, const hr_scalar *scalars, int64_t cut) {
  size_t workspace = (host->workspace_bytes + 127) / 64 * 64, scratch = (host->scratch_bytes + 127) / 64 * 64;
  hr_host_call call = {.args = args,
                       .scalars = scalars,
                       .workspace = aligned_alloc(64, workspace),
                       .scratch = aligned_alloc(64, scratch)};
  for (int pass = 0; pass < host->pass_count; ++pass) {
    int64_t step = cut > 0 ? cut : host->units[pass];
    for (int64_t begin = 0; begin < host->units[pass]; begin += step) {
      int64_t end = begin + step < host->units[pass] ? begin + step : host->units[pass];
      memset(call.scratch, 0x7f, scratch);
      host->run(host, pass, &call, begin, end);
    }
  }
  free(call.workspace);
  free(call.scratch);
}

static hr_status run_step(const hr_schedule *schedule, const hr_kernel *kernel, void **memory, char *arena,
                          const hr_scalar *arguments, int64_t cut) {
  hr_host_kernel *host = NULL;
  HR_RETURN_IF_ERROR(hr_interp_create(kernel, &host));
  void **args = calloc((size_t)kernel->arg_count + 1, sizeof *args);
  hr_scalar *scalars = calloc((size_t)kernel->scalar_count + 1, sizeof *scalars);
  for (int a = 0; a < kernel->arg_count; ++a) {
    uint32_t buffer = kernel->args[a].buffer;
    const hr_place *place = &schedule->places[buffer];
    args[a] = place->kind == HR_PLACE_ARENA   ? arena + place->offset
              : place->kind == HR_PLACE_BOUND ? memory[buffer]
                                              : NULL;
  }
  for (int s = 0; s < kernel->scalar_count; ++s) {
    const hr_program_scalar *scalar = &schedule->program.scalars[kernel->scalars[s]];
    scalars[s] = scalar->is_constant ? scalar->value : arguments[scalar->argument];
  }
  run_kernel(host, args, scalars, cut);
  host->destroy(host);
  free(args);
  free(scalars);
  return NULL;
}

hr_status hr__run_interpreted(const hr_program *program, void **memory, const hr_scalar *arguments, int64_t cut) {
  hr_target target = {.verify = true};
  hr_schedule schedule;
  HR_RETURN_IF_ERROR(hr_compile(program, &target, &schedule));
  char *arena = aligned_alloc(64, (schedule.arena_bytes + 127) / 64 * 64);
  memset(arena, 0x7f, schedule.arena_bytes);
  hr_status status = NULL;
  for (int s = 0; s < schedule.step_count && status == NULL; ++s) {
    if (schedule.steps[s].kind == HR_STEP_KERNEL) {
      status = run_step(&schedule, schedule.steps[s].kernel, memory, arena, arguments, cut);
    }
  }
  free(arena);
  hr_schedule_fini(&schedule);
  return status;
}

hr_status hr__single_node_program(const hr_program *program, int n, hr_program *out_program) {
  hr_program_init(out_program);
  for (int b = 0; b < program->buffer_count; ++b) {
    (void)hr_program_add_buffer(out_program, program->buffers[b].bytes, false, false);
  }
  for (int s = 0; s < program->scalar_count; ++s) {
    if (program->scalars[s].is_constant) {
      (void)hr_program_add_constant(out_program, program->scalars[s].value);
    } else {
      (void)hr_program_add_argument(out_program, program->scalars[s].dtype);
    }
  }
  out_program->bound_count = out_program->buffer_count;
  (void)hr_program_append(out_program, &program->nodes[n]);
  return NULL;
}
