/* The builder: temporaries, constants, and loop nodes over the dims of their output.
 *
 * It guarantees for each loop node that every operand has the domain's dims. A domain without elements gives no node,
 * except that a reduction over nothing stores its identity. A reduction over a single element is a copy.
 */
#include "core/ir/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/ir/build_internal.h"

/* ---- errors ---- */

static hr_operand keep_first(hr_builder *b, hr_status status) {
  if (b->status == HR_OK) {
    b->status = status;
  } else {
    hr_status_ignore(status);
  }
  return HR__NO_OPERAND;
}

hr_operand hr__build_fail(hr_builder *b, const char *format, ...) {
  char message[256];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return keep_first(b, hr_status_make(HR_STATUS_INTERNAL, "%s", message));
}

hr_operand hr__build_no_memory(hr_builder *b) {
  return keep_first(
      b, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a program of %d nodes", b->program->node_count));
}

static void format_dims(char *text, size_t bytes, int rank, const int64_t *dims) {
  size_t at = (size_t)snprintf(text, bytes, "[");
  for (int d = 0; d < rank && at + 24 < bytes; ++d) {
    at += (size_t)snprintf(text + at, bytes - at, d > 0 ? ",%lld" : "%lld", (long long)dims[d]);
  }
  snprintf(text + at, bytes - at, "]");
}

hr_operand hr__build_fail_dims(hr_builder *b, const char *what, int rank_from, const int64_t *from, int rank_to,
                               const int64_t *to) {
  char text_from[160], text_to[160];
  format_dims(text_from, sizeof text_from, rank_from, from);
  format_dims(text_to, sizeof text_to, rank_to, to);
  return keep_first(b, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s %s to %s", what, text_from, text_to));
}

/* ---- operands ---- */

/* Elements of the dims, or -1 if a dim is negative or the product exceeds a buffer's size. */
static int64_t safe_count(int rank, const int64_t *dims) {
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    if (dims[d] < 0 || __builtin_mul_overflow(count, dims[d], &count) || count > INT64_MAX / 16) {
      return -1;
    }
  }
  return count;
}

hr_operand hr_build_temp(hr_builder *b, hr_dtype dtype, int rank, const int64_t *dims) {
  if (b->status != HR_OK) {
    return HR__NO_OPERAND;
  }
  int64_t count = rank >= 0 && rank <= HR_RANK_MAX ? safe_count(rank, dims) : -1;
  if (count < 0 || hr_dtype_size(dtype) == 0) {
    return hr__build_fail_dims(b, "no temporary", rank < 0 || rank > HR_RANK_MAX ? 0 : rank, dims, 0, NULL);
  }
  hr_arena *arena = &b->program->arena;
  int64_t *strides = hr_arena_alloc(arena, (size_t)rank * sizeof *strides);
  hr_operand x = {.kind = HR_OPERAND_VALUE, .dtype = dtype, .rank = rank, .strides = strides, .fill = HR_NO_SCALAR};
  x.dims = hr_arena_dup_words(arena, dims, rank);
  x.index = hr_program_add_buffer(b->program, (size_t)count * hr_dtype_size(dtype), true, true);
  if (strides == NULL || x.dims == NULL || x.index == UINT32_MAX) {
    return hr__build_no_memory(b);
  }
  int64_t step = 1;
  for (int d = rank - 1; d >= 0; --d) {
    strides[d] = step;
    step *= dims[d] > 0 ? dims[d] : 1;
  }
  return x;
}

static int64_t step_of(const hr_operand *x, int d) {
  return x->strides[d] < 0 ? -x->strides[d] : x->strides[d];
}

/* A copy of x with x's layout gives the same result. */
bool hr_view_memory_order(const hr_operand *x, uint32_t mask, int *out_order) {
  bool is_changed = false, is_spread = false, is_sorted = true;
  int64_t last_step = INT64_MAX;
  for (int d = 0; d < x->rank; ++d) {
    out_order[d] = d;
    mask &= x->dims[d] == 1 ? ~(1u << d) : ~0u;
    is_spread |= x->dims[d] != 1 && x->strides[d] == 0;
    if ((mask >> d & 1u) != 0) {
      is_sorted &= step_of(x, d) <= last_step;
      last_step = step_of(x, d);
    }
  }
  for (int last = x->rank - 1; last > 0 && !is_spread && !is_sorted; --last) { /* bubble sort: few dims */
    for (int d = 0, before = -1; d < x->rank; ++d) {
      if ((mask >> d & 1u) == 0) {
        continue;
      }
      if (before >= 0 && step_of(x, out_order[before]) < step_of(x, out_order[d])) {
        int dim = out_order[d];
        out_order[d] = out_order[before], out_order[before] = dim;
        is_changed = true;
      }
      before = d;
    }
  }
  return is_changed;
}

/* Gives a new temporary x's order of dims without gaps. The result of a transposed matrix is transposed, so both are
 * walked in memory order. */
static void set_layout_like(hr_operand *temp, const hr_operand *x) {
  int order[HR_RANK_MAX];
  int64_t strides[HR_RANK_MAX], step = 1;
  if (x->kind != HR_OPERAND_VALUE || x->term_count > 0 || x->rank != temp->rank ||
      !hr_view_memory_order(x, ~0u, order)) {
    return;
  }
  for (int i = x->rank - 1; i >= 0; --i) {
    if (x->dims[order[i]] != temp->dims[order[i]]) {
      return;
    }
    strides[order[i]] = step;
    step *= x->dims[order[i]];
  }
  memcpy((int64_t *)temp->strides, strides, (size_t)x->rank * sizeof *strides);
}

hr_operand hr_build_copy(hr_builder *b, hr_operand x) {
  hr_operand copy = hr_build_temp(b, x.dtype, x.rank, x.dims);
  if (b->status == HR_OK) {
    set_layout_like(&copy, &x);
  }
  hr_emit1(b, HR_OP_COPY, copy, x);
  return b->status == HR_OK ? copy : HR__NO_OPERAND;
}

hr_operand hr_build_temp_like(hr_builder *b, hr_operand x, hr_dtype dtype) {
  return hr_build_temp(b, dtype, x.rank, x.dims);
}

static hr_operand scalar_operand(uint32_t index, hr_dtype dtype) {
  static const int64_t none[1] = {0};
  return (hr_operand){
      .kind = HR_OPERAND_SCALAR, .dtype = dtype, .index = index, .dims = none, .strides = none, .fill = HR_NO_SCALAR};
}

/* A constant. One of the last few is reused if its bits are equal. */
static hr_operand constant(hr_builder *b, hr_scalar value) {
  if (b->status != HR_OK) {
    return HR__NO_OPERAND;
  }
  hr_program *program = b->program;
  for (int i = program->scalar_count - 1; i >= 0 && i >= program->scalar_count - 16; --i) {
    const hr_program_scalar *scalar = &program->scalars[i];
    if (scalar->is_constant && scalar->dtype == value.dtype &&
        memcmp(&scalar->value.value, &value.value, sizeof value.value) == 0) {
      return scalar_operand((uint32_t)i, value.dtype);
    }
  }
  uint32_t index = hr_program_add_constant(program, value);
  return index == UINT32_MAX ? hr__build_no_memory(b) : scalar_operand(index, value.dtype);
}

hr_operand hr_build_f64(hr_builder *b, double value) {
  return constant(b, hr_scalar_f64(value));
}

hr_operand hr_build_i64(hr_builder *b, int64_t value) {
  return constant(b, hr_scalar_i64(value));
}

hr_operand hr_build_attr(hr_builder *b, const hr_node *node, int i) {
  if (b->status != HR_OK) {
    return HR__NO_OPERAND;
  }
  if (i < 0 || i >= node->scalar_count) {
    return hr__build_fail(b, "%s: attribute scalar %d of %d", hr_op_table(node->op)->name, i, node->scalar_count);
  }
  uint32_t index = node->scalar_base + (uint32_t)i;
  return scalar_operand(index, b->program->scalars[index].dtype);
}

hr_operand hr_build_index(hr_builder *b, int rank, const int64_t *dims, int64_t offset, const int64_t *strides) {
  hr_operand index = {.kind = HR_OPERAND_INDEX, .dtype = HR_DTYPE_I64, .fill = HR_NO_SCALAR};
  return hr_view_strided(b, index, rank, dims, strides, offset);
}

/* ---- nodes ---- */

static bool append(hr_builder *b, hr_node *node) {
  node->origin = b->origin;
  if (!hr_program_append(b->program, node)) {
    hr__build_no_memory(b);
    return false;
  }
  return true;
}

/* x over the domain's dims, whose list all operands of a node share: copies of the node need no second one. A node is
 * copied when it is appended, so the zeros of a number need no list of their own. False: hr_view_broadcast has to do
 * it. */
static bool spread_plain(hr_builder *b, const hr_operand *x, int rank, const int64_t *dims, hr_operand *out) {
  static const int64_t zeros[HR_RANK_MAX];
  const int added = rank - x->rank;
  bool is_same = added == 0, is_plain = added >= 0 && x->kind != HR_OPERAND_NONE && x->bound_count == 0;
  for (int d = 0; is_plain && d < x->rank; ++d) {
    is_same &= x->dims[d] == dims[added + d];
    is_plain = x->dims[d] == dims[added + d] || x->dims[d] == 1;
  }
  int64_t *strides =
      is_plain && !is_same && x->rank > 0 ? hr_arena_alloc(&b->program->arena, (size_t)rank * sizeof *strides) : NULL;
  if (!is_plain || (strides == NULL && !is_same && x->rank > 0)) {
    return false;
  }
  *out = *x;
  out->rank = rank;
  out->dims = dims;
  for (int d = 0; strides != NULL && d < rank; ++d) {
    strides[d] = d >= added && x->dims[d - added] == dims[d] ? x->strides[d - added] : 0;
  }
  out->strides = is_same ? x->strides : strides != NULL ? strides : zeros;
  return true;
}

/* Broadcasts every input to the domain's dims; false after an error. */
static bool spread(hr_builder *b, hr_op op, int count, const hr_operand *inputs, int rank, const int64_t *dims,
                   hr_operand *out) {
  for (int i = 0; i < count; ++i) {
    if (b->status == HR_OK && !hr_is_present(inputs[i])) {
      hr__build_fail(b, "operand %d of the loop is absent", i);
    }
    if (b->status != HR_OK || !spread_plain(b, &inputs[i], rank, dims, &out[i])) {
      out[i] = hr_view_broadcast(b, inputs[i], rank, dims);
      out[i].dims = dims;
    }
  }
  if (b->status != HR_OK) {
    b->status = hr_status_annotate(b->status, "%s", hr_op_table(op)->name);
    return false;
  }
  return true;
}

enum { LOOP_INPUTS_MAX = 32 };

static void emit_loop(hr_builder *b, hr_node *node, hr_operand out, int input_count, const hr_operand *inputs) {
  const hr_op_row *row = hr_op_table(node->op);
  if (b->status != HR_OK) {
    return;
  }
  if (row->family != HR_FAMILY_POINTWISE || input_count < row->arity || input_count > LOOP_INPUTS_MAX) {
    hr__build_fail(b, "%s: no loop of %d inputs", row->name, input_count);
    return;
  }
  if (out.kind != HR_OPERAND_VALUE) {
    hr__build_fail(b, "%s: the output is no value", row->name);
    return;
  }
  hr_operand spread_inputs[LOOP_INPUTS_MAX];
  if (!spread(b, node->op, input_count, inputs, out.rank, out.dims, spread_inputs) || hr_operand_count(out) == 0) {
    return;
  }
  node->is_loop = true;
  node->input_count = input_count, node->inputs = spread_inputs;
  node->output_count = 1, node->outputs = &out;
  append(b, node);
}

void hr_emit(hr_builder *b, hr_op op, hr_operand out, int input_count, const hr_operand *inputs) {
  emit_loop(b, &(hr_node){.op = op}, out, input_count, inputs);
}

void hr_emit1(hr_builder *b, hr_op op, hr_operand out, hr_operand a) {
  hr_emit(b, op, out, 1, &a);
}

void hr_emit2(hr_builder *b, hr_op op, hr_operand out, hr_operand a, hr_operand c) {
  hr_emit(b, op, out, 2, (hr_operand[]){a, c});
}

void hr_emit3(hr_builder *b, hr_op op, hr_operand out, hr_operand a, hr_operand c, hr_operand d) {
  hr_emit(b, op, out, 3, (hr_operand[]){a, c, d});
}

void hr_emit4(hr_builder *b, hr_op op, hr_operand out, hr_operand a, hr_operand c, hr_operand d, hr_operand e) {
  hr_emit(b, op, out, 4, (hr_operand[]){a, c, d, e});
}

static hr_operand make(hr_builder *b, hr_op op, hr_dtype dtype, int count, const hr_operand *inputs) {
  int64_t dims[HR_RANK_MAX];
  int rank = 0;
  for (int i = 0; b->status == HR_OK && i < count; ++i) {
    rank = inputs[i].rank > rank ? inputs[i].rank : rank;
  }
  for (int d = 0; d < rank; ++d) {
    dims[d] = 1;
    for (int i = 0; i < count; ++i) {
      int at = d - (rank - inputs[i].rank);
      if (at >= 0 && inputs[i].dims[at] != 1) {
        dims[d] = inputs[i].dims[at];
      }
    }
  }
  hr_operand out = hr_build_temp(b, dtype, rank, dims);
  if (b->status == HR_OK && op != HR_OP_COPY) { /* a copy is requested if data has to be dense */
    set_layout_like(&out, &inputs[0]);
  }
  hr_emit(b, op, out, count, inputs);
  return b->status == HR_OK ? out : HR__NO_OPERAND;
}

hr_operand hr_make1(hr_builder *b, hr_op op, hr_dtype dtype, hr_operand a) {
  return make(b, op, dtype, 1, &a);
}

hr_operand hr_make2(hr_builder *b, hr_op op, hr_dtype dtype, hr_operand a, hr_operand c) {
  return make(b, op, dtype, 2, (hr_operand[]){a, c});
}

hr_operand hr_make3(hr_builder *b, hr_op op, hr_dtype dtype, hr_operand a, hr_operand c, hr_operand d) {
  return make(b, op, dtype, 3, (hr_operand[]){a, c, d});
}

hr_operand hr_make4(hr_builder *b, hr_op op, hr_dtype dtype, hr_operand a, hr_operand c, hr_operand d, hr_operand e) {
  return make(b, op, dtype, 4, (hr_operand[]){a, c, d, e});
}

/* Stores the result of a reduction over no elements. */
static void emit_identity(hr_builder *b, hr_op op, hr_operand out) {
  int64_t value;
  if (hr_op_identity(op, &value)) {
    hr_emit1(b, HR_OP_COPY, out, hr_build_i64(b, value));
    return;
  }
  keep_first(b, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: no elements to reduce", hr_op_table(op)->name));
}

static bool check_reduced_dims(hr_builder *b, hr_op op, hr_operand out, hr_operand x, uint32_t mask) {
  bool is_fit = out.kind == HR_OPERAND_VALUE && hr_is_present(x) && out.rank == x.rank;
  for (int d = 0; is_fit && d < x.rank; ++d) {
    is_fit = out.dims[d] == ((mask >> d & 1u) != 0 ? 1 : x.dims[d]);
  }
  if (!is_fit) {
    hr__build_fail(b, "%s: the output does not have the input's dims with 1 in those of mask 0x%x",
                   hr_op_table(op)->name, mask);
  }
  return is_fit;
}

/* A view of out over x's dims, with stride 0 along the reduced ones. */
static hr_operand spread_output(hr_builder *b, hr_operand out, hr_operand x) {
  return hr_view_broadcast(b, out, x.rank, x.dims);
}

/* True if x has its smallest stride along a dim of `mask` other than the last dim. */
static bool steps_least_before(const hr_operand *x, uint32_t mask) {
  int least = -1, last = -1;
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] != 1) {
      least = least < 0 || step_of(x, d) <= step_of(x, least) ? d : least;
      last = d;
    }
  }
  return least >= 0 && x->strides[least] != 0 && (mask >> least & 1u) != 0 && (mask >> last & 1u) == 0;
}

/* The order in which a reduction of x walks its dims. The reduced dims are reordered among themselves to follow memory,
 * and move after the kept ones if rows are dense. False: the order of the dims. */
static bool find_reduced_walk(const hr_operand *x, uint32_t mask, int *out_order) {
  int walk[HR_RANK_MAX], count = 0;
  bool is_changed = hr_view_memory_order(x, mask, walk), is_after = steps_least_before(x, mask);
  for (uint32_t is_last = 0; is_last < 2; ++is_last) {
    for (int d = 0; d < x->rank; ++d) {
      if ((is_after ? mask >> walk[d] & 1u : 0) == is_last) {
        out_order[count++] = walk[d];
      }
    }
  }
  return is_changed || is_after;
}

static void emit_reduction(hr_builder *b, hr_op op, hr_operand out, int input_count, const hr_operand *inputs,
                           uint32_t mask) {
  hr_operand x = inputs[0], spread_inputs[2];
  int order[HR_RANK_MAX];
  out = spread_output(b, out, x);
  if (b->status != HR_OK || !spread(b, op, input_count, inputs, x.rank, x.dims, spread_inputs)) {
    return;
  }
  if (x.kind == HR_OPERAND_VALUE && find_reduced_walk(&x, mask, order)) {
    uint32_t given = mask;
    mask = 0;
    for (int d = 0; d < x.rank; ++d) {
      mask |= (given >> order[d] & 1u) << d;
    }
    out = hr_view_permute(b, out, order);
    for (int i = 0; i < input_count; ++i) {
      spread_inputs[i] = hr_view_permute(b, spread_inputs[i], order);
    }
    x = spread_inputs[0];
    if (b->status != HR_OK) {
      return;
    }
  }
  for (int d = 0; d < x.rank; ++d) {
    mask &= x.dims[d] == 1 ? ~(1u << d) : ~0u; /* a single element: no reduction */
  }
  append(b, &(hr_node){.op = op,
                       .is_loop = true,
                       .input_count = input_count,
                       .inputs = spread_inputs,
                       .output_count = 1,
                       .outputs = &out,
                       .reduce_mask = mask});
}

void hr_emit_reduce(hr_builder *b, hr_op op, hr_operand out, hr_operand x, uint32_t mask) {
  if (b->status != HR_OK || !check_reduced_dims(b, op, out, x, mask) || hr_operand_count(out) == 0) {
    return;
  }
  if (hr_op_table(op)->family != HR_FAMILY_REDUCE) {
    hr__build_fail(b, "%s is no reduction", hr_op_table(op)->name);
  } else if (hr_operand_count(x) == 0) {
    emit_identity(b, op, out);
  } else if (hr_operand_count(x) > hr_operand_count(out)) {
    emit_reduction(b, op, out, 1, &x, mask);
  } else if (hr_op_table(op)->rule == HR_RULE_LOGICAL) {
    hr_emit1(b, HR_OP_COPY, out, hr_make1(b, HR_OP_COPY, HR_DTYPE_BOOL, x));
  } else {
    hr_emit1(b, HR_OP_COPY, out, x);
  }
}

/* A temporary with x's dims and 1 in those of mask. */
static hr_operand reduced_temp(hr_builder *b, hr_dtype dtype, hr_operand x, uint32_t mask) {
  int64_t dims[HR_RANK_MAX] = {0};
  for (int d = 0; b->status == HR_OK && d < x.rank; ++d) {
    dims[d] = (mask >> d & 1u) != 0 ? 1 : x.dims[d];
  }
  return hr_build_temp(b, dtype, x.rank, dims);
}

hr_operand hr_make_reduce(hr_builder *b, hr_op op, hr_dtype dtype, hr_operand x, uint32_t mask) {
  hr_operand out = reduced_temp(b, dtype, x, mask);
  hr_emit_reduce(b, op, out, x, mask);
  return b->status == HR_OK ? out : HR__NO_OPERAND;
}

void hr_emit_argreduce(hr_builder *b, hr_op op, hr_operand out, hr_operand key, hr_operand index, uint32_t mask) {
  if (b->status != HR_OK || !check_reduced_dims(b, op, out, key, mask) || hr_operand_count(out) == 0) {
    return;
  }
  if (hr_op_table(op)->family != HR_FAMILY_ARGREDUCE) {
    hr__build_fail(b, "%s is no reduction to an index", hr_op_table(op)->name);
  } else if (hr_operand_count(key) == 0) {
    emit_identity(b, op, out);
  } else if (hr_operand_count(key) == hr_operand_count(out)) {
    hr_emit1(b, HR_OP_COPY, out, index); /* a single key: its index is the result */
  } else {
    emit_reduction(b, op, out, 2, (hr_operand[]){key, index}, mask);
  }
}

void hr_emit_scatter(hr_builder *b, hr_store_mode mode, hr_operand out, int input_count, const hr_operand *inputs,
                     uint32_t ordered_mask) {
  if (out.dtype == HR_DTYPE_BOOL) { /* the sum of bools is `any`, the product is `all` */
    mode = mode == HR_STORE_ADD ? HR_STORE_MAX : mode == HR_STORE_MUL ? HR_STORE_MIN : mode;
  }
  emit_loop(b, &(hr_node){.op = HR_OP_COPY, .store_mode = mode, .ordered_mask = ordered_mask}, out, input_count,
            inputs);
}

void hr_emit_gather(hr_builder *b, hr_operand out, int input_count, const hr_operand *inputs) {
  hr_emit(b, HR_OP_COPY, out, input_count, inputs);
}

void hr_emit_node(hr_builder *b, hr_op op, int input_count, const hr_operand *inputs, int output_count,
                  const hr_operand *outputs, int int_count, const int64_t *ints) {
  if (b->status != HR_OK) {
    return;
  }
  append(b, &(hr_node){.op = op,
                       .input_count = input_count,
                       .inputs = (hr_operand *)inputs, /* only read: append copies it */
                       .output_count = output_count,
                       .outputs = (hr_operand *)outputs,
                       .int_count = int_count,
                       .ints = ints});
}

void hr_emit_check_index(hr_builder *b, hr_operand index, int64_t extent, bool allow_negative, int message,
                         hr_operand except) {
  if (b->status != HR_OK || hr_operand_count(index) == 0) {
    return;
  }
  int64_t lower = allow_negative ? -extent : 0;
  for (int d = 0; d < index.rank && index.kind == HR_OPERAND_VALUE && !hr_is_present(except); ++d) {
    if (index.strides[d] == 0 && index.dims[d] > 1) { /* broadcast: read once */
      index = hr_view_slice(b, index, d, 0, 1, 1);
    }
  }
  /* The least integer stands for none, and is reported as the next one. */
  bool may_be_least = index.dtype == HR_DTYPE_I64 || index.dtype == HR_DTYPE_U64;
  if (index.dtype != HR_DTYPE_I64) {
    index = hr_make1(b, HR_OP_COPY, HR_DTYPE_I64, index);
  }
  hr_operand below = hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, index, hr_build_i64(b, lower));
  hr_operand above = hr_make2(b, HR_OP_GE, HR_DTYPE_BOOL, index, hr_build_i64(b, extent));
  hr_operand bad = hr_make2(b, HR_OP_LOGICAL_OR, HR_DTYPE_BOOL, below, above);
  if (hr_is_present(except)) {
    hr_operand other = hr_make2(b, HR_OP_NE, HR_DTYPE_BOOL, index, except);
    bad = hr_make2(b, HR_OP_LOGICAL_AND, HR_DTYPE_BOOL, bad, other);
  }
  hr_operand named =
      may_be_least ? hr_make2(b, HR_OP_MAXIMUM, HR_DTYPE_I64, index, hr_build_i64(b, INT64_MIN + 1)) : index;
  hr_operand offending = hr_make3(b, HR_OP_WHERE, HR_DTYPE_I64, bad, named, hr_build_i64(b, INT64_MIN));
  hr_operand worst = hr_make_reduce(b, HR_OP_AMAX, HR_DTYPE_I64, offending, (1u << index.rank) - 1u);
  worst = hr_view_strided(b, worst, 0, NULL, NULL, 0);
  hr_emit_node(b, HR_OP_CHECK_INDEX, 1, &worst, 0, NULL, 3, (int64_t[]){lower, extent, message});
}

hr_operand hr_node_input(const hr_node *node, int i) {
  return i >= 0 && i < node->input_count ? node->inputs[i] : HR__NO_OPERAND;
}

hr_operand hr_node_output(const hr_node *node, int i) {
  return i >= 0 && i < node->output_count ? node->outputs[i] : HR__NO_OPERAND;
}
