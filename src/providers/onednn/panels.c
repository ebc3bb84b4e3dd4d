/* panels.c: the panels and strips of a product. */
#include "providers/onednn/panels.h"

#include <string.h>

#include "base/integer.h"
#include "base/thread.h"
#include "providers/wide_product.h"

enum { PANEL = HR__WIDE * HR__PANEL_VECTORS, DEPTH_MAX = 384 };
enum { PACKED = HR__WIDE * HR__AHEAD_VECTORS }; /* columns of a panel that is packed before, but for the last */

int64_t hr__panels_floats(int64_t depth) {
  return hr_min(depth, DEPTH_MAX) * PANEL;
}

int64_t hr__packed_panels_floats(int64_t depth, int64_t columns) {
  return depth * hr_round_up(columns, HR__WIDE);
}

#if defined(HR_WIDE_VECTORS)

enum {
  STRIP = 48, /* rows whose results are in the first cache */
  DEPTH_MIN = 16,
  COLUMNS_MAX = 512,
  RIGHT_MAX = 1 << 17, /* elements of the right factor: larger ones come from memory, whose copy by sgemm is faster */
  PACKED_ROWS_MIN = 16,
  PACKED_ROWS_MAX = 384, /* for more, sgemm's own copy of the right factor costs little */
  PACKED_DEPTH_MIN = 128,
  BLOCK_PANELS = 16 /* that are packed at the same time */
};

bool hr__panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs) {
  return hr_cpu_has(HR_CPU_AVX512F) && depth >= DEPTH_MIN && columns <= COLUMNS_MAX && depth * columns <= RIGHT_MAX &&
         (!packs || rows >= PACKED_ROWS_MIN);
}

bool hr__panels_match(int64_t depth) {
  return !hr_cpu_has(HR_CPU_AVX512F) || depth <= 2 * DEPTH_MAX || depth % DEPTH_MAX == 0;
}

bool hr__packed_panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs) {
  return hr_cpu_has(HR_CPU_AVX512F) && rows >= PACKED_ROWS_MIN && rows <= PACKED_ROWS_MAX &&
         depth >= PACKED_DEPTH_MIN && (hr__panels_match(depth) ? columns >= HR__WIDE : packs);
}

/* ---- packing ---- */

typedef struct packing {
  const float *b;
  int64_t inner, column, depth, columns;
  float *to;
} packing;

/* The floats from row to row of the packed panel that begins at a column. */
static int64_t packed_width(int64_t columns, int64_t column) {
  return hr_min(PACKED, hr_round_up(columns - column, HR__WIDE));
}

/* A panel's part of row `k`. */
static void pack_row(const packing *p, int64_t k, int64_t column) {
  int64_t width = packed_width(p->columns, column), columns = hr_min(width, p->columns - column);
  float *to = p->to + column * p->depth + k * width;
  memcpy(to, p->b + k * p->inner + column, (size_t)columns * sizeof *to);
  memset(to + columns, 0, (size_t)(width - columns) * sizeof *to);
}

/* Blocks [begin, end) of panels: dense rows are read as long as they are in a block. */
static void pack_blocks(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  enum { BLOCK = BLOCK_PANELS * PACKED };
  const packing *p = arg;
  for (int64_t first = begin * BLOCK; first < hr_min(end * BLOCK, p->columns); first += BLOCK) {
    int64_t last = hr_min(first + BLOCK, p->columns);
    for (int64_t column = first; column < last && p->column != 1; column += PACKED) {
      hr__wide_pack_panel(p->b + column * p->column, p->column, p->depth, hr_min(PACKED, p->columns - column),
                          p->to + column * p->depth, packed_width(p->columns, column));
    }
    for (int64_t k = 0; k < p->depth && p->column == 1; ++k) {
      for (int64_t column = first; column < last; column += PACKED) {
        pack_row(p, k, column);
      }
    }
  }
}

void hr__panels_pack(const float *b, int64_t inner, int64_t column, int64_t depth, int64_t columns, float *to) {
  packing p = {b, inner, column, depth, columns, to};
  hr_parallel_for(hr_divide_up(columns, BLOCK_PANELS * PACKED), 1, pack_blocks, &p);
}

/* ---- products ---- */

/* The bias of a panel, in whole vectors. */
static const float *bias_of(const hr__panels *p, int64_t column, int64_t columns, float to[PANEL]) {
  for (int64_t i = 0; p->bias != NULL && i < PANEL; ++i) {
    to[i] = i < columns ? p->bias[(column + i) * p->bias_step] : 0;
  }
  return p->bias != NULL ? to : NULL;
}

/* The length of the next sum, as sgemm cuts long ones: 384, and halves of the last 768 to 385. */
static int64_t next_depth(int64_t left) {
  return left > 2 * DEPTH_MAX ? DEPTH_MAX : left > DEPTH_MAX ? hr_divide_up(left, 2) : left;
}

/* Strips of a panel over a part of the depth; `is_last`: results are complete. A strip requests its share of the memory
 * ahead. */
static void multiply_strips(const hr__panels *p, hr__wide_product *product, const float *a, int64_t column,
                            bool is_last) {
  const float *ahead = product->ahead;
  int64_t rows = p->row_end - p->row, strip = p->finish != NULL ? STRIP : rows, ahead_floats = product->ahead_floats;
  for (int64_t row = p->row; row < p->row_end; row += strip) {
    int64_t lines = hr_min(strip, p->row_end - row);
    product->lines = lines;
    product->v = a + row * p->a_row;
    product->m = p->c + row * p->c_row + column;
    product->more = is_last && p->more != NULL ? p->more + row * p->more_row + column : NULL;
    product->ahead = ahead != NULL ? ahead + ahead_floats * (row - p->row) / rows : NULL;
    product->ahead_floats = ahead_floats * lines / rows;
    hr__wide_multiply(product);
    if (is_last && p->finish != NULL) {
      p->finish(p->arg, row, row + lines, column, column + product->outs);
    }
  }
}

/* The right factor of the next sums. */
static void set_right(const hr__panels *p, hr__wide_product *product, int64_t k, int64_t column, int64_t width) {
  if (p->packed_columns != 0) {
    int64_t inside = column % PACKED, step = packed_width(p->packed_columns, column - inside);
    int64_t end = hr_min(hr_round_up(p->column_end, PACKED), hr_round_up(p->packed_columns, HR__WIDE));
    product->u = p->b + (column - inside) * p->depth + k * step + inside;
    product->u_next = step;
    product->ahead = product->u + product->depth * step;
    product->ahead_floats = hr_min(product->depth * step, p->b + end * p->depth - product->ahead);
    product->ahead = product->ahead_floats > 0 ? product->ahead : NULL;
    return;
  }
  product->u = p->b + k * p->b_inner + column * p->b_column;
  product->u_next = p->b_inner;
  if (p->b_column != 1) {
    hr__wide_pack_panel(product->u, p->b_column, product->depth, product->outs, p->packed, width);
    product->u = p->packed, product->u_next = width;
  }
}

/* A panel of `width` floats, whole vectors. */
static void multiply_panel(const hr__panels *p, int64_t column, int64_t width) {
  float bias[PANEL];
  int64_t columns = hr_min(width, p->column_end - column);
  hr__wide_product product = {.v_step = p->a_row,
                              .v_next = p->a_inner,
                              .m_step = p->c_row,
                              .rows = 1,
                              .columns = 1,
                              .vectors = (int)(width / HR__WIDE),
                              .outs = columns,
                              .more_step = p->more_row};
  for (int64_t k = 0; k < p->depth; k += product.depth) {
    product.depth = next_depth(p->depth - k);
    bool is_last = k + product.depth == p->depth;
    product.adds = k > 0;
    product.addend = is_last ? bias_of(p, column, columns, bias) : NULL;
    set_right(p, &product, k, column, width);
    multiply_strips(p, &product, p->a + k * p->a_inner, column, is_last);
  }
}

static void multiply_packed(const hr__panels *p) {
  for (int64_t column = p->column; column < p->column_end;) {
    int64_t end = hr_min(hr_round_up(column + 1, PACKED), p->column_end);
    multiply_panel(p, column, hr_round_up(end - column, HR__WIDE));
    column = end;
  }
}

static void multiply_stored(const hr__panels *p) {
  int64_t vectors = hr_divide_up(p->column_end - p->column, HR__WIDE);
  int64_t panels = hr_divide_up(vectors, HR__PANEL_VECTORS);
  for (int64_t i = 0; i < panels; ++i) {
    int64_t first = vectors * i / panels * HR__WIDE, end = vectors * (i + 1) / panels * HR__WIDE;
    multiply_panel(p, p->column + first, end - first);
  }
}

void hr__panels_multiply(const hr__panels *p) {
  if (p->packed_columns != 0) {
    multiply_packed(p);
  } else {
    multiply_stored(p);
  }
}

#else

bool hr__panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs) {
  (void)rows, (void)depth, (void)columns, (void)packs;
  return false;
}

void hr__panels_multiply(const hr__panels *p) {
  (void)p;
}

bool hr__panels_match(int64_t depth) {
  (void)depth;
  return true;
}

bool hr__packed_panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs) {
  (void)rows, (void)depth, (void)columns, (void)packs;
  return false;
}

void hr__panels_pack(const float *b, int64_t inner, int64_t column, int64_t depth, int64_t columns, float *to) {
  (void)b, (void)inner, (void)column, (void)depth, (void)columns, (void)to;
}

#endif
