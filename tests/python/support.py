"""Comparing tensors of two devices: the same metadata, and values within a bound that the caller chose."""

import math
import os
from pathlib import Path

import torch
from torch import Tensor

os.environ.setdefault("HEADRACE_TUNING", "off")  # earlier measurements on this machine must not affect a test
os.environ.setdefault("HEADRACE_TF32", "off")  # results are compared with the CPU's, which has no such format
ROOT = Path(__file__).resolve().parent.parent.parent
NAME = os.environ.get("HEADRACE_TEST_DEVICE", "headrace")
if NAME == "headrace":
    # torch finds it by itself, unless torch also drives CUDA. Nothing is skipped: without the device the whole run
    # fails, with the reason. HEADRACE_TEST_DEVICE=cpu checks the tests without it.
    import headrace.torch  # noqa: F401
DEVICE = torch.device(NAME)
DRIVER = os.environ.get("HEADRACE_DEVICE", "").split(":")[0] or "cpu"  # whose device "headrace" is
# True if torch's CPU device supports some comparisons; a torch that drives GPUs may be older than the pinned one.
IS_RECENT = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 13)
# If this torch also drives CUDA, its torch.accelerator is CUDA.
IS_ACCELERATOR = DEVICE.type == "headrace" and torch.version.cuda is None

# Relative and absolute bounds. Element-wise results may differ by a few units in the last place.
POINTWISE = {
    torch.float64: (1e-12, 1e-14),
    torch.float32: (5e-6, 1e-6),
    torch.bfloat16: (1.6e-2, 1e-3),
    torch.float16: (2e-3, 1e-3),
    torch.complex64: (5e-6, 1e-6),
    torch.complex128: (1e-12, 1e-14),
}
# Sums in another order: the bound is relative to the largest element, as cancellation leaves errors of that size.
SUMMED = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def assert_same(actual: Tensor, expected: Tensor, what: str = "", rtol: float | None = None, atol: float | None = None):
    """`actual`, on any device, has the dtype, shape and values of `expected`; NaN equals NaN. Exact for integers."""
    assert actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    usual = POINTWISE.get(expected.dtype, (0.0, 0.0))
    torch.testing.assert_close(
        actual.detach().cpu(),
        expected.detach().cpu(),
        rtol=usual[0] if rtol is None else rtol,
        atol=usual[1] if atol is None else atol,
        equal_nan=True,
        check_stride=False,
        msg=lambda text: f"{what}: {text}",
    )


def largest(tensor: Tensor) -> float:
    """The largest finite magnitude; 0 of nothing."""
    values = tensor.detach().cpu().double().abs()
    values = values[values.isfinite()]
    return values.max().item() if values.numel() else 0.0


def assert_summed(actual: Tensor, expected: Tensor, what: str = "", factor: float = 1.0):
    """Like assert_same, for results of sums: within a fraction of the largest element, or of 0.05 if all are smaller
    (they may be the remainder of terms around one)."""
    bound = SUMMED.get(expected.dtype, 0.0) * factor
    assert_same(actual, expected, what, rtol=bound, atol=bound * max(largest(expected), 0.05))


def norm_difference(actual: Tensor, expected: Tensor) -> float:
    return (actual.detach().cpu().double() - expected.detach().cpu().double()).norm().item()


def total_norm(tensors) -> float:
    return math.sqrt(sum(t.detach().cpu().double().norm().item() ** 2 for t in tensors))


def synchronize():
    """Waits for the device under test; an error of deferred work is raised here."""
    if DEVICE.type == "headrace":
        torch.headrace.synchronize()
