// exchange.cpp: tensors of the host and of the device in the same memory, for headrace.exchange in Python. They work on
// devices whose memory is the host's.
#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/python_variable.h>

#include "device.h"
#include "extension.h"

namespace headrace {

void release_storage(void *storage) {
  delete static_cast<c10::Storage *>(storage);
}

Tensor adopt(const Tensor &host, c10::DeviceIndex index) {
  const c10::Storage &storage = host.storage();
  c10::Device place(c10::DeviceType::PrivateUse1, index);
  if (storage.nbytes() == 0)
    return at::empty_strided(host.sizes(), host.strides(), host.options().device(place));
  auto owner = std::make_unique<c10::Storage>(storage);
  hr_buffer *buffer = nullptr;
  check(hr_buffer_adopt(device_of(index), storage.nbytes(), owner->mutable_data(), &release_storage, owner.get(),
                        &buffer));
  owner.release();
  return new_tensor_in({hr_buffer_handle(buffer), buffer, &release_buffer, place}, storage.nbytes(), host.sizes(),
                       host.strides(), host.storage_offset(), host.scalar_type());
}

namespace {

constexpr uintptr_t kAlignment = 16; // hr_buffer_adopt's

const Tensor &tensor_argument(PyObject *argument) {
  TORCH_CHECK_TYPE(THPVariable_Check(argument), "expected a torch.Tensor");
  return THPVariable_Unpack(argument);
}

// ---- the device's memory on the host

// The memory behind a tensor's storage, which lives as long as the result; waits for everything recorded.
c10::DataPtr memory_of(const Tensor &tensor) {
  int64_t offset = 0;
  bool retained = false;
  OnDevice on(tensor);
  hr_buffer *buffer = buffer_of(tensor, &offset, &retained);
  if (!retained)
    hr_buffer_retain(buffer);
  c10::DataPtr owner(buffer, buffer, &release_buffer, c10::Device(at::kCPU)); // also if the next call throws
  void *address = nullptr;
  check(hr_stream_address(stream(), buffer, &address));
  owner.release_context();
  return {static_cast<char *>(address) + offset, buffer, &release_buffer, c10::Device(at::kCPU)};
}

Tensor view_on_host(const Tensor &tensor) {
  size_t bytes = tensor.storage().nbytes();
  if (bytes == 0)
    return at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             memory_of(tensor), nullptr, /*resizable=*/false));
  Tensor host = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         tensor.dtype());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  host._set_conj(tensor.is_conj());
  host._set_neg(tensor.is_neg());
  return host;
}

PyObject *host_view(PyObject *, PyObject *argument) {
  return answer([&] {
    const Tensor &tensor = tensor_argument(argument);
    TORCH_CHECK_TYPE(is_on_device(tensor), "expected a tensor of a headrace device, not of ", tensor.device().str());
    TORCH_CHECK_TYPE(tensor.layout() == at::kStrided, "expected a strided tensor, not ", tensor.layout());
    TORCH_CHECK(has_host_memory(tensor.device().index()), "the memory of ", tensor.device().str(),
                " is not the host's: .cpu() copies it");
    Tensor host;
    {
      Unlocked unlocked;
      host = view_on_host(tensor);
    }
    return THPVariable_Wrap(host);
  });
}

// ---- the host's memory on the device

PyObject *from_host(PyObject *, PyObject *arguments) {
  return answer([&] {
    PyObject *argument = nullptr, *where = nullptr;
    parse(arguments, "O|O", &argument, &where);
    const Tensor &host = tensor_argument(argument);
    c10::DeviceIndex index = device_argument(where);
    TORCH_CHECK_TYPE(host.device().is_cpu() && host.layout() == at::kStrided && !host.is_conj() && !host.is_neg(),
                     "expected a strided tensor of the CPU without conjugate or negative bit, not ", host.layout(),
                     " on ", host.device().str());
    TORCH_CHECK(has_host_memory(index), "the memory of headrace:", static_cast<int>(index),
                " is not the host's: .to() copies");
    auto address = reinterpret_cast<uintptr_t>(host.storage().data());
    TORCH_CHECK_VALUE(address % kAlignment == 0, "the memory begins at ", host.storage().data(), ", aligned to ",
                      address & (~address + 1), " bytes, not to ", kAlignment, ": .to(\"headrace\") copies it");
    return THPVariable_Wrap(adopt(host, index));
  });
}

PyObject *has_host_memory_of(PyObject *, PyObject *arguments) {
  return answer([&] { return PyBool_FromLong(has_host_memory(only_device_argument(arguments))); });
}

} // namespace

PyMethodDef exchange_functions[] = {
    {"host_view", host_view, METH_O, "A tensor of the host in the memory of the device's, after all recorded work."},
    {"has_host_memory", has_host_memory_of, METH_VARARGS, "True if a device's memory is the host's."},
    {"from_host", from_host, METH_VARARGS, "A tensor of a device in the memory of the host's tensor."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
