// exchange.cpp: tensors of the host and of the device in the same memory, for headrace.exchange in Python, on devices
// whose memory is the host's; and tensors in memory of other processes, for headrace._multiprocessing.
#include <ATen/EmptyTensor.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/python_variable.h>

#include "device.h"
#include "extension.h"
#include "headrace/share.h"

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

// ---- memory in other processes

// A loan of another process's memory. `place` is in memory that both processes have and holds the loan's number until
// the loan ends; then the lender may release the memory, and use the place for another loan.
struct Loan {
  c10::Storage storage;
  int64_t *place;
  int64_t number;
};

void end_loan(int64_t *place, int64_t number) {
  __atomic_compare_exchange_n(place, &number, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void return_loan(void *loan) {
  std::unique_ptr<Loan> owned(static_cast<Loan *>(loan));
  end_loan(owned->place, owned->number);
}

// NULL for None; else the place of a loan, an int64 on the CPU.
std::unique_ptr<Loan> loan_argument(PyObject *place, int64_t number) {
  if (place == Py_None)
    return nullptr;
  const Tensor &tensor = tensor_argument(place);
  TORCH_CHECK_TYPE(tensor.device().is_cpu() && tensor.scalar_type() == ScalarType::Long && tensor.numel() == 1,
                   "expected the place of a loan, an int64 on the CPU");
  return std::unique_ptr<Loan>(new Loan{tensor.storage(), tensor.mutable_data_ptr<int64_t>(), number});
}

PyObject *end_loan_of(PyObject *, PyObject *arguments) {
  return answer([&] {
    PyObject *place = nullptr;
    long long number = 0;
    parse(arguments, "OL", &place, &number);
    if (std::unique_ptr<Loan> loan = loan_argument(place, number))
      end_loan(loan->place, number);
    Py_RETURN_NONE;
  });
}

// The description of a tensor's buffer as bytes, the place of its first element there, and the file, or -1.
PyObject *share(PyObject *, PyObject *argument) {
  return answer([&] {
    const Tensor &tensor = tensor_argument(argument);
    TORCH_CHECK_TYPE(is_on_device(tensor), "expected a tensor of a headrace device, not of ", tensor.device().str());
    hr_shared shared = {};
    int64_t offset = 0;
    int file = -1;
    {
      Unlocked unlocked;
      OnDevice on(tensor);
      bool retained = false;
      hr_buffer *buffer = buffer_of(tensor, &offset, &retained);
      hr_status status = hr_stream_share(stream(), buffer, &shared, &file);
      if (retained)
        hr_buffer_release(buffer);
      check(status);
    }
    PyObject *data = checked(PyBytes_FromStringAndSize(reinterpret_cast<const char *>(&shared), sizeof shared));
    return Py_BuildValue("NLi", data, static_cast<long long>(offset), file);
  });
}

hr_shared shared_argument(PyObject *description) {
  hr_shared shared;
  char *data = nullptr;
  Py_ssize_t bytes = 0;
  if (PyBytes_AsStringAndSize(description, &data, &bytes) != 0)
    throw python_error();
  TORCH_CHECK_VALUE(static_cast<size_t>(bytes) == sizeof shared, "a description of shared memory has ", sizeof shared,
                    " bytes, not ", bytes);
  memcpy(&shared, data, sizeof shared);
  return shared;
}

// A tensor of bytes in described memory; a loan of the place and number, unless the place is None.
PyObject *open_shared(PyObject *, PyObject *arguments) {
  return answer([&] {
    long long offset = 0, bytes = 0, number = 0;
    int file = -1;
    PyObject *description = nullptr, *where = nullptr, *place = nullptr;
    parse(arguments, "OLLiOOL", &description, &offset, &bytes, &file, &where, &place, &number);
    hr_shared shared = shared_argument(description);
    TORCH_CHECK_VALUE(offset >= 0 && bytes > 0 && bytes <= shared.bytes - offset, "expected ", bytes, " bytes at ",
                      offset, " within ", shared.bytes);
    c10::DeviceIndex index = device_argument(where);
    std::unique_ptr<Loan> loan = loan_argument(place, number);
    hr_buffer *buffer = nullptr;
    check(hr_buffer_open(device_of(index), &shared, file, loan ? &return_loan : nullptr, loan.get(), &buffer));
    loan.release();
    c10::Device device(c10::DeviceType::PrivateUse1, index);
    void *begin = static_cast<char *>(hr_buffer_handle(buffer)) + offset;
    return THPVariable_Wrap(new_tensor_in({begin, buffer, &release_buffer, device}, static_cast<size_t>(bytes), {bytes},
                                          {1}, 0, ScalarType::Byte));
  });
}

PyObject *has_host_memory_of(PyObject *, PyObject *arguments) {
  return answer([&] { return PyBool_FromLong(has_host_memory(only_device_argument(arguments))); });
}

} // namespace

PyMethodDef exchange_functions[] = {
    {"host_view", host_view, METH_O, "A tensor of the host in the memory of the device's, after all recorded work."},
    {"has_host_memory", has_host_memory_of, METH_VARARGS, "True if a device's memory is the host's."},
    {"share", share, METH_O, "Describes a tensor's memory for another process: bytes, offset, file or -1."},
    {"open_shared", open_shared, METH_VARARGS, "A tensor of bytes in memory that another process has described."},
    {"end_loan", end_loan_of, METH_VARARGS, "Ends a loan that open_shared began, unless it has ended."},
    {"from_host", from_host, METH_VARARGS, "A tensor of a device in the memory of the host's tensor."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
