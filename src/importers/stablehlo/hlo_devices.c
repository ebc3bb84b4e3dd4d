/* hlo_devices.c: operations between devices, of which there is one: what it sends comes back. Groups of several devices
 * are refused. */
#include "importers/stablehlo/hlo.h"

/* False, with a failure, for groups of more than one. */
static bool is_alone(hr__hlo *hlo, const char *name) {
  hr__vhlo_type type;
  hr__span bytes;
  if (!hr__vhlo_tensor(&hlo->import->module, hr__vhlo_find(&hlo->import->module, hlo->op, name), &type, &bytes)) {
    HR__HLO_REFUSE(hlo, "attribute %s is no list of devices", name);
    return false;
  }
  if (type.rank == 2 && type.dims[1] > 1) {
    HR__HLO_REFUSE(hlo, "groups of %lld devices, where there is one", (long long)type.dims[1]);
    return false;
  }
  return true;
}

void hr__hlo_lower_collective(hr__hlo *hlo) {
  if (is_alone(hlo, "replica_groups")) {
    hr__hlo_lower_pass(hlo);
  }
}

/* A device to which nothing is sent has zeros. */
void hr__hlo_lower_collective_permute(hr__hlo *hlo) {
  int64_t pairs[HR__VHLO_PLACES_MAX];
  int count = hr__hlo_ints(hlo, "source_target_pairs", pairs);
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  for (int i = 0; i < count; ++i) {
    if (pairs[i] != 0) {
      HR__HLO_REFUSE(hlo, "device %lld, where there is one", (long long)pairs[i]);
      return;
    }
  }
  hr__vhlo_type type = hr__hlo_result_type(hlo, 0);
  hr__hlo_set(hlo, 0,
              count > 0 ? hr__hlo_input(hlo, 0)
                        : hr__hlo_full(hlo, hr_scalar_i64(0), type.dtype, type.rank, type.dims));
}
