/* repeat.c: a program with repeated cells, through the steps of repeat.h. */
#include "compiler/repeat.h"

#include <string.h>

/* ---- statistics ---- */

/* The buffers of one period that need no memory: all, and those that lowerings added. */
typedef struct elided {
  int all, temps;
} elided;

static bool is_of_period(const hr_repeats *repeats, const hr_node *node) {
  hr_member own = hr_repeat_find_member(repeats, HR_AXIS_RECORDS, node->origin);
  return own.repeat >= 0 && own.period == repeats->head;
}

/* In a schedule that is not compact. */
static bool count_elided(const hr_schedule *schedule, const hr_repeats *repeats, elided *out_elided) {
  const hr_program *program = &schedule->program;
  bool *is_seen = HR_ARENA_ARRAY((hr_arena *)&program->arena, bool, (size_t)program->buffer_count + 1);
  *out_elided = (elided){0, 0};
  for (int n = 0; is_seen != NULL && n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    for (int i = 0; i < node->output_count && is_of_period(repeats, node); ++i) {
      uint32_t b = node->outputs[i].index;
      if (node->outputs[i].kind == HR_OPERAND_VALUE && schedule->places[b].kind == HR_PLACE_NONE && !is_seen[b]) {
        is_seen[b] = true;
        ++out_elided->all;
        out_elided->temps += (int)b >= program->bound_count;
      }
    }
  }
  return is_seen != NULL;
}

/* ---- */

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the statistics of a schedule");
}

/* Turns the schedule of the short program into that of the whole one, if it qualifies. */
static hr_status lengthen(const hr_program *stream, const hr_target *target, const hr_repeats *repeats,
                          const hr_program *shortened, hr_schedule *schedule, bool *out_is) {
  hr_runs runs;
  elided of_period;
  int all_count = schedule->all_count;
  HR_RETURN_IF_ERROR(count_elided(schedule, repeats, &of_period) ? HR_OK : no_memory());
  HR_RETURN_IF_ERROR(hr_schedule_compact(schedule));
  hr_status status = hr_runs_find(schedule, repeats, &runs, out_is);
  if (status == HR_OK && *out_is) {
    status = hr_repeats_check_passed(shortened, repeats, &runs, out_is);
  }
  if (status == HR_OK && *out_is) {
    int before = schedule->program.buffer_count;
    status = hr_runs_build(stream, target, repeats, &runs, schedule, out_is);
    schedule->elided_count += of_period.all * repeats->dropped;
    schedule->all_count = all_count + schedule->program.buffer_count - before + of_period.temps * repeats->dropped;
  }
  hr_runs_fini(&runs);
  return status;
}

/* *out_is: the schedule is that of the whole program; else nothing is left of it. */
static hr_status compile_short(const hr_program *stream, const hr_target *target, const hr_repeats *repeats,
                               const hr_program *shortened, hr_schedule *out_schedule, bool *out_is) {
  HR_RETURN_IF_ERROR(hr_compile(shortened, target, out_schedule));
  hr_status status = HR_OK;
  if (!out_schedule->is_refused) {
    status = lengthen(stream, target, repeats, shortened, out_schedule, out_is);
  }
  if (status != HR_OK || !*out_is) {
    hr_schedule_fini(out_schedule);
  }
  return status;
}

hr_status hr_compile_repeats(const hr_program *stream, const hr_target *target, hr_schedule *out_schedule,
                             bool *out_is) {
  hr_repeats repeats;
  hr_program shortened;
  *out_is = false;
  HR_RETURN_IF_ERROR(hr_repeats_find(stream, target->keeps != NULL, &repeats, &shortened, out_is));
  if (!*out_is) {
    return HR_OK;
  }
  *out_is = false;
  hr_status status = compile_short(stream, target, &repeats, &shortened, out_schedule, out_is);
  hr_program_fini(&shortened);
  return status;
}
