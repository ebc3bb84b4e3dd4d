/* alike.c: groups that lower to the same kernel form, such as an optimizer's for parameters of equal dims.
 *
 * Lowering is a function of a group's domain and nodes. It also reads of each buffer whether it is stored and its size,
 * and of each scalar its value. All of that is written as words, in which buffers and scalars have the numbers of their
 * first use in the group, and versions count from the first one of their buffer: lowering only compares them. A group
 * with the words of an earlier one gets the earlier one's kernel with its own buffers and scalars. The arrays of the
 * two are shared, and nobody may change them.
 *
 * The words hold more than lowering reads, never less: the offsets of two groups' operands, say, must be equal.
 */
#include <string.h>

#include "base/hash.h"
#include "compiler/passes.h"

struct hr_form {
  uint64_t hash;
  size_t word_count;
  const uint64_t *words;
  const hr_kernel *kernel;
  int group;                           /* the kernel's */
  const int *arg_names, *scalar_names; /* numbers within the group */
};

void hr_alike_fini(hr_alike *a) {
  hr_vector_fini(&a->words);
  hr_vector_fini(&a->forms);
  hr_vector_fini(&a->buffers);
  hr_vector_fini(&a->scalars);
}

/* Of the domain and the operations: most groups have their own, and need no words. */
static uint64_t outline_of(const hr_program *program, const hr_group *group) {
  uint64_t h = hr_hash_mix(HR_HASH_SEED, (uint64_t)group->domain.rank << 32 | (uint64_t)group->node_count);
  for (int d = 0; d < group->domain.rank; ++d) {
    h = hr_hash_mix(h, (uint64_t)group->domain.dims[d]);
  }
  for (int k = 0; k < group->node_count; ++k) {
    const hr_node *node = &program->nodes[group->nodes[k]];
    h = hr_hash_mix(h, (uint64_t)node->op | (uint64_t)node->epilogue_count << 32);
  }
  return h;
}

/* Marks the groups whose outline is also another's, by a table of the first group of each outline. */
static bool find_repeated(hr_alike *a, const hr_fusion *fusion) {
  const int count = fusion->group_count;
  size_t mask = 1;
  while (mask < 2 * (size_t)count) {
    mask = 2 * mask + 1;
  }
  int *first = hr_program_indices(a->program, (int)mask);
  uint64_t *outlines = hr_arena_alloc(&a->program->arena, ((size_t)count + 1) * sizeof *outlines);
  a->is_repeated = HR_ARENA_ARRAY(&a->program->arena, bool, (size_t)count + 1);
  if (first == NULL || outlines == NULL || a->is_repeated == NULL) {
    return false;
  }
  for (int g = 0; g < count; ++g) {
    if (!fusion->groups[g].is_loop) {
      continue;
    }
    outlines[g] = outline_of(a->program, &fusion->groups[g]);
    size_t at = outlines[g] & mask;
    while (first[at] >= 0 && outlines[first[at]] != outlines[g]) {
      at = (at + 1) & mask;
    }
    if (first[at] >= 0) {
      a->is_repeated[first[at]] = a->is_repeated[g] = true;
    } else {
      first[at] = g;
    }
  }
  return true;
}

bool hr_alike_init(hr_alike *a, hr_program *program, const hr_fusion *fusion, const hr_liveness *liveness) {
  *a = (hr_alike){.program = program, .liveness = liveness};
  a->buffer_names = hr_program_indices(program, program->buffer_count);
  a->scalar_names = hr_program_indices(program, program->scalar_count);
  a->first_versions = hr_arena_alloc(&program->arena, ((size_t)program->buffer_count + 1) * sizeof *a->first_versions);
  return a->buffer_names != NULL && a->scalar_names != NULL && a->first_versions != NULL && find_repeated(a, fusion);
}

/* Room for `count` words that are put next; NULL when memory is out. The place of the next word is no member: words may
 * be those of any object, so that each would be stored and loaded again. */
static uint64_t *begin_words(hr_alike *a, size_t count) {
  a->failed |= !hr_vector_reserve(&a->words, a->words.count + count);
  return a->failed ? NULL : a->words.data + a->words.count;
}

static void end_words(hr_alike *a, const uint64_t *at) {
  a->words.count = (size_t)(at - a->words.data);
}

#define PUT(word) (*at++ = (uint64_t)(word))

static inline uint64_t *put_list(uint64_t *at, int count, const int64_t *list) {
  for (int i = 0; i < count; ++i) {
    PUT(list[i]);
  }
  return at;
}

/* The number of the operand's buffer in the group, and its version. */
static inline uint64_t name_value(hr_alike *a, const hr_operand *x) {
  if (a->buffer_names[x->index] < 0) {
    a->buffer_names[x->index] = (int)a->buffers.count;
    a->first_versions[x->index] = x->version;
    a->failed |= !hr_vector_push(&a->buffers, x->index);
  }
  return (uint64_t)a->buffer_names[x->index] << 32 | (uint32_t)(x->version - a->first_versions[x->index]);
}

static uint64_t name_scalar(hr_alike *a, uint32_t scalar) {
  if (scalar == HR_NO_SCALAR) {
    return HR_NO_SCALAR;
  }
  if (a->scalar_names[scalar] < 0) {
    a->scalar_names[scalar] = (int)a->scalars.count;
    a->failed |= !hr_vector_push(&a->scalars, scalar);
  }
  return (uint64_t)a->scalar_names[scalar];
}

/* The most words of an operand. */
static inline size_t count_words(const hr_operand *x) {
  enum { HEAD = 4, TERM = 3, BOUND = 2 };
  return HEAD + (size_t)x->rank + (size_t)x->term_count * TERM + (size_t)x->bound_count * (BOUND + (size_t)x->rank);
}

static uint64_t *put_places(hr_alike *a, uint64_t *at, const hr_operand *x) {
  at = put_list(at, x->rank, x->strides);
  for (int t = 0; t < x->term_count; ++t) {
    PUT(x->terms[t].input), PUT(x->terms[t].stride), PUT(x->terms[t].extent);
  }
  for (int k = 0; k < x->bound_count; ++k) {
    PUT(x->bounds[k].offset), PUT(x->bounds[k].extent);
    at = put_list(at, x->rank, x->bounds[k].strides);
  }
  if (x->bound_count > 0) {
    PUT(name_scalar(a, x->fill));
  }
  return at;
}

static uint64_t *put_operand(hr_alike *a, uint64_t *at, const hr_operand *x) {
  PUT((uint64_t)x->kind | (uint64_t)x->dtype << 8 | (uint64_t)x->rank << 16 | (uint64_t)x->term_count << 24 |
      (uint64_t)x->bound_count << 44);
  if (x->kind == HR_OPERAND_VALUE) {
    PUT(name_value(a, x));
  } else if (x->kind == HR_OPERAND_SCALAR) {
    PUT(name_scalar(a, x->index));
  }
  if (x->kind == HR_OPERAND_VALUE || x->kind == HR_OPERAND_INDEX) {
    PUT(x->offset);
    at = put_places(a, at, x);
  }
  return at;
}

static uint64_t *put_rows(uint64_t *at, const hr_node *node) {
  for (int i = 0; i < node->epilogue_count; ++i) {
    const hr_epilogue *row = &node->epilogues[i];
    PUT((uint64_t)row->op | (uint64_t)row->output << 32);
    for (int k = 0; k < HR_EPILOGUE_ARITY_MAX; ++k) {
      PUT(row->inputs[k]);
    }
  }
  return at;
}

static void put_node(hr_alike *a, const hr_node *node) {
  size_t most = 2 + (size_t)node->outputs[0].rank + (size_t)node->epilogue_count * (1 + HR_EPILOGUE_ARITY_MAX);
  for (int i = 0; i < node->output_count; ++i) {
    most += count_words(&node->outputs[i]);
  }
  for (int i = 0; i < node->input_count; ++i) {
    most += count_words(&node->inputs[i]);
  }
  uint64_t *at = begin_words(a, most);
  if (at == NULL) {
    return;
  }
  PUT((uint64_t)node->op | (uint64_t)node->store_mode << 16 | (uint64_t)node->input_count << 20 |
      (uint64_t)node->output_count << 40 | (uint64_t)node->epilogue_count << 52);
  PUT((uint64_t)node->reduce_mask << 32 | node->ordered_mask);
  at = put_list(at, node->outputs[0].rank, node->outputs[0].dims);
  for (int i = 0; i < node->output_count; ++i) {
    at = put_operand(a, at, &node->outputs[i]);
  }
  for (int i = 0; i < node->input_count; ++i) {
    at = put_operand(a, at, &node->inputs[i]);
  }
  end_words(a, put_rows(at, node));
}

/* The facts about the group's buffers and scalars. */
static void put_names(hr_alike *a, int group) {
  enum { BUFFER = 2, SCALAR = 1 + sizeof(hr_scalar) / sizeof(uint64_t) };
  uint64_t *at = begin_words(a, a->buffers.count * BUFFER + a->scalars.count * SCALAR);
  if (at == NULL) {
    return;
  }
  for (size_t i = 0; i < a->buffers.count; ++i) {
    uint32_t b = a->buffers.data[i];
    bool is_last = a->program->buffers[b].is_dead && a->liveness->group_last[b] == group;
    PUT(a->program->buffers[b].bytes);
    PUT((uint64_t)is_last | (uint64_t)a->liveness->is_elided[b] << 1);
  }
  for (size_t i = 0; i < a->scalars.count; ++i) {
    const hr_program_scalar *scalar = &a->program->scalars[a->scalars.data[i]];
    uint64_t value[sizeof scalar->value.value / sizeof(uint64_t)] = {0};
    if (scalar->is_constant) {
      memcpy(value, &scalar->value.value, sizeof value);
    }
    PUT((uint64_t)scalar->dtype << 1 | scalar->is_constant);
    for (size_t w = 0; w < sizeof value / sizeof *value; ++w) {
      PUT(value[w]);
    }
  }
  end_words(a, at);
}

static void begin_group(hr_alike *a) {
  for (size_t i = 0; i < a->buffers.count; ++i) {
    a->buffer_names[a->buffers.data[i]] = -1;
  }
  for (size_t i = 0; i < a->scalars.count; ++i) {
    a->scalar_names[a->scalars.data[i]] = -1;
  }
  hr_vector_clear(&a->words);
  hr_vector_clear(&a->buffers);
  hr_vector_clear(&a->scalars);
}

/* The earlier form with the buffers and scalars of the present group; NULL when memory is out. */
static const hr_kernel *bind(const hr_alike *a, const hr_form *form) {
  hr_arena *arena = &a->program->arena;
  const hr_kernel *from = form->kernel;
  hr_kernel *kernel = hr_arena_dup(arena, from, sizeof *from);
  hr_kernel_arg *args = hr_arena_dup(arena, from->args, (size_t)from->arg_count * sizeof *args);
  uint32_t *scalars = hr_arena_dup(arena, from->scalars, (size_t)from->scalar_count * sizeof *scalars);
  if (kernel == NULL || args == NULL || scalars == NULL) {
    return NULL;
  }
  for (int i = 0; i < from->arg_count; ++i) {
    args[i].buffer = a->buffers.data[form->arg_names[i]];
  }
  for (int i = 0; i < from->scalar_count; ++i) {
    scalars[i] = a->scalars.data[form->scalar_names[i]];
  }
  kernel->args = args;
  kernel->scalars = scalars;
  return kernel;
}

const hr_kernel *hr_alike_find(hr_alike *a, const hr_group *group, int index, int *out_like) {
  const hr_domain *domain = &group->domain;
  a->is_single = !a->is_repeated[index];
  if (a->is_single) {
    return NULL;
  }
  begin_group(a);
  uint64_t *at = begin_words(a, 2 + (size_t)domain->rank);
  if (at == NULL) {
    return NULL;
  }
  PUT((uint64_t)domain->rank << 32 | (uint64_t)group->node_count);
  PUT((uint64_t)domain->reduce_mask << 32 | domain->ordered_mask);
  end_words(a, put_list(at, domain->rank, domain->dims));
  for (int k = 0; k < group->node_count; ++k) {
    put_node(a, &a->program->nodes[group->nodes[k]]);
  }
  put_names(a, index);
  if (a->failed) {
    return NULL;
  }
  a->hash = hr_hash_words(HR_HASH_SEED, a->words.data, a->words.count);
  for (size_t i = 0; i < a->forms.count; ++i) {
    const hr_form *form = &a->forms.data[i];
    if (form->hash == a->hash && form->word_count == a->words.count &&
        memcmp(form->words, a->words.data, a->words.count * sizeof *a->words.data) == 0) {
      *out_like = form->group + 1;
      return bind(a, form);
    }
  }
  return NULL;
}

bool hr_alike_add(hr_alike *a, const hr_kernel *kernel, int index) {
  if (a->is_single) {
    return true;
  }
  hr_arena *arena = &a->program->arena;
  int *arg_names = hr_arena_alloc(arena, (size_t)kernel->arg_count * sizeof *arg_names);
  int *scalar_names = hr_arena_alloc(arena, (size_t)kernel->scalar_count * sizeof *scalar_names);
  const uint64_t *words = hr_arena_dup(arena, a->words.data, a->words.count * sizeof *words);
  if (a->failed || arg_names == NULL || scalar_names == NULL || words == NULL) {
    return false;
  }
  for (int i = 0; i < kernel->arg_count; ++i) {
    arg_names[i] = a->buffer_names[kernel->args[i].buffer];
  }
  for (int i = 0; i < kernel->scalar_count; ++i) {
    scalar_names[i] = a->scalar_names[kernel->scalars[i]];
  }
  return hr_vector_push(&a->forms, (hr_form){a->hash, a->words.count, words, kernel, index, arg_names, scalar_names});
}
