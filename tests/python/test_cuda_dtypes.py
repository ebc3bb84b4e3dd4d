"""Operators and dtypes that torch's CUDA device has and its CPU device lacks, by torch's own lists: they run, and
agree with the same operator in a wider dtype on the CPU.
"""

import warnings

import pytest
import torch
from support import DEVICE
from torch.utils import _pytree as pytree

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

WIDE = {
    torch.complex32: torch.complex64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.bool: torch.int64,
    torch.float32: torch.float64,
    torch.float64: torch.float64,
}
WIDE |= dict.fromkeys(
    (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz), torch.float32
)
WIDE |= {dtype: torch.float64 for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)}
# Kernels of CUDA's own, by their names, and random numbers. Transforms of half precision (fft, stft): torch's own code
# rejects them on any device but CUDA, before calling the device.
LEFT_OUT = (
    "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._efficient_attention_forward",
    "nn.functional.rrelu",
)
NO_GOLDEN = ("nansum", "nanmean", "abs", "nn.functional.softsign", "trace", "histc")  # checked by hand below

ROWS = [
    (op, dtype)
    for op in op_db
    for dtype in sorted(op.dtypesIfCUDA - op.dtypes, key=str)
    if op.name not in LEFT_OUT
    and not op.name.startswith("fft.")
    and op.name != "stft"
    and op.name not in NO_GOLDEN
    and op.variant_test_name != "without_cudnn"
]


def widened(tree, dtype):
    def leaf(value):
        if isinstance(value, torch.Tensor) and value.dtype == dtype:
            return value.detach().to(WIDE[dtype])
        return WIDE[dtype] if value is dtype else value

    return pytree.tree_map(leaf, tree)


@pytest.mark.parametrize(
    ("op", "dtype"), ROWS, ids=[f"{op.name}-{op.variant_test_name}-{str(dtype)[6:]}" for op, dtype in ROWS]
)
def test_what_cuda_has_and_the_cpu_lacks(op, dtype):
    for sample in list(op.sample_inputs("cpu", dtype))[:3]:
        arguments = (sample.input, sample.args, sample.kwargs)
        wide = widened(arguments, dtype)
        expected = op.op(wide[0], *wide[1], **wide[2])
        moved = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to(DEVICE), arguments)
        actual = op.op(moved[0], *moved[1], **moved[2])
        for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
            a = a.detach().cpu()
            a, e = (x if x.layout == torch.strided else x.to_dense() for x in (a, e))
            a = torch.view_as_real(a).float() if a.is_complex() else a
            e = torch.view_as_real(e) if e.is_complex() else e
            most = e[e.isfinite()].abs().max().item() if e.is_floating_point() and e.isfinite().any() else 1.0
            bound = 2e-2 * max(1.0, most) if dtype == torch.bfloat16 else 6e-3 * max(1.0, most)
            near = torch.isclose(a.to(e.dtype), e, rtol=2e-2, atol=bound, equal_nan=True)
            overflows = (e.abs() > 60000) | ~e.isfinite()  # half precision ends there
            assert bool((near | overflows).all()), f"{op.name}: {a} and {e}"


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("bounds", [(0, 0), (0, 8), (2, 5), (0.5, 7.9)])
def test_histc_of_integers(dtype, bounds):
    x = torch.tensor([0, 1, 1, 2, 3, 5, 5, 5, 7, 100], dtype=dtype)
    low, high = (int(bounds[0]), int(bounds[1])) if bounds != (0, 0) else (0, 100)
    expected = torch.histc(x.double(), bins=5, min=low, max=high).to(dtype)
    assert torch.equal(torch.histc(x.to(DEVICE), bins=5, min=bounds[0], max=bounds[1]).cpu(), expected)


def test_abs_softsign_and_trace_of_bools():
    x = torch.tensor([[True, False], [False, True]], device=DEVICE)
    assert x.abs().tolist() == [[True, False], [False, True]]
    assert torch.nn.functional.softsign(x).tolist() == [[0.5, 0.0], [0.0, 0.5]]
    assert torch.trace(x).item() == 2
    assert torch.trace(torch.ones(2, 2, dtype=torch.complex32, device=DEVICE)).item() == 2


def test_nansum_and_nanmean_of_complex_numbers():
    x = torch.tensor([1 + 2j, complex(float("nan"), 1), 3 - 1j], device=DEVICE)
    assert torch.nansum(x).item() == 4 + 1j
    assert torch.nanmean(x).item() == 2 + 0.5j
