#include <stdio.h>
#include <string.h>

#include "base/integer.h"
#include "compiler/emit_internal.h"

static const char *const core_texts[] = {
#include "compiler/emit_text.inc"
};
static const char *const host_texts[] = {
#include "compiler/emit_runs.inc"
};

/* The definitions that differ between targets, and those that the texts of src/core expect from headers. gcc 12's
 * elimination of partial redundancies turns consecutive selects (relu, maximum) into jumps, and loops of them into
 * scalar code. */
static const char *const c_prelude =
    "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\ntypedef short int16_t;\n"
    "typedef unsigned short uint16_t;\ntypedef int int32_t;\ntypedef unsigned int uint32_t;\n"
    "typedef __INT64_TYPE__ int64_t;\ntypedef __UINT64_TYPE__ uint64_t;\n"
    "#define INT32_MIN (-2147483647 - 1)\n#define INT32_MAX 2147483647\n#define UINT32_MAX 4294967295u\n"
    "#define INT64_MAX __INT64_MAX__\n#define INT64_MIN (-INT64_MAX - 1)\n#define UINT64_MAX __UINT64_MAX__\n"
    "#define INFINITY __builtin_inff()\n"
    "#define HR_VMATH_FN static inline __attribute__((always_inline))\n"
    "#define HR_KERNEL __attribute__((visibility(\"default\")))\n"
    "#if defined(__clang__)\n#define HR_INDEPENDENT _Pragma(\"clang loop vectorize(assume_safety)\")\n"
    "#define HR_SHORT _Pragma(\"clang loop unroll(disable) vectorize(assume_safety) vectorize_predicate(enable)\")\n"
    "#define HR_LANES HR_INDEPENDENT\n#define HR_STRIP HR_INDEPENDENT\n"
    "#else\n#pragma GCC optimize(\"no-tree-pre\", \"no-thread-jumps\")\n#define HR_INDEPENDENT _Pragma(\"GCC ivdep\")\n"
    "#define HR_SHORT HR_INDEPENDENT\n"
    "#define HR_STRIP HR_INDEPENDENT _Pragma(\"GCC unroll 1\")\n" /* as a vector, not unrolled */
    "#define HR_LANES _Pragma(\"GCC ivdep\") _Pragma(\"GCC unroll 1\")\n#endif\n"
    "typedef struct hr_c64 { float re, im; } hr_c64;\ntypedef struct hr_c128 { double re, im; } hr_c128;\n"
    "typedef struct hr_scalar { int dtype; union { int64_t i; double f[2]; } value; } hr_scalar;\n"
    "double fmod(double, double), pow(double, double), atan2(double, double), hypot(double, double);\n"
    "double exp(double), exp2(double), expm1(double), log(double), log2(double), log10(double), log1p(double);\n"
    "double sin(double), cos(double), tan(double), asin(double), acos(double), atan(double);\n"
    "double sinh(double), cosh(double), tanh(double), asinh(double), acosh(double), atanh(double);\n"
    "double erf(double), erfc(double), lgamma(double);\n";

/* An index of an indirect load: negative ones count from the extent, those out of range are clamped (a check reports
 * them). */
static const char *const c_postlude = "HR_VMATH_FN int64_t hr_term(int64_t index, int64_t extent) {\n"
                                      "  index = index < 0 ? index + extent : index;\n"
                                      "  const int64_t most = index < 0 ? 0 : (index >= extent ? extent - 1 : index);\n"
                                      "  return extent > 0 ? most : index;\n}\n";

/* Transposes elements [first, first + count) of rows of `columns` elements. Rows are `pitch` apart in memory; planes of
 * `rows` rows are `plane` apart; rows of the result are `step` apart. Few columns are done at a time: their lines may
 * all map to one set of the first cache. Tiles of 16 rows by 8 columns are transposed whole, those of 4-byte elements
 * in vectors. The lines of the next tile are prefetched: the hardware detects no stream in them. */
static const char *const c_turns =
    "#define HR_TURN_TILE(T) \\\n"
    "  for (int r = 0; r < 16; ++r) { for (int j = 0; j < 8; ++j) { t[r * step + j] = f[r + j * pitch]; } }\n"
    "#if defined(__has_builtin) && defined(__AVX2__)\n#if __has_builtin(__builtin_shufflevector)\n"
    "typedef uint32_t hr_v8w __attribute__((vector_size(32), aligned(4), may_alias));\n"
    "HR_VMATH_FN void hr_turn_words(uint32_t *t, const uint32_t *f, int64_t step, int64_t pitch) {\n"
    "  hr_v8w a[8], b[8];\n"
    "  for (int j = 0; j < 8; ++j) { a[j] = *(const hr_v8w *)(f + j * pitch); }\n"
    "  for (int j = 0; j < 8; j += 2) {\n"
    "    b[j] = __builtin_shufflevector(a[j], a[j + 1], 0, 8, 2, 10, 4, 12, 6, 14);\n"
    "    b[j + 1] = __builtin_shufflevector(a[j], a[j + 1], 1, 9, 3, 11, 5, 13, 7, 15);\n  }\n"
    "  for (int j = 0; j < 8; j += j % 4 == 1 ? 3 : 1) {\n"
    "    a[j] = __builtin_shufflevector(b[j], b[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);\n"
    "    a[j + 2] = __builtin_shufflevector(b[j], b[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);\n  }\n"
    "  for (int j = 0; j < 4; ++j) {\n"
    "    *(hr_v8w *)(t + j * step) = __builtin_shufflevector(a[j], a[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);\n"
    "    *(hr_v8w *)(t + (j + 4) * step) = __builtin_shufflevector(a[j], a[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);\n  "
    "}\n}\n"
    "#define HR_TURN_WORDS(T) \\\n"
    "  hr_turn_words(t, f, step, pitch); \\\n  hr_turn_words(t + 8 * step, f + 8, step, pitch);\n"
    "#endif\n#endif\n"
    "#if !defined(HR_TURN_WORDS)\n#define HR_TURN_WORDS HR_TURN_TILE\n#endif\n"
    "#define HR_TURN(BYTES, T, TILE) \\\n"
    "static void hr_turn_##BYTES(void *out, const void *in, int64_t first, int64_t count, int64_t columns, int64_t "
    "step, \\\n"
    "                            int64_t rows, int64_t plane, int64_t pitch) { \\\n"
    "  T *const to = (T *)out - first; \\\n"
    "  const int64_t end = first + count, last = (end + columns - 1) / columns; \\\n"
    "  for (int64_t row = first / columns, next; row < last; row = next) { \\\n"
    "    next = row + 16 - row % rows % 16; \\\n"
    "    next = next / rows > row / rows ? (row / rows + 1) * rows : next; \\\n"
    "    next = next < last ? next : last; \\\n"
    "    const T *const from = (const T *)in + row / rows * plane + row % rows; \\\n"
    "    const int is_whole = next - row == 16 && row * columns >= first && next * columns <= end; \\\n"
    "    for (int64_t at = 0; at < columns; at += 8) { \\\n"
    "      if (is_whole && at + 8 <= columns) { \\\n"
    "        T *const t = to + row * step + at; \\\n"
    "        const T *const f = from + at * pitch; \\\n"
    "        for (int j = 8; j < 16; ++j) { __builtin_prefetch(f + j * pitch); } \\\n"
    "        TILE(T) \\\n"
    "        continue; \\\n"
    "      } \\\n"
    "      for (int64_t r = row; r < next; ++r) { \\\n"
    "        int64_t low = first - r * columns, high = end - r * columns; \\\n"
    "        low = low > at ? low : at; \\\n"
    "        high = high < columns ? high : columns; \\\n"
    "        high = high < at + 8 ? high : at + 8; \\\n"
    "        for (int64_t j = low; j < high; ++j) { to[r * step + j] = from[r - row + j * pitch]; } \\\n"
    "      } \\\n"
    "    } \\\n"
    "  } \\\n"
    "}\n"
    "HR_TURN(1, uint8_t, HR_TURN_TILE)\nHR_TURN(2, uint16_t, HR_TURN_TILE)\nHR_TURN(4, uint32_t, HR_TURN_WORDS)\n"
    "HR_TURN(8, uint64_t, HR_TURN_TILE)\nHR_TURN(16, hr_c128, HR_TURN_TILE)\n";

/* Conversions of 16-bit floats, of rows and of single ones, by hardware instructions, which compilers don't find in
 * loops over elements. The bits are those of core/math/convert.h. clang 22 has no more built-in functions for the short
 * ones. */
static const char *const c_halves =
    "#if defined(__F16C__) && defined(__clang__) && __clang_major__ >= 16\n"
    "typedef _Float16 hr_f8 __attribute__((vector_size(16)));\n"
    "#define HR_WIDEN_8(h) __builtin_convertvector((hr_f8)(h), hr_v8)\n"
    "#elif defined(__F16C__)\n"
    "#define HR_WIDEN_8(h) (hr_v8)__builtin_ia32_vcvtph2ps256(h)\n"
    "#endif\n"
    "#if defined(__F16C__)\n"
    "typedef float hr_v8 __attribute__((vector_size(32), aligned(4), may_alias));\n"
    "typedef short hr_h8 __attribute__((vector_size(16), aligned(2), may_alias));\n"
    "#endif\n"
    "#if defined(__AVX512F__)\n"
    "typedef float hr_v16 __attribute__((vector_size(64), aligned(4), may_alias));\n"
    "typedef short hr_h16 __attribute__((vector_size(32), aligned(2), may_alias));\n"
    "#define HR_HALVES 16\n#define HR_V hr_v16\n#define HR_H hr_h16\n"
    "#define HR_WIDEN(h) (HR_V)__builtin_ia32_vcvtph2ps512_mask((h), (hr_v16){0}, -1, 4)\n"
    "#define HR_NARROW(x) (HR_H)__builtin_ia32_vcvtps2ph512_mask((x), 8, (hr_h16){0}, -1)\n"
    "#elif defined(__F16C__)\n"
    "#define HR_HALVES 8\n#define HR_V hr_v8\n#define HR_H hr_h8\n"
    "#define HR_WIDEN(h) HR_WIDEN_8(h)\n"
    "#define HR_NARROW(x) (HR_H)__builtin_ia32_vcvtps2ph256((x), 0)\n"
    "#endif\n"
    "#if defined(HR_HALVES)\n"
    "#define HR_EACH_HALF(vector) for (; i + HR_HALVES <= n; i += HR_HALVES) { vector; }\n"
    "#else\n#define HR_EACH_HALF(vector)\n#endif\n"
    "#if defined(__F16C__) && defined(__clang__) && __clang_major__ >= 16\n"
    "HR_VMATH_FN float hr_half_in(uint16_t x) {\n"
    "  const union { uint16_t bits; _Float16 half; } in = {x};\n  return (float)in.half;\n}\n"
    "#elif defined(__F16C__)\n"
    "typedef short hr_halves __attribute__((vector_size(16)));\n"
    "HR_VMATH_FN float hr_half_in(uint16_t x) { return __builtin_ia32_vcvtph2ps((hr_halves){(short)x})[0]; }\n"
    "#else\n#define hr_half_in(x) hr__f32_from_half(x)\n#endif\n"
    "HR_VMATH_FN void hr_halves_in(float *to, const uint16_t *from, int64_t n) {\n  int64_t i = 0;\n"
    "  HR_EACH_HALF(*(HR_V *)(to + i) = HR_WIDEN(*(const HR_H *)(from + i)))\n"
    "  HR_SHORT\n  for (int64_t j = i; j < n; ++j) { to[j] = hr__f32_from_half(from[j]); }\n}\n"
    "HR_VMATH_FN void hr_halves_out(uint16_t *to, const float *from, int64_t n) {\n  int64_t i = 0;\n"
    "  HR_EACH_HALF(*(HR_H *)(to + i) = HR_NARROW(*(const HR_V *)(from + i)))\n"
    "  HR_SHORT\n  for (int64_t j = i; j < n; ++j) { to[j] = hr__half_from_f32(from[j]); }\n}\n"
    "HR_VMATH_FN void hr_halves_round(float *to, const float *from, int64_t n) {\n  int64_t i = 0;\n"
    "  HR_EACH_HALF(*(HR_V *)(to + i) = HR_WIDEN(HR_NARROW(*(const HR_V *)(from + i))))\n"
    "  HR_SHORT\n  for (int64_t j = i; j < n; ++j) { to[j] = hr__f32_round_half(from[j]); }\n}\n";

_Static_assert(sizeof(hr_scalar) == 24 && offsetof(hr_scalar, value) == 8, "the prelude's hr_scalar");

void hr__emit_core_text(hr_text *text) {
  hr_text_printf(text, "enum { HR_DTYPE_BOOL = %d, HR_DTYPE_I64 = %d, HR_DTYPE_U64 = %d, HR_DTYPE_C128 = %d };\n",
                 (int)HR_DTYPE_BOOL, (int)HR_DTYPE_I64, (int)HR_DTYPE_U64, (int)HR_DTYPE_C128);
  hr_text_append_all(text, sizeof core_texts / sizeof *core_texts, core_texts);
  hr_text_append(text, c_postlude);
}

void hr__emit_c_words(hr_text *text) {
  hr_text_append(text, c_prelude);
}

hr_status hr_emit_prelude(hr_text *out_text) {
  hr__emit_c_words(out_text);
  hr__emit_core_text(out_text);
  for (size_t i = 0; i < sizeof host_texts / sizeof *host_texts; ++i) {
    hr_text_append(out_text, host_texts[i]);
  }
  hr_text_append(out_text, c_halves);
  hr_text_append(out_text, c_turns);
  return hr_text_status(out_text);
}

/* ---- code shared by the forms ---- */

hr_status hr__emit_unable(const hr_kernel *kernel, const char *what) {
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "emit: kernel %s: no text for %s",
                        kernel->name != NULL ? kernel->name : "", what);
}

bool hr__emit_can_split(const hr_kernel *kernel) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    bool is_row = instr->level == HR_LEVEL_ROW, stores = instr->kind == HR_INSTR_STORE;
    if ((!is_row && instr->phase > 0) || (is_row && stores && instr->phase == 0) ||
        (!is_row && stores && instr->mode != HR_STORE_SET)) {
      return false;
    }
  }
  return true;
}

/* UNIMPLEMENTED for kernels that the interpreter runs faster, since their compiled loops would be scalar or short:
 * measured in docs/experiments.md. */
hr_status hr__emit_worth(const hr__emitter *e, int64_t row) {
  enum { ROW_MIN = 128, RUN_MIN = 64 };
  const hr_kernel *kernel = e->kernel;
  if (e->target == NULL) {
    return HR_OK;
  }
  if (row > 0 && row < ROW_MIN && !e->target->is_gcc) {
    return hr__emit_unable(kernel, "short rows: clang writes their loops out without vectors");
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    hr_dtype touched = instr->access >= 0                ? kernel->accesses[instr->access].dtype
                       : instr->kind == HR_INSTR_CONVERT ? instr->to
                                                         : HR_DTYPE_NONE;
    if (touched == HR_DTYPE_C32 || (touched == HR_DTYPE_F16 && !e->has_blocks)) {
      return hr__emit_unable(kernel, "f16 without blocks: compilers do not vectorise its conversions");
    }
    if (instr->kind == HR_INSTR_COMPUTE && hr__emit_is_loop(instr)) {
      return hr__emit_unable(kernel, "special functions: calls and loops, as in the interpreter");
    }
    if (instr->kind == HR_INSTR_COMPUTE && hr_op_table(instr->op)->rule == HR_RULE_SEEDED &&
        !hr__emit_is_run(e, instr)) {
      return hr__emit_unable(kernel, "random numbers that are no run: the interpreter makes 64 at once");
    }
    const hr__emit_axes *axes = instr->access >= 0 ? &e->axes[instr->access] : NULL;
    bool is_step = axes != NULL && axes->lie == HR__LIE_RAGGED && axes->strides[0][axes->rank - 1] != 1 &&
                   axes->strides[0][axes->rank - 1] != 0;
    if (is_step && axes->rank > 1 && axes->dims[axes->rank - 1] < RUN_MIN && !e->target->is_gcc) {
      return hr__emit_unable(kernel, "short runs of steps");
    }
  }
  return HR_OK;
}

int64_t hr__emit_reserve(hr__emitter *e, int64_t bytes) {
  int64_t offset = e->scratch;
  bytes = hr_round_up(bytes, 64);
  e->scratch += bytes % 4096 == 0 ? bytes + 64 : bytes; /* blocks of equal size must not share cache sets */
  return offset;
}

/* Beyond the maximum number of extents, a number is a literal. */
hr__emit_extent hr__emit_runtime(hr__emitter *e, int64_t number) {
  hr__emit_extent extent;
  hr_emission *emission = e->emission;
  if (emission->extent_count == HR_EMISSION_EXTENTS) {
    snprintf(extent.text, sizeof extent.text, "%lld", (long long)number);
  } else {
    snprintf(extent.text, sizeof extent.text, "x%d", emission->extent_count);
    emission->extents[emission->extent_count++] = number;
  }
  return extent;
}

int64_t hr__emit_cut(int64_t from, int64_t width) {
  int64_t lanes = 16, to;
  while ((to = width / lanes * lanes) <= from) {
    lanes /= 2;
  }
  return to;
}

int64_t hr__emit_grain(const hr_kernel *kernel, int64_t elements) {
  double cost = 0.1; /* nanoseconds an element */
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->level == HR_LEVEL_ELEMENT) {
      int weight = hr__emit_weight(kernel, instr);
      cost += weight >= 100 ? 2 : 0.02 * weight;
      cost += instr->access >= 0 ? 0.05 : 0;
    }
  }
  double grain = 10000.0 / (cost * (double)(elements < 1 ? 1 : elements));
  return grain < 1 ? 1 : (int64_t)grain;
}

static void use_scalar(hr__emitter *e, int scalar, hr_class cls) {
  e->scalar_used[scalar * HR_CLASS_COUNT + (int)cls] = true;
}

static void find_scalars(hr__emitter *e) {
  const hr_kernel *kernel = e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    for (int s = 0; s < instr->source_count; ++s) {
      if (instr->sources[s].kind == HR_SOURCE_SCALAR) {
        use_scalar(e, instr->sources[s].index, hr__emit_source_class(kernel, instr, s));
      }
    }
    if (instr->kind == HR_INSTR_LOAD && kernel->accesses[instr->access].fill >= 0) {
      use_scalar(e, kernel->accesses[instr->access].fill, kernel->registers[instr->dst].cls);
    }
  }
}

void hr__emit_head(hr__emitter *e, const char *name, int pass) {
  HR__EMIT(
      e,
      "HR_KERNEL void %s_%d(void *const *args, const hr_scalar *scalars, const int64_t *extents, char *workspace,\n"
      "                    char *scratch, int64_t begin, int64_t end) {\n",
      name, pass);
  for (int x = 0; x < e->emission->extent_count; ++x) {
    HR__EMIT(e, "const int64_t x%d = extents[%d];\n", x, x);
  }
  hr__emit_scalars(e, "scalars");
}

void hr__emit_scalars(hr__emitter *e, const char *scalars) {
  for (int s = 0; s < e->kernel->scalar_count; ++s) {
    for (int cls = 0; cls < HR_CLASS_COUNT; ++cls) {
      if (e->scalar_used[s * HR_CLASS_COUNT + cls]) {
        HR__EMIT(e, "const %s s%d_%s = hr__scalar_as_%s(&%s[%d]);\n", hr__emit_type((hr_class)cls), s,
                 hr_class_name((hr_class)cls), hr_class_name((hr_class)cls), scalars, s);
      }
    }
  }
}

/* ---- one kernel ---- */

void hr__emit_functions(hr__emitter *e) {
  for (int k = 0; k < e->kernel->instr_count && e->status == HR_OK; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    hr_instr take = {.kind = HR_INSTR_COMPUTE, .op = instr->op, .cls = instr->cls};
    static const hr_op combines[] = {[HR_STORE_ADD] = HR_OP_SUM,
                                     [HR_STORE_MUL] = HR_OP_PROD,
                                     [HR_STORE_MAX] = HR_OP_AMAX,
                                     [HR_STORE_MIN] = HR_OP_AMIN};
    switch (instr->kind) {
      case HR_INSTR_COMPUTE:
        if (instr->op != HR_OP_COPY) {
          hr__emit_row_function(e, instr);
        }
        break;
      case HR_INSTR_REDUCE:
        hr__emit_reduce_functions(e, instr->op, instr->cls);
        break;
      case HR_INSTR_ARGREDUCE:
        hr__emit_row_function(e, &take);
        hr__emit_best_functions(e, instr->op, instr->cls);
        break;
      case HR_INSTR_STORE:
        if (instr->mode != HR_STORE_SET) {
          hr__emit_reduce_functions(e, combines[instr->mode], hr_dtype_class(e->kernel->accesses[instr->access].dtype));
        }
        break;
      default:
        break;
    }
  }
}

/* UNIMPLEMENTED for kernels that no form can emit yet. */
static hr_status check(const hr_kernel *kernel) {
  for (int a = 0; a < kernel->access_count; ++a) {
    if (kernel->accesses[a].bound_count >= HR__EMIT_COORDS) {
      return hr__emit_unable(kernel, "so many bounds");
    }
    if (kernel->accesses[a].term_count > 0 && kernel->accesses[a].bound_count > 0) {
      return hr__emit_unable(kernel, "an indirect access with bounds");
    }
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->kind == HR_INSTR_STORE && kernel->accesses[instr->access].term_count > 0) {
      return hr__emit_unable(kernel, "scatter");
    }
  }
  return kernel->ordered_mask != 0 ? hr__emit_unable(kernel, "ordered dims") : HR_OK;
}

hr_status hr__emit_begin(hr__emitter *e, const hr_kernel *kernel) {
  e->kernel = kernel;
  size_t registers = (size_t)kernel->register_count + 1;
  e->values = HR_ARENA_ARRAY(&e->arena, hr__emit_value, registers);
  e->axes = HR_ARENA_ARRAY(&e->arena, hr__emit_axes, (size_t)kernel->access_count + 1);
  e->scalar_used = HR_ARENA_ARRAY(&e->arena, bool, (size_t)(kernel->scalar_count + 1) * HR_CLASS_COUNT);
  e->stored_as = HR_ARENA_ARRAY(&e->arena, hr_dtype, registers);
  if (e->values == NULL || e->axes == NULL || e->scalar_used == NULL || e->stored_as == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "emit: no memory for kernel %s",
                          kernel->name != NULL ? kernel->name : "");
  }
  for (int r = 0; r < kernel->register_count; ++r) {
    e->values[r] = (hr__emit_value){
        .cls = kernel->registers[r].cls, .alias = r, .stage = -1, .last_stage = -1, .offset = -1, .reload = -1};
  }
  find_scalars(e);
  return HR_OK;
}

/* True if the combined elements are close together: only then are windows and short rows worth blocks. A block of each
 * element of a row is copied with a stride, and strides of cache lines read all lines again for each element. Sums of 8
 * neighbours take half of the interpreter's time, those of 32 up to twice as long. */
static bool has_near_runs(const hr_kernel *unrolled) {
  enum { STEP_MAX = 20 };
  int inner = unrolled->rank - 1;
  while (inner >= 0 && unrolled->dims[inner] == 1) {
    --inner;
  }
  bool is_near = inner >= 0;
  for (int k = 0; is_near && k < unrolled->access_count; ++k) {
    const hr_access *access = &unrolled->accesses[k];
    int64_t step = access->strides[inner];
    is_near = access->arg < 0 || (step >= -STEP_MAX && step <= STEP_MAX);
  }
  return is_near;
}

static hr_status emit(hr__emitter *e, const hr_kernel *given, const char *name, hr_emission *out_emission) {
  const hr_kernel *kernel;
  HR_RETURN_IF_ERROR(check(given));
  HR_RETURN_IF_ERROR(hr__emit_unroll(given, &e->arena, &kernel));
  e->kernel = kernel;
  hr_kernel_split_dims(kernel, kernel->reduce_mask, &e->kept, &e->walked);
  e->is_nest = kernel != given && hr__emit_is_nest(e);
  if (e->target != NULL && kernel != given && !e->is_nest && !has_near_runs(kernel)) {
    return hr__emit_unable(given, "windows of long steps");
  }
  HR_RETURN_IF_ERROR(hr__emit_begin(e, kernel));
  hr__emit_functions(e);
  hr_status status = e->status;
  if (status == HR_OK && e->is_nest) {
    status = hr__emit_nest(e, name, out_emission);
  } else if (status == HR_OK && kernel->reduce_mask == 0) {
    status = hr__emit_points(e, name, out_emission);
  } else if (status == HR_OK && kernel->order == HR_ORDER_LANES) {
    status = hr__emit_rows(e, name, out_emission);
  } else if (status == HR_OK) {
    status = hr__emit_columns(e, name, out_emission);
  }
  if (status == HR_OK) {
    status = e->status;
  }
  out_emission->scratch_bytes = (size_t)e->scratch;
  return status != HR_OK ? status : hr_text_status(e->text);
}

hr_status hr_emit_kernel(const hr_kernel *kernel, const hr_emit_target *target, const char *name, hr_text *out_text,
                         hr_emission *out_emission) {
  hr__emitter e = {.text = out_text, .target = target, .emission = out_emission};
  size_t length = out_text->length;
  *out_emission = (hr_emission){0};
  hr_status status = emit(&e, kernel, name, out_emission);
  if (hr_status_code_of(status) == HR_STATUS_UNIMPLEMENTED) {
    hr_text_cut(out_text, length);
  }
  hr_arena_fini(&e.arena);
  return status;
}
