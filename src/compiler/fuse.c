/* fuse.c: decides which loop nodes share a kernel.
 *
 *   before   %2 = sub(%0, %1)          after   group 0: %2 = sub(%0, %1); %3 = exp(%2); %4 = sum(%3); %5 = div(%3, %4)
 *            %3 = exp(%2)              group 1: %7 = matmul(%5, %6)
 *            %4 = sum(%3)
 *            %5 = div(%3, %4)
 *            %7 = matmul(%5, %6)
 *
 * The pass is greedy and visits nodes in order. A node joins (1) the latest group that it shares data with, else (2)
 * the group that its first reader will join, else it opens a group. It may join a group only if
 *   - it may run that early, and
 *   - every two accesses in the group to one buffer, one of them a write, use the same index map: an element depends
 *     only on its own element, or its own row.
 *
 * Rows stay resident through their reductions, within the limits of kernel.h and the target. A node that stores into a
 * buffer older than the program never moves before a node that may fail.
 */
#include <string.h>

#include "base/vector.h"
#include "compiler/passes.h"
#include "core/ops/op.h"

enum { NEAR_GROUPS = 8, CANDIDATES_MAX = 16, LATER_NODES = 6 };
static const int64_t RESIDENT_ROW_BYTES = 256 * 1024;

/* A touch in a group, under the number of the touch. */
typedef struct access {
  int node;
  int next; /* an earlier one to the same buffer; -1: none */
} access;

/* Of a buffer: the last group or node so far; -1: none. */
typedef struct latest {
  int write_group, read_group, writer, access;
} latest;

typedef struct open_group {
  bool is_loop, is_closed;
  int home;      /* of its first node; see hr_recompute */
  bool is_mixed; /* its nodes are not all of one kept group, or of none */
  int kept;      /* of its first node: the kept group */
  hr_domain domain;
  int64_t element_count; /* of the domain: its refinements have as many */
  const char *why;       /* its first node is in no earlier group */
  int node_count, access_count;
  int first_access; /* of its first node: those before are of other groups */
} open_group;

/* A loop node and its domain, which the checks of all candidates use. */
typedef struct joiner {
  int n;
  const hr_node *node;
  hr_domain own;
  int64_t element_count;
} joiner;

typedef struct fuser {
  hr_program *program;
  const hr_target *target;
  hr_touches touches;
  HR_VECTOR(open_group) groups;
  access *accesses; /* of the nodes so far */
  latest *buffers;
  int *node_group, *node_phase;
  int *first_reader; /* of each node: the first node that reads its result; -1: none */
  int *input_writer; /* of each touch that reads: the node that wrote the buffer; -1: it was written before */
  int failure_floor; /* groups before this one precede a node that may fail, or hold it */
  int *kept;         /* of each group of the fusion before: the present one of its nodes; -1: none yet */
} fuser;

static int max_int(int a, int b) {
  return a > b ? a : b;
}

static void make_joiner(const fuser *f, int n, joiner *j) {
  j->n = n;
  j->node = &f->program->nodes[n];
  hr_domain_of_node(j->node, &j->own);
  j->element_count = hr_domain_count(&j->own);
}

static bool is_row_node(const hr_domain *group, const hr_node *node) {
  return hr_node_element_count(node) != hr_domain_count(group);
}

bool hr_group_is_row_node(const hr_group *group, const hr_node *node) {
  return is_row_node(&group->domain, node);
}

void hr_group_map(const hr_domain *domain, const hr_node *node, const hr_operand *operand, int64_t *out_strides) {
  hr_domain_map(domain, is_row_node(domain, node), operand->rank, node->outputs[0].dims, operand->strides, out_strides);
}

void hr_group_map_bound(const hr_domain *domain, const hr_node *node, const hr_bound *bound, int64_t *out_strides) {
  hr_operand as_operand = node->outputs[0];
  as_operand.strides = bound->strides;
  hr_group_map(domain, node, &as_operand, out_strides);
}

/* True if two lists of strides agree for all dims but those of 1. */
static bool same_strides(int rank, const int64_t *dims, const int64_t *a, const int64_t *b) {
  bool are = true;
  for (int d = 0; are && a != b && d < rank; ++d) {
    are = a[d] == b[d] || dims[d] == 1;
  }
  return are;
}

/* The same for nodes of equal dims, which the group's domain splits in the same way. */
static bool same_map_of_equal_dims(const hr_operand *a, const hr_operand *b, const int64_t *dims) {
  bool is_same = same_strides(a->rank, dims, a->strides, b->strides);
  for (int k = 0; is_same && k < a->bound_count; ++k) {
    is_same = a->bounds[k].offset == b->bounds[k].offset && a->bounds[k].extent == b->bounds[k].extent &&
              same_strides(a->rank, dims, a->bounds[k].strides, b->bounds[k].strides);
  }
  return is_same;
}

bool hr_group_same_map(const hr_domain *domain, const hr_node *node_a, const hr_operand *a, const hr_node *node_b,
                       const hr_operand *b) {
  if (a->dtype != b->dtype || a->offset != b->offset || a->term_count != 0 || b->term_count != 0 ||
      a->bound_count != b->bound_count) {
    return false;
  }
  if (a->rank == b->rank && hr_operands_have_equal_dims(&node_a->outputs[0], &node_b->outputs[0])) {
    return same_map_of_equal_dims(a, b, node_a->outputs[0].dims);
  }
  int64_t strides_a[HR_RANK_MAX], strides_b[HR_RANK_MAX];
  size_t bytes = (size_t)domain->rank * sizeof *strides_a;
  hr_group_map(domain, node_a, a, strides_a);
  hr_group_map(domain, node_b, b, strides_b);
  bool is_same = memcmp(strides_a, strides_b, bytes) == 0;
  for (int k = 0; is_same && k < a->bound_count; ++k) {
    hr_group_map_bound(domain, node_a, &a->bounds[k], strides_a);
    hr_group_map_bound(domain, node_b, &b->bounds[k], strides_b);
    is_same = a->bounds[k].offset == b->bounds[k].offset && a->bounds[k].extent == b->bounds[k].extent &&
              memcmp(strides_a, strides_b, bytes) == 0;
  }
  return is_same;
}

/* True if a node has one result for each row. */
static bool writes_rows(const hr_domain *domain, const hr_node *node) {
  return node->reduce_mask != 0 || is_row_node(domain, node);
}

/* True if two operands are columns of the same rows, next to each other: the gates of a recurrent cell. One kernel for
 * all of them reads the rows once. */
static bool are_beside(const hr_domain *domain, const hr_node *node_a, const hr_operand *a, const hr_node *node_b,
                       const hr_operand *b) {
  int64_t distance = b->offset > a->offset ? b->offset - a->offset : a->offset - b->offset, row = INT64_MAX;
  for (int d = 0; d < b->rank; ++d) {
    int64_t stride = b->strides[d] < 0 ? -b->strides[d] : b->strides[d];
    row = b->dims[d] > 1 && stride > 1 && stride < row ? stride : row;
  }
  hr_operand moved = *b;
  moved.offset = a->offset;
  return domain->reduce_mask == 0 && row < INT64_MAX && distance < row &&
         hr_group_same_map(domain, node_a, a, node_b, &moved);
}

/* True for a store that adds to memory: it bypasses the group's registers. */
static bool combines(const hr_node *node, bool is_write) {
  return is_write && node->store_mode != HR_STORE_SET;
}

bool hr_group_may_share(const hr_domain *domain, const hr_node *node_a, const hr_operand *a, bool a_is_write,
                        const hr_node *node_b, const hr_operand *b, bool b_is_write, bool *shares) {
  const bool are_reads = !a_is_write && !b_is_write;
  if (are_reads && *shares) {
    return true;
  }
  bool same =
      hr_group_same_map(domain, node_a, a, node_b, b) && !combines(node_a, a_is_write) && !combines(node_b, b_is_write);
  *shares = *shares || same || are_beside(domain, node_a, a, node_b, b);
  if (are_reads || (!same && !hr_operands_may_overlap(a, b))) {
    return true;
  }
  same &= b->bound_count == 0;
  if (!same) {
    return false;
  }
  /* a row's result may not replace what the row's elements read or wrote */
  return !b_is_write || !writes_rows(domain, node_b) || writes_rows(domain, node_a);
}

/* True if the accesses of group g to the touch's buffer allow it. */
static bool accesses_allow_touch(const fuser *f, int g, const hr_domain *domain, const hr_node *node,
                                 const hr_touch *touch, bool *benefits) {
  const int first = f->groups.data[g].first_access;
  const hr_operand *operand = hr_node_operand(node, (int)touch->operand);
  const access *a;
  for (int k = f->buffers[touch->buffer].access; k >= first; k = a->next) {
    a = &f->accesses[k];
    const hr_touch *before = &f->touches.all[k];
    const hr_node *other = &f->program->nodes[a->node];
    if (f->node_group[a->node] == g &&
        !hr_group_may_share(domain, other, hr_node_operand(other, (int)before->operand), before->is_write, node,
                            operand, touch->is_write, benefits)) {
      return false;
    }
  }
  return true;
}

static bool accesses_allow(const fuser *f, int g, const hr_domain *domain, int n, bool *benefits) {
  bool allow = true;
  for (int k = f->touches.first[n]; allow && k < f->touches.first[n + 1]; ++k) {
    allow = accesses_allow_touch(f, g, domain, &f->program->nodes[n], &f->touches.all[k], benefits);
  }
  return allow;
}

/* The first phase in which the node can run in group g. */
static int phase_in_group(const fuser *f, int g, int n) {
  int phase = 0;
  for (int k = f->touches.first[n]; k < f->touches.first[n + 1] && !f->touches.all[k].is_write; ++k) {
    int writer = f->buffers[f->touches.all[k].buffer].writer;
    if (writer >= 0 && f->node_group[writer] == g) {
      phase = max_int(phase, f->node_phase[writer] + (f->program->nodes[writer].reduce_mask != 0));
    }
  }
  return phase;
}

static bool phases_allowed(const fuser *f, const hr_domain *domain) {
  int64_t reduced = hr_domain_count(domain) / hr_domain_row_count(domain);
  if (hr_kernel_order(domain->rank, domain->dims, domain->reduce_mask) == HR_ORDER_SEQUENTIAL) {
    return reduced <= HR_REDUCE_SEQUENTIAL_MAX;
  }
  int64_t limit = f->target->resident_row_bytes > 0 ? f->target->resident_row_bytes : RESIDENT_ROW_BYTES;
  return reduced * 4 <= limit;
}

static bool domains_agree(const open_group *group, const joiner *j, hr_domain *out_domain) {
  const hr_domain *own = &j->own;
  bool rows = j->element_count != group->element_count;
  if (rows && (group->domain.reduce_mask == 0 || own->reduce_mask != 0 || own->ordered_mask != 0 ||
               j->element_count != hr_domain_row_count(&group->domain))) {
    return false;
  }
  if (own->ordered_mask != 0 && group->domain.reduce_mask != 0) {
    return false;
  }
  if (!hr_domain_refine(&group->domain, own, rows, out_domain)) {
    return false;
  }
  if (own->reduce_mask == 0) {
    return true; /* the rows stay the group's */
  }
  int64_t row_count = hr_domain_row_count(out_domain);
  if (group->domain.reduce_mask != 0 && row_count != hr_domain_row_count(&group->domain)) {
    return false;
  }
  return own->reduce_mask == 0 || row_count == hr_domain_row_count(own);
}

/* True if all inputs of a node exist in group g once node n is part of it. Loops that come after n, as many as `depth`
 * one after the other, can be part of it, too: in a step of Adam the average of squares is such one for the decayed
 * average before. */
static bool inputs_exist(const fuser *f, int g, int n, int node, int depth) {
  for (int k = f->touches.first[node]; k < f->touches.first[node + 1] && !f->touches.all[k].is_write; ++k) {
    int writer = f->input_writer[k];
    bool is_later = writer > n;
    if (is_later && (depth == 0 || !f->program->nodes[writer].is_loop || !inputs_exist(f, g, n, writer, depth - 1))) {
      return false;
    }
    if (!is_later && writer >= 0 && writer != n && f->node_group[writer] > g) {
      return false;
    }
  }
  return true;
}

/* True if the first reader of the node's result could join group g, too. */
static bool reader_can_join(const fuser *f, int g, int n) {
  int reader = f->first_reader[n];
  return reader < 0 || (inputs_exist(f, g, n, reader, LATER_NODES) && f->program->nodes[reader].is_loop);
}

/* False if the move would keep a temporary in memory from the earlier group to its reader. An x - mean of a backward
 * pass must not move into the forward pass; a chain of the optimizer, whose next link follows, must be fused. */
static bool is_worth_moving(const fuser *f, int g, int n, const hr_node *node) {
  bool is_near = g + NEAR_GROUPS >= (int)f->groups.count;
  return is_near || !f->program->buffers[node->outputs[0].index].is_dead || reader_can_join(f, g, n);
}

/* True if the node could be part of group g, whose domain then is *out_domain; `benefits` if it shares data with it. */
static bool may_join(const fuser *f, int g, const joiner *j, hr_domain *out_domain, int *out_phase, bool *benefits) {
  const open_group *group = &f->groups.data[g];
  const hr_node *node = j->node;
  int operands = node->input_count + node->output_count;
  if (!group->is_loop || group->is_closed || group->node_count >= HR_GROUP_NODES_MAX ||
      (node->home != 0 && node->home != group->home) || group->access_count + operands > HR_GROUP_ACCESSES_MAX ||
      !domains_agree(group, j, out_domain) || !accesses_allow(f, g, out_domain, j->n, benefits)) {
    return false;
  }
  *out_phase = phase_in_group(f, g, j->n);
  return out_domain->reduce_mask == 0 || *out_phase == 0 || j->element_count != group->element_count ||
         phases_allowed(f, out_domain);
}

static bool try_join(fuser *f, int g, const joiner *j) {
  hr_domain domain;
  int phase;
  bool benefits = false;
  if (!is_worth_moving(f, g, j->n, j->node) || !may_join(f, g, j, &domain, &phase, &benefits) || !benefits) {
    return false;
  }
  hr_domain_copy(&f->groups.data[g].domain, &domain);
  f->node_phase[j->n] = phase;
  return true;
}

/* True if a later node can join group g and shares data with it, and j's node has joined, which its reader can, too. */
static bool join_for(fuser *f, int g, const joiner *j, int later) {
  hr_domain domain, with_later;
  joiner next;
  int phase, later_phase;
  bool benefits = false;
  if (!reader_can_join(f, g, j->n)) {
    return false;
  }
  make_joiner(f, later, &next);
  if (!may_join(f, g, &next, &with_later, &later_phase, &benefits) || !benefits ||
      !may_join(f, g, j, &domain, &phase, &benefits)) {
    return false;
  }
  hr_domain_copy(&f->groups.data[g].domain, &domain);
  f->node_phase[j->n] = phase;
  return true;
}

/* The same for the groups that use what a loop after j's node reads. */
static int find_group_of_later(fuser *f, const joiner *j, int later, int floor) {
  for (int k = f->touches.first[later]; k < f->touches.first[later + 1] && !f->touches.all[k].is_write; ++k) {
    const latest *buffer = &f->buffers[f->touches.all[k].buffer];
    int g = max_int(buffer->read_group, buffer->write_group);
    if (g >= floor && join_for(f, g, j, later)) {
      return g;
    }
  }
  return -1;
}

/* x - mean of a backward pass shares nothing with the group that made the gradient it is multiplied with. It joins that
 * group all the same if the product can join, too, which would otherwise read the gradient from memory. So does a
 * decayed average, which is added to the square of a gradient that another group reads. */
static int find_group_of_reader(fuser *f, const joiner *j, int floor) {
  const int n = j->n, reader = f->first_reader[n];
  if (reader < 0 || !f->program->nodes[reader].is_loop) {
    return -1;
  }
  int g = -1;
  for (int k = f->touches.first[reader]; g < 0 && k < f->touches.first[reader + 1] && !f->touches.all[k].is_write;
       ++k) {
    int writer = f->input_writer[k];
    if (writer > n && f->program->nodes[writer].is_loop) {
      g = find_group_of_later(f, j, writer, floor);
    } else if (writer >= 0 && writer < n && f->node_group[writer] >= floor &&
               join_for(f, f->node_group[writer], j, reader)) {
      g = f->node_group[writer];
    }
  }
  return g;
}

/* The latest group of the node's home, which it was in before, even if it shares no data with it now. */
static int find_home(fuser *f, const joiner *j, int floor) {
  for (int g = (int)f->groups.count - 1; g >= floor; --g) {
    hr_domain domain;
    int phase;
    bool benefits = false;
    if (f->groups.data[g].home == j->node->home && may_join(f, g, j, &domain, &phase, &benefits)) {
      hr_domain_copy(&f->groups.data[g].domain, &domain);
      f->node_phase[j->n] = phase;
      return g;
    }
  }
  return -1;
}

/* The earliest group that node n may run in, or beside. */
static int earliest_group(const fuser *f, int n) {
  int floor = 0;
  for (const hr_touch *t = hr_touches_begin(&f->touches, n); t < hr_touches_end(&f->touches, n); ++t) {
    const latest *buffer = &f->buffers[t->buffer];
    floor = max_int(floor, buffer->write_group);
    if (t->is_write) {
      floor = max_int(floor, buffer->read_group);
      floor = f->program->buffers[t->buffer].is_fresh ? floor : max_int(floor, f->failure_floor);
    }
  }
  return floor;
}

static int add_candidate(int *candidates, int count, int group, int floor) {
  if (group < floor || count == CANDIDATES_MAX) {
    return count;
  }
  int at = 0;
  while (at < count && candidates[at] > group) {
    ++at;
  }
  if (at < count && candidates[at] == group) {
    return count;
  }
  memmove(&candidates[at + 1], &candidates[at], (size_t)(count - at) * sizeof *candidates);
  candidates[at] = group;
  return count + 1;
}

/* The group that a node joins, or -1. */
static int find_group(fuser *f, const joiner *j) {
  const hr_node *node = j->node;
  int floor = earliest_group(f, j->n);
  int candidates[CANDIDATES_MAX + 1], count = 0;
  for (const hr_touch *t = hr_touches_begin(&f->touches, j->n); t < hr_touches_end(&f->touches, j->n); ++t) {
    count = add_candidate(candidates, count, f->buffers[t->buffer].write_group, floor);
    count = add_candidate(candidates, count, f->buffers[t->buffer].read_group, floor);
  }
  for (int c = 0; c < count; ++c) {
    if (candidates[c] >= 0 && try_join(f, candidates[c], j)) {
      return candidates[c];
    }
  }
  int g = find_group_of_reader(f, j, floor);
  return g < 0 && node->home != 0 ? find_home(f, j, floor) : g;
}

/* The group of the nodes with which the node was fused before; -1: it is their first, or can't be with them now. What
 * they access needs no check if nobody else has joined. */
static int find_kept(fuser *f, const joiner *j) {
  const int g = j->node->kept_group > 0 ? f->kept[j->node->kept_group - 1] : -1;
  hr_domain domain;
  int phase;
  bool benefits = false;
  if (g < 0 || earliest_group(f, j->n) > g) {
    return -1;
  }
  open_group *group = &f->groups.data[g];
  if (group->is_mixed ? !may_join(f, g, j, &domain, &phase, &benefits) : !domains_agree(group, j, &domain)) {
    return -1;
  }
  f->node_phase[j->n] = phase_in_group(f, g, j->n);
  hr_domain_copy(&group->domain, &domain);
  return g;
}

/* The reason why a node that opens a group is not in the one that made its latest input, for people. */
static const char *why_apart(const fuser *f, const joiner *j) {
  const hr_node *node = j->node;
  int g = -1;
  for (int k = f->touches.first[j->n]; k < f->touches.first[j->n + 1] && !f->touches.all[k].is_write; ++k) {
    g = max_int(g, f->buffers[f->touches.all[k].buffer].write_group);
  }
  const open_group *group = g >= 0 ? &f->groups.data[g] : NULL;
  hr_domain domain;
  bool benefits = false;
  if (group == NULL) {
    return NULL;
  }
  if (!group->is_loop) {
    return "reads a library's result";
  }
  if (group->is_closed) {
    return "reads memory that a kernel wrote by index";
  }
  if (!domains_agree(group, j, &domain)) {
    return "walks another shape than the kernel that computes its input";
  }
  if (node->home != 0 && node->home != group->home) {
    return "recomputes a value for another kernel";
  }
  if (!accesses_allow(f, g, &domain, j->n, &benefits)) {
    return "needs elements of its input that are not available where it is computed";
  }
  if (domain.reduce_mask != 0 && phase_in_group(f, g, j->n) > 0 && !phases_allowed(f, &domain)) {
    return "needs a sum over rows that are too long to stay resident";
  }
  if (!is_worth_moving(f, g, j->n, node)) {
    return "its result would stay in memory longer next to its input";
  }
  return earliest_group(f, j->n) > g ? "writes memory that another kernel uses after its input was computed"
                                     : "the kernel that computes its input is full";
}

static void add_node(fuser *f, int g, int n, const hr_node *node) {
  const int first = f->touches.first[n], end = f->touches.first[n + 1];
  open_group *group = &f->groups.data[g];
  ++group->node_count;
  group->access_count += end - first;
  group->is_mixed |= node->kept_group != group->kept;
  f->node_group[n] = g;
  group->is_closed |= node->ordered_mask != 0 || (node->is_loop && node->outputs[0].term_count != 0);
  for (int k = first; k < end; ++k) {
    latest *buffer = &f->buffers[f->touches.all[k].buffer];
    if (f->touches.all[k].is_write) {
      buffer->write_group = max_int(buffer->write_group, g);
      buffer->writer = n;
    } else {
      buffer->read_group = max_int(buffer->read_group, g);
    }
    f->accesses[k] = (access){n, buffer->access};
    buffer->access = k;
  }
}

/* A group that node n opens; `j`: NULL if it is no loop. */
static bool open_new_group(fuser *f, const joiner *j, int n) {
  if (!hr_vector_reserve(&f->groups, f->groups.count + 1)) {
    return false;
  }
  open_group *group = &f->groups.data[f->groups.count];
  group->is_loop = j != NULL;
  group->is_closed = group->is_mixed = false;
  group->node_count = group->access_count = 0;
  group->first_access = f->touches.first[n];
  group->home = j != NULL ? j->node->home : 0;
  group->kept = j != NULL ? j->node->kept_group : 0;
  group->element_count = j != NULL ? j->element_count : 0;
  group->why = j != NULL && f->target->explains ? why_apart(f, j) : NULL;
  hr_domain_copy(&group->domain, j != NULL ? &j->own : &(hr_domain){0});
  ++f->groups.count;
  return true;
}

static bool fuse_nodes(fuser *f) {
  for (int n = 0; n < f->program->node_count; ++n) {
    const hr_node *node = &f->program->nodes[n];
    joiner j;
    int g = -1;
    if (node->is_loop) {
      make_joiner(f, n, &j);
      g = find_kept(f, &j);
      g = g >= 0 ? g : find_group(f, &j);
    }
    if (g < 0) {
      if (!open_new_group(f, node->is_loop ? &j : NULL, n)) {
        return false;
      }
      g = (int)f->groups.count - 1;
    }
    if (node->kept_group > 0) {
      f->kept[node->kept_group - 1] = g;
    }
    add_node(f, g, n, node);
    if (hr_may_fail(node)) {
      f->failure_floor = g + 1;
    }
  }
  return true;
}

static bool export_groups(const fuser *f, hr_fusion *out_fusion) {
  hr_arena *arena = &f->program->arena;
  size_t node_count = (size_t)f->program->node_count;
  hr_group *groups = hr_arena_alloc(arena, f->groups.count * sizeof *groups);
  int *nodes = hr_arena_alloc(arena, (node_count + 1) * sizeof *nodes),
      **at = hr_arena_alloc(arena, f->groups.count * sizeof *at);
  if (groups == NULL || nodes == NULL || at == NULL) {
    return false;
  }
  for (size_t g = 0; g < f->groups.count; ++g) {
    const open_group *from = &f->groups.data[g];
    groups[g].is_loop = from->is_loop;
    groups[g].node_count = from->node_count;
    groups[g].nodes = nodes;
    groups[g].why = from->why;
    hr_domain_copy(&groups[g].domain, &from->domain);
    at[g] = nodes;
    nodes += from->node_count;
  }
  for (size_t n = 0; n < node_count; ++n) {
    *at[f->node_group[n]]++ = (int)n;
  }
  out_fusion->group_count = (int)f->groups.count;
  out_fusion->groups = groups;
  out_fusion->node_group = f->node_group;
  out_fusion->touches = f->touches;
  return true;
}

int *hr_program_indices(hr_program *program, int count) {
  int *indices = hr_arena_alloc(&program->arena, ((size_t)count + 1) * sizeof *indices);
  if (indices != NULL) {
    memset(indices, 0xff, ((size_t)count + 1) * sizeof *indices);
  }
  return indices;
}

/* Finds the writer of each node's inputs, and the first reader of each node's results; makes room for all accesses. */
static bool find_readers(fuser *f) {
  hr_program *program = f->program;
  const int count = f->touches.first[program->node_count];
  int *last_writer = hr_program_indices(program, program->buffer_count);
  f->accesses = hr_arena_alloc(&program->arena, ((size_t)count + 1) * sizeof *f->accesses);
  f->input_writer = hr_arena_alloc(&program->arena, ((size_t)count + 1) * sizeof *f->input_writer);
  f->first_reader = hr_program_indices(program, program->node_count);
  if (!f->accesses || !last_writer || !f->first_reader || !f->input_writer) {
    return false;
  }
  for (int n = 0, k = 0; n < program->node_count; ++n) {
    for (; k < f->touches.first[n + 1]; ++k) {
      int *writer = &last_writer[f->touches.all[k].buffer];
      if (f->touches.all[k].is_write) {
        *writer = n;
        continue;
      }
      f->input_writer[k] = *writer;
      if (*writer >= 0 && f->first_reader[*writer] < 0) {
        f->first_reader[*writer] = n;
      }
    }
  }
  return true;
}

hr_status hr_fuse(hr_program *program, const hr_target *target, const hr_touches *touches, const hr_fusion *before,
                  hr_fusion *out_fusion) {
  enum { MEMBERS = sizeof(latest) / sizeof(int) };
  fuser f = {.program = program, .target = target, .touches = *touches};
  const int groups =
      before != NULL ? before->group_count : program->node_count / 2; /* about as many as there will be */
  f.kept = hr_program_indices(program, before != NULL ? groups : 0);
  f.node_group = hr_program_indices(program, program->node_count);
  f.node_phase = HR_ARENA_ARRAY(&program->arena, int, (size_t)program->node_count + 1);
  f.buffers = (latest *)(void *)hr_program_indices(program, program->buffer_count * MEMBERS);
  bool ok = f.node_group && f.node_phase && f.buffers && f.kept && hr_vector_reserve(&f.groups, (size_t)groups) &&
            find_readers(&f) && fuse_nodes(&f) && export_groups(&f, out_fusion);
  hr_vector_fini(&f.groups);
  if (!ok) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "fuse: no memory for %d nodes", program->node_count);
  }
  return HR_OK;
}
