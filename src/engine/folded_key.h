/* folded_key.h: a key in a small part of its memory, for programs that are kept.
 *
 *   words                      folded (folded_words.h)
 *   numbers of buffers         16 bits each, if that suffices
 *   sizes and flags of buffers folded, too: layers repeat them
 *
 * Each run of a program compares its key with one of these. Layouts stay the owner's. Threads: immutable.
 */
#ifndef HEADRACE_ENGINE_FOLDED_KEY_H_
#define HEADRACE_ENGINE_FOLDED_KEY_H_

#include "base/narrow.h"
#include "engine/folded_words.h"
#include "engine/trace.h"

/* Zeroed: there is none. */
typedef struct hr_folded_key {
  hr_folded_words *words, *shapes;
  hr_narrow *locals;
} hr_folded_key;

/* False when memory is out, or if there are too many words. */
HR_MUST_USE bool hr__folded_key_make(const hr_key *key, hr_folded_key *out_folded);
void hr__folded_key_fini(hr_folded_key *folded);
/* True if a key has these words, numbers of buffers, and shapes. */
bool hr__folded_key_fits(const hr_folded_key *folded, const hr_key *key);
/* Gives a key of the same counts its lists, in one block that the caller frees; NULL when memory is out. */
uint64_t *hr__folded_key_unfold(const hr_folded_key *folded, hr_key *key);
/* Bytes of host memory. */
size_t hr__folded_key_bytes(const hr_folded_key *folded);

#endif
