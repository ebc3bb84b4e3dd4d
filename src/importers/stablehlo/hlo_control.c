/* hlo_control.c: loops and branches, whose regions become inner graphs.
 *
 * An inner graph has an input for each argument of its region, and one for each value outside of the region that it
 * reads. Constants are there again. Tokens have no inputs. If a region has effects, behind the region's arguments there
 * is an input for the flag that orders them (hlo_host.c), and behind its results an output.
 */
#include <stdio.h>

#include "base/allocator.h"
#include "base/table.h"
#include "base/vector.h"
#include "importers/stablehlo/hlo.h"

typedef struct captures {
  HR_VECTOR(hr__vhlo_value *) values; /* each once */
  hr_table seen;
} captures;

typedef struct inner {
  hr__hlo *hlo;
  captures captured;
  hr_value index; /* of a branch: the first argument, which regions do not have; 0: none */
  HR_VECTOR(hr_value) arguments;
  bool has_effects;
} inner;

static bool is_token(const hr__hlo_import *import, const hr__vhlo_value *value) {
  hr__vhlo_type type;
  return hr__vhlo_type_of(&import->module, value->type, &type) && type.is_token;
}

static bool is_constant(const hr__vhlo_value *value) {
  return value->op != NULL && strcmp(value->op->name->name, "constant_v1") == 0;
}

static void fini(inner *in) {
  hr_vector_fini(&in->captured.values);
  hr_table_fini(&in->captured.seen);
  hr_vector_fini(&in->arguments);
}

/* ---- values from outside ---- */

static bool capture(captures *captured, hr__vhlo_value *value) {
  uint64_t key = (uint64_t)(uintptr_t)value;
  if (hr_table_get(&captured->seen, key) != NULL) {
    return true;
  }
  return hr_table_put(&captured->seen, key, value) && hr_vector_push(&captured->values, value);
}

static bool collect(captures *captured, const hr__vhlo_region *outer, const hr__vhlo_region *region) {
  for (int i = 0; i < region->op_count; ++i) {
    const hr__vhlo_op *op = &region->ops[i];
    for (int k = 0; k < op->operand_count; ++k) {
      hr__vhlo_value *value = op->operands[k];
      bool is_inside = value->region >= outer->number && value->region < outer->end;
      if (!is_inside && !capture(captured, value)) {
        return false;
      }
    }
    for (int k = 0; k < op->region_count; ++k) {
      if (!collect(captured, outer, &op->regions[k])) {
        return false;
      }
    }
  }
  return true;
}

/* The index or the operands, then what regions read from outside: the arguments of all inner graphs. */
static bool begin(inner *in, hr__hlo *hlo, hr_value index) {
  const hr__vhlo_op *op = hlo->op;
  *in = (inner){.hlo = hlo, .index = index};
  bool has_room = index == 0 || hr_vector_push(&in->arguments, index);
  for (int i = 0; i < op->region_count && has_room; ++i) {
    has_room = collect(&in->captured, &op->regions[i], &op->regions[i]);
    in->has_effects |= hr__hlo_has_effects(hlo->import, &op->regions[i]);
  }
  for (int i = 0; i < op->operand_count && has_room && index == 0; ++i) {
    has_room =
        is_token(hlo->import, op->operands[i]) || hr_vector_push(&in->arguments, hr__hlo_value(hlo, op->operands[i]));
  }
  if (in->has_effects) {
    has_room = has_room && hr_vector_push(&in->arguments, hr__hlo_effect(hlo->import));
  }
  for (size_t i = 0; i < in->captured.values.count && has_room; ++i) {
    hr__vhlo_value *value = in->captured.values.data[i];
    bool is_left_out = is_constant(value) || is_token(hlo->import, value);
    has_room = is_left_out || hr_vector_push(&in->arguments, hr__hlo_value(hlo, value));
  }
  if (!has_room) {
    hr__hlo_fail(hlo, HR_STATUS_RESOURCE_EXHAUSTED, "no memory for the values of its regions");
  }
  return !hr__hlo_failed(hlo);
}

/* ---- inner graphs ---- */

static hr_value add_input(hr__hlo *hlo, const hr__vhlo_value *value, int number) {
  hr__vhlo_type type;
  char name[32];
  if (!hr__vhlo_type_of(&hlo->import->module, value->type, &type) || type.dtype == HR_DTYPE_NONE) {
    return HR__HLO_REFUSE(hlo, "a value of type %s (%d)", hr__vhlo_type_name(type.code), type.code);
  }
  hr_type wanted = {.dtype = type.dtype, .rank = type.rank};
  memcpy(wanted.dims, type.dims, sizeof wanted.dims);
  snprintf(name, sizeof name, "v%d", number);
  return hr_graph_input(hlo->graph, name, &wanted);
}

/* An input for a value outside of the region. Its type may be of another dialect (sdy works on builtin tensors), so
 * that it is the type that the value has in the outer graph. */
static hr_value add_captured(const inner *in, hr__hlo *hlo, hr_value outer, int number) {
  hr_type type;
  char name[32];
  if (!hr__hlo_type(in->hlo, outer, &type)) {
    return 0;
  }
  snprintf(name, sizeof name, "v%d", number);
  return hr_graph_input(hlo->graph, name, &type);
}

/* Values outside of the region as those of the inner graph. The last arguments are theirs. */
static void enter(const inner *in, hr__hlo *hlo, int number) {
  size_t outer = in->arguments.count;
  for (size_t i = in->captured.values.count; i-- > 0;) {
    const hr__vhlo_value *value = in->captured.values.data[i];
    outer -= !is_constant(value) && !is_token(hlo->import, value);
  }
  for (size_t i = 0; i < in->captured.values.count; ++i) {
    hr__vhlo_value *value = in->captured.values.data[i];
    if (is_constant(value)) {
      int attribute = hr__vhlo_find(&hlo->import->module, value->op, "value");
      value->value = hr__hlo_constant(hlo, attribute);
    } else if (!is_token(hlo->import, value)) {
      value->value = add_captured(in, hlo, in->arguments.data[outer++], number++);
    }
  }
}

/* The only output of a condition with effects follows from their flag, too, which is never set. */
static void add_condition(hr__hlo *hlo, hr_value condition) {
  hr_value flag = hr__hlo_reshape(hlo, hlo->import->effect, 0, NULL);
  hr_graph_output(hlo->graph, "condition", CALL(hlo, LOGICAL_OR, condition, flag));
}

static void add_outputs(hr__hlo *hlo, const hr__vhlo_op *end) {
  for (int i = 0; i < end->operand_count; ++i) {
    char name[32];
    snprintf(name, sizeof name, "o%d", i);
    if (!is_token(hlo->import, end->operands[i])) {
      hr_graph_output(hlo->graph, name, hr__hlo_value(hlo, end->operands[i]));
    }
  }
}

static hr_status fill(const inner *in, hr__hlo *hlo, const hr__vhlo_region *region) {
  const hr__vhlo_op *end = NULL;
  int number = 0;
  if (in->index != 0) {
    hr_graph_input(hlo->graph, "index", &(hr_type){.dtype = HR_DTYPE_I32});
  }
  for (int i = 0; i < region->argument_count; ++i) {
    hr__vhlo_value *argument = &region->arguments[i];
    argument->value = is_token(hlo->import, argument) ? 0 : add_input(hlo, argument, number++);
  }
  if (in->has_effects) {
    hlo->import->effect = hr_graph_input(hlo->graph, "effects", &(hr_type){HR_DTYPE_BOOL, 1, {1}, {NULL}});
  }
  enter(in, hlo, number);
  HR_RETURN_IF_ERROR(hr__hlo_run(hlo->import, region, true, &end));
  bool is_condition = region == hlo->op->regions && strcmp(hlo->op->name->name, "while_v1") == 0;
  if (is_condition && in->has_effects && end->operand_count == 1) {
    add_condition(hlo, hr__hlo_value(hlo, end->operands[0]));
    return hr_graph_status(hlo->graph);
  }
  add_outputs(hlo, end);
  if (in->has_effects) {
    hr_graph_output(hlo->graph, "effects", hlo->import->effect);
  }
  return hr_graph_status(hlo->graph);
}

/* A region as a graph; NULL after a failure, which the operation's graph has then. */
static hr_graph *graph_of(const inner *in, const hr__vhlo_region *region) {
  hr__hlo_import *import = in->hlo->import;
  size_t count = in->captured.values.count;
  hr_graph *outer = import->graph, *graph = NULL;
  hr_value *saved = hr_calloc(count + 1, sizeof *saved);
  hr_status status = saved == NULL ? hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a region") : HR_OK;
  status = status == HR_OK ? hr_graph_create(&graph) : status;
  for (size_t i = 0; i < count && status == HR_OK; ++i) {
    saved[i] = in->captured.values.data[i]->value;
  }
  if (status == HR_OK) {
    hr__hlo hlo = {.import = import, .graph = graph, .op = in->hlo->op};
    hr_value effect = import->effect;
    import->graph = graph, import->effect = 0;
    status = fill(in, &hlo, region);
    import->graph = outer, import->effect = effect;
    for (size_t i = 0; i < count; ++i) {
      in->captured.values.data[i]->value = saved[i];
    }
  }
  hr_free(saved);
  if (status != HR_OK) {
    hr__hlo_fail_with(in->hlo, status);
    hr_graph_release(graph);
    return NULL;
  }
  return graph;
}

/* Results without tokens stand one after the other, then the flag of effects. */
static void set_results(const inner *in, hr_value first) {
  hr__hlo *hlo = in->hlo;
  hr_value next = first;
  for (int i = 0; i < hlo->op->result_count && first != 0; ++i) {
    if (!is_token(hlo->import, &hlo->op->results[i])) {
      hr__hlo_set(hlo, i, next++);
    }
  }
  if (in->has_effects) {
    hlo->import->effect = first != 0 ? next : 0;
  }
}

static bool has_arguments(hr__hlo *hlo, int count) {
  for (int i = 0; i < hlo->op->region_count; ++i) {
    if (hlo->op->regions[i].argument_count != count) {
      HR__HLO_WRONG(hlo, "region %d has %d arguments, expected %d", i, hlo->op->regions[i].argument_count, count);
      return false;
    }
  }
  return true;
}

/* Results without tokens, and the flag of effects. */
static int results_of(const inner *in) {
  const hr__hlo *hlo = in->hlo;
  int count = in->has_effects;
  for (int i = 0; i < hlo->op->result_count; ++i) {
    count += !is_token(hlo->import, &hlo->op->results[i]);
  }
  return count;
}

/* ---- loops ---- */

static void add_loop(hr__hlo *hlo, const inner *in, hr_graph *condition, hr_graph *body) {
  int carried = results_of(in);
  if (hr_graph_output_count(body) != carried || hr_graph_output_count(condition) != 1 || carried == 0) {
    HR__HLO_WRONG(hlo, "its body has %d results, expected %d, at least 1", hr_graph_output_count(body), carried);
    return;
  }
  set_results(in, hr_graph_while(hlo->graph, condition, body, carried, (int)in->arguments.count, in->arguments.data));
}

void hr__hlo_lower_while(hr__hlo *hlo) {
  inner in;
  if (!hr__hlo_expect(hlo, hlo->op->result_count, -1, 2) || !has_arguments(hlo, hlo->op->operand_count)) {
    return;
  }
  hr_graph *condition = NULL, *body = NULL;
  if (begin(&in, hlo, 0)) {
    condition = graph_of(&in, &hlo->op->regions[0]);
    body = condition != NULL ? graph_of(&in, &hlo->op->regions[1]) : NULL;
  }
  if (body != NULL) {
    add_loop(hlo, &in, condition, body);
  }
  hr_graph_release(condition);
  hr_graph_release(body);
  fini(&in);
}

/* ---- branches ---- */

static hr_value add_choice(const inner *in, hr_graph *graph, const hr_value *arguments, int begin, int end);

/* The branches begin ... end - 1 as a graph of the index and the other arguments. */
static hr_graph *graph_of_branches(const inner *in, int begin, int end) {
  hr_graph *graph = NULL;
  size_t count = in->arguments.count;
  if (end - begin == 1) {
    return graph_of(in, &in->hlo->op->regions[begin]);
  }
  hr_value *inputs = hr_calloc(count + 1, sizeof *inputs);
  hr_status status =
      inputs == NULL ? hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for its branches") : HR_OK;
  status = status == HR_OK ? hr_graph_create(&graph) : status;
  for (size_t i = 0; i < count && status == HR_OK; ++i) {
    hr_type type;
    char name[32];
    snprintf(name, sizeof name, "v%zu", i);
    status = hr_graph_type(in->hlo->graph, in->arguments.data[i], &type);
    inputs[i] = status == HR_OK ? hr_graph_input(graph, name, &type) : 0;
  }
  hr_value first = status == HR_OK ? add_choice(in, graph, inputs, begin, end) : 0;
  for (int i = 0, n = first != 0 ? results_of(in) : 0; i < n; ++i) {
    char name[32];
    snprintf(name, sizeof name, "o%d", i);
    hr_graph_output(graph, name, first + i);
  }
  hr_free(inputs);
  status = status == HR_OK && graph != NULL ? hr_graph_status(graph) : status;
  if (status != HR_OK) {
    hr__hlo_fail_with(in->hlo, status);
  }
  if (status != HR_OK || first == 0) {
    hr_graph_release(graph);
    return NULL;
  }
  return graph;
}

/* Half of the branches, or the other half, by the index; the first result, or 0. */
static hr_value add_choice(const inner *in, hr_graph *graph, const hr_value *arguments, int begin, int end) {
  int middle = begin + (end - begin) / 2, wanted = results_of(in);
  hr_graph *first = graph_of_branches(in, begin, middle);
  hr_graph *second = first != NULL ? graph_of_branches(in, middle, end) : NULL;
  hr_value result = 0;
  if (second != NULL && (hr_graph_output_count(first) != wanted || hr_graph_output_count(second) != wanted)) {
    HR__HLO_WRONG(in->hlo, "branches with %d and %d results, expected %d", hr_graph_output_count(first),
                  hr_graph_output_count(second), wanted);
  } else if (second != NULL) {
    hr_value bound = hr_graph_number(graph, hr_scalar_i64(middle));
    hr_value is_first = hr_graph_add(graph, HR_FUNCTIONAL_LESS, IN(arguments[0], bound), PLAIN);
    result = hr_graph_if(graph, is_first, first, second, (int)in->arguments.count, arguments);
  }
  hr_graph_release(first);
  hr_graph_release(second);
  return result;
}

static void lower_branches(hr__hlo *hlo, hr_value index) {
  inner in;
  if (begin(&in, hlo, index) && results_of(&in) > 0) {
    set_results(&in, add_choice(&in, hlo->graph, in.arguments.data, 0, hlo->op->region_count));
  }
  fini(&in);
}

/* An index out of range is the last branch's. */
void hr__hlo_lower_case(hr__hlo *hlo) {
  int count = hlo->op->region_count;
  if (!hr__hlo_expect(hlo, 1, -1, -1) || !has_arguments(hlo, 0)) {
    return;
  }
  if (count == 0) {
    HR__HLO_WRONG(hlo, "it has no branches");
    return;
  }
  if (count == 1) {
    hr__hlo_return_of(hlo, &hlo->op->regions[0], 0);
    return;
  }
  hr_value index = hr__hlo_input(hlo, 0), last = hr__hlo_whole(hlo, count - 1);
  hr_value is_negative = CALL(hlo, LESS, index, hr__hlo_whole(hlo, 0));
  lower_branches(hlo, CALL(hlo, WHERE, is_negative, last, CALL(hlo, MINIMUM, index, last)));
}

void hr__hlo_lower_if(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, -1, 2) && has_arguments(hlo, 0)) {
    lower_branches(hlo, hr__hlo_cast(hlo, CALL(hlo, LOGICAL_NOT, hr__hlo_input(hlo, 0)), HR_DTYPE_I32));
  }
}
