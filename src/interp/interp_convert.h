/* interp_convert.h: rows of conversions (core/math/convert.h) with hardware instructions, if there are any. */
#ifndef HEADRACE_INTERP_INTERP_CONVERT_H_
#define HEADRACE_INTERP_INTERP_CONVERT_H_

#include <stdint.h>

#include "core/math/convert.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* Rows of f16. The hardware's conversion gives the same bits. */
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#define HR__HALF_NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
/* Whole vectors first: masked stores take several times as long, and so does a mask for each vector. */
static inline __mmask16 hr__first_of_16(int64_t count) {
  return (__mmask16)((1u << count) - 1);
}
static inline void hr__f32_round_half_row(float *dst, const float *src, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_loadu_ps(src + i), HR__HALF_NEAREST)));
  }
  __mmask16 mask = hr__first_of_16(count - i);
  __m256i half = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, src + i), HR__HALF_NEAREST);
  _mm512_mask_storeu_ps(dst + i, mask, _mm512_cvtph_ps(half));
}
static inline void hr__f32_from_half_row(float *dst, const uint16_t *src, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_epi16(src + i)));
  }
  __mmask16 mask = hr__first_of_16(count - i);
  _mm512_mask_storeu_ps(dst + i, mask, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, src + i)));
}
static inline void hr__half_from_f32_row(uint16_t *dst, const float *src, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm256_storeu_epi16(dst + i, _mm512_cvtps_ph(_mm512_loadu_ps(src + i), HR__HALF_NEAREST));
  }
  __mmask16 mask = hr__first_of_16(count - i);
  __m256i half = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, src + i), HR__HALF_NEAREST);
  _mm256_mask_storeu_epi16(dst + i, mask, half);
}
#else
static inline void hr__f32_round_half_row(float *dst, const float *src, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    dst[i] = hr__f32_round_half(src[i]);
  }
}
static inline void hr__f32_from_half_row(float *dst, const uint16_t *src, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    dst[i] = hr__f32_from_half(src[i]);
  }
}
static inline void hr__half_from_f32_row(uint16_t *dst, const float *src, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    dst[i] = hr__half_from_f32(src[i]);
  }
}
#endif

#endif
