/* panels.h (onednn): products of f32 matrices by the loop of direct convolutions (wide_product.h), with sgemm's bits.
 *
 * sgemm copies both factors and writes its results one after the other before anything is done with them. Here panels
 * of 48 or 64 columns go over the left factor as it is stored, one part of the depth after the other. Only a right
 * factor whose columns are dense is packed, a panel at a time; the next one is requested meanwhile. A bias
 * and a matrix are added in registers, and other rows follow while a strip of results is in the first cache. A sum adds
 * its products in the order of the depth; one of more than 384 is cut, and its parts are added in order. sgemm does the
 * same up to a depth of 768, and for multiples of 384, but for less than 16 rows on dense columns. Other depths are cut
 * in one of two ways, which depends on all sizes and steps.
 *
 * A weight that stays the same is packed once, to panels of 48 columns that lie one after the other. The next part of
 * a panel is requested while the current one is multiplied, so that weights may come from memory.
 */
#ifndef HEADRACE_PROVIDERS_ONEDNN_PANELS_H_
#define HEADRACE_PROVIDERS_ONEDNN_PANELS_H_

#include <stdbool.h>
#include <stdint.h>

/* Rows [row, row_end) and columns [column, column_end) of c = a [rows, depth] b [depth, columns] + bias + more. Strides
 * are in elements; rows of c and `more` are dense, and rows or columns of b. */
typedef struct hr__panels {
  int64_t row, row_end, column, column_end, depth;
  const float *a, *b;
  int64_t a_row, a_inner, b_inner, b_column;
  int64_t packed_columns; /* of all of b, which hr__panels_pack has made; 0: b is stored as its strides say */
  const float *bias;      /* NULL: none */
  int64_t bias_step;
  const float *more; /* NULL: none */
  int64_t more_row;
  float *c;
  int64_t c_row;
  float *packed; /* hr__panels_floats, if columns of a stored b are dense */
  /* (optional) Follows when results of rows [row, row_end) and columns [column, column_end) are stored. */
  void (*finish)(const void *arg, int64_t row, int64_t row_end, int64_t column, int64_t column_end);
  const void *arg;
} hr__panels;

/* True if this processor can, sgemm has the same bits, and is not faster. `packs`: columns of b are dense. */
bool hr__panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs);
/* The floats of a packed panel. */
int64_t hr__panels_floats(int64_t depth);
void hr__panels_multiply(const hr__panels *p);

/* True if all loops of sgemm cut sums of this depth alike. */
bool hr__panels_match(int64_t depth);
/* True if this processor can, and is faster than sgemm once the right factor is packed. `packs`: columns of b are
 * dense. If sgemm may have other bits, panels of the stored factor have to multiply until then. */
bool hr__packed_panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs);
/* The floats of a whole right factor. */
int64_t hr__packed_panels_floats(int64_t depth, int64_t columns);
/* Packs a right factor of dense rows (column is 1) or columns (inner is 1) on all threads. */
void hr__panels_pack(const float *b, int64_t inner, int64_t column, int64_t depth, int64_t columns, float *to);

#endif
