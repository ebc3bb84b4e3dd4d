/* counters.h: structs whose readers may have been compiled with an older or a newer form. */
#ifndef HEADRACE_RUNTIME_COUNTERS_H_
#define HEADRACE_RUNTIME_COUNTERS_H_

#include <string.h>

#include "headrace/stats.h"

/* Writes `bytes` bytes: those of `from`, as far as there are, then zeros. */
static inline void hr__copy_fields(void *out, size_t bytes, const void *from, size_t from_bytes) {
  size_t known = bytes < from_bytes ? bytes : from_bytes;
  memcpy(out, from, known);
  memset((char *)out + known, 0, bytes - known);
}

#endif
