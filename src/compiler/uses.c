/* uses.c: for each node the buffers that it touches, and for each buffer the nodes that touch it. */
#include "compiler/passes.h"

static int count_operands(const hr_program *program) {
  int count = 0;
  for (int n = 0; n < program->node_count; ++n) {
    count += program->nodes[n].input_count + program->nodes[n].output_count;
  }
  return count;
}

/* Appends the operands that are values; `number` is that of the first one. Returns the new end. */
static hr_touch *add(int count, const hr_operand *operands, int number, bool is_write, hr_touch *end) {
  for (int i = 0; i < count; ++i) {
    if (operands[i].kind == HR_OPERAND_VALUE) {
      *end++ = (hr_touch){operands[i].index, (uint32_t)(number + i), is_write};
    }
  }
  return end;
}

static bool find_touches(hr_program *program, bool numbers, hr_touches *out_touches) {
  const int nodes = program->node_count;
  int *first = hr_arena_alloc(&program->arena, ((size_t)nodes + 1) * sizeof *first);
  hr_touch *all = hr_arena_alloc(&program->arena, ((size_t)count_operands(program) + 1) * sizeof *all), *end = all;
  if (first == NULL || all == NULL) {
    return false;
  }
  for (int n = 0; n < nodes; ++n) {
    hr_node *node = &program->nodes[n];
    first[n] = (int)(end - all);
    if (numbers) {
      hr_versions_add(program, node);
    }
    end = add(node->input_count, node->inputs, 0, false, end);
    end = add(node->output_count, node->outputs, node->input_count, true, end);
  }
  first[nodes] = (int)(end - all);
  *out_touches = (hr_touches){first, all};
  return true;
}

bool hr_touches_find(hr_program *program, hr_touches *out_touches) {
  return find_touches(program, false, out_touches);
}

bool hr_versions_and_touches(hr_program *program, hr_touches *out_touches) {
  hr_versions_begin(program);
  return find_touches(program, true, out_touches);
}

/* ---- by buffers ---- */

/* Lists of reads and writes together, or apart in out_uses[0] and out_uses[1]. Counts of buffer b are at first[b + 2];
 * afterwards its list grows from first[b + 1] on, which ends at the next one. */
static bool list_uses(hr_program *program, const hr_touches *touches, bool apart, hr_uses *out_uses) {
  const size_t buffers = (size_t)program->buffer_count;
  const hr_touch *all = touches->all, *end = all + touches->first[program->node_count], *t;
  int *first[2], *nodes[2];
  for (int list = 0; list <= apart; ++list) {
    first[list] = HR_ARENA_ARRAY(&program->arena, int, buffers + 2);
    nodes[list] = hr_arena_alloc(&program->arena, ((size_t)(end - all) + 1) * sizeof(int));
    if (first[list] == NULL || nodes[list] == NULL) {
      return false;
    }
  }
  for (t = all; t < end; ++t) {
    ++first[apart & t->is_write][t->buffer + 2];
  }
  for (int list = 0; list <= apart; ++list) {
    for (size_t b = 2; b < buffers + 2; ++b) {
      first[list][b] += first[list][b - 1];
    }
    out_uses[list] = (hr_uses){first[list], nodes[list]};
  }
  t = all;
  for (int n = 0; n < program->node_count; ++n) {
    for (end = all + touches->first[n + 1]; t < end; ++t) {
      int list = apart & t->is_write;
      nodes[list][first[list][t->buffer + 1]++] = n;
    }
  }
  return true;
}

bool hr_uses_find(hr_program *program, hr_uses *out_uses) {
  hr_touches touches;
  return hr_touches_find(program, &touches) && list_uses(program, &touches, false, out_uses);
}

bool hr_uses_find_apart(hr_program *program, const hr_touches *touches, hr_uses *out_reads, hr_uses *out_writes) {
  hr_uses uses[2];
  bool ok = list_uses(program, touches, true, uses);
  if (ok) {
    *out_reads = uses[0], *out_writes = uses[1];
  }
  return ok;
}

int hr_uses_after(const hr_uses *uses, uint32_t buffer, int n) {
  int low = uses->first[buffer], end = uses->first[buffer + 1];
  while (low < end) {
    int middle = low + (end - low) / 2;
    *(uses->nodes[middle] <= n ? &low : &end) = uses->nodes[middle] <= n ? middle + 1 : middle;
  }
  return low;
}
