/* finish.c: bias and epilogues of direct convolutions and batched products, with the bits of ops.def's rows, and the
 * store of results. Rows of a product's matrices are pixels of a column, its columns channels.
 */
#include "core/ir/dtype.h"
#include "core/ops/op.h"
#include "providers/direct/direct.h"
#include "providers/wide_epilogues.h"

#if defined(HR_WIDE_VECTORS)

/* The strides of an operand like the output; one of a single spatial dim, or of a single batch dim, has no rows. */
static void place(const hr_node *node, const hr_operand *x, hr__direct_operand *out) {
  int last = x->rank - 1;
  bool is_product = node->op == HR_OP_MATMUL;
  int channel = is_product ? last : 1,
      row = x->rank < 4  ? -1
            : is_product ? 1
                         : 2,
      column = is_product ? last - 1 : last;
  const int64_t *dims = x->dims, *strides = x->strides;
  out->offset = x->offset;
  out->channels = dims[channel];
  out->image = dims[0] == 1 ? 0 : strides[0];
  out->channel = dims[channel] == 1 ? 0 : strides[channel];
  out->row = row < 0 || dims[row] == 1 ? 0 : strides[row];
  out->column = dims[column] == 1 ? 0 : strides[column];
}

static bool is_same_view(const hr_operand *x, const hr_operand *y) {
  bool is = x->offset == y->offset;
  for (int d = 0; is && d < x->rank; ++d) {
    is = x->dims[d] == y->dims[d] && (x->strides[d] == y->strides[d] || x->dims[d] == 1);
  }
  return is;
}

/* Adds an operand. Gathers need small strides. A tensor in the output's memory is the same view: each result is stored
 * after its element has been read. */
static bool add_operand(const hr_node *node, int input, hr__direct_epilogue *row) {
  if (input == HR_EPILOGUE_VALUE) {
    return false;
  }
  const hr_operand *x = &node->inputs[input], *y = &node->outputs[0];
  hr__direct_operand *operand = &row->operands[row->count++];
  *operand = (hr__direct_operand){.arg = input, .is_number = x->kind == HR_OPERAND_SCALAR};
  if (operand->is_number) {
    return x->dtype != HR_DTYPE_C128;
  }
  if (x->kind != HR_OPERAND_VALUE || x->dtype != HR_DTYPE_F32 || x->rank != y->rank) {
    return false;
  }
  place(node, x, operand);
  operand->is_vector = operand->image == 0 && operand->row == 0 && operand->column == 0;
  int64_t reach = operand->channel * (HR__WIDE - 1);
  return reach < INT32_MAX && reach > -INT32_MAX && (!hr_operands_may_overlap(x, y) || is_same_view(x, y));
}

static bool add_epilogue(const hr_node *node, const hr_epilogue *from, hr__direct_epilogue *row) {
  const int *inputs = from->inputs;
  bool is_first = inputs[0] == HR_EPILOGUE_VALUE;
  *row = (hr__direct_epilogue){.op = from->op};
  switch (from->op) {
    case HR_OP_RELU:
      return is_first;
    case HR_OP_ADD:
    case HR_OP_MUL:
      return (is_first || inputs[1] == HR_EPILOGUE_VALUE) && add_operand(node, is_first ? inputs[1] : inputs[0], row);
    case HR_OP_SUB:
    case HR_OP_DIV:
    case HR_OP_LEAKY_RELU:
      return is_first && add_operand(node, inputs[1], row);
    case HR_OP_ADD_SCALED:
      return inputs[1] == HR_EPILOGUE_VALUE && add_operand(node, inputs[0], row) && add_operand(node, inputs[2], row);
    default:
      return false;
  }
}

/* A number for each channel; that of a product may have leading dims. */
static bool add_bias(const hr_node *node, hr__direct_epilogues *epilogues) {
  const hr_operand *bias = node->input_count > 2 ? &node->inputs[2] : NULL;
  if (bias == NULL || bias->kind == HR_OPERAND_NONE) {
    return true;
  }
  int last = bias->rank - 1;
  bool is = last == 0 || (node->op == HR_OP_MATMUL && last > 0);
  for (int d = 0; is && d < last; ++d) {
    is = bias->dims[d] == 1 || bias->strides[d] == 0;
  }
  if (!is) {
    return false;
  }
  hr__direct_operand x = {.arg = 2, .is_vector = true, .offset = bias->offset};
  x.channels = bias->dims[last], x.channel = bias->dims[last] == 1 ? 0 : bias->strides[last];
  epilogues->of[epilogues->count++] = (hr__direct_epilogue){.op = HR_OP_ADD, .count = 1, .operands = {x}};
  return bias->kind == HR_OPERAND_VALUE && bias->dtype == HR_DTYPE_F32 &&
         !hr_operands_may_overlap(bias, &node->outputs[0]);
}

bool hr__direct_epilogues_init(const hr_node *node, hr__direct_epilogues *out_epilogues) {
  out_epilogues->count = 0;
  bool is = add_bias(node, out_epilogues);
  for (int i = 0; is && i < node->epilogue_count; ++i) {
    is = add_epilogue(node, &node->epilogues[i], &out_epilogues->of[out_epilogues->count++]);
  }
  return is;
}

int64_t hr__direct_epilogues_floats(const hr__direct_epilogues *epilogues, int64_t channels) {
  return epilogues->count * HR__DIRECT_OPERANDS * channels;
}

static void spread(const hr__direct_operand *x, const void *arg, int64_t channels, float *to) {
  for (int64_t c = 0; c < channels; ++c) {
    int64_t channel = c < x->channels ? c : x->channels - 1;
    to[c] = x->is_number ? hr_scalar_as_f32(arg) : ((const float *)arg)[x->offset + channel * x->channel];
  }
}

void hr__direct_epilogues_bind(const hr__direct_epilogues *epilogues, void *const *args, int64_t channels,
                               float *memory, hr__direct_numbers *out_numbers) {
  for (int i = 0; i < epilogues->count; ++i) {
    for (int k = 0; k < epilogues->of[i].count; ++k, memory += channels) {
      const hr__direct_operand *x = &epilogues->of[i].operands[k];
      bool is_spread = x->is_number || x->is_vector;
      if (is_spread) {
        spread(x, args[x->arg], channels, memory);
      }
      out_numbers->of[i][k] = is_spread ? memory : (const float *)args[x->arg] + x->offset;
    }
  }
}

const float *hr__direct_addend(const hr__direct_epilogues *epilogues, const hr__direct_numbers *numbers) {
  const hr__direct_operand *x = &epilogues->of[0].operands[0];
  bool is = epilogues->count > 0 && epilogues->of[0].op == HR_OP_ADD && (x->is_number || x->is_vector);
  return is ? numbers->of[0][0] : NULL;
}

/* ---- a run ---- */

/* 16 channels of a tensor at pixel number i. */
WIDE_INLINE __m512 element_at(const hr__direct_operand *x, const float *from, const hr__direct_pixels *pixels,
                              int64_t i, int64_t channel, __mmask16 mask) {
  from += (pixels->image + i * pixels->image_step) * x->image + (pixels->row + i * pixels->row_step) * x->row +
          (pixels->column + i * pixels->column_step) * x->column + channel * x->channel;
  if (x->channel == 1) {
    return _mm512_maskz_loadu_ps(mask, from);
  }
  __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  __m512i at = _mm512_mullo_epi32(lanes, _mm512_set1_epi32((int)x->channel));
  return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, at, from, 4);
}

/* Values of a strip on their way: [pixel][channel], `step` floats from pixel to pixel. */
typedef struct values {
  const float *from;
  float *to;
  int64_t from_step, to_step;
} values;

/* The first operand of ADD and MUL may be the value or the other one: their bits are the same. */
WIDE_INLINE void apply_row(hr_op op, const hr__direct_epilogue *row, const float *const *of,
                           const hr__direct_pixels *pixels, const values *v) {
  bool is_same[HR__DIRECT_OPERANDS]; /* for all pixels */
  for (int k = 0; k < HR__DIRECT_OPERANDS; ++k) {
    is_same[k] = k >= row->count || row->operands[k].is_number || row->operands[k].is_vector;
  }
  for (int64_t c = 0; c < pixels->channels; c += HR__WIDE) {
    __mmask16 mask = hr__wide_mask(pixels->channels - c);
    int64_t channel = pixels->channel + c;
    __m512 x[HR__DIRECT_OPERANDS] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int k = 0; k < row->count; ++k) {
      x[k] = is_same[k] ? _mm512_loadu_ps(of[k] + channel) : x[k];
    }
    for (int64_t i = 0; i < pixels->count; ++i) {
#pragma GCC unroll 2
      for (int k = 0; k < HR__DIRECT_OPERANDS; ++k) {
        x[k] = is_same[k] ? x[k] : element_at(&row->operands[k], of[k], pixels, i, channel, mask);
      }
      __m512 value = _mm512_loadu_ps(v->from + i * v->from_step + c);
      value = op == HR_OP_ADD_SCALED ? hr__wide_apply(op, x[0], value, x[1]) : hr__wide_apply(op, value, x[0], x[1]);
      _mm512_mask_storeu_ps(v->to + i * v->to_step + c, mask, value);
    }
  }
}

#define ROW(op)                        \
  case op:                             \
    apply_row(op, row, of, pixels, v); \
    break;

WIDE static void apply_epilogue(const hr__direct_epilogue *row, const float *const *of, const hr__direct_pixels *pixels,
                                const values *v) {
  switch (row->op) {
    ROW(HR_OP_ADD)
    ROW(HR_OP_SUB)
    ROW(HR_OP_MUL)
    ROW(HR_OP_DIV)
    ROW(HR_OP_ADD_SCALED)
    ROW(HR_OP_RELU)
    ROW(HR_OP_LEAKY_RELU)
    default:
      break;
  }
}

void hr__direct_finish(const hr__direct_epilogues *epilogues, const hr__direct_numbers *numbers, int first, float *m,
                       int64_t width, const hr__direct_pixels *pixels) {
  for (int e = first; e < epilogues->count; ++e) {
    bool is_last = e == epilogues->count - 1;
    values v = {m, is_last ? pixels->y : m, width, is_last ? pixels->y_step : width};
    apply_epilogue(&epilogues->of[e], numbers->of[e], pixels, &v);
  }
}

#endif
