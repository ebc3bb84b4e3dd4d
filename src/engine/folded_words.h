/* folded_words.h: the words of a key in a tenth of their memory, since operands repeat dims, strides and dtypes.
 *
 *   7 64 32 32 1 9 64 32 32 1   ->   6 new words: 7 64 32 32 1 9; then 4 words from 5 before
 *
 * A fold is a number of new words, and after them a number of words that also stand a distance before. The words may
 * overlap their source. Each run of a program compares its key with one of these: a comparison of memory for each half
 * of a fold, since a key with equal words so far has the source itself. Threads: immutable.
 */
#ifndef HEADRACE_ENGINE_FOLDED_WORDS_H_
#define HEADRACE_ENGINE_FOLDED_WORDS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hr_fold {
  uint16_t new_count, copied_count;
  uint32_t distance; /* in words */
} hr_fold;

typedef struct hr_folded_words {
  size_t count, new_count, fold_count;
  uint64_t words[]; /* the new ones, and after them the folds */
} hr_folded_words;

/* One block, which the caller frees; NULL: there is no memory, or too many words. */
hr_folded_words *hr__folded_words_make(size_t count, const uint64_t *words);
/* True if these are the words. */
bool hr__folded_words_are(const hr_folded_words *folded, size_t count, const uint64_t *words);
/* The words again, `count` of them. */
void hr__folded_words_copy(const hr_folded_words *folded, uint64_t *out_words);
/* Word `i`: not for what each run reads. */
uint64_t hr__folded_words_at(const hr_folded_words *folded, size_t i);
size_t hr__folded_words_bytes(const hr_folded_words *folded);

#endif
