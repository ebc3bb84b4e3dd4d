"""A program: repeats calls of the extension, right and wrong ones, and fails if references or blocks of memory grow.

    python -X dev -W error reference_counts.py

Each call runs a few times first, for caches. Growth is counted in blocks of Python's allocator and in references of
objects that calls share; a leak of one object a call is as many as calls.
"""

import gc
import sys

import numpy as np
from test_vmap import CASES

import headrace as hr
from headrace import nn, optimizers

REPEATS = 24
WATCHED = [None, True, False, (), hr.Array, hr.float32, hr.int64, hr.float64, float, int, np.ndarray, NotImplemented]


def wrong_calls():
    x = hr.ones((2, 3))
    i = hr.array([0, 1])
    return {
        "shapes": lambda: x + hr.ones(4),
        "matmul": lambda: x @ x,
        "axis": lambda: hr.sum(x, axis=2),
        "axes": lambda: hr.sum(x, axis=(0, 0)),
        "index": lambda: x[5],
        "index, kind": lambda: x["a"],
        "indices": lambda: x[0, 0, 0],
        "write": lambda: x.__setitem__(0, hr.ones(7)),
        "reshape": lambda: x.reshape(5),
        "dtype": lambda: hr.ones(2, dtype="int3"),
        "argument": lambda: hr.sum(x, axes=1),
        "arguments": lambda: hr.sum(x, 0, axis=0),
        "missing": lambda: hr.matmul(x),
        "many": lambda: hr.concat([x, "a"]),
        "concat": lambda: hr.concat([x, i]),
        "text": lambda: hr.gelu(x, "abc"),
        "numbers": lambda: hr.interpolate(x, scales=[1, "a"]),
        "operand": lambda: x + "a",
        "array": lambda: hr.array([[1], [1, 2]]),
        "item": lambda: x.item(),
        "bool": lambda: bool(x),
        "grad of integers": lambda: hr.grad(lambda y: y.sum())(i),
        "grad of no scalar": lambda: hr.grad(lambda y: y)(x),
        "grad with an exception": lambda: hr.grad(lambda y: y.missing)(x),
        "vmap": lambda: hr.vmap(hr.add)(x, hr.ones((3, 3))),
        "vmap, axes": lambda: hr.vmap(hr.add, in_axes=(0, 1, 2))(x, x),
        "vmap, value": lambda: hr.vmap(lambda y: float(y.sum()))(x),
        "jvp": lambda: hr.jvp(hr.sin, [x], [i]),
        "vjp": lambda: hr.vjp(lambda y: "a", [x], [x]),
        "compile": lambda: hr.compile(lambda y: float(y.sum()))(x),
        "compile, exception": lambda: hr.compile(lambda y: y.missing)(x),
        "factor": lambda: hr.linalg.cholesky(-hr.eye(3)).tolist(),
        "file": lambda: hr.load("/nowhere/at/all.npy"),
    }


def right_calls():
    x = hr.array(np.arange(12.0).reshape(3, 4))
    first = {name: [hr.array(np.array(a[0])) for a in arrays] for name, (_, *arrays) in CASES.items()}
    calls = {name: (lambda f=fun, a=first[name]: f(*a)) for name, (fun, *_) in CASES.items()}
    compiled = hr.compile(lambda y: hr.tanh(y).sum(axis=0))
    model, optimizer = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), optimizers.Adam(1e-3)
    step = nn.value_and_grad(model, lambda x: model(x).sum())
    calls |= {
        "operators": lambda: (x + 1, 2 - x, x * x, x / 3, x**2, -x, abs(x), x > 1, x == x, x // 2, x % 3, x @ x.T),
        "numbers": lambda: (x[0, 0].item(), float(x[1, 1]), int(x[1, 2]), bool(x[1, 1]), x.tolist(), repr(x), len(x)),
        "exchange": lambda: (np.asarray(x), hr.asarray(np.ones((2, 3))), memoryview(x), hr.from_dlpack(np.ones(3))),
        "indices": lambda: (x[0], x[1:, ::2], x[..., None], x[[0, 2]], x[x > 3], x.at[0].add(1), list(x)),
        "writes": lambda: x.copy().__setitem__((slice(None), 0), 5.0),
        "grad": lambda: hr.value_and_grad(lambda y: (hr.sin(y) * y).sum())(x),
        "second order": lambda: hr.grad(lambda y: (hr.grad(lambda z: (z**3).sum())(y)).sum())(x),
        "jvp, vjp": lambda: (hr.jvp(hr.sin, [x], [x]), hr.vjp(hr.sin, [x], [x])),
        "training step": lambda: optimizer.update(model, step(hr.ones((1, 2)))[1]),
        "vmap": lambda: hr.vmap(lambda y: hr.sin(y) + y[0])(x),
        "checkpoint": lambda: hr.grad(lambda y: hr.checkpoint(hr.tanh)(y).sum())(x),
        "compile": lambda: compiled(x),
        "trees": lambda: hr.grad(lambda t: (t["a"][0] * t["b"]).sum())({"a": [x], "b": x}),
        "attributes": lambda: (x.shape, x.dtype, x.ndim, x.size, x.T, x.mT, x.real, x.nbytes, x.device, hash(x.dtype)),
    }
    return calls


def quiet(call):
    """The name of the exception that a wrong call raises."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return None


def counts():
    gc.collect()
    return [sys.getallocatedblocks(), *[sys.getrefcount(x) for x in WATCHED]]


def grows(call):
    """True if references or blocks grow with the number of calls. Few calls find most that do not; caches that fill
    during them look like growth, so that a suspect runs often."""
    for _ in range(4):
        call()
    for repeats in (REPEATS, REPEATS, 20 * REPEATS):
        before = counts()
        for _ in range(repeats):
            call()
        if max(b - a for a, b in zip(before, counts())) < repeats // 2:
            return False
    return True


def main():
    leaks = [f"{name}: more objects after each call" for name, call in right_calls().items() if grows(call)]
    for name, call in wrong_calls().items():
        if quiet(call) is None:
            leaks.append(f"{name}: no exception")
        elif grows(lambda call=call: quiet(call)):
            leaks.append(f"{name}, which raises: more objects after each call")
    print("\n".join(leaks) or f"{len(right_calls())} calls, {len(wrong_calls())} wrong ones: no growth")
    return len(leaks) > 0


if __name__ == "__main__":
    sys.exit(main())
