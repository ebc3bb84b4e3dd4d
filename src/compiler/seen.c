/* seen.c: rewrites a node so that it computes the elements that a view of its result sees.
 *
 *   before   %2:f32[8,4]{4,1}+0 = relu(%1:f32[8,4]{1,8}+0)     seen as %2:f32[4,4,2]{8,1,4}+0
 *   after    %2:f32[4,4,2]{8,1,4}+0 = relu(%1:f32[4,4,2]{2,8,1}+0)
 *
 * A view of a result whose strides nest (each a multiple of those inside of it) is turned into coordinates of the
 * node's dims: every step of the view is so many steps along each of them. If all coordinates stay inside of the dims,
 * each element of the view is exactly the element at its coordinates. The node's inputs then follow by their own
 * strides. A view may gather by indices (terms): each is one more dim to walk, as long as its extent. The node's inputs
 * are gathered by the same indices, which become inputs of its own:
 *
 *   before   %2:f32[64,9]{9,1}+0 = sub(%0:f32[64,9]{9,1}+0, %1:f32[64,9]{1,0}+0)
 *            seen as %2:f32[64]{9}+0 @ %3 * 1
 *   after    %2:f32[64]{9}+0 = sub(%0:f32[64]{9}+0 @ %3 * 1, %1:f32[64]{1}+0, %3:i64[64]{1}+0)
 *
 * Refuses views with bounds, and those that leave the result or run from one row into the next.
 */
#include <string.h>

#include "compiler/passes.h"

/* The dims of a result, from the widest stride to the narrowest. */
typedef struct axes {
  int count;
  int dims[HR_RANK_MAX];
} axes;

static bool find_axes(const hr_operand *output, axes *a) {
  a->count = 0;
  for (int d = 0; d < output->rank; ++d) {
    if (output->dims[d] == 1) {
      continue;
    }
    int at = a->count++;
    for (; at > 0 && output->strides[a->dims[at - 1]] < output->strides[d]; --at) {
      a->dims[at] = a->dims[at - 1];
    }
    a->dims[at] = d;
  }
  int64_t inner = 1;
  for (int k = a->count - 1; k >= 0; --k) {
    int d = a->dims[k];
    if (output->strides[d] < inner) {
      return false;
    }
    inner = output->strides[d] * output->dims[d];
  }
  return true;
}

/* Converts a distance in the buffer to steps along the dims. */
static bool take_steps(const axes *a, const hr_operand *output, int64_t distance, int64_t *out_steps) {
  int64_t rest = distance < 0 ? -distance : distance;
  memset(out_steps, 0, HR_RANK_MAX * sizeof *out_steps);
  for (int k = 0; k < a->count; ++k) {
    int d = a->dims[k];
    out_steps[d] = rest / output->strides[d] * (distance < 0 ? -1 : 1);
    rest %= output->strides[d];
  }
  return rest == 0;
}

enum { TERMS_MAX = HR_RANK_MAX };

/* The view's coordinates in the dims of the result: of its first element, and for each of its dims and terms. */
typedef struct path {
  int64_t start[HR_RANK_MAX], steps[HR_RANK_MAX + TERMS_MAX][HR_RANK_MAX];
} path;

static bool find_path(const hr_operand *output, const hr_operand *view, path *p) {
  axes a;
  int64_t low[HR_RANK_MAX], high[HR_RANK_MAX];
  if (!find_axes(output, &a) || !take_steps(&a, output, view->offset - output->offset, p->start)) {
    return false;
  }
  memcpy(low, p->start, sizeof low);
  memcpy(high, p->start, sizeof high);
  for (int k = 0; k < view->rank + view->term_count; ++k) {
    const hr_index_term *term = k < view->rank ? NULL : &view->terms[k - view->rank];
    int64_t extent = term != NULL ? term->extent : view->dims[k];
    int64_t stride = term != NULL ? term->stride : view->strides[k];
    if (extent == 0 || !take_steps(&a, output, extent == 1 ? 0 : stride, p->steps[k])) {
      return false;
    }
    for (int d = 0; d < output->rank; ++d) {
      int64_t reach = (extent - 1) * p->steps[k][d];
      *(reach < 0 ? &low[d] : &high[d]) += reach;
    }
  }
  for (int d = 0; d < output->rank; ++d) {
    if (low[d] < 0 || high[d] >= output->dims[d]) {
      return false;
    }
  }
  return true;
}

static int64_t stride_along(const int64_t *steps, const hr_operand *operand) {
  int64_t stride = 0;
  for (int d = 0; d < operand->rank; ++d) {
    stride += steps[d] * operand->strides[d];
  }
  return stride;
}

/* The node's input along the path: the same operand over the view's dims. Indices are inputs `first_index` and on. */
static bool follow(hr_arena *arena, const path *p, const hr_operand *view, int first_index, hr_operand *operand) {
  if (operand->kind != HR_OPERAND_VALUE && operand->kind != HR_OPERAND_INDEX) {
    return true;
  }
  int64_t strides[HR_RANK_MAX];
  hr_index_term terms[TERMS_MAX];
  int term_count = 0;
  for (int k = 0; k < view->rank; ++k) {
    strides[k] = stride_along(p->steps[k], operand);
  }
  for (int t = 0; t < view->term_count; ++t) {
    int64_t stride = stride_along(p->steps[view->rank + t], operand);
    if (stride != 0) {
      terms[term_count++] = (hr_index_term){first_index + t, stride, view->terms[t].extent};
    }
  }
  operand->offset += stride_along(p->start, operand);
  operand->rank = view->rank;
  operand->dims = view->dims;
  operand->strides = hr_arena_dup(arena, strides, (size_t)view->rank * sizeof *strides);
  operand->terms = hr_arena_dup(arena, terms, (size_t)term_count * sizeof *terms);
  operand->term_count = term_count;
  return (operand->kind == HR_OPERAND_VALUE || term_count == 0) && (operand->strides != NULL || view->rank == 0) &&
         (operand->terms != NULL || term_count == 0);
}

bool hr_node_as_seen(hr_arena *arena, const hr_node *node, const hr_node *reader, const hr_operand *view,
                     hr_node *out_node) {
  const hr_operand *output = &node->outputs[0];
  path p;
  if (view->term_count > TERMS_MAX || view->bound_count != 0 || view->dtype != output->dtype ||
      !find_path(output, view, &p)) {
    return false;
  }
  hr_node seen = *node;
  seen.input_count += view->term_count;
  seen.inputs = HR_ARENA_ARRAY(arena, hr_operand, (size_t)seen.input_count + 1);
  seen.outputs = hr_arena_dup(arena, view, sizeof *view);
  bool ok = seen.inputs != NULL && seen.outputs != NULL;
  for (int i = 0; i < node->input_count && ok; ++i) {
    seen.inputs[i] = node->inputs[i];
    ok = follow(arena, &p, view, node->input_count, &seen.inputs[i]);
  }
  for (int t = 0; t < view->term_count && ok; ++t) {
    seen.inputs[node->input_count + t] = reader->inputs[view->terms[t].input];
  }
  if (ok) {
    seen.outputs[0].fill = HR_NO_SCALAR;
    seen.outputs[0].term_count = 0;
    *out_node = seen;
  }
  return ok;
}
