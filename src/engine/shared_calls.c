/* shared_calls.c: describes a node in words, and looks the words up.
 *
 * The words of the kinds seen lie one after the other: count, call, description.
 */
#include "engine/shared_calls.h"

#include <string.h>

#include "base/hash.h"
#include "core/ir/dtype.h"

enum { HEAD = 2, ALIGNMENT = 64, WORDS_AT_FIRST = 1000 };

static bool add(hr_shared_calls *calls, uint64_t word) {
  return hr_vector_push(&calls->words, word);
}

static bool add_all(hr_shared_calls *calls, int count, const int64_t *values) {
  bool ok = true;
  for (int i = 0; ok && i < count; ++i) {
    ok = add(calls, (uint64_t)values[i]);
  }
  return ok;
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

static bool add_place(hr_shared_calls *calls, const hr_program *program, const hr_node *node, const hr_operand *x,
                      uint32_t caller_buffers) {
  const uint64_t made = UINT64_C(1) << 32, dead = UINT64_C(1) << 33;
  if (x->kind != HR_OPERAND_VALUE) {
    return add(calls, x->kind == HR_OPERAND_SCALAR ? (uint64_t)program->scalars[x->index].dtype : 0);
  }
  if (is_constant(program, x, caller_buffers)) {
    return add(calls, x->index) && add(calls, (uint64_t)x->offset);
  }
  int first = first_of_buffer(node, x->index);
  int64_t from_first = x->offset - hr_node_operand(node, first)->offset;
  uint64_t bytes = (uint64_t)x->offset * hr_dtype_size(x->dtype);
  return add(calls, made | (program->buffers[x->index].is_dead ? dead : 0) | (uint64_t)first) &&
         add(calls, (uint64_t)from_first) && add(calls, bytes % ALIGNMENT);
}

static bool add_operand(hr_shared_calls *calls, const hr_program *program, const hr_node *node, const hr_operand *x,
                        uint32_t caller_buffers) {
  bool ok = add(calls, (uint64_t)x->kind << 32 | (uint64_t)x->dtype << 16 | (uint64_t)x->rank) &&
            add_place(calls, program, node, x, caller_buffers);
  return ok && add_all(calls, x->rank, x->dims) && add_all(calls, x->rank, x->strides);
}

static bool add_epilogue(hr_shared_calls *calls, const hr_epilogue *epilogue) {
  bool ok = add(calls, (uint64_t)epilogue->op);
  for (int i = 0; ok && i < HR_EPILOGUE_ARITY_MAX; ++i) {
    ok = add(calls, (uint64_t)epilogue->inputs[i]);
  }
  return ok;
}

/* Appends the node's description; false if there is no memory. */
static bool describe(hr_shared_calls *calls, const hr_program *program, const hr_node *node, uint32_t caller_buffers) {
  int operands = node->input_count + node->output_count;
  bool ok = add(calls, (uint64_t)node->op << 32 | (uint64_t)node->input_count << 16 | (uint64_t)node->output_count) &&
            add(calls, (uint64_t)node->int_count << 32 | (uint64_t)node->epilogue_count << 16 |
                           (uint64_t)node->scalar_count) &&
            add_all(calls, node->int_count, node->ints);
  for (int i = 0; ok && i < operands; ++i) {
    ok = add_operand(calls, program, node, hr_node_operand(node, i), caller_buffers);
  }
  for (int i = 0; ok && i < node->epilogue_count; ++i) {
    ok = add_epilogue(calls, &node->epilogues[i]);
  }
  return ok;
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
  bool ok = hr_vector_reserve(&calls->words, WORDS_AT_FIRST) && add(calls, 0) && add(calls, call) &&
            describe(calls, program, node, caller_buffers);
  if (ok) {
    const uint64_t *words = calls->words.data + at + HEAD;
    size_t count = calls->words.count - at - HEAD;
    uint64_t hash = hr_hash_words(HR_HASH_SEED, words, count);
    size_t known = (size_t)(uintptr_t)hr_table_get(&calls->first, hash); /* its place, from 1 */
    calls->words.data[at] = count;
    size_t found = known != 0 ? call_at(calls, known - 1, words, count) : 0;
    if (known == 0 && hr_table_put(&calls->first, hash, (void *)(uintptr_t)(at + 1))) {
      return 0;
    }
    calls->words.count = at;
    return found;
  }
  calls->words.count = at;
  return 0;
}

void hr__shared_calls_fini(hr_shared_calls *calls) {
  hr_table_fini(&calls->first);
  hr_vector_fini(&calls->words);
}
