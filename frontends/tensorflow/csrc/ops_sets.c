/* ops_sets.c: the rule of operations on sets: the last dim of a sparse tensor has the elements of a set, the others
 * number the sets. Its inputs are in the host's memory, since the dims of the result follow from them.
 */
#include <stdlib.h>
#include <string.h>

#include "node.h"

typedef struct member {
  int64_t set, value;
} member;

typedef struct sets {
  member *members; /* in order, each once */
  int64_t count;
  int rank;
  int64_t dims[HR_RANK_MAX];
} sets;

static int compare_members(const void *a, const void *b) {
  const member *x = a, *y = b;
  int by_set = (x->set > y->set) - (x->set < y->set);
  return by_set != 0 ? by_set : (x->value > y->value) - (x->value < y->value);
}

static void check_bounds(htf_node *node, const sets *s, const int64_t *place, int64_t i) {
  for (int d = 0; d < s->rank; ++d) {
    if (place[d] < 0 || place[d] >= s->dims[d]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "indices[%lld] = %s is out of bounds: need 0 <= index < %s",
               (long long)i, htf_text_of_dims(s->rank, place).text, htf_text_of_dims(s->rank, s->dims).text);
      return;
    }
  }
}

/* Behind the place of the member in front of it, of which it is the next one in memory. */
static void check_order(htf_node *node, const sets *s, const int64_t *place, int64_t i) {
  const int64_t *last = place - s->rank;
  int d = 0;
  while (d < s->rank && place[d] == last[d]) {
    ++d;
  }
  if (d == s->rank || place[d] < last[d]) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "indices[%lld] = %s is %s", (long long)i,
             htf_text_of_dims(s->rank, place).text,
             d == s->rank ? "repeated" : "out of order. Many sparse ops require sorted indices");
  }
}

/* Numbers the sets of the members; fails if a place is outside, or sets have no numbers. */
static void place_members(htf_node *node, sets *s, const int64_t *places, const int64_t *values) {
  bool is_ordered = htf_flag(node, "validate_indices");
  int64_t most = 1;
  for (int d = 0; d + 1 < s->rank && !htf_has_failed(node); ++d) {
    if (__builtin_mul_overflow(most, s->dims[d] > 0 ? s->dims[d] : 1, &most)) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: dims %s have more than 2^63 sets", node->kernel->row->op,
               htf_text_of_dims(s->rank, s->dims).text);
    }
  }
  for (int64_t i = 0; i < s->count && !htf_has_failed(node); ++i) {
    const int64_t *place = places + i * s->rank;
    check_bounds(node, s, place, i);
    if (is_ordered && i > 0 && !htf_has_failed(node)) {
      check_order(node, s, place, i);
    }
    s->members[i] = (member){0, values[i]};
    for (int d = 0; d + 1 < s->rank && !htf_has_failed(node); ++d) {
      s->members[i].set = s->members[i].set * s->dims[d] + place[d];
    }
  }
}

/* Inputs `first` to `first` + 2: places, values and dims. */
static sets read_sets(htf_node *node, int first) {
  sets s = {.count = 0};
  int64_t place_count, *places = htf_host_numbers(node, first, &place_count);
  int64_t *values = htf_host_numbers(node, first + 1, &s.count);
  s.rank = htf_host_ints(node, first + 2, s.dims, HR_RANK_MAX);
  if (!htf_has_failed(node) && s.rank < 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Invalid rank %d.", s.rank);
  } else if (!htf_has_failed(node) && place_count != s.count * s.rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: %lld values of %d dims need %lld indices, there are %lld",
             node->kernel->row->op, (long long)s.count, s.rank, (long long)(s.count * s.rank), (long long)place_count);
  }
  s.members = htf_has_failed(node) ? NULL : htf_new_argument(node, (size_t)(s.count + 1) * sizeof *s.members);
  if (s.members != NULL) {
    place_members(node, &s, places, values);
    qsort(s.members, (size_t)s.count, sizeof *s.members, compare_members);
    int64_t kept = 0;
    for (int64_t i = 0; i < s.count; ++i) {
      if (kept == 0 || compare_members(&s.members[kept - 1], &s.members[i]) != 0) {
        s.members[kept++] = s.members[i];
      }
    }
    s.count = kept;
  }
  free(places);
  free(values);
  return s;
}

typedef struct choice {
  bool first, second, both; /* members of one operand alone, or of both */
} choice;

static choice read_choice(htf_node *node) {
  static const struct {
    const char *name;
    choice members;
  } operations[] = {{"a-b", {true, false, false}},
                    {"b-a", {false, true, false}},
                    {"intersection", {false, false, true}},
                    {"union", {true, true, true}}};
  for (size_t i = 0; i < sizeof operations / sizeof *operations; ++i) {
    if (strcmp(htf_text(node, "set_operation"), operations[i].name) == 0) {
      return operations[i].members;
    }
  }
  htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Invalid set_operation %s.", htf_text(node, "set_operation"));
  return (choice){false, false, false};
}

/* Walks both in order; `out` has room for all members. */
static int64_t merge(const sets *a, const sets *b, choice c, member *out) {
  int64_t i = 0, j = 0, count = 0;
  while (i < a->count || j < b->count) {
    int order = i == a->count ? 1 : j == b->count ? -1 : compare_members(&a->members[i], &b->members[j]);
    const member *here = order <= 0 ? &a->members[i] : &b->members[j];
    if (order < 0 ? c.first : order > 0 ? c.second : c.both) {
      out[count++] = *here;
    }
    i += order <= 0, j += order >= 0;
  }
  return count;
}

/* Places, values and dims of the result; its last dim is the size of the largest set. */
static void output_sets(htf_node *node, const sets *like, const member *members, int64_t count) {
  int64_t *numbers = htf_new_argument(node, (size_t)(count + 1) * (size_t)(like->rank + 1) * sizeof *numbers);
  int64_t dims[HR_RANK_MAX], most = 0, place = 0;
  if (numbers == NULL) {
    return;
  }
  int64_t *values = numbers + count * like->rank;
  for (int64_t i = 0; i < count; ++i) {
    int64_t set = members[i].set;
    place = i > 0 && members[i - 1].set == set ? place + 1 : 0;
    most = place + 1 > most ? place + 1 : most;
    for (int d = like->rank - 2; d >= 0; --d) {
      numbers[i * like->rank + d] = set % like->dims[d], set /= like->dims[d];
    }
    numbers[i * like->rank + like->rank - 1] = place, values[i] = members[i].value;
  }
  memcpy(dims, like->dims, sizeof dims);
  dims[like->rank - 1] = most;
  const int64_t matrix[2] = {count, like->rank};
  htf_output(node, 0, htf_reshape(node, htf_constant(node, HR_DTYPE_I64, count * like->rank, numbers), 2, matrix));
  htf_output(node, 1, htf_constant(node, HR_DTYPE_I64, count, values));
  htf_output(node, 2, htf_constant(node, HR_DTYPE_I64, like->rank, dims));
  free(numbers);
}

/* Inputs: places, values and dims of both. */
void htf_sparse_set_operation(htf_node *node) {
  choice c = read_choice(node);
  sets a = read_sets(node, 0), b = read_sets(node, 3);
  bool fits =
      htf_has_failed(node) || (a.rank == b.rank && memcmp(a.dims, b.dims, sizeof *a.dims * (size_t)(a.rank - 1)) == 0);
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Mismatched group dims: %s and %s but for the last ones",
             htf_text_of_dims(a.rank, a.dims).text, htf_text_of_dims(b.rank, b.dims).text);
  }
  member *members =
      htf_has_failed(node) ? NULL : htf_new_argument(node, (size_t)(a.count + b.count + 1) * sizeof *members);
  if (members != NULL) {
    output_sets(node, &a, members, merge(&a, &b, c, members));
  }
  free(members);
  free(a.members);
  free(b.members);
}
