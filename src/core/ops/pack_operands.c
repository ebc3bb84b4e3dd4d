/* pack_operands.c: copies a contraction's operands into a layout that a provider supports (packing).
 *
 *   refused    %3 = conv(%0, %1, %2)                                      ... %0 a slice, %2 a bias
 *   packed    loop %4:f32[8,16,9,9]{1296,81,9,1} = copy(%0)
 *              %3 = conv(%4, %1)
 *              loop %3:f32[8,32,7,7].. = add(%3, %2:f32[8,32,7,7]{0,1,0,0})
 *
 * Providers that need dense operands, or support no bias, do not copy or add themselves. Loops do that on every device
 * and in every dtype, and fuse with their neighbours. Of all sets of operands that could be copied, channels first or
 * last, the one is chosen that some provider supports and that moves the fewest elements; weights count little. If no
 * provider supports any, the contraction becomes loops. A bias per channel or column is copied if that suffices.
 * Otherwise f16 and bf16 products are added to it in f32, if some provider has such products, so that the result is
 * rounded once. Otherwise the product is rounded before the bias is added.
 *
 * If both factors of an f32 convolution are copied to channels last, the copies are padded with zeros to a multiple of
 * four channels, unless that adds more than a third: tensor cores read 16 bytes at a time (64 images of 3 x 224 x 224,
 * windows of 7 x 7, one H200: 375 us instead of 419).
 *
 * Gradients of convolutions with windows of one element use only every stride-th element. If no packing helps, they are
 * computed as those of a stride of 1 on these elements:
 *
 *   refused    %2 = conv_backward_data(%0, %1) ints(2, 2, 2, 0, 0, 1, 1, 1)          ... %2 f32[8,16,28,28]
 *   packed    %3:f32[8,16,14,14].. = conv_backward_data(%0, %1) ints(2, 1, 1, 0, 0, 1, 1, 1)
 *              loop %2:f32[8,16,14,2,14,2].. = where(the first of each 2 x 2, %3, 0)
 *
 * Contractions of 16-bit numbers that no provider supports in their dtype are computed in f32, bias included, and
 * rounded once.
 */
#include <string.h>

#include "base/integer.h"
#include "core/ops/lower.h"

enum { WEIGHT_SHARE = 128 /* one in so many programs copies the weight */ };
enum { OPERANDS = 3, OUT = 2, FACTORS = 3 /* a mask */, MASKS = 1 << OPERANDS, CHANNELS = 4 };

/* In the order in which they are tried: the cheapest first. */
typedef enum bias_mode { BIAS_INSIDE, BIAS_COPIED, BIAS_IN_F32, BIAS_AFTER, BIAS_MODES } bias_mode;

/* The operands that are copied, the copies' layout, and where bias is added. */
typedef struct packing {
  unsigned mask;
  bool channels_last;
  bool pads; /* factors to a multiple of CHANNELS */
  bias_mode bias;
} packing;

static bool takes_bias(packing how) {
  return how.bias == BIAS_INSIDE || how.bias == BIAS_COPIED;
}

/* The operand's dim at position `i` of dense memory, the outermost first. */
static int dim_at(int i, int rank, bool channels_last) {
  return !channels_last || i == 0 ? i : i == rank - 1 ? 1 : i + 1;
}

static void lie_dense(hr_operand *x, bool channels_last, int64_t *strides) {
  int64_t stride = 1;
  for (int i = x->rank - 1; i >= 0; --i) {
    int d = dim_at(i, x->rank, channels_last);
    strides[d] = stride;
    stride *= x->dims[d];
  }
  x->strides = strides;
  x->offset = 0;
}

/* The operand with more channels; `dims` has room for them. */
static void add_channels(hr_operand *x, int64_t *dims) {
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  dims[1] = hr_round_up(dims[1], CHANNELS);
  x->dims = dims;
}

static bool is_plain(const hr_operand *x) {
  return x->term_count == 0 && x->bound_count == 0;
}

static bool can_pad(const hr_node *node, packing how) {
  if (node->op != HR_OP_CONV || node->outputs[0].dtype != HR_DTYPE_F32 || !how.channels_last ||
      (how.mask & FACTORS) != FACTORS || node->ints[1 + 3 * node->ints[0]] != 1 || !is_plain(&node->inputs[0]) ||
      !is_plain(&node->inputs[1])) {
    return false;
  }
  int64_t channels = node->inputs[0].dims[1], more = hr_round_up(channels, CHANNELS) - channels;
  return more > 0 && more * 3 <= channels;
}

/* True for one number per element of the last dim: a dense vector broadcast to all rows. */
static bool is_vector(hr_operand bias) {
  for (int d = 0; d < bias.rank - 1; ++d) {
    if (bias.strides[d] != 0 && bias.dims[d] != 1) {
      return false;
    }
  }
  return bias.kind == HR_OPERAND_VALUE && bias.rank > 0 && is_plain(&bias);
}

static void lie_as_vector(hr_operand *bias, int64_t *strides) {
  for (int d = 0; d < bias->rank; ++d) {
    strides[d] = d == bias->rank - 1;
  }
  bias->strides = strides;
  bias->offset = 0;
}

static bool is_possible(const hr_node *node, bias_mode mode) {
  hr_operand bias = hr_node_input(node, OUT);
  hr_dtype dtype = node->outputs[0].dtype;
  switch (mode) {
    case BIAS_INSIDE:
    case BIAS_COPIED:
      return hr_is_present(bias) && is_vector(bias);
    case BIAS_IN_F32:
      return hr_is_present(bias) && (dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_BF16);
    default:
      return true;
  }
}

/* True if a provider supports the node with this packing. */
static bool is_taken(const hr_builder *b, hr_keep_fn keeps, void *ctx, const hr_node *node, packing how) {
  int64_t strides[OPERANDS + 1][HR_RANK_MAX], dims[OUT][HR_RANK_MAX];
  hr_operand operands[OPERANDS] = {node->inputs[0], node->inputs[1], node->outputs[0]}, inputs[OUT + 1];
  for (int i = 0; i < OPERANDS; ++i) {
    if (how.pads && i < OUT) {
      add_channels(&operands[i], dims[i]);
    }
    if ((how.mask >> i & 1u) != 0) {
      lie_dense(&operands[i], how.channels_last, strides[i]);
    }
  }
  hr_node packed = *node;
  packed.input_count = takes_bias(how) ? OUT + 1 : OUT;
  packed.inputs = inputs;
  packed.outputs = &operands[OUT];
  memcpy(inputs, operands, OUT * sizeof *inputs);
  if (takes_bias(how)) {
    inputs[OUT] = node->inputs[OUT];
  }
  if (how.bias == BIAS_COPIED) {
    lie_as_vector(&inputs[OUT], strides[OPERANDS]);
  } else if (how.bias == BIAS_IN_F32) {
    operands[OUT].dtype = HR_DTYPE_F32;
  }
  return keeps(ctx, b->program, &packed);
}

/* True if the operand is a convolution's weight that existed before the program: its copies are likely to be cached
 * (engine/weights.h). */
static bool is_weight(const hr_builder *b, const hr_node *node, int i) {
  const hr_operand *x = &node->inputs[1];
  return i == 1 && (node->op == HR_OP_CONV || node->op == HR_OP_CONV_BACKWARD_DATA) && x->kind == HR_OPERAND_VALUE &&
         !b->program->buffers[x->index].is_fresh;
}

/* The packing with bias at this position that moves the fewest elements; false if none helps. */
static bool choose_with(const hr_builder *b, hr_keep_fn keeps, void *ctx, const hr_node *node, bias_mode bias,
                        packing *out_packing) {
  const hr_operand *operands[OPERANDS] = {&node->inputs[0], &node->inputs[1], &node->outputs[0]};
  int64_t least = INT64_MAX;
  for (unsigned choice = 0; choice < 2 * MASKS; ++choice) {
    packing how = {.mask = choice / 2, .channels_last = choice % 2 != 0, .bias = bias};
    int64_t cost = 0;
    for (int i = 0; i < OPERANDS; ++i) {
      int64_t count = (how.mask >> i & 1u) != 0 ? hr_operand_count(*operands[i]) : 0;
      cost += is_weight(b, node, i) ? count / WEIGHT_SHARE : count;
    }
    bool is_sense = !how.channels_last || (hr_op_is_convolution(node->op) && how.mask != 0);
    if (is_sense && cost < least && is_taken(b, keeps, ctx, node, how)) {
      least = cost;
      *out_packing = how;
    }
  }
  if (least == INT64_MAX) {
    return false;
  }
  packing padded = *out_packing;
  padded.pads = true;
  if (can_pad(node, padded) && is_taken(b, keeps, ctx, node, padded)) {
    *out_packing = padded;
  }
  return true;
}

static bool choose(const hr_builder *b, hr_keep_fn keeps, void *ctx, const hr_node *node, packing *out_packing) {
  for (int mode = 0; mode < BIAS_MODES; ++mode) {
    if (is_possible(node, (bias_mode)mode) && choose_with(b, keeps, ctx, node, (bias_mode)mode, out_packing)) {
      return true;
    }
  }
  return false;
}

/* A dense temporary of the operand's dims. */
static hr_operand make_temp(hr_builder *b, hr_operand like, bool channels_last) {
  int64_t dims[HR_RANK_MAX];
  int order[HR_RANK_MAX];
  for (int i = 0; i < like.rank; ++i) {
    int d = dim_at(i, like.rank, channels_last);
    dims[i] = like.dims[d];
    order[d] = i;
  }
  hr_operand memory = hr_build_temp(b, like.dtype, like.rank, dims);
  return channels_last && hr_is_present(memory) ? hr_view_permute(b, memory, order) : memory;
}

/* A copy of a factor in the provider's layout. */
static hr_operand copy_factor(hr_builder *b, hr_operand x, packing how) {
  if (how.pads) {
    int64_t dims[HR_RANK_MAX], by_channel[HR_RANK_MAX] = {0, 1}, channels = x.dims[1];
    add_channels(&x, dims);
    x = hr_view_fill(
        b, hr_view_bound(b, hr_view_strided(b, x, x.rank, dims, x.strides, x.offset), 0, by_channel, channels),
        hr_build_f64(b, 0));
  }
  hr_operand copy = make_temp(b, x, how.channels_last);
  hr_emit1(b, HR_OP_COPY, copy, x);
  return copy;
}

/* A copy of the rows' common bias, dense and at the start of its memory. */
static hr_operand make_vector(hr_builder *b, hr_operand bias) {
  hr_operand vector = bias;
  for (int d = 0; d < bias.rank - 1; ++d) {
    vector = hr_view_remove(b, vector, 0);
  }
  if (!hr_is_present(vector)) {
    return vector;
  }
  hr_operand memory = hr_build_temp_like(b, vector, bias.dtype);
  hr_emit1(b, HR_OP_COPY, memory, vector);
  return hr_view_broadcast(b, memory, bias.rank, bias.dims);
}

static void emit(hr_builder *b, const hr_node *node, packing how) {
  hr_operand inputs[OUT + 1], out = node->outputs[0], bias = hr_node_input(node, OUT), value = out;
  for (int i = 0; i < OUT; ++i) {
    inputs[i] = node->inputs[i];
    if ((how.mask >> i & 1u) != 0) {
      inputs[i] = copy_factor(b, node->inputs[i], how);
    }
  }
  bool is_apart = (how.mask >> OUT & 1u) != 0 || how.bias == BIAS_IN_F32;
  value.dtype = how.bias == BIAS_IN_F32 ? HR_DTYPE_F32 : out.dtype;
  value = is_apart ? make_temp(b, value, how.channels_last) : value;
  if (takes_bias(how)) {
    inputs[OUT] = how.bias == BIAS_COPIED ? make_vector(b, bias) : bias;
  }
  hr_emit_node(b, node->op, takes_bias(how) ? OUT + 1 : OUT, inputs, 1, &value, node->int_count, node->ints);
  if (!takes_bias(how) && hr_is_present(bias)) {
    hr_emit2(b, HR_OP_ADD, out, value, hr_op_is_convolution(node->op) ? hr__along(b, bias, out.rank, 1) : bias);
  } else if (is_apart) {
    hr_emit1(b, HR_OP_COPY, out, value);
  }
}

/* ---- windows of one element ---- */

/* True for strides over an image that has all windows: none is in the padding behind it. */
static bool skips_elements(const hr_node *node) {
  bool is_data = node->op == HR_OP_CONV_BACKWARD_DATA;
  if ((!is_data && node->op != HR_OP_CONV_BACKWARD_WEIGHT) || node->int_count < 2 + 3 * (int)node->ints[0]) {
    return false;
  }
  const int spatial = (int)node->ints[0];
  const hr_operand *w = is_data ? &node->inputs[1] : &node->outputs[0];
  const hr_operand *x = is_data ? &node->outputs[0] : &node->inputs[0], *dy = &node->inputs[is_data ? 0 : 1];
  bool is_strided = false, is_point = w->rank == spatial + 2;
  for (int d = 0; is_point && d < spatial; ++d) {
    int64_t stride = node->ints[1 + d];
    is_strided |= stride > 1;
    is_point =
        w->dims[2 + d] == 1 && node->ints[1 + spatial + d] == 0 && (dy->dims[2 + d] - 1) * stride < x->dims[2 + d];
  }
  return is_point && is_strided;
}

/* The elements of x that windows use. */
static hr_operand view_seen(hr_builder *b, hr_operand x, const hr_node *node, const int64_t *dims) {
  for (int d = 0; d < (int)node->ints[0]; ++d) {
    x = hr_view_slice(b, x, 2 + d, 0, dims[2 + d], node->ints[1 + d]);
  }
  return x;
}

/* out: the results for the elements that windows use, and 0 between them. */
static void emit_between_zeros(hr_builder *b, const hr_node *node, hr_operand out, hr_operand made) {
  const int spatial = (int)node->ints[0];
  int64_t strides[HR_RANK_MAX] = {0};
  bool is_tiled = out.rank + spatial <= HR_RANK_MAX;
  for (int d = 0; d < spatial; ++d) {
    is_tiled = is_tiled && out.dims[2 + d] % node->ints[1 + d] == 0;
  }
  if (!is_tiled) {
    hr_emit1(b, HR_OP_COPY, out, hr_build_f64(b, 0));
    hr_emit1(b, HR_OP_COPY, view_seen(b, out, node, made.dims), made);
    return;
  }
  for (int d = 0; d < spatial && hr_is_present(out) && hr_is_present(made); ++d) {
    out = hr_view_split(b, out, 2 + 2 * d, node->ints[1 + d]);
    made = hr_view_insert(b, made, 3 + 2 * d, node->ints[1 + d]);
    strides[3 + 2 * d] = 1;
  }
  hr_operand place = hr_build_index(b, out.rank, out.dims, 0, strides);
  hr_operand is_seen = hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, place, hr_build_i64(b, 0));
  hr_emit3(b, HR_OP_WHERE, out, is_seen, made, hr_build_f64(b, 0));
}

static bool pack_skipping(hr_builder *b, hr_keep_fn keeps, void *ctx, const hr_node *node) {
  const int spatial = (int)node->ints[0];
  const int int_count = 2 + 3 * spatial; /* without padding behind */
  int64_t ints[HR_RANK_MAX * 3], dims[HR_RANK_MAX];
  hr_operand inputs[OUT] = {node->inputs[0], node->inputs[1]}, out = node->outputs[0];
  const hr_operand dy = node->op == HR_OP_CONV_BACKWARD_DATA ? inputs[0] : inputs[1];
  for (int i = 0; i < int_count; ++i) {
    ints[i] = i >= 1 && i <= spatial ? 1 : node->ints[i];
  }
  packing how;
  hr_node close = *node;
  close.input_count = OUT, close.inputs = inputs, close.outputs = &out, close.int_count = int_count;
  close.ints = hr_arena_dup(&b->program->arena, ints, (size_t)int_count * sizeof *ints);
  if (node->op == HR_OP_CONV_BACKWARD_DATA) {
    for (int d = 0; d < out.rank; ++d) {
      dims[d] = d < 2 ? out.dims[d] : dy.dims[d];
    }
    out = hr_build_temp(b, out.dtype, out.rank, dims);
  } else {
    inputs[0] = view_seen(b, inputs[0], node, dy.dims);
  }
  if (b->status != HR_OK || close.ints == NULL || !choose(b, keeps, ctx, &close, &how)) {
    return false;
  }
  emit(b, &close, how);
  if (node->op == HR_OP_CONV_BACKWARD_DATA) {
    emit_between_zeros(b, node, node->outputs[0], out);
  }
  return true;
}

/* ---- 16-bit numbers ---- */

/* A dense f32 temporary with x's order of dims in memory. */
static hr_operand make_wide_temp(hr_builder *b, hr_operand x) {
  int64_t dims[HR_RANK_MAX];
  int order[HR_RANK_MAX], place[HR_RANK_MAX];
  for (int d = 0; d < x.rank; ++d) {
    int i = d;
    for (; i > 0 && x.strides[order[i - 1]] < x.strides[d]; --i) {
      order[i] = order[i - 1];
    }
    order[i] = d;
  }
  for (int i = 0; i < x.rank; ++i) {
    dims[i] = x.dims[order[i]];
    place[order[i]] = i;
  }
  hr_operand memory = hr_build_temp(b, HR_DTYPE_F32, x.rank, dims);
  return hr_is_present(memory) ? hr_view_permute(b, memory, place) : memory;
}

static bool pack_wide(hr_builder *b, hr_keep_fn keeps, void *ctx, const hr_node *node) {
  hr_dtype dtype = node->outputs[0].dtype;
  if (dtype != HR_DTYPE_F16 && dtype != HR_DTYPE_BF16) {
    return false;
  }
  hr_operand inputs[OUT], value = make_wide_temp(b, node->outputs[0]), bias = hr_node_input(node, OUT);
  for (int i = 0; i < OUT; ++i) {
    inputs[i] = make_wide_temp(b, node->inputs[i]);
  }
  packing how;
  hr_node wide = *node;
  wide.input_count = OUT, wide.inputs = inputs, wide.outputs = &value;
  if (b->status != HR_OK || !choose(b, keeps, ctx, &wide, &how)) {
    return false;
  }
  for (int i = 0; i < OUT; ++i) {
    hr_emit1(b, HR_OP_COPY, inputs[i], node->inputs[i]);
  }
  emit(b, &wide, how);
  if (hr_is_present(bias)) {
    bias = hr_op_is_convolution(node->op) ? hr__along(b, bias, value.rank, 1) : bias;
    value = hr_make2(b, HR_OP_ADD, HR_DTYPE_F32, value, bias);
  }
  hr_emit1(b, HR_OP_COPY, node->outputs[0], value);
  return true;
}

bool hr__pack_contraction(hr_builder *b, hr_keep_fn keeps, void *ctx, const hr_node *node) {
  packing how;
  bool has_operands = node->input_count >= OUT && node->output_count == 1 && node->epilogue_count == 0 &&
                      node->inputs[0].kind == HR_OPERAND_VALUE && node->inputs[1].kind == HR_OPERAND_VALUE;
  if (has_operands && choose(b, keeps, ctx, node, &how)) {
    emit(b, node, how);
    return true;
  }
  if (has_operands && pack_wide(b, keeps, ctx, node)) {
    return true;
  }
  return has_operands && skips_elements(node) && !hr_is_present(hr_node_input(node, OUT)) &&
         pack_skipping(b, keeps, ctx, node);
}
