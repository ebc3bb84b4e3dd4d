/* ops_padding.c: rules of repetition and padding. */
#include <string.h>

#include "node.h"

void htf_tile(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t times[HR_RANK_MAX], dims[HR_RANK_MAX];
  htf_expect_rank(node, 1, 1, "Expected multiples to be 1-D");
  int count = htf_read_dims(node, 1, times);
  if (!htf_has_failed(node) && count != x->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Tile: there are %d multiples for %d dims", count, x->rank);
  }
  if (htf_has_failed(node)) {
    return;
  }
  int64_t elements = 1;
  for (int d = 0; d < count; ++d) {
    elements *= dims[d] = x->dims[d] * times[d];
  }
  if (count == 0) {
    htf_output(node, 0, x);
  } else if (elements == 0) {
    htf_output(node, 0, htf_zeros(node, count, dims, x->dtype));
  } else {
    htf_output(node, 0, htf_call(node, HR_FUNCTIONAL_TILE, INPUTS(x), ATTRIBUTES(htf_attr_ints(times, count))));
  }
}

typedef struct padding {
  int64_t before[HR_RANK_MAX], after[HR_RANK_MAX];
} padding;

static padding read_padding(htf_node *node, htf_value x) {
  padding sides = {{0}, {0}};
  int64_t pairs[2 * HR_RANK_MAX];
  int count = htf_host_ints(node, 1, pairs, 2 * HR_RANK_MAX);
  int64_t dims[HR_RANK_MAX];
  if (htf_host_dims(node, 1, dims) != 2 || dims[1] != 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: paddings must be a matrix with 2 columns", node->kernel->row->op);
  }
  if (!htf_has_failed(node) && count != 2 * x->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: The first dimension of paddings must be the rank of inputs: %d paddings for %d dims",
             node->kernel->row->op, count / 2, x->rank);
  }
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    if (pairs[i] < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Paddings must be non-negative: %lld", (long long)pairs[i]);
    }
    *(i % 2 == 0 ? &sides.before[i / 2] : &sides.after[i / 2]) = pairs[i];
  }
  return sides;
}

static htf_value pad_by(htf_node *node, hr_functional function, htf_value x, const padding *sides) {
  return htf_call(node, function, INPUTS(x),
                  ATTRIBUTES(htf_attr_ints(sides->before, x->rank), htf_attr_ints(sides->after, x->rank)));
}

void htf_pad(htf_node *node) {
  htf_value x = htf_input(node, 0);
  padding sides = read_padding(node, x);
  htf_output(node, 0, x->rank == 0 ? x : pad_by(node, HR_FUNCTIONAL_PAD, x, &sides));
}

/* The value is a tensor, so x is written into a tensor full of it. */
void htf_pad_v2(htf_node *node) {
  htf_value x = htf_input(node, 0);
  padding sides = read_padding(node, x);
  htf_value value = htf_input(node, 2);
  if (htf_has_failed(node)) {
    return;
  }
  int64_t dims[HR_RANK_MAX], step[HR_RANK_MAX];
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = sides.before[d] + x->dims[d] + sides.after[d], step[d] = 1;
  }
  htf_value full = htf_broadcast(node, value, x->rank, dims);
  if (hr_tensor_count(x) == 0 || x->rank == 0) {
    htf_output(node, 0, x->rank == 0 ? x : full);
    return;
  }
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_SLICE_UPDATE, INPUTS(full, x),
                      ATTRIBUTES(htf_attr_ints(sides.before, x->rank), htf_attr_ints(x->dims, x->rank),
                                 htf_attr_ints(step, x->rank))));
}

void htf_mirror_pad(htf_node *node) {
  htf_value x = htf_input(node, 0);
  padding sides = read_padding(node, x);
  bool reflects = strcmp(htf_text(node, "mode"), "REFLECT") == 0;
  for (int d = 0; d < x->rank && !htf_has_failed(node); ++d) {
    int64_t most = x->dims[d] - reflects;
    if (sides.before[d] > most || sides.after[d] > most) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "paddings must be no greater than %lld: %lld, %lld", (long long)most,
               (long long)sides.before[d], (long long)sides.after[d]);
    }
  }
  hr_functional function = reflects ? HR_FUNCTIONAL_PAD_REFLECT : HR_FUNCTIONAL_PAD_SYMMETRIC;
  htf_output(node, 0, x->rank == 0 ? x : pad_by(node, function, x, &sides));
}

/* Elements of the border that were read twice get both gradients. Inputs: the gradient, the paddings. */
void htf_mirror_pad_gradient(htf_node *node) {
  htf_value gradient = htf_input(node, 0);
  padding sides = read_padding(node, gradient);
  int64_t dims[HR_RANK_MAX], ints[1 + 2 * HR_RANK_MAX] = {strcmp(htf_text(node, "mode"), "REFLECT") == 0 ? 0 : 2};
  int rank = gradient->rank;
  for (int d = 0; d < rank && !htf_has_failed(node); ++d) {
    dims[d] = gradient->dims[d] - sides.before[d] - sides.after[d];
    ints[1 + d] = sides.before[d], ints[1 + rank + d] = sides.after[d];
    int64_t most = dims[d] - (ints[0] == 0);
    if (most < sides.before[d] || most < sides.after[d]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "MirrorPadGrad: paddings must be no greater than %lld: %lld, %lld",
               (long long)most, (long long)sides.before[d], (long long)sides.after[d]);
    }
  }
  if (htf_has_failed(node) || rank == 0 || hr_tensor_count(gradient) == 0) {
    htf_output(node, 0, rank == 0 || htf_has_failed(node) ? gradient : htf_zeros(node, rank, dims, gradient->dtype));
    return;
  }
  htf_value out = htf_new(node, gradient->dtype, rank, dims);
  htf_record(node, HR_OP_PAD_BORDER_BACKWARD, 1 + 2 * rank, ints, INPUTS(gradient), out);
  htf_output(node, 0, out);
}
