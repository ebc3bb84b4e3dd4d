/* node_test.c: counts of values that an operation of a rule has no room for, and lists that no value has any more. */
#include "../csrc/lists.h"
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

/* Such an element is a tensor like others. */
HR_TEST(an_element_forgets_a_list_that_is_freed) {
  static const htf_row empty_list = {.op = "EmptyTensorList"};
  const int64_t inputs[] = {0};
  const htf_host unknown_dims = {.dtype = HR_DTYPE_I32};
  htf_kernel *kernel = calloc(1, sizeof *kernel + sizeof(htf_attribute));
  kernel->row = &empty_list, kernel->count = 1;
  kernel->attributes[0] = (htf_attribute){.name = "element_dtype", .kind = 't', .integer = TF_FLOAT};
  htf_scope_value values[3] = {{.host = &unknown_dims}};
  htf_body_node current = {.kernel = kernel, .inputs = inputs, .input_count = 1, .output_count = 1, .first_output = 1};
  htf_body body = {.nodes = &current, .node_count = 1, .value_count = 3};
  htf_scope scope = {.body = &body, .current = &current, .values = values};
  htf_node node;
  htf_node_open(&node, kernel, NULL, NULL, &scope);
  htf_list_empty(&node);
  HR_ASSERT(!htf_has_failed(&node) && values[1].list != NULL);
  values[2].of = values[1].list;
  HR_ASSERT_EQ(htf_lists_sweep(&scope, NULL), 3);
  HR_ASSERT(values[2].of == values[1].list);
  values[1] = (htf_scope_value){0};
  HR_ASSERT_EQ(htf_lists_sweep(&scope, NULL), 0);
  HR_ASSERT_NULL(values[2].of);
  HR_ASSERT_OK(htf_node_close(&node));
  htf_scope_fini(&scope);
  free(kernel);
}
