/* ops_gamma.c: rules of derivatives by the parameter of gamma functions: of the lower incomplete one, P(a, x), and of a
 * number x that the gamma distribution of a gave, whose P stays the same. The regularised incomplete beta function.
 *
 * They are functions of the host, in f64. The formulas are those of M. Abramowitz, I. Stegun, Handbook of Mathematical
 * Functions: the derivatives of the power series of P for small x (6.5.29), and those of the continued fraction of
 * Q = 1 - P for others (6.5.31). The beta function has another continued fraction.
 */
#include <math.h>

#include "ops_windows.h"
#include "scope.h"

enum { TERMS_MAX = 2000, BETA_TERMS_MAX = 100000 };

/* The derivative of lgamma: by the recurrence up to 10, then its asymptotic series. */
static double digamma(double x) {
  double sum = 0;
  for (; x < 10; x += 1) {
    sum -= 1 / x;
  }
  double y = 1 / (x * x);
  double series = y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132)))));
  return sum + log(x) - 0.5 / x - series;
}

/* P'(a, x) by a, over x**a exp(-x) / gamma(a + 1). */
static double series_derivative(double a, double x) {
  double term = 1, sum = 1, term_by_a = 0, sum_by_a = 0;
  for (int n = 1; n < TERMS_MAX; ++n) {
    double factor = x / (a + n);
    term_by_a = factor * (term_by_a - term / (a + n));
    term *= factor;
    sum += term, sum_by_a += term_by_a;
    if (fabs(term_by_a) <= 1e-17 * fabs(sum_by_a) && term <= 1e-17 * sum) {
      break;
    }
  }
  return sum_by_a + sum * (log(x) - digamma(a + 1));
}

/* Q'(a, x) by a, over x**a exp(-x) / gamma(a). */
static double fraction_derivative(double a, double x) {
  double c = 0, y = 1 - a, z = x + y + 1;
  double p[2] = {1, x + 1}, q[2] = {x, z * x}, p_by_a[2] = {0, 0}, q_by_a[2] = {0, -x};
  double found = p[1] / q[1], by_a = (p_by_a[1] - found * q_by_a[1]) / q[1], last = INFINITY;
  for (int n = 0; n < TERMS_MAX && fabs(by_a - last) > 1e-16 * fabs(by_a); ++n) {
    c += 1, y += 1, z += 2;
    double yc = y * c, pn = p[1] * z - p[0] * yc, qn = q[1] * z - q[0] * yc;
    double pn_by_a = p_by_a[1] * z - p[1] - p_by_a[0] * yc + p[0] * c;
    double qn_by_a = q_by_a[1] * z - q[1] - q_by_a[0] * yc + q[0] * c;
    double scale = fabs(pn) > 0x1p52 ? 0x1p-52 : 1;
    p[0] = p[1] * scale, p[1] = pn * scale, q[0] = q[1] * scale, q[1] = qn * scale;
    p_by_a[0] = p_by_a[1] * scale, p_by_a[1] = pn_by_a * scale;
    q_by_a[0] = q_by_a[1] * scale, q_by_a[1] = qn_by_a * scale;
    if (q[1] != 0) {
      last = by_a;
      found = p[1] / q[1], by_a = (p_by_a[1] - found * q_by_a[1]) / q[1];
    }
  }
  return by_a + found * (log(x) - digamma(a));
}

static bool is_tail(double a, double x) {
  return x > 1 && x > a;
}

/* 0 at x = 0, as TensorFlow's, for any a. */
static bool is_undefined(double a, double x) {
  return isnan(a) || isnan(x) || (x != 0 && (x < 0 || a <= 0));
}

static double igamma_by_a(const double *numbers) {
  double a = numbers[0], x = numbers[1], power = a * log(x) - x;
  return is_undefined(a, x)   ? NAN
         : x == 0 || isinf(x) ? 0
         : is_tail(a, x)      ? -exp(power - lgamma(a)) * fraction_derivative(a, x)
                              : exp(power - lgamma(a + 1)) * series_derivative(a, x);
}

static double sample_by_a(const double *numbers) {
  double a = numbers[0], x = numbers[1];
  return is_undefined(a, x) ? NAN
         : x == 0           ? 0
         : is_tail(a, x)    ? fraction_derivative(a, x) * x
                            : -series_derivative(a, x) * x / a;
}

static double away_from_zero(double number) {
  return fabs(number) < 1e-300 ? 1e-300 : number;
}

/* lgamma(x) less Stirling's formula (x - 1/2) log(x) - x + log(2 pi) / 2 (Handbook, 6.1.41). */
static double stirling_error(double x) {
  if (x < 10) {
    return lgamma(x) - ((x - 0.5) * log(x) - x + 0.5 * log(2 * M_PI));
  }
  double y = 1 / x / x;
  return (1.0 / 12 - y * (1.0 / 360 - y * (1.0 / 1260 - y * (1.0 / 1680 - y * (1.0 / 1188 - y * 691 / 360360))))) / x;
}

/* A number x and parameters of the beta function, as one side of x sees them; above is a - (a + b) x, exactly. */
typedef struct beta_side {
  double a, b, x, above;
} beta_side;

/* a log(mean / x) + a (x - mean) / mean for mean = a / (a + b): not negative, 0 at the mean. */
static double deviance(const beta_side *s) {
  double step = -s->above / s->a;
  if (!(fabs(step) < 0.5)) {
    double sum = s->a + s->b; /* no product or quotient of these underflows */
    return -s->above - s->a * (sum < 1 ? log(s->x / s->a * sum) : log(sum * s->x) - log(s->a));
  }
  double w = step / (2 + step), power = w, sum = 0;
  for (int n = 3; n < 40; n += 2) {
    power *= w * w, sum += power / n;
  }
  return s->a * (step * w - 2 * sum);
}

/* x**a (1 - x)**b / beta(a, b) as a saddle point, without differences of large numbers (C. Loader, Fast and Accurate
 * Computation of Binomial Probabilities, 2000). */
static double beta_power(const beta_side *s, double exponent) {
  double sum = s->a + s->b, low = fmin(s->a, s->b), high = fmax(s->a, s->b);
  double error = stirling_error(sum) - stirling_error(high) - stirling_error(low);
  return sqrt(low * (high / sum) / (2 * M_PI)) * exp(error - exponent);
}

/* beta_power over the function itself, for x < (a + 1) / (a + b + 2), and rest = 1 - x: a continued fraction by Lentz'
 * method (A. DiDonato, A. Morris, Algorithm 708, 1992, BFRAC). It has no difference of 1 and a number close to 1. */
static double beta_fraction(const beta_side *s, double rest) {
  double a = s->a, b = s->b, x = s->x;
  double found = a / (a + 1) * fmax(s->above + 1, 1e-17), c = found, d = 0;
  for (int m = 1; m < BETA_TERMS_MAX; ++m) {
    double under = a + (2 * m - 1), step = (b - m) * x;
    double factor = (a + (m - 1)) / under * ((a + b + (m - 1)) * x / under) * m * step;
    double term = m + m * step / under + (a + m) / (under + 2) * (s->above + 1 + m * (1 + rest));
    d = 1 / away_from_zero(term + factor * d), c = away_from_zero(term + factor / c), found *= d * c;
    if (fabs(d * c - 1) < 1e-16) {
      break;
    }
  }
  return found;
}

/* The normal distribution, which is near for large a and b, with its first correction (N. Temme, Special Functions,
 * 11.3.3.1). */
static double large_beta(const beta_side *s, double exponent) {
  double a = s->a, b = s->b, skew = (b - a) / sqrt(a + b) / sqrt(a) / sqrt(b);
  return 0.5 * erfc(copysign(sqrt(exponent), s->above)) + exp(-exponent) * skew / (3 * sqrt(2 * M_PI));
}

/* a - (a + b) x in twice the digits. */
static double above_mean(double a, double b, double x) {
  double high = fmax(a, b), low = fmin(a, b), sum = a + b;
  return fma(-sum, x, a) - (low - (sum - high)) * x;
}

static double finite_betainc(double a, double b, double x) {
  double above = above_mean(a, b, x);
  const beta_side left = {a, b, x, above}, right = {b, a, 1 - x, -above};
  double exponent = fmax(deviance(&left) + deviance(&right), 0);
  double found = 0;
  if (a > 1e9 && b > 1e9) {
    found = large_beta(&left, exponent);
  } else if (x < (a + 1) / (a + b + 2)) {
    found = beta_power(&left, exponent) / beta_fraction(&left, 1 - x);
  } else {
    found = 1 - beta_power(&right, exponent) / beta_fraction(&right, x);
  }
  return isnan(found) ? found : fmin(fmax(found, 0), 1);
}

/* Infinite parameters give NaN, as in TensorFlow's kernels. */
static double betainc(const double *numbers) {
  double a = numbers[0], b = numbers[1], x = numbers[2];
  if (!(x >= 0 && x <= 1) || a <= 0 || b <= 0) {
    return NAN;
  }
  if (x == 0 || x == 1) {
    return x; /* also for a or b that are NaN, as TensorFlow's */
  }
  if (!isfinite(a) || !isfinite(b)) {
    return NAN;
  }
  return isinf(a + b) ? finite_betainc(a / 4, b / 4, x) : finite_betainc(a, b, x);
}

enum { OPERANDS_MAX = 3 };
typedef double (*function)(const double *numbers);

/* The argument of the function of the host. */
typedef struct plan {
  function of;
  int operands;
  int64_t count;
} plan;

static hr_status run_plan(const hr_function_call *call) {
  const plan *p = call->arg;
  double *out = call->outputs[0], numbers[OPERANDS_MAX];
  for (int64_t i = 0; i < p->count; ++i) {
    for (int k = 0; k < p->operands; ++k) {
      numbers[k] = ((const double *)call->inputs[k])[i];
    }
    out[i] = p->of(numbers);
  }
  return HR_OK;
}

static void record(htf_node *node, function of) {
  int operands = htf_input_count(node);
  htf_value inputs[OPERANDS_MAX], sum = NULL; /* the sum has the dims of all together */
  for (int i = 0; i < operands; ++i) {
    inputs[i] = htf_input(node, i);
    sum = i == 0 ? inputs[i] : htf_add(node, sum, inputs[i]);
  }
  if (htf_has_failed(node) || hr_tensor_count(sum) == 0) {
    htf_output(node, 0, sum);
    return;
  }
  for (int i = 0; i < operands; ++i) {
    htf_value all = htf_broadcast(node, htf_cast(node, inputs[i], HR_DTYPE_F64), sum->rank, sum->dims);
    inputs[i] = htf_settle(node, all, HR_DTYPE_F64);
  }
  htf_value out = htf_new(node, HR_DTYPE_F64, sum->rank, sum->dims);
  plan *arg = htf_new_argument(node, sizeof *arg);
  if (arg != NULL) {
    *arg = (plan){of, operands, hr_tensor_count(sum)};
    htf_record_function(node, run_plan, arg, operands, inputs, 0, 1, &out);
    htf_output(node, 0, htf_cast(node, out, sum->dtype));
  }
}

void htf_igamma_gradient(htf_node *node) {
  record(node, igamma_by_a);
}

void htf_random_gamma_gradient(htf_node *node) {
  record(node, sample_by_a);
}

/* Operands that are not scalars have the same dims. */
void htf_betainc(htf_node *node) {
  htf_value dims = htf_input(node, 0);
  for (int i = 1; i < OPERANDS_MAX; ++i) {
    htf_value operand = htf_input(node, i);
    bool fits = operand->rank == 0 || dims->rank == 0 || htf_has_dims(operand, dims->rank, dims->dims);
    if (!htf_has_failed(node) && !fits) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Betainc: Shapes of a, b and x are inconsistent");
    }
    dims = dims->rank == 0 ? operand : dims;
  }
  record(node, betainc);
}
