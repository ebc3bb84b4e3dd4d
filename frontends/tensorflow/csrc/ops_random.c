/* ops_random.c: rules of random numbers with TensorFlow's bits: Philox 4x32 with 10 rounds, whose words come in order.
 *
 * A key is u64[1], a counter u64[2]. The functional layer's generator_bits has the same bits for the state key,
 * counter. Seeds stay on the device: a variable that Keras draws seeds from is never waited for.
 */
#include <math.h>

#include "node.h"

enum { PHILOX = 1, AUTO_SELECT = 3 };

static void check_algorithm(htf_node *node, int input) {
  int64_t algorithm = htf_host_int(node, input);
  if (!htf_has_failed(node) && algorithm != PHILOX && algorithm != AUTO_SELECT) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: unsupported algorithm id %lld, expected 1 (Philox) or 3 (auto)",
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

static htf_value generate(htf_node *node, htf_value state, int64_t count, hr_dtype dtype) {
  htf_value results[2];
  htf_call_many(node, HR_FUNCTIONAL_GENERATOR_BITS, INPUTS(state),
                ATTRIBUTES(htf_attr_ints(&count, 1), htf_attr_dtype(dtype), htf_attr_text("philox")), 2, results);
  return results[1];
}

/* ---- keys and counters ---- */

/* One block of the generator with a fixed key, whose counter is the seed: its words are the key and half the counter.
 */
static void output_key_counter(htf_node *node) {
  static const int64_t stride = 1, one = 1;
  htf_value seed = htf_input(node, 0);
  if (!htf_has_failed(node) && (seed->rank != 1 || seed->dims[0] != 2)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the seed must have the dims [2]", node->kernel->row->op);
  }
  htf_value state = join(node, word(node, 0x02461e293ec8f720u), htf_cast(node, seed, HR_DTYPE_U64));
  htf_value mixed = htf_call(node, HR_FUNCTIONAL_BITCAST, INPUTS(generate(node, state, 4, HR_DTYPE_U32)),
                             ATTRIBUTES(htf_attr_dtype(HR_DTYPE_U64)));
  htf_value upper = htf_view(node, mixed, 1, &one, &stride, mixed->offset + 1);
  htf_output(node, 1, join(node, word(node, 0), upper));
  htf_output(node, 0, htf_view(node, mixed, 1, &one, &stride, mixed->offset));
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

/* Inputs: dims, key, counter, algorithm. */
typedef struct request {
  int64_t dims[HR_RANK_MAX], count;
  int rank;
  htf_value state;
  hr_dtype dtype;
} request;

static request read_request(htf_node *node) {
  request asked = {.count = 1, .dtype = htf_dtype_of(tf.ExpectedOutputDataType(node->context, 0))};
  asked.rank = htf_host_ints(node, 0, asked.dims, HR_RANK_MAX);
  for (int d = 0; d < asked.rank; ++d) {
    if (asked.dims[d] < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: dim %d is %lld, it must not be negative", node->kernel->row->op,
               d, (long long)asked.dims[d]);
    }
    asked.count *= asked.dims[d];
  }
  check_algorithm(node, 3);
  asked.state = join(node, htf_input(node, 1), htf_input(node, 2));
  return asked;
}

static void output_numbers(htf_node *node, const request *asked, htf_value numbers) {
  htf_output(node, 0, htf_reshape(node, numbers, asked->rank, asked->dims));
}

/* True if the result has no elements, which is set. */
static bool is_empty(htf_node *node, const request *asked) {
  if (htf_has_failed(node) || asked->count > 0) {
    return htf_has_failed(node);
  }
  htf_value zero = htf_number_of(node, hr_scalar_i64(0));
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(zero),
                      ATTRIBUTES(htf_attr_ints(asked->dims, asked->rank), htf_attr_dtype(asked->dtype))));
  return true;
}

static htf_value with_bits(htf_node *node, hr_functional function, htf_value x, int64_t bits) {
  return htf_call2(node, function, x, htf_number_of(node, hr_scalar_i64(bits)));
}

/* The bits of numbers in [1, 2): a random mantissa behind the exponent of 1. */
static htf_value mantissa_of(htf_node *node, htf_value bits, hr_dtype dtype) {
  switch (dtype) {
    case HR_DTYPE_F16:
      return with_bits(node, HR_FUNCTIONAL_BITWISE_OR, with_bits(node, HR_FUNCTIONAL_BITWISE_AND, bits, 0x3ff), 0x3c00);
    case HR_DTYPE_BF16:
      return with_bits(node, HR_FUNCTIONAL_BITWISE_OR, with_bits(node, HR_FUNCTIONAL_BITWISE_AND, bits, 0x7f), 0x3f80);
    case HR_DTYPE_F32:
      return with_bits(node, HR_FUNCTIONAL_BITWISE_OR, with_bits(node, HR_FUNCTIONAL_BITWISE_AND, bits, 0x7fffff),
                       0x3f800000);
    default: { /* the first word has the upper bits */
      htf_value upper = with_bits(node, HR_FUNCTIONAL_BITWISE_LEFT_SHIFT,
                                  with_bits(node, HR_FUNCTIONAL_BITWISE_AND, bits, 0xfffff), 32);
      htf_value lower = with_bits(node, HR_FUNCTIONAL_BITWISE_RIGHT_SHIFT, bits, 32);
      return with_bits(node, HR_FUNCTIONAL_BITWISE_OR, htf_call2(node, HR_FUNCTIONAL_BITWISE_OR, upper, lower),
                       0x3ff0000000000000);
    }
  }
}

static hr_dtype bits_of(hr_dtype dtype) {
  size_t size = hr_dtype_size(dtype);
  return size == 2 ? HR_DTYPE_U16 : size == 4 ? HR_DTYPE_U32 : HR_DTYPE_U64;
}

/* Numbers in [0, 1). */
static htf_value uniform(htf_node *node, htf_value state, int64_t count, hr_dtype dtype) {
  htf_value bits = mantissa_of(node, generate(node, state, count, bits_of(dtype)), dtype);
  htf_value numbers = htf_call(node, HR_FUNCTIONAL_BITCAST, INPUTS(bits), ATTRIBUTES(htf_attr_dtype(dtype)));
  return htf_call2(node, HR_FUNCTIONAL_SUBTRACT, numbers, htf_number(node, 1));
}

void htf_random_uniform(htf_node *node) {
  request asked = read_request(node);
  if (!is_empty(node, &asked)) {
    output_numbers(node, &asked, uniform(node, asked.state, asked.count, asked.dtype));
  }
}

/* Every second element of a vector of pairs. */
static htf_value half_of(htf_node *node, htf_value pairs, int which) {
  static const int64_t stride = 2;
  int64_t count = pairs->dims[0] / 2;
  return htf_view(node, pairs, 1, &count, &stride, pairs->offset + which);
}

/* Two uniform numbers give two normal ones, by Box and Muller; those of 16 bits are rounded ones of f32. */
void htf_random_normal(htf_node *node) {
  request asked = read_request(node);
  if (is_empty(node, &asked)) {
    return;
  }
  hr_dtype dtype = asked.dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
  htf_value numbers = uniform(node, asked.state, asked.count + asked.count % 2, dtype);
  htf_value u = htf_call2(node, HR_FUNCTIONAL_MAXIMUM, half_of(node, numbers, 0), htf_number(node, 1e-7));
  htf_value angle = htf_call2(node, HR_FUNCTIONAL_MULTIPLY, half_of(node, numbers, 1), htf_number(node, 2 * M_PI));
  htf_value radius =
      htf_call1(node, HR_FUNCTIONAL_SQRT,
                htf_call2(node, HR_FUNCTIONAL_MULTIPLY, htf_call1(node, HR_FUNCTIONAL_LOG, u), htf_number(node, -2)));
  htf_value sine = htf_call2(node, HR_FUNCTIONAL_MULTIPLY, htf_call1(node, HR_FUNCTIONAL_SIN, angle), radius);
  htf_value cosine = htf_call2(node, HR_FUNCTIONAL_MULTIPLY, htf_call1(node, HR_FUNCTIONAL_COS, angle), radius);
  htf_value both = htf_call(node, HR_FUNCTIONAL_STACK, INPUTS(sine, cosine), ATTRIBUTES(htf_attr_int(1)));
  output_numbers(node, &asked, htf_cast(node, both, asked.dtype));
}

/* Inputs 4 and 5 are the bounds. Signed numbers wrap as unsigned ones do. */
void htf_random_uniform_int(htf_node *node) {
  request asked = read_request(node);
  int64_t low = htf_host_int(node, 4), high = htf_host_int(node, 5);
  if (!htf_has_failed(node) && low >= high) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Need minval < maxval, got %lld >= %lld", (long long)low,
             (long long)high);
  }
  if (is_empty(node, &asked)) {
    return;
  }
  htf_value range = htf_number_of(node, hr_scalar_u64((uint64_t)high - (uint64_t)low));
  htf_value bits = generate(node, asked.state, asked.count, bits_of(asked.dtype));
  htf_value inside = htf_cast(node, htf_call2(node, HR_FUNCTIONAL_REMAINDER, bits, range), asked.dtype);
  output_numbers(node, &asked, htf_call2(node, HR_FUNCTIONAL_ADD, inside, htf_number_of(node, hr_scalar_i64(low))));
}

/* All numbers of the dtype. */
void htf_random_full_int(htf_node *node) {
  request asked = read_request(node);
  if (!is_empty(node, &asked)) {
    htf_value bits = generate(node, asked.state, asked.count, bits_of(asked.dtype));
    output_numbers(node, &asked, htf_cast(node, bits, asked.dtype));
  }
}
