/* gpu_model.h: an NVIDIA GPU by its numbers alone, for which code is compiled on machines without one.
 *
 * If a model is set, the CUDA driver opens a device that computes nothing and has these numbers. The libraries of
 * NVIDIA count as present, are not loaded, and prepare nothing. Everything else is as on the device, above all the
 * texts of kernels. One per process, set before a device is opened. Threads: reading is safe from any.
 */
#ifndef HEADRACE_BASE_GPU_MODEL_H_
#define HEADRACE_BASE_GPU_MODEL_H_

#include "headrace/status.h"

typedef struct hr_gpu_model {
  int architecture; /* 90: compute capability 9.0 */
  int processors;
  int block_bytes; /* the most shared memory of a block */
} hr_gpu_model;

/* Sets the model. `processors`: 0: as many as the largest usual board of this architecture. INVALID_ARGUMENT for
 * architectures whose numbers are not known. */
HR_MUST_USE hr_status hr__gpu_model_set(int architecture, int processors);
/* No model any more: for tests. No device may be open. */
void hr__gpu_model_clear(void);
/* NULL: there is none. */
const hr_gpu_model *hr__gpu_model(void);

#endif
