// record.h: turns ATen tensors into records of the stream.
//
// A tensor of the device has a real storage whose DataPtr holds an hr_buffer: `data` is the buffer's handle (an address
// that maps nothing), `context` the buffer, the deleter hr_buffer_release. A kernel turns tensors into views and passes
// them to hr_stream_record with one `Record`. A `Result` is its output: a new tensor, self, or the user's out=.
//
// Threads: safe from any thread; objects on the stack belong to their thread.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <atomic>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/part.h"

namespace headrace {

using at::IntArrayRef;
using at::OptionalIntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;
using Dims = c10::SmallVector<int64_t, 8>;

// ---- the device (device.cpp)

// With several devices, each thread has a current one: torch's guards choose it, and a kernel works on its first
// tensor's (OnDevice). With one device nothing is looked up.
extern std::atomic<bool> has_several_devices;
c10::DeviceIndex chosen_index(); // this thread's
inline c10::DeviceIndex here_index() {
  return C10_LIKELY(!has_several_devices.load(std::memory_order_relaxed)) ? c10::DeviceIndex{0} : chosen_index();
}
inline c10::Device here() {
  return {c10::DeviceType::PrivateUse1, here_index()};
}

hr_device *device(); // the current one, opened on first use; throws in a forked child
hr_stream *stream(); // its stream, or this thread's capture
// True if some device works beside the host, such as a GPU.
extern std::atomic<bool> device_runs_beside;
// Hints to the stream that a backward pass begins or has ended, once for each: such a device then gets work while the
// next pass is recorded.
void hint_pass();
void check_index(c10::DeviceIndex index); // throws for a missing device; -1 is the current one

// Makes the device of the first argument that has one the current device for its lifetime: tensors, lists of tensors,
// devices.
class OnDevice {
public:
  template <class... T> explicit OnDevice(const T &...arguments) {
    if (C10_UNLIKELY(has_several_devices.load(std::memory_order_relaxed)))
      (void)(choose(arguments) || ...);
  }
  OnDevice(const OnDevice &) = delete;
  ~OnDevice() {
    if (C10_UNLIKELY(before_ >= 0))
      leave();
  }

private:
  bool choose(const c10::Device &device); // false: not one of ours
  bool choose(const Tensor &tensor);
  template <class T> bool choose(const std::optional<T> &argument) {
    return argument.has_value() && choose(*argument);
  }
  bool choose(const at::ITensorListRef &list);
  bool choose(const c10::List<std::optional<Tensor>> &list);
  void leave();
  c10::DeviceIndex before_ = -1;
};
[[noreturn]] void fail(hr_status status); // throws the exception that torch's users expect for the code
inline void check(hr_status status) {
  if (C10_UNLIKELY(status != nullptr))
    fail(status);
}
c10::Allocator *allocator();
c10::DataPtr allocate(size_t bytes);
void release_buffer(void *buffer); // the deleter of our DataPtrs
// The same for storages viewed both as bool and as another dtype: their bytes may be any number.
void release_mixed_buffer(void *buffer);
inline bool is_ours(const c10::DataPtr &pointer) {
  return C10_LIKELY(pointer.get_deleter() == &release_buffer) || pointer.get_deleter() == &release_mixed_buffer;
}

// The next position in a generator's sequence: each random operation uses one offset.
struct Philox {
  int64_t seed, offset;
};
Philox next_philox(const std::optional<at::Generator> &generator, int64_t count = 1); // the first of `count`

// ---- captures (graph.cpp)

// A thread's capture, which receives its records instead of the stream.
struct Capture {
  struct Random {
    int64_t scalar, ticket; // the number of the captured scalar that holds the seed; the offset is the next one
  };
  // A captured scalar that is a number of each run, or its negative.
  struct Number {
    int64_t scalar;
    size_t which;
    bool is_negated;
  };
  hr_stream *stream = nullptr;
  std::vector<Random> randoms;
  std::vector<Number> numbers;
  int64_t ticket_count = 0; // including the forward pass
  // While the backward pass is captured: the forward pass.
  hr_stream *forward = nullptr;
  std::vector<Random> forward_randoms;
  std::vector<Number> forward_numbers;
  int64_t forward_ticket_count = 0;
  Capture() = default;
  Capture(const Capture &) = delete;
  ~Capture();
};
extern std::atomic<int> capture_count;
Capture *current_capture(); // this thread's, or nullptr
inline Capture *capture() {
  return C10_LIKELY(capture_count.load(std::memory_order_relaxed) == 0) ? nullptr : current_capture();
}

// Runs a compiled graph by its program's handle. False if no variant fits the inputs, or its results are not all
// tensors of the device.
using RunGraph = hr_status (*)(hr_stream *, const hr_part *, hr_buffer *const *, hr_buffer *const *,
                               const hr_scalar *); // run_and_submit_early, or a wrapper of it
hr_status run_and_submit_early(hr_stream *stream, const hr_part *graph, hr_buffer *const *params,
                               hr_buffer *const *results,
                               const hr_scalar *arguments); // hr_part_run, then hr_part_submit_early
bool graph_run_directly(int64_t program, TensorList inputs, std::vector<Tensor> &outputs, RunGraph run_graph);

// headrace.torch_compile's operations on programs and captures.
int64_t program_create();
void program_release(int64_t program);
void program_mix(int64_t program); // its results are not all tensors of the device
void capture_begin();
void capture_backward();
std::vector<hr_scalar> captured_scalars(bool of_forward); // of the forward pass, or of the backward pass
void bind_numbers(bool of_forward, std::vector<Capture::Number> numbers);
void capture_end(); // ends this thread's capture, if there is one; records that graph_end has not taken are dropped
// The same for captures that autograd's threads join (stream_graph.cpp); one at a time.
void shared_capture_begin();
std::unique_ptr<Capture> shared_capture_end();
struct GraphCounts {
  int64_t captures, runs;
};
GraphCounts graph_counts();
void reset_graph_counts();

// ---- tensors

inline bool is_half(ScalarType type) { // 16-bit types that are computed in f32
  return type == ScalarType::Half || type == ScalarType::BFloat16;
}
hr_dtype dtype_of(ScalarType type); // throws for types that the core lacks
bool has_dtype(ScalarType type);
ScalarType scalar_type_of(hr_dtype dtype); // Undefined if torch lacks it
hr_scalar number_of(const Scalar &value);
hr_scalar number_of(const Tensor &cpu_scalar); // reads a CPU tensor of one element
bool is_on_device(const Tensor &tensor);       // on one of ours
bool is_here(const Tensor &tensor);            // on the current one
bool is_cpu_scalar(const Tensor &tensor);
[[noreturn]] void fail_device(const Tensor &tensor);
Tensor new_tensor(IntArrayRef sizes, ScalarType type); // row-major
Tensor new_tensor(IntArrayRef sizes, IntArrayRef strides, ScalarType type);
Tensor new_tensor_in(c10::DataPtr memory, size_t bytes, IntArrayRef sizes, IntArrayRef strides, int64_t offset,
                     ScalarType type);
Tensor new_view_of(const Tensor &tensor, IntArrayRef sizes, IntArrayRef strides, int64_t offset, ScalarType type);
Tensor new_tensor(IntArrayRef sizes, ScalarType type, at::MemoryFormat format);
Tensor new_like(const Tensor &tensor, std::optional<ScalarType> type = std::nullopt); // same order of strides
void check_converts(const Scalar &value, ScalarType type); // throws torch's error for a number that does not fit
Tensor fill_with(const Tensor &self, const Scalar &value);
void copy_on_device(const Tensor &from, const Tensor &to); // converts and broadcasts; both on the device
Tensor to_type(const Tensor &tensor, ScalarType type);     // the tensor itself if it has the type
Dims row_major(IntArrayRef sizes);

// ---- one record

class Record {
public:
  explicit Record(hr_op op) : op_(op) {}
  Record(const Record &) = delete;
  ~Record();

  Record &in(const Tensor &tensor);                    // undefined: absent
  Record &in(const OptionalTensor &tensor);            // none: absent
  Record &in(const Tensor &tensor, IntArrayRef sizes); // broadcast to sizes
  Record &in(const Tensor &tensor, IntArrayRef sizes, IntArrayRef strides, int64_t offset = 0);
  Record &in(hr_scalar number);
  Record &absent();
  Record &out(const Tensor &tensor);
  Record &out(const Tensor &tensor, IntArrayRef sizes, IntArrayRef strides, int64_t offset = 0);
  Record &no_out();
  Record &ints(IntArrayRef values);
  Record &num(int64_t value) {
    return scalar(hr_scalar_i64(value));
  }
  Record &num(double value) {
    return scalar(hr_scalar_f64(value));
  }
  Record &num(const Scalar &value) {
    return scalar(number_of(value));
  }
  Record &philox(Philox place) {
    random_at_ = scalar_count_, ticket_ = place.offset;
    return num(place.seed).num(place.offset);
  }
  Record &scalar(hr_scalar value);
  void run();

private:
  hr_view view(const Tensor &tensor, const int64_t *sizes, const int64_t *strides, int64_t rank, int64_t offset);
  void normalise(const Tensor &tensor);
  const int64_t *keep(IntArrayRef values);

  static constexpr size_t kPool = 160, kNumbers = 8;
  hr_op op_;
  size_t pool_used_ = 0;
  int number_count_ = 0, scalar_count_ = 0, int_count_ = 0, random_at_ = -1;
  int64_t ticket_ = 0;
  c10::SmallVector<hr_view, 8> inputs_;
  c10::SmallVector<hr_view, 4> outputs_;
  c10::SmallVector<hr_buffer *, 2> retained_;
  c10::SmallVector<std::unique_ptr<int64_t[]>, 1> overflow_;
  std::array<hr_scalar, kNumbers> numbers_, scalars_;
  std::array<int64_t, 48> ints_;
  std::array<int64_t, kPool> pool_;
};

// The buffer behind a tensor's storage and the storage's offset in it. A DataPtr that is not ours (torch rebuilds
// tensors from addresses) is looked up by address; then the buffer is retained and *out_retained is set.
void see_as(const Tensor &tensor, ScalarType type); // notes a view in another dtype, if one is bool
hr_buffer *buffer_of(const Tensor &tensor, int64_t *out_offset_bytes, bool *out_retained);

// ---- results

// Tensors by reference. A copy of one that Python holds would take the interpreter's lock.
class Inputs {
public:
  Inputs() = default;
  Inputs(std::initializer_list<std::reference_wrapper<const Tensor>> listed) : listed_(listed) {}
  bool has_alias_of(const Tensor &tensor) const {
    for (const Tensor &input : listed_)
      if (input.defined() && input.is_alias_of(tensor))
        return true;
    return false;
  }

private:
  std::initializer_list<std::reference_wrapper<const Tensor>> listed_;
};

class Result {
public:
  static Result fresh() {
    return Result(nullptr, false);
  }
  static Result out(const Tensor &tensor) {
    return Result(&tensor, false);
  }
  static Result inplace(const Tensor &self) {
    return Result(&self, true);
  }
  // Like out, if torch allows no other dtype.
  static Result exact(const Tensor &tensor) {
    Result result(&tensor, false);
    result.exact_ = true;
    return result;
  }

  // The same target; is_exact: an out= must have the result's dtype.
  Result exact_if(bool is_exact) const {
    Result result = *this;
    result.exact_ = is_exact && tensor_ != nullptr && !inplace_;
    return result;
  }

  bool is_fresh() const {
    return tensor_ == nullptr;
  }
  bool is_inplace() const {
    return inplace_;
  }
  bool is_exact() const {
    return exact_;
  }
  const Tensor &tensor() const {
    return *tensor_;
  }

  // The tensor that a kernel writes whole. A user's out= is checked (device, castable dtype) and resized as in torch.
  // If its dtype differs or it shares its storage with an input, a temporary is used instead.
  Tensor begin(IntArrayRef sizes, ScalarType type, const Inputs &inputs = {},
               at::MemoryFormat format = at::MemoryFormat::Contiguous) const;
  // The same where torch's out= of a structured operator has the result's type already.
  Tensor begin_exact(IntArrayRef sizes, ScalarType type, const Inputs &inputs = {}) const;
  // Copies a temporary to its target; returns the result.
  Tensor end(const Tensor &written) const;
  // Values computed elsewhere. Memory of the input is copied: a result is a tensor of its own.
  Tensor give(const Tensor &values) const;
  Tensor give(const Tensor &values, const Tensor &input) const;

private:
  Result(const Tensor *tensor, bool inplace) : tensor_(tensor), inplace_(inplace) {}
  const Tensor *tensor_;
  bool inplace_, exact_ = false;
};

// torch's checks of an out= argument for values of the given type and sizes; resizes it.
void prepare_out(const Tensor &out, IntArrayRef sizes, ScalarType type);

// ---- element-wise operations (pointwise.cpp)

enum class Rule {
  Same,    // computed and returned in the promoted type
  Number,  // the same; booleans are refused
  Float,   // the same, integers as the default floating point type
  Compare, // computed in the promoted type, returned as bool
  Logical, // computed and returned as bool
  Where,   // the first operand is a condition, the others promote
  Part     // complex in, real out
};

// A new tensor with the sizes and strides of an element-wise result of both.
Tensor new_pointwise(const Tensor &a, const Tensor &b, ScalarType type);

struct Operand {
  const Tensor *tensor = nullptr;
  hr_scalar number{};
  bool promotes = true; // false: does not affect the result's type (alpha, slopes, bounds)
  Operand() = default;
  Operand(const Tensor &value) : tensor(&value) {}
  Operand(const Scalar &value) : number(number_of(value)) {}
  Operand(double value) : number(hr_scalar_f64(value)) {}
  Operand(int64_t value) : number(hr_scalar_i64(value)) {}
};

inline Operand fixed(const Scalar &value) {
  Operand operand(value);
  operand.promotes = false;
  return operand;
}

Tensor pointwise_record(Result result, hr_op op, Rule rule, const Operand *operands, int count);

template <class... T> Tensor pointwise(Result result, hr_op op, Rule rule, const T &...operands) {
  const Operand array[] = {Operand(operands)...};
  return pointwise_record(result, op, rule, array, sizeof...(T));
}

// The same; a fresh result is row-major, whatever the strides of the operands are.
template <class... T>
Tensor pointwise_row_major(Result result, IntArrayRef sizes, ScalarType type, hr_op op, Rule rule,
                           const T &...operands) {
  if (!result.is_fresh())
    return pointwise(result, op, rule, operands...);
  Tensor out = new_tensor(sizes, type);
  return pointwise(Result::out(out), op, rule, operands...);
}

// torch's type of the result of an operation between these operands.
ScalarType promote(const Operand *operands, int count);

// ---- the same over lists (foreach.cpp)

class ListResult {
public:
  static ListResult fresh() {
    return ListResult({}, true);
  }
  static ListResult inplace(TensorList self) {
    return ListResult(self, false);
  }
  bool is_fresh() const {
    return fresh_;
  }
  TensorList self() const {
    return self_;
  }

private:
  ListResult(TensorList self, bool is_new) : self_(self), fresh_(is_new) {}
  TensorList self_;
  bool fresh_;
};

struct ListOperand {
  enum Kind { Tensors, Numbers, One } kind;
  TensorList tensors;
  at::ArrayRef<Scalar> numbers;
  Operand one;
  ListOperand(TensorList list) : kind(Tensors), tensors(list) {}
  ListOperand(at::ArrayRef<Scalar> list) : kind(Numbers), numbers(list) {}
  ListOperand(const std::vector<Scalar> &list) : kind(Numbers), numbers(list) {}
  ListOperand(const Scalar &value) : kind(One), one(value) {}
  ListOperand(const Tensor &value) : kind(One), one(value) {}
};

std::vector<Tensor> foreach_record(ListResult result, hr_op op, Rule rule, const ListOperand *operands, int count);

template <class... T> std::vector<Tensor> foreach (ListResult result, hr_op op, Rule rule, const T &...operands) {
  const ListOperand array[] = {ListOperand(operands)...};
  return foreach_record(result, op, rule, array, sizeof...(T));
}

} // namespace headrace
