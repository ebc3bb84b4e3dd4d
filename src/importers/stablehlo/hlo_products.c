/* hlo_products.c: matrix products over any dims, and convolutions. */
#include <stdio.h>

#include "core/ir/dtype.h"
#include "importers/stablehlo/hlo.h"

/* The dims of an operand: batch, then free, then contracted ones, or the last two the other way round. */
typedef struct side {
  hr_value value;
  int rank, batch_count, free_count, contract_count;
  int64_t batch[HR_RANK_MAX], free[HR_RANK_MAX], contract[HR_RANK_MAX];
  hr__vhlo_type type;
} side;

static bool read_side(hr__hlo *hlo, int index, const char *batch, const char *contract, side *out) {
  uint32_t used = 0;
  *out = (side){.value = hr__hlo_input(hlo, index), .type = hr__hlo_input_type(hlo, index)};
  out->rank = out->type.rank;
  out->batch_count = hr__hlo_axes(hlo, batch, out->rank, out->batch);
  out->contract_count = hr__hlo_axes(hlo, contract, out->rank, out->contract);
  if (out->batch_count < 0 || out->contract_count < 0) {
    return false;
  }
  for (int i = 0; i < out->batch_count; ++i) {
    used |= 1u << out->batch[i];
  }
  for (int i = 0; i < out->contract_count; ++i) {
    if ((used >> out->contract[i] & 1) != 0) {
      HR__HLO_WRONG(hlo, "dim %lld is batched and contracted", (long long)out->contract[i]);
      return false;
    }
    used |= 1u << out->contract[i];
  }
  for (int d = 0; d < out->rank; ++d) {
    if ((used >> d & 1) == 0) {
      out->free[out->free_count++] = d;
    }
  }
  return true;
}

static int64_t product(const side *s, int count, const int64_t *axes) {
  int64_t size = 1;
  for (int i = 0; i < count; ++i) {
    size *= s->type.dims[axes[i]];
  }
  return size;
}

/* Complex numbers are wider than reals, these than integers; otherwise more bytes are. */
static int width_of(hr_dtype dtype) {
  enum { REAL = 100, COMPLEX = 200 };
  int kind = hr_dtype_is_complex(dtype) ? COMPLEX : hr_dtype_is_integer(dtype) ? 0 : REAL;
  return kind + (int)hr_dtype_size(dtype);
}

/* The dtype of the factors: the result's, or the widest of an operand, whose sums are converted at the end. */
static hr_dtype dtype_of_factors(const hr__hlo *hlo) {
  hr_dtype dtype = hr__hlo_result_type(hlo, 0).dtype;
  for (int i = 0; i < hlo->op->operand_count; ++i) {
    hr_dtype other = hr__hlo_input_type(hlo, i).dtype;
    dtype = width_of(other) > width_of(dtype) ? other : dtype;
  }
  return dtype;
}

/* A stack of matrices. */
static hr_value matrices(hr__hlo *hlo, const side *s, bool contracts_last, hr_dtype dtype) {
  int64_t axes[HR_RANK_MAX], dims[HR_RANK_MAX + 2];
  int count = 0, rank = s->batch_count;
  for (int i = 0; i < s->batch_count; ++i) {
    dims[i] = s->type.dims[s->batch[i]], axes[count++] = s->batch[i];
  }
  for (int part = 0; part < 2; ++part) {
    bool contracts = (part == 1) == contracts_last;
    int size = contracts ? s->contract_count : s->free_count;
    const int64_t *from = contracts ? s->contract : s->free;
    for (int i = 0; i < size; ++i) {
      axes[count++] = from[i];
    }
    dims[rank++] = product(s, size, from);
  }
  hr_value x = hr__hlo_cast(hlo, s->value, dtype);
  return hr__hlo_reshape(hlo, hr__hlo_permute(hlo, x, s->rank, axes), rank, dims);
}

/* With `swaps` the second operand's free dims come first in the result. */
static hr_value dot_general(hr__hlo *hlo, bool swaps) {
  side x, y;
  int64_t dims[HR_RANK_MAX];
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  if (!hr__hlo_expect(hlo, 2, 1, 0) ||
      !read_side(hlo, 0, "lhs_batching_dimensions", "lhs_contracting_dimensions", &x) ||
      !read_side(hlo, 1, "rhs_batching_dimensions", "rhs_contracting_dimensions", &y)) {
    return 0;
  }
  if (x.batch_count > HR_RANK_MAX - 2 || result.rank != x.batch_count + x.free_count + y.free_count) {
    return HR__HLO_WRONG(hlo, "%d dims, expected %d", result.rank, x.batch_count + x.free_count + y.free_count);
  }
  const side *first = swaps ? &y : &x, *second = swaps ? &x : &y;
  memcpy(dims, result.dims, sizeof dims);
  for (int i = 0; swaps && i < x.free_count + y.free_count; ++i) {
    dims[x.batch_count + i] = result.dims[x.batch_count + (i + x.free_count) % (x.free_count + y.free_count)];
  }
  hr_dtype dtype = dtype_of_factors(hlo);
  hr_value a = matrices(hlo, first, true, dtype), b = matrices(hlo, second, false, dtype);
  hr_value sums = hr__hlo_convert(hlo, CALL(hlo, MATMUL, a, b), dtype, result.dtype);
  return hr__hlo_reshape(hlo, sums, result.rank, dims);
}

void hr__hlo_lower_dot_general(hr__hlo *hlo) {
  hr__hlo_set(hlo, 0, dot_general(hlo, false));
}

static bool is_dot_general(const hr__vhlo_op *op) {
  static const char name[] = "dot_general_v";
  return op != NULL && strcmp(op->name->dialect, "vhlo") == 0 && strncmp(op->name->name, name, sizeof name - 1) == 0;
}

/* JAX writes the gradient of a weight as a product and its transpose, which would be read with other strides. */
hr_value hr__hlo_swapped_product(const hr__hlo *hlo, int rank, const int64_t *axes) {
  const hr__vhlo_value *product = hlo->op->operands[0];
  if (!is_dot_general(product->op) || product->use_count != 1 || product->region != hlo->op->results[0].region) {
    return 0;
  }
  side x, y;
  hr__hlo dot = *hlo;
  dot.op = product->op;
  if (!read_side(&dot, 0, "lhs_batching_dimensions", "lhs_contracting_dimensions", &x) ||
      !read_side(&dot, 1, "rhs_batching_dimensions", "rhs_contracting_dimensions", &y)) {
    return 0;
  }
  int free_count = x.free_count + y.free_count;
  bool is_swap = rank == x.batch_count + free_count && free_count > 0;
  for (int d = 0; is_swap && d < rank; ++d) {
    int from = d - x.batch_count;
    is_swap = axes[d] == (from < 0 ? d : x.batch_count + (from + x.free_count) % free_count);
  }
  return is_swap ? dot_general(&dot, true) : 0;
}

/* The last dim of one times the first of the other. */
void hr__hlo_lower_dot(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), result = hr__hlo_result_type(hlo, 0);
  if (hr__hlo_expect(hlo, 2, 1, 0)) {
    const int64_t last = x.rank - 1, first = 0;
    hr_dtype dtype = dtype_of_factors(hlo);
    hr_value a = hr__hlo_cast(hlo, hr__hlo_input(hlo, 0), dtype), b = hr__hlo_cast(hlo, hr__hlo_input(hlo, 1), dtype);
    hr_value sums =
        ADD(hlo, TENSORDOT, IN(a, b), WITH(hr__with_ints("x_axes", 1, &last), hr__with_ints("y_axes", 1, &first)));
    hr__hlo_set(hlo, 0, hr__hlo_convert(hlo, sums, dtype, result.dtype));
  }
}

/* Of one operand or two. */
void hr__hlo_lower_einsum(hr__hlo *hlo) {
  hr_value operands[2] = {0, 0};
  int count = hlo->op->operand_count;
  const char *equation = hr__hlo_text(hlo, "einsum_config");
  if (!hr__hlo_expect(hlo, -1, 1, 0)) {
    return;
  }
  if (count < 1 || count > 2 || equation == NULL) {
    HR__HLO_WRONG(hlo, "%d operands, or no equation", count);
    return;
  }
  hr_dtype dtype = dtype_of_factors(hlo);
  for (int i = 0; i < count; ++i) {
    operands[i] = hr__hlo_cast(hlo, hr__hlo_input(hlo, i), dtype);
  }
  hr_value y =
      hr_graph_add(hlo->graph, HR_FUNCTIONAL_EINSUM, count, operands, WITH(hr__with_text("equation", equation)));
  hr__hlo_set(hlo, 0, hr__hlo_convert(hlo, y, dtype, hr__hlo_result_type(hlo, 0).dtype));
}

/* ---- convolution ---- */

/* "b01f": the places of the batch, the features and the planes of x or the result; "01io" of the weight. */
static bool write_layout(hr__hlo *hlo, int rank, const char *const *names, const char *letters, char *out) {
  int64_t planes[HR_RANK_MAX];
  memset(out, 0, (size_t)rank + 1);
  int64_t first = hr__hlo_int(hlo, names[0], 0), second = hr__hlo_int(hlo, names[1], 1);
  if (hr__hlo_axes(hlo, names[2], rank, planes) != rank - 2 || first < 0 || first >= rank || second < 0 ||
      second >= rank) {
    HR__HLO_WRONG(hlo, "%s, %s or %s", names[0], names[1], names[2]);
    return false;
  }
  out[first] = letters[0], out[second] = letters[1];
  for (int d = 0; d < rank - 2; ++d) {
    out[planes[d]] = (char)('0' + d);
  }
  if ((int)strlen(out) != rank) {
    HR__HLO_WRONG(hlo, "%s, %s or %s", names[0], names[1], names[2]);
    return false;
  }
  return true;
}

static bool read_layout(hr__hlo *hlo, int rank, char *out) {
  static const char *const names[3][3] = {
      {"input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"},
      {"kernel_output_feature_dimension", "kernel_input_feature_dimension", "kernel_spatial_dimensions"},
      {"output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"}};
  char parts[3][HR_RANK_MAX + 1];
  if (!write_layout(hlo, rank, names[0], "bf", parts[0]) || !write_layout(hlo, rank, names[1], "oi", parts[1]) ||
      !write_layout(hlo, rank, names[2], "bf", parts[2])) {
    return false;
  }
  const char *plane = rank == 2 ? "0" : ""; /* without planes: one of size 1 */
  snprintf(out, 64, "%s%s,%s%s->%s%s", parts[0], plane, parts[1], plane, parts[2], plane);
  return true;
}

/* The weight with some of its planes reversed. */
static hr_value with_reversal(hr__hlo *hlo, hr_value weight, int planes) {
  int64_t flags[HR_RANK_MAX], places[HR_RANK_MAX], axes[HR_RANK_MAX];
  int count = 0;
  if (!hr__hlo_int_list(hlo, "window_reversal", planes, 0, flags) ||
      hr__hlo_axes(hlo, "kernel_spatial_dimensions", planes + 2, places) != planes) {
    return 0;
  }
  for (int d = 0; d < planes; ++d) {
    if (flags[d] != 0) {
      axes[count++] = places[d];
    }
  }
  return count == 0 ? weight : ADD(hlo, FLIP, IN(weight), WITH(hr__with_ints("axis", count, axes)));
}

enum { PLANES_MAX = 3 };

typedef struct window {
  int planes; /* at least 1 */
  int64_t before[PLANES_MAX], after[PLANES_MAX], stride[PLANES_MAX], dilation[PLANES_MAX], spread[PLANES_MAX];
  char layout[64];
} window;

static bool read_window(hr__hlo *hlo, window *out) {
  int rank = hr__hlo_input_type(hlo, 0).rank, n = rank - 2;
  int64_t sides[2 * PLANES_MAX];
  *out = (window){.planes = n > 0 ? n : 1, .stride = {1}, .dilation = {1}, .spread = {1}};
  if (n < 0 || n > PLANES_MAX || hr__hlo_input_type(hlo, 1).rank != rank) {
    HR__HLO_REFUSE(hlo, "%d planes, expected 0 to %d", n, PLANES_MAX);
    return false;
  }
  bool is_dynamic = hlo->op->operand_count == 3; /* dynamic_conv, whose padding is an operand */
  if (!hr__hlo_expect(hlo, 2 + is_dynamic, 1, 0) || !read_layout(hlo, rank, out->layout) ||
      !(is_dynamic ? hr__hlo_constant_ints(hlo, 2, 2 * n, sides) : hr__hlo_int_list(hlo, "padding", 2 * n, 0, sides)) ||
      !hr__hlo_int_list(hlo, "window_strides", n, 1, out->stride) ||
      !hr__hlo_int_list(hlo, "rhs_dilation", n, 1, out->dilation) ||
      !hr__hlo_int_list(hlo, "lhs_dilation", n, 1, out->spread)) {
    return false;
  }
  for (int d = 0; d < n; ++d) {
    out->before[d] = sides[2 * d], out->after[d] = sides[2 * d + 1];
  }
  return true;
}

/* Without planes: a plane of size 1. */
static hr_value with_plane(hr__hlo *hlo, hr_value x, hr__vhlo_type type) {
  if (type.rank > 2) {
    return x;
  }
  type.dims[type.rank] = 1;
  return hr__hlo_reshape(hlo, x, type.rank + 1, type.dims);
}

void hr__hlo_lower_convolution(hr__hlo *hlo) {
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  window w;
  if (!read_window(hlo, &w)) {
    return;
  }
  int n = w.planes;
  hr_dtype dtype = dtype_of_factors(hlo);
  hr_value image = hr__hlo_cast(hlo, hr__hlo_input(hlo, 0), dtype);
  hr_value weight = with_reversal(hlo, hr__hlo_input(hlo, 1), hr__hlo_input_type(hlo, 1).rank - 2);
  image = with_plane(hlo, image, hr__hlo_input_type(hlo, 0));
  weight = with_plane(hlo, hr__hlo_cast(hlo, weight, dtype), hr__hlo_input_type(hlo, 1));
  hr_value y = ADD(hlo, CONV_GENERAL, IN(image, weight, 0),
                   WITH(hr__with_ints("stride", n, w.stride), hr__with_ints("before", n, w.before),
                        hr__with_ints("after", n, w.after), hr__with_ints("dilation", n, w.dilation),
                        hr__with_ints("input_dilation", n, w.spread),
                        hr__with_int("groups", hr__hlo_int(hlo, "feature_group_count", 1)),
                        hr__with_int("batch_groups", hr__hlo_int(hlo, "batch_group_count", 1)),
                        hr__with_text("layout", w.layout)));
  y = hr__hlo_convert(hlo, y, dtype, result.dtype);
  hr__hlo_set(hlo, 0, result.rank > 2 ? y : hr__hlo_reshape(hlo, y, result.rank, result.dims));
}
