/* folded_words.c: each place looks for the latest earlier one with the same next words, by a hash of them, as LZ77
 * coders of bytes do. Places inside copied words are not noted: their sources are. The words of a small key stay. */
#include "engine/folded_words.h"

#include <string.h>

#include "base/allocator.h"
#include "base/vector.h"

enum { HASHED = 4, MATCH_MIN = 6, RUN_MAX = UINT16_MAX, BITS = 10, COUNT_MIN = 256 };

static const hr_fold *folds_of(const hr_folded_words *folded) {
  return (const hr_fold *)(const void *)(folded->words + folded->new_count);
}

size_t hr__folded_words_bytes(const hr_folded_words *folded) {
  return sizeof *folded + folded->new_count * sizeof *folded->words + folded->fold_count * sizeof(hr_fold);
}

/* ---- folding ---- */

/* Work of one make. */
typedef struct folding {
  const uint64_t *words;
  size_t count, new_count;
  uint32_t places[1 << BITS]; /* by hash of the next words: the latest place */
  HR_VECTOR(hr_fold) folds;
} folding;

static uint32_t *place_of(folding *f, size_t at) {
  const uint64_t *w = f->words + at;
  uint64_t sum = w[0] * 0x9E3779B97F4A7C15 + w[1] * 0xC2B2AE3D27D4EB4F + w[2] * 0x165667B19E3779F9 + w[3];
  return &f->places[sum * 0x9E3779B97F4A7C15 >> (64 - BITS)];
}

static size_t equal_count(const uint64_t *a, const uint64_t *b, size_t most) {
  size_t count = 0;
  while (count < most && a[count] == b[count]) {
    ++count;
  }
  return count;
}

/* The length of the match at `at`, and where its source is; notes the place. 0: there is none. */
static size_t match(folding *f, size_t at, size_t *out_source) {
  size_t rest = f->count - at;
  if (rest < HASHED || f->count < COUNT_MIN) {
    return 0;
  }
  uint32_t *place = place_of(f, at);
  size_t source = *place, most = rest < RUN_MAX ? rest : RUN_MAX;
  *place = (uint32_t)at;
  *out_source = source;
  size_t length = source < at ? equal_count(f->words + source, f->words + at, most) : 0;
  return length >= MATCH_MIN ? length : 0;
}

static bool push(folding *f, size_t new_count, size_t copied_count, size_t distance) {
  f->new_count += new_count;
  for (; new_count > RUN_MAX; new_count -= RUN_MAX) {
    if (!hr_vector_push(&f->folds, (hr_fold){.new_count = RUN_MAX})) {
      return false;
    }
  }
  return hr_vector_push(&f->folds, (hr_fold){(uint16_t)new_count, (uint16_t)copied_count, (uint32_t)distance});
}

static bool fold_all(folding *f) {
  size_t begin = 0, source = 0; /* of the new words */
  bool ok = f->count < UINT32_MAX;
  for (size_t at = 0; ok && at < f->count;) {
    size_t length = match(f, at, &source);
    if (length > 0) {
      ok = push(f, at - begin, length, at - source);
      begin = at + length;
    }
    at += length > 0 ? length : 1;
  }
  return ok && (begin == f->count || push(f, f->count - begin, 0, 0));
}

static hr_folded_words *finish(const folding *f) {
  hr_folded_words head = {.count = f->count, .new_count = f->new_count, .fold_count = f->folds.count};
  hr_folded_words *folded = hr_malloc(hr__folded_words_bytes(&head));
  if (folded == NULL) {
    return NULL;
  }
  *folded = head;
  uint64_t *out = folded->words;
  const uint64_t *words = f->words;
  for (size_t i = 0; i < f->folds.count; ++i) {
    const hr_fold *fold = &f->folds.data[i];
    memcpy(out, words, fold->new_count * sizeof *words);
    out += fold->new_count, words += fold->new_count + fold->copied_count;
  }
  if (f->folds.count > 0) {
    memcpy(out, f->folds.data, f->folds.count * sizeof *f->folds.data);
  }
  return folded;
}

hr_folded_words *hr__folded_words_make(size_t count, const uint64_t *words) {
  folding f = {.words = words, .count = count};
  hr_folded_words *folded = fold_all(&f) ? finish(&f) : NULL;
  hr_vector_fini(&f.folds);
  return folded;
}

/* ---- reading ---- */

/* Most halves of folds are short. */
static bool are_equal(const uint64_t *a, const uint64_t *b, size_t count) {
  enum { SHORT = 8 };
  uint64_t differences = 0;
  if (count > SHORT) {
    return memcmp(a, b, count * sizeof *a) == 0;
  }
  for (size_t i = 0; i < count; ++i) {
    differences |= a[i] ^ b[i];
  }
  return differences == 0;
}

bool hr__folded_words_are(const hr_folded_words *folded, size_t count, const uint64_t *words) {
  const uint64_t *fresh = folded->words;
  const hr_fold *fold = folds_of(folded), *end = fold + folded->fold_count;
  bool are = folded->count == count;
  for (; are && fold < end; ++fold) {
    are = are_equal(words, fresh, fold->new_count);
    words += fold->new_count, fresh += fold->new_count;
    are = are && are_equal(words, words - fold->distance, fold->copied_count);
    words += fold->copied_count;
  }
  return are;
}

uint64_t hr__folded_words_at(const hr_folded_words *folded, size_t i) {
  const hr_fold *folds = folds_of(folded);
  size_t end = folded->count, new_end = folded->new_count; /* of the fold */
  for (size_t f = folded->fold_count; f-- > 0; new_end -= folds[f].new_count) {
    end -= folds[f].copied_count;
    if (i >= end) {
      i -= folds[f].distance * (1 + (i - end) / folds[f].distance);
    }
    end -= folds[f].new_count;
    if (i >= end) {
      return folded->words[new_end - folds[f].new_count + (i - end)];
    }
  }
  return 0; /* no such word */
}

void hr__folded_words_copy(const hr_folded_words *folded, uint64_t *out_words) {
  const uint64_t *fresh = folded->words;
  const hr_fold *folds = folds_of(folded);
  for (size_t i = 0; i < folded->fold_count; ++i) {
    for (size_t k = 0; k < folds[i].new_count; ++k) {
      *out_words++ = *fresh++;
    }
    for (size_t k = 0; k < folds[i].copied_count; ++k, ++out_words) { /* one by one: the source may overlap */
      *out_words = *(out_words - folds[i].distance);
    }
  }
}
