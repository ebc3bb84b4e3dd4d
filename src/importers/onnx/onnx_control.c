/* onnx_control.c: If, Loop and Scan as control flow of the graph. A branch that is known is mapped in its place.
 *
 *   Loop(n, true, x)   body always goes on      for(@body, n, x, captured)
 *   Loop(n, c, x)                               while(@body, @condition, 0, c, x, n, captured)
 *   Scan(x, ys)                                 scan(@body, x, ys with the axis in front, captured)
 *
 * If an inner graph can't express a node, onnx_unrolled.c maps it.
 */
#include "importers/onnx/onnx_control.h"
#include "importers/onnx/onnx_inner.h"

enum { UNROLLED_MAX = 1024 }; /* iterations that are unrolled, so that dims which differ in each are known */

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for control flow");
}

static hr__span body_of(hr__onnx_node *node, const char *name) {
  const hr__onnx_attribute *body = hr__onnx_find_attribute(node, name);
  if (body == NULL || body->bytes.data == NULL) {
    HR__ONNX_WRONG(node, "attribute %s is no graph", name);
    return (hr__span){0};
  }
  return body->bytes;
}

/* True if the node is mapped, or fails for good, because of the status of its form with inner graphs. Frees it
 * otherwise. */
static bool is_settled(hr__onnx_node *node, hr_status status) {
  if (status == HR_OK && !hr__onnx_failed(node)) {
    return true;
  }
  if (status == HR_OK) {
    status = hr_graph_take_failure(node->graph);
  }
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED || node->importer->wants_fixed) {
    hr__graph_fail(node->graph, status);
    return true;
  }
  hr_status_free(status);
  memset(node->outputs, 0, (size_t)node->output_count * sizeof *node->outputs);
  return false;
}

/* The types of inner graphs are inferred again for each node that uses them. */
static hr_status charge(const hr__onnx_inner *inner) {
  enum { COST = 16 };
  return hr__onnx_charge(inner->importer, COST * ((int64_t)inner->graph->values.count + inner->graph->inner_values));
}

/* ---- branches ---- */

/* Builds a branch, for which `arguments` of another branch are inputs, too. */
static hr_status build_branch(hr__onnx_node *node, hr__span body, const hr__onnx_inner *other, hr__onnx_inner *inner,
                              hr__onnx_value *results) {
  HR_RETURN_IF_ERROR(hr__onnx_inner_begin(node->importer, inner));
  for (size_t i = 0; other != NULL && i < other->captured.count; ++i) {
    (void)hr__onnx_inner_argument(inner, other->captured.data[i]);
  }
  hr_status status = hr_graph_status(inner->graph);
  status = status == HR_OK ? hr__onnx_inner_run(inner, node, body, 0, NULL, node->output_count, results) : status;
  hr__onnx_inner_end(inner);
  for (int i = 0; status == HR_OK && i < node->output_count; ++i) {
    status = hr__onnx_inner_output(inner, &results[i]);
  }
  return status == HR_OK ? charge(inner) : status;
}

static hr_status add_if(hr__onnx_node *node, hr__onnx_inner *then, hr__onnx_inner *otherwise,
                        const hr__onnx_value *others) {
  for (size_t i = then->captured.count; i < otherwise->captured.count; ++i) {
    (void)hr__onnx_inner_argument(then, otherwise->captured.data[i]);
  }
  HR_RETURN_IF_ERROR(hr_graph_status(then->graph));
  for (int i = 0; i < node->output_count; ++i) {
    HR_RETURN_IF_ERROR(hr__onnx_check_branches(i, then->graph, &node->outputs[i], otherwise->graph, &others[i]));
  }
  hr_value first = hr_graph_if(node->graph, hr__onnx_input(node, 0), then->graph, otherwise->graph,
                               (int)otherwise->captured.count, otherwise->captured.data);
  for (int i = 0; first != 0 && i < node->output_count; ++i) {
    node->outputs[i].value = first + i;
  }
  return HR_OK;
}

static hr_status map_branches(hr__onnx_node *node, hr__span then_body, hr__span else_body) {
  hr__onnx_inner then = {0}, otherwise = {0};
  hr__onnx_value *others = hr__onnx_new_values(node, node->output_count);
  hr_status status = others != NULL ? build_branch(node, then_body, NULL, &then, node->outputs) : no_memory();
  status = status == HR_OK ? build_branch(node, else_body, &then, &otherwise, others) : status;
  status = status == HR_OK ? add_if(node, &then, &otherwise, others) : status;
  hr__onnx_inner_fini(&then);
  hr__onnx_inner_fini(&otherwise);
  return status;
}

void hr__onnx_map_if(hr__onnx_node *node) {
  hr__span then_body = body_of(node, "then_branch"), else_body = body_of(node, "else_branch");
  hr_value condition = hr__onnx_input(node, 0);
  int64_t number = 0;
  if (hr__onnx_failed(node) || condition == 0 || node->output_count == 0) {
    return;
  }
  if (!hr__onnx_is_known(node->graph, condition)) {
    if (!is_settled(node, map_branches(node, then_body, else_body))) {
      hr__onnx_select_branches(node, then_body, else_body);
    }
  } else if (hr__onnx_integers(node, condition, "condition", 1, &number) == 1) {
    (void)hr__onnx_run_branch(node, number != 0 ? then_body : else_body, node->outputs);
  } else {
    HR__ONNX_WRONG(node, "a condition without an element");
  }
}

/* ---- loops ---- */

typedef struct loop {
  hr__onnx_node *node;
  hr__span body;
  bool is_loop, is_while; /* else Scan; else for */
  bool is_strict;         /* dims that change are refused */
  bool is_endless;
  hr_value limit;                                /* of Loop; 0: none */
  hr_value condition;                            /* of Loop; 0: always true */
  int state_count, sequence_count, output_count; /* output: scanned ones */
  const hr__onnx_value *states;                  /* at the start */
  hr__onnx_value *sequences;                     /* with the scanned axis in front */
  unsigned *free_dims;                           /* of states */
  hr__onnx_value *inputs, *results;              /* of the body */
  hr__onnx_inner inner;
} loop;

static hr_status prepare_loop(loop *l) {
  hr_arena *arena = l->node->arena;
  int inputs = 2 + l->state_count + l->sequence_count, results = 1 + l->state_count + l->output_count;
  l->inputs = HR_ARENA_ARRAY(arena, hr__onnx_value, (size_t)inputs);
  l->results = HR_ARENA_ARRAY(arena, hr__onnx_value, (size_t)results);
  l->free_dims = HR_ARENA_ARRAY(arena, unsigned, (size_t)l->state_count + 1);
  if (l->inputs == NULL || l->results == NULL || l->free_dims == NULL) {
    return no_memory();
  }
  for (int i = 0; i < l->state_count; ++i) {
    if (l->states[i].value == 0 || l->states[i].list != NULL) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "state %d is no tensor", i);
    }
  }
  return HR_OK;
}

/* Inputs of the inner graph in front of the captured ones, and of the body. */
static void add_inputs(loop *l) {
  const hr_type number = {.dtype = HR_DTYPE_I64}, flag = {.dtype = HR_DTYPE_BOOL};
  hr__onnx_inner *inner = &l->inner;
  hr__onnx_value *to = l->inputs;
  const bool always = true;
  if (l->is_loop) {
    *to++ = (hr__onnx_value){.value = hr_graph_input(inner->graph, "iteration", &number)};
    *to++ = (hr__onnx_value){.value = l->is_while ? hr_graph_input(inner->graph, "condition", &flag)
                                                  : hr_graph_constant(inner->graph, &flag, &always)};
  }
  for (int i = 0; i < l->state_count; ++i) {
    *to++ = (hr__onnx_value){.value = hr__onnx_inner_input(inner, "state", l->states[i].value, 0, l->free_dims[i]),
                             .data_type = l->states[i].data_type};
  }
  for (int i = 0; i < l->sequence_count; ++i) {
    *to++ = (hr__onnx_value){.value = hr__onnx_inner_input(inner, "slice", l->sequences[i].value, 1, 0),
                             .data_type = l->sequences[i].data_type};
  }
  if (l->is_while && l->limit != 0) {
    (void)hr__onnx_inner_input(inner, "limit", l->limit, 0, 0);
  }
  inner->given_count = (int)inner->graph->inputs.count;
}

/* Dims of a state that the iteration changes get symbols of their own. */
static hr_status free_changes(loop *l, int state, bool *out_has_changed) {
  hr_type before, after;
  const hr__onnx_value *result = &l->results[l->is_loop + state];
  const hr__onnx_value *input = &l->inputs[2 * l->is_loop + state];
  if (result->value == 0 || result->list != NULL) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "state %d is no tensor after an iteration", state);
  }
  HR_RETURN_IF_ERROR(hr_graph_type(l->inner.graph, input->value, &before));
  HR_RETURN_IF_ERROR(hr_graph_type(l->inner.graph, result->value, &after));
  if (before.rank != after.rank || before.dtype != after.dtype || input->data_type != result->data_type) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "state %d is %s with %d dims, and after an iteration %s with %d",
                          state, hr_dtype_name(before.dtype), before.rank, hr_dtype_name(after.dtype), after.rank);
  }
  for (int d = 0; d < before.rank; ++d) {
    const char *a = before.symbols[d], *b = after.symbols[d];
    bool is_same = a == NULL || b == NULL ? a == b && before.dims[d] == after.dims[d] : strcmp(a, b) == 0;
    bool is_free = (l->free_dims[state] >> d & 1) != 0;
    l->free_dims[state] |= is_same ? 0 : 1u << d;
    *out_has_changed |= !is_same && !is_free;
  }
  return HR_OK;
}

static hr_status build_body(loop *l) {
  int inputs = 2 * l->is_loop + l->state_count + l->sequence_count;
  HR_RETURN_IF_ERROR(hr__onnx_inner_begin(l->node->importer, &l->inner));
  add_inputs(l);
  hr_status status = hr_graph_status(l->inner.graph);
  if (status == HR_OK) {
    status = hr__onnx_inner_run(&l->inner, l->node, l->body, inputs, l->inputs,
                                l->is_loop + l->state_count + l->output_count, l->results);
  }
  hr__onnx_inner_end(&l->inner);
  return status;
}

/* Builds the body until its states keep the dims of its inputs. */
static hr_status build(loop *l) {
  enum { ROUNDS = 8 };
  bool has_changed = true;
  for (int round = 0; has_changed && round < ROUNDS; ++round) {
    hr__onnx_inner_fini(&l->inner);
    has_changed = false;
    HR_RETURN_IF_ERROR(build_body(l));
    for (int i = 0; i < l->state_count; ++i) {
      HR_RETURN_IF_ERROR(free_changes(l, i, &has_changed));
    }
  }
  return has_changed ? hr_status_make(HR_STATUS_UNIMPLEMENTED, "dims of a state change in each iteration") : HR_OK;
}

/* Fails if a dim of a result is not known, in which the iterations may differ. */
static hr_status check_dims(const loop *l, hr_value value) {
  hr_type type;
  HR_RETURN_IF_ERROR(hr_graph_type(l->inner.graph, value, &type));
  for (int d = 0; d < type.rank; ++d) {
    if (type.symbols[d] != NULL && strcmp(type.symbols[d], "?") == 0) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "dims differ in each iteration");
    }
  }
  return HR_OK;
}

static hr_status add_outputs(loop *l) {
  for (int i = 0; i < l->state_count + l->output_count; ++i) {
    const hr__onnx_value *result = &l->results[l->is_loop + i];
    if (l->is_strict && i < l->state_count && l->free_dims[i] != 0) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "dims of state %d differ in each iteration", i);
    }
    HR_RETURN_IF_ERROR(hr__onnx_inner_output(&l->inner, result));
    HR_RETURN_IF_ERROR(l->is_strict ? check_dims(l, result->value) : HR_OK);
  }
  return charge(&l->inner);
}

/* Results of the loop from the one with this number on. */
static void set_results(loop *l, hr_value first) {
  for (int i = 0; first != 0 && i < l->state_count + l->output_count; ++i) {
    l->node->outputs[i] = (hr__onnx_value){.value = first + i, .data_type = l->results[l->is_loop + i].data_type};
  }
}

/* Arguments of the loop: `count` first ones, states, sequences, `last` or 0, captured values; NULL: no memory. */
static hr_value *gather_arguments(const loop *l, int count, const hr_value *first, hr_value last, int *out_count) {
  size_t room = (size_t)(count + l->state_count + l->sequence_count + 1) + l->inner.captured.count;
  hr_value *arguments = HR_ARENA_ARRAY(l->node->arena, hr_value, room), *to = arguments;
  for (int i = 0; to != NULL && i < count; ++i) {
    *to++ = first[i];
  }
  for (int i = 0; to != NULL && i < l->state_count; ++i) {
    *to++ = l->states[i].value;
  }
  for (int i = 0; to != NULL && i < l->sequence_count; ++i) {
    *to++ = l->sequences[i].value;
  }
  if (to != NULL && last != 0) {
    *to++ = last;
  }
  for (size_t i = 0; to != NULL && i < l->inner.captured.count; ++i) {
    *to++ = l->inner.captured.data[i];
  }
  *out_count = arguments != NULL ? (int)(to - arguments) : 0;
  return arguments;
}

/* ---- Loop ---- */

/* True if the body's condition is true for all symbols. */
static bool always_goes_on(const loop *l) {
  const hr_graph *graph = l->inner.graph;
  hr_value condition = l->results[0].value;
  if (condition == 0 || !hr__onnx_is_known(graph, condition)) {
    return false;
  }
  const hr__fact *fact = hr__graph_value_of(graph, condition)->facts;
  int64_t count = 1;
  for (int d = 0; d < fact->rank; ++d) {
    count *= fact->dims[d];
  }
  return count == 1 && fact->numbers[0] != 0;
}

static hr_status add_for(loop *l) {
  int count = 0;
  if (l->limit == 0) {
    l->is_endless = true;
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "a loop without an end: no trip count, and a condition that stays "
                          "true");
  }
  HR_RETURN_IF_ERROR(add_outputs(l));
  hr_value *arguments = gather_arguments(l, 0, NULL, 0, &count);
  if (arguments == NULL) {
    return no_memory();
  }
  if (l->state_count + l->output_count > 0) {
    set_results(l, hr_graph_for(l->node->graph, l->limit, l->inner.graph, l->state_count, count, arguments));
  }
  return HR_OK;
}

/* The body's outputs in front of the states: the next iteration, and its condition without dims. */
static hr_status add_carried(loop *l) {
  hr_graph *graph = l->inner.graph;
  const hr_value inputs[2] = {l->inputs[0].value, hr_graph_number(graph, hr_scalar_i64(1))};
  const hr_value condition = l->results[0].value;
  if (condition == 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the condition of a body is no tensor");
  }
  const hr_graph_attribute shape = hr__with_ints("shape", 0, NULL);
  hr_graph_output(graph, "iteration", hr_graph_add(graph, HR_FUNCTIONAL_ADD, 2, inputs, 0, NULL));
  hr_graph_output(graph, "condition", hr_graph_add(graph, HR_FUNCTIONAL_RESHAPE, 1, &condition, 1, &shape));
  return hr_graph_status(graph);
}

/* A graph of the body's inputs: the condition, and that the limit is not reached. */
static hr_status build_condition(const loop *l, hr_graph *condition) {
  const hr_graph *body = l->inner.graph;
  for (int i = 0; i < hr_graph_input_count(body); ++i) {
    hr_type type;
    hr_value input = hr_graph_input_value(body, i);
    HR_RETURN_IF_ERROR(hr_graph_type(body, input, &type));
    (void)hr_graph_input(condition, hr_graph_value_name(body, input), &type);
  }
  hr_value goes_on = hr_graph_input_value(condition, 1);
  if (l->limit != 0) {
    const hr_value sides[2] = {hr_graph_input_value(condition, 0), hr_graph_input_value(condition, 2 + l->state_count)};
    const hr_value both[2] = {goes_on, hr_graph_add(condition, HR_FUNCTIONAL_LESS, 2, sides, 0, NULL)};
    goes_on = hr_graph_add(condition, HR_FUNCTIONAL_LOGICAL_AND, 2, both, 0, NULL);
  }
  hr_graph_output(condition, "goes_on", goes_on);
  return hr_graph_status(condition);
}

static hr_status add_while(loop *l) {
  hr__onnx_node *node = l->node;
  hr_graph *condition = NULL;
  int count = 0;
  HR_RETURN_IF_ERROR(add_carried(l));
  HR_RETURN_IF_ERROR(add_outputs(l));
  HR_RETURN_IF_ERROR(hr_graph_create(&condition));
  hr_status status = build_condition(l, condition);
  hr_value goes_on =
      l->condition != 0 ? hr__onnx_reshape(node, l->condition, 0, NULL) : hr__onnx_single(node, 1, HR_DTYPE_BOOL);
  const hr_value first[2] = {hr__onnx_single(node, 0, HR_DTYPE_I64), goes_on};
  hr_value *arguments = gather_arguments(l, 2, first, l->limit, &count);
  if (status == HR_OK && arguments != NULL) {
    hr_value results = hr_graph_while(node->graph, condition, l->inner.graph, 2 + l->state_count, count, arguments);
    set_results(l, results != 0 ? results + 2 : 0);
  }
  hr_graph_release(condition);
  return status != HR_OK || arguments != NULL ? status : no_memory();
}

static int64_t known_number(const hr_graph *graph, hr_value value, int64_t otherwise) {
  bool is_known = value != 0 && hr__onnx_is_known(graph, value) && hr__graph_value_of(graph, value)->facts->rank == 0;
  return is_known ? hr__graph_value_of(graph, value)->facts->numbers[0] : otherwise;
}

static hr_status map_loop(loop *l) {
  int64_t limit = known_number(l->node->graph, l->limit, INT64_MAX);
  HR_RETURN_IF_ERROR(prepare_loop(l));
  if (l->condition == 0 || known_number(l->node->graph, l->condition, 0) != 0) {
    l->is_strict = limit <= UNROLLED_MAX;
    HR_RETURN_IF_ERROR(build(l));
    if (always_goes_on(l)) {
      return add_for(l);
    }
    hr__onnx_inner_fini(&l->inner);
    memset(l->free_dims, 0, (size_t)l->state_count * sizeof *l->free_dims);
  }
  l->is_while = true, l->is_strict = false;
  HR_RETURN_IF_ERROR(build(l));
  return add_while(l);
}

void hr__onnx_map_loop(hr__onnx_node *node) {
  int states = node->input_count > 2 ? node->input_count - 2 : 0;
  loop l = {.node = node, .is_loop = true, .state_count = states, .output_count = node->output_count - states};
  l.body = body_of(node, "body"), l.states = node->inputs + 2;
  l.limit = hr__onnx_input(node, 0), l.condition = hr__onnx_input(node, 1);
  if (hr__onnx_rank(node, l.limit) > 0) {
    l.limit = hr__onnx_reshape(node, l.limit, 0, NULL);
  }
  if (hr__onnx_failed(node) || l.output_count < 0) {
    HR__ONNX_WRONG(node, "%d outputs, expected at least one for each of %d states", node->output_count, states);
    return;
  }
  hr_status status = map_loop(&l);
  hr__onnx_inner_fini(&l.inner);
  if (l.is_endless) {
    hr__graph_fail(node->graph, status);
  } else if (!is_settled(node, status)) {
    hr__onnx_unroll_loop(node, l.body);
  }
}

/* ---- Scan ---- */

static int64_t *read_list(hr__onnx_node *node, const char *name, int count) {
  enum { INTS = 8 };
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, name);
  int64_t *numbers = HR_ARENA_ARRAY(node->arena, int64_t, (size_t)count + 1), given = 0;
  hr_status status = numbers != NULL ? HR_OK : no_memory();
  if (status == HR_OK && attribute != NULL) {
    status = hr__onnx_read_ints(attribute->message, INTS, count, numbers, &given);
  }
  if (status != HR_OK) {
    hr__graph_fail(node->graph, status);
  }
  return numbers;
}

static void read_scan(hr__onnx_node *node, hr__onnx_scan *s) {
  bool is_first = node->since < 9;
  s->in_axes = read_list(node, "scan_input_axes", s->input_count);
  s->out_axes = read_list(node, "scan_output_axes", s->output_count);
  s->in_reverse = read_list(node, is_first ? "directions" : "scan_input_directions", s->input_count);
  s->out_reverse = read_list(node, "scan_output_directions", s->output_count);
}

/* x with one dim at another place. */
static hr_value move_dim(hr__onnx_node *node, hr_value x, int from, int to) {
  int rank = hr__onnx_rank(node, x), next = 0;
  int64_t axes[HR_RANK_MAX];
  for (int d = 0; d < rank; ++d) {
    next += next == from;
    axes[d] = d == to ? from : next++;
  }
  return from == to || rank < 2 ? x : hr__onnx_permute(node, x, rank, axes);
}

static hr_value flip(hr__onnx_node *node, hr_value x, bool is_reverse) {
  const int64_t axis = 0;
  return is_reverse ? ADD(node, FLIP, IN(x), WITH(hr__with_ints("axis", 1, &axis))) : x;
}

/* Scanned inputs with the axis in front, in their order. */
static hr__onnx_value *turn_inputs(hr__onnx_node *node, const hr__onnx_scan *s) {
  hr__onnx_value *sequences = hr__onnx_new_values(node, s->input_count);
  for (int i = 0; sequences != NULL && i < s->input_count; ++i) {
    hr_value x = hr__onnx_input(node, s->state_count + i);
    int axis = hr__onnx_axis(node, s->in_axes[i], hr__onnx_rank(node, x));
    sequences[i] = node->inputs[s->state_count + i];
    sequences[i].value = flip(node, move_dim(node, x, axis, 0), s->in_reverse[i] != 0);
  }
  return sequences;
}

static void turn_outputs(hr__onnx_node *node, const hr__onnx_scan *s) {
  for (int i = 0; i < s->output_count && !hr__onnx_failed(node); ++i) {
    hr__onnx_value *output = &node->outputs[s->state_count + i];
    int axis = hr__onnx_axis(node, s->out_axes[i], hr__onnx_rank(node, output->value));
    output->value = move_dim(node, flip(node, output->value, s->out_reverse[i] != 0), 0, axis);
  }
}

static hr_status add_scan(loop *l) {
  int count = 0;
  HR_RETURN_IF_ERROR(prepare_loop(l));
  HR_RETURN_IF_ERROR(build(l));
  HR_RETURN_IF_ERROR(add_outputs(l));
  hr_value *arguments = gather_arguments(l, 0, NULL, 0, &count);
  if (arguments == NULL) {
    return no_memory();
  }
  if (l->state_count + l->output_count > 0) {
    set_results(l, hr_graph_scan(l->node->graph, l->inner.graph, l->state_count, l->sequence_count, count, arguments));
  }
  return HR_OK;
}

static void scan(hr__onnx_node *node, hr__span body, const hr__onnx_scan *s) {
  loop l = {.node = node, .body = body, .states = node->inputs, .state_count = s->state_count};
  l.sequence_count = s->input_count, l.output_count = s->output_count;
  l.sequences = turn_inputs(node, s);
  if (hr__onnx_failed(node)) {
    return;
  }
  int64_t count = hr__onnx_dim(node, l.sequences[0].value, 0);
  l.is_strict = count >= 0 && count <= UNROLLED_MAX;
  hr_status status = add_scan(&l);
  hr__onnx_inner_fini(&l.inner);
  if (status == HR_OK && !hr__onnx_failed(node)) {
    turn_outputs(node, s);
  }
  if (!is_settled(node, status)) {
    hr__onnx_unroll_scan(node, body, s);
  }
}

/* ---- the first version of Scan: for each element of a batch, which is the first dim of all ---- */

/* The scan of one element, in an inner graph whose inputs are states and scanned inputs. */
static hr_status scan_element(hr__onnx_node *node, hr__span body, const hr__onnx_scan *s, hr__onnx_inner *inner) {
  hr__onnx_scope scope = *node->scope;
  hr__onnx_node element = *node;
  HR_RETURN_IF_ERROR(hr__onnx_inner_begin(node->importer, inner));
  scope = (hr__onnx_scope){.outer = node->scope,
                           .inner = inner,
                           .opsets = scope.opsets,
                           .depth = scope.depth + 1,
                           .attribute_count = scope.attribute_count,
                           .attributes = scope.attributes};
  element.graph = inner->graph, element.scope = &scope;
  element.inputs = hr__onnx_new_values(node, node->input_count);
  element.outputs = hr__onnx_new_values(node, node->output_count);
  for (int i = 0; element.inputs != NULL && i < node->input_count; ++i) {
    element.inputs[i] = node->inputs[i];
    element.inputs[i].value = hr__onnx_inner_input(inner, "element", node->inputs[i].value, 1, 0);
  }
  inner->given_count = node->input_count;
  if (element.inputs != NULL && element.outputs != NULL) {
    scan(&element, body, s);
  }
  hr_status status = hr_graph_status(inner->graph);
  for (int i = 0; status == HR_OK && i < node->output_count; ++i) {
    status = hr__onnx_inner_output(inner, &element.outputs[i]);
    node->outputs[i].data_type = element.outputs[i].data_type;
  }
  hr__onnx_inner_end(inner);
  hr__onnx_scope_fini(&scope);
  return status;
}

static hr_status add_batch(hr__onnx_node *node, const hr__onnx_inner *inner) {
  int count = node->input_count + (int)inner->captured.count;
  hr_value *arguments = HR_ARENA_ARRAY(node->arena, hr_value, (size_t)count + 1);
  if (arguments == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(charge(inner));
  for (int i = 0; i < count; ++i) {
    arguments[i] = i < node->input_count ? node->inputs[i].value : inner->captured.data[i - node->input_count];
  }
  hr_value first = hr_graph_scan(node->graph, inner->graph, 0, node->input_count, count, arguments);
  for (int i = 0; first != 0 && i < node->output_count; ++i) {
    node->outputs[i].value = first + i;
  }
  return HR_OK;
}

static void scan_batch(hr__onnx_node *node, hr__span body, const hr__onnx_scan *s) {
  hr__onnx_inner inner = {0};
  for (int i = 0; i < node->input_count; ++i) {
    if (hr__onnx_rank(node, node->inputs[i].value) < 1) {
      HR__ONNX_WRONG(node, "input %d has no dims, expected a batch", i);
      return;
    }
  }
  hr_status status = scan_element(node, body, s, &inner);
  status = status == HR_OK ? add_batch(node, &inner) : status;
  hr__onnx_inner_fini(&inner);
  if (status != HR_OK) {
    hr__graph_fail(node->graph, status);
  }
}

/* In the first version, input 0 is the lengths of the sequences. */
static bool drop_lengths(hr__onnx_node *node) {
  if (node->since >= 9 || node->input_count == 0) {
    return true;
  }
  if (node->inputs[0].value != 0) {
    HR__ONNX_REFUSE(node, "lengths of sequences");
    return false;
  }
  ++node->inputs, --node->input_count;
  return true;
}

void hr__onnx_map_scan(hr__onnx_node *node) {
  hr__span body = body_of(node, "body");
  int inputs = (int)hr__onnx_int(node, "num_scan_inputs", 0);
  if (!drop_lengths(node) || hr__onnx_failed(node)) {
    return;
  }
  int states = node->input_count - inputs;
  hr__onnx_scan s = {.input_count = inputs, .state_count = states, .output_count = node->output_count - states};
  if (inputs < 1 || states < 0 || s.output_count < 0) {
    HR__ONNX_WRONG(node, "%d scanned inputs of %d, and %d outputs", inputs, node->input_count, node->output_count);
    return;
  }
  read_scan(node, &s);
  if (hr__onnx_failed(node)) {
    return;
  }
  node->since < 9 ? scan_batch(node, body, &s) : scan(node, body, &s);
}
