/* graphdef_test.c: graphs without an attribute, and a hundred thousand damaged ones. */
#include "../csrc/graphdef.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "hr_test.h"

/* A node `a` of op Add with the attributes `_XlaMustCompile` and `T`, and a function with a node `b` and the former. */
static const char graph[] = "\x0a\x2a"
                            "\x0a\x01"
                            "a"
                            "\x12\x03"
                            "Add"
                            "\x2a\x15\x0a\x0f_XlaMustCompile\x12\x02\x28\x01"
                            "\x2a\x09\x0a\x01T\x12\x04\x30\x01\x50\x07"
                            "\x12\x23"
                            "\x0a\x21"
                            "\x1a\x05\x0a\x01"
                            "b"
                            "\x12\x00"
                            "\x2a\x15\x0a\x0f_XlaMustCompile\x12\x02\x28\x01"
                            "\x22\x01\x07";
enum { SIZE = sizeof graph - 1 };

static const char without[] = "\x0a\x13"
                              "\x0a\x01"
                              "a"
                              "\x12\x03"
                              "Add"
                              "\x2a\x09\x0a\x01T\x12\x04\x30\x01\x50\x07"
                              "\x12\x0c"
                              "\x0a\x0a"
                              "\x1a\x05\x0a\x01"
                              "b"
                              "\x12\x00"
                              "\x22\x01\x07";

HR_TEST(attribute_of_nodes_and_functions_is_left_out) {
  uint8_t out[SIZE];
  size_t size = 0;
  HR_ASSERT_OK(htf_graph_without((const uint8_t *)graph, SIZE, "_XlaMustCompile", out, &size));
  HR_ASSERT_EQ(size, sizeof without - 1);
  HR_ASSERT_BYTES_EQ(out, without, sizeof without - 1);
}

HR_TEST(other_graphs_stay_as_they_are) {
  uint8_t out[SIZE];
  size_t size = 0;
  HR_ASSERT_OK(htf_graph_without((const uint8_t *)graph, SIZE, "_Xla", out, &size));
  HR_ASSERT_EQ(size, SIZE);
  HR_ASSERT_BYTES_EQ(out, graph, SIZE);
  HR_ASSERT_OK(htf_graph_without((const uint8_t *)graph, 0, "_Xla", out, &size));
  HR_ASSERT_EQ(size, 0);
}

HR_TEST(lengths_keep_their_number_of_bytes) {
  static const char padded[] = "\x0a\x97\x80\x00"
                               "\x2a\x15\x0a\x0f_XlaMustCompile\x12\x02\x28\x01";
  uint8_t out[sizeof padded];
  size_t size = 0;
  HR_ASSERT_OK(htf_graph_without((const uint8_t *)padded, sizeof padded - 1, "_XlaMustCompile", out, &size));
  HR_ASSERT_EQ(size, 4);
  HR_ASSERT_BYTES_EQ(out, "\x0a\x80\x80\x00", 4);
}

HR_TEST(damaged_graphs_are_refused) {
  uint8_t out[SIZE];
  size_t size = 0;
  HR_ASSERT_STATUS(htf_graph_without((const uint8_t *)graph, SIZE - 1, "_XlaMustCompile", out, &size),
                   HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_STATUS(htf_graph_without((const uint8_t *)"\x0a\x05\x0a", 3, "_XlaMustCompile", out, &size),
                   HR_STATUS_INVALID_ARGUMENT);
}

/* Copies are in memory of their own size, so that sanitizers see a byte behind them. */
HR_TEST(mutated_graphs_are_safe) {
  unsigned state = 1;
  for (int run = 0; run < 100000; ++run) {
    size_t size = 1 + (size_t)run % SIZE, kept = 0;
    uint8_t *copy = malloc(size), *out = malloc(size);
    HR_ASSERT(copy != NULL && out != NULL);
    memcpy(copy, graph, size);
    for (int i = 0; i < 3; ++i) {
      state = state * 1664525u + 1013904223u;
      copy[(state >> 8) % size] ^= (uint8_t)(1u << (state >> 29));
    }
    hr_status_ignore(htf_graph_without(copy, size, "_XlaMustCompile", out, &kept));
    HR_ASSERT(kept <= size);
    free(copy);
    free(out);
  }
}
