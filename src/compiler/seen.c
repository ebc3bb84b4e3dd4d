/* seen.c: a node, made to compute what a view of its result sees.
 *
 *   before   %2:f32[8,4]{4,1}+0 = relu(%1:f32[8,4]{1,8}+0)      after   %2:f32[4,4,2]{8,1,4}+0 = relu(%1:f32[4,4,2]{2,8,1}+0)
 *            seen as %2:f32[4,4,2]{8,1,4}+0
 *
 * A view of a result whose strides nest (each a multiple of what lies inside of it) is turned into coordinates of the node's
 * dims: every step of the view is so many steps along each of them. Where all coordinates stay inside of the dims, each element
 * of the view is the element at its coordinates and no other, and all that the node reads there follows by its own strides.
 * Refuses views with bounds or terms, and those that leave the result or run from one row into the next.
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

/* A distance in the buffer as steps along the dims. */
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

/* The view's coordinates in the dims of the result: of its first element, and for each of its dims. */
typedef struct path {
  int64_t start[HR_RANK_MAX], steps[HR_RANK_MAX][HR_RANK_MAX];
} path;

static bool find_path(const hr_operand *output, const hr_operand *view, path *p) {
  axes a;
  int64_t low[HR_RANK_MAX], high[HR_RANK_MAX];
  if (!find_axes(output, &a) || !take_steps(&a, output, view->offset - output->offset, p->start)) {
    return false;
  }
  memcpy(low, p->start, sizeof low);
  memcpy(high, p->start, sizeof high);
  for (int k = 0; k < view->rank; ++k) {
    if (view->dims[k] == 0 || !take_steps(&a, output, view->dims[k] == 1 ? 0 : view->strides[k], p->steps[k])) {
      return false;
    }
    for (int d = 0; d < output->rank; ++d) {
      int64_t reach = (view->dims[k] - 1) * p->steps[k][d];
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

/* What the node reads along the path: the same operand over the view's dims. */
static bool follow(hr_arena *arena, const path *p, const hr_operand *view, hr_operand *operand) {
  if (operand->kind != HR_OPERAND_VALUE && operand->kind != HR_OPERAND_INDEX) {
    return true;
  }
  int64_t strides[HR_RANK_MAX] = {0};
  for (int d = 0; d < operand->rank; ++d) {
    operand->offset += p->start[d] * operand->strides[d];
    for (int k = 0; k < view->rank; ++k) {
      strides[k] += p->steps[k][d] * operand->strides[d];
    }
  }
  operand->rank = view->rank;
  operand->dims = view->dims;
  operand->strides = hr_arena_dup(arena, strides, (size_t)view->rank * sizeof *strides);
  return operand->strides != NULL || view->rank == 0;
}

bool hr_node_as_seen(hr_arena *arena, const hr_node *node, const hr_operand *view, hr_node *out_node) {
  const hr_operand *output = &node->outputs[0];
  path p;
  if (view->term_count != 0 || view->bound_count != 0 || view->dtype != output->dtype || !find_path(output, view, &p)) {
    return false;
  }
  hr_node seen = *node;
  seen.inputs = hr_arena_dup(arena, node->inputs, (size_t)node->input_count * sizeof *node->inputs);
  seen.outputs = hr_arena_dup(arena, view, sizeof *view);
  bool ok = seen.outputs != NULL && (seen.inputs != NULL || node->input_count == 0);
  for (int i = 0; i < node->input_count && ok; ++i) {
    ok = follow(arena, &p, view, &seen.inputs[i]);
  }
  if (ok) {
    seen.outputs[0].fill = HR_NO_SCALAR;
    *out_node = seen;
  }
  return ok;
}
