/* lists.c: versions of lists, and the rules of lists.def. */
#include "lists.h"

#include <stdlib.h>

typedef struct array {
  int references; /* of versions */
  int used;       /* of these, how many a value has */
  int64_t capacity;
  htf_scope_value items[];
} array;

struct htf_sequence {
  htf_sequence *next; /* of all lists of the scope */
  array *items;
  /* NULL: the array has this version's elements. Otherwise those of `from`, but for the element `index` (-1: none). */
  htf_sequence *from;
  int64_t index;
  htf_scope_value item;
  int64_t count;
  hr_dtype dtype;
  int rank;                  /* of the elements; -1: unknown */
  int64_t dims[HR_RANK_MAX]; /* -1: unknown */
  bool is_used;
  htf_scope_value source;            /* the tensor whose parts are the elements, if there is one */
  htf_scope_value product;           /* of all elements with the matrix of a node */
  const htf_body_node *product_node; /* NULL: none */
};

enum { LENGTH_MAX = 1 << 20 };

/* ---- versions ---- */

static htf_sequence *no_memory(htf_node *node) {
  htf_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a list");
  return NULL;
}

static htf_sequence *new_version(htf_node *node, const htf_sequence *old) {
  htf_sequence *list = htf_has_failed(node) ? NULL : calloc(1, sizeof *list);
  if (list == NULL) {
    return no_memory(node);
  }
  if (old != NULL) {
    *list = *old;
    ++list->items->references;
  }
  list->from = NULL, list->index = -1;
  list->source = list->product = (htf_scope_value){0};
  list->product_node = NULL;
  list->next = node->scope->lists;
  node->scope->lists = list;
  return list;
}

static array *new_array(int64_t capacity) {
  array *items = calloc(1, sizeof *items + (size_t)capacity * sizeof *items->items);
  if (items != NULL) {
    items->references = 1, items->capacity = capacity;
  }
  return items;
}

static htf_sequence *new_list(htf_node *node, int64_t count, hr_dtype dtype) {
  if (!htf_has_failed(node) && (count < 0 || count > LENGTH_MAX)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: a list of %lld elements", node->kernel->row->op, (long long)count);
  }
  htf_sequence *list = new_version(node, NULL);
  if (list != NULL) {
    list->items = new_array(count);
    list->count = count, list->dtype = dtype, list->rank = -1;
  }
  return list == NULL || list->items != NULL ? list : no_memory(node);
}

/* Gives the array the elements of this version: turns the differences on the path to the version that has it now. */
static void take_array(htf_sequence *list) {
  htf_sequence *before = NULL, *at = list;
  while (at != NULL) {
    htf_sequence *next = at->from;
    at->from = before;
    before = at, at = next;
  }
  for (at = before; at != list; at = at->from) {
    htf_sequence *target = at->from;
    at->index = target->index;
    if (at->index >= 0) {
      at->item = at->items->items[at->index];
      at->items->items[at->index] = target->item;
    }
  }
  list->from = NULL, list->index = -1;
}

/* A version in which an element is another one. */
static htf_sequence *with_item(htf_node *node, htf_sequence *old, int64_t index, htf_scope_value item) {
  take_array(old);
  htf_sequence *list = new_version(node, old);
  if (list != NULL) {
    old->from = list, old->index = index, old->item = list->items->items[index];
    list->items->items[index] = item;
  }
  return list;
}

/* A version of another length. More elements need another array. */
static htf_sequence *with_count(htf_node *node, htf_sequence *old, int64_t count) {
  take_array(old);
  htf_sequence *list = new_version(node, old);
  if (list == NULL || count > LENGTH_MAX) {
    return no_memory(node);
  }
  list->count = count;
  if (count <= list->items->capacity) {
    old->from = list, old->index = -1;
    return list;
  }
  array *grown = new_array(2 * count);
  if (grown == NULL) {
    return no_memory(node);
  }
  memcpy(grown->items, old->items->items, (size_t)old->count * sizeof *grown->items);
  --old->items->references;
  list->items = grown;
  return list;
}

static void free_version(htf_sequence *list) {
  if (list->items != NULL && --list->items->references == 0) {
    free(list->items);
  }
  free(list);
}

void htf_lists_free(htf_sequence *lists) {
  while (lists != NULL) {
    htf_sequence *next = lists->next;
    free_version(lists);
    lists = next;
  }
}

/* Marks the versions that values have. The one that is alone in its array takes it. */
static void mark_used(htf_scope *scope) {
  for (htf_sequence *list = scope->lists; list != NULL; list = list->next) {
    list->is_used = false, list->items->used = 0;
  }
  for (int i = 0; i < scope->body->value_count; ++i) {
    htf_sequence *list = scope->values[i].list;
    if (list != NULL && !list->is_used) {
      list->is_used = true, ++list->items->used;
    }
  }
  for (htf_sequence *list = scope->lists; list != NULL; list = list->next) {
    if (list->is_used && list->items->used == 1) {
      take_array(list);
    }
  }
}

/* Versions of arrays that several used ones share stay, since these depend on them. */
static bool stays(const htf_sequence *list) {
  return list->is_used || list->items->used > 1;
}

/* Elements of lists that go are tensors like others. */
static void forget_lists(htf_scope *scope) {
  for (int i = 0; i < scope->body->value_count; ++i) {
    htf_scope_value *value = &scope->values[i];
    if (value->of != NULL && !stays(value->of)) {
      value->of = NULL;
    }
  }
}

static void drop_unused(htf_scope *scope) {
  for (htf_sequence **at = &scope->lists; *at != NULL;) {
    htf_sequence *list = *at;
    if (stays(list)) {
      at = &list->next;
    } else {
      *at = list->next;
      free_version(list);
    }
  }
}

size_t htf_lists_sweep(htf_scope *scope, htf_scope_value **live) {
  size_t count = 0;
  if (live == NULL) {
    mark_used(scope);
    forget_lists(scope);
    drop_unused(scope);
  }
  for (htf_sequence *list = scope->lists; list != NULL; list = list->next) {
    for (int64_t i = 0; list->from == NULL && i < list->items->capacity; ++i) {
      if (live != NULL) {
        live[count] = &list->items->items[i];
      }
      ++count;
    }
    if (live != NULL) {
      live[count] = &list->item, live[count + 1] = &list->source, live[count + 2] = &list->product;
    }
    count += 3;
  }
  return count;
}

/* ---- arguments ---- */

static htf_sequence *list_of(htf_node *node, int index) {
  const htf_scope_value *value = htf_scope_value_at(node, index);
  if (value != NULL && value->list == NULL) {
    htf_fail(node, HR_STATUS_INTERNAL, "%s: input %d is no list of the cluster", node->kernel->row->op, index);
  }
  return htf_has_failed(node) ? NULL : value->list;
}

static void put_list(htf_node *node, int index, htf_sequence *list) {
  htf_scope_put(node, index, (htf_scope_value){.list = list});
}

/* The dims of elements that an operation states; a number of -1: unknown. */
static void read_dims(htf_node *node, int index, htf_sequence *list) {
  int64_t dims[HR_RANK_MAX];
  const htf_host *host = list != NULL ? htf_scope_host(node, index) : NULL;
  if (host == NULL || host->rank == 0) {
    return;
  }
  int rank = htf_host_ints(node, index, dims, HR_RANK_MAX);
  if (list->rank < 0) {
    list->rank = rank;
    memcpy(list->dims, dims, sizeof dims);
  }
  for (int d = 0; d < rank && rank == list->rank; ++d) {
    list->dims[d] = list->dims[d] < 0 ? dims[d] : list->dims[d];
  }
}

/* Integers of i32 stay numbers of the host, all others are tensors. */
static htf_scope_value item_of(htf_node *node, int index, const htf_sequence *list) {
  const htf_scope_value *value = htf_scope_value_at(node, index);
  if (value == NULL || list == NULL || (list->dtype == HR_DTYPE_I32 && value->host != NULL)) {
    return value != NULL ? (htf_scope_value){.host = value->host} : (htf_scope_value){0};
  }
  return (htf_scope_value){.tensor = htf_scope_input(node, index)};
}

static bool is_set(htf_scope_value item) {
  return item.tensor != NULL || item.host != NULL;
}

/* The dims of an element; -1: unknown. */
static int item_dims(htf_scope_value item, const int64_t **out_dims) {
  *out_dims = item.host != NULL ? item.host->dims : item.tensor != NULL ? item.tensor->dims : NULL;
  return item.host != NULL ? item.host->rank : item.tensor != NULL ? item.tensor->rank : -1;
}

/* Completes the dims of elements with those of the first one that is set; false if some stay unknown. */
static bool find_dims(htf_sequence *list) {
  take_array(list);
  const int64_t *dims = NULL;
  int rank = -1;
  for (int64_t i = 0; i < list->count && rank < 0; ++i) {
    rank = item_dims(list->items->items[i], &dims);
  }
  if (rank >= 0) {
    list->rank = rank;
    memcpy(list->dims, dims, (size_t)rank * sizeof *dims);
  }
  bool is_known = list->rank >= 0;
  for (int d = 0; d < list->rank; ++d) {
    is_known = is_known && list->dims[d] >= 0;
  }
  return is_known;
}

/* An element; one that was not set is zeros. */
static htf_scope_value get(htf_node *node, htf_sequence *list, int64_t index) {
  take_array(list);
  htf_scope_value *item = &list->items->items[index];
  if (!is_set(*item)) {
    if (!find_dims(list)) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
               "%s: element %lld of the list was not set, and the dims of its elements are not known",
               node->kernel->row->op, (long long)index);
      return (htf_scope_value){0};
    }
    item->tensor = htf_zeros(node, list->rank, list->dims, list->dtype);
  }
  return *item;
}

/* ---- rules ---- */

void htf_list_empty(htf_node *node) {
  htf_sequence *list = new_list(node, 0, htf_dtype(node, "element_dtype"));
  read_dims(node, 0, list);
  put_list(node, 0, list);
}

void htf_list_reserve(htf_node *node) {
  htf_sequence *list = new_list(node, htf_host_int(node, 1), htf_dtype(node, "element_dtype"));
  read_dims(node, 0, list);
  put_list(node, 0, list);
}

/* A list that was joined comes apart again without a copy. */
void htf_list_from_tensor(htf_node *node) {
  const htf_scope_value *value = htf_scope_value_at(node, 0);
  if (value != NULL && value->list != NULL) {
    put_list(node, 0, value->list);
    return;
  }
  htf_value x = htf_input(node, 0);
  if (!htf_has_failed(node) && x->rank == 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "TensorListFromTensor: the tensor must have a dim, got a scalar");
  }
  htf_sequence *list = htf_has_failed(node) ? NULL : new_list(node, x->dims[0], x->dtype);
  if (list == NULL) {
    return;
  }
  list->rank = x->rank - 1, list->source.tensor = x;
  memcpy(list->dims, x->dims + 1, (size_t)list->rank * sizeof *list->dims);
  for (int64_t i = 0; i < list->count; ++i) {
    list->items->items[i].tensor =
        htf_view(node, x, list->rank, x->dims + 1, x->strides + 1, x->offset + i * x->strides[0]);
  }
  put_list(node, 0, list);
}

static bool check_index(htf_node *node, const htf_sequence *list, int64_t index) {
  if (!htf_has_failed(node) && (index < 0 || index >= list->count)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: element %lld of a list of %lld", node->kernel->row->op,
             (long long)index, (long long)list->count);
  }
  return !htf_has_failed(node);
}

void htf_list_get_item(htf_node *node) {
  htf_sequence *list = list_of(node, 0);
  int64_t index = htf_host_int(node, 1);
  if (list != NULL && check_index(node, list, index)) {
    read_dims(node, 2, list);
    htf_scope_value item = get(node, list, index);
    item.of = list, item.index = index;
    htf_scope_put(node, 0, item);
  }
}

void htf_list_set_item(htf_node *node) {
  htf_sequence *list = list_of(node, 0);
  int64_t index = htf_host_int(node, 1);
  htf_scope_value item = item_of(node, 2, list);
  if (list != NULL && htf_flag(node, "resize_if_index_out_of_bounds") && index >= list->count) {
    int64_t count = list->count;
    list = with_count(node, list, index + 1);
    for (int64_t i = count; i < index && list != NULL; ++i) { /* a longer version may have an element there */
      list = with_item(node, list, i, (htf_scope_value){0});
    }
  }
  if (list != NULL && check_index(node, list, index)) {
    put_list(node, 0, with_item(node, list, index, item));
  }
}

void htf_list_push_back(htf_node *node) {
  htf_sequence *list = list_of(node, 0);
  htf_scope_value item = item_of(node, 1, list);
  htf_sequence *longer = list != NULL ? with_count(node, list, list->count + 1) : NULL;
  if (longer != NULL) {
    put_list(node, 0, with_item(node, longer, longer->count - 1, item));
  }
}

void htf_list_pop_back(htf_node *node) {
  htf_sequence *list = list_of(node, 0);
  if (list == NULL || !check_index(node, list, list->count - 1)) {
    return;
  }
  read_dims(node, 1, list);
  htf_scope_put(node, 1, get(node, list, list->count - 1));
  put_list(node, 0, with_count(node, list, list->count - 1));
}

void htf_list_stack(htf_node *node) {
  htf_sequence *list = list_of(node, 0);
  if (list == NULL) {
    return;
  }
  read_dims(node, 1, list);
  int64_t count = htf_integer(node, "num_elements");
  if (count >= 0 && count != list->count) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "TensorListStack: the list has %lld elements, not %lld",
             (long long)list->count, (long long)count);
  }
  htf_scope_put(node, 0, (htf_scope_value){.list = list, .is_joined = true});
}

void htf_list_length(htf_node *node) {
  const htf_sequence *list = list_of(node, 0);
  htf_host *out = list != NULL ? htf_scope_new_host(node, 0, HR_DTYPE_I32, 0, NULL) : NULL;
  if (out != NULL) {
    *(int32_t *)out->bytes = (int32_t)list->count;
  }
}

void htf_list_element_shape(htf_node *node) {
  const htf_sequence *list = list_of(node, 0);
  int64_t rank = list != NULL ? list->rank : 0;
  htf_host *out = list != NULL ? htf_scope_new_host(node, 0, htf_output_dtype(node, 0), rank < 0 ? 0 : 1, &rank) : NULL;
  for (int64_t d = 0; out != NULL && d < out->count; ++d) {
    int64_t dim = rank < 0 ? -1 : list->dims[d];
    if (out->dtype == HR_DTYPE_I64) {
      ((int64_t *)out->bytes)[d] = dim;
    } else {
      ((int32_t *)out->bytes)[d] = (int32_t)dim;
    }
  }
}

/* ---- joined lists ---- */

/* Returns how many they are; -1 after a failure. */
static int joined_dims(htf_node *node, htf_sequence *list, int64_t *out_dims) {
  if (!find_dims(list) || list->rank == HR_RANK_MAX) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "TensorListStack: the dims of the list's elements are not known");
    return -1;
  }
  out_dims[0] = list->count;
  memcpy(out_dims + 1, list->dims, (size_t)list->rank * sizeof *out_dims);
  return list->rank + 1;
}

htf_value htf_list_join(htf_node *node, htf_sequence *list) {
  int64_t dims[HR_RANK_MAX];
  int rank = joined_dims(node, list, dims);
  if (list->source.tensor != NULL) {
    return list->source.tensor;
  }
  htf_value joined = rank > 0 ? htf_new(node, list->dtype, rank, dims) : NULL;
  for (int64_t i = 0; i < list->count && !htf_has_failed(node); ++i) {
    const htf_value item = get(node, list, i).tensor;
    bool is_same = item != NULL && item->rank == list->rank && item->dtype == list->dtype;
    for (int d = 0; is_same && d < item->rank; ++d) {
      is_same = item->dims[d] == list->dims[d];
    }
    if (!is_same) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "TensorListStack: element %lld has other dims than element 0",
               (long long)i);
    } else if (hr_tensor_count(item) > 0) {
      htf_record(node, HR_OP_COPY, 0, NULL, 1, &item,
                 htf_view(node, joined, item->rank, item->dims, joined->strides + 1, i * joined->strides[0]));
    }
  }
  return joined;
}

/* ---- products ---- */

/* True if all elements are set and matrices of the same few rows. */
static bool has_few_rows(htf_sequence *list) {
  enum { COUNT_LEAST = 4, ROWS_MOST = 8 };
  bool has_all = list->count >= COUNT_LEAST && find_dims(list) && list->rank == 2 && list->dims[0] <= ROWS_MOST;
  for (int64_t i = 0; i < list->count && has_all; ++i) {
    htf_value item = list->items->items[i].tensor;
    has_all = item != NULL && item->rank == 2 && item->dims[0] == list->dims[0] && item->dims[1] == list->dims[1];
  }
  return has_all;
}

static htf_value multiply(htf_node *node, htf_sequence *list, htf_value matrix) {
  static const int order[] = {1, 0};
  bool is_transposed = htf_flag(node, "transpose_b");
  const int64_t rows[] = {list->count * list->dims[0], list->dims[1]};
  htf_value all = htf_reshape(node, htf_list_join(node, list), 2, rows);
  htf_value product =
      htf_call2(node, HR_FUNCTIONAL_MATMUL, all, is_transposed ? htf_transpose(node, matrix, order) : matrix);
  return htf_settle(node, product, product->dtype);
}

bool htf_list_multiply(htf_node *node) {
  const htf_scope_value *x = htf_scope_value_at(node, 0);
  htf_sequence *list = x != NULL ? x->of : NULL;
  if (list == NULL || htf_flag(node, "transpose_a") || !htf_scope_is_invariant(node->scope, 1) ||
      (list->product_node != NULL && list->product_node != node->scope->current)) {
    return false;
  }
  int64_t index = x->index;
  if (list->product_node == NULL) {
    htf_value matrix = htf_input(node, 1);
    bool is_fit = !htf_has_failed(node) && matrix->rank == 2 && has_few_rows(list) &&
                  matrix->dims[htf_flag(node, "transpose_b")] == list->dims[1];
    if (!is_fit) {
      return false;
    }
    list->product.tensor = multiply(node, list, matrix);
    list->product_node = node->scope->current;
  }
  htf_value product = list->product.tensor;
  const int64_t dims[] = {list->dims[0], product->dims[1]};
  htf_output(node, 0, htf_view(node, product, 2, dims, product->strides, product->offset + index * dims[0] * dims[1]));
  return true;
}

/* ---- gradients ---- */

static htf_scope_value add_items(htf_node *node, htf_scope_value x, htf_scope_value y) {
  bool has_both = is_set(x) && is_set(y);
  return has_both ? (htf_scope_value){.tensor = htf_settle(node, htf_add(node, x.tensor, y.tensor), x.tensor->dtype)}
                  : (is_set(x) ? x : y);
}

/* Elements that one list has not set are those of the other. */
void htf_list_add(htf_node *node) {
  htf_sequence *sum = list_of(node, 0);
  for (int i = 1; i < htf_input_count(node); ++i) {
    htf_sequence *x = sum, *y = list_of(node, i);
    sum = y != NULL ? new_list(node, x->count, x->dtype) : NULL;
    if (sum == NULL || x->count != y->count || x->dtype != y->dtype || x->dtype == HR_DTYPE_I32) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "AddN: lists of %lld and %lld elements",
               x != NULL ? (long long)x->count : 0, y != NULL ? (long long)y->count : 0);
      return;
    }
    sum->rank = x->rank < 0 ? y->rank : x->rank;
    memcpy(sum->dims, x->rank < 0 ? y->dims : x->dims, sizeof sum->dims);
    for (int64_t j = 0; j < sum->count; ++j) {
      take_array(x);
      htf_scope_value item = x->items->items[j];
      take_array(y);
      sum->items->items[j] = add_items(node, item, y->items->items[j]);
    }
  }
  put_list(node, 0, sum);
}

void htf_list_zeros_like(htf_node *node) {
  htf_sequence *x = list_of(node, 0), *list = x != NULL ? new_list(node, x->count, x->dtype) : NULL;
  if (list == NULL) {
    return;
  }
  take_array(x);
  list->rank = x->rank;
  memcpy(list->dims, x->dims, sizeof list->dims);
  for (int64_t i = 0; i < list->count && !htf_has_failed(node); ++i) {
    const int64_t *dims;
    int rank = item_dims(x->items->items[i], &dims);
    if (rank >= 0) {
      list->items->items[i].tensor = htf_zeros(node, rank, dims, list->dtype);
    }
  }
  put_list(node, 0, list);
}
