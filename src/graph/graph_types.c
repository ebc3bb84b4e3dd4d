/* graph_types.c: the types of values at a few points, and dims as expressions of the symbols.
 *
 * A node is inferred with numbers in place of the symbols. The numbers of a point are products of distinct primes and
 * a factor that reshapes, splits and strides divide: no two symbols are equal, and a dim that depends on symbols is
 * found by comparing its sizes with theirs.
 */
#include "base/text.h"
#include "functional/functions.h"
#include "graph/graph_node.h"

static bool is_prime(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) {
      return false;
    }
  }
  return true;
}

static int64_t next_prime(int64_t n) {
  while (!is_prime(++n)) {
  }
  return n;
}

static const int64_t point_factors[HR__GRAPH_SMALL] = {1, 12, 24, 60};

int64_t hr__graph_unknown(int point, int index) {
  enum { FIRST = 1824 }; /* the primes of HR_GRAPH_SYMBOLS_MAX symbols are smaller */
  return point == HR__GRAPH_SMALL ? 1 : point_factors[point] * (FIRST + index);
}

int64_t hr__graph_point(int point, int symbol) {
  static const int64_t first[HR__GRAPH_SMALL] = {4, 6, 30, 90};
  if (point == HR__GRAPH_SMALL) {
    return 1;
  }
  int64_t prime = first[point];
  for (int i = 0; i <= symbol; ++i) {
    prime = next_prime(prime);
  }
  return point_factors[point] * prime;
}

/* ---- dims as text ---- */

typedef struct samples {
  int count;
  int points[HR__GRAPH_POINTS];
  int64_t sizes[HR__GRAPH_POINTS];
} samples;

/* True if all sizes are scale * factors + offset, for numbers that the first two give. Two samples alone show only
 * s + b, and one shows nothing: a sum of one symbol may be another symbol's prime. */
static bool fit(const samples *s, const int64_t *factors, int64_t *out_scale, int64_t *out_offset) {
  int64_t difference = factors[1] - factors[0], rise = s->sizes[1] - s->sizes[0];
  if (s->count < 2 || difference == 0 || rise == 0 || rise % difference != 0) {
    return false;
  }
  *out_scale = rise / difference;
  *out_offset = s->sizes[0] - *out_scale * factors[0];
  for (int i = 2; i < s->count; ++i) {
    if (s->sizes[i] != *out_scale * factors[i] + *out_offset) {
      return false;
    }
  }
  return s->count > 2 || *out_scale == 1;
}

static const char *keep_text(hr_graph *graph, hr_text *text) {
  const char *copy = text->failed ? NULL : hr_arena_strdup(&graph->arena, hr_text_chars(text));
  hr_text_fini(text);
  return copy;
}

/* "2*n*m+1"; second: NULL, or another factor, or with `is_sum` another term. A symbol alone is not copied. */
static const char *write_dim(hr_graph *graph, int64_t scale, const char *first, const char *second, bool is_sum,
                             int64_t offset) {
  hr_text text = {0};
  if (scale == 1 && second == NULL && offset == 0) {
    return first;
  }
  if (scale != 1) {
    hr_text_printf(&text, "%lld*", (long long)scale);
  }
  hr_text_append(&text, first);
  if (second != NULL) {
    hr_text_printf(&text, "%c%s", is_sum ? '+' : '*', second);
  }
  if (offset != 0) {
    hr_text_printf(&text, "%+lld", (long long)offset);
  }
  return keep_text(graph, &text);
}

/* Tries sums and products of two symbols. Returns NULL if neither is found, and "" without memory. */
static const char *find_pair(hr_graph *graph, const samples *s, int a, int b) {
  int64_t products[HR__GRAPH_POINTS] = {0}, sums[HR__GRAPH_POINTS] = {0}, scale = 0, offset = 0;
  for (int i = 0; i < s->count; ++i) {
    int64_t x = hr__graph_point(s->points[i], a), y = hr__graph_point(s->points[i], b);
    products[i] = x * y, sums[i] = x + y;
  }
  bool is_product = s->count > 2 && fit(s, products, &scale, &offset);
  if (!is_product && (s->count < 3 || a == b || !fit(s, sums, &scale, &offset) || scale != 1)) {
    return NULL;
  }
  const char *text = write_dim(graph, scale, graph->symbols.data[a], graph->symbols.data[b], !is_product, offset);
  return text != NULL ? text : "";
}

static const char *find_one(hr_graph *graph, const samples *s, int symbol) {
  int64_t factors[HR__GRAPH_POINTS] = {0}, scale = 0, offset = 0;
  for (int i = 0; i < s->count; ++i) {
    factors[i] = hr__graph_point(s->points[i], symbol);
  }
  if (!fit(s, factors, &scale, &offset)) {
    return NULL;
  }
  const char *text = write_dim(graph, scale, graph->symbols.data[symbol], NULL, false, offset);
  return text != NULL ? text : "";
}

enum { PAIRS_MAX = 8 }; /* symbols among which pairs are tried */

static const char *find_text(hr_graph *graph, const samples *s) {
  int count = (int)graph->symbols.count, few = count < PAIRS_MAX ? count : PAIRS_MAX;
  for (int a = 0; a < count; ++a) {
    const char *text = find_one(graph, s, a);
    if (text != NULL) {
      return text;
    }
  }
  for (int a = 0; a < few; ++a) {
    for (int b = a; b < few; ++b) {
      const char *text = find_pair(graph, s, a, b);
      if (text != NULL) {
        return text;
      }
    }
  }
  return "?";
}

const char *hr__graph_dim_text(hr_graph *graph, const int64_t *sizes, const bool *is_set) {
  samples s = {0};
  for (int p = 0; p < HR__GRAPH_POINTS; ++p) {
    if (is_set[p] && (p != HR__GRAPH_SMALL || s.count > 1)) {
      s.points[s.count] = p, s.sizes[s.count++] = sizes[p];
    }
  }
  const char *text = find_text(graph, &s);
  return *text != '\0' ? text : NULL;
}

/* Sets the symbols of a value that varies; false: no memory. */
static bool describe(hr_graph *graph, hr__graph_value *value) {
  const hr__fact *facts = value->facts;
  int rank = 0, count = 0;
  bool is_set[HR__GRAPH_POINTS];
  for (int p = 0; p < HR__GRAPH_SMALL; ++p) {
    const hr__fact *fact = &facts[p * value->stride];
    is_set[p] = fact->is_set, count += fact->is_set;
    rank = fact->is_set ? fact->rank : rank;
  }
  const hr__fact *small = &facts[HR__GRAPH_SMALL * value->stride];
  is_set[HR__GRAPH_SMALL] = small->is_set && small->rank == rank; /* functions such as squeeze drop dims of 1 */
  const char **texts = HR_ARENA_ARRAY(&graph->arena, const char *, (size_t)rank + 1);
  for (int d = 0; texts != NULL && d < rank; ++d) {
    int64_t sizes[HR__GRAPH_POINTS] = {0}, first = -1;
    bool is_same = count > 1;
    for (int p = 0; p < HR__GRAPH_POINTS; ++p) {
      sizes[p] = is_set[p] ? facts[p * value->stride].dims[d] : 0;
      first = first < 0 && is_set[p] ? sizes[p] : first;
      is_same &= !is_set[p] || sizes[p] == first;
    }
    texts[d] = is_same ? NULL : hr__graph_dim_text(graph, sizes, is_set);
    if (!is_same && texts[d] == NULL) {
      return false;
    }
  }
  value->texts = texts;
  return texts != NULL;
}

/* The symbols of an input, which are what its type names. */
static bool name_symbols(hr_graph *graph, const hr__node *input, hr__graph_value *value) {
  const char **texts = HR_ARENA_ARRAY(&graph->arena, const char *, (size_t)input->rank + 1);
  for (int d = 0; texts != NULL && d < input->rank; ++d) {
    texts[d] = input->dims[d] < 0 ? graph->symbols.data[-1 - input->dims[d]] : NULL;
  }
  value->texts = texts;
  return texts != NULL;
}

/* ---- inference ---- */

typedef struct variance {
  const hr_graph *graph;
  bool varies;
} variance;

static void note_variance(void *arg, const hr_value *value) {
  variance *v = arg;
  v->varies |= hr__graph_value_of(v->graph, *value)->varies;
}

static bool node_varies(const hr_graph *graph, const hr__node *node) {
  bool is_unknown = node->kind == HR__NODE_READ || hr__node_is_control(node) || hr__node_is_unknown(node);
  variance v = {graph, node->kind == HR__NODE_SYMBOL || is_unknown};
  for (int d = 0; node->kind == HR__NODE_INPUT && d < node->rank; ++d) {
    v.varies |= node->dims[d] < 0;
  }
  hr__node_each_input(node, note_variance, &v);
  return v.varies;
}

/* "x f32[n,3], y f32[4]" of the inputs. */
static void write_inputs(const hr_graph *graph, const hr__node *node, hr_text *text) {
  for (int i = 0; i < node->input_count; ++i) {
    hr_type type;
    char label[HR__GRAPH_NAME_TEXT];
    if (node->inputs[i] == 0) {
      continue;
    }
    hr_status_ignore(hr_graph_type(graph, node->inputs[i], &type));
    hr_text_printf(text, "%s%s %s[", text->length > 0 ? ", " : "", hr__graph_label(graph, node->inputs[i], label),
                   hr_dtype_name(type.dtype));
    for (int d = 0; d < type.rank; ++d) {
      hr_text_append(text, d > 0 ? "," : "");
      type.symbols[d] != NULL ? hr_text_append(text, type.symbols[d]) : hr_text_int(text, type.dims[d]);
    }
    hr_text_char(text, ']');
  }
}

static hr_status explain(const hr_graph *graph, const hr__node *node, hr_status failure) {
  hr_text text = {0};
  if (hr_status_code_of(failure) == HR_STATUS_RESOURCE_EXHAUSTED) {
    return failure;
  }
  write_inputs(graph, node, &text);
  if (text.length > 0 && !text.failed) {
    failure = hr_status_annotate(failure, "of %.400s", hr_text_chars(&text));
  }
  hr_text_fini(&text);
  return failure;
}

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for types");
}

/* Descriptions and functions of a value assume one dtype and one number of dims. */
static hr_status check_points(const hr__node *node, int points, const hr__fact *facts) {
  for (int i = 0; i < node->result_count; ++i) {
    const hr__fact *first = NULL;
    for (int p = 0; p < points; ++p) {
      const hr__fact *fact = &facts[p * node->result_count + i];
      if (!fact->is_set) {
        continue;
      }
      first = first != NULL ? first : fact;
      if (fact->rank != first->rank || fact->dtype != first->dtype) {
        bool is_rank = fact->rank != first->rank;
        return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: the %s of result %d depends on symbols",
                              node->kind == HR__NODE_CALL ? hr_functional_name(node->function) : "graph",
                              is_rank ? "rank" : "dtype", i);
      }
    }
  }
  return HR_OK;
}

static hr__frame frame_at(hr_graph *graph, int point) {
  return (hr__frame){.graph = graph,
                     .point = point,
                     .arena = &graph->arena,
                     .scratch = &graph->scratch,
                     .host_bytes = &graph->host_bytes,
                     .is_typing = true};
}

hr_status hr__graph_infer(hr_graph *graph, const hr__node *node, hr__graph_value *results) {
  bool varies = node_varies(graph, node), is_right = false;
  int points = varies ? HR__GRAPH_POINTS : 1, count = node->result_count;
  hr__fact *facts = HR_ARENA_ARRAY(&graph->arena, hr__fact, (size_t)count * (size_t)points);
  hr_status failure = facts != NULL ? HR_OK : no_memory();
  for (int p = 0; p < points && facts != NULL; ++p) {
    const hr__frame frame = frame_at(graph, p);
    hr_status status = hr__frame_infer(&frame, node, facts + p * count);
    is_right |= status == HR_OK && p != HR__GRAPH_SMALL;
    if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
      hr_status_free(failure);
      return status;
    }
    if (p == HR__GRAPH_SMALL) {
      hr_status_free(status);
    } else if (status != HR_OK) {
      hr_status_free(failure);
      failure = status;
    }
  }
  if (!is_right) {
    return explain(graph, node, failure);
  }
  hr_status_free(failure);
  HR_RETURN_IF_ERROR(check_points(node, varies ? HR__GRAPH_SMALL : 1, facts));
  for (int i = 0; i < count; ++i) {
    results[i].varies = varies, results[i].facts = facts + i, results[i].stride = count;
    bool is_input = node->kind == HR__NODE_INPUT;
    if (varies && !(is_input ? name_symbols(graph, node, &results[i]) : describe(graph, &results[i]))) {
      return no_memory();
    }
  }
  return HR_OK;
}

/* ---- facts of copies ---- */

static int64_t elements_of(const hr__fact *fact) {
  int64_t count = 1;
  for (int d = 0; d < fact->rank; ++d) {
    count *= fact->dims[d];
  }
  return count;
}

static bool copy_fact(hr_graph *graph, const hr__fact *fact, hr__fact *out) {
  *out = *fact;
  if (!fact->is_set) {
    return true;
  }
  out->dims = hr_arena_dup_words(&graph->arena, fact->dims, fact->rank);
  if (fact->numbers != NULL) {
    size_t bytes = (size_t)elements_of(fact) * sizeof *fact->numbers;
    graph->host_bytes += bytes > HR__GRAPH_HOST_FEW * sizeof *fact->numbers ? (int64_t)bytes : 0;
    out->numbers = hr_arena_dup(&graph->arena, fact->numbers, bytes);
  }
  return out->dims != NULL && (fact->numbers == NULL || out->numbers != NULL);
}

static const char *copy_text(hr_graph *graph, const hr_graph *from, const char *text) {
  for (size_t s = 0; s < from->symbols.count; ++s) {
    if (from->symbols.data[s] == text) {
      return graph->symbols.data[s];
    }
  }
  return hr_arena_strdup(&graph->arena, text);
}

static bool copy_texts(hr_graph *graph, const hr_graph *from, const hr__graph_value *value, hr__graph_value *out) {
  int p = 0;
  while (!value->facts[p * value->stride].is_set) {
    ++p;
  }
  int rank = value->facts[p * value->stride].rank;
  const char **texts = HR_ARENA_ARRAY(&graph->arena, const char *, (size_t)rank + 1);
  bool is_copied = texts != NULL;
  for (int d = 0; is_copied && d < rank; ++d) {
    texts[d] = value->texts[d] != NULL ? copy_text(graph, from, value->texts[d]) : NULL;
    is_copied = value->texts[d] == NULL || texts[d] != NULL;
  }
  out->texts = texts;
  return is_copied;
}

hr_status hr__graph_copy_facts(hr_graph *graph, const hr_graph *from, const hr__node *node, hr__graph_value *results) {
  for (int i = 0; i < node->result_count; ++i) {
    const hr__graph_value *value = &from->values.data[node->first + i];
    int points = value->varies ? HR__GRAPH_POINTS : 1;
    hr__fact *facts = hr_arena_alloc(&graph->arena, (size_t)points * sizeof *facts);
    bool is_copied = facts != NULL;
    for (int p = 0; is_copied && p < points; ++p) {
      is_copied = copy_fact(graph, &value->facts[p * value->stride], &facts[p]);
    }
    results[i].varies = value->varies, results[i].facts = facts, results[i].stride = 1;
    if (!is_copied || (value->varies && !copy_texts(graph, from, value, &results[i]))) {
      return no_memory();
    }
  }
  return HR_OK;
}

/* ---- numbers of results ---- */

/* The number at one point. */
static hr_status count_at(hr_graph *graph, const hr__node *node, int point, int *out_count) {
  const hr__frame frame = frame_at(graph, point);
  hr_attribute *attributes = NULL;
  HR_RETURN_IF_ERROR(hr__frame_attributes(&frame, node, &attributes));
  hr_tensor *types = HR_ARENA_ARRAY(&graph->scratch, hr_tensor, (size_t)node->input_count + 1);
  const hr_tensor **inputs = HR_ARENA_ARRAY(&graph->scratch, const hr_tensor *, (size_t)node->input_count + 1);
  if (types == NULL || inputs == NULL) {
    return no_memory();
  }
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] != 0) {
      hr__frame_type(&frame, node->inputs[i], &types[i]);
      inputs[i] = &types[i];
    }
  }
  return hr_functional_result_count(node->function, node->input_count, inputs, node->attribute_count, attributes,
                                    out_count);
}

hr_status hr__graph_count_results(hr_graph *graph, const hr__node *node, int *out_count) {
  const hr__function_row *row = hr__function_row_of(node->function);
  if (row->results_per == HR__PER_CALL) {
    *out_count = row->result_count > 0 ? row->result_count : 1;
    return HR_OK;
  }
  int found = -1;
  hr_status failure = HR_OK;
  for (int p = 0; p < HR__GRAPH_SMALL; ++p) {
    int count = 0;
    hr_status status = count_at(graph, node, p, &count);
    hr_arena_reset(&graph->scratch);
    if (status == HR_OK && found >= 0 && count != found) {
      hr_status_free(failure);
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: the number of results depends on symbols", row->name);
    }
    found = status == HR_OK ? count : found;
    if (status != HR_OK) {
      hr_status_free(failure);
      failure = status;
    }
  }
  if (found < 0) {
    return explain(graph, node, failure);
  }
  hr_status_free(failure);
  *out_count = found;
  return HR_OK;
}
