#include "engine/general_plan.h"

#include <math.h>
#include <string.h>

#include "base/allocator.h"
#include "base/hash.h"
#include "base/polynomial.h"

enum { STRUCTURES_MAX = 256, SAMPLES_MAX = 16, GENERALS_MAX = 4, VARIABLES_MAX = 2 };
/* How far beyond its samples a plan holds at first, and at most. */
static const double REACH_MIN = 2, REACH_MAX = 8, OUT_OF_REACH = INFINITY;
/* Each polynomial has fewer terms than it has samples: at least one is left to check it on. */
static const int SAMPLES_MIN[VARIABLES_MAX + 1] = {0, 3, 5};
static const int64_t UNIT_MAX = 64;

/* A compiled program: the words of its key, the numbers of its schedule, and estimates. */
typedef struct sample {
  size_t word_count, number_count, estimate_count;
  uint64_t *words;
  int64_t *numbers, *estimates;
  uint64_t plan_hash; /* of the schedule's structure */
} sample;

typedef struct general {
  void *model;
  uint64_t serial;
  sample sample; /* the model's */
  int variable_count;
  size_t variables[VARIABLES_MAX]; /* words of the key */
  int64_t low[VARIABLES_MAX], high[VARIABLES_MAX];
  double reach;                              /* how far beyond them the plan holds */
  int64_t unit[VARIABLES_MAX];               /* the power of two that divides all samples, up to UNIT_MAX */
  HR_VECTOR(hr_polynomial) polynomials;      /* of words and numbers, then of estimates */
  size_t exact_count;                        /* of the former, which must have values */
  HR_VECTOR(int8_t) classes;                 /* of the model's; -1: only sizes of buffers have it */
  hr_number_terms words, numbers, estimates; /* those that vary, and their polynomials */
  size_t key_words, record_count, buffer_count, local_count; /* of the model's key */
  bool has_layouts;
  int threads; /* of the key */
  uint32_t *locals;
  hr_key_uses uses;  /* of buffers whose overlaps may vary */
  uint64_t overlaps; /* the model's; 0: unknown */
} general;

struct hr_general_structure {
  uint64_t hash, kind;
  int sample_count, general_count;
  sample samples[SAMPLES_MAX]; /* the newest last */
  general generals[GENERALS_MAX];
  hr_general_structure *newer, *older;
  hr_general_structure *successor; /* found after it the last time, or NULL */
};

/* ---- samples ---- */

static void sample_fini(sample *s) {
  hr_free(s->words);
  hr_free(s->numbers);
  hr_free(s->estimates);
  *s = (sample){0};
}

static size_t words_of(const hr_key *key) {
  return key->word_count + key->buffer_count * (key->layouts != NULL ? 3 : 1);
}

static void copy_words(const hr_key *key, uint64_t *out) {
  memcpy(out, key->words, key->word_count * sizeof *out);
  memcpy(out + key->word_count, key->shapes, key->buffer_count * sizeof *out);
  if (key->layouts != NULL) {
    memcpy(out + key->word_count + key->buffer_count, key->layouts, 2 * key->buffer_count * sizeof *out);
  }
}

/* Without estimates. */
static bool sample_copy(const sample *from, sample *out) {
  *out = *from;
  out->estimates = NULL, out->estimate_count = 0;
  out->words = hr_malloc(from->word_count * sizeof *from->words + 1);
  out->numbers = hr_malloc(from->number_count * sizeof *from->numbers + 1);
  if (out->words == NULL || out->numbers == NULL) {
    sample_fini(out);
    return false;
  }
  memcpy(out->words, from->words, from->word_count * sizeof *from->words);
  memcpy(out->numbers, from->numbers, from->number_count * sizeof *from->numbers);
  return true;
}

static bool sample_of(const hr_key *key, const hr_schedule *schedule, const hr_general_extras *extras, sample *out) {
  hr_words structure = {0};
  hr_numbers numbers = {0};
  *out = (sample){.word_count = words_of(key), .estimate_count = extras->estimate_count};
  out->words = hr_malloc(out->word_count * sizeof *out->words + 1);
  out->estimates = hr_malloc(out->estimate_count * sizeof *out->estimates + 1);
  bool ok = out->words != NULL && out->estimates != NULL && hr_schedule_split(schedule, &structure, &numbers) &&
            hr_vector_reserve(&numbers, numbers.count + extras->count);
  if (ok) {
    memcpy(out->estimates, extras->estimates, out->estimate_count * sizeof *out->estimates);
    memcpy(numbers.data + numbers.count, extras->all, extras->count * sizeof *extras->all);
    numbers.count += extras->count;
    copy_words(key, out->words);
    out->plan_hash = hr_hash_words(HR_HASH_SEED, structure.data, structure.count);
  }
  out->numbers = numbers.data;
  out->number_count = numbers.count;
  hr_vector_fini(&structure);
  if (!ok) {
    sample_fini(out);
  }
  return ok;
}

/* ---- general plans ---- */

static void general_fini(hr_generals *generals, general *g) {
  if (g->model != NULL) {
    generals->release(g->model);
  }
  sample_fini(&g->sample);
  hr_vector_fini(&g->polynomials);
  hr_vector_fini(&g->classes);
  hr_vector_fini(&g->words);
  hr_vector_fini(&g->numbers);
  hr_vector_fini(&g->estimates);
  hr_vector_fini(&g->uses);
  hr_free(g->locals);
  *g = (general){0};
}

/* The key's words; those that vary have the names of their polynomials, which no word in use equals. */
static uint64_t *name_words(const general *g, const hr_key *key) {
  uint64_t *names = hr_malloc((key->word_count + 1) * sizeof *names);
  if (names != NULL) {
    memcpy(names, key->words, key->word_count * sizeof *names);
  }
  for (size_t i = 0; names != NULL && i < g->words.count && g->words.data[i].at < key->word_count; ++i) {
    names[g->words.data[i].at] = (uint64_t)INT64_MIN + g->words.data[i].value;
  }
  return names;
}

/* The number of uses that are of the first one's buffer. */
static size_t count_of_buffer(const hr_key_use *first, const hr_key_use *end) {
  const hr_key_use *next = first;
  while (next < end && next->local == first->local) {
    ++next;
  }
  return (size_t)(next - first);
}

/* True if two uses have the same view, whatever the dims are. */
static bool is_named_alike(const hr_key *key, const uint64_t *names, const hr_key_use *a, const hr_key_use *b) {
  size_t words = hr__key_use_words(key, a);
  return a->is_output == b->is_output && words == hr__key_use_words(key, b) &&
         memcmp(names + a->word, names + b->word, words * sizeof *names) == 0;
}

/* True if the last of a buffer's uses reads what an earlier one reads, with no write in between: the two overlap the
 * same writes. */
static bool reads_again(const hr_key *key, const uint64_t *names, const hr_key_use *first, const hr_key_use *last) {
  bool does = false;
  for (const hr_key_use *each = last; !does && !last->is_output && each > first && !each[-1].is_output; --each) {
    does = is_named_alike(key, names, &each[-1], last);
  }
  return does;
}

/* Keeps one of reads that overlap the same writes. */
static void drop_reads(const hr_key *key, const uint64_t *names, hr_key_uses *uses) {
  size_t kept = 0, first = 0; /* of the buffer's */
  for (size_t i = 0; i < uses->count; ++i) {
    first = kept > 0 && uses->data[kept - 1].local == uses->data[i].local ? first : kept;
    uses->data[kept] = uses->data[i];
    kept += !reads_again(key, names, uses->data + first, uses->data + kept);
  }
  uses->count = kept;
}

static uint64_t hash_names(const hr_key *key, const uint64_t *names, const hr_key_use *uses, size_t count) {
  uint64_t hash = HR_HASH_SEED;
  for (size_t i = 0; i < count; ++i) {
    hash = hr_hash_words(hr_hash_mix(hash, uses[i].is_output), names + uses[i].word, hr__key_use_words(key, &uses[i]));
  }
  return hash;
}

/* True if two buffers have the same views, whatever the dims are. */
static bool are_named_alike(const hr_key *key, const uint64_t *names, const hr_key_use *a, const hr_key_use *b,
                            size_t count) {
  bool are = true;
  for (size_t i = 0; are && i < count; ++i) {
    are = is_named_alike(key, names, &a[i], &b[i]);
  }
  return are;
}

/* Keeps one buffer of those that have the same views, as in alike layers: their views overlap alike. */
static void drop_repeated(const hr_key *key, const uint64_t *names, hr_key_uses *uses) {
  hr_table first = {0}; /* the place of each kind's first use, from 1 on */
  hr_key_use *all = uses->data;
  const hr_key_use *end = all + uses->count;
  size_t kept = 0, count;
  for (const hr_key_use *from = all; from < end; from += count) {
    count = count_of_buffer(from, end);
    uint64_t hash = hash_names(key, names, from, count);
    size_t known = (size_t)(uintptr_t)hr_table_get(&first, hash);
    if (known != 0 && count_of_buffer(all + known - 1, all + kept) == count &&
        are_named_alike(key, names, all + known - 1, from, count)) {
      continue;
    }
    memmove(all + kept, from, count * sizeof *all);
    (void)!(known != 0 || hr_table_put(&first, hash, (void *)(uintptr_t)(kept + 1)));
    kept += count;
  }
  uses->count = kept;
  hr_table_fini(&first);
}

/* The words of records have the classes of the model's, too: those of their polynomials. */
static void find_word_classes(general *g, size_t word_count) {
  for (size_t i = 0; i < g->words.count && g->words.data[i].at < word_count; ++i) {
    const hr_number_term *t = &g->words.data[i];
    g->classes.data[t->value] = (int8_t)hr__number_class((int64_t)g->sample.words[t->at]);
  }
}

/* Keeps what has_structure needs; it is never true without memory, or if what windows leave has to be computed. */
static void keep_structure(general *g, const hr_key *key) {
  size_t *varying = hr_malloc((g->words.count + 1) * sizeof *varying);
  find_word_classes(g, key->word_count);
  uint64_t *names = name_words(g, key);
  g->key_words = key->word_count, g->record_count = key->record_count;
  g->buffer_count = key->buffer_count, g->local_count = key->local_count;
  g->has_layouts = key->layouts != NULL, g->threads = key->threads;
  g->locals = hr_malloc(key->local_count * sizeof *g->locals + 1);
  for (size_t i = 0; varying != NULL && i < g->words.count; ++i) {
    varying[i] = g->words.data[i].at;
  }
  if (varying != NULL && names != NULL && g->locals != NULL && !hr__key_has_windows(key) &&
      hr__key_find_uses(key, g->words.count, varying, &g->uses)) {
    drop_reads(key, names, &g->uses);
    drop_repeated(key, names, &g->uses);
    memcpy(g->locals, key->locals, key->local_count * sizeof *g->locals);
    g->overlaps = hr__key_hash_uses(key, &g->uses);
  }
  hr_free(varying);
  hr_free(names);
}

/* The values of all polynomials; false: that of a word or a number has none here. */
static bool evaluate(const general *g, const int64_t *x, int64_t *out_values) {
  bool ok = true;
  for (size_t i = 0; ok && i < g->polynomials.count; ++i) {
    out_values[i] = 0;
    ok = hr_polynomial_at(&g->polynomials.data[i], x[0], x[1], &out_values[i]) || i >= g->exact_count;
  }
  return ok;
}

/* The words of a key, or of a sample, in the lists that contain them. */
enum { LISTS = 3 };
typedef struct word_lists {
  const uint64_t *words[LISTS];
  size_t counts[LISTS];
} word_lists;

static word_lists lists_of(const hr_key *key) {
  return (word_lists){{key->words, key->shapes, key->layouts},
                      {key->word_count, key->buffer_count, key->layouts != NULL ? 2 * key->buffer_count : 0}};
}

static uint64_t word_at(const word_lists *lists, size_t at) {
  int list = 0;
  for (; at >= lists->counts[list]; ++list) {
    at -= lists->counts[list];
  }
  return lists->words[list][at];
}

static bool are_equal(const uint64_t *a, const uint64_t *b, size_t count) {
  return count == 0 || memcmp(a, b, count * sizeof *a) == 0;
}

/* True if the words, as many as the model's, are the model's with these values in the places of those that vary. */
static bool has_words(const general *g, const word_lists *lists, const int64_t *values) {
  size_t next = 0, begin = 0; /* of the terms; of the list among all words */
  for (int list = 0; list < LISTS; begin += lists->counts[list++]) {
    const uint64_t *words = lists->words[list], *model = g->sample.words + begin;
    size_t at = 0, count = lists->counts[list];
    for (; next < g->words.count && g->words.data[next].at < begin + count; ++next) {
      const hr_number_term *t = &g->words.data[next];
      size_t place = t->at - begin;
      if ((int64_t)words[place] != values[t->value] || !are_equal(words + at, model + at, place - at)) {
        return false;
      }
      at = place + 1;
    }
    if (!are_equal(words + at, model + at, count - at)) {
      return false;
    }
  }
  return true;
}

/* True if the key has as many words as the model's, in lists of the same lengths. */
static bool has_counts(const general *g, const hr_key *key) {
  return g->key_words == key->word_count && g->buffer_count == key->buffer_count && g->threads == key->threads &&
         g->has_layouts == (key->layouts != NULL);
}

/* True if the buffers of a key that has_words have the model's classes: of those that vary, the bytes or the layout do.
 */
static bool has_buffer_classes(const general *g, const hr_key *key) {
  const uint64_t *shapes = g->sample.words + key->word_count, *layouts = shapes + key->buffer_count;
  bool are = true, has = key->layouts != NULL;
  for (size_t i = g->words.count; are && i-- > 0 && g->words.data[i].at >= key->word_count;) {
    size_t buffer = (g->words.data[i].at - key->word_count) % key->buffer_count;
    are = hr__key_buffer_class(key->shapes[buffer], has ? key->layouts[buffer] : 0) ==
          hr__key_buffer_class(shapes[buffer], has ? layouts[buffer] : 0);
  }
  return are;
}

/* True if a key that has_words has the structure of the model's, so that its hash need not be computed. */
static bool has_structure(const general *g, const hr_key *key) {
  return g->overlaps != 0 && g->record_count == key->record_count && g->local_count == key->local_count &&
         memcmp(g->locals, key->locals, key->local_count * sizeof *g->locals) == 0 && has_buffer_classes(g, key) &&
         hr__key_hash_uses(key, &g->uses) == g->overlaps;
}

static void read_variables(const general *g, const word_lists *lists, int64_t *out_x) {
  out_x[0] = out_x[1] = 0;
  for (int v = 0; v < g->variable_count; ++v) {
    out_x[v] = (int64_t)word_at(lists, g->variables[v]);
  }
}

/* How far the variables are from the range of the samples: the largest ratio, 1 inside. */
static double distance(const general *g, const int64_t *x) {
  double most = 1;
  for (int v = 0; v < g->variable_count; ++v) {
    if (x[v] <= 0 || x[v] % g->unit[v] != 0) {
      return OUT_OF_REACH;
    }
    double below = (double)g->low[v] / (double)x[v], above = (double)x[v] / (double)g->high[v];
    double own = below > above ? below : above;
    most = own > most ? own : most;
  }
  return most;
}

/* True if the numbers and words with these values have the model's classes. */
static bool has_number_classes(const general *g, const int64_t *values) {
  bool has = true;
  for (size_t i = 0; has && i < g->classes.count; ++i) {
    has = g->classes.data[i] < 0 || hr__number_class(values[i]) == g->classes.data[i];
  }
  return has;
}

/* The model's numbers with others in the places of those that vary; false: memory is out. */
static bool make_numbers(const general *g, const int64_t *values, hr_numbers *out) {
  if (!hr_vector_reserve(out, g->sample.number_count)) {
    return false;
  }
  out->count = g->sample.number_count;
  memcpy(out->data, g->sample.numbers, out->count * sizeof *out->data);
  for (size_t i = 0; i < g->numbers.count; ++i) {
    out->data[g->numbers.data[i].at] = values[g->numbers.data[i].value];
  }
  return true;
}

static bool copy_terms(const hr_number_terms *from, hr_number_terms *out) {
  if (!hr_vector_reserve(out, from->count + 1)) {
    return false;
  }
  out->count = from->count;
  if (from->count > 0) { /* an empty vector has no data */
    memcpy(out->data, from->data, from->count * sizeof *from->data);
  }
  return true;
}

void hr__general_numbers_fini(hr_general_numbers *numbers) {
  hr_vector_fini(&numbers->values);
  hr_vector_fini(&numbers->all);
  hr_vector_fini(&numbers->terms);
  hr_vector_fini(&numbers->estimates);
}

/* ---- finding polynomials ---- */

typedef struct fitting {
  int count;
  const sample *samples[SAMPLES_MAX];
  int64_t x[SAMPLES_MAX], y[SAMPLES_MAX];
  general *g;
  hr_table known; /* polynomials, by the hash of their values */
} fitting;

/* True if a known polynomial gives these values. */
static bool gives(const fitting *f, size_t polynomial, const int64_t *values) {
  int s = 0;
  int64_t value;
  while (s < f->count && hr_polynomial_at(&f->g->polynomials.data[polynomial], f->x[s], f->y[s], &value) &&
         value == values[s]) {
    ++s;
  }
  return s == f->count;
}

/* Finds the polynomial of numbers with these values, first among the known ones: a program of many steps has
 * thousands. Those whose values have one hash find no general plan. */
static bool fit(fitting *f, const int64_t *values, uint32_t *out_index) {
  general *g = f->g;
  uint64_t words[SAMPLES_MAX];
  hr_polynomial p;
  memcpy(words, values, (size_t)f->count * sizeof *words);
  uint64_t hash = hr_hash_words(HR_HASH_SEED, words, (size_t)f->count);
  uintptr_t number = (uintptr_t)hr_table_get(&f->known, hash); /* from 1 on */
  if (number != 0) {
    *out_index = (uint32_t)(number - 1);
    return gives(f, number - 1, values);
  }
  *out_index = (uint32_t)g->polynomials.count;
  return hr_polynomial_fit(f->count, f->x, g->variable_count > 1 ? f->y : NULL, values, &p) &&
         hr_vector_push(&g->polynomials, p) && hr_table_put(&f->known, hash, (void *)(uintptr_t)g->polynomials.count);
}

static bool varies(const fitting *f, const int64_t *values) {
  for (int s = 1; s < f->count; ++s) {
    if (values[s] != values[0]) {
      return true;
    }
  }
  return false;
}

/* The values of a word in all samples; false: they are equal. */
static bool read_word(const fitting *f, size_t word, int64_t *out_values) {
  for (int s = 0; s < f->count; ++s) {
    out_values[s] = (int64_t)f->samples[s]->words[word];
  }
  return varies(f, out_values);
}

/* The first, or the smallest, word that varies and is no polynomial of the variables so far; false: there is none. */
static bool find_variable(fitting *f, bool by_size, size_t *out_word) {
  long double smallest = 0;
  bool found = false;
  for (size_t i = 0; i < f->samples[0]->word_count && (by_size || !found); ++i) {
    int64_t values[SAMPLES_MAX];
    uint32_t index;
    long double sum = 0;
    if (!read_word(f, i, values)) {
      continue;
    }
    for (int s = 0; s < f->count; ++s) {
      sum += (long double)values[s];
    }
    if ((!found || sum < smallest) && (f->g->variable_count == 0 || !fit(f, values, &index))) {
      smallest = sum, found = true;
      *out_word = i;
    }
  }
  return found;
}

/* Finds the variables, and each word that varies as a polynomial of them. False: they are too many. */
static bool fit_words_by(fitting *f, bool by_size) {
  general *g = f->g;
  int64_t values[SAMPLES_MAX];
  size_t word = 0;
  uint32_t index;
  memset(f->y, 0, sizeof f->y);
  g->variable_count = 0;
  g->polynomials.count = g->words.count = 0;
  hr_table_clear(&f->known);
  while (g->variable_count < VARIABLES_MAX && find_variable(f, by_size, &word)) {
    if (f->count < SAMPLES_MIN[g->variable_count + 1]) {
      return false;
    }
    (void)read_word(f, word, g->variable_count == 0 ? f->x : f->y);
    g->variables[g->variable_count++] = word;
  }
  for (size_t i = 0; i < f->samples[0]->word_count; ++i) {
    if (read_word(f, i, values) &&
        (!fit(f, values, &index) || !hr_vector_push(&g->words, (hr_number_term){(uint32_t)i, index}))) {
      return false;
    }
  }
  return g->variable_count > 0;
}

/* The first word is mostly a dim, and others are its polynomials. Is it a product of dims, the smallest are the dims.
 */
static bool fit_words(fitting *f) {
  return fit_words_by(f, false) || fit_words_by(f, true);
}

static bool fit_numbers(fitting *f) {
  for (size_t i = 0; i < f->samples[0]->number_count; ++i) {
    int64_t values[SAMPLES_MAX];
    uint32_t index;
    for (int s = 0; s < f->count; ++s) {
      values[s] = f->samples[s]->numbers[i];
    }
    if (varies(f, values) &&
        (!fit(f, values, &index) || !hr_vector_push(&f->g->numbers, (hr_number_term){(uint32_t)i, index}))) {
      return false;
    }
  }
  return true;
}

/* An estimate that is no polynomial, as one with a bound, has none. */
static bool fit_estimates(fitting *f) {
  bool ok = true;
  f->g->exact_count = f->g->polynomials.count;
  for (size_t i = 0; ok && i < f->samples[0]->estimate_count; ++i) {
    int64_t values[SAMPLES_MAX];
    uint32_t index;
    for (int s = 0; s < f->count; ++s) {
      values[s] = f->samples[s]->estimates[i];
    }
    if (varies(f, values)) {
      uint32_t value = fit(f, values, &index) ? index : HR_GENERAL_NO_VALUE;
      ok = hr_vector_push(&f->g->estimates, (hr_number_term){(uint32_t)i, value});
    }
  }
  return ok;
}

static void widen(general *g, const int64_t *x, bool is_first) {
  for (int v = 0; v < g->variable_count; ++v) {
    g->low[v] = is_first || x[v] < g->low[v] ? x[v] : g->low[v];
    g->high[v] = is_first || x[v] > g->high[v] ? x[v] : g->high[v];
    g->unit[v] = is_first ? UNIT_MAX : g->unit[v];
    while (x[v] % g->unit[v] != 0) {
      g->unit[v] /= 2;
    }
  }
}

/* True if two samples have the same words, except where `base` and `other` differ. */
static bool is_of_family(const sample *s, const sample *base, const sample *other) {
  for (size_t i = 0; i < base->word_count; ++i) {
    if (base->words[i] == other->words[i] && s->words[i] != base->words[i]) {
      return false;
    }
  }
  return true;
}

static bool is_comparable(const sample *a, const sample *b) {
  return a->word_count == b->word_count && a->number_count == b->number_count && a->plan_hash == b->plan_hash;
}

/* The classes of the model's numbers, which all numbers of a polynomial share. */
static bool find_classes(general *g) {
  if (!hr_vector_reserve(&g->classes, g->polynomials.count)) {
    return false;
  }
  g->classes.count = g->polynomials.count;
  memset(g->classes.data, -1, g->classes.count);
  for (size_t i = 0; i < g->numbers.count; ++i) {
    const hr_number_term *t = &g->numbers.data[i];
    g->classes.data[t->value] = (int8_t)hr__number_class(g->sample.numbers[t->at]);
  }
  return true;
}

/* The newest sample, and those that differ from it where `other` does. */
static void find_family(const hr_general_structure *structure, int other, fitting *f) {
  const sample *newest = &structure->samples[structure->sample_count - 1], *second = &structure->samples[other];
  f->count = 0;
  f->samples[f->count++] = newest;
  for (int i = structure->sample_count - 2; is_comparable(second, newest) && i >= 0; --i) {
    const sample *s = &structure->samples[i];
    if (is_comparable(s, newest) && is_of_family(s, newest, second)) {
      f->samples[f->count++] = s;
    }
  }
}

static bool make_general(fitting *f, general *out) {
  *out = (general){0};
  f->g = out;
  if (f->count < SAMPLES_MIN[1] || !fit_words(f) || !fit_numbers(f) || !fit_estimates(f) ||
      !sample_copy(f->samples[0], &out->sample) || !find_classes(out)) {
    return false;
  }
  out->reach = REACH_MIN;
  for (int s = 0; s < f->count; ++s) {
    widen(out, (const int64_t[VARIABLES_MAX]){f->x[s], f->y[s]}, s == 0);
  }
  return true;
}

/* ---- structures ---- */

static void destroy(hr_generals *generals, hr_general_structure *structure) {
  for (int i = 0; i < structure->sample_count; ++i) {
    sample_fini(&structure->samples[i]);
  }
  for (int i = 0; i < structure->general_count; ++i) {
    general_fini(generals, &structure->generals[i]);
  }
  hr_free(structure);
}

static void unlink_structure(hr_generals *generals, hr_general_structure *structure) {
  *(structure->newer != NULL ? &structure->newer->older : &generals->newest) = structure->older;
  if (structure->older != NULL) {
    structure->older->newer = structure->newer;
  }
}

static void link_structure(hr_generals *generals, hr_general_structure *structure) {
  structure->newer = NULL;
  structure->older = generals->newest;
  if (generals->newest != NULL) {
    generals->newest->newer = structure;
  }
  generals->newest = structure;
}

void hr__generals_fini(hr_generals *generals) {
  for (hr_general_structure *structure = generals->newest, *older; structure != NULL; structure = older) {
    older = structure->older;
    destroy(generals, structure);
  }
  hr_table_fini(&generals->table);
  generals->newest = generals->last = NULL;
  generals->count = 0;
}

static void drop_oldest(hr_generals *generals) {
  hr_general_structure *oldest = generals->newest;
  while (oldest->older != NULL) {
    oldest = oldest->older;
  }
  unlink_structure(generals, oldest);
  hr_table_remove(&generals->table, oldest->hash);
  --generals->count;
  generals->last = generals->last != oldest ? generals->last : NULL;
  for (hr_general_structure *each = generals->newest; each != NULL; each = each->older) {
    each->successor = each->successor != oldest ? each->successor : NULL;
  }
  destroy(generals, oldest);
}

/* Keys of different structures with equal hashes share one: their samples don't agree, and find no polynomials. */
static hr_general_structure *structure_of(hr_generals *generals, uint64_t hash, uint64_t kind) {
  hr_general_structure *structure = hr_table_get(&generals->table, hash);
  if (structure != NULL) {
    unlink_structure(generals, structure);
    link_structure(generals, structure);
    return structure;
  }
  structure = hr_calloc(1, sizeof *structure);
  if (structure == NULL || !hr_table_put(&generals->table, hash, structure)) {
    hr_free(structure);
    return NULL;
  }
  structure->hash = hash;
  structure->kind = kind;
  link_structure(generals, structure);
  if (++generals->count > STRUCTURES_MAX) {
    drop_oldest(generals);
  }
  return structure;
}

static uint64_t hash_of(hr_key *key, uint64_t kind) {
  return hr_hash_mix(hr__key_structure(key), kind);
}

static void find_distances(const hr_general_structure *structure, const hr_key *key, const word_lists *lists,
                           double *out_distances) {
  int64_t x[VARIABLES_MAX];
  for (int i = 0; i < structure->general_count; ++i) {
    const general *g = &structure->generals[i];
    out_distances[i] = OUT_OF_REACH;
    if (has_counts(g, key)) {
      read_variables(g, lists, x);
      double own = distance(g, x);
      out_distances[i] = own <= g->reach ? own : OUT_OF_REACH;
    }
  }
}

/* The plan whose range is nearest, the newest of several; -1: none holds. Between two ranges either may be refused
 * later, where a library changes its mind; the nearer one is seldom. */
static int nearest(const hr_general_structure *structure, const double *distances) {
  int found = -1;
  for (int i = 0; i < structure->general_count; ++i) {
    if (distances[i] < OUT_OF_REACH && (found < 0 || distances[i] < distances[found])) {
      found = i;
    }
  }
  return found;
}

/* True if the plan holds for the key: *out_values are those of its polynomials. `is_known`: see find_in. */
static bool holds(const general *g, const hr_key *key, const word_lists *lists, bool is_known, hr_numbers *out_values) {
  int64_t x[VARIABLES_MAX];
  if (!hr_vector_reserve(out_values, g->polynomials.count)) {
    return false;
  }
  out_values->count = g->polynomials.count;
  read_variables(g, lists, x);
  return evaluate(g, x, out_values->data) && has_number_classes(g, out_values->data) &&
         has_words(g, lists, out_values->data) && (is_known || has_structure(g, key));
}

/* `is_known`: the key is known to have the structure; else that is found out. `skipped`: so many of the plans that hold
 * are passed over. */
static hr_general_find find_in(const hr_general_structure *structure, const hr_key *key, bool is_known, int skipped,
                               bool wants_all, hr_general_numbers *out_numbers, void **out_model) {
  const word_lists lists = lists_of(key);
  double distances[GENERALS_MAX];
  bool is = false;
  find_distances(structure, key, &lists, distances);
  for (int i; !is && (i = nearest(structure, distances)) >= 0; distances[i] = OUT_OF_REACH) {
    const general *g = &structure->generals[i];
    is = holds(g, key, &lists, is_known, &out_numbers->values) && skipped-- <= 0 &&
         (!wants_all ||
          (make_numbers(g, out_numbers->values.data, &out_numbers->all) &&
           copy_terms(&g->numbers, &out_numbers->terms) && copy_terms(&g->estimates, &out_numbers->estimates)));
    out_numbers->serial = g->serial;
    *out_model = g->model;
  }
  return is ? HR_GENERAL_FOUND : HR_GENERAL_REFUSED;
}

static void note_found(hr_generals *generals, hr_general_structure *structure) {
  if (generals->last != NULL) {
    generals->last->successor = structure;
  }
  generals->last = structure;
}

hr_general_find hr__generals_find(hr_generals *generals, hr_key *key, uint64_t kind, int skipped, bool wants_all,
                                  hr_general_numbers *out_numbers, void **out_model) {
  hr_general_structure *structure = generals->last != NULL ? generals->last->successor : NULL;
  hr_general_find found = HR_GENERAL_UNKNOWN;
  if (structure != NULL && structure->kind == kind && structure->general_count > 0) {
    found = find_in(structure, key, false, skipped, wants_all, out_numbers, out_model);
  }
  if (found != HR_GENERAL_FOUND) {
    structure = generals->count > 0 ? hr_table_get(&generals->table, hash_of(key, kind)) : NULL;
    bool has = structure != NULL && structure->general_count > 0;
    found = has ? find_in(structure, key, true, skipped, wants_all, out_numbers, out_model) : HR_GENERAL_UNKNOWN;
  }
  if (found == HR_GENERAL_FOUND) {
    note_found(generals, structure);
  }
  return found;
}

/* True if a general plan gives the sample; then its range includes it. A program that was compiled because its dims are
 * out of reach shows that the compiler decides there as it did before, so the plan holds further from then on. */
static bool is_known(general *g, const sample *s) {
  const word_lists lists = {{s->words}, {s->word_count}};
  int64_t x[VARIABLES_MAX];
  int64_t *values = hr_malloc((g->polynomials.count + 1) * sizeof *values);
  hr_numbers numbers = {0};
  bool is = values != NULL && is_comparable(&g->sample, s);
  if (is) {
    read_variables(g, &lists, x);
    is = evaluate(g, x, values) && has_number_classes(g, values) && has_words(g, &lists, values) &&
         make_numbers(g, values, &numbers) &&
         memcmp(numbers.data, s->numbers, s->number_count * sizeof *s->numbers) == 0;
  }
  if (is) {
    double own = distance(g, x);
    g->reach *= own > g->reach && own < OUT_OF_REACH && g->reach < REACH_MAX ? 2 : 1;
    widen(g, x, false);
  }
  hr_vector_fini(&numbers);
  hr_free(values);
  return is;
}

/* The same program, compiled again, teaches nothing. */
static bool has_sample(const hr_general_structure *structure, const sample *s) {
  bool has = false;
  for (int i = 0; !has && i < structure->sample_count; ++i) {
    const sample *other = &structure->samples[i];
    has = is_comparable(other, s) && memcmp(other->words, s->words, s->word_count * sizeof *s->words) == 0;
  }
  return has;
}

static void add_sample(hr_general_structure *structure, sample *s) {
  if (structure->sample_count == SAMPLES_MAX) {
    sample_fini(&structure->samples[0]);
    memmove(structure->samples, structure->samples + 1, (SAMPLES_MAX - 1) * sizeof *s);
    --structure->sample_count;
  }
  structure->samples[structure->sample_count++] = *s;
}

static void add_general(hr_generals *generals, hr_general_structure *structure, general *g, const hr_key *key,
                        void *model) {
  keep_structure(g, key);
  if (structure->general_count == GENERALS_MAX) {
    general_fini(generals, &structure->generals[GENERALS_MAX - 1]);
    --structure->general_count;
  }
  memmove(structure->generals + 1, structure->generals, (size_t)structure->general_count * sizeof *g);
  structure->generals[0] = *g;
  structure->generals[0].model = model;
  structure->generals[0].serial = ++generals->serial;
  ++structure->general_count;
  generals->retain(model);
}

void hr__generals_learn(hr_generals *generals, hr_key *key, uint64_t kind, const hr_schedule *schedule,
                        const hr_general_extras *extras, void *model) {
  hr_general_structure *structure = structure_of(generals, hash_of(key, kind), kind);
  sample s;
  if (structure == NULL || !sample_of(key, schedule, extras, &s)) {
    return;
  }
  bool is_new = !has_sample(structure, &s);
  for (int i = 0; is_new && i < structure->general_count; ++i) {
    is_new = !is_known(&structure->generals[i], &s);
  }
  if (!is_new) {
    sample_fini(&s);
    return;
  }
  add_sample(structure, &s);
  for (int other = structure->sample_count - 2; other >= 0; --other) {
    fitting f = {0};
    general g = {0};
    find_family(structure, other, &f);
    bool is_found = make_general(&f, &g);
    hr_table_fini(&f.known);
    if (is_found) {
      add_general(generals, structure, &g, key, model);
      return;
    }
    general_fini(generals, &g);
  }
}
