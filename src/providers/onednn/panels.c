/* panels.c: the panels and strips of a product. */
#include "providers/onednn/panels.h"

#include <string.h>

#include "base/integer.h"
#include "base/thread.h"
#include "providers/wide_product.h"

enum { PANEL = HR__WIDE * HR__PANEL_VECTORS, DEPTH_MAX = 384, GAP = 16384 };
enum { PACKED = HR__WIDE * HR__AHEAD_VECTORS }; /* columns of a panel that is packed before, but for the last */

/* Processors fetch far behind the end of a panel, which must not be what another thread writes. */
int64_t hr__panels_floats(int64_t depth) {
  return hr_min(depth, DEPTH_MAX) * PANEL + GAP;
}

int64_t hr__packed_panels_floats(int64_t depth, int64_t columns) {
  return depth * hr_round_up(columns, HR__WIDE);
}

#if defined(HR_WIDE_VECTORS)

enum {
  STRIP = 48, /* rows whose results are in the first cache */
  DEPTH_MIN = 16,
  COLUMNS_MAX = 512,
  NARROW = 8,          /* vectors of columns */
  RIGHT_MAX = 1 << 17, /* elements of the right factor: larger ones come from memory, whose copy by sgemm is faster */
  PACKED_ROWS_MIN = 16,
  PACKED_ROWS_MAX = 384, /* for more, sgemm's own copy of the right factor costs little */
  PACKED_DEPTH_MIN = 128,
  BLOCK_PANELS = 16 /* that are packed at the same time */
};

bool hr__panels_match(int64_t depth) {
  return !hr_cpu_has(HR_CPU_AVX512F) || depth <= 2 * DEPTH_MAX || depth % DEPTH_MAX == 0;
}

bool hr__packed_panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs) {
  return hr_cpu_has(HR_CPU_AVX512F) && rows >= PACKED_ROWS_MIN && rows <= PACKED_ROWS_MAX &&
         depth >= PACKED_DEPTH_MIN && (hr__panels_match(depth) ? columns >= HR__WIDE : packs);
}

bool hr__panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs) {
  bool is_narrow = columns <= COLUMNS_MAX && depth * columns <= RIGHT_MAX && (!packs || rows >= PACKED_ROWS_MIN);
  return hr_cpu_has(HR_CPU_AVX512F) && depth >= DEPTH_MIN &&
         (is_narrow || (packs && hr__packed_panels_are_worth(rows, depth, columns, true)));
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

static int64_t rows_of(const hr__panels *p) {
  return p->row_end - p->row;
}

/* A panel over a part of the depth; its width is that of whole vectors. */
typedef struct part {
  int64_t column, columns, width, k, depth;
} part;

/* Its product, in strips; u is the right factor. */
static void multiply_part(const hr__panels *p, const part *x, const float *u, int64_t u_next, hr__wide_ahead *ahead) {
  float bias[PANEL];
  bool is_last = x->k + x->depth == p->depth;
  hr__wide_product product = {.u = u,
                              .u_next = u_next,
                              .v_step = p->a_row,
                              .v_next = p->a_inner,
                              .m_step = p->c_row,
                              .rows = 1,
                              .columns = 1,
                              .depth = x->depth,
                              .vectors = (int)(x->width / HR__WIDE),
                              .outs = x->columns,
                              .adds = x->k > 0,
                              .addend = is_last ? bias_of(p, x->column, x->columns, bias) : NULL,
                              .more_step = p->more_row,
                              .ahead = ahead};
  int64_t strip = p->finish != NULL ? STRIP : rows_of(p);
  for (int64_t row = p->row; row < p->row_end; row += strip) {
    product.lines = hr_min(strip, p->row_end - row);
    product.v = p->a + row * p->a_row + x->k * p->a_inner;
    product.m = p->c + row * p->c_row + x->column;
    product.more = is_last && p->more != NULL ? p->more + row * p->more_row + x->column : NULL;
    hr__wide_multiply(&product);
    if (is_last && p->finish != NULL) {
      p->finish(p->arg, row, row + product.lines, x->column, x->column + x->columns);
    }
  }
}

/* Panels that were packed before, one after the other; the next part lies behind the current one. */
static void multiply_packed_panel(const hr__panels *p, part x) {
  int64_t inside = x.column % PACKED, step = packed_width(p->packed_columns, x.column - inside);
  int64_t columns_end = hr_min(hr_round_up(p->column_end, PACKED), hr_round_up(p->packed_columns, HR__WIDE));
  const float *panel = p->b + (x.column - inside) * p->depth, *end = p->b + columns_end * p->depth;
  for (; x.k < p->depth; x.k += x.depth) {
    x.depth = next_depth(p->depth - x.k);
    const float *u = panel + x.k * step, *next = u + x.depth * step;
    hr__wide_rows rows = hr__wide_rows_of(next, 1, hr_min(x.depth * step, end - next), 0);
    hr__wide_ahead ahead = hr__wide_ahead_of(rows, rows_of(p), x.depth);
    multiply_part(p, &x, u + inside, step, &ahead);
  }
}

static void multiply_packed(const hr__panels *p) {
  for (int64_t column = p->column; column < p->column_end;) {
    int64_t columns = hr_min(hr_round_up(column + 1, PACKED), p->column_end) - column;
    multiply_packed_panel(p, (part){.column = column, .columns = columns, .width = hr_round_up(columns, HR__WIDE)});
    column += columns;
  }
}

/* Panel `i` from k on. */
static part stored_part(const hr__panels *p, int64_t i, int64_t panels, int64_t k) {
  int64_t vectors = hr_divide_up(p->column_end - p->column, HR__WIDE);
  int64_t first = vectors * i / panels * HR__WIDE, width = vectors * (i + 1) / panels * HR__WIDE - first;
  return (part){.column = p->column + first,
                .columns = hr_min(width, p->column_end - p->column - first),
                .width = width,
                .k = k,
                .depth = next_depth(p->depth - k)};
}

static const float *right_of(const hr__panels *p, const part *x) {
  return p->b + x->k * p->b_inner + x->column * p->b_column;
}

/* Packs a panel of dense columns, and requests the next one while it multiplies. */
static void multiply_dense_columns(const hr__panels *p, const part *x, const part *next) {
  hr__wide_pack_panel(right_of(p, x), p->b_column, x->depth, x->columns, p->packed, x->width);
  hr__wide_rows right = hr__wide_rows_of(right_of(p, next), next->columns, next->depth, p->b_column);
  hr__wide_ahead ahead = hr__wide_ahead_of(right, rows_of(p), x->depth);
  multiply_part(p, x, p->packed, x->width, &ahead);
}

/* The left factor's part stays in the second cache while all panels meet it. */
static void multiply_stored(const hr__panels *p) {
  bool packs = p->b_column != 1;
  int64_t vectors = hr_divide_up(p->column_end - p->column, HR__WIDE);
  int64_t panels = hr_divide_up(vectors, packs && vectors > NARROW ? HR__AHEAD_VECTORS : HR__PANEL_VECTORS);
  for (int64_t k = 0; k < p->depth; k += next_depth(p->depth - k)) {
    part x = stored_part(p, 0, panels, k);
    for (int64_t i = 0; i < panels; ++i) {
      bool is_last = i == panels - 1;
      part next = is_last ? stored_part(p, 0, panels, k + x.depth) : stored_part(p, i + 1, panels, k);
      if (packs) {
        multiply_dense_columns(p, &x, &next);
      } else {
        multiply_part(p, &x, right_of(p, &x), p->b_inner, NULL);
      }
      x = next;
    }
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
