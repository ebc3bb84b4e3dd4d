/* draws.h: random numbers whose requests ops_random.c reads. */
#ifndef HEADRACE_TENSORFLOW_DRAWS_H_
#define HEADRACE_TENSORFLOW_DRAWS_H_

#include "node.h"

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
/* The state of a kernel's own generator, which moves on by so many elements. */
htf_value htf_seeded_state(htf_node *node, int64_t elements);
/* The state that a seed of two integers has, without a generator. */
htf_value htf_state_of_seed(htf_node *node, htf_value seed);
/* True if the result has no elements, which is set. */
bool htf_is_empty_request(htf_node *node, const htf_request *asked);

/* Normal numbers of [-2, 2]. */
void htf_output_truncated(htf_node *node, htf_request asked);

#endif
