/* The reference evaluator: the oracle of tests. One element at a time: load, convert, compute, convert, store.
 *
 * Element-wise expressions are those of ops.def on the functions of vmath_reference.h. Sums and products run in long
 * double (integers: wrapped), so they are compared with a tolerance, as are transcendentals; everything else is exact.
 * Buffers that the caller does not pass start as 0xFF bytes (NaN), so that a read before the first write shows.
 */
#include <string.h>

#include "base/allocator.h"
#include "core/ir/build.h"
#include "core/ir/program.h"
#include "core/ops/op.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtype-limits" /* one source for signed and unsigned classes */
#include "core/math/vmath_reference.h"

/* An element in the class given by the context. */
typedef union value {
  uint8_t b8;
  int32_t i32;
  uint32_t u32;
  int64_t i64;
  uint64_t u64;
  float f32;
  double f64;
  hr_c64 c64;
  hr_c128 c128;
} value;

/* ---- the rows of ops.def, in each class ---- */

#define REF_JOIN_(a, b) a##b
#define REF_JOIN(a, b) REF_JOIN_(a, b)
#if defined(__clang__)
#define REF_WRAPS __attribute__((no_sanitize("signed-integer-overflow", "shift", "float-divide-by-zero")))
#else
#define REF_WRAPS __attribute__((optimize("wrapv"), no_sanitize_undefined))
#endif

/* clang-format off */
/* ON_<kind>_<classes>(x): x if a row has an expression of the kind, else nothing. */
#define ON_I_I(...) __VA_ARGS__
#define ON_I_F(...)
#define ON_I_C(...)
#define ON_I_IF(...) __VA_ARGS__
#define ON_I_FC(...)
#define ON_I_IFC(...) __VA_ARGS__
#define ON_F_I(...)
#define ON_F_F(...) __VA_ARGS__
#define ON_F_C(...)
#define ON_F_IF(...) __VA_ARGS__
#define ON_F_FC(...) __VA_ARGS__
#define ON_F_IFC(...) __VA_ARGS__
#define ON_C_I(...)
#define ON_C_F(...)
#define ON_C_C(...) __VA_ARGS__
#define ON_C_IF(...)
#define ON_C_FC(...) __VA_ARGS__
#define ON_C_IFC(...) __VA_ARGS__

#define OPERANDS(first)                                        \
  first;                                                       \
  T b = in[1].CLS, c = in[2].CLS, d = in[3].CLS;               \
  (void)a, (void)b, (void)c, (void)d
#define CASE_SAME(op_, ...) case op_: { OPERANDS(T a = in[0].CLS); out->CLS = (__VA_ARGS__); } break;
#define CASE_COMPARE(op_, ...) case op_: { OPERANDS(T a = in[0].CLS); out->b8 = (__VA_ARGS__) ? 1 : 0; } break;
#define CASE_WHERE(op_, ...) case op_: { OPERANDS(uint8_t a = in[0].b8); out->CLS = (__VA_ARGS__); } break;
#define CASE_PART(op_, ...) case op_: { OPERANDS(T a = in[0].CLS); out->PART_MEMBER = (__VA_ARGS__); } break;
#define CASE_SEEDED(op_, ...)                              \
  case op_: {                                              \
    int64_t a = in[0].i64, b = in[1].i64, c = in[2].i64;   \
    int64_t d = in[3].i64;                                 \
    (void)d;                                               \
    out->CLS = (__VA_ARGS__);                              \
  } break;

/* ROW_<kind>_<rule>(classes, op, integer, real, complex): a case of the switch, or nothing. */
#define ROW_B_SAME(...)
#define ROW_B_COMPARE(...)
#define ROW_B_WHERE(classes, op_, i_, f_, c_) CASE_WHERE(op_, i_)
#define ROW_B_PART(...)
#define ROW_B_SEEDED(...)
#define ROW_B_LOGICAL(classes, op_, i_, f_, c_) CASE_SAME(op_, i_)
#define ROW_B_CAST(classes, op_, i_, f_, c_) CASE_SAME(op_, i_)
#define ROW_I_SAME(classes, op_, i_, f_, c_) ON_I_##classes(CASE_SAME(op_, i_))
#define ROW_I_CAST(classes, op_, i_, f_, c_) ON_I_##classes(CASE_SAME(op_, i_))
#define ROW_I_COMPARE(classes, op_, i_, f_, c_) ON_I_##classes(CASE_COMPARE(op_, i_))
#define ROW_I_WHERE(classes, op_, i_, f_, c_) ON_I_##classes(CASE_WHERE(op_, i_))
#define ROW_I_SEEDED(classes, op_, i_, f_, c_) ON_I_##classes(CASE_SEEDED(op_, i_))
#define ROW_I_LOGICAL(...)
#define ROW_I_PART(...)
#define ROW_F_SAME(classes, op_, i_, f_, c_) ON_F_##classes(CASE_SAME(op_, f_))
#define ROW_F_CAST(classes, op_, i_, f_, c_) ON_F_##classes(CASE_SAME(op_, f_))
#define ROW_F_COMPARE(classes, op_, i_, f_, c_) ON_F_##classes(CASE_COMPARE(op_, f_))
#define ROW_F_WHERE(classes, op_, i_, f_, c_) ON_F_##classes(CASE_WHERE(op_, f_))
#define ROW_F_SEEDED(classes, op_, i_, f_, c_) ON_F_##classes(CASE_SEEDED(op_, f_))
#define ROW_F_LOGICAL(...)
#define ROW_F_PART(...)
#define ROW_C_SAME(classes, op_, i_, f_, c_) ON_C_##classes(CASE_SAME(op_, c_))
#define ROW_C_CAST(classes, op_, i_, f_, c_) ON_C_##classes(CASE_SAME(op_, c_))
#define ROW_C_COMPARE(classes, op_, i_, f_, c_) ON_C_##classes(CASE_COMPARE(op_, c_))
#define ROW_C_WHERE(classes, op_, i_, f_, c_) ON_C_##classes(CASE_WHERE(op_, c_))
#define ROW_C_PART(classes, op_, i_, f_, c_) ON_C_##classes(CASE_PART(op_, c_))
#define ROW_C_LOGICAL(...)
#define ROW_C_SEEDED(...)

#define CASE_COMBINE(op_, ...) case op_: left->CLS = (__VA_ARGS__); break;
#define ROW_B_REDUCE(classes, op_, i_, f_, c_) ON_I_##classes(CASE_COMBINE(op_, i_))
#define ROW_I_REDUCE(classes, op_, i_, f_, c_) ON_I_##classes(CASE_COMBINE(op_, i_))
#define ROW_F_REDUCE(classes, op_, i_, f_, c_) ON_F_##classes(CASE_COMBINE(op_, f_))
#define ROW_C_REDUCE(classes, op_, i_, f_, c_) ON_C_##classes(CASE_COMBINE(op_, c_))

/* a beats b: NaN beats every number, and the first of two. */
#define ROW_B_ARGREDUCE(op_, i_, f_)
#define ROW_I_ARGREDUCE(op_, i_, f_) case op_: return (i_);
#define ROW_F_ARGREDUCE(op_, i_, f_) case op_: return b == b && (a != a || (f_));
#define ROW_C_ARGREDUCE(op_, i_, f_)
/* clang-format on */

#define CLS b8
#define T uint8_t
#define KIND B
#define PART_MEMBER b8
#include "core/ir/reference_class.inc"
#define CLS i32
#define T int32_t
#define KIND I
#define PART_MEMBER i32
#include "core/ir/reference_class.inc"
#define CLS u32
#define T uint32_t
#define KIND I
#define PART_MEMBER u32
#include "core/ir/reference_class.inc"
#define CLS i64
#define T int64_t
#define KIND I
#define PART_MEMBER i64
#include "core/ir/reference_class.inc"
#define CLS u64
#define T uint64_t
#define KIND I
#define PART_MEMBER u64
#include "core/ir/reference_class.inc"
#define CLS f32
#define T float
#define KIND F
#define PART_MEMBER f32
#include "core/ir/reference_class.inc"
#define CLS f64
#define T double
#define KIND F
#define PART_MEMBER f64
#include "core/ir/reference_class.inc"
#define CLS c64
#define T hr_c64
#define KIND C
#define PART_MEMBER f32
#include "core/ir/reference_class.inc"
#define CLS c128
#define T hr_c128
#define KIND C
#define PART_MEMBER f64
#include "core/ir/reference_class.inc"

#pragma GCC diagnostic pop

typedef struct class_row {
  bool (*compute)(hr_op op, const value *in, value *out);
  bool (*combine)(hr_op op, value *left, const value *right);
  bool (*is_better)(hr_op op, const value *left, const value *right);
} class_row;

static const class_row classes[HR_CLASS_COUNT] = {
    [HR_CLASS_B8] = {compute_b8, combine_b8, is_better_b8},
    [HR_CLASS_I32] = {compute_i32, combine_i32, is_better_i32},
    [HR_CLASS_U32] = {compute_u32, combine_u32, is_better_u32},
    [HR_CLASS_I64] = {compute_i64, combine_i64, is_better_i64},
    [HR_CLASS_U64] = {compute_u64, combine_u64, is_better_u64},
    [HR_CLASS_F32] = {compute_f32, combine_f32, is_better_f32},
    [HR_CLASS_F64] = {compute_f64, combine_f64, is_better_f64},
    [HR_CLASS_C64] = {compute_c64, combine_c64, is_better_c64},
    [HR_CLASS_C128] = {compute_c128, combine_c128, is_better_c128},
};

/* ---- conversions ---- */

/* Any value without loss: integers in `whole`, others in re and im. */
typedef struct any_number {
  bool is_whole;
  __int128 whole;
  double re, im;
} any_number;

static any_number widen(value v, hr_class cls) {
  switch (cls) {
    case HR_CLASS_B8:
      return (any_number){.is_whole = true, .whole = v.b8};
    case HR_CLASS_I32:
      return (any_number){.is_whole = true, .whole = v.i32};
    case HR_CLASS_U32:
      return (any_number){.is_whole = true, .whole = v.u32};
    case HR_CLASS_I64:
      return (any_number){.is_whole = true, .whole = v.i64};
    case HR_CLASS_U64:
      return (any_number){.is_whole = true, .whole = v.u64};
    case HR_CLASS_F32:
      return (any_number){.re = (double)v.f32};
    case HR_CLASS_F64:
      return (any_number){.re = v.f64};
    case HR_CLASS_C64:
      return (any_number){.re = (double)v.c64.re, .im = (double)v.c64.im};
    case HR_CLASS_C128:
      return (any_number){.re = v.c128.re, .im = v.c128.im};
    default:
      return (any_number){.is_whole = true};
  }
}

/* Rounds towards zero. NaN and numbers that 64 bits can't hold give the lowest number; u64 also holds larger ones than
 * i64. */
static __int128 to_whole(any_number n, bool is_u64) {
  if (n.is_whole) {
    return n.whole;
  }
  if (n.re >= -0x1p63 && n.re < (is_u64 ? 0x1p64 : 0x1p63)) {
    return (__int128)n.re;
  }
  return INT64_MIN;
}

static value convert(value v, hr_class from, hr_class to) {
  value out;
  memset(&out, 0, sizeof out);
  if (from == to) {
    return v;
  }
  any_number n = widen(v, from);
  uint64_t bits = (uint64_t)to_whole(n, to == HR_CLASS_U64);
  float single = n.is_whole ? (float)n.whole : (float)n.re;
  double twice = n.is_whole ? (double)n.whole : n.re;
  switch (to) {
    case HR_CLASS_B8:
      out.b8 = n.is_whole ? n.whole != 0 : n.re != 0 || n.im != 0;
      break;
    case HR_CLASS_I32:
      out.i32 = (int32_t)(uint32_t)bits;
      break;
    case HR_CLASS_U32:
      out.u32 = (uint32_t)bits;
      break;
    case HR_CLASS_I64:
      out.i64 = (int64_t)bits;
      break;
    case HR_CLASS_U64:
      out.u64 = bits;
      break;
    case HR_CLASS_F32:
      out.f32 = single;
      break;
    case HR_CLASS_F64:
      out.f64 = twice;
      break;
    case HR_CLASS_C64:
      out.c64 = (hr_c64){single, (float)n.im};
      break;
    case HR_CLASS_C128:
      out.c128 = (hr_c128){twice, n.im};
      break;
    default:
      break;
  }
  return out;
}

/* An element of `dtype` in memory, in the class of the dtype. */
static value load(hr_dtype dtype, const void *at) {
  value v;
  memset(&v, 0, sizeof v);
  switch (dtype) {
    case HR_DTYPE_BOOL:
      v.b8 = *(const uint8_t *)at != 0;
      break;
    case HR_DTYPE_U8:
      v.i32 = *(const uint8_t *)at;
      break;
    case HR_DTYPE_I8:
      v.i32 = *(const int8_t *)at;
      break;
    case HR_DTYPE_U16:
      v.i32 = *(const uint16_t *)at;
      break;
    case HR_DTYPE_I16:
      v.i32 = *(const int16_t *)at;
      break;
    case HR_DTYPE_F16:
      v.f32 = hr_f16_to_f32(*(const uint16_t *)at);
      break;
    case HR_DTYPE_C32:
      v.c64.re = hr_f16_to_f32(((const uint16_t *)at)[0]), v.c64.im = hr_f16_to_f32(((const uint16_t *)at)[1]);
      break;
    case HR_DTYPE_BF16:
      v.f32 = hr_bf16_to_f32(*(const uint16_t *)at);
      break;
    case HR_DTYPE_F8E4M3FN:
    case HR_DTYPE_F8E5M2:
    case HR_DTYPE_F8E4M3FNUZ:
    case HR_DTYPE_F8E5M2FNUZ:
    case HR_DTYPE_F8E8M0FNU:
    case HR_DTYPE_F8E4M3:
    case HR_DTYPE_F8E3M4:
    case HR_DTYPE_F8E4M3B11FNUZ:
    case HR_DTYPE_F4E2M1FN:
      v.f32 = hr_f8_to_f32(dtype, *(const uint8_t *)at);
      break;
    default:
      memcpy(&v, at, hr_dtype_size(dtype));
      break;
  }
  return v;
}

static void store(hr_dtype dtype, void *at, value v, hr_class cls) {
  v = convert(v, cls, hr_dtype_class(dtype));
  switch (dtype) {
    case HR_DTYPE_BOOL:
      *(uint8_t *)at = v.b8 != 0;
      break;
    case HR_DTYPE_U8:
    case HR_DTYPE_I8:
      *(uint8_t *)at = (uint8_t)v.i32;
      break;
    case HR_DTYPE_U16:
    case HR_DTYPE_I16:
      *(uint16_t *)at = (uint16_t)v.i32;
      break;
    case HR_DTYPE_F16:
      *(uint16_t *)at = hr_f32_to_f16(v.f32);
      break;
    case HR_DTYPE_C32:
      ((uint16_t *)at)[0] = hr_f32_to_f16(v.c64.re), ((uint16_t *)at)[1] = hr_f32_to_f16(v.c64.im);
      break;
    case HR_DTYPE_BF16:
      *(uint16_t *)at = hr_f32_to_bf16(v.f32);
      break;
    case HR_DTYPE_F8E4M3FN:
    case HR_DTYPE_F8E5M2:
    case HR_DTYPE_F8E4M3FNUZ:
    case HR_DTYPE_F8E5M2FNUZ:
    case HR_DTYPE_F8E8M0FNU:
    case HR_DTYPE_F8E4M3:
    case HR_DTYPE_F8E3M4:
    case HR_DTYPE_F8E4M3B11FNUZ:
    case HR_DTYPE_F4E2M1FN:
      *(uint8_t *)at = hr_f32_to_f8(dtype, v.f32);
      break;
    default:
      memcpy(at, &v, hr_dtype_size(dtype));
      break;
  }
}

/* ---- operands ---- */

typedef struct run {
  const hr_program *program;
  void **memory; /* of every buffer */
  const hr_scalar *arguments;
  /* the loop in work */
  const hr_node *node;
  int number;
  int64_t at[HR_RANK_MAX]; /* the element of the domain */
} run;

static value scalar_value(const run *r, uint32_t index, hr_class *out_class) {
  const hr_program_scalar *known = &r->program->scalars[index];
  hr_scalar scalar = known->is_constant ? known->value : r->arguments[known->argument];
  value v;
  memset(&v, 0, sizeof v);
  *out_class = hr_dtype_class(known->dtype);
  switch (known->dtype) {
    case HR_DTYPE_BOOL:
      v.b8 = scalar.value.i != 0;
      break;
    case HR_DTYPE_I64:
      v.i64 = scalar.value.i;
      break;
    case HR_DTYPE_U64:
      v.u64 = scalar.value.u;
      break;
    case HR_DTYPE_F64:
      v.f64 = scalar.value.f[0];
      break;
    default:
      v.c128 = (hr_c128){scalar.value.f[0], scalar.value.f[1]};
      break;
  }
  return v;
}

static int64_t dot(const run *r, int rank, const int64_t *strides) {
  int64_t sum = 0;
  for (int d = 0; d < rank; ++d) {
    sum += r->at[d] * strides[d];
  }
  return sum;
}

static bool is_inside(const run *r, const hr_operand *x) {
  for (int i = 0; i < x->bound_count; ++i) {
    int64_t coordinate = x->bounds[i].offset + dot(r, x->rank, x->bounds[i].strides);
    if (coordinate < 0 || coordinate >= x->bounds[i].extent) {
      return false;
    }
  }
  return true;
}

static hr_status read_operand(const run *r, const hr_operand *x, hr_class to, value *out_value);

/* The address of a value operand's current element. */
static hr_status address_of(const run *r, const hr_operand *x, void **out_address) {
  int64_t element = x->offset + dot(r, x->rank, x->strides);
  for (int i = 0; i < x->term_count; ++i) {
    value index;
    const hr_index_term *term = &x->terms[i];
    HR_RETURN_IF_ERROR(read_operand(r, &r->node->inputs[term->input], HR_CLASS_I64, &index));
    int64_t position = index.i64 < 0 ? index.i64 + term->extent : index.i64;
    if (position < 0 || position >= term->extent) {
      return hr_status_make(HR_STATUS_OUT_OF_RANGE, "node %d (%s): index %lld of an extent of %lld", r->number,
                            hr_op_table(r->node->op)->name, (long long)index.i64, (long long)term->extent);
    }
    element += position * term->stride;
  }
  int64_t size = (int64_t)hr_dtype_size(x->dtype);
  int64_t count = (int64_t)r->program->buffers[x->index].bytes / size;
  if (element < 0 || element >= count) {
    return hr_status_make(HR_STATUS_INTERNAL, "node %d (%s): element %lld of buffer %u, which has %lld", r->number,
                          hr_op_table(r->node->op)->name, (long long)element, x->index, (long long)count);
  }
  *out_address = (char *)r->memory[x->index] + element * size;
  return HR_OK;
}

static hr_status read_operand(const run *r, const hr_operand *x, hr_class to, value *out_value) {
  hr_class cls = HR_CLASS_I64;
  value v;
  memset(&v, 0, sizeof v);
  if (!is_inside(r, x)) {
    if (x->fill != HR_NO_SCALAR) {
      value element; /* the fill is an element of x */
      v = scalar_value(r, x->fill, &cls);
      store(x->dtype, &element, v, cls);
      v = load(x->dtype, &element);
      cls = hr_dtype_class(x->dtype);
    }
  } else if (x->kind == HR_OPERAND_SCALAR) {
    v = scalar_value(r, x->index, &cls);
  } else if (x->kind == HR_OPERAND_INDEX) {
    v.i64 = x->offset + dot(r, x->rank, x->strides);
  } else {
    void *address = NULL;
    HR_RETURN_IF_ERROR(address_of(r, x, &address));
    v = load(x->dtype, address);
    cls = hr_dtype_class(x->dtype);
  }
  *out_value = convert(v, cls, to);
  return HR_OK;
}

/* The class of a row's input `i`. */
static hr_class input_class(const hr_node *node, hr_class compute, int i) {
  const hr_op_row *row = hr_op_table(node->op);
  if (row->family == HR_FAMILY_ARGREDUCE && i == 1) {
    return HR_CLASS_I64;
  }
  switch (row->rule) {
    case HR_RULE_WHERE:
      return i == 0 ? HR_CLASS_B8 : compute;
    case HR_RULE_SEEDED:
      return HR_CLASS_I64;
    default:
      return compute;
  }
}

static hr_status read_inputs(const run *r, hr_class compute, value *out_values) {
  int arity = hr_op_table(r->node->op)->arity;
  memset(out_values, 0, 4 * sizeof *out_values);
  for (int i = 0; i < arity; ++i) {
    hr_class cls = input_class(r->node, compute, i);
    bool is_truth = r->node->inputs[i].kind == HR_OPERAND_SCALAR && hr_node_number_is_truth(r->node);
    HR_RETURN_IF_ERROR(read_operand(r, &r->node->inputs[i], is_truth ? HR_CLASS_B8 : cls, &out_values[i]));
    out_values[i] = is_truth ? convert(out_values[i], HR_CLASS_B8, cls) : out_values[i];
  }
  return HR_OK;
}

static hr_status write_output(const run *r, value v, hr_class cls) {
  static const hr_op combines[] = {[HR_STORE_ADD] = HR_OP_ADD,
                                   [HR_STORE_MUL] = HR_OP_MUL,
                                   [HR_STORE_MAX] = HR_OP_MAXIMUM,
                                   [HR_STORE_MIN] = HR_OP_MINIMUM};
  const hr_operand *out = &r->node->outputs[0];
  if (!is_inside(r, out)) {
    return HR_OK;
  }
  void *address = NULL;
  HR_RETURN_IF_ERROR(address_of(r, out, &address));
  if (r->node->store_mode != HR_STORE_SET) {
    hr_class to = hr_dtype_arithmetic_class(out->dtype);
    value in[4] = {{0}};
    in[0] = convert(load(out->dtype, address), hr_dtype_class(out->dtype), to);
    value element; /* the row's result is an element of the output's dtype */
    store(out->dtype, &element, v, cls);
    in[1] = convert(load(out->dtype, &element), hr_dtype_class(out->dtype), to);
    if (!classes[to].compute(combines[r->node->store_mode], in, &v)) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "node %d: a store in mode %d of class %s", r->number,
                            (int)r->node->store_mode, hr_class_name(to));
    }
    cls = to;
  }
  store(out->dtype, address, v, cls);
  return HR_OK;
}

/* ---- loops ---- */

/* Moves to the next index over the dims of `mask`, row-major; false after the last one, back at the first. */
static bool advance(run *r, int rank, const int64_t *dims, uint32_t mask) {
  for (int d = rank - 1; d >= 0; --d) {
    if ((mask >> d & 1u) != 0) {
      if (++r->at[d] < dims[d]) {
        return true;
      }
      r->at[d] = 0;
    }
  }
  return false;
}

static hr_status no_version(const run *r, hr_class cls) {
  return hr_status_make(HR_STATUS_INTERNAL, "node %d: %s has no version for class %s", r->number,
                        hr_op_table(r->node->op)->name, hr_class_name(cls));
}

static hr_status run_pointwise(run *r, const hr_operand *out) {
  hr_class cls = hr_node_compute_class(r->program, r->node);
  do {
    value in[4], result;
    memset(&result, 0, sizeof result);
    HR_RETURN_IF_ERROR(read_inputs(r, cls, in));
    if (classes[cls].compute == NULL || !classes[cls].compute(r->node->op, in, &result)) {
      return no_version(r, cls);
    }
    HR_RETURN_IF_ERROR(write_output(r, result, hr_op_result_class(r->node->op, cls)));
  } while (advance(r, out->rank, out->dims, ~0u));
  return HR_OK;
}

/* Sums and products of floating point numbers in extended precision. */
typedef struct precise {
  long double re, im;
} precise;

static precise to_precise(value v, hr_class cls) {
  any_number n = widen(v, cls);
  return (precise){(long double)n.re, (long double)n.im};
}

static precise combine_precise(hr_op op, precise a, precise b) {
  if (op == HR_OP_SUM) {
    return (precise){a.re + b.re, a.im + b.im};
  }
  return (precise){a.re * b.re - (a.im == 0 && b.im == 0 ? 0 : a.im * b.im),
                   a.im == 0 && b.im == 0 ? 0 : a.re * b.im + a.im * b.re};
}

static value from_precise(precise p, hr_class cls) {
  value v;
  memset(&v, 0, sizeof v);
  switch (cls) {
    case HR_CLASS_F32:
      v.f32 = (float)p.re;
      break;
    case HR_CLASS_F64:
      v.f64 = (double)p.re;
      break;
    case HR_CLASS_C64:
      v.c64 = (hr_c64){(float)p.re, (float)p.im};
      break;
    default:
      v.c128 = (hr_c128){(double)p.re, (double)p.im};
      break;
  }
  return v;
}

/* One row: all elements over the reduced dims at the kept index in r->at. */
static hr_status reduce_row(run *r, hr_class cls, value *out_value) {
  const hr_node *node = r->node;
  const hr_operand *out = &node->outputs[0];
  bool is_precise = (node->op == HR_OP_SUM || node->op == HR_OP_PROD) && cls >= HR_CLASS_F32;
  bool is_arg = hr_op_table(node->op)->family == HR_FAMILY_ARGREDUCE;
  value in[4], best, index;
  precise total = {0, 0};
  bool is_first = true;
  memset(&best, 0, sizeof best);
  memset(&index, 0, sizeof index);
  do {
    HR_RETURN_IF_ERROR(read_inputs(r, cls, in));
    if (is_precise) {
      total = is_first ? to_precise(in[0], cls) : combine_precise(node->op, total, to_precise(in[0], cls));
    } else if (is_first) {
      best = in[0], index = in[1];
    } else if (is_arg) {
      bool is_better = classes[cls].is_better(node->op, &in[0], &best);
      bool is_worse = classes[cls].is_better(node->op, &best, &in[0]);
      if (is_better || (!is_worse && in[1].i64 < index.i64)) {
        best = in[0], index = in[1];
      }
    } else if (!classes[cls].combine(node->op, &best, &in[0])) {
      return no_version(r, cls);
    }
    is_first = false;
  } while (advance(r, out->rank, out->dims, node->reduce_mask));
  *out_value = is_precise ? from_precise(total, cls) : is_arg ? index : best;
  return HR_OK;
}

static hr_status run_reduction(run *r, const hr_operand *out) {
  hr_class cls = hr_node_compute_class(r->program, r->node);
  if (classes[cls].combine == NULL) {
    return no_version(r, cls);
  }
  do {
    value result;
    HR_RETURN_IF_ERROR(reduce_row(r, cls, &result));
    HR_RETURN_IF_ERROR(write_output(r, result, hr_op_result_class(r->node->op, cls)));
  } while (advance(r, out->rank, out->dims, ~r->node->reduce_mask));
  return HR_OK;
}

static hr_status run_check(const run *r) {
  static const char *const nouns[] = {"index", "class label", "gather or scatter index"};
  const hr_node *node = r->node;
  void *address = NULL;
  HR_RETURN_IF_ERROR(address_of(r, &node->inputs[0], &address));
  int64_t offending = *(const int64_t *)address, kind = node->ints[2];
  if (offending == INT64_MIN) {
    return HR_OK;
  }
  return hr_status_make(HR_STATUS_OUT_OF_RANGE, "%s %lld is out of range [%lld, %lld)",
                        nouns[kind >= 0 && kind < 3 ? kind : 0], (long long)offending, (long long)node->ints[0],
                        (long long)node->ints[1]);
}

static hr_status run_node(run *r) {
  const hr_node *node = r->node;
  memset(r->at, 0, sizeof r->at);
  if (node->op == HR_OP_CHECK_INDEX) {
    return run_check(r);
  }
  const hr_operand *out = &node->outputs[0];
  if (hr_operand_count(*out) == 0) {
    return HR_OK;
  }
  return hr_op_table(node->op)->family == HR_FAMILY_POINTWISE ? run_pointwise(r, out) : run_reduction(r, out);
}

/* ---- programs ---- */

static hr_status run_expanded(const hr_program *program, void *const *given, const hr_scalar *arguments) {
  run r = {.program = program, .arguments = arguments};
  hr_status status = HR_OK;
  r.memory = hr_calloc((size_t)program->buffer_count + 1, sizeof *r.memory);
  if (r.memory == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %d buffers", program->buffer_count);
  }
  for (int i = 0; i < program->buffer_count && status == HR_OK; ++i) {
    r.memory[i] = i < program->bound_count ? given[i] : NULL;
    if (r.memory[i] == NULL) {
      r.memory[i] = hr_malloc(program->buffers[i].bytes);
      if (r.memory[i] == NULL) {
        status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %zu bytes", program->buffers[i].bytes);
      } else {
        memset(r.memory[i], 0xFF, program->buffers[i].bytes);
      }
    }
  }
  for (int i = 0; i < program->node_count && status == HR_OK; ++i) {
    r.node = &program->nodes[i];
    r.number = i;
    status = run_node(&r);
  }
  for (int i = 0; i < program->buffer_count; ++i) {
    if (i >= program->bound_count || given[i] == NULL) {
      hr_free(r.memory[i]);
    }
  }
  hr_free(r.memory);
  return status;
}

hr_status hr_program_evaluate(const hr_program *program, void *const *memory, const hr_scalar *arguments) {
  hr_program expanded;
  HR_RETURN_IF_ERROR(hr_expand(program, NULL, NULL, &expanded));
  hr_status status = hr_program_verify(&expanded);
  if (status == HR_OK) {
    status = run_expanded(&expanded, memory, arguments);
  }
  hr_program_fini(&expanded);
  return status;
}
