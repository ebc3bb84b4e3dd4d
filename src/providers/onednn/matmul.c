/* matmul.c: batched matrix products by oneDNN.
 *
 * oneDNN supports operands whose last two dims are dense in one direction or the other; others (stride 0 or negative,
 * both strides above 1, overlapping matrices) are packed first. A batch dim of stride 0 is a broadcast, which is a dim
 * of 1 in oneDNN. Weights that stay the same are packed into oneDNN's preferred layout and cached (packed_weights.c).
 */
#include <string.h>

#include "core/ir/dtype.h"
#include "providers/onednn/pipe.h"

enum { RANK_MAX = 6, KEPT_ELEMENTS_MIN = 1 << 19 };

typedef struct layout {
  int rank;
  int64_t dims[RANK_MAX], strides[RANK_MAX];
} layout;

static void dense_strides(layout *l) {
  int64_t stride = 1;
  for (int d = l->rank - 1; d >= 0; --d) {
    l->strides[d] = stride;
    stride *= l->dims[d];
  }
}

/* True if each dim's step exceeds the reach of the dims of smaller strides: oneDNN rejects anything else, such as
 * overlapping windows. */
static bool is_nested(const layout *l) {
  bool is_done[RANK_MAX] = {false};
  int64_t reach = 1;
  for (int step = 0; step < l->rank; ++step) {
    int next = -1;
    for (int d = 0; d < l->rank; ++d) {
      bool is_less = next < 0 || l->strides[d] < l->strides[next] ||
                     (l->strides[d] == l->strides[next] && l->dims[d] < l->dims[next]);
      next = !is_done[d] && is_less ? d : next;
    }
    if (l->strides[next] < reach) {
      return false;
    }
    is_done[next] = true;
    reach = l->strides[next] * l->dims[next];
  }
  return true;
}

/* Fills in oneDNN's view of an operand; false if it has to be packed. */
static bool plain_layout(const hr_operand *operand, bool is_output, layout *out) {
  int rank = operand->rank;
  out->rank = rank;
  for (int d = 0; d < rank; ++d) {
    out->dims[d] = operand->dims[d];
    out->strides[d] = operand->strides[d];
    if (d < rank - 2 && operand->strides[d] == 0 && !is_output) {
      out->dims[d] = 1;
    }
  }
  int64_t *rows = &out->strides[rank - 2], *columns = &out->strides[rank - 1];
  int64_t m = out->dims[rank - 2], n = out->dims[rank - 1];
  if (n == 1 && m == 1) {
    *rows = *columns = 1;
  } else if (n == 1) {
    *columns = *rows == 1 && !is_output ? m : 1;
  } else if (m == 1) {
    *rows = *columns == 1 ? n : 1;
  }
  bool row_major = *columns == 1 && *rows >= n, column_major = *rows == 1 && *columns >= m && !is_output;
  if (!row_major && !column_major) {
    return false;
  }
  int64_t span = (row_major ? *rows * m : *columns * n);
  for (int d = rank - 3; d >= 0; --d) {
    if (out->dims[d] == 1) {
      out->strides[d] = span;
    } else if (out->strides[d] <= 0) {
      return false;
    }
  }
  return is_nested(out);
}

static bool is_row_bias(const hr_operand *bias) {
  for (int d = 0; d < bias->rank - 1; ++d) {
    if (bias->strides[d] != 0 && bias->dims[d] != 1) {
      return false;
    }
  }
  return bias->rank >= 1 && (bias->strides[bias->rank - 1] == 1 || bias->dims[bias->rank - 1] == 1);
}

/* Products of narrow types may be f32, without bias and epilogues. */
static bool has_result(const hr_node *node) {
  hr_dtype from = node->inputs[0].dtype, to = node->outputs[0].dtype;
  return from == to || (to == HR_DTYPE_F32 && node->input_count == 2 && node->epilogue_count == 0);
}

/* True if no dim's step is smaller than that of the dim after it. oneDNN's products with post-ops crash on results
 * whose batch lies between the rows. */
static bool is_in_order(const hr_operand *out) {
  int64_t last = 0;
  for (int d = out->rank - 1; d >= 0; --d) {
    if (out->dims[d] != 1 && out->strides[d] < last) {
      return false;
    }
    last = out->dims[d] != 1 ? out->strides[d] : last;
  }
  return true;
}

bool hr__onednn_supports_matmul(const hr_node *node) {
  const hr_operand *a = &node->inputs[0], *b = &node->inputs[1], *out = &node->outputs[0];
  bool has_bias = node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
  if (hr__dnnl_dtype(a->dtype) == 0 || a->dtype != b->dtype || !has_result(node) || a->rank != out->rank ||
      b->rank != out->rank || out->rank < 2 || out->rank > RANK_MAX || a->kind != HR_OPERAND_VALUE ||
      b->kind != HR_OPERAND_VALUE) {
    return false;
  }
  for (int d = 0; d < out->rank; ++d) {
    if (out->dims[d] == 0 || a->dims[d] == 0) {
      return false;
    }
  }
  if (node->epilogue_count > 0 && !(is_in_order(out) && hr__onednn_has_epilogues(node, out->rank - 1, true))) {
    return false;
  }
  return !has_bias || (node->inputs[2].kind == HR_OPERAND_VALUE && node->inputs[2].dtype == a->dtype &&
                       is_row_bias(&node->inputs[2]));
}

/* Each batch dim of the product has to be that of a factor. If both broadcast it, the left one is packed with it, or
 * the right one if the left has dim 1. */
static bool carries_batch(const hr_operand *x, const hr_operand *other, bool is_left) {
  for (int d = 0; d < x->rank - 2; ++d) {
    if (x->dims[d] != 1 && x->strides[d] == 0 && (other->dims[d] == 1 || (is_left && other->strides[d] == 0))) {
      return true;
    }
  }
  return false;
}

static int matmul_operand(hr_prepared *pipe, int arg, const hr_operand *operand, bool is_output, bool is_packed,
                          dnnl_memory_desc *out_desc, pipe_step *unpack) {
  layout plain = {.rank = operand->rank};
  if (!is_packed && plain_layout(operand, is_output, &plain)) {
    *out_desc = hr__pipe_desc(pipe, operand->dtype, plain.rank, plain.dims, plain.strides);
    return pipe->status == HR_OK ? hr__pipe_operand(pipe, arg, operand, *out_desc) : 0;
  }
  memcpy(plain.dims, operand->dims, (size_t)operand->rank * sizeof(int64_t));
  dense_strides(&plain);
  *out_desc = hr__pipe_desc(pipe, operand->dtype, plain.rank, plain.dims, plain.strides);
  return pipe->status == HR_OK ? hr__pipe_packed(pipe, arg, operand, *out_desc, is_output, unpack) : 0;
}

/* A row vector, in as many dims as the product. */
static int bias_operand(hr_prepared *pipe, const hr_operand *bias, int rank, dnnl_memory_desc *out_desc) {
  layout plain = {.rank = rank};
  for (int d = 0; d < rank; ++d) {
    plain.dims[d] = d == rank - 1 ? bias->dims[bias->rank - 1] : 1;
  }
  dense_strides(&plain);
  *out_desc = hr__pipe_desc(pipe, bias->dtype, plain.rank, plain.dims, plain.strides);
  return pipe->status == HR_OK ? hr__pipe_operand(pipe, 2, bias, *out_desc) : 0;
}

/* A whole tensor that an epilogue reads needs the product's layout, which is `ctx`. Otherwise it is copied. */
static int whole_operand(void *ctx, hr_prepared *pipe, int arg, const hr_operand *operand, dnnl_memory_desc *out_desc) {
  dnnl_memory_desc desc = NULL;
  int memory = matmul_operand(pipe, arg, operand, false, false, &desc, NULL);
  *out_desc = ctx;
  return hr__pipe_reordered(pipe, memory, desc, ctx);
}

static int64_t matmul_flops(const hr_node *node) {
  int64_t flops = 2 * node->inputs[0].dims[node->inputs[0].rank - 1];
  for (int d = 0; d < node->outputs[0].rank; ++d) {
    flops *= node->outputs[0].dims[d];
  }
  return flops;
}

typedef struct product {
  const hr_program *program;
  const hr_node *node;
  int a, b, bias, out; /* memories */
  dnnl_memory_desc a_desc, b_desc, bias_desc, out_desc;
  pipe_epilogues epilogues;
} product;

static hr__dnnl_primitive *product_of(hr_prepared *pipe, const product *p, hr__dnnl_which which,
                                      dnnl_memory_desc b_desc) {
  hr__dnnl_primitive *primitive = hr__pipe_known(pipe, which);
  if (pipe->status == HR_OK && primitive == NULL) {
    dnnl_primitive_desc desc = NULL;
    dnnl_primitive_attr attr = hr__pipe_attr(pipe, p->epilogues.ops);
    hr__pipe_check(pipe,
                   hr__dnnl()->matmul_primitive_desc_create(&desc, hr__dnnl_engine(), p->a_desc, b_desc, p->bias_desc,
                                                            p->out_desc, attr),
                   "matmul");
    hr__dnnl()->primitive_attr_destroy(attr);
    primitive = hr__pipe_described(pipe, which, desc);
  }
  return primitive;
}

static void add_product(hr_prepared *pipe, const product *p, hr__dnnl_primitive *primitive, int b) {
  pipe_epilogues epilogues = p->epilogues;
  const int args[4][2] = {
      {DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_BIAS, p->bias}, {DNNL_ARG_DST, p->out}};
  hr__pipe_epilogues_args(&epilogues, 4, args);
  hr__pipe_primitive(pipe, primitive, epilogues.arg_count, epilogues.args);
}

/* True if the right operand is a weight to be packed into the library's preferred layout: a matrix in a buffer that
 * outlives the program and is not written by it. On a 2-core AVX-512 VM columns gain 6 to 33 %, rows 1 to 35 % from
 * about a megaword, and lose up to 10 % below. */
static bool wants_cached(const hr_prepared *pipe, const product *p) {
  const hr_operand *b = &p->node->inputs[1];
  for (int d = 0; d < b->rank - 2; ++d) {
    if (b->dims[d] != 1 && b->strides[d] != 0) {
      return false;
    }
  }
  bool is_column_major = b->strides[b->rank - 1] != 1;
  int64_t elements = b->dims[b->rank - 1] * b->dims[b->rank - 2];
  return pipe->status == HR_OK && !pipe->is_probe && !p->epilogues.is_sum && pipe->memories[p->b].arg == 1 &&
         !p->program->buffers[b->index].is_dead && !hr__onednn_is_written(p->program, b->index) &&
         (is_column_major || elements >= KEPT_ELEMENTS_MIN);
}

/* Adds a second primitive for the weight in the library's layout, and the reorder to it. */
static void keep_weight(hr_prepared *pipe, const product *p) {
  const hr_operand *b = &p->node->inputs[1];
  int64_t dims[RANK_MAX];
  for (int d = 0; d < b->rank; ++d) {
    dims[d] = d < b->rank - 2 ? 1 : b->dims[d];
  }
  hr__dnnl_primitive *primitive =
      product_of(pipe, p, HR__DNNL_PACKED, hr__pipe_desc_any(pipe, b->dtype, b->rank, dims));
  dnnl_const_memory_desc kept = hr__pipe_layout(pipe, primitive, DNNL_QUERY_WEIGHTS);
  if (kept == NULL || hr__dnnl()->memory_desc_equal(kept, p->b_desc)) {
    hr__dnnl_primitive_release(primitive);
    return;
  }
  int memory = hr__pipe_cached(pipe, kept);
  hr__pipe_reorder(pipe, p->b, p->b_desc, memory, kept);
  hr__pipe_when(pipe, PIPE_TO_KEEP);
  hr__pipe_keep(pipe, 1, pipe->memories[p->b].offset, p->b_desc, memory, kept);
  add_product(pipe, p, primitive, memory);
  hr__pipe_when(pipe, PIPE_IF_CACHED);
  hr__pipe_keep_on_proof(pipe, p->out, p->out_desc);
}

static void prepare(hr_prepared *pipe, const hr_program *program, const hr_node *node) {
  product p = {.program = program, .node = node, .bias = -1};
  pipe_step unpack = {.kind = PIPE_PRIMITIVE};
  const hr_operand *left = &node->inputs[0], *right = &node->inputs[1], *out = &node->outputs[0];
  bool has_bias = node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
  p.a = matmul_operand(pipe, 0, left, false, carries_batch(left, right, true), &p.a_desc, NULL);
  p.b = matmul_operand(pipe, 1, right, false, carries_batch(right, left, false), &p.b_desc, NULL);
  if (has_bias) {
    p.bias = bias_operand(pipe, &node->inputs[2], out->rank, &p.bias_desc);
  }
  p.out = matmul_operand(pipe, node->input_count, out, true, false, &p.out_desc, &unpack);
  hr__pipe_epilogues(pipe, node, out->rank, out->rank - 1, whole_operand, p.out_desc, &p.epilogues);
  hr__pipe_epilogues_sum(pipe, &p.epilogues, &unpack, p.out, p.out_desc, p.out, p.out_desc);
  if (wants_cached(pipe, &p)) {
    keep_weight(pipe, &p);
  }
  add_product(pipe, &p, product_of(pipe, &p, HR__DNNL_STORED, p.b_desc), p.b);
  hr__pipe_when(pipe, pipe->kept.arg < 0 ? PIPE_ALWAYS : PIPE_UNLESS_CACHED);
  hr__pipe_epilogues_fini(&p.epilogues);
  if (unpack.kind == PIPE_UNPACK) {
    hr__pipe_step(pipe, &unpack);
  }
}

hr_status hr__onednn_prepare_matmul(const hr_program *program, const hr_node *node, hr__onednn_algorithm algorithm,
                                    bool probe, const hr__dnnl_key *key, hr_prepared **out_prepared) {
  hr_prepared *pipe = hr__pipe_create(matmul_flops(node), algorithm == HR_ONEDNN_THREADS, key);
  if (pipe == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "matmul: no memory for a prepared product");
  }
  pipe->is_probe = probe;
  if (algorithm == HR_ONEDNN_DIRECT || algorithm == HR_ONEDNN_PRODUCT) {
    hr__pipe_refuse(pipe);
  }
  prepare(pipe, program, node);
  *out_prepared = pipe;
  return HR_OK;
}
