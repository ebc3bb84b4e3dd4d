// cpp_extension.cpp: the functions of headrace/torch.h, for extensions of torch in C++.
#include "../include/headrace/torch.h"

#include <Python.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/DeadlockDetection.h>

#include <memory>
#include <string>

#include "device.h"
#include "headrace/function.h"
#include "stored.h"

namespace headrace {

// ---- operands

Tensor as_stored(const Tensor &tensor) {
  bool is_mixed = tensor.scalar_type() == ScalarType::Bool &&
                  tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr().get_deleter() == &release_mixed_buffer;
  if (C10_LIKELY(!tensor.is_neg() && !tensor.is_conj() && !is_mixed))
    return tensor;
  Tensor copy = new_tensor(tensor.sizes(), tensor.scalar_type());
  if (tensor.is_conj() || tensor.is_neg())
    copy.copy_(tensor);
  else
    copy_on_device(tensor, copy);
  return copy;
}

namespace {

// The key of a tensor with memory: transforms, traces and fake tensors have others.
void check_stored(const std::string &what, const Tensor &tensor) {
  TORCH_CHECK(tensor.defined(), what, ": expected a tensor of a headrace device, found none");
  c10::DispatchKeySet keys = tensor.key_set();
  TORCH_CHECK_VALUE(is_on_device(tensor), what, ": expected a tensor of a headrace device, found one of ",
                    tensor.device());
  TORCH_CHECK(tensor.layout() == at::kStrided && tensor.has_storage() && keys.has(c10::DispatchKey::PrivateUse1) &&
                  !keys.has(c10::DispatchKey::Python) && !keys.has(c10::DispatchKey::Functionalize),
              what, ": expected a tensor with memory, found ", keys,
              ": make the function an operator (TORCH_LIBRARY or torch.library.custom_op), so that torch's transforms "
              "and traces see it");
}

// Kernels below autograd write what it allows; other code must not write tensors that it follows.
void check_written(const std::string &what, const Tensor &tensor) {
  TORCH_CHECK_VALUE(!tensor.is_neg() && !tensor.is_conj(), what,
                    ": can't write a lazily negated or conjugated tensor: call .resolve_neg() or .resolve_conj()");
  TORCH_CHECK(!(at::GradMode::is_enabled() && tensor.requires_grad() &&
                !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradPrivateUse1)),
              what, " requires a gradient: write it in a torch::autograd::Function, an operator, or without gradients");
}

std::string name_of(const char *function, const char *what, size_t i) {
  return std::string(function) + ": " + what + " " + std::to_string(i);
}

// Views of tensors, which it keeps alive.
class Views {
public:
  Views() = default;
  Views(const Views &) = delete;
  ~Views() {
    for (hr_buffer *buffer : retained_)
      hr_buffer_release(buffer);
  }
  void add(const Tensor &tensor, const std::string &what) {
    int64_t offset_bytes = 0, size = static_cast<int64_t>(tensor.element_size());
    bool is_retained = false;
    hr_view view{};
    view.buffer = buffer_of(tensor, &offset_bytes, &is_retained);
    if (is_retained)
      retained_.push_back(view.buffer);
    TORCH_CHECK(offset_bytes % size == 0, what, ": the storage is not aligned to its elements");
    view.dtype = dtype_of(tensor.scalar_type());
    view.rank = static_cast<int>(tensor.dim());
    view.offset = tensor.storage_offset() + offset_bytes / size;
    view.dims = tensor.sizes().data();
    view.strides = tensor.strides().data();
    tensors_.push_back(tensor);
    views_.push_back(view);
  }
  const hr_view *data() const {
    return views_.data();
  }
  int count() const {
    return static_cast<int>(views_.size());
  }

private:
  c10::SmallVector<Tensor, 8> tensors_;
  c10::SmallVector<hr_view, 8> views_;
  c10::SmallVector<hr_buffer *, 2> retained_;
};

// Releases the interpreter's lock if this thread has it.
class UnlockedIfLocked {
public:
  UnlockedIfLocked() : state_(c10::impl::check_python_gil() ? PyEval_SaveThread() : nullptr) {}
  UnlockedIfLocked(const UnlockedIfLocked &) = delete;
  ~UnlockedIfLocked() {
    if (state_ != nullptr)
      PyEval_RestoreThread(state_);
  }

private:
  PyThreadState *state_;
};

const Tensor *first_of(at::ArrayRef<Tensor> inputs, at::ArrayRef<Tensor> outputs) {
  return !outputs.empty() ? &outputs[0] : !inputs.empty() ? &inputs[0] : nullptr;
}

} // namespace

// ---- streams

hr_stream *stream(const Tensor &tensor) {
  TORCH_CHECK_VALUE(tensor.defined() && is_on_device(tensor), "stream: expected a tensor of a headrace device, found ",
                    tensor.defined() ? "one of " + tensor.device().str() : "none");
  OnDevice on(tensor);
  return stream();
}

void commit() {
  UnlockedIfLocked unlocked;
  check(hr_stream_commit(stream()));
}

void synchronize() {
  UnlockedIfLocked unlocked;
  stream_of(here_index()); // opens the device
  wait_for_device(here_index());
}

// ---- views

View::View(Tensor tensor, const hr_view &contents, hr_buffer *retained)
    : tensor_(std::move(tensor)), view_(contents), retained_(retained) {}

View::View(View &&other) noexcept
    : tensor_(std::move(other.tensor_)), view_(other.view_), retained_(std::exchange(other.retained_, nullptr)) {}

View::~View() {
  hr_buffer_release(retained_);
}

View view(const Tensor &given, Access access) {
  check_stored("view", given);
  OnDevice on(given);
  if (access == Access::Write)
    check_written("view", given);
  Tensor tensor = access == Access::Read ? as_stored(given) : given;
  Views views;
  views.add(tensor, "view");
  hr_view contents = views.data()[0];
  hr_buffer_retain(contents.buffer);
  return {std::move(tensor), contents, contents.buffer};
}

// ---- built-in operations

void record(hr_op op, at::ArrayRef<Input> inputs, at::ArrayRef<Tensor> outputs, IntArrayRef integers,
            at::ArrayRef<Scalar> scalars) {
  const Tensor *first = outputs.empty() ? nullptr : &outputs[0];
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor &tensor = inputs[i].tensor();
    if (tensor.defined())
      check_stored(name_of("record", "input", i), tensor);
    first = first == nullptr && tensor.defined() ? &tensor : first;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_stored(name_of("record", "output", i), outputs[i]);
    check_written(name_of("record", "output", i), outputs[i]);
  }
  size_t numbers = 0;
  for (const Input &input : inputs)
    numbers += input.number().has_value();
  TORCH_CHECK_VALUE(numbers <= 8 && scalars.size() <= 8 && integers.size() <= 48,
                    "record: at most 8 numbers, 8 scalars and 48 integers, found ", numbers, ", ", scalars.size(),
                    " and ", integers.size());
  OnDevice on(first != nullptr ? std::optional<c10::Device>(first->device()) : std::nullopt);
  Record made(op);
  c10::SmallVector<Tensor, 4> copies; // until the record holds their buffers
  for (const Input &input : inputs) {
    if (input.number().has_value())
      made.in(number_of(*input.number()));
    else if (!input.tensor().defined())
      made.absent();
    else
      made.in(copies.emplace_back(as_stored(input.tensor())));
  }
  for (const Tensor &output : outputs)
    made.out(output);
  made.ints(integers);
  for (const Scalar &scalar : scalars)
    made.num(scalar);
  made.run();
  for (const Tensor &output : outputs)
    output.unsafeGetTensorImpl()->bump_version();
}

// ---- functions

namespace {

// A function with what it has to know about its operands.
struct Called {
  struct Note {
    ScalarType type;
    Dims sizes;
  };
  Function function;
  std::vector<Note> inputs, outputs;
};

void note_operands(at::ArrayRef<Tensor> tensors, std::vector<Called::Note> &notes) {
  for (const Tensor &tensor : tensors)
    notes.push_back({tensor.scalar_type(), Dims(tensor.sizes().begin(), tensor.sizes().end())});
}

std::vector<Arguments::Operand> operands_of(const std::vector<Called::Note> &notes, void *const *addresses) {
  std::vector<Arguments::Operand> operands;
  for (size_t i = 0; i < notes.size(); ++i)
    operands.push_back({notes[i].type, notes[i].sizes, addresses[i]});
  return operands;
}

hr_status_code code_of(const c10::Error &error) {
  return dynamic_cast<const c10::IndexError *>(&error) != nullptr            ? HR_STATUS_OUT_OF_RANGE
         : dynamic_cast<const c10::OutOfMemoryError *>(&error) != nullptr    ? HR_STATUS_RESOURCE_EXHAUSTED
         : dynamic_cast<const c10::NotImplementedError *>(&error) != nullptr ? HR_STATUS_UNIMPLEMENTED
                                                                             : HR_STATUS_INVALID_ARGUMENT;
}

hr_status run_called(const hr_function_call *call) {
  try {
    auto *called = static_cast<const Called *>(call->arg);
    std::vector<Arguments::Operand> inputs = operands_of(called->inputs, call->inputs),
                                    outputs = operands_of(called->outputs, call->outputs);
    called->function(Arguments(inputs, outputs, call->queue));
    return HR_OK;
  } catch (const c10::Error &error) {
    return hr_status_make(code_of(error), "%s", error.what_without_backtrace());
  } catch (const std::exception &error) {
    return hr_status_make(HR_STATUS_INTERNAL, "%s", error.what());
  } catch (...) {
    return hr_status_make(HR_STATUS_INTERNAL, "an exception that is no std::exception");
  }
}

void release_called(void *called) {
  delete static_cast<Called *>(called);
}

} // namespace

void call(hr_stream *stream, Function function, at::ArrayRef<Tensor> inputs, at::ArrayRef<Tensor> outputs,
          const CallOptions &options) {
  const char *name = options.name != nullptr ? options.name : "function";
  TORCH_CHECK_VALUE(stream != nullptr, name, ": expected a stream, found none");
  TORCH_CHECK_VALUE(function != nullptr, name, ": expected a function, found none");
  Views in, out;
  const Tensor *first = first_of(inputs, outputs);
  OnDevice on(first != nullptr && first->defined() ? std::optional<c10::Device>(first->device()) : std::nullopt);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::string what = name_of(name, "input", i);
    check_stored(what, inputs[i]);
    in.add(as_stored(inputs[i]), what);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::string what = name_of(name, "output", i);
    check_stored(what, outputs[i]);
    check_written(what, outputs[i]);
    out.add(outputs[i], what);
  }
  auto called = std::make_unique<Called>();
  called->function = std::move(function);
  note_operands(inputs, called->inputs);
  note_operands(outputs, called->outputs);
  hr_function_spec spec{name, &run_called, called.release(), &release_called, options.updated, false};
  check(hr_function_record(stream, &spec, in.count(), in.data(), out.count(), out.data()));
  for (const Tensor &output : outputs)
    output.unsafeGetTensorImpl()->bump_version();
}

// ---- addresses

void *address_of(const Tensor &tensor, std::optional<ScalarType> expected) {
  check_stored("address", tensor);
  TORCH_CHECK_TYPE(!expected.has_value() || *expected == tensor.scalar_type(), "address: expected a tensor of ",
                   *expected, ", found one of ", tensor.scalar_type());
  TORCH_CHECK_VALUE(!tensor.is_neg() && !tensor.is_conj(),
                    "address: the memory of a lazily negated or conjugated tensor has other values: call "
                    ".resolve_neg() or .resolve_conj()");
  OnDevice on(tensor);
  Views views;
  views.add(tensor, "address");
  const hr_view &contents = views.data()[0];
  void *begin = nullptr;
  {
    UnlockedIfLocked unlocked;
    check(hr_stream_address(stream(), contents.buffer, &begin));
  }
  return static_cast<char *>(begin) + contents.offset * static_cast<int64_t>(tensor.element_size());
}

} // namespace headrace
