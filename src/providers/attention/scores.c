/* scores.c: one block of scores, [KEYS, QUERIES]: scaled and masked, and the mask of dropout.
 *
 * Every element is defined by lower_attention.c; this file follows its loops.
 */
#include <math.h>
#include <string.h>

#include "core/math/vmath.h"
#include "providers/attention/attention.h"

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

static void scale_and_select_row(float *restrict score, const float *restrict mask, float scale, int64_t columns) {
  for (int64_t q = 0; q < columns; ++q) {
    score[q] = mask[q] != 0 ? score[q] * scale : -HR__F32_INFINITY;
  }
}

/* Hides the key from queries before number key - block->query. */
static void hide_future(float *score, const hr__block *block, int64_t key) {
  int64_t hidden = key - block->query < block->columns ? key - block->query : block->columns;
  for (int64_t q = 0; q < hidden; ++q) {
    score[q] = -HR__F32_INFINITY;
  }
}

void hr__make_scores(const hr__run *run, hr__slot *slot, const hr__block *block) {
  const hr_prepared *p = run->p;
  hr__factor k = {slot->k + block->key * slot->k_row, slot->k_row, 1};
  hr__tile_product(k, p->width, slot->q_columns, HR__QUERIES, slot->score, HR__QUERIES, block->keys, block->columns,
                   false);
  if (p->has_mask) {
    load_mask(run, slot, block);
  }
  for (int64_t i = 0; i < block->keys; ++i) {
    float *score = slot->score + i * HR__QUERIES, *mask = slot->extra + i * HR__QUERIES;
    if (!p->has_mask) {
      scale_row(score, run->scale, block->columns);
    } else if (p->mask.x->dtype == HR_DTYPE_BOOL) {
      scale_and_select_row(score, mask, run->scale, block->columns);
    } else {
      scale_and_add_row(score, mask, run->scale, block->columns);
    }
    if (p->is_causal) {
      hide_future(score, block, block->key + i);
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
    memcpy(slot->stage + q * HR__KEYS, keep_row(run, first, block->keys, row), (size_t)block->keys * sizeof *row);
  }
  hr__tile_transpose(slot->stage, HR__KEYS, block->queries, block->keys, slot->extra, HR__QUERIES);
}

void hr__apply_dropout(const hr__slot *slot, const hr__block *block, const float *x, float *out) {
  for (int64_t k = 0; k < block->keys; ++k) {
    for (int64_t q = 0; q < block->columns; ++q) {
      float factor = slot->extra[k * HR__QUERIES + q];
      out[k * HR__QUERIES + q] = factor != 0 ? x[k * HR__QUERIES + q] * factor : 0;
    }
  }
}
