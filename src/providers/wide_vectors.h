/* wide_vectors.h: whether the processor runs providers that are written for vectors of 16 floats. */
#ifndef HEADRACE_PROVIDERS_WIDE_VECTORS_H_
#define HEADRACE_PROVIDERS_WIDE_VECTORS_H_

#include "headrace/status.h"

/* For such a provider's open: OK, or UNAVAILABLE with what is missing. */
static inline hr_status hr__wide_vectors_check(const char *provider) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f")
             ? NULL
             : hr_status_make(HR_STATUS_UNAVAILABLE, "%s: this processor has no vectors of 16 floats (AVX-512)",
                              provider);
#else
  return hr_status_make(HR_STATUS_UNAVAILABLE, "%s: there are kernels for x86 processors alone", provider);
#endif
}

#endif
