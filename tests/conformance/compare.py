"""The same call on two devices: arguments are moved with their layout, outcomes compared within torch's own bounds.

An outcome of a check is one of OUTCOMES, the worst first. `missing`: the device raised NotImplementedError, which is
honest. `wrong`: its numbers differ from torch's, the worst outcome.
"""

import dataclasses
import re

import torch
from torch.testing._internal.common_device_type import toleranceOverride
from torch.utils import _pytree as pytree

DEVICE = torch.device("headrace")
OUTCOMES = ["crash", "hang", "wrong", "error", "missing", "pass", "none"]
WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


class Failure(Exception):
    """A check's verdict: an outcome and its details."""

    def __init__(self, outcome, detail):
        super().__init__(detail)
        self.outcome, self.detail = outcome, detail


# ---- moving


def extent_of(tensor):
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def move_tensor(tensor, device):
    """The tensor on the device with the same strides and offset; overlaps are preserved."""
    if tensor.layout != torch.strided or tensor.is_quantized or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return tensor.detach().to(device).requires_grad_(tensor.requires_grad)
    plain = tensor.detach()
    is_conj, is_neg = plain.is_conj(), plain.is_neg()
    if is_conj:
        plain = plain.conj()
    if is_neg:
        plain = torch._neg_view(plain)
    offset = plain.storage_offset() if plain.numel() else 0
    memory = plain.as_strided((offset + extent_of(plain),), (1,), 0)
    moved = torch.empty(memory.shape, dtype=plain.dtype, device=device).copy_(memory)
    moved = moved.as_strided(plain.shape, plain.stride(), offset)
    if is_neg:
        moved = torch._neg_view(moved)
    if is_conj:
        moved = moved.conj()
    return moved.requires_grad_(tensor.requires_grad)


def move(tree, device, keeps_integers=False):
    """A tree of arguments on the device: tensors, generators, and device names. One tensor stays one tensor."""
    seen = {}
    if keeps_integers:
        seen = {id(t): t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor) and t.dtype == torch.int64}

    def leaf(value):
        if isinstance(value, torch.Tensor):
            if id(value) not in seen:
                seen[id(value)] = move_tensor(value, device)
            return seen[id(value)]
        if isinstance(value, torch.Generator):
            return torch.Generator(device).manual_seed(value.initial_seed())
        if isinstance(value, torch.device) and value.type == "cpu" or isinstance(value, str) and value == "cpu":
            return device
        return value

    return pytree.tree_map(leaf, tree)


def widen(tree, integers=False):
    """The same arguments in double precision, for a result that is closer to the truth than torch's own."""

    def leaf(value):
        if (
            integers
            and isinstance(value, torch.Tensor)
            and not value.dtype.is_floating_point
            and not value.is_complex()
        ):
            return value.double()
        if isinstance(value, torch.Tensor) and value.dtype in WIDE:
            return value.detach().to(WIDE[value.dtype]).requires_grad_(value.requires_grad)
        if dataclasses.is_dataclass(value):  # options that name dtypes
            dtypes = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            return dataclasses.replace(value, **{name: WIDE[d] for name, d in dtypes.items() if d in WIDE})
        return WIDE.get(value, value) if isinstance(value, torch.dtype) else value

    return pytree.tree_map(leaf, tree)


# ---- bounds


def bounds_of(entry, dtype):
    """torch's bounds for the entry: (rtol, atol), or (None, None) for the usual ones of each dtype."""
    rtol = atol = None
    for info in entry.decorators or ():
        if getattr(info, "cls_name", "") not in ("TestCommon", "TestModule", None) or not hasattr(info, "decorators"):
            continue
        if info.device_type not in (None, "cpu", "cuda") or (info.dtypes is not None and dtype not in info.dtypes):
            continue
        for decorator in info.decorators:
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                found = decorator.d[dtype]
                rtol, atol = max(rtol or 0, found.rtol), max(atol or 0, found.atol)
    return rtol, atol


# ---- comparing


def assert_equal(actual, expected, bounds=(None, None), values=True):
    """Compares two trees of results; tensors of `actual` may be on any device."""
    found, found_spec = pytree.tree_flatten(actual)
    wanted, wanted_spec = pytree.tree_flatten(expected)
    if len(found) != len(wanted):
        raise AssertionError(f"{len(found)} results, expected {len(wanted)}")
    for index, (a, e) in enumerate(zip(found, wanted)):
        if not isinstance(e, torch.Tensor):
            if isinstance(e, float | complex) and isinstance(a, float | complex):
                torch.testing.assert_close(a, e, equal_nan=True)
            elif not isinstance(e, torch.device | torch.Generator) and values and a != e:
                raise AssertionError(f"result {index} is {a!r}, expected {e!r}")
            continue
        if not isinstance(a, torch.Tensor):
            raise AssertionError(f"result {index} is {a!r}, expected a tensor")
        if a.dtype != e.dtype or a.shape != e.shape or a.layout != e.layout:
            raise AssertionError(
                f"result {index} is {a.dtype} {list(a.shape)} {a.layout}, expected {e.dtype} {list(e.shape)} {e.layout}"
            )
        if a.device.type != DEVICE.type and a.numel() and e.device.type != a.device.type:
            raise AssertionError(f"result {index} is on {a.device}")
        host = a.detach().cpu()
        if not values:
            continue
        host, e = comparable(host), comparable(e.detach())
        rtol, atol = bounds if e.is_floating_point() or e.is_complex() else (None, None)
        torch.testing.assert_close(host, e, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)


def comparable(tensor):
    """In a dtype that assert_close works with."""
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype == torch.complex32:
        return torch.view_as_complex(torch.view_as_real(tensor).float())
    if tensor.dtype in (torch.uint16, torch.uint32):
        return tensor.long()
    if tensor.dtype == torch.uint64:
        return tensor.view(torch.int64)
    if "float8" in str(tensor.dtype):
        return tensor.float()
    return tensor


def agrees(actual, expected, bounds, values=True):
    try:
        assert_equal(actual, expected, bounds, values)
    except AssertionError:
        return False
    return True


def narrowed(wide, like):
    """The wide results in the dtypes of the others, or unchanged if they don't correspond."""
    found, spec = pytree.tree_flatten(wide)
    wanted = pytree.tree_leaves(like)
    if len(found) != len(wanted):
        return wide
    pairs = zip(found, wanted)
    return pytree.tree_unflatten(
        [a.to(e.dtype) if isinstance(a, torch.Tensor) and isinstance(e, torch.Tensor) else a for a, e in pairs], spec
    )


def distance(actual, truth, bounds):
    """The largest difference of finite numbers of two trees, in units of the bounds."""
    most = 0.0
    for a, t in zip(pytree.tree_leaves(actual), pytree.tree_leaves(truth)):
        if not isinstance(t, torch.Tensor) or comparable(t).dtype not in WIDE.values():
            continue
        narrow = torch.testing._comparison.get_tolerances(a, a, rtol=bounds[0], atol=bounds[1])
        t = comparable(t.detach())
        apart = (comparable(a.detach().cpu()).to(t.dtype) - t).abs() / (narrow[1] + narrow[0] * t.abs())
        apart = apart[apart.isfinite()]
        most = max(most, apart.max().item() if apart.numel() else 0.0)
    return most


# ---- options of rows in exceptions.txt


class Excuses:
    """The differences from torch that a row of exceptions.txt allows for one check, and True if there were any."""

    def __init__(self, what, bounds, dim_at=None):
        self.what, _, factor = (what or "").partition("*")
        self.factor = float(factor or 2)
        self.bounds, self.dim_at = bounds, dim_at
        self.is_used = False
        self.ours = self.theirs = 0.0  # the largest distances from double precision

    def wants_truth(self):
        return self.what in ("in-double", "as-near")

    def see(self, actual, expected, truth):
        """Each sample's results count, also those that agree with torch's."""
        self.ours = max(self.ours, distance(actual, truth, self.bounds))
        self.theirs = max(self.theirs, distance(expected, truth, self.bounds))

    def covers(self, actual, expected, arguments, truth):
        """True if the row's rule holds for results outside torch's bounds."""
        if self.what == "ties":
            holds = same_but_for_ties(actual, expected, arguments, self.dim_at)
        elif self.what == "up-to-2-pi-i":
            holds = agrees(on_circle(actual), on_circle(expected), self.bounds)
        elif self.what == "of-largest":
            holds = same_of_largest(actual, expected, self.bounds)
        elif truth is None:
            holds = False
        else:
            self.see(actual, expected, truth)
            holds = agrees(actual, narrowed(truth, expected), self.bounds)
            holds = holds or self.what == "as-near" and alike_but_for_floats(actual, narrowed(truth, expected))
        self.is_used = self.is_used or holds
        return holds

    def finish(self):
        if self.what == "as-near" and self.is_used and self.ours > max(1, self.factor * self.theirs):
            raise Failure("wrong", f"{self.ours:.3g} bounds from double precision, torch {self.theirs:.3g}")


def on_circle(tree):
    """Real parts, and the directions that imaginary parts are angles of."""
    return [torch.stack([t.real, t.imag.cos(), t.imag.sin()]) for t in pytree.tree_leaves(tree)]


def same_of_largest(actual, expected, bounds):
    """Within torch's bounds, with the relative one taken of each tensor's largest element: remainders of cancelling
    larger terms have their errors."""
    if not alike_but_for_floats(actual, expected):
        return False
    for a, e in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected)):
        if isinstance(e, torch.Tensor) and e.numel() and (e.is_floating_point() or e.is_complex()):
            rtol, atol = torch.testing._comparison.get_tolerances(e, e, rtol=bounds[0], atol=bounds[1])
            a, e = comparable(a.detach().cpu()), comparable(e.detach())
            most = e[e.isfinite()].abs().max().item() if e.isfinite().any() else 0.0
            if not torch.allclose(a, e, rtol=0, atol=atol + rtol * most, equal_nan=True):
                return False
    return True


def alike_but_for_floats(actual, expected):
    """The same metadata, integers, and positions of non-finite elements."""

    def shown(tensor):
        is_float = tensor.is_floating_point() or tensor.is_complex()
        return comparable(tensor.detach().cpu()).isfinite() if is_float else tensor

    shown_both = (pytree.tree_map_only(torch.Tensor, shown, tree) for tree in (actual, expected))
    return agrees(actual, expected, (None, None), values=False) and agrees(*shown_both, (None, None))


def same_but_for_ties(actual, expected, arguments, dim_at):
    """Indices may be those of other equal elements, which then get the gradients: equal values, distinct indices."""
    if isinstance(arguments[0], tuple):  # with out=
        arguments, actual, expected = arguments[0], tuple(actual), tuple(expected)
    x = arguments[0].detach().cpu()
    if isinstance(actual, list):  # gradients: the same pairs of element and gradient
        return len(actual) == 1 and agrees(pairs_in_order(x, actual[0]), pairs_in_order(x, expected[0]), (None, None))
    found, wanted = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    if len(found) == 2 and not agrees(found[0], wanted[0], (None, None)):
        return False
    args = arguments[1]
    dim = arguments[2].get("dim", args[dim_at] if len(args) > dim_at else -1)
    places, others = found[-1].cpu(), wanted[-1]
    if x.dim() > 0 and places.dim() < x.dim():
        places, others = places.unsqueeze(dim), others.unsqueeze(dim)
    if places.shape != others.shape:
        return False
    ordered = places.sort(dim)[0] if places.dim() else places
    repeats = (ordered.diff(dim=dim) == 0).any().item() if places.dim() else False
    return not repeats and agrees(x.gather(dim, places), x.gather(dim, others), (None, None))


def pairs_in_order(x, gradient):
    pairs = torch.stack([x.double().flatten(), gradient.detach().cpu().double().flatten()], 1)
    return torch.tensor(sorted(map(tuple, pairs.tolist())))


def short(text):
    return re.sub(r"\s+", " ", str(text)).strip()[:300]


def missing_operator(error):
    """The name of the operator that the device lacks, or None for other exceptions."""
    if not isinstance(error, NotImplementedError):
        return None
    text = str(error)
    found = re.search(r"headrace: the operator '([^']+)'", text) or re.search(r"Could not run '([^']+)'", text)
    if found:
        return found[1]
    return short(text)[:120]


def judge(error):
    """The failure that an exception on the device stands for."""
    if isinstance(error, Failure):
        return error
    name = missing_operator(error)
    if name is not None:
        return Failure("missing", name)
    if isinstance(error, AssertionError):
        return Failure("wrong", short(error))
    return Failure("error", f"{type(error).__name__}: {short(error)}")


def attempt(function):
    """(result, None) or (None, exception)."""
    try:
        return function(), None
    except Exception as error:  # noqa: BLE001: whatever it raises is an outcome
        return None, error


def same_outcome(expected, actual, bounds, values=True, what=""):
    """True if two attempts gave equal results, or exceptions of one type."""
    (wanted, expected_error), (found, error) = expected, actual
    if (
        error is not None
        and missing_operator(error) is not None
        and not isinstance(expected_error, NotImplementedError)
    ):
        raise judge(error)
    if expected_error is not None:
        if error is None:
            raise Failure(
                "wrong", f"{what}no error; torch raises {type(expected_error).__name__}: {short(expected_error)}"
            )
        related = isinstance(error, type(expected_error)) or isinstance(expected_error, type(error))
        if not related:
            raise Failure(
                "error",
                f"{what}{type(error).__name__}: {short(error)[:120]}; torch raises {type(expected_error).__name__}: "
                f"{short(expected_error)[:120]}",
            )
        return
    if error is not None:
        raise judge(error)
    try:
        assert_equal(found, wanted, bounds, values)
    except AssertionError as difference:
        raise Failure("wrong", what + short(difference)) from None
