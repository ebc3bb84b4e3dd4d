#include "engine/key_changes.h"

#include <string.h>

#include "base/allocator.h"

static bool has_counts_of(const hr_key *base, const hr_key *key) {
  return base->record_count == key->record_count && base->word_count == key->word_count &&
         base->local_count == key->local_count && base->buffer_count == key->buffer_count &&
         memcmp(base->locals, key->locals, key->local_count * sizeof *key->locals) == 0;
}

bool hr__key_changes_make(const hr_key *base, const hr_key *key, hr_key_changes *out_changes) {
  size_t count = 0;
  bool is = has_counts_of(base, key) && key->word_count <= UINT32_MAX;
  for (size_t i = 0; is && i < key->word_count; ++i) {
    bool differs = key->words[i] != base->words[i];
    count += differs;
    is = !differs || key->words[i] <= UINT32_MAX;
  }
  hr_key_change *all = is ? hr_malloc(count * sizeof *all) : NULL;
  if (all == NULL) {
    return false;
  }
  *out_changes = (hr_key_changes){.all = all};
  for (size_t i = 0; i < key->word_count; ++i) {
    if (key->words[i] != base->words[i]) {
      all[out_changes->count++] = (hr_key_change){(uint32_t)i, (uint32_t)key->words[i]};
    }
  }
  return true;
}

void hr__key_changes_fini(hr_key_changes *changes) {
  hr_free(changes->all);
  *changes = (hr_key_changes){0};
}

bool hr__key_changes_fit(const hr_key *base, const hr_key_changes *changes, const hr_key *key) {
  size_t at = 0;
  if (!has_counts_of(base, key)) {
    return false;
  }
  for (size_t i = 0; i < changes->count; ++i) {
    const hr_key_change *change = &changes->all[i];
    if (key->words[change->at] != change->value ||
        memcmp(key->words + at, base->words + at, (change->at - at) * sizeof *key->words) != 0) {
      return false;
    }
    at = change->at + 1;
  }
  return memcmp(key->words + at, base->words + at, (key->word_count - at) * sizeof *key->words) == 0;
}

void hr__key_changes_apply(const hr_key *base, const hr_key_changes *changes, uint64_t *out_words) {
  memcpy(out_words, base->words, base->word_count * sizeof *out_words);
  for (size_t i = 0; i < changes->count; ++i) {
    out_words[changes->all[i].at] = changes->all[i].value;
  }
}
