/* flash.h: what tests set of the flash provider. */
#ifndef HEADRACE_PROVIDERS_FLASH_FLASH_H_
#define HEADRACE_PROVIDERS_FLASH_FLASH_H_

#include "providers/provider.h"

/* Bytes of shared memory that a block can have on every device. */
extern int hr__flash_shared_bytes;

#endif
