/* graphdef_test.c: graphs with clusters and without an attribute, and 140,000 damaged ones (HEADRACE_TEST_FILES: of
 * each kind). */
#include "../csrc/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "../csrc/body.h"
#include "fake_graph.h"
#include "file_limits.h"
#include "hr_test.h"

/* A cluster, a node that stays a kernel, a second cluster, which updates a variable, one in a loop and one behind it.
 */
static const node_row graph_rows[] = {{"a", "_Arg", "", "T"},
                                      {"v", "_Arg", "", "T"},
                                      {"size", "Const", "", "dtype"},
                                      {"one", "Const", "", "dtype"},
                                      {"shaped", "Reshape", "a size", "T"},
                                      {"sum", "AddV2", "shaped one", "T"},
                                      {"twice", "Mul", "sum sum", "T"},
                                      {"kernel", "Unknown", "twice:0 one", "T"},
                                      {"read", "ReadVariableOp", "v ^kernel", "dtype"},
                                      {"more", "AddV2", "read kernel", "T"},
                                      {"most", "AddV2", "more sum", "T"},
                                      {"assign", "AssignVariableOp", "v most ^read", "dtype"},
                                      {"end", "NoOp", "^assign", "T"},
                                      {"r", "_Retval", "most ^end", "T"},
                                      {"enter", "Enter", "most", "T"},
                                      {"merge", "Merge", "enter next", "T"},
                                      {"condition", "LoopCond", "merge", "T"},
                                      {"switch", "Switch", "merge condition", "T"},
                                      {"body", "AddV2", "switch:1 switch:1", "T"},
                                      {"square", "Mul", "body body", "T"},
                                      {"next", "NextIteration", "square", "T"},
                                      {"exit", "Exit", "switch", "T"},
                                      {"behind", "Mul", "exit exit", "T"},
                                      {"both", "AddV2", "behind most", "T"},
                                      {"s", "_Retval", "both", "T"}};

/* A loop that counts on the host, and reads a variable. */
static const node_row loop_rows[] = {{"a", "_Arg", "", "T"},
                                     {"v", "_Arg", "", "T"},
                                     {"izero", "Const", "", "dtype"},
                                     {"before", "Mul", "a a", "T"},
                                     {"ienter", "Enter", "izero", "T"},
                                     {"enter", "Enter", "before", "T"},
                                     {"handle", "Enter", "v", "T"},
                                     {"imerge", "Merge", "ienter inext", "T"},
                                     {"merge", "Merge", "enter next", "T"},
                                     {"ilimit", "Const", "^imerge", "dtype"},
                                     {"iless", "Less", "imerge ilimit", "T"},
                                     {"condition", "LoopCond", "iless", "T"},
                                     {"iswitch", "Switch", "imerge condition", "T"},
                                     {"switch", "Switch", "merge condition", "T"},
                                     {"ione", "Const", "^iswitch", "dtype"},
                                     {"isum", "AddV2", "iswitch:1 ione", "T"},
                                     {"inext", "NextIteration", "isum", "T"},
                                     {"read", "ReadVariableOp", "handle ^iswitch", "dtype"},
                                     {"body", "AddV2", "switch:1 read", "T"},
                                     {"next", "NextIteration", "body", "T"},
                                     {"exit", "Exit", "switch", "T"},
                                     {"behind", "Mul", "exit exit", "T"},
                                     {"r", "_Retval", "behind", "T"}};

static hr_text make_graph(void) {
  return make(ROWS(graph_rows));
}

static hr_text make_loop(void) {
  return make(ROWS(loop_rows));
}

static hr_status cluster_graph(hr__span graph, hr_text *out) {
  static const hr__span preserved = {(const uint8_t *)"assign", 6};
  const tf_buffer buffer = {.data = graph.data, .size = graph.size};
  fill_table();
  return htf_make_clusters(&buffer, 1, &preserved, out);
}

static int find(const htf_graph *graph, const char *name) {
  return htf_graph_find(graph, (hr__span){(const uint8_t *)name, strlen(name)});
}

static int count_clusters(const htf_graph *graph) {
  int count = 0;
  for (int i = 0; i < graph->count; ++i) {
    count += hr__span_is(graph->nodes[i].op, HTF_CLUSTER);
  }
  return count;
}

HR_TEST(nodes_become_clusters) {
  hr_text text = make_graph(), out = {0};
  HR_ASSERT_OK(cluster_graph(span_of(&text), &out));
  htf_graph graph;
  HR_ASSERT_OK(htf_graph_read(span_of(&out), &graph));
  HR_ASSERT_EQ(count_clusters(&graph), 4);
  HR_ASSERT(find(&graph, "sum") < 0 && find(&graph, "size") < 0 && find(&graph, "read") < 0);
  int kernel = find(&graph, "kernel"), result = find(&graph, "r"), assign = find(&graph, "assign");
  HR_ASSERT(kernel >= 0 && result >= 0 && assign >= 0 && find(&graph, "one") >= 0);
  int first = graph.nodes[kernel].inputs[0].node, second = graph.nodes[result].inputs[0].node;
  HR_ASSERT(first != second && hr__span_is(graph.nodes[first].op, HTF_CLUSTER));
  HR_ASSERT(hr__span_is(graph.nodes[assign].op, "NoOp") && graph.nodes[assign].inputs[0].node == second);
  HR_ASSERT_EQ(graph.nodes[first].data_count, 1);
  HR_ASSERT_EQ(graph.nodes[second].data_count, 3);
  htf_graph_fini(&graph);
  hr_text again = {0};
  HR_ASSERT_OK(cluster_graph(span_of(&out), &again));
  HR_ASSERT_OK(htf_graph_read(span_of(&again), &graph));
  HR_ASSERT_EQ(count_clusters(&graph), 4);
  htf_graph_fini(&graph);
  hr_text_fini(&again);
  hr_text_fini(&text);
  hr_text_fini(&out);
}

HR_TEST(bodies_are_read) {
  hr_text text = make_graph(), out = {0};
  HR_ASSERT_OK(cluster_graph(span_of(&text), &out));
  htf_graph graph;
  HR_ASSERT_OK(htf_graph_read(span_of(&out), &graph));
  int node = graph.nodes[find(&graph, "r")].inputs[0].node;
  hr__span value;
  hr__field body_text;
  htf_body body;
  HR_ASSERT(htf_find_attribute(graph.nodes[node].message, "body", &value) && htf_find_field(value, 2, &body_text));
  HR_ASSERT_OK(htf_body_read(body_text.bytes, &body));
  HR_ASSERT_EQ(body.input_count, 2);
  HR_ASSERT_EQ(body.variable_count, 1);
  HR_ASSERT_EQ(body.node_count, 5);
  HR_ASSERT_EQ(body.result_count, 1);
  htf_body_fini(&body);
  unsigned state = 1;
  for (int run = 0; run < 20000; ++run) {
    size_t size = 1 + (size_t)run % body_text.bytes.size;
    uint8_t *copy = malloc(size);
    memcpy(copy, body_text.bytes.data, size);
    for (int i = 0; i < 3; ++i) {
      state = state * 1664525u + 1013904223u;
      copy[(state >> 8) % size] ^= (uint8_t)(1u << (state >> 29));
    }
    hr_status status = htf_body_read((hr__span){copy, size}, &body);
    if (status == HR_OK) {
      htf_body_fini(&body);
    }
    hr_status_free(status);
    free(copy);
  }
  htf_graph_fini(&graph);
  hr_text_fini(&text);
  hr_text_fini(&out);
}

HR_TEST(a_loop_is_in_a_cluster) {
  hr_text text = make_loop(), out = {0};
  HR_ASSERT_OK(cluster_graph(span_of(&text), &out));
  htf_graph graph;
  HR_ASSERT_OK(htf_graph_read(span_of(&out), &graph));
  HR_ASSERT_EQ(count_clusters(&graph), 1);
  HR_ASSERT(find(&graph, "merge") < 0 && find(&graph, "handle") < 0);
  int node = graph.nodes[find(&graph, "r")].inputs[0].node, read = find(&graph, "read");
  HR_ASSERT(read >= 0 && graph.nodes[read].inputs[0].node == find(&graph, "v"));
  hr__span value;
  hr__field body_text;
  htf_body body;
  HR_ASSERT(htf_find_attribute(graph.nodes[node].message, "body", &value) && htf_find_field(value, 2, &body_text));
  HR_ASSERT_OK(htf_body_read(body_text.bytes, &body));
  HR_ASSERT_EQ(body.loop_count, 1);
  HR_ASSERT_EQ(body.loops[0].count, 13);
  HR_ASSERT_EQ(body.node_count, 16);
  htf_body_fini(&body);
  htf_graph_fini(&graph);
  hr_text_fini(&text);
  hr_text_fini(&out);
}

HR_TEST(attribute_of_nodes_and_functions_is_left_out) {
  hr_text text = {0}, out = {0};
  append_node(&text, "a", "AddV2", "a a", "T");
  size_t library = hr_protobuf_begin(&text, HTF_GRAPH_LIBRARY), function = hr_protobuf_begin(&text, 1);
  size_t node = hr_protobuf_begin(&text, 3);
  append_number(&text, "_XlaMustCompile", 5, 1);
  hr_protobuf_end(&text, node);
  append_number(&text, "_XlaMustCompile", 5, 1);
  append_number(&text, "kept", 5, 1);
  hr_protobuf_end(&text, function);
  hr_protobuf_end(&text, library);
  HR_ASSERT_OK(htf_copy_without(span_of(&text), 0, "_XlaMustCompile", &out));
  HR_ASSERT(memmem(out.data, out.length, "_XlaMustCompile", 15) == NULL);
  HR_ASSERT(memmem(out.data, out.length, "kept", 4) != NULL && memmem(out.data, out.length, "AddV2", 5) != NULL);
  hr_text same = {0};
  HR_ASSERT_OK(htf_copy_without(span_of(&text), 0, "_Xla", &same));
  HR_ASSERT_EQ(same.length, text.length);
  HR_ASSERT_BYTES_EQ(same.data, text.data, text.length);
  hr_text_fini(&same);
  hr_text_fini(&text);
  hr_text_fini(&out);
}

HR_TEST(a_merge_may_begin_with_its_next_iteration) {
  hr_text text = {0}, out = {0};
  append_node(&text, "a", "_Arg", "", "T");
  append_node(&text, "enter", "Enter", "a", "T");
  append_node(&text, "merge", "Merge", "next enter", "T");
  append_node(&text, "sum", "AddV2", "merge merge", "T");
  append_node(&text, "next", "NextIteration", "sum", "T");
  append_node(&text, "exit", "Exit", "merge", "T");
  append_node(&text, "r", "_Retval", "exit", "T");
  HR_ASSERT_OK(cluster_graph(span_of(&text), &out));
  hr_text_fini(&text);
  hr_text_fini(&out);
}

HR_TEST(damaged_graphs_are_refused) {
  hr_text text = make_graph(), out = {0};
  hr__span graph = span_of(&text);
  hr_text port = make_graph();
  append_node(&port, "far", "AddV2", "both:1000000 both", "T");
  append_node(&port, "t", "_Retval", "far", "T");
  HR_ASSERT_STATUS(cluster_graph(span_of(&port), &out), HR_STATUS_INVALID_ARGUMENT);
  hr_text_fini(&port);
  HR_ASSERT_STATUS(cluster_graph((hr__span){graph.data, graph.size - 1}, &out), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_STATUS(cluster_graph((hr__span){(const uint8_t *)"\x0a\x05\x0a", 3}, &out), HR_STATUS_INVALID_ARGUMENT);
  hr_text cycle = {0};
  append_node(&cycle, "a", "AddV2", "b b", "T");
  append_node(&cycle, "b", "AddV2", "a a", "T");
  HR_ASSERT_STATUS(cluster_graph(span_of(&cycle), &out), HR_STATUS_INVALID_ARGUMENT);
  hr_text unknown = {0};
  append_node(&unknown, "a", "AddV2", "nobody nobody", "T");
  HR_ASSERT_STATUS(cluster_graph(span_of(&unknown), &out), HR_STATUS_INVALID_ARGUMENT);
  hr_text_fini(&cycle);
  hr_text_fini(&unknown);
  hr_text_fini(&text);
  hr_text_fini(&out);
}

static unsigned draw(unsigned *state, size_t below) {
  *state = *state * 1664525u + 1013904223u;
  return (unsigned)((*state >> 8) % below);
}

/* Adds a node with another operation, other inputs or one more, twice, or not at all. */
static void append_changed(hr_text *text, const node_row *rows, size_t count, node_row row, unsigned *state) {
  const node_row other = rows[draw(state, count)];
  char inputs[128];
  switch (draw(state, 6)) {
    case 0:
      row.op = other.op, row.type = other.type;
      break;
    case 1:
      row.inputs = other.inputs;
      break;
    case 2:
      snprintf(inputs, sizeof inputs, "%s %s%s%s", row.inputs, draw(state, 3) == 0 ? "^" : "", other.name,
               draw(state, 4) == 0 ? ":1" : "");
      row.inputs = inputs;
      break;
    case 3:
      snprintf(inputs, sizeof inputs, "%s", other.name);
      row.inputs = inputs;
      break;
    case 4:
      append_node(text, row.name, row.op, row.inputs, row.type);
      row.name = other.name;
      break;
    default:
      return;
  }
  append_node(text, row.name, row.op, row.inputs, row.type);
}

/* Reads what was made as TensorFlow and the kernels of clusters do, which may fail. */
static void read_clusters(hr__span bytes) {
  htf_graph graph;
  hr_status status = htf_graph_read(bytes, &graph);
  for (int i = 0; status == HR_OK && i < graph.count; ++i) {
    hr__span value;
    hr__field text;
    htf_body body;
    if (hr__span_is(graph.nodes[i].op, HTF_CLUSTER)) {
      HR_ASSERT(htf_find_attribute(graph.nodes[i].message, "body", &value) && htf_find_field(value, 2, &text));
      hr_status read = htf_body_read(text.bytes, &body);
      if (read == HR_OK) {
        htf_body_fini(&body);
      }
      hr_status_free(read);
    }
  }
  if (status == HR_OK) {
    htf_graph_fini(&graph);
  }
  hr_status_free(status);
}

/* ---- changed graphs, in turn one with and one without a loop ---- */

/* HEADRACE_TEST_FILES sets their number, HEADRACE_TEST_SEED the first of them. */
static int64_t first_seed(void) {
  const char *seed = getenv("HEADRACE_TEST_SEED");
  return seed != NULL ? atoll(seed) : 1;
}
static int64_t count_files(long usual) {
  const char *files = getenv("HEADRACE_TEST_FILES");
  return files != NULL ? atoll(files) : hr_test_count(usual);
}

static unsigned state_of(int64_t seed) {
  return (unsigned)((uint64_t)seed * 0x9e3779b97f4a7c15u >> 32);
}

/* Appends a graph whose bytes are right, and whose nodes need not be. */
static void append_nodes(hr_text *text, const node_row *rows, size_t count, unsigned state) {
  unsigned changes = 1 + draw(&state, 4);
  for (size_t i = 0; i < count; ++i) {
    if (draw(&state, count) < changes) {
      append_changed(text, rows, count, rows[i], &state);
    } else {
      append_node(text, rows[i].name, rows[i].op, rows[i].inputs, rows[i].type);
    }
  }
}

/* True if its clusters are found. */
static bool try_nodes(int64_t seed) {
  hr_text text = {0}, out = {0};
  if (seed % 2 == 0) {
    append_nodes(&text, ROWS(graph_rows), state_of(seed));
  } else {
    append_nodes(&text, ROWS(loop_rows), state_of(seed));
  }
  file_limits_start(seed);
  hr_status status = cluster_graph(span_of(&text), &out);
  bool is_made = status == HR_OK;
  if (is_made) {
    read_clusters(span_of(&out));
  }
  hr_status_free(status);
  file_limits_check(text.length);
  hr_text_fini(&out);
  hr_text_fini(&text);
  return is_made;
}

HR_TEST(mutated_nodes_are_safe) {
  int64_t first = first_seed(), count = count_files(40000), made = 0;
  file_limits_begin();
  for (int64_t i = 0; i < count; ++i) {
    made += try_nodes(first + i);
  }
  file_limits_end();
  HR_ASSERT(made > 0);
}

/* A copy with up to three other bits, or the begin of one, in memory of its own size: sanitizers see a byte behind it.
 */
static bool try_bits(const hr_text *text, int64_t seed) {
  unsigned state = state_of(seed);
  size_t size = draw(&state, 4) == 0 ? 1 + draw(&state, text->length) : text->length;
  uint8_t *copy = malloc(size);
  HR_ASSERT(copy != NULL);
  memcpy(copy, text->data, size);
  for (unsigned i = 0, changes = 1 + draw(&state, 3); i < changes; ++i) {
    unsigned at = draw(&state, size);
    copy[at] ^= (uint8_t)(1u << draw(&state, 8));
  }
  hr_text out = {0};
  file_limits_start(seed);
  hr_status status = cluster_graph((hr__span){copy, size}, &out);
  bool is_made = status == HR_OK;
  if (is_made) {
    read_clusters(span_of(&out));
  }
  hr_status_free(status);
  file_limits_check(size);
  hr_text_fini(&out);
  free(copy);
  return is_made;
}

HR_TEST(mutated_graphs_are_safe) {
  hr_text graphs[2] = {make_graph(), make_loop()};
  int64_t first = first_seed(), count = count_files(100000), made = 0;
  file_limits_begin();
  for (int64_t i = 0; i < count; ++i) {
    made += try_bits(&graphs[i % 2], first + i);
  }
  file_limits_end();
  HR_ASSERT(made > 0 && made < count);
  hr_text_fini(&graphs[0]);
  hr_text_fini(&graphs[1]);
}
