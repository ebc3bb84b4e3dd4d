/* Recurrent cells against PyTorch 2.13 on the CPU: torch.lstm_cell and torch.gru_cell, gradients by autograd of the
 * definition.
 */
#include "lower_testing.h"

enum { N = 2, H = 3 };

/* ((i * factor + start) mod 64 - 32) / 32: numbers without rounding errors that the goldens were made from. */
static void ramp(float *out, int count, int factor, int start) {
  for (int i = 0; i < count; ++i) {
    out[i] = (float)((i * factor + start) % 64 - 32) / 32;
  }
}

static const float lstm_h[] = {-0.126395971f, -0.0870984271f, 0.181249261f, 0.194617808f, 0.405219078f, -0.15878737f};
static const float lstm_c[] = {-0.242589355f, -0.121805504f, 0.216045439f, 0.28307274f, 0.52321434f, -0.260856807f};
static const float lstm_workspace[] = {0.0396388397f, 0.0850990489f, 0.173288196f,  0.320821285f, 0.515619934f,
                                       0.705785036f,  -0.302709728f, 0.462117165f,  0.864906609f, 0.531209409f,
                                       0.718594372f,  0.851952732f,  0.0803574696f, 0.164516464f, 0.307358027f,
                                       0.5f,          0.692641973f,  0.407333404f,  0.411570042f, -0.635148942f,
                                       0.0624187477f, 0.705785036f,  0.843895137f,  0.622459352f};
static const float lstm_dgates[] = {0.0154968724f,   -0.0313342251f,  -0.0300499629f, 0.210614011f,   0.0679726303f,
                                    -0.00472128391f, -0.0484221801f,  -0.0582857803f, -0.0105879484f, 0.0555499159f,
                                    0.0160846785f,   -0.0100625474f,  0.0142985508f,  0.0766729936f,  -0.00343447877f,
                                    0.0587642193f,   -0.169441968f,   0.0428968705f,  0.0313780829f,  -0.086198926f,
                                    -0.0791300833f,  -0.00536807533f, 0.0118606249f,  -0.0281009469f};
static const float lstm_dc[] = {-0.431444913f, -0.449053168f, -0.171168596f, 0.235056877f, -0.608314812f, -0.10527917f};
static const float gru_h[] = {-0.00348848104f, 0.140291125f, 0.307488561f, 0.389324427f, 0.771387041f, 0.0157386363f};
static const float gru_workspace[] = {
    0.0396388397f, 0.0850990489f, 0.173288196f, 0.320821285f, 0.515619934f, 0.705785036f, 0.33437711f, 0.62228483f,
    0.820220709f,  -0.71875f,     -0.3125f,     0.09375f,     -0.6875f,     -0.25f,       0.1875f,     0.106690601f,
    0.212068796f,  0.377540678f,  0.156104892f, 0.294214964f, 0.484380037f, 0.368851483f, 0.71516782f, 0.676370025f,
    0.5f,          0.90625f,      -0.6875f,     0.40625f,     0.84375f,     -0.71875f};
static const float gru_dinput[] = {0.0148009788f,  0.00379128079f, -0.0009698043f,  0.215129182f,   0.153213456f,
                                   0.0565700531f,  -0.565538526f,  -0.194781244f,   -0.0361043662f, -0.00264648302f,
                                   0.00911482237f, -0.0221483894f, -0.00161971862f, 0.0074397549f,  -0.159672543f,
                                   -0.0683514401f, 0.0646501258f,  0.13112624f};
static const float gru_dhidden[] = {0.0148009788f,   0.00379128079f, -0.0009698043f,  0.215129182f,    0.153213456f,
                                    0.0565700531f,   -0.0224172901f, -0.0165756978f,  -0.00625646068f, -0.00264648302f,
                                    0.00911482237f,  -0.0221483894f, -0.00161971862f, 0.0074397549f,   -0.159672543f,
                                    -0.00729245599f, 0.0137102744f,  0.0495054908f};
static const float gru_dh[] = {-0.300769955f,  -0.338375568f, -0.264669389f,
                               -0.0146348337f, 0.0551653057f, 0.227053136f};

HR_TEST(lstm_cell_agrees_with_torch) {
  float xg[N * 4 * H], hg[N * 4 * H], c[N * H], xb[4 * H], hb[4 * H], h[N * H], after[N * H], workspace[N * 4 * H];
  ramp(xg, N * 4 * H, 7, 1), ramp(hg, N * 4 * H, 11, 5), ramp(c, N * H, 13, 9), ramp(xb, 4 * H, 5, 3),
      ramp(hb, 4 * H, 3, 17);
  bench t = bench_begin();
  bench_record(&t, HR_OP_LSTM_CELL,
               INPUTS(TENSOR(&t, F32, xg, N, 4 * H), TENSOR(&t, F32, hg, N, 4 * H), TENSOR(&t, F32, c, N, H),
                      TENSOR(&t, F32, xb, 4 * H), TENSOR(&t, F32, hb, 4 * H)),
               OUTPUTS(TENSOR(&t, F32, h, N, H), TENSOR(&t, F32, after, N, H), TENSOR(&t, F32, workspace, N, 4 * H)),
               NO_INTS, NO_SCALARS);
  HR_ASSERT_EQ(bench_count_nodes(&t), 4 * 4 + 3);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(h, lstm_h, N * H, 2e-7);
  ASSERT_ALL_NEAR(after, lstm_c, N * H, 2e-7);
  ASSERT_ALL_NEAR(workspace, lstm_workspace, N * 4 * H, 2e-7);
}

/* Without biases, with the new state overwriting the old. */
HR_TEST(lstm_cell_in_place_without_biases) {
  float xg[4] = {0, 0, 1, 0}, hg[4] = {0, 0, 0, 0}, c[1] = {2}, h[1], workspace[4];
  bench t = bench_begin();
  bench_record(&t, HR_OP_LSTM_CELL,
               INPUTS(TENSOR(&t, F32, xg, 1, 4), TENSOR(&t, F32, hg, 1, 4), TENSOR(&t, F32, c, 1, 1), ABSENT, ABSENT),
               OUTPUTS(TENSOR(&t, F32, h, 1, 1), TENSOR(&t, F32, c, 1, 1), TENSOR(&t, F32, workspace, 1, 4)), NO_INTS,
               NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT_NEAR(c[0], 0.5 * 2 + 0.5 * tanh(1), 2e-7);
  HR_ASSERT_NEAR(h[0], 0.5 * tanh(1 + 0.5 * tanh(1)), 2e-7);
}

HR_TEST(lstm_cell_backward_agrees_with_torch) {
  float dh[N * H], dc[N * H], c[N * H], after[N * H], workspace[N * 4 * H], dgates[N * 4 * H], dbefore[N * H];
  ramp(dh, N * H, 9, 2), ramp(dc, N * H, 15, 4), ramp(c, N * H, 13, 9);
  memcpy(after, lstm_c, sizeof after), memcpy(workspace, lstm_workspace, sizeof workspace);
  bench t = bench_begin();
  bench_record(&t, HR_OP_LSTM_CELL_BACKWARD,
               INPUTS(TENSOR(&t, F32, dh, N, H), TENSOR(&t, F32, dc, N, H), TENSOR(&t, F32, c, N, H),
                      TENSOR(&t, F32, after, N, H), TENSOR(&t, F32, workspace, N, 4 * H)),
               OUTPUTS(TENSOR(&t, F32, dgates, N, 4 * H), TENSOR(&t, F32, dbefore, N, H)), NO_INTS, NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(dgates, lstm_dgates, N * 4 * H, 2e-7);
  ASSERT_ALL_NEAR(dbefore, lstm_dc, N * H, 2e-7);
}

/* The last step of a sequence may have a gradient of one output alone: absent is zero. */
HR_TEST(lstm_cell_backward_takes_absent_gradients) {
  float given[N * H], zero[N * H] = {0}, c[N * H], after[N * H], workspace[N * 4 * H];
  float dgates[2][N * 4 * H], dbefore[2][N * H];
  ramp(given, N * H, 9, 2), ramp(c, N * H, 13, 9);
  memcpy(after, lstm_c, sizeof after), memcpy(workspace, lstm_workspace, sizeof workspace);
  for (int which = 0; which < 2; ++which) {
    for (int absent = 0; absent < 2; ++absent) {
      bench t = bench_begin();
      hr_operand present = TENSOR(&t, F32, given, N, H), other = absent ? ABSENT : TENSOR(&t, F32, zero, N, H);
      bench_record(&t, HR_OP_LSTM_CELL_BACKWARD,
                   INPUTS(which ? present : other, which ? other : present, TENSOR(&t, F32, c, N, H),
                          TENSOR(&t, F32, after, N, H), TENSOR(&t, F32, workspace, N, 4 * H)),
                   OUTPUTS(TENSOR(&t, F32, dgates[absent], N, 4 * H), TENSOR(&t, F32, dbefore[absent], N, H)), NO_INTS,
                   NO_SCALARS);
      HR_ASSERT_OK(bench_run(&t));
    }
    ASSERT_ALL_NEAR(dgates[1], dgates[0], N * 4 * H, 0);
    ASSERT_ALL_NEAR(dbefore[1], dbefore[0], N * H, 0);
  }
}

HR_TEST(gru_cell_agrees_with_torch) {
  float xg[N * 3 * H], hg[N * 3 * H], h[N * H], xb[3 * H], hb[3 * H], after[N * H], workspace[N * 5 * H];
  ramp(xg, N * 3 * H, 7, 1), ramp(hg, N * 3 * H, 11, 5), ramp(h, N * H, 13, 9), ramp(xb, 3 * H, 5, 3),
      ramp(hb, 3 * H, 3, 17);
  bench t = bench_begin();
  bench_record(&t, HR_OP_GRU_CELL,
               INPUTS(TENSOR(&t, F32, xg, N, 3 * H), TENSOR(&t, F32, hg, N, 3 * H), TENSOR(&t, F32, h, N, H),
                      TENSOR(&t, F32, xb, 3 * H), TENSOR(&t, F32, hb, 3 * H)),
               OUTPUTS(TENSOR(&t, F32, after, N, H), TENSOR(&t, F32, workspace, N, 5 * H)), NO_INTS, NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(after, gru_h, N * H, 2e-7);
  ASSERT_ALL_NEAR(workspace, gru_workspace, N * 5 * H, 2e-7);
}

HR_TEST(gru_cell_backward_agrees_with_torch) {
  float dh[N * H], workspace[N * 5 * H], dinput[N * 3 * H], dhidden[N * 3 * H], dbefore[N * H];
  ramp(dh, N * H, 9, 2);
  memcpy(workspace, gru_workspace, sizeof workspace);
  bench t = bench_begin();
  bench_record(
      &t, HR_OP_GRU_CELL_BACKWARD, INPUTS(TENSOR(&t, F32, dh, N, H), TENSOR(&t, F32, workspace, N, 5 * H)),
      OUTPUTS(TENSOR(&t, F32, dinput, N, 3 * H), TENSOR(&t, F32, dhidden, N, 3 * H), TENSOR(&t, F32, dbefore, N, H)),
      NO_INTS, NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(dinput, gru_dinput, N * 3 * H, 2e-7);
  ASSERT_ALL_NEAR(dhidden, gru_dhidden, N * 3 * H, 2e-7);
  ASSERT_ALL_NEAR(dbefore, gru_dh, N * H, 2e-7);
}
