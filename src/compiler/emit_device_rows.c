/* Rows in the order of lanes, and chunks as units of their own: warps, blocks, results of chunks in the workspace. */
#include <stdio.h>

#include "compiler/emit_device_internal.h"

enum { WARP = 32, THREADS = HR__DEVICE_THREADS, ROW_THREADS = 128, SPLIT_ROWS = 65536 };

/* ---- a warp or a block a row ---- */

/* The lanes of elements [from, to): thread t has lanes t and t + 32. */
static void hr__device_lanes(const device *d, int phase, const char *from, const char *to) {
  hr__emitter *e = d->e;
  hr__device_accumulators(d, phase, true);
  HR__EMIT(e, "for (int64_t j = %s + HR_LANE; j < %s; j += 2 * HR_WARP) {\n", from, to);
  HR__EMIT(e, "HR_UNROLL\nfor (int h = 0; h < 2; ++h) {\nconst int64_t i = j + h * HR_WARP;\nif (i < %s) {\n", to);
  hr__device_element(d, phase, "[h]");
  HR__EMIT(e, "}\n}\n}\n");
}

/* Folds the lanes; `at` NULL: into registers, else to the place of chunk `at` (a C expression). */
static void emit_fold(const device *d, int phase, const char *at) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !hr__device_is_reduction(instr)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    int r = instr->dst;
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e, "hr_offer_%s_%s(&l%d[0], &m%d[0], l%d[1], m%d[1]);\nhr_choose_%s_%s(&l%d[0], &m%d[0]);\n", row, cls,
               r, r, r, r, row, cls, r, r);
      if (at == NULL) {
        HR__EMIT(e, "const int64_t r%d = m%d[0];\n", r, r);
      } else {
        HR__EMIT(e, "if (HR_LANE == 0) {\n((%s *)(call.workspace + %lld))[%s] = l%d[0];\n", type,
                 (long long)d->parts[k], at, r);
        HR__EMIT(e, "((int64_t *)(call.workspace + %lld))[%s] = m%d[0];\n}\n",
                 (long long)(d->parts[k] + d->rows * d->chunks * 16), at, r);
      }
    } else if (at == NULL) {
      HR__EMIT(e, "const %s r%d = hr_fold_%s_%s(l%d[0], l%d[1]);\n", type, r, row, cls, r, r);
    } else {
      HR__EMIT(e, "{\nconst %s folded = hr_fold_%s_%s(l%d[0], l%d[1]);\n", type, row, cls, r, r);
      HR__EMIT(e, "if (HR_LANE == 0) { ((%s *)(call.workspace + %lld))[%s] = folded; }\n}\n", type,
               (long long)d->parts[k], at);
    }
  }
}

/* The results of a row's chunks become registers: a warp makes them. With `shares` it leaves them for the others of the block. */
static void emit_combine(const device *d, int phase, bool shares) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !hr__device_is_reduction(instr)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    bool is_arg = instr->kind == HR_INSTR_ARGREDUCE;
    int r = instr->dst;
    HR__EMIT(e, "%s *const x%d = (%s *)(call.workspace + %lld) + row * %lld;\n", type, r, type, (long long)d->parts[k],
             (long long)d->chunks);
    if (is_arg) {
      HR__EMIT(e, "int64_t *const y%d = (int64_t *)(call.workspace + %lld) + row * %lld;\n", r,
               (long long)(d->parts[k] + d->rows * d->chunks * 16), (long long)d->chunks);
    }
    HR__EMIT(e, shares ? "if (HR_THREAD < HR_WARP) {\n" : "{\n");
    if (is_arg) {
      HR__EMIT(e, "%s key = 0;\nint64_t index = INT64_MAX;\n", type);
      HR__EMIT(e,
               "for (int64_t j = HR_LANE; j < %lld; j += HR_WARP) { hr_offer_%s_%s(&key, &index, x%d[j], y%d[j]); }\n",
               (long long)d->chunks, row, cls, r, r);
      HR__EMIT(e, "hr_choose_%s_%s(&key, &index);\nHR_WARP_BARRIER;\nif (HR_LANE == 0) { y%d[0] = index; }\n", row, cls,
               r);
    } else {
      HR__EMIT(e, "(void)hr_chunks_%s_%s(x%d, %lld);\n", row, cls, r, (long long)d->chunks);
    }
    HR__EMIT(e, "}\n%s;\nconst %s r%d = %s%d[0];\n", shares ? "HR_BARRIER" : "HR_WARP_BARRIER",
             is_arg ? "int64_t" : type, r, is_arg ? "y" : "x", r);
  }
}

void hr__device_place_parts(device *d) {
  const hr_kernel *kernel = d->e->kernel;
  for (int k = 0; k < kernel->instr_count && d->chunks > 1; ++k) {
    if (hr__device_is_reduction(&kernel->instrs[k])) {
      bool is_arg = kernel->instrs[k].kind == HR_INSTR_ARGREDUCE;
      d->parts[k] = hr__device_reserve(d, d->rows * d->chunks * (is_arg ? 24 : 16));
    }
  }
}

static void emit_from_to(const device *d, const char *chunk) {
  HR__EMIT(d->e, "const int64_t from = (%s) * %d;\nconst int64_t to = from + %d < %lld ? from + %d : %lld;\n", chunk,
           (int)HR_REDUCE_CHUNK, (int)HR_REDUCE_CHUNK, (long long)d->elements, (int)HR_REDUCE_CHUNK,
           (long long)d->elements);
}

/* Rows of one chunk: several warps of a block have rows of their own. */
void hr__device_warp_rows(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  char all[24];
  snprintf(all, sizeof all, "%lld", (long long)d->elements);
  hr__device_head(d, 0);
  HR__EMIT(e, "const int64_t row = HR_BLOCK * %d + HR_THREAD / HR_WARP;\nif (row >= %lld) { return; }\n",
           (int)(ROW_THREADS / WARP), (long long)d->rows);
  hr__device_coordinates(d, &e->kept, "row", "c");
  for (int phase = 0; phase < e->kernel->phase_count; ++phase) {
    hr__device_row(d, phase, "HR_WARP_BARRIER", "HR_LANE == 0");
    if (hr__device_has_elements(e->kernel, phase)) {
      hr__device_lanes(d, phase, "(int64_t)0", all);
      emit_fold(d, phase, NULL);
    }
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = (d->rows + ROW_THREADS / WARP - 1) / (ROW_THREADS / WARP);
  emission->threads[0] = ROW_THREADS;
}

/* Rows of several chunks: the warps of a block take chunks in turn. */
void hr__device_block_rows(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  hr__device_head(d, 0);
  HR__EMIT(e, "const int64_t row = HR_BLOCK;\n");
  hr__device_coordinates(d, &e->kept, "row", "c");
  for (int phase = 0; phase < e->kernel->phase_count; ++phase) {
    hr__device_row(d, phase, "HR_BARRIER", "HR_THREAD == 0");
    if (!hr__device_has_elements(e->kernel, phase)) {
      continue;
    }
    HR__EMIT(e, "for (int64_t chunk = HR_THREAD / HR_WARP; chunk < %lld; chunk += %d) {\n", (long long)d->chunks,
             (int)(THREADS / WARP));
    emit_from_to(d, "chunk");
    hr__device_lanes(d, phase, "from", "to");
    char at[48];
    snprintf(at, sizeof at, "row * %lld + chunk", (long long)d->chunks);
    emit_fold(d, phase, at);
    HR__EMIT(e, "}\nHR_BARRIER;\n");
    emit_combine(d, phase, true);
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = d->rows;
  emission->threads[0] = THREADS;
}

/* ---- chunks as units of their own ---- */

/* Whether nothing but reductions runs over the elements. */
bool hr__device_can_split(const device *d) {
  const hr_kernel *kernel = d->e->kernel;
  bool can = d->chunks > 1 && d->rows < SPLIT_ROWS;
  for (int k = 0; can && k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    bool is_row = instr->level == HR_LEVEL_ROW, stores = instr->kind == HR_INSTR_STORE;
    can = (is_row || instr->phase == 0) && !(is_row && stores && instr->phase == 0) &&
          (is_row || !stores || instr->mode == HR_STORE_SET);
  }
  return can;
}

void hr__device_split_warps(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  int64_t units = d->rows * d->chunks, warps = ROW_THREADS / WARP;
  hr__device_head(d, 0);
  HR__EMIT(e, "const int64_t unit = HR_BLOCK * %d + HR_THREAD / HR_WARP;\nif (unit >= %lld) { return; }\n", (int)warps,
           (long long)units);
  HR__EMIT(e, "const int64_t row = unit / %lld;\n", (long long)d->chunks);
  char chunk[48];
  snprintf(chunk, sizeof chunk, "unit %% %lld", (long long)d->chunks);
  emit_from_to(d, chunk);
  hr__device_coordinates(d, &e->kept, "row", "c");
  hr__device_row(d, 0, NULL, NULL);
  hr__device_lanes(d, 0, "from", "to");
  emit_fold(d, 0, "unit");
  HR__EMIT(e, "}\n");
  hr__device_head(d, 1);
  HR__EMIT(e, "const int64_t row = HR_BLOCK * %d + HR_THREAD / HR_WARP;\nif (row >= %lld) { return; }\n", (int)warps,
           (long long)d->rows);
  hr__device_coordinates(d, &e->kept, "row", "c");
  hr__device_row(d, 0, NULL, NULL);
  emit_combine(d, 0, false);
  for (int phase = 1; phase < e->kernel->phase_count; ++phase) {
    hr__device_row(d, phase, "HR_WARP_BARRIER", "HR_LANE == 0");
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 2;
  emission->blocks[0] = (units + warps - 1) / warps;
  emission->blocks[1] = (d->rows + warps - 1) / warps;
  emission->threads[0] = emission->threads[1] = ROW_THREADS;
}

/* Sequential chunks: results of neighbouring rows lie side by side. */
void hr__device_split_threads(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  hr__device_head(d, 0);
  HR__EMIT(e, "const int64_t unit = HR_BLOCK * %d + HR_THREAD;\nif (unit >= %lld) { return; }\n", (int)THREADS,
           (long long)(d->rows * d->chunks));
  HR__EMIT(e, "const int64_t row = unit %% %lld;\n", (long long)d->rows);
  char chunk[48];
  snprintf(chunk, sizeof chunk, "unit / %lld", (long long)d->rows);
  emit_from_to(d, chunk);
  hr__device_coordinates(d, &e->kept, "row", "c");
  hr__device_row(d, 0, NULL, NULL);
  hr__device_accumulators(d, 0, false);
  hr__device_levels(d, 0, 0, "from", "to");
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (hr__device_is_reduction(instr)) {
      HR__EMIT(e, "((%s *)(call.workspace + %lld))[unit] = l%d;\n", hr__emit_type(instr->cls), (long long)d->parts[k],
               instr->dst);
      if (instr->kind == HR_INSTR_ARGREDUCE) {
        HR__EMIT(e, "((int64_t *)(call.workspace + %lld))[unit] = m%d;\n",
                 (long long)(d->parts[k] + d->rows * d->chunks * 16), instr->dst);
      }
    }
  }
  HR__EMIT(e, "}\n");
  hr__device_head(d, 1);
  HR__EMIT(e, "const int64_t row = HR_BLOCK * %d + HR_THREAD;\nif (row >= %lld) { return; }\n", (int)THREADS,
           (long long)d->rows);
  hr__device_coordinates(d, &e->kept, "row", "c");
  hr__device_row(d, 0, NULL, NULL);
  hr__device_accumulators(d, 0, false);
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (!hr__device_is_reduction(instr)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    HR__EMIT(e, "for (int64_t j = 0; j < %lld; ++j) {\nconst int64_t at = j * %lld + row;\n", (long long)d->chunks,
             (long long)d->rows);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e, "hr_offer_%s_%s(&l%d, &m%d, ((%s *)(call.workspace + %lld))[at], ", row, cls, instr->dst, instr->dst,
               type, (long long)d->parts[k]);
      HR__EMIT(e, "((int64_t *)(call.workspace + %lld))[at]);\n}\n",
               (long long)(d->parts[k] + d->rows * d->chunks * 16));
    } else {
      HR__EMIT(e, "l%d = hr_combine_%s_%s(l%d, ((%s *)(call.workspace + %lld))[at]);\n}\n", instr->dst, row, cls,
               instr->dst, type, (long long)d->parts[k]);
    }
  }
  hr__device_results(d, 0);
  for (int phase = 1; phase < kernel->phase_count; ++phase) {
    hr__device_row(d, phase, NULL, NULL);
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 2;
  emission->blocks[0] = (d->rows * d->chunks + THREADS - 1) / THREADS;
  emission->blocks[1] = (d->rows + THREADS - 1) / THREADS;
  emission->threads[0] = emission->threads[1] = THREADS;
}
