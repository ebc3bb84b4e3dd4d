/* halves.h: floats of 16 bits in functions of the host. */
#ifndef HEADRACE_TENSORFLOW_HALVES_H_
#define HEADRACE_TENSORFLOW_HALVES_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float htf_widen_f16(uint16_t x) {
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, magnitude = x & 0x7fff;
  uint32_t bits = magnitude >= 0x7c00 ? 0x7f800000 | magnitude << 13 : (magnitude << 13) + (112u << 23);
  float value;
  if (magnitude < 0x400) { /* subnormal */
    value = (float)magnitude * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  bits |= sign;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* To nearest, ties to even. */
static inline uint16_t htf_narrow_f16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) {
    return sign | 0x7e00;
  }
  if (bits >= 0x477ff000) {
    return sign | 0x7c00;
  }
  if (bits < 0x38800000) {
    return sign | (uint16_t)lrintf(fabsf(x) * 0x1p24f);
  }
  bits -= 112u << 23;
  return sign | (uint16_t)((bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

#endif
