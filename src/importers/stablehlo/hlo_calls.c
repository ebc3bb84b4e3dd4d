/* hlo_calls.c: custom calls and composites that are no operation of StableHLO. */
#include "importers/stablehlo/hlo.h"

bool hr__hlo_setting(const hr__hlo *hlo, const char *name, int64_t *out) {
  const hr__vhlo_module *module = &hlo->import->module;
  int own = hr__vhlo_find(module, hlo->op, "backend_config");
  int added = hr__vhlo_dictionary(module, hlo->op->dictionary, "mhlo.backend_config");
  int composite = hr__vhlo_find(module, hlo->op, "composite_attributes");
  return hr__vhlo_int(module, hr__vhlo_dictionary(module, own, name), out) ||
         hr__vhlo_int(module, hr__vhlo_dictionary(module, added, name), out) ||
         hr__vhlo_int(module, hr__vhlo_dictionary(module, composite, name), out);
}

/* The custom call mhlo.topk: chlo.top_k with attributes of its own. */
void hr__hlo_lower_mhlo_topk(hr__hlo *hlo) {
  const hr__vhlo_module *module = &hlo->import->module;
  int64_t is_largest = 1;
  int attributes = hr__vhlo_dictionary(module, hlo->op->dictionary, "mhlo.attributes");
  if (hr__vhlo_int(module, hr__vhlo_dictionary(module, attributes, "largest"), &is_largest) && is_largest == 0) {
    HR__HLO_REFUSE(hlo, "the smallest elements");
    return;
  }
  hr__hlo_lower_top_k(hlo);
}

/* Memory without contents: here zeros. */
void hr__hlo_lower_allocate(hr__hlo *hlo) {
  hr__vhlo_type type = hr__hlo_result_type(hlo, 0);
  if (hr__hlo_expect(hlo, 0, 1, 0)) {
    hr__hlo_set(hlo, 0, hr__hlo_full(hlo, hr_scalar_i64(0), type.dtype, type.rank, type.dims));
  }
}

/* A call that keeps its operands from being left out. */
void hr__hlo_lower_sink(hr__hlo *hlo) {
  hr__hlo_expect(hlo, -1, 0, -1);
}
