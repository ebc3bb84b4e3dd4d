/* dtype.h: element types and host numbers.
 *
 * A dtype is the storage format of one element of a buffer. Arithmetic on bool, 8- and 16-bit types happens in a wider
 * compute class; results are rounded or wrapped back to the dtype after each operation.
 */
#ifndef HEADRACE_DTYPE_H_
#define HEADRACE_DTYPE_H_

#include <stddef.h>
#include <stdint.h>

#include "headrace/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_dtype {
  HR_DTYPE_NONE = 0,
  HR_DTYPE_BOOL, /* one byte, 0 or 1 */
  HR_DTYPE_U8,
  HR_DTYPE_I8,
  HR_DTYPE_U16,
  HR_DTYPE_I16,
  HR_DTYPE_U32,
  HR_DTYPE_I32,
  HR_DTYPE_U64,
  HR_DTYPE_I64,
  HR_DTYPE_F16,  /* IEEE binary16 */
  HR_DTYPE_BF16, /* upper half of binary32 */
  HR_DTYPE_F32,
  HR_DTYPE_F64,
  HR_DTYPE_C64,  /* two F32: real, imaginary */
  HR_DTYPE_C128, /* two F64: real, imaginary */
  HR_DTYPE_C32,  /* two F16: real, imaginary */
  /* Formats of one byte, in which numbers are stored: converted, compared and moved, never computed with. */
  HR_DTYPE_F8E4M3FN,      /* exponent bias 7; no infinity: larger numbers become 448 */
  HR_DTYPE_F8E5M2,        /* the upper half of F16: bias 15, with infinities */
  HR_DTYPE_F8E4M3FNUZ,    /* bias 8; neither infinity nor -0; 0x80 is NaN, and too large numbers become NaN */
  HR_DTYPE_F8E5M2FNUZ,    /* bias 16; otherwise the same */
  HR_DTYPE_F8E8M0FNU,     /* 2^(byte - 127), 0xff is NaN; no sign, which is lost, and no zero, which becomes 2^-127 */
  HR_DTYPE_F8E4M3,        /* bias 7, with infinities: 240 is the largest number */
  HR_DTYPE_F8E3M4,        /* bias 3, with infinities: 15.5 is the largest number */
  HR_DTYPE_F8E4M3B11FNUZ, /* bias 11; otherwise as F8E4M3FNUZ */
  HR_DTYPE_F4E2M1FN,      /* the low 4 bits; bias 1, neither infinity nor NaN: larger numbers become 6, NaN -0 */
  HR_DTYPE_COUNT
} hr_dtype;

/* Bytes of one element; 0 for HR_DTYPE_NONE. */
HR_API size_t hr_dtype_size(hr_dtype dtype);

/* "f32", "bool", ...; "none" for a value that is no dtype. A static string. */
HR_API const char *hr_dtype_name(hr_dtype dtype);

/* The inverse of hr_dtype_name; HR_DTYPE_NONE if no dtype has that name. */
HR_API hr_dtype hr_dtype_parse(const char *name);

/* A number that the host passes to an operation at run time: a learning rate, a bound, a seed. Its kind (dtype) is part
 * of a program, its value never is. dtype is one of HR_DTYPE_BOOL, HR_DTYPE_I64, HR_DTYPE_U64, HR_DTYPE_F64,
 * HR_DTYPE_C128; U64 is for integers that I64 does not hold. */
typedef struct hr_scalar {
  hr_dtype dtype;
  union {
    int64_t i;   /* BOOL, I64 */
    uint64_t u;  /* U64 */
    double f[2]; /* F64: f[0]; C128: real, imaginary */
  } value;
} hr_scalar;

/* A scalar from a C number. hr_scalar_bool stores 0 or 1. */
static inline hr_scalar hr_scalar_i64(int64_t value) {
  hr_scalar scalar;
  scalar.dtype = HR_DTYPE_I64, scalar.value.f[1] = 0, scalar.value.i = value;
  return scalar;
}
static inline hr_scalar hr_scalar_u64(uint64_t value) {
  hr_scalar scalar;
  scalar.dtype = HR_DTYPE_U64, scalar.value.f[1] = 0, scalar.value.u = value;
  return scalar;
}
static inline hr_scalar hr_scalar_bool(int value) {
  hr_scalar scalar;
  scalar.dtype = HR_DTYPE_BOOL, scalar.value.f[1] = 0, scalar.value.i = value != 0;
  return scalar;
}
static inline hr_scalar hr_scalar_c128(double real, double imaginary) {
  hr_scalar scalar;
  scalar.dtype = HR_DTYPE_C128, scalar.value.f[0] = real, scalar.value.f[1] = imaginary;
  return scalar;
}
static inline hr_scalar hr_scalar_f64(double value) {
  hr_scalar scalar;
  scalar.dtype = HR_DTYPE_F64, scalar.value.f[0] = value, scalar.value.f[1] = 0;
  return scalar;
}

#ifdef __cplusplus
}
#endif

#endif
