"""Random sequences of tensor operations, on torch's CPU device and on the device side by side.

A program works on a pool of tensors: it creates some, makes views of them (slices with steps, transposed, expanded,
empty), writes through the views, and computes. Each instruction runs on the CPU first. An exception there must be the
same on the device. At the end every tensor of the pool must be equal, so that a write to too few or too many elements
is detected anywhere.

Rounding must not make programs incomparable. A value that is a multiple of 1/64 below 2^9 is exact in every order of
summation: as long as both devices work with such numbers they must agree to the bit (signs of zeros apart), and only
such tensors may be compared, cast to integers or searched for extremes. Each family of views of one memory has a
bound for its error; 0 means exact.
"""

import math
import operator

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import event, given, note
from support import DEVICE

DTYPES = [torch.float32, torch.float64, torch.int64, torch.bool]
RANKS = [1, 2, 3, 2, 0, 3, 2, 3]
DIMS = [2, 3, 1, 4, 5, 1, 7, 6, 0]
MOST = 400  # elements of a tensor
ROUNDING = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}


class Family:
    """The views of one memory: how far the device's values may be from torch's."""

    def __init__(self):
        self.error = 0.0


class Pair:
    """A tensor on both devices."""

    def __init__(self, expected, actual, family):
        self.expected, self.actual, self.family = expected, actual, family

    def exact(self):
        return self.family.error == 0

    def places(self):
        """The positions of its elements in its memory."""
        count = self.expected.untyped_storage().nbytes() // self.expected.element_size()
        places = torch.arange(count).as_strided(
            self.expected.shape, self.expected.stride(), self.expected.storage_offset()
        )
        return places.flatten().tolist()


class Unusable(Exception):
    """The instruction makes no comparable program here; it is left out."""


def largest(*tensors):
    return max((t.double().abs().max().item() for t in tensors if t.numel()), default=0.0)


def on_grid(tensor):
    if not tensor.dtype.is_floating_point:
        return True
    scaled = tensor.double() * 64
    return bool((scaled == scaled.round()).all()) and largest(scaled) < 2**15


class Machine:
    """Runs instructions on both devices."""

    def __init__(self):
        self.pool: list[Pair] = []
        self.numbers = iter(())  # random choices of the current instruction
        self.said = ""  # what it did

    # -- choosing

    def draw(self, n):
        """A number from 0 to n-1."""
        return next(self.numbers, 0) % n

    def pick(self, accept=lambda pair: True):
        found = [pair for pair in self.pool if accept(pair)]
        if not found:
            raise Unusable
        return found[-1 - self.draw(len(found))]  # the newest first: shorter programs when shrunk

    def pick_float(self):
        return self.pick(lambda pair: pair.expected.dtype.is_floating_point)

    def pick_shape(self):
        return [DIMS[self.draw(len(DIMS))] for _ in range(RANKS[self.draw(len(RANKS))])]

    def pick_dim(self, tensor):
        if tensor.dim() == 0:
            raise Unusable
        return self.draw(tensor.dim()) - self.draw(2) * tensor.dim()

    def pick_dims(self, tensor):
        return [dim for dim in range(tensor.dim()) if self.draw(2)]

    def pick_slice(self, size):
        start = [0, 1, 0, self.draw(size + 1)][self.draw(4)]
        stop = [size, size - 1, size, start + self.draw(3)][self.draw(4)]
        return slice(start, max(stop, 0), [1, 2, 1, 3][self.draw(4)])

    def partner(self, pair):
        """Another tensor, as often as not one that broadcasts with this one."""
        if self.draw(2):
            return self.pick()
        shape = pair.expected.shape

        def broadcasts(other):
            try:
                return math.prod(torch.broadcast_shapes(shape, other.expected.shape)) <= MOST
            except RuntimeError:
                return False

        return self.pick(broadcasts)

    # -- running

    def run(self, function, *pairs):
        """function on both devices: the results, or Unusable once both have raised the same."""
        try:
            expected, error = function(*(pair.expected for pair in pairs)), None
        except NotImplementedError as caught:
            raise Unusable from caught  # a dtype that torch's CPU device lacks: ours may have it
        except (RuntimeError, IndexError, TypeError, ValueError) as caught:
            error = caught
        try:
            actual, found = function(*(pair.actual for pair in pairs)), None
        except (RuntimeError, IndexError, TypeError, ValueError) as caught:
            found = caught
        if error is not None or found is not None:
            assert type(error) is type(found), f"torch raised {error!r}, the device {found!r}"
            event("both devices raise")
            raise Unusable
        return expected, actual

    def fresh(self, expected, actual, error):
        assert expected.numel() <= 4 * MOST
        family = Family()
        family.error = error
        if error == 0 and not on_grid(expected):
            family.error = ROUNDING[expected.dtype] * largest(expected)
        self.pool.append(Pair(expected, actual, family))
        self.said = f"{expected.dtype} {list(expected.shape)}, error {family.error:.2g}"

    def compute(self, function, *pairs, gain=1.0, exact=False, rounds=True):
        """A new tensor. `gain`: by how much an operand's error grows; `exact`: it must be exact to begin with;
        `rounds`: the operation itself may round differently."""
        if exact and not all(pair.exact() for pair in pairs):
            raise Unusable
        expected, actual = self.run(function, *pairs)
        if expected.numel() > MOST or not bool(expected.double().isfinite().all()):
            raise Unusable
        error = gain * max((pair.family.error for pair in pairs), default=0.0)
        if expected.dtype.is_floating_point and (rounds or error > 0):
            operands = largest(expected, *(pair.expected for pair in pairs))
            error += 16 * ROUNDING[expected.dtype] * operands
            if torch.float32 in [pair.expected.dtype for pair in pairs]:
                error += 16 * ROUNDING[torch.float32] * operands if rounds else 0.0
        elif error > 0 and not expected.dtype.is_floating_point:
            raise Unusable
        self.fresh(expected, actual, error)

    def view(self, pair, function):
        expected, actual = self.run(function, pair)
        if expected.numel() > MOST:
            raise Unusable
        assert actual.shape == expected.shape
        self.pool.append(Pair(expected, actual, pair.family))
        self.said = f"{list(expected.shape)} of {list(pair.expected.shape)}, strides {expected.stride()}"

    def write(self, target, function, *sources, gain=1.0, rounds=False, refuses=True):
        """Changes `target` in place. Left out are writes whose result depends on the order in which elements are
        visited, unless torch sees the overlap and refuses: for that it checks strides of 0, and the ends of tensors
        without gaps. `refuses`: True if the operation checks at all."""
        places = target.places()
        if len(set(places)) < len(places):
            repeats = any(s == 0 and n > 1 for n, s in zip(target.expected.shape, target.expected.stride()))
            if not (repeats and refuses):
                raise Unusable
        for source in sources:
            if source.family is target.family and set(places) & set(source.places()):
                dense = refuses and source.expected.is_contiguous() and target.expected.is_contiguous()
                if source.places() != places and not dense:
                    raise Unusable
                if source.places() == places and source.expected.stride() != target.expected.stride():
                    raise Unusable  # the same elements, but torch goes by the strides, even of dims of one element
        operands = largest(target.expected, *(pair.expected for pair in sources))
        wanted = target.expected.dtype
        errors = max([target.family.error, *(pair.family.error for pair in sources)])
        if errors > 0 and not wanted.is_floating_point:
            raise Unusable
        self.run(function, target, *sources)
        self.said = f"into {target.expected.dtype} {list(target.expected.shape)} {target.expected.stride()}"
        family = target.family
        operands = max(operands, largest(target.expected))
        if not math.isfinite(operands):
            self.forget(family)
            raise Unusable
        if errors > 0 or rounds or not on_grid(target.expected):
            rounding = ROUNDING.get(wanted, 0.0)
            if any(pair.expected.dtype == torch.float32 for pair in sources):
                rounding = max(rounding, ROUNDING[torch.float32])
            family.error = max(family.error, gain * errors + 16 * rounding * operands)

    def forget(self, family):
        self.pool = [pair for pair in self.pool if pair.family is not family]

    def check(self):
        for index, pair in enumerate(self.pool):
            expected, actual = pair.expected, pair.actual.cpu()
            assert actual.dtype == expected.dtype and actual.shape == expected.shape
            if pair.exact():
                same = torch.equal(actual, expected)
            else:
                same = torch.allclose(actual.double(), expected.double(), rtol=0, atol=8 * pair.family.error)
            assert same, f"tensor {index} (error bound {pair.family.error:g}):\n{actual}\nshould be\n{expected}"


# ---- instructions: each a function of a machine


def make(m: Machine):
    shape = m.pick_shape()
    dtype = DTYPES[m.draw(len(DTYPES))]
    seed = m.draw(1000)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-32, 33, shape, generator=generator)
    if dtype.is_floating_point:
        values = values.to(dtype) / 4
    elif dtype == torch.bool:
        values = values > 0
    m.fresh(values.clone(), values.to(DEVICE, copy=True), 0.0)


def make_filled(m: Machine):
    shape = m.pick_shape()
    dtype = DTYPES[m.draw(len(DTYPES))]
    kind = [torch.zeros, torch.ones, lambda shape, **o: torch.full(shape, 3, **o)][m.draw(3)]
    m.fresh(kind(shape, dtype=dtype), kind(shape, dtype=dtype, device=DEVICE), 0.0)


def make_range(m: Machine):
    n, dtype = m.draw(20), [torch.int64, torch.float32, torch.float64][m.draw(3)]
    m.fresh(torch.arange(n, dtype=dtype), torch.arange(n, dtype=dtype, device=DEVICE), 0.0)


def take_slice(m: Machine):
    pair = m.pick()
    key = tuple(m.pick_slice(size) for size in pair.expected.shape[: 1 + m.draw(3)])
    m.view(pair, lambda x: x[key])


def take_select(m: Machine):
    pair = m.pick()
    dim, index = m.pick_dim(pair.expected), m.draw(7) - 3
    m.view(pair, lambda x: x.select(dim, index))


def take_transposed(m: Machine):
    pair = m.pick()
    a, b = m.pick_dim(pair.expected), m.pick_dim(pair.expected)
    m.view(pair, lambda x: x.transpose(a, b))


def take_permuted(m: Machine):
    pair = m.pick()
    left, order = list(range(pair.expected.dim())), []
    while left:
        order.append(left.pop(m.draw(len(left))))
    m.view(pair, lambda x: x.permute(order))


def take_expanded(m: Machine):
    pair = m.pick()
    front = [2] * m.draw(2)
    shape = front + [[2, 3, 1, 0][m.draw(4)] if size == 1 else -1 for size in pair.expected.shape]
    m.view(pair, lambda x: x.expand(shape))


def take_unsqueezed(m: Machine):
    pair = m.pick()
    dim = m.draw(pair.expected.dim() + 1)
    m.view(pair, lambda x: x.unsqueeze(dim))


def take_squeezed(m: Machine):
    m.view(m.pick(), lambda x: x.squeeze())


def take_viewed(m: Machine):
    """A view of another shape, if the tensor is contiguous on both devices."""
    pair = m.pick(lambda p: p.expected.is_contiguous() and p.actual.is_contiguous())
    count = pair.expected.numel()
    shapes = [(-1,)] if count else [(0, 3)]
    shapes += [(d, count // d) for d in range(1, count + 1) if count % d == 0]
    shape = shapes[m.draw(len(shapes))]
    m.view(pair, lambda x: x.view(shape))


def take_diagonal(m: Machine):
    pair = m.pick(lambda p: p.expected.dim() >= 2)
    offset = m.draw(3) - 1
    m.view(pair, lambda x: x.diagonal(offset))


def take_strided(m: Machine):
    """Any window on the memory, overlapping itself if it comes so."""
    pair = m.pick(lambda p: p.expected.is_contiguous() and p.actual.is_contiguous() and p.expected.numel() > 0)
    size, strides = [1 + m.draw(3) for _ in range(2)], [m.draw(4) for _ in range(2)]
    reach = sum((n - 1) * s for n, s in zip(size, strides))
    offset, room = pair.expected.storage_offset(), pair.expected.numel() - 1
    if reach > room:
        raise Unusable
    offset += m.draw(room - reach + 1)
    moved = pair.actual.storage_offset() - pair.expected.storage_offset()

    def function(x):
        return x.as_strided(size, strides, offset + (moved if x.device == pair.actual.device else 0))

    m.view(pair, function)


BINARY = [operator.add, operator.sub, torch.maximum, torch.minimum]
COMPARISONS = [torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge]
NUMBERS = [0, 1, -1, 2, 3, 0.5, -1.5, True]


def combine(m: Machine):
    left = m.pick()
    right = m.partner(left)
    function = BINARY[m.draw(len(BINARY))]
    m.compute(function, left, right, gain=2.0, rounds=False)


def combine_scaled(m: Machine):
    left = m.pick()
    right = m.partner(left)
    alpha = 1 + m.draw(3)
    m.compute(lambda x, y: torch.sub(x, y, alpha=alpha), left, right, gain=1.0 + alpha, rounds=False)


def multiply(m: Machine):
    left = m.pick()
    right = m.partner(left)
    gain = largest(left.expected) + largest(right.expected) + max(left.family.error, right.family.error)
    m.compute(operator.mul, left, right, gain=gain, rounds=not (left.exact() and right.exact()))


def with_number(m: Machine):
    pair, number = m.pick(), NUMBERS[m.draw(len(NUMBERS))]
    function = [
        lambda x: x + number,
        lambda x: number - x,
        lambda x: x * number,
        lambda x: torch.clamp(x, max=number),
        lambda x: torch.add(x, x, alpha=2) + number,
    ][m.draw(5)]
    m.compute(function, pair, gain=4.0, rounds=False)


def compare(m: Machine):
    left = m.pick()
    function = COMPARISONS[m.draw(6)]
    if m.draw(2):
        right = m.partner(left)
        m.compute(function, left, right, exact=True)
    else:
        number = NUMBERS[m.draw(len(NUMBERS))]
        m.compute(lambda x: function(x, number), left, exact=True)


def logic(m: Machine):
    left = m.pick(lambda p: not p.expected.dtype.is_floating_point)
    right = m.partner(left)
    functions = [torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor, torch.logical_and, torch.logical_or]
    m.compute(functions[m.draw(5)], left, right, exact=True)


def unary(m: Machine):
    functions = [torch.neg, torch.abs, torch.clone, lambda x: -(-x).relu(), lambda x: x.clamp(-2, 3)]
    functions += [lambda x: x.contiguous() + 0]
    m.compute(functions[m.draw(len(functions))], m.pick(), rounds=False)


def discrete(m: Machine):
    functions = [torch.sign, torch.floor, torch.round, torch.trunc, torch.logical_not]
    m.compute(functions[m.draw(len(functions))], m.pick(), exact=True, rounds=False)


def transcendental(m: Machine):
    functions = [torch.tanh, torch.sigmoid, torch.sin, torch.erf, lambda x: x.clamp(-3, 3).exp(), lambda x: x / 3]
    m.compute(functions[m.draw(len(functions))], m.pick_float(), gain=21.0)


def invert(m: Machine):
    m.compute(lambda x: 1 / (x.abs() + 1), m.pick_float())


def choose(m: Machine):
    condition = m.pick(lambda p: p.expected.dtype == torch.bool)
    left, right = m.partner(condition), m.partner(condition)
    m.compute(torch.where, condition, left, right, rounds=False)


def mask(m: Machine):
    condition = m.pick(lambda p: p.expected.dtype == torch.bool)
    pair, number = m.partner(condition), [0, 2, -1][m.draw(3)]
    m.compute(lambda c, x: x.masked_fill(c, number), condition, pair, rounds=False)


def cast(m: Machine):
    pair, dtype = m.pick(), DTYPES[m.draw(len(DTYPES))]
    m.compute(lambda x: x.to(dtype, copy=True), pair, exact=not dtype.is_floating_point, rounds=False)


def total(m: Machine):
    pair = m.pick()
    dims, keep, dtype = m.pick_dims(pair.expected), bool(m.draw(2)), [None, torch.float64][m.draw(2)]
    count = max(1, pair.expected.numel())
    m.compute(lambda x: x.sum(dims, keepdim=keep, dtype=dtype), pair, gain=count, rounds=not pair.exact())


def average(m: Machine):
    pair = m.pick_float()
    dims = m.pick_dims(pair.expected)
    m.compute(lambda x: x.mean(dims), pair)


def extreme(m: Machine):
    pair = m.pick()
    dim, keep = m.pick_dim(pair.expected), bool(m.draw(2))
    function = [torch.amax, torch.amin][m.draw(2)]
    m.compute(lambda x: function(x, dim, keepdim=keep), pair, rounds=False)


def place_of_extreme(m: Machine):
    pair = m.pick(lambda p: p.expected.dtype != torch.bool)
    dim, function = m.pick_dim(pair.expected), [torch.argmax, torch.argmin][m.draw(2)]
    m.compute(lambda x: function(x, dim), pair, exact=True)


def truth(m: Machine):
    pair, function = m.pick(), [torch.any, torch.all][m.draw(2)]
    if m.draw(2):
        m.compute(function, pair, exact=True)
    else:
        dim = m.pick_dim(pair.expected)
        m.compute(lambda x: function(x, dim), pair, exact=True)


def join(m: Machine):
    first = m.pick(lambda p: p.expected.dim() > 0)
    dim = m.pick_dim(first.expected)

    def fits(other):
        a, b = list(first.expected.shape), list(other.expected.shape)
        if len(a) != len(b):
            return False
        a[dim] = b[dim] = 0
        return a == b

    others = [m.pick(fits) for _ in range(m.draw(3))]
    m.compute(lambda *parts: torch.cat(parts, dim), first, *others, rounds=False)


def pile(m: Machine):
    first = m.pick()
    second = m.pick(lambda p: p.expected.shape == first.expected.shape)
    dim = m.draw(first.expected.dim() + 1)
    m.compute(lambda *parts: torch.stack(parts, dim), first, second, rounds=False)


def random_index(m: Machine, shape, below):
    generator = torch.Generator().manual_seed(m.draw(1000))
    index = torch.randint(0, max(1, below), shape, generator=generator)
    return Pair(index, index.to(DEVICE), Family())


def select_rows(m: Machine):
    pair = m.pick(lambda p: p.expected.dim() > 0)
    dim = m.pick_dim(pair.expected)
    size = pair.expected.shape[dim]
    index = random_index(m, (m.draw(5) if size else 0,), size)
    m.compute(lambda x, i: x.index_select(dim, i), pair, index, rounds=False)


def gather(m: Machine):
    pair = m.pick(lambda p: p.expected.dim() > 0 and p.expected.numel() > 0)
    dim = m.pick_dim(pair.expected)
    index = random_index(m, pair.expected.shape, pair.expected.shape[dim])
    m.compute(lambda x, i: x.gather(dim, i), pair, index, rounds=False)


def scatter(m: Machine):
    pair = m.pick(lambda p: p.expected.dim() > 0 and p.expected.numel() > 0 and p.expected.dtype != torch.bool)
    dim = m.pick_dim(pair.expected)
    index = random_index(m, pair.expected.shape, pair.expected.shape[dim])
    m.compute(lambda x, i: torch.zeros_like(x).scatter_add(dim, i, x), pair, index, gain=10.0, rounds=not pair.exact())


def look_up(m: Machine):
    pair = m.pick(lambda p: p.expected.dim() > 0 and p.expected.shape[0] > 0)
    index = random_index(m, [1 + m.draw(3) for _ in range(1 + m.draw(2))], pair.expected.shape[0])
    m.compute(lambda x, i: x[i], pair, index, rounds=False)


def reverse(m: Machine):
    pair = m.pick()
    dims = m.pick_dims(pair.expected)
    m.compute(lambda x: x.flip(dims), pair, rounds=False)


def product(m: Machine):
    left = m.pick(lambda p: p.expected.dim() == 2 and p.expected.dtype.is_floating_point)
    right = m.pick(
        lambda p: p.expected.dim() == 2
        and p.expected.dtype == left.expected.dtype
        and p.expected.shape[0] == left.expected.shape[1]
    )
    width = left.expected.shape[1]
    gain = width * (largest(left.expected) + largest(right.expected))
    magnitude = width * largest(left.expected) * largest(right.expected)
    m.compute(torch.mm, left, right, gain=gain)
    family = m.pool[-1].family
    if left.exact() and right.exact() and magnitude < 2**10 and on_grid(m.pool[-1].expected):
        family.error = 0.0  # multiples of 1/4096 below 2^12 sum without rounding
    else:
        family.error += 16 * ROUNDING[left.expected.dtype] * magnitude


def write_number(m: Machine):
    target, number = m.pick(), NUMBERS[m.draw(len(NUMBERS))]
    function = [
        lambda x: x.fill_(number),
        lambda x: x.add_(number),
        lambda x: x.mul_(number),
        lambda x: x.zero_(),
        lambda x: x.clamp_(max=number),
    ][m.draw(5)]
    m.write(target, function, gain=3.0)


def write_tensor(m: Machine):
    target = m.pick()
    source = m.partner(target)
    kind = m.draw(5)
    function = [
        lambda x, y: x.copy_(y),
        lambda x, y: x.add_(y),
        lambda x, y: x.sub_(y, alpha=2),
        lambda x, y: torch.maximum(x, y, out=x) if x.dtype == y.dtype and x.shape == y.shape else x.add_(y),
        lambda x, y: x.mul_(y),
    ][kind]
    gain = 3.0 if kind < 4 else largest(target.expected) + largest(source.expected) + 1
    if not target.expected.dtype.is_floating_point and source.expected.dtype.is_floating_point and not source.exact():
        raise Unusable
    m.write(target, function, source, gain=gain, rounds=kind == 4 and not (target.exact() and source.exact()))


def write_masked(m: Machine):
    target = m.pick()
    condition = m.pick(lambda p: p.expected.dtype == torch.bool)
    number = [0, 1, -3][m.draw(3)]
    m.write(target, lambda x, c: x.masked_fill_(c, number), condition, refuses=False)


def write_through_index(m: Machine):
    target = m.pick(lambda p: p.expected.dim() > 0 and p.expected.shape[0] > 0 and p.expected.numel() > 0)
    size = target.expected.shape[0]
    rows = random_index(m, (size,), size)
    m.write(target, lambda x, i: x.index_put_((i,), x.new_ones(())), rows, refuses=False)


def write_function(m: Machine):
    target = m.pick_float()
    kind = m.draw(4)
    function = [torch.relu_, torch.tanh_, torch.neg_, torch.sigmoid_][kind]
    m.write(target, function, rounds=kind in (1, 3))


def drop(m: Machine):
    m.pool.remove(m.pick())


def read(m: Machine):
    """The host reads a value: pending work runs now."""
    pair = m.pick()
    actual = pair.actual.tolist()
    if pair.exact():
        assert actual == pair.expected.tolist()


MAKE = [make, make, make_filled, make_range]
VIEW = [take_slice, take_slice, take_select, take_transposed, take_permuted, take_expanded, take_unsqueezed]
VIEW += [take_squeezed, take_viewed, take_diagonal, take_strided]
COMPUTE = [combine, combine, combine_scaled, multiply, with_number, compare, logic, unary, discrete, transcendental]
COMPUTE += [invert, choose, mask, cast, total, average, extreme, place_of_extreme, truth, join, pile, select_rows]
COMPUTE += [gather, scatter, look_up, reverse, product]
WRITE = [write_number, write_tensor, write_tensor, write_masked, write_through_index, write_function]
OTHER = [drop, read]


def run_program(instructions, kinds):
    """Each instruction is a list of numbers: its first two choose it, the others are drawn by it, and then zeros."""
    machine = Machine()
    for numbers in [[0], *instructions]:
        machine.numbers = iter(numbers)
        family = kinds[machine.draw(len(kinds))]
        instruction = family[machine.draw(len(family))]
        try:
            instruction(machine)
            note(f"{instruction.__name__}: {machine.said or 'nothing new'}")
        except Unusable:
            pass
        machine.said = ""
        if len(machine.pool) > 12:  # views shrink tensors: let the smaller half go first
            machine.pool.remove(sorted(machine.pool, key=lambda pair: pair.expected.numel())[machine.draw(6)])
    machine.check()
    return machine


programs = st.lists(st.lists(st.integers(0, 255), min_size=2, max_size=16), min_size=3, max_size=30)


@given(programs)
def test_programs(program):
    """Everything mixed."""
    run_program(program, [MAKE, VIEW, COMPUTE, COMPUTE, WRITE, OTHER])


@given(programs)
def test_writes_through_views(program):
    """Views and writes alone: overlapping windows on few memories."""
    run_program(program, [MAKE, VIEW, VIEW, VIEW, WRITE, WRITE])


@given(st.integers(0, 2**63 - 1))
def test_long_programs(seed):
    """Longer than hypothesis can draw well, from a seed."""
    numbers = torch.randint(256, (100, 16), generator=torch.Generator().manual_seed(seed)).tolist()
    run_program(numbers, [MAKE, VIEW, VIEW, COMPUTE, COMPUTE, COMPUTE, WRITE, WRITE, OTHER])


SAME_BITS = [instruction for instruction in COMPUTE if instruction is not product]


@pytest.mark.device_only
@given(programs)
def test_modes_give_the_same_bits(program):
    """Element-wise operations and reductions: fused or one by one, the same bits."""
    made = []
    for mode in ("fuse", "strict", "eager"):
        torch.headrace.set_mode(mode)
        machine = run_program(program, [MAKE, SAME_BITS, SAME_BITS, SAME_BITS, VIEW, WRITE])
        made.append([pair.actual.cpu() for pair in machine.pool])
    for other in made[1:]:
        for fused, alone in zip(made[0], other, strict=True):
            assert torch.equal(fused, alone), f"fused:\n{fused}\nalone:\n{alone}"
