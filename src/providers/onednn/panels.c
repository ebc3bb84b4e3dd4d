/* panels.c: the panels and strips of a product. */
#include "providers/onednn/panels.h"

#include "base/integer.h"
#include "providers/wide_product.h"

enum { PANEL = HR__WIDE * HR__PANEL_VECTORS, DEPTH_MAX = 384 };

int64_t hr__panels_floats(int64_t depth) {
  return hr_min(depth, DEPTH_MAX) * PANEL;
}

#if defined(HR_WIDE_VECTORS)

enum {
  STRIP = 48, /* rows whose results are in the first cache */
  DEPTH_MIN = 16,
  COLUMNS_MAX = 512,
  RIGHT_MAX = 1 << 17, /* elements of the right factor: larger ones come from memory, whose copy by sgemm is faster */
  PACKED_ROWS_MIN = 16
};

bool hr__panels_add(int64_t depth) {
  return depth <= DEPTH_MAX;
}

bool hr__panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs) {
  return hr_cpu_has(HR_CPU_AVX512F) && depth >= DEPTH_MIN && columns <= COLUMNS_MAX && depth * columns <= RIGHT_MAX &&
         (!packs || rows >= PACKED_ROWS_MIN);
}

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

/* Strips of a panel over a part of the depth; `is_last`: results are complete. */
static void multiply_strips(const hr__panels *p, hr__wide_product *product, const float *a, int64_t column,
                            bool is_last) {
  for (int64_t row = p->row; row < p->row_end; row += STRIP) {
    product->lines = hr_min(STRIP, p->row_end - row);
    product->v = a + row * p->a_row;
    product->m = p->c + row * p->c_row + column;
    product->more = p->more != NULL ? p->more + row * p->more_row + column : NULL;
    hr__wide_multiply(product);
    if (is_last && p->finish != NULL) {
      p->finish(p->arg, row, row + product->lines, column, column + product->outs);
    }
  }
}

static void multiply_panel(const hr__panels *p, int64_t column, int64_t width) {
  float bias[PANEL];
  int64_t columns = hr_min(width, p->column_end - column);
  hr__wide_product product = {.u_next = p->b_inner,
                              .v_step = p->a_row,
                              .v_next = p->a_inner,
                              .m_step = p->c_row,
                              .rows = 1,
                              .columns = 1,
                              .vectors = (int)(width / HR__WIDE),
                              .outs = columns,
                              .more_step = p->more_row,
                              .addend = bias_of(p, column, columns, bias)};
  for (int64_t k = 0; k < p->depth; k += product.depth) {
    product.depth = next_depth(p->depth - k);
    product.adds = k > 0;
    product.u = p->b + k * p->b_inner + column * p->b_column;
    if (p->b_column != 1) {
      hr__wide_pack_panel(product.u, p->b_column, product.depth, columns, p->packed, width);
      product.u = p->packed, product.u_next = width;
    }
    multiply_strips(p, &product, p->a + k * p->a_inner, column, k + product.depth == p->depth);
  }
}

void hr__panels_multiply(const hr__panels *p) {
  int64_t vectors = hr_divide_up(p->column_end - p->column, HR__WIDE);
  int64_t panels = hr_divide_up(vectors, HR__PANEL_VECTORS);
  for (int64_t i = 0; i < panels; ++i) {
    int64_t first = vectors * i / panels * HR__WIDE, end = vectors * (i + 1) / panels * HR__WIDE;
    multiply_panel(p, p->column + first, end - first);
  }
}

#else

bool hr__panels_add(int64_t depth) {
  (void)depth;
  return false;
}

bool hr__panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs) {
  (void)rows, (void)depth, (void)columns, (void)packs;
  return false;
}

void hr__panels_multiply(const hr__panels *p) {
  (void)p;
}

#endif
