/* hasten.c: moves groups that use up a large temporary to where it has been made.
 *
 *   before   %g = matmul | %h = matmul | %p = sub_scaled(%p, %g) | %q = sub_scaled(%q, %h)
 *   after    %g = matmul | %p = sub_scaled(%p, %g) | %h = matmul | %q = sub_scaled(%q, %h)
 *
 * A training step as one function has its optimizer at the end. All gradients then exist at once, and each comes from
 * memory again, because the caches hold later ones.
 *
 * A group moves to right behind the last group that it must not pass. It is the last one that touches the temporary,
 * and makes none itself, which would live longer. No write to memory older than the program passes a node that may
 * fail. If something is left between them, the library's call that makes the temporary moves, too: a host then hands
 * its result over in parts (engine/batch.c).
 *
 *   before   %g = matmul | %x = matmul(%y, %p) | %p = sub_scaled(%p, %g)
 *   after    %x = matmul(%y, %p) | %g = matmul | %p = sub_scaled(%p, %g)
 */
#include "base/integer.h"
#include "compiler/passes.h"

/* Of a buffer; -1: none. Places are numbers of groups that stay. */
typedef struct seen {
  int writer, reader; /* the last places at which a group before the present one does so */
  int first, last;    /* groups that touch it */
  int groups;         /* their number */
} seen;

typedef struct hastening {
  const hr_program *program;
  const hr_fusion *fusion;
  seen *buffers;
  int *places; /* of groups: behind which one each runs; a group that stays has its own number */
  int *makers; /* of groups: the one that runs right before it, wherever it was; -1: none */
  int failure; /* the last group so far that may fail */
} hastening;

static const hr_touch *touches_of(const hastening *h, const hr_group *group, int k, const hr_touch **out_end) {
  *out_end = hr_touches_end(&h->fusion->touches, group->nodes[k]);
  return hr_touches_begin(&h->fusion->touches, group->nodes[k]);
}

static bool is_temporary(const hastening *h, uint32_t buffer) {
  return h->program->buffers[buffer].is_dead && h->program->buffers[buffer].is_fresh;
}

static int later(int a, int b) {
  return a > b ? a : b;
}

static void find_ends(const hastening *h) {
  for (int g = 0; g < h->fusion->group_count; ++g) {
    for (int k = 0; k < h->fusion->groups[g].node_count; ++k) {
      const hr_touch *end;
      for (const hr_touch *t = touches_of(h, &h->fusion->groups[g], k, &end); t < end; ++t) {
        seen *buffer = &h->buffers[t->buffer];
        buffer->groups = buffer->last == g ? buffer->groups : hr_max(buffer->groups, 0) + 1;
        buffer->first = buffer->first < 0 ? g : buffer->first;
        buffer->last = g;
      }
    }
  }
}

/* True if group g uses up a temporary of so many bytes, and makes none. */
static bool is_worth_moving(const hastening *h, int g, int64_t bytes) {
  const hr_group *group = &h->fusion->groups[g];
  bool uses_up = false, makes = false;
  for (int k = 0; group->is_loop && k < group->node_count; ++k) {
    const hr_touch *end;
    for (const hr_touch *t = touches_of(h, group, k, &end); t < end; ++t) {
      const seen *buffer = &h->buffers[t->buffer];
      if (is_temporary(h, t->buffer)) {
        makes |= t->is_write && buffer->last > g;
        uses_up |= buffer->first < g && buffer->last == g && (int64_t)h->program->buffers[t->buffer].bytes >= bytes;
      }
    }
  }
  return uses_up && !makes;
}

/* The place of the last group that group g must not pass; -1: there is none. */
static int find_place(const hastening *h, int g) {
  const hr_group *group = &h->fusion->groups[g];
  int place = -1;
  for (int k = 0; k < group->node_count; ++k) {
    const hr_touch *end;
    for (const hr_touch *t = touches_of(h, group, k, &end); t < end; ++t) {
      place = later(place, h->buffers[t->buffer].writer);
      place = t->is_write ? later(place, h->buffers[t->buffer].reader) : place;
      place = t->is_write && !h->program->buffers[t->buffer].is_fresh ? later(place, h->failure) : place;
    }
  }
  return place;
}

/* True if group g, a library's call, may run behind a later place instead of where it is. */
static bool may_wait(const hastening *h, int g) {
  const hr_group *group = &h->fusion->groups[g];
  const hr_touch *end;
  bool may = !group->is_loop && group->node_count == 1 && h->places[g] == g &&
             !hr_may_fail(&h->program->nodes[group->nodes[0]]);
  for (const hr_touch *t = touches_of(h, group, 0, &end); may && t < end; ++t) {
    const seen *buffer = &h->buffers[t->buffer];
    may = t->is_write ? is_temporary(h, t->buffer) && buffer->groups == 2 : buffer->writer < g;
  }
  return may;
}

/* The group that makes a temporary for group g alone, and may run right before it; -1: there is none. */
static int find_maker(const hastening *h, int g, int64_t bytes) {
  const hr_group *group = &h->fusion->groups[g];
  for (int k = 0; k < group->node_count; ++k) {
    const hr_touch *end;
    for (const hr_touch *t = touches_of(h, group, k, &end); t < end; ++t) {
      int maker = h->buffers[t->buffer].first;
      bool is_large = is_temporary(h, t->buffer) && (int64_t)h->program->buffers[t->buffer].bytes >= bytes;
      if (is_large && maker < g && h->buffers[t->buffer].last == g && may_wait(h, maker)) {
        return maker;
      }
    }
  }
  return -1;
}

static void note(hastening *h, int g) {
  const hr_group *group = &h->fusion->groups[g];
  for (int k = 0; k < group->node_count; ++k) {
    const hr_touch *end;
    h->failure = hr_may_fail(&h->program->nodes[group->nodes[k]]) ? g : h->failure;
    for (const hr_touch *t = touches_of(h, group, k, &end); t < end; ++t) {
      int *last = t->is_write ? &h->buffers[t->buffer].writer : &h->buffers[t->buffer].reader;
      *last = later(*last, h->places[g]);
    }
  }
}

/* False: all groups stay. */
static bool find_places(hastening *h, int64_t bytes) {
  bool moves = false;
  find_ends(h);
  for (int g = 0; g < h->fusion->group_count; ++g) {
    int place = is_worth_moving(h, g, bytes) ? find_place(h, g) : -1;
    h->places[g] = place >= 0 ? place : g;
    h->makers[g] = place >= 0 ? find_maker(h, g, bytes) : -1;
    moves |= h->places[g] < g - 1;
    if (h->makers[g] >= 0 && h->makers[g] < place) {
      h->places[h->makers[g]] = place;
      note(h, h->makers[g]);
      moves = true;
    } else {
      h->makers[g] = -1;
    }
    note(h, g);
  }
  return moves;
}

static void put(const hastening *h, int g, int *next, hr_group *out_groups, int *out_node_group) {
  const hr_group *group = &h->fusion->groups[g];
  int to = next[h->places[g]]++;
  hr_group_copy(&out_groups[to], group);
  for (int k = 0; k < group->node_count; ++k) {
    out_node_group[group->nodes[k]] = to;
  }
}

/* Groups of one place keep their order, but for those that were made to wait, which have a later one. `next` has room
 * for all groups. */
static void sort_groups(const hastening *h, int *next, hr_group *out_groups, int *out_node_group) {
  int count = h->fusion->group_count;
  for (int g = 0; g < count; ++g) {
    next[g] = 0;
  }
  for (int g = 0; g < count; ++g) {
    ++next[h->places[g]];
  }
  for (int g = 0, before = 0; g < count; ++g) {
    int own = next[g];
    next[g] = before;
    before += own;
  }
  for (int g = 0; g < count; ++g) {
    if (h->makers[g] >= 0) {
      put(h, h->makers[g], next, out_groups, out_node_group);
    }
    if (h->places[g] <= g) {
      put(h, g, next, out_groups, out_node_group);
    }
  }
}

hr_status hr_hasten(hr_program *program, const hr_target *target, hr_fusion *fusion) {
  enum { MEMBERS = sizeof(seen) / sizeof(int) };
  if (target->hasten_bytes == 0) {
    return HR_OK;
  }
  hastening h = {.program = program,
                 .fusion = fusion,
                 .buffers = (seen *)(void *)hr_program_indices(program, program->buffer_count * MEMBERS),
                 .places = hr_program_indices(program, fusion->group_count),
                 .makers = hr_program_indices(program, fusion->group_count),
                 .failure = -1};
  hr_group *groups = hr_arena_alloc(&program->arena, ((size_t)fusion->group_count + 1) * sizeof *groups);
  int *next = hr_program_indices(program, fusion->group_count),
      *node_group = hr_program_indices(program, program->node_count);
  if (h.buffers == NULL || h.places == NULL || h.makers == NULL || groups == NULL || next == NULL ||
      node_group == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "hasten: no memory for %d groups", fusion->group_count);
  }
  if (find_places(&h, target->hasten_bytes)) {
    sort_groups(&h, next, groups, node_group);
    fusion->groups = groups;
    fusion->node_group = node_group;
  }
  return HR_OK;
}
