/* ops_random.c: rules of random numbers with TensorFlow's bits: Philox 4x32 with 10 rounds, whose words come in order.
 *
 * A key is u64[1], a counter u64[2]. The functional layer's generator_bits has the same bits for the state key,
 * counter. Seeds stay on the device: a variable that Keras draws seeds from is never waited for.
 */
#include <math.h>

#include "draws.h"
#include "slots.h"

enum { PHILOX = 1, AUTO_SELECT = 3 };

static void check_algorithm(htf_node *node, int input) {
  int64_t algorithm = htf_host_scalar(node, input);
  if (!htf_has_failed(node) && algorithm != PHILOX && algorithm != AUTO_SELECT) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: Unsupported algorithm id: %lld, expected 1 (Philox) or 3 (auto)",
             node->kernel->row->op, (long long)algorithm);
  }
}

static htf_value join(htf_node *node, htf_value x, htf_value y) {
  return htf_call(node, HR_FUNCTIONAL_CONCAT, INPUTS(x, y), ATTRIBUTES(htf_attr_int(0)));
}

static htf_value word(htf_node *node, uint64_t number) {
  static const int64_t one = 1;
  return htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_u64(number))),
                  ATTRIBUTES(htf_attr_ints(&one, 1), htf_attr_dtype(HR_DTYPE_U64)));
}

static htf_value generate(htf_node *node, htf_value state, int rank, const int64_t *dims, hr_dtype dtype) {
  htf_value results[2];
  htf_call_many(node, HR_FUNCTIONAL_GENERATOR_BITS, INPUTS(state),
                ATTRIBUTES(htf_attr_ints(dims, rank), htf_attr_dtype(dtype), htf_attr_text("philox")), 2, results);
  return results[1];
}

/* ---- keys and counters ---- */

/* One block of the generator with a fixed key, whose counter is the seed: its words are the key and half the counter.
 */
htf_value htf_state_of_seed(htf_node *node, htf_value seed) {
  static const int64_t stride = 1, one = 1, words = 4;
  if (htf_has_failed(node)) {
    return seed;
  }
  if (seed->rank != 1 || seed->dims[0] != 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the seed must have the dims [2]", node->kernel->row->op);
    return seed;
  }
  htf_value state = join(node, word(node, 0x02461e293ec8f720u), htf_cast(node, seed, HR_DTYPE_U64));
  htf_value mixed = htf_call(node, HR_FUNCTIONAL_BITCAST, INPUTS(generate(node, state, 1, &words, HR_DTYPE_U32)),
                             ATTRIBUTES(htf_attr_dtype(HR_DTYPE_U64)));
  htf_value upper = htf_view(node, mixed, 1, &one, &stride, mixed->offset + 1);
  htf_value key = htf_view(node, mixed, 1, &one, &stride, mixed->offset);
  return join(node, key, join(node, word(node, 0), upper));
}

static htf_value part_of(htf_node *node, htf_value vector, int first, int64_t count) {
  static const int64_t stride = 1;
  return htf_view(node, vector, 1, &count, &stride, vector->offset + first);
}

static void output_key_counter(htf_node *node) {
  htf_value state = htf_state_of_seed(node, htf_input(node, 0));
  htf_output(node, 1, part_of(node, state, 1, 2));
  htf_output(node, 0, part_of(node, state, 0, 1));
}

void htf_key_counter(htf_node *node) {
  output_key_counter(node);
}

void htf_key_counter_algorithm(htf_node *node) {
  output_key_counter(node);
  htf_output_host(node, 2, PHILOX);
}

void htf_random_algorithm(htf_node *node) {
  htf_output_host(node, 0, PHILOX);
}

/* ---- numbers ---- */

htf_request htf_read_shape(htf_node *node, int input) {
  htf_request asked = {.count = 1, .dtype = htf_output_dtype(node, 0)};
  htf_expect_rank(node, input, 1, "shape must be a vector");
  asked.rank = htf_host_ints(node, input, asked.dims, HR_RANK_MAX);
  for (int d = 0; d < asked.rank; ++d) {
    if (asked.dims[d] < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: dim %d is %lld, it must not be negative", node->kernel->row->op,
               d, (long long)asked.dims[d]);
    }
    asked.count *= asked.dims[d];
  }
  return asked;
}

/* Inputs: dims, key, counter, algorithm. */
htf_request htf_read_request(htf_node *node) {
  htf_request asked = htf_read_shape(node, 0);
  check_algorithm(node, 3);
  htf_value key = htf_input(node, 1), counter = htf_input(node, 2);
  if (!htf_has_failed(node) && (key->rank != 1 || key->dims[0] != 1 || counter->rank != 1 || counter->dims[0] != 2)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: key must have shape [1] and counter [2], got %d dims of %lld elements and %d of %lld",
             node->kernel->row->op, key->rank, (long long)hr_tensor_count(key), counter->rank,
             (long long)hr_tensor_count(counter));
  }
  asked.state = join(node, key, counter);
  return asked;
}

/* True if the result has no elements, which is set. */
bool htf_is_empty_request(htf_node *node, const htf_request *asked) {
  if (htf_has_failed(node) || asked->count > 0) {
    return htf_has_failed(node);
  }
  htf_value zero = htf_number_of(node, hr_scalar_i64(0));
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(zero),
                      ATTRIBUTES(htf_attr_ints(asked->dims, asked->rank), htf_attr_dtype(asked->dtype))));
  return true;
}

static hr_dtype bits_of(hr_dtype dtype) {
  return hr_dtype_size(dtype) == 8 ? HR_DTYPE_U64 : HR_DTYPE_U32;
}

/* Numbers in [0, 1): random mantissas behind the exponent of 1, less 1. */
static htf_value uniform(htf_node *node, htf_value state, int rank, const int64_t *dims, hr_dtype dtype) {
  const bool is_wide = dtype == HR_DTYPE_F64;
  const int digits = is_wide ? 52 : dtype == HR_DTYPE_F32 ? 23 : dtype == HR_DTYPE_F16 ? 10 : 7;
  htf_value bits = generate(node, state, rank, dims, is_wide ? HR_DTYPE_U64 : HR_DTYPE_U32);
  if (is_wide) { /* the first word has the upper bits */
    htf_value half = htf_number_of(node, hr_scalar_i64(32));
    bits = htf_call2(node, HR_FUNCTIONAL_BITWISE_OR, htf_call2(node, HR_FUNCTIONAL_BITWISE_LEFT_SHIFT, bits, half),
                     htf_call2(node, HR_FUNCTIONAL_BITWISE_RIGHT_SHIFT, bits, half));
  }
  htf_value mask = htf_number_of(node, hr_scalar_i64(((int64_t)1 << digits) - 1));
  htf_value mantissa = htf_cast(node, htf_call2(node, HR_FUNCTIONAL_BITWISE_AND, bits, mask), dtype);
  return htf_multiply(node, mantissa, htf_number(node, ldexp(1, -digits)));
}

static void output_uniform(htf_node *node, htf_request asked) {
  if (!htf_is_empty_request(node, &asked)) {
    htf_output(node, 0, uniform(node, asked.state, asked.rank, asked.dims, asked.dtype));
  }
}

void htf_random_uniform(htf_node *node) {
  output_uniform(node, htf_read_request(node));
}

/* Every second element of a vector of pairs. */
static htf_value half_of(htf_node *node, htf_value pairs, int which) {
  static const int64_t stride = 2;
  int64_t count = pairs->dims[0] / 2;
  return htf_view(node, pairs, 1, &count, &stride, pairs->offset + which);
}

/* Two uniform numbers give two normal ones, by Box and Muller; those of 16 bits are rounded ones of f32. */
static void output_normal(htf_node *node, htf_request asked) {
  if (htf_is_empty_request(node, &asked)) {
    return;
  }
  hr_dtype dtype = asked.dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  const int64_t count = asked.count + asked.count % 2;
  htf_value numbers = uniform(node, asked.state, 1, &count, dtype);
  htf_value u = htf_call2(node, HR_FUNCTIONAL_MAXIMUM, half_of(node, numbers, 0), htf_number(node, 1e-7));
  htf_value turn = htf_cast(node, half_of(node, numbers, 1), HR_DTYPE_F64); /* TensorFlow's product is one of f64 */
  htf_value angle = htf_cast(node, htf_multiply(node, turn, htf_number(node, 2 * M_PI)), dtype);
  htf_value radius = htf_call1(node, HR_FUNCTIONAL_SQRT,
                               htf_multiply(node, htf_call1(node, HR_FUNCTIONAL_LOG, u), htf_number(node, -2)));
  htf_value sine = htf_multiply(node, htf_call1(node, HR_FUNCTIONAL_SIN, angle), radius);
  htf_value cosine = htf_multiply(node, htf_call1(node, HR_FUNCTIONAL_COS, angle), radius);
  htf_value both = htf_call(node, HR_FUNCTIONAL_STACK, INPUTS(sine, cosine), ATTRIBUTES(htf_attr_int(1)));
  htf_output(node, 0, htf_cast(node, htf_reshape(node, both, asked.rank, asked.dims), asked.dtype));
}

void htf_random_normal(htf_node *node) {
  output_normal(node, htf_read_request(node));
}

/* Two inputs are the bounds. Signed numbers wrap as unsigned ones do. */
static void output_integers(htf_node *node, htf_request asked, int bounds) {
  int64_t low = htf_host_scalar(node, bounds), high = htf_host_scalar(node, bounds + 1);
  if (!htf_has_failed(node) && low >= high && asked.count > 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Need minval < maxval, got %lld >= %lld", (long long)low,
             (long long)high);
  }
  if (htf_is_empty_request(node, &asked)) {
    return;
  }
  htf_value range = htf_number_of(node, hr_scalar_u64((uint64_t)high - (uint64_t)low));
  htf_value bits = generate(node, asked.state, asked.rank, asked.dims, bits_of(asked.dtype));
  htf_value inside = htf_cast(node, htf_call2(node, HR_FUNCTIONAL_REMAINDER, bits, range), asked.dtype);
  htf_output(node, 0, htf_add(node, inside, htf_number_of(node, hr_scalar_i64(low))));
}

void htf_random_uniform_int(htf_node *node) {
  output_integers(node, htf_read_request(node), 4);
}

/* All numbers of the dtype. */
static void output_full_int(htf_node *node, htf_request asked) {
  if (!htf_is_empty_request(node, &asked)) {
    htf_value bits = generate(node, asked.state, asked.rank, asked.dims, bits_of(asked.dtype));
    htf_output(node, 0, htf_cast(node, bits, asked.dtype));
  }
}

void htf_random_full_int(htf_node *node) {
  output_full_int(node, htf_read_request(node));
}

void htf_random_truncated(htf_node *node) {
  htf_output_truncated(node, htf_read_request(node));
}

/* ---- numbers of a seed. Inputs: dims, the seed ---- */

static htf_request read_stateless(htf_node *node) {
  htf_request asked = htf_read_shape(node, 0);
  asked.state = htf_state_of_seed(node, htf_input(node, 1));
  return asked;
}

void htf_stateless_uniform(htf_node *node) {
  output_uniform(node, read_stateless(node));
}

void htf_stateless_normal(htf_node *node) {
  output_normal(node, read_stateless(node));
}

void htf_stateless_truncated(htf_node *node) {
  htf_output_truncated(node, read_stateless(node));
}

void htf_stateless_uniform_int(htf_node *node) {
  output_integers(node, read_stateless(node), 2);
}

void htf_stateless_full_int(htf_node *node) {
  output_full_int(node, read_stateless(node));
}

/* ---- numbers of the kernel's own generator: each call uses 256 blocks for an element, as in TensorFlow ---- */

/* The seeds are the key and the upper half of the counter. */
htf_value htf_seeded_state(htf_node *node, int64_t blocks) {
  htf_generator *generator = node->kernel->generator;
  uint64_t first = atomic_fetch_add(&generator->blocks, htf_has_failed(node) ? 0 : (uint64_t)blocks);
  return join(node, word(node, generator->seed), join(node, word(node, first), word(node, generator->seed2)));
}

static htf_request read_seeded(htf_node *node) {
  htf_request asked = htf_read_shape(node, 0);
  asked.state = htf_seeded_state(node, asked.count * HTF_BLOCKS_PER_ELEMENT);
  return asked;
}

void htf_seeded_uniform(htf_node *node) {
  output_uniform(node, read_seeded(node));
}

void htf_seeded_normal(htf_node *node) {
  output_normal(node, read_seeded(node));
}

void htf_seeded_truncated(htf_node *node) {
  htf_output_truncated(node, read_seeded(node));
}

void htf_seeded_uniform_int(htf_node *node) {
  output_integers(node, read_seeded(node), 1);
}

/* ---- numbers of a variable's generator, i64[3] or more: the halves of the counter, the key, and what is kept ---- */

enum { STATE_COUNT = 3 };

static void check_state(htf_node *node, htf_value state) {
  if (htf_has_failed(node)) {
    return;
  }
  if (state->dtype != HR_DTYPE_I64) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "dtype of RNG state variable must be int64, not %s",
             hr_dtype_name(state->dtype));
  } else if (state->rank != 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "RNG state must have one and only one dimension, not %d", state->rank);
  } else if (state->dims[0] < STATE_COUNT) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "For the Philox algorithm, the size of state must be at least 3; got %lld", (long long)state->dims[0]);
  }
}

/* Moves the counter on. */
static void skip(htf_node *node, const htf_slots *opened, htf_value state, int64_t elements) {
  htf_value blocks = htf_number_of(node, hr_scalar_u64((uint64_t)elements * HTF_BLOCKS_PER_ELEMENT));
  htf_value low = part_of(node, state, 0, 1), moved = htf_add(node, low, blocks);
  htf_value carry = htf_cast(node, htf_call2(node, HR_FUNCTIONAL_LESS, moved, low), HR_DTYPE_U64);
  htf_value high = htf_add(node, part_of(node, state, 1, 1), carry);
  htf_value next = join(node, join(node, moved, high), part_of(node, state, 2, state->dims[0] - 2));
  htf_set_slot(node, opened, 0, htf_cast(node, next, HR_DTYPE_I64));
}

/* Inputs: the variable, the algorithm, how many elements to skip. */
static void skip_elements(htf_node *node, bool has_output) {
  check_algorithm(node, 1);
  int64_t elements = htf_host_scalar(node, 2);
  htf_slots opened = htf_open_slots(node, 1, true, false);
  if (!htf_has_failed(node)) {
    check_state(node, opened.values[0]);
  }
  if (!htf_has_failed(node)) {
    htf_value state = htf_cast(node, opened.values[0], HR_DTYPE_U64);
    if (has_output) {
      htf_output(node, 0, opened.values[0]);
    }
    skip(node, &opened, state, elements);
  }
  htf_close_slots(&opened);
}

void htf_read_and_skip(htf_node *node) {
  skip_elements(node, true);
}

void htf_skip(htf_node *node) {
  skip_elements(node, false);
}

htf_value htf_stateful_state(htf_node *node, int64_t elements) {
  htf_value found = &htf_nothing;
  check_algorithm(node, 1);
  htf_slots opened = htf_open_slots(node, 1, true, false);
  if (!htf_has_failed(node)) {
    check_state(node, opened.values[0]);
  }
  if (!htf_has_failed(node)) {
    htf_value state = htf_cast(node, opened.values[0], HR_DTYPE_U64);
    found = join(node, part_of(node, state, 2, 1), part_of(node, state, 0, 2));
    skip(node, &opened, state, elements);
  }
  htf_close_slots(&opened);
  return found;
}

/* Inputs: the variable, the algorithm, dims. */
static htf_request read_stateful(htf_node *node) {
  htf_request asked = htf_read_shape(node, 2);
  asked.state = htf_stateful_state(node, asked.count);
  return asked;
}

void htf_stateful_uniform(htf_node *node) {
  output_uniform(node, read_stateful(node));
}

void htf_stateful_normal(htf_node *node) {
  output_normal(node, read_stateful(node));
}

void htf_stateful_truncated(htf_node *node) {
  htf_output_truncated(node, read_stateful(node));
}

void htf_stateful_uniform_int(htf_node *node) {
  output_integers(node, read_stateful(node), 3);
}

void htf_stateful_full_int(htf_node *node) {
  output_full_int(node, read_stateful(node));
}
