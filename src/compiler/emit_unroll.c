/* Short reductions become element-wise: the elements of a row side by side.
 *
 *   dims [64, 14, 14, 2, 2] reduce {3,4}         dims [64, 14, 14]
 *   r0 = load x                                  r0 = load x+0    r1 = load x+1    r2 = maximum r0, r1
 *   r1 = reduce amax r0                          r3 = load x+28   r4 = maximum r2, r3 ...
 *
 * At most 32 elements are combined one after the other (core/ir/kernel.h), just as a chain of operations does. The
 * chain starts with the first element, since the identity changes nothing.
 */
#include <string.h>

#include "compiler/emit_internal.h"

enum { INSTRS_MAX = 640 };

typedef struct unroller {
  const hr_kernel *from;
  hr_kernel *to;
  hr_instr *instrs;
  hr_access *accesses;
  hr_register *registers;
  hr_source *now;  /* of the old kernel's registers, for the current element */
  hr_source *best; /* ARGREDUCE: the best key, by destination */
  hr_arena *arena;
  bool failed;
} unroller;

static hr_op combine_op(const hr_instr *instr) {
  hr_op op = hr_op_table(instr->op)->combine;
  bool is_complex = instr->cls == HR_CLASS_C64 || instr->cls == HR_CLASS_C128;
  return op == HR_OP_MUL && is_complex ? HR_OP_NONE : op; /* 1 + 0i times infinity is not infinity */
}

static hr_source make_register(unroller *u, hr_class cls) {
  int r = u->to->register_count++;
  u->registers[r] = (hr_register){.cls = cls, .level = HR_LEVEL_ELEMENT};
  return (hr_source){HR_SOURCE_REGISTER, r};
}

static hr_source map_source(const unroller *u, hr_source source) {
  return source.kind == HR_SOURCE_REGISTER ? u->now[source.index] : source;
}

static hr_source compute(unroller *u, hr_op op, hr_class cls, hr_class result, int count, const hr_source *sources) {
  hr_instr *instr = &u->instrs[u->to->instr_count++];
  *instr = (hr_instr){.kind = HR_INSTR_COMPUTE, .op = op, .cls = cls, .access = -1, .source_count = count};
  memcpy(instr->sources, sources, (size_t)count * sizeof *sources);
  hr_source dst = make_register(u, result);
  instr->dst = dst.index;
  return dst;
}

/* The access at one element of the row. */
static int copy_access(unroller *u, const hr_access *access, const int64_t *place) {
  int rank = u->from->rank, index = u->to->access_count++;
  hr_access *copy = &u->accesses[index];
  hr_bound *bounds = hr_arena_alloc(u->arena, (size_t)(access->bound_count + 1) * sizeof *bounds);
  hr_kernel_term *terms = hr_arena_alloc(u->arena, (size_t)(access->term_count + 1) * sizeof *terms);
  *copy = *access;
  if (bounds == NULL || terms == NULL) {
    u->failed = true;
    return index;
  }
  for (int b = 0; b < access->bound_count; ++b) {
    bounds[b] = access->bounds[b];
    for (int d = 0; d < rank; ++d) {
      bounds[b].offset += place[d] * access->bounds[b].strides[d];
    }
  }
  for (int t = 0; t < access->term_count; ++t) {
    terms[t] = access->terms[t];
    terms[t].reg = u->now[terms[t].reg].index;
  }
  for (int d = 0; d < rank; ++d) {
    copy->offset += place[d] * access->strides[d];
  }
  copy->bounds = bounds, copy->terms = terms;
  return index;
}

/* True if each element of a row has a larger index than those before it: a running number that steps upwards. */
static bool comes_later(const unroller *u, const hr_source *index) {
  const hr_kernel *from = u->from;
  for (int k = 0; k < from->instr_count; ++k) {
    const hr_instr *instr = &from->instrs[k];
    if (instr->kind != HR_INSTR_INDEX || index->kind != HR_SOURCE_REGISTER || instr->dst != index->index) {
      continue;
    }
    int64_t reach = 0;
    for (int d = from->rank - 1; d >= 0; --d) {
      if ((from->reduce_mask >> d & 1) != 0 && from->dims[d] > 1) {
        int64_t step = from->accesses[instr->access].strides[d];
        if (step <= reach || step > INT32_MAX) {
          return false;
        }
        reach += step * (from->dims[d] - 1);
      }
    }
    return true;
  }
  return false;
}

static void reduce(unroller *u, const hr_instr *instr, bool is_first) {
  hr_source source = map_source(u, instr->sources[0]), *dst = &u->now[instr->dst];
  if (instr->kind == HR_INSTR_ARGREDUCE) {
    hr_source index = map_source(u, instr->sources[1]), *key = &u->best[instr->dst];
    if (is_first) {
      *key = source, *dst = index;
      return;
    }
    int count = comes_later(u, &instr->sources[1]) ? 2 : 4; /* a tie goes to the earlier one */
    hr_source take = compute(u, instr->op, instr->cls, HR_CLASS_B8, count, (hr_source[]){source, *key, index, *dst});
    *key = compute(u, HR_OP_WHERE, instr->cls, instr->cls, 3, (hr_source[]){take, source, *key});
    *dst = compute(u, HR_OP_WHERE, HR_CLASS_I64, HR_CLASS_I64, 3, (hr_source[]){take, index, *dst});
  } else if (is_first) {
    *dst = source.kind == HR_SOURCE_REGISTER ? source : compute(u, HR_OP_COPY, instr->cls, instr->cls, 1, &source);
  } else {
    *dst = compute(u, combine_op(instr), instr->cls, instr->cls, 2, (hr_source[]){*dst, source});
  }
}

static void copy_instr(unroller *u, const hr_instr *instr, const int64_t *place, bool is_first) {
  if (instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE) {
    reduce(u, instr, is_first);
    return;
  }
  hr_instr copy = *instr;
  copy.level = HR_LEVEL_ELEMENT, copy.phase = 0;
  for (int s = 0; s < copy.source_count; ++s) {
    copy.sources[s] = map_source(u, instr->sources[s]);
  }
  if (copy.access >= 0) {
    copy.access = copy_access(u, &u->from->accesses[instr->access], place);
  }
  if (copy.dst >= 0) {
    u->now[instr->dst] = make_register(u, u->from->registers[instr->dst].cls);
    copy.dst = u->now[instr->dst].index;
  }
  u->instrs[u->to->instr_count++] = copy;
}

/* Every element has its own values of registers that cross phases: [element][register]. */
static void unroll(unroller *u, int64_t elements, hr_source *all) {
  const hr_kernel *from = u->from;
  int64_t zero[HR_RANK_MAX] = {0};
  size_t registers = (size_t)from->register_count;
  hr_source *rows = u->now;
  for (int phase = 0; phase < from->phase_count; ++phase) {
    for (int k = 0; k < from->instr_count; ++k) {
      if (from->instrs[k].phase == phase && from->instrs[k].level == HR_LEVEL_ROW) {
        copy_instr(u, &from->instrs[k], zero, true);
      }
    }
    for (int64_t i = 0; i < elements; ++i) {
      int64_t place[HR_RANK_MAX] = {0}, rest = i;
      for (int d = from->rank - 1; d >= 0; --d) {
        if ((from->reduce_mask >> d & 1) != 0) {
          place[d] = rest % from->dims[d];
          rest /= from->dims[d];
        }
      }
      u->now = all + (size_t)i * registers;
      for (size_t r = 0; r < registers; ++r) {
        if (from->registers[r].level == HR_LEVEL_ROW) {
          u->now[r] = rows[r];
        }
      }
      for (int k = 0; k < from->instr_count; ++k) {
        const hr_instr *instr = &from->instrs[k];
        if (instr->phase == phase && instr->level == HR_LEVEL_ELEMENT) {
          copy_instr(u, instr, place, i == 0);
        }
      }
      for (size_t r = 0; r < registers; ++r) {
        if (from->registers[r].level == HR_LEVEL_ROW) {
          rows[r] = u->now[r];
        }
      }
    }
    u->now = rows;
  }
}

static int64_t row_elements(const hr_kernel *kernel) {
  int64_t count = 1;
  for (int d = 0; d < kernel->rank; ++d) {
    if ((kernel->reduce_mask >> d & 1) != 0) {
      count = kernel->dims[d] == 0 ? 0 : count > HR_REDUCE_SEQUENTIAL_MAX ? count : count * kernel->dims[d];
    }
  }
  return count;
}

static bool can_unroll(const hr_kernel *kernel, int64_t elements) {
  if (kernel->reduce_mask == 0 || elements == 0 || elements > HR_REDUCE_SEQUENTIAL_MAX ||
      elements * kernel->instr_count > INSTRS_MAX) {
    return false;
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].kind == HR_INSTR_REDUCE && combine_op(&kernel->instrs[k]) == HR_OP_NONE) {
      return false;
    }
  }
  return true;
}

hr_status hr__emit_unroll(const hr_kernel *kernel, hr_arena *arena, const hr_kernel **out_kernel) {
  int64_t elements = row_elements(kernel);
  *out_kernel = kernel;
  if (!can_unroll(kernel, elements)) {
    return HR_OK;
  }
  size_t most = (size_t)(kernel->instr_count * elements * 3 + 1), registers = (size_t)kernel->register_count + 1;
  hr_kernel *to = hr_arena_dup(arena, kernel, sizeof *kernel);
  int64_t *dims = hr_arena_dup(arena, kernel->dims, (size_t)kernel->rank * sizeof *dims + 1);
  unroller u = {.from = kernel, .to = to, .arena = arena};
  u.instrs = HR_ARENA_ARRAY(arena, hr_instr, most);
  u.accesses = HR_ARENA_ARRAY(arena, hr_access, most);
  u.registers = HR_ARENA_ARRAY(arena, hr_register, most);
  u.now = HR_ARENA_ARRAY(arena, hr_source, registers);
  u.best = HR_ARENA_ARRAY(arena, hr_source, registers);
  hr_source *all = HR_ARENA_ARRAY(arena, hr_source, registers * (size_t)elements);
  if (to == NULL || dims == NULL || u.instrs == NULL || u.accesses == NULL || u.registers == NULL || u.now == NULL ||
      u.best == NULL || all == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "emit: no memory to unroll %lld elements", (long long)elements);
  }
  for (int d = 0; d < kernel->rank; ++d) {
    dims[d] = (kernel->reduce_mask >> d & 1) != 0 ? 1 : kernel->dims[d];
  }
  to->dims = dims, to->reduce_mask = 0, to->order = HR_ORDER_NONE, to->phase_count = 1;
  to->instr_count = to->access_count = to->register_count = 0;
  to->instrs = u.instrs, to->accesses = u.accesses, to->registers = u.registers;
  unroll(&u, elements, all);
  *out_kernel = to;
  return u.failed ? hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "emit: no memory to unroll") : HR_OK;
}
