/* cuBLASLt and cuDNN on a GPU against plain loops in double precision: single nodes on device memory, and whole
 * programs through a stream. Without a GPU the streams run on the CPU, and the rest is skipped; the calls to the
 * libraries are tested everywhere (cuda_calls_test.c).
 */
#include "base/env.h"
#include "epilogue_cases.h"
#include "provider_cases.h"
#include "runtime/device.h"

/* The error that TF32 may add to a product of two factors, with a margin. */
static const double TF32_ROUNDING = 1.5e-3;
/* Sums of parts of 16 bits, and bias after a rounded sum. */
static const double F16_ROUNDING = 1.0 / 4096, BF16_ROUNDING = 1.0 / 512;
/* Tensor cores keep fewer bits of partial sums than f32 has. */
static const double SUM_ROUNDING = 1e-5;

/* ---- the device ---- */

static hr_device *the_device; /* the GPU; NULL: there is none */

static void *allocate(void *ctx, size_t bytes) {
  hr_device *device = ctx;
  void *address = NULL;
  HR_ASSERT_OK(device->driver->allocate(device->impl, bytes, &address));
  return address;
}
static void release(void *ctx, void *address, size_t bytes) {
  hr_device *device = ctx;
  device->driver->free(device->impl, address, bytes);
}
static void copy_in(void *ctx, void *to, const void *host, size_t bytes) {
  hr_device *device = ctx;
  HR_ASSERT_OK(device->driver->copy_in(device->impl, to, host, bytes));
}
static void copy_out(void *ctx, void *host, const void *from, size_t bytes) {
  hr_device *device = ctx;
  HR_ASSERT_OK(device->driver->flush != NULL ? device->driver->flush(device->impl) : HR_OK);
  HR_ASSERT_OK(device->driver->copy_out(device->impl, host, from, bytes));
}

static void find_device(void) {
  static bool is_known;
  if (!is_known) {
    hr_status status = hr_device_open("cuda", &the_device);
    if (status != HR_OK) {
      fprintf(stderr, "no GPU: %s\n", hr_status_message(status));
      the_device = NULL;
    }
    hr_status_ignore(status);
    if (the_device != NULL) {
      HR_ASSERT_OK(the_device->driver->enter(the_device->impl)); /* for all tests of this thread */
    }
  }
  is_known = true;
  random_state = 7;
}

/* The device's memory, current on this thread; skips the test if the device or the library is missing. */
static op_case_memory open_library(const hr_provider *provider) {
  static char reason[2048];
  find_device();
  if (the_device == NULL) {
    HR_SKIP("no GPU");
  }
  hr_status status = hr__provider_open(provider);
  snprintf(reason, sizeof reason, "%s", hr_status_message(status));
  bool is_open = status == HR_OK;
  hr_status_ignore(status);
  if (!is_open) {
    HR_SKIP(reason);
  }
  return (op_case_memory){.ctx = the_device,
                          .queue = the_device->driver->native(the_device->impl),
                          .allocate = allocate,
                          .release = release,
                          .copy_in = copy_in,
                          .copy_out = copy_out};
}

static bool is_tf32(hr_op op, hr_dtype dtype) {
  int choice = hr_env_choice(HR_ENV_TF32);
  return dtype == HR_DTYPE_F32 && choice != HR_ENV_TF32_OFF && (op != HR_OP_MATMUL || choice == HR_ENV_TF32_ALL);
}

static void set_rounding(hr_op op, hr_dtype dtype) {
  op_case_rounding = dtype == HR_DTYPE_F64    ? 0
                     : dtype == HR_DTYPE_BF16 ? BF16_ROUNDING
                     : dtype == HR_DTYPE_F16  ? F16_ROUNDING
                     : is_tf32(op, dtype)     ? TF32_ROUNDING
                                              : SUM_ROUNDING;
}

/* ---- nodes alone ---- */

static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_F16, HR_DTYPE_BF16, HR_DTYPE_F64};
enum { DTYPES = 4 };

static const product large_products[] = {{0, {0}, 257, 130, 263}, {0, {0}, 64, 1024, 128},  {1, {7}, 33, 65, 40},
                                         {2, {3, 5}, 24, 64, 24}, {0, {0}, 1, 512, 1000},   {0, {0}, 300, 2, 1},
                                         {1, {70}, 8, 8, 8},      {2, {2, 12}, 32, 32, 64}, {0, {0}, 8, 4096, 8},
                                         {1, {2}, 128, 256, 96},  {0, {0}, 512, 64, 512}};

static void check_product(const op_case_memory *memory, const product *q, hr_dtype dtype, matrix_layout a,
                          matrix_layout b, matrix_layout out, bias_layout bias, bool must) {
  op_case t = product_case(&hr__cublaslt_provider, q, dtype, a, b, out, bias);
  t.memory = memory;
  t.guard = bias > BIAS_NONE || random_below(2) == 0 ? 16 : GUARD; /* aligned as tensors are, and hardly */
  set_rounding(HR_OP_MATMUL, dtype);
  if (must) {
    op_case_must_pass(&t);
  } else {
    (void)op_case_check(&t);
  }
}

HR_TEST(cublaslt_multiplies_on_a_gpu) {
  static const matrix_layout plain[] = {MATRIX_DENSE,           MATRIX_TRANSPOSED,   MATRIX_ROOM,
                                        MATRIX_TRANSPOSED_ROOM, MATRIX_BATCH_INSIDE, MATRIX_BROADCAST_BATCH};
  op_case_memory memory = open_library(&hr__cublaslt_provider);
  for (int d = 0; d < DTYPES; ++d) {
    for (size_t p = 0; p < PRODUCTS + sizeof large_products / sizeof *large_products; ++p) {
      const product *q = p < PRODUCTS ? &products[p] : &large_products[p - PRODUCTS];
      for (int turn = 0; turn < 6; ++turn) {
        static const bias_layout biases[] = {BIAS_NONE, BIAS_VECTOR, BIAS_ROW};
        check_product(&memory, q, dtypes[d], plain[turn], plain[random_below(6)],
                      turn % 2 == 0 ? MATRIX_DENSE : MATRIX_ROOM, biases[random_below(3)], true);
      }
      check_product(&memory, q, dtypes[d], MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_TRANSPOSED, BIAS_NONE, true);
      check_product(&memory, q, dtypes[d], (matrix_layout)random_below(MATRIX_LAYOUTS),
                    (matrix_layout)random_below(MATRIX_LAYOUTS), (matrix_layout)random_below(MATRIX_OUTPUTS),
                    (bias_layout)random_below(BIAS_LAYOUTS), false);
    }
  }
}

/* The same prepared product gives the same bits, also of the long sums that are split. */
HR_TEST(cublaslt_gives_the_same_bits_again) {
  op_case_memory memory = open_library(&hr__cublaslt_provider);
  static const product q = {0, {0}, 32, 20000, 24};
  op_case t = product_case(&hr__cublaslt_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE,
                           BIAS_VECTOR);
  t.memory = &memory;
  t.guard = 16;
  op_case_begin(&t);
  tensor *out = op_case_output(&t);
  size_t bytes = (size_t)out->length * sizeof(float);
  unsigned char *first = malloc(bytes);
  HR_ASSERT_NOT_NULL(first);
  for (int run = 0; run < 20; ++run) {
    op_case_run(&t);
    if (run == 0) {
      memcpy(first, out->bytes, bytes);
    }
    HR_ASSERT_BYTES_EQ(out->bytes, first, bytes);
  }
  free(first);
  op_case_free(&t);
  op_case_end(&t);
}

static const window large_windows[] = {{2, 2, 24, 32, 1, {14, 12}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                       {2, 2, 3, 16, 1, {20, 18}, {7, 7}, {2, 2}, {3, 3}, {1, 1}},
                                       {2, 2, 96, 40, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                       {2, 2, 16, 32, 4, {15, 13}, {3, 3}, {2, 1}, {1, 1}, {1, 1}},
                                       {1, 4, 16, 24, 1, {200}, {5}, {1}, {2}, {1}},
                                       {2, 3, 24, 24, 24, {12, 12}, {5, 5}, {1, 1}, {2, 2}, {1, 1}}};

static void check_windows(hr_op op) {
  op_case_memory memory = open_library(&hr__cublaslt_provider); /* which cuDNN needs */
  (void)open_library(&hr__cudnn_provider);
  for (size_t i = 0; i < WINDOWS + sizeof large_windows / sizeof *large_windows; ++i) {
    const window *q = i < WINDOWS ? &windows[i] : &large_windows[i - WINDOWS];
    for (int turn = 0; !window_skips(op, q) && turn < 2 * DTYPES - 1; ++turn) { /* f64 with channels first alone */
      image_layout layout = turn % 2 == 0 ? IMAGE_DENSE : IMAGE_CHANNELS_LAST;
      op_case t = window_case(op, q, dtypes[turn / 2], layout, layout, layout, false);
      t.provider = &hr__cudnn_provider;
      t.memory = &memory;
      t.guard = 16;
      set_rounding(op, dtypes[turn / 2]);
      op_case_must_pass(&t);
    }
  }
}

HR_TEST(cudnn_convolves_on_a_gpu) {
  check_windows(HR_OP_CONV);
}
HR_TEST(cudnn_gives_the_gradient_of_data_on_a_gpu) {
  check_windows(HR_OP_CONV_BACKWARD_DATA);
}
HR_TEST(cudnn_gives_the_gradient_of_weights_on_a_gpu) {
  check_windows(HR_OP_CONV_BACKWARD_WEIGHT);
}

/* ---- epilogues ---- */

/* With every algorithm of the library, NaN of the input stays NaN after a ReLU. */
HR_TEST(cudnn_adds_bias_and_residual_and_keeps_nan_on_a_gpu) {
  op_case_memory memory = open_library(&hr__cublaslt_provider);
  (void)open_library(&hr__cudnn_provider);
  check_all_epilogues(&hr__cudnn_provider, &memory, EPILOGUES_WINDOWS, epilogues_windows);
}

/* ---- through a stream ---- */

static hr_stream *open_stream(hr_device **out_device) {
  hr_stream *stream = NULL;
  find_device();
  HR_ASSERT_OK(hr_device_open(the_device != NULL ? "cuda" : "cpu", out_device));
  HR_ASSERT_OK(hr_stream_create(*out_device, &stream));
  return stream;
}

/* A tensor's buffer, with canaries around the view. */
static hr_buffer *make_buffer(hr_device *device, hr_stream *stream, const tensor *x, hr_view *out_all) {
  static const int64_t one = 1;
  hr_buffer *buffer = NULL;
  HR_ASSERT_OK(hr_buffer_create(device, (size_t)x->length * hr_dtype_size(x->dtype), &buffer));
  *out_all = (hr_view){.buffer = buffer, .dtype = x->dtype, .rank = 1, .dims = &x->length, .strides = &one};
  HR_ASSERT_OK(hr_stream_write(stream, out_all, x->bytes));
  return buffer;
}

static void stream_check(hr_device *device, hr_stream *stream, op_case *t) {
  hr_buffer *buffers[OPERANDS] = {NULL};
  hr_view all[OPERANDS], views[OPERANDS] = {{0}};
  bool is_gpu = the_device != NULL;
  set_rounding(t->op, t->tensors[0].dtype);
  op_case_rounding = is_gpu ? op_case_rounding : 0;
  if (t->input_count > 2 && t->tensors[2].is_present) { /* a loop after the library's kernel may add it */
    hr_dtype dtype = t->tensors[2].dtype;
    op_case_rounding += dtype == HR_DTYPE_BF16 ? 1.0 / 128 : dtype == HR_DTYPE_F16 ? 1.0 / 1024 : 0;
  }
  for (int i = 0; i <= t->input_count; ++i) {
    tensor_place(&t->tensors[i], GUARD);
  }
  op_case_allocate(t);
  for (int i = 0; i <= t->input_count; ++i) {
    const tensor *x = &t->tensors[i];
    buffers[i] = make_buffer(device, stream, x, &all[i]);
    views[i] = (hr_view){.buffer = buffers[i],
                         .dtype = x->dtype,
                         .rank = x->rank,
                         .offset = x->offset,
                         .dims = x->dims,
                         .strides = x->strides};
  }
  hr_attrs attrs = {.int_count = t->int_count, .ints = t->ints};
  HR_ASSERT_OK(hr_stream_record(stream, t->op, &attrs, t->input_count, views, 1, &views[t->input_count]));
  HR_ASSERT_OK(hr_stream_read(stream, &all[t->input_count], op_case_output(t)->bytes));
  op_case_node(t); /* for the message of a failure */
  check_result(t);
  hr_program_fini(&t->program);
  for (int i = 0; i <= t->input_count; ++i) {
    hr_buffer_release(buffers[i]);
  }
  op_case_free(t);
}

/* In every layout and dtype, with and without bias: some provider runs the node with some packing, or it becomes loops.
 */
HR_TEST(streams_multiply_in_every_layout) {
  hr_device *device;
  hr_stream *stream = open_stream(&device);
  for (int i = 0; i < 60; ++i) {
    int bias = random_below(BIAS_LAYOUTS);
    op_case t = product_case(&hr__cublaslt_provider, &products[1 + i % (PRODUCTS - 1)], dtypes[i % DTYPES],
                             (matrix_layout)random_below(MATRIX_LAYOUTS), (matrix_layout)random_below(MATRIX_LAYOUTS),
                             (matrix_layout)random_below(MATRIX_OUTPUTS),
                             (bias_layout)(bias == BIAS_NONE ? BIAS_ABSENT : bias));
    stream_check(device, stream, &t);
  }
  hr_stream_release(stream);
  hr_device_release(device);
}

HR_TEST(streams_convolve_in_every_layout) {
  hr_device *device;
  hr_stream *stream = open_stream(&device);
  for (int i = 0; i < 75; ++i) {
    hr_op op = (hr_op)(HR_OP_CONV + i % 3);
    op_case t =
        window_case(op, &windows[i % WINDOWS], dtypes[i / 3 % DTYPES], (image_layout)random_below(IMAGE_LAYOUTS),
                    (image_layout)random_below(IMAGE_LAYOUTS), (image_layout)random_below(IMAGE_LAYOUTS),
                    op != HR_OP_CONV_BACKWARD_WEIGHT && random_below(2) == 0);
    stream_check(device, stream, &t);
  }
  hr_stream_release(stream);
  hr_device_release(device);
}
