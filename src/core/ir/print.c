/* The text form of programs: one line for each buffer, scalar and node. See parse.c for the grammar. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/ir/program.h"
#include "core/ops/op.h"

static const char *const store_modes[] = {"set", "add", "mul", "max", "min"};

void hr__print_list(hr_text *text, const char *open, int count, const int64_t *items, const char *close) {
  hr_text_append(text, open);
  for (int i = 0; i < count; ++i) {
    hr_text_printf(text, i > 0 ? ",%lld" : "%lld", (long long)items[i]);
  }
  hr_text_append(text, close);
}

/* The shortest of the usual forms that reads back to the same bits (NaN: any NaN). */
static void print_f64(hr_text *text, double value) {
  size_t start = text->length;
  if (isnan(value)) {
    hr_text_append(text, "nan");
    return;
  }
  for (int precision = 15; precision <= 17; ++precision) {
    hr_text_cut(text, start);
    if (!hr_text_printf(text, "%.*g", precision, value) || hr_text_number(text->data + start, NULL) == value) {
      break;
    }
  }
}

static void print_value(hr_text *text, hr_scalar scalar) {
  switch (scalar.dtype) {
    case HR_DTYPE_BOOL:
    case HR_DTYPE_I64:
      hr_text_printf(text, "%lld", (long long)scalar.value.i);
      return;
    case HR_DTYPE_U64:
      hr_text_printf(text, "%llu", (unsigned long long)scalar.value.u);
      return;
    case HR_DTYPE_C128:
      hr_text_char(text, '(');
      print_f64(text, scalar.value.f[0]);
      hr_text_char(text, ',');
      print_f64(text, scalar.value.f[1]);
      hr_text_char(text, ')');
      return;
    default:
      print_f64(text, scalar.value.f[0]);
      return;
  }
}

static void print_declarations(hr_text *text, const hr_program *program) {
  for (int i = 0; i < program->buffer_count; ++i) {
    const hr_program_buffer *buffer = &program->buffers[i];
    hr_text_printf(text, "buffer %%%d %zu %s%s%s", i, buffer->bytes, buffer->is_dead ? "dead" : "live",
                   buffer->is_fresh ? " fresh" : "", i >= program->bound_count ? " made" : "");
    hr_text_append(text, buffer->is_free && !buffer->is_dead ? " free" : "");
    if (buffer->layout != 0) {
      hr_buffer_layout layout = hr_layout_unpack(buffer->layout);
      hr_text_printf(text, " layout(%zu,%lld,%lld)", layout.element_bytes, (long long)layout.channels,
                     (long long)layout.inner);
    }
    if (buffer->versions > 0) {
      hr_text_printf(text, " versions %u", buffer->versions);
    }
    hr_text_char(text, '\n');
  }
  uint32_t next_argument = 0;
  for (int i = 0; i < program->scalar_count; ++i) {
    const hr_program_scalar *scalar = &program->scalars[i];
    hr_text_printf(text, "scalar $%d %s", i, hr_dtype_name(scalar->dtype));
    if (scalar->is_constant) {
      hr_text_append(text, " = ");
      print_value(text, scalar->value);
    } else {
      if (scalar->argument != next_argument) {
        hr_text_printf(text, " argument %u", scalar->argument);
      }
      next_argument = scalar->argument + 1;
    }
    hr_text_char(text, '\n');
  }
}

static void print_operand(hr_text *text, const hr_node *node, const hr_operand *x) {
  switch (x->kind) {
    case HR_OPERAND_NONE:
      hr_text_char(text, '_');
      return;
    case HR_OPERAND_SCALAR:
      hr_text_printf(text, "$%u", x->index);
      if (!node->is_loop && x->rank > 0) {
        hr__print_list(text, "[", x->rank, x->dims, "]");
      }
      break;
    case HR_OPERAND_VALUE:
      hr_text_printf(text, "%%%u", x->index);
      if (x->version > 0) {
        hr_text_printf(text, ".%u", x->version);
      }
      break;
    case HR_OPERAND_INDEX:
      hr_text_char(text, '#');
      break;
  }
  if (x->kind != HR_OPERAND_SCALAR) {
    hr_text_printf(text, ":%s", hr_dtype_name(x->dtype));
    hr__print_list(text, "[", x->rank, x->dims, "]");
    hr__print_list(text, "{", x->rank, x->strides, "}");
    hr_text_printf(text, "+%lld", (long long)x->offset);
  }
  for (int i = 0; i < x->term_count; ++i) {
    const hr_index_term *term = &x->terms[i];
    hr_text_printf(text, "@%d*%lld<%lld", term->input, (long long)term->stride, (long long)term->extent);
  }
  for (int i = 0; i < x->bound_count; ++i) {
    hr__print_list(text, "?{", x->rank, x->bounds[i].strides, "}");
    hr_text_printf(text, "+%lld<%lld", (long long)x->bounds[i].offset, (long long)x->bounds[i].extent);
  }
  if (x->fill != HR_NO_SCALAR) {
    hr_text_printf(text, "!$%u", x->fill);
  }
}

static void print_operands(hr_text *text, const hr_node *node, int count, const hr_operand *operands) {
  for (int i = 0; i < count; ++i) {
    if (i > 0) {
      hr_text_append(text, ", ");
    }
    print_operand(text, node, &operands[i]);
  }
}

static void print_epilogue(hr_text *text, const hr_epilogue *epilogue) {
  if (epilogue->output >= 0) {
    hr_text_printf(text, " to(%d)", epilogue->output);
  }
  hr_text_printf(text, " then(%s", hr_op_table(epilogue->op)->name);
  for (int i = 0; i < hr_op_table(epilogue->op)->arity; ++i) {
    if (epilogue->inputs[i] == HR_EPILOGUE_VALUE) {
      hr_text_append(text, ",^");
    } else if (epilogue->inputs[i] < 0) {
      hr_text_printf(text, ",^%d", HR_EPILOGUE_ROW(epilogue->inputs[i]));
    } else {
      hr_text_printf(text, ",%d", epilogue->inputs[i]);
    }
  }
  hr_text_char(text, ')');
}

static void print_node(hr_text *text, const hr_node *node, uint32_t number) {
  hr_text_append(text, node->is_loop ? "loop " : "");
  print_operands(text, node, node->output_count, node->outputs);
  hr_text_append(text, node->output_count > 0 ? " = " : "");
  hr_text_append(text, hr_op_table(node->op)->name);
  hr_text_char(text, '(');
  print_operands(text, node, node->input_count, node->inputs);
  hr_text_char(text, ')');
  if (node->int_count > 0) {
    hr__print_list(text, " ints(", node->int_count, node->ints, ")");
  }
  for (int i = 0; i < node->epilogue_count; ++i) {
    print_epilogue(text, &node->epilogues[i]);
  }
  if (node->scalar_count > 0) {
    hr_text_append(text, " scalars(");
    for (int i = 0; i < node->scalar_count; ++i) {
      hr_text_printf(text, i > 0 ? ",$%u" : "$%u", node->scalar_base + (uint32_t)i);
    }
    hr_text_char(text, ')');
  }
  if (node->reduce_mask != 0) {
    hr_text_printf(text, " reduce(%u)", node->reduce_mask);
  }
  if (node->ordered_mask != 0) {
    hr_text_printf(text, " ordered(%u)", node->ordered_mask);
  }
  if (node->store_mode != HR_STORE_SET) {
    hr_text_printf(text, " store(%s)", store_modes[node->store_mode]);
  }
  if (node->origin != number) {
    hr_text_printf(text, " origin(%u)", node->origin);
  }
  hr_text_char(text, '\n');
}

hr_status hr_program_print(const hr_program *program, hr_text *out_text) {
  if (program->is_value_form) {
    hr_text_append(out_text, "value form\n");
  }
  print_declarations(out_text, program);
  for (int i = 0; i < program->node_count; ++i) {
    print_node(out_text, &program->nodes[i], (uint32_t)i);
  }
  return hr_text_status(out_text);
}
