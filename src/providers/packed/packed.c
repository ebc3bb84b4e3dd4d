/* packed.c: products of few rows with quantised weights, y = x w^T or x w, w = scale * number + bias, on packed
 * numbers.
 *
 * The weights are read once, with a half to an eighth of the bytes of f16, and never written out. Numbers become
 * vectors in the order of lanes (numbers.h), so x is put into that order first. The biases are multiplied by sums of x
 * over groups. Threads share columns. Up to eight rows of x use a number while it is in a register; a chunk of their
 * columns stays in the L1 cache. Words of w [K, N] are columns.c's.
 *
 * f32, f16 and bf16, computed in f32; sums have an order that depends on the shape alone. Rows of words that are not
 * whole vectors are lowered (lower_quantized.c).
 */
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "core/ops/packing.h"
#include "providers/packed/numbers.h"
#include "providers/provider.h"

enum { TILE = 8, BLOCK = 16, CHUNK = 4096, GROUPS = CHUNK / 16, GROUP_MOST = 512 };
/* TILE: rows of x at a time; BLOCK: columns; CHUNK: numbers of x, all rows of a tile together; GROUP_MOST: of w [K, N]
 */
static const int64_t SERIAL_NUMBERS = 1 << 15;
static const int64_t ROWS_MOST =
    64; /* a library's product of more rows is faster, although weights are unpacked first */

struct hr_prepared {
  product product;
  int64_t groups; /* of a row of x */
  int y_arg;
};

/* ---- nodes ---- */

static bool is_float(const hr_operand *x) {
  return x->dtype == HR_DTYPE_F32 || x->dtype == HR_DTYPE_F16 || x->dtype == HR_DTYPE_BF16;
}

static bool is_scale(const hr_operand *x) {
  return is_float(x) || x->dtype == HR_DTYPE_F8E4M3FN || x->dtype == HR_DTYPE_F8E8M0FNU;
}

/* Dim d of a matrix, behind that of the batch. */
static int64_t dim(const hr_operand *x, int d) {
  return x->dims[x->rank - 2 + d];
}

static hr_packing packing_of(const hr_node *node) {
  return hr_packing_of(node->ints, node->int_count);
}

static bool has_biases(const hr_node *node) {
  return node->input_count > 3 && node->inputs[3].kind != HR_OPERAND_NONE;
}

static bool runs(hr_op op) {
  return op == HR_OP_QUANTIZED_MATMUL;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  if (!runs(node->op) || node->epilogue_count > 0) {
    return false;
  }
  const hr_operand *x = &node->inputs[0], *w = &node->inputs[1];
  bool is = is_float(x) && is_scale(&node->inputs[2]) && is_float(&node->outputs[0]);
  is = is && (!has_biases(node) || (is_float(&node->inputs[3]) && node->inputs[3].kind == HR_OPERAND_VALUE));
  for (int i = 0; i < 3; ++i) {
    is = is && node->inputs[i].kind == HR_OPERAND_VALUE;
  }
  hr_packing p = packing_of(node);
  int64_t span = is ? span_of(kind_of((int)p.bits, p.is_float)) : 1;
  is = is && (p.group % span == 0 || span % p.group == 0) && (!p.has_columns || p.group <= GROUP_MOST);
  return is && dim(x, 0) > 0 && dim(x, 0) <= ROWS_MOST && w->dims[0] > 0 && dim(w, 0) > 0 && dim(w, 1) > 0 &&
         (32 % p.bits != 0 || dim(w, 1) % LANES == 0) && w->strides[w->rank - 1] == 1;
}

static place place_of(const hr_operand *x) {
  return (place){.dtype = x->dtype,
                 .offset = x->offset,
                 .matrix = x->rank == 3 ? x->strides[0] : 0,
                 .row = x->strides[x->rank - 2],
                 .column = x->strides[x->rank - 1]};
}

static size_t plan(const hr_node *node, hr_prepared *prepared) {
  const hr_operand *x = &node->inputs[0];
  product *p = &prepared->product;
  hr_packing how = packing_of(node);
  *p = (product){.matrices = x->rank == 3 ? x->dims[0] : 1,
                 .rows = dim(x, 0),
                 .columns = dim(&node->outputs[0], 1),
                 .inner = dim(x, 1),
                 .group = (int)how.group,
                 .kind = kind_of((int)how.bits, how.is_float),
                 .has_columns = how.has_columns,
                 .has_biases = has_biases(node),
                 .x = place_of(x),
                 .w = place_of(&node->inputs[1]),
                 .scales = place_of(&node->inputs[2]),
                 .y = place_of(&node->outputs[0])};
  if (p->has_biases) {
    p->biases = place_of(&node->inputs[3]);
  }
  prepared->y_arg = node->input_count;
  prepared->groups = p->has_columns ? 0 : p->inner / p->group;
  return (size_t)(p->matrices * p->rows * (p->inner + prepared->groups)) * sizeof(float);
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

static bool needs_team(const hr_prepared *prepared) {
  const product *p = &prepared->product;
  return p->matrices * p->rows * p->inner * p->columns > SERIAL_NUMBERS;
}

static inline float sum_of(vector a) {
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

static int64_t groups_of(const product *p) {
  return p->inner / p->group;
}

/* ---- x in the order of lanes, and its sums ---- */

static void sum_groups(const product *p, const float *row, float *sums) {
  for (int64_t g = 0; g < groups_of(p); ++g) {
    float sum = 0;
    for (int64_t i = 0; i < p->group; ++i) {
      sum += row[g * p->group + i];
    }
    sums[g] = sum;
  }
}

/* Numbers that are `count` apart become a vector. */
static void order_span(int count, float *restrict numbers) {
  float part[LANES * 16];
  memcpy(part, numbers, (size_t)(LANES * count) * sizeof *part);
  for (int j = 0; j < count; ++j) {
    for (int i = 0; i < LANES; ++i) {
      numbers[j * LANES + i] = part[i * count + j];
    }
  }
}

static void order_row(const call *c, int64_t row, float *restrict plain) {
  const product *p = c->p;
  int64_t first = p->x.offset + row / p->rows * p->x.matrix + row % p->rows * p->x.row;
  load_floats(c->x, p->x.dtype, first, p->x.column, p->inner, plain);
  if (p->has_columns) {
    return;
  }
  sum_groups(p, plain, c->sums + row * groups_of(p));
  const int span = span_of(p->kind);
  for (int64_t k = 0; is_interleaved(p->kind) && k < p->inner; k += span) {
    order_span(span / LANES, plain + k);
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

/* sums[r] += products of `inner` numbers of a row of words with x[r], in vectors. A group has whole vectors of words,
 * or a vector has `pieces` groups. Sums of few rows are scaled once for each group, and have several parts, because one
 * would wait for itself; of many rows the numbers are scaled. */
PACKED_INLINE void add_products(const uint32_t *words, const float *scales, const float *const *x, int64_t inner,
                                int group, int rows, number_kind kind, vector *sums) {
  const int span = span_of(kind), step = span * bits_of(kind) / 32, pieces = span > group ? span / group : 1;
  const int64_t same = span > group ? span : group; /* numbers for which the scales are the same */
  const int parts = rows <= 2 ? 4 : rows <= 4 ? 2 : 0;
  const words8 of_lanes = lane_groups(pieces);
  vector all[TILE];
  for (int r = 0; r < rows; ++r) {
    all[r] = sums[r];
  }
  for (int64_t first = 0; first < inner; first += same, scales += pieces) {
    vector scale = lane_scales(scales, of_lanes), part[8] = {{0}};
    for (int64_t k = first; k < first + same; k += span, words += step) {
      words8 loaded = load_words(kind, words);
      for (int j = 0; j < span / LANES; ++j) {
        vector number = decode(kind, words, loaded, j);
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

#define OF_KIND(ROWS, KIND)                                            \
  case KIND:                                                           \
    add_products(words, scales, x, inner, p->group, ROWS, KIND, sums); \
    break
#define OF_EACH_KIND(ROWS)   \
  switch (p->kind) {         \
    OF_KIND(ROWS, INT2);     \
    OF_KIND(ROWS, INT3);     \
    OF_KIND(ROWS, INT4);     \
    OF_KIND(ROWS, INT5);     \
    OF_KIND(ROWS, INT6);     \
    OF_KIND(ROWS, INT8);     \
    OF_KIND(ROWS, FLOAT4);   \
    default:                 \
      OF_KIND(ROWS, FLOAT8); \
  }

/* rows: a power of two. */
static void add_tile(const product *p, const uint32_t *words, const float *scales, const float *const *x, int64_t inner,
                     int rows, vector *sums) {
  switch (rows) {
    case 1:
      OF_EACH_KIND(1);
      break;
    case 2:
      OF_EACH_KIND(2);
      break;
    case 4:
      OF_EACH_KIND(4);
      break;
    default:
      OF_EACH_KIND(8);
  }
}

/* sum over groups of biases of column n times sums of a row of x. */
static float biased(const call *c, int64_t matrix, int64_t n, const float *sums) {
  const product *p = c->p;
  float total = 0, biases[GROUPS];
  for (int64_t g = 0; g < groups_of(p); g += GROUPS) {
    int64_t count = hr_min(groups_of(p) - g, GROUPS);
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
  const product *p = c->p;
  int64_t above = matrix * p->rows + row; /* rows of x before these */
  int64_t unit = hr_max(span_of(p->kind), p->group);
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
      float scales[GROUPS + LANES]; /* read in vectors */
      load_floats(c->scales, p->scales.dtype, first_of(&p->scales, matrix, first + n) + k / p->group * p->scales.column,
                  p->scales.column, inner / p->group, scales);
      const uint32_t *words = c->w + first_of(&p->w, matrix, first + n) + k * bits_of(p->kind) / 32;
      add_tile(p, words, scales, x, inner, rows, sums[n]);
    }
  }
  for (int64_t n = 0; n < count; ++n) {
    for (int r = 0; r < rows; ++r) {
      const float *of_x = c->sums + (above + r) * groups_of(p);
      float value = sum_of(sums[n][r]) + (p->has_biases ? biased(c, matrix, first + n, of_x) : 0);
      store_float(c->y, p->y.dtype, first_of(&p->y, matrix, row + r) + (first + n) * p->y.column, value);
    }
  }
}

static void run_blocks(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const call *c = arg;
  const product *p = c->p;
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

/* ---- rows of x with infinities ---- */

/* The loops above multiply a group's numbers and bias one by one, and an infinity times a number of 0 is NaN. */

/* True if there is an infinity and no NaN. */
static bool is_infinite(const float *x, int64_t count) {
  bool has_infinity = false, has_nan = false;
  for (int64_t i = 0; i < count; ++i) {
    has_infinity |= x[i] - x[i] != 0;
    has_nan |= x[i] != x[i];
  }
  return has_infinity && !has_nan;
}

/* scale * number + bias: number i of a row of words. */
static float weight_at(const call *c, int64_t matrix, int64_t row, int64_t i) {
  const product *p = c->p;
  int64_t span = span_of(p->kind), first = i / span * span, group = i / p->group;
  int at = place_in_span(p->kind, (int)(i - first));
  const uint32_t *words = c->w + first_of(&p->w, matrix, row) + first * bits_of(p->kind) / 32;
  vector numbers = decode(p->kind, words, load_words(p->kind, words), at / LANES);
  float scale, bias = 0;
  load_floats(c->scales, p->scales.dtype, first_of(&p->scales, matrix, row) + group * p->scales.column, 0, 1, &scale);
  if (p->has_biases) {
    load_floats(c->biases, p->biases.dtype, first_of(&p->biases, matrix, row) + group * p->biases.column, 0, 1, &bias);
  }
  return scale * numbers[at % LANES] + bias;
}

static float plain_product(const call *c, int64_t matrix, const float *x, int64_t n) {
  const product *p = c->p;
  int64_t span = p->has_columns ? 1 : span_of(p->kind);
  float sum = 0;
  for (int64_t k = 0; k < p->inner; ++k) {
    int64_t at = p->has_columns ? k : k / span * span + place_in_span(p->kind, (int)(k % span));
    sum += x[at] * (p->has_columns ? weight_at(c, matrix, k, n) : weight_at(c, matrix, n, k));
  }
  return sum;
}

/* Results that are NaN, again. */
static void multiply_infinities(const call *c) {
  const product *p = c->p;
  for (int64_t row = 0; row < p->matrices * p->rows; ++row) {
    const float *x = c->ordered + row * p->inner;
    int64_t matrix = row / p->rows, to = first_of(&p->y, matrix, row % p->rows);
    for (int64_t n = is_infinite(x, p->inner) ? 0 : p->columns; n < p->columns; ++n) {
      float before;
      load_floats(c->y, p->y.dtype, to + n * p->y.column, 0, 1, &before);
      if (isnan(before)) {
        store_float(c->y, p->y.dtype, to + n * p->y.column, plain_product(c, matrix, x, n));
      }
    }
  }
}

static hr_status run(hr_prepared *prepared, void *const *args, void *workspace, void *queue) {
  (void)queue;
  const product *p = &prepared->product;
  call c = {.p = p, .x = args[0], .w = args[1], .scales = args[2], .y = args[prepared->y_arg], .ordered = workspace};
  c.biases = p->has_biases ? args[3] : NULL;
  int64_t rows = p->matrices * p->rows;
  int64_t blocks = p->has_columns ? hr__packed_column_blocks(p) : p->matrices * hr_divide_up(p->columns, BLOCK);
  c.sums = c.ordered + rows * p->inner;
  bool is_serial = !needs_team(prepared);
  hr_parallel_for(rows, rows * p->inner > SERIAL_NUMBERS ? 1 : rows, order_rows, &c);
  hr_parallel_for(blocks, is_serial ? blocks : 1, p->has_columns ? hr__packed_run_columns : run_blocks, &c);
  multiply_infinities(&c);
  return HR_OK;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

const hr_provider HR_CPU_NAME(hr__packed_provider) = {
    .name = "packed",
    .is_apart = true,
    .runs = runs,
    .supports = supports,
    .prepare = prepare,
    .renumber = renumber,
    .needs_team = needs_team,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};
