#include "program_stream.h"

#include <stdlib.h>

#include "core/ops/op.h"

hr_view hr__side_bytes(const hr__side *side, const generated *g, int buffer, int64_t *dims, int64_t *strides) {
  dims[0] = (int64_t)g->bytes[buffer], strides[0] = 1;
  return (hr_view){.buffer = side->buffers[buffer], .dtype = HR_DTYPE_U8, .rank = 1, .dims = dims, .strides = strides};
}

static hr_status write_buffer(hr__side *side, const generated *g, int b) {
  int64_t dims[1], strides[1];
  hr_view view = hr__side_bytes(side, g, b, dims, strides);
  return g->bytes[b] > 0 ? hr_stream_write(side->stream, &view, g->memory[b]) : HR_OK;
}

hr_status hr__side_fill(hr__side *side, const generated *g) {
  side->buffers = calloc((size_t)g->buffer_count + 1, sizeof *side->buffers);
  for (int b = 0; b < g->buffer_count; ++b) {
    HR_RETURN_IF_ERROR(hr_buffer_create(side->device, g->bytes[b], &side->buffers[b]));
    HR_RETURN_IF_ERROR(write_buffer(side, g, b));
  }
  return HR_OK;
}

hr_status hr__side_refill(hr__side *side, const generated *g) {
  for (int b = 0; b < g->buffer_count; ++b) {
    HR_RETURN_IF_ERROR(write_buffer(side, g, b));
  }
  return hr_stream_synchronize(side->stream);
}

void hr__side_drop(hr__side *side, const generated *g) {
  for (int b = 0; b < g->buffer_count; ++b) {
    hr_buffer_release(side->buffers[b]);
  }
  free(side->buffers);
}

static hr_view to_view(const hr__side *s, const generated *g, const hr_operand *x) {
  hr_view view = {.dtype = x->dtype, .rank = x->rank, .offset = x->offset, .dims = x->dims, .strides = x->strides};
  if (x->kind == HR_OPERAND_VALUE) {
    view.buffer = s->buffers[x->index];
  } else if (x->kind == HR_OPERAND_SCALAR) {
    const hr_program_scalar *scalar = &g->program.scalars[x->index];
    view.scalar = scalar->is_constant ? &scalar->value : &g->arguments[scalar->argument];
    view.rank = 0;
  }
  return view;
}

static hr_status record(hr__side *s, const generated *g, const hr_node *node) {
  hr_view *views = calloc((size_t)(node->input_count + node->output_count) + 1, sizeof *views);
  hr_scalar *scalars = calloc((size_t)node->scalar_count + 1, sizeof *scalars);
  for (int i = 0; i < node->input_count; ++i) {
    views[i] = to_view(s, g, &node->inputs[i]);
  }
  for (int i = 0; i < node->output_count; ++i) {
    views[node->input_count + i] = to_view(s, g, &node->outputs[i]);
  }
  for (int i = 0; i < node->scalar_count; ++i) {
    const hr_program_scalar *scalar = &g->program.scalars[node->scalar_base + (uint32_t)i];
    scalars[i] = scalar->is_constant ? scalar->value : g->arguments[scalar->argument];
  }
  hr_attrs attrs = {node->int_count, node->scalar_count, node->ints, scalars};
  hr_status status = hr_stream_record(s->stream, node->op, &attrs, node->input_count, views, node->output_count,
                                      views + node->input_count);
  free(views);
  free(scalars);
  return status;
}

hr_status hr__side_record(hr__side *side, const generated *g) {
  hr_status failure = HR_OK;
  for (int i = 0; i < g->program.node_count; ++i) {
    hr_status status = record(side, g, &g->program.nodes[i]);
    if (failure == HR_OK) {
      failure = status;
    } else {
      hr_status_free(status);
    }
  }
  return failure;
}

hr_status hr__side_run(hr__side *side, const generated *g) {
  hr_status failure = hr__side_record(side, g), status = hr_stream_synchronize(side->stream);
  if (failure == HR_OK) {
    return status;
  }
  hr_status_free(status);
  return failure;
}

bool hr__has_products(const hr_program *program) {
  static const hr_op with_products[] = {HR_OP_ATTENTION, HR_OP_ATTENTION_BACKWARD, HR_OP_LSTM, HR_OP_LSTM_BACKWARD,
                                        HR_OP_GRU,       HR_OP_GRU_BACKWARD};
  for (int n = 0; n < program->node_count; ++n) {
    hr_op op = program->nodes[n].op;
    bool has = hr_op_table(op)->family == HR_FAMILY_CONTRACTION;
    for (size_t i = 0; !has && i < sizeof with_products / sizeof *with_products; ++i) {
      has = op == with_products[i];
    }
    if (has) {
      return true;
    }
  }
  return false;
}

bool hr__has_rows(const hr_program *program, const char *part) {
  bool has = false;
  for (int n = 0; n < program->node_count; ++n) {
    has |= strstr(hr_op_table(program->nodes[n].op)->name, part) != NULL;
  }
  return has;
}
