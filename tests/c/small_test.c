/* Products of one row and small convolutions for CUDA devices (src/providers/small) against plain loops in double
 * precision (provider_cases.h): their texts run on the host (written_kernel.h). Skipped without a compiler.
 */
#include "program_runner.h"
#include "provider_cases.h"
#include "providers/cuda_limits.h"
#include "written_kernel.h"

/* ---- a provider of host functions, built from another's texts ---- */

static const hr_provider *written = &hr__small_product_provider;

struct hr_prepared {
  hr_host_kernel *kernel;
};

static hr_status prepare_emulated(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                                  hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  hr_prepared *p = calloc(1, sizeof *p);
  (void)algorithm, (void)queue;
  HR_ASSERT_NOT_NULL(p);
  HR_ASSERT_OK(hr__written_create(written, program, node, &p->kernel));
  *out_prepared = p;
  *out_workspace_bytes = 0;
  return HR_OK;
}

static hr_status run_emulated(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)workspace, (void)queue;
  return hr__written_run(p->kernel, args, NULL);
}

static void release_emulated(hr_prepared *p) {
  p->kernel->destroy(p->kernel);
  free(p);
}

static bool supports_emulated(const hr_program *program, const hr_node *node) {
  return written->supports(program, node);
}

static const hr_provider emulated = {.name = "emulated",
                                     .supports = supports_emulated,
                                     .prepare = prepare_emulated,
                                     .run = run_emulated,
                                     .release = release_emulated};

/* True if there is an emulator. */
static bool begin_with(const hr_provider *provider) {
  random_state = 7;
  written = provider;
  return hr__has_emulator();
}

static bool begin(void) {
  return begin_with(&hr__small_product_provider);
}

static op_case op_case_of(product q, hr_dtype dtype, matrix_layout b, bias_layout bias, int guard) {
  op_case t = product_case(&emulated, &q, dtype, MATRIX_DENSE, b, MATRIX_DENSE, bias);
  t.guard = guard;
  return t;
}

/* ---- tests ---- */

enum { ALIGNED = 24, ODD = 19 };

/* Contiguous columns of one element to more than all threads read at once, and of lengths that no vector divides. */
HR_TEST(small_products_of_columns_that_are_runs) {
  static const int64_t shapes[][2] = {{1, 1},   {3, 5},    {8, 9},     {64, 70},  {68, 3},
                                      {128, 1}, {260, 33}, {1028, 10}, {5000, 7}, {4096, 4}};
  for (size_t i = 0; begin() && i < sizeof shapes / sizeof *shapes; ++i) {
    op_case t = op_case_of((product){0, {0}, 1, shapes[i][0], shapes[i][1]}, HR_DTYPE_F32, MATRIX_TRANSPOSED,
                           i % 2 == 0 ? BIAS_VECTOR : BIAS_ABSENT, ALIGNED);
    op_case_must_pass(&t);
  }
}

HR_TEST(small_products_of_rows_that_are_runs) {
  static const int64_t shapes[][2] = {{1, 8},    {5, 3},     {40, 4},    {129, 64},
                                      {300, 68}, {1100, 20}, {70, 1030}, {3, 33000}};
  for (size_t i = 0; begin() && i < sizeof shapes / sizeof *shapes; ++i) {
    op_case t = op_case_of((product){0, {0}, 1, shapes[i][0], shapes[i][1]}, HR_DTYPE_F32, MATRIX_DENSE,
                           i % 2 == 0 ? BIAS_STEPS : BIAS_NONE, ALIGNED);
    op_case_must_pass(&t);
  }
}

HR_TEST(small_products_in_narrow_dtypes) {
  for (hr_dtype dtype = HR_DTYPE_F16; begin() && dtype <= HR_DTYPE_BF16; ++dtype) {
    for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED; ++b) {
      op_case t = op_case_of((product){1, {2}, 1, 264, 40}, dtype, (matrix_layout)b, BIAS_ROW, ALIGNED);
      op_case_must_pass(&t);
      t = op_case_of((product){0, {0}, 1, 35, 21}, dtype, (matrix_layout)b, BIAS_VECTOR, ODD);
      op_case_must_pass(&t);
    }
  }
}

HR_TEST(small_products_in_every_layout) {
  int taken = 0;
  for (int b = 0; begin() && b < MATRIX_LAYOUTS; ++b) {
    for (int bias = BIAS_VECTOR; bias < BIAS_LAYOUTS; bias += 3) {
      op_case t = product_case(&emulated, &(product){2, {3, 2}, 1, 36, 20}, HR_DTYPE_F32,
                               (matrix_layout)random_below(MATRIX_LAYOUTS), (matrix_layout)b,
                               (matrix_layout)random_below(MATRIX_OUTPUTS), (bias_layout)bias);
      t.guard = b % 2 == 0 ? ALIGNED : ODD;
      taken += op_case_check(&t);
    }
  }
  HR_ASSERT(taken > 8 || !begin());
}

/* Weights that the program writes are read only after all earlier work has ended. */
HR_TEST(small_products_of_weights_that_the_program_writes) {
  for (int b = MATRIX_DENSE; begin() && b <= MATRIX_TRANSPOSED; ++b) {
    op_case t = op_case_of((product){0, {0}, 1, 64, 40}, HR_DTYPE_F32, (matrix_layout)b, BIAS_ABSENT, ALIGNED);
    t.writes_weights = true;
    op_case_must_pass(&t);
    hr_device_source sources[2];
    for (int writes = 0; writes < 2; ++writes) {
      t.writes_weights = writes != 0;
      op_case_node(&t);
      HR_ASSERT_OK(hr__small_product_provider.write(&t.program, &t.program.nodes[0], &sources[writes]));
      HR_ASSERT(sources[writes].begins_early);
      HR_ASSERT((strstr(hr_text_chars(&sources[writes].text), "#define IS_CONSTANT 0\n") != NULL) == (writes != 0));
      hr_text_fini(&sources[writes].text);
      hr_program_fini(&t.program);
    }
  }
}

HR_TEST(small_products_have_one_row) {
  static const struct {
    product shape;
    hr_dtype dtype;
    matrix_layout b;
    bias_layout bias;
    bool is_taken;
  } cases[] = {{{0, {0}, 1, 8, 8}, HR_DTYPE_F32, MATRIX_DENSE, BIAS_FULL, true},
               {{0, {0}, 2, 8, 8}, HR_DTYPE_F32, MATRIX_DENSE, BIAS_NONE, false},
               {{0, {0}, 1, 8, 8}, HR_DTYPE_F64, MATRIX_DENSE, BIAS_NONE, false},
               {{0, {0}, 1, 8, 8}, HR_DTYPE_F32, MATRIX_STEPS, BIAS_NONE, false},
               {{0, {0}, 1, 8, 8}, HR_DTYPE_F32, MATRIX_DENSE, BIAS_ONE, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    op_case t = op_case_of(cases[i].shape, cases[i].dtype, cases[i].b, cases[i].bias, ALIGNED);
    HR_ASSERT_EQ(op_case_is_taken(&t), cases[i].is_taken);
  }
}

HR_TEST(convolutions_of_few_pixels) {
  int taken = 0;
  for (int i = 0; begin_with(&hr__taps_provider) && i < WINDOWS; ++i) {
    op_case t = window_case(HR_OP_CONV, &windows[i], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
    t.provider = &emulated;
    bool is_taken = op_case_check(&t), is_one = windows[i].groups == 1 && windows[i].spatial < 3;
    HR_ASSERT_EQ(is_taken, is_one);
    taken += is_taken;
  }
  HR_ASSERT(taken > 8 || !begin());
}

HR_TEST(convolutions_of_few_pixels_in_every_layout) {
  static const window q = {2, 2, 5, 7, 1, {6, 7}, {3, 2}, {1, 1}, {1, 1}, {1, 1}};
  for (int layout = 0; begin_with(&hr__taps_provider) && layout < IMAGE_LAYOUTS; ++layout) {
    image_layout other = (image_layout)((layout + 3) % IMAGE_LAYOUTS);
    hr_dtype dtype = layout % 3 == 0 ? HR_DTYPE_F32 : layout % 3 == 1 ? HR_DTYPE_BF16 : HR_DTYPE_F16;
    op_case t = window_case(HR_OP_CONV, &q, dtype, (image_layout)layout, other, (image_layout)layout, false);
    t.provider = &emulated;
    op_case_must_pass(&t);
  }
}

/* The first and the second layer of a small network: with 4 and with 2 channels a block, weights that the program
 * writes. */
HR_TEST(convolutions_of_one_image) {
  static const window layers[] = {{2, 1, 1, 20, 1, {28, 28}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
                                  {2, 1, 50, 100, 1, {7, 7}, {5, 5}, {1, 1}, {2, 2}, {1, 1}}};
  for (int i = 0; begin_with(&hr__taps_provider) && i < 2; ++i) {
    op_case t = window_case(HR_OP_CONV, &layers[i], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
    t.provider = &emulated, t.writes_weights = i == 1;
    op_case_must_pass(&t);
  }
}

HR_TEST(convolutions_that_are_left_to_others) {
  static const window large = {2, 4, 64, 64, 1, {28, 28}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                      wide = {2, 1, 1, 1, 1, {40, 40}, {1, 17}, {1, 1}, {0, 0}, {1, 1}},
                      deep = {2, 1, 2000, 2, 1, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                      small = {2, 1, 3, 4, 1, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  const struct {
    const window *shape;
    hr_dtype dtype;
    bool has_bias, is_taken;
  } cases[] = {{&large, HR_DTYPE_F32, false, false}, {&wide, HR_DTYPE_F32, false, false},
               {&deep, HR_DTYPE_F32, false, false},  {&small, HR_DTYPE_F32, false, true},
               {&small, HR_DTYPE_F64, false, false}, {&small, HR_DTYPE_F32, true, false}};
  written = &hr__taps_provider;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    op_case t = window_case(HR_OP_CONV, cases[i].shape, cases[i].dtype, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE,
                            cases[i].has_bias);
    t.provider = &emulated;
    HR_ASSERT_EQ(op_case_is_taken(&t), cases[i].is_taken);
  }
}

/* ---- matrices ---- */

static op_case matrices_case(product q, matrix_layout a, matrix_layout b, matrix_layout y, bias_layout bias) {
  op_case t = product_case(&emulated, &q, HR_DTYPE_F32, a, b, y, bias);
  t.guard = a == MATRIX_DENSE ? ALIGNED : ODD;
  return t;
}

/* One tile and several, an inner dim of less than a stage to more than two, of each number of rows a thread. */
HR_TEST(products_of_matrices) {
  static const int64_t shapes[][3] = {{2, 1, 1},    {3, 40, 5},   {20, 31, 33},  {64, 64, 32},
                                      {70, 300, 9}, {512, 10, 3}, {2000, 5, 70}, {130, 133, 300}};
  for (size_t i = 0; begin_with(&hr__matrices_provider) && i < sizeof shapes / sizeof *shapes; ++i) {
    const product q = {0, {0}, shapes[i][0], shapes[i][1], shapes[i][2]};
    op_case t = matrices_case(q, (matrix_layout)(i % 2), (matrix_layout)(i / 2 % 2), (matrix_layout)(i / 4 % 2),
                              i % 3 == 0   ? BIAS_VECTOR
                              : i % 3 == 1 ? BIAS_ABSENT
                                           : BIAS_STEPS);
    op_case_must_pass(&t);
  }
}

HR_TEST(products_of_matrices_in_every_layout) {
  int taken = 0;
  for (int b = 0; begin_with(&hr__matrices_provider) && b < MATRIX_LAYOUTS; ++b) {
    for (int bias = BIAS_VECTOR; bias < BIAS_LAYOUTS; bias += 4) {
      op_case t = matrices_case((product){0, {0}, 35, 40, 36}, (matrix_layout)random_below(MATRIX_LAYOUTS),
                                (matrix_layout)b, (matrix_layout)random_below(MATRIX_OUTPUTS), (bias_layout)bias);
      taken += op_case_check(&t);
    }
  }
  HR_ASSERT(taken > 8 || !hr__has_emulator());
}

HR_TEST(matrices_that_are_left_to_others) {
  static const struct {
    product shape;
    hr_dtype dtype;
    bias_layout bias;
    bool is_taken;
  } cases[] = {{{0, {0}, 512, 900, 450}, HR_DTYPE_F32, BIAS_VECTOR, true},
               {{0, {0}, 512, 450, 900}, HR_DTYPE_F32, BIAS_VECTOR, false},
               {{0, {0}, 1, 450, 900}, HR_DTYPE_F32, BIAS_NONE, false},
               {{0, {0}, 512, 900, 450}, HR_DTYPE_F64, BIAS_NONE, false},
               {{0, {0}, 512, 900, 450}, HR_DTYPE_BF16, BIAS_NONE, false},
               {{0, {0}, 64, 64, 64}, HR_DTYPE_F32, BIAS_FULL, false},
               {{1, {2}, 64, 64, 64}, HR_DTYPE_F32, BIAS_NONE, false},
               {{0, {0}, 1024, 64, 1024}, HR_DTYPE_F32, BIAS_NONE, false},
               {{0, {0}, 128, 1024, 768}, HR_DTYPE_F32, BIAS_NONE, true},
               {{0, {0}, 128, 1025, 768}, HR_DTYPE_F32, BIAS_NONE, false}};
  written = &hr__matrices_provider;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    op_case t = product_case(&emulated, &cases[i].shape, cases[i].dtype, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE,
                             cases[i].bias);
    op_case_node(&t);
    HR_ASSERT_EQ(op_case_is_supported(&t), cases[i].is_taken);
    hr_program_fini(&t.program);
  }
}

/* ---- images on tensor cores ---- */

/* Factors are rounded to 11 significant bits. */
static bool begin_images(int processors) {
  *hr__cuda_limits_known() = (hr__cuda_limits){.architecture = 9, .shared_bytes = 227 << 10, .processors = processors};
  op_case_rounding = 1.0 / 1024;
  return begin_with(&hr__images_provider);
}

static const hr_op image_ops[] = {HR_OP_CONV, HR_OP_CONV_BACKWARD_DATA, HR_OP_CONV_BACKWARD_WEIGHT};

/* Images with fewer pixels than a product has rows, and with more than a block has; from one channel to more than a
 * stage has; windows that are not square, dilated, or padded beyond their size. */
HR_TEST(convolutions_of_many_small_images) {
  static const window shapes[] = {{2, 3, 1, 5, 1, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                  {2, 5, 6, 9, 1, {3, 3}, {3, 2}, {1, 1}, {1, 0}, {1, 1}},
                                  {2, 2, 20, 12, 1, {7, 9}, {2, 3}, {1, 1}, {0, 2}, {1, 2}},
                                  {2, 1, 5, 58, 1, {12, 11}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
                                  {2, 7, 3, 20, 1, {1, 4}, {1, 2}, {1, 1}, {0, 1}, {1, 1}},
                                  {2, 5, 9, 6, 1, {4, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                  {2, 5, 2, 6, 1, {4, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}};
  for (size_t i = 0; begin_images(i % 2 == 0 ? 132 : 1) && i < sizeof shapes / sizeof *shapes; ++i) {
    for (size_t k = 0; k < sizeof image_ops / sizeof *image_ops; ++k) {
      op_case t = window_case(image_ops[k], &shapes[i], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
      t.provider = &emulated, t.guard = i % 2 == 0 ? ALIGNED : ODD;
      op_case_must_pass(&t);
    }
  }
}

static bool has_planes(image_layout layout) {
  return layout == IMAGE_DENSE || layout == IMAGE_SWAPPED;
}

/* Weights have any layout; of images, each plane is dense. */
HR_TEST(convolutions_of_images_in_every_layout) {
  static const window q = {2, 3, 5, 7, 1, {5, 6}, {3, 2}, {1, 1}, {1, 1}, {1, 1}};
  for (int i = 0; begin_images(4) && i < 3 * IMAGE_LAYOUTS; ++i) {
    image_layout x = (image_layout)(i % IMAGE_LAYOUTS), w = (image_layout)((i + 3) % IMAGE_LAYOUTS),
                 y = (image_layout)((i + 5) % IMAGE_LAYOUTS);
    op_case t = window_case(image_ops[i % 3], &q, HR_DTYPE_F32, x, w, y, false);
    t.provider = &emulated;
    HR_ASSERT_EQ(op_case_check(&t), has_planes(x) && has_planes(y));
  }
}

/* An infinity of one operand affects only the products that contain it, not the padding of a product. */
static void op_case_of_infinity(hr_op op, int operand, int64_t at) {
  static const window q = {2, 2, 3, 5, 1, {6, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  op_case t = window_case(op, &q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  t.provider = &emulated;
  op_case_node(&t);
  HR_ASSERT(op_case_is_supported(&t));
  op_case_prepare(&t);
  op_case_allocate(&t);
  write_element(&t.tensors[operand], tensor_at(&t.tensors[operand], at), INFINITY);
  op_case_run(&t);
  const tensor *out = op_case_output(&t);
  int64_t count = tensor_count(out), infinite = 0;
  expected e = {calloc((size_t)count, sizeof(double)), calloc((size_t)count, sizeof(double))};
  HR_ASSERT(e.values != NULL && e.sizes != NULL);
  evaluate(&t, &e);
  for (int64_t i = 0; i < count; ++i) {
    double actual = read_element(out, tensor_at(out, i));
    infinite += isinf(e.values[i]) ? 1 : 0;
    HR_ASSERT(isinf(e.values[i]) ? actual == e.values[i] : isfinite(actual));
  }
  HR_ASSERT(infinite > 0 && infinite < count);
  free(e.values);
  free(e.sizes);
  op_case_free(&t);
  op_case_end(&t);
}

HR_TEST(infinities_of_images_stay_in_their_windows) {
  enum { INSIDE = 9, LAST = 6 * 7 - 1 }; /* of the first plane */
  if (begin_images(4)) {
    op_case_of_infinity(HR_OP_CONV, 0, INSIDE);
    op_case_of_infinity(HR_OP_CONV, 0, LAST);
    op_case_of_infinity(HR_OP_CONV_BACKWARD_DATA, 0, INSIDE);
    op_case_of_infinity(HR_OP_CONV_BACKWARD_DATA, 0, LAST);
    op_case_of_infinity(HR_OP_CONV_BACKWARD_WEIGHT, 0, LAST);
    op_case_of_infinity(HR_OP_CONV_BACKWARD_WEIGHT, 1, INSIDE);
  }
}

HR_TEST(images_that_are_left_to_libraries) {
  static const window small = {2, 4, 5, 7, 1, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                      even = {2, 4, 16, 32, 1, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                      stepping = {2, 4, 5, 7, 1, {6, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                      grouped = {2, 4, 6, 9, 3, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                      point = {2, 4, 5, 7, 1, {6, 6}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                      large = {2, 4, 5, 7, 1, {400, 400}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                      wide = {2, 4, 5, 130, 1, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                      line = {1, 4, 5, 7, 1, {6}, {3}, {1}, {1}, {1}};
  const struct {
    const window *shape;
    hr_dtype dtype;
    bool has_bias, is_taken;
  } cases[] = {{&small, HR_DTYPE_F32, false, true},    {&small, HR_DTYPE_F32, true, false},
               {&small, HR_DTYPE_F64, false, false},   {&small, HR_DTYPE_BF16, false, false},
               {&even, HR_DTYPE_F32, false, false},    {&stepping, HR_DTYPE_F32, false, false},
               {&grouped, HR_DTYPE_F32, false, false}, {&point, HR_DTYPE_F32, false, false},
               {&large, HR_DTYPE_F32, false, false},   {&wide, HR_DTYPE_F32, false, false},
               {&line, HR_DTYPE_F32, false, false}};
  begin_images(132);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    op_case t = window_case(HR_OP_CONV, cases[i].shape, cases[i].dtype, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE,
                            cases[i].has_bias);
    t.provider = &emulated;
    op_case_node(&t);
    HR_ASSERT_EQ(op_case_is_supported(&t), cases[i].is_taken);
    hr_program_fini(&t.program);
  }
}

/* ---- CUDA's compiler ---- */

/* Without NVRTC the test ends here. */
static void compile_for(op_case *t, const hr_provider *provider, int architecture) {
  bool is_there = false;
  op_case_node(t);
  HR_ASSERT_OK(hr__written_compile(provider, &t->program, architecture, &is_there));
  hr_program_fini(&t->program);
  if (!is_there) {
    HR_SKIP("no NVRTC");
  }
}

HR_TEST(small_kernels_compile_for_gpus) {
  static const window q = {2, 1, 20, 50, 1, {14, 14}, {5, 5}, {1, 1}, {2, 2}, {1, 1}};
  for (int i = 0; i < 6; ++i) {
    hr_dtype dtype = i % 3 == 0 ? HR_DTYPE_F32 : i % 3 == 1 ? HR_DTYPE_BF16 : HR_DTYPE_F16;
    int architecture = i % 2 == 0 ? 90 : 80;
    op_case t = op_case_of((product){1, {2}, 1, 768, 768}, dtype, i < 3 ? MATRIX_DENSE : MATRIX_TRANSPOSED, BIAS_VECTOR,
                           i % 2 == 0 ? ALIGNED : ODD);
    compile_for(&t, &hr__small_product_provider, architecture);
    t = window_case(HR_OP_CONV, &q, dtype, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
    compile_for(&t, &hr__taps_provider, architecture);
  }
}

HR_TEST(matrix_kernels_compile_for_gpus) {
  for (int i = 0; i < 4; ++i) {
    op_case t = matrices_case((product){0, {0}, 512 >> i, 900, 450}, MATRIX_DENSE, (matrix_layout)(i % 2), MATRIX_DENSE,
                              BIAS_VECTOR);
    compile_for(&t, &hr__matrices_provider, i % 2 == 0 ? 90 : 80);
  }
}

HR_TEST(image_kernels_compile_for_gpus) {
  static const window layers[] = {{2, 512, 1, 20, 1, {28, 28}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
                                  {2, 512, 20, 50, 1, {14, 14}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
                                  {2, 512, 50, 100, 1, {7, 7}, {5, 5}, {1, 1}, {2, 2}, {1, 1}}};
  for (int i = 0; i < 9; ++i) {
    begin_images(132);
    op_case t =
        window_case(image_ops[i % 3], &layers[i / 3], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
    compile_for(&t, &hr__images_provider, i % 2 == 0 ? 90 : 80);
  }
}
