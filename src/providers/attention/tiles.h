/* tiles.h: small dense operations in cache: products, transposition, conversion from and to the dtypes of tensors.
 *
 * Everything between load and store is f32, rows of `stride` floats. Rows that vectors run along are padded to a
 * multiple of HR__TILE_LANES; the padding may hold anything.
 */
#ifndef HEADRACE_PROVIDERS_ATTENTION_TILES_H_
#define HEADRACE_PROVIDERS_ATTENTION_TILES_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/integer.h"
#include "headrace/dtype.h"

enum { HR__TILE_LANES = 16 };

static inline int64_t hr__tile_padded(int64_t count) {
  return hr_round_up(count, HR__TILE_LANES);
}

/* A matrix of any dtype and strides (in elements) in a tensor. */
typedef struct hr__matrix {
  void *data;
  hr_dtype dtype;
  int64_t row, column;
} hr__matrix;

/* The left factor of a product, element by element: element (m, k) is data[m * row + k * inner]. */
typedef struct hr__factor {
  const float *data;
  int64_t row, inner;
} hr__factor;

/* c[rows, columns] = a[rows, inner] b[inner, columns], added to what c holds with `adds`. `columns` is a multiple of
 * HR__TILE_LANES. Each element of c is one chain of multiply-adds in order of k. */
void hr__tile_product(hr__factor a, int64_t inner, const float *b, int64_t b_stride, float *c, int64_t c_stride,
                      int64_t rows, int64_t columns, bool adds);

/* out[columns, rows] = x[rows, columns] transposed. */
void hr__tile_transpose(const float *x, int64_t x_stride, int64_t rows, int64_t columns, float *out,
                        int64_t out_stride);

/* Rows first .. first + rows of a matrix, `columns` of them from number first_column on, as floats; bool gives 0 and 1.
 */
void hr__tile_load(const hr__matrix *x, int64_t first, int64_t rows, int64_t first_column, int64_t columns, float *out,
                   int64_t stride);
/* The reverse, rounded to the matrix's dtype. */
void hr__tile_store(const hr__matrix *x, int64_t first, int64_t rows, int64_t columns, const float *from,
                    int64_t stride);

#endif
