// foreach.cpp: element-wise operations over lists of tensors (the optimizers' updates), in one record if the lists
// allow it instead of one per tensor; the fused optimizers; and the operators of torch.amp.GradScaler.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/core/TensorImpl.h>

#include "kernels.h"

namespace headrace {
namespace {

const int64_t kZeros[HR_RANK_MAX] = {};

void check_sizes(const ListOperand *operands, int count, size_t size) {
  for (int i = 0; i < count; ++i) {
    const ListOperand &operand = operands[i];
    TORCH_CHECK(operand.kind != ListOperand::Tensors || operand.tensors.size() == size,
                "Tensor lists must have the same number of tensors, got ", size, " and ", operand.tensors.size());
    TORCH_CHECK(operand.kind != ListOperand::Numbers || operand.numbers.size() == size,
                "Tensor list must have same number of elements as scalar list, got ", size, " and ",
                operand.numbers.size());
  }
}

size_t list_size(const ListOperand *operands, int count) {
  for (int i = 0; i < count; ++i) {
    if (operands[i].kind == ListOperand::Tensors)
      return operands[i].tensors.size();
  }
  return 0;
}

// True if one record can serve the lists: tensors of one floating dtype, with the sizes of their partners in the first
// list, and numbers that do not change the dtype.
bool fits_one_record(hr_op op, const ListOperand *operands, int count, size_t size) {
  if (operands[0].kind != ListOperand::Tensors || size == 0)
    return false;
  TensorList first = operands[0].tensors;
  ScalarType type = first[0].scalar_type();
  if (!c10::isFloatingType(type) || op == HR_OP_NONE)
    return false;
  for (int i = 0; i < count; ++i) {
    const ListOperand &operand = operands[i];
    if (operand.kind == ListOperand::Numbers) {
      for (const Scalar &number : operand.numbers) {
        if (number.isComplex())
          return false;
      }
      continue;
    }
    if (operand.kind == ListOperand::One) {
      if (operand.one.tensor == nullptr) {
        if (operand.one.number.dtype == HR_DTYPE_C128)
          return false;
      } else if (operand.one.tensor->dim() != 0 || operand.one.tensor->is_complex()) {
        return false;
      }
      continue;
    }
    for (size_t k = 0; k < size; ++k) {
      const Tensor &tensor = operand.tensors[k];
      bool fits = is_on_device(tensor) && tensor.scalar_type() == type && tensor.numel() > 0 &&
                  tensor.dim() <= HR_RANK_MAX && !tensor.is_conj() && !tensor.is_neg() &&
                  tensor.sizes().equals(first[k].sizes());
      if (!fits)
        return false;
    }
  }
  return true;
}

// Views of many tensors for one record. The thread keeps the vectors, so that a step allocates nothing.
class ListRecord {
public:
  ListRecord() {
    static thread_local std::vector<hr_view> views;
    static thread_local std::vector<hr_scalar> numbers;
    views_ = &views, numbers_ = &numbers;
    views.clear(), numbers.clear();
  }
  ~ListRecord() {
    for (hr_buffer *buffer : retained_)
      hr_buffer_release(buffer);
  }
  void reserve(size_t views, size_t numbers) {
    views_->reserve(views);
    numbers_->reserve(numbers); // views point into it
  }
  void tensor(const Tensor &tensor) {
    add(tensor, tensor.sizes().data(), tensor.strides().data(), tensor.dim());
  }
  void tensors(TensorList list) {
    for (const Tensor &one : list)
      tensor(one);
  }
  void broadcast(const Tensor &number, const Tensor &like) {
    add(number, like.sizes().data(), kZeros, like.dim());
  }
  void number(hr_scalar number) {
    numbers_->push_back(number);
    hr_view view{};
    view.scalar = &numbers_->back();
    view.dtype = number.dtype;
    views_->push_back(view);
  }
  void optional(const OptionalTensor &value) {
    if (value.has_value() && value->defined())
      tensor(*value);
    else
      views_->push_back(hr_view{});
  }
  void end_inputs() {
    input_count_ = views_->size();
  }
  void run(hr_op op, const hr_attrs &attrs) {
    if (C10_UNLIKELY(device_runs_beside.load(std::memory_order_relaxed)))
      hint_pass();
    check(hr_stream_record(stream(), op, &attrs, static_cast<int>(input_count_), views_->data(),
                           static_cast<int>(views_->size() - input_count_), views_->data() + input_count_));
  }

private:
  void add(const Tensor &tensor, const int64_t *sizes, const int64_t *strides, int64_t rank) {
    if (!is_here(tensor))
      fail_device(tensor);
    int64_t offset_bytes;
    bool retained;
    hr_view view{};
    view.buffer = buffer_of(tensor, &offset_bytes, &retained);
    if (retained)
      retained_.push_back(view.buffer);
    view.dtype = dtype_of(tensor.scalar_type());
    view.rank = static_cast<int>(rank);
    view.offset = tensor.storage_offset() + offset_bytes / static_cast<int64_t>(tensor.itemsize());
    view.dims = sizes, view.strides = strides;
    views_->push_back(view);
  }
  std::vector<hr_view> *views_;
  std::vector<hr_scalar> *numbers_;
  std::vector<hr_buffer *> retained_;
  size_t input_count_ = 0;
};

} // namespace

// torch counts writes to a tensor in front of a kernel, but those to lists are left to it. autograd refuses saved
// values that were written since.
static void count_writes(TensorList written) {
  for (const Tensor &tensor : written)
    tensor.unsafeGetTensorImpl()->bump_version(); // refuses those of inference mode outside of it
}

// Fails if a written tensor has some elements in common with one that is read at other positions.
static void check_overlaps(TensorList written, const ListOperand *operands, int count) {
  for (int i = 0; i < count; ++i) {
    const ListOperand &operand = operands[i];
    for (size_t k = 0; k < written.size(); ++k) {
      if (operand.kind == ListOperand::Tensors)
        at::assert_no_partial_overlap(written[k], operand.tensors[k]);
      else if (operand.kind == ListOperand::One && operand.one.tensor != nullptr)
        at::assert_no_partial_overlap(written[k], *operand.one.tensor);
    }
  }
}

std::vector<Tensor> foreach_record(ListResult result, hr_op op, Rule rule, const ListOperand *operands, int count) {
  size_t size = list_size(operands, count);
  TORCH_CHECK(size > 0, "Tensor list must have at least one tensor.");
  check_sizes(operands, count, size);
  std::vector<Tensor> made;
  count_writes(result.self());
  if (!fits_one_record(op, operands, count, size)) {
    for (size_t k = 0; k < size; ++k) {
      Operand each[6];
      for (int i = 0; i < count; ++i) {
        const ListOperand &operand = operands[i];
        if (operand.kind == ListOperand::Tensors)
          each[i] = Operand(operand.tensors[k]);
        else if (operand.kind == ListOperand::Numbers)
          each[i] = Operand(operand.numbers[k]);
        else
          each[i] = operand.one;
      }
      Result place = result.is_fresh() ? Result::fresh() : Result::inplace(result.self()[k]);
      Tensor value = pointwise_record(place, op, rule, each, count);
      if (result.is_fresh())
        made.push_back(value);
    }
    return made;
  }
  TensorList first = operands[0].tensors;
  if (result.is_fresh()) {
    made.reserve(size);
    for (size_t k = 0; k < size; ++k)
      made.push_back(new_like(first[k]));
  } else {
    check_overlaps(result.self(), operands, count);
  }
  ListRecord record;
  record.reserve(size * (count + 1), size * count);
  Tensor converted[6];
  for (int i = 0; i < count; ++i) {
    const ListOperand &operand = operands[i];
    if (operand.kind == ListOperand::Tensors) {
      record.tensors(operand.tensors);
      continue;
    }
    bool is_tensor = operand.kind == ListOperand::One && operand.one.tensor != nullptr;
    bool on_device = is_tensor && is_on_device(*operand.one.tensor);
    if (on_device)
      converted[i] = to_type(*operand.one.tensor, first[0].scalar_type());
    for (size_t k = 0; k < size; ++k) {
      if (on_device)
        record.broadcast(converted[i], first[k]);
      else if (is_tensor)
        record.number(number_of(*operand.one.tensor));
      else
        record.number(operand.kind == ListOperand::Numbers ? number_of(operand.numbers[k]) : operand.one.number);
    }
  }
  record.end_inputs();
  record.tensors(result.is_fresh() ? TensorList(made) : result.self());
  record.run(op, hr_attrs{});
  return made;
}

static bool is_one(const Scalar &value) {
  return !value.isComplex() && value.toDouble() == 1;
}

std::vector<Tensor> foreach_add(ListResult result, TensorList self, TensorList other, const Scalar &alpha) {
  if (is_one(alpha))
    return foreach (result, HR_OP_ADD, Rule::Same, self, other);
  return foreach (result, HR_OP_ADD_SCALED, Rule::Same, self, other, alpha);
}

std::vector<Tensor> foreach_add(ListResult result, TensorList self, const Tensor &other, const Scalar &alpha) {
  TORCH_CHECK(other.dim() == 0 && other.numel() == 1, "scalar tensor expected to be 0 dim but it has ", other.dim(),
              " dimensions and ", other.numel(), " elements.");
  if (is_one(alpha))
    return foreach (result, HR_OP_ADD, Rule::Same, self, other);
  return foreach (result, HR_OP_ADD_SCALED, Rule::Same, self, other, alpha);
}

std::vector<Tensor> foreach_sub(ListResult result, TensorList self, TensorList other, const Scalar &alpha) {
  if (is_one(alpha))
    return foreach (result, HR_OP_SUB, Rule::Same, self, other);
  return foreach (result, HR_OP_SUB_SCALED, Rule::Same, self, other, alpha);
}

std::vector<Tensor> foreach_pow(ListResult result, TensorList self, const Scalar &exponent) {
  bool square = !exponent.isComplex() && exponent.toDouble() == 2;
  if (square)
    return foreach (result, HR_OP_SQUARE, Rule::Same, self);
  return foreach (result, HR_OP_POW, Rule::Same, self, exponent);
}

std::vector<Tensor> foreach_norm(TensorList self, const Scalar &ord, std::optional<ScalarType> dtype) {
  std::vector<Tensor> norms;
  norms.reserve(self.size());
  for (const Tensor &tensor : self)
    norms.push_back(norm(Result::fresh(), tensor, ord, std::nullopt, false, dtype));
  return norms;
}

std::vector<Scalar> numbers_of(const Tensor &cpu_numbers) {
  TORCH_CHECK(cpu_numbers.device().is_cpu(), "Expected scalars to be on CPU, got ", cpu_numbers.device(), " instead.");
  TORCH_CHECK(cpu_numbers.is_contiguous() && cpu_numbers.dim() == 1, "Expected scalars to be a contiguous vector.");
  std::vector<Scalar> numbers;
  for (int64_t i = 0; i < cpu_numbers.numel(); ++i)
    numbers.push_back(cpu_numbers.select(0, i).item());
  return numbers;
}

void foreach_zero(TensorList self) {
  if (self.empty())
    return;
  count_writes(self);
  for (const Tensor &tensor : self)
    fill_with(tensor, 0);
}

void foreach_copy(TensorList self, TensorList from) {
  const ListOperand operands[] = {self, from};
  check_sizes(operands, 2, self.size());
  const ListOperand sources[] = {from};
  bool same = fits_one_record(HR_OP_COPY, operands, 2, self.size());
  if (same)
    foreach_record(ListResult::inplace(self), HR_OP_COPY, Rule::Same, sources, 1);
  for (size_t k = 0; k < self.size() && !same; ++k)
    self[k].copy_(from[k]);
}

// ---- loss scaling

static void check_one(const char *name, const Tensor &tensor, ScalarType type) {
  TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
  TORCH_CHECK(tensor.scalar_type() == type, name, " must be of dtype ", type, ", not ", tensor.scalar_type());
}

// Sets found_inf to 1 if a gradient is infinite or NaN: its largest magnitude is then not below infinity.
static void check_finite(TensorList grads, const Tensor &found_inf) {
  const Scalar infinity(std::numeric_limits<double>::infinity());
  std::vector<Tensor> largest = foreach_norm(grads, infinity, std::nullopt);
  for (Tensor &one : largest)
    one = one.view({1});
  Tensor all = extreme(Result::fresh(), HR_OP_AMAX, cat(Result::fresh(), TensorList(largest), 0), std::nullopt, false);
  Tensor finite = pointwise(Result::fresh(), HR_OP_LT, Rule::Compare, all, infinity);
  pointwise(Result::inplace(found_inf), HR_OP_WHERE, Rule::Where, finite, found_inf, Scalar(1.0));
}

void amp_unscale(TensorList scaled_grads, const Tensor &found_inf, const Tensor &inv_scale) {
  if (scaled_grads.empty())
    return;
  check_one("found_inf", found_inf, ScalarType::Float);
  check_one("inv_scale", inv_scale, ScalarType::Float);
  std::vector<Tensor> grads;
  for (const Tensor &grad : scaled_grads) {
    TORCH_CHECK(is_here(grad), "one of scaled_grads is not on ", here(), " but on ", grad.device());
    if (grad.numel() > 0)
      grads.push_back(grad);
  }
  if (grads.empty())
    return;
  check_finite(grads, found_inf);
  const ListOperand list[] = {TensorList(grads)};
  if (!fits_one_record(HR_OP_MUL, list, 1, grads.size())) {
    for (const Tensor &grad : grads)
      pointwise(Result::inplace(grad), HR_OP_MUL, Rule::Same, grad, inv_scale.view({}));
    return;
  }
  ListRecord record; // the scale stays float32: half-precision gradients are multiplied in float32
  record.reserve(grads.size() * 3, 0);
  record.tensors(grads);
  for (const Tensor &grad : grads)
    record.broadcast(inv_scale, grad);
  record.end_inputs();
  record.tensors(grads);
  record.run(HR_OP_MUL, hr_attrs{});
}

// The scale shrinks if a gradient overflowed, and grows after `interval` steps in a row without overflow, while it is
// finite. The products are rounded once, from float64, as in torch.
Tensor amp_update_scale(const Tensor &scale, const Tensor &growth_tracker, const Tensor &found_inf, double growth,
                        double backoff, int64_t interval) {
  check_one("growth_tracker", growth_tracker, ScalarType::Int);
  check_one("current_scale", scale, ScalarType::Float);
  check_one("found_inf", found_inf, ScalarType::Float);
  Result fresh = Result::fresh();
  Tensor exact = to_type(scale, ScalarType::Double);
  Tensor shrunk = to_type(pointwise(fresh, HR_OP_MUL, Rule::Same, exact, Scalar(backoff)), ScalarType::Float);
  Tensor grown = to_type(pointwise(fresh, HR_OP_MUL, Rule::Same, exact, Scalar(growth)), ScalarType::Float);
  Tensor found = pointwise(fresh, HR_OP_NE, Rule::Compare, found_inf, Scalar(0));
  Tensor steps = pointwise(fresh, HR_OP_ADD, Rule::Same, growth_tracker, Scalar(1));
  Tensor due = pointwise(fresh, HR_OP_EQ, Rule::Compare, steps, Scalar(interval));
  Tensor finite = pointwise(fresh, HR_OP_LT, Rule::Compare, grown, Scalar(std::numeric_limits<double>::infinity()));
  Tensor grows = pointwise(fresh, HR_OP_LOGICAL_AND, Rule::Logical, due, finite);
  Tensor kept = pointwise(fresh, HR_OP_WHERE, Rule::Where, grows, grown, scale);
  pointwise(Result::inplace(scale), HR_OP_WHERE, Rule::Where, found, shrunk, kept);
  Tensor ends = pointwise(fresh, HR_OP_LOGICAL_OR, Rule::Logical, found, due);
  pointwise(Result::inplace(growth_tracker), HR_OP_WHERE, Rule::Where, ends, Scalar(0), steps);
  return scale;
}

// ---- fused optimizers

static void check_lists(const char *name, size_t size, std::initializer_list<TensorList> lists) {
  for (TensorList list : lists) {
    TORCH_CHECK(list.size() == size, name, ": lists have ", size, " and ", list.size(), " tensors");
  }
}

void fused_adam(bool decoupled, TensorList params, TensorList grads, TensorList means, TensorList squares,
                TensorList max_squares, TensorList steps, const Operand &lr, double beta1, double beta2,
                double weight_decay, double eps, bool amsgrad, bool maximize, const OptionalTensor &grad_scale,
                const OptionalTensor &found_inf) {
  size_t size = params.size();
  if (size == 0)
    return;
  check_lists("fused adam", size, {grads, means, squares, steps});
  if (amsgrad)
    check_lists("fused adam", size, {max_squares});
  bool lr_on_device = lr.tensor != nullptr && is_on_device(*lr.tensor);
  hr_scalar rate = lr.tensor == nullptr ? lr.number : lr_on_device ? hr_scalar_f64(0) : number_of(*lr.tensor);
  ListRecord record;
  record.reserve(size * 6 + 3, size);
  record.tensors(grads);
  for (const Tensor &step : steps) {
    if (is_on_device(step))
      record.tensor(step);
    else
      record.number(number_of(step));
  }
  record.optional(lr_on_device ? OptionalTensor(*lr.tensor) : OptionalTensor());
  record.optional(grad_scale);
  record.optional(found_inf);
  record.end_inputs();
  record.tensors(params);
  record.tensors(means);
  record.tensors(squares);
  if (amsgrad)
    record.tensors(max_squares);
  const int64_t ints[] = {decoupled, maximize, amsgrad};
  const hr_scalar scalars[] = {rate, hr_scalar_f64(beta1), hr_scalar_f64(beta2), hr_scalar_f64(weight_decay),
                               hr_scalar_f64(eps)};
  record.run(HR_OP_ADAM, hr_attrs{3, 5, ints, scalars});
}

void fused_sgd(TensorList params, TensorList grads, TensorList momenta, double weight_decay, double momentum,
               const Operand &lr, double dampening, bool nesterov, bool maximize, bool is_first,
               const OptionalTensor &grad_scale, const OptionalTensor &found_inf) {
  size_t size = params.size();
  if (size == 0)
    return;
  check_lists("fused sgd", size, {grads});
  if (!momenta.empty())
    check_lists("fused sgd", size, {momenta});
  bool lr_on_device = lr.tensor != nullptr && is_on_device(*lr.tensor);
  hr_scalar rate = lr.tensor == nullptr ? lr.number : lr_on_device ? hr_scalar_f64(0) : number_of(*lr.tensor);
  ListRecord record;
  record.reserve(size * 3 + 3, 0);
  record.tensors(grads);
  record.optional(lr_on_device ? OptionalTensor(*lr.tensor) : OptionalTensor());
  record.optional(grad_scale);
  record.optional(found_inf);
  record.end_inputs();
  record.tensors(params);
  record.tensors(momenta);
  const int64_t ints[] = {nesterov, maximize, is_first, !momenta.empty()};
  const hr_scalar scalars[] = {hr_scalar_f64(weight_decay), hr_scalar_f64(momentum), rate, hr_scalar_f64(dampening)};
  record.run(HR_OP_SGD, hr_attrs{4, 4, ints, scalars});
}

} // namespace headrace
