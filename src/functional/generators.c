/* generators.c: random bits of a generator whose state is a tensor: XLA's rng_bit_generator, to the bit.
 *
 * The state is u64[2] or u64[3]: the key, then the counter. Philox 4x32 with 10 rounds has a counter of 128 bits, whose
 * upper half is the third number, or else the key; its four words are neighbours in the result. Threefry 2x32 with 20
 * rounds has a counter of 64 bits; its two words are neighbours along the first even dim, or the longest one. Numbers
 * of 64 bits are two neighbouring words, narrow ones the lower bits of a word.
 *
 * Source of both: J. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011. */
#include "base/integer.h"
#include "functional/formula.h"

enum { SHAPE, DTYPE, ALGORITHM };

/* Of Threefry. */
typedef struct block {
  const hr_tensor *words[2]; /* u32 */
  const hr_tensor *keys[2];  /* u32, without dims */
} block;

static const hr_tensor *upper_half(hr__formula *f, const hr_tensor *x) {
  return hr__as_dtype(f, hr__binary(f, HR_OP_SHIFT_RIGHT, x, hr__integer(f, 32)), HR_DTYPE_U32);
}

/* ---- Threefry ---- */

static const hr_tensor *threefry_word(hr__formula *f, hr_op op, const hr_tensor *const *inputs) {
  const hr_tensor *words[4];
  for (int i = 0; i < 4; ++i) {
    words[i] = hr__as_dtype(f, inputs[i], HR_DTYPE_U32);
  }
  return hr__step(f, op, NULL, 4, words, HR_DTYPE_NONE);
}

static void threefry(hr__formula *f, block *b) {
  const hr_tensor *inputs[4] = {b->keys[0], b->keys[1], b->words[0], b->words[1]};
  b->words[0] = threefry_word(f, HR_OP_THREEFRY_FIRST, inputs);
  b->words[1] = threefry_word(f, HR_OP_THREEFRY_SECOND, inputs);
}

hr_status hr__emit_threefry(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *words[2] = {threefry_word(&f, HR_OP_THREEFRY_FIRST, c->inputs),
                               threefry_word(&f, HR_OP_THREEFRY_SECOND, c->inputs)};
  return hr__formula_finish(&f, 2, words);
}

/* ---- counters ---- */

typedef struct counter {
  const hr_tensor *key, *low, *high; /* u64 without dims; high NULL: the state has two numbers */
} counter;

static counter read_state(hr__formula *f) {
  const hr_tensor *state = f->call->inputs[0];
  counter c = {state, state, NULL};
  if (state->dtype != HR_DTYPE_U64 || state->rank != 1 || state->dims[0] < 2 || state->dims[0] > 3) {
    char dims[HR__SHAPE_TEXT];
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "the state is %s %s, expected u64 [2] or [3]",
                                      hr_dtype_name(state->dtype), hr__shape_text(state->rank, state->dims, dims)));
    return c;
  }
  c.key = hr__without(f, hr__part(f, state, 0, 0, 1), 1);
  c.low = hr__without(f, hr__part(f, state, 0, 1, 1), 1);
  c.high = state->dims[0] == 3 ? hr__without(f, hr__part(f, state, 0, 2, 1), 1) : NULL;
  return c;
}

/* The counter plus u64 `steps`; has_carry: it has an upper half. */
static counter moved(hr__formula *f, const counter *c, const hr_tensor *steps, bool has_carry) {
  counter next = {c->key, hr__plus(f, c->low, steps), c->high};
  if (has_carry) {
    const hr_tensor *carry = hr__as_dtype(f, hr__binary(f, HR_OP_LT, next.low, c->low), HR_DTYPE_U64);
    next.high = hr__plus(f, c->high, carry);
  }
  return next;
}

static const hr_tensor *steps_of(hr__formula *f, int64_t count, int rank, const int64_t *dims) {
  const hr_tensor *line = hr__as_dtype(f, hr__counted(f, count, 1, 0), HR_DTYPE_U64);
  return hr__formula_failed(f) ? line : hr__as_dims(f, line, rank, dims);
}

static block block_of(hr__formula *f, const counter *at) {
  return (block){{hr__as_dtype(f, at->low, HR_DTYPE_U32), upper_half(f, at->low)},
                 {hr__as_dtype(f, at->key, HR_DTYPE_U32), upper_half(f, at->key)}};
}

/* Tensors of the same dims one after the other along a new dim. */
static const hr_tensor *joined(hr__formula *f, int count, const hr_tensor *const *parts, int dim) {
  const hr_attribute axis = {.kind = HR_ATTRIBUTE_INT, .value = {.integer = dim}};
  return hr__function(f, HR_FUNCTIONAL_STACK, count, parts, 1, &axis);
}

/* Two words as a number of 64 bits. */
static const hr_tensor *as_wide(hr__formula *f, const hr_tensor *low, const hr_tensor *high) {
  const hr_tensor *upper = hr__binary(f, HR_OP_SHIFT_LEFT, hr__as_dtype(f, high, HR_DTYPE_U64), hr__integer(f, 32));
  return hr__binary(f, HR_OP_BIT_OR, hr__as_dtype(f, low, HR_DTYPE_U64), upper);
}

/* ---- results ---- */

typedef struct request {
  int rank;
  const int64_t *dims;
  int64_t count;
  bool is_wide; /* numbers of 64 bits */
} request;

static const hr_tensor *philox_bits(hr__formula *f, const request *r, const counter *c, int64_t *out_used) {
  const hr_tensor *high = c->high != NULL ? c->high : c->key;
  const hr_tensor *inputs[4] = {hr__counted(f, r->count, 1, 0), c->key, c->low, high};
  *out_used = hr_divide_up(r->is_wide ? 2 * r->count : r->count, 4);
  if (!hr__formula_failed(f)) {
    inputs[0] = hr__as_dims(f, inputs[0], r->rank, r->dims);
  }
  return hr__step(f, HR_OP_PHILOX_WORDS, NULL, 4, inputs, r->is_wide ? HR_DTYPE_U64 : HR_DTYPE_U32);
}

/* The first even dim, or else the first one of the largest size. */
static int split_dim(const request *r) {
  int longest = 0;
  for (int d = 0; d < r->rank; ++d) {
    if (r->dims[d] % 2 == 0) {
      return d;
    }
    longest = r->dims[d] > r->dims[longest] ? d : longest;
  }
  return longest;
}

static const hr_tensor *threefry_bits(hr__formula *f, const request *r, const counter *c, int64_t *out_used) {
  int64_t dims[HR_RANK_MAX] = {1}, count = r->count;
  int rank = r->rank > 0 ? r->rank : 1, dim = split_dim(r);
  for (int d = 0; d < r->rank; ++d) {
    dims[d] = r->dims[d];
  }
  if (!r->is_wide) {
    count = dims[dim] > 0 ? count / dims[dim] * hr_divide_up(dims[dim], 2) : 0;
    dims[dim] = hr_divide_up(dims[dim], 2);
  }
  *out_used = count;
  counter at = moved(f, c, steps_of(f, count, rank, dims), false);
  block b = block_of(f, &at);
  threefry(f, &b);
  if (r->is_wide) {
    return hr__as_dims(f, as_wide(f, b.words[0], b.words[1]), r->rank, r->dims);
  }
  const hr_tensor *both = joined(f, 2, b.words, dim + 1);
  dims[dim] *= 2;
  both = hr__part(f, hr__as_dims(f, both, rank, dims), dim, 0, r->rank > 0 ? r->dims[dim] : 1);
  return hr__as_dims(f, both, r->rank, r->dims);
}

static hr_status read_request(const hr__function_call *c, request *r, hr_dtype *out_dtype) {
  const hr_attribute *shape = &c->attributes[SHAPE];
  *out_dtype = hr__dtype_attribute(c, DTYPE);
  *out_dtype = *out_dtype != HR_DTYPE_NONE ? *out_dtype : HR_DTYPE_U32;
  *r = (request){.rank = shape->count, .dims = shape->value.ints};
  r->is_wide = hr_dtype_size(*out_dtype) == 8;
  for (int d = 0; d < r->rank; ++d) {
    if (r->dims[d] < 0) {
      return HR__CALL_FAIL(c, "dim %d is %lld, expected at least 0", d, (long long)r->dims[d]);
    }
  }
  if (!hr_dtype_is_integer(*out_dtype) || *out_dtype == HR_DTYPE_BOOL) {
    return HR__CALL_FAIL(c, "dtype %s, expected an integer", hr_dtype_name(*out_dtype));
  }
  return hr__count_elements(r->rank, r->dims, &r->count) && r->count <= INT64_MAX / 4
             ? HR_OK
             : HR__CALL_FAIL(c, "the result is too large");
}

/* The state behind a number of steps. */
static const hr_tensor *next_state(hr__formula *f, const counter *c, int64_t used) {
  bool has_high = c->high != NULL;
  counter next = moved(f, c, hr__number(f, hr_scalar_u64((uint64_t)used)), has_high);
  const hr_tensor *parts[3] = {c->key, next.low, next.high};
  return joined(f, has_high ? 3 : 2, parts, 0);
}

hr_status hr__emit_generator_bits(const hr__function_call *c) {
  static const char *const words[2] = {"philox", "threefry"};
  int algorithm;
  request r;
  hr_dtype dtype;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, ALGORITHM, 2, words, &algorithm));
  HR_RETURN_IF_ERROR(read_request(c, &r, &dtype));
  hr__formula f;
  hr__formula_begin(&f, c);
  counter from = read_state(&f);
  int64_t used = 0;
  const hr_tensor *bits = algorithm == 0 ? philox_bits(&f, &r, &from, &used) : threefry_bits(&f, &r, &from, &used);
  const hr_tensor *results[2] = {next_state(&f, &from, used), hr__as_dtype(&f, bits, dtype)};
  return hr__formula_finish(&f, 2, results);
}
