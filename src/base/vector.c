/* The growth rule of vectors: at least double, at least eight elements. */
#include "base/vector.h"

#include <stdint.h>

void *hr__vector_grow(void *data, size_t *capacity, size_t wanted, size_t size) {
  size_t grown = *capacity < SIZE_MAX / 2 ? *capacity * 2 : SIZE_MAX;
  if (grown < wanted) {
    grown = wanted;
  }
  if (grown < 8) {
    grown = 8;
  }
  size_t bytes = 0;
  if (__builtin_mul_overflow(grown, size, &bytes)) {
    return NULL;
  }
  void *moved = hr_realloc(data, bytes);
  if (moved != NULL) {
    *capacity = grown;
  }
  return moved;
}

void *hr__vector_trim(void *data, size_t *capacity, size_t count, size_t size) {
  void *moved = *capacity > count && count > 0 ? hr_realloc(data, count * size) : NULL;
  if (moved == NULL) {
    return data;
  }
  *capacity = count;
  return moved;
}
