#ifndef WEIGHT_CASES_H
#define WEIGHT_CASES_H
/* Cases for providers of convolutions' gradients of weights: which they take, bits, errors, numbers that are not
 * finite. Each is checked against plain loops in double precision (provider_cases.h).
 */
#include "base/thread.h"
#include "provider_cases.h"

static inline op_case weight_case(const hr_provider *provider, const window *q, hr_dtype dtype, image_layout x,
                                  image_layout w, image_layout y) {
  op_case t = window_case(HR_OP_CONV_BACKWARD_WEIGHT, q, dtype, x, w, y, false);
  t.provider = provider;
  return t;
}

/* ---- supported convolutions ---- */

static inline bool weight_is_taken(const hr_provider *provider, const window *q, hr_dtype dtype, image_layout x,
                                   image_layout y) {
  op_case t = weight_case(provider, q, dtype, x, IMAGE_DENSE, y);
  return op_case_is_taken(&t);
}

/* The provider takes these in f32, whatever their layouts, and nothing else of them. */
static inline void weights_check_taken(const hr_provider *provider, const window *taken, size_t count) {
  for (const window *q = taken; q < taken + count; ++q) {
    HR_ASSERT(weight_is_taken(provider, q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_CHANNELS_LAST));
    HR_ASSERT(weight_is_taken(provider, q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_SWAPPED));
    HR_ASSERT(!weight_is_taken(provider, q, HR_DTYPE_BF16, IMAGE_CHANNELS_LAST, IMAGE_CHANNELS_LAST));
  }
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_DATA; ++op) {
    op_case t = window_case(op, taken, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
    t.provider = provider;
    HR_ASSERT(!op_case_is_taken(&t));
  }
}

static inline void weights_check_left(const hr_provider *provider, const window *left, size_t count) {
  for (const window *q = left; q < left + count; ++q) {
    HR_ASSERT(!weight_is_taken(provider, q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_CHANNELS_LAST));
  }
}

/* ---- bits ---- */

/* Runs with `threads`, although it was prepared for `prepared_threads`. Caller owns the elements of w. */
static inline float *weight_bits(op_case *t, int prepared_threads, int threads) {
  hr_thread_count_set(prepared_threads);
  random_state = 11;
  op_case_begin(t);
  hr_thread_count_set(threads);
  float *bits = op_case_run_once(t);
  hr_thread_count_set(0);
  return bits;
}

/* Dense elements of w are the same with each number of threads and each layout. */
static inline void weights_check_bits(const hr_provider *provider, const window *q, const int *threads, int count,
                                      int turn) {
  size_t bytes = (size_t)(q->in / q->groups * q->out * q->kernel[0] * q->kernel[1]) * sizeof(float);
  float *one = NULL;
  for (int i = 0; i < count; ++i) {
    image_layout layout = (image_layout)((turn + i) % IMAGE_LAYOUTS);
    op_case t = weight_case(provider, q, HR_DTYPE_F32, i % 2 == 0 ? IMAGE_CHANNELS_LAST : layout,
                            (image_layout)((turn + 2 * i) % IMAGE_LAYOUTS), layout);
    float *bits = weight_bits(&t, threads[i], 2);
    HR_ASSERT(one == NULL || memcmp(one, bits, bytes) == 0);
    free(one);
    one = bits;
  }
  free(one);
}

/* ---- numbers ---- */

/* An element of w as a sum in order: exact, and of f32. */
typedef struct weight_sums {
  double exact;
  float in_order;
} weight_sums;

static inline void add_product(const op_case *t, int64_t x_at, int64_t y_at, weight_sums *sums) {
  const tensor *x = &t->tensors[0], *y = &t->tensors[1];
  double a = read_element(x, tensor_at(x, x_at)), b = read_element(y, tensor_at(y, y_at));
  sums->exact += a * b;
  sums->in_order = fmaf((float)a, (float)b, sums->in_order);
}

/* Of element [out,in,row,column] of w, with strides of one. */
static inline weight_sums weight_sums_of(const op_case *t, const window *q, const int64_t at[4]) {
  const int64_t *dims = t->tensors[1].dims;
  weight_sums sums = {0, 0};
  for (int64_t i = 0; i < q->batch * dims[2]; ++i) {
    int64_t image = i / dims[2], row = i % dims[2] + at[2] - q->padding[0], left = at[3] - q->padding[1];
    int64_t x_row = ((image * q->in + at[1]) * q->dims[0] + row) * q->dims[1];
    int64_t y_row = ((image * q->out + at[0]) * dims[2] + i % dims[2]) * dims[3];
    for (int64_t column = 0; row >= 0 && row < q->dims[0] && column < dims[3]; ++column) {
      if (column + left >= 0 && column + left < q->dims[1]) {
        add_product(t, x_row + column + left, y_row + column, &sums);
      }
    }
  }
  return sums;
}

/* The mean squared error is at most `most` times that of sums in order. */
static inline void weights_check_errors(const hr_provider *provider, const window *q, double most) {
  op_case t = weight_case(provider, q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST);
  op_case_begin(&t);
  op_case_run(&t);
  const tensor *w = op_case_output(&t);
  int64_t taps = q->kernel[0] * q->kernel[1];
  double own = 0, in_order = 0;
  for (int64_t i = 0; i < tensor_count(w); ++i) {
    const int64_t at[] = {i / taps / q->in, i / taps % q->in, i % taps / q->kernel[1], i % q->kernel[1]};
    weight_sums sums = weight_sums_of(&t, q, at);
    double error = read_element(w, tensor_at(w, i)) - sums.exact, other = sums.in_order - sums.exact;
    own += error * error, in_order += other * other;
  }
  HR_ASSERT(own > 0 && own <= most * in_order);
  op_case_free(&t);
  op_case_end(&t);
}

/* Changes operands before a run. */
typedef void (*change_fn)(op_case *t);

/* Number of elements that are not finite; those and the others are as expected. */
static inline int64_t weights_count_odd(op_case *t) {
  const tensor *w = op_case_output(t);
  int64_t count = tensor_count(w), odd = 0;
  expected e = {calloc((size_t)count, sizeof(double)), calloc((size_t)count, sizeof(double))};
  HR_ASSERT(e.values != NULL && e.sizes != NULL);
  evaluate(t, &e);
  for (int64_t i = 0; i < count; ++i) {
    double actual = read_element(w, tensor_at(w, i)), wanted = e.values[i];
    odd += !isfinite(wanted);
    HR_ASSERT(isnan(wanted)   ? isnan(actual)
              : isinf(wanted) ? actual == wanted
                              : fabs(actual - wanted) <= 2e-6 * (e.sizes[i] > 1 ? e.sizes[i] : 1));
  }
  free(e.values);
  free(e.sizes);
  return odd;
}

/* Some elements are not finite after the change if `has_odd`, else none; never all. */
static inline void weights_check_odd(const hr_provider *provider, const window *q, image_layout layout, int threads,
                                     change_fn change, bool has_odd) {
  hr_thread_count_set(threads);
  op_case t = weight_case(provider, q, HR_DTYPE_F32, layout, IMAGE_DENSE, IMAGE_CHANNELS_LAST);
  op_case_begin(&t);
  change(&t);
  op_case_run(&t);
  int64_t odd = weights_count_odd(&t);
  HR_ASSERT(has_odd ? odd > 0 && odd < tensor_count(op_case_output(&t)) : odd == 0);
  op_case_free(&t);
  op_case_end(&t);
  hr_thread_count_set(0);
}

#endif
