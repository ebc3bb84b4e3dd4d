/* recurrent.h: declarations shared by the files of the recurrent provider.
 *
 * A layer of T steps, N rows (the batch) and H hidden numbers has G gates: 4 of an LSTM, 3 of a GRU. A step is cut into
 * blocks: at most ROWS rows by the columns of one panel of the packed weights (product.c). The product of a block stays
 * in the first cache for its cells.
 */
#ifndef HEADRACE_PROVIDERS_RECURRENT_RECURRENT_H_
#define HEADRACE_PROVIDERS_RECURRENT_RECURRENT_H_

#include "providers/layer_places.h"
#include "providers/provider.h"

/* LANES: floats of a vector. ROWS x VECTORS vectors of sums, and the other factors, fit the registers. */
#if defined(__AVX512F__)
enum { HR__LANES = 16, HR__ROWS = 6 };
#elif defined(__AVX2__) && defined(__FMA__)
enum { HR__LANES = 8, HR__ROWS = 3 };
#elif defined(__aarch64__)
enum { HR__LANES = 4, HR__ROWS = 6 };
#else
enum { HR__LANES = 4, HR__ROWS = 3 };
#endif
enum { HR__VECTORS = 4, HR__PANEL = HR__VECTORS * HR__LANES };

struct hr_prepared {
  bool is_lstm, is_backward, is_reverse;
  bool is_kept;                  /* packed weights may be cached */
  int64_t steps, batch, hidden;  /* T, N, H */
  int gates;                     /* G */
  int64_t panels, packed_floats; /* of the packed weights */
  int shares;                    /* of the rows, each for all steps; 1: not divided */
  bool has_team;                 /* panels of a step are divided among the threads */
  uint64_t stamp;                /* of the weights */
  hr__place places[HR__ROLES];
};

/* One run. */
typedef struct hr__run {
  const hr_prepared *p;
  float *data[HR__ROLES]; /* NULL: absent */
  const float *packed;
  float *carried; /* [N, H]: the cell, its gradient, or a GRU's share of the gradient of the state before */
} hr__run;

/* A part of a step: rows [row, row + rows) and the columns of one panel. `step` counts the steps done before it. */
typedef struct hr__block {
  int64_t step, row, panel;
  int rows;
} hr__block;

/* The place of the step that runs after `step` others. */
static inline int64_t hr__time(const hr_prepared *p, int64_t step) {
  return p->is_reverse ? p->steps - 1 - step : step;
}
/* Element `column` of a row after `step` others; any step of an operand without steps. */
static inline float *hr__row(const hr__run *run, hr__role role, int64_t step, int64_t row, int64_t column) {
  const hr__place *at = &run->p->places[role];
  return run->data[role] + hr__time(run->p, step) * at->time + row * at->row + column * at->column;
}
static inline bool hr__has(const hr__run *run, hr__role role) {
  return run->data[role] != NULL;
}

/* ---- product.c ---- */

/* Packs panels [begin, end) of the weights. */
void hr__pack_panels(const hr__run *run, float *packed, int64_t begin, int64_t end);

/* out[r * out_row + v * out_vector ..] = rows of a times a panel of `vectors` vectors. A sum adds its terms in order,
 * so its bits don't depend on the block that it belongs to. */
void hr__multiply_panel(const float *a, int64_t a_row, int64_t inner, const float *panel, int rows, int vectors,
                        float *out, int64_t out_row, int64_t out_vector);

/* ---- cells.c: a block of a step, with the bits of lower_cell.c after the product ---- */

void hr__lstm_block(const hr__run *run, const hr__block *block);
void hr__gru_block(const hr__run *run, const hr__block *block);
/* Steps run from the last to the first; then step -1 gives the gradient of the first state. */
void hr__lstm_backward_block(const hr__run *run, const hr__block *block);
void hr__gru_backward_block(const hr__run *run, const hr__block *block);

#endif
