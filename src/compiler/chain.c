/* chain.c: joins operations over lists, such as an optimizer's, into one loop for each element of the lists.
 *
 *   before   %m0, %m1 = lerp(%m0, %m1, %g0, %g1, $0, $0)
 *            %t0, %t1 = sqrt(%v0, %v1)
 *            %p0, %p1 = addcdiv(%p0, %p1, %m0, %m1, %t0, %t1, $1, $1)
 *   after    loop %m0, %p0 = lerp(%m0, %g0, $0) to(0) then(sqrt,3) then(addcdiv,4,^0,^,5)
 *            loop %m1, %p1 = ...
 *
 * All later passes see one node instead of one for each operation. Consecutive operations over lists of one length form
 * a run. Its order may change from operation after operation to element after element if
 *   - the i-th tensors of all lists have the same dims, and results have one dtype;
 *   - inside an element, two accesses to one buffer, one of them a write, use the same view;
 *   - no buffer that one element writes is used by another.
 * A run that breaks a rule stays as it is. Results that the run itself replaces, or that nobody reads after it, are not
 * stored.
 */
#include <string.h>

#include "compiler/passes.h"
#include "core/ops/op.h"

enum { NOBODY = -1, SEVERAL = -2 };

typedef struct chainer {
  const hr_program *stream;
  hr_program *out;
  int *last_use;    /* of each buffer: the last recorded operation that names it */
  int *user;        /* of each buffer, in the present run: the only element that uses it, NOBODY or SEVERAL */
  bool *is_written; /* the same: some element writes it */
  int first, end;   /* the run's operations */
} chainer;

/* A chain while it is made. */
typedef struct chain {
  int element;
  int input_count, output_count;
  hr_operand inputs[HR_CHAIN_ROWS_MAX * HR_EPILOGUE_ARITY_MAX], outputs[HR_CHAIN_ROWS_MAX];
  hr_epilogue epilogues[HR_CHAIN_ROWS_MAX];
} chain;

/* ---- runs ---- */

static bool is_list(const hr_node *node) {
  const hr_op_row *row = hr_op_table(node->op);
  return !node->is_loop && row->family == HR_FAMILY_POINTWISE && row->rule == HR_RULE_SAME && node->op != HR_OP_COPY &&
         row->arity <= HR_EPILOGUE_ARITY_MAX && node->output_count > 1 &&
         node->input_count == row->arity * node->output_count;
}

/* The end of the run that begins with operation `first`; `first` if none does. */
static int run_end(const hr_program *stream, int first) {
  int end = first;
  while (end < stream->node_count && end - first < HR_CHAIN_ROWS_MAX && is_list(&stream->nodes[end]) &&
         stream->nodes[end].output_count == stream->nodes[first].output_count) {
    ++end;
  }
  return end - first > 1 ? end : first;
}

static void note_uses(const hr_program *stream, int *last_use) {
  for (int n = 0; n < stream->node_count; ++n) {
    const hr_node *node = &stream->nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      const hr_operand *operand = hr_node_operand(node, i);
      if (operand->kind == HR_OPERAND_VALUE) {
        last_use[operand->index] = n;
      }
    }
  }
}

/* False if the operand's buffer is written by one element and used by another. */
static bool use(chainer *c, const hr_operand *operand, int element, bool is_write) {
  if (operand->kind != HR_OPERAND_VALUE) {
    return true;
  }
  int *user = &c->user[operand->index];
  bool *is_written = &c->is_written[operand->index];
  *is_written |= is_write;
  *user = *user == NOBODY || *user == element ? element : SEVERAL;
  return *user != SEVERAL || !*is_written;
}

static bool elements_are_apart(chainer *c) {
  const int count = c->stream->nodes[c->first].output_count;
  memset(c->user, 0xff, (size_t)c->stream->buffer_count * sizeof *c->user);
  memset(c->is_written, 0, (size_t)c->stream->buffer_count * sizeof *c->is_written);
  bool are = true;
  for (int n = c->first; are && n < c->end; ++n) {
    const hr_node *node = &c->stream->nodes[n];
    for (int i = 0; are && i < node->input_count + node->output_count; ++i) {
      are = use(c, hr_node_operand(node, i), i % count, i >= node->input_count);
    }
  }
  return are;
}

/* ---- chains ---- */

static bool are_same(const hr_operand *a, const hr_operand *b) {
  return a->kind == b->kind && a->index == b->index && a->dtype == b->dtype &&
         (a->kind == HR_OPERAND_SCALAR || hr_operands_are_same_map(a, b));
}

/* An operand over the dims of a result; false if it is none of them and no single number. */
static bool spread(const hr_operand *operand, const hr_operand *out, hr_operand *out_spread) {
  static const int64_t zeros[HR_RANK_MAX];
  *out_spread = *operand;
  if (operand->kind == HR_OPERAND_VALUE && hr_operands_have_equal_dims(operand, out)) {
    return true;
  }
  out_spread->rank = out->rank;
  out_spread->dims = out->dims;
  out_spread->strides = zeros;
  return operand->kind == HR_OPERAND_SCALAR || (operand->kind == HR_OPERAND_VALUE && hr_operand_count(*operand) == 1);
}

/* The row of the chain that writes the operand's buffer last, among those before `end`; -1: none does. */
static int writer_before(const chainer *c, const chain *ch, int end, const hr_operand *operand) {
  for (int r = end - 1; operand->kind == HR_OPERAND_VALUE && r >= 0; --r) {
    if (c->stream->nodes[c->first + r].outputs[ch->element].index == operand->index) {
      return r;
    }
  }
  return -1;
}

static int add_input(chain *ch, const hr_operand *input) {
  for (int i = 0; i < ch->input_count; ++i) {
    if (are_same(&ch->inputs[i], input)) {
      return i;
    }
  }
  ch->inputs[ch->input_count] = *input;
  return ch->input_count++;
}

/* Input `k` of row `r`, as an epilogue names it, in *out_source; false if the row can't be part of a chain. */
static bool find_source(const chainer *c, chain *ch, int r, int k, int *out_source) {
  const hr_node *node = &c->stream->nodes[c->first + r];
  const hr_operand *out = &node->outputs[ch->element];
  hr_operand input;
  if (!spread(&node->inputs[k * node->output_count + ch->element], out, &input)) {
    return false;
  }
  int writer = writer_before(c, ch, r, &input);
  if (writer >= 0) {
    *out_source = writer == r - 1 ? HR_EPILOGUE_VALUE : HR_EPILOGUE_ROW(writer);
    return are_same(&c->stream->nodes[c->first + writer].outputs[ch->element], &input);
  }
  if (r == 0) { /* a loop's own inputs come first, also if they are the same */
    *out_source = ch->input_count++;
    ch->inputs[*out_source] = input;
  } else {
    *out_source = add_input(ch, &input);
  }
  return true;
}

/* True if what a row writes must be stored. */
static bool is_stored(const chainer *c, const chain *ch, int r) {
  const hr_operand *out = &c->stream->nodes[c->first + r].outputs[ch->element];
  const int rows = c->end - c->first;
  if (r == rows - 1) {
    return true;
  }
  bool is_replaced = writer_before(c, ch, rows, out) != r;
  bool is_unseen = c->stream->buffers[out->index].is_dead && c->last_use[out->index] < c->end;
  return !is_replaced && !is_unseen;
}

/* True if row `r` may write its result: all inputs and results before it that share its buffer have its view. */
static bool may_write(const chainer *c, const chain *ch, int r) {
  const hr_operand *out = &c->stream->nodes[c->first + r].outputs[ch->element];
  const hr_operand *first = &c->stream->nodes[c->first].outputs[ch->element];
  bool may = out->kind == HR_OPERAND_VALUE && out->dtype == first->dtype && out->dtype != HR_DTYPE_BOOL &&
             hr_operands_have_equal_dims(out, first);
  for (int i = 0; may && i < ch->input_count; ++i) {
    const hr_operand *input = &ch->inputs[i];
    may = input->kind != HR_OPERAND_VALUE || input->index != out->index || are_same(input, out);
  }
  int before = may ? writer_before(c, ch, r, out) : -1;
  return may && (before < 0 || are_same(&c->stream->nodes[c->first + before].outputs[ch->element], out));
}

static bool add_row(const chainer *c, chain *ch, int r) {
  const hr_node *node = &c->stream->nodes[c->first + r];
  hr_epilogue *epilogue = r > 0 ? &ch->epilogues[r - 1] : NULL;
  if (epilogue != NULL) {
    const hr_node *before = node - 1;
    bool is_output = is_stored(c, ch, r - 1);
    *epilogue = (hr_epilogue){.op = node->op, .output = is_output ? ch->output_count : -1, .origin = before->origin};
    if (is_output) {
      ch->outputs[ch->output_count++] = before->outputs[ch->element];
    }
  }
  for (int k = 0; k < hr_op_table(node->op)->arity; ++k) {
    int source;
    if (!find_source(c, ch, r, k, &source)) {
      return false;
    }
    if (epilogue != NULL) {
      epilogue->inputs[k] = source;
    }
  }
  return may_write(c, ch, r);
}

/* Appends the chain of an element of the lists; false if there is none, or when memory is out. */
static bool append_chain(const chainer *c, int element) {
  const hr_node *last = &c->stream->nodes[c->end - 1];
  chain ch;
  ch.element = element;
  ch.input_count = ch.output_count = 0;
  for (int r = 0; r < c->end - c->first; ++r) {
    if (!add_row(c, &ch, r)) {
      return false;
    }
  }
  ch.outputs[ch.output_count++] = last->outputs[element];
  if (hr_operand_count(last->outputs[element]) == 0) {
    return true;
  }
  const hr_node node = {.op = c->stream->nodes[c->first].op,
                        .is_loop = true,
                        .input_count = ch.input_count,
                        .output_count = ch.output_count,
                        .inputs = ch.inputs,
                        .outputs = ch.outputs,
                        .epilogue_count = c->end - c->first - 1,
                        .epilogues = ch.epilogues,
                        .origin = last->origin};
  return hr_program_append(c->out, &node);
}

/* Appends the run as chains; false if it has to stay as it is. */
static bool append_chains(chainer *c) {
  const int before = c->out->node_count;
  bool ok = elements_are_apart(c);
  for (int i = 0; ok && i < c->stream->nodes[c->first].output_count; ++i) {
    ok = append_chain(c, i);
  }
  c->out->node_count = ok ? c->out->node_count : before;
  return ok;
}

/* ---- programs ---- */

/* The first operation from `n` on that begins a run; node_count: none does. */
static int next_run(const hr_program *stream, int n) {
  while (n < stream->node_count && run_end(stream, n) == n) {
    ++n;
  }
  return n;
}

/* False when memory is out. */
static bool append_plain(hr_program *out, const hr_program *stream, int first, int end) {
  bool ok = true;
  for (int n = first; ok && n < end; ++n) {
    bool is_loop = stream->nodes[n].is_loop;
    ok = is_loop ? hr_program_append(out, &stream->nodes[n]) : hr_program_append_own(out, &stream->nodes[n]);
    if (ok && !is_loop) {
      out->nodes[out->node_count - 1].origin = (uint32_t)n;
    }
  }
  return ok;
}

static bool chain_runs(chainer *c) {
  bool ok = true;
  for (int n = 0; ok && n < c->stream->node_count; n = c->end) {
    c->first = next_run(c->stream, n);
    c->end = run_end(c->stream, c->first);
    ok = append_plain(c->out, c->stream, n, c->first) &&
         (c->first == c->end || append_chains(c) || append_plain(c->out, c->stream, c->first, c->end));
  }
  return ok;
}

hr_status hr_chain(const hr_program *stream, hr_program *out_stream) {
  *out_stream = *stream;
  hr_arena_init(&out_stream->arena, 0);
  if (next_run(stream, 0) == stream->node_count) {
    return HR_OK;
  }
  out_stream->nodes = NULL;
  out_stream->node_count = out_stream->node_capacity = 0;
  out_stream->has_origins = true;
  hr_arena *arena = &out_stream->arena;
  chainer c = {.stream = stream, .out = out_stream};
  c.last_use = HR_ARENA_ARRAY(arena, int, (size_t)stream->buffer_count + 1);
  c.user = HR_ARENA_ARRAY(arena, int, (size_t)stream->buffer_count + 1);
  c.is_written = HR_ARENA_ARRAY(arena, bool, (size_t)stream->buffer_count + 1);
  bool ok = c.last_use != NULL && c.user != NULL && c.is_written != NULL &&
            hr_program_reserve(out_stream, stream->node_count + stream->node_count / 2, 0, 0);
  if (ok) {
    note_uses(stream, c.last_use);
    ok = chain_runs(&c);
  }
  if (!ok) {
    hr_arena_fini(arena);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "chain: no memory for %d nodes", stream->node_count);
  }
  return HR_OK;
}
