"""Operators of the programs of jax_fuzz.py: rows of templates, and functions that draw a line with its parameters.

Each gives (name, kind, text). The kind selects the bounds of jax_compare.py: move and exact (equal bits), few (some
units in the last place), sum (relative to the sum of the magnitudes), loose (relative to the largest magnitude).
"""

from jax_data import COMPLEX, FLOATS, SIGNED, UNSIGNED

CATEGORIES = {"b": ("bool",), "i": SIGNED, "u": UNSIGNED, "f": FLOATS, "c": COMPLEX}
ANY = "biufc"

# (template, categories of a, kind). b and c have a's dtype and a shape that broadcasts with it; n is a small integer.
ROWS = [
    ("lax.neg({a})", "iufc", "exact"),
    ("lax.abs({a})", "if", "exact"),
    ("lax.abs({a})", "c", "few"),
    ("jnp.sign({a})", "iuf", "exact"),
    ("jnp.sign({a})", "c", "few"),
    ("lax.floor({a})", "f", "exact"),
    ("lax.ceil({a})", "f", "exact"),
    ("lax.round({a}, lax.RoundingMethod.AWAY_FROM_ZERO)", "f", "exact"),
    ("lax.round({a}, lax.RoundingMethod.TO_NEAREST_EVEN)", "f", "exact"),
    ("jnp.trunc({a})", "f", "exact"),
    ("lax.is_finite({a})", "f", "exact"),
    ("jnp.isnan({a})", "fc", "exact"),
    ("jnp.isinf({a})", "f", "exact"),
    ("jnp.signbit({a})", "f", "exact"),
    ("jnp.nan_to_num({a})", "f", "exact"),
    ("jnp.square({a})", "iuf", "exact"),
    ("jnp.square({a})", "c", "few"),
    ("lax.integer_pow({a}, 3)", "iufc", "few"),
    ("lax.integer_pow({a}, -2)", "fc", "few"),
    ("jnp.reciprocal({a})", "fc", "few"),
    *((f"lax.{name}({{a}})", "fc", "few") for name in "exp exp2 log expm1 sqrt rsqrt sin cos tan tanh".split()),
    *((f"lax.{name}({{a}})", "fc", "few") for name in "asin acos atan cosh asinh acosh atanh logistic".split()),
    ("lax.sinh({a})", "f", "few"),
    ("lax.sinh({a})", "c", "loose"),  # the CPU backend's is off by 250 units near 0 in double precision
    *((f"lax.{name}({{a}})", "f", "few") for name in "cbrt erf erfc".split()),
    ("lax.log1p({a})", "fc", "loose"),  # the CPU backend's is off by 60 units in double precision
    *((f"lax.{name}({{a}})", "f", "loose") for name in "erf_inv lgamma digamma bessel_i0e bessel_i1e".split()),
    *((f"jax.nn.{name}({{a}})", "f", "loose") for name in "relu gelu silu softplus elu selu swish".split()),
    *((f"jax.nn.{name}({{a}})", "f", "loose") for name in "softmax log_softmax logsumexp".split()),
    ("jax.nn.standardize({a}, epsilon=1.0)", "f", "loose"),  # by default values that are nearly equal cancel
    *((f"lax.{name}({{a}})", "iu", "exact") for name in "population_count clz".split()),
    ("lax.bitwise_not({a})", "biu", "exact"),
    ("lax.conj({a})", "c", "exact"),
    ("lax.real({a})", "c", "move"),
    ("lax.imag({a})", "c", "move"),
    ("jnp.angle({a})", "c", "few"),
    ("lax.reduce_precision({a}, {n1}, {n2})", "f", "exact"),
    ("lax.add({a}, {same})", "iuf", "exact"),
    ("lax.sub({a}, {same})", "iuf", "exact"),
    ("lax.mul({a}, {same})", "iuf", "exact"),
    ("lax.div({a}, {same})", "iuf", "exact"),
    ("lax.rem({a}, {same})", "iuf", "exact"),
    ("{a} + {b}", "iufc", "exact"),
    ("{a} - {b}", "iufc", "exact"),
    ("{a} * {b}", "iuf", "exact"),
    ("{a} * {b}", "c", "few"),
    ("{a} / {b}", "f", "few"),
    ("{a} / {b}", "c", "few"),
    ("{a} // {b}", "iu", "exact"),
    ("{a} // {b}", "f", "loose"),
    ("{a} % {b}", "iu", "exact"),
    ("{a} % {b}", "f", "loose"),
    ("lax.max({a}, {same})", "biufc", "order"),
    ("lax.min({a}, {same})", "biufc", "order"),
    ("jnp.maximum({a}, {b})", "biuf", "order"),
    ("jnp.minimum({a}, {b})", "biuf", "order"),
    ("lax.pow({a}, {same})", "f", "few"),
    ("lax.pow({a}, {same})", "c", "loose"),
    ("lax.pow({a}, {n})", "fi", "few"),
    ("jnp.power({a}, {b})", "iu", "exact"),
    ("lax.atan2({a}, {same})", "f", "few"),
    ("lax.nextafter({a}, {same})", "f", "exact"),
    ("jnp.hypot({a}, {b})", "f", "few"),
    ("jnp.logaddexp({a}, {b})", "f", "loose"),
    ("jnp.copysign({a}, {b})", "f", "exact"),
    ("jnp.heaviside({a}, {b})", "f", "exact"),
    ("jnp.fmod({a}, {b})", "iuf", "exact"),
    ("jnp.ldexp({a}, {n})", "f", "exact"),
    ("jnp.gcd({a} >> 1, {b} >> 1)", "iu", "exact"),  # of the least integer it does not end, on no backend
    ("lax.complex({a}, {same})", "f", "move"),
    *((f"lax.bitwise_{name}({{a}}, {{same}})", "biu", "exact") for name in "and or xor".split()),
    *((f"lax.{name}({{a}}, {{same}})", "iu", "exact") for name in "shift_left shift_right_logical".split()),
    ("lax.shift_right_arithmetic({a}, {same})", "iu", "exact"),
    *((f"lax.{name}({{a}}, {{same}})", "biufc", "exact") for name in "eq ne".split()),
    *((f"lax.{name}({{a}}, {{same}})", "biuf", "exact") for name in "lt le gt ge".split()),
    ("{a} < {b}", "biuf", "exact"),
    ("{a} == {b}", ANY, "exact"),
    ("lax.select({a} == {a}, {a}, {same})", ANY, "move"),
    ("jnp.where({a} == {b}, {a}, {b})", ANY, "move"),
    ("jnp.where({a} > {b}, {b}, 1)", "iuf", "move"),
    ("lax.clamp({s}, {a}, {s})", "iuf", "exact"),
    ("lax.clamp({same}, {a}, {same})", "iuf", "exact"),
    ("jnp.clip({a}, -1, 2)", "if", "exact"),
    ("jnp.logical_not({a})", ANY, "exact"),
    ("jnp.logical_xor({a}, {b})", ANY, "exact"),
    ("{a} * 0.3 + {b}", "f", "few"),
    ("jnp.exp(-{a} * {a}) + jnp.tanh({b})", "f", "loose"),
    ("jnp.where({a} > 0, jnp.sqrt(jnp.abs({a})), {a} * {b})", "f", "few"),
]


def cast(d):
    a = d.pick(ANY)
    to = d.dtype(ANY)
    return "convert", "exact", f"lax.convert_element_type({a.name}, jnp.{to}{'_' * (to == 'bool')})"


def bitcast(d):
    a = d.pick("iuf")
    to = d.dtype("iuf")
    return "bitcast", "move", f"lax.bitcast_convert_type({a.name}, jnp.{to})"


def move(d):
    a = d.pick(ANY, rank_min=1)
    r = len(a.shape)
    axis = d.random.randrange(r)
    order = d.random.sample(range(r), r)
    form = d.random.choice(
        [
            f"lax.transpose({a.name}, {order})",
            f"lax.rev({a.name}, {sorted(d.random.sample(range(r), d.random.randint(1, r)))})",
            f"jnp.reshape({a.name}, {d.other_shape(a.shape)})",
            f"jnp.expand_dims({a.name}, {axis})",
            f"jnp.squeeze({a.name})",
            f"jnp.roll({a.name}, {d.random.randint(-4, 4)}, {axis})",
            f"jnp.repeat({a.name}, {d.random.randint(0, 3)}, {axis})",
            f"jnp.tile({a.name}, {d.random.randint(1, 3)})",
            f"jnp.swapaxes({a.name}, {axis}, 0)",
            f"jnp.diag({a.name})",
            f"jnp.tril({a.name}, {d.random.randint(-2, 2)})",
            f"jnp.triu({a.name}, {d.random.randint(-2, 2)})",
            f"jnp.rot90({a.name})",
            f"jnp.moveaxis({a.name}, 0, -1)",
            f"lax.broadcast({a.name}, ({d.random.choice([1, 2, 3])},))",
            f"lax.broadcast_in_dim({a.name}, {(*a.shape, 3)}, {tuple(range(r))})",
            f"lax.broadcast_in_dim({a.name}, {(2, *a.shape)}, {tuple(range(1, r + 1))})",
            f"{a.name}.reshape(-1).reshape({d.other_shape(a.shape)}).T",
        ]
    )
    return d.name_of(form), "move", form


def pad(d):
    a = d.pick(ANY, rank_min=1)
    number = d.scalar(a.dtype)
    widths = []
    for size in a.shape:
        inner = d.random.choice([0, 0, 1, 2])
        full = size + max(size - 1, 0) * inner
        low = d.random.choice([0, 1, 2, -1, -2])
        high = max(d.random.choice([0, 1, 3, -1, -2]), -full - low)
        widths.append((low, high, inner))
    return "pad", "move", f"lax.pad({a.name}, {number.name}, {widths})"


def static_slice(d):
    a = d.pick(ANY, rank_min=1)
    starts = [d.random.randint(0, size) for size in a.shape]
    ends = [d.random.randint(start, size) for start, size in zip(starts, a.shape, strict=True)]
    steps = [d.random.choice([1, 1, 2, 3]) for _ in a.shape]
    if d.random.random() < 0.5:
        return "slice", "move", f"lax.slice({a.name}, {starts}, {ends}, {steps})"
    parts = [d.random.choice(["::-1", "::2", "1:", ":-1", "::-2", "0", "-1", ":", "None, :"]) for _ in a.shape]
    return "slice", "move", f"{a.name}[{', '.join(parts)}]"


def index_value(d, low, high, shape):
    return d.data(d.random.choice(["int32", "int64", "int8", "uint8", "uint32"]), shape, f"index:{low}:{high}")


def dynamic(d):
    a = d.pick(ANY, rank_min=1)
    # In dims that an index of 8 bits cannot count, the CPU backend's bounds overflow.
    dtype = d.random.choice(["int32", "int64", "uint8", "int8"][: 2 if max(a.shape) > 120 else 4])
    low = 0 if dtype == "uint8" else -3
    starts = [d.data(dtype, (), f"index:{low}:{size + 3}").name for size in a.shape]
    sizes = tuple(d.random.randint(0, size) for size in a.shape)
    starts = f"({', '.join(starts)},)"
    if d.random.random() < 0.5:
        return "dynamic_slice", "move", f"lax.dynamic_slice({a.name}, {starts}, {sizes})"
    b = d.data(a.dtype, sizes)
    return "dynamic_update_slice", "move", f"lax.dynamic_update_slice({a.name}, {b.name}, {starts})"


def gather(d):
    a = d.pick(ANY, rank_min=1)
    axis = d.random.randrange(len(a.shape))
    n = a.shape[axis]
    low, high = d.random.choice([(0, max(n, 1)), (-n - 2, n + 3)])
    low = min(low, high - 1)
    shape = d.random.choice([(), (1,), (3,), (2, 2), (0,), (5, 1)])
    dtype = d.random.choice(["int32", "int64"] if max(a.shape) > 120 else SIGNED)
    i = d.data(dtype, shape, f"index:{low}:{high}").name
    mode = d.random.choice(["clip", "fill", "wrap", None])
    forms = [
        f"jnp.take({a.name}, {i}, axis={axis}, mode={mode!r})",
        f"{a.name}.at[{':, ' * axis}{i}].get(mode={(mode if mode != 'wrap' else 'clip')!r})",
        f"{a.name}[{':, ' * axis}{i}]",
    ]
    if len(a.shape) > 1:
        j = d.data(dtype, shape, f"index:-3:{a.shape[1] + 3}").name
        forms.append(f"{a.name}[{d.data(dtype, shape, f'index:-3:{a.shape[0] + 3}').name}, {j}]")
        forms.append(f"{a.name}[..., {j}, None]")
    along = tuple(2 if k == axis else size for k, size in enumerate(a.shape))
    k = d.data(dtype, along, f"index:{-max(n, 1)}:{max(n, 1)}").name
    forms.append(f"jnp.take_along_axis({a.name}, {k}, {axis})")
    return "gather", "move", d.random.choice(forms)


def scatter(d):
    a = d.pick(ANY, rank_min=1)
    axis = d.random.randrange(len(a.shape))
    n = a.shape[axis]
    shape = d.random.choice([(), (1,), (3,), (2, 2), (0,), (7,)])
    method = d.random.choice(["set", "add", "min", "max", "mul", "add", "set", "subtract", "apply"])
    kind = f"index:{-n - 2}:{n + 3}"
    i = d.data(d.random.choice(["int32", "int64", "int8"][: 2 if n > 120 else 3]), shape, kind).name
    mode = d.random.choice(["drop", "clip", "wrap", None])
    if method == "set" and shape not in ((), (1,)):  # the last of equal places is not defined: one value for all
        b = d.scalar(a.dtype).name
    elif method == "apply":
        b = d.random.choice(["lambda x: x * x", "lambda x: x + x", "jnp.abs"])
    else:
        window = (*a.shape[:axis], *shape, *a.shape[axis + 1 :]) if d.random.random() < 0.7 else ()
        b = d.data(a.dtype, window).name
    if method in ("add", "subtract", "mul"):
        bounds = "sum" if method != "mul" else "loose"
    else:
        bounds = "order" if method in ("min", "max") else "move"
    bounds = "loose" if method == "apply" else bounds
    more = f", mode={mode!r}" if mode else ""
    return f"scatter.{method}", bounds, f"{a.name}.at[{':, ' * axis}{i}].{method}({b}{more})"


def slice_update(d):
    a = d.pick(ANY, rank_min=1)
    part = d.random.choice(["1:", ":-1", "::2", "::-1", "0", "-1", "..., :1"])
    method = d.random.choice(["set", "add", "max", "mul"])
    bounds = "few" if method in ("add", "mul") else "exact"
    return f"slice_update.{method}", bounds, f"{a.name}.at[{part}].{method}({d.scalar(a.dtype).name})"


def concatenate(d):
    a = d.pick(ANY, rank_min=1)
    axis = d.random.randrange(len(a.shape))
    parts = [a.name]
    for _ in range(d.random.randint(0, 3)):
        shape = list(a.shape)
        shape[axis] = d.random.choice([0, 1, 2, 3])
        parts.append(d.data(a.dtype, tuple(shape)).name if d.random.random() < 0.6 else a.name)
    d.random.shuffle(parts)
    if d.random.random() < 0.3:
        return "stack", "move", f"jnp.stack([{', '.join([a.name, a.name])}], {axis})"
    return "concatenate", "move", f"lax.concatenate([{', '.join(parts)}], {axis})"


def axes_of(d, a):
    r = len(a.shape)
    chosen = sorted(d.random.sample(range(r), d.random.randint(0, r)))
    return d.random.choice([None, tuple(chosen), d.random.randrange(r) if r else None])


def reduction(d):
    a = d.pick(ANY)
    axes = axes_of(d, a)
    exact = "max min any all argmax argmin count_nonzero nanmax nanmin ptp".split()
    sums = "sum mean nansum sum sum".split()
    loose = "prod var std nanprod nanmean median".split()
    name = d.random.choice([*exact, *sums, *loose])
    if name.startswith("arg"):
        axes = d.random.randrange(len(a.shape)) if a.shape else None
    kind = "exact" if name in exact else "sum" if name in sums else "loose"
    kind = "loose" if name == "ptp" else "order" if "max" in name or "min" in name else kind
    keep = ", keepdims=True" * (d.random.random() < 0.3)
    initial = ""
    if name in ("sum", "max", "min", "prod") and d.random.random() < 0.3:
        initial = f", initial={d.random.choice([0, 1, 2])}"
        if d.random.random() < 0.5 and name != "prod":
            initial += f", where={a.name} == {a.name}"
    return f"reduce.{name}", kind, f"jnp.{name}({a.name}, axis={axes}{keep}{initial})"


def identity(d, a, name):
    """The initial value of a reduction. With others StableHLO leaves the result undefined."""
    if name in ("max", "min"):
        number = f"jnp.iinfo(jnp.{a.dtype}).{'min' if name == 'max' else 'max'}"
        number = {"max": "-jnp.inf", "min": "jnp.inf"}[name] if a.dtype in FLOATS else number
    else:
        number = {"add": "0", "mul": "1", "bitwise_and": "-1"}.get(name, "0")
    if a.dtype == "bool":
        return f"np.array({name in ('mul', 'min', 'bitwise_and')})"
    return f"jnp.array({number}).astype(jnp.{a.dtype})" if number == "-1" else f"jnp.array({number}, jnp.{a.dtype})"


def lax_reduction(d):
    a = d.pick(ANY, rank_min=1)
    r = len(a.shape)
    axes = tuple(sorted(d.random.sample(range(r), d.random.randint(1, r))))
    name = d.random.choice(["add", "mul", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor"])
    kind = {"add": "sum", "mul": "loose", "max": "order", "min": "order"}.get(name, "exact")
    if d.random.random() < 0.25:
        b = d.data("int32", a.shape)
        both = "lambda p, q: (lax.max(p[0], q[0]), lax.add(p[1], q[1]))"
        starts = f"({identity(d, a, 'max')}, jnp.int32(0))"
        return "lax.reduce.2", "exact", f"lax.reduce(({a.name}, {b.name}), {starts}, {both}, {axes})"
    return f"lax.reduce.{name}", kind, f"lax.reduce({a.name}, {identity(d, a, name)}, lax.{name}, {axes})"


def ordered(d):
    a = d.pick("biuf", rank_min=1)
    axis = d.random.randrange(len(a.shape))
    k = d.random.randint(0, a.shape[-1])
    b = d.data(d.random.choice(["int32", "float32"]), a.shape).name
    forms = [
        f"jnp.sort({a.name}, axis={axis})",
        f"jnp.argsort({a.name}, axis={axis}, descending={d.random.random() < 0.4})",
        f"jnp.sort({a.name}, axis={axis}, descending=True)",
        f"lax.top_k({a.name}, {k})",
        f"lax.sort(({a.name}, {b}), dimension={axis}, is_stable=True, num_keys={d.random.choice([1, 2])})",
        f"jnp.searchsorted(jnp.sort({a.name}.reshape(-1)), {a.name})",
        f"jnp.partition({a.name}, {min(1, max(a.shape[axis] - 1, 0))}, axis={axis})",
        f"jnp.lexsort(({a.name}, {b}), axis={axis})",
        f"jnp.unique({a.name}, size=4, fill_value=0)" if a.size else f"jnp.sort({a.name})",
        f"jnp.bincount(jnp.abs({a.name}.astype(jnp.int8)).reshape(-1), length=5)",
        f"jnp.nonzero({a.name}, size=3, fill_value=-1)",
    ]
    form = d.random.choice(forms)
    return d.name_of(form), "exact", form


def cumulative(d):
    name = d.random.choice("cumsum cumprod cummax cummin cumlogsumexp".split())
    a = d.pick("f" if name == "cumlogsumexp" else "iufc", rank_min=1)
    axis = d.random.randrange(len(a.shape))
    kind = {"cummax": "exact", "cummin": "exact", "cumsum": "sum"}.get(name, "loose")
    return name, kind, f"lax.{name}({a.name}, axis={axis}, reverse={d.random.random() < 0.4})"


def dot(d):
    a = d.pick("biufc", rank_min=1)
    r = len(a.shape)
    dims = d.random.sample(range(r), r)
    batch = d.random.choice([0, 0, 1, 2])
    lhs_batch = dims[: min(batch, r)]
    lhs_contract = dims[len(lhs_batch) :][: d.random.choice([0, 1, 1, 1, 2])]
    other = [*lhs_batch, *lhs_contract]
    shape = [a.shape[k] for k in other] + [d.random.choice([1, 2, 3, 5]) for _ in range(d.random.choice([0, 1, 1, 2]))]
    order = d.random.sample(range(len(shape)), len(shape))
    place = {old: new for new, old in enumerate(order)}
    b = d.data(a.dtype, tuple(shape[k] for k in order))
    rhs_batch = [place[k] for k in range(len(lhs_batch))]
    rhs_contract = [place[len(lhs_batch) + k] for k in range(len(lhs_contract))]
    preferred = d.random.choice([None, None, None, "jnp.float32", "jnp.int32"])
    dimensions = f"(({lhs_contract}, {rhs_contract}), ({lhs_batch}, {rhs_batch}))"
    more = f", preferred_element_type={preferred}" if preferred else ""
    return "dot_general", "sum", f"lax.dot_general({a.name}, {b.name}, {dimensions}{more})"


def matmul(d):
    a = d.pick("biufc", rank_min=1)
    forms = [
        f"{a.name} @ {d.data(a.dtype, (a.shape[-1], d.random.choice([1, 3, 4]))).name}",
        f"{a.name} @ {d.data(a.dtype, (a.shape[-1],)).name}",
        f"jnp.einsum('...i,...j->...ij', {a.name}, {a.name})",
        f"jnp.einsum('...i,...i->...', {a.name}, {a.name})",
        f"jnp.einsum('...i->i', {a.name})",
        f"jnp.outer({a.name}, {a.name})",
        f"jnp.kron({a.name}, {a.name})",
        f"jnp.vdot({a.name}, {a.name})",
        f"jnp.trace({a.name})",
        f"jnp.convolve({a.name}, {d.data(a.dtype, (3,)).name})",
    ]
    form = d.random.choice(forms)
    return d.name_of(form), "sum", form


def padding_of(d, rank, pairs):
    return d.random.choice(["'SAME'", "'VALID'", repr([d.random.choice(pairs) for _ in range(rank)])])


def convolution(d):
    spatial = d.random.choice([1, 1, 2, 2, 3])
    groups = d.random.choice([1, 1, 1, 2, 3])
    batch_groups = d.random.choice([1, 1, 1, 1, 2]) if groups == 1 else 1
    dtype = d.dtype("f" if d.random.random() < 0.85 else "iuc")
    features = groups * d.random.choice([1, 2])
    out = groups * batch_groups * d.random.choice([1, 2])
    sizes = [d.random.choice([1, 3, 4, 5, 6]) for _ in range(spatial)]
    kernel = [d.random.choice([1, 2, 3]) for _ in range(spatial)]
    x = d.data(dtype, (batch_groups * d.random.choice([1, 2]), features, *sizes))
    w = d.data(dtype, (out, features // groups, *kernel))
    draw = lambda choices: tuple(d.random.choice(choices) for _ in range(spatial))  # noqa: E731
    padding = padding_of(d, spatial, [(0, 0), (1, 2), (2, 0), (-1, 1), (3, 3)])
    lhs_dilation, rhs_dilation = draw([1, 1, 2, 3]), draw([1, 1, 2])
    if padding == "'SAME'" and max(lhs_dilation) > 1:
        padding = "'VALID'"
    letters = "DHW"[-spatial:]
    numbers = d.random.choice(["None", "None", repr(("N" + letters + "C", letters + "IO", "N" + letters + "C"))])
    x_text, w_text = x.name, w.name
    if numbers != "None":
        x_text = f"jnp.moveaxis({x.name}, 1, -1)"
        w_text = f"jnp.transpose({w.name}, {(*range(2, spatial + 2), 1, 0)})"
    return "conv", "sum", (
        f"lax.conv_general_dilated({x_text}, {w_text}, {draw([1, 1, 2, 3])}, {padding}, {lhs_dilation}, "
        f"{rhs_dilation}, dimension_numbers={numbers}, feature_group_count={groups}, batch_group_count={batch_groups})"
    )


def window(d):
    a = d.pick("biuf", rank_min=1)
    r = len(a.shape)
    name = d.random.choice(["add", "max", "min", "mul"])
    draw = lambda choices: tuple(d.random.choice(choices) for _ in range(r))  # noqa: E731
    padding = padding_of(d, r, [(0, 0), (1, 0), (0, 2), (1, 1)])
    kind = {"add": "sum", "mul": "loose", "max": "order", "min": "order"}.get(name, "exact")
    more = f"{draw([1, 2, 3])}, {draw([1, 1, 2, 3])}, {padding}"
    dilations = f", {draw([1, 1, 2])}, {draw([1, 1, 2])}" if padding != "'SAME'" else ""
    init = identity(d, a, name)
    return f"reduce_window.{name}", kind, f"lax.reduce_window({a.name}, {init}, lax.{name}, {more}{dilations})"


def pool_gradient(d):
    a = d.data(d.dtype("f"), (2, d.random.choice([4, 5, 6]), d.random.choice([3, 4])), "small")
    n, stride = d.random.choice([2, 3]), d.random.choice([1, 2])
    padding = d.random.choice(["SAME", "VALID"])
    name, init = d.random.choice([("max", "-jnp.inf"), ("add", "0."), ("min", "jnp.inf")])
    sizes = f"(1, {n}, 2), (1, {stride}, 1), {padding!r}"
    pool = f"lax.reduce_window(x, np.array({init}, x.dtype).item(), lax.{name}, {sizes})"
    return f"pool_gradient.{name}", "loose", f"jax.grad(lambda x: jnp.sum({pool} ** 2))({a.name})"


def random_numbers(d):
    shape = d.shape()
    key = f"jax.random.fold_in(jax.random.key({d.random.randrange(1000)}), {d.data('uint32', (), 'special').name})"
    f = d.random.choice(FLOATS)
    i = d.dtype("iu")
    forms = [
        ("exact", f"jax.random.bits({key}, {shape}, jnp.{d.random.choice(UNSIGNED)})"),
        ("exact", f"jax.random.uniform({key}, {shape}, jnp.{f})"),
        ("loose", f"jax.random.uniform({key}, {shape}, jnp.{f}, -2, 3)"),  # XLA fuses its product and sum
        ("exact", f"jax.random.randint({key}, {shape}, 0, {d.random.choice([2, 7, 100])}, jnp.{i})"),
        ("exact", f"jax.random.bernoulli({key}, 0.3, {shape})"),
        ("exact", f"jax.random.permutation({key}, {d.random.choice([1, 5, 20])})"),
        ("exact", f"jax.random.key_data(jax.random.split({key}, 3))"),
        ("loose", f"jax.random.normal({key}, {shape}, jnp.{f})"),
        ("loose", f"jax.random.exponential({key}, {shape}, jnp.{f})"),
        ("loose", f"jax.random.truncated_normal({key}, -1, 1, {shape}, jnp.{f})"),
        ("exact", f"jax.random.choice({key}, 9, {shape})"),
        ("loose", f"jax.random.gamma({key}, 2.0, {shape}, jnp.float64)"),
        ("loose", f"jax.random.laplace({key}, {shape}, jnp.{f})"),
        ("exact", f"jax.random.poisson({key}, 3.0, {shape})"),
    ]
    kind, form = d.random.choice(forms)
    return "random." + form.split("random.")[1].split("(")[0], kind, form


def linalg(d):
    n = d.random.choice([1, 2, 3, 5])
    batch = d.random.choice([(), (), (2,), (0,)])
    dtype = d.random.choice(["float32", "float64", "complex64", "complex128"])
    a = d.data(dtype, (*batch, n, n), "unit").name
    b = d.data(dtype, (*batch, n, d.random.choice([1, 2])), "unit").name
    well = f"({a} * 0.1 + 2 * jnp.eye({n}, dtype={a}.dtype))"
    positive = f"({well} @ jnp.conj(jnp.swapaxes({well}, -1, -2)))"
    options = [f"left_side=True, lower={d.random.random() < 0.5}, transpose_a={d.random.random() < 0.5}"]
    options += [f"left_side=True, lower=True, unit_diagonal={d.random.random() < 0.5}, conjugate_a=False"]
    forms = [
        f"jnp.linalg.cholesky({positive})",
        f"jnp.linalg.inv({well})",
        f"jnp.linalg.det({well})",
        f"jnp.linalg.slogdet({well})",
        f"jnp.linalg.solve({well}, {b})",
        f"lax.linalg.triangular_solve({well}, {b}, {d.random.choice(options)})",
        f"jnp.linalg.eigvalsh({positive})",
        f"jnp.linalg.svd({a}, compute_uv=False)",
        f"jnp.abs(jnp.linalg.qr({well})[1])",
        f"jnp.linalg.matrix_power({well}, 3)",
        f"jnp.linalg.norm({well})",
        f"jax.scipy.linalg.expm({well})" if not batch else f"jnp.linalg.inv({well})",
        f"jnp.fft.{d.random.choice(['fft', 'ifft'])}({a})",
        f"jnp.fft.rfft({a}.real)",
        f"jnp.fft.irfft({a})" if n > 1 else f"jnp.fft.fft2({a})",
        f"jnp.fft.fft2({a})",
    ]
    form = d.random.choice(forms)
    return d.name_of(form), "loose", form


def creation(d):
    shape = d.shape()
    dtype = d.dtype("iufc")
    axis = d.random.randrange(len(shape)) if shape else 0
    forms = [
        f"lax.broadcasted_iota(jnp.{dtype}, {shape}, {axis})" if shape else f"jnp.zeros((), jnp.{dtype})",
        f"jnp.full({shape}, 3, jnp.{dtype})",
        f"jnp.eye({d.random.choice([1, 3, 4])}, {d.random.choice([2, 5])}, {d.random.choice([-1, 0, 2])}, jnp.{dtype})",
        f"jnp.linspace(-1, 3, {d.random.choice([0, 1, 2, 5, 7])})",
        f"jnp.arange({d.random.choice([0, 1, 9])}, dtype=jnp.{dtype})",
        f"jnp.tri({d.random.choice([1, 3, 4])}, dtype=jnp.{dtype})",
    ]
    form = d.random.choice(forms)
    return d.name_of(form), "few", form


# Functions of a in a loop's body: they keep its shape and dtype, and are continuous.
BODIES = {
    "f": ["a * 0.5 + 1", "jnp.sin(a)", "jnp.maximum(a, -a) - 1", "a[::-1] if a.ndim else a", "-a", "jnp.tanh(a) + a"],
    "i": ["a + 1", "a * 3", "a ^ 5", "-a", "jnp.flip(a) - a", "jnp.sort(a.reshape(-1)).reshape(a.shape)", "a // 2"],
    "u": ["a + 1", "a * 3", "a ^ 5", "~a", "jnp.flip(a) - a", "a >> 1", "jnp.cumsum(a).reshape(a.shape)"],
    "b": ["~a", "jnp.flip(a)", "a ^ True", "jnp.roll(a, 1)"],
    "c": ["a * 0.5 + 1", "-a", "jnp.conj(a) + 1", "jnp.flip(a)"],
}


def control(d):
    a = d.pick(ANY)
    category = d.category(a.dtype)
    body = lambda: f"({d.random.choice(BODIES[category])}).astype(a.dtype)"  # noqa: E731
    p = d.data("bool", ()).name
    i = d.data("int32", (), "index:-1:4").name
    k = d.random.randint(0, 4)
    count = d.data("int32", (), "index:0:5").name
    at = f"{body()}.at[i].set(0)" if a.shape else body()
    xs = d.pick(ANY, rank_min=1)
    forms = [
        f"lax.cond({p}, lambda a: {body()}, lambda a: {body()}, {a.name})",
        f"lax.switch({i}, [lambda a: {body()}, lambda a: {body()}, lambda a: {body()}], {a.name})",
        f"lax.fori_loop(0, {k}, lambda i, a: {body()}, {a.name})",
        f"lax.fori_loop(0, {count}, lambda i, a: {body()}, {a.name})",
        f"lax.fori_loop(0, {k}, lambda i, a: {at}, {a.name})",
        f"lax.while_loop(lambda s: s[0] < {count}, lambda s: (s[0] + 1, (lambda a: {body()})(s[1])), (0, {a.name}))[1]",
        f"lax.scan(lambda a, x: ({body()}, (x, a)), {a.name}, {xs.name}, reverse={d.random.random() < 0.4})",
        f"lax.scan(lambda a, x: ({body()}, jnp.flip(x) if x.ndim else x), {a.name}, {xs.name})",
        f"lax.map(lambda a: {body()}, {a.name})",
        f"lax.scan(lambda a, x: ({body()}, a), {a.name}, None, length={k})",
        f"lax.associative_scan(lax.{'max' if category != 'c' else 'add'}, {a.name})",
        f"lax.fori_loop(0, 2, lambda i, a: lax.cond(i % 2 == 0, lambda a: {body()}, lambda a: {body()}, a), {a.name})",
    ]
    form = d.random.choice(forms)
    return d.name_of(form), "loose", form


def batched(d):
    """vmap of any other line, over the first dim of one value."""
    a = d.pick(ANY, rank_min=1)
    name, kind, text = d.inside(a.dtype, a.shape[1:])
    return f"vmap.{name}", kind, f"jax.vmap(lambda a: {text})({a.name})"


def nested(d):
    a = d.pick(ANY)
    name, kind, text = d.inside(a.dtype, a.shape)
    return f"jit.{name}", kind, f"jax.jit(lambda a: {text})({a.name})"


def gradient(d):
    a = d.data(d.random.choice(FLOATS), d.shape(), d.random.choice(["unit", "small"]))
    name, _, text = d.inside(a.dtype, a.shape, smooth=True)
    total = f"jnp.sum(jnp.real(jax.tree.leaves({text})[0]).astype(jnp.float32))"
    form = f"jax.grad(lambda a: {total})({a.name})"
    return f"grad.{name}", "loose", form


DRAWN = [cast, bitcast, move, move, pad, static_slice, dynamic, gather, scatter, scatter, slice_update, concatenate]
DRAWN += [reduction, reduction, lax_reduction, ordered, cumulative, dot, matmul, convolution, window, pool_gradient]
DRAWN += [random_numbers, linalg, creation, control, control]
OUTER = [batched, batched, nested, gradient, gradient]
SMOOTH = [move, pad, static_slice, dynamic, gather, scatter, slice_update, concatenate, reduction, cumulative, dot]
SMOOTH += [matmul]
