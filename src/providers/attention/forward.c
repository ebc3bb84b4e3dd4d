/* forward.c: attention of one block of queries, in one pass over the keys (Dao et al., "FlashAttention", 2022; Milakov
 * and Gimelshein, "Online normalizer calculation for softmax", 2018).
 *
 *   for each block of keys   t = scores;  m' = max(m, max t);  p = exp(t - m')
 *                            total = total * exp(m - m') + sum p;  y = y * exp(m - m') + v^T p
 *   at the end               y = y / total,  log-sum-exp = m + log(total)
 *
 * A query with no visible key so far (m = -infinity) uses base 0, so that a mask may hide whole blocks from it. NaN in
 * a score propagates into `total` and from there into all of y, as in a softmax of the whole row.
 */
#include <math.h>

#include "core/math/vmath.h"
#include "providers/attention/attention.h"

/* top = max(top, scores); shrink = the factor for all sums so far. Stores the base of the powers in `base`. */
static void raise_tops(hr__slot *slot, const hr__block *block, float *base) {
  float raised[HR__QUERIES];
  int64_t columns = block->columns;
  for (int64_t q = 0; q < columns; ++q) {
    raised[q] = slot->top[q];
  }
  for (int64_t k = 0; k < block->keys; ++k) {
    const float *score = slot->score + k * HR__QUERIES;
    for (int64_t q = hr__first_column(block, k); q < columns; ++q) {
      raised[q] = score[q] > raised[q] ? score[q] : raised[q];
    }
  }
  for (int64_t q = 0; q < columns; ++q) {
    base[q] = raised[q] == -HR__F32_INFINITY ? 0 : raised[q];
    slot->shrink[q] = hr_f32_exp(slot->top[q] - base[q]);
    slot->top[q] = raised[q];
  }
}

/* exp(x) for x up to 0; 0 in place of numbers below the normal ones, which are slow to multiply and change no sum. */
static float power_of(float x) {
  float power = hr__f32_exp_small(x);
  return x < -87.0f ? 0.0f : power;
}

/* score = exp(score - base), and its sums. */
static void take_powers(hr__slot *slot, const hr__block *block, const float *restrict base) {
  float sum[HR__QUERIES] = {0};
  int64_t columns = block->columns;
  for (int64_t k = 0; k < block->keys; ++k) {
    float *restrict score = slot->score + k * HR__QUERIES;
    for (int64_t q = hr__first_column(block, k); q < columns; ++q) {
      float power = power_of(score[q] - base[q]);
      score[q] = power;
      sum[q] += power;
    }
  }
  for (int64_t q = 0; q < columns; ++q) {
    slot->total[q] = slot->total[q] * slot->shrink[q] + sum[q];
  }
}

static void scale_columns(float *restrict x, const float *restrict factor, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t q = 0; q < columns; ++q) {
      x[r * HR__QUERIES + q] *= factor[q];
    }
  }
}

static void take_keys(const hr__run *run, hr__slot *slot, const hr__block *block) {
  const hr_prepared *p = run->p;
  float base[HR__QUERIES];
  bool is_first = block->key == 0;
  hr__make_scores(run, slot, block);
  raise_tops(slot, block, base);
  take_powers(slot, block, base);
  if (p->has_dropout) {
    hr__make_dropout(run, slot, block);
    hr__apply_dropout(slot, block, slot->score, slot->score);
  }
  if (!is_first) {
    scale_columns(slot->y, slot->shrink, p->v_width, block->columns);
  }
  hr__factor v = {slot->v + block->key * slot->v_row, 1, slot->v_row};
  hr__block_sum_keys(block, v, p->v_width, slot->score, slot->y, !is_first);
}

static void store_queries(const hr__run *run, hr__slot *slot, const hr__block *block) {
  const hr_prepared *p = run->p;
  float lse[HR__QUERIES];
  for (int64_t q = 0; q < block->columns; ++q) {
    bool is_blind = slot->top[q] == -HR__F32_INFINITY; /* no visible key: valid only if a mask hides them all */
    float total = is_blind && (!p->has_mask || p->has_hidden) ? HR__F32_NAN : slot->total[q];
    lse[q] = hr_f32_log(total) + (is_blind ? 0 : slot->top[q]);
    slot->shrink[q] = total == 0 ? 1 : 1 / total;
  }
  scale_columns(slot->y, slot->shrink, p->v_width, block->columns);
  hr__matrix y = hr__head_matrix(run, &p->y, block->head);
  hr__slot_store_columns(slot, &y, block, p->v_width, slot->y);
  if (p->lse.x->kind != HR_OPERAND_NONE) {
    hr__matrix out = hr__head_lse(run, block->head);
    hr__tile_store(&out, block->query, block->queries, 1, lse, 1);
  }
}

void hr__attention_forward(const hr__run *run, hr__slot *slot, int64_t unit) {
  const hr_prepared *p = run->p;
  hr__block block = {.head = unit / p->blocks, .query = hr__balanced(p, unit % p->blocks, p->blocks) * HR__QUERIES};
  block.queries = p->queries - block.query < HR__QUERIES ? p->queries - block.query : HR__QUERIES;
  block.columns = hr__tile_padded(block.queries);
  hr__slot_use_head(run, slot, block.head);
  hr__matrix q = hr__head_matrix(run, &p->q, block.head);
  hr__slot_load_columns(slot, &q, &block, p->width, slot->q_columns, NULL);
  for (int64_t i = 0; i < HR__QUERIES; ++i) {
    slot->top[i] = -HR__F32_INFINITY;
    slot->total[i] = 0;
  }
  int64_t visible = hr__visible_keys(p, block.query + block.queries);
  for (block.key = 0; block.key < visible; block.key += HR__KEYS) {
    hr__block_set_keys(p, &block, visible);
    take_keys(run, slot, &block);
  }
  store_queries(run, slot, &block);
}
