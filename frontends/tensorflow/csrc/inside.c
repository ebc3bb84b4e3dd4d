/* inside.c: rules of inside.def. */
#include <stdio.h>

#include "scope.h"
#include "types.h"

static const htf_row rows[] = {
#define INSIDE(op, type_name, types, host, attributes, rule, is_pure) \
  {#op, type_name, types, host, attributes, htf_##rule, HR_FUNCTIONAL_NONE},
#include "inside.def"
#undef INSIDE
};
static const bool are_pure[] = {
#define INSIDE(op, type_name, types, host, attributes, rule, is_pure) is_pure,
#include "inside.def"
#undef INSIDE
};

const htf_row *htf_find_inside(hr__span op, bool *out_is_pure) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    if (hr__span_is(op, rows[i].op)) {
      *out_is_pure = are_pure[i];
      return &rows[i];
    }
  }
  *out_is_pure = false;
  return htf_find_row((const char *)op.data, op.size);
}

/* ---- views ---- */

void htf_inside_nothing(htf_node *node) {
  (void)node;
}

void htf_inside_identity(htf_node *node) {
  htf_output(node, 0, htf_input(node, 0));
}

void htf_inside_reshape(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t dims[HR_RANK_MAX], known = 1;
  int rank = htf_host_ints(node, 1, dims, HR_RANK_MAX), open = -1;
  for (int d = 0; d < rank; ++d) {
    if (dims[d] < -1 || (dims[d] == -1 && open >= 0)) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Reshape: dim %d is %lld, only one may be -1 and none less", d,
               (long long)dims[d]);
    }
    open = dims[d] == -1 ? d : open;
    known *= dims[d] == -1 ? 1 : dims[d];
  }
  int64_t count = htf_has_failed(node) ? 0 : hr_tensor_count(x);
  if (open >= 0) {
    dims[open] = known > 0 ? count / known : 0;
    known *= dims[open];
  }
  if (!htf_has_failed(node) && known != count) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Reshape: the input has %lld elements, which do not fill dims that %d numbers ask for", (long long)count,
             rank);
  }
  htf_output(node, 0, htf_reshape(node, x, rank, dims));
}

void htf_inside_squeeze(htf_node *node) {
  htf_value x = htf_input(node, 0);
  const htf_attribute *axes = htf_list(node, "squeeze_dims");
  bool drops[HR_RANK_MAX] = {false};
  int64_t dims[HR_RANK_MAX];
  int rank = 0;
  for (int i = 0; i < axes->count && !htf_has_failed(node); ++i) {
    int64_t axis = axes->list[i] < 0 ? axes->list[i] + x->rank : axes->list[i];
    if (axis < 0 || axis >= x->rank || x->dims[axis] != 1) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Squeeze: dim %lld of %d dims is not a dim of size 1",
               (long long)axes->list[i], x->rank);
      return;
    }
    drops[axis] = true;
  }
  for (int d = 0; d < x->rank; ++d) {
    if (axes->count == 0 ? x->dims[d] != 1 : !drops[d]) {
      dims[rank++] = x->dims[d];
    }
  }
  htf_output(node, 0, htf_reshape(node, x, rank, dims));
}

void htf_inside_expand_dims(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t dims[HR_RANK_MAX + 1], axis = htf_host_int(node, 1);
  axis = axis < 0 ? axis + x->rank + 1 : axis;
  if (!htf_has_failed(node) && (axis < 0 || axis > x->rank || x->rank == HR_RANK_MAX)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "ExpandDims: dim %lld is not in a tensor of %d dims", (long long)axis,
             x->rank + 1);
  }
  if (htf_has_failed(node)) {
    return;
  }
  for (int d = 0; d <= x->rank; ++d) {
    dims[d] = d == axis ? 1 : x->dims[d < axis ? d : d - 1];
  }
  htf_output(node, 0, htf_reshape(node, x, x->rank + 1, dims));
}

/* ---- variables and constants ---- */

void htf_inside_read(htf_node *node) {
  htf_output(node, 0, htf_scope_variable(node, 0));
}

void htf_inside_constant(htf_node *node) {
  htf_scope_set_host(node, 0, &node->scope->current->constant);
}
