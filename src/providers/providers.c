/* providers.c: all providers, in order of preference. */
#include "providers/provider.h"

const hr_provider *const hr_providers[] = {&hr__gemv_provider,
                                           &hr__batch_lanes_provider,
                                           &hr__winograd_provider,
                                           &hr__winograd_weights_provider,
                                           &hr__gradients_provider,
                                           &hr__attention_provider,
                                           &hr__onednn_provider,
                                           &hr__host_provider,
                                           &hr__lapack_provider,
                                           &hr__integers_provider,
                                           &hr__flash_provider,
                                           &hr__small_product_provider,
                                           &hr__taps_provider,
                                           &hr__small_attention_provider,
                                           &hr__images_provider,
                                           &hr__matrices_provider,
                                           &hr__cublaslt_provider,
                                           &hr__cudnn_provider,
                                           NULL};

_Static_assert(sizeof hr_providers / sizeof *hr_providers <= HR_PROVIDERS_MAX + 1, "raise HR_PROVIDERS_MAX");
