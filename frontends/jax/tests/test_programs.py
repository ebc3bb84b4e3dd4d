"""Programs on the device: calls, donation, deleted arguments, threads, errors. Expected values are NumPy's."""

import functools
import os
import re
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest


def test_a_program_runs():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x + 1)(x)), x + 1)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: (x * 2).T)(x)), (x * 2).T)


def test_results_that_are_inputs_or_views_are_whole_arrays():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    same, turned, number = jax.jit(lambda x: (x, x.T, jnp.int32(7)))(x)
    for got, expected in ((same, x), (turned, x.T), (number, np.int32(7))):
        np.testing.assert_array_equal(np.asarray(got), expected)
    same.delete()
    np.testing.assert_array_equal(np.asarray(turned), x.T)


def test_many_arguments_and_results():
    arguments = {f"a{i}": np.full((2, 3), i, np.float32) for i in range(100)}
    results = jax.jit(lambda tree: {name: x + 1 for name, x in tree.items()})(arguments)
    for i in range(100):
        np.testing.assert_array_equal(np.asarray(results[f"a{i}"]), np.full((2, 3), i + 1, np.float32))


def test_donated_arguments_are_deleted():
    step = jax.jit(lambda state, x: state * 2 + x, donate_argnums=0)
    state, x = jax.device_put(np.ones(1000, np.float32)), jax.device_put(np.ones(1000, np.float32))
    for _ in range(5):
        former = state
        state = step(state, x)
        assert former.is_deleted() and not x.is_deleted()
    np.testing.assert_array_equal(np.asarray(state), np.full(1000, 63, np.float32))
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        step(former, x)


def test_donated_steps_need_no_more_memory_than_their_state():
    device = jax.devices()[0]
    step = jax.jit(lambda state: state + 1, donate_argnums=0)
    state = step(jax.device_put(np.zeros(1 << 18, np.float32)))
    used = []
    for _ in range(50):
        state = step(state)
        jax.block_until_ready(state)
        used.append(device.memory_stats()["bytes_in_use"])
    assert used[-1] == used[5]
    np.testing.assert_array_equal(np.asarray(state), np.full(1 << 18, 51, np.float32))


@pytest.mark.cpu
def test_donated_state_is_updated_in_place():
    step = jax.jit(lambda state: [x * 0.5 + 1 for x in state], donate_argnums=0)
    first = [np.full(1 << 16, i, np.float32) for i in range(3)]
    state, expected = step(jax.device_put(first)), [x * np.float32(0.5) + 1 for x in first]
    for _ in range(4):
        places = [x.unsafe_buffer_pointer() for x in state]
        state = jax.block_until_ready(step(state))
        assert [x.unsafe_buffer_pointer() for x in state] == places
        expected = [x * np.float32(0.5) + 1 for x in expected]
    np.testing.assert_array_equal(np.asarray(state), expected)
    np.testing.assert_array_equal(first[2], np.full(1 << 16, 2, np.float32))


@pytest.mark.cpu
def test_an_optimizer_runs_where_its_gradients_are_made():
    """Eight gradients of 1 MB are not there at once."""
    program = """
import functools, headrace_jax, jax, jax.numpy as jnp, numpy as np
headrace_jax.initialize()
size, layers, numbers = 512, 8, np.random.default_rng(0)
gradients = jax.grad(lambda weights, x: (functools.reduce(lambda x, w: jnp.tanh(x @ w), weights, x) ** 2).sum())
def update(w, a, b, g):
    a, b = 0.9 * a + g, 0.9 * b + g * g
    return w - 0.01 * a / (jnp.sqrt(b) + 1), a, b
@functools.partial(jax.jit, donate_argnums=0)
def step(state, x):
    return [update(*each, g) for each, g in zip(state, gradients([w for w, _, _ in state], x))]
weights = [numbers.standard_normal((size, size), np.float32) * np.float32(size**-0.5) for _ in range(layers)]
x = jax.device_put(numbers.standard_normal((64, size), np.float32))
start = [(w, np.zeros_like(w), np.zeros_like(w)) for w in weights]
state = jax.block_until_ready(jax.jit(lambda state: jax.tree.map(jnp.copy, state))(start))
state = jax.block_until_ready(step(state, x))
expected = [update(*each, g) for each, g in zip(start, jax.jit(gradients)(weights, x))]
for got, wanted in zip(jax.tree.leaves(state), jax.tree.leaves(expected)):
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
"""
    done = run(program, HEADRACE_DEBUG="3")
    assert done.returncode == 0, done.stderr[-3000:]
    programs = re.findall(r"(\d+) records, .* arena (\d+)", done.stderr)
    assert int(max(programs, key=lambda found: int(found[0]))[1]) < 5 << 20

@pytest.mark.cpu
def test_gradients_of_embeddings_have_no_memory():
    """4 MB of zeros with 8 rows, and 4 MB with an element in each line."""
    program = """
import functools, headrace_jax, jax, jax.numpy as jnp, numpy as np
headrace_jax.initialize()
@functools.partial(jax.jit, donate_argnums=0)
def step(state, tokens):
    loss = lambda w: (w[0][tokens] ** 2).sum() + jnp.take_along_axis(w[1], tokens[:, None], axis=1).sum()
    return jax.tree.map(lambda w, g: w - 0.5 * g, state, jax.grad(loss)(state))
state = [np.ones((1 << 13, 128), np.float32), np.ones((8, 1 << 17), np.float32)]
tokens = np.array([1, 4, 1, 0, 8191, 1, 2, 3], np.int32)
got = jax.block_until_ready(step(state, tokens))
table, lines = (x.copy() for x in state)
np.add.at(table, tokens, -1)
lines[np.arange(8), tokens] -= 0.5
np.testing.assert_array_equal(got[0], table)
np.testing.assert_array_equal(got[1], lines)
"""
    done = run(program, HEADRACE_DEBUG="3")
    assert done.returncode == 0, done.stderr[-3000:]
    programs = re.findall(r"(\d+) records, .* arena (\d+)", done.stderr)
    assert int(max(programs, key=lambda found: int(found[0]))[1]) < 1 << 20


def test_donated_memory_that_numpy_sees_stays():
    step = jax.jit(lambda x: x * 2, donate_argnums=0)
    x = step(jnp.ones(1 << 16, jnp.float32))
    seen = np.asarray(x)
    y = step(x)
    np.testing.assert_array_equal(np.asarray(y), np.full(1 << 16, 4, np.float32))
    np.testing.assert_array_equal(seen, np.full(1 << 16, 2, np.float32))


def test_readiness_and_asynchronous_copies():
    x = jax.device_put(np.ones((300, 300), np.float32))
    y = jax.jit(lambda x: x @ x + 1)(x)
    y.copy_to_host_async()
    jax.block_until_ready([y, x])
    assert y.is_ready()
    np.testing.assert_allclose(np.asarray(y), np.full((300, 300), 301), rtol=1e-6)


def test_an_array_becomes_ready_while_it_is_polled():
    y = jax.jit(lambda x: x * 3)(np.ones(1 << 20, np.float32))
    while not y.is_ready():
        pass
    np.testing.assert_array_equal(np.asarray(y), np.full(1 << 20, 3, np.float32))


@pytest.mark.cpu
def test_work_of_milliseconds_runs_where_it_is_waited_for():
    """No other thread has to wake up for it."""
    program = """
import pathlib, headrace_jax, jax, numpy as np
headrace_jax.initialize()
x = jax.device_put(np.ones((700, 700), np.float32))
for _ in range(10):
    y = jax.jit(lambda x: x @ x + 1)(x).block_until_ready()
names = {task.joinpath("comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()}
print("headrace-run" in names, y[1, 1])
"""
    done = run(program, HEADRACE_THREADS="2")
    assert done.stdout.split() == ["False", "701.0"], done.stderr


@pytest.mark.cpu
@pytest.mark.skipif("HEADRACE_ONEDNN" not in os.environ, reason="the path of oneDNN is not known")
def test_libraries_are_opened_with_the_device():
    """Before the first program is there. The process may end meanwhile."""
    program = """
import os, pathlib, time, headrace_jax, jax
headrace_jax.initialize()
jax.devices()
name, end = os.path.basename(os.environ["HEADRACE_ONEDNN"]).split(".")[0], time.monotonic() + 30
while "wait" in sys.argv and name not in pathlib.Path("/proc/self/maps").read_text():
    assert time.monotonic() < end
"""
    for argument in ("wait", "end"):
        done = run(program.replace("sys.argv", repr([argument])), HEADRACE_THREADS="2")
        assert done.returncode == 0, done.stderr


def test_eight_threads_share_a_function():
    function = jax.jit(lambda x, k: x * k + 1)
    failures = []

    def work(k):
        x = np.full(100, k, np.float32)
        for _ in range(100):
            got = np.asarray(function(x, np.float32(k)))
            if not np.array_equal(got, x * k + 1):
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_operation_that_is_missing_is_named():
    missing = jax.ffi.ffi_call("no_such_function", jax.ShapeDtypeStruct((3,), np.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match='UNIMPLEMENTED.*custom call "no_such_function"'):
        jax.block_until_ready(jax.jit(missing)(np.ones(3, np.float32)))


def run(program, **variables):
    environment = os.environ | variables
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.cpu
def test_programs_that_do_not_select_the_platform_stay_on_the_cpu():
    program = "import headrace_jax, jax; headrace_jax.initialize(); print(jax.devices(), jax.devices('headrace'))"
    done = run(program, JAX_PLATFORMS="")
    assert (done.stdout, done.stderr) == ("[CpuDevice(id=0)] [headrace:0]\n", "")


@pytest.mark.cpu
def test_a_device_that_does_not_open_fails_for_programs_that_select_it_alone():
    program = "import headrace_jax, jax; headrace_jax.initialize(); print(jax.devices())"
    done = run(program, JAX_PLATFORMS="", HEADRACE_DEVICE="tape")
    assert (done.stdout, done.returncode) == ("[CpuDevice(id=0)]\n", 0), done.stderr
    done = run(program, HEADRACE_DEVICE="tape")
    assert done.returncode != 0 and 'device "tape": no such driver; this build has cpu' in done.stderr


HEAD = "import jax, numpy as np, headrace_jax; headrace_jax.initialize(); f = jax.jit(lambda x: x + 1);"


def test_exit_with_pending_work():
    done = run(HEAD + "y = np.ones(1 << 20, np.float32)\nfor _ in range(20): y = f(y)")
    assert done.returncode == 0, done.stderr


def test_the_library_works_without_the_package():
    program = "import jax, numpy as np; print(np.asarray(jax.jit(lambda x: x + 1)(np.float32(2))), jax.devices())"
    done = run(program, PJRT_NAMES_AND_LIBRARY_PATHS=f"headrace:{os.environ['HEADRACE_JAX_LIBRARY']}")
    assert done.stdout.split() == ["3.0", "[headrace:0]"], done.stderr


@pytest.mark.cpu
def test_several_devices():
    program = HEAD + (
        "a, b = jax.devices(); x = jax.device_put(np.ones(3, np.float32), b); y = f(x); print(y.devices() == {b});"
        "print(np.asarray(jax.device_put(y, a)))"
    )
    done = run(program, HEADRACE_CPU_DEVICES="2")
    assert done.stdout.split("\n")[:2] == ["True", "[2. 2. 2.]"], done.stderr


def test_a_plug_in_that_does_nothing_has_the_right_shapes():
    done = run(HEAD + "print(f(np.ones((3, 4), np.float32)).shape)", HEADRACE_JAX_NOP="1")
    assert done.stdout.strip() == "(3, 4)", done.stderr


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_signs_of_zeros_and_nan_stay(dtype):
    x = jnp.array([-0.0, 0.0, -3, 2, np.nan, -np.inf], dtype)
    y = np.asarray(jax.jit(jnp.sign)(x)).astype(np.float32)
    np.testing.assert_array_equal(y, np.float32([-0.0, 0.0, -1, 1, np.nan, -1]))
    np.testing.assert_array_equal(np.signbit(y[:2]), [True, False])


def test_loops_in_loops_in_loops():
    """As in ODE solvers: each loop's body is counted again for each loop around it."""

    def nested(depth, x):
        if depth == 0:
            for k in range(40):
                x = jnp.sin(x) + k
            return x
        return jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, nested(depth - 1, s[1])), (0, x))[1]

    expected = np.float64(0.5)
    for _ in range(2**5):
        for k in range(40):
            expected = np.sin(expected) + k
    np.testing.assert_allclose(np.asarray(jax.jit(functools.partial(nested, 5))(jnp.float64(0.5))), expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e3m4", "float8_e4m3b11fnuz", "float4_e2m1fn"])
def test_narrow_floats_compute(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = np.arange(16 if "float4" in name else 256, dtype=np.uint8).view(dtype)
    wide = x.astype(np.float32)
    constant = np.array([0.5, 1, -2, 3], np.float32).astype(dtype)
    found = jax.jit(lambda x: (x.astype(np.float32), x * x, x[:4] + jnp.asarray(constant), jnp.zeros(3, dtype)))(x)
    np.testing.assert_array_equal(np.asarray(found[0]), wide)
    with np.errstate(over="ignore", invalid="ignore"):
        square = np.where(np.isnan(wide), -np.float32(0), wide * wide) if "float4" in name else wide * wide
        np.testing.assert_array_equal(np.asarray(found[1]).astype(np.float32), square.astype(dtype).astype(np.float32))
    total = (wide[:4] + constant.astype(np.float32)).astype(dtype)
    np.testing.assert_array_equal(np.asarray(found[2]).astype(np.float32), total.astype(np.float32))
    assert found[3].dtype == dtype and not np.asarray(found[3]).astype(np.float32).any()


def test_elements_at_indices_of_many_dims():
    rank, numbers = 9, np.random.default_rng(0)
    x, values = numbers.integers(0, 9, (2,) * rank, np.int32), numbers.integers(0, 9, 50, np.int32)
    at = tuple(numbers.integers(-1, 3, 50, np.int32) for _ in range(rank))  # also outside of x
    expected = x.copy()
    inside = np.all([(i >= 0) & (i < 2) for i in at], 0)
    np.add.at(expected, tuple(i[inside] for i in at), values[inside])
    add = jax.jit(lambda x, at, values: x.at[at].add(values, mode="drop", wrap_negative_indices=False))
    np.testing.assert_array_equal(np.asarray(add(x, at, values)), expected)


FLOATS_OF_8_BITS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz",
                    "float8_e8m0fnu", "float8_e4m3", "float8_e3m4", "float4_e2m1fn")


@pytest.mark.parametrize("source", FLOATS_OF_8_BITS)
@pytest.mark.parametrize("target", FLOATS_OF_8_BITS)
def test_floats_of_8_bits_are_converted_to_each_other(source, target):
    source, target = jnp.dtype(source), jnp.dtype(target)
    x = np.arange(16 if "float4" in source.name else 256, dtype=np.uint8).view(source)
    got = np.asarray(jax.jit(lambda x: jax.lax.convert_element_type(x, target))(x))
    wanted = x.astype(np.float32).astype(target)
    is_nan = np.isnan(x.astype(np.float32)) | (np.isnan(got.astype(np.float32)) & np.isnan(wanted.astype(np.float32)))
    np.testing.assert_array_equal(got.view(np.uint8)[~is_nan], wanted.view(np.uint8)[~is_nan])


@pytest.mark.parametrize("shape", [(), (3, 500)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "uint8"])
def test_loops_whose_elements_do_not_depend_on_each_other(dtype, shape):
    """Such a loop is one call of a kernel, which also swaps carried values and reads the number of the iteration."""

    def step(i, state):
        a, b, n = state
        return b, a - b, n + i.astype(n.dtype)

    x = (np.arange(np.prod(shape, dtype=int)) % 3).reshape(shape).astype(jnp.dtype(dtype))
    start = (x, x + x, x)
    got = jax.jit(lambda state: jax.lax.fori_loop(0, 21, step, state))(start)
    wanted = start
    for i in range(21):
        wanted = step(np.int32(i), wanted)
    for mine, theirs in zip(got, wanted):
        np.testing.assert_array_equal(np.asarray(mine).astype(np.float64), theirs.astype(np.float64))
    steps = jax.jit(lambda x, n: jax.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2 + x), (0, x)))
    for n in (0, 1, 6):
        assert np.array_equal(np.asarray(steps(x, n)[1]).astype(np.float64), (x * (2 ** (n + 1) - 1)).astype(np.float64))
