/* attention.h: declarations shared by the files of the attention provider.
 *
 * Shapes: q [.., L, E], k [.., S, E], v [.., S, V], scores [.., L, S]; a *head* is one index of the leading dims,
 * counted row-major. Work is divided into blocks of at most QUERIES queries by KEYS keys. In a block queries are
 * columns: scores are [KEYS, QUERIES], q is transposed to [E, QUERIES]. So maxima and sums of a query run down a
 * column, and k and v are the left factors of products, which may have any layout.
 */
#ifndef HEADRACE_PROVIDERS_ATTENTION_ATTENTION_H_
#define HEADRACE_PROVIDERS_ATTENTION_ATTENTION_H_

#include "providers/attention/tiles.h"
#include "providers/provider.h"

enum {
  HR__QUERIES = 64,         /* of a block */
  HR__KEYS = 64,            /* of a block */
  HR__CHUNK = 512,          /* keys whose gradients fit a thread's cache */
  HR__STEP = HR__TILE_LANES /* queries and keys of the smallest tile that a causal mask may leave out */
};

/* An operand and the index of its address among the arguments of a run; x->kind NONE if absent. */
typedef struct hr__place {
  const hr_operand *x;
  int arg;
} hr__place;

struct hr_prepared {
  hr__place q, k, v, mask, y, lse, dy, dq, dk, dv;
  int scalar_arg; /* index of the first attribute scalar among the arguments */
  bool is_backward, is_causal, has_mask, has_dropout, has_hidden;
  bool packs_k, packs_v; /* k or v is first packed to dense rows of floats, once for each head */
  int64_t heads, queries, keys, width, v_width;
  int64_t blocks; /* of queries */
  int64_t parts;  /* backward: of the keys of a head, each a unit of work */
  int64_t units;
  int64_t slots;                       /* pieces of work, each with its own scratch and a contiguous range of units */
  int64_t slot_floats, partial_floats; /* of the workspace: one slot; gradients of q of all units, when parts > 1 */
};

/* One run. */
typedef struct hr__run {
  const hr_prepared *p;
  void *const *args;
  float *workspace;
  float scale, hidden, keep, keep_scale; /* hidden: the score where a mask of bools forbids; keep: the probability to
                                          * stay */
  uint64_t seed, offset;
} hr__run;

/* The scratch of a slot. Pointers that a direction doesn't need are NULL. */
typedef struct hr__slot {
  int64_t head;                  /* the head whose k and v are loaded; -1: none */
  const float *k, *v;            /* rows of floats */
  int64_t k_row, v_row;          /* their strides */
  float *k_dense, *v_dense;      /* room for them if they are packed */
  float *q_columns, *dy_columns; /* [E or V, QUERIES] */
  float *q_rows, *dy_rows;       /* [QUERIES, padded E or V] */
  float *score, *extra;          /* [KEYS, QUERIES]; extra: mask, then dropout */
  float *gradient, *dropped;     /* [KEYS, QUERIES] */
  float *stage;                  /* QUERIES rows of the longest kind */
  float *y;                      /* [V, QUERIES] */
  float *top, *total, *shrink;   /* of each query */
  float *lse, *delta;
  float *dk, *dv; /* [CHUNK, padded E or V] */
  float *dq;      /* [blocks, E, QUERIES] */
} hr__slot;

/* The current block of scores. In a diagonal one a causal mask hides key number i of the block from its queries before
 * number i; tiles of STEP keys by STEP queries that are hidden as a whole are not computed, and hold anything. */
typedef struct hr__block {
  int64_t head, query, queries, columns, key, keys; /* columns: queries, padded */
  bool is_diagonal;
} hr__block;

/* Sets the pointers into `base`, and returns the number of floats. */
int64_t hr__slot_init(const hr_prepared *p, float *base, hr__slot *out_slot);

/* One head of an operand as a matrix of its last two dims. */
hr__matrix hr__head_matrix(const hr__run *run, const hr__place *place, int64_t head);
/* The log-sum-exp of a head: one column. */
hr__matrix hr__head_lse(const hr__run *run, int64_t head);
/* Makes k and v of a head available as rows of floats. */
void hr__slot_use_head(const hr__run *run, hr__slot *slot, int64_t head);

/* out[columns, QUERIES] = the block's rows of a matrix, transposed; `out_rows` (or NULL) receives the rows themselves,
 * padded with 0. */
void hr__slot_load_columns(hr__slot *slot, const hr__matrix *x, const hr__block *block, int64_t columns, float *out,
                           float *out_rows);
/* The reverse: rows of the matrix = x[columns, QUERIES] transposed. */
void hr__slot_store_columns(hr__slot *slot, const hr__matrix *matrix, const hr__block *block, int64_t columns,
                            const float *x);

/* Makes the block one of the next keys: those from block->key on that are before number `end`. */
void hr__block_set_keys(const hr_prepared *p, hr__block *block, int64_t end);
/* The first query, as a column of the block, for which its key number `key` is computed. */
static inline int64_t hr__first_column(const hr__block *block, int64_t key) {
  return block->is_diagonal ? key / HR__STEP * HR__STEP : 0;
}

/* Products of the computed tiles. Scores: out[keys, QUERIES] = x columns, with x of the block's keys. */
void hr__block_scores(const hr__block *block, hr__factor x, int64_t width, const float *columns, float *out);
/* For each key the sum over queries: out[keys, padded width] += scores rows[queries, padded width]. */
void hr__block_add_queries(const hr__block *block, const float *scores, const float *rows, int64_t padded, float *out);
/* For each query the sum over keys: out[width, QUERIES] = x scores, added to what `out` holds with `adds`. */
void hr__block_sum_keys(const hr__block *block, hr__factor x, int64_t width, const float *scores, float *out,
                        bool adds);

/* slot->score = scaled and masked scores; slot->q_columns holds the block's queries. */
void hr__make_scores(const hr__run *run, hr__slot *slot, const hr__block *block);
/* slot->extra = 1 / (1 - p) if dropout keeps a probability, else 0. */
void hr__make_dropout(const hr__run *run, hr__slot *slot, const hr__block *block);
/* out = factor of slot->extra times x, or 0 if that is 0. */
void hr__apply_dropout(const hr__slot *slot, const hr__block *block, const float *x, float *out);

/* Keys that queries before number `end` may see. */
static inline int64_t hr__visible_keys(const hr_prepared *p, int64_t end) {
  return p->is_causal && end < p->keys ? end : p->keys;
}

/* Unit number i of n in an order whose contiguous ranges have equal cost if the work of a unit grows with its number.
 */
static inline int64_t hr__balanced(const hr_prepared *p, int64_t i, int64_t n) {
  return p->is_causal && i % 2 != 0 ? n - 1 - i / 2 : p->is_causal ? i / 2 : i;
}

void hr__attention_forward(const hr__run *run, hr__slot *slot, int64_t unit);
void hr__attention_backward(const hr__run *run, hr__slot *slot, int64_t unit);
/* Sums the parts' gradients of q of one block of a head: the last step if there are several parts. */
void hr__attention_backward_sum(const hr__run *run, hr__slot *slot, int64_t head, int64_t block);

#endif
