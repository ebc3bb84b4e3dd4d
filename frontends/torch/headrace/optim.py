"""Steps of torch.optim.Adam and AdamW on the device: one call instead of torch's dozen.

torch runs them in _multi_tensor_adam (its default, foreach=True): lists of tensors, and numbers for each parameter
computed in between. For a small network that takes longer than the rest of the step. The C++ function records the
same operations with the same numbers, so results keep their bits. It refuses unusual arguments; torch's own function
then runs, as it does for other devices and during torch.compile's tracing.
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


def register(adam):
    """Puts our function in front of torch's, unless this torch's function has an unknown signature."""
    module = importlib.import_module("torch.optim.adam")  # torch.optim has no such attribute
    own = module._multi_tensor_adam
    if " ".join(inspect.signature(own).parameters) != _ARGUMENTS:
        return
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
