"""Operators without a row: rejected by name, or run on the host and counted, in the device's memory if that is the
host's."""

import warnings

import pytest
import torch
from support import DRIVER

D = "headrace"
pytestmark = pytest.mark.device_only


def on_device(tensor):
    return tensor.to(D)


@pytest.fixture(scope="module")
def host_operators():
    """Operators that no device but the CPU will ever have: twice(x), and ordered(x, out=)."""
    library = torch.library.Library("headrace_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("ordered.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("ordered.out", lambda x, *, out: out.resize_(x.shape).copy_(x.sort().values), "CPU")
    yield torch.ops.headrace_test
    library._destroy()


def test_missing_operator_names_itself(host_operators):
    with pytest.raises(NotImplementedError, match=r"headrace_test::twice.*HEADRACE_FALLBACK=allow"):
        host_operators.twice(torch.ones(3, device=D))


def test_fallback_runs_on_the_host_and_counts(host_operators):
    torch.headrace.set_fallback("allow")
    torch.headrace.reset_stats()
    y = host_operators.twice(on_device(torch.tensor([3.0, 1.0, 2.0])))
    assert y.device.type == D and y.cpu().tolist() == [6, 2, 4]
    out = torch.empty(0, device=D)
    host_operators.ordered(y, out=out)
    assert out.device.type == D and out.cpu().tolist() == [2, 4, 6]
    assert sum(torch.headrace.fallbacks().values()) == torch.headrace.stats()["fallbacks"] >= 2
    assert torch.headrace.stats()["fallbacks_by_name"] == torch.headrace.fallbacks()
    assert any("twice" in name for name in torch.headrace.fallbacks())


@pytest.fixture(scope="module")
def shared_operators():
    """Operators of the host that show whose memory they work on."""
    library = torch.library.Library("headrace_shared", "DEF")
    library.define("add_to_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
    library.define("every_second(Tensor x) -> Tensor")
    library.define("kept(Tensor x) -> Tensor")
    library.define("sums(Tensor[] xs) -> (Tensor, Tensor)")
    library.define("grown.out(Tensor x, int n, *, Tensor(a!) out) -> Tensor(a!)")
    kept = []

    def keep(x):
        kept.append(x + 1)
        return kept[-1]

    library.impl("add_to_", lambda x, y: x.add_(y), "CPU")
    library.impl("every_second", lambda x: x[::2], "CPU")
    library.impl("kept", keep, "CPU")
    library.impl("sums", lambda xs: (sum(xs), sum(x.sum() for x in xs)), "CPU")
    library.impl("grown.out", lambda x, n, *, out: out.resize_(n).fill_(x.sum()), "CPU")
    yield torch.ops.headrace_shared, kept
    library._destroy()


@pytest.mark.cpu_only
def test_fallback_copies_nothing_where_memory_is_shared(shared_operators):
    operators, _ = shared_operators
    torch.headrace.set_fallback("allow")
    x = torch.arange(4096.0, device=D) + 1
    y = x * 2
    torch.headrace.reset_stats()
    gradient = torch._standard_gamma_grad  # in C++: no other reference to its result
    levels = gradient(x, y)
    operators.add_to_(x, y)
    stats = torch.headrace.stats()
    assert stats["fallbacks"] == 2 and stats["bytes_copied_in"] == stats["bytes_copied_out"] == 0
    host = torch.arange(4096.0) + 1
    expected = gradient(host, host * 2)
    assert torch.equal(levels.cpu(), expected) and torch.equal(x.cpu(), host * 3)
    levels.add_(1)  # a tensor made on the host is like any other
    assert torch.equal((levels + x).cpu(), expected + 1 + host * 3)
    rows, total = operators.sums([x.view(64, 64).t(), y.view(64, 64)])
    assert torch.equal(rows.cpu(), (host * 3).view(64, 64).t() + (host * 2).view(64, 64))
    assert total.device.type == D and total.item() == (host * 3).sum() + (host * 2).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64, torch.bfloat16])
def test_fallback_sees_strides_offsets_and_overlaps(shared_operators, dtype):
    operators, _ = shared_operators
    torch.headrace.set_fallback("allow")

    def run(device):
        base = torch.arange(60.0).to(dtype).to(device)
        whole = base.view(6, 10)
        operators.add_to_(whole.t()[3:, ::2], whole[1::2, 3:].t())  # between its rows
        operators.add_to_(base[10:20], base[10:20])
        operators.add_to_(whole[0], base[12])
        operators.add_to_(whole[:0], whole[:0])
        if device == "cpu" or DRIVER == "cpu":  # else each has a copy of its own on the host
            with pytest.raises(RuntimeError, match="single memory location"):
                operators.add_to_(base[1:], base[:-1])
        return [base, *(operators.every_second(t) for t in (whole, whole.t()[1:], base[:0], whole[1:, 4:7]))]

    for actual, expected in zip(run(D), run("cpu"), strict=True):
        assert actual.shape == expected.shape and torch.equal(actual.cpu(), expected)


@pytest.mark.cpu_only
def test_results_in_the_memory_of_an_argument_stay_views_of_it(shared_operators):
    operators, _ = shared_operators
    torch.headrace.set_fallback("allow")
    x = torch.arange(6.0, device=D)
    view = operators.every_second(x[1:])
    x.mul_(10)
    view.add_(1)
    assert view.tolist() == [11, 31, 51] and x.tolist() == [0, 11, 20, 31, 40, 51]


def test_fallback_does_not_share_what_somebody_on_the_host_keeps(shared_operators):
    operators, kept = shared_operators
    torch.headrace.set_fallback("allow")
    kept.clear()
    y = operators.kept(torch.zeros(1000, device=D))
    y.fill_(7)
    assert y.sum().item() == 7000 and kept[0].sum().item() == 1000


def test_fallback_resizes_what_it_writes(shared_operators):
    operators, _ = shared_operators
    torch.headrace.set_fallback("allow")
    x = torch.ones(3, device=D)
    for first in (torch.empty(0, device=D), torch.zeros(2, device=D), torch.zeros(40, device=D)):
        for count in (5, 500, 2):
            out = first.resize_(0) if first.numel() == 0 else first
            assert operators.grown.out(x, count, out=out) is out
            assert out.tolist() == [3.0] * count
            assert (out + 1).sum().item() == 4 * count
    whole = torch.zeros(8, device=D)
    part = whole[2:]
    operators.grown.out(x, 4, out=part)
    assert part.tolist() == [3.0] * 4 and whole.tolist() == [0, 0, 3, 3, 3, 3, 0, 0]


def test_fallback_warns_once(host_operators, capfd):
    torch.headrace.set_fallback("warn")
    torch.headrace.reset_stats()
    with warnings.catch_warnings(record=True) as caught:  # torch 2.15 gives them to Python, others print them
        warnings.simplefilter("always")
        for _ in range(2):
            host_operators.twice(torch.ones(2, device=D))
    told = capfd.readouterr().err + "".join(str(warning.message) for warning in caught)
    assert told.count("headrace_test::twice' runs on the host") == 1
