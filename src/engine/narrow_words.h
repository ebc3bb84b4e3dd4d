/* narrow_words.h: the words of a key in half of their memory: most have less than 32 bits.
 *
 *   5, 300, 1 << 32 | 7, 2   ->   5 300 7 2, and 1 << 32 | 7 at 2
 *
 * Each run of a program compares its key with one of these. Threads: immutable.
 */
#ifndef HEADRACE_ENGINE_NARROW_WORDS_H_
#define HEADRACE_ENGINE_NARROW_WORDS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hr_wide_word {
  uint32_t at, upper; /* the upper 32 bits of the word there */
} hr_wide_word;

typedef struct hr_narrow_words {
  size_t count, wide_count;
  const hr_wide_word *wide; /* by position */
  uint32_t words[];         /* the lower bits, and after them `wide` */
} hr_narrow_words;

/* One block, which the caller frees; NULL: there is no memory, or too many words. */
hr_narrow_words *hr__narrow_words_make(size_t count, const uint64_t *words);
/* True if these are the words. */
bool hr__narrow_words_are(const hr_narrow_words *narrow, size_t count, const uint64_t *words);
/* The words again, `count` of them. */
void hr__narrow_words_copy(const hr_narrow_words *narrow, uint64_t *out_words);
size_t hr__narrow_words_bytes(const hr_narrow_words *narrow);

#endif
