// Softshrink as an operator in C++: a step of the device's program, and its gradient.
#include <headrace/torch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace {

using at::Tensor;

Tensor softshrink(const Tensor &x, double l) {
  Tensor y = at::empty(x.sizes(), x.options());
  auto run = [l = static_cast<float>(l), n = x.numel()](const headrace::Arguments &arguments) {
    const float *in = arguments.in<float>(0);
    float *out = arguments.out<float>(0);
    for (int64_t i = 0; i < n; ++i)
      out[i] = in[i] > l ? in[i] - l : (in[i] < -l ? in[i] + l : 0);
  };
  headrace::call(headrace::stream(x), run, {x}, {y}, {"softshrink"});
  return y;
}

Tensor softshrink_backward(const Tensor &gradient, const Tensor &x, double l) {
  Tensor result = at::empty(x.sizes(), x.options());
  auto run = [l = static_cast<float>(l), n = x.numel()](const headrace::Arguments &arguments) {
    const float *gy = arguments.in<float>(0), *in = arguments.in<float>(1);
    float *gx = arguments.out<float>(0);
    for (int64_t i = 0; i < n; ++i)
      gx[i] = in[i] > l || in[i] < -l ? gy[i] : 0;
  };
  headrace::call(headrace::stream(x), run, {gradient, x}, {result}, {"softshrink_backward"});
  return result;
}

Tensor softshrink_meta(const Tensor &x, double) {
  return at::empty(x.sizes(), x.options());
}

Tensor backward_meta(const Tensor &, const Tensor &x, double) {
  return at::empty(x.sizes(), x.options());
}

Tensor call_forward(const Tensor &x, double l) {
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("headrace_example::softshrink", "")
                       .typed<Tensor(const Tensor &, double)>();
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(x, l);
}

Tensor call_backward(const Tensor &gradient, const Tensor &x, double l) {
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("headrace_example::softshrink_backward", "")
                       .typed<Tensor(const Tensor &, const Tensor &, double)>();
  return op.call(gradient, x, l);
}

struct Softshrink : torch::autograd::Function<Softshrink> {
  static Tensor forward(torch::autograd::AutogradContext *context, const Tensor &x, double l) {
    context->save_for_backward({x});
    context->saved_data["l"] = l;
    return call_forward(x, l);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *context,
                                                 torch::autograd::variable_list gradients) {
    return {call_backward(gradients[0], context->get_saved_variables()[0], context->saved_data["l"].toDouble()),
            Tensor()};
  }
};

Tensor softshrink_autograd(const Tensor &x, double l) {
  return Softshrink::apply(x, l);
}

} // namespace

TORCH_LIBRARY(headrace_example, m) {
  m.def("softshrink(Tensor x, float l) -> Tensor");
  m.def("softshrink_backward(Tensor gradient, Tensor x, float l) -> Tensor");
}
TORCH_LIBRARY_IMPL(headrace_example, PrivateUse1, m) {
  m.impl("softshrink", &softshrink);
  m.impl("softshrink_backward", &softshrink_backward);
}
TORCH_LIBRARY_IMPL(headrace_example, Meta, m) {
  m.impl("softshrink", &softshrink_meta);
  m.impl("softshrink_backward", &backward_meta);
}
TORCH_LIBRARY_IMPL(headrace_example, Autograd, m) {
  m.impl("softshrink", &softshrink_autograd);
}
