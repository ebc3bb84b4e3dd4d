/* Element types: sizes, names, compute classes, promotion, and the 8- and 16-bit floating point formats. */
#include "core/ir/dtype.h"

#include <math.h>
#include <string.h>

typedef struct dtype_row {
  const char *name;
  size_t size;
  hr_class cls;   /* values in registers */
  int category;   /* 0 bool, 1 integer, 2 real, 3 complex */
  bool is_narrow; /* the class holds more than the dtype */
} dtype_row;

enum { CATEGORY_NONE = -1, CATEGORY_BOOL, CATEGORY_INTEGER, CATEGORY_REAL, CATEGORY_COMPLEX };

static const dtype_row rows[HR_DTYPE_COUNT] = {
    [HR_DTYPE_NONE] = {"none", 0, HR_CLASS_NONE, CATEGORY_NONE, false},
    [HR_DTYPE_BOOL] = {"bool", 1, HR_CLASS_B8, CATEGORY_BOOL, true},
    [HR_DTYPE_U8] = {"u8", 1, HR_CLASS_I32, CATEGORY_INTEGER, true},
    [HR_DTYPE_I8] = {"i8", 1, HR_CLASS_I32, CATEGORY_INTEGER, true},
    [HR_DTYPE_U16] = {"u16", 2, HR_CLASS_I32, CATEGORY_INTEGER, true},
    [HR_DTYPE_I16] = {"i16", 2, HR_CLASS_I32, CATEGORY_INTEGER, true},
    [HR_DTYPE_U32] = {"u32", 4, HR_CLASS_U32, CATEGORY_INTEGER, false},
    [HR_DTYPE_I32] = {"i32", 4, HR_CLASS_I32, CATEGORY_INTEGER, false},
    [HR_DTYPE_U64] = {"u64", 8, HR_CLASS_U64, CATEGORY_INTEGER, false},
    [HR_DTYPE_I64] = {"i64", 8, HR_CLASS_I64, CATEGORY_INTEGER, false},
    [HR_DTYPE_F16] = {"f16", 2, HR_CLASS_F32, CATEGORY_REAL, true},
    [HR_DTYPE_BF16] = {"bf16", 2, HR_CLASS_F32, CATEGORY_REAL, true},
    [HR_DTYPE_F32] = {"f32", 4, HR_CLASS_F32, CATEGORY_REAL, false},
    [HR_DTYPE_F64] = {"f64", 8, HR_CLASS_F64, CATEGORY_REAL, false},
    [HR_DTYPE_C64] = {"c64", 8, HR_CLASS_C64, CATEGORY_COMPLEX, false},
    [HR_DTYPE_C128] = {"c128", 16, HR_CLASS_C128, CATEGORY_COMPLEX, false},
    [HR_DTYPE_C32] = {"c32", 4, HR_CLASS_C64, CATEGORY_COMPLEX, true},
    [HR_DTYPE_F8E4M3FN] = {"f8e4m3fn", 1, HR_CLASS_F32, CATEGORY_REAL, true},
    [HR_DTYPE_F8E5M2] = {"f8e5m2", 1, HR_CLASS_F32, CATEGORY_REAL, true},
    [HR_DTYPE_F8E4M3FNUZ] = {"f8e4m3fnuz", 1, HR_CLASS_F32, CATEGORY_REAL, true},
    [HR_DTYPE_F8E5M2FNUZ] = {"f8e5m2fnuz", 1, HR_CLASS_F32, CATEGORY_REAL, true},
    [HR_DTYPE_F8E8M0FNU] = {"f8e8m0fnu", 1, HR_CLASS_F32, CATEGORY_REAL, true},
    [HR_DTYPE_F8E4M3] = {"f8e4m3", 1, HR_CLASS_F32, CATEGORY_REAL, true},
    [HR_DTYPE_F8E3M4] = {"f8e3m4", 1, HR_CLASS_F32, CATEGORY_REAL, true},
    [HR_DTYPE_F8E4M3B11FNUZ] = {"f8e4m3b11fnuz", 1, HR_CLASS_F32, CATEGORY_REAL, true},
    [HR_DTYPE_F4E2M1FN] = {"f4e2m1fn", 1, HR_CLASS_F32, CATEGORY_REAL, true},
};

static const dtype_row *row_of(hr_dtype dtype) {
  return &rows[(unsigned)dtype < HR_DTYPE_COUNT ? dtype : HR_DTYPE_NONE];
}

size_t hr_dtype_size(hr_dtype dtype) {
  return row_of(dtype)->size;
}

const char *hr_dtype_name(hr_dtype dtype) {
  return row_of(dtype)->name;
}

hr_dtype hr_dtype_parse(const char *name) {
  for (int dtype = HR_DTYPE_NONE + 1; dtype < HR_DTYPE_COUNT; ++dtype) {
    if (name != NULL && strcmp(rows[dtype].name, name) == 0) {
      return (hr_dtype)dtype;
    }
  }
  return HR_DTYPE_NONE;
}

hr_class hr_dtype_class(hr_dtype dtype) {
  return row_of(dtype)->cls;
}

hr_class hr_dtype_arithmetic_class(hr_dtype dtype) {
  return dtype == HR_DTYPE_BOOL ? HR_CLASS_I32 : row_of(dtype)->cls;
}

size_t hr_class_size(hr_class cls) {
  static const size_t sizes[HR_CLASS_COUNT] = {0, 1, 4, 4, 8, 8, 4, 8, 8, 16};
  return (unsigned)cls < HR_CLASS_COUNT ? sizes[cls] : 0;
}

const char *hr_class_name(hr_class cls) {
  static const char *const names[HR_CLASS_COUNT] = {"none", "b8",  "i32", "u32", "i64",
                                                    "u64",  "f32", "f64", "c64", "c128"};
  return names[(unsigned)cls < HR_CLASS_COUNT ? cls : HR_CLASS_NONE];
}

bool hr_dtype_is_narrow(hr_dtype dtype) {
  return row_of(dtype)->is_narrow;
}

bool hr_dtype_is_integer(hr_dtype dtype) {
  int category = row_of(dtype)->category;
  return category == CATEGORY_BOOL || category == CATEGORY_INTEGER;
}

bool hr_dtype_is_real(hr_dtype dtype) {
  return row_of(dtype)->category == CATEGORY_REAL;
}

bool hr_dtype_is_float8(hr_dtype dtype) {
  return hr_dtype_is_real(dtype) && row_of(dtype)->size == 1;
}

bool hr_dtype_is_complex(hr_dtype dtype) {
  return row_of(dtype)->category == CATEGORY_COMPLEX;
}

static bool is_signed(hr_dtype dtype) {
  return dtype == HR_DTYPE_I8 || dtype == HR_DTYPE_I16 || dtype == HR_DTYPE_I32 || dtype == HR_DTYPE_I64;
}

static hr_dtype promote_integers(hr_dtype a, hr_dtype b) {
  if (is_signed(a) == is_signed(b)) {
    return rows[a].size >= rows[b].size ? a : b;
  }
  hr_dtype with_sign = is_signed(a) ? a : b, without = is_signed(a) ? b : a;
  if (rows[with_sign].size > rows[without].size) {
    return with_sign;
  }
  switch (without) { /* the signed type that holds both; PyTorch rejects pairs beyond 64 bits, here they wrap */
    case HR_DTYPE_U8:
      return HR_DTYPE_I16;
    case HR_DTYPE_U16:
      return HR_DTYPE_I32;
    default:
      return HR_DTYPE_I64;
  }
}

hr_dtype hr_dtype_promote(hr_dtype a, hr_dtype b) {
  if (a == b || b == HR_DTYPE_NONE) {
    return a;
  }
  int category_a = row_of(a)->category, category_b = row_of(b)->category;
  if (category_a < category_b) {
    hr_dtype swap = a;
    a = b, b = swap;
    category_b = category_a, category_a = row_of(a)->category;
  }
  if (category_b == CATEGORY_NONE || category_b == CATEGORY_BOOL) {
    return a;
  }
  if (category_a == CATEGORY_COMPLEX) {
    bool keeps = category_b == CATEGORY_INTEGER || b == HR_DTYPE_F16 || b == HR_DTYPE_C32;
    bool is_wide = a == HR_DTYPE_C128 || b == HR_DTYPE_F64 || b == HR_DTYPE_C128;
    return keeps ? a : is_wide ? HR_DTYPE_C128 : HR_DTYPE_C64;
  }
  if (category_a != category_b) {
    return a;
  }
  if (category_a == CATEGORY_INTEGER) {
    return promote_integers(a, b);
  }
  if (rows[a].size == rows[b].size) {
    return HR_DTYPE_F32; /* f16 and bf16 */
  }
  return rows[a].size > rows[b].size ? a : b;
}

hr_dtype hr_dtype_promote_scalar(hr_dtype tensor, hr_dtype scalar) {
  int category = row_of(scalar)->category;
  if (category <= row_of(tensor)->category) {
    return tensor;
  }
  switch (category) {
    case CATEGORY_INTEGER:
      return HR_DTYPE_I64;
    case CATEGORY_REAL:
      return HR_DTYPE_F32;
    case CATEGORY_COMPLEX:
      return tensor == HR_DTYPE_F64 ? HR_DTYPE_C128 : tensor == HR_DTYPE_F16 ? HR_DTYPE_C32 : HR_DTYPE_C64;
    default:
      return scalar;
  }
}

static float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

float hr_f16_to_f32(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u, mantissa = half & 1023u;
  if (exponent == 31) {
    return float_of_bits(sign | 0x7f800000u | mantissa << 13);
  }
  if (exponent != 0) {
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  }
  float magnitude = (float)mantissa * 0x1p-24f; /* subnormal in f16, exact here */
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t hr_f32_to_f16(float value) {
  uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) { /* 65520 and more round to infinity */
    return (uint16_t)(sign | 0x7c00u);
  }
  if (magnitude < 0x38800000u) { /* below the smallest normal: units of 2^-24 */
    uint32_t exponent = magnitude >> 23;
    if (exponent < 102) { /* less than half a unit */
      return (uint16_t)sign;
    }
    uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u, shift = 126 - exponent;
    uint32_t units = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), tie = 1u << (shift - 1);
    return (uint16_t)(sign | (units + (rest > tie || (rest == tie && (units & 1u)))));
  }
  uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

float hr_bf16_to_f32(uint16_t half) {
  return float_of_bits((uint32_t)half << 16);
}

uint16_t hr_f32_to_bf16(float value) {
  uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return (uint16_t)(bits >> 16 | 0x40u);
  }
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* The formats with a sign and fields of exponent and mantissa. */
typedef struct f8_format {
  int mantissa, bias;        /* bits, exponent of 2^0 */
  uint8_t largest, overflow; /* without sign: the largest finite number, and the code of larger ones */
  uint8_t nan;               /* without sign; 0x80: there is no -0, whose code it has */
} f8_format;

static const f8_format *f8_format_of(hr_dtype dtype) {
  static const f8_format formats[HR_DTYPE_COUNT] = {
      [HR_DTYPE_F8E4M3FN] = {3, 7, 0x7e, 0x7e, 0x7f},      [HR_DTYPE_F8E5M2] = {2, 15, 0x7b, 0x7c, 0x7f},
      [HR_DTYPE_F8E4M3FNUZ] = {3, 8, 0x7f, 0x80, 0x80},    [HR_DTYPE_F8E5M2FNUZ] = {2, 16, 0x7f, 0x80, 0x80},
      [HR_DTYPE_F8E4M3] = {3, 7, 0x77, 0x78, 0x7c},        [HR_DTYPE_F8E3M4] = {4, 3, 0x6f, 0x70, 0x78},
      [HR_DTYPE_F8E4M3B11FNUZ] = {3, 11, 0x7f, 0x80, 0x80}};
  bool is_one = (unsigned)dtype < HR_DTYPE_COUNT && formats[dtype].mantissa > 0;
  return is_one ? &formats[dtype] : NULL;
}

/* The numbers of F4E2M1FN, of which bit 3 is the sign. */
static const float f4_numbers[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

static float f4_to_f32(uint8_t bits) {
  return (bits & 8) != 0 ? -f4_numbers[bits & 7] : f4_numbers[bits & 7];
}

static uint8_t f32_to_f4(float value) {
  uint8_t low = 0;
  float magnitude = fabsf(value);
  if (isnan(value)) {
    return 8;
  }
  while (low < 7 && f4_numbers[low + 1] <= magnitude) {
    ++low;
  }
  float middle = low < 7 ? (f4_numbers[low] + f4_numbers[low + 1]) / 2 : INFINITY;
  bool is_up = low < 7 && (magnitude > middle || (magnitude >= middle && low % 2 == 1));
  return (uint8_t)((signbit(value) ? 8 : 0) | (low + is_up));
}

float hr_f8_to_f32(hr_dtype dtype, uint8_t byte) {
  const f8_format *format = f8_format_of(dtype);
  if (format == NULL) {
    bool is_power = dtype == HR_DTYPE_F8E8M0FNU;
    return dtype == HR_DTYPE_F4E2M1FN ? f4_to_f32(byte) : !is_power ? 0 : byte == 0xff ? NAN : ldexpf(1, byte - 127);
  }
  int magnitude = byte & 0x7f, exponent = magnitude >> format->mantissa, one = 1 << format->mantissa;
  bool is_negative = byte >= 0x80;
  if (format->nan != 0x80 ? magnitude > format->largest : byte == 0x80) {
    bool is_infinity = format->overflow == magnitude && format->overflow > format->largest;
    return copysignf(is_infinity ? INFINITY : NAN, is_negative ? -1.0f : 1.0f);
  }
  float value = exponent == 0 ? ldexpf((float)magnitude, 1 - format->bias - format->mantissa)
                              : ldexpf((float)(one + magnitude % one), exponent - format->bias - format->mantissa);
  return is_negative ? -value : value;
}

static uint8_t f32_to_power(float value) {
  uint32_t bits = bits_of_float(value), exponent = bits >> 23 & 0xffu, mantissa = bits & 0x7fffffu;
  /* A half is a tie. It rounds up to the next power, because the code below is odd, except 2^-127, which rounds down to
   * 0.
   */
  bool is_up = mantissa > 0x400000u || (mantissa == 0x400000u && exponent > 0);
  return (uint8_t)(exponent == 0xffu ? 0xffu : exponent + is_up);
}

uint8_t hr_f32_to_f8(hr_dtype dtype, float value) {
  const f8_format *format = f8_format_of(dtype);
  if (format == NULL) {
    return dtype == HR_DTYPE_F8E8M0FNU ? f32_to_power(value) : dtype == HR_DTYPE_F4E2M1FN ? f32_to_f4(value) : 0;
  }
  uint8_t sign = signbit(value) ? 0x80 : 0;
  if (isnan(value)) {
    return sign | format->nan;
  }
  float magnitude = fabsf(value);
  if (magnitude >= 0x1p17f) { /* larger than every format's range, or infinity */
    return sign | format->overflow;
  }
  int exponent;
  frexpf(magnitude, &exponent);
  bool is_subnormal = magnitude < ldexpf(1, 1 - format->bias);
  int place = is_subnormal ? 1 : exponent - 1 + format->bias; /* the exponent field, but 1 for the lowest two */
  int units = (int)rintf(ldexpf(magnitude, format->mantissa + format->bias - place));
  int code = units + ((place - 1) << format->mantissa); /* a carry increments the exponent */
  if (code == 0 && format->nan == 0x80) {
    return 0;
  }
  return sign | (uint8_t)(code > format->largest ? format->overflow : code);
}
