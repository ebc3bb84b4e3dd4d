/* Providers and the algorithms that they list: none is left out. */
#include "hr_test.h"

#include "engine/algorithms.h"

/* True if the provider is available for kernels of this dialect. */
static bool is_wanted(const hr_provider *provider, hr_dialect dialect) {
  bool runs_rows = provider->dialect == HR_DIALECT_HOST && provider->has != NULL;
  if (provider->dialect != dialect && !runs_rows) {
    return false;
  }
  hr_status status = hr__provider_open(provider);
  bool is_open = status == HR_OK;
  hr_status_ignore(status);
  return is_open;
}

HR_TEST(every_provider_that_opens_is_listed_in_order) {
  for (int dialect = 0; dialect <= HR_DIALECT_CUDA; ++dialect) {
    const hr_provider *const *listed = hr__algorithms_providers((hr_dialect)dialect);
    int count = 0;
    for (int i = 0; hr_providers()[i] != NULL; ++i) {
      if (is_wanted(hr_providers()[i], (hr_dialect)dialect)) {
        HR_ASSERT(listed[count] == hr_providers()[i]);
        ++count;
      }
    }
    HR_ASSERT(listed[count] == NULL);
  }
}

HR_TEST(a_list_of_algorithms_has_room_for_a_dialects_providers) {
  for (int dialect = 0; dialect <= HR_DIALECT_CUDA; ++dialect) {
    int count = 0;
    for (int i = 0; hr_providers()[i] != NULL; ++i) {
      const hr_provider *provider = hr_providers()[i];
      bool is_listed =
          (int)provider->dialect == dialect || (provider->dialect == HR_DIALECT_HOST && provider->has != NULL);
      for (int algorithm = HR_ALGORITHM_OWN;
           is_listed && (algorithm < 0 || (provider->algorithms != NULL && provider->algorithms[algorithm] != NULL));
           ++algorithm) {
        ++count;
      }
    }
    HR_ASSERT(count <= HR_ALGORITHMS_MAX);
  }
}
