/* recompute.c: computes cheap values again in the kernels that read them if that moves fewer bytes than storing them.
 *
 *   before   group 0: %3 = threshold_backward(%1, %2)
 *            group 1: %4 = sum(%3)
 *            group 2: %5 = sub(%3, %4)
 *   after    group 1: %6 = threshold_backward(%1, %2); %4 = sum(%6)
 *            group 2: %7 = threshold_backward(%1, %2); %5 = sub(%7, %4)
 *
 * The pass reads the groups that fuse has made and changes the program, which is then fused once more. It goes from the
 * last node to the first, so that a copy's inputs are considered after the copy: a chain of cheap nodes goes back to
 * values that are in memory anyway.
 *
 * A copy has the bits of its original. It reads the original's inputs, so no node may have written them in between. An
 * original that wrote in place of its input has done so, unless it is removed because all its readers have copies. A
 * reader may see the value through a view of it, as a window of a pool does. Its copy computes the viewed elements
 * (hr_node_as_seen), more than once if windows overlap. A gather from a - b becomes a difference of gathers from a and
 * b, so that the loss of a large vocabulary needs no second copy of it in memory.
 *
 * Bytes decide. A value that all its readers compute themselves saves its store and its loads. It costs the loads of
 * its inputs in each group that does not read them already. Its inputs stay live until then instead of the value: never
 * more than its own size. A value with a single group of readers moves there, and may cost more to compute.
 */
#include <string.h>

#include "base/vector.h"
#include "compiler/passes.h"
#include "core/ir/traffic.h"
#include "core/ops/op.h"

enum { DEPTH_MAX = 4, READER_GROUPS_MAX = 8, TIMES_MAX = 4 /* computations of one element in one kernel */ };
static const int64_t BYTES_MIN = 32 * 1024, NEVER = INT64_MAX / 4;

typedef struct copy {
  hr_node node;
  int before, group; /* the node in front of which it stands, and that node's group */
  int older;         /* an older copy in front of the same node; -1: none. Found by rebuild */
  int older_in_group;
} copy;

typedef struct maker {
  hr_program *program;
  const hr_fusion *fusion;
  HR_VECTOR(copy) copies;
  int *latest;                   /* copy of each group; -1: none */
  uint32_t buffer_count;         /* without those of copies, which the tables below lack */
  bool *is_gone;                 /* all readers of its result have a copy */
  int leaving;                   /* the node that is removed if copies are worth their price; -1: none */
  int *first_group, *last_group; /* of each buffer: the groups that touch it */
  hr_uses writes;                /* the nodes that write each buffer: they make its versions 1, 2, ... */
  hr_uses reads;                 /* the nodes that read it */
} maker;

/* The price of a copy for one group. */
typedef struct price {
  int64_t bytes; /* to load; NEVER: it can't */
  int64_t kept;  /* of temporaries that would otherwise have died by then */
} price;

typedef struct readers {
  int count;
  int groups[READER_GROUPS_MAX], first[READER_GROUPS_MAX]; /* and the place of a copy in each */
  hr_node nodes[READER_GROUPS_MAX];                        /* the copies: the values that each group's readers see */
  int64_t bytes[READER_GROUPS_MAX];                        /* that they read */
  bool can_copy[READER_GROUPS_MAX];
  bool has_own;   /* its own group reads it, too */
  bool has_other; /* some reader needs it in memory */
} readers;

static bool is_version(const hr_operand *operand, uint32_t buffer, uint32_t version) {
  return operand->kind == HR_OPERAND_VALUE && operand->index == buffer && operand->version == version;
}

static bool is_temporary(const maker *m, uint32_t buffer) {
  return m->program->buffers[buffer].is_dead && m->program->buffers[buffer].is_fresh;
}

/* True if every later write to a result's buffer replaces all of it, as in-place writes do: then only readers of the
 * result itself see it. */
static bool is_replaced_whole(const maker *m, const hr_operand *output) {
  for (int k = m->writes.first[output->index] + (int)output->version; k < m->writes.first[output->index + 1]; ++k) {
    const hr_node *node = &m->program->nodes[m->writes.nodes[k]];
    const hr_operand *later = &node->outputs[0];
    if (node->output_count != 1 || node->store_mode != HR_STORE_SET || (node->is_loop && node->reduce_mask != 0) ||
        later->bound_count != 0 || !hr_operands_are_same_map(output, later)) {
      return false;
    }
  }
  return true;
}

/* True if the node makes a version of its buffer from elements at the same place. */
static bool is_candidate(const maker *m, const hr_node *node) {
  if (!node->is_loop || node->output_count != 1 || node->epilogue_count > 0 ||
      hr_op_table(node->op)->family != HR_FAMILY_POINTWISE || hr_op_table(node->op)->rule == HR_RULE_SEEDED ||
      node->ordered_mask != 0 || node->store_mode != HR_STORE_SET) {
    return false;
  }
  const hr_operand *output = &node->outputs[0];
  if (output->kind != HR_OPERAND_VALUE || output->term_count != 0 || output->bound_count != 0 ||
      !is_replaced_whole(m, output)) {
    return false;
  }
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i].term_count != 0 || node->inputs[i].bound_count != 0) {
      return false;
    }
  }
  return true;
}

/* The domain of group h, refined so that the node's operands can be mapped to it. */
static bool fits_group(const maker *m, int h, const hr_node *node, hr_domain *out_domain) {
  const hr_group *group = &m->fusion->groups[h];
  hr_domain own;
  hr_domain_of_node(node, &own);
  return group->is_loop && hr_domain_count(&own) == hr_domain_count(&group->domain) &&
         hr_domain_refine(&group->domain, &own, false, out_domain);
}

/* True if one of the reader's inputs is the operand of `node`, element for element. */
static bool node_touches(const hr_domain *domain, const hr_node *reader, const hr_node *node,
                         const hr_operand *operand) {
  for (int i = 0; i < reader->input_count + reader->output_count; ++i) {
    const hr_operand *other = hr_node_operand(reader, i);
    if (is_version(other, operand->index, operand->version) &&
        hr_group_same_map(domain, reader, other, node, operand)) {
      return true;
    }
  }
  return false;
}

/* True if group h already reads or makes these elements. */
static bool has_access(const maker *m, int h, const hr_domain *domain, const hr_node *node, const hr_operand *operand) {
  const hr_group *group = &m->fusion->groups[h];
  const uint32_t b = operand->index;
  const bool is_touched = b >= m->buffer_count || (m->first_group[b] <= h && m->last_group[b] >= h);
  for (int k = 0; is_touched && k < group->node_count; ++k) {
    if (!m->is_gone[group->nodes[k]] && node_touches(domain, &m->program->nodes[group->nodes[k]], node, operand)) {
      return true;
    }
  }
  for (int c = m->latest[h]; c >= 0; c = m->copies.data[c].older_in_group) {
    if (node_touches(domain, &m->copies.data[c].node, node, operand)) {
      return true;
    }
  }
  return false;
}

/* Bytes that a loop reads through an operand. */
static int64_t bytes_of(const hr_operand *operand) {
  int64_t bytes = (int64_t)hr_dtype_size(operand->dtype);
  for (int d = 0; d < operand->rank; ++d) {
    bytes *= operand->dims[d];
  }
  return operand->kind == HR_OPERAND_VALUE && operand->term_count > 0 ? bytes : hr_operand_bytes(operand);
}

/* True if an operand of a copy has been overwritten before node `before`. */
static bool is_overwritten(const maker *m, int before, const hr_operand *operand) {
  uint32_t b = operand->index;
  if (b >= m->buffer_count) {
    return false; /* a copy's result */
  }
  int next = m->writes.first[b] + (int)operand->version;
  while (next < m->writes.first[b + 1] && (m->is_gone[m->writes.nodes[next]] || m->writes.nodes[next] == m->leaving)) {
    ++next; /* its own in-place write */
  }
  return next < m->writes.first[b + 1] && m->writes.nodes[next] < before;
}

/* The cost of loading an operand of a copy before node `before`, of group h. */
static price price_of_load(const maker *m, int h, int before, const hr_operand *operand) {
  if (is_overwritten(m, before, operand)) {
    return (price){NEVER, 0};
  }
  uint32_t b = operand->index;
  bool is_in_memory = !is_temporary(m, b) || m->first_group[b] != m->last_group[b];
  price p = {bytes_of(operand) + (is_in_memory ? 0 : (int64_t)m->program->buffers[b].bytes), 0};
  p.kept = is_temporary(m, b) && m->last_group[b] < h ? (int64_t)m->program->buffers[b].bytes : 0;
  return p;
}

static int64_t count_of(const hr_node *node) {
  hr_domain domain;
  hr_domain_of_node(node, &domain);
  return hr_domain_count(&domain);
}

/* True if operands as large as the result have the same layout: then a view sees neighbours of both. */
static bool lies_alike(const hr_node *node) {
  int64_t count = hr_distinct_elements(node->outputs[0].rank, node->outputs[0].dims, node->outputs[0].strides, 0, NULL);
  for (int i = 0; i < node->input_count; ++i) {
    const hr_operand *input = &node->inputs[i], *output = &node->outputs[0];
    bool is_full = input->kind == HR_OPERAND_VALUE &&
                   hr_distinct_elements(input->rank, input->dims, input->strides, 0, NULL) == count;
    for (int d = 0; d < output->rank && is_full; ++d) {
      if (output->dims[d] > 1 && input->strides[d] != output->strides[d]) {
        return false;
      }
    }
  }
  return true;
}

/* The node that computes the elements of `source`'s result that an operand of the reader sees, in a domain that the
 * reader's group has. */
static bool as_read(const maker *m, const hr_domain *domain, const hr_node *reader, const hr_operand *operand,
                    const hr_node *source, hr_node *out_node) {
  hr_domain own, both;
  hr_domain_of_node(source, &own);
  if (hr_domain_count(&own) == hr_domain_count(domain) && hr_domain_refine(domain, &own, false, &both) &&
      hr_group_same_map(&both, reader, operand, source, &source->outputs[0])) {
    *out_node = *source;
    return true;
  }
  int64_t times_max = hr_is_cheap(source->op) ? TIMES_MAX : 1;
  return lies_alike(source) && count_of(reader) <= times_max * count_of(source) &&
         hr_node_as_seen(&m->program->arena, source, reader, operand, out_node);
}

/* The node that made all elements that the operand of `node` reads, if it can be copied. */
static bool source_of(const maker *m, const hr_domain *domain, const hr_node *node, const hr_operand *operand,
                      hr_node *out_source) {
  if (operand->version == 0) {
    return false;
  }
  const hr_node *source =
      &m->program->nodes[m->writes.nodes[m->writes.first[operand->index] + (int)operand->version - 1]];
  return is_candidate(m, source) && hr_is_cheap(source->op) && as_read(m, domain, node, operand, source, out_source);
}

static price price_of_copy(const maker *m, int h, int before, const hr_node *node, int depth) {
  hr_domain domain;
  price total = {0, 0};
  if (!fits_group(m, h, node, &domain)) {
    return (price){NEVER, 0};
  }
  for (int i = 0; i < node->input_count && total.bytes < NEVER; ++i) {
    const hr_operand *input = &node->inputs[i];
    if (input->kind != HR_OPERAND_VALUE ||
        (!is_overwritten(m, before, input) && has_access(m, h, &domain, node, input))) {
      continue;
    }
    price load = price_of_load(m, h, before, input);
    hr_node source;
    bool has_source = depth < DEPTH_MAX && source_of(m, &domain, node, input, &source);
    price again = has_source ? price_of_copy(m, h, before, &source, depth + 1) : (price){NEVER, 0};
    load = again.bytes <= load.bytes ? again : load;
    total.bytes += load.bytes, total.kept += load.kept;
  }
  return total;
}

/* ---- readers of a value ---- */

/* The first node of a group after all writers of the node's inputs. */
static int place_in_group(const maker *m, int h, const hr_node *node, int reader) {
  int last = -1;
  for (int i = 0; i < node->input_count; ++i) {
    const hr_operand *input = &node->inputs[i];
    if (input->kind == HR_OPERAND_VALUE && input->version > 0) {
      int writer = m->writes.nodes[m->writes.first[input->index] + (int)input->version - 1];
      last = writer > last ? writer : last;
    }
  }
  const hr_group *group = &m->fusion->groups[h];
  for (int k = 0; k < group->node_count; ++k) {
    if (group->nodes[k] > last && group->nodes[k] < reader) {
      return group->nodes[k];
    }
  }
  return reader;
}

/* True if the indices of a copy's gathers are available before any copy. */
static bool has_known_indices(const maker *m, const hr_node *node, const hr_node *seen) {
  for (int i = node->input_count; i < seen->input_count; ++i) {
    if (seen->inputs[i].kind == HR_OPERAND_VALUE && seen->inputs[i].index >= m->buffer_count) {
      return false;
    }
  }
  return true;
}

/* True if all inputs of the reader that are the value see the result of `seen`, which the first of them determines. If
 * that one has index terms, it must be the only one. */
static bool sees(const maker *m, int group, const hr_node *reader, const hr_node *node, bool is_first, hr_node *seen,
                 int64_t *out_bytes) {
  const hr_operand *output = &node->outputs[0];
  hr_domain domain;
  for (int i = 0; i < reader->input_count; ++i) {
    const hr_operand *input = &reader->inputs[i];
    if (!is_version(input, output->index, output->version)) {
      continue;
    }
    if (is_first && !as_read(m, &m->fusion->groups[group].domain, reader, input, node, seen)) {
      return false;
    }
    bool picks = seen->input_count > node->input_count;
    if (count_of(reader) != count_of(seen) || !fits_group(m, group, seen, &domain) ||
        !(picks ? is_first && has_known_indices(m, node, seen)
                : hr_group_same_map(&domain, reader, input, seen, &seen->outputs[0]))) {
      return false;
    }
    *out_bytes = bytes_of(input);
    is_first = false;
  }
  return true;
}

static void add_reader(const maker *m, readers *r, int group, int at, const hr_node *reader, const hr_node *node) {
  int k = 0;
  while (k < r->count && r->groups[k] != group) {
    ++k;
  }
  if (k == READER_GROUPS_MAX) {
    r->has_other = true;
    return;
  }
  bool is_first = k == r->count;
  if (is_first) {
    r->groups[k] = group, r->first[k] = at, r->bytes[k] = 0, r->can_copy[k] = true;
    ++r->count;
  }
  r->can_copy[k] = r->can_copy[k] && m->fusion->groups[group].is_loop &&
                   sees(m, group, reader, node, is_first, &r->nodes[k], &r->bytes[k]);
  at = r->can_copy[k] ? place_in_group(m, group, &r->nodes[k], at) : at;
  r->first[k] = at < r->first[k] ? at : r->first[k];
}

static bool reads(const hr_node *node, const hr_operand *value) {
  for (int i = 0; i < node->input_count; ++i) {
    if (is_version(&node->inputs[i], value->index, value->version)) {
      return true;
    }
  }
  return false;
}

static void find_readers(const maker *m, int n, readers *r) {
  const hr_node *node = &m->program->nodes[n];
  const hr_operand *value = &node->outputs[0];
  r->count = 0, r->has_own = r->has_other = false;
  for (int k = m->reads.first[value->index]; k < m->reads.first[value->index + 1]; ++k) {
    int at = m->reads.nodes[k], group = m->fusion->node_group[at];
    if (m->is_gone[at] || !reads(&m->program->nodes[at], value)) {
      continue;
    }
    if (group == m->fusion->node_group[n]) {
      r->has_own = true;
    } else {
      add_reader(m, r, group, at, &m->program->nodes[at], node);
    }
  }
  for (size_t c = 0; c < m->copies.count; ++c) {
    const copy *other = &m->copies.data[c];
    if (reads(&other->node, value)) {
      add_reader(m, r, other->group, other->before, &other->node, node);
    }
  }
}

/* ---- copies ---- */

/* Makes the operand a whole new buffer, in the order of its dims. */
static bool make_own(maker *m, hr_operand *operand, uint32_t buffer) {
  int64_t strides[HR_RANK_MAX], count = 1;
  for (int d = operand->rank - 1; d >= 0; --d) {
    strides[d] = count;
    count *= operand->dims[d];
  }
  operand->index = buffer, operand->version = 1, operand->offset = 0, operand->term_count = 0;
  operand->strides = hr_arena_dup_words(&m->program->arena, strides, operand->rank);
  return operand->strides != NULL || operand->rank == 0;
}

static bool redirect(maker *m, hr_node *node, hr_operand from, uint32_t to) {
  bool ok = true;
  for (int i = 0; i < node->input_count && ok; ++i) {
    ok = !is_version(&node->inputs[i], from.index, from.version) || make_own(m, &node->inputs[i], to);
  }
  return ok;
}

/* Inserts a node's copy into a group. Its result is buffer *out_made, which its readers must then use. */
static bool copy_into(maker *m, hr_node node, int group, int before, uint32_t *out_made) {
  hr_program *program = m->program;
  size_t bytes = (size_t)count_of(&node) * hr_dtype_size(node.outputs[0].dtype);
  uint32_t to = *out_made = hr_program_add_buffer(program, bytes, true, true);
  node.inputs = hr_arena_dup(&program->arena, node.inputs, (size_t)node.input_count * sizeof *node.inputs);
  node.outputs = hr_arena_dup(&program->arena, node.outputs, sizeof *node.outputs);
  node.home = group + 1;
  bool ok = to != UINT32_MAX && (node.inputs != NULL || node.input_count == 0) && node.outputs != NULL &&
            make_own(m, &node.outputs[0], to) &&
            hr_vector_push(&m->copies, (copy){node, before, group, -1, m->latest[group]});
  m->latest[group] = ok ? (int)m->copies.count - 1 : m->latest[group];
  return ok;
}

/* Inputs of a copy that are no longer in memory are computed again, too, for this copy alone: other readers may have
 * read the memory in time. */
static bool copy_sources(maker *m, size_t reader) {
  const copy of = m->copies.data[reader];
  hr_domain domain;
  bool ok = true;
  for (int i = 0; i < of.node.input_count && ok; ++i) {
    hr_operand *input = &of.node.inputs[i];
    hr_node source;
    uint32_t made;
    if (input->kind == HR_OPERAND_VALUE && is_overwritten(m, of.before, input) &&
        fits_group(m, of.group, &of.node, &domain) && source_of(m, &domain, &of.node, input, &source)) {
      size_t at = m->copies.count;
      ok = copy_into(m, source, of.group, of.before, &made) && make_own(m, input, made) && copy_sources(m, at);
    }
  }
  return ok;
}

/* Inserts a copy into a group, for all its readers; its nodes must be together again when the program is fused once
 * more. */
static bool copy_for_group(maker *m, hr_node node, int group, int before) {
  hr_program *program = m->program;
  const hr_operand from = node.outputs[0];
  const hr_group *reading = &m->fusion->groups[group];
  size_t at = m->copies.count;
  int older = m->latest[group];
  uint32_t to;
  bool ok = copy_into(m, node, group, before, &to);
  for (int k = 0; k < reading->node_count && ok; ++k) {
    program->nodes[reading->nodes[k]].home = group + 1;
    ok = redirect(m, &program->nodes[reading->nodes[k]], from, to);
  }
  for (int c = older; c >= 0 && ok; c = m->copies.data[c].older_in_group) {
    ok = redirect(m, &m->copies.data[c].node, from, to);
  }
  return ok && copy_sources(m, at);
}

/* True for cheap operations. A costlier one may move to its only group of readers, but not to one that visits long rows
 * again for each phase rather than keeping them. */
static bool may_move(const maker *m, const hr_node *node, const readers *r) {
  if (hr_is_cheap(node->op) || r->count != 1 || r->has_own) {
    return hr_is_cheap(node->op);
  }
  const hr_domain *domain = &m->fusion->groups[r->groups[0]].domain;
  return hr_kernel_order(domain->rank, domain->dims, domain->reduce_mask) != HR_ORDER_SEQUENTIAL;
}

/* True if the node can be removed because all its readers should compute its result themselves. */
static bool price_all(maker *m, int n, const readers *r, bool needs_store, price *out_prices) {
  const hr_node *node = &m->program->nodes[n];
  int64_t bytes = hr_operand_bytes(&node->outputs[0]), saved = bytes, kept = 0;
  m->leaving = needs_store || r->has_own ? -1 : n;
  for (int k = 0; k < r->count; ++k) {
    out_prices[k] = r->can_copy[k] ? price_of_copy(m, r->groups[k], r->first[k], &r->nodes[k], 0) : (price){NEVER, 0};
    needs_store |= out_prices[k].bytes >= NEVER;
    saved += needs_store ? 0 : r->bytes[k] - out_prices[k].bytes;
    kept = out_prices[k].kept > kept ? out_prices[k].kept : kept; /* the same inputs, more or less */
  }
  return !needs_store && (r->count == 0 || (saved > 0 && kept * 8 <= bytes * 9 && may_move(m, node, r)));
}

static bool copy_for_readers(maker *m, int n) {
  const hr_node *node = &m->program->nodes[n];
  if (!is_candidate(m, node)) {
    return true;
  }
  readers r;
  price prices[READER_GROUPS_MAX];
  find_readers(m, n, &r);
  bool needs_store = r.has_other || !is_temporary(m, node->outputs[0].index);
  bool all = price_all(m, n, &r, needs_store, prices);
  if (!all && m->leaving >= 0 && hr_is_cheap(node->op)) {
    price_all(m, n, &r, true, prices); /* with its own writes, which stay */
  }
  m->is_gone[n] = all && !r.has_own;
  for (int k = 0; k < r.count; ++k) {
    bool is_free = hr_is_cheap(node->op) && prices[k].bytes < r.bytes[k] &&
                   prices[k].kept * 8 <= hr_operand_bytes(&node->outputs[0]);
    if ((all || is_free) && !copy_for_group(m, r.nodes[k], r.groups[k], r.first[k])) {
      return false;
    }
  }
  return true;
}

/* The remaining nodes with the copies in their places, the latest copies first, since the others read them. */
static bool rebuild(maker *m) {
  hr_program *program = m->program;
  int count = program->node_count, made = 0;
  hr_node *nodes = hr_arena_alloc(&program->arena, ((size_t)count + m->copies.count) * sizeof *nodes);
  int *latest = hr_program_indices(program, count); /* the latest copy in front of each node */
  if (nodes == NULL || latest == NULL) {
    return false;
  }
  for (size_t c = 0; c < m->copies.count; ++c) {
    copy *of = &m->copies.data[c];
    of->older = latest[of->before];
    latest[of->before] = (int)c;
  }
  for (int n = 0; n < count; ++n) {
    for (int c = latest[n]; c >= 0; c = m->copies.data[c].older) {
      nodes[made++] = m->copies.data[c].node;
    }
    if (!m->is_gone[n]) {
      nodes[made++] = program->nodes[n];
    }
  }
  program->nodes = nodes;
  program->node_count = program->node_capacity = made;
  return true;
}

/* Groups without copies, of which no node is gone, stay as they are. */
static bool keep_groups(const maker *m) {
  hr_program *program = m->program;
  bool *is_changed = HR_ARENA_ARRAY(&program->arena, bool, (size_t)m->fusion->group_count + 1);
  for (int n = 0; is_changed != NULL && n < program->node_count; ++n) {
    is_changed[m->fusion->node_group[n]] |= m->is_gone[n];
  }
  for (int n = 0; is_changed != NULL && n < program->node_count; ++n) {
    int g = m->fusion->node_group[n];
    program->nodes[n].kept_group = is_changed[g] || m->latest[g] >= 0 ? 0 : g + 1;
  }
  return is_changed != NULL;
}

/* ---- tables ---- */

static bool find_groups(maker *m) {
  hr_program *program = m->program;
  m->first_group = hr_program_indices(program, program->buffer_count);
  m->last_group = hr_program_indices(program, program->buffer_count);
  if (m->first_group == NULL || m->last_group == NULL) {
    return false;
  }
  const hr_touches *touches = &m->fusion->touches;
  for (int n = 0; n < program->node_count; ++n) {
    int g = m->fusion->node_group[n];
    for (const hr_touch *t = hr_touches_begin(touches, n); t < hr_touches_end(touches, n); ++t) {
      int *first = &m->first_group[t->buffer], *last = &m->last_group[t->buffer];
      *first = *first < 0 || g < *first ? g : *first;
      *last = g > *last ? g : *last;
    }
  }
  return true;
}

static bool is_large(const hr_program *program, const hr_node *node, int64_t bytes_min) {
  return node->is_loop && node->output_count == 1 && node->outputs[0].kind == HR_OPERAND_VALUE &&
         (int64_t)program->buffers[node->outputs[0].index].bytes >= bytes_min;
}

/* True if some result is large. Then all are considered: a bound for each would give a program other plans wherever one
 * of its values crosses it. */
static bool has_work(const hr_program *program, int64_t bytes_min) {
  bool has = false;
  for (int n = 0; !has && n < program->node_count; ++n) {
    has = is_large(program, &program->nodes[n], bytes_min);
  }
  return has;
}

hr_status hr_recompute(hr_program *program, const hr_target *target, const hr_fusion *fusion, bool *out_changed) {
  maker m = {.program = program, .fusion = fusion, .buffer_count = (uint32_t)program->buffer_count};
  int count = program->node_count;
  *out_changed = false;
  if (!has_work(program, target->recompute_bytes > 0 ? target->recompute_bytes : BYTES_MIN)) {
    return HR_OK;
  }
  m.is_gone = HR_ARENA_ARRAY(&program->arena, bool, (size_t)count + 1);
  m.latest = hr_program_indices(program, fusion->group_count);
  bool ok = m.is_gone != NULL && m.latest != NULL && find_groups(&m) &&
            hr_uses_find_apart(program, &fusion->touches, &m.reads, &m.writes);
  for (int n = count - 1; n >= 0 && ok; --n) {
    ok = copy_for_readers(&m, n);
  }
  *out_changed = m.copies.count > 0;
  ok = ok && (m.copies.count == 0 || (keep_groups(&m) && rebuild(&m)));
  hr_vector_fini(&m.copies);
  if (!ok) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "recompute: no memory for %d nodes", count);
  }
  return *out_changed ? hr_simplify(program) : HR_OK;
}
