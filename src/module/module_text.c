/* module_text.c: see module_text.h. Functions of math.h are those of the prelude, selected by the argument's type: by
 * _Generic in C, by overloads in the C++ of a device.
 */
#include "module/module_text.h"

#include <stdio.h>

static const char *const one_argument[] = {
    "exp",  "exp2", "expm1", "log",  "log2",  "log10", "log1p", "sqrt", "sin",  "cos",   "tan",  "asin", "acos",
    "atan", "sinh", "cosh",  "tanh", "asinh", "acosh", "atanh", "erf",  "erfc", "floor", "ceil", "trunc"};
static const char *const two_arguments[] = {"pow", "atan2", "hypot", "fmod", "copysign", "nextafter"};

/* Functions whose names in the prelude differ, or that it lacks. round rounds halves away from 0. */
static const char *const own_functions =
    "typedef struct half { uint16_t bits; } half;\ntypedef struct bfloat16 { uint16_t bits; } bfloat16;\n"
    "HR_VMATH_FN half to_half(float x) { half y; y.bits = hr__half_from_f32(x); return y; }\n"
    "HR_VMATH_FN bfloat16 to_bfloat16(float x) { bfloat16 y; y.bits = hr__bfloat_from_f32(x); return y; }\n"
    "HR_VMATH_FN float hr__float_of_half(half x) { return hr__f32_from_half(x.bits); }\n"
    "HR_VMATH_FN float hr__float_of_bfloat16(bfloat16 x) { return hr__f32_from_bfloat(x.bits); }\n"
    "HR_VMATH_FN float hr_f32_rint(float x) { return hr_f32_round(x); }\n"
    "HR_VMATH_FN double hr_f64_rint(double x) { return hr_f64_round(x); }\n"
    "#define HR__ROUNDINGS(T, f) \\\n"
    "HR_VMATH_FN T hr_##f##_halves(T x) { \\\n"
    "  const T t = hr_##f##_trunc(x); \\\n"
    "  return hr_##f##_copysign(hr_##f##_abs(x - t) >= (T)0.5 ? t + hr_##f##_copysign((T)1, x) : t, x); } \\\n"
    "HR_VMATH_FN T hr_##f##_fmax(T a, T b) { return a != a ? b : (b != b ? a : (a > b ? a : b)); } \\\n"
    "HR_VMATH_FN T hr_##f##_fmin(T a, T b) { return a != a ? b : (b != b ? a : (a < b ? a : b)); } \\\n"
    "HR_VMATH_FN T hr_##f##_fdim(T a, T b) { return a != a ? a : (b != b ? b : (a > b ? a - b : 0)); } \\\n"
    "HR_VMATH_FN T hr_##f##_rsqrt(T x) { return (T)1 / hr_##f##_sqrt(x); }\n"
    "HR__ROUNDINGS(float, f32)\nHR__ROUNDINGS(double, f64)\n"
    /* A row is summed in eight parts, which vectorise, in the same order everywhere. */
    "#define HR__ROWS(T, f) \\\n"
    "HR_VMATH_FN T hr_##f##_row_sum(const T *x, int64_t n) { \\\n"
    "  T part[8] = {0, 0, 0, 0, 0, 0, 0, 0}; int64_t k = 0; \\\n"
    "  for (; k + 8 <= n; k += 8) { for (int j = 0; j < 8; ++j) { part[j] += x[k + j]; } } \\\n"
    "  for (int j = 0; k < n; ++k, ++j) { part[j] += x[k]; } \\\n"
    "  return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7])); } \\\n"
    "HR_VMATH_FN T hr_##f##_row_dot(const T *x, const T *y, int64_t n) { \\\n"
    "  T part[8] = {0, 0, 0, 0, 0, 0, 0, 0}; int64_t k = 0; \\\n"
    "  for (; k + 8 <= n; k += 8) { for (int j = 0; j < 8; ++j) { part[j] += x[k + j] * y[k + j]; } } \\\n"
    "  for (int j = 0; k < n; ++k, ++j) { part[j] += x[k] * y[k]; } \\\n"
    "  return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7])); } \\\n"
    "HR_VMATH_FN T hr_##f##_row_max(const T *x, int64_t n) { \\\n"
    "  T most = -(T)INFINITY; \\\n"
    "  for (int64_t k = 0; k < n; ++k) { most = x[k] > most || x[k] != x[k] ? x[k] : most; } return most; } \\\n"
    "HR_VMATH_FN T hr_##f##_row_min(const T *x, int64_t n) { \\\n"
    "  T least = (T)INFINITY; \\\n"
    "  for (int64_t k = 0; k < n; ++k) { least = x[k] < least || x[k] != x[k] ? x[k] : least; } return least; }\n"
    "HR__ROWS(float, f32)\nHR__ROWS(double, f64)\n";

static const char *const own_names =
    "#define NAN (0.0f * INFINITY)\n#define M_PI 3.14159265358979323846\n#define M_E 2.71828182845904523536\n"
    "#define isnan(x) ((x) != (x))\n#define isinf(x) ((x) == INFINITY || (x) == -INFINITY)\n"
    "#define isfinite(x) ((x) - (x) == 0)\n"
    "#define thread(d) ((d) == 0 ? hr__x : (d) == 1 ? hr__y : hr__z)\n#define threads(d) (hr__size[d])\n"
    "#ifndef __cplusplus\n#define bool _Bool\n#define true 1\n#define false 0\n"
    "#define to_float(x) _Generic((x), half: hr__float_of_half, bfloat16: hr__float_of_bfloat16)(x)\n"
    "#define row_sum(x, n) _Generic(*(x), float: hr_f32_row_sum, double: hr_f64_row_sum)(x, n)\n"
    "#define row_max(x, n) _Generic(*(x), float: hr_f32_row_max, double: hr_f64_row_max)(x, n)\n"
    "#define row_min(x, n) _Generic(*(x), float: hr_f32_row_min, double: hr_f64_row_min)(x, n)\n"
    "#define row_dot(x, y, n) _Generic(*(x), float: hr_f32_row_dot, double: hr_f64_row_dot)(x, y, n)\n"
    "#else\n"
    "HR_VMATH_FN float to_float(half x) { return hr__float_of_half(x); }\n"
    "HR_VMATH_FN float to_float(bfloat16 x) { return hr__float_of_bfloat16(x); }\n"
    "#define HR__ROW(f) \\\n"
    "HR_VMATH_FN float f(const float *x, int64_t n) { return hr_f32_##f(x, n); } \\\n"
    "HR_VMATH_FN double f(const double *x, int64_t n) { return hr_f64_##f(x, n); }\n"
    "HR__ROW(row_sum)\nHR__ROW(row_max)\nHR__ROW(row_min)\n"
    "HR_VMATH_FN float row_dot(const float *x, const float *y, int64_t n) { return hr_f32_row_dot(x, y, n); }\n"
    "HR_VMATH_FN double row_dot(const double *x, const double *y, int64_t n) { return hr_f64_row_dot(x, y, n); }\n"
    "#endif\n";

/* ---- functions of math.h ---- */

/* A name for both types, and C's name for float; `own` is the prelude's. */
static void define_one(hr_text *text, const char *name, const char *own) {
  hr_text_printf(text,
                 "#ifndef __cplusplus\n#define %s(x) _Generic((x), float: hr_f32_%s, default: hr_f64_%s)(x)\n#else\n"
                 "HR_VMATH_FN float hr__m_%s(float x) { return hr_f32_%s(x); }\n"
                 "template <typename T> HR_VMATH_FN double hr__m_%s(T x) { return hr_f64_%s((double)x); }\n"
                 "#define %s(x) hr__m_%s(x)\n#endif\n#define %sf(x) hr_f32_%s(x)\n",
                 name, own, own, name, own, name, own, name, name, name, own);
}

static void define_two(hr_text *text, const char *name) {
  hr_text_printf(text,
                 "#ifndef __cplusplus\n"
                 "#define %s(x, y) _Generic((x) + (y), float: hr_f32_%s, default: hr_f64_%s)(x, y)\n#else\n"
                 "HR_VMATH_FN float hr__m_%s(float x, float y) { return hr_f32_%s(x, y); }\n"
                 "template <typename T, typename U> HR_VMATH_FN double hr__m_%s(T x, U y) {\n"
                 "  return hr_f64_%s((double)x, (double)y);\n}\n"
                 "#define %s(x, y) hr__m_%s(x, y)\n#endif\n#define %sf(x, y) hr_f32_%s(x, y)\n",
                 name, name, name, name, name, name, name, name, name, name, name);
}

static void define_names(hr_text *text) {
  hr_text_append(text, own_functions);
  for (size_t k = 0; k < sizeof one_argument / sizeof *one_argument; ++k) {
    define_one(text, one_argument[k], one_argument[k]);
  }
  define_one(text, "fabs", "abs");
  define_one(text, "rint", "rint");
  define_one(text, "nearbyint", "rint");
  define_one(text, "round", "halves");
  define_one(text, "rsqrt", "rsqrt");
  define_one(text, "sigmoid", "sigmoid");
  for (size_t k = 0; k < sizeof two_arguments / sizeof *two_arguments; ++k) {
    define_two(text, two_arguments[k]);
  }
  define_two(text, "fmax");
  define_two(text, "fmin");
  define_two(text, "fdim");
  hr_text_append(text, own_names);
}

static void append_source(const hr__module_source *source, hr_text *text) {
  define_names(text);
  hr_text_append(text, "#line 1 \"source\"\n");
  hr_text_append_bytes(text, source->text.data, source->text.length);
  hr_text_append(text, "#line 1 \"module\"\n");
}

/* ---- the functions that programs call ---- */

/* The number `scalar` (an expression of an address) as the parameter's type. */
static void append_number(hr_text *text, const hr__module_parameter *p, const char *scalar) {
  const char *type = hr__module_type(p->dtype);
  switch (p->dtype) {
    case HR_DTYPE_F32:
      hr_text_printf(text, "  const float %s = hr__scalar_as_f32(%s);\n", p->name, scalar);
      break;
    case HR_DTYPE_F64:
      hr_text_printf(text, "  const double %s = hr__scalar_as_f64(%s);\n", p->name, scalar);
      break;
    case HR_DTYPE_F16:
    case HR_DTYPE_BF16:
      hr_text_printf(text, "  const %s %s = to_%s(hr__scalar_as_f32(%s));\n", type, p->name, type, scalar);
      break;
    case HR_DTYPE_BOOL:
      hr_text_printf(text, "  const bool %s = hr__scalar_as_b8(%s);\n", p->name, scalar);
      break;
    default: /* U64 has the bits of I64 */
      hr_text_printf(text, "  const %s %s = (%s)hr__scalar_as_i64(%s);\n", type, p->name, type, scalar);
  }
}

static void append_operand(hr_text *text, const hr__module_parameter *p, const char *address) {
  const char *type = hr__module_type(p->dtype), *constant = p->kind == HR_PARAMETER_IN ? "const " : "";
  hr_text_printf(text, "  %s%s *restrict %s = (%s%s *)%s;\n", constant, type, p->name, constant, type, address);
}

/* The place of a parameter among the node's inputs, outputs or scalars: updated operands are first. */
static int place_of(const hr__module_head *head, int parameter) {
  hr_parameter_kind kind = head->parameters[parameter].kind;
  int place = 0;
  for (int p = 0; p < head->parameter_count; ++p) {
    hr_parameter_kind other = head->parameters[p].kind;
    bool is_like = kind != HR_PARAMETER_INOUT && kind != HR_PARAMETER_NUMBER && other == HR_PARAMETER_INOUT;
    place += is_like || (other == kind && p < parameter);
  }
  return place;
}

static int input_count(const hr__module_head *head) {
  int count = 0;
  for (int p = 0; p < head->parameter_count; ++p) {
    count += head->parameters[p].kind == HR_PARAMETER_IN || head->parameters[p].kind == HR_PARAMETER_INOUT;
  }
  return count;
}

static void append_call(hr_text *text, const hr__module_head *head, const char *thread) {
  hr_text_printf(text, "hr__k_%s(", head->name);
  for (int p = 0; p < head->parameter_count; ++p) {
    hr_text_printf(text, "%s, ", head->parameters[p].name);
  }
  hr_text_printf(text, "%s);\n", thread);
}

/* One thread after the other along the first dim, which vectorises. */
static void append_host_kernel(hr_text *text, const hr__module_head *head) {
  hr_text_printf(
      text,
      "HR_KERNEL void hr__r_%s(void *const *hr__in, void *const *hr__out, const hr_scalar *const *hr__numbers,\n"
      "                       const int64_t *hr__size, int64_t hr__begin, int64_t hr__end) {\n",
      head->name);
  for (int p = 0; p < head->parameter_count; ++p) {
    const hr__module_parameter *x = &head->parameters[p];
    char expression[48];
    const char *list = x->kind == HR_PARAMETER_NUMBER ? "hr__numbers"
                       : x->kind == HR_PARAMETER_IN   ? "hr__in"
                                                      : "hr__out";
    snprintf(expression, sizeof expression, "%s[%d]", list, place_of(head, p));
    (x->kind == HR_PARAMETER_NUMBER ? append_number : append_operand)(text, x, expression);
  }
  hr_text_append(text, "  const int64_t hr__width = hr__size[0], hr__height = hr__size[1];\n"
                       "  int64_t hr__first = hr__begin % hr__width, hr__row = hr__begin / hr__width;\n"
                       "  while (hr__begin < hr__end) {\n"
                       "    const int64_t hr__left = hr__end - hr__begin, hr__most = hr__width - hr__first;\n"
                       "    const int64_t hr__count = hr__left < hr__most ? hr__left : hr__most;\n"
                       "    const int64_t hr__y = hr__row % hr__height, hr__z = hr__row / hr__height;\n"
                       "    HR_INDEPENDENT\n"
                       "    for (int64_t hr__k = 0; hr__k < hr__count; ++hr__k) {\n      ");
  append_call(text, head, "hr__first + hr__k, hr__first + hr__k, hr__y, hr__z, hr__size");
  hr_text_append(text, "    }\n    hr__begin += hr__count, hr__first = 0, ++hr__row;\n  }\n}\n");
}

void hr__module_host_text(const hr__module_source *source, hr_text *text) {
  append_source(source, text);
  for (size_t k = 0; k < source->heads.count; ++k) {
    append_host_kernel(text, &source->heads.data[k]);
  }
}

/* ---- devices ---- */

static void append_parameter_struct(hr_text *text, const hr__module_head *head, const char *symbol) {
  int operands = 0, numbers = 0;
  for (int p = 0; p < head->parameter_count; ++p) {
    hr_parameter_kind kind = head->parameters[p].kind;
    operands += kind == HR_PARAMETER_INOUT ? 2 : kind != HR_PARAMETER_NUMBER;
    numbers += kind == HR_PARAMETER_NUMBER;
  }
  hr_text_printf(text, "struct %s {\n  char *workspace;\n  void *args[%d];\n", symbol, operands);
  if (numbers > 0) {
    hr_text_printf(text, "  hr_scalar scalars[%d];\n", numbers);
  }
  hr_text_printf(text, "  int64_t words[%d];\n};\n", operands + 5);
}

/* An operand's address with its offset, which is behind the number of threads, the grid and the group. */
static void append_device_operand(hr_text *text, const hr__module_head *head, int p) {
  const hr__module_parameter *x = &head->parameters[p];
  char expression[96];
  int place = place_of(head, p) + (x->kind == HR_PARAMETER_IN ? 0 : input_count(head));
  snprintf(expression, sizeof expression, "call.args[%d] + call.words[%d]", place, 5 + place);
  append_operand(text, x, expression);
}

void hr__module_device_text(const hr__module_source *source, const hr__module_head *head, const char *symbol,
                            hr_text *text) {
  append_source(source, text);
  append_parameter_struct(text, head, symbol);
  hr_text_printf(text,
                 "HR_KERNEL void %s_0(HR_CALL(%s)) {\n"
                 "  const int64_t hr__number = HR_BLOCK * call.words[4] + HR_THREAD;\n"
                 "  if (hr__number >= call.words[0]) {\n    return;\n  }\n",
                 symbol, symbol);
  for (int p = 0; p < head->parameter_count; ++p) {
    const hr__module_parameter *x = &head->parameters[p];
    char expression[48];
    if (x->kind != HR_PARAMETER_NUMBER) {
      append_device_operand(text, head, p);
      continue;
    }
    snprintf(expression, sizeof expression, "&call.scalars[%d]", place_of(head, p));
    append_number(text, x, expression);
  }
  hr_text_append(text, "  const int64_t hr__first = hr__number % call.words[1], hr__row = hr__number / call.words[1];\n"
                       "  const int64_t hr__y = hr__row % call.words[2], hr__z = hr__row / call.words[2];\n  ");
  append_call(text, head, "hr__first, hr__first, hr__y, hr__z, call.words + 1");
  hr_text_append(text, "}\n");
}
