"""The same call on two devices: arguments moved as they lie in memory, outcomes compared within torch's own bounds.

An outcome of a check is one of OUTCOMES, the worst first. `missing` says that the device refused with NotImplementedError, which
is honest; `wrong` that it gave other numbers than torch, which is the worst that can happen.
"""

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
    """A check's verdict: an outcome and what there is to say about it."""

    def __init__(self, outcome, detail):
        super().__init__(detail)
        self.outcome, self.detail = outcome, detail


# ---- moving


def extent_of(tensor):
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def move_tensor(tensor, device):
    """The tensor on the device with the same strides and offset; what it overlaps it overlaps there too."""
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
    """A tree of arguments on the device: tensors, generators, and what names a device. One tensor stays one tensor."""
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


def widen(tree):
    """The same arguments in double precision, for a result that is closer to the truth than torch's own."""

    def leaf(value):
        if isinstance(value, torch.Tensor) and value.dtype in WIDE:
            return value.detach().to(WIDE[value.dtype]).requires_grad_(value.requires_grad)
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
                f"result {index} is {a.dtype} {list(a.shape)} {a.layout}, "
                f"expected {e.dtype} {list(e.shape)} {e.layout}"
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
    """The wide results in the dtypes of the others."""
    found, spec = pytree.tree_flatten(wide)
    wanted = pytree.tree_leaves(like)
    if len(found) != len(wanted):
        return wide
    pairs = zip(found, wanted)
    return pytree.tree_unflatten(
        [a.to(e.dtype) if isinstance(a, torch.Tensor) and isinstance(e, torch.Tensor) else a for a, e in pairs], spec
    )


def distance(tensor, truth):
    """The largest finite difference."""
    apart = (comparable(tensor.detach().cpu()).to(truth.dtype) - truth).abs()
    apart = apart[apart.isfinite()]
    return apart.max().item() if apart.numel() else 0.0


def as_near(actual, expected, truth, bounds):
    """Whether each result agrees with the truth (torch's result in double precision) within the bounds, or is at most
    twice as far from it as torch's own: both are sums in some order, and such errors are draws of chance."""
    found, wanted, true = (pytree.tree_leaves(tree) for tree in (actual, expected, truth))
    if not len(found) == len(wanted) == len(true):
        return False
    for a, e, t in zip(found, wanted, true):
        if all(isinstance(x, torch.Tensor) for x in (a, e, t)) and a.layout == e.layout == t.layout != torch.strided:
            a, e, t = a.to_dense(), e.to_dense(), t.to_dense()
        if not isinstance(e, torch.Tensor) or not isinstance(t, torch.Tensor):
            near = agrees(a, e, bounds)
        elif agrees(a, e, bounds) or agrees(a, t.to(e.dtype), bounds):
            near = True
        else:
            same_kind = isinstance(a, torch.Tensor) and a.dtype == e.dtype and a.shape == e.shape == t.shape
            t = comparable(t.detach()) if same_kind else t
            near = same_kind and t.dtype in WIDE.values() and alike(a, t) and distance(a, t) <= 2 * distance(e, t)
        if not near:
            return False
    return True


def alike(tensor, truth):
    """Infinite and not a number in the same places."""
    return torch.equal(tensor.detach().cpu().to(truth.dtype).isfinite(), truth.to(tensor.dtype).isfinite())


def short(text):
    return re.sub(r"\s+", " ", str(text)).strip()[:300]


def missing_operator(error):
    """The name of the operator that the device lacks, or None where the exception says something else."""
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
    """What two attempts gave: equal results, or exceptions of one type."""
    (wanted, expected_error), (found, error) = expected, actual
    if error is not None and missing_operator(error) is not None and not isinstance(expected_error, NotImplementedError):
        raise judge(error)
    if expected_error is not None:
        if error is None:
            raise Failure("wrong", f"{what}no error; torch raises {type(expected_error).__name__}: {short(expected_error)}")
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
