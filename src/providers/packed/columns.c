/* columns.c (packed): products y = x w of few rows with packed w [K, N], whose rows are sums' terms.
 *
 * A block of columns stays in the L1 cache: of each row of w it has a few words. Four rows of w at a time are added to
 * the block, so that a sum is loaded and stored once for four terms. A factor of x is multiplied by a group's scale
 * before, and biases are added once for each group. Terms of a sum have the order of w's rows.
 */
#include "base/integer.h"
#include "providers/packed/numbers.h"

enum { ROWS = 4, STEPS = 4, BLOCK = 512, GROUPS = BLOCK / 16, GROUPS_ROOM = GROUPS + LANES };
/* ROWS: of x at a time; STEPS: rows of w at a time; BLOCK: columns */

/* Columns [first, first + count) of rows of x. */
typedef struct block {
  const call *c;
  int64_t matrix, first, count;
  const float *x[ROWS];             /* [inner] */
  vector sums[ROWS][BLOCK / LANES]; /* of the columns, in the order of lanes */
  float biases[ROWS][GROUPS];       /* sums of biases, by group */
} block;

/* Columns of a block are whole steps and groups. */
static int64_t block_columns(const product *p) {
  int64_t unit = hr_max(span_of(p->kind), p->group);
  return BLOCK / unit * unit;
}

int64_t hr__packed_column_blocks(const product *p) {
  return p->matrices * hr_divide_up(p->columns, block_columns(p));
}

/* `steps` rows of w from row k on, times as many columns of `rows` rows of x. scales: [steps][groups] of the block. */
PACKED_INLINE void add_rows(block *b, int64_t k, int rows, int steps, number_kind kind,
                            const float (*scales)[GROUPS_ROOM]) {
  const product *p = b->c->p;
  const int span = span_of(kind), bits = bits_of(kind), pieces = span > p->group ? span / p->group : 1;
  const int64_t same = hr_max(span, p->group);
  const words8 of_lanes = lane_groups(pieces);
  const uint32_t *words[STEPS];
  for (int s = 0; s < steps; ++s) {
    words[s] = b->c->w + first_of(&p->w, b->matrix, k + s) + b->first * bits / 32;
  }
  int64_t at = 0; /* vectors */
  for (int64_t n = 0, g = 0; n < b->count; n += same, g += pieces) {
    vector factors[ROWS][STEPS];
    for (int s = 0; s < steps; ++s) {
      vector scale = lane_scales(&scales[s][g], of_lanes);
      for (int r = 0; r < rows; ++r) {
        factors[r][s] = scale * b->x[r][k + s];
      }
    }
    for (int64_t i = 0; i < same; i += span, at += span / LANES) {
      words8 loaded[STEPS];
      for (int s = 0; s < steps; ++s) {
        loaded[s] = load_words(kind, words[s]);
      }
      for (int j = 0; j < span / LANES; ++j) {
        vector sums[ROWS];
        for (int r = 0; r < rows; ++r) {
          sums[r] = b->sums[r][at + j];
        }
        for (int s = 0; s < steps; ++s) {
          vector numbers = decode(kind, words[s], loaded[s], j);
          for (int r = 0; r < rows; ++r) {
            sums[r] = multiply_add(factors[r][s], numbers, sums[r]);
          }
        }
        for (int r = 0; r < rows; ++r) {
          b->sums[r][at + j] = sums[r];
        }
      }
      for (int s = 0; s < steps; ++s) {
        words[s] += span * bits / 32;
      }
    }
  }
}

#define OF_KIND(ROW_COUNT, STEP_COUNT, KIND)             \
  case KIND:                                             \
    add_rows(b, k, ROW_COUNT, STEP_COUNT, KIND, scales); \
    break
#define OF_EACH_KIND(ROW_COUNT, STEP_COUNT)   \
  switch (b->c->p->kind) {                    \
    OF_KIND(ROW_COUNT, STEP_COUNT, INT2);     \
    OF_KIND(ROW_COUNT, STEP_COUNT, INT3);     \
    OF_KIND(ROW_COUNT, STEP_COUNT, INT4);     \
    OF_KIND(ROW_COUNT, STEP_COUNT, INT5);     \
    OF_KIND(ROW_COUNT, STEP_COUNT, INT6);     \
    OF_KIND(ROW_COUNT, STEP_COUNT, INT8);     \
    OF_KIND(ROW_COUNT, STEP_COUNT, FLOAT4);   \
    default:                                  \
      OF_KIND(ROW_COUNT, STEP_COUNT, FLOAT8); \
  }

static void add_to_block(block *b, int64_t k, int rows, int steps, const float (*scales)[GROUPS_ROOM]) {
  if (rows == 1 && steps == 1) {
    OF_EACH_KIND(1, 1);
  } else if (rows == 1) {
    OF_EACH_KIND(1, STEPS);
  } else if (steps == 1) {
    OF_EACH_KIND(ROWS, 1);
  } else {
    OF_EACH_KIND(ROWS, STEPS);
  }
}

/* The block's scales of row k, or its biases. */
static void load_groups(const block *b, const place *from, const void *data, int64_t k, float *to) {
  const product *p = b->c->p;
  int64_t first = first_of(from, b->matrix, k) + b->first / p->group * from->column;
  load_floats(data, from->dtype, first, from->column, b->count / p->group, to);
}

static void add_biases(block *b, int64_t k, int rows) {
  float biases[GROUPS];
  load_groups(b, &b->c->p->biases, b->c->biases, k, biases);
  for (int r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < b->count / b->c->p->group; ++g) {
      b->biases[r][g] += b->x[r][k] * biases[g];
    }
  }
}

static void store_block(const block *b, int64_t row, int rows) {
  const product *p = b->c->p;
  int span = span_of(p->kind);
  for (int r = 0; r < rows; ++r) {
    const float *sums = (const float *)b->sums[r];
    int64_t to = first_of(&p->y, b->matrix, row + r) + b->first * p->y.column;
    for (int64_t n = 0; n < b->count; ++n) {
      float sum = sums[n / span * span + place_in_span(p->kind, (int)(n % span))] + b->biases[r][n / p->group];
      store_float(b->c->y, p->y.dtype, to + n * p->y.column, sum);
    }
  }
}

static void multiply_block(block *b, int64_t row, int rows) {
  const product *p = b->c->p;
  memset(b->biases, 0, sizeof b->biases);
  for (int r = 0; r < rows; ++r) {
    b->x[r] = b->c->ordered + (b->matrix * p->rows + row + r) * p->inner;
    memset(b->sums[r], 0, (size_t)b->count * sizeof(float));
  }
  for (int64_t k = 0, steps = STEPS; k < p->inner; k += steps) {
    float scales[STEPS][GROUPS_ROOM];
    steps = p->inner - k < STEPS ? 1 : STEPS;
    for (int s = 0; s < steps; ++s) {
      load_groups(b, &p->scales, b->c->scales, k + s, scales[s]);
      if (p->has_biases) {
        add_biases(b, k + s, rows);
      }
    }
    add_to_block(b, k, rows, (int)steps, (const float(*)[GROUPS_ROOM])scales);
  }
  store_block(b, row, rows);
}

void hr__packed_run_columns(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const product *p = c->p;
  int64_t most = block_columns(p), blocks = hr_divide_up(p->columns, most);
  block b = {.c = c};
  for (int64_t i = begin; i < end; ++i) {
    b.matrix = i / blocks, b.first = i % blocks * most, b.count = hr_min(p->columns - b.first, most);
    for (int64_t row = 0, rows; row < p->rows; row += rows) {
      rows = p->rows - row < ROWS ? 1 : ROWS;
      multiply_block(&b, row, (int)rows);
    }
  }
}
