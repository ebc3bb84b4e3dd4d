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

#define PUT(number) (at = hr_varint_put(at, (int64_t)(number)))

/* Each function returns the place of the next number: as a member of a struct it would be stored with each byte. */
static uint8_t *put_all(uint8_t *at, int count, const int64_t *numbers) {
  for (int i = 0; i < count; ++i) {
    PUT(numbers[i]);
  }
  return at;
}

/* Of an operand's kind; and what most operands and scalars are without. */
enum { KIND_BITS = 3, HAS_MORE = 4 };

static uint8_t *put_operand(uint8_t *at, const hr_operand *x) {
  bool has_more = x->term_count != 0 || x->bound_count != 0 || x->fill != HR_NO_SCALAR;
  PUT((int)x->rank << KIND_BITS | (has_more ? HAS_MORE : 0) | (int)x->kind), PUT(x->dtype);
  PUT(x->index), PUT(x->version), PUT(x->offset);
  if (has_more) {
    PUT(x->term_count), PUT(x->bound_count), PUT(x->fill);
  }
  at = put_all(at, x->rank, x->dims);
  at = put_all(at, x->rank, x->strides);
  for (int i = 0; i < x->term_count; ++i) {
    PUT(x->terms[i].input), PUT(x->terms[i].stride), PUT(x->terms[i].extent);
  }
  for (int i = 0; i < x->bound_count; ++i) {
    PUT(x->bounds[i].offset), PUT(x->bounds[i].extent);
    at = put_all(at, x->rank, x->bounds[i].strides);
  }
  return at;
}

static uint8_t *put_node(uint8_t *at, const hr_node *node) {
  PUT(node->op), PUT(node->is_loop), PUT(node->input_count), PUT(node->output_count), PUT(node->int_count);
  PUT(node->scalar_count), PUT(node->epilogue_count), PUT(node->scalar_base), PUT(node->reduce_mask);
  PUT(node->ordered_mask), PUT(node->store_mode), PUT(node->origin), PUT(node->home);
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    at = put_operand(at, hr_node_operand(node, i));
  }
  at = put_all(at, node->int_count, node->ints);
  for (int i = 0; i < node->epilogue_count; ++i) {
    PUT(node->epilogues[i].op), PUT(node->epilogues[i].output), PUT(node->epilogues[i].origin);
    for (int k = 0; k < HR_EPILOGUE_ARITY_MAX; ++k) {
      PUT(node->epilogues[i].inputs[k]);
    }
  }
  return at;
}

enum { IS_DEAD = 1, IS_FRESH = 2, IS_FREE = 4, IS_REFUSED = 8, HAS_LAYOUT = 16 };

static bool has_layout(const hr_program_buffer *buffer) {
  return buffer->layout != 0 || buffer->rows != 0 || buffer->room != 0 || buffer->growth != HR_GROWTH_NONE ||
         buffer->takes != 0;
}

static uint8_t *put_buffer(uint8_t *at, const hr_program_buffer *buffer) {
  PUT((buffer->is_dead ? IS_DEAD : 0) | (buffer->is_fresh ? IS_FRESH : 0) | (buffer->is_free ? IS_FREE : 0) |
      (buffer->is_refused ? IS_REFUSED : 0) | (has_layout(buffer) ? HAS_LAYOUT : 0));
  PUT(buffer->bytes), PUT(buffer->versions);
  if (has_layout(buffer)) {
    PUT(buffer->layout), PUT(buffer->rows), PUT(buffer->room), PUT(buffer->growth), PUT(buffer->takes);
  }
  return at;
}

/* The word of a real number mostly ends with zeros: then its bytes in reverse are a smaller one. */
static uint64_t turned(uint64_t word, hr_dtype dtype) {
  return dtype == HR_DTYPE_F64 ? __builtin_bswap64(word) : word;
}

static uint8_t *put_scalar(uint8_t *at, const hr_program_scalar *scalar) {
  PUT((int)scalar->dtype << 1 | (int)scalar->is_constant);
  if (scalar->is_constant) {
    uint64_t words[2];
    memcpy(words, &scalar->value.value, sizeof words);
    PUT(scalar->value.dtype), PUT(turned(words[0], scalar->value.dtype)), PUT(words[1]);
  } else {
    PUT(scalar->argument);
  }
  return at;
}

static size_t count_operand(const hr_operand *x) {
  enum { HEAD = 9, TERM = 3, BOUND = 2 };
  size_t rank = (size_t)x->rank;
  return HEAD + 2 * rank + (size_t)x->term_count * TERM + (size_t)x->bound_count * (BOUND + rank);
}

/* At least as many as put_fields writes. */
static size_t count_numbers(const hr_program *program) {
  enum { HEAD = 6, BUFFER = 8, SCALAR = 5, NODE = 13, EPILOGUE = 3 + HR_EPILOGUE_ARITY_MAX };
  size_t count = HEAD + (size_t)program->buffer_count * BUFFER + (size_t)program->scalar_count * SCALAR;
  for (int i = 0; i < program->node_count; ++i) {
    const hr_node *node = &program->nodes[i];
    count += NODE + (size_t)node->int_count + (size_t)node->epilogue_count * EPILOGUE;
    for (int k = 0; k < node->input_count + node->output_count; ++k) {
      count += count_operand(hr_node_operand(node, k));
    }
  }
  return count;
}

static uint8_t *put_fields(uint8_t *at, const hr_program *program) {
  PUT(program->node_count), PUT(program->buffer_count), PUT(program->bound_count), PUT(program->scalar_count);
  PUT(program->argument_count), PUT(program->is_value_form);
  for (int i = 0; i < program->buffer_count; ++i) {
    at = put_buffer(at, &program->buffers[i]);
  }
  for (int i = 0; i < program->scalar_count; ++i) {
    at = put_scalar(at, &program->scalars[i]);
  }
  for (int i = 0; i < program->node_count; ++i) {
    at = put_node(at, &program->nodes[i]);
  }
  return at;
}

static hr_packed_program *make(const uint8_t *bytes, size_t count) {
  hr_packed_program *packed = hr_malloc(sizeof *packed + count);
  if (packed != NULL) {
    *packed = (hr_packed_program){.byte_count = count};
    memcpy(packed->bytes, bytes, count);
  }
  return packed;
}

static hr_packed_program *pack(const hr_program *program) {
  uint8_t *bytes = hr_malloc(count_numbers(program) * HR_VARINT_BYTES_MAX);
  hr_packed_program *packed = bytes != NULL ? make(bytes, (size_t)(put_fields(bytes, program) - bytes)) : NULL;
  hr_free(bytes);
  return packed;
}

/* Writes the numbers that differ from the base's; before each, and at the end, how many were equal. NULL: the base has
 * fewer numbers. */
static uint8_t *put_differences(uint8_t *at, const hr_packed_program *whole, const hr_packed_program *base) {
  const uint8_t *own = whole->bytes, *end = own + whole->byte_count;
  const uint8_t *other = base->bytes, *other_end = other + base->byte_count;
  int64_t equal = 0;
  while (own < end && other < other_end) {
    int64_t number = hr_varint_next(&own);
    if (number == hr_varint_next(&other)) {
      ++equal;
      continue;
    }
    PUT(equal), PUT(number);
    equal = 0;
  }
  PUT(equal);
  return own == end ? at : NULL;
}

/* NULL: there is no memory, or the base has fewer numbers. */
static hr_packed_program *pack_differences(const hr_packed_program *whole, const hr_packed_program *base) {
  /* A number has a byte at least, and a count before it. */
  uint8_t *bytes = hr_malloc(whole->byte_count * (HR_VARINT_BYTES_MAX + 1) + HR_VARINT_BYTES_MAX);
  uint8_t *end = bytes != NULL ? put_differences(bytes, whole, base) : NULL;
  hr_packed_program *packed = end != NULL ? make(bytes, (size_t)(end - bytes)) : NULL;
  hr_free(bytes);
  return packed;
}

hr_packed_program *hr_program_pack(const hr_program *program, const hr_program *base) {
  hr_packed_program *whole = pack(program), *of_base = whole != NULL && base != NULL ? pack(base) : NULL;
  hr_packed_program *packed = of_base != NULL ? pack_differences(whole, of_base) : NULL;
  hr_free(of_base);
  if (packed == NULL) {
    return whole;
  }
  packed->base = base;
  hr_free(whole);
  return packed;
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
  int64_t head = next(r);
  x->kind = (hr_operand_kind)(head & (HAS_MORE - 1));
  x->rank = (int16_t)(head >> KIND_BITS);
  x->dtype = (hr_dtype)next(r);
  x->index = (uint32_t)next(r);
  x->version = (uint32_t)next(r);
  x->offset = next(r);
  x->fill = HR_NO_SCALAR;
  if ((head & HAS_MORE) != 0) {
    x->term_count = (int16_t)next(r);
    x->bound_count = (int16_t)next(r);
    x->fill = (uint32_t)next(r);
  }
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
  int64_t head = next(r);
  scalar->dtype = (hr_dtype)(head >> 1);
  scalar->is_constant = (head & 1) != 0;
  if (scalar->is_constant) {
    scalar->value.dtype = (hr_dtype)next(r);
    uint64_t words[2] = {(uint64_t)next(r)};
    words[0] = turned(words[0], scalar->value.dtype);
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
  hr_packed_program *base = packed->base != NULL ? pack(packed->base) : NULL;
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
