/* Instructions as C expressions: types, functions made from the rows of ops.def, sources.
 *
 *   r3 = add.f32 r1, $0        HR_VMATH_FN float hr_op_add_f32(const float a, const float b) { return (a + b); }
 *                              const float r3 = hr_op_add_f32(r1, s0_f32);
 *
 * A text contains each function once, however many kernels use it: the preprocessor removes the repetitions.
 */
#include <ctype.h>
#include <string.h>

#include "compiler/emit_internal.h"

static const char *const special_texts[] = {
#include "compiler/emit_special.inc"
};

const char *hr__emit_type(hr_class cls) {
  static const char *const types[HR_CLASS_COUNT] = {
      [HR_CLASS_B8] = "uint8_t",  [HR_CLASS_I32] = "int32_t",  [HR_CLASS_U32] = "uint32_t",
      [HR_CLASS_I64] = "int64_t", [HR_CLASS_U64] = "uint64_t", [HR_CLASS_F32] = "float",
      [HR_CLASS_F64] = "double",  [HR_CLASS_C64] = "hr_c64",   [HR_CLASS_C128] = "hr_c128"};
  return (unsigned)cls < HR_CLASS_COUNT && types[cls] != NULL ? types[cls] : "void";
}

const char *hr__emit_dtype(hr_dtype dtype) {
  static const char *const names[HR_DTYPE_COUNT] = {[HR_DTYPE_BOOL] = "BOOL",
                                                    [HR_DTYPE_U8] = "U8",
                                                    [HR_DTYPE_I8] = "I8",
                                                    [HR_DTYPE_U16] = "U16",
                                                    [HR_DTYPE_I16] = "I16",
                                                    [HR_DTYPE_U32] = "U32",
                                                    [HR_DTYPE_I32] = "I32",
                                                    [HR_DTYPE_U64] = "U64",
                                                    [HR_DTYPE_I64] = "I64",
                                                    [HR_DTYPE_F16] = "F16",
                                                    [HR_DTYPE_BF16] = "BF16",
                                                    [HR_DTYPE_F32] = "F32",
                                                    [HR_DTYPE_F64] = "F64",
                                                    [HR_DTYPE_C64] = "C64",
                                                    [HR_DTYPE_C128] = "C128",
                                                    [HR_DTYPE_C32] = "C32",
                                                    [HR_DTYPE_F8E4M3FN] = "F8E4M3FN",
                                                    [HR_DTYPE_F8E5M2] = "F8E5M2",
                                                    [HR_DTYPE_F8E4M3FNUZ] = "F8E4M3FNUZ",
                                                    [HR_DTYPE_F8E5M2FNUZ] = "F8E5M2FNUZ",
                                                    [HR_DTYPE_F8E8M0FNU] = "F8E8M0FNU",
                                                    [HR_DTYPE_F8E4M3] = "F8E4M3",
                                                    [HR_DTYPE_F8E3M4] = "F8E3M4",
                                                    [HR_DTYPE_F8E4M3B11FNUZ] = "F8E4M3B11FNUZ",
                                                    [HR_DTYPE_F4E2M1FN] = "F4E2M1FN"};
  return (unsigned)dtype < HR_DTYPE_COUNT && names[dtype] != NULL ? names[dtype] : "F32";
}

static bool is_integer(hr_class cls) {
  return cls >= HR_CLASS_B8 && cls <= HR_CLASS_U64;
}
static bool is_complex(hr_class cls) {
  return cls == HR_CLASS_C64 || cls == HR_CLASS_C128;
}

int hr__emit_resolve(const hr__emitter *e, int reg) {
  while (e->values[reg].alias != reg) {
    reg = e->values[reg].alias;
  }
  return reg;
}

/* ---- sources ---- */

/* True if this is the comparison of an unrolled argreduce: does key 0 with index 2 replace key 1 with index 3? Without
 * indices key 0 came later. */
static bool is_take(const hr_instr *instr) {
  return instr->kind == HR_INSTR_COMPUTE && hr_op_table(instr->op)->family == HR_FAMILY_ARGREDUCE;
}

hr_class hr__emit_source_class(const hr_kernel *kernel, const hr_instr *instr, int s) {
  const hr_op_row *row = hr_op_table(instr->op);
  switch (instr->kind) {
    case HR_INSTR_COMPUTE:
      if (is_take(instr)) {
        return s < 2 ? instr->cls : HR_CLASS_I64;
      }
      return row->rule == HR_RULE_SEEDED            ? HR_CLASS_I64
             : row->rule == HR_RULE_WHERE && s == 0 ? HR_CLASS_B8
                                                    : instr->cls;
    case HR_INSTR_CONVERT:
      return instr->sources[0].kind == HR_SOURCE_REGISTER ? kernel->registers[instr->sources[0].index].cls
             : instr->cls != HR_CLASS_NONE                ? instr->cls
                                                          : hr_dtype_class(instr->to);
    case HR_INSTR_STORE:
      return hr_dtype_class(kernel->accesses[instr->access].dtype);
    case HR_INSTR_ARGREDUCE:
      return s == 0 ? instr->cls : HR_CLASS_I64;
    default:
      return instr->cls;
  }
}

void hr__emit_source(hr__emitter *e, const hr_instr *instr, int s) {
  const hr_source *source = &instr->sources[s];
  if (source->kind == HR_SOURCE_SCALAR) {
    HR__EMIT(e, "s%d_%s", source->index, hr_class_name(hr__emit_source_class(e->kernel, instr, s)));
  } else {
    HR__EMIT(e, "r%d", hr__emit_resolve(e, source->index));
  }
}

/* ---- functions ---- */

/* Binds the names in expressions of ops.def to a class. */
static void bind_class(hr__emitter *e, hr_class cls) {
  const char *name = hr_class_name(cls), *real = cls == HR_CLASS_C64    ? "f32"
                                                 : cls == HR_CLASS_C128 ? "f64"
                                                 : cls == HR_CLASS_B8   ? "i32"
                                                                        : name;
  const char *part = cls == HR_CLASS_C64 ? "float" : cls == HR_CLASS_C128 ? "double" : hr__emit_type(cls);
  HR__EMIT(e, "#define T %s\n#define F(f) hr_%s_##f\n#define K(x) ((%s)(x))\n#define C(f) hr_%s_##f\n",
           hr__emit_type(cls), real, part, name);
}

static void unbind_class(hr__emitter *e) {
  HR__EMIT(e, "#undef T\n#undef F\n#undef K\n#undef C\n#endif\n");
}

static const char *text_of(hr_class cls, const char *integer, const char *real, const char *complex) {
  return is_integer(cls) ? integer : is_complex(cls) ? complex : real;
}

static void emit_take(hr__emitter *e, hr_op op, hr_class cls) {
  const hr_op_row *row = hr_op_table(op);
  const char *name = hr_class_name(cls), *better = text_of(cls, row->integer_text, row->real_text, NULL);
  HR__EMIT(e, "#ifndef HR_TAKE_%s_%s\n#define HR_TAKE_%s_%s\n", row->name, name, row->name, name);
  bind_class(e, cls);
  HR__EMIT(e, "HR_VMATH_FN int hr_beats_%s_%s(const T a, const T b) { return (%s) | ((a != a) & (b == b)); }\n",
           row->name, name, better);
  HR__EMIT(e,
           "HR_VMATH_FN uint8_t hr_is_better_%s_%s(const T a, const T b, const int64_t i, const int64_t j) {\n"
           "  return (uint8_t)(hr_beats_%s_%s(a, b) | (!hr_beats_%s_%s(b, a) & (i < j)));\n}\n",
           row->name, name, row->name, name, row->name, name);
  unbind_class(e);
}

bool hr__emit_is_special(const hr_instr *instr) {
  const hr_op_row *row = hr_op_table(instr->op);
  const char *text = text_of(instr->cls, row->integer_text, row->real_text, row->complex_text);
  return text != NULL && strstr(text, "(special_") != NULL;
}

bool hr__emit_is_loop(const hr_instr *instr) {
  bool is_straight =
      instr->cls == HR_CLASS_F32 && hr_op_table(instr->op)->cost == HR_COST_SERIES; /* core/math/special_f32.h */
  return !is_straight && hr__emit_is_special(instr);
}

/* Emits the functions of special.h, which are long and seldom needed, and therefore not in the prelude. */
static void emit_special_functions(hr__emitter *e) {
  HR__EMIT(e, "#ifndef HR_SPECIAL\n#define HR_SPECIAL\n");
  for (size_t i = 0; i < sizeof special_texts / sizeof *special_texts; ++i) {
    HR__EMIT(e, "%s", special_texts[i]);
  }
  HR__EMIT(e, "#endif\n");
}

void hr__emit_row_function(hr__emitter *e, const hr_instr *instr) {
  const hr_op_row *row = hr_op_table(instr->op);
  const char *name = hr_class_name(instr->cls);
  if (is_take(instr)) {
    emit_take(e, instr->op, instr->cls);
    return;
  }
  const char *text = text_of(instr->cls, row->integer_text, row->real_text, row->complex_text);
  if (row->family != HR_FAMILY_POINTWISE || text == NULL || row->arity != instr->source_count) {
    e->status = e->status != HR_OK ? e->status : hr__emit_unable(e->kernel, row->name);
    return;
  }
  if (hr__emit_is_special(instr)) {
    emit_special_functions(e);
  }
  HR__EMIT(e, "#ifndef HR_OP_%s_%s\n#define HR_OP_%s_%s\n", row->name, name, row->name, name);
  bind_class(e, instr->cls);
  HR__EMIT(e, "HR_VMATH_FN %s hr_op_%s_%s(", hr__emit_type(e->kernel->registers[instr->dst].cls), row->name, name);
  for (int s = 0; s < row->arity; ++s) {
    HR__EMIT(e, "%sconst %s %c", s > 0 ? ", " : "", hr__emit_type(hr__emit_source_class(e->kernel, instr, s)),
             "abcd"[s]);
  }
  HR__EMIT(e, ") { return (%s); }\n", text);
  unbind_class(e);
}

/* Devices: two lanes for each thread, a warp of 32 threads. Every thread gets the result. Thread t has lanes t and t +
 * 32; in quads it has lanes 4t and 4t + 1, and thread t + 16 the two after them. hr_chunks folds results of chunks in
 * place. hr_few_chunks folds few of them, at most one for each thread, and leaves them unchanged, so that all warps of
 * a block may do so at once. */
static void emit_warp_functions(hr__emitter *e, const char *row, const char *cls) {
  HR__EMIT(e,
           "HR_VMATH_FN T hr_fold_%s_%s(const T low, const T high) {\n"
           "  T a = hr_combine_%s_%s(low, high);\n"
           "  for (int half = HR_WARP / 2; half >= 1; half /= 2) {\n"
           "    T b = a;\n"
           "    HR_SHUFFLE(b, (HR_LANE + half) %% HR_WARP);\n"
           "    a = hr_combine_%s_%s(a, b);\n"
           "  }\n"
           "  HR_SHUFFLE(a, 0);\n"
           "  return a;\n}\n",
           row, cls, row, cls, row, cls);
  HR__EMIT(e,
           "HR_VMATH_FN T hr_fold_quads_%s_%s(T a, T b) {\n"
           "  HR_UNROLL\n"
           "  for (int step = 0; step < 5; ++step) {\n"
           "    const int half = step < 4 ? HR_WARP / 4 >> step : HR_WARP / 2;\n"
           "    T c = a, d = b;\n"
           "    HR_SHUFFLE(c, (HR_LANE + half) %% HR_WARP);\n    HR_SHUFFLE(d, (HR_LANE + half) %% HR_WARP);\n"
           "    a = hr_combine_%s_%s(a, c), b = hr_combine_%s_%s(b, d);\n"
           "  }\n"
           "  a = hr_combine_%s_%s(a, b);\n"
           "  HR_SHUFFLE(a, 0);\n"
           "  return a;\n}\n",
           row, cls, row, cls, row, cls, row, cls);
  HR__EMIT(e,
           "HR_VMATH_FN T hr_few_chunks_%s_%s(const T *part, const int count) {\n"
           "  const T none = hr_identity_%s_%s();\n"
           "  return count == 1 ? part[0] : hr_fold_%s_%s(HR_LANE < count ? hr_combine_%s_%s(none, part[HR_LANE]) : "
           "none, none);\n}\n",
           row, cls, row, cls, row, cls, row, cls);
  HR__EMIT(e,
           "HR_VMATH_FN T hr_chunks_%s_%s(T *part, int64_t count) {\n"
           "  while (count > 1) {\n"
           "    int64_t made = 0;\n"
           "    for (int64_t at = 0; at < count; at += %d, ++made) {\n"
           "      const int64_t end = count - at < %d ? count : at + %d;\n"
           "      T a = hr_identity_%s_%s(), b = a;\n"
           "      const int64_t rounds = (end - at) / (2 * HR_WARP), rest = at + rounds * 2 * HR_WARP + HR_LANE;\n"
           "      HR_UNROLL_BY_8\n"
           "      for (int64_t r = 0; r < rounds; ++r) {\n"
           "        const int64_t i = at + r * 2 * HR_WARP + HR_LANE;\n"
           "        a = hr_combine_%s_%s(a, part[i]), b = hr_combine_%s_%s(b, part[i + HR_WARP]);\n"
           "      }\n"
           "      if (rest < end) { a = hr_combine_%s_%s(a, part[rest]); }\n"
           "      if (rest + HR_WARP < end) { b = hr_combine_%s_%s(b, part[rest + HR_WARP]); }\n"
           "      a = hr_fold_%s_%s(a, b);\n"
           "      HR_WARP_BARRIER;\n"
           "      if (HR_LANE == 0) { part[made] = a; }\n"
           "      HR_WARP_BARRIER;\n"
           "    }\n"
           "    count = made;\n"
           "  }\n"
           "  return part[0];\n}\n",
           row, cls, (int)HR_REDUCE_CHUNK, (int)HR_REDUCE_CHUNK, (int)HR_REDUCE_CHUNK, row, cls, row, cls, row, cls,
           row, cls, row, cls, row, cls);
}

/* Selects are folded as whole vectors to the end, regardless of the elements after the half: single ones would be
 * jumps. */
enum { VECTOR_MIN = 4 };

/* The best of a chunk's lanes goes to the first. The result does not depend on the order. */
static void emit_lane_choice(hr__emitter *e, const char *row, const char *name, const char *type) {
  HR__EMIT(e, "HR_VMATH_FN void hr_choose_%s_%s(%s *restrict key, int64_t *restrict index) {\n", row, name, type);
  for (int half = HR_REDUCE_LANES / 2; half >= 1; half /= 2) {
    HR__EMIT(e,
             "  HR_LANES\n  for (int j = 0; j < %d; ++j) {\n"
             "    const %s a = key[j + %d], b = key[j];\n    const int64_t i = index[j + %d], k = index[j];\n"
             "    const int take = (i != INT64_MAX) & ((k == INT64_MAX) | hr_is_better_%s_%s(a, b, i, k));\n"
             "    key[j] = take ? a : b;\n    index[j] = take ? i : k;\n  }\n",
             half < VECTOR_MIN ? VECTOR_MIN : half, type, half, half, row, name);
  }
  HR__EMIT(e, "}\n");
}

/* The best of a warp's candidates, and the best of the results of chunks. The result does not depend on the order. */
void hr__emit_best_functions(hr__emitter *e, hr_op op, hr_class cls) {
  const char *row = hr_op_table(op)->name, *name = hr_class_name(cls), *type = hr__emit_type(cls);
  HR__EMIT(e, "#ifndef HR_CHOOSE_%s_%s\n#define HR_CHOOSE_%s_%s\n", row, name, row, name);
  if (!e->is_device) {
    emit_lane_choice(e, row, name, type);
    HR__EMIT(e, "#endif\n");
    return;
  }
  HR__EMIT(
      e,
      "HR_VMATH_FN void hr_update_best_%s_%s(%s *key, int64_t *index, const %s k, const int64_t i) {\n"
      "  if (i != INT64_MAX && (*index == INT64_MAX || hr_is_better_%s_%s(k, *key, i, *index))) { *key = k; "
      "*index = i; }\n}\n"
      "HR_VMATH_FN void hr_choose_%s_%s(%s *key, int64_t *index) {\n"
      "  for (int half = HR_WARP / 2; half >= 1; half /= 2) {\n"
      "    %s k = *key;\n    int64_t i = *index;\n"
      "    HR_SHUFFLE_AS(%s, k, (HR_LANE + half) %% HR_WARP);\n    HR_SHUFFLE_AS(int64_t, i, (HR_LANE + half) %% "
      "HR_WARP);\n"
      "    hr_update_best_%s_%s(key, index, k, i);\n  }\n"
      "  %s best = *key;\n  int64_t at = *index;\n  HR_SHUFFLE_AS(%s, best, 0);\n  HR_SHUFFLE_AS(int64_t, at, 0);\n"
      "  *key = best;\n  *index = at;\n}\n#endif\n",
      row, name, type, type, row, name, row, name, type, type, type, row, name, type, type);
}

void hr__emit_reduce_functions(hr__emitter *e, hr_op op, hr_class cls) {
  const hr_op_row *row = hr_op_table(op);
  const char *name = hr_class_name(cls), *r = row->name;
  const char *combine = text_of(cls, row->integer_text, row->real_text, row->complex_text);
  const char *identity = text_of(cls, row->integer_identity, row->real_identity, row->complex_identity);
  if (row->family != HR_FAMILY_REDUCE || combine == NULL) {
    e->status = e->status != HR_OK ? e->status : hr__emit_unable(e->kernel, r);
    return;
  }
  HR__EMIT(e, "#ifndef HR_REDUCE_%s_%s\n#define HR_REDUCE_%s_%s\n", r, name, r, name);
  bind_class(e, cls);
  HR__EMIT(e, "HR_VMATH_FN T hr_identity_%s_%s(void) { return %s; }\n", r, name, identity);
  HR__EMIT(e, "HR_VMATH_FN T hr_combine_%s_%s(const T a, const T b) { return %s; }\n", r, name, combine);
  if (e->is_device) {
    emit_warp_functions(e, r, name);
    unbind_class(e);
    return;
  }
  HR__EMIT(e, "HR_VMATH_FN T hr_fold_%s_%s(T *restrict lane) {\n", r, name);
  for (int half = HR_REDUCE_LANES / 2; half >= 1; half /= 2) {
    bool is_select = strchr(combine, '?') != NULL;
    HR__EMIT(e, "  %sfor (int j = 0; j < %d; ++j) { lane[j] = hr_combine_%s_%s(lane[j], lane[j + %d]); }\n",
             is_select ? "HR_LANES\n  " : "", is_select && half < VECTOR_MIN ? VECTOR_MIN : half, r, name, half);
  }
  HR__EMIT(e, "  return lane[0];\n}\n");
  HR__EMIT(e,
           "static T hr_chunks_%s_%s(T *part, int64_t count) {\n"
           "  while (count > 1) {\n"
           "    int64_t made = 0;\n"
           "    for (int64_t at = 0; at < count; at += %d, ++made) {\n"
           "      T lane[%d];\n"
           "      for (int j = 0; j < %d; ++j) { lane[j] = hr_identity_%s_%s(); }\n"
           "      const int64_t end = count - at < %d ? count : at + %d;\n"
           "      for (int64_t i = at; i < end; ++i) {\n"
           "        lane[(i - at) %% %d] = hr_combine_%s_%s(lane[(i - at) %% %d], part[i]);\n"
           "      }\n"
           "      part[made] = hr_fold_%s_%s(lane);\n"
           "    }\n"
           "    count = made;\n"
           "  }\n"
           "  return part[0];\n}\n",
           r, name, (int)HR_REDUCE_CHUNK, (int)HR_REDUCE_LANES, (int)HR_REDUCE_LANES, r, name, (int)HR_REDUCE_CHUNK,
           (int)HR_REDUCE_CHUNK, (int)HR_REDUCE_LANES, r, name, (int)HR_REDUCE_LANES, r, name);
  unbind_class(e);
}

/* ---- statements ---- */

static void emit_sources(hr__emitter *e, const hr_instr *instr) {
  for (int s = 0; s < instr->source_count; ++s) {
    HR__EMIT(e, s > 0 ? ", " : "");
    hr__emit_source(e, instr, s);
  }
}

/* The dtype that a conversion produces: a value that only stores read is rounded there. */
static hr_dtype converted_to(const hr__emitter *e, const hr_instr *convert) {
  bool is_rounded_there = hr_dtype_is_narrow(convert->to) && hr_dtype_class(convert->to) == HR_CLASS_F32 &&
                          e->stored_as[convert->dst] == convert->to;
  return is_rounded_there ? HR_DTYPE_F32 : convert->to;
}

void hr__emit_statement(hr__emitter *e, const hr_instr *instr) {
  const hr_op_row *row = hr_op_table(instr->op);
  HR__EMIT(e, "const %s r%d = ", hr__emit_type(e->kernel->registers[instr->dst].cls), instr->dst);
  if (instr->kind == HR_INSTR_CONVERT) {
    hr_class from = hr__emit_source_class(e->kernel, instr, 0);
    HR__EMIT(e, "HR__FROM_%s_TO(%s, ", hr_class_name(from), hr__emit_dtype(converted_to(e, instr)));
    hr__emit_source(e, instr, 0);
    HR__EMIT(e, ");\n");
    return;
  }
  if (instr->op == HR_OP_COPY) {
    hr__emit_source(e, instr, 0);
    HR__EMIT(e, ";\n");
    return;
  }
  HR__EMIT(e, "hr_%s_%s_%s(",
           !is_take(instr)            ? "op"
           : instr->source_count == 2 ? "beats"
                                      : "is_better",
           row->name, hr_class_name(instr->cls));
  emit_sources(e, instr);
  HR__EMIT(e, ");\n");
}

bool hr__emit_has_near(const hr_instr *instr) {
  return instr->kind == HR_INSTR_COMPUTE && instr->cls == HR_CLASS_F32 &&
         (hr_op_table(instr->op)->traits & HR_TRAIT_NEAR) != 0;
}

void hr__emit_near(hr__emitter *e, const hr_instr *instr) {
  HR__EMIT(e, "const float r%d = hr__f32_%s_near(", instr->dst, hr_op_table(instr->op)->name);
  emit_sources(e, instr);
  HR__EMIT(e, ");\n");
}

void hr__emit_look(hr__emitter *e, const hr_instr *instr) {
  HR__EMIT(e, "far |= !hr__f32_is_%s(", instr->source_count == 1 ? "small" : "near");
  emit_sources(e, instr);
  HR__EMIT(e, ");\n");
}

int hr__emit_weight(const hr_kernel *kernel, const hr_instr *instr) {
  (void)kernel;
  if (instr->kind == HR_INSTR_CONVERT) {
    return instr->to == HR_DTYPE_F16 || instr->to == HR_DTYPE_BF16 || hr_dtype_is_float8(instr->to) ? 2 : 1;
  }
  if (instr->kind != HR_INSTR_COMPUTE) {
    return 0;
  }
  bool calls = instr->cls == HR_CLASS_F64 || is_complex(instr->cls); /* the host's functions: loops that stay scalar */
  switch (hr_op_table(instr->op)->cost) {
    case HR_COST_CHEAP:
    case HR_COST_PLAIN:
      return 1;
    case HR_COST_DIVISION:
      return is_integer(instr->cls) || is_complex(instr->cls) ? 100 : 4;
    case HR_COST_CALL:
    case HR_COST_SERIES:
      return is_integer(instr->cls) || calls ? 100 : 10;
    case HR_COST_SCALAR:
      return 100;
  }
  return 1;
}
