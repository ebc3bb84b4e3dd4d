"""Operations of JAX's programs with regions: reductions, windows, sorts, scatters, against JAX on the CPU or NumPy."""

import numpy as np
import pytest

import headrace as hr

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp, lax = jax.numpy, jax.lax

from test_stablehlo import check, run  # noqa: E402

INTEGERS = [np.int8, np.uint8, np.int16, np.uint32, np.int32]
FLOATS = [np.float16, np.float32]


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.random(shape) > 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 6, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.kind == "c" else x).astype(dtype)


def with_edges(shape, dtype, seed=0):
    """Small numbers, many of them equal, with NaN, -0 and -inf."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "biu":
        return numbers(shape, dtype, seed)
    x = rng.integers(-2, 3, shape).astype(np.float64)
    for share, edge in ((0.1, np.nan), (0.2, -0.0), (0.1, -np.inf)):
        x = np.where(rng.random(shape) < share, edge, x)
    return x.astype(dtype)


def tolerance_of(dtype):
    return 3e-2 if np.dtype(dtype) == np.float16 else 1e-5


def run_text(tmp_path, text, *arguments):
    """A program of StableHLO's text, of which JAX writes no such one."""
    from jax._src.lib import _jax

    path = tmp_path / "program.stablehlo"
    path.write_bytes(_jax.mlir.serialize_portable_artifact(text, "1.16.2", True))
    results = hr.Session(hr.open_model(str(path)))(**{f"arg{i}": hr.asarray(a) for i, a in enumerate(arguments)})
    results = results.values() if isinstance(results, dict) else results
    return [np.asarray(result) for result in (results if isinstance(results, (list, tuple)) else list(results))]


# ---- reductions ----

COMBINE = {
    "add": lax.add,
    "mul": lax.mul,
    "max": lax.max,
    "min": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
}


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64] + INTEGERS + FLOATS)
@pytest.mark.parametrize("name", COMBINE)
def test_reductions_by_one_operation(tmp_path, name, dtype):
    kind = np.dtype(dtype).kind
    if (
        (kind == "b" and name in ("add", "mul"))
        or (kind in "fc" and name in ("and", "or", "xor"))
        or (kind == "c" and name in ("max", "min"))
    ):
        pytest.skip("no such operation")
    for shape, axes in (
        ((3, 4, 5), (1,)),
        ((3, 4, 5), (0, 2)),
        ((7,), (0,)),
        ((3, 0, 2), (1,)),
        ((0, 3), (1,)),
        ((2,), ()),
    ):
        for first in (0, 1):
            check(
                tmp_path,
                lambda a: lax.reduce(a, np.asarray(first, dtype), lambda x, y: COMBINE[name](x, y), axes),
                numbers(shape, dtype),
                tolerance=tolerance_of(dtype),
            )


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_the_index_of_an_extreme(tmp_path, dtype):
    for shape, axis in (((3, 8, 5), 1), ((17,), 0), ((2, 1), 1)):
        check(
            tmp_path, lambda a: (jnp.argmax(a, axis), jnp.argmin(a, axis), jnp.max(a, axis)), with_edges(shape, dtype)
        )
    worst = np.full(5, -np.inf if np.dtype(dtype).kind == "f" else np.iinfo(dtype).min, dtype)
    check(tmp_path, lambda a: (jnp.argmax(a), jnp.argmin(a)), worst)


def larger_pair(x, y):
    first = x[0] >= y[0]
    return tuple(jnp.where(first, a, b) for a, b in zip(x, y))


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize(
    "shape, axes", [((3, 7, 5), (1,)), ((3, 6, 5), (0, 2)), ((1,), (0,)), ((3, 0), (1,)), ((0, 3), (1,))]
)
def test_reductions_by_any_region(tmp_path, shape, axes, dtype):
    x, places = numbers(shape, dtype), np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    start = (np.asarray(0, dtype), np.int32(-1))
    check(tmp_path, lambda a, i: lax.reduce((a, i), start, larger_pair, axes), x, places)


def test_reductions_keep_the_order_of_elements(tmp_path):
    """Linear functions, whose composition does not commute."""

    def then(f, g):
        return f[0] * g[0], f[1] * g[0] + g[1]

    for count in (1, 2, 3, 8, 13):
        a, b = numbers((count, 2), np.float32), numbers((count, 2), np.float32, 1)
        check(
            tmp_path, lambda a, b: lax.reduce((a, b), (np.float32(1), np.float32(0)), then, (0,)), a, b, tolerance=1e-5
        )


def test_a_map_is_its_region(tmp_path):
    text = """module { func.func public @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = "stablehlo.map"(%a, %b) <{dimensions = array<i64: 0, 1>}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %c = stablehlo.constant dense<2.0> : tensor<f32>
        %1 = stablehlo.multiply %x, %c : tensor<f32>
        %2 = stablehlo.subtract %1, %y : tensor<f32>
        stablehlo.return %2 : tensor<f32> }) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      return %0 : tensor<2x3xf32> } }"""
    a, b = numbers((2, 3), np.float32), numbers((2, 3), np.float32, 1)
    np.testing.assert_array_equal(run_text(tmp_path, text, a, b)[0], a * 2 - b)


def test_a_region_may_reshape_its_elements(tmp_path):
    text = """module { func.func public @main(%a: tensor<2x5xf32>) -> tensor<2xf32> {
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%a init: %c) across dimensions = [1] : (tensor<2x5xf32>, tensor<f32>) -> tensor<2xf32>
        reducer(%x: tensor<f32>, %y: tensor<f32>) {
          %1 = stablehlo.reshape %x : (tensor<f32>) -> tensor<f32>
          %2 = stablehlo.broadcast_in_dim %y, dims = [] : (tensor<f32>) -> tensor<f32>
          %3 = stablehlo.transpose %2, dims = [] : (tensor<f32>) -> tensor<f32>
          %4 = func.call @add(%1, %3) : (tensor<f32>, tensor<f32>) -> tensor<f32>
          stablehlo.return %4 : tensor<f32> }
      return %0 : tensor<2xf32> }
    func.func private @add(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.add %x, %y : tensor<f32>
      return %0 : tensor<f32> } }"""
    a = numbers((2, 5), np.float32)
    np.testing.assert_allclose(run_text(tmp_path, text, a)[0], a.sum(1), rtol=1e-6)


NARROW = {
    "sort": lambda a: jnp.sort(a, 1),
    "sum": lambda a: lax.reduce(a, np.zeros((), a.dtype), lambda x, y: x + y, (1,)),
    "any region": lambda a: lax.reduce(a, np.zeros((), a.dtype), lambda x, y: jnp.where(x > y, x, y), (1,)),
    "windows": lambda a: lax.reduce_window(
        a, np.zeros((), a.dtype), lambda x, y: jnp.where(x > y, x, y), (1, 2), (1, 1), "SAME"
    ),
    "index": lambda a: jnp.argmax(a, 1),
    "top_k": lambda a: lax.top_k(a, 3),
    "any scatter": lambda a: a.at[np.array([2, 1, 2])].apply(lambda x: x + x),
}


@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.bfloat16, jnp.int4])
@pytest.mark.parametrize("name", NARROW)
def test_regions_of_narrow_elements(tmp_path, name, dtype):
    if dtype is jnp.int4 and name == "top_k":
        pytest.skip("JAX's CPU backend refuses it")
    wide = np.int8 if dtype is jnp.int4 else np.float32
    x = np.random.default_rng(0).integers(-4, 4, (3, 7)).astype(wide)
    check(tmp_path, lambda a: jax.tree_util.tree_map(lambda v: v.astype(wide), NARROW[name](a.astype(dtype))), x)


# ---- sorts ----

SHAPES = [((3, 9), 1), ((17, 3), 0), ((2, 7, 3), 1), ((0, 3), 0), ((3, 0), 0), ((3, 1), 1)]


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64] + INTEGERS + FLOATS)
def test_sorts(tmp_path, dtype):
    for shape, axis in SHAPES:
        x = (
            with_edges(shape, dtype)
            if dtype is not np.complex64
            else with_edges(shape, np.float32) + with_edges(shape, np.float32, 1) * np.complex64(1j)
        )
        number = np.arange(x.size, dtype=np.int32).reshape(shape)
        check(tmp_path, lambda a: (jnp.sort(a, axis), jnp.argsort(a, axis), jnp.argsort(a, axis, descending=True)), x)
        check(tmp_path, lambda i, a, n: lax.sort((i, a, n), dimension=axis, num_keys=2), number % 3, x, number)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_the_largest_elements(tmp_path, dtype):
    check(tmp_path, lambda a: (lax.top_k(a, 3), lax.top_k(a, 7), lax.top_k(a, 0)), with_edges((4, 7), dtype))


def test_the_largest_elements_approximately(tmp_path):
    x = numbers((3, 40), np.float32)
    check(tmp_path, lambda a: (lax.approx_max_k(a, 4), lax.approx_min_k(a, 2, reduction_dimension=0)), x)


COMPARATORS = {
    # |x| < |y| and x != y: no key after the other, so that a network compares
    "network": (
        """%p = stablehlo.abs %x : tensor<i32> %q = stablehlo.abs %y : tensor<i32>
                   %l = stablehlo.compare LT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
                   %n = stablehlo.compare NE, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
                   %r = stablehlo.and %l, %n : tensor<i1>""",
        lambda x: np.abs(x),
    ),
    # the larger remainder first, then the smaller number, the second element in front
    "keys": (
        """%c = stablehlo.constant dense<3> : tensor<i32>
                %p = stablehlo.remainder %x, %c : tensor<i32> %q = stablehlo.remainder %y, %c : tensor<i32>
                %e = stablehlo.compare NE, %q, %p : (tensor<i32>, tensor<i32>) -> tensor<i1>
                %l = stablehlo.compare LT, %q, %p : (tensor<i32>, tensor<i32>) -> tensor<i1>
                %m = stablehlo.compare GT, %y, %x : (tensor<i32>, tensor<i32>) -> tensor<i1>
                %r = stablehlo.select %e, %l, %m : tensor<i1>, tensor<i1>""",
        lambda x: -np.fmod(x, 3) * 1000 + x,
    ),
}


@pytest.mark.parametrize("name", COMPARATORS)
@pytest.mark.parametrize("count, axis", [(1, 0), (2, 0), (5, 1), (16, 0), (33, 1)])
def test_sorts_by_any_comparator(tmp_path, name, count, axis):
    lines, order = COMPARATORS[name]
    shape = (count, 3) if axis == 0 else (2, count)
    of = "x".join(map(str, shape))
    text = f"""module {{ func.func public @main(%a: tensor<{of}xi32>, %b: tensor<{of}xi32>)
        -> (tensor<{of}xi32>, tensor<{of}xi32>) {{
      %0:2 = "stablehlo.sort"(%a, %b) <{{dimension = {axis} : i64, is_stable = true}}> ({{
        ^bb0(%x: tensor<i32>, %y: tensor<i32>, %v: tensor<i32>, %w: tensor<i32>):
        {lines}
        stablehlo.return %r : tensor<i1> }}) : (tensor<{of}xi32>, tensor<{of}xi32>) -> (tensor<{of}xi32>, tensor<{of}xi32>)
      return %0#0, %0#1 : tensor<{of}xi32>, tensor<{of}xi32> }} }}"""
    rng = np.random.default_rng(count)
    x, number = rng.integers(-9, 9, shape).astype(np.int32), np.arange(count * 6, dtype=np.int32)[
        : np.prod(shape)
    ].reshape(shape)
    places = np.argsort(order(x), axis, kind="stable")
    first, second = run_text(tmp_path, text, x, number)
    np.testing.assert_array_equal(first, np.take_along_axis(x, places, axis))
    np.testing.assert_array_equal(second, np.take_along_axis(number, places, axis))


# ---- windows ----

WINDOWS = {
    "same": dict(window_dimensions=(1, 3, 2), window_strides=(1, 2, 1), padding="SAME"),
    "valid": dict(window_dimensions=(1, 3, 2), window_strides=(1, 1, 1), padding="VALID"),
    "spread": dict(
        window_dimensions=(2, 2, 2),
        window_strides=(1, 1, 2),
        padding=((0, 1), (-1, 2), (3, 0)),
        window_dilation=(1, 2, 1),
        base_dilation=(1, 1, 2),
    ),
    "running": dict(window_dimensions=(1, 7, 1), window_strides=(1, 1, 1), padding=((0, 0), (6, 0), (0, 0))),
    "running back": dict(window_dimensions=(1, 7, 1), window_strides=(1, 1, 1), padding=((0, 0), (0, 6), (0, 0))),
    "long": dict(window_dimensions=(1, 1, 90), window_strides=(1, 1, 1), padding=((0, 0), (0, 0), (89, 88))),
    "whole": dict(window_dimensions=(2, 7, 5), window_strides=(2, 7, 5), padding="VALID"),
    "none": dict(window_dimensions=(1, 8, 1), window_strides=(1, 1, 1), padding="VALID"),
}


@pytest.mark.parametrize("dtype", [np.int8, np.uint32] + FLOATS)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(tmp_path, name, dtype):
    options, x = WINDOWS[name], numbers((2, 7, 5), dtype)
    is_float = np.dtype(dtype).kind == "f"
    least, most = (-np.inf, np.inf) if is_float else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    regions = [
        (COMBINE["add"], 0),
        (COMBINE["mul"], 1),
        (COMBINE["max"], least),
        (COMBINE["max"], 1),
        (COMBINE["min"], most),
        (lambda x, y: jnp.where(x > y, x, y), least),
    ]
    if name != "long" or not is_float:
        regions.append((lambda x, y: x + y + 0 * x, 0))
    for region, first in regions:
        check(
            tmp_path,
            lambda a: lax.reduce_window(a, np.asarray(first, dtype), lambda x, y: region(x, y), **options),
            x,
            tolerance=tolerance_of(dtype),
        )


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_flags_and_pairs(tmp_path, name):
    options, flags = WINDOWS[name], numbers((2, 7, 5), np.bool_)
    for combine, first in ((lax.bitwise_or, False), (lax.bitwise_and, True)):
        check(tmp_path, lambda a: lax.reduce_window(a, first, lambda x, y: combine(x, y), **options), flags)
    start = (np.float32(-np.inf), np.int32(-1))
    check(
        tmp_path,
        lambda a, b: lax.reduce_window((a, b), start, larger_pair, **options),
        numbers((2, 7, 5), np.float32),
        np.arange(70, dtype=np.int32).reshape(2, 7, 5),
    )


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [(1, 2, 2, 1), (1, 1, 1, 1), (1, 3, 1, 1)])
def test_gradients_of_pools(tmp_path, stride, padding):
    x = numbers((2, 7, 6, 3), np.float32)
    for combine, first in ((lax.max, -np.inf), (lax.min, np.inf), (lax.add, 0.0)):

        def pool(a):
            return lax.reduce_window(a, first, combine, (1, 3, 2, 1), stride, padding)

        check(tmp_path, lambda a: jax.vjp(pool, a)[1](pool(a) * 2 + 1), x, tolerance=1e-5)
        check(tmp_path, lambda a: jax.jvp(pool, (a,), (a * 2,)), x, tolerance=1e-5)


@pytest.mark.parametrize("window", [(1, 1, 2, 2), (2, 7, 6, 3), (1, 7, 1, 1), (1, 1, 4, 1)])
def test_gradients_of_pools_side_by_side(tmp_path, window):
    x = numbers((2, 7, 6, 3), np.float32).round(1)

    def pool(a):
        return lax.reduce_window(a, -np.inf, lax.max, window, window, "VALID")

    check(tmp_path, lambda a: jax.vjp(pool, a)[1](pool(a) * 2 + 1), x, tolerance=1e-6)


PLANES = {
    "tiles": ((2, 8, 6, 3), (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    "cut tiles": ((2, 7, 9, 3), (1, 2, 2, 1), (1, 3, 2, 1), "VALID"),
    "padded": ((2, 8, 9, 3), (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    "one side": ((2, 3, 8, 7), (1, 1, 2, 3), (1, 1, 1, 1), "SAME"),
    "front": ((8, 8, 2), (2, 2, 1), (1, 1, 1), ((1, 0), (0, 1), (0, 0))),
    "all padding": ((2, 1, 2), (1, 3, 1), (1, 2, 1), ((0, 0), (0, 2), (0, 0))),
    "space": ((2, 5, 6, 7, 2), (1, 2, 2, 2, 1), (1, 2, 1, 2, 1), "SAME"),
    "two leads": ((2, 2, 7, 6, 3), (1, 1, 2, 2, 1), (1, 1, 2, 2, 1), "SAME"),
    "no lead": ((6, 6), (2, 2), (2, 2), "VALID"),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", PLANES)
def test_gradients_of_planes(tmp_path, name, dtype):
    """Of equal elements the first one has the gradient; the pool and its gradient find it once."""
    shape, window, stride, padding = PLANES[name]
    x = numbers(shape, np.float32).round()
    if padding == "VALID":
        x = np.where(x < 0, np.float32(-np.inf), x)

    def program(a):
        a = a.astype(dtype)
        pooled, pull = jax.vjp(lambda a: lax.reduce_window(a, -np.inf, lax.max, window, stride, padding), a)
        gradients = pull(jnp.arange(pooled.size, dtype=dtype).reshape(pooled.shape) % 8 - 4)[0]
        return pooled.astype(np.float32), gradients.astype(np.float32)

    check(tmp_path, program, x)


def test_sums_of_negative_zeros_begin_with_zero(tmp_path):
    x = np.full((2, 3), -0.0, np.float32)
    for found in run(
        tmp_path,
        lambda a: (jnp.sum(a, 0), lax.cumsum(a, 1), lax.reduce_window(a, 0.0, lax.add, (1, 2), (1, 1), "SAME")),
        x,
    ):
        assert not np.signbit(found).any()


SELECTIONS = {
    "add": (lax.ge, lax.add, 2),
    "max": (lax.lt, lax.max, -3),
    "any": (lambda x, y: abs(x) <= abs(y), lambda x, y: x * 0.5 + y * y, 1),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_selected_elements_are_updated(tmp_path, name):
    from jax._src.lax.windowed_reductions import _select_and_scatter

    select, scatter, first = SELECTIONS[name]
    sides = ((0, 0), (1, 1), (0, 0), (0, 0))
    check(
        tmp_path,
        lambda a, s: _select_and_scatter(a, select, (1, 3, 2, 1), (1, 2, 2, 1), sides, s, np.float32(first), scatter),
        numbers((2, 7, 6, 3), np.float32),
        numbers((2, 4, 3, 3), np.float32, 1),
        tolerance=1e-5,
    )


# ---- scatters ----


def scatter_text(rows):
    """Pairs: x becomes x * 2 + u, and n becomes n * 10 + v."""
    return f"""module {{ func.func public @main(%a: tensor<5x3xf32>, %b: tensor<5x3xi32>, %i: tensor<{rows}x1xi32>,
        %u: tensor<{rows}x2x3xf32>, %v: tensor<{rows}x2x3xi32>) -> (tensor<5x3xf32>, tensor<5x3xi32>) {{
      %two = stablehlo.constant dense<2.0> : tensor<f32>
      %0:2 = "stablehlo.scatter"(%a, %b, %i, %u, %v) <{{indices_are_sorted = false, unique_indices = false,
        scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0],
        index_vector_dim = 1>}}> ({{
        ^bb0(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f32>, %m: tensor<i32>):
        %ten = stablehlo.constant dense<10> : tensor<i32>
        %1 = stablehlo.multiply %x, %two : tensor<f32> %2 = stablehlo.add %1, %y : tensor<f32>
        %3 = stablehlo.multiply %n, %ten : tensor<i32> %4 = stablehlo.add %3, %m : tensor<i32>
        stablehlo.return %2, %4 : tensor<f32>, tensor<i32> }}) : (tensor<5x3xf32>, tensor<5x3xi32>, tensor<{rows}x1xi32>,
        tensor<{rows}x2x3xf32>, tensor<{rows}x2x3xi32>) -> (tensor<5x3xf32>, tensor<5x3xi32>)
      return %0#0, %0#1 : tensor<5x3xf32>, tensor<5x3xi32> }} }}"""


@pytest.mark.parametrize("indices", [[1], [0, 1, 1, 3], [4, 2, -1, 2, 2, 9, 3], []])
def test_scatters_by_any_region_are_in_order(tmp_path, indices):
    rows = len(indices)
    x, n = numbers((5, 3), np.float32), numbers((5, 3), np.int32)
    u, v = numbers((rows, 2, 3), np.float32, 1), numbers((rows, 2, 3), np.int32, 1)
    first, second = x.copy(), n.copy()
    for row, at in enumerate(indices):
        if 0 <= at <= 3:  # windows of two rows that are inside
            first[at : at + 2] = first[at : at + 2] * 2 + u[row]
            second[at : at + 2] = second[at : at + 2] * 10 + v[row]
    places = np.array(indices, np.int32).reshape(rows, 1)
    found = run_text(tmp_path, scatter_text(rows), x, n, places, u, v)
    np.testing.assert_allclose(found[0], first, rtol=1e-6)
    np.testing.assert_array_equal(found[1], second)


def test_scatters_of_empty_arrays(tmp_path):
    none, places = np.zeros((0, 3), np.float32), np.zeros((0, 1), np.int32)
    check(
        tmp_path,
        lambda a, i: (a.at[i[:, 0]].add(1), a[i[:, 0]], jax.grad(lambda x: jnp.sort(x, 0).sum())(a)),
        none,
        places,
    )
