/* results.c: turns the products of winograd.c into results: tiles of 2 x 2, with bias and epilogues applied.
 *
 * The rows have the bits of ops.def: each rounds by itself. They are the ones that oneDNN supports with numbers and
 * with vectors along the channels (onednn/epilogues.c), so a contraction's epilogues don't depend on its provider.
 *
 * A sum that is not finite is computed again. If an infinity enters a difference, or a sum overflows on the way, the
 * transforms give NaN instead of the direct sum's result. Each result depends on its own window alone, so finite
 * results are right.
 */
#include "providers/winograd/winograd.h"

#include "core/ir/dtype.h"
#include "core/ops/op.h"
#include "providers/wide_epilogues.h"

#if defined(HR_WIDE_VECTORS)

enum { SIDE = HR__WINOGRAD_SIDE, POINTS = HR__WINOGRAD_POINTS };

/* ---- rows ---- */

/* True for a number, or a vector along the channels that is not in the output's memory. */
static bool is_operand(const hr_node *node, const hr_operand *x) {
  const hr_operand *out = &node->outputs[0];
  if (x->kind == HR_OPERAND_SCALAR) {
    return x->dtype != HR_DTYPE_C128;
  }
  bool is_vector = x->kind == HR_OPERAND_VALUE && x->dtype == HR_DTYPE_F32 && x->rank == out->rank;
  for (int d = 0; is_vector && d < out->rank; ++d) {
    is_vector = out->dims[d] == 1 || x->strides[d] == (d == 1 ? 1 : 0);
  }
  return is_vector && !hr_operands_may_overlap(x, out);
}

/* True for the operands that may be the value so far. */
static bool is_form(hr_op op, bool first, bool second, bool third) {
  switch (op) {
    case HR_OP_ADD:
    case HR_OP_MUL:
      return first != second;
    case HR_OP_SUB:
    case HR_OP_DIV:
    case HR_OP_LEAKY_RELU:
      return first && !second;
    case HR_OP_ADD_SCALED:
      return !first && second && !third;
    default:
      return false;
  }
}

/* A bias has one dim, operands of epilogues have all of the output's. */
static hr__winograd_operand operand_of(const hr_node *node, int input) {
  const hr_operand *x = &node->inputs[input];
  int dim = x->rank == 1 ? 0 : 1;
  return x->kind == HR_OPERAND_SCALAR ? (hr__winograd_operand){.input = input, .is_number = true}
                                      : (hr__winograd_operand){input, false, x->offset, x->strides[dim], x->dims[dim]};
}

static void add_row(hr__winograd_epilogues *epilogues, hr_op op) {
  int at = epilogues->count++;
  epilogues->of[at].op = op;
  for (int k = 0; k < HR__WINOGRAD_OPERANDS; ++k) {
    epilogues->of[at].operands[k] = (hr__winograd_operand){.input = HR_EPILOGUE_VALUE};
  }
}

static bool add_epilogue(const hr_node *node, const hr_epilogue *from, hr__winograd_epilogues *epilogues) {
  int at = epilogues->count, arity = hr_op_table(from->op)->arity;
  bool is_value[HR__WINOGRAD_OPERANDS] = {false};
  add_row(epilogues, from->op);
  for (int k = 0; k < arity; ++k) {
    if (k == HR__WINOGRAD_OPERANDS) {
      return false;
    }
    int input = from->inputs[k];
    is_value[k] = input == HR_EPILOGUE_VALUE;
    if (!is_value[k] && (!is_operand(node, &node->inputs[input]) ||
                         (from->op == HR_OP_LEAKY_RELU && node->inputs[input].kind != HR_OPERAND_SCALAR))) {
      return false;
    }
    if (!is_value[k]) {
      epilogues->of[at].operands[k] = operand_of(node, input);
    }
  }
  return is_form(from->op, is_value[0], is_value[1], is_value[2]);
}

bool hr__winograd_epilogues_init(const hr_node *node, hr__winograd_epilogues *out_epilogues) {
  *out_epilogues = (hr__winograd_epilogues){.count = 0};
  if (node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE) {
    const hr_operand *bias = &node->inputs[2];
    if (bias->kind != HR_OPERAND_VALUE || bias->dtype != HR_DTYPE_F32 || bias->rank != 1) {
      return false;
    }
    add_row(out_epilogues, HR_OP_ADD);
    out_epilogues->of[0].operands[1] = operand_of(node, 2);
  }
  for (int i = 0; i < node->epilogue_count; ++i) {
    if (!add_epilogue(node, &node->epilogues[i], out_epilogues)) {
      return false;
    }
  }
  return true;
}

int64_t hr__winograd_epilogues_floats(const hr__winograd_epilogues *epilogues, int64_t channels) {
  return epilogues->count * HR__WINOGRAD_OPERANDS * channels;
}

static float number_of(const hr_scalar *scalar) {
  return hr_scalar_as_f32(scalar);
}

static void spread(const hr__winograd_operand *x, const void *arg, int64_t channels, float *to) {
  for (int64_t c = 0; c < channels; ++c) {
    to[c] = x->is_number ? number_of(arg) : c < x->count ? ((const float *)arg)[x->offset + c * x->stride] : 0;
  }
}

void hr__winograd_epilogues_bind(const hr__winograd_epilogues *epilogues, void *const *args, int64_t channels,
                                 float *memory, hr__winograd_numbers *out_numbers) {
  *out_numbers = (hr__winograd_numbers){{{NULL}}};
  for (int i = 0; i < epilogues->count; ++i) {
    for (int k = 0; k < HR__WINOGRAD_OPERANDS; ++k, memory += channels) {
      const hr__winograd_operand *x = &epilogues->of[i].operands[k];
      if (x->input != HR_EPILOGUE_VALUE) {
        spread(x, args[x->input], channels, memory);
        out_numbers->of[i][k] = memory;
      }
    }
  }
}

/* ---- a run ---- */

WIDE_INLINE void give_line(const __m512 *m, int step, __m512 *y, int y_step) {
  __m512 sum = _mm512_add_ps(m[step], m[2 * step]), difference = _mm512_sub_ps(m[step], m[2 * step]);
  y[0] = _mm512_add_ps(m[0], sum);
  y[y_step] = _mm512_sub_ps(difference, m[3 * step]);
}

enum { PIXELS = HR__WINOGRAD_RESULTS * HR__WINOGRAD_RESULTS };

WIDE_INLINE void apply_epilogue(const float *const of[HR__WINOGRAD_OPERANDS], hr_op op, int64_t channel,
                                __m512 y[PIXELS]) {
  __m512 in[HR__WINOGRAD_OPERANDS];
#pragma GCC unroll 3
  for (int k = 0; k < HR__WINOGRAD_OPERANDS; ++k) {
    in[k] = of[k] != NULL ? _mm512_loadu_ps(of[k] + channel) : _mm512_setzero_ps();
  }
#pragma GCC unroll 4
  for (int i = 0; i < PIXELS; ++i) {
    y[i] = hr__wide_apply(op, of[0] != NULL ? in[0] : y[i], of[1] != NULL ? in[1] : y[i], in[2]);
  }
}

#define EPILOGUE(op)                                \
  case op:                                          \
    apply_epilogue(numbers->of[i], op, channel, y); \
    break;

WIDE_INLINE void apply_epilogues(const hr__winograd_epilogues *epilogues, const hr__winograd_numbers *numbers,
                                 int64_t channel, __m512 y[PIXELS]) {
  for (int i = 0; i < epilogues->count; ++i) {
    switch (epilogues->of[i].op) {
      EPILOGUE(HR_OP_ADD)
      EPILOGUE(HR_OP_SUB)
      EPILOGUE(HR_OP_MUL)
      EPILOGUE(HR_OP_DIV)
      EPILOGUE(HR_OP_ADD_SCALED)
      EPILOGUE(HR_OP_LEAKY_RELU)
      default:
        break;
    }
  }
}

/* Computes sums that are not finite once more, directly. */
WIDE static __attribute__((noinline)) void give_again(const hr__winograd_place *place, int64_t channel, __m512 *y) {
  for (int i = 0; i < PIXELS; ++i) {
    float lanes[HR__WIDE];
    __m512 zero = _mm512_sub_ps(y[i], y[i]);
    __mmask16 odd = _mm512_cmp_ps_mask(zero, zero, _CMP_UNORD_Q);
    _mm512_storeu_ps(lanes, y[i]);
    for (int64_t l = 0; l < HR__WIDE && channel + l < place->channels && place->y[i] != NULL; ++l) {
      lanes[l] = (odd >> l & 1) != 0 ? place->again(place->ctx, i, place->channel + channel + l) : lanes[l];
    }
    y[i] = _mm512_loadu_ps(lanes);
  }
}

WIDE void hr__winograd_give(const float *m, int64_t point_step, const hr__winograd_epilogues *epilogues,
                            const hr__winograd_numbers *numbers, const hr__winograd_place *place) {
  for (int64_t c = 0; c < place->channels; c += HR__WIDE) {
    __m512 all[POINTS], lines[2 * SIDE], y[PIXELS];
#pragma GCC unroll 16
    for (int i = 0; i < POINTS; ++i) {
      all[i] = _mm512_loadu_ps(m + i * point_step + c);
    }
#pragma GCC unroll 4
    for (int i = 0; i < SIDE; ++i) {
      give_line(all + i, SIDE, lines + i, SIDE);
    }
#pragma GCC unroll 2
    for (int i = 0; i < HR__WINOGRAD_RESULTS; ++i) {
      give_line(lines + i * SIDE, 1, y + i * HR__WINOGRAD_RESULTS, 1);
    }
    __m512 sum = _mm512_add_ps(_mm512_add_ps(y[0], y[1]), _mm512_add_ps(y[2], y[3])); /* finite if all are */
    __m512 zero = _mm512_sub_ps(sum, sum);
    if (_mm512_cmp_ps_mask(zero, zero, _CMP_UNORD_Q) != 0) {
      give_again(place, c, y);
    }
    apply_epilogues(epilogues, numbers, place->channel + c, y);
    __mmask16 mask = hr__wide_mask(place->channels - c);
#pragma GCC unroll 4
    for (int i = 0; i < PIXELS; ++i) {
      if (place->y[i] != NULL) {
        _mm512_mask_storeu_ps(place->y[i] + c, mask, y[i]);
      }
    }
  }
}

#endif
