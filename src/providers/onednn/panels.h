/* panels.h (onednn): products of f32 matrices by the loop of direct convolutions (wide_product.h), with sgemm's bits.
 *
 * sgemm copies both factors and writes its results one after the other before anything is done with them. Here panels
 * of 64 columns go over the left factor as it is stored; only a right factor whose columns are dense is packed. A bias
 * and a matrix are added in registers, and other rows follow while a strip of results is in the first cache. A sum adds
 * its products in the order of the depth; one of more than 384 is cut, and its parts are added in order. sgemm does the
 * same, but for less than 16 rows on dense columns.
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
  const float *bias; /* NULL: none; only if hr__panels_add */
  int64_t bias_step;
  const float *more; /* as bias */
  int64_t more_row;
  float *c;
  int64_t c_row;
  float *packed; /* hr__panels_floats, if columns of b are dense */
  /* (optional) Follows when results of rows [row, row_end) and columns [column, column_end) are stored. */
  void (*finish)(const void *arg, int64_t row, int64_t row_end, int64_t column, int64_t column_end);
  const void *arg;
} hr__panels;

/* True if this processor can, sgemm has the same bits, and is not faster. `packs`: columns of b are dense. */
bool hr__panels_are_worth(int64_t rows, int64_t depth, int64_t columns, bool packs);
/* True if sums are not cut. */
bool hr__panels_add(int64_t depth);
/* The floats of a packed panel. */
int64_t hr__panels_floats(int64_t depth);
void hr__panels_multiply(const hr__panels *p);

#endif
