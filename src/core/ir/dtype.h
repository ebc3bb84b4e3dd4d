/* dtype.h (core): compute classes and conversions.
 *
 * Arithmetic uses one of nine classes. A load widens a value of a narrower dtype to its class. After every operation
 * the value is rounded (f8, f16, bf16) or wrapped (8 and 16 bit integers; bool: != 0) back to its dtype, so that a
 * fused chain gives the same bits as the unfused one.
 */
#ifndef HEADRACE_CORE_DTYPE_H_
#define HEADRACE_CORE_DTYPE_H_

#include <stdbool.h>

#include "headrace/dtype.h"

typedef enum hr_class {
  HR_CLASS_NONE = 0,
  HR_CLASS_B8,  /* uint8_t, 0 or 1: results of comparisons, logic */
  HR_CLASS_I32, /* int32_t: u8 i8 u16 i16 i32, and arithmetic on bool */
  HR_CLASS_U32, /* uint32_t */
  HR_CLASS_I64,
  HR_CLASS_U64,
  HR_CLASS_F32, /* f8 f16 bf16 f32 */
  HR_CLASS_F64,
  HR_CLASS_C64,
  HR_CLASS_C128,
  HR_CLASS_COUNT
} hr_class;

typedef struct hr_c64 {
  float re, im;
} hr_c64;
typedef struct hr_c128 {
  double re, im;
} hr_c128;

/* The class in which values of dtype are held in registers: B8 for bool. */
hr_class hr_dtype_class(hr_dtype dtype);
/* The class in which arithmetic with a result of dtype is done: I32 for bool. */
hr_class hr_dtype_arithmetic_class(hr_dtype dtype);
size_t hr_class_size(hr_class cls);
const char *hr_class_name(hr_class cls);
/* True if a register of dtype's class holds values that dtype can't: f8, f16, bf16, 8- and 16-bit integers, bool. */
bool hr_dtype_is_narrow(hr_dtype dtype);

bool hr_dtype_is_integer(hr_dtype dtype); /* bool included */
bool hr_dtype_is_real(hr_dtype dtype);    /* floating point */
bool hr_dtype_is_float8(hr_dtype dtype);  /* floating point of one byte: no row computes in it */
bool hr_dtype_is_complex(hr_dtype dtype);

/* PyTorch's promotion of two dtypes of tensors with dims. */
hr_dtype hr_dtype_promote(hr_dtype a, hr_dtype b);
/* Promotion of a tensor's dtype with a host number: only a higher category changes it. */
hr_dtype hr_dtype_promote_scalar(hr_dtype tensor, hr_dtype scalar);

/* The value as a double; the real part of a complex value. */
static inline double hr_scalar_as_f64(const hr_scalar *scalar) {
  return scalar->dtype == HR_DTYPE_F64 || scalar->dtype == HR_DTYPE_C128 ? scalar->value.f[0]
         : scalar->dtype == HR_DTYPE_U64                                 ? (double)scalar->value.u
                                                                         : (double)scalar->value.i;
}
static inline float hr_scalar_as_f32(const hr_scalar *scalar) {
  return scalar->dtype == HR_DTYPE_F64 || scalar->dtype == HR_DTYPE_C128 ? (float)scalar->value.f[0]
         : scalar->dtype == HR_DTYPE_U64                                 ? (float)scalar->value.u
                                                                         : (float)scalar->value.i;
}

float hr_f16_to_f32(uint16_t half);
uint16_t hr_f32_to_f16(float value); /* to nearest, ties to even */
float hr_bf16_to_f32(uint16_t half);
uint16_t hr_f32_to_bf16(float value); /* to nearest, ties to even; NaN stays NaN */
/* Conversions of the five one-byte formats, by dtype; any other dtype gives 0. Rounds to nearest, ties to even. For
 * numbers that are too large see the formats. */
float hr_f8_to_f32(hr_dtype dtype, uint8_t byte);
uint8_t hr_f32_to_f8(hr_dtype dtype, float value);

#endif
