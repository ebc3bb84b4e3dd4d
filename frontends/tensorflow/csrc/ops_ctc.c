/* ops_ctc.c: the rule of the loss of connectionist temporal classification, and its gradient by the logits. Class 0 is
 * the blank.
 *
 * States of a sequence are its labels with blanks between and around them. With p[t, s] the probability of the state's
 * class at time t, alpha[t, s] is that of all alignments up to time t that end in state s:
 *
 *   alpha[t, s] = p[t, s] (alpha[t - 1, s] + alpha[t - 1, s - 1] + alpha[t - 1, s - 2] if the blank may be left out)
 *
 * beta[t, s] is that of all that follow. The loss is -log(sum over s of alpha[t, s] beta[t, s]), at any time. A
 * function of the host computes with logarithms in f64.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scope.h"

typedef struct sequence {
  int64_t first, labels, times; /* its first label, how many, and how long it is */
} sequence;

/* The argument of the function of the host. Scratch memory is for the sequence with the most states. */
typedef struct plan {
  int64_t times, batch, classes, states;
  sequence *sequences;
  int64_t *labels;
  double *norms, *alpha, *beta, *shares;
} plan;

/* ---- the function of the host ---- */

static double add_logs(double x, double y) {
  double most = fmax(x, y);
  return most == -INFINITY ? most : most + log1p(exp(fmin(x, y) - most));
}

/* One sequence: its labels and its logits of class 0, with `step` between two times. */
typedef struct view {
  const plan *plan;
  const int64_t *labels;
  const float *logits;
  int64_t states, times, step;
} view;

static int64_t class_of(const view *v, int64_t state) {
  return state % 2 == 0 ? 0 : v->labels[state / 2];
}

/* True if a path may go from two states before to this one. */
static bool may_skip(const view *v, int64_t state) {
  return state % 2 == 1 && state > 1 && class_of(v, state) != class_of(v, state - 2);
}

static double log_probability(const view *v, int64_t time, int64_t state) {
  return (double)v->logits[time * v->step + class_of(v, state)] - v->plan->norms[time];
}

/* The logarithm of the sum of a time's exponentials. */
static double norm_of(const float *logits, int64_t classes) {
  double most = -INFINITY, sum = 0;
  for (int64_t c = 0; c < classes; ++c) {
    most = fmax(most, (double)logits[c]);
  }
  for (int64_t c = 0; c < classes; ++c) {
    sum += exp((double)logits[c] - most);
  }
  return most + log(sum);
}

/* Fills alpha, a row of states for each time. */
static void go_forward(const view *v) {
  double *alpha = v->plan->alpha;
  for (int64_t t = 0; t < v->times; ++t) {
    const double *before = alpha + (t - 1) * v->states;
    for (int64_t s = 0; s < v->states; ++s) {
      double sum = t > 0 ? before[s] : s < 2 ? 0 : -INFINITY;
      sum = t > 0 && s > 0 ? add_logs(sum, before[s - 1]) : sum;
      sum = t > 0 && may_skip(v, s) ? add_logs(sum, before[s - 2]) : sum;
      alpha[t * v->states + s] = sum + log_probability(v, t, s);
    }
  }
}

/* Replaces beta of time t + 1 by that of time t. In place: state s needs no state before it. */
static void go_back(const view *v, int64_t t) {
  double *beta = v->plan->beta;
  bool is_last = t + 1 == v->times;
  for (int64_t s = 0; s < v->states; ++s) {
    beta[s] = is_last ? (s + 2 < v->states ? -INFINITY : 0) : beta[s] + log_probability(v, t + 1, s);
  }
  for (int64_t s = 0; s + 1 < v->states && !is_last; ++s) {
    beta[s] = add_logs(beta[s], beta[s + 1]);
    beta[s] = s + 2 < v->states && may_skip(v, s + 2) ? add_logs(beta[s], beta[s + 2]) : beta[s];
  }
}

/* The gradient is the class's probability, less its share of the alignments. */
static void write_gradient(const view *v, double loss, float *gradient) {
  const plan *p = v->plan;
  for (int64_t t = v->times; t < p->times; ++t) {
    memset(gradient + t * v->step, 0, (size_t)p->classes * sizeof *gradient);
  }
  for (int64_t t = v->times - 1; t >= 0; --t) {
    go_back(v, t);
    for (int64_t c = 0; c < p->classes; ++c) {
      p->shares[c] = exp((double)v->logits[t * v->step + c] - p->norms[t]);
    }
    for (int64_t s = 0; s < v->states; ++s) {
      p->shares[class_of(v, s)] -= exp(p->alpha[t * v->states + s] + p->beta[s] + loss);
    }
    for (int64_t c = 0; c < p->classes; ++c) {
      gradient[t * v->step + c] = (float)p->shares[c];
    }
  }
}

static double loss_of(const view *v) {
  const double *last = v->plan->alpha + (v->times - 1) * v->states;
  return v->times == 0 ? 0 : -(v->states > 1 ? add_logs(last[v->states - 1], last[v->states - 2]) : last[0]);
}

static hr_status run_plan(const hr_function_call *call) {
  const plan *p = call->arg;
  float *losses = call->outputs[0], *gradient = call->outputs[1];
  for (int64_t b = 0; b < p->batch; ++b) {
    const sequence *of = &p->sequences[b];
    const float *logits = (const float *)call->inputs[0] + b * p->classes;
    const view v = {p, p->labels + of->first, logits, 2 * of->labels + 1, of->times, p->batch * p->classes};
    for (int64_t t = 0; t < v.times; ++t) {
      p->norms[t] = norm_of(logits + t * v.step, p->classes);
    }
    go_forward(&v);
    double loss = loss_of(&v);
    losses[b] = (float)loss;
    write_gradient(&v, loss, gradient + b * p->classes);
  }
  return HR_OK;
}

/* ---- the rule ---- */

/* Values of the call that the host knows. */
typedef struct labels {
  int64_t *places, *values, *times;
  int64_t count, batch;
  sequence *sequences;
} labels;

static labels read_labels(htf_node *node, int64_t batch) {
  labels x = {.batch = batch};
  int64_t numbers = 0, lengths = 0;
  x.places = htf_host_numbers(node, 1, &numbers);
  x.values = htf_host_numbers(node, 2, &x.count);
  x.times = htf_host_numbers(node, 3, &lengths);
  x.sequences = htf_new_argument(node, (size_t)(batch + 1) * sizeof *x.sequences);
  if (!htf_has_failed(node) && numbers != 2 * x.count) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "labels_indices must have two numbers for each of %lld labels",
             (long long)x.count);
  } else if (!htf_has_failed(node) && lengths != batch) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "len(sequence_length) != batch_size. len(sequence_length):  %lld batch_size: %lld", (long long)lengths,
             (long long)batch);
  }
  return x;
}

static void free_labels(labels *x) {
  free(x->places);
  free(x->values);
  free(x->times);
  free(x->sequences);
}

/* Counts the labels of each sequence. They must be classes, and come in the order of the batch. */
static void count_labels(htf_node *node, labels *x, int64_t classes) {
  for (int64_t i = 0; i < x->count && !htf_has_failed(node); ++i) {
    int64_t b = x->places[2 * i], before = i > 0 ? x->places[2 * i - 2] : 0;
    if (b < before || b >= x->batch) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "labels batch index must be between 0 and %lld but saw: %lld",
               (long long)x->batch, (long long)b);
    } else if (x->values[i] <= 0 || x->values[i] >= classes) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "label %lld is %lld, expected 1 to %lld", (long long)i,
               (long long)x->values[i], (long long)classes - 1);
    } else {
      x->sequences[b].first = x->sequences[b].labels == 0 ? i : x->sequences[b].first;
      ++x->sequences[b].labels;
    }
  }
}

/* Sets the times of a sequence: at least as many as its labels, and a blank between those that are the same. */
static void set_times(htf_node *node, labels *x, int64_t b, int64_t times) {
  sequence *of = &x->sequences[b];
  const int64_t *values = x->values + of->first;
  int64_t needed = of->labels;
  for (int64_t i = 1; i < of->labels; ++i) {
    needed += values[i] == values[i - 1];
  }
  of->times = x->times[b];
  if (of->times < 0 || of->times > times) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "sequence_length(%lld) <= %lld, it is %lld", (long long)b,
             (long long)times, (long long)of->times);
  } else if (needed > of->times) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Not enough time for target transition sequence (required: %lld, available: %lld)", (long long)needed,
             (long long)of->times);
  }
}

/* A plan and its memory in one piece, or NULL. */
static plan *new_plan(htf_node *node, const int64_t *dims, const labels *x) {
  size_t most = 0;
  for (int64_t b = 0; b < x->batch; ++b) {
    most = (size_t)x->sequences[b].labels > most ? (size_t)x->sequences[b].labels : most;
  }
  size_t times = (size_t)dims[0], classes = (size_t)dims[2], states = 2 * most + 1;
  size_t sequences = (size_t)x->batch * sizeof *x->sequences, values = (size_t)x->count * sizeof *x->values;
  plan *p = htf_new_argument(node, sizeof *p + sequences + values +
                                       (times + times * states + states + classes) * sizeof *p->alpha);
  if (p != NULL) {
    *p = (plan){.times = dims[0], .batch = dims[1], .classes = dims[2], .sequences = (sequence *)(p + 1)};
    p->labels = (int64_t *)(p->sequences + x->batch);
    p->norms = (double *)(p->labels + x->count);
    p->alpha = p->norms + times;
    p->beta = p->alpha + times * states;
    p->shares = p->beta + states;
    memcpy(p->sequences, x->sequences, sequences);
    memcpy(p->labels, x->values, values);
  }
  return p;
}

/* Records the loss and the gradient if the labels are right. */
static void record(htf_node *node, htf_value logits, labels *x) {
  const int64_t *dims = logits->dims;
  count_labels(node, x, dims[2]);
  for (int64_t b = 0; b < x->batch && !htf_has_failed(node); ++b) {
    set_times(node, x, b, dims[0]);
  }
  htf_value input = htf_settle(node, logits, HR_DTYPE_F32);
  htf_value results[2] = {htf_new(node, HR_DTYPE_F32, 1, dims + 1), htf_new(node, HR_DTYPE_F32, 3, dims)};
  plan *p = htf_has_failed(node) || x->batch == 0 ? NULL : new_plan(node, dims, x);
  if (p != NULL) {
    htf_record_function(node, run_plan, p, 1, &input, 0, 2, results);
  }
  htf_output(node, 0, results[0]);
  htf_output(node, 1, results[1]);
}

/* Inputs: logits [time, batch, class], the place of each label in [batch, time], its class, times of each sequence. As
 * in TensorFlow's kernel of GPUs, the attributes have their defaults. */
void htf_ctc_loss(htf_node *node) {
  htf_value logits = htf_input(node, 0);
  bool is_plain = !htf_flag(node, "preprocess_collapse_repeated") && htf_flag(node, "ctc_merge_repeated") &&
                  !htf_flag(node, "ignore_longer_outputs_than_inputs");
  if (!htf_has_failed(node) && (logits->rank != 3 || logits->dims[2] < 1)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "inputs is not a 3-Tensor with classes");
  } else if (!htf_has_failed(node) && !is_plain) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "CTCLossV2 requires the default of each attribute");
  }
  if (!htf_has_failed(node)) {
    labels x = read_labels(node, logits->dims[1]);
    record(node, logits, &x);
    free_labels(&x);
  }
}
