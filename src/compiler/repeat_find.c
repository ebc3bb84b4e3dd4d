/* repeat_find.c: finds the records that repeat.
 *
 * A candidate is a distance at which records are alike, by a cheap hash, for long enough. Its records are then compared
 * word by word with those one period later: all but buffers, scalars and offsets must be equal, and each of these must
 * grow by the same number from each period to the next. The most periods of which that is true, around the middle one,
 * are the repeat.
 */
#include "compiler/repeat_find.h"

#include <string.h>

#include "base/hash.h"

enum { PERIODS_MIN = 12, LENGTH_MAX = 512, TRIES_MAX = 8, NONE = -1 };

typedef struct finder {
  const hr_program *program;
  hr_found *found;
  uint32_t *hashes;
  int *next;   /* of each record: the next one with its hash */
  int *unlike; /* of each length: a record that is unlike the one a period later, the last one found */
  bool failed;
} finder;

/* ---- candidates ---- */

static uint32_t hash_of(const hr_node *node) {
  uint64_t h = hr_hash_mix(HR_HASH_SEED, (uint64_t)node->op << 32 | (uint64_t)node->int_count);
  h = hr_hash_mix(h, (uint64_t)node->input_count << 32 | (uint64_t)node->output_count);
  const hr_operand *x = node->output_count > 0 ? &node->outputs[0] : NULL;
  if (x != NULL && x->kind == HR_OPERAND_VALUE && x->rank > 0) {
    h = hr_hash_mix(h, (uint64_t)x->dims[0] ^ (uint64_t)x->dims[x->rank - 1] << 32);
  }
  return (uint32_t)(h ^ h >> 32);
}

static bool find_next(finder *f) {
  const int count = f->program->node_count;
  size_t mask = 1;
  while (mask < 2 * (size_t)count) {
    mask = 2 * mask + 1;
  }
  int *later = hr_arena_alloc(&f->found->arena, (mask + 1) * sizeof *later);
  if (later == NULL) {
    return false;
  }
  memset(later, 0xff, (mask + 1) * sizeof *later);
  for (int i = count - 1; i >= 0; --i) {
    f->hashes[i] = hash_of(&f->program->nodes[i]);
    size_t at = f->hashes[i] & mask;
    while (later[at] != NONE && f->hashes[later[at]] != f->hashes[i]) {
      at = (at + 1) & mask;
    }
    f->next[i] = later[at];
    later[at] = i;
  }
  return true;
}

/* The number of records from `first` on that are like those `length` later; 0: surely too few. */
static int count_alike(const finder *f, int first, int length) {
  const int count = f->program->node_count, least = (PERIODS_MIN - 1) * length;
  int known = f->unlike[length], at = first;
  if (first + length + least > count || (known >= first && known < first + least)) {
    return 0;
  }
  while (at + length < count && f->hashes[at] == f->hashes[at + length]) {
    ++at;
  }
  f->unlike[length] = at;
  return at - first >= least ? at - first : 0;
}

/* A length of which enough periods begin at a record; 0: none. */
static int find_length(const finder *f, int first, int *out_count) {
  int later = f->next[first];
  for (int tries = 0; tries < TRIES_MAX && later != NONE && later - first <= LENGTH_MAX; ++tries) {
    int alike = count_alike(f, first, later - first);
    if (alike > 0) {
      *out_count = alike / (later - first) + 1;
      return later - first;
    }
    later = f->next[later];
  }
  return 0;
}

/* ---- comparing ---- */

static bool are_equal(const int64_t *a, const int64_t *b, int count) {
  bool are = true;
  for (int i = 0; are && a != b && i < count; ++i) {
    are = a[i] == b[i];
  }
  return are;
}

static bool match_operands(const hr_program *program, const hr_operand *a, const hr_operand *b) {
  if (a->kind != b->kind || a->dtype != b->dtype || a->rank != b->rank || a->fill != b->fill ||
      (a->term_count | b->term_count | a->bound_count | b->bound_count) != 0) {
    return false;
  }
  if (a->kind == HR_OPERAND_SCALAR) {
    return program->scalars[a->index].dtype == program->scalars[b->index].dtype;
  }
  return a->kind != HR_OPERAND_VALUE ||
         (are_equal(a->dims, b->dims, a->rank) && are_equal(a->strides, b->strides, a->rank));
}

static bool match_scalars(const hr_program *program, const hr_node *a, const hr_node *b) {
  bool do_match = true;
  for (uint32_t i = 0; do_match && i < (uint32_t)a->scalar_count; ++i) {
    do_match = program->scalars[a->scalar_base + i].dtype == program->scalars[b->scalar_base + i].dtype;
  }
  return do_match;
}

static bool match_nodes(const hr_program *program, const hr_node *a, const hr_node *b) {
  if (a->op != b->op || a->input_count != b->input_count || a->output_count != b->output_count ||
      a->int_count != b->int_count || a->scalar_count != b->scalar_count || a->is_loop || b->is_loop ||
      (a->epilogue_count | b->epilogue_count) != 0 || !are_equal(a->ints, b->ints, a->int_count)) {
    return false;
  }
  bool do_match = match_scalars(program, a, b);
  for (int i = 0; do_match && i < a->input_count + a->output_count; ++i) {
    do_match = match_operands(program, hr_node_operand(a, i), hr_node_operand(b, i));
  }
  return do_match;
}

static hr_found_slot compare_operands(const hr_operand *a, const hr_operand *b) {
  bool has_number = a->kind == HR_OPERAND_VALUE || a->kind == HR_OPERAND_SCALAR;
  return (hr_found_slot){has_number ? (int64_t)b->index - (int64_t)a->index : 0,
                         a->kind == HR_OPERAND_VALUE ? b->offset - a->offset : 0};
}

static hr_found_slot compare_bases(const hr_node *a, const hr_node *b) {
  return (hr_found_slot){a->scalar_count > 0 ? (int64_t)b->scalar_base - (int64_t)a->scalar_base : 0, 0};
}

static inline bool is_same_slot(hr_found_slot a, hr_found_slot b) {
  return a.step == b.step && a.move == b.move;
}

/* Finds the slots of the period that begins at record `first`; false if it is unlike the next one. */
static bool find_slots(const finder *f, int first, int length, hr_found_slot *out_slots) {
  for (int k = 0; k < length; ++k) {
    const hr_node *a = &f->program->nodes[first + k], *b = a + length;
    if (!match_nodes(f->program, a, b)) {
      return false;
    }
    for (int i = 0; i < a->input_count + a->output_count; ++i) {
      *out_slots++ = compare_operands(hr_node_operand(a, i), hr_node_operand(b, i));
    }
    *out_slots++ = compare_bases(a, b);
  }
  return true;
}

/* True if the period is like the next one, and has these slots. */
static bool has_slots(const finder *f, int first, int length, const hr_found_slot *slots) {
  for (int k = 0; k < length; ++k) {
    const hr_node *a = &f->program->nodes[first + k], *b = a + length;
    bool has = match_nodes(f->program, a, b);
    for (int i = 0; has && i < a->input_count + a->output_count; ++i) {
      has = is_same_slot(compare_operands(hr_node_operand(a, i), hr_node_operand(b, i)), *slots++);
    }
    if (!has || !is_same_slot(compare_bases(a, b), *slots++)) {
      return false;
    }
  }
  return true;
}

static size_t count_slots(const hr_program *program, int first, int length) {
  size_t count = 0;
  for (int k = 0; k < length; ++k) {
    const hr_node *node = &program->nodes[first + k];
    count += (size_t)(node->input_count + node->output_count) + 1;
  }
  return count;
}

/* ---- the numbers that belong to periods ---- */

/* Of each record: the buffers and scalars that are numbered before it. */
static bool find_tops(hr_found *found, const hr_program *program) {
  size_t count = (size_t)program->node_count + 1;
  uint32_t buffers = 0, scalars = 0;
  found->buffer_tops = hr_arena_alloc(&found->arena, count * sizeof *found->buffer_tops);
  found->scalar_tops = hr_arena_alloc(&found->arena, count * sizeof *found->scalar_tops);
  if (found->buffer_tops == NULL || found->scalar_tops == NULL) {
    return false;
  }
  for (int n = 0; n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    found->buffer_tops[n] = buffers, found->scalar_tops[n] = scalars;
    uint32_t end = node->scalar_count > 0 ? node->scalar_base + (uint32_t)node->scalar_count : 0;
    scalars = end > scalars ? end : scalars;
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      const hr_operand *x = hr_node_operand(node, i);
      if (x->kind == HR_OPERAND_VALUE) {
        buffers = x->index >= buffers ? x->index + 1 : buffers;
      } else if (x->kind == HR_OPERAND_SCALAR) {
        scalars = x->index >= scalars ? x->index + 1 : scalars;
      }
    }
  }
  found->buffer_tops[program->node_count] = buffers, found->scalar_tops[program->node_count] = scalars;
  return true;
}

static bool find_span(const uint32_t *tops, const hr_found_repeat *r, hr_repeat_span *out_span) {
  uint32_t first = tops[r->first], size = tops[r->first + r->length] - first;
  *out_span = (hr_repeat_span){first, size};
  return tops[r->first + r->length * r->count] - first == size * (uint32_t)r->count;
}

/* ---- repeats ---- */

/* The periods around the middle one of a candidate that have its slots; false: there are too few. */
static bool find_periods(finder *f, hr_found_repeat *r) {
  int low = r->count / 2 - 1, high = low, first = r->first;
  size_t count = count_slots(f->program, r->first + low * r->length, r->length);
  hr_found_slot *slots = hr_arena_alloc(&f->found->arena, count * sizeof *slots);
  if (slots == NULL) {
    f->failed = true;
    return false;
  }
  if (!find_slots(f, first + low * r->length, r->length, slots)) {
    f->unlike[r->length] = first + low * r->length; /* some record of this period; no later candidate includes it */
    return false;
  }
  while (low > 0 && has_slots(f, first + (low - 1) * r->length, r->length, slots)) {
    --low;
  }
  while (high + 2 < r->count && has_slots(f, first + (high + 1) * r->length, r->length, slots)) {
    ++high;
  }
  f->unlike[r->length] = first + (high + 1) * r->length;
  r->first = first + low * r->length;
  r->count = high - low + 2;
  r->slots = slots, r->slot_count = count;
  return r->count >= PERIODS_MIN;
}

static bool add_repeat(finder *f, hr_found_repeat *r) {
  hr_found *found = f->found;
  if (found->buffer_tops == NULL && !find_tops(found, f->program)) {
    f->failed = true;
    return false;
  }
  bool is = found->count < HR_REPEATS_MAX && find_span(found->buffer_tops, r, &r->buffers) &&
            find_span(found->scalar_tops, r, &r->scalars);
  if (is) {
    found->all[found->count++] = *r;
  }
  return is;
}

static void find_all(finder *f) {
  for (int i = 0; !f->failed && i < f->program->node_count;) {
    hr_found_repeat r = {.first = i};
    r.length = find_length(f, i, &r.count);
    bool is = r.length > 0 && find_periods(f, &r) && add_repeat(f, &r);
    i = is ? r.first + r.length * r.count : i + 1;
  }
}

bool hr__repeats_search(const hr_program *program, hr_found *out_found) {
  size_t count = (size_t)program->node_count + 1;
  hr_arena *arena = &out_found->arena;
  *out_found = (hr_found){.count = 0};
  finder f = {.program = program, .found = out_found};
  f.hashes = hr_arena_alloc(arena, count * sizeof *f.hashes);
  f.next = hr_arena_alloc(arena, count * sizeof *f.next);
  f.unlike = hr_arena_alloc(arena, (LENGTH_MAX + 1) * sizeof *f.unlike);
  if (f.hashes == NULL || f.next == NULL || f.unlike == NULL || !find_next(&f)) {
    return false;
  }
  memset(f.unlike, 0xff, (LENGTH_MAX + 1) * sizeof *f.unlike);
  find_all(&f);
  return !f.failed;
}
