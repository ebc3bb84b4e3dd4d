/* flash.h: what tests set of the flash provider. */
#ifndef HEADRACE_PROVIDERS_FLASH_FLASH_H_
#define HEADRACE_PROVIDERS_FLASH_FLASH_H_

#include "providers/provider.h"

/* What every device has at least, found when the provider is opened. */
typedef struct hr__flash_limits {
  int architecture; /* major number of the compute capability */
  int shared_bytes; /* that a block can have */
  int processors;
} hr__flash_limits;

extern hr__flash_limits hr__flash_device;

#endif
