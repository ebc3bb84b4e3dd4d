/* A block of elements: its instructions are split into stages, each a loop over the block.
 *
 *   r0 = load x   r1 = load y   r2 = add r0, r1   r3 = tanh r2   r4 = sub r3, r1   store z, r4
 *
 *   for (k < n) { r0 = p0[k]; r1 = p1[k]; r2 = r0 + r1; r3 = tanh(r2); t3[k] = r3; }
 *   for (k < n) { r1 = p1[k]; r3 = t3[k]; r4 = r3 - r1; p2[k] = r4; }
 *
 * A stage has a dozen cheap operations, or one transcendental with some: more would run out of vector registers.
 * Divisions and roots are single instructions, and do not count. In one loop with loads and stores they run while
 * memory is waited for; in a stage of their own memory would rest. Values for later stages stay in a block of scratch,
 * which fits L1. Contiguous loads are repeated instead, as long as nothing was stored. Two arguments may be the same
 * memory (in-place use), so instructions keep their order for each element.
 */
#include <string.h>

#include "compiler/emit_internal.h"

enum { STAGE_WEIGHT = 12, ALONE = 100 };

/* Remainders have a short form without jumps for quotients that are not too large, sines one for angles that are not; a
 * loop first tests a block for others. */
typedef enum body {
  BODY_WHOLE,
  BODY_NEAR, /* the short form */
  BODY_LOOK  /* far |= ... */
} body;

typedef struct stager {
  hr__emitter *e;
  int phase, count;
  int *stage_of; /* by instruction; -1: not in a loop */
  int first_store;
  const hr__emit_block *block;
} stager;

static bool is_element(const hr_instr *instr, int phase) {
  return instr->phase == phase && instr->level == HR_LEVEL_ELEMENT;
}

/* ---- uniform values ---- */

bool hr__emit_source_is_uniform(const hr__emitter *e, const hr_source *source) {
  return source->kind != HR_SOURCE_REGISTER || e->values[hr__emit_resolve(e, source->index)].is_uniform;
}

static void note_alias(hr__emitter *e, const hr_instr *instr) {
  if (instr->sources[0].kind != HR_SOURCE_REGISTER) {
    return;
  }
  const hr_kernel *kernel = e->kernel;
  hr_class from = kernel->registers[instr->sources[0].index].cls;
  bool is_copy = instr->kind == HR_INSTR_COMPUTE && instr->op == HR_OP_COPY && from == instr->cls;
  if (instr->kind == HR_INSTR_CONVERT) {
    bool rounds = hr_dtype_is_narrow(instr->to) && from != HR_CLASS_B8;
    is_copy = from == hr_dtype_class(instr->to) && (!rounds || e->stored_as[instr->dst] == instr->to);
  }
  if (is_copy) {
    e->values[instr->dst].alias = instr->sources[0].index;
  }
}

/* Finds the registers that only stores of one dtype read. */
static void find_stored(hr__emitter *e) {
  const hr_kernel *kernel = e->kernel;
  for (int r = 0; r < kernel->register_count; ++r) {
    e->stored_as[r] = HR_DTYPE_COUNT; /* not read yet */
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    for (int s = 0; s < instr->source_count; ++s) {
      if (instr->sources[s].kind != HR_SOURCE_REGISTER) {
        continue;
      }
      hr_dtype *stored = &e->stored_as[instr->sources[s].index];
      hr_dtype dtype = instr->kind == HR_INSTR_STORE && instr->mode == HR_STORE_SET
                           ? kernel->accesses[instr->access].dtype
                           : HR_DTYPE_NONE;
      *stored = *stored == HR_DTYPE_COUNT || *stored == dtype ? dtype : HR_DTYPE_NONE;
    }
  }
  for (int a = 0; a < kernel->access_count; ++a) {
    for (int t = 0; t < kernel->accesses[a].term_count; ++t) {
      e->stored_as[kernel->accesses[a].terms[t].reg] = HR_DTYPE_NONE;
    }
  }
}

void hr__emit_find_aliases(hr__emitter *e) {
  find_stored(e);
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->kind == HR_INSTR_COMPUTE || instr->kind == HR_INSTR_CONVERT) {
      note_alias(e, instr);
    }
  }
}

void hr__emit_find_uniform(hr__emitter *e) {
  const hr_kernel *kernel = e->kernel;
  hr__emit_find_aliases(e);
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->dst < 0) {
      continue;
    }
    hr__emit_value *value = &e->values[instr->dst];
    bool is_uniform = true;
    for (int s = 0; s < instr->source_count; ++s) {
      is_uniform &= hr__emit_source_is_uniform(e, &instr->sources[s]);
    }
    if (instr->access >= 0) {
      is_uniform = e->axes[instr->access].lie == HR__LIE_UNIFORM;
    }
    bool is_row = instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE || instr->level == HR_LEVEL_ROW;
    value->is_uniform = is_uniform || is_row;
  }
}

/* True if a load's indices are constant over a block, and computed in the load's own phase. */
static bool has_uniform_terms(const hr__emitter *e, const hr_instr *load) {
  const hr_access *access = &e->kernel->accesses[load->access];
  bool are_uniform = access->term_count > 0;
  for (int t = 0; t < access->term_count; ++t) {
    int reg = hr__emit_resolve(e, access->terms[t].reg);
    const hr_register *made = &e->kernel->registers[reg];
    are_uniform &= e->values[reg].is_uniform && made->phase == load->phase && made->level == load->level;
  }
  return are_uniform;
}

/* "const int64_t o3 = hr_term(r5, 10) * 7;" Inside the loop a select of loaded values would become a jump. */
static void emit_place(hr__emitter *e, const hr_instr *load) {
  HR__EMIT(e, "const int64_t o%d = 0", load->access);
  hr__emit_terms(e, &e->kernel->accesses[load->access]);
  HR__EMIT(e, ";\n");
  e->values[load->dst].has_place = true;
}

void hr__emit_uniform(hr__emitter *e, int phase, hr_level level) {
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || instr->level != level) {
      continue;
    }
    bool is_uniform_store = instr->kind == HR_INSTR_STORE && e->axes[instr->access].lie == HR__LIE_UNIFORM;
    if (instr->kind == HR_INSTR_LOAD || instr->kind == HR_INSTR_INDEX) {
      if (e->values[instr->dst].is_uniform) {
        hr__emit_uniform_load(e, instr);
      } else if (has_uniform_terms(e, instr)) {
        emit_place(e, instr);
      }
    } else if (instr->kind == HR_INSTR_COMPUTE || instr->kind == HR_INSTR_CONVERT) {
      if (e->values[instr->dst].is_uniform && e->values[instr->dst].alias == instr->dst) {
        hr__emit_statement(e, instr);
      }
    } else if (is_uniform_store) {
      if (!hr__emit_source_is_uniform(e, &instr->sources[0]) || e->kernel->accesses[instr->access].bound_count > 0) {
        e->status = e->status != HR_OK ? e->status : hr__emit_unable(e->kernel, "a store of one element");
      }
      hr__emit_store(e, instr, "0");
    }
  }
}

/* ---- cutting ---- */

static bool is_looped(const stager *s, const hr_instr *instr) {
  const hr__emitter *e = s->e;
  if (!is_element(instr, s->phase)) {
    return false;
  }
  switch (instr->kind) {
    case HR_INSTR_REDUCE:
    case HR_INSTR_ARGREDUCE:
      return true;
    case HR_INSTR_STORE:
      return e->axes[instr->access].lie != HR__LIE_UNIFORM;
    default:
      return !e->values[instr->dst].is_uniform && e->values[instr->dst].alias == instr->dst;
  }
}

/* True if the loop of a stage, or one after it, computes a register. */
static bool is_made_in_loop(const stager *s, int reg, int stage) {
  const hr_kernel *kernel = s->e->kernel;
  reg = hr__emit_resolve(s->e, reg);
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->dst == reg && s->stage_of[k] == stage) {
      return !hr__emit_is_copied(s->e, instr);
    }
  }
  return false;
}

/* The weight of an instruction in its stage, in cheap operations. */
static int stage_weight(const hr_kernel *kernel, const hr_instr *instr) {
  int weight = hr__emit_weight(kernel, instr);
  bool is_division = instr->kind == HR_INSTR_COMPUTE && hr_op_table(instr->op)->cost == HR_COST_DIVISION;
  return is_division && weight < ALONE ? 0 : weight;
}

static void cut(stager *s) {
  const hr_kernel *kernel = s->e->kernel;
  int weight = 0, stage = 0;
  bool stores = false, copies_out = false, has_near = false, computes = false;
  s->first_store = kernel->instr_count;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    s->stage_of[k] = -1;
    if (!is_looped(s, instr)) {
      continue;
    }
    bool is_load = instr->kind == HR_INSTR_LOAD, copied = hr__emit_is_copied(s->e, instr);
    int mine = copied ? 0 : stage_weight(kernel, instr);
    /* An operation with a short form begins a stage: the loop that tests its operands reads them from other stages. */
    bool is_full = (weight > 0 && mine > 0 && weight + mine > STAGE_WEIGHT) || (computes && hr__emit_has_near(instr));
    if (copied && instr->kind == HR_INSTR_CONVERT) { /* rounds an earlier stage's value before its own stage's loop */
      is_full = is_made_in_loop(s, instr->sources[0].index, stage);
    }
    is_full |=
        has_near && (instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE); /* lanes have one form */
    if (is_full || (is_load && ((copied && stores) || copies_out))) {
      ++stage;
      weight = 0, stores = copies_out = has_near = computes = false;
    }
    weight += mine;
    computes |= !copied && hr__emit_weight(kernel, instr) > 0;
    s->stage_of[k] = stage;
    has_near |= hr__emit_has_near(instr);
    if (instr->kind == HR_INSTR_STORE) {
      stores = true;
      copies_out |= copied;
      s->first_store = stage < s->first_store ? stage : s->first_store;
    }
  }
  s->count = stage + 1;
}

/* ---- values between stages ---- */

static void need(stager *s, int reg, int stage, bool in_block) {
  hr__emitter *e = s->e;
  reg = hr__emit_resolve(e, reg);
  hr__emit_value *value = &e->values[reg];
  if (value->is_uniform) {
    return;
  }
  value->last_stage = stage > value->last_stage ? stage : value->last_stage;
  bool is_far = value->stage != stage;
  bool can_reload = value->reload >= 0 && stage <= s->first_store;
  value->has_block |= in_block || (is_far && !can_reload);
}

static bool can_reload(const hr__emitter *e, const hr_instr *instr) {
  const hr_access *a = instr->access >= 0 ? &e->kernel->accesses[instr->access] : NULL;
  if (instr->kind == HR_INSTR_INDEX) {
    return e->axes[instr->access].lie != HR__LIE_RAGGED;
  }
  return instr->kind == HR_INSTR_LOAD && e->axes[instr->access].lie == HR__LIE_DIRECT && a->term_count == 0;
}

/* True if a register of this phase is read in a later one. */
static bool crosses(const hr__emitter *e, int reg, int phase) {
  const hr_kernel *kernel = e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    for (int s = 0; s < instr->source_count && instr->phase > phase; ++s) {
      if (instr->sources[s].kind == HR_SOURCE_REGISTER && hr__emit_resolve(e, instr->sources[s].index) == reg) {
        return true;
      }
    }
    for (int t = 0; instr->access >= 0 && instr->phase > phase && t < kernel->accesses[instr->access].term_count; ++t) {
      if (hr__emit_resolve(e, kernel->accesses[instr->access].terms[t].reg) == reg) {
        return true;
      }
    }
  }
  return false;
}

static void find_blocks(stager *s) {
  hr__emitter *e = s->e;
  const hr_kernel *kernel = e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (s->stage_of[k] < 0) {
      continue;
    }
    if (instr->dst >= 0 && instr->kind != HR_INSTR_REDUCE && instr->kind != HR_INSTR_ARGREDUCE) {
      hr__emit_value *value = &e->values[instr->dst];
      value->stage = value->last_stage = s->stage_of[k];
      value->reload = can_reload(e, instr) ? k : -1;
      value->is_kept = crosses(e, instr->dst, s->phase);
      value->has_block = hr__emit_is_copied(e, instr) || value->is_kept;
    }
    for (int i = 0; i < instr->source_count && !hr__emit_is_run(e, instr);
         ++i) { /* for runs, only the first one's place matters */
      if (instr->sources[i].kind == HR_SOURCE_REGISTER) {
        bool in_block = hr__emit_is_copied(e, instr);
        need(s, instr->sources[i].index, s->stage_of[k], in_block);
      }
    }
    for (int t = 0; instr->access >= 0 && t < kernel->accesses[instr->access].term_count; ++t) {
      need(s, kernel->accesses[instr->access].terms[t].reg, s->stage_of[k], false);
    }
  }
}

/* Places blocks in scratch; places of blocks that are no longer needed are used again. */
static void place_blocks(stager *s) {
  hr__emitter *e = s->e;
  const hr_kernel *kernel = e->kernel;
  int64_t *free_at = HR_ARENA_ARRAY(&e->arena, int64_t, (size_t)kernel->register_count + 1);
  int64_t *free_bytes = HR_ARENA_ARRAY(&e->arena, int64_t, (size_t)kernel->register_count + 1);
  int free_count = 0;
  if (free_at == NULL || free_bytes == NULL) {
    e->text->failed = true;
    return;
  }
  for (int stage = 0; stage < s->count; ++stage) {
    for (int r = 0; r < kernel->register_count; ++r) { /* the last readers were a stage before */
      hr__emit_value *value = &e->values[r];
      if (value->has_block && !value->is_kept && value->stage >= 0 && value->last_stage == stage - 1) {
        free_at[free_count] = value->offset;
        free_bytes[free_count++] = s->block->capacity * (int64_t)hr_class_size(value->cls);
      }
    }
    for (int k = 0; k < kernel->instr_count; ++k) {
      int dst = kernel->instrs[k].dst;
      if (s->stage_of[k] != stage || dst < 0 || !e->values[dst].has_block) {
        continue;
      }
      hr__emit_value *value = &e->values[dst];
      int64_t bytes = (value->is_kept ? s->block->row : s->block->capacity) * (int64_t)hr_class_size(value->cls);
      int f = free_count - 1;
      while (f >= 0 && (value->is_kept || free_bytes[f] != bytes)) {
        --f;
      }
      value->offset = f >= 0 ? free_at[f] : hr__emit_reserve(e, bytes);
      if (f >= 0) {
        free_at[f] = free_at[free_count - 1], free_bytes[f] = free_bytes[free_count - 1];
        --free_count;
      }
    }
  }
}

/* ---- text ---- */

static void declare_block(const stager *s, int reg) {
  const hr__emit_value *value = &s->e->values[reg];
  const char *type = hr__emit_type(value->cls);
  if (s->block->is_strip) {
    HR__EMIT(s->e, "%s t%d[%lld] __attribute__((aligned(64)));\n", type, reg, (long long)s->block->capacity);
    return;
  }
  HR__EMIT(s->e, "%s *const t%d = (%s *)(scratch + %lld)", type, reg, type, (long long)value->offset);
  HR__EMIT(s->e, value->is_kept && s->block->start != NULL ? " + %s;\n" : ";\n", s->block->start);
}

/* Element k of a load: "p3[k]", with terms "p3[k * 4 + hr_term(r5, 10) * 7]", or "p3[k * 4 + o3]" if those are
 * uniform. */
static void emit_element(hr__emitter *e, const hr_instr *load) {
  const hr_access *a = &e->kernel->accesses[load->access];
  const hr__emit_axes *axes = &e->axes[load->access];
  if (load->kind == HR_INSTR_INDEX) {
    HR__EMIT(e, "p%d + k * %lld", load->access, (long long)axes->strides[0][0]);
    return;
  }
  if (a->term_count == 0) {
    hr__emit_load(e, load->access, "k");
    return;
  }
  HR__EMIT(e, "HR__LOAD_%s(p%d[k * %lld", hr__emit_dtype(a->dtype), load->access, (long long)axes->strides[0][0]);
  if (e->values[load->dst].has_place) {
    HR__EMIT(e, " + o%d", load->access);
  } else {
    hr__emit_terms(e, a);
  }
  HR__EMIT(e, "])");
}

/* True if the loop of a stage computes a register itself. */
static bool makes(const stager *s, int reg, int stage) {
  const hr_kernel *kernel = s->e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].dst == reg && s->stage_of[k] == stage && !hr__emit_is_copied(s->e, &kernel->instrs[k])) {
      return true;
    }
  }
  return false;
}

/* Declares a register that another stage made. */
static void read_value(const stager *s, int reg, int stage, bool *is_known) {
  hr__emitter *e = s->e;
  reg = hr__emit_resolve(e, reg);
  const hr__emit_value *value = &e->values[reg];
  if (value->is_uniform || is_known[reg] || makes(s, reg, stage)) {
    return;
  }
  is_known[reg] = true;
  HR__EMIT(e, "const %s r%d = ", hr__emit_type(value->cls), reg);
  if (value->has_block) {
    HR__EMIT(e, "t%d[k];\n", reg);
  } else {
    emit_element(e, &e->kernel->instrs[value->reload]);
    HR__EMIT(e, ";\n");
  }
}

static void emit_reduce(hr__emitter *e, const hr_instr *instr, const char *lane) {
  if (instr->kind == HR_INSTR_ARGREDUCE) {
    const char *op = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    HR__EMIT(e, "{\nconst int take = hr_is_better_%s_%s(", op, cls);
    hr__emit_source(e, instr, 0);
    HR__EMIT(e, ", l%d[%s], ", instr->dst, lane);
    hr__emit_source(e, instr, 1);
    HR__EMIT(e, ", m%d[%s]) | (m%d[%s] == INT64_MAX);\nl%d[%s] = take ? ", instr->dst, lane, instr->dst, lane,
             instr->dst, lane);
    hr__emit_source(e, instr, 0);
    HR__EMIT(e, " : l%d[%s];\nm%d[%s] = take ? ", instr->dst, lane, instr->dst, lane);
    hr__emit_source(e, instr, 1);
    HR__EMIT(e, " : m%d[%s];\n}\n", instr->dst, lane);
    return;
  }
  HR__EMIT(e, "l%d[%s] = hr_combine_%s_%s(l%d[%s], ", instr->dst, lane, hr_op_table(instr->op)->name,
           hr_class_name(instr->cls), instr->dst, lane);
  hr__emit_source(e, instr, 0);
  HR__EMIT(e, ");\n");
}

/* The statements of a stage for element k. */
static void emit_body(stager *s, int stage, const char *lane, body what) {
  hr__emitter *e = s->e;
  const hr_kernel *kernel = e->kernel;
  bool *is_known = HR_ARENA_ARRAY(&e->arena, bool, (size_t)kernel->register_count + 1);
  if (is_known == NULL) {
    e->text->failed = true;
    return;
  }
  for (int k = 0; k < kernel->instr_count; ++k) { /* values of other stages */
    const hr_instr *instr = &kernel->instrs[k];
    if (s->stage_of[k] != stage || hr__emit_is_copied(e, instr)) {
      continue;
    }
    for (int i = 0; i < instr->source_count; ++i) {
      if (instr->sources[i].kind == HR_SOURCE_REGISTER) {
        read_value(s, instr->sources[i].index, stage, is_known);
      }
    }
    for (int t = 0; instr->access >= 0 && t < kernel->accesses[instr->access].term_count; ++t) {
      read_value(s, kernel->accesses[instr->access].terms[t].reg, stage, is_known);
    }
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (s->stage_of[k] != stage || hr__emit_is_copied(e, instr)) {
      continue;
    }
    if (what == BODY_LOOK && instr->kind != HR_INSTR_LOAD && instr->kind != HR_INSTR_INDEX) {
      if (hr__emit_has_near(instr)) {
        hr__emit_look(e, instr);
      }
      continue;
    }
    if (instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE) {
      emit_reduce(e, instr, lane);
      continue;
    }
    if (instr->kind == HR_INSTR_STORE) {
      hr__emit_store(e, instr, "k");
      continue;
    }
    if (instr->kind == HR_INSTR_LOAD || instr->kind == HR_INSTR_INDEX) {
      HR__EMIT(e, "const %s r%d = ", hr__emit_type(e->values[instr->dst].cls), instr->dst);
      emit_element(e, instr);
      HR__EMIT(e, ";\n");
    } else if (what == BODY_NEAR && hr__emit_has_near(instr)) {
      hr__emit_near(e, instr);
    } else {
      hr__emit_statement(e, instr);
    }
    if (e->values[instr->dst].has_block && what != BODY_LOOK) {
      HR__EMIT(e, "t%d[k] = r%d;\n", instr->dst, instr->dst);
    }
  }
}

static void emit_elements(stager *s, int stage, body what) {
  HR__EMIT(s->e, "%s\nfor (int64_t k = 0; k < %s; ++k) {\n", s->block->is_strip ? "HR_STRIP" : "HR_INDEPENDENT",
           s->block->count);
  emit_body(s, stage, "", what);
  HR__EMIT(s->e, "}\n");
}

static void emit_loop(stager *s, int stage) {
  hr__emitter *e = s->e;
  bool has_work = false, reduces = false, has_near = false;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (s->stage_of[k] == stage && !hr__emit_is_copied(e, instr)) {
      has_work = true;
      reduces |= instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE;
      has_near |= hr__emit_has_near(instr);
    }
  }
  if (!has_work) {
    return;
  }
  if (!reduces && has_near) {
    HR__EMIT(e, "{\nint far = 0;\n");
    emit_elements(s, stage, BODY_LOOK);
    HR__EMIT(e, "if (!far) {\n");
    emit_elements(s, stage, BODY_NEAR);
    HR__EMIT(e, "} else {\n");
    emit_elements(s, stage, BODY_WHOLE);
    HR__EMIT(e, "}\n}\n");
    return;
  }
  if (!reduces) {
    emit_elements(s, stage, BODY_WHOLE);
    return;
  }
  HR__EMIT(e, "{\nint64_t i = 0;\nfor (; i + %d <= %s; i += %d) {\n", (int)HR_REDUCE_LANES, s->block->count,
           (int)HR_REDUCE_LANES);
  HR__EMIT(e, "%s\nfor (int j = 0; j < %d; ++j) {\nconst int64_t k = i + j;\n",
           s->block->row < 256 ? "HR_SHORT" : "HR_INDEPENDENT", (int)HR_REDUCE_LANES);
  emit_body(s, stage, "j", BODY_WHOLE);
  HR__EMIT(e, "}\n}\nHR_SHORT\nfor (int64_t k = i; k < %s; ++k) {\n", s->block->count);
  emit_body(s, stage, "k - i", BODY_WHOLE);
  HR__EMIT(e, "}\n}\n");
}

void hr__emit_stages(hr__emitter *e, int phase, const hr__emit_block *block) {
  const hr_kernel *kernel = e->kernel;
  stager s = {.e = e, .phase = phase, .block = block};
  s.stage_of = HR_ARENA_ARRAY(&e->arena, int, (size_t)kernel->instr_count + 1);
  if (s.stage_of == NULL) {
    e->text->failed = true;
    return;
  }
  for (int r = 0; r < kernel->register_count; ++r) { /* values of an earlier phase are in their blocks */
    e->values[r].stage = -1;
    e->values[r].last_stage = -1;
  }
  cut(&s);
  find_blocks(&s);
  place_blocks(&s);
  for (int r = 0; r < kernel->register_count; ++r) {
    if (e->values[r].has_block && (e->values[r].stage >= 0 || e->values[r].is_kept)) {
      declare_block(&s, r);
    }
  }
  for (int stage = 0; stage < s.count; ++stage) {
    for (int k = 0; k < kernel->instr_count; ++k) {
      const hr_instr *instr = &kernel->instrs[k];
      if (s.stage_of[k] != stage || !hr__emit_is_copied(e, instr) || instr->kind == HR_INSTR_STORE) {
        continue;
      }
      if (instr->kind == HR_INSTR_CONVERT) {
        hr__emit_round(e, instr, block->count);
      } else if (instr->kind == HR_INSTR_COMPUTE) {
        hr__emit_run(e, instr, block->count);
      } else {
        hr__emit_copy_in(e, instr);
      }
    }
    emit_loop(&s, stage);
    for (int k = 0; k < kernel->instr_count; ++k) {
      const hr_instr *instr = &kernel->instrs[k];
      if (s.stage_of[k] == stage && hr__emit_is_copied(e, instr) && instr->kind == HR_INSTR_STORE) {
        hr__emit_copy_out(e, instr);
      }
    }
  }
}
