/* packed_program.c: the fields of a program, one after the other, as numbers of as many bytes as they need. Writer and
 * reader name the same fields in the same order.
 *
 *   base   3 7 7 0 64 5       the packed base: made again when it is needed
 *   own    3 7 9 0 64 8       2 equal, 9, 2 equal, 8, 0 equal
 */
#include "core/ir/packed_program.h"

#include <string.h>

#include "base/allocator.h"
#include "base/varint.h"

/* Without a place it only counts bytes. */
typedef struct writer {
  uint8_t *at;
  size_t count;
  const uint8_t *base, *base_end; /* the base's numbers from here on; NULL: there is none */
  int64_t equal;                  /* numbers so far that are the base's */
  bool has_all;                   /* the base has as many */
} writer;

static void put_number(writer *w, int64_t number) {
  uint8_t bytes[HR_VARINT_BYTES_MAX], *from = w->at != NULL ? w->at : bytes, *end = hr_varint_put(from, number);
  w->count += (size_t)(end - from);
  w->at = w->at != NULL ? end : NULL;
}

static void put(writer *w, int64_t number) {
  if (w->base == NULL) {
    put_number(w, number);
    return;
  }
  w->has_all &= w->base < w->base_end;
  if (w->has_all && hr_varint_next(&w->base) == number) {
    ++w->equal;
    return;
  }
  put_number(w, w->equal);
  put_number(w, number);
  w->equal = 0;
}

#define PUT(number) put(w, (int64_t)(number))

static void put_all(writer *w, int count, const int64_t *numbers) {
  for (int i = 0; i < count; ++i) {
    put(w, numbers[i]);
  }
}

static void put_operand(writer *w, const hr_operand *x) {
  PUT(x->kind), PUT(x->dtype), PUT(x->index), PUT(x->version), PUT(x->rank), PUT(x->offset);
  PUT(x->term_count), PUT(x->bound_count), PUT(x->fill);
  put_all(w, x->rank, x->dims);
  put_all(w, x->rank, x->strides);
  for (int i = 0; i < x->term_count; ++i) {
    PUT(x->terms[i].input), PUT(x->terms[i].stride), PUT(x->terms[i].extent);
  }
  for (int i = 0; i < x->bound_count; ++i) {
    PUT(x->bounds[i].offset), PUT(x->bounds[i].extent);
    put_all(w, x->rank, x->bounds[i].strides);
  }
}

static void put_node(writer *w, const hr_node *node) {
  PUT(node->op), PUT(node->is_loop), PUT(node->input_count), PUT(node->output_count), PUT(node->int_count);
  PUT(node->scalar_count), PUT(node->epilogue_count), PUT(node->scalar_base), PUT(node->reduce_mask);
  PUT(node->ordered_mask), PUT(node->store_mode), PUT(node->origin), PUT(node->home);
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    put_operand(w, hr_node_operand(node, i));
  }
  put_all(w, node->int_count, node->ints);
  for (int i = 0; i < node->epilogue_count; ++i) {
    PUT(node->epilogues[i].op), PUT(node->epilogues[i].output), PUT(node->epilogues[i].origin);
    for (int k = 0; k < HR_EPILOGUE_ARITY_MAX; ++k) {
      PUT(node->epilogues[i].inputs[k]);
    }
  }
}

enum { IS_DEAD = 1, IS_FRESH = 2, IS_FREE = 4, IS_REFUSED = 8, HAS_LAYOUT = 16 };

static bool has_layout(const hr_program_buffer *buffer) {
  return buffer->layout != 0 || buffer->rows != 0 || buffer->room != 0 || buffer->growth != HR_GROWTH_NONE ||
         buffer->takes != 0;
}

static void put_buffer(writer *w, const hr_program_buffer *buffer) {
  PUT((buffer->is_dead ? IS_DEAD : 0) | (buffer->is_fresh ? IS_FRESH : 0) | (buffer->is_free ? IS_FREE : 0) |
      (buffer->is_refused ? IS_REFUSED : 0) | (has_layout(buffer) ? HAS_LAYOUT : 0));
  PUT(buffer->bytes), PUT(buffer->versions);
  if (has_layout(buffer)) {
    PUT(buffer->layout), PUT(buffer->rows), PUT(buffer->room), PUT(buffer->growth), PUT(buffer->takes);
  }
}

static void put_scalar(writer *w, const hr_program_scalar *scalar) {
  PUT(scalar->dtype), PUT(scalar->is_constant);
  if (scalar->is_constant) {
    uint64_t words[2];
    memcpy(words, &scalar->value.value, sizeof words);
    PUT(scalar->value.dtype), PUT(words[0]), PUT(words[1]);
  } else {
    PUT(scalar->argument);
  }
}

static void put_fields(writer *w, const hr_program *program) {
  PUT(program->node_count), PUT(program->buffer_count), PUT(program->bound_count), PUT(program->scalar_count);
  PUT(program->argument_count), PUT(program->is_value_form);
  for (int i = 0; i < program->buffer_count; ++i) {
    put_buffer(w, &program->buffers[i]);
  }
  for (int i = 0; i < program->scalar_count; ++i) {
    put_scalar(w, &program->scalars[i]);
  }
  for (int i = 0; i < program->node_count; ++i) {
    put_node(w, &program->nodes[i]);
  }
}

/* Returns the number of bytes; 0: the base has fewer numbers. */
static size_t put_program(const hr_program *program, const hr_packed_program *base, uint8_t *at) {
  writer w = {.at = at, .has_all = true};
  if (base != NULL) {
    w.base = base->bytes, w.base_end = base->bytes + base->byte_count;
  }
  put_fields(&w, program);
  if (base != NULL) {
    put_number(&w, w.equal);
  }
  return w.has_all ? w.count : 0;
}

static hr_packed_program *pack(const hr_program *program, const hr_packed_program *base) {
  size_t bytes = put_program(program, base, NULL);
  hr_packed_program *packed = bytes > 0 ? hr_malloc(sizeof *packed + bytes) : NULL;
  if (packed != NULL) {
    *packed = (hr_packed_program){.byte_count = bytes};
    (void)put_program(program, base, packed->bytes);
  }
  return packed;
}

hr_packed_program *hr_program_pack(const hr_program *program, const hr_program *base) {
  hr_packed_program *whole = base != NULL ? pack(base, NULL) : NULL;
  hr_packed_program *packed = whole != NULL ? pack(program, whole) : NULL;
  hr_free(whole);
  if (packed != NULL) {
    packed->base = base;
    return packed;
  }
  return pack(program, NULL);
}

/* ---- and back ---- */

typedef struct reader {
  const uint8_t *at;
  const uint8_t *base; /* NULL: there is none */
  int64_t equal;       /* of the next numbers: those of the base */
  hr_arena *arena;
} reader;

static int64_t next(reader *r) {
  if (r->base == NULL) {
    return hr_varint_next(&r->at);
  }
  int64_t of_base = hr_varint_next(&r->base);
  if (r->equal > 0) {
    --r->equal;
    return of_base;
  }
  int64_t own = hr_varint_next(&r->at);
  r->equal = hr_varint_next(&r->at);
  return own;
}

static bool next_all(reader *r, int count, const int64_t **out_numbers) {
  int64_t *numbers = hr_arena_alloc(r->arena, (size_t)count * sizeof *numbers);
  for (int i = 0; numbers != NULL && i < count; ++i) {
    numbers[i] = next(r);
  }
  *out_numbers = numbers;
  return numbers != NULL;
}

static bool next_bounds(reader *r, hr_operand *x) {
  hr_bound *bounds = HR_ARENA_ARRAY(r->arena, hr_bound, (size_t)x->bound_count);
  bool ok = bounds != NULL;
  for (int i = 0; ok && i < x->bound_count; ++i) {
    bounds[i].offset = next(r);
    bounds[i].extent = next(r);
    ok = next_all(r, x->rank, &bounds[i].strides);
  }
  x->bounds = bounds;
  return ok;
}

static bool next_terms(reader *r, hr_operand *x) {
  hr_index_term *terms = HR_ARENA_ARRAY(r->arena, hr_index_term, (size_t)x->term_count);
  for (int i = 0; terms != NULL && i < x->term_count; ++i) {
    terms[i].input = (int)next(r);
    terms[i].stride = next(r);
    terms[i].extent = next(r);
  }
  x->terms = terms;
  return terms != NULL;
}

static bool next_operand(reader *r, hr_operand *x) {
  x->kind = (hr_operand_kind)next(r);
  x->dtype = (hr_dtype)next(r);
  x->index = (uint32_t)next(r);
  x->version = (uint32_t)next(r);
  x->rank = (int)next(r);
  x->offset = next(r);
  x->term_count = (int)next(r);
  x->bound_count = (int)next(r);
  x->fill = (uint32_t)next(r);
  return next_all(r, x->rank, &x->dims) && next_all(r, x->rank, &x->strides) &&
         (x->term_count == 0 || next_terms(r, x)) && (x->bound_count == 0 || next_bounds(r, x));
}

static bool next_epilogues(reader *r, hr_node *node) {
  hr_epilogue *epilogues = HR_ARENA_ARRAY(r->arena, hr_epilogue, (size_t)node->epilogue_count);
  for (int i = 0; epilogues != NULL && i < node->epilogue_count; ++i) {
    epilogues[i].op = (hr_op)next(r);
    epilogues[i].output = (int)next(r);
    epilogues[i].origin = (uint32_t)next(r);
    for (int k = 0; k < HR_EPILOGUE_ARITY_MAX; ++k) {
      epilogues[i].inputs[k] = (int)next(r);
    }
  }
  node->epilogues = epilogues;
  return epilogues != NULL;
}

static bool next_node(reader *r, hr_node *node) {
  node->op = (hr_op)next(r);
  node->is_loop = next(r) != 0;
  node->input_count = (int)next(r);
  node->output_count = (int)next(r);
  node->int_count = (int)next(r);
  node->scalar_count = (int)next(r);
  node->epilogue_count = (int)next(r);
  node->scalar_base = (uint32_t)next(r);
  node->reduce_mask = (uint32_t)next(r);
  node->ordered_mask = (uint32_t)next(r);
  node->store_mode = (hr_store_mode)next(r);
  node->origin = (uint32_t)next(r);
  node->home = (int)next(r);
  int operands = node->input_count + node->output_count;
  node->inputs = HR_ARENA_ARRAY(r->arena, hr_operand, (size_t)operands);
  node->outputs = node->inputs != NULL ? node->inputs + node->input_count : NULL;
  bool ok = node->inputs != NULL;
  for (int i = 0; ok && i < operands; ++i) {
    ok = next_operand(r, &node->inputs[i]);
  }
  return ok && next_all(r, node->int_count, &node->ints) && next_epilogues(r, node);
}

static void next_buffer(reader *r, hr_program_buffer *buffer) {
  int64_t flags = next(r);
  buffer->is_dead = (flags & IS_DEAD) != 0;
  buffer->is_fresh = (flags & IS_FRESH) != 0;
  buffer->is_free = (flags & IS_FREE) != 0;
  buffer->is_refused = (flags & IS_REFUSED) != 0;
  buffer->bytes = (size_t)next(r);
  buffer->versions = (uint32_t)next(r);
  if ((flags & HAS_LAYOUT) != 0) {
    buffer->layout = (uint64_t)next(r);
    buffer->rows = (uint64_t)next(r);
    buffer->room = (size_t)next(r);
    buffer->growth = (hr_growth)next(r);
    buffer->takes = (uint32_t)next(r);
  }
}

static void next_scalar(reader *r, hr_program_scalar *scalar) {
  scalar->dtype = (hr_dtype)next(r);
  scalar->is_constant = next(r) != 0;
  if (scalar->is_constant) {
    scalar->value.dtype = (hr_dtype)next(r);
    uint64_t words[2] = {(uint64_t)next(r)};
    words[1] = (uint64_t)next(r);
    memcpy(&scalar->value.value, words, sizeof words);
  } else {
    scalar->argument = (uint32_t)next(r);
  }
}

static bool next_lists(reader *r, hr_program *program) {
  program->buffers = HR_ARENA_ARRAY(r->arena, hr_program_buffer, (size_t)program->buffer_count);
  program->scalars = HR_ARENA_ARRAY(r->arena, hr_program_scalar, (size_t)program->scalar_count);
  program->nodes = HR_ARENA_ARRAY(r->arena, hr_node, (size_t)program->node_count);
  bool ok = program->buffers != NULL && program->scalars != NULL && program->nodes != NULL;
  for (int i = 0; ok && i < program->buffer_count; ++i) {
    next_buffer(r, &program->buffers[i]);
  }
  for (int i = 0; ok && i < program->scalar_count; ++i) {
    next_scalar(r, &program->scalars[i]);
  }
  for (int i = 0; ok && i < program->node_count; ++i) {
    ok = next_node(r, &program->nodes[i]);
  }
  return ok;
}

static bool next_program(reader *r, hr_program *program) {
  program->node_count = (int)next(r);
  program->buffer_count = (int)next(r);
  program->bound_count = (int)next(r);
  program->scalar_count = (int)next(r);
  program->argument_count = (int)next(r);
  program->is_value_form = next(r) != 0;
  program->node_capacity = program->node_count;
  program->buffer_capacity = program->buffer_count;
  program->scalar_capacity = program->scalar_count;
  return next_lists(r, program);
}

hr_status hr_program_unpack(const hr_packed_program *packed, hr_program *out_program) {
  hr_program_init(out_program);
  hr_packed_program *base = packed->base != NULL ? pack(packed->base, NULL) : NULL;
  reader r = {.at = packed->bytes, .arena = &out_program->arena};
  bool ok = packed->base == NULL || base != NULL;
  if (base != NULL) {
    r.base = base->bytes;
    r.equal = hr_varint_next(&r.at);
  }
  ok = ok && next_program(&r, out_program);
  hr_free(base);
  if (!ok) {
    int count = out_program->node_count;
    hr_program_fini(out_program);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a program of %d nodes", count);
  }
  return HR_OK;
}
_Static_assert(sizeof(((hr_scalar *)NULL)->value) == 2 * sizeof(uint64_t), "a number is packed as two words");
