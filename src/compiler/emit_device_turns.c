/* Long rows in the order of lanes that are walked several times: one block for each row, whose threads keep the values.
 *
 *   elements     thread t of warp w has elements w * 1024 + t, + 32, + 64, ...: s0[n] = x, s1[n] = exp(s0[n] - r2)
 *   reductions   warps of a chunk take turns: each continues the lanes' sums that the previous warp left in shared
 *                memory, so a lane's elements are still added one after the other; the last warp folds the lanes
 *
 *   for (turn < 4) {
 *     if (part == turn) { l3 = t3; for (n < 32) { l3[n % 2] += s1[n]; } t3 = l3; }
 *     barrier of the chunk;
 *   }
 *
 * All warps run the costly operations at once, and a turn is only some additions. For emission, the reductions of a
 * phase become a phase of their own after the one that computes their operands. Values then cross as between any two
 * phases.
 */
#include <stdio.h>

#include "base/integer.h"
#include "compiler/emit_device_internal.h"

enum { WARP = HR__DEVICE_LANES, WARPS_MOST = 16, OWN_MOST = 32, OWN_LEAST = 8 };
enum { GUARD_BYTES = 40 };
enum { ROWS_LEAST = 64 }; /* with fewer rows, passes over parts of rows keep the device busier */

static bool is_suitable(const device *d) {
  const hr_kernel *kernel = d->e->kernel;
  int walks = 0;
  for (int phase = 0; phase < kernel->phase_count; ++phase) {
    walks += hr__device_has_elements(kernel, phase);
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].kind == HR_INSTR_ARGREDUCE) {
      return false;
    }
  }
  return kernel->reduce_mask != 0 && kernel->order == HR_ORDER_LANES && walks > 1 && d->rows >= ROWS_LEAST &&
         d->elements > OWN_MOST * WARP;
}

/* ---- which elements a thread has ---- */

/* Places the values of a kernel in which a thread has `own` elements of a row; false: too many threads, or values. */
static bool try_own(device *d, int own) {
  int64_t workspace = d->workspace;
  d->own = own;
  bool fits = hr_divide_up(d->elements, own * WARP) <= WARPS_MOST && hr__device_place_spills(d);
  d->workspace = workspace; /* if everything is kept, none is needed */
  return fits;
}

bool hr__device_place_turns(device *d) {
  const hr_kernel *whole = d->e->kernel;
  if (!is_suitable(d)) {
    return false;
  }
  hr__device_merge_loads(d);
  hr__device_part_phases(d);
  d->is_turns = true;
  for (int own = OWN_MOST; own >= OWN_LEAST; own /= 2) {
    if (try_own(d, own)) {
      return true;
    }
  }
  d->e->kernel = whole;
  d->is_turns = false, d->own = 0;
  return false;
}

/* ---- the text ---- */

static int warps_of(const device *d) {
  return (int)hr_divide_up(d->elements, d->own * WARP);
}

/* "if (i < 5000) " if threads may have fewer elements than others, or "". */
static const char *guard_of(const device *d, char text[GUARD_BYTES]) {
  bool has_rest = d->elements % (d->own * WARP) != 0;
  if (!has_rest) {
    return "";
  }
  snprintf(text, GUARD_BYTES, "if (i < " HR__FREE ") ", (long long)d->elements);
  return text;
}

/* Declares, for each reduction of a phase, the lanes that pass from warp to warp, and the results of chunks. */
static void declare_shared(const device *d, int phase) {
  for (int k = 0; k < d->e->kernel->instr_count; ++k) {
    const hr_instr *instr = &d->e->kernel->instrs[k];
    if (instr->phase == phase && hr__device_is_reduction(instr)) {
      HR__EMIT(d->e, "HR_SHARED HR_ALIGNED %s t%d[%lld][%d], p%d[%lld];\n", hr__emit_type(instr->cls), instr->dst,
               (long long)d->chunks, (int)HR_REDUCE_LANES, instr->dst, (long long)d->chunks);
    }
  }
}

/* Reads the lanes of the previous warp, or writes them for the next one. */
static void hand_lanes(const device *d, int phase, bool is_on) {
  for (int k = 0; k < d->e->kernel->instr_count; ++k) {
    int r = d->e->kernel->instrs[k].dst;
    if (d->e->kernel->instrs[k].phase == phase && hr__device_is_reduction(&d->e->kernel->instrs[k])) {
      HR__EMIT(d->e,
               is_on ? "t%d[chunk][HR_LANE] = l%d[0], t%d[chunk][HR_WARP + HR_LANE] = l%d[1];\n"
                     : "l%d[0] = t%d[chunk][HR_LANE], l%d[1] = t%d[chunk][HR_WARP + HR_LANE];\n",
               r, r, r, r);
    }
  }
}

static void fold_lanes(const device *d, int phase) {
  for (int k = 0; k < d->e->kernel->instr_count; ++k) {
    const hr_instr *instr = &d->e->kernel->instrs[k];
    if (instr->phase == phase && hr__device_is_reduction(instr)) {
      HR__EMIT(d->e, "{\nconst %s folded = hr_fold_%s_%s(l%d[0], l%d[1]);\n", hr__emit_type(instr->cls),
               hr_op_table(instr->op)->name, hr_class_name(instr->cls), instr->dst, instr->dst);
      HR__EMIT(d->e, "if (HR_LANE == 0) { p%d[chunk] = folded; }\n}\n", instr->dst);
    }
  }
}

/* Results of chunks become registers. */
static void take_results(const device *d, int phase) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase == phase && hr__device_is_reduction(instr)) {
      HR__EMIT(e, "const %s r%d = hr_few_chunks_%s_%s(p%d, " HR__FREE ");\n", hr__emit_type(instr->cls), instr->dst,
               hr_op_table(instr->op)->name, hr_class_name(instr->cls), instr->dst, (long long)d->chunks);
    }
  }
}

/* A chunk's warps wait only for each other. (A block that counts its barriers itself has all sixteen: many small blocks
 * would not fit on a processor.) */
static void end_turn(const device *d, int parts, int turns) {
  const int last = (int)d->chunks - 1;
  if (d->chunks == 1) {
    HR__EMIT(d->e, "HR_BARRIER;\n}\n");
  } else {
    HR__EMIT(d->e, "if (turn < %d) { HR_BARRIER_OF(1 + chunk, chunk < %d ? %d : %d); }\n}\nHR_BARRIER;\n", turns - 1,
             last, parts * (int)WARP, (warps_of(d) - last * parts) * (int)WARP);
  }
}

static void emit_reductions(const device *d, int phase) {
  hr__emitter *e = d->e;
  const int parts = (int)(d->chunk / (d->own * WARP)), warps = warps_of(d), turns = warps < parts ? warps : parts;
  char guard[GUARD_BYTES];
  declare_shared(d, phase);
  hr__device_accumulators(d, phase, true);
  HR__EMIT(e, "for (int turn = 0; turn < %d; ++turn) {\nif (part == turn) {\nif (turn > 0) {\n", turns);
  hand_lanes(d, phase, false);
  HR__EMIT(e, "}\nHR_UNROLL\nfor (int n = 0; n < %d; ++n) {\nconst %s i = begin + n * HR_WARP;\n", d->own,
           hr__device_index_type(d));
  HR__EMIT(e, "%s{\n", guard_of(d, guard));
  hr__device_element(d, phase, "[n % 2]");
  HR__EMIT(e, "}\n}\nif (turn < %d && warp < %d) {\n", parts - 1, warps - 1);
  hand_lanes(d, phase, true);
  HR__EMIT(e, "} else {\n");
  fold_lanes(d, phase);
  HR__EMIT(e, "}\n}\n");
  end_turn(d, parts, turns);
  take_results(d, phase);
}

/* True if the elements of a row are contiguous, and each row has its own. */
static bool is_prefetched(const device *d, const hr_instr *instr) {
  const hr_dims *walked = &d->e->walked, *kept = &d->e->kept;
  if (instr->kind != HR_INSTR_LOAD || instr->level != HR_LEVEL_ELEMENT) {
    return false;
  }
  const hr_access *access = &d->e->kernel->accesses[instr->access];
  bool has_rows = false;
  for (int k = 0; k < kept->rank; ++k) {
    has_rows |= access->strides[kept->source[k]] != 0;
  }
  return has_rows && access->term_count == 0 && access->bound_count == 0 && walked->rank == 1 &&
         access->strides[walked->source[0]] == 1;
}

/* Prefetches the next row into the cache while this one is processed: a processor has only one or two blocks, and would
 * be idle while the next one waits for its row. */
static void prefetch_row(const device *d) {
  hr__emitter *e = d->e;
  const int most = d->own * WARP;
  HR__EMIT(e, "if (HR_LANE == 0 && HR_BLOCK + hr_processors() < " HR__FREE ") {\n", (long long)d->rows);
  HR__EMIT(e, "const int64_t row = HR_BLOCK + hr_processors();\nconst %s i = begin;\n", hr__device_index_type(d));
  HR__EMIT(e, "const int count = " HR__FREE " - begin < %d ? (int)(" HR__FREE " - begin) : %d;\n",
           (long long)d->elements, most, (long long)d->elements, most);
  hr__device_coordinates(d, &e->kept, "row", "c");
  hr__device_coordinates(d, &e->walked, "i", "w");
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (is_prefetched(d, instr)) {
      HR__EMIT(e, "hr_prefetch(");
      hr__device_address(d, instr);
      HR__EMIT(e, ", count * %d);\n", (int)hr_dtype_size(e->kernel->accesses[instr->access].dtype));
    }
  }
  HR__EMIT(e, "}\n");
}

void hr__device_turn_rows(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  const int warps = warps_of(d);
  char guard[GUARD_BYTES];
  hr__device_head(d, 0, warps * WARP);
  HR__EMIT(
      e, "const int64_t row = HR_BLOCK;\nconst int warp = HR_THREAD / HR_WARP, chunk = warp / %d, part = warp %% %d;\n",
      (int)(d->chunk / (d->own * WARP)), (int)(d->chunk / (d->own * WARP)));
  HR__EMIT(e, "const int begin = warp * %d + HR_LANE;\n", d->own * (int)WARP);
  prefetch_row(d);
  hr__device_coordinates(d, &e->kept, "row", "c");
  hr__device_declare_own(d);
  for (int phase = 0; phase < e->kernel->phase_count; ++phase) {
    hr__device_row(d, phase, "HR_BARRIER", "HR_THREAD == 0");
    if (hr__device_reduces(e->kernel, phase)) {
      emit_reductions(d, phase);
    } else if (hr__device_has_elements(e->kernel, phase)) {
      hr__device_own_elements(d, phase, d->own, "begin", guard_of(d, guard), "");
    }
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = d->rows;
  emission->threads[0] = warps * WARP;
}
