/* emit_ops_test.c: every element-wise row and every reduction, in every dtype, on special values: compiled code has the
 * bits of the interpreter, with any compiler, optimisation level and vector width.
 *
 * Rows of one dtype share kernels. Sizes are odd; inputs are dense, strided, reversed or one element.
 * HEADRACE_TEST_COMPILERS=1 tries all compilers and flags; by default only as many as `make test` has time for.
 */
#include "hr_test.h"

#include <float.h>

#include "base/env.h"
#include "base/places.h"
#include "base/vector.h"
#include "engine/compiled_kernel.h"
#include "engine/host_compiler.h"
#include "interp/interp.h"
#include "interp/interp_testing.h"

enum { ROWS_OF_KERNEL = 8, SPECIALS = 24, MEMORY = 3000, OUTPUTS = 12, INPUTS = 4, TRANSPOSED = 72000 };

typedef struct sample { /* one kernel and its data */
  kernel_maker m;
  char name[24];
  hr_host_kernel *interpreted;
  hr_emission emission;
  void *args[MAKE_MAX];
  int output_count, outputs[OUTPUTS]; /* arguments */
  hr_dtype dtype, output_dtypes[OUTPUTS];
  hr_op ops[OUTPUTS];
  void *expected[OUTPUTS];
} sample;

static HR_VECTOR(sample *) samples;
static hr_text text;
static void *memory[HR_DTYPE_COUNT][INPUTS]; /* MEMORY elements each */
static float usual_numbers[2][MEMORY];
static char transposed[HR_DTYPE_COUNT][TRANSPOSED * 8];

/* ---- values ---- */

static uint64_t state = 7;
static uint64_t next(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 20;
}

static double special(int i) {
  static const double values[SPECIALS] = {
      0.0,    -0.0,    1.0,  -1.0,   0.5,  -0.5, NAN,  INFINITY, -INFINITY, FLT_MAX,  -FLT_MAX, 1e-45,
      -1e-40, FLT_MIN, 88.8, -103.9, 1e-8, 3.0,  -7.0, 1e10,     -3.4e-12,  16777217, 0.9999,   2147483648.0};
  return values[i];
}

static double any_real(bool is_double) {
  static const double wide[] = {DBL_MAX, -DBL_MAX, 4.9e-324, 1e300, -1e-300, 9.3e18, -1.9e19, 709.8};
  switch (next() % 4) {
    case 0:
      return special((int)(next() % SPECIALS));
    case 1:
      return is_double ? wide[next() % 8] : special((int)(next() % SPECIALS));
    case 2:
      return ((double)(next() % 2000001) - 1000000) * 1e-5;
    default:
      return ((double)(next() % 2001) - 1000) * 0.25;
  }
}

static uint64_t any_integer(void) {
  static const uint64_t values[] = {0,
                                    1,
                                    UINT64_MAX,
                                    2,
                                    UINT64_MAX - 1,
                                    INT64_MAX,
                                    (uint64_t)INT64_MIN,
                                    INT32_MAX,
                                    (uint64_t)INT32_MIN,
                                    UINT32_MAX,
                                    127,
                                    255,
                                    32768,
                                    65535};
  return next() % 3 == 0   ? values[next() % (sizeof values / sizeof *values)]
         : next() % 3 == 1 ? next() % 41 - 20
                           : next();
}

static void put(hr_dtype dtype, char *to) {
  double re = any_real(dtype == HR_DTYPE_F64 || dtype == HR_DTYPE_C128), im = any_real(dtype == HR_DTYPE_C128);
  float f = (float)re, pair[2] = {(float)re, (float)im};
  double pair_of_doubles[2] = {re, im};
  uint16_t half = dtype == HR_DTYPE_F16 ? hr_f32_to_f16(f) : hr_f32_to_bf16(f);
  uint64_t integer = dtype == HR_DTYPE_BOOL ? next() % 2 : any_integer();
  const void *from = dtype == HR_DTYPE_F32                             ? (void *)&f
                     : dtype == HR_DTYPE_F64                           ? (void *)&re
                     : dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_BF16 ? (void *)&half
                     : dtype == HR_DTYPE_C64                           ? (void *)pair
                     : dtype == HR_DTYPE_C128                          ? (void *)pair_of_doubles
                                                                       : (void *)&integer;
  memcpy(to, from, hr_dtype_size(dtype));
}

static void fill_memory(void) {
  for (int d = 1; d < HR_DTYPE_COUNT; ++d) {
    size_t size = hr_dtype_size((hr_dtype)d);
    for (int i = 0; i < INPUTS; ++i) {
      memory[d][i] = malloc(MEMORY * size);
      for (int k = 0; k < MEMORY; ++k) {
        put((hr_dtype)d, (char *)memory[d][i] + (size_t)k * size);
      }
    }
  }
}

/* ---- kernels ---- */

static hr_dtype class_dtype(hr_class cls) {
  static const hr_dtype table[HR_CLASS_COUNT] = {0,
                                                 HR_DTYPE_BOOL,
                                                 HR_DTYPE_I32,
                                                 HR_DTYPE_U32,
                                                 HR_DTYPE_I64,
                                                 HR_DTYPE_U64,
                                                 HR_DTYPE_F32,
                                                 HR_DTYPE_F64,
                                                 HR_DTYPE_C64,
                                                 HR_DTYPE_C128};
  return table[cls];
}

/* Input i of a dtype as a register; its layout changes from call to call. */
static int input(sample *s, int i, hr_dtype dtype, int64_t count, int turn) {
  static const int64_t steps[] = {1, 1, 2, -1, 0};
  int64_t step[2] = {0, i == 0 ? 1 : steps[turn % 5]};
  int arg = make_arg(&s->m);
  s->args[arg] = memory[dtype][i];
  return make_load(&s->m, 0, arg, dtype, step[1] < 0 ? count + 3 : turn % 3, s->m.kernel.rank == 1 ? step + 1 : step);
}

static void output(sample *s, hr_op op, int phase, int reg, hr_dtype dtype, const int64_t *strides) {
  int arg = make_arg(&s->m);
  make_store(&s->m, phase, arg, dtype, 0, strides, reg);
  s->args[arg] = malloc(MEMORY * sizeof(hr_c128));
  s->outputs[s->output_count] = arg;
  s->output_dtypes[s->output_count] = dtype;
  s->ops[s->output_count++] = op;
}

static const int64_t counts[] = {1, 37, 1025, 1400, 700};
static const int64_t dense[] = {1};

static sample *begin_sample(hr_dtype dtype, int turn) {
  sample *s = calloc(1, sizeof *s);
  s->dtype = dtype;
  make_begin(&s->m, 1, &counts[turn % 5], 0, 0);
  return s;
}

static void end_sample(sample *s) {
  if (s->output_count == 0) {
    free(s);
    return;
  }
  snprintf(s->name, sizeof s->name, "k%zu", samples.count);
  HR_ASSERT_OK(hr_interp_create(make_end(&s->m), &s->interpreted));
  hr_status status = hr_emit_kernel(make_end(&s->m), NULL, s->name, &text, &s->emission);
  HR_ASSERT_OK(status);
  HR_ASSERT(hr_vector_push(&samples, s));
}

/* The class in which a row computes on a dtype; NONE if it does not support it. */
static hr_class class_of(const hr_op_row *row, hr_dtype dtype) {
  hr_class cls = row->rule == HR_RULE_LOGICAL ? HR_CLASS_B8 : hr_dtype_arithmetic_class(dtype);
  bool is_complex = cls == HR_CLASS_C64 || cls == HR_CLASS_C128, is_real = cls == HR_CLASS_F32 || cls == HR_CLASS_F64;
  bool has = is_complex ? row->has_complex : is_real ? row->has_real : row->has_integer;
  if ((row->rule == HR_RULE_LOGICAL && dtype != HR_DTYPE_BOOL) || (row->rule == HR_RULE_PART && !is_complex)) {
    return HR_CLASS_NONE;
  }
  return has ? cls : HR_CLASS_NONE;
}

static void add_row(sample *s, hr_op op, hr_class cls, int turn) {
  const hr_op_row *row = hr_op_table(op);
  int64_t count = s->m.kernel.dims[0];
  int sources[4];
  for (int i = 0; i < row->arity; ++i) {
    hr_dtype dtype = row->rule == HR_RULE_SEEDED            ? HR_DTYPE_I64
                     : row->rule == HR_RULE_WHERE && i == 0 ? HR_DTYPE_BOOL
                                                            : s->dtype;
    sources[i] = input(s, i, dtype, count, turn + i);
    hr_class wanted =
        row->rule == HR_RULE_SEEDED || (row->rule == HR_RULE_WHERE && i == 0) ? hr_dtype_class(dtype) : cls;
    if (hr_dtype_class(dtype) != wanted) {
      sources[i] = make_convert(&s->m, 0, sources[i], class_dtype(wanted));
    }
  }
  int reg = make_op(&s->m, 0, op, cls, row->arity, sources);
  hr_class result = s->m.registers[reg].cls;
  bool is_narrow = result == hr_dtype_arithmetic_class(s->dtype) && hr_dtype_is_narrow(s->dtype);
  hr_dtype to = is_narrow ? s->dtype : class_dtype(result);
  if (is_narrow) {
    reg = make_convert(&s->m, 0, reg, to);
  }
  output(s, op, 0, reg, to, dense);
}

static void add_pointwise(hr_dtype dtype) {
  int turn = (int)dtype;
  sample *s = begin_sample(dtype, turn);
  for (int op = HR_OP_NONE + 1; op < HR_OP_COUNT; ++op) {
    const hr_op_row *row = hr_op_table((hr_op)op);
    hr_class cls = row->family == HR_FAMILY_POINTWISE ? class_of(row, dtype) : HR_CLASS_NONE;
    if (cls == HR_CLASS_NONE) {
      continue;
    }
    add_row(s, (hr_op)op, cls, turn);
    if (s->output_count == ROWS_OF_KERNEL) {
      end_sample(s);
      s = begin_sample(dtype, ++turn);
    }
  }
  end_sample(s);
}

/* Conversions to every dtype. */
static void add_conversions(hr_dtype dtype) {
  sample *s = begin_sample(dtype, 3);
  int reg = input(s, 0, dtype, s->m.kernel.dims[0], 0);
  for (int to = 1; to < HR_DTYPE_COUNT; ++to) {
    if (s->output_count == ROWS_OF_KERNEL) {
      end_sample(s);
      s = begin_sample(dtype, 2);
      reg = input(s, 1, dtype, s->m.kernel.dims[0], 2);
    }
    output(s, HR_OP_COPY, 0, make_convert(&s->m, 0, reg, (hr_dtype)to), (hr_dtype)to, dense);
  }
  end_sample(s);
}

/* Reductions of 9 (unrolled), 700 and 2,900 elements, of the rows or the columns of a matrix. */
static void add_reductions(hr_dtype dtype) {
  static const int64_t shapes[][2] = {{60, 9}, {3, 700}, {1, 2900}, {700, 3}, {29, 100}};
  for (int k = 0; k < 5; ++k) {
    bool is_columns = k == 3 || k == 4;
    int64_t strides[] = {shapes[k][1], 1}, out[] = {is_columns ? 0 : 1, is_columns ? 1 : 0};
    sample *s = calloc(1, sizeof *s);
    s->dtype = dtype;
    make_begin(&s->m, 2, shapes[k], is_columns ? 1 : 2, 0);
    int arg = make_arg(&s->m);
    s->args[arg] = memory[dtype][k % INPUTS];
    for (int op = HR_OP_NONE + 1; op < HR_OP_COUNT; ++op) {
      const hr_op_row *row = hr_op_table((hr_op)op);
      hr_class cls =
          row->family == HR_FAMILY_REDUCE || row->family == HR_FAMILY_ARGREDUCE ? class_of(row, dtype) : HR_CLASS_NONE;
      bool is_truth = op == HR_OP_ANY || op == HR_OP_ALL, is_arg = row->family == HR_FAMILY_ARGREDUCE;
      bool is_complex = cls == HR_CLASS_C64 || cls == HR_CLASS_C128;
      if (cls == HR_CLASS_NONE || (is_truth && dtype != HR_DTYPE_BOOL) || (is_arg && is_columns) ||
          (is_complex && op != HR_OP_SUM && is_columns) || (is_complex && k == 0 && op == HR_OP_PROD)) {
        continue;
      }
      cls = is_truth ? HR_CLASS_B8 : cls;
      int reg = make_load(&s->m, 0, arg, dtype, 0, strides);
      if (hr_dtype_class(dtype) != cls) {
        reg = make_convert(&s->m, 0, reg, class_dtype(cls));
      }
      if (is_arg) {
        reg = make_argreduce(&s->m, 0, (hr_op)op, cls, reg, make_index(&s->m, 0, 0, strides));
      } else {
        reg = make_reduce(&s->m, 0, (hr_op)op, cls, reg);
      }
      output(s, (hr_op)op, 1, reg, class_dtype(is_arg ? HR_CLASS_I64 : cls), out);
    }
    end_sample(s);
  }
}

/* Values that two results need, each rounded to the dtype in which it is made. */
static void add_roundings(hr_dtype dtype) {
  hr_class cls = hr_dtype_arithmetic_class(dtype);
  if (!hr_dtype_is_narrow(dtype) || cls != HR_CLASS_F32) {
    return;
  }
  for (int turn = 0; turn < 5; ++turn) {
    sample *s = begin_sample(dtype, turn);
    int a = input(s, 0, dtype, s->m.kernel.dims[0], turn), b = input(s, 1, dtype, s->m.kernel.dims[0], turn);
    for (int k = 0; k < 3; ++k) {
      int product = make_convert(&s->m, 0, make_op(&s->m, 0, HR_OP_MUL, cls, 2, (int[]){a, b}), dtype);
      int sum = make_convert(&s->m, 0, make_op(&s->m, 0, HR_OP_ADD, cls, 2, (int[]){product, a}), dtype);
      output(s, HR_OP_MUL, 0, product, dtype, dense);
      output(s, HR_OP_ADD, 0, sum, dtype, dense);
      a = sum, b = product;
    }
    end_sample(s);
  }
}

/* Remainders and sines of usual numbers, and of a block with one quotient or angle that is large. */
static void add_remainders(void) {
  static const hr_op ops[] = {HR_OP_FMOD, HR_OP_REMAINDER, HR_OP_DIV_FLOOR, HR_OP_SIN, HR_OP_COS, HR_OP_TAN};
  for (int i = 0; i < MEMORY; ++i) {
    usual_numbers[0][i] = (float)((double)(next() % 200001) - 100000) * 0.25f;
    usual_numbers[1][i] = (float)(1 + next() % 1000) * (next() % 2 == 0 ? 0.25f : -0.3f);
  }
  usual_numbers[0][1200] = 3e38f, usual_numbers[0][0] = -0.0f, usual_numbers[1][2] = -INFINITY,
  usual_numbers[1][3] = INFINITY;
  for (int turn = 2; turn < 5; ++turn) { /* the third also of one number */
    sample *s = begin_sample(HR_DTYPE_F32, turn);
    int64_t step = turn == 4 ? 0 : 1;
    int arg[2] = {make_arg(&s->m), make_arg(&s->m)}, reg[2];
    s->args[arg[0]] = usual_numbers[0], s->args[arg[1]] = usual_numbers[1];
    reg[0] = make_load(&s->m, 0, arg[0], HR_DTYPE_F32, 0, dense);
    reg[1] = make_load(&s->m, 0, arg[1], HR_DTYPE_F32, 0, &step);
    for (int k = 0; k < 6; ++k) {
      output(s, ops[k], 0, make_op(&s->m, 0, ops[k], HR_CLASS_F32, k < 3 ? 2 : 1, reg), HR_DTYPE_F32, dense);
    }
    int sum = make_op(&s->m, 0, HR_OP_ADD, HR_CLASS_F32, 2, reg); /* computed just before */
    int sine = make_op(&s->m, 0, HR_OP_SIN, HR_CLASS_F32, 1, &sum);
    output(s, HR_OP_COS, 0, make_op(&s->m, 0, HR_OP_COS, HR_CLASS_F32, 1, &sine), HR_DTYPE_F32, dense);
    end_sample(s);
  }
}

/* Sums of transposed matrices, and of batches of them. */
static void add_transposed(hr_dtype dtype, bool is_batch) {
  static const int64_t shapes[2][3] = {{1, 72, 1000}, {3, 72, 333}};
  static const int64_t strides[2][3] = {{0, 1, 72}, {72 * 333, 1, 72}};
  static const int64_t none[3] = {0, 0, 0};
  int from = is_batch ? 0 : 1;
  sample *s = calloc(1, sizeof *s);
  s->dtype = dtype;
  make_begin(&s->m, 3 - from, shapes[is_batch] + from, is_batch ? 7 : 3, 0);
  int arg = make_arg(&s->m);
  s->args[arg] = transposed[dtype];
  for (int i = 0; i < TRANSPOSED; ++i) {
    float value = (float)((double)(next() % 2001) - 1000) * 0.25f;
    uint16_t half = hr_f32_to_f16(value);
    int64_t number = (int64_t)(next() % 2001) - 1000;
    const void *bytes = dtype == HR_DTYPE_F32   ? (void *)&value
                        : dtype == HR_DTYPE_F16 ? (void *)&half
                                                : (void *)&number;
    memcpy(transposed[dtype] + (size_t)i * hr_dtype_size(dtype), bytes, hr_dtype_size(dtype));
  }
  hr_class cls = hr_dtype_class(dtype);
  int reg = make_load(&s->m, 0, arg, dtype, 0, strides[is_batch] + from);
  output(s, HR_OP_SUM, 1, make_reduce(&s->m, 0, HR_OP_SUM, cls, reg), class_dtype(cls), none);
  output(s, HR_OP_AMAX, 1, make_reduce(&s->m, 0, HR_OP_AMAX, cls, reg), class_dtype(cls), none);
  end_sample(s);
}

/* Neighbouring rows, each with its largest number and the remainder without it. After add_transposed. */
static void add_transposed_rows(hr_dtype dtype, bool is_batch) {
  static const int64_t shapes[2][3] = {{1, 40, 140}, {2, 19, 150}};
  static const int64_t strides[2][3] = {{0, 1, 40}, {2850, 1, 19}};
  static const int64_t rows[2][3] = {{0, 1, 0}, {19, 1, 0}}, elements[2][3] = {{0, 140, 1}, {2850, 150, 1}};
  int from = is_batch ? 0 : 1;
  sample *s = calloc(1, sizeof *s);
  s->dtype = dtype;
  make_begin(&s->m, 3 - from, shapes[is_batch] + from, is_batch ? 4 : 2, 0);
  int arg = make_arg(&s->m);
  s->args[arg] = transposed[dtype];
  hr_class cls = hr_dtype_class(dtype);
  int reg = make_load(&s->m, 0, arg, dtype, 9, strides[is_batch] + from);
  int most = make_reduce(&s->m, 0, HR_OP_AMAX, cls, reg);
  output(s, HR_OP_AMAX, 1, most, class_dtype(cls), rows[is_batch] + from);
  int again = make_load(&s->m, 1, arg, dtype, 9, strides[is_batch] + from);
  int left = make_op(&s->m, 1, HR_OP_SUB, cls, 2, (int[]){again, most});
  left = hr_dtype_is_narrow(dtype) ? make_convert(&s->m, 1, left, dtype) : left;
  output(s, HR_OP_SUB, 1, left, dtype, elements[is_batch] + from);
  end_sample(s);
}

/* Sums of dense matrices and their transposes, in both directions: in narrow, wide and short rows, with a dim in
 * between. After add_transposed. */
static void add_transposed_points(hr_dtype dtype) {
  static const struct {
    int64_t dims[3], strides[3];
  } shapes[] = {{{1, 45, 133}, {0, 1, 45}},
                {{1, 9, 660}, {0, 1, 9}},
                {{1, 200, 29}, {0, 1, 200}},
                {{2, 70, 42}, {2940, 1, 70}},
                {{12, 2, 240}, {1, 2880, 12}}};
  for (int k = 0; k < 5; ++k) {
    int from = shapes[k].dims[0] == 1 ? 1 : 0;
    int64_t dense_strides[3] = {shapes[k].dims[1] * shapes[k].dims[2], shapes[k].dims[2], 1}, backwards[3];
    int64_t last = shapes[k].dims[2] - 1;
    memcpy(backwards, shapes[k].strides, sizeof backwards);
    backwards[2] = -backwards[2];
    sample *s = calloc(1, sizeof *s);
    s->dtype = dtype;
    make_begin(&s->m, 3 - from, shapes[k].dims + from, 0, 0);
    int arg = make_arg(&s->m), reg[3];
    s->args[arg] = transposed[dtype];
    reg[0] = make_load(&s->m, 0, arg, dtype, 5, shapes[k].strides + from);
    reg[1] = make_load(&s->m, 0, arg, dtype, 11 + last * shapes[k].strides[2], backwards + from);
    reg[2] = make_load(&s->m, 0, arg, dtype, 3, dense_strides + from);
    hr_class cls = hr_dtype_class(dtype);
    for (int i = 1; i < 3; ++i) {
      int sum = make_op(&s->m, 0, HR_OP_ADD, cls, 2, (int[]){reg[0], reg[i]});
      sum = hr_dtype_is_narrow(dtype) ? make_convert(&s->m, 0, sum, dtype) : sum;
      output(s, HR_OP_ADD, 0, sum, dtype, dense_strides + from);
    }
    end_sample(s);
  }
}

/* Rows that are cut from longer ones, each a tile of its own, with a number for each row and one for each column. After
 * add_transposed. */
static void add_cut_rows(hr_dtype dtype) {
  static const int64_t dims[2] = {5, 700}, cut[2] = {900, 1}, steps[2] = {1500, 2}, of_row[2] = {1, 0},
                       of_column[2] = {0, 1};
  sample *s = calloc(1, sizeof *s);
  s->dtype = dtype;
  make_begin(&s->m, 2, dims, 0, 0);
  int arg = make_arg(&s->m), reg[4];
  s->args[arg] = transposed[dtype];
  reg[0] = make_load(&s->m, 0, arg, dtype, 5, cut);
  reg[1] = make_load(&s->m, 0, arg, dtype, 1, of_row);
  reg[2] = make_load(&s->m, 0, arg, dtype, 7, of_column);
  reg[3] = make_load(&s->m, 0, arg, dtype, 2, steps);
  hr_class cls = hr_dtype_class(dtype);
  for (int i = 1; i < 4; ++i) {
    int sum = make_op(&s->m, 0, HR_OP_ADD, cls, 2, (int[]){reg[0], reg[i]});
    sum = hr_dtype_is_narrow(dtype) ? make_convert(&s->m, 0, sum, dtype) : sum;
    output(s, HR_OP_ADD, 0, sum, dtype, cut);
  }
  output(s, HR_OP_COPY, 0, reg[1], dtype, cut);
  end_sample(s);
}

/* ---- running ---- */

static void run(const sample *s, const hr_host_kernel *kernel) {
  void *workspace = aligned_alloc(64, (kernel->workspace_bytes / 64 + 1) * 64);
  void *scratch = aligned_alloc(64, (kernel->scratch_bytes / 64 + 1) * 64);
  hr_host_call call = {.args = s->args, .workspace = workspace, .scratch = scratch};
  for (int i = 0; i < s->output_count; ++i) {
    memset(s->args[s->outputs[i]], 0x7f, MEMORY * sizeof(hr_c128));
  }
  for (int pass = 0; pass < kernel->pass_count; ++pass) {
    kernel->run(kernel, pass, &call, 0, kernel->passes[pass].units);
  }
  free(workspace);
  free(scratch);
}

static bool is_same(hr_dtype dtype, const void *a, const void *b) {
  size_t size = hr_dtype_size(dtype);
  double x = 0, y = 0;
  if (memcmp(a, b, size) == 0) {
    return true;
  }
  if (dtype == HR_DTYPE_F64) {
    memcpy(&x, a, size), memcpy(&y, b, size);
  } else if (dtype == HR_DTYPE_F32) {
    float p, q;
    memcpy(&p, a, size), memcpy(&q, b, size);
    x = (double)p, y = (double)q;
  } else if (dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_BF16) {
    uint16_t p, q;
    memcpy(&p, a, size), memcpy(&q, b, size);
    x = (double)(dtype == HR_DTYPE_F16 ? hr_f16_to_f32(p) : hr_bf16_to_f32(p));
    y = (double)(dtype == HR_DTYPE_F16 ? hr_f16_to_f32(q) : hr_bf16_to_f32(q));
  } else if (hr_dtype_is_float8(dtype)) {
    x = (double)hr_f8_to_f32(dtype, *(const uint8_t *)a), y = (double)hr_f8_to_f32(dtype, *(const uint8_t *)b);
  }
  return isnan(x) && isnan(y); /* their sign and payload are free */
}

static void check(const sample *s, const char *how) {
  for (int i = 0; i < s->output_count; ++i) {
    hr_dtype whole = s->output_dtypes[i];
    hr_dtype dtype = whole == HR_DTYPE_C64    ? HR_DTYPE_F32
                     : whole == HR_DTYPE_C128 ? HR_DTYPE_F64
                     : whole == HR_DTYPE_C32  ? HR_DTYPE_F16
                                              : whole;
    size_t size = hr_dtype_size(dtype);
    const char *got = s->args[s->outputs[i]], *expected = s->expected[i];
    for (size_t at = 0; at < MEMORY * sizeof(hr_c128); at += size) {
      if (!is_same(dtype, got + at, expected + at)) {
        HR_FAIL("%s of %s, %s: element %zu", hr_op_table(s->ops[i])->name, hr_dtype_name(s->dtype), how, at / size);
      }
    }
  }
}

static void check_compiler(const char *compiler, const char *const *flags) {
  char how[128];
  hr_text path = {0};
  hr_library *library;
  snprintf(how, sizeof how, "%s %s", compiler, flags[0] != NULL ? flags[0] : "-O3");
  setenv("HEADRACE_CC", compiler, 1);
  hr__env_reload();
  hr_status status = hr__host_compile(NULL, hr_text_chars(&text), text.length, flags, &path);
  if (status != HR_OK) { /* no such compiler, or another CPU */
    fprintf(stderr, "not tested: %s: %.200s\n", how, hr_status_message(status));
    hr_status_free(status);
    return;
  }
  HR_ASSERT_OK(hr__library_open(hr_text_chars(&path), &library));
  hr__host_compiler_remove(hr_text_chars(&path));
  for (size_t k = 0; k < samples.count; ++k) {
    sample *s = samples.data[k];
    hr_host_kernel *compiled;
    HR_ASSERT_OK(hr__compiled_kernel_create(library, s->name, &s->emission, s->name, 0, &compiled));
    run(s, compiled);
    check(s, how);
    compiled->destroy(compiled);
  }
  hr__library_release(library);
  hr_text_fini(&path);
}

static void make_samples(uint32_t dtypes) {
  HR_ASSERT_OK(hr_emit_prelude(&text));
  for (int d = 1; d < HR_DTYPE_COUNT; ++d) {
    if ((dtypes >> d & 1) != 0) {
      add_conversions((hr_dtype)d);
      if (hr_dtype_is_float8((hr_dtype)d)) {
        continue; /* nothing else is done in it */
      }
      add_pointwise((hr_dtype)d);
      add_reductions((hr_dtype)d);
      add_roundings((hr_dtype)d);
      if (d == HR_DTYPE_F32 || d == HR_DTYPE_F16 || d == HR_DTYPE_I64) {
        add_transposed((hr_dtype)d, false);
        add_transposed((hr_dtype)d, true);
        add_transposed_rows((hr_dtype)d, false);
        add_transposed_rows((hr_dtype)d, true);
        add_transposed_points((hr_dtype)d);
        add_cut_rows((hr_dtype)d);
      }
    }
  }
  add_remainders();
  for (size_t k = 0; k < samples.count; ++k) {
    sample *s = samples.data[k];
    run(s, s->interpreted);
    for (int i = 0; i < s->output_count; ++i) {
      s->expected[i] = malloc(MEMORY * sizeof(hr_c128));
      memcpy(s->expected[i], s->args[s->outputs[i]], MEMORY * sizeof(hr_c128));
    }
  }
}

static void free_samples(void) {
  for (size_t k = 0; k < samples.count; ++k) {
    sample *s = samples.data[k];
    s->interpreted->destroy(s->interpreted);
    for (int i = 0; i < s->output_count; ++i) {
      free(s->expected[i]);
      free(s->args[s->outputs[i]]);
    }
    free(s);
  }
  hr_vector_fini(&samples);
  hr_text_fini(&text);
}

static const char *const plain[] = {NULL}, *const slow[] = {"-O0", NULL}, *const narrow[] = {"-march=x86-64-v3", NULL},
                         *const old[] = {"-march=x86-64-v2", NULL}, *const w128[] = {"-mprefer-vector-width=128", NULL},
                         *const w256[] = {"-mprefer-vector-width=256", NULL},
                         *const w512[] = {"-mprefer-vector-width=512", NULL};

/* The compiler of the wheel `ziglang`, if there is one among Python's packages. */
static void check_wheel(void) {
  static const char *const patterns[] = {"ziglang/zig", NULL}, *const v3[] = {"-march=x86_64_v3", NULL},
                           *const v2[] = {"-march=x86_64_v2", NULL};
  hr_text path = {0};
  if (hr_places_find(patterns, false, &path)) {
    check_compiler(hr_text_chars(&path), plain);
    check_compiler(hr_text_chars(&path), v3);
    check_compiler(hr_text_chars(&path), v2);
  } else {
    fprintf(stderr, "not tested: ziglang\n");
  }
  hr_text_fini(&path);
}

HR_TEST(compiled_rows_have_the_bits_of_interpreted_ones) {
  const uint32_t all_dtypes = UINT32_MAX;
  const uint32_t usual = 1u << HR_DTYPE_F32 | 1u << HR_DTYPE_F16 | 1u << HR_DTYPE_BF16 | 1u << HR_DTYPE_I32 |
                         1u << HR_DTYPE_I64 | 1u << HR_DTYPE_F8E4M3FN | 1u << HR_DTYPE_F8E5M2 |
                         1u << HR_DTYPE_F8E4M3FNUZ | 1u << HR_DTYPE_F8E5M2FNUZ | 1u << HR_DTYPE_F8E8M0FNU |
                         1u << HR_DTYPE_F8E4M3 | 1u << HR_DTYPE_F8E3M4 | 1u << HR_DTYPE_F8E4M3B11FNUZ |
                         1u << HR_DTYPE_F4E2M1FN;
  const char *const *const variants[] = {plain, narrow, old, w128, w256, w512};
  bool is_sample = HR_TEST_SHARE > 1; /* whose time compilers take */
  fill_memory();
  make_samples(is_sample ? usual : all_dtypes);
  check_compiler("gcc", slow);
  if (!is_sample) {
    check_compiler("clang", slow);
    check_wheel();
  }
  if (getenv("HEADRACE_TEST_COMPILERS") != NULL) {
    for (size_t v = 0; v < sizeof variants / sizeof *variants; ++v) {
      check_compiler("gcc", variants[v]);
      check_compiler("clang", variants[v]);
    }
  } else if (!is_sample) {
    free_samples();
    make_samples(usual);
    check_compiler("gcc", plain);
  }
  free_samples();
  for (int d = 1; d < HR_DTYPE_COUNT; ++d) {
    for (int i = 0; i < INPUTS; ++i) {
      free(memory[d][i]);
    }
  }
  unsetenv("HEADRACE_CC");
  hr__env_reload();
}
