"""Copies on the device, and tensors of a number or a range: one record each, with torch's strides and types."""

import pytest
import torch
from support import DEVICE, IS_RECENT, assert_same

SOURCES = {
    "dense": lambda t: t,
    "transposed": lambda t: t.transpose(0, 2),
    "channels last": lambda t: t.unsqueeze(0).contiguous(memory_format=torch.channels_last),
    "with gaps": lambda t: t[:, ::2],
    "expanded": lambda t: t[:1].expand(5, 4, 6),
    "odd stride of one element": lambda t: t.as_strided((1, 6), (77, 1), 3),
    "no elements": lambda t: t[:, 4:],
    "one number": lambda t: t[1, 2, 3],
    "conjugate": lambda t: t.to(torch.complex64).mul(1j).conj().transpose(0, 1),
    "imaginary": lambda t: t.to(torch.complex64).mul(1j).conj().imag,
    "zeros": lambda t: torch._efficientzerotensor(3, 4, device=t.device),
}
COPIES = {
    "clone": lambda t: t.clone(),
    "clone row-major": lambda t: t.clone(memory_format=torch.contiguous_format),
    "contiguous": lambda t: t.contiguous(),
    "to float64": lambda t: t.to(torch.complex128 if t.is_complex() else torch.float64),
    "to complex": lambda t: t.to(torch.complex64, copy=True),
    "to uint8": lambda t: t.abs().to(torch.uint8),
    "to bool": lambda t: t.to(torch.bool),
    "to bfloat16, row-major": lambda t: t.abs().to(torch.bfloat16, memory_format=torch.contiguous_format),
    "copy": lambda t: t.to(t.device, copy=True),
}


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("source", SOURCES)
def test_copies_are_torchs(source, copy):
    host = torch.arange(2 * 4 * 6, dtype=torch.float32).view(2, 4, 6) - 3
    mine, torchs = (COPIES[copy](SOURCES[source](t)) for t in (host.to(DEVICE), host))
    assert mine.dtype == torchs.dtype and mine.stride() == torchs.stride()
    assert (mine.is_conj(), mine.is_neg()) == (torchs.is_conj(), torchs.is_neg())
    assert_same(mine, torchs)


def test_copies_have_gradients():
    for copy in (torch.clone, lambda t: t.to(torch.float64), lambda t: t.t().contiguous()):
        leaves = [torch.rand(3, 4, generator=torch.Generator().manual_seed(1)).to(d) for d in (DEVICE, "cpu")]
        for leaf in leaves:
            copy(leaf.requires_grad_()).square().sum().backward()
        assert_same(leaves[0].grad, leaves[1].grad)


NUMBERS = [True, 3, -1, 2**40, 0.5, float("nan"), -0.0, float("-inf"), 1 + 2j]


@pytest.mark.parametrize("number", NUMBERS)
def test_full_has_the_numbers_type(number):
    for dims in ((2, 3), (), (0, 2)):
        assert_same(torch.full(dims, number, device=DEVICE), torch.full(dims, number))
    typed = {"fill_value": number, "dtype": torch.complex64}
    assert_same(torch.full((2,), **typed, device=DEVICE), torch.full((2,), **typed))
    with pytest.raises(RuntimeError, match="cannot be converted to type int8_t without overflow"):
        torch.full((2,), 300, dtype=torch.int8, device=DEVICE)


SHORT_FLOATS = [torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn]


@pytest.mark.parametrize("dtype", SHORT_FLOATS, ids=str)
def test_a_single_short_float_is_rounded_and_several_are_refused(dtype):
    for number in (1e10, -1e39, float("inf"), float("nan"), 1 + 2j):
        for dims in ((), (1,), (2,)):
            cpu, ours = (outcome(lambda d=d: torch.full(dims, number, dtype=dtype, device=d)) for d in ("cpu", DEVICE))
            assert isinstance(ours, str) == isinstance(cpu, str), (number, dims)
            if isinstance(cpu, str):
                assert ours.splitlines()[0] == cpu.splitlines()[0]
            else:
                assert_same(ours, cpu)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_wide_unsigned_integers_hold_only_what_fits(dtype):
    for number in (70000, -1, 1.5, 2**40, 2**63 - 1, 1e40, float("nan"), 1j):
        cpu, ours = (outcome(lambda d=d: torch.full((2,), number, dtype=dtype, device=d)) for d in ("cpu", DEVICE))
        assert isinstance(ours, str) == isinstance(cpu, str), number
        if isinstance(cpu, str):
            assert ours.splitlines()[0] == cpu.splitlines()[0]
        else:
            assert_same(ours, cpu)


RANGES = [(5,), (0,), (2.5,), (3, 9), (1, 2, 0.25), (9, 3, -2), (-3, 3.5), (2**40, 2**40 + 3)]


def outcome(function):
    try:
        return function()
    except (RuntimeError, ValueError) as error:
        return str(error)


@pytest.mark.parametrize("given", RANGES + [(3, 1), (0, 3, -1), (0, 3, 0), (0, float("inf"))])
@pytest.mark.parametrize("dtype", [None, torch.int64, torch.int32, torch.float32, torch.float64, torch.bfloat16])
def test_ranges_are_torchs(given, dtype):
    if dtype == torch.int64 and 0 < abs(given[-1]) < 1 and not IS_RECENT:
        pytest.skip("older versions of torch divide by the step as an integer, which ends the process")
    if dtype == torch.int32 and max(given) > 2**31:
        return
    mine, torchs = (outcome(lambda d=d: torch.arange(*given, dtype=dtype, device=d)) for d in (DEVICE, "cpu"))
    if isinstance(mine, str) or isinstance(torchs, str):
        assert mine == torchs
    else:
        assert_same(mine, torchs)


def test_one_record_each():
    x = torch.rand(3, 4, device=DEVICE)
    for make in (x.clone, x.t().contiguous, x.double, lambda: torch.full((3,), 2, device=DEVICE),
                 lambda: torch.arange(7, device=DEVICE)):  # fmt: skip
        before = torch.headrace.stats()["operations"]
        make()
        assert torch.headrace.stats()["operations"] == before + 1
