"""Bad inputs: errors at their line with the values, and everything is usable after them; no growth of memory."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headrace as hr


def run(code, *flags, **environment):
    result = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=False,
                            env={**os.environ, **environment})  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


X = hr.array(np.arange(6.0).reshape(2, 3))
AT_THEIR_LINE = {
    "shapes": (lambda: X + hr.ones(4), ValueError, r"add: input 1 of dims \[4\] can't be broadcast"),
    "shapes of a product": (lambda: X @ X, ValueError, "inner sizes differ: 3 != 2"),
    "elements of dims": (lambda: X.reshape(4, 2), ValueError, r"\[2,3\] can't become \[4,2\]"),
    "dims of parts": (lambda: hr.concat([X, hr.ones((2, 2))], axis=0), ValueError, "3.*2|2.*3"),
    "dtype of indices": (lambda: hr.take(X, hr.array([0.5])), (TypeError, ValueError, IndexError), "f32|float32"),
    "dtype without bits": (lambda: hr.bitwise_and(X, X), (TypeError, ValueError), "float64|f64"),
    "dtype by name": (lambda: hr.ones(2, dtype="float31"), (TypeError, ValueError), "float31"),
    "axis": (lambda: hr.sum(X, axis=2), ValueError, "axis 2 is out of range for 2 dims"),
    "axis from the end": (lambda: hr.softmax(X, axis=-3), ValueError, "axis -3 is out of range for 2 dims"),
    "axis twice": (lambda: hr.sum(X, axis=(1, -1)), ValueError, "axis -1 is given twice"),
    "index": (lambda: X[2], IndexError, "2"),
    "index from the end": (lambda: X[:, -4], IndexError, "-4"),
    "too many indices": (lambda: X[0, 0, 0], IndexError, "3"),
    "write of other dims": (lambda: X.copy().__setitem__(0, hr.ones(2)), ValueError, r"2"),
}


@pytest.mark.parametrize("name", AT_THEIR_LINE)
def test_errors_belong_to_their_line(name):
    call, kind, message = AT_THEIR_LINE[name]
    with pytest.raises(kind, match=message):
        call()
    assert (X + 1).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_indices_in_arrays_are_checked_when_they_are_read():
    y = hr.take(X, hr.array([0, 7]), axis=1)
    with pytest.raises((IndexError, ValueError), match="7"):
        y.tolist()
    assert X.tolist() == [[0, 1, 2], [3, 4, 5]]


CONVERSIONS = {
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "bool": lambda x: 1 if x.sum() > 0 else 2,
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: np.asarray(x),
    "index": lambda x: [1, 2][x[0, 0].astype(hr.int64)],
    "nonzero": lambda x: hr.nonzero(x),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_values_inside_compile_are_refused(name):
    compiled = hr.compile(CONVERSIONS[name])
    for _ in range(2):
        with pytest.raises((ValueError, TypeError, RuntimeError, BufferError)) as caught:
            compiled(X)
        assert any(word in str(caught.value) for word in ("compile", "captur", "trac", "value")), str(caught.value)
    assert hr.compile(lambda x: x * 2)(X).tolist() == [[0, 2, 4], [6, 8, 10]]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
def test_grad_of_integers(dtype):
    with pytest.raises((ValueError, TypeError), match=dtype):
        hr.grad(lambda x: (x * 2.0).sum())(hr.ones(3, dtype=dtype))
    assert hr.grad(lambda x: (x * 2).sum())(hr.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: hr.vmap(hr.add)(hr.ones((2, 3)), hr.ones((3, 3))), "2.*3|3.*2"),
    (lambda: hr.vmap(hr.sin, in_axes=2)(hr.ones((2, 3))), "2"),
    (lambda: hr.vmap(hr.sin, in_axes=-3)(hr.ones((2, 3))), "-3"),
    (lambda: hr.vmap(hr.add, in_axes=(0,))(hr.ones(2), hr.ones(2)), "1|in_axes"),
    (lambda: hr.vmap(hr.sin, in_axes=None)(hr.ones(2)), "in_axes|axis|examples"),
    (lambda: hr.vmap(hr.sin, out_axes=3)(hr.ones(2)), "3"),
    (lambda: hr.vmap(hr.sin)(hr.array(1.0)), "0|dims"),
])  # fmt: skip
def test_axes_of_vmap_that_do_not_fit(call, message):
    with pytest.raises((ValueError, IndexError, TypeError), match=message):
        call()
    assert hr.vmap(hr.square)(hr.array([1.0, 2.0])).tolist() == [1, 4]


def test_an_exception_leaves_all_transforms_closed():
    def fails(x):
        raise KeyError("mine")

    for transform in (hr.grad(fails), hr.vmap(fails), hr.compile(fails), hr.grad(hr.vmap(hr.compile(fails))),
                      lambda x: hr.vjp(fails, [x], [x]), hr.checkpoint(fails)):  # fmt: skip
        with pytest.raises(KeyError, match="mine"):
            transform(X)
        assert float(X.sum()) == 15  # no trace and no batch is open
        assert hr.grad(lambda x: (x * x).sum())(X).tolist() == (2 * X).tolist()


# ---- memory


def test_memory_that_is_not_there_says_sizes():
    code = """
import headrace as hr
x = hr.arange(4.0)
y = x * 2
hr.eval(x)
try:
    z = hr.random.uniform(hr.random.key(0), (1 << 25,))
    hr.eval(z)
except (MemoryError, RuntimeError) as error:
    print(str(error).replace("\\n", " "))
print(x.tolist(), (x + 1).tolist(), hr.ones(1000).sum().item())
"""
    message, after = run(code, HEADRACE_MEMORY_LIMIT="64M").splitlines()
    assert "134217728" in message or "128" in message, message
    assert after == "[0.0, 1.0, 2.0, 3.0] [1.0, 2.0, 3.0, 4.0] 1000.0"


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 40), (1 << 62,), (-1,)])
def test_sizes_that_no_memory_has(shape):
    with pytest.raises((ValueError, MemoryError, RuntimeError, OverflowError), match=str(shape[0])):
        hr.eval(hr.zeros(shape))
    assert hr.ones(2).tolist() == [1, 1]


MILLION = """
import gc, os, resource
import headrace as hr
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def make(count):
    x = hr.ones(4)
    for _ in range(count):
        y = {call}
    hr.eval(y)
make(200000)
gc.collect()
before = resident()
make(1000000)
gc.collect()
print(resident() - before)
"""


@pytest.mark.parametrize("call", ["x + 1", "x[1:]", "hr.array(1.5)"])
def test_a_million_arrays_made_and_dropped(call):
    assert int(run(MILLION.replace("{call}", call))) < 4 << 20


# ---- interrupts, references


def test_ctrl_c_ends_a_long_eval():
    code = """
import headrace as hr, os, signal, threading, time
x = hr.ones((1000, 1000))
for _ in range(400):
    x = x @ x / 1000
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
begin = time.perf_counter()
try:
    hr.eval(x)
    print("ended")
except KeyboardInterrupt:
    print("interrupted", time.perf_counter() - begin < 20, hr.ones(2).tolist())
"""
    assert run(code) in ("interrupted True [1.0, 1.0]", "ended")


def test_references_of_the_extension_do_not_grow():
    """Of all functions of test_vmap.py, transforms and wrong calls, with Python's checks of development."""
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), *sys.path])}
    command = [sys.executable, "-X", "dev", "-W", "error", str(here / "reference_counts.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0 and "no growth" in result.stdout, result.stdout + result.stderr[-3000:]
