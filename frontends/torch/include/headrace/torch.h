// headrace/torch.h: C++ extensions of torch for tensors of the device `headrace`.
//
//   Tensor softshrink(const Tensor &x, double l) {
//     Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
//     headrace::call(headrace::stream(x), [l, n = x.numel()](const headrace::Arguments &arguments) {
//       const float *in = arguments.in<float>(0);
//       float *out = arguments.out<float>(0);
//       for (int64_t i = 0; i < n; ++i)
//         out[i] = in[i] > l ? in[i] - l : (in[i] < -l ? in[i] + l : 0);
//     }, {x}, {y}, {"softshrink"});
//     return y;
//   }
//   TORCH_LIBRARY_IMPL(my_operators, PrivateUse1, m) { m.impl("softshrink", &softshrink); }
//
// `headrace.cpp_extension.load` builds a file with this header; `headrace.get_include()` is its folder.
//
// A tensor of the device has no memory while operations are pending: tensor.data_ptr() is a handle that must not be
// dereferenced. A function that needs memory becomes a step of the program (`call`), where it has addresses; `record`
// records built-in operations; `address` waits for everything and gives an address. The C interface (headrace/stream.h
// and others) works on what `stream` and `view` give.
//
// Errors are exceptions of torch (c10::Error), with the operand's number, the actual and the expected value.
//
// Threads: any; work of several threads on a device runs in the order of the calls. The library is libheadrace_torch.so
// of this package, for one minor version of torch.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <utility>

#include "headrace/op.h"
#include "headrace/stream.h"

#define HEADRACE_TORCH_API __attribute__((visibility("default")))

namespace headrace {

// ---- streams

// The stream that operations on the tensor go to: its device's, or the capture of this thread (torch.headrace.graph,
// torch.compile). Borrowed. A device's stream lives as long as the process.
HEADRACE_TORCH_API hr_stream *stream(const at::Tensor &tensor);

// Submits everything that is recorded on the current device, without waiting. Never needed for correctness.
HEADRACE_TORCH_API void commit();
// Waits for everything that is recorded on the current device, without the interpreter's lock. Throws the first error
// of that work.
HEADRACE_TORCH_API void synchronize();

// ---- views

enum class Access { Read, Write };

// A tensor as the C interface sees it, with sizes and strides in elements. It keeps its tensor alive.
class HEADRACE_TORCH_API View {
public:
  View(View &&other) noexcept;
  View(const View &) = delete;
  View &operator=(const View &) = delete;
  View &operator=(View &&) = delete;
  ~View();
  const hr_view &get() const {
    return view_;
  }
  operator const hr_view &() const {
    return view_;
  }

private:
  friend HEADRACE_TORCH_API View view(const at::Tensor &, Access);
  View(at::Tensor tensor, const hr_view &contents, hr_buffer *retained);
  at::Tensor tensor_;
  hr_view view_;
  hr_buffer *retained_;
};

// Access::Read: if the elements in memory are not the tensor's values (a lazily negated or conjugated tensor), this is
// a view of a copy, whose making is recorded. Access::Write refuses such tensors, and those that require a gradient
// outside of an operator.
HEADRACE_TORCH_API View view(const at::Tensor &tensor, Access access = Access::Read);

// ---- built-in operations

// An operand of `record`: a tensor, a number, or nothing for an optional operand (std::nullopt, an undefined tensor).
class Input {
public:
  Input(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  Input(const c10::Scalar &number) : number_(number) {}
  template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0> Input(T number) : number_(number) {}
  Input(std::nullopt_t) {}
  const at::Tensor &tensor() const {
    return tensor_;
  }
  const std::optional<c10::Scalar> &number() const {
    return number_;
  }

private:
  at::Tensor tensor_;
  std::optional<c10::Scalar> number_;
};

// Records a row of the core's table (docs/operators.md) and runs nothing. Outputs exist and have the right sizes and
// dtypes; they may be inputs. `integers` and `scalars` are the row's attributes.
HEADRACE_TORCH_API void record(hr_op op, at::ArrayRef<Input> inputs, at::ArrayRef<at::Tensor> outputs,
                               at::IntArrayRef integers = {}, at::ArrayRef<c10::Scalar> scalars = {});

// ---- functions

// The arguments of a function, valid until it returns: addresses of dense, row-major elements, whatever the strides of
// the tensors are. An input shares no memory with an output.
class Arguments {
public:
  struct Operand {
    at::ScalarType type;
    at::IntArrayRef sizes;
    void *address;
  };
  Arguments(at::ArrayRef<Operand> inputs, at::ArrayRef<Operand> outputs, void *device_queue)
      : inputs_(inputs), outputs_(outputs), queue_(device_queue) {}

  // T: the tensor's dtype in C++ (float, int64_t, bool, c10::Half, c10::complex<double>), or void.
  template <class T> const T *in(size_t i) const {
    return static_cast<const T *>(checked<T>("input", inputs_, i));
  }
  template <class T> T *out(size_t i) const {
    return static_cast<T *>(checked<T>("output", outputs_, i));
  }
  const Operand &input(size_t i) const {
    return inputs_.at(i);
  }
  const Operand &output(size_t i) const {
    return outputs_.at(i);
  }
  // On CUDA the cudaStream_t for the function's work, whose device is current; the addresses are the device's. On the
  // host nullptr.
  void *queue() const {
    return queue_;
  }

private:
  template <class T> static void *checked(const char *what, at::ArrayRef<Operand> operands, size_t i) {
    const Operand &operand = operands.at(i);
    if constexpr (!std::is_void_v<T>)
      TORCH_CHECK(operand.type == c10::CppTypeToScalarType<std::remove_const_t<T>>::value, what, " ", i, ": expected ",
                  c10::CppTypeToScalarType<std::remove_const_t<T>>::value, ", found ", operand.type);
    return operand.address;
  }
  at::ArrayRef<Operand> inputs_, outputs_;
  void *queue_;
};

using Function = std::function<void(const Arguments &)>;

struct CallOptions {
  const char *name = "function"; // in profiles and messages
  int updated = 0;               // so many outputs, the first ones, have contents that the function may use
};

// Records a call of a function, as a step of the program: it waits for nothing and makes no commit. The function runs
// on the device's thread, after the operations recorded before and ahead of those recorded later, once a call, even if
// nobody needs its outputs. On CUDA it launches kernels on arguments.queue().
//
// Outputs are written whole, unless they are `updated`; they exist, and must not overlap or require a gradient. Their
// versions change. A function has no gradient: use torch::autograd::Function, or an operator with an Autograd kernel.
//
// An exception of the function is thrown by the next wait, with the name in front; outputs are undefined then, and
// later work goes on after the report. The function must not use tensors of the device, and must not wait for a lock
// that a recording thread may hold, such as the interpreter's. It should capture numbers, not tensors: a captured
// tensor keeps its memory. In a captured graph it is called in each run.
HEADRACE_TORCH_API void call(hr_stream *stream, Function function, at::ArrayRef<at::Tensor> inputs,
                             at::ArrayRef<at::Tensor> outputs, const CallOptions &options = {});

// ---- addresses

HEADRACE_TORCH_API void *address_of(const at::Tensor &tensor, std::optional<at::ScalarType> expected);

// Commits, waits, and returns the address of the tensor's first element on the device; elements are at the tensor's
// strides. It is valid as long as the tensor's storage, and must not be used while operations that are recorded later
// are pending. T as in Arguments::in. Throws for the dtype, in a capture, and for lazily negated or conjugated tensors.
template <class T> T *address(const at::Tensor &tensor) {
  if constexpr (std::is_void_v<T>)
    return address_of(tensor, std::nullopt);
  else
    return static_cast<T *>(address_of(tensor, c10::CppTypeToScalarType<std::remove_const_t<T>>::value));
}

} // namespace headrace
