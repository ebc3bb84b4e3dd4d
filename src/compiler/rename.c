/* rename.c: gives contents of a buffer that the program itself replaces to a temporary.
 *
 *   before   %0 = conv(%1, %2)                        after   %5 = conv(%1, %2)                          (%5 dead)
 *            loop %3 = mul(%0, $0)                            loop %3 = mul(%5, $0)
 *            call(%3)                                         call(%3)
 *            loop %0 = copy(%3)                               loop %0 = copy(%3)
 *
 * DistributedDataParallel does this to each gradient. The temporary can be matched, delivered, kept in registers or get
 * memory that others used before; a visible buffer is written once. Gradients whose last copy is deferred
 * (engine/deferred_copies.h) are dead.
 *
 * Contents are from a node that writes all of the buffer and reads none of it to the next such node. They stay if a
 * node that may fail comes in between: after its failure those of a visible buffer are seen.
 */
#include "compiler/passes.h"
#include "core/ops/op.h"

enum { OUTPUTS_MAX = 64 }; /* of a node; others stay */

typedef struct renamer {
  hr_program *program;
  uint64_t *replaces, *renames; /* of each node, a bit for each output: it replaces a buffer's contents; these are
                                 * replaced in turn */
  int *since;                   /* of each buffer: failures behind the node that next replaces its contents; -1: none */
  int *present;                 /* of each buffer: the buffer that has its present contents; -1: itself */
} renamer;

/* True if another operand of the node is in the buffer of output `i`. */
static bool is_touched_twice(const hr_node *node, int i) {
  for (int k = 0; k < node->input_count + node->output_count; ++k) {
    const hr_operand *x = hr_node_operand(node, k);
    if (k != node->input_count + i && x->kind == HR_OPERAND_VALUE && x->index == node->outputs[i].index) {
      return true;
    }
  }
  return false;
}

/* True if it is visible or begins without contents, and its memory has nothing to do with that of others (rooms.c). */
static bool is_usual(const hr_program_buffer *buffer) {
  return (!buffer->is_dead || buffer->is_fresh) && buffer->rows == 0 && buffer->room == 0 && buffer->takes == 0 &&
         buffer->growth == HR_GROWTH_NONE;
}

/* True if the node writes all of output `i`'s buffer and reads none of it. */
static bool does_replace(const hr_program *program, const hr_node *node, int i) {
  const hr_operand *out = &node->outputs[i];
  return out->kind == HR_OPERAND_VALUE && is_usual(&program->buffers[out->index]) && node->store_mode == HR_STORE_SET &&
         (hr_op_table(node->op)->traits & HR_TRAIT_UPDATES) == 0 &&
         hr_covers_buffer(program, out, node->is_loop ? node->reduce_mask : 0) && !is_touched_twice(node, i);
}

/* From the last node to the first; false if there is nothing to rename. */
static bool find_replaced(const renamer *r) {
  const hr_program *program = r->program;
  bool is_found = false;
  int failures = 0;
  for (int n = program->node_count - 1; n >= 0; --n) {
    const hr_node *node = &program->nodes[n];
    failures += hr_may_fail(node);
    for (int i = 0; i < node->output_count && i < OUTPUTS_MAX; ++i) {
      if (does_replace(program, node, i)) {
        int *since = &r->since[node->outputs[i].index];
        r->replaces[n] |= UINT64_C(1) << i;
        r->renames[n] |= (uint64_t)(*since == failures) << i;
        is_found |= *since == failures;
        *since = failures;
      }
    }
  }
  return is_found;
}

static void rename_operand(const renamer *r, hr_operand *x) {
  if (x->kind == HR_OPERAND_VALUE && r->present[x->index] >= 0) {
    x->index = (uint32_t)r->present[x->index];
  }
}

/* False when memory is out. */
static bool rename_node(const renamer *r, int n) {
  hr_node *node = &r->program->nodes[n];
  for (int i = 0; i < node->input_count; ++i) {
    rename_operand(r, &node->inputs[i]);
  }
  for (int i = 0; i < node->output_count; ++i) {
    uint32_t buffer = node->outputs[i].index;
    if (i < OUTPUTS_MAX && (r->replaces[n] >> i & 1) != 0) {
      r->present[buffer] = -1;
    }
    if (i < OUTPUTS_MAX && (r->renames[n] >> i & 1) != 0) {
      uint32_t temporary = hr_program_add_buffer(r->program, r->program->buffers[buffer].bytes, true, true);
      if (temporary == UINT32_MAX) {
        return false;
      }
      r->present[buffer] = (int)temporary;
    }
    rename_operand(r, &node->outputs[i]);
  }
  return true;
}

static hr_status no_memory(const hr_program *program) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "rename: no memory for %d nodes", program->node_count);
}

hr_status hr_rename(hr_program *program) {
  size_t count = (size_t)program->node_count + 1;
  renamer r = {.program = program,
               .replaces = HR_ARENA_ARRAY(&program->arena, uint64_t, count),
               .renames = HR_ARENA_ARRAY(&program->arena, uint64_t, count),
               .since = hr_program_indices(program, program->buffer_count),
               .present = hr_program_indices(program, program->buffer_count)};
  if (r.replaces == NULL || r.renames == NULL || r.since == NULL || r.present == NULL) {
    return no_memory(program);
  }
  if (!find_replaced(&r)) {
    return HR_OK;
  }
  for (int n = 0; n < program->node_count; ++n) {
    if (!rename_node(&r, n)) {
      return no_memory(program);
    }
  }
  return HR_OK;
}
