/* Kernels for devices of many threads: which thread does what. Warps have 32 threads that step together.
 *
 *   element-wise          a thread an element
 *   ordered (scatter)     a thread for all elements that differ in ordered dims alone, one after the other
 *   sequential rows       a thread a row: neighbouring rows lie side by side
 *   rows of lanes         a warp a row: thread t has lanes t and t + 32, so the tree by halves begins in the thread and goes on by
 *                         shuffles
 *   ... of several chunks a block a row, a warp a chunk; results of chunks go through the workspace
 *   only reductions       of several chunks in few rows: pass 0 a warp (a thread, where sequential) a chunk, pass 1 the rest
 *
 * A value of an element that a later phase needs is computed again there. Where something was stored in between, and memory may be
 * the same under two arguments, it is kept in the workspace instead.
 */
#include "compiler/emit_device.h"

#include <stdio.h>
#include <string.h>

#include "compiler/emit_internal.h"

enum { WARP = 32, THREADS = 256, ROW_THREADS = 128, SPLIT_ROWS = 4096 };

static const char *const cuda_prelude =
    "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\ntypedef short int16_t;\n"
    "typedef unsigned short uint16_t;\ntypedef int int32_t;\ntypedef unsigned int uint32_t;\n"
    "typedef long long int64_t;\ntypedef unsigned long long uint64_t;\n"
    "#define INT32_MIN (-2147483647 - 1)\n#define INT32_MAX 2147483647\n#define UINT32_MAX 4294967295u\n"
    "#define INT64_MAX 9223372036854775807ll\n#define INT64_MIN (-INT64_MAX - 1)\n"
    "#define UINT64_MAX 18446744073709551615ull\n"
    "#define __builtin_inff() __int_as_float(0x7f800000)\n#define __builtin_nanf(text) __int_as_float(0x7fc00000)\n"
    "#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)\n"
    "#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000ll)\n#define INFINITY __builtin_inff()\n"
    "#define __builtin_fmaf(a, b, c) __fmaf_rn(a, b, c)\n#define __builtin_fma(a, b, c) __fma_rn(a, b, c)\n"
    "#define __builtin_sqrtf(x) __fsqrt_rn(x)\n#define __builtin_sqrt(x) __dsqrt_rn(x)\n"
    "#define __builtin_floorf(x) floorf(x)\n#define __builtin_ceilf(x) ceilf(x)\n#define __builtin_truncf(x) "
    "truncf(x)\n"
    "#define __builtin_rintf(x) rintf(x)\n#define __builtin_fmodf(a, b) fmodf(a, b)\n"
    "#define __builtin_floor(x) floor(x)\n#define __builtin_ceil(x) ceil(x)\n#define __builtin_trunc(x) trunc(x)\n"
    "#define __builtin_rint(x) rint(x)\n#define __builtin_fabs(x) fabs(x)\n"
    "#define __builtin_copysign(x, y) copysign(x, y)\n#define restrict __restrict__\n#define HR_VMATH_DEVICE\n"
    "#define HR_VMATH_FN static __device__ __forceinline__\n#define HR_KERNEL extern \"C\" __global__\n"
    "struct hr_c64 { float re, im; };\nstruct hr_c128 { double re, im; };\n"
    "struct hr_scalar { int dtype; union { int64_t i; double f[2]; } value; };\n"
    "#define HR_CALL(type) const struct type call\n#define HR_BLOCK ((int64_t)blockIdx.x)\n#define HR_THREAD "
    "((int)threadIdx.x)\n#define HR_WARP 32\n"
    "#define HR_LANE (HR_THREAD % 32)\n#define HR_UNROLL _Pragma(\"unroll\")\n"
    "#define HR_BARRIER __syncthreads()\n#define HR_WARP_BARRIER __syncwarp()\n"
    "HR_VMATH_FN void hr_shuffle(uint32_t *word, int count, int lane) {\n"
    "#pragma unroll\n  for (int i = 0; i < count; ++i) { word[i] = __shfl_sync(0xffffffffu, word[i], lane); }\n}\n";

static const char *const emulated_prelude =
    "#define HR_VMATH_DEVICE\n#define HR_CALL(type) const struct type *const hr_call\n#define call (*hr_call)\n"
    "#define HR_BLOCK hr_block\n#define HR_THREAD hr_thread\n#define HR_WARP 32\n"
    "#define HR_LANE (HR_THREAD % 32)\n#define HR_UNROLL\n"
    "#define HR_BARRIER hr_wait(1)\n#define HR_WARP_BARRIER hr_wait(0)\n"
    "HR_KERNEL int64_t hr_block;\nHR_KERNEL int hr_thread;\nHR_KERNEL void (*hr_wait)(int all);\n"
    "static uint32_t hr_words[1024][8];\n"
    "static inline void hr_shuffle(uint32_t *word, int count, int lane) {\n"
    "  for (int i = 0; i < count; ++i) { hr_words[hr_thread][i] = word[i]; }\n  hr_wait(0);\n"
    "  for (int i = 0; i < count; ++i) { word[i] = hr_words[hr_thread / 32 * 32 + lane][i]; }\n  hr_wait(0);\n}\n";

static const char *const common_prelude =
    "#define HR_SHUFFLE(x, lane) { union { T v; uint32_t w[(sizeof(T) + 3) / 4]; } u; u.v = x; "
    "hr_shuffle(u.w, (int)(sizeof u.w / 4), lane); x = u.v; }\n"
    "#define HR_SHUFFLE_AS(type, x, lane) { union { type v; uint32_t w[(sizeof(type) + 3) / 4]; } u; u.v = x; "
    "hr_shuffle(u.w, (int)(sizeof u.w / 4), lane); x = u.v; }\n"
    "HR_VMATH_FN int hr_is_inside(int64_t index, int64_t extent) {\n"
    "  index = index < 0 ? index + extent : index;\n  return extent <= 0 || (index >= 0 && index < extent);\n}\n";

hr_status hr_emit_device_prelude(hr_device_text target, hr_text *out_text) {
  if (target == HR_DEVICE_TEXT_CUDA) {
    hr_text_append(out_text, cuda_prelude);
  } else {
    hr__emit_c_words(out_text);
    hr_text_append(out_text, emulated_prelude);
  }
  hr__emit_core_text(out_text);
  hr_text_append(out_text, common_prelude);
  return hr_text_status(out_text);
}

/* ---- the parts of a kernel ---- */

typedef struct device {
  hr__emitter *e;
  const char *name;
  int64_t rows, elements, chunks;
  bool is_long;    /* indices need 64 bits */
  int64_t *spills; /* by register: where its values of all elements are in the workspace; -1: computed again */
  int64_t *parts;  /* by instruction: where results of chunks are, and behind them indices */
  int64_t workspace;
} device;

static const char *index_type(const device *d) {
  return d->is_long ? "int64_t" : "int";
}

static int64_t reserve(device *d, int64_t bytes) {
  int64_t offset = d->workspace;
  d->workspace += (bytes + 63) & ~(int64_t)63;
  return offset;
}

static int64_t count_of(const hr_dims *dims) {
  int64_t count = 1;
  for (int k = 0; k < dims->rank; ++k) {
    count *= dims->dims[k];
  }
  return count;
}

static int64_t reach(int64_t offset, const int64_t *strides, const hr_kernel *kernel) {
  int64_t most = offset < 0 ? -offset : offset;
  for (int k = 0; k < kernel->rank; ++k) {
    int64_t way = (kernel->dims[k] - 1) * strides[k];
    most += way < 0 ? -way : way;
  }
  return most;
}

static bool needs_long(const hr_kernel *kernel) {
  const int64_t limit = INT64_C(1) << 30;
  int64_t count = 1;
  for (int k = 0; k < kernel->rank; ++k) {
    count *= kernel->dims[k];
  }
  bool is_long = count >= limit;
  for (int a = 0; a < kernel->access_count; ++a) {
    const hr_access *access = &kernel->accesses[a];
    is_long |= reach(access->offset, access->strides, kernel) >= limit;
    for (int b = 0; b < access->bound_count; ++b) {
      is_long |= reach(access->bounds[b].offset, access->bounds[b].strides, kernel) >= limit ||
                 access->bounds[b].extent >= limit;
    }
  }
  return is_long;
}

static bool is_reduction(const hr_instr *instr) {
  return instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE;
}

static bool reduces(const hr_kernel *kernel, int phase) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].phase == phase && is_reduction(&kernel->instrs[k])) {
      return true;
    }
  }
  return false;
}

static bool has_elements(const hr_kernel *kernel, int phase) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].phase == phase && kernel->instrs[k].level == HR_LEVEL_ELEMENT) {
      return true;
    }
  }
  return false;
}

/* ---- heads ---- */

static void emit_head(const device *d, int pass) {
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  if (pass == 0) {
    HR__EMIT(e, "struct %s_call { char *workspace;", d->name);
    if (kernel->arg_count > 0) {
      HR__EMIT(e, " void *args[%d];", kernel->arg_count);
    }
    if (kernel->scalar_count > 0) {
      HR__EMIT(e, " hr_scalar scalars[%d];", kernel->scalar_count);
    }
    HR__EMIT(e, " };\n");
  }
  HR__EMIT(e, "HR_KERNEL void %s_%d(HR_CALL(%s_call)) {\n", d->name, pass, d->name);
  hr__emit_scalars(e, "call.scalars");
}

/* Splits `from` (a C expression) into coordinates PREFIX0, ... over dims. */
static void emit_coordinates(const device *d, const hr_dims *dims, const char *from, const char *prefix) {
  hr__emitter *e = d->e;
  if (dims->rank == 0) {
    return;
  }
  HR__EMIT(e, "%s %srest = (%s)(%s);\n", index_type(d), prefix, index_type(d), from);
  for (int k = dims->rank - 1; k > 0; --k) {
    HR__EMIT(e, "const %s %s%d = %srest %% %lld;\n%srest /= %lld;\n", index_type(d), prefix, k, prefix,
             (long long)dims->dims[k], prefix, (long long)dims->dims[k]);
  }
  HR__EMIT(e, "const %s %s0 = %srest;\n", index_type(d), prefix, prefix);
}

/* ---- accesses ---- */

/* "(offset + c0 * 784 + w1 * 2)": coordinate c of an access (0: the address, others: of bounds). */
static void emit_place(const device *d, const hr_access *access, int c, hr_level level) {
  hr__emitter *e = d->e;
  const int64_t *strides = c == 0 ? access->strides : access->bounds[c - 1].strides;
  HR__EMIT(e, "((%s)(%lld)", index_type(d), (long long)(c == 0 ? access->offset : access->bounds[c - 1].offset));
  for (int k = 0; k < e->kept.rank; ++k) {
    if (strides[e->kept.source[k]] != 0) {
      HR__EMIT(e, " + c%d * (%lld)", k, (long long)strides[e->kept.source[k]]);
    }
  }
  for (int k = 0; level == HR_LEVEL_ELEMENT && k < e->walked.rank; ++k) {
    if (strides[e->walked.source[k]] != 0) {
      HR__EMIT(e, " + w%d * (%lld)", k, (long long)strides[e->walked.source[k]]);
    }
  }
  HR__EMIT(e, ")");
}

static void emit_memory(const device *d, const hr_instr *instr, hr_text *out) {
  const hr_access *access = &d->e->kernel->accesses[instr->access];
  const char *type = hr__emit_dtype(access->dtype);
  hr__emitter into = *d->e;
  device inner = *d;
  into.text = out, inner.e = &into;
  HR__EMIT(&into, "((HR__MEMORY_%s *)call.args[%d])[", type, access->arg);
  emit_place(&inner, access, 0, instr->level);
  hr__emit_terms(&into, access);
  HR__EMIT(&into, "]");
}

/* "(bounds) & (indices)", or nothing: whether an element is there. Loads clamp their indices instead. */
static bool emit_condition(const device *d, const hr_instr *instr) {
  hr__emitter *e = d->e;
  const hr_access *access = &e->kernel->accesses[instr->access];
  const char *separator = "";
  for (int c = 1; c <= access->bound_count; ++c) {
    HR__EMIT(e, "%s((uint64_t)(int64_t)", separator);
    emit_place(d, access, c, instr->level);
    HR__EMIT(e, " < %lldu)", (long long)access->bounds[c - 1].extent);
    separator = " & ";
  }
  for (int t = 0; instr->kind == HR_INSTR_STORE && t < access->term_count; ++t) {
    HR__EMIT(e, "%shr_is_inside(r%d, %lld)", separator, access->terms[t].reg, (long long)access->terms[t].extent);
    separator = " & ";
  }
  return separator[0] != 0;
}

static void emit_load(const device *d, const hr_instr *instr) {
  hr__emitter *e = d->e;
  const hr_access *access = &e->kernel->accesses[instr->access];
  hr_class cls = e->kernel->registers[instr->dst].cls;
  HR__EMIT(e, "const %s r%d = ", hr__emit_type(cls), instr->dst);
  if (instr->kind == HR_INSTR_INDEX) {
    emit_place(d, access, 0, instr->level);
    HR__EMIT(e, ";\n");
    return;
  }
  hr_text memory = {0};
  emit_memory(d, instr, &memory);
  bool is_bound = emit_condition(d, instr);
  HR__EMIT(e, "%sHR__LOAD_%s(%s)", is_bound ? " ? " : "", hr__emit_dtype(access->dtype), hr_text_chars(&memory));
  if (is_bound) {
    HR__EMIT(e, " : ");
    hr__emit_fill(e, access, cls);
  }
  HR__EMIT(e, ";\n");
  e->text->failed |= memory.failed;
  hr_text_fini(&memory);
}

static void emit_store(const device *d, const hr_instr *instr) {
  hr__emitter *e = d->e;
  const hr_access *access = &e->kernel->accesses[instr->access];
  bool is_bound = access->bound_count > 0 || access->term_count > 0;
  if (is_bound) {
    HR__EMIT(e, "if (");
    (void)emit_condition(d, instr);
    HR__EMIT(e, ") {\n");
  }
  hr_text memory = {0};
  emit_memory(d, instr, &memory);
  HR__EMIT(e, "%s = ", hr_text_chars(&memory));
  hr__emit_stored(e, instr, hr_text_chars(&memory));
  HR__EMIT(e, is_bound ? ";\n}\n" : ";\n");
  e->text->failed |= memory.failed;
  hr_text_fini(&memory);
}

/* ---- values of earlier phases ---- */

static bool reads(const hr_kernel *kernel, const hr_instr *instr, int reg) {
  for (int s = 0; s < instr->source_count; ++s) {
    if (instr->sources[s].kind == HR_SOURCE_REGISTER && instr->sources[s].index == reg) {
      return true;
    }
  }
  for (int t = 0; instr->access >= 0 && t < kernel->accesses[instr->access].term_count; ++t) {
    if (kernel->accesses[instr->access].terms[t].reg == reg) {
      return true;
    }
  }
  return false;
}

/* Which element instructions of earlier phases have to run again in `phase`: those that its own read, and what these read. */
static void find_again(const device *d, int phase, bool *out_again) {
  const hr_kernel *kernel = d->e->kernel;
  memset(out_again, 0, (size_t)kernel->instr_count * sizeof *out_again);
  for (int k = kernel->instr_count - 1; k >= 0; --k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->level != HR_LEVEL_ELEMENT || instr->dst < 0 || is_reduction(instr) || instr->phase >= phase) {
      continue;
    }
    for (int j = 0; j < kernel->instr_count; ++j) {
      const hr_instr *user = &kernel->instrs[j];
      bool runs =
          user->level == HR_LEVEL_ELEMENT && (user->phase == phase || (out_again[j] && d->spills[user->dst] < 0));
      out_again[k] |= runs && reads(kernel, user, instr->dst);
    }
  }
}

/* Whether something is stored between the phase of a register and its last use. */
static bool is_stale(const hr_kernel *kernel, const hr_instr *made) {
  int last = kernel->registers[made->dst].last_phase;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->kind == HR_INSTR_STORE && instr->phase >= made->phase && instr->phase < last) {
      return true;
    }
  }
  return false;
}

static void place_spills(device *d) {
  const hr_kernel *kernel = d->e->kernel;
  for (int r = 0; r < kernel->register_count; ++r) {
    d->spills[r] = -1;
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    bool crosses = instr->level == HR_LEVEL_ELEMENT && instr->dst >= 0 && !is_reduction(instr) &&
                   kernel->registers[instr->dst].last_phase > instr->phase;
    if (crosses && is_stale(kernel, instr)) {
      hr_class cls = kernel->registers[instr->dst].cls;
      d->spills[instr->dst] = reserve(d, d->rows * d->elements * (int64_t)hr_class_size(cls));
    }
  }
}

static void emit_spilled(const device *d, int reg) {
  const char *type = hr__emit_type(d->e->kernel->registers[reg].cls);
  HR__EMIT(d->e, "((%s *)(call.workspace + %lld))[(int64_t)row * %lld + i]", type, (long long)d->spills[reg],
           (long long)d->elements);
}

/* ---- instructions ---- */

static void emit_instr(const device *d, const hr_instr *instr) {
  switch (instr->kind) {
    case HR_INSTR_LOAD:
    case HR_INSTR_INDEX:
      emit_load(d, instr);
      break;
    case HR_INSTR_STORE:
      emit_store(d, instr);
      break;
    case HR_INSTR_COMPUTE:
    case HR_INSTR_CONVERT:
      hr__emit_statement(d->e, instr);
      break;
    default:
      break;
  }
}

/* l5 = combine(l5, r4), or an offer to l5 and m5; SUFFIX: "[h]" or "". */
static void emit_accumulate(const device *d, const hr_instr *instr, const char *suffix) {
  hr__emitter *e = d->e;
  const char *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
  if (instr->kind == HR_INSTR_ARGREDUCE) {
    HR__EMIT(e, "hr_offer_%s_%s(&l%d%s, &m%d%s, ", row, cls, instr->dst, suffix, instr->dst, suffix);
    hr__emit_source(e, instr, 0);
    HR__EMIT(e, ", ");
    hr__emit_source(e, instr, 1);
    HR__EMIT(e, ");\n");
    return;
  }
  HR__EMIT(e, "l%d%s = hr_combine_%s_%s(l%d%s, ", instr->dst, suffix, row, cls, instr->dst, suffix);
  hr__emit_source(e, instr, 0);
  HR__EMIT(e, ");\n");
}

/* Everything that happens to element i of a row in a phase. */
static void emit_element(const device *d, int phase, const char *suffix) {
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  bool *again = HR_ARENA_ARRAY(&e->arena, bool, (size_t)kernel->instr_count + 1);
  if (again == NULL) {
    e->text->failed = true;
    return;
  }
  find_again(d, phase, again);
  emit_coordinates(d, &e->walked, "i", "w");
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (again[k] && d->spills[instr->dst] >= 0) {
      HR__EMIT(e, "const %s r%d = ", hr__emit_type(kernel->registers[instr->dst].cls), instr->dst);
      emit_spilled(d, instr->dst);
      HR__EMIT(e, ";\n");
    } else if (again[k]) {
      emit_instr(d, instr);
    } else if (instr->phase == phase && is_reduction(instr)) {
      emit_accumulate(d, instr, suffix);
    } else if (instr->phase == phase && instr->level == HR_LEVEL_ELEMENT) {
      emit_instr(d, instr);
      if (instr->dst >= 0 && d->spills[instr->dst] >= 0) {
        emit_spilled(d, instr->dst);
        HR__EMIT(e, " = r%d;\n", instr->dst);
      }
    }
  }
}

/* Row instructions of a phase. `barrier`: what separates reads of all threads from the store of `first`; NULL: a thread alone. */
static void emit_row(const device *d, int phase, const char *barrier, const char *first) {
  const hr_kernel *kernel = d->e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->phase != phase || instr->level != HR_LEVEL_ROW) {
      continue;
    }
    bool is_guarded = instr->kind == HR_INSTR_STORE && barrier != NULL;
    if (is_guarded) {
      HR__EMIT(d->e, "%s;\nif (%s) {\n", barrier, first);
    }
    emit_instr(d, instr);
    if (is_guarded) {
      HR__EMIT(d->e, "}\n%s;\n", barrier);
    }
  }
}

/* Declares accumulators: one, or two lanes. */
static void emit_accumulators(const device *d, int phase, bool is_pair) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !is_reduction(instr)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e,
               is_pair ? "%s l%d[2] = {0, 0};\nint64_t m%d[2] = {INT64_MAX, INT64_MAX};\n"
                       : "%s l%d = 0;\nint64_t m%d = INT64_MAX;\n",
               type, instr->dst, instr->dst);
    } else if (is_pair) {
      HR__EMIT(e, "%s l%d[2] = {hr_identity_%s_%s(), hr_identity_%s_%s()};\n", type, instr->dst, row, cls, row, cls);
    } else {
      HR__EMIT(e, "%s l%d = hr_identity_%s_%s();\n", type, instr->dst, row, cls);
    }
  }
}

/* ---- a thread a row ---- */

/* Loops of chunks of chunks around the elements: results of a level are one more row for the level above. */
static void emit_levels(const device *d, int phase, int level, const char *from, const char *to) {
  hr__emitter *e = d->e;
  if (level == 0) {
    HR__EMIT(e, "for (int64_t i = %s; i < %s; ++i) {\n", from, to);
    emit_element(d, phase, "");
    HR__EMIT(e, "}\n");
    return;
  }
  int64_t step = 1;
  for (int l = 0; l < level; ++l) {
    step *= HR_REDUCE_CHUNK;
  }
  char begin[24], end[24];
  snprintf(begin, sizeof begin, "b%d", level);
  snprintf(end, sizeof end, "e%d", level);
  HR__EMIT(e, "for (int64_t %s = %s; %s < %s; %s += %lld) {\n", begin, from, begin, to, begin, (long long)step);
  HR__EMIT(e, "const int64_t %s = %s - %s < %lld ? %s : %s + %lld;\n", end, to, begin, (long long)step, to, begin,
           (long long)step);
  for (int k = 0; k < e->kernel->instr_count; ++k) { /* the level above sees its accumulator as u5 */
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase == phase && instr->kind == HR_INSTR_REDUCE) {
      HR__EMIT(e, "%s *const u%d_%d = &l%d;\n", hr__emit_type(instr->cls), instr->dst, level, instr->dst);
    }
  }
  HR__EMIT(e, "{\n");
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase == phase && instr->kind == HR_INSTR_REDUCE) {
      HR__EMIT(e, "%s l%d = hr_identity_%s_%s();\n", hr__emit_type(instr->cls), instr->dst,
               hr_op_table(instr->op)->name, hr_class_name(instr->cls));
    }
  }
  emit_levels(d, phase, level - 1, begin, end);
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase == phase && instr->kind == HR_INSTR_REDUCE) {
      HR__EMIT(e, "*u%d_%d = hr_combine_%s_%s(*u%d_%d, l%d);\n", instr->dst, level, hr_op_table(instr->op)->name,
               hr_class_name(instr->cls), instr->dst, level, instr->dst);
    }
  }
  HR__EMIT(e, "}\n}\n");
}

static int levels_of(int64_t count) {
  int levels = 0;
  for (; count > HR_REDUCE_CHUNK; count = (count + HR_REDUCE_CHUNK - 1) / HR_REDUCE_CHUNK) {
    ++levels;
  }
  return levels;
}

/* Accumulators become registers. */
static void emit_results(const device *d, int phase) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase == phase && is_reduction(instr)) {
      bool is_arg = instr->kind == HR_INSTR_ARGREDUCE;
      HR__EMIT(e, "const %s r%d = %s%d;\n", is_arg ? "int64_t" : hr__emit_type(instr->cls), instr->dst,
               is_arg ? "m" : "l", instr->dst);
    }
  }
}

static void emit_thread_rows(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  char all[24];
  snprintf(all, sizeof all, "%lld", (long long)d->elements);
  emit_head(d, 0);
  HR__EMIT(e, "const int64_t row = HR_BLOCK * %d + HR_THREAD;\nif (row >= %lld) { return; }\n", (int)THREADS,
           (long long)d->rows);
  emit_coordinates(d, &e->kept, "row", "c");
  for (int phase = 0; phase < kernel->phase_count; ++phase) {
    emit_row(d, phase, NULL, NULL);
    if (!has_elements(kernel, phase)) {
      continue;
    }
    emit_accumulators(d, phase, false);
    emit_levels(d, phase, reduces(kernel, phase) ? levels_of(d->elements) : 0, "0", all);
    emit_results(d, phase);
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = (d->rows + THREADS - 1) / THREADS;
  emission->threads[0] = THREADS;
}

/* ---- a warp or a block a row ---- */

/* The lanes of elements [from, to): thread t has lanes t and t + 32. */
static void emit_lanes(const device *d, int phase, const char *from, const char *to) {
  hr__emitter *e = d->e;
  emit_accumulators(d, phase, true);
  HR__EMIT(e, "for (int64_t j = %s + HR_LANE; j < %s; j += 2 * HR_WARP) {\n", from, to);
  HR__EMIT(e, "HR_UNROLL\nfor (int h = 0; h < 2; ++h) {\nconst int64_t i = j + h * HR_WARP;\nif (i < %s) {\n", to);
  emit_element(d, phase, "[h]");
  HR__EMIT(e, "}\n}\n}\n");
}

/* Folds the lanes; `at` NULL: into registers, else to the place of chunk `at` (a C expression). */
static void emit_fold(const device *d, int phase, const char *at) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !is_reduction(instr)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    int r = instr->dst;
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e, "hr_offer_%s_%s(&l%d[0], &m%d[0], l%d[1], m%d[1]);\nhr_choose_%s_%s(&l%d[0], &m%d[0]);\n", row, cls,
               r, r, r, r, row, cls, r, r);
      if (at == NULL) {
        HR__EMIT(e, "const int64_t r%d = m%d[0];\n", r, r);
      } else {
        HR__EMIT(e, "if (HR_LANE == 0) {\n((%s *)(call.workspace + %lld))[%s] = l%d[0];\n", type,
                 (long long)d->parts[k], at, r);
        HR__EMIT(e, "((int64_t *)(call.workspace + %lld))[%s] = m%d[0];\n}\n",
                 (long long)(d->parts[k] + d->rows * d->chunks * 16), at, r);
      }
    } else if (at == NULL) {
      HR__EMIT(e, "const %s r%d = hr_fold_%s_%s(l%d[0], l%d[1]);\n", type, r, row, cls, r, r);
    } else {
      HR__EMIT(e, "{\nconst %s folded = hr_fold_%s_%s(l%d[0], l%d[1]);\n", type, row, cls, r, r);
      HR__EMIT(e, "if (HR_LANE == 0) { ((%s *)(call.workspace + %lld))[%s] = folded; }\n}\n", type,
               (long long)d->parts[k], at);
    }
  }
}

/* The results of a row's chunks become registers: a warp makes them. With `shares` it leaves them for the others of the block. */
static void emit_combine(const device *d, int phase, bool shares) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !is_reduction(instr)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    bool is_arg = instr->kind == HR_INSTR_ARGREDUCE;
    int r = instr->dst;
    HR__EMIT(e, "%s *const x%d = (%s *)(call.workspace + %lld) + row * %lld;\n", type, r, type, (long long)d->parts[k],
             (long long)d->chunks);
    if (is_arg) {
      HR__EMIT(e, "int64_t *const y%d = (int64_t *)(call.workspace + %lld) + row * %lld;\n", r,
               (long long)(d->parts[k] + d->rows * d->chunks * 16), (long long)d->chunks);
    }
    HR__EMIT(e, shares ? "if (HR_THREAD < HR_WARP) {\n" : "{\n");
    if (is_arg) {
      HR__EMIT(e, "%s key = 0;\nint64_t index = INT64_MAX;\n", type);
      HR__EMIT(e,
               "for (int64_t j = HR_LANE; j < %lld; j += HR_WARP) { hr_offer_%s_%s(&key, &index, x%d[j], y%d[j]); }\n",
               (long long)d->chunks, row, cls, r, r);
      HR__EMIT(e, "hr_choose_%s_%s(&key, &index);\nHR_WARP_BARRIER;\nif (HR_LANE == 0) { y%d[0] = index; }\n", row, cls,
               r);
    } else {
      HR__EMIT(e, "(void)hr_chunks_%s_%s(x%d, %lld);\n", row, cls, r, (long long)d->chunks);
    }
    HR__EMIT(e, "}\n%s;\nconst %s r%d = %s%d[0];\n", shares ? "HR_BARRIER" : "HR_WARP_BARRIER",
             is_arg ? "int64_t" : type, r, is_arg ? "y" : "x", r);
  }
}

static bool place_parts(device *d) {
  const hr_kernel *kernel = d->e->kernel;
  for (int k = 0; k < kernel->instr_count && d->chunks > 1; ++k) {
    if (is_reduction(&kernel->instrs[k])) {
      bool is_arg = kernel->instrs[k].kind == HR_INSTR_ARGREDUCE;
      d->parts[k] = reserve(d, d->rows * d->chunks * (is_arg ? 24 : 16));
    }
  }
  return true;
}

static void emit_from_to(const device *d, const char *chunk) {
  HR__EMIT(d->e, "const int64_t from = (%s) * %d;\nconst int64_t to = from + %d < %lld ? from + %d : %lld;\n", chunk,
           (int)HR_REDUCE_CHUNK, (int)HR_REDUCE_CHUNK, (long long)d->elements, (int)HR_REDUCE_CHUNK,
           (long long)d->elements);
}

/* Rows of one chunk: several warps of a block have rows of their own. */
static void emit_warp_rows(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  char all[24];
  snprintf(all, sizeof all, "%lld", (long long)d->elements);
  emit_head(d, 0);
  HR__EMIT(e, "const int64_t row = HR_BLOCK * %d + HR_THREAD / HR_WARP;\nif (row >= %lld) { return; }\n",
           (int)(ROW_THREADS / WARP), (long long)d->rows);
  emit_coordinates(d, &e->kept, "row", "c");
  for (int phase = 0; phase < e->kernel->phase_count; ++phase) {
    emit_row(d, phase, "HR_WARP_BARRIER", "HR_LANE == 0");
    if (has_elements(e->kernel, phase)) {
      emit_lanes(d, phase, "(int64_t)0", all);
      emit_fold(d, phase, NULL);
    }
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = (d->rows + ROW_THREADS / WARP - 1) / (ROW_THREADS / WARP);
  emission->threads[0] = ROW_THREADS;
}

/* Rows of several chunks: the warps of a block take chunks in turn. */
static void emit_block_rows(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  emit_head(d, 0);
  HR__EMIT(e, "const int64_t row = HR_BLOCK;\n");
  emit_coordinates(d, &e->kept, "row", "c");
  for (int phase = 0; phase < e->kernel->phase_count; ++phase) {
    emit_row(d, phase, "HR_BARRIER", "HR_THREAD == 0");
    if (!has_elements(e->kernel, phase)) {
      continue;
    }
    HR__EMIT(e, "for (int64_t chunk = HR_THREAD / HR_WARP; chunk < %lld; chunk += %d) {\n", (long long)d->chunks,
             (int)(THREADS / WARP));
    emit_from_to(d, "chunk");
    emit_lanes(d, phase, "from", "to");
    char at[48];
    snprintf(at, sizeof at, "row * %lld + chunk", (long long)d->chunks);
    emit_fold(d, phase, at);
    HR__EMIT(e, "}\nHR_BARRIER;\n");
    emit_combine(d, phase, true);
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = d->rows;
  emission->threads[0] = THREADS;
}

/* ---- chunks as units of their own ---- */

/* Whether nothing but reductions runs over the elements. */
static bool can_split(const device *d) {
  const hr_kernel *kernel = d->e->kernel;
  bool can = d->chunks > 1 && d->rows < SPLIT_ROWS * 16;
  for (int k = 0; can && k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    bool is_row = instr->level == HR_LEVEL_ROW, stores = instr->kind == HR_INSTR_STORE;
    can = (is_row || instr->phase == 0) && !(is_row && stores && instr->phase == 0) &&
          (is_row || !stores || instr->mode == HR_STORE_SET);
  }
  return can;
}

static void emit_split_warps(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  int64_t units = d->rows * d->chunks, warps = ROW_THREADS / WARP;
  emit_head(d, 0);
  HR__EMIT(e, "const int64_t unit = HR_BLOCK * %d + HR_THREAD / HR_WARP;\nif (unit >= %lld) { return; }\n", (int)warps,
           (long long)units);
  HR__EMIT(e, "const int64_t row = unit / %lld;\n", (long long)d->chunks);
  char chunk[48];
  snprintf(chunk, sizeof chunk, "unit %% %lld", (long long)d->chunks);
  emit_from_to(d, chunk);
  emit_coordinates(d, &e->kept, "row", "c");
  emit_row(d, 0, NULL, NULL);
  emit_lanes(d, 0, "from", "to");
  emit_fold(d, 0, "unit");
  HR__EMIT(e, "}\n");
  emit_head(d, 1);
  HR__EMIT(e, "const int64_t row = HR_BLOCK * %d + HR_THREAD / HR_WARP;\nif (row >= %lld) { return; }\n", (int)warps,
           (long long)d->rows);
  emit_coordinates(d, &e->kept, "row", "c");
  emit_row(d, 0, NULL, NULL);
  emit_combine(d, 0, false);
  for (int phase = 1; phase < e->kernel->phase_count; ++phase) {
    emit_row(d, phase, "HR_WARP_BARRIER", "HR_LANE == 0");
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 2;
  emission->blocks[0] = (units + warps - 1) / warps;
  emission->blocks[1] = (d->rows + warps - 1) / warps;
  emission->threads[0] = emission->threads[1] = ROW_THREADS;
}

/* Sequential chunks: results of neighbouring rows lie side by side. */
static void emit_split_threads(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  emit_head(d, 0);
  HR__EMIT(e, "const int64_t unit = HR_BLOCK * %d + HR_THREAD;\nif (unit >= %lld) { return; }\n", (int)THREADS,
           (long long)(d->rows * d->chunks));
  HR__EMIT(e, "const int64_t row = unit %% %lld;\n", (long long)d->rows);
  char chunk[48];
  snprintf(chunk, sizeof chunk, "unit / %lld", (long long)d->rows);
  emit_from_to(d, chunk);
  emit_coordinates(d, &e->kept, "row", "c");
  emit_row(d, 0, NULL, NULL);
  emit_accumulators(d, 0, false);
  emit_levels(d, 0, 0, "from", "to");
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (is_reduction(instr)) {
      HR__EMIT(e, "((%s *)(call.workspace + %lld))[unit] = l%d;\n", hr__emit_type(instr->cls), (long long)d->parts[k],
               instr->dst);
      if (instr->kind == HR_INSTR_ARGREDUCE) {
        HR__EMIT(e, "((int64_t *)(call.workspace + %lld))[unit] = m%d;\n",
                 (long long)(d->parts[k] + d->rows * d->chunks * 16), instr->dst);
      }
    }
  }
  HR__EMIT(e, "}\n");
  emit_head(d, 1);
  HR__EMIT(e, "const int64_t row = HR_BLOCK * %d + HR_THREAD;\nif (row >= %lld) { return; }\n", (int)THREADS,
           (long long)d->rows);
  emit_coordinates(d, &e->kept, "row", "c");
  emit_row(d, 0, NULL, NULL);
  emit_accumulators(d, 0, false);
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (!is_reduction(instr)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    HR__EMIT(e, "for (int64_t j = 0; j < %lld; ++j) {\nconst int64_t at = j * %lld + row;\n", (long long)d->chunks,
             (long long)d->rows);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e, "hr_offer_%s_%s(&l%d, &m%d, ((%s *)(call.workspace + %lld))[at], ", row, cls, instr->dst, instr->dst,
               type, (long long)d->parts[k]);
      HR__EMIT(e, "((int64_t *)(call.workspace + %lld))[at]);\n}\n",
               (long long)(d->parts[k] + d->rows * d->chunks * 16));
    } else {
      HR__EMIT(e, "l%d = hr_combine_%s_%s(l%d, ((%s *)(call.workspace + %lld))[at]);\n}\n", instr->dst, row, cls,
               instr->dst, type, (long long)d->parts[k]);
    }
  }
  emit_results(d, 0);
  for (int phase = 1; phase < kernel->phase_count; ++phase) {
    emit_row(d, phase, NULL, NULL);
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 2;
  emission->blocks[0] = (d->rows * d->chunks + THREADS - 1) / THREADS;
  emission->blocks[1] = (d->rows + THREADS - 1) / THREADS;
  emission->threads[0] = emission->threads[1] = THREADS;
}

/* ---- one kernel ---- */

static hr_status emit(device *d, const hr_kernel *kernel, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  HR_RETURN_IF_ERROR(hr__emit_begin(e, kernel));
  d->spills = HR_ARENA_ARRAY(&e->arena, int64_t, (size_t)kernel->register_count + 1);
  d->parts = HR_ARENA_ARRAY(&e->arena, int64_t, (size_t)kernel->instr_count + 1);
  if (d->spills == NULL || d->parts == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "emit: no memory for kernel %s", d->name);
  }
  hr_kernel_split_dims(kernel, kernel->reduce_mask | kernel->ordered_mask, &e->kept, &e->walked);
  d->rows = count_of(&e->kept), d->elements = count_of(&e->walked);
  d->chunks = (d->elements + HR_REDUCE_CHUNK - 1) / HR_REDUCE_CHUNK;
  d->is_long = needs_long(kernel);
  place_spills(d);
  bool is_lanes = kernel->reduce_mask != 0 && kernel->order == HR_ORDER_LANES;
  bool has_several = kernel->reduce_mask != 0 && d->chunks > 1;
  bool is_split = has_several && can_split(d) && (is_lanes || d->chunks <= HR_REDUCE_CHUNK);
  if (has_several && (is_lanes || is_split) && !place_parts(d)) {
    return HR_OK;
  }
  if (is_split && is_lanes) {
    emit_split_warps(d, emission);
  } else if (is_split) {
    emit_split_threads(d, emission);
  } else if (is_lanes && has_several) {
    emit_block_rows(d, emission);
  } else if (is_lanes) {
    emit_warp_rows(d, emission);
  } else {
    emit_thread_rows(d, emission);
  }
  for (int pass = 0; pass < emission->pass_count; ++pass) { /* no rows: nothing to do */
    emission->blocks[pass] = d->rows == 0 ? 0 : emission->blocks[pass];
  }
  emission->workspace_bytes = (size_t)d->workspace;
  return e->status != NULL ? e->status : hr_text_status(e->text);
}

hr_status hr_emit_device_kernel(const hr_kernel *kernel, const char *name, hr_text *out_text,
                                hr_device_emission *out_emission) {
  hr__emitter e = {.text = out_text, .is_device = true};
  device d = {.e = &e, .name = name};
  *out_emission = (hr_device_emission){0};
  hr_status status = emit(&d, kernel, out_emission);
  hr_arena_fini(&e.arena);
  return status;
}
