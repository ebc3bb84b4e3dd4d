#include "core/ir/traffic.h"

#include "base/integer.h"

enum { STEPS_MAX = 2 * HR_RANK_MAX };

/* `count` numbers with a distance of `stride`. */
typedef struct run {
  int64_t stride, count;
} run;

static int64_t size_of(int64_t stride) {
  return stride < 0 ? -stride : stride;
}

/* Adds a run, in order of strides. */
static int add_run(run *runs, int count, int64_t stride, int64_t n) {
  if (stride == 0 || n == 1) {
    return count;
  }
  int at = count;
  for (; at > 0 && runs[at - 1].stride > size_of(stride); --at) {
    runs[at] = runs[at - 1];
  }
  runs[at] = (run){size_of(stride), n};
  return count + 1;
}

/* Joins runs that touch or overlap: i + 2*j for i < 3, j < 5 are the numbers 0 to 10. Returns the number of runs left.
 */
static int join_runs(run *runs, int count) {
  int left = 0;
  for (int i = 0; i < count; ++i) {
    run *last = left > 0 ? &runs[left - 1] : NULL;
    if (last != NULL && runs[i].stride % last->stride == 0 && runs[i].stride / last->stride <= last->count) {
      last->count += (runs[i].count - 1) * (runs[i].stride / last->stride);
    } else {
      runs[left++] = runs[i];
    }
  }
  return left;
}

static int64_t count_runs(run *runs, int count) {
  int64_t distinct = 1;
  count = join_runs(runs, count);
  for (int i = 0; i < count; ++i) {
    distinct *= runs[i].count;
  }
  return distinct;
}

/* The number of a coordinate's values that are inside its bound. */
static int64_t count_inside(int rank, const int64_t *dims, const hr_bound *bound) {
  run runs[STEPS_MAX];
  int count = 0;
  int64_t low = bound->offset;
  for (int d = 0; d < rank; ++d) {
    low += bound->strides[d] < 0 ? bound->strides[d] * (dims[d] - 1) : 0;
    count = add_run(runs, count, bound->strides[d], dims[d]);
  }
  count = join_runs(runs, count);
  if (count != 1) {
    return count == 0 ? low >= 0 && low < bound->extent : hr_min(count_runs(runs, count), bound->extent);
  }
  int64_t stride = runs[0].stride, first = low < 0 ? hr_divide_up(-low, stride) : 0;
  int64_t end = low < bound->extent ? hr_min(runs[0].count, (bound->extent - 1 - low) / stride + 1) : 0;
  return end > first ? end - first : 0;
}

/* The stride of the address along a bounded coordinate; 0 if they are not proportional. */
static int64_t axis_stride(int rank, const int64_t *dims, const int64_t *strides, const hr_bound *bound) {
  int64_t axis = 0;
  for (int d = 0; d < rank; ++d) {
    int64_t c = bound->strides[d];
    if (c == 0 || dims[d] == 1) {
      continue;
    }
    if (strides[d] % c != 0 || strides[d] == 0 || (axis != 0 && strides[d] / c != axis)) {
      return 0;
    }
    axis = strides[d] / c;
  }
  return axis;
}

/* True if the strides are those of row-major elements without gaps, whose number then is *out_count; along some dims
 * they may be the same elements. */
static bool is_dense(int rank, const int64_t *dims, const int64_t *strides, int64_t *out_count) {
  int64_t count = 1;
  bool is = true;
  for (int d = rank - 1; d >= 0; --d) {
    bool moves = strides[d] != 0 && dims[d] != 1;
    is &= (!moves || strides[d] == count) && dims[d] != 0;
    count *= moves ? dims[d] : 1;
  }
  *out_count = count;
  return is;
}

int64_t hr_distinct_elements(int rank, const int64_t *dims, const int64_t *strides, int bound_count,
                             const hr_bound *bounds) {
  int64_t dense = 1;
  if (bound_count == 0 && is_dense(rank, dims, strides, &dense)) {
    return dense;
  }
  run runs[STEPS_MAX];
  bool is_done[HR_RANK_MAX] = {false};
  int count = 0;
  for (int d = 0; d < rank; ++d) {
    if (dims[d] == 0) {
      return 0;
    }
  }
  for (int b = 0; b < bound_count; ++b) {
    int64_t inside = count_inside(rank, dims, &bounds[b]), axis = axis_stride(rank, dims, strides, &bounds[b]);
    if (inside == 0) {
      return 0;
    }
    bool is_free = axis != 0 && count < HR_RANK_MAX;
    for (int d = 0; d < rank; ++d) {
      is_free &= bounds[b].strides[d] == 0 || !is_done[d];
    }
    for (int d = 0; is_free && d < rank; ++d) {
      is_done[d] |= bounds[b].strides[d] != 0;
    }
    count = is_free ? add_run(runs, count, axis, inside) : count;
  }
  for (int d = 0; d < rank; ++d) {
    count = is_done[d] ? count : add_run(runs, count, strides[d], dims[d]);
  }
  return count_runs(runs, count);
}

int64_t hr_operand_bytes(const hr_operand *operand) {
  if (operand->kind != HR_OPERAND_VALUE) {
    return 0;
  }
  return (int64_t)hr_dtype_size(operand->dtype) *
         hr_distinct_elements(operand->rank, operand->dims, operand->strides, operand->bound_count, operand->bounds);
}

static int64_t product(const hr_operand *operand, int first) {
  int64_t count = 1;
  for (int d = first; d < operand->rank; ++d) {
    count *= operand->dims[d];
  }
  return count;
}

/* Counts the vector products for each pair of a query and a visible key: one of q's row length and one of v's; for the
 * gradient three and two. */
static int64_t attention_flops(const hr_operand *q, const hr_operand *k, const hr_operand *v, bool is_causal,
                               bool is_backward) {
  int64_t queries = q->dims[q->rank - 2], keys = k->dims[k->rank - 2], heads = product(q, 0);
  int64_t width = q->dims[q->rank - 1], v_width = v->dims[v->rank - 1], seen = queries * keys;
  if (queries == 0 || width == 0) {
    return 0;
  }
  if (is_causal) { /* row l sees keys 0 .. l */
    int64_t rising = queries < keys ? queries : keys;
    seen = rising * (rising + 1) / 2 + (queries - rising) * keys;
  }
  return 2 * (heads / queries / width) * seen * (is_backward ? 3 * width + 2 * v_width : width + v_width);
}

int64_t hr_node_flops(const hr_node *node) {
  switch (node->op) {
    case HR_OP_MATMUL:
      return 2 * product(&node->outputs[0], 0) * node->inputs[0].dims[node->inputs[0].rank - 1];
    case HR_OP_CONV: /* for each element of y one channel's weights; both gradients compute the same products */
      return 2 * product(&node->outputs[0], 0) * product(&node->inputs[1], 1);
    case HR_OP_CONV_BACKWARD_DATA:
      return 2 * product(&node->inputs[0], 0) * product(&node->inputs[1], 1);
    case HR_OP_CONV_BACKWARD_WEIGHT:
      return 2 * product(&node->inputs[1], 0) * product(&node->outputs[0], 1);
    case HR_OP_ATTENTION:
      return attention_flops(&node->inputs[0], &node->inputs[1], &node->inputs[2], node->ints[0] != 0, false);
    case HR_OP_ATTENTION_BACKWARD:
      return attention_flops(&node->inputs[1], &node->inputs[2], &node->inputs[3], node->ints[0] != 0, true);
    case HR_OP_LSTM: /* of the products: each element of the gates has the weights of one row */
    case HR_OP_GRU:
      return 2 * product(&node->inputs[0], 0) * node->inputs[1].dims[1];
    case HR_OP_LSTM_BACKWARD:
    case HR_OP_GRU_BACKWARD:
      return 2 * product(&node->outputs[0], 0) * node->outputs[0].dims[2] / (node->op == HR_OP_GRU_BACKWARD ? 3 : 4);
    default:
      return 0;
  }
}

/* ---- kernels ---- */

static int64_t points(const hr_kernel *kernel, hr_level level) {
  int64_t count = 1;
  for (int d = 0; d < kernel->rank; ++d) {
    count *= level == HR_LEVEL_ROW && (kernel->reduce_mask >> d & 1) != 0 ? 1 : kernel->dims[d];
  }
  return count;
}

/* True for a load, or a store that adds to the old element. */
static bool reads_memory(const hr_instr *instr) {
  return instr->kind == HR_INSTR_LOAD || (instr->kind == HR_INSTR_STORE && instr->mode != HR_STORE_SET);
}

/* True if an instruction of the same kind before `at` has accessed the same elements. */
static bool was_counted(const hr_kernel *kernel, int at) {
  const hr_instr *instr = &kernel->instrs[at];
  for (int k = 0; k < at; ++k) {
    if (kernel->instrs[k].kind == instr->kind &&
        hr_kernel_same_elements(kernel, &kernel->accesses[kernel->instrs[k].access],
                                &kernel->accesses[instr->access])) {
      return true;
    }
  }
  return false;
}

/* The bytes from the first to the last that loads, or stores, of an argument may reach; INT64_MAX for access through
 * indices. */
static int64_t reach(const hr_kernel *kernel, int arg, bool is_read) {
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (!(is_read ? reads_memory(instr) : instr->kind == HR_INSTR_STORE) ||
        kernel->accesses[instr->access].arg != arg) {
      continue;
    }
    const hr_access *access = &kernel->accesses[instr->access];
    int64_t first = access->offset, last = access->offset, size = (int64_t)hr_dtype_size(access->dtype);
    for (int d = 0; d < kernel->rank; ++d) {
      int64_t span = access->strides[d] * (kernel->dims[d] - 1);
      first += span < 0 ? span : 0;
      last += span > 0 ? span : 0;
    }
    if (access->term_count != 0) {
      return INT64_MAX;
    }
    low = hr_min(low, first * size);
    high = (last + 1) * size > high ? (last + 1) * size : high;
  }
  return high > low ? high - low : 0;
}

/* The first 64 arguments as bits: those that were accessed, and those whose bytes may be more than the reach. */
typedef struct counted {
  uint64_t any, unsure;
} counted;

/* One access without gaps reaches as many bytes as it has. */
static void note_access(counted *c, int arg, bool is_gapless) {
  uint64_t bit = arg < 64 ? UINT64_C(1) << arg : 0;
  c->unsure |= is_gapless ? c->any & bit : bit;
  c->any |= bit;
}

/* The bytes of an argument: those of all accesses together are no more than the buffer's or those in reach. */
static int64_t bound_bytes(const hr_kernel *kernel, const counted *c, int arg, bool is_read, int64_t bytes,
                           int64_t most) {
  bool may_be_less = bytes != 0 && (arg >= 64 || (c->unsure >> arg & 1) != 0);
  return hr_min(hr_min(bytes, most), may_be_less ? reach(kernel, arg, is_read) : INT64_MAX);
}

void hr_kernel_count_traffic(const hr_program *program, hr_kernel *kernel, hr_kernel_arg *args) {
  counted reads = {0, 0}, writes = {0, 0};
  const int64_t elements = points(kernel, HR_LEVEL_ELEMENT), rows = points(kernel, HR_LEVEL_ROW);
  kernel->bytes = kernel->flops = 0;
  for (int a = 0; a < kernel->arg_count; ++a) {
    args[a].bytes_read = args[a].bytes_written = 0;
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    bool computes =
        instr->kind == HR_INSTR_COMPUTE || instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE;
    bool is_row = instr->level == HR_LEVEL_ROW && instr->kind == HR_INSTR_COMPUTE;
    kernel->flops += !computes ? 0 : is_row ? rows : elements;
    if ((instr->kind != HR_INSTR_LOAD && instr->kind != HR_INSTR_STORE) || was_counted(kernel, k)) {
      continue;
    }
    const hr_access *access = &kernel->accesses[instr->access];
    int64_t count = 0;
    bool is_plain = access->term_count == 0 && access->bound_count == 0;
    bool is_gapless = is_plain && is_dense(kernel->rank, kernel->dims, access->strides, &count);
    if (!is_gapless) {
      count = access->term_count > 0 ? points(kernel, instr->level)
                                     : hr_distinct_elements(kernel->rank, kernel->dims, access->strides,
                                                            access->bound_count, access->bounds);
    }
    int64_t bytes = count * (int64_t)hr_dtype_size(access->dtype);
    if (reads_memory(instr)) {
      args[access->arg].bytes_read += bytes;
      note_access(&reads, access->arg, is_gapless);
    }
    if (instr->kind == HR_INSTR_STORE) {
      args[access->arg].bytes_written += bytes;
      note_access(&writes, access->arg, is_gapless);
    }
  }
  for (int a = 0; a < kernel->arg_count; ++a) {
    int64_t most = (int64_t)program->buffers[args[a].buffer].bytes;
    args[a].bytes_read = bound_bytes(kernel, &reads, a, true, args[a].bytes_read, most);
    args[a].bytes_written = bound_bytes(kernel, &writes, a, false, args[a].bytes_written, most);
    kernel->bytes += args[a].bytes_read + args[a].bytes_written;
  }
}
