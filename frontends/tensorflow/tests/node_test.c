/* node_test.c: counts of values that an operation of a rule has no room for. */
#include "../csrc/node.h"

#include <stdlib.h>

#include "hr_test.h"

enum { COUNT = 64 };

static const htf_row row = {.op = "Row"};

static void open_node(htf_node *node, htf_kernel *kernel, htf_value *values) {
  kernel->row = &row;
  htf_node_open(node, kernel, NULL, NULL, NULL);
  for (int i = 0; i < COUNT; ++i) {
    values[i] = &htf_nothing;
  }
}

HR_TEST(too_many_values_of_an_operation_fail) {
  htf_kernel kernel = {0};
  htf_value values[COUNT];
  htf_node node;
  open_node(&node, &kernel, values);
  htf_record_many(&node, HR_OP_COPY, 0, NULL, 9, values, 2, values);
  HR_ASSERT_ERROR(htf_node_close(&node), HR_STATUS_UNIMPLEMENTED,
                  "Row: an operation on 11 values, at most 10 are supported");
}

HR_TEST(too_many_operands_of_a_function_fail) {
  htf_kernel kernel = {0};
  htf_value values[COUNT];
  htf_node node;
  open_node(&node, &kernel, values);
  htf_record_function(&node, NULL, malloc(1), 30, values, 0, 30, values);
  HR_ASSERT_ERROR(htf_node_close(&node), HR_STATUS_UNIMPLEMENTED,
                  "Row: an operation on 60 values, at most 48 are supported");
}

HR_TEST(too_many_results_of_a_call_fail) {
  htf_kernel kernel = {0};
  htf_value values[COUNT];
  htf_node node;
  open_node(&node, &kernel, values);
  htf_call_many(&node, HR_FUNCTIONAL_UNIQUE, 1, values, NO_ATTRIBUTES, 9, values);
  HR_ASSERT_ERROR(htf_node_close(&node), HR_STATUS_UNIMPLEMENTED,
                  "Row: an operation on 9 values, at most 8 are supported");
}
