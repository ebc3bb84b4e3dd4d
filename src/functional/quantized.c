/* quantized.c: quantised matrices, and products with them. */
#include "functional/quantized.h"

static const char *const modes[HR__MODE_COUNT] = {"affine", "mxfp4", "mxfp8", "nvfp4"};

/* ---- attributes ---- */

static hr_status check_affine(const hr__function_call *c, const hr__packing *p) {
  if (p->group != 32 && p->group != 64 && p->group != 128) {
    return HR__CALL_FAIL(c, "group_size is %d, expected 32, 64 or 128", p->group);
  }
  return p->bits >= 2 && p->bits <= 8 && p->bits != 7
             ? HR_OK
             : HR__CALL_FAIL(c, "bits is %d, expected 2, 3, 4, 5, 6 or 8", p->bits);
}

static int small_attribute(const hr__function_call *c, int index, int without) {
  int64_t value = hr__int_attribute(c, index);
  return value == 0 ? without : value > 0 && value <= INT32_MAX ? (int)value : -1;
}

hr_status hr__packing_attributes(const hr__function_call *c, int first, hr__packing *out) {
  static const int groups[HR__MODE_COUNT] = {64, 32, 32, 16}, bits[HR__MODE_COUNT] = {4, 4, 8, 4};
  int mode;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, first + 2, HR__MODE_COUNT, modes, &mode));
  *out = (hr__packing){.mode = (hr__quantized_mode)mode,
                       .group = small_attribute(c, first, groups[mode]),
                       .bits = small_attribute(c, first + 1, bits[mode])};
  if (mode == HR__MODE_AFFINE) {
    return check_affine(c, out);
  }
  if (out->group != groups[mode]) {
    return HR__CALL_FAIL(c, "group_size is %d, expected %d in mode %s", out->group, groups[mode], modes[mode]);
  }
  return out->bits == bits[mode]
             ? HR_OK
             : HR__CALL_FAIL(c, "bits is %d, expected %d in mode %s", out->bits, bits[mode], modes[mode]);
}

/* ---- views ---- */

const hr_tensor *hr__reinterpreted(hr__formula *f, const hr_tensor *x, hr_dtype dtype) {
  hr_tensor *view = hr__view(f, x);
  if (view == NULL) {
    return x;
  }
  int64_t from = (int64_t)hr_dtype_size(x->dtype), to = (int64_t)hr_dtype_size(dtype), stride = 1;
  view->dtype = dtype, view->offset = x->offset * from / to;
  view->dims[x->rank - 1] = x->dims[x->rank - 1] * from / to;
  for (int d = view->rank - 1; d >= 0; --d) {
    view->strides[d] = stride;
    stride *= view->dims[d];
  }
  return view;
}

/* With the last `count` dims in place of x's last `from` ones. */
static const hr_tensor *with_last(hr__formula *f, const hr_tensor *x, int from, int count, const int64_t *last) {
  int64_t dims[HR_RANK_MAX];
  int rank = x->rank - from + count;
  if (hr__formula_failed(f)) {
    return x;
  }
  if (rank > HR_RANK_MAX) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "%d dims, expected at most %d", x->rank, HR_RANK_MAX - count + from));
    return x;
  }
  hr__copy_dims(x->rank, x->dims, dims);
  memcpy(dims + x->rank - from, last, (size_t)count * sizeof *dims);
  return hr__as_dims(f, x, rank, dims);
}

/* The last dim as `count` of each, in order. */
static const hr_tensor *divided(hr__formula *f, const hr_tensor *x, int64_t count) {
  const int64_t last[] = {x->rank > 0 ? x->dims[x->rank - 1] / count : 0, count};
  return with_last(f, x, 1, 2, last);
}

/* The last two dims as one. */
static const hr_tensor *joined(hr__formula *f, const hr_tensor *x) {
  const int64_t last[] = {x->rank > 1 ? x->dims[x->rank - 2] * x->dims[x->rank - 1] : 0};
  return with_last(f, x, 2, 1, last);
}

const hr_tensor *hr__in_groups(hr__formula *f, const hr_tensor *x, int64_t group) {
  return divided(f, x, group);
}

const hr_tensor *hr__without_groups(hr__formula *f, const hr_tensor *x) {
  return joined(f, x);
}

/* ---- packing ---- */

/* Numbers are packed in units: words of 32 bits, or the least bytes that hold whole numbers. */
typedef struct unit {
  int64_t count;  /* of numbers */
  int64_t bytes;  /* 4: one word */
  hr_dtype dtype; /* of arithmetic */
} unit;

static unit unit_of(int bits) {
  return 32 % bits == 0 ? (unit){32 / bits, 4, HR_DTYPE_U32}
         : bits == 6    ? (unit){4, 3, HR_DTYPE_U32}
                        : (unit){8, bits, bits == 5 ? HR_DTYPE_I64 : HR_DTYPE_U32};
}

/* 0, step, 2 step, ... : `count` of them. */
static const hr_tensor *steps(hr__formula *f, int64_t count, int64_t step, hr_dtype dtype) {
  const hr_attribute ends[4] = {{.kind = HR_ATTRIBUTE_NONE},
                                {.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr_scalar_i64(count * step)}},
                                {.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr_scalar_i64(step)}},
                                {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = dtype}}};
  return hr__function(f, HR_FUNCTIONAL_ARANGE, 0, NULL, 4, ends);
}

static const hr_tensor *last_sum(hr__formula *f, const hr_tensor *x, hr_dtype dtype) {
  return hr__along_as(f, HR_OP_SUM, x, x->rank > 0 ? INT64_C(1) << (x->rank - 1) : 0, dtype);
}

static const hr_tensor *low_bits(hr__formula *f, const hr_tensor *x, int bits) {
  return hr__binary(f, HR_OP_BIT_AND, x, hr__integer(f, (INT64_C(1) << bits) - 1));
}

const hr_tensor *hr__pack(hr__formula *f, const hr_tensor *numbers, int bits) {
  unit u = unit_of(bits);
  const hr_tensor *parts = divided(f, hr__as_dtype(f, numbers, u.dtype), u.count);
  parts = hr__binary(f, HR_OP_SHIFT_LEFT, parts, steps(f, u.count, bits, u.dtype));
  const hr_tensor *units = last_sum(f, parts, u.dtype); /* [.., units, 1] */
  if (u.bytes == 4) {
    return joined(f, units);
  }
  const hr_tensor *bytes = hr__binary(f, HR_OP_SHIFT_RIGHT, units, steps(f, u.bytes, 8, u.dtype));
  bytes = hr__as_dtype(f, low_bits(f, bytes, 8), HR_DTYPE_U8);
  return hr__reinterpreted(f, joined(f, bytes), HR_DTYPE_U32);
}

/* [.., K * bits / 8] bytes as numbers of `u.bytes` each: [.., units, 1]. */
static const hr_tensor *read_units(hr__formula *f, const hr_tensor *bytes, unit u) {
  const hr_tensor *parts = divided(f, bytes, u.bytes), *units = NULL;
  for (int64_t i = 0; i < u.bytes && !hr__formula_failed(f); ++i) {
    const hr_tensor *part = hr__as_dtype(f, hr__part(f, parts, parts->rank - 1, i, 1), u.dtype);
    part = i > 0 ? hr__binary(f, HR_OP_SHIFT_LEFT, part, hr__integer(f, 8 * i)) : part;
    units = i > 0 ? hr__binary(f, HR_OP_BIT_OR, units, part) : part;
  }
  return units != NULL ? units : parts;
}

const hr_tensor *hr__unpack(hr__formula *f, const hr_tensor *words, int bits) {
  unit u = unit_of(bits);
  const hr_tensor *units = u.bytes == 4 ? hr__with_dim(f, words, words->rank)
                                        : read_units(f, hr__reinterpreted(f, hr__dense(f, words), HR_DTYPE_U8), u);
  units = hr__binary(f, HR_OP_SHIFT_RIGHT, units, steps(f, u.count, bits, u.dtype));
  return joined(f, low_bits(f, units, bits));
}

/* ---- affine numbers ---- */

/* The end of each group's range that is farther from 0 becomes a multiple of the scale, so that 0 is one, too. */
static void affine_scales(hr__formula *f, const hr_tensor *x, int64_t most, const hr_tensor **scale,
                          const hr_tensor **bias) {
  int64_t mask = x->rank > 0 ? INT64_C(1) << (x->rank - 1) : 0;
  const hr_tensor *high = hr__along(f, HR_OP_AMAX, x, mask), *low = hr__along(f, HR_OP_AMIN, x, mask);
  const hr_tensor *is_low = hr__binary(f, HR_OP_GT, hr__unary(f, HR_OP_ABS, low), hr__unary(f, HR_OP_ABS, high));
  const hr_tensor *step = hr__binary(f, HR_OP_DIV, hr__binary(f, HR_OP_SUB, high, low), hr__integer(f, most));
  step = hr__binary(f, HR_OP_MAXIMUM, step, hr__real(f, 1e-7));
  step = hr__ternary(f, HR_OP_WHERE, is_low, step, hr__unary(f, HR_OP_NEG, step));
  const hr_tensor *edge = hr__ternary(f, HR_OP_WHERE, is_low, low, high);
  const hr_tensor *count = hr__unary(f, HR_OP_ROUND, hr__binary(f, HR_OP_DIV, edge, step));
  const hr_tensor *is_far = hr__binary(f, HR_OP_NE, count, hr__integer(f, 0));
  *scale = hr__ternary(f, HR_OP_WHERE, is_far, hr__binary(f, HR_OP_DIV, edge, count), step);
  *bias = hr__ternary(f, HR_OP_WHERE, is_far, edge, hr__integer(f, 0));
}

static void quantize_affine(hr__formula *f, hr__packing p, const hr_tensor *values, const hr_tensor *results[3]) {
  hr_dtype dtype = values->dtype;
  int64_t most = (INT64_C(1) << p.bits) - 1;
  const hr_tensor *x = hr__as_dtype(f, values, dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32), *scale, *bias;
  affine_scales(f, x, most, &scale, &bias);
  const hr_tensor *q = hr__binary(f, HR_OP_DIV, hr__binary(f, HR_OP_SUB, x, bias), scale);
  q = hr__binary(f, HR_OP_FMAX, hr__unary(f, HR_OP_ROUND, q), hr__integer(f, 0)); /* 0 for NaN */
  q = hr__binary(f, HR_OP_MINIMUM, q, hr__integer(f, most));
  results[0] = hr__pack(f, joined(f, q), p.bits);
  results[1] = joined(f, hr__as_dtype(f, scale, dtype));
  results[2] = joined(f, hr__as_dtype(f, bias, dtype));
}

static const hr_tensor *dequantize_affine(hr__formula *f, const hr__packed *w) {
  const hr_tensor *numbers = hr__in_groups(f, hr__unpack(f, w->words, w->packing.bits), w->packing.group);
  numbers = hr__as_dtype(f, numbers, w->scales->dtype);
  const hr_tensor *y = hr__binary(f, HR_OP_MUL, numbers, hr__with_dim(f, w->scales, w->scales->rank));
  return hr__binary(f, HR_OP_ADD, y, hr__with_dim(f, w->biases, w->biases->rank));
}

/* ---- any mode ---- */

static hr_status check_global(const hr__function_call *c, const hr__packing *p, const hr_tensor *global) {
  if (global == NULL) {
    return HR_OK;
  }
  if (p->mode != HR__MODE_NVFP4) {
    return HR__CALL_FAIL(c, "a global scale in mode %s, expected mode nvfp4", modes[p->mode]);
  }
  char dims[HR__SHAPE_TEXT];
  return global->dtype == HR_DTYPE_F32 && hr_tensor_count(global) == 1
             ? HR_OK
             : HR__CALL_FAIL(c, "the global scale is %s %s, expected one f32", hr_dtype_name(global->dtype),
                             hr__shape_text(global->rank, global->dims, dims));
}

static bool is_float(hr_dtype dtype) {
  return hr_dtype_is_real(dtype) && !hr_dtype_is_float8(dtype);
}

static hr_status check_values(const hr__function_call *c, const hr__packing *p, const hr_tensor *x) {
  char dims[HR__SHAPE_TEXT];
  if (!is_float(x->dtype)) {
    return HR__CALL_FAIL(c, "w has dtype %s, expected f16, bf16, f32 or f64", hr_dtype_name(x->dtype));
  }
  if (x->rank < 1 || x->rank == HR_RANK_MAX || x->dims[x->rank - 1] % p->group != 0) {
    return HR__CALL_FAIL(c, "w has dims %s, expected 1 to %d, the last one a multiple of group_size %d",
                         hr__shape_text(x->rank, x->dims, dims), HR_RANK_MAX - 1, p->group);
  }
  return HR_OK;
}

/* Scales or biases: as the words, but for the last dim. */
static hr_status check_shape(const hr__function_call *c, const hr__packed *w, const hr_tensor *x, const char *name) {
  int64_t dims[HR_RANK_MAX];
  char have[HR__SHAPE_TEXT], want[HR__SHAPE_TEXT];
  int last = w->words->rank - 1;
  hr__copy_dims(last + 1, w->words->dims, dims);
  dims[last] = dims[last] * 32 / w->packing.bits / w->packing.group;
  bool fits = x->rank == last + 1;
  for (int d = 0; fits && d <= last; ++d) {
    fits = x->dims[d] == dims[d];
  }
  return fits ? HR_OK
              : HR__CALL_FAIL(c, "%s have dims %s, expected %s for w %s, %d bits and group_size %d", name,
                              hr__shape_text(x->rank, x->dims, have), hr__shape_text(last + 1, dims, want),
                              hr__shape_text(last + 1, w->words->dims, (char[HR__SHAPE_TEXT]){0}), w->packing.bits,
                              w->packing.group);
}

static hr_status check_biases(const hr__function_call *c, const hr__packed *w) {
  if (w->packing.mode != HR__MODE_AFFINE) {
    return w->scales->dtype != HR_DTYPE_U8 ? HR__CALL_FAIL(c, "scales have dtype %s, expected u8 in mode %s",
                                                           hr_dtype_name(w->scales->dtype), modes[w->packing.mode])
           : w->biases != NULL ? HR__CALL_FAIL(c, "biases in mode %s, which has none", modes[w->packing.mode])
                               : HR_OK;
  }
  if (w->biases == NULL) {
    return HR__CALL_FAIL(c, "there are no biases, expected them in mode affine");
  }
  if (!is_float(w->scales->dtype) || !is_float(w->biases->dtype)) {
    return HR__CALL_FAIL(c, "scales have dtype %s and biases %s, expected f16, bf16, f32 or f64",
                         hr_dtype_name(w->scales->dtype), hr_dtype_name(w->biases->dtype));
  }
  return check_shape(c, w, w->biases, "biases");
}

static hr_status check_packed(const hr__function_call *c, const hr__packed *w) {
  const hr_tensor *words = w->words;
  char dims[HR__SHAPE_TEXT];
  if (words->dtype != HR_DTYPE_U32) {
    return HR__CALL_FAIL(c, "w has dtype %s, expected u32", hr_dtype_name(words->dtype));
  }
  int64_t group_bits = (int64_t)w->packing.group * w->packing.bits;
  if (words->rank < 1 || words->rank == HR_RANK_MAX || words->dims[words->rank - 1] * 32 % group_bits != 0) {
    return HR__CALL_FAIL(c, "w has dims %s, expected 1 to %d, the last one a multiple of %lld",
                         hr__shape_text(words->rank, words->dims, dims), HR_RANK_MAX - 1, (long long)group_bits / 32);
  }
  HR_RETURN_IF_ERROR(check_shape(c, w, w->scales, "scales"));
  HR_RETURN_IF_ERROR(check_biases(c, w));
  return check_global(c, &w->packing, w->global);
}

/* The matrices [.., K], after check_packed. */
static const hr_tensor *dequantized(hr__formula *f, const hr__packed *w, hr_dtype dtype) {
  const hr_tensor *y =
      w->packing.mode == HR__MODE_AFFINE ? dequantize_affine(f, w) : hr__dequantize_floats(f, w, dtype);
  return hr__as_dtype(f, hr__without_groups(f, y), dtype);
}

static int quantized(hr__formula *f, hr__packing p, const hr_tensor *x, const hr_tensor *global,
                     const hr_tensor *results[3]) {
  const hr_tensor *values = hr__in_groups(f, x, p.group);
  if (p.mode == HR__MODE_AFFINE) {
    quantize_affine(f, p, values, results);
    return 3;
  }
  hr__quantize_floats(f, p, values, global, &results[0], &results[1]);
  return 2;
}

/* ---- functions ---- */

hr_status hr__count_quantized(const hr__function_call *c, int *out_count) {
  hr__packing p;
  HR_RETURN_IF_ERROR(hr__packing_attributes(c, 0, &p));
  *out_count = p.mode == HR__MODE_AFFINE ? 3 : 2;
  return HR_OK;
}

hr_status hr__emit_quantize(const hr__function_call *c) {
  hr__packing p;
  HR_RETURN_IF_ERROR(hr__packing_attributes(c, 0, &p));
  HR_RETURN_IF_ERROR(check_values(c, &p, c->inputs[0]));
  HR_RETURN_IF_ERROR(check_global(c, &p, c->inputs[1]));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *results[3];
  int count = quantized(&f, p, c->inputs[0], c->inputs[1], results);
  return hr__formula_finish(&f, count, results);
}

/* Of dequantised numbers: the attribute, or that of scales and biases, or bf16. */
static hr_status value_dtype(const hr__function_call *c, const hr__packed *w, int attribute, hr_dtype *out) {
  hr_dtype dtype = hr__dtype_attribute(c, attribute);
  if (dtype != HR_DTYPE_NONE && !is_float(dtype)) {
    return HR__CALL_FAIL(c, "dtype is %s, expected f16, bf16, f32 or f64", hr_dtype_name(dtype));
  }
  hr_dtype own =
      w->packing.mode == HR__MODE_AFFINE ? hr_dtype_promote(w->scales->dtype, w->biases->dtype) : HR_DTYPE_BF16;
  *out = dtype != HR_DTYPE_NONE ? dtype : own;
  return HR_OK;
}

hr_status hr__emit_dequantize(const hr__function_call *c) {
  hr__packed w = {.words = c->inputs[0], .scales = c->inputs[1], .biases = c->inputs[2], .global = c->inputs[3]};
  hr_dtype dtype = HR_DTYPE_NONE;
  HR_RETURN_IF_ERROR(hr__packing_attributes(c, 0, &w.packing));
  HR_RETURN_IF_ERROR(check_packed(c, &w));
  HR_RETURN_IF_ERROR(value_dtype(c, &w, 3, &dtype));
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, dequantized(&f, &w, dtype));
}

hr_status hr__emit_to_fp8(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  if (!is_float(x->dtype)) {
    return HR__CALL_FAIL(c, "x has dtype %s, expected f16, bf16, f32 or f64", hr_dtype_name(x->dtype));
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  hr_tensor *bytes = hr__view(&f, hr__as_dtype(&f, x, HR_DTYPE_F8E4M3FN));
  if (bytes != NULL) {
    bytes->dtype = HR_DTYPE_U8;
  }
  return hr__formula_end(&f, bytes);
}

hr_status hr__emit_from_fp8(const hr__function_call *c) {
  hr_dtype dtype = hr__dtype_attribute(c, 0);
  dtype = dtype != HR_DTYPE_NONE ? dtype : HR_DTYPE_BF16;
  if (c->inputs[0]->dtype != HR_DTYPE_U8) {
    return HR__CALL_FAIL(c, "x has dtype %s, expected u8", hr_dtype_name(c->inputs[0]->dtype));
  }
  if (!is_float(dtype)) {
    return HR__CALL_FAIL(c, "dtype is %s, expected f16, bf16, f32 or f64", hr_dtype_name(dtype));
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  hr_tensor *numbers = hr__view(&f, c->inputs[0]);
  if (numbers != NULL) {
    numbers->dtype = HR_DTYPE_F8E4M3FN;
  }
  return hr__formula_end(&f, hr__as_dtype(&f, numbers, dtype));
}

/* ---- products ---- */

static const hr_tensor *product(hr__formula *f, const hr_tensor *x, const hr_tensor *y) {
  const hr_tensor *both[2] = {x, y};
  return hr__function(f, HR_FUNCTIONAL_MATMUL, 2, both, 0, NULL);
}

/* x [.., K] times matrices [.., N, K], transposed, or [.., K, N]. */
static hr_status check_inner(const hr__function_call *c, const hr_tensor *x, const hr__packed *w, bool transpose) {
  const hr_tensor *words = w->words;
  char dims[2][HR__SHAPE_TEXT];
  if (x->rank < 1 || words->rank < 2) {
    return HR__CALL_FAIL(c, "x has dims %s and w %s, expected at least 1 and 2",
                         hr__shape_text(x->rank, x->dims, dims[0]), hr__shape_text(words->rank, words->dims, dims[1]));
  }
  int64_t inner = transpose ? words->dims[words->rank - 1] * 32 / w->packing.bits : words->dims[words->rank - 2];
  return x->dims[x->rank - 1] == inner
             ? HR_OK
             : HR__CALL_FAIL(c, "x has dims %s, expected %lld as the last one for w %s of %d bits, transpose %s",
                             hr__shape_text(x->rank, x->dims, dims[0]), (long long)inner,
                             hr__shape_text(words->rank, words->dims, dims[1]), w->packing.bits,
                             transpose ? "true" : "false");
}

/* Of a product: x's dtype, promoted with that of affine scales. */
static hr_status product_dtype(const hr__function_call *c, const hr_tensor *x, const hr__packed *w, hr_dtype *out) {
  *out = x->dtype;
  if (w->packing.mode == HR__MODE_AFFINE) {
    *out = hr_dtype_promote(x->dtype, hr_dtype_promote(w->scales->dtype, w->biases->dtype));
  }
  return is_float(*out) ? HR_OK
                        : HR__CALL_FAIL(c, "x has dtype %s, expected f16, bf16, f32 or f64", hr_dtype_name(x->dtype));
}

static hr_status read_operands(const hr__function_call *c, int first, hr__packed *w, hr_dtype *dtype) {
  *w = (hr__packed){.words = c->inputs[1], .scales = c->inputs[2], .biases = c->inputs[3]};
  HR_RETURN_IF_ERROR(hr__packing_attributes(c, first, &w->packing));
  HR_RETURN_IF_ERROR(check_packed(c, w));
  HR_RETURN_IF_ERROR(check_inner(c, c->inputs[0], w, hr__int_attribute(c, 0) != 0));
  return product_dtype(c, c->inputs[0], w, dtype);
}

/* The factor on the right, in this dtype. */
static const hr_tensor *right_factor(hr__formula *f, const hr__packed *packed, bool transpose, hr_dtype dtype) {
  hr__packed w = *packed;
  if (w.packing.mode == HR__MODE_AFFINE) {
    w.scales = hr__as_dtype(f, w.scales, dtype), w.biases = hr__as_dtype(f, w.biases, dtype);
  }
  const hr_tensor *y = dequantized(f, &w, dtype);
  return transpose && !hr__formula_failed(f) ? hr__moved(f, y, y->rank - 1, y->rank - 2) : y;
}

/* True if a row of ops.def reads the packed numbers: x has rows, or one matrix, or a broadcast one, for each of w's. */
static bool has_row(const hr__packed *w, const hr_tensor *x) {
  int more = w->words->rank - x->rank;
  bool is = more >= 0;
  for (int d = 0; is && d < x->rank - 2; ++d) {
    is = x->dims[d] == 1 || x->dims[d] == w->words->dims[more + d];
  }
  return is && x->rank >= 2 && hr_tensor_count(x) > 0 && hr_tensor_count(w->words) > 0;
}

/* Scales of u8 as the floats that they are. */
static const hr_tensor *row_scales(hr__formula *f, const hr__packed *w) {
  hr_tensor *view = w->packing.mode != HR__MODE_AFFINE && !hr__formula_failed(f) ? hr__view(f, w->scales) : NULL;
  if (view == NULL) {
    return w->scales;
  }
  view->dtype = w->packing.mode == HR__MODE_NVFP4 ? HR_DTYPE_F8E4M3FN : HR_DTYPE_F8E8M0FNU;
  return view;
}

static const hr_tensor *row_product(hr__formula *f, const hr_tensor *x, const hr__packed *w, bool transpose) {
  const int64_t ints[4] = {w->packing.bits, w->packing.group, !transpose, w->packing.mode != HR__MODE_AFFINE};
  hr_attrs attrs = {.int_count = 4, .ints = ints};
  const hr_tensor *inputs[4] = {x, w->words, row_scales(f, w), w->biases};
  return hr__step(f, HR_OP_QUANTIZED_MATMUL, &attrs, 4, inputs, HR_DTYPE_NONE);
}

static int64_t matrix_count(const hr_tensor *x) {
  int64_t count = 1;
  for (int d = 0; d < x->rank - 2; ++d) {
    count *= x->dims[d];
  }
  return count;
}

/* [.., M, N] as [B, M, N]; NULL stays NULL. */
static const hr_tensor *as_batch(hr__formula *f, const hr_tensor *x) {
  if (x == NULL || hr__formula_failed(f)) {
    return x;
  }
  const int64_t dims[3] = {matrix_count(x), x->dims[x->rank - 2], x->dims[x->rank - 1]};
  return hr__as_dims(f, x, 3, dims);
}

/* The product of x, broadcast to w's matrices, with each of these. */
static const hr_tensor *batch_product(hr__formula *f, const hr_tensor *x, const hr__packed *w, bool transpose) {
  int rank = w->words->rank;
  int64_t dims[HR_RANK_MAX];
  if (hr__formula_failed(f)) {
    return x;
  }
  hr__copy_dims(rank, w->words->dims, dims);
  int64_t columns = transpose ? dims[rank - 2] : dims[rank - 1] * 32 / w->packing.bits;
  dims[rank - 2] = x->dims[x->rank - 2], dims[rank - 1] = x->dims[x->rank - 1];
  hr__packed each = {.packing = w->packing, .words = as_batch(f, w->words), .scales = as_batch(f, w->scales)};
  each.biases = as_batch(f, w->biases);
  const hr_tensor *y = row_product(f, as_batch(f, hr__spread(f, x, rank, dims)), &each, transpose);
  dims[rank - 1] = columns;
  return hr__as_dims(f, y, rank, dims);
}

/* [.., K] as [M, K]: all rows are one product, whose sums have one order. */
static const hr_tensor *as_rows(hr__formula *f, const hr_tensor *x) {
  int64_t both[2] = {1, x->dims[x->rank - 1]};
  for (int d = 0; d < x->rank - 1; ++d) {
    both[0] *= x->dims[d];
  }
  return hr__as_dims(f, x, 2, both);
}

/* With x's dims in place of the rows. */
static const hr_tensor *with_rows_of(hr__formula *f, const hr_tensor *y, const hr_tensor *x) {
  int64_t dims[HR_RANK_MAX];
  if (hr__formula_failed(f)) {
    return y;
  }
  hr__copy_dims(x->rank, x->dims, dims);
  dims[x->rank - 1] = y->dims[1];
  return hr__as_dims(f, y, x->rank, dims);
}

hr_status hr__emit_quantized_matmul(const hr__function_call *c) {
  hr__packed w;
  hr_dtype dtype;
  bool transpose = hr__int_attribute(c, 0) != 0;
  HR_RETURN_IF_ERROR(read_operands(c, 1, &w, &dtype));
  hr__formula f;
  hr__formula_begin(&f, c);
  bool has_rows = w.words->rank == 2;
  const hr_tensor *x = hr__as_dtype(&f, has_rows ? as_rows(&f, c->inputs[0]) : c->inputs[0], dtype);
  const hr_tensor *y = x;
  if (!hr__formula_failed(&f)) {
    y = !has_row(&w, x) ? product(&f, x, right_factor(&f, &w, transpose, dtype))
        : has_rows      ? row_product(&f, x, &w, transpose)
                        : batch_product(&f, x, &w, transpose);
  }
  return hr__formula_end(&f, has_rows ? with_rows_of(&f, y, c->inputs[0]) : y);
}

/* Matrices [.., M, N] at flat indices of the dims in front; without indices x itself. */
static const hr_tensor *taken(hr__formula *f, const hr_tensor *x, const hr_tensor *at) {
  if (at == NULL || x == NULL || hr__formula_failed(f)) {
    return x;
  }
  const hr_tensor *both[2] = {as_batch(f, x), at};
  return hr__function(f, HR_FUNCTIONAL_TAKE, 2, both, 0, NULL);
}

static hr_status check_matrices(const hr__function_call *c, int i) {
  const hr_tensor *x = c->inputs[i];
  return x->rank >= 2 ? HR_OK : HR__CALL_FAIL(c, "input %d has %d dims, expected at least 2", i, x->rank);
}

hr_status hr__emit_gather_mm(const hr__function_call *c) {
  HR_RETURN_IF_ERROR(check_matrices(c, 0));
  HR_RETURN_IF_ERROR(check_matrices(c, 1));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = taken(&f, c->inputs[0], c->inputs[2]);
  return hr__formula_end(&f, product(&f, x, taken(&f, c->inputs[1], c->inputs[3])));
}

static void take_packed(hr__formula *f, hr__packed *w, const hr_tensor *at) {
  w->words = taken(f, w->words, at), w->scales = taken(f, w->scales, at), w->biases = taken(f, w->biases, at);
}

/* A tensor of the dims of taken(x, at), without elements. */
static hr_tensor taken_dims(const hr_tensor *x, const hr_tensor *at) {
  hr_tensor y = *x;
  if (at != NULL && at->rank + 2 <= HR_RANK_MAX) {
    hr__copy_dims(at->rank, at->dims, y.dims);
    memcpy(y.dims + at->rank, x->dims + x->rank - 2, 2 * sizeof *y.dims);
    y.rank = at->rank + 2;
  }
  return y;
}

/* The packed numbers of each index are a row's, if there is one. Else each matrix is dequantised once, or each index's
 * one, if these are fewer. */
hr_status hr__emit_gather_qmm(const hr__function_call *c) {
  enum { LEFT = 4, RIGHT = 5 };
  hr__packed w;
  hr_dtype dtype = HR_DTYPE_NONE;
  HR_RETURN_IF_ERROR(check_matrices(c, 0));
  HR_RETURN_IF_ERROR(read_operands(c, 1, &w, &dtype));
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *x = taken(&f, hr__as_dtype(&f, c->inputs[0], dtype), c->inputs[LEFT]), *at = c->inputs[RIGHT];
  bool transpose = hr__int_attribute(c, 0) != 0;
  hr_tensor dims = taken_dims(w.words, at);
  if (!hr__formula_failed(&f) && has_row(&(hr__packed){.packing = w.packing, .words = &dims}, x)) {
    take_packed(&f, &w, at);
    return hr__formula_end(&f, batch_product(&f, x, &w, transpose));
  }
  if (at != NULL && hr_tensor_count(at) < matrix_count(w.words)) {
    take_packed(&f, &w, at);
    at = NULL;
  }
  const hr_tensor *y = right_factor(&f, &w, transpose, dtype);
  return hr__formula_end(&f, product(&f, x, taken(&f, y, at)));
}

/* ---- products of two quantised factors ---- */

static hr_status check_rounded(const hr__function_call *c, const hr__packing *p) {
  bool has_x = c->inputs[3] != NULL, has_w = c->inputs[4] != NULL;
  if (p->mode != HR__MODE_NVFP4 && p->mode != HR__MODE_MXFP8) {
    return HR__CALL_FAIL(c, "mode is %s, expected nvfp4 or mxfp8", modes[p->mode]);
  }
  if (has_x != has_w) {
    return HR__CALL_FAIL(c, "a global scale of %s alone, expected two or none", has_x ? "x" : "w");
  }
  HR_RETURN_IF_ERROR(check_global(c, p, c->inputs[3]));
  return check_global(c, p, c->inputs[4]);
}

/* x with the numbers that it has after quantisation. Calls of their own, which have steps of their own. */
static const hr_tensor *rounded(hr__formula *f, hr__packing p, const hr_tensor *x, const hr_tensor *global) {
  const hr_attribute attributes[4] = {{.kind = HR_ATTRIBUTE_INT, .value = {.integer = p.group}},
                                      {.kind = HR_ATTRIBUTE_INT, .value = {.integer = p.bits}},
                                      {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = modes[p.mode]}},
                                      {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = f->call->inputs[0]->dtype}}};
  hr_tensor packed[2];
  const hr_tensor *values[2] = {x, global}, *operands[4] = {&packed[0], &packed[1], NULL, global};
  if (hr__formula_failed(f)) {
    return x;
  }
  hr_status status = hr_functional_apply(f->call->stream, HR_FUNCTIONAL_QUANTIZE, 2, values, 3, attributes, 2, packed);
  if (status != HR_OK) {
    hr__formula_fail(f, status);
    return x;
  }
  const hr_tensor *y = hr__function(f, HR_FUNCTIONAL_DEQUANTIZE, 4, operands, 4, attributes);
  hr_tensor_release(&packed[0]);
  hr_tensor_release(&packed[1]);
  return y;
}

/* x times w, transposed, which is rounded. */
static const hr_tensor *times_rounded(hr__formula *f, const hr_tensor *x, const hr__packed *w) {
  const hr_tensor *right = rounded(f, w->packing, w->words, w->global);
  return product(f, x, hr__formula_failed(f) ? right : hr__moved(f, right, right->rank - 1, right->rank - 2));
}

/* x times packed w, transposed. */
static const hr_tensor *times_packed(hr__formula *f, const hr_tensor *x, const hr__packed *w) {
  bool has_rows = w->words->rank == 2;
  const hr_tensor *left = has_rows && !hr__formula_failed(f) ? as_rows(f, x) : x;
  if (hr__formula_failed(f) || w->global != NULL || !has_row(w, left)) {
    return product(f, x, right_factor(f, w, true, f->call->inputs[0]->dtype));
  }
  return has_rows ? with_rows_of(f, row_product(f, left, w, true), x) : batch_product(f, left, w, true);
}

hr_status hr__emit_qqmm(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *w = c->inputs[1], *scales = c->inputs[2];
  hr__packed packed = {.words = w, .scales = scales, .global = c->inputs[4]};
  HR_RETURN_IF_ERROR(hr__packing_attributes(c, 0, &packed.packing));
  HR_RETURN_IF_ERROR(check_rounded(c, &packed.packing));
  HR_RETURN_IF_ERROR(check_values(c, &packed.packing, x));
  if (scales != NULL) {
    HR_RETURN_IF_ERROR(check_packed(c, &packed));
    HR_RETURN_IF_ERROR(check_inner(c, x, &packed, true));
  } else {
    HR_RETURN_IF_ERROR(check_matrices(c, 1));
    HR_RETURN_IF_ERROR(check_values(c, &packed.packing, w));
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *left = rounded(&f, packed.packing, x, c->inputs[3]);
  return hr__formula_end(&f, scales != NULL ? times_packed(&f, left, &packed) : times_rounded(&f, left, &packed));
}
