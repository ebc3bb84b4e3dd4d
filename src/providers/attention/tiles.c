/* tiles.c: the micro kernel and its helpers.
 *
 * The product keeps a block of ROWS x VECTORS vectors of c in registers and loops over the inner dim: one broadcast for
 * each row, and VECTORS loads of b for all of them. So the left factor may have any layout, a transposed matrix
 * included, and nothing is packed; vectors run along the columns of b and c. Multiply-adds are explicit, so the bits
 * are those of the plain loop for every vector width.
 */
#include "providers/attention/tiles.h"

#include <string.h>

#include "core/math/convert.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 8, VECTORS = 2 };
typedef __m512 vector;
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, x) _mm512_storeu_ps(p, x)
#define SPREAD(x) _mm512_set1_ps(x)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#elif defined(__AVX2__) && defined(__FMA__)
enum { LANES = 8, ROWS = 4, VECTORS = 2 };
typedef __m256 vector;
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, x) _mm256_storeu_ps(p, x)
#define SPREAD(x) _mm256_set1_ps(x)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#else
enum { LANES = 4, ROWS = 4, VECTORS = 2 };
typedef struct vector {
  float lane[LANES];
} vector;
static inline vector LOAD(const float *p) {
  vector x;
  memcpy(&x, p, sizeof x);
  return x;
}
static inline void STORE(float *p, vector x) {
  memcpy(p, &x, sizeof x);
}
static inline vector SPREAD(float x) {
  return (vector){{x, x, x, x}};
}
static inline vector FMA(vector a, vector b, vector c) {
  for (int l = 0; l < LANES; ++l) {
    c.lane[l] = __builtin_fmaf(a.lane[l], b.lane[l], c.lane[l]);
  }
  return c;
}
#endif

/* ---- products ---- */

#define INLINE static inline __attribute__((always_inline))

/* rows, vectors and adds are compile-time constants, so the sums stay in registers. */
INLINE void product_block(hr__factor a, int64_t inner, const float *restrict b, int64_t b_stride, float *restrict c,
                          int64_t c_stride, int rows, int vectors, bool adds) {
  vector sums[ROWS][VECTORS];
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < vectors; ++j) {
      sums[i][j] = adds ? LOAD(c + i * c_stride + j * LANES) : SPREAD(0);
    }
  }
  for (int64_t k = 0; k < inner; ++k) {
    vector right[VECTORS];
    for (int j = 0; j < vectors; ++j) {
      right[j] = LOAD(b + k * b_stride + j * LANES);
    }
    for (int i = 0; i < rows; ++i) {
      vector left = SPREAD(a.data[i * a.row + k * a.inner]);
      for (int j = 0; j < vectors; ++j) {
        sums[i][j] = FMA(left, right[j], sums[i][j]);
      }
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < vectors; ++j) {
      STORE(c + i * c_stride + j * LANES, sums[i][j]);
    }
  }
}

/* All rows of one or VECTORS vectors of columns. */
INLINE void product_columns(hr__factor a, int64_t inner, const float *b, int64_t b_stride, float *c, int64_t c_stride,
                            int64_t rows, int vectors, bool adds) {
  for (; rows >= ROWS; rows -= ROWS, c += ROWS * c_stride, a.data += ROWS * a.row) {
    product_block(a, inner, b, b_stride, c, c_stride, ROWS, vectors, adds);
  }
  if (rows >= ROWS / 2) {
    product_block(a, inner, b, b_stride, c, c_stride, ROWS / 2, vectors, adds);
    rows -= ROWS / 2, c += ROWS / 2 * c_stride, a.data += ROWS / 2 * a.row;
  }
  for (; rows > 0; --rows, c += c_stride, a.data += a.row) {
    product_block(a, inner, b, b_stride, c, c_stride, 1, vectors, adds);
  }
}

INLINE void product(hr__factor a, int64_t inner, const float *b, int64_t b_stride, float *c, int64_t c_stride,
                    int64_t rows, int64_t columns, bool adds) {
  int64_t n = 0;
  for (; n + VECTORS * LANES <= columns; n += VECTORS * LANES) {
    product_columns(a, inner, b + n, b_stride, c + n, c_stride, rows, VECTORS, adds);
  }
  for (; n < columns; n += LANES) {
    product_columns(a, inner, b + n, b_stride, c + n, c_stride, rows, 1, adds);
  }
}

void hr__tile_product(hr__factor a, int64_t inner, const float *b, int64_t b_stride, float *c, int64_t c_stride,
                      int64_t rows, int64_t columns, bool adds) {
  if (adds) {
    product(a, inner, b, b_stride, c, c_stride, rows, columns, true);
  } else {
    product(a, inner, b, b_stride, c, c_stride, rows, columns, false);
  }
}

/* ---- transposition ---- */

enum { QUAD = 4 };
typedef float quad __attribute__((vector_size(16)));

#if defined(__clang__)
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int quad_index __attribute__((vector_size(16)));
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad_index){i, j, k, l})
#endif

static void transpose_quad(const float *x, int64_t x_stride, float *out, int64_t out_stride) {
  quad in[QUAD], half[QUAD], turned[QUAD];
  for (int i = 0; i < QUAD; ++i) {
    memcpy(&in[i], x + i * x_stride, sizeof in[i]);
  }
  half[0] = SHUFFLE(in[0], in[1], 0, 4, 1, 5), half[1] = SHUFFLE(in[2], in[3], 0, 4, 1, 5);
  half[2] = SHUFFLE(in[0], in[1], 2, 6, 3, 7), half[3] = SHUFFLE(in[2], in[3], 2, 6, 3, 7);
  turned[0] = SHUFFLE(half[0], half[1], 0, 1, 4, 5), turned[1] = SHUFFLE(half[0], half[1], 2, 3, 6, 7);
  turned[2] = SHUFFLE(half[2], half[3], 0, 1, 4, 5), turned[3] = SHUFFLE(half[2], half[3], 2, 3, 6, 7);
  for (int i = 0; i < QUAD; ++i) {
    memcpy(out + i * out_stride, &turned[i], sizeof turned[i]);
  }
}

void hr__tile_transpose(const float *x, int64_t x_stride, int64_t rows, int64_t columns, float *out,
                        int64_t out_stride) {
  int64_t whole_rows = rows / QUAD * QUAD, whole_columns = columns / QUAD * QUAD;
  for (int64_t c = 0; c < whole_columns; c += QUAD) {
    for (int64_t r = 0; r < whole_rows; r += QUAD) {
      transpose_quad(x + r * x_stride + c, x_stride, out + c * out_stride + r, out_stride);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      out[c * out_stride + r] = x[r * x_stride + c];
    }
  }
}

/* ---- tensors ---- */

#define LOAD_ROWS(type, expression)                                                             \
  for (int64_t r = 0; r < rows; ++r) {                                                          \
    const type *from = (const type *)x->data + (first + r) * x->row + first_column * x->column; \
    for (int64_t c = 0; x->column == 1 && c < columns; ++c) {                                   \
      const type element = from[c];                                                             \
      out[r * stride + c] = expression;                                                         \
    }                                                                                           \
    for (int64_t c = 0; x->column != 1 && c < columns; ++c) {                                   \
      const type element = from[c * x->column];                                                 \
      out[r * stride + c] = expression;                                                         \
    }                                                                                           \
  }                                                                                             \
  break

void hr__tile_load(const hr__matrix *x, int64_t first, int64_t rows, int64_t first_column, int64_t columns, float *out,
                   int64_t stride) {
  switch (x->dtype) {
    case HR_DTYPE_BOOL:
      LOAD_ROWS(uint8_t, element != 0 ? 1.0f : 0.0f);
    case HR_DTYPE_BF16:
      LOAD_ROWS(uint16_t, hr__u32_to_f32((uint32_t)element << 16));
    case HR_DTYPE_F16:
      LOAD_ROWS(uint16_t, hr__f32_from_half(element));
    default:
      LOAD_ROWS(float, element);
  }
}

#define STORE_ROWS(type, expression)                          \
  for (int64_t r = 0; r < rows; ++r) {                        \
    type *to = (type *)x->data + (first + r) * x->row;        \
    for (int64_t c = 0; x->column == 1 && c < columns; ++c) { \
      const float value = from[r * stride + c];               \
      to[c] = expression;                                     \
    }                                                         \
    for (int64_t c = 0; x->column != 1 && c < columns; ++c) { \
      const float value = from[r * stride + c];               \
      to[c * x->column] = expression;                         \
    }                                                         \
  }                                                           \
  break

void hr__tile_store(const hr__matrix *x, int64_t first, int64_t rows, int64_t columns, const float *from,
                    int64_t stride) {
  switch (x->dtype) {
    case HR_DTYPE_BF16:
      STORE_ROWS(uint16_t, hr__bfloat_from_f32(value));
    case HR_DTYPE_F16:
      STORE_ROWS(uint16_t, hr__half_from_f32(value));
    default:
      STORE_ROWS(float, value);
  }
}
