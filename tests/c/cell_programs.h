/* cell_programs.h: random programs whose cells repeat, as text.
 *
 * A program is a loop of random cells, unrolled: each cell reads carried values of the cell before, weights, views that
 * move through an input, accumulators and scalars. Often a second loop walks over the first one's values backwards, as
 * a gradient does. Some programs break the pattern in one period.
 */
#ifndef HEADRACE_TESTS_CELL_PROGRAMS_H_
#define HEADRACE_TESTS_CELL_PROGRAMS_H_

#include "hr_test.h"

#include <stdlib.h>

#include "base/text.h"
#include "program_runner.h"

enum { COLUMNS = 4, SYMBOLS_MAX = 8192, ROLES_MAX = 12, PERIODS_MAX = 64 };

/* ---- text of a program: buffers are numbered by first use ---- */

typedef struct symbol {
  int number; /* -1: not used yet */
  int elements;
  bool is_live, is_fresh;
} symbol;

typedef struct maker {
  uint64_t random;
  int rows;
  symbol symbols[SYMBOLS_MAX];
  int symbol_count, number_count, scalar_count;
  int numbered[SYMBOLS_MAX];
  hr_text lines;
} maker;

static inline int elements_of(const maker *m) {
  return m->rows * COLUMNS;
}

static uint32_t draw(maker *m, uint32_t end) {
  m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(m->random >> 33) % end;
}

static int new_symbol(maker *m, int elements, bool is_live, bool is_fresh) {
  HR_ASSERT(m->symbol_count < SYMBOLS_MAX);
  m->symbols[m->symbol_count] = (symbol){-1, elements, is_live, is_fresh};
  return m->symbol_count++;
}

static int use(maker *m, int id) {
  if (m->symbols[id].number < 0) {
    m->symbols[id].number = m->number_count;
    m->numbered[m->number_count++] = id;
  }
  return m->symbols[id].number;
}

/* An operand of [rows, COLUMNS] at an element of a buffer. */
typedef struct view {
  int id, offset;
} view;

static void print_view(maker *m, view v, bool is_product) {
  int columns = COLUMNS, rows = is_product ? COLUMNS : m->rows;
  hr_text_printf(&m->lines, "%%%d:f32[%d,%d]{%d,1}+%d", use(m, v.id), rows, columns, columns, v.offset);
}

/* `to` = op(inputs); 'm': a product with the second one, 's': with a scalar. */
static void emit(maker *m, char kind, const char *op, view to, view a, view b) {
  int operands[] = {a.id, b.id};
  for (int i = 0; i < 2; ++i) { /* inputs are numbered before outputs */
    (void)(operands[i] >= 0 ? use(m, operands[i]) : 0);
  }
  print_view(m, to, false);
  hr_text_printf(&m->lines, " = %s(", op);
  print_view(m, a, false);
  if (kind == 's') {
    hr_text_printf(&m->lines, ", $%d", m->scalar_count++);
  } else if (b.id >= 0) {
    hr_text_printf(&m->lines, ", ");
    print_view(m, b, kind == 'm');
  }
  hr_text_printf(&m->lines, kind == 'm' ? ", _)\n" : ")\n");
}

static void print_program(const maker *m, hr_text *text) {
  for (int i = 0; i < m->number_count; ++i) {
    const symbol *s = &m->symbols[m->numbered[i]];
    hr_text_printf(text, "buffer %%%d %d %s%s\n", i, s->elements * 4, s->is_live ? "live" : "dead",
                   s->is_fresh ? " fresh" : "");
  }
  for (int i = 0; i < m->scalar_count; ++i) {
    hr_text_printf(text, "scalar $%d f64\n", i);
  }
  hr_text_printf(text, "%s", hr_text_chars(&m->lines));
}

/* ---- random cells ---- */

typedef enum source { EARLIER, CARRIED, SHARED, MOVING, TWICE_CARRIED, OTHER_LOOP, OTHER_LOOP_NEXT, SOURCES } source;

typedef struct role {
  const char *op;
  char kind; /* '1', '2' operands; 'm', 's'; 'a': to an accumulator; 'o': to a view that moves; 'i': in place */
  source sources[2];
  int which[2];
} role;

typedef struct loop {
  int count, periods;
  role roles[ROLES_MAX];
  int results[PERIODS_MAX][ROLES_MAX]; /* symbols */
  int initial[ROLES_MAX];
  int live_role, live_period; /* results that live on: -1, of all periods; -2, of none */
} loop;

typedef struct program_case {
  maker m;
  int shared[3], accumulator, moving, moved;
  loop loops[2];
  int loop_count;
} program_case;

static role draw_role(maker *m, int index, bool is_second) {
  static const char *const ones[] = {"tanh", "sigmoid", "neg", "abs", "copy"}, *const twos[] = {"add", "mul", "sub",
                                                                                                "maximum"};
  role r = {.kind = "1222msaoi"[draw(m, 9)]};
  r.op = r.kind == '1' ? ones[draw(m, 5)] : r.kind == 'm' ? "matmul" : twos[draw(m, 4)];
  r.op = r.kind == 'a' ? "add" : r.kind == 'o' || r.kind == 'i' ? "tanh" : r.op;
  for (int i = 0; i < 2; ++i) {
    do {
      r.sources[i] = (source)draw(m, is_second ? SOURCES : OTHER_LOOP);
    } while ((r.sources[i] == EARLIER && index == 0) || (r.sources[i] == TWICE_CARRIED && draw(m, 4) != 0));
    r.which[i] = (int)draw(m, r.sources[i] == EARLIER ? (uint32_t)index : 100);
  }
  if (index == 0 && draw(m, 8) != 0) { /* products separate the cells' kernels */
    r = (role){.op = "matmul", .kind = 'm', .sources = {CARRIED}, .which = {(int)draw(m, 100)}};
  }
  return r;
}

static view source_of(program_case *p, const loop *l, const role *r, int i, int period) {
  int own = r->which[i] % l->count, other = r->which[i] % p->loops[0].count, periods = p->loops[0].periods;
  int back = r->sources[i] == TWICE_CARRIED ? 2 : 1;
  switch (r->sources[i]) {
    case EARLIER:
      return (view){l->results[period][r->which[i]], 0};
    case CARRIED:
    case TWICE_CARRIED:
      return (view){period >= back ? l->results[period - back][own] : l->initial[own], 0};
    case SHARED:
      return (view){p->shared[r->which[i] % 3], 0};
    case MOVING:
      return (view){p->moving, elements_of(&p->m) * (r->which[i] % 2 == 0 ? period : l->periods - period)};
    case OTHER_LOOP:
      return (view){p->loops[0].results[periods - 1 - period][other], 0};
    default:
      return (view){
          period + 1 < periods ? p->loops[0].results[periods - 2 - period][other] : p->loops[0].initial[other], 0};
  }
}

static void emit_role(program_case *p, loop *l, int index, int period) {
  maker *m = &p->m;
  const role *r = &l->roles[index];
  view a = source_of(p, l, r, 0, period), b = source_of(p, l, r, 1, period), none = {-1, 0};
  bool is_live = l->live_role == index && (l->live_period == -1 || l->live_period == period);
  int result = l->results[period][index] = new_symbol(m, elements_of(m), is_live, true);
  view to = {result, 0};
  if (r->kind == 'm') {
    b = (view){p->shared[2], 0};
  }
  emit(m, r->kind == 'm' || r->kind == 's' ? r->kind : '2', r->op, to, a,
       r->kind == '1' || r->kind == 'o' || r->kind == 'i' ? none : b);
  if (r->kind == 'a') {
    emit(m, '2', "add", (view){p->accumulator, 0}, (view){p->accumulator, 0}, to);
  } else if (r->kind == 'o') {
    emit(m, '2', "copy", (view){p->moved, elements_of(m) * period}, to, none);
  } else if (r->kind == 'i') {
    emit(m, '2', "sigmoid", to, to, none);
  }
}

static void emit_loop(program_case *p, loop *l) {
  maker *m = &p->m;
  int broken = draw(m, 12) == 0 ? (int)draw(m, (uint32_t)l->periods) : -1;
  for (int i = 0; i < l->count; ++i) {
    l->initial[i] = p->shared[draw(m, 2)];
  }
  for (int t = 0; t < l->periods; ++t) {
    for (int i = 0; i < l->count; ++i) {
      emit_role(p, l, i, t);
    }
    if (t == broken) {
      emit(m, '2', "neg", (view){l->results[t][0], 0}, (view){l->results[t][0], 0}, (view){-1, 0});
    }
  }
}

static void draw_loop(program_case *p, loop *l, int periods, bool is_second) {
  maker *m = &p->m;
  l->periods = periods;
  l->count = 1 + (int)draw(m, ROLES_MAX);
  for (int i = 0; i < l->count; ++i) {
    l->roles[i] = draw_role(m, i, is_second);
  }
  l->live_role = (int)draw(m, (uint32_t)l->count);
  l->live_period = draw(m, 3) == 0 ? (int)draw(m, (uint32_t)periods) : draw(m, 2) == 0 ? -1 : -2;
}

/* The end of the program: results of the last cells, and sometimes of others, are kept. */
static void emit_end(program_case *p) {
  maker *m = &p->m;
  view none = {-1, 0};
  for (int k = 0; k < p->loop_count; ++k) {
    loop *l = &p->loops[k];
    for (int i = 0; i < l->count; ++i) {
      int period = draw(m, 40) == 0 ? (int)draw(m, (uint32_t)l->periods) : l->periods - 1;
      view kept = {new_symbol(m, elements_of(m), true, true), 0};
      if (draw(m, 3) > 0) {
        emit(m, '2', draw(m, 2) == 0 ? "copy" : "tanh", kept, (view){l->results[period][i], 0}, none);
      }
    }
  }
  if (draw(m, 3) == 0) {
    emit(m, '2', "copy", (view){new_symbol(m, elements_of(m), true, true), 0},
         (view){p->moved, elements_of(m) * (int)draw(m, 12)}, none);
  }
}

static program_case *make_case(uint64_t seed, int rows) {
  program_case *p = calloc(1, sizeof *p);
  maker *m = &p->m;
  m->random = seed * 77777 + 1;
  m->rows = rows;
  int periods = 16 + (int)draw(m, 45);
  for (int i = 0; i < 3; ++i) {
    p->shared[i] = new_symbol(m, 64, true, false);
  }
  p->accumulator = new_symbol(m, elements_of(m), true, false);
  p->moving = new_symbol(m, elements_of(m) * (PERIODS_MAX + 1), true, false);
  p->moved = new_symbol(m, elements_of(m) * PERIODS_MAX, draw(m, 2) == 0, false);
  int first[] = {p->shared[0], p->shared[1], p->shared[2], p->accumulator, p->moving, p->moved};
  for (int i = 0; i < 6; ++i) {
    (void)use(m, first[i]);
  }
  p->loop_count = 1 + (int)draw(m, 2);
  for (int k = 0; k < p->loop_count; ++k) {
    draw_loop(p, &p->loops[k], periods, k > 0);
    emit_loop(p, &p->loops[k]);
  }
  emit_end(p);
  return p;
}

/* ---- contents ---- */

static inline void **make_memory(const maker *m, uint64_t seed) {
  void **memory = calloc((size_t)m->number_count + 1, sizeof *memory);
  uint64_t random = seed;
  for (int i = 0; i < m->number_count; ++i) {
    int elements = m->symbols[m->numbered[i]].elements;
    float *values = hr__exact_alloc((size_t)elements * 4);
    for (int k = 0; k < elements; ++k) {
      random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      values[k] = (float)(random >> 40) / (1 << 23) - 1;
    }
    memory[i] = values;
  }
  return memory;
}

static inline void free_memory(const maker *m, void **memory) {
  for (int i = 0; i < m->number_count; ++i) {
    hr__exact_free(memory[i], (size_t)m->symbols[m->numbered[i]].elements * 4);
  }
  free(memory);
}

static inline hr_scalar *make_arguments(const maker *m) {
  hr_scalar *arguments = calloc((size_t)m->scalar_count + 1, sizeof *arguments);
  for (int i = 0; i < m->scalar_count; ++i) {
    arguments[i] = (hr_scalar){.dtype = HR_DTYPE_F64, .value.f = {0.25 + 0.01 * i}};
  }
  return arguments;
}

#endif
