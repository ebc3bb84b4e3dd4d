/* cuda_limits.h: the minimum limits of the CUDA devices present, for our own kernels. */
#ifndef HEADRACE_PROVIDERS_CUDA_LIMITS_H_
#define HEADRACE_PROVIDERS_CUDA_LIMITS_H_

#include "base/context.h"
#include "headrace/status.h"

typedef struct hr__cuda_limits {
  int architecture; /* major number of the compute capability */
  int shared_bytes; /* of one block */
  int processors;
} hr__cuda_limits;

/* Zeros until the first provider that needs it is opened. One per process. */
static inline hr__cuda_limits *hr__cuda_limits_known(void) {
  static const hr_context_part kind = {.bytes = sizeof(hr__cuda_limits)};
  return hr__context_part(&hr__context_first, HR_CONTEXT_CUDA_LIMITS, &kind);
}

/* Queries the driver. UNAVAILABLE, in the provider's name, if there is no device, or one older than the provider needs.
 */
HR_MUST_USE hr_status hr__cuda_limits_find(const char *provider, int architecture_min);

#endif
