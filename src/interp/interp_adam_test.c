/* Kernels that are a step of Adam, against kernels of the same rows that also store the negative gradient: those run
 * block by block. */
#include "hr_test.h"

#include <math.h>

#include "interp/interp.h"
#include "interp/interp_testing.h"

enum { PARAM, GRAD, MEAN, SQUARE, OPERANDS, NEGATIVE = OPERANDS, ARGS, ELEMENTS_MAX = 10000, OFFSET = 3 };

typedef enum decay_kind { NONE, OF_PARAM, IN_GRADIENT, DECAYS } decay_kind;

typedef struct scene {
  int rank;
  int64_t dims[3], strides[3];
  decay_kind decay;
  hr_dtype dtype;
  int grad_arg;   /* GRAD, or another one's: the gradient is that operand */
  int joined_arg; /* PARAM, or the operand that is added to the gradient in its place */
  bool is_negated,
      stores_mean_first; /* the negative gradient is stored, too; the mean is stored before the loads end */
} scene;

static int op(kernel_maker *m, hr_op op, int count, const int *sources) {
  return make_op(m, 0, op, HR_CLASS_F32, count, sources);
}

static const hr_kernel *make_kernel(kernel_maker *m, const scene *s) {
  int number[7];
  make_begin(m, s->rank, s->dims, 0, 0);
  for (int i = 0; i < OPERANDS + s->is_negated; ++i) {
    make_arg(m);
  }
  for (int i = 0; i < 7; ++i) {
    number[i] = make_scalar(m);
  }
#define LOAD(arg) make_load(m, 0, arg, s->dtype, OFFSET, s->strides)
#define STORE(arg, reg) make_store(m, 0, arg, s->dtype, OFFSET, s->strides, reg)
  int grad = LOAD(s->grad_arg), slope = grad, param = -1;
  if (s->decay == OF_PARAM || (s->decay == IN_GRADIENT && s->joined_arg == PARAM)) {
    param = LOAD(PARAM);
  }
  bool joins_other = s->decay == IN_GRADIENT && s->joined_arg != PARAM;
  int joined = !joins_other ? param : s->joined_arg == GRAD ? grad : LOAD(s->joined_arg);
  slope = s->decay == IN_GRADIENT ? op(m, HR_OP_ADD_SCALED, 3, (int[]){grad, joined, number[6]}) : grad;
  int kept = s->decay == OF_PARAM ? op(m, HR_OP_MUL, 2, (int[]){param, number[6]}) : param;
  int mean =
      op(m, HR_OP_LERP, 3, (int[]){joins_other && s->joined_arg == MEAN ? joined : LOAD(MEAN), slope, number[0]});
  if (s->stores_mean_first) {
    STORE(MEAN, mean);
  }
  int scaled = op(m, HR_OP_MUL, 2, (int[]){joins_other && s->joined_arg == SQUARE ? joined : LOAD(SQUARE), number[1]});
  int square = op(m, HR_OP_ADDCMUL, 4, (int[]){scaled, slope, slope, number[2]});
  int root = op(m, HR_OP_DIV, 2, (int[]){op(m, HR_OP_SQRT, 1, &square), number[3]});
  int divisor = op(m, HR_OP_ADD, 2, (int[]){root, number[4]});
  kept = kept >= 0 ? kept : LOAD(PARAM);
  param = op(m, HR_OP_ADDCDIV, 4, (int[]){kept, mean, divisor, number[5]});
  if (s->is_negated) {
    STORE(NEGATIVE, op(m, HR_OP_NEG, 1, &grad));
  }
  if (!s->stores_mean_first) {
    STORE(MEAN, mean);
  }
  STORE(SQUARE, square);
  STORE(PARAM, param);
  return make_end(m);
}

static uint64_t seed = 5;

static float any(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (float)(int32_t)(seed >> 32) * 0x1p-30f;
}

/* Operands with extreme numbers among them. */
static void draw(float (*x)[ELEMENTS_MAX]) {
  static const float extremes[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-42f, 3e38f};
  for (int a = 0; a < ARGS; ++a) {
    for (int i = 0; i < ELEMENTS_MAX; ++i) {
      x[a][i] = i % 37 == a ? extremes[i / 37 % 7] : any();
      x[a][i] = a == SQUARE ? fabsf(x[a][i]) : x[a][i];
    }
  }
}

/* Ranges of units, the last one first. */
static void run(const hr_host_kernel *kernel, float (*x)[ELEMENTS_MAX], const int *memory, float rate) {
  void *args[ARGS], *scratch = hr_aligned_malloc(kernel->scratch_bytes + 64, 64);
  for (int a = 0; a < ARGS; ++a) {
    args[a] = x[memory[a]];
  }
  const hr_scalar scalars[] = {hr_scalar_f64(rate), hr_scalar_f64(0.999), hr_scalar_f64(0.001), hr_scalar_f64(0.7),
                               hr_scalar_f64(1e-8), hr_scalar_f64(-0.01), hr_scalar_f64(0.99)};
  HR_ASSERT_EQ(kernel->pass_count, 1);
  for (int64_t unit = kernel->passes[0].units - 1; unit >= 0; --unit) {
    hr_host_call call = {args, scalars, NULL, scratch};
    kernel->run(kernel, 0, &call, unit, unit + 1);
  }
  hr_aligned_free(scratch);
}

static const int own_memory[ARGS] = {PARAM, GRAD, MEAN, SQUARE, NEGATIVE};

static float ours[ARGS][ELEMENTS_MAX], theirs[ARGS][ELEMENTS_MAX];

static hr_host_kernel *create(const scene *s) {
  kernel_maker m;
  hr_host_kernel *kernel;
  HR_ASSERT_OK(hr_kernel_verify(make_kernel(&m, s)));
  HR_ASSERT_OK(hr_interp_create(make_end(&m), &kernel));
  return kernel;
}

/* Kernels with a loop of their own need no scratch. */
static bool has_own_loop(const hr_host_kernel *kernel) {
  return kernel->scratch_bytes == 0;
}

static void check_run(const hr_host_kernel *kernel, const scene *s, const int *memory, float rate) {
  scene other = *s;
  other.is_negated = true;
  hr_host_kernel *plain = create(&other);
  HR_ASSERT(!has_own_loop(plain));
  draw(ours);
  memcpy(theirs, ours, sizeof ours);
  run(kernel, ours, memory, rate);
  run(plain, theirs, memory, rate);
  HR_ASSERT_BYTES_EQ(ours, theirs, sizeof *ours * OPERANDS);
  plain->destroy(plain);
}

static void check(const scene *s, bool is_own, float rate) {
  hr_host_kernel *kernel = create(s);
  HR_ASSERT_EQ(has_own_loop(kernel), is_own);
  check_run(kernel, s, own_memory, rate);
  kernel->destroy(kernel);
}

static scene vector(int64_t count, decay_kind decay) {
  return (scene){.rank = 1, .dims = {count}, .strides = {1}, .decay = decay, .dtype = HR_DTYPE_F32, .grad_arg = GRAD};
}

HR_TEST(steps_of_any_size) {
  static const int64_t counts[] = {0, 1, 7, 15, 16, 17, 33, 100, 1024, 4095, 4096, 4097, 9000};
  for (int decay = NONE; decay < DECAYS; ++decay) {
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
      scene s = vector(counts[i], (decay_kind)decay);
      check(&s, true, 0.1f);
      check(&s, true, 0.75f); /* from the other end */
    }
    scene s = {.rank = 3,
               .dims = {5, 1, 300},
               .strides = {300, 7, 1},
               .decay = (decay_kind)decay,
               .dtype = HR_DTYPE_F32,
               .grad_arg = GRAD};
    check(&s, true, 0.1f);
  }
}

HR_TEST(gradients_in_the_memory_of_another_operand) {
  static const int memory[][ARGS] = {{PARAM, PARAM, MEAN, SQUARE, NEGATIVE}, {PARAM, MEAN, MEAN, SQUARE, NEGATIVE}};
  for (int i = 0; i < 2; ++i) {
    for (int decay = NONE; decay < DECAYS; ++decay) {
      scene s = vector(1000, (decay_kind)decay);
      hr_host_kernel *kernel = create(&s);
      check_run(kernel, &s, memory[i], 0.1f);
      kernel->destroy(kernel);
    }
  }
}

HR_TEST(other_kernels_run_block_by_block) {
  for (int decay = NONE; decay < DECAYS; ++decay) {
    scene s = vector(1000, (decay_kind)decay);
    s.strides[0] = 2;
    check(&s, false, 0.1f);
    s = vector(1000, (decay_kind)decay);
    s.dtype = HR_DTYPE_BF16;
    check(&s, false, 0.1f);
    s = vector(1000, (decay_kind)decay);
    s.grad_arg = MEAN;
    check(&s, false, 0.1f);
    s = vector(1000, (decay_kind)decay);
    s.stores_mean_first = true;
    check(&s, false, 0.1f);
  }
  for (int joined = GRAD; joined <= SQUARE; ++joined) {
    scene s = vector(1000, IN_GRADIENT);
    s.joined_arg = joined;
    check(&s, false, 0.1f);
  }
}

HR_TEST(steps_get_new_numbers) {
  kernel_maker m;
  scene small = vector(50, NONE), large = vector(9000, OF_PARAM), strided = vector(50, NONE);
  strided.strides[0] = 2;
  hr_host_kernel *kernel = create(&small), *plain = create(&strided);
  HR_ASSERT(hr_interp_renumber(kernel, make_kernel(&m, &large)));
  check_run(kernel, &large, own_memory, 0.1f);
  HR_ASSERT(hr_interp_renumber(kernel, make_kernel(&m, &small)));
  check_run(kernel, &small, own_memory, 0.1f);
  HR_ASSERT(!hr_interp_renumber(kernel, make_kernel(&m, &strided)));
  check_run(kernel, &small, own_memory, 0.1f);
  HR_ASSERT(!hr_interp_renumber(plain, make_kernel(&m, &small)));
  check_run(plain, &strided, own_memory, 0.1f);
  kernel->destroy(kernel);
  plain->destroy(plain);
}
