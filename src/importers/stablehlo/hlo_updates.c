/* hlo_updates.c: elements that become a region's results for them and new values, at places that may occur often.
 *
 * Known regions are a row. Any other one is called in rounds: the first value of each place, then the second one, and
 * so on, as many rounds as the most frequent place has values. A loop of the graph repeats them.
 */
#include <stdio.h>

#include "importers/stablehlo/hlo.h"

/* ---- rows ---- */

static hr_value put(hr__hlo *hlo, hr_value x, hr_value at, hr_value values, const char *mode) {
  return ADD(hlo, PUT_ALONG_AXIS, IN(x, at, values),
             WITH(hr__with_int("axis", 0), hr__with_text("mode", mode), hr__with_text("bounds", "drop")));
}

static bool update_by_row(hr__hlo *hlo, hr__hlo_combiner combiner, hr_value *x, hr_value at, hr_value values) {
  static const char *const modes[HR__HLO_COMBINERS] = {NULL, "set", "add", "multiply", "max", "min", "min", "max"};
  hr_type type;
  if (modes[combiner] == NULL || !hr__hlo_type(hlo, *x, &type)) {
    return false;
  }
  bool is_flag = type.dtype == HR_DTYPE_BOOL;
  hr_value from = is_flag ? hr__hlo_cast(hlo, *x, HR_DTYPE_U8) : *x;
  values = is_flag ? hr__hlo_cast(hlo, values, HR_DTYPE_U8) : values;
  hr_value y = put(hlo, from, at, values, modes[combiner]);
  *x = is_flag ? hr__hlo_cast(hlo, y, HR_DTYPE_BOOL) : y;
  return true;
}

/* ---- rounds ---- */

enum { OUTER_MAX = 64, FIXED = 4 }; /* inputs of the loop beside the tensors, their values and those from outside */
enum { INPUTS_MAX = 2 * HR__HLO_OPERANDS_MAX + OUTER_MAX + FIXED };

typedef struct rounds {
  hr__hlo *hlo;
  const hr__vhlo_region *region;
  int count;                /* of tensors */
  int64_t places;           /* elements of `at` */
  hr_value at, round, last; /* places in order, the round of each, and the last round */
  hr_value values[HR__HLO_OPERANDS_MAX];
  int outer_count;
  hr__vhlo_value *outer[OUTER_MAX]; /* values outside of the region that it reads */
} rounds;

/* Places in order; values of one place keep their order. */
static void begin(rounds *r, hr_value at, const hr_value *values) {
  hr__hlo *hlo = r->hlo;
  hr_value zero = hr__hlo_whole(hlo, 0);
  hr_value numbers =
      ADD(hlo, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)r->places), hr__with_dtype("dtype", HR_DTYPE_I64)));
  r->at = ADD(hlo, SORT, IN(at), WITH(hr__with_int("axis", 0)));
  if (r->at == 0) {
    return;
  }
  for (int i = 0; i < r->count; ++i) {
    r->values[i] = ADD(hlo, TAKE, IN(values[i], r->at + 1), WITH(hr__with_int("axis", 0)));
  }
  hr_value before = ADD(hlo, ROLL, IN(r->at), WITH(hr__with_int("shift", 1), hr__with_int("axis", 0)));
  hr_value first = CALL(hlo, WHERE, CALL(hlo, NOT_EQUAL, r->at, before), numbers, zero);
  first = ADD(hlo, CUMULATIVE_MAX, IN(first), WITH(hr__with_int("axis", 0)));
  hr_value round = CALL(hlo, SUBTRACT, numbers, first);
  r->round = CALL(hlo, WHERE, CALL(hlo, LESS, r->at, zero), zero, round);
  r->last = ADD(hlo, MAX, IN(r->round), 0, NULL);
}

static hr_value add_input(hr_graph *graph, int number, const hr_type *type) {
  char name[32];
  snprintf(name, sizeof name, "v%d", number);
  return hr_graph_input(graph, name, type);
}

/* The carried ones first: the round, the tensors; then the last round, the places, their rounds, the values, and those
 * from outside. */
static void add_inputs(const rounds *r, const hr_value *arguments, hr_graph *graph, hr_value *out) {
  for (int i = 0; i < 2 * r->count + r->outer_count + FIXED; ++i) {
    hr_type type = {0};
    hr_status_ignore(hr_graph_type(r->hlo->graph, arguments[i], &type));
    out[i] = add_input(graph, i, &type);
  }
}

static hr_status fill_condition(const rounds *r, const hr_value *arguments, hr_graph *graph) {
  hr_value in[INPUTS_MAX];
  add_inputs(r, arguments, graph, in);
  hr_value flag = hr_graph_add(graph, HR_FUNCTIONAL_LESS_EQUAL, IN(in[0], in[1 + r->count]), PLAIN);
  hr_graph_output(graph, "o0", flag);
  return hr_graph_status(graph);
}

/* The region's results, with the values from outside as those of the loop's graph. */
static bool combine(const rounds *r, hr__hlo *inner, const hr_value *old, const hr_value *values, hr_value *now) {
  hr_value saved[OUTER_MAX];
  for (int i = 0; i < r->outer_count; ++i) {
    saved[i] = r->outer[i]->value, r->outer[i]->value = values[r->count + i];
  }
  bool is_done = hr__hlo_combine_all(inner, r->region, r->count, old, values, now);
  for (int i = 0; i < r->outer_count; ++i) {
    r->outer[i]->value = saved[i];
  }
  return is_done;
}

static hr_status fill_body(const rounds *r, const hr_value *arguments, hr_graph *graph) {
  hr_value in[INPUTS_MAX], old[HR__HLO_OPERANDS_MAX], now[HR__HLO_OPERANDS_MAX];
  hr__hlo inner = {.import = r->hlo->import, .graph = graph, .op = r->hlo->op};
  add_inputs(r, arguments, graph, in);
  const hr_value *x = in + 1, *fixed = x + r->count; /* last, at, round, values */
  hr_value none = hr__hlo_full(&inner, hr_scalar_i64(-1), HR_DTYPE_I64, 0, NULL);
  hr_value at = CALL(&inner, WHERE, CALL(&inner, EQUAL, fixed[2], in[0]), fixed[1], none);
  hr_value inside = CALL(&inner, MAXIMUM, fixed[1], hr__hlo_whole(&inner, 0));
  for (int i = 0; i < r->count; ++i) {
    old[i] = ADD(&inner, TAKE, IN(x[i], inside), WITH(hr__with_int("axis", 0), hr__with_text("mode", "clip")));
  }
  hr_graph_output(graph, "o0", CALL(&inner, ADD, in[0], hr__hlo_whole(&inner, 1)));
  if (combine(r, &inner, old, fixed + 3, now)) {
    for (int i = 0; i < r->count; ++i) {
      char name[32];
      snprintf(name, sizeof name, "o%d", 1 + i);
      hr_type type = {0};
      hr_status_ignore(hr_graph_type(graph, x[i], &type)); /* f32 for a region's floats of 8 bits */
      hr_graph_output(graph, name, put(&inner, x[i], at, hr__hlo_cast(&inner, now[i], type.dtype), "set"));
    }
  }
  return hr_graph_status(graph);
}

static hr_graph *graph_of(const rounds *r, const hr_value *arguments,
                          hr_status (*fill)(const rounds *r, const hr_value *arguments, hr_graph *graph)) {
  hr__hlo_import *import = r->hlo->import;
  hr_graph *graph = NULL, *outer = import->graph;
  hr_status status = hr_graph_create(&graph);
  if (status == HR_OK) {
    import->graph = graph;
    status = fill(r, arguments, graph);
    import->graph = outer;
  }
  if (status != HR_OK) {
    hr__hlo_fail_with(r->hlo, status);
    hr_graph_release(graph);
    return NULL;
  }
  return graph;
}

static void update_in_rounds(const rounds *r, hr_value *x) {
  hr__hlo *hlo = r->hlo;
  hr_value arguments[INPUTS_MAX];
  int count = 0;
  arguments[count++] = hr__hlo_full(hlo, hr_scalar_i64(0), HR_DTYPE_I64, 0, NULL);
  for (int i = 0; i < r->count; ++i) {
    arguments[count++] = x[i];
  }
  arguments[count++] = r->last, arguments[count++] = r->at, arguments[count++] = r->round;
  for (int i = 0; i < r->count; ++i) {
    arguments[count++] = r->values[i];
  }
  for (int i = 0; i < r->outer_count; ++i) {
    arguments[count++] = r->outer[i]->value;
  }
  hr_graph *condition = hr__hlo_failed(hlo) ? NULL : graph_of(r, arguments, fill_condition);
  hr_graph *body = condition != NULL ? graph_of(r, arguments, fill_body) : NULL;
  if (body != NULL) {
    hr_value first = hr_graph_while(hlo->graph, condition, body, 1 + r->count, count, arguments);
    for (int i = 0; i < r->count; ++i) {
      x[i] = first != 0 ? first + 1 + i : 0;
    }
  }
  hr_graph_release(condition);
  hr_graph_release(body);
}

static bool add_outer(rounds *r, hr__vhlo_value *value) {
  bool is_known = value->region >= r->region->number && value->region < r->region->end;
  for (int i = 0; i < r->outer_count && !is_known; ++i) {
    is_known = r->outer[i] == value;
  }
  if (!is_known && r->outer_count < OUTER_MAX) {
    r->outer[r->outer_count++] = value;
    is_known = true;
  }
  return is_known;
}

/* Values outside of the region that its operations read. False: there are too many. */
static bool collect(rounds *r, const hr__vhlo_region *region) {
  bool has_room = true;
  for (int i = 0; i < region->op_count && has_room; ++i) {
    const hr__vhlo_op *op = &region->ops[i];
    for (int k = 0; k < op->operand_count && has_room; ++k) {
      has_room = add_outer(r, op->operands[k]);
    }
    for (int k = 0; k < op->region_count && has_room; ++k) {
      has_room = collect(r, &op->regions[k]);
    }
  }
  return has_room;
}

void hr__hlo_update(hr__hlo *hlo, const hr__vhlo_region *region, int count, hr_value *x, int64_t size, hr_value at,
                    int64_t places, const hr_value *updates) {
  bool has_rows = true;
  for (int i = 0; i < count; ++i) {
    has_rows = has_rows && hr__hlo_combiner_of(hlo, region, i) != HR__HLO_OTHER;
  }
  for (int i = 0; i < count && has_rows; ++i) {
    update_by_row(hlo, hr__hlo_combiner_of(hlo, region, i), &x[i], at, updates[i]);
  }
  if (has_rows || size == 0 || places == 0) {
    return;
  }
  rounds r = {.hlo = hlo, .region = region, .count = count, .places = places};
  if (!collect(&r, region)) {
    HR__HLO_REFUSE(hlo, "a region that reads more than %d values from outside of it", OUTER_MAX);
    return;
  }
  begin(&r, at, updates);
  update_in_rounds(&r, x);
}
