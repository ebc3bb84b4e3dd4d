/* The library is asked once about nodes of equal numbers, and again about others; results stay right. */
#include "provider_cases.h"
#include "providers/onednn/descriptors.h"

static int created;
static int (*create_desc)(dnnl_primitive_desc *, dnnl_engine, dnnl_const_memory_desc, dnnl_const_memory_desc,
                          dnnl_const_memory_desc, dnnl_const_memory_desc, dnnl_primitive_attr);

static int count_desc(dnnl_primitive_desc *desc, dnnl_engine engine, dnnl_const_memory_desc src,
                      dnnl_const_memory_desc weights, dnnl_const_memory_desc bias, dnnl_const_memory_desc dst,
                      dnnl_primitive_attr attr) {
  ++created;
  return create_desc(desc, engine, src, weights, bias, dst, attr);
}

/* Prepares and runs a product; returns how many descriptors that took. */
static int descriptors_for(int64_t rows, matrix_layout left, bias_layout bias) {
  const product q = {0, {0}, rows, 50, 60};
  op_case t = product_case(&hr__onednn_provider, &q, HR_DTYPE_F32, left, MATRIX_DENSE, MATRIX_DENSE, bias);
  op_case_node(&t);
  HR_ASSERT(op_case_is_supported(&t));
  created = 0;
  op_case_prepare(&t);
  int count = created;
  op_case_allocate(&t);
  op_case_run(&t);
  check_result(&t);
  op_case_free(&t);
  op_case_end(&t);
  return count;
}

HR_TEST(onednn_is_asked_once_about_nodes_of_equal_numbers) {
  cases_begin(&hr__onednn_provider);
  hr__dnnl_table *table = &hr__dnnl_opened()->table;
  create_desc = table->matmul_primitive_desc_create;
  table->matmul_primitive_desc_create = count_desc;
  HR_ASSERT(descriptors_for(40, MATRIX_DENSE, BIAS_ABSENT) > 0);
  HR_ASSERT_EQ(descriptors_for(40, MATRIX_DENSE, BIAS_ABSENT), 0);
  HR_ASSERT(descriptors_for(41, MATRIX_DENSE, BIAS_ABSENT) > 0);      /* other dims, */
  HR_ASSERT(descriptors_for(40, MATRIX_TRANSPOSED, BIAS_ABSENT) > 0); /* strides, */
  HR_ASSERT(descriptors_for(40, MATRIX_DENSE, BIAS_VECTOR) > 0);      /* operands */
  HR_ASSERT_EQ(descriptors_for(40, MATRIX_DENSE, BIAS_VECTOR), 0);
  table->matmul_primitive_desc_create = create_desc;
}

static int made;
static int (*make_primitive)(dnnl_primitive *, dnnl_const_primitive_desc);

static int count_primitive(dnnl_primitive *primitive, dnnl_const_primitive_desc desc) {
  ++made;
  return make_primitive(primitive, desc);
}

HR_TEST(nodes_of_equal_numbers_share_a_primitive) {
  cases_begin(&hr__onednn_provider);
  hr__dnnl_table *table = &hr__dnnl_opened()->table;
  make_primitive = table->primitive_create;
  table->primitive_create = count_primitive;
  (void)descriptors_for(45, MATRIX_TRANSPOSED, BIAS_ABSENT);
  HR_ASSERT(made > 0);
  made = 0;
  (void)descriptors_for(45, MATRIX_TRANSPOSED, BIAS_ABSENT);
  HR_ASSERT_EQ(made, 0);
  (void)descriptors_for(46, MATRIX_TRANSPOSED, BIAS_ABSENT);
  HR_ASSERT(made > 0);
  table->primitive_create = make_primitive;
}

static dnnl_primitive_desc square_product(dnnl_const_memory_desc square) {
  dnnl_primitive_desc desc = NULL;
  HR_ASSERT_EQ(hr__dnnl()->matmul_primitive_desc_create(&desc, hr__dnnl_engine(), square, square, NULL, square, NULL),
               DNNL_SUCCESS);
  return desc;
}

/* The library's own cache returns the descriptor of a cached primitive, which refers to the descriptor that this was
 * made of. The latter may be gone, and the primitive evicted, before another is made of the first: so it is off. */
HR_TEST(the_library_returns_no_descriptors_of_cached_primitives) {
  cases_begin(&hr__onednn_provider);
  const int64_t dims[2] = {64, 64}, strides[2] = {64, 1};
  dnnl_memory_desc square = NULL;
  dnnl_primitive primitive = NULL;
  dnnl_const_primitive_attr attrs[2];
  dnnl_primitive_desc descs[3];
  HR_ASSERT_EQ(hr__dnnl()->memory_desc_create_with_strides(&square, 2, dims, DNNL_F32, strides), DNNL_SUCCESS);
  descs[2] = square_product(square);
  HR_ASSERT_EQ(hr__dnnl()->primitive_create(&primitive, descs[2]), DNNL_SUCCESS);
  for (int i = 0; i < 2; ++i) {
    descs[i] = square_product(square);
    HR_ASSERT_EQ(hr__dnnl()->primitive_desc_get_attr(descs[i], &attrs[i]), DNNL_SUCCESS);
  }
  HR_ASSERT(attrs[0] != attrs[1]);
  for (int i = 0; i < 3; ++i) {
    hr__dnnl()->primitive_desc_destroy(descs[i]);
  }
  hr__dnnl()->primitive_destroy(primitive);
  hr__dnnl()->memory_desc_destroy(square);
}

HR_TEST(onednn_is_asked_again_after_a_stream_was_trimmed) {
  hr_device *device;
  hr_stream *stream;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  cases_begin(&hr__onednn_provider);
  hr__dnnl_table *table = &hr__dnnl_opened()->table;
  create_desc = table->matmul_primitive_desc_create;
  table->matmul_primitive_desc_create = count_desc;
  (void)descriptors_for(43, MATRIX_DENSE, BIAS_ABSENT);
  HR_ASSERT_EQ(descriptors_for(43, MATRIX_DENSE, BIAS_ABSENT), 0);
  hr_stream_trim(stream);
  HR_ASSERT(descriptors_for(43, MATRIX_DENSE, BIAS_ABSENT) > 0);
  table->matmul_primitive_desc_create = create_desc;
  hr_stream_release(stream);
  hr_device_release(device);
}

HR_TEST(onednn_is_asked_again_when_other_nodes_have_taken_the_place) {
  cases_begin(&hr__onednn_provider);
  hr__dnnl_table *table = &hr__dnnl_opened()->table;
  create_desc = table->matmul_primitive_desc_create;
  table->matmul_primitive_desc_create = count_desc;
  HR_ASSERT(descriptors_for(7, MATRIX_DENSE, BIAS_ABSENT) > 0);
  for (int64_t rows = 0; rows < 2 * HR__DNNL_ANSWERS; ++rows) {
    (void)descriptors_for(100 + rows, MATRIX_DENSE, BIAS_ABSENT);
  }
  HR_ASSERT(descriptors_for(7, MATRIX_DENSE, BIAS_ABSENT) > 0);
  table->matmul_primitive_desc_create = create_desc;
}
