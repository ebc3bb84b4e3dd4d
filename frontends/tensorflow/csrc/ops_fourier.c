/* ops_fourier.c: rules of Fourier transforms over the last dims, as many as the operation's name says, or over axes. */
#include <string.h>

#include "node.h"

/* The transformed dims, and their lengths in the result of a direct transform. */
typedef struct transform {
  int count;
  int64_t axis[HR_RANK_MAX], length[HR_RANK_MAX];
} transform;

static transform read_transform(htf_node *node, htf_value x) {
  const char *op = node->kernel->row->op;
  size_t size = strlen(op);
  bool has_axes = strcmp(op + size - 2, "ND") == 0, has_length = has_axes || strstr(op, "RFFT") != NULL;
  transform t = {.count = op[size - 1] == 'D' && !has_axes ? op[size - 2] - '0' : 1};
  if (has_axes) {
    t.count = htf_host_ints(node, 2, t.axis, HR_RANK_MAX);
  }
  int lengths = has_length ? htf_host_ints(node, 1, t.length, HR_RANK_MAX) : t.count;
  if (!htf_has_failed(node) && (t.count > x->rank || lengths != t.count)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input must have at least %d dims and as many lengths: %d and %d",
             op, t.count, x->rank, lengths);
  }
  for (int i = 0; i < t.count && !htf_has_failed(node); ++i) {
    t.axis[i] = has_axes ? t.axis[i] : x->rank - t.count + i;
    t.axis[i] += t.axis[i] < 0 ? x->rank : 0;
    if (t.axis[i] < 0 || t.axis[i] >= x->rank) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: axis %lld is out of range for %d dims", op, (long long)t.axis[i],
               x->rank);
      break;
    }
    t.length[i] = has_length ? t.length[i] : x->dims[t.axis[i]];
    if (t.length[i] < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: fft_length must not be negative: %lld", op,
               (long long)t.length[i]);
    }
  }
  return t;
}

void htf_fourier(htf_node *node) {
  htf_value x = htf_input(node, 0);
  transform t = read_transform(node, x);
  hr_dtype dtype = htf_output_dtype(node, 0);
  if (htf_has_failed(node)) {
    return;
  }
  int64_t dims[HR_RANK_MAX], elements = hr_tensor_count(x);
  memcpy(dims, x->dims, sizeof dims);
  for (int i = 0; i < t.count; ++i) {
    bool is_last = i + 1 == t.count, is_half = node->function == HR_FUNCTIONAL_RFFTN && is_last && t.length[i] > 0;
    bool is_real = node->function == HR_FUNCTIONAL_IRFFTN && is_last && t.length[i] > 0;
    int64_t least = is_real ? t.length[i] / 2 + 1 : t.length[i];
    if (elements > 0 && x->dims[t.axis[i]] < least) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Input dimension %lld must have length of at least %lld but got: %lld",
               (long long)t.axis[i], (long long)least, (long long)x->dims[t.axis[i]]);
      return;
    }
    dims[t.axis[i]] = is_half ? t.length[i] / 2 + 1 : t.length[i];
    elements *= t.length[i];
  }
  if (elements == 0) {
    htf_output(node, 0,
               htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(0))),
                        ATTRIBUTES(htf_attr_ints(dims, x->rank), htf_attr_dtype(dtype))));
    return;
  }
  htf_output(node, 0,
             htf_call(node, node->function, INPUTS(x),
                      ATTRIBUTES(htf_attr_ints(t.length, t.count), htf_attr_ints(t.axis, t.count))));
}
