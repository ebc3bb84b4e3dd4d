/* Products with packed numbers, against plain loops in double: tiles, chunks, strides, dtypes, kinds of numbers. */
#include "core/ir/dtype.h"

/* Vectors of 32 bytes are arguments of functions that are always inlined: no call depends on how they are passed. */
#pragma GCC diagnostic ignored "-Wpsabi"

#include "hr_test.h"
#include "providers/packed/numbers.h"
#include "providers/provider.h"

static const hr_provider *const provider = &hr__packed_provider;

enum { GUARD = 5, INPUTS_COUNT = 4, OPERANDS_COUNT = 5 };
static const uint16_t guard_word = 0xA5A5;

typedef struct shape {
  int64_t rows, columns, inner;
  int bits, group;
  hr_dtype dtype;   /* of x, scales, biases and y */
  bool is_strided;  /* x and y transposed, rows of words with gaps, scales transposed */
  int64_t matrices; /* 0: no batch */
  bool has_columns; /* numbers [inner, columns], else [columns, inner] */
  bool is_float;    /* numbers; scales of one byte, without biases */
} shape;

static uint64_t state = 1;

static uint32_t random_word(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 32);
}

/* A matrix, or several one after the other, in a buffer with guards around it. */
typedef struct matrix {
  hr_operand operand;
  int64_t count, dims[3], strides[3], length;
  void *data;
} matrix;

static void make_matrix(matrix *m, hr_dtype dtype, int64_t matrices, int64_t rows, int64_t columns, int64_t row,
                        int64_t column) {
  int64_t size = (rows - 1) * row + (columns - 1) * column + 1;
  m->count = matrices > 0 ? matrices : 1;
  m->dims[0] = matrices, m->dims[1] = rows, m->dims[2] = columns;
  m->strides[0] = size, m->strides[1] = row, m->strides[2] = column;
  m->length = m->count * size + 2 * GUARD;
  size_t bytes = (size_t)m->length * hr_dtype_size(dtype);
  m->data = malloc(bytes);
  HR_ASSERT(m->data != NULL);
  memset(m->data, 0xA5, bytes);
  m->operand = (hr_operand){.kind = HR_OPERAND_VALUE,
                            .dtype = dtype,
                            .rank = matrices > 0 ? 3 : 2,
                            .offset = GUARD,
                            .dims = m->dims + (matrices == 0),
                            .strides = m->strides + (matrices == 0),
                            .fill = HR_NO_SCALAR};
}

/* Rows count on from one matrix to the next. */
static int64_t element_place(const matrix *m, int64_t row, int64_t column) {
  return GUARD + row / m->dims[1] * m->strides[0] + row % m->dims[1] * m->strides[1] + column * m->strides[2];
}

static double get(const matrix *m, int64_t row, int64_t column) {
  int64_t at = element_place(m, row, column);
  if (hr_dtype_is_float8(m->operand.dtype)) {
    return (double)hr_f8_to_f32(m->operand.dtype, ((const uint8_t *)m->data)[at]);
  }
  uint16_t half = m->operand.dtype == HR_DTYPE_F32 ? 0 : ((const uint16_t *)m->data)[at];
  return m->operand.dtype == HR_DTYPE_F32   ? ((const float *)m->data)[at]
         : m->operand.dtype == HR_DTYPE_F16 ? hr_f16_to_f32(half)
                                            : hr_bf16_to_f32(half);
}

static void put(matrix *m, int64_t row, int64_t column, float value) {
  int64_t at = element_place(m, row, column);
  if (hr_dtype_is_float8(m->operand.dtype)) {
    ((uint8_t *)m->data)[at] = hr_f32_to_f8(m->operand.dtype, fabsf(value) * 4 + 0.1F);
  } else if (m->operand.dtype == HR_DTYPE_F32) {
    ((float *)m->data)[at] = value;
  } else {
    ((uint16_t *)m->data)[at] = m->operand.dtype == HR_DTYPE_F16 ? hr_f32_to_f16(value) : hr_f32_to_bf16(value);
  }
}

static void fill(matrix *m) {
  for (int64_t i = 0; i < m->count * m->dims[1] * m->dims[2]; ++i) {
    put(m, i / m->dims[2], i % m->dims[2], (float)(int32_t)random_word() / 2147483648.0f);
  }
}

/* Rows and numbers of w. */
static int64_t w_rows(const shape *s) {
  return s->has_columns ? s->inner : s->columns;
}
static int64_t w_numbers(const shape *s) {
  return s->has_columns ? s->columns : s->inner;
}

static void make_operands(const shape *s, matrix m[OPERANDS_COUNT]) {
  int64_t words = w_numbers(s) * s->bits / 32, groups = w_numbers(s) / s->group, rows = w_rows(s);
  bool t = s->is_strided;
  hr_dtype scale = !s->is_float ? s->dtype : s->group == 16 ? HR_DTYPE_F8E4M3FN : HR_DTYPE_F8E8M0FNU;
  make_matrix(&m[0], s->dtype, s->matrices, s->rows, s->inner, t ? 1 : s->inner, t ? s->rows : 1);
  make_matrix(&m[1], HR_DTYPE_U32, s->matrices, rows, words, t ? words + 3 : words, 1);
  make_matrix(&m[2], scale, s->matrices, rows, groups, t ? 1 : groups, t ? rows : 1);
  make_matrix(&m[3], s->dtype, s->matrices, rows, groups, groups, 1);
  make_matrix(&m[4], s->dtype, s->matrices, s->rows, s->columns, t ? 1 : s->columns, t ? s->rows : 1);
  fill(&m[0]), fill(&m[2]), fill(&m[3]);
  for (int64_t i = 0; i < m[1].count * rows * words; ++i) {
    uint32_t word = random_word();
    /* no NaN: 0x7f and 0xff */
    word = s->is_float && s->bits == 8 ? word & 0xf7f7f7f7u : word;
    ((uint32_t *)m[1].data)[element_place(&m[1], i / words, i % words)] = word;
  }
}

static double number_of(const shape *s, const matrix *words, int64_t row, int64_t i) {
  const uint32_t *all = words->data;
  uint32_t code = 0;
  for (int64_t bit = 0; bit < s->bits; ++bit) {
    int64_t at = i * s->bits + bit;
    code |= (all[element_place(words, row, at / 32)] >> (at % 32) & 1u) << bit;
  }
  static const double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return !s->is_float   ? code
         : s->bits == 8 ? (double)hr_f8_to_f32(HR_DTYPE_F8E4M3FN, (uint8_t)code)
                        : (code > 7 ? -1 : 1) * sizes[code & 7];
}

static void check_element(const shape *s, const matrix m[OPERANDS_COUNT], int64_t row, int64_t column) {
  double sum = 0, size = 0;
  int64_t above = row / s->rows * w_rows(s);
  for (int64_t k = 0; k < s->inner; ++k) {
    int64_t w_row = above + (s->has_columns ? k : column), i = s->has_columns ? column : k;
    double scale = get(&m[2], w_row, i / s->group), bias = s->is_float ? 0 : get(&m[3], w_row, i / s->group);
    double term = get(&m[0], row, k) * (scale * number_of(s, &m[1], w_row, i) + bias);
    sum += term, size += fabs(term) + fabs(get(&m[0], row, k) * bias);
  }
  double unit = s->dtype == HR_DTYPE_F32 ? 1e-6 * size : s->dtype == HR_DTYPE_F16 ? 1e-3 * fabs(sum) : 1e-2 * fabs(sum);
  HR_ASSERT_NEAR(get(&m[4], row, column), sum, unit + 1e-6 * size);
}

/* Nothing outside of the view is written: gaps do not occur in y. */
static void check_guards(const matrix *y) {
  size_t size = hr_dtype_size(y->operand.dtype);
  for (size_t i = 0; i < GUARD * size; i += 2) {
    const char *ends[2] = {(const char *)y->data + i, (const char *)y->data + (size_t)y->length * size - 2 - i};
    HR_ASSERT(memcmp(ends[0], &guard_word, 2) == 0);
    HR_ASSERT(memcmp(ends[1], &guard_word, 2) == 0);
  }
}

static void run_shape(const shape *s, matrix m[OPERANDS_COUNT]) {
  const int64_t ints[4] = {s->bits, s->group, s->has_columns, s->is_float};
  hr_operand inputs[INPUTS_COUNT] = {m[0].operand, m[1].operand, m[2].operand, m[3].operand};
  if (s->is_float) {
    inputs[3] = (hr_operand){.kind = HR_OPERAND_NONE};
  }
  const hr_node node = {.op = HR_OP_QUANTIZED_MATMUL,
                        .input_count = INPUTS_COUNT,
                        .output_count = 1,
                        .inputs = inputs,
                        .outputs = &m[4].operand,
                        .int_count = 4,
                        .ints = (int64_t *)ints};
  HR_ASSERT(provider->supports(NULL, &node));
  hr_prepared *prepared = NULL;
  size_t bytes = 0;
  HR_ASSERT_OK(provider->prepare(NULL, &node, HR_ALGORITHM_OWN, NULL, &prepared, &bytes));
  void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
  void *const args[OPERANDS_COUNT] = {m[0].data, m[1].data, m[2].data, s->is_float ? NULL : m[3].data, m[4].data};
  HR_ASSERT_OK(provider->run(prepared, args, workspace, NULL));
  provider->release(prepared);
  free(workspace);
}

static void free_operands(matrix m[OPERANDS_COUNT]) {
  for (int i = 0; i < OPERANDS_COUNT; ++i) {
    free(m[i].data);
  }
}

static void check_shape(const shape *s) {
  matrix m[OPERANDS_COUNT];
  make_operands(s, m);
  run_shape(s, m);
  for (int64_t i = 0; i < m[4].count * s->rows * s->columns; ++i) {
    check_element(s, m, i / s->columns, i % s->columns);
  }
  check_guards(&m[4]);
  free_operands(m);
}

HR_TEST(rows_and_columns_around_tiles) {
  static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 31}, columns[] = {1, 15, 16, 17, 33};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    for (size_t j = 0; j < sizeof columns / sizeof *columns; ++j) {
      check_shape(&(shape){rows[i], columns[j], 128, 4, 64, HR_DTYPE_F32, false, 0, false, false});
    }
  }
}

HR_TEST(bits_and_groups) {
  static const int bits[] = {2, 4, 8}, groups[] = {16, 32, 64, 128};
  for (int i = 0; i < 12; ++i) {
    for (int64_t rows = 1; rows <= 8; rows *= 2) {
      check_shape(&(shape){rows, 5, 384, bits[i / 4], groups[i % 4], HR_DTYPE_F32, false, 0, false, false});
    }
  }
}

HR_TEST(numbers_that_do_not_divide_a_word) {
  static const int bits[] = {3, 5, 6}, groups[] = {32, 64, 96};
  for (int i = 0; i < 9; ++i) {
    for (int64_t rows = 1; rows <= 8; rows *= 2) {
      check_shape(
          &(shape){rows, 5, 288 * (i % 3 + 1), bits[i / 3], groups[i % 3], HR_DTYPE_F32, false, 0, false, false});
      check_shape(&(shape){rows, 17, 192, bits[i / 3], groups[i % 3], HR_DTYPE_BF16, true, 2, false, false});
    }
  }
}

HR_TEST(floats_with_scales_of_a_byte) {
  for (int64_t rows = 1; rows <= 9; ++rows) {
    for (int is_strided = 0; is_strided < 2; ++is_strided) {
      check_shape(&(shape){rows, 5, 384, 4, 16, HR_DTYPE_F32, is_strided, 0, false, true});
      check_shape(&(shape){rows, 17, 256, 4, 32, HR_DTYPE_F16, is_strided, 2, false, true});
      check_shape(&(shape){rows, 3, 256, 8, 32, HR_DTYPE_F32, is_strided, 0, false, true});
      check_shape(&(shape){rows, 128, 37, 4, 16, HR_DTYPE_F32, is_strided, 0, true, true});
      check_shape(&(shape){rows, 192, 18, 8, 32, HR_DTYPE_F32, is_strided, 2, true, true});
    }
  }
}

HR_TEST(numbers_of_columns) {
  static const int bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
  for (int i = 0; i < 18; ++i) {
    for (int64_t rows = 1; rows <= 9; rows += rows < 5 ? 1 : 4) {
      check_shape(&(shape){rows, 384, 7, bits[i / 3], groups[i % 3], HR_DTYPE_F32, false, 0, true, false});
      check_shape(&(shape){rows, 1152, 5, bits[i / 3], groups[i % 3], HR_DTYPE_F16, true, 2, true, false});
    }
  }
  check_shape(&(shape){1, 512, 1, 4, 512, HR_DTYPE_F32, false, 0, true, false});
  check_shape(&(shape){4, 1024 + 128, 300, 4, 16, HR_DTYPE_F32, false, 0, true, false});
}

/* Subnormal floats count as 0 in this thread, as other libraries may have set for it. */
static void flush_subnormals(bool is_on) {
#if defined(__x86_64__)
  const uint32_t flags = 0x8040u;
  _mm_setcsr(is_on ? _mm_getcsr() | flags : _mm_getcsr() & ~flags);
#else
  (void)is_on;
#endif
}

/* All numbers of one byte, also in a thread where subnormal floats count as 0. */
HR_TEST(floats_of_one_byte) {
  for (int is_flushed = 0; is_flushed < 2; ++is_flushed) {
    for (uint32_t code = 0; code < 256; code += LANES) {
      words8 codes;
      for (uint32_t i = 0; i < LANES; ++i) {
        codes[i] = (code + i) | 0xabcdef00u;
      }
      flush_subnormals(is_flushed);
      vector actual = float8_of(codes);
      flush_subnormals(false);
      for (uint32_t i = 0; i < LANES; ++i) {
        float x = actual[i], expected = hr_f8_to_f32(HR_DTYPE_F8E4M3FN, (uint8_t)(code + i));
        HR_ASSERT(isnan(expected) ? isnan(x) : x == expected && signbit(x) == signbit(expected));
      }
    }
  }
}

/* Each NaN makes a column of the product NaN, and no other one. */
HR_TEST(floats_that_are_nan) {
  for (int has_columns = 0; has_columns < 2; ++has_columns) {
    const shape s = {2, 32, 32, 8, 32, HR_DTYPE_F32, false, 0, has_columns, true};
    matrix m[OPERANDS_COUNT];
    make_operands(&s, m);
    uint32_t *words = m[1].data;
    words[element_place(&m[1], 5, 2)] |= 0x7f00u; /* number 9 of row 5 */
    run_shape(&s, m);
    for (int64_t i = 0; i < 64; ++i) {
      HR_ASSERT_EQ(isnan(get(&m[4], i / 32, i % 32)), i % 32 == (has_columns ? 9 : 5));
    }
    free_operands(m);
  }
}

HR_TEST(rows_of_several_chunks) {
  check_shape(&(shape){1, 3, 3 * 4096 + 128, 4, 64, HR_DTYPE_F32, false, 0, false, false});
  check_shape(&(shape){8, 3, 4096 + 128, 2, 32, HR_DTYPE_F32, true, 0, false, false});
  check_shape(&(shape){8, 3, 2 * 8192, 8, 8192, HR_DTYPE_F32, false, 0, false, false});
}

HR_TEST(views_and_halves) {
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_F16, HR_DTYPE_BF16};
  for (int i = 0; i < 3; ++i) {
    check_shape(&(shape){11, 18, 256, 4, 32, dtypes[i], false, 0, false, false});
    check_shape(&(shape){11, 18, 256, 4, 32, dtypes[i], true, 0, false, false});
  }
}

HR_TEST(batches) {
  static const int64_t rows[] = {1, 3, 9};
  for (int i = 0; i < 3; ++i) {
    check_shape(&(shape){rows[i], 19, 128, 4, 64, HR_DTYPE_F32, false, 1, false, false});
    check_shape(&(shape){rows[i], 5, 256, 8, 32, HR_DTYPE_BF16, true, 3, false, false});
    check_shape(&(shape){rows[i], 33, 4096 + 128, 4, 64, HR_DTYPE_F32, true, 4, false, false});
  }
}

HR_TEST(other_shapes_are_not_supported) {
  const shape odd = {1, 4, 96, 4, 32, HR_DTYPE_F32, false, 0, false, false},
              uneven = {1, 4, 384, 4, 48, HR_DTYPE_F32, false, 0, false, false};
  const shape *const shapes[2] = {&odd, &uneven};
  for (int i = 0; i < 2; ++i) {
    matrix m[OPERANDS_COUNT];
    make_operands(shapes[i], m);
    int64_t ints[2] = {shapes[i]->bits, shapes[i]->group};
    hr_operand inputs[INPUTS_COUNT] = {m[0].operand, m[1].operand, m[2].operand, m[3].operand};
    const hr_node node = {.op = HR_OP_QUANTIZED_MATMUL,
                          .input_count = INPUTS_COUNT,
                          .output_count = 1,
                          .inputs = inputs,
                          .outputs = &m[4].operand,
                          .int_count = 2,
                          .ints = ints};
    HR_ASSERT(!provider->supports(NULL, &node));
    free_operands(m);
  }
}

/* All 256 scales of a byte, in vectors and at the ends: the bits of the scalar conversions. */
HR_TEST(scales_of_a_byte_are_loaded_bit_for_bit) {
  uint8_t codes[256];
  float loaded[256];
  for (int i = 0; i < 256; ++i) {
    codes[i] = (uint8_t)i;
  }
  for (int first = 0; first < 9; ++first) {
    int64_t count = 256 - first;
    load_floats(codes, HR_DTYPE_F8E8M0FNU, first, 1, count, loaded);
    for (int64_t i = 0; i < count; ++i) {
      float expected = HR__LOAD_F8E8M0FNU(codes[first + i]);
      HR_ASSERT(memcmp(&loaded[i], &expected, sizeof expected) == 0);
    }
    load_floats(codes, HR_DTYPE_F8E4M3FN, first, 1, count, loaded);
    for (int64_t i = 0; i < count; ++i) {
      float expected = HR__LOAD_F8E4M3FN(codes[first + i]);
      HR_ASSERT(memcmp(&loaded[i], &expected, sizeof expected) == 0);
    }
  }
}
