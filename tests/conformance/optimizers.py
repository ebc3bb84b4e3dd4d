"""The checks of one optimizer, with the settings that torch tests it with (optim_db): a few steps on both devices, in
each form that the optimizer has. The reference is the same form on the CPU."""

import contextlib
import sys
from unittest import mock

import torch
from compare import DEVICE, assert_equal, judge
from torch.testing._internal.common_optimizers import optim_db

CHECKS = ["plain", "foreach", "fused", "capturable", "differentiable", "sparse"]
STEPS = 5


def entries():
    return {info.optim_cls.__name__: info for info in optim_db}


def forms_of(info):
    forms = {"plain": {"foreach": False} if "foreach" in info.supported_impls else {}}
    if "foreach" in info.supported_impls:
        forms["foreach"] = {"foreach": True}
    if "fused" in info.supported_impls:
        forms["fused"] = {"fused": True}
    if "differentiable" in info.supported_impls:
        forms["differentiable"] = {"differentiable": True}
    if info.has_capturable_arg:
        forms["capturable"] = {"capturable": True, **forms["plain"]}
    if info.supports_sparse or info.only_supports_sparse_grads:
        forms["sparse"] = dict(forms["plain"])
    if info.only_supports_sparse_grads:
        forms = {"sparse": forms["sparse"]}
    return forms


def train(info, kwargs, dtype, device, is_sparse):
    """The parameters after a few steps from the same start."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(4, 3), (2, 5)] if info.optim_cls.__name__ == "Muon" or is_sparse else [(4, 3), (5,), (1,), (2, 3, 2)]
    starts = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    targets = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).to(device) for shape in shapes]
    parameters = [start.to(device).requires_grad_() for start in starts]
    is_differentiable = kwargs.get("differentiable", False)
    if is_differentiable:  # a step is then part of the graph, and writes a non-leaf
        parameters = [p.clone() for p in parameters]
    moved = {
        name: value.to(device) if isinstance(value, torch.Tensor) and value.dim() else value
        for name, value in kwargs.items()
    }
    optimizer = info.optim_cls(parameters, **moved)

    def closure():
        optimizer.zero_grad()
        if is_differentiable:
            for p, t in zip(parameters, targets):
                p.grad = (p - t).detach()
            return None
        loss = sum(((p - t) ** 2 * 0.5).sum() for p, t in zip(parameters, targets))
        loss.backward()
        if is_sparse:
            for p in parameters:
                p.grad = p.grad.to_sparse()
        return loss

    for _ in range(STEPS):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return [p.detach() for p in parameters]


@contextlib.contextmanager
def capturable_everywhere():
    """torch rejects the capturable form on its CPU device; the ordinary form gives the reference there."""
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("torch.optim.") and hasattr(module, "_get_capturable_supported_devices"):
                patch = mock.patch.object(module, "_get_capturable_supported_devices", lambda **_: ["cpu", DEVICE.type])
                stack.enter_context(patch)
        yield


def applies(info, dtype, check):
    return check in forms_of(info)


def run_check(info, dtype, check, what):
    try:
        form = forms_of(info)[check]
        settings = info.optim_inputs_func(device="cpu")
        for given in settings:
            usual = {
                k: v for k, v in given.kwargs.items() if k not in ("foreach", "fused", "differentiable", "capturable")
            }
            if check == "sparse" and usual.get("weight_decay", 0) != 0 or check == "sparse" and usual.get("maximize"):
                continue
            if check in ("foreach", "fused") and isinstance(usual.get("lr"), torch.Tensor) and check == "foreach":
                continue  # torch requires capturable then
            if check == "differentiable" and isinstance(usual.get("lr"), torch.Tensor):
                continue
            with capturable_everywhere():
                expected = train(info, {**usual, **form}, dtype, torch.device("cpu"), check == "sparse")
            actual = train(info, {**usual, **form}, dtype, DEVICE, check == "sparse")
            assert_equal(actual, expected, (1.6e-2, 1e-5) if what == "in-bfloat16" else (None, None))
        return "pass", ""
    except Exception as error:  # noqa: BLE001: every exception is an outcome
        failure = judge(error)
        return failure.outcome, failure.detail
