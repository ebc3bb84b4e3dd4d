/* same_schedule.h: true if two compact schedules of one program are the same but for the names of temporaries. */
#ifndef HEADRACE_TESTS_SAME_SCHEDULE_H_
#define HEADRACE_TESTS_SAME_SCHEDULE_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/repeat.h"

/* The numbers of a step, in order. */
typedef struct step_numbers {
  int count;
  hr_slot_kind kinds[512];
  int64_t values[512];
} step_numbers;

static void note_number(void *ctx, hr_slot_kind kind, void *place) {
  step_numbers *n = ctx;
  if (n->count < 512) {
    n->kinds[n->count] = kind;
    n->values[n->count++] = kind == HR_SLOT_OFFSET ? *(int64_t *)place : (int64_t) * (uint32_t *)place;
  }
}

typedef struct schedule_pair {
  const hr_schedule *a, *b;
  int64_t *names; /* of a's buffers: b's + 1 */
} schedule_pair;

static bool is_same_scalar(const hr_program_scalar *a, const hr_program_scalar *b) {
  return a->is_constant == b->is_constant && a->dtype == b->dtype &&
         (a->is_constant ? memcmp(&a->value.value, &b->value.value, sizeof a->value.value) == 0
                         : a->argument == b->argument);
}

static bool is_same_place(const schedule_pair *p, int64_t a, int64_t b) {
  const hr_place *x = &p->a->places[a], *y = &p->b->places[b];
  const hr_program_buffer *s = &p->a->program.buffers[a], *t = &p->b->program.buffers[b];
  bool is_bound = a < p->a->program.bound_count;
  if (p->names[a] == 0) {
    p->names[a] = b + 1;
  }
  return p->names[a] == b + 1 && is_bound == (b < p->b->program.bound_count) && (!is_bound || a == b) &&
         x->kind == y->kind && x->bytes == y->bytes && s->bytes == t->bytes && s->layout == t->layout &&
         s->rows == t->rows && s->room == t->room && s->is_dead == t->is_dead && s->is_fresh == t->is_fresh &&
         (x->kind != HR_PLACE_ARENA || (x->first == y->first && x->last == y->last));
}

static bool is_same_number(const schedule_pair *p, hr_slot_kind kind, int64_t a, int64_t b) {
  return kind == HR_SLOT_BUFFER   ? is_same_place(p, a, b)
         : kind == HR_SLOT_SCALAR ? is_same_scalar(&p->a->program.scalars[a], &p->b->program.scalars[b])
                                  : a == b;
}

static bool is_same_step(const schedule_pair *p, int i) {
  const hr_step *a = &p->a->steps[i], *b = &p->b->steps[i];
  step_numbers s = {0}, t = {0};
  hr_step_each_slot(a, note_number, &s);
  hr_step_each_slot(b, note_number, &t);
  bool is = a->kind == b->kind && s.count == t.count &&
            (a->kind != HR_STEP_KERNEL || strcmp(a->kernel->name, b->kernel->name) == 0);
  for (int k = 0; is && k < s.count; ++k) {
    is = s.kinds[k] == t.kinds[k] && is_same_number(p, s.kinds[k], s.values[k], t.values[k]);
  }
  return is && (a->like > 0) == (b->like > 0);
}

static bool is_same_schedule(const hr_schedule *a, const hr_schedule *b) {
  schedule_pair p = {a, b, calloc((size_t)a->program.buffer_count + 1, sizeof(int64_t))};
  bool is = a->step_count == b->step_count && a->arena_bytes == b->arena_bytes && a->all_count == b->all_count &&
            a->elided_count == b->elided_count && a->group_count == b->group_count &&
            a->origin_bytes == b->origin_bytes && memcmp(a->origins, b->origins, a->origin_bytes) == 0;
  if (!is) {
    fprintf(stderr, "schedules differ in their sizes or origins: %d, %d steps\n", a->step_count, b->step_count);
  }
  for (int i = 0; is && i < a->step_count; ++i) {
    is = is_same_step(&p, i);
    if (!is) {
      fprintf(stderr, "schedules differ in step %d of %d\n", i, a->step_count);
    }
  }
  free(p.names);
  return is;
}

#endif
