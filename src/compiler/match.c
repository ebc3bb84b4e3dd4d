/* match.c: matches element-wise loops into contractions as epilogues.
 *
 *   before   %4:f32[8,64,14,14] = conv(%0, %1)                     (%4, %5, %7 dead)
 *            loop %5 = add_scaled(%2:..{0,1,0,0}, %4, %3:..{0,1,0,0})
 *            %6 = conv(%0, %9)
 *            loop %7 = add(%5, %6)
 *            loop %8 = relu(%7)
 *   after    %6 = conv(%0, %9)
 *            %8 = conv(%0, %1, _, %2:..{0,1,0,0}, %3:..{0,1,0,0}, %6) then(add_scaled,3,^,4) then(add,^,5) then(relu,^)
 *
 * A contraction absorbs the element-wise loop that alone reads its result, element for element, if the target keeps the
 * contraction with that epilogue. It moves to the loop's place, where the loop's other inputs are ready.
 *   - Between the two places no node may write what the contraction reads.
 *   - Its old result must not be visible: its buffer is dead, or the loop writes over it in place.
 * Then the next loop is tried. A sum that adds a later contraction is left to that one, if the target keeps it:
 * else the results of all its terms would have to stay until the last of them.
 *
 * Numbers: a provider that keeps a contraction with epilogues promises the bits of the loops (provider.h), so results
 * don't depend on which operations the stream committed together. A target that folds scales does not promise this of
 * convolutions: its factors are rounded to fewer bits anyway. A scale for each channel then goes into the weights,
 * which outlive the program and are scaled once (engine/weights.h):
 *
 *   before   %4 = conv(%0, %1)
 *            loop %5 = add_scaled(%2:..{0,1,0,0}, %4, %3:..{0,1,0,0})
 *   after    loop %6 = mul(%1, %3:..{1,0,0,0})
 *            %5 = conv(%0, %6, _, %2:..{0,1,0,0}) then(add,^,3)
 */
#include <string.h>

#include "compiler/passes.h"
#include "core/ir/build.h"
#include "core/ops/op.h"

enum { OWN_INPUTS = 3 }; /* of a contraction, at most; epilogues' inputs come after them */

typedef struct matcher {
  hr_builder builder; /* scaled weights are appended to the program's own nodes */
  hr_program *program;
  const hr_target *target;
  bool is_again;
  int count; /* of the program's own nodes */
  uint32_t buffer_count;
  bool *is_gone; /* of each of them */
  int *before;   /* of each of them: the node that must come first; -1: none */
  hr_uses uses;  /* of the program's own buffers */
} matcher;

/* A contraction and the loop that it may absorb. */
typedef struct pair {
  const hr_node *node, *loop;
  int first, last;        /* their numbers */
  int order[HR_RANK_MAX]; /* of the loop's dims */
} pair;

static bool touches(const hr_node *node, uint32_t buffer, bool *out_writes) {
  bool is_found = false;
  *out_writes = false;
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    if (x->kind == HR_OPERAND_VALUE && x->index == buffer) {
      is_found = true;
      *out_writes |= i >= node->input_count;
    }
  }
  return is_found;
}

/* ---- readers of the result ---- */

/* The next node after number n that touches the buffer; the program's count when there is none. */
static int next_access(const matcher *m, int n, uint32_t buffer, bool *out_writes) {
  *out_writes = false;
  for (int k = hr_uses_after(&m->uses, buffer, n); k < m->uses.first[buffer + 1]; ++k) {
    int at = m->uses.nodes[k];
    if (!m->is_gone[at] && touches(&m->program->nodes[at], buffer, out_writes)) {
      return at;
    }
  }
  return m->count;
}

/* Notes that node `to` reads what node n did, which is part of it now. */
static void move_uses(const matcher *m, const hr_node *node, int n, int to) {
  for (int i = 0; i < node->input_count; ++i) {
    const hr_operand *x = &node->inputs[i];
    if (x->kind != HR_OPERAND_VALUE || x->index >= m->buffer_count) { /* scaled weights are nobody else's */
      continue;
    }
    int *list = m->uses.nodes, k = hr_uses_after(&m->uses, x->index, n) - 1;
    for (; k + 1 < m->uses.first[x->index + 1] && list[k + 1] < to; ++k) {
      list[k] = list[k + 1];
    }
    list[k] = to;
  }
}

static bool is_plain(const hr_operand *x) {
  return (x->kind == HR_OPERAND_VALUE || x->kind == HR_OPERAND_SCALAR) && x->term_count == 0 && x->bound_count == 0;
}

/* True if the loop is one element-wise row in the dtype of the contraction's result. */
static bool is_row_of(const matcher *m, const hr_node *loop, hr_dtype dtype) {
  const hr_op_row *row = hr_op_table(loop->op);
  if (!loop->is_loop || row->family != HR_FAMILY_POINTWISE || row->rule != HR_RULE_SAME ||
      row->arity > HR_EPILOGUE_ARITY_MAX || loop->input_count != row->arity || loop->epilogue_count > 0 ||
      loop->reduce_mask != 0 || loop->ordered_mask != 0 || loop->store_mode != HR_STORE_SET ||
      !is_plain(&loop->outputs[0]) || loop->outputs[0].dtype != dtype ||
      hr_node_compute_class(m->program, loop) != hr_dtype_arithmetic_class(dtype)) {
    return false;
  }
  for (int i = 0; i < loop->input_count; ++i) {
    if (!is_plain(&loop->inputs[i]) || (loop->inputs[i].kind == HR_OPERAND_VALUE && loop->inputs[i].dtype != dtype)) {
      return false;
    }
  }
  return true;
}

/* Finds the loop that alone reads the result of node n. */
static bool find_loop(const matcher *m, int n, pair *out_pair) {
  const hr_program *program = m->program;
  const hr_node *node = &program->nodes[n];
  const hr_operand *out = &node->outputs[0];
  bool writes, writes_again;
  int at = next_access(m, n, out->index, &writes);
  if (at == m->count || !is_row_of(m, &program->nodes[at], out->dtype)) {
    return false;
  }
  const hr_node *loop = &program->nodes[at];
  *out_pair = (pair){.node = node, .loop = loop, .first = n, .last = at};
  if (writes) {
    return hr_operands_may_overlap(out, &loop->outputs[0]); /* the exact condition is checked below */
  }
  return program->buffers[out->index].is_dead && next_access(m, at, out->index, &writes_again) == m->count;
}

static bool has_failure_between(const matcher *m, const pair *p) {
  bool has = false;
  for (int k = p->first + 1; !has && k < p->last; ++k) {
    has = !m->is_gone[k] && hr_may_fail(&m->program->nodes[k]);
  }
  return has;
}

static bool is_written_between(const matcher *m, const pair *p, uint32_t buffer) {
  bool is_written = false;
  int k = hr_uses_after(&m->uses, buffer, p->first);
  for (; !is_written && k < m->uses.first[buffer + 1] && m->uses.nodes[k] < p->last; ++k) {
    int n = m->uses.nodes[k];
    bool writes = false;
    is_written = !m->is_gone[n] && touches(&m->program->nodes[n], buffer, &writes) && writes;
  }
  return is_written;
}

/* True if the contraction can run at the loop's place: its inputs are unchanged, and no failure may end the program
 * between a visible write and the new place. Added rows write only what no other node does. */
static bool can_move(const matcher *m, const pair *p) {
  bool is_seen = !m->program->buffers[p->node->outputs[0].index].is_dead;
  bool can = !is_seen || !has_failure_between(m, p);
  for (int i = 0; can && i < p->node->input_count; ++i) {
    const hr_operand *x = &p->node->inputs[i];
    bool is_own = x->kind == HR_OPERAND_VALUE && x->index < m->buffer_count;
    can = !is_own || !is_written_between(m, p, x->index);
  }
  return can;
}

/* ---- operands over the contraction's dims ---- */

/* The dim of `out` along which a stride of the loop's view moves. */
static int dim_along(const hr_operand *out, int64_t stride) {
  int along = 0;
  int64_t nearest = 0;
  for (int d = 0; d < out->rank; ++d) {
    if (out->dims[d] != 1 && out->strides[d] <= stride && out->strides[d] > nearest) {
      along = d;
      nearest = out->strides[d];
    }
  }
  return along;
}

/* The loop's dims in the order of the contraction's: a loop over another layout walks them in another order. */
static void find_order(const pair *p, int order[HR_RANK_MAX]) {
  const hr_operand *out = &p->node->outputs[0], *value = &p->loop->outputs[0];
  for (int i = 0; i < p->loop->input_count; ++i) {
    const hr_operand *x = &p->loop->inputs[i];
    value = x->kind == HR_OPERAND_VALUE && x->index == out->index ? x : value;
  }
  for (int d = 0; d < value->rank; ++d) {
    int i = d, along = dim_along(out, value->strides[d]);
    for (; i > 0 && value->dims[d] != 1; --i) {
      int other = dim_along(out, value->strides[order[i - 1]]);
      if (other < along || (other == along && value->strides[order[i - 1]] >= value->strides[d])) {
        break;
      }
      order[i] = order[i - 1];
    }
    order[i] = d;
  }
}

/* Strides over the dims of `out` of an operand that walks `dims`, the same elements row-major; false if it has no
 * constant stride along each of them. */
static bool map_strides(const hr_operand *out, const hr_operand *walk, const int64_t *strides, int64_t *out_strides) {
  hr_domain to = {0}, from = {0}, both;
  int64_t fine[HR_RANK_MAX];
  const hr_operand *sides[2] = {out, walk};
  hr_domain *domains[2] = {&to, &from};
  for (int k = 0; k < 2; ++k) {
    for (int d = 0; d < sides[k]->rank; ++d) {
      if (sides[k]->dims[d] != 1) {
        domains[k]->dims[domains[k]->rank++] = sides[k]->dims[d];
      }
    }
  }
  if (!hr_domain_refine(&to, &from, false, &both)) {
    return false;
  }
  hr_domain_map(&both, false, walk->rank, walk->dims, strides, fine);
  int at = both.rank - 1;
  for (int d = out->rank - 1; d >= 0; --d) {
    int64_t passed = 1;
    out_strides[d] = 0;
    for (; passed < out->dims[d]; --at) {
      out_strides[d] = passed == 1 ? fine[at] : out_strides[d];
      if (fine[at] != out_strides[d] * passed) {
        return false;
      }
      passed *= both.dims[at];
    }
  }
  return true;
}

/* An operand of the loop as one over the contraction's output. False when it can't be, or memory is out. */
static bool over_output(const matcher *m, const pair *p, const hr_operand *operand, hr_operand *out_operand) {
  const hr_operand *out = &p->node->outputs[0];
  int64_t strides[HR_RANK_MAX] = {0}, dims[HR_RANK_MAX], given[HR_RANK_MAX];
  const hr_operand walk = {.rank = operand->rank, .dims = dims};
  for (int i = 0; operand->kind == HR_OPERAND_VALUE && i < walk.rank; ++i) {
    dims[i] = operand->dims[p->order[i]];
    given[i] = operand->strides[p->order[i]];
  }
  if (operand->kind == HR_OPERAND_VALUE && !map_strides(out, &walk, given, strides)) {
    return false;
  }
  *out_operand = *operand;
  out_operand->rank = out->rank;
  out_operand->dims = out->dims;
  out_operand->strides = hr_arena_dup_words(&m->program->arena, strides, out->rank);
  return out_operand->strides != NULL;
}

/* ---- the new node ---- */

/* Appends the loop's row to the contraction's epilogues, and its inputs to those of the contraction. */
static bool join(const matcher *m, const pair *p, hr_node *joined) {
  const hr_node *node = p->node, *loop = p->loop;
  hr_arena *arena = &m->program->arena;
  int count = node->input_count > OWN_INPUTS ? node->input_count : OWN_INPUTS;
  hr_operand *inputs = HR_ARENA_ARRAY(arena, hr_operand, (size_t)(count + loop->input_count));
  hr_operand *output = HR_ARENA_ARRAY(arena, hr_operand, 1);
  hr_epilogue *epilogues = HR_ARENA_ARRAY(arena, hr_epilogue, (size_t)node->epilogue_count + 1);
  if (inputs == NULL || output == NULL || epilogues == NULL || !over_output(m, p, &loop->outputs[0], output)) {
    return false;
  }
  for (int i = 0; i < count; ++i) {
    inputs[i] = i < node->input_count ? node->inputs[i] : (hr_operand){.kind = HR_OPERAND_NONE, .fill = HR_NO_SCALAR};
  }
  for (int i = 0; i < node->epilogue_count; ++i) {
    epilogues[i] = node->epilogues[i];
  }
  hr_epilogue *epilogue = &epilogues[node->epilogue_count];
  epilogue->op = loop->op;
  epilogue->output = -1;
  epilogue->origin = node->origin;
  bool takes_value = false;
  for (int i = 0; i < loop->input_count; ++i) {
    const hr_operand *x = &loop->inputs[i];
    hr_operand mapped;
    if (!over_output(m, p, x, &mapped)) {
      return false;
    }
    bool is_value = x->kind == HR_OPERAND_VALUE && x->index == node->outputs[0].index;
    if (is_value && !hr_operands_are_same_map(&mapped, &node->outputs[0])) {
      return false;
    }
    epilogue->inputs[i] = is_value ? HR_EPILOGUE_VALUE : count;
    inputs[count] = mapped;
    count += !is_value;
    takes_value |= is_value;
  }
  *joined = *node;
  joined->inputs = inputs, joined->input_count = count;
  joined->outputs = output;
  joined->epilogues = epilogues, joined->epilogue_count = node->epilogue_count + 1;
  joined->is_relaid |= loop->is_relaid;
  joined->origin = loop->origin;
  return takes_value;
}

/* A contraction reads its inputs more than once and in its own order: its output must not share elements with them. An
 * epilogue's input may be the output's memory. */
static bool is_free_of_hazards(const pair *p, const hr_node *joined) {
  const hr_operand *out = &joined->outputs[0], *before = &p->node->outputs[0];
  if (out->index == before->index && !hr_operands_are_same_map(out, before)) {
    return false; /* in place means everywhere */
  }
  for (int i = 0; i < joined->input_count; ++i) {
    const hr_operand *x = &joined->inputs[i];
    if (hr_operands_may_overlap(out, x) && (i < OWN_INPUTS || !hr_operands_are_same_map(out, x))) {
      return false;
    }
  }
  return true;
}

static bool is_kept(const matcher *m, const pair *p, const hr_node *joined) {
  return is_free_of_hazards(p, joined) && m->target->keeps(m->target->keeps_ctx, m->program, joined);
}

/* ---- scales ---- */

/* True if the operand has one number for each channel of the convolution's output. */
static bool is_by_channel(const hr_operand *x) {
  for (int d = 0; d < x->rank; ++d) {
    if (d != 1 && x->dims[d] != 1 && x->strides[d] != 0) {
      return false;
    }
  }
  return x->kind == HR_OPERAND_VALUE;
}

/* The node joined with add_scaled(bias, ^, scale) as one of scaled weights joined with add(^, bias), and the row that
 * scales them. */
static bool fold_scale(matcher *m, hr_node *joined) {
  hr_arena *arena = &m->program->arena;
  hr_epilogue *epilogues = hr_arena_dup(arena, joined->epilogues, (size_t)joined->epilogue_count * sizeof *epilogues);
  hr_operand *inputs = hr_arena_dup(arena, joined->inputs, (size_t)joined->input_count * sizeof *inputs);
  const hr_epilogue *epilogue = &joined->epilogues[joined->epilogue_count - 1];
  if (epilogues == NULL || inputs == NULL || joined->op != HR_OP_CONV || epilogue->op != HR_OP_ADD_SCALED ||
      joined->epilogue_count > 1 || epilogue->inputs[0] == HR_EPILOGUE_VALUE) {
    return false;
  }
  int factor = epilogue->inputs[1] == HR_EPILOGUE_VALUE ? 2 : 1;
  const hr_operand *scale = epilogue->inputs[factor] == HR_EPILOGUE_VALUE ? NULL : &inputs[epilogue->inputs[factor]],
                   *w = &inputs[1];
  if (scale == NULL || !is_by_channel(scale) || !is_plain(w) || w->kind != HR_OPERAND_VALUE ||
      w->dtype != scale->dtype) {
    return false;
  }
  int64_t strides[HR_RANK_MAX] = {scale->strides[1]};
  hr_operand spread = hr_view_strided(&m->builder, *scale, w->rank, w->dims, strides, scale->offset);
  inputs[1] = hr_make2(&m->builder, HR_OP_MUL, w->dtype, *w, spread);
  inputs[OWN_INPUTS] = inputs[epilogue->inputs[0]];
  epilogues[0] = (hr_epilogue){.op = HR_OP_ADD, .inputs = {HR_EPILOGUE_VALUE, OWN_INPUTS}, .origin = epilogue->origin};
  joined->epilogues = epilogues, joined->inputs = inputs;
  joined->input_count = OWN_INPUTS + 1;
  return m->builder.status == HR_OK;
}

/* Folds the scale into the weights; drops the row again if the target does not keep the result. */
static bool try_fold(matcher *m, const pair *p, hr_node *joined) {
  int first = m->program->node_count;
  m->builder.origin = p->node->origin;
  if (!m->target->folds_scales || !fold_scale(m, joined)) {
    return false;
  }
  if (!is_kept(m, p, joined)) {
    m->program->node_count = first;
    return false;
  }
  m->before[p->last] = first;
  return true;
}

/* ---- the walk ---- */

static bool takes_epilogues(const hr_node *node) {
  return !node->is_loop && hr_op_table(node->op)->family == HR_FAMILY_CONTRACTION && node->output_count == 1 &&
         node->outputs[0].kind == HR_OPERAND_VALUE;
}

/* The later contraction that the loop adds to a sum of the pair's; -1: none. */
static int next_term(const matcher *m, const pair *p) {
  const hr_program *program = m->program;
  const hr_node *node = p->node, *loop = p->loop;
  int found = -1;
  if (loop->op != HR_OP_ADD || node->epilogue_count == 0 || node->epilogues[node->epilogue_count - 1].op != HR_OP_ADD) {
    return -1;
  }
  for (int i = 0; i < loop->input_count; ++i) {
    uint32_t buffer = loop->inputs[i].kind == HR_OPERAND_VALUE ? loop->inputs[i].index : m->buffer_count;
    if (buffer >= m->buffer_count) {
      continue;
    }
    int k = hr_uses_after(&m->uses, buffer, p->first);
    for (; k < m->uses.first[buffer + 1] && m->uses.nodes[k] < p->last; ++k) {
      const hr_node *other = &program->nodes[m->uses.nodes[k]];
      bool makes = !m->is_gone[m->uses.nodes[k]] && takes_epilogues(other) && other->outputs[0].index == buffer;
      found = makes ? m->uses.nodes[k] : found;
    }
  }
  return found;
}

/* Adds what the node absorbs to *matched; false: nothing. A contraction takes the sum of those before it itself. */
static bool match_node(matcher *m, int n, int *matched) {
  hr_program *program = m->program;
  pair p;
  hr_node joined;
  if (program->nodes[n].epilogue_count == HR_EPILOGUES_MAX || !find_loop(m, n, &p) ||
      (m->is_again && !p.node->is_relaid && !p.loop->is_relaid) || !can_move(m, &p)) {
    return false;
  }
  int next = next_term(m, &p);
  if (next >= 0 && match_node(m, next, matched)) {
    return true;
  }
  find_order(&p, p.order);
  if (!join(m, &p, &joined) || !(is_kept(m, &p, &joined) || try_fold(m, &p, &joined))) {
    return false;
  }
  m->before[p.last] = m->before[p.last] >= 0 ? m->before[p.last] : m->before[n];
  m->is_gone[n] = true;
  ++*matched;
  program->nodes[p.last] = joined; /* the walk visits it again when it gets there */
  move_uses(m, p.node, n, p.last);
  return true;
}

/* Removes nodes that are gone, and inserts added rows at their places. */
static bool put_in_order(matcher *m) {
  hr_program *program = m->program;
  const int capacity = program->node_count + 1;
  hr_node *ordered = hr_arena_alloc(&program->arena, (size_t)capacity * sizeof *ordered);
  int count = 0;
  for (int n = 0; ordered != NULL && n < m->count; ++n) {
    if (!m->is_gone[n] && m->before[n] >= 0) {
      ordered[count++] = program->nodes[m->before[n]];
    }
    if (!m->is_gone[n]) {
      ordered[count++] = program->nodes[n];
    }
  }
  if (ordered != NULL) {
    program->nodes = ordered;
    program->node_count = count;
    program->node_capacity = capacity;
  }
  return ordered != NULL;
}

static hr_status no_memory(int count) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "match: no memory for %d nodes", count);
}

static bool has_work(const hr_program *program) {
  bool has = false;
  for (int n = 0; !has && n < program->node_count; ++n) {
    has = takes_epilogues(&program->nodes[n]);
  }
  return has;
}

hr_status hr_match(hr_program *program, const hr_target *target, bool is_again) {
  matcher m = {.builder = {.program = program},
               .program = program,
               .target = target,
               .is_again = is_again,
               .count = program->node_count,
               .buffer_count = (uint32_t)program->buffer_count};
  if (target->keeps == NULL || !has_work(program)) {
    return HR_OK;
  }
  m.is_gone = HR_ARENA_ARRAY(&program->arena, bool, (size_t)m.count + 1);
  m.before = hr_program_indices(program, m.count);
  if (m.is_gone == NULL || m.before == NULL || !hr_uses_find(program, &m.uses)) {
    return no_memory(m.count);
  }
  int matched = 0;
  for (int n = 0; n < m.count; ++n) {
    if (!m.is_gone[n] && takes_epilogues(&program->nodes[n])) {
      (void)match_node(&m, n, &matched);
    }
  }
  HR_RETURN_IF_ERROR(m.builder.status);
  if (matched == 0) {
    return HR_OK;
  }
  return put_in_order(&m) ? HR_OK : no_memory(m.count);
}
