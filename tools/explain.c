/* explain.c: `headrace explain`: runs a program file and collects its steps, buffers and times. */
#include "explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocator.h"
#include "commands.h"
#include "core/ir/traffic.h"
#include "core/ops/op.h"
#include "engine/compile_queue.h"
#include "engine/instantiate.h"
#include "engine/profile.h"
#include "engine/stream.h"

enum { WARM_RUNS = 4, REPEAT_MAX = 1000 };

const char *const kind_names[KIND_COUNT] = {
    [KIND_LIBRARY] = "library", [KIND_LOOP] = "fused loop", [KIND_COPY] = "copy", [KIND_CHECK] = "check"};

/* The instances that the stream ran in one repetition. */
typedef struct run_seen {
  hr_instance *instance;
  int *buffers; /* of its key: numbers in the file, or -1 */
} run_seen;

typedef struct watcher {
  const replay *replay;
  bool collects; /* instances are collected, not only times */
  bool failed;
  HR_VECTOR(run_seen) runs;
  HR_VECTOR(int64_t) step_ns; /* of the repetition, step after step */
} watcher;

/* ---- watching ---- */

static int number_of(const replay *r, const hr_buffer *buffer) {
  for (int b = 0; b < r->program.buffer_count; ++b) {
    if (r->handles[b] == buffer) {
      return b;
    }
  }
  return -1;
}

static void watch(void *ctx, hr_instance *instance, hr_buffer *const *buffers, const int64_t *step_ns) {
  watcher *w = ctx;
  for (int i = 0; i < instance->step_count; ++i) {
    w->failed |= !hr_vector_push(&w->step_ns, step_ns[i]);
  }
  if (!w->collects) {
    return;
  }
  run_seen run = {instance, hr_calloc(instance->plan->key.buffer_count + 1, sizeof *run.buffers)};
  for (size_t i = 0; run.buffers != NULL && i < instance->plan->key.buffer_count; ++i) {
    run.buffers[i] = number_of(w->replay, buffers[i]);
  }
  if (run.buffers == NULL || !hr_vector_push(&w->runs, run)) {
    hr_free(run.buffers);
    w->failed = true;
    return;
  }
  hr_refcount_retain(&instance->refcount);
}

static void watcher_fini(watcher *w) {
  for (size_t i = 0; i < w->runs.count; ++i) {
    hr__instance_release(w->runs.data[i].instance);
    hr_free(w->runs.data[i].buffers);
  }
  hr_vector_fini(&w->runs);
  hr_vector_fini(&w->step_ns);
}

/* ---- buffers ---- */

static void print_shape(const hr_operand *operand, char *out_shape) {
  hr_text text = {0};
  hr_text_printf(&text, "%s ", hr_dtype_name(operand->dtype));
  for (int d = 0; d < operand->rank; ++d) {
    hr_text_printf(&text, d == 0 ? "%lld" : "x%lld", (long long)operand->dims[d]);
  }
  hr_text_append(&text, operand->rank == 0 ? "number" : "");
  snprintf(out_shape, SHAPE_CHARS, "%s", hr_text_chars(&text));
  hr_text_fini(&text);
}

/* The shape with which the file's operations make, or first use, a buffer. */
static void shape_from_file(const hr_program *program, uint32_t buffer, char *out_shape) {
  for (int pass = 0; pass < 2; ++pass) { /* outputs, then inputs */
    for (int n = 0; n < program->node_count; ++n) {
      const hr_node *node = &program->nodes[n];
      const hr_operand *operands = pass == 0 ? node->outputs : node->inputs;
      for (int i = 0; i < (pass == 0 ? node->output_count : node->input_count); ++i) {
        if (operands[i].kind == HR_OPERAND_VALUE && operands[i].index == buffer) {
          print_shape(&operands[i], out_shape);
          return;
        }
      }
    }
  }
}

/* The shape of a buffer that a lowering made: the dims along which its writer iterates. */
static void shape_from_loops(const hr_program *program, uint32_t buffer, char *out_shape) {
  for (int n = 0; n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    for (int i = 0; i < node->output_count; ++i) {
      const hr_operand *output = &node->outputs[i];
      if (output->kind != HR_OPERAND_VALUE || output->index != buffer || output->rank > HR_RANK_MAX) {
        continue;
      }
      int64_t dims[HR_RANK_MAX];
      hr_operand moving = *output;
      moving.rank = 0, moving.dims = dims;
      for (int d = 0; d < output->rank; ++d) {
        if (output->strides[d] != 0) {
          dims[moving.rank++] = output->dims[d];
        }
      }
      print_shape(&moving, out_shape);
      return;
    }
  }
}

static bool is_channels_last(const hr_operand *operand) {
  return operand->rank >= 4 && operand->strides[1] == 1 && operand->dims[1] > 1 &&
         operand->strides[operand->rank - 1] == operand->dims[1] && operand->dims[operand->rank - 1] > 1;
}

static bool add_file_buffers(explanation *e) {
  const hr_program *program = &e->replay->program;
  for (int b = 0; b < program->buffer_count; ++b) {
    const hr_program_buffer *from = &program->buffers[b];
    buffer_info info = {.home = from->is_fresh ? HOME_KEPT : HOME_BEFORE, .bytes = (int64_t)from->bytes};
    shape_from_file(program, (uint32_t)b, info.shape);
    if (!hr_vector_push(&e->buffers, info)) {
      return false;
    }
  }
  return true;
}

/* Numbers the buffers of an instance; adds those that only the instance has. */
static int *number_buffers(explanation *e, const run_seen *run) {
  const hr_instance *instance = run->instance;
  const hr_program *program = &instance->plan->schedule.program;
  int *numbers = hr_calloc((size_t)program->buffer_count + 1, sizeof *numbers);
  for (int b = 0; numbers != NULL && b < program->buffer_count; ++b) {
    bool is_bound = b < (int)instance->plan->key.buffer_count;
    const hr_place *place = &instance->plan->schedule.places[b];
    numbers[b] = is_bound ? run->buffers[b] : -1;
    if (numbers[b] < 0) {
      buffer_info info = {.bytes = (int64_t)program->buffers[b].bytes};
      shape_from_loops(program, (uint32_t)b, info.shape);
      numbers[b] = (int)e->buffers.count;
      if (!hr_vector_push(&e->buffers, info)) {
        hr_free(numbers);
        return NULL;
      }
    }
    if (place->kind == HR_PLACE_ARENA) {
      e->buffers.data[numbers[b]].home = HOME_ARENA;
      e->buffers.data[numbers[b]].arena_offset = place->offset;
    }
  }
  return numbers;
}

/* ---- steps ---- */

/* True for loops that only move elements, without arithmetic except copies and conversions. */
static step_kind kind_of(const hr_instance *instance, const hr_exec_step *step) {
  if (step->kind != HR_STEP_KERNEL) {
    return step->kind == HR_STEP_LIBRARY ? KIND_LIBRARY : KIND_CHECK;
  }
  const hr_kernel *kernel = hr__step_source(instance, step)->kernel;
  for (int i = 0; i < kernel->instr_count; ++i) {
    const hr_instr *instr = &kernel->instrs[i];
    bool computes = instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE ||
                    (instr->kind == HR_INSTR_COMPUTE && instr->op != HR_OP_COPY);
    if (computes) {
      return KIND_LOOP;
    }
  }
  return KIND_COPY;
}

static bool add_port(explanation *e, int buffer, int64_t bytes) {
  return hr_vector_push(&e->ports, (port){.buffer = buffer, .bytes = bytes, .other = NO_STEP});
}

static bool add_operand(explanation *e, const int *numbers, const hr_operand *operand, bool is_library) {
  if (operand->kind != HR_OPERAND_VALUE) {
    return true;
  }
  e->buffers.data[numbers[operand->index]].is_channels_last |= is_library && is_channels_last(operand);
  return add_port(e, numbers[operand->index], hr_operand_bytes(operand));
}

static bool add_ports(explanation *e, const int *numbers, step_info *info) {
  const hr_step *source = hr__step_source(info->instance, info->step);
  bool ok = true, is_library = info->kind == KIND_LIBRARY;
  info->first_read = (int)e->ports.count;
  for (int a = 0; source->kind == HR_STEP_KERNEL && a < source->kernel->arg_count; ++a) {
    const hr_kernel_arg *arg = &source->kernel->args[a];
    ok &= !arg->is_read || add_port(e, numbers[arg->buffer], arg->bytes_read);
  }
  for (int i = 0; source->kind != HR_STEP_KERNEL && i < source->node->input_count; ++i) {
    ok &= add_operand(e, numbers, &source->node->inputs[i], is_library);
  }
  info->first_write = (int)e->ports.count;
  info->read_count = info->first_write - info->first_read;
  for (int a = 0; source->kind == HR_STEP_KERNEL && a < source->kernel->arg_count; ++a) {
    const hr_kernel_arg *arg = &source->kernel->args[a];
    ok &= !arg->is_written || add_port(e, numbers[arg->buffer], arg->bytes_written);
  }
  for (int i = 0; source->kind == HR_STEP_LIBRARY && i < source->node->output_count; ++i) {
    ok &= add_operand(e, numbers, &source->node->outputs[i], is_library);
  }
  info->write_count = (int)e->ports.count - info->first_write;
  return ok;
}

/* Counts buffers that the step's nodes write and that have no memory: they are kept in its registers. */
static void count_vanished(const hr_schedule *schedule, step_info *info) {
  const hr_step *source = hr__step_source(info->instance, info->step);
  for (int k = 0; info->kind != KIND_LIBRARY && k < source->node_count; ++k) {
    const hr_node *node = &schedule->program.nodes[source->nodes[k]];
    for (int i = 0; i < node->output_count; ++i) {
      const hr_operand *output = &node->outputs[i];
      bool is_new = output->kind == HR_OPERAND_VALUE && output->version <= 1;
      if (is_new && schedule->places[output->index].kind == HR_PLACE_NONE) {
        ++info->vanished_count;
        info->vanished_bytes += (int64_t)schedule->program.buffers[output->index].bytes;
      }
    }
  }
}

/* The recorded operations from which a step's nodes were made. `records`: the number of the program's nodes for each
 * record.
 */
static char *name_operations(const replay *r, const hr_schedule *schedule, const hr_step *step, int first_record,
                             const int *record_nodes) {
  hr_text text = {0};
  for (int k = 0; k < step->node_count; ++k) {
    uint32_t origin = schedule->program.nodes[step->nodes[k]].origin;
    int here = 0, record = first_record + (int)origin;
    bool is_first = record < r->program.node_count;
    for (int j = 0; j < step->node_count; ++j) {
      bool same = schedule->program.nodes[step->nodes[j]].origin == origin;
      here += same;
      is_first &= !same || j >= k;
    }
    if (is_first) {
      hr_text_printf(&text, "%s%s%s", text.length > 0 ? ", " : "", hr_op_table(r->program.nodes[record].op)->name,
                     here < record_nodes[origin] ? " (part)" : "");
    }
  }
  return hr_text_take(&text);
}

/* Appends the place of a record in the frontend's program, if it is not there yet. */
static void add_place(const replay *r, int record, hr_text *text) {
  const char *place = record < r->program.node_count ? r->places[record] : NULL, *at = hr_text_chars(text);
  size_t length = place != NULL ? strlen(place) : 0;
  while (place != NULL && (at = strstr(at, place)) != NULL && at[length] != ',' && at[length] != '\0') {
    ++at;
  }
  if (place != NULL && at == NULL) {
    hr_text_append_all(text, 2, (const char *const[]){text->length > 0 ? ", " : "", place});
  }
}

/* The places of a step's operations. */
static char *name_places(const replay *r, const hr_schedule *schedule, const hr_step *step, int first_record) {
  hr_text text = {0};
  for (int k = 0; k < step->node_count; ++k) {
    const hr_node *node = &schedule->program.nodes[step->nodes[k]];
    for (int i = 0; i < node->epilogue_count; ++i) { /* an epilogue has the origin of the one before */
      add_place(r, first_record + (int)node->epilogues[i].origin, &text);
    }
    add_place(r, first_record + (int)node->origin, &text);
  }
  return hr_text_take(&text);
}

static bool add_step(explanation *e, const run_seen *run, const int *numbers, int index, int first_record,
                     const int *record_nodes) {
  const hr_instance *instance = run->instance;
  const hr_exec_step *step = &instance->steps[index];
  const hr_step *source = hr__step_source(instance, step);
  step_info info = {.step = step,
                    .cost = &instance->plan->costs[index],
                    .instance = instance,
                    .kind = kind_of(instance, step),
                    .loop_count = source->node_count};
  hr_text label = {0};
  hr__step_describe(instance, step, &label);
  info.label = hr_text_take(&label);
  info.operations = name_operations(e->replay, &instance->plan->schedule, source, first_record, record_nodes);
  info.places = name_places(e->replay, &instance->plan->schedule, source, first_record);
  bool ok = add_ports(e, numbers, &info);
  count_vanished(&instance->plan->schedule, &info);
  info.is_compiled = step->kind == HR_STEP_KERNEL && hr__kernel_use(step->cached) != hr__kernel_host(step->cached);
  ++e->counts[info.kind];
  e->vanished_count += info.vanished_count;
  e->vanished_bytes += info.vanished_bytes;
  e->bytes_read += info.cost->bytes_read;
  e->bytes_written += info.cost->bytes_written;
  e->library_flops += info.kind == KIND_LIBRARY ? info.cost->flops : 0;
  if (!hr_vector_push(&e->steps, info)) {
    hr_free(info.label);
    hr_free(info.operations);
    hr_free(info.places);
    return false;
  }
  return ok && info.label != NULL;
}

static bool add_run(explanation *e, const run_seen *run, int first_record) {
  const hr_schedule *schedule = &run->instance->plan->schedule;
  int *numbers = number_buffers(e, run);
  int *record_nodes = hr_calloc(run->instance->plan->key.record_count + 1, sizeof *record_nodes);
  bool ok = numbers != NULL && record_nodes != NULL;
  for (int n = 0; ok && n < schedule->program.node_count; ++n) {
    uint32_t origin = schedule->program.nodes[n].origin;
    ++record_nodes[origin < run->instance->plan->key.record_count ? origin : run->instance->plan->key.record_count];
  }
  for (int i = 0; ok && i < run->instance->step_count; ++i) {
    ok = add_step(e, run, numbers, i, first_record, record_nodes);
  }
  hr_free(numbers);
  hr_free(record_nodes);
  e->arena_bytes = (int64_t)schedule->arena_bytes > e->arena_bytes ? (int64_t)schedule->arena_bytes : e->arena_bytes;
  return ok;
}

/* Links each step's reads to their writer, and its writes to their last reader. */
static bool link_ports(explanation *e) {
  port **writer = hr_calloc(e->buffers.count + 1, sizeof *writer); /* the latest write of each buffer */
  int *step_of = hr_calloc(e->buffers.count + 1, sizeof *step_of);
  bool ok = writer != NULL && step_of != NULL;
  for (int s = 0; ok && s < (int)e->steps.count; ++s) {
    const step_info *info = &e->steps.data[s];
    for (int p = 0; p < info->read_count; ++p) {
      port *read = &e->ports.data[info->first_read + p];
      if (writer[read->buffer] != NULL) {
        read->other = step_of[read->buffer];
        writer[read->buffer]->other = s;
      }
    }
    for (int p = 0; p < info->write_count; ++p) {
      port *write = &e->ports.data[info->first_write + p];
      port *before = writer[write->buffer];
      if (before != NULL && before->other == NO_STEP && write->bytes < before->bytes) {
        before->other = s; /* a part is overwritten: the rest stays live in it */
      }
      writer[write->buffer] = write;
      step_of[write->buffer] = s;
    }
  }
  hr_free(writer);
  hr_free(step_of);
  return ok;
}

/* ---- times ---- */

static int compare_ns(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Runs until compiled code is in use, then `repeat` times: the median of each step. */
static hr_status time_steps(explanation *e, replay *r, watcher *w) {
  size_t steps = e->steps.count, repeat = (size_t)e->repeat;
  int64_t ns, *samples = hr_calloc(steps * repeat + 1, sizeof *samples);
  bool shows = isatty(STDERR_FILENO);
  hr_status status = samples == NULL ? hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for times") : HR_OK;
  for (int i = 0; status == HR_OK && i < WARM_RUNS; ++i) {
    status = replay_once(r, &ns);
    hr__compile_queue_wait();
  }
  for (size_t i = 0; status == HR_OK && i < repeat; ++i) {
    if (shows) {
      fprintf(stderr, "\rheadrace explain: run %zu of %zu", i + 1, repeat);
    }
    hr_vector_clear(&w->step_ns);
    status = replay_once(r, &ns);
    for (size_t s = 0; s < steps && s < w->step_ns.count; ++s) {
      samples[s * repeat + i] = w->step_ns.data[s];
    }
  }
  fputs(shows ? "\n" : "", stderr);
  for (size_t s = 0; status == HR_OK && s < steps; ++s) {
    step_info *info = &e->steps.data[s];
    qsort(&samples[s * repeat], repeat, sizeof *samples, compare_ns);
    info->us = (double)samples[s * repeat + repeat / 2] * 1e-3;
    info->is_compiled =
        info->step->kind == HR_STEP_KERNEL && hr__kernel_use(info->step->cached) != hr__kernel_host(info->step->cached);
    e->total_us += info->us;
  }
  hr_free(samples);
  return status;
}

/* ---- the command ---- */

static hr_status build(explanation *e, replay *r, watcher *w) {
  int64_t ns;
  w->replay = e->replay = r;
  w->collects = true;
  HR_RETURN_IF_ERROR(replay_open(r));
  hr__plans_keep_nodes();
  r->stream->watch = watch;
  r->stream->watch_ctx = w;
  hr_status status = replay_once(r, &ns);
  if (status != HR_OK &&
      w->runs.count >
          0) { /* a failed check of the generated contents, for example: the compiled program can still be explained */
    fprintf(stderr, "headrace explain: the run ended early: %s\n", hr_status_message(status));
    hr_status_free(status);
    status = HR_OK;
    e->repeat = 0;
  }
  HR_RETURN_IF_ERROR(status);
  w->collects = false;
  bool ok = !w->failed && add_file_buffers(e);
  for (size_t i = 0; ok && i < w->runs.count; ++i) {
    ok = add_run(e, &w->runs.data[i], e->record_count);
    e->record_count += (int)w->runs.data[i].instance->plan->key.record_count;
  }
  if (!ok || !link_ports(e)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "explain: no memory for %zu programs", w->runs.count);
  }
  return e->repeat > 0 ? time_steps(e, r, w) : HR_OK;
}

static hr_status write_picture(const explanation *e, const char *path) {
  hr_text text = {0};
  explain_svg(e, &text);
  hr_status status = hr_text_status(&text);
  FILE *file = status == HR_OK ? fopen(path, "w") : NULL;
  bool ok = file != NULL && fwrite(hr_text_chars(&text), 1, text.length, file) == text.length;
  if (file != NULL && fclose(file) != 0) {
    ok = false;
  }
  hr_text_fini(&text);
  if (status == HR_OK && !ok) {
    status = hr_status_make(HR_STATUS_NOT_FOUND, "can't write \"%s\": %s", path, strerror(errno));
  }
  return status;
}

static hr_status explain(explanation *e, replay *r, watcher *w, const char *svg) {
  HR_RETURN_IF_ERROR(build(e, r, w));
  if (svg != NULL) {
    return write_picture(e, svg);
  }
  hr_text text = {0};
  explain_text(e, &text);
  fputs(hr_text_chars(&text), stdout);
  hr_status status = hr_text_status(&text);
  hr_text_fini(&text);
  return status;
}

static void explanation_fini(explanation *e) {
  for (size_t i = 0; i < e->steps.count; ++i) {
    hr_free(e->steps.data[i].label);
    hr_free(e->steps.data[i].operations);
    hr_free(e->steps.data[i].places);
  }
  hr_vector_fini(&e->steps);
  hr_vector_fini(&e->ports);
  hr_vector_fini(&e->buffers);
}

int headrace_explain(int argc, char **argv) {
  replay r = {.device_name = "cpu", .mode = -1};
  explanation e = {0};
  watcher w = {0};
  const char *svg = NULL;
  for (int i = 0; i < argc; ++i) {
    if (strcmp(argv[i], "--svg") == 0 && i + 1 < argc) {
      svg = argv[++i];
    } else if (strcmp(argv[i], "--time") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0) {
      e.repeat = atoi(argv[++i]) < REPEAT_MAX ? atoi(argv[i]) : REPEAT_MAX;
    } else if (!replay_option(&r, argc, argv, &i)) {
      return headrace_bad_argument("explain", argv[i]);
    }
  }
  if (r.path == NULL) {
    return headrace_missing("explain", "a file");
  }
  int failed = headrace_fail(explain(&e, &r, &w, svg));
  explanation_fini(&e);
  replay_close(&r);
  watcher_fini(&w);
  return failed;
}
