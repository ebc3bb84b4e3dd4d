/* onnx_sequences.c: sequences and optionals: lists of the host, known when the model is imported. */
#include "importers/onnx/onnx_importer.h"

/* A list with room for `count` values; NULL after a failure. */
static hr__onnx_value *new_list(hr__onnx_node *node, int count, hr__onnx_list **out_list) {
  hr_arena *arena = &node->importer->arena;
  hr_status status = hr__onnx_charge(node->importer, count);
  if (status != HR_OK) {
    hr__graph_fail(node->graph, status);
    return NULL;
  }
  hr__onnx_list *list = count <= HR__ONNX_LIST_MAX ? HR_ARENA_NEW(arena, hr__onnx_list) : NULL;
  hr__onnx_value *values = list != NULL ? HR_ARENA_ARRAY(arena, hr__onnx_value, (size_t)count + 1) : NULL;
  if (values == NULL) {
    HR__ONNX_REFUSE(node, "a sequence of %d elements, expected at most %d", count, HR__ONNX_LIST_MAX);
    return NULL;
  }
  *list = (hr__onnx_list){.count = count, .values = values};
  *out_list = list;
  return values;
}

static void set_list(hr__onnx_node *node, int index, const hr__onnx_list *list) {
  if (index < node->output_count) {
    node->outputs[index].list = list;
  }
}

/* The list of an input; NULL after a failure. */
static const hr__onnx_list *list_of(hr__onnx_node *node, int index) {
  const hr__onnx_list *list = index < node->input_count ? node->inputs[index].list : NULL;
  if (list == NULL && !hr__onnx_failed(node)) {
    HR__ONNX_WRONG(node, "input %d is no sequence", index);
  }
  return list;
}

/* A place in a list of `count` elements, from the end if negative; ends: or the one behind the last. */
static int place_of(hr__onnx_node *node, int input, int count, bool ends, int otherwise) {
  hr_value value = hr__onnx_input(node, input);
  int64_t place = otherwise;
  if (value != 0 && hr__onnx_integers(node, value, "position", 1, &place) < 0) {
    return -1;
  }
  place += place < 0 ? count : 0;
  if (place < 0 || place >= count + ends) {
    HR__ONNX_WRONG(node, "position %lld in a sequence of %d elements", (long long)(place < 0 ? place - count : place),
                   count);
    return -1;
  }
  return (int)place;
}

void hr__onnx_map_sequence_construct(hr__onnx_node *node) {
  hr__onnx_list *list = NULL;
  hr__onnx_value *values = new_list(node, node->input_count, &list);
  for (int i = 0; values != NULL && i < node->input_count; ++i) {
    values[i] = node->inputs[i];
  }
  set_list(node, 0, list);
}

void hr__onnx_map_sequence_empty(hr__onnx_node *node) {
  hr__onnx_list *list = NULL;
  (void)new_list(node, 0, &list);
  set_list(node, 0, list);
}

void hr__onnx_map_sequence_at(hr__onnx_node *node) {
  const hr__onnx_list *list = list_of(node, 0);
  int place = list != NULL ? place_of(node, 1, list->count, false, 0) : -1;
  if (place >= 0) {
    node->outputs[0] = list->values[place];
  }
}

void hr__onnx_map_sequence_length(hr__onnx_node *node) {
  const hr__onnx_list *list = list_of(node, 0);
  const hr_type type = {.dtype = HR_DTYPE_I64};
  int64_t count = list != NULL ? list->count : 0;
  hr__onnx_set(node, 0, hr_graph_constant(node->graph, &type, &count));
}

void hr__onnx_map_sequence_insert(hr__onnx_node *node) {
  const hr__onnx_list *from = list_of(node, 0);
  hr__onnx_list *list = NULL;
  int place = from != NULL ? place_of(node, 2, from->count, true, from->count) : -1;
  hr__onnx_value *values = place >= 0 ? new_list(node, from->count + 1, &list) : NULL;
  if (values != NULL) {
    memcpy(values, from->values, (size_t)place * sizeof *values);
    values[place] = node->inputs[1];
    memcpy(values + place + 1, from->values + place, (size_t)(from->count - place) * sizeof *values);
  }
  set_list(node, 0, list);
}

void hr__onnx_map_sequence_erase(hr__onnx_node *node) {
  const hr__onnx_list *from = list_of(node, 0);
  hr__onnx_list *list = NULL;
  int place = from != NULL ? place_of(node, 1, from->count, false, from->count - 1) : -1;
  hr__onnx_value *values = place >= 0 ? new_list(node, from->count - 1, &list) : NULL;
  if (values != NULL) {
    memcpy(values, from->values, (size_t)place * sizeof *values);
    memcpy(values + place, from->values + place + 1, (size_t)(from->count - 1 - place) * sizeof *values);
  }
  set_list(node, 0, list);
}

void hr__onnx_map_concat_from_sequence(hr__onnx_node *node) {
  const hr__onnx_list *list = list_of(node, 0);
  hr_value *values = list != NULL ? HR_ARENA_ARRAY(node->arena, hr_value, (size_t)list->count + 1) : NULL;
  for (int i = 0; values != NULL && i < list->count; ++i) {
    values[i] = list->values[i].value;
  }
  if (values != NULL) {
    bool is_stack = hr__onnx_int(node, "new_axis", 0) != 0;
    hr__onnx_set(node, 0,
                 hr__onnx_add(node, is_stack ? HR_FUNCTIONAL_STACK : HR_FUNCTIONAL_CONCAT, list->count, values,
                              WITH(hr__with_int("axis", hr__onnx_int(node, "axis", 0)))));
    node->outputs[0].data_type = list->count > 0 ? list->values[0].data_type : 0;
  }
}

/* ---- parts of a tensor ---- */

/* The sizes of the parts in the node's arena; -1 after a failure. */
static int part_sizes(hr__onnx_node *node, int64_t size, int64_t **out_sizes) {
  hr_value given = hr__onnx_input(node, 1);
  int64_t each = 1;
  bool is_list = given != 0 && hr__onnx_rank(node, given) == 1;
  int64_t count = is_list ? hr__onnx_known_dim(node, given, 0) : 0;
  if (given != 0 && !is_list && hr__onnx_integers(node, given, "split", 1, &each) < 0) {
    return -1;
  }
  count = is_list ? count : each > 0 ? size / each + (size % each != 0) : -1;
  *out_sizes =
      count >= 0 && count <= HR__ONNX_LIST_MAX ? HR_ARENA_ARRAY(node->arena, int64_t, (size_t)count + 1) : NULL;
  if (*out_sizes == NULL) {
    HR__ONNX_REFUSE(node, "%lld parts, expected 0 to %d", (long long)count, HR__ONNX_LIST_MAX);
    return -1;
  }
  for (int64_t i = 0; i < count && !is_list; ++i) {
    (*out_sizes)[i] = size - i * each < each ? size - i * each : each;
  }
  return is_list ? hr__onnx_integers(node, given, "split", (int)count, *out_sizes) : (int)count;
}

void hr__onnx_map_split_to_sequence(hr__onnx_node *node) {
  hr_value x = hr__onnx_input(node, 0);
  int axis = hr__onnx_axis(node, hr__onnx_int(node, "axis", 0), hr__onnx_rank(node, x));
  int64_t *sizes = NULL, begin = 0, size = hr__onnx_known_dim(node, x, axis);
  int count = size >= 0 ? part_sizes(node, size, &sizes) : -1;
  bool drops = hr__onnx_input(node, 1) == 0 && hr__onnx_int(node, "keepdims", 1) == 0;
  hr__onnx_list *list = NULL;
  hr__onnx_value *values = count >= 0 ? new_list(node, count, &list) : NULL;
  for (int i = 0; values != NULL && i < count; begin += sizes[i++]) {
    hr_value part = hr__onnx_narrow(node, x, axis, begin, sizes[i]);
    part = drops ? hr__onnx_squeeze_dim(node, part, axis) : part;
    values[i] = (hr__onnx_value){.value = part, .data_type = node->inputs[0].data_type};
  }
  set_list(node, 0, list);
}

/* ---- a subgraph for each element ---- */

typedef struct element_map {
  const hr__onnx_list *first;
  hr__onnx_value *inputs, *results;
  hr__onnx_value **outputs; /* of the lists */
} element_map;

static bool run_element(hr__onnx_node *node, hr__span body, element_map *m, int index) {
  int count = 0;
  for (int i = 0; i < node->input_count; ++i) {
    const hr__onnx_list *list = node->inputs[i].list;
    if (list != NULL && list->count != m->first->count) {
      HR__ONNX_WRONG(node, "sequences of %d and %d elements", m->first->count, list->count);
      return false;
    }
    m->inputs[i] = list != NULL ? list->values[index] : node->inputs[i];
  }
  hr_status status =
      hr__onnx_run_subgraph(node, body, NULL, node->input_count, m->inputs, node->output_count, m->results, &count);
  if (status != HR_OK) {
    hr__graph_fail(node->graph, status);
    return false;
  }
  for (int i = 0; i < count; ++i) {
    m->outputs[i][index] = m->results[i];
  }
  return true;
}

void hr__onnx_map_sequence_map(hr__onnx_node *node) {
  const hr__onnx_attribute *body = hr__onnx_find_attribute(node, "body");
  element_map m = {.first = list_of(node, 0)};
  size_t outputs = (size_t)node->output_count + 1;
  m.inputs = HR_ARENA_ARRAY(node->arena, hr__onnx_value, (size_t)node->input_count + 1);
  m.results = HR_ARENA_ARRAY(node->arena, hr__onnx_value, outputs);
  m.outputs = HR_ARENA_ARRAY(node->arena, hr__onnx_value *, outputs);
  if (body == NULL || m.first == NULL || m.inputs == NULL || m.results == NULL || m.outputs == NULL) {
    HR__ONNX_WRONG(node, "a body and a sequence expected");
    return;
  }
  for (int i = 0; i < node->output_count; ++i) {
    hr__onnx_list *list = NULL;
    m.outputs[i] = new_list(node, m.first->count, &list);
    set_list(node, i, list);
  }
  for (int i = 0; i < m.first->count && !hr__onnx_failed(node) && run_element(node, body->bytes, &m, i); ++i) {
  }
}

/* ---- optionals ---- */

void hr__onnx_map_optional(hr__onnx_node *node) {
  node->outputs[0] = node->input_count > 0 ? node->inputs[0] : (hr__onnx_value){.is_empty = true};
}

void hr__onnx_map_optional_get_element(hr__onnx_node *node) {
  if (node->input_count == 0 || node->inputs[0].is_empty) {
    HR__ONNX_WRONG(node, "the optional has no element");
    return;
  }
  node->outputs[0] = node->inputs[0];
}

void hr__onnx_map_optional_has_element(hr__onnx_node *node) {
  const hr_type type = {.dtype = HR_DTYPE_BOOL};
  bool has_element = node->input_count > 0 && !node->inputs[0].is_empty &&
                     (node->inputs[0].value != 0 || node->inputs[0].list != NULL);
  hr__onnx_set(node, 0, hr_graph_constant(node->graph, &type, &has_element));
}
