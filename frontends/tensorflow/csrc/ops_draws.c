/* ops_draws.c: rules of random numbers that are drawn until they fit, so that each takes another number of draws, and
 * of samples of categories. They have TensorFlow's bits, from functions of the host on the generator's state.
 */
#include <math.h>
#include <stdlib.h>

#include "draws.h"
#include "philox.h"

void htf_output_draws(htf_node *node, const htf_request *asked, hr_function_run run, htf_draws plan, int input_count,
                      const htf_value *inputs) {
  htf_draws *argument = htf_new_argument(node, sizeof *argument);
  if (argument == NULL) {
    return;
  }
  *argument = plan;
  htf_value result = htf_new(node, plan.dtype, asked->rank, asked->dims);
  htf_record_function(node, run, argument, input_count, inputs, 0, 1, &result);
  htf_output(node, 0, htf_cast(node, result, asked->dtype));
}

hr_dtype htf_wide_dtype(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64 ? dtype : HR_DTYPE_F32;
}

/* ---- samples of categories with these logits ---- */

/* Running sums of exp(logits - largest) of finite logits. */
static void accumulate(const double *logits, int64_t count, double *sums) {
  double largest = -INFINITY, total = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = isfinite(logits[i]) ? fmax(largest, logits[i]) : largest;
  }
  for (int64_t i = 0; i < count; ++i) {
    total += isfinite(logits[i]) ? exp(logits[i] - largest) : 0;
    sums[i] = total;
  }
}

/* The number of sums that are not above. */
static int64_t place_of(const double *sums, int64_t count, double number) {
  int64_t low = 0, high = count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (number < sums[middle]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/* Inputs: the state, logits in f64. */
static hr_status draw_categories(const hr_function_call *call) {
  const htf_draws *d = call->arg;
  double *sums = malloc((size_t)(d->categories + 1) * sizeof *sums);
  if (sums == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %lld categories", (long long)d->categories);
  }
  htf_philox p = htf_philox_at(call->inputs[0], 0);
  for (int64_t row = 0; row < d->count; ++row) {
    accumulate((const double *)call->inputs[1] + row * d->categories, d->categories, sums);
    for (int64_t i = 0; i < d->samples; ++i) {
      uint32_t upper = htf_draw_word(&p), lower = htf_draw_word(&p);
      double wanted = htf_double_of(upper, lower) * sums[d->categories - 1];
      ((int64_t *)call->outputs[0])[row * d->samples + i] = place_of(sums, d->categories, wanted);
    }
  }
  free(sums);
  return HR_OK;
}

/* Inputs: logits [rows, categories], how many samples. */
static htf_request read_categories(htf_node *node, htf_value logits) {
  int64_t samples = htf_host_int(node, 1);
  htf_request asked = {.rank = 2, .dtype = htf_output_dtype(node, 0)};
  if (!htf_has_failed(node) && (logits->rank != 2 || samples < 0)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: logits should be a matrix, and the number of samples not negative: %d dims, %lld samples",
             node->kernel->row->op, logits->rank, (long long)samples);
  }
  if (!htf_has_failed(node) && (logits->dims[0] > 0 && logits->dims[1] == 0)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: num_classes should be positive, got 0", node->kernel->row->op);
  }
  if (!htf_has_failed(node)) {
    asked.dims[0] = logits->dims[0], asked.dims[1] = samples;
    asked.count = asked.dims[0] * asked.dims[1];
  }
  return asked;
}

static void output_categories(htf_node *node, htf_value logits, htf_request asked) {
  if (!htf_is_empty_request(node, &asked)) {
    htf_draws plan = {asked.dims[0], asked.dims[1], logits->dims[1], HR_DTYPE_I64};
    htf_output_draws(node, &asked, draw_categories, plan, INPUTS(asked.state, htf_cast(node, logits, HR_DTYPE_F64)));
  }
}

void htf_stateless_multinomial(htf_node *node) {
  htf_value logits = htf_input(node, 0);
  htf_request asked = read_categories(node, logits);
  asked.state = htf_state_of_seed(node, htf_input(node, 2));
  output_categories(node, logits, asked);
}

void htf_seeded_multinomial(htf_node *node) {
  htf_value logits = htf_input(node, 0);
  htf_request asked = read_categories(node, logits);
  asked.state = htf_seeded_state(node, asked.dims[0] * ((asked.dims[1] + 3) / 4 * 4) * 2 * HTF_BLOCKS_PER_ELEMENT);
  output_categories(node, logits, asked);
}

/* ---- numbers of the gamma distribution, by Marsaglia and Tsang ---- */

/* Doubles that come in pairs, each pair's second one first. */
typedef struct pairs {
  double numbers[2];
  int left;
} pairs;

static double next_normal(htf_philox *p, pairs *kept) {
  if (kept->left == 0) {
    htf_normals(p, true, kept->numbers);
    kept->left = 2;
  }
  return kept->numbers[--kept->left];
}

static double next_uniform(htf_philox *p, pairs *kept) {
  if (kept->left == 0) {
    for (int i = 0; i < 2; ++i) {
      uint32_t upper = htf_draw_word(p), lower = htf_draw_word(p);
      kept->numbers[i] = htf_double_of(upper, lower);
    }
    kept->left = 2;
  }
  return kept->numbers[--kept->left];
}

static double gamma_number(htf_philox *p, double alpha) {
  pairs normal = {.left = 0}, uniform = {.left = 0};
  if (alpha == 1) {
    return -log1p(-next_uniform(p, &uniform));
  }
  double d = alpha + (alpha < 1 ? 2.0 / 3 : -1.0 / 3), c = 1.0 / 3 / sqrt(d);
  for (;;) {
    double x = next_normal(p, &normal), v = 1 + c * x;
    if (!(v > 0)) {
      if (v != v) {
        return v;
      }
      continue;
    }
    v = v * v * v;
    double u = next_uniform(p, &uniform);
    if (u < 1 - 0.0331 * (x * x) * (x * x) || log(u) < 0.5 * x * x + d * (1 - v + log(v))) {
      return alpha < 1 ? d * v * pow(next_uniform(p, &uniform), 1 / alpha) : d * v;
    }
  }
}

/* Inputs: the state, alphas in f64, which are the result's last dims. */
static hr_status draw_gamma(const hr_function_call *call) {
  const htf_draws *d = call->arg;
  for (int64_t at = 0; at < d->count; ++at) { /* samples of one alpha follow each other */
    int64_t alpha = at / d->samples, sample = at % d->samples;
    htf_philox p = htf_philox_at(call->inputs[0], (uint64_t)(at * HTF_BLOCKS_PER_ELEMENT));
    double number = gamma_number(&p, ((const double *)call->inputs[1])[alpha]);
    htf_store_number(d->dtype, call->outputs[0], sample * d->categories + alpha, number);
  }
  return HR_OK;
}

static void output_gamma(htf_node *node, htf_request asked, htf_value alphas) {
  bool fits = htf_has_failed(node) || alphas->rank <= asked.rank;
  for (int d = 0; fits && !htf_has_failed(node) && d < alphas->rank; ++d) {
    fits = alphas->dims[d] == asked.dims[asked.rank - alphas->rank + d];
  }
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the shape must end with the dims of alpha, which has %d",
             node->kernel->row->op, alphas->rank);
  }
  if (!htf_is_empty_request(node, &asked)) {
    int64_t count = hr_tensor_count(alphas);
    htf_draws plan = {asked.count, asked.count / count, count, htf_wide_dtype(asked.dtype)};
    htf_output_draws(node, &asked, draw_gamma, plan, INPUTS(asked.state, htf_cast(node, alphas, HR_DTYPE_F64)));
  }
}

void htf_stateless_gamma(htf_node *node) {
  htf_request asked = htf_read_shape(node, 0);
  asked.state = htf_state_of_seed(node, htf_input(node, 1));
  output_gamma(node, asked, htf_input(node, 2));
}

void htf_random_gamma(htf_node *node) {
  htf_request asked = htf_read_request(node);
  output_gamma(node, asked, htf_input(node, 4));
}

/* ---- numbers of the binomial distribution, as of TensorFlow: sums of geometric ones, or by Hoermann's BTRS ---- */

enum { RESERVED_SUMS = 42 };

static double binomial_by_sums(htf_philox *p, double count, double chance) {
  pairs kept = {.left = 0};
  double sum = 0, found = -1;
  while (!(sum > count)) {
    sum += ceil(log(next_uniform(p, &kept)) / log1p(-chance));
    ++found;
  }
  return found;
}

/* The error of Stirling's formula for k!. */
static double stirling_rest(double k) {
  static const double rests[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                                 0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                                 0.00925546218271273, 0.00833056343336287};
  double square = (k + 1) * (k + 1);
  return k <= 9 ? rests[(int)k] : (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

/* W. Hoermann, The generation of binomial random variates, 1993. */
static double binomial_by_rejection(htf_philox *p, double count, double chance) {
  pairs kept = {.left = 0};
  double deviation = sqrt(count * chance * (1 - chance)), b = 1.15 + 2.53 * deviation;
  double a = -0.0873 + 0.0248 * b + 0.01 * chance, c = count * chance + 0.5, odds = chance / (1 - chance);
  double alpha = (2.83 + 5.1 / b) * deviation, mode = floor((count + 1) * chance);
  for (;;) {
    double u = next_uniform(p, &kept), v = next_uniform(p, &kept);
    u -= 0.5;
    double edge = 0.5 - fabs(u), k = floor((2 * a / edge + b) * u + c);
    if (edge >= 0.07 && v <= 0.92 - 4.2 / b) {
      return k;
    }
    if (k < 0 || k > count) {
      continue;
    }
    v = log(v * alpha / (a / (edge * edge) + b));
    double bound = (mode + 0.5) * log((mode + 1) / (odds * (count - mode + 1))) +
                   (count + 1) * log((count - mode + 1) / (count - k + 1)) +
                   (k + 0.5) * log(odds * (count - k + 1) / (k + 1)) + stirling_rest(mode) +
                   stirling_rest(count - mode) - stirling_rest(k) - stirling_rest(count - k);
    if (v <= bound) {
      return k;
    }
  }
}

/* Inputs: the state, counts, chances, and the products of counts and the smaller chances, rounded to their dtype. */
static hr_status draw_binomial(const hr_function_call *call) {
  const htf_draws *d = call->arg;
  const double *counts = call->inputs[1], *chances = call->inputs[2], *means = call->inputs[3];
  for (int64_t at = 0; at < d->count; ++at) {
    int64_t batch = at / d->samples, sample = at % d->samples;
    double count = counts[batch], chance = chances[batch], number = NAN;
    bool is_mirrored = chance > 0.5, rejects = means[batch] >= 10;
    htf_philox p = htf_philox_at(call->inputs[0], (uint64_t)(at * (rejects ? HTF_BLOCKS_PER_ELEMENT : RESERVED_SUMS)));
    if (count <= 0 || chance <= 0 || chance >= 1) {
      number = count > 0 && chance >= 1 ? count : 0;
    } else if (chance == chance) {
      number = rejects ? binomial_by_rejection(&p, count, is_mirrored ? 1 - chance : chance)
                       : binomial_by_sums(&p, count, is_mirrored ? 1 - chance : chance);
      number = is_mirrored ? count - number : number;
    }
    ((double *)call->outputs[0])[sample * d->categories + batch] = number;
  }
  return HR_OK;
}

/* A node's counts and chances, their product with the smaller chances, and the number of results for each pair. */
typedef struct binomial {
  htf_value counts, chances, means;
  int64_t pairs, samples;
} binomial;

/* Counts are this input, chances the next one. */
static binomial read_binomial(htf_node *node, int input, const htf_request *asked) {
  binomial b = {.counts = htf_input(node, input), .chances = htf_input(node, input + 1), .samples = 1};
  htf_value rest = htf_subtract(node, htf_number(node, 1), b.chances);
  b.means = htf_multiply(node, b.counts, htf_call2(node, HR_FUNCTIONAL_MINIMUM, b.chances, rest));
  if (htf_has_failed(node)) {
    return b;
  }
  const int samples = asked->rank - b.means->rank;
  bool fits = samples >= 0;
  for (int d = 0; fits && d < b.means->rank; ++d) {
    fits = b.means->dims[d] == asked->dims[samples + d];
  }
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Shape passed in must end with broadcasted shape.");
  }
  for (int d = 0; fits && d < samples; ++d) {
    b.samples *= asked->dims[d];
  }
  b.pairs = hr_tensor_count(b.means);
  return b;
}

static void output_binomial(htf_node *node, const htf_request *asked, const binomial *b) {
  if (htf_is_empty_request(node, asked)) {
    return;
  }
  htf_value values[4] = {asked->state, b->counts, b->chances, b->means};
  for (int i = 1; i < 4; ++i) {
    values[i] = htf_cast(node, htf_broadcast(node, values[i], b->means->rank, b->means->dims), HR_DTYPE_F64);
  }
  htf_draws plan = {asked->count, b->samples, b->pairs, HR_DTYPE_F64};
  htf_output_draws(node, asked, draw_binomial, plan, 4, values);
}

/* Inputs: dims, the seed, counts, chances. */
void htf_stateless_binomial(htf_node *node) {
  htf_request asked = htf_read_shape(node, 0);
  asked.state = htf_state_of_seed(node, htf_input(node, 1));
  binomial b = read_binomial(node, 2, &asked);
  output_binomial(node, &asked, &b);
}

/* Inputs: the variable, the algorithm, dims, counts, chances. */
void htf_stateful_binomial(htf_node *node) {
  enum { DRAWS = 100 }; /* for each element, as TensorFlow has it */
  htf_request asked = htf_read_shape(node, 2);
  binomial b = read_binomial(node, 3, &asked);
  if (!htf_has_failed(node)) {
    asked.state = htf_stateful_state(node, b.pairs * 2 * DRAWS * (b.samples + 3) / 4);
    output_binomial(node, &asked, &b);
  }
}
