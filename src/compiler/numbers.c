#include "compiler/numbers.h"

#include <math.h>
#include <string.h>

#include "base/integer.h"
#include "compiler/passes.h"
#include "core/ir/traffic.h"

/* Bytes of temporaries whose places may be larger than they are. */
static const size_t HELD_MIN = 4 << 20;

/* Walks a schedule: reads its words, or replaces its numbers. */
typedef struct walker {
  hr_words *structure; /* NULL: not read */
  hr_numbers *numbers; /* NULL: replaced by .. */
  const int64_t *given;
  size_t given_count, at;
  size_t part;
  size_t *first;         /* NULL, or the position of each part's first number: set while reading, and .. */
  const int64_t *before; /* .. while replacing: parts that have these numbers are passed over */
  bool *is_changed;      /* of each part */
  bool moves;            /* a temporary needs more of the arena, or .. */
  size_t needed, held;   /* .. these are far apart: bytes of all temporaries, and of their places */
  bool failed;
} walker;

static void fixed(walker *w, uint64_t word) {
  if (w->structure != NULL) {
    w->failed |= !hr_vector_push(w->structure, word);
  }
}

static void number(walker *w, int64_t *place) {
  if (w->numbers != NULL) {
    w->failed |= !hr_vector_push(w->numbers, *place);
  } else if (w->at < w->given_count) {
    *place = w->given[w->at++];
  } else {
    w->failed = true;
  }
}

static void size(walker *w, size_t *place) {
  int64_t value = (int64_t)*place;
  number(w, &value);
  *place = (size_t)value;
}

/* Arrays of a schedule are constant for its users. */
static void numbers(walker *w, const int64_t *array, int count) {
  for (int i = 0; i < count; ++i) {
    number(w, (int64_t *)&array[i]);
  }
}

/* ---- programs ---- */

static void walk_bounds(walker *w, const hr_bound *bounds, int count, int rank) {
  for (int i = 0; i < count; ++i) {
    hr_bound *bound = (hr_bound *)&bounds[i];
    number(w, &bound->offset);
    number(w, &bound->extent);
    numbers(w, bound->strides, rank);
  }
}

static void walk_operand(walker *w, hr_operand *x) {
  fixed(w, (uint64_t)x->kind << 32 | (uint64_t)x->dtype);
  fixed(w, (uint64_t)x->index << 32 | x->version);
  fixed(w, (uint64_t)x->rank << 32 | (uint64_t)x->fill);
  fixed(w, (uint64_t)x->term_count << 32 | (uint64_t)x->bound_count);
  if (x->kind != HR_OPERAND_VALUE && x->kind != HR_OPERAND_INDEX) {
    return;
  }
  number(w, &x->offset);
  numbers(w, x->dims, x->rank);
  numbers(w, x->strides, x->rank);
  for (int i = 0; i < x->term_count; ++i) {
    hr_index_term *term = (hr_index_term *)&x->terms[i];
    fixed(w, (uint64_t)term->input);
    number(w, &term->stride);
    number(w, &term->extent);
  }
  walk_bounds(w, x->bounds, x->bound_count, x->rank);
}

static void walk_node(walker *w, hr_node *node) {
  fixed(w, (uint64_t)node->op << 32 | (uint64_t)node->is_loop);
  fixed(w, (uint64_t)node->input_count << 32 | (uint64_t)node->output_count);
  fixed(w, (uint64_t)node->int_count << 32 | (uint64_t)node->scalar_count);
  fixed(w, (uint64_t)node->epilogue_count << 32 | node->scalar_base);
  fixed(w, (uint64_t)node->reduce_mask << 32 | node->ordered_mask);
  fixed(w, (uint64_t)node->store_mode << 32 | node->origin);
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    walk_operand(w, hr_node_operand(node, i));
  }
  numbers(w, node->ints, node->int_count);
  for (int i = 0; i < node->epilogue_count; ++i) {
    fixed(w, (uint64_t)node->epilogues[i].op << 32 | node->epilogues[i].origin);
    fixed(w, (uint64_t)node->epilogues[i].output);
    for (int k = 0; k < HR_EPILOGUE_ARITY_MAX; ++k) {
      fixed(w, (uint64_t)node->epilogues[i].inputs[k]);
    }
  }
}

/* Constants that may follow from counts: whole ones, as the divisor of a mean, and 2 / n, as the factor of its
 * gradient. 1 / n is 2 / 2 n, with the same bits. */
typedef enum constant_form { ANY_CONSTANT, WHOLE, FRACTION } constant_form;

static constant_form form_of(double x, int64_t *out_number) {
  const double WHOLE_MAX = 9007199254740992.0; /* 2^53 */
  if (fabs(x) < WHOLE_MAX && x == floor(x) && !(x == 0 && signbit(x))) {
    *out_number = (int64_t)x;
    return WHOLE;
  }
  double n = nearbyint(2 / x);
  if (fabs(n) < WHOLE_MAX && n != 0 && 2 / n == x) { /* never of NaN, zeros or infinities */
    *out_number = (int64_t)n;
    return FRACTION;
  }
  return ANY_CONSTANT;
}

static void walk_real(walker *w, double *x) {
  int64_t n = 0;
  constant_form form = form_of(*x, &n);
  fixed(w, (uint64_t)form);
  if (form == ANY_CONSTANT) {
    uint64_t bits;
    memcpy(&bits, x, sizeof bits);
    fixed(w, bits);
    return;
  }
  number(w, &n);
  *x = form == WHOLE ? (double)n : 2 / (double)n;
}

static void walk_scalar(walker *w, hr_program_scalar *scalar) {
  fixed(w, (uint64_t)scalar->dtype << 32 | (uint64_t)scalar->is_constant << 31 | scalar->argument);
  if (!scalar->is_constant) {
    return;
  }
  double *f = scalar->value.value.f;
  fixed(w, (uint64_t)scalar->value.dtype);
  if (scalar->value.dtype == HR_DTYPE_F64) {
    walk_real(w, f);
  } else if (scalar->value.dtype == HR_DTYPE_C128) {
    uint64_t bits[2];
    memcpy(bits, f, sizeof bits);
    fixed(w, bits[0]);
    fixed(w, bits[1]);
  } else {
    number(w, &scalar->value.value.i);
  }
}

/* Temporaries of other dims stay where they are if they fit: finding places takes longer than the rest of the walk. */
static void keep_place(walker *w, const hr_program_buffer *buffer, hr_place *place) {
  size_t needed = hr_align_up(buffer->bytes, HR_PLACE_ALIGNMENT), held = hr_align_up(place->bytes, HR_PLACE_ALIGNMENT);
  bool is_temporary = place->kind == HR_PLACE_ARENA, may_be_larger = is_temporary && w->before != NULL;
  w->moves |= is_temporary && (may_be_larger ? needed > held : needed != held);
  w->needed += is_temporary ? needed : 0;
  w->held += is_temporary ? held : 0;
  place->bytes = may_be_larger && place->bytes > buffer->bytes ? place->bytes : buffer->bytes;
}

static void walk_buffer(walker *w, hr_program_buffer *buffer, hr_place *place) {
  fixed(w, (uint64_t)buffer->is_dead | (uint64_t)buffer->is_fresh << 1 | (uint64_t)buffer->is_free << 2 |
               (uint64_t)buffer->is_refused << 3 | (uint64_t)place->kind << 8 | (uint64_t)buffer->versions << 32);
  fixed(w, (uint64_t)(uint32_t)place->first << 32 | (uint32_t)place->last);
  fixed(w, buffer->rows);
  fixed(w, buffer->takes);
  size(w, &buffer->room);
  size(w, &buffer->bytes);
  size(w, &buffer->layout); /* channels and pixels in one word: linear in both */
  keep_place(w, buffer, place);
}

/* ---- kernels ---- */

static void walk_access(walker *w, hr_access *access, int rank) {
  fixed(w, (uint64_t)(uint32_t)access->arg << 32 | (uint64_t)access->dtype);
  fixed(w, (uint64_t)access->term_count << 32 | (uint64_t)access->bound_count);
  fixed(w, (uint64_t)access->fill);
  number(w, &access->offset);
  numbers(w, access->strides, rank);
  for (int i = 0; i < access->term_count; ++i) {
    hr_kernel_term *term = (hr_kernel_term *)&access->terms[i];
    fixed(w, (uint64_t)term->reg);
    number(w, &term->stride);
    number(w, &term->extent);
  }
  walk_bounds(w, access->bounds, access->bound_count, rank);
}

static void walk_instr(walker *w, const hr_instr *instr) {
  fixed(w, (uint64_t)instr->kind << 48 | (uint64_t)instr->level << 40 | (uint64_t)instr->cls << 32 |
               (uint64_t)instr->to << 16 | (uint64_t)instr->mode);
  fixed(w, (uint64_t)instr->op << 32 | (uint64_t)instr->phase);
  fixed(w, (uint64_t)(uint32_t)instr->dst << 32 | (uint32_t)instr->access);
  fixed(w, (uint64_t)instr->source_count);
  for (int s = 0; s < instr->source_count; ++s) {
    fixed(w, (uint64_t)instr->sources[s].kind << 32 | (uint32_t)instr->sources[s].index);
  }
}

static void walk_kernel(walker *w, const hr_kernel *kernel) {
  fixed(w, (uint64_t)kernel->rank << 32 | (uint64_t)kernel->order << 16 | (uint64_t)kernel->phase_count);
  fixed(w, (uint64_t)kernel->reduce_mask << 32 | kernel->ordered_mask);
  fixed(w, (uint64_t)kernel->arg_count << 32 | (uint64_t)kernel->scalar_count);
  fixed(w, (uint64_t)kernel->access_count << 32 | (uint64_t)kernel->instr_count);
  fixed(w, (uint64_t)kernel->register_count);
  numbers(w, kernel->dims, kernel->rank);
  for (int i = 0; i < kernel->arg_count; ++i) {
    fixed(w, (uint64_t)kernel->args[i].buffer << 2 | (uint64_t)kernel->args[i].is_read << 1 |
                 (uint64_t)kernel->args[i].is_written);
  }
  for (int i = 0; i < kernel->scalar_count; ++i) {
    fixed(w, kernel->scalars[i]);
  }
  for (int i = 0; i < kernel->access_count; ++i) {
    walk_access(w, (hr_access *)&kernel->accesses[i], kernel->rank);
  }
  for (int i = 0; i < kernel->instr_count; ++i) {
    walk_instr(w, &kernel->instrs[i]);
  }
  for (int i = 0; i < kernel->register_count; ++i) {
    const hr_register *reg = &kernel->registers[i];
    fixed(w, (uint64_t)reg->cls << 48 | (uint64_t)reg->level << 32 | (uint64_t)reg->phase << 16 |
                 (uint64_t)reg->last_phase);
  }
}

/* ---- schedules ---- */

/* Begins a part; false: its numbers stay as they are. */
static bool enters(walker *w) {
  size_t part = w->part++;
  if (w->first != NULL && w->numbers != NULL) {
    w->first[part] = w->numbers->count;
  }
  if (w->before == NULL) {
    return true;
  }
  size_t end = w->first[part + 1];
  w->is_changed[part] = memcmp(w->before + w->at, w->given + w->at, (end - w->at) * sizeof *w->given) != 0;
  w->at = w->is_changed[part] ? w->at : end;
  return w->is_changed[part];
}

static void walk_tables(walker *w, hr_schedule *schedule) {
  hr_program *program = &schedule->program;
  fixed(w, (uint64_t)program->buffer_count << 32 | (uint64_t)program->scalar_count);
  fixed(w, (uint64_t)schedule->step_count << 32 | (uint64_t)schedule->elided_count);
  for (int i = 0; i < program->buffer_count; ++i) {
    walk_buffer(w, &program->buffers[i], (hr_place *)&schedule->places[i]);
  }
  for (int i = 0; i < program->scalar_count; ++i) {
    walk_scalar(w, &program->scalars[i]);
  }
}

static void walk_step(walker *w, const hr_step *step) {
  fixed(w, step->kind);
  if (step->kind == HR_STEP_KERNEL) {
    walk_kernel(w, step->kernel);
  } else {
    walk_node(w, (hr_node *)step->node);
  }
}

static void walk(walker *w, hr_schedule *schedule) {
  if (enters(w)) {
    walk_tables(w, schedule);
  }
  for (int i = 0; i < schedule->step_count; ++i) {
    if (enters(w)) {
      walk_step(w, &schedule->steps[i]);
    }
  }
  if (enters(w)) {
    fixed(w, (uint64_t)schedule->declined_count);
    for (int i = 0; i < schedule->declined_count; ++i) {
      walk_node(w, (hr_node *)&schedule->declined[i]);
    }
  }
}

bool hr_schedule_split(const hr_schedule *schedule, hr_words *structure, hr_numbers *numbers) {
  walker w = {.structure = structure, .numbers = numbers};
  walk(&w, (hr_schedule *)schedule);
  return !w.failed;
}

/* Every dim must be a dim, and reductions must keep their order. */
static hr_status check_kernel(const hr_kernel *kernel) {
  for (int d = 0; d < kernel->rank; ++d) {
    if (kernel->dims[d] < 1) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "renumbering: dim %d of kernel %s is %lld", d, kernel->name,
                            (long long)kernel->dims[d]);
    }
  }
  if (kernel->reduce_mask != 0 && hr_kernel_order(kernel->rank, kernel->dims, kernel->reduce_mask) != kernel->order) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "renumbering: kernel %s would reduce in another order",
                          kernel->name);
  }
  return HR_OK;
}

bool hr_schedule_find_parts(const hr_schedule *schedule, size_t *out_first) {
  hr_numbers numbers = {0};
  walker w = {.numbers = &numbers, .first = out_first};
  walk(&w, (hr_schedule *)schedule);
  out_first[w.part] = numbers.count;
  hr_vector_fini(&numbers);
  return !w.failed;
}

/* Checks a renumbered step, and estimates it again. */
static hr_status finish_step(const hr_schedule *schedule, const hr_step *step) {
  if (step->kind == HR_STEP_KERNEL) {
    HR_RETURN_IF_ERROR(check_kernel(step->kernel));
    hr_kernel_count_traffic(&schedule->program, (hr_kernel *)step->kernel, (hr_kernel_arg *)step->kernel->args);
  }
  return HR_OK;
}

/* Places all temporaries anew, if some do not fit or the places are far larger. */
static hr_status place_again(const walker *w, hr_schedule *schedule) {
  bool is_outsized = w->held > HELD_MIN && w->held - w->held / 4 > w->needed;
  if (!w->moves && !is_outsized) {
    return HR_OK;
  }
  for (int i = 0; i < schedule->program.buffer_count; ++i) {
    ((hr_place *)schedule->places)[i].bytes = schedule->program.buffers[i].bytes;
  }
  return hr_place_buffers(schedule);
}

/* Walks with a walker that replaces numbers; what it has changed is checked, estimated and placed again. */
static hr_status renumber(walker *w, hr_schedule *schedule) {
  const bool *is_changed = w->is_changed; /* NULL: everything */
  walk(w, schedule);
  if (w->failed || w->at != w->given_count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "renumbering: %zu numbers for a schedule with others",
                          w->given_count);
  }
  for (int i = 0; i < schedule->step_count; ++i) {
    ((hr_step *)schedule->steps)[i].like = 0; /* the numbers that differ may be those of like kernels */
    HR_RETURN_IF_ERROR(is_changed == NULL || is_changed[i + 1] ? finish_step(schedule, &schedule->steps[i]) : HR_OK);
  }
  return place_again(w, schedule);
}

hr_status hr_schedule_renumber(hr_schedule *schedule, size_t count, const int64_t *numbers) {
  walker w = {.given = numbers, .given_count = count};
  return renumber(&w, schedule);
}

hr_status hr_schedule_renumber_parts(hr_schedule *schedule, const size_t *first, const int64_t *before,
                                     const int64_t *numbers, bool *out_changed) {
  walker w = {.given = numbers,
              .given_count = first[hr_schedule_part_count(schedule)],
              .first = (size_t *)first,
              .before = before,
              .is_changed = out_changed};
  return renumber(&w, schedule);
}
