/* uses.c: for each buffer the list of the nodes that touch it. */
#include "compiler/passes.h"

void hr_uses_add(int count, const hr_operand *operands, int n, int *at, int *list) {
  for (int i = 0; i < count; ++i) {
    if (operands[i].kind == HR_OPERAND_VALUE) {
      int *place = &at[operands[i].index];
      if (list != NULL) {
        list[*place] = n;
      }
      ++*place;
    }
  }
}

bool hr_uses_find(hr_program *program, hr_uses *out_uses) {
  size_t buffers = (size_t)program->buffer_count;
  int *first = HR_ARENA_ARRAY(&program->arena, int, buffers + 2), *list = NULL, total = 0;
  for (int is_second = 0; first != NULL && is_second < 2; ++is_second) {
    /* counts of buffer b are at first[b + 2]; afterwards lists grow from first[b + 1] on, which ends at the next one */
    int *at = is_second ? first + 1 : first + 2;
    for (int n = 0; n < program->node_count; ++n) {
      const hr_node *node = &program->nodes[n];
      hr_uses_add(node->input_count, node->inputs, n, at, list);
      hr_uses_add(node->output_count, node->outputs, n, at, list);
    }
    for (size_t b = 0; !is_second && b < buffers; ++b) {
      total += first[b + 2];
      first[b + 2] = total;
    }
    list = is_second ? list : hr_arena_alloc(&program->arena, ((size_t)total + 1) * sizeof *list);
    if (list == NULL) {
      return false;
    }
  }
  *out_uses = (hr_uses){first, list};
  return first != NULL;
}

int hr_uses_after(const hr_uses *uses, uint32_t buffer, int n) {
  int low = uses->first[buffer], end = uses->first[buffer + 1];
  while (low < end) {
    int middle = low + (end - low) / 2;
    *(uses->nodes[middle] <= n ? &low : &end) = uses->nodes[middle] <= n ? middle + 1 : middle;
  }
  return low;
}
