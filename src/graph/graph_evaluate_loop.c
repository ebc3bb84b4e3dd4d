/* graph_evaluate_loop.c: a loop as one record: its body is recorded once, on a capture (headrace/loop.h).
 *
 *   while(body, condition, i, x, w)     call of "while"(condition(i, x, w), i, x, w)
 *
 * Carried values that the body passes on as they are stay the same in all iterations. The function computes the
 * condition of the next iteration with the body; that of the first one is recorded before the loop.
 *
 * Loops of few iterations, or of large ones, are not recorded this way: iterations that are records fuse with each
 * other. Nor are loops whose conditions the device computes, since a wait for each one sees an interrupt; bodies that
 * need numbers of the iteration on the host, for dims; and those of operands without elements.
 *
 * A branch in such a body is one record, too: both functions are loops of one iteration, and the condition selects one.
 */
#include "functional/functions.h"
#include "graph/graph_evaluate.h"
#include "headrace/loop.h"
#include "headrace/part.h"

enum { COUNT_MIN = 16, LARGE_BYTES = 256 << 10 };
enum { SIMULATED_MAX = 20000 }; /* nodes of bodies that are simulated to the end */

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for a loop");
}

typedef struct making {
  hr__evaluation *e;
  const hr__loop_arguments *of;
  hr__runner runner;
  hr__evaluation body;      /* on the capture */
  hr__item *params, *next;  /* of the body, with references */
  hr__item condition;       /* after an iteration */
  bool *stays;              /* of each parameter */
  const hr_tensor **places; /* of the parameters */
  const hr__fact **facts;
  int param_count, result_count; /* of the loop */
  int *order;                    /* the body's parameters in the loop's order: number of its input */
  int carried_count;             /* of the loop */
  hr_buffer **buffers;           /* of the loop's parameters, then results */
} making;

/* ---- what can be a loop ---- */

static bool passes_on(const hr__loop_arguments *of, int carried) {
  const hr_graph *body = of->node->inner[0];
  return body->outputs.data[carried].value == body->inputs.data[of->before + carried];
}

static bool is_sequence(const hr__loop_arguments *of, int input) {
  int first = of->before + of->node->carried_count;
  return input >= first && input < first + of->node->sequence_count;
}

static bool is_carried(const hr__loop_arguments *of, int input) {
  return input >= of->before && input < of->before + of->node->carried_count;
}

/* True if the body writes a slice of the carried value, and no more of it. */
static bool is_updated(const hr__loop_arguments *of, int carried) {
  const hr_graph *body = of->node->inner[0];
  const hr__node *node = hr__graph_node_of(body, body->outputs.data[carried].value);
  return node->kind == HR__NODE_CALL && node->function == HR_FUNCTIONAL_DYNAMIC_SLICE_UPDATE &&
         node->inputs[0] == body->inputs.data[of->before + carried];
}

static size_t bytes_of(const hr_tensor *x) {
  return (size_t)hr_tensor_count(x) * hr_dtype_size(x->dtype);
}

/* The bytes that an iteration writes at least. */
static size_t written_bytes(const hr__loop_arguments *of) {
  size_t bytes = 0;
  for (int i = 0; i < of->node->carried_count; ++i) {
    bytes += passes_on(of, i) || is_updated(of, i) ? 0 : bytes_of(&of->inputs[of->before + i].tensor);
  }
  return bytes;
}

/* Iterations of a while, as far as the host alone computes its condition. */
typedef struct simulation {
  hr__evaluation e; /* without a stream */
  hr__runner runner;
  const hr__node *node;
  int input_count;
  hr__item *items;
  const hr_tensor **places;
  const hr__fact **facts;
} simulation;

/* *out_is_known: the host knows the condition; *out_goes_on: it is true. */
static hr_status simulate_condition(simulation *s, bool *out_is_known, bool *out_goes_on) {
  hr__item condition = {0};
  HR_RETURN_IF_ERROR(hr__evaluate_nodes(&s->e, NULL, s->node->inner[1], s->places, s->facts, &condition));
  *out_is_known = condition.fact.numbers != NULL;
  *out_goes_on = *out_is_known && condition.fact.numbers[0] != 0;
  return HR_OK;
}

static hr_status simulate_iteration(simulation *s) {
  hr__item *next = HR_ARENA_ARRAY(&s->e.arena, hr__item, (size_t)s->node->result_count + 1);
  if (next == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(hr__evaluate_nodes(&s->e, NULL, s->node->inner[0], s->places, s->facts, next));
  for (int i = 0; i < s->node->carried_count; ++i) {
    s->items[i] = next[i];
  }
  return HR_OK;
}

/* The nodes of the graph, or SIMULATED_MAX if some have graphs of their own. */
static int64_t simulated_nodes(const hr_graph *g) {
  int64_t count = (int64_t)g->nodes.count;
  for (size_t i = 0; i < g->nodes.count && count < SIMULATED_MAX; ++i) {
    count = g->nodes.data[i].inner[0] != NULL ? SIMULATED_MAX : count;
  }
  return count;
}

/* Iterations that are simulated at most: to the end if they are few short ones. */
static int64_t simulated_max(const simulation *s) {
  int64_t nodes = simulated_nodes(s->node->inner[0]) + simulated_nodes(s->node->inner[1]) + 1;
  return SIMULATED_MAX / nodes > COUNT_MIN ? SIMULATED_MAX / nodes : COUNT_MIN;
}

/* *out_count: INT64_MAX if the host knows the condition of the first iterations, but not the last one. */
static hr_status simulate(simulation *s, const hr__item *inputs, int64_t *out_count, bool *out_is_known) {
  hr_arena *arena = &s->e.arena;
  bool goes_on = true;
  s->items = HR_ARENA_ARRAY(arena, hr__item, (size_t)s->input_count + 1);
  s->places = HR_ARENA_ARRAY(arena, const hr_tensor *, (size_t)s->input_count + 1);
  s->facts = HR_ARENA_ARRAY(arena, const hr__fact *, (size_t)s->input_count + 1);
  if (s->items == NULL || s->places == NULL || s->facts == NULL) {
    return no_memory();
  }
  for (int i = 0; i < s->input_count; ++i) {
    s->items[i] = inputs[i];
    s->items[i].tensor.buffer = NULL; /* borrowed types */
    s->places[i] = &s->items[i].tensor, s->facts[i] = &s->items[i].fact;
  }
  for (int64_t count = 0, max = simulated_max(s);; ++count) {
    HR_RETURN_IF_ERROR(simulate_condition(s, out_is_known, &goes_on));
    if (!goes_on || count >= max) {
      *out_count = !goes_on && *out_is_known ? count : count < COUNT_MIN ? count : INT64_MAX;
      *out_is_known = *out_is_known || count >= COUNT_MIN;
      return HR_OK;
    }
    HR_RETURN_IF_ERROR(simulate_iteration(s));
  }
}

/* True for few iterations, for those large enough to gain from fusion with each other, and if the host cannot compute
 * the conditions of the first ones. Sets the count of a while that the host knows. */
static hr_status is_better_recorded(const hr__evaluation *e, hr__loop_arguments *of, bool *out_is) {
  bool is_large = written_bytes(of) > LARGE_BYTES, is_known = true;
  int64_t count = 0;
  *out_is = of->count < COUNT_MIN || (of->count != INT64_MAX && is_large);
  if (of->node->kind != HR__NODE_WHILE) {
    return HR_OK;
  }
  simulation s = {.runner = *e->runner, .node = of->node, .input_count = of->input_count};
  s.runner.run = NULL, s.runner.compiles_loops = false;
  s.e.runner = &s.runner;
  hr_status status = simulate(&s, of->inputs, &count, &is_known);
  hr_arena_fini(&s.e.arena);
  hr_arena_fini(&s.e.scratch);
  *out_is = status != HR_OK || !is_known || count < COUNT_MIN || is_large; /* a wait sees an interrupt */
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
    return status;
  }
  of->count = status == HR_OK ? count : of->count;
  hr_status_free(status); /* the host does not know the condition */
  return HR_OK;
}

/* True if the device computes when the loop ends. */
static bool has_condition(const hr__loop_arguments *of) {
  return of->node->kind == HR__NODE_WHILE && of->count == INT64_MAX;
}

/* ---- the body ---- */

static hr_status allocate(making *m) {
  size_t params = (size_t)m->of->input_count + 1, results = (size_t)m->of->node->result_count + 1;
  hr_arena *arena = &m->body.arena;
  m->params = HR_ARENA_ARRAY(arena, hr__item, params);
  m->next = HR_ARENA_ARRAY(arena, hr__item, results);
  m->stays = HR_ARENA_ARRAY(arena, bool, params);
  m->places = HR_ARENA_ARRAY(arena, const hr_tensor *, params);
  m->facts = HR_ARENA_ARRAY(arena, const hr__fact *, params);
  m->order = HR_ARENA_ARRAY(arena, int, params);
  m->buffers = HR_ARENA_ARRAY(arena, hr_buffer *, params + results);
  bool has_all = m->params != NULL && m->next != NULL && m->stays != NULL && m->places != NULL && m->facts != NULL &&
                 m->order != NULL && m->buffers != NULL;
  return has_all ? HR_OK : no_memory();
}

/* The type of a parameter: that of an argument, of a slice, or of the number of the iteration. */
static hr_tensor type_of(const hr__loop_arguments *of, int input) {
  hr_tensor x = {.dtype = HR_DTYPE_I64};
  if (input >= of->before) {
    int sequence = input - of->before - of->node->carried_count;
    const hr_tensor *from = is_sequence(of, input) ? &of->sequences[sequence].tensor : &of->inputs[input].tensor;
    int skipped = is_sequence(of, input);
    x.dtype = from->dtype, x.rank = from->rank - skipped;
    memcpy(x.dims, from->dims + skipped, (size_t)x.rank * sizeof *x.dims);
  }
  hr_tensor_set_row_major(&x);
  return x;
}

static hr_status refuse(const char *why) {
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "loop: %s", why);
}

static hr_status create_params(making *m) {
  const hr__loop_arguments *of = m->of;
  for (int i = 0; i < of->input_count; ++i) {
    hr__item *x = &m->params[i];
    x->tensor = type_of(of, i);
    m->stays[i] = i >= of->before && !is_sequence(of, i) && (!is_carried(of, i) || passes_on(of, i - of->before));
    if (bytes_of(&x->tensor) == 0) {
      return refuse("an operand has no elements");
    }
    HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(m->body.stream), bytes_of(&x->tensor), &x->tensor.buffer));
    HR_RETURN_IF_ERROR(hr__item_note_type(&m->body, x));
    x->fact.numbers = m->stays[i] ? of->inputs[i].fact.numbers : NULL;
    m->places[i] = &x->tensor, m->facts[i] = &x->fact;
  }
  return HR_OK;
}

static bool has_buffer(const making *m, const hr_tensor *x, int results) {
  bool has = false;
  for (int i = 0; i < m->of->input_count; ++i) {
    has |= m->params[i].tensor.buffer == x->buffer;
  }
  for (int i = 0; i < results; ++i) {
    has |= m->next[i].tensor.buffer == x->buffer;
  }
  return has;
}

/* Replaces a tensor by its copy. */
static hr_status copy_row_major(hr_stream *stream, hr_tensor *x) {
  hr_tensor copy = *x;
  copy.offset = 0;
  hr_tensor_set_row_major(&copy);
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(stream), bytes_of(x), &copy.buffer));
  const hr_view from = hr_tensor_view(x), to = hr_tensor_view(&copy);
  hr_status status = hr_stream_record(stream, HR_OP_COPY, NULL, 1, &from, 1, &to);
  hr_tensor_release(status == HR_OK ? x : &copy);
  if (status == HR_OK) {
    *x = copy;
  }
  return status;
}

/* An output in a row-major buffer of its own, behind `results` other ones. */
static hr_status own(making *m, hr__item *x, int results) {
  HR_RETURN_IF_ERROR(hr__item_write(&m->body, x));
  const hr_tensor *from = &x->tensor;
  bool is_own = from->offset == 0 && hr_tensor_is_row_major(from) && hr_buffer_bytes(from->buffer) == bytes_of(from) &&
                !hr_buffer_has_memory(from->buffer) && !has_buffer(m, from, results);
  if (bytes_of(from) == 0) {
    return refuse("a result has no elements");
  }
  return is_own ? HR_OK : copy_row_major(m->body.stream, &x->tensor);
}

static bool has_type_of(const hr_tensor *x, const hr_tensor *y) {
  return x->dtype == y->dtype && x->rank == y->rank && memcmp(x->dims, y->dims, (size_t)x->rank * sizeof *x->dims) == 0;
}

static hr_status record_body(making *m) {
  const hr__node *node = m->of->node;
  HR_RETURN_IF_ERROR(hr__evaluate_nodes(&m->body, m->body.stream, node->inner[0], m->places, m->facts, m->next));
  for (int i = 0; i < node->result_count; ++i) {
    if (i < node->carried_count && m->stays[m->of->before + i]) {
      hr_buffer_release(m->next[i].tensor.buffer);
      m->next[i] = (hr__item){0};
      continue;
    }
    HR_RETURN_IF_ERROR(own(m, &m->next[i], i));
    if (i < node->carried_count && !has_type_of(&m->next[i].tensor, &m->params[m->of->before + i].tensor)) {
      return refuse("a carried value changes its dims");
    }
  }
  return HR_OK;
}

/* The condition of the iteration after this one. */
static hr_status record_condition(making *m) {
  const hr__node *node = m->of->node;
  const hr_tensor **places = HR_ARENA_ARRAY(&m->body.arena, const hr_tensor *, (size_t)m->of->input_count + 1);
  if (places == NULL) {
    return no_memory();
  }
  for (int i = 0; i < m->of->input_count; ++i) {
    places[i] = is_carried(m->of, i) && !m->stays[i] ? &m->next[i].tensor : m->places[i];
  }
  HR_RETURN_IF_ERROR(hr__evaluate_nodes(&m->body, m->body.stream, node->inner[1], places, m->facts, &m->condition));
  if (m->condition.tensor.dtype != HR_DTYPE_BOOL || hr_tensor_count(&m->condition.tensor) != 1) {
    return refuse("the condition is no bool");
  }
  return own(m, &m->condition, node->result_count);
}

/* Carried values that change, sequences, then what stays. */
static void order_params(making *m) {
  const hr__loop_arguments *of = m->of;
  for (int kind = 0; kind < 3; ++kind) {
    for (int i = of->before; i < of->input_count; ++i) {
      int own_kind = m->stays[i] ? 2 : is_sequence(of, i) ? 1 : 0;
      if (own_kind == kind) {
        m->carried_count += kind == 0;
        m->buffers[m->param_count] = m->params[i].tensor.buffer;
        m->order[m->param_count++] = i;
      }
    }
  }
  for (int i = 0; i < of->node->result_count; ++i) {
    if (i >= of->node->carried_count || !m->stays[of->before + i]) {
      m->buffers[m->param_count + m->result_count++] = m->next[i].tensor.buffer;
    }
  }
}

static hr_status make(making *m, hr_loop **out_loop) {
  const hr__loop_arguments *of = m->of;
  HR_RETURN_IF_ERROR(allocate(m));
  HR_RETURN_IF_ERROR(create_params(m));
  HR_RETURN_IF_ERROR(record_body(m));
  HR_RETURN_IF_ERROR(has_condition(of) ? record_condition(m) : HR_OK);
  order_params(m);
  if (m->param_count + m->result_count + 1 > HR_FUNCTION_OPERANDS_MAX) {
    return refuse("too many operands");
  }
  const hr_loop_spec spec = {.carried_count = m->carried_count,
                             .sequence_count = of->node->sequence_count,
                             .param_count = m->param_count,
                             .params = m->buffers,
                             .result_count = m->result_count,
                             .results = m->buffers + m->param_count,
                             .number = of->before > 0 ? m->params[0].tensor.buffer : NULL,
                             .condition = m->condition.tensor.buffer,
                             .count_max = of->count};
  return hr_loop_create(m->body.stream, &spec, out_loop);
}

/* ---- the record ---- */

/* The condition of the first iteration; *out_is_none: the host knows that there is none. */
static hr_status record_first(const making *m, hr__item *out_condition, bool *out_is_none) {
  hr__evaluation *e = m->e;
  *out_is_none = false;
  if (!has_condition(m->of)) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(
      hr__evaluate_inner(e, e->stream, m->of->node, m->of->node->inner[1], m->of->inputs, out_condition));
  *out_is_none = out_condition->fact.numbers != NULL && out_condition->fact.numbers[0] == 0;
  return hr__item_write(e, out_condition);
}

/* A new row-major tensor like one of the body, or stacked. */
static hr_status create_like(const making *m, const hr_tensor *like, bool stacked, hr__item *out) {
  if (like->rank + stacked > HR_RANK_MAX) {
    return refuse("a stacked result has too many dims");
  }
  hr_tensor *x = &out->tensor;
  x->dtype = like->dtype, x->rank = like->rank + stacked;
  x->dims[0] = m->of->count;
  memcpy(x->dims + stacked, like->dims, (size_t)like->rank * sizeof *like->dims);
  hr_tensor_set_row_major(x);
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(m->e->stream), bytes_of(x), &x->buffer));
  return hr__item_note_type(m->e, out);
}

static hr_status pass_through(const making *m, int carried, hr__item *result) {
  hr__item *from = &m->of->inputs[m->of->before + carried];
  *result = *from;
  hr_buffer_retain(result->tensor.buffer);
  return HR_OK;
}

static const char *name_of(const hr__node *node) {
  return node->kind == HR__NODE_WHILE ? "while" : node->kind == HR__NODE_FOR ? "for" : "scan";
}

/* Takes over the loop. */
static hr_status record(const making *m, hr_loop *loop, const hr__item *condition, hr__item *results) {
  const hr__loop_arguments *of = m->of;
  hr_view views[HR_FUNCTION_OPERANDS_MAX];
  int inputs = 0, outputs = 0;
  if (condition->tensor.buffer != NULL) {
    views[inputs++] = hr_tensor_view(&condition->tensor);
  }
  for (int i = 0; i < m->param_count; ++i) {
    int input = m->order[i];
    views[inputs++] =
        hr_tensor_view(is_sequence(of, input) ? &of->sequences[input - of->before - of->node->carried_count].tensor
                                              : &of->inputs[input].tensor);
  }
  for (int i = 0; i < of->node->result_count; ++i) {
    if (i >= of->node->carried_count || !m->stays[of->before + i]) {
      views[inputs + outputs++] = hr_tensor_view(&results[i].tensor);
    }
  }
  const hr_function_spec spec = {.name = name_of(of->node),
                                 .run = hr_loop_run,
                                 .arg = loop,
                                 .release = hr_loop_free,
                                 .is_short = hr_loop_is_short(loop)};
  return hr_function_record(m->e->stream, &spec, inputs, views, outputs, views + inputs);
}

static hr_status write_arguments(const making *m) {
  const hr__loop_arguments *of = m->of;
  for (int i = of->before; i < of->input_count; ++i) {
    HR_RETURN_IF_ERROR(is_sequence(of, i) ? HR_OK : hr__item_write(m->e, &of->inputs[i]));
  }
  for (int i = 0; i < of->node->sequence_count; ++i) {
    HR_RETURN_IF_ERROR(hr__item_write(m->e, &of->sequences[i]));
  }
  return HR_OK;
}

static hr_status create_results(const making *m, hr__item *results) {
  const hr__loop_arguments *of = m->of;
  for (int i = 0; i < of->node->result_count; ++i) {
    bool stays = i < of->node->carried_count && m->stays[of->before + i];
    HR_RETURN_IF_ERROR(stays ? pass_through(m, i, &results[i])
                             : create_like(m, &m->next[i].tensor, i >= of->node->carried_count, &results[i]));
  }
  return HR_OK;
}

static hr_status record_loop(const making *m, hr_loop **loop, hr__item *results) {
  hr__item condition = {0};
  bool is_none = false;
  HR_RETURN_IF_ERROR(write_arguments(m));
  hr_status status = record_first(m, &condition, &is_none);
  status = status == HR_OK && is_none ? refuse("no iteration") : status;
  status = status == HR_OK ? create_results(m, results) : status;
  if (status == HR_OK) {
    status = record(m, *loop, &condition, results);
    *loop = NULL;
  }
  hr_buffer_release(condition.tensor.buffer);
  return status;
}

/* ---- the whole ---- */

static void free_making(making *m) {
  hr__items_release(m->params != NULL ? m->of->input_count : 0, m->params);
  hr__items_release(m->next != NULL ? m->of->node->result_count : 0, m->next);
  hr__items_release(1, &m->condition);
  hr_stream_release(m->body.stream);
  hr_arena_fini(&m->body.arena);
  hr_arena_fini(&m->body.scratch);
}

static bool may_be_loop(const hr__evaluation *e, const hr__loop_arguments *of) {
  bool is_stacked = of->node->result_count > of->node->carried_count;
  return e->stream != NULL && e->runner->compiles_loops && e->runner->transforms == 0 &&
         (of->count != INT64_MAX || !is_stacked);
}

static hr_status capture_and_make(making *m, hr_loop **out_loop) {
  m->runner = *m->e->runner;
  m->runner.run = NULL, m->runner.is_in_loop = true;
  m->body.runner = &m->runner;
  HR_RETURN_IF_ERROR(hr_capture_create(hr_stream_device(m->e->stream), &m->body.stream));
  return make(m, out_loop);
}

/* The operations of the bodies count for the evaluation. */
static void count_body(const making *m) {
  m->e->runner->operations_left = m->runner.operations_left;
  m->e->runner->endless_loops = m->runner.endless_loops;
}

/* Of a failure that the records have, too, or that they do not have, nothing is left. */
static hr_status forget(hr_status status) {
  if (hr_status_code_of(status) != HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_status_free(status);
    return HR_OK;
  }
  return status;
}

static hr_status try(making *m, hr__item *results) {
  hr_loop *loop = NULL;
  hr_status status = capture_and_make(m, &loop);
  status = status == HR_OK ? record_loop(m, &loop, results) : status;
  hr_loop_free(loop);
  return status;
}

hr_status hr__evaluate_loop_at_once(hr__evaluation *e, const hr__loop_arguments *of, hr__item *results,
                                    bool *out_is_done) {
  bool is_recorded = false;
  *out_is_done = false;
  if (!may_be_loop(e, of)) {
    return HR_OK;
  }
  hr__loop_arguments counted = *of;
  HR_RETURN_IF_ERROR(is_better_recorded(e, &counted, &is_recorded));
  if (is_recorded) {
    return HR_OK;
  }
  making m = {.e = e, .of = &counted};
  hr_status status = try(&m, results);
  *out_is_done = status == HR_OK;
  if (*out_is_done) {
    count_body(&m);
    e->runner->endless_loops += has_condition(&counted);
  } else {
    hr__items_release(of->node->result_count, results);
  }
  free_making(&m);
  return forget(status);
}

/* ---- branches ---- */

typedef struct choice {
  hr_loop *loops[2]; /* then, otherwise */
} choice;

static void free_choice(void *arg) {
  choice *c = arg;
  hr_loop_free(c->loops[0]);
  hr_loop_free(c->loops[1]);
  hr_free(c);
}

static hr_status run_choice(const hr_function_call *call) {
  const choice *c = call->arg;
  hr_function_call own = *call;
  own.arg = c->loops[*(const char *)call->inputs[0] == 0];
  own.inputs = call->inputs + 1, own.input_count = call->input_count - 1;
  return hr_loop_run(&own);
}

static bool has_results_of(const making *x, const making *y) {
  bool has = true;
  for (int i = 0; has && i < x->of->node->result_count; ++i) {
    has = has_type_of(&x->next[i].tensor, &y->next[i].tensor);
  }
  return has;
}

/* Takes over the choice. */
static hr_status record_choice(const making *m, choice *c, const hr__item *condition, hr__item *results) {
  hr_view views[HR_FUNCTION_OPERANDS_MAX];
  int inputs = 0, count = m->of->node->result_count;
  const hr_function_spec spec = {.name = "if",
                                 .run = run_choice,
                                 .arg = c,
                                 .release = free_choice,
                                 .is_short = hr_loop_is_short(c->loops[0]) && hr_loop_is_short(c->loops[1])};
  views[inputs++] = hr_tensor_view(&condition->tensor);
  for (int i = 0; i < m->param_count; ++i) {
    views[inputs++] = hr_tensor_view(&m->of->inputs[m->order[i]].tensor);
  }
  for (int i = 0; i < count; ++i) {
    views[inputs + i] = hr_tensor_view(&results[i].tensor);
  }
  return hr_function_record(m->e->stream, &spec, inputs, views, count, views + inputs);
}

static hr_status try_choice(making *m, const hr__item *condition, hr__item *results) {
  choice *c = hr_calloc(1, sizeof *c);
  if (c == NULL) {
    return no_memory();
  }
  hr_status status = HR_OK;
  for (int i = 0; status == HR_OK && i < 2; ++i) {
    status = capture_and_make(&m[i], &c->loops[i]);
    count_body(&m[i]);
  }
  status = status == HR_OK && !has_results_of(&m[0], &m[1]) ? refuse("the branches' results differ in dims") : status;
  status = status == HR_OK ? write_arguments(&m[0]) : status;
  for (int i = 0; status == HR_OK && i < m[0].of->node->result_count; ++i) {
    status = create_like(m, &m[0].next[i].tensor, false, &results[i]);
  }
  if (status != HR_OK) {
    free_choice(c);
    return status;
  }
  return record_choice(&m[0], c, condition, results);
}

hr_status hr__evaluate_choice_at_once(hr__evaluation *e, const hr__node *node, const hr__item *condition,
                                      hr__item *arguments, hr__item *results, bool *out_is_done) {
  int count = node->input_count - hr__node_first_argument(node);
  hr__node branches[2] = {*node, *node};
  hr__loop_arguments of[2] = {{.node = &branches[0], .input_count = count, .inputs = arguments, .count = 1}};
  *out_is_done = false;
  if (!e->runner->is_in_loop || !e->runner->compiles_loops || e->runner->transforms > 0 ||
      condition->tensor.buffer == NULL || condition->tensor.dtype != HR_DTYPE_BOOL ||
      hr_tensor_count(&condition->tensor) != 1) {
    return HR_OK;
  }
  of[1] = of[0], of[1].node = &branches[1];
  for (int i = 0; i < 2; ++i) {
    branches[i].kind = HR__NODE_SCAN, branches[i].inner[0] = node->inner[i];
    branches[i].carried_count = branches[i].sequence_count = 0;
  }
  making m[2] = {{.e = e, .of = &of[0]}, {.e = e, .of = &of[1]}};
  hr_status status = try_choice(m, condition, results);
  *out_is_done = status == HR_OK;
  if (!*out_is_done) {
    hr__items_release(node->result_count, results);
  }
  free_making(&m[0]);
  free_making(&m[1]);
  return forget(status);
}
