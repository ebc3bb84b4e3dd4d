/* wide_product.h: a product of small matrices, the innermost loop of direct convolutions, of their gradients, and of
 * narrow products, on processors with vectors of 16 floats.
 */
#ifndef HEADRACE_PROVIDERS_WIDE_PRODUCT_H_
#define HEADRACE_PROVIDERS_WIDE_PRODUCT_H_

#include <stdbool.h>

#include "providers/wide_vectors.h"

enum { HR__PANEL_VECTORS = 4, HR__AHEAD_VECTORS = 3 }; /* at most, of a product's columns; see `ahead` */

/* Rows of bytes. */
typedef struct hr__wide_rows {
  const char *row; /* the first */
  int64_t count, bytes, step;
} hr__wide_rows;

/* Memory that the first cache requests evenly during sums, which move it on. */
typedef struct hr__wide_ahead {
  hr__wide_rows rows;
  int64_t byte;   /* the next one of the first row */
  int64_t stride; /* bytes from request to request */
  int64_t every;  /* additions to each sum from request to request */
} hr__wide_ahead;

/* The most pixels (products: lines of m) whose sums stay in registers, by the number of vectors less one. */
static const int64_t hr__wide_lines[HR__PANEL_VECTORS] = {16, 12, 8, 6};

/* m[line][n] = sum over rows, columns and k of v[line][row][column][k] u[row][column][k][n], in that order, plus m's
 * old value, plus addend[n], plus more[line][n]. u, m and `more` are dense in n; steps and strides are in floats.
 */
typedef struct hr__wide_product {
  const float *v, *u;
  float *m;
  int64_t lines, v_step, m_step; /* from line to line */
  int64_t rows, v_row, u_row;
  int64_t columns, v_column, u_column;
  int64_t depth, v_next, u_next; /* from k to k */
  int vectors;
  int64_t outs;          /* numbers n, which may fill a part of the last vector */
  bool adds;             /* m's old value */
  const float *addend;   /* of whole vectors; NULL: none */
  const float *more;     /* NULL: none */
  int64_t more_step;     /* from line to line */
  hr__wide_ahead *ahead; /* (optional) only for products of HR__AHEAD_VECTORS vectors, whose u has all of them */
} hr__wide_product;

void hr__wide_multiply(const hr__wide_product *product);
/* `step` floats lie between two rows. */
hr__wide_rows hr__wide_rows_of(const float *from, int64_t count, int64_t floats, int64_t step);
/* During products of `lines` lines and HR__AHEAD_VECTORS vectors over a depth. */
hr__wide_ahead hr__wide_ahead_of(hr__wide_rows rows, int64_t lines, int64_t depth);
/* to[k][column] = from[column][k], `width` floats from k to k, for a product's u; columns up to the last whole vector
 * are zeros. */
void hr__wide_pack_panel(const float *from, int64_t step, int64_t depth, int64_t columns, float *to, int64_t width);

#endif
