/* interp_testing.h: kernels written by hand, for the tests and benchmarks of the code that runs them.
 *
 *   kernel_maker m;
 *   make_begin(&m, 2, (int64_t[]){64, 1000}, 1u << 1, 0);
 *   int x = make_arg(&m), y = make_arg(&m);
 *   int r = make_load(&m, 0, x, HR_DTYPE_F32, 0, (int64_t[]){1000, 1});
 *   make_store(&m, 0, y, HR_DTYPE_F32, 0, (int64_t[]){1000, 1}, r);
 *   const hr_kernel *kernel = make_end(&m);
 *
 * Levels follow from the registers: an instruction that reads only row registers is a row instruction.
 */
#ifndef HEADRACE_INTERP_INTERP_TESTING_H_
#define HEADRACE_INTERP_INTERP_TESTING_H_

#include <string.h>

#include "core/ir/kernel.h"
#include "core/ops/op.h"
#include "headrace/op.h"

enum { MAKE_MAX = 96, MAKE_BOUNDS = 4 };

typedef struct kernel_maker {
  hr_kernel kernel;
  int64_t dims[HR_RANK_MAX];
  int64_t strides[MAKE_MAX][HR_RANK_MAX], bound_strides[MAKE_MAX][MAKE_BOUNDS][HR_RANK_MAX];
  hr_bound bounds[MAKE_MAX][MAKE_BOUNDS];
  hr_kernel_term terms[MAKE_MAX][MAKE_BOUNDS];
  hr_kernel_arg args[MAKE_MAX];
  uint32_t scalars[MAKE_MAX];
  hr_access accesses[MAKE_MAX];
  hr_instr instrs[MAKE_MAX];
  hr_register registers[MAKE_MAX];
} kernel_maker;

/* A scalar as a source: make_op(..., MAKE_SCALAR(0)). */
#define MAKE_SCALAR(i) (-1 - (i))

static inline void make_begin(kernel_maker *m, int rank, const int64_t *dims, uint32_t reduce_mask,
                              uint32_t ordered_mask) {
  memset(m, 0, sizeof *m);
  memcpy(m->dims, dims, (size_t)rank * sizeof *dims);
  m->kernel = (hr_kernel){.name = "test",
                          .rank = rank,
                          .dims = m->dims,
                          .reduce_mask = reduce_mask,
                          .ordered_mask = ordered_mask,
                          .order = hr_kernel_order(rank, dims, reduce_mask),
                          .args = m->args,
                          .scalars = m->scalars,
                          .accesses = m->accesses,
                          .instrs = m->instrs,
                          .registers = m->registers};
}

static inline int make_arg(kernel_maker *m) {
  m->args[m->kernel.arg_count] = (hr_kernel_arg){.buffer = (uint32_t)m->kernel.arg_count};
  return m->kernel.arg_count++;
}

static inline int make_scalar(kernel_maker *m) {
  m->scalars[m->kernel.scalar_count] = (uint32_t)m->kernel.scalar_count;
  return MAKE_SCALAR(m->kernel.scalar_count++);
}

static inline int make_access(kernel_maker *m, int arg, hr_dtype dtype, int64_t offset, const int64_t *strides) {
  int a = m->kernel.access_count++;
  memcpy(m->strides[a], strides, (size_t)m->kernel.rank * sizeof *strides);
  m->accesses[a] = (hr_access){.arg = arg,
                               .dtype = dtype,
                               .offset = offset,
                               .strides = m->strides[a],
                               .terms = m->terms[a],
                               .bounds = m->bounds[a],
                               .fill = -1};
  return a;
}

static inline int make_register(kernel_maker *m, hr_class cls, hr_level level, int phase) {
  m->registers[m->kernel.register_count] = (hr_register){cls, level, phase, phase};
  return m->kernel.register_count++;
}

static inline hr_instr *make_instr(kernel_maker *m, hr_instr_kind kind, hr_level level, int phase) {
  hr_instr *instr = &m->instrs[m->kernel.instr_count++];
  *instr = (hr_instr){.kind = kind, .level = level, .phase = phase, .dst = -1, .access = -1};
  m->kernel.phase_count = phase >= m->kernel.phase_count ? phase + 1 : m->kernel.phase_count;
  return instr;
}

static inline void make_use(kernel_maker *m, hr_instr *instr, int source) {
  instr->sources[instr->source_count++] =
      source < 0 ? (hr_source){HR_SOURCE_SCALAR, -1 - source} : (hr_source){HR_SOURCE_REGISTER, source};
  if (source >= 0 && m->registers[source].last_phase < instr->phase) {
    m->registers[source].last_phase = instr->phase;
  }
}

/* Adds a bound to the last access, a load or store. */
static inline void make_bound(kernel_maker *m, int64_t offset, const int64_t *strides, int64_t extent) {
  int a = m->kernel.access_count - 1, b = m->accesses[a].bound_count++;
  memcpy(m->bound_strides[a][b], strides, (size_t)m->kernel.rank * sizeof *strides);
  m->bounds[a][b] = (hr_bound){offset, extent, m->bound_strides[a][b]};
}

static inline void make_term(kernel_maker *m, int reg, int64_t stride, int64_t extent) {
  int a = m->kernel.access_count - 1;
  m->terms[a][m->accesses[a].term_count++] = (hr_kernel_term){reg, stride, extent};
}

static inline int make_load_at(kernel_maker *m, hr_level level, int phase, int arg, hr_dtype dtype, int64_t offset,
                               const int64_t *strides) {
  hr_instr *instr = make_instr(m, arg < 0 ? HR_INSTR_INDEX : HR_INSTR_LOAD, level, phase);
  instr->access = make_access(m, arg, dtype, offset, strides);
  instr->cls = hr_dtype_class(dtype);
  if (arg >= 0) {
    m->args[arg].is_read = true;
  }
  instr->dst = make_register(m, instr->cls, level, phase);
  return instr->dst;
}

static inline int make_load(kernel_maker *m, int phase, int arg, hr_dtype dtype, int64_t offset,
                            const int64_t *strides) {
  return make_load_at(m, HR_LEVEL_ELEMENT, phase, arg, dtype, offset, strides);
}

static inline int make_index(kernel_maker *m, int phase, int64_t offset, const int64_t *strides) {
  return make_load_at(m, HR_LEVEL_ELEMENT, phase, -1, HR_DTYPE_I64, offset, strides);
}

static inline hr_level make_level(const kernel_maker *m, int count, const int *sources) {
  hr_level level = m->kernel.reduce_mask != 0 ? HR_LEVEL_ROW : HR_LEVEL_ELEMENT;
  for (int s = 0; s < count; ++s) {
    level = sources[s] >= 0 && m->registers[sources[s]].level == HR_LEVEL_ELEMENT ? HR_LEVEL_ELEMENT : level;
  }
  return level;
}

static inline int make_op(kernel_maker *m, int phase, hr_op op, hr_class cls, int count, const int *sources) {
  hr_instr *instr = make_instr(m, HR_INSTR_COMPUTE, make_level(m, count, sources), phase);
  instr->op = op, instr->cls = cls;
  for (int s = 0; s < count; ++s) {
    make_use(m, instr, sources[s]);
  }
  instr->dst = make_register(m, hr_op_result_class(op, cls), instr->level, phase);
  return instr->dst;
}

static inline int make_op1(kernel_maker *m, int phase, hr_op op, hr_class cls, int a) {
  return make_op(m, phase, op, cls, 1, &a);
}

static inline int make_op2(kernel_maker *m, int phase, hr_op op, hr_class cls, int a, int b) {
  return make_op(m, phase, op, cls, 2, (int[]){a, b});
}

static inline int make_convert(kernel_maker *m, int phase, int source, hr_dtype to) {
  hr_instr *instr = make_instr(m, HR_INSTR_CONVERT, make_level(m, 1, &source), phase);
  instr->cls = m->registers[source].cls, instr->to = to;
  make_use(m, instr, source);
  instr->dst = make_register(m, hr_dtype_class(to), instr->level, phase);
  return instr->dst;
}

static inline int make_reduce(kernel_maker *m, int phase, hr_op op, hr_class cls, int source) {
  hr_instr *instr = make_instr(m, HR_INSTR_REDUCE, HR_LEVEL_ELEMENT, phase);
  instr->op = op, instr->cls = cls;
  make_use(m, instr, source);
  instr->dst = make_register(m, cls, HR_LEVEL_ROW, phase);
  return instr->dst;
}

static inline int make_argreduce(kernel_maker *m, int phase, hr_op op, hr_class cls, int key, int index) {
  hr_instr *instr = make_instr(m, HR_INSTR_ARGREDUCE, HR_LEVEL_ELEMENT, phase);
  instr->op = op, instr->cls = cls;
  make_use(m, instr, key);
  make_use(m, instr, index);
  instr->dst = make_register(m, HR_CLASS_I64, HR_LEVEL_ROW, phase);
  return instr->dst;
}

static inline hr_instr *make_store(kernel_maker *m, int phase, int arg, hr_dtype dtype, int64_t offset,
                                   const int64_t *strides, int source) {
  hr_level level = make_level(m, 1, &source);
  hr_instr *instr = make_instr(m, HR_INSTR_STORE, level, phase);
  instr->access = make_access(m, arg, dtype, offset, strides);
  instr->cls = hr_dtype_class(dtype), instr->to = dtype;
  m->args[arg].is_written = true;
  make_use(m, instr, source);
  return instr;
}

static inline const hr_kernel *make_end(kernel_maker *m) {
  return &m->kernel;
}

#endif
