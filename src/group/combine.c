/* combine.c: combines arrays element by element, in the order of the arrays.
 *
 * Blocks of elements are accumulated on the stack, so that the output may be any of the inputs, and f16 and bf16 are
 * rounded once. */
#include <string.h>

#include "core/ir/dtype.h"
#include "core/math/convert.h"
#include "group/segment.h"

enum { BLOCK = 512 }; /* elements */

const char *hr_group_op_name(hr_group_op op) {
  static const char *const names[] = {"sum", "product", "min", "max", "and", "or", "xor", "average"};
  return op >= 0 && op < HR_GROUP_OP_COUNT ? names[op] : "unknown";
}

static bool is_bitwise(hr_group_op op) {
  return op == HR_GROUP_AND || op == HR_GROUP_OR || op == HR_GROUP_XOR;
}

static bool is_supported(hr_group_op op, hr_dtype dtype) {
  switch (dtype) {
    case HR_DTYPE_C64:
    case HR_DTYPE_C128:
      return op == HR_GROUP_SUM || op == HR_GROUP_AVERAGE;
    case HR_DTYPE_F16:
    case HR_DTYPE_BF16:
    case HR_DTYPE_F32:
    case HR_DTYPE_F64:
      return !is_bitwise(op);
    default:
      return hr_dtype_is_integer(dtype) && op != HR_GROUP_AVERAGE;
  }
}

hr_status hr_group_check_op(hr_group_op op, hr_dtype dtype) {
  if (op < 0 || op >= HR_GROUP_OP_COUNT || !is_supported(op, dtype)) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "the operation \"%s\" is not defined for elements of %s",
                          hr_group_op_name(op), hr_dtype_name(dtype));
  }
  return HR_OK;
}

/* One row of loops for each dtype: the first array is loaded into the accumulators, each further one joins them. */
#define LOOP(expression)                 \
  for (int64_t i = 0; i < n; ++i) {      \
    const A x = acc[i], y = LOAD(in[i]); \
    acc[i] = (A)(expression);            \
  }                                      \
  break

#define LOADS(name, T)                                                              \
  static void load_##name(A *restrict acc, const void *from, int64_t n) {           \
    const T *in = from;                                                             \
    for (int64_t i = 0; i < n; ++i) {                                               \
      acc[i] = LOAD(in[i]);                                                         \
    }                                                                               \
  }                                                                                 \
  static void store_##name(const A *restrict acc, void *to, int64_t n, A divisor) { \
    T *out = to;                                                                    \
    if (divisor != 1) {                                                             \
      for (int64_t i = 0; i < n; ++i) {                                             \
        out[i] = STORE((A)(acc[i] / divisor));                                      \
      }                                                                             \
      return;                                                                       \
    }                                                                               \
    for (int64_t i = 0; i < n; ++i) {                                               \
      out[i] = STORE(acc[i]);                                                       \
    }                                                                               \
  }

#define FINISH(name)                                                                                        \
  static void combine_##name(hr_group_op op, int count, const void *const *inputs, size_t at, void *output, \
                             int64_t n) {                                                                   \
    A acc[BLOCK];                                                                                           \
    load_##name(acc, (const char *)inputs[0] + at, n);                                                      \
    for (int k = 1; k < count; ++k) {                                                                       \
      join_##name(op, acc, (const char *)inputs[k] + at, n);                                                \
    }                                                                                                       \
    store_##name(acc, (char *)output + at, n, op == HR_GROUP_AVERAGE ? (A)count : (A)1);                    \
  }

#define REALS(name, T)                                                                    \
  LOADS(name, T)                                                                          \
  static void join_##name(hr_group_op op, A *restrict acc, const void *from, int64_t n) { \
    const T *in = from;                                                                   \
    switch (op) {                                                                         \
      case HR_GROUP_PRODUCT:                                                              \
        LOOP(x *y);                                                                       \
      case HR_GROUP_MIN:                                                                  \
        LOOP(x != x || x < y ? x : y);                                                    \
      case HR_GROUP_MAX:                                                                  \
        LOOP(x != x || x > y ? x : y);                                                    \
      default:                                                                            \
        LOOP(x + y);                                                                      \
    }                                                                                     \
  }                                                                                       \
  FINISH(name)

#define INTEGERS(name, T)                                                                 \
  LOADS(name, T)                                                                          \
  static void join_##name(hr_group_op op, A *restrict acc, const void *from, int64_t n) { \
    const T *in = from;                                                                   \
    switch (op) {                                                                         \
      case HR_GROUP_PRODUCT:                                                              \
        LOOP(x *y);                                                                       \
      case HR_GROUP_MIN:                                                                  \
        LOOP(x < y ? x : y);                                                              \
      case HR_GROUP_MAX:                                                                  \
        LOOP(x > y ? x : y);                                                              \
      case HR_GROUP_AND:                                                                  \
        LOOP(x &y);                                                                       \
      case HR_GROUP_OR:                                                                   \
        LOOP(x | y);                                                                      \
      case HR_GROUP_XOR:                                                                  \
        LOOP(x ^ y);                                                                      \
      default:                                                                            \
        LOOP(x + y);                                                                      \
    }                                                                                     \
  }                                                                                       \
  FINISH(name)

#define LOAD(x) (x)
#define STORE(x) (x)
#define A float
REALS(f32, float)
#undef A
#define A double
REALS(f64, double)
#undef A
#define A uint8_t
INTEGERS(u8, uint8_t)
#undef A
#define A int8_t
INTEGERS(i8, int8_t)
#undef A
#define A uint16_t
INTEGERS(u16, uint16_t)
#undef A
#define A int16_t
INTEGERS(i16, int16_t)
#undef A
#define A uint32_t
INTEGERS(u32, uint32_t)
#undef A
#define A int32_t
INTEGERS(i32, int32_t)
#undef A
#define A uint64_t
INTEGERS(u64, uint64_t)
#undef A
#define A int64_t
INTEGERS(i64, int64_t)
#undef A
#undef LOAD
#undef STORE

#define A float
#define LOAD(x) hr__f32_from_half(x)
#define STORE(x) hr__half_from_f32(x)
REALS(f16, uint16_t)
#undef LOAD
#undef STORE
#define LOAD(x) hr__f32_from_bfloat(x)
#define STORE(x) hr__bfloat_from_f32(x)
REALS(bf16, uint16_t)
#undef LOAD
#undef STORE
#undef A

typedef void (*combine_fn)(hr_group_op op, int count, const void *const *inputs, size_t at, void *output, int64_t n);

static combine_fn function_of(hr_dtype dtype) {
  static const combine_fn functions[HR_DTYPE_COUNT] = {
      [HR_DTYPE_BOOL] = combine_u8, [HR_DTYPE_U8] = combine_u8,     [HR_DTYPE_I8] = combine_i8,
      [HR_DTYPE_U16] = combine_u16, [HR_DTYPE_I16] = combine_i16,   [HR_DTYPE_U32] = combine_u32,
      [HR_DTYPE_I32] = combine_i32, [HR_DTYPE_U64] = combine_u64,   [HR_DTYPE_I64] = combine_i64,
      [HR_DTYPE_F16] = combine_f16, [HR_DTYPE_BF16] = combine_bf16, [HR_DTYPE_F32] = combine_f32,
      [HR_DTYPE_F64] = combine_f64, [HR_DTYPE_C64] = combine_f32,   [HR_DTYPE_C128] = combine_f64,
  };
  return functions[dtype];
}

/* bool: 0 and 1 stay 0 and 1. */
static hr_group_op op_for_bool(hr_group_op op) {
  return op == HR_GROUP_SUM || op == HR_GROUP_MAX ? HR_GROUP_OR
         : op == HR_GROUP_XOR                     ? op
         : op == HR_GROUP_OR                      ? op
                                                  : HR_GROUP_AND;
}

void hr_group_combine(hr_group_op op, hr_dtype dtype, int count, const void *const *inputs, void *output,
                      int64_t elements) {
  combine_fn combine = function_of(dtype);
  size_t size = hr_dtype_size(dtype);
  if (hr_dtype_is_complex(dtype)) {
    elements *= 2;
    size /= 2;
  }
  if (dtype == HR_DTYPE_BOOL) {
    op = op_for_bool(op);
  }
  for (int64_t i = 0; i < elements; i += BLOCK) {
    combine(op, count, inputs, (size_t)i * size, output, elements - i < BLOCK ? elements - i : BLOCK);
  }
}
