/* The code of one thread for an element and for a row: addresses, loads, stores, values of earlier phases,
 * accumulators.
 */
#include <string.h>

#include "base/integer.h"
#include "compiler/emit_device_internal.h"

/* ---- the parts of a kernel ---- */

const char *hr__device_index_type(const device *d) {
  return d->is_long ? "int64_t" : "int";
}

int64_t hr__device_reserve(device *d, int64_t bytes) {
  int64_t offset = d->workspace;
  d->workspace += hr_round_up(bytes, 64);
  return offset;
}

bool hr__device_is_reduction(const hr_instr *instr) {
  return instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE;
}

bool hr__device_reduces(const hr_kernel *kernel, int phase) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].phase == phase && hr__device_is_reduction(&kernel->instrs[k])) {
      return true;
    }
  }
  return false;
}

bool hr__device_has_elements(const hr_kernel *kernel, int phase) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].phase == phase && kernel->instrs[k].level == HR_LEVEL_ELEMENT) {
      return true;
    }
  }
  return false;
}

/* ---- heads ---- */

void hr__device_head(const device *d, int pass, int threads) {
  hr__emitter *e = d->e;
  HR__EMIT(e, "HR_KERNEL void HR_THREADS(%d) %s_%d(HR_CALL(%s_call)) {\nHR_BEGIN;\n", threads, d->name, pass, d->name);
  hr__emit_scalars(e, "call.scalars");
}

/* Splits `from` (a C expression) into coordinates PREFIX0, ... over dims. */
void hr__device_coordinates(const device *d, const hr_dims *dims, const char *from, const char *prefix) {
  hr__emitter *e = d->e;
  if (dims->rank == 0) {
    return;
  }
  HR__EMIT(e, "%s %srest = (%s)(%s);\n", hr__device_index_type(d), prefix, hr__device_index_type(d), from);
  for (int k = dims->rank - 1; k > 0; --k) {
    HR__EMIT(e, "const %s %s%d = %srest %% " HR__FREE ";\n%srest /= " HR__FREE ";\n", hr__device_index_type(d), prefix,
             k, prefix, (long long)dims->dims[k], prefix, (long long)dims->dims[k]);
  }
  HR__EMIT(e, "const %s %s0 = %srest;\n", hr__device_index_type(d), prefix, prefix);
}

/* ---- accesses ---- */

/* "(offset + c0 * 784 + w1 * 2)": coordinate c of an access (0: the address, others: of bounds). */
void hr__device_place(const device *d, const hr_access *access, int c, hr_level level) {
  hr__emitter *e = d->e;
  const int64_t *strides = c == 0 ? access->strides : access->bounds[c - 1].strides;
  HR__EMIT(e, "((%s)(" HR__FREE ")", hr__device_index_type(d),
           (long long)(c == 0 ? access->offset : access->bounds[c - 1].offset));
  for (int k = 0; k < e->kept.rank; ++k) {
    if (strides[e->kept.source[k]] != 0) {
      HR__EMIT(e, " + c%d * (" HR__FREE ")", k, (long long)strides[e->kept.source[k]]);
    }
  }
  for (int k = 0; level == HR_LEVEL_ELEMENT && k < e->walked.rank; ++k) {
    if (strides[e->walked.source[k]] != 0) {
      HR__EMIT(e, " + w%d * (" HR__FREE ")", k, (long long)strides[e->walked.source[k]]);
    }
  }
  HR__EMIT(e, ")");
}

void hr__device_memory(const device *d, const hr_instr *instr, hr_text *out) {
  const hr_access *access = &d->e->kernel->accesses[instr->access];
  const char *type = hr__emit_dtype(access->dtype);
  hr__emitter into = *d->e;
  device inner = *d;
  into.text = out, inner.e = &into;
  HR__EMIT(&into, "((HR__MEMORY_%s *)call.args[%d])[", type, access->arg);
  hr__device_place(&inner, access, 0, instr->level);
  hr__emit_terms(&into, access);
  HR__EMIT(&into, "]");
}

void hr__device_address(const device *d, const hr_instr *instr) {
  HR__EMIT(d->e, "&");
  hr__device_memory(d, instr, d->e->text);
}

/* "(bounds) & (indices)", or nothing: true if the element exists. Loads clamp their indices instead. */
bool hr__device_condition(const device *d, const hr_instr *instr) {
  hr__emitter *e = d->e;
  const hr_access *access = &e->kernel->accesses[instr->access];
  const char *separator = "";
  for (int c = 1; c <= access->bound_count; ++c) {
    HR__EMIT(e, "%s((uint64_t)(int64_t)", separator);
    hr__device_place(d, access, c, instr->level);
    HR__EMIT(e, " < " HR__FREE ")", (long long)access->bounds[c - 1].extent);
    separator = " & ";
  }
  for (int t = 0; instr->kind == HR_INSTR_STORE && t < access->term_count; ++t) {
    HR__EMIT(e, "%shr_is_inside(r%d, " HR__FREE ")", separator, access->terms[t].reg,
             (long long)access->terms[t].extent);
    separator = " & ";
  }
  return separator[0] != 0;
}

bool hr__device_is_first(const device *d, int load, int phase) {
  const hr_kernel *kernel = d->e->kernel;
  bool is_first = kernel->instrs[load].phase == phase;
  for (int k = 0; k < kernel->instr_count; ++k) {
    is_first &= d->in_pool[k] != d->in_pool[load] || kernel->instrs[k].phase >= phase;
  }
  return is_first;
}

/* A row's element from shared memory; the phase that loads it first stores it there. */
static void emit_from_pool(const device *d, const hr_instr *instr, const char *memory, int64_t place) {
  const hr_kernel *kernel = d->e->kernel;
  const char *type = hr__emit_dtype(kernel->accesses[instr->access].dtype);
  bool is_first = hr__device_is_first(d, (int)(instr - kernel->instrs), d->phase);
  HR__EMIT(d->e, "HR__LOAD_%s(((HR__MEMORY_%s *)(hr_pool + %lld))[i]", type, type, (long long)place);
  if (is_first) {
    HR__EMIT(d->e, " = %s", memory);
  }
  HR__EMIT(d->e, ");\n");
}

/* The value of a load, after "r5 = ". */
static void emit_loaded(const device *d, const hr_instr *instr) {
  hr__emitter *e = d->e;
  const hr_access *access = &e->kernel->accesses[instr->access];
  hr_class cls = e->kernel->registers[instr->dst].cls;
  if (instr->kind == HR_INSTR_INDEX) {
    bool is_four = d->is_wide != NULL && instr->level == HR_LEVEL_ELEMENT && d->is_wide(d, access);
    HR__EMIT(e, is_four ? "((int64_t)(" : "");
    hr__device_place(d, access, 0, instr->level);
    HR__EMIT(e, is_four ? " - h) >> 2 << 2 | h);\n" : ";\n"); /* so that four share a block of random numbers */
    return;
  }
  hr_text memory = {0};
  hr__device_memory(d, instr, &memory);
  int64_t place = d->in_pool != NULL && instr->level == HR_LEVEL_ELEMENT ? d->in_pool[instr - e->kernel->instrs] : -1;
  if (place >= 0) {
    emit_from_pool(d, instr, hr_text_chars(&memory), place);
  } else {
    bool is_bound = hr__device_condition(d, instr);
    HR__EMIT(e, "%sHR__LOAD_%s(%s)", is_bound ? " ? " : "", hr__emit_dtype(access->dtype), hr_text_chars(&memory));
    if (is_bound) {
      HR__EMIT(e, " : ");
      hr__emit_fill(e, access, cls);
    }
    HR__EMIT(e, ";\n");
  }
  e->text->failed |= memory.failed;
  hr_text_fini(&memory);
}

static void emit_load(const device *d, const hr_instr *instr) {
  HR__EMIT(d->e, "const %s r%d = ", hr__emit_type(d->e->kernel->registers[instr->dst].cls), instr->dst);
  emit_loaded(d, instr);
}

static void emit_store(const device *d, const hr_instr *instr) {
  hr__emitter *e = d->e;
  if (d->is_quads && instr->level == HR_LEVEL_ELEMENT) {
    HR__EMIT(e, "o%d[h] = ", (int)(instr - e->kernel->instrs));
    hr__emit_stored(e, instr, "");
    HR__EMIT(e, ";\n");
    return;
  }
  const hr_access *access = &e->kernel->accesses[instr->access];
  bool is_bound = access->bound_count > 0 || access->term_count > 0;
  if (is_bound) {
    HR__EMIT(e, "if (");
    (void)hr__device_condition(d, instr);
    HR__EMIT(e, ") {\n");
  }
  hr_text memory = {0};
  hr__device_memory(d, instr, &memory);
  HR__EMIT(e, "%s = ", hr_text_chars(&memory));
  hr__emit_stored(e, instr, hr_text_chars(&memory));
  HR__EMIT(e, is_bound ? ";\n}\n" : ";\n");
  e->text->failed |= memory.failed;
  hr_text_fini(&memory);
}

/* ---- values of earlier phases ---- */

bool hr__device_reads(const hr_kernel *kernel, const hr_instr *instr, int reg) {
  bool reads = hr_instr_reads(instr, reg);
  for (int t = 0; instr->access >= 0 && t < kernel->accesses[instr->access].term_count; ++t) {
    reads |= kernel->accesses[instr->access].terms[t].reg == reg;
  }
  return reads;
}

/* Finds the element instructions of earlier phases that must run again in `phase`: those that its own read, and their
 * operands. */
static void find_again(const device *d, int phase, bool *out_again) {
  const hr_kernel *kernel = d->e->kernel;
  memset(out_again, 0, (size_t)kernel->instr_count * sizeof *out_again);
  for (int k = kernel->instr_count - 1; k >= 0; --k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->level != HR_LEVEL_ELEMENT || instr->dst < 0 || hr__device_is_reduction(instr) || instr->phase >= phase) {
      continue;
    }
    for (int j = 0; j < kernel->instr_count; ++j) {
      const hr_instr *user = &kernel->instrs[j];
      bool runs = user->level == HR_LEVEL_ELEMENT &&
                  (user->phase == phase || (out_again[j] && d->spills[user->dst] == HR__AGAIN));
      out_again[k] |= runs && hr__device_reads(kernel, user, instr->dst);
    }
  }
}

/* True if something is stored between the phase of a register and its last use. */
static bool is_stale(const hr_kernel *kernel, const hr_instr *made) {
  int last = kernel->registers[made->dst].last_phase;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->kind == HR_INSTR_STORE && instr->phase >= made->phase && instr->phase < last) {
      return true;
    }
  }
  return false;
}

/* True if an operation costs more than reading back its result, which a thread keeps. */
static bool is_costly(const hr_instr *instr) {
  const hr_op_row *row = hr_op_table(instr->op);
  return instr->kind == HR_INSTR_COMPUTE && (row->accuracy != HR_ACCURACY_EXACT || row->rule == HR_RULE_SEEDED);
}

/* True if computing a value again loads something again; `loads`: by register, for its operands. */
static bool comes_from_memory(const hr_kernel *kernel, const hr_instr *instr, const bool *loads) {
  bool comes = instr->kind == HR_INSTR_LOAD;
  for (int r = 0; r < kernel->register_count && !comes; ++r) {
    comes = loads[r] && hr__device_reads(kernel, instr, r);
  }
  return comes;
}

/* True if a thread has room for `needed` words in all phases that a value crosses; reserves them. `words`: by phase,
 * the words kept for the next. */
static bool take_words(int *words, const hr_register *reg, int phase, int needed, int most) {
  bool fits = true;
  for (int p = phase; p < reg->last_phase; ++p) {
    fits &= words[p] + needed <= most;
  }
  for (int p = phase; fits && p < reg->last_phase; ++p) {
    words[p] += needed;
  }
  return fits;
}

bool hr__device_place_spills(device *d) {
  enum { OWN_WORDS_MOST = 96, TURN_WORDS_MOST = 48 }; /* turns leave registers for another block */
  const hr_kernel *kernel = d->e->kernel;
  int *words = HR_ARENA_ARRAY(&d->e->arena, int, (size_t)kernel->phase_count + 1);
  bool *loads = HR_ARENA_ARRAY(&d->e->arena, bool, (size_t)kernel->register_count + 1);
  bool keeps_any = false, keeps_all = true;
  d->e->text->failed |= words == NULL || loads == NULL;
  for (int r = 0; r < kernel->register_count; ++r) {
    d->spills[r] = HR__AGAIN;
  }
  for (int k = 0; k < kernel->instr_count && !d->e->text->failed; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->level != HR_LEVEL_ELEMENT || instr->dst < 0 || hr__device_is_reduction(instr)) {
      continue;
    }
    const hr_register *reg = &kernel->registers[instr->dst];
    bool crosses = reg->last_phase > instr->phase, from_memory = comes_from_memory(kernel, instr, loads);
    int needed = d->own * (int)hr_class_size(reg->cls) / 4;
    bool wants = crosses && needed > 0 && (from_memory || is_costly(instr));
    if (wants && take_words(words, reg, instr->phase, needed, d->is_turns ? TURN_WORDS_MOST : OWN_WORDS_MOST)) {
      d->spills[instr->dst] = HR__OWN;
      keeps_any = true;
    } else if (crosses && from_memory && is_stale(kernel, instr)) {
      d->spills[instr->dst] = hr__device_reserve(d, d->rows * d->elements * (int64_t)hr_class_size(reg->cls));
      keeps_all = false;
    } else {
      keeps_all &= !wants;
    }
    loads[instr->dst] = from_memory && d->spills[instr->dst] == HR__AGAIN;
  }
  d->own = keeps_any || d->is_turns ? d->own : 0;
  return keeps_all;
}

static void emit_spilled(const device *d, int reg) {
  if (d->spills[reg] == HR__OWN) {
    HR__EMIT(d->e, "s%d[n]", reg);
    return;
  }
  const char *type = hr__emit_type(d->e->kernel->registers[reg].cls);
  HR__EMIT(d->e, "((%s *)(call.workspace + " HR__FREE "))[(int64_t)row * " HR__FREE " + i]", type,
           (long long)d->spills[reg], (long long)d->elements);
}

/* ---- instructions ---- */

void hr__device_instr(const device *d, const hr_instr *instr) {
  switch (instr->kind) {
    case HR_INSTR_LOAD:
    case HR_INSTR_INDEX:
      emit_load(d, instr);
      break;
    case HR_INSTR_STORE:
      emit_store(d, instr);
      break;
    case HR_INSTR_COMPUTE:
    case HR_INSTR_CONVERT:
      hr__emit_statement(d->e, instr);
      break;
    default:
      break;
  }
}

/* l5 = combine(l5, r4), or an update of l5 and m5; SUFFIX: "[h]" or "". */
static void emit_accumulate(const device *d, const hr_instr *instr, const char *suffix) {
  hr__emitter *e = d->e;
  if (d->is_quads) {
    HR__EMIT(e, "x%d[h] = ", instr->dst);
    hr__emit_source(e, instr, 0);
    HR__EMIT(e, ";\n");
    return;
  }
  const char *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
  if (suffix == NULL) {
    HR__EMIT(e, "q%d[t][HR_LANE] = ", instr->dst);
    hr__emit_source(e, instr, 0);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e, ";\nk%d[t][HR_LANE] = ", instr->dst);
      hr__emit_source(e, instr, 1);
    }
    HR__EMIT(e, ";\n");
    return;
  }
  if (instr->kind == HR_INSTR_ARGREDUCE) {
    HR__EMIT(e, "hr_update_best_%s_%s(&l%d%s, &m%d%s, ", row, cls, instr->dst, suffix, instr->dst, suffix);
    hr__emit_source(e, instr, 0);
    HR__EMIT(e, ", ");
    hr__emit_source(e, instr, 1);
    HR__EMIT(e, ");\n");
    return;
  }
  HR__EMIT(e, "l%d%s = hr_combine_%s_%s(l%d%s, ", instr->dst, suffix, row, cls, instr->dst, suffix);
  hr__emit_source(e, instr, 0);
  HR__EMIT(e, ");\n");
}

/* ---- loads ahead ---- */

/* Finds the loads of a phase that may come before its other instructions: those with fixed places, and before any
 * store. A kernel reads memory that it writes only at the same element (compiler/fuse.c). */
static const bool *find_ahead(const device *d, int phase, const bool *again) {
  const hr_kernel *kernel = d->e->kernel;
  bool *ahead = HR_ARENA_ARRAY(&d->e->arena, bool, (size_t)kernel->instr_count + 1), stores = false;
  for (int k = 0; k < kernel->instr_count && ahead != NULL; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    bool runs =
        instr->level == HR_LEVEL_ELEMENT && (instr->phase == phase || (again[k] && d->spills[instr->dst] == HR__AGAIN));
    stores |= runs && instr->kind == HR_INSTR_STORE;
    ahead[k] = runs && !stores && instr->kind == HR_INSTR_LOAD && kernel->accesses[instr->access].term_count == 0;
  }
  return ahead;
}

const bool *hr__device_loads_ahead(const device *d, int phase) {
  bool *again = HR_ARENA_ARRAY(&d->e->arena, bool, (size_t)d->e->kernel->instr_count + 1);
  const bool *ahead = NULL;
  if (again != NULL) {
    find_again(d, phase, again);
    ahead = find_ahead(d, phase, again);
  }
  d->e->text->failed |= ahead == NULL;
  return ahead;
}

int hr__device_ahead(const device *d, int phase, int count) {
  enum { WORDS_MOST = 32, ELEMENTS_MOST = 16 };
  const hr_kernel *kernel = d->e->kernel;
  const bool *ahead = hr__device_loads_ahead(d, phase);
  int words = 0, step = 1;
  for (int k = 0; k < kernel->instr_count && ahead != NULL; ++k) {
    words += ahead[k] ? ((int)hr_class_size(kernel->registers[kernel->instrs[k].dst].cls) + 3) / 4 : 0;
  }
  while (2 * step <= count && 2 * step * words <= WORDS_MOST && 2 * step <= ELEMENTS_MOST) {
    step *= 2;
  }
  return step;
}

void hr__device_declare_ahead(const device *d, int phase, int count) {
  const hr_kernel *kernel = d->e->kernel;
  const bool *ahead = hr__device_loads_ahead(d, phase);
  for (int k = 0; k < kernel->instr_count && ahead != NULL; ++k) {
    if (ahead[k]) {
      int r = kernel->instrs[k].dst;
      HR__EMIT(d->e, "%s v%d[%d];\n", hr__emit_type(kernel->registers[r].cls), r, count);
    }
  }
}

void hr__device_load_ahead(const device *d, int phase) {
  const hr_kernel *kernel = d->e->kernel;
  device now = *d;
  now.phase = phase;
  const bool *ahead = hr__device_loads_ahead(d, phase);
  hr__device_coordinates(d, &d->e->walked, "i", "w");
  for (int k = 0; k < kernel->instr_count && ahead != NULL; ++k) {
    if (ahead[k]) {
      HR__EMIT(d->e, "v%d[u] = ", kernel->instrs[k].dst);
      emit_loaded(&now, &kernel->instrs[k]);
    }
  }
}

/* Element h of four neighbours, or their common value. */
static void take_ahead(const device *d, const hr_instr *instr) {
  const hr_access *access = &d->e->kernel->accesses[instr->access];
  HR__EMIT(d->e, "const %s r%d = HR__LOAD_%s(v%d[u][%s]);\n", hr__emit_type(d->e->kernel->registers[instr->dst].cls),
           instr->dst, hr__emit_dtype(access->dtype), instr->dst, hr__device_is_wide(d, access) ? "h" : "0");
}

/* Emits all instructions of a phase for element i of a row. */
void hr__device_element(const device *d, int phase, const char *suffix) {
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  bool *again = HR_ARENA_ARRAY(&e->arena, bool, (size_t)kernel->instr_count + 1);
  device now = *d;
  if (again == NULL) {
    e->text->failed = true;
    return;
  }
  now.phase = phase;
  find_again(d, phase, again);
  const bool *ahead = d->is_ahead ? find_ahead(d, phase, again) : NULL;
  hr__device_coordinates(d, &e->walked, "i", "w");
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (ahead != NULL && ahead[k] && d->is_quads) {
      take_ahead(&now, instr);
    } else if (ahead != NULL && ahead[k]) {
      HR__EMIT(e, "const %s r%d = v%d[u];\n", hr__emit_type(kernel->registers[instr->dst].cls), instr->dst, instr->dst);
    } else if (again[k] && d->spills[instr->dst] != HR__AGAIN) {
      HR__EMIT(e, "const %s r%d = ", hr__emit_type(kernel->registers[instr->dst].cls), instr->dst);
      emit_spilled(d, instr->dst);
      HR__EMIT(e, ";\n");
    } else if (again[k]) {
      hr__device_instr(&now, instr);
    } else if (instr->phase == phase && hr__device_is_reduction(instr)) {
      emit_accumulate(d, instr, suffix);
    } else if (instr->phase == phase && instr->level == HR_LEVEL_ELEMENT) {
      hr__device_instr(&now, instr);
    }
    if (instr->phase == phase && instr->dst >= 0 && d->spills[instr->dst] != HR__AGAIN) {
      emit_spilled(d, instr->dst);
      HR__EMIT(e, " = r%d;\n", instr->dst);
    }
  }
}

/* Row instructions of a phase. `barrier` separates the reads of all threads from the store of `first`; NULL: a single
 * thread. */
void hr__device_row(const device *d, int phase, const char *barrier, const char *first) {
  const hr_kernel *kernel = d->e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->phase != phase || instr->level != HR_LEVEL_ROW) {
      continue;
    }
    bool is_guarded = instr->kind == HR_INSTR_STORE && barrier != NULL;
    if (is_guarded) {
      HR__EMIT(d->e, "%s;\nif (%s) {\n", barrier, first);
    }
    hr__device_instr(d, instr);
    if (is_guarded) {
      HR__EMIT(d->e, "}\n%s;\n", barrier);
    }
  }
}

/* Declares accumulators: one, or two lanes. */
void hr__device_accumulators(const device *d, int phase, bool is_pair) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !hr__device_is_reduction(instr)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e,
               is_pair ? "%s l%d[2] = {0, 0};\nint64_t m%d[2] = {INT64_MAX, INT64_MAX};\n"
                       : "%s l%d = 0;\nint64_t m%d = INT64_MAX;\n",
               type, instr->dst, instr->dst);
    } else if (is_pair) {
      HR__EMIT(e, "%s l%d[2] = {hr_identity_%s_%s(), hr_identity_%s_%s()};\n", type, instr->dst, row, cls, row, cls);
    } else {
      HR__EMIT(e, "%s l%d = hr_identity_%s_%s();\n", type, instr->dst, row, cls);
    }
  }
}
