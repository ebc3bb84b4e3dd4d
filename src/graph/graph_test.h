/* graph_test.h: graphs for tests. */
#ifndef HEADRACE_GRAPH_TEST_H_
#define HEADRACE_GRAPH_TEST_H_

#include "functional/functional_test.h"
#include "headrace/graph.h"

static inline hr_graph *new_graph(void) {
  hr_graph *graph = NULL;
  HR_ASSERT_OK(hr_graph_create(&graph));
  return graph;
}

/* A type of f32 whose dims are words: sizes or symbols, as in "n 3". */
static inline hr_type type_of(hr_dtype dtype, const char *dims) {
  static char words[8][256];
  static int next;
  char *text = words[next++ % 8];
  hr_type type = {.dtype = dtype};
  snprintf(text, sizeof words[0], "%s", dims);
  for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "), ++type.rank) {
    bool is_size = word[0] >= '0' && word[0] <= '9';
    type.dims[type.rank] = is_size ? atoll(word) : -1;
    type.symbols[type.rank] = is_size ? NULL : word;
  }
  return type;
}

static inline hr_value input_of(hr_graph *graph, const char *name, hr_dtype dtype, const char *dims) {
  hr_type type = type_of(dtype, dims);
  return hr_graph_input(graph, name, &type);
}

static inline hr_value constant_of(hr_graph *graph, hr_dtype dtype, const char *dims, const void *elements) {
  hr_type type = type_of(dtype, dims);
  return hr_graph_constant(graph, &type, elements);
}

#define VALUES(...)                                                                       \
  (int)(sizeof((const hr_value[]){__VA_ARGS__}) / sizeof(hr_value)), (const hr_value[]) { \
    __VA_ARGS__                                                                           \
  }
#define ATTRIBUTES_OF(...)                                                               \
  (int)(sizeof((const hr_graph_attribute[]){__VA_ARGS__}) / sizeof(hr_graph_attribute)), \
      (const hr_graph_attribute[]) {                                                     \
    __VA_ARGS__                                                                          \
  }
#define ADD(graph, NAME, ...) hr_graph_add(graph, HR_FUNCTIONAL_##NAME, __VA_ARGS__)

/* "f32[n,2*m]" */
static inline void expect_graph_type(const hr_graph *graph, hr_value value, const char *expected) {
  hr_type type;
  char text[512];
  HR_ASSERT_OK(hr_graph_status(graph));
  HR_ASSERT_OK(hr_graph_type(graph, value, &type));
  int length = snprintf(text, sizeof text, "%s[", hr_dtype_name(type.dtype));
  for (int d = 0; d < type.rank; ++d) {
    length += type.symbols[d] != NULL
                  ? snprintf(text + length, sizeof text - (size_t)length, "%s%s", d > 0 ? "," : "", type.symbols[d])
                  : snprintf(text + length, sizeof text - (size_t)length, "%s%lld", d > 0 ? "," : "",
                             (long long)type.dims[d]);
  }
  snprintf(text + length, sizeof text - (size_t)length, "]");
  HR_ASSERT_STR_EQ(text, expected);
}

typedef struct written {
  char *text;
  size_t length;
} written;

static inline hr_status write_text(void *arg, const void *bytes, size_t count) {
  written *w = arg;
  w->text = realloc(w->text, w->length + count + 1);
  memcpy(w->text + w->length, bytes, count);
  w->length += count;
  w->text[w->length] = '\0';
  return HR_OK;
}

static inline hr_graph *graph_of(const char *text) {
  hr_graph *graph = NULL;
  HR_ASSERT_OK(hr_graph_parse(text, strlen(text), NULL, &graph));
  return graph;
}

/* The caller frees the text. */
static inline char *print_of(const hr_graph *graph) {
  written w = {0};
  HR_ASSERT_OK(hr_graph_print(graph, write_text, &w));
  return w.text;
}

static inline void expect_text(const hr_graph *graph, const char *expected) {
  char *text = print_of(graph);
  HR_ASSERT_STR_EQ(text, expected);
  free(text);
}

/* Reads the graph's own text with its own data; it prints as before. */
static inline hr_graph *read_back(const hr_graph *graph) {
  char *text = print_of(graph);
  hr_graph_elements data[16];
  const hr_graph_source source = {.data_count = hr_graph_data_count(graph), .data = data};
  HR_ASSERT(source.data_count <= 16);
  for (int i = 0; i < source.data_count; ++i) {
    data[i] = hr_graph_data(graph, i);
  }
  hr_graph *read = NULL;
  HR_ASSERT_OK(hr_graph_parse(text, strlen(text), &source, &read));
  expect_text(read, text);
  free(text);
  return read;
}

#endif
