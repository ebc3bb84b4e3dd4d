"""Each function of the table as an operation of a graph: gradients against differences, vmap against a loop.

HEADRACE_TEST_ROWS=all adds gradients and vmap of complex numbers, and gradients at other numbers (`make rows`).
A row that ROWS lacks has f64 inputs of 3 x 4. Rows without a gradient or a vmap are listed with the words of the error,
so that a change of either fails.
"""

import os
import re
from pathlib import Path

import headrace as hr
import numpy as np
import pytest

TABLE = Path(__file__).resolve().parents[3] / "src/functional/functional.def"
SLICES = 3
WINDOW = "window=[2, 2], stride=[1, 2], padding=[1, 0]"
CONV = "stride=[2, 1], before=[1, 0], after=[0, 1], dilation=[1, 2]"
SIDES = "before=[1, 2], after=[2, 0]"
STEPS = "d34 d34 d34 d"  # parameter, gradient, state, rate
STEPS2 = "d34 d34 d34 d34 d"
MATRIX = "m33"

# Of each row its attributes and inputs: a dtype or range, dims, and behind a colon the bound of integers. In capitals:
# not differentiated, - is absent. See `elements`.
ROWS = {
    "fmod": ("", "t34 d34"),
    "remainder": ("", "t34 d34"),
    "floor_divide": ("", "t34 d34"),
    "divmod": ("", "t34 d34"),
    "pow": ("", "d34 s34"),
    "gcd": ("", "i34:20 i34:20"),
    "lcm": ("", "i34:20 i34:20"),
    "sign": ("", "s34"),
    "abs": ("", "s34"),
    "clip": ("", "t34 s34 d34"),
    "ldexp": ("", "s34 i34:4"),
    "nextafter": ("", "d34 d34"),
    "angle": ("", "c34"),
    "conj": ("", "c34"),
    "real": ("", "c34"),
    "imag": ("", "c34"),
    "acosh": ("", "g34"),
    "lgamma": ("", "d34"),
    "polygamma": ("", "I34:3 d34"),
    "zeta": ("", "G34 d34"),
    "gammainc": ("", "D34 d34"),
    "gammaincc": ("", "D34 d34"),
    "log_ndtr": ("", "t34"),
    **{f"chebyshev_{kind}": ("", "d34 I34:5") for kind in "tuvw"},
    **{f"shifted_chebyshev_{kind}": ("", "d34 I34:5") for kind in "tuvw"},
    "hermite_h": ("", "s34 I34:5"),
    "hermite_he": ("", "s34 I34:5"),
    "laguerre": ("", "d34 I34:5"),
    "legendre": ("", "s34 I34:5"),
    "spherical_j0": ("", "g34"),
    **{name: ("", "t34") for name in (
        "sigmoid relu silu gelu softshrink hard_shrink threshold step relu2 relu6 leaky_relu elu celu selu hard_tanh "
        "hard_sigmoid hardswish softplus softsign mish log_sigmoid glu tanh sinh cosh sin cos atan asinh erf erfc "
        "erfcx round floor ceil trunc frac modf frexp").split()},
    "prelu": ("", "t34 d4"),
    "where": ("", "b34 d34 d34"),
    "isin": ("", "i34:5 i4:5"),
    **{name: ("", "i34:99 i34:99") for name in "bitwise_and bitwise_or bitwise_xor hamming_distance".split()},
    **{name: ("", "i34:99 i34:8") for name in "bitwise_left_shift bitwise_right_shift".split()},
    **{name: ("", "i34:99") for name in "bitwise_invert popcount leading_zeros".split()},
    **{name: ("axis=[1]", "s34") for name in (
        "sum prod max min any all mean logsumexp var std argmax argmin count_nonzero ptp median quantile vector_norm "
        "nansum nanprod nanmax nanmin nanmean nanvar nanstd").split()},
    **{name: ("axis=0", "s34") for name in (
        "softmax log_softmax softmin cumulative_sum cumulative_prod cumulative_max cumulative_min logcumsumexp diff "
        "trapezoid sort argsort").split()},
    "topk": ("k=2, axis=0", "s34"),
    "matmul": ("", "s234 s45"),
    "einsum": ("equation=\"bij,jk,b->kb\"", "s234 s45 s2"),
    "tensordot": ("x_axes=[1], y_axes=[0]", "s34 s45"),
    "vecdot": ("", "s34 s34"),
    "inner": ("", "s34 s54"),
    "outer": ("", "s3 s4"),
    "kron": ("", "s23 s32"),
    "cross": ("axis=0", "s34 s34"),
    "trace": ("offset=1", "s34"),
    "cov": ("", "s34"),
    "conv": (f"{CONV}, groups=2", "s2455 s4232 s4"),
    "conv_general": (f"{CONV}, input_dilation=[2, 1], layout=\"b01f,01io->b01f\", flip=true", "s2453 s3234 s4"),
    "conv_transpose": (CONV, "s2344 s3232"),
    "attention": ("causal=true, soft_cap=2.0, offset=1", "s2434 s2254 s2253 s35"),
    **{name: ("n=[5], axis=0", "s34") for name in "rfft ihfft".split()},
    **{name: ("n=[5], axis=0", "c34") for name in "fft ifft irfft hfft".split()},
    **{name: ("s=[5, 3], axes=[0, 1]", "c34") for name in "fftn ifftn irfftn".split()},
    "rfftn": ("s=[5, 3], axes=[0, 1]", "s34"),
    **{name: ("", MATRIX) for name in (
        "inv det slogdet lu lu_factor geqrf qr svdvals eig eig_ex schur hessenberg tridiagonal eigvals").split()},
    **{name: ("", "h33") for name in "cholesky cholesky_ex eigh eigh_ex eigvalsh".split()},
    "svd": ("full_matrices=false", MATRIX),
    "svd_ex": ("full_matrices=false", MATRIX),
    "solve": ("", "m33 s32"),
    "solve_triangular": ("upper=true", "m33 s32"),
    "lu_permutation": ("rows=4", "p3"),
    "geqp3": ("", "m33 Z3"),
    "householder_product": ("", "s43 d3"),
    "ormqr": ("", "S43 D3 s42"),
    "tridiagonal_solve": ("", "d4 v4 d4 s42"),
    "layer_norm": ("", "s34 d4 s4"),
    "rms_norm": ("", "s34 d4"),
    "batch_norm": ("", "s34 s4 d4 d4 s4"),
    "batch_norm_training": ("", "s54 d4 s4"),
    "group_norm": ("groups=2", "s243 d4 s4"),
    "local_response_norm": ("size=3, alpha=0.5", "s253"),
    "rotary": ("", "s234 s32 s32"),
    **{name: ("", STEPS) for name in "lion_update rmsprop_update adagrad_update".split()},
    "sgd_update": ("momentum=0.9, weight_decay=0.1, nesterov=true", STEPS),
    "adam_update": ("weight_decay=0.1", f"{STEPS2} g"),
    "adamax_update": ("", STEPS2),
    "adadelta_update": ("", STEPS2),
    "cross_entropy": ("label_smoothing=0.1, reduction=\"mean\"", "s34 i3:4 d3"),
    "binary_cross_entropy": ("", "s34 d34 d34"),
    "nll_loss": ("", "s34 i3:4"),
    **{name: ("reduction=\"none\"", "s34 s34") for name in (
        "mse_loss l1_loss smooth_l1_loss huber_loss hinge_loss log_cosh_loss cosine_similarity_loss").split()},
    "kl_div_loss": ("", "s34 s34"),
    "gaussian_nll_loss": ("", "s34 s34 d34"),
    "triplet_loss": ("", "s34 s34 s34"),
    "margin_ranking_loss": ("margin=0.5", "s34 s34 s34"),
    "max_pool": (f"{WINDOW}, ceil=true", "s2355"),
    "avg_pool": (f"{WINDOW}, count_padding=false", "s2355"),
    "max_pool_places": (WINDOW, "s2355"),
    "max_unpool": ("shape=[4, 4], mode=\"add\"", "s2322 i2322:16"),
    "max_pool_gradient": ("shape=[4, 4], window=[2, 2], stride=[2, 2], padding=[0, 0]", "s2322 w2322"),
    "lp_pool": (f"{WINDOW}, p=3", "d2355"),
    "stencil": ("before=[1, 0], after=[0, 1]", "s245 s23"),
    "reduce_window": ("window=[2, 3], stride=[1, 2], before=[1, 0], mode=\"sum\"", "s55"),
    "rnn": ("", "s242 s32 s33 s3 s23 j2:4"),
    "gru": ("", "s242 s62 s62 s6 s6 s22 j2:4"),
    "lstm": ("", "s242 s82 s82 s8 s22 s22 s6 j2:4"),
    "rnn_cell": ("", "s22 s32 s33 s3 s23"),
    "gru_cell": ("reset_before=true", "s22 s62 s62 s6 s6 s22"),
    "lstm_cell": ("", "s22 s82 s82 s8 s22 s22 s6"),
    "interpolate": ("axes=[1, 2], sizes=[5, 3], mode=\"cubic\"", "s234"),
    "grid_sample": ("", "s2244 s2332"),
    "broadcast_to": ("shape=[2, 3, 4]", "s34"),
    "permute_dims": ("axes=[1, 0]", "s34"),
    "expand_dims": ("axis=[1]", "s34"),
    "squeeze": ("axis=[1]", "s314"),
    "flip": ("axis=[0]", "s34"),
    "slice": ("begin=[2, 1], count=[2, 2], step=[-1, 2]", "s34"),
    "broadcast_arrays": ("", "s34 s4"),
    "meshgrid": ("", "s3 s4"),
    "unstack": ("axis=1", "s34"),
    "array_split": ("axis=1, sections=2", "s34"),
    "diagonal": ("offset=1", "s34"),
    "as_strided": ("shape=[2, 3], strides=[1, 2], offset=1", "s34"),
    "reshape": ("shape=[2, -1]", "s34"),
    "astype": ("dtype=f32", "i34:9"),
    "bitcast": ("dtype=i64", "s34"),
    "concat": ("axis=1", "s34 s32"),
    "stack": ("axis=1", "s34 s34"),
    "pad": ("before=[1, -1], after=[0, 2], value=2.0, interior=[1, 0]", "s34"),
    **{name: (SIDES, "s34") for name in "pad_reflect pad_edge pad_symmetric".split()},
    "pad_wrap": (f"{SIDES}, alternate=true", "s34"),
    "tile": ("repetitions=[2, 1]", "s34"),
    "repeat": ("repeats=2", "s34"),
    "roll": ("shift=1, axis=1", "s34"),
    "diag": ("k=1", "s4"),
    "band_part": ("lower=1, upper=0", "s34"),
    "space_to_depth": ("blocks=[2, 2]", "s2344"),
    "depth_to_space": ("blocks=[2, 2]", "s2822"),
    "im2col": ("window=[2, 2], before=[1, 0]", "s2344"),
    "col2im": ("shape=[3, 4], window=[2, 2]", "s286"),
    "take": ("axis=1", "s34 i23:4"),
    "take_along_axis": ("axis=1", "s34 i32:4"),
    "index": ("axes=[0, 1]", "s342 i23:3 i3:4"),
    "index_put": ("axes=[1], mode=\"add\"", "s34 s32 i2:4"),
    "put_along_axis": ("axis=1, mode=\"add\"", "s34 i32:4 s32"),
    "gather_nd": ("batch_dims=1", "s345 i321:4"),
    "scatter_nd": ("mode=\"add\"", "s34 i22:3 s2"),
    "gather_slices": ("sizes=[2, 2], map=[0, 1], window=[1, 2]", "s45 i32:3"),
    "scatter_slices": ("map=[0, 1], window=[1, 2], mode=\"add\"", "s45 i32:3 s322"),
    "index_add": ("alpha=2.0, axis=1", "s34 i2:4 s32"),
    "slice_update": ("begin=[0, 1], count=[2, 2], step=[2, 1], mode=\"add\"", "s34 s22"),
    "dynamic_slice": ("sizes=[2, 2]", "s34 i2:3"),
    "dynamic_slice_update": ("", "s34 s22 i2:3"),
    "masked_fill": ("", "s34 b34 s"),
    "masked_scatter": ("", "s34 b34 s9"),
    "searchsorted": ("", "o5 s34"),
    "digitize": ("", "s34 o5"),
    "bincount": ("length=5", "i9:5 s9"),
    "histogram": ("", "s34"),
    "nonzero": ("size=5", "b34"),
    "compress": ("axis=1", "b4 s34"),
    "unique": ("", "i34:5"),
    "non_max_suppression": ("most=2, overlap=0.5", "f264 f236"),
    "quantize": ("group_size=32, bits=4", "f4W -"),
    "dequantize": ("group_size=32, bits=4", "u44 f41 f41 -"),
    "quantized_matmul": ("group_size=32, bits=4", "f2W u44 f41 f41"),
    "gather_mm": ("", "s234 s345 i2:2 i2:3"),
    "gather_qmm": ("group_size=32, bits=4", "f22W u344 f341 f341 i2:2 i2:3"),
    "qqmm": ("", "f2W f4W - - -"),
    "quantize_linear": ("", "f34 f4 y4"),
    "dequantize_linear": ("", "y34 f4 y4"),
    "dynamic_quantize_linear": ("", "f34"),
    "matmul_integer": ("", "y34 y45 y y"),
    "conv_integer": (CONV, "y2355 y4332 y y"),
    "to_fp8": ("", "f34"),
    "from_fp8": ("dtype=f32", "y34"),
    "sparse_matmul": ("count=4", "s5 i5:4 i5:3 s32"),
    "sparse_to_dense": ("shape=[4, 3]", "s5 i5:4 i5:3"),
    "full": ("shape=[2, 3]", "s"),
    "arange": ("stop=5", ""),
    "eye": ("rows=3", ""),
    "linspace": ("num=5", ""),
    "key": ("seed=7", ""),
    "split": ("num=3", "k2"),
    "fold_in": ("data=3", "k2"),
    **{name: ("shape=[3, 4]", "k2") for name in (
        "random_bits uniform normal truncated_normal gumbel exponential laplace").split()},
    "generator_bits": ("shape=[3, 4]", "e2"),
    "threefry": ("", "k k k34 k34"),
    "bernoulli": ("shape=[3, 4]", "k2 d34"),
    "randint": ("shape=[3, 4], high=9", "k2"),
    "categorical": ("", "k2 s34"),
    "permutation": ("", "k2 s34"),
}  # fmt: skip

# Rows whose gradient is an error, with its words, and results of others that have one.
NO_GRADIENT = {
    "nextafter": "the next number is no function with a derivative",
    "airy_ai": "no row computes the derivative",
    "geqrf": "qr has no gradient of output 1",
    "geqp3": "qr_pivoted has no gradient of output 2",
    "qr": "qr has no gradient of output 1",  # hr.linalg.qr of arrays has one
    "hessenberg": "hessenberg has no gradient of output 1",
    "tridiagonal": "tridiagonal has no gradient of output 1",
    "schur": "schur has no gradient of output 1",
}
GRADIENT_OF = {"eig_ex": [0, 1], "tridiagonal_solve": [0], "quantize": []}
# Results that do not depend on the phase of complex vectors; eig has such vectors of real matrices, too.
COMPLEX_GRADIENT_OF = {"eig": [0], "eig_ex": [0], "svd": [1], "svd_ex": [1]}
# Rows without a gradient by complex numbers, with the words of the error.
NO_COMPLEX_GRADIENT = {name: "no library of this device does it" for name in ("cumulative_max", "cumulative_min")}
NO_SECOND_COMPLEX_GRADIENT = {"logcumsumexp"}  # NaN
NO_COMPLEX_VMAP = {"cumulative_max", "cumulative_min", "searchsorted", "digitize"}  # no library orders them
EVERY_CASE = os.environ.get("HEADRACE_TEST_ROWS") == "all"
NO_VMAP = {"compress", "unique", "non_max_suppression"}

RANGES = {"d": (0.1, 0.9), "s": (-0.9, 0.9), "t": (-3, 3), "g": (1.1, 1.9), "v": (4, 5), "f": (-0.9, 0.9)}
DTYPES = {"f": "f32", "c": "c128", "b": "bool", "u": "u32", "k": "u32", "e": "u64", "y": "u8", "p": "i32", "z": "i32"}
DTYPES |= {letter: "f64" for letter in "dstgvmho"} | {letter: "i64" for letter in "ijw"}
NUMPY = {"f64": np.float64, "f32": np.float32, "c128": np.complex128, "bool": np.bool_, "u32": np.uint32}
NUMPY |= {"u64": np.uint64, "u8": np.uint8, "i32": np.int32, "i64": np.int64, "c64": np.complex64}


class Input:
    """One input: f64 in a range, a matrix (m), a positive-definite one (h), increasing numbers (o), integers, ..."""

    def __init__(self, text):
        body, _, bound = text.partition(":")
        self.letter, self.bound = body[0].lower(), int(bound or 0)
        self.dims = tuple(32 if c == "W" else int(c) for c in body[1:])
        self.dtype = DTYPES.get(self.letter)  # None: absent
        self.is_active = body[0].islower() and self.dtype in ("f64", "c128")
        self.is_complex = False

    def make_complex(self):
        """Real numbers that are differentiated get imaginary parts."""
        self.is_complex = self.is_active and self.letter in "dstgvm"
        self.dtype = "c128" if self.is_complex else self.dtype

    def direction(self, x):
        """A change of the elements: symmetric for matrices of which a row reads one triangle."""
        return (x + np.swapaxes(x, -1, -2)) / 2 if self.letter == "h" else x

    def elements(self, rng):
        return self.reals(rng) + 1j * self.reals(rng) if self.is_complex else self.reals(rng)

    def reals(self, rng):
        letter, dims = self.letter, self.dims
        if letter in RANGES:
            return np.asarray(rng.uniform(*RANGES[letter], dims), NUMPY[DTYPES[letter]])
        if letter in "mh":
            x = rng.uniform(-1, 1, dims) + np.diag(np.arange(2.0, dims[-1] + 2))
            return self.direction(x) if letter == "h" else x
        if letter == "o":
            return np.sort(rng.uniform(-1, 1, dims), axis=-1)
        if letter == "c":
            return rng.uniform(-1, 1, dims) + 1j * rng.uniform(-1, 1, dims)
        if letter == "p":
            return np.arange(1, dims[0] + 1, dtype=np.int32)[::-1].copy()
        if letter == "w":  # the first place of each window of 2 x 2 in a plane of 4 x 4
            return np.broadcast_to(np.array([[0, 2], [8, 10]]), dims).copy()
        if letter == "z":
            return np.zeros(dims, np.int32)
        bound = self.bound or {"b": 2, "u": 2**32, "k": 2**32, "e": 2**32, "y": 200}[letter]
        return np.asarray(rng.integers(1 if letter == "j" else 0, bound, dims), NUMPY[self.dtype])


def read_table():
    """The names of all rows, and how many inputs each needs."""
    text = TABLE.read_text()
    found = re.findall(r'^HR_FUNCTIONAL\(\w+, (\w+), \w+, \w+,\s+(NO_INPUTS|MANY|INPUTS\(([^)]*)\))', text, re.M)
    assert len(found) == len(re.findall(r"^HR_FUNCTIONAL\(", text, re.M))
    return {name: sum("?" not in one for one in inputs.split(",")) for name, _, inputs in found}


TABLE_ROWS = read_table()


def read_row(name):
    attributes, inputs = ROWS.get(name, ("", " ".join(["d34"] * TABLE_ROWS[name])))
    return attributes, [Input(one) for one in inputs.split()]


class Row:
    """A row as a graph's text, with elements for its inputs."""

    def __init__(self, name, is_complex=False, seed=0):
        self.name, self.has_phase = name, is_complex or (name in ("eig", "eig_ex") and seed > 0)
        self.attributes, self.inputs = read_row(name)
        for one in self.inputs if is_complex else ():
            one.make_complex()
        rng = np.random.default_rng(sum(map(ord, name)) + 1000 * seed)
        self.values = {f"x{i}": one.elements(rng) for i, one in enumerate(self.inputs) if one.dtype}
        self.active = [f"x{i}" for i, one in enumerate(self.inputs) if one.is_active]
        self.infer()

    def declare(self, leading=None):
        """Inputs, those of `leading` with a dim more."""
        return [
            f"input %x{i} {x.dtype}[{', '.join(str(d) for d in ((SLICES,) if i in (leading or ()) else ()) + x.dims)}]"
            for i, x in enumerate(self.inputs)
            if x.dtype
        ]

    def call(self):
        arguments = [f"%x{i}" if x.dtype else "_" for i, x in enumerate(self.inputs)]
        return f"{self.name}({', '.join(arguments + [self.attributes] * bool(self.attributes))})"

    def infer(self):
        """Finds the dtype and dims of each result."""
        text = str(hr.Graph.parse("\n".join(["graph 1", *self.declare(), f"%0 = {self.call()}", "output y = %0", ""])))
        found = re.search(rf"^%0.* = {self.name}\(.*;(.*)$", text, re.M).group(1)
        self.results = re.findall(r"(\w+)\[([^\]]*)\]", found)
        if "?" in found:
            results = zip(self.results, run_row(self, self.values))
            self.results = [(dtype, ", ".join(map(str, y.shape))) for (dtype, _), y in results]

    def differentiable(self):
        """The results of which a gradient is taken."""
        chosen = GRADIENT_OF.get(self.name, range(len(self.results)))
        chosen = COMPLEX_GRADIENT_OF.get(self.name, chosen) if self.has_phase else chosen
        return [i for i in chosen if self.results[i][0] in ("f64", "c128")] if self.active else []

    def names(self):
        return [f"%{i}" for i in range(len(self.results))]


# ---- gradients


class Text:
    """Lines of a graph, and the elements of inputs that weigh results."""

    def __init__(self, row):
        self.rng, self.weights = np.random.default_rng(1), {}
        self.lines, self.count = [f"{', '.join(row.names())} = {row.call()}"], len(row.results)

    def add(self, line):
        self.lines.append(f"%{self.count} = {line}")
        self.count += 1
        return f"%{self.count - 1}"

    def weigh(self, values):
        """The sum of real parts of values, (name, dtype, dims), times random numbers."""
        terms = []
        for name, dtype, dims in values:
            weight = f"s{len(self.weights)}"
            size = tuple(int(d) for d in dims.split(",") if d.strip())
            self.weights[weight] = self.rng.uniform(-1, 1, size)
            self.lines.insert(0, f"input %{weight} {dtype}[{dims}]")
            if dtype == "c128":
                self.weights[weight] = self.weights[weight] + 1j * self.rng.uniform(-1, 1, size)
            product = self.add(f"multiply({name}, %{weight})")
            terms.append(self.add(f"sum({self.add(f'real({product})') if dtype == 'c128' else product})"))
        total = terms[0]
        for term in terms[1:]:
            total = self.add(f"add({total}, {term})")
        return total


def build_gradient(row, order):
    """A session of a sum of the results, or with order 2 of their gradients, and of its gradients by the inputs."""
    text = Text(row)
    kinds = {f"x{i}": (x.dtype, ", ".join(map(str, x.dims))) for i, x in enumerate(row.inputs)}
    loss = text.weigh([(f"%{i}", *row.results[i]) for i in row.differentiable()])
    for level in range(order):
        first, text.count = text.count, text.count + len(row.active)
        names = [f"%{first + i}" for i in range(len(row.active))]
        text.lines.append(f"{', '.join(names)} = gradient({loss}, {', '.join('%' + x for x in row.active)})")
        if level + 1 < order:
            loss = text.weigh([(name, *kinds[x]) for name, x in zip(names, row.active)])
    outputs = [f"output loss = {loss}", *(f"output {x} = {name}" for x, name in zip(row.active, names))]
    session = hr.Session(hr.Graph.parse("\n".join(["graph 1", *row.declare(), *text.lines, *outputs, ""])))
    return lambda values: {key: np.asarray(y) for key, y in session(**values, **text.weights).items()}


def expect_difference(row, order, step=1e-5):
    run, rng = build_gradient(row, order), np.random.default_rng(2)
    gradients, along, whole, ends = run(row.values), {}, 0, []
    for x in row.active:
        v = row.inputs[int(x[1:])].direction(rng.uniform(-1, 1, row.values[x].shape))
        along[x] = v + 1j * rng.uniform(-1, 1, v.shape) if np.iscomplexobj(row.values[x]) else v
        whole += np.real(np.conj(gradients[x]) * along[x]).sum()
    for sign in (1, -1):
        moved = {x: np.asarray(row.values[x] + sign * step * v, row.values[x].dtype) for x, v in along.items()}
        ends.append(run({**row.values, **moved})["loss"].item())
    np.testing.assert_allclose(whole, (ends[0] - ends[1]) / (2 * step), 1e-6, 1e-7 * max(1, abs(ends[0])))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", TABLE_ROWS)
def test_gradients(name, order):
    row = Row(name)
    if name in NO_GRADIENT:
        with pytest.raises(TypeError, match=NO_GRADIENT[name]):
            expect_difference(row, order)
    elif row.differentiable():
        expect_difference(row, order)


def complex_row(name):
    """The row with complex inputs; skipped if it has none, or is a function of real numbers alone."""
    try:
        row = Row(name, is_complex=True)
    except (TypeError, ValueError) as error:
        pytest.skip(str(error))
    if not any(x.is_complex for x in row.inputs):
        pytest.skip("no input is differentiated")
    return row


@pytest.mark.skipif(not EVERY_CASE, reason="make rows")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", [name for name in TABLE_ROWS if name not in NO_GRADIENT])
def test_gradients_of_complex_numbers(name, order):
    row = complex_row(name)
    if name in NO_COMPLEX_GRADIENT:
        with pytest.raises(TypeError, match=NO_COMPLEX_GRADIENT[name]):
            expect_difference(row, order)
    elif row.differentiable() and not (order == 2 and name in NO_SECOND_COMPLEX_GRADIENT):
        expect_difference(row, order)


@pytest.mark.skipif(not EVERY_CASE, reason="make rows")
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("name", [name for name in TABLE_ROWS if name not in {*NO_GRADIENT, "compress"}])
def test_gradients_at_other_numbers(name, seed):
    row = Row(name, seed=seed)
    if row.differentiable():
        expect_difference(row, 1)


# ---- vmap


def run_row(row, values):
    outputs = [f"output y{i} = %{i}" for i in range(len(row.results))]
    lines = ["graph 1", *row.declare(), f"{', '.join(row.names())} = {row.call()}", *outputs, ""]
    session = hr.Session(hr.Graph.parse("\n".join(lines)))
    return [np.asarray(y) for y in session.run(None, values)]


def run_vmap(row, values, mapped):
    count = len(row.results)
    inner = ["function @0 {", *row.declare(), f"{', '.join(row.names())} = {row.call()}"]
    inner += [f"output y{i} = %{i}" for i in range(count)] + ["}"]
    given = [i for i, x in enumerate(row.inputs) if x.dtype]
    arguments = ", ".join(f"%x{i}" for i in given)
    axes = ", ".join("0" if i in mapped else "_" for i in given)
    call = f"{', '.join(row.names())} = vmap(@0, {arguments}, in=[{axes}], out=[{', '.join('0' * count)}])"
    outer = [*row.declare(mapped), call, *(f"output y{i} = %{i}" for i in range(count)), ""]
    session = hr.Session(hr.Graph.parse("\n".join(["graph 2", *inner, *outer])))
    return [np.asarray(y) for y in session.run(None, values)]


def expect_loop(row, mapped):
    """The row for all slices of some inputs has the results of a loop."""
    rngs = [np.random.default_rng(7 + i) for i in range(SLICES)]
    slices = {f"x{i}": [row.inputs[i].elements(rng) for rng in rngs] for i in mapped}
    got = run_vmap(row, row.values | {x: np.stack(values) for x, values in slices.items()}, mapped)
    for k in range(SLICES):
        wanted = run_row(row, row.values | {x: values[k] for x, values in slices.items()})
        for y, z in zip(got, wanted, strict=True):
            bounds = (1e-5, 1e-5) if z.dtype == np.float32 else (1e-11, 1e-12)
            np.testing.assert_allclose(y[k], z, *bounds, err_msg=f"slice {k}")


@pytest.mark.parametrize("name", [name for name in TABLE_ROWS if read_row(name)[1]])
def test_vmap(name):
    row = Row(name)
    given = [i for i, x in enumerate(row.inputs) if x.dtype]
    for mapped in [given, *([i] for i in given if len(given) > 1)]:
        if name in NO_VMAP:
            with pytest.raises(ValueError, match=f"vmap: the size of {name} .* differs between slices"):
                expect_loop(row, mapped)
        else:
            expect_loop(row, mapped)


@pytest.mark.skipif(not EVERY_CASE, reason="make rows")
@pytest.mark.parametrize("name", [name for name in TABLE_ROWS if read_row(name)[1] and name not in NO_VMAP])
def test_vmap_of_complex_numbers(name):
    row = complex_row(name)
    given = [i for i, x in enumerate(row.inputs) if x.dtype]
    if name not in NO_COMPLEX_VMAP:
        for mapped in [given, *([i] for i in given if len(given) > 1)]:
            expect_loop(row, mapped)
