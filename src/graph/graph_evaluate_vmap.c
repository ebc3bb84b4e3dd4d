/* graph_evaluate_vmap.c: an inner graph for all slices of its arguments, by a vmap of the stream (transform.h).
 *
 * The inner graph is evaluated once, on examples. Control flow inside repeats the records of examples; what it decides
 * must be the same for all of them. Tapes of gradients inside begin and end within the vmap, those around it see the
 * records of all slices.
 */
#include "graph/graph_evaluate.h"

typedef struct mapping {
  hr__evaluation *e;
  const hr__node *node;
  hr_vmap *vmap; /* NULL without a stream */
  int64_t size;
  hr__item *arguments; /* with references */
} mapping;

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for a vmap");
}

/* The number of slices; arguments that are sliced have their memory. */
static hr_status find_size(mapping *m) {
  int count = m->node->input_count;
  hr__fact *facts = HR_ARENA_ARRAY(&m->e->scratch, hr__fact, (size_t)count);
  if (facts == NULL) {
    return no_memory();
  }
  for (int i = 0; i < count; ++i) {
    facts[i] = m->arguments[i].fact;
    HR_RETURN_IF_ERROR(m->node->axes[i] >= 0 ? hr__item_write(m->e, &m->arguments[i]) : HR_OK);
  }
  return hr__vmap_slice_facts(m->node, &m->e->scratch, facts, &m->size);
}

/* x without a dim, for an inference. */
static void drop_dim(hr_tensor *x, int axis) {
  --x->rank;
  for (int d = axis; d < x->rank; ++d) {
    x->dims[d] = x->dims[d + 1], x->strides[d] = x->strides[d + 1];
  }
}

static void insert_dim(hr_tensor *x, int axis, int64_t size) {
  for (int d = x->rank++; d > axis; --d) {
    x->dims[d] = x->dims[d - 1], x->strides[d] = x->strides[d - 1];
  }
  x->dims[axis] = size, x->strides[axis] = 0;
}

static hr_status slice_arguments(mapping *m) {
  for (int i = 0; i < m->node->input_count; ++i) {
    hr__item *x = &m->arguments[i];
    hr_tensor example;
    int axis = m->node->axes[i];
    if (axis < 0) {
      continue;
    }
    if (m->vmap == NULL) {
      drop_dim(&x->tensor, axis);
    } else {
      HR_RETURN_IF_ERROR(hr_vmap_split(m->vmap, &x->tensor, axis, &example));
      hr_tensor_release(&x->tensor);
      x->tensor = example;
    }
    HR_RETURN_IF_ERROR(hr__item_note_type(m->e, x));
  }
  return HR_OK;
}

static hr_status join_result(mapping *m, int i, hr__item *x) {
  int axis = m->node->axes[m->node->input_count + i];
  hr_tensor all;
  if (axis < 0) {
    return m->vmap == NULL || !hr_vmap_is_example(m->vmap, &x->tensor)
               ? HR_OK
               : hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                "vmap: result %d differs between slices, but has no axis for them", i);
  }
  if (m->vmap == NULL) {
    insert_dim(&x->tensor, axis, m->size);
  } else {
    HR_RETURN_IF_ERROR(hr__item_write(m->e, x));
    HR_RETURN_IF_ERROR(hr_vmap_join(m->vmap, &x->tensor, axis, &all));
    hr_tensor_release(&x->tensor);
    x->tensor = all;
  }
  return hr__item_note_type(m->e, x);
}

static hr_status map(mapping *m, hr__item *results) {
  const hr__node *node = m->node;
  HR_RETURN_IF_ERROR(slice_arguments(m));
  HR_RETURN_IF_ERROR(hr__evaluate_inner(m->e, m->e->stream, node, node->inner[0], m->arguments, results));
  for (int i = 0; i < node->result_count; ++i) {
    HR_RETURN_IF_ERROR(join_result(m, i, &results[i]));
  }
  return HR_OK;
}

static hr_status map_in_vmap(mapping *m, hr__item *results) {
  if (m->e->stream == NULL) {
    return map(m, results);
  }
  HR_RETURN_IF_ERROR(hr_vmap_begin(m->e->stream, m->size, &m->vmap));
  ++m->e->runner->transforms;
  hr_status status = map(m, results);
  --m->e->runner->transforms;
  hr__items_release(m->node->input_count, m->arguments);
  hr_vmap_end(m->vmap);
  return status;
}

hr_status hr__evaluate_vmap(hr__evaluation *e, const hr__node *node, hr__item *results) {
  mapping m = {.e = e, .node = node};
  hr_status status = hr__evaluate_arguments(e, node, 0, &m.arguments);
  status = status == HR_OK ? find_size(&m) : status;
  status = status == HR_OK ? map_in_vmap(&m, results) : status;
  hr__items_release(node->input_count, m.arguments);
  return status;
}
