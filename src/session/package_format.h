/* package_format.h: the bytes of a package; numbers are little-endian.
 *
 *   0   8    89 'H' 'R' 'P' 'K' 'G' 0a 1a
 *   8   u32  version              12  u32  sections
 *   16  u64  place of the table   24  u64  0
 *   32  u64  bytes of the file    40  u64  hash of the header, without these 8 bytes, and of the table
 *   table: {u32 kind, u32 0, u64 place, u64 bytes, u64 hash} for each section
 *
 * Sections: GRAPH (text), INDEX (for each constant {u32 dtype, u32 rank, i64 dims[rank], u64 place in DATA, u64 bytes,
 * u64 hash}, in the order of the text), DATA (elements at multiples of 64; its hash is 0), META ("key=value" lines).
 * WARM (files of a cache of kernels: {u32 bytes of the name, u32 0, u64 bytes, u64 bytes of the text, name, contents},
 * name and contents filled up to multiples of 8; read only if the user trusts the file, and then its hash is compared).
 * Sections of other kinds are skipped.
 *
 * The numbers of a dtype in INDEX are those of hr_dtype: dtypes are added behind the others.
 */
#ifndef HEADRACE_SESSION_PACKAGE_FORMAT_H_
#define HEADRACE_SESSION_PACKAGE_FORMAT_H_

#include <stdint.h>
#include <string.h>

enum {
  HR__PACKAGE_HEADER = 48,
  HR__PACKAGE_ENTRY = 32,
  HR__PACKAGE_SECTIONS_MAX = 64,
  HR__PACKAGE_ALIGNMENT = 64,
  HR__PACKAGE_TEXT_MAX = 64 << 20,
  HR__PACKAGE_CONSTANTS_MAX = 1 << 18,
  HR__PACKAGE_KERNEL = 24, /* bytes in front of a kernel's name */
  HR__PACKAGE_KERNEL_NAME = 128
};
enum {
  HR__PACKAGE_GRAPH = 1,
  HR__PACKAGE_INDEX,
  HR__PACKAGE_DATA,
  HR__PACKAGE_META,
  HR__PACKAGE_WARM,
  HR__PACKAGE_KINDS
};

#define HR__PACKAGE_MAGIC "\x89HRPKG\n\x1a"

/* The hash of all versions of the format: words of 8 bytes, then the rest, filled up with zeros. */
static inline uint64_t hr__package_hash(uint64_t hash, const void *bytes, size_t count) {
  const char *at = bytes;
  for (;; at += 8, count -= 8) {
    uint64_t word = 0;
    memcpy(&word, at, count < 8 ? count : 8);
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 32;
    if (count <= 8) {
      return (hash ^ count) * UINT64_C(0xff51afd7ed558ccd);
    }
  }
}

#endif
