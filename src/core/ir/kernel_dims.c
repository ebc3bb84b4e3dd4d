#include "core/ir/kernel_dims.h"

static void append(hr_dims *dims, int64_t dim, int source) {
  dims->dims[dims->rank] = dim;
  dims->source[dims->rank] = source;
  ++dims->rank;
}

/* 1 if dim `a` should be outside dim `b`, -1 for the reverse, 0 if no access decides. The first access that decides
 * wins: stores before loads, but in reductions loads first, because they are more frequent. */
static int compare_dims(const hr_kernel *kernel, bool is_reduced, int a, int b) {
  for (int pass = 0; pass < 2; ++pass) {
    for (int k = 0; k < kernel->instr_count; ++k) {
      const hr_instr *instr = &kernel->instrs[k];
      if (instr->kind != ((pass == 0) != is_reduced ? HR_INSTR_STORE : HR_INSTR_LOAD)) {
        continue;
      }
      const int64_t *strides = kernel->accesses[instr->access].strides;
      int64_t x = strides[a] < 0 ? -strides[a] : strides[a], y = strides[b] < 0 ? -strides[b] : strides[b];
      if (x != 0 && y != 0 && x != y) {
        return x > y ? 1 : -1;
      }
    }
  }
  return 0;
}

/* Sorts the kept dims, which may run in any order: small strides innermost. */
static void sort_kept(const hr_kernel *kernel, bool is_reduced, hr_dims *dims) {
  for (int i = 1; i < dims->rank; ++i) {
    for (int j = i; j > 0 && compare_dims(kernel, is_reduced, dims->source[j - 1], dims->source[j]) < 0; --j) {
      int64_t dim = dims->dims[j];
      int source = dims->source[j];
      dims->dims[j] = dims->dims[j - 1], dims->source[j] = dims->source[j - 1];
      dims->dims[j - 1] = dim, dims->source[j - 1] = source;
    }
  }
}

/* True if, for every access, one step along the outer dim equals the whole length of the inner one. */
static bool can_merge(const hr_kernel *kernel, int outer, int inner, int64_t inner_dim) {
  for (int k = 0; k < kernel->access_count; ++k) {
    const hr_access *access = &kernel->accesses[k];
    if (access->strides[outer] != access->strides[inner] * inner_dim) {
      return false;
    }
    for (int b = 0; b < access->bound_count; ++b) {
      if (access->bounds[b].strides[outer] != access->bounds[b].strides[inner] * inner_dim) {
        return false;
      }
    }
  }
  return true;
}

static void merge(const hr_kernel *kernel, hr_dims *dims) {
  int n = 0;
  for (int d = 0; d < dims->rank; ++d) {
    if (n > 0 && can_merge(kernel, dims->source[n - 1], dims->source[d], dims->dims[d])) {
      dims->dims[n - 1] *= dims->dims[d];
      dims->source[n - 1] = dims->source[d];
    } else {
      dims->dims[n] = dims->dims[d];
      dims->source[n] = dims->source[d];
      ++n;
    }
  }
  dims->rank = n;
}

bool hr_kernel_split_dims(const hr_kernel *kernel, uint32_t walked_mask, hr_dims *out_kept, hr_dims *out_walked) {
  bool is_innermost_walked = false;
  out_kept->rank = out_walked->rank = 0;
  for (int d = 0; d < kernel->rank; ++d) {
    bool is_walked = (walked_mask >> d & 1) != 0;
    if (kernel->dims[d] != 1) {
      append(is_walked ? out_walked : out_kept, kernel->dims[d], d);
      is_innermost_walked = is_walked;
    }
  }
  sort_kept(kernel, out_walked->rank > 0, out_kept);
  merge(kernel, out_kept);
  merge(kernel, out_walked);
  return is_innermost_walked;
}
