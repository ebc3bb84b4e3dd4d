/* The drivers of this build, searched by the registry. */
#include "drivers/cpu/cpu_driver.h"
#include "drivers/cuda/cuda_driver.h"
#include "drivers/null/null_driver.h"

const hr_driver *const hr_drivers[] = {&hr_cpu_driver, &hr_cuda_driver, &hr_null_driver, NULL};
