/* schedule_verify.c: checks a finished schedule against the program that it runs.
 *
 * The passes after versions move nodes into groups, groups past each other, and buffers into one arena. This file
 * trusts none of them. It reads the steps in the order in which they run and checks that
 *   - every node of the program runs in exactly one step, and a step's nodes run in the order of the program,
 *   - two accesses that may share an element, one of them a write, run in the order of the program,
 *   - no store to memory older than the program passes a node that may fail,
 *   - a buffer without memory is touched by one kernel alone,
 *   - a buffer in the arena is dead and fresh, and is inside the arena,
 *   - two buffers in use at the same time share no byte of the arena.
 *
 * The fuser guarantees the order of accesses inside one step (hr_group_may_share), and hr_kernel_verify checks it.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/allocator.h"
#include "compiler/compile.h"
#include "compiler/passes.h"

typedef struct verifier {
  const hr_schedule *schedule;
  const hr_program *program;
  int *node_step;       /* of each node: the step that runs it; -1: none yet */
  int *node_access;     /* of each node: the number of its first access; operands have consecutive numbers */
  int *first, *last;    /* of each buffer: the steps that touch it; -1: none */
  int *last_access;     /* of each buffer: its latest access so far; -1: none */
  int *previous_access; /* of each access: the one before it to the same buffer; -1: none */
} verifier;

static hr_status broken(const char *format, ...) HR_PRINTF(1, 2);

static hr_status broken(const char *format, ...) {
  char message[256];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return hr_status_make(HR_STATUS_INTERNAL, "schedule: %s", message);
}

static hr_status find_steps(verifier *v) {
  const hr_schedule *schedule = v->schedule;
  for (int s = 0; s < schedule->step_count; ++s) {
    const hr_step *step = &schedule->steps[s];
    for (int k = 0; k < step->node_count; ++k) {
      int n = step->nodes[k];
      if (n < 0 || n >= v->program->node_count || (k > 0 && n <= step->nodes[k - 1])) {
        return broken("step %d runs node %d of %d out of order", s, n, v->program->node_count);
      }
      if (v->node_step[n] >= 0) {
        return broken("node %d runs in step %d and in step %d", n, v->node_step[n], s);
      }
      v->node_step[n] = s;
    }
  }
  for (int n = 0; n < v->program->node_count; ++n) {
    if (v->node_step[n] < 0) {
      return broken("node %d runs in no step", n);
    }
  }
  return HR_OK;
}

/* ---- order ---- */

static hr_status verify_pair(const verifier *v, int a, const hr_operand *x, bool x_is_write, int b, const hr_operand *y,
                             bool y_is_write) {
  int s = v->node_step[a], t = v->node_step[b];
  if ((x_is_write || y_is_write) && t < s && hr_operands_may_overlap(x, y)) {
    return broken("node %d %s buffer %u in step %d, before node %d %s it in step %d", b,
                  y_is_write ? "writes" : "reads", y->index, t, a, x_is_write ? "writes" : "reads", s);
  }
  return HR_OK;
}

/* The node that an access belongs to: the last one whose first access is not after it. */
static int node_of_access(const verifier *v, int access) {
  int low = 0, high = v->program->node_count - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (v->node_access[middle] <= access) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/* An operand against all earlier accesses to its buffer. */
static hr_status verify_access(verifier *v, int n, int i) {
  const hr_node *node = &v->program->nodes[n];
  const hr_operand *operand = hr_node_operand(node, i);
  if (operand->kind != HR_OPERAND_VALUE) {
    return HR_OK;
  }
  for (int access = v->last_access[operand->index]; access >= 0; access = v->previous_access[access]) {
    int other = node_of_access(v, access);
    int j = access - v->node_access[other];
    const hr_node *earlier = &v->program->nodes[other];
    if (other != n) {
      HR_RETURN_IF_ERROR(verify_pair(v, other, hr_node_operand(earlier, j), j >= earlier->input_count, n, operand,
                                     i >= node->input_count));
    }
  }
  int own = v->node_access[n] + i, b = (int)operand->index, s = v->node_step[n];
  v->previous_access[own] = v->last_access[b];
  v->last_access[b] = own;
  v->first[b] = v->first[b] < 0 || s < v->first[b] ? s : v->first[b];
  v->last[b] = s > v->last[b] ? s : v->last[b];
  return HR_OK;
}

static hr_status verify_order(verifier *v) {
  int last_failure = -1; /* the last step of those that may fail, of the nodes so far */
  for (int n = 0; n < v->program->node_count; ++n) {
    const hr_node *node = &v->program->nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      HR_RETURN_IF_ERROR(verify_access(v, n, i));
    }
    for (int i = 0; i < node->output_count; ++i) {
      bool is_old = node->outputs[i].kind == HR_OPERAND_VALUE && !v->program->buffers[node->outputs[i].index].is_fresh;
      if (is_old && v->node_step[n] < last_failure) {
        return broken("node %d writes buffer %u, which is older than the program, in step %d, before one that may "
                      "fail, in step %d",
                      n, node->outputs[i].index, v->node_step[n], last_failure);
      }
    }
    last_failure = hr_may_fail(node) && v->node_step[n] > last_failure ? v->node_step[n] : last_failure;
  }
  return HR_OK;
}

/* ---- memory ---- */

static hr_status verify_place(const verifier *v, int b) {
  const hr_place *place = &v->schedule->places[b];
  const hr_program_buffer *buffer = &v->program->buffers[b];
  if (place->kind == HR_PLACE_NONE && v->first[b] != v->last[b]) {
    return broken("buffer %d has no memory and is used in steps %d to %d", b, v->first[b], v->last[b]);
  }
  if (place->kind == HR_PLACE_NONE && v->first[b] >= 0 && !buffer->is_dead) {
    return broken("buffer %d has no memory and outlives the program", b);
  }
  if (place->kind != HR_PLACE_ARENA) {
    return HR_OK;
  }
  if (!buffer->is_dead || !buffer->is_fresh) {
    return broken("buffer %d is in the arena, but %s", b,
                  buffer->is_dead ? "is older than the program" : "outlives it");
  }
  if (place->bytes < buffer->bytes || place->offset > v->schedule->arena_bytes ||
      place->bytes > v->schedule->arena_bytes - place->offset) {
    return broken("buffer %d of %zu bytes has %zu bytes at %zu of an arena of %zu", b, buffer->bytes, place->bytes,
                  place->offset, v->schedule->arena_bytes);
  }
  return HR_OK;
}

static bool are_used_at_once(const verifier *v, int a, int b) {
  return v->first[a] <= v->last[b] && v->first[b] <= v->last[a];
}

static bool share_bytes(const hr_place *x, const hr_place *y) {
  return x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static hr_status verify_memory(const verifier *v) {
  for (int b = 0; b < v->program->buffer_count; ++b) {
    HR_RETURN_IF_ERROR(verify_place(v, b));
    const hr_place *place = &v->schedule->places[b];
    for (int a = 0; a < b && place->kind == HR_PLACE_ARENA; ++a) {
      const hr_place *other = &v->schedule->places[a];
      if (other->kind == HR_PLACE_ARENA && are_used_at_once(v, a, b) && share_bytes(other, place)) {
        return broken("buffers %d and %d share bytes of the arena at %zu and are used at the same time", a, b,
                      place->offset);
      }
    }
  }
  return HR_OK;
}

/* ---- all of it ---- */

static void fill(int *indices, int count) {
  for (int i = 0; i < count; ++i) {
    indices[i] = -1;
  }
}

static int count_accesses(const hr_program *program) {
  int count = 0;
  for (int n = 0; n < program->node_count; ++n) {
    count += program->nodes[n].input_count + program->nodes[n].output_count;
  }
  return count;
}

static hr_status verify(verifier *v) {
  for (int n = 0, access = 0; n < v->program->node_count; ++n) {
    v->node_access[n] = access;
    access += v->program->nodes[n].input_count + v->program->nodes[n].output_count;
  }
  HR_RETURN_IF_ERROR(find_steps(v));
  HR_RETURN_IF_ERROR(verify_order(v));
  return verify_memory(v);
}

hr_status hr_schedule_verify(const hr_schedule *schedule) {
  const hr_program *program = &schedule->program;
  int nodes = program->node_count, buffers = program->buffer_count, accesses = count_accesses(program);
  size_t count = 2 * (size_t)nodes + 3 * (size_t)buffers + (size_t)accesses;
  int *indices = hr_malloc((count + 1) * sizeof *indices);
  if (indices == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "schedule: no memory to verify %d nodes", nodes);
  }
  fill(indices, (int)count);
  verifier v = {.schedule = schedule, .program = program, .node_step = indices, .node_access = indices + nodes};
  v.first = indices + 2 * nodes;
  v.last = v.first + buffers;
  v.last_access = v.last + buffers;
  v.previous_access = v.last_access + buffers;
  hr_status status = verify(&v);
  hr_free(indices);
  return status;
}
