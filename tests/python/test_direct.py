"""Operators whose kernels leave out torch's autograd where it has nothing to do (frontends/torch/csrc/direct.cpp)."""

import pytest
import torch
import torch.autograd.forward_ad as forward
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("headrace")


def floats(*dims, requires_grad=False):
    values = torch.rand(*dims, generator=torch.Generator().manual_seed(sum(dims)))
    return values.to(DEVICE).requires_grad_(requires_grad)


class Seen(TorchDispatchMode):
    """Lists the operators that are called."""

    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.operators.append(function.overloadpacket)
        return function(*arguments, **(options or {}))


COMPOSITES = {"aten::take_along_dim"}  # of torch's, for all keys of autograd


def direct_operators() -> dict[str, dict[str, str]]:
    """{name: {key: kernel}} of the operators in direct.cpp."""
    torch.zeros(1, device=DEVICE)  # kernels are registered at the first use
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    tables = {name: torch._C._dispatch_dump_table(name) for name in names}
    return {
        name: dict(line.split(": ", 1) for line in table.splitlines() if ": " in line)
        for name, table in tables.items()
        if "direct.cpp" in table and name not in COMPOSITES
    }


def test_torchs_kernels_of_autograd_are_found():
    """All other calls are dispatched by AutogradOther, where torch's own autograd kernel is."""
    tables = direct_operators()
    assert {"aten::mul.Tensor", "aten::add_.Tensor", "aten::cat", "aten::_foreach_sqrt"} <= tables.keys()
    for name, table in tables.items():
        assert "direct.cpp" in table["AutogradPrivateUse1"], name
        assert table["AutogradOther"] == table["AutogradCPU"] and "autograd kernel" in table["AutogradOther"], name


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a * b,
        lambda a, b: a + b,
        lambda a, b: torch.cat((a, b)),
        lambda a, b: torch.nn.functional.gelu(a) - b.sqrt(),
        lambda a, b: a.softmax(1) @ b.t(),
        lambda a, b: torch.where(a > b, a, b).sum(0),
        lambda a, b: torch.stack(torch._foreach_sqrt([a, b])),
    ],
)
def test_gradients_as_before(function):
    a, b = floats(3, 4), floats(3, 4) + 1
    host = [x.cpu().requires_grad_() for x in (a, b)]
    with torch.no_grad():
        plain = function(a, b)
    assert plain.grad_fn is None and not plain.requires_grad
    a.requires_grad_(), b.requires_grad_()
    with torch.no_grad():
        assert not function(a, b).requires_grad
    found, expected = function(a, b), function(*host)
    assert found.grad_fn is not None and found.grad_fn.name() == expected.grad_fn.name()
    assert torch.allclose(found.detach().cpu(), plain.cpu())
    for first in (a, b):  # one after the other, and gradients of gradients
        (given,) = torch.autograd.grad(found.square().sum(), first, create_graph=True, retain_graph=True)
        (wanted,) = torch.autograd.grad(
            expected.square().sum(), host[0 if first is a else 1], create_graph=True, retain_graph=True
        )
        assert torch.allclose(given.detach().cpu(), wanted.detach(), atol=1e-5)
        (given,) = torch.autograd.grad(given.square().sum(), first, retain_graph=True)
        (wanted,) = torch.autograd.grad(wanted.square().sum(), host[0 if first is a else 1], retain_graph=True)
        assert torch.allclose(given.cpu(), wanted, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*[Oo]verrid")
def test_conversions_leave_out_autograd():
    """torch selects a backend for them, which comes between autograd and the device's kernel."""
    whole, learned = torch.arange(3, device=DEVICE), floats(3, requires_grad=True)
    seen = []
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("_to_copy", lambda x, **options: seen.append(x) or torch.empty(0), "AutogradOther")
        with torch.no_grad():
            assert whole.float().tolist() == [0, 1, 2] and learned.double().dtype == torch.float64
        assert not seen
        learned.double()
        assert len(seen) == 1
    finally:
        library._destroy()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_conversions_to_other_dtypes_and_devices(mode):
    x = floats(2, 3, 4, 5).transpose(0, 1)
    host = x.cpu()
    with mode():
        for dtype in (torch.float16, torch.int32, torch.bool, torch.complex64):
            assert torch.equal(x.to(dtype).cpu(), host.to(dtype)) and x.to(dtype).stride() == host.to(dtype).stride()
        copy = x.to(torch.float32, copy=True, memory_format=torch.channels_last)
        assert torch.equal(copy.cpu(), host) and copy.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(x.to("cpu", torch.float64), host.double())
        assert torch.equal(host.to(DEVICE, torch.int64).cpu(), host.long())
        meta = x.to("meta")
        assert meta.is_meta and meta.shape == x.shape
        conjugate = x.to(torch.complex64).conj()
        assert torch.equal(conjugate.to(torch.complex128).cpu(), host.to(torch.complex128))
        assert x[:0].to(torch.int8).shape == (0, 2, 4, 5)


def test_one_argument_that_needs_a_gradient_is_enough():
    a, b = floats(3, 4), floats(3, 4, requires_grad=True)
    for found in (a * b, torch.cat((a, b)), torch.addmm(a[0, :3], a, b.t()), a.clone().add_(b)):
        assert found.requires_grad


def test_writes_count_versions():
    a, b = floats(3, 4), floats(3, 4)
    view = a[1]
    with torch.no_grad():
        before = a._version
        assert a.mul_(b) is a
        view.add_(1)
        torch._foreach_add_([a, b], 1.0)
        assert a._version == view._version == before + 3
        assert b._version == 1
    c = floats(3, 4, requires_grad=True)
    product = c * a  # keeps a for c's gradient
    with torch.no_grad():
        a.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_writes_that_autograd_refuses():
    a = floats(3, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        a.mul_(2)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad|a view of a leaf"):
        a[0].add_(1)
    with torch.inference_mode():
        frozen = floats(3, 4).detach() * 2
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        frozen.add_(floats(3, 4))


def test_forward_gradients_without_recording():
    a, tangent = floats(3, 4), floats(3, 4) + 2
    with torch.no_grad(), forward.dual_level():
        dual = forward.make_dual(a, tangent)
        for function, derivative in ((lambda x: x * 3, 3 * tangent), (lambda x: x.exp(), a.exp() * tangent)):
            found = forward.unpack_dual(function(dual)).tangent
            assert torch.allclose(found.cpu(), derivative.cpu())
        both = forward.unpack_dual(torch.cat((a, dual))).tangent
        assert torch.allclose(both.cpu(), torch.cat((torch.zeros_like(a), tangent)).cpu())
        view = forward.unpack_dual(dual[1] * 2).tangent
        assert torch.allclose(view.cpu(), 2 * tangent[1].cpu())


def test_transforms_and_modes_see_the_calls():
    a, b = floats(3, 4), floats(3, 4)
    with torch.no_grad():
        found = torch.vmap(lambda x, y: (x * y).sum(0) + torch.cat((x, y))[:1])(a, b)
        assert torch.allclose(found.cpu(), ((a * b).sum(1, keepdim=True) + a[:, :1]).cpu())
        gradient = torch.func.grad(lambda x: (x * b).exp().sum())(a)
        assert torch.allclose(gradient.cpu(), (b * (a * b).exp()).cpu())

        with Seen() as seen:
            (a * b).add_(1)
    assert seen.operators == [torch.ops.aten.mul, torch.ops.aten.add_]


@pytest.mark.parametrize(
    "sizes, picked, dim",
    [
        ((3, 4), (3, 2), 1),
        ((3, 4), (1, 5), 1),
        ((1, 4), (6, 2), -1),
        ((2, 3, 4), (2, 1, 1), 1),
        ((2, 1, 4), (2, 3, 1), 2),
    ],
)
@pytest.mark.parametrize("strided", [False, True])
def test_take_along_dim_is_torchs(sizes, picked, dim, strided):
    host = torch.randn(*sizes, generator=torch.Generator().manual_seed(1))
    places = torch.randint(-9, 9, picked, generator=torch.Generator().manual_seed(2))  # wrapped by their remainders
    if strided:
        host, places = host.flip(0).transpose(0, 1).contiguous().transpose(0, 1), places.repeat_interleave(2, 0)[::2]
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        torchs = torch.take_along_dim(host.to(dtype), places, dim)
        mine = torch.take_along_dim(host.to(DEVICE).to(dtype), places.to(DEVICE), dim)
        assert mine.dtype == torchs.dtype and mine.stride() == torchs.stride()
        assert torch.equal(mine.cpu(), torchs)


def test_places_are_wrapped_before_they_are_expanded():
    """Operation by operation each result has memory: expanded places would take twice as much as what is picked."""
    device, x = torch.headrace, floats(3, 65536)
    places = torch.tensor([[1], [-3], [2], [1]], device=DEVICE)
    device.set_mode("eager")
    try:
        device.synchronize()
        device.reset_peak_memory_stats()
        before = device.memory_allocated()
        picked = torch.take_along_dim(x, places, 0)
        device.synchronize()
        assert device.max_memory_allocated() - before < 2 * picked.nbytes
    finally:
        device.set_mode("fuse")
    assert torch.equal(picked.cpu(), x.cpu()[[1, 0, 2, 1]])


def test_take_along_dim_of_other_arguments_is_torchs_composite():
    x, places = floats(3, 4, requires_grad=True), torch.tensor([[1], [-1], [0]], device=DEVICE)
    torch.take_along_dim(x, places, 1).sum().backward()
    assert torch.equal(x.grad.cpu(), torch.tensor([[0.0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]))
    x = x.detach()
    flat = places.flatten().abs()
    assert torch.equal(torch.take_along_dim(x, flat).cpu(), torch.take_along_dim(x.cpu(), flat.cpu()))
    assert torch.take_along_dim(x[:, :0], places[:, :0], 1).shape == (3, 0)
    rows = torch.vmap(lambda t, i: torch.take_along_dim(t, i, 0))(x, places)
    assert torch.equal(rows.cpu(), torch.take_along_dim(x, places, 1).cpu())
    with Seen() as seen:
        torch.take_along_dim(x, places, 1)
    assert torch.ops.aten.gather in seen.operators
    refused = ((places[0], 1), (places.float(), 1), (places, 2), (places.cpu(), 1), (places[:2], 1))
    for arguments in refused:
        with pytest.raises((RuntimeError, IndexError)):
            torch.take_along_dim(x, *arguments)


VIEWS = {
    "view": lambda t: t.view(4, 3),
    "view with a free dim": lambda t: t.view(2, -1),
    "reshape": lambda t: t.reshape(-1, 2),
    "reshape of a view": lambda t: t[1:].reshape(4, 2),
    "expand": lambda t: t.unsqueeze(1).expand(-1, 5, 4),
    "expand with a new dim": lambda t: t.expand(2, 3, 4),
    "permute": lambda t: t.permute(1, 0),
    "transpose": lambda t: t.transpose(0, 1),
    "select": lambda t: t[1],
    "slice": lambda t: t[:, 1:3],
    "unsqueeze": lambda t: t.unsqueeze(-1),
    "split": lambda t: t.split(2, 1)[1],
    "of no elements": lambda t: t[3:].view(2, 0),
}


def error_of(function) -> str:
    try:
        function()
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_are_noted_as_torch_notes_them(name, records):
    mine, host = floats(3, 4), floats(3, 4).cpu()
    with torch.set_grad_enabled(records):
        views = [VIEWS[name](t) for t in (mine, host)]
    for base, view in zip((mine, host), views):
        assert view._is_view() and view._base is base and view._version == base._version
        with torch.no_grad():
            base.add_(1)
        assert view._version == base._version > 0
    assert views[0].stride() == views[1].stride() and views[0].storage_offset() == views[1].storage_offset()
    assert torch.equal(views[0].cpu(), views[1]) and torch.equal(mine.cpu(), host)
    for base in (mine, host):  # a gradient that is wanted later
        base.requires_grad_()
    assert views[0].requires_grad and error_of(lambda: views[0].mul_(2)) == error_of(lambda: views[1].mul_(2)) != ""


FIRST_VIEWS = {
    "recorded": (torch.enable_grad, lambda t: t.view(4, 3)),
    "not recorded": (torch.no_grad, lambda t: t.view(4, 3)),
    "one of several": (torch.enable_grad, lambda t: t.split(2)[0]),
    "detached": (torch.enable_grad, lambda t: t.detach()),
}
SECOND_VIEWS = {
    "view": lambda t: t.view(-1),
    "transpose": lambda t: t.transpose(0, 1),
    "select": lambda t: t[1],
    "slice": lambda t: t[:, 1:],
    "unsqueeze": lambda t: t.unsqueeze(0),
    "reshape": lambda t: t.reshape(2, -1),
}


@pytest.mark.parametrize("second", SECOND_VIEWS)
@pytest.mark.parametrize("first", FIRST_VIEWS)
def test_views_of_views_keep_how_the_first_was_made(first, second):
    mode, make = FIRST_VIEWS[first]
    bases = [floats(3, 4), floats(3, 4).cpu()]
    with mode():
        firsts = [make(base) for base in bases]
    views = [SECOND_VIEWS[second](view) for view in firsts]
    for base, view in zip(bases, views):
        assert view._is_view() and (view._base is base) == (first != "detached")
        base.requires_grad_()
    errors = [error_of(lambda view=view: view.mul_(2)) for view in views]
    assert errors[0] == errors[1] and (errors[0] == "") == (first == "detached")


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_leaves_without_recording(name):
    """Only the error of a write differs from that of the test before."""
    leaves = [floats(3, 4).requires_grad_(), floats(3, 4).cpu().requires_grad_()]
    with torch.no_grad():
        views = [VIEWS[name](t) for t in leaves]
    assert [view.requires_grad for view in views] == [True, True]
    assert error_of(lambda: views[0].mul_(2)) == error_of(lambda: views[1].mul_(2)) != ""
    with torch.inference_mode():
        frozen = [VIEWS[name](t) for t in leaves]
    assert not frozen[0].is_inference() and not frozen[1].is_inference()
    assert error_of(lambda: frozen[0].mul_(2)) == error_of(lambda: frozen[1].mul_(2)) != ""


@pytest.mark.parametrize("name", VIEWS)
def test_views_have_forward_gradients(name):
    a, tangent = floats(3, 4), floats(3, 4) + 2
    with torch.no_grad(), forward.dual_level():
        found = forward.unpack_dual(VIEWS[name](forward.make_dual(a, tangent)) * 2).tangent
        assert torch.equal(found.cpu(), VIEWS[name](tangent.cpu()) * 2)
        view = VIEWS[name](a)
        a.mul_(forward.make_dual(torch.ones_like(a), tangent))  # the base gets a forward gradient after the view
        assert torch.equal(forward.unpack_dual(view * 1).tangent.cpu(), VIEWS[name](a.cpu() * tangent.cpu()))


def test_views_are_seen_by_transforms_modes_and_traces():
    a = floats(3, 4)
    with torch.no_grad():
        found = torch.vmap(lambda t: t.view(2, 2).transpose(0, 1).reshape(-1)[1:].unsqueeze(0).expand(2, 3))(a)
        expected = torch.vmap(lambda t: t.view(2, 2).transpose(0, 1).reshape(-1)[1:].unsqueeze(0).expand(2, 3))(a.cpu())
        assert torch.equal(found.cpu(), expected)
        with Seen() as seen:
            a.view(4, 3).transpose(0, 1)[1].reshape(2, 2)
        ops = torch.ops.aten
        assert seen.operators == [ops.view, ops.transpose, ops.select, ops.view]
        traced = torch.jit.trace(lambda t: t.reshape(2, 2).permute(1, 0).split(1)[1], a[0])
        assert torch.equal(traced(a[1]).cpu(), a[1].cpu().reshape(2, 2).permute(1, 0).split(1)[1])


def test_views_that_torch_refuses():
    a, host = floats(3, 4), floats(3, 4).cpu()
    for wrong in (
        lambda t: t.view(5, 3),
        lambda t: t.t().view(12),
        lambda t: t.view(-1, -1),
        lambda t: t.reshape(5, -1),
        lambda t: t.expand(3, 5),
        lambda t: t.expand(4),
        lambda t: t.expand(-1, 3, 4),
        lambda t: t.permute(0, 0),
        lambda t: t.permute(0),
    ):
        found = error_of(lambda: wrong(a)).replace("headraceFloatType", "torch.FloatTensor")
        assert found == error_of(lambda: wrong(host)) != ""


LISTS = ["add", "sub", "mul", "div", "maximum", "minimum", "pow", "copy", "lerp"]
NUMBERS = ["add", "sub", "mul", "div", "maximum", "minimum", "pow"]
NONE = ["neg", "sqrt", "exp", "abs", "reciprocal", "zero", "rsqrt", "sigmoid"]


@pytest.mark.parametrize("dtypes", [[torch.float32, torch.float32], [torch.float32, torch.float64]], ids=str)
def test_writes_to_lists_are_counted_once(dtypes):
    """torch leaves that to kernels of lists. Two dtypes make two records."""

    def versions(name, device, *arguments):
        lists = [[torch.ones(3, dtype=dtype, device=device) for dtype in dtypes] for _ in arguments]
        written = [torch.ones(3, dtype=dtype, device=device) for dtype in dtypes]
        given = [of if argument is None else argument for of, argument in zip(lists, arguments, strict=True)]
        getattr(torch, f"_foreach_{name}_")(written, *given)
        return [tensor._version for tensor in written]

    calls = [(name, None) if name != "lerp" else (name, None, None) for name in LISTS]
    calls += [(name, number) for name in NUMBERS for number in (2.0, [2.0, 3.0])] + [(name,) for name in NONE]
    calls += [("addcmul", None, None), ("addcdiv", None, None), ("lerp", None, 0.5)]
    for call in calls:
        name, *arguments = call
        assert versions(name, DEVICE, *arguments) == versions(name, "cpu", *arguments), call


@pytest.mark.parametrize(
    "write",
    [
        lambda x: torch._foreach_add_([x], [x.t()]),
        lambda x: torch._foreach_mul_([x[1:], x[0]], [x[:-1], x[0]]),
        lambda x: torch._foreach_copy_([x[1:]], [x[:-1]]),
        lambda x: torch._foreach_mul_([x[0], x[1]], x[0, 1]),
    ],
)
def test_lists_refuse_to_write_what_they_read_elsewhere(write):
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
        write(floats(3, 3))


def test_lists_write_what_they_read_in_the_same_place_in_order():
    expected, x = torch.arange(6.0).view(3, 2), torch.arange(6.0, device=DEVICE).view(3, 2)
    for given in (expected, x):
        torch._foreach_add_([given[0], given[1], given[0]], [given[0], given[0], given[1]])
    assert torch.equal(x.cpu(), expected)


def test_a_saved_value_that_a_list_changes_is_refused():
    """Its gradient would be wrong."""
    x, factor = floats(3, requires_grad=True), floats(3)
    y = (x * factor).sum()
    torch._foreach_neg_([factor])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_lists_of_inference_mode_are_written_in_it_alone():
    with torch.inference_mode():
        x = torch.ones(3, device=DEVICE)
        torch._foreach_neg_([x])
    assert x.tolist() == [-1, -1, -1]
    with pytest.raises(RuntimeError, match="inference tensor"):
        torch._foreach_neg_([x])


def operators_of(function) -> list[str]:
    """The operators that torch dispatches in a call."""
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function()
    return [event.name for event in profile.events() if event.name.startswith("aten::")]


def test_writes_along_a_dim_and_ranges_are_one_operator_each():
    cache, rows, places = floats(2, 5, 3), floats(2, 2, 3), torch.tensor([3, 1], device=DEVICE)
    assert operators_of(lambda: cache.index_copy_(1, places, rows)) == ["aten::index_copy_"]
    assert operators_of(lambda: torch.arange(2, 9, device=DEVICE)) == ["aten::arange"]


@pytest.mark.parametrize("places", [[3, 0], [1], 4, []])
@pytest.mark.parametrize("strided", [False, True])
def test_places_of_writes_along_a_dim_have_any_strides(places, strided):
    places = torch.tensor(places, dtype=torch.int64)
    host = torch.arange(60.0).reshape(3, 5, 4)
    rows = torch.arange(12.0 * places.numel()).neg().reshape(3, places.numel(), 4)
    given = places.to(DEVICE)
    if strided and places.dim() == 1:
        given = places.repeat_interleave(3).to(DEVICE)[1::3]
        assert given.numel() == 0 or given.storage_offset() == 1
    wanted = host.index_copy(1, places, rows)
    assert torch.equal(host.to(DEVICE).index_copy(1, given, rows.to(DEVICE)).cpu(), wanted)
    turned = host.to(DEVICE).transpose(0, 2)
    turned.index_copy_(-2, given, rows.to(DEVICE).transpose(0, 2))
    assert torch.equal(turned.transpose(0, 2).cpu(), wanted)
    assert torch.equal(host.to(DEVICE).index_fill(1, given, 7.0).cpu(), host.index_fill(1, places, 7.0))


def test_places_of_writes_are_on_the_device_and_in_range():
    x, rows = floats(4, 3), floats(1, 3)
    with pytest.raises(RuntimeError, match="same device"):
        x.index_copy_(0, torch.tensor([1]), rows)
    with pytest.raises(IndexError):
        x.index_copy_(0, torch.tensor([4], device=DEVICE), rows)
        x.cpu()
    single = torch.zeros((), device=DEVICE)
    assert single.index_copy_(0, torch.tensor([0], device=DEVICE), torch.ones(1, device=DEVICE)).item() == 1


@pytest.mark.parametrize("dtype", [None, torch.int32, torch.float16, torch.float64])
def test_ranges_are_torchs(dtype):
    for arguments in ((5,), (0,), (2, 9), (2, 9, 3), (9.5, 1, -0.5), (3, 3), (0, 1, 0.25)):
        mine, torchs = (torch.arange(*arguments, dtype=dtype, device=device) for device in (DEVICE, "cpu"))
        assert mine.dtype == torchs.dtype and torch.equal(mine.cpu(), torchs)
    for arguments in ((1, 0), (0, 1, 0), (0, float("inf"))):
        with pytest.raises((RuntimeError, ValueError)):
            torch.arange(*arguments, dtype=dtype, device=DEVICE)
    with pytest.raises(RuntimeError):
        torch.arange(3, device=DEVICE, layout=torch.sparse_coo)
    with pytest.raises(RuntimeError):
        torch.arange(3, device=DEVICE, pin_memory=True)


BATCHES = {
    "batches": lambda: (floats(3, 2, 4), floats(3, 4, 5)),
    "heads": lambda: (floats(2, 3, 4, 5), floats(2, 3, 5, 6)),
    "turned": lambda: (floats(2, 3, 4, 5), floats(2, 3, 6, 5).transpose(-1, -2)),
    "heads beside lengths": lambda: (floats(1, 4, 3, 5).transpose(1, 2), floats(1, 6, 3, 5).permute(0, 2, 3, 1)),
    "a part of a batch": lambda: (floats(4, 2, 3, 5)[1:3], floats(2, 2, 5, 4)[:, :, :, 1::2]),
    "one column": lambda: (floats(1, 16, 1), floats(1, 1, 3)),
    "every second matrix": lambda: (floats(6, 2, 3)[::2], floats(3, 3, 2)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_products_of_batches_are_one_operator(name):
    a, b = BATCHES[name]()
    wanted = a.cpu() @ b.cpu()
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            product = a @ b
        assert torch.allclose(product.cpu(), wanted, atol=1e-5) and product.stride() == wanted.stride()
        assert product._version == 0 if mode is not torch.inference_mode else product.is_inference()
        assert not product._is_view()
    assert operators_of(lambda: a @ b) == ["aten::matmul"]
    for dtype in (torch.int64, torch.float64, torch.complex64):
        assert torch.allclose((a.to(dtype) @ b.to(dtype)).cpu(), a.cpu().to(dtype) @ b.cpu().to(dtype))


def test_products_of_other_tensors_are_torchs_composite():
    """Gradients, transforms and modes; batches that are broadcast, merged with rows, copied, empty or refused."""
    a, b = floats(3, 2, 4, requires_grad=True), floats(3, 4, 5)
    (a @ b).sum().backward()
    assert torch.allclose(a.grad.cpu(), (torch.ones(3, 2, 5) @ b.cpu().mT), atol=1e-5)
    a = a.detach()
    others = {
        "broadcast": (a, b[:1]),
        "one matrix": (a, b[0]),
        "a vector": (a, b[0, :, 0]),
        "copied": (floats(3, 2, 2, 4).transpose(0, 1), floats(2, 3, 4, 2)),
        "no rows": (a[:, :0], b),
        "nothing to sum": (a[:, :, :0], b[:, :0]),
        "conjugate": (a.to(torch.complex64).conj(), b.to(torch.complex64)),
    }
    for name, (left, right) in others.items():
        assert torch.allclose((left @ right).cpu(), left.cpu() @ right.cpu(), atol=1e-5), name
    rows = torch.vmap(lambda x, y: x.unsqueeze(0) @ y.unsqueeze(0))(a, b)
    assert torch.allclose(rows.squeeze(1).cpu(), a.cpu() @ b.cpu(), atol=1e-5)
    with forward.dual_level():
        tangent = forward.unpack_dual(forward.make_dual(a, torch.ones_like(a)) @ b).tangent
    assert torch.allclose(tangent.cpu(), torch.ones(3, 2, 4) @ b.cpu(), atol=1e-5)
    with Seen() as seen:
        a @ b
    assert torch.ops.aten.bmm in seen.operators
    for left, right in ((a, b[:, :3]), (a, b[:2]), (a, b.cpu()), (a, b.double())):
        with pytest.raises(RuntimeError):
            left @ right
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert (a @ b).dtype == torch.bfloat16


@pytest.mark.parametrize("sought", [[7], [[7]], 7, [7, 3], []])
@pytest.mark.parametrize("dtypes", [("int64", "int64"), ("float32", "int64"), ("int32", "float64")])
def test_membership_is_torchs(sought, dtypes):
    elements = torch.tensor([[7, 3, 1], [0, 7, 7]]).to(getattr(torch, dtypes[0]))
    sought = torch.tensor(sought).to(getattr(torch, dtypes[1]))
    for host in (elements, elements.t(), elements[0], elements[0, 0], elements[:0]):
        for invert in (False, True):
            torchs = torch.isin(host, sought, invert=invert)
            mine = torch.isin(host.to(DEVICE), sought.to(DEVICE), invert=invert)
            assert torch.equal(mine.cpu(), torchs) and mine.stride() == torchs.stride()


def test_membership_of_one_element_is_one_operator():
    x, nan = torch.tensor([1.0, float("nan")], device=DEVICE), torch.tensor([float("nan")], device=DEVICE)
    assert torch.isin(x, nan).tolist() == [False, False]
    assert operators_of(lambda: torch.isin(x, nan)) == ["aten::isin"]
