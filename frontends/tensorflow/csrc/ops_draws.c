/* ops_draws.c: rules of random numbers that are drawn until they fit, so that each takes another number of draws, and
 * of samples of categories. They have TensorFlow's bits, from functions of the host on the generator's state.
 */
#include "draws.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Philox 4x32 with 10 rounds ---- */

typedef struct philox {
  uint32_t key[2], counter[4], words[4];
  int left; /* of `words`, the last ones */
} philox;

/* The generator of a state u64[3], so many blocks on. */
static philox philox_at(const uint64_t *state, uint64_t blocks) {
  uint64_t low = state[1] + blocks, high = state[2] + (low < blocks);
  return (philox){.key = {(uint32_t)state[0], (uint32_t)(state[0] >> 32)},
                  .counter = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
}

static void fill_words(philox *p) {
  uint32_t key[2] = {p->key[0], p->key[1]};
  memcpy(p->words, p->counter, sizeof p->words);
  for (int round = 0; round < 10; ++round) {
    uint64_t first = (uint64_t)0xd2511f53u * p->words[0], second = (uint64_t)0xcd9e8d57u * p->words[2];
    uint32_t next[4] = {(uint32_t)(second >> 32) ^ p->words[1] ^ key[0], (uint32_t)second,
                        (uint32_t)(first >> 32) ^ p->words[3] ^ key[1], (uint32_t)first};
    memcpy(p->words, next, sizeof next);
    key[0] += 0x9e3779b9u, key[1] += 0xbb67ae85u;
  }
  for (int i = 0; i < 4 && ++p->counter[i] == 0; ++i) {
  }
  p->left = 4;
}

static uint32_t next_word(philox *p) {
  if (p->left == 0) {
    fill_words(p);
  }
  return p->words[4 - p->left--];
}

/* ---- numbers from words ---- */

static float float_of(uint32_t word) {
  uint32_t bits = (word & 0x7fffff) | 0x3f800000;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value - 1;
}

static double double_of(uint32_t upper, uint32_t lower) {
  uint64_t bits = (uint64_t)(upper & 0xfffff) << 32 | lower | 0x3ff0000000000000u;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value - 1;
}

/* Two normal numbers from two uniform ones, by Box and Muller. */
static void normals_f32(uint32_t first, uint32_t second, double *out) {
  float u = fmaxf(float_of(first), 1e-7f), angle = (float)(2 * M_PI * float_of(second));
  float radius = sqrtf(-2 * logf(u));
  out[0] = sinf(angle) * radius, out[1] = cosf(angle) * radius;
}

static void normals_f64(const uint32_t *words, double *out) {
  double u = fmax(double_of(words[0], words[1]), 1e-7), angle = 2 * M_PI * double_of(words[2], words[3]);
  double radius = sqrt(-2 * log(u));
  out[0] = sin(angle) * radius, out[1] = cos(angle) * radius;
}

/* ---- truncated normal numbers: groups of elements with 256 reserved draws for each ---- */

enum { RESERVED = 256, WORDS_OF_BLOCK = 4 };

typedef struct draws {
  int64_t count, samples, categories; /* gamma: alphas instead of categories */
  hr_dtype dtype;
} draws;

static void normals(philox *p, bool is_wide, double *out) {
  uint32_t words[4];
  int count = is_wide ? 4 : 2;
  for (int i = 0; i < count; ++i) {
    words[i] = next_word(p);
  }
  if (is_wide) {
    normals_f64(words, out);
  } else {
    normals_f32(words[0], words[1], out);
  }
}

static void store(hr_dtype dtype, void *out, int64_t at, double number) {
  if (dtype == HR_DTYPE_F64) {
    ((double *)out)[at] = number;
  } else {
    ((float *)out)[at] = (float)number;
  }
}

static hr_status draw_truncated(const hr_function_call *call) {
  const draws *d = call->arg;
  bool is_wide = d->dtype == HR_DTYPE_F64;
  int64_t group = is_wide ? 2 : 4;
  for (int64_t at = 0; at < d->count; at += group) {
    philox p = philox_at(call->inputs[0], (uint64_t)(at * RESERVED / WORDS_OF_BLOCK));
    for (int64_t found = 0; found < group;) {
      double pair[2];
      normals(&p, is_wide, pair);
      for (int i = 0; i < 2; ++i) {
        if (fabs(pair[i]) < 2 && found < group && at + found++ < d->count) {
          store(d->dtype, call->outputs[0], at + found - 1, pair[i]);
        }
      }
    }
  }
  return HR_OK;
}

/* The result of a function whose numbers are of f64, or f32 for narrower floats; inputs: the state, others. */
static void output_draws(htf_node *node, const htf_request *asked, hr_function_run run, draws plan, int input_count,
                         const htf_value *inputs) {
  draws *argument = htf_new_argument(node, sizeof *argument);
  if (argument == NULL) {
    return;
  }
  *argument = plan;
  htf_value result = htf_new(node, plan.dtype, asked->rank, asked->dims);
  htf_record_function(node, run, argument, input_count, inputs, 0, 1, &result);
  htf_output(node, 0, htf_cast(node, result, asked->dtype));
}

static hr_dtype wide_dtype(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64 ? dtype : HR_DTYPE_F32;
}

void htf_output_truncated(htf_node *node, htf_request asked) {
  if (!htf_is_empty_request(node, &asked)) {
    draws plan = {.count = asked.count, .dtype = wide_dtype(asked.dtype)};
    output_draws(node, &asked, draw_truncated, plan, INPUTS(asked.state));
  }
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
  const draws *d = call->arg;
  double *sums = malloc((size_t)(d->categories + 1) * sizeof *sums);
  if (sums == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %lld categories", (long long)d->categories);
  }
  philox p = philox_at(call->inputs[0], 0);
  for (int64_t row = 0; row < d->count; ++row) {
    accumulate((const double *)call->inputs[1] + row * d->categories, d->categories, sums);
    for (int64_t i = 0; i < d->samples; ++i) {
      uint32_t upper = next_word(&p), lower = next_word(&p);
      double wanted = double_of(upper, lower) * sums[d->categories - 1];
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
    draws plan = {asked.dims[0], asked.dims[1], logits->dims[1], HR_DTYPE_I64};
    output_draws(node, &asked, draw_categories, plan, INPUTS(asked.state, htf_cast(node, logits, HR_DTYPE_F64)));
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
  asked.state = htf_seeded_state(node, asked.dims[0] * ((asked.dims[1] + 3) / 4 * 4) * 2);
  output_categories(node, logits, asked);
}

/* ---- numbers of the gamma distribution, by Marsaglia and Tsang ---- */

/* Doubles that come in pairs, each pair's second one first. */
typedef struct pairs {
  double numbers[2];
  int left;
} pairs;

static double next_normal(philox *p, pairs *kept) {
  if (kept->left == 0) {
    normals(p, true, kept->numbers);
    kept->left = 2;
  }
  return kept->numbers[--kept->left];
}

static double next_uniform(philox *p, pairs *kept) {
  if (kept->left == 0) {
    for (int i = 0; i < 2; ++i) {
      uint32_t upper = next_word(p), lower = next_word(p);
      kept->numbers[i] = double_of(upper, lower);
    }
    kept->left = 2;
  }
  return kept->numbers[--kept->left];
}

static double gamma_number(philox *p, double alpha) {
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
  const draws *d = call->arg;
  for (int64_t at = 0; at < d->count; ++at) { /* samples of one alpha follow each other */
    int64_t alpha = at / d->samples, sample = at % d->samples;
    philox p = philox_at(call->inputs[0], (uint64_t)(at * RESERVED));
    double number = gamma_number(&p, ((const double *)call->inputs[1])[alpha]);
    store(d->dtype, call->outputs[0], sample * d->categories + alpha, number);
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
    draws plan = {asked.count, asked.count / count, count, wide_dtype(asked.dtype)};
    output_draws(node, &asked, draw_gamma, plan, INPUTS(asked.state, htf_cast(node, alphas, HR_DTYPE_F64)));
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

static double binomial_by_sums(philox *p, double count, double chance) {
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
static double binomial_by_rejection(philox *p, double count, double chance) {
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
  const draws *d = call->arg;
  const double *counts = call->inputs[1], *chances = call->inputs[2], *means = call->inputs[3];
  for (int64_t at = 0; at < d->count; ++at) {
    int64_t batch = at / d->samples, sample = at % d->samples;
    double count = counts[batch], chance = chances[batch], number = NAN;
    bool is_mirrored = chance > 0.5, rejects = means[batch] >= 10;
    philox p = philox_at(call->inputs[0], (uint64_t)(at * (rejects ? RESERVED : RESERVED_SUMS)));
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

/* Inputs: dims, the seed, counts, chances. */
void htf_stateless_binomial(htf_node *node) {
  htf_request asked = htf_read_shape(node, 0);
  asked.state = htf_state_of_seed(node, htf_input(node, 1));
  htf_value chances = htf_input(node, 3), one = htf_number(node, 1);
  htf_value least = htf_call2(node, HR_FUNCTIONAL_MINIMUM, chances, htf_subtract(node, one, chances));
  htf_value values[4] = {asked.state, htf_input(node, 2), chances, NULL};
  values[3] = htf_multiply(node, values[1], least);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value product = values[3];
  bool fits = product->rank <= asked.rank;
  for (int d = 0; fits && d < product->rank; ++d) {
    fits = product->dims[d] == asked.dims[asked.rank - product->rank + d];
  }
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Shape passed in must end with broadcasted shape.");
  }
  if (htf_is_empty_request(node, &asked)) {
    return;
  }
  for (int i = 1; i < 4; ++i) {
    values[i] = htf_cast(node,
                         htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(values[i]),
                                  ATTRIBUTES(htf_attr_ints(product->dims, product->rank))),
                         HR_DTYPE_F64);
  }
  int64_t count = hr_tensor_count(product);
  draws plan = {asked.count, asked.count / count, count, HR_DTYPE_F64};
  output_draws(node, &asked, draw_binomial, plan, 4, values);
}
