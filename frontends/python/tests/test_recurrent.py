"""Recurrent layers and cells against a loop in NumPy, PyTorch, and differences."""

import numpy as np
import pytest

import headrace as hr

torch = pytest.importorskip("torch")
rng = np.random.default_rng(11)
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
ACTIVATIONS = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "softsign": lambda x: x / (1 + abs(x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "linear": lambda x: x,
}


def sample(*shape):
    return rng.uniform(-1, 1, shape)


def arguments(kind, *lead, steps=5, inputs=3, hidden=4):
    """Names and arrays of all float inputs."""
    rows = GATES[kind] * hidden
    given = {"x": sample(*lead, steps, inputs), "weight": sample(rows, inputs), "recurrent": sample(rows, hidden),
             "bias": sample(rows), "hidden": sample(*lead, hidden)}  # fmt: skip
    if kind == "gru":
        given["recurrent_bias"] = sample(rows)
    if kind == "lstm":
        given |= {"cell": sample(*lead, hidden), "peepholes": sample(3 * hidden)}
    return given


def expected(kind, x, weight, recurrent, bias=0.0, recurrent_bias=0.0, hidden=None, cell=None, peepholes=None,
             lengths=None, gate="sigmoid", activation="tanh", output_activation="tanh", reverse=False,
             reset_before=False, coupled=False, clip=0):
    """Lists of h and c of all steps, by the formulas."""
    size = recurrent.shape[1]
    h = np.zeros((*x.shape[:-2], size)) if hidden is None else hidden
    c = np.zeros_like(h) if cell is None else cell
    bound = (lambda s: np.clip(s, -clip, clip)) if clip else (lambda s: s)
    g, a, out = (ACTIVATIONS[word] for word in (gate, activation, output_activation))
    recurrent_bias = np.zeros(recurrent.shape[0]) + recurrent_bias
    steps = [None] * x.shape[-2]
    for t in reversed(range(len(steps))) if reverse else range(len(steps)):
        s = x[..., t, :] @ weight.T + bias
        old = h, c
        if kind == "rnn":
            h = a(bound(s + h @ recurrent.T))
        elif kind == "gru":
            sr, sz, sn = np.split(s, 3, -1)
            wr, wz, wn = np.split(recurrent, 3)
            br, bz, bn = np.split(recurrent_bias, 3)
            r, z = g(bound(sr + h @ wr.T + br)), g(bound(sz + h @ wz.T + bz))
            n = a(bound(sn + ((r * h) @ wn.T + bn if reset_before else r * (h @ wn.T + bn))))
            h = (1 - z) * n + z * h
        else:
            i, f, n, o = np.split(s + h @ recurrent.T, 4, -1)
            pi, pf, po = (0, 0, 0) if peepholes is None else np.split(peepholes, 3)
            i = g(bound(i + pi * c))
            f = 1 - i if coupled else g(bound(f + pf * c))
            c = f * c + i * a(bound(n))
            h = g(bound(o + po * c)) * out(c)
        if lengths is not None:
            runs = (np.asarray(lengths) > t)[..., None]
            h, c = np.where(runs, h, old[0]), np.where(runs, c, old[1])
        steps[t] = h, c
    return [np.stack(x, -2) for x in zip(*steps)][: 2 if kind == "lstm" else 1]


def call(kind, given, **options):
    arrays = {name: hr.array(x) for name, x in given.items()}
    result = getattr(hr, kind)(**arrays, **options)
    return list(result) if isinstance(result, tuple) else [result]


def check(kind, given, rtol=1e-10, **options):
    actual, value = call(kind, given, **options), expected(kind, **given, **options)
    assert len(actual) == len(value)
    for a, v in zip(actual, value):
        np.testing.assert_allclose(np.asarray(a), v, rtol, 1e-12)


def without(given, *names):
    return {name: x for name, x in given.items() if name not in names}


# ---- results


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (0,)])
def test_layers(kind, reverse, lead):
    given = without(arguments(kind, *lead), "peepholes")
    check(kind, given, reverse=reverse)
    check(kind, without(given, "hidden"), reverse=reverse)
    check(kind, without(given, "bias", "recurrent_bias", "hidden", "cell"), reverse=reverse)


@pytest.mark.parametrize("kind", GATES)
def test_lengths(kind):
    given = arguments(kind, 4) | {"lengths": np.array([5, 2, 0, 3])}
    for reverse in (False, True):
        check(kind, given, reverse=reverse)
        check(kind, without(given, "hidden", "peepholes"), reverse=reverse)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("word", ACTIVATIONS)
def test_activations(kind, word):
    given = arguments(kind, 2)
    check(kind, given, activation=word)
    if kind != "rnn":
        check(kind, given, gate=word, activation="relu", clip=0.75)
    if kind == "lstm":
        check(kind, given, output_activation=word)


def test_other_formulas():
    for reverse in (False, True):
        given = arguments("gru", 2)
        check("gru", given, reset_before=True, reverse=reverse)
        check("gru", without(given, "recurrent_bias"), reset_before=True, clip=0.5)
        given = arguments("lstm", 2)
        check("lstm", given, reverse=reverse)
        check("lstm", given, coupled=True, reverse=reverse)
        check("lstm", without(given, "peepholes"), clip=0.25, coupled=True)
    check("rnn", arguments("rnn", 2), clip=0.5)


@pytest.mark.parametrize("kind", GATES)
def test_cells_are_layers_of_one_step(kind):
    given = arguments(kind, 2, 3, steps=1)
    value = expected(kind, **given)
    given["x"] = given["x"][..., 0, :]
    for a, v in zip(call(f"{kind}_cell", given), value):
        np.testing.assert_allclose(np.asarray(a), v[..., 0, :], 1e-10)


@pytest.mark.parametrize("kind", GATES)
def test_views_and_orders_of_memory(kind):
    given = without(arguments(kind, 6, steps=10, inputs=6), "peepholes")
    x = hr.array(given["x"])
    by_steps = hr.moveaxis(hr.moveaxis(x, 0, 1) + 0, 0, 1)  # memory of [T, N, I]
    arrays = {name: hr.array(value) for name, value in given.items()}
    first = np.asarray(getattr(hr, kind)(**arrays | {"x": by_steps})[0 if kind == "lstm" else ...])
    np.testing.assert_allclose(first, expected(kind, **given)[0], 1e-10)
    sliced = given | {"x": given["x"][::-2, 1::3, ::2], "weight": given["weight"][:, ::2]}
    sliced["hidden"] = given["hidden"][:3]
    if kind == "lstm":
        sliced["cell"] = given["cell"][::-2]
    views = arrays | {"x": x[::-2, 1::3, ::2], "weight": arrays["weight"][:, ::2], "hidden": arrays["hidden"][:3]}
    if kind == "lstm":
        views["cell"] = arrays["cell"][::-2]
    actual = getattr(hr, kind)(**views)
    np.testing.assert_allclose(np.asarray(actual[0] if kind == "lstm" else actual), expected(kind, **sliced)[0], 1e-10)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes(kind, dtype):
    given = arguments(kind, 2)
    arrays = {name: hr.array(x).astype(dtype) for name, x in given.items()}
    result = getattr(hr, kind)(**arrays)
    result = result[0] if kind == "lstm" else result
    assert str(result.dtype) == dtype
    tolerance = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(np.asarray(result.astype(hr.float64)), expected(kind, **given)[0], tolerance, tolerance)
    mixed = getattr(hr, kind)(**arrays | {"x": arrays["x"].astype(hr.float64)})
    assert (mixed[0] if kind == "lstm" else mixed).dtype == hr.float64


# ---- gradients


OPTIONS = {
    "rnn": [{}, {"reverse": True}, {"activation": "sigmoid", "clip": 0.9}],
    "gru": [{}, {"reverse": True}, {"reset_before": True}],
    "lstm": [{}, {"reverse": True}, {"coupled": True}],
}
PEEPHOLES = {"lstm": [False, True]}
CASES = [(kind, i, peepholes) for kind in GATES for i in range(3) for peepholes in PEEPHOLES.get(kind, [False])]


@pytest.mark.parametrize(("kind", "option", "peepholes"), CASES)
def test_gradients_of_all_inputs(kind, option, peepholes):
    given = arguments(kind, 2, steps=3, inputs=2, hidden=2)
    given = given if peepholes else without(given, "peepholes")
    names, options = list(given), OPTIONS[kind][option]

    def f(*arrays):
        y = getattr(hr, kind)(**dict(zip(names, arrays)), **options)
        return sum((v * (i + 1.5) * v).sum() for i, v in enumerate(y if isinstance(y, tuple) else [y]))

    arrays = [hr.array(x) for x in given.values()]
    gradients = hr.grad(f, argnums=tuple(range(len(names))))(*arrays)
    along = [sample(*x.shape) for x in given.values()]
    step = 1e-6
    ends = [f(*[hr.array(x + sign * step * v) for x, v in zip(given.values(), along)]).item() for sign in (1, -1)]
    product = sum((np.asarray(g) * v).sum() for g, v in zip(gradients, along))
    np.testing.assert_allclose(product, (ends[0] - ends[1]) / (2 * step), 1e-6)
    tangent = hr.jvp(f, arrays, [hr.array(v) for v in along])[1][0]
    np.testing.assert_allclose(tangent.item(), product, 1e-9)


@pytest.mark.parametrize("kind", GATES)
def test_second_order(kind):
    given = without(arguments(kind, 2, steps=2, inputs=2, hidden=2), "peepholes", "cell")
    others = {name: hr.array(x) for name, x in given.items() if name != "x"}

    def f(x):
        y = getattr(hr, kind)(x, **others)
        return ((y[1] if kind == "lstm" else y) ** 2).sum()

    def squares(x):
        return (hr.grad(f)(x) ** 2).sum()

    x, v, step = given["x"], sample(*given["x"].shape), 1e-6
    product = (np.asarray(hr.grad(squares)(hr.array(x))) * v).sum()
    ends = [squares(hr.array(x + sign * step * v)).item() for sign in (1, -1)]
    np.testing.assert_allclose(product, (ends[0] - ends[1]) / (2 * step), 1e-5)


@pytest.mark.parametrize("kind", GATES)
def test_as_torch(kind):
    given = without(arguments(kind, 2), "peepholes")
    layer = getattr(torch.nn, kind.upper())(3, 4, batch_first=True).double()
    layer.weight_ih_l0.data, layer.weight_hh_l0.data = torch.tensor(given["weight"]), torch.tensor(given["recurrent"])
    layer.bias_ih_l0.data = torch.tensor(given["bias"])
    layer.bias_hh_l0.data = torch.tensor(given.get("recurrent_bias", np.zeros_like(given["bias"])))
    x = torch.tensor(given["x"], requires_grad=True)
    first = [torch.tensor(given[name])[None] for name in ("hidden", "cell") if name in given]
    y, last = layer(x, tuple(first) if kind == "lstm" else first[0])
    y.sum().backward()
    names = list(given)

    def f(*arrays):
        y = getattr(hr, kind)(**dict(zip(names, arrays)))
        return (y[0] if kind == "lstm" else y).sum()

    np.testing.assert_allclose(np.asarray(call(kind, given)[0]), y.detach().numpy(), 1e-10)
    by_x, by_weight, by_recurrent = hr.grad(f, argnums=(0, 1, 2))(*[hr.array(v) for v in given.values()])
    np.testing.assert_allclose(np.asarray(by_x), x.grad.numpy(), 1e-9)
    np.testing.assert_allclose(np.asarray(by_weight), layer.weight_ih_l0.grad.numpy(), 1e-9)
    np.testing.assert_allclose(np.asarray(by_recurrent), layer.weight_hh_l0.grad.numpy(), 1e-9)


def test_compiled_layers_give_the_same():
    given = {name: hr.array(x) for name, x in arguments("lstm", 2).items()}
    names = list(given)
    compiled = hr.compile(lambda *arrays: hr.lstm(**dict(zip(names, arrays))))
    for _ in range(2):
        for a, b in zip(compiled(*given.values()), hr.lstm(**given)):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-12)


@pytest.mark.parametrize(("change", "message"), [
    ({"x": (4,)}, r"x has dims \[4\], expected two or more, and at least one step"),
    ({"x": (2, 0, 3)}, "expected two or more, and at least one step"),
    ({"recurrent": (15, 4)}, r"recurrent has dims \[15,4\], expected 4 times as many rows as columns"),
    ({"weight": (16, 2)}, r"weight has dims \[16,2\], expected \[16,3\]"),
    ({"bias": (4,)}, r"bias has dims \[4\], expected \[16\]"),
    ({"hidden": (4,)}, r"hidden has dims \[4\], expected \[2,4\]"),
    ({"cell": (3, 4)}, r"cell has dims \[3,4\], expected \[2,4\]"),
    ({"peepholes": (16,)}, r"peepholes has dims \[16\], expected \[12\]"),
    ({"lengths": (3,)}, r"lengths has dims \[3\], expected \[2\]"),
])  # fmt: skip
def test_bad_dims(change, message):
    given = {name: hr.array(x) for name, x in arguments("lstm", 2).items()}
    dtypes = {"lengths": hr.int64}
    changed = {name: hr.zeros(shape, dtype=dtypes.get(name, hr.float64)) for name, shape in change.items()}
    with pytest.raises(ValueError, match=message):
        hr.lstm(**given | changed)


def test_bad_values():
    given = {name: hr.array(x) for name, x in without(arguments("gru", 2), "lengths").items()}
    with pytest.raises(ValueError, match="expected one of tanh, sigmoid, relu"):
        hr.gru(**given, gate="swish")
    with pytest.raises(ValueError, match="clip is -1"):
        hr.gru(**given, clip=-1)
    with pytest.raises((ValueError, TypeError), match="indices of f64, expected integers"):
        hr.gru(**given, lengths=hr.array([1.0, 2.0], dtype=hr.float64))
    with pytest.raises((ValueError, TypeError), match="dtype i64, expected a floating one"):
        hr.gru(**{name: x.astype(hr.int64) for name, x in given.items()})
