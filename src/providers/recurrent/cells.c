/* cells.c: blocks of recurrent layers: the product of the state before (or of the gates' gradients) with a panel, then
 * the cell's arithmetic, in the order of lower_cell.c.
 *
 * Forward, a block's values are [rows][LANES], one array for each gate; lanes past the last column hold numbers that
 * nothing reads.
 */
#include <string.h>

#include "base/integer.h"
#include "core/math/vmath.h"
#include "providers/recurrent/recurrent.h"

enum { BLOCK = HR__ROWS * HR__LANES };

#define INLINE static inline __attribute__((always_inline))

/* ---- rows ---- */

/* Rows of at most LANES columns; most have LANES, for which the loop is one vector. */
INLINE void copy(float *restrict to, const float *restrict from, int64_t width) {
  if (width == HR__LANES) {
    memcpy(to, from, HR__LANES * sizeof *to);
    return;
  }
  for (int64_t l = 0; l < width; ++l) {
    to[l] = from[l];
  }
}

INLINE void add(float *restrict sum, const float *restrict x, int64_t width) {
  if (width == HR__LANES) {
    for (int l = 0; l < HR__LANES; ++l) {
      sum[l] += x[l];
    }
    return;
  }
  for (int64_t l = 0; l < width; ++l) {
    sum[l] += x[l];
  }
}

/* The columns of a block in one role, from rows or to rows. */
typedef struct columns {
  const hr__run *run;
  const hr__block *block;
  int64_t first, width;
} columns;

static columns columns_of(const hr__run *run, const hr__block *block) {
  int64_t first = block->panel * HR__LANES;
  return (columns){run, block, first, hr_min(HR__LANES, run->p->hidden - first)};
}

/* The part `gate` of a role's rows, after `step` others. */
INLINE void read_rows(const columns *c, hr__role role, int64_t step, int gate, float *out) {
  for (int r = 0; r < c->block->rows; ++r) {
    copy(out + r * HR__LANES, hr__row(c->run, role, step, c->block->row + r, gate * c->run->p->hidden + c->first),
         c->width);
  }
}
INLINE void write_rows(const columns *c, hr__role role, int gate, const float *x) {
  for (int r = 0; hr__has(c->run, role) && r < c->block->rows; ++r) {
    copy(hr__row(c->run, role, c->block->step, c->block->row + r, gate * c->run->p->hidden + c->first),
         x + r * HR__LANES, c->width);
  }
}
INLINE void add_rows(const columns *c, hr__role role, int gate, float *sums) {
  for (int r = 0; hr__has(c->run, role) && r < c->block->rows; ++r) {
    add(sums + r * HR__LANES,
        hr__row(c->run, role, c->block->step, c->block->row + r, gate * c->run->p->hidden + c->first), c->width);
  }
}

/* The carried numbers of the block's rows. */
INLINE float *carried(const columns *c, int r) {
  return c->run->carried + (c->block->row + r) * c->run->p->hidden + c->first;
}

/* ---- activations, in place ---- */

static inline void apply_sigmoid(float *restrict x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    x[i] = hr_f32_sigmoid(x[i]);
  }
}
static inline void apply_tanh(float *restrict x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    x[i] = hr_f32_tanh(x[i]);
  }
}

/* ---- forward ---- */

/* sums[g][rows][LANES] = the states before times a panel. */
static void multiply_states(const hr__run *run, const hr__block *block, float *sums) {
  const hr_prepared *p = run->p;
  hr__role role = block->step == 0 ? H0 : STATES;
  const float *h = hr__row(run, role, block->step - 1, block->row, 0);
  const float *panel = run->packed + block->panel * p->hidden * p->gates * HR__LANES;
  hr__multiply_panel(h, p->places[role].row, p->hidden, panel, block->rows, p->gates, sums, HR__LANES,
                     block->rows * HR__LANES);
}

static bool is_last(const hr__run *run, const hr__block *block) {
  return block->step == run->p->steps - 1;
}

static void read_cells(const columns *c, float *out) {
  const hr__block *block = c->block;
  if (block->step == 0) {
    read_rows(c, C0, 0, 0, out);
  } else if (hr__has(c->run, CELLS)) {
    read_rows(c, CELLS, block->step - 1, 0, out);
  } else {
    for (int r = 0; r < block->rows; ++r) {
      copy(out + r * HR__LANES, carried(c, r), c->width);
    }
  }
}

static void write_cells(const columns *c, const float *x) {
  write_rows(c, CELLS, 0, x);
  for (int r = 0; !hr__has(c->run, CELLS) && r < c->block->rows; ++r) {
    copy(carried(c, r), x + r * HR__LANES, c->width);
  }
  if (is_last(c->run, c->block)) {
    write_rows(c, LAST_C, 0, x);
  }
}

static void write_states(const columns *c, const float *x) {
  write_rows(c, STATES, 0, x);
  if (is_last(c->run, c->block)) {
    write_rows(c, LAST_H, 0, x);
  }
}

/* c = f * c + i * g, h = o * tanh(c) */
static void make_cells(const float *restrict gates, int64_t count, float *restrict c, float *restrict h) {
  const float *in = gates, *forget = gates + count, *g = gates + 2 * count, *out = gates + 3 * count;
  for (int64_t i = 0; i < count; ++i) {
    c[i] = forget[i] * c[i] + in[i] * g[i];
    h[i] = out[i] * hr_f32_tanh(c[i]);
  }
}

void hr__lstm_block(const hr__run *run, const hr__block *block) {
  columns c = columns_of(run, block);
  int64_t count = block->rows * HR__LANES;
  float gates[4 * BLOCK], cells[BLOCK] = {0}, states[BLOCK];
  multiply_states(run, block, gates);
  for (int g = 0; g < 4; ++g) {
    add_rows(&c, GATES, g, gates + g * count);
  }
  apply_sigmoid(gates, 2 * count);
  apply_tanh(gates + 2 * count, count);
  apply_sigmoid(gates + 3 * count, count);
  for (int g = 0; g < 4; ++g) {
    write_rows(&c, WORKSPACE, g, gates + g * count);
  }
  read_cells(&c, cells);
  make_cells(gates, count, cells, states);
  write_cells(&c, cells);
  write_states(&c, states);
}

static void add_bias(const columns *c, int gate, float *sums) {
  for (int r = 0; hr__has(c->run, BIAS) && r < c->block->rows; ++r) {
    add(sums + r * HR__LANES, hr__row(c->run, BIAS, 0, 0, gate * c->run->p->hidden + c->first), c->width);
  }
}

/* n = tanh(x + r * hidden), h = n + z * (h - n); x becomes n. */
static void make_states(const float *restrict gates, int64_t count, const float *restrict hidden, float *restrict x,
                        float *restrict h) {
  const float *reset = gates, *update = gates + count;
  for (int64_t i = 0; i < count; ++i) {
    float n = hr_f32_tanh(x[i] + reset[i] * hidden[i]);
    x[i] = n;
    h[i] = n + update[i] * (h[i] - n);
  }
}

void hr__gru_block(const hr__run *run, const hr__block *block) {
  columns c = columns_of(run, block);
  int64_t count = block->rows * HR__LANES;
  float gates[3 * BLOCK], x[BLOCK] = {0}, states[BLOCK] = {0}, *hidden = gates + 2 * count;
  multiply_states(run, block, gates);
  for (int g = 0; g < 2; ++g) {
    add_rows(&c, GATES, g, gates + g * count);
    add_bias(&c, g, gates + g * count);
  }
  add_bias(&c, 2, hidden);
  apply_sigmoid(gates, 2 * count);
  read_rows(&c, GATES, block->step, 2, x);
  read_rows(&c, block->step == 0 ? H0 : STATES, block->step - 1, 0, states);
  write_rows(&c, WORKSPACE, 3, states);
  make_states(gates, count, hidden, x, states);
  write_rows(&c, WORKSPACE, 0, gates);
  write_rows(&c, WORKSPACE, 1, gates + count);
  write_rows(&c, WORKSPACE, 2, x);
  write_rows(&c, WORKSPACE, 4, hidden);
  write_states(&c, states);
}

/* ---- backward ---- */

/* Rows of gradients, PANEL apart, for the columns of a panel. */
typedef struct gradients {
  int64_t first, width;
  bool are_some; /* false: all absent */
  float rows[HR__ROWS * HR__PANEL];
} gradients;

/* The gradients of the gates of the step after `block`'s, times a panel. */
static void multiply_gates(const hr__run *run, const hr__block *block, hr__role role, gradients *out) {
  const hr_prepared *p = run->p;
  const float *dgates = hr__row(run, role, block->step + 1, block->row, 0);
  const float *panel = run->packed + block->panel * p->gates * p->hidden * HR__PANEL;
  hr__multiply_panel(dgates, p->places[role].row, p->gates * p->hidden, panel, block->rows,
                     (int)hr_divide_up(out->width, HR__LANES), out->rows, HR__PANEL, HR__LANES);
  out->are_some = true;
}

/* Adds a gradient that may be absent, of any strides. */
static void add_gradient(const hr__run *run, const hr__block *block, hr__role role, gradients *g) {
  if (!hr__has(run, role)) {
    return;
  }
  for (int r = 0; r < block->rows; ++r) {
    const float *from = hr__row(run, role, block->step, block->row + r, g->first);
    float *restrict to = g->rows + r * HR__PANEL;
    int64_t column = run->p->places[role].column;
    if (!g->are_some) {
      for (int64_t l = 0; l < g->width; ++l) {
        to[l] = from[l * column];
      }
    } else if (column == 1) {
      for (int64_t l = 0; l < g->width; ++l) {
        to[l] += from[l];
      }
    } else {
      for (int64_t l = 0; l < g->width; ++l) {
        to[l] += from[l * column];
      }
    }
  }
  g->are_some = true;
}

static void write_gradients(const hr__run *run, const hr__block *block, hr__role role, const gradients *g) {
  for (int r = 0; r < block->rows; ++r) {
    memcpy(hr__row(run, role, 0, block->row + r, g->first), g->rows + r * HR__PANEL, (size_t)g->width * sizeof(float));
  }
}

static void init_gradients(const hr__run *run, const hr__block *block, gradients *out) {
  out->first = block->panel * HR__PANEL;
  out->width = hr_min(HR__PANEL, run->p->hidden - out->first);
  out->are_some = false;
}

INLINE float sigmoid_slope(float a, float b) {
  return a * ((1.0f - b) * b);
}
INLINE float tanh_slope(float a, float b) {
  return a * (1.0f - b * b);
}

/* One row of an LSTM's cell. dh may be NULL (no gradient of h); `dc` holds the gradient of the new cell if has_dc, and
 * gets that of the cell before. `hidden` is the distance of gates. */
INLINE void lstm_row(const float *restrict dh, float *restrict dc, bool has_dc, const float *restrict before,
                     const float *restrict after, const float *restrict gates, int64_t hidden, int64_t width,
                     float *restrict dgates) {
  const float *in = gates, *forget = gates + hidden, *g = gates + 2 * hidden, *out = gates + 3 * hidden;
  float *din = dgates, *dforget = dgates + hidden, *dg = dgates + 2 * hidden, *dout = dgates + 3 * hidden;
  for (int64_t l = 0; l < width; ++l) {
    float total = has_dc ? dc[l] : 0.0f;
    if (dh != NULL) {
      float t = hr_f32_tanh(after[l]);
      dout[l] = sigmoid_slope(dh[l] * t, out[l]);
      float by_h = tanh_slope(dh[l] * out[l], t);
      total = has_dc ? by_h + total : by_h;
    } else {
      dout[l] = 0;
    }
    din[l] = sigmoid_slope(total * g[l], in[l]);
    dforget[l] = sigmoid_slope(total * before[l], forget[l]);
    dg[l] = tanh_slope(total * in[l], g[l]);
    dc[l] = total * forget[l];
  }
}

static void lstm_rows(const hr__run *run, const hr__block *block, const gradients *g, bool has_dc) {
  int64_t hidden = run->p->hidden;
  for (int r = 0; r < block->rows; ++r) {
    int64_t row = block->row + r;
    const float *dh = g->are_some ? g->rows + r * HR__PANEL : NULL;
    const float *before = hr__row(run, block->step == 0 ? C0 : CELLS, block->step - 1, row, g->first);
    const float *after = hr__row(run, CELLS, block->step, row, g->first);
    const float *gates = hr__row(run, WORKSPACE, block->step, row, g->first);
    float *dgates = hr__row(run, DGATES, block->step, row, g->first), *dc = run->carried + row * hidden + g->first;
    if (dh != NULL && has_dc) {
      lstm_row(dh, dc, true, before, after, gates, hidden, g->width, dgates);
    } else {
      lstm_row(dh, dc, has_dc, before, after, gates, hidden, g->width, dgates);
    }
  }
}

/* The carried numbers of the block's columns, from or to a role. */
static void load_carried(const hr__run *run, const hr__block *block, hr__role role, const gradients *g) {
  gradients loaded = *g;
  loaded.are_some = false;
  add_gradient(run, block, role, &loaded);
  for (int r = 0; r < block->rows; ++r) {
    memcpy(run->carried + (block->row + r) * run->p->hidden + g->first, loaded.rows + r * HR__PANEL,
           (size_t)g->width * sizeof(float));
  }
}
static void store_carried(const hr__run *run, const hr__block *block, hr__role role, const gradients *g) {
  for (int r = 0; r < block->rows; ++r) {
    memcpy(hr__row(run, role, 0, block->row + r, g->first), run->carried + (block->row + r) * run->p->hidden + g->first,
           (size_t)g->width * sizeof(float));
  }
}

void hr__lstm_backward_block(const hr__run *run, const hr__block *block) {
  gradients g;
  bool is_end = is_last(run, block), has_dc = !is_end || hr__has(run, BY_LAST_C);
  init_gradients(run, block, &g);
  if (!is_end) {
    multiply_gates(run, block, DGATES, &g);
  }
  if (block->step < 0) {
    write_gradients(run, block, DH0, &g);
    return;
  }
  add_gradient(run, block, BY_STATES, &g);
  if (is_end) {
    add_gradient(run, block, BY_LAST_H, &g);
  }
  if (is_end && has_dc) {
    load_carried(run, block, BY_LAST_C, &g);
  }
  lstm_rows(run, block, &g, has_dc);
  if (block->step == 0 && hr__has(run, DC0)) {
    store_carried(run, block, DC0, &g);
  }
}

/* One row of a GRU's cell; `through` is the part of the gradient that passes the cell. */
INLINE void gru_row(const float *restrict dh, const float *restrict workspace, int64_t hidden, int64_t width,
                    float *restrict dinput, float *restrict dhidden, float *restrict through) {
  const float *reset = workspace, *update = workspace + hidden, *n = workspace + 2 * hidden;
  const float *h = workspace + 3 * hidden, *part = workspace + 4 * hidden;
  for (int64_t l = 0; l < width; ++l) {
    float dz = sigmoid_slope(dh[l] * (h[l] - n[l]), update[l]);
    float dn = tanh_slope(dh[l] * (1.0f - update[l]), n[l]);
    float dr = sigmoid_slope(dn * part[l], reset[l]);
    dinput[l] = dhidden[l] = dr;
    dinput[hidden + l] = dhidden[hidden + l] = dz;
    dinput[2 * hidden + l] = dn;
    dhidden[2 * hidden + l] = dn * reset[l];
    through[l] = dh[l] * update[l];
  }
}

/* Adds the carried share to the products. */
static void add_carried(const hr__run *run, const hr__block *block, gradients *g) {
  for (int r = 0; r < block->rows; ++r) {
    const float *from = run->carried + (block->row + r) * run->p->hidden + g->first;
    float *restrict to = g->rows + r * HR__PANEL;
    for (int64_t l = 0; l < g->width; ++l) {
      to[l] += from[l];
    }
  }
}

void hr__gru_backward_block(const hr__run *run, const hr__block *block) {
  gradients g;
  int64_t hidden = run->p->hidden;
  init_gradients(run, block, &g);
  if (!is_last(run, block)) {
    multiply_gates(run, block, DHIDDEN, &g);
    add_carried(run, block, &g);
  }
  if (block->step < 0) {
    write_gradients(run, block, DH0, &g);
    return;
  }
  add_gradient(run, block, BY_STATES, &g);
  if (is_last(run, block)) {
    add_gradient(run, block, BY_LAST_H, &g);
  }
  if (!g.are_some) {
    memset(g.rows, 0, sizeof g.rows);
  }
  for (int r = 0; r < block->rows; ++r) {
    int64_t row = block->row + r;
    gru_row(g.rows + r * HR__PANEL, hr__row(run, WORKSPACE, block->step, row, g.first), hidden, g.width,
            hr__row(run, DGATES, block->step, row, g.first), hr__row(run, DHIDDEN, block->step, row, g.first),
            run->carried + row * hidden + g.first);
  }
}
