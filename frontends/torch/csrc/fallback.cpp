// fallback.cpp: operators without a row (host fallback). By default they raise NotImplementedError. If the user allows
// it, they run on the host, and the operator is counted. On a device that shares the host's memory, the host's kernel
// uses the tensors' own memory, and its results become the device's without a copy. On others the inputs are copied to
// the host, and the written and returned tensors are copied back. Rejected: views (a copy would not alias) and
// operators that access storages.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/CPUAllocator.h>
#include <headrace/profile.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "device.h"
#include "fallback.h"
#include "kernels.h"
#include "registration.h"

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
      "To let such operators run on the host, in torch's own code, set the environment variable "
      "HEADRACE_FALLBACK=allow (or warn) or call torch.headrace.set_fallback(\"allow\").");
}

void count(const std::string &name) {
  bool first;
  {
    std::lock_guard<std::mutex> lock(counts().mutex);
    first = counts().by_name[name]++ == 0;
  }
  if (first && mode.load() == FallbackMode::Warn) {
    TORCH_WARN("headrace: the operator '", name, "' runs on the host, in torch's own code");
  }
}

// ---- memory that host and device share

bool is_dense(const Tensor &tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.unsafeGetTensorImpl()->has_storage();
}

// The address of a tensor's memory on the host, after all pending work has run; null if the device has its own memory.
void *address_of(const Tensor &tensor) {
  int64_t offset = 0;
  bool retained = false;
  void *address = nullptr;
  OnDevice on(tensor);
  hr_buffer *buffer = buffer_of(tensor, &offset, &retained);
  hr_status status = has_host_memory(here_index()) ? hr_stream_address(stream(), buffer, &address) : nullptr;
  if (retained) // the tensor's own storage has a reference, too
    hr_buffer_release(buffer);
  check(status);
  return address == nullptr ? nullptr : static_cast<char *>(address) + offset;
}

// The tensors of one call on the host. Tensors that share a storage share one here, so overlaps are preserved.
class HostTensors {
public:
  Tensor to_host(const Tensor &tensor) {
    if (!tensor.defined() || !is_on_device(tensor))
      return tensor;
    const Pair *pair = is_dense(tensor) && tensor.storage().nbytes() > 0 ? share(tensor) : nullptr;
    if (pair == nullptr)
      return tensor.to(at::kCPU);
    c10::TensorImpl *own = tensor.unsafeGetTensorImpl();
    Tensor host = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(pair->host),
                                                           c10::DispatchKeySet(c10::DispatchKey::CPU), own->dtype());
    host.unsafeGetTensorImpl()->set_sizes_and_strides(own->sizes(), own->strides(), own->storage_offset());
    if (tensor.is_conj())
      host._set_conj(true);
    if (tensor.is_neg())
      host._set_neg(true);
    if (own->is_wrapped_number())
      host.unsafeGetTensorImpl()->set_wrapped_number(true);
    return host;
  }

  // Converts a result of the host's kernel. A result in an argument's memory becomes a view of that argument.
  Tensor to_device(const Tensor &tensor) const {
    if (!tensor.defined() || !tensor.device().is_cpu())
      return tensor;
    if (!is_dense(tensor) || tensor.is_conj() || tensor.is_neg())
      return tensor.to(here());
    if (const Pair *pair = pair_of(tensor))
      return new_view_of(pair->original, tensor.sizes(), tensor.strides(), tensor.storage_offset(),
                         tensor.scalar_type());
    return adopt(tensor);
  }

  // Copies the data that the host's kernel wrote to the original.
  void write_back(const Tensor &host, const Tensor &original) const {
    if (!original.defined() || !is_on_device(original))
      return;
    if (is_dense(host) && pair_of(host) != nullptr) {
      bool is_same = original.sizes().equals(host.sizes()) && original.strides().equals(host.strides()) &&
                     original.storage_offset() == host.storage_offset();
      if (!is_same)
        original.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
      return;
    }
    if (!original.sizes().equals(host.sizes()) && original.layout() == at::kStrided)
      original.resize_(host.sizes());
    original.copy_(host);
  }

private:
  struct Pair {
    Tensor original;
    c10::Storage host;
    void *address;
  };
  std::vector<Pair> pairs_;

  const Pair *share(const Tensor &tensor) {
    for (const Pair &pair : pairs_)
      if (pair.original.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl())
        return &pair;
    void *address = address_of(tensor);
    if (address == nullptr)
      return nullptr;
    c10::DataPtr memory(address, new c10::Storage(tensor.storage()), &release_storage, c10::Device(at::kCPU));
    c10::Storage host(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), tensor.storage().nbytes(), std::move(memory), c10::GetCPUAllocator(),
        /*resizable=*/true));
    pairs_.push_back({tensor, std::move(host), address});
    return &pairs_.back();
  }

  // The pair in whose memory a host tensor still is: a kernel may have replaced its storage's memory.
  const Pair *pair_of(const Tensor &host) const {
    for (const Pair &pair : pairs_)
      if (pair.host.unsafeGetStorageImpl() == host.storage().unsafeGetStorageImpl() && pair.host.data() == pair.address)
        return &pair;
    return nullptr;
  }

  // A tensor of the device in memory of the host's allocator, if only the stack refers to that memory.
  static Tensor adopt(const Tensor &tensor) {
    const c10::Storage &storage = tensor.storage();
    bool is_ours = has_host_memory(here_index()) && storage.use_count() == 1 && tensor.use_count() == 1 &&
                   storage.nbytes() > 0 && storage.data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter() &&
                   reinterpret_cast<uintptr_t>(storage.data()) % 64 == 0;
    return is_ours ? headrace::adopt(tensor, here_index()) : tensor.to(here());
  }
};

// The first of our devices among the arguments; results are copied back to it.
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

c10::IValue value_to_host(const c10::IValue &value, HostTensors &tensors) {
  if (value.isTensor())
    return tensors.to_host(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor &tensor : value.toTensorVector())
      list.push_back(tensors.to_host(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (std::optional<Tensor> tensor : value.toOptionalTensorList()) {
      list.push_back(tensor.has_value() ? std::optional<Tensor>(tensors.to_host(*tensor)) : std::nullopt);
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

void write_back(const c10::IValue &host, const c10::IValue &original, const HostTensors &tensors) {
  if (original.isTensor()) {
    tensors.write_back(host.toTensor(), original.toTensor());
  } else if (original.isTensorList()) {
    std::vector<Tensor> written = host.toTensorVector(), originals = original.toTensorVector();
    for (size_t i = 0; i < originals.size(); ++i)
      tensors.write_back(written[i], originals[i]);
  }
}

// The argument that a written result aliases.
const c10::IValue *same_argument(const c10::FunctionSchema &schema, const c10::AliasInfo &result,
                                 const std::vector<c10::IValue> &originals) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo *info = schema.arguments()[i].alias_info();
    if (info != nullptr && info->isWrite() && *info == result)
      return &originals[i];
  }
  return nullptr;
}

// The host's dispatch key for these arguments: that of the dominant layout.
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

c10::IValue value_to_device(const c10::IValue &value, const HostTensors &tensors) {
  if (value.isTensor())
    return tensors.to_device(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor &tensor : value.toTensorVector())
      list.push_back(tensors.to_device(tensor));
    return list;
  }
  return value;
}

int64_t copied_bytes() {
  hr_stats stats;
  hr_stream_stats(stream(), &stats);
  return stats.bytes_copied_in + stats.bytes_copied_out;
}

// Reports a fallback to profiles and tracers: its time with copies and waits, and the bytes copied.
class Noted {
public:
  explicit Noted(const std::string &name) : name_(name), bytes_(copied_bytes()), begin_(hr_profile_clock_ns()) {}
  Noted(const Noted &) = delete;
  Noted &operator=(const Noted &) = delete;
  ~Noted() {
    hr_profile_note_fallback(device(), name_.c_str(), begin_, hr_profile_clock_ns(), copied_bytes() - bytes_);
  }

private:
  const std::string &name_;
  int64_t bytes_, begin_;
};

} // namespace

void run_on_host(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  if (C10_UNLIKELY(!is_started())) {
    start();
    return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
  }
  std::string name = name_of(op);
  check_allowed(op, name);
  count(name);
  const c10::FunctionSchema &schema = op.schema();
  size_t argument_count = schema.arguments().size(), start = stack->size() - argument_count;
  std::vector<c10::IValue> originals(stack->begin() + static_cast<int64_t>(start), stack->end()), hosts;
  OnDevice on(device_of(originals));
  Noted noted(name);
  HostTensors tensors;
  for (size_t i = 0; i < argument_count; ++i) {
    hosts.push_back(value_to_host(originals[i], tensors));
    (*stack)[start + i] = hosts.back();
  }
  op.redispatchBoxed(c10::DispatchKeySet(host_key(hosts)), stack);
  for (size_t i = 0; i < argument_count; ++i) {
    const c10::AliasInfo *info = schema.arguments()[i].alias_info();
    if (info != nullptr && info->isWrite())
      write_back(hosts[i], originals[i], tensors);
  }
  size_t return_count = schema.returns().size(), first = stack->size() - return_count;
  for (size_t i = 0; i < return_count; ++i) {
    const c10::AliasInfo *info = schema.returns()[i].alias_info();
    const c10::IValue *original = info != nullptr ? same_argument(schema, *info, originals) : nullptr;
    (*stack)[first + i] = original != nullptr ? *original : value_to_device((*stack)[first + i], tensors);
  }
}

namespace {

// Registered when the library is loaded: if a program's first operation bypasses Python, this is the first use.
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

HEADRACE_KERNELS(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

HEADRACE_KERNELS(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

} // namespace

void set_fallback_mode(FallbackMode wanted) {
  mode.store(wanted);
}

FallbackMode fallback_mode() {
  return mode.load();
}

std::map<std::string, int64_t> fallback_counts() {
  std::lock_guard<std::mutex> lock(counts().mutex);
  return counts().by_name;
}

void reset_fallback_counts() {
  std::lock_guard<std::mutex> lock(counts().mutex);
  counts().by_name.clear();
}

} // namespace headrace
