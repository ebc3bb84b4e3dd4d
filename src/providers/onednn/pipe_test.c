/* Primitives that are made after their call was prepared: errors are those of the run that needs them. */
#include "provider_cases.h"
#include "providers/onednn/dnnl_api.h"

static int refuse(dnnl_primitive *primitive, dnnl_const_primitive_desc desc) {
  (void)primitive;
  (void)desc;
  return DNNL_OUT_OF_MEMORY;
}

static const product products_of[] = {{0, {0}, 40, 50, 60}, {0, {0}, 128, 256, 200}};

static void begin_case(op_case *t, const product *q) {
  *t = product_case(&hr__onednn_provider, q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
  op_case_node(t);
  HR_ASSERT(op_case_is_supported(t));
}

static hr_status run_case(op_case *t) {
  void *args[OPERANDS] = {0};
  void *workspace = hr_aligned_malloc(t->workspace_bytes + 64, 64);
  for (int i = 0; i <= t->input_count; ++i) {
    args[i] = t->tensors[i].bytes;
  }
  hr_status status = t->provider->run(t->prepared, args, workspace, NULL);
  hr_aligned_free(workspace);
  return status;
}

HR_TEST(onednn_reports_primitives_that_cannot_be_made_in_the_run) {
  cases_begin(&hr__onednn_provider);
  hr__dnnl_table *table = &hr__dnnl_opened()->table;
  int (*create)(dnnl_primitive *, dnnl_const_primitive_desc) = table->primitive_create;
  op_case first, t;
  begin_case(&first, &products_of[0]); /* the first product of a process is made at once */
  op_case_prepare(&first);
  op_case_end(&first);
  for (int threads = 1; threads <= 2; ++threads) { /* without the late thread, and with it */
    hr_thread_count_set(threads);
    begin_case(&t, &products_of[1]);
    table->primitive_create = refuse;
    op_case_prepare(&t);
    op_case_allocate(&t);
    HR_ASSERT_STATUS(run_case(&t), HR_STATUS_RESOURCE_EXHAUSTED);
    HR_ASSERT_STATUS(run_case(&t), HR_STATUS_RESOURCE_EXHAUSTED);
    table->primitive_create = create;
    HR_ASSERT_OK(run_case(&t)); /* there is memory again */
    check_result(&t);
    op_case_free(&t);
    op_case_end(&t);
  }
  hr_thread_count_set(0);
}

HR_TEST(onednn_makes_primitives_once_whoever_comes_first) {
  cases_begin(&hr__onednn_provider);
  enum { CASES = 60 };
  static op_case t[CASES];
  hr_thread_count_set(2);
  for (int i = 0; i < CASES; ++i) {
    const product q = {0, {0}, 17 + i, 70, 33 + i};
    begin_case(&t[i], &q);
    op_case_prepare(&t[i]);
  }
  for (int i = 0; i < CASES; ++i) { /* from both ends: some are made, some wait, some are in work, some never run */
    op_case *next = &t[i % 2 == 0 ? i / 2 : CASES - 1 - i / 2];
    if (i % 5 != 0) {
      op_case_allocate(next);
      op_case_run(next);
      check_result(next);
      op_case_free(next);
    }
    op_case_end(next);
  }
  hr_thread_count_set(0);
}
