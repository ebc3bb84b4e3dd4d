/* onnx_unrolled.c: If, Loop and Scan without inner graphs: both branches are computed, and their results selected; the
 * body of a loop is mapped as often as it runs. For inner graphs the results of these would have to be tensors, and the
 * dims of states the same in each iteration. */
#include "importers/onnx/onnx_control.h"

hr__onnx_value *hr__onnx_new_values(hr__onnx_node *node, int count) {
  hr__onnx_value *values = HR_ARENA_ARRAY(node->arena, hr__onnx_value, (size_t)count + 1);
  if (values == NULL) {
    hr__onnx_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "no host memory");
  }
  return values;
}

/* False after a failure. */
static bool run_body(hr__onnx_node *node, hr__span body, int input_count, const hr__onnx_value *inputs, int wanted,
                     hr__onnx_value *out_results) {
  int count = 0;
  hr_status status = hr__onnx_run_subgraph(node, body, NULL, input_count, inputs, wanted, out_results, &count);
  if (status != HR_OK) {
    hr__graph_fail(node->graph, status);
  } else if (count != wanted) {
    HR__ONNX_WRONG(node, "a subgraph has %d outputs, expected %d", count, wanted);
  }
  return !hr__onnx_failed(node);
}

/* ---- branches ---- */

bool hr__onnx_run_branch(hr__onnx_node *node, hr__span branch, hr__onnx_value *out_results) {
  return run_body(node, branch, 0, NULL, node->output_count, out_results);
}

hr_status hr__onnx_check_branches(int index, const hr_graph *then_graph, const hr__onnx_value *x,
                                  const hr_graph *else_graph, const hr__onnx_value *y) {
  if (x->value == 0 || y->value == 0) {
    return HR_OK;
  }
  int64_t first = hr__onnx_data_type_of(then_graph, x), second = hr__onnx_data_type_of(else_graph, y);
  return first == second
             ? HR_OK
             : hr_status_make(HR_STATUS_UNIMPLEMENTED,
                              "result %d is %s in the then branch and %s in the else branch, expected one data type",
                              index, hr__onnx_data_type_name(first), hr__onnx_data_type_name(second));
}

/* x if the condition is true, else y, of the same data type: both are computed. */
static hr__onnx_value select_value(hr__onnx_node *node, hr_value condition, const hr__onnx_value *x,
                                   const hr__onnx_value *y) {
  int rank = hr__onnx_rank(node, x->value);
  bool is_same = x->value != 0 && y->value != 0 && rank == hr__onnx_rank(node, y->value);
  for (int d = 0; is_same && d < rank; ++d) {
    is_same =
        hr__onnx_dim(node, x->value, d) == hr__onnx_dim(node, y->value, d) && hr__onnx_dim(node, x->value, d) >= 0;
  }
  if (!is_same) {
    int64_t ignored = 0;
    (void)hr__onnx_integers(node, condition, "condition", 1, &ignored); /* fails: it is not known */
    HR__ONNX_REFUSE(node, "branches with other dims");
    return (hr__onnx_value){0};
  }
  return (hr__onnx_value){.value = CALL(node, WHERE, condition, x->value, y->value), .data_type = x->data_type};
}

void hr__onnx_select_branches(hr__onnx_node *node, hr__span then_branch, hr__span else_branch) {
  int count = node->output_count;
  hr__onnx_value *others = hr__onnx_new_values(node, count);
  hr_value condition = hr__onnx_reshape(node, hr__onnx_input(node, 0), 0, NULL);
  bool is_run = others != NULL && hr__onnx_run_branch(node, then_branch, node->outputs) &&
                hr__onnx_run_branch(node, else_branch, others);
  for (int i = 0; is_run && i < count; ++i) {
    hr_status status = hr__onnx_check_branches(i, node->graph, &node->outputs[i], node->graph, &others[i]);
    is_run = status == HR_OK;
    if (!is_run) {
      hr__graph_fail(node->graph, status);
    }
  }
  for (int i = 0; is_run && i < count; ++i) {
    node->outputs[i] = select_value(node, condition, &node->outputs[i], &others[i]);
  }
}

/* ---- loops ---- */

typedef struct repetition {
  int state_count, scan_count; /* scan: results of which each run adds an element */
  hr__onnx_value *inputs, *results;
  hr_value *elements[HR__GRAPH_ATTRIBUTES_MAX]; /* of scans */
  int data_types[HR__GRAPH_ATTRIBUTES_MAX];
  int run_count;
} repetition;

static bool begin_repetition(hr__onnx_node *node, int input_count, int result_count, repetition *r) {
  if (r->scan_count < 0 || r->scan_count > HR__GRAPH_ATTRIBUTES_MAX) {
    HR__ONNX_REFUSE(node, "%d scanned outputs, expected 0 to %d", r->scan_count, HR__GRAPH_ATTRIBUTES_MAX);
    return false;
  }
  r->inputs = hr__onnx_new_values(node, input_count), r->results = hr__onnx_new_values(node, result_count);
  for (int i = 0; i < r->scan_count; ++i) {
    r->elements[i] = HR_ARENA_ARRAY(node->arena, hr_value, HR__ONNX_LIST_MAX);
  }
  return !hr__onnx_failed(node);
}

/* Keeps an element of each scan; results of the scans are at `results`. */
static bool add_elements(hr__onnx_node *node, repetition *r, const hr__onnx_value *results) {
  if (r->run_count == HR__ONNX_LIST_MAX) {
    HR__ONNX_REFUSE(node, "a loop runs more than %d times", HR__ONNX_LIST_MAX);
    return false;
  }
  for (int i = 0; i < r->scan_count; ++i) {
    r->elements[i][r->run_count] = results[i].value, r->data_types[i] = results[i].data_type;
  }
  ++r->run_count;
  return true;
}

static hr_value stack(hr__onnx_node *node, const repetition *r, int scan, int64_t axis, bool is_reverse) {
  if (r->run_count == 0) {
    return HR__ONNX_REFUSE(node, "scanned outputs of a loop that never runs");
  }
  hr_value all = ADD(node, STACK, r->run_count, r->elements[scan], WITH(hr__with_int("axis", axis)));
  axis = hr__onnx_axis(node, axis, hr__onnx_rank(node, all));
  return is_reverse ? ADD(node, FLIP, IN(all), WITH(hr__with_ints("axis", 1, &axis))) : all;
}

hr_value hr__onnx_single(hr__onnx_node *node, int64_t number, hr_dtype dtype) {
  const hr_type type = {.dtype = dtype};
  bool is_true = number != 0;
  return hr_graph_constant(node->graph, &type, dtype == HR_DTYPE_BOOL ? (const void *)&is_true : &number);
}

/* True if the loop goes on; `condition` 0: always. */
static bool goes_on(hr__onnx_node *node, hr_value condition) {
  int64_t number = 1;
  return condition == 0 || (hr__onnx_integers(node, condition, "condition", 1, &number) == 1 && number != 0);
}

/* Runs of the body until it ends the loop, or a failure. */
static void run_loop(hr__onnx_node *node, hr__span body, int64_t count, repetition *r) {
  hr_value condition = hr__onnx_input(node, 1);
  int states = r->state_count;
  while (r->run_count < count && goes_on(node, condition)) {
    r->inputs[0] = (hr__onnx_value){.value = hr__onnx_single(node, r->run_count, HR_DTYPE_I64)};
    r->inputs[1] = (hr__onnx_value){.value = condition != 0 ? condition : hr__onnx_single(node, 1, HR_DTYPE_BOOL)};
    if (!run_body(node, body, states + 2, r->inputs, node->output_count + 1, r->results) ||
        !add_elements(node, r, r->results + 1 + states)) {
      return;
    }
    condition = r->results[0].value;
    memcpy(r->inputs + 2, r->results + 1, (size_t)states * sizeof *r->inputs);
  }
}

void hr__onnx_unroll_loop(hr__onnx_node *node, hr__span body) {
  hr_value limit = hr__onnx_input(node, 0);
  int states = node->input_count > 2 ? node->input_count - 2 : 0;
  repetition r = {.state_count = states, .scan_count = node->output_count - states};
  int64_t count = INT64_MAX;
  if ((limit != 0 && hr__onnx_integers(node, limit, "trip count", 1, &count) < 0) ||
      !begin_repetition(node, states + 2, node->output_count + 1, &r)) {
    return;
  }
  for (int i = 0; i < states; ++i) {
    r.inputs[i + 2] = node->inputs[i + 2];
  }
  run_loop(node, body, count, &r);
  for (int i = 0; i < node->output_count && !hr__onnx_failed(node); ++i) {
    node->outputs[i] = i < states ? r.inputs[i + 2] : (hr__onnx_value){.value = 0};
    if (i >= states && hr__onnx_wants(node, i)) {
      node->outputs[i].value = stack(node, &r, i - states, 0, false);
      node->outputs[i].data_type = r.data_types[i - states];
    }
  }
}

/* Element `step` of a scanned input. */
static hr_value scanned(hr__onnx_node *node, hr_value x, int64_t axis, bool is_reverse, int64_t step, int64_t count) {
  int at = hr__onnx_axis(node, axis, hr__onnx_rank(node, x));
  return hr__onnx_squeeze_dim(node, hr__onnx_narrow(node, x, at, is_reverse ? count - 1 - step : step, 1), at);
}

static void run_scan(hr__onnx_node *node, hr__span body, const hr__onnx_scan *s, repetition *r) {
  int states = s->state_count;
  hr_value first = hr__onnx_input(node, states);
  int64_t count = hr__onnx_known_dim(node, first, hr__onnx_axis(node, s->in_axes[0], hr__onnx_rank(node, first)));
  for (int64_t step = 0; step < count && !hr__onnx_failed(node); ++step) {
    for (int i = 0; i < s->input_count; ++i) {
      hr_value x = hr__onnx_input(node, states + i);
      r->inputs[states + i] =
          (hr__onnx_value){.value = scanned(node, x, s->in_axes[i], s->in_reverse[i] != 0, step, count),
                           .data_type = node->inputs[states + i].data_type};
    }
    if (!run_body(node, body, states + s->input_count, r->inputs, node->output_count, r->results) ||
        !add_elements(node, r, r->results + states)) {
      return;
    }
    memcpy(r->inputs, r->results, (size_t)states * sizeof *r->inputs);
  }
}

void hr__onnx_unroll_scan(hr__onnx_node *node, hr__span body, const hr__onnx_scan *s) {
  int states = s->state_count;
  repetition r = {.state_count = states, .scan_count = s->output_count};
  if (!begin_repetition(node, node->input_count, node->output_count, &r)) {
    return;
  }
  memcpy(r.inputs, node->inputs, (size_t)states * sizeof *r.inputs);
  run_scan(node, body, s, &r);
  for (int i = 0; i < node->output_count && !hr__onnx_failed(node); ++i) {
    bool is_state = i < states;
    node->outputs[i] = is_state ? r.inputs[i] : (hr__onnx_value){.value = 0};
    if (!is_state && hr__onnx_wants(node, i)) {
      int k = i - states;
      node->outputs[i].value = stack(node, &r, k, s->out_axes[k], s->out_reverse[k] != 0);
      node->outputs[i].data_type = r.data_types[k];
    }
  }
}
