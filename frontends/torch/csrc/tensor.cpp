// tensor.cpp: operators that move bytes or change metadata: allocation, views, resize and set, copies to, from and on
// the device, item(). Metadata is ordinary: real storages, real strides; only the bytes are elsewhere.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/StorageImpl.h>

#include "kernels.h"
#include "registration.h"

namespace headrace {

// ---- allocation

static void check_options(std::optional<at::Layout> layout, std::optional<at::Device> device,
                          std::optional<bool> pin_memory) {
  if (device.has_value())
    check_index(device->index());
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided, "headrace has strided tensors only, not ",
              layout.value_or(at::kStrided));
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

Tensor empty_tensor(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<at::Layout> layout,
                    std::optional<at::Device> device, std::optional<bool> pin_memory,
                    std::optional<at::MemoryFormat> format) {
  check_options(layout, device, pin_memory);
  at::detail::check_size_nonnegative(size);
  return new_tensor(size, dtype.has_value() ? *dtype : c10::get_default_dtype_as_scalartype(),
                    format.value_or(at::MemoryFormat::Contiguous));
}

Tensor empty_strided_tensor(IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> dtype,
                            std::optional<at::Layout> layout, std::optional<at::Device> device,
                            std::optional<bool> pin_memory) {
  check_options(layout, device, pin_memory);
  TORCH_CHECK(size.size() == stride.size(), "dimensionality of sizes (", size.size(),
              ") must match dimensionality of strides (", stride.size(), ")");
  at::detail::check_size_nonnegative(size);
  return new_tensor(size, stride, dtype.has_value() ? *dtype : c10::get_default_dtype_as_scalartype());
}

// ---- views

Tensor as_strided(const Tensor &self, IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, storage_offset);
}

Tensor view_dtype(const Tensor &self, ScalarType dtype) {
  see_as(self, dtype);
  return at::native::view_dtype(self, dtype);
}

Tensor view(const Tensor &self, IntArrayRef size) {
  return at::native::view(self, size);
}

Tensor reshape_alias(const Tensor &self, IntArrayRef size, IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

Tensor unfold(const Tensor &self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}

Tensor view_as_real(const Tensor &self) {
  return at::native::view_as_real(self);
}

Tensor view_as_complex(const Tensor &self) {
  return at::native::view_as_complex(self);
}

// ---- resize and set

// A storage is resized into a new buffer; the bytes that fit are copied.
void resize_storage(c10::StorageImpl *storage, size_t bytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  OnDevice on(storage->device());
  size_t common = std::min(storage->nbytes(), bytes);
  c10::DataPtr pointer = allocate(bytes);
  if (common > 0) {
    int64_t offset_bytes = 0, size = static_cast<int64_t>(common), one = 1;
    bool retained = false;
    c10::Storage holder(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
    Tensor old =
        at::detail::make_tensor<c10::TensorImpl>(std::move(holder), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                 c10::scalarTypeToTypeMeta(ScalarType::Byte));
    hr_buffer *from = buffer_of(old, &offset_bytes, &retained);
    hr_view in{from, nullptr, HR_DTYPE_U8, 1, offset_bytes, &size, &one};
    hr_view out{static_cast<hr_buffer *>(pointer.get_context()), nullptr, HR_DTYPE_U8, 1, 0, &size, &one};
    hr_attrs attrs{};
    hr_status status = hr_stream_record(stream(), HR_OP_COPY, &attrs, 1, &in, 1, &out);
    if (retained)
      hr_buffer_release(from);
    check(status);
  }
  storage->set_data_ptr_noswap(std::move(pointer));
  storage->set_nbytes(bytes);
}

static void ensure_storage(const Tensor &self, size_t bytes) {
  const c10::Storage &storage = self.unsafeGetTensorImpl()->unsafe_storage();
  if (bytes == 0 || storage.nbytes() >= bytes)
    return;
  resize_storage(storage.unsafeGetStorageImpl(), bytes);
}

const Tensor &resize(const Tensor &self, IntArrayRef size, std::optional<at::MemoryFormat> format) {
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  if (!self.sizes().equals(size)) {
    at::detail::check_size_nonnegative(size);
    ensure_storage(self, at::detail::computeStorageNbytesContiguous(size, self.itemsize(), self.storage_offset()));
    impl->generic_set_sizes_contiguous(size);
  }
  if (format.has_value()) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

Tensor set_storage_strided(const Tensor &self, const c10::Storage &source, int64_t offset, IntArrayRef size,
                           IntArrayRef stride) {
  TORCH_CHECK(source.device() == here(), "Attempted to set the storage of a tensor on device ", here(),
              " to a storage on different device ", source.device(), ".");
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(source);
  impl->set_storage_offset(offset);
  Dims strides =
      stride.data() != nullptr && stride.size() == size.size() ? Dims(stride.begin(), stride.end()) : row_major(size);
  ensure_storage(self, at::detail::computeStorageNbytes(size, strides, self.itemsize(), offset));
  impl->set_sizes_and_strides(size, strides);
  return self;
}

Tensor set_storage(const Tensor &self, const c10::Storage &source) {
  int64_t count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_strided(self, source, 0, {count}, {1});
}

Tensor set_tensor(const Tensor &self, const Tensor &source) {
  if (self.is_same(source))
    return self;
  return set_storage_strided(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor set_nothing(const Tensor &self) {
  c10::Storage empty(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(0),
                                                           allocate(0), allocator(), true));
  return set_storage_strided(self, empty, 0, {0}, {1});
}

bool is_set_to(const Tensor &self, const Tensor &other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes().equals(other.sizes()) &&
         self.strides().equals(other.strides());
}

// ---- copies

namespace {

// The dims of a dense tensor from the outermost in memory to the innermost: in this order its bytes are row-major.
c10::SmallVector<int64_t, 8> memory_order(const Tensor &tensor) {
  c10::SmallVector<int64_t, 8> order(tensor.dim());
  for (int64_t i = 0; i < tensor.dim(); ++i)
    order[i] = i;
  if (tensor.is_contiguous())
    return order;
  IntArrayRef strides = tensor.strides();
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  return order;
}

// A tensor in the form for hr_stream_read and hr_stream_write, its dims in the given order.
struct HostView {
  hr_view view;
  Dims sizes, strides;
  bool retained = false;
  HostView(const Tensor &tensor, at::ArrayRef<int64_t> order) {
    TORCH_CHECK(tensor.dim() <= HR_RANK_MAX, "headrace: tensors have at most ", static_cast<int>(HR_RANK_MAX),
                " dimensions");
    for (int64_t dim : order) {
      sizes.push_back(tensor.size(dim));
      strides.push_back(tensor.stride(dim));
    }
    int64_t offset_bytes;
    view.buffer = buffer_of(tensor, &offset_bytes, &retained);
    view.scalar = nullptr;
    view.dtype = dtype_of(tensor.scalar_type());
    view.rank = static_cast<int>(sizes.size());
    view.offset = tensor.storage_offset() + offset_bytes / static_cast<int64_t>(tensor.itemsize());
    view.dims = sizes.data();
    view.strides = strides.data();
  }
  HostView(const HostView &) = delete;
  ~HostView() {
    if (retained)
      hr_buffer_release(view.buffer);
  }
};

// Handles lazily conjugated or negated tensors, whose bytes are not their values.
void copy_between(const Tensor &from, const Tensor &to) {
  bool conjugate = from.is_conj() != to.is_conj() && to.is_complex(), negate = from.is_neg() != to.is_neg();
  at::assert_no_internal_overlap(to);
  if (conjugate && negate) {
    Tensor half = new_like(from);
    Record record(HR_OP_CONJ);
    record.in(from).out(half).run();
    Record second(HR_OP_NEG);
    second.in(half, to.sizes()).out(to).run();
    return;
  }
  Record record(conjugate ? HR_OP_CONJ : negate ? HR_OP_NEG : HR_OP_COPY);
  record.in(from, to.sizes()).out(to).run();
}

// The stream has copied the source when this returns.
void write_from_host(const Tensor &from, const Tensor &to) {
  Tensor source = from;
  if (to.is_conj())
    source = source.conj();
  if (to.is_neg())
    source = source._neg_view();
  source = source.resolve_conj().resolve_neg();
  if (source.scalar_type() != to.scalar_type())
    source = source.to(to.scalar_type());
  if (!source.sizes().equals(to.sizes()))
    source = source.expand(to.sizes());
  at::assert_no_internal_overlap(to);
  if (!source.is_non_overlapping_and_dense())
    source = source.contiguous();
  HostView view(to, memory_order(source));
  check(hr_stream_write(stream(), &view.view, source.const_data_ptr()));
}

void read_to_host(const Tensor &from, const Tensor &to) {
  bool direct = from.scalar_type() == to.scalar_type() && from.sizes().equals(to.sizes()) &&
                to.is_non_overlapping_and_dense() && from.is_conj() == to.is_conj() && from.is_neg() == to.is_neg();
  if (direct) {
    HostView view(from, memory_order(to));
    check(hr_stream_read(stream(), &view.view, to.mutable_data_ptr()));
    return;
  }
  Tensor host = at::empty(from.sizes(), at::TensorOptions(at::kCPU).dtype(from.scalar_type()));
  HostView view(from, memory_order(host));
  check(hr_stream_read(stream(), &view.view, host.mutable_data_ptr()));
  if (from.is_conj())
    host._set_conj(true);
  if (from.is_neg())
    host._set_neg(true);
  to.copy_(host);
}

// The bytes of a tensor that may be lazily conjugated or negated.
Tensor plain(const Tensor &tensor) {
  Tensor result = tensor.is_conj() ? tensor.conj() : tensor;
  return result.is_neg() ? result._neg_view() : result;
}

// Pending work of the first device runs before this returns. Elements are converted there and broadcast here.
void copy_across(const Tensor &from, const Tensor &to) {
  TORCH_CHECK(capture() == nullptr, "headrace: a graph that copies between devices can't be captured");
  at::assert_no_internal_overlap(to);
  OnDevice at_source(from);
  Tensor source = to.is_conj() ? from.conj() : from;
  source = (to.is_neg() ? source._neg_view() : source).resolve_conj().resolve_neg().to(to.scalar_type());
  if (!source.is_non_overlapping_and_dense())
    source = source.contiguous();
  hr_stream *source_stream = stream();
  OnDevice at_target(to);
  bool is_spread = !source.sizes().equals(to.sizes());
  Tensor target = is_spread ? at::empty(source.sizes(), to.options()) : to;
  HostView there(source, memory_order(source)), here(target, memory_order(source));
  check(hr_stream_write_from(stream(), &here.view, source_stream, &there.view));
  if (is_spread)
    copy_between(target, plain(to));
}

// True for two views of the same elements, by torch's comparison before it rejects writes to overlapping memory.
bool is_itself(const Tensor &from, const Tensor &to) {
  return from.is_alias_of(to) && from.storage_offset() == to.storage_offset() && from.strides().equals(to.strides()) &&
         from.sizes().equals(to.sizes()) && from.scalar_type() == to.scalar_type() && from.is_conj() == to.is_conj() &&
         from.is_neg() == to.is_neg();
}

} // namespace

Tensor copy_from(const Tensor &self, const Tensor &to) {
  if (to.numel() == 0 || self.numel() == 0) {
    at::DimVector both = at::infer_size_dimvector(to.sizes(), self.sizes());
    TORCH_CHECK(to.sizes().equals(both), "output with shape ", to.sizes(), " doesn't match the broadcast shape ", both);
    return to;
  }
  if (is_on_device(self) && is_on_device(to)) {
    if (is_itself(self, to))
      return to;
    if (C10_UNLIKELY(self.device() != to.device())) {
      copy_across(self, to);
      return to;
    }
    at::assert_no_internal_overlap(to);
    at::assert_no_partial_overlap(to, self);
    copy_between(self, to);
  } else if (is_on_device(to)) {
    TORCH_CHECK(self.device().is_cpu(), "headrace: no copy from ", self.device(), " to ", to.device());
    write_from_host(self, to);
  } else {
    TORCH_CHECK(to.device().is_cpu(), "headrace: no copy from ", self.device(), " to ", to.device());
    read_to_host(self, to);
  }
  return to;
}

Tensor copy_from_and_resize(const Tensor &self, const Tensor &to) {
  to.resize_(self.sizes());
  return copy_from(self, to);
}

// ---- copies, numbers and ranges in one record each. torch's composites make an empty tensor and write it.

namespace {

// False for tensors whose bytes are not their values.
bool is_ordinary(const Tensor &tensor) {
  constexpr c10::DispatchKeySet others(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  return !tensor.key_set().has_any(others);
}

Tensor copied(const Tensor &self, ScalarType type, at::MemoryFormat format) {
  Tensor copy = format != at::MemoryFormat::Preserve ? new_tensor(self.sizes(), type, format)
                : self.is_non_overlapping_and_dense()
                    ? new_tensor(self.sizes(), self.strides(), type)
                    : new_tensor(self.sizes(), at::infer_dense_strides(self.sizes(), self.strides()), type);
  copy_on_device(self, copy);
  return copy;
}

Tensor clone(const Tensor &self, std::optional<at::MemoryFormat> format) {
  OnDevice on(self);
  return is_ordinary(self) ? copied(self, self.scalar_type(), format.value_or(at::MemoryFormat::Preserve))
                           : at::native::clone(self, format);
}

Tensor to_copy(const Tensor &self, std::optional<ScalarType> dtype, std::optional<at::Layout> layout,
               std::optional<at::Device> device, std::optional<bool> pin_memory, bool non_blocking,
               std::optional<at::MemoryFormat> format) {
  ScalarType type = dtype.value_or(self.scalar_type());
  bool stays = (!device.has_value() || *device == self.device()) && layout.value_or(at::kStrided) == at::kStrided &&
               !pin_memory.value_or(false) && (!self.is_complex() || c10::isComplexType(type));
  if (!stays || !is_ordinary(self) || !has_dtype(type))
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
  OnDevice on(self);
  return copied(self, type, format.value_or(at::MemoryFormat::Preserve));
}

ScalarType type_of_number(const Scalar &value) {
  if (value.isBoolean())
    return ScalarType::Bool;
  if (value.isIntegral(/*includeBool=*/false))
    return ScalarType::Long;
  ScalarType real = c10::get_default_dtype_as_scalartype();
  bool is_double = real == ScalarType::Double;
  return !value.isComplex() ? real : is_double ? ScalarType::ComplexDouble : ScalarType::ComplexFloat;
}

Tensor full(IntArrayRef size, const Scalar &value, std::optional<ScalarType> dtype, std::optional<at::Layout> layout,
            std::optional<at::Device> device, std::optional<bool> pin_memory) {
  OnDevice on(device);
  ScalarType type = dtype.has_value() ? *dtype : type_of_number(value);
  return fill_with(empty_tensor(size, type, layout, device, pin_memory, std::nullopt), value);
}

Tensor new_range(const Scalar &start, const Scalar &end, const Scalar &step, std::optional<ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin_memory) {
  OnDevice on(device);
  bool is_whole = start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  ScalarType type = dtype.value_or(is_whole ? ScalarType::Long : c10::get_default_dtype_as_scalartype());
  check_options(layout, device, pin_memory);
  return arange(Result::fresh(), type, start, end, step);
}
Tensor range_to(const Scalar &end, std::optional<ScalarType> dtype, std::optional<at::Layout> layout,
                std::optional<at::Device> device, std::optional<bool> pin_memory) {
  return new_range(0, end, 1, dtype, layout, device, pin_memory);
}
Tensor range_from(const Scalar &start, const Scalar &end, std::optional<ScalarType> dtype,
                  std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin_memory) {
  return new_range(start, end, 1, dtype, layout, device, pin_memory);
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("clone", &clone);
  m.impl("_to_copy", &to_copy);
  m.impl("full", &full);
  m.impl("arange", &range_to);
  m.impl("arange.start", &range_from);
  m.impl("arange.start_step", &new_range);
}

} // namespace

Scalar local_scalar(const Tensor &self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  alignas(16) char bytes[16];
  HostView view(self, memory_order(self));
  check(hr_stream_read(stream(), &view.view, bytes));
  switch (self.scalar_type()) {
#define HEADRACE_CASE(type, name) \
  case ScalarType::name:          \
    return Scalar(*reinterpret_cast<const type *>(bytes));
    case ScalarType::Bool: // of mixed memory, any byte
      return Scalar(bytes[0] != 0);
      HEADRACE_CASE(uint8_t, Byte)
      HEADRACE_CASE(int8_t, Char)
      HEADRACE_CASE(int16_t, Short)
      HEADRACE_CASE(int32_t, Int)
      HEADRACE_CASE(int64_t, Long)
      HEADRACE_CASE(uint16_t, UInt16)
      HEADRACE_CASE(uint32_t, UInt32)
      HEADRACE_CASE(uint64_t, UInt64)
      HEADRACE_CASE(c10::Half, Half)
      HEADRACE_CASE(c10::BFloat16, BFloat16)
      HEADRACE_CASE(float, Float)
      HEADRACE_CASE(double, Double)
      HEADRACE_CASE(c10::complex<float>, ComplexFloat)
      HEADRACE_CASE(c10::complex<double>, ComplexDouble)
      AT_FORALL_FLOAT8_TYPES(HEADRACE_CASE)
#undef HEADRACE_CASE
    case ScalarType::ComplexHalf: {
      const auto *half = reinterpret_cast<const c10::complex<c10::Half> *>(bytes);
      return Scalar(c10::complex<double>(half->real(), half->imag()));
    }
    default:
      TORCH_CHECK(false, "headrace: no number of dtype ", self.scalar_type());
  }
}

// Work holds the buffers that it uses, in whatever stream: nothing to record.
void record_stream(const Tensor &) {}

namespace {

// The copy itself handles the bits for conjugation and negation; torch's fallback for them would copy first, in an
// endless recursion.
HEADRACE_KERNELS(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
HEADRACE_KERNELS(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

// True if `param.data = moved` may turn a tensor of one device into one of another. torch has an answer only for its
// own devices, and nn.Module.to() calls this. On false it creates new parameters: tied weights come apart, and an
// existing optimizer keeps the old ones. (The operator has a kernel for all backends, so it is not a row of map.def.)
bool can_take_data(const at::Tensor &self, const at::Tensor &from) {
  auto is_plain = [](const at::Tensor &tensor) {
    return tensor.layout() == c10::kStrided && (tensor.is_cpu() || tensor.is_privateuseone());
  };
  return self.key_set() == from.key_set() || (is_plain(self) && is_plain(from));
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &can_take_data);
}

} // namespace
} // namespace headrace
