/* heads.c: scratch of a slot, and the operands of one head. */
#include <string.h>

#include "core/ir/dtype.h"
#include "providers/attention/attention.h"

/* ---- scratch ---- */

/* The next `count` floats at a multiple of 64 bytes. */
static float *take(float *base, int64_t *at, int64_t count) {
  int64_t first = *at;
  *at += hr__tile_padded(count);
  return base != NULL ? base + first : NULL;
}

int64_t hr__slot_init(const hr_prepared *p, float *base, hr__slot *out_slot) {
  int64_t at = 0, width = hr__tile_padded(p->width), v_width = hr__tile_padded(p->v_width),
          tile = HR__KEYS * HR__QUERIES;
  int64_t widest = width > v_width ? width : v_width;
  hr__slot slot = {.head = -1};
  slot.q_columns = take(base, &at, width * HR__QUERIES);
  slot.score = take(base, &at, tile);
  slot.extra = p->has_mask || p->has_dropout ? take(base, &at, tile) : NULL;
  slot.stage = take(base, &at, HR__QUERIES * (widest > HR__KEYS ? widest : HR__KEYS));
  slot.y = take(base, &at, v_width * HR__QUERIES);
  slot.top = take(base, &at, HR__QUERIES), slot.total = take(base, &at, HR__QUERIES);
  slot.shrink = take(base, &at, HR__QUERIES);
  if (p->packs_k) {
    slot.k_dense = take(base, &at, p->keys * p->width);
  }
  if (p->packs_v) {
    slot.v_dense = take(base, &at, p->keys * p->v_width);
  }
  if (p->is_backward) {
    slot.q_rows = take(base, &at, HR__QUERIES * width), slot.dy_rows = take(base, &at, HR__QUERIES * v_width);
    slot.dy_columns = take(base, &at, v_width * HR__QUERIES);
    slot.gradient = take(base, &at, tile);
    slot.dropped = p->has_dropout ? take(base, &at, tile) : NULL;
    slot.lse = take(base, &at, HR__QUERIES), slot.delta = take(base, &at, HR__QUERIES);
    slot.dk = take(base, &at, HR__CHUNK * width), slot.dv = take(base, &at, HR__CHUNK * v_width);
    slot.dq = p->parts == 1 ? take(base, &at, p->blocks * p->width * HR__QUERIES) : NULL;
  }
  *out_slot = slot;
  return at;
}

/* ---- operands ---- */

/* The offset of head number `head` in an operand whose last `inner` dims are a head's. Missing dims, and dims of 1, are
 * broadcast. */
static int64_t head_offset(const hr_prepared *p, const hr_operand *x, int inner, int64_t head) {
  const hr_operand *q = p->q.x;
  int64_t at = x->offset;
  for (int d = q->rank - 3, k = x->rank - 1 - inner; d >= 0 && k >= 0; --d, --k) {
    at += x->dims[k] != 1 ? head % q->dims[d] * x->strides[k] : 0;
    head /= q->dims[d];
  }
  return at;
}

static void *address_at(const hr__run *run, const hr__place *place, int64_t element) {
  return (char *)run->args[place->arg] + element * (int64_t)hr_dtype_size(place->x->dtype);
}

hr__matrix hr__head_matrix(const hr__run *run, const hr__place *place, int64_t head) {
  const hr_operand *x = place->x;
  hr__matrix matrix = {.dtype = x->dtype};
  if (x->kind != HR_OPERAND_NONE) {
    int rank = x->rank;
    matrix.data = address_at(run, place, head_offset(run->p, x, 2, head));
    matrix.row = rank > 1 && x->dims[rank - 2] != 1 ? x->strides[rank - 2] : 0;
    matrix.column = rank > 0 && x->dims[rank - 1] != 1 ? x->strides[rank - 1] : 0;
  }
  return matrix;
}

hr__matrix hr__head_lse(const hr__run *run, int64_t head) {
  const hr_operand *x = run->p->lse.x;
  return (hr__matrix){.data = address_at(run, &run->p->lse, head_offset(run->p, x, 1, head)),
                      .dtype = x->dtype,
                      .row = x->strides[x->rank - 1],
                      .column = 1};
}

static const float *rows_of(const hr__matrix *x, int64_t rows, int64_t columns, float *dense) {
  if (dense == NULL) {
    return x->data;
  }
  hr__tile_load(x, 0, rows, 0, columns, dense, columns);
  return dense;
}

void hr__slot_use_head(const hr__run *run, hr__slot *slot, int64_t head) {
  const hr_prepared *p = run->p;
  if (slot->head == head) {
    return;
  }
  hr__matrix k = hr__head_matrix(run, &p->k, head), v = hr__head_matrix(run, &p->v, head);
  slot->head = head;
  slot->k = rows_of(&k, p->keys, p->width, slot->k_dense), slot->k_row = p->width;
  slot->v = rows_of(&v, p->keys, p->v_width, slot->v_dense), slot->v_row = p->v_width;
}

/* ---- blocks of queries ---- */

void hr__slot_load_columns(hr__slot *slot, const hr__matrix *x, const hr__block *block, int64_t columns, float *out,
                           float *out_rows) {
  int64_t stride = out_rows != NULL ? hr__tile_padded(columns) : columns;
  float *rows = out_rows != NULL ? out_rows : slot->stage;
  if (out_rows != NULL && stride != columns) {
    memset(out_rows, 0, (size_t)(block->queries * stride) * sizeof *out_rows);
  }
  if (block->queries < block->columns) {
    memset(out, 0, (size_t)(columns * HR__QUERIES) * sizeof *out);
  }
  hr__tile_load(x, block->query, block->queries, 0, columns, rows, stride);
  hr__tile_transpose(rows, stride, block->queries, columns, out, HR__QUERIES);
}

void hr__slot_store_columns(hr__slot *slot, const hr__matrix *matrix, const hr__block *block, int64_t columns,
                            const float *x) {
  hr__tile_transpose(x, HR__QUERIES, columns, block->queries, slot->stage, columns);
  hr__tile_store(matrix, block->query, block->queries, columns, slot->stage, columns);
}
