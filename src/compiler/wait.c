/* wait.c: delays element-wise groups until the first group that waits for them.
 *
 *   before   group 0: %m = lerp(%m, %g)             after   group 0: %m = lerp(%m, %g); %v = mul(%v, $b); ...;
 *            group 1: %v = mul(%v, $b); ...;                         %p = addcdiv(%p, %m, %d)
 *                     %p = addcdiv(%p, %m, %d)
 *
 * The fuse pass only looks forward: a node joins an existing group. An optimizer's average finds none if its gradient
 * comes out of a library, and the chain that will use it begins with another buffer; the same holds for weight decay.
 * This pass visits groups from the last to the first. A group that updates memory older than the program moves to the
 * first later group that must not run before it, if the two may share a kernel. No group in between depends on it then,
 * and inputs of both are read once.
 *
 * A group doesn't move after a node that may fail, nor if a temporary that it reads would have to live longer.
 */
#include "compiler/passes.h"

/* Of a buffer: groups, or -1. */
typedef struct seen {
  int first_writer, first_reader; /* the first one after the present group */
  int first, last;                /* the first one that touches it, and the last one after the present group */
} seen;

typedef struct waiting {
  hr_program *program;
  const hr_touches *touches;
  int group_count;
  hr_group *groups;
  seen *buffers;
  int failure; /* the first group after the present one that may fail */
} waiting;

static const hr_node *node_of(const waiting *w, int g, int k) {
  return &w->program->nodes[w->groups[g].nodes[k]];
}

/* The touches of node k of group g. */
static const hr_touch *touches_of(const waiting *w, int g, int k, const hr_touch **out_end) {
  int n = w->groups[g].nodes[k];
  *out_end = hr_touches_end(w->touches, n);
  return hr_touches_begin(w->touches, n);
}

static int operand_count(const hr_node *node) {
  return node->input_count + node->output_count;
}

static int earlier(int a, int b) {
  return b >= 0 && b < a ? b : a;
}

/* Counts the operands of all nodes of a group; -1 if it isn't element-wise. */
static int count_accesses(const waiting *w, int g) {
  const hr_group *group = &w->groups[g];
  int count = 0;
  if (!group->is_loop || group->domain.reduce_mask != 0 || group->domain.ordered_mask != 0) {
    return -1;
  }
  for (int k = 0; k < group->node_count; ++k) {
    const hr_node *node = node_of(w, g, k);
    if (node->outputs[0].term_count != 0) {
      return -1;
    }
    count += operand_count(node);
  }
  return count;
}

/* The first group that may not run before group h; group_count if none has to wait. */
static int first_waiting(const waiting *w, int h) {
  int first = w->group_count;
  for (int k = 0; k < w->groups[h].node_count; ++k) {
    const hr_touch *end;
    for (const hr_touch *t = touches_of(w, h, k, &end); t < end; ++t) {
      first = earlier(first, w->buffers[t->buffer].first_writer);
      first = t->is_write ? earlier(first, w->buffers[t->buffer].first_reader) : first;
    }
  }
  return first;
}

/* True if the group updates memory that outlives the program, and no temporary from outside of it is freed before group
 * g. */
static bool is_worth_moving(const waiting *w, int h, int g) {
  bool updates = false;
  for (int k = 0; k < w->groups[h].node_count; ++k) {
    const hr_touch *end;
    for (const hr_touch *t = touches_of(w, h, k, &end); t < end; ++t) {
      const seen *buffer = &w->buffers[t->buffer];
      bool is_dead = w->program->buffers[t->buffer].is_dead;
      if (is_dead && buffer->first < h && buffer->last < g) {
        return false;
      }
      updates |= !is_dead && t->is_write;
    }
  }
  return updates;
}

/* True if all accesses of a node are compatible with those of another group's node; *shares: some of them are the
 * same. */
static bool nodes_allow(const hr_domain *domain, const hr_node *a, const hr_node *b, bool *shares) {
  for (int i = 0; i < operand_count(a); ++i) {
    const hr_operand *x = hr_node_operand(a, i);
    for (int j = 0; j < operand_count(b); ++j) {
      const hr_operand *y = hr_node_operand(b, j);
      if (x->kind == HR_OPERAND_VALUE && y->kind == HR_OPERAND_VALUE && x->index == y->index &&
          !hr_group_may_share(domain, a, x, i >= a->input_count, b, y, j >= b->input_count, shares)) {
        return false;
      }
    }
  }
  return true;
}

static bool can_delay(const waiting *w, int h, int g, hr_domain *out_domain) {
  const hr_group *from = &w->groups[h], *to = &w->groups[g];
  int from_accesses = count_accesses(w, h), to_accesses = count_accesses(w, g);
  if (from_accesses < 0 || to_accesses < 0 || from_accesses + to_accesses > HR_GROUP_ACCESSES_MAX ||
      from->node_count + to->node_count > HR_GROUP_NODES_MAX || !is_worth_moving(w, h, g) ||
      hr_domain_count(&from->domain) != hr_domain_count(&to->domain) ||
      !hr_domain_refine(&to->domain, &from->domain, false, out_domain)) {
    return false;
  }
  bool shares = false, allows = true;
  for (int k = 0; allows && k < from->node_count; ++k) {
    for (int j = 0; allows && j < to->node_count; ++j) {
      allows = nodes_allow(out_domain, node_of(w, h, k), node_of(w, g, j), &shares);
    }
  }
  return allows && shares;
}

/* Merges the nodes of group h into group g, in the program's order. */
static bool move_nodes(waiting *w, int h, int g, const hr_domain *domain) {
  hr_group *from = &w->groups[h], *to = &w->groups[g];
  int count = from->node_count + to->node_count;
  int *nodes = HR_ARENA_ARRAY(&w->program->arena, int, (size_t)count);
  if (nodes == NULL) {
    return false;
  }
  for (int n = 0, i = 0, j = 0; n < count; ++n) {
    bool is_from = j == to->node_count || (i < from->node_count && from->nodes[i] < to->nodes[j]);
    nodes[n] = is_from ? from->nodes[i++] : to->nodes[j++];
  }
  to->nodes = nodes;
  to->node_count = count;
  hr_domain_copy(&to->domain, domain);
  from->node_count = 0;
  return true;
}

/* Records the accesses of group g as after all groups before it. */
static void note(waiting *w, int g) {
  for (int k = 0; k < w->groups[g].node_count; ++k) {
    const hr_touch *end;
    w->failure = hr_may_fail(node_of(w, g, k)) ? g : w->failure;
    for (const hr_touch *t = touches_of(w, g, k, &end); t < end; ++t) {
      seen *buffer = &w->buffers[t->buffer];
      int *first = t->is_write ? &buffer->first_writer : &buffer->first_reader;
      *first = *first < 0 || g < *first ? g : *first;
      buffer->last = g > buffer->last ? g : buffer->last;
    }
  }
}

static void find_first(waiting *w) {
  for (int g = w->group_count - 1; g >= 0; --g) {
    for (int k = 0; k < w->groups[g].node_count; ++k) {
      const hr_touch *end;
      for (const hr_touch *t = touches_of(w, g, k, &end); t < end; ++t) {
        w->buffers[t->buffer].first = g;
      }
    }
  }
}

static bool move_groups(waiting *w) {
  find_first(w);
  for (int h = w->group_count - 1; h >= 0; --h) {
    int g = first_waiting(w, h);
    hr_domain domain;
    bool moves = g < w->failure && can_delay(w, h, g, &domain);
    if (moves && !move_nodes(w, h, g, &domain)) {
      return false;
    }
    note(w, moves ? g : h);
  }
  return true;
}

/* Removes the groups without nodes. */
static void export_groups(const waiting *w, int *node_group, hr_fusion *fusion) {
  int count = 0;
  for (int g = 0; g < w->group_count; ++g) {
    for (int k = 0; k < w->groups[g].node_count; ++k) {
      node_group[w->groups[g].nodes[k]] = count;
    }
    if (w->groups[g].node_count > 0 && count++ < g) {
      hr_group_copy(&w->groups[count - 1], &w->groups[g]);
    }
  }
  fusion->group_count = count;
  fusion->node_group = node_group;
}

hr_status hr_wait(hr_program *program, hr_fusion *fusion) {
  enum { MEMBERS = sizeof(seen) / sizeof(int) };
  waiting w = {.program = program,
               .touches = &fusion->touches,
               .group_count = fusion->group_count,
               .groups = fusion->groups,
               .buffers = (seen *)(void *)hr_program_indices(program, program->buffer_count * MEMBERS),
               .failure = fusion->group_count};
  int *node_group = hr_program_indices(program, program->node_count);
  if (w.buffers == NULL || node_group == NULL || !move_groups(&w)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "wait: no memory for %d groups", fusion->group_count);
  }
  export_groups(&w, node_group, fusion);
  return HR_OK;
}
