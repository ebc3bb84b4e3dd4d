/* narrow.h: a list of 32-bit numbers that keeps 16 bits of each if these suffice.
 *
 * Cached programs have thousands of numbers of buffers and steps, few of them above 65,535. There are two widths only:
 * compilers make of a loop over a list a loop for each, so that reading takes no longer. Threads: immutable.
 */
#ifndef HEADRACE_BASE_NARROW_H_
#define HEADRACE_BASE_NARROW_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hr_narrow {
  uint32_t count, width; /* width: bytes of a number, 2 or 4 */
  uint16_t halves[];     /* the numbers, or both halves of each: see hr_narrow_wholes */
} hr_narrow;

/* One block, which the caller frees; NULL: there is no memory, or a count above UINT32_MAX. */
hr_narrow *hr_narrow_make(size_t count, const uint32_t *numbers);
/* True if these are the numbers. */
bool hr_narrow_are(const hr_narrow *list, size_t count, const uint32_t *numbers);
/* The numbers again, `list->count` of them. */
void hr_narrow_copy(const hr_narrow *list, uint32_t *out_numbers);

/* The numbers of a list of width 4. */
static inline const uint32_t *hr_narrow_wholes(const hr_narrow *list) {
  return (const uint32_t *)(const void *)list->halves;
}

static inline uint32_t hr_narrow_at(const hr_narrow *list, size_t i) {
  return list->width == sizeof(uint16_t) ? list->halves[i] : hr_narrow_wholes(list)[i];
}

static inline size_t hr_narrow_bytes(const hr_narrow *list) {
  return sizeof *list + (size_t)list->count * list->width;
}

#endif
