/* loops.c: records the loops of a composite one by one, so that a tape differentiates them.
 *
 *   mse_loss(x, t) ints(1)     %1 = sub(x, t)    %2 = square(%1)    %3 = sum(%2) reduce(3)    y = div(%3, n)
 *
 * The lowering of the composite (core/ops) writes a program. Each of its nodes becomes a record: loops of one row on
 * strided views are records as they are. A load by index or with bounds becomes an `index` of the flat buffer at
 * computed places, and a `where`; a store by index an `index_put`. Contractions stay.
 */
#include "transform/loops.h"

#include "base/allocator.h"
#include "core/ir/build.h"
#include "functional/functions.h"

enum { OPERANDS_MAX = 8 };

typedef struct loops {
  hr__function_call call;
  const hr_hook_record *record;
  hr_program stream, program;
  hr_buffer **buffers; /* of the program: the record's, then temporaries, which are owned */
  int buffer_count;    /* of the list */
  hr_scalar *arguments;
} loops;

static hr_status no_memory(const loops *l) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no host memory for its loops", l->call.row->name);
}

/* ---- the program of one node ---- */

static uint32_t number_of(loops *l, hr_buffer *buffer) {
  for (int i = 0; i < l->stream.buffer_count; ++i) {
    if (l->buffers[i] == buffer) {
      return (uint32_t)i;
    }
  }
  uint32_t number = hr_program_add_buffer(&l->stream, hr_buffer_bytes(buffer), false, false);
  if (number != UINT32_MAX) {
    l->buffers[number] = buffer;
  }
  return number;
}

static bool add_argument(loops *l, const hr_scalar *scalar, uint32_t *out_index) {
  int argument = l->stream.argument_count;
  *out_index = hr_program_add_argument(&l->stream, scalar->dtype);
  l->arguments[argument] = *scalar;
  return *out_index != UINT32_MAX;
}

static bool describe(loops *l, const hr_view *view, hr_operand *out) {
  *out = (hr_operand){.fill = HR_NO_SCALAR};
  if (view->buffer != NULL) {
    *out = (hr_operand){.kind = HR_OPERAND_VALUE,
                        .dtype = view->dtype,
                        .index = number_of(l, view->buffer),
                        .rank = view->rank,
                        .offset = view->offset,
                        .dims = view->dims,
                        .strides = view->strides,
                        .fill = HR_NO_SCALAR};
    return out->index != UINT32_MAX;
  }
  if (view->scalar != NULL) {
    out->kind = HR_OPERAND_SCALAR, out->dtype = view->scalar->dtype;
    return add_argument(l, view->scalar, &out->index);
  }
  return true;
}

static hr_status make_stream(loops *l, hr_operand *operands) {
  const hr_hook_record *record = l->record;
  static const hr_attrs none;
  const hr_attrs *attrs = record->attrs != NULL ? record->attrs : &none;
  uint32_t unused;
  bool fits = true;
  for (int i = 0; fits && i < attrs->scalar_count; ++i) {
    fits = add_argument(l, &attrs->scalars[i], &unused);
  }
  for (int i = 0; fits && i < record->input_count; ++i) {
    fits = describe(l, &record->inputs[i], &operands[i]);
  }
  for (int i = 0; fits && i < record->output_count; ++i) {
    fits = describe(l, &record->outputs[i], &operands[record->input_count + i]);
  }
  l->stream.bound_count = l->stream.buffer_count;
  const hr_node node = {.op = record->op,
                        .input_count = record->input_count,
                        .output_count = record->output_count,
                        .inputs = operands,
                        .outputs = operands + record->input_count,
                        .int_count = attrs->int_count,
                        .scalar_count = attrs->scalar_count,
                        .ints = attrs->ints};
  return fits && hr_program_append(&l->stream, &node) ? HR_OK : no_memory(l);
}

static bool keeps_contraction(void *ctx, const hr_program *program, const hr_node *node) {
  (void)ctx, (void)program;
  return hr_op_table(node->op)->family == HR_FAMILY_CONTRACTION;
}

static hr_status expand(loops *l) {
  const hr_hook_record *record = l->record;
  size_t operands = (size_t)record->input_count + (size_t)record->output_count;
  hr_operand *described = hr_calloc(operands + 1, sizeof *described);
  l->buffers = hr_calloc(operands + 1, sizeof *l->buffers);
  size_t scalars = record->attrs != NULL ? (size_t)record->attrs->scalar_count : 0;
  l->arguments = hr_calloc(scalars + operands + 1, sizeof *l->arguments);
  hr_status status = described != NULL && l->buffers != NULL && l->arguments != NULL ? HR_OK : no_memory(l);
  status = status == HR_OK ? make_stream(l, described) : status;
  status = status == HR_OK ? hr_expand(&l->stream, keeps_contraction, NULL, &l->program) : status;
  hr_free(described);
  return status;
}

/* Temporaries of the program. */
static hr_status create_buffers(loops *l) {
  size_t bound = (size_t)l->program.bound_count, all = (size_t)l->program.buffer_count;
  hr_buffer **buffers = hr_realloc(l->buffers, (all + 1) * sizeof *buffers);
  if (buffers == NULL) {
    return no_memory(l);
  }
  l->buffers = buffers, l->buffer_count = (int)all;
  for (size_t i = bound; i < all; ++i) {
    buffers[i] = NULL;
  }
  for (size_t i = bound; i < all; ++i) {
    HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(l->call.stream), l->program.buffers[i].bytes, &buffers[i]));
  }
  return HR_OK;
}

/* ---- operands ---- */

static hr_scalar scalar_of(const loops *l, uint32_t index) {
  const hr_program_scalar *scalar = &l->program.scalars[index];
  return scalar->is_constant ? scalar->value : l->arguments[scalar->argument];
}

/* The view of an operand without its terms and bounds; the buffer is borrowed. */
static void plain_view(const loops *l, const hr_operand *x, hr_tensor *out) {
  *out = (hr_tensor){.buffer = l->buffers[x->index], .dtype = x->dtype, .rank = x->rank, .offset = x->offset};
  memcpy(out->dims, x->dims, (size_t)x->rank * sizeof *out->dims); /* the program's lists have as many elements */
  memcpy(out->strides, x->strides, (size_t)x->rank * sizeof *out->strides);
}

static hr_status apply(const loops *l, hr_op op, const hr_tensor *a, const hr_tensor *b, hr_tensor *out) {
  const hr_tensor *inputs[2] = {a, b};
  return hr__record_one(&l->call, op, NULL, 2, inputs, HR_DTYPE_NONE, out);
}

/* x = op(x, y); takes x's reference, and gives it back unless it fails. */
static hr_status apply_to(const loops *l, hr_op op, hr_tensor *x, const hr_tensor *y) {
  hr_tensor result;
  hr_status status = apply(l, op, x, y, &result);
  hr_tensor_release(x);
  if (status == HR_OK) {
    hr__copy_tensor(&result, x);
  }
  return status;
}

/* The numbers offset + sum of index * stride, i64, with a reference. */
static hr_status make_numbers(const loops *l, int rank, const int64_t *dims, int64_t offset, const int64_t *strides,
                              hr_tensor *out) {
  const hr_tensor first = hr_tensor_number(hr_scalar_i64(offset)), *number = &first;
  HR_RETURN_IF_ERROR(hr__record_new(&l->call, HR_OP_COPY, NULL, 1, &number, HR_DTYPE_I64, 0, NULL, out));
  for (int d = rank - 1; d >= 0; --d) {
    hr_tensor places;
    if (dims[d] <= 1 || strides[d] == 0) {
      continue;
    }
    const hr_scalar scalars[2] = {hr_scalar_i64(0), hr_scalar_i64(strides[d])};
    const hr_attrs attrs = {.scalar_count = 2, .scalars = scalars};
    hr_status status = hr__record_new(&l->call, HR_OP_ARANGE, &attrs, 0, NULL, HR_DTYPE_I64, 1, &dims[d], &places);
    if (status != HR_OK) {
      hr_tensor_release(out);
      return status;
    }
    places.rank = rank - d;
    for (int k = 1; k < places.rank; ++k) {
      places.dims[k] = 1, places.strides[k] = 0;
    }
    status = apply_to(l, HR_OP_ADD, &places, out);
    hr_tensor_release(out);
    HR_RETURN_IF_ERROR(status);
    hr__copy_tensor(&places, out);
  }
  return HR_OK;
}

/* places += index * stride; an index below 0 counts from the extent. Takes the reference of places. */
static hr_status add_term(const loops *l, const hr_node *node, const hr_index_term *term, hr_tensor *places) {
  const hr_tensor zero = hr_tensor_number(hr_scalar_i64(0)), extent = hr_tensor_number(hr_scalar_i64(term->extent));
  const hr_tensor stride = hr_tensor_number(hr_scalar_i64(term->stride));
  hr_tensor index, is_negative, other, steps;
  plain_view(l, &node->inputs[term->input], &index);
  hr_status status = apply(l, HR_OP_LT, &index, &zero, &is_negative);
  if (status == HR_OK) {
    status = apply(l, HR_OP_ADD, &index, &extent, &other);
    if (status == HR_OK) {
      const hr_tensor *three[3] = {&is_negative, &other, &index};
      status = hr__record_one(&l->call, HR_OP_WHERE, NULL, 3, three, HR_DTYPE_I64, &steps);
      hr_tensor_release(&other);
    }
    hr_tensor_release(&is_negative);
  }
  status = status == HR_OK ? apply_to(l, HR_OP_MUL, &steps, &stride) : status;
  if (status != HR_OK) {
    hr_tensor_release(places);
    return status;
  }
  status = apply_to(l, HR_OP_ADD, places, &steps);
  hr_tensor_release(&steps);
  return status;
}

/* True where a coordinate is inside: 0 <= numbers < extent. */
static hr_status make_inside(const loops *l, const hr_operand *x, const hr_bound *bound, hr_tensor *out) {
  const hr_tensor zero = hr_tensor_number(hr_scalar_i64(0)), extent = hr_tensor_number(hr_scalar_i64(bound->extent));
  hr_tensor numbers, upper;
  HR_RETURN_IF_ERROR(make_numbers(l, x->rank, x->dims, bound->offset, bound->strides, &numbers));
  hr_status status = apply(l, HR_OP_LT, &numbers, &extent, &upper);
  status = status == HR_OK ? apply_to(l, HR_OP_GE, &numbers, &zero) : status;
  if (status == HR_OK) {
    hr__copy_tensor(&numbers, out);
    status = apply_to(l, HR_OP_LOGICAL_AND, out, &upper);
    hr_tensor_release(&upper);
  } else {
    hr_tensor_release(&numbers);
  }
  return status;
}

/* The elements of an operand's buffer, as they are stored. */
static hr_tensor flat_of(const loops *l, const hr_operand *x) {
  hr_buffer *buffer = l->buffers[x->index];
  return (hr_tensor){.buffer = buffer,
                     .dtype = x->dtype,
                     .rank = 1,
                     .dims = {(int64_t)(hr_buffer_bytes(buffer) / hr_dtype_size(x->dtype))},
                     .strides = {1}};
}

/* out = inside ? x : number */
static hr_status choose(const loops *l, const hr_tensor *inside, const hr_tensor *x, hr_scalar number, hr_dtype dtype,
                        hr_tensor *out) {
  const hr_tensor other = hr_tensor_number(number), *three[3] = {inside, x, &other};
  return hr__record_one(&l->call, HR_OP_WHERE, NULL, 3, three, dtype, out);
}

/* The places of an operand with terms or bounds in its buffer: 0 for those out of bounds. *out_inside: true for the
 * others; without a buffer if there are no bounds. Both with a reference. */
static hr_status find_places(const loops *l, const hr_node *node, const hr_operand *x, hr_tensor *out_places,
                             hr_tensor *out_inside) {
  hr_tensor all, inside = {0};
  HR_RETURN_IF_ERROR(make_numbers(l, x->rank, x->dims, x->offset, x->strides, &all));
  for (int i = 0; i < x->term_count; ++i) {
    HR_RETURN_IF_ERROR(add_term(l, node, &x->terms[i], &all));
  }
  hr_status status = HR_OK;
  for (int i = 0; status == HR_OK && i < x->bound_count; ++i) {
    hr_tensor one;
    status = make_inside(l, x, &x->bounds[i], &one);
    if (status == HR_OK && inside.buffer != NULL) {
      status = apply_to(l, HR_OP_LOGICAL_AND, &inside, &one);
      hr_tensor_release(&one);
    } else if (status == HR_OK) {
      hr__copy_tensor(&one, &inside);
    }
  }
  if (status == HR_OK && inside.buffer == NULL) {
    hr__copy_tensor(&all, out_places);
    *out_inside = inside;
    return HR_OK;
  }
  status = status == HR_OK ? choose(l, &inside, &all, hr_scalar_i64(0), HR_DTYPE_I64, out_places) : status;
  hr_tensor_release(&all);
  if (status != HR_OK) {
    hr_tensor_release(&inside);
    return status;
  }
  hr__copy_tensor(&inside, out_inside);
  return HR_OK;
}

/* A load by index or with bounds, with a reference: outside of the bounds it is the fill. */
static hr_status gather(const loops *l, const hr_node *node, const hr_operand *x, hr_tensor *out) {
  static const int64_t ints[2] = {1, 0}; /* dim 0, at position 0 */
  const hr_attrs attrs = {.int_count = 2, .ints = ints};
  hr_tensor places, inside, picked, flat = flat_of(l, x);
  const hr_tensor *inputs[2] = {&flat, &places};
  HR_RETURN_IF_ERROR(find_places(l, node, x, &places, &inside));
  hr_status status = hr__record_one(&l->call, HR_OP_INDEX, &attrs, 2, inputs, HR_DTYPE_NONE, &picked);
  hr_tensor_release(&places);
  if (status == HR_OK && inside.buffer == NULL) {
    hr__copy_tensor(&picked, out);
    return HR_OK;
  }
  if (status == HR_OK) {
    hr_scalar fill = x->fill != HR_NO_SCALAR ? scalar_of(l, x->fill) : hr_scalar_i64(0);
    status = choose(l, &inside, &picked, fill, x->dtype, out);
    hr_tensor_release(&picked);
  }
  hr_tensor_release(&inside);
  return status;
}

/* An input of a node, with a reference of its buffer. */
static hr_status load(const loops *l, const hr_node *node, const hr_operand *x, hr_tensor *out) {
  switch (x->kind) {
    case HR_OPERAND_SCALAR:
      *out = hr_tensor_number(scalar_of(l, x->index));
      return HR_OK;
    case HR_OPERAND_INDEX:
      return make_numbers(l, x->rank, x->dims, x->offset, x->strides, out);
    case HR_OPERAND_VALUE:
      if (x->term_count > 0 || x->bound_count > 0) {
        return gather(l, node, x, out);
      }
      plain_view(l, x, out);
      hr_buffer_retain(out->buffer);
      return HR_OK;
    default:
      *out = (hr_tensor){0};
      return HR_OK;
  }
}

/* ---- nodes ---- */

static hr_status record_views(const loops *l, hr_op op, const hr_attrs *attrs, int count, const hr_tensor *inputs,
                              int output_count, const hr_tensor *outputs) {
  hr_view views[2 * OPERANDS_MAX];
  for (int i = 0; i < count; ++i) {
    views[i] = hr_tensor_view(&inputs[i]);
  }
  for (int i = 0; i < output_count; ++i) {
    views[OPERANDS_MAX + i] = hr_tensor_view(&outputs[i]);
  }
  return hr_stream_record(l->call.stream, op, attrs, count, views, output_count, views + OPERANDS_MAX);
}

static bool is_store_by_index(const hr_node *node) {
  const hr_operand *out = &node->outputs[0];
  return node->store_mode != HR_STORE_SET || out->term_count > 0 || out->bound_count > 0;
}

/* values in the dtype of an output, 0 where `inside` is false; with a reference. */
static hr_status convert(const loops *l, const hr_operand *to, const hr_tensor *values, const hr_tensor *inside,
                         hr_tensor *out) {
  if (inside->buffer != NULL) {
    return choose(l, inside, values, hr_scalar_i64(0), to->dtype, out);
  }
  return hr__convert(&l->call, values, to->dtype, out);
}

/* A store by index. Stores out of bounds add 0 instead. */
static hr_status record_store(const loops *l, const hr_node *node, const hr_tensor *source) {
  const hr_operand *to = &node->outputs[0];
  const int64_t ints[3] = {1, 0, node->store_mode == HR_STORE_ADD};
  const hr_attrs attrs = {.int_count = 3, .ints = ints};
  hr_tensor places, inside, all = {0}, both[2] = {{0}}, flat = flat_of(l, to);
  HR_RETURN_IF_ERROR(find_places(l, node, to, &places, &inside));
  hr_status status = convert(l, to, source, &inside, &all);
  status = status == HR_OK ? hr__broadcast(&l->call, &all, to->rank, to->dims, &both[0]) : status;
  status = status == HR_OK ? hr__broadcast(&l->call, &places, to->rank, to->dims, &both[1]) : status;
  status = status == HR_OK ? record_views(l, HR_OP_INDEX_PUT, &attrs, 2, both, 1, &flat) : status;
  hr_tensor_release(&places);
  hr_tensor_release(&inside);
  hr_tensor_release(&all);
  hr_tensor_release(&both[0]);
  hr_tensor_release(&both[1]);
  return status;
}

/* A loop: its output is a view of the domain's dims, in which a reduction has 1. */
static hr_status record_loop(const loops *l, const hr_node *node, int count, const hr_tensor *inputs) {
  const int64_t ints[1] = {node->reduce_mask};
  const hr_attrs attrs = {.int_count = node->reduce_mask != 0, .ints = ints};
  hr_tensor out;
  if (is_store_by_index(node)) {
    return record_store(l, node, &inputs[0]);
  }
  plain_view(l, &node->outputs[0], &out);
  for (int d = 0; d < out.rank; ++d) {
    out.dims[d] = (node->reduce_mask >> d & 1u) != 0 ? 1 : out.dims[d];
  }
  return record_views(l, node->op, &attrs, count, inputs, 1, &out);
}

static hr_status record_other(const loops *l, const hr_node *node, int count, const hr_tensor *inputs) {
  hr_scalar scalars[OPERANDS_MAX];
  hr_tensor outputs[OPERANDS_MAX];
  const hr_attrs attrs = {node->int_count, node->scalar_count, node->ints, scalars};
  for (int i = 0; i < node->scalar_count; ++i) {
    scalars[i] = scalar_of(l, node->scalar_base + (uint32_t)i);
  }
  for (int i = 0; i < node->output_count; ++i) {
    outputs[i] = (hr_tensor){0};
    if (node->outputs[i].kind == HR_OPERAND_VALUE) {
      plain_view(l, &node->outputs[i], &outputs[i]);
    }
  }
  return record_views(l, node->op, &attrs, count, inputs, node->output_count, outputs);
}

/* Inputs after those of the row are indices, which terms name. */
static int input_count_of(const hr_node *node) {
  const hr_op_row *row = hr_op_table(node->op);
  bool is_row = row->family == HR_FAMILY_POINTWISE || row->family == HR_FAMILY_REDUCE;
  return node->is_loop && is_row && node->input_count > row->arity ? row->arity : node->input_count;
}

static hr_status record_node(const loops *l, const hr_node *node) {
  hr_tensor inputs[OPERANDS_MAX];
  int count = input_count_of(node), loaded = 0;
  hr_status status = HR_OK;
  while (status == HR_OK && loaded < count) {
    status = load(l, node, &node->inputs[loaded], &inputs[loaded]);
    loaded += status == HR_OK;
  }
  if (status == HR_OK) {
    status = node->is_loop ? record_loop(l, node, count, inputs) : record_other(l, node, count, inputs);
  }
  for (int i = 0; i < loaded; ++i) {
    hr_tensor_release(&inputs[i]);
  }
  return status;
}

/* True if a node can be a record. */
static bool can_record(const hr_node *node) {
  bool fits = input_count_of(node) <= OPERANDS_MAX && node->output_count <= OPERANDS_MAX &&
              node->scalar_count <= OPERANDS_MAX && node->epilogue_count == 0;
  if (!fits || !node->is_loop || !is_store_by_index(node)) {
    return fits;
  }
  bool skips = node->store_mode == HR_STORE_SET && node->outputs[0].bound_count > 0;
  return node->op == HR_OP_COPY && node->store_mode <= HR_STORE_ADD && !skips;
}

static hr_status record_all(loops *l, bool *out_is_done) {
  HR_RETURN_IF_ERROR(expand(l));
  for (int i = 0; i < l->program.node_count; ++i) {
    if (!can_record(&l->program.nodes[i])) {
      return HR_OK;
    }
  }
  *out_is_done = true;
  HR_RETURN_IF_ERROR(create_buffers(l));
  for (int i = 0; i < l->program.node_count; ++i) {
    HR_RETURN_IF_ERROR(record_node(l, &l->program.nodes[i]));
  }
  return HR_OK;
}

hr_status hr__record_loops(hr_stream *stream, const hr_hook_record *record, bool *out_is_done) {
  const hr__function_row row = {.name = hr_op_table(record->op)->name};
  loops l = {.call = {.row = &row, .stream = stream}, .record = record};
  *out_is_done = false;
  hr_program_init(&l.stream);
  hr_program_init(&l.program);
  hr_status status = record_all(&l, out_is_done);
  for (int i = l.program.bound_count; i < l.buffer_count; ++i) {
    hr_buffer_release(l.buffers[i]);
  }
  hr_free(l.buffers);
  hr_free(l.arguments);
  hr_program_fini(&l.stream);
  hr_program_fini(&l.program);
  return status;
}
