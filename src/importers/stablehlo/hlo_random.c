/* hlo_random.c: random numbers of a state that the program has (generator_bits).
 *
 * The default algorithm is Philox, as on XLA's CPU backend. Floats are the bits of integers of their size.
 */
#include <stdio.h>

#include "core/ir/dtype.h"
#include "importers/stablehlo/hlo.h"

static hr_dtype unsigned_of(hr_dtype dtype) {
  static const hr_dtype integers[] = {[1] = HR_DTYPE_U8, [2] = HR_DTYPE_U16, [4] = HR_DTYPE_U32, [8] = HR_DTYPE_U64};
  size_t size = hr_dtype_size(dtype);
  return size < sizeof integers / sizeof *integers ? integers[size] : HR_DTYPE_NONE;
}

void hr__hlo_lower_rng_bit_generator(hr__hlo *hlo) {
  static const char *const algorithms[] = {"philox", "threefry", "philox"};
  int64_t algorithm = hr__hlo_int(hlo, "rng_algorithm", 0);
  hr__vhlo_type result = hr__hlo_result_type(hlo, 1);
  hr_dtype integer = unsigned_of(result.dtype);
  if (!hr__hlo_expect(hlo, 1, 2, 0)) {
    return;
  }
  if (algorithm < 0 || algorithm > 2 || integer == HR_DTYPE_NONE) {
    HR__HLO_REFUSE(hlo, "algorithm %lld for %s", (long long)algorithm, hr_dtype_name(result.dtype));
    return;
  }
  hr_value state = ADD(hlo, GENERATOR_BITS, IN(hr__hlo_input(hlo, 0)),
                       WITH(hr__with_ints("shape", result.rank, result.dims), hr__with_dtype("dtype", integer),
                            hr__with_text("algorithm", algorithms[algorithm])));
  hr__hlo_set(hlo, 0, state);
  hr__hlo_set(hlo, 1, state != 0 ? ADD(hlo, BITCAST, IN(state + 1), WITH(hr__with_dtype("dtype", result.dtype))) : 0);
}

/* Of the package headrace-jax: JAX's primitive threefry2x32. */
void hr__hlo_lower_threefry(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 4, 2, 0)) {
    hr_value block =
        CALL(hlo, THREEFRY, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1), hr__hlo_input(hlo, 2), hr__hlo_input(hlo, 3));
    hr__hlo_set(hlo, 0, block);
    hr__hlo_set(hlo, 1, block != 0 ? block + 1 : 0);
  }
}

/* ---- rng: numbers of a state that the graph keeps from run to run ---- */

/* Random unsigned integers. Each operation of the graph has a key of its own. */
static hr_value kept_bits(hr__hlo *hlo, hr_dtype dtype, const hr__vhlo_type *result) {
  const uint64_t first[3] = {0x9E3779B97F4A7C15u + (uint64_t)hr_graph_variable_count(hlo->graph), 0, 0};
  const hr_type type = {.dtype = HR_DTYPE_U64, .rank = 1, .dims = {3}};
  char name[40];
  snprintf(name, sizeof name, "rng%d", hr_graph_variable_count(hlo->graph));
  hr_value state = hr_graph_variable(hlo->graph, name, &type, first);
  hr_value next = ADD(hlo, GENERATOR_BITS, IN(state),
                      WITH(hr__with_ints("shape", result->rank, result->dims), hr__with_dtype("dtype", dtype)));
  hr_graph_assign(hlo->graph, state, next);
  return next != 0 ? next + 1 : 0;
}

/* In [0, 1), in f64 for f64 and else in f32: bits of the mantissa of numbers in [1, 2), less 1. */
static hr_value fractions(hr__hlo *hlo, const hr__vhlo_type *result) {
  bool is_wide = result->dtype == HR_DTYPE_F64;
  hr_dtype integer = is_wide ? HR_DTYPE_U64 : HR_DTYPE_U32;
  hr_value bits = CALL(hlo, BITWISE_RIGHT_SHIFT, kept_bits(hlo, integer, result), hr__hlo_whole(hlo, is_wide ? 12 : 9));
  bits = CALL(hlo, BITWISE_OR, bits, hr__hlo_whole(hlo, is_wide ? 0x3ff0000000000000 : 0x3f800000));
  hr_value number = ADD(hlo, BITCAST, IN(bits), WITH(hr__with_dtype("dtype", is_wide ? HR_DTYPE_F64 : HR_DTYPE_F32)));
  return CALL(hlo, SUBTRACT, number, hr__hlo_number(hlo, 1));
}

static hr_value of_interval(hr__hlo *hlo, const hr__vhlo_type *result) {
  hr_value low = hr__hlo_input(hlo, 0), width = CALL(hlo, SUBTRACT, hr__hlo_input(hlo, 1), low);
  hr_dtype integer = unsigned_of(result->dtype);
  if (hr_dtype_is_integer(result->dtype)) {
    hr_value bits = kept_bits(hlo, integer, result);
    width = ADD(hlo, BITCAST, IN(width), WITH(hr__with_dtype("dtype", integer)));
    bits = ADD(hlo, BITCAST, IN(CALL(hlo, REMAINDER, bits, width)), WITH(hr__with_dtype("dtype", result->dtype)));
    return CALL(hlo, ADD, low, bits);
  }
  return CALL(hlo, ADD, low, CALL(hlo, MULTIPLY, hr__hlo_cast(hlo, fractions(hlo, result), result->dtype), width));
}

/* sqrt(2) erfinv(u) of u in (-1, 1): the first of 2^23 or more intervals has its middle. */
static hr_value of_normal(hr__hlo *hlo, const hr__vhlo_type *result) {
  double step = result->dtype == HR_DTYPE_F64 ? 0x1p-52 : 0x1p-23;
  hr_value u = CALL(hlo, MULTIPLY, fractions(hlo, result), hr__hlo_number(hlo, 2));
  u = CALL(hlo, SUBTRACT, u, hr__hlo_number(hlo, 1 - step));
  hr_value number = CALL(hlo, MULTIPLY, CALL(hlo, ERFINV, u), hr__hlo_number(hlo, 1.4142135623730951));
  number = CALL(hlo, MULTIPLY, hr__hlo_cast(hlo, number, result->dtype), hr__hlo_input(hlo, 1));
  return CALL(hlo, ADD, hr__hlo_input(hlo, 0), number);
}

void hr__hlo_lower_rng(hr__hlo *hlo) {
  enum { UNIFORM = 1, NORMAL };
  int64_t distribution = hr__hlo_int(hlo, "rng_distribution", 0);
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  bool is_integer = hr_dtype_is_integer(result.dtype) && result.dtype != HR_DTYPE_BOOL;
  bool is_number = is_integer || (result.dtype >= HR_DTYPE_F16 && !hr_dtype_is_complex(result.dtype));
  if (!hr__hlo_expect(hlo, 3, 1, 0)) {
    return;
  }
  if (!is_number || (distribution != UNIFORM && (distribution != NORMAL || is_integer))) {
    HR__HLO_REFUSE(hlo, "distribution %lld of %s", (long long)distribution, hr_dtype_name(result.dtype));
    return;
  }
  hr__hlo_set(hlo, 0, distribution == UNIFORM ? of_interval(hlo, &result) : of_normal(hlo, &result));
}
