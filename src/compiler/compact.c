/* compact.c: what runs need of a schedule, without what the passes have left in its memory.
 *
 * The passes work in an arena that holds each form of the program: some kilobytes an operation. A cache keeps many
 * schedules, and of each only the steps: kernels, and the nodes that libraries and checks read.
 */
#include <string.h>

#include "compiler/passes.h"

/* A list of new names leaves out the buffers that have none: */
enum { NO_NAME = -1 };

/* The buffers that have new names, with their places; all if `names` is NULL. */
static bool copy_buffers(const hr_schedule *from, const int *names, int count, hr_schedule *to) {
  hr_arena *arena = &to->program.arena;
  hr_program_buffer *buffers = hr_arena_alloc(arena, (size_t)count * sizeof *buffers);
  hr_place *places = hr_arena_alloc(arena, (size_t)count * sizeof *places);
  for (int b = 0, kept = 0; buffers != NULL && places != NULL && b < from->program.buffer_count; ++b) {
    if (names == NULL || names[b] != NO_NAME) {
      buffers[kept] = from->program.buffers[b];
      places[kept++] = from->places[b];
    }
  }
  to->program.buffers = buffers;
  to->program.buffer_count = to->program.buffer_capacity = count;
  to->places = places;
  return buffers != NULL && places != NULL;
}

static bool copy_scalars(const hr_program *from, hr_program *to) {
  to->scalars = hr_arena_dup(&to->arena, from->scalars, (size_t)from->scalar_count * sizeof *from->scalars);
  to->scalar_count = to->scalar_capacity = from->scalar_count;
  to->bound_count = from->bound_count;
  to->argument_count = from->argument_count;
  to->is_value_form = from->is_value_form;
  to->has_rounds = from->has_rounds;
  return to->scalars != NULL;
}

/* The nodes array must not move: steps point into it. */
static bool reserve_nodes(const hr_schedule *schedule, hr_program *to) {
  int count = 0;
  for (int i = 0; i < schedule->step_count; ++i) {
    count += schedule->steps[i].kind != HR_STEP_KERNEL;
  }
  to->nodes = hr_arena_alloc(&to->arena, ((size_t)count + 1) * sizeof *to->nodes);
  to->node_capacity = count;
  return to->nodes != NULL;
}

/* The kernel of which a step's is likely to have the instructions: the step is like another, or as the last kernel: an
 * optimizer's, one for each parameter, have the same. */
static const hr_kernel *like_of(const hr_step *steps, const hr_step *step, const hr_kernel *last) {
  return step->like > 0 ? steps[step->like - 1].kernel : last;
}

/* *last: the last kernel copied. */
static bool copy_step(hr_schedule *to, const hr_step *steps, hr_step *step, const hr_kernel **last) {
  step->nodes = NULL;
  if (step->kind == HR_STEP_KERNEL) {
    step->node = NULL;
    step->kernel = *last = hr_kernel_copy(step->kernel, like_of(steps, step, *last), &to->forms);
    return step->kernel != NULL;
  }
  hr_node node; /* in a block of just its size, as counted */
  if (!hr_node_copy(&to->program.arena, step->node, &node) || !hr_program_append_own(&to->program, &node)) {
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

static bool copy_schedule(const hr_schedule *from, const int *names, int buffers, hr_schedule *to) {
  hr_arena *arena = &to->program.arena;
  hr_step *steps = hr_arena_dup(arena, from->steps, (size_t)from->step_count * sizeof *from->steps);
  to->origins = hr_arena_dup(arena, from->origins, from->origin_bytes);
  bool ok = steps != NULL && to->origins != NULL && copy_buffers(from, names, buffers, to) &&
            copy_scalars(&from->program, &to->program) && reserve_nodes(from, &to->program) && copy_declined(from, to);
  const hr_kernel *last = NULL;
  for (int i = 0; ok && i < from->step_count; ++i) {
    ok = copy_step(to, steps, &steps[i], &last);
  }
  to->steps = steps;
  return ok;
}

/* Into arenas whose first chunks hold these bytes. */
static hr_status copy_into(const hr_schedule *schedule, const int *names, int buffers, size_t bytes, size_t form_bytes,
                           hr_schedule *out_copy) {
  *out_copy = *schedule;
  hr_program_init(&out_copy->program);
  hr_arena_init(&out_copy->program.arena, bytes);
  hr_arena_init(&out_copy->forms, form_bytes);
  if (!copy_schedule(schedule, names, buffers, out_copy)) {
    hr_schedule_fini(out_copy);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a schedule of %d steps",
                          schedule->step_count);
  }
  return HR_OK;
}

hr_status hr_schedule_copy(const hr_schedule *schedule, hr_schedule *out_copy) {
  return copy_into(schedule, NULL, schedule->program.buffer_count, hr_arena_bytes_used(&schedule->program.arena),
                   hr_arena_bytes_used(&schedule->forms), out_copy);
}

/* Adds what an arena takes for a block. */
static void add_block(size_t *sum, size_t bytes) {
  *sum += hr_align_up(bytes, HR_ARENA_ALIGNMENT);
}

/* Counts what copy_schedule takes of both arenas. */
static void count_bytes(const hr_schedule *schedule, int buffers, size_t *out_bytes, size_t *out_form_bytes) {
  const hr_program *program = &schedule->program;
  size_t bytes = 0, forms = 0, nodes = 1;
  const hr_kernel *last = NULL;
  for (int i = 0; i < schedule->step_count; ++i) {
    const hr_step *step = &schedule->steps[i];
    if (step->kind == HR_STEP_KERNEL) {
      add_block(&forms, hr_kernel_copy_bytes(step->kernel, like_of(schedule->steps, step, last)));
      last = step->kernel;
    } else {
      add_block(&bytes, hr_node_copy_bytes(step->node));
      ++nodes;
    }
  }
  add_block(&bytes, nodes * sizeof *program->nodes);
  add_block(&bytes, (size_t)schedule->step_count * sizeof *schedule->steps);
  add_block(&bytes, schedule->origin_bytes);
  add_block(&bytes, (size_t)buffers * sizeof *program->buffers);
  add_block(&bytes, (size_t)buffers * sizeof *schedule->places);
  add_block(&bytes, (size_t)program->scalar_count * sizeof *program->scalars);
  for (int i = 0; i < schedule->declined_count; ++i) {
    add_block(&forms, hr_node_copy_bytes(&schedule->declined[i]));
  }
  add_block(&forms, ((size_t)schedule->declined_count + 1) * sizeof *schedule->declined);
  *out_bytes = bytes, *out_form_bytes = forms;
}

/* ---- buffers that no step names ---- */

typedef void (*visit_fn)(int *names, uint32_t *buffer);

static void visit_node(hr_node *node, visit_fn visit, int *names) {
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    hr_operand *x = hr_node_operand(node, i);
    if (x->kind == HR_OPERAND_VALUE) {
      visit(names, &x->index);
    }
  }
}

/* Visits each place in which a step names a buffer. */
static void visit_buffers(const hr_schedule *schedule, visit_fn visit, int *names) {
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

static void mark(int *names, uint32_t *buffer) {
  names[*buffer] = 0;
}

static void rename_buffer(int *names, uint32_t *buffer) {
  *buffer = (uint32_t)names[*buffer];
}

/* The caller's buffers, and those with a place, keep theirs; most others were fused away. Returns how many are left. */
static int name_buffers(const hr_schedule *schedule, int *names) {
  int count = 0;
  visit_buffers(schedule, mark, names);
  for (int b = 0; b < schedule->program.buffer_count; ++b) {
    bool is_kept =
        b < schedule->program.bound_count || schedule->places[b].kind != HR_PLACE_NONE || names[b] != NO_NAME;
    names[b] = is_kept ? count++ : NO_NAME;
  }
  return count;
}

hr_status hr_schedule_compact(hr_schedule *schedule) {
  if (schedule->is_refused) {
    return HR_OK;
  }
  int *names = hr_program_indices(&schedule->program, schedule->program.buffer_count);
  if (names == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the names of %d buffers",
                          schedule->program.buffer_count);
  }
  hr_schedule copy;
  size_t bytes, form_bytes;
  int buffers = name_buffers(schedule, names);
  count_bytes(schedule, buffers, &bytes, &form_bytes);
  HR_RETURN_IF_ERROR(copy_into(schedule, names, buffers, bytes, form_bytes, &copy));
  visit_buffers(&copy, rename_buffer, names); /* in memory of the old schedule */
  hr_schedule_fini(schedule);
  *schedule = copy;
  return HR_OK;
}

/* The program's nodes become those of the steps, in order. Passes let nodes share lists of operands, so each gets its
 * own. */
static bool list_nodes(hr_schedule *schedule) {
  hr_program *program = &schedule->program;
  hr_step *steps = (hr_step *)schedule->steps;
  bool ok = reserve_nodes(schedule, program);
  program->node_count = 0;
  for (int i = 0; i < schedule->step_count; ++i) {
    const hr_node *node = steps[i].node;
    steps[i].nodes = NULL, steps[i].node = NULL;
    if (ok && steps[i].kind != HR_STEP_KERNEL) {
      hr_node *copy = &program->nodes[program->node_count++];
      *copy = *node;
      copy->inputs = hr_arena_dup(&program->arena, node->inputs, (size_t)node->input_count * sizeof *node->inputs);
      copy->outputs = hr_arena_dup(&program->arena, node->outputs, (size_t)node->output_count * sizeof *node->outputs);
      ok = copy->inputs != NULL && copy->outputs != NULL;
      steps[i].node = copy;
    }
  }
  return ok;
}

hr_status hr_schedule_narrow(hr_schedule *schedule) {
  hr_program *program = &schedule->program;
  int *names = !schedule->is_refused ? hr_program_indices(program, program->buffer_count) : NULL;
  if (schedule->is_refused) {
    return HR_OK;
  }
  if (names == NULL || !list_nodes(schedule)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a schedule of %d steps",
                          schedule->step_count);
  }
  int count = name_buffers(schedule, names);
  hr_place *places = (hr_place *)schedule->places;
  for (int b = 0; b < program->buffer_count; ++b) {
    if (names[b] != NO_NAME) {
      program->buffers[names[b]] = program->buffers[b];
      places[names[b]] = places[b];
    }
  }
  program->buffer_count = count;
  visit_buffers(schedule, rename_buffer, names);
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

bool hr_schedule_drop_lists(hr_schedule *schedule) {
  hr_arena_init(&schedule->forms, schedule->origin_bytes);
  const uint8_t *origins = hr_arena_dup(&schedule->forms, schedule->origins, schedule->origin_bytes);
  if (origins == NULL) {
    return false;
  }
  hr_program_fini(&schedule->program);
  schedule->origins = origins;
  schedule->steps = NULL;
  schedule->places = NULL;
  return true;
}

size_t hr_schedule_footprint(const hr_schedule *schedule) {
  return schedule->program.arena.bytes_allocated + schedule->forms.bytes_allocated;
}
