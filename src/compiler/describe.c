#include "compiler/describe.h"

#include "core/ir/traffic.h"
#include "core/ops/op.h"

void hr_step_count_cost(const hr_step *step, hr_step_cost *out_cost) {
  *out_cost = (hr_step_cost){0};
  if (step->kind == HR_STEP_KERNEL) {
    for (int a = 0; a < step->kernel->arg_count; ++a) {
      out_cost->bytes_read += step->kernel->args[a].bytes_read;
      out_cost->bytes_written += step->kernel->args[a].bytes_written;
    }
    out_cost->flops = step->kernel->flops;
    return;
  }
  for (int i = 0; i < step->node->input_count; ++i) {
    out_cost->bytes_read += hr_operand_bytes(&step->node->inputs[i]);
  }
  for (int i = 0; i < step->node->output_count; ++i) {
    out_cost->bytes_written += hr_operand_bytes(&step->node->outputs[i]);
  }
  out_cost->flops = hr_node_flops(step->node);
}

void hr_dims_describe(int rank, const int64_t *dims, uint32_t bracket_mask, hr_text *text) {
  bool is_first = true;
  for (int d = 0; d < rank; ++d) {
    if (dims[d] != 1) {
      hr_text_printf(text, (bracket_mask >> d & 1) != 0 ? "%s[%lld]" : "%s%lld", is_first ? "" : "x",
                     (long long)dims[d]);
      is_first = false;
    }
  }
  hr_text_append(text, is_first ? "1" : "");
}

/* All dims: a batch of 1 and a kernel of 1x1 are worth seeing. */
static void describe_factor(const hr_operand *operand, hr_text *text) {
  for (int d = 0; d < operand->rank; ++d) {
    hr_text_printf(text, d == 0 ? "%lld" : "x%lld", (long long)operand->dims[d]);
  }
}

/* Stride and groups, unless they are 1. */
static void describe_convolution(const hr_node *node, hr_text *text) {
  int spatial = node->int_count > 0 ? (int)node->ints[0] : 0;
  if (node->int_count < 2 + 3 * spatial) {
    return;
  }
  int64_t stride = 1;
  for (int d = 0; d < spatial; ++d) {
    stride = node->ints[1 + d] > stride ? node->ints[1 + d] : stride;
  }
  if (stride > 1) {
    hr_text_printf(text, " stride %lld", (long long)stride);
  }
  if (node->ints[1 + 3 * spatial] > 1) {
    hr_text_printf(text, " groups %lld", (long long)node->ints[1 + 3 * spatial]);
  }
}

static void describe_library(const hr_node *node, const char *name, const char *provider, hr_text *text) {
  bool is_contraction = hr_op_table(node->op)->family == HR_FAMILY_CONTRACTION;
  bool is_closure = node->op == HR_OP_CALL && node->ints[0] <= 0; /* which is the last input */
  hr_text_append(text, name != NULL ? name : hr_op_table(node->op)->name);
  for (int i = 0, shown = 0; i < node->input_count - is_closure && shown < (is_contraction ? 2 : 4); ++i) {
    if (node->inputs[i].kind == HR_OPERAND_VALUE) {
      hr_text_append(text, shown++ == 0 ? " " : is_contraction ? " * " : " ");
      describe_factor(&node->inputs[i], text);
    }
  }
  if (hr_op_is_convolution(node->op)) {
    describe_convolution(node, text);
  }
  if (provider != NULL) {
    hr_text_printf(text, " by %s", provider);
  }
  bool has_bias = is_contraction && hr_op_table(node->op)->inputs.max > 2 && node->input_count > 2 &&
                  node->inputs[2].kind == HR_OPERAND_VALUE;
  hr_text_append(text, has_bias ? ", + bias" : node->epilogue_count > 0 ? "," : "");
  for (int p = 0; p < node->epilogue_count; ++p) {
    hr_text_printf(text, " + %s", hr_op_table(node->epilogues[p].op)->name);
  }
}

void hr_step_describe(const hr_step *step, const char *name, const char *provider, hr_text *text) {
  if (step->kind == HR_STEP_KERNEL) {
    hr_text_printf(text, "%s, ", step->kernel->name);
    hr_dims_describe(step->kernel->rank, step->kernel->dims, step->kernel->reduce_mask, text);
  } else if (step->kind == HR_STEP_LIBRARY) {
    describe_library(step->node, name, provider, text);
  } else {
    hr_text_append(text, hr_op_table(step->node->op)->name);
  }
}
