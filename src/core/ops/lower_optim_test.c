/* Optimizers against PyTorch 2.13 on the CPU: torch._fused_adam_, _fused_adamw_ and _fused_sgd_ on two parameters. */
#include "lower_testing.h"

enum { FIRST = 5, SECOND = 3, ALL = FIRST + SECOND };

/* ((i * factor + start) mod 64 - 32) / 32 * scale: numbers without rounding errors that the goldens were made from. */
static void ramp(float *out, int count, int factor, int start, float scale) {
  for (int i = 0; i < count; ++i) {
    out[i] = (float)((i * factor + start) % 64 - 32) / 32 * scale;
  }
}

static const float adam_p[] = {-0.964564502f,  -0.74593997f,  -0.526404977f, -0.312737733f,
                               -0.0952715278f, -0.838232338f, -0.492310047f, -0.152511656f};
static const float adam_m[] = {-0.177343756f, -0.115625001f, -0.0539062507f, 0.00781250093f,
                               0.0695312545f, -0.301562488f, -0.22265625f,   -0.143749997f};
static const float adam_v[] = {0.113447264f, 0.0512499996f, 0.00782226585f, 0.0682421848f,
                               0.131962895f, 0.116494142f,  0.0326953121f,  0.0576660149f};
static const float adam_all_p[] = {-0.966344059f,  -0.747267425f, -0.528952181f, -0.310687125f,
                                   -0.0927372128f, -0.839979172f, -0.496623814f, -0.154464319f};
static const float adam_all_m[] = {-0.099609375f, -0.0859375f,   -0.072265625f, -0.05859375f,
                                   -0.044921875f, -0.198828131f, -0.135156244f, -0.071484372f};
static const float adam_all_v[] = {0.10831558f, 0.0502758808f, 0.00781509373f, 0.0660113543f,
                                   0.12431778f, 0.10842789f,   0.0272265635f,  0.054306794f};
static const float adam_all_top[] = {0.10831558f, 0.0625f,     0.0625f, 0.0660113543f,
                                     0.12431778f, 0.10842789f, 0.0625f, 0.0625f};
static const float adamw_p[] = {-0.961537123f, -0.743596196f, -0.524744809f, -0.311761171f,
                                -0.094978556f, -0.835595608f, -0.490747541f, -0.152023375f};
static const float adamw_m[] = {-0.177343756f, -0.115625001f, -0.0539062507f, 0.00781250093f,
                                0.0695312545f, -0.301562488f, -0.22265625f,   -0.143749997f};
static const float adamw_v[] = {0.113447264f, 0.0512499996f, 0.00782226585f, 0.0682421848f,
                                0.131962895f, 0.116494142f,  0.0326953121f,  0.0576660149f};
static const float adamw_bf16_p[] = {-0.9609375f,    -0.7421875f, -0.5234375f,   -0.3125f,
                                     -0.0952148438f, -0.8359375f, -0.490234375f, -0.15234375f};
static const float adamw_bf16_m[] = {-0.177734375f, -0.115722656f, -0.0539550781f, 0.0078125f,
                                     0.0693359375f, -0.30078125f,  -0.22265625f,   -0.143554688f};
static const float adamw_bf16_v[] = {0.11328125f,  0.0512695312f, 0.0078125f,    0.068359375f,
                                     0.131835938f, 0.116699219f,  0.0327148438f, 0.0576171875f};
static const float sgd_p[] = {-0.916259766f, -0.724609375f, -0.532958984f, -0.341308594f,
                              -0.149658203f, -0.780517578f, -0.44921875f,  -0.117919922f};
static const float sgd_momentum_p[] = {-0.982812524f,  -0.746484399f, -0.510156274f, -0.273828119f,
                                       -0.0375000015f, -0.841992199f, -0.505273461f, -0.168554693f};
static const float sgd_momentum_m[] = {0.224999979f,  -0.0562499911f, -0.337499976f, -0.618749976f,
                                       -0.899999976f, -0.0281250253f, 0.0843749642f, 0.196875021f};
static const float sgd_nesterov_p[] = {-0.845288098f, -0.682773471f, -0.520258784f, -0.357744157f,
                                       -0.195229501f, -0.676147461f, -0.370292962f, -0.0644384772f};
static const float sgd_nesterov_m[] = {-1.26171875f, -0.743749976f, -0.225781247f, 0.292187512f,
                                       0.810156226f, -1.85546875f,  -1.40312493f,  -0.950781226f};
static const float sgd_first_p[] = {-0.923828125f, -0.73046875f,  -0.537109375f, -0.34375f,
                                    -0.150390625f, -0.787109375f, -0.453125f,    -0.119140625f};
static const float sgd_first_m[] = {-0.71875f, -0.3125f, 0.09375f, 0.5f, 0.90625f, -0.90625f, -0.75f, -0.59375f};

/* Both parameters' tensors, one after the other. */
typedef struct state {
  float p[ALL], g[ALL], m[ALL], v[ALL], top[ALL], step[2];
  float lr, scale, found;
} state;

static void state_init(state *s, bool for_adam) {
  float small = for_adam ? 0.25f : 1;
  *s = (state){.step = {3, 7}, .lr = 0.0125f, .scale = 4};
  ramp(s->p, FIRST, 7, 1, 1), ramp(s->p + FIRST, SECOND, 11, 5, 1);
  ramp(s->g, FIRST, 13, 9, 1), ramp(s->g + FIRST, SECOND, 5, 3, 1);
  ramp(s->m, FIRST, 3, 17, small), ramp(s->m + FIRST, SECOND, 9, 2, small);
  ramp(s->v, FIRST, 15, 4, 0.125f), ramp(s->v + FIRST, SECOND, 21, 4, 0.125f);
  for (int i = 0; i < ALL; ++i) {
    s->v[i] = fabsf(s->v[i]), s->top[i] = 0.0625f;
  }
}

/* One of the two tensors that start at `data`. */
static hr_operand part(bench *t, hr_dtype dtype, void *data, int which) {
  int64_t dims[1] = {which == 0 ? FIRST : SECOND};
  size_t size = hr_dtype_size(dtype);
  return bench_tensor(t, dtype, (char *)data + (which == 0 ? 0 : FIRST * size), (size_t)dims[0] * size, 1, dims);
}

typedef struct adam_case {
  bool decoupled, maximize, amsgrad, scaled, lr_tensor;
  double decay;
} adam_case;

static hr_status run_adam(state *s, const adam_case *c) {
  bench t = bench_begin();
  hr_operand inputs[] = {part(&t, HR_DTYPE_F32, s->g, 0),
                         part(&t, HR_DTYPE_F32, s->g, 1),
                         NUMBER_TENSOR(&t, F32, s->step[0]),
                         NUMBER_TENSOR(&t, F32, s->step[1]),
                         c->lr_tensor ? NUMBER_TENSOR(&t, F32, s->lr) : ABSENT,
                         c->scaled ? NUMBER_TENSOR(&t, F32, s->scale) : ABSENT,
                         c->scaled ? NUMBER_TENSOR(&t, F32, s->found) : ABSENT};
  hr_operand outputs[8];
  float *lists[4] = {s->p, s->m, s->v, s->top};
  for (int i = 0; i < 8; ++i) {
    outputs[i] = part(&t, HR_DTYPE_F32, lists[i / 2], i % 2);
  }
  bench_record(&t, HR_OP_ADAM, 7, inputs, c->amsgrad ? 8 : 6, outputs, INTS(c->decoupled, c->maximize, c->amsgrad),
               SCALARS(F64(c->lr_tensor ? 1000 : 0.0125), F64(0.9), F64(0.99), F64(c->decay), F64(1e-6)));
  return bench_run(&t);
}

HR_TEST(adam_agrees_with_torch) {
  state s;
  state_init(&s, true);
  HR_ASSERT_OK(run_adam(&s, &(adam_case){0}));
  ASSERT_ALL_NEAR(s.p, adam_p, ALL, 1e-7);
  ASSERT_ALL_NEAR(s.m, adam_m, ALL, 3e-8);
  ASSERT_ALL_NEAR(s.v, adam_v, ALL, 1e-8);
}

HR_TEST(adam_with_everything_agrees_with_torch) {
  state s;
  state_init(&s, true);
  HR_ASSERT_OK(run_adam(&s, &(adam_case){.maximize = true, .amsgrad = true, .scaled = true, .decay = 0.125}));
  ASSERT_ALL_NEAR(s.p, adam_all_p, ALL, 1e-7);
  ASSERT_ALL_NEAR(s.m, adam_all_m, ALL, 3e-8);
  ASSERT_ALL_NEAR(s.v, adam_all_v, ALL, 1e-8);
  ASSERT_ALL_NEAR(s.top, adam_all_top, ALL, 1e-8);
  HR_ASSERT_NEAR(s.g[0], -23.0 / 32, 0); /* gradients are only read */
}

HR_TEST(adamw_agrees_with_torch) {
  for (int lr_tensor = 0; lr_tensor < 2; ++lr_tensor) {
    state s;
    state_init(&s, true);
    HR_ASSERT_OK(run_adam(&s, &(adam_case){.decoupled = true, .decay = 0.25, .lr_tensor = lr_tensor != 0}));
    ASSERT_ALL_NEAR(s.p, adamw_p, ALL, 1e-7);
    ASSERT_ALL_NEAR(s.m, adamw_m, ALL, 3e-8);
    ASSERT_ALL_NEAR(s.v, adamw_v, ALL, 1e-8);
  }
}

HR_TEST(adamw_in_bf16_computes_in_f32) {
  state s;
  state_init(&s, true);
  uint16_t half[4][ALL];
  float *lists[4] = {s.p, s.m, s.v, s.g};
  const float *golden[3] = {adamw_bf16_p, adamw_bf16_m, adamw_bf16_v};
  for (int i = 0; i < 4 * ALL; ++i) {
    half[i / ALL][i % ALL] = hr_f32_to_bf16(lists[i / ALL][i % ALL]);
  }
  bench t = bench_begin();
  hr_operand outputs[6];
  for (int i = 0; i < 6; ++i) {
    outputs[i] = part(&t, HR_DTYPE_BF16, half[i / 2], i % 2);
  }
  bench_record(&t, HR_OP_ADAM,
               INPUTS(part(&t, HR_DTYPE_BF16, half[3], 0), part(&t, HR_DTYPE_BF16, half[3], 1),
                      NUMBER_TENSOR(&t, F32, s.step[0]), NUMBER_TENSOR(&t, F32, s.step[1])),
               6, outputs, INTS(1, 0, 0), SCALARS(F64(0.0125), F64(0.9), F64(0.99), F64(0.25), F64(1e-6)));
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < 3 * ALL; ++i) { /* rounding may differ where torch fuses a multiply-add */
    float expected = golden[i / ALL][i % ALL];
    HR_ASSERT_NEAR(hr_bf16_to_f32(half[i / ALL][i % ALL]), expected, fabsf(expected) * 0x1p-8f);
  }
}

HR_TEST(found_inf_leaves_everything) {
  state s, before;
  state_init(&s, true);
  s.found = 1;
  s.g[0] = INFINITY, s.g[ALL - 1] = NAN;
  before = s;
  HR_ASSERT_OK(run_adam(&s, &(adam_case){.amsgrad = true, .scaled = true, .decay = 0.125}));
  HR_ASSERT_BYTES_EQ(&s, &before, sizeof s);
}

typedef struct sgd_case {
  bool nesterov, maximize, first, scaled;
  double decay, momentum, dampening;
} sgd_case;

static hr_status run_sgd(state *s, const sgd_case *c) {
  bench t = bench_begin();
  hr_operand inputs[] = {part(&t, HR_DTYPE_F32, s->g, 0), part(&t, HR_DTYPE_F32, s->g, 1), ABSENT,
                         c->scaled ? NUMBER_TENSOR(&t, F32, s->scale) : ABSENT,
                         c->scaled ? NUMBER_TENSOR(&t, F32, s->found) : ABSENT};
  hr_operand outputs[4];
  for (int i = 0; i < 4; ++i) {
    outputs[i] = part(&t, HR_DTYPE_F32, i < 2 ? s->p : s->m, i % 2);
  }
  bench_record(&t, HR_OP_SGD, 5, inputs, c->momentum != 0 ? 4 : 2, outputs,
               INTS(c->nesterov, c->maximize, c->first, c->momentum != 0),
               SCALARS(F64(c->decay), F64(c->momentum), F64(0.0625), F64(c->dampening)));
  return bench_run(&t);
}

HR_TEST(sgd_agrees_with_torch) {
  state s;
  state_init(&s, false);
  HR_ASSERT_OK(run_sgd(&s, &(sgd_case){.decay = 0.125}));
  ASSERT_ALL_NEAR(s.p, sgd_p, ALL, 6e-8);
}

HR_TEST(sgd_with_momentum_agrees_with_torch) {
  static const struct {
    sgd_case c;
    const float *p, *m;
  } cases[] = {{{.maximize = true, .momentum = 0.9, .dampening = 0.1}, sgd_momentum_p, sgd_momentum_m},
               {{.nesterov = true, .momentum = 0.9, .decay = 0.125}, sgd_nesterov_p, sgd_nesterov_m},
               {{.first = true, .momentum = 0.9, .dampening = 0.5}, sgd_first_p, sgd_first_m}};
  for (int i = 0; i < 3; ++i) {
    state s;
    state_init(&s, false);
    HR_ASSERT_OK(run_sgd(&s, &cases[i].c));
    ASSERT_ALL_NEAR(s.p, cases[i].p, ALL, 1e-7);
    ASSERT_ALL_NEAR(s.m, cases[i].m, ALL, 3e-7);
  }
}

HR_TEST(sgd_unscales_and_skips) {
  state s, before;
  state_init(&s, false);
  before = s;
  HR_ASSERT_OK(run_sgd(&s, &(sgd_case){.scaled = true}));
  for (int i = 0; i < ALL; ++i) {
    HR_ASSERT_NEAR(s.p[i], before.p[i] - 0.0625 * before.g[i] / 4, 6e-8);
  }
  s = before;
  s.found = 1, s.g[1] = NAN;
  before = s;
  HR_ASSERT_OK(run_sgd(&s, &(sgd_case){.scaled = true, .momentum = 0.9}));
  HR_ASSERT_BYTES_EQ(&s, &before, sizeof s);
}

/* A whole optimizer of many parameters costs one chain for each and a fixed number of small loops. */
HR_TEST(adam_emits_few_nodes) {
  state s;
  state_init(&s, true);
  bench t = bench_begin();
  hr_operand outputs[6];
  float *lists[3] = {s.p, s.m, s.v};
  for (int i = 0; i < 6; ++i) {
    outputs[i] = part(&t, HR_DTYPE_F32, lists[i / 2], i % 2);
  }
  bench_record(&t, HR_OP_ADAM,
               INPUTS(part(&t, HR_DTYPE_F32, s.g, 0), part(&t, HR_DTYPE_F32, s.g, 1), NUMBER_TENSOR(&t, F32, s.step[0]),
                      NUMBER_TENSOR(&t, F32, s.step[1])),
               6, outputs, INTS(0, 0, 0), SCALARS(F64(0.01), F64(0.9), F64(0.99), F64(0), F64(1e-6)));
  HR_ASSERT_EQ(bench_count_nodes(&t), 2 * 1 + 13 + 2 * 8);
  hr_program_fini(&t.program);
}
