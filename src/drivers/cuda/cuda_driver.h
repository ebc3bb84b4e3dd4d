/* The CUDA driver: NVIDIA's GPUs, through libcuda.so.1. Kernels are text that NVRTC compiles (nvrtc.h). */
#ifndef HEADRACE_DRIVERS_CUDA_CUDA_DRIVER_H_
#define HEADRACE_DRIVERS_CUDA_CUDA_DRIVER_H_

#include "runtime/device.h"

extern const hr_driver hr_cuda_driver;

#endif
