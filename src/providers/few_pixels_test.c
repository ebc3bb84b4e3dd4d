/* Convolutions of few pixels on weights as they are stored (providers/direct/few_pixels.c) against plain loops in
 * double precision (provider_cases.h): every window and layout, several groups, panels and slabs, borders, the same
 * bits for any threads and layout, and numbers that are not finite.
 */
#include "base/thread.h"
#include "provider_cases.h"
#include "runtime/cached_weights.h"

/* Several groups of panels, of whole and partial vectors; several slabs; windows larger than images, and those with
 * taps that no pixel has; pixels of many images, also of one row; steps, dilations, one spatial dim, one pixel, one
 * channel. */
static const window shapes[] = {
    {2, 1, 300, 20, 1, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 1, 20, 500, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 2, 129, 49, 1, {9, 7}, {3, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 1, 130, 192, 1, {14, 13}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
    {2, 3, 16, 210, 1, {6, 20}, {5, 3}, {2, 3}, {2, 1}, {1, 1}},
    {2, 1, 33, 50, 1, {12, 10}, {3, 3}, {1, 2}, {2, 3}, {2, 3}},
    {2, 1, 9, 31, 1, {3, 2}, {5, 7}, {1, 1}, {2, 3}, {1, 1}},
    {2, 1, 5, 17, 1, {1, 1}, {3, 3}, {1, 1}, {3, 3}, {3, 3}},
    {2, 1, 257, 16, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 4, 1, 48, 1, {4, 9}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 3, 20, 33, 1, {1, 11}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {1, 2, 140, 70, 1, {30}, {5}, {1}, {2}, {1}},
    {1, 3, 64, 33, 1, {19}, {1}, {1}, {0}, {1}},
    {1, 1, 24, 100, 1, {61}, {3}, {2}, {1}, {4}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static op_case few_case(const window *q, image_layout x, image_layout w, image_layout y, bool has_bias) {
  op_case t = window_case(HR_OP_CONV, q, HR_DTYPE_F32, x, w, y, has_bias);
  t.provider = &hr__few_pixels_provider;
  t.writes_weights = random_below(2) == 0;
  return t;
}

/* With any number of pixels and weights. */
static void check_case(op_case t) {
  op_case_node(&t);
  op_case_check_node(&t);
}

static void check_shape(const window *q, int number) {
  for (int turn = 0; turn < 2 * IMAGE_LAYOUTS; ++turn) {
    image_layout layout = (image_layout)(turn / 2), other = (image_layout)random_below(IMAGE_LAYOUTS);
    bool is_input = turn % 2 == 0;
    if (hr_test_takes(number + turn)) {
      check_case(few_case(q, is_input ? layout : other, IMAGE_HWIO, is_input ? other : layout, random_below(2) == 0));
    }
  }
}

HR_TEST(few_pixels_are_convolved) {
  cases_begin(&hr__few_pixels_provider);
  for (int i = 0; i < SHAPES; ++i) {
    check_shape(&shapes[i], i);
    check_case(few_case(&shapes[i], IMAGE_BROADCAST, IMAGE_HWIO, IMAGE_DENSE, true));
  }
  for (int i = 0; i < WINDOWS + UNEVEN_WINDOWS; ++i) {
    const window *q = i < WINDOWS ? &windows[i] : &uneven_windows[i - WINDOWS];
    if (q->groups == 1 && q->spatial <= 2) {
      check_shape(q, i);
    }
  }
}

/* ---- supported convolutions ---- */

static const window taken[] = {
    {2, 1, 512, 512, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},    /* weights outweigh what winograd saves */
    {2, 1, 512, 2048, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},   /* and the speed of a form */
    {2, 1, 1024, 256, 1, {16, 16}, {1, 1}, {1, 1}, {0, 0}, {1, 1}}, /* PIXELS_MAX */
    {2, 1, 256, 256, 1, {28, 28}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},  /* not transformed */
    {2, 6, 1024, 512, 1, {2, 2}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},   /* PIXELS_MIN */
    {1, 1, 256, 256, 1, {200}, {3}, {1}, {1}, {1}},
};
static const window left[] = {
    {2, 1, 256, 256, 1, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  /* to winograd */
    {2, 1, 1024, 256, 1, {16, 17}, {1, 1}, {1, 1}, {0, 0}, {1, 1}}, /* many pixels */
    {2, 1, 2048, 512, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},   /* one */
    {2, 8, 512, 512, 1, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},    /* short rows */
    {2, 1, 320, 512, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},    /* few weights */
    {2, 1, 1024, 1024, 4, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},  /* groups */
    {3, 1, 256, 512, 1, {3, 4, 5}, {1, 1, 1}, {1, 1, 1}, {0}, {1, 1, 1}},
};

/* For any layout of activations: the choice may not change bits between programs. */
HR_TEST(few_pixels_with_many_weights_are_taken) {
  cases_begin(&hr__few_pixels_provider);
  for (int i = 0; i < IMAGE_LAYOUTS; ++i) {
    image_layout layout = (image_layout)i;
    for (size_t k = 0; k < sizeof taken / sizeof *taken; ++k) {
      op_case t = few_case(&taken[k], layout, IMAGE_HWIO, layout, true);
      HR_ASSERT(op_case_is_taken(&t));
    }
    for (size_t k = 0; k < sizeof left / sizeof *left; ++k) {
      op_case t = few_case(&left[k], layout, IMAGE_HWIO, layout, true);
      HR_ASSERT(!op_case_is_taken(&t));
    }
  }
  op_case by_input = few_case(&taken[0], IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, true);
  HR_ASSERT(!op_case_is_taken(&by_input)); /* a row of weights has one output channel */
  op_case narrow = window_case(HR_OP_CONV, &taken[0], HR_DTYPE_BF16, IMAGE_DENSE, IMAGE_HWIO, IMAGE_DENSE, false);
  op_case gradient =
      window_case(HR_OP_CONV_BACKWARD_DATA, &taken[0], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_HWIO, IMAGE_DENSE, false);
  narrow.provider = gradient.provider = &hr__few_pixels_provider;
  HR_ASSERT(!op_case_is_taken(&narrow) && !op_case_is_taken(&gradient));
}

/* Neither this provider nor a candidate of autotuning makes a form. */
HR_TEST(few_pixels_cache_nothing) {
  cases_begin(&hr__few_pixels_provider);
  op_case t = few_case(&shapes[0], IMAGE_CHANNELS_LAST, IMAGE_HWIO, IMAGE_CHANNELS_LAST, false);
  op_case_begin(&t);
  HR_ASSERT(t.provider->keeps == NULL && t.provider->stamp == NULL && t.provider->is_settled(t.prepared));
  op_case_free(&t);
  op_case_end(&t);
}

/* ---- bits ---- */

static float *bits_of(const window *q, image_layout layout, int threads) {
  hr_thread_count_set(threads);
  op_case t = few_case(q, layout, IMAGE_HWIO, layout, true);
  random_state = 11;
  op_case_begin(&t);
  float *values = op_case_run_once(&t);
  hr_thread_count_set(0);
  return values;
}

HR_TEST(few_pixels_have_the_same_bits_with_any_threads_and_layout) {
  cases_begin(&hr__few_pixels_provider);
  for (int i = 0; i < SHAPES; ++i) {
    op_case t = few_case(&shapes[i], IMAGE_DENSE, IMAGE_HWIO, IMAGE_DENSE, false);
    size_t bytes = (size_t)tensor_count(op_case_output(&t)) * sizeof(float);
    float *one = bits_of(&shapes[i], IMAGE_CHANNELS_LAST, 1);
    for (int turn = 0; turn < IMAGE_LAYOUTS; ++turn) {
      float *other = bits_of(&shapes[i], (image_layout)turn, 1 + (turn + i) % 5);
      HR_ASSERT(memcmp(one, other, bytes) == 0);
      free(other);
    }
    free(one);
  }
}

/* Results are NaN and infinite exactly where those of plain loops are: taps outside of the image are skipped. */
HR_TEST(few_pixels_keep_what_is_not_finite_where_it_is) {
  cases_begin(&hr__few_pixels_provider);
  for (int i = 0; i < SHAPES; ++i) {
    op_case t = few_case(&shapes[i], IMAGE_CHANNELS_LAST, IMAGE_HWIO, IMAGE_DENSE, true);
    op_case_begin(&t);
    for (int k = 0; k < 2; ++k) {
      int64_t count = tensor_count(&t.tensors[k]);
      tensor_put(&t.tensors[k], count - 1, k == 0 ? NAN : -INFINITY);
      tensor_put(&t.tensors[k], 0, INFINITY);
    }
    op_case_run(&t);
    const tensor *out = op_case_output(&t);
    int64_t count = tensor_count(out);
    expected e = {calloc((size_t)count, sizeof(double)), calloc((size_t)count, sizeof(double))};
    HR_ASSERT(e.values != NULL && e.sizes != NULL);
    evaluate(&t, &e);
    for (int64_t k = 0; k < count; ++k) {
      double actual = read_element(out, tensor_at(out, k)), wanted = e.values[k];
      HR_ASSERT(isnan(wanted) ? isnan(actual) : isinf(wanted) ? actual == wanted : isfinite(actual));
    }
    free(e.values);
    free(e.sizes);
    op_case_free(&t);
    op_case_end(&t);
  }
}

/* ---- memory ---- */

HR_TEST(few_pixels_report_memory_that_is_out) {
  cases_begin(&hr__few_pixels_provider);
  op_case t = few_case(&shapes[0], IMAGE_DENSE, IMAGE_HWIO, IMAGE_DENSE, true);
  op_case_check_memory(&t);
}
