/* Addresses, and copies between memory and dense blocks.
 *
 * An access whose elements are consecutive within a block is read and written in place. Others (transposed, strided,
 * with bounds) are copied to and from a dense block in loops of their own, whose inner extents and strides are
 * literals:
 *
 *   element-wise   for (i0 ...) for (i1 ...) for (j ...) t3[k + j] = p3[i0 * 784 + i1 * 28 + j * 2];
 *   along rows     one run after another, wherever in the row the block begins
 *
 * Also copied are 16-bit floats (the hardware converts whole rows), values that are rounded to them, and random numbers
 * (neighbours share a block of Philox).
 */
#include <stdio.h>

#include "compiler/emit_internal.h"

static int64_t stride_of(const hr_access *access, int c, int dim) {
  return c == 0 ? access->strides[dim] : access->bounds[c - 1].strides[dim];
}

void hr__emit_see(const hr_kernel *kernel, const hr_access *access, int rank, const int64_t *dims, const int *source,
                  bool first_is_cut, hr__emit_axes *out_axes) {
  (void)kernel;
  hr__emit_axes *axes = out_axes;
  axes->coords = 1 + access->bound_count;
  axes->rank = 0;
  bool moves = access->term_count > 0;
  for (int d = 0; d < rank; ++d) {
    if (dims[d] == 1 && !(d == 0 && first_is_cut)) {
      continue;
    }
    int last = axes->rank - 1;
    bool fits = last >= 0;
    for (int c = 0; c < axes->coords; ++c) {
      moves |= stride_of(access, c, source[d]) != 0;
      fits = fits && axes->strides[c][last] == stride_of(access, c, source[d]) * dims[d];
    }
    int to = fits ? last : axes->rank++;
    axes->dims[to] = fits ? axes->dims[to] * dims[d] : dims[d];
    for (int c = 0; c < axes->coords; ++c) {
      axes->strides[c][to] = stride_of(access, c, source[d]);
    }
  }
  if (axes->rank == 0) {
    axes->rank = 1;
    axes->dims[0] = 1;
    for (int c = 0; c < axes->coords; ++c) {
      axes->strides[c][0] = 0;
    }
  }
  bool is_line = axes->rank == 1 && axes->coords == 1;
  axes->lie = !moves                                                           ? HR__LIE_UNIFORM
              : is_line && access->term_count == 0 && axes->strides[0][0] == 1 ? HR__LIE_DIRECT
              : is_line                                                        ? HR__LIE_LINEAR
                                                                               : HR__LIE_RAGGED;
}

void hr__emit_base(hr__emitter *e, const hr_access *access, int c, const hr_dims *dims, int begin, int end,
                   const char *prefix) {
  HR__EMIT(e, "(int64_t)(%lld)", (long long)(c == 0 ? access->offset : access->bounds[c - 1].offset));
  for (int d = begin; d < end; ++d) {
    int64_t stride = stride_of(access, c, dims->source[d]);
    if (stride != 0) {
      HR__EMIT(e, " + %s%d * %lld", prefix, d, (long long)stride);
    }
  }
}

void hr__emit_pointer(hr__emitter *e, int access, const hr_dims *dims, int begin, int end, const char *prefix,
                      const char *start) {
  const hr_access *a = &e->kernel->accesses[access];
  if (a->arg < 0) {
    HR__EMIT(e, "const int64_t p%d = ", access);
  } else {
    const char *type = hr__emit_dtype(a->dtype);
    HR__EMIT(e, "HR__MEMORY_%s *const p%d = (HR__MEMORY_%s *)args[%d] + (", type, access, type, a->arg);
  }
  hr__emit_base(e, a, 0, dims, begin, end, prefix);
  if (start != NULL && e->axes[access].strides[0][0] != 0) {
    HR__EMIT(e, " + %s * %lld", start, (long long)e->axes[access].strides[0][0]);
  }
  HR__EMIT(e, a->arg < 0 ? ";\n" : ");\n");
  for (int c = 1; c <= a->bound_count; ++c) {
    HR__EMIT(e, "const int64_t b%d_%d = ", access, c);
    hr__emit_base(e, a, c, dims, begin, end, prefix);
    HR__EMIT(e, ";\n");
  }
}

/* ---- elements ---- */

/* True for scalars and values of other classes, which are rounded in place. */
static bool is_rounding(const hr__emitter *e, const hr_instr *instr) {
  return e->has_blocks && instr->kind == HR_INSTR_CONVERT && instr->to == HR_DTYPE_F16 &&
         instr->sources[0].kind == HR_SOURCE_REGISTER && !e->values[instr->dst].is_uniform &&
         e->values[instr->dst].alias == instr->dst && instr->level == HR_LEVEL_ELEMENT &&
         e->values[instr->sources[0].index].cls == HR_CLASS_F32;
}

/* The instruction that numbers the elements of random numbers: INDEX, or NULL. */
static const hr_instr *numbering_of(const hr_kernel *kernel, const hr_instr *random) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (random->sources[0].kind == HR_SOURCE_REGISTER && instr->dst == random->sources[0].index) {
      return instr->kind == HR_INSTR_INDEX ? instr : NULL;
    }
  }
  return NULL;
}

bool hr__emit_is_run(const hr__emitter *e, const hr_instr *instr) {
  if (!e->has_blocks || instr->kind != HR_INSTR_COMPUTE || hr_op_table(instr->op)->rule != HR_RULE_SEEDED ||
      instr->level != HR_LEVEL_ELEMENT) {
    return false;
  }
  const hr_instr *numbering = numbering_of(e->kernel, instr);
  bool is_seeded_once = true;
  for (int s = 1; s < instr->source_count; ++s) {
    is_seeded_once &= hr__emit_source_is_uniform(e, &instr->sources[s]);
  }
  return is_seeded_once && numbering != NULL && e->axes[numbering->access].lie == HR__LIE_DIRECT;
}

void hr__emit_run(hr__emitter *e, const hr_instr *instr, const char *count) {
  HR__EMIT(e, "hr_%s_%s_run(t%d, p%d, %s", hr_class_name(instr->cls), hr_op_table(instr->op)->name, instr->dst,
           numbering_of(e->kernel, instr)->access, count);
  for (int s = 1; s < instr->source_count; ++s) {
    HR__EMIT(e, ", ");
    hr__emit_source(e, instr, s);
  }
  HR__EMIT(e, ");\n");
}

bool hr__emit_is_copied(const hr__emitter *e, const hr_instr *instr) {
  if (instr->access < 0) {
    return is_rounding(e, instr) || hr__emit_is_run(e, instr);
  }
  const hr_access *a = &e->kernel->accesses[instr->access];
  hr__lie lie = e->axes[instr->access].lie;
  if (e->has_blocks && a->dtype == HR_DTYPE_F16 && a->term_count == 0 && lie != HR__LIE_UNIFORM) {
    return true;
  }
  return lie == HR__LIE_RAGGED || (lie == HR__LIE_LINEAR && a->arg >= 0 && a->term_count == 0);
}

void hr__emit_terms(hr__emitter *e, const hr_access *access) {
  for (int t = 0; t < access->term_count; ++t) {
    HR__EMIT(e, e->is_device ? " + hr_term(r%d, " HR__FREE ") * " HR__FREE : " + hr_term(r%d, %lld) * %lld",
             hr__emit_resolve(e, access->terms[t].reg), (long long)access->terms[t].extent,
             (long long)access->terms[t].stride);
  }
}

void hr__emit_load(hr__emitter *e, int access, const char *index) {
  const hr_access *a = &e->kernel->accesses[access];
  HR__EMIT(e, "HR__LOAD_%s(p%d[%s])", hr__emit_dtype(a->dtype), access, index);
}

static const char *combine_name(hr_store_mode mode) {
  static const char *const names[] = {
      [HR_STORE_ADD] = "sum", [HR_STORE_MUL] = "prod", [HR_STORE_MAX] = "amax", [HR_STORE_MIN] = "amin"};
  return names[mode];
}

/* The value of a store in memory's format: "HR__STORE_F32(r5)", combined with the old contents if the mode requires
 * it. */
static void emit_stored(hr__emitter *e, const hr_instr *store, const char *memory, const char *value) {
  const hr_access *a = &e->kernel->accesses[store->access];
  const char *type = hr__emit_dtype(a->dtype);
  if (store->mode == HR_STORE_SET) {
    HR__EMIT(e, "HR__STORE_%s(%s)", type, value);
  } else {
    HR__EMIT(e, "HR__STORE_%s(hr_combine_%s_%s(HR__LOAD_%s(%s), %s))", type, combine_name(store->mode),
             hr_class_name(hr_dtype_class(a->dtype)), type, memory, value);
  }
}

static void source_name(const hr__emitter *e, const hr_instr *instr, char *out_name, size_t bytes) {
  if (instr->sources[0].kind == HR_SOURCE_SCALAR) {
    snprintf(out_name, bytes, "s%d_%s", instr->sources[0].index,
             hr_class_name(hr__emit_source_class(e->kernel, instr, 0)));
  } else {
    snprintf(out_name, bytes, "r%d", hr__emit_resolve(e, instr->sources[0].index));
  }
}

void hr__emit_stored(hr__emitter *e, const hr_instr *store, const char *memory) {
  char value[48];
  source_name(e, store, value, sizeof value);
  emit_stored(e, store, memory, value);
}

void hr__emit_store(hr__emitter *e, const hr_instr *store, const char *index) {
  char memory[96], value[48];
  snprintf(memory, sizeof memory, "p%d[%s]", store->access, index);
  source_name(e, store, value, sizeof value);
  HR__EMIT(e, "%s = ", memory);
  emit_stored(e, store, memory, value);
  HR__EMIT(e, ";\n");
}

void hr__emit_fill(hr__emitter *e, const hr_access *a, hr_class cls) {
  if (a->fill >= 0) {
    HR__EMIT(e, "s%d_%s", a->fill, hr_class_name(cls));
  } else if (cls == HR_CLASS_C64 || cls == HR_CLASS_C128) {
    HR__EMIT(e, "hr_%s_make(0, 0)", hr_class_name(cls));
  } else {
    HR__EMIT(e, "0");
  }
}

void hr__emit_inside(hr__emitter *e, int access) {
  const hr_access *a = &e->kernel->accesses[access];
  for (int c = 1; c <= a->bound_count; ++c) {
    HR__EMIT(e, "%s((uint64_t)b%d_%d < %lldu)", c > 1 ? " & " : "(", access, c, (long long)a->bounds[c - 1].extent);
  }
  HR__EMIT(e, ")");
}

void hr__emit_uniform_load(hr__emitter *e, const hr_instr *load) {
  const hr_access *a = &e->kernel->accesses[load->access];
  hr_class cls = e->kernel->registers[load->dst].cls;
  HR__EMIT(e, "const %s r%d = ", hr__emit_type(cls), load->dst);
  if (load->kind == HR_INSTR_INDEX) {
    HR__EMIT(e, "p%d;\n", load->access);
    return;
  }
  if (a->bound_count > 0) {
    hr__emit_inside(e, load->access);
    HR__EMIT(e, " ? ");
  }
  if (a->term_count > 0) {
    HR__EMIT(e, "HR__LOAD_%s(p%d[0", hr__emit_dtype(a->dtype), load->access);
    hr__emit_terms(e, a);
    HR__EMIT(e, "])");
  } else if (a->dtype == HR_DTYPE_F16) { /* for each tile, which may be a strip */
    HR__EMIT(e, "hr_half_in(p%d[0])", load->access);
  } else {
    hr__emit_load(e, load->access, "0");
  }
  if (a->bound_count > 0) {
    HR__EMIT(e, " : ");
    hr__emit_fill(e, a, cls);
  }
  HR__EMIT(e, ";\n");
}

/* ---- copies ---- */

/* "i0 * 784 + i1 * 28" over the axes before the innermost one; plus q * stride if a run begins inside of it. */
static void emit_sum(hr__emitter *e, const hr__emit_axes *axes, int c) {
  int last = axes->rank - 1;
  const char *separator = "";
  for (int d = 0; d < last; ++d) {
    if (axes->strides[c][d] != 0) {
      HR__EMIT(e, "%si%d * %lld", separator, d, (long long)axes->strides[c][d]);
      separator = " + ";
    }
  }
  if (e->is_row_walk && axes->strides[c][last] != 0) {
    HR__EMIT(e, "%sq * %lld", separator, (long long)axes->strides[c][last]);
    separator = " + ";
  }
  HR__EMIT(e, separator[0] == 0 ? "0" : "");
}

/* Opens the loops over runs; inside, element j of the run is element k + j of the block. Returns the number of loops to
 * close. */
static int open_runs(hr__emitter *e, const hr__emit_axes *axes) {
  int last = axes->rank - 1;
  if (e->is_row_walk) {
    HR__EMIT(e, "for (int64_t k = 0; k < n;) {\nint64_t at = b + k;\n");
    if (last > 0) {
      HR__EMIT(e, "const int64_t q = at %% %lld;\nat /= %lld;\n", (long long)axes->dims[last],
               (long long)axes->dims[last]);
      HR__EMIT(e, "const int64_t run = %lld - q < n - k ? %lld - q : n - k;\n", (long long)axes->dims[last],
               (long long)axes->dims[last]);
    } else {
      HR__EMIT(e, "const int64_t q = at, run = n;\n");
    }
    for (int d = last - 1; d >= 0; --d) {
      if (d == 0) {
        HR__EMIT(e, "const int64_t i0 = at;\n");
      } else {
        HR__EMIT(e, "const int64_t i%d = at %% %lld;\nat /= %lld;\n", d, (long long)axes->dims[d],
                 (long long)axes->dims[d]);
      }
    }
    return 1;
  }
  int64_t inner = 1;
  for (int d = 1; d < axes->rank; ++d) {
    inner *= axes->dims[d];
  }
  HR__EMIT(e, "{\nint64_t k = 0;\n");
  for (int d = 0; d < last; ++d) {
    HR__EMIT(e, "for (int64_t i%d = 0; i%d < ", d, d);
    if (d == 0) {
      HR__EMIT(e, "n / %lld", (long long)inner);
    } else {
      HR__EMIT(e, "%lld", (long long)axes->dims[d]);
    }
    HR__EMIT(e, "; ++i%d) {\n", d);
  }
  return last;
}

static void close_runs(hr__emitter *e, const hr__emit_axes *axes, int loops) {
  int last = axes->rank - 1;
  if (e->is_row_walk) {
    HR__EMIT(e, "k += run;\n}\n");
    return;
  }
  if (last > 0) {
    HR__EMIT(e, "k += %lld;\n", (long long)axes->dims[last]);
  }
  for (int d = 0; d < loops; ++d) {
    HR__EMIT(e, "}\n");
  }
  HR__EMIT(e, "}\n");
}

/* Declares the start of a run, and the range [low, high) of its elements that are inside of all bounds. */
static void emit_run(hr__emitter *e, int access) {
  const hr_access *a = &e->kernel->accesses[access];
  const hr__emit_axes *axes = &e->axes[access];
  int last = axes->rank - 1;
  if (a->arg < 0) {
    HR__EMIT(e, "const int64_t from = p%d + ", access);
  } else {
    HR__EMIT(e, "HR__MEMORY_%s *const from = p%d + (", hr__emit_dtype(a->dtype), access);
  }
  emit_sum(e, axes, 0);
  HR__EMIT(e, a->arg < 0 ? ";\n" : ");\n");
  for (int c = 1; c < axes->coords; ++c) {
    HR__EMIT(e, "const int64_t x%d = b%d_%d + ", c, access, c);
    emit_sum(e, axes, c);
    HR__EMIT(e, ";\n");
  }
  HR__EMIT(e, "%sint64_t low = 0, high = ", axes->coords > 1 ? "" : "const ");
  if (e->is_row_walk) {
    HR__EMIT(e, "run");
  } else if (last > 0) {
    HR__EMIT(e, "%lld", (long long)axes->dims[last]);
  } else {
    HR__EMIT(e, "n");
  }
  HR__EMIT(e, ";\n");
  for (int c = 1; c < axes->coords; ++c) {
    HR__EMIT(e, "hr__clip(x%d, %lld, %lld, &low, &high);\n", c, (long long)axes->strides[c][last],
             (long long)a->bounds[c - 1].extent);
  }
}

/* Writes the fill to the elements of a run that are out of bounds. */
static void emit_outside(hr__emitter *e, const hr_instr *load, hr_class cls, const char *from, const char *to) {
  HR__EMIT(e, "for (int64_t j = %s; j < %s; ++j) {\nt%d[k + j] = ", from, to, load->dst);
  hr__emit_fill(e, &e->kernel->accesses[load->access], cls);
  HR__EMIT(e, ";\n}\n");
}

void hr__emit_copy_in(hr__emitter *e, const hr_instr *load) {
  const hr_access *a = &e->kernel->accesses[load->access];
  const hr__emit_axes *axes = &e->axes[load->access];
  hr_class cls = e->kernel->registers[load->dst].cls;
  long long step = (long long)axes->strides[0][axes->rank - 1];
  int loops = open_runs(e, axes);
  emit_run(e, load->access);
  if (axes->coords > 1) {
    char all[32];
    snprintf(all, sizeof all, "%lld", (long long)axes->dims[axes->rank - 1]);
    HR__EMIT(e, "high = high < low ? low : high;\n");
    emit_outside(e, load, cls, "0", "low");
    emit_outside(e, load, cls, "high", e->is_row_walk ? "run" : axes->rank > 1 ? all : "n");
  }
  if (load->kind == HR_INSTR_LOAD && a->dtype == HR_DTYPE_F16 && step == 1) {
    HR__EMIT(e, "hr_halves_in(t%d + k + low, from + low, high - low);\n", load->dst);
    close_runs(e, axes, loops);
    return;
  }
  HR__EMIT(e, "HR_SHORT\nfor (int64_t j = low; j < high; ++j) {\nt%d[k + j] = ", load->dst);
  if (load->kind == HR_INSTR_INDEX) {
    HR__EMIT(e, "from + j * %lld;\n}\n", step);
  } else {
    HR__EMIT(e, "HR__LOAD_%s(from[j * %lld]);\n}\n", hr__emit_dtype(a->dtype), step);
  }
  close_runs(e, axes, loops);
}

void hr__emit_copy_out(hr__emitter *e, const hr_instr *store) {
  const hr__emit_axes *axes = &e->axes[store->access];
  const hr_dtype dtype = e->kernel->accesses[store->access].dtype;
  long long step = (long long)axes->strides[0][axes->rank - 1];
  char value[48], memory[64];
  int reg = store->sources[0].kind == HR_SOURCE_REGISTER ? hr__emit_resolve(e, store->sources[0].index) : -1;
  source_name(e, store, value, sizeof value);
  bool has_block = reg >= 0 && !e->values[reg].is_uniform;
  if (has_block) {
    snprintf(value, sizeof value, "t%d[k + j]", reg);
  }
  snprintf(memory, sizeof memory, "from[j * %lld]", step);
  int loops = open_runs(e, axes);
  emit_run(e, store->access);
  if (has_block && dtype == HR_DTYPE_F16 && step == 1 && store->mode == HR_STORE_SET) {
    HR__EMIT(e, "hr_halves_out(from + low, t%d + k + low, high - low);\n", reg);
    close_runs(e, axes, loops);
    return;
  }
  HR__EMIT(e, "%sfor (int64_t j = low; j < high; ++j) {\n", store->mode != HR_STORE_SET ? "" : "HR_SHORT\n");
  HR__EMIT(e, "%s = ", memory);
  emit_stored(e, store, memory, value);
  HR__EMIT(e, ";\n}\n");
  close_runs(e, axes, loops);
}

void hr__emit_round(hr__emitter *e, const hr_instr *convert, const char *count) {
  HR__EMIT(e, "hr_halves_round(t%d, t%d, %s);\n", convert->dst, hr__emit_resolve(e, convert->sources[0].index), count);
}
