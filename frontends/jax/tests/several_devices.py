"""Programs over four devices of the host; test_devices.py runs these cases in a process that has them."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from headrace_jax import _parts
from jax import lax
from jax.experimental import io_callback
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

LINE = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
GRID = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def put(x, mesh, *spec):
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def check(got, expected, **options):
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6, **options)


def mapped(function, mesh, in_specs, out_specs):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False))


def test_there_are_four_devices():
    assert [device.id for device in jax.devices()] == [0, 1, 2, 3]


@pytest.mark.parametrize("spec", [("x",), (None, "y"), ("x", "y"), ("y", "x"), (("x", "y"),), (None, ("y", "x")), ()])
def test_jit_of_sharded_arrays(spec):
    x = put(X, GRID, *spec)
    check(jax.jit(lambda x: jnp.sin(x) * 2 + x.T.sum())(x), np.sin(X) * 2 + X.sum())
    check(jax.jit(lambda x: x @ x.T, out_shardings=NamedSharding(GRID, P("y")))(x), X @ X.T)
    constrained = jax.jit(lambda x: lax.with_sharding_constraint(x + 1, NamedSharding(GRID, P("y", "x"))))(x)
    check(constrained, X + 1)


def test_results_are_where_they_should_be():
    x = put(X, GRID, "x", "y")
    same = jax.jit(lambda x: x + 1, out_shardings=x.sharding)(x)
    assert same.sharding.is_equivalent_to(x.sharding, 2)
    for shard in same.addressable_shards:
        check(shard.data, X[shard.index] + 1)
    local = mapped(lambda x: x * 2, GRID, P("x", "y"), P("x", "y"))(x)
    for shard in local.addressable_shards:
        assert shard.data.shape == (4, 2)
        check(shard.data, X[shard.index] * 2)


def test_collectives():
    x = put(X, LINE, "x")
    parts = X.reshape(4, 2, 4)
    check(mapped(lambda x: lax.psum(x, "x"), LINE, P("x"), P())(x), parts.sum(0))
    check(mapped(lambda x: lax.pmax(x, "x"), LINE, P("x"), P())(x), parts.max(0))
    check(mapped(lambda x: lax.pmean(x, "x"), LINE, P("x"), P())(x), parts.mean(0))
    check(mapped(lambda x: lax.all_gather(x, "x", tiled=True), LINE, P("x"), P())(x), X)
    check(mapped(lambda x: lax.all_gather(x, "x"), LINE, P("x"), P())(x), parts)
    turned = [(i, (i + 1) % 4) for i in range(4)]
    check(mapped(lambda x: lax.ppermute(x, "x", turned), LINE, P("x"), P("x"))(x), np.roll(X, 2, 0))
    check(mapped(lambda x: lax.ppermute(x, "x", [(0, 3)]), LINE, P("x"), P("x"))(x), np.r_[X[:6] * 0, X[:2]])
    check(mapped(lambda x: x + lax.axis_index("x"), LINE, P("x"), P("x"))(x), X + np.repeat(np.arange(4), 2)[:, None])
    got = mapped(lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True), LINE, P("x"), P("x"))(x)
    check(got, np.concatenate([X[:, i : i + 1] for i in range(4)]))
    got = mapped(lambda x: lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True), LINE, P("x"), P(None, "x"))(x)
    check(got, parts.sum(0))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16, np.float64, np.complex64, np.bool_])
def test_collectives_of_dtypes(dtype):
    x = put((X % 3).astype(dtype), LINE, "x")
    got = mapped(lambda x: lax.all_gather(x, "x", tiled=True), LINE, P("x"), P())(x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(np.asarray(got), (X % 3).astype(dtype))


def test_groups_of_a_mesh():
    x = put(X, GRID, "x", "y")
    blocks = X.reshape(2, 4, 2, 2)
    check(mapped(lambda x: lax.psum(x, "x"), GRID, P("x", "y"), P(None, "y"))(x), blocks.sum(0).reshape(4, 4))
    check(mapped(lambda x: lax.psum(x, "y"), GRID, P("x", "y"), P("x"))(x), blocks.sum(2).reshape(8, 2))
    check(mapped(lambda x: lax.psum(x, ("x", "y")), GRID, P("x", "y"), P())(x), blocks.sum((0, 2)))


def square(devices=""):
    axes = ", ".join(f'#stablehlo.mesh_axis<name = "{name}", size = 2>' for name in "xy")
    return f"#stablehlo.mesh<axes = [{axes}]{devices}>"


def axes_of(*axes):
    return ", ".join(f"#stablehlo.axis_ref<name = {axis}>" for axis in axes)


ALONG = [
    ("@mesh", axes_of('"x"'), [[0, 1, 2, 3]]),
    ("@mesh", "", [[0], [1], [2], [3]]),
    ("@mesh", axes_of('"x", sub_axis_info = (1)2'), [[0, 2], [1, 3]]),
    ("@mesh", axes_of('"x", sub_axis_info = (2)2'), [[0, 1], [2, 3]]),
    (square(), axes_of('"x"'), [[0, 2], [1, 3]]),
    (square(), axes_of('"y"', '"x"'), [[0, 2, 1, 3]]),
    (square(", device_ids = dense<[0, 2, 1, 3]> : tensor<4xi64>"), axes_of('"x"'), [[0, 1], [2, 3]]),
]


def group_along(grid, axes, monkeypatch):
    """Gives collectives these groups, which JAX 0.11 writes."""
    from jax._src import compiler
    from jax.extend.mlir import ir

    original = compiler.backend_compile_and_load

    def change(op):
        if op.name in ("stablehlo.all_reduce", "stablehlo.all_gather"):
            text = f"#stablehlo.replica_group_mesh_axes<mesh = {grid}, axes = [{axes}]>"
            op.attributes["replica_groups"] = ir.Attribute.parse(text)
        return ir.WalkResult.ADVANCE

    def compile_changed(backend, module, *arguments, **named):
        with module.context:
            module.operation.walk(change)
        return original(backend, module, *arguments, **named)

    monkeypatch.setattr(compiler, "backend_compile_and_load", compile_changed)


@pytest.mark.parametrize("times", [2, 16, 32])
def test_groups_along_an_axis_more_than_once(times, monkeypatch):
    group_along("@mesh", axes_of(*['"x"'] * times), monkeypatch)
    with pytest.raises(jax.errors.JaxRuntimeError, match="all_reduce .*: its groups are no list of devices"):
        mapped(lambda x: lax.psum(x, "x"), LINE, P("x"), P("x"))(put(X, LINE, "x"))


@pytest.mark.parametrize(("grid", "axes", "groups"), ALONG)
def test_groups_along_axes_of_a_mesh(grid, axes, groups, monkeypatch):
    group_along(grid, axes, monkeypatch)
    parts = X.reshape(4, 2, 4)
    sums = np.empty_like(parts)
    for group in groups:
        sums[group] = parts[group].sum(0)
    check(mapped(lambda x: lax.psum(x, "x"), LINE, P("x"), P("x"))(put(X, LINE, "x")), sums.reshape(8, 4))
    if len(groups) == 1:
        gathered = mapped(lambda x: lax.all_gather(x, "x", tiled=True), LINE, P("x"), P())(put(X, LINE, "x"))
        check(gathered, parts[groups[0]].reshape(8, 4))


def test_a_sum_has_the_same_bits_on_all_devices():
    x = np.random.default_rng(0).normal(size=(4, 1000)).astype(np.float32)
    got = jax.pmap(lambda x: lax.psum(x, "i"), axis_name="i")(x)
    assert len({np.asarray(shard.data).tobytes() for shard in got.addressable_shards}) == 1


def test_pmap():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    check(jax.pmap(lambda x: x / lax.psum(x, "i"), axis_name="i")(x + 1), (x + 1) / (x + 1).sum(0))
    check(jax.pmap(lambda x, y: x * y, in_axes=(0, None))(x, 2.0), x * 2)


def test_loops_with_collectives():
    def step(x):
        return lax.fori_loop(0, 3, lambda i, x: lax.psum(x, "x") / 4 + i, x)

    def search(x):
        return lax.while_loop(lambda x: lax.psum(x.sum(), "x") < 1e4, lambda x: x * 2, x)

    expected = X.reshape(4, 2, 4)
    mean = expected.mean(0) + 3
    check(mapped(step, LINE, P("x"), P("x"))(put(X, LINE, "x")), np.tile(mean, (4, 1)))
    scale = 1
    while X.sum() * scale < 1e4:
        scale *= 2
    check(mapped(search, LINE, P("x"), P("x"))(put(X, LINE, "x")), X * scale)


def test_a_training_step_over_the_devices_is_that_of_one():
    rng = np.random.default_rng(1)
    w, x, y = (rng.normal(size=s).astype(np.float32) for s in ((4, 3), (16, 4), (16, 3)))

    def loss(w, x, y):
        return ((jnp.tanh(x @ w) - y) ** 2).mean()

    def parallel(w, x, y):
        return jax.tree.map(lambda g: lax.pmean(g, "x"), jax.grad(loss)(w, x, y))

    got = mapped(parallel, LINE, (P(), P("x"), P("x")), P())(w, put(x, LINE, "x"), put(y, LINE, "x"))
    check(got, np.asarray(jax.grad(loss)(w, x, y)), atol=1e-6)
    auto = jax.jit(jax.grad(loss))(put(w, LINE), put(x, LINE, "x"), put(y, LINE, "x"))
    check(auto, np.asarray(jax.grad(loss)(w, x, y)), atol=1e-6)


def test_donation_and_many_calls():
    x = put(X, LINE, "x")
    step = jax.jit(jax.shard_map(lambda x: x + lax.pmax(x, "x") * 0 + 1, mesh=LINE, in_specs=P("x"), out_specs=P("x")),
                   donate_argnums=0)
    for _ in range(50):
        former, x = x, step(x)
        assert former.is_deleted()
    check(x, X + 50)


def test_donated_inputs_without_a_result_of_their_size_stay():
    wide, narrow = put(X[:, :1], LINE, "x"), put(X, LINE, "x")
    total = jax.jit(lambda x, y: (x @ x.T, y * 2), donate_argnums=(0, 1))
    product, double = total(wide, narrow)
    assert narrow.is_deleted() and not wide.is_deleted()
    check(product, X[:, :1] @ X[:, :1].T)
    check(double, X * 2)
    check(wide, X[:, :1])


def test_a_failure_on_one_device_ends_the_program():
    def fail(x):
        if x[0, 0] >= 4:
            raise ValueError("not on this device")
        return x

    def program(x):
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return lax.psum(jax.pure_callback(fail, like, x), "x")

    x = put(X, LINE, "x")
    with pytest.raises(jax.errors.JaxRuntimeError, match="not on this device|another device"):
        jax.block_until_ready(mapped(program, LINE, P("x"), P())(x))
    check(jax.jit(lambda x: x + 1)(x), X + 1)


def test_callbacks_of_each_device():
    seen = []

    def program(x):
        io_callback(lambda i: seen.append(int(i)), None, lax.axis_index("x"))
        return x

    jax.block_until_ready(mapped(program, LINE, P("x"), P("x"))(put(X, LINE, "x")))
    jax.effects_barrier()
    assert sorted(seen) == [0, 1, 2, 3]


def test_copies_between_devices():
    for source in jax.devices():
        x = jax.device_put(X, source)
        for target in jax.devices():
            y = jax.device_put(jax.jit(lambda x: x + 1)(x), target)
            assert y.devices() == {target}
            check(y, X + 1)


SUMS = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.complex64])
def test_shards_that_are_terms_of_a_sum(dtype):
    a, b = X.astype(dtype), (X.T + 1).astype(dtype)
    x, y = put(a, SUMS, "x", "y"), put(b, SUMS, "y")
    product = jax.shard_map(
        lambda x, y: x @ y, mesh=SUMS, in_specs=(P("x", "y"), P("y")), out_specs=P("x", None, unreduced={"y"})
    )
    terms = jax.jit(product)(x, y)
    assert terms.sharding.spec == P("x", None, unreduced={"y"})
    for shard in terms.addressable_shards:
        row, column = divmod(shard.device.id, 2)
        half = slice(2 * column, 2 * column + 2)
        check(shard.data, (a[:, half] @ b[half])[4 * row : 4 * row + 4])
    check(jax.sharding.reshard(terms, NamedSharding(SUMS, P("x"))), a @ b)
    check(jax.sharding.reshard(jax.jit(lambda x: x + x)(terms), NamedSharding(SUMS, P(None, "y"))), 2 * (a @ b))


def test_whole_tensors_become_terms_of_a_sum():
    for dims, axes in ((None, None), {"x"}), ((None, None), {"x", "y"}), (("y", None), {"x"}):
        spec = P(*dims, unreduced=axes)
        terms = jax.sharding.reshard(put(X, SUMS), NamedSharding(SUMS, spec))
        assert terms.sharding.spec == spec
        check(jax.sharding.reshard(terms, NamedSharding(SUMS, P())), X)
    x = put(X, SUMS, "x")
    sharding = NamedSharding(SUMS, P(unreduced={"x"}))
    terms = jax.jit(lambda x, y: jnp.einsum("ab,ac->bc", x, y, out_sharding=sharding))(x, x)
    check(jax.sharding.reshard(terms, NamedSharding(SUMS, P())), X.T @ X)


def test_terms_of_a_sum_in_a_loop():
    def program(x):
        def body(total, row):
            return total + jnp.einsum("ab,ac->bc", row, row, out_sharding=P(unreduced={"x"})), None

        zero = jax.sharding.reshard(jnp.zeros((4, 4)), P(unreduced={"x"}))
        return jax.sharding.reshard(lax.scan(body, zero, x)[0], P())

    with jax.set_mesh(SUMS):
        check(jax.jit(program)(put(X.reshape(2, 4, 4), SUMS, None, "x")), X.T @ X)


def test_loops_read_sharded_values_from_outside():
    with jax.set_mesh(SUMS):
        got = jax.jit(lambda x: lax.map(lambda row: row * 2 + x[0], x))(put(X, SUMS, None, "y"))
    check(got, X * 2 + X[0])


def test_collectives_that_end_later():
    from jax._src.lax import parallel

    def program(x):
        start = parallel.psum_start(x, "x")
        return x * 2 + start.done()

    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,))
    parts = X.reshape(4, 2, 4)
    with jax.set_mesh(mesh):
        got = jax.jit(jax.shard_map(program, out_specs=P("x")))(put(X, mesh, "x"))
    check(got, (parts * 2 + parts.sum(0)).reshape(8, 4))


def test_inverses_of_shards():
    x = np.random.default_rng(2).normal(size=(8, 3, 3)).astype(np.float32)
    with jax.set_mesh(jax.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,))):
        sharded = jax.device_put(x, P("x"))
        got = jax.jit(jax.shard_map(lambda x: lax.map(jnp.linalg.inv, x), out_specs=P("x")))(sharded)
    np.testing.assert_allclose(got, np.linalg.inv(x), rtol=1e-3, atol=1e-4)


def test_functions_with_a_partitioning_of_their_own():
    from jax.experimental.custom_partitioning import custom_partitioning

    @custom_partitioning
    def function(x):
        return jnp.sin(x) + x.sum()

    def partition(mesh, arguments, result):
        return mesh, lambda x: jnp.sin(x), result.sharding, tuple(each.sharding for each in arguments)

    function.def_partition(partition=partition, sharding_rule="i j -> i j")
    check(jax.jit(function)(put(X, LINE, "x")), np.sin(X) + X.sum())


def test_shards_that_are_alike():
    from jax.experimental.shard_alike import shard_alike

    x, y = put(X, GRID, "x", "y"), X + 1
    for got, expected in zip(jax.jit(lambda x, y: shard_alike(x * 2, y))(x, y), (X * 2, y), strict=True):
        check(got, expected)


def test_results_that_are_left_open_are_divided_as_their_arguments():
    x = put(X, GRID, "x", "y")
    for function in (lambda x: x * 2 + 1, lambda x: jnp.where(x > 3, x, 0), lambda x: 1 - x):
        got = jax.jit(function)(x)
        assert got.sharding.is_equivalent_to(x.sharding, 2)
        check(got, np.asarray(function(X)))
        for shard in got.addressable_shards:
            check(shard.data, np.asarray(function(X))[shard.index])


def test_the_text_is_the_program_of_one_device():
    compiled = jax.jit(lambda x: x.sum(0)).lower(put(X, LINE, "x")).compile()
    text = compiled.as_text()
    assert "f32[2,4]" in text and "f32[8,4]" not in text and text.count("all-reduce(") == 1
    assert compiled.memory_analysis().argument_size_in_bytes == X.nbytes // 4
    local = mapped(lambda x: lax.ppermute(x, "x", [(0, 1)]), LINE, P("x"), P("x")).lower(put(X, LINE, "x")).compile()
    assert "collective-permute(" in local.as_text()


def spec_of(x):
    return x.sharding.spec if isinstance(x.sharding, NamedSharding) else x.sharding


def test_open_shardings_follow_from_others():
    x = put(X, GRID, "x", "y")
    got = jax.jit(lambda x: (jnp.sin(x), x.T, x.sum(0), x.sum(), x @ x.T, jnp.sort(x, axis=1)))(x)
    assert [spec_of(x) for x in got] == [P("x", "y"), P("y", "x"), P("y"), P(), P("x"), P("x", "y")]
    for value, expected in zip(got, (np.sin(X), X.T, X.sum(0), X.sum(), X @ X.T, np.sort(X, 1))):
        check(value, expected)
        for shard in value.addressable_shards:
            check(shard.data, expected[shard.index])


def test_shardings_of_loops_and_calls():
    x = put(X, GRID, None, "y")
    inner = jax.jit(lambda c, row: (jnp.sin(c) + row, c * 2))
    last, rows = jax.jit(lambda x: lax.scan(inner, x[0], x))(x)
    expected, c = [], X[0]
    for row in X:
        expected.append(c * 2)
        c = np.sin(c) + row
    assert spec_of(last) == P("y") and spec_of(rows) == P(None, "y")
    check(last, c)
    check(rows, np.stack(expected))


def test_dims_that_axes_do_not_divide():
    x = put(np.ones((8, 3), np.float32), GRID, "x", None)
    check(jax.jit(lambda x: x[:5].sum(1))(x), np.full(5, 3))
    check(jax.jit(lambda x: jnp.concatenate([x, x[:1]]))(x), np.ones((9, 3)))


def test_shardings_are_inspected():
    seen = []

    @jax.jit
    def function(x):
        jax.debug.inspect_array_sharding(x, callback=seen.append)
        jax.debug.inspect_array_sharding(jnp.sin(x).T, callback=seen.append)
        jax.shard_map(inside, mesh=GRID, in_specs=P("x"), out_specs=P("x"))(x)
        return x + 1

    def inside(x):
        jax.debug.inspect_array_sharding(x, callback=seen.append)
        return x

    check(function(put(X, GRID, "x", "y")), X + 1)
    assert [sharding.spec for sharding in seen] == [P("x", "y"), P("y", "x"), P()]
    assert all(len(sharding.device_set) == 4 for sharding in seen)


@pytest.mark.parametrize("device", [None, 0, 3])
@pytest.mark.parametrize("ordered", [False, True])
def test_callbacks_run_on_one_device(device, ordered):
    seen = []

    def note(x):
        seen.append(np.asarray(x).copy())
        return np.asarray(x) * 2, np.asarray(x).sum()

    sharding = None if device is None else jax.sharding.SingleDeviceSharding(jax.devices()[device])
    likes = jax.ShapeDtypeStruct(X.shape, X.dtype), jax.ShapeDtypeStruct((), X.dtype)

    @jax.jit
    def function(x):
        twice, total = io_callback(note, likes, x + 1, sharding=sharding, ordered=ordered)
        io_callback(lambda x: seen.append(np.asarray(x).copy()), None, total, sharding=sharding, ordered=ordered)
        return twice + total

    for _ in range(3):
        check(function(put(X, GRID, "x", "y")), (X + 1) * 2 + (X + 1).sum())
    jax.effects_barrier()
    assert len(seen) == 6
    for value in seen:
        check(value, X + 1 if value.ndim else (X + 1).sum())


def test_a_pure_callback_runs_on_one_device():
    seen = []

    def turn(x):
        seen.append(1)
        return np.asarray(x).T.copy()

    function = jax.jit(lambda x: jax.pure_callback(turn, jax.ShapeDtypeStruct(X.T.shape, X.dtype), x) + 1)
    check(function(put(X, LINE, "x")), X.T + 1)
    assert len(seen) == 1


@pytest.mark.parametrize("device", [0, 2])
def test_a_failure_of_one_device_is_that_of_all(device):
    def fail(x):
        raise ValueError("no such row")

    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[device])
    function = jax.jit(lambda x: io_callback(fail, jax.ShapeDtypeStruct(X.shape, X.dtype), x, sharding=sharding) + 1)
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match="no such row"):
            jax.block_until_ready(function(put(X, LINE, "x")))
    check(jax.jit(lambda x: x + 1)(put(X, LINE, "x")), X + 1)


DIVIDED = {
    "elementwise": lambda x: jnp.where(x > 3, jnp.sin(x), -x) * 2,
    "sums": lambda x: (x.sum(), x.sum(0), x.sum(1), x.mean(), jnp.cumsum(x, 0)),
    "extrema": lambda x: (x.max(), x.min(0), x.max(1), jnp.argmax(x, 0), jnp.argmin(x, 1)),
    "flags": lambda x: ((x > 3).any(0), (x > 3).all(), (x > 100).any(1)),
    "products": lambda x: (x @ x.T, x.T @ x, jnp.einsum("ab,ac->bc", x, x + 1), (x % 3 + 1).prod(0)),
    "shapes": lambda x: (x.reshape(4, 8), x.reshape(-1), x.T, x[None], x.reshape(2, 2, 2, 4), x.reshape(16, 2).T),
    "slices": lambda x: (x[2:6], x[:, 1:3], x[::2], lax.dynamic_slice(x, (3, 0), (2, 4)), x[3], jnp.flip(x, 0)),
    "updates": lambda x: (x.at[2].set(0), x.at[:, 1].add(5), x.at[jnp.array([1, 1, 6])].add(1), jnp.pad(x, 1)),
    "sorts": lambda x: (jnp.sort(-x, 0), jnp.sort(-x, 1), jnp.argsort(-x, 0)),
    "iotas": lambda x: (x + jnp.arange(8.0)[:, None], x * lax.iota(jnp.int32, 4), jnp.eye(8, 4, dtype=x.dtype) + x),
    "constants": lambda x: (x + np.arange(32.0, dtype=np.float32).reshape(8, 4), jnp.full((8, 4), 2.0) + x),
    "joins": lambda x: (jnp.concatenate([x, x + 1]), jnp.concatenate([x, x], 1), jnp.stack([x, -x])),
    "loops": lambda x: lax.fori_loop(0, 3, lambda i, c: c + c.sum(0) * i, x),
    "scans": lambda x: lax.scan(lambda c, row: (c + row, c), x[0], x),
    "branches": lambda x: lax.cond(x.sum() > 3, lambda x: x * 2, lambda x: x.T.reshape(8, 4), x),
    "random": lambda x: jax.random.normal(jax.random.key(3), x.shape) + x,
    "softmax": lambda x: (jax.nn.softmax(x, 0), jax.nn.logsumexp(x, 1), jax.grad(lambda x: jnp.tanh(x).sum() ** 2)(x)),
    "segments": lambda x: jax.ops.segment_sum(x, jnp.array([0, 2, 2, 1, 0, 3, 3, 3]), 4),
    "complex": lambda x: (jnp.abs(x * 1j + 2), jnp.fft.fft(x, axis=0).real),
    "complex constants": lambda x: (x * (2 + 1j), jnp.conj(x * 1j).sum(0), x.at[2].add(1) * jnp.array([1, 2j, 3, 4j])),
    "transforms": lambda x: (jnp.fft.fft(x), jnp.fft.irfft(x, 8), jnp.flip(x, 1),
                             lax.pad(x, np.float32(7), [(0, 0, 1), (1, 2, 0)])),
    "cumulative": lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x % 3, 1), lax.cummax(x, 1, reverse=True),
                             lax.cumlogsumexp(x)),
    "gathers": lambda x: (x[jnp.array([1, 1, 6])], x[:, jnp.array([3, 0])], x[jnp.arange(8), jnp.arange(8) % 4],
                          jnp.take_along_axis(x, jnp.array(X % 4, int), 1), jax.vmap(lambda row, i: row[i % 4])(x, I),
                          jax.vmap(lambda row, i: lax.dynamic_slice(row, (i,), (2,)))(x, I),
                          x[(x[:, 1] % 8).astype(int)], x[:, (x[0] % 4).astype(int)]),
    "scatters": lambda x: (x.at[:, jnp.array([3, 0])].set(7), x.at[I, I % 4].mul(2),
                           x.at[(x[:, 1] % 8).astype(int)].add(x),
                           jax.vmap(lambda row, i: row.at[i % 4].set(9))(x, I), x.at[:, 2].set(x[:, 1]),
                           jax.vmap(lambda row, i: row.at[i].min(-5, mode="drop"))(x, I), x.at[100].set(3)),
    "batches": lambda x: batched(x[:, :, None] * jnp.eye(4) + jnp.eye(4) + 0.1, x),
}
I = jnp.array([0, 3, 2, 5, 1, 7, 2, 4])


def batched(a, b):
    """Decompositions of a batch of matrices, whose results are unique."""
    lu, pivots, permutation = lax.linalg.lu(a)
    values = jnp.linalg.eigvalsh(a), jnp.linalg.svd(a, compute_uv=False), abs(jnp.linalg.qr(a)[1])
    solved = jnp.linalg.solve(a, b[..., None]), lax.linalg.tridiagonal_solve(b * 0.1, b + 9, b * 0.2, b[..., None])
    return (lu, pivots, permutation, *values, *solved, jnp.linalg.cholesky(a), jnp.linalg.cholesky(a + 0j))


def test_batches_are_not_gathered(caplog):
    caplog.set_level(logging.DEBUG, "headrace_jax._partition")
    x = np.eye(4) + np.arange(8.0)[:, None, None]
    functions = (lambda x: batched(x @ x.swapaxes(1, 2), x[:, 0]), jax.grad(lambda x: jnp.linalg.svd(x)[1].sum()),
                 lambda x: jnp.linalg.eigh(x + 0j)[1])
    for function in functions:
        text = jax.jit(function).lower(put(x, LINE, "x")).compile().as_text()
        assert "custom-call" in text and "all-" not in text
    assert not [record for record in caplog.records if record.name == "headrace_jax._partition"]


SPECS = [("x",), (None, "y"), ("x", "y"), ("y", "x"), (("x", "y"),), (None, ("y", "x"))]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("name", DIVIDED)
def test_devices_compute_their_parts(name, spec):
    expected = jax.tree.leaves(jax.jit(DIVIDED[name])(X))
    got = jax.tree.leaves(jax.jit(DIVIDED[name])(put(X, GRID, *spec)))
    for value, whole in zip(got, expected, strict=True):
        for shard in value.addressable_shards:
            np.testing.assert_allclose(np.asarray(shard.data), np.asarray(whole)[shard.index], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.float16, np.float64, np.bool_])
def test_parts_of_dtypes(dtype):
    x = (X % 5 - 1).astype(dtype)
    functions = (lambda x: x.sum(0), lambda x: x.max(0), lambda x: (x * x).min(), lambda x: x + x[0].max())
    for function in functions if dtype != np.bool_ else (lambda x: x.any(0), lambda x: x.all(1), lambda x: ~x):
        np.testing.assert_array_equal(np.asarray(jax.jit(function)(put(x, GRID, "x", "y"))), np.asarray(function(x)))


def test_infinities_and_nans_of_parts():
    x = X.copy()
    x[1, 2], x[5, 0], x[6, 3] = np.nan, np.inf, -np.inf
    for function in (jnp.max, jnp.min, jnp.sum, jnp.nanmax, lambda x: jnp.max(x, 0), lambda x: jnp.min(-x, 1)):
        got = jax.jit(function)(put(x, GRID, "x", "y"))
        np.testing.assert_array_equal(np.asarray(got), np.asarray(function(x)))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2])
def test_parts_of_short_floats(dtype):
    x = (X % 5 - 2).astype(dtype)
    for function in (jnp.max, jnp.min, jnp.prod, jnp.sum, lambda x: x.max(0), lambda x: x.sum(1)):
        got = jax.jit(function)(put(x, GRID, "x", "y"))
        np.testing.assert_array_equal(np.asarray(got), np.asarray(function(jnp.asarray(x))))


@pytest.mark.parametrize("dtype", [jnp.int2, jnp.uint2, jnp.int4, jnp.uint4])
def test_parts_of_short_integers(dtype):
    x = np.asarray(X % 3, np.int8)
    for function in (lambda x: x.astype(dtype) - 1, lambda x: x.astype(dtype) * x[0].astype(dtype)):
        expected = np.asarray(function(jnp.asarray(x)))
        np.testing.assert_array_equal(np.asarray(jax.jit(function)(put(x, LINE, "x"))), expected)
        manual = mapped(lambda x: x.astype(dtype) - 1, LINE, P("x"), P("x"))(put(x, LINE, "x"))
        np.testing.assert_array_equal(np.asarray(manual), np.asarray(jnp.asarray(x).astype(dtype) - 1))


@pytest.mark.parametrize("shape", [(8, 0), (0, 8), (0,), (4, 0, 2)])
def test_parts_without_elements(shape, caplog):
    caplog.set_level(logging.DEBUG, "headrace_jax._partition")
    x = np.zeros(shape, np.float32)
    twice = lambda x: jnp.concatenate([x, x])  # noqa: E731
    for function in (jnp.ravel, jnp.sum, lambda x: x.sum(0), twice, lambda x: jnp.sort(x, 0)):
        got = jax.jit(function)(put(x, LINE, "x"))
        np.testing.assert_array_equal(np.asarray(got), np.asarray(function(x)))
    assert not [record for record in caplog.records if record.name == "headrace_jax._partition"]


def test_a_sum_of_updates_keeps_negative_zeros():
    indices, updates = put(np.arange(8), LINE, "x"), put(-np.zeros(8, np.float32), LINE, "x")
    got = jax.jit(lambda x, i, u: x.at[i].add(u))(-np.zeros(16, np.float32), indices, updates)
    assert np.signbit(np.asarray(got)).all()


def test_terms_of_sums():
    explicit = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(explicit):
        x, y = jax.device_put(X, P(None, "x")), jax.device_put(X.T, P("x", None))
        made = jax.jit(lambda x, y: jnp.einsum("ab,bc->ac", x, y, out_sharding=P(None, None, unreduced={"x"})))(x, y)
        terms = {tuple(np.asarray(shard.data).ravel()) for shard in made.addressable_shards}
        assert terms == {tuple((X[:, k : k + 2] @ X.T[k : k + 2]).ravel()) for k in (0, 2)}
        check(jax.reshard(made, P()), X @ X.T)


@pytest.mark.parametrize("to", [np.int8, np.int32, np.float32])
def test_terms_of_integers_that_wrap(to):
    def convert(x, y):
        product = jnp.einsum("ab,bc->ac", x, y, out_sharding=P(unreduced={"x"}))
        return jax.reshard(product.astype(to), P())

    x = (X * 5).astype(np.int8)
    with jax.set_mesh(jax.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,))):
        got = jax.jit(convert)(jax.device_put(x, P(None, "x")), jax.device_put(x.T, P("x", None)))
    np.testing.assert_array_equal(np.asarray(got), (x @ x.T).astype(to))


def test_calls_in_loops_of_each_device(caplog):
    caplog.set_level(logging.DEBUG, "headrace_jax._partition")
    function = lambda x: lax.fori_loop(0, 3, lambda i, c: jax.jit(jnp.sin)(c) + i, x)  # noqa: E731
    check(mapped(lambda x: function(x) * 2, LINE, P("x"), P("x"))(put(X, LINE, "x")), function(X) * 2)
    assert not [record for record in caplog.records if record.name == "headrace_jax._partition"]


def test_terms_that_no_device_could_have_are_refused():
    writer, x = _parts.Writer.__new__(_parts.Writer), frozenset("x")
    value = _parts.Local(None, _parts.Parts(((),)), (8,))
    with pytest.raises(_parts.Unsupported, match="another operation than a sum"):
        writer.reshard(value, _parts.Parts(((),), x, "stablehlo.maximum"))
    value = _parts.Local(None, _parts.Parts(((),), x), (8,))
    with pytest.raises(_parts.Unsupported, match="along axes that divide"):
        writer.reshard(value, _parts.Parts((("x",),), x))


def test_partitioned_callbacks_have_parts():
    seen = []

    @jax.jit
    def function(x):
        jax.debug.callback(lambda x: seen.append(np.asarray(x).copy()), x * 2, partitioned=True)
        return x + 1

    check(function(put(X, GRID, "x", "y")), X + 1)
    jax.effects_barrier()
    expected = [X[i : i + 4, k : k + 2] * 2 for i in (0, 4) for k in (0, 2)]
    assert sorted(map(np.ndarray.tolist, seen)) == sorted(map(np.ndarray.tolist, expected))
