/* key_changes.h: a key as its differences from another key of the same structure.
 *
 *   base      | mul 2>1 | f32 [200,8] | ..      words, numbers of buffers: as a copy's model keeps them
 *   changes             |      101    |         values and their positions
 *
 * The words of a training step take tens of kilobytes. Programs that differ in dims alone have four fifths in common.
 */
#ifndef HEADRACE_ENGINE_KEY_CHANGES_H_
#define HEADRACE_ENGINE_KEY_CHANGES_H_

#include "engine/trace.h"

typedef struct hr_key_change {
  uint32_t at, value;
} hr_key_change;

/* Zeroed: there is no base, the key is whole. */
typedef struct hr_key_changes {
  size_t count;
  hr_key_change *all; /* by position */
} hr_key_changes;

/* False: the two have other counts or numbers of buffers, a value has more than 32 bits, or there is no memory. */
HR_MUST_USE bool hr__key_changes_make(const hr_key *base, const hr_key *key, hr_key_changes *out_changes);
void hr__key_changes_fini(hr_key_changes *changes);
/* True if a key has the records of `base` with these changes. Its buffers' shapes are not compared. */
bool hr__key_changes_fit(const hr_key *base, const hr_key_changes *changes, const hr_key *key);
/* The words, `base->word_count` of them. */
void hr__key_changes_apply(const hr_key *base, const hr_key_changes *changes, uint64_t *out_words);

#endif
