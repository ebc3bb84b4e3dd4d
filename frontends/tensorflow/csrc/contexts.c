/* contexts.c: contexts as sets of tokens, each set once. */
#include "contexts.h"

#include <stdlib.h>

enum { TOKENS_MAX = 48 }; /* of one context */

typedef enum token_kind { TOKEN_FALSE = 0, TOKEN_TRUE, TOKEN_FRAME, TOKEN_EXIT, TOKEN_MERGE } token_kind;

/* A branch of a Switch with this condition, a frame by its first Enter, the end of one, or a Merge. */
typedef struct token {
  token_kind kind;
  htf_edge of;
} token;

typedef struct set {
  int count;
  int tokens[TOKENS_MAX]; /* in order */
} set;

typedef struct contexts {
  const htf_graph *graph;
  const htf_loops *loops;
  htf_context *nodes;
  token *tokens;
  set *sets;
  int token_count, set_count;
  bool has_failed, is_too_deep;
} contexts;

/* Nodes of loops in clusters are none of these. */
static bool is_op(const contexts *c, int node, const char *op) {
  return hr__span_is(c->graph->nodes[node].op, op) && htf_loop_of(c->loops, node) < 0;
}

/* ---- tokens and sets ---- */

/* Room for one more element: the capacity is the next power of two. */
static void *grow(contexts *c, void *array, int count, size_t size) {
  if ((count & (count - 1)) != 0) {
    return array;
  }
  void *grown = realloc(array, (size_t)(count > 0 ? 2 * count : 1) * size);
  c->has_failed = c->has_failed || grown == NULL;
  return grown != NULL ? grown : array;
}

static int token_of(contexts *c, token_kind kind, htf_edge of) {
  for (int i = 0; i < c->token_count; ++i) {
    const token *t = &c->tokens[i];
    if (t->kind == kind && t->of.node == of.node && t->of.port == of.port) {
      return i;
    }
  }
  c->tokens = grow(c, c->tokens, c->token_count, sizeof *c->tokens);
  if (c->has_failed) {
    return 0;
  }
  c->tokens[c->token_count] = (token){kind, of};
  return c->token_count++;
}

static int set_of(contexts *c, const set *wanted) {
  for (int i = 0; i < c->set_count; ++i) {
    if (c->sets[i].count == wanted->count &&
        memcmp(c->sets[i].tokens, wanted->tokens, (size_t)wanted->count * sizeof *wanted->tokens) == 0) {
      return i;
    }
  }
  c->sets = grow(c, c->sets, c->set_count, sizeof *c->sets);
  if (c->has_failed) {
    return 0;
  }
  c->sets[c->set_count] = *wanted;
  return c->set_count++;
}

/* The tokens of a and those of b; or only those of both. */
static int combine(contexts *c, int a, int b, bool takes_common) {
  if (a == b || ((a == 0 || b == 0) && c->set_count > 0)) {
    return a == b ? a : takes_common ? 0 : a + b;
  }
  const set x = c->sets[a], y = c->sets[b];
  set result = {0};
  for (int i = 0, j = 0; i < x.count || j < y.count;) {
    bool takes_x = i < x.count && (j == y.count || x.tokens[i] <= y.tokens[j]);
    bool takes_y = j < y.count && (i == x.count || y.tokens[j] <= x.tokens[i]);
    int next = takes_x ? x.tokens[i] : y.tokens[j];
    i += takes_x, j += takes_y;
    if (!takes_common || (takes_x && takes_y)) {
      if (result.count == TOKENS_MAX) {
        c->is_too_deep = true;
        return 0;
      }
      result.tokens[result.count++] = next;
    }
  }
  return set_of(c, &result);
}

static int with(contexts *c, int context, token_kind kind, htf_edge of) {
  set one = {.count = 1, .tokens = {token_of(c, kind, of)}};
  return c->has_failed ? 0 : combine(c, context, set_of(c, &one), false);
}

/* ---- nodes ---- */

static htf_edge condition_of(const contexts *c, int node) {
  htf_edge edge = c->graph->nodes[node].inputs[1];
  while (is_op(c, edge.node, "Identity") && c->graph->nodes[edge.node].data_count == 1) {
    edge = c->graph->nodes[edge.node].inputs[0];
  }
  return edge;
}

/* The context of what an edge carries. */
static int context_of(contexts *c, htf_edge edge) {
  int context = c->nodes[edge.node].context;
  bool is_branch = edge.port >= 0 && is_op(c, edge.node, "Switch") && c->graph->nodes[edge.node].data_count == 2;
  return is_branch ? with(c, context, edge.port == 0 ? TOKEN_FALSE : TOKEN_TRUE, condition_of(c, edge.node)) : context;
}

static hr__span frame_name(const contexts *c, int node) {
  hr__span value;
  hr__field field;
  bool has_name = htf_find_attribute(c->graph->nodes[node].message, "frame_name", &value) &&
                  htf_find_field(value, 2, &field) && field.type == HR__WIRE_BYTES;
  return has_name ? field.bytes : (hr__span){NULL, 0};
}

/* The first Enter of the same frame. */
static int first_enter(const contexts *c, int node) {
  const hr__span name = frame_name(c, node);
  for (int i = 0; i < c->token_count; ++i) {
    if (c->tokens[i].kind == TOKEN_FRAME && hr__span_equal(frame_name(c, c->tokens[i].of.node), name)) {
      return c->tokens[i].of.node;
    }
  }
  return node;
}

/* Two branches of one condition meet again: what both depend on. Otherwise the Merge is a token. */
static int merged(contexts *c, int node) {
  const htf_node_def *def = &c->graph->nodes[node];
  int common = 0, entering = 0;
  for (int i = 0; i < def->data_count; ++i) { /* the nodes of a NextIteration come later */
    if (!is_op(c, def->inputs[i].node, "NextIteration")) {
      int context = context_of(c, def->inputs[i]);
      common = entering++ > 0 ? combine(c, common, context, true) : context;
    }
  }
  if (entering < def->data_count) {
    return common;
  }
  if (def->data_count == 2) {
    for (int i = 0; i < c->token_count; ++i) {
      const token t = c->tokens[i];
      if (t.kind == TOKEN_FALSE && with(c, common, TOKEN_FALSE, t.of) == context_of(c, def->inputs[0]) &&
          with(c, common, TOKEN_TRUE, t.of) == context_of(c, def->inputs[1])) {
        return common;
      }
    }
  }
  return with(c, common, TOKEN_MERGE, (htf_edge){node, 0});
}

static void set_context(contexts *c, int node) {
  const htf_node_def *def = &c->graph->nodes[node];
  htf_context *own = &c->nodes[node];
  for (int i = 0; i < def->input_count; ++i) {
    const htf_context *input = &c->nodes[def->inputs[i].node];
    if (is_op(c, def->inputs[i].node, "NextIteration")) {
      continue;
    }
    own->frame = input->frame != 0 ? input->frame : own->frame;
    own->context = is_op(c, node, "Merge") ? 0 : combine(c, own->context, context_of(c, def->inputs[i]), false);
  }
  if (is_op(c, node, "Merge")) {
    own->context = merged(c, node);
  } else if (is_op(c, node, "Enter")) {
    int first = first_enter(c, node);
    own->context = with(c, own->context, TOKEN_FRAME, (htf_edge){first, 0});
    own->frame = first + 1;
  } else if (is_op(c, node, "Exit") && own->frame > 0) {
    int first = own->frame - 1;
    htf_edge outer = c->graph->nodes[first].inputs[0];
    own->frame = c->nodes[outer.node].frame;
    own->context = with(c, context_of(c, outer), TOKEN_EXIT, (htf_edge){first, 0});
  }
}

static bool is_known(const contexts *c, int node) {
  static const char *const others[] = {"RefSwitch",        "RefMerge", "RefEnter", "RefExit",
                                       "RefNextIteration", "_SwitchN", "RefSelect"};
  bool is_other = (is_op(c, node, "Enter") || is_op(c, node, "Exit")) && c->graph->nodes[node].data_count != 1;
  for (size_t i = 0; i < sizeof others / sizeof *others && !is_other; ++i) {
    is_other = is_op(c, node, others[i]);
  }
  return !is_other;
}

hr_status htf_find_contexts(const htf_graph *graph, const int *order, const htf_loops *loops,
                            htf_context *out_contexts) {
  contexts c = {.graph = graph, .loops = loops, .nodes = out_contexts};
  const set empty = {0};
  (void)set_of(&c, &empty);
  for (int i = 0; i < graph->count; ++i) {
    out_contexts[i] = (htf_context){0};
  }
  for (int i = 0; i < graph->count && !c.has_failed && !c.is_too_deep; ++i) {
    c.is_too_deep = !is_known(&c, order[i]);
    set_context(&c, order[i]);
  }
  free(c.tokens);
  free(c.sets);
  return c.has_failed    ? hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a graph's loops")
         : c.is_too_deep ? hr_status_make(HR_STATUS_UNIMPLEMENTED, "headrace: a graph with other or deeper conditions")
                         : HR_OK;
}
