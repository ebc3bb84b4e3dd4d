/* Element types: the 8- and 16-bit formats against arithmetic in double, promotion against PyTorch's table. */
#include "core/ir/dtype.h"

#include "core/math/convert.h"
#include "hr_test.h"

/* A 16-bit float's value from its fields, in double. */
static double value_of(uint16_t bits, int exponent_bits, int mantissa_bits) {
  int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1), mantissa = bits & ((1 << mantissa_bits) - 1);
  int bias = (1 << (exponent_bits - 1)) - 1;
  double magnitude = exponent == 0 ? ldexp(mantissa, 1 - bias - mantissa_bits)
                                   : ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  if (exponent == (1 << exponent_bits) - 1) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  }
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

HR_TEST(all_halves_widen_exactly_and_come_back) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float f16 = hr_f16_to_f32((uint16_t)bits), bf16 = hr_bf16_to_f32((uint16_t)bits);
    double expected_f16 = value_of((uint16_t)bits, 5, 10), expected_bf16 = value_of((uint16_t)bits, 8, 7);
    HR_ASSERT((isnan(f16) && isnan(expected_f16)) || (double)f16 == expected_f16);
    HR_ASSERT((isnan(bf16) && isnan(expected_bf16)) || (double)bf16 == expected_bf16);
    HR_ASSERT_EQ(signbit(f16) != 0, bits >> 15);
    if (isnan(f16)) {
      HR_ASSERT(isnan(hr_f16_to_f32(hr_f32_to_f16(f16))));
    } else {
      HR_ASSERT_EQ(hr_f32_to_f16(f16), bits);
    }
    if (isnan(bf16)) {
      HR_ASSERT(isnan(hr_bf16_to_f32(hr_f32_to_bf16(bf16))));
    } else {
      HR_ASSERT_EQ(hr_f32_to_bf16(bf16), bits);
    }
  }
}

/* Between each pair of neighbours: the middle rounds to the even one, a step to either side to the nearer one. */
HR_TEST(rounding_to_halves_is_to_nearest_even) {
  for (uint32_t low = 0; low < 0x7bff; ++low) {
    uint32_t high = low + 1, even = (low & 1) == 0 ? low : high;
    float middle = (hr_f16_to_f32((uint16_t)low) + hr_f16_to_f32((uint16_t)high)) / 2;
    HR_ASSERT_EQ(hr_f32_to_f16(middle), even);
    HR_ASSERT_EQ(hr_f32_to_f16(nextafterf(middle, 0)), low);
    HR_ASSERT_EQ(hr_f32_to_f16(nextafterf(middle, INFINITY)), high);
    HR_ASSERT_EQ(hr_f32_to_f16(-middle), even | 0x8000);
  }
  for (uint32_t low = 0; low < 0x7f7f; ++low) {
    uint32_t high = low + 1, even = (low & 1) == 0 ? low : high;
    float middle = (float)(((double)hr_bf16_to_f32((uint16_t)low) + (double)hr_bf16_to_f32((uint16_t)high)) / 2);
    HR_ASSERT_EQ(hr_f32_to_bf16(middle), even);
    HR_ASSERT_EQ(hr_f32_to_bf16(nextafterf(middle, 0)), low);
    HR_ASSERT_EQ(hr_f32_to_bf16(nextafterf(middle, INFINITY)), high);
  }
}

HR_TEST(halves_overflow_to_infinity) {
  HR_ASSERT_EQ(hr_f32_to_f16(65519.996f), 0x7bff);
  HR_ASSERT_EQ(hr_f32_to_f16(65520.0f), 0x7c00);
  HR_ASSERT_EQ(hr_f32_to_f16(1e30f), 0x7c00);
  HR_ASSERT_EQ(hr_f32_to_f16(-INFINITY), 0xfc00);
  HR_ASSERT_EQ(hr_f32_to_bf16(3.4e38f), 0x7f80);
  HR_ASSERT_EQ(hr_f32_to_f16(0x1p-26f), 0);
  HR_ASSERT_EQ(hr_f32_to_f16(0x1p-25f), 0); /* a tie, to even */
  HR_ASSERT_EQ(hr_f32_to_f16(0x1.8p-25f), 1);
  HR_ASSERT_EQ(hr_f32_to_f16(1e-45f), 0);
}

/* ---- formats of one byte ---- */

typedef struct f8_case {
  hr_dtype dtype;
  float (*widen)(uint8_t); /* the version of emitted kernels */
  uint8_t (*narrow)(float);
  int exponent_bits, mantissa_bits, bias;
  uint8_t largest, overflow, nan; /* without sign */
  bool is_fnuz;
  uint8_t infinity;
} f8_case;

static const f8_case f8_cases[] = {
    {HR_DTYPE_F8E4M3FN, hr__f32_from_f8e4m3fn, hr__f8e4m3fn_from_f32, 4, 3, 7, 0x7e, 0x7e, 0x7f, false},
    {HR_DTYPE_F8E5M2, hr__f32_from_f8e5m2, hr__f8e5m2_from_f32, 5, 2, 15, 0x7b, 0x7c, 0x7f, false, 0x7c},
    {HR_DTYPE_F8E4M3FNUZ, hr__f32_from_f8e4m3fnuz, hr__f8e4m3fnuz_from_f32, 4, 3, 8, 0x7f, 0x80, 0x80, true},
    {HR_DTYPE_F8E5M2FNUZ, hr__f32_from_f8e5m2fnuz, hr__f8e5m2fnuz_from_f32, 5, 2, 16, 0x7f, 0x80, 0x80, true},
    {HR_DTYPE_F8E4M3, hr__f32_from_f8e4m3, hr__f8e4m3_from_f32, 4, 3, 7, 0x77, 0x78, 0x7c, false, 0x78},
    {HR_DTYPE_F8E3M4, hr__f32_from_f8e3m4, hr__f8e3m4_from_f32, 3, 4, 3, 0x6f, 0x70, 0x78, false, 0x70},
    {HR_DTYPE_F8E4M3B11FNUZ, hr__f32_from_f8e4m3b11fnuz, hr__f8e4m3b11fnuz_from_f32, 4, 3, 11, 0x7f, 0x80, 0x80, true},
};

/* The value of the fields of a byte below the format's overflow. */
static double f8_value(const f8_case *c, uint8_t magnitude) {
  int exponent = magnitude >> c->mantissa_bits, mantissa = magnitude & ((1 << c->mantissa_bits) - 1);
  return exponent == 0 ? ldexp(mantissa, 1 - c->bias - c->mantissa_bits)
                       : ldexp((1 << c->mantissa_bits) + mantissa, exponent - c->bias - c->mantissa_bits);
}

static void check_f8_byte(const f8_case *c, uint8_t byte) {
  uint8_t magnitude = byte & 0x7f;
  float value = hr_f8_to_f32(c->dtype, byte), same = c->widen(byte);
  bool is_nan = c->is_fnuz ? byte == 0x80 : magnitude > c->largest && magnitude != c->infinity;
  if (is_nan) {
    HR_ASSERT(isnan(value) && isnan(same));
    HR_ASSERT_EQ(hr_f32_to_f8(c->dtype, value), c->is_fnuz ? 0x80 : (byte & 0x80) | c->nan);
    HR_ASSERT_EQ(c->narrow(same), c->is_fnuz ? 0x80 : (byte & 0x80) | c->nan);
    return;
  }
  double expected = magnitude > c->largest ? INFINITY : f8_value(c, magnitude);
  HR_ASSERT(fabs((double)value) == expected);
  HR_ASSERT_EQ(signbit(value) != 0, byte >> 7);
  HR_ASSERT_BYTES_EQ(&value, &same, sizeof value);
  HR_ASSERT_EQ(hr_f32_to_f8(c->dtype, value), byte);
  HR_ASSERT_EQ(c->narrow(value), byte);
}

/* Checks the rounding of a number with either sign, in both versions. */
static void check_f8_rounded(const f8_case *c, float x, uint8_t expected) {
  uint8_t negative = c->is_fnuz && expected == 0 ? 0 : expected | 0x80;
  HR_ASSERT_EQ(hr_f32_to_f8(c->dtype, x), expected);
  HR_ASSERT_EQ(c->narrow(x), expected);
  HR_ASSERT_EQ(hr_f32_to_f8(c->dtype, -x), negative);
  HR_ASSERT_EQ(c->narrow(-x), negative);
}

HR_TEST(bytes_widen_exactly_and_round_to_nearest_even) {
  for (size_t k = 0; k < sizeof f8_cases / sizeof *f8_cases; ++k) {
    const f8_case *c = &f8_cases[k];
    for (int byte = 0; byte < 256; ++byte) {
      check_f8_byte(c, (uint8_t)byte);
    }
    for (uint8_t low = 0; low < c->largest; ++low) {
      uint8_t high = low + 1, even = (low & 1) == 0 ? low : high;
      float middle = (float)((f8_value(c, low) + f8_value(c, high)) / 2);
      check_f8_rounded(c, middle, even);
      check_f8_rounded(c, nextafterf(middle, 0), low);
      check_f8_rounded(c, nextafterf(middle, INFINITY), high);
    }
    /* The number after the largest would be the next one: numbers from the tie with it on overflow. */
    float beyond = (float)((f8_value(c, c->largest) + f8_value(c, c->largest + 1)) / 2);
    check_f8_rounded(c, nextafterf(beyond, 0), c->largest);
    check_f8_rounded(c, beyond, c->overflow);
    check_f8_rounded(c, 0x1p17f, c->overflow);
    check_f8_rounded(c, INFINITY, c->overflow);
    check_f8_rounded(c, NAN, c->nan);
    check_f8_rounded(c, 1e-45f, 0);
    check_f8_rounded(c, 0, 0);
  }
}

HR_TEST(numbers_of_four_bits_round_to_the_nearest) {
  static const float numbers[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (int bits = 0; bits < 256; ++bits) {
    float value = hr_f8_to_f32(HR_DTYPE_F4E2M1FN, (uint8_t)bits), same = hr__f32_from_f4e2m1fn((uint8_t)bits);
    HR_ASSERT(fabsf(value) == numbers[bits & 7] && (signbit(value) != 0) == ((bits & 8) != 0));
    HR_ASSERT_BYTES_EQ(&value, &same, sizeof value);
    HR_ASSERT_EQ(hr_f32_to_f8(HR_DTYPE_F4E2M1FN, value), bits & 15);
  }
  static const float samples[] = {0.25F, 0.26F, -0.1F, 0.75F, 5, 5.1F, 7, -7, INFINITY, -INFINITY, NAN, -0.0F};
  static const uint8_t expected[] = {0, 1, 8, 2, 6, 7, 7, 15, 7, 15, 8, 8};
  for (size_t i = 0; i < sizeof expected; ++i) {
    HR_ASSERT_EQ(hr_f32_to_f8(HR_DTYPE_F4E2M1FN, samples[i]), expected[i]);
    HR_ASSERT_EQ(hr__f4e2m1fn_from_f32(samples[i]), expected[i]);
  }
}

HR_TEST(powers_of_two_round_up_from_a_half) {
  for (int byte = 0; byte < 255; ++byte) {
    float value = ldexpf(1, byte - 127), tie = byte == 0 ? value : 1.5f * value;
    HR_ASSERT(hr_f8_to_f32(HR_DTYPE_F8E8M0FNU, (uint8_t)byte) == value);
    HR_ASSERT(hr__f32_from_f8e8m0fnu((uint8_t)byte) == value);
    float samples[] = {value, -value, tie, nextafterf(tie, 0), nextafterf(tie, INFINITY), nextafterf(2 * value, 0)};
    int up = byte + 1, expected[] = {byte, byte, byte == 0 ? 0 : up, byte, byte == 0 ? 1 : up, up};
    for (int i = 0; i < 6; ++i) {
      HR_ASSERT_EQ(hr_f32_to_f8(HR_DTYPE_F8E8M0FNU, samples[i]), expected[i]);
      HR_ASSERT_EQ(hr__f8e8m0fnu_from_f32(samples[i]), expected[i]);
    }
  }
  static const float special[] = {0, -0.0f, INFINITY, -INFINITY, NAN};
  for (int i = 0; i < 5; ++i) {
    HR_ASSERT_EQ(hr_f32_to_f8(HR_DTYPE_F8E8M0FNU, special[i]), i < 2 ? 0 : 0xff);
    HR_ASSERT_EQ(hr__f8e8m0fnu_from_f32(special[i]), i < 2 ? 0 : 0xff);
  }
  HR_ASSERT(isnan(hr_f8_to_f32(HR_DTYPE_F8E8M0FNU, 0xff)) && isnan(hr__f32_from_f8e8m0fnu(0xff)));
}

HR_TEST(both_texts_of_bytes_give_the_same_for_many_floats) {
  uint32_t bits = 1;
  for (int i = 0; i < 1000000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    float x;
    memcpy(&x, &bits, sizeof x);
    for (size_t k = 0; k < sizeof f8_cases / sizeof *f8_cases; ++k) {
      HR_ASSERT_EQ(f8_cases[k].narrow(x), hr_f32_to_f8(f8_cases[k].dtype, x));
    }
    HR_ASSERT_EQ(hr__f8e8m0fnu_from_f32(x), hr_f32_to_f8(HR_DTYPE_F8E8M0FNU, x));
    HR_ASSERT_EQ(hr__f4e2m1fn_from_f32(x), hr_f32_to_f8(HR_DTYPE_F4E2M1FN, x));
  }
}

HR_TEST(names_and_sizes_agree) {
  static const struct {
    const char *name;
    size_t size;
  } expected[] = {{"bool", 1},      {"u8", 1},       {"i8", 1},     {"u16", 2},           {"i16", 2},
                  {"u32", 4},       {"i32", 4},      {"u64", 8},    {"i64", 8},           {"f16", 2},
                  {"bf16", 2},      {"f32", 4},      {"f64", 8},    {"c64", 8},           {"c128", 16},
                  {"c32", 4},       {"f8e4m3fn", 1}, {"f8e5m2", 1}, {"f8e4m3fnuz", 1},    {"f8e5m2fnuz", 1},
                  {"f8e8m0fnu", 1}, {"f8e4m3", 1},   {"f8e3m4", 1}, {"f8e4m3b11fnuz", 1}, {"f4e2m1fn", 1}};
  HR_ASSERT_EQ(sizeof expected / sizeof *expected, HR_DTYPE_COUNT - 1);
  for (int i = 0; i < HR_DTYPE_COUNT - 1; ++i) {
    hr_dtype dtype = hr_dtype_parse(expected[i].name);
    HR_ASSERT_EQ(dtype, i + 1);
    HR_ASSERT_STR_EQ(hr_dtype_name(dtype), expected[i].name);
    HR_ASSERT_EQ(hr_dtype_size(dtype), expected[i].size);
  }
  HR_ASSERT_EQ(hr_dtype_parse("f8"), HR_DTYPE_NONE);
  HR_ASSERT_EQ(hr_dtype_parse("none"), HR_DTYPE_NONE);
  HR_ASSERT_EQ(hr_dtype_size((hr_dtype)99), 0);
  HR_ASSERT_STR_EQ(hr_dtype_name((hr_dtype)-1), "none");
}

HR_TEST(classes_hold_their_dtypes) {
  HR_ASSERT_EQ(hr_dtype_class(HR_DTYPE_BOOL), HR_CLASS_B8);
  HR_ASSERT_EQ(hr_dtype_arithmetic_class(HR_DTYPE_BOOL), HR_CLASS_I32);
  HR_ASSERT_EQ(hr_dtype_class(HR_DTYPE_U16), HR_CLASS_I32);
  HR_ASSERT_EQ(hr_dtype_class(HR_DTYPE_BF16), HR_CLASS_F32);
  HR_ASSERT(hr_dtype_is_narrow(HR_DTYPE_F16) && hr_dtype_is_narrow(HR_DTYPE_BOOL));
  HR_ASSERT(!hr_dtype_is_narrow(HR_DTYPE_F32) && !hr_dtype_is_narrow(HR_DTYPE_U32));
  for (int dtype = 1; dtype < HR_DTYPE_COUNT; ++dtype) {
    HR_ASSERT(hr_class_size(hr_dtype_class((hr_dtype)dtype)) >= hr_dtype_size((hr_dtype)dtype));
    HR_ASSERT_EQ(hr_dtype_is_integer((hr_dtype)dtype) + hr_dtype_is_real((hr_dtype)dtype) +
                     hr_dtype_is_complex((hr_dtype)dtype),
                 1);
  }
}

static void check_promotion(const char *a, const char *b, const char *expected) {
  hr_dtype left = hr_dtype_parse(a), right = hr_dtype_parse(b);
  HR_ASSERT_STR_EQ(hr_dtype_name(hr_dtype_promote(left, right)), expected);
  HR_ASSERT_STR_EQ(hr_dtype_name(hr_dtype_promote(right, left)), expected);
}

HR_TEST(promotion_is_pytorchs) {
  static const char *const rows[][3] = {
      {"c32", "i64", "c32"},    {"c32", "f16", "c32"},  {"c32", "bf16", "c64"},  {"c32", "f32", "c64"},
      {"c32", "f64", "c128"},   {"c32", "c64", "c64"},  {"c32", "c128", "c128"}, {"c32", "bool", "c32"},
      {"bool", "bool", "bool"}, {"bool", "u8", "u8"},   {"bool", "f16", "f16"},  {"u8", "i8", "i16"},
      {"u8", "i16", "i16"},     {"u8", "i64", "i64"},   {"i8", "i32", "i32"},    {"i64", "f16", "f16"},
      {"i64", "f32", "f32"},    {"f16", "bf16", "f32"}, {"f16", "f32", "f32"},   {"bf16", "f64", "f64"},
      {"f32", "c64", "c64"},    {"f64", "c64", "c128"}, {"i64", "c64", "c64"},   {"c64", "c128", "c128"},
      {"u16", "f32", "f32"},    {"u16", "i16", "i32"},  {"u32", "i64", "i64"},   {"u16", "u8", "u16"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    check_promotion(rows[i][0], rows[i][1], rows[i][2]);
  }
}

HR_TEST(numbers_are_weak) {
  HR_ASSERT_EQ(hr_dtype_promote_scalar(HR_DTYPE_F16, HR_DTYPE_F64), HR_DTYPE_F16);
  HR_ASSERT_EQ(hr_dtype_promote_scalar(HR_DTYPE_U8, HR_DTYPE_I64), HR_DTYPE_U8);
  HR_ASSERT_EQ(hr_dtype_promote_scalar(HR_DTYPE_BOOL, HR_DTYPE_I64), HR_DTYPE_I64);
  HR_ASSERT_EQ(hr_dtype_promote_scalar(HR_DTYPE_I32, HR_DTYPE_F64), HR_DTYPE_F32);
  HR_ASSERT_EQ(hr_dtype_promote_scalar(HR_DTYPE_F64, HR_DTYPE_C128), HR_DTYPE_C128);
  HR_ASSERT_EQ(hr_dtype_promote_scalar(HR_DTYPE_F32, HR_DTYPE_C128), HR_DTYPE_C64);
  HR_ASSERT_EQ(hr_dtype_promote_scalar(HR_DTYPE_F32, HR_DTYPE_NONE), HR_DTYPE_F32);
}
