/* Reductions along rows, in the order of lanes: a unit is a row.
 *
 *   for (row ...) {
 *     phase 0   float l1[64] = identity;  for (blocks of the row) { stages; l1[j] = combine(l1[j], ...); }
 *               const float r1 = fold(l1);
 *     phase 1   const float r2 = ... r1 ...;  for (blocks) { ... }
 *   }
 *
 * Chunks of 4,096 leave their results side by side, and those are combined as a row again. For few long rows with
 * nothing but reductions over them, chunks are units of their own: pass 0 leaves their results in the workspace, and
 * pass 1 continues from there. Transposed operands are first copied into scratch, for as many chunks as fill whole
 * cache lines:
 *
 *   for (group of chunks ...) { q0 = scratch; hr_turn_4(q0, ...); for (chunks of the group) { ... p0 = q0 + ... } }
 *
 * Whole adjacent rows are transposed 16 at a time in the same way. Short rows go through their phases 16 at a time:
 * values computed once for each row become vectors over rows, and no row waits for its own sum:
 *
 *   for (16 rows) {
 *     v1[16], v2[16];
 *     for (row ...) { phase 0; v1[row] = fold(l1); }
 *     for (g < 16) { v2[g] = log(v1[g]); }
 *     for (row ...) { r2 = v2[row]; phase 1 }
 *   }
 */
#include <stdio.h>

#include "base/integer.h"
#include "compiler/emit_internal.h"

enum {
  SPLIT_ELEMENTS = 65536,
  SPLIT_ROWS = 64,
  TURNED_ROWS = 16,
  TURNED_ROWS_MIN = 4,
  GROUP_MAX = 16,
  TURNED_BYTES = 524288, /* of whole rows */
  ABREAST_MAX = 256      /* elements of rows that are processed together, as many as are transposed together */
};

typedef struct rows {
  hr__emitter *e;
  int64_t count, elements, chunks;
  bool is_split;
  bool is_abreast; /* groups of short rows go through their phases together */
  int64_t *parts;  /* by instruction: the place of results of chunks: in scratch, or if split in the workspace */
  int64_t *part_indices;
  int64_t workspace;
  int64_t group;         /* if anything is transposed: chunks of a unit, or its rows if they are whole; else 0 */
  int64_t *turns;        /* by access: the place of its transposed copy in scratch; -1: none */
  hr__emit_axes *planes; /* by access: its layout in memory */
} rows;

static bool reduces(const hr_instr *instr, int phase) {
  return instr->phase == phase && (instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE);
}

static bool has_elements(const hr_kernel *kernel, int phase) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->phase == phase && instr->level == HR_LEVEL_ELEMENT) {
      return true;
    }
  }
  return false;
}

static bool shall_split(const rows *r) {
  return r->elements > HR_REDUCE_CHUNK && r->count < SPLIT_ROWS && r->elements * r->count >= SPLIT_ELEMENTS &&
         hr__emit_can_split(r->e->kernel);
}

static bool place_parts(rows *r) {
  const hr_kernel *kernel = r->e->kernel;
  r->parts = HR_ARENA_ARRAY(&r->e->arena, int64_t, (size_t)kernel->instr_count + 1);
  r->part_indices = HR_ARENA_ARRAY(&r->e->arena, int64_t, (size_t)kernel->instr_count + 1);
  if (r->parts == NULL || r->part_indices == NULL) {
    return false;
  }
  for (int k = 0; k < kernel->instr_count && r->chunks > 1; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (!reduces(instr, instr->phase)) {
      continue;
    }
    int64_t size = (int64_t)hr_class_size(instr->cls), count = r->is_split ? r->count * r->chunks : r->chunks;
    bool is_arg = instr->kind == HR_INSTR_ARGREDUCE;
    if (r->is_split) {
      r->parts[k] = r->workspace;
      r->workspace += hr_round_up(count * size, 64);
      r->part_indices[k] = r->workspace;
      r->workspace += is_arg ? hr_round_up(count * 8, 64) : 0;
    } else {
      r->parts[k] = hr__emit_reserve(r->e, count * size);
      r->part_indices[k] = is_arg ? hr__emit_reserve(r->e, count * 8) : 0;
    }
  }
  return true;
}

/* ---- transposed reads ---- */

/* True if an access is contiguous along the rows of a plane, and not along its columns, which are the innermost dim. */
static bool lies_transposed(const hr__emitter *e, int access) {
  const hr__emit_axes *axes = &e->axes[access];
  int last = axes->rank - 1;
  return e->kernel->accesses[access].arg >= 0 && e->kernel->accesses[access].term_count == 0 && axes->coords == 1 &&
         (axes->rank == 2 || axes->rank == 3) && axes->strides[0][last - 1] == 1 &&
         axes->dims[last - 1] >= TURNED_ROWS && axes->dims[last] >= TURNED_ROWS &&
         (axes->strides[0][last] >= TURNED_ROWS || axes->strides[0][last] <= -TURNED_ROWS);
}

/* The first transposed access that reads the same elements: phases share transposed copies. */
static int first_alike(const rows *r, int access) {
  const hr_kernel *kernel = r->e->kernel;
  for (int i = 0; i < access; ++i) {
    if (r->turns[i] >= 0 && hr_kernel_same_elements(kernel, &kernel->accesses[access], &kernel->accesses[i])) {
      return i;
    }
  }
  return access;
}

/* Scratch for a transposed copy: `bytes`, or the place of an equal access. */
static int64_t turn_into(const rows *r, int access, int64_t bytes) {
  int first = first_alike(r, access);
  return first < access ? r->turns[first] : hr__emit_reserve(r->e, bytes);
}

/* Transposed loads become dense ones of scratch. */
static bool find_turns(rows *r) {
  hr__emitter *e = r->e;
  r->turns = HR_ARENA_ARRAY(&e->arena, int64_t, (size_t)e->kernel->access_count + 1);
  r->planes = HR_ARENA_ARRAY(&e->arena, hr__emit_axes, (size_t)e->kernel->access_count + 1);
  if (r->turns == NULL || r->planes == NULL) {
    return false;
  }
  int64_t columns = 0;
  for (int a = 0; a < e->kernel->access_count; ++a) {
    r->turns[a] = -1;
    if (r->is_split && lies_transposed(e, a) && (columns == 0 || e->axes[a].dims[e->axes[a].rank - 1] == columns)) {
      columns = e->axes[a].dims[e->axes[a].rank - 1];
      r->turns[a] = 0;
    }
  }
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    columns = instr->kind == HR_INSTR_STORE && instr->access >= 0 && r->turns[instr->access] == 0 ? 0 : columns;
  }
  int64_t group = hr_divide_up(TURNED_ROWS * columns, HR_REDUCE_CHUNK);
  group = group > GROUP_MAX ? GROUP_MAX : group;
  r->group = columns > 0 && group * HR_REDUCE_CHUNK / columns >= TURNED_ROWS_MIN ? group : 0;
  for (int a = 0; a < e->kernel->access_count; ++a) {
    bool is_turned = r->turns[a] == 0 && r->group > 0;
    int64_t bytes = group * HR_REDUCE_CHUNK * (int64_t)hr_dtype_size(e->kernel->accesses[a].dtype);
    r->turns[a] = is_turned ? turn_into(r, a, bytes) : -1;
    r->planes[a] = e->axes[a];
    if (is_turned) {
      e->axes[a] =
          (hr__emit_axes){.lie = HR__LIE_DIRECT, .rank = 1, .coords = 1, .dims = {r->elements}, .strides = {{1}}};
    }
  }
  return true;
}

/* True if the rows of an access are adjacent along the innermost kept dim, and strided themselves. */
static bool lies_abreast(const hr__emitter *e, int access) {
  const hr_access *a = &e->kernel->accesses[access];
  const hr__emit_axes *axes = &e->axes[access];
  int64_t step = axes->strides[0][0];
  return a->arg >= 0 && a->term_count == 0 && axes->coords == 1 && axes->rank == 1 &&
         (step >= TURNED_ROWS || step <= -TURNED_ROWS) && a->strides[e->kept.source[e->kept.rank - 1]] == 1;
}

/* The distance of transposed rows: their length plus a line. 16 of them are written side by side, and lines at
 * distances of powers of two map to one set of the cache. */
static int64_t turned_step(const rows *r, hr_dtype dtype) {
  return r->elements + 64 / (int64_t)hr_dtype_size(dtype);
}

/* The same for whole rows, which fit the second cache. */
static bool find_row_turns(rows *r) {
  hr__emitter *e = r->e;
  int64_t bytes = 0;
  if (!find_turns(r)) {
    return false;
  }
  for (int a = 0; a < e->kernel->access_count && e->kept.rank > 0; ++a) {
    if (lies_abreast(e, a)) {
      r->turns[a] = 0;
      bytes +=
          first_alike(r, a) < a ? 0 : TURNED_ROWS * r->elements * (int64_t)hr_dtype_size(e->kernel->accesses[a].dtype);
    }
  }
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    bytes = instr->kind == HR_INSTR_STORE && r->turns[instr->access] == 0 ? 0 : bytes;
  }
  bool shall_turn = bytes > 0 && bytes <= TURNED_BYTES && e->kept.dims[e->kept.rank - 1] >= TURNED_ROWS;
  r->group = shall_turn ? TURNED_ROWS : 0;
  for (int a = 0; a < e->kernel->access_count; ++a) {
    int64_t size = (int64_t)hr_dtype_size(e->kernel->accesses[a].dtype);
    bool is_turned = r->turns[a] == 0 && shall_turn;
    r->turns[a] = is_turned ? turn_into(r, a, TURNED_ROWS * turned_step(r, e->kernel->accesses[a].dtype) * size) : -1;
    if (is_turned) {
      e->axes[a].lie = HR__LIE_DIRECT;
      e->axes[a].strides[0][0] = 1;
    }
  }
  return true;
}

static void emit_turns(const rows *r) {
  hr__emitter *e = r->e;
  for (int a = 0; a < e->kernel->access_count; ++a) {
    if (r->turns[a] < 0) {
      continue;
    }
    const hr_access *access = &e->kernel->accesses[a];
    const hr__emit_axes *axes = &r->planes[a];
    int last = axes->rank - 1;
    const char *type = hr__emit_dtype(access->dtype);
    HR__EMIT(e, "HR__MEMORY_%s *const q%d = (HR__MEMORY_%s *)(scratch + %lld);\n", type, a, type,
             (long long)r->turns[a]);
    if (first_alike(r, a) < a) {
      continue;
    }
    HR__EMIT(e, "{\n");
    hr__emit_pointer(e, a, &e->kept, 0, e->kept.rank, "c", NULL);
    if (r->is_split) {
      HR__EMIT(e, "hr_turn_%d(q%d, p%d, group, stop - group, %lld, %lld, %lld, %lld, %lld);\n}\n",
               (int)hr_dtype_size(access->dtype), a, a, (long long)axes->dims[last], (long long)axes->dims[last],
               (long long)axes->dims[last - 1], (long long)(last == 2 ? axes->strides[0][0] : 0),
               (long long)axes->strides[0][last]);
    } else {
      HR__EMIT(e, "hr_turn_%d(q%d, p%d, 0, (stop - first) * %lld, %lld, %lld, stop - first, 0, %lld);\n}\n",
               (int)hr_dtype_size(access->dtype), a, a, (long long)r->elements, (long long)r->elements,
               (long long)turned_step(r, access->dtype), (long long)axes->strides[0][0]);
    }
  }
}

/* The start of a block of a transposed access. 16-bit floats are copied by loops that begin with the row. */
static void point_to_turned(const rows *r, const hr_instr *instr) {
  const char *type = hr__emit_dtype(r->e->kernel->accesses[instr->access].dtype);
  HR__EMIT(r->e, "HR__MEMORY_%s *const p%d = q%d", type, instr->access, instr->access);
  if (r->is_split) {
    HR__EMIT(r->e, " - group");
  } else {
    hr_dtype dtype = r->e->kernel->accesses[instr->access].dtype;
    HR__EMIT(r->e, " + (row - first) * %lld", (long long)turned_step(r, dtype));
  }
  HR__EMIT(r->e, hr__emit_is_copied(r->e, instr) ? ";\n" : " + b;\n");
}

/* ---- lanes ---- */

static void declare_lanes(const rows *r, int phase) {
  hr__emitter *e = r->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (reduces(instr, phase)) {
      HR__EMIT(e, "%s l%d[%d];\n", hr__emit_type(instr->cls), instr->dst, (int)HR_REDUCE_LANES);
      if (instr->kind == HR_INSTR_ARGREDUCE) {
        HR__EMIT(e, "int64_t m%d[%d];\n", instr->dst, (int)HR_REDUCE_LANES);
      }
    }
  }
}

static void clear_lanes(const rows *r, int phase) {
  hr__emitter *e = r->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (!reduces(instr, phase)) {
      continue;
    }
    HR__EMIT(e, "for (int j = 0; j < %d; ++j) { ", (int)HR_REDUCE_LANES);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      HR__EMIT(e, "l%d[j] = 0; m%d[j] = INT64_MAX; }\n", instr->dst, instr->dst);
    } else {
      HR__EMIT(e, "l%d[j] = hr_identity_%s_%s(); }\n", instr->dst, hr_op_table(instr->op)->name,
               hr_class_name(instr->cls));
    }
  }
}

/* Of candidates key[i], index[i], i < count, the best goes to the first place. */
static void emit_best(hr__emitter *e, const hr_instr *instr, const char *key, const char *index, long long count) {
  HR__EMIT(e,
           "for (int64_t j = 1; j < %lld; ++j) {\n"
           "if (%s[j] != INT64_MAX && (%s[0] == INT64_MAX || hr_is_better_%s_%s(%s[j], %s[0], %s[j], %s[0]))) {\n"
           "%s[0] = %s[j]; %s[0] = %s[j];\n}\n}\n",
           count, index, index, hr_op_table(instr->op)->name, hr_class_name(instr->cls), key, key, index, index, key,
           key, index, index);
}

/* Folds the lanes of a chunk into the row's register, or into the place of chunk `at`. */
static void fold_lanes(const rows *r, int phase, const char *at) {
  hr__emitter *e = r->e;
  const char *memory = r->is_split ? "workspace" : "scratch";
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (!reduces(instr, phase)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      char key[32], index[32];
      snprintf(key, sizeof key, "l%d", instr->dst);
      snprintf(index, sizeof index, "m%d", instr->dst);
      HR__EMIT(e, "hr_choose_%s_%s(%s, %s);\n", hr_op_table(instr->op)->name, hr_class_name(instr->cls), key, index);
      if (at == NULL) {
        HR__EMIT(e, "const int64_t r%d = m%d[0];\n", instr->dst, instr->dst);
      } else {
        HR__EMIT(e, "((%s *)(%s + %lld))[%s] = l%d[0];\n((int64_t *)(%s + %lld))[%s] = m%d[0];\n", type, memory,
                 (long long)r->parts[k], at, instr->dst, memory, (long long)r->part_indices[k], at, instr->dst);
      }
      continue;
    }
    if (at == NULL) {
      HR__EMIT(e, "const %s r%d = ", type, instr->dst);
    } else {
      HR__EMIT(e, "((%s *)(%s + %lld))[%s] = ", type, memory, (long long)r->parts[k], at);
    }
    HR__EMIT(e, "hr_fold_%s_%s(l%d);\n", hr_op_table(instr->op)->name, hr_class_name(instr->cls), instr->dst);
  }
}

/* Combines the results of a row's chunks into the row's; `first`: the place of the first one. */
static void combine_chunks(const rows *r, int phase, const char *first) {
  hr__emitter *e = r->e;
  const char *memory = r->is_split ? "workspace" : "scratch";
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (!reduces(instr, phase)) {
      continue;
    }
    const char *type = hr__emit_type(instr->cls);
    if (instr->kind == HR_INSTR_ARGREDUCE) {
      char key[32], index[32];
      snprintf(key, sizeof key, "x%d", instr->dst);
      snprintf(index, sizeof index, "y%d", instr->dst);
      HR__EMIT(e, "%s *const %s = (%s *)(%s + %lld) + %s;\nint64_t *const %s = (int64_t *)(%s + %lld) + %s;\n", type,
               key, type, memory, (long long)r->parts[k], first, index, memory, (long long)r->part_indices[k], first);
      emit_best(e, instr, key, index, (long long)r->chunks);
      HR__EMIT(e, "const int64_t r%d = %s[0];\n", instr->dst, index);
    } else {
      HR__EMIT(e, "const %s r%d = hr_chunks_%s_%s((%s *)(%s + %lld) + %s, %lld);\n", type, instr->dst,
               hr_op_table(instr->op)->name, hr_class_name(instr->cls), type, memory, (long long)r->parts[k], first,
               (long long)r->chunks);
    }
  }
}

/* ---- rows ---- */

static void emit_places(const rows *r, const char *row) {
  hr__emitter *e = r->e;
  HR__EMIT(e, "int64_t rest = %s;\n", row);
  for (int d = e->kept.rank - 1; d >= 0; --d) {
    if (d == 0) {
      HR__EMIT(e, "const int64_t c0 = rest;\n");
    } else {
      HR__EMIT(e, "const int64_t c%d = rest %% %lld;\nrest /= %lld;\n", d, (long long)e->kept.dims[d],
               (long long)e->kept.dims[d]);
    }
  }
  for (int a = 0; a < e->kernel->access_count; ++a) { /* those that don't move with the block */
    if (e->axes[a].lie == HR__LIE_UNIFORM || e->kernel->accesses[a].term_count > 0) {
      hr__emit_pointer(e, a, &e->kept, 0, e->kept.rank, "c", NULL);
    }
  }
}

/* Stages over the block that begins at `b` and has `n` elements. */
static void emit_block(const rows *r, int phase) {
  hr__emitter *e = r->e;
  const hr_kernel *kernel = e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->phase == phase && instr->level == HR_LEVEL_ELEMENT && instr->access >= 0 &&
        e->axes[instr->access].lie != HR__LIE_UNIFORM) {
      bool is_copied = hr__emit_is_copied(e, instr);
      bool is_known = false;
      for (int j = 0; j < k; ++j) {
        is_known |= kernel->instrs[j].access == instr->access && kernel->instrs[j].phase == phase &&
                    kernel->instrs[j].level == HR_LEVEL_ELEMENT;
      }
      if (!is_known && r->turns[instr->access] >= 0) {
        point_to_turned(r, instr);
      } else if (!is_known) {
        hr__emit_pointer(e, instr->access, &e->kept, 0, e->kept.rank, "c", is_copied ? NULL : "b");
      }
    }
  }
  int64_t capacity = r->elements < HR__EMIT_BLOCK ? r->elements : HR__EMIT_BLOCK;
  hr__emit_block block = {.count = "n", .start = "b", .capacity = capacity, .row = r->elements};
  if (r->is_abreast) {
    block.start = "at";
    block.row = TURNED_ROWS * r->elements;
  }
  hr__emit_stages(e, phase, &block);
}

/* The blocks of elements [from, to) of a row: C expressions. */
static void emit_blocks(const rows *r, int phase, const char *from, const char *to) {
  HR__EMIT(r->e, "for (int64_t b = %s; b < %s; b += %d) {\n", from, to, (int)HR__EMIT_BLOCK);
  HR__EMIT(r->e, "const int64_t n = %s - b < %d ? %s - b : %d;\n", to, (int)HR__EMIT_BLOCK, to, (int)HR__EMIT_BLOCK);
  emit_block(r, phase);
  HR__EMIT(r->e, "}\n");
}

/* True if all values that a row computes once depend on registers and lines, so that they can be computed for 16 rows
 * at once. */
static bool can_go_abreast(const rows *r) {
  const hr_kernel *kernel = r->e->kernel;
  bool can = r->elements <= ABREAST_MAX && !r->is_split;
  for (int k = 0; can && k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    bool is_row = instr->level == HR_LEVEL_ROW;
    bool is_constant =
        !is_row && instr->dst >= 0 && r->e->values[instr->dst].is_uniform && !reduces(instr, instr->phase);
    can = !(is_row && instr->access >= 0 && kernel->accesses[instr->access].term_count > 0) &&
          !(is_constant && kernel->registers[instr->dst].last_phase > instr->phase);
  }
  return can;
}

/* True if an instruction computes a value of a row, which has its place in v1[16]. */
static bool makes_row(const rows *r, const hr_instr *instr) {
  return instr->dst >= 0 && (instr->level == HR_LEVEL_ROW || reduces(instr, instr->phase)) &&
         r->e->values[instr->dst].alias == instr->dst;
}

static void declare_rows(const rows *r) {
  hr__emitter *e = r->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (makes_row(r, instr)) { /* zeros, as there may be fewer rows */
      HR__EMIT(e, "%s v%d[%d] = {0};\n", hr__emit_type(e->values[instr->dst].cls), instr->dst, (int)TURNED_ROWS);
    }
  }
}

/* Declares the values of row g that exist when the elements of a phase run, or before its own row values. */
static void read_rows(const rows *r, int phase, bool is_elements) {
  hr__emitter *e = r->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    bool is_there = instr->phase < phase || (instr->phase == phase && is_elements && instr->level == HR_LEVEL_ROW);
    if (makes_row(r, instr) && is_there) {
      HR__EMIT(e, "const %s r%d = v%d[g];\n", hr__emit_type(e->values[instr->dst].cls), instr->dst, instr->dst);
    }
  }
}

/* The same for this phase's loads of each row. */
static void read_loads(const rows *r, int phase) {
  hr__emitter *e = r->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    bool is_load = instr->kind == HR_INSTR_LOAD || instr->kind == HR_INSTR_INDEX;
    if (instr->phase == phase && instr->level == HR_LEVEL_ROW && is_load) {
      HR__EMIT(e, "const %s r%d = v%d[g];\n", hr__emit_type(e->values[instr->dst].cls), instr->dst, instr->dst);
    }
  }
}

static void open_rows(const rows *r) {
  HR__EMIT(r->e, "for (int64_t row = first; row < stop; ++row) {\nconst int64_t g = row - first;\n");
  emit_places(r, "row");
}

/* The values computed once for each row: loads, vectors over the rows, stores. */
static void emit_row_values(const rows *r, int phase) {
  hr__emitter *e = r->e;
  for (int part = 0; part < 3; ++part) {
    bool is_open = false;
    for (int k = 0; k < e->kernel->instr_count; ++k) {
      const hr_instr *instr = &e->kernel->instrs[k];
      bool is_load = instr->kind == HR_INSTR_LOAD || instr->kind == HR_INSTR_INDEX,
           stores = instr->kind == HR_INSTR_STORE;
      if (instr->phase != phase || instr->level != HR_LEVEL_ROW || part != (is_load ? 0 : stores ? 2 : 1)) {
        continue;
      }
      if (!is_open && part == 1) {
        HR__EMIT(e, "HR_LANES\nfor (int g = 0; g < %d; ++g) {\n", (int)TURNED_ROWS);
        read_rows(r, phase, false);
        read_loads(r, phase);
      } else if (!is_open) {
        open_rows(r);
        read_rows(r, phase, part == 2);
      }
      is_open = true;
      if (stores) {
        hr__emit_store(e, instr, "0");
      } else if (is_load) {
        hr__emit_uniform_load(e, instr);
      } else if (e->values[instr->dst].alias == instr->dst) {
        hr__emit_statement(e, instr);
      }
      if (makes_row(r, instr)) {
        HR__EMIT(e, "v%d[g] = r%d;\n", instr->dst, instr->dst);
      }
    }
    HR__EMIT(e, is_open ? "}\n" : "");
  }
}

/* One phase of all rows of a group. */
static void emit_phase_abreast(const rows *r, int phase) {
  hr__emitter *e = r->e;
  emit_row_values(r, phase);
  if (!has_elements(e->kernel, phase)) {
    return;
  }
  open_rows(r);
  read_rows(r, phase, true);
  hr__emit_uniform(e, phase, HR_LEVEL_ELEMENT);
  declare_lanes(r, phase);
  clear_lanes(r, phase);
  HR__EMIT(e, "{\nconst int64_t b = 0, at = g * %lld, n = %lld;\n", (long long)r->elements, (long long)r->elements);
  emit_block(r, phase);
  HR__EMIT(e, "}\n");
  fold_lanes(r, phase, NULL);
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (reduces(instr, phase)) {
      HR__EMIT(e, "v%d[g] = r%d;\n", instr->dst, instr->dst);
    }
  }
  HR__EMIT(e, "}\n");
}

static void emit_phase(const rows *r, int phase) {
  hr__emitter *e = r->e;
  char all[32];
  snprintf(all, sizeof all, "%lld", (long long)r->elements);
  hr__emit_uniform(e, phase, HR_LEVEL_ROW);
  if (!has_elements(e->kernel, phase)) {
    return;
  }
  hr__emit_uniform(e, phase, HR_LEVEL_ELEMENT);
  declare_lanes(r, phase);
  if (r->chunks == 1) {
    clear_lanes(r, phase);
    if (r->elements <= HR__EMIT_BLOCK) {
      HR__EMIT(e, "{\nconst int64_t b = 0, n = %lld;\n", (long long)r->elements);
      emit_block(r, phase);
      HR__EMIT(e, "}\n");
    } else {
      emit_blocks(r, phase, "0", all);
    }
    fold_lanes(r, phase, NULL);
    return;
  }
  HR__EMIT(e, "for (int64_t chunk = 0; chunk < %lld; ++chunk) {\n", (long long)r->chunks);
  HR__EMIT(e, "const int64_t from = chunk * %d, to = from + %d < %s ? from + %d : %s;\n", (int)HR_REDUCE_CHUNK,
           (int)HR_REDUCE_CHUNK, all, (int)HR_REDUCE_CHUNK, all);
  clear_lanes(r, phase);
  emit_blocks(r, phase, "from", "to");
  fold_lanes(r, phase, "chunk");
  HR__EMIT(e, "}\n");
  combine_chunks(r, phase, "0");
}

static int64_t row_pieces(const rows *r) {
  return (r->e->kept.dims[r->e->kept.rank - 1] + r->group - 1) / r->group;
}

static void emit_whole(const rows *r, const char *name) {
  hr__emitter *e = r->e;
  hr__emit_head(e, name, 0);
  if (r->group > 0) { /* rows of the innermost kept dim, transposed together */
    long long dim = (long long)e->kept.dims[e->kept.rank - 1], pieces = (long long)row_pieces(r);
    HR__EMIT(e, "for (int64_t unit = begin; unit < end; ++unit) {\n");
    HR__EMIT(e, "const int64_t most = (unit / %lld + 1) * %lld, first = most - %lld + unit %% %lld * %lld;\n", pieces,
             dim, dim, pieces, (long long)r->group);
    HR__EMIT(e, "const int64_t stop = first + %lld < most ? first + %lld : most;\n", (long long)r->group,
             (long long)r->group);
    emit_places(r, "first");
    emit_turns(r);
  } else if (r->is_abreast) {
    HR__EMIT(
        e,
        "for (int64_t first = begin, stop; first < end; first = stop) {\nstop = first + %d < end ? first + %d : end;\n",
        (int)TURNED_ROWS, (int)TURNED_ROWS);
  }
  if (r->is_abreast) {
    declare_rows(r);
    for (int phase = 0; phase < e->kernel->phase_count; ++phase) {
      emit_phase_abreast(r, phase);
    }
    HR__EMIT(e, "}\n}\n");
    return;
  }
  HR__EMIT(e, "for (int64_t row = %s; row < %s; ++row) {\n", r->group > 0 ? "first" : "begin",
           r->group > 0 ? "stop" : "end");
  emit_places(r, "row");
  for (int phase = 0; phase < e->kernel->phase_count; ++phase) {
    emit_phase(r, phase);
  }
  HR__EMIT(e, r->group > 0 ? "}\n}\n}\n" : "}\n}\n");
}

/* A unit is a group of chunks, whose transposed operands are copied first. */
static void emit_groups(const rows *r) {
  hr__emitter *e = r->e;
  long long size = (long long)(r->group * HR_REDUCE_CHUNK), groups = (long long)hr_divide_up(r->chunks, r->group);
  HR__EMIT(e, "for (int64_t unit = begin; unit < end; ++unit) {\n");
  HR__EMIT(e, "const int64_t row = unit / %lld, group = unit %% %lld * %lld;\n", groups, groups, size);
  HR__EMIT(e, "const int64_t stop = group + %lld < %lld ? group + %lld : %lld;\n", size, (long long)r->elements, size,
           (long long)r->elements);
  emit_places(r, "row");
  hr__emit_uniform(e, 0, HR_LEVEL_ROW);
  hr__emit_uniform(e, 0, HR_LEVEL_ELEMENT);
  declare_lanes(r, 0);
  emit_turns(r);
  HR__EMIT(e, "for (int64_t from = group; from < stop; from += %d) {\n", (int)HR_REDUCE_CHUNK);
  HR__EMIT(e, "const int64_t to = from + %d < stop ? from + %d : stop;\n", (int)HR_REDUCE_CHUNK, (int)HR_REDUCE_CHUNK);
  HR__EMIT(e, "const int64_t chunk = row * %lld + from / %d;\n", (long long)r->chunks, (int)HR_REDUCE_CHUNK);
  clear_lanes(r, 0);
  emit_blocks(r, 0, "from", "to");
  fold_lanes(r, 0, "chunk");
  HR__EMIT(e, "}\n}\n}\n");
}

static void emit_chunks(const rows *r) {
  hr__emitter *e = r->e;
  HR__EMIT(e, "for (int64_t unit = begin; unit < end; ++unit) {\n");
  HR__EMIT(e, "const int64_t row = unit / %lld, from = unit %% %lld * %d;\n", (long long)r->chunks,
           (long long)r->chunks, (int)HR_REDUCE_CHUNK);
  HR__EMIT(e, "const int64_t to = from + %d < %lld ? from + %d : %lld;\n", (int)HR_REDUCE_CHUNK, (long long)r->elements,
           (int)HR_REDUCE_CHUNK, (long long)r->elements);
  emit_places(r, "row");
  hr__emit_uniform(e, 0, HR_LEVEL_ROW);
  hr__emit_uniform(e, 0, HR_LEVEL_ELEMENT);
  declare_lanes(r, 0);
  clear_lanes(r, 0);
  emit_blocks(r, 0, "from", "to");
  fold_lanes(r, 0, "unit");
  HR__EMIT(e, "}\n}\n");
}

static void emit_split(const rows *r, const char *name) {
  hr__emitter *e = r->e;
  hr__emit_head(e, name, 0);
  if (r->group > 0) {
    emit_groups(r);
  } else {
    emit_chunks(r);
  }
  hr__emit_head(e, name, 1);
  HR__EMIT(e, "for (int64_t row = begin; row < end; ++row) {\n");
  emit_places(r, "row");
  hr__emit_uniform(e, 0, HR_LEVEL_ROW);
  char first[48];
  snprintf(first, sizeof first, "row * %lld", (long long)r->chunks);
  combine_chunks(r, 0, first);
  for (int phase = 1; phase < e->kernel->phase_count; ++phase) {
    hr__emit_uniform(e, phase, HR_LEVEL_ROW);
  }
  HR__EMIT(e, "}\n}\n");
}

hr_status hr__emit_rows(hr__emitter *e, const char *name, hr_emission *out_emission) {
  e->has_blocks = true;
  rows r = {.e = e, .count = 1, .elements = 1};
  for (int d = 0; d < e->kept.rank; ++d) {
    r.count *= e->kept.dims[d];
  }
  for (int d = 0; d < e->walked.rank; ++d) {
    r.elements *= e->walked.dims[d];
  }
  e->is_row_walk = true;
  for (int a = 0; a < e->kernel->access_count; ++a) {
    const hr_access *access = &e->kernel->accesses[a];
    hr__emit_see(e->kernel, access, e->walked.rank, e->walked.dims, e->walked.source, false, &e->axes[a]);
    if (access->term_count > 0 && e->axes[a].lie == HR__LIE_RAGGED) {
      return hr__emit_unable(e->kernel, "an indirect access that is not a line");
    }
  }
  r.chunks = hr_divide_up(r.elements, HR_REDUCE_CHUNK);
  r.is_split = r.count > 0 && shall_split(&r);
  hr__emit_find_uniform(e);
  HR_RETURN_IF_ERROR(hr__emit_worth(e, r.elements));
  if (!(r.is_split ? find_turns(&r) : find_row_turns(&r)) || !place_parts(&r)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "emit: no memory for kernel %s", name);
  }
  r.is_abreast = can_go_abreast(&r);
  if (r.is_split) {
    emit_split(&r, name);
    out_emission->pass_count = 2;
    int64_t each = r.group > 0 ? r.group : 1;
    out_emission->units[0] = r.count * hr_divide_up(r.chunks, each);
    out_emission->units[1] = r.count;
    out_emission->grain[0] = hr__emit_grain(e->kernel, each * HR_REDUCE_CHUNK);
    out_emission->grain[1] = 64;
  } else {
    emit_whole(&r, name);
    out_emission->pass_count = 1;
    out_emission->units[0] = r.group > 0 ? r.count / e->kept.dims[e->kept.rank - 1] * row_pieces(&r) : r.count;
    out_emission->grain[0] = hr__emit_grain(e->kernel, (r.group > 0 ? r.group : 1) * r.elements);
  }
  out_emission->workspace_bytes = (size_t)r.workspace;
  return HR_OK;
}
