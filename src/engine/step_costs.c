#include "engine/step_costs.h"

#include "base/allocator.h"
#include "base/varint.h"

/* Returns the number of bytes; `out` NULL: only that. */
static size_t put_all(int count, const hr_step_cost *costs, uint8_t *out) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    uint8_t numbers[3 * HR_VARINT_BYTES_MAX], *begin = out != NULL ? out + bytes : numbers, *at = begin;
    at = hr_varint_put(at, costs[i].bytes_read);
    at = hr_varint_put(at, costs[i].bytes_written);
    at = hr_varint_put(at, costs[i].flops);
    bytes += (size_t)(at - begin);
  }
  return bytes;
}

uint8_t *hr__step_costs_pack(int count, const hr_step_cost *costs, size_t *out_bytes) {
  *out_bytes = put_all(count, costs, NULL);
  uint8_t *packed = hr_malloc(*out_bytes);
  if (packed != NULL) {
    (void)put_all(count, costs, packed);
  }
  return packed;
}

hr_step_cost *hr__step_costs_unpack(int count, const uint8_t *packed) {
  hr_step_cost *costs = hr_calloc((size_t)count, sizeof *costs);
  for (int i = 0; costs != NULL && i < count; ++i) {
    costs[i].bytes_read = hr_varint_next(&packed);
    costs[i].bytes_written = hr_varint_next(&packed);
    costs[i].flops = hr_varint_next(&packed);
  }
  return costs;
}
