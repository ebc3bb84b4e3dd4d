/* hlo_cumulative.c: composites of cumulative operations, which the package headrace-jax writes: "headrace.cumulative_*"
 * with the attributes `axis` and `reverse`. Reductions of windows that are as long as the axis are no part of it.
 */
#include "core/ir/dtype.h"
#include "importers/stablehlo/hlo.h"

static int64_t attribute_of(const hr__hlo *hlo, const char *name, int64_t otherwise) {
  int64_t number;
  return hr__hlo_setting(hlo, name, &number) ? number : otherwise;
}

static bool has_dtype(const hr__hlo *hlo) {
  return hlo->function == HR_FUNCTIONAL_CUMULATIVE_SUM || hlo->function == HR_FUNCTIONAL_CUMULATIVE_PROD;
}

static hr_value add_cumulative(hr__hlo *hlo, hr_value x, int64_t axis, hr_dtype dtype) {
  hr_graph_attribute along = hr__with_int("axis", axis);
  hr_value y = has_dtype(hlo)
                   ? hr_graph_add(hlo->graph, hlo->function, IN(x), WITH(along, hr__with_dtype("dtype", dtype)))
                   : hr_graph_add(hlo->graph, hlo->function, IN(x), WITH(along));
  bool is_sum = hlo->function == HR_FUNCTIONAL_CUMULATIVE_SUM && dtype >= HR_DTYPE_F16;
  return is_sum ? CALL(hlo, ADD, hr__hlo_number(hlo, 0), y) : y; /* sums begin with 0, not with -0 */
}

/* Complex numbers have no order here: their maxima are the decomposition's, as are logarithms of their sums. */
void hr__hlo_lower_cumulative(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0);
  int64_t axis = attribute_of(hlo, "axis", -1);
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  if (axis < 0 || axis >= x.rank) {
    HR__HLO_WRONG(hlo, "dim %lld of %d", (long long)axis, x.rank);
    return;
  }
  if (hr_dtype_is_complex(x.dtype) && !has_dtype(hlo)) {
    hr__hlo_call(hlo, "decomposition");
    return;
  }
  bool is_reversed = attribute_of(hlo, "reverse", 0) != 0;
  hr_value in = hr__hlo_input(hlo, 0);
  in = is_reversed ? ADD(hlo, FLIP, IN(in), WITH(hr__with_ints("axis", 1, &axis))) : in;
  hr_value out = add_cumulative(hlo, in, axis, x.dtype);
  hr__hlo_set(hlo, 0, is_reversed ? ADD(hlo, FLIP, IN(out), WITH(hr__with_ints("axis", 1, &axis))) : out);
}
