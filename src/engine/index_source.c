/* index_source.c: walks from a check back to the source of its indices. hr_emit_check_index emitted the chain:
 *
 *   i64 = copy(index)                    unless they are i64
 *   bad = (i64 < lower | i64 >= upper) [& i64 != except]
 *   worst = amax(where(bad, max(i64, INT64_MIN + 1), INT64_MIN))     without max if they are of fewer bits
 */
#include "engine/index_source.h"

#include "core/ir/dtype.h"

/* ---- the source of a check's indices ---- */

/* True if the operand is each element of the buffer once, in order. */
static bool is_whole(const hr_program *program, const hr_operand *operand) {
  int64_t count = 1;
  for (int d = operand->rank - 1; d >= 0; --d) {
    if (operand->dims[d] != 1 && operand->strides[d] != count) {
      return false;
    }
    count *= operand->dims[d];
  }
  return operand->offset == 0 &&
         (size_t)count * hr_dtype_size(operand->dtype) == program->buffers[operand->index].bytes;
}

static bool is_plain(const hr_operand *operand) {
  return operand->term_count == 0 && operand->bound_count == 0;
}

/* The node before `reader` that made the operand's contents; NULL: they are older than the program. */
static const hr_node *maker_of(const hr_program *program, const hr_node *reader, const hr_operand *operand) {
  for (const hr_node *node = reader; operand->version > 0 && node-- > program->nodes;) {
    for (int i = 0; i < node->output_count; ++i) {
      const hr_operand *output = &node->outputs[i];
      if (output->kind == HR_OPERAND_VALUE && output->index == operand->index && output->version == operand->version) {
        return node;
      }
    }
  }
  return NULL;
}

static bool is_number(const hr_program *program, const hr_operand *operand, int64_t number) {
  const hr_program_scalar *scalar = operand->kind == HR_OPERAND_SCALAR ? &program->scalars[operand->index] : NULL;
  return scalar != NULL && scalar->is_constant && scalar->value.dtype == HR_DTYPE_I64 &&
         scalar->value.value.i == number;
}

/* The operand whose numbers a node passes on, all of them and no others; NULL: it computes new ones. A maximum may pass
 * on every number of its operand. */
static const hr_operand *passed_on(const hr_program *program, const hr_node *node) {
  bool is_loop = node->is_loop && node->output_count == 1 && is_plain(&node->outputs[0]) && node->ordered_mask == 0;
  bool is_maximum = is_loop && node->op == HR_OP_AMAX && node->input_count == 1;
  bool is_copy = is_loop && node->op == HR_OP_COPY && node->input_count == 1 && node->outputs[0].dtype == HR_DTYPE_I64;
  if (is_loop && node->op == HR_OP_WHERE) {
    return is_number(program, &node->inputs[2], INT64_MIN) ? &node->inputs[1] : NULL;
  }
  if (is_loop && node->op == HR_OP_MAXIMUM) { /* the check's own, which all indices but one pass */
    return is_number(program, &node->inputs[1], INT64_MIN + 1) ? &node->inputs[0] : NULL;
  }
  return is_maximum || (is_copy && is_whole(program, &node->outputs[0])) ? &node->inputs[0] : NULL;
}

static bool is_count(const hr_program *program, const hr_node *node) {
  return node->is_loop && node->op == HR_OP_ADD_SCALED && node->output_count == 1 &&
         node->outputs[0].dtype == HR_DTYPE_I64 && is_plain(&node->outputs[0]) &&
         is_whole(program, &node->outputs[0]) && node->outputs[0].rank == 1 && node->inputs[1].offset == 0 &&
         node->inputs[0].kind == HR_OPERAND_SCALAR && node->inputs[1].kind == HR_OPERAND_INDEX &&
         node->inputs[1].strides[0] == 1 && node->inputs[2].kind == HR_OPERAND_SCALAR;
}

hr_index_source hr__index_source_find(const hr_program *program, const hr_node *check) {
  const hr_index_source unknown = {HR_INDEX_UNKNOWN};
  const hr_operand *operand = &check->inputs[0];
  const hr_node *maker = maker_of(program, check, operand);
  bool is_check = false; /* the operation's own check, not one that a user has recorded */
  while (maker != NULL && is_plain(operand)) {
    is_check |= maker->op == HR_OP_WHERE && maker->origin == check->origin;
    if (is_check && is_count(program, maker)) {
      return (hr_index_source){.kind = HR_INDEX_COUNT,
                               .dtype = HR_DTYPE_I64,
                               .start = maker->inputs[0].index,
                               .step = maker->inputs[2].index,
                               .count = maker->outputs[0].dims[0]};
    }
    operand = passed_on(program, maker);
    if (operand == NULL || operand->kind != HR_OPERAND_VALUE) {
      return unknown;
    }
    maker = maker_of(program, maker, operand);
  }
  bool is_known = is_check && hr__host_range_covers(operand->dtype) && is_plain(operand) && operand->version == 0 &&
                  operand->index < (uint32_t)program->bound_count && program->buffers[operand->index].layout == 0;
  return is_known ? (hr_index_source){.kind = HR_INDEX_BUFFER, .dtype = operand->dtype, .buffer = operand->index}
                  : unknown;
}

/* ---- known ranges ---- */

void hr__index_source_note(hr_buffer *buffer, hr_dtype dtype, const void *values, size_t bytes) {
  bool is_all = bytes == buffer->bytes; /* a part does not bound the rest */
  uint64_t stamp = atomic_load_explicit(&buffer->stamp, memory_order_relaxed);
  hr_mutex_lock(&buffer->device->order_mutex);
  hr__host_range_note(&buffer->range, stamp, dtype, values, is_all ? bytes : 0);
  hr_mutex_unlock(&buffer->device->order_mutex);
}

void hr__index_source_note_seen(hr_buffer *buffer, uint64_t stamp, hr_dtype dtype, const void *values, size_t bytes) {
  bool is_known = stamp != 0 && stamp == atomic_load_explicit(&buffer->stamp, memory_order_relaxed);
  if (is_known && bytes == buffer->bytes && bytes <= HR_INDEX_SEEN_BYTES_MAX && hr__host_range_covers(dtype)) {
    hr__index_source_note(buffer, dtype, values, bytes);
  }
}

static bool count_range(const hr_index_source *source, const hr_scalar *values, int64_t *out_min, int64_t *out_max) {
  const hr_scalar *start = &values[source->start], *step = &values[source->step];
  int64_t algorithm, last;
  if (start->dtype != HR_DTYPE_I64 || step->dtype != HR_DTYPE_I64 ||
      __builtin_mul_overflow(step->value.i, source->count - 1, &algorithm) ||
      __builtin_add_overflow(start->value.i, algorithm, &last)) {
    return false;
  }
  *out_min = algorithm < 0 ? last : start->value.i;
  *out_max = algorithm < 0 ? start->value.i : last;
  return true;
}

bool hr__index_source_range(const hr_index_source *source, hr_buffer *const *buffers, const uint64_t *stamps,
                            const hr_scalar *values, int64_t *out_min, int64_t *out_max) {
  if (source->kind == HR_INDEX_COUNT) {
    return count_range(source, values, out_min, out_max);
  }
  const hr_buffer *buffer =
      source->kind == HR_INDEX_BUFFER && buffers != NULL && stamps != NULL ? buffers[source->buffer] : NULL;
  if (buffer == NULL) {
    return false;
  }
  hr_mutex_lock(&buffer->device->order_mutex);
  bool is_known = hr__host_range_find(&buffer->range, stamps[source->buffer], source->dtype, out_min, out_max);
  hr_mutex_unlock(&buffer->device->order_mutex);
  return is_known;
}
