/* wide_vectors.h: helpers shared by providers that are written for vectors of 16 floats: a check of the processor,
 * function attributes, and transposition.
 */
#ifndef HEADRACE_PROVIDERS_WIDE_VECTORS_H_
#define HEADRACE_PROVIDERS_WIDE_VECTORS_H_

#include <stdint.h>

#include "base/cpu.h"
#include "headrace/status.h"

enum { HR__WIDE = 16 }; /* floats of a vector */

#if defined(__x86_64__) && (!defined(HR_CPU_LEVEL) || HR_CPU_LEVEL >= 4)
#define HR_WIDE_VECTORS 1
#include <immintrin.h>

#define WIDE __attribute__((target("avx512f")))
#define WIDE_INLINE static inline __attribute__((always_inline, target("avx512f")))

/* The first lanes of a vector: all, or the remaining ones. */
WIDE_INLINE __mmask16 hr__wide_mask(int64_t left) {
  return (__mmask16)(left >= HR__WIDE ? 0xffff : (1u << left) - 1);
}

/* Transposes 16 vectors: exchanges the bits of row and column numbers, one after the other. */
WIDE_INLINE void hr__wide_transpose(__m512 r[HR__WIDE]) {
#pragma GCC unroll 4
  for (int d = HR__WIDE / 2; d >= 1; d /= 2) {
    int low[HR__WIDE], high[HR__WIDE];
#pragma GCC unroll 16
    for (int j = 0; j < HR__WIDE; ++j) {
      low[j] = (j & d) != 0 ? HR__WIDE + j - d : j;
      high[j] = (j & d) != 0 ? HR__WIDE + j : j + d;
    }
    __m512i lows = _mm512_loadu_si512(low), highs = _mm512_loadu_si512(high);
#pragma GCC unroll 16
    for (int i = 0; i < HR__WIDE; ++i) {
      if ((i & d) == 0) {
        __m512 a = r[i], b = r[i + d];
        r[i] = _mm512_permutex2var_ps(a, lows, b);
        r[i + d] = _mm512_permutex2var_ps(a, highs, b);
      }
    }
  }
}
#endif

/* For such a provider's open: OK, or UNAVAILABLE with the missing feature. */
static inline hr_status hr__wide_vectors_check(const char *provider) {
#if defined(HR_WIDE_VECTORS)
  return hr_cpu_has(HR_CPU_AVX512F)
             ? HR_OK
             : hr_status_make(HR_STATUS_UNAVAILABLE, "%s: this processor has no vectors of 16 floats (AVX-512)",
                              provider);
#else
  return hr_status_make(HR_STATUS_UNAVAILABLE, "%s: there are kernels for x86 processors with AVX-512 alone", provider);
#endif
}

#endif
