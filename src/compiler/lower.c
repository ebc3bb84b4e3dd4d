/* lower.c: lowers a group of loop nodes to a kernel form.
 *
 *   before   group over [64, 1000], reduced dim 1            after   phase 0   r0 = load %0       r1 = reduce amax r0
 *            %1 = amax(%0); %2 = sub(%0, %1)                         phase 1   r2 = load %0       r3 = sub r2, r1
 *            %3 = exp(%2);  %4 = sum(%3)                                       r4 = exp r3        r5 = reduce sum r4
 *            %5 = div(%3, %4)                                        phase 2   r6 = div r4, r5    store %5, r6
 *
 * Every write of the group is a value in a register. A read of the same elements uses the newest value whose version is
 * not above the requested one, else memory. In a later phase, memory is loaded again (a contiguous load costs nothing)
 * and cheap exact operations on memory are computed again; other values stay resident for the row. A store waits for
 * the last load of the contents that it replaces.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/vector.h"
#include "compiler/passes.h"
#include "core/ir/traffic.h"
#include "core/ops/op.h"

enum { RECOMPUTE_DEPTH_MAX = 3 };

/* The value of one write of the group in a register; one more entry for each phase in which it was computed again. */
typedef struct value {
  uint32_t buffer, version;
  const hr_node *node;
  const hr_operand *operand;
  int reg;
  hr_level level;
  int phase;    /* the first phase that may use it */
  bool is_copy; /* computed again: never stored */
} value;

typedef struct load {
  const hr_node *node;
  const hr_operand *operand;
  hr_level level;
  int phase, reg;
} load;

typedef struct conversion {
  int from, reg, phase;
  hr_dtype to;
} conversion;

typedef struct lowering {
  hr_program *program;
  const hr_group *group;
  const hr_liveness *liveness;
  int group_index;
  /* below: of this group; the memory is used again for the next one */
  HR_VECTOR(hr_instr) instrs;
  HR_VECTOR(hr_access) accesses;
  HR_VECTOR(hr_register) registers;
  HR_VECTOR(hr_kernel_arg) args;
  HR_VECTOR(uint32_t) scalars;
  HR_VECTOR(value) values;
  HR_VECTOR(load) loads;
  HR_VECTOR(conversion) conversions;
  HR_VECTOR(int) buffer_load_phase; /* by argument: the last phase that loads it */
  bool out_of_memory;
} lowering;

#define PUSH(l, vector, ...)                          \
  do {                                                \
    if (!hr_vector_push(&(l)->vector, __VA_ARGS__)) { \
      (l)->out_of_memory = true;                      \
    }                                                 \
  } while (0)

static hr_dtype class_dtype(hr_class cls) {
  static const hr_dtype table[HR_CLASS_COUNT] = {
      [HR_CLASS_B8] = HR_DTYPE_BOOL, [HR_CLASS_I32] = HR_DTYPE_I32, [HR_CLASS_U32] = HR_DTYPE_U32,
      [HR_CLASS_I64] = HR_DTYPE_I64, [HR_CLASS_U64] = HR_DTYPE_U64, [HR_CLASS_F32] = HR_DTYPE_F32,
      [HR_CLASS_F64] = HR_DTYPE_F64, [HR_CLASS_C64] = HR_DTYPE_C64, [HR_CLASS_C128] = HR_DTYPE_C128};
  return table[cls];
}

static int new_register(lowering *l, hr_class cls, hr_level level, int phase) {
  PUSH(l, registers, (hr_register){cls, level, phase, phase});
  return (int)l->registers.count - 1;
}

static hr_source source_register(int reg) {
  return (hr_source){HR_SOURCE_REGISTER, reg};
}

static void emit(lowering *l, hr_instr instr) {
  if (l->out_of_memory) {
    return;
  }
  for (int i = 0; i < instr.source_count; ++i) {
    if (instr.sources[i].kind == HR_SOURCE_REGISTER) {
      hr_register *reg = &l->registers.data[instr.sources[i].index];
      reg->last_phase = instr.phase > reg->last_phase ? instr.phase : reg->last_phase;
    }
  }
  PUSH(l, instrs, instr);
}

static int use_argument(lowering *l, uint32_t buffer, bool is_write) {
  size_t a = 0;
  while (a < l->args.count && l->args.data[a].buffer != buffer) {
    ++a;
  }
  if (a == l->args.count) {
    PUSH(l, args, (hr_kernel_arg){.buffer = buffer});
    PUSH(l, buffer_load_phase, 0);
    if (l->out_of_memory) {
      return 0;
    }
  }
  l->args.data[a].is_read |= !is_write;
  l->args.data[a].is_written |= is_write;
  return (int)a;
}

static int use_scalar(lowering *l, uint32_t scalar) {
  for (size_t s = 0; s < l->scalars.count; ++s) {
    if (l->scalars.data[s] == scalar) {
      return (int)s;
    }
  }
  PUSH(l, scalars, scalar);
  return (int)l->scalars.count - 1;
}

static const int64_t *map_bound(lowering *l, const hr_node *node, const hr_bound *bound) {
  int64_t strides[HR_RANK_MAX];
  hr_group_map_bound(&l->group->domain, node, bound, strides);
  return hr_arena_dup_words(&l->program->arena, strides, l->group->domain.rank);
}

static int source_for_input(lowering *l, const hr_node *node, int input, hr_level level, int phase, hr_dtype to,
                            hr_source *out_source, int depth);

/* An i64 register of exactly the level that an access with terms needs. */
static int term_register(lowering *l, const hr_node *node, int input, hr_level level, int phase) {
  hr_source source;
  source_for_input(l, node, input, level, phase, HR_DTYPE_I64, &source, 0);
  if (l->out_of_memory) {
    return 0;
  }
  if (source.kind == HR_SOURCE_REGISTER && l->registers.data[source.index].level == level) {
    return source.index;
  }
  int reg = new_register(l, HR_CLASS_I64, level, phase);
  emit(l, (hr_instr){.kind = HR_INSTR_COMPUTE,
                     .level = level,
                     .phase = phase,
                     .op = HR_OP_COPY,
                     .cls = HR_CLASS_I64,
                     .dst = reg,
                     .source_count = 1,
                     .sources = {source},
                     .access = -1});
  return reg;
}

static int new_access(lowering *l, const hr_node *node, const hr_operand *operand, const int64_t *strides,
                      hr_level level, int phase, bool is_write) {
  hr_arena *arena = &l->program->arena;
  hr_access access = {.arg = -1, .dtype = operand->dtype, .offset = operand->offset, .fill = -1};
  if (operand->kind == HR_OPERAND_VALUE) {
    access.arg = use_argument(l, operand->index, is_write);
  }
  access.strides = hr_arena_dup_words(arena, strides, l->group->domain.rank);
  hr_kernel_term *terms = hr_arena_alloc(arena, (size_t)operand->term_count * sizeof *terms);
  hr_bound *bounds = hr_arena_alloc(arena, (size_t)operand->bound_count * sizeof *bounds);
  if (access.strides == NULL || terms == NULL || bounds == NULL) {
    l->out_of_memory = true;
    return 0;
  }
  for (int t = 0; t < operand->term_count; ++t) {
    const hr_index_term *term = &operand->terms[t];
    terms[t] = (hr_kernel_term){term_register(l, node, term->input, level, phase), term->stride, term->extent};
    if (!l->out_of_memory) {
      hr_register *reg = &l->registers.data[terms[t].reg];
      reg->last_phase = phase > reg->last_phase ? phase : reg->last_phase;
    }
  }
  for (int k = 0; k < operand->bound_count; ++k) {
    bounds[k] = operand->bounds[k];
    bounds[k].strides = map_bound(l, node, &operand->bounds[k]);
    l->out_of_memory |= bounds[k].strides == NULL;
  }
  access.terms = terms, access.term_count = operand->term_count;
  access.bounds = bounds, access.bound_count = operand->bound_count;
  if (operand->bound_count > 0 && operand->fill != HR_NO_SCALAR) {
    access.fill = use_scalar(l, operand->fill);
  }
  PUSH(l, accesses, access);
  return (int)l->accesses.count - 1;
}

static bool is_constant_on_rows(const lowering *l, const hr_operand *operand, const int64_t *strides) {
  if (l->group->domain.reduce_mask == 0 || operand->term_count != 0 || operand->bound_count != 0) {
    return false;
  }
  for (int d = 0; d < l->group->domain.rank; ++d) {
    if ((l->group->domain.reduce_mask >> d & 1) && strides[d] != 0) {
      return false;
    }
  }
  return true;
}

static bool same_operand(const hr_operand *a, const hr_operand *b) {
  return a->kind == b->kind && (a->bound_count == 0 || a->fill == b->fill) &&
         (a->kind == HR_OPERAND_INDEX || (a->index == b->index && a->version == b->version));
}

/* True if a load gives elements of the operand's dtype out of bounds, too: its fill may need to be rounded or
 * wrapped. */
static bool fill_fits(const lowering *l, const hr_operand *operand) {
  if (operand->bound_count == 0 || operand->fill == HR_NO_SCALAR || !hr_dtype_is_narrow(operand->dtype)) {
    return true;
  }
  const hr_program_scalar *fill = &l->program->scalars[operand->fill];
  return fill->is_constant && fill->dtype == HR_DTYPE_F64 && hr_dtype_is_real(operand->dtype) &&
         !hr_dtype_is_float8(operand->dtype) && /* one has no 0, some no infinity */
         (fill->value.value.f[0] == 0 || isinf(fill->value.value.f[0]));
}

static int convert_register(lowering *l, int reg, hr_dtype to, int phase);

/* The register that holds an operand read from memory (or a running index) in `phase`. */
static int load_register(lowering *l, const hr_node *node, const hr_operand *operand, hr_level level, int phase) {
  int64_t strides[HR_RANK_MAX];
  hr_group_map(&l->group->domain, node, operand, strides);
  if (level == HR_LEVEL_ROW || is_constant_on_rows(l, operand, strides)) {
    level = HR_LEVEL_ROW;
    phase = operand->term_count == 0 ? 0 : phase;
  }
  for (size_t k = 0; k < l->loads.count; ++k) {
    const load *seen = &l->loads.data[k];
    if (seen->level == level && seen->phase == phase && same_operand(seen->operand, operand) &&
        hr_group_same_map(&l->group->domain, seen->node, seen->operand, node, operand)) {
      return seen->reg;
    }
  }
  int access = new_access(l, node, operand, strides, level, phase, false);
  bool is_index = operand->kind == HR_OPERAND_INDEX;
  int reg = new_register(l, is_index ? HR_CLASS_I64 : hr_dtype_class(operand->dtype), level, phase);
  emit(l, (hr_instr){.kind = is_index ? HR_INSTR_INDEX : HR_INSTR_LOAD,
                     .level = level,
                     .phase = phase,
                     .cls = is_index ? HR_CLASS_I64 : hr_dtype_class(operand->dtype),
                     .dst = reg,
                     .access = access});
  if (l->out_of_memory) {
    return 0;
  }
  if (!is_index) {
    int *last = &l->buffer_load_phase.data[l->accesses.data[access].arg];
    *last = phase > *last ? phase : *last;
  }
  reg = fill_fits(l, operand) ? reg : convert_register(l, reg, operand->dtype, phase);
  PUSH(l, loads, (load){node, operand, level, phase, reg});
  return reg;
}

/* The newest value of the group that an operand reads; NULL: its elements are in memory. */
static const value *find_value(const lowering *l, const hr_node *node, const hr_operand *operand) {
  const value *best = NULL;
  if (operand->kind != HR_OPERAND_VALUE || operand->term_count != 0 || operand->bound_count != 0) {
    return NULL;
  }
  for (size_t k = 0; k < l->values.count; ++k) {
    const value *v = &l->values.data[k];
    if (!v->is_copy && v->buffer == operand->index && v->version <= operand->version &&
        (best == NULL || best->version <= v->version) &&
        hr_group_same_map(&l->group->domain, node, operand, v->node, v->operand)) {
      best = v;
    }
  }
  return best;
}

bool hr_is_cheap(hr_op op) {
  return hr_op_table(op)->cost == HR_COST_CHEAP;
}

static bool is_cheap_node(const hr_node *node) {
  return node->epilogue_count == 0 && hr_is_cheap(node->op);
}

static int emit_pointwise(lowering *l, const hr_node *node, hr_level level, int phase, int depth);

/* True if a value is cheap to compute again from memory and results of rows alone. If that needs another resident
 * value, the value itself is better resident. */
static bool is_cheap_again(const lowering *l, const value *v, int phase, int depth) {
  bool is = v->level == HR_LEVEL_ROW || v->phase >= phase || (is_cheap_node(v->node) && depth < RECOMPUTE_DEPTH_MAX);
  for (int i = 0; is && v->level != HR_LEVEL_ROW && v->phase < phase && i < v->node->input_count; ++i) {
    const value *input = find_value(l, v->node, &v->node->inputs[i]);
    is = input == NULL || is_cheap_again(l, input, phase, depth + 1);
  }
  return is;
}

/* The register of a value in `phase`: computed again if that is cheap, else the resident one. */
static int value_register(lowering *l, const value *v, int phase, int depth) {
  if (v->level == HR_LEVEL_ROW || v->phase >= phase || !is_cheap_again(l, v, phase, depth)) {
    return v->reg;
  }
  for (size_t k = 0; k < l->values.count; ++k) {
    const value *copy = &l->values.data[k];
    if (copy->is_copy && copy->phase == phase && copy->operand == v->operand) {
      return copy->reg;
    }
  }
  value again = *v;
  again.reg = emit_pointwise(l, v->node, v->level, phase, depth + 1);
  again.phase = phase;
  again.is_copy = true;
  PUSH(l, values, again);
  return again.reg;
}

static int convert_register(lowering *l, int reg, hr_dtype to, int phase) {
  if (l->out_of_memory) {
    return 0;
  }
  hr_level level = l->registers.data[reg].level;
  if (level == HR_LEVEL_ROW && l->registers.data[reg].phase > phase) {
    phase = l->registers.data[reg].phase;
  }
  for (size_t k = 0; k < l->conversions.count; ++k) {
    const conversion *seen = &l->conversions.data[k];
    if (seen->from == reg && seen->to == to && (seen->phase == phase || level == HR_LEVEL_ROW)) {
      if (seen->phase <= phase) {
        return seen->reg;
      }
    }
  }
  int dst = new_register(l, hr_dtype_class(to), level, phase);
  if (l->out_of_memory) {
    return 0;
  }
  emit(l, (hr_instr){.kind = HR_INSTR_CONVERT,
                     .level = level,
                     .phase = phase,
                     .cls = l->registers.data[reg].cls,
                     .to = to,
                     .dst = dst,
                     .source_count = 1,
                     .sources = {source_register(reg)},
                     .access = -1});
  PUSH(l, conversions, (conversion){reg, dst, phase, to});
  return dst;
}

static int emit_compute(lowering *l, hr_op op, hr_class cls, hr_class result, hr_level level, int phase, int count,
                        const hr_source *sources) {
  int dst = new_register(l, result, level, phase);
  hr_instr instr = {.kind = HR_INSTR_COMPUTE,
                    .level = level,
                    .phase = phase,
                    .op = op,
                    .cls = cls,
                    .dst = dst,
                    .source_count = count,
                    .access = -1};
  memcpy(instr.sources, sources, (size_t)count * sizeof *sources);
  emit(l, instr);
  return dst;
}

/* The source for a node's input in class of dtype `to` (NONE: as it is); 0 or an unused value on failure. */
static int source_for_input(lowering *l, const hr_node *node, int input, hr_level level, int phase, hr_dtype to,
                            hr_source *out_source, int depth) {
  const hr_operand *operand = &node->inputs[input];
  *out_source = (hr_source){HR_SOURCE_NONE, 0};
  if (operand->kind == HR_OPERAND_SCALAR) {
    *out_source = (hr_source){HR_SOURCE_SCALAR, use_scalar(l, operand->index)};
    if (hr_node_number_is_truth(node) && to != HR_DTYPE_BOOL && to != HR_DTYPE_NONE) {
      int truth = emit_compute(l, HR_OP_COPY, HR_CLASS_B8, HR_CLASS_B8, level, phase, 1, out_source);
      *out_source = source_register(convert_register(l, truth, to, phase));
    }
    return 0;
  }
  const value *v = find_value(l, node, operand);
  int reg = v != NULL ? value_register(l, v, phase, depth) : load_register(l, node, operand, level, phase);
  if (l->out_of_memory) {
    return 0;
  }
  if (to != HR_DTYPE_NONE && l->registers.data[reg].cls != hr_dtype_class(to)) {
    reg = convert_register(l, reg, to, phase);
  }
  *out_source = source_register(reg);
  return 0;
}

/* The first phase in which all inputs of a node are available. */
static int first_phase(const lowering *l, const hr_node *node) {
  int phase = 0;
  for (int i = 0; i < node->input_count; ++i) {
    const value *v = find_value(l, node, &node->inputs[i]);
    phase = v != NULL && v->phase > phase ? v->phase : phase;
  }
  return phase;
}

static hr_dtype input_dtype(const hr_op_row *row, int input, hr_class compute) {
  if (row->rule == HR_RULE_WHERE && input == 0) {
    return HR_DTYPE_BOOL;
  }
  return row->rule == HR_RULE_SEEDED ? HR_DTYPE_I64 : class_dtype(compute);
}

/* Rounds or converts a result register to the dtype of the output. */
static int finish_result(lowering *l, int reg, hr_dtype dtype, int phase) {
  if (l->out_of_memory) {
    return 0;
  }
  hr_class cls = l->registers.data[reg].cls;
  bool fits = cls == hr_dtype_class(dtype) && (!hr_dtype_is_narrow(dtype) || cls == HR_CLASS_B8);
  return fits ? reg : convert_register(l, reg, dtype, phase);
}

/* A conversion or a copy: often no instruction at all. */
static int emit_copy(lowering *l, const hr_node *node, hr_level level, int phase, int depth) {
  hr_dtype from = node->inputs[0].dtype, to = node->outputs[0].dtype;
  hr_source source;
  source_for_input(l, node, 0, level, phase, HR_DTYPE_NONE, &source, depth);
  if (l->out_of_memory) {
    return 0;
  }
  hr_class cls = source.kind == HR_SOURCE_SCALAR ? hr_dtype_class(to) : l->registers.data[source.index].cls;
  int reg = source.index;
  if (source.kind == HR_SOURCE_SCALAR || l->registers.data[reg].level != level) {
    reg = emit_compute(l, HR_OP_COPY, cls, cls, level, phase, 1, &source);
  }
  if (source.kind == HR_SOURCE_SCALAR) {
    return finish_result(l, reg, to, phase);
  }
  return node->inputs[0].kind == HR_OPERAND_VALUE && from == to ? reg : finish_result(l, reg, to, phase);
}

/* True if the result is one of the inputs as it is (PICKS), or with another sign (SIGNS), and therefore fits if they
 * do. Integers and formats of one byte do not have the negative of each number. */
static bool fits_like_inputs(const hr_node *node) {
  const hr_op_row *row = hr_op_table(node->op);
  hr_dtype dtype = node->outputs[0].dtype;
  bool has_signs = (row->traits & HR_TRAIT_SIGNS) != 0 && (dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_BF16);
  bool fits = (row->traits & HR_TRAIT_PICKS) != 0 || has_signs;
  for (int i = row->rule == HR_RULE_WHERE ? 1 : 0; i < node->input_count; ++i) {
    fits &= node->inputs[i].kind == HR_OPERAND_VALUE && node->inputs[i].dtype == dtype;
  }
  return fits;
}

/* The row's result in a register, of the dtype of the output. */
static int emit_result(lowering *l, const hr_node *node, hr_class compute, hr_level level, int phase,
                       const hr_source *sources) {
  int reg = emit_compute(l, node->op, compute, hr_op_result_class(node->op, compute), level, phase,
                         hr_op_table(node->op)->arity, sources);
  bool fits = fits_like_inputs(node) && compute == hr_dtype_class(node->outputs[0].dtype);
  return fits ? reg : finish_result(l, reg, node->outputs[0].dtype, phase);
}

static int emit_pointwise(lowering *l, const hr_node *node, hr_level level, int phase, int depth) {
  if (node->op == HR_OP_COPY) {
    return emit_copy(l, node, level, phase, depth);
  }
  const hr_op_row *row = hr_op_table(node->op);
  hr_class compute = hr_node_compute_class(l->program, node);
  hr_source sources[4] = {{HR_SOURCE_NONE, 0}};
  for (int i = 0; i < row->arity; ++i) {
    source_for_input(l, node, i, level, phase, input_dtype(row, i, compute), &sources[i], depth);
  }
  return emit_result(l, node, compute, level, phase, sources);
}

/* A reduction; over nothing but dims of 1 it is a conversion. */
static int emit_reduction(lowering *l, const hr_node *node, int phase, bool is_empty_mask) {
  bool is_argument = hr_op_table(node->op)->family == HR_FAMILY_ARGREDUCE;
  hr_class compute = hr_node_compute_class(l->program, node);
  hr_source sources[2] = {{HR_SOURCE_NONE, 0}};
  source_for_input(l, node, 0, HR_LEVEL_ELEMENT, phase, class_dtype(compute), &sources[0], 0);
  if (is_argument) {
    source_for_input(l, node, 1, HR_LEVEL_ELEMENT, phase, HR_DTYPE_I64, &sources[1], 0);
  }
  int count = is_argument ? 2 : 1;
  hr_class result = is_argument ? HR_CLASS_I64 : compute;
  if (l->out_of_memory) {
    return 0;
  }
  if (is_empty_mask) {
    int reg = emit_compute(l, HR_OP_COPY, result, result, HR_LEVEL_ELEMENT, phase, 1, &sources[count - 1]);
    return finish_result(l, reg, node->outputs[0].dtype, phase);
  }
  for (int i = 0; i < count; ++i) {
    hr_class cls = i == 0 ? compute : HR_CLASS_I64;
    if (sources[i].kind != HR_SOURCE_REGISTER || l->registers.data[sources[i].index].level != HR_LEVEL_ELEMENT) {
      sources[i] = source_register(emit_compute(l, HR_OP_COPY, cls, cls, HR_LEVEL_ELEMENT, phase, 1, &sources[i]));
    }
  }
  int dst = new_register(l, result, HR_LEVEL_ROW, phase);
  hr_instr instr = {.kind = is_argument ? HR_INSTR_ARGREDUCE : HR_INSTR_REDUCE,
                    .level = HR_LEVEL_ELEMENT,
                    .phase = phase,
                    .op = node->op,
                    .cls = compute,
                    .dst = dst,
                    .source_count = count,
                    .access = -1};
  memcpy(instr.sources, sources, (size_t)count * sizeof *sources);
  emit(l, instr);
  return finish_result(l, dst, node->outputs[0].dtype, phase + 1);
}

static bool reads_result(const hr_node *reader, const hr_node *writer) {
  for (int i = 0; i < reader->input_count * writer->output_count; ++i) {
    const hr_operand *input = &reader->inputs[i / writer->output_count];
    const hr_operand *output = &writer->outputs[i % writer->output_count];
    if (input->kind == HR_OPERAND_VALUE && input->index == output->index && input->version == output->version) {
      return true;
    }
  }
  return false;
}

/* The first phase that uses each element-wise node: a value that waits for a sum anyway is not computed before it and
 * kept. Starts with the phases counted by fuse, then goes from the last node to the first. */
static void find_wanted_phases(const hr_program *program, const hr_group *group, int *phases) {
  for (int k = 0; k < group->node_count; ++k) {
    phases[k] = 0;
    for (int j = 0; j < k && group->domain.reduce_mask != 0; ++j) {
      const hr_node *writer = &program->nodes[group->nodes[j]];
      int phase = phases[j] + (writer->reduce_mask != 0);
      phases[k] = phase > phases[k] && reads_result(&program->nodes[group->nodes[k]], writer) ? phase : phases[k];
    }
  }
  for (int j = group->node_count - 1; j >= 0 && group->domain.reduce_mask != 0; --j) {
    const hr_node *writer = &program->nodes[group->nodes[j]];
    int first = INT_MAX;
    for (int k = j + 1; k < group->node_count; ++k) {
      first = phases[k] < first && reads_result(&program->nodes[group->nodes[k]], writer) ? phases[k] : first;
    }
    bool is_element = writer->reduce_mask == 0 && !hr_group_is_row_node(group, writer);
    phases[j] = is_element && first != INT_MAX ? first : phases[j];
  }
}

/* One row of a chain, as a node by itself; NULL when memory is out. Inputs that are results of rows have their dtype
 * alone. */
static const hr_node *node_of_row(lowering *l, const hr_node *node, int row) {
  hr_node *own = HR_ARENA_NEW(&l->program->arena, hr_node);
  hr_operand *inputs = HR_ARENA_ARRAY(&l->program->arena, hr_operand, HR_EPILOGUE_ARITY_MAX);
  if (own == NULL || inputs == NULL) {
    l->out_of_memory = true;
    return NULL;
  }
  *own = *node;
  own->op = hr_node_row_op(node, row);
  own->inputs = inputs;
  own->input_count = hr_op_table(own->op)->arity;
  own->epilogue_count = 0;
  for (int k = 0; k < own->input_count; ++k) {
    int input = hr_node_row_input(node, row, k);
    inputs[k] =
        input >= 0 ? node->inputs[input] : (hr_operand){.kind = HR_OPERAND_NONE, .dtype = node->outputs[0].dtype};
  }
  return own;
}

/* The register of a row's result; regs: of the rows before it. */
static int emit_row(lowering *l, const hr_node *node, int row, hr_level level, int phase, const int *regs) {
  const hr_node *own = node_of_row(l, node, row);
  hr_source sources[HR_EPILOGUE_ARITY_MAX] = {{HR_SOURCE_NONE, 0}};
  if (own == NULL) {
    return 0;
  }
  hr_class compute = hr_node_compute_class(l->program, own);
  for (int k = 0; k < own->input_count && !l->out_of_memory; ++k) {
    int input = hr_node_row_input(node, row, k);
    hr_dtype to = input_dtype(hr_op_table(own->op), k, compute);
    if (input >= 0) {
      source_for_input(l, own, k, level, phase, to, &sources[k], 0);
      continue;
    }
    int reg = regs[input == HR_EPILOGUE_VALUE ? row - 1 : HR_EPILOGUE_ROW(input)];
    bool fits = l->registers.data[reg].cls == hr_dtype_class(to);
    sources[k] = source_register(fits ? reg : convert_register(l, reg, to, phase));
  }
  return emit_result(l, own, compute, level, phase, sources);
}

static void lower_chain(lowering *l, const hr_node *node, hr_level level, int phase) {
  int regs[HR_CHAIN_ROWS_MAX];
  for (int r = 0; r <= node->epilogue_count && !l->out_of_memory; ++r) {
    regs[r] = emit_row(l, node, r, level, phase, regs);
    int to = r < node->epilogue_count ? node->epilogues[r].output : node->output_count - 1;
    if (to >= 0) {
      const hr_operand *output = &node->outputs[to];
      PUSH(l, values, (value){output->index, output->version, node, output, regs[r], level, phase, false});
    }
  }
}

static void lower_node(lowering *l, const hr_node *node, int wanted_phase) {
  hr_domain own;
  hr_domain_of_node(node, &own);
  int phase = first_phase(l, node);
  bool is_reduction = hr_op_table(node->op)->family != HR_FAMILY_POINTWISE;
  hr_level level = hr_group_is_row_node(l->group, node) ? HR_LEVEL_ROW : HR_LEVEL_ELEMENT;
  int reg;
  if (is_reduction) {
    reg = emit_reduction(l, node, phase, own.reduce_mask == 0);
    if (own.reduce_mask != 0) {
      level = HR_LEVEL_ROW;
      ++phase;
    }
  } else {
    phase = level == HR_LEVEL_ELEMENT && wanted_phase > phase ? wanted_phase : phase;
    if (node->epilogue_count > 0) {
      lower_chain(l, node, level, phase);
      return;
    }
    reg = emit_pointwise(l, node, level, phase, 0);
  }
  const hr_operand *output = &node->outputs[0];
  PUSH(l, values, (value){output->index, output->version, node, output, reg, level, phase, false});
}

/* True if a later write of the group replaces the same elements. */
static bool is_overwritten(const lowering *l, size_t index) {
  const value *v = &l->values.data[index];
  for (size_t k = 0; k < l->values.count; ++k) {
    const value *later = &l->values.data[k];
    if (!later->is_copy && later->buffer == v->buffer && later->version > v->version &&
        hr_group_same_map(&l->group->domain, v->node, v->operand, later->node, later->operand)) {
      return true;
    }
  }
  return false;
}

static void store_values(lowering *l) {
  for (size_t k = 0; k < l->values.count; ++k) {
    const value v = l->values.data[k];
    bool is_last_use = l->program->buffers[v.buffer].is_dead && l->liveness->group_last[v.buffer] == l->group_index;
    if (v.is_copy || l->liveness->is_elided[v.buffer] || is_last_use || is_overwritten(l, k)) {
      continue;
    }
    int64_t strides[HR_RANK_MAX];
    hr_group_map(&l->group->domain, v.node, v.operand, strides);
    int phase = v.phase;
    for (size_t a = 0; a < l->args.count; ++a) {
      if (l->args.data[a].buffer == v.buffer && l->buffer_load_phase.data[a] > phase) {
        phase = l->buffer_load_phase.data[a];
      }
    }
    int access = new_access(l, v.node, v.operand, strides, v.level, phase, true);
    emit(l, (hr_instr){.kind = HR_INSTR_STORE,
                       .level = v.level,
                       .phase = phase,
                       .cls = hr_dtype_class(v.operand->dtype),
                       .to = v.operand->dtype,
                       .dst = -1,
                       .source_count = 1,
                       .sources = {source_register(v.reg)},
                       .access = access,
                       .mode = v.node->store_mode});
  }
}

static int part_of(const hr_instr *instr) {
  return 2 * instr->phase + (instr->level != HR_LEVEL_ROW);
}

/* Phase by phase, rows before elements; otherwise in order. NULL when memory is out. */
static hr_instr *sort_instrs(lowering *l, int *out_phase_count) {
  hr_arena *arena = &l->program->arena;
  hr_instr *sorted = hr_arena_alloc(arena, (l->instrs.count + 1) * sizeof *sorted);
  int phases = 1;
  for (size_t k = 0; k < l->instrs.count; ++k) {
    phases = l->instrs.data[k].phase >= phases ? l->instrs.data[k].phase + 1 : phases;
  }
  int *next = HR_ARENA_ARRAY(arena, int, 2 * (size_t)phases + 1); /* the place of each part's next instruction */
  if (sorted == NULL || next == NULL) {
    return NULL;
  }
  for (size_t k = 0; k < l->instrs.count; ++k) {
    ++next[part_of(&l->instrs.data[k]) + 1];
  }
  for (int p = 0; p < 2 * phases; ++p) {
    next[p + 1] += next[p];
  }
  for (size_t k = 0; k < l->instrs.count; ++k) {
    sorted[next[part_of(&l->instrs.data[k])]++] = l->instrs.data[k];
  }
  *out_phase_count = phases;
  return sorted;
}

static const char *kernel_name(lowering *l) {
  char name[80];
  size_t length = 0;
  for (int k = 0; k < l->group->node_count; ++k) {
    const hr_node *node = &l->program->nodes[l->group->nodes[k]];
    for (int r = 0; r <= node->epilogue_count && length + 24 < sizeof name; ++r) {
      const char *part = hr_op_table(hr_node_row_op(node, r))->name;
      size_t bytes = strlen(part);
      if (length != 0) {
        name[length++] = '_';
      }
      bytes = bytes < 20 ? bytes : 20;
      memcpy(name + length, part, bytes);
      length += bytes;
    }
  }
  name[length] = 0;
  return hr_arena_strdup(&l->program->arena, name);
}

static const hr_kernel *export_kernel(lowering *l) {
  hr_arena *arena = &l->program->arena;
  hr_kernel *kernel = HR_ARENA_NEW(arena, hr_kernel);
  const hr_domain *domain = &l->group->domain;
  if (kernel == NULL) {
    return NULL;
  }
  kernel->name = kernel_name(l);
  kernel->rank = domain->rank;
  kernel->dims = domain->dims;
  kernel->reduce_mask = domain->reduce_mask;
  kernel->ordered_mask = domain->ordered_mask;
  kernel->order =
      domain->reduce_mask != 0 ? hr_kernel_order(domain->rank, domain->dims, domain->reduce_mask) : HR_ORDER_NONE;
  kernel->arg_count = (int)l->args.count;
  kernel->scalar_count = (int)l->scalars.count;
  kernel->access_count = (int)l->accesses.count;
  kernel->instr_count = (int)l->instrs.count;
  kernel->register_count = (int)l->registers.count;
  hr_kernel_arg *args = hr_arena_dup(arena, l->args.data, l->args.count * sizeof *l->args.data);
  kernel->args = args;
  kernel->scalars = hr_arena_dup(arena, l->scalars.data, l->scalars.count * sizeof *l->scalars.data);
  kernel->accesses = hr_arena_dup(arena, l->accesses.data, l->accesses.count * sizeof *l->accesses.data);
  kernel->registers = hr_arena_dup(arena, l->registers.data, l->registers.count * sizeof *l->registers.data);
  kernel->phase_count = 1;
  kernel->instrs = sort_instrs(l, &kernel->phase_count);
  bool ok = kernel->name && kernel->args && kernel->scalars && kernel->accesses && kernel->registers && kernel->instrs;
  if (ok) {
    hr_kernel_count_traffic(l->program, kernel, args);
  }
  return ok ? kernel : NULL;
}

static void clear_vectors(lowering *l) {
  hr_vector_clear(&l->instrs);
  hr_vector_clear(&l->accesses);
  hr_vector_clear(&l->registers);
  hr_vector_clear(&l->args);
  hr_vector_clear(&l->scalars);
  hr_vector_clear(&l->values);
  hr_vector_clear(&l->loads);
  hr_vector_clear(&l->conversions);
  hr_vector_clear(&l->buffer_load_phase);
}

static void free_vectors(lowering *l) {
  hr_vector_fini(&l->instrs);
  hr_vector_fini(&l->accesses);
  hr_vector_fini(&l->registers);
  hr_vector_fini(&l->args);
  hr_vector_fini(&l->scalars);
  hr_vector_fini(&l->values);
  hr_vector_fini(&l->loads);
  hr_vector_fini(&l->conversions);
  hr_vector_fini(&l->buffer_load_phase);
}

/* NULL when memory is out. */
static const hr_kernel *lower_group(lowering *l, const hr_group *group, int index) {
  int phases[HR_GROUP_NODES_MAX];
  l->group = group;
  l->group_index = index;
  clear_vectors(l);
  find_wanted_phases(l->program, group, phases);
  for (int k = 0; k < group->node_count && !l->out_of_memory; ++k) {
    lower_node(l, &l->program->nodes[group->nodes[k]], phases[k]);
  }
  store_values(l);
  if (l->out_of_memory) {
    return NULL;
  }
  hr_move_bits(l->instrs.data, (int)l->instrs.count, l->accesses.data, l->registers.data);
  return export_kernel(l);
}

static bool find_or_lower(lowering *l, hr_alike *alike, const hr_group *group, int index, hr_step *step) {
  step->kernel = hr_alike_find(alike, group, index, &step->like);
  if (step->kernel != NULL) {
    return true;
  }
  step->kernel = lower_group(l, group, index);
  return step->kernel != NULL && hr_alike_add(alike, step->kernel, index);
}

hr_status hr_lower(hr_program *program, const hr_fusion *fusion, const hr_liveness *liveness, hr_step *steps) {
  lowering l = {.program = program, .liveness = liveness};
  hr_alike alike;
  bool ok = hr_alike_init(&alike, program, fusion, liveness);
  for (int g = 0; g < fusion->group_count && ok; ++g) {
    const hr_group *group = &fusion->groups[g];
    ok = !group->is_loop || find_or_lower(&l, &alike, group, g, &steps[g]);
  }
  free_vectors(&l);
  hr_alike_fini(&alike);
  if (!ok) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "lower: no memory for %d groups", fusion->group_count);
  }
  return HR_OK;
}
