#include "engine/profile.h"

#include "base/log.h"
#include "core/ops/call.h"
#include "core/ops/op.h"
#include "engine/machine.h"
#include "runtime/function_table.h"

const char *hr__node_name(const hr_node *node) {
  const char *function = node->op == HR_OP_CALL ? hr__function_name(node->ints[HR__CALL_NUMBER]) : NULL;
  return function != NULL ? function : hr_op_table(node->op)->name;
}

static void describe(const hr_exec_step *step, const hr_step *source, hr_text *text) {
  const hr_provider *provider = step->call != NULL ? step->call->ready.algorithm.provider : NULL;
  hr_step_describe(source, step->kind == HR_STEP_LIBRARY ? hr__node_name(source->node) : NULL,
                   provider != NULL ? provider->name : NULL, text);
}

/* A step whose plan has packed its nodes. */
static void describe_packed(const hr_instance *instance, const hr_exec_step *step, hr_text *text) {
  hr_program program;
  hr_status status = hr_program_unpack(instance->plan->packed, &program);
  if (status == HR_OK) {
    const hr_step source = {.kind = step->kind, .node = &program.nodes[hr__step_node(instance, step)]};
    describe(step, &source, text);
    hr_program_fini(&program);
  }
  hr_status_ignore(status);
}

void hr__step_describe(const hr_instance *instance, const hr_exec_step *step, hr_text *text) {
  bool is_settled = instance->plan->is_settled;
  if (step->kind == HR_STEP_KERNEL && is_settled) {
    hr_text_append(text, hr__step_kernel(step)->name);
  } else if (is_settled && instance->plan->packed != NULL) {
    describe_packed(instance, step, text);
  } else {
    describe(step, hr__step_source(instance, step), text);
  }
}

void hr__profile_log_schedule(const hr_instance *instance) {
  const hr_schedule *schedule = &instance->plan->schedule;
  hr_log(HR_LOG_SCHEDULE, "program %016llx: %zu records, %d steps, arena %zu, shared %zu, %d of %d buffers elided%s",
         (unsigned long long)instance->plan->key.hash, instance->plan->key.record_count, instance->step_count,
         schedule->arena_bytes, instance->shared_bytes, schedule->elided_count, schedule->all_count,
         instance->plan->schedule.is_refused ? ", refused: buffers have to be plain before"
         : instance->needs_team              ? ""
                                             : ", small");
  for (int i = 0; hr_log_is_on(HR_LOG_SCHEDULE) && i < instance->step_count; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    hr_text text = {0};
    hr__step_describe(instance, step, &text);
    hr_log(HR_LOG_SCHEDULE, "  step %d: %s%s", i, hr_text_chars(&text),
           step->batch == 0 ? ", with the one before" : "");
    hr_text_fini(&text);
  }
}

/* Nothing without host memory. */
static hr_step_cost cost_of(const hr_instance *instance, int step) {
  const hr_step_cost *costs = hr__plan_costs(instance->plan);
  return costs != NULL ? costs[step] : (hr_step_cost){0};
}

static double bytes_of(const hr_instance *instance, int step) {
  hr_step_cost cost = cost_of(instance, step);
  return (double)(cost.bytes_read + cost.bytes_written);
}

static double bytes_of_batch(const hr_instance *instance, int first) {
  double bytes = 0;
  for (int i = 0; i < instance->steps[first].batch; ++i) {
    bytes += bytes_of(instance, first + i);
  }
  return bytes;
}

/* Divides the time of a batch among its steps by the bytes that they move. */
void hr__profile_share(const hr_instance *instance, int first, int64_t ns, int64_t *out_step_ns) {
  int count = instance->steps[first].batch;
  double bytes = bytes_of_batch(instance, first), share = (double)ns / count;
  for (int i = 0; i < count; ++i) {
    out_step_ns[i] = (int64_t)(bytes > 0 ? (double)ns * bytes_of(instance, first + i) / bytes : share);
  }
}

/* "  12.5 us  0.79 MB  62.9 GB/s  84 %  530.1 GFLOP/s  95 %  NAME": the shares are relative to the machine's peak. */
void hr__profile_log_step(const hr_instance *instance, int number, int64_t ns, bool has_contents, const char *places) {
  const hr_exec_step *step = &instance->steps[number];
  const hr_machine *machine = has_contents ? hr__machine() : NULL;
  hr_text text = {0};
  double time = (double)(ns > 0 ? ns : 1), bytes = bytes_of_batch(instance, number);
  hr_text_printf(&text, "%9.1f us %9.3f MB %7.1f GB/s", (double)ns * 1e-3, bytes * 1e-6, bytes / time);
  if (machine != NULL && machine->read_gbs > 0) {
    hr_text_printf(&text, " %4.0f %%", 100 * bytes / time / machine->read_gbs);
  }
  if (step->kind == HR_STEP_LIBRARY) {
    double rate = (double)cost_of(instance, number).flops / time;
    hr_text_printf(&text, " %7.1f GFLOP/s", rate);
    if (machine != NULL && machine->peak_gflops > 0) {
      hr_text_printf(&text, " %4.0f %%", 100 * rate / machine->peak_gflops);
    }
  }
  hr_text_append(&text, "  ");
  hr__step_describe(instance, step, &text);
  if (step->batch > 1) {
    hr_text_printf(&text, " and %d more", step->batch - 1);
  }
  hr_text_append(&text, places);
  hr_log(HR_LOG_KERNEL, "%s", hr_text_chars(&text));
  hr_text_fini(&text);
}
