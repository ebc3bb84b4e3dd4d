/* backward.c: the gradient, with the probabilities computed again from the log-sum-exp (Dao, "FlashAttention-2", 2023).
 *
 *   for each chunk of keys, for each block of queries, for each block of the chunk's keys
 *     p = exp(scores - lse);  g = D(v dy^T);  s = p * (g - sum(dy * y)) * scale       (D: dropout's gradient)
 *     dv += D(p) dy;  dk += s q;  dq += s^T k
 *
 * A unit of work is a head, or, if heads are few, one of several parts of a head's chunks. dk and dv of a chunk stay in
 * the thread's cache. dq is summed over the chunks of a unit in its scratch, then over the parts of a head, in order.
 * Parts depend on the shape alone, so bits don't depend on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "core/math/vmath.h"
#include "providers/attention/attention.h"

/* slot->delta = sum(dy * y) of each query; slot->lse. */
static void load_statistics(const hr__run *run, hr__slot *slot, const hr__block *block) {
  const hr_prepared *p = run->p;
  hr__matrix y = hr__head_matrix(run, &p->y, block->head), lse = hr__head_lse(run, block->head);
  memset(slot->lse, 0, HR__QUERIES * sizeof *slot->lse);
  memset(slot->delta, 0, HR__QUERIES * sizeof *slot->delta);
  hr__tile_load(&lse, block->query, block->queries, 0, 1, slot->lse, 1);
  for (int64_t q = 0; q < block->queries; ++q) {
    bool is_blind = p->has_mask && slot->lse[q] == -HR__F32_INFINITY;
    slot->lse[q] = is_blind ? 0 : slot->lse[q];
  }
  hr__tile_load(&y, block->query, block->queries, 0, p->v_width, slot->stage, p->v_width);
  hr__tile_transpose(slot->stage, p->v_width, block->queries, p->v_width, slot->y, HR__QUERIES);
  for (int64_t v = 0; v < p->v_width; ++v) {
    for (int64_t q = 0; q < block->queries; ++q) {
      slot->delta[q] += slot->dy_columns[v * HR__QUERIES + q] * slot->y[v * HR__QUERIES + q];
    }
  }
}

static void load_queries(const hr__run *run, hr__slot *slot, const hr__block *block) {
  const hr_prepared *p = run->p;
  hr__matrix q = hr__head_matrix(run, &p->q, block->head), dy = hr__head_matrix(run, &p->dy, block->head);
  hr__slot_load_columns(slot, &q, block, p->width, slot->q_columns, slot->q_rows);
  hr__slot_load_columns(slot, &dy, block, p->v_width, slot->dy_columns, slot->dy_rows);
  load_statistics(run, slot, block);
}

/* score = exp(score - lse). */
static void take_probabilities(hr__slot *slot, const hr__block *block) {
  const float *restrict lse = slot->lse;
  for (int64_t k = 0; k < block->keys; ++k) {
    float *restrict score = slot->score + k * HR__QUERIES;
    for (int64_t q = hr__first_column(block, k); q < block->columns; ++q) {
      score[q] = hr_f32_exp(score[q] - lse[q]);
    }
  }
}

/* gradient = score * (gradient - delta) * scale: the gradient of the products of q and k. */
static void take_score_gradient(hr__slot *slot, const hr__block *block, float scale) {
  const float *restrict delta = slot->delta;
  for (int64_t k = 0; k < block->keys; ++k) {
    float *restrict gradient = slot->gradient + k * HR__QUERIES;
    const float *restrict score = slot->score + k * HR__QUERIES;
    for (int64_t q = hr__first_column(block, k); q < block->columns; ++q) {
      gradient[q] = score[q] * (gradient[q] - delta[q]) * scale;
    }
  }
}

static bool is_wanted(const hr__place *place) {
  return place->x->kind != HR_OPERAND_NONE;
}

/* One block of queries by one of keys; `first_key` is that of the chunk. */
static void take_keys(const hr__run *run, hr__slot *slot, const hr__block *block, int64_t first_key) {
  const hr_prepared *p = run->p;
  const float *probability = slot->score;
  int64_t row = block->key - first_key, padded = hr__tile_padded(p->width), v_padded = hr__tile_padded(p->v_width);
  hr__make_scores(run, slot, block);
  take_probabilities(slot, block);
  if (p->has_dropout) {
    hr__make_dropout(run, slot, block);
    hr__apply_dropout(slot, block, slot->score, slot->dropped);
    probability = slot->dropped;
  }
  if (is_wanted(&p->dv)) {
    hr__block_add_queries(block, probability, slot->dy_rows, v_padded, slot->dv + row * v_padded);
  }
  if (!is_wanted(&p->dq) && !is_wanted(&p->dk)) {
    return;
  }
  hr__block_scores(block, (hr__factor){slot->v + block->key * slot->v_row, slot->v_row, 1}, p->v_width,
                   slot->dy_columns, slot->gradient);
  if (p->has_dropout) {
    hr__apply_dropout(slot, block, slot->gradient, slot->gradient);
  }
  take_score_gradient(slot, block, run->scale);
  if (is_wanted(&p->dk)) {
    hr__block_add_queries(block, slot->gradient, slot->q_rows, padded, slot->dk + row * padded);
  }
  if (is_wanted(&p->dq)) {
    float *dq = slot->dq + block->query / HR__QUERIES * p->width * HR__QUERIES;
    hr__block_sum_keys(block, (hr__factor){slot->k + block->key * slot->k_row, 1, slot->k_row}, p->width,
                       slot->gradient, dq, true);
  }
}

static hr__block query_block(const hr_prepared *p, int64_t head, int64_t number) {
  hr__block block = {.head = head, .query = number * HR__QUERIES};
  block.queries = p->queries - block.query < HR__QUERIES ? p->queries - block.query : HR__QUERIES;
  block.columns = hr__tile_padded(block.queries);
  return block;
}

static void take_chunk(const hr__run *run, hr__slot *slot, int64_t head, int64_t first) {
  const hr_prepared *p = run->p;
  int64_t end = first + HR__CHUNK < p->keys ? first + HR__CHUNK : p->keys;
  int64_t padded = hr__tile_padded(p->width), v_padded = hr__tile_padded(p->v_width);
  memset(slot->dk, 0, (size_t)((end - first) * padded) * sizeof *slot->dk);
  memset(slot->dv, 0, (size_t)((end - first) * v_padded) * sizeof *slot->dv);
  for (int64_t number = p->is_causal ? first / HR__QUERIES : 0; number < p->blocks; ++number) {
    hr__block block = query_block(p, head, number);
    int64_t visible = hr__visible_keys(p, block.query + block.queries);
    visible = visible < end ? visible : end;
    load_queries(run, slot, &block);
    for (block.key = first; block.key < visible; block.key += HR__KEYS) {
      hr__block_set_keys(p, &block, visible);
      take_keys(run, slot, &block, first);
    }
  }
  if (is_wanted(&p->dk)) {
    hr__matrix dk = hr__head_matrix(run, &p->dk, head);
    hr__tile_store(&dk, first, end - first, p->width, slot->dk, padded);
  }
  if (is_wanted(&p->dv)) {
    hr__matrix dv = hr__head_matrix(run, &p->dv, head);
    hr__tile_store(&dv, first, end - first, p->v_width, slot->dv, v_padded);
  }
}

/* Gradients of q of one unit: [blocks, E, QUERIES]. */
static int64_t partial_size(const hr_prepared *p) {
  return p->blocks * p->width * HR__QUERIES;
}

static float *partial_of(const hr__run *run, int64_t unit) {
  return run->workspace + run->p->slots * run->p->slot_floats + unit * partial_size(run->p);
}

void hr__attention_backward(const hr__run *run, hr__slot *slot, int64_t unit) {
  const hr_prepared *p = run->p;
  int64_t head = unit / p->parts;
  slot->dq = p->parts > 1 ? partial_of(run, unit) : slot->dq;
  memset(slot->dq, 0, (size_t)partial_size(p) * sizeof *slot->dq);
  hr__slot_use_head(run, slot, head);
  for (int64_t first = unit % p->parts * HR__CHUNK; first < p->keys; first += p->parts * HR__CHUNK) {
    take_chunk(run, slot, head, first);
  }
  hr__matrix dq = hr__head_matrix(run, &p->dq, head);
  for (int64_t number = 0; p->parts == 1 && is_wanted(&p->dq) && number < p->blocks; ++number) {
    hr__block block = query_block(p, head, number);
    hr__slot_store_columns(slot, &dq, &block, p->width, slot->dq + number * p->width * HR__QUERIES);
  }
}

void hr__attention_backward_sum(const hr__run *run, hr__slot *slot, int64_t head, int64_t number) {
  const hr_prepared *p = run->p;
  int64_t size = p->width * HR__QUERIES;
  float *sum = partial_of(run, head * p->parts) + number * size;
  for (int64_t part = 1; part < p->parts; ++part) {
    const float *more = partial_of(run, head * p->parts + part) + number * size;
    for (int64_t i = 0; i < size; ++i) {
      sum[i] += more[i];
    }
  }
  hr__block block = query_block(p, head, number);
  hr__matrix dq = hr__head_matrix(run, &p->dq, head);
  hr__slot_store_columns(slot, &dq, &block, p->width, sum);
}
