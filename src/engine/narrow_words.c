#include "engine/narrow_words.h"

#include "base/allocator.h"
#include "base/integer.h"

enum { LOWER_BITS = 32 };

/* Bytes of the lower bits, so that the wide words are aligned. */
static size_t lower_bytes(size_t count) {
  return hr_align_up(count * sizeof(uint32_t), _Alignof(hr_wide_word));
}

static size_t bytes_of(size_t count, size_t wide_count) {
  return sizeof(hr_narrow_words) + lower_bytes(count) + wide_count * sizeof(hr_wide_word);
}

size_t hr__narrow_words_bytes(const hr_narrow_words *narrow) {
  return bytes_of(narrow->count, narrow->wide_count);
}

hr_narrow_words *hr__narrow_words_make(size_t count, const uint64_t *words) {
  size_t wide_count = 0;
  for (size_t i = 0; i < count; ++i) {
    wide_count += words[i] >> LOWER_BITS != 0;
  }
  hr_narrow_words *narrow = count <= UINT32_MAX ? hr_malloc(bytes_of(count, wide_count)) : NULL;
  if (narrow == NULL) {
    return NULL;
  }
  hr_wide_word *wide = (hr_wide_word *)(void *)((char *)narrow->words + lower_bytes(count)), *next = wide;
  *narrow = (hr_narrow_words){.count = count, .wide_count = wide_count, .wide = wide};
  for (size_t i = 0; i < count; ++i) {
    narrow->words[i] = (uint32_t)words[i];
    if (words[i] >> LOWER_BITS != 0) {
      *next++ = (hr_wide_word){(uint32_t)i, (uint32_t)(words[i] >> LOWER_BITS)};
    }
  }
  return narrow;
}

/* Without branches: vectors compare all lower bits, and add all upper ones. If those of the wide words are equal, the
 * rest of the sum is that of the others, which is 0 if each is. */
bool hr__narrow_words_are(const hr_narrow_words *narrow, size_t count, const uint64_t *words) {
  uint64_t differences = 0, upper = 0;
  if (narrow->count != count) {
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    differences |= narrow->words[i] ^ (uint32_t)words[i];
    upper += words[i] >> LOWER_BITS;
  }
  for (size_t i = 0; i < narrow->wide_count; ++i) {
    const hr_wide_word *wide = &narrow->wide[i];
    differences |= wide->upper ^ words[wide->at] >> LOWER_BITS;
    upper -= wide->upper;
  }
  return differences == 0 && upper == 0;
}

void hr__narrow_words_copy(const hr_narrow_words *narrow, uint64_t *out_words) {
  for (size_t i = 0; i < narrow->count; ++i) {
    out_words[i] = narrow->words[i];
  }
  for (size_t i = 0; i < narrow->wide_count; ++i) {
    out_words[narrow->wide[i].at] |= (uint64_t)narrow->wide[i].upper << LOWER_BITS;
  }
}
