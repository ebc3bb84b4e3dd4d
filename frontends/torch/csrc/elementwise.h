// elementwise.h: element-wise kernels from C expressions (headrace/expression.h).
//
//   elementwise.cpp            kernels, their variants for each form of the operands, and their records
//   elementwise_gradient.cpp   autograd, and the operator headrace::elementwise for modes and transforms
//   elementwise_call.cpp       the function that Python calls
//
// Threads: a kernel has a lock; everything else belongs to the calling thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "headrace/expression.h"
#include "record.h"

namespace headrace {

// An operand of a call: a tensor, or a number of the host.
struct KernelOperand {
  Tensor tensor; // undefined: a number
  hr_scalar number{};
  ScalarType number_type = ScalarType::Undefined; // Bool, Long or Double of Python; of a tensor of the CPU its dtype
  bool is_wrapped = true;                         // Python's, which has the lowest rank in promotion

  KernelOperand() = default;
  explicit KernelOperand(Tensor value) : tensor(std::move(value)) {}
  explicit KernelOperand(const Scalar &value);
  bool is_number() const {
    return !tensor.defined();
  }
};
using KernelOperands = c10::SmallVector<KernelOperand, 4>;

struct KernelVariant;

// An expression, or the gradient of one.
struct Kernel {
  struct Variable {
    const char *name;
    hr_dtype dtype;
    ScalarType type; // Undefined: T
    bool is_used, is_floating;
  };
  std::string text, signature;
  std::optional<std::string> backward; // the text of the first gradient
  int64_t order = 0;                   // 1: a gradient, 2: its gradient
  hr_expression *expression = nullptr;
  std::vector<Variable> inputs, outputs;
  uint64_t given_outputs = 0; // all that are not always 0

  std::mutex mutex;
  std::vector<std::shared_ptr<KernelVariant>> variants; // the last used first
  std::shared_ptr<Kernel> gradient;

  ~Kernel();
};

// The kernel of these texts; parsed once. Throws for texts that do not parse.
std::shared_ptr<Kernel> find_kernel(const std::string &text, const std::string &signature,
                                    const std::optional<std::string> &backward, int64_t order);
std::shared_ptr<Kernel> gradient_of(Kernel &kernel);

// Records a call on tensors of the device; outputs whose bit in `wanted` is set, in order. Plain tensors only.
using KernelResults = c10::SmallVector<Tensor, 2>;
struct KernelCore { // the core's functions, or wrappers of them
  hr_status (*run)(hr_stream *, const hr_expression_instance *, hr_buffer *const *, hr_buffer *const *,
                   const hr_scalar *);
  hr_status (*record)(hr_stream *, const hr_expression *, hr_dtype, const hr_view *, const hr_view *);
};
constexpr KernelCore kKernelCore{&hr_expression_instance_run, &hr_expression_record};
KernelResults kernel_compute(Kernel &kernel, KernelOperands &operands, uint64_t wanted, const KernelCore &core);

// The dtype of T for these operands, torch's promotion; checks the operands' dtypes and numbers.
ScalarType kernel_type(const Kernel &kernel, const KernelOperands &operands);

// True if no mode, transform or subclass has to see the call, and all tensors are on the device.
bool kernel_is_plain(const KernelOperands &operands);
// The call with gradients, and through torch's dispatcher if something has to see it.
KernelResults kernel_call(const std::shared_ptr<Kernel> &kernel, KernelOperands &operands, uint64_t wanted,
                          const KernelCore &core);

} // namespace headrace
