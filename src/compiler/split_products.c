/* Products of f32 as products of 16-bit numbers, for devices that multiply these many times as fast (tensor cores).
 *
 *   before   %2:f32[M,N] = matmul(%0:f32[M,K], %1:f32[K,N])
 *   after    loop %3:bf16[c,M,6,k] = the parts of %0        loop %4:bf16[c,6,k,N] = the parts of %1
 *            %5:f32[c,M,N] = matmul(%3:bf16[c,M,6k], %4:bf16[c,6k,N])
 *            loop %2:f32[M,N] = %5[0] + %5[1] + ..
 *
 * An f32 is exactly the sum of three bf16, high + middle + low, of 8 bits each. Of the nine products of two such sums
 * six are computed, exactly, the smallest first. The other three are below 2^-24 of the result, as f32's own rounding
 * is. Tensor cores round their sums towards zero, so a long sum would lose bits: sums have at most CHUNK terms, and
 * those of all chunks are added in f32. On an H200 the error is 0.5 to 2 times that of cuBLASLt's f32.
 *
 * A factor that is infinite or NaN meets the other factor's high part alone: times its other parts, which may be 0, it
 * would be NaN. Numbers below 2^-110 lose bits, since bf16 has no smaller ones.
 *
 * The last chunk may end in zeros. Parts and sums have rows and columns in multiples of 8, as fast kernels need: those
 * behind the last ones have undefined values, and nobody reads their sums. If parts and sums would take more memory
 * than the target allows, the larger factor is cut, and its pieces are multiplied one after the other. The pass asks
 * whether the product is long enough to pay for its parts.
 */
#include <math.h>

#include "base/integer.h"
#include "compiler/passes.h"
#include "core/ir/build.h"
#include "core/ir/dtype.h"

enum {
  UNIT = 8,
  PIECES = 64,
  PRODUCTS = 6,
  CHUNK = 512,
  LONG_CHUNK = 1024,
  CHUNKS = 16 /* with more, chunks are long */
};
/* Of an H200: multiplications of f32 that take longer than those of six products by a byte of memory traffic's time,
 * and those of two more kernels. */
static const double WORK_OF_BYTE = 14, WORK_LEAST = 1 << 28;

typedef struct product {
  hr_operand left, right, out, bias; /* [M, K], [N, K], [M, N], [N] or none */
  int64_t rows, columns, depth, chunk, chunks;
  int64_t piece; /* rows or columns that are multiplied at a time */
  bool cuts_columns;
  int64_t rows_made; /* with the undefined ones that fast kernels need: columns of the left factor in memory */
  bool makes_result; /* the sums are the result */
} product;

/* ---- nodes ---- */

static bool is_plain(const hr_operand *x) {
  return x->kind == HR_OPERAND_VALUE && x->dtype == HR_DTYPE_F32 && x->term_count == 0 && x->bound_count == 0 &&
         x->rank >= 1;
}

static bool has_form(const hr_node *node) {
  return !node->is_loop && node->op == HR_OP_MATMUL && node->epilogue_count == 0 && node->scalar_count == 0 &&
         is_plain(&node->inputs[0]) && is_plain(&node->inputs[1]) && is_plain(&node->outputs[0]) &&
         node->outputs[0].rank >= 2;
}

/* The rows of all matrices of a batch, one after the other; false: their distance changes. */
static bool fold_rows(const hr_operand *x, int64_t *out_rows, int64_t *out_stride) {
  int64_t rows = 1, stride = 0;
  for (int d = x->rank - 2; d >= 0; --d) {
    if (x->dims[d] != 1 && rows != 1 && x->strides[d] != stride * rows) {
      return false;
    }
    stride = x->dims[d] != 1 && rows == 1 ? x->strides[d] : stride;
    rows *= x->dims[d];
  }
  *out_rows = rows, *out_stride = stride;
  return true;
}

/* True if all dims but the last `count` are steps on the spot. */
static bool is_repeated(const hr_operand *x, int count) {
  bool is = true;
  for (int d = 0; d < x->rank - count; ++d) {
    is = is && (x->dims[d] == 1 || x->strides[d] == 0);
  }
  return is;
}

static hr_operand matrix(hr_builder *b, hr_operand x, int64_t rows, int64_t columns, int64_t row_stride,
                         int64_t column_stride) {
  return hr_view_strided(b, x, 2, (int64_t[]){rows, columns}, (int64_t[]){row_stride, column_stride}, x.offset);
}

static hr_operand turned(hr_builder *b, hr_operand x) {
  return hr_view_permute(b, x, (int[]){1, 0});
}

/* The node as one product of two matrices; false: it is none. */
static bool find_product(hr_builder *b, const hr_node *node, product *p) {
  if (!has_form(node)) {
    return false;
  }
  hr_operand left = node->inputs[0], right = node->inputs[1], out = node->outputs[0], bias = hr_node_input(node, 2);
  int64_t rows, row_stride, out_rows, out_stride;
  int last = out.rank - 1, deep = right.rank - 2;
  if (left.rank != out.rank || right.rank < 2 || !fold_rows(&left, &rows, &row_stride) ||
      !fold_rows(&out, &out_rows, &out_stride) || rows != out_rows || !is_repeated(&right, 2)) {
    return false;
  }
  *p = (product){.rows = rows, .columns = out.dims[last], .depth = left.dims[last], .bias = bias};
  if (hr_is_present(bias) && (!is_plain(&bias) || !is_repeated(&bias, 1) || bias.dims[bias.rank - 1] != p->columns)) {
    return false;
  }
  p->left = matrix(b, left, rows, p->depth, row_stride, left.strides[last]);
  p->right = matrix(b, right, p->columns, p->depth, right.strides[deep + 1], right.strides[deep]);
  p->out = matrix(b, out, rows, p->columns, out_stride, out.strides[last]);
  if (hr_is_present(bias)) {
    p->bias = hr_view_strided(b, bias, 1, &p->columns, &bias.strides[bias.rank - 1], bias.offset);
  } else if (b->status == HR_OK && p->out.strides[1] != 1 && p->out.strides[0] == 1) { /* stored by columns */
    hr_operand was = p->left;
    p->left = p->right, p->right = was, p->out = turned(b, p->out);
    p->rows = p->columns, p->columns = rows;
  }
  return b->status == HR_OK && p->rows > 0 && p->columns > 0 && p->depth > 0;
}

static bool is_by_columns(const hr_operand *x) {
  return x->strides[0] == 1 && x->strides[1] != 1;
}

static void divide_depth(product *p, int64_t terms) {
  int64_t most = terms > 0 ? terms : p->depth > CHUNKS * CHUNK ? LONG_CHUNK : CHUNK;
  int64_t chunks = hr_divide_up(p->depth, most);
  p->chunk = hr_round_up(hr_divide_up(p->depth, chunks), UNIT);
  p->chunks = hr_divide_up(p->depth, p->chunk);
}

static void find_sums(product *p) {
  p->rows_made = is_by_columns(&p->left) ? hr_round_up(p->rows, UNIT) : p->rows;
  p->makes_result = p->chunks == 1 && !hr_is_present(p->bias) && p->rows == p->rows_made && p->columns % UNIT == 0 &&
                    p->out.strides[1] == 1 && p->out.strides[0] % UNIT == 0 && p->out.offset % UNIT == 0;
}

/* Cuts the larger factor into pieces so that the temporaries of each fit into the limit; false: they don't. */
static bool cut(product *p, double limit) {
  double bytes = PRODUCTS * 2 * (double)(p->chunk * p->chunks);
  double left = bytes * (double)p->rows, right = bytes * (double)p->columns;
  double sums = p->makes_result ? 0 : 4.0 * (double)p->chunks * (double)p->rows * (double)p->columns;
  double room = limit - fmin(left, right), pieces = room > 0 ? ceil((fmax(left, right) + sums) / room) : INFINITY;
  if (pieces > PIECES) {
    return false;
  }
  p->cuts_columns = right > left;
  p->piece = hr_round_up(hr_divide_up(p->cuts_columns ? p->columns : p->rows, (int64_t)pieces), UNIT);
  return true;
}

static bool is_worth(const product *p, const hr_target *target) {
  double m = (double)p->rows, n = (double)p->columns, k = (double)p->depth, c = (double)p->chunks;
  double traffic = (PRODUCTS * 2 + 4) * (m + n) * k + (p->makes_result ? 0 : 8 * c * m * n);
  return target->split_terms > 0 || m * n * k > WORK_OF_BYTE * traffic + WORK_LEAST;
}

/* ---- parts ---- */

/* In f32; `first` is of high, or infinite, or NaN. */
typedef enum part { HIGH, MIDDLE, LOW, FIRST, PARTS } part;

static const part of_left[PRODUCTS] = {HIGH, LOW, MIDDLE, HIGH, MIDDLE, FIRST};
static const part of_right[PRODUCTS] = {LOW, HIGH, MIDDLE, MIDDLE, HIGH, FIRST};

/* As bf16, but in f32. */
static hr_operand rounded(hr_builder *b, hr_operand x) {
  return hr_make1(b, HR_OP_COPY, HR_DTYPE_F32, hr_make1(b, HR_OP_COPY, HR_DTYPE_BF16, x));
}

static void split(hr_builder *b, hr_operand x, hr_operand out_parts[PARTS]) {
  const double most = 0x1.fep127; /* of bf16 */
  hr_operand zero = hr_build_f64(b, 0);
  hr_operand size = hr_make1(b, HR_OP_ABS, HR_DTYPE_F32, x);
  hr_operand is_finite = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, size, hr_build_f64(b, INFINITY));
  hr_operand near = hr_make3(b, HR_OP_CLAMP, HR_DTYPE_F32, x, hr_build_f64(b, -most), hr_build_f64(b, most));
  hr_operand number = hr_make3(b, HR_OP_WHERE, HR_DTYPE_F32, is_finite, x, zero);
  out_parts[HIGH] = rounded(b, hr_make3(b, HR_OP_WHERE, HR_DTYPE_F32, is_finite, near, zero));
  hr_operand rest = hr_make2(b, HR_OP_SUB, HR_DTYPE_F32, number, out_parts[HIGH]);
  out_parts[MIDDLE] = rounded(b, rest);
  out_parts[LOW] = hr_make2(b, HR_OP_SUB, HR_DTYPE_F32, rest, out_parts[MIDDLE]);
  out_parts[FIRST] = hr_make3(b, HR_OP_WHERE, HR_DTYPE_F32, is_finite, out_parts[HIGH], x);
}

/* The parts of a matrix, which several products may read. */
typedef struct packing {
  hr_operand matrix, parts;
  const part *order;
  int64_t chunk;
  int end; /* the node behind those that write them */
} packing;
typedef HR_VECTOR(packing) packings;

static bool is_same(const hr_operand *x, const hr_operand *y) {
  return x->index == y->index && x->offset == y->offset && x->dims[0] == y->dims[0] && x->dims[1] == y->dims[1] &&
         x->strides[0] == y->strides[0] && x->strides[1] == y->strides[1];
}

/* True if no node from `from` on writes to the buffer. */
static bool is_unchanged(const hr_program *program, uint32_t buffer, int from) {
  bool is = true;
  for (int n = from; is && n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    for (int i = 0; i < node->output_count; ++i) {
      is = is && (node->outputs[i].kind != HR_OPERAND_VALUE || node->outputs[i].index != buffer);
    }
  }
  return is;
}

/* NULL: they are not there. */
static const packing *find_packing(const hr_program *program, const packings *all, hr_operand x, const product *p,
                                   const part *order) {
  const packing *found = NULL;
  for (size_t i = 0; i < all->count && found == NULL; ++i) {
    const packing *q = &all->data[i];
    bool is = q->order == order && q->chunk == p->chunk && is_same(&q->matrix, &x);
    found = is && is_unchanged(program, x.index, q->end) ? q : NULL;
  }
  return found;
}

/* The parts of a matrix [R, K] for six products: bf16 [c, R rounded up, 6 k], each chunk with the matrix's order in
 * memory. */
static hr_operand pack(hr_builder *b, hr_operand x, const product *p, const part order[PRODUCTS]) {
  if (b->status != HR_OK) {
    return x;
  }
  int64_t rows = x.dims[0], c = p->chunks, k = p->chunk, depth = x.dims[1];
  bool by_columns = is_by_columns(&x);
  int64_t pitch = hr_round_up(rows, UNIT), depth_of_parts = PRODUCTS * k;
  hr_operand parts[PARTS];
  x = hr_view_strided(b, x, 3, (int64_t[]){rows, c, k}, (int64_t[]){x.strides[0], k * x.strides[1], x.strides[1]},
                      x.offset);
  if (c * k != depth) {
    x = hr_view_fill(b, hr_view_bound(b, x, 0, (int64_t[]){0, k, 1}, depth), hr_build_f64(b, 0));
  }
  x = by_columns ? hr_view_permute(b, x, (int[]){1, 2, 0}) : x;
  split(b, x, parts);
  hr_operand packed = hr_build_temp(b, HR_DTYPE_BF16, 3, (int64_t[]){c, pitch, depth_of_parts});
  const int64_t steps[3] = {pitch * depth_of_parts, by_columns ? 1 : depth_of_parts, by_columns ? pitch : 1};
  for (int i = 0; i < PRODUCTS && b->status == HR_OK; ++i) {
    const int64_t rows_first[3] = {steps[1], steps[0], steps[2]}, chunks_first[3] = {steps[0], steps[2], steps[1]};
    hr_operand place = hr_view_strided(b, packed, 3, x.dims, by_columns ? chunks_first : rows_first, i * k * steps[2]);
    hr_emit1(b, HR_OP_COPY, place, parts[order[i]]);
  }
  return b->status == HR_OK ? hr_view_strided(b, packed, 3, packed.dims, steps, 0) : packed;
}

static hr_operand pack_once(hr_builder *b, packings *all, hr_operand x, const product *p, const part *order) {
  const packing *found = b->status == HR_OK ? find_packing(b->program, all, x, p, order) : NULL;
  if (found != NULL) {
    return found->parts;
  }
  hr_operand parts = pack(b, x, p, order);
  if (b->status == HR_OK && !hr_vector_push(all, ((packing){x, parts, order, p->chunk, b->program->node_count}))) {
    b->status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "split products: no memory for a matrix");
  }
  return parts;
}

/* ---- the product ---- */

static hr_operand sums_of(hr_builder *b, hr_operand sums, const product *p, int64_t chunk) {
  return matrix(b, hr_view_slice(b, sums, 0, chunk, 1, 1), p->rows, p->columns, sums.strides[1], 1);
}

static void add_chunks(hr_builder *b, const product *p, hr_operand sums) {
  hr_operand sum = b->status == HR_OK ? sums_of(b, sums, p, 0) : sums;
  for (int64_t i = 1; i < p->chunks && b->status == HR_OK; ++i) {
    sum = hr_make2(b, HR_OP_ADD, HR_DTYPE_F32, sum, sums_of(b, sums, p, i));
  }
  if (hr_is_present(p->bias)) {
    hr_emit2(b, HR_OP_ADD, p->out, sum, p->bias);
  } else {
    hr_emit1(b, HR_OP_COPY, p->out, sum);
  }
}

/* The sums of a piece, and its result. */
static void multiply_parts(hr_builder *b, const product *p, hr_operand left, hr_operand right) {
  const int64_t dims[3] = {p->chunks, p->rows_made, hr_round_up(p->columns, UNIT)};
  left = hr_view_slice(b, left, 1, 0, p->rows_made, 1);
  right = hr_view_permute(b, right, (int[]){0, 2, 1});
  hr_operand sums = p->makes_result ? hr_view_insert(b, p->out, 0, 1) : hr_build_temp(b, HR_DTYPE_F32, 3, dims);
  hr_emit_node(b, HR_OP_MATMUL, 2, (hr_operand[]){left, right}, 1, &sums, 0, NULL);
  if (b->status == HR_OK) {
    b->program->nodes[b->program->node_count - 1].is_relaid = true; /* so that the target is asked again */
  }
  if (!p->makes_result) {
    add_chunks(b, p, sums);
  }
}

static product piece_of(hr_builder *b, const product *p, int64_t at) {
  product piece = *p;
  int64_t left_over = (p->cuts_columns ? p->columns : p->rows) - at,
          length = left_over < p->piece ? left_over : p->piece;
  piece.out = hr_view_slice(b, p->out, p->cuts_columns, at, length, 1);
  if (p->cuts_columns) {
    piece.columns = length, piece.right = hr_view_slice(b, p->right, 0, at, length, 1);
    piece.bias = hr_is_present(p->bias) ? hr_view_slice(b, p->bias, 0, at, length, 1) : p->bias;
  } else {
    piece.rows = length, piece.left = hr_view_slice(b, p->left, 0, at, length, 1);
  }
  if (b->status == HR_OK) {
    find_sums(&piece);
  }
  return piece;
}

/* The loops from node `from` on share kernels with each other alone. Otherwise the parts of all pieces would be written
 * by one kernel, and take up memory at the same time. */
static void separate(hr_program *program, int from) {
  for (int n = from; n < program->node_count; ++n) {
    program->nodes[n].home = -1 - from;
  }
}

/* A piece of the larger factor times all of the other one. */
static void multiply_pieces(hr_builder *b, const product *p, int64_t length) {
  int from = b->program->node_count;
  hr_operand whole = p->cuts_columns ? pack(b, p->left, p, of_left) : pack(b, p->right, p, of_right);
  separate(b->program, from);
  for (int64_t at = 0; at < length && b->status == HR_OK; at += p->piece) {
    from = b->program->node_count;
    const product piece = piece_of(b, p, at);
    hr_operand of_piece = p->cuts_columns ? pack(b, piece.right, p, of_right) : pack(b, piece.left, p, of_left);
    multiply_parts(b, &piece, p->cuts_columns ? whole : of_piece, p->cuts_columns ? of_piece : whole);
    separate(b->program, from);
  }
}

static void multiply(hr_builder *b, packings *all, const product *p) {
  int64_t length = p->cuts_columns ? p->columns : p->rows;
  if (p->piece < length) {
    multiply_pieces(b, p, length);
    return;
  }
  hr_operand left = pack_once(b, all, p->left, p, of_left);
  multiply_parts(b, p, left, pack_once(b, all, p->right, p, of_right));
}

/* The node as a product that is worth it, or false. */
static bool is_split(hr_builder *b, const hr_target *target, const hr_node *node, product *p) {
  if (!find_product(b, node, p)) {
    return false;
  }
  divide_depth(p, target->split_terms);
  find_sums(p);
  return is_worth(p, target) && cut(p, (double)target->split_bytes);
}

static hr_status no_memory(int count) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "split products: no memory for %d nodes", count);
}

/* From node `first` on, which is one. */
static hr_status split_nodes(hr_builder *b, const hr_target *target, packings *all, int first) {
  hr_program *program = b->program;
  int count = program->node_count;
  hr_node *nodes = hr_arena_dup(&program->arena, program->nodes + first, (size_t)(count - first) * sizeof *nodes);
  if (nodes == NULL) {
    return no_memory(count);
  }
  program->node_count = first;
  for (int n = 0; n < count - first && b->status == HR_OK; ++n) {
    product p;
    b->origin = nodes[n].origin;
    if (is_split(b, target, &nodes[n], &p)) {
      multiply(b, all, &p);
    } else if (b->status == HR_OK && !hr_program_append(program, &nodes[n])) {
      return no_memory(count);
    }
  }
  return b->status;
}

hr_status hr_split_products(hr_program *program, const hr_target *target, bool *out_changed) {
  hr_builder b = {.program = program};
  packings all = {0};
  product p;
  int first = 0, count = target->split_bytes > 0 ? program->node_count : 0;
  while (first < count && b.status == HR_OK && !is_split(&b, target, &program->nodes[first], &p)) {
    ++first;
  }
  *out_changed = first < count;
  hr_status status = b.status == HR_OK && *out_changed ? split_nodes(&b, target, &all, first) : b.status;
  hr_vector_fini(&all);
  return status;
}
