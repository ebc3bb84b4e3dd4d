/* Library rows that the host provider runs, against plain loops: each line by itself, one value after the other. */
#include "base/thread.h"
#include "core/ops/op.h"
#include "hr_test.h"
#include "providers/provider.h"

enum { RANK = 4, OPERANDS = 6, GUARD_BYTES = 64, CANARY = 0xA5 };

typedef struct tensor {
  hr_dtype dtype;
  int rank;
  int64_t dims[RANK];
  unsigned char *bytes; /* of the first element; guards surround it */
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

/* Runs one row; absent tensors have rank -1 and NULL bytes. */
static double factor = 1; /* the scalar of rows that have one */

static void run_row(hr_op op, int input_count, tensor *inputs, int output_count, tensor *outputs, int int_count,
                    const int64_t *ints) {
  hr_program program;
  hr_operand operands[OPERANDS] = {{0}};
  int64_t strides[OPERANDS][RANK];
  void *args[OPERANDS + 1];
  hr_scalar scalar = hr_scalar_f64(factor);
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
                  .scalar_count = op == HR_OP_SEGMENTS ? 1 : hr_op_table(op)->scalar_count, /* composites have none */
                  .ints = ints};
  args[input_count + output_count] = &scalar;
  hr_prepared *prepared = NULL;
  size_t workspace_bytes = 0;
  HR_ASSERT(hr__host_provider.supports(&program, &node));
  HR_ASSERT_OK(hr__host_provider.prepare(&program, &node, HR_ALGORITHM_OWN, NULL, &prepared, &workspace_bytes));
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

/* Random bits, or one of a few values: ties, zeros of both signs, infinities and NaN are frequent. */
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

/* A value as a number that compares alike; exact for 64-bit integers, too. */
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

/* True if a comes before b, NaN last. */
static bool is_before(long double a, long double b, bool descending) {
  if (isnan(a) || isnan(b)) {
    return descending ? isnan(a) && !isnan(b) : isnan(b) && !isnan(a);
  }
  return descending ? a > b : a < b;
}

/* Each place occurs once, values match places, the order is right, and equal values keep their order. */
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
  static const int64_t wanted[] = {1, 2, 7, 41, 700, 2999, 3000};
  for (int t = 0; t < SORTABLE; ++t) {
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted; ++k) {
      for (int largest = 0; largest < 2; ++largest) {
        tensor x = make_tensor(sortable[t], 2, (int64_t[]){4, 3000});
        tensor all = make_tensor(sortable[t], 2, x.dims), all_places = make_tensor(HR_DTYPE_I64, 2, x.dims);
        tensor some = make_tensor(sortable[t], 2, (int64_t[]){4, wanted[k]});
        tensor some_places = make_tensor(HR_DTYPE_I64, 2, some.dims);
        fill(&x);
        run_row(HR_OP_SORT, 1, &x, 2, (tensor[]){all, all_places}, 1, (int64_t[]){largest});
        run_row(HR_OP_TOPK, 1, &x, 2, (tensor[]){some, some_places}, 1, (int64_t[]){largest});
        for (size_t line = 0, size = hr_dtype_size(x.dtype); line < 4; ++line) {
          HR_ASSERT_BYTES_EQ(some.bytes + line * (size_t)wanted[k] * size, all.bytes + line * 3000 * size,
                             (size_t)wanted[k] * size);
          HR_ASSERT_BYTES_EQ(some_places.bytes + line * (size_t)wanted[k] * 8, all_places.bytes + line * 3000 * 8,
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

/* ---- one value of a line ---- */

/* The number of values before value i of a line, NaN last, equal ones by their places. */
static int64_t rank_of(const tensor *x, int64_t first, int64_t count, int64_t i) {
  int64_t before = 0;
  for (int64_t j = 0; j < count; ++j) {
    long double a = number(x, first + j), b = number(x, first + i);
    before += is_before(a, b, false) || (!is_before(b, a, false) && j < i);
  }
  return before;
}

static int64_t count_nans(const tensor *x, int64_t first, int64_t count) {
  int64_t nans = 0;
  for (int64_t i = 0; i < count; ++i) {
    nans += isnan(number(x, first + i));
  }
  return nans;
}

HR_TEST(kth_and_medians_have_their_rank) {
  static const int64_t counts[] = {1, 2, 9, 60, 301, 9001};
  for (int t = 0; t < SORTABLE; ++t) {
    for (size_t c = 0; c < sizeof counts / sizeof *counts; ++c) {
      int64_t count = counts[c];
      tensor x = make_tensor(sortable[t], 2, (int64_t[]){5, count}), value = make_tensor(sortable[t], 1, x.dims);
      tensor place = make_tensor(HR_DTYPE_I64, 1, x.dims);
      fill(&x);
      for (int kind = 0; kind < 3; ++kind) {
        int64_t wanted = (int64_t)(random_bits() % (uint64_t)count);
        run_row(HR_OP_KTH, 1, &x, 2, (tensor[]){value, place}, 2, (int64_t[]){kind, wanted});
        for (int64_t line = 0; line < 5; ++line) {
          int64_t at = ((int64_t *)(void *)place.bytes)[line], nans = count_nans(&x, line * count, count);
          int64_t rank = kind == 0                    ? wanted
                         : kind == 1 && nans > 0      ? count - nans
                         : kind == 2 && nans == count ? 0
                                                      : (count - (kind == 2 ? nans : 0) - 1) / 2;
          HR_ASSERT_EQ(rank_of(&x, line * count, count, at), rank);
        }
      }
      free_tensor(&x), free_tensor(&value), free_tensor(&place);
    }
  }
}

HR_TEST(mode_counts) {
  tensor x = TENSOR(I16, 2, 7), value = TENSOR(I16, 2), place = TENSOR(I64, 2);
  const int16_t given[] = {3, 1, 3, 1, 2, 2, 9, 5, 5, 5, -1, -1, -1, 0}, expected[] = {1, -1};
  memcpy(x.bytes, given, sizeof given);
  run_row(HR_OP_MODE, 1, &x, 2, (tensor[]){value, place}, 0, NULL);
  HR_ASSERT_BYTES_EQ(value.bytes, expected, sizeof expected);
  HR_ASSERT_EQ(((int64_t *)(void *)place.bytes)[0], 3);
  HR_ASSERT_EQ(((int64_t *)(void *)place.bytes)[1], 5);
  free_tensor(&x), free_tensor(&value), free_tensor(&place);
}

/* More values than one thread searches at a time, in several lines of every dtype. */
static void check_search(int64_t bound_count, int64_t value_count) {
  enum { LINES = 3 };
  for (int t = 0; t < SORTABLE; ++t) {
    tensor bounds = make_tensor(sortable[t], 2, (int64_t[]){LINES, bound_count});
    tensor ordered = make_tensor(sortable[t], 2, bounds.dims),
           x = make_tensor(sortable[t], 2, (int64_t[]){LINES, value_count});
    tensor places = make_tensor(HR_DTYPE_I64, 2, bounds.dims), out = make_tensor(HR_DTYPE_I64, 2, x.dims);
    tensor absent = {.rank = -1};
    fill(&bounds), fill(&x);
    run_row(HR_OP_SORT, 1, &bounds, 2, (tensor[]){ordered, places}, 1, (int64_t[]){0});
    for (int behind = 0; behind < 2; ++behind) {
      for (int sorted = 0; sorted < 2; ++sorted) {
        run_row(HR_OP_SEARCH, 3, (tensor[]){sorted ? ordered : bounds, x, sorted ? absent : places}, 1, &out, 1,
                (int64_t[]){behind});
        for (int64_t i = 0; i < LINES * value_count; ++i) {
          int64_t before = 0;
          for (int64_t j = 0; j < bound_count; ++j) {
            long double bound = number(&bounds, i / value_count * bound_count + j), value = number(&x, i);
            before += is_before(bound, value, false) || (behind && !is_before(value, bound, false));
          }
          HR_ASSERT_EQ(((int64_t *)(void *)out.bytes)[i], before);
        }
      }
    }
    free_tensor(&bounds), free_tensor(&ordered), free_tensor(&x), free_tensor(&places);
    free_tensor(&out);
  }
}

HR_TEST(search_counts_what_comes_before) {
  check_search(37, 2500);
  check_search(37, 20); /* fewer values than boundaries, and more boundaries than become keys at once */
  check_search(1100, 33);
  check_search(200, 300);
}

HR_TEST(search_finds_places_on_both_sides) {
  tensor bounds = TENSOR(F32, 4), x = TENSOR(F32, 6), order = TENSOR(I64, 4), out = TENSOR(I64, 6);
  const float given[] = {5, 1, 3, 3}, values[] = {0, 3, 4, 5, 9, NAN};
  const int64_t places[] = {1, 2, 3, 0}, left[] = {0, 1, 3, 3, 4, 4}, right[] = {0, 3, 3, 4, 4, 4};
  memcpy(bounds.bytes, given, sizeof given), memcpy(x.bytes, values, sizeof values);
  memcpy(order.bytes, places, sizeof places);
  run_row(HR_OP_SEARCH, 3, (tensor[]){bounds, x, order}, 1, &out, 1, (int64_t[]){0});
  HR_ASSERT_BYTES_EQ(out.bytes, left, sizeof left);
  run_row(HR_OP_SEARCH, 3, (tensor[]){bounds, x, order}, 1, &out, 1, (int64_t[]){1});
  HR_ASSERT_BYTES_EQ(out.bytes, right, sizeof right);
  free_tensor(&bounds), free_tensor(&x), free_tensor(&order), free_tensor(&out);
}

HR_TEST(unique_tells_rows_apart) {
  tensor x = TENSOR(I32, 6, 2), first = TENSOR(I64, 6), inverse = TENSOR(I64, 6), counts = TENSOR(I64, 6);
  tensor found = TENSOR(I64, 1);
  const int32_t given[] = {2, 1, 1, 5, 2, 1, 2, 0, 2, 0, 1, 5};
  const int64_t in_order[] = {1, 3, 0}, sizes[] = {2, 2, 2}, where[] = {2, 0, 2, 1, 1, 0}, runs[] = {0, 1, 2, 3, 5};
  memcpy(x.bytes, given, sizeof given);
  run_row(HR_OP_UNIQUE, 1, &x, 4, (tensor[]){first, inverse, counts, found}, 1, (int64_t[]){0});
  HR_ASSERT_EQ(((int64_t *)(void *)found.bytes)[0], 3);
  HR_ASSERT_BYTES_EQ(first.bytes, in_order, sizeof in_order);
  HR_ASSERT_BYTES_EQ(counts.bytes, sizes, sizeof sizes);
  HR_ASSERT_BYTES_EQ(inverse.bytes, where, sizeof where);
  run_row(HR_OP_UNIQUE, 1, &x, 4, (tensor[]){first, inverse, counts, found}, 1, (int64_t[]){1});
  HR_ASSERT_EQ(((int64_t *)(void *)found.bytes)[0], 5);
  HR_ASSERT_BYTES_EQ(first.bytes, runs, sizeof runs);
  free_tensor(&x), free_tensor(&first), free_tensor(&inverse), free_tensor(&counts), free_tensor(&found);
}

/* Masks of all densities, over several threads' chunks; fewer and more elements than there are places. */
HR_TEST(places_of_a_mask) {
  static const int64_t lengths[] = {1, 63, 64, 65, 1000, 16384, 16385, 100003};
  for (size_t k = 0; k < sizeof lengths / sizeof *lengths; ++k) {
    for (uint64_t one_in = 0; one_in < 5; ++one_in) {
      tensor mask = make_tensor(HR_DTYPE_BOOL, 1, &lengths[k]);
      int64_t count = 0;
      for (int64_t i = 0; i < lengths[k]; ++i) {
        mask.bytes[i] = one_in > 0 && (one_in == 4 ? i % 999 == 7 : random_bits() % one_in == 0);
        count += mask.bytes[i];
      }
      const int64_t rooms[] = {count, count + 5, count / 2};
      for (int r = 0; r < 3; ++r) {
        tensor out = make_tensor(HR_DTYPE_I64, 1, &rooms[r]);
        const int64_t *places = (const int64_t *)(const void *)out.bytes;
        if (rooms[r] > 0) {
          run_row(HR_OP_PLACES, 1, &mask, 1, &out, 0, NULL);
        }
        int64_t at = 0;
        for (int64_t i = 0; i < lengths[k] && at < rooms[r]; ++i) {
          if (mask.bytes[i] != 0) {
            HR_ASSERT_EQ(places[at++], i);
          }
        }
        for (; at < rooms[r]; ++at) {
          HR_ASSERT_EQ(places[at], -1);
        }
        free_tensor(&out);
      }
      free_tensor(&mask);
    }
  }
}

/* Lines of one number in every dtype, consecutive and sorted; NaN equals nothing, -0 equals 0. */
HR_TEST(unique_numbers_of_every_dtype) {
  enum { N = 1000 };
  for (int t = 0; t < SORTABLE; ++t) {
    tensor x = make_tensor(sortable[t], 2, (int64_t[]){N, 1}), first = TENSOR(I64, N), inverse = TENSOR(I64, N);
    tensor counts = TENSOR(I64, N), found = TENSOR(I64, 1), absent = {.rank = -1};
    fill(&x);
    for (int64_t i = 1; i < N; ++i) { /* runs of equal numbers */
      if (random_bits() % 3 != 0) {
        memcpy(x.bytes + (size_t)i * hr_dtype_size(x.dtype), x.bytes + (size_t)(i - 1) * hr_dtype_size(x.dtype),
               hr_dtype_size(x.dtype));
      }
    }
    const int64_t *firsts = (const int64_t *)(const void *)first.bytes,
                  *number_of_kinds = (const int64_t *)(const void *)found.bytes;
    const int64_t *kinds = (const int64_t *)(const void *)inverse.bytes,
                  *sizes = (const int64_t *)(const void *)counts.bytes;
    run_row(HR_OP_UNIQUE, 1, &x, 4, (tensor[]){first, inverse, counts, found}, 1, (int64_t[]){1});
    int64_t kind = -1, size = 0;
    for (int64_t i = 0; i < N; ++i) {
      if (i == 0 || number(&x, i) != number(&x, i - 1)) {
        HR_ASSERT(kind < 0 || sizes[kind] == size);
        HR_ASSERT_EQ(firsts[++kind], i);
        size = 0;
      }
      ++size;
      HR_ASSERT_EQ(kinds[i], kind);
    }
    HR_ASSERT_EQ(sizes[kind], size);
    HR_ASSERT_EQ(*number_of_kinds, kind + 1);
    for (int64_t i = kind + 1; i < N; ++i) {
      HR_ASSERT_EQ(firsts[i], 0);
    }
    run_row(HR_OP_UNIQUE, 1, &x, 4, (tensor[]){first, absent, absent, found}, 1, (int64_t[]){0});
    for (int64_t i = 1; i < *number_of_kinds; ++i) {
      HR_ASSERT(is_before(number(&x, firsts[i - 1]), number(&x, firsts[i]), false) || isnan(number(&x, firsts[i])));
    }
    for (int64_t i = 0; i < N; ++i) { /* every number occurs, with its first place */
      int64_t k = 0;
      while (k < *number_of_kinds && number(&x, firsts[k]) != number(&x, i)) {
        ++k;
      }
      HR_ASSERT(isnan(number(&x, i)) || (k < *number_of_kinds && firsts[k] <= i));
    }
    free_tensor(&x), free_tensor(&first), free_tensor(&inverse), free_tensor(&counts), free_tensor(&found);
  }
}

/* ---- running sums ---- */

static double number_of(const tensor *t, int64_t i) {
  const void *p = t->bytes + (size_t)i * hr_dtype_size(t->dtype);
  switch (t->dtype) {
    case HR_DTYPE_F32:
      return (double)*(const float *)p;
    case HR_DTYPE_F64:
      return *(const double *)p;
    case HR_DTYPE_BF16:
      return (double)hr_bf16_to_f32(*(const uint16_t *)p);
    case HR_DTYPE_F16:
      return (double)hr_f16_to_f32(*(const uint16_t *)p);
    case HR_DTYPE_I32:
      return (double)*(const int32_t *)p;
    case HR_DTYPE_I64:
      return (double)*(const int64_t *)p;
    default:
      return (double)*(const unsigned char *)p;
  }
}

static void put_number(tensor *t, int64_t i, double value) {
  void *p = t->bytes + (size_t)i * hr_dtype_size(t->dtype);
  switch (t->dtype) {
    case HR_DTYPE_F32:
      *(float *)p = (float)value;
      return;
    case HR_DTYPE_F64:
      *(double *)p = value;
      return;
    case HR_DTYPE_BF16:
      *(uint16_t *)p = hr_f32_to_bf16((float)value);
      return;
    case HR_DTYPE_F16:
      *(uint16_t *)p = hr_f32_to_f16((float)value);
      return;
    case HR_DTYPE_I32:
      *(int32_t *)p = (int32_t)value;
      return;
    case HR_DTYPE_I64:
      *(int64_t *)p = (int64_t)value;
      return;
    default:
      *(unsigned char *)p = (unsigned char)value;
      return;
  }
}

/* [outer, n, inner] along the middle, element by element in double: every sum of these numbers and every product is
 * exact until it is stored. */
static void try_scan(hr_op op, hr_dtype dtype, hr_dtype result, int64_t outer, int64_t n, int64_t inner) {
  int64_t dims[3] = {outer, n, inner};
  tensor x = make_tensor(dtype, 3, dims), y = make_tensor(result, 3, dims), expected = make_tensor(result, 3, dims);
  for (int64_t i = 0; i < count_of(&x); ++i) {
    double sign_or_two = i / inner % 97 == 0 ? 2 : dtype != HR_DTYPE_U8 && random_bits() % 2 == 0 ? -1 : 1;
    double number = op == HR_OP_CUMPROD ? sign_or_two : (double)(random_bits() % 100);
    put_number(&x, i, dtype == HR_DTYPE_BOOL ? (double)(random_bits() % 2) : number);
  }
  run_row(op, 1, &x, 1, &y, 1, (int64_t[]){1});
  for (int64_t line = 0; line < outer * inner; ++line) {
    int64_t start = line / inner * n * inner + line % inner;
    double so_far = op == HR_OP_CUMPROD;
    for (int64_t k = 0; k < n; ++k) {
      double number = number_of(&x, start + k * inner);
      so_far = op == HR_OP_CUMPROD ? so_far * number : so_far + number;
      put_number(&expected, start + k * inner, so_far);
    }
  }
  HR_ASSERT_BYTES_EQ(y.bytes, expected.bytes, bytes_of(&y));
  free_tensor(&x), free_tensor(&y), free_tensor(&expected);
}

/* Sums of exponentials, against long double; they never cancel. */
static void try_logcumsumexp(hr_dtype dtype, double bound, int64_t outer, int64_t n, int64_t inner) {
  int64_t dims[3] = {outer, n, inner};
  tensor x = make_tensor(dtype, 3, dims), y = make_tensor(dtype, 3, dims);
  for (int64_t i = 0; i < count_of(&x); ++i) {
    put_number(&x, i, i % 41 == 0 ? -HUGE_VAL : (double)(random_bits() % 4000) * 0.01 - 20);
  }
  run_row(HR_OP_LOGCUMSUMEXP, 1, &x, 1, &y, 1, (int64_t[]){1});
  for (int64_t line = 0; line < outer * inner; ++line) {
    int64_t start = line / inner * n * inner + line % inner;
    long double sum = 0;
    for (int64_t k = 0; k < n; ++k) {
      sum += expl((long double)number_of(&x, start + k * inner));
      double expected = (double)logl(sum), actual = number_of(&y, start + k * inner);
      HR_ASSERT(actual == expected || fabs(actual - expected) <= bound * fmax(1, fabs(expected)));
    }
  }
  free_tensor(&x), free_tensor(&y);
}

HR_TEST(running_sums_of_exponentials) {
  try_logcumsumexp(HR_DTYPE_F32, 1e-7, 1, 1000, 1);
  try_logcumsumexp(HR_DTYPE_F32, 1e-7, 3, 256, 21);
  try_logcumsumexp(HR_DTYPE_F64, 1e-14, 37, 300, 1);
  try_logcumsumexp(HR_DTYPE_BF16, 0.004, 2, 300, 16);
  try_logcumsumexp(HR_DTYPE_F16, 0.0005, 5, 256, 3);
}

HR_TEST(running_sums_and_products_of_lines_and_columns) {
  static const hr_op ops[] = {HR_OP_CUMSUM, HR_OP_CUMPROD};
  static const hr_dtype types[][2] = {{HR_DTYPE_F32, HR_DTYPE_F32},  {HR_DTYPE_F64, HR_DTYPE_F64},
                                      {HR_DTYPE_F16, HR_DTYPE_F16},  {HR_DTYPE_BF16, HR_DTYPE_BF16},
                                      {HR_DTYPE_BOOL, HR_DTYPE_I64}, {HR_DTYPE_U8, HR_DTYPE_I64},
                                      {HR_DTYPE_I32, HR_DTYPE_I64},  {HR_DTYPE_I64, HR_DTYPE_I64}};
  for (size_t i = 0; i < 2 * sizeof types / sizeof *types; ++i) {
    hr_op op = ops[i % 2];
    hr_dtype from = types[i / 2][0], to = types[i / 2][1];
    try_scan(op, from, to, 1, 256, 1);
    try_scan(op, from, to, 37, 300, 1);
    try_scan(op, from, to, 1, 1025, 33);
    try_scan(op, from, to, 3, 321, 16);
    try_scan(op, from, to, 5, 270, 7);
    try_scan(op, from, to, 3, 8, 1);
    try_scan(op, from, to, 2, 2100, 1);
    try_scan(op, from, to, 40, 17, 1);
    try_scan(op, from, to, 2, 9, 5);
  }
}

/* Lines that are processed together and the remaining ones add in the same order. */
HR_TEST(a_line_of_running_sums_does_not_depend_on_its_neighbours) {
  enum { LINES = 7, N = 1000 };
  static const hr_op ops[] = {HR_OP_CUMSUM, HR_OP_CUMPROD};
  for (int i = 0; i < 2; ++i) {
    tensor x = make_tensor(HR_DTYPE_F32, 2, (int64_t[]){LINES, N}),
           y = make_tensor(HR_DTYPE_F32, 2, (int64_t[]){LINES, N});
    float *from = (float *)(void *)x.bytes, *to = (float *)(void *)y.bytes;
    for (int k = 0; k < LINES * N; ++k) {
      from[k] = i == 0 ? sinf((float)(k % N)) * 1e3f : 1 + sinf((float)(k % N)) * 0.01f;
    }
    run_row(ops[i], 1, &x, 1, &y, 1, (int64_t[]){1});
    double now = i;
    for (int k = 0; k < N; ++k) {
      now = i == 0 ? now + (double)from[k] : now * (double)from[k];
      HR_ASSERT(to[k] == (float)now);
    }
    for (int line = 1; line < LINES; ++line) {
      HR_ASSERT(memcmp(to, to + (size_t)line * N, N * sizeof *to) == 0);
    }
    free_tensor(&x);
    free_tensor(&y);
  }
}

/* ---- transforms, against their definition in long double ---- */

typedef struct wide {
  long double re, im;
} wide;

static wide complex_number(const tensor *t, int64_t i) {
  const float *single = (const float *)(const void *)t->bytes;
  const double *twice = (const double *)(const void *)t->bytes;
  switch (t->dtype) {
    case HR_DTYPE_F32:
      return (wide){single[i], 0};
    case HR_DTYPE_F64:
      return (wide){twice[i], 0};
    case HR_DTYPE_C64:
      return (wide){single[2 * i], single[2 * i + 1]};
    default:
      return (wide){twice[2 * i], twice[2 * i + 1]};
  }
}

static void fill_waves(tensor *t) {
  int64_t parts = count_of(t) * (t->dtype == HR_DTYPE_C64 || t->dtype == HR_DTYPE_C128 ? 2 : 1);
  bool is_double = t->dtype == HR_DTYPE_F64 || t->dtype == HR_DTYPE_C128;
  for (int64_t i = 0; i < parts; ++i) {
    double value = (double)(random_bits() % 20001) / 10000 - 1;
    if (is_double) {
      ((double *)(void *)t->bytes)[i] = value;
    } else {
      ((float *)(void *)t->bytes)[i] = (float)value;
    }
  }
}

/* x of a line in the definition's form: symmetric values from their half, for the inverse real transform. */
static wide input_at(hr_op op, const tensor *x, int64_t line, int64_t n, int64_t j) {
  int64_t width = x->dims[1];
  if (op != HR_OP_FFT_HALF) {
    return complex_number(x, line * width + j);
  }
  wide v = complex_number(x, line * width + (j < width ? j : n - j));
  bool is_real = j == 0 || 2 * j == n;
  return (wide){v.re, is_real ? 0 : j < width ? v.im : -v.im};
}

static void try_fft_of(hr_op op, bool is_double, bool inverse, int64_t lines, int64_t n, int64_t width) {
  static const hr_dtype types[2][2] = {{HR_DTYPE_F32, HR_DTYPE_C64}, {HR_DTYPE_F64, HR_DTYPE_C128}};
  bool sign_is_plus = op == HR_OP_FFT_HALF || (op == HR_OP_FFT && inverse);
  tensor x =
      make_tensor(types[is_double][op != HR_OP_FFT_REAL], 2, (int64_t[]){lines, op == HR_OP_FFT_HALF ? n / 2 + 1 : n});
  tensor y = make_tensor(types[is_double][op != HR_OP_FFT_HALF], 2, (int64_t[]){lines, width});
  fill_waves(&x);
  run_row(op, 1, &x, 1, &y, op == HR_OP_FFT ? 2 : 0, (int64_t[]){inverse, 0});
  for (int64_t line = 0; line < lines; ++line) {
    long double error = 0, size = 0;
    for (int64_t k = 0; k < y.dims[1]; ++k) {
      wide sum = {0, 0}, got = complex_number(&y, line * y.dims[1] + k);
      for (int64_t j = 0; j < n; ++j) {
        long double angle =
            (sign_is_plus ? 2 : -2) * 3.14159265358979323846264L * (long double)(j * k % n) / (long double)n;
        wide v = input_at(op, &x, line, n, j);
        sum.re += v.re * cosl(angle) - v.im * sinl(angle);
        sum.im += v.re * sinl(angle) + v.im * cosl(angle);
      }
      sum.im = op == HR_OP_FFT_HALF ? 0 : sum.im;
      error += powl(got.re - factor * sum.re, 2) + powl(got.im - factor * sum.im, 2);
      size += powl(factor * sum.re, 2) + powl(factor * sum.im, 2);
    }
    HR_ASSERT(error <= size * powl(is_double ? 1e-15L : 6e-7L, 2));
  }
  free_tensor(&x), free_tensor(&y);
}

static void try_fft(hr_op op, bool is_double, bool inverse, int64_t lines, int64_t n) {
  try_fft_of(op, is_double, inverse, lines, n, op == HR_OP_FFT_REAL ? n / 2 + 1 : n);
}

HR_TEST(transforms_of_every_length) {
  for (int64_t n = 1; n <= 70; ++n) {
    for (int is_double = 0; is_double < 2 && hr_test_takes(n / 2); ++is_double) {
      factor = 1.0 / (double)n;
      try_fft(HR_OP_FFT, is_double, false, 3, n);
      try_fft(HR_OP_FFT, is_double, true, 1, n);
      try_fft(HR_OP_FFT_REAL, is_double, false, 2, n);
      try_fft(HR_OP_FFT_HALF, is_double, false, 2, n);
      try_fft(HR_OP_FFT, is_double, true, 19, n);
      try_fft(HR_OP_FFT_REAL, is_double, false, 21, n);
      try_fft_of(HR_OP_FFT_REAL, is_double, false, 35, n, n);
      try_fft(HR_OP_FFT_HALF, is_double, false, 18, n);
    }
  }
  factor = 1;
}

HR_TEST(transforms_of_long_lines_and_large_primes) {
  static const int64_t lengths[] = {128, 210, 243, 343, 625, 1001, 1009, 1024, 1331, 2 * 997};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i += hr_test_takes(1) ? 1 : 3) {
    try_fft(HR_OP_FFT, true, false, 1, lengths[i]);
    try_fft(HR_OP_FFT, false, true, 17, lengths[i] / 3);
    try_fft(HR_OP_FFT_REAL, false, false, 1, lengths[i]);
    try_fft(HR_OP_FFT_HALF, true, false, 1, lengths[i]);
  }
}

/* Lines side by side: the bits of the same lines one after the other. */
static void try_columns(hr_dtype dtype, int64_t planes, int64_t n, int64_t columns, bool inverse) {
  size_t bytes = hr_dtype_size(dtype);
  tensor x = make_tensor(dtype, 3, (int64_t[]){planes, n, columns}),
         y = make_tensor(dtype, 3, (int64_t[]){planes, n, columns}),
         turned = make_tensor(dtype, 3, (int64_t[]){planes, columns, n}),
         expected = make_tensor(dtype, 3, (int64_t[]){planes, columns, n});
  fill_waves(&x);
  for (int64_t i = 0; i < planes * n * columns; ++i) {
    int64_t at = (i / (n * columns) * columns + i % columns) * n + i / columns % n;
    memcpy((char *)turned.bytes + (size_t)at * bytes, (char *)x.bytes + (size_t)i * bytes, bytes);
  }
  run_row(HR_OP_FFT, 1, &x, 1, &y, 2, (int64_t[]){inverse, 1});
  run_row(HR_OP_FFT, 1, &turned, 1, &expected, 2, (int64_t[]){inverse, 0});
  for (int64_t i = 0; i < planes * n * columns; ++i) {
    int64_t at = (i / (n * columns) * columns + i % columns) * n + i / columns % n;
    HR_ASSERT_BYTES_EQ((char *)y.bytes + (size_t)i * bytes, (char *)expected.bytes + (size_t)at * bytes, bytes);
  }
  free_tensor(&x), free_tensor(&y), free_tensor(&turned), free_tensor(&expected);
}

HR_TEST(transforms_along_any_dim) {
  static const int64_t columns[] = {1, 2, 7, 8, 15, 16, 17, 33, 40};
  static const int64_t lengths[] = {1, 2, 12, 37, 64, 75};
  for (size_t c = 0; c < sizeof columns / sizeof *columns; ++c) {
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
      try_columns(HR_DTYPE_C64, 3, lengths[i], columns[c], i % 2 != 0);
      try_columns(HR_DTYPE_C128, 2, lengths[i], columns[c], i % 2 == 0);
    }
  }
}

HR_TEST(a_nan_stays_in_its_line) {
  tensor x = TENSOR(C64, 16, 12), y = TENSOR(C64, 16, 12);
  fill_waves(&x);
  ((float *)(void *)x.bytes)[2 * (5 * 12 + 3)] = NAN;
  run_row(HR_OP_FFT, 1, &x, 1, &y, 2, (int64_t[]){0, 0});
  for (int64_t i = 0; i < 16 * 12; ++i) {
    HR_ASSERT(isnan(complex_number(&y, i).re) == (i / 12 == 5));
  }
  free_tensor(&x), free_tensor(&y);
}

/* ---- segments ---- */

static double fold(int64_t kind, double a, double b) {
  switch (kind) {
    case 1:
      return a + b;
    case 2:
      return a * b;
    case 3:
      return isnan(b) || b > a ? b : a;
    default:
      return isnan(b) || b < a ? b : a;
  }
}

/* Segments of very different lengths, empty ones, and rows of none; small whole numbers, whose sums are exact. */
static void check_segments(hr_dtype dtype, int64_t columns, int64_t kind, bool is_listed, int threads) {
  enum { N = 400, S = 23 };
  tensor inputs[5] = {make_tensor(dtype, 2, (int64_t[]){N, columns}), TENSOR(I64, S), TENSOR(I64, S), TENSOR(I64, N),
                      make_tensor(dtype, 1, (int64_t[]){N})};
  tensor output = make_tensor(dtype, 2, (int64_t[]){S, columns});
  int64_t *begin = (void *)inputs[1].bytes, *end = (void *)inputs[2].bytes, *list = (void *)inputs[3].bytes;
  for (int64_t i = 0; i < N * columns; ++i) {
    float value = kind == 2 ? (float)(random_bits() % 8 == 0 ? 2 : 1) : (float)(random_bits() % 4);
    value = kind > 2 && random_bits() % 300 == 0 ? NAN : value;
    put_number(&inputs[0], i, (double)value);
  }
  for (int64_t i = 0; i < N; ++i) {
    list[i] = (int64_t)(random_bits() % N);
    memcpy(inputs[4].bytes + (size_t)i * hr_dtype_size(dtype), inputs[0].bytes + (size_t)i * hr_dtype_size(dtype),
           hr_dtype_size(dtype));
  }
  for (int64_t s = 0, at = 3; s < S; ++s) {
    begin[s] = at;
    at += s % 4 == 0 ? 0 : s == 5 ? 150 : (int64_t)(random_bits() % 20);
    end[s] = at = at < N ? at : N;
  }
  int count = is_listed ? kind == 1 ? 5 : 4 : 3;
  hr_thread_count_set(threads);
  factor = 3;
  run_row(HR_OP_SEGMENTS, count, inputs, 1, &output, 2, (int64_t[]){kind, is_listed ? 7 : -1});
  factor = 1;
  hr_thread_count_set(0);
  for (int64_t s = 0; s < S; ++s) {
    for (int64_t c = 0; c < columns; ++c) {
      double expected = 3;
      for (int64_t i = begin[s]; i < end[s]; ++i) {
        int64_t row = is_listed ? list[i] : i;
        if (!is_listed || row != 7) {
          expected = fold(kind, expected,
                          number_of(&inputs[0], row * columns + c) * (count == 5 ? number_of(&inputs[4], i) : 1));
        }
      }
      double got = number_of(&output, s * columns + c);
      double error = dtype == HR_DTYPE_BF16 ? fabs(expected) / 256 : 0;
      HR_ASSERT(fabs(got - expected) <= error || (isnan(got) && isnan(expected)));
    }
  }
  for (int i = 0; i < 5; ++i) {
    free_tensor(&inputs[i]);
  }
  free_tensor(&output);
}

HR_TEST(segments_are_combined_in_every_algorithm) {
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_F64, HR_DTYPE_BF16};
  static const int64_t widths[] = {1, 3, 16, 64, 101};
  for (int d = 0; d < 3; ++d) {
    for (int w = 0; w < 5; ++w) {
      for (int64_t kind = 1; kind <= 4; ++kind) {
        check_segments(dtypes[d], widths[w], kind, false, 1 + w % 3);
        check_segments(dtypes[d], widths[w], kind, true, 1 + w % 3);
      }
    }
  }
}
