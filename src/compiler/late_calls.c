/* late_calls.c: moves calls that wait for other processes to where their results are used.
 *
 *   before   %1 = mul(%0, $0)                after   %1 = mul(%0, $0)
 *            %1 = call(%1)      (late)               %3 = mul(%2, $0)
 *            %3 = mul(%2, $0)                        %1 = call(%1)
 *            %3 = call(%3)      (late)               %3 = call(%3)
 *            %4 = sub(%4, %1)                        %4 = sub(%4, %1)
 *
 * Each call waits for the slowest process, and other work of the program does not go on meanwhile. One wait for all
 * calls takes the longest of the sums of what the processes do; a wait for each takes the sum of the longest.
 *
 * Late calls keep their order. All of them run in front of the first node that touches an operand of one, of another
 * call with effects and of a node that may fail, whose failure would drop them.
 */
#include <string.h>

#include "compiler/passes.h"

typedef struct mover {
  const hr_program *program;
  hr_node *nodes; /* in the new order */
  int *waiting;   /* late calls */
  bool *is_held;  /* of each buffer: a waiting call touches it */
  int node_count, waiting_count;
} mover;

static void set_held(const mover *m, const hr_node *node, bool is_held) {
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    if (x->kind == HR_OPERAND_VALUE) {
      m->is_held[x->index] = is_held;
    }
  }
}

static bool touches_held(const mover *m, const hr_node *node) {
  bool does = false;
  for (int i = 0; !does && i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    does = x->kind == HR_OPERAND_VALUE && m->is_held[x->index];
  }
  return does;
}

static void append_waiting(mover *m) {
  for (int i = 0; i < m->waiting_count; ++i) {
    const hr_node *call = &m->program->nodes[m->waiting[i]];
    set_held(m, call, false);
    m->nodes[m->node_count++] = *call;
  }
  m->waiting_count = 0;
}

static void add(mover *m, int n) {
  const hr_node *node = &m->program->nodes[n];
  if (hr_call_effects_of(node) == HR_CALL_LATE) {
    set_held(m, node, true);
    m->waiting[m->waiting_count++] = n;
    return;
  }
  if (m->waiting_count > 0 &&
      (hr_call_effects_of(node) != HR_CALL_KERNEL || hr_may_fail(node) || touches_held(m, node))) {
    append_waiting(m);
  }
  m->nodes[m->node_count++] = *node;
}

static int count_late(const hr_program *program) {
  int count = 0;
  for (int n = 0; n < program->node_count; ++n) {
    count += hr_call_effects_of(&program->nodes[n]) == HR_CALL_LATE;
  }
  return count;
}

hr_status hr_late_calls(hr_program *program) {
  int late = count_late(program);
  if (late == 0) {
    return HR_OK;
  }
  mover m = {.program = program,
             .nodes = hr_arena_alloc(&program->arena, (size_t)program->node_count * sizeof *m.nodes),
             .waiting = hr_program_indices(program, late),
             .is_held = HR_ARENA_ARRAY(&program->arena, bool, (size_t)program->buffer_count + 1)};
  if (m.nodes == NULL || m.waiting == NULL || m.is_held == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "late calls: no memory for %d nodes", program->node_count);
  }
  for (int n = 0; n < program->node_count; ++n) {
    add(&m, n);
  }
  append_waiting(&m);
  memcpy(program->nodes, m.nodes, (size_t)program->node_count * sizeof *m.nodes);
  return HR_OK;
}
