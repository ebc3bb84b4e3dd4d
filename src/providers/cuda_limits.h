/* cuda_limits.h: what CUDA's devices have at least, for kernels of our own. */
#ifndef HEADRACE_PROVIDERS_CUDA_LIMITS_H_
#define HEADRACE_PROVIDERS_CUDA_LIMITS_H_

#include "base/context.h"
#include "headrace/status.h"

typedef struct hr__cuda_limits {
  int architecture; /* major number of the compute capability */
  int shared_bytes; /* that a block can have */
  int processors;
} hr__cuda_limits;

/* Zeros before the first provider that needs it is opened. The process's. */
static inline hr__cuda_limits *hr__cuda_limits_known(void) {
  static const hr_context_part kind = {.bytes = sizeof(hr__cuda_limits)};
  return hr__context_part(&hr__context_first, HR_CONTEXT_CUDA_LIMITS, &kind);
}

/* Asks the driver. UNAVAILABLE, in the provider's name, where there is no device, or an older one than the provider
 * needs. */
HR_MUST_USE hr_status hr__cuda_limits_find(const char *provider, int architecture_min);

#endif
