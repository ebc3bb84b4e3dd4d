/* Kernels for devices of many threads: the mapping of elements to threads. Warps have 32 threads that step together.
 *
 *   element-wise          one thread for each element, or for four neighbours (emit_device_vector.c)
 *   ... across dims       tiles of 32 x 32 elements, or 64 x 64 (emit_device_tiles.c)
 *   ordered (scatter)     one thread for all elements that differ only in ordered dims, one after the other.
 *                         If these are many: several threads, each for the elements of its slice of the destination.
 *                         If neighbouring rows share an index: a warp reads 32 indices at a time, then handles the
 *                         elements of its slice.
 *   sequential rows       one thread for each row: neighbouring rows are adjacent in memory
 *   rows of lanes         one warp for each row: thread t has lanes t and t + 32, so the tree by halves begins in the
 *                         thread and continues by shuffles; or four neighbours for each thread, if that makes accesses
 *                         wide (emit_device_quads.c)
 *   long rows             if walked several times: one block for each row, whose threads keep the row's values
 *                         (emit_device_turns.c)
 *   large reductions      several passes over the whole device (emit_device_passes.c)
 *   ... of many rows      if walked several times: one block for each row, one warp for each chunk; results of chunks
 *                         go through the workspace
 *
 * An element's value that a later phase needs is computed again there. It is kept in the workspace instead if something
 * was stored in between and two arguments may be the same memory.
 */
#include "compiler/emit_device.h"

#include <stdio.h>
#include <string.h>

#include "base/integer.h"
#include "compiler/emit_device_internal.h"

enum { THREADS = HR__DEVICE_THREADS, OWN_ELEMENTS_MOST = 32 };

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
    "#define HR_VMATH_FN static __device__ __forceinline__\n#define HR_SPECIAL_FN static __device__ "
    "__noinline__\n#define HR_KERNEL extern \"C\" __global__\n"
    "struct hr_c64 { float re, im; };\nstruct hr_c128 { double re, im; };\n"
    "struct hr_scalar { int dtype; union { int64_t i; double f[2]; } value; };\n"
    "#define HR_CALL(type) const struct type call\n#define HR_BLOCK ((int64_t)blockIdx.x)\n#define HR_THREAD "
    "((int)threadIdx.x)\n#define HR_WARP 32\n"
    "#define HR_LANE (HR_THREAD % 32)\n#define HR_UNROLL _Pragma(\"unroll\")\n"
    "#define HR_UNROLL_BY_4 _Pragma(\"unroll 4\")\n#define HR_UNROLL_BY_8 _Pragma(\"unroll 8\")\n"
    "#define HR_UNROLL_BY_16 _Pragma(\"unroll 16\")\n"
    "#define HR_BARRIER __syncthreads()\n#define HR_WARP_BARRIER __syncwarp()\n"
    "#define HR_BARRIER_OF(part, threads) "
    "asm volatile(\"bar.sync %0, %1;\" :: \"r\"(part), \"r\"(threads) : \"memory\")\n"
    "#define HR_ALIGNED __align__(16)\n#define HR_SHARED __shared__\n"
    "#define HR_THREADS(count) __launch_bounds__(count)\n"
    "#if __CUDA_ARCH__ >= 900\n"
    "#define HR_BEGIN asm volatile(\"griddepcontrol.launch_dependents;\\n\\tgriddepcontrol.wait;\" ::: \"memory\")\n"
    "#else\n#define HR_BEGIN\n#endif\n"
    "#define HR_POOL extern __shared__ HR_ALIGNED char hr_pool[]\n"
    "HR_VMATH_FN int hr_processors(void) { int n; asm(\"mov.u32 %0, %%nsmid;\" : \"=r\"(n)); return n; }\n"
    "HR_VMATH_FN void hr_prefetch(const void *from, int bytes) {\n"
    "#if __CUDA_ARCH__ >= 900\n"
    "  const int whole = bytes & ~15;\n"
    "  if (((uint64_t)from & 15) == 0 && whole > 0) {\n"
    "    const uint64_t at = __cvta_generic_to_global(from);\n"
    "    asm volatile(\"cp.async.bulk.prefetch.L2.global [%0], %1;\" :: \"l\"(at), \"r\"(whole));\n  }\n#endif\n}\n"
    "HR_VMATH_FN void hr_copy4(void *to, const void *from) { *(unsigned *)to = *(const unsigned *)from; }\n"
    "HR_VMATH_FN void hr_copy8(void *to, const void *from) { *(uint2 *)to = *(const uint2 *)from; }\n"
    "HR_VMATH_FN void hr_copy16(void *to, const void *from) { *(uint4 *)to = *(const uint4 *)from; }\n"
    "HR_VMATH_FN void hr_copy32(void *to, const void *from) {\n"
    "  hr_copy16(to, from);\n  hr_copy16((char *)to + 16, (const char *)from + 16);\n}\n"
    "HR_VMATH_FN void hr_copy64(void *to, const void *from) {\n"
    "  hr_copy32(to, from);\n  hr_copy32((char *)to + 32, (const char *)from + 32);\n}\n"
    "HR_VMATH_FN void hr_shuffle(uint32_t *word, int count, int lane) {\n"
    "#pragma unroll\n  for (int i = 0; i < count; ++i) { word[i] = __shfl_sync(0xffffffffu, word[i], lane); }\n}\n"
    "HR_VMATH_FN uint32_t hr_ballot(int is) { return __ballot_sync(0xffffffffu, is); }\n"
    "#define HR_FIRST(mask) (__ffs((int)(mask)) - 1)\n"
    "#define HR_RECIPROCAL_DEVICE\n" /* the steps of the division, which are exact without overflow and underflow */
    "HR_VMATH_FN float hr__f32_reciprocal(float x) {\n  float y;\n"
    "  asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n"
    "  return __fmaf_rn(__fmaf_rn(-x, y, 1.0f), y, y);\n}\n"
    "#if __CUDA_ARCH__ >= 800\n#define HR_NARROW_DEVICE\n"
    "HR_VMATH_FN uint16_t hr__half_from_f32(float x) {\n" /* two at once are cheaper than one */
    "  uint32_t pair;\n  asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(pair) : \"f\"(0.0f), \"f\"(x));\n"
    "  return (uint16_t)pair;\n}\n"
    "HR_VMATH_FN float hr__f32_from_half(uint16_t half) {\n"
    "  float x;\n  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(half));\n  return x;\n}\n"
    "HR_VMATH_FN uint16_t hr__bfloat_from_f32(float x) {\n"
    "  uint32_t pair;\n  asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(pair) : \"f\"(0.0f), \"f\"(x));\n"
    "  return (uint16_t)pair;\n}\n"
    "#endif\n";

/* A compiler that inlines everything takes twice as long. */
static const char *const emulated_prelude =
    "#undef HR_VMATH_FN\n#define HR_VMATH_FN static inline\n#define HR_VMATH_DEVICE\n#define HR_CALL(type) const "
    "struct type *const hr_call\n#define call (*hr_call)\n"
    "#define HR_BLOCK hr_block\n#define HR_THREAD hr_thread\n#define HR_WARP 32\n"
    "#define HR_LANE (HR_THREAD % 32)\n#define HR_UNROLL\n#define HR_UNROLL_BY_4\n#define HR_UNROLL_BY_8\n"
    "#define HR_UNROLL_BY_16\n"
    "#define HR_BARRIER hr_wait(1)\n#define HR_WARP_BARRIER hr_wait(0)\n#define HR_BARRIER_OF(part, threads) "
    "hr_wait(1)\n"
    "#define HR_ALIGNED __attribute__((aligned(16)))\n#define HR_SHARED static\n"
    "#define HR_THREADS(count)\n#define HR_BEGIN\n"
    "#define HR_POOL static HR_ALIGNED char hr_pool[256 << 10]\n"
    "#define hr_processors() 1\n"
    "static inline void hr_prefetch(const void *from, int bytes) {\n" /* checks that all of it is readable */
    "  (void)((const volatile char *)from)[0];\n  (void)((const volatile char *)from)[bytes - 1];\n}\n"
    "#define hr_copy4(to, from) __builtin_memcpy(to, from, 4)\n#define hr_copy8(to, from) __builtin_memcpy(to, from, "
    "8)\n"
    "#define hr_copy16(to, from) __builtin_memcpy(to, from, 16)\n"
    "#define hr_copy32(to, from) __builtin_memcpy(to, from, 32)\n"
    "#define hr_copy64(to, from) __builtin_memcpy(to, from, 64)\n"
    "HR_KERNEL int64_t hr_block;\nHR_KERNEL int hr_thread;\nHR_KERNEL void (*hr_wait)(int all);\n"
    "static uint32_t hr_words[1024][8];\n"
    "static inline void hr_shuffle(uint32_t *word, int count, int lane) {\n"
    "  for (int i = 0; i < count; ++i) { hr_words[hr_thread][i] = word[i]; }\n  hr_wait(0);\n"
    "  for (int i = 0; i < count; ++i) { word[i] = hr_words[hr_thread / 32 * 32 + lane][i]; }\n  hr_wait(0);\n}\n"
    "static inline uint32_t hr_ballot(int is) {\n  uint32_t all = 0;\n"
    "  hr_words[hr_thread][0] = is != 0;\n  hr_wait(0);\n"
    "  for (int t = 0; t < 32; ++t) { all |= hr_words[hr_thread / 32 * 32 + t][0] << t; }\n  hr_wait(0);\n  return "
    "all;\n}\n"
    "#define HR_FIRST(mask) __builtin_ctz(mask)\n";

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

/* ---- a kernel ---- */

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
    int64_t span = (kernel->dims[k] - 1) * strides[k];
    most += span < 0 ? -span : span;
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

/* ---- one thread for each row ---- */

/* Loops of chunks of chunks around the elements: results of a level are one more row for the level above. */
static void emit_levels(const device *d, int phase, int level, const char *from, const char *to) {
  hr__emitter *e = d->e;
  if (level == 0) {
    HR__EMIT(e, "for (int64_t i = %s; i < %s; ++i) {\n", from, to);
    hr__device_element(d, phase, "");
    HR__EMIT(e, "}\n");
    return;
  }
  int64_t step = 1;
  for (int l = 0; l < level; ++l) {
    step *= HR_REDUCE_RUN;
  }
  char begin[24], end[24];
  snprintf(begin, sizeof begin, "b%d", level);
  snprintf(end, sizeof end, "e%d", level);
  HR__EMIT(e, "for (int64_t %s = %s; %s < %s; %s += %lld) {\n", begin, from, begin, to, begin, (long long)step);
  HR__EMIT(e, "const int64_t %s = %s - %s < %lld ? %s : %s + %lld;\n", end, to, begin, (long long)step, to, begin,
           (long long)step);
  for (int k = 0; k < e->kernel->instr_count; ++k) { /* the level above reads its accumulator as u5 */
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
  for (; count > HR_REDUCE_RUN; count = hr_divide_up(count, HR_REDUCE_RUN)) {
    ++levels;
  }
  return levels;
}

/* Accumulators become registers. */
void hr__device_results(const device *d, int phase) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase == phase && hr__device_is_reduction(instr)) {
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
  snprintf(all, sizeof all, HR__FREE, (long long)d->elements);
  hr__device_head(d, 0, THREADS);
  HR__EMIT(e, "const int64_t row = HR_BLOCK * %d + HR_THREAD;\nif (row >= " HR__FREE ") { return; }\n", (int)THREADS,
           (long long)d->rows);
  hr__device_coordinates(d, &e->kept, "row", "c");
  for (int phase = 0; phase < kernel->phase_count; ++phase) {
    hr__device_row(d, phase, NULL, NULL);
    if (!hr__device_has_elements(kernel, phase)) {
      continue;
    }
    hr__device_accumulators(d, phase, false);
    emit_levels(d, phase, hr__device_reduces(kernel, phase) ? levels_of(d->elements) : 0, "0", all);
    hr__device_results(d, phase);
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = hr_divide_up(d->rows, THREADS);
  emission->threads[0] = THREADS;
}

/* ---- a scatter of many elements ---- */

enum { SLICED_MIN = 32, SLICES_MAX = 256, SLICED_THREADS = 1 << 16, SLICED_WARPS = 1 << 13 };

/* The term by which every store of an ordered kernel finds its place, while nothing else changes within a row; NULL:
 * there is none. Elements with different indices then go to different places, and their order does not matter. */
static const hr_kernel_term *find_sliced(const device *d) {
  const hr_kernel *kernel = d->e->kernel;
  const hr_kernel_term *found = NULL;
  if (kernel->ordered_mask == 0 || kernel->reduce_mask != 0 || kernel->phase_count != 1 || d->elements < SLICED_MIN) {
    return NULL;
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    const hr_access *access = instr->access >= 0 ? &kernel->accesses[instr->access] : NULL;
    if (instr->kind == HR_INSTR_LOAD && kernel->args[access->arg].is_written) {
      return NULL;
    }
    if (instr->kind != HR_INSTR_STORE) {
      continue;
    }
    bool is_alike = instr->level == HR_LEVEL_ELEMENT && access->term_count == 1 && access->terms[0].stride != 0 &&
                    (found == NULL || (found->reg == access->terms[0].reg && found->extent == access->terms[0].extent));
    for (int w = 0; w < d->e->walked.rank; ++w) {
      is_alike &= access->strides[d->e->walked.source[w]] == 0;
    }
    if (!is_alike) {
      return NULL;
    }
    found = &access->terms[0];
  }
  return found;
}

/* A power of two: enough slices to keep the device's threads busy. */
static int64_t slices_of(const device *d) {
  int64_t slices = 1;
  while (2 * slices <= SLICES_MAX && 2 * slices * d->rows <= SLICED_THREADS) {
    slices *= 2;
  }
  return slices;
}

/* Marks the instructions that register `reg` depends on. */
static void mark_needed(const hr_kernel *kernel, int reg, bool *needed) {
  for (int k = kernel->instr_count - 1; k >= 0; --k) {
    const hr_instr *instr = &kernel->instrs[k];
    needed[k] = instr->dst == reg;
    for (int j = k + 1; !needed[k] && instr->dst >= 0 && j < kernel->instr_count; ++j) {
      needed[k] = needed[j] && hr__device_reads(kernel, &kernel->instrs[j], instr->dst);
    }
  }
}

/* Emits the instructions that an element's place depends on, or the rest. */
static void emit_part(const device *d, const bool *needed, bool is_rest) {
  const hr_kernel *kernel = d->e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].level == HR_LEVEL_ELEMENT && needed[k] == !is_rest) {
      hr__device_instr(d, &kernel->instrs[k]);
    }
  }
}

/* True if the index is the same for all rows. */
static bool is_common(const device *d, const bool *needed) {
  const hr_kernel *kernel = d->e->kernel;
  bool is = true;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_access *access =
        needed[k] && kernel->instrs[k].access >= 0 ? &kernel->accesses[kernel->instrs[k].access] : NULL;
    for (int c = 0; access != NULL && c <= access->bound_count; ++c) {
      const int64_t *strides = c == 0 ? access->strides : access->bounds[c - 1].strides;
      for (int w = 0; w < d->e->kept.rank; ++w) {
        is &= strides[d->e->kept.source[w]] == 0;
      }
    }
  }
  return is;
}

/* A warp has 32 rows and a slice. Each of its threads reads another index; then all handle the elements of the slice,
 * in order. */
static void emit_common_slices(const device *d, const hr_kernel_term *term, const bool *needed,
                               hr_device_emission *emission) {
  enum { LOOKS = 8 };
  hr__emitter *e = d->e;
  int64_t tiles = hr_divide_up(d->rows, HR__DEVICE_LANES), slices = 1;
  while (2 * slices <= SLICES_MAX && 2 * slices * tiles <= SLICED_WARPS) {
    slices *= 2;
  }
  int64_t threads = tiles * slices * HR__DEVICE_LANES;
  hr__device_head(d, 0, THREADS);
  HR__EMIT(e, "const int64_t unit = HR_BLOCK * %d + HR_THREAD / HR_WARP;\nif (unit >= " HR__FREE ") { return; }\n",
           (int)(THREADS / HR__DEVICE_LANES), (long long)(tiles * slices));
  HR__EMIT(e, "const int64_t slice = unit / " HR__FREE ", wanted = unit %% " HR__FREE " * HR_WARP + HR_LANE;\n",
           (long long)tiles, (long long)tiles);
  HR__EMIT(e, "const int64_t row = wanted < " HR__FREE " ? wanted : " HR__FREE ";\n", (long long)d->rows,
           (long long)d->rows - 1);
  hr__device_coordinates(d, &e->kept, "row", "c");
  hr__device_row(d, 0, NULL, NULL);
  HR__EMIT(e, "for (int64_t b = 0; b < " HR__FREE "; b += %d * HR_WARP) {\nint found = 0;\nHR_UNROLL\n",
           (long long)d->elements, (int)LOOKS);
  HR__EMIT(e, "for (int u = 0; u < %d; ++u) {\nconst int64_t i = b + u * HR_WARP + HR_LANE;\nif (i < " HR__FREE ") {\n",
           (int)LOOKS, (long long)d->elements);
  hr__device_coordinates(d, &e->walked, "i", "w");
  emit_part(d, needed, false);
  HR__EMIT(e, "found |= ((hr_term(r%d, " HR__FREE ") & " HR__FREE ") == slice) << u;\n}\n}\n", term->reg,
           (long long)term->extent, (long long)slices - 1);
  HR__EMIT(e, "for (int u = 0; u < %d; ++u) {\nuint32_t left = hr_ballot(found >> u & 1);\n", (int)LOOKS);
  HR__EMIT(e, "for (; left != 0; left &= left - 1) {\nconst int64_t i = b + u * HR_WARP + HR_FIRST(left);\n");
  HR__EMIT(e, "if (row == wanted) {\n");
  hr__device_coordinates(d, &e->walked, "i", "w");
  emit_part(d, needed, false);
  emit_part(d, needed, true);
  HR__EMIT(e, "}\n}\n}\n}\n}\n");
  emission->pass_count = 1;
  emission->blocks[0] = hr_divide_up(threads, THREADS);
  emission->threads[0] = THREADS;
}

static void emit_sliced_rows(const device *d, const hr_kernel_term *term, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  int64_t slices = slices_of(d), threads = d->rows * slices;
  bool *needed = HR_ARENA_ARRAY(&e->arena, bool, (size_t)kernel->instr_count + 1);
  if (needed == NULL) {
    e->text->failed = true;
    return;
  }
  mark_needed(kernel, term->reg, needed);
  if (is_common(d, needed)) {
    emit_common_slices(d, term, needed, emission);
    return;
  }
  hr__device_head(d, 0, THREADS);
  HR__EMIT(e, "const int64_t number = HR_BLOCK * %d + HR_THREAD;\nif (number >= " HR__FREE ") { return; }\n",
           (int)THREADS, (long long)threads);
  HR__EMIT(e, "const int64_t row = number %% " HR__FREE ", slice = number / " HR__FREE ";\n", (long long)d->rows,
           (long long)d->rows);
  hr__device_coordinates(d, &e->kept, "row", "c");
  hr__device_row(d, 0, NULL, NULL);
  HR__EMIT(e, "HR_UNROLL_BY_4 for (int64_t i = 0; i < " HR__FREE "; ++i) {\n", (long long)d->elements);
  hr__device_coordinates(d, &e->walked, "i", "w");
  emit_part(d, needed, false);
  HR__EMIT(e, "if ((hr_term(r%d, " HR__FREE ") & " HR__FREE ") != slice) { continue; }\n", term->reg,
           (long long)term->extent, (long long)slices - 1);
  emit_part(d, needed, true);
  HR__EMIT(e, "}\n}\n");
  emission->pass_count = 1;
  emission->blocks[0] = hr_divide_up(threads, THREADS);
  emission->threads[0] = THREADS;
}

/* ---- one kernel ---- */

/* Elements of a thread in a warp's row, if they are few enough to keep their values. */
static int own_elements(const device *d, bool has_passes) {
  bool is_short = !has_passes && d->e->kernel->reduce_mask != 0 && d->e->kernel->order == HR_ORDER_LANES &&
                  d->elements <= OWN_ELEMENTS_MOST * HR__DEVICE_LANES;
  int fours = (int)hr_divide_up(d->elements, 4 * HR__DEVICE_LANES);
  return !is_short ? 0 : d->is_quads ? 4 * fours : (int)hr_divide_up(d->elements, HR__DEVICE_LANES);
}

/* Decides if rows are divided over the device, and places the values of their elements. A row is loaded once if threads
 * have room for all kept values. */
static bool choose_rows(device *d) {
  const hr_kernel *whole = d->e->kernel;
  bool is_lanes = whole->order == HR_ORDER_LANES;
  bool has_passes = !hr__device_is_block_rows(d) && hr__device_has_passes(d);
  d->is_quads = (is_lanes ? !has_passes || hr__device_has_many_chunks(d) : has_passes) && hr__device_is_quads(d);
  const int own = own_elements(d, has_passes);
  d->own = own;
  if (own > 0) {
    hr__device_merge_loads(d);
  }
  if (!hr__device_place_spills(d) && own > 0) {
    d->e->kernel = whole, d->own = own, d->workspace = 0;
    (void)hr__device_place_spills(d);
  }
  return has_passes;
}

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
  d->chunk = hr_kernel_chunk(kernel->order);
  d->chunks = hr_divide_up(d->elements, d->chunk);
  d->is_long = needs_long(kernel);
  bool has_passes = !hr__device_place_turns(d) && choose_rows(d);
  kernel = e->kernel;
  const hr_kernel_term *sliced = find_sliced(d);
  if (sliced != NULL) {
    emit_sliced_rows(d, sliced, emission);
  } else if (hr__device_is_tiles(d)) {
    hr__device_tiles(d, emission);
  } else if (hr__device_is_vector(d)) {
    hr__device_vectors(d, emission);
  } else if (d->is_turns) {
    hr__device_turn_rows(d, emission);
  } else if (has_passes) {
    hr__device_passes(d, emission);
  } else if (kernel->reduce_mask == 0 || kernel->order != HR_ORDER_LANES) {
    emit_thread_rows(d, emission);
  } else if (d->chunks > 1) {
    hr__device_place_parts(d);
    hr__device_block_rows(d, emission);
  } else {
    hr__device_warp_rows(d, emission);
  }
  for (int pass = 0; pass < emission->pass_count; ++pass) { /* no rows: nothing to do */
    emission->blocks[pass] = d->rows == 0 ? 0 : emission->blocks[pass];
  }
  emission->workspace_bytes = (size_t)d->workspace;
  return e->status != HR_OK ? e->status : hr_text_status(e->text);
}

hr_status hr_emit_device_functions(const hr_kernel *kernel, hr_text *out_text) {
  hr__emitter e = {.kernel = kernel, .text = out_text, .is_device = true};
  hr__emit_functions(&e);
  return e.status != HR_OK ? e.status : hr_text_status(out_text);
}

hr_status hr_emit_device_kernel(const hr_kernel *kernel, const char *name, int block_bytes, hr_device_shapes shapes,
                                hr_text *out_text, hr_device_emission *out_emission) {
  hr_text body = {0};
  hr__emitter e = {.text = &body, .is_device = true};
  device d = {.e = &e, .name = name, .block_bytes = block_bytes};
  *out_emission = (hr_device_emission){0};
  hr_status status = emit(&d, kernel, out_emission);
  if (status == HR_OK) {
    hr__device_finish(&d, &body, shapes, out_text, out_emission);
    status = hr_text_status(out_text);
  }
  hr_arena_fini(&e.arena);
  hr_text_fini(&body);
  return status;
}
