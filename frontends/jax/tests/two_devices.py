"""Programs over two devices of any kind; test_devices.py runs these cases in a process that has them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
X = np.arange(32, dtype=np.float32).reshape(8, 4)
HALVES = X.reshape(2, 4, 4)


def put(x, *spec):
    return jax.device_put(x, NamedSharding(MESH, P(*spec)))


def check(got, expected, **options):
    np.testing.assert_allclose(np.asarray(got), expected, **{"rtol": 1e-5} | options)


def mapped(function, in_specs=P("x"), out_specs=P("x"), **options):
    made = jax.shard_map(function, mesh=MESH, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    return jax.jit(made, **options)


@pytest.mark.parametrize("spec", [("x",), (None, "x"), ()])
def test_jit_of_sharded_arrays(spec):
    x = put(X, *spec)
    got = jax.jit(lambda x: (jnp.sin(x) * 2 + x.sum(), x @ x.T, x.max(0), jnp.cumsum(x, 0), x.at[3].set(0)))(x)
    at = X.copy()
    at[3] = 0
    for value, expected in zip(got, (np.sin(X) * 2 + X.sum(), X @ X.T, X.max(0), X.cumsum(0), at), strict=True):
        check(value, expected)
        for shard in value.addressable_shards:
            check(shard.data, expected[shard.index])


def test_collectives():
    x = put(X, "x")
    check(mapped(lambda x: lax.psum(x, "x"), out_specs=P())(x), HALVES.sum(0))
    check(mapped(lambda x: lax.pmax(x, "x"), out_specs=P())(x), HALVES.max(0))
    check(mapped(lambda x: lax.all_gather(x, "x", tiled=True), out_specs=P())(x), X)
    check(mapped(lambda x: lax.ppermute(x, "x", [(0, 1), (1, 0)]))(x), np.roll(X, 4, 0))
    check(mapped(lambda x: x + lax.axis_index("x"))(x), X + np.repeat(np.arange(2), 4)[:, None])
    check(mapped(lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True))(x), np.concatenate([X[:, :2], X[:, 2:]]))
    scattered = mapped(lambda x: lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True), out_specs=P(None, "x"))
    check(scattered(x), HALVES.sum(0))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.float16, np.float64, np.complex64])
def test_collectives_of_dtypes(dtype):
    x = (X % 3).astype(dtype)
    got = mapped(lambda x: lax.all_gather(x, "x", tiled=True), out_specs=P())(put(x, "x"))
    assert got.dtype == dtype
    np.testing.assert_array_equal(np.asarray(got), x)


def test_large_parts():
    x = np.random.default_rng(0).normal(size=(1 << 20, 4)).astype(np.float32)
    got = mapped(lambda x: lax.psum(x * 2, "x"), out_specs=P())(put(x, "x"))
    check(got, (x * 2).reshape(2, -1, 4).sum(0))
    assert len({np.asarray(shard.data).tobytes() for shard in got.addressable_shards}) == 1


def test_loops_with_collectives():
    def step(x):
        return lax.fori_loop(0, 3, lambda i, x: lax.psum(x, "x") / 2 + i, x)

    def search(x):
        return lax.while_loop(lambda x: lax.psum(x.sum(), "x") < 1e4, lambda x: x * 2, x)

    check(mapped(step)(put(X, "x")), np.tile(HALVES.mean(0) + 3, (2, 1)))
    check(mapped(search)(put(X, "x")), X * 32)


def test_a_training_step_is_that_of_one_device():
    rng = np.random.default_rng(1)
    w, x, y = (rng.normal(size=s).astype(np.float32) for s in ((4, 3), (16, 4), (16, 3)))
    one = jax.jit(jax.grad(lambda w, x, y: ((jnp.tanh(x @ w) - y) ** 2).mean()))
    both = mapped(lambda *args: lax.pmean(one(*args), "x"), (P(), P("x"), P("x")), P())
    expected = np.asarray(one(w, x, y))
    check(both(w, put(x, "x"), put(y, "x")), expected, atol=1e-6)
    check(one(put(w), put(x, "x"), put(y, "x")), expected, atol=1e-6)


def test_donation_and_many_calls():
    x = put(X, "x")
    step = mapped(lambda x: x + lax.pmax(x, "x") * 0 + 1, donate_argnums=0)
    for _ in range(50):
        former, x = x, step(x)
        assert former.is_deleted()
    check(x, X + 50)


def test_pmap():
    x = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    check(jax.pmap(lambda x: x / lax.psum(x, "i"), axis_name="i", devices=jax.devices()[:2])(x), x / x.sum(0))


def test_callbacks_of_each_device():
    seen = []

    def program(x):
        io_callback(lambda i: seen.append(int(i)), None, lax.axis_index("x"))
        return x

    jax.block_until_ready(mapped(program)(put(X, "x")))
    jax.effects_barrier()
    assert sorted(seen) == [0, 1]


def test_a_failure_on_one_device_ends_the_program():
    def fail(x):
        if x[0, 0] >= 4:
            raise ValueError("not on this device")
        return x

    def program(x):
        return lax.psum(jax.pure_callback(fail, jax.ShapeDtypeStruct(x.shape, x.dtype), x), "x")

    with pytest.raises(jax.errors.JaxRuntimeError, match="not on this device|another device"):
        jax.block_until_ready(mapped(program, out_specs=P())(put(X, "x")))
    check(jax.jit(lambda x: x + 1)(put(X, "x")), X + 1)


def test_batches_of_matrices():
    a = np.eye(4, dtype=np.float32) * 3 + X[:, :, None] / 32
    check(jax.jit(jnp.linalg.inv)(put(a, "x")), np.linalg.inv(a), rtol=1e-4, atol=1e-5)


def test_copies_between_devices():
    for source in jax.devices()[:2]:
        for target in jax.devices()[:2]:
            y = jax.device_put(jax.jit(lambda x: x + 1)(jax.device_put(X, source)), target)
            assert y.devices() == {target}
            check(y, X + 1)
    check(jax.device_put(put(X, "x"), NamedSharding(MESH, P(None, "x"))), X)
