/* compact.c: what runs need of a schedule, without what the passes have left in its memory.
 *
 * The passes work in an arena that holds each form of the program: some kilobytes an operation. A cache keeps many
 * schedules, and of each only the steps: kernels, and the nodes that libraries and checks read.
 */
#include <string.h>

#include "base/allocator.h"
#include "compiler/compile.h"

static bool copy_tables(const hr_program *from, hr_program *to) {
  to->buffers = hr_arena_dup(&to->arena, from->buffers, (size_t)from->buffer_count * sizeof *from->buffers);
  to->scalars = hr_arena_dup(&to->arena, from->scalars, (size_t)from->scalar_count * sizeof *from->scalars);
  to->buffer_count = to->buffer_capacity = from->buffer_count;
  to->scalar_count = to->scalar_capacity = from->scalar_count;
  to->bound_count = from->bound_count;
  to->argument_count = from->argument_count;
  to->is_value_form = from->is_value_form;
  return to->buffers != NULL && to->scalars != NULL;
}

/* The nodes array must not move: steps point into it. */
static bool reserve_nodes(const hr_schedule *schedule, hr_program *to) {
  int count = 0;
  for (int i = 0; i < schedule->step_count; ++i) {
    count += schedule->steps[i].kind != HR_STEP_KERNEL;
  }
  to->nodes = HR_ARENA_ARRAY(&to->arena, hr_node, (size_t)count + 1);
  to->node_capacity = count;
  return to->nodes != NULL;
}

/* *like: the last kernel copied. An optimizer's kernels, one for each parameter, have the same instructions. */
static bool copy_step(hr_schedule *to, hr_step *step, const hr_kernel **like) {
  step->nodes = NULL;
  if (step->kind == HR_STEP_KERNEL) {
    step->node = NULL;
    step->kernel = *like = hr_kernel_copy(step->kernel, *like, &to->forms);
    return step->kernel != NULL;
  }
  if (!hr_program_append(&to->program, step->node)) {
    return false;
  }
  step->node = &to->program.nodes[to->program.node_count - 1];
  return true;
}

static bool copy_declined(const hr_schedule *from, hr_schedule *to) {
  hr_node *nodes = HR_ARENA_ARRAY(&to->forms, hr_node, (size_t)from->declined_count + 1);
  bool ok = nodes != NULL;
  for (int i = 0; ok && i < from->declined_count; ++i) {
    ok = hr_node_copy(&to->forms, &from->declined[i], &nodes[i]);
  }
  to->declined = nodes;
  return ok;
}

static bool copy_schedule(const hr_schedule *from, hr_schedule *to) {
  hr_arena *arena = &to->program.arena;
  hr_step *steps = hr_arena_dup(arena, from->steps, (size_t)from->step_count * sizeof *from->steps);
  to->places = hr_arena_dup(arena, from->places, (size_t)from->program.buffer_count * sizeof *from->places);
  to->origins = hr_arena_dup(arena, from->origins, from->origin_bytes);
  bool ok = steps != NULL && to->places != NULL && to->origins != NULL && copy_tables(&from->program, &to->program) &&
            reserve_nodes(from, &to->program) && copy_declined(from, to);
  const hr_kernel *like = NULL;
  for (int i = 0; ok && i < from->step_count; ++i) {
    ok = copy_step(to, &steps[i], &like);
  }
  to->steps = steps;
  return ok;
}

/* Into arenas whose first chunks hold these bytes. */
static hr_status copy_into(const hr_schedule *schedule, size_t bytes, size_t form_bytes, hr_schedule *out_copy) {
  *out_copy = *schedule;
  hr_program_init(&out_copy->program);
  hr_arena_init(&out_copy->program.arena, bytes);
  hr_arena_init(&out_copy->forms, form_bytes);
  if (!copy_schedule(schedule, out_copy)) {
    hr_schedule_fini(out_copy);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a schedule of %d steps",
                          schedule->step_count);
  }
  return HR_OK;
}

hr_status hr_schedule_copy(const hr_schedule *schedule, hr_schedule *out_copy) {
  return copy_into(schedule, hr_arena_bytes_used(&schedule->program.arena), hr_arena_bytes_used(&schedule->forms),
                   out_copy);
}

/* ---- buffers that no step names ---- */

typedef void (*visit_fn)(uint32_t *names, uint32_t *buffer);

static void visit_node(hr_node *node, visit_fn visit, uint32_t *names) {
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    hr_operand *x = hr_node_operand(node, i);
    if (x->kind == HR_OPERAND_VALUE) {
      visit(names, &x->index);
    }
  }
}

/* Visits each place in which a step of a copy names a buffer. */
static void visit_buffers(hr_schedule *schedule, visit_fn visit, uint32_t *names) {
  for (int i = 0; i < schedule->step_count; ++i) {
    const hr_step *step = &schedule->steps[i];
    for (int a = 0; step->kind == HR_STEP_KERNEL && a < step->kernel->arg_count; ++a) {
      visit(names, &((hr_kernel_arg *)step->kernel->args)[a].buffer);
    }
    if (step->kind != HR_STEP_KERNEL) {
      visit_node((hr_node *)step->node, visit, names);
    }
  }
  for (int i = 0; i < schedule->declined_count; ++i) {
    visit_node((hr_node *)&schedule->declined[i], visit, names);
  }
}

static void mark(uint32_t *names, uint32_t *buffer) {
  names[*buffer] = 1;
}

static void rename_buffer(uint32_t *names, uint32_t *buffer) {
  *buffer = names[*buffer];
}

/* The caller's buffers, and those with a place, keep theirs; most others were fused away. */
static bool drop_buffers(hr_schedule *copy) {
  hr_program *program = &copy->program;
  hr_place *places = (hr_place *)copy->places;
  uint32_t *names = hr_calloc((size_t)program->buffer_count + 1, sizeof *names), count = 0;
  if (names == NULL) {
    return false;
  }
  visit_buffers(copy, mark, names);
  for (int b = 0; b < program->buffer_count; ++b) {
    if (b < program->bound_count || places[b].kind != HR_PLACE_NONE || names[b] != 0) {
      program->buffers[count] = program->buffers[b];
      places[count] = places[b];
      names[b] = count++;
    }
  }
  visit_buffers(copy, rename_buffer, names);
  program->buffer_count = (int)count;
  hr_free(names);
  return true;
}

/* The first copy shows how much memory one takes. */
hr_status hr_schedule_compact(hr_schedule *schedule) {
  hr_schedule copy, exact;
  if (schedule->is_refused) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(copy_into(schedule, 0, 0, &copy));
  hr_status status = drop_buffers(&copy)
                         ? hr_schedule_copy(&copy, &exact)
                         : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the names of %d buffers",
                                          copy.program.buffer_count);
  hr_schedule_fini(&copy);
  HR_RETURN_IF_ERROR(status);
  hr_schedule_fini(schedule);
  *schedule = exact;
  return HR_OK;
}

void hr_schedule_drop_forms(hr_schedule *schedule) {
  hr_step *steps = (hr_step *)schedule->steps;
  for (int i = 0; i < schedule->step_count; ++i) {
    steps[i].kernel = NULL;
  }
  schedule->declined = NULL;
  schedule->declined_count = 0;
  hr_arena_fini(&schedule->forms);
}

size_t hr_schedule_footprint(const hr_schedule *schedule) {
  return schedule->program.arena.bytes_allocated + schedule->forms.bytes_allocated;
}
