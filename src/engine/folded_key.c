#include "engine/folded_key.h"

#include "base/allocator.h"

bool hr__folded_key_make(const hr_key *key, hr_folded_key *out_folded) {
  hr_folded_key folded = {.words = hr__folded_words_make(key->word_count, key->words)};
  folded.shapes = folded.words != NULL ? hr__folded_words_make(key->buffer_count, key->shapes) : NULL;
  folded.locals = folded.shapes != NULL ? hr_narrow_make(key->local_count, key->locals) : NULL;
  if (folded.locals == NULL) {
    hr__folded_key_fini(&folded);
    return false;
  }
  *out_folded = folded;
  return true;
}

void hr__folded_key_fini(hr_folded_key *folded) {
  hr_free(folded->words);
  hr_free(folded->shapes);
  hr_free(folded->locals);
  *folded = (hr_folded_key){0};
}

bool hr__folded_key_fits(const hr_folded_key *folded, const hr_key *key) {
  return hr__folded_words_are(folded->words, key->word_count, key->words) &&
         hr__folded_words_are(folded->shapes, key->buffer_count, key->shapes) &&
         hr_narrow_are(folded->locals, key->local_count, key->locals);
}

uint64_t *hr__folded_key_unfold(const hr_folded_key *folded, hr_key *key) {
  uint64_t *words =
      hr_malloc((key->word_count + key->buffer_count) * sizeof *words + key->local_count * sizeof *key->locals + 1);
  if (words == NULL) {
    return NULL;
  }
  uint64_t *shapes = words + key->word_count;
  uint32_t *locals = (uint32_t *)(void *)(shapes + key->buffer_count);
  hr__folded_words_copy(folded->words, words);
  hr__folded_words_copy(folded->shapes, shapes);
  hr_narrow_copy(folded->locals, locals);
  key->words = words, key->shapes = shapes, key->locals = locals;
  return words;
}

size_t hr__folded_key_bytes(const hr_folded_key *folded) {
  return hr__folded_words_bytes(folded->words) + hr__folded_words_bytes(folded->shapes) +
         hr_narrow_bytes(folded->locals);
}
