"""Callbacks of Python in programs: their values, their order, their failures, how long they live."""

import gc
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from headrace_jax import _callbacks
from jax.experimental import io_callback

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint32", "float16", "float32", "float64", "complex64"]
DTYPES = [np.dtype(name) for name in DTYPES] + [np.dtype(ml_dtypes.bfloat16)]
F32 = jax.ShapeDtypeStruct((3,), np.float32)


def test_a_pure_callback_computes():
    function = jax.jit(lambda x: jax.pure_callback(lambda x: np.sin(np.asarray(x)), F32, x * 2) + 1)
    for k in range(3):
        x = np.arange(3, dtype=np.float32) + k
        np.testing.assert_allclose(np.asarray(function(x)), np.sin(2 * x) + 1, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 2), (1, 1, 5)], ids=str)
def test_operands_of_every_dtype(dtype, shape):
    x = np.ones(shape, dtype)
    seen = []

    def note(x, y):
        seen.append((np.asarray(x), np.asarray(y)))
        return np.asarray(x), np.asarray(y)

    like = jax.ShapeDtypeStruct(shape, dtype)
    got = jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(note, (like, like), x, x.T.T))(x))
    assert len(seen) == 1 or not x.size
    for value in (*got, *(seen[0] if seen else ())):
        assert value.dtype == dtype
        np.testing.assert_array_equal(np.asarray(value), x)


def test_a_sparse_system_is_solved_by_scipy():
    """A rule of the CPU outside of JAX's core, which has the emitter of callbacks by another name."""
    from jax.experimental.sparse.linalg import spsolve

    data, columns, rows = np.array([2, 1, 4], np.float32), np.array([0, 1, 1]), np.array([0, 2, 3])
    x = jax.jit(spsolve)(data, columns, rows, np.array([5, 8], np.float32))
    np.testing.assert_allclose(np.asarray(x), [1.5, 2], rtol=1e-6)



@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_results_of_few_bits(name):
    x = np.arange(-8, 8).astype(getattr(ml_dtypes, name))
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    got = jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x), like, x).astype(np.int8) * 3)(x)
    np.testing.assert_array_equal(np.asarray(got), x.astype(np.int8) * 3)


def test_views_are_passed_as_dense_arrays():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    like = jax.ShapeDtypeStruct((4, 2), np.int32)
    got = jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x) + 1, like, x.T[:, ::2]))(x)
    np.testing.assert_array_equal(np.asarray(got), x.T[:, ::2] + 1)


def test_arguments_that_are_kept_do_not_change():
    kept = []
    function = jax.jit(lambda x: jax.pure_callback(lambda x: kept.append(x) or np.asarray(x), F32, x + 1))
    for k in range(5):
        function(np.full(3, k, np.float32)).block_until_ready()
    for k, x in enumerate(kept):
        np.testing.assert_array_equal(np.asarray(x), np.full(3, k + 1, np.float32))


def collect(program, *arguments):
    """What the callbacks of a program note, in their order."""
    seen = []
    jax.jit(lambda *arguments: program(lambda x: seen.append(np.asarray(x).item()), *arguments))(*arguments)
    jax.effects_barrier()
    return seen


@pytest.mark.parametrize("ordered", [False, True])
def test_effects_keep_the_order_of_the_program(ordered):
    def program(note, x):
        for k in range(5):
            jax.debug.callback(note, x + k, ordered=ordered)
        return x

    assert collect(program, np.int32(3)) == [3, 4, 5, 6, 7]


def test_effects_in_loops_and_branches():
    def loop(note, x):
        return jax.lax.fori_loop(0, 3, lambda i, x: (jax.debug.callback(note, x), x * 2)[1], x)

    def search(note, x):
        def condition(x):
            jax.debug.callback(note, -x)
            return x < 20

        return jax.lax.while_loop(condition, lambda x: (jax.debug.callback(note, x), x * 2)[1], x)

    def branch(note, x):
        def small(x):
            jax.debug.callback(note, x)
            return x

        return jax.lax.cond(x < 5, small, lambda x: x * 2, x), jax.lax.switch(x, [small, lambda x: -x, small], x)

    def scan(note, x):
        return jax.lax.scan(
            lambda x, y: (jax.debug.callback(note, x + y), (x + y, y))[1], x, np.arange(4, dtype=np.int32)
        )

    assert collect(loop, np.int32(3)) == [3, 6, 12]
    assert collect(search, np.int32(8)) == [-8, 8, -16, 16, -32]
    assert collect(branch, np.int32(1)) == [1]
    assert collect(branch, np.int32(7)) == [7]
    assert collect(branch, np.int32(2)) == [2, 2]
    assert collect(scan, np.int32(1)) == [1, 2, 4, 7]


def test_a_loop_of_effects_alone():
    def program(note, n):
        return jax.lax.while_loop(lambda i: i < n, lambda i: (jax.debug.callback(note, i), i + 1)[1], 0)

    assert collect(program, np.int32(4)) == [0, 1, 2, 3]
    assert collect(program, np.int32(0)) == []


def test_an_effect_without_results_runs(capfd):
    jax.jit(lambda x: jax.debug.print("it is {x}", x=x))(np.float32(7))
    jax.effects_barrier()
    assert "it is 7.0" in capfd.readouterr().out


def test_a_callback_with_state_runs_once_a_call():
    count = [0]

    def draw():
        count[0] += 1
        return np.int32(count[0])

    like = jax.ShapeDtypeStruct((), np.int32)
    function = jax.jit(lambda: [io_callback(draw, like, ordered=True) for _ in range(3)])
    assert [int(x) for x in function()] == [1, 2, 3]
    assert [int(x) for x in function()] == [4, 5, 6]


def test_a_failure_is_that_of_its_results():
    def fail(x):
        raise ValueError("no more of this")

    def program(x):
        return io_callback(fail, F32, x) + 1

    x = np.arange(3, dtype=np.float32)
    good = jax.jit(lambda x: x + 1)
    bad = jax.jit(program)(x)
    np.testing.assert_array_equal(np.asarray(good(x)), x + 1)
    for use in (np.asarray, good):
        with pytest.raises(jax.errors.JaxRuntimeError, match="no more of this"):
            jax.block_until_ready(use(bad))
    np.testing.assert_array_equal(np.asarray(good(x)), x + 1)


def test_a_failure_of_a_pure_callback_is_that_of_the_call():
    def fail(x):
        raise ValueError("no more of this")

    x = np.arange(3, dtype=np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no more of this"):
        jax.jit(lambda x: (x + 1, jax.pure_callback(fail, F32, x)))(x)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x + 1)(x)), x + 1)


def test_a_failure_does_not_reach_a_later_loop():
    def fail(x):
        raise ValueError("no more of this")

    x = np.arange(3, dtype=np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no more of this"):
        jax.jit(lambda x: jax.pure_callback(fail, F32, x))(x)
    got = jax.jit(lambda n: jax.lax.while_loop(lambda i: i * i < n, lambda i: i + 1, 0))(np.int32(50))
    assert int(got) == 8


def test_wrong_results_are_named():
    x = np.arange(3, dtype=np.float32)
    for value, message in ((np.ones(4, np.float32), "shape"), (np.ones(3, np.int32), "dtype")):
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"Incorrect output {message}"):
            np.asarray(jax.jit(lambda x, value=value: jax.pure_callback(lambda x: value, F32, x))(x))


def test_gradients_and_vmap_pass_callbacks():
    @jax.custom_jvp
    def sine(x):
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda x: np.sin(np.asarray(x)), like, x, vmap_method="expand_dims")

    sine.defjvp(lambda primals, tangents: (sine(*primals), jnp.cos(*primals) * tangents[0]))
    x = np.linspace(0, 1, 5, dtype=np.float32)
    np.testing.assert_allclose(np.asarray(jax.jit(jax.vmap(jax.grad(sine)))(x)), np.cos(x), rtol=1e-6)


def test_callbacks_are_freed():
    def make():
        jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x), F32, x))(
            np.ones(3, np.float32)
        ).block_until_ready()

    for _ in range(10):
        make()
        jax.clear_caches()
        gc.collect()
    jax.jit(lambda x: x + 1)(np.ones(3, np.float32)).block_until_ready()  # the stream's last program
    make()
    assert len(_callbacks._callbacks) <= 4


def test_a_failed_callback_is_no_failure_of_another_thread():
    began, ended = threading.Event(), threading.Event()

    def fail(x):
        began.set()
        ended.wait(20)
        raise ValueError("of the other thread")

    failing = jax.jit(lambda x: io_callback(fail, jax.ShapeDtypeStruct(x.shape, x.dtype), x))
    other = jax.jit(lambda x: x * 3)
    x = jnp.ones(3) + 0
    assert np.asarray(other(x)).tolist() == [3, 3, 3]
    messages = []

    def work():
        try:
            failing(x).block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            messages.append(str(error))

    for i in range(4):
        began.clear()
        ended.clear()
        thread = threading.Thread(target=work)
        thread.start()
        assert began.wait(20)
        pending = other(x + i)  # behind the callback that fails
        ended.set()
        assert np.asarray(pending).tolist() == [3 + 3 * i] * 3
        thread.join()
    assert len(messages) == 4 and all("of the other thread" in message for message in messages)


def test_eight_threads_have_callbacks():
    function = jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x) * 2, F32, x + 1))
    failures = []

    def work(k):
        x = np.full(3, k, np.float32)
        for _ in range(50):
            if not np.array_equal(np.asarray(function(x)), (x + 1) * 2):
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_callbacks_without_jaxs_cpu_backend_and_at_exit():
    program = (
        "import jax, numpy as np; f = jax.jit(lambda x: (jax.debug.print('x is {x}', x=x), x + 1)[1]);"
        "y = [f(np.float32(k)) for k in range(3)]"
    )
    environment = os.environ | {"JAX_PLATFORMS": "headrace"}
    head = "import headrace_jax; headrace_jax.initialize();"
    done = subprocess.run([sys.executable, "-c", head + program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["x is 0.0", "x is 1.0", "x is 2.0"]


def test_checks_are_callbacks():
    from jax.experimental import checkify

    def program(x):
        checkify.debug_check(x > 0, "it is not positive")
        return x + 1

    error, got = jax.jit(checkify.checkify(program))(np.float32(1))
    assert error.get() is None and float(got) == 2
    error, _ = jax.jit(checkify.checkify(program))(np.float32(-1))
    assert "not positive" in error.get()
    assert float(jax.jit(program)(np.float32(1))) == 2


def test_a_failure_that_nobody_waits_for_reaches_no_other_program():
    def fail(x):
        raise ValueError("no more of this")

    x = np.arange(3, dtype=np.float32)
    bad = jax.jit(lambda x: io_callback(fail, F32, x))
    good = jax.jit(lambda x: io_callback(lambda x: np.asarray(x) + 1, F32, x, ordered=True))
    for _ in range(20):
        bad(x)
        result = good(x)
        jax.effects_barrier()
        np.testing.assert_array_equal(np.asarray(result), x + 1)
