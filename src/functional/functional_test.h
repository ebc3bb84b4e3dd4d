/* functional_test.h: tensors and calls for tests of functions. Each call is also inferred without a stream. */
#ifndef HEADRACE_FUNCTIONAL_TEST_H_
#define HEADRACE_FUNCTIONAL_TEST_H_

#include "tensor_test.h"

enum { MOST = 4096 };

/* ---- tensors ---- */

static inline hr_tensor tensor_of(hr_dtype dtype, int rank, const int64_t *dims, const void *values) {
  hr_tensor x = new_tensor(dtype, rank, dims);
  hr_view view = hr_tensor_view(&x);
  HR_ASSERT_OK(hr_stream_write(stream, &view, values));
  return x;
}
#define F32(...)    \
  (const float[]) { \
    __VA_ARGS__     \
  }

/* 0, 1, 2, ... */
static inline hr_tensor counted(int rank, const int64_t *dims) {
  float values[MOST];
  for (int i = 0; i < MOST; ++i) {
    values[i] = (float)i;
  }
  return tensor_of(HR_DTYPE_F32, rank, dims, values);
}

/* The elements converted to this dtype, row-major. */
static inline void read_as(hr_dtype dtype, const hr_tensor *x, void *values) {
  hr_tensor converted;
  hr_attribute attribute = {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = dtype}};
  HR_ASSERT(hr_tensor_count(x) <= MOST);
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_ASTYPE, 1, &x, 1, &attribute, 1, &converted));
  hr_view view = hr_tensor_view(&converted);
  HR_ASSERT_OK(hr_stream_read(stream, &view, values));
  hr_tensor_release(&converted);
}
static inline void read(const hr_tensor *x, float *values) {
  read_as(HR_DTYPE_F32, x, values);
}
static inline void read_doubles(const hr_tensor *x, double *values) {
  read_as(HR_DTYPE_F64, x, values);
}

/* NaN equals NaN. */
static inline bool is_close(double actual, double expected, double tolerance) {
  return actual == expected || (isnan(actual) && isnan(expected)) ||
         fabs(actual - expected) <= tolerance * (1 + fabs(expected));
}

static inline void expect_values(const hr_tensor *x, int64_t count, const float *expected) {
  float values[MOST];
  read(x, values);
  HR_ASSERT_EQ(hr_tensor_count(x), count);
  for (int64_t i = 0; i < count; ++i) {
    if (!is_close((double)values[i], (double)expected[i], 1e-5)) {
      HR_FAIL("element %d is %.9g, expected %.9g", (int)i, (double)values[i], (double)expected[i]);
    }
  }
}
#define EXPECT(x, ...) expect_values(x, sizeof(F32(__VA_ARGS__)) / sizeof(float), F32(__VA_ARGS__))

static inline void expect_type(const hr_tensor *x, hr_dtype dtype, int rank, const int64_t *dims) {
  HR_ASSERT_EQ(x->dtype, dtype);
  HR_ASSERT_EQ(x->rank, rank);
  for (int d = 0; d < rank; ++d) {
    HR_ASSERT_EQ(x->dims[d], dims[d]);
  }
}

/* ---- calls ---- */

#define INTS_OF(...)                                                                                   \
  {                                                                                                    \
    .kind = HR_ATTRIBUTE_INTS, .count = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .value = { \
      .ints = (const int64_t[]){__VA_ARGS__}                                                           \
    }                                                                                                  \
  }
#define INT_OF(number)                                        \
  {                                                           \
    .kind = HR_ATTRIBUTE_INT, .value = {.integer = (number) } \
  }
#define FLAG_OF(number)                                        \
  {                                                            \
    .kind = HR_ATTRIBUTE_FLAG, .value = {.integer = (number) } \
  }
#define REAL_OF(scalar)                                       \
  {                                                           \
    .kind = HR_ATTRIBUTE_REAL, .value = {.number = (scalar) } \
  }
#define DTYPE_OF(which)                                      \
  {                                                          \
    .kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = (which) } \
  }
#define DEFAULT \
  { .kind = HR_ATTRIBUTE_NONE }
#define WITH(...)                                                                                     \
  (int)(sizeof((const hr_attribute[]){__VA_ARGS__}) / sizeof(hr_attribute)), (const hr_attribute[]) { \
    __VA_ARGS__                                                                                       \
  }
#define PLAIN 0, NULL
#define ON(...)                                                                                         \
  (int)(sizeof((const hr_tensor *[]){__VA_ARGS__}) / sizeof(hr_tensor *)), (const hr_tensor *const[]) { \
    __VA_ARGS__                                                                                         \
  }

/* The results; an inference of the same call gives their types. */
static inline void apply_all(hr_functional function, int input_count, const hr_tensor *const *inputs,
                             int attribute_count, const hr_attribute *attributes, int count, hr_tensor *results) {
  open_stream();
  hr_tensor types[8], inferred[4];
  const hr_tensor *without[8];
  HR_ASSERT_OK(hr_functional_apply(stream, function, input_count, inputs, attribute_count, attributes, count, results));
  for (int i = 0; i < input_count; ++i) {
    if (inputs[i] != NULL) {
      types[i] = *inputs[i];
      types[i].buffer = NULL;
    }
    without[i] = inputs[i] != NULL ? &types[i] : NULL;
  }
  HR_ASSERT_OK(hr_functional_apply(NULL, function, input_count, without, attribute_count, attributes, count, inferred));
  for (int i = 0; i < count; ++i) {
    expect_type(&inferred[i], results[i].dtype, results[i].rank, results[i].dims);
    HR_ASSERT(inferred[i].buffer == NULL);
    HR_ASSERT_EQ(inferred[i].offset, results[i].offset);
    for (int d = 0; d < results[i].rank; ++d) {
      HR_ASSERT_EQ(inferred[i].strides[d], results[i].strides[d]);
    }
  }
}

/* The same with one result. */
static inline hr_tensor apply(hr_functional function, int input_count, const hr_tensor *const *inputs,
                              int attribute_count, const hr_attribute *attributes) {
  hr_tensor result;
  apply_all(function, input_count, inputs, attribute_count, attributes, 1, &result);
  return result;
}

/* A call whose result has these elements, or type and elements; the result is dropped. */
#define GIVES(call, ...)         \
  do {                           \
    hr_tensor given = call;      \
    EXPECT(&given, __VA_ARGS__); \
    hr_tensor_release(&given);   \
  } while (0)

static inline void release_all(int count, hr_tensor *const *tensors) {
  for (int i = 0; i < count; ++i) {
    hr_tensor_release(tensors[i]);
  }
}
#define RELEASE(...) \
  release_all((int)(sizeof((hr_tensor *[]){__VA_ARGS__}) / sizeof(hr_tensor *)), (hr_tensor *[]){__VA_ARGS__})

static inline void expect_failure(const char *text, hr_functional function, int input_count,
                                  const hr_tensor *const *inputs, int attribute_count, const hr_attribute *attributes) {
  open_stream();
  hr_tensor result = {.rank = 77};
  hr_status status =
      hr_functional_apply(stream, function, input_count, inputs, attribute_count, attributes, 1, &result);
  HR_ASSERT_NOT_NULL(status);
  if (strstr(hr_status_message(status), text) == NULL) {
    HR_FAIL("\"%s\" is not in \"%s\"", text, hr_status_message(status));
  }
  hr_status_free(status);
  HR_ASSERT_EQ(result.rank, 77);
}

#endif
