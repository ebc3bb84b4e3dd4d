/* Library rows that the host provider runs, against plain loops: each line by itself, one value after the other. */
#include "base/thread.h"
#include "core/op.h"
#include "hr_test.h"
#include "providers/provider.h"

enum { RANK = 4, OPERANDS = 6, GUARD_BYTES = 64, CANARY = 0xA5 };

typedef struct tensor {
  hr_dtype dtype;
  int rank;
  int64_t dims[RANK];
  unsigned char *bytes; /* of the first element; guards lie around it */
} tensor;

static int64_t count_of(const tensor *t) {
  int64_t count = 1;
  for (int d = 0; d < t->rank; ++d) {
    count *= t->dims[d];
  }
  return count;
}

static size_t bytes_of(const tensor *t) {
  return (size_t)count_of(t) * hr_dtype_size(t->dtype);
}

static tensor make_tensor(hr_dtype dtype, int rank, const int64_t *dims) {
  tensor t = {.dtype = dtype, .rank = rank};
  memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
  unsigned char *block = malloc(bytes_of(&t) + 2 * GUARD_BYTES);
  memset(block, CANARY, bytes_of(&t) + 2 * GUARD_BYTES);
  t.bytes = block + GUARD_BYTES;
  return t;
}
#define TENSOR(dtype, ...) \
  make_tensor(HR_DTYPE_##dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static void free_tensor(tensor *t) {
  for (int i = 0; i < GUARD_BYTES; ++i) {
    HR_ASSERT_EQ(t->bytes[-1 - i], CANARY);
    HR_ASSERT_EQ(t->bytes[bytes_of(t) + (size_t)i], CANARY);
  }
  free(t->bytes - GUARD_BYTES);
}

/* Runs one row; `inputs` and `outputs` end with an absent tensor's NULL bytes where rank is -1. */
static void run_row(hr_op op, int input_count, tensor *inputs, int output_count, tensor *outputs, int int_count,
                    const int64_t *ints) {
  hr_program program;
  hr_operand operands[OPERANDS] = {{0}};
  int64_t strides[OPERANDS][RANK];
  void *args[OPERANDS];
  hr_program_init(&program);
  for (int i = 0; i < input_count + output_count; ++i) {
    const tensor *t = i < input_count ? &inputs[i] : &outputs[i - input_count];
    args[i] = NULL;
    if (t->rank < 0) {
      continue;
    }
    int64_t stride = 1;
    for (int d = t->rank - 1; d >= 0; --d) {
      strides[i][d] = stride;
      stride *= t->dims[d];
    }
    uint32_t buffer = hr_program_add_buffer(&program, bytes_of(t), false, i >= input_count);
    operands[i] = (hr_operand){.kind = HR_OPERAND_VALUE,
                               .dtype = t->dtype,
                               .index = buffer,
                               .rank = t->rank,
                               .dims = t->dims,
                               .strides = strides[i],
                               .fill = HR_NO_SCALAR};
    args[i] = t->bytes;
  }
  hr_node node = {.op = op,
                  .input_count = input_count,
                  .output_count = output_count,
                  .inputs = operands,
                  .outputs = operands + input_count,
                  .int_count = int_count,
                  .ints = ints};
  hr_prepared *prepared = NULL;
  size_t workspace_bytes = 0;
  HR_ASSERT(hr__host_provider.supports(&program, &node));
  HR_ASSERT_OK(hr__host_provider.prepare(&program, &node, NULL, &prepared, &workspace_bytes));
  void *workspace = hr_aligned_malloc(workspace_bytes + 1, 64);
  memset(workspace, CANARY, workspace_bytes + 1);
  HR_ASSERT_OK(hr__host_provider.run(prepared, args, workspace, NULL));
  HR_ASSERT_EQ(((unsigned char *)workspace)[workspace_bytes], CANARY);
  hr_aligned_free(workspace);
  hr__host_provider.release(prepared);
  hr_program_fini(&program);
}

/* ---- values ---- */

static uint64_t random_state = 1;

static uint64_t random_bits(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return random_state >> 16;
}

static const hr_dtype sortable[] = {HR_DTYPE_BOOL, HR_DTYPE_U8,  HR_DTYPE_I8,  HR_DTYPE_U16, HR_DTYPE_I16,
                                    HR_DTYPE_U32,  HR_DTYPE_I32, HR_DTYPE_U64, HR_DTYPE_I64, HR_DTYPE_F16,
                                    HR_DTYPE_BF16, HR_DTYPE_F32, HR_DTYPE_F64};
enum { SORTABLE = sizeof sortable / sizeof *sortable };

/* Random bits, or one of a few values: ties, zeros of both signs, infinities and NaN come up often. */
static void fill(tensor *t) {
  static const double special[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 2};
  int64_t count = count_of(t);
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = random_bits();
    double value = special[bits % 8];
    bool is_special = bits / 8 % 2 == 0;
    switch (t->dtype) {
      case HR_DTYPE_BOOL:
        t->bytes[i] = bits & 1;
        break;
      case HR_DTYPE_F16:
        ((uint16_t *)(void *)t->bytes)[i] = is_special ? hr_f32_to_f16((float)value) : (uint16_t)(bits >> 8);
        break;
      case HR_DTYPE_BF16:
        ((uint16_t *)(void *)t->bytes)[i] = is_special ? hr_f32_to_bf16((float)value) : (uint16_t)(bits >> 8);
        break;
      case HR_DTYPE_F32:
        ((float *)(void *)t->bytes)[i] = is_special ? (float)value : (float)(int32_t)(uint32_t)bits / 77;
        break;
      case HR_DTYPE_F64:
        ((double *)(void *)t->bytes)[i] = is_special ? value : (double)(int64_t)(bits << 16) / 7;
        break;
      default:
        bits = bits * 0x9e3779b97f4a7c15u;
        memcpy(t->bytes + (size_t)i * hr_dtype_size(t->dtype), &bits, hr_dtype_size(t->dtype));
        break;
    }
  }
}

/* A value as a number that compares as it does; exact for 64-bit integers, too. */
static long double number(const tensor *t, int64_t i) {
  const unsigned char *at = t->bytes + (size_t)i * hr_dtype_size(t->dtype);
  switch (t->dtype) {
#define CASE(dtype_, type) \
  case HR_DTYPE_##dtype_:  \
    return *(const type *)(const void *)at;
    CASE(BOOL, uint8_t)
    CASE(U8, uint8_t)
    CASE(I8, int8_t)
    CASE(U16, uint16_t)
    CASE(I16, int16_t)
    CASE(U32, uint32_t)
    CASE(I32, int32_t)
    CASE(U64, uint64_t)
    CASE(I64, int64_t)
    CASE(F32, float)
    CASE(F64, double)
#undef CASE
    case HR_DTYPE_F16:
      return hr_f16_to_f32(*(const uint16_t *)(const void *)at);
    default:
      return hr_bf16_to_f32(*(const uint16_t *)(const void *)at);
  }
}

/* Whether a comes before b, NaN last. */
static bool is_before(long double a, long double b, bool descending) {
  if (isnan(a) || isnan(b)) {
    return descending ? isnan(a) && !isnan(b) : isnan(b) && !isnan(a);
  }
  return descending ? a > b : a < b;
}

/* Each place occurs once, values follow places, no value comes behind a later one, equal ones keep their order. */
static void expect_sorted(const tensor *x, const tensor *values, const tensor *places, int64_t first, int64_t count,
                          bool descending) {
  size_t size = hr_dtype_size(x->dtype);
  const int64_t *place = (const int64_t *)(const void *)places->bytes + first;
  bool *seen = calloc((size_t)count, 1);
  for (int64_t i = 0; i < count; ++i) {
    HR_ASSERT(place[i] >= 0 && place[i] < count && !seen[place[i]]);
    seen[place[i]] = true;
    HR_ASSERT_BYTES_EQ(values->bytes + (size_t)(first + i) * size, x->bytes + (size_t)(first + place[i]) * size, size);
    if (i > 0) {
      long double a = number(x, first + place[i - 1]), b = number(x, first + place[i]);
      HR_ASSERT(is_before(a, b, descending) || (!is_before(b, a, descending) && place[i - 1] < place[i]));
    }
  }
  free(seen);
}

static void try_sort(hr_dtype dtype, int64_t lines, int64_t count, bool descending) {
  tensor x = make_tensor(dtype, 2, (int64_t[]){lines, count}), values = make_tensor(dtype, 2, x.dims);
  tensor places = make_tensor(HR_DTYPE_I64, 2, x.dims);
  fill(&x);
  run_row(HR_OP_SORT, 1, &x, 2, (tensor[]){values, places}, 1, (int64_t[]){descending});
  for (int64_t line = 0; line < lines; ++line) {
    expect_sorted(&x, &values, &places, line * count, count, descending);
  }
  free_tensor(&x), free_tensor(&values), free_tensor(&places);
}

HR_TEST(sort_orders_every_dtype) {
  static const int64_t counts[] = {1, 2, 3, 39, 40, 41, 255, 1000, 5000};
  for (int t = 0; t < SORTABLE; ++t) {
    for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
      try_sort(sortable[t], 3, counts[c], false);
      try_sort(sortable[t], 3, counts[c], true);
    }
  }
}

HR_TEST(sort_shares_one_long_line) {
  for (int threads = 1; threads <= 5; ++threads) {
    hr_thread_count_set(threads);
    try_sort(HR_DTYPE_F32, 1, 70001, threads % 2 == 0);
    try_sort(HR_DTYPE_I64, 1, 70003, threads % 2 != 0);
    try_sort(HR_DTYPE_U8, 1, 65536, false);
  }
  hr_thread_count_set(0);
}

HR_TEST(topk_begins_like_sort) {
  static const int64_t wanted[] = {1, 2, 7, 41, 299, 300};
  for (int t = 0; t < SORTABLE; ++t) {
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted; ++k) {
      for (int largest = 0; largest < 2; ++largest) {
        tensor x = make_tensor(sortable[t], 2, (int64_t[]){4, 300});
        tensor all = make_tensor(sortable[t], 2, x.dims), all_places = make_tensor(HR_DTYPE_I64, 2, x.dims);
        tensor some = make_tensor(sortable[t], 2, (int64_t[]){4, wanted[k]});
        tensor some_places = make_tensor(HR_DTYPE_I64, 2, some.dims);
        fill(&x);
        run_row(HR_OP_SORT, 1, &x, 2, (tensor[]){all, all_places}, 1, (int64_t[]){largest});
        run_row(HR_OP_TOPK, 1, &x, 2, (tensor[]){some, some_places}, 1, (int64_t[]){largest});
        for (size_t line = 0, size = hr_dtype_size(x.dtype); line < 4; ++line) {
          HR_ASSERT_BYTES_EQ(some.bytes + line * (size_t)wanted[k] * size, all.bytes + line * 300 * size,
                             (size_t)wanted[k] * size);
          HR_ASSERT_BYTES_EQ(some_places.bytes + line * (size_t)wanted[k] * 8, all_places.bytes + line * 300 * 8,
                             (size_t)wanted[k] * 8);
        }
        free_tensor(&x), free_tensor(&all), free_tensor(&all_places), free_tensor(&some), free_tensor(&some_places);
      }
    }
  }
}

HR_TEST(outputs_may_be_absent) {
  tensor x = TENSOR(F32, 2, 3), places = TENSOR(I64, 2, 3), absent = {.rank = -1};
  const float given[] = {3, 1, 2, -1, NAN, -2};
  memcpy(x.bytes, given, sizeof given);
  run_row(HR_OP_SORT, 1, &x, 2, (tensor[]){absent, places}, 1, (int64_t[]){0});
  const int64_t expected[] = {1, 2, 0, 2, 0, 1};
  HR_ASSERT_BYTES_EQ(places.bytes, expected, sizeof expected);
  free_tensor(&x), free_tensor(&places);
}
