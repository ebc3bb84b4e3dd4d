/* hlo_norms.c: normalisation by the statistics of a dim's elements: scale and offset of each, and their gradients. */
#include "core/ir/dtype.h"
#include "importers/stablehlo/hlo.h"

/* Numbers of 16 bits compute in f32. */
static hr_dtype wide(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64 || hr_dtype_is_complex(dtype) ? dtype : HR_DTYPE_F32;
}

/* False, with a failure, for a dim that the operand lacks. */
static bool read_norm(hr__hlo *hlo, int operands, int results, int64_t *out_axis, double *out_eps) {
  int rank = hr__hlo_input_type(hlo, 0).rank;
  *out_axis = hr__hlo_int(hlo, "feature_index", 0);
  if (!hr__hlo_expect(hlo, operands, results, 0)) {
    return false;
  }
  int attribute = hr__vhlo_find(&hlo->import->module, hlo->op, "epsilon");
  if (*out_axis < 0 || *out_axis >= rank || !hr__vhlo_real(&hlo->import->module, attribute, out_eps)) {
    HR__HLO_WRONG(hlo, "dim %lld of %d, or no epsilon", (long long)*out_axis, rank);
    return false;
  }
  return true;
}

static hr_value widened(hr__hlo *hlo, int index) {
  return hr__hlo_cast(hlo, hr__hlo_input(hlo, index), wide(hr__hlo_input_type(hlo, index).dtype));
}

static void set_narrow(hr__hlo *hlo, int index, hr_value value) {
  hr__hlo_set(hlo, index, hr__hlo_cast(hlo, value, hr__hlo_result_type(hlo, index).dtype));
}

void hr__hlo_lower_batch_norm_inference(hr__hlo *hlo) {
  enum { X, SCALE, OFFSET, MEAN, VARIANCE, OPERANDS };
  int64_t axis;
  double eps;
  if (read_norm(hlo, OPERANDS, 1, &axis, &eps)) {
    set_narrow(
        hlo, 0,
        ADD(hlo, BATCH_NORM,
            IN(widened(hlo, X), widened(hlo, MEAN), widened(hlo, VARIANCE), widened(hlo, SCALE), widened(hlo, OFFSET)),
            WITH(hr__with_int("axis", axis), hr__with_real("eps", eps))));
  }
}

void hr__hlo_lower_batch_norm_training(hr__hlo *hlo) {
  enum { X, SCALE, OFFSET, OPERANDS, RESULTS = 3 };
  int64_t axis;
  double eps;
  if (!read_norm(hlo, OPERANDS, RESULTS, &axis, &eps)) {
    return;
  }
  hr_value y = ADD(hlo, BATCH_NORM_TRAINING, IN(widened(hlo, X), widened(hlo, SCALE), widened(hlo, OFFSET)),
                   WITH(hr__with_int("axis", axis), hr__with_real("eps", eps)));
  for (int i = 0; i < RESULTS && y != 0; ++i) {
    set_narrow(hlo, i, y + i);
  }
}

/* A vector along the axis, in the operand's dims. */
static hr_value along(hr__hlo *hlo, hr_value vector, const hr__vhlo_type *x, int64_t axis) {
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = d == axis ? x->dims[d] : 1;
  }
  return hr__hlo_reshape(hlo, vector, x->rank, dims);
}

/* With n elements for each of the axis, x' = x - mean and s = 1 / sqrt(variance + eps): the offset's gradient is
 * sum(g), the scale's is s sum(g x'), the operand's scale s (g - sum(g) / n - x' s^2 sum(g x') / n). */
void hr__hlo_lower_batch_norm_grad(hr__hlo *hlo) {
  enum { X, SCALE, MEAN, VARIANCE, GRADIENT, OPERANDS };
  hr__vhlo_type x = hr__hlo_input_type(hlo, X);
  int64_t axis, others[HR_RANK_MAX];
  double eps, n = 1;
  int count = 0;
  if (!read_norm(hlo, OPERANDS, 3, &axis, &eps)) {
    return;
  }
  for (int d = 0; d < x.rank; ++d) {
    if (d != axis) {
      others[count++] = d, n *= (double)x.dims[d];
    }
  }
  hr_value g = widened(hlo, GRADIENT),
           s = CALL(hlo, RSQRT, CALL(hlo, ADD, widened(hlo, VARIANCE), hr__hlo_number(hlo, eps)));
  hr_value centred = CALL(hlo, SUBTRACT, widened(hlo, X), along(hlo, widened(hlo, MEAN), &x, axis));
  hr_value products = CALL(hlo, MULTIPLY, g, centred), sum_g = g, sum_p = products;
  if (count > 0) {
    sum_g = ADD(hlo, SUM, IN(g), WITH(hr__with_ints("axis", count, others)));
    sum_p = ADD(hlo, SUM, IN(products), WITH(hr__with_ints("axis", count, others)));
  }
  hr_value part = CALL(hlo, DIVIDE, CALL(hlo, MULTIPLY, CALL(hlo, SQUARE, s), sum_p), hr__hlo_number(hlo, n));
  hr_value mean = CALL(hlo, DIVIDE, sum_g, hr__hlo_number(hlo, n));
  hr_value rest = CALL(hlo, SUBTRACT, CALL(hlo, SUBTRACT, g, along(hlo, mean, &x, axis)),
                       CALL(hlo, MULTIPLY, centred, along(hlo, part, &x, axis)));
  hr_value factor = CALL(hlo, MULTIPLY, widened(hlo, SCALE), s);
  set_narrow(hlo, 0, CALL(hlo, MULTIPLY, rest, along(hlo, factor, &x, axis)));
  set_narrow(hlo, 1, CALL(hlo, MULTIPLY, s, sum_p));
  set_narrow(hlo, 2, sum_g);
}
