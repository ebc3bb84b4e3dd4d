/* draws.h: random numbers whose requests ops_random.c reads. */
#ifndef HEADRACE_TENSORFLOW_DRAWS_H_
#define HEADRACE_TENSORFLOW_DRAWS_H_

#include "node.h"

enum { HTF_BLOCKS_PER_ELEMENT = 256 };

/* A request, and the generator's state u64[3]: key, counter. */
typedef struct htf_request {
  int64_t dims[HR_RANK_MAX], count;
  int rank;
  htf_value state;
  hr_dtype dtype;
} htf_request;

/* Dims from a host argument, the dtype of output 0; without a state. */
htf_request htf_read_shape(htf_node *node, int input);
/* Inputs: dims, key, counter, algorithm. */
htf_request htf_read_request(htf_node *node);
/* The state of a kernel's own generator, which moves on by so many blocks. */
htf_value htf_seeded_state(htf_node *node, int64_t blocks);
/* The state of a variable's generator, which moves on by the blocks of so many elements. Inputs: the variable, the
 * algorithm. */
htf_value htf_stateful_state(htf_node *node, int64_t elements);
/* The state that a seed of two integers has, without a generator. */
htf_value htf_state_of_seed(htf_node *node, htf_value seed);
/* True if the result has no elements, which is set. */
bool htf_is_empty_request(htf_node *node, const htf_request *asked);

/* The numbers that a function of the host draws. */
typedef struct htf_draws {
  int64_t count, samples, categories; /* gamma: alphas instead of categories; truncated: sets of parameters */
  hr_dtype dtype;
} htf_draws;

/* f64 for f64, otherwise f32. */
hr_dtype htf_wide_dtype(hr_dtype dtype);
/* The result of a function whose numbers are of the plan's dtype; inputs: the state, others. */
void htf_output_draws(htf_node *node, const htf_request *asked, hr_function_run run, htf_draws plan, int input_count,
                      const htf_value *inputs);

static inline void htf_store_number(hr_dtype dtype, void *out, int64_t at, double number) {
  if (dtype == HR_DTYPE_F64) {
    ((double *)out)[at] = number;
  } else {
    ((float *)out)[at] = (float)number;
  }
}

/* Normal numbers of [-2, 2]. */
void htf_output_truncated(htf_node *node, htf_request asked);

#endif
