/* heap.c: the host memory of the core's texts, which the plug-in compiles, is malloc's here. */
#include <stdlib.h>

#include "base/allocator.h"

void *hr_realloc(void *block, size_t bytes) {
  return realloc(block, bytes > 0 ? bytes : 1);
}

void hr_free(void *block) {
  free(block);
}
