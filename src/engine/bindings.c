#include "engine/bindings.h"

#include <string.h>

#include "base/allocator.h"

const hr_program_buffer hr__bindings_plain = {0};

enum { LATEST = 32 }; /* constants among which an equal one is looked for */

/* A block's lists, while they are filled. */
typedef struct maker {
  hr_bindings *bindings;
  hr_scalar *constants;
  hr_program_buffer *specials;
  uint32_t *places, *scalars;
  bool failed;
} maker;

static bool is_special(const hr_program_buffer *buffer) {
  return buffer->layout != 0 || buffer->rows != 0 || buffer->room != 0 || buffer->takes != 0 || buffer->is_refused;
}

/* ---- making them ---- */

static int count_specials(const hr_program *program) {
  int count = 0;
  for (int b = 0; b < program->bound_count; ++b) {
    count += is_special(&program->buffers[b]);
  }
  return count;
}

static int count_constants(const hr_program *program) {
  int count = 0;
  for (int s = 0; s < program->scalar_count; ++s) {
    count += program->scalars[s].is_constant;
  }
  return count;
}

static uint32_t place_of(maker *m, const hr_schedule *schedule, int b) {
  const hr_program_buffer *buffer = &schedule->program.buffers[b];
  const hr_place *place = &schedule->places[b];
  if (b < schedule->program.bound_count && is_special(buffer)) {
    uint32_t number = (uint32_t)m->bindings->special_count++;
    m->specials[number] = *buffer;
    m->failed |= place->kind == HR_PLACE_ARENA;
    return HR_BINDING_SPECIALS + 2 * number + (place->kind == HR_PLACE_BOUND);
  }
  if (place->kind != HR_PLACE_ARENA) {
    return place->kind == HR_PLACE_BOUND ? HR_BINDING_BOUND : HR_BINDING_NONE;
  }
  size_t block = place->offset / HR_BINDING_BLOCK;
  m->failed |= place->offset % HR_BINDING_BLOCK != 0 || block >= HR_BINDING_SPECIALS;
  return (uint32_t)block;
}

static bool is_same(const hr_scalar *a, const hr_scalar *b) {
  return a->dtype == b->dtype && memcmp(&a->value, &b->value, sizeof a->value) == 0;
}

static uint32_t constant_of(maker *m, const hr_scalar *value) {
  int count = m->bindings->constant_count, at = count > LATEST ? count - LATEST : 0;
  while (at < count && !is_same(&m->constants[at], value)) {
    ++at;
  }
  if (at == count) {
    m->constants[m->bindings->constant_count++] = *value;
  }
  return HR_BINDING_CONSTANT | (uint32_t)at;
}

static void fill(maker *m, const hr_schedule *schedule) {
  const hr_program *program = &schedule->program;
  for (int b = 0; b < program->buffer_count; ++b) {
    m->places[b] = place_of(m, schedule, b);
  }
  for (int s = 0; s < program->scalar_count; ++s) {
    const hr_program_scalar *scalar = &program->scalars[s];
    m->scalars[s] = scalar->is_constant ? constant_of(m, &scalar->value) : scalar->argument;
    m->failed |= !scalar->is_constant && scalar->argument >= HR_BINDING_CONSTANT;
  }
}

static size_t bytes_of(const hr_bindings *b) {
  return sizeof *b + (size_t)b->constant_count * sizeof *b->constants + (size_t)b->special_count * sizeof *b->specials +
         ((size_t)b->buffer_count + (size_t)b->scalar_count) * sizeof *b->places;
}

/* The lists of a block for these counts. */
static maker lay_out(hr_bindings *block, int constants, int specials) {
  maker m = {.bindings = block, .constants = (hr_scalar *)(block + 1)};
  m.specials = (hr_program_buffer *)(m.constants + constants);
  m.places = (uint32_t *)(m.specials + specials);
  m.scalars = m.places + block->buffer_count;
  return m;
}

/* A copy without room for the constants that were equal to others. */
static hr_bindings *trim(const maker *from) {
  hr_bindings *block = from->bindings, *copy = hr_malloc(bytes_of(block));
  if (copy == NULL) {
    return NULL;
  }
  *copy = *block;
  maker to = lay_out(copy, block->constant_count, block->special_count);
  memcpy(to.constants, from->constants, (size_t)block->constant_count * sizeof *to.constants);
  memcpy(to.specials, from->specials, (size_t)block->special_count * sizeof *to.specials);
  memcpy(to.places, from->places, (size_t)block->buffer_count * sizeof *to.places);
  memcpy(to.scalars, from->scalars, (size_t)block->scalar_count * sizeof *to.scalars);
  copy->constants = to.constants, copy->specials = to.specials, copy->places = to.places, copy->scalars = to.scalars;
  copy->bytes = bytes_of(copy);
  return copy;
}

hr_bindings *hr__bindings_make(const hr_schedule *schedule) {
  const hr_program *program = &schedule->program;
  hr_bindings most = {.buffer_count = program->buffer_count,
                      .scalar_count = program->scalar_count,
                      .constant_count = count_constants(program),
                      .special_count = count_specials(program)};
  hr_bindings *block = hr_malloc(bytes_of(&most)), *bindings = NULL;
  if (block != NULL) {
    *block = most;
    maker m = lay_out(block, most.constant_count, most.special_count);
    block->constant_count = block->special_count = 0;
    fill(&m, schedule);
    bindings = m.failed ? NULL : trim(&m);
  }
  hr_free(block);
  return bindings;
}

/* ---- runs ---- */

void hr__bindings_addresses(const hr_bindings *bindings, void *shared, void *const *bound, void **out_addresses) {
  for (int i = 0; i < bindings->buffer_count; ++i) {
    uint32_t place = bindings->places[i];
    out_addresses[i] = place < HR_BINDING_SPECIALS ? (char *)shared + (size_t)place * HR_BINDING_BLOCK
                       : hr__bindings_kind(bindings, (size_t)i) == HR_PLACE_BOUND ? bound[i]
                                                                                  : NULL;
  }
}

void hr__bindings_values(const hr_bindings *bindings, const hr_scalar *arguments, hr_scalar *out_values) {
  for (int i = 0; i < bindings->scalar_count; ++i) {
    uint32_t from = bindings->scalars[i];
    out_values[i] =
        (from & HR_BINDING_CONSTANT) != 0 ? bindings->constants[from & ~HR_BINDING_CONSTANT] : arguments[from];
  }
}
