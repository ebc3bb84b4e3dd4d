/* Rows in the order of lanes: one warp or block for each row; results of chunks go through the workspace. */
#include <stdio.h>

#include "base/integer.h"
#include "compiler/emit_device_internal.h"

enum { WARP = 32, ROW_THREADS = 128, WARPS_MOST = 16, ROUNDS_MOST = 8 };
/* One block for each row in one pass, rather than passes over the whole device, from this many rows and warps of a
 * block on: they keep the device busy. */
enum { ROWS_LEAST = 512, WARPS_LEAST = 4 };

/* ---- one warp or block for each row ---- */

void hr__device_own_elements(const device *d, int phase, int count, const char *first, const char *guard,
                             const char *suffix) {
  hr__emitter *e = d->e;
  const int step = hr__device_ahead(d, phase, count);
  const char *type = hr__device_index_type(d);
  device inner = *d;
  inner.is_ahead = true;
  HR__EMIT(e, "HR_UNROLL\nfor (int b = 0; b < %d; b += %d) {\n", count, step);
  hr__device_declare_ahead(d, phase, step);
  for (int is_loaded = 0; is_loaded < 2; ++is_loaded) {
    HR__EMIT(e, "HR_UNROLL\nfor (int u = 0; u < %d; ++u) {\nconst int n = b + u;\n(void)n;\n", step);
    HR__EMIT(e, "const %s i = %s + n * HR_WARP;\n%s{\n", type, first, guard);
    if (is_loaded) {
      hr__device_element(&inner, phase, suffix);
    } else {
      hr__device_load_ahead(d, phase);
    }
    HR__EMIT(e, "}\n}\n");
  }
  HR__EMIT(e, "}\n");
}

/* A thread keeps values of its elements: each has a number that is known when the text is compiled. */
static void emit_own_lanes(const device *d, int phase) {
  hr__emitter *e = d->e;
  if (d->is_quads) {
    hr__device_own_quads(d, phase);
    return;
  }
  const int whole = (int)(d->elements / WARP);
  char guard[32];
  snprintf(guard, sizeof guard, "if (n < %d) ", whole);
  hr__device_accumulators(d, phase, true);
  hr__device_own_elements(d, phase, whole, "HR_LANE", guard, "[n % 2]");
  if (d->elements % WARP != 0) {
    HR__EMIT(e, "{\nconst int n = %d, i = n * HR_WARP + HR_LANE;\nif (i < " HR__FREE ") {\n", whole,
             (long long)d->elements);
    hr__device_element(d, phase, "[n % 2]");
    HR__EMIT(e, "}\n}\n");
  }
}

void hr__device_declare_own(const device *d) {
  for (int r = 0; r < d->e->kernel->register_count; ++r) {
    if (d->spills[r] == HR__OWN) {
      HR__EMIT(d->e, "%s s%d[%d];\n", hr__emit_type(d->e->kernel->registers[r].cls), r, d->own);
    }
  }
}

/* Element h of a thread in round t. */
static void emit_round(const device *d, int phase, const char *from, const char *round, const char *condition) {
  const char *type = hr__device_index_type(d);
  HR__EMIT(d->e, "HR_UNROLL\nfor (int h = 0; h < 2; ++h) {\n");
  HR__EMIT(d->e, "const %s i = (%s)(%s) + (%s * 2 + h) * HR_WARP + HR_LANE;\n%s{\n", type, type, from, round,
           condition);
  hr__device_element(d, phase, "[h]");
  HR__EMIT(d->e, "}\n}\n");
}

/* Several whole rounds, whose loads come first. */
static void emit_rounds_ahead(const device *d, int phase, const char *from) {
  const char *type = hr__device_index_type(d);
  const int elements =
      hr__device_ahead(d, phase, 2 * ROUNDS_MOST) < 2 ? 2 : hr__device_ahead(d, phase, 2 * ROUNDS_MOST);
  device inner = *d;
  inner.is_ahead = true;
  HR__EMIT(d->e, "for (; t + %d <= rounds; t += %d) {\n", elements / 2, elements / 2);
  hr__device_declare_ahead(d, phase, elements);
  for (int is_loaded = 0; is_loaded < 2; ++is_loaded) {
    HR__EMIT(d->e, "HR_UNROLL\nfor (int u = 0; u < %d; ++u) {\n", elements);
    HR__EMIT(d->e, "const %s i = (%s)(%s) + (t * 2 + u) * HR_WARP + HR_LANE;\n", type, type, from);
    if (is_loaded) {
      hr__device_element(&inner, phase, "[u % 2]");
    } else {
      hr__device_load_ahead(d, phase);
    }
    HR__EMIT(d->e, "}\n");
  }
  HR__EMIT(d->e, "}\n");
}

/* The lanes of elements [from, to): thread t has lanes t and t + 32. All rounds but the last are whole: their loads
 * need no comparison, and differ in constants alone. */
void hr__device_lanes(const device *d, int phase, const char *from, const char *to) {
  hr__emitter *e = d->e;
  char condition[64];
  if (d->is_quads) {
    hr__device_quads(d, phase, from, to);
    return;
  }
  snprintf(condition, sizeof condition, "if (i < %s) ", to);
  hr__device_accumulators(d, phase, true);
  HR__EMIT(e, "{\nconst int rounds = (int)((%s - (%s)) / (2 * HR_WARP));\n", to, from);
  HR__EMIT(e, "int t = 0;\n");
  emit_rounds_ahead(d, phase, from);
  HR__EMIT(e, "for (; t < rounds; ++t) {\n");
  emit_round(d, phase, from, "t", "");
  HR__EMIT(e, "}\n");
  emit_round(d, phase, from, "rounds", condition);
  HR__EMIT(e, "}\n");
}

/* Folds the lanes of one reduction; `at` NULL: into a register, else to the place of chunk `at` (a C expression). */
void hr__device_fold_one(const device *d, int k, const char *at) {
  hr__emitter *e = d->e;
  const hr_instr *instr = &e->kernel->instrs[k];
  const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
  const char *fold = d->is_quads ? "fold_quads" : "fold";
  int r = instr->dst;
  if (instr->kind == HR_INSTR_ARGREDUCE) {
    HR__EMIT(e, "hr_update_best_%s_%s(&l%d[0], &m%d[0], l%d[1], m%d[1]);\nhr_choose_%s_%s(&l%d[0], &m%d[0]);\n", row,
             cls, r, r, r, r, row, cls, r, r);
    if (at == NULL) {
      HR__EMIT(e, "const int64_t r%d = m%d[0];\n", r, r);
    } else {
      HR__EMIT(e, "if (HR_LANE == 0) {\n((%s *)(call.workspace + " HR__FREE "))[%s] = l%d[0];\n", type,
               (long long)d->parts[k], at, r);
      HR__EMIT(e, "((int64_t *)(call.workspace + " HR__FREE "))[%s] = m%d[0];\n}\n",
               (long long)hr__device_part_indices(d, k), at, r);
    }
  } else if (at == NULL) {
    HR__EMIT(e, "const %s r%d = hr_%s_%s_%s(l%d[0], l%d[1]);\n", type, r, fold, row, cls, r, r);
  } else {
    HR__EMIT(e, "{\nconst %s folded = hr_%s_%s_%s(l%d[0], l%d[1]);\n", type, fold, row, cls, r, r);
    HR__EMIT(e, "if (HR_LANE == 0) { ((%s *)(call.workspace + " HR__FREE "))[%s] = folded; }\n}\n", type,
             (long long)d->parts[k], at);
  }
}

void hr__device_fold(const device *d, int phase, const char *at) {
  for (int k = 0; k < d->e->kernel->instr_count; ++k) {
    if (d->e->kernel->instrs[k].phase == phase && hr__device_is_reduction(&d->e->kernel->instrs[k])) {
      hr__device_fold_one(d, k, at);
    }
  }
}

/* Combines the results of a row's chunks into registers, by one warp. With `shares` it leaves them for the other warps
 * of the block. */
void hr__device_combine(const device *d, int phase, bool shares) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !hr__device_is_reduction(instr)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    bool is_arg = instr->kind == HR_INSTR_ARGREDUCE;
    int r = instr->dst;
    HR__EMIT(e, "%s *const x%d = (%s *)(call.workspace + " HR__FREE ") + row * " HR__FREE ";\n", type, r, type,
             (long long)d->parts[k], (long long)d->chunks);
    if (is_arg) {
      HR__EMIT(e, "int64_t *const y%d = (int64_t *)(call.workspace + " HR__FREE ") + row * " HR__FREE ";\n", r,
               (long long)hr__device_part_indices(d, k), (long long)d->chunks);
    }
    HR__EMIT(e, shares ? "if (HR_THREAD < HR_WARP) {\n" : "{\n");
    if (is_arg) {
      HR__EMIT(e, "%s key = 0;\nint64_t index = INT64_MAX;\n", type);
      HR__EMIT(e,
               "for (int64_t j = HR_LANE; j < " HR__FREE
               "; j += HR_WARP) { hr_update_best_%s_%s(&key, &index, x%d[j], y%d[j]); }\n",
               (long long)d->chunks, row, cls, r, r);
      HR__EMIT(e, "hr_choose_%s_%s(&key, &index);\nHR_WARP_BARRIER;\nif (HR_LANE == 0) { y%d[0] = index; }\n", row, cls,
               r);
    } else {
      HR__EMIT(e, "(void)hr_chunks_%s_%s(x%d, " HR__FREE ");\n", row, cls, r, (long long)d->chunks);
    }
    HR__EMIT(e, "}\n%s;\nconst %s r%d = %s%d[0];\n", shares ? "HR_BARRIER" : "HR_WARP_BARRIER",
             is_arg ? "int64_t" : type, r, is_arg ? "y" : "x", r);
  }
}

int64_t hr__device_part_indices(const device *d, int k) {
  return d->parts[k] + d->rows * d->chunks * 16;
}

void hr__device_place_parts(device *d) {
  const hr_kernel *kernel = d->e->kernel;
  for (int k = 0; k < kernel->instr_count && d->chunks > 0; ++k) {
    if (hr__device_is_reduction(&kernel->instrs[k])) {
      bool is_arg = kernel->instrs[k].kind == HR_INSTR_ARGREDUCE;
      d->parts[k] = hr__device_reserve(d, d->rows * d->chunks * (is_arg ? 24 : 16));
    }
  }
}

static void emit_from_to(const device *d, const char *chunk) {
  HR__EMIT(d->e,
           "const int64_t from = (%s) * %d;\nconst int64_t to = from + %d < " HR__FREE " ? from + %d : " HR__FREE ";\n",
           chunk, (int)HR_REDUCE_CHUNK, (int)HR_REDUCE_CHUNK, (long long)d->elements, (int)HR_REDUCE_CHUNK,
           (long long)d->elements);
}

/* Rows of one chunk: several warps of a block have rows of their own. */
void hr__device_warp_rows(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  char all[24];
  snprintf(all, sizeof all, HR__FREE, (long long)d->elements);
  hr__device_head(d, 0, ROW_THREADS);
  HR__EMIT(e, "const int64_t row = HR_BLOCK * %d + HR_THREAD / HR_WARP;\nif (row >= " HR__FREE ") { return; }\n",
           (int)(ROW_THREADS / WARP), (long long)d->rows);
  hr__device_coordinates(d, &e->kept, "row", "c");
  hr__device_declare_own(d);
  for (int phase = 0; phase < e->kernel->phase_count; ++phase) {
    hr__device_row(d, phase, "HR_WARP_BARRIER", "HR_LANE == 0");
    if (hr__device_has_elements(e->kernel, phase)) {
      if (d->own > 0) {
        emit_own_lanes(d, phase);
      } else {
        hr__device_lanes(d, phase, "(int64_t)0", all);
      }
      hr__device_fold(d, phase, NULL);
    }
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = (d->rows + ROW_THREADS / WARP - 1) / (ROW_THREADS / WARP);
  emission->threads[0] = ROW_THREADS;
}

/* The number of warps of a block, chosen so that each has the same number of chunks. */
static int64_t warps_of(const device *d) {
  int64_t turns = hr_divide_up(d->chunks, WARPS_MOST);
  return hr_divide_up(d->chunks, turns);
}

bool hr__device_is_block_rows(const device *d) {
  const hr_kernel *kernel = d->e->kernel;
  int walks = 0;
  for (int phase = 0; phase < kernel->phase_count; ++phase) {
    walks += hr__device_has_elements(kernel, phase);
  }
  return kernel->reduce_mask != 0 && kernel->order == HR_ORDER_LANES && walks > 1 && d->chunks >= WARPS_LEAST &&
         d->rows >= ROWS_LEAST;
}

/* Places rows that several phases load in shared memory, as far as it suffices: each thread reads there the elements
 * that it has loaded itself. Returns the bytes. */
static int64_t place_in_pool(device *d) {
  const hr_kernel *kernel = d->e->kernel;
  int64_t bytes = 0;
  d->in_pool = HR_ARENA_ARRAY(&d->e->arena, int64_t, (size_t)kernel->instr_count + 1);
  d->e->text->failed |= d->in_pool == NULL;
  for (int k = 0; k < kernel->instr_count && d->in_pool != NULL; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    d->in_pool[k] = -1;
    for (int j = 0; j < k; ++j) {
      if (hr__device_is_same_row(kernel, instr, &kernel->instrs[j])) {
        int64_t size = hr_round_up(d->elements * (int64_t)hr_dtype_size(kernel->accesses[instr->access].dtype), 16);
        if (d->in_pool[j] < 0 && bytes + size <= d->block_bytes) {
          d->in_pool[j] = bytes;
          bytes += size;
        }
        d->in_pool[k] = d->in_pool[j];
      }
    }
  }
  return bytes;
}

/* Rows of several chunks: the warps of a block process chunks in turn. Later phases find the row in shared memory or in
 * a cache. */
void hr__device_block_rows(device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  int warps = (int)warps_of(d);
  int64_t pool = place_in_pool(d);
  hr__device_head(d, 0, warps * WARP);
  HR__EMIT(e, pool > 0 ? "HR_POOL;\n" : "");
  HR__EMIT(e, "const int64_t row = HR_BLOCK;\n");
  hr__device_coordinates(d, &e->kept, "row", "c");
  for (int phase = 0; phase < e->kernel->phase_count; ++phase) {
    hr__device_row(d, phase, "HR_BARRIER", "HR_THREAD == 0");
    if (!hr__device_has_elements(e->kernel, phase)) {
      continue;
    }
    HR__EMIT(e, "for (int64_t chunk = HR_THREAD / HR_WARP; chunk < " HR__FREE "; chunk += %d) {\n",
             (long long)d->chunks, warps);
    emit_from_to(d, "chunk");
    hr__device_lanes(d, phase, "from", "to");
    char at[48];
    snprintf(at, sizeof at, "row * " HR__FREE " + chunk", (long long)d->chunks);
    hr__device_fold(d, phase, at);
    HR__EMIT(e, "}\nHR_BARRIER;\n");
    hr__device_combine(d, phase, true);
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = d->rows;
  emission->threads[0] = warps * WARP;
  emission->shared[0] = (int)pool;
}
