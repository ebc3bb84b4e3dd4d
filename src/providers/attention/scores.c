/* scores.c: one block of scores, [KEYS, QUERIES]: its products, scale and masks, and the mask of dropout.
 *
 * Every element is defined by lower_attention.c; this file follows its loops.
 */
#include <math.h>
#include <string.h>

#include "core/math/vmath.h"
#include "providers/attention/attention.h"

/* ---- products of the computed tiles ---- */

_Static_assert(HR__QUERIES == HR__KEYS && HR__CHUNK % HR__KEYS == 0, "a diagonal block begins at its first query");

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

void hr__block_set_keys(const hr_prepared *p, hr__block *block, int64_t end) {
  block->keys = least(end - block->key, HR__KEYS);
  block->is_diagonal = p->is_causal && block->key == block->query;
}

void hr__block_scores(const hr__block *block, hr__factor x, int64_t width, const float *columns, float *out) {
  int64_t step = block->is_diagonal ? HR__STEP : HR__KEYS;
  for (int64_t key = 0; key < block->keys; key += step) {
    int64_t first = hr__first_column(block, key);
    hr__factor rows = {x.data + key * x.row, x.row, x.inner};
    hr__tile_product(rows, width, columns + first, HR__QUERIES, out + key * HR__QUERIES + first, HR__QUERIES,
                     least(step, block->keys - key), block->columns - first, false);
  }
}

void hr__block_add_queries(const hr__block *block, const float *scores, const float *rows, int64_t padded, float *out) {
  int64_t step = block->is_diagonal ? HR__STEP : HR__KEYS;
  for (int64_t key = 0; key < block->keys; key += step) {
    int64_t first = hr__first_column(block, key);
    hr__factor left = {scores + key * HR__QUERIES + first, HR__QUERIES, 1};
    hr__tile_product(left, block->queries - first, rows + first * padded, padded, out + key * padded, padded,
                     least(step, block->keys - key), padded, true);
  }
}

void hr__block_sum_keys(const hr__block *block, hr__factor x, int64_t width, const float *scores, float *out,
                        bool adds) {
  int64_t step = block->is_diagonal ? HR__STEP : HR__QUERIES;
  for (int64_t q = 0; q < block->columns; q += step) {
    int64_t keys = block->is_diagonal ? least(block->keys, q + step) : block->keys;
    hr__tile_product(x, keys, scores + q, HR__QUERIES, out + q, HR__QUERIES, width, least(step, block->columns - q),
                     adds);
  }
}

/* ---- scale and masks ---- */

/* slot->extra = the mask of the block, transposed. */
static void load_mask(const hr__run *run, hr__slot *slot, const hr__block *block) {
  hr__matrix mask = hr__head_matrix(run, &run->p->mask, block->head);
  if (mask.row != 0) {
    hr__tile_load(&mask, block->query, block->queries, block->key, block->keys, slot->stage, HR__KEYS);
    hr__tile_transpose(slot->stage, HR__KEYS, block->queries, block->keys, slot->extra, HR__QUERIES);
    return;
  }
  hr__tile_load(&mask, 0, 1, block->key, block->keys, slot->stage, HR__KEYS);
  for (int64_t k = 0; k < block->keys; ++k) {
    for (int64_t q = 0; q < block->columns; ++q) {
      slot->extra[k * HR__QUERIES + q] = slot->stage[k];
    }
  }
}

static void scale_row(float *restrict score, float scale, int64_t columns) {
  for (int64_t q = 0; q < columns; ++q) {
    score[q] *= scale;
  }
}

static void scale_and_add_row(float *restrict score, const float *restrict mask, float scale, int64_t columns) {
  for (int64_t q = 0; q < columns; ++q) {
    score[q] = score[q] * scale + mask[q];
  }
}

static void scale_and_select_row(float *restrict score, const float *restrict mask, float scale, float hidden,
                                 int64_t columns) {
  for (int64_t q = 0; q < columns; ++q) {
    score[q] = mask[q] != 0 ? score[q] * scale : hidden;
  }
}

static void hide_row(float *score, int64_t columns) {
  for (int64_t q = 0; q < columns; ++q) {
    score[q] = -HR__F32_INFINITY;
  }
}

void hr__make_scores(const hr__run *run, hr__slot *slot, const hr__block *block) {
  const hr_prepared *p = run->p;
  hr__factor k = {slot->k + block->key * slot->k_row, slot->k_row, 1};
  hr__block_scores(block, k, p->width, slot->q_columns, slot->score);
  if (p->has_mask) {
    load_mask(run, slot, block);
  }
  for (int64_t i = 0; i < block->keys; ++i) {
    int64_t first = hr__first_column(block, i), columns = block->columns - first, at = i * HR__QUERIES + first;
    float *score = slot->score + at;
    if (!p->has_mask) {
      scale_row(score, run->scale, columns);
    } else if (p->mask.x->dtype == HR_DTYPE_BOOL) {
      scale_and_select_row(score, slot->extra + at, run->scale, run->hidden, columns);
    } else {
      scale_and_add_row(score, slot->extra + at, run->scale, columns);
    }
    if (block->is_diagonal) {
      hide_row(score, i - first);
    }
  }
}

/* ---- dropout ---- */

/* out[i] for random number first + i < keep. Makes whole Philox blocks of four, so room for six more numbers is needed;
 * returns the address of number `first`. */
static float *keep_row(const hr__run *run, uint64_t first, int64_t count, float *out) {
  int64_t lead = (int64_t)(first % 4), quads = (lead + count + 3) / 4;
  for (int64_t i = 0; i < quads; ++i) {
    hr_philox_block block = hr_philox(first / 4 + (uint64_t)i, run->offset, run->seed);
    for (int w = 0; w < 4; ++w) {
      float random = (float)(int32_t)(block.word[w] >> 8) * 0x1p-24f; /* as hr_f32_philox_uniform */
      out[4 * i + w] = random < run->keep ? run->keep_scale : 0;
    }
  }
  return out + lead;
}

void hr__make_dropout(const hr__run *run, hr__slot *slot, const hr__block *block) {
  const hr_prepared *p = run->p;
  float row[HR__KEYS + 8];
  for (int64_t q = 0; q < block->queries; ++q) {
    uint64_t first = ((uint64_t)block->head * (uint64_t)p->queries + (uint64_t)(block->query + q)) * (uint64_t)p->keys +
                     (uint64_t)block->key;
    int64_t keys = block->is_diagonal ? least(block->keys, hr_round_up(q + 1, HR__STEP)) : block->keys;
    memcpy(slot->stage + q * HR__KEYS, keep_row(run, first, keys, row), (size_t)keys * sizeof *row);
  }
  hr__tile_transpose(slot->stage, HR__KEYS, block->queries, block->keys, slot->extra, HR__QUERIES);
}

void hr__apply_dropout(const hr__slot *slot, const hr__block *block, const float *x, float *out) {
  for (int64_t k = 0; k < block->keys; ++k) {
    for (int64_t q = hr__first_column(block, k); q < block->columns; ++q) {
      float factor = slot->extra[k * HR__QUERIES + q];
      out[k * HR__QUERIES + q] = factor != 0 ? x[k * HR__QUERIES + q] * factor : 0;
    }
  }
}
