/* loops.c: the frames of a graph. */
#include "loops.h"

#include <stdlib.h>

/* A read of a variable that was in a loop. */
typedef struct htf_moved {
  int node, loop;
  htf_node_def old;
  htf_edge *inputs; /* that it has outside */
} htf_moved;

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for the loops of a graph");
}

static bool is_op(const htf_graph *graph, int node, const char *op) {
  return hr__span_is(graph->nodes[node].op, op);
}

/* ---- frames ---- */

static hr__span frame_name(const htf_graph *graph, int node) {
  hr__span value;
  hr__field field;
  bool has_name = htf_find_attribute(graph->nodes[node].message, "frame_name", &value) &&
                  htf_find_field(value, 2, &field) && field.type == HR__WIRE_BYTES;
  return has_name ? field.bytes : (hr__span){NULL, 0};
}

/* The loop of this name, which may be new; -1: no memory. */
static int loop_named(htf_loops *loops, hr__span name) {
  for (int i = 0; i < loops->count; ++i) {
    if (hr__span_equal(loops->loops[i].name, name)) {
      return i;
    }
  }
  htf_loop *grown = realloc(loops->loops, ((size_t)loops->count + 1) * sizeof *grown);
  if (grown == NULL) {
    return -1;
  }
  loops->loops = grown;
  grown[loops->count] = (htf_loop){.name = name, .parent = -1, .condition = -1};
  return loops->count++;
}

static void leave(htf_loops *loops, int loop) {
  if (loop >= 0) {
    loops->loops[loop].is_outside = true;
  }
}

/* The loop that a node runs in by its inputs. Two loops meet in no graph that TensorFlow has lowered. */
static int loop_of_inputs(const htf_graph *graph, htf_loops *loops, int node) {
  const htf_node_def *def = &graph->nodes[node];
  int found = -1;
  for (int i = 0; i < def->input_count; ++i) {
    int input = def->inputs[i].node, loop = loops->of[input];
    if (is_op(graph, input, "NextIteration")) {
      continue;
    }
    loop = loop >= 0 && is_op(graph, input, "Exit") ? loops->loops[loop].parent : loop;
    if (found >= 0 && loop >= 0 && loop != found) {
      leave(loops, found);
      leave(loops, loop);
    }
    found = loop >= 0 ? loop : found;
  }
  return found;
}

static hr_status assign_loops(const htf_graph *graph, const int *order, htf_loops *loops) {
  for (int place = 0; place < graph->count; ++place) {
    int node = order[place], loop = loop_of_inputs(graph, loops, node);
    if (is_op(graph, node, "Enter")) {
      int parent = loop;
      loop = loop_named(loops, frame_name(graph, node));
      if (loop < 0) {
        return no_memory();
      }
      loops->loops[loop].parent = parent;
      leave(loops, parent);
    }
    loops->of[node] = loop;
  }
  return HR_OK;
}

static bool comes_from(const htf_graph *graph, const htf_loops *loops, int node, int input, const char *op) {
  const htf_node_def *def = &graph->nodes[node];
  return input < def->data_count && is_op(graph, def->inputs[input].node, op) &&
         loops->of[def->inputs[input].node] == loops->of[node];
}

/* True if a node has the place in its loop that TensorFlow's lowering gives it. */
static bool is_regular(const htf_graph *graph, const htf_loops *loops, int node) {
  const htf_node_def *def = &graph->nodes[node];
  if (is_op(graph, node, "Merge")) {
    return def->data_count == 2 && comes_from(graph, loops, node, 0, "Enter") &&
           comes_from(graph, loops, node, 1, "NextIteration");
  }
  if (is_op(graph, node, "Switch")) {
    return def->data_count == 2 && comes_from(graph, loops, node, 0, "Merge") &&
           comes_from(graph, loops, node, 1, "LoopCond");
  }
  if (is_op(graph, node, "Exit")) {
    return def->data_count == 1 && comes_from(graph, loops, node, 0, "Switch") && def->inputs[0].port == 0;
  }
  bool is_regular = true;
  for (int i = 0; i < def->data_count; ++i) {
    is_regular = is_regular && (!is_op(graph, def->inputs[i].node, "Switch") || def->inputs[i].port == 1 ||
                                loops->of[def->inputs[i].node] != loops->of[node]);
  }
  return is_regular;
}

static void check_loops(const htf_graph *graph, htf_loops *loops) {
  for (int node = 0; node < graph->count; ++node) {
    int loop = loops->of[node];
    if (loop < 0) {
      continue;
    }
    if (!is_regular(graph, loops, node)) {
      leave(loops, loop);
    }
    if (is_op(graph, node, "LoopCond")) {
      loops->loops[loop].is_outside |= loops->loops[loop].condition >= 0;
      loops->loops[loop].condition = node;
    }
  }
  for (int i = 0; i < loops->count; ++i) {
    loops->loops[i].is_outside |= loops->loops[i].condition < 0;
  }
}

hr_status htf_loops_find(const htf_graph *graph, const int *order, htf_loops *out_loops) {
  *out_loops = (htf_loops){.of = calloc((size_t)graph->count + 1, sizeof *out_loops->of)};
  if (out_loops->of == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(assign_loops(graph, order, out_loops));
  check_loops(graph, out_loops);
  return HR_OK;
}

bool htf_has_loops(const htf_loops *loops) {
  bool has_any = false;
  for (int i = 0; i < loops->count && !has_any; ++i) {
    has_any = !loops->loops[i].is_outside;
  }
  return has_any;
}

/* ---- reads ---- */

static void move_back(htf_graph *graph, htf_loops *loops, int index) {
  htf_moved *moved = &loops->moved[index];
  graph->nodes[moved->node] = moved->old;
  loops->of[moved->node] = moved->loop;
  free(moved->inputs);
  *moved = loops->moved[--loops->moved_count];
}

void htf_loops_fini(htf_graph *graph, htf_loops *loops) {
  while (loops->moved_count > 0) {
    move_back(graph, loops, 0);
  }
  free(loops->moved);
  free(loops->loops);
  free(loops->of);
  *loops = (htf_loops){0};
}

/* Stores what a loop waits for, if there is a place, and returns how many nodes it is. */
static int controls_of(const htf_graph *graph, const htf_loops *loops, int loop, htf_edge *out_edges) {
  int count = 0;
  for (int node = 0; node < graph->count; ++node) {
    const htf_node_def *def = &graph->nodes[node];
    for (int i = def->data_count; i < def->input_count && loops->of[node] == loop && is_op(graph, node, "Enter"); ++i) {
      bool is_new = true;
      for (int j = 0; j < count && out_edges != NULL && is_new; ++j) {
        is_new = out_edges[j].node != def->inputs[i].node;
      }
      if (is_new && out_edges != NULL) {
        out_edges[count] = def->inputs[i];
      }
      count += is_new;
    }
  }
  return count;
}

/* The loop's Enter that is the handle of a read; -1: none. */
static int handle_of(const htf_graph *graph, const htf_loops *loops, int node) {
  int handle = graph->nodes[node].data_count == 1 ? graph->nodes[node].inputs[0].node : -1;
  while (handle >= 0 && is_op(graph, handle, "Identity") && graph->nodes[handle].data_count == 1) {
    handle = graph->nodes[handle].inputs[0].node;
  }
  return handle >= 0 && is_op(graph, handle, "Enter") && loops->of[handle] == loops->of[node] ? handle : -1;
}

static hr_status move_out(htf_graph *graph, htf_loops *loops, int node, int handle) {
  int loop = loops->of[node];
  htf_moved *grown = realloc(loops->moved, ((size_t)loops->moved_count + 1) * sizeof *grown);
  loops->moved = grown != NULL ? grown : loops->moved;
  htf_edge *inputs = calloc((size_t)controls_of(graph, loops, loop, NULL) + 1, sizeof *inputs);
  if (grown == NULL || inputs == NULL) {
    free(inputs);
    return no_memory();
  }
  htf_node_def *def = &graph->nodes[node];
  grown[loops->moved_count++] = (htf_moved){.node = node, .loop = loop, .old = *def, .inputs = inputs};
  inputs[0] = graph->nodes[handle].inputs[0];
  def->input_count = 1 + controls_of(graph, loops, loop, inputs + 1);
  def->inputs = inputs;
  loops->of[node] = -1;
  return HR_OK;
}

hr_status htf_loops_move_reads(htf_graph *graph, htf_loops *loops) {
  for (int i = loops->moved_count - 1; i >= 0; --i) {
    if (loops->loops[loops->moved[i].loop].is_outside) {
      move_back(graph, loops, i);
    }
  }
  for (int node = 0; node < graph->count; ++node) {
    int handle =
        htf_loop_of(loops, node) >= 0 && is_op(graph, node, "ReadVariableOp") ? handle_of(graph, loops, node) : -1;
    if (handle >= 0) {
      HR_RETURN_IF_ERROR(move_out(graph, loops, node, handle));
    }
  }
  return HR_OK;
}

/* ---- order ---- */

/* A walk over nodes and loops, inputs first. A loop is one item, by the first of its nodes in the old order. */
typedef struct walk {
  const htf_graph *graph;
  const htf_loops *loops;
  const int *old;
  int *first, *next_of; /* of loops; the next node of the same loop in the old order, -1: none */
  int *state;           /* of items: 0, 1: it waits for inputs, 2: done */
  int *stack;           /* item, node, input of each */
  int *order;
  int depth, count;
} walk;

static int item_of(const walk *w, int node) {
  int loop = htf_loop_of(w->loops, node);
  return loop >= 0 ? w->first[loop] : node;
}

static void push(walk *w, int item) {
  int *top = &w->stack[3 * w->depth++];
  top[0] = item, top[1] = item, top[2] = 0;
  w->state[item] = 1;
}

static void finish(walk *w, int item) {
  for (int node = item; node >= 0; node = htf_loop_of(w->loops, node) >= 0 ? w->next_of[node] : -1) {
    w->order[w->count++] = node;
  }
  w->state[item] = 2;
  --w->depth;
}

/* Goes on with the item on top. False: a cycle. */
static bool step(walk *w) {
  int *top = &w->stack[3 * (w->depth - 1)];
  const htf_node_def *def = &w->graph->nodes[top[1]];
  if (top[2] == def->input_count) {
    int next = htf_loop_of(w->loops, top[1]) >= 0 ? w->next_of[top[1]] : -1;
    top[1] = next, top[2] = 0;
    if (next < 0) {
      finish(w, top[0]);
    }
    return true;
  }
  int input = def->inputs[top[2]++].node, item = item_of(w, input);
  if (item == top[0] || is_op(w->graph, input, "NextIteration")) {
    return true;
  }
  if (w->state[item] == 0) {
    push(w, item);
  }
  return w->state[item] == 2 || w->stack[3 * (w->depth - 1)] == item;
}

static void link_loops(walk *w) {
  for (int loop = 0; loop < w->loops->count; ++loop) {
    w->first[loop] = -1;
  }
  for (int place = w->graph->count - 1; place >= 0; --place) {
    int node = w->old[place], loop = htf_loop_of(w->loops, node);
    w->next_of[node] = loop >= 0 ? w->first[loop] : -1;
    if (loop >= 0) {
      w->first[loop] = node;
    }
  }
}

hr_status htf_loops_order(const htf_graph *graph, const htf_loops *loops, int *order, bool *out_is_ordered) {
  size_t count = (size_t)graph->count + 1;
  int *memory = calloc(7 * count + (size_t)loops->count, sizeof *memory);
  if (memory == NULL) {
    return no_memory();
  }
  walk w = {.graph = graph,
            .loops = loops,
            .old = order,
            .order = memory,
            .next_of = memory + count,
            .state = memory + 2 * count,
            .stack = memory + 3 * count,
            .first = memory + 6 * count};
  link_loops(&w);
  bool is_ordered = true;
  for (int place = 0; place < graph->count && is_ordered; ++place) {
    int item = item_of(&w, order[place]);
    if (w.state[item] == 0) {
      push(&w, item);
    }
    while (w.depth > 0 && is_ordered) {
      is_ordered = step(&w);
    }
  }
  if (is_ordered) {
    memcpy(order, memory, (size_t)graph->count * sizeof *order);
  }
  free(memory);
  *out_is_ordered = is_ordered;
  return HR_OK;
}
