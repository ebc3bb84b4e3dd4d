/* Linear algebra on the host, on matrices with known results; the rest is compared with PyTorch (tests/python). */
#include "core/ops/op.h"
#include "hr_test.h"
#include "providers/lapack/lapack_api.h"
#include "providers/provider.h"

enum { RANK = 3, OPERANDS = 6 };

typedef struct tensor {
  hr_dtype dtype;
  int rank; /* -1: absent */
  int64_t dims[RANK], strides[RANK];
  void *data;
} tensor;

static void open_lapack(void) {
  hr_status status = hr__lapack_open();
  if (status != HR_OK) {
    static char reason[512];
    snprintf(reason, sizeof reason, "%s", hr_status_message(status));
    hr_status_free(status);
    HR_SKIP(reason);
  }
}

static tensor dense(hr_dtype dtype, void *data, int rank, const int64_t *dims) {
  tensor t = {.dtype = dtype, .rank = rank, .data = data};
  int64_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    t.dims[d] = dims[d];
    t.strides[d] = stride;
    stride *= dims[d];
  }
  return t;
}
#define DENSE(dtype, data, ...) \
  dense(HR_DTYPE_##dtype, data, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})
#define ABSENT ((tensor){.rank = -1})

/* Runs one node; the status is the run's. */
static hr_status run_row(hr_op op, int input_count, const tensor *inputs, int output_count, const tensor *outputs,
                         const int64_t *ints) {
  hr_program program;
  hr_operand operands[OPERANDS] = {{0}};
  void *args[OPERANDS + 1];
  hr_scalar scalar = hr_scalar_f64(1e-10);
  hr_program_init(&program);
  for (int i = 0; i < input_count + output_count; ++i) {
    const tensor *t = i < input_count ? &inputs[i] : &outputs[i - input_count];
    args[i] = t->data;
    if (t->rank >= 0) {
      operands[i] = (hr_operand){.kind = HR_OPERAND_VALUE,
                                 .dtype = t->dtype,
                                 .rank = t->rank,
                                 .dims = t->dims,
                                 .strides = t->strides,
                                 .fill = HR_NO_SCALAR};
    }
  }
  args[input_count + output_count] = &scalar;
  hr_node node = {.op = op,
                  .input_count = input_count,
                  .output_count = output_count,
                  .inputs = operands,
                  .outputs = operands + input_count,
                  .int_count = hr_op_table(op)->int_count,
                  .scalar_count = hr_op_table(op)->scalar_count,
                  .ints = ints};
  hr_prepared *prepared = NULL;
  size_t workspace_bytes = 0;
  HR_ASSERT(hr__lapack_provider.supports(&program, &node));
  HR_ASSERT_OK(hr__lapack_provider.prepare(&program, &node, HR_ALGORITHM_OWN, NULL, &prepared, &workspace_bytes));
  void *workspace = hr_aligned_malloc(workspace_bytes + 1, 64);
  hr_status status = hr__lapack_provider.run(prepared, args, workspace, NULL);
  hr_aligned_free(workspace);
  hr__lapack_provider.release(prepared);
  hr_program_fini(&program);
  return status;
}

static void expect_near(const double *actual, const double *expected, int count) {
  for (int i = 0; i < count; ++i) {
    HR_ASSERT_NEAR(actual[i], expected[i], 1e-12);
  }
}

HR_TEST(cholesky_gives_both_triangles_and_the_pivot_that_failed) {
  open_lapack();
  double a[2][4] = {{4, 2, 2, 5}, {1, 2, 2, 1}}, factor[2][4];
  int32_t info[2];
  for (int upper = 0; upper < 2; ++upper) {
    HR_ASSERT_OK(run_row(HR_OP_CHOLESKY, 1, (tensor[]){DENSE(F64, a, 2, 2, 2)}, 2,
                         (tensor[]){DENSE(F64, factor, 2, 2, 2), DENSE(I32, info, 2)}, (int64_t[]){upper}));
    expect_near(factor[0], upper ? (const double[]){2, 0, 1, 2} : (const double[]){2, 1, 0, 2}, 4);
    HR_ASSERT_EQ(info[0], 0);
    HR_ASSERT_EQ(info[1], 2);
  }
}

HR_TEST(lu_solves_with_the_matrix_its_transpose_and_its_adjoint) {
  open_lapack();
  double a[4][2] = {{0, 1}, {2, 0}, {1, 0}, {0, 3}}; /* columns (i, 2) and (1, 3i) */
  double b[2][2] = {{1, 0}, {0, 1}}, lu[4][2], x[2][2];
  int32_t pivots[2], info[1];
  HR_ASSERT_OK(run_row(HR_OP_LU, 1, (tensor[]){DENSE(C128, a, 2, 2)}, 3,
                       (tensor[]){DENSE(C128, lu, 2, 2), DENSE(I32, pivots, 2), dense(HR_DTYPE_I32, info, 0, NULL)},
                       NULL));
  HR_ASSERT_EQ(info[0], 0);
  HR_ASSERT_EQ(pivots[0], 2);
  for (int trans = 0; trans < 3; ++trans) {
    HR_ASSERT_OK(run_row(HR_OP_LU_SOLVE, 3,
                         (tensor[]){DENSE(C128, lu, 2, 2), DENSE(I32, pivots, 2), DENSE(C128, b, 1, 2)}, 1,
                         (tensor[]){DENSE(C128, x, 1, 2)}, (int64_t[]){trans}));
    for (int row = 0; row < 2; ++row) { /* A x = b again */
      double re = 0, im = 0;
      for (int k = 0; k < 2; ++k) {
        const double *element = trans == 0 ? a[2 * k + row] : a[2 * row + k];
        double element_im = trans == 2 ? -element[1] : element[1];
        re += element[0] * x[k][0] - element_im * x[k][1];
        im += element[0] * x[k][1] + element_im * x[k][0];
      }
      HR_ASSERT_NEAR(re, b[row][0], 1e-12);
      HR_ASSERT_NEAR(im, b[row][1], 1e-12);
    }
  }
}

HR_TEST(pivots_outside_of_the_matrix_are_refused) {
  open_lapack();
  double lu[4] = {1, 0, 0, 1}, b[2] = {1, 1}, x[2];
  int32_t pivots[2] = {1, 3};
  HR_ASSERT_ERROR(run_row(HR_OP_LU_SOLVE, 3,
                          (tensor[]){DENSE(F64, lu, 2, 2), DENSE(I32, pivots, 2), DENSE(F64, b, 1, 2)}, 1,
                          (tensor[]){DENSE(F64, x, 1, 2)}, (int64_t[]){0}),
                  HR_STATUS_INVALID_ARGUMENT, "pivots");
}

HR_TEST(svd_and_eigenvalues_of_diagonal_and_rotating_matrices) {
  open_lapack();
  float a[6] = {0, 3, 0, -2, 0, 0}, s[2]; /* 3 x 2 */
  HR_ASSERT_OK(
      run_row(HR_OP_SVD, 1, (tensor[]){DENSE(F32, a, 2, 3)}, 2, (tensor[]){ABSENT, DENSE(F32, s, 2)}, (int64_t[]){0}));
  HR_ASSERT_NEAR(s[0], 3, 1e-6);
  HR_ASSERT_NEAR(s[1], 2, 1e-6);
  double turn[4] = {0, 1, -1, 0}, values[2][2], symmetric[4] = {1, 2, 2, 1}, w[2];
  HR_ASSERT_OK(run_row(HR_OP_EIG, 1, (tensor[]){DENSE(F64, turn, 2, 2)}, 1, (tensor[]){DENSE(C128, values, 2)}, NULL));
  expect_near(values[0], (const double[]){0, 1, 0, -1}, 4);
  HR_ASSERT_OK(
      run_row(HR_OP_EIGH, 1, (tensor[]){DENSE(F64, symmetric, 2, 2)}, 1, (tensor[]){DENSE(F64, w, 2)}, (int64_t[]){0}));
  expect_near(w, (const double[]){-1, 3}, 2);
}

HR_TEST(what_is_not_finite_does_not_converge) {
  open_lapack();
  float a[4] = {1, NAN, 2, 3}, s[2];
  HR_ASSERT_ERROR(
      run_row(HR_OP_SVD, 1, (tensor[]){DENSE(F32, a, 2, 2)}, 2, (tensor[]){ABSENT, DENSE(F32, s, 2)}, (int64_t[]){0}),
      HR_STATUS_ABORTED, "non-finite");
}

HR_TEST(exponentials_of_nilpotent_rotating_and_large_matrices) {
  open_lapack();
  double a[3][4] = {{0, 0, 5, 0}, {0, 1, -1, 0}, {-40, 0, 0, 3}}, e[3][4];
  HR_ASSERT_OK(
      run_row(HR_OP_MATRIX_EXP, 1, (tensor[]){DENSE(F64, a, 3, 2, 2)}, 1, (tensor[]){DENSE(F64, e, 3, 2, 2)}, NULL));
  expect_near(e[0], (const double[]){1, 0, 5, 1}, 4);
  expect_near(e[1], (const double[]){cos(1), sin(1), -sin(1), cos(1)}, 4);
  expect_near(e[2], (const double[]){exp(-40), 0, 0, exp(3)}, 4);
}

/* Small f32 and c64 matrices are computed in double precision: the results are those of double precision, rounded. */
static void check_widened(hr_op op, bool is_complex, int n, int output_count) {
  enum { BATCH = 3, MOST = 2 * BATCH * 32 * 32 };
  static float a[MOST], b[MOST];
  static double wide_a[MOST], wide_b[MOST];
  int32_t pivots[2][BATCH * 32], infos[2][BATCH];
  int count = BATCH * n * n * (is_complex ? 2 : 1);
  for (int i = 0; i < count; ++i) {
    a[i] = 3 * sinf((float)(7 * i));
    wide_a[i] = (double)a[i];
  }
  hr_dtype narrow = is_complex ? HR_DTYPE_C64 : HR_DTYPE_F32, wide = is_complex ? HR_DTYPE_C128 : HR_DTYPE_F64;
  const int64_t dims[] = {BATCH, n, n};
  for (int k = 0; k < 2; ++k) {
    hr_dtype dtype = k == 0 ? narrow : wide;
    tensor in = dense(dtype, k == 0 ? (void *)a : (void *)wide_a, 3, dims);
    tensor out = dense(dtype, k == 0 ? (void *)b : (void *)wide_b, 3, dims);
    HR_ASSERT_OK(run_row(op, 1, &in, output_count,
                         (tensor[]){out, DENSE(I32, pivots[k], BATCH, n), DENSE(I32, infos[k], BATCH)}, NULL));
  }
  for (int i = 0; i < count; ++i) {
    HR_ASSERT_NEAR(b[i], (float)wide_b[i], 0);
  }
  if (output_count > 1) {
    HR_ASSERT_BYTES_EQ(pivots[0], pivots[1], (size_t)(BATCH * n) * 4);
    HR_ASSERT_BYTES_EQ(infos[0], infos[1], sizeof infos[0]);
  }
}

HR_TEST(small_matrices_of_single_precision_are_worked_on_in_double_precision) {
  open_lapack();
  for (int is_complex = 0; is_complex < 2; ++is_complex) {
    check_widened(HR_OP_MATRIX_EXP, is_complex, 5, 1);
    check_widened(HR_OP_LU, is_complex, 5, 3);
    check_widened(HR_OP_LU, is_complex, 32, 3);
  }
}

HR_TEST(products_of_f64_in_every_layout_and_batch) {
  open_lapack();
  enum { M = 23, K = 9, N = 17, BATCH = 3 };
  static double a[BATCH * M * K], b[K * N], c[BATCH * M * N];
  for (int i = 0; i < BATCH * M * K; ++i) {
    a[i] = (double)(i * 7 % 31) - 15;
  }
  for (int i = 0; i < K * N; ++i) {
    b[i] = (double)(i * 5 % 29) - 14;
  }
  for (int layout = 0; layout < 4; ++layout) {
    tensor x = {.dtype = HR_DTYPE_F64, .rank = 3, .dims = {BATCH, M, K}, .data = a};
    tensor y = {.dtype = HR_DTYPE_F64, .rank = 3, .dims = {1, K, N}, .data = b};
    x.strides[0] = M * K, x.strides[1] = layout & 1 ? 1 : K, x.strides[2] = layout & 1 ? M : 1;
    y.strides[1] = layout & 2 ? 1 : N, y.strides[2] = layout & 2 ? K : 1;
    HR_ASSERT_OK(run_row(HR_OP_MATMUL, 2, (tensor[]){x, y}, 1, (tensor[]){DENSE(F64, c, BATCH, M, N)}, NULL));
    for (int i = 0; i < BATCH * M * N; ++i) {
      int batch = i / (M * N), row = i / N % M, column = i % N;
      double sum = 0;
      for (int k = 0; k < K; ++k) {
        sum += a[batch * M * K + row * x.strides[1] + k * x.strides[2]] * b[k * y.strides[1] + column * y.strides[2]];
      }
      HR_ASSERT(c[i] == sum); /* small whole numbers */
    }
  }
}
