/* match.c: what a library can do together with a contraction is matched into it.
 *
 *   before   %4:f32[8,64,14,14] = conv(%0, %1)                     (%4, %5, %7 dead)
 *            loop %5 = add_scaled(%2:..{0,1,0,0}, %4, %3:..{0,1,0,0})
 *            %6 = conv(%0, %9)
 *            loop %7 = add(%5, %6)
 *            loop %8 = relu(%7)
 *   after    %6 = conv(%0, %9)
 *            %8 = conv(%0, %1, _, %2:..{0,1,0,0}, %3:..{0,1,0,0}, %6) then(add_scaled,3,^,4) then(add,^,5) then(relu,^)
 *
 * A contraction takes the element-wise loop that alone reads what it has written, element for element, if the target keeps the
 * contraction with it. It moves to the loop's place, where the loop's other inputs are ready; between the two nobody may write
 * what the contraction reads. What it wrote before must not be seen by anybody: its buffer is dead, or the loop writes over it in
 * place. Then the next loop is looked at.
 *
 * Numbers: whoever keeps a contraction with posts promises the bits of the loops (provider.h), so that results don't depend on
 * what the stream happened to commit together.
 */
#include <string.h>

#include "compiler/passes.h"
#include "core/op.h"

enum { OWN_INPUTS = 3 }; /* of a contraction, at most; posts' inputs come behind them */

typedef struct matcher {
  hr_program *program;
  const hr_target *target;
  bool *is_gone; /* of each node */
} matcher;

/* A contraction and the loop that it may take. */
typedef struct pair {
  const hr_node *node, *loop;
  int first, last; /* their numbers */
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

/* ---- who sees the result ---- */

/* The next node behind number n that touches the buffer; node_count when there is none. */
static int next_access(const matcher *m, int n, uint32_t buffer, bool *out_writes) {
  *out_writes = false;
  for (++n; n < m->program->node_count; ++n) {
    if (!m->is_gone[n] && touches(&m->program->nodes[n], buffer, out_writes)) {
      break;
    }
  }
  return n;
}

static bool is_plain(const hr_operand *x) {
  return (x->kind == HR_OPERAND_VALUE || x->kind == HR_OPERAND_SCALAR) && x->term_count == 0 && x->bound_count == 0;
}

/* Whether the loop is one element-wise row in the dtype of the contraction's result. */
static bool is_row_of(const matcher *m, const hr_node *loop, hr_dtype dtype) {
  const hr_op_row *row = hr_op_table(loop->op);
  if (!loop->is_loop || row->family != HR_FAMILY_POINTWISE || row->rule != HR_RULE_SAME ||
      row->arity > HR_POST_ARITY_MAX || loop->input_count != row->arity || loop->reduce_mask != 0 ||
      loop->ordered_mask != 0 || loop->store_mode != HR_STORE_SET || !is_plain(&loop->outputs[0]) ||
      loop->outputs[0].dtype != dtype || hr_node_compute_class(m->program, loop) != hr_dtype_arithmetic_class(dtype)) {
    return false;
  }
  for (int i = 0; i < loop->input_count; ++i) {
    if (!is_plain(&loop->inputs[i]) || (loop->inputs[i].kind == HR_OPERAND_VALUE && loop->inputs[i].dtype != dtype)) {
      return false;
    }
  }
  return true;
}

/* Finds the loop that alone sees what node n writes. */
static bool find_loop(const matcher *m, int n, pair *out_pair) {
  const hr_program *program = m->program;
  const hr_node *node = &program->nodes[n];
  const hr_operand *out = &node->outputs[0];
  bool writes, writes_again;
  int at = next_access(m, n, out->index, &writes);
  if (at == program->node_count || !is_row_of(m, &program->nodes[at], out->dtype)) {
    return false;
  }
  const hr_node *loop = &program->nodes[at];
  *out_pair = (pair){node, loop, n, at};
  if (writes) {
    return hr_operands_may_overlap(out, &loop->outputs[0]); /* how exactly is looked at below */
  }
  return program->buffers[out->index].is_dead && next_access(m, at, out->index, &writes_again) == program->node_count;
}

/* Whether the contraction can run where the loop is: its inputs are still there, and no check may end the program between a
 * write that can be seen and now. */
static bool can_move(const matcher *m, const pair *p) {
  const hr_program *program = m->program;
  bool is_seen = !program->buffers[p->node->outputs[0].index].is_dead;
  for (int k = p->first + 1; k < p->last; ++k) {
    const hr_node *between = &program->nodes[k];
    if (m->is_gone[k]) {
      continue;
    }
    if (between->op == HR_OP_CHECK_INDEX && is_seen) {
      return false;
    }
    for (int i = 0; i < p->node->input_count; ++i) {
      bool writes = false;
      const hr_operand *x = &p->node->inputs[i];
      if (x->kind == HR_OPERAND_VALUE && touches(between, x->index, &writes) && writes) {
        return false;
      }
    }
  }
  return true;
}

/* ---- operands over the contraction's dims ---- */

/* Strides over the dims of `out` of an operand that walks `dims`, the same elements row-major; false when it doesn't move
 * evenly along each of them. */
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
  int64_t strides[HR_RANK_MAX] = {0};
  if (operand->kind == HR_OPERAND_VALUE && !map_strides(out, &p->loop->outputs[0], operand->strides, strides)) {
    return false;
  }
  *out_operand = *operand;
  out_operand->rank = out->rank;
  out_operand->dims = out->dims;
  out_operand->strides = hr_arena_dup(&m->program->arena, strides, (size_t)out->rank * sizeof *strides);
  return out_operand->strides != NULL;
}

/* ---- the new node ---- */

/* Appends the loop's row to the contraction's posts, and its inputs to those of the contraction. */
static bool join(const matcher *m, const pair *p, hr_node *joined) {
  const hr_node *node = p->node, *loop = p->loop;
  hr_arena *arena = &m->program->arena;
  int count = node->input_count > OWN_INPUTS ? node->input_count : OWN_INPUTS;
  hr_operand *inputs = HR_ARENA_ARRAY(arena, hr_operand, (size_t)(count + loop->input_count));
  hr_operand *output = HR_ARENA_ARRAY(arena, hr_operand, 1);
  hr_post *posts = HR_ARENA_ARRAY(arena, hr_post, (size_t)node->post_count + 1);
  if (inputs == NULL || output == NULL || posts == NULL || !over_output(m, p, &loop->outputs[0], output)) {
    return false;
  }
  for (int i = 0; i < count; ++i) {
    inputs[i] = i < node->input_count ? node->inputs[i] : (hr_operand){.kind = HR_OPERAND_NONE, .fill = HR_NO_SCALAR};
  }
  for (int i = 0; i < node->post_count; ++i) {
    posts[i] = node->posts[i];
  }
  hr_post *post = &posts[node->post_count];
  post->op = loop->op;
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
    post->inputs[i] = is_value ? HR_POST_VALUE : count;
    inputs[count] = mapped;
    count += !is_value;
    takes_value |= is_value;
  }
  *joined = *node;
  joined->inputs = inputs, joined->input_count = count;
  joined->outputs = output;
  joined->posts = posts, joined->post_count = node->post_count + 1;
  joined->origin = loop->origin;
  return takes_value;
}

/* A contraction reads its inputs more than once and in its own order: its output must not share elements with them. What a post
 * reads may lie where the output does. */
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

static void match_node(const matcher *m, int n) {
  hr_program *program = m->program;
  pair p;
  hr_node joined;
  if (program->nodes[n].post_count == HR_POSTS_MAX || !find_loop(m, n, &p) || !can_move(m, &p) ||
      !join(m, &p, &joined) || !is_free_of_hazards(&p, &joined) ||
      !m->target->keeps(m->target->keeps_ctx, program, &joined)) {
    return;
  }
  m->is_gone[n] = true;
  program->nodes[p.last] = joined; /* it is looked at again when the walk gets there */
}

static bool takes_posts(const hr_node *node) {
  return !node->is_loop && hr_op_table(node->op)->family == HR_FAMILY_CONTRACTION && node->output_count == 1 &&
         node->outputs[0].kind == HR_OPERAND_VALUE;
}

hr_status hr_match(hr_program *program, const hr_target *target) {
  matcher m = {.program = program, .target = target};
  if (target->keeps == NULL) {
    return NULL;
  }
  m.is_gone = HR_ARENA_ARRAY(&program->arena, bool, (size_t)program->node_count + 1);
  if (m.is_gone == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "match: no memory for %d nodes", program->node_count);
  }
  for (int n = 0; n < program->node_count; ++n) {
    if (takes_posts(&program->nodes[n])) {
      match_node(&m, n);
    }
  }
  int count = 0;
  for (int n = 0; n < program->node_count; ++n) {
    if (!m.is_gone[n]) {
      program->nodes[count++] = program->nodes[n];
    }
  }
  program->node_count = count;
  return hr_versions(program);
}
