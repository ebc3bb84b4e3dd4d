/* Reductions of many elements over the whole device: a kernel of several passes.
 *
 *   phases    phase 0      r0 = load x      r1 = reduce sum r0
 *             phase 1      r2 = div r1, n   r3 = load x   r4 = sub r3, r2   store y, r4
 *
 *   passes    elements 0   chunks of all rows: results to the workspace
 *             rows 1       r1 from its chunks, r2; both to the workspace
 *             elements 1   chunks of all rows: r2 from the workspace
 *
 * Row instructions run once, in a pass between those of elements; their results reach other passes through the
 * workspace. A unit of a pass of elements is a chunk of a row:
 *
 *   lanes        One block for each chunk: its threads compute the values of all elements into shared memory. One warp
 *                for each reduction then adds the values of its lanes in order. If the values don't fit, or there are
 *                enough chunks for all warps, one warp has the chunk. Results are stored by row.
 *   sequential   One block for a chunk of 32 neighbouring rows: its warps compute the values of some elements of each
 *                row, side by side in shared memory. One warp for each reduction then adds them in order, one thread
 *                for each row. Results are stored by chunk; many of them are transposed in tiles and combined in the
 *                same way. If a row is one chunk, the block's first warp also runs the row instructions before and
 *                after its elements, and no pass of rows is needed.
 *
 * In a phase without reductions, each thread has one element.
 */
#include <stdio.h>

#include "base/integer.h"
#include "compiler/emit_device_internal.h"

enum { WARP = 32, ROW_THREADS = 128, TILE_ROWS = 32, TILE_ELEMENTS = 64, TILE_ELEMENTS_MOST = 256, TILE_THREADS = 512 };
enum { CHUNK_THREADS = 256, TILE_BYTES = 40 << 10, FEW_CHUNKS = 16 };

typedef struct passes {
  device *d;
  bool is_lanes;
  int64_t *kept; /* by register: the place of row registers in the workspace; -1: no other pass reads them */
  hr_device_emission *emission;
} passes;

static bool is_row_value(const hr_instr *instr) {
  return instr->dst >= 0 && (instr->level == HR_LEVEL_ROW || hr__device_is_reduction(instr));
}

/* The pass of rows that computes a row register: 0 before the elements of phase 0, and so on. */
static int made_in(const hr_instr *instr) {
  return hr__device_is_reduction(instr) ? instr->phase + 1 : instr->phase;
}

/* Places row registers that elements, or rows of a later pass, read. */
static bool place_kept(passes *p) {
  const hr_kernel *kernel = p->d->e->kernel;
  p->kept = HR_ARENA_ARRAY(&p->d->e->arena, int64_t, (size_t)kernel->register_count + 1);
  if (p->kept == NULL) {
    return false;
  }
  for (int r = 0; r < kernel->register_count; ++r) {
    p->kept[r] = -1;
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *made = &kernel->instrs[k];
    bool is_needed = false;
    for (int j = 0; is_row_value(made) && j < kernel->instr_count; ++j) {
      const hr_instr *user = &kernel->instrs[j];
      is_needed |=
          (user->level == HR_LEVEL_ELEMENT || user->phase > made_in(made)) && hr__device_reads(kernel, user, made->dst);
    }
    if (is_needed) {
      p->kept[made->dst] =
          hr__device_reserve(p->d, p->d->rows * (int64_t)hr_class_size(kernel->registers[made->dst].cls));
    }
  }
  return true;
}

static void emit_kept(const passes *p, int reg) {
  const char *type = hr__emit_type(p->d->e->kernel->registers[reg].cls);
  HR__EMIT(p->d->e, "((%s *)(call.workspace + " HR__FREE "))[row]", type, (long long)p->kept[reg]);
}

/* True if instruction k computes a row register of an earlier pass that instructions of `level` and `phase` read;
 * elements may run again. */
static bool is_taken(const passes *p, hr_level level, int phase, int k) {
  const hr_kernel *kernel = p->d->e->kernel;
  const hr_instr *made = &kernel->instrs[k];
  bool is_earlier = is_row_value(made) && p->kept[made->dst] >= 0 &&
                    (level == HR_LEVEL_ELEMENT ? made_in(made) <= phase : made_in(made) < phase);
  bool is_needed = false;
  for (int j = 0; is_earlier && j < kernel->instr_count; ++j) {
    const hr_instr *user = &kernel->instrs[j];
    is_needed |= user->level == level && (level == HR_LEVEL_ELEMENT ? user->phase <= phase : user->phase == phase) &&
                 hr__device_reads(kernel, user, made->dst);
  }
  return is_needed;
}

/* Declares those. */
static void declare_kept(const passes *p, hr_level level, int phase) {
  hr__emitter *e = p->d->e;
  const hr_kernel *kernel = e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *made = &kernel->instrs[k];
    if (is_taken(p, level, phase, k)) {
      HR__EMIT(e, "const %s r%d = ", hr__emit_type(kernel->registers[made->dst].cls), made->dst);
      emit_kept(p, made->dst);
      HR__EMIT(e, ";\n");
    }
  }
}

static int next_pass(passes *p, int64_t blocks, int threads) {
  int pass = p->emission->pass_count++;
  p->emission->blocks[pass] = blocks;
  p->emission->threads[pass] = threads;
  return pass;
}

static void emit_from_to(const passes *p) {
  const device *d = p->d;
  HR__EMIT(d->e,
           "const int64_t from = chunk * %d;\nconst int64_t to = from + %d < " HR__FREE " ? from + %d : " HR__FREE
           ";\n",
           (int)d->chunk, (int)d->chunk, (long long)d->elements, (int)d->chunk, (long long)d->elements);
}

/* ---- rows ---- */

static bool has_rows(const hr_kernel *kernel, int phase) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if ((instr->level == HR_LEVEL_ROW && instr->phase == phase) ||
        (hr__device_is_reduction(instr) && instr->phase == phase - 1)) {
      return true;
    }
  }
  return false;
}

/* Results of a few chunks, one after the other, by the thread of the row. */
static void combine_in_order(const passes *p, int phase) {
  const device *d = p->d;
  hr__emitter *e = d->e;
  hr__device_accumulators(d, phase, false);
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !hr__device_is_reduction(instr)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls), *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    int r = instr->dst;
    if (d->chunks == 1 && instr->kind == HR_INSTR_REDUCE) {
      HR__EMIT(e, "l%d = ((%s *)(call.workspace + " HR__FREE "))[row];\n", r, type, (long long)d->parts[k]);
      continue;
    }
    HR__EMIT(e, "HR_UNROLL\nfor (int j = 0; j < %lld; ++j) {\nconst int64_t at = j * %lld + row;\n",
             (long long)d->chunks, (long long)d->rows);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e, "hr_update_best_%s_%s(&l%d, &m%d, ((%s *)(call.workspace + " HR__FREE "))[at], ", row, cls, r, r,
               type, (long long)d->parts[k]);
      HR__EMIT(e, "((int64_t *)(call.workspace + " HR__FREE "))[at]);\n}\n", (long long)hr__device_part_indices(d, k));
    } else {
      HR__EMIT(e, "l%d = hr_combine_%s_%s(l%d, ((%s *)(call.workspace + " HR__FREE "))[at]);\n}\n", r, row, cls, r,
               type, (long long)d->parts[k]);
    }
  }
  hr__device_results(d, phase);
}

/* Row instructions of a phase, and stores of the registers that other passes read. */
static void finish_rows(const passes *p, int phase) {
  const device *d = p->d;
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  hr__device_row(d, phase, p->is_lanes ? "HR_WARP_BARRIER" : NULL, "HR_LANE == 0");
  if (p->is_lanes) {
    HR__EMIT(e, "if (HR_LANE > 0) { return; }\n");
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (is_row_value(instr) && made_in(instr) == phase && p->kept[instr->dst] >= 0) {
      emit_kept(p, instr->dst);
      HR__EMIT(e, " = r%d;\n", instr->dst);
    }
  }
  HR__EMIT(e, "}\n");
}

/* True if one warp would take long to combine a row's chunks. */
static bool has_groups(const device *d, int phase) {
  bool has_groups = d->chunks > HR_REDUCE_CHUNK;
  for (int k = 0; k < d->e->kernel->instr_count; ++k) {
    const hr_instr *instr = &d->e->kernel->instrs[k];
    has_groups &= instr->phase != phase || instr->kind != HR_INSTR_ARGREDUCE;
  }
  return has_groups;
}

/* A warp combines the results of a group of chunks, as many as a chunk has elements; `groups`: a device whose chunks
 * these are. */
static void emit_groups(passes *p, int phase, device *groups) {
  const device *d = p->d;
  hr__emitter *e = d->e;
  *groups = *d;
  groups->chunks = hr_divide_up(d->chunks, HR_REDUCE_CHUNK);
  groups->parts = HR_ARENA_ARRAY(&e->arena, int64_t, (size_t)e->kernel->instr_count + 1);
  if (groups->parts == NULL) {
    e->text->failed = true;
    return;
  }
  hr__device_place_parts(groups);
  p->d->workspace = groups->workspace;
  int64_t units = d->rows * groups->chunks;
  hr__device_head(d, next_pass(p, hr_divide_up(units * WARP, ROW_THREADS), ROW_THREADS), ROW_THREADS);
  HR__EMIT(e, "const int64_t unit = (HR_BLOCK * %d + HR_THREAD) / HR_WARP;\nif (unit >= " HR__FREE ") { return; }\n",
           (int)ROW_THREADS, (long long)units);
  HR__EMIT(e, "const int64_t row = unit / " HR__FREE ", first = unit %% " HR__FREE " * %d;\n",
           (long long)groups->chunks, (long long)groups->chunks, (int)HR_REDUCE_CHUNK);
  HR__EMIT(e, "const int64_t count = " HR__FREE " - first < %d ? " HR__FREE " - first : %d;\n", (long long)d->chunks,
           (int)HR_REDUCE_CHUNK, (long long)d->chunks, (int)HR_REDUCE_CHUNK);
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase == phase && hr__device_is_reduction(instr)) {
      const char *type = hr__emit_type(instr->cls);
      HR__EMIT(e,
               "{\nconst %s made = hr_chunks_%s_%s((%s *)(call.workspace + " HR__FREE ") + row * " HR__FREE
               " + first, count);\n",
               type, hr_op_table(instr->op)->name, hr_class_name(instr->cls), type, (long long)d->parts[k],
               (long long)d->chunks);
      HR__EMIT(e, "if (HR_LANE == 0) { ((%s *)(call.workspace + " HR__FREE "))[unit] = made; }\n}\n", type,
               (long long)groups->parts[k]);
    }
  }
  HR__EMIT(e, "}\n");
}

/* Row instructions of a phase, after the results of the reductions of the phase before. */
static void emit_rows(passes *p, int phase) {
  device groups = *p->d;
  if (p->is_lanes && phase > 0 && hr__device_reduces(groups.e->kernel, phase - 1) && has_groups(&groups, phase - 1)) {
    emit_groups(p, phase - 1, &groups);
  }
  const device *d = &groups;
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  int width = p->is_lanes ? WARP : 1;
  int pass = next_pass(p, hr_divide_up(d->rows * width, ROW_THREADS), ROW_THREADS);
  hr__device_head(d, pass, p->emission->threads[pass]);
  HR__EMIT(e, "const int64_t row = (HR_BLOCK * %d + HR_THREAD) / %d;\nif (row >= " HR__FREE ") { return; }\n",
           (int)ROW_THREADS, width, (long long)d->rows);
  hr__device_coordinates(d, &e->kept, "row", "c");
  declare_kept(p, HR_LEVEL_ROW, phase);
  if (phase > 0 && hr__device_reduces(kernel, phase - 1)) {
    if (p->is_lanes) {
      hr__device_combine(d, phase - 1, false);
    } else {
      combine_in_order(p, phase - 1);
    }
  }
  finish_rows(p, phase);
}

/* True if the elements of a phase are reduced by tiles whose blocks have whole rows. */
static bool has_whole_rows(const passes *p, int phase) {
  return !p->is_lanes && p->d->chunks == 1 && phase >= 0 && phase < p->d->e->kernel->phase_count &&
         hr__device_reduces(p->d->e->kernel, phase);
}

/* True if row instructions of a phase run within the pass of its elements; those after such a pass belong to it, too.
 */
static bool has_rows_within(const passes *p, int phase) {
  return has_whole_rows(p, phase) && !has_whole_rows(p, phase - 1) && has_rows(p->d->e->kernel, phase);
}

/* ---- elements ---- */

/* Counts the reductions of a phase, and the bytes of shared memory for one element of each. */
static int count_reductions(const hr_kernel *kernel, int phase, int *out_bytes) {
  int count = 0;
  *out_bytes = 0;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->phase == phase && hr__device_is_reduction(instr)) {
      *out_bytes += (int)hr_class_size(instr->cls) + (instr->kind == HR_INSTR_ARGREDUCE ? 8 : 0);
      ++count;
    }
  }
  return count;
}

/* The places of a tile of `elements` x 32: values q5 and, of an index of the best, k5. */
static void declare_tile(const device *d, int phase, int elements) {
  hr__emitter *e = d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase == phase && hr__device_is_reduction(instr)) {
      HR__EMIT(e, "HR_SHARED HR_ALIGNED %s q%d[%d][%d];\n", hr__emit_type(instr->cls), instr->dst, elements,
               (int)TILE_ROWS);
      if (instr->kind == HR_INSTR_ARGREDUCE) {
        HR__EMIT(e, "HR_SHARED int64_t k%d[%d][%d];\n", instr->dst, elements, (int)TILE_ROWS);
      }
    }
  }
}

static void emit_warp_elements(passes *p, int phase) {
  const device *d = p->d;
  hr__emitter *e = d->e;
  int64_t units = d->rows * d->chunks, warps = ROW_THREADS / WARP;
  int pass = next_pass(p, hr_divide_up(units, warps), ROW_THREADS);
  hr__device_head(d, pass, p->emission->threads[pass]);
  HR__EMIT(e, "const int64_t unit = HR_BLOCK * %d + HR_THREAD / HR_WARP;\nif (unit >= " HR__FREE ") { return; }\n",
           (int)warps, (long long)units);
  HR__EMIT(e, "const int64_t row = unit / " HR__FREE ", chunk = unit %% " HR__FREE ";\n", (long long)d->chunks,
           (long long)d->chunks);
  emit_from_to(p);
  hr__device_coordinates(d, &e->kept, "row", "c");
  declare_kept(p, HR_LEVEL_ELEMENT, phase);
  hr__device_lanes(d, phase, "from", "to");
  hr__device_fold(d, phase, "unit");
  HR__EMIT(e, "}\n");
}

/* Adds the elements of a tile up to number `end` in order. `guard`: a condition, or "" if all exist, so that they can
 * be loaded in advance. `pair`: the accumulator, "" or "[t % 2]". */
static void take_in_order(const device *d, int k, const char *end, const char *guard, const char *pair) {
  hr__emitter *e = d->e;
  const hr_instr *instr = &e->kernel->instrs[k];
  const char *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
  int r = instr->dst;
  HR__EMIT(e, "HR_UNROLL_BY_16\nfor (int t = 0; t < %s; ++t) {\n%s{ ", end, guard);
  if (instr->kind == HR_INSTR_ARGREDUCE) {
    HR__EMIT(e, "hr_update_best_%s_%s(&l%d%s, &m%d%s, q%d[t][HR_LANE], k%d[t][HR_LANE]); }\n}\n", row, cls, r, pair, r,
             pair, r, r);
  } else {
    HR__EMIT(e, "l%d%s = hr_combine_%s_%s(l%d%s, q%d[t][HR_LANE]); }\n}\n", r, pair, row, cls, r, pair, r);
  }
}

/* A warp for each reduction adds a chunk's elements in the order of lanes: thread t has lanes t and t + 32. */
static void take_chunk(const device *d, int phase) {
  hr__emitter *e = d->e;
  int warp = 0;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !hr__device_is_reduction(instr)) {
      continue;
    }
    HR__EMIT(e, "if (HR_THREAD / HR_WARP == %d) {\nconst int end = %d;\nif (to - from == %d) {\n",
             warp++ % (CHUNK_THREADS / WARP), (int)HR_REDUCE_CHUNK / WARP, (int)HR_REDUCE_CHUNK);
    take_in_order(d, k, "end", "", "[t % 2]");
    HR__EMIT(e, "} else {\n");
    take_in_order(d, k, "end", "if (from + t * HR_WARP + HR_LANE < to) ", "[t % 2]");
    HR__EMIT(e, "}\n");
    hr__device_fold_one(d, k, "unit");
    HR__EMIT(e, "}\n");
  }
}

static void emit_chunk_elements(passes *p, int phase) {
  const device *d = p->d;
  hr__emitter *e = d->e;
  int pass = next_pass(p, d->rows * d->chunks, CHUNK_THREADS), warps = CHUNK_THREADS / WARP;
  hr__device_head(d, pass, p->emission->threads[pass]);
  HR__EMIT(e, "const int64_t unit = HR_BLOCK, row = unit / " HR__FREE ", chunk = unit %% " HR__FREE ";\n",
           (long long)d->chunks, (long long)d->chunks);
  emit_from_to(p);
  hr__device_coordinates(d, &e->kept, "row", "c");
  declare_kept(p, HR_LEVEL_ELEMENT, phase);
  declare_tile(d, phase, HR_REDUCE_CHUNK / WARP);
  HR__EMIT(e, "HR_UNROLL_BY_4\nfor (int u = 0; u < %d; ++u) {\nconst int t = HR_THREAD / HR_WARP + u * %d;\n",
           (int)HR_REDUCE_CHUNK / CHUNK_THREADS, warps);
  HR__EMIT(e, "const int64_t i = from + t * HR_WARP + HR_LANE;\nif (i < to) {\n");
  hr__device_element(d, phase, NULL);
  HR__EMIT(e, "}\n}\nHR_BARRIER;\n");
  hr__device_accumulators(d, phase, true);
  take_chunk(d, phase);
  HR__EMIT(e, "}\n");
}

/* Phases without reductions: one thread for each element; neighbours in memory are neighbours in the grid. */
static void emit_flat_elements(passes *p, int phase) {
  const device *d = p->d;
  hr__emitter *e = d->e;
  int64_t units = d->rows * d->elements;
  int pass = next_pass(p, hr_divide_up(units, HR__DEVICE_THREADS), HR__DEVICE_THREADS);
  const char *type = units < INT32_MAX ? "int" : "int64_t";
  hr__device_head(d, pass, p->emission->threads[pass]);
  HR__EMIT(e, "const int64_t unit = HR_BLOCK * %d + HR_THREAD;\nif (unit >= " HR__FREE ") { return; }\n",
           (int)HR__DEVICE_THREADS, (long long)units);
  HR__EMIT(e, "const %s row = (%s)unit %s " HR__FREE ";\nconst int64_t i = (%s)unit %s " HR__FREE ";\n", type, type,
           p->is_lanes ? "/" : "%", (long long)(p->is_lanes ? d->elements : d->rows), type, p->is_lanes ? "%" : "/",
           (long long)(p->is_lanes ? d->elements : d->rows));
  hr__device_coordinates(d, &e->kept, "row", "c");
  declare_kept(p, HR_LEVEL_ELEMENT, phase);
  device single = *d;
  single.is_quads = false;
  hr__device_element(&single, phase, "");
  HR__EMIT(e, "}\n");
}

/* A warp for each reduction adds the tile's elements in order. */
static void take_tile(const device *d, int phase, int elements) {
  hr__emitter *e = d->e;
  int warp = 0;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !hr__device_is_reduction(instr)) {
      continue;
    }
    HR__EMIT(e, "if (HR_THREAD / HR_WARP == %d) {\nconst int end = %d, rest = (int)(to - b);\nif (end <= rest) {\n",
             warp++ % (TILE_THREADS / WARP), elements);
    take_in_order(d, k, "end", "", "");
    HR__EMIT(e, "} else {\n");
    take_in_order(d, k, "rest", "", "");
    HR__EMIT(e, "}\n}\n");
  }
}

static void leave_parts(const device *d, int phase) {
  hr__emitter *e = d->e;
  int warp = 0;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !hr__device_is_reduction(instr)) {
      continue;
    }
    HR__EMIT(e,
             "if (HR_THREAD / HR_WARP == %d && is_row) {\n((%s *)(call.workspace + " HR__FREE "))[chunk * " HR__FREE
             " + row] = l%d;\n",
             warp++ % (TILE_THREADS / WARP), hr__emit_type(instr->cls), (long long)d->parts[k], (long long)d->rows,
             instr->dst);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e, "((int64_t *)(call.workspace + " HR__FREE "))[chunk * " HR__FREE " + row] = m%d;\n",
               (long long)hr__device_part_indices(d, k), (long long)d->rows, instr->dst);
    }
    HR__EMIT(e, "}\n");
  }
}

/* As many elements as fit: a step of a tile costs the time of a load. */
static int tile_elements(const device *d, int phase) {
  int bytes, elements = TILE_ELEMENTS;
  (void)count_reductions(d->e->kernel, phase, &bytes);
  while (elements < TILE_ELEMENTS_MOST && bytes * 2 * elements * TILE_ROWS <= TILE_BYTES) {
    elements *= 2;
  }
  return elements;
}

/* The head of a pass of tiles: chunk, row (of the last tile: the last row, twice) and is_row. */
static void open_tiles(passes *p, int64_t chunks, bool has_fours) {
  const device *d = p->d;
  int64_t tiles = hr_divide_up(d->rows, TILE_ROWS);
  hr__device_head(d, next_pass(p, tiles * chunks, TILE_THREADS), TILE_THREADS);
  HR__EMIT(d->e, "const int64_t chunk = HR_BLOCK / " HR__FREE ", wanted = HR_BLOCK %% " HR__FREE " * %d + HR_LANE;\n",
           (long long)tiles, (long long)tiles, (int)TILE_ROWS);
  HR__EMIT(d->e,
           "const int is_row = wanted < " HR__FREE ";\nconst int64_t row = is_row ? wanted : " HR__FREE
           ";\n(void)chunk;\n",
           (long long)d->rows, (long long)(d->rows - 1));
  if (d->is_quads && has_fours) {
    HR__EMIT(d->e, "const int64_t want = HR_BLOCK %% " HR__FREE " * %d + HR_THREAD %% (HR_WARP / 4) * 4;\n",
             (long long)tiles, (int)TILE_ROWS);
    HR__EMIT(d->e,
             "const int is_four = want < " HR__FREE ";\nconst int64_t four = is_four ? want : " HR__FREE
             ";\n(void)four;\n",
             (long long)d->rows, (long long)(d->rows - 4));
  }
  hr__device_coordinates(d, &d->e->kept, d->is_quads && has_fours ? "four" : "row", "c");
}

/* Element n + u of a thread. */
static void open_element(const device *d, bool guard) {
  HR__EMIT(d->e, "const int t = HR_THREAD / HR_WARP + (n + u) * %d;\nconst int64_t i = b + t;\n%s{\n",
           (int)(TILE_THREADS / WARP), guard ? "if (i < to && is_row) " : "");
}

/* Reads the kept registers of four neighbouring rows: kept5[h], and from it register 5 of row h. */
static void declare_kept_four(const passes *p, int phase, bool is_declared) {
  hr__emitter *e = p->d->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    int r = e->kernel->instrs[k].dst;
    if (!is_taken(p, HR_LEVEL_ELEMENT, phase, k)) {
      continue;
    }
    const char *type = hr__emit_type(e->kernel->registers[r].cls);
    if (is_declared) {
      HR__EMIT(e, "const %s r%d = kept%d[h];\n", type, r, r);
    } else {
      HR__EMIT(e, "%s kept%d[4];\nHR_UNROLL\nfor (int h = 0; h < 4; ++h) {\nconst int64_t row = four + h;\n", type, r);
      HR__EMIT(e, "kept%d[h] = ", r);
      emit_kept(p, r);
      HR__EMIT(e, ";\n}\n");
    }
  }
}

/* Four neighbouring rows of an element: n + u is the number of a thread's. */
static void open_four(const device *d, bool guard) {
  HR__EMIT(d->e, "const int t = HR_THREAD / (HR_WARP / 4) + (n + u) * %d;\nconst int64_t i = b + t;\n%s{\n",
           (int)(4 * TILE_THREADS / WARP), guard ? "if (i < to && is_four) " : "");
}

/* Like make_tile, but a thread has four neighbouring rows of each of its elements, and eight threads have a whole
 * tile. */
static void make_tile_of_fours(const passes *p, int phase, int elements, bool guard) {
  const device *d = p->d;
  hr__emitter *e = d->e;
  const int inner = e->kept.rank - 1, own = elements * WARP / 4 / TILE_THREADS;
  const int step = hr__device_step_four(d, phase) < own ? hr__device_step_four(d, phase) : own;
  const char *type = hr__device_index_type(d);
  HR__EMIT(e, "HR_UNROLL\nfor (int n = 0; n < %d; n += %d) {\n", own, step);
  hr__device_declare_four(d, phase, step);
  HR__EMIT(e, "HR_UNROLL\nfor (int u = 0; u < %d; ++u) {\n", step);
  open_four(d, guard);
  hr__device_load_four(d, phase);
  HR__EMIT(e, "}\n}\nHR_UNROLL\nfor (int u = 0; u < %d; ++u) {\n", step);
  open_four(d, guard);
  hr__device_open_four(d, phase, true);
  HR__EMIT(e, "const %s first = c%d;\nHR_UNROLL\nfor (int h = 0; h < 4; ++h) {\n", type, inner);
  HR__EMIT(e, "const %s c%d = first + h;\nconst int64_t row = four + h;\n(void)c%d, (void)row;\n", type, inner, inner);
  declare_kept_four(p, phase, true);
  hr__device_make_four(d, phase);
  HR__EMIT(e, "}\n");
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase == phase && hr__device_is_reduction(instr)) {
      HR__EMIT(e, "hr_copy%d(&q%d[t][HR_THREAD %% (HR_WARP / 4) * 4], x%d);\n", 4 * (int)hr_class_size(instr->cls),
               instr->dst, instr->dst);
    }
  }
  hr__device_store_four(d, phase);
  HR__EMIT(e, "}\n}\n}\n");
}

/* The thread's elements of a tile, whose loads come first. `guard`: true if they need a comparison. */
static void make_tile(const passes *p, int phase, int elements, bool guard) {
  const device *d = p->d;
  device inner = *d;
  hr__emitter *e = d->e;
  const int warps = TILE_THREADS / WARP, own = elements / warps, step = hr__device_ahead(d, phase, own);
  if (d->is_quads) {
    make_tile_of_fours(p, phase, elements, guard);
    return;
  }
  HR__EMIT(e, "%s\nfor (int n = 0; n < %d; n += %d) {\n", own <= 2 * step ? "HR_UNROLL" : "HR_UNROLL_BY_4", own, step);
  hr__device_declare_ahead(d, phase, step);
  HR__EMIT(e, "HR_UNROLL\nfor (int u = 0; u < %d; ++u) {\n", step);
  open_element(d, guard);
  hr__device_load_ahead(d, phase);
  HR__EMIT(e, "}\n}\nHR_UNROLL\nfor (int u = 0; u < %d; ++u) {\n", step);
  open_element(d, guard);
  inner.is_ahead = true;
  hr__device_element(&inner, phase, NULL);
  HR__EMIT(e, "}\n}\n}\n");
}

/* The adding warps leave their results to the first one, which continues alone. */
static void share_rows(const device *d, int phase) {
  hr__emitter *e = d->e;
  int warp = 0;
  for (int is_shared = 0; is_shared < 2; ++is_shared) {
    for (int k = 0; k < e->kernel->instr_count; ++k) {
      const hr_instr *instr = &e->kernel->instrs[k];
      bool is_arg = instr->kind == HR_INSTR_ARGREDUCE;
      int r = instr->dst;
      if (instr->phase != phase || !hr__device_is_reduction(instr)) {
        continue;
      }
      if (!is_shared) {
        HR__EMIT(e, "if (HR_THREAD / HR_WARP == %d) { %c%d[0][HR_LANE] = %c%d; }\n", warp++ % (TILE_THREADS / WARP),
                 is_arg ? 'k' : 'q', r,
                 is_arg                      ? 'm'
                 : d->chunks > HR_REDUCE_RUN ? 'g'
                                             : 'l',
                 r);
      } else {
        HR__EMIT(e, "const %s r%d = %c%d[0][HR_LANE];\n", is_arg ? "int64_t" : hr__emit_type(instr->cls), r,
                 is_arg ? 'k' : 'q', r);
      }
    }
    HR__EMIT(e, is_shared ? "" : "HR_BARRIER;\nif (HR_THREAD >= HR_WARP || !is_row) { return; }\n");
  }
}

/* Row instructions of a phase by the first warp of a tile's block, a thread for each row. */
static void emit_rows_of_tile(const passes *p, int phase) {
  HR__EMIT(p->d->e, "if (HR_THREAD < HR_WARP && is_row) {\n");
  hr__device_coordinates(p->d, &p->d->e->kept, "row", "c");
  declare_kept(p, HR_LEVEL_ROW, phase);
  finish_rows(p, phase);
}

static void emit_tile_elements(passes *p, int phase) {
  const device *d = p->d;
  hr__emitter *e = d->e;
  const int elements = tile_elements(d, phase);
  open_tiles(p, d->chunks, true);
  emit_from_to(p);
  if (has_rows_within(p, phase)) {
    emit_rows_of_tile(p, phase);
    HR__EMIT(e, "HR_BARRIER;\n");
  }
  if (d->is_quads) {
    declare_kept_four(p, phase, false);
  } else {
    declare_kept(p, HR_LEVEL_ELEMENT, phase);
  }
  declare_tile(d, phase, elements);
  hr__device_accumulators(d, phase, false);
  HR__EMIT(e, "for (int64_t b = from; b < to; b += %d) {\n", elements);
  if (d->elements % elements == 0 && d->rows % TILE_ROWS == 0) {
    make_tile(p, phase, elements, false);
  } else {
    HR__EMIT(e, "if (b + %d <= to && HR_BLOCK %% " HR__FREE " < " HR__FREE ") {\n", elements,
             (long long)hr_divide_up(d->rows, TILE_ROWS), (long long)(d->rows / TILE_ROWS));
    make_tile(p, phase, elements, false);
    HR__EMIT(e, "} else {\n");
    make_tile(p, phase, elements, true);
    HR__EMIT(e, "}\n");
  }
  HR__EMIT(e, "HR_BARRIER;\n");
  take_tile(d, phase, elements);
  HR__EMIT(e, "HR_BARRIER;\n}\n");
  if (d->chunks == 1) {
    share_rows(d, phase);
    emit_rows_of_tile(p, phase + 1);
  } else {
    leave_parts(d, phase);
  }
  HR__EMIT(e, "}\n");
}

/* ---- rows of many chunks ---- */

/* Loads the chunks' results of `phase` as a tile. */
static void load_parts(const device *d, int phase, int elements) {
  hr__emitter *e = d->e;
  const int warps = TILE_THREADS / WARP;
  HR__EMIT(e, "HR_UNROLL\nfor (int u = 0; u < %d; ++u) {\nconst int t = HR_THREAD / HR_WARP + u * %d;\n",
           elements / warps, warps);
  HR__EMIT(e, "if (b + t < to) {\nconst int64_t at = (b + t) * " HR__FREE " + row;\n", (long long)d->rows);
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase != phase || !hr__device_is_reduction(instr)) {
      continue;
    }
    HR__EMIT(e, "q%d[t][HR_LANE] = ((%s *)(call.workspace + " HR__FREE "))[at];\n", instr->dst,
             hr__emit_type(instr->cls), (long long)d->parts[k]);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e, "k%d[t][HR_LANE] = ((int64_t *)(call.workspace + " HR__FREE "))[at];\n", instr->dst,
               (long long)hr__device_part_indices(d, k));
    }
  }
  HR__EMIT(e, "}\n}\n");
}

/* Sums of runs of chunks are one more row: l5 is added to g5 at the end of a run. */
static void take_runs(const device *d, int phase, int elements, bool is_declared) {
  hr__emitter *e = d->e;
  if (d->chunks <= HR_REDUCE_RUN) {
    return;
  }
  if (is_declared) {
    HR__EMIT(e, "if ((b + %d) %% %d == 0 || b + %d >= to) {\n", elements, (int)HR_REDUCE_RUN, elements);
  }
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    const char *row = hr_op_table(instr->op)->name, *cls = hr_class_name(instr->cls);
    int r = instr->dst;
    if (instr->phase != phase || instr->kind != HR_INSTR_REDUCE) {
      continue;
    }
    if (is_declared) {
      HR__EMIT(e, "g%d = hr_combine_%s_%s(g%d, l%d);\nl%d = hr_identity_%s_%s();\n", r, row, cls, r, r, r, row, cls);
    } else {
      HR__EMIT(e, "%s g%d = hr_identity_%s_%s();\n", hr__emit_type(instr->cls), r, row, cls);
    }
  }
  HR__EMIT(e, is_declared ? "}\n" : "");
}

static void emit_tile_rows(passes *p, int phase) {
  const device *d = p->d;
  hr__emitter *e = d->e;
  const int elements = tile_elements(d, phase - 1);
  open_tiles(p, 1, false);
  declare_kept(p, HR_LEVEL_ROW, phase);
  declare_tile(d, phase - 1, elements);
  hr__device_accumulators(d, phase - 1, false);
  take_runs(d, phase - 1, elements, false);
  HR__EMIT(e, "const int64_t to = " HR__FREE ";\nfor (int64_t b = 0; b < to; b += %d) {\n", (long long)d->chunks,
           elements);
  load_parts(d, phase - 1, elements);
  HR__EMIT(e, "HR_BARRIER;\n");
  take_tile(d, phase - 1, elements);
  take_runs(d, phase - 1, elements, true);
  HR__EMIT(e, "HR_BARRIER;\n}\n");
  share_rows(d, phase - 1);
  finish_rows(p, phase);
}

/* ---- a kernel ---- */

/* True if the values of a chunk fit into shared memory. */
static bool fits_block(const device *d, int phase) {
  int bytes, count = count_reductions(d->e->kernel, phase, &bytes);
  return count <= CHUNK_THREADS / WARP && bytes * (int)HR_REDUCE_CHUNK <= TILE_BYTES;
}

bool hr__device_has_many_chunks(const device *d) {
  enum { MANY_CHUNKS = 4096 };
  return d->rows * d->chunks >= MANY_CHUNKS;
}

bool hr__device_has_passes(const device *d) {
  enum { SEQUENTIAL_MIN = 64 };
  const hr_kernel *kernel = d->e->kernel;
  bool is_lanes = kernel->order == HR_ORDER_LANES, has = kernel->reduce_mask != 0 && d->rows > 0 && d->elements > 0;
  has = has && (d->chunks > HR_REDUCE_CHUNK ? 3 : 2) * kernel->phase_count + 1 <= HR_HOST_KERNEL_PASS_MAX;
  has = has && (is_lanes ? d->chunks > 1 : d->elements >= SEQUENTIAL_MIN && d->chunks <= HR_REDUCE_RUN * HR_REDUCE_RUN);
  for (int phase = 0; has && phase < kernel->phase_count; ++phase) {
    int bytes;
    has = is_lanes || (count_reductions(kernel, phase, &bytes) <= TILE_THREADS / WARP &&
                       bytes * TILE_ELEMENTS * TILE_ROWS <= TILE_BYTES);
  }
  return has;
}

void hr__device_passes(device *d, hr_device_emission *emission) {
  passes p = {.d = d, .is_lanes = d->e->kernel->order == HR_ORDER_LANES, .emission = emission};
  hr__device_place_parts(d);
  if (!place_kept(&p)) {
    d->e->text->failed = true;
    return;
  }
  for (int phase = 0; phase <= d->e->kernel->phase_count; ++phase) {
    bool has_parts = phase > 0 && hr__device_reduces(d->e->kernel, phase - 1);
    if (has_parts && !p.is_lanes && d->chunks > FEW_CHUNKS) {
      emit_tile_rows(&p, phase);
    } else if (has_rows(d->e->kernel, phase) && !has_whole_rows(&p, phase) && !has_whole_rows(&p, phase - 1)) {
      emit_rows(&p, phase);
    }
    if (phase < d->e->kernel->phase_count && hr__device_has_elements(d->e->kernel, phase)) {
      if (!hr__device_reduces(d->e->kernel, phase)) {
        emit_flat_elements(&p, phase);
      } else if (p.is_lanes && !hr__device_has_many_chunks(d) && fits_block(d, phase)) {
        emit_chunk_elements(&p, phase);
      } else if (p.is_lanes) {
        emit_warp_elements(&p, phase);
      } else {
        emit_tile_elements(&p, phase);
      }
    }
  }
}
