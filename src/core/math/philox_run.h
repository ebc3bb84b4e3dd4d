/* philox_run.h: random numbers of consecutive elements, on a host.
 *
 * Each block of Philox is computed once for the elements that share it (philox.h), 16 blocks at a time, as vectors. The
 * numbers have the bits of the functions in vmath.h, for any start of a run:
 *
 *   hr_f32_philox_uniform_run(out, first, count, seed, offset)
 *   out[i] = hr_f32_philox_uniform(first + i, seed, offset)
 *
 * and likewise for every row and class that has one, also for the words of a key and a counter. The interpreter is
 * compiled from this text, and it is part of emitted kernels.
 */
#ifndef HEADRACE_CORE_PHILOX_RUN_H_
#define HEADRACE_CORE_PHILOX_RUN_H_

#include "core/math/vmath.h"

enum { HR__RUN_BLOCKS = 16 };

/* The inputs of a generator behind the element number, or their values. */
#define HR__SEED(type) type seed, type offset
#define HR__KEY(type) type key, type low, type high
HR_VMATH_FN hr_philox_block hr__philox_of_seed(uint64_t index, uint64_t seed, uint64_t offset) {
  return hr_philox(index, offset, seed);
}

/* The numbers of 16 blocks, from block 16 * group on; VALUE is number w of `block`. */
#define HR__PHILOX_GROUP(NAME, TYPE, EACH, SEEDS, BLOCK, VALUE)                                     \
  HR_VMATH_FN void NAME##_group(TYPE *out, uint64_t group, SEEDS(uint64_t)) {                       \
    TYPE values[EACH][HR__RUN_BLOCKS];                                                              \
    for (int j = 0; j < HR__RUN_BLOCKS; ++j) {                                                      \
      const hr_philox_block block = BLOCK(group * HR__RUN_BLOCKS + (uint64_t)j, SEEDS((uint64_t))); \
      for (int w = 0; w < EACH; ++w) {                                                              \
        values[w][j] = VALUE;                                                                       \
      }                                                                                             \
    }                                                                                               \
    for (int j = 0; j < HR__RUN_BLOCKS; ++j) {                                                      \
      for (int w = 0; w < EACH; ++w) {                                                              \
        out[EACH * j + w] = values[w][j];                                                           \
      }                                                                                             \
    }                                                                                               \
  }

/* At its start and end a run copies its part of a group. A text has one such function for all its kernels, because it
 * is long. */
#define HR__PHILOX_RUN(NAME, TYPE, EACH, SEEDS)                                                                 \
  static __attribute__((noinline, unused)) void NAME(TYPE *out, int64_t first, int64_t count, SEEDS(int64_t)) { \
    enum { GROUP = EACH * HR__RUN_BLOCKS };                                                                     \
    uint64_t group = (uint64_t)first / GROUP;                                                                   \
    int64_t skip = (int64_t)((uint64_t)first % GROUP);                                                          \
    for (int64_t done = 0, here; done < count; done += here, skip = 0, ++group) {                               \
      TYPE part[GROUP], *to = out + done;                                                                       \
      here = GROUP - skip < count - done ? GROUP - skip : count - done;                                         \
      NAME##_group(here == GROUP ? to : part, group, SEEDS((uint64_t)));                                        \
      for (int64_t i = 0; here < GROUP && i < here; ++i) {                                                      \
        to[i] = part[skip + i];                                                                                 \
      }                                                                                                         \
    }                                                                                                           \
  }
#define HR__PHILOX_GROUPS(NAME, TYPE, EACH, SEEDS, BLOCK, VALUE) \
  HR__PHILOX_GROUP(NAME, TYPE, EACH, SEEDS, BLOCK, VALUE)        \
  HR__PHILOX_RUN(NAME, TYPE, EACH, SEEDS)
#define HR__SEED_GROUPS(NAME, TYPE, EACH, VALUE) \
  HR__PHILOX_GROUPS(NAME, TYPE, EACH, HR__SEED, hr__philox_of_seed, VALUE)
#define HR__KEY_GROUPS(NAME, TYPE, EACH, VALUE) HR__PHILOX_GROUPS(NAME, TYPE, EACH, HR__KEY, hr__philox_behind, VALUE)

HR__SEED_GROUPS(hr_f32_philox_uniform_run, float, 4, hr__f32_uniform_of(block.word[w]))
HR__SEED_GROUPS(hr_f64_philox_uniform_run, double, 2, hr__f64_uniform_of(hr__philox_pair_of(block, (uint64_t)w)))
HR__SEED_GROUPS(hr_f64_philox_normal_run, double, 1, hr__f64_normal_of(block))
HR__SEED_GROUPS(hr_i32_philox_bits_run, int32_t, 4, (int32_t)(block.word[w] >> 1))
HR__SEED_GROUPS(hr_u32_philox_bits_run, uint32_t, 4, block.word[w] >> 1)
HR__SEED_GROUPS(hr_i64_philox_bits_run, int64_t, 2, (int64_t)(hr__philox_pair_of(block, (uint64_t)w) >> 1))
HR__SEED_GROUPS(hr_u64_philox_bits_run, uint64_t, 2, hr__philox_pair_of(block, (uint64_t)w) >> 1)
HR__KEY_GROUPS(hr_i32_philox_words_run, int32_t, 4, (int32_t)block.word[w])
HR__KEY_GROUPS(hr_u32_philox_words_run, uint32_t, 4, block.word[w])
HR__KEY_GROUPS(hr_i64_philox_words_run, int64_t, 2, (int64_t)hr__philox_two_of(block, (uint64_t)w))
HR__KEY_GROUPS(hr_u64_philox_words_run, uint64_t, 2, hr__philox_two_of(block, (uint64_t)w))

/* Sines and cosines of a pair of words are computed together, after the words: compilers don't vectorise one loop of
 * both. */
HR__PHILOX_GROUP(hr__philox_pairs, uint64_t, 2, HR__SEED, hr__philox_of_seed, hr__philox_pair_of(block, (uint64_t)w))
HR_VMATH_FN void hr_f32_philox_normal_run_group(float *out, uint64_t group, uint64_t seed, uint64_t offset) {
  enum { PAIRS = 2 * HR__RUN_BLOCKS };
  uint64_t pairs[PAIRS];
  hr__philox_pairs_group(pairs, group, seed, offset);
  for (int j = 0; j < PAIRS; ++j) {
    out[2 * j] = hr__f32_normal_of((uint32_t)(pairs[j] >> 32), (uint32_t)pairs[j], 0);
    out[2 * j + 1] = hr__f32_normal_of((uint32_t)(pairs[j] >> 32), (uint32_t)pairs[j], 1);
  }
}
HR__PHILOX_RUN(hr_f32_philox_normal_run, float, 4, HR__SEED)

#endif
