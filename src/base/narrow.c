#include "base/narrow.h"

#include <string.h>

#include "base/allocator.h"

/* Bytes that hold the largest of the numbers. */
static uint32_t width_of(size_t count, const uint32_t *numbers) {
  uint32_t any = 0;
  for (size_t i = 0; i < count; ++i) {
    any |= numbers[i];
  }
  return any <= UINT16_MAX ? sizeof(uint16_t) : sizeof any;
}

hr_narrow *hr_narrow_make(size_t count, const uint32_t *numbers) {
  uint32_t width = width_of(count, numbers);
  hr_narrow *list = count <= UINT32_MAX ? hr_malloc(sizeof *list + count * width) : NULL;
  if (list == NULL) {
    return NULL;
  }
  list->count = (uint32_t)count, list->width = width;
  if (count > 0 && width == sizeof *numbers) {
    memcpy(list->halves, numbers, count * sizeof *numbers);
    return list;
  }
  for (size_t i = 0; i < count; ++i) {
    list->halves[i] = (uint16_t)numbers[i];
  }
  return list;
}

/* Each step of a program compares a list: without a branch for each number. */
bool hr_narrow_are(const hr_narrow *list, size_t count, const uint32_t *numbers) {
  uint32_t differences = 0;
  if (list->count != count) {
    return false;
  }
  if (list->width == sizeof *numbers) {
    return memcmp(list->halves, numbers, count * sizeof *numbers) == 0;
  }
  for (size_t i = 0; i < count; ++i) {
    differences |= numbers[i] ^ list->halves[i];
  }
  return differences == 0;
}

void hr_narrow_copy(const hr_narrow *list, uint32_t *out_numbers) {
  for (size_t i = 0; i < list->count; ++i) {
    out_numbers[i] = hr_narrow_at(list, i);
  }
}
