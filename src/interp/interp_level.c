/* interp_level.c: selects the interpreter of the processor's level, in builds with several. */
#include "interp/interp.h"

#if defined(HR_CPU_DISPATCH)
#define HR__CREATE(level)                                                                       \
  hr_status hr_interp_create_like_v##level(const hr_kernel *kernel, const hr_host_kernel *last, \
                                           hr_host_kernel **out_host_kernel)
HR__CREATE(2);
HR__CREATE(3);
HR__CREATE(4);

#define HR__RENUMBER(level) bool hr_interp_renumber_v##level(hr_host_kernel *host_kernel, const hr_kernel *kernel)
HR__RENUMBER(2);
HR__RENUMBER(3);
HR__RENUMBER(4);

hr_status hr_interp_create_like(const hr_kernel *kernel, const hr_host_kernel *last, hr_host_kernel **out_host_kernel) {
  switch (hr_cpu_level()) {
    case 4:
      return hr_interp_create_like_v4(kernel, last, out_host_kernel);
    case 3:
      return hr_interp_create_like_v3(kernel, last, out_host_kernel);
    default:
      return hr_interp_create_like_v2(kernel, last, out_host_kernel);
  }
}

bool hr_interp_renumber(hr_host_kernel *host_kernel, const hr_kernel *kernel) {
  switch (hr_cpu_level()) {
    case 4:
      return hr_interp_renumber_v4(host_kernel, kernel);
    case 3:
      return hr_interp_renumber_v3(host_kernel, kernel);
    default:
      return hr_interp_renumber_v2(host_kernel, kernel);
  }
}
#endif
