/* domain.c: common refinements of domains, and strides over them. See domain.h. */
#include "compiler/domain.h"

#include <assert.h>

void hr_domain_of_node(const hr_node *node, hr_domain *out_domain) {
  const hr_operand *operand = &node->outputs[0];
  const uint32_t masks = node->reduce_mask | node->ordered_mask;
  uint32_t reduce_mask = 0, ordered_mask = 0;
  int rank = 0;
  for (int d = 0; d < operand->rank; ++d) {
    if (operand->dims[d] == 1) {
      continue;
    }
    if (masks != 0) {
      reduce_mask |= (node->reduce_mask >> d & 1) << rank;
      ordered_mask |= (node->ordered_mask >> d & 1) << rank;
    }
    out_domain->dims[rank++] = operand->dims[d];
  }
  out_domain->rank = rank;
  out_domain->reduce_mask = reduce_mask;
  out_domain->ordered_mask = ordered_mask;
}

int64_t hr_node_element_count(const hr_node *node) {
  const hr_operand *operand = &node->outputs[0];
  int64_t count = 1;
  for (int d = 0; d < operand->rank; ++d) {
    count *= operand->dims[d];
  }
  return count;
}

int64_t hr_domain_count(const hr_domain *domain) {
  int64_t count = 1;
  for (int d = 0; d < domain->rank; ++d) {
    count *= domain->dims[d];
  }
  return count;
}

int64_t hr_domain_row_count(const hr_domain *domain) {
  int64_t count = 1;
  for (int d = 0; d < domain->rank; ++d) {
    count *= (domain->reduce_mask >> d & 1) ? 1 : domain->dims[d];
  }
  return count;
}

/* Dims and masks, collected from the innermost outwards, and reversed at the end. */
typedef struct reversed {
  int rank;
  int64_t dims[HR_RANK_MAX];
  bool is_reduced[HR_RANK_MAX], is_ordered[HR_RANK_MAX];
} reversed;

static bool reversed_push(reversed *list, int64_t dim, bool is_reduced, bool is_ordered) {
  if (list->rank == HR_RANK_MAX) {
    return false;
  }
  list->dims[list->rank] = dim;
  list->is_reduced[list->rank] = is_reduced;
  list->is_ordered[list->rank++] = is_ordered;
  return true;
}

static void reversed_finish(const reversed *list, hr_domain *out_domain) {
  out_domain->rank = list->rank;
  out_domain->reduce_mask = out_domain->ordered_mask = 0;
  for (int i = 0; i < list->rank; ++i) {
    int from = list->rank - 1 - i;
    out_domain->dims[i] = list->dims[from];
    out_domain->reduce_mask |= list->is_reduced[from] ? 1u << i : 0;
    out_domain->ordered_mask |= list->is_ordered[from] ? 1u << i : 0;
  }
}

bool hr_domain_have_equal_dims(const hr_domain *a, const hr_domain *b) {
  bool are = a->rank == b->rank;
  for (int d = 0; are && d < a->rank; ++d) {
    are = a->dims[d] == b->dims[d] && a->dims[d] > 1;
  }
  return are;
}

bool hr_domain_refine(const hr_domain *a, const hr_domain *b, bool rows, hr_domain *out_domain) {
  if (!rows && hr_domain_have_equal_dims(a, b)) {
    hr_domain_copy(out_domain, a);
    out_domain->reduce_mask |= b->reduce_mask;
    out_domain->ordered_mask |= b->ordered_mask;
    return true;
  }
  reversed list;
  list.rank = 0;
  int j = b->rank - 1;
  int64_t rest_b = j >= 0 ? b->dims[j] : 1;
  for (int i = a->rank - 1; i >= 0; --i) {
    int64_t rest_a = a->dims[i];
    bool is_reduced = a->reduce_mask >> i & 1, is_ordered = a->ordered_mask >> i & 1;
    if (rows && is_reduced) {
      if (!reversed_push(&list, rest_a, true, is_ordered)) {
        return false;
      }
      continue;
    }
    while (rest_a > 1) {
      if (j < 0) {
        return false;
      }
      int64_t cut = rest_a < rest_b ? rest_a : rest_b;
      if (rest_a % cut != 0 || rest_b % cut != 0) {
        return false;
      }
      bool b_reduced = !rows && (b->reduce_mask >> j & 1), b_ordered = b->ordered_mask >> j & 1;
      if (!reversed_push(&list, cut, is_reduced || b_reduced, is_ordered || b_ordered)) {
        return false;
      }
      rest_a /= cut;
      rest_b /= cut;
      if (rest_b == 1) {
        --j;
        rest_b = j >= 0 ? b->dims[j] : 1;
      }
    }
  }
  if (j >= 0) {
    return false;
  }
  reversed_finish(&list, out_domain);
  return true;
}

void hr_domain_map(const hr_domain *domain, bool rows, int rank, const int64_t *dims, const int64_t *strides,
                   int64_t *out_strides) {
  int i = rank - 1;
  int64_t passed = 1; /* elements of dims[i] that inner dims of the domain cover */
  for (int d = domain->rank - 1; d >= 0; --d) {
    if (rows && (domain->reduce_mask >> d & 1)) {
      out_strides[d] = 0;
      continue;
    }
    while (i >= 0 && passed == dims[i]) {
      --i;
      passed = 1;
    }
    assert(i >= 0);
    out_strides[d] = strides[i] * passed;
    passed *= domain->dims[d];
  }
}

static const int64_t *permuted(hr_program *program, int rank, const int *order, const int64_t *from) {
  int64_t to[HR_RANK_MAX];
  for (int d = 0; d < rank; ++d) {
    to[d] = from[order[d]];
  }
  return hr_arena_dup_words(&program->arena, to, rank);
}

static bool permute_operand(hr_program *program, hr_operand *operand, const int *order) {
  if (operand->kind != HR_OPERAND_VALUE && operand->kind != HR_OPERAND_INDEX) {
    return true;
  }
  operand->dims = permuted(program, operand->rank, order, operand->dims);
  operand->strides = permuted(program, operand->rank, order, operand->strides);
  bool ok = operand->dims != NULL && operand->strides != NULL;
  if (operand->bound_count == 0) {
    return ok;
  }
  hr_bound *bounds = HR_ARENA_ARRAY(&program->arena, hr_bound, (size_t)operand->bound_count);
  ok = ok && bounds != NULL;
  for (int k = 0; ok && k < operand->bound_count; ++k) {
    bounds[k] = operand->bounds[k];
    bounds[k].strides = permuted(program, operand->rank, order, operand->bounds[k].strides);
    ok = bounds[k].strides != NULL;
  }
  operand->bounds = bounds;
  return ok;
}

static uint32_t permuted_mask(int rank, const int *order, uint32_t mask) {
  uint32_t result = 0;
  for (int d = 0; d < rank; ++d) {
    result |= (mask >> order[d] & 1) << d;
  }
  return result;
}

bool hr_domain_permute(hr_program *program, hr_node *node, const int *order) {
  int rank = node->outputs[0].rank;
  node->reduce_mask = permuted_mask(rank, order, node->reduce_mask);
  node->ordered_mask = permuted_mask(rank, order, node->ordered_mask);
  bool ok = true;
  for (int i = 0; ok && i < node->input_count + node->output_count; ++i) {
    ok = permute_operand(program, hr_node_operand(node, i), order);
  }
  return ok;
}
