/* Programs: growing arrays in one arena, and predicates on pairs of operands. */
#include "core/ir/program.h"

#include <string.h>

#include "base/integer.h"

void hr_program_init(hr_program *program) {
  *program = (hr_program){0};
  hr_arena_init(&program->arena, 0);
}

void hr_program_fini(hr_program *program) {
  if (program != NULL) {
    hr_arena_fini(&program->arena);
    *program = (hr_program){0};
  }
}

/* Makes room for `wanted` elements of `size` bytes; the old array stays in the arena, unused. */
static bool make_room(hr_arena *arena, void **items, int count, int *capacity, int wanted, size_t size) {
  size_t bytes;
  if (wanted <= *capacity) {
    return true;
  }
  void *moved = __builtin_mul_overflow((size_t)wanted, size, &bytes) ? NULL : hr_arena_alloc(arena, bytes);
  if (moved == NULL) {
    return false;
  }
  if (count > 0) {
    memcpy(moved, *items, (size_t)count * size);
  }
  *items = moved;
  *capacity = wanted;
  return true;
}

/* Makes room for one more element. */
static bool grow(hr_arena *arena, void **items, int count, int *capacity, size_t size) {
  if (count < *capacity) {
    return true;
  }
  int wanted = *capacity > 0 ? *capacity : 8;
  if (*capacity > 0 && __builtin_mul_overflow(*capacity, 2, &wanted)) {
    return false;
  }
  return make_room(arena, items, count, capacity, wanted, size);
}

bool hr_program_reserve(hr_program *program, int nodes, int buffers, int scalars) {
  void *all_nodes = program->nodes, *all_buffers = program->buffers, *all_scalars = program->scalars;
  bool ok = make_room(&program->arena, &all_nodes, program->node_count, &program->node_capacity, nodes,
                      sizeof *program->nodes) &&
            make_room(&program->arena, &all_buffers, program->buffer_count, &program->buffer_capacity, buffers,
                      sizeof *program->buffers) &&
            make_room(&program->arena, &all_scalars, program->scalar_count, &program->scalar_capacity, scalars,
                      sizeof *program->scalars);
  program->nodes = all_nodes, program->buffers = all_buffers, program->scalars = all_scalars;
  return ok;
}

enum { LAYOUT_SIZE_BITS = 2, LAYOUT_CHANNEL_BITS = 26, LAYOUT_INNER_BITS = 35 };

enum { ROWS_SIZE_BITS = 2, ROWS_OUTER_BITS = 30, ROWS_INNER_BITS = 31 };
static const uint64_t ROWS = UINT64_C(1) << 63;

static uint64_t log2_of_size(size_t bytes) {
  uint64_t size = 0;
  while ((size_t)1 << size < bytes) {
    ++size;
  }
  return size;
}

uint64_t hr_rows_pack(const hr_rows_layout *rows) {
  uint64_t size = log2_of_size(rows->element_bytes);
  bool fits = size >> ROWS_SIZE_BITS == 0 && rows->outer >> ROWS_OUTER_BITS == 0 && rows->inner >> ROWS_INNER_BITS == 0;
  return fits ? ROWS | ((uint64_t)rows->inner << ROWS_OUTER_BITS | (uint64_t)rows->outer) << ROWS_SIZE_BITS | size : 0;
}

hr_rows_layout hr_rows_unpack(uint64_t word) {
  return (hr_rows_layout){
      .element_bytes = (size_t)1 << (word & ((1u << ROWS_SIZE_BITS) - 1)),
      .outer = (int64_t)(word >> ROWS_SIZE_BITS & ((UINT64_C(1) << ROWS_OUTER_BITS) - 1)),
      .inner = (int64_t)((word & ~ROWS) >> (ROWS_SIZE_BITS + ROWS_OUTER_BITS)),
  };
}

uint64_t hr_layout_pack(const hr_buffer_layout *layout) {
  uint64_t size = log2_of_size(layout->element_bytes);
  bool fits = size >> LAYOUT_SIZE_BITS == 0 && layout->channels >> LAYOUT_CHANNEL_BITS == 0 &&
              layout->inner >> LAYOUT_INNER_BITS == 0;
  return fits ? ((uint64_t)layout->inner << LAYOUT_CHANNEL_BITS | (uint64_t)layout->channels) << LAYOUT_SIZE_BITS | size
              : 0;
}

hr_buffer_layout hr_layout_unpack(uint64_t word) {
  return (hr_buffer_layout){
      .element_bytes = (size_t)1 << (word & ((1u << LAYOUT_SIZE_BITS) - 1)),
      .channels = (int64_t)(word >> LAYOUT_SIZE_BITS & ((UINT64_C(1) << LAYOUT_CHANNEL_BITS) - 1)),
      .inner = (int64_t)(word >> (LAYOUT_SIZE_BITS + LAYOUT_CHANNEL_BITS)),
  };
}

uint32_t hr_program_add_buffer(hr_program *program, size_t bytes, bool is_dead, bool is_fresh) {
  void *items = program->buffers;
  if (!grow(&program->arena, &items, program->buffer_count, &program->buffer_capacity, sizeof *program->buffers)) {
    return UINT32_MAX;
  }
  program->buffers = items;
  program->buffers[program->buffer_count] =
      (hr_program_buffer){.bytes = bytes, .is_dead = is_dead, .is_fresh = is_fresh, .is_free = is_dead && is_fresh};
  return (uint32_t)program->buffer_count++;
}

static uint32_t add_scalar(hr_program *program, hr_program_scalar scalar) {
  void *items = program->scalars;
  if (!grow(&program->arena, &items, program->scalar_count, &program->scalar_capacity, sizeof *program->scalars)) {
    return UINT32_MAX;
  }
  program->scalars = items;
  program->scalars[program->scalar_count] = scalar;
  return (uint32_t)program->scalar_count++;
}

uint32_t hr_program_add_argument(hr_program *program, hr_dtype dtype) {
  uint32_t index =
      add_scalar(program, (hr_program_scalar){.dtype = dtype, .argument = (uint32_t)program->argument_count});
  if (index != UINT32_MAX) {
    ++program->argument_count;
  }
  return index;
}

uint32_t hr_program_add_constant(hr_program *program, hr_scalar value) {
  return add_scalar(program, (hr_program_scalar){.dtype = value.dtype, .is_constant = true, .value = value});
}

/* ---- copies of nodes: one block each ---- */

/* The operands of a loop node have the dims of its domain: one list is enough. */
static bool has_domain_dims(const hr_node *node, const hr_operand *x) {
  const hr_operand *first = &node->outputs[0];
  return node->is_loop && x != first && hr_operands_have_equal_dims(x, first);
}

/* If each operand has dims of its own. */
static size_t most_bytes_of(int count, const hr_operand *operands) {
  size_t bytes = (size_t)count * sizeof *operands;
  for (int i = 0; i < count; ++i) {
    const hr_operand *x = &operands[i];
    size_t list = (size_t)x->rank * sizeof *x->dims;
    bytes += 2 * list;
    if (x->term_count + x->bound_count > 0) {
      bytes += (size_t)x->term_count * sizeof *x->terms + (size_t)x->bound_count * (sizeof *x->bounds + list);
    }
  }
  return bytes;
}

static size_t most_bytes(const hr_node *node) {
  return most_bytes_of(node->input_count, node->inputs) + most_bytes_of(node->output_count, node->outputs) +
         (size_t)node->int_count * sizeof *node->ints +
         hr_part_bytes((size_t)node->epilogue_count * sizeof *node->epilogues);
}

size_t hr_node_copy_bytes(const hr_node *node) {
  size_t bytes = most_bytes(node);
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    bytes -= has_domain_dims(node, x) ? (size_t)x->rank * sizeof *x->dims : 0;
  }
  return bytes;
}

/* Copies an operand of the node; its lists go to *at. */
static void copy_operand(const hr_node *node, const hr_operand *from, const int64_t *domain_dims, hr_operand *x,
                         char **at) {
  const size_t rank = (size_t)from->rank;
  *x = *from;
  x->dims = has_domain_dims(node, from) ? domain_dims : hr_part_put_words(at, from->dims, rank);
  x->strides = hr_part_put_words(at, from->strides, rank);
  if (x->term_count > 0) {
    x->terms = hr_part_put(at, x->terms, (size_t)x->term_count * sizeof *x->terms);
  }
  if (x->bound_count > 0) {
    hr_bound *bounds = hr_part_put(at, x->bounds, (size_t)x->bound_count * sizeof *x->bounds);
    for (int i = 0; i < x->bound_count; ++i) {
      bounds[i].strides = hr_part_put_words(at, bounds[i].strides, rank);
    }
    x->bounds = bounds;
  }
}

/* The end of what it writes. */
static char *copy_to(const hr_node *node, void *block, hr_node *out_copy) {
  hr_node copy = *node; /* the target may be the source */
  copy.outputs = block;
  copy.inputs = copy.outputs + node->output_count;
  char *at = (char *)(copy.inputs + node->input_count);
  for (int i = 0; i < node->output_count; ++i) {
    copy_operand(node, &node->outputs[i], copy.outputs[0].dims, &copy.outputs[i], &at);
  }
  for (int i = 0; i < node->input_count; ++i) {
    copy_operand(node, &node->inputs[i], node->is_loop ? copy.outputs[0].dims : NULL, &copy.inputs[i], &at);
  }
  copy.ints = hr_part_put_words(&at, node->ints, (size_t)node->int_count);
  copy.epilogues = hr_part_put(&at, node->epilogues, (size_t)node->epilogue_count * sizeof *node->epilogues);
  *out_copy = copy;
  return at;
}

void hr_node_copy_to(const hr_node *node, void *block, hr_node *out_copy) {
  (void)copy_to(node, block, out_copy);
}

bool hr_node_copy(hr_arena *arena, const hr_node *node, hr_node *out_copy) {
  void *block = hr_arena_alloc(arena, hr_node_copy_bytes(node));
  if (block != NULL) {
    hr_node_copy_to(node, block, out_copy);
  }
  return block != NULL;
}

bool hr_program_append_own(hr_program *program, const hr_node *node) {
  void *items = program->nodes;
  if (!grow(&program->arena, &items, program->node_count, &program->node_capacity, sizeof *program->nodes)) {
    return false;
  }
  program->nodes = items;
  program->nodes[program->node_count++] = *node;
  return true;
}

bool hr_program_append(hr_program *program, const hr_node *node) {
  hr_node copy;
  void *block = hr_arena_alloc(&program->arena, most_bytes(node));
  if (block == NULL) {
    return false;
  }
  hr_arena_shrink(&program->arena, copy_to(node, block, &copy));
  return hr_program_append_own(program, &copy);
}

uint32_t hr_program_writes(const hr_program *program, uint32_t buffer) {
  uint32_t count = program->buffers[buffer].versions;
  for (int n = 0; !program->is_value_form && n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    for (int i = 0; i < node->output_count; ++i) {
      count += node->outputs[i].kind == HR_OPERAND_VALUE && node->outputs[i].index == buffer;
    }
  }
  return count;
}

/* ---- pairs of operands ---- */

bool hr_operand_range(const hr_operand *operand, int64_t *out_min, int64_t *out_max) {
  int64_t min = operand->offset, max = operand->offset;
  for (int d = 0; d < operand->rank; ++d) {
    if (operand->dims[d] == 0) {
      return false;
    }
    int64_t reach = (operand->dims[d] - 1) * operand->strides[d];
    *(reach < 0 ? &min : &max) += reach;
  }
  *out_min = min, *out_max = max;
  return true;
}

static bool have_equal_sizes(const hr_operand *a, const hr_operand *b) {
  return a->dtype == b->dtype || hr_dtype_size(a->dtype) == hr_dtype_size(b->dtype);
}

bool hr_operands_are_same_map(const hr_operand *a, const hr_operand *b) {
  if (a->offset != b->offset || a->rank != b->rank || !have_equal_sizes(a, b) || a->term_count != 0 ||
      b->term_count != 0) {
    return false;
  }
  for (int d = 0; d < a->rank; ++d) {
    if (a->dims[d] != b->dims[d] || (a->dims[d] > 1 && a->strides[d] != b->strides[d])) {
      return false;
    }
  }
  return true;
}

/* One variable of the equation below: an integer of [min, max] times coefficient > 0. */
typedef struct equation_term {
  int64_t coefficient, min, max;
} equation_term;

typedef struct equation {
  equation_term terms[2 * HR_RANK_MAX];
  int count, steps_left;
} equation;

static void add_term(equation *e, int64_t stride, int64_t dim, int sign) {
  if (stride == 0 || dim <= 1) {
    return;
  }
  int64_t coefficient = stride < 0 ? -stride : stride;
  bool is_up = (stride > 0) == (sign > 0);
  int64_t min = is_up ? 0 : 1 - dim, max = is_up ? dim - 1 : 0;
  int at = 0;
  while (at < e->count && e->terms[at].coefficient > coefficient) {
    ++at;
  }
  if (at < e->count && e->terms[at].coefficient == coefficient) {
    e->terms[at].min += min, e->terms[at].max += max;
    return;
  }
  memmove(&e->terms[at + 1], &e->terms[at], (size_t)(e->count - at) * sizeof e->terms[0]);
  e->terms[at] = (equation_term){coefficient, min, max};
  ++e->count;
}

/* True if the terms from `at` on can sum to `target`, or if the search takes too long. Coefficients decrease, so in
 * nested views one or two values of each variable are possible. */
static bool can_reach(equation *e, int at, int64_t target) {
  if (at == e->count) {
    return target == 0;
  }
  if (e->steps_left-- <= 0) {
    return true;
  }
  int64_t rest_min = 0, rest_max = 0;
  for (int i = at + 1; i < e->count; ++i) {
    rest_min += e->terms[i].coefficient * e->terms[i].min;
    rest_max += e->terms[i].coefficient * e->terms[i].max;
  }
  const equation_term *term = &e->terms[at];
  int64_t first = -hr_divide_down(rest_max - target, term->coefficient); /* smallest k with target - k*c <= rest_max */
  int64_t last = hr_divide_down(target - rest_min, term->coefficient);
  first = first > term->min ? first : term->min;
  last = last < term->max ? last : term->max;
  for (int64_t k = first; k <= last; ++k) {
    if (can_reach(e, at + 1, target - k * term->coefficient)) {
      return true;
    }
  }
  return false;
}

bool hr_operands_may_overlap(const hr_operand *a, const hr_operand *b) {
  if (a->kind != HR_OPERAND_VALUE || b->kind != HR_OPERAND_VALUE || a->index != b->index) {
    return false;
  }
  if (a->term_count > 0 || b->term_count > 0) {
    return true;
  }
  int64_t size_a = (int64_t)hr_dtype_size(a->dtype), size_b = (int64_t)hr_dtype_size(b->dtype);
  int64_t min_a, max_a, min_b, max_b;
  if (!hr_operand_range(a, &min_a, &max_a) || !hr_operand_range(b, &min_b, &max_b)) {
    return false;
  }
  if ((max_a + 1) * size_a <= min_b * size_b || (max_b + 1) * size_b <= min_a * size_a) {
    return false;
  }
  if (size_a != size_b || a->rank > HR_RANK_MAX || b->rank > HR_RANK_MAX) {
    return true;
  }
  equation e = {.count = 0, .steps_left = 256};
  for (int d = 0; d < a->rank; ++d) {
    add_term(&e, a->strides[d], a->dims[d], 1);
  }
  for (int d = 0; d < b->rank; ++d) {
    add_term(&e, b->strides[d], b->dims[d], -1);
  }
  return can_reach(&e, 0, b->offset - a->offset);
}
