"""Draws a random program: a list of Steps that torch's CPU device runs, or rejects before starting (see
fuzz_operators.py).

The same seed gives the same program with the same torch. Variables are sometimes deleted; `read(v)` marks places
where one of the three modes of a program reads a value, commits or empties the cache.
"""

import math
import random
import re

import torch
from fuzz_data import DTYPES, environment
from fuzz_operators import FAMILIES, Step

ELEMENTS_MAX = 5000  # of one result
VARIABLES_MAX = 24
# Errors that are found when the work runs: a program on the device reports them later, so that its lines can't be
# compared.
LATE_ERRORS = ("out of range", "out of bounds", "ZeroDivisionError", "zero", "index", "singular")


class Skip(Exception):
    """The family has nothing to work on here."""


class Generator:
    def __init__(self, seed, length=None):
        self.rng = random.Random(seed)
        self.steps, self.count = [], 0
        self.env = environment(torch.device("cpu"))
        self.names = []  # the variables that live
        # Few dtypes and shapes a program, so that operands meet.
        self.dtypes = self.rng.sample(list(DTYPES), self.rng.randint(2, 5)) + ["float32"]
        self.sizes = [self.rng.choice([0, 1, 1, 2, 3, 4, 5, 7]) for _ in range(3)] + [3]
        if self.rng.random() < 0.05:
            self.sizes.append(70)
        self.kinds = self.rng.choice([["normal"], ["normal", "special"], ["special", "wide"], ["normal", "whole"]])
        self.length = length or self.rng.randint(30, 60)

    # ---- drawing

    def chance(self, p):
        return self.rng.random() < p

    def choose(self, options):
        return self.rng.choice(options)

    def flag(self):
        return self.rng.random() < 0.5

    def fresh(self):
        self.count += 1
        return f"v{self.count - 1}"

    def tensor(self, name):
        return self.env[name]

    def type(self, name):
        return str(self.env[name].dtype).removeprefix("torch.")

    def pick(self, wanted=None):
        names = [n for n in self.names if wanted is None or wanted(self.env[n])]
        if not names:
            raise Skip
        return self.rng.choice(names[-6:] if self.chance(0.6) else names)

    def writable(self, wanted=None):
        return self.pick(lambda t: not overlaps(t.shape, t.stride()) and (wanted is None or wanted(t)))

    def dim(self, name):
        rank = self.env[name].dim()
        return str(self.rng.randint(-rank, rank - 1)) if rank else "0"

    def shape(self):
        shape = [self.rng.choice(self.sizes) for _ in range(self.rng.choice([0, 1, 1, 2, 2, 2, 3, 4]))]
        return shape if math.prod(shape) <= ELEMENTS_MAX else shape[:2]

    def dtype(self, same_bytes=None):
        names = [n for n in DTYPES if same_bytes is None or DTYPES[n].itemsize == same_bytes]
        if same_bytes is None and self.chance(0.7):
            names = self.dtypes
        return "torch." + self.rng.choice([n for n in names if n != "bool"] or ["uint8"] if same_bytes else names)

    def number(self, name):
        """A Python number, mostly one that suits the tensor's dtype."""
        dtype = self.env[name].dtype
        if dtype.is_complex and self.chance(0.3):
            return self.rng.choice(["1j", "(2-0.5j)", "0j"])
        if (dtype.is_floating_point or dtype.is_complex) and self.chance(0.8) or self.chance(0.12):
            return self.rng.choice(["0.5", "-1.5", "2.0", "1.0", "3e-3", "0.0", "-0.0", "inf", "nan", "1e10", "-7.25"])
        if self.chance(0.1):
            return self.rng.choice(["True", "False"])
        if self.chance(0.06):
            return self.rng.choice(["300", "-129", "2**31", "2**40", "-2**33"])
        return str(self.rng.randint(-3, 4))

    def slice(self, size):
        start, step = self.rng.randint(0, max(size, 1)), self.rng.choice([1, 1, 1, 2])
        return self.rng.choice([":", ":", f"{start}:", f":{start}", f"::{step}", f"-{start + 1}::{step}", "0:1"])

    def factors(self, count):
        """Sizes that multiply to count."""
        sizes = []
        while count > 1 and len(sizes) < 3:
            size = self.rng.choice([n for n in range(1, count + 1) if count % n == 0] if count < 200 else [1, count])
            sizes.append(size)
            count //= size
        return self.rng.sample(sizes + ([count] if count != 1 else []), len(sizes) + (count != 1))

    def strided(self, tensor):
        """Sizes, strides and offset inside the tensor's storage, often overlapping."""
        left = tensor.untyped_storage().nbytes() // tensor.element_size()
        offset = self.rng.randint(0, max(min(left - 1, 3), 0))
        left -= offset
        sizes, strides = [], []
        for _ in range(self.rng.randint(1, 2)):
            stride = self.rng.choice([0, 1, 1, 2, 3])
            size = self.rng.randint(1, 4)
            while size > 1 and (size - 1) * stride >= left:
                size -= 1
            left -= (size - 1) * stride
            sizes.append(size), strides.append(stride)
        return f"{sizes}, {strides}, {offset}"

    # ---- operands

    def make(self, dtype, shape, kind=None):
        """A new tensor, by a line of its own."""
        name = self.fresh()
        kind = kind or self.rng.choice(self.kinds)
        self.append(
            Step("data", f"{name} = data({dtype!r}, {list(shape)}, {self.rng.randint(0, 10**6)}, {kind!r})", [name])
        )
        return name

    def index(self, shape, size, low=0):
        return self.make("int64", shape, f"index:{low}:{max(size, low + 1)}")

    def operand(self, name, dtype=None, no_larger=False):
        """A tensor that broadcasts with this one: one that there is, or a new one."""
        shape = self.env[name].shape

        def fits(t):
            if dtype is not None and self.env and str(t.dtype) != "torch." + dtype:
                return False
            if any(a != b and a != 1 and b != 1 for a, b in zip(reversed(t.shape), reversed(shape))):
                return False
            is_smaller = all(a == b or a == 1 for a, b in zip(reversed(t.shape), reversed(shape)))
            return not no_larger or t.dim() <= len(shape) and is_smaller

        if self.chance(0.75):
            try:
                return self.pick(fits)
            except Skip:
                pass
        sizes = [1 if self.chance(0.2) else n for n in shape[self.rng.choice([0, 0, 0, len(shape) // 2, len(shape)]) :]]
        return self.make(dtype or self.rng.choice(self.dtypes), sizes)

    def operand_for(self, expression):
        """A tensor or number to be assigned to the view that an expression gives."""
        try:
            shape = list(eval(expression, dict(self.env)).shape)
        except Exception:  # noqa: BLE001: then the line fails as well
            raise Skip from None
        if self.chance(0.3):
            shape = shape[len(shape) // 2 :]
        return self.make(self.rng.choice(self.dtypes), shape)

    def mask(self, name, exact=False):
        if self.chance(0.4):
            try:
                return self.pick(lambda t: t.dtype == torch.bool and t.shape == self.env[name].shape)
            except Skip:
                pass
        shape = list(self.env[name].shape)
        return self.make("bool", shape if exact else [1 if self.chance(0.15) else n for n in shape])

    def pick_like(self, name, but=None):
        """A tensor of the same sizes, except in one dim."""
        shape = list(self.env[name].shape)

        def fits(t):
            return t.dim() == len(shape) and all(i == but or a == b for i, (a, b) in enumerate(zip(t.shape, shape)))

        return self.pick(fits) if self.chance(0.7) else self.make(self.type(name), shape)

    def pick_or_make(self, dtype, shape):
        same = [n for n in self.names if list(self.env[n].shape) == list(shape) and self.type(n) == dtype]
        return self.rng.choice(same) if same and self.chance(0.7) else self.make(dtype, shape)

    # ---- appending

    def append(self, step):
        """Runs the step on the CPU and keeps it; passes its exceptions on."""
        if ends_torch(step, self.env):
            raise Skip
        exec(compile(step.line, "<fuzz>", "exec"), self.env)
        for name in step.makes:
            value = self.env[name]
            if value.numel() > ELEMENTS_MAX or value.layout != torch.strided:
                del self.env[name]
                raise Skip
        self.steps.append(step)
        self.names += step.makes

    def forget(self, name):
        self.steps.append(Step("del", f"del {name}"))
        self.names.remove(name)
        del self.env[name]

    def draw(self):
        family = self.rng.choices([f for _, f in FAMILIES], [w for w, _ in FAMILIES])[0]
        start, step = len(self.steps), None
        try:
            step = family(self)
            self.append(step)
        except Skip:
            self.cut(start, step)
        except Exception as error:  # noqa: BLE001: torch rejects it; sometimes the device must, too
            is_late = isinstance(error, IndexError | ZeroDivisionError)
            is_late |= any(word in str(error) for word in LATE_ERRORS)
            if step is not None and not is_late and self.chance(0.1):
                self.steps.append(step)
            else:
                self.cut(start, step)

    def cut(self, start, step):
        """Takes back the operands that were made for a step that is none."""
        for name in [name for made in self.steps[start:] for name in made.makes]:
            self.names.remove(name)
            del self.env[name]
        del self.steps[start:]
        for name in step.makes if step is not None else ():
            self.env.pop(name, None)

    def program(self):
        for _ in range(self.rng.randint(2, 5)):
            self.make(self.rng.choice(self.dtypes), self.shape())
        for _ in range(4 * self.length):
            if sum(step.op not in ("data", "del", "read") for step in self.steps) >= self.length:
                break
            self.draw()
            if self.names and self.chance(0.06):
                self.steps.append(Step("read", f"read({self.rng.choice(self.names)}, {self.rng.randint(0, 4)})"))
            while len(self.names) > VARIABLES_MAX or len(self.names) > 4 and self.chance(0.08):
                self.forget(self.rng.choice(self.names))
        return self.steps


def ends_torch(step, env):
    """True if torch's CPU device would end the process: where the lowest integer is divided by -1."""
    operand = r"(\([^()]*\)|[^\s,()]+)"
    call = re.search(rf"torch\.(div|lcm)\({operand}, {operand}(, rounding_mode='trunc')?\)", step.line)
    call = call or re.search(rf"(v\d+)\.(lcm)_\({operand}\)", step.line)
    if call is None or "div" in call.groups() and call[4] is None:
        return False

    def holds(value, *numbers):
        return any(bool(torch.as_tensor(value == number).any()) for number in numbers)

    a, b = (eval(text, dict(env)) for text in call.groups()[:3] if text not in ("div", "lcm"))
    low = -(2**31), -(2**63)
    return holds(a, *low) and (holds(b, -1) or "lcm" in call.groups()) or "lcm" in call.groups() and holds(b, *low)


def overlaps(shape, strides):
    """True if two elements share memory, or may: a write to them has no defined result."""
    reach = 1
    for stride, size in sorted((s, n) for s, n in zip(strides, shape) if n > 1):
        if stride < reach:
            return 0 not in shape
        reach = stride * (size - 1) + reach
    return False


def program_of(seed):
    return Generator(seed).program()
