#include "base/gpu_model.h"

#include "base/context.h"

/* NVIDIA's CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; multiprocessors of V100, T4,
 * A100, RTX 3090 Ti, Orin, L40S, H100 SXM (and H200), B200, B300 and RTX PRO 6000. */
static const hr_gpu_model models[] = {
    {70, 80, 96 << 10},  {75, 40, 64 << 10},   {80, 108, 163 << 10},  {86, 84, 99 << 10},    {87, 16, 163 << 10},
    {89, 142, 99 << 10}, {90, 132, 227 << 10}, {100, 148, 227 << 10}, {103, 148, 227 << 10}, {120, 188, 99 << 10},
};

typedef struct gpu_part {
  hr_gpu_model model; /* architecture 0: none */
} gpu_part;

static gpu_part *part(void) {
  static const hr_context_part kind = {.bytes = sizeof(gpu_part)};
  return hr__context_part(&hr__context_first, HR_CONTEXT_GPU_MODEL, &kind);
}

hr_status hr__gpu_model_set(int architecture, int processors) {
  for (size_t i = 0; i < sizeof models / sizeof *models; ++i) {
    if (models[i].architecture == architecture) {
      part()->model = models[i];
      part()->model.processors = processors > 0 ? processors : models[i].processors;
      return HR_OK;
    }
  }
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "sm_%d: expected sm_70, 75, 80, 86, 87, 89, 90, 100, 103 or 120",
                        architecture);
}

void hr__gpu_model_clear(void) {
  part()->model.architecture = 0;
}

const hr_gpu_model *hr__gpu_model(void) {
  return part()->model.architecture > 0 ? &part()->model : NULL;
}
