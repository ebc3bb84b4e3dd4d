"""Programs of JAX as graphs, against JAX's own results on the CPU. JAX is optional: without it nothing here runs."""

import numpy as np
import pytest

import headrace as hr

jax = pytest.importorskip("jax", reason="jax is not installed")
jnp, lax = jax.numpy, jax.lax

INTEGERS = [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32]
FLOATS = [np.float16, np.float32]


def artifact(function, *arguments):
    """The bytes that JAX gives a plug-in."""
    from jax._src.lib import _jax

    module = jax.jit(function, keep_unused=True).lower(*arguments).compiler_ir("stablehlo")
    return _jax.mlir.serialize_portable_artifact(str(module), "1.16.2", True)


def run(tmp_path, function, *arguments):
    path = tmp_path / "program.stablehlo"
    path.write_bytes(artifact(function, *arguments))
    graph = hr.open_model(str(path))
    names = [f"arg{i}" for i in range(len(arguments))]
    results = hr.Session(graph)(**dict(zip(names, map(hr.asarray, arguments))))
    results = results.values() if isinstance(results, dict) else results
    return [np.asarray(result) for result in results]


def check(tmp_path, function, *arguments, tolerance=0):
    expected = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    results = run(tmp_path, function, *arguments)
    assert len(results) == len(expected)
    for result, value in zip(results, expected):
        value = np.asarray(value)
        assert result.dtype == value.dtype and result.shape == value.shape
        if tolerance == 0:
            np.testing.assert_array_equal(result, value)
        else:
            np.testing.assert_allclose(result, value, rtol=tolerance, atol=tolerance)


def edges(dtype):
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 7, 31, 32, 100, info.max, info.max - 1, info.min, info.min + 1]
    values += [-1, -2, -3, -7, -100] if info.min < 0 else []
    x, y = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return x.ravel(), y.ravel()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "name",
    ["add", "sub", "mul", "div", "rem", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left",
     "shift_right_logical", "shift_right_arithmetic", "eq", "ne", "lt", "le", "gt", "ge"],
)
def test_integers_at_their_edges(tmp_path, name, dtype):
    x, y = edges(dtype)
    check(tmp_path, getattr(lax, name), x, y)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["neg", "sign", "abs", "bitwise_not", "population_count", "clz"])
def test_integers_alone(tmp_path, name, dtype):
    if name == "abs" and np.iinfo(dtype).min == 0:
        pytest.skip("unsigned")
    check(tmp_path, getattr(lax, name), edges(dtype)[0])


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 70.0, -70.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name",
    ["neg", "sign", "abs", "floor", "ceil", "is_finite", "exp", "expm1", "log", "log1p", "tanh", "sqrt", "rsqrt", "cbrt",
     "sin", "cos", "tan", "logistic", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf"],
)
def test_floats_alone(tmp_path, name, dtype):
    exact = name in ("neg", "sign", "abs", "floor", "ceil", "is_finite")
    tolerance = 0 if exact else 2e-3 if dtype is np.float16 else 3e-6
    check(tmp_path, getattr(lax, name), np.array(SPECIAL, dtype), tolerance=tolerance)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rem", "max", "min", "eq", "lt", "ge", "pow", "atan2"])
def test_floats_in_pairs(tmp_path, name, dtype):
    x, y = np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype))
    tolerance = (2e-3 if dtype is np.float16 else 3e-6) if name in ("pow", "atan2") else 0
    check(tmp_path, getattr(lax, name), x, y, tolerance=tolerance)


def test_floats_in_total_order(tmp_path):
    x, y = np.meshgrid(np.array(SPECIAL + [-np.nan], np.float32), np.array(SPECIAL + [-np.nan], np.float32))
    check(tmp_path, lambda a, b: (lax.lt_to_p.bind(a, b), lax.le_to_p.bind(a, b), lax.eq_to_p.bind(a, b)), x, y)


@pytest.mark.parametrize("to", INTEGERS + FLOATS + [np.bool_])
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_conversions_saturate(tmp_path, dtype, to):
    large = [1e9, -1e9, 1e10, -1e10, 2147483648.0, 255.0, 256.0, 127.5, -128.5, -129.0]
    x = edges(dtype)[0] if dtype in INTEGERS else np.array(SPECIAL + large).astype(dtype)
    if dtype in FLOATS and to in FLOATS:
        check(tmp_path, lambda a: lax.convert_element_type(a, to), x)
    else:
        check(tmp_path, lambda a: lax.convert_element_type(a, to), x)


def test_bits_of_other_sizes(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    check(tmp_path, lambda a: lax.bitcast_convert_type(a, np.int32), x)
    check(tmp_path, lambda a: lax.bitcast_convert_type(a, np.uint8), x)
    check(tmp_path, lambda a: lax.bitcast_convert_type(a, np.uint32), np.arange(8, dtype=np.uint16).reshape(2, 2, 2))


SHAPES = {
    "transpose": lambda a: a.transpose(2, 0, 1),
    "reshape": lambda a: a.reshape(4, -1),
    "broadcast": lambda a: lax.broadcast_in_dim(a, (2, 3, 5, 4), (0, 1, 3)),
    "slice": lambda a: lax.slice(a, (0, 1, 0), (2, 3, 4), (1, 1, 2)),
    "reverse": lambda a: lax.rev(a, (0, 2)),
    "concatenate": lambda a: jnp.concatenate([a, a * 2, a[:, :, :1]], 2),
    "iota": lambda a: a + lax.broadcasted_iota(jnp.float32, a.shape, 1),
    "pad": lambda a: lax.pad(a, 7.0, ((1, 2, 1), (-1, 0, 2), (0, -2, 0))),
    "pad with zero": lambda a: lax.pad(a, 0.0, ((1, 2, 1), (-1, 0, 2), (0, -2, 0))),
    "clamp": lambda a: lax.clamp(-1.0, a, 2.0),
    "select": lambda a: jnp.where(a > 0, a, -2),
    "reduce_precision": lambda a: lax.reduce_precision(a * 1.2345, 8, 7),
    "constants": lambda a: a + np.arange(24, dtype=np.float32).reshape(2, 3, 4) * np.array([True, False, True, True]),
    "complex": lambda a: jnp.abs(lax.complex(a, a + 1) * lax.complex(a, 2 * a)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(tmp_path, name):
    check(tmp_path, SHAPES[name], np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 9, tolerance=1e-6)


def test_an_empty_array(tmp_path):
    check(tmp_path, lambda a: jnp.concatenate([a * 2, jnp.ones((1, 3))]), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bjk->bik", "ij,ij->", "ijk,jkl->il", "bi,bj->bij", "abc,dcb->da"])
def test_products(tmp_path, equation):
    sizes = dict(zip("abcdijkl", (2, 3, 4, 5, 3, 4, 5, 2)))
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal([sizes[c] for c in part]).astype(np.float32)
                for part in equation.split("->")[0].split(",")]
    check(tmp_path, lambda x, y: jnp.einsum(equation, x, y), *operands, tolerance=1e-5)


CONVOLUTIONS = {
    "plain": dict(window_strides=(1, 1), padding="SAME"),
    "asymmetric": dict(window_strides=(2, 2), padding=((0, 1), (1, 0))),
    "dilated": dict(window_strides=(1, 1), padding="VALID", rhs_dilation=(2, 1)),
    "spread": dict(window_strides=(1, 1), padding=((2, 1), (1, 2)), lhs_dilation=(2, 3)),
    "grouped": dict(window_strides=(1, 2), padding="SAME", feature_group_count=2),
}


@pytest.mark.parametrize("layout", [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("CHWN", "IHWO", "NHWC")])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_and_their_gradients(tmp_path, name, layout):
    options = CONVOLUTIONS[name]
    groups = options.get("feature_group_count", 1)
    rng = np.random.default_rng(1)
    sizes = [dict(N=2, C=4, H=7, W=6), dict(O=6, I=4 // groups, H=3, W=2)]
    x, w = (rng.standard_normal([s[c] for c in part]).astype(np.float32) for s, part in zip(sizes, layout))

    def convolve(x, w):
        return lax.conv_general_dilated(x, w, dimension_numbers=layout, **options)

    check(tmp_path, convolve, x, w, tolerance=1e-5)
    seed = np.asarray(convolve(x, w)) * 0 + 0.5
    check(tmp_path, lambda x, w, s: jax.vjp(convolve, x, w)[1](s), x, w, seed, tolerance=1e-5)


def test_negative_padding_of_a_convolution_crops(tmp_path):
    """JAX 0.10.2's CPU backend reads wrong elements for such a program, so a crop by `lax.pad` gives the values."""
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(dims).astype(np.float32) for dims in ((2, 4, 7, 6), (6, 4, 3, 2)))
    (result,) = run(tmp_path, lambda x, w: lax.conv_general_dilated(x, w, (1, 1), ((-1, 1), (0, -1))), x, w)
    cropped = lax.pad(x, np.float32(0), ((0, 0, 0), (0, 0, 0), (-1, 1, 0), (0, -1, 0)))
    np.testing.assert_allclose(result, lax.conv(cropped, w, (1, 1), "VALID"), rtol=1e-5, atol=1e-5)


CONTROL = {
    "while": lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * x + 1), (0, x)),
    "fori": lambda x: lax.fori_loop(0, 4, lambda i, s: s + x * i, x),
    "while by data": lambda x: lax.while_loop(lambda s: s[0] < 40, lambda s: s * 2 + 1, x),
    "cond": lambda x: lax.cond(x[0] > 0, lambda y: y + x, lambda y: y * 3, x),
    "switch": lambda x: [lax.switch(x[0].astype(int) + k, [lambda y, n=n: y * n + x for n in range(5)], x)
                         for k in (-9, 0, 1, 2, 3, 9)],
    "nested": lambda x: lax.fori_loop(0, 3, lambda i, s: lax.cond(i > 1, lambda t: t + x, lambda t: t - i, s), x),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(tmp_path, name):
    check(tmp_path, CONTROL[name], np.array([1, 2, 3], np.float32), tolerance=1e-6)


def test_random_bits_are_those_of_jax(tmp_path):
    key = np.array([7, 9], np.uint32)
    check(tmp_path, lambda k: jax.random.bits(jax.random.wrap_key_data(k), (3, 5)), key)


A = np.arange(60, dtype=np.float32).reshape(3, 4, 5) - 20
ROWS = np.array([2, 0, 9, -1, 2, -9, 3], np.int32)

READS = {
    "take": lambda a, i: a[i],
    "take clamped": lambda a, i: jnp.take(a, i, axis=1, mode="clip"),
    "two axes": lambda a, i: a[i[:, None], :, i],
    "behind": lambda a, i: a[:, i, i],
    "batches": lambda a, i: jax.vmap(lambda x, k: x[k])(a, i[:3]),
    "windows": lambda a, i: jax.vmap(lambda k: lax.dynamic_slice(a, (0, k, k), (2, 3, 2)))(i),
    "slice": lambda a, i: lax.dynamic_slice(a, (i[0], i[1], i[3]), (2, 3, 1)),
    "bounded slice": lambda a, i: lax.dynamic_slice(a, (i[5], i[2], i[2]), (1, 2, 5)),
    "row": lambda a, i: lax.dynamic_index_in_dim(a, i[0], 1),
    "unsigned": lambda a, i: a[i.astype(np.uint8)],
}


@pytest.mark.parametrize("name", READS)
def test_slices_are_read(tmp_path, name):
    check(tmp_path, READS[name], A, ROWS)


WRITES = {
    "set": lambda a, i: a.at[i[:2]].set(7),
    "add": lambda a, i: a.at[i].add(a[i] * 2),
    "multiply": lambda a, i: a.at[:, i].multiply(3),
    "min": lambda a, i: a.at[i, i].min(-5),
    "max": lambda a, i: a.at[:, :, i].max(0),
    "dropped": lambda a, i: a.at[i].add(1, mode="drop"),
    "clamped": lambda a, i: a.at[i].add(1, mode="clip"),
    "batches": lambda a, i: jax.vmap(lambda x, k: x.at[k].add(1))(a, i[:3]),
    "update": lambda a, i: lax.dynamic_update_slice(a, a[:2, :2, :3] * 0, (i[0], i[1], i[3])),
    "row": lambda a, i: lax.dynamic_update_index_in_dim(a, a[0] * 2, i[2], 0),
    "any region": lambda a, i: a.at[i[:2]].apply(lambda x: x * x + 1, unique_indices=True),
    "windows": lambda a, i: jax.grad(lambda x: (jax.vmap(lambda k: lax.dynamic_slice(x, (0, k, k), (2, 3, 2)))(i)
                                               * jnp.arange(7.0)[:, None, None, None]).sum())(a),
}


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint32])
@pytest.mark.parametrize("name", WRITES)
def test_slices_are_written(tmp_path, name, dtype):
    if name in ("gradient", "windows") and dtype is not np.float32:
        pytest.skip("no gradient")
    check(tmp_path, WRITES[name], A.astype(dtype), ROWS)


@pytest.mark.parametrize("mode", ["set", "min", "max"])
def test_flags_are_written(tmp_path, mode):
    check(tmp_path, lambda a, i: getattr(a.at[i], mode)(a[:1] == 0), A > 4, ROWS)


@pytest.mark.parametrize("mode", ["set", "add", "multiply"])
def test_complex_numbers_are_written(tmp_path, mode):
    check(tmp_path, lambda a, i: getattr(a.at[i], mode)(2 + 1j), A * np.complex64(1 + 1j), ROWS, tolerance=1e-6)


def test_empty_slices(tmp_path):
    none = np.zeros(0, np.int32)
    check(tmp_path, lambda a, i: (a[i], a.at[i].add(1), a[:, i], lax.dynamic_slice(a, (1, 0, 2), (0, 4, 5))), A, none)
