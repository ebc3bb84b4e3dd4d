// pointwise.cpp: element-wise operations: type promotion, broadcasting, the strides of a new result, out= and in-place
// checks, and the record. It replaces torch's TensorIterator without building one: this path determines an operation's
// cost from Python.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/where.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "kernels.h"
#include "kernels_nn.h"
#include "record.h"
#include "versions.h"

namespace headrace {
namespace {

constexpr int kMaxOperands = 6;

// ---- promotion, as at::result_type: tensors with dims outrank 0-dim tensors, which outrank numbers, within a category

ScalarType number_type(const hr_scalar &number) {
  switch (number.dtype) {
    case HR_DTYPE_BOOL:
      return ScalarType::Bool;
    case HR_DTYPE_I64:
      return ScalarType::Long;
    case HR_DTYPE_U64:
      return ScalarType::UInt64;
    case HR_DTYPE_C128:
      return c10::toComplexType(c10::get_default_dtype_as_scalartype());
    default:
      return c10::get_default_dtype_as_scalartype();
  }
}

ScalarType promote_known(ScalarType a, ScalarType b) {
  if (a == ScalarType::Undefined)
    return b;
  if (b == ScalarType::Undefined)
    return a;
  return a == b ? a : c10::promoteTypes(a, b);
}

ScalarType combine(ScalarType higher, ScalarType lower) {
  if (c10::isComplexType(higher))
    return higher;
  if (c10::isFloatingType(higher))
    return c10::isComplexType(lower) ? c10::toComplexType(higher) : higher;
  if (higher == ScalarType::Bool || c10::isFloatingType(lower) || c10::isComplexType(lower))
    return promote_known(higher, lower);
  return higher != ScalarType::Undefined ? higher : lower;
}

bool is_wrapped(const Tensor &tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// The class of dtypes that share one kind of register in the core; results of one class differ only by a final
// rounding.
int class_of(ScalarType type) {
  switch (type) {
    case ScalarType::Bool:
      return 0;
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::UInt16:
    case ScalarType::Short:
    case ScalarType::Int:
      return 1;
    case ScalarType::UInt32:
      return 2;
    case ScalarType::Long:
      return 3;
    case ScalarType::UInt64:
      return 4;
    case ScalarType::Half:
    case ScalarType::BFloat16:
    case ScalarType::Float:
      return 5;
    case ScalarType::Double:
      return 6;
    case ScalarType::ComplexHalf:
    case ScalarType::ComplexFloat:
      return 7;
    case ScalarType::ComplexDouble:
      return 8;
    default: // nothing is computed in 8-bit floats
      return 9;
  }
}

bool is_widest_of_class(ScalarType type) {
  return type != ScalarType::Half && type != ScalarType::BFloat16 && type != ScalarType::ComplexHalf &&
         (class_of(type) != 1 || type == ScalarType::Int) && class_of(type) != 9;
}

// A number as an element of an integer type: it wraps, like a tensor of the number that is converted.
hr_scalar wrapped_number(hr_scalar number, ScalarType common) {
  if (number.dtype != HR_DTYPE_I64)
    return number;
  switch (common) {
#define HEADRACE_CASE(type, name) \
  case ScalarType::name:          \
    return hr_scalar_i64(static_cast<type>(number.value.i));
    HEADRACE_CASE(uint8_t, Byte)
    HEADRACE_CASE(int8_t, Char)
    HEADRACE_CASE(uint16_t, UInt16)
    HEADRACE_CASE(int16_t, Short)
    HEADRACE_CASE(uint32_t, UInt32)
    HEADRACE_CASE(int32_t, Int)
#undef HEADRACE_CASE
    default:
      return number;
  }
}

// ---- one call

struct Call {
  hr_op op;
  Rule rule;
  int count;
  const Tensor *tensors[kMaxOperands]; // on the device; null: a number
  hr_scalar numbers[kMaxOperands];
  Tensor converted[kMaxOperands];
  ScalarType common, wanted;
  bool one_shape, contiguous;
  const Tensor *first;
  c10::SmallVector<int64_t, 8> broadcast;
  IntArrayRef sizes;
};

void classify(Call &call, const Operand *operands) {
  ScalarType dims = ScalarType::Undefined, zero = ScalarType::Undefined, wrapped = ScalarType::Undefined;
  call.first = nullptr;
  call.one_shape = call.contiguous = true;
  for (int i = 0; i < call.count; ++i) {
    const Operand &operand = operands[i];
    const Tensor *tensor = operand.tensor;
    bool votes = operand.promotes && !(call.rule == Rule::Where && i == 0);
    call.tensors[i] = nullptr;
    if (tensor == nullptr) {
      call.numbers[i] = operand.number;
      if (votes)
        wrapped = promote_known(wrapped, number_type(operand.number));
      continue;
    }
    if (C10_LIKELY(is_on_device(*tensor))) {
      call.tensors[i] = tensor;
      call.contiguous &= tensor->is_contiguous();
      if (call.first == nullptr)
        call.first = tensor;
      else
        call.one_shape &= tensor->sizes().equals(call.first->sizes());
    } else {
      if (!is_cpu_scalar(*tensor))
        fail_device(*tensor);
      call.numbers[i] = number_of(*tensor);
    }
    if (!votes)
      continue;
    ScalarType type = tensor->scalar_type();
    if (tensor->dim() > 0)
      dims = promote_known(dims, type);
    else if (is_wrapped(*tensor))
      wrapped = promote_known(wrapped, number_type(call.tensors[i] ? hr_scalar_f64(0) : call.numbers[i]));
    else
      zero = promote_known(zero, type);
  }
  call.common = combine(dims, combine(zero, wrapped));
  if (call.rule == Rule::Float && c10::isIntegralType(call.common, /*includeBool=*/true)) {
    call.common = c10::get_default_dtype_as_scalartype();
  }
  TORCH_CHECK_NOT_IMPLEMENTED(call.rule != Rule::Number || call.common != ScalarType::Bool,
                              "the operation is not implemented for 'Bool'");
  if (c10::isIntegralType(call.common, /*includeBool=*/false)) {
    for (int i = 0; i < call.count; ++i)
      if (call.tensors[i] == nullptr)
        call.numbers[i] = wrapped_number(call.numbers[i], call.common);
  }
  switch (call.rule) {
    case Rule::Compare:
    case Rule::Logical:
      call.wanted = ScalarType::Bool;
      break;
    case Rule::Part:
      call.wanted = c10::toRealValueType(call.common);
      break;
    default:
      call.wanted = call.common;
  }
}

void find_sizes(Call &call) {
  if (call.first == nullptr) {
    call.sizes = {};
  } else if (call.one_shape) {
    call.sizes = call.first->sizes();
  } else {
    at::DimVector sizes(call.first->sizes());
    for (int i = 0; i < call.count; ++i) {
      if (call.tensors[i] != nullptr)
        sizes = at::infer_size_dimvector(sizes, call.tensors[i]->sizes());
    }
    call.broadcast.assign(sizes.begin(), sizes.end());
    call.sizes = call.broadcast;
  }
}

// Compares dims for a new result's order, which follows its operands' strides; the first operand that distinguishes
// them decides.
int compare_dims(const Call &call, size_t a, size_t b) {
  for (int i = 0; i < call.count; ++i) {
    const Tensor *tensor = call.tensors[i];
    if (tensor == nullptr)
      continue;
    IntArrayRef own = tensor->sizes(), strides = tensor->strides();
    size_t lead = call.sizes.size() - own.size();
    int64_t stride_a = a < lead || own[a - lead] != call.sizes[a] ? 0 : strides[a - lead];
    int64_t stride_b = b < lead || own[b - lead] != call.sizes[b] ? 0 : strides[b - lead];
    if (a >= lead && own[a - lead] == 1)
      stride_a = call.sizes[a] == 1 ? strides[a - lead] : 0;
    if (b >= lead && own[b - lead] == 1)
      stride_b = call.sizes[b] == 1 ? strides[b - lead] : 0;
    if (stride_a == 0 || stride_b == 0)
      continue;
    if (stride_a != stride_b)
      return stride_a < stride_b ? -1 : 1;
    if (call.sizes[a] > call.sizes[b])
      return 1;
  }
  return 0;
}

bool is_row_major(const Tensor &tensor) {
  IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  int64_t stride = 1, differences = 0;
  for (size_t d = sizes.size(); d-- > 0;) {
    differences |= strides[d] ^ stride;
    stride *= sizes[d];
  }
  return differences == 0 && stride != 0;
}

// True if the strides of all operands, those of one-element dims included, are those of row-major order: so is then the
// result's order.
bool are_row_major(const Call &call) {
  bool are = true;
  for (int i = 0; i < call.count && are; ++i)
    are = call.tensors[i] == nullptr || is_row_major(*call.tensors[i]);
  return are;
}

// True if strides of one-element dims, which don't affect memory, may decide the order of contiguous operands: torch
// uses them unless all operands are tensors of one shape.
bool has_order_in_ones(const Call &call) {
  bool is_plain = call.one_shape && call.sizes.size() >= 2, has_ones = false;
  for (int i = 0; i < call.count; ++i) {
    is_plain &= call.tensors[i] != nullptr;
    for (int64_t d = 0; call.tensors[i] != nullptr && d < call.tensors[i]->dim(); ++d)
      has_ones |= call.tensors[i]->size(d) == 1;
  }
  return !is_plain && has_ones;
}

Tensor new_result(const Call &call) {
  if (C10_LIKELY(call.contiguous && (call.sizes.size() < 2 || are_row_major(call) || !has_order_in_ones(call))))
    return new_tensor(call.sizes, call.wanted);
  size_t rank = call.sizes.size();
  c10::SmallVector<size_t, 8> order(rank); // fastest first
  for (size_t i = 0; i < rank; ++i)
    order[i] = rank - 1 - i;
  for (size_t i = 1; i < rank; ++i) {
    size_t moving = i;
    for (size_t j = i; j-- > 0;) {
      int comparison = compare_dims(call, order[j], order[moving]);
      if (comparison > 0) {
        std::swap(order[j], order[moving]);
        moving = j;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  Dims strides(rank);
  int64_t stride = 1;
  for (size_t dim : order) {
    strides[dim] = stride;
    stride *= std::max<int64_t>(call.sizes[dim], 1);
  }
  return new_tensor(call.sizes, strides, call.wanted);
}

// torch's checks of the output tensor and its size.
void check_target(const Call &call, const Result &result) {
  const Tensor &target = result.tensor();
  if (C10_UNLIKELY(!is_on_device(target)))
    fail_device(target);
  TORCH_CHECK(target.scalar_type() == call.wanted || c10::canCast(call.wanted, target.scalar_type()) ||
                  (call.wanted == ScalarType::Bool),
              "result type ", call.wanted, " can't be cast to the desired output type ", target.scalar_type());
  TORCH_CHECK(!result.is_exact() || target.scalar_type() == call.wanted, "Found dtype ", target.scalar_type(),
              " but expected ", call.wanted);
  bool is_read = result.is_inplace(); // then it keeps its size
  for (int i = 0; i < call.count; ++i)
    is_read |= call.tensors[i] != nullptr && call.tensors[i]->is_same(target);
  if (is_read) {
    TORCH_CHECK(target.sizes().equals(call.sizes), "output with shape ", target.sizes(),
                " doesn't match the broadcast shape ", call.sizes);
    at::assert_no_internal_overlap(target);
  } else {
    prepare_out(target, call.sizes, call.wanted == ScalarType::Bool ? target.scalar_type() : call.wanted);
  }
  for (int i = 0; i < call.count; ++i) {
    const Tensor *tensor = call.tensors[i];
    if (tensor != nullptr && !tensor->is_same(target))
      at::assert_no_partial_overlap(target, *tensor);
  }
}

// True if writing `target` directly gives the same bits as writing the wanted type first.
bool writes_directly(const Call &call, ScalarType target) {
  if (target == call.wanted)
    return true;
  if (call.rule == Rule::Compare || call.rule == Rule::Logical || call.rule == Rule::Part)
    return false;
  return class_of(target) == class_of(call.wanted) && is_widest_of_class(call.wanted);
}

// Converts operands, in a separate record, that the core would not convert as torch does: 0-dim tensors outranked in
// promotion, and integers compared with numbers of another default type.
void convert_operands(Call &call) {
  for (int i = call.rule == Rule::Where ? 1 : 0; i < call.count; ++i) {
    const Tensor *tensor = call.tensors[i];
    if (tensor == nullptr)
      continue;
    ScalarType type = tensor->scalar_type();
    if (C10_LIKELY(type == call.common) || (call.rule == Rule::Part && type == call.common))
      continue;
    bool is_stored = c10::isFloat8Type(type) || c10::isFloat8Type(call.common); // which torch does not promote
    bool lossy = is_stored || c10::promoteTypes(type, call.common) != call.common;
    bool foreign_default = call.rule == Rule::Compare && c10::isIntegralType(type, true) &&
                           !c10::isIntegralType(call.common, true) && call.common != ScalarType::Float;
    if (!lossy && !foreign_default)
      continue;
    call.converted[i] = to_type(*tensor, call.common);
    call.tensors[i] = &call.converted[i];
  }
}

// torch rounds a number to the tensors' narrow type before comparing.
hr_scalar rounded_number(hr_scalar number, ScalarType common) {
  if (number.dtype != HR_DTYPE_F64 && number.dtype != HR_DTYPE_I64 && number.dtype != HR_DTYPE_U64)
    return number;
  float value = number.dtype == HR_DTYPE_I64   ? static_cast<float>(number.value.i)
                : number.dtype == HR_DTYPE_U64 ? static_cast<float>(number.value.u)
                                               : static_cast<float>(number.value.f[0]);
  switch (common) {
#define HEADRACE_CASE(type, name) \
  case ScalarType::name:          \
    return hr_scalar_f64(static_cast<float>(type(value)));
    HEADRACE_CASE(c10::Half, Half)
    HEADRACE_CASE(c10::BFloat16, BFloat16)
    AT_FORALL_FLOAT8_TYPES(HEADRACE_CASE)
#undef HEADRACE_CASE
    default:
      return number;
  }
}

bool divides(hr_op op) {
  return op == HR_OP_DIV_FLOOR || op == HR_OP_DIV_TRUNC || op == HR_OP_REMAINDER || op == HR_OP_FMOD;
}

// Integers have no infinity: torch rejects a zero divisor. One in a tensor is detected when the work runs.
void check_divisor(const Call &call) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::min(), kDivision = 3;
  if (call.tensors[1] == nullptr) {
    TORCH_CHECK(call.numbers[1].value.i != 0, "ZeroDivisionError");
  } else if (call.tensors[1]->numel() > 0) {
    Tensor worst = at::where(call.tensors[1]->eq(0), Scalar(int64_t{0}), Scalar(kNone)).to(ScalarType::Long).amax();
    Record(HR_OP_CHECK_INDEX).in(worst).ints({1, std::numeric_limits<int64_t>::max(), kDivision}).run();
  }
}

} // namespace

ScalarType promote(const Operand *operands, int count) {
  Call call;
  call.op = HR_OP_NONE;
  call.rule = Rule::Same;
  call.count = count;
  classify(call, operands);
  return call.common;
}

void check_kinds(Kinds kinds, const Operand *operands, int count) {
  ScalarType common = promote(operands, count);
  bool is_whole = c10::isIntegralType(common, /*includeBool=*/true);
  bool is_served = kinds == Kinds::Bits    ? is_whole
                   : kinds == Kinds::Whole ? is_whole && common != ScalarType::Bool
                                           : !c10::isComplexType(common);
  at::DimVector sizes; // mismatched sizes are reported first
  for (int i = 0; !is_served && i < count; ++i) {
    if (operands[i].tensor != nullptr)
      sizes = at::infer_size_dimvector(sizes, operands[i].tensor->sizes());
  }
  TORCH_CHECK_TYPE(is_served || kinds != Kinds::Real || !kSince215, "the operation is not implemented for '", common,
                   "'");
  TORCH_CHECK_NOT_IMPLEMENTED(is_served, "the operation is not implemented for '", common, "'");
}

Tensor new_pointwise(const Tensor &a, const Tensor &b, ScalarType type) {
  const Operand operands[] = {a, b};
  Call call;
  call.op = HR_OP_NONE;
  call.rule = Rule::Same;
  call.count = 2;
  classify(call, operands);
  find_sizes(call);
  call.wanted = type;
  return new_result(call);
}

Tensor pointwise_record(Result result, hr_op op, Rule rule, const Operand *operands, int count) {
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(count <= kMaxOperands);
  Call call;
  call.op = op;
  call.rule = rule;
  call.count = count;
  classify(call, operands);
  find_sizes(call);
  Tensor target;
  if (result.is_fresh()) {
    target = new_result(call);
  } else {
    check_target(call, result);
    target = result.tensor();
  }
  if (C10_UNLIKELY(target.numel() == 0))
    return target;
  convert_operands(call);
  if (C10_UNLIKELY(divides(op) && c10::isIntegralType(call.common, true)))
    check_divisor(call);
  Tensor other; // of the wanted type
  if (C10_UNLIKELY(!writes_directly(call, target.scalar_type())))
    other = new_like(target, call.wanted);
  const Tensor &written = other.defined() ? other : target;
  Record record(op);
  for (int i = 0; i < count; ++i) {
    if (call.tensors[i] == nullptr) {
      record.in(rule == Rule::Compare ? rounded_number(call.numbers[i], call.common) : call.numbers[i]);
    } else {
      record.in(*call.tensors[i], written.sizes());
    }
  }
  record.out(written).run();
  if (other.defined())
    copy_on_device(other, target);
  return target;
}

// ---- rows with special cases

static bool is_one(const Scalar &value) {
  return !value.isComplex() && value.toDouble() == 1;
}

static void check_alpha(const Tensor &self, const Tensor &other, const Scalar &alpha) {
  const Operand both[] = {self, other};
  ScalarType common = promote(both, 2);
  TORCH_CHECK(!alpha.isBoolean() || common == ScalarType::Bool, "Boolean alpha only supported for Boolean results.");
  TORCH_CHECK(c10::isFloatingType(common) || c10::isComplexType(common) || alpha.isIntegral(true),
              "For integral input tensors, argument alpha must not be a floating point number.");
  TORCH_CHECK(c10::isComplexType(common) || !alpha.isComplex(),
              "For non-complex input tensors, argument alpha must not be a complex number.");
  check_converts(alpha, common);
}

Tensor add(Result result, const Tensor &self, const Tensor &other, const Scalar &alpha) {
  if (C10_LIKELY(alpha.isIntegral(false) && alpha.toLong() == 1))
    return pointwise(result, HR_OP_ADD, Rule::Same, self, other);
  check_alpha(self, other, alpha);
  if (is_one(alpha))
    return pointwise(result, HR_OP_ADD, Rule::Same, self, other);
  return pointwise(result, HR_OP_ADD_SCALED, Rule::Same, self, other, fixed(alpha));
}

Tensor sub(Result result, const Tensor &self, const Tensor &other, const Scalar &alpha) {
  bool is_bool = self.scalar_type() == ScalarType::Bool, other_is_bool = other.scalar_type() == ScalarType::Bool;
  HEADRACE_CHECK_SERVED(!is_bool || !other_is_bool,
                        "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                        "`logical_xor()` operator instead.");
  HEADRACE_CHECK_SERVED(!is_bool && !other_is_bool,
                        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to "
                        "invert a mask, use the `~` or `logical_not()` operator instead.");
  if (C10_LIKELY(alpha.isIntegral(false) && alpha.toLong() == 1))
    return pointwise(result, HR_OP_SUB, Rule::Same, self, other);
  check_alpha(self, other, alpha.isBoolean() ? alpha : -alpha); // torch adds its negative
  if (is_one(alpha))
    return pointwise(result, HR_OP_SUB, Rule::Same, self, other);
  return pointwise(result, HR_OP_SUB_SCALED, Rule::Same, self, other, fixed(alpha));
}

Tensor div_mode(Result result, const Tensor &self, const Tensor &other, std::optional<std::string_view> mode) {
  if (!mode.has_value())
    return pointwise(result, HR_OP_DIV, Rule::Float, self, other);
  if (*mode == "trunc")
    return pointwise(result, HR_OP_DIV_TRUNC, Rule::Number, self, other);
  if (*mode == "floor")
    return pointwise(result, HR_OP_DIV_FLOOR, Rule::Number, self, other);
  TORCH_CHECK(false, "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '", *mode, "'");
}

Tensor addcdiv(Result result, const Tensor &self, const Tensor &tensor1, const Tensor &tensor2, const Scalar &value) {
  TORCH_CHECK(
      !c10::isIntegralType(tensor1.scalar_type(), true) || !c10::isIntegralType(tensor2.scalar_type(), true),
      "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true "
      "division of "
      "tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * torch.trunc(tensor1 / "
      "tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for float inputs. The "
      "future "
      "addcdiv behavior is just the latter implementation: (input + value * tensor1 / tensor2), for all dtypes.");
  return pointwise(result, HR_OP_ADDCDIV, Rule::Same, self, tensor1, tensor2, fixed(value));
}

// Exponents for which torch's own kernel uses a simpler operation, bit for bit.
static hr_op pow_shortcut(const Scalar &exponent) {
  if (exponent.isComplex() || exponent.isBoolean())
    return HR_OP_NONE;
  double value = exponent.toDouble();
  if (value == 2)
    return HR_OP_SQUARE;
  if (value == 0.5)
    return HR_OP_SQRT;
  if (value == -0.5)
    return HR_OP_RSQRT;
  if (value == -1)
    return HR_OP_RECIPROCAL;
  if (value == 1)
    return HR_OP_COPY;
  return HR_OP_NONE;
}

Tensor pow_scalar(Result result, const Tensor &self, const Scalar &exponent) {
  bool integral = c10::isIntegralType(self.scalar_type(), true);
  TORCH_CHECK(!(integral && exponent.isIntegral(true) && exponent.toLong() < 0),
              "Integers to negative integer powers are not allowed.");
  if (self.scalar_type() == ScalarType::Bool && exponent.isBoolean()) // to the power of false: true
    return pointwise(result, HR_OP_LOGICAL_OR, Rule::Logical, self, Scalar(!exponent.toBool()));
  const Operand both[] = {self, exponent};
  if (integral)
    check_converts(exponent, promote(both, 2));
  hr_op shortcut = pow_shortcut(exponent);
  if (shortcut == HR_OP_NONE || (integral && !exponent.isIntegral(true))) {
    return pointwise(result, HR_OP_POW, Rule::Number, self, exponent);
  }
  if (self.scalar_type() == ScalarType::Bool)
    return pointwise(result, HR_OP_POW, Rule::Number, self, exponent);
  return pointwise(result, shortcut, Rule::Same, self);
}

Tensor pow_of_number(Result result, const Scalar &self, const Tensor &exponent) {
  const Operand both[] = {self, exponent};
  return pointwise_row_major(result, exponent.sizes(), promote(both, 2), HR_OP_POW, Rule::Number, self, exponent);
}

Tensor neg(Result result, const Tensor &self) {
  TORCH_CHECK(self.scalar_type() != ScalarType::Bool,
              "Negation, the `-` operator, on a bool tensor is not supported. If you are trying "
              "to invert a mask, use the `~` or `logical_not()` operator instead.");
  return pointwise(result, HR_OP_NEG, Rule::Same, self);
}

Tensor abs(Result result, const Tensor &self) {
  TORCH_CHECK(!result.is_inplace() || !self.is_complex(), "In-place abs is not supported for complex tensors.");
  if (self.is_complex())
    return pointwise(result, HR_OP_ABS_COMPLEX, Rule::Part, self);
  if (self.scalar_type() == ScalarType::Bool) // as torch's CUDA device
    return pointwise(result.exact_if(true), HR_OP_COPY, Rule::Same, self);
  return pointwise(result.exact_if(true), HR_OP_ABS, Rule::Number, self);
}

Tensor relu(Result result, const Tensor &self) {
  TORCH_CHECK(self.scalar_type() != ScalarType::Bool, "Boolean inputs not supported for relu");
  return pointwise(result, HR_OP_RELU, Rule::Same, self);
}

Tensor hardtanh(Result result, const Tensor &self, const Scalar &min, const Scalar &max) {
  ScalarType type = self.scalar_type();
  HEADRACE_CHECK_SERVED(type != ScalarType::Bool, "Bool inputs not supported for hardtanh");
  if (c10::isIntegralType(type, false)) { // by the rules of clamp
    int64_t least = min.toLong(), most = max.toLong();
    TORCH_CHECK(kSince215 || type != ScalarType::Byte || (least >= 0 && most >= 0),
                "cannot do hardtanh on an unsigned type with negative limits");
    return clamp(result, self, std::optional<Scalar>(least), std::optional<Scalar>(most));
  }
  return pointwise(result, HR_OP_CLAMP, Rule::Same, self, fixed(min), fixed(max));
}

Tensor lerp(Result result, const Tensor &self, const Tensor &end, const Operand &weight) {
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isIntegralType(self.scalar_type(), true), "\"lerp_kernel\" not implemented for '",
                              self.scalar_type(), "'");
  TORCH_CHECK(self.scalar_type() == end.scalar_type(), "expected dtype ", self.scalar_type(),
              " for `end` but got dtype ", end.scalar_type());
  TORCH_CHECK(weight.tensor == nullptr || weight.tensor->dim() == 0 ||
                  weight.tensor->scalar_type() == self.scalar_type(),
              "expected dtype ", self.scalar_type(), " for `weight` but got dtype ",
              weight.tensor == nullptr ? self.scalar_type() : weight.tensor->scalar_type());
  bool is_tensor = weight.tensor != nullptr && weight.tensor->dim() > 0;
  return pointwise(result.exact_if(is_tensor), HR_OP_LERP, Rule::Same, self, end, weight);
}

Tensor isnan(Result result, const Tensor &self) {
  if (self.is_complex())
    return pointwise(result, HR_OP_NE, Rule::Compare, self, self);
  return pointwise(result, HR_OP_IS_NAN, Rule::Compare, self);
}

// The gradient of a complex number's absolute value.
Tensor sgn(Result result, const Tensor &self) {
  if (!self.is_complex())
    return pointwise(result, HR_OP_SIGN, Rule::Same, self);
  Tensor size = abs(Result::fresh(), self);
  Tensor is_zero = pointwise(Result::fresh(), HR_OP_EQ, Rule::Compare, size, Scalar(0));
  Tensor direction = pointwise(Result::fresh(), HR_OP_DIV, Rule::Float, self, size);
  return pointwise(result, HR_OP_WHERE, Rule::Where, is_zero, Scalar(0), direction);
}

Tensor bitwise_not(Result result, const Tensor &self) {
  if (self.scalar_type() == ScalarType::Bool)
    return pointwise(result, HR_OP_LOGICAL_NOT, Rule::Logical, self);
  return pointwise_of(Kinds::Bits, result, HR_OP_BIT_NOT, self);
}

static void check_gelu(std::string_view approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh", "approximate argument must be either none or tanh.");
}

Tensor gelu(Result result, const Tensor &self, std::string_view approximate) {
  check_gelu(approximate);
  return pointwise(result, approximate == "tanh" ? HR_OP_GELU_TANH : HR_OP_GELU, Rule::Same, self);
}

Tensor gelu_backward(Result result, const Tensor &grad, const Tensor &self, std::string_view approximate) {
  check_gelu(approximate);
  return pointwise(result, approximate == "tanh" ? HR_OP_GELU_TANH_BACKWARD : HR_OP_GELU_BACKWARD, Rule::Same, grad,
                   self);
}

Tensor softshrink(Result result, const Tensor &self, const Scalar &lambda) {
  TORCH_CHECK(lambda.toDouble() >= 0, "lambda must be in range [0, ", largest_of(self.scalar_type()),
              "] for input dtype ", self.scalar_type(), ", but found ", lambda.toDouble());
  return pointwise(result, HR_OP_SOFTSHRINK, Rule::Same, self, fixed(lambda));
}

// The derivative by a complex argument is conjugated.
static Tensor conj_slope(Result result, const Tensor &grad, const Tensor &slope) {
  return pointwise(result, HR_OP_MUL, Rule::Same, grad, pointwise(Result::fresh(), HR_OP_CONJ, Rule::Same, slope));
}

Tensor sigmoid_backward(Result result, const Tensor &grad, const Tensor &output) {
  if (!output.is_complex())
    return pointwise(result, HR_OP_SIGMOID_BACKWARD, Rule::Same, grad, output);
  Tensor rest = pointwise(Result::fresh(), HR_OP_SUB, Rule::Same, Scalar(1), output);
  return conj_slope(result, grad, pointwise(Result::fresh(), HR_OP_MUL, Rule::Same, rest, output));
}

Tensor tanh_backward(Result result, const Tensor &grad, const Tensor &output) {
  if (!output.is_complex())
    return pointwise(result, HR_OP_TANH_BACKWARD, Rule::Same, grad, output);
  Tensor square = pointwise(Result::fresh(), HR_OP_MUL, Rule::Same, output, output);
  return conj_slope(result, grad, pointwise(Result::fresh(), HR_OP_SUB, Rule::Same, Scalar(1), square));
}

Tensor elu_backward(Result result, const Tensor &grad, const Scalar &alpha, const Scalar &scale,
                    const Scalar &input_scale, bool is_result, const Tensor &x) {
  double slope = alpha.toDouble() * scale.toDouble(), inner = input_scale.toDouble();
  Result temporary = Result::fresh();
  Tensor factor; // where x <= 0
  if (is_result) {
    factor = pointwise(temporary, HR_OP_MUL, Rule::Same, pointwise(temporary, HR_OP_ADD, Rule::Same, x, Scalar(slope)),
                       Scalar(inner));
  } else {
    Tensor power =
        pointwise(temporary, HR_OP_EXP, Rule::Float, pointwise(temporary, HR_OP_MUL, Rule::Same, x, Scalar(inner)));
    factor = pointwise(temporary, HR_OP_MUL, Rule::Same, power, Scalar(inner * slope));
  }
  Tensor below = pointwise(temporary, HR_OP_LE, Rule::Compare, x, Scalar(0));
  Tensor slopes = pointwise(temporary, HR_OP_WHERE, Rule::Where, below, factor, scale);
  return pointwise(result, HR_OP_MUL, Rule::Same, grad, slopes);
}

static bool is_nan(const Scalar &value) {
  return value.isFloatingPoint() && std::isnan(value.toDouble());
}

// The least and the greatest number of a small integer type.
static std::optional<std::pair<int64_t, int64_t>> small_range(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
      return {{0, 255}};
    case ScalarType::Char:
      return {{-128, 127}};
    case ScalarType::Short:
      return {{-32768, 32767}};
    case ScalarType::Int:
      return {{std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}};
    default:
      return std::nullopt;
  }
}

// A bound for integers. Up to torch 2.14 it is converted, so that -1 is 255 for uint8, or refused. Since then one
// beyond the type's range bounds nothing, and is refused where it would leave no number.
static Scalar bound_of(const Scalar &bound, bool is_min, ScalarType type) {
  auto range = small_range(type);
  if (!kSince215 || !range.has_value() || !bound.isIntegral(/*includeBool=*/true)) {
    check_converts(bound, type);
    return bound;
  }
  int64_t value = bound.toLong(), nearest = std::clamp(value, range->first, range->second);
  bool leaves_none = is_min ? nearest < value : nearest > value;
  TORCH_CHECK(!leaves_none, "Clamp ", is_min ? "min" : "max", " value ", static_cast<double>(value),
              " is outside the representable range of ", type);
  return nearest;
}

Tensor clamp(Result result, const Tensor &self, const std::optional<Scalar> &lower,
             const std::optional<Scalar> &upper) {
  std::optional<Scalar> min = lower, max = upper;
  TORCH_CHECK(min.has_value() || max.has_value(), "torch.clamp: At least one of 'min' or 'max' must not be None");
  const Operand all[] = {self, min.has_value() ? *min : *max, max.has_value() ? *max : *min};
  ScalarType common = promote(all, 3);
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isComplexType(common), "clamp is not supported for complex types");
  if (common != ScalarType::Bool && !is_nan(min.value_or(0)) && !is_nan(max.value_or(0))) {
    if (min.has_value())
      min = bound_of(*min, true, common);
    if (max.has_value())
      max = bound_of(*max, false, common);
  }
  if (!max.has_value())
    return pointwise(result, HR_OP_MAXIMUM, Rule::Number, self, *min);
  if (!min.has_value())
    return pointwise(result, HR_OP_MINIMUM, Rule::Number, self, *max);
  if (is_nan(*min) || is_nan(*max))
    return pointwise(result, HR_OP_MAXIMUM, Rule::Number, self, is_nan(*min) ? *min : *max);
  return pointwise(result, HR_OP_CLAMP, Rule::Number, self, *min, *max);
}

// The dtype in which torch computes 2**exponent: its 2 has self's dtype and no dims; for float32 it is a number.
static ScalarType type_of_power(const Tensor &self, const Tensor &exponent) {
  ScalarType own = self.scalar_type(), type = exponent.scalar_type();
  if ((exponent.dim() == 0 && own != ScalarType::Float) || c10::isIntegralType(type, /*includeBool=*/true))
    type = c10::promoteTypes(own, type);
  else if (c10::isComplexType(own))
    type = c10::toComplexType(type);
  return type == ScalarType::ComplexHalf ? ScalarType::ComplexFloat : type;
}

// Some versions of torch require a kernel of the device here. The power of an integer is multiplied in three parts,
// none of which overflows, so that zeros and small numbers are right.
Tensor ldexp(Result result, const Tensor &self, const Tensor &other) {
  const Operand both[] = {self, other};
  ScalarType common = promote(both, 2);
  if (c10::isIntegralType(common, /*includeBool=*/true))
    common = c10::get_default_dtype_as_scalartype();
  ScalarType type = is_half(common) ? ScalarType::Float : common;
  Result fresh = Result::fresh();
  auto power_of = [&](const Tensor &exponent) { return pow_of_number(fresh, Scalar(2.0), exponent); };
  if (c10::isComplexType(type) || !c10::isIntegralType(other.scalar_type(), /*includeBool=*/true)) {
    bool is_fresh_half = result.is_fresh() && is_half(self.scalar_type());
    Tensor out = is_fresh_half ? new_pointwise(self, other, common) : Tensor();
    return pointwise(is_fresh_half ? Result::out(out) : result, HR_OP_MUL, Rule::Same, self,
                     power_of(to_type(other, type_of_power(self, other))));
  }
  int64_t part = type == ScalarType::Double ? 1000 : 120;
  Tensor exponent = pointwise(fresh, HR_OP_CLAMP, Rule::Same, to_type(other, ScalarType::Long), -3 * part, 3 * part);
  Tensor third = pointwise(fresh, HR_OP_DIV_TRUNC, Rule::Number, exponent, int64_t{3});
  Tensor rest = pointwise(fresh, HR_OP_SUB_SCALED, Rule::Same, exponent, third, int64_t{2});
  Tensor power = power_of(to_type(third, type)), product = to_type(self, type);
  for (const Tensor &factor : {power, power, power_of(to_type(rest, type))})
    product = pointwise(fresh, HR_OP_MUL, Rule::Same, product, factor);
  if (!result.is_fresh() || !c10::isFloatingType(self.scalar_type())) // torch multiplies integers by a power, too
    return pointwise(result, HR_OP_COPY, Rule::Same, to_type(product, common));
  Tensor out = new_pointwise(self, other, common);
  return pointwise(Result::out(out), HR_OP_COPY, Rule::Same, product);
}

Tensor threshold(Result result, const Tensor &self, const Scalar &threshold, const Scalar &value) {
  check_converts(threshold, self.scalar_type());
  check_converts(value, self.scalar_type());
  return pointwise(result, HR_OP_THRESHOLD, Rule::Number, self, fixed(threshold), fixed(value));
}

Tensor clamp(Result result, const Tensor &self, const OptionalTensor &min, const OptionalTensor &max) {
  bool has_min = min.has_value() && min->defined(), has_max = max.has_value() && max->defined();
  TORCH_CHECK(has_min || has_max, "torch.clamp: At least one of 'min' or 'max' must not be None");
  if (!has_max)
    return pointwise(result, HR_OP_MAXIMUM, Rule::Same, self, *min);
  if (!has_min)
    return pointwise(result, HR_OP_MINIMUM, Rule::Same, self, *max);
  const Operand all[] = {self, *min, *max};
  Tensor bounded = pointwise(Result::fresh(), HR_OP_MAXIMUM, Rule::Same, to_type(self, promote(all, 3)), *min);
  return pointwise(result, HR_OP_MINIMUM, Rule::Same, bounded, *max);
}

Tensor where(Result result, const Tensor &condition, const Tensor &self, const Tensor &other) {
  TORCH_CHECK(condition.scalar_type() == ScalarType::Bool || condition.scalar_type() == ScalarType::Byte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ", condition.scalar_type());
  return pointwise(result, HR_OP_WHERE, Rule::Where, condition, self, other);
}

template <class Value>
static Tensor masked_fill_any(Result result, const Tensor &self, const Tensor &mask, const Value &value) {
  TORCH_CHECK(mask.scalar_type() == ScalarType::Bool,
              "masked_fill_ only supports boolean masks, but got mask with dtype ", mask.scalar_type());
  Operand operand(value);
  operand.promotes = false;
  at::DimVector sizes = at::infer_size_dimvector(self.sizes(), mask.sizes());
  return pointwise_row_major(result, sizes, self.scalar_type(), HR_OP_WHERE, Rule::Where, mask, operand, self);
}

Tensor masked_fill(Result result, const Tensor &self, const Tensor &mask, const Scalar &value) {
  check_converts(value, self.scalar_type());
  return masked_fill_any(result, self, mask, value);
}

Tensor masked_fill(Result result, const Tensor &self, const Tensor &mask, const Tensor &value) {
  TORCH_CHECK(value.dim() == 0, "masked_fill only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  if (value.device().is_cpu() || (value.is_complex() && !self.is_complex()))
    check_converts(value.item(), self.scalar_type());
  return masked_fill_any(result, self, mask, value);
}

Tensor fill_tensor(const Tensor &self, const Tensor &value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  if (self.numel() == 0)
    return self;
  at::assert_no_internal_overlap(self);
  Record record(HR_OP_COPY);
  if (is_on_device(value))
    record.in(value, self.sizes());
  else
    record.in(number_of(value));
  record.out(self).run();
  return self;
}

} // namespace headrace
