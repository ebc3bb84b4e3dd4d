#include "compiler/numbers.h"

#include <math.h>
#include <stddef.h>
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
  size_t *first; /* NULL, or the position of each part's first number: set while reading */
  const hr_number_terms *terms;
  hr_number_places *places; /* NULL, or of the terms: set while replacing */
  size_t next_term;
  bool moves; /* a temporary's size has changed */
  bool failed;
} walker;

static void fixed(walker *w, uint64_t word) {
  if (w->structure != NULL) {
    w->failed |= !hr_vector_push(w->structure, word);
  }
}

/* Notes the place of the number that comes next, if it is a term. */
static void note_place(walker *w, void *place, hr_number_form form) {
  const hr_number_term *term =
      w->places != NULL && w->next_term < w->terms->count ? &w->terms->data[w->next_term] : NULL;
  if (term != NULL && term->at == w->at) {
    hr_number_place noted = {place, term->value, (uint32_t)(w->part - 1), (uint32_t)form};
    w->failed |= !hr_vector_push(&w->places->all, noted);
    ++w->next_term;
  }
}

static void number_of_form(walker *w, int64_t *number, void *place, hr_number_form form) {
  if (w->numbers != NULL) {
    w->failed |= !hr_vector_push(w->numbers, *number);
  } else if (w->at < w->given_count) {
    note_place(w, place, form);
    *number = w->given[w->at++];
  } else {
    w->failed = true;
  }
}

static void number(walker *w, int64_t *place) {
  number_of_form(w, place, place, HR_NUMBER_WORD);
}

static void size(walker *w, size_t *place, hr_number_form form) {
  int64_t value = (int64_t)*place;
  number_of_form(w, &value, place, form);
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
  number_of_form(w, &n, x, form == WHOLE ? HR_NUMBER_WHOLE : HR_NUMBER_FRACTION);
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

static size_t aligned(size_t bytes) {
  return hr_align_up(bytes, HR_PLACE_ALIGNMENT);
}

static void walk_place(walker *w, const hr_program_buffer *buffer, hr_place *place) {
  bool is_temporary = place->kind == HR_PLACE_ARENA;
  w->moves |= is_temporary && aligned(buffer->bytes) != aligned(place->bytes);
  place->bytes = buffer->bytes;
  if (w->places != NULL && is_temporary) {
    w->places->needed += aligned(buffer->bytes);
  }
}

static void walk_buffer(walker *w, hr_program_buffer *buffer, hr_place *place) {
  fixed(w, (uint64_t)buffer->is_dead | (uint64_t)buffer->is_fresh << 1 | (uint64_t)buffer->is_free << 2 |
               (uint64_t)buffer->is_refused << 3 | (uint64_t)place->kind << 8 | (uint64_t)buffer->versions << 32);
  fixed(w, (uint64_t)(uint32_t)place->first << 32 | (uint32_t)place->last);
  fixed(w, buffer->rows);
  fixed(w, buffer->takes);
  size(w, &buffer->room, HR_NUMBER_WORD);
  size(w, &buffer->bytes, HR_NUMBER_BYTES);
  size(w, &buffer->layout, HR_NUMBER_WORD); /* channels and pixels in one word: linear in both */
  walk_place(w, buffer, place);
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
  fixed(w, (uint64_t)kernel->rank << 32 | (uint64_t)kernel->phase_count);
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

static void begin_part(walker *w) {
  size_t part = w->part++;
  if (w->first != NULL) {
    w->first[part] = w->numbers->count;
  }
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
  begin_part(w);
  walk_tables(w, schedule);
  for (int i = 0; i < schedule->step_count; ++i) {
    begin_part(w);
    walk_step(w, &schedule->steps[i]);
  }
  begin_part(w);
  fixed(w, (uint64_t)schedule->declined_count);
  for (int i = 0; i < schedule->declined_count; ++i) {
    walk_node(w, (hr_node *)&schedule->declined[i]);
  }
}

bool hr_schedule_split(const hr_schedule *schedule, hr_words *structure, hr_numbers *numbers) {
  walker w = {.structure = structure, .numbers = numbers};
  walk(&w, (hr_schedule *)schedule);
  return !w.failed;
}

/* Every dim must be a dim. */
static hr_status check_kernel(const hr_kernel *kernel) {
  for (int d = 0; d < kernel->rank; ++d) {
    if (kernel->dims[d] < 1) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "renumbering: dim %d of kernel %s is %lld", d, kernel->name,
                            (long long)kernel->dims[d]);
    }
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

/* Checks a renumbered step, and derives its kernel's order of reductions from the new dims. */
static hr_status finish_step(const hr_step *step) {
  if (step->kind == HR_STEP_KERNEL) {
    hr_kernel *kernel = (hr_kernel *)step->kernel;
    HR_RETURN_IF_ERROR(check_kernel(kernel));
    kernel->order = hr_kernel_order(kernel->rank, kernel->dims, kernel->reduce_mask);
  }
  return HR_OK;
}

void hr_schedule_count_traffic(const hr_schedule *schedule, const hr_step *step) {
  if (step->kind == HR_STEP_KERNEL) {
    hr_kernel_count_traffic(&schedule->program, (hr_kernel *)step->kernel, (hr_kernel_arg *)step->kernel->args);
  }
}

static hr_status place_again(hr_schedule *schedule) {
  for (int i = 0; i < schedule->program.buffer_count; ++i) {
    ((hr_place *)schedule->places)[i].bytes = schedule->program.buffers[i].bytes;
  }
  return hr_place_buffers(schedule);
}

hr_status hr_schedule_renumber(hr_schedule *schedule, size_t count, const int64_t *numbers,
                               const hr_number_terms *terms, hr_number_places *out_places) {
  walker w = {.given = numbers, .given_count = count, .terms = terms, .places = out_places};
  walk(&w, schedule);
  if (w.failed || w.at != count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "renumbering: %zu numbers for a schedule with others", count);
  }
  for (int i = 0; i < schedule->step_count; ++i) {
    ((hr_step *)schedule->steps)[i].like = 0; /* the numbers that differ may be those of like kernels */
    HR_RETURN_IF_ERROR(finish_step(&schedule->steps[i]));
    hr_schedule_count_traffic(schedule, &schedule->steps[i]);
  }
  if (out_places != NULL) {
    out_places->held = out_places->needed;
  }
  return w.moves ? place_again(schedule) : HR_OK;
}

/* ---- values that vary ---- */

/* A buffer's new size. Temporaries stay where they are if they fit: finding places takes longer than the rest. True if
 * this one does not fit. */
static bool resize(hr_schedule *schedule, hr_number_places *places, size_t *bytes, size_t wanted) {
  const hr_program_buffer *buffer =
      (const hr_program_buffer *)(const void *)((char *)bytes - offsetof(hr_program_buffer, bytes));
  hr_place *place = (hr_place *)&schedule->places[buffer - schedule->program.buffers];
  bool is_temporary = place->kind == HR_PLACE_ARENA, fits = !is_temporary || aligned(wanted) <= aligned(place->bytes);
  if (is_temporary) {
    places->needed += aligned(wanted) - aligned(*bytes);
    places->held += fits ? 0 : aligned(wanted) - aligned(place->bytes);
  }
  place->bytes = is_temporary && place->bytes > wanted ? place->bytes : wanted;
  *bytes = wanted;
  return !fits;
}

/* True if a temporary does not fit its place any more. */
static bool put_value(hr_schedule *schedule, hr_number_places *places, const hr_number_place *at, int64_t value) {
  switch ((hr_number_form)at->form) {
    case HR_NUMBER_WORD:
      *(int64_t *)at->place = value;
      return false;
    case HR_NUMBER_BYTES:
      return resize(schedule, places, at->place, (size_t)value);
    case HR_NUMBER_WHOLE:
      *(double *)at->place = (double)value;
      return false;
    case HR_NUMBER_FRACTION:
      *(double *)at->place = 2 / (double)value;
      return false;
  }
  return false;
}

hr_status hr_schedule_replace(hr_schedule *schedule, hr_number_places *places, const int64_t *values,
                              const bool *is_new, bool *out_changed) {
  bool moves = false;
  memset(out_changed, 0, hr_schedule_part_count(schedule) * sizeof *out_changed);
  for (size_t i = 0; i < places->all.count; ++i) {
    const hr_number_place *at = &places->all.data[i];
    if (is_new[at->value]) {
      out_changed[at->part] = true;
      moves |= put_value(schedule, places, at, values[at->value]);
    }
  }
  for (int i = 0; i < schedule->step_count; ++i) {
    HR_RETURN_IF_ERROR(out_changed[i + 1] ? finish_step(&schedule->steps[i]) : HR_OK);
  }
  bool is_outsized = places->held > HELD_MIN && places->held - places->held / 4 > places->needed;
  places->were_moved = moves || is_outsized;
  if (!places->were_moved) {
    return HR_OK;
  }
  places->held = places->needed;
  return place_again(schedule);
}
