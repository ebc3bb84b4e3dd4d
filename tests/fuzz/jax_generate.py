"""Draws the program of a seed: steps, each a line of Python over the names of earlier steps."""

import functools
import random
import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax_data import data
from jax_operators import ANY, CATEGORIES, DRAWN, OUTER, ROWS, SMOOTH

LENGTHS = [1, 1, 2, 3, 3, 4, 5, 7, 8, 17, 0]
LONG = [33, 130, 257]
TRIES = 400
NAMES = {"jax": jax, "jnp": jnp, "lax": lax, "np": np, "data": data}
ELEMENTS_MAX = 4000


@dataclass
class Value:
    """A step's result: an array of this dtype and shape."""

    name: str
    dtype: str
    shape: tuple


@dataclass
class Step:
    """A line: its results, its operator, the kind of its bounds, its expression, the names that it reads."""

    makes: list
    op: str
    kind: str
    text: str
    reads: list
    arity: int | None = None  # a tuple's length

    def line(self):
        star = "*_, " if not self.makes else ""
        return f"{star}{', '.join(self.makes)}{',' if self.arity is not None else ''} = {self.run_text()}"

    def run_text(self):
        return f"jax.tree.leaves({self.text})" if self.arity is not None else self.text


@functools.cache
def compiled(text):
    return compile(text, "<step>", "eval")


def evaluate(step, values):
    """The arrays of a step, in a list."""
    result = eval(compiled(step.run_text()), NAMES | values)  # noqa: S307
    return list(result) if step.arity is not None else [result]


class Draw:
    """The state of drawing: steps so far and their values."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.steps, self.values, self.count = [], [], 0
        self.kind = self.random.choice(["small", "small", "unit", "special", "special"])
        self.argument, self.depth = None, 0

    def category(self, dtype):
        return next(c for c, dtypes in CATEGORIES.items() if dtype in dtypes)

    def dtype(self, categories):
        dtypes = CATEGORIES[self.random.choice(categories)]
        return self.random.choice(["float32", *dtypes] if "float32" in dtypes else dtypes)

    def shape(self, rank_min=0):
        rank = max(rank_min, self.random.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]))
        shape = [self.random.choice(LENGTHS) for _ in range(rank)]
        if rank and self.random.random() < 0.1:
            shape = [*shape[:1], self.random.choice(LONG)][-rank:]
        return tuple(shape) if np.prod(shape) <= ELEMENTS_MAX else tuple(shape[:2])

    def other_shape(self, shape):
        total = int(np.prod(shape))
        first = self.random.choice([k for k in (1, 2, 3, 4, 6, 8, total) if k and total % k == 0] or [1])
        return self.random.choice([(total,), (first, total // first), (total // first, 1, first)])

    def data(self, dtype, shape, kind=None):
        """A new input."""
        value = Value(f"v{self.count}", dtype, tuple(shape))
        self.count += 1
        kind = kind or (self.kind if self.random.random() < 0.8 else "small")
        text = f"data({dtype!r}, {value.shape}, {self.random.randrange(10**6)}, {kind!r})"
        self.steps.append(Step([value.name], "data", "move", text, []))
        self.values.append(value)
        return value

    def pick(self, categories, rank_min=0):
        """A value of one of the categories: the lambda's argument, an earlier one, or a new input."""
        dtypes = [dtype for c in categories for dtype in CATEGORIES[c]]
        fits = lambda v: v.dtype in dtypes and len(v.shape) >= rank_min  # noqa: E731
        if self.argument and fits(self.argument):
            return self.argument
        found = [v for v in self.values[-12:] if fits(v)]
        if found and self.random.random() < 0.75:
            return self.random.choice(found)
        return self.data(self.dtype(categories), self.shape(rank_min))

    def same(self, a):
        found = [v for v in self.values if v.dtype == a.dtype and v.shape == a.shape]
        if found and self.random.random() < 0.5:
            return self.random.choice(found)
        return self.data(a.dtype, a.shape)

    def broadcast(self, a):
        if self.random.random() < 0.4:
            return self.same(a)
        shape = [size if self.random.random() < 0.6 else 1 for size in a.shape]
        return self.data(a.dtype, tuple(shape[self.random.randint(0, len(shape)) :]))

    def scalar(self, dtype):
        return self.data(dtype, ())

    def name_of(self, text):
        found = re.search(r"(?:jnp|lax|jax|nn|linalg|fft|scipy)\.(\w+)\(", text)
        for word in re.findall(r"[A-Za-z_]\w*(?:\.\w+)*(?=\()", text):
            if word.split(".")[0] in ("lax", "jnp", "jax"):
                return word
        return found.group(1) if found else "index"

    def row(self, rows):
        template, categories, kind = self.random.choice(rows)
        a = self.pick(categories)
        text = template.replace("{a}", a.name)
        for hole, make in (("{same}", self.same), ("{b}", self.broadcast)):
            while hole in text:
                text = text.replace(hole, make(a).name, 1)
        while "{s}" in text:
            text = text.replace("{s}", self.scalar(a.dtype).name, 1)
        text = text.replace("{n}", str(self.random.randint(-2, 4)))
        text = text.replace("{n1}", str(self.random.randint(3, 8))).replace("{n2}", str(self.random.randint(1, 10)))
        named = re.search(r"(?:lax|jnp|jax\.nn)\.\w+", template)
        return named.group(0) if named and "{a} " not in template[:4] else re.sub(r"[{}]", "", template), kind, text

    def inside(self, dtype, shape, smooth=False):
        """A line whose first operand is `a`, of this dtype and shape."""
        former, self.argument = self.argument, Value("a", dtype, tuple(shape))
        try:
            if smooth:
                rows = [row for row in ROWS if "f" in row[1] and "==" not in row[0] and row[2] != "move"]
                return self.random.choice(SMOOTH)(self) if self.random.random() < 0.6 else self.row(rows)
            return self.random.choice(DRAWN)(self) if self.random.random() < 0.7 else self.row(ROWS)
        finally:
            self.argument = former

    def attempt(self):
        choice = self.random.random()
        if choice < 0.4:
            return self.row(ROWS)
        return self.random.choice(DRAWN if choice < 0.8 else OUTER)(self)

    def step(self):
        """Adds one step; a line that JAX refuses is drawn again."""
        for _ in range(TRIES):
            before = len(self.steps), len(self.values), self.count
            try:
                op, kind, text = self.attempt()
                step = Step([], op, kind, text, sorted(set(re.findall(r"\bv\d+\b", text))))
                self.accept(step)
                return
            except Exception:  # noqa: BLE001
                del self.steps[before[0] :], self.values[before[1] :]
                self.count = before[2]
        raise RuntimeError("no line fits")

    def accept(self, step):
        known = {v.name: jax.ShapeDtypeStruct(v.shape, v.dtype) for v in self.values}
        names = {name: known[name] for name in step.reads}
        code = compiled(step.text)
        shapes = jax.eval_shape(lambda values: eval(code, NAMES | values), names)  # noqa: S307
        leaves = jax.tree.leaves(shapes)
        if not leaves or any(np.prod(leaf.shape) > ELEMENTS_MAX * 4 or leaf.dtype.kind == "O" for leaf in leaves):
            raise ValueError("too large")
        known_dtypes = sum(CATEGORIES.values(), ())
        if any(str(leaf.dtype) not in known_dtypes for leaf in leaves):
            raise ValueError("a dtype of no category")
        step.arity = None if isinstance(shapes, jax.ShapeDtypeStruct) else len(leaves)
        for leaf in leaves:
            step.makes.append(f"v{self.count}")
            self.values.append(Value(step.makes[-1], str(leaf.dtype), leaf.shape))
            self.count += 1
        self.steps.append(step)


def program_of(seed):
    """The steps of a seed: inputs first, then the lines of the program."""
    draw = Draw(seed)
    for _ in range(draw.random.randint(4, 12)):
        draw.step()
    used = {name for step in draw.steps for name in step.reads}
    inputs = [step for step in draw.steps if step.op == "data" and step.makes[0] in used]
    return inputs, [step for step in draw.steps if step.op != "data"]
