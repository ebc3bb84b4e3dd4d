"""The checks of one module of torch.nn, on the inputs that torch tests it with (module_db): output, gradients and
buffers, in training and in evaluation."""

import copy

import torch
from compare import DEVICE, Excuses, Failure, agrees, attempt, bounds_of, judge, move, same_outcome, widen
from operators import cotangents, other_numbers, rounded_to, seed
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

CHECKS = ["train", "eval"]


def entries():
    return {info.name: info for info in module_db}


def step(module, arguments, differentiate):
    """All effects of a call of the module and of its gradient."""
    args, kwargs = arguments
    result = module(*args, **kwargs)
    outputs = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs += [p for p in module.parameters() if p.requires_grad]
    gradients = []
    if differentiate and outputs and inputs:
        gradients = list(torch.autograd.grad(outputs, inputs, cotangents(outputs, 7), allow_unused=True))
    return result, gradients, list(module.buffers())


def run_input(info, dtype, training, given, excuses):
    cpu = torch.device("cpu")
    seed()
    module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    module = module.to(dtype).train(training)
    arguments = (tuple(given.forward_input.args), dict(given.forward_input.kwargs))
    if info.is_lazy:
        module(*move(arguments, cpu)[0], **move(arguments, cpu)[1])

    def on(device, given=arguments, dtype=dtype):
        moved = copy.deepcopy(module).to(device, dtype)
        seed()
        return attempt(lambda: step(moved, move(given, device), True))

    expected = on(cpu)
    if expected[1] is not None:
        return False
    actual, bounds = on(DEVICE), bounds_of(info, dtype)
    truth = None
    if excuses.wants_truth() and actual[1] is None:
        with rounded_to(dtype):
            truth = on(cpu, widen(arguments), torch.float64)[0]
    try:
        same_outcome(expected, actual, bounds)
        if truth is not None:
            excuses.see(actual[0], expected[0], truth)
    except Failure as failure:
        if failure.outcome != "wrong" or expected[1] is not None or actual[1] is not None:
            raise
        with other_numbers(1):
            other = on(cpu)[0]
        if not agrees(other, expected[0], bounds):
            same_outcome(expected, actual, bounds, values=False)  # random
        elif not excuses.covers(actual[0], expected[0], arguments, truth):
            raise
    return True


def applies(info, dtype, check):
    return True


def run_check(info, dtype, check, what):
    compared, excuses = 0, Excuses(what, bounds_of(info, dtype))
    try:
        seed()
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=check == "train")
        for given in inputs:
            if given.forward_input is not None:
                compared += run_input(info, dtype, check == "train", given, excuses)
        excuses.finish()
        return ("pass" if compared else "none"), what if excuses.is_used else ""
    except Exception as error:  # noqa: BLE001: every exception is an outcome
        failure = judge(error)
        return failure.outcome, failure.detail
