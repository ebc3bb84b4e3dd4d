/* graph_simplify.c: a graph without dead, repeated and constant operations, and copies of graphs.
 *
 * The new graph is made node by node, from the old one's. A value by which a gradient differentiates stays as it is: it
 * is neither joined with an equal one, whose uses would count, nor folded.
 */
#include <limits.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/text.h"
#include "functional/functions.h"
#include "graph/graph_attention.h"
#include "graph/graph_crop.h"
#include "graph/graph_node.h"
#include "headrace/array.h"

enum {
  CONV_AFTER = 2, /* of the attributes of conv */
  JOINED_BYTES = 4096
}; /* of a constant that is compared with others, and by which folding may add to the graph */

/* An operation of the new graph, by its contents. */
typedef struct known {
  struct known *next; /* with the same hash */
  size_t length;
  const char *key;
  hr_value first;
} known;

/* Inner graphs of the whole graph, and the new ones. */
typedef struct inner_map {
  const hr_graph *whole;
  hr_graph **copies; /* with references */
} inner_map;

typedef struct rewrite {
  const inner_map *inner; /* NULL: they stay */
  const hr_graph *from;
  hr_graph *to;
  hr_stream *stream; /* NULL: folds integers alone */
  hr_value *map;     /* by old value: the new one */
  hr_value *narrow;  /* by old value: 0, or the new one in the dtype of products */
  bool *is_live;     /* by old node */
  bool *is_same;     /* by old value: the new one has its facts */
  uint8_t *uses;     /* by old value: IS_FIXED, IS_FACTOR and IS_READ */
  int *joined;       /* by old node: 0, or the place in `attentions` of what stands for it, from 1 on */
  HR_VECTOR(hr__attention) attentions;
  const int64_t **afters; /* by old node: NULL, or a convolution's padding behind, which is smaller than before */
  hr_table table;
  hr_arena arena;
  hr_text key;                   /* of the current node */
  const hr_graph_change *change; /* NULL, or what a copy of live nodes changes */
  int input_count;               /* that were copied or left out */
  const void *const *variables;  /* NULL, or elements of the next variables */
  bool keeps_all;                /* copies each node */
  bool joins;                    /* attention */
  bool crops;                    /* convolutions before max pools */
  hr_dtype products;             /* NONE, or the dtype of factors of products; see hr_graph_round_products */
  bool has_folded;
  bool keeps_facts; /* of the current node: its results have the old facts */
} rewrite;

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory to simplify it");
}

/* ---- joined nodes ---- */

static const hr__attention *joined_at(const rewrite *r, size_t node) {
  return r->joined[node] != 0 ? &r->attentions.data[r->joined[node] - 1] : NULL;
}

/* Calls visit for each value that a node reads, or what stands for it. */
static void each_input(const rewrite *r, size_t node, void (*visit)(void *arg, const hr_value *value), void *arg) {
  const hr__attention *a = joined_at(r, node);
  if (a == NULL) {
    hr__node_each_input(&r->from->nodes.data[node], visit, arg);
    return;
  }
  visit(arg, &a->q), visit(arg, &a->keys), visit(arg, &a->v);
  if (a->mask != 0) {
    visit(arg, &a->mask);
  }
}

/* ---- live nodes ---- */

static void mark_live(void *arg, const hr_value *value) {
  rewrite *r = arg;
  r->is_live[hr__graph_value_of(r->from, *value)->node] = true;
}

static void find_live(rewrite *r) {
  const int *chosen = r->change != NULL ? r->change->outputs : NULL;
  size_t count = chosen != NULL ? (size_t)r->change->output_count : r->from->outputs.count;
  for (size_t i = 0; i < count; ++i) {
    mark_live(r, &r->from->outputs.data[chosen != NULL ? (size_t)chosen[i] : i].value);
  }
  for (size_t i = 0; chosen == NULL && i < r->from->assigned.count; ++i) {
    if (r->from->assigned.data[i] != 0) {
      mark_live(r, &r->from->assigned.data[i]);
    }
  }
  for (size_t n = r->from->nodes.count; n-- > 0;) {
    const hr__node *node = &r->from->nodes.data[n];
    bool is_source = node->kind == HR__NODE_INPUT || node->kind == HR__NODE_VARIABLE;
    r->is_live[n] |= r->keeps_all || (chosen == NULL && is_source);
    if (r->is_live[n]) {
      each_input(r, n, mark_live, r);
    }
  }
}

static void count_read(void *arg, const hr_value *value) {
  int *reads = arg;
  reads[*value] += reads[*value] < INT_MAX;
}

/* Convolutions with elements that no max pool reads. */
static hr_status find_crops(rewrite *r, const int *reads) {
  for (size_t n = 0; n < r->from->nodes.count; ++n) {
    const hr__node *conv;
    int64_t after[HR__CROP_DIMS];
    if (r->is_live[n] && hr__graph_find_crop(r->from, reads, &r->from->nodes.data[n], &conv, after)) {
      int64_t *kept = hr_arena_dup(&r->arena, after, sizeof after);
      if (kept == NULL) {
        return no_memory();
      }
      r->afters[conv - r->from->nodes.data] = kept;
    }
  }
  return HR_OK;
}

/* Attention among live nodes; then its parts do not live any more. */
static hr_status find_joined(rewrite *r) {
  int *reads = r->joins ? hr_calloc(r->from->values.count, sizeof *reads) : NULL;
  hr__known search = {.graph = r->from, .steps = HR__KNOWN_STEPS};
  bool is_right = reads != NULL || !r->joins;
  for (size_t n = 0; reads != NULL && n < r->from->nodes.count; ++n) {
    if (r->is_live[n]) {
      hr__node_each_input(&r->from->nodes.data[n], count_read, reads);
    }
  }
  for (size_t i = 0; reads != NULL && i < r->from->outputs.count; ++i) {
    count_read(reads, &r->from->outputs.data[i].value);
  }
  for (size_t i = 0; reads != NULL && i < r->from->assigned.count; ++i) {
    count_read(reads, &r->from->assigned.data[i]);
  }
  for (size_t n = 0; is_right && reads != NULL && n < r->from->nodes.count; ++n) {
    hr__attention found;
    if (r->is_live[n] && hr__graph_find_attention(&search, reads, &r->from->nodes.data[n], &found)) {
      is_right = hr_vector_push(&r->attentions, found);
      r->joined[n] = (int)r->attentions.count;
    }
  }
  hr_status status = is_right && reads != NULL && r->crops ? find_crops(r, reads) : HR_OK;
  hr_free(reads);
  return is_right ? status : no_memory();
}

/* ---- uses ---- */

/* A value follows from constants; a product with one that does not reads it; another operation, or an output does. */
enum { IS_FIXED = 1, IS_FACTOR = 2, IS_READ = 4 };

typedef struct use {
  rewrite *r;
  bool is_fixed;
  uint8_t kind;
} use;

static void note_fixed(void *arg, const hr_value *value) {
  use *reader = arg;
  reader->is_fixed &= (reader->r->uses[*value] & IS_FIXED) != 0;
}

static void note_use(void *arg, const hr_value *value) {
  use *reader = arg;
  reader->r->uses[*value] |= reader->kind;
}

static void find_uses(rewrite *r) {
  for (size_t n = 0; n < r->from->nodes.count; ++n) {
    const hr__node *node = &r->from->nodes.data[n];
    use reader = {r, node->kind == HR__NODE_CONSTANT || node->kind == HR__NODE_NUMBER || node->kind == HR__NODE_CALL,
                  IS_READ};
    each_input(r, n, note_fixed, &reader);
    bool is_product = node->kind == HR__NODE_CALL && node->function == HR_FUNCTIONAL_MATMUL && r->joined[n] == 0;
    reader.kind = is_product && !reader.is_fixed ? IS_FACTOR : IS_READ;
    if (r->is_live[n]) {
      each_input(r, n, note_use, &reader);
    }
    for (int i = 0; i < node->result_count; ++i) {
      r->uses[node->first + i] |= reader.is_fixed ? IS_FIXED : 0;
    }
  }
  for (size_t i = 0; i < r->from->outputs.count; ++i) {
    r->uses[r->from->outputs.data[i].value] |= IS_READ;
  }
}

/* True for a large constant that is turned for products alone, which read it in any order. */
static bool is_turned_factor(const rewrite *r, const hr__node *node) {
  enum { LARGE = 1 << 16 };
  return node->kind == HR__NODE_CALL && node->function == HR_FUNCTIONAL_PERMUTE_DIMS &&
         (r->uses[node->first] & (IS_FACTOR | IS_READ)) == IS_FACTOR &&
         hr__graph_bytes(hr__graph_node_of(r->to, r->map[node->inputs[0]])) >= LARGE;
}

static bool is_watched(const rewrite *r, const hr__node *node) {
  for (int i = 0; i < node->result_count; ++i) {
    if (hr__graph_value_of(r->from, node->first + i)->is_watched) {
      return true;
    }
  }
  return false;
}

/* ---- equal operations ---- */

static void key_word(rewrite *r, int64_t word) {
  hr_text_append_bytes(&r->key, (const char *)&word, sizeof word);
}

static void key_bytes(rewrite *r, const void *bytes, size_t count) {
  key_word(r, (int64_t)count);
  hr_text_append_bytes(&r->key, bytes, count);
}

static void key_scalar(rewrite *r, const hr_scalar *number) {
  key_word(r, number->dtype);
  key_word(r, number->value.i);
  if (number->dtype == HR_DTYPE_C128) {
    key_bytes(r, &number->value.f[1], sizeof number->value.f[1]);
  }
}

static void key_attribute(rewrite *r, const hr__node_attribute *attribute) {
  const hr_attribute *value = &attribute->value;
  int count = value->kind == HR_ATTRIBUTE_INTS || value->kind == HR_ATTRIBUTE_REALS ? value->count : 1;
  key_word(r, value->kind);
  key_word(r, count);
  key_word(r, r->map[attribute->list]);
  key_word(r, attribute->values != NULL);
  for (int i = 0; attribute->values != NULL && i < count; ++i) {
    key_word(r, r->map[attribute->values[i]]);
  }
  if (value->kind == HR_ATTRIBUTE_INTS && attribute->list == 0) {
    key_bytes(r, value->value.ints, (size_t)count * sizeof *value->value.ints);
  } else if (value->kind == HR_ATTRIBUTE_REALS) {
    key_bytes(r, value->value.reals, (size_t)count * sizeof *value->value.reals);
  } else if (value->kind == HR_ATTRIBUTE_TEXT) {
    key_bytes(r, value->value.text, strlen(value->value.text));
  } else if (value->kind == HR_ATTRIBUTE_REAL) {
    key_scalar(r, &value->value.number);
  } else if (value->kind == HR_ATTRIBUTE_DTYPE) {
    key_word(r, value->value.dtype);
  } else if (value->kind != HR_ATTRIBUTE_NONE) {
    key_word(r, value->value.integer);
  }
}

/* A convolution's padding behind, if it becomes smaller; else NULL. */
static const int64_t *after_of(const rewrite *r, const hr__node *node) {
  return r->crops ? r->afters[node - r->from->nodes.data] : NULL;
}

/* The contents of a node in r->key. Counts stand before words, so that no two contents have one key. */
static void make_key(rewrite *r, const hr__node *node) {
  hr_text_clear(&r->key);
  key_word(r, node->kind);
  key_word(r, node->function);
  key_word(r, node->kind == HR__NODE_SYMBOL ? node->symbol : 0);
  key_word(r, (int64_t)(intptr_t)node->inner[0]);
  key_word(r, (int64_t)(intptr_t)node->inner[1]);
  key_word(r, node->carried_count);
  key_word(r, node->sequence_count);
  key_word(r, node->input_count);
  key_word(r, node->attribute_count);
  for (int i = 0; i < node->input_count; ++i) {
    key_word(r, r->map[node->inputs[i]]);
  }
  for (int i = 0; node->axes != NULL && i < node->input_count + node->result_count; ++i) {
    key_word(r, node->axes[i]);
  }
  for (int i = 0; i < node->attribute_count; ++i) {
    key_attribute(r, &node->attributes[i]);
  }
  const int64_t *after = after_of(r, node);
  for (int d = 0; after != NULL && d < HR__CROP_DIMS; ++d) {
    key_word(r, after[d]);
  }
  if (node->kind == HR__NODE_NUMBER) {
    key_scalar(r, &node->number);
  } else if (node->kind == HR__NODE_CONSTANT) {
    key_word(r, node->dtype);
    key_bytes(r, node->dims, (size_t)node->rank * sizeof *node->dims);
    key_bytes(r, node->blob->bytes, hr__graph_bytes(node));
  }
}

static known *find_known(const rewrite *r, uint64_t hash) {
  known *entry = hr_table_get(&r->table, hash);
  while (entry != NULL && (entry->length != r->key.length || memcmp(entry->key, r->key.data, entry->length) != 0)) {
    entry = entry->next;
  }
  return entry;
}

static hr_status add_known(rewrite *r, uint64_t hash, hr_value first) {
  known *entry = hr_arena_alloc(&r->arena, sizeof *entry);
  char *key = hr_arena_dup(&r->arena, r->key.data, r->key.length);
  if (entry == NULL || key == NULL) {
    return no_memory();
  }
  *entry = (known){hr_table_get(&r->table, hash), r->key.length, key, first};
  return hr_table_put(&r->table, hash, entry) ? HR_OK : no_memory();
}

/* ---- constants ---- */

static bool is_constant(const rewrite *r, hr_value old) {
  return !hr__graph_value_of(r->from, old)->is_watched &&
         hr__graph_node_of(r->to, r->map[old])->kind == HR__NODE_CONSTANT;
}

/* True if all inputs are constants or numbers, and the results are not larger by more than a little. */
static bool can_fold(const rewrite *r, const hr__node *node) {
  int64_t bytes = JOINED_BYTES, constants = 0;
  if (r->stream == NULL || node->kind != HR__NODE_CALL) {
    return false;
  }
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] == 0) {
      continue;
    }
    const hr__node *input = hr__graph_node_of(r->to, r->map[node->inputs[i]]);
    if (!is_constant(r, node->inputs[i]) && input->kind != HR__NODE_NUMBER) {
      return false;
    }
    constants += input->kind == HR__NODE_CONSTANT;
    int64_t more = input->kind == HR__NODE_CONSTANT ? (int64_t)hr__graph_bytes(input) : 0;
    bytes = bytes < INT64_MAX - more ? bytes + more : INT64_MAX;
  }
  for (int i = 0; i < node->result_count && bytes >= 0; ++i) {
    const hr__graph_value *value = hr__graph_value_of(r->from, node->first + i);
    hr__node result = {.dtype = value->facts->dtype, .rank = value->facts->rank, .dims = value->facts->dims};
    if (value->varies) {
      return false;
    }
    bytes -= (int64_t)hr__graph_bytes(&result); /* each fits 63 bits */
  }
  return constants > 0 && bytes >= 0 && !is_turned_factor(r, node);
}

static hr_type type_of(const hr_tensor *x) {
  hr_type type = {.dtype = x->dtype, .rank = x->rank};
  memcpy(type.dims, x->dims, (size_t)x->rank * sizeof *x->dims);
  return type;
}

/* The call's results as constants of the new graph, in `map`. */
static hr_status read_results(rewrite *r, const hr__node *node, const hr_tensor *results) {
  for (int i = 0; i < node->result_count; ++i) {
    const hr_type type = type_of(&results[i]);
    hr__blob *blob = hr__graph_create_blob(r->to, &type);
    HR_RETURN_IF_ERROR(hr_graph_status(r->to));
    hr_status status = hr_array_read(r->stream, &results[i], (void *)(uintptr_t)blob->bytes);
    if (status == HR_OK) {
      r->map[node->first + i] = hr__graph_add_blob(r->to, &type, blob);
      status = hr_graph_status(r->to);
    }
    hr__blob_release(blob);
    HR_RETURN_IF_ERROR(status);
  }
  return HR_OK;
}

/* A graph of the call alone, applied to the stream. */
static hr_status apply_alone(rewrite *r, const hr_graph *graph, const hr__node *node) {
  hr_tensor *results = hr_calloc((size_t)node->result_count, sizeof *results);
  if (results == NULL) {
    return no_memory();
  }
  hr_status status = hr_graph_apply(graph, r->stream, 0, NULL, node->result_count, results);
  status = status == HR_OK ? read_results(r, node, results) : status;
  for (int i = 0; i < node->result_count; ++i) {
    hr_tensor_release(&results[i]);
  }
  hr_free(results);
  return status;
}

/* ---- copies ---- */

/* The node's attributes for hr_graph_add, in the rewrite's arena. */
static hr_graph_attribute *copy_attributes(rewrite *r, const hr__node *node, int *out_count) {
  const hr__attribute_row *rows = hr__function_row_of(node->function)->attributes;
  hr_graph_attribute *all = HR_ARENA_ARRAY(&r->arena, hr_graph_attribute, (size_t)node->attribute_count + 1);
  const int64_t *after = after_of(r, node);
  *out_count = 0;
  for (int i = 0; all != NULL && i < node->attribute_count; ++i) {
    const hr__node_attribute *from = &node->attributes[i];
    if (from->value.kind == HR_ATTRIBUTE_NONE) {
      continue;
    }
    hr_graph_attribute *to = &all[(*out_count)++];
    *to = (hr_graph_attribute){.name = rows[i].name, .value = from->value, .list = r->map[from->list]};
    if (after != NULL && i == CONV_AFTER) {
      to->value.value.ints = after;
    }
    int count = from->value.kind == HR_ATTRIBUTE_INTS ? from->value.count : 1;
    hr_value *values = from->values != NULL ? HR_ARENA_ARRAY(&r->arena, hr_value, (size_t)count + 1) : NULL;
    if (from->values != NULL && values == NULL) {
      return NULL;
    }
    for (int e = 0; values != NULL && e < count; ++e) {
      values[e] = r->map[from->values[e]];
    }
    to->values = values;
  }
  return all;
}

static void note_other(void *arg, const hr_value *value) {
  rewrite *r = arg;
  r->keeps_facts &= r->is_same[*value];
}

/* Notes if a copy of the node has the old facts: with these dims of inputs, all that it reads has them. Numbers in
 * place of unknown ones depend on the numbers of values, which are others. */
static void note_facts(rewrite *r, const hr__node *node) {
  bool is_plain = node->kind <= HR__NODE_CALL || node->kind == HR__NODE_VARIABLE;
  r->keeps_facts =
      is_plain && !hr__node_is_unknown(node) && r->change == NULL && !r->from->is_piece && after_of(r, node) == NULL;
  hr__node_each_input(node, note_other, r);
}

static hr_status copy_call(rewrite *r, hr_graph *to, const hr__node *node, const hr_value *inputs,
                           hr_value *out_first) {
  int count = 0;
  hr_graph_attribute *attributes = copy_attributes(r, node, &count);
  if (attributes == NULL) {
    return no_memory();
  }
  *out_first = hr_graph_add(to, node->function, node->input_count, inputs, count, attributes);
  return hr_graph_status(to);
}

/* ---- products of rounded factors ---- */

static bool is_product(const hr__node *node) {
  static const hr_functional products[] = {
      HR_FUNCTIONAL_MATMUL,       HR_FUNCTIONAL_EINSUM,         HR_FUNCTIONAL_TENSORDOT, HR_FUNCTIONAL_CONV,
      HR_FUNCTIONAL_CONV_GENERAL, HR_FUNCTIONAL_CONV_TRANSPOSE, HR_FUNCTIONAL_INNER,     HR_FUNCTIONAL_ATTENTION};
  for (size_t i = 0; i < sizeof products / sizeof *products; ++i) {
    if (node->kind == HR__NODE_CALL && node->function == products[i]) {
      return true;
    }
  }
  return false;
}

/* True for a product of f32; a mask of bools may stand beside the factors. */
static bool is_rounded(const rewrite *r, const hr__node *node) {
  bool is_right = r->products != HR_DTYPE_NONE && is_product(node);
  for (int i = 0; is_right && i < node->input_count; ++i) {
    hr_dtype dtype = node->inputs[i] != 0 ? hr__graph_value_of(r->from, node->inputs[i])->facts->dtype : HR_DTYPE_F32;
    is_right = dtype == HR_DTYPE_F32 || (dtype == HR_DTYPE_BOOL && i == node->input_count - 1);
  }
  return is_right;
}

static hr_value convert(rewrite *r, hr_value x, hr_dtype dtype) {
  const hr_graph_attribute to = {.name = "dtype", .value = {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = dtype}}};
  return hr_graph_add(r->to, HR_FUNCTIONAL_ASTYPE, 1, &x, 1, &to);
}

/* True for the right matrix of a product, a large constant whose rows are so long that a column block of them lies in
 * as many pages as there are rows. */
static bool has_long_rows(const rewrite *r, const hr__node *node, hr_value x) {
  enum { LARGE = 1 << 20, LONG = 8 };
  const hr__fact *fact = hr__graph_value_of(r->to, x)->facts;
  return node->function == HR_FUNCTIONAL_MATMUL && hr__graph_node_of(r->to, x)->kind == HR__NODE_CONSTANT &&
         fact->rank == 2 && fact->dims[1] >= LONG * fact->dims[0] && fact->dims[0] * fact->dims[1] >= LARGE;
}

static bool is_one_of(const hr__node *node, const hr_functional *all, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (node->kind == HR__NODE_CALL && node->function == all[i]) {
      return node->result_count == 1;
    }
  }
  return false;
}

/* True for operations whose results are elements of their operands or zero: rounded elements need no rounding. */
static bool keeps_elements(const hr__node *node) {
  static const hr_functional all[] = {HR_FUNCTIONAL_RELU,         HR_FUNCTIONAL_MAX_POOL,    HR_FUNCTIONAL_RESHAPE,
                                      HR_FUNCTIONAL_PERMUTE_DIMS, HR_FUNCTIONAL_EXPAND_DIMS, HR_FUNCTIONAL_SQUEEZE};
  return is_one_of(node, all, sizeof all / sizeof *all) && node->input_count == 1;
}

/* True for a sum of two values, such as that of a convolution and a residual. */
static bool is_sum(const hr__node *node) {
  static const hr_functional all[] = {HR_FUNCTIONAL_ADD};
  return is_one_of(node, all, sizeof all / sizeof *all) && node->input_count == 2;
}

static hr_status narrow(rewrite *r, hr_value x, int left, hr_value *out_narrow);

/* Repeats the node on its operands in the products' dtype, if all of them have such values. */
static hr_status repeat_narrow(rewrite *r, const hr__node *node, int left, hr_value *out_narrow) {
  hr_value inputs[2] = {0};
  for (int i = 0; i < node->input_count; ++i) {
    HR_RETURN_IF_ERROR(narrow(r, node->inputs[i], left - 1, &inputs[i]));
    if (inputs[i] == 0) {
      return HR_OK;
    }
  }
  return copy_call(r, r->to, node, inputs, out_narrow);
}

/* A value of the old graph in the products' dtype, if it follows from rounded products by operations that keep elements
 * and by sums, `left` of them at most beyond those that are known. These are repeated on the products as they are.
 * Otherwise 0. */
static hr_status narrow(rewrite *r, hr_value x, int left, hr_value *out_narrow) {
  const hr__node *node = hr__graph_node_of(r->from, x), *made = hr__graph_node_of(r->to, r->map[x]);
  *out_narrow = r->narrow[x];
  if (*out_narrow != 0) {
    return HR_OK;
  }
  if (hr__graph_value_of(r->from, x)->facts->dtype != HR_DTYPE_F32) {
    return HR_OK;
  }
  if (made->kind == HR__NODE_CALL && made->function == HR_FUNCTIONAL_ASTYPE &&
      hr__graph_value_of(r->to, made->inputs[0])->facts->dtype == r->products) {
    *out_narrow = made->inputs[0];
  } else if (left > 0 && (keeps_elements(node) || is_sum(node))) {
    HR_RETURN_IF_ERROR(repeat_narrow(r, node, left, out_narrow));
  }
  r->narrow[x] = *out_narrow;
  return HR_OK;
}

/* A factor that is a value of the old graph. */
static hr_status round_factor(rewrite *r, hr_value x, hr_value *out_factor) {
  enum { MOST_REPEATED = 8 };
  HR_RETURN_IF_ERROR(narrow(r, x, MOST_REPEATED, out_factor));
  *out_factor = *out_factor != 0 ? *out_factor : convert(r, r->map[x], r->products);
  return hr_graph_status(r->to);
}

/* A matrix, stored by columns, which a product with one row reads in order. */
static hr_value turn_factor(rewrite *r, hr_value x) {
  hr_value turned = hr_graph_add(r->to, HR_FUNCTIONAL_PERMUTE_DIMS, 1, &x, 0, NULL);
  turned = convert(r, turned, r->products);
  return hr_graph_add(r->to, HR_FUNCTIONAL_PERMUTE_DIMS, 1, &turned, 0, NULL);
}

static hr_status copy_rounded(rewrite *r, const hr__node *node, hr_value *inputs, hr_value *out_first) {
  for (int i = 0; i < node->input_count; ++i) {
    bool is_mask = i == 3 && node->function == HR_FUNCTIONAL_ATTENTION;
    if (inputs[i] != 0 && i == 1 && has_long_rows(r, node, inputs[i])) {
      inputs[i] = turn_factor(r, inputs[i]);
    } else if (inputs[i] != 0 && !is_mask) {
      HR_RETURN_IF_ERROR(round_factor(r, node->inputs[i], &inputs[i]));
    }
  }
  HR_RETURN_IF_ERROR(copy_call(r, r->to, node, inputs, out_first));
  *out_first = convert(r, *out_first, HR_DTYPE_F32);
  return hr_graph_status(r->to);
}

/* ---- attention ---- */

/* The operation in place of a node, with rounded factors if the rewrite rounds products. */
static hr_status add_attention(rewrite *r, const hr__attention *old, hr_value *out_first) {
  bool is_f32 = hr__graph_value_of(r->from, old->q)->facts->dtype == HR_DTYPE_F32;
  bool rounds = r->products != HR_DTYPE_NONE && is_f32;
  hr__attention a = *old;
  a.q = r->map[a.q], a.keys = r->map[a.keys], a.v = r->map[a.v], a.mask = r->map[a.mask];
  if (rounds) {
    HR_RETURN_IF_ERROR(round_factor(r, old->q, &a.q));
    HR_RETURN_IF_ERROR(round_factor(r, old->keys, &a.keys));
    HR_RETURN_IF_ERROR(round_factor(r, old->v, &a.v));
  }
  *out_first = hr__graph_add_attention(r->to, &a);
  *out_first = rounds ? convert(r, *out_first, HR_DTYPE_F32) : *out_first;
  return hr_graph_status(r->to);
}

/* ---- copies of nodes ---- */

static hr_status copy_input(rewrite *r, const hr__node *node, hr_value *out_first) {
  hr_type type;
  HR_RETURN_IF_ERROR(hr_graph_type(r->from, node->first, &type));
  if (r->change != NULL && r->change->inputs != NULL) {
    type = r->change->inputs[r->input_count];
  }
  *out_first = hr_graph_input(r->to, hr_graph_value_name(r->from, node->first), &type);
  return hr_graph_status(r->to);
}

static hr_graph *inner_of(const rewrite *r, hr_graph *inner) {
  return r->inner != NULL && inner != NULL ? r->inner->copies[hr__graph_inner_place(r->inner->whole, inner) - 1]
                                           : inner;
}

static hr_value copy_control(rewrite *r, const hr__node *node, const hr_value *inputs) {
  hr_graph *const inner[2] = {inner_of(r, node->inner[0]), inner_of(r, node->inner[1])};
  return hr__graph_add_control(r->to, node, inner, inputs);
}

/* A variable with the same elements, or with new ones. */
static hr_value copy_variable(rewrite *r, const hr__node *node) {
  hr_type type;
  const char *name = hr_graph_value_name(r->from, node->first);
  if (r->variables == NULL) {
    return hr__graph_share_variable(r->to, name, node);
  }
  hr_status status = hr_graph_type(r->from, node->first, &type);
  return status == HR_OK ? hr_graph_variable(r->to, name, &type, *r->variables++) : hr__graph_fail(r->to, status);
}

/* True if a gradient is by one of the node's operands. */
static bool reads_watched(const rewrite *r, const hr__node *node) {
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] != 0 && hr__graph_value_of(r->from, node->inputs[i])->is_watched) {
      return true;
    }
  }
  return false;
}

/* A copy of a call, which may read numbers in place of constants or rounded factors. */
static hr_status copy_operation(rewrite *r, const hr__node *node, hr_value *inputs, hr_value *out_first) {
  bool is_changed = r->stream != NULL && !reads_watched(r, node) &&
                    hr__graph_use_numbers(r->to, node->function, node->input_count, inputs);
  bool is_other = is_rounded(r, node);
  r->has_folded |= is_changed;
  r->keeps_facts &= !is_changed && !is_other;
  if (r->keeps_facts) {
    *out_first = hr__graph_add_copy(r->to, r->from, node, r->map);
    return hr_graph_status(r->to);
  }
  return is_other ? copy_rounded(r, node, inputs, out_first) : copy_call(r, r->to, node, inputs, out_first);
}

/* A copy of a node with inputs of the new graph. */
static hr_status copy_node(rewrite *r, const hr__node *node, hr_value *out_first) {
  hr_graph_origin(r->to, node->origin);
  hr_value *inputs = HR_ARENA_ARRAY(&r->arena, hr_value, (size_t)node->input_count + 1);
  if (inputs == NULL) {
    return no_memory();
  }
  for (int i = 0; i < node->input_count; ++i) {
    inputs[i] = r->map[node->inputs[i]];
  }
  switch (node->kind) {
    case HR__NODE_INPUT:
      return copy_input(r, node, out_first);
    case HR__NODE_CONSTANT:
      *out_first = hr__graph_share_constant(r->to, node);
      break;
    case HR__NODE_NUMBER:
      *out_first = hr_graph_number(r->to, node->number);
      break;
    case HR__NODE_SYMBOL:
      *out_first = hr_graph_symbol(r->to, r->from->symbols.data[node->symbol]);
      break;
    case HR__NODE_SHAPE:
      *out_first = hr_graph_shape(r->to, inputs[0]);
      break;
    case HR__NODE_CALL:
      return copy_operation(r, node, inputs, out_first);
    case HR__NODE_GRADIENT:
      *out_first = hr_graph_gradient(r->to, inputs[0], inputs[1], node->result_count, inputs + 2);
      break;
    case HR__NODE_READ:
      *out_first = hr_graph_read(r->to, inputs[0]);
      break;
    case HR__NODE_HOST:
      *out_first = hr__graph_share_host(r->to, node->host, node->input_count, inputs);
      break;
    case HR__NODE_VARIABLE:
      *out_first = copy_variable(r, node);
      break;
    default:
      *out_first = copy_control(r, node, inputs);
  }
  return hr_graph_status(r->to);
}

hr_status hr__node_copy(const hr_graph *from, hr_graph *to, hr_value *map, hr_arena *arena, const hr__node *node,
                        hr_value *out_first) {
  rewrite r = {.from = from, .to = to, .map = map, .arena = *arena};
  hr_status status = copy_node(&r, node, out_first);
  *arena = r.arena;
  return status;
}

/* Moves an input of the call to its own graph. */
static hr_value copy_operand(hr_graph *alone, const hr__node *input) {
  return input->kind == HR__NODE_NUMBER ? hr_graph_number(alone, input->number)
                                        : hr__graph_share_constant(alone, input);
}

static hr_status make_alone(rewrite *r, const hr__node *node, hr_graph *alone) {
  hr_value *inputs = HR_ARENA_ARRAY(&r->arena, hr_value, (size_t)node->input_count + 1), first = 0;
  if (inputs == NULL) {
    return no_memory();
  }
  for (int i = 0; i < node->input_count; ++i) {
    inputs[i] = node->inputs[i] != 0 ? copy_operand(alone, hr__graph_node_of(r->to, r->map[node->inputs[i]])) : 0;
  }
  HR_RETURN_IF_ERROR(hr_graph_status(alone));
  HR_RETURN_IF_ERROR(copy_call(r, alone, node, inputs, &first));
  for (int i = 0; i < node->result_count; ++i) {
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    hr_graph_output(alone, name, first + i);
  }
  return hr_graph_status(alone);
}

/* Computes the call on the stream. */
static hr_status fold(rewrite *r, const hr__node *node) {
  hr_graph *alone = NULL;
  HR_RETURN_IF_ERROR(hr_graph_create(&alone));
  hr_status status = make_alone(r, node, alone);
  status = status == HR_OK ? apply_alone(r, alone, node) : status;
  r->has_folded = true;
  hr_graph_release(alone);
  return status;
}

/* True if the host has computed the node's only result, which depends on no symbol. */
static bool is_known_number(const rewrite *r, const hr__node *node) {
  const hr__graph_value *value = hr__graph_value_of(r->from, node->first);
  return (node->kind == HR__NODE_CALL || node->kind == HR__NODE_SHAPE) && !value->varies &&
         value->facts->numbers != NULL;
}

static hr_status fold_numbers(rewrite *r, const hr__node *node) {
  const hr__fact *fact = hr__graph_value_of(r->from, node->first)->facts;
  hr_type type = {.dtype = fact->dtype, .rank = fact->rank};
  int64_t count = 1;
  for (int d = 0; d < fact->rank; ++d) {
    type.dims[d] = fact->dims[d];
    count *= fact->dims[d];
  }
  void *elements = hr_arena_alloc(&r->arena, (size_t)count * sizeof(int64_t));
  if (elements == NULL) {
    return no_memory();
  }
  hr__integers_store(fact->dtype, count, fact->numbers, elements);
  r->map[node->first] = hr_graph_constant(r->to, &type, elements);
  r->is_same[node->first] = true;
  r->has_folded = true;
  return hr_graph_status(r->to);
}

/* ---- nodes ---- */

/* Attributes that are computed must be of values that vary: others are in the way of folding. */
static bool has_computed_attributes(const hr__node *node) {
  for (int i = 0; i < node->attribute_count; ++i) {
    if (node->attributes[i].list != 0 || node->attributes[i].values != NULL) {
      return true;
    }
  }
  return false;
}

static hr_status name_results(rewrite *r, const hr__node *node) {
  for (int i = 0; i < node->result_count && node->kind != HR__NODE_INPUT; ++i) {
    const char *name = hr_graph_value_name(r->from, node->first + i);
    if (name != NULL && hr_graph_value_name(r->to, r->map[node->first + i]) == NULL) {
      hr_graph_name(r->to, r->map[node->first + i], name);
    }
  }
  return hr_graph_status(r->to);
}

/* Copies a node, or finds an equal one. */
static hr_status join_or_copy(rewrite *r, const hr__node *node) {
  bool is_large = node->kind == HR__NODE_CONSTANT && hr__graph_bytes(node) > JOINED_BYTES;
  bool is_source = node->kind == HR__NODE_INPUT || node->kind == HR__NODE_VARIABLE || node->kind == HR__NODE_HOST;
  bool can_join = !r->keeps_all && r->change == NULL && !is_source && !is_large && !is_watched(r, node);
  uint64_t hash = 0;
  known *same = NULL;
  note_facts(r, node);
  if (can_join) {
    make_key(r, node);
    HR_RETURN_IF_ERROR(hr_text_status(&r->key));
    hash = hr_hash_bytes(HR_HASH_SEED, r->key.data, r->key.length);
    same = find_known(r, hash);
  }
  hr_value first = same != NULL ? same->first : 0;
  if (same == NULL) {
    HR_RETURN_IF_ERROR(copy_node(r, node, &first));
    HR_RETURN_IF_ERROR(can_join ? add_known(r, hash, first) : HR_OK);
  }
  for (int i = 0; i < node->result_count; ++i) {
    r->map[node->first + i] = first + i;
    r->is_same[node->first + i] = r->keeps_facts;
  }
  return HR_OK;
}

static hr_status rewrite_node(rewrite *r, const hr__node *node) {
  hr_graph_origin(r->to, node->origin);
  const hr__attention *attention = joined_at(r, (size_t)(node - r->from->nodes.data));
  if (attention != NULL) {
    HR_RETURN_IF_ERROR(add_attention(r, attention, &r->map[node->first]));
    return name_results(r, node);
  }
  bool is_fixed = r->keeps_all || r->change != NULL || is_watched(r, node);
  if (!is_fixed && is_known_number(r, node)) {
    HR_RETURN_IF_ERROR(fold_numbers(r, node));
  } else if (!is_fixed && !has_computed_attributes(node) && can_fold(r, node)) {
    HR_RETURN_IF_ERROR(fold(r, node));
  } else {
    HR_RETURN_IF_ERROR(join_or_copy(r, node));
  }
  return name_results(r, node);
}

/* Symbols in their order, unless the new graph may have others. */
static hr_status copy_symbols(rewrite *r) {
  for (size_t s = 0; s < r->from->symbols.count && r->change == NULL; ++s) {
    if (hr__graph_add_symbol(r->to, r->from->symbols.data[s]) < 0) {
      return hr_graph_status(r->to);
    }
  }
  return HR_OK;
}

static hr_status copy_outputs(rewrite *r) {
  const int *chosen = r->change != NULL ? r->change->outputs : NULL;
  size_t count = chosen != NULL ? (size_t)r->change->output_count : r->from->outputs.count;
  for (size_t i = 0; i < count; ++i) {
    const hr__graph_output *output = &r->from->outputs.data[chosen != NULL ? (size_t)chosen[i] : i];
    hr_graph_output(r->to, output->name, r->map[output->value]);
  }
  for (size_t i = 0; chosen == NULL && i < r->from->assigned.count; ++i) {
    if (r->from->assigned.data[i] != 0) {
      hr_graph_assign(r->to, r->map[r->from->variables.data[i]], r->map[r->from->assigned.data[i]]);
    }
  }
  return hr_graph_status(r->to);
}

static hr_status rewrite_all(rewrite *r) {
  HR_RETURN_IF_ERROR(copy_symbols(r));
  find_live(r);
  HR_RETURN_IF_ERROR(find_joined(r));
  if (r->attentions.count > 0) {
    memset(r->is_live, 0, r->from->nodes.count * sizeof *r->is_live);
    find_live(r);
  }
  find_uses(r);
  for (size_t n = 0; n < r->from->nodes.count; ++n) {
    if (r->is_live[n]) {
      HR_RETURN_IF_ERROR(rewrite_node(r, &r->from->nodes.data[n]));
    }
    r->input_count += r->from->nodes.data[n].kind == HR__NODE_INPUT;
  }
  return copy_outputs(r);
}

/* Makes the new graph, and frees the rewrite. */
static hr_status finish(rewrite *r, hr_graph **out_graph) {
  HR_RETURN_IF_ERROR(hr_graph_create(&r->to));
  r->map = hr_calloc(r->from->values.count, sizeof *r->map);
  r->narrow = hr_calloc(r->from->values.count, sizeof *r->narrow);
  r->is_live = hr_calloc(r->from->nodes.count + 1, sizeof *r->is_live);
  r->is_same = hr_calloc(r->from->values.count, sizeof *r->is_same);
  r->uses = hr_calloc(r->from->values.count, sizeof *r->uses);
  r->joined = hr_calloc(r->from->nodes.count + 1, sizeof *r->joined);
  r->afters = hr_calloc(r->from->nodes.count + 1, sizeof *r->afters);
  bool has_all = r->map != NULL && r->narrow != NULL && r->is_live != NULL && r->is_same != NULL && r->uses != NULL &&
                 r->joined != NULL && r->afters != NULL;
  hr_status status = has_all ? rewrite_all(r) : no_memory();
  hr_free(r->map);
  hr_free(r->narrow);
  hr_free(r->uses);
  hr_free(r->is_live);
  hr_free(r->is_same);
  hr_free(r->joined);
  hr_free(r->afters);
  hr_vector_fini(&r->attentions);
  hr_table_fini(&r->table);
  hr_arena_fini(&r->arena);
  hr_text_fini(&r->key);
  if (status == HR_OK) {
    *out_graph = r->to;
  } else {
    hr_graph_release(r->to);
  }
  return status;
}

static hr_status rewrite_one(const rewrite *like, const inner_map *inner, const hr_graph *graph, bool *out_has_folded,
                             hr_graph **out_graph) {
  rewrite r = *like;
  r.inner = inner, r.from = graph;
  hr_status status = finish(&r, out_graph);
  *out_has_folded |= r.has_folded;
  return status;
}

/* The graph and its inner ones, which stand behind those that they use. */
static hr_status rewrite_each(const rewrite *like, const hr_graph *graph, bool *out_has_folded, hr_graph **out_graph) {
  size_t count = graph->inner.count;
  inner_map inner = {graph, hr_calloc(count + 1, sizeof(hr_graph *))};
  hr_status status = inner.copies != NULL ? HR_OK : no_memory();
  for (size_t i = 0; status == HR_OK && i < count; ++i) {
    status = rewrite_one(like, &inner, graph->inner.data[i], out_has_folded, &inner.copies[i]);
  }
  status = status == HR_OK ? rewrite_one(like, &inner, graph, out_has_folded, out_graph) : status;
  for (size_t i = 0; inner.copies != NULL && i < count; ++i) {
    hr_graph_release(inner.copies[i]);
  }
  hr_free(inner.copies);
  return status;
}

hr_status hr__graph_copy(const hr_graph *graph, const void *const *variables, hr_graph **out_graph) {
  rewrite r = {.from = graph, .keeps_all = true, .variables = variables};
  HR_RETURN_IF_ERROR(hr_graph_status(graph));
  return finish(&r, out_graph);
}

hr_status hr_graph_simplify(const hr_graph *graph, hr_stream *stream, hr_graph **out_graph) {
  bool has_folded = false;
  hr_graph *folded = NULL;
  HR_RETURN_IF_ERROR(hr_graph_status(graph));
  hr_device_info device = {.is_host = false};
  if (stream != NULL) {
    hr_device_describe(hr_stream_device(stream), &device);
  }
  const rewrite folding = {.stream = stream, .joins = true, .crops = device.is_host}, plain = {.joins = true};
  HR_RETURN_IF_ERROR(rewrite_each(&folding, graph, &has_folded, &folded));
  if (!has_folded) {
    *out_graph = folded;
    return HR_OK;
  }
  hr_status status = rewrite_each(&plain, folded, &has_folded, out_graph); /* without constants that were read alone */
  hr_graph_release(folded);
  return status;
}

hr_status hr_graph_round_products(const hr_graph *graph, hr_dtype dtype, hr_graph **out_graph) {
  const rewrite rounding = {.keeps_all = true, .products = dtype, .joins = true};
  bool has_folded = false;
  HR_RETURN_IF_ERROR(hr_graph_status(graph));
  if (dtype != HR_DTYPE_BF16 && dtype != HR_DTYPE_F16) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: factors of products in %s, expected bf16 or f16",
                          hr_dtype_name(dtype));
  }
  return rewrite_each(&rounding, graph, &has_folded, out_graph);
}

hr_status hr_graph_derive(const hr_graph *graph, const hr_graph_change *change, hr_graph **out_graph) {
  rewrite r = {.from = graph, .change = change};
  HR_RETURN_IF_ERROR(hr_graph_status(graph));
  for (int i = 0; change->outputs != NULL && i < change->output_count; ++i) {
    if (change->outputs[i] < 0 || (size_t)change->outputs[i] >= graph->outputs.count) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: output number %d, expected less than %zu",
                            change->outputs[i], graph->outputs.count);
    }
  }
  return finish(&r, out_graph);
}
