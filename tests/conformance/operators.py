"""The checks of one operator in one dtype, on the inputs that torch tests it with (op_db).

Each check runs the same call on torch's CPU device and on ours, and compares within torch's bounds. Anything else
that may count as equal is a row of exceptions.txt.
"""

import contextlib
import functools
import random
from unittest import mock

import numpy
import torch
from compare import DEVICE, WIDE, Excuses, Failure, agrees, attempt, bounds_of, judge, move, same_outcome, widen
from torch.autograd import forward_ad
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils import _pytree as pytree

MOST_VARIANTS = 12  # samples of the checks beside forward and gradient
CHECKS = [
    "forward",
    "grad",
    "gradgrad",
    "strided",
    "empty",
    "out",
    "inplace",
    "errors",
    "method",
    "alias",
    "jvp",
    "vmap",
]
QUICK = ["forward", "grad"]
PLACE_OF_DIM = {"topk": 1, "kthvalue": 1}  # among the arguments after the input; else the first


def entries():
    found = {}
    for entry in op_db:
        name = entry.formatted_name
        while name in found:
            name += "_"
        found[name] = entry
    return found


def seed(number=0):
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


@contextlib.contextmanager
def other_numbers(shift):
    """Random numbers differ in here, also for entries of torch's that seed by themselves."""
    usual = torch.manual_seed
    with mock.patch.object(torch, "manual_seed", lambda number: usual(int(number) + shift)):
        seed(0)
        yield


def call(entry, arguments):
    first, args, kwargs = arguments
    return entry.op(first, *args, **kwargs)


def parts(sample):
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def samples_of(entry, dtype, requires_grad=False):
    """Attempts to make the next sample may themselves fail in torch; then there are no more."""
    seed()
    found = iter(entry.sample_inputs("cpu", dtype, requires_grad=requires_grad))
    while True:
        try:
            sample = next(found)
        except StopIteration:
            return
        yield sample


# ---- one call on both devices


class Comparison:
    def __init__(self, entry, dtype, what):
        self.entry, self.dtype, self.bounds = entry, dtype, bounds_of(entry, dtype)
        self.what, self.has_values = what, what != "metadata"
        self.excuses = Excuses(what, self.bounds, PLACE_OF_DIM.get(entry.name, 0))
        self.compared = 0
        self.missing = None

    def run(self, function, arguments, process=None, what=""):
        """function(arguments) on both devices. `missing` is kept until the end: another sample may be wrong, which is
        worse."""
        theirs, ours = move(arguments, torch.device("cpu")), self.move(arguments, DEVICE)
        seed()
        expected = attempt(lambda: function(theirs))
        if expected[1] is not None:
            return  # torch's own test data that torch does not take here
        self.compared += 1
        seed()
        actual = attempt(lambda: function(ours))
        truth = self.in_double(function, arguments) if self.excuses.wants_truth() and actual[1] is None else None
        try:
            same_outcome(expected, actual, self.bounds, self.has_values, what)
            if truth is not None:
                self.excuses.see(actual[0], expected[0], truth)
        except Failure as failure:
            if failure.outcome == "missing":
                self.missing = self.missing or failure
            elif failure.outcome != "wrong" or not self.is_excused(function, arguments, expected[0], process, truth):
                raise

    def in_double(self, function, arguments):
        seed()
        with rounded_to(self.dtype if self.dtype in WIDE else None):
            made = attempt(lambda: function(move(widen(arguments, self.dtype not in WIDE), torch.device("cpu"))))
        return made[0] if made[1] is None else None

    def is_excused(self, function, arguments, expected, process, truth):
        """True if the results are random, or agree in the form that torch compares, or as a row of exceptions.txt
        allows."""
        seed()
        actual = function(self.move(arguments, DEVICE))
        for shift in range(1, 5):  # one bit is the same every other time
            with other_numbers(shift):
                other = attempt(lambda: function(move(arguments, torch.device("cpu"))))
            if other[1] is None and not agrees(other[0], expected, self.bounds):
                return agrees(actual, expected, self.bounds, values=False)
        if process is not None:
            processed = attempt(lambda: process(actual))
            if processed[1] is None and agrees(processed[0], process(expected), self.bounds):
                return True
        return self.excuses.covers(actual, expected, arguments, truth)

    def move(self, arguments, device):
        return move(arguments, device, self.what == "lengths-on-host")

    def finish(self):
        if self.missing is not None:
            raise self.missing
        self.excuses.finish()
        return "pass" if self.compared else "none", self.what if self.excuses.is_used else ""


def process_of(sample):
    process = sample.output_process_fn_grad
    return None if process is None else process


# ---- the checks


def check_forward(comparison):
    entry = comparison.entry
    for sample in samples_of(entry, comparison.dtype):
        comparison.run(functools.partial(call, entry), parts(sample), process_of(sample))


def check_strided(comparison):
    entry = comparison.entry
    for _, sample in zip(range(MOST_VARIANTS), samples_of(entry, comparison.dtype)):
        made = attempt(lambda sample=sample: pytree.tree_map_only(torch.Tensor, noncontiguous_like, parts(sample)))
        if made[1] is None:
            comparison.run(functools.partial(call, entry), made[0], process_of(sample), "strided: ")


def emptied(arguments):
    """The same call with a size of 0 in the first dim of the input and of all tensors with that size."""
    first = next((t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)), None)
    if first is None or first.dim() == 0 or first.shape[0] == 0:
        return None
    size = first.shape[0]
    return pytree.tree_map_only(
        torch.Tensor,
        lambda t: t[:0] if t.dim() > 0 and t.shape[0] == size and t.layout == torch.strided else t,
        arguments,
    )


def check_empty(comparison):
    entry, seen = comparison.entry, 0
    for sample in samples_of(entry, comparison.dtype):
        arguments = attempt(lambda sample=sample: emptied(parts(sample)))[0]
        if arguments is not None:
            comparison.run(functools.partial(call, entry), arguments, process_of(sample), "empty: ")
            seen += 1
        if seen == MOST_VARIANTS // 2:
            return


@contextlib.contextmanager
def rounded_to(dtype):
    """Cotangents are numbers of this dtype in here, also for results in double precision."""
    with mock.patch.object(cotangents, "dtype", dtype):
        yield


def cotangents(tensors, number):
    generator = torch.Generator().manual_seed(number)
    made = []
    for tensor in tensors:
        dtype = WIDE.get(tensor.dtype, tensor.dtype)
        numbers = torch.randn(tensor.shape, dtype=dtype, generator=generator)
        if cotangents.dtype is not None:
            numbers = numbers.to(cotangents.dtype.to_complex() if dtype.is_complex else cotangents.dtype.to_real())
        made.append(numbers.to(tensor.dtype).to(tensor.device))
    return made


cotangents.dtype = None


def gradients(entry, process, order, arguments):
    result = call(entry, arguments)
    if process is not None:
        result = process(result)
    outputs = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not inputs:
        return None
    found = torch.autograd.grad(outputs, inputs, cotangents(outputs, 7), allow_unused=True, create_graph=order == 2)
    if order == 2:
        firsts = [t for t in found if t is not None and t.requires_grad]
        if not firsts:
            return None
        found = torch.autograd.grad(firsts, inputs, cotangents(firsts, 8), allow_unused=True)
    return list(found)


def check_grad(comparison, order=1):
    entry, dtype = comparison.entry, comparison.dtype
    for index, sample in enumerate(samples_of(entry, dtype, requires_grad=True)):
        if order == 2 and index == MOST_VARIANTS:
            return
        comparison.run(
            functools.partial(gradients, entry, process_of(sample), order), parts(sample), None, f"sample {index}: "
        )


def check_out(comparison):
    entry = comparison.entry
    for _, sample in zip(range(MOST_VARIANTS // 2), samples_of(entry, comparison.dtype)):
        arguments = parts(sample)
        expected, error = attempt(lambda arguments=arguments: call(entry, move(arguments, torch.device("cpu"))))
        tensors = [expected] if isinstance(expected, torch.Tensor) else expected
        if (
            error is not None
            or not isinstance(tensors, list | tuple)
            or not all(isinstance(t, torch.Tensor) for t in tensors)
        ):
            continue
        for what, outs in outs_for(tensors):
            both = (arguments, outs if not isinstance(expected, torch.Tensor) else outs[0])

            def with_out(both, tensors=tensors):
                (first, args, kwargs), out = both
                entry.op(first, *args, **kwargs, out=out)
                return [o.to(t.dtype) for o, t in zip(pytree.tree_leaves(out), tensors)]  # computed in those dtypes

            same_or_both_raise(comparison, with_out, both, what)


def outs_for(tensors):
    """Forms of out=: as they are, strided, empty, and of another dtype."""

    def strided(t):
        return torch.full((*t.shape, 2), 1, dtype=t.dtype)[..., 0]

    yield "out: ", [torch.full_like(t, 1) for t in tensors]
    yield "strided out: ", [strided(t) for t in tensors]
    yield "resized out: ", [torch.empty(0, dtype=t.dtype) for t in tensors]
    yield "integer out: ", [torch.full(t.shape, 1, dtype=torch.int64) for t in tensors]
    yield "double out: ", [torch.full(t.shape, 1, dtype=torch.float64) for t in tensors]


def same_or_both_raise(comparison, function, arguments, what):
    """Like Comparison.run, if torch's exception requires one of ours."""
    theirs, ours = move(arguments, torch.device("cpu")), comparison.move(arguments, DEVICE)
    seed()
    expected = attempt(lambda: function(theirs))
    if expected[1] is None:
        return comparison.run(function, arguments, None, what)
    if isinstance(expected[1], TypeError):
        return None  # the entry has no such form
    comparison.compared += 1
    actual = attempt(lambda: pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), function(ours)))
    try:
        same_outcome(expected, actual, comparison.bounds, comparison.has_values, what)
    except Failure as failure:
        if failure.outcome != "missing":
            raise
        comparison.missing = comparison.missing or failure
    return None


def check_inplace(comparison):
    entry = comparison.entry
    variants = [v for v in (entry.inplace_variant, entry.inplace_operator_variant) if v is not None]
    for _, sample in zip(range(MOST_VARIANTS), samples_of(entry, comparison.dtype)):
        arguments = parts(sample)
        if not isinstance(arguments[0], torch.Tensor):
            continue

        def write(variant, arguments):
            first, args, kwargs = arguments
            variant(first, *args, **kwargs)
            return first

        strided = attempt(lambda arguments=arguments: (noncontiguous_like(arguments[0]), *arguments[1:]))
        for variant in variants[:1] if arguments[1:] != ((), {}) and arguments[2] else variants:
            same_or_both_raise(comparison, functools.partial(write, variant), arguments, "in place: ")
            if strided[1] is None:
                same_or_both_raise(comparison, functools.partial(write, variant), strided[0], "strided in place: ")


def check_errors(comparison):
    entry = comparison.entry
    for wrong in entry.error_inputs("cpu"):
        arguments = parts(wrong.sample_input)
        _, error = attempt(lambda arguments=arguments: call(entry, move(arguments, torch.device("cpu"))))
        if error is not None and not isinstance(error, TypeError | NotImplementedError):
            same_or_both_raise(comparison, functools.partial(call, entry), arguments, "")


def check_method(comparison):
    """The method, and the form as an operator (x + y), if the entry has them."""
    entry = comparison.entry
    variants = [v for v in (entry.method_variant, entry.operator_variant) if v is not None]
    for _, sample in zip(range(MOST_VARIANTS // 2), samples_of(entry, comparison.dtype)):
        arguments = parts(sample)
        for variant in variants[:1] if arguments[2] else variants:
            comparison.run(
                lambda a, variant=variant: variant(a[0], *a[1], **a[2]), arguments, process_of(sample), "method: "
            )


def shared_storage(entry, arguments):
    """For each result: the inputs whose memory it shares, the offset, and the strides."""
    tensors = [t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor) and t.layout == torch.strided]
    results = [
        t
        for t in pytree.tree_leaves(call(entry, arguments))
        if isinstance(t, torch.Tensor) and t.layout == torch.strided
    ]
    found = []
    for result in results:
        inputs = [i for i, t in enumerate(tensors) if t.untyped_storage()._cdata == result.untyped_storage()._cdata]
        where = (result.storage_offset(), *result.stride(), result._is_view()) if inputs and result.numel() else ()
        found.append([*inputs, *where])
    return found


def check_alias(comparison):
    entry = comparison.entry
    for index, sample in enumerate(samples_of(entry, comparison.dtype)):
        comparison.run(functools.partial(shared_storage, entry), parts(sample), None, f"sample {index}: ")


def tangents(process, entry, arguments):
    """Results and their derivatives along a random direction, in forward mode."""
    leaves, spec = pytree.tree_flatten(arguments)
    places = [i for i, t in enumerate(leaves) if isinstance(t, torch.Tensor) and t.requires_grad]
    directions = cotangents([leaves[i] for i in places], 9)
    with forward_ad.dual_level():
        for i, direction in zip(places, directions):
            leaves[i] = forward_ad.make_dual(leaves[i].detach(), direction)
        result = call(entry, pytree.tree_unflatten(leaves, spec))
        result = result if process is None else process(result)
        pairs = [forward_ad.unpack_dual(t) for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        return [t for pair in pairs for t in (pair.primal, pair.tangent)]


def check_jvp(comparison):
    entry = comparison.entry
    for index, sample in zip(range(MOST_VARIANTS), samples_of(entry, comparison.dtype, requires_grad=True)):
        function = functools.partial(tangents, process_of(sample), entry)
        comparison.run(function, parts(sample), None, f"sample {index}: ")


def batched(process, entry, arguments):
    """The call for two at once: every dense tensor, and the same one backwards."""
    leaves, spec = pytree.tree_flatten(arguments)
    places = [i for i, t in enumerate(leaves) if isinstance(t, torch.Tensor) and t.layout == torch.strided]
    pairs = [torch.stack([leaves[i], leaves[i].flip(0) if leaves[i].dim() else leaves[i]]) for i in places]

    def one(*tensors):
        given = list(leaves)
        for i, tensor in zip(places, tensors):
            given[i] = tensor
        result = call(entry, pytree.tree_unflatten(given, spec))
        result = result if process is None else process(result)
        return [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]

    return torch.func.vmap(one, randomness="different")(*pairs)


def check_vmap(comparison):
    entry = comparison.entry
    for index, sample in zip(range(MOST_VARIANTS // 2), samples_of(entry, comparison.dtype)):
        comparison.run(functools.partial(batched, process_of(sample), entry), parts(sample), None, f"sample {index}: ")


FUNCTIONS = {
    "forward": check_forward,
    "grad": check_grad,
    "gradgrad": functools.partial(check_grad, order=2),
    "strided": check_strided,
    "empty": check_empty,
    "out": check_out,
    "inplace": check_inplace,
    "errors": check_errors,
    "method": check_method,
    "alias": check_alias,
    "jvp": check_jvp,
    "vmap": check_vmap,
}


def applies(entry, dtype, check):
    """True if torch claims that the entry supports this on the CPU."""
    if check in ("grad", "gradgrad"):
        wanted = dtype in entry.supported_backward_dtypes("cpu") and entry.supports_autograd
        return wanted and (check == "grad" or entry.supports_gradgrad and dtype in (torch.float32, torch.float64))
    if check == "out":
        return entry.supports_out
    if check == "inplace":
        return entry.inplace_variant is not None
    if check == "method":
        return entry.method_variant is not None or entry.operator_variant is not None
    if check == "jvp":
        return entry.supports_forward_ad and dtype in (torch.float32, torch.complex64) and applies(entry, dtype, "grad")
    if check == "vmap":
        return entry.supports_autograd and dtype == torch.float32
    if check == "alias":
        return dtype in (torch.float32, torch.float16, torch.int64, torch.complex64)
    if check == "errors":
        main = (
            torch.float32
            if torch.float32 in entry.supported_dtypes("cpu")
            else min(entry.supported_dtypes("cpu"), key=str)
        )
        return entry.error_inputs_func is not None and dtype == main
    return True


def run_check(entry, dtype, check, what):
    """(outcome, detail) of one check; `what` is its entry in exceptions.txt, and the detail of a pass that needs it."""
    comparison = Comparison(entry, dtype, what)
    try:
        FUNCTIONS[check](comparison)
        return comparison.finish()
    except Exception as error:  # noqa: BLE001: every exception is an outcome
        failure = judge(error)
        return failure.outcome, failure.detail
