/* Attention against plain loops in double; gradients against differences of a weighted sum of the output. */
#include "lower_testing.h"

enum { H = 2, L = 3, S = 4, E = 2, V = 3 };

typedef enum mask_kind { NO_MASK, FLAGS, ADDED } mask_kind;

typedef struct problem {
  double q[H * L * E], k[H * S * E], v[H * S * V], added[L * S];
  uint8_t flags[L * S];
  mask_kind mask;
  int causal;
  const double *hidden; /* the score where the mask forbids; NULL: none, and 0 for rows without a score */
} problem;

static const double scale = 0.75, step = 1e-5;

static void fill(double *out, int count, int factor) {
  for (int i = 0; i < count; ++i) {
    out[i] = (double)((i * factor + 3) % 23 - 11) / 8;
  }
}

/* Row 1 of the flags masks everything. */
static problem make_problem(mask_kind mask, int causal) {
  problem p = {.mask = mask, .causal = causal};
  fill(p.q, H * L * E, 7), fill(p.k, H * S * E, 5), fill(p.v, H * S * V, 11), fill(p.added, L * S, 3);
  for (int i = 0; i < L * S; ++i) {
    p.flags[i] = i / S != 1 && i % 3 != 1;
  }
  return p;
}

static bool is_seen(const problem *p, int l, int s) {
  return !(p->causal && s > l) && !(p->mask == FLAGS && !p->flags[l * S + s]);
}

static void attend(const problem *p, double *y, double *lse) {
  for (int row = 0; row < H * L; ++row) {
    int h = row / L, l = row % L;
    double powers[S], sum = 0;
    for (int s = 0; s < S; ++s) {
      double score = p->mask == ADDED ? p->added[l * S + s] : 0;
      for (int e = 0; e < E; ++e) {
        score += scale * p->q[row * E + e] * p->k[(h * S + s) * E + e];
      }
      bool is_hidden = !is_seen(p, l, s);
      powers[s] = !is_hidden ? exp(score) : p->hidden != NULL && !(p->causal && s > l) ? exp(*p->hidden) : 0;
      sum += powers[s];
    }
    lse[row] = log(sum);
    for (int i = 0; i < V; ++i) {
      y[row * V + i] = 0;
      for (int s = 0; s < S && (sum > 0 || p->hidden != NULL); ++s) {
        y[row * V + i] += powers[s] / sum * p->v[(h * S + s) * V + i];
      }
    }
  }
}

static double weighted(const problem *p, const double *dy) {
  double y[H * L * V], lse[H * L], sum = 0;
  attend(p, y, lse);
  for (int i = 0; i < H * L * V; ++i) {
    sum += y[i] * dy[i];
  }
  return sum;
}

static void expect_gradient(problem *p, const double *dy, double *of, int count, const double *actual) {
  for (int i = 0; i < count; ++i) {
    double kept = of[i];
    of[i] = kept + step;
    double above = weighted(p, dy);
    of[i] = kept - step;
    double below = weighted(p, dy);
    of[i] = kept;
    HR_ASSERT_NEAR(actual[i], (above - below) / (2 * step), 1e-8);
  }
}

static hr_operand mask_operand(bench *t, problem *p) {
  return p->mask == FLAGS   ? TENSOR(t, BOOL, p->flags, L, S)
         : p->mask == ADDED ? TENSOR(t, F64, p->added, L, S)
                            : ABSENT;
}

static void check_hidden(mask_kind mask, int causal, const double *hidden) {
  problem p = make_problem(mask, causal);
  int scalars = hidden != NULL ? 2 : 1;
  const hr_scalar numbers[2] = {F64(scale), F64(hidden != NULL ? *hidden : 0)};
  p.hidden = hidden;
  double y[H * L * V], lse[H * L], y_expected[H * L * V], lse_expected[H * L], dy[H * L * V];
  double dq[H * L * E], dk[H * S * E], dv[H * S * V], dmask[L * S];
  fill(dy, H * L * V, 13);
  attend(&p, y_expected, lse_expected);
  bench t = bench_begin();
  hr_operand q = TENSOR(&t, F64, p.q, 1, H, L, E), k = TENSOR(&t, F64, p.k, 1, H, S, E),
             v = TENSOR(&t, F64, p.v, 1, H, S, V);
  hr_operand out = TENSOR(&t, F64, y, 1, H, L, V), sums = TENSOR(&t, F64, lse, 1, H, L), m = mask_operand(&t, &p);
  bench_record(&t, HR_OP_ATTENTION, INPUTS(q, k, v, m), OUTPUTS(out, sums), INTS(causal), scalars, numbers);
  bench_record(&t, HR_OP_ATTENTION_BACKWARD, INPUTS(TENSOR(&t, F64, dy, 1, H, L, V), q, k, v, m, out, sums),
               OUTPUTS(TENSOR(&t, F64, dq, 1, H, L, E), TENSOR(&t, F64, dk, 1, H, S, E),
                       TENSOR(&t, F64, dv, 1, H, S, V), mask == ADDED ? TENSOR(&t, F64, dmask, L, S) : ABSENT),
               INTS(causal), scalars, numbers);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, y_expected, H * L * V, 1e-12);
  ASSERT_ALL_NEAR(lse, lse_expected, H * L, 1e-12);
  expect_gradient(&p, dy, p.q, H * L * E, dq);
  expect_gradient(&p, dy, p.k, H * S * E, dk);
  expect_gradient(&p, dy, p.v, H * S * V, dv);
  if (mask == ADDED) {
    expect_gradient(&p, dy, p.added, L * S, dmask);
  }
}

static void check(mask_kind mask, int causal) {
  check_hidden(mask, causal, NULL);
}

HR_TEST(attention_without_a_mask) {
  check(NO_MASK, 0);
}
HR_TEST(causal_attention) {
  check(NO_MASK, 1);
}
HR_TEST(attention_where_flags_allow_it) {
  check(FLAGS, 0);
  check(FLAGS, 1);
}
HR_TEST(attention_with_an_added_mask) {
  check(ADDED, 0);
  check(ADDED, 1);
}

/* Uniform probabilities 1/4 and values 1: each output is the share of kept elements over 1 - p, and dv equals it. */
HR_TEST(attention_drops_the_same_elements_in_both_passes) {
  enum { ROWS = 64, KEYS = 4 };
  static float q[ROWS], k[KEYS], v[KEYS], y[ROWS], lse[ROWS], dy[ROWS], dv[KEYS];
  double forward = 0, backward = 0;
  for (int i = 0; i < ROWS; ++i) {
    q[i] = 0, dy[i] = 1;
    v[i % KEYS] = 1;
  }
  bench t = bench_begin();
  hr_operand qs = TENSOR(&t, F32, q, 1, 1, ROWS, 1), ks = TENSOR(&t, F32, k, 1, 1, KEYS, 1),
             vs = TENSOR(&t, F32, v, 1, 1, KEYS, 1);
  hr_operand out = TENSOR(&t, F32, y, 1, 1, ROWS, 1), sums = TENSOR(&t, F32, lse, 1, 1, ROWS);
  bench_record(&t, HR_OP_ATTENTION, INPUTS(qs, ks, vs, ABSENT), OUTPUTS(out, sums), INTS(0),
               SCALARS(F64(1), F64(0.5), I64(11), I64(2)));
  bench_record(&t, HR_OP_ATTENTION_BACKWARD, INPUTS(TENSOR(&t, F32, dy, 1, 1, ROWS, 1), qs, ks, vs, ABSENT, out, sums),
               OUTPUTS(ABSENT, ABSENT, TENSOR(&t, F32, dv, 1, 1, KEYS, 1), ABSENT), INTS(0),
               SCALARS(F64(1), F64(0.5), I64(11), I64(2)));
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < ROWS; ++i) {
    double kept = y[i] * 2; /* of 4 */
    HR_ASSERT_NEAR(kept, round(kept), 1e-6);
    forward += y[i];
    backward += i < KEYS ? dv[i] : 0;
  }
  HR_ASSERT_NEAR(forward, backward, 1e-4);
  HR_ASSERT_NEAR(forward / ROWS, 1, 0.25);
}
/* Row 1 of the flags has hidden scores alone, all of the same probability. */
HR_TEST(attention_with_a_score_for_what_flags_hide) {
  static const double hidden = -0.75;
  check_hidden(FLAGS, 0, &hidden);
  check_hidden(FLAGS, 1, &hidden);
  check_hidden(ADDED, 0, &hidden);
}
HR_TEST(rows_of_minus_infinity_are_nan_as_in_a_softmax) {
  problem p = make_problem(FLAGS, 0);
  double y[H * L * V];
  bench t = bench_begin();
  hr_operand q = TENSOR(&t, F64, p.q, 1, H, L, E), k = TENSOR(&t, F64, p.k, 1, H, S, E);
  bench_record(&t, HR_OP_ATTENTION, INPUTS(q, k, TENSOR(&t, F64, p.v, 1, H, S, V), TENSOR(&t, BOOL, p.flags, L, S)),
               OUTPUTS(TENSOR(&t, F64, y, 1, H, L, V)), INTS(0), SCALARS(F64(scale), F64(-(double)INFINITY)));
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < H * L * V; ++i) {
    HR_ASSERT_EQ(isnan(y[i]) != 0, i / V % L == 1);
  }
}
