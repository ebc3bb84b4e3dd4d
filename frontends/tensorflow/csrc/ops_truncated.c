/* ops_truncated.c: rules of truncated normal numbers with TensorFlow's bits, from functions of the host on the
 * generator's state.
 */
#include <math.h>

#include "draws.h"
#include "halves.h"
#include "philox.h"

enum { WORDS_OF_BLOCK = 4 };

/* ---- of two deviations: groups of elements with 256 reserved draws for each ---- */

static hr_status draw_truncated(const hr_function_call *call) {
  const htf_draws *d = call->arg;
  bool is_wide = d->dtype == HR_DTYPE_F64;
  int64_t group = is_wide ? 2 : 4;
  for (int64_t at = 0; at < d->count; at += group) {
    htf_philox p = htf_philox_at(call->inputs[0], (uint64_t)(at * HTF_BLOCKS_PER_ELEMENT / WORDS_OF_BLOCK));
    for (int64_t found = 0; found < group;) {
      double pair[2];
      htf_normals(&p, is_wide, pair);
      for (int i = 0; i < 2; ++i) {
        if (fabs(pair[i]) < 2 && found < group && at + found++ < d->count) {
          htf_store_number(d->dtype, call->outputs[0], at + found - 1, pair[i]);
        }
      }
    }
  }
  return HR_OK;
}

void htf_output_truncated(htf_node *node, htf_request asked) {
  if (!htf_is_empty_request(node, &asked)) {
    htf_draws plan = {.count = asked.count, .dtype = htf_wide_dtype(asked.dtype)};
    htf_output_draws(node, &asked, draw_truncated, plan, INPUTS(asked.state));
  }
}

/* ---- of any mean, deviation and bounds: sets of elements that share them, of one generator ---- */

enum { TRIES = 1000, ELEMENTS_OF_SET = 100, PARAMETERS = 4 };

/* Bounds are in deviations from the mean, the nearest one is `low`. Each number is rounded to the dtype. */
typedef struct sampler {
  htf_philox words;
  hr_dtype dtype;
  double mean, deviation, low, high;
} sampler;

/* The candidates that a block, or two, makes; NaN for one that is rejected. At most 4. */
typedef int (*proposal)(sampler *s, double *out);

static double rounded(const sampler *s, double x) {
  return s->dtype == HR_DTYPE_F64 ? x : s->dtype == HR_DTYPE_F16 ? htf_widen_f16(htf_narrow_f16((float)x)) : (float)x;
}

static double exp_of(const sampler *s, double x) {
  return s->dtype == HR_DTYPE_F64 ? exp(x) : rounded(s, expf((float)x));
}

static double log_of(const sampler *s, double x) {
  return s->dtype == HR_DTYPE_F64 ? log(x) : rounded(s, logf((float)x));
}

/* sqrt(low^2 + 4) */
static double root_of(const sampler *s) {
  return rounded(s, sqrt(rounded(s, rounded(s, s->low * s->low) + 4)));
}

static int uniforms(sampler *s, double *out) {
  const int count = s->dtype == HR_DTYPE_F64 ? 2 : 4;
  htf_fill_words(&s->words);
  for (int i = 0; i < count; ++i) {
    const uint32_t word = htf_draw_word(&s->words);
    out[i] = s->dtype == HR_DTYPE_F64   ? htf_double_of(word, htf_draw_word(&s->words))
             : s->dtype == HR_DTYPE_F16 ? (word & 0x3ff) * 0x1p-10
                                        : htf_float_of(word);
  }
  return count;
}

/* Normal numbers, if one bound at least is far. */
static int propose_normals(sampler *s, double *out) {
  const bool is_wide = s->dtype == HR_DTYPE_F64;
  const int count = is_wide ? 2 : 4;
  htf_fill_words(&s->words);
  for (int i = 0; i < count; i += 2) {
    htf_normals(&s->words, is_wide, out + i);
  }
  for (int i = 0; i < count; ++i) {
    const double z = rounded(s, out[i]);
    out[i] = z >= s->low && z <= s->high ? z : NAN;
  }
  return count;
}

/* Numbers of the range, if it is short. */
static int propose_uniforms(sampler *s, double *out) {
  const double width = rounded(s, s->high - s->low), plus = s->low < 0 ? 0 : rounded(s, s->low * s->low);
  double chances[4];
  const int count = uniforms(s, out);
  (void)uniforms(s, chances);
  for (int i = 0; i < count; ++i) {
    const double z = rounded(s, rounded(s, out[i] * width) + s->low);
    const double density = exp_of(s, rounded(s, rounded(s, plus - rounded(s, z * z)) / 2));
    out[i] = chances[i] <= density ? z : NAN;
  }
  return count;
}

/* Exponential numbers from the lower bound on, which is in the tail. */
static int propose_exponentials(sampler *s, double *out) {
  const double rate = rounded(s, rounded(s, s->low + root_of(s)) / 2);
  double numbers[4];
  const int count = uniforms(s, numbers);
  for (int i = 0; i < count; i += 2) {
    const double z = rounded(s, rounded(s, -log_of(s, numbers[i]) / rate) + s->low);
    const double x = s->low < rate ? rounded(s, rate - z) : rounded(s, s->low - rate);
    const double density = exp_of(s, rounded(s, rounded(s, -x * x) / 2));
    out[i / 2] = numbers[i + 1] <= density && z < s->high ? z : NAN;
  }
  return count / 2;
}

/* The proposal of a set, for which the sampler is prepared; NULL: bounds or a deviation that none can have. */
static proposal prepare(sampler *s, double mean, double deviation, double low, double high) {
  if (!(deviation > 0 && low < high && (isfinite(low) || isfinite(high)))) {
    return NULL;
  }
  const bool is_turned = low == -INFINITY || high < mean;
  s->mean = mean, s->deviation = is_turned ? -deviation : deviation;
  s->low = rounded(s, rounded(s, (is_turned ? high : low) - mean) / s->deviation);
  s->high = rounded(s, rounded(s, (is_turned ? low : high) - mean) / s->deviation);
  const double far = rounded(s, 1.3), root = root_of(s);
  if ((s->low < -far && s->high >= 0) || (s->high > far && s->low <= 0)) {
    return propose_normals;
  }
  const double exponent = rounded(s, 0.5 + rounded(s, rounded(s, s->low * rounded(s, s->low - root)) / 4));
  const double longest = rounded(s, rounded(s, 2 * exp_of(s, exponent)) / rounded(s, s->low + root));
  return rounded(s, s->high - s->low) < longest ? propose_uniforms : propose_exponentials;
}

static void store(hr_dtype dtype, void *out, int64_t at, double number) {
  if (dtype == HR_DTYPE_F16) {
    ((uint16_t *)out)[at] = htf_narrow_f16((float)number);
  } else {
    htf_store_number(dtype, out, at, number);
  }
}

/* False if no candidate fits for long. */
static bool fill_set(sampler *s, proposal propose, int64_t at, int64_t end, void *out) {
  int rejected = 0;
  while (at < end) {
    double found[4];
    const int count = propose(s, found);
    for (int i = 0; i < count && at < end; ++i) {
      if (found[i] == found[i]) {
        store(s->dtype, out, at++, rounded(s, rounded(s, found[i] * s->deviation) + s->mean));
        rejected = 0;
      } else if (++rejected >= TRIES) {
        return false;
      }
    }
  }
  return true;
}

/* Inputs: the state, means, deviations, lower and upper bounds. */
static hr_status draw_parameterized(const hr_function_call *call) {
  const htf_draws *d = call->arg;
  const double *const *inputs = (const double *const *)call->inputs;
  sampler s = {.words = htf_philox_at(call->inputs[0], 0), .dtype = d->dtype};
  for (int64_t set = 0, begin = 0; begin < d->count; ++set, begin += d->samples) {
    const int64_t p = d->categories == 1 ? 0 : set, end = begin + d->samples;
    const double mean = inputs[1][p], deviation = inputs[2][p], low = inputs[3][p], high = inputs[4][p];
    proposal propose = prepare(&s, mean, deviation, low, high);
    if (propose == NULL) {
      return hr_status_make(
          HR_STATUS_INVALID_ARGUMENT,
          "Invalid parameters: standard deviation %g, minimum %g, maximum %g; expected a positive one, "
          "and a minimum below the maximum of which one is finite",
          deviation, low, high);
    }
    if (!fill_set(&s, propose, begin, end < d->count ? end : d->count, call->outputs[0])) {
      return hr_status_make(HR_STATUS_INTERNAL, "no truncated normal number after %d draws: mean %g, %g to %g", TRIES,
                            mean, low, high);
    }
  }
  return HR_OK;
}

/* True if all sets have the same parameters, which TensorFlow makes sets of 100 elements of. */
static bool read_parameters(htf_node *node, const htf_request *asked, htf_value *parameters) {
  static const char *const names[PARAMETERS] = {"means", "stddevs", "minvals", "maxvals"};
  bool is_shared = true;
  for (int i = 0; i < PARAMETERS; ++i) {
    parameters[i] = htf_input(node, 1 + i);
    is_shared = is_shared && (parameters[i]->rank == 0 || (i < 2 && parameters[i]->dims[0] == 1));
  }
  for (int i = 0; i < PARAMETERS && !htf_has_failed(node); ++i) {
    const int64_t count = parameters[i]->rank > 0 ? parameters[i]->dims[0] : 1;
    if (parameters[i]->rank > 1) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Input %s should be a scalar or vector, got %d dims", names[i],
               parameters[i]->rank);
    } else if (count != 1 && count != asked->dims[0]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Input %s should have length 1 or shape[0]: %lld for a shape of %lld",
               names[i], (long long)count, (long long)asked->dims[0]);
    }
  }
  return is_shared;
}

/* Inputs: dims, means, deviations, lower and upper bounds. */
void htf_parameterized_truncated(htf_node *node) {
  htf_request asked = htf_read_shape(node, 0);
  htf_value values[1 + PARAMETERS];
  if (!htf_has_failed(node) && asked.rank == 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Shape tensor must not be empty");
  }
  const bool is_shared = read_parameters(node, &asked, values + 1);
  if (htf_has_failed(node)) {
    return;
  }
  int64_t samples = ELEMENTS_OF_SET, sets = (asked.count + samples - 1) / samples;
  if (!is_shared) {
    samples = 1, sets = asked.dims[0];
    for (int d = 1; d < asked.rank; ++d) {
      samples *= asked.dims[d];
    }
  }
  values[0] = asked.state = htf_seeded_state(node, sets * 2 * TRIES * (samples + 3) / 4);
  if (htf_is_empty_request(node, &asked)) {
    return;
  }
  const int64_t count = is_shared ? 1 : sets;
  for (int i = 1; i <= PARAMETERS; ++i) {
    values[i] = htf_cast(node, htf_broadcast(node, values[i], 1, &count), HR_DTYPE_F64);
  }
  htf_draws plan = {asked.count, samples, count, asked.dtype};
  htf_output_draws(node, &asked, draw_parameterized, plan, 1 + PARAMETERS, values);
}
