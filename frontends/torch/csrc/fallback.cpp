// fallback.cpp: operators without a row. By default they raise NotImplementedError; when the user allows it, they run
// on the host: inputs are copied there, the host's kernel runs, what it wrote and returned is copied back, and the
// operator is counted. Refused: views (a copy would not alias) and operators that look at storages.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "kernels.h"
#include "runtime.h"

namespace headrace {
namespace {

std::atomic<FallbackMode> mode{FallbackMode::Error};

struct Counts {
  std::mutex mutex;
  std::map<std::string, int64_t> by_name;
};

Counts &counts() {
  static Counts *counts = new Counts;
  return *counts;
}

std::string name_of(const c10::OperatorHandle &op) {
  const c10::OperatorName &name = op.schema().operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool is_view(const c10::FunctionSchema &schema) {
  for (const c10::Argument &result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite())
      return true;
  }
  return false;
}

void check_allowed(const c10::OperatorHandle &op, const std::string &name) {
  static const std::set<std::string> denied = {"aten::set_",          "aten::is_set_to",    "aten::resize_",
                                               "aten::record_stream", "aten::as_strided",   "aten::_copy_from",
                                               "aten::empty",         "aten::empty_strided"};
  bool refused = denied.count(op.schema().operator_name().name) != 0 || is_view(op.schema());
  TORCH_CHECK_NOT_IMPLEMENTED(!refused, "headrace: the operator '", name,
                              "' is not implemented on this device, and it can't run on the ",
                              "host because it shares or inspects storage.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      mode.load() != FallbackMode::Error, "headrace: the operator '", name, "' is not implemented on this device. ",
      "To let such operators run on the host (slowly, with copies), set the environment variable "
      "HEADRACE_FALLBACK=allow (or warn) or call torch.headrace.set_fallback(\"allow\").");
}

void count(const std::string &name) {
  bool first;
  {
    std::lock_guard<std::mutex> lock(counts().mutex);
    first = counts().by_name[name]++ == 0;
  }
  if (first && mode.load() == FallbackMode::Warn) {
    TORCH_WARN("headrace: the operator '", name, "' runs on the host, with copies there and back");
  }
}

Tensor to_host(const Tensor &tensor) {
  return tensor.defined() && is_on_device(tensor) ? tensor.to(at::kCPU) : tensor;
}

Tensor to_device(const Tensor &tensor) {
  return tensor.defined() && tensor.device().is_cpu() ? tensor.to(here()) : tensor;
}

// The first device of ours among the arguments: what is copied back goes there.
std::optional<c10::Device> device_of(const std::vector<c10::IValue> &arguments) {
  for (const c10::IValue &value : arguments) {
    std::vector<std::optional<Tensor>> tensors;
    if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1)
      return value.toDevice();
    if (value.isTensor())
      tensors.push_back(value.toTensor());
    else if (value.isTensorList())
      for (const Tensor &tensor : value.toTensorVector())
        tensors.push_back(tensor);
    else if (value.isOptionalTensorList())
      for (std::optional<Tensor> tensor : value.toOptionalTensorList())
        tensors.push_back(tensor);
    for (const std::optional<Tensor> &tensor : tensors)
      if (tensor.has_value() && tensor->defined() && is_on_device(*tensor))
        return tensor->device();
  }
  return std::nullopt;
}

c10::IValue value_to_host(const c10::IValue &value) {
  if (value.isTensor())
    return to_host(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor &tensor : value.toTensorVector())
      list.push_back(to_host(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (std::optional<Tensor> tensor : value.toOptionalTensorList()) {
      list.push_back(tensor.has_value() ? std::optional<Tensor>(to_host(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1)
    return c10::Device(c10::DeviceType::CPU);
  if (value.isGenerator() && value.toGenerator().device().type() == c10::DeviceType::PrivateUse1) {
    Philox place = next_philox(value.toGenerator());
    return at::Generator(
        at::detail::createCPUGenerator(static_cast<uint64_t>(place.seed) + static_cast<uint64_t>(place.offset)));
  }
  return value;
}

// What the host's kernel wrote into a copy goes back into the original.
void write_back(const Tensor &copy, const Tensor &original) {
  if (!original.defined() || !is_on_device(original))
    return;
  if (!original.sizes().equals(copy.sizes()) && original.layout() == at::kStrided)
    original.resize_(copy.sizes());
  original.copy_(copy);
}

void write_back(const c10::IValue &copy, const c10::IValue &original) {
  if (original.isTensor()) {
    write_back(copy.toTensor(), original.toTensor());
  } else if (original.isTensorList()) {
    std::vector<Tensor> copies = copy.toTensorVector(), originals = original.toTensorVector();
    for (size_t i = 0; i < originals.size(); ++i)
      write_back(copies[i], originals[i]);
  }
}

// The argument that a written result is.
const c10::IValue *same_argument(const c10::FunctionSchema &schema, const c10::AliasInfo &result,
                                 const std::vector<c10::IValue> &originals) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo *info = schema.arguments()[i].alias_info();
    if (info != nullptr && info->isWrite() && *info == result)
      return &originals[i];
  }
  return nullptr;
}

// The host's key for these arguments: of the layout that leads among them.
c10::DispatchKey host_key(const std::vector<c10::IValue> &arguments) {
  c10::DispatchKeySet keys;
  for (const c10::IValue &value : arguments) {
    if (value.isTensor() && value.toTensor().defined())
      keys = keys | value.toTensor().key_set();
    else if (value.isTensorList())
      for (const Tensor &tensor : value.toTensorVector())
        keys = keys | tensor.key_set();
  }
  return keys.has(c10::DispatchKey::SparseCsrCPU) ? c10::DispatchKey::SparseCsrCPU
         : keys.has(c10::DispatchKey::SparseCPU)  ? c10::DispatchKey::SparseCPU
                                                  : c10::DispatchKey::CPU;
}

c10::IValue value_to_device(const c10::IValue &value) {
  if (value.isTensor())
    return to_device(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor &tensor : value.toTensorVector())
      list.push_back(to_device(tensor));
    return list;
  }
  return value;
}

} // namespace

void run_on_host(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  std::string name = name_of(op);
  check_allowed(op, name);
  count(name);
  const c10::FunctionSchema &schema = op.schema();
  size_t argument_count = schema.arguments().size(), start = stack->size() - argument_count;
  std::vector<c10::IValue> originals(stack->begin() + static_cast<int64_t>(start), stack->end()), copies;
  OnDevice on(device_of(originals));
  for (size_t i = 0; i < argument_count; ++i) {
    copies.push_back(value_to_host(originals[i]));
    (*stack)[start + i] = copies.back();
  }
  op.redispatchBoxed(c10::DispatchKeySet(host_key(copies)), stack);
  for (size_t i = 0; i < argument_count; ++i) {
    const c10::AliasInfo *info = schema.arguments()[i].alias_info();
    if (info != nullptr && info->isWrite())
      write_back(copies[i], originals[i]);
  }
  size_t return_count = schema.returns().size(), first = stack->size() - return_count;
  for (size_t i = 0; i < return_count; ++i) {
    const c10::AliasInfo *info = schema.returns()[i].alias_info();
    const c10::IValue *original = info != nullptr ? same_argument(schema, *info, originals) : nullptr;
    (*stack)[first + i] = original != nullptr ? *original : value_to_device((*stack)[first + i]);
  }
}

namespace {

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

} // namespace

void set_fallback_mode(FallbackMode wanted) {
  mode.store(wanted);
}

FallbackMode fallback_mode() {
  return mode.load();
}

std::string fallback_counts() {
  std::lock_guard<std::mutex> lock(counts().mutex);
  std::string text;
  for (const auto &[name, number] : counts().by_name)
    text += name + " " + std::to_string(number) + "\n";
  return text;
}

void reset_fallback_counts() {
  std::lock_guard<std::mutex> lock(counts().mutex);
  counts().by_name.clear();
}

} // namespace headrace
