/* Rows in the order of lanes whose elements are contiguous: four neighbours for each thread instead of every 32nd
 * element.
 *
 *   v0 = 16 bytes of x; for (h < 4) { r0 = v0[h]; r1 = exp(r0); x2[h] = r1; o3[h] = r1; }
 *   threads t and t + 16 exchange halves of x2; l2[0] and l2[1] take theirs
 *   16 bytes of y = o3;
 *
 * Of 128 elements, thread t has 4t to 4t + 3, which belong to lanes 4t % 64 and so on. Threads t and t + 16 thus have
 * the same four lanes, one after the other. Thread t < 16 sums lanes 4t and 4t + 1 of both, thread t + 16 lanes 4t + 2
 * and 4t + 3, so sums keep their order. Accesses are wide, and four neighbours share a block of random numbers.
 */
#include <stdio.h>

#include "compiler/emit_device_internal.h"

enum { WIDTH = 4, WARP = 32, GROUP = WIDTH * WARP, AHEAD_MOST = 16 };

/* True if four neighbours along the inner dim are contiguous, aligned, and all in bounds. */
bool hr__device_is_wide(const device *d, const hr_access *access) {
  bool is = access->term_count == 0 && access->bound_count == 0 && access->offset % WIDTH == 0 &&
            access->strides[d->inner] == 1;
  for (int k = 0; is && k < d->e->kernel->rank; ++k) {
    is = k == d->inner || access->strides[k] % WIDTH == 0;
  }
  return is;
}

bool hr__device_is_quads(device *d) {
  const hr_kernel *kernel = d->e->kernel;
  const hr_dims *dims = kernel->order == HR_ORDER_LANES ? &d->e->walked : &d->e->kept;
  int stored = -1; /* the last phase that stores elements */
  bool is_any_wide = false;
  if (kernel->reduce_mask == 0 || kernel->ordered_mask != 0 || dims->rank == 0 ||
      dims->dims[dims->rank - 1] % WIDTH != 0) {
    return false;
  }
  d->inner = dims->source[dims->rank - 1];
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      return false;
    }
    if (instr->level != HR_LEVEL_ELEMENT || (instr->kind != HR_INSTR_LOAD && instr->kind != HR_INSTR_STORE)) {
      continue;
    }
    const hr_access *access = &kernel->accesses[instr->access];
    bool wide = hr__device_is_wide(d, access), is_store = instr->kind == HR_INSTR_STORE;
    bool is_one = access->term_count == 0 && access->bound_count == 0 && access->strides[d->inner] == 0;
    if (is_store ? !wide || instr->mode != HR_STORE_SET : stored == instr->phase || (!wide && !is_one)) {
      return false;
    }
    stored = is_store ? instr->phase : stored;
    is_any_wide |= wide;
  }
  return is_any_wide;
}

/* ---- four neighbours ---- */

static const hr_access *access_of(const device *d, int k) {
  return &d->e->kernel->accesses[d->e->kernel->instrs[k].access];
}

static int bytes_of(const hr_access *access) {
  return WIDTH * (int)hr_dtype_size(access->dtype);
}

static void emit_copy(const device *d, int k, bool is_store) {
  const hr_instr *instr = &d->e->kernel->instrs[k];
  const int bytes = bytes_of(access_of(d, k));
  if (is_store) {
    HR__EMIT(d->e, "hr_copy%d(", bytes);
    hr__device_address(d, instr);
    HR__EMIT(d->e, ", o%d);\n", k);
  } else if (!hr__device_is_wide(d, access_of(d, k))) {
    HR__EMIT(d->e, "v%d[u][0] = ", instr->dst);
    hr__device_memory(d, instr, d->e->text);
    HR__EMIT(d->e, ";\n");
  } else {
    HR__EMIT(d->e, "hr_copy%d(v%d[u], ", bytes, instr->dst);
    hr__device_address(d, instr);
    HR__EMIT(d->e, ");\n");
  }
}

/* A load of four, or of their common element, from memory or from the row in shared memory. */
static void load_quad(const device *d, int phase, int k) {
  const hr_access *access = access_of(d, k);
  int64_t place = d->in_pool != NULL && hr__device_is_wide(d, access) ? d->in_pool[k] : -1;
  bool is_first = place < 0 || hr__device_is_first(d, k, phase);
  char pool[96] = "";
  if (place >= 0) {
    snprintf(pool, sizeof pool, "&((HR__MEMORY_%s *)(hr_pool + %lld))[i]", hr__emit_dtype(access->dtype),
             (long long)place);
  }
  if (is_first) {
    emit_copy(d, k, false);
  }
  if (place >= 0 && is_first) {
    HR__EMIT(d->e, "hr_copy%d(%s, v%d[u]);\n", bytes_of(access), pool, d->e->kernel->instrs[k].dst);
  } else if (place >= 0) {
    HR__EMIT(d->e, "hr_copy%d(v%d[u], %s);\n", bytes_of(access), d->e->kernel->instrs[k].dst, pool);
  }
}

static bool is_in(const device *d, int k, int phase, hr_instr_kind kind) {
  const hr_instr *instr = &d->e->kernel->instrs[k];
  return instr->phase == phase && instr->level == HR_LEVEL_ELEMENT && instr->kind == kind;
}

/* The two threads of a pair exchange the halves that are not theirs. */
static void accumulate(const device *d, int k) {
  hr__emitter *e = d->e;
  const hr_instr *instr = &e->kernel->instrs[k];
  const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
  HR__EMIT(e, "HR_UNROLL\nfor (int h = 0; h < 2; ++h) {\n%s other = HR_LANE < 16 ? x%d[h + 2] : x%d[h];\n", type,
           instr->dst, instr->dst);
  HR__EMIT(e, "HR_SHUFFLE_AS(%s, other, HR_LANE ^ 16);\n", type);
  HR__EMIT(e, "l%d[h] = hr_combine_%s_%s(hr_combine_%s_%s(l%d[h], HR_LANE < 16 ? x%d[h] : other), ", instr->dst, row,
           cls, row, cls, instr->dst, instr->dst);
  HR__EMIT(e, "HR_LANE < 16 ? other : x%d[h + 2]);\n}\n", instr->dst);
}

void hr__device_open_four(const device *d, int phase, bool is_whole) {
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (is_in(d, k, phase, HR_INSTR_REDUCE)) {
      const hr_instr *instr = &kernel->instrs[k];
      HR__EMIT(e, "HR_ALIGNED %s x%d[%d];\n", hr__emit_type(instr->cls), instr->dst, (int)WIDTH);
      if (!is_whole) {
        HR__EMIT(e, "for (int h = 0; h < %d; ++h) { x%d[h] = hr_identity_%s_%s(); }\n", (int)WIDTH, instr->dst,
                 hr_op_table(instr->op)->name, hr_class_name(instr->cls));
      }
    } else if (is_in(d, k, phase, HR_INSTR_STORE)) {
      HR__EMIT(e, "HR_ALIGNED HR__MEMORY_%s o%d[%d];\n", hr__emit_dtype(access_of(d, k)->dtype), k, (int)WIDTH);
    }
  }
}

void hr__device_make_four(const device *d, int phase) {
  device inner = *d;
  inner.is_ahead = true, inner.is_wide = hr__device_is_wide;
  hr__device_element(&inner, phase, "");
}

void hr__device_store_four(const device *d, int phase) {
  hr__device_coordinates(d, &d->e->walked, "i", "w");
  for (int k = 0; k < d->e->kernel->instr_count; ++k) {
    if (is_in(d, k, phase, HR_INSTR_STORE)) {
      emit_copy(d, k, true);
    }
  }
}

void hr__device_load_four(const device *d, int phase) {
  const bool *ahead = hr__device_loads_ahead(d, phase);
  hr__device_coordinates(d, &d->e->walked, "i", "w");
  for (int k = 0; k < d->e->kernel->instr_count && ahead != NULL; ++k) {
    if (ahead[k]) {
      load_quad(d, phase, k);
    }
  }
}

void hr__device_declare_four(const device *d, int phase, int count) {
  const bool *ahead = hr__device_loads_ahead(d, phase);
  for (int k = 0; k < d->e->kernel->instr_count && ahead != NULL; ++k) {
    if (ahead[k]) {
      HR__EMIT(d->e, "HR_ALIGNED HR__MEMORY_%s v%d[%d][%d];\n", hr__emit_dtype(access_of(d, k)->dtype),
               d->e->kernel->instrs[k].dst, count, hr__device_is_wide(d, access_of(d, k)) ? (int)WIDTH : 1);
    }
  }
}

int hr__device_step_four(const device *d, int phase) {
  int step = hr__device_ahead(d, phase, AHEAD_MOST) / WIDTH;
  return step > 1 ? step : 1;
}

/* ---- rows of lanes ---- */

/* Group t + u of 128 elements. `is_whole`: all of them exist. */
static void emit_group(const device *d, int phase, const char *to, bool is_whole) {
  hr__emitter *e = d->e;
  hr__device_open_four(d, phase, is_whole);
  if (!is_whole) {
    HR__EMIT(e, "if (first < %s) {\n", to);
  }
  HR__EMIT(e, "HR_UNROLL\nfor (int h = 0; h < %d; ++h) {\nconst int n = (t + u) * %d + h;\n(void)n;\n", (int)WIDTH,
           (int)WIDTH);
  HR__EMIT(e, "const %s i = first + h;\n", hr__device_index_type(d));
  hr__device_make_four(d, phase);
  HR__EMIT(e, "}\n{\nconst %s i = first;\n(void)i;\n", hr__device_index_type(d));
  hr__device_store_four(d, phase);
  HR__EMIT(e, is_whole ? "}\n" : "}\n}\n");
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    if (is_in(d, k, phase, HR_INSTR_REDUCE)) {
      accumulate(d, k);
    }
  }
}

/* `count` groups from t on, whose loads come first. `guard`: "" or a condition on t + u. */
static void emit_groups(const device *d, int phase, const char *from, const char *to, int count, const char *guard,
                        bool is_whole) {
  hr__emitter *e = d->e;
  const char *type = hr__device_index_type(d);
  hr__device_declare_four(d, phase, count);
  for (int is_loaded = 0; is_loaded < 2; ++is_loaded) {
    HR__EMIT(e, "HR_UNROLL\nfor (int u = 0; u < %d; ++u) {\n%s{\n", count, guard);
    HR__EMIT(e, "const %s first = (%s)(%s) + (t + u) * %d + HR_LANE * %d;\n", type, type, from, (int)GROUP, (int)WIDTH);
    if (is_loaded) {
      emit_group(d, phase, to, is_whole);
    } else {
      HR__EMIT(e, "const %s i = first;\n", type);
      if (!is_whole) {
        HR__EMIT(e, "if (i < %s) {\n", to);
      }
      hr__device_load_four(d, phase);
      HR__EMIT(e, is_whole ? "" : "}\n");
    }
    HR__EMIT(e, "}\n}\n");
  }
}

void hr__device_quads(const device *d, int phase, const char *from, const char *to) {
  hr__emitter *e = d->e;
  const int step = hr__device_step_four(d, phase);
  hr__device_accumulators(d, phase, true);
  HR__EMIT(e, "{\nconst int rounds = (int)((%s - (%s)) / %d);\nint t = 0;\n", to, from, (int)GROUP);
  HR__EMIT(e, "for (; t + %d <= rounds; t += %d) {\n", step, step);
  emit_groups(d, phase, from, to, step, "", true);
  bool is_whole = d->elements % GROUP == 0;
  HR__EMIT(e, "}\nfor (; t %s rounds; ++t) {\n", is_whole ? "<" : "<=");
  emit_groups(d, phase, from, to, 1, "", is_whole);
  HR__EMIT(e, "}\n}\n");
}

/* A thread keeps values of its elements: each has a number that is known when the text is compiled. */
void hr__device_own_quads(const device *d, int phase) {
  hr__emitter *e = d->e;
  const int whole = (int)(d->elements / GROUP), step = hr__device_step_four(d, phase);
  char guard[48], to[24];
  snprintf(guard, sizeof guard, "if (t + u < %d) ", whole);
  snprintf(to, sizeof to, HR__FREE, (long long)d->elements);
  hr__device_accumulators(d, phase, true);
  HR__EMIT(e, "HR_UNROLL\nfor (int t = 0; t < %d; t += %d) {\n", whole, step);
  emit_groups(d, phase, "0", to, step, whole % step != 0 ? guard : "", true);
  HR__EMIT(e, "}\n");
  if (d->elements % GROUP != 0) {
    HR__EMIT(e, "{\nconst int t = %d;\n", whole);
    emit_groups(d, phase, "0", to, 1, "", false);
    HR__EMIT(e, "}\n");
  }
}
