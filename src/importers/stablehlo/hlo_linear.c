/* hlo_linear.c: Fourier transforms, Cholesky factors and triangular systems. Narrow floats compute in f32. */
#include <math.h>

#include "core/ir/dtype.h"
#include "importers/stablehlo/hlo.h"

static hr_dtype wide(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64 || hr_dtype_is_complex(dtype) ? dtype : HR_DTYPE_F32;
}

static bool is_empty(const hr__vhlo_type *type) {
  for (int d = 0; d < type->rank; ++d) {
    if (type->dims[d] == 0) {
      return true;
    }
  }
  return false;
}

/* ---- Fourier transforms of the last dims ---- */

void hr__hlo_lower_fft(hr__hlo *hlo) {
  static const hr_functional functions[] = {HR_FUNCTIONAL_FFTN, HR_FUNCTIONAL_IFFTN, HR_FUNCTIONAL_RFFTN,
                                            HR_FUNCTIONAL_IRFFTN};
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), result = hr__hlo_result_type(hlo, 0);
  int64_t sizes[HR__VHLO_PLACES_MAX], kind = hr__hlo_int(hlo, "fft_type", 0);
  int count = hr__hlo_ints(hlo, "fft_length", sizes);
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  if (kind < 0 || kind > 3 || count < 1 || count > 3 || count > x.rank) {
    HR__HLO_WRONG(hlo, "type %lld, %d lengths for %d dims", (long long)kind, count, x.rank);
    return;
  }
  hr_value y = is_empty(&x) || is_empty(&result)
                   ? hr__hlo_full(hlo, hr_scalar_i64(0), result.dtype, result.rank, result.dims)
                   : hr_graph_add(hlo->graph, functions[kind], IN(hr__hlo_input(hlo, 0)),
                                  WITH(hr__with_ints("s", count, sizes)));
  hr__hlo_set(hlo, 0, y);
}

/* ---- matrices ---- */

hr_value hr__hlo_nan(hr__hlo *hlo, hr_dtype dtype) {
  hr_dtype real = dtype == HR_DTYPE_C128 ? HR_DTYPE_F64 : dtype == HR_DTYPE_C64 ? HR_DTYPE_F32 : dtype;
  hr_value nan = hr__hlo_full(hlo, hr_scalar_f64(NAN), real, 0, NULL);
  return hr_dtype_is_complex(dtype) ? CALL(hlo, COMPLEX, nan, nan) : nan;
}

/* x, or NaN for matrices whose flag is false. */
static hr_value nan_unless(hr__hlo *hlo, hr_value flags, hr_value x, const hr__vhlo_type *type) {
  int64_t dims[HR_RANK_MAX];
  memcpy(dims, type->dims, sizeof dims);
  dims[type->rank - 2] = dims[type->rank - 1] = 1;
  return CALL(hlo, WHERE, hr__hlo_reshape(hlo, flags, type->rank, dims), x, hr__hlo_nan(hlo, type->dtype));
}

void hr__hlo_lower_cholesky(hr__hlo *hlo) {
  hr__vhlo_type type = hr__hlo_result_type(hlo, 0);
  bool is_lower = hr__hlo_int(hlo, "lower", 0) != 0;
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  hr_dtype dtype = type.dtype;
  type.dtype = wide(dtype);
  hr_value factor = ADD(hlo, CHOLESKY_EX, IN(hr__hlo_cast(hlo, hr__hlo_input(hlo, 0), type.dtype)),
                        WITH(hr__with_flag("upper", !is_lower)));
  if (!hr__hlo_failed(hlo)) {
    hr_value is_done = CALL(hlo, EQUAL, factor + 1, hr__hlo_whole(hlo, 0));
    hr__hlo_set(hlo, 0, hr__hlo_cast(hlo, nan_unless(hlo, is_done, factor, &type), dtype));
  }
}

hr_value hr__hlo_triangular(hr__hlo *hlo, hr_value a, hr_value b, hr_dtype dtype, const hr__hlo_triangle *t) {
  static const char *const words[] = {"none", "transpose", "adjoint"};
  hr_value x = ADD(hlo, SOLVE_TRIANGULAR, IN(hr__hlo_cast(hlo, a, wide(dtype)), hr__hlo_cast(hlo, b, wide(dtype))),
                   WITH(hr__with_flag("upper", t->is_upper), hr__with_flag("unit_diagonal", t->has_ones),
                        hr__with_flag("left", t->is_left), hr__with_text("transpose", words[t->transposition])));
  return hr__hlo_cast(hlo, x, dtype);
}

void hr__hlo_lower_triangular_solve(hr__hlo *hlo) {
  int64_t transposition = hr__hlo_int(hlo, "transpose_a", 1);
  hr__hlo_triangle t = {.is_upper = hr__hlo_int(hlo, "lower", 0) == 0,
                        .has_ones = hr__hlo_int(hlo, "unit_diagonal", 0) != 0,
                        .is_left = hr__hlo_int(hlo, "left_side", 0) != 0,
                        .transposition = (int)transposition - 1};
  if (!hr__hlo_expect(hlo, 2, 1, 0)) {
    return;
  }
  if (transposition < 1 || transposition > 3) {
    HR__HLO_WRONG(hlo, "transposition %lld, expected 1 to 3", (long long)transposition);
    return;
  }
  hr_dtype dtype = hr__hlo_result_type(hlo, 0).dtype;
  hr__hlo_set(hlo, 0, hr__hlo_triangular(hlo, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1), dtype, &t));
}
