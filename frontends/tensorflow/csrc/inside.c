/* inside.c: rules of inside.def and of loops, and the rows of host.def and lists.def. */
#include "scope.h"
#include "types.h"

static const htf_row rows[] = {
#define INSIDE(op, type_name, types, host, attributes, rule) \
  {#op, type_name, types, host, attributes, htf_##rule, HR_FUNCTIONAL_NONE},
#include "inside.def"
#undef INSIDE
};
static const htf_row list_rows[] = {
#define LIST(op, host, attributes, rule) {#op, "", 0, host, attributes, htf_##rule, HR_FUNCTIONAL_NONE},
#include "lists.def"
#undef LIST
};

static void merge(htf_node *node);
static void condition(htf_node *node);

static const htf_row loop_rows[] = {
    {"Enter", "", 0, "", "", htf_inside_identity, HR_FUNCTIONAL_NONE},
    {"Merge", "", 0, "", "", merge, HR_FUNCTIONAL_NONE},
    {"LoopCond", "", 0, "", "", condition, HR_FUNCTIONAL_NONE},
    {"Switch", "", 0, "", "", htf_inside_identity, HR_FUNCTIONAL_NONE},
    {"NextIteration", "", 0, "", "", htf_inside_identity, HR_FUNCTIONAL_NONE},
    {"Exit", "", 0, "", "", htf_inside_identity, HR_FUNCTIONAL_NONE},
};

static const htf_row host_rows[] = {
#define HOST(op, type_name, types, attributes, rule, takes_dims) \
  {#op, type_name, types, "", attributes, htf_##rule, HR_FUNCTIONAL_NONE},
#include "host.def"
#undef HOST
};
static const bool take_dims[] = {
#define HOST(op, type_name, types, attributes, rule, takes_dims) takes_dims,
#include "host.def"
#undef HOST
};

static const htf_row *find(const htf_row *table, size_t count, hr__span op) {
  for (size_t i = 0; i < count; ++i) {
    if (hr__span_is(op, table[i].op)) {
      return &table[i];
    }
  }
  return NULL;
}

const htf_row *htf_find_inside(hr__span op, htf_row_kind *out_kind) {
  *out_kind = HTF_ROW_VIEW;
  const htf_row *row = find(rows, sizeof rows / sizeof *rows, op);
  if (row == NULL) {
    *out_kind = HTF_ROW_LIST;
    row = find(list_rows, sizeof list_rows / sizeof *list_rows, op);
  }
  if (row == NULL) {
    *out_kind = HTF_ROW_LOOP;
    row = find(loop_rows, sizeof loop_rows / sizeof *loop_rows, op);
  }
  if (row == NULL) {
    *out_kind = HTF_ROW_MAP;
    row = htf_find_row((const char *)op.data, op.size);
  }
  return row;
}

const htf_row *htf_find_host(hr__span op, bool *out_takes_dims) {
  for (size_t i = 0; i < sizeof host_rows / sizeof *host_rows; ++i) {
    if (hr__span_is(op, host_rows[i].op)) {
      *out_takes_dims = take_dims[i];
      return &host_rows[i];
    }
  }
  return NULL;
}

/* ---- views ---- */

void htf_inside_nothing(htf_node *node) {
  (void)node;
}

/* The value in any form. */
static void pass(htf_node *node, int index) {
  const htf_scope_value *value = htf_scope_value_at(node, index);
  if (value != NULL) {
    htf_scope_put(node, 0, *value);
  }
}

void htf_inside_identity(htf_node *node) {
  pass(node, 0);
}

/* The dim that is open: the elements over the known dims. If both have dims of 0, these are left out, so that
 * [2, 0] as [-1, 0] keeps its 2. */
static int64_t open_dim(int old_rank, const int64_t *old, int rank, const int64_t *dims) {
  int64_t known = 1, count = 1;
  bool has_zero = false;
  for (int d = 0; d < rank; ++d) {
    has_zero = has_zero || dims[d] == 0;
    known *= dims[d] > 0 ? dims[d] : 1;
  }
  for (int d = 0; d < old_rank; ++d) {
    count *= has_zero && old[d] == 0 ? 1 : old[d];
  }
  return count / known;
}

int htf_reshaped_dims(htf_node *node, int old_rank, const int64_t *old, int64_t *dims) {
  int64_t count = 1, found = 1;
  int rank = htf_host_ints(node, 1, dims, HR_RANK_MAX), open = -1;
  for (int d = 0; d < rank; ++d) {
    if (dims[d] < -1 || (dims[d] == -1 && open >= 0)) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Reshape: dim %d is %lld, only one may be -1 and none less", d,
               (long long)dims[d]);
    }
    open = dims[d] == -1 ? d : open;
  }
  if (open >= 0 && !htf_has_failed(node)) {
    dims[open] = open_dim(old_rank, old, rank, dims);
  }
  for (int d = 0; d < rank || d < old_rank; ++d) {
    count *= d < old_rank ? old[d] : 1, found *= d < rank ? dims[d] : 1;
  }
  if (!htf_has_failed(node) && found != count) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Reshape: the input has %lld elements, which do not fill dims that %d numbers ask for", (long long)count,
             rank);
  }
  return htf_has_failed(node) ? 0 : rank;
}

int htf_squeezed_dims(htf_node *node, int rank, const int64_t *old, int64_t *dims) {
  const htf_attribute *axes = htf_list(node, "squeeze_dims");
  bool drops[HR_RANK_MAX] = {false};
  int count = 0;
  for (int i = 0; i < axes->count; ++i) {
    int64_t axis = axes->list[i] < 0 ? axes->list[i] + rank : axes->list[i];
    if (axis < 0 || axis >= rank || old[axis] != 1) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Squeeze: dim %lld of %d dims is not a dim of size 1",
               (long long)axes->list[i], rank);
      return 0;
    }
    drops[axis] = true;
  }
  for (int d = 0; d < rank; ++d) {
    if (axes->count == 0 ? old[d] != 1 : !drops[d]) {
      dims[count++] = old[d];
    }
  }
  return count;
}

int htf_expanded_dims(htf_node *node, int rank, const int64_t *old, int64_t *dims) {
  int64_t axis = htf_host_int(node, 1);
  axis = axis < 0 ? axis + rank + 1 : axis;
  if (!htf_has_failed(node) && (axis < 0 || axis > rank || rank == HR_RANK_MAX)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "ExpandDims: dim %lld is not in a tensor of %d dims", (long long)axis,
             rank + 1);
  }
  if (htf_has_failed(node)) {
    return 0;
  }
  for (int d = 0; d <= rank; ++d) {
    dims[d] = d == axis ? 1 : old[d < axis ? d : d - 1];
  }
  return rank + 1;
}

void htf_inside_reshape(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t dims[HR_RANK_MAX];
  int rank = htf_reshaped_dims(node, x->rank, x->dims, dims);
  htf_output(node, 0, htf_reshape(node, x, rank, dims));
}

void htf_inside_squeeze(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t dims[HR_RANK_MAX];
  int rank = htf_squeezed_dims(node, x->rank, x->dims, dims);
  htf_output(node, 0, htf_reshape(node, x, rank, dims));
}

void htf_inside_expand_dims(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t dims[HR_RANK_MAX + 1];
  int rank = htf_expanded_dims(node, x->rank, x->dims, dims);
  htf_output(node, 0, htf_reshape(node, x, rank, dims));
}

/* ---- variables ---- */

/* A later scatter in place does not change what has been read. */
void htf_inside_read(htf_node *node) {
  htf_value value = htf_scope_variable(node, 0);
  bool is_written = (htf_scope_uses(node, 0) & HTF_SCATTERS) != 0;
  htf_output(node, 0, is_written && !htf_has_failed(node) ? htf_copy_value(node, value) : value);
}

/* ---- loops ---- */

/* The first iteration has the value from outside. */
static void merge(htf_node *node) {
  pass(node, node->scope->iteration > 0);
}

static void condition(htf_node *node) {
  const htf_host *host = htf_scope_host(node, 0);
  if (host != NULL && (host->dtype != HR_DTYPE_BOOL || host->count != 1)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "LoopCond: the condition must be one number of bool");
  }
  node->scope->goes_on = !htf_has_failed(node) && *(const uint8_t *)host->bytes != 0;
}
