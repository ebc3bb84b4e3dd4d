/* graph_evaluate_control.c: control flow as evaluations of inner graphs, and numbers that are read.
 *
 * A loop evaluates its body once for each iteration: on a capture, all iterations become records of one part. Numbers
 * that the host knows, such as a counter, pass from one iteration to the next without the device. A condition that the
 * device computes is waited for; on a capture this fails, and a session then evaluates on its stream.
 *
 * Host memory does not depend on the number of iterations: facts of an iteration live until the end of the next one,
 * and outputs that are stacked become one tensor for each BLOCK iterations.
 */
#include "base/thread.h"
#include "functional/functions.h"
#include "graph/graph_evaluate.h"
#include "headrace/array.h"

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for control flow");
}

static int64_t count_of(const hr__fact *fact) {
  int64_t count = 1;
  for (int d = 0; d < fact->rank; ++d) {
    count *= fact->dims[d];
  }
  return count;
}

/* ---- items ---- */

/* A number as a tensor of the item alone: as an operand it stays a number, whose dtype is weak. */
static hr_status write_number(hr__evaluation *e, const hr__node *node, hr__item *out) {
  out->fact = *hr__frame_fact(&e->frame, node->first);
  return hr__evaluate_write(e, node->number.dtype, 0, NULL, &node->number.value, &out->tensor);
}

static hr_status hr__item_get(hr__evaluation *e, hr_value value, hr__item *out) {
  const hr__node *node = hr__graph_node_of(e->frame.graph, value);
  const hr__fact *fact = hr__frame_fact(&e->frame, value);
  hr_tensor *x = &e->tensors[value];
  if (node->kind == HR__NODE_NUMBER && fact->numbers == NULL) {
    return write_number(e, node, out);
  }
  if (fact->numbers == NULL && x->buffer == NULL) {
    HR_RETURN_IF_ERROR(hr__evaluate_tensor(e, value, true));
  }
  out->fact = *hr__frame_fact(&e->frame, value);
  if (x->buffer != NULL) {
    hr__view_like(x, &out->tensor);
  } else {
    hr__frame_type(&e->frame, value, &out->tensor);
    out->tensor.number = (hr_scalar){0}, out->tensor.dtype = out->fact.dtype;
  }
  return HR_OK;
}

/* Copies what a fact refers to into the evaluation's arena. */
static hr_status keep_fact(hr__evaluation *e, hr__fact *fact) {
  int64_t *numbers = NULL, *dims = hr_arena_dup_words(&e->arena, fact->dims, fact->rank);
  if (fact->numbers != NULL) {
    numbers = hr_arena_dup_words(&e->arena, fact->numbers, (int)count_of(fact));
  }
  if (dims == NULL || (fact->numbers != NULL && numbers == NULL)) {
    return no_memory();
  }
  fact->dims = dims, fact->numbers = numbers;
  return HR_OK;
}

hr_status hr__item_note_type(hr__evaluation *e, hr__item *x) {
  int64_t *dims = hr_arena_dup_words(&e->arena, x->tensor.dims, x->tensor.rank);
  x->fact = (hr__fact){.is_set = true, .dtype = x->tensor.dtype, .rank = x->tensor.rank, .dims = dims};
  return dims != NULL ? HR_OK : no_memory();
}

hr_status hr__item_write(hr__evaluation *e, hr__item *x) {
  if (x->tensor.buffer != NULL || x->fact.numbers == NULL || e->stream == NULL) {
    return HR_OK;
  }
  int64_t count = count_of(&x->fact);
  void *elements = hr_arena_alloc(&e->scratch, (size_t)count * sizeof(int64_t) + 1);
  if (elements == NULL) {
    return no_memory();
  }
  hr__integers_store(x->fact.dtype, count, x->fact.numbers, elements);
  return hr__evaluate_write(e, x->fact.dtype, x->fact.rank, x->fact.dims, elements, &x->tensor);
}

void hr__items_release(int count, hr__item *items) {
  for (int i = 0; items != NULL && i < count; ++i) {
    hr_buffer_release(items[i].tensor.buffer);
    items[i] = (hr__item){0};
  }
}

/* The items are the node's results. */
static void set_results(hr__evaluation *e, const hr__node *node, hr__item *items) {
  for (int i = 0; i < node->result_count; ++i) {
    e->tensors[node->first + i] = items[i].tensor;
    e->frame.facts[node->first + i] = items[i].fact;
    items[i] = (hr__item){0};
  }
}

/* ---- numbers ---- */

static hr_status read_elements(hr__evaluation *e, const hr__item *x, const char *what, void *out_elements) {
  if (e->stream == NULL) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "the %s is computed by the device: an inference can't read it",
                          what);
  }
  hr_status status = hr_array_read(e->stream, &x->tensor, out_elements);
  if (hr_status_code_of(status) == HR_STATUS_FAILED_PRECONDITION) {
    hr_status_free(status);
    e->runner->needs_stream = true;
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "the %s is computed by the device: a capture can't wait for it",
                          what);
  }
  ++e->runner->waits;
  return status;
}

/* The elements of an item as numbers, in the evaluation's arena. */
static hr_status read_item(hr__evaluation *e, const hr__item *x, const char *what, const int64_t **out_numbers) {
  char elements[HR__GRAPH_HOST_FEW * sizeof(int64_t)];
  int64_t count = count_of(&x->fact);
  if (x->fact.numbers != NULL) {
    *out_numbers = x->fact.numbers;
    return HR_OK;
  }
  if (!hr__is_host_dtype(x->fact.dtype) || count > HR__GRAPH_HOST_FEW) {
    char text[HR__SHAPE_TEXT];
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the %s is %s%s, expected at most %d integers or bools", what,
                          hr_dtype_name(x->fact.dtype), hr__shape_text(x->fact.rank, x->fact.dims, text),
                          HR__GRAPH_HOST_FEW);
  }
  int64_t *numbers = HR_ARENA_ARRAY(&e->arena, int64_t, (size_t)count + 1);
  if (numbers == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(read_elements(e, x, what, elements));
  hr__integers_load(x->fact.dtype, count, elements, numbers);
  *out_numbers = numbers;
  return HR_OK;
}

static hr_status read_one(hr__evaluation *e, const hr__item *x, const char *what, int64_t *out_number) {
  const int64_t *numbers = NULL;
  if (count_of(&x->fact) != 1) {
    char text[HR__SHAPE_TEXT];
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the %s has dims %s, expected one element", what,
                          hr__shape_text(x->fact.rank, x->fact.dims, text));
  }
  HR_RETURN_IF_ERROR(read_item(e, x, what, &numbers));
  *out_number = numbers[0];
  return HR_OK;
}

static hr_status read_value(hr__evaluation *e, hr_value value, const char *what, int64_t *out_number) {
  hr__item x = {0};
  char text[HR__GRAPH_NAME_TEXT];
  HR_RETURN_IF_ERROR(hr__item_get(e, value, &x));
  hr_status status = read_one(e, &x, what, out_number);
  hr_buffer_release(x.tensor.buffer);
  return hr_status_annotate(status, "\"%s\"", hr__graph_label(e->frame.graph, value, text));
}

hr_status hr__evaluate_read(hr__evaluation *e, const hr__node *node) {
  hr__item x = {0};
  char text[HR__GRAPH_NAME_TEXT];
  HR_RETURN_IF_ERROR(hr__item_get(e, node->inputs[0], &x));
  hr_status status = read_item(e, &x, "number", &x.fact.numbers);
  if (status != HR_OK) {
    hr_buffer_release(x.tensor.buffer);
    return hr_status_annotate(status, "\"%s\"", hr__graph_label(e->frame.graph, node->inputs[0], text));
  }
  set_results(e, node, &x);
  return HR_OK;
}

/* ---- inner graphs ---- */

/* An output of an inner evaluation as one of `e`. */
static hr_status take_output(hr__evaluation *e, hr__evaluation *inner, hr_value value, hr__item *out) {
  HR_RETURN_IF_ERROR(hr__item_get(inner, value, out));
  return keep_fact(e, &out->fact);
}

hr_status hr__evaluate_nodes(hr__evaluation *e, hr_stream *stream, const hr_graph *inner,
                             const hr_tensor *const *inputs, const hr__fact *const *facts, hr__item *outputs) {
  hr__evaluation *other = hr_calloc(1, sizeof *other);
  if (other == NULL) {
    return no_memory();
  }
  other->frame.graph = inner;
  other->stream = stream, other->runner = e->runner, other->inputs = inputs, other->input_facts = facts;
  other->constants = e->runner->constants != NULL ? e->runner->constants(e->runner->arg, inner) : NULL;
  hr_status status = hr__evaluation_run(other, inner);
  for (size_t i = 0; status == HR_OK && i < inner->outputs.count; ++i) {
    status = take_output(e, other, inner->outputs.data[i].value, &outputs[i]);
  }
  hr__evaluation_finish(other);
  hr_free(other);
  return status;
}

static bool has_numbers_of_host(const hr_graph *inner, const hr__item *inputs) {
  for (size_t i = 0; i < inner->inputs.count; ++i) {
    if (inputs[i].fact.numbers != NULL) {
      return true;
    }
  }
  return false;
}

/* The facts of inputs with those numbers alone that decide what the inner graph records. Sets NULL if there are none.
 */
static hr_status needed_facts(hr__evaluation *e, const hr_graph *inner, const hr__item *inputs,
                              const hr__fact ***out_facts) {
  size_t count = inner->inputs.count;
  bool needs_any = false;
  hr__fact *facts = HR_ARENA_ARRAY(&e->scratch, hr__fact, count + 1);
  const hr__fact **places = HR_ARENA_ARRAY(&e->scratch, const hr__fact *, count + 1);
  if (facts == NULL || places == NULL) {
    return no_memory();
  }
  for (size_t i = 0; i < count; ++i) {
    facts[i] = inputs[i].fact, places[i] = &facts[i];
    if (!hr__graph_value_of(inner, inner->inputs.data[i])->needs_numbers) {
      facts[i].numbers = NULL;
    }
    needs_any |= facts[i].numbers != NULL;
  }
  *out_facts = needs_any ? places : NULL;
  return HR_OK;
}

static hr_status keep_tensors(hr__evaluation *e, int count, const hr_tensor *tensors, hr__item *outputs) {
  for (int i = 0; i < count; ++i) {
    outputs[i].tensor = tensors[i];
  }
  for (int i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(hr__item_note_type(e, &outputs[i]));
  }
  return HR_OK;
}

/* Facts of values of an inner graph, those that the host can compute. */
typedef struct known {
  hr__frame frame;
  bool is_known; /* each value that a node reads is */
} known;

static void note_known(void *arg, const hr_value *value) {
  known *k = arg;
  k->is_known &= hr__frame_fact(&k->frame, *value)->numbers != NULL;
}

static bool can_infer(known *k, const hr__node *node) {
  k->is_known = node->result_count == 1;
  if (node->kind == HR__NODE_SHAPE) {
    return hr__frame_fact(&k->frame, node->inputs[0])->is_set;
  }
  hr__node_each_input(node, note_known, k);
  return k->is_known && (node->kind == HR__NODE_CALL || node->kind == HR__NODE_CONSTANT ||
                         node->kind == HR__NODE_NUMBER || node->kind == HR__NODE_SYMBOL);
}

static hr_status infer_known(known *k, const hr__item *inputs) {
  const hr_graph *inner = k->frame.graph;
  for (size_t n = 0; n < inner->nodes.count; ++n) {
    const hr__node *node = &inner->nodes.data[n];
    if (node->kind == HR__NODE_INPUT) {
      k->frame.facts[node->first] = (inputs++)->fact;
    } else if (can_infer(k, node)) {
      hr_status status = hr__frame_infer(&k->frame, node, &k->frame.facts[node->first]);
      if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
        return status;
      }
      hr_status_free(status); /* the instance has run: such a number is just not known */
    }
  }
  return HR_OK;
}

/* The numbers of an instance's outputs that follow from numbers of the host: a counter stays known. */
static hr_status keep_numbers(hr__evaluation *e, const hr_graph *inner, const hr__item *inputs,
                              const hr_tensor *const *places, hr__item *outputs) {
  int64_t symbols[HR_GRAPH_SYMBOLS_MAX], host_bytes = 0;
  hr_arena arena = {0};
  known k = {.frame = {.graph = inner, .symbols = symbols, .arena = &arena, .scratch = &arena}};
  k.frame.host_bytes = &host_bytes;
  k.frame.facts = hr_calloc(inner->values.count, sizeof *k.frame.facts);
  hr_status status =
      k.frame.facts != NULL ? hr__graph_bind(inner, (int)inner->inputs.count, places, symbols) : no_memory();
  status = status == HR_OK ? infer_known(&k, inputs) : status;
  for (size_t i = 0; status == HR_OK && i < inner->outputs.count; ++i) {
    const hr__fact *fact = &k.frame.facts[inner->outputs.data[i].value];
    if (fact->numbers != NULL) {
      outputs[i].fact.numbers = hr_arena_dup_words(&e->arena, fact->numbers, (int)count_of(fact));
      status = outputs[i].fact.numbers != NULL ? HR_OK : no_memory();
    }
  }
  hr_free(k.frame.facts);
  hr_arena_fini(&arena);
  return status;
}

/* Runs an instance of the inner graph, if there may be one: numbers of the host are written to the device. In a loop
 * those that decide what is recorded are others in each iteration, of which there is none. */
static hr_status run_instance(hr__evaluation *e, const hr__node *node, const hr_graph *inner, hr__item *inputs,
                              const hr_tensor *const *places, hr__item *outputs, bool *out_is_done) {
  hr__runner *runner = e->runner;
  int results = (int)inner->outputs.count;
  bool is_loop = hr__node_is_loop(node);
  const hr__fact **facts = NULL;
  *out_is_done = false;
  if (runner->run == NULL || e->stream == NULL || runner->transforms > 0) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(needed_facts(e, inner, inputs, &facts));
  if (facts != NULL && is_loop) {
    return HR_OK;
  }
  hr_tensor *tensors = HR_ARENA_ARRAY(&e->scratch, hr_tensor, (size_t)results);
  if (tensors == NULL) {
    return no_memory();
  }
  for (size_t i = 0; i < inner->inputs.count; ++i) {
    HR_RETURN_IF_ERROR(hr__item_write(e, &inputs[i]));
  }
  HR_RETURN_IF_ERROR(runner->run(runner->arg, inner, places, facts, tensors, out_is_done));
  if (!*out_is_done) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(keep_tensors(e, results, tensors, outputs));
  return has_numbers_of_host(inner, inputs) ? keep_numbers(e, inner, inputs, places, outputs) : HR_OK;
}

hr_status hr__evaluate_inner(hr__evaluation *e, hr_stream *stream, const hr__node *node, const hr_graph *inner,
                             hr__item *inputs, hr__item *outputs) {
  size_t count = inner->inputs.count;
  const hr_tensor **places = HR_ARENA_ARRAY(&e->scratch, const hr_tensor *, count + 1);
  const hr__fact **facts = HR_ARENA_ARRAY(&e->scratch, const hr__fact *, count + 1);
  bool is_done = false;
  if (places == NULL || facts == NULL) {
    return no_memory();
  }
  for (size_t i = 0; i < count; ++i) {
    places[i] = &inputs[i].tensor, facts[i] = &inputs[i].fact;
  }
  if (stream != NULL) {
    HR_RETURN_IF_ERROR(run_instance(e, node, inner, inputs, places, outputs, &is_done));
  }
  return is_done ? HR_OK : hr__evaluate_nodes(e, stream, inner, places, facts, outputs);
}

/* ---- calls and conditions ---- */

hr_status hr__evaluate_arguments(hr__evaluation *e, const hr__node *node, int before, hr__item **out_items) {
  int first = hr__node_first_argument(node), count = node->input_count - first;
  *out_items = HR_ARENA_ARRAY(&e->scratch, hr__item, (size_t)(before + count) + 1);
  if (*out_items == NULL) {
    return no_memory();
  }
  for (int i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(hr__item_get(e, node->inputs[first + i], &(*out_items)[before + i]));
  }
  return HR_OK;
}

/* Records the branch as one operation, if that is possible, or reads its condition. */
static hr_status choose(hr__evaluation *e, const hr__node *node, hr__item *arguments, hr__item *results,
                        int64_t *out_is_true, bool *out_is_done) {
  hr__item condition = {0};
  HR_RETURN_IF_ERROR(hr__item_get(e, node->inputs[0], &condition));
  hr_status status = condition.fact.numbers == NULL
                         ? hr__evaluate_choice_at_once(e, node, &condition, arguments, results, out_is_done)
                         : HR_OK;
  hr_buffer_release(condition.tensor.buffer);
  return status == HR_OK && !*out_is_done ? read_value(e, node->inputs[0], "condition", out_is_true) : status;
}

static hr_status evaluate_call(hr__evaluation *e, const hr__node *node, hr__item *results) {
  int64_t is_true = 1;
  bool is_done = false;
  hr__item *arguments = NULL;
  hr_status status = hr__evaluate_arguments(e, node, 0, &arguments);
  if (status == HR_OK && node->kind == HR__NODE_IF) {
    status = choose(e, node, arguments, results, &is_true, &is_done);
  }
  if (status == HR_OK && !is_done) {
    status = hr__evaluate_inner(e, e->stream, node, node->inner[is_true == 0], arguments, results);
  }
  hr__items_release(node->input_count - hr__node_first_argument(node), arguments);
  return status;
}

/* ---- loops ---- */

enum { BLOCK = 1024 }; /* iterations whose outputs are stacked at once */

typedef HR_VECTOR(hr_tensor) tensors;

typedef struct loop {
  hr__evaluation *e;
  const hr__node *node;
  int before, input_count, stack_count; /* before: 1 for a number of the iteration among the inputs */
  hr__item *inputs;                     /* of the body */
  hr__item *outputs;                    /* of the body */
  hr__item *sequences;                  /* those of the arguments */
  tensors *stacked; /* of each output that is stacked: those of the iterations since the last block, with references */
  tensors *blocks;  /* the same, stacked: with a dim for the iterations */
  int64_t iterations;
  hr_arena facts[2], scratch; /* facts: of the items of this iteration, and of the one before */
  int turn;
} loop;

static hr_status create_loop(hr__evaluation *e, const hr__node *node, loop *l) {
  int first = hr__node_first_argument(node);
  *l = (loop){.e = e, .node = node, .before = node->kind == HR__NODE_FOR};
  l->input_count = l->before + node->input_count - first;
  l->stack_count = node->result_count - node->carried_count;
  l->outputs = HR_ARENA_ARRAY(&e->scratch, hr__item, (size_t)node->result_count);
  l->sequences = HR_ARENA_ARRAY(&e->scratch, hr__item, (size_t)node->sequence_count + 1);
  l->stacked = HR_ARENA_ARRAY(&e->scratch, tensors, (size_t)l->stack_count + 1);
  l->blocks = HR_ARENA_ARRAY(&e->scratch, tensors, (size_t)l->stack_count + 1);
  if (l->outputs == NULL || l->sequences == NULL || l->stacked == NULL || l->blocks == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(hr__evaluate_arguments(e, node, l->before, &l->inputs));
  for (int i = 0; i < node->sequence_count; ++i) {
    l->sequences[i] = l->inputs[node->carried_count + i];
    l->inputs[node->carried_count + i] = (hr__item){0};
  }
  return HR_OK;
}

static void release_tensors(tensors *list) {
  for (size_t i = 0; i < list->count; ++i) {
    hr_buffer_release(list->data[i].buffer);
  }
  hr_vector_clear(list);
}

static void free_loop(loop *l) {
  hr__items_release(l->inputs != NULL ? l->input_count : 0, l->inputs);
  hr__items_release(l->outputs != NULL ? l->node->result_count : 0, l->outputs);
  hr__items_release(l->sequences != NULL ? l->node->sequence_count : 0, l->sequences);
  for (int i = 0; l->blocks != NULL && i < l->stack_count; ++i) {
    release_tensors(&l->stacked[i]);
    release_tensors(&l->blocks[i]);
    hr_vector_fini(&l->stacked[i]);
    hr_vector_fini(&l->blocks[i]);
  }
  for (int i = 0; i < 2; ++i) {
    hr_arena_fini(&l->facts[i]);
  }
  hr_arena_fini(&l->scratch);
}

/* Slice `index` of a sequence: a view. */
static hr_status slice(loop *l, const hr__item *sequence, int64_t index, hr__item *out) {
  const hr_tensor *x = &sequence->tensor, *middle;
  int64_t begin[HR_RANK_MAX] = {index}, count[HR_RANK_MAX] = {1}, step[HR_RANK_MAX] = {1}, axis[1] = {0};
  hr_tensor row = {0};
  for (int d = 1; d < x->rank; ++d) {
    count[d] = x->dims[d], step[d] = 1;
  }
  const hr_attribute part[3] = {{.kind = HR_ATTRIBUTE_INTS, .count = x->rank, .value = {.ints = begin}},
                                {.kind = HR_ATTRIBUTE_INTS, .count = x->rank, .value = {.ints = count}},
                                {.kind = HR_ATTRIBUTE_INTS, .count = x->rank, .value = {.ints = step}}};
  const hr_attribute first = {.kind = HR_ATTRIBUTE_INTS, .count = 1, .value = {.ints = axis}};
  HR_RETURN_IF_ERROR(hr_functional_apply(l->e->stream, HR_FUNCTIONAL_SLICE, 1, &x, 3, part, 1, &row));
  middle = &row;
  hr_buffer_release(out->tensor.buffer);
  *out = (hr__item){0};
  hr_status status = hr_functional_apply(l->e->stream, HR_FUNCTIONAL_SQUEEZE, 1, &middle, 1, &first, 1, &out->tensor);
  hr_buffer_release(row.buffer);
  return status == HR_OK ? hr__item_note_type(l->e, out) : status;
}

/* The slices of an iteration, or for none their types. */
static hr_status set_slices(loop *l, int64_t index, bool is_none) {
  for (int i = 0; i < l->node->sequence_count; ++i) {
    hr__item *sequence = &l->sequences[i], *to = &l->inputs[l->node->carried_count + i];
    if (!is_none) {
      HR_RETURN_IF_ERROR(hr__item_write(l->e, sequence));
      HR_RETURN_IF_ERROR(slice(l, sequence, index, to));
      continue;
    }
    to->tensor = (hr_tensor){.dtype = sequence->tensor.dtype, .rank = sequence->tensor.rank - 1};
    memcpy(to->tensor.dims, sequence->tensor.dims + 1, (size_t)to->tensor.rank * sizeof *to->tensor.dims);
    HR_RETURN_IF_ERROR(hr__item_note_type(l->e, to));
  }
  return HR_OK;
}

static hr_status set_iteration(loop *l, int64_t index, bool is_none) {
  if (l->before > 0) {
    hr__item *number = &l->inputs[0];
    hr_buffer_release(number->tensor.buffer);
    *number = (hr__item){.tensor = {.dtype = HR_DTYPE_I64}};
    HR_RETURN_IF_ERROR(hr__item_note_type(l->e, number));
    number->fact.numbers = hr_arena_dup_words(&l->e->arena, &index, 1);
    if (number->fact.numbers == NULL) {
      return no_memory();
    }
  }
  return set_slices(l, index, is_none);
}

/* Joins tensors along dim 0, which for STACK is a new one; they are released. */
static hr_status join(loop *l, hr_functional function, tensors *parts, hr_tensor *out) {
  const hr_tensor **places = HR_ARENA_ARRAY(&l->e->scratch, const hr_tensor *, parts->count);
  hr_tensor joined = {0};
  if (places == NULL) {
    return no_memory();
  }
  for (size_t i = 0; i < parts->count; ++i) {
    places[i] = &parts->data[i];
  }
  HR_RETURN_IF_ERROR(hr_functional_apply(l->e->stream, function, (int)parts->count, places, 0, NULL, 1, &joined));
  release_tensors(parts);
  *out = joined;
  return HR_OK;
}

/* Makes one tensor of each output's tensors since the last block. */
static hr_status end_block(loop *l) {
  for (int i = 0; i < l->stack_count; ++i) {
    hr_tensor block = {0};
    HR_RETURN_IF_ERROR(join(l, HR_FUNCTIONAL_STACK, &l->stacked[i], &block));
    if (!hr_vector_push(&l->blocks[i], block)) {
      hr_buffer_release(block.buffer);
      return no_memory();
    }
  }
  return HR_OK;
}

static hr_status keep_outputs(loop *l) {
  hr__item *outputs = l->outputs + l->node->carried_count;
  for (int i = 0; i < l->stack_count; ++i) {
    HR_RETURN_IF_ERROR(hr__item_write(l->e, &outputs[i]));
    if (!hr_vector_push(&l->stacked[i], outputs[i].tensor)) {
      return no_memory();
    }
    outputs[i] = (hr__item){0};
  }
  return l->stack_count > 0 && (l->iterations + 1) % BLOCK == 0 ? end_block(l) : HR_OK;
}

/* Keeps the outputs of an iteration: carried ones as inputs of the next. */
static hr_status pass_on(loop *l) {
  HR_RETURN_IF_ERROR(keep_outputs(l));
  ++l->iterations;
  for (int i = 0; i < l->node->carried_count; ++i) {
    hr__item *to = &l->inputs[l->before + i];
    hr_buffer_release(to->tensor.buffer);
    *to = l->outputs[i];
    l->outputs[i] = (hr__item){0};
  }
  return HR_OK;
}

static hr_status check_condition(loop *l, int64_t *out_is_true) {
  hr__item condition = {0};
  hr_status status = hr__evaluate_inner(l->e, l->e->stream, l->node, l->node->inner[1], l->inputs, &condition);
  status = status == HR_OK ? read_one(l->e, &condition, "condition", out_is_true) : status;
  hr_buffer_release(condition.tensor.buffer);
  return status;
}

static hr_status count_iterations(loop *l, int64_t *out_count) {
  if (l->node->kind == HR__NODE_FOR) {
    return read_value(l->e, l->node->inputs[0], "count", out_count);
  }
  *out_count = l->node->kind == HR__NODE_SCAN ? l->sequences[0].fact.dims[0] : INT64_MAX;
  for (int i = 1; i < l->node->sequence_count; ++i) {
    if (l->sequences[i].fact.dims[0] != *out_count) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "scan: sequences have %lld and %lld slices, expected as many",
                            (long long)*out_count, (long long)l->sequences[i].fact.dims[0]);
    }
  }
  return HR_OK;
}

static hr_status evaluate_iteration(loop *l, int64_t *out_is_true) {
  HR_RETURN_IF_ERROR(l->node->kind == HR__NODE_WHILE ? check_condition(l, out_is_true) : HR_OK);
  if (*out_is_true == 0) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(set_iteration(l, l->iterations, false));
  HR_RETURN_IF_ERROR(hr__evaluate_inner(l->e, l->e->stream, l->node, l->node->inner[0], l->inputs, l->outputs));
  return pass_on(l);
}

static void swap_arenas(hr_arena *x, hr_arena *y) {
  const hr_arena kept = *x;
  *x = *y, *y = kept;
}

/* An iteration whose facts, and scratch memory, are the loop's. */
static hr_status iterate_once(loop *l, int64_t *out_is_true) {
  hr__evaluation *e = l->e;
  l->turn ^= 1;
  hr_arena_reset(&l->facts[l->turn]);
  hr_arena_reset(&l->scratch);
  swap_arenas(&e->arena, &l->facts[l->turn]);
  swap_arenas(&e->scratch, &l->scratch);
  hr_status status = evaluate_iteration(l, out_is_true);
  swap_arenas(&e->scratch, &l->scratch);
  swap_arenas(&e->arena, &l->facts[l->turn]);
  return status;
}

/* CANCELLED if the stream's owner wants an end. Waits check that, too, but not every loop waits. */
static hr_status check_interrupt(hr__evaluation *e) {
  enum { NS_PER_MS = 1000000 };
  int64_t now = e->stream != NULL ? hr_clock_ns() : 0;
  if (now - e->runner->checked_ns < (int64_t)HR_INTERRUPT_CHECK_MS * NS_PER_MS) {
    return HR_OK;
  }
  e->runner->checked_ns = now;
  return hr_stream_check_interrupt(e->stream);
}

static hr_status iterate(loop *l, int64_t count) {
  int64_t is_true = 1;
  while (is_true != 0 && l->iterations < count) {
    HR_RETURN_IF_ERROR(check_interrupt(l->e));
    HR_RETURN_IF_ERROR(iterate_once(l, &is_true));
  }
  return HR_OK;
}

/* ---- no iteration ---- */

/* Dims without numbers of the first iteration, from facts at the points; -1: they are not the same at all of them. */
typedef struct empty {
  int count; /* of points */
  int64_t dims[HR_RANK_MAX];
} empty;

static void add_point(empty *x, int rank, const int64_t *dims) {
  for (int d = 0; d < rank; ++d) {
    x->dims[d] = x->count == 0 || x->dims[d] == dims[d] ? dims[d] : -1;
  }
  ++x->count;
}

/* Types of the body's outputs, with other numbers at each point for those that only the device has. */
static hr_status infer_body(loop *l, hr__fact *inputs, hr__fact *outputs, empty *results) {
  int count = l->node->result_count;
  hr__frame frame = l->e->frame;
  frame.is_typing = true;
  for (int i = 0; i < l->input_count; ++i) {
    inputs[i] = l->inputs[i].fact;
  }
  for (frame.point = 0; frame.point < HR__GRAPH_POINTS; ++frame.point) {
    hr_status status = hr__frame_infer_inner(&frame, l->node->inner[0], inputs, outputs);
    if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
      return status;
    }
    for (int i = 0; status == HR_OK && i < count; ++i) {
      add_point(&results[i], outputs[i].rank, outputs[i].dims);
    }
    hr_status_free(status);
  }
  return HR_OK;
}

/* The same from the types of the graph. */
static void use_types(const hr__graph_value *value, empty *result) {
  for (int p = 0; p < HR__GRAPH_POINTS; ++p) {
    const hr__fact *fact = &value->facts[p * value->stride];
    if (fact->is_set) {
      add_point(result, fact->rank - 1, fact->dims + 1);
    }
  }
}

static hr_status write_empty(loop *l, int i, empty *type, hr__item *result) {
  const hr__graph_value *value = hr__graph_value_of(l->e->frame.graph, l->node->first + i);
  const hr__fact *fact = value->facts;
  int64_t dims[HR_RANK_MAX] = {0};
  while (!fact->is_set) {
    fact += value->stride; /* it is at one of the points */
  }
  if (type->count == 0) { /* the body is valid at no point */
    use_types(value, type);
  }
  for (int d = 1; d < fact->rank; ++d) {
    dims[d] = type->dims[d - 1] > 0 ? type->dims[d - 1] : 0;
  }
  HR_RETURN_IF_ERROR(hr__evaluate_write(l->e, fact->dtype, fact->rank, dims, "", &result->tensor));
  return hr__item_note_type(l->e, result);
}

/* The elements of no iteration. Dims that the device would decide are 0: nothing can fail. */
static hr_status stack_none(loop *l, hr__item *results) {
  int count = l->node->result_count;
  hr__fact *inputs = HR_ARENA_ARRAY(&l->e->scratch, hr__fact, (size_t)l->input_count + 1);
  hr__fact *outputs = HR_ARENA_ARRAY(&l->e->scratch, hr__fact, (size_t)count);
  empty *types = HR_ARENA_ARRAY(&l->e->scratch, empty, (size_t)count);
  if (inputs == NULL || outputs == NULL || types == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(set_iteration(l, 0, true));
  HR_RETURN_IF_ERROR(infer_body(l, inputs, outputs, types));
  for (int i = l->node->carried_count; i < count; ++i) {
    HR_RETURN_IF_ERROR(write_empty(l, i, &types[i], &results[i]));
  }
  return HR_OK;
}

static hr_status stack(loop *l, int output, hr__item *result) {
  tensors *blocks = &l->blocks[output];
  if (blocks->count == 1) {
    result->tensor = hr_vector_pop(blocks);
  } else {
    HR_RETURN_IF_ERROR(join(l, HR_FUNCTIONAL_CONCAT, blocks, &result->tensor));
  }
  return hr__item_note_type(l->e, result);
}

static hr_status stack_all(loop *l, hr__item *results) {
  if (l->iterations == 0) {
    return stack_none(l, results);
  }
  HR_RETURN_IF_ERROR(l->iterations % BLOCK != 0 ? end_block(l) : HR_OK);
  for (int i = 0; i < l->stack_count; ++i) {
    HR_RETURN_IF_ERROR(stack(l, i, &results[l->node->carried_count + i]));
  }
  return HR_OK;
}

static hr_status give_results(loop *l, hr__item *results) {
  HR_RETURN_IF_ERROR(l->stack_count > 0 ? stack_all(l, results) : HR_OK);
  for (int i = 0; i < l->node->carried_count; ++i) {
    results[i] = l->inputs[l->before + i];
    l->inputs[l->before + i] = (hr__item){0};
    HR_RETURN_IF_ERROR(keep_fact(l->e, &results[i].fact));
  }
  return HR_OK;
}

static hr_status run_loop(loop *l, hr__item *results) {
  int64_t count = 0;
  bool is_done = false;
  HR_RETURN_IF_ERROR(count_iterations(l, &count));
  const hr__loop_arguments whole = {l->node, l->before, l->input_count, l->inputs, l->sequences, count};
  HR_RETURN_IF_ERROR(hr__evaluate_loop_at_once(l->e, &whole, results, &is_done));
  if (is_done) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(iterate(l, count));
  return give_results(l, results);
}

static hr_status evaluate_loop(hr__evaluation *e, const hr__node *node, hr__item *results) {
  loop l;
  hr_status status = create_loop(e, node, &l);
  status = status == HR_OK ? run_loop(&l, results) : status;
  free_loop(&l);
  return status;
}

hr_status hr__evaluate_control(hr__evaluation *e, const hr__node *node) {
  hr__item *results = HR_ARENA_ARRAY(&e->scratch, hr__item, (size_t)node->result_count);
  if (results == NULL) {
    return no_memory();
  }
  hr_status status = node->kind == HR__NODE_VMAP ? hr__evaluate_vmap(e, node, results)
                     : hr__node_is_loop(node)    ? evaluate_loop(e, node, results)
                                                 : evaluate_call(e, node, results);
  if (status != HR_OK) {
    hr__items_release(node->result_count, results);
    return status;
  }
  set_results(e, node, results);
  return HR_OK;
}
