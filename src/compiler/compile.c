/* compile.c: the pipeline. Passes run in the order of compile.h; with target->verify the IR is checked after each. */
#include "compiler/compile.h"

#include <string.h>

#include "compiler/passes.h"

static hr_status verify_after(hr_program *program, const hr_target *target, const char *pass) {
  if (target->verify && program->is_value_form) {
    hr_versions(program);
  }
  hr_status status = target->verify ? hr_program_verify(program) : HR_OK;
  return status == HR_OK ? HR_OK : hr_status_annotate(status, "after %s", pass);
}

/* One step for each group, in order. */
static hr_status make_steps(hr_program *program, const hr_fusion *fusion, const hr_liveness *liveness,
                            const hr_target *target, hr_schedule *schedule) {
  hr_step *steps = hr_arena_alloc(&program->arena, ((size_t)fusion->group_count + 1) * sizeof *steps);
  if (steps == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "schedule: no memory for %d steps", fusion->group_count);
  }
  for (int g = 0; g < fusion->group_count; ++g) {
    const hr_group *group = &fusion->groups[g];
    const hr_node *node = &program->nodes[group->nodes[0]];
    steps[g] = (hr_step){.kind = group->is_loop                  ? HR_STEP_KERNEL
                                 : node->op == HR_OP_CHECK_INDEX ? HR_STEP_CHECK
                                                                 : HR_STEP_LIBRARY,
                         .node = node,
                         .node_count = group->node_count,
                         .nodes = group->nodes,
                         .why = group->why};
  }
  HR_RETURN_IF_ERROR(hr_lower(program, fusion, liveness, steps));
  for (int g = 0; target->verify && g < fusion->group_count; ++g) {
    HR_RETURN_IF_ERROR(steps[g].kernel != NULL ? hr_kernel_verify(steps[g].kernel) : HR_OK);
  }
  schedule->steps = steps;
  schedule->step_count = fusion->group_count;
  schedule->group_count = fusion->group_count;
  return HR_OK;
}

/* The target's question, which remembers what was declined. */
typedef struct asking {
  const hr_target *target;
  HR_VECTOR(hr_node) declined;
  bool failed;
} asking;

static bool ask(void *ctx, const hr_program *program, const hr_node *node) {
  asking *a = ctx;
  if (a->target->may_keep != NULL && !a->target->may_keep(a->target->keeps_ctx, node->op)) {
    return false; /* whatever its numbers */
  }
  bool keeps = a->target->keeps(a->target->keeps_ctx, program, node);
  hr_node copy;
  if (!keeps && node->epilogue_count == 0) {
    a->failed |= !hr_node_copy((hr_arena *)&program->arena, node, &copy) || !hr_vector_push(&a->declined, copy);
  }
  return keeps;
}

static hr_status note_declined(const asking *a, hr_schedule *schedule) {
  size_t count = a->declined.count;
  schedule->declined = hr_arena_dup(&schedule->program.arena, a->declined.data, count * sizeof *schedule->declined);
  schedule->declined_count = (int)count;
  return schedule->declined != NULL && !a->failed
             ? HR_OK
             : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "schedule: no memory for %zu nodes", count);
}

static hr_status expand(const hr_program *stream, const hr_target *target, hr_program *out_program) {
  hr_program chained;
  HR_RETURN_IF_ERROR(hr_chain(stream, &chained));
  hr_status status = verify_after(&chained, target, "chain");
  if (status == HR_OK) {
    status = chained.nodes != stream->nodes ? hr_expand_own(&chained, target->keeps, target->keeps_ctx, out_program)
                                            : hr_expand(stream, target->keeps, target->keeps_ctx, out_program);
  }
  hr_arena_fini(&chained.arena);
  return status;
}

static hr_status number(hr_program *program, hr_touches *out_touches) {
  return hr_versions_and_touches(program, out_touches)
             ? HR_OK
             : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "versions: no memory for %d nodes", program->node_count);
}

static hr_status compile_into(const hr_program *stream, const hr_target *target, hr_schedule *schedule) {
  hr_program *program = &schedule->program;
  hr_touches touches;
  hr_fusion fusion;
  hr_liveness liveness;
  bool is_changed, is_split;
  HR_RETURN_IF_ERROR(expand(stream, target, program));
  HR_RETURN_IF_ERROR(verify_after(program, target, "expand"));
  HR_RETURN_IF_ERROR(hr_late_calls(program));
  HR_RETURN_IF_ERROR(hr_simplify(program));
  HR_RETURN_IF_ERROR(hr_forward(program, &is_changed)); /* dead writes would hide copies from it */
  HR_RETURN_IF_ERROR(is_changed ? hr_simplify(program) : HR_OK);
  HR_RETURN_IF_ERROR(verify_after(program, target, "simplify"));
  HR_RETURN_IF_ERROR(hr_rename(program));
  HR_RETURN_IF_ERROR(verify_after(program, target, "rename"));
  HR_RETURN_IF_ERROR(hr_match(program, target, false));
  HR_RETURN_IF_ERROR(verify_after(program, target, "match"));
  HR_RETURN_IF_ERROR(hr_deliver(program, target));
  HR_RETURN_IF_ERROR(verify_after(program, target, "deliver"));
  HR_RETURN_IF_ERROR(hr_split_products(program, target, &is_split));
  HR_RETURN_IF_ERROR(verify_after(program, target, "split products"));
  HR_RETURN_IF_ERROR(hr_layout(program, target, &is_changed));
  schedule->is_refused = hr_layout_is_refused(program);
  if (schedule->is_refused) {
    return HR_OK;
  }
  if (is_changed || is_split) {
    HR_RETURN_IF_ERROR(hr_expand_again(program, target->keeps, target->keeps_ctx));
    HR_RETURN_IF_ERROR(verify_after(program, target, "layout"));
    HR_RETURN_IF_ERROR(
        hr_match(program, target, true)); /* libraries that need one format accept epilogues in it alone */
    HR_RETURN_IF_ERROR(verify_after(program, target, "match again"));
  }
  HR_RETURN_IF_ERROR(number(program, &touches));
  HR_RETURN_IF_ERROR(hr_propagate_order(program, &touches));
  HR_RETURN_IF_ERROR(verify_after(program, target, "propagate order"));
  HR_RETURN_IF_ERROR(hr_fuse(program, target, &touches, NULL, &fusion));
  HR_RETURN_IF_ERROR(hr_recompute(program, target, &fusion, &is_changed));
  if (is_changed) {
    HR_RETURN_IF_ERROR(verify_after(program, target, "recompute"));
    HR_RETURN_IF_ERROR(number(program, &touches));
    HR_RETURN_IF_ERROR(hr_fuse(program, target, &touches, &fusion, &fusion));
  }
  HR_RETURN_IF_ERROR(hr_wait(program, &fusion));
  HR_RETURN_IF_ERROR(hr_hoist(program, target, &fusion));
  HR_RETURN_IF_ERROR(hr_hasten(program, target, &fusion));
  HR_RETURN_IF_ERROR(hr_live(program, &fusion, &liveness));
  HR_RETURN_IF_ERROR(hr_plan(program, &liveness, schedule));
  HR_RETURN_IF_ERROR(make_steps(program, &fusion, &liveness, target, schedule));
  HR_RETURN_IF_ERROR(hr_find_origins(schedule));
  return target->verify ? hr_schedule_verify(schedule) : HR_OK;
}

hr_status hr_compile(const hr_program *stream, const hr_target *target, hr_schedule *out_schedule) {
  memset(out_schedule, 0, sizeof *out_schedule);
  asking a = {.target = target};
  hr_target asked = *target;
  if (target->keeps != NULL) {
    asked.keeps = ask;
    asked.keeps_ctx = &a;
  }
  hr_status status = compile_into(stream, &asked, out_schedule);
  status = status == HR_OK ? note_declined(&a, out_schedule) : status;
  hr_vector_fini(&a.declined);
  if (status != HR_OK) {
    hr_schedule_fini(out_schedule);
  }
  return status;
}

void hr_schedule_fini(hr_schedule *schedule) {
  hr_arena_fini(&schedule->forms);
  hr_program_fini(&schedule->program);
  memset(schedule, 0, sizeof *schedule);
}
