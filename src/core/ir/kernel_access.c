/* The elements that a kernel's accesses visit. */
#include <string.h>

#include "core/ir/kernel.h"

bool hr_kernel_same_elements(const hr_kernel *kernel, const hr_access *a, const hr_access *b) {
  size_t bytes = (size_t)kernel->rank * sizeof *a->strides;
  bool is_same = a->arg == b->arg && a->offset == b->offset && a->dtype == b->dtype && a->term_count == 0 &&
                 b->term_count == 0 && a->bound_count == b->bound_count && memcmp(a->strides, b->strides, bytes) == 0;
  for (int k = 0; is_same && k < a->bound_count; ++k) {
    is_same = a->bounds[k].offset == b->bounds[k].offset && a->bounds[k].extent == b->bounds[k].extent &&
              memcmp(a->bounds[k].strides, b->bounds[k].strides, bytes) == 0;
  }
  return is_same;
}

bool hr_kernel_is_dense(const hr_kernel *kernel, const hr_access *access) {
  bool is = access->term_count == 0 && access->bound_count == 0;
  int64_t stride = 1;
  for (int d = kernel->rank - 1; is && d >= 0; --d) {
    is = kernel->dims[d] == 1 || access->strides[d] == stride;
    stride *= kernel->dims[d];
  }
  return is;
}
