/* level_providers.c: if each level of the processor has its own providers, the names in tests are copies of those of
 * the current level.
 */
#include "providers/provider.h"

#if defined(HR_CPU_DISPATCH)
#define HR__COPY(name) hr_provider name##_copy __asm__("hr__" #name "_provider");
HR_CPU_PROVIDERS(HR__COPY)

__attribute__((constructor(200))) static void copy_providers(void) {
#define HR__ADDRESS(name) &name##_copy,
  hr_provider *const copies[] = {HR_CPU_PROVIDERS(HR__ADDRESS)}; /* hr_providers begins with them */
  for (size_t i = 0; i < sizeof copies / sizeof *copies; ++i) {
    *copies[i] = *hr_providers()[i];
  }
}
#endif
