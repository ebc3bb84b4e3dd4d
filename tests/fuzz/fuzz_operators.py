"""The operators of fuzz programs: each family draws one step, a line of Python over the existing variables.

A family is a function of the generator (fuzz_generate.py) that returns a Step; it may make operands of its own first.
Its weight is its frequency. Lines need not be valid: the generator runs them and drops those that torch rejects.
"""

from dataclasses import dataclass, field


@dataclass
class Step:
    """One line of a program: `op` is its name in reports and rules, `writes` the variables that it changes in place."""

    op: str
    line: str
    makes: list = field(default_factory=list)
    writes: list = field(default_factory=list)


FAMILIES = []  # (weight, function)


def family(weight):
    def register(function):
        FAMILIES.append((weight, function))
        return function

    return register


UNARY = """abs neg sign sgn square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
sinh cosh tanh asinh acosh atanh erf erfc erfinv sigmoid floor ceil round trunc frac lgamma digamma i0 sinc deg2rad
rad2deg nan_to_num logical_not bitwise_not relu positive angle conj_physical isnan isinf isfinite isposinf isneginf
isreal signbit""".split()
NOT_IN_PLACE = "positive angle isnan isinf isfinite isposinf isneginf isreal signbit relu".split()
BINARY = """add sub mul div true_divide floor_divide remainder fmod pow atan2 maximum minimum fmax fmin hypot copysign
nextafter heaviside xlogy logaddexp logaddexp2 gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_left_shift
bitwise_right_shift logical_and logical_or logical_xor eq ne lt le gt ge ldexp float_power rsub""".split()
NO_METHOD_IN_PLACE = "maximum minimum fmax fmin logaddexp logaddexp2 rsub".split()
ACTIVATIONS = {
    "gelu": "F.gelu({x})",
    "gelu_tanh": "F.gelu({x}, approximate='tanh')",
    "silu": "F.silu({x})",
    "mish": "F.mish({x})",
    "softplus": "F.softplus({x})",
    "elu": "F.elu({x})",
    "celu": "F.celu({x}, 0.7)",
    "selu": "F.selu({x})",
    "leaky_relu": "F.leaky_relu({x}, 0.1)",
    "hardtanh": "F.hardtanh({x})",
    "hardsigmoid": "F.hardsigmoid({x})",
    "hardswish": "F.hardswish({x})",
    "logsigmoid": "F.logsigmoid({x})",
    "softsign": "F.softsign({x})",
    "tanhshrink": "F.tanhshrink({x})",
    "softshrink": "F.softshrink({x})",
    "hardshrink": "F.hardshrink({x})",
    "relu6": "F.relu6({x})",
    "threshold": "F.threshold({x}, 0.3, -1)",
    "softmax": "F.softmax({x}, {dim})",
    "log_softmax": "F.log_softmax({x}, {dim})",
    "softmin": "F.softmin({x}, {dim})",
    "normalize": "F.normalize({x}, dim={dim})",
    "glu": "F.glu({x}, {dim})",
}
REDUCTIONS = "sum mean prod amax amin nansum any all logsumexp var std count_nonzero norm argmax argmin".split()
SCANS = "cumsum cumprod cummax cummin logcumsumexp".split()


@family(20)
def unary(g):
    name, x = g.choose(UNARY), g.pick()
    if g.chance(0.3) and name not in NOT_IN_PLACE:
        x = g.writable()
        return Step(name + "_", f"{x}.{name}_()", writes=[x])
    y = g.fresh()
    return Step(name, f"{y} = torch.{name}({x})", [y])


@family(6)
def activation(g):
    name = g.choose(list(ACTIVATIONS))
    x, y = g.pick(lambda t: t.is_floating_point() and t.dim() > 0), g.fresh()
    call = ACTIVATIONS[name]
    if g.chance(0.25):
        return Step(name + ".grad", f"{y} = grad(lambda x: {call.format(x='x', dim=g.dim(x))}, {x})", [y])
    return Step(name, f"{y} = {call.format(x=x, dim=g.dim(x))}", [y])


@family(34)
def binary(g):
    name, x = g.choose(BINARY), g.pick()
    how = g.rng.random()
    if how < 0.45:
        other = g.operand(x)
    elif how < 0.55:
        other = x
    else:
        other = g.number(x)
    if g.chance(0.3) and name not in NO_METHOD_IN_PLACE:
        x = g.writable()
        other = g.operand(x, no_larger=True) if how < 0.55 else g.number(x)
        return Step(name + "_", f"{x}.{name}_({other})", writes=[x])
    y = g.fresh()
    if how > 0.9 and name in ("sub", "div", "mul", "pow", "floor_divide", "remainder"):
        sign = {"sub": "-", "div": "/", "mul": "*", "pow": "**", "floor_divide": "//", "remainder": "%"}[name]
        return Step("r" + name, f"{y} = {other} {sign} {x}", [y])
    return Step(name, f"{y} = torch.{name}({x}, {other})", [y])


@family(4)
def binary_options(g):
    x, y = g.pick(), g.fresh()
    other = g.operand(x) if g.chance(0.6) else g.number(x)
    kind = g.choose(["add", "sub", "div_trunc", "div_floor", "isclose", "out"])
    if kind in ("add", "sub"):
        return Step(kind + "_alpha", f"{y} = torch.{kind}({x}, {other}, alpha={g.number(x)})", [y])
    if kind == "isclose":
        return Step(kind, f"{y} = torch.isclose({x}, {g.operand(x)}, equal_nan=True)", [y])
    if kind == "out":
        name, out = g.choose(["add", "mul", "maximum", "sub", "eq", "pow"]), g.writable()
        # out= of another shape would leave its views without memory
        a, b = g.pick_like(out), g.operand(out, no_larger=True)
        return Step(name + ".out", f"torch.{name}({a}, {b}, out={out})", writes=[out])
    return Step(kind, f"{y} = torch.div({x}, {other}, rounding_mode='{kind[4:]}')", [y])


@family(7)
def ternary(g):
    x, y = g.pick(), g.fresh()
    kind = g.choose(["where", "where_number", "addcmul", "addcdiv", "lerp", "lerp_number", "clamp", "clamp_tensor"])
    if kind.startswith("where"):
        other = g.operand(x) if kind == "where" else g.number(x)
        return Step(kind, f"{y} = torch.where({g.mask(x)}, {x}, {other})", [y])
    if kind.startswith("addc"):
        a, b = g.operand(x, dtype=g.type(x)), g.operand(x, dtype=g.type(x))
        if g.chance(0.4):
            x = g.writable()
            a, b = g.operand(x, g.type(x), no_larger=True), g.operand(x, g.type(x), no_larger=True)
            return Step(kind + "_", f"{x}.{kind}_({a}, {b}, value={g.number(x)})", writes=[x])
        return Step(kind, f"{y} = torch.{kind}({x}, {a}, {b}, value={g.number(x)})", [y])
    if kind.startswith("lerp"):
        weight = g.operand(x, dtype=g.type(x)) if kind == "lerp" else "0.3"
        return Step(kind, f"{y} = torch.lerp({x}, {g.operand(x, dtype=g.type(x))}, {weight})", [y])
    if kind == "clamp":
        low = g.choose(["None", g.number(x)])
        high = g.choose(["None", g.number(x)]) if low != "None" else g.number(x)
        if g.chance(0.3):
            x = g.writable()
            return Step("clamp_", f"{x}.clamp_({low}, {high})", writes=[x])
        return Step("clamp", f"{y} = torch.clamp({x}, {low}, {high})", [y])
    return Step(kind, f"{y} = torch.clamp({x}, min={g.operand(x)})", [y])


@family(12)
def reduction(g):
    name, x, y = g.choose(REDUCTIONS), g.pick(), g.fresh()
    if name in ("logsumexp", "amax", "amin") or g.chance(0.6):
        x = g.pick(lambda t: t.dim() > 0)
        dim = f"({g.dim(x)},)" if name in ("amax", "amin", "sum", "mean", "logsumexp") and g.chance(0.3) else g.dim(x)
        if name == "norm":
            return Step(name, f"{y} = torch.norm({x}, {g.choose([1, 2, 'inf', 0, 3])}, {dim}, {g.flag()})", [y])
        if name in ("prod", "sum", "nansum", "mean") and g.chance(0.2):
            return Step(name, f"{y} = torch.{name}({x}, {dim}, dtype={g.dtype()})", [y])
        keep = "" if name == "count_nonzero" else f", keepdim={g.flag()}"
        return Step(name, f"{y} = torch.{name}({x}, dim={dim}{keep})", [y])
    return Step(name, f"{y} = torch.{name}({x})", [y])


@family(5)
def scan(g):
    name, x, y = g.choose(SCANS), g.pick(lambda t: t.dim() > 0), g.fresh()
    if name in ("cummax", "cummin"):
        z = g.fresh()
        return Step(name, f"{y}, {z} = torch.{name}({x}, {g.dim(x)})", [y, z])
    if name in ("cumsum", "cumprod") and g.chance(0.2):
        x = g.writable(lambda t: t.dim() > 0)
        return Step(name + "_", f"{x}.{name}_({g.dim(x)})", writes=[x])
    return Step(name, f"{y} = torch.{name}({x}, {g.dim(x)})", [y])


@family(5)
def order(g):
    x, y, z = g.pick(lambda t: t.dim() > 0), g.fresh(), g.fresh()
    name = g.choose(["max", "min", "median", "mode", "sort", "topk", "kthvalue", "aminmax", "argsort", "msort"])
    dim, size = g.dim(x), g.tensor(x).shape[int(g.dim(x))] if g.tensor(x).dim() else 1
    if name in ("max", "min", "median", "mode"):
        return Step(name, f"{y}, {z} = torch.{name}({x}, {dim}, {g.flag()})", [y, z])
    if name == "sort":
        return Step(name, f"{y}, {z} = torch.sort({x}, dim={dim}, descending={g.flag()}, stable=True)", [y, z])
    if name == "topk":
        return Step(name, f"{y} = torch.topk({x}, {g.rng.randint(0, max(size, 1))}, {dim}, {g.flag()})[0]", [y])
    if name == "kthvalue":
        return Step(name, f"{y} = torch.kthvalue({x}, {g.rng.randint(1, max(size, 1))}, {dim})[0]", [y])
    if name == "aminmax":
        return Step(name, f"{y}, {z} = torch.aminmax({x}, dim={dim})", [y, z])
    if name == "argsort":
        return Step(name, f"{y} = torch.argsort({x}, dim={dim}, stable=True)", [y])
    return Step(name, f"{y} = torch.msort({x})", [y])


@family(30)
def view(g):
    x, y = g.pick(), g.fresh()
    t, rng = g.tensor(x), g.rng
    rank = t.dim()
    kind = g.choose("slice slice transpose permute select expand unsqueeze squeeze reshape flatten diagonal unfold t "
                    "narrow split movedim as_strided real conj dtype contiguous clone detach flip "
                    "unflatten".split())  # fmt: skip
    if kind == "slice":
        parts = [g.slice(n) for n in t.shape]
        return Step(kind, f"{y} = {x}[{', '.join(parts) or '...'}]", [y])
    if kind in ("transpose", "movedim"):
        return Step(kind, f"{y} = {x}.{kind}({g.dim(x)}, {g.dim(x)})", [y])
    if kind == "permute":
        return Step(kind, f"{y} = {x}.permute({rng.sample(range(rank), rank)})", [y])
    if kind == "select":
        return Step(kind, f"{y} = {x}.select({g.dim(x)}, {rng.choice([0, -1])})", [y])
    if kind == "expand":
        sizes = [rng.choice([2, 3]) if n == 1 else n for n in t.shape]
        return Step(kind, f"{y} = {x}.expand({[2] * (rank < 3 and rng.random() < 0.4) + sizes})", [y])
    if kind in ("unsqueeze", "squeeze"):
        return Step(kind, f"{y} = {x}.{kind}({rng.randint(-rank, max(rank - 1, 0))})", [y])
    if kind == "reshape":
        return Step(kind, f"{y} = {x}.{rng.choice(['reshape', 'view'])}({g.factors(t.numel())})", [y])
    if kind == "flatten":
        return Step(kind, f"{y} = {x}.flatten()", [y])
    if kind == "unflatten":
        return Step(kind, f"{y} = {x}.unflatten({g.dim(x)}, (1, -1))", [y])
    if kind == "diagonal":
        return Step(kind, f"{y} = {x}.diagonal({rng.randint(-1, 1)})", [y])
    if kind == "unfold":
        return Step(kind, f"{y} = {x}.unfold({g.dim(x)}, {rng.randint(1, 3)}, {rng.randint(1, 2)})", [y])
    if kind == "t":
        return Step(kind, f"{y} = {x}.mT", [y])
    if kind == "narrow":
        d = int(g.dim(x))
        size = t.shape[d] if rank else 1
        start = rng.randint(0, size)
        return Step(kind, f"{y} = {x}.narrow({d}, {start}, {rng.randint(0, size - start)})", [y])
    if kind == "split":
        z = g.fresh()
        return Step(kind, f"{y}, {z} = {x}.chunk(2, {g.dim(x)})", [y, z])
    if kind == "as_strided":
        return Step(kind, f"{y} = {x}.as_strided({g.strided(t)})", [y])
    if kind == "real":
        return Step(kind, f"{y} = {rng.choice(['{x}.real', '{x}.imag', 'torch.view_as_real({x})']).format(x=x)}", [y])
    if kind == "conj":
        return Step(kind, f"{y} = {x}.conj()", [y])
    if kind == "dtype":
        return Step("view_dtype", f"{y} = {x}.view({g.dtype(same_bytes=t.element_size())})", [y])
    if kind == "flip":
        return Step(kind, f"{y} = {x}.flip({g.dim(x)})", [y])
    return Step(kind, f"{y} = {x}.{kind}()", [y])


@family(10)
def cast(g):
    x, y = g.pick(), g.fresh()
    if g.chance(0.3):
        x = g.writable()
        return Step("copy_", f"{x}.copy_({g.operand(x, no_larger=True)})", writes=[x])
    return Step("to", f"{y} = {x}.to({g.dtype()})", [y])


@family(9)
def write(g):
    x = g.writable()
    t = g.tensor(x)
    kind = g.choose(
        ["fill_", "zero_", "setitem", "setitem_number", "masked_fill_", "masked_fill", "add_view", "set_mask"]
    )
    part = ", ".join(g.slice(n) for n in t.shape) or "..."
    if kind == "fill_":
        return Step(kind, f"{x}.fill_({g.number(x)})", writes=[x])
    if kind == "zero_":
        return Step(kind, f"{x}.zero_()", writes=[x])
    if kind == "setitem_number":
        return Step(kind, f"{x}[{part}] = {g.number(x)}", writes=[x])
    if kind == "setitem":
        return Step(kind, f"{x}[{part}] = {g.operand_for(f'{x}[{part}]')}", writes=[x])
    if kind == "add_view":
        return Step(kind, f"{x}[{part}].{g.choose(['add_', 'mul_', 'sub_'])}({g.number(x)})", writes=[x])
    if kind == "set_mask":
        return Step(kind, f"{x}[{g.mask(x)}] = {g.number(x)}", writes=[x])
    if kind == "masked_fill":
        y = g.fresh()
        return Step(kind, f"{y} = {x}.masked_fill({g.mask(x)}, {g.number(x)})", [y])
    return Step(kind, f"{x}.masked_fill_({g.mask(x)}, {g.number(x)})", writes=[x])


@family(8)
def gather(g):
    x, y = g.pick(lambda t: t.dim() > 0 and t.numel() > 0), g.fresh()
    t, dim = g.tensor(x), int(g.dim(x))
    size = t.shape[dim]
    kind = g.choose("index_select gather take getitem getitem_two getitem_mask masked_select take_along nonzero roll "
                    "tril triu repeat tile repeat_interleave searchsorted embedding one_hot isin".split())  # fmt: skip
    if kind == "index_select":
        return Step(kind, f"{y} = {x}.index_select({dim}, {g.index((g.rng.randint(0, 4),), size)})", [y])
    if kind in ("gather", "take_along"):
        shape = [g.rng.randint(0, n + 1) if i == dim else n for i, n in enumerate(t.shape)]
        name = "torch.gather({x}, {dim}, {i})" if kind == "gather" else "torch.take_along_dim({x}, {i}, {dim})"
        return Step(kind, f"{y} = {name.format(x=x, dim=dim, i=g.index(shape, size))}", [y])
    if kind == "take":
        return Step(kind, f"{y} = {x}.take({g.index((2, 3), t.numel())})", [y])
    if kind == "getitem":
        return Step(kind, f"{y} = {x}[{':, ' * dim}{g.index((g.rng.randint(1, 4),), size, low=-size)}]", [y])
    if kind == "getitem_two":
        i, j = g.index((3, 1), t.shape[0]), g.index((2,), t.shape[-1])
        return Step(kind, f"{y} = {x}[{i}, ..., {j}]", [y])
    if kind == "getitem_mask":
        return Step(kind, f"{y} = {x}[{g.mask(x, exact=True)}]", [y])
    if kind == "masked_select":
        return Step(kind, f"{y} = {x}.masked_select({g.mask(x)})", [y])
    if kind == "nonzero":
        return Step(kind, f"{y} = {x}.nonzero()", [y])
    if kind == "roll":
        return Step(kind, f"{y} = {x}.roll({g.rng.randint(-3, 3)}, {dim})", [y])
    if kind in ("tril", "triu"):
        return Step(kind, f"{y} = {x}.{kind}({g.rng.randint(-1, 1)})", [y])
    if kind in ("repeat", "tile"):
        return Step(kind, f"{y} = {x}.{kind}({[g.rng.randint(1, 2) for _ in t.shape]})", [y])
    if kind == "repeat_interleave":
        return Step(kind, f"{y} = {x}.repeat_interleave({g.rng.randint(0, 2)}, {dim})", [y])
    if kind == "searchsorted":
        return Step(kind, f"{y} = torch.searchsorted({x}.sort(-1)[0], {x}.contiguous(), right={g.flag()})", [y])
    if kind == "embedding":
        x = g.pick(lambda t: t.dim() == 2 and t.numel() > 0 and t.is_floating_point())
        return Step(kind, f"{y} = F.embedding({g.index((2, 3), g.tensor(x).shape[0])}, {x})", [y])
    if kind == "one_hot":
        return Step(kind, f"{y} = F.one_hot({g.index((4,), 5)}, 5)", [y])
    return Step(kind, f"{y} = torch.isin({x}, {g.operand(x, dtype=g.type(x))})", [y])


@family(10)
def scatter(g):
    x = g.writable(lambda t: t.dim() > 0 and t.numel() > 0)
    t, dim = g.tensor(x), int(g.dim(x))
    size, rng, dtype = t.shape[dim], g.rng, g.type(x)
    kind = g.choose("scatter_add_ scatter_value scatter_ scatter_reduce_ scatter_reduce_ index_add_ index_copy_ "
                    "index_fill_ put_ index_put_ index_put_add setitem_index masked_scatter_ "
                    "index_reduce_".split())  # fmt: skip
    shape = [
        rng.randint(0, 4) if i == dim else rng.randint(0, n) if rng.random() < 0.2 else n for i, n in enumerate(t.shape)
    ]
    if kind.startswith("scatter"):
        index = g.index(shape, size)
        if kind == "scatter_value":
            return Step(kind, f"{x}.scatter_({dim}, {index}, {g.number(x)})", writes=[x])
        source = g.make(dtype, shape)
        if kind == "scatter_":  # of several elements for one place any may win: a permutation has none
            index = g.make("int64", shape, f"index:0:{size}") if shape[dim] < 2 else index
            return Step(kind, f"{x}.scatter_({dim}, {index}, {source})", writes=[x])
        if kind == "scatter_add_":
            return Step(kind, f"{x}.scatter_add_({dim}, {index}, {source})", writes=[x])
        mode, keep = g.choose(["sum", "prod", "mean", "amax", "amin"]), g.flag()
        return Step(kind, f"{x}.scatter_reduce_({dim}, {index}, {source}, '{mode}', include_self={keep})", writes=[x])
    if kind.startswith("index_") and kind not in ("index_put_", "index_put_add"):
        count = rng.randint(0, 4)
        index, shape = g.index((count,), size), [count if i == dim else n for i, n in enumerate(t.shape)]
        if kind == "index_fill_":
            return Step(kind, f"{x}.index_fill_({dim}, {index}, {g.number(x)})", writes=[x])
        source = g.make(dtype, shape)
        if kind == "index_reduce_":
            mode = g.choose(["prod", "mean", "amax", "amin"])
            return Step(
                kind, f"{x}.index_reduce_({dim}, {index}, {source}, '{mode}', include_self={g.flag()})", writes=[x]
            )
        more = f", alpha={g.number(x)}" if kind == "index_add_" and g.chance(0.3) else ""
        return Step(kind, f"{x}.{kind}({dim}, {index}, {source}{more})", writes=[x])
    if kind == "put_":
        index = g.index((3,), t.numel())
        return Step(kind, f"{x}.put_({index}, {g.make(dtype, (3,))}, accumulate=True)", writes=[x])
    if kind == "masked_scatter_":
        return Step(kind, f"{x}.masked_scatter_({g.mask(x)}, {g.make(dtype, (max(t.numel(), 1),))})", writes=[x])
    if kind == "setitem_index":
        return Step(kind, f"{x}[{':, ' * dim}{g.index((3,), size)}] = {g.number(x)}", writes=[x])
    add = kind == "index_put_add"
    index = g.index((3 if add else 1,), t.shape[0])
    values = g.make(dtype, [3 if add else 1, *t.shape[1:]])
    return Step(kind, f"{x}.index_put_(({index},), {values}, accumulate={add})", writes=[x])


@family(6)
def join(g):
    x, y = g.pick(lambda t: t.dim() > 0), g.fresh()
    kind = g.choose(["cat", "cat", "stack", "pad", "diag_embed", "hstack", "where_one", "cdist"])
    if kind == "cat":
        dim = int(g.dim(x))
        others = [g.pick_like(x, dim) for _ in range(g.rng.randint(1, 2))]
        return Step(kind, f"{y} = torch.cat([{', '.join([x, *others])}], {dim})", [y])
    if kind in ("stack", "hstack"):
        return Step(kind, f"{y} = torch.{kind}([{x}, {g.pick_like(x)}])", [y])
    if kind == "pad":
        sizes = [g.rng.randint(-1, 2) for _ in range(2 * g.rng.randint(1, g.tensor(x).dim()))]
        return Step(kind, f"{y} = F.pad({x}, {sizes}, value={g.number(x)})", [y])
    if kind == "diag_embed":
        return Step(kind, f"{y} = torch.diag_embed({x})", [y])
    if kind == "cdist":
        x = g.pick(lambda t: t.dim() == 2 and t.is_floating_point())
        return Step(kind, f"{y} = torch.cdist({x}, {x})", [y])
    return Step(kind, f"{y} = torch.where({x} > 0, {x}, {x}.new_zeros(()))", [y])


@family(7)
def product(g):
    x = g.pick(lambda t: t.dim() in (1, 2, 3))
    t, y, dtype, rng = g.tensor(x), g.fresh(), g.type(x), g.rng
    kind = g.choose(["matmul", "matmul", "linear", "addmm", "outer", "einsum", "bmm"])
    width = rng.randint(1, 5)
    if kind == "matmul":
        return Step(kind, f"{y} = {x} @ {g.pick_or_make(dtype, [*t.shape[:-2], t.shape[-1], width])}", [y])
    if kind == "linear":
        bias = f", {g.make(dtype, (width,))}" if g.chance(0.5) else ""
        return Step(kind, f"{y} = F.linear({x}, {g.make(dtype, (width, t.shape[-1]))}{bias})", [y])
    if kind == "addmm":
        x = g.pick(lambda t: t.dim() == 2)
        t, dtype = g.tensor(x), g.type(x)
        other = g.make(dtype, (t.shape[1], width))
        return Step(kind, f"{y} = torch.addmm({g.make(dtype, (width,))}, {x}, {other}, beta=0.5, alpha=2)", [y])
    if kind == "outer":
        x = g.pick(lambda t: t.dim() == 1)
        return Step(kind, f"{y} = torch.outer({x}, {x})", [y])
    if kind == "bmm":
        x = g.pick(lambda t: t.dim() == 3)
        return Step(kind, f"{y} = torch.bmm({x}, {x}.mT)", [y])
    x = g.pick(lambda t: t.dim() == 2)
    return Step(kind, f"{y} = torch.einsum('ij,kj->ik', {x}, {x})", [y])


@family(5)
def layer(g):
    x = g.pick(lambda t: t.is_floating_point() and t.dim() >= 2)
    t, y, dtype = g.tensor(x), g.fresh(), g.type(x)
    kind = g.choose("layer_norm batch_norm conv1d conv2d max_pool1d avg_pool1d avg_pool2d interpolate mse_loss "
                    "cross_entropy smooth_l1 bce group_norm".split())  # fmt: skip
    if kind == "layer_norm":
        return Step(kind, f"{y} = F.layer_norm({x}, ({t.shape[-1]},))", [y])
    if kind == "batch_norm":
        return Step(kind, f"{y} = F.batch_norm({x}, None, None, training=True)", [y])
    if kind == "group_norm":
        return Step(kind, f"{y} = F.group_norm({x}, 1)", [y])
    if kind in ("conv1d", "conv2d"):
        n = int(kind[4])
        if t.dim() not in (n + 1, n + 2):
            x = g.make("float32", (2, 3, *[6] * n))
            dtype, t = "float32", g.tensor(x)
        weight = g.make(dtype, (2, t.shape[-n - 1], *[min(3, s) for s in t.shape[-n:]]))
        return Step(kind, f"{y} = F.{kind}({x}, {weight}, padding=1)", [y])
    if kind == "interpolate":
        x = g.make("float32", (1, 2, 4, 5))
        mode = g.choose(["nearest", "bilinear", "area"])
        return Step(kind, f"{y} = F.interpolate({x}, scale_factor=2, mode='{mode}')", [y])
    if kind.endswith(("pool1d", "pool2d")):
        return Step(kind, f"{y} = F.{kind}({x}, 2)", [y])
    if kind == "cross_entropy":
        x = g.pick(lambda t: t.is_floating_point() and t.dim() == 2 and t.numel() > 0)
        target = g.index((g.tensor(x).shape[0],), g.tensor(x).shape[1])
        return Step(kind, f"{y} = F.cross_entropy({x}, {target}, reduction='{g.choose(['mean', 'sum', 'none'])}')", [y])
    if kind == "bce":
        target = g.make(dtype, list(t.shape), "unit")
        return Step(kind, f"{y} = F.binary_cross_entropy_with_logits({x}, {target})", [y])
    name = {"mse_loss": "mse_loss", "smooth_l1": "smooth_l1_loss"}[kind]
    target, reduction = g.make(dtype, list(t.shape)), g.choose(["mean", "none"])
    return Step(kind, f"{y} = F.{name}({x}, {target}, reduction='{reduction}')", [y])


@family(4)
def lists(g):
    x = g.writable()
    memory = lambda name: (g.tensor(name).untyped_storage()._cdata, g.type(name))  # noqa: E731
    others = list(dict.fromkeys([x, g.writable(), g.writable()]))
    # No memory as two dtypes: bits of NaN would be numbers.
    kept = {memory(name)[0]: memory(name)[1] for name in reversed(others)}
    others = [name for name in others if kept[memory(name)[0]] == g.type(name)]
    kind = g.choose(["_foreach_add_", "_foreach_mul_", "_foreach_abs_", "_foreach_sqrt_", "_foreach_neg_"])
    number = f", {g.number(x)}" if kind in ("_foreach_add_", "_foreach_mul_") else ""
    return Step(kind, f"torch.{kind}([{', '.join(others)}]{number})", writes=others)


@family(3)
def make(g):
    y, rng = g.fresh(), g.rng
    kind = g.choose(["arange", "full", "eye", "linspace", "zeros_like", "full_like", "new_full"])
    x = g.pick()
    if kind == "arange":
        return Step(kind, f"{y} = torch.arange({rng.randint(0, 9)}, dtype={g.dtype()}, device=d)", [y])
    if kind == "full":
        return Step(kind, f"{y} = torch.full({g.shape()}, {g.number(x)}, dtype={g.dtype()}, device=d)", [y])
    if kind == "eye":
        return Step(
            kind, f"{y} = torch.eye({rng.randint(0, 4)}, {rng.randint(0, 4)}, dtype={g.dtype()}, device=d)", [y]
        )
    if kind == "linspace":
        return Step(kind, f"{y} = torch.linspace(-2, 3, {rng.randint(0, 7)}, dtype={g.dtype()}, device=d)", [y])
    if kind == "zeros_like":
        return Step(kind, f"{y} = torch.zeros_like({x})", [y])
    call = f"torch.full_like({x}, " if kind == "full_like" else f"{x}.new_full((2, 3), "
    return Step(kind, f"{y} = {call}{g.number(x)})", [y])
