/* graph_infer_control.c: the facts of control flow and reads when a graph is built.
 *
 * An inner graph is inferred again for the facts of its arguments. Numbers that no graph has before it runs, such as
 * the count of nonzero or of a while loop, stand for themselves: each has a number of its own at each point, which no
 * symbol describes. Carried values whose dims an iteration changes have such dims from the start.
 */
#include "functional/functions.h"
#include "graph/graph_node.h"

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for control flow");
}

/* The numbers of one value that may be unknown; behind these, dims of results or elements that are read. */
enum { SLOT_COUNT = 0, SLOT_UNIQUE, SLOT_ITERATIONS, SLOT_FIRST };

/* A number in place of one that is not known before a run; the same for the same value and slot. No symbol has it, and
 * in small graphs no other value and slot: products of four of them are still sizes. */
static int64_t unknown_of(const hr__frame *frame, hr_value value, int slot) {
  enum { COUNT = 768, SLOT_STEP = 89 };
  uint64_t index = ((uint64_t)value + (uint64_t)slot * SLOT_STEP) % COUNT;
  return hr__graph_unknown(frame->point, (int)index);
}

static bool is_one_element(const hr__fact *fact) {
  for (int d = 0; d < fact->rank; ++d) {
    if (fact->dims[d] != 1) {
      return false;
    }
  }
  return true;
}

/* ---- numbers and dims that depend on data ---- */

/* A number in place of one that is read: small ones, too, of which more operations accept some. Of two reads in a row,
 * such as begin and end of a slice, the second is larger at one of the points: not all such slices are empty. */
static int64_t unknown_number(const hr__frame *frame, const hr__node *read, int slot) {
  enum { ONES = 2, ZEROS = 3 };
  return frame->point == HR__GRAPH_SMALL ? read->symbol
         : frame->point == ONES          ? 1
         : frame->point == ZEROS         ? 0
                                         : unknown_of(frame, read->inputs[0], slot);
}

hr_status hr__frame_infer_read(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  const hr__fact *x = hr__frame_fact(frame, node->inputs[0]);
  int64_t count = 1;
  for (int d = 0; d < x->rank; ++d) {
    count *= x->dims[d];
  }
  if (!hr__is_host_dtype(x->dtype) || count > HR__GRAPH_HOST_FEW) {
    char text[HR__SHAPE_TEXT];
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "read: its input is %s%s, expected at most %d integers or bools",
                          hr_dtype_name(x->dtype), hr__shape_text(x->rank, x->dims, text), HR__GRAPH_HOST_FEW);
  }
  HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "read", x->dtype, x->rank, x->dims, out));
  int64_t *numbers = HR_ARENA_ARRAY(frame->arena, int64_t, (size_t)count + 1);
  if (numbers == NULL) {
    return no_memory();
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t number = unknown_number(frame, node, SLOT_FIRST + (int)i);
    numbers[i] = x->numbers != NULL ? x->numbers[i] : x->dtype == HR_DTYPE_BOOL ? number != 0 : number;
  }
  out->numbers = numbers;
  return HR_OK;
}

/* [rank, count]: of the places of one mask, all counts are the same. */
static hr_status infer_nonzero(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  const hr__fact *x = hr__frame_fact(frame, node->inputs[0]);
  const int64_t dims[2] = {x->rank, unknown_of(frame, node->inputs[0], SLOT_COUNT)};
  return hr__frame_set_fact(frame, "nonzero", HR_DTYPE_I64, 2, dims, out);
}

static hr_status infer_compress(const hr__frame *frame, const hr__node *node, const hr_attribute *attributes,
                                hr__fact *out) {
  const hr__fact *x = hr__frame_fact(frame, node->inputs[1]);
  int64_t dims[HR_RANK_MAX];
  bool is_given = node->attribute_count > 0 && attributes[0].kind != HR_ATTRIBUTE_NONE;
  int64_t axis = is_given ? attributes[0].value.integer : 0; /* the function has checked it */
  memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
  dims[axis < 0 ? axis + x->rank : axis] = unknown_of(frame, node->inputs[0], SLOT_COUNT);
  return hr__frame_set_fact(frame, "compress", x->dtype, x->rank, dims, out);
}

static hr_status infer_unique(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  const hr__fact *x = hr__frame_fact(frame, node->inputs[0]);
  const int64_t count = unknown_of(frame, node->inputs[0], SLOT_UNIQUE);
  HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "unique", x->dtype, 1, &count, &out[0]));
  HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "unique", HR_DTYPE_I64, 1, &count, &out[1]));
  HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "unique", HR_DTYPE_I64, x->rank, x->dims, &out[2]));
  return hr__frame_set_fact(frame, "unique", HR_DTYPE_I64, 1, &count, &out[3]);
}

/* [count, 3]: batch, class and box. */
static hr_status infer_suppression(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  const int64_t dims[2] = {unknown_of(frame, node->inputs[1], SLOT_COUNT), 3};
  return hr__frame_set_fact(frame, "non_max_suppression", HR_DTYPE_I64, 2, dims, out);
}

hr_status hr__frame_infer_unknown(const hr__frame *frame, const hr__node *node, const hr_attribute *attributes,
                                  hr__fact *out, bool *out_is_one) {
  *out_is_one = hr__node_is_unknown(node);
  if (!*out_is_one) {
    return HR_OK;
  }
  switch (node->function) {
    case HR_FUNCTIONAL_NONZERO:
      return infer_nonzero(frame, node, out);
    case HR_FUNCTIONAL_COMPRESS:
      return infer_compress(frame, node, attributes, out);
    case HR_FUNCTIONAL_UNIQUE:
      return infer_unique(frame, node, out);
    case HR_FUNCTIONAL_NON_MAX_SUPPRESSION:
      return infer_suppression(frame, node, out);
    default:
      return HR_OK;
  }
}

/* ---- inner graphs ---- */

/* The facts of an inner graph, for those of its inputs. */
typedef struct inference {
  hr__frame frame;
  hr_arena arena, scratch;
  int64_t host_bytes; /* with those of the frame: freed with the inference */
  int64_t symbols[HR_GRAPH_SYMBOLS_MAX];
} inference;

static hr_status bind_facts(inference *i, int count, const hr__fact *inputs) {
  hr_tensor *types = HR_ARENA_ARRAY(&i->arena, hr_tensor, (size_t)count + 1);
  const hr_tensor **places = HR_ARENA_ARRAY(&i->arena, const hr_tensor *, (size_t)count + 1);
  if (types == NULL || places == NULL) {
    return no_memory();
  }
  for (int k = 0; k < count; ++k) {
    types[k] = (hr_tensor){.dtype = inputs[k].dtype, .rank = inputs[k].rank};
    memcpy(types[k].dims, inputs[k].dims, (size_t)inputs[k].rank * sizeof *types[k].dims);
    places[k] = &types[k];
  }
  return hr__graph_bind(i->frame.graph, count, places, i->symbols);
}

static hr_status infer_nodes(inference *i, const hr__fact *inputs) {
  const hr_graph *graph = i->frame.graph;
  for (size_t n = 0, input = 0; n < graph->nodes.count; ++n) {
    const hr__node *node = &graph->nodes.data[n];
    if (node->kind == HR__NODE_INPUT) {
      i->frame.facts[node->first] = inputs[input++];
      continue;
    }
    hr_status status = hr__frame_infer(&i->frame, node, &i->frame.facts[node->first]);
    hr_arena_reset(&i->scratch);
    if (status != HR_OK) {
      char text[HR__GRAPH_NAME_TEXT];
      return hr_status_annotate(status, "\"%s\"", hr__graph_label(graph, node->first, text));
    }
  }
  return HR_OK;
}

static hr_status copy_fact(const hr__frame *frame, const hr__fact *from, hr__fact *to) {
  int64_t count = 1;
  HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "graph", from->dtype, from->rank, from->dims, to));
  for (int d = 0; d < from->rank; ++d) {
    count *= from->dims[d];
  }
  if (from->numbers != NULL && hr__frame_may_know(frame, from->dtype, count)) {
    to->numbers = hr_arena_dup_words(frame->arena, from->numbers, (int)count);
    return to->numbers != NULL ? HR_OK : no_memory();
  }
  return HR_OK;
}

hr_status hr__frame_infer_inner(const hr__frame *frame, const hr_graph *graph, const hr__fact *inputs, hr__fact *out) {
  inference *i = hr_calloc(1, sizeof *i);
  if (i == NULL) {
    return no_memory();
  }
  i->frame = *frame;
  i->frame.graph = graph, i->frame.symbols = i->symbols, i->frame.arena = &i->arena, i->frame.scratch = &i->scratch;
  i->host_bytes = *frame->host_bytes, i->frame.host_bytes = &i->host_bytes;
  i->frame.facts = hr_calloc(graph->values.count, sizeof *i->frame.facts);
  hr_status status = i->frame.facts != NULL ? bind_facts(i, (int)graph->inputs.count, inputs) : no_memory();
  status = status == HR_OK ? infer_nodes(i, inputs) : status;
  for (size_t k = 0; status == HR_OK && k < graph->outputs.count; ++k) {
    status = copy_fact(frame, &i->frame.facts[graph->outputs.data[k].value], &out[k]);
  }
  hr_free(i->frame.facts);
  hr_arena_fini(&i->arena);
  hr_arena_fini(&i->scratch);
  hr_free(i);
  return status;
}

/* ---- calls and conditions ---- */

/* The facts of the arguments, behind `before` others; in the frame's scratch. */
static hr__fact *arguments_of(const hr__frame *frame, const hr__node *node, int before) {
  int first = hr__node_first_argument(node), count = node->input_count - first;
  hr__fact *facts = HR_ARENA_ARRAY(frame->scratch, hr__fact, (size_t)(before + count) + 1);
  for (int i = 0; facts != NULL && i < count; ++i) {
    facts[before + i] = *hr__frame_fact(frame, node->inputs[first + i]);
  }
  return facts;
}

static hr_status check_number(const char *name, const char *what, const hr__fact *fact) {
  char text[HR__SHAPE_TEXT];
  return hr__is_host_dtype(fact->dtype) && is_one_element(fact)
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: the %s is %s%s, expected one integer or bool", name,
                              what, hr_dtype_name(fact->dtype), hr__shape_text(fact->rank, fact->dims, text));
}

static hr_status infer_call(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  const hr__fact *arguments = arguments_of(frame, node, 0);
  return arguments != NULL ? hr__frame_infer_inner(frame, node->inner[0], arguments, out) : no_memory();
}

/* Result i of both branches as one fact, in `out`, which is the first one's. */
static hr_status unite(const hr__frame *frame, const hr__node *node, int i, const hr__fact *other, hr__fact *out) {
  int64_t dims[HR_RANK_MAX];
  char text[HR__SHAPE_TEXT], other_text[HR__SHAPE_TEXT];
  if (out->dtype != other->dtype || out->rank != other->rank) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "if: result %d is %s%s or %s%s, expected one dtype and rank", i,
                          hr_dtype_name(out->dtype), hr__shape_text(out->rank, out->dims, text),
                          hr_dtype_name(other->dtype), hr__shape_text(other->rank, other->dims, other_text));
  }
  for (int d = 0; d < out->rank; ++d) {
    bool is_same = out->dims[d] == other->dims[d];
    dims[d] = is_same ? out->dims[d] : unknown_of(frame, node->first + i, SLOT_FIRST + d);
  }
  return hr__frame_set_fact(frame, "if", out->dtype, out->rank, dims, out);
}

static hr_status infer_if(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  const hr__fact *condition = hr__frame_fact(frame, node->inputs[0]), *arguments = arguments_of(frame, node, 0);
  hr__fact *other = HR_ARENA_ARRAY(frame->scratch, hr__fact, (size_t)node->result_count);
  if (arguments == NULL || other == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(check_number("if", "condition", condition));
  HR_RETURN_IF_ERROR(hr__frame_infer_inner(frame, node->inner[0], arguments, out));
  HR_RETURN_IF_ERROR(hr__frame_infer_inner(frame, node->inner[1], arguments, other));
  for (int i = 0; i < node->result_count; ++i) {
    hr__fact one = condition->numbers == NULL || condition->numbers[0] != 0 ? out[i] : other[i];
    HR_RETURN_IF_ERROR(unite(frame, node, i, &other[i], &out[i]));
    out[i] = condition->numbers != NULL ? one : out[i];
  }
  return HR_OK;
}

/* ---- loops ---- */

/* The facts of the body's inputs in the first iteration, without numbers that another one may not have. */
static hr_status loop_inputs(const hr__frame *frame, const hr__node *node, hr__fact **out_facts) {
  static const int64_t none[1];
  int before = node->kind == HR__NODE_FOR;
  hr__fact *facts = arguments_of(frame, node, before);
  if (facts == NULL) {
    return no_memory();
  }
  if (before > 0) {
    facts[0] = (hr__fact){.is_set = true, .dtype = HR_DTYPE_I64, .dims = none};
  }
  for (int i = 0; i < node->carried_count + node->sequence_count; ++i) {
    hr__fact *fact = &facts[before + i];
    fact->numbers = NULL;
    if (i < node->carried_count) {
      continue;
    }
    if (fact->rank == 0 || fact->dims[0] != facts[node->carried_count].dims[0]) {
      char text[HR__SHAPE_TEXT];
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "scan: sequence %d has dims %s, expected the first to be %lld",
                            i - node->carried_count, hr__shape_text(fact->rank, fact->dims, text),
                            (long long)(facts[node->carried_count].rank > 0 ? facts[node->carried_count].dims[0] : 1));
    }
  }
  *out_facts = facts;
  return HR_OK;
}

/* Sequences as slices. */
static void drop_first_dims(const hr__node *node, hr__fact *inputs) {
  for (int i = 0; i < node->sequence_count; ++i) {
    hr__fact *fact = &inputs[node->carried_count + i];
    ++fact->dims, --fact->rank;
  }
}

static hr_status check_carried(const hr__node *node, int i, const hr__fact *before, const hr__fact *after) {
  static const char *const names[] = {"while", "for", "scan"};
  char text[HR__SHAPE_TEXT], other[HR__SHAPE_TEXT];
  return before->dtype == after->dtype && before->rank == after->rank
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: carried value %d is %s%s and after an iteration %s%s",
                              names[node->kind - HR__NODE_WHILE], i, hr_dtype_name(before->dtype),
                              hr__shape_text(before->rank, before->dims, text), hr_dtype_name(after->dtype),
                              hr__shape_text(after->rank, after->dims, other));
}

/* Dims that the iteration changes become unknown; sets true if one was not before. */
static hr_status widen(const hr__frame *frame, const hr__node *node, int i, const hr__fact *after, hr__fact *fact,
                       bool *out_has_changed) {
  int64_t dims[HR_RANK_MAX];
  HR_RETURN_IF_ERROR(check_carried(node, i, fact, after));
  for (int d = 0; d < fact->rank; ++d) {
    int64_t unknown = unknown_of(frame, node->first + i, SLOT_FIRST + d);
    bool is_same = after->dims[d] == fact->dims[d] || fact->dims[d] == unknown;
    dims[d] = is_same ? fact->dims[d] : unknown;
    *out_has_changed |= !is_same;
  }
  return hr__frame_set_fact(frame, "graph", fact->dtype, fact->rank, dims, fact);
}

/* Infers the body until its carried values keep their dims: in `inputs`, and its outputs in `out`. */
static hr_status infer_body(const hr__frame *frame, const hr__node *node, hr__fact *inputs, hr__fact *out) {
  enum { ROUNDS = 3 };
  hr__fact *carried = inputs + (node->kind == HR__NODE_FOR);
  bool has_changed = true;
  for (int round = 0; has_changed && round < ROUNDS; ++round) {
    has_changed = false;
    HR_RETURN_IF_ERROR(hr__frame_infer_inner(frame, node->inner[0], inputs, out));
    for (int i = 0; i < node->carried_count; ++i) {
      HR_RETURN_IF_ERROR(widen(frame, node, i, &out[i], &carried[i], &has_changed));
    }
  }
  return !has_changed ? HR_OK
                      : hr_status_make(HR_STATUS_UNIMPLEMENTED,
                                       "graph: other dims of carried values change in each of %d iterations", ROUNDS);
}

static hr_status infer_condition(const hr__frame *frame, const hr__node *node, const hr__fact *inputs) {
  hr__fact condition = {0};
  HR_RETURN_IF_ERROR(hr__frame_infer_inner(frame, node->inner[1], inputs, &condition));
  return check_number("while", "condition", &condition);
}

static hr_status count_iterations(const hr__frame *frame, const hr__node *node, const hr__fact *inputs,
                                  int64_t *out_count) {
  *out_count = unknown_of(frame, node->first, SLOT_ITERATIONS);
  if (node->kind == HR__NODE_SCAN) {
    *out_count = inputs[node->carried_count].dims[0];
  } else if (node->kind == HR__NODE_FOR) {
    const hr__fact *count = hr__frame_fact(frame, node->inputs[0]);
    HR_RETURN_IF_ERROR(check_number("for", "count", count));
    if (count->numbers != NULL) {
      *out_count = count->numbers[0] > 0 ? count->numbers[0] : 0;
    }
  }
  return HR_OK;
}

static hr_status infer_loop(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  hr__fact *inputs = NULL;
  int64_t count = 0, dims[HR_RANK_MAX + 1];
  HR_RETURN_IF_ERROR(loop_inputs(frame, node, &inputs));
  HR_RETURN_IF_ERROR(count_iterations(frame, node, inputs, &count));
  drop_first_dims(node, inputs);
  HR_RETURN_IF_ERROR(infer_body(frame, node, inputs, out));
  HR_RETURN_IF_ERROR(node->kind == HR__NODE_WHILE ? infer_condition(frame, node, inputs) : HR_OK);
  for (int i = 0; i < node->result_count; ++i) {
    if (i < node->carried_count) {
      out[i] = inputs[(node->kind == HR__NODE_FOR) + i];
      continue;
    }
    if (out[i].rank == HR_RANK_MAX) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: result %d would have %d dims, expected at most %d", i,
                            HR_RANK_MAX + 1, HR_RANK_MAX);
    }
    dims[0] = count;
    memcpy(dims + 1, out[i].dims, (size_t)out[i].rank * sizeof *dims);
    HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "graph", out[i].dtype, out[i].rank + 1, dims, &out[i]));
  }
  return HR_OK;
}

/* ---- vmaps ---- */

/* A slice of an argument; size: -1, or that of slices before. */
static hr_status slice_fact(const hr__node *node, int i, hr_arena *arena, int64_t *size, hr__fact *fact) {
  char text[HR__SHAPE_TEXT];
  int axis = node->axes[i];
  if (axis >= fact->rank) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "vmap: argument %d has dims %s, but is sliced along axis %d", i,
                          hr__shape_text(fact->rank, fact->dims, text), axis);
  }
  if (*size >= 0 && fact->dims[axis] != *size) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "vmap: argument %d has %lld slices, expected %lld", i,
                          (long long)fact->dims[axis], (long long)*size);
  }
  int64_t *dims = hr_arena_dup_words(arena, fact->dims, fact->rank);
  if (dims == NULL) {
    return no_memory();
  }
  *size = dims[axis];
  memmove(dims + axis, dims + axis + 1, (size_t)(fact->rank - 1 - axis) * sizeof *dims);
  *fact = (hr__fact){.is_set = true, .dtype = fact->dtype, .rank = fact->rank - 1, .dims = dims};
  return HR_OK;
}

hr_status hr__vmap_slice_facts(const hr__node *node, hr_arena *arena, hr__fact *arguments, int64_t *out_size) {
  int64_t size = -1;
  for (int i = 0; i < node->input_count; ++i) {
    HR_RETURN_IF_ERROR(node->axes[i] >= 0 ? slice_fact(node, i, arena, &size, &arguments[i]) : HR_OK);
  }
  *out_size = size;
  return size >= 0 ? HR_OK : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "vmap: no argument is sliced, expected one");
}

hr_status hr__frame_insert_dim(const hr__frame *frame, int axis, int64_t size, hr__fact *fact) {
  int64_t dims[HR_RANK_MAX];
  if (axis > fact->rank || fact->rank == HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "vmap: a result of %d dims gets a new dim %d, expected at most %d dims and 0 to %d",
                          fact->rank, axis, HR_RANK_MAX - 1, fact->rank);
  }
  memcpy(dims, fact->dims, (size_t)axis * sizeof *dims);
  memcpy(dims + axis + 1, fact->dims + axis, (size_t)(fact->rank - axis) * sizeof *dims);
  dims[axis] = size;
  return hr__frame_set_fact(frame, "vmap", fact->dtype, fact->rank + 1, dims, fact);
}

static hr_status infer_vmap(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  int64_t size = 0;
  hr__fact *arguments = arguments_of(frame, node, 0);
  if (arguments == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(hr__vmap_slice_facts(node, frame->scratch, arguments, &size));
  HR_RETURN_IF_ERROR(hr__frame_infer_inner(frame, node->inner[0], arguments, out));
  for (int i = 0; i < node->result_count; ++i) {
    int axis = node->axes[node->input_count + i];
    HR_RETURN_IF_ERROR(axis >= 0 ? hr__frame_insert_dim(frame, axis, size, &out[i]) : HR_OK);
  }
  return HR_OK;
}

hr_status hr__frame_infer_control(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  switch (node->kind) {
    case HR__NODE_INNER:
      return infer_call(frame, node, out);
    case HR__NODE_IF:
      return infer_if(frame, node, out);
    case HR__NODE_VMAP:
      return infer_vmap(frame, node, out);
    default:
      return infer_loop(frame, node, out);
  }
}
