/* Checks a kernel: counts and indices, one definition for each register before its uses, levels, phases, classes,
 * accesses. Messages name the kernel and the instruction. */
#include "core/ir/kernel.h"

#include "core/ops/op.h"

typedef struct verifier {
  const hr_kernel *kernel;
  int at; /* the instruction */
} verifier;

static hr_status bad(const verifier *v, const char *what, int64_t is, int64_t expected) {
  return hr_status_make(HR_STATUS_INTERNAL, "kernel %s, instruction %d: %s: %lld, expected %lld",
                        v->kernel->name != NULL ? v->kernel->name : "", v->at, what, (long long)is,
                        (long long)expected);
}

#define EXPECT(v, what, is, expected)                             \
  do {                                                            \
    int64_t is_ = (int64_t)(is), expected_ = (int64_t)(expected); \
    if (is_ != expected_) {                                       \
      return bad((v), (what), is_, expected_);                    \
    }                                                             \
  } while (0)

/* The instruction that defines a register, -1 for none. */
static int definition(const hr_kernel *kernel, int reg) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].dst == reg) {
      return k;
    }
  }
  return -1;
}

/* True if instruction `maker` has run before `user` runs; for the whole row if that matters. */
static bool runs_before(const hr_instr *maker, const hr_instr *user, int maker_at, int user_at) {
  bool is_result = maker->kind == HR_INSTR_REDUCE || maker->kind == HR_INSTR_ARGREDUCE;
  if (is_result || maker->phase != user->phase) {
    return maker->phase < user->phase;
  }
  return maker->level != user->level ? maker->level == HR_LEVEL_ROW : maker_at < user_at;
}

static hr_status check_use(const verifier *v, const hr_instr *user, int reg) {
  const hr_kernel *kernel = v->kernel;
  if (reg < 0 || reg >= kernel->register_count) {
    return bad(v, "register", reg, kernel->register_count - 1);
  }
  int maker_at = definition(kernel, reg);
  if (maker_at < 0) {
    return bad(v, "definition of a register", maker_at, reg);
  }
  const hr_instr *maker = &kernel->instrs[maker_at];
  if (!runs_before(maker, user, maker_at, v->at)) {
    return bad(v, "a register is used before it is made; instruction", maker_at, v->at - 1);
  }
  const hr_register *r = &kernel->registers[reg];
  if (user->level == HR_LEVEL_ROW) {
    EXPECT(v, "level of a register that a row instruction reads", r->level, HR_LEVEL_ROW);
  }
  if (user->phase > r->last_phase) {
    return bad(v, "last phase of a register", r->last_phase, user->phase);
  }
  return HR_OK;
}

static hr_status check_access(const verifier *v, const hr_instr *instr) {
  const hr_kernel *kernel = v->kernel;
  bool has_access = instr->kind == HR_INSTR_LOAD || instr->kind == HR_INSTR_INDEX || instr->kind == HR_INSTR_STORE;
  if (!has_access) {
    EXPECT(v, "access of an instruction without memory", instr->access, -1);
    return HR_OK;
  }
  if (instr->access < 0 || instr->access >= kernel->access_count) {
    return bad(v, "access", instr->access, kernel->access_count - 1);
  }
  const hr_access *access = &kernel->accesses[instr->access];
  if (instr->kind == HR_INSTR_INDEX) {
    EXPECT(v, "argument of an index", access->arg, -1);
  } else {
    if (access->arg < 0 || access->arg >= kernel->arg_count) {
      return bad(v, "argument", access->arg, kernel->arg_count - 1);
    }
    const hr_kernel_arg *arg = &kernel->args[access->arg];
    EXPECT(v, "use of an argument is declared", instr->kind == HR_INSTR_STORE ? arg->is_written : arg->is_read, true);
    if (hr_dtype_class(access->dtype) == HR_CLASS_NONE) {
      return bad(v, "dtype of an access", access->dtype, HR_DTYPE_F32);
    }
  }
  for (int d = 0; instr->level == HR_LEVEL_ROW && d < kernel->rank; ++d) {
    if ((kernel->reduce_mask >> d & 1) != 0) {
      EXPECT(v, "stride of a row access in a reduced dim", access->strides[d], 0);
    }
  }
  for (int t = 0; t < access->term_count; ++t) {
    HR_RETURN_IF_ERROR(check_use(v, instr, access->terms[t].reg));
    hr_class cls = kernel->registers[access->terms[t].reg].cls;
    if (cls != HR_CLASS_I32) {
      EXPECT(v, "class of an index", cls, HR_CLASS_I64);
    }
  }
  if (access->fill >= kernel->scalar_count) {
    return bad(v, "fill scalar", access->fill, kernel->scalar_count - 1);
  }
  return HR_OK;
}

/* The class that a source must have; NONE for any. */
static hr_class wanted_class(const hr_kernel *kernel, const hr_instr *instr, int source) {
  switch (instr->kind) {
    case HR_INSTR_COMPUTE: {
      hr_op_rule rule = hr_op_table(instr->op)->rule;
      if (rule == HR_RULE_SEEDED) {
        return HR_CLASS_I64;
      }
      return rule == HR_RULE_WHERE && source == 0 ? HR_CLASS_B8 : instr->cls;
    }
    case HR_INSTR_REDUCE:
      return instr->cls;
    case HR_INSTR_ARGREDUCE:
      return source == 0 ? instr->cls : HR_CLASS_I64;
    case HR_INSTR_STORE:
      return hr_dtype_class(kernel->accesses[instr->access].dtype);
    default:
      return HR_CLASS_NONE;
  }
}

static hr_class result_class(const hr_kernel *kernel, const hr_instr *instr) {
  switch (instr->kind) {
    case HR_INSTR_LOAD:
      return hr_dtype_class(kernel->accesses[instr->access].dtype);
    case HR_INSTR_INDEX:
      return HR_CLASS_I64;
    case HR_INSTR_CONVERT:
      return hr_dtype_class(instr->to);
    case HR_INSTR_COMPUTE:
    case HR_INSTR_REDUCE:
    case HR_INSTR_ARGREDUCE:
      return hr_op_result_class(instr->op, instr->cls);
    default:
      return HR_CLASS_NONE;
  }
}

static int wanted_sources(const hr_instr *instr) {
  switch (instr->kind) {
    case HR_INSTR_LOAD:
    case HR_INSTR_INDEX:
      return 0;
    case HR_INSTR_COMPUTE:
      return hr_op_table(instr->op)->arity;
    case HR_INSTR_ARGREDUCE:
      return 2;
    default:
      return 1;
  }
}

static hr_status check_sources(const verifier *v, const hr_instr *instr) {
  const hr_kernel *kernel = v->kernel;
  EXPECT(v, "number of sources", instr->source_count, wanted_sources(instr));
  for (int s = 0; s < instr->source_count; ++s) {
    const hr_source *source = &instr->sources[s];
    if (source->kind == HR_SOURCE_SCALAR) {
      if (source->index < 0 || source->index >= kernel->scalar_count) {
        return bad(v, "scalar", source->index, kernel->scalar_count - 1);
      }
      continue;
    }
    EXPECT(v, "kind of a source", source->kind, HR_SOURCE_REGISTER);
    HR_RETURN_IF_ERROR(check_use(v, instr, source->index));
    hr_class wanted = wanted_class(kernel, instr, s);
    if (wanted != HR_CLASS_NONE) {
      EXPECT(v, "class of a source", kernel->registers[source->index].cls, wanted);
    }
  }
  return HR_OK;
}

static hr_status check_result(const verifier *v, const hr_instr *instr) {
  const hr_kernel *kernel = v->kernel;
  if (instr->kind == HR_INSTR_STORE) {
    EXPECT(v, "result of a store", instr->dst, -1);
    return HR_OK;
  }
  if (instr->dst < 0 || instr->dst >= kernel->register_count) {
    return bad(v, "result register", instr->dst, kernel->register_count - 1);
  }
  const hr_register *reg = &kernel->registers[instr->dst];
  bool is_result = instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE;
  EXPECT(v, "the one definition of a register", definition(kernel, instr->dst), v->at);
  EXPECT(v, "class of the result", reg->cls, result_class(kernel, instr));
  EXPECT(v, "level of the result", reg->level, is_result ? HR_LEVEL_ROW : instr->level);
  EXPECT(v, "phase of the result", reg->phase, instr->phase);
  return HR_OK;
}

static hr_status check_instr(const verifier *v, const hr_instr *instr) {
  if ((unsigned)instr->kind > HR_INSTR_STORE) {
    return bad(v, "kind of instruction", instr->kind, HR_INSTR_STORE);
  }
  if (instr->phase < 0 || instr->phase >= v->kernel->phase_count) {
    return bad(v, "phase", instr->phase, v->kernel->phase_count - 1);
  }
  hr_op_family family = hr_op_table(instr->op)->family;
  bool is_reduction = instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE;
  if (instr->kind == HR_INSTR_COMPUTE) {
    EXPECT(v, "family of the operation", family, HR_FAMILY_POINTWISE);
  }
  if (is_reduction) {
    EXPECT(v, "family of the operation", family,
           instr->kind == HR_INSTR_REDUCE ? HR_FAMILY_REDUCE : HR_FAMILY_ARGREDUCE);
    EXPECT(v, "level of a reduction", instr->level, HR_LEVEL_ELEMENT);
    EXPECT(v, "the kernel reduces", v->kernel->reduce_mask != 0, true);
  }
  HR_RETURN_IF_ERROR(check_access(v, instr));
  HR_RETURN_IF_ERROR(check_sources(v, instr));
  return check_result(v, instr);
}

hr_status hr_kernel_verify(const hr_kernel *kernel) {
  verifier v = {kernel, -1};
  if (kernel->rank < 0 || kernel->rank > HR_RANK_MAX) {
    return bad(&v, "rank", kernel->rank, HR_RANK_MAX);
  }
  uint32_t all = kernel->rank == 0 ? 0 : ~(uint32_t)0 >> (32 - kernel->rank);
  EXPECT(&v, "reduced dims outside the domain", kernel->reduce_mask & ~all, 0);
  EXPECT(&v, "ordered dims outside the domain", kernel->ordered_mask & ~all, 0);
  EXPECT(&v, "a kernel that reduces and scatters", kernel->reduce_mask != 0 && kernel->ordered_mask != 0, false);
  if (kernel->is_repeated) {
    EXPECT(&v, "dims of a repeated kernel that are reduced or ordered", kernel->reduce_mask | kernel->ordered_mask, 0);
    EXPECT(&v, "a repeated kernel has a scalar for its iterations", kernel->scalar_count > 0, true);
  }
  EXPECT(&v, "order of reductions", kernel->order, hr_kernel_order(kernel->rank, kernel->dims, kernel->reduce_mask));
  for (int d = 0; d < kernel->rank; ++d) {
    if (kernel->dims[d] < 0) {
      return bad(&v, "dim", kernel->dims[d], 0);
    }
  }
  for (v.at = 0; v.at < kernel->instr_count; ++v.at) {
    HR_RETURN_IF_ERROR(check_instr(&v, &kernel->instrs[v.at]));
  }
  return HR_OK;
}
