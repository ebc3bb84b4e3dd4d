// elementwise.cpp: kernels, their variants and their records. See elementwise.h.
//
// A variant is for one form of the operands: dtypes, sizes, strides, and which of them are numbers. The first call with
// a form records the rows one by one; from the second on they are captured, and a call appends them to the stream.
#include "elementwise.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace headrace {

namespace {

// A bad text is a ValueError.
void check_text(hr_status status) {
  if (C10_LIKELY(status == nullptr))
    return;
  if (hr_status_code_of(status) != HR_STATUS_INVALID_ARGUMENT)
    fail(status);
  std::string message = std::string("elementwise: ") + hr_status_message(status);
  hr_status_free(status);
  TORCH_CHECK_VALUE(false, message);
}

constexpr size_t kKernelVariantsMax = 64, kKernelsMax = 512;

Kernel::Variable describe_variable(const hr_expression_variable &variable) {
  ScalarType type = scalar_type_of(variable.dtype);
  bool is_floating = type == ScalarType::Undefined || c10::isFloatingType(type);
  return {variable.name, variable.dtype, type, variable.is_used, is_floating};
}

} // namespace

KernelOperand::KernelOperand(const Scalar &value) : number(number_of(value)) {
  number_type = value.isBoolean()         ? ScalarType::Bool
                : value.isFloatingPoint() ? ScalarType::Double
                : value.isComplex()       ? ScalarType::ComplexDouble
                                          : ScalarType::Long;
}

// ---- kernels

Kernel::~Kernel() {
  hr_expression_release(expression);
}

namespace {

void describe_kernel(Kernel &kernel) {
  for (int i = 0; i < hr_expression_input_count(kernel.expression); ++i)
    kernel.inputs.push_back(describe_variable(hr_expression_input(kernel.expression, i)));
  for (int i = 0; i < hr_expression_output_count(kernel.expression); ++i) {
    kernel.outputs.push_back(describe_variable(hr_expression_output(kernel.expression, i)));
    kernel.given_outputs |= kernel.outputs.back().is_used ? uint64_t{1} << i : 0;
  }
}

// True if some dtype of T gives the expression a meaning.
void check_types(const Kernel &kernel) {
  hr_status status = nullptr;
  for (hr_dtype t : {HR_DTYPE_I64, HR_DTYPE_F32}) { // the last one's error is reported
    hr_status_free(status);
    status = hr_expression_check(kernel.expression, t);
    if (status == nullptr)
      return;
  }
  check_text(status);
}

std::shared_ptr<Kernel> make_kernel(const std::string &text, const std::string &signature,
                                    const std::optional<std::string> &backward) {
  auto kernel = std::make_shared<Kernel>();
  kernel->text = text, kernel->signature = signature, kernel->backward = backward;
  check_text(hr_expression_parse(text.c_str(), signature.c_str(), &kernel->expression));
  describe_kernel(*kernel);
  check_types(*kernel);
  if (backward.has_value())
    gradient_of(*kernel); // so that its errors are reported now
  return kernel;
}

struct Kernels {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<Kernel>> by_text;
};

Kernels &all_kernels() {
  static Kernels *kernels = new Kernels; // never destroyed: streams may outlive static objects
  return *kernels;
}

// Keeps the table bounded: kernels that nobody else holds go first.
void make_room(Kernels &kernels) {
  if (kernels.by_text.size() < kKernelsMax)
    return;
  std::erase_if(kernels.by_text, [](const auto &entry) { return entry.second.use_count() == 1; });
  if (kernels.by_text.size() >= kKernelsMax)
    kernels.by_text.erase(kernels.by_text.begin());
}

} // namespace

std::shared_ptr<Kernel> gradient_of(Kernel &kernel) {
  std::lock_guard<std::mutex> lock(kernel.mutex);
  if (kernel.gradient != nullptr)
    return kernel.gradient;
  auto gradient = std::make_shared<Kernel>();
  gradient->text = kernel.text, gradient->signature = kernel.signature, gradient->backward = kernel.backward;
  gradient->order = kernel.order + 1;
  const char *text = kernel.order == 0 && kernel.backward.has_value() ? kernel.backward->c_str() : nullptr;
  check_text(hr_expression_gradient(kernel.expression, text, &gradient->expression));
  describe_kernel(*gradient);
  if (text != nullptr)
    check_types(*gradient);
  return kernel.gradient = gradient;
}

std::shared_ptr<Kernel> find_kernel(const std::string &text, const std::string &signature,
                                    const std::optional<std::string> &backward, int64_t order) {
  std::string key = text + '\0' + signature + '\0' + (backward.has_value() ? "1" + *backward : "0");
  std::shared_ptr<Kernel> kernel;
  Kernels &kernels = all_kernels();
  {
    std::lock_guard<std::mutex> lock(kernels.mutex);
    auto found = kernels.by_text.find(key);
    kernel = found != kernels.by_text.end() ? found->second : nullptr;
  }
  if (kernel == nullptr) {
    kernel = make_kernel(text, signature, backward);
    std::lock_guard<std::mutex> lock(kernels.mutex);
    make_room(kernels);
    kernel = kernels.by_text.try_emplace(key, kernel).first->second;
  }
  TORCH_CHECK_VALUE(order >= 0 && order <= 16, "elementwise: expected an order of derivatives from 0 to 16, found ",
                    order);
  for (; order > 0; --order)
    kernel = gradient_of(*kernel);
  return kernel;
}

// ---- numbers and dtypes

namespace {

template <class Integer> bool holds(const hr_scalar &number) {
  if (number.dtype == HR_DTYPE_U64)
    return std::is_same_v<Integer, uint64_t>;
  if constexpr (std::is_same_v<Integer, uint64_t>)
    return number.value.i >= 0;
  else
    return number.value.i >= static_cast<int64_t>(std::numeric_limits<Integer>::min()) &&
           number.value.i <= static_cast<int64_t>(std::numeric_limits<Integer>::max());
}

bool holds(hr_dtype dtype, const hr_scalar &number) {
  switch (dtype) {
    case HR_DTYPE_U8:
      return holds<uint8_t>(number);
    case HR_DTYPE_I8:
      return holds<int8_t>(number);
    case HR_DTYPE_U16:
      return holds<uint16_t>(number);
    case HR_DTYPE_I16:
      return holds<int16_t>(number);
    case HR_DTYPE_U32:
      return holds<uint32_t>(number);
    case HR_DTYPE_I32:
      return holds<int32_t>(number);
    case HR_DTYPE_U64:
      return holds<uint64_t>(number);
    default:
      return holds<int64_t>(number);
  }
}

double real_of(const hr_scalar &number) {
  return number.dtype == HR_DTYPE_F64   ? number.value.f[0]
         : number.dtype == HR_DTYPE_U64 ? static_cast<double>(number.value.u)
                                        : static_cast<double>(number.value.i);
}

// The number as an element of the dtype, in its kind; throws if it is none.
hr_scalar number_as(const Kernel::Variable &input, hr_dtype dtype, const hr_scalar &number) {
  TORCH_CHECK_TYPE(number.dtype != HR_DTYPE_C128, "elementwise: input ", input.name, ": expected a real number");
  switch (dtype) {
    case HR_DTYPE_F64:
      return hr_scalar_f64(real_of(number));
    case HR_DTYPE_F32:
      return hr_scalar_f64(static_cast<float>(real_of(number)));
    case HR_DTYPE_F16:
      return hr_scalar_f64(static_cast<float>(c10::Half(static_cast<float>(real_of(number)))));
    case HR_DTYPE_BF16:
      return hr_scalar_f64(static_cast<float>(c10::BFloat16(static_cast<float>(real_of(number)))));
    default:
      break;
  }
  TORCH_CHECK_TYPE(number.dtype != HR_DTYPE_F64, "elementwise: input ", input.name, " is ", hr_dtype_name(dtype),
                   ": expected an integer, found ", number.value.f[0]);
  if (dtype == HR_DTYPE_BOOL) {
    TORCH_CHECK_TYPE(number.dtype == HR_DTYPE_BOOL, "elementwise: input ", input.name,
                     " is bool: expected True or False, found ", number.value.i);
    return number;
  }
  TORCH_CHECK_VALUE(holds(dtype, number), "elementwise: input ", input.name, " is ", hr_dtype_name(dtype),
                    ", which does not hold ", number.value.i);
  return number.dtype == HR_DTYPE_BOOL ? hr_scalar_i64(number.value.i) : number;
}

ScalarType promote_t(const Kernel &kernel, const KernelOperands &operands) {
  at::native::ResultTypeState state = {};
  bool has_t = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (kernel.inputs[i].type != ScalarType::Undefined)
      continue;
    has_t = true;
    const KernelOperand &operand = operands[i];
    if (!operand.is_number()) {
      state = at::native::update_result_type_state(operand.tensor, state);
    } else if (operand.is_wrapped) {
      Scalar value = operand.number_type == ScalarType::Bool     ? Scalar(true)
                     : operand.number_type == ScalarType::Double ? Scalar(1.0)
                                                                 : Scalar(int64_t{1});
      state = at::native::update_result_type_state(value, state);
    } else {
      state = at::native::update_result_type_state(at::empty({}, at::TensorOptions(operand.number_type)), state);
    }
  }
  return has_t ? at::native::result_type(state) : ScalarType::Undefined;
}

} // namespace

ScalarType kernel_type(const Kernel &kernel, const KernelOperands &operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const Kernel::Variable &input = kernel.inputs[i];
    if (!operands[i].is_number() && input.type != ScalarType::Undefined)
      TORCH_CHECK_TYPE(operands[i].tensor.scalar_type() == input.type, "elementwise: input ", input.name,
                       ": expected a tensor of ", input.type, " as in the signature \"", kernel.signature, "\", found ",
                       operands[i].tensor.scalar_type());
  }
  ScalarType type = promote_t(kernel, operands);
  if (type != ScalarType::Undefined)
    check_text(hr_expression_check(kernel.expression, dtype_of(type)));
  return type;
}

// ---- variants

struct KernelVariant {
  struct Input {
    bool is_number;
    ScalarType type; // of a tensor, or the number's
    hr_dtype number; // its kind
    bool is_wrapped;
    int64_t offset;
    Dims sizes, strides;
  };
  struct Output {
    size_t index; // of the kernel's outputs
    ScalarType type;
    size_t bytes;
    Dims strides;
  };
  uint64_t wanted;
  c10::DeviceIndex device;
  ScalarType default_type; // which numbers without a dtype have
  hr_dtype t;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  Dims sizes;
  bool is_empty, is_contiguous;
  std::atomic<int> runs{0};
  hr_expression_instance *instance = nullptr;

  ~KernelVariant() {
    hr_expression_instance_destroy(instance);
  }

  bool fits(const KernelOperands &operands, uint64_t wanted_outputs) const {
    if (wanted != wanted_outputs || device != here_index() || default_type != c10::get_default_dtype_as_scalartype())
      return false;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!fits(inputs[i], operands[i]))
        return false;
    return true;
  }

private:
  static bool fits(const Input &input, const KernelOperand &operand) {
    if (input.is_number || operand.is_number())
      return input.is_number && operand.is_number() && operand.number_type == input.type &&
             operand.number.dtype == input.number && operand.is_wrapped == input.is_wrapped;
    const c10::TensorImpl *impl = operand.tensor.unsafeGetTensorImpl();
    return operand.tensor.scalar_type() == input.type && impl->storage_offset() == input.offset &&
           impl->sizes().equals(input.sizes) && impl->strides().equals(input.strides);
  }
};

namespace {

void check_broadcast(const Kernel &kernel, const KernelOperands &operands) {
  Dims sizes;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].is_number())
      continue;
    IntArrayRef own = operands[i].tensor.sizes();
    if (own.size() > sizes.size())
      sizes.insert(sizes.begin(), own.size() - sizes.size(), 1);
    for (size_t d = 0; d < own.size(); ++d) {
      int64_t &all = sizes[sizes.size() - own.size() + d];
      TORCH_CHECK_VALUE(own[d] == all || own[d] == 1 || all == 1, "elementwise: input ", kernel.inputs[i].name,
                        " of size ", own, " can't be broadcast with those before it, of size ", IntArrayRef(sizes));
      all = all == 1 ? own[d] : all;
    }
  }
}

// Sizes and strides of a result, as torch's iterator chooses them.
void find_layout(const KernelOperands &operands, Dims &sizes, Dims &strides) {
  const Tensor *first = nullptr;
  bool is_simple = true;
  for (const KernelOperand &operand : operands) {
    if (operand.is_number())
      continue;
    first = first == nullptr ? &operand.tensor : first;
    is_simple &= operand.tensor.is_contiguous() && operand.tensor.sizes().equals(first->sizes());
  }
  if (is_simple) {
    sizes.assign(first->sizes().begin(), first->sizes().end());
    strides = row_major(sizes);
    return;
  }
  c10::SmallVector<Tensor, 8> metas;
  for (const KernelOperand &operand : operands)
    if (!operand.is_number())
      metas.push_back(at::empty_strided(operand.tensor.sizes(), operand.tensor.strides(),
                                        at::TensorOptions(c10::kMeta).dtype(ScalarType::Float)));
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).add_owned_output(Tensor());
  config.declare_static_dtype_and_device(ScalarType::Float, c10::kMeta);
  for (const Tensor &meta : metas)
    config.add_const_input(meta);
  const Tensor output = config.build().output();
  sizes.assign(output.sizes().begin(), output.sizes().end());
  strides.assign(output.strides().begin(), output.strides().end());
}

std::shared_ptr<KernelVariant> make_variant(const Kernel &kernel, const KernelOperands &operands, uint64_t wanted) {
  check_broadcast(kernel, operands);
  ScalarType type = kernel_type(kernel, operands);
  auto variant = std::make_shared<KernelVariant>();
  variant->wanted = wanted;
  variant->device = here_index();
  variant->default_type = c10::get_default_dtype_as_scalartype();
  variant->t = type == ScalarType::Undefined ? HR_DTYPE_NONE : dtype_of(type);
  for (const KernelOperand &operand : operands) {
    bool is_number = operand.is_number();
    KernelVariant::Input input{is_number,
                               is_number ? operand.number_type : operand.tensor.scalar_type(),
                               operand.number.dtype,
                               operand.is_wrapped,
                               0,
                               {},
                               {}};
    if (!is_number) {
      input.offset = operand.tensor.storage_offset();
      input.sizes.assign(operand.tensor.sizes().begin(), operand.tensor.sizes().end());
      input.strides.assign(operand.tensor.strides().begin(), operand.tensor.strides().end());
    }
    variant->inputs.push_back(std::move(input));
  }
  Dims strides;
  find_layout(operands, variant->sizes, strides);
  variant->is_empty = std::find(variant->sizes.begin(), variant->sizes.end(), 0) != variant->sizes.end();
  variant->is_contiguous = strides == row_major(variant->sizes);
  for (size_t o = 0; o < kernel.outputs.size(); ++o) {
    if ((wanted >> o & 1) == 0)
      continue;
    ScalarType own = kernel.outputs[o].type == ScalarType::Undefined ? type : kernel.outputs[o].type;
    size_t bytes = at::detail::computeStorageNbytes(variant->sizes, strides, c10::elementSize(own));
    variant->outputs.push_back({o, own, bytes, strides});
  }
  return variant;
}

// The variant for the operands; counts its runs.
std::shared_ptr<KernelVariant> find_kernel_variant(Kernel &kernel, const KernelOperands &operands, uint64_t wanted) {
  std::lock_guard<std::mutex> lock(kernel.mutex);
  auto &variants = kernel.variants;
  for (size_t v = 0; v < variants.size(); ++v) {
    if (!variants[v]->fits(operands, wanted))
      continue;
    if (v > 0)
      std::rotate(variants.begin(), variants.begin() + static_cast<ptrdiff_t>(v),
                  variants.begin() + static_cast<ptrdiff_t>(v) + 1);
    return variants.front();
  }
  auto variant = make_variant(kernel, operands, wanted);
  if (variants.size() == kKernelVariantsMax)
    variants.pop_back();
  variants.insert(variants.begin(), variant);
  return variant;
}

// ---- one call

// The views of a call. It keeps copies of unusual operands alive.
struct KernelViews {
  c10::SmallVector<hr_view, 8> inputs, outputs;
  c10::SmallVector<hr_buffer *, 8> buffers, results;
  c10::SmallVector<hr_scalar, 8> numbers;
};

// A tensor in memory of its own: bools have bytes 0 and 1, the storage is a buffer.
Tensor own_copy(const Tensor &tensor) {
  Tensor copy = new_tensor(tensor.sizes(), tensor.scalar_type());
  copy_on_device(tensor, copy);
  return copy;
}

hr_buffer *plain_buffer_of(Tensor &tensor) {
  const c10::DataPtr &pointer = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->data_ptr();
  return C10_LIKELY(pointer.get_deleter() == &release_buffer) ? static_cast<hr_buffer *>(pointer.get_context())
                                                              : nullptr;
}

// Replaces operands that the core can't read as they are. True if there was one: their form is another then.
bool make_plain(KernelOperands &operands) {
  bool has_changed = false;
  for (KernelOperand &operand : operands) {
    if (operand.is_number() || C10_LIKELY(plain_buffer_of(operand.tensor) != nullptr))
      continue;
    if (operand.tensor.numel() == 0)
      continue;
    const c10::DataPtr &pointer = operand.tensor.storage().data_ptr();
    if (is_ours(pointer) && operand.tensor.scalar_type() != ScalarType::Bool)
      continue; // memory that is also seen as bool
    operand.tensor = own_copy(operand.tensor);
    has_changed = true;
  }
  return has_changed;
}

hr_view view_of_tensor(const Tensor &tensor) {
  hr_view view{};
  view.dtype = dtype_of(tensor.scalar_type());
  view.rank = static_cast<int>(tensor.dim());
  view.offset = tensor.storage_offset();
  view.dims = tensor.sizes().data();
  view.strides = tensor.strides().data();
  return view;
}

void bind_operands(const Kernel &kernel, const KernelVariant &variant, const KernelOperands &operands,
                   KernelViews &views) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const KernelOperand &operand = operands[i];
    hr_dtype dtype = kernel.inputs[i].dtype == HR_DTYPE_NONE ? variant.t : kernel.inputs[i].dtype;
    if (operand.is_number()) {
      views.buffers.push_back(nullptr);
      views.numbers.push_back(number_as(kernel.inputs[i], dtype, operand.number));
    } else {
      const c10::DataPtr &pointer = operand.tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr();
      views.buffers.push_back(static_cast<hr_buffer *>(pointer.get_context()));
      views.numbers.push_back(hr_scalar{});
    }
  }
}

KernelResults make_results(const KernelVariant &variant, KernelViews &views, size_t output_count) {
  KernelResults results;
  views.results.resize(output_count, nullptr);
  for (const KernelVariant::Output &output : variant.outputs) {
    results.push_back(variant.is_contiguous ? new_tensor(variant.sizes, output.type)
                                            : new_tensor_in(allocate(output.bytes), output.bytes, variant.sizes,
                                                            output.strides, 0, output.type));
    views.results[output.index] =
        static_cast<hr_buffer *>(results.back().unsafeGetTensorImpl()->unsafe_storage().data_ptr().get_context());
  }
  return results;
}

// Views with or without buffers: of this call, or of an instance.
void make_views(const KernelVariant &variant, const KernelOperands &operands, const KernelResults &results,
                KernelViews &views) {
  views.outputs.resize(views.results.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    hr_view view{};
    if (operands[i].is_number()) {
      view.scalar = &views.numbers[i];
      view.dtype = views.numbers[i].dtype;
    } else {
      view = view_of_tensor(operands[i].tensor);
      view.buffer = views.buffers[i];
    }
    views.inputs.push_back(view);
  }
  for (size_t r = 0; r < results.size(); ++r) {
    hr_view &view = views.outputs[variant.outputs[r].index];
    view = view_of_tensor(results[r]);
    view.buffer = views.results[variant.outputs[r].index];
  }
}

void capture_instance(Kernel &kernel, KernelVariant &variant, const KernelViews &views) {
  std::lock_guard<std::mutex> lock(kernel.mutex);
  if (variant.instance == nullptr)
    check(hr_expression_instance_create(device(), kernel.expression, variant.t, views.inputs.data(),
                                        views.outputs.data(), &variant.instance));
}

} // namespace

KernelResults kernel_compute(Kernel &kernel, KernelOperands &operands, uint64_t wanted, const KernelCore &core) {
  make_plain(operands);
  std::shared_ptr<KernelVariant> variant = find_kernel_variant(kernel, operands, wanted);
  KernelViews views;
  KernelResults results = make_results(*variant, views, kernel.outputs.size());
  bind_operands(kernel, *variant, operands, views);
  if (C10_UNLIKELY(variant->is_empty || results.empty()))
    return results;
  if (C10_UNLIKELY(device_runs_beside.load(std::memory_order_relaxed)))
    hint_pass();
  bool is_captured = capture() != nullptr;
  int before = variant->runs.load(std::memory_order_acquire);
  if (C10_LIKELY(before > 1 && !is_captured)) {
    check(core.run(stream(), variant->instance, views.buffers.data(), views.results.data(), views.numbers.data()));
    return results;
  }
  make_views(*variant, operands, results, views);
  check(core.record(stream(), kernel.expression, variant->t, views.inputs.data(), views.outputs.data()));
  if (before == 1) // met for the second time
    capture_instance(kernel, *variant, views);
  if (before < 2)
    variant->runs.store(before + 1, std::memory_order_release);
  return results;
}

} // namespace headrace
