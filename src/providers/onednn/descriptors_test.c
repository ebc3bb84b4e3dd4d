/* The library is asked once about nodes of equal numbers, and again about others; results stay right. */
#include "provider_cases.h"
#include "providers/onednn/descriptors.h"
#include "providers/onednn/pipe.h"
#include "providers/onednn/shared_primitives.h"

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
#include <malloc.h>
#endif

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

static int desc_count;
static int (*destroy_desc)(dnnl_primitive_desc);

static int add_desc(dnnl_primitive_desc *desc, dnnl_engine engine, dnnl_const_memory_desc src,
                    dnnl_const_memory_desc weights, dnnl_const_memory_desc bias, dnnl_const_memory_desc dst,
                    dnnl_primitive_attr attr) {
  ++desc_count;
  return create_desc(desc, engine, src, weights, bias, dst, attr);
}

static int remove_desc(dnnl_primitive_desc desc) {
  desc_count -= desc != NULL;
  return destroy_desc(desc);
}

/* A descriptor takes as much memory as a primitive, which has a copy. */
HR_TEST(descriptors_end_with_the_making_of_their_primitives) {
  cases_begin(&hr__onednn_provider);
  hr__dnnl_table *table = &hr__dnnl_opened()->table;
  (void)descriptors_for(44, MATRIX_DENSE, BIAS_ABSENT); /* the first primitives are made early */
  create_desc = table->matmul_primitive_desc_create, destroy_desc = table->primitive_desc_destroy;
  table->matmul_primitive_desc_create = add_desc, table->primitive_desc_destroy = remove_desc;
  const product q = {0, {0}, 47, 50, 60};
  op_case t[2];
  for (int i = 0; i < 2; ++i) { /* the second case has the first one's primitive */
    t[i] = product_case(&hr__onednn_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
    op_case_node(&t[i]);
    op_case_prepare(&t[i]);
    HR_ASSERT(i == 0 || desc_count == 0);
    op_case_allocate(&t[i]);
    op_case_run(&t[i]);
    check_result(&t[i]);
    HR_ASSERT_EQ(desc_count, 0);
  }
  for (int i = 0; i < 2; ++i) {
    op_case_free(&t[i]);
    op_case_end(&t[i]);
  }
  HR_ASSERT_EQ(desc_count, 0);
  table->matmul_primitive_desc_create = create_desc, table->primitive_desc_destroy = destroy_desc;
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

/* Of the C library; 0: it does not tell. */
static size_t heap_bytes(void) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#else
  return 0;
#endif
}

static dnnl_memory_desc layout(int rank, const int64_t *dims, const int64_t *strides) {
  dnnl_memory_desc made_desc = NULL;
  int code = strides != NULL ? hr__dnnl()->memory_desc_create_with_strides(&made_desc, rank, dims, DNNL_F32, strides)
                             : hr__dnnl()->memory_desc_create_with_tag(&made_desc, rank, dims, DNNL_F32, DNNL_TAG_ANY);
  HR_ASSERT_EQ(code, DNNL_SUCCESS);
  return made_desc;
}

static dnnl_primitive_desc transposition(void) {
  const int64_t dims[2] = {96, 80}, rows[2] = {80, 1}, columns[2] = {1, 96};
  dnnl_memory_desc from = layout(2, dims, rows), to = layout(2, dims, columns);
  dnnl_primitive_desc desc = NULL;
  HR_ASSERT_EQ(hr__dnnl()->reorder_primitive_desc_create(&desc, from, hr__dnnl_engine(), to, hr__dnnl_engine(), NULL),
               DNNL_SUCCESS);
  hr__dnnl()->memory_desc_destroy(from);
  hr__dnnl()->memory_desc_destroy(to);
  return desc;
}

static dnnl_primitive_desc convolution(void) {
  const int64_t dims[3][4] = {{2, 16, 14, 14}, {32, 16, 3, 3}, {2, 32, 14, 14}}, ones[2] = {1, 1}, zeros[2] = {0, 0};
  dnnl_memory_desc layouts[3];
  dnnl_primitive_desc desc = NULL;
  for (int i = 0; i < 3; ++i) {
    layouts[i] = layout(4, dims[i], NULL);
  }
  int code = hr__dnnl()->convolution_forward_primitive_desc_create(&desc, hr__dnnl_engine(), DNNL_FORWARD_TRAINING,
                                                                   DNNL_CONVOLUTION_DIRECT, layouts[0], layouts[1],
                                                                   NULL, layouts[2], ones, zeros, ones, ones, NULL);
  HR_ASSERT_EQ(code, DNNL_SUCCESS);
  for (int i = 0; i < 3; ++i) {
    hr__dnnl()->memory_desc_destroy(layouts[i]);
  }
  return desc;
}

/* The footprint of a primitive, of what the C library's heap has lent for it. */
static double counted_of_lent(dnnl_primitive_desc (*describe)(void)) {
  dnnl_primitive made_primitive;
  hr__dnnl_primitive *held[2];
  double share = 0;
  for (int i = 0; i < 2; ++i) { /* the first makes what all of its kind share */
    size_t before = heap_bytes();
    held[i] = hr__dnnl_primitive_of(describe());
    HR_ASSERT_EQ(hr__dnnl_primitive_make(held[i], 1, &made_primitive), DNNL_SUCCESS);
    share = (double)hr__dnnl_primitive_footprint(held[i]) / (double)(heap_bytes() - before);
  }
  hr__dnnl_primitive_release(held[0]);
  hr__dnnl_primitive_release(held[1]);
  return share;
}

HR_TEST(primitives_count_the_bytes_that_they_take) {
  cases_begin(&hr__onednn_provider);
  dnnl_primitive_desc (*const kinds[])(void) = {transposition, convolution};
  void *probe = malloc(1 << 16);
  bool tells = heap_bytes() > 1 << 16;
  free(probe);
  for (size_t i = 0; tells && i < sizeof kinds / sizeof *kinds; ++i) {
    double share = counted_of_lent(kinds[i]);
    HR_ASSERT(share > 0.5 && share < 3); /* pages of code come from the system */
  }
}

static int layout_count;
static hr__dnnl_table originals;

static int create_layout(dnnl_memory_desc *desc, int rank, const int64_t *dims, int dtype, const int64_t *strides) {
  ++layout_count;
  return originals.memory_desc_create_with_strides(desc, rank, dims, dtype, strides);
}

static int create_any_layout(dnnl_memory_desc *desc, int rank, const int64_t *dims, int dtype, int tag) {
  ++layout_count;
  return originals.memory_desc_create_with_tag(desc, rank, dims, dtype, tag);
}

static int clone_layout(dnnl_memory_desc *desc, dnnl_const_memory_desc from) {
  ++layout_count;
  return originals.memory_desc_clone(desc, from);
}

static int destroy_layout(dnnl_memory_desc desc) {
  --layout_count;
  return originals.memory_desc_destroy(desc);
}

HR_TEST(prepared_calls_keep_no_layouts) {
  cases_begin(&hr__onednn_provider);
  hr__dnnl_table *table = &hr__dnnl_opened()->table;
  const product q = {0, {0}, 128, 256, 200}; /* its weight is packed, too */
  op_case t =
      product_case(&hr__onednn_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
  op_case_node(&t);
  originals = *table;
  layout_count = 0;
  table->memory_desc_create_with_strides = create_layout;
  table->memory_desc_create_with_tag = create_any_layout;
  table->memory_desc_clone = clone_layout;
  table->memory_desc_destroy = destroy_layout;
  op_case_prepare(&t);
  HR_ASSERT_EQ(layout_count, 0);
  op_case_allocate(&t);
  op_case_run(&t);
  check_result(&t);
  op_case_free(&t);
  op_case_end(&t);
  HR_ASSERT_EQ(layout_count, 0);
  *table = originals;
}

HR_TEST(primitives_without_scratchpad_have_no_memory_for_it) {
  cases_begin(&hr__onednn_provider);
  const int64_t dims[2] = {96, 80}, rows[2] = {80, 1}, columns[2] = {1, 96};
  const hr_operand operand = {.dtype = HR_DTYPE_F32};
  hr_prepared *pipe = hr__pipe_create(0, false, NULL);
  dnnl_memory_desc from = hr__pipe_desc(pipe, HR_DTYPE_F32, 2, dims, rows);
  dnnl_memory_desc to = hr__pipe_desc(pipe, HR_DTYPE_F32, 2, dims, columns);
  int in = hr__pipe_operand(pipe, 0, &operand, from), out = hr__pipe_operand(pipe, 1, &operand, to);
  hr__pipe_reorder(pipe, in, from, out, to);
  HR_ASSERT_OK(pipe->status);
  HR_ASSERT_EQ(pipe->memory_count, 2);
  pipe = hr__pipe_finish(pipe);
  static float x[96 * 80], y[80 * 96];
  void *args[] = {x, y};
  for (int i = 0; i < 96 * 80; ++i) {
    x[i] = (float)i;
  }
  HR_ASSERT_OK(hr__pipe_run(pipe, args, NULL, NULL));
  for (int i = 0; i < 96 * 80; ++i) {
    HR_ASSERT(y[i % 80 * 96 + i / 80] == x[i]);
  }
  hr__pipe_release(pipe);
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
