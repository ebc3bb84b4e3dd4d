/* philox.h: the counter-based random generator Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011).
 *
 * One block of four 32-bit words comes from a 128-bit counter and a 64-bit key:
 *
 *   counter = {index low, index high, offset low, offset high}     key = {seed low, seed high}
 *
 * `offset` distinguishes the operations of a stream. The block index distinguishes the elements of one operation, by
 * the row-major element number e:
 *
 *   32-bit values (uniform f32, bits of 32-bit classes)   block e / 4, word e % 4
 *   64-bit values (uniform f64, bits of 64-bit classes)   block e / 2, words 2 * (e % 2) (high half) and the next
 *   normal f32                                            block e / 4, words e % 4 / 2 * 2 (radius) and the next
 *                                                         (angle): cosine for even elements, sine for odd ones
 *   normal f64                                            block e, words 0, 1 (radius) and 2, 3 (angle)
 *
 * So a value depends on (e, seed, offset) alone: not on layout, mode, thread count or device. Straight-line code that
 * vectorises; the text is also part of emitted kernels.
 */
#ifndef HEADRACE_CORE_PHILOX_H_
#define HEADRACE_CORE_PHILOX_H_

#include <stdint.h>

#ifndef HR_VMATH_FN
#define HR_VMATH_FN static inline __attribute__((always_inline))
#endif

typedef struct hr_philox_block {
  uint32_t word[4];
} hr_philox_block;

/* Both halves of a product. CUDA's compilers add a zero to the higher half of one in C. */
#ifdef __CUDACC__
#define HR_PHILOX_PRODUCT(low, high, x, y) \
  asm("{.reg .u64 xy;\nmul.wide.u32 xy, %2, %3;\nmov.b64 {%0, %1}, xy;}" : "=r"(low), "=r"(high) : "r"(x), "r"(y))
#else
#define HR_PHILOX_PRODUCT(low, high, x, y)  \
  uint64_t high##low = (uint64_t)(x) * (y); \
  low = (uint32_t)high##low, high = (uint32_t)(high##low >> 32)
#endif

HR_VMATH_FN hr_philox_block hr_philox(uint64_t index, uint64_t offset, uint64_t seed) {
  uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)offset, c3 = (uint32_t)(offset >> 32);
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  hr_philox_block block;
#define HR_PHILOX_ROUND                         \
  do {                                          \
    uint32_t h0, l0, h1, l1;                    \
    HR_PHILOX_PRODUCT(l0, h0, c0, 0xD2511F53u); \
    HR_PHILOX_PRODUCT(l1, h1, c2, 0xCD9E8D57u); \
    c0 = h1 ^ c1 ^ k0, c2 = h0 ^ c3 ^ k1;       \
    c1 = l1, c3 = l0;                           \
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;       \
  } while (0)
  HR_PHILOX_ROUND;
  HR_PHILOX_ROUND;
  HR_PHILOX_ROUND;
  HR_PHILOX_ROUND;
  HR_PHILOX_ROUND;
  HR_PHILOX_ROUND;
  HR_PHILOX_ROUND;
  HR_PHILOX_ROUND;
  HR_PHILOX_ROUND;
  HR_PHILOX_ROUND;
#undef HR_PHILOX_ROUND
  block.word[0] = c0, block.word[1] = c1, block.word[2] = c2, block.word[3] = c3;
  return block;
}

/* The block that many blocks behind a counter of 128 bits. */
HR_VMATH_FN hr_philox_block hr__philox_behind(uint64_t blocks, uint64_t key, uint64_t low, uint64_t high) {
  uint64_t index = low + blocks;
  return hr_philox(index, high + (index < low), key);
}

/* Element `element` of the sequence of 32-bit words. */
HR_VMATH_FN uint32_t hr__philox_word_of(hr_philox_block block, uint64_t element) {
  uint32_t low = (element & 1) ? block.word[1] : block.word[0];
  uint32_t high = (element & 1) ? block.word[3] : block.word[2];
  return (element & 2) ? high : low;
}
HR_VMATH_FN uint32_t hr_philox_word(uint64_t element, uint64_t seed, uint64_t offset) {
  return hr__philox_word_of(hr_philox(element >> 2, offset, seed), element);
}

/* Element `element` of the sequence of 64-bit words; the first 32-bit word is the high half. */
HR_VMATH_FN uint64_t hr__philox_pair_of(hr_philox_block block, uint64_t element) {
  uint32_t high = (element & 1) ? block.word[2] : block.word[0];
  uint32_t low = (element & 1) ? block.word[3] : block.word[1];
  return ((uint64_t)high << 32) | low;
}
HR_VMATH_FN uint64_t hr_philox_pair(uint64_t element, uint64_t seed, uint64_t offset) {
  return hr__philox_pair_of(hr_philox(element >> 1, offset, seed), element);
}

#endif
