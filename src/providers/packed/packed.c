/* packed.c: products of few rows with quantised weights, y = x w^T with w = scale * number + bias, on packed numbers.
 *
 * The weights are read once, with a half to an eighth of the bytes of f16, and never written out. A vector has eight
 * words of a row; its lanes are numbers that are 32 / bits apart, so x is put into that order first:
 *
 *   words  |0 1 .. 7|8 9 .. | ..   (4 bits: 8 numbers each)
 *   x      |0 8 .. 56|1 9 .. 57| .. |7 15 .. 63|64 72 ..
 *
 * Then a number is a shift, a mask and a conversion, without a shuffle. The biases are multiplied by sums of x over
 * groups. Threads share columns. Up to eight rows of x use a number while it is in a register; a chunk of their columns
 * stays in the L1 cache.
 *
 * f32, f16 and bf16, computed in f32; sums have an order that depends on the shape alone. Rows of words that are not
 * whole vectors are lowered (lower_quantized.c).
 */
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "core/ir/dtype.h"
#include "core/math/convert.h"
#include "providers/provider.h"

enum { LANES = 8, TILE = 8, BLOCK = 16, CHUNK = 4096, GROUPS = CHUNK / 16 };
/* TILE: rows of x at a time; BLOCK: columns; CHUNK: numbers of x, all rows of a tile together */
static const int64_t SERIAL_NUMBERS = 1 << 15;
static const int64_t ROWS_MOST =
    64; /* a library's product of more rows is faster, although weights are unpacked first */

typedef float vector __attribute__((vector_size(32)));
typedef uint32_t words8 __attribute__((vector_size(32)));
typedef int32_t integers8 __attribute__((vector_size(32)));

typedef struct place {
  hr_dtype dtype;
  int64_t offset, matrix, row, column; /* elements */
} place;

struct hr_prepared {
  int64_t matrices, rows, columns, inner, groups;
  int bits, group;
  place x, w, scales, biases, y;
};

typedef struct call {
  const hr_prepared *p;
  const void *x, *scales, *biases;
  const uint32_t *w;
  void *y;
  float *ordered; /* [matrices, rows, inner] x in the order of lanes */
  float *sums;    /* [matrices, rows, groups] of x */
} call;

/* ---- nodes ---- */

static bool is_float(const hr_operand *x) {
  return x->dtype == HR_DTYPE_F32 || x->dtype == HR_DTYPE_F16 || x->dtype == HR_DTYPE_BF16;
}

/* Dim d of a matrix, behind that of the batch. */
static int64_t dim(const hr_operand *x, int d) {
  return x->dims[x->rank - 2 + d];
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  if (node->op != HR_OP_QUANTIZED_MATMUL || node->epilogue_count > 0) {
    return false;
  }
  const hr_operand *x = &node->inputs[0], *w = &node->inputs[1];
  bool is = is_float(x) && is_float(&node->inputs[2]) && is_float(&node->inputs[3]) && is_float(&node->outputs[0]);
  for (int i = 0; i < 4; ++i) {
    is = is && node->inputs[i].kind == HR_OPERAND_VALUE;
  }
  int64_t span = is ? LANES * 32 / node->ints[0] : 1, group = node->ints[1];
  is = is && (group % span == 0 || span % group == 0);
  return is && dim(x, 0) > 0 && dim(x, 0) <= ROWS_MOST && w->dims[0] > 0 && dim(w, 0) > 0 && dim(w, 1) > 0 &&
         dim(w, 1) % LANES == 0 && w->strides[w->rank - 1] == 1;
}

static place place_of(const hr_operand *x) {
  return (place){.dtype = x->dtype,
                 .offset = x->offset,
                 .matrix = x->rank == 3 ? x->strides[0] : 0,
                 .row = x->strides[x->rank - 2],
                 .column = x->strides[x->rank - 1]};
}

static size_t plan(const hr_node *node, hr_prepared *p) {
  const hr_operand *x = &node->inputs[0];
  *p = (hr_prepared){.matrices = x->rank == 3 ? x->dims[0] : 1,
                     .rows = dim(x, 0),
                     .columns = dim(&node->inputs[1], 0),
                     .inner = dim(x, 1),
                     .bits = (int)node->ints[0],
                     .group = (int)node->ints[1],
                     .x = place_of(x),
                     .w = place_of(&node->inputs[1]),
                     .scales = place_of(&node->inputs[2]),
                     .biases = place_of(&node->inputs[3]),
                     .y = place_of(&node->outputs[0])};
  p->groups = p->inner / p->group;
  return (size_t)(p->matrices * p->rows * (p->inner + p->groups)) * sizeof(float);
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_malloc(sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "quantized_matmul: no memory for a prepared product");
  }
  *out_workspace_bytes = plan(node, p);
  *out_prepared = p;
  return HR_OK;
}

static bool renumber(hr_prepared *p, const hr_program *program, const hr_node *node, size_t *out_workspace_bytes) {
  if (!supports(program, node)) {
    return false;
  }
  *out_workspace_bytes = plan(node, p);
  return true;
}

static bool needs_team(const hr_prepared *p) {
  return p->matrices * p->rows * p->inner * p->columns > SERIAL_NUMBERS;
}

/* ---- numbers ---- */

/* `count` numbers from element `first` on, `step` apart, in f32. */
static inline void load_floats(const void *from, hr_dtype dtype, int64_t first, int64_t step, int64_t count,
                               float *restrict to) {
  const float *floats = from;
  const uint16_t *halves = from;
  switch (dtype) {
    case HR_DTYPE_F32:
      for (int64_t i = 0; i < count; ++i) {
        to[i] = floats[first + i * step];
      }
      break;
    case HR_DTYPE_F16:
      for (int64_t i = 0; i < count; ++i) {
        to[i] = HR__LOAD_F16(halves[first + i * step]);
      }
      break;
    default:
      for (int64_t i = 0; i < count; ++i) {
        to[i] = HR__LOAD_BF16(halves[first + i * step]);
      }
  }
}

static inline void store_float(void *to, hr_dtype dtype, int64_t at, float value) {
  if (dtype == HR_DTYPE_F32) {
    ((float *)to)[at] = value;
  } else {
    ((uint16_t *)to)[at] = dtype == HR_DTYPE_F16 ? hr_f32_to_f16(value) : hr_f32_to_bf16(value);
  }
}

static inline vector multiply_add(vector x, vector w, vector sum) {
#if defined(__FMA__)
  return _mm256_fmadd_ps(x, w, sum);
#else
  return x * w + sum;
#endif
}

static inline float sum_of(vector a) {
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/* ---- x in the order of lanes, and its sums ---- */

static void order_row(const call *c, int64_t row, float *restrict plain) {
  const hr_prepared *p = c->p;
  int64_t count = 32 / p->bits, span = LANES * count;
  int64_t first = p->x.offset + row / p->rows * p->x.matrix + row % p->rows * p->x.row;
  load_floats(c->x, p->x.dtype, first, p->x.column, p->inner, plain);
  for (int64_t g = 0; g < p->groups; ++g) {
    float sum = 0;
    for (int64_t i = 0; i < p->group; ++i) {
      sum += plain[g * p->group + i];
    }
    c->sums[row * p->groups + g] = sum;
  }
  float part[LANES * 16];
  for (int64_t k = 0; k < p->inner; k += span) {
    memcpy(part, plain + k, (size_t)span * sizeof *part);
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t i = 0; i < LANES; ++i) {
        plain[k + j * LANES + i] = part[i * count + j];
      }
    }
  }
}

static void order_rows(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  for (int64_t row = begin; row < end; ++row) {
    order_row(c, row, c->ordered + row * c->p->inner);
  }
}

/* ---- products ---- */

/* The scales of `pieces` groups, each for as many of the lanes. */
static inline vector lane_scales(const float *scales, int pieces) {
  float s = scales[0];
  vector all = {s, s, s, s, s, s, s, s};
  for (int i = 0; pieces > 1 && i < LANES; ++i) {
    all[i] = scales[i * pieces / LANES];
  }
  return all;
}

/* sums[r] += products of `inner` numbers of a row of words with x[r], in vectors. A group has whole vectors of words,
 * or a vector has `pieces` groups. Sums of few rows are scaled once for each group, and have several parts, because one
 * would wait for itself; of many rows the numbers are scaled. */
static inline __attribute__((always_inline)) void add_products(const uint32_t *words, const float *scales,
                                                               const float *const *x, int64_t inner, int group,
                                                               int rows, int bits, vector *sums) {
  const int count = 32 / bits, span = LANES * count, pieces = span > group ? span / group : 1;
  const int64_t same = span > group ? span : group; /* numbers for which the scales are the same */
  const int parts = rows <= 2 ? 4 : rows <= 4 ? 2 : 0;
  const uint32_t mask = (1u << bits) - 1;
  vector all[TILE];
  for (int r = 0; r < rows; ++r) {
    all[r] = sums[r];
  }
  for (int64_t first = 0; first < inner; first += same, scales += pieces) {
    vector scale = lane_scales(scales, pieces), part[8] = {{0}};
    for (int64_t k = first; k < first + same; k += span, words += LANES) {
      words8 w;
      memcpy(&w, words, sizeof w);
      for (int j = 0; j < count; ++j) {
        vector number = __builtin_convertvector((integers8)(w >> (uint32_t)(j * bits) & mask), vector);
        number = parts == 0 ? number * scale : number;
        for (int r = 0; r < rows; ++r) {
          vector factor, *to = parts == 0 ? &all[r] : &part[r * parts + j % parts];
          memcpy(&factor, x[r] + k + j * LANES, sizeof factor);
          *to = multiply_add(factor, number, *to);
        }
      }
    }
    for (int r = 0; r < rows && parts > 0; ++r) {
      vector *of = &part[r * parts];
      all[r] = multiply_add(parts == 4 ? (of[0] + of[1]) + (of[2] + of[3]) : of[0] + of[1], scale, all[r]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    sums[r] = all[r];
  }
}

#define WITH_BITS(ROWS)                                                            \
  (p->bits == 4   ? add_products(words, scales, x, inner, p->group, ROWS, 4, sums) \
   : p->bits == 8 ? add_products(words, scales, x, inner, p->group, ROWS, 8, sums) \
                  : add_products(words, scales, x, inner, p->group, ROWS, 2, sums))

/* rows: a power of two. */
static void add_tile(const hr_prepared *p, const uint32_t *words, const float *scales, const float *const *x,
                     int64_t inner, int rows, vector *sums) {
  switch (rows) {
    case 1:
      WITH_BITS(1);
      break;
    case 2:
      WITH_BITS(2);
      break;
    case 4:
      WITH_BITS(4);
      break;
    default:
      WITH_BITS(8);
  }
}

/* The first element of row n of a matrix. */
static int64_t first_of(const place *w, int64_t matrix, int64_t n) {
  return w->offset + matrix * w->matrix + n * w->row;
}

/* sum over groups of biases of column n times sums of a row of x. */
static float biased(const call *c, int64_t matrix, int64_t n, const float *sums) {
  const hr_prepared *p = c->p;
  float total = 0, biases[GROUPS];
  for (int64_t g = 0; g < p->groups; g += GROUPS) {
    int64_t count = hr_min(p->groups - g, GROUPS);
    load_floats(c->biases, p->biases.dtype, first_of(&p->biases, matrix, n) + g * p->biases.column, p->biases.column,
                count, biases);
    vector part = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
      vector b, s;
      memcpy(&b, biases + i, sizeof b);
      memcpy(&s, sums + g + i, sizeof s);
      part = multiply_add(b, s, part);
    }
    for (; i < count; ++i) {
      total += biases[i] * sums[g + i];
    }
    total += sum_of(part);
  }
  return total;
}

/* Columns [first, first + count) of `rows` rows. */
static void multiply_block(const call *c, int64_t matrix, int64_t row, int rows, int64_t first, int64_t count) {
  const hr_prepared *p = c->p;
  int64_t above = matrix * p->rows + row; /* rows of x before these */
  int64_t span = LANES * 32 / p->bits, unit = span > p->group ? span : p->group;
  int64_t chunk = hr_max(CHUNK / rows / unit, 1) * unit;
  vector sums[BLOCK][TILE];
  memset(sums, 0, sizeof sums);
  for (int64_t k = 0; k < p->inner; k += chunk) {
    int64_t inner = hr_min(p->inner - k, chunk);
    const float *x[TILE];
    for (int r = 0; r < rows; ++r) {
      x[r] = c->ordered + (above + r) * p->inner + k;
    }
    for (int64_t n = 0; n < count; ++n) {
      float scales[GROUPS];
      load_floats(c->scales, p->scales.dtype, first_of(&p->scales, matrix, first + n) + k / p->group * p->scales.column,
                  p->scales.column, inner / p->group, scales);
      const uint32_t *words = c->w + first_of(&p->w, matrix, first + n) + k * p->bits / 32;
      add_tile(p, words, scales, x, inner, rows, sums[n]);
    }
  }
  for (int64_t n = 0; n < count; ++n) {
    for (int r = 0; r < rows; ++r) {
      float value = sum_of(sums[n][r]) + biased(c, matrix, first + n, c->sums + (above + r) * p->groups);
      store_float(c->y, p->y.dtype, first_of(&p->y, matrix, row + r) + (first + n) * p->y.column, value);
    }
  }
}

static void run_blocks(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const hr_prepared *p = c->p;
  int64_t blocks = hr_divide_up(p->columns, BLOCK);
  for (int64_t block = begin; block < end; ++block) {
    int64_t first = block % blocks * BLOCK, count = hr_min(p->columns - first, BLOCK);
    for (int64_t row = 0, rows = TILE; row < p->rows; row += rows) {
      while (rows > p->rows - row) {
        rows /= 2;
      }
      multiply_block(c, block / blocks, row, (int)rows, first, count);
    }
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {
      .p = p, .x = args[0], .w = args[1], .scales = args[2], .biases = args[3], .y = args[4], .ordered = workspace};
  int64_t rows = p->matrices * p->rows, blocks = p->matrices * hr_divide_up(p->columns, BLOCK);
  c.sums = c.ordered + rows * p->inner;
  bool is_serial = !needs_team(p);
  hr_parallel_for(rows, rows * p->inner > SERIAL_NUMBERS ? 1 : rows, order_rows, &c);
  hr_parallel_for(blocks, is_serial ? blocks : 1, run_blocks, &c);
  return HR_OK;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

static void release(hr_prepared *prepared) {
  hr_free(prepared);
}

const hr_provider HR_CPU_NAME(hr__packed_provider) = {
    .name = "packed",
    .is_apart = true,
    .supports = supports,
    .prepare = prepare,
    .renumber = renumber,
    .needs_team = needs_team,
    .run = run,
    .footprint = footprint,
    .release = release,
};
