/* shared_calls.c: describes a node in words, and looks the words up.
 *
 * The words of the kinds seen lie one after the other: count, call, description.
 */
#include "engine/shared_calls.h"

#include <string.h>

#include "base/hash.h"
#include "core/ir/dtype.h"

enum { HEAD = 2, ALIGNMENT = 64, WORDS_AT_FIRST = 1000 };

/* An upper bound of the words of a node's description. */
static size_t most_words(const hr_node *node) {
  enum { OF_NODE = 2, OF_OPERAND = 4, OF_EPILOGUE = 1 + HR_EPILOGUE_ARITY_MAX };
  size_t count = OF_NODE + (size_t)node->int_count + OF_EPILOGUE * (size_t)node->epilogue_count;
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    count += OF_OPERAND + 2 * (size_t)hr_node_operand(node, i)->rank;
  }
  return count;
}

/* Each of the functions below writes words, and returns the place of the next one. */

static uint64_t *put_all(uint64_t *at, int count, const int64_t *values) {
  for (int i = 0; i < count; ++i) {
    *at++ = (uint64_t)values[i];
  }
  return at;
}

/* The node's first operand of the same buffer. */
static int first_of_buffer(const hr_node *node, uint32_t buffer) {
  int i = 0;
  while (hr_node_operand(node, i)->kind != HR_OPERAND_VALUE || hr_node_operand(node, i)->index != buffer) {
    ++i;
  }
  return i;
}

/* True for a caller's buffer with contents that the program leaves as they are. */
static bool is_constant(const hr_program *program, const hr_operand *x, uint32_t caller_buffers) {
  return x->index < caller_buffers && program->buffers[x->index].versions == 0;
}

static uint64_t *put_place(uint64_t *at, const hr_program *program, const hr_node *node, const hr_operand *x,
                           uint32_t caller_buffers) {
  const uint64_t made = UINT64_C(1) << 32, dead = UINT64_C(1) << 33;
  if (x->kind != HR_OPERAND_VALUE) {
    *at++ = x->kind == HR_OPERAND_SCALAR ? (uint64_t)program->scalars[x->index].dtype : 0;
    return at;
  }
  if (is_constant(program, x, caller_buffers)) {
    *at++ = x->index;
    *at++ = (uint64_t)x->offset;
    return at;
  }
  int first = first_of_buffer(node, x->index);
  *at++ = made | (program->buffers[x->index].is_dead ? dead : 0) | (uint64_t)first;
  *at++ = (uint64_t)(x->offset - hr_node_operand(node, first)->offset);
  *at++ = (uint64_t)x->offset * hr_dtype_size(x->dtype) % ALIGNMENT;
  return at;
}

static uint64_t *put_operand(uint64_t *at, const hr_program *program, const hr_node *node, const hr_operand *x,
                             uint32_t caller_buffers) {
  *at++ = (uint64_t)x->kind << 32 | (uint64_t)x->dtype << 16 | (uint64_t)x->rank;
  at = put_place(at, program, node, x, caller_buffers);
  return put_all(put_all(at, x->rank, x->dims), x->rank, x->strides);
}

static uint64_t *put_epilogue(uint64_t *at, const hr_epilogue *epilogue) {
  *at++ = (uint64_t)epilogue->op;
  for (int i = 0; i < HR_EPILOGUE_ARITY_MAX; ++i) {
    *at++ = (uint64_t)epilogue->inputs[i];
  }
  return at;
}

/* The node's description. */
static uint64_t *put_node(uint64_t *at, const hr_program *program, const hr_node *node, uint32_t caller_buffers) {
  *at++ = (uint64_t)node->op << 32 | (uint64_t)node->input_count << 16 | (uint64_t)node->output_count;
  *at++ = (uint64_t)node->int_count << 32 | (uint64_t)node->epilogue_count << 16 | (uint64_t)node->scalar_count;
  at = put_all(at, node->int_count, node->ints);
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    at = put_operand(at, program, node, hr_node_operand(node, i), caller_buffers);
  }
  for (int i = 0; i < node->epilogue_count; ++i) {
    at = put_epilogue(at, &node->epilogues[i]);
  }
  return at;
}

static size_t call_at(const hr_shared_calls *calls, size_t at, const uint64_t *words, size_t count) {
  const uint64_t *kind = calls->words.data + at;
  bool is_alike = kind[0] == count && memcmp(kind + HEAD, words, count * sizeof *words) == 0;
  return is_alike ? (size_t)kind[1] : 0;
}

size_t hr__shared_calls_find(hr_shared_calls *calls, const hr_program *program, const hr_node *node,
                             uint32_t caller_buffers, size_t call) {
  size_t at = calls->words.count;
  if (node->input_count + node->output_count + node->scalar_count > HR_SHARED_ARGS_MAX) {
    return 0;
  }
  size_t most = at + HEAD + most_words(node);
  if (!hr_vector_reserve(&calls->words, most > WORDS_AT_FIRST ? most : WORDS_AT_FIRST)) {
    return 0;
  }
  uint64_t *kind = calls->words.data + at, *words = kind + HEAD;
  size_t count = (size_t)(put_node(words, program, node, caller_buffers) - words);
  uint64_t hash = hr_hash_words(HR_HASH_SEED, words, count);
  size_t known = (size_t)(uintptr_t)hr_table_get(&calls->first, hash); /* its place, from 1 */
  if (known != 0) {
    return call_at(calls, known - 1, words, count);
  }
  kind[0] = count, kind[1] = call;
  if (hr_table_put(&calls->first, hash, (void *)(uintptr_t)(at + 1))) {
    calls->words.count += HEAD + count;
  }
  return 0;
}

void hr__shared_calls_fini(hr_shared_calls *calls) {
  hr_table_fini(&calls->first);
  hr_vector_fini(&calls->words);
}
