/* providers.c: all providers, in order of preference. */
#include <string.h>

#include "base/allocator.h"
#include "core/ops/op.h"
#include "providers/provider.h"

#define HR__COUNT(name) +1
_Static_assert(0 HR_CPU_PROVIDERS(HR__COUNT) HR_DEVICE_PROVIDERS(HR__COUNT) <= HR_PROVIDERS_MAX,
               "raise HR_PROVIDERS_MAX");

#define HR__ADDRESS(name) &hr__##name##_provider,

#if defined(HR_CPU_DISPATCH)
#define HR__LEVELS(name) \
  extern const hr_provider hr__##name##_provider_v2, hr__##name##_provider_v3, hr__##name##_provider_v4;
HR_CPU_PROVIDERS(HR__LEVELS)
#define HR__V2(name) &hr__##name##_provider_v2,
#define HR__V3(name) &hr__##name##_provider_v3,
#define HR__V4(name) &hr__##name##_provider_v4,

const hr_provider *const *hr_providers(void) {
  static const hr_provider *const levels[][HR_PROVIDERS_MAX + 1] = {
      {HR_CPU_PROVIDERS(HR__V2) HR_DEVICE_PROVIDERS(HR__ADDRESS)},
      {HR_CPU_PROVIDERS(HR__V3) HR_DEVICE_PROVIDERS(HR__ADDRESS)},
      {HR_CPU_PROVIDERS(HR__V4) HR_DEVICE_PROVIDERS(HR__ADDRESS)},
  };
  return levels[hr_cpu_level() - 2];
}
#else
const hr_provider *const *hr_providers(void) {
  static const hr_provider *const providers[] = {HR_CPU_PROVIDERS(HR__ADDRESS) HR_DEVICE_PROVIDERS(HR__ADDRESS) NULL};
  return providers;
}
#endif

bool hr__provider_runs_contractions(hr_op op) {
  return hr_op_table(op)->family == HR_FAMILY_CONTRACTION;
}

bool hr__provider_runs_products(hr_op op) {
  return op == HR_OP_MATMUL;
}

bool hr__provider_runs_windows(hr_op op) {
  return op == HR_OP_CONV || op == HR_OP_CONV_BACKWARD_DATA;
}

bool hr__provider_runs_weight_gradients(hr_op op) {
  return op == HR_OP_CONV_BACKWARD_WEIGHT;
}

hr_status hr__provider_keep(const hr_prepared *prepared, size_t bytes, const char *failure,
                            hr_prepared **out_prepared) {
  *out_prepared = hr_malloc(bytes);
  if (*out_prepared == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s", failure);
  }
  memcpy(*out_prepared, prepared, bytes);
  return HR_OK;
}

void hr__provider_release(hr_prepared *prepared) {
  hr_free(prepared);
}

void hr__providers_forget(void) {
  for (const hr_provider *const *p = hr_providers(); *p != NULL; ++p) {
    if ((*p)->forget != NULL) {
      (*p)->forget();
    }
  }
}
