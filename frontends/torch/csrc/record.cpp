// record.cpp: tensors as views, one record, and results. See record.h.
#include "record.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/graph_task.h>

#include "headrace/part.h"
#include "kernels.h"

namespace headrace {

// ---- dtypes and numbers

// torch's dtypes, and the core's.
#define HEADRACE_DTYPES(X)       \
  X(Bool, BOOL)                  \
  X(Byte, U8)                    \
  X(Char, I8)                    \
  X(UInt16, U16)                 \
  X(Short, I16)                  \
  X(UInt32, U32)                 \
  X(Int, I32)                    \
  X(UInt64, U64)                 \
  X(Long, I64)                   \
  X(Half, F16)                   \
  X(BFloat16, BF16)              \
  X(Float, F32)                  \
  X(Double, F64)                 \
  X(ComplexFloat, C64)           \
  X(ComplexDouble, C128)         \
  X(ComplexHalf, C32)            \
  X(Float8_e4m3fn, F8E4M3FN)     \
  X(Float8_e5m2, F8E5M2)         \
  X(Float8_e4m3fnuz, F8E4M3FNUZ) \
  X(Float8_e5m2fnuz, F8E5M2FNUZ) \
  X(Float8_e8m0fnu, F8E8M0FNU)

hr_dtype dtype_of(ScalarType type) {
  switch (type) {
#define X(torchs, ours)    \
  case ScalarType::torchs: \
    return HR_DTYPE_##ours;
    HEADRACE_DTYPES(X)
#undef X
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "headrace has no dtype ", type);
  }
}

bool has_dtype(ScalarType type) {
  switch (type) {
#define X(torchs, ours)    \
  case ScalarType::torchs: \
    return true;
    HEADRACE_DTYPES(X)
#undef X
    default:
      return false;
  }
}

ScalarType scalar_type_of(hr_dtype dtype) {
  switch (dtype) {
#define X(torchs, ours) \
  case HR_DTYPE_##ours: \
    return ScalarType::torchs;
    HEADRACE_DTYPES(X)
#undef X
    default:
      return ScalarType::Undefined;
  }
}

hr_scalar number_of(const Scalar &value) {
  if (value.isFloatingPoint())
    return hr_scalar_f64(value.toDouble());
  if (value.isBoolean())
    return hr_scalar_bool(value.toBool());
  if (value.isComplex()) {
    c10::complex<double> number = value.toComplexDouble();
    return hr_scalar_c128(number.real(), number.imag());
  }
  if (value.type() ==
      ScalarType::UInt64) { // i64 if it can hold the number, so that fewer kinds of programs are compiled
    uint64_t number = value.toUInt64();
    return number > INT64_MAX ? hr_scalar_u64(number) : hr_scalar_i64(static_cast<int64_t>(number));
  }
  return hr_scalar_i64(value.toLong());
}

hr_scalar number_of(const Tensor &cpu_scalar) {
  TORCH_CHECK(cpu_scalar.device().is_cpu(), "headrace: a number was expected on the host, not on ",
              cpu_scalar.device());
  if (C10_UNLIKELY(cpu_scalar.is_conj() || cpu_scalar.is_neg()))
    return number_of(cpu_scalar.item());
  const void *data = cpu_scalar.const_data_ptr();
  switch (cpu_scalar.scalar_type()) {
    case ScalarType::Double:
      return hr_scalar_f64(*static_cast<const double *>(data));
    case ScalarType::Float:
      return hr_scalar_f64(*static_cast<const float *>(data));
    case ScalarType::Long:
      return hr_scalar_i64(*static_cast<const int64_t *>(data));
    case ScalarType::Int:
      return hr_scalar_i64(*static_cast<const int32_t *>(data));
    case ScalarType::Bool:
      return hr_scalar_bool(*static_cast<const bool *>(data));
    default:
      return number_of(cpu_scalar.item());
  }
}

bool is_on_device(const Tensor &tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

bool is_here(const Tensor &tensor) {
  return tensor.device() == here();
}

bool is_cpu_scalar(const Tensor &tensor) {
  return tensor.device().is_cpu() && tensor.dim() == 0;
}

void fail_device(const Tensor &tensor) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", here(), " and ",
              tensor.device(), "!");
}

// ---- making tensors

Dims row_major(IntArrayRef sizes) {
  Dims strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

static Tensor tensor_in(c10::DataPtr memory, size_t bytes, ScalarType type) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(bytes)), std::move(memory), allocator(),
      /*resizable=*/true);
  return at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(type));
}

static Tensor tensor_of_bytes(size_t bytes, ScalarType type) {
  return tensor_in(allocate(bytes), bytes, type);
}

Tensor new_tensor_in(c10::DataPtr memory, size_t bytes, IntArrayRef sizes, IntArrayRef strides, int64_t offset,
                     ScalarType type) {
  Tensor tensor = tensor_in(std::move(memory), bytes, type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

// Another tensor in the same storage that shares the version counter.
Tensor new_view_of(const Tensor &tensor, IntArrayRef sizes, IntArrayRef strides, int64_t offset, ScalarType type) {
  Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()),
                                                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                         c10::scalarTypeToTypeMeta(type));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  if (!view.is_inference())
    view.unsafeGetTensorImpl()->set_version_counter(tensor.unsafeGetTensorImpl()->version_counter());
  return view;
}

Tensor new_tensor(IntArrayRef sizes, ScalarType type) {
  Tensor tensor = tensor_of_bytes(at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(type)), type);
  if (sizes.size() != 1 || sizes[0] != 0)
    tensor.unsafeGetTensorImpl()->generic_set_sizes_contiguous(sizes);
  return tensor;
}

Tensor new_tensor(IntArrayRef sizes, IntArrayRef strides, ScalarType type) {
  Tensor tensor = tensor_of_bytes(at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type)), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

Tensor new_tensor(IntArrayRef sizes, ScalarType type, at::MemoryFormat format) {
  Tensor tensor = new_tensor(sizes, type);
  if (format != at::MemoryFormat::Contiguous && format != at::MemoryFormat::Preserve) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(format);
  }
  return tensor;
}

Tensor new_like(const Tensor &tensor, std::optional<ScalarType> type) {
  ScalarType wanted = type.value_or(tensor.scalar_type());
  if (tensor.is_contiguous())
    return new_tensor(tensor.sizes(), wanted);
  if (tensor.is_non_overlapping_and_dense())
    return new_tensor(tensor.sizes(), tensor.strides(), wanted);
  return new_tensor(tensor.sizes(), at::infer_dense_strides(tensor.sizes(), tensor.strides()), wanted);
}

void check_converts(const Scalar &value, ScalarType type) {
  switch (type) {
#define HEADRACE_CASE(ctype, name) \
  case ScalarType::name:           \
    (void)value.to<ctype>();       \
    break;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(HEADRACE_CASE) // without these three
    HEADRACE_CASE(uint16_t, UInt16)
    HEADRACE_CASE(uint32_t, UInt32)
    HEADRACE_CASE(uint64_t, UInt64)
#undef HEADRACE_CASE
    default:
      break;
  }
}

// torch's CPU refuses numbers above the range of short floats, but rounds the number of a single element.
void check_fill(const Scalar &value, const Tensor &self) {
  ScalarType type = self.scalar_type();
  check_converts(value, self.numel() == 1 && c10::isReducedFloatingType(type) ? ScalarType::Double : type);
}

Tensor fill_with(const Tensor &self, const Scalar &value) {
  check_fill(value, self);
  if (self.numel() == 0)
    return self;
  Tensor once = self; // repeated elements get the same number
  for (int64_t d = 0; d < self.dim(); ++d)
    if (self.stride(d) == 0 && self.size(d) > 1)
      once = once.narrow(d, 0, 1);
  at::assert_no_internal_overlap(once);
  Record record(HR_OP_COPY);
  record.in(number_of(value)).out(once).run();
  return self;
}

void copy_on_device(const Tensor &from, const Tensor &to) {
  if (to.numel() == 0)
    return;
  Record record(HR_OP_COPY);
  record.in(from, to.sizes()).out(to).run();
}

Tensor to_type(const Tensor &tensor, ScalarType type) {
  if (tensor.scalar_type() == type)
    return tensor;
  Tensor converted = new_like(tensor, type);
  copy_on_device(tensor, converted);
  return converted;
}

// ---- records

hr_buffer *buffer_of(const Tensor &tensor, int64_t *out_offset_bytes, bool *out_retained) {
  const c10::DataPtr &pointer = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->data_ptr();
  *out_offset_bytes = 0;
  *out_retained = false;
  if (C10_LIKELY(is_ours(pointer)))
    return static_cast<hr_buffer *>(pointer.get_context());
  size_t offset = 0;
  hr_buffer *buffer = hr_buffer_from_handle(pointer.get(), &offset);
  TORCH_CHECK(buffer != nullptr, "headrace: the tensor's storage is no buffer of the device");
  *out_offset_bytes = static_cast<int64_t>(offset);
  *out_retained = true;
  return buffer;
}

void release_mixed_buffer(void *buffer) {
  release_buffer(buffer);
}

static bool is_mixed(const Tensor &tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr().get_deleter() == &release_mixed_buffer;
}

// A bool tensor of mixed memory with each byte as 0 or 1, in the same layout. The core's bools are 0 and 1.
static Tensor truth_of(const Tensor &tensor) {
  int64_t bytes = static_cast<int64_t>(tensor.storage().nbytes());
  Tensor truth = new_tensor({bytes}, ScalarType::Bool);
  Record record(HR_OP_NE);
  record.in(new_view_of(tensor, {bytes}, {1}, 0, ScalarType::Byte)).in(hr_scalar_i64(0)).out(truth).run();
  return new_view_of(truth, tensor.sizes(), tensor.strides(), tensor.storage_offset(), ScalarType::Bool);
}

void see_as(const Tensor &tensor, ScalarType type) {
  if ((tensor.scalar_type() == ScalarType::Bool) == (type == ScalarType::Bool))
    return;
  c10::StorageImpl *storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  (void)storage->mutable_data_ptr().compare_exchange_deleter(&release_buffer, &release_mixed_buffer);
}

Record::~Record() {
  for (hr_buffer *buffer : retained_)
    hr_buffer_release(buffer);
}

const int64_t *Record::keep(IntArrayRef values) {
  int64_t *place;
  if (C10_LIKELY(pool_used_ + values.size() <= kPool)) {
    place = pool_.data() + pool_used_;
    pool_used_ += values.size();
  } else {
    overflow_.push_back(std::make_unique<int64_t[]>(values.size()));
    place = overflow_.back().get();
  }
  std::copy(values.begin(), values.end(), place);
  return place;
}

hr_view Record::view(const Tensor &tensor, const int64_t *sizes, const int64_t *strides, int64_t rank, int64_t offset) {
  if (C10_UNLIKELY(!is_here(tensor)))
    fail_device(tensor);
  TORCH_CHECK(rank <= HR_RANK_MAX, "headrace: tensors have at most ", static_cast<int>(HR_RANK_MAX),
              " dimensions, not ", rank);
  int64_t offset_bytes;
  bool retained;
  hr_view view;
  view.buffer = buffer_of(tensor, &offset_bytes, &retained);
  if (C10_UNLIKELY(retained)) {
    retained_.push_back(view.buffer);
    int64_t size = static_cast<int64_t>(tensor.itemsize());
    TORCH_CHECK(offset_bytes % size == 0, "headrace: the storage is not aligned to its elements");
    offset += offset_bytes / size;
  }
  view.scalar = nullptr;
  view.dtype = dtype_of(tensor.scalar_type());
  view.rank = static_cast<int>(rank);
  view.offset = tensor.storage_offset() + offset;
  view.dims = sizes;
  view.strides = strides;
  return view;
}

Record &Record::in(const Tensor &tensor) {
  if (!tensor.defined())
    return absent();
  inputs_.push_back(view(tensor, tensor.sizes().data(), tensor.strides().data(), tensor.dim(), 0));
  if (C10_UNLIKELY(tensor.scalar_type() == ScalarType::Bool && is_mixed(tensor)))
    normalise(tensor);
  return *this;
}

// Makes the last input read a copy of its memory with valid bools.
void Record::normalise(const Tensor &tensor) {
  int64_t offset_bytes;
  bool retained;
  Tensor truth = truth_of(tensor); // lives until the record holds its buffer
  inputs_.back().buffer = buffer_of(truth, &offset_bytes, &retained);
  hr_buffer_retain(inputs_.back().buffer);
  retained_.push_back(inputs_.back().buffer);
}

Record &Record::in(const OptionalTensor &tensor) {
  return tensor.has_value() ? in(*tensor) : absent();
}

Record &Record::in(const Tensor &tensor, IntArrayRef sizes) {
  if (!tensor.defined())
    return absent();
  IntArrayRef own = tensor.sizes(), strides = tensor.strides();
  if (own.equals(sizes))
    return in(tensor);
  TORCH_CHECK(own.size() <= sizes.size(), "The expanded size of the tensor (", sizes.size(),
              " dimensions) must not have fewer ", "dimensions than the tensor (", own.size(), ")");
  size_t lead = sizes.size() - own.size();
  Dims wide(sizes.size(), 0);
  for (size_t i = 0; i < own.size(); ++i) {
    TORCH_CHECK(own[i] == sizes[lead + i] || own[i] == 1, "The expanded size of the tensor (", sizes[lead + i],
                ") must match the existing size (", own[i], ") at non-singleton dimension ", lead + i,
                ".  Target sizes: ", sizes, ".  Tensor sizes: ", own);
    wide[lead + i] = own[i] == sizes[lead + i] ? strides[i] : 0;
  }
  return in(tensor, sizes, wide);
}

Record &Record::in(const Tensor &tensor, IntArrayRef sizes, IntArrayRef strides, int64_t offset) {
  inputs_.push_back(view(tensor, keep(sizes), keep(strides), static_cast<int64_t>(sizes.size()), offset));
  if (C10_UNLIKELY(tensor.scalar_type() == ScalarType::Bool && is_mixed(tensor)))
    normalise(tensor);
  return *this;
}

Record &Record::in(hr_scalar number) {
  TORCH_INTERNAL_ASSERT(number_count_ < static_cast<int>(kNumbers));
  numbers_[number_count_] = number;
  hr_view view{};
  view.scalar = &numbers_[number_count_++];
  view.dtype = number.dtype;
  inputs_.push_back(view);
  return *this;
}

Record &Record::absent() {
  inputs_.push_back(hr_view{});
  return *this;
}

Record &Record::out(const Tensor &tensor) {
  if (!tensor.defined())
    return no_out();
  outputs_.push_back(view(tensor, tensor.sizes().data(), tensor.strides().data(), tensor.dim(), 0));
  return *this;
}

Record &Record::out(const Tensor &tensor, IntArrayRef sizes, IntArrayRef strides, int64_t offset) {
  outputs_.push_back(view(tensor, keep(sizes), keep(strides), static_cast<int64_t>(sizes.size()), offset));
  return *this;
}

Record &Record::no_out() {
  outputs_.push_back(hr_view{});
  return *this;
}

Record &Record::ints(IntArrayRef values) {
  TORCH_INTERNAL_ASSERT(int_count_ + values.size() <= ints_.size());
  std::copy(values.begin(), values.end(), ints_.begin() + int_count_);
  int_count_ += static_cast<int>(values.size());
  return *this;
}

Record &Record::scalar(hr_scalar value) {
  TORCH_INTERNAL_ASSERT(scalar_count_ < static_cast<int>(kNumbers));
  scalars_[scalar_count_++] = value;
  return *this;
}

void hint_pass() {
  static thread_local int last_pass = -1; // -1: none
  int pass = torch::autograd::get_current_graph_task_id();
  if (pass == last_pass || capture() != nullptr)
    return;
  last_pass = pass;
  hr_stream_hint(stream(), HR_HINT_PASS_BEGINS);
}

void Record::run() {
  if (C10_UNLIKELY(device_runs_beside.load(std::memory_order_relaxed)))
    hint_pass();
  hr_attrs attrs{int_count_, scalar_count_, ints_.data(), scalars_.data()};
  if (Capture *capturing = capture(); C10_UNLIKELY(capturing != nullptr && random_at_ >= 0))
    capturing->randoms.push_back({hr_capture_scalar_count(capturing->stream) + random_at_, ticket_});
  check(hr_stream_record(stream(), op_, &attrs, static_cast<int>(inputs_.size()), inputs_.data(),
                         static_cast<int>(outputs_.size()), outputs_.data()));
}

// ---- results

void prepare_out(const Tensor &out, IntArrayRef sizes, ScalarType type) {
  TORCH_CHECK(is_here(out), "Expected out tensor to have device ", here(), ", but got ", out.device(), " instead");
  TORCH_CHECK(c10::canCast(type, out.scalar_type()), "result type ", type, " can't be cast to the desired output type ",
              out.scalar_type());
  at::native::resize_output(out, sizes);
  at::assert_no_internal_overlap(out);
}

Tensor Result::begin(IntArrayRef sizes, ScalarType type, const Inputs &inputs, at::MemoryFormat format) const {
  if (tensor_ == nullptr)
    return new_tensor(sizes, type, format);
  if (inplace_) {
    TORCH_CHECK(is_here(*tensor_), "Expected all tensors to be on the same device, but found at least two devices, ",
                here(), " and ", tensor_->device(), "!");
    TORCH_CHECK(tensor_->sizes().equals(sizes), "output with shape ", tensor_->sizes(),
                " doesn't match the broadcast shape ", sizes);
    TORCH_CHECK(c10::canCast(type, tensor_->scalar_type()), "result type ", type,
                " can't be cast to the desired output type ", tensor_->scalar_type());
    at::assert_no_internal_overlap(*tensor_);
  } else {
    TORCH_CHECK(!exact_ || tensor_->scalar_type() == type, "Expected out tensor to have dtype ", type, ", but got ",
                tensor_->scalar_type(), " instead");
    prepare_out(*tensor_, sizes, type);
  }
  bool temporary = tensor_->scalar_type() != type || inputs.has_alias_of(*tensor_);
  return temporary ? new_tensor(sizes, type, format) : *tensor_;
}

Tensor Result::begin_exact(IntArrayRef sizes, ScalarType type, const Inputs &inputs) const {
  TORCH_CHECK(is_fresh() || tensor().scalar_type() == type, "Expected out tensor to have dtype ", type, ", but got ",
              is_fresh() ? type : tensor().scalar_type(), " instead");
  return begin(sizes, type, inputs);
}

Tensor Result::give(const Tensor &values) const {
  if (tensor_ == nullptr)
    return values;
  begin(values.sizes(), values.scalar_type());
  copy_on_device(values, *tensor_);
  return *tensor_;
}

Tensor Result::give(const Tensor &values, const Tensor &input) const {
  if (tensor_ != nullptr || !values.is_alias_of(input))
    return give(values);
  Tensor copy = new_like(values);
  copy_on_device(values, copy);
  return copy;
}

Tensor Result::end(const Tensor &written) const {
  if (tensor_ == nullptr || tensor_->is_same(written))
    return written;
  copy_on_device(written, *tensor_);
  return *tensor_;
}

} // namespace headrace
