/* Reductions along columns, one element after the other: a unit is a strip of 64 or 256 columns.
 *
 *   for (strip ...) {
 *     phase 0   for (chunk of 512) { acc1[64] = identity; for (o in chunk) for (j < 64) { body; acc1[j] = ... } }
 *     phase 1   for (o ...) for (j < 64) { ... v1[j] ... }
 *   }
 *
 * Row registers are vectors over the strip. All accesses must be affine along both sides, and there is one stage:
 * kernels with values that cross phases, or with transcendentals in long bodies, stay interpreted. A split kernel
 * leaves the results of chunks in the workspace.
 *
 * Reduced dims that are not one line (tiles of a plane) are walked in runs along the last of them. If that dim is as
 * short as a tile, its elements are side by side in the body, and loads that they share are made once:
 *
 *   for (o in chunk) {
 *     w0, w1, w2 = place of o;
 *     for (; w2 < 14; ++w2) for (j < 16) { r1 = p1[a1 + j];  { ... } { ... } }
 *   }
 */
#include <stdio.h>

#include "base/integer.h"
#include "compiler/emit_internal.h"

enum { STRIP = 64, WIDE_STRIP = 256, WIDE_MIN = 512, SPLIT_ELEMENTS = 65536, SPLIT_UNITS = 64, SIDE_MAX = 4 };

typedef struct columns {
  hr__emitter *e;
  int inner;                     /* the kept dim along which strips run */
  int64_t width, rows, outside;  /* columns of that dim, reduced elements, other kept elements */
  int64_t strip, strips, chunks; /* columns of a strip, ... */
  bool is_split, is_nested;      /* nested: the reduced dims are not one line */
  int64_t side;                  /* reduced elements side by side in the body */
  int64_t beside;                /* ... of which this one is written */
  int64_t workspace;
  hr__emit_extent all_rows, all_chunks, all_columns, all_strips;
  hr__emit_extent *parts;     /* by instruction: the place of the results of chunks */
  hr__emit_extent *row_steps; /* by access */
} columns;

static bool reduces(const hr_instr *instr, int phase) {
  return instr->phase == phase && instr->kind == HR_INSTR_REDUCE;
}
static bool chooses(const hr_instr *instr, int phase) {
  return instr->phase == phase && instr->kind == HR_INSTR_ARGREDUCE;
}
/* True if its result is the row's, though it has a source for each element. */
static bool is_reduction(const hr_instr *instr) {
  return instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE;
}

/* The step of an access from one reduced element, or column, to the next. */
static int64_t row_step(const columns *c, const hr_access *access) {
  int last = c->e->walked.rank - 1;
  return last >= 0 ? access->strides[c->e->walked.source[last]] : 0;
}
static int64_t column_step(const columns *c, const hr_access *access) {
  return c->inner >= 0 ? access->strides[c->e->kept.source[c->inner]] : 0;
}

/* True for whole strips: they need no literal but their own width, so the text serves any number of them. */
static bool is_whole(const columns *c) {
  return c->width % c->strip == 0;
}

static hr__emit_extent number(const columns *c, int64_t number) {
  hr__emit_extent literal;
  if (is_whole(c)) {
    return hr__emit_runtime(c->e, number);
  }
  snprintf(literal.text, sizeof literal.text, "%lld", (long long)number);
  return literal;
}

static bool name_extents(columns *c) {
  const hr_kernel *kernel = c->e->kernel;
  c->all_rows = hr__emit_runtime(c->e, c->rows);
  c->all_chunks = hr__emit_runtime(c->e, c->chunks);
  c->all_columns = number(c, c->width);
  c->all_strips = number(c, c->strips);
  c->row_steps = HR_ARENA_ARRAY(&c->e->arena, hr__emit_extent, (size_t)kernel->access_count + 1);
  for (int a = 0; a < kernel->access_count && c->row_steps != NULL; ++a) {
    int64_t step = row_step(c, &kernel->accesses[a]);
    if (step == c->width) {
      c->row_steps[a] = c->all_columns;
    } else if (step == 0 || c->is_nested) {
      c->row_steps[a] = (hr__emit_extent){"0"};
    } else {
      c->row_steps[a] = number(c, step);
    }
  }
  return c->row_steps != NULL;
}

static bool is_simple(const columns *c) {
  const hr_kernel *kernel = c->e->kernel;
  if (c->inner < 0) {
    return false;
  }
  for (int a = 0; a < kernel->access_count; ++a) {
    const hr_access *access = &kernel->accesses[a];
    if (access->bound_count > 0 || access->term_count > 0) {
      return false;
    }
  }
  int weight = 0;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    weight += instr->level == HR_LEVEL_ELEMENT ? hr__emit_weight(kernel, instr) : 0;
    if (instr->dst >= 0 && instr->level == HR_LEVEL_ELEMENT && !is_reduction(instr) &&
        kernel->registers[instr->dst].last_phase > kernel->registers[instr->dst].phase) {
      return false;
    }
    int64_t step = instr->access >= 0 ? column_step(c, &kernel->accesses[instr->access]) : 0;
    if (step != 0 && step != 1) {
      return false;
    }
  }
  return weight < 60;
}

/* Chunks begin and end between groups of elements that are side by side in the body. */
static void find_nest(columns *c) {
  const hr_dims *walked = &c->e->walked;
  c->side = 1;
  c->is_nested = walked->rank > 1;
  if (c->is_nested && walked->dims[walked->rank - 1] <= SIDE_MAX &&
      HR_REDUCE_RUN % walked->dims[walked->rank - 1] == 0) {
    c->side = walked->dims[walked->rank - 1];
  }
}

static bool shall_split(const columns *c) {
  return c->rows > HR_REDUCE_CHUNK && c->strips * c->outside < SPLIT_UNITS &&
         c->rows * c->width * c->outside >= SPLIT_ELEMENTS && hr__emit_can_split(c->e->kernel);
}

static bool has_choice(const hr_kernel *kernel) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].kind == HR_INSTR_ARGREDUCE) {
      return true;
    }
  }
  return false;
}

/* Results of chunks: [unit][chunk][column]. */
static bool place_parts(columns *c) {
  const hr_kernel *kernel = c->e->kernel;
  c->parts = HR_ARENA_ARRAY(&c->e->arena, hr__emit_extent, (size_t)kernel->instr_count + 1);
  for (int k = 0; k < kernel->instr_count && c->parts != NULL && c->chunks > 1; ++k) {
    if (reduces(&kernel->instrs[k], kernel->instrs[k].phase)) {
      int64_t bytes = c->chunks * (int64_t)hr_class_size(kernel->instrs[k].cls);
      if (c->is_split) { /* at most the existing columns: the size that the interpreter reserves */
        c->parts[k] = hr__emit_runtime(c->e, c->workspace);
        c->workspace += hr_round_up(c->outside * c->width * bytes, 64);
      } else {
        c->parts[k] = hr__emit_runtime(c->e, hr__emit_reserve(c->e, c->strip * bytes));
      }
    }
  }
  return c->parts != NULL;
}

/* ---- text ---- */

static void emit_places(const columns *c, const char *unit) {
  const hr_dims *kept = &c->e->kept;
  hr__emitter *e = c->e;
  const char *strips = c->all_strips.text, *width = c->all_columns.text;
  HR__EMIT(e, "int64_t rest = %s;\nconst int64_t c%d = rest %% %s * %d;\nrest /= %s;\n", unit, c->inner, strips,
           (int)c->strip, strips);
  if (is_whole(c)) {
    HR__EMIT(e, "const int64_t n = %d;\n", (int)c->strip);
  } else {
    HR__EMIT(e, "const int64_t n = %s - c%d < %d ? %s - c%d : %d;\n", width, c->inner, (int)c->strip, width, c->inner,
             (int)c->strip);
  }
  HR__EMIT(e, "const int64_t place = rest * %s + c%d;\n", width, c->inner);
  for (int d = kept->rank - 1; d >= 0; --d) {
    if (d != c->inner) {
      HR__EMIT(e, "const int64_t c%d = rest %% %lld;\nrest /= %lld;\n", d, (long long)kept->dims[d],
               (long long)kept->dims[d]);
    }
  }
  for (int a = 0; a < e->kernel->access_count; ++a) {
    hr__emit_pointer(e, a, kept, 0, kept->rank, "c", NULL);
  }
}

/* "o * x3 + j * 1", or "a3 + 256 + j * 1" */
static void index_of(const columns *c, const hr_instr *instr, char *out_index, size_t bytes) {
  const hr_access *access = &c->e->kernel->accesses[instr->access];
  long long step = (long long)column_step(c, access);
  if (instr->level != HR_LEVEL_ELEMENT) {
    snprintf(out_index, bytes, "j * %lld", step);
  } else if (c->is_nested) {
    int64_t beside = c->side > 1 ? c->beside * row_step(c, access) : 0;
    snprintf(out_index, bytes, "a%d + %lld + j * %lld", instr->access, (long long)beside, step);
  } else {
    snprintf(out_index, bytes, "o * %s + j * %lld", c->row_steps[instr->access].text, step);
  }
}

/* The best key and its index so far, of column j; no index yet is the largest. */
static void emit_best(hr__emitter *e, const hr_instr *instr) {
  int dst = instr->dst;
  HR__EMIT(e, "{\nconst %s key = ", hr__emit_type(instr->cls));
  hr__emit_source(e, instr, 0);
  HR__EMIT(e, ";\nconst int64_t index = ");
  hr__emit_source(e, instr, 1);
  HR__EMIT(e, ";\nconst int take = hr_is_better_%s_%s(key, l%d[j], index, m%d[j]) | (m%d[j] == INT64_MAX);\n",
           hr_op_table(instr->op)->name, hr_class_name(instr->cls), dst, dst, dst);
  HR__EMIT(e, "l%d[j] = take ? key : l%d[j];\nm%d[j] = take ? index : m%d[j];\n}\n", dst, dst, dst, dst);
}

static void emit_instr(const columns *c, const hr_instr *instr) {
  hr__emitter *e = c->e;
  char index[96] = "";
  if (instr->access >= 0) {
    index_of(c, instr, index, sizeof index);
  }
  switch (instr->kind) {
    case HR_INSTR_LOAD:
      HR__EMIT(e, "const %s r%d = ", hr__emit_type(e->values[instr->dst].cls), instr->dst);
      hr__emit_load(e, instr->access, index);
      HR__EMIT(e, ";\n");
      break;
    case HR_INSTR_INDEX:
      HR__EMIT(e, "const int64_t r%d = p%d + %s;\n", instr->dst, instr->access, index);
      break;
    case HR_INSTR_STORE:
      hr__emit_store(e, instr, index);
      break;
    case HR_INSTR_REDUCE:
      HR__EMIT(e, "l%d[j] = hr_combine_%s_%s(l%d[j], ", instr->dst, hr_op_table(instr->op)->name,
               hr_class_name(instr->cls), instr->dst);
      hr__emit_source(e, instr, 0);
      HR__EMIT(e, ");\n");
      break;
    case HR_INSTR_ARGREDUCE:
      emit_best(e, instr);
      break;
    default:
      if (e->values[instr->dst].alias == instr->dst) {
        hr__emit_statement(e, instr);
      }
      break;
  }
}

/* Row registers that instructions of a level and phase read: "const float r3 = v3[j];" */
static void read_rows(const columns *c, int phase, hr_level level) {
  hr__emitter *e = c->e;
  const hr_kernel *kernel = e->kernel;
  for (int r = 0; r < kernel->register_count; ++r) {
    bool is_read = false, is_made = false;
    for (int k = 0; k < kernel->instr_count; ++k) {
      const hr_instr *instr = &kernel->instrs[k];
      bool is_here = instr->phase == phase && instr->level == level && !is_reduction(instr);
      is_made |= is_here && instr->dst == r;
      for (int s = 0; s < instr->source_count && instr->phase == phase && instr->level == level; ++s) {
        is_read |= instr->sources[s].kind == HR_SOURCE_REGISTER && hr__emit_resolve(e, instr->sources[s].index) == r;
      }
    }
    if (is_read && !is_made && kernel->registers[r].level == HR_LEVEL_ROW) {
      HR__EMIT(e, "const %s r%d = v%d[j];\n", hr__emit_type(kernel->registers[r].cls), r, r);
    }
  }
}

static void emit_level(const columns *c, int phase, hr_level level) {
  hr__emitter *e = c->e;
  read_rows(c, phase, level);
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->phase == phase && instr->level == level) {
      emit_instr(c, instr);
      if (level == HR_LEVEL_ROW && instr->dst >= 0 && e->values[instr->dst].alias == instr->dst) {
        HR__EMIT(e, "v%d[j] = r%d;\n", instr->dst, instr->dst);
      }
    }
  }
}

/* True if a load gives the same value for all elements that are side by side. */
static bool is_shared(const columns *c, const hr_instr *instr) {
  return instr->kind == HR_INSTR_LOAD && row_step(c, &c->e->kernel->accesses[instr->access]) == 0;
}

/* The elements that are side by side in the body, of column j. */
static void emit_body(const columns *c, int phase) {
  const hr_kernel *kernel = c->e->kernel;
  if (c->side == 1) {
    emit_level(c, phase, HR_LEVEL_ELEMENT);
    return;
  }
  columns one = *c;
  read_rows(c, phase, HR_LEVEL_ELEMENT);
  for (one.beside = -1; one.beside < c->side; ++one.beside) { /* -1: shared loads */
    HR__EMIT(c->e, one.beside < 0 ? "" : "{\n");
    for (int k = 0; k < kernel->instr_count; ++k) {
      const hr_instr *instr = &kernel->instrs[k];
      if (instr->phase == phase && instr->level == HR_LEVEL_ELEMENT && is_shared(c, instr) == (one.beside < 0)) {
        emit_instr(&one, instr);
      }
    }
    HR__EMIT(c->e, one.beside < 0 ? "" : "}\n");
  }
}

static bool has_level(const hr_kernel *kernel, int phase, hr_level level) {
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].phase == phase && kernel->instrs[k].level == level) {
      return true;
    }
  }
  return false;
}

/* Vectors of row registers and accumulators. */
static void declare(const columns *c) {
  hr__emitter *e = c->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    bool is_row = instr->dst >= 0 && (instr->level == HR_LEVEL_ROW || is_reduction(instr));
    if (is_row && e->values[instr->dst].alias == instr->dst) {
      HR__EMIT(e, "%s v%d[%d];\n", hr__emit_type(e->values[instr->dst].cls), instr->dst, (int)c->strip);
    }
  }
}

static void emit_rows_of(const columns *c, int phase) {
  if (has_level(c->e->kernel, phase, HR_LEVEL_ROW)) {
    HR__EMIT(c->e, "HR_SHORT\nfor (int64_t j = 0; j < n; ++j) {\n");
    emit_level(c, phase, HR_LEVEL_ROW);
    HR__EMIT(c->e, "}\n");
  }
}

/* Opens the loops over reduced elements [from, to): a line, or runs along the last dim whose elements are not side by
 * side. */
static void open_walk(const columns *c, const char *from, const char *to) {
  hr__emitter *e = c->e;
  const hr_dims *walked = &e->walked;
  if (!c->is_nested) {
    HR__EMIT(e, "for (int64_t o = %s, last = %s; o < last; ++o) {\n{\n", from, to);
    return;
  }
  int last = walked->rank - (c->side > 1 ? 2 : 1);
  HR__EMIT(e, "for (int64_t o = %s; o < %s;) {\nint64_t at = o / %lld;\n", from, to, (long long)c->side);
  for (int d = last; d > 0; --d) {
    HR__EMIT(e, "int64_t w%d = at %% %lld;\nat /= %lld;\n", d, (long long)walked->dims[d], (long long)walked->dims[d]);
  }
  HR__EMIT(e, "int64_t w0 = at;\nconst int64_t left = (%s - o) / %lld;\n", to, (long long)c->side);
  HR__EMIT(e, "const int64_t stop = %lld - w%d < left ? %lld : w%d + left;\no += (stop - w%d) * %lld;\n",
           (long long)walked->dims[last], last, (long long)walked->dims[last], last, last, (long long)c->side);
  HR__EMIT(e, "for (; w%d < stop; ++w%d) {\n", last, last);
  for (int a = 0; a < e->kernel->access_count; ++a) {
    HR__EMIT(e, "const int64_t a%d = 0", a);
    for (int d = 0; d <= last; ++d) {
      HR__EMIT(e, " + w%d * %lld", d, (long long)e->kernel->accesses[a].strides[walked->source[d]]);
    }
    HR__EMIT(e, ";\n");
  }
}

/* Elements [from, to) of all columns of the strip: whole strips have a literal width. */
static void emit_elements(const columns *c, int phase, const char *from, const char *to) {
  hr__emitter *e = c->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (reduces(instr, phase)) {
      HR__EMIT(e, "%s l%d[%d];\nfor (int j = 0; j < %d; ++j) { l%d[j] = hr_identity_%s_%s(); }\n",
               hr__emit_type(instr->cls), instr->dst, (int)c->strip, (int)c->strip, instr->dst,
               hr_op_table(instr->op)->name, hr_class_name(instr->cls));
    }
  }
  if (c->width >= c->strip) {
    HR__EMIT(e, "if (n == %d) {\n", (int)c->strip);
    open_walk(c, from, to);
    HR__EMIT(e, "HR_INDEPENDENT\nfor (int j = 0; j < %d; ++j) {\n", (int)c->strip);
    emit_body(c, phase);
    HR__EMIT(e, "}\n}\n}\n} else\n");
  }
  if (c->width % c->strip != 0) {
    int64_t rest = c->width % c->strip;
    open_walk(c, from, to);
    for (int64_t at = 0, next; at < rest; at = next) {
      next = hr__emit_cut(at, rest);
      HR__EMIT(e, "HR_LANES\nfor (int j = %lld; j < %lld; ++j) {\n", (long long)at, (long long)next);
      emit_body(c, phase);
      HR__EMIT(e, "}\n");
    }
    HR__EMIT(e, "}\n}\n");
  } else {
    HR__EMIT(e, "{}\n");
  }
}

/* The place of the results of a strip's chunks, of the reduction in instruction k: chunk after chunk, `pitch` apart. */
static void part_of(const columns *c, int k, const char *chunk, char *out_text, size_t bytes) {
  const char *type = hr__emit_type(c->e->kernel->instrs[k].cls);
  if (c->is_split) {
    snprintf(out_text, bytes, "((%s *)(workspace + %s) + place * %s + (%s) * n)", type, c->parts[k].text,
             c->all_chunks.text, chunk);
  } else {
    snprintf(out_text, bytes, "((%s *)(scratch + %s) + (%s) * n)", type, c->parts[k].text, chunk);
  }
}

/* Accumulators become the row's vectors, or the results of a chunk. */
static void leave(const columns *c, int phase, const char *chunk) {
  hr__emitter *e = c->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (!reduces(instr, phase)) {
      continue;
    }
    char part[160];
    if (chunk != NULL) {
      part_of(c, k, chunk, part, sizeof part);
    } else {
      snprintf(part, sizeof part, "v%d", instr->dst);
    }
    HR__EMIT(e, "for (int64_t j = 0; j < n; ++j) { %s[j] = l%d[j]; }\n", part, instr->dst);
  }
}

/* Results of chunks, in chunks of 512 again, until one is left: as a row of their own. */
static void combine_chunks(const columns *c, int phase) {
  hr__emitter *e = c->e;
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (!reduces(instr, phase)) {
      continue;
    }
    char first[160];
    const char *type = hr__emit_type(instr->cls), *name = hr_op_table(instr->op)->name,
               *cls = hr_class_name(instr->cls);
    part_of(c, k, "0", first, sizeof first);
    HR__EMIT(e, "{\n%s *const part = %s;\nint64_t count = %s;\n", type, first, c->all_chunks.text);
    HR__EMIT(e,
             "while (count > 1) {\nint64_t made = 0;\nfor (int64_t at = 0; at < count; at += %d, ++made) {\n"
             "const int64_t last = count - at < %d ? count : at + %d;\n%s l[%d];\n"
             "for (int64_t j = 0; j < n; ++j) { l[j] = hr_identity_%s_%s(); }\n"
             "for (int64_t o = at; o < last; ++o) {\n"
             "for (int64_t j = 0; j < n; ++j) { l[j] = hr_combine_%s_%s(l[j], part[o * n + j]); }\n}\n"
             "for (int64_t j = 0; j < n; ++j) { part[made * n + j] = l[j]; }\n}\ncount = made;\n}\n",
             (int)HR_REDUCE_RUN, (int)HR_REDUCE_RUN, (int)HR_REDUCE_RUN, type, (int)c->strip, name, cls, name, cls);
    HR__EMIT(e, "for (int64_t j = 0; j < n; ++j) { v%d[j] = part[j]; }\n}\n", instr->dst);
  }
}

/* Indices of the best need no chunks: the better of two elements does not depend on the order. */
static void begin_choices(const columns *c, int phase) {
  for (int k = 0; k < c->e->kernel->instr_count; ++k) {
    const hr_instr *instr = &c->e->kernel->instrs[k];
    if (chooses(instr, phase)) {
      HR__EMIT(c->e, "%s l%d[%d];\nint64_t m%d[%d];\n", hr__emit_type(instr->cls), instr->dst, (int)c->strip,
               instr->dst, (int)c->strip);
      HR__EMIT(c->e, "for (int j = 0; j < %d; ++j) { l%d[j] = 0; m%d[j] = INT64_MAX; }\n", (int)c->strip, instr->dst,
               instr->dst);
    }
  }
}
static void end_choices(const columns *c, int phase) {
  for (int k = 0; k < c->e->kernel->instr_count; ++k) {
    const hr_instr *instr = &c->e->kernel->instrs[k];
    if (chooses(instr, phase)) {
      HR__EMIT(c->e, "for (int64_t j = 0; j < n; ++j) { v%d[j] = m%d[j]; }\n", instr->dst, instr->dst);
    }
  }
}

static void emit_phase(const columns *c, int phase) {
  hr__emitter *e = c->e;
  const char *all = c->all_rows.text;
  emit_rows_of(c, phase);
  if (!has_level(e->kernel, phase, HR_LEVEL_ELEMENT)) {
    return;
  }
  HR__EMIT(e, "{\n");
  begin_choices(c, phase);
  if (c->chunks == 1) {
    emit_elements(c, phase, "0", all);
    leave(c, phase, NULL);
  } else {
    HR__EMIT(e, "for (int64_t chunk = 0; chunk < %s; ++chunk) {\n", c->all_chunks.text);
    HR__EMIT(e, "const int64_t from = chunk * %d, to = from + %d < %s ? from + %d : %s;\n", (int)HR_REDUCE_RUN,
             (int)HR_REDUCE_RUN, all, (int)HR_REDUCE_RUN, all);
    emit_elements(c, phase, "from", "to");
    leave(c, phase, "chunk");
    HR__EMIT(e, "}\n");
    combine_chunks(c, phase);
  }
  end_choices(c, phase);
  HR__EMIT(e, "}\n");
}

static void emit_whole(const columns *c, const char *name) {
  hr__emitter *e = c->e;
  hr__emit_head(e, name, 0);
  HR__EMIT(e, "for (int64_t unit = begin; unit < end; ++unit) {\n");
  emit_places(c, "unit");
  declare(c);
  for (int phase = 0; phase < e->kernel->phase_count; ++phase) {
    emit_phase(c, phase);
  }
  HR__EMIT(e, "}\n}\n");
}

static void emit_split(const columns *c, const char *name) {
  hr__emitter *e = c->e;
  hr__emit_head(e, name, 0);
  HR__EMIT(e, "for (int64_t both = begin; both < end; ++both) {\n");
  HR__EMIT(e, "const int64_t unit = both / %s, chunk = both %% %s, from = chunk * %d;\n", c->all_chunks.text,
           c->all_chunks.text, (int)HR_REDUCE_RUN);
  HR__EMIT(e, "const int64_t to = from + %d < %s ? from + %d : %s;\n", (int)HR_REDUCE_RUN, c->all_rows.text,
           (int)HR_REDUCE_RUN, c->all_rows.text);
  emit_places(c, "unit");
  declare(c);
  emit_rows_of(c, 0);
  emit_elements(c, 0, "from", "to");
  leave(c, 0, "chunk");
  HR__EMIT(e, "}\n}\n");
  hr__emit_head(e, name, 1);
  HR__EMIT(e, "for (int64_t unit = begin; unit < end; ++unit) {\n");
  emit_places(c, "unit");
  declare(c);
  emit_rows_of(c, 0);
  combine_chunks(c, 0);
  for (int phase = 1; phase < e->kernel->phase_count; ++phase) {
    emit_rows_of(c, phase);
  }
  HR__EMIT(e, "}\n}\n");
}

hr_status hr__emit_columns(hr__emitter *e, const char *name, hr_emission *out_emission) {
  columns c = {.e = e, .inner = e->kept.rank - 1, .width = 1, .rows = 1, .outside = 1};
  for (int d = 0; d < e->kept.rank; ++d) {
    *(d == c.inner ? &c.width : &c.outside) *= e->kept.dims[d];
  }
  for (int d = 0; d < e->walked.rank; ++d) {
    c.rows *= e->walked.dims[d];
  }
  if (c.rows == 0 || c.width == 0 || c.outside == 0) {
    return hr__emit_unable(e->kernel, "columns of nothing");
  }
  if (!is_simple(&c)) {
    return hr__emit_unable(e->kernel, "such columns");
  }
  if (e->target != NULL && c.width < 16) {
    return hr__emit_unable(e->kernel, "few columns");
  }
  c.strip = c.width >= WIDE_MIN ? WIDE_STRIP : STRIP; /* longer lines of memory at once */
  c.strips = hr_divide_up(c.width, c.strip);
  c.chunks = hr_divide_up(c.rows, HR_REDUCE_RUN);
  c.is_split = shall_split(&c);
  if (c.is_split && has_choice(e->kernel)) {
    return hr__emit_unable(e->kernel, "choices of few long columns");
  }
  find_nest(&c);
  if (!name_extents(&c)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "emit: no memory for kernel %s", name);
  }
  for (int a = 0; a < e->kernel->access_count; ++a) {
    hr__emit_see(e->kernel, &e->kernel->accesses[a], 0, e->kept.dims, e->kept.source, false, &e->axes[a]);
  }
  hr__emit_find_aliases(e);
  HR_RETURN_IF_ERROR(hr__emit_worth(e, 0));
  if (!place_parts(&c)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "emit: no memory for kernel %s", name);
  }
  int64_t units = c.strips * c.outside;
  out_emission->workspace_bytes = (size_t)c.workspace;
  if (c.is_split) {
    emit_split(&c, name);
    out_emission->pass_count = 2;
    out_emission->units[0] = units * c.chunks;
    out_emission->units[1] = units;
    out_emission->grain[0] = hr__emit_grain(e->kernel, c.strip * HR_REDUCE_RUN);
    out_emission->grain[1] = 64;
  } else {
    emit_whole(&c, name);
    out_emission->pass_count = 1;
    out_emission->units[0] = units;
    out_emission->grain[0] = hr__emit_grain(e->kernel, c.strip * c.rows);
  }
  return HR_OK;
}
