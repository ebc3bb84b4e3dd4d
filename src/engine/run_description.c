#include "engine/run_description.h"

#include <stdio.h>
#include <string.h>

#include "base/allocator.h"
#include "base/text.h"
#include "core/ir/dtype.h"
#include "engine/profile.h"
#include "engine/record_note.h"

enum { SHAPES_MAX = 8 }; /* operands in a text */

typedef struct maker {
  const hr_instance *instance;
  hr_run_description *description;
  hr_arena *arena;
  hr_program program; /* the recorded operations */
  bool *is_computed;  /* of each operation: some step has been seen that has it */
  hr_text text;
  bool failed;
} maker;

static const char *keep_text(maker *m) {
  const char *kept = m->text.failed ? NULL : hr_arena_strdup(m->arena, hr_text_chars(&m->text));
  hr_text_clear(&m->text);
  m->failed |= kept == NULL;
  return kept;
}

/* ---- texts ---- */

static void write_dims(hr_text *text, const hr_operand *x) {
  hr_text_append(text, hr_dtype_name(x->dtype));
  hr__print_list(text, "[", x->rank, x->dims, "] ");
}

/* True if one of the first `count` operations of the list writes the buffer. */
static bool is_written_before(const maker *m, const uint32_t *operations, int count, uint32_t buffer) {
  for (int i = 0; i < count; ++i) {
    const hr_node *node = &m->program.nodes[operations[i]];
    for (int k = 0; k < node->output_count; ++k) {
      if (node->outputs[k].kind == HR_OPERAND_VALUE && node->outputs[k].index == buffer) {
        return true;
      }
    }
  }
  return false;
}

/* True if the operation gets the buffer's value from memory, and no operation of the list before did. */
static bool is_first_read(const maker *m, const uint32_t *operations, int count, uint32_t buffer) {
  for (int i = 0; i < count; ++i) {
    const hr_node *node = &m->program.nodes[operations[i]];
    for (int k = 0; k < node->input_count; ++k) {
      if (node->inputs[k].kind == HR_OPERAND_VALUE && node->inputs[k].index == buffer) {
        return false;
      }
    }
  }
  return !is_written_before(m, operations, count, buffer);
}

static bool has_memory(const maker *m, uint32_t buffer) {
  return hr__plan_place(m->instance->plan, buffer) != HR_PLACE_NONE;
}

/* Views as they were recorded: those that the launch reads from memory, or those that it leaves there. */
static void write_views(maker *m, const hr_launch_description *launch, bool is_written) {
  int shown = 0;
  for (int i = 0; i < launch->operation_count && shown <= SHAPES_MAX; ++i) {
    const hr_node *node = &m->program.nodes[launch->operations[i]];
    int count = is_written ? node->output_count : node->input_count;
    for (int k = 0; k < count; ++k) {
      const hr_operand *x = is_written ? &node->outputs[k] : &node->inputs[k];
      if (x->kind != HR_OPERAND_VALUE || (is_written && !has_memory(m, x->index)) ||
          (!is_written && !is_first_read(m, launch->operations, i, x->index))) {
        continue;
      }
      if (shown++ < SHAPES_MAX) {
        write_dims(&m->text, x);
      } else {
        hr_text_append(&m->text, "... ");
        break;
      }
    }
  }
}

/* Empty if no recorded operation is known to be in it. */
static const char *describe_shapes(maker *m, const hr_launch_description *launch) {
  if (launch->operation_count > 0) {
    write_views(m, launch, false);
    hr_text_append(&m->text, "-> ");
    write_views(m, launch, true);
    hr_text_cut(&m->text, m->text.length > 0 ? m->text.length - 1 : 0);
  }
  return keep_text(m);
}

static const char *describe_name(maker *m, const hr_exec_step *step) {
  hr__step_describe(m->instance, step, &m->text);
  if (step->batch > 1) {
    hr_text_printf(&m->text, " and %d more", step->batch - 1);
  }
  return keep_text(m);
}

/* ---- operations ---- */

/* Bytes of an operation's results that live in registers or nowhere. */
static int64_t bytes_without_memory(const maker *m, const hr_node *node) {
  int64_t bytes = 0;
  for (int i = 0; i < node->output_count; ++i) {
    const hr_operand *x = &node->outputs[i];
    if (x->kind == HR_OPERAND_VALUE && !has_memory(m, x->index)) {
      bytes += (int64_t)m->program.buffers[x->index].bytes;
    }
  }
  return bytes;
}

/* True if the results exist for nobody, in no memory. An operation without a step may also be one whose result another
 * one wrote to its place. */
static bool has_no_result(const maker *m, const hr_node *node) {
  bool has_none = true;
  for (int i = 0; i < node->output_count; ++i) {
    const hr_operand *x = &node->outputs[i];
    has_none &= x->kind != HR_OPERAND_VALUE || !has_memory(m, x->index);
  }
  return has_none;
}

/* Reads the lists of the launch's steps as one, into `numbers`; returns its length. */
static int read_operations(hr_origin_reader *reader, int step_count, uint32_t *numbers) {
  size_t count = 0;
  for (int i = 0; i < step_count; ++i) {
    for (uint32_t left = hr_origins_begin(reader); left > 0; --left) {
      numbers[count++] = hr_origins_next(reader);
    }
  }
  return (int)hr__sort_unique(numbers, count);
}

/* The length of the launch's lists together. */
static int count_operations(hr_origin_reader reader, int step_count) {
  int count = 0;
  for (int i = 0; i < step_count; ++i) {
    uint32_t left = hr_origins_begin(&reader);
    for (count += (int)left; left > 0; --left) {
      (void)hr_origins_next(&reader);
    }
  }
  return count;
}

static void describe_operations(maker *m, hr_origin_reader *reader, hr_launch_description *launch) {
  int most = count_operations(*reader, launch->step_count);
  uint32_t *numbers = HR_ARENA_ARRAY(m->arena, uint32_t, (size_t)most + 1);
  if (numbers == NULL) {
    m->failed = true;
    return;
  }
  launch->operation_count = read_operations(reader, launch->step_count, numbers);
  launch->operations = numbers;
  for (int i = 0; i < launch->operation_count; ++i) {
    uint32_t number = numbers[i];
    if (number < (uint32_t)m->program.node_count && !m->is_computed[number]) {
      launch->bytes_saved += bytes_without_memory(m, &m->program.nodes[number]);
      m->is_computed[number] = true;
    }
  }
}

/* ---- the whole ---- */

static void describe_launch(maker *m, int step, hr_origin_reader *reader, hr_launch_description *launch) {
  const hr_exec_step *first = &m->instance->steps[step];
  const hr_provider *provider = first->call != NULL ? first->call->ready.algorithm.provider : NULL;
  const hr_step_cost *costs = hr__plan_costs(m->instance->plan);
  m->failed |= costs == NULL;
  launch->kind = first->kind;
  launch->step = step;
  launch->step_count = first->batch;
  launch->name = describe_name(m, first);
  launch->provider = provider != NULL ? provider->name : NULL;
  for (int i = 0; costs != NULL && i < first->batch; ++i) {
    launch->bytes_read += costs[step + i].bytes_read;
    launch->bytes_written += costs[step + i].bytes_written;
    launch->flops += costs[step + i].flops;
  }
  describe_operations(m, reader, launch);
  launch->shapes = m->failed ? NULL : describe_shapes(m, launch);
}

static void describe_launches(maker *m) {
  const hr_instance *instance = m->instance;
  hr_origin_reader reader = {.at = instance->plan->schedule.origins};
  m->description->launches = HR_ARENA_ARRAY(m->arena, hr_launch_description, (size_t)instance->step_count + 1);
  m->failed |= m->description->launches == NULL;
  for (int i = 0; !m->failed && i < instance->step_count; i += instance->steps[i].batch) {
    describe_launch(m, i, &reader, &m->description->launches[m->description->launch_count++]);
  }
}

static void describe_records(maker *m) {
  int count = m->program.node_count;
  const char **names = HR_ARENA_ARRAY(m->arena, const char *, (size_t)count + 1);
  uint32_t *dropped = HR_ARENA_ARRAY(m->arena, uint32_t, (size_t)count + 1);
  m->failed |= names == NULL || dropped == NULL;
  for (int i = 0; !m->failed && i < count; ++i) {
    names[i] = hr__node_name(&m->program.nodes[i]);
    if (!m->is_computed[i] && has_no_result(m, &m->program.nodes[i])) {
      dropped[m->description->dropped_count++] = (uint32_t)i;
    }
  }
  m->description->record_count = count;
  m->description->record_names = names;
  m->description->dropped = dropped;
}

static hr_run_description *describe(const hr_instance *instance) {
  hr_run_description *description = hr_calloc(1, sizeof *description);
  maker m = {.instance = instance, .description = description};
  uint64_t *words = NULL;
  hr_status status = description != NULL ? hr__plan_decode_key(instance->plan, &m.program, &words) : HR_OK;
  if (description == NULL || status != HR_OK) {
    hr_status_ignore(status);
    hr_free(words);
    hr_free(description);
    return NULL;
  }
  hr_refcount_init(&description->refcount);
  m.arena = &description->arena;
  description->program = instance->plan->key.hash;
  m.is_computed = hr_calloc((size_t)m.program.node_count + 1, sizeof *m.is_computed);
  m.failed = m.is_computed == NULL;
  if (!m.failed) {
    describe_launches(&m);
    describe_records(&m);
  }
  hr_program_fini(&m.program);
  hr_free(words);
  hr_free(m.is_computed);
  hr_text_fini(&m.text);
  if (m.failed) {
    hr__run_description_release(description);
    return NULL;
  }
  return description;
}

hr_run_description *hr__run_describe(const hr_instance *instance) {
  if (instance->description == NULL) {
    ((hr_instance *)instance)->description = describe(instance);
  }
  return instance->description;
}

void hr__run_description_forget(hr_instance *instance) {
  hr__run_description_release(instance->description);
  instance->description = NULL;
}

void hr__run_description_release(hr_run_description *description) {
  if (description != NULL && hr_refcount_release(&description->refcount)) {
    hr_arena_fini(&description->arena);
    hr_free(description);
  }
}

/* ---- places ---- */

enum { NAMES_MAX = 4, NAME_BYTES = 160 };

/* The name of a place, of which the text has the file and the line, too: "jit(f)/add f.py:3". False: it is among those
 * that are known, or there is none. */
static bool name_place(uint64_t correlation, int known, char names[][NAME_BYTES]) {
  hr_text place = {0};
  hr__records_place(correlation, &place);
  const char *text = hr_text_chars(&place);
  snprintf(names[known], NAME_BYTES, "%.*s", (int)strcspn(text, " "), text);
  hr_text_fini(&place);
  bool is_new = names[known][0] != '\0';
  for (int i = 0; i < known && is_new; ++i) {
    is_new = strcmp(names[i], names[known]) != 0;
  }
  return is_new;
}

void hr__run_name_places(const hr_instance *instance, int step, size_t mark_count, const hr_operation_mark *marks,
                         hr_text *text) {
  const hr_run_description *description = mark_count > 0 ? hr__run_describe(instance) : NULL;
  char names[NAMES_MAX + 1][NAME_BYTES];
  int count = 0;
  for (int l = 0; description != NULL && l < description->launch_count; ++l) {
    const hr_launch_description *launch = &description->launches[l];
    for (int i = 0; i < launch->operation_count && launch->step == step && count <= NAMES_MAX; ++i) {
      uint32_t operation = launch->operations[i];
      count += operation < mark_count && name_place(marks[operation].correlation, count, names);
    }
  }
  for (int i = 0; i < count; ++i) {
    hr_text_printf(text, "%s%s", i == 0 ? "  <- " : ", ", i == NAMES_MAX ? ".." : names[i]);
  }
}
