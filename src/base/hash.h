/* Hashing of words, for cache keys and the rolling hash of a stream.
 *
 * One step is a folded multiplication: the 128-bit product of the state and a constant, its halves joined by xor, as
 * in wyhash (Wang Yi, https://github.com/wangyi-fudan/wyhash, public domain). `hr_hash_words` feeds two words to each
 * multiplication. About 1 ns a word; the high bits are as good as the low ones.
 *
 * Not for hostile input: a lookup by hash must also compare the contents. Values are stable for one byte order and one
 * version of Headrace.
 */
#ifndef HEADRACE_BASE_HASH_H_
#define HEADRACE_BASE_HASH_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HR_HASH_SEED UINT64_C(0x2d358dccaa6c78a5)
#define HR_HASH_MULTIPLIER UINT64_C(0x8bb84b93962eacc9)
#define HR_HASH_OTHER UINT64_C(0x4b33a62ed433d4a3)

static inline uint64_t hr__hash_fold(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* `h` extended by one word. Start from HR_HASH_SEED. */
static inline uint64_t hr_hash_mix(uint64_t h, uint64_t word) {
  return hr__hash_fold(h ^ word, HR_HASH_MULTIPLIER);
}

/* `h` extended by `n` words and by `n` itself. Not the same as `n` calls of `hr_hash_mix`. */
static inline uint64_t hr_hash_words(uint64_t h, const uint64_t *words, size_t n) {
  uint64_t other = h ^ HR_HASH_OTHER;
  h = hr_hash_mix(h, n);
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    h = hr__hash_fold(h ^ words[i], words[i + 1] ^ HR_HASH_MULTIPLIER);
    other = hr__hash_fold(other ^ words[i + 2], words[i + 3] ^ HR_HASH_OTHER);
  }
  if (i + 2 <= n) {
    h = hr__hash_fold(h ^ words[i], words[i + 1] ^ HR_HASH_MULTIPLIER);
    i += 2;
  }
  other = i < n ? hr_hash_mix(other, words[i]) : other;
  return hr_hash_mix(h, other);
}

/* `h` extended by `n` bytes of any alignment and by `n` itself. */
static inline uint64_t hr_hash_bytes(uint64_t h, const void *bytes, size_t n) {
  const unsigned char *cursor = (const unsigned char *)bytes;
  uint64_t other = h ^ HR_HASH_OTHER, words[4] = {0};
  h = hr_hash_mix(h, n);
  for (; n >= sizeof words; n -= sizeof words, cursor += sizeof words) {
    memcpy(words, cursor, sizeof words);
    h = hr__hash_fold(h ^ words[0], words[1] ^ HR_HASH_MULTIPLIER);
    other = hr__hash_fold(other ^ words[2], words[3] ^ HR_HASH_OTHER);
  }
  for (; n >= sizeof *words; n -= sizeof *words, cursor += sizeof *words) {
    memcpy(words, cursor, sizeof *words);
    h = hr_hash_mix(h, words[0]);
  }
  words[0] = 0;
  if (n > 0) {
    memcpy(words, cursor, n);
  }
  return hr_hash_mix(hr_hash_mix(h, words[0]), other);
}

#endif /* HEADRACE_BASE_HASH_H_ */
