/* varint.h: whole numbers in as few bytes as they need: 7 bits a byte, the lowest first, the sign in the lowest bit.
 *
 *   0 -> 00    -1 -> 01    63 -> 7e    64 -> 80 01
 */
#ifndef HEADRACE_BASE_VARINT_H_
#define HEADRACE_BASE_VARINT_H_

#include <stdint.h>

enum { HR_VARINT_BITS = 7, HR_VARINT_MORE = 1 << HR_VARINT_BITS };
enum { HR_VARINT_BYTES_MAX = (64 + HR_VARINT_BITS - 1) / HR_VARINT_BITS };

/* Writes a number, for which there is room, and returns the place of the next one. */
static inline uint8_t *hr_varint_put(uint8_t *at, int64_t number) {
  uint64_t rest = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
  for (; rest >= HR_VARINT_MORE; rest >>= HR_VARINT_BITS) {
    *at++ = (uint8_t)(rest | HR_VARINT_MORE);
  }
  *at++ = (uint8_t)rest;
  return at;
}

/* Reads a number at *at, which then is the place of the next one. */
static inline int64_t hr_varint_next(const uint8_t **at) {
  uint64_t number = 0;
  int shift = 0;
  for (; **at >= HR_VARINT_MORE; shift += HR_VARINT_BITS) {
    number |= (uint64_t)(*(*at)++ & (HR_VARINT_MORE - 1)) << shift;
  }
  number |= (uint64_t) * (*at)++ << shift;
  return (int64_t)(number >> 1 ^ (0 - (number & 1)));
}

#endif
