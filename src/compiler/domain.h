/* domain.h: domains (sets of elements, split into dims) and their common refinements.
 *
 * Two loop nodes can share a kernel if their domains are the same row-major sequence of elements, with any dims: a [8,
 * 16, 768] add and a [128, 768] multiply both walk [8, 16, 768]. The common refinement is the coarsest list of dims
 * that both can be split into. Every operand's strides carry over: splitting a dim of stride s into (m, n) gives
 * strides (s*n, s).
 */
#ifndef HEADRACE_COMPILER_DOMAIN_H_
#define HEADRACE_COMPILER_DOMAIN_H_

#include <stddef.h>
#include <string.h>

#include "core/ir/program.h"

typedef struct hr_domain {
  int rank; /* dims of 1 are left out */
  uint32_t reduce_mask, ordered_mask;
  int64_t dims[HR_RANK_MAX];
} hr_domain;

/* An assignment that mostly leaves out the second half of the dims. A copy of a fixed size needs no call. */
static inline void hr_domain_copy(hr_domain *to, const hr_domain *from) {
  enum { HALF = HR_RANK_MAX / 2 };
  if (from->rank > HALF) {
    *to = *from;
  } else {
    memcpy(to, from, offsetof(hr_domain, dims) + HALF * sizeof *from->dims);
  }
}

/* A loop node's domain without its dims of 1. */
void hr_domain_of_node(const hr_node *node, hr_domain *out_domain);
/* The number of elements of a loop node's domain. */
int64_t hr_node_element_count(const hr_node *node);
int64_t hr_domain_count(const hr_domain *domain);
/* Elements of the kept dims alone: the number of rows. */
int64_t hr_domain_row_count(const hr_domain *domain);

/* True if both are split in the same way; false for empty domains. */
bool hr_domain_have_equal_dims(const hr_domain *a, const hr_domain *b);

/* The common refinement of `a` (whose masks it keeps) and all dims of `b`; with `rows`, of the kept dims of `a` and all
 * of b. False if there is none or the rank would exceed HR_RANK_MAX. Masks of b are or-ed in (not for rows). */
bool hr_domain_refine(const hr_domain *a, const hr_domain *b, bool rows, hr_domain *out_domain);

/* Strides of a node's operand (given for the node's dims) over `domain`, which refines the node's domain. With `rows`
 * it refines the domain's kept dims, and reduced dims get 0. */
void hr_domain_map(const hr_domain *domain, bool rows, int rank, const int64_t *dims, const int64_t *strides,
                   int64_t *out_strides);

/* Dim order[d] of a loop node's domain becomes dim d, for all operands. False when memory is out; the node is invalid
 * then. */
bool hr_domain_permute(hr_program *program, hr_node *node, const int *order);

#endif
