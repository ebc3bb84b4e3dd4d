/* inflate.h: decompression of deflate streams (RFC 1951), and the checksum of zip archives. */
#ifndef HEADRACE_ARRAY_INFLATE_H_
#define HEADRACE_ARRAY_INFLATE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "headrace/status.h"

/* Writes `bytes` bytes that `packed` stands for. With `is_prefix` the stream may be longer, else it must end there, at
 * the last packed byte. DATA_LOSS for a stream that is damaged, or shorter. Reads and writes nothing outside of both.
 */
HR_MUST_USE hr_status hr__inflate(const void *packed, size_t packed_bytes, void *out, size_t bytes, bool is_prefix);

/* The cyclic redundancy check of zip and gzip, continued from `crc`, which is 0 at first. */
uint32_t hr__crc32(uint32_t crc, const void *bytes, size_t count);

#endif
