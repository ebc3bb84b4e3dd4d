/* graph_crop.c: finds convolutions with elements that no window of a max pool reads.
 *
 *   before   %0 = conv(%x, %w, before=[2, 2], after=[2, 2], ..)   f32[n, 100, 7, 7]
 *            %1 = relu(%0)
 *            %2 = max_pool(%1, window=[2, 2], stride=[2, 2], ..)  f32[n, 100, 3, 3]
 *   after    %0 = conv(%x, %w, before=[2, 2], after=[1, 1], ..)   f32[n, 100, 6, 6]
 *
 * Planes have known sizes. Between both there are relu and conversions alone, whose results nobody else reads.
 *
 * Refused: values by which a gradient differentiates, attributes that are computed, padding of the pool behind its
 * input that is as large as a stride, since such a pool would have more windows.
 */
#include "graph/graph_crop.h"

static bool is_call(const hr__node *node, hr_functional function) {
  return node->kind == HR__NODE_CALL && node->function == function;
}

/* The integers of an attribute, `count` of them; NULL: it is missing, computed or has another length. */
static const int64_t *known_ints(const hr__node *node, int index, int count) {
  if (index >= node->attribute_count) {
    return NULL;
  }
  const hr__node_attribute *attribute = &node->attributes[index];
  bool is_known = attribute->value.kind == HR_ATTRIBUTE_INTS && attribute->values == NULL && attribute->list == 0 &&
                  attribute->value.count == count;
  return is_known ? attribute->value.value.ints : NULL;
}

/* The planes' dims of a value, `count` of them; NULL: symbols influence them. */
static const int64_t *known_planes(const hr_graph *graph, hr_value value, int count) {
  const hr__graph_value *v = hr__graph_value_of(graph, value);
  int rank = v->facts->rank;
  for (int d = rank - count; v->varies && d < rank; ++d) {
    for (int p = 1; p < HR__GRAPH_POINTS; ++p) {
      const hr__fact *fact = &v->facts[p * v->stride];
      if (!fact->is_set || !v->facts->is_set || fact->dims[d] != v->facts->dims[d]) {
        return NULL;
      }
    }
  }
  return v->facts->is_set && rank == count + 2 ? v->facts->dims + 2 : NULL;
}

/* The convolution that gives the value, followed through operations on single elements; NULL: none, or others read it.
 */
static const hr__node *find_conv(const hr_graph *graph, const int *reads, hr_value x) {
  for (;;) {
    const hr__node *node = hr__graph_node_of(graph, x);
    if (reads[x] != 1 || hr__graph_value_of(graph, x)->is_watched) {
      return NULL;
    }
    if (is_call(node, HR_FUNCTIONAL_CONV)) {
      return node;
    }
    if (!is_call(node, HR_FUNCTIONAL_RELU) && !is_call(node, HR_FUNCTIONAL_ASTYPE)) {
      return NULL;
    }
    x = node->inputs[0];
  }
}

/* Sets the number of elements along each of the planes' dims that windows read; false if it is not known. */
static bool count_read(const hr_graph *graph, const hr__node *pool, int count, int64_t *out_read) {
  enum { WINDOW, STRIDE, PADDING, AFTER, DILATION };
  static const int64_t ones[HR__CROP_DIMS] = {1, 1, 1};
  const int64_t *window = known_ints(pool, WINDOW, count), *stride = known_ints(pool, STRIDE, count);
  const int64_t *before = known_ints(pool, PADDING, count), *dilation = known_ints(pool, DILATION, count);
  const int64_t *after = known_ints(pool, AFTER, count), *y = known_planes(graph, pool->first, count);
  bool has_after = AFTER < pool->attribute_count && pool->attributes[AFTER].value.kind != HR_ATTRIBUTE_NONE;
  bool has_dilation = DILATION < pool->attribute_count && pool->attributes[DILATION].value.kind != HR_ATTRIBUTE_NONE;
  after = has_after ? after : before, dilation = has_dilation ? dilation : ones;
  if (window == NULL || stride == NULL || before == NULL || dilation == NULL || after == NULL || y == NULL) {
    return false;
  }
  for (int d = 0; d < count; ++d) {
    if (after[d] >= stride[d] || y[d] < 1) {
      return false;
    }
    out_read[d] = (y[d] - 1) * stride[d] - before[d] + (window[d] - 1) * dilation[d] + 1;
  }
  return true;
}

bool hr__graph_find_crop(const hr_graph *graph, const int *reads, const hr__node *pool, const hr__node **out_conv,
                         int64_t after[HR__CROP_DIMS]) {
  enum { CONV_STRIDE, CONV_BEFORE, CONV_AFTER };
  int64_t read[HR__CROP_DIMS];
  if (!is_call(pool, HR_FUNCTIONAL_MAX_POOL) || pool->attribute_count < 1) {
    return false;
  }
  const hr__node *conv = find_conv(graph, reads, pool->inputs[0]);
  int count = pool->attributes[0].value.count;
  if (conv == NULL || count < 1 || count > HR__CROP_DIMS || !count_read(graph, pool, count, read)) {
    return false;
  }
  const int64_t *stride = known_ints(conv, CONV_STRIDE, count), *given = known_ints(conv, CONV_AFTER, count);
  const int64_t *dims = known_planes(graph, conv->first, count);
  bool has_less = false;
  for (int d = 0; stride != NULL && given != NULL && dims != NULL && d < count; ++d) {
    int64_t unread = dims[d] - read[d], most = given[d] / stride[d];
    unread = unread < most ? unread : most;
    after[d] = given[d] - (unread > 0 ? unread : 0) * stride[d];
    has_less |= unread > 0;
  }
  *out_conv = conv;
  return has_less;
}
