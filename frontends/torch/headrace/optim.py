"""Steps of torch.optim.Adam and AdamW on the device, and the release of gradients: one call instead of torch's many.

torch's step collects lists of tensors in Python, checks them, and runs _multi_tensor_adam (its default, foreach=True):
a dozen calls over lists, and numbers for each parameter computed in between. For a small network that takes longer
than the rest of the step. The C++ functions read an optimizer's groups, and record the same operations with the same
numbers, so results keep their bits. They refuse unusual arguments; torch's own functions then run, as they do for
other devices, with hooks, and during torch.compile's tracing.
"""

import functools
import importlib
import inspect

import torch

_ARGUMENTS = (
    "params grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps grad_scale found_inf amsgrad has_complex beta1 "
    "beta2 lr "
    "weight_decay eps maximize capturable differentiable decoupled_weight_decay"
)


def register(adam, step_adam, forget_gradients):
    """Puts our functions in front of torch's, unless this torch's Adam has an unknown signature."""
    module = importlib.import_module("torch.optim.adam")  # torch.optim has no such attribute
    if " ".join(inspect.signature(module._multi_tensor_adam).parameters) == _ARGUMENTS:
        _replace_lists(module, adam)
        _replace_step(module.Adam, step_adam)
    _replace_zero_grad(forget_gradients)


def _replace_lists(module, adam):
    own = module._multi_tensor_adam
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(own)
    def multi_tensor_adam(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        max_exp_avg_sqs,
        state_steps,
        grad_scale,
        found_inf,
        *,
        amsgrad,
        has_complex,
        beta1,
        beta2,
        lr,
        weight_decay,
        eps,
        maximize,
        capturable,
        differentiable,
        decoupled_weight_decay,
    ):
        lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
        is_plain = grad_scale is None and found_inf is None and not (has_complex or capturable or differentiable)
        numbers = (beta1, beta2, lr, weight_decay, eps, amsgrad, maximize, decoupled_weight_decay)
        if is_plain and not is_compiling() and adam(*lists, *numbers):
            return
        own(
            *lists,
            grad_scale,
            found_inf,
            amsgrad=amsgrad,
            has_complex=has_complex,
            beta1=beta1,
            beta2=beta2,
            lr=lr,
            weight_decay=weight_decay,
            eps=eps,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            decoupled_weight_decay=decoupled_weight_decay,
        )

    module._multi_tensor_adam = multi_tensor_adam


def _innermost(function):
    """The function behind the wrappers that torch._dynamo puts around methods of optimizers."""
    while (inner := getattr(function, "_torchdynamo_orig_callable", None)) is not None:
        function = inner
    return function


def _replace_step(kind, step_adam):
    """torch puts hooks and a profiler's name around a class' step when it makes the first optimizer of the class. Ours
    comes before them, for steps without either. A subclass that calls this step from its own has them around its own.
    """
    own, init_group = kind.step, _innermost(kind._init_group)
    is_hooked = getattr(own, "hooked", False)
    hooked = own if is_hooked else torch.optim.Optimizer.profile_hook_step(own)
    hooks = importlib.import_module("torch.optim.optimizer")
    is_compiling = torch.compiler.is_compiling

    def is_plain(self):
        return not (
            is_compiling()
            or hooks._global_optimizer_pre_hooks
            or hooks._global_optimizer_post_hooks
            or self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or self.defaults["differentiable"]
            or getattr(self, "grad_scale", None) is not None
            or getattr(self, "found_inf", None) is not None
        ) and _innermost(type(self)._init_group) is init_group

    @functools.wraps(own)
    def step(self, *args, **kwargs):
        if not args and not kwargs and is_plain(self) and step_adam(self.param_groups, self.state):
            return None
        return (hooked if type(self).step is step else own)(self, *args, **kwargs)

    step.hooked = True
    kind.step = step


def _replace_zero_grad(forget_gradients):
    own = torch.optim.Optimizer.zero_grad
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(own)
    def zero_grad(self, set_to_none=True):
        if set_to_none is not True or is_compiling() or not forget_gradients(self.param_groups):
            own(self, set_to_none)

    torch.optim.Optimizer.zero_grad = zero_grad
