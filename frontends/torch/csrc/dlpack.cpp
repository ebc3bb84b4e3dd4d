// dlpack.cpp: tensors of a GPU in the memory of other libraries, as capsules of DLPack, for headrace.exchange in
// Python. (Memory of the host is exchanged as tensors of the CPU: exchange.cpp.)
#include <ATen/DLConvertor.h>

#include "device.h"
#include "extension.h"

namespace headrace {
namespace {

constexpr const char *kPlain = "dltensor", *kVersioned = "dltensor_versioned", *kUsed = "used_dltensor";

// ---- ours for others

// The address of a tensor's first element, after all recorded work.
void *address_of(const Tensor &tensor) {
  Unlocked unlocked;
  OnDevice on(tensor);
  int64_t offset = 0;
  bool retained = false;
  hr_buffer *buffer = buffer_of(tensor, &offset, &retained);
  void *address = nullptr;
  hr_status status = hr_stream_address(stream(), buffer, &address);
  if (retained)
    hr_buffer_release(buffer);
  check(status);
  return static_cast<char *>(address) + offset + tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
}

// Where and on which device others find what the capsule holds; nobody else has it yet.
template <class Managed> Managed *with_address(Managed *managed, const Tensor &tensor, void *address) {
  managed->dl_tensor.data = address;
  managed->dl_tensor.byte_offset = 0;
  managed->dl_tensor.device = {kDLCUDA, tensor.device().index()};
  return managed;
}

template <class Managed> void drop(PyObject *capsule, const char *name) {
  if (PyCapsule_IsValid(capsule, name) == 0)
    return; // its taker has renamed it
  auto *managed = static_cast<Managed *>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

void drop_plain(PyObject *capsule) {
  drop<DLManagedTensor>(capsule, kPlain);
}

void drop_versioned(PyObject *capsule) {
  drop<DLManagedTensorVersioned>(capsule, kVersioned);
}

PyObject *to_dlpack(PyObject *, PyObject *arguments) {
  return answer([&] {
    PyObject *argument = nullptr;
    int versioned = 0;
    parse(arguments, "Op", &argument, &versioned);
    TORCH_CHECK_TYPE(THPVariable_Check(argument), "expected a torch.Tensor");
    const Tensor &tensor = THPVariable_Unpack(argument);
    void *address = tensor.numel() == 0 ? nullptr : address_of(tensor);
    if (versioned != 0)
      return checked(
          PyCapsule_New(with_address(at::toDLPackVersioned(tensor), tensor, address), kVersioned, &drop_versioned));
    return checked(PyCapsule_New(with_address(at::toDLPack(tensor), tensor, address), kPlain, &drop_plain));
  });
}

// ---- others' for us

void release_managed(void *managed) {
  auto *owned = static_cast<DLManagedTensor *>(managed);
  if (owned->deleter != nullptr)
    owned->deleter(owned);
}

struct Layout {
  Dims sizes, strides;
  int64_t elements = 1; // from the first to the last one
};

Layout layout_of(const DLTensor &from) {
  Layout found;
  found.sizes.assign(from.shape, from.shape + from.ndim);
  found.strides = from.strides == nullptr ? row_major(found.sizes) : Dims(from.strides, from.strides + from.ndim);
  for (int i = 0; i < from.ndim; ++i) {
    TORCH_CHECK_VALUE(found.sizes[i] >= 0 && found.strides[i] >= 0, "from_dlpack: sizes ", IntArrayRef(found.sizes),
                      " and strides ", IntArrayRef(found.strides), ": expected none below 0");
    found.elements =
        found.sizes[i] == 0 || found.elements == 0 ? 0 : found.elements + (found.sizes[i] - 1) * found.strides[i];
  }
  return found;
}

// Without the interpreter's lock, because it may wait for the device's queue.
hr_status adopt_unlocked(hr_device *device, size_t bytes, void *address, DLManagedTensor *managed, hr_buffer **buffer) {
  Unlocked unlocked;
  return hr_buffer_adopt(device, bytes, address, &release_managed, managed, buffer);
}

// Adopts the memory from the multiple of 16 at or below the first element, which lies in the same allocation: those of
// GPUs are aligned to more.
Tensor adopt_managed(DLManagedTensor *managed, c10::DeviceIndex index) {
  const DLTensor &from = managed->dl_tensor;
  ScalarType type = at::toScalarType(from.dtype);
  Layout layout = layout_of(from);
  c10::Device place(c10::DeviceType::PrivateUse1, index);
  auto first = reinterpret_cast<uintptr_t>(from.data) + from.byte_offset;
  auto size = static_cast<int64_t>(c10::elementSize(type)), before = static_cast<int64_t>(first % 16);
  TORCH_CHECK_VALUE(before % size == 0, "from_dlpack: the memory begins at ", reinterpret_cast<void *>(first),
                    ", which is no multiple of an element's ", size, " bytes");
  int64_t bytes = before + layout.elements * size;
  hr_buffer *buffer = nullptr;
  check(adopt_unlocked(device_of(index), static_cast<size_t>(bytes), reinterpret_cast<void *>(first - before), managed,
                       &buffer));
  return new_tensor_in({hr_buffer_handle(buffer), buffer, &release_buffer, place}, static_cast<size_t>(bytes),
                       layout.sizes, layout.strides, before / size, type);
}

PyObject *from_dlpack(PyObject *, PyObject *arguments) {
  return answer([&] {
    PyObject *capsule = nullptr, *where = nullptr;
    parse(arguments, "OO", &capsule, &where);
    TORCH_CHECK_VALUE(PyCapsule_IsValid(capsule, kPlain) != 0,
                      "from_dlpack: expected a capsule \"dltensor\" that nobody has taken");
    c10::DeviceIndex index = device_argument(where);
    auto *managed = static_cast<DLManagedTensor *>(PyCapsule_GetPointer(capsule, kPlain));
    const DLDevice &device = managed->dl_tensor.device;
    TORCH_CHECK_VALUE(device.device_type == kDLCUDA && device.device_id == index, "from_dlpack: memory of kind ",
                      static_cast<int>(device.device_type), ", device ", device.device_id,
                      ": expected a CUDA device with the number of headrace:", static_cast<int>(index));
    bool is_empty = layout_of(managed->dl_tensor).elements == 0;
    Tensor tensor = is_empty ? at::empty(layout_of(managed->dl_tensor).sizes,
                                         at::TensorOptions(c10::Device(c10::DeviceType::PrivateUse1, index))
                                             .dtype(at::toScalarType(managed->dl_tensor.dtype)))
                             : adopt_managed(managed, index);
    PyCapsule_SetName(capsule, kUsed);
    if (is_empty)
      release_managed(managed);
    return THPVariable_Wrap(tensor);
  });
}

PyObject *device_queue(PyObject *, PyObject *arguments) {
  return answer([&] { return PyLong_FromVoidPtr(hr_device_queue(device_of(only_device_argument(arguments)))); });
}

} // namespace

PyMethodDef dlpack_functions[] = {
    {"to_dlpack", to_dlpack, METH_VARARGS, "A capsule of DLPack with a tensor of a GPU, after all recorded work."},
    {"from_dlpack", from_dlpack, METH_VARARGS, "A tensor in the memory of a capsule of DLPack."},
    {"device_queue", device_queue, METH_VARARGS, "The queue of a device's work as a number; 0: it has none."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
