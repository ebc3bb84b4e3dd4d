/* descriptors.c: a table of the latest answers, in sets of four. See descriptors.h. */
#include "providers/onednn/descriptors.h"

#include <string.h>

#include "base/allocator.h"
#include "base/hash.h"
#include "providers/onednn/shared_primitives.h"

enum { SET = 4 };

typedef enum keeping { KEEPING_UNKNOWN, KEEPING_NO, KEEPING_YES } keeping;

typedef struct hr__dnnl_answer {
  uint64_t hash, used; /* the time of the latest use */
  keeping epilogues;
  hr__dnnl_primitive *primitives[HR__DNNL_WHICH_COUNT];
  int word_count;
  uint64_t words[];
} answer;

/* ---- keys ---- */

static void add_word(hr__dnnl_key *key, uint64_t word) {
  if (key->word_count < HR__DNNL_KEY_WORDS) {
    key->words[key->word_count] = word;
  }
  ++key->word_count;
}

/* Offsets and buffers don't matter, but for a sum onto the output's own memory. */
static void add_operand(hr__dnnl_key *key, const hr_operand *x, bool is_in_place) {
  add_word(key, (uint64_t)x->kind << 48 | (uint64_t)x->dtype << 32 | (uint64_t)is_in_place << 16 |
                    (uint64_t)(x->rank & 255));
  for (int d = 0; x->kind == HR_OPERAND_VALUE && d < x->rank; ++d) {
    add_word(key, (uint64_t)x->dims[d]);
    add_word(key, (uint64_t)x->strides[d]);
  }
}

static void add_epilogue(hr__dnnl_key *key, const hr_epilogue *epilogue) {
  uint64_t inputs = 0;
  for (int i = 0; i < HR_EPILOGUE_ARITY_MAX; ++i) {
    inputs = inputs << 8 | (uint8_t)epilogue->inputs[i];
  }
  add_word(key, (uint64_t)epilogue->op << 32 | inputs);
}

void hr__dnnl_key_make(const hr_node *node, int how_count, const int64_t *how, hr__dnnl_key *out_key) {
  out_key->word_count = 0;
  add_word(out_key, (uint64_t)node->op << 32 | (uint64_t)(node->int_count & 255) << 16 |
                        (uint64_t)(node->input_count & 255) << 8 | (uint64_t)(node->epilogue_count & 255));
  for (int i = 0; i < how_count; ++i) {
    add_word(out_key, (uint64_t)how[i]);
  }
  for (int i = 0; i < node->int_count; ++i) {
    add_word(out_key, (uint64_t)node->ints[i]);
  }
  for (int i = 0; i < node->epilogue_count; ++i) {
    add_epilogue(out_key, &node->epilogues[i]);
  }
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    bool may_sum = node->epilogue_count > 0 && i < node->input_count && x->kind == HR_OPERAND_VALUE;
    add_operand(out_key, x, may_sum && hr_operands_may_overlap(x, &node->outputs[0]));
  }
  out_key->word_count = out_key->word_count <= HR__DNNL_KEY_WORDS ? out_key->word_count : 0;
  out_key->hash = hr_hash_words(HR_HASH_SEED, out_key->words, (size_t)out_key->word_count);
}

/* ---- the table ---- */

static hr__dnnl_answers *answers(void) {
  return &hr__dnnl_opened()->answers;
}

static size_t set_of(const hr__dnnl_key *key) {
  return (size_t)(key->hash >> 32) % (HR__DNNL_ANSWERS / SET) * SET;
}

static bool is_answer_of(const answer *a, const hr__dnnl_key *key) {
  return a != NULL && a->hash == key->hash && a->word_count == key->word_count &&
         memcmp(a->words, key->words, (size_t)a->word_count * sizeof *a->words) == 0;
}

static answer *find(hr__dnnl_answers *table, const hr__dnnl_key *key) {
  for (size_t i = set_of(key); key->word_count > 0 && i < set_of(key) + SET; ++i) {
    if (is_answer_of(table->entries[i], key)) {
      table->entries[i]->used = ++table->clock;
      return table->entries[i];
    }
  }
  return NULL;
}

static void answer_free(answer *a) {
  for (int i = 0; a != NULL && i < HR__DNNL_WHICH_COUNT; ++i) {
    hr__dnnl_primitive_release(a->primitives[i]);
  }
  hr_free(a);
}

/* The answer of a key, a new one in the place of its set's oldest; NULL without memory. */
static answer *find_or_add(hr__dnnl_answers *table, const hr__dnnl_key *key) {
  answer *a = find(table, key);
  size_t bytes = (size_t)key->word_count * sizeof *key->words;
  if (a != NULL || key->word_count == 0 || (a = hr_calloc(1, sizeof *a + bytes)) == NULL) {
    return a;
  }
  a->hash = key->hash;
  a->used = ++table->clock;
  a->word_count = key->word_count;
  memcpy(a->words, key->words, bytes);
  answer **oldest = &table->entries[set_of(key)];
  for (size_t i = set_of(key); *oldest != NULL && i < set_of(key) + SET; ++i) {
    answer **other = &table->entries[i];
    oldest = *other == NULL || (*other)->used < (*oldest)->used ? other : oldest;
  }
  answer_free(*oldest);
  *oldest = a;
  return a;
}

hr__dnnl_primitive *hr__dnnl_known_primitive(const hr__dnnl_key *key, hr__dnnl_which which) {
  hr_mutex_lock(&answers()->mutex);
  const answer *a = find(answers(), key);
  hr__dnnl_primitive *known =
      a != NULL && a->primitives[which] != NULL ? hr__dnnl_primitive_retain(a->primitives[which]) : NULL;
  hr_mutex_unlock(&answers()->mutex);
  return known;
}

void hr__dnnl_note_primitive(const hr__dnnl_key *key, hr__dnnl_which which, hr__dnnl_primitive *primitive) {
  hr_mutex_lock(&answers()->mutex);
  answer *a = primitive != NULL ? find_or_add(answers(), key) : NULL;
  if (a != NULL && a->primitives[which] == NULL) {
    a->primitives[which] = hr__dnnl_primitive_retain(primitive);
  }
  hr_mutex_unlock(&answers()->mutex);
}

bool hr__dnnl_known_epilogues(const hr__dnnl_key *key, bool *out_keep) {
  hr_mutex_lock(&answers()->mutex);
  const answer *a = find(answers(), key);
  keeping known = a != NULL ? a->epilogues : KEEPING_UNKNOWN;
  hr_mutex_unlock(&answers()->mutex);
  *out_keep = known == KEEPING_YES;
  return known != KEEPING_UNKNOWN;
}

void hr__dnnl_note_epilogues(const hr__dnnl_key *key, bool keep) {
  hr_mutex_lock(&answers()->mutex);
  answer *a = find_or_add(answers(), key);
  if (a != NULL) {
    a->epilogues = keep ? KEEPING_YES : KEEPING_NO;
  }
  hr_mutex_unlock(&answers()->mutex);
}

void hr__dnnl_forget(void) {
  hr_mutex_lock(&answers()->mutex);
  for (size_t i = 0; i < HR__DNNL_ANSWERS; ++i) {
    answer_free(answers()->entries[i]);
    answers()->entries[i] = NULL;
  }
  hr_mutex_unlock(&answers()->mutex);
  hr__dnnl_forget_reorders();
}
