"""NumPy's names beyond the array API standard: each function on arrays of several dtypes against numpy's own
results."""

import re
import subprocess
import sys

import numpy as np
import pytest

import headrace as hr

RANDOM = np.random.default_rng(0)
NAN = float("nan")
DATA = {
    "v": RANDOM.standard_normal(7),
    "w": RANDOM.standard_normal(4),
    "m": RANDOM.standard_normal((3, 4)),
    "square": RANDOM.standard_normal((4, 4)),
    "t": RANDOM.standard_normal((2, 3, 4)),
    "f32": RANDOM.standard_normal((3, 4)).astype(np.float32),
    "i": RANDOM.integers(-5, 6, 9),
    "im": RANDOM.integers(-3, 4, (3, 4)),
    "small": RANDOM.integers(0, 4, 9),
    "u8": RANDOM.integers(0, 256, (2, 5)).astype(np.uint8),
    "i8": RANDOM.integers(-128, 128, 12).astype(np.int8),
    "b": RANDOM.integers(0, 2, (3, 4)).astype(bool),
    "bv": np.array([True, False, False, True, True, False, True]),
    "c": RANDOM.standard_normal(6) + 1j * RANDOM.standard_normal(6),
    "cm": RANDOM.standard_normal((4, 4)) + 1j * RANDOM.standard_normal((4, 4)),
    "nan": np.array([[1.5, NAN, 3.0, -2.0], [NAN, NAN, 0.5, 1.0], [4.0, 2.0, 2.0, NAN]]),
    "rising": np.array([-1.0, 0.0, 0.5, 1.5]),
    "places": np.sort(RANDOM.uniform(0, 5, 7)),
    "weights": RANDOM.uniform(0.5, 2, 7),
    "empty": np.zeros((0,)),
    "empty2": np.zeros((0, 3)),
    "zero": np.array(2.5),
    "angles": np.cumsum(RANDOM.uniform(-4, 4, (3, 8)), axis=1),
    "zeros": np.array([0.0, 0, 1, 2, 0, 3, 0]),
    "zeros2": np.pad(np.ones((2, 3)), ((1, 2), (0, 1))),
}


# A case is a name and arguments; "name:case" names several of a function. Texts behind $ are arrays of DATA.
def case(name, *args, **kwargs):
    return name, args, kwargs


UNARY = {
    "absolute amax amin around conjugate fix ravel ndim shape size copy": ["im", "m", "t"],
    "bitwise_not invert": ["im", "b", "u8"],
    "arcsinh arctan deg2rad rad2deg rint fabs spacing angle real imag iscomplex isreal nan_to_num": ["m", "im", "f32"],
    "conjugate angle real imag iscomplex isreal iscomplexobj isrealobj": ["c", "m"],
    "atleast_1d atleast_2d atleast_3d ravel transpose argwhere flatnonzero": ["zero", "v", "m", "t", "empty2", "b"],
    "fliplr flipud rot90 tril_indices_from triu_indices_from": ["m", "im", "square"],
    "cumsum cumprod nancumsum nancumprod ediff1d sort argsort unique": ["v", "m", "im", "nan", "empty", "u8", "b"],
    "average cov corrcoef nanmedian std var nanstd nanvar nanargmax nanargmin": ["m", "f32", "im"],
    "nanmedian nanstd nanvar": ["nan"],
    "isscalar iterable": ["m", "zero"],
    "sort_complex": ["c", "cm", "im", "m"],
    "trim_zeros": ["zeros", "zeros2", "v"],
    "bincount": ["small", "u8flat"],
    "diag diagflat": ["v", "m", "square"],
    "diagonal trace": ["m", "t", "im"],
    "gradient": ["v", "m", "t", "im"],
    "trapezoid": ["v", "m", "im"],
    "unwrap": ["angles", "v"],
    "vander": ["w", "im0"],
    "poly roots": ["w", "i", "cvec"],
    "bitwise_count": ["im", "u8", "i8", "b"],
    "packbits": ["b", "im", "bv"],
    "unpackbits": ["u8"],
    "asarray_chkfinite ascontiguousarray asanyarray diag_indices_from": ["square"],
    "histogram histogram_bin_edges": ["v", "m", "f32", "im", "empty"],
    "where": ["b", "im"],
    "arccos arcsin arctanh": ["unit"],
    "arccosh": ["above1"],
    "real_if_close": ["m", "c", "nearly_real"],
}
DATA["u8flat"] = DATA["u8"].reshape(-1)
DATA["im0"] = DATA["im"][0]
DATA["cvec"] = DATA["c"][:4]
DATA["unit"] = RANDOM.uniform(-0.99, 0.99, (2, 3))
DATA["above1"] = RANDOM.uniform(1.01, 9, (2, 3))
DATA["nearly_real"] = DATA["v"] + 1e-15j

EXCLUDED = {("ediff1d", "b")}  # numpy refuses it
CASES = [
    case(name, "$" + key)
    for names, keys in UNARY.items()
    for name in names.split()
    for key in keys
    if (name, key) not in EXCLUDED
]
CASES += [
    *(case(name, "$im", "$im") for name in "mod left_shift_ float_power array_equiv".split() if not name.endswith("_")),
    *(case(name, "$m", "$square") for name in "dot".split()),
    case("power", "$above1", "$unit"),
    case("arctan2", "$m", "$f32"),
    case("true_divide", "$im", 4),
    case("left_shift", "$small", 2),
    case("right_shift", "$im", 1),
    case("invert", "$b"),
    case("mod", "$v", 0.3),
    case("concatenate", ["$m", "$square"], axis=0),
    case("concatenate", ["$v", "$w"]),
    case("vstack", ["$m", "$w"]),
    case("row_stack_", ["$m", "$w"]),
    case("hstack", ["$v", "$w"]),
    case("hstack", ["$m", "$im"]),
    case("dstack", ["$m", "$im"]),
    case("dstack", ["$w", "$w"]),
    case("column_stack", ["$w", "$square"]),
    case("block", [["$m", "$m"], ["$square", "$square"]]),
    case("block", ["$v", 1.5]),
    case("block", "$m"),
    case("split", "$m", 2, axis=1),
    case("split", "$v", [2, 3, 9]),
    case("array_split", "$v", 3),
    case("array_split", "$t", 2, axis=-1),
    case("hsplit", "$m", 2),
    case("vsplit", "$m", [1]),
    case("dsplit", "$t", 2),
    case("hsplit", "$w", 2),
    case("append", "$m", "$v"),
    case("append", "$m", "$square", axis=0),
    case("insert", "$v", 2, 9),
    case("insert", "$v", [1, 3, 3], [7, 8, 9]),
    case("insert", "$m", 1, 5.5, axis=1),
    case("insert", "$m", [0, 4], "$im0_", axis=1),
    case("insert", "$m", 3, "$w", axis=0),
    case("insert", "$v", slice(1, 4), 0),
    case("insert", "$m", [1], [[1], [2], [3]], axis=1),
    case("insert", "$im", -1, 2.7),
    case("insert", "$v", [], []),
    case("insert", "$m", 1, [1, 2, 3], axis=1),
    case("insert", "$m", 1, [[1, 2, 3]], axis=1),
    case("delete", "$v", [0, -1]),
    case("delete", "$m", 1, axis=0),
    case("delete", "$m", slice(None, None, 2), axis=1),
    case("delete", "$v", "$bv"),
    case("delete", "$m", []),
    case("trim_zeros", "$zeros", "f"),
    case("trim_zeros", "$zeros", "b"),
    case("trim_zeros", "$zeros2", "fb", axis=0),
    case("ravel", "$t", order="F"),
    case("reshape", "$t", (4, -1), order="F"),
    case("reshape", "$t", -1),
    case("resize", "$m", (5, 4)),
    case("resize", "$m", 3),
    case("resize", "$empty", (2, 2)),
    case("rot90", "$m", 2),
    case("rot90", "$m", -1),
    case("rot90", "$t", 1, axes=(1, 2)),
    case("rot90", "$t", 3, axes=(2, 0)),
    case("rollaxis", "$t", 2),
    case("rollaxis", "$t", 0, 3),
    case("rollaxis", "$t", -1, 1),
    case("size", "$t", 1),
    case("broadcast_shapes", (3, 1), (1, 4), 4),
    case("broadcast_shapes"),
    case("transpose", "$t", (1, 0, 2)),
    case("diag_indices", 3),
    case("diag_indices", 2, 3),
    case("tril_indices", 4),
    case("tril_indices", 3, -1, 5),
    case("triu_indices", 4, 1),
    case("triu_indices", 5, -2, 3),
    case("triu_indices", 2, 9),
    case("tril_indices", 3, 9),
    case("indices", (2, 3)),
    case("indices", (2, 3), sparse=True),
    case("indices", ()),
    case("ix_", [0, 2], [1, 3, 0]),
    case("ix_", "$bv", [1]),
    case("unravel_index", [22, 41, 37], (7, 6)),
    case("unravel_index", 5, (2, 3), order="F"),
    case("ravel_multi_index", ([3, 6, 6], [4, 5, 1]), (7, 6)),
    case("ravel_multi_index", ([3, 9], [-4, 5]), (7, 6), mode="wrap"),
    case("ravel_multi_index", ([3, 9], [-4, 5]), (7, 6), mode=("clip", "wrap"), order="F"),
    case("take", "$m", [0, 5, -1]),
    case("take", "$m", [[0, 3]], axis=1),
    case("take", "$v", [9, -9], mode="wrap"),
    case("take", "$v", [9, -9], mode="clip"),
    case("take", "$t", 1, axis=-1),
    case("compress", "$bv", "$v"),
    case("compress", [True, False, True], "$m", axis=0),
    case("compress", [0, 1], "$m"),
    case("extract", "$b", "$m"),
    case("choose", [2, 0, 1], ["$rising3", [9, 8, 7], 5]),
    case("choose", [4, -1, 1], "$m3", mode="wrap"),
    case("choose", [4, -1, 1], "$m3", mode="clip"),
    case("select", ["$b", "$b"], ["$m", "$im"], 7.0),
    case("select", ["$b"], [1]),
    case("diagonal", "$t", 1, 1, 2),
    case("trace", "$t", -1, 2, 0),
    case("isin", "$im", [1, 2]),
    case("isin", "$im", [[1], [2]], invert=True),
    case("where", "$b", "$m", 0.0),
    case("piecewise", "$v", ["$vneg", "$vpos"], [-1, 1]),
    case("cumsum", "$m", axis=1),
    case("cumsum", "$im", dtype="float64"),
    case("cumprod", "$m", 0),
    case("nancumsum", "$nan", axis=0),
    case("ediff1d", "$v", to_end=[1, 2], to_begin=-9),
    case("std", "$m", axis=0, ddof=1),
    case("var", "$m", ddof=1, keepdims=True),
    case("var", "$m", correction=1),
    case("nanvar", "$nan", axis=1, ddof=1),
    case("nanstd", "$nan", ddof=2, axis=(0, 1)),
    case("average", "$m", axis=0),
    case("average", "$m", axis=1, weights="$w"),
    case("average", "$m", weights="$b", returned=True),
    case("average", "$t", axis=(0, 2), weights="$tw", keepdims=True),
    case("average", "$v", returned=True),
    case("cov", "$v", "$weights"),
    case("cov", "$m", rowvar=False),
    case("cov", "$m", bias=True),
    case("cov", "$m", ddof=0),
    case("cov", "$v7", fweights=[1, 2, 1, 1, 3, 1, 1]),
    case("cov", "$v7", aweights="$weights"),
    case("cov", "$v7", fweights=[1, 2, 1, 1, 3, 1, 1], aweights="$weights"),
    case("cov", "$cm"),
    case("corrcoef", "$cm"),
    case("corrcoef", "$v", "$weights"),
    case("corrcoef", "$v"),
    case("corrcoef", "$m", rowvar=False),
    case("nanargmax", "$nan", axis=1),
    case("nanargmin", "$nan", axis=0),
    case("nanargmin", "$nan"),
    case("lexsort", ["$small", "$i"]),
    case("lexsort", "$im"),
    case("sort", "$m", axis=None),
    case("argsort", "$im", axis=0, kind="stable"),
    case("sort", "$m", 0, stable=True),
    case("histogram", "$v", 4),
    case("histogram", "$v", 4, (-1, 1)),
    case("histogram", "$v", [-1, 0, 0.5, 3]),
    case("histogram", "$v", 3, density=True),
    case("histogram", "$v", 5, weights="$weights"),
    case("histogram", "$i", 5, (0, 0)),
    case("histogram", "$v", "$rising"),
    case("histogram", "$i", 4, weights="$small", density=True),
    case("histogram", "$m", 3, (0, 1)),
    *(
        case("histogram_bin_edges", "$" + key, rule)
        for key in ("v", "i", "angles")
        for rule in "auto fd doane scott rice sturges sqrt".split()
    ),
    case("histogram2d", "$v", "$weights"),
    case("histogram2d", "$v", "$weights", [3, 2], [[-1, 1], [0, 3]]),
    case("histogram2d", "$v", "$weights", 4, density=True),
    case("histogramdd", "$t3", 3),
    case("histogram2d", "$v", "$weights", "$rising"),
    case("histogramdd", "$t3", [2, [-1, 0, 2], 1], weights=[1.0, 2, 3, 4, 5, 6, 7, 8]),
    case("bincount", "$small", minlength=9),
    case("bincount", "$small", "$i"),
    case("bincount", "$small", minlength=2),
    case("bincount", "$empty_int"),
    case("bincount", "$empty_int", minlength=3),
    case("digitize", "$v", "$rising"),
    case("digitize", "$v", "$falling"),
    case("digitize", "$falling", "$falling", right=True),
    case("digitize", "$rising", "$rising", True),
    *(case(name, n) for name in "bartlett blackman hamming hanning".split() for n in (0, 1, 2, 7, 12)),
    *(case("kaiser", n, beta) for n in (0, 1, 8, 9) for beta in (0, 2, 14.0)),
    case("trapezoid", "$m", dx=0.5, axis=0),
    case("trapezoid", "$v", "$places"),
    case("trapezoid", "$m", "$rising"),
    case("trapezoid", "$m", "$im", axis=0),
    case("gradient", "$v", 0.5),
    case("gradient", "$v", "$places"),
    case("gradient", "$m", axis=0, edge_order=2),
    case("gradient", "$v", "$places", edge_order=2),
    case("gradient", "$m", 2.0, "$rising", edge_order=2),
    case("gradient", "$m", 1, 2),
    case("gradient", "$t", axis=(2, 1)),
    case("unwrap", "$angles", axis=0),
    case("unwrap", "$angles", period=3.0),
    case("unwrap", "$angles", 3.5),
    case("unwrap", "$i", period=4),
    case("unwrap", "$i", period=5),
    case("interp", "$v", "$rising", "$w"),
    case("interp", "$m", "$rising", "$w", left=-9, right=9),
    case("interp", 0.3, "$rising", "$w"),
    case("interp", "$rising", "$rising", "$w"),
    case("interp", "$nan", "$rising", "$w"),
    case("interp", "$v", [1.0], [3.0]),
    case("interp", "$places", [3.0, 1.0, 2.5], [1.0, 2.0, 5.0], period=4),
    case("interp", "$v", "$rising", "$c4"),
    *(
        case(name, "$" + a, "$" + b, mode)
        for name in ("convolve", "correlate")
        for mode in ("full", "same", "valid")
        for a, b in (("v", "w"), ("w", "v"), ("i", "small"), ("c", "w"), ("w", "c"), ("small", "i8"), ("v", "rising3"))
    ),
    case("polyadd", "$v", "$w"),
    case("polysub", "$i", "$small"),
    case("polymul", "$v", "$w"),
    case("polymul", [0, 0, 1], [0, 2, 1]),
    case("polydiv", "$v", "$w"),
    case("polydiv", "$w", "$v"),
    case("polydiv", [1.0, 5, 6], [1.0, 2]),
    case("polyval", "$w", "$m"),
    case("polyval", "$i", "$im"),
    case("polyder", "$v"),
    case("polyder", "$i", 2),
    case("polyint", "$v"),
    case("polyint", "$v", 2, [1, 2]),
    case("polyder", "$w", 9),
    case("polyint", "$w", 2, 3.0),
    case("polyfit", "$places", "$v", 2),
    case("polyfit", "$places", "$v", 1, cov=True),
    case("polyfit", "$places", "$v", 1, w="$weights", full=True),
    case("polyfit", "$places", "$v", 1, cov="unscaled"),
    case("poly", "$symmetric"),
    case("roots", [0, 0, 1.0, -3, 2, 0, 0]),
    case("roots", [0.0]),
    case("roots", [5.0]),
    case("vander", "$w", 6),
    case("vander", "$w", 3, increasing=True),
    case("vander", "$w", 0),
    case("vander", "$c", 3),
    case("dot", "$v", "$v"),
    case("dot", "$m", "$w"),
    case("dot", 2, "$m"),
    case("dot", "$w", "$square"),
    case("dot", "$t", "$t4"),
    case("vdot", "$c", "$c"),
    case("vdot", "$m", "$m"),
    case("matvec", "$t", "$w"),
    case("vecmat", "$w", "$cm"),
    case("vecmat", "$c4", "$cm"),
    case("einsum", "ij,j->i", "$m", "$w"),
    case("einsum", "ij,kj", "$m", "$square"),
    case("einsum", "$m", [0, 1], "$w", [1], [0]),
    case("einsum", "...i->...", "$t"),
    case("einsum", "$t", [Ellipsis, 3], [Ellipsis]),
    case("eye", 3, 4, 1),
    case("eye", 2),
    case("identity", 3),
    case("tri", 3, 5, 1),
    case("tri", 3),
    case("diag", "$v", -1),
    case("diag", "$m", 1),
    case("diagflat", "$im", 1),
    case("linspace", 0, 1, 5, retstep=True),
    case("linspace", "$w", 1.0, 4),
    case("linspace", [0, 1], [3, 5], 4, axis=1),
    case("linspace", 0, 9, 4, endpoint=False),
    case("linspace", "$w", "$rising", 3, False, axis=-1),
    case("logspace", 0, 2, 5),
    case("logspace", 0, 3, 4, base=2, endpoint=False),
    case("logspace", [0, 1], 2, 3),
    case("geomspace", 1, 1000, 4),
    case("geomspace", -1, -1000, 4),
    case("geomspace", 1, 256, 9, endpoint=False),
    case("geomspace", 1000, 1, 4),
    case("geomspace", [1.0, 2.0], 64.0, 5),
    case("geomspace", 1, 5, 1),
    case("geomspace", 1, 5, 0),
    case("meshgrid", "$v", "$w"),
    case("meshgrid", "$v", "$w", sparse=True),
    case("meshgrid", "$v", "$w", [1, 2], sparse=True, indexing="ij"),
    case("fromiter", [1, 2, 3], "int32"),
    case("fromiter", [1.5, 2, 3], "float64", 2),
    case("frombuffer", b"12345678" * 3),
    *(
        case("frombuffer", bytes(range(1, 33)), dtype)
        for dtype in "bool int8 uint16 int32 uint64 float16 float32 complex64".split()
    ),
    case("frombuffer", b"\0\1\2\3\4\5\6\7", "int16", 2, 2),
    case("frombuffer", b"", "int16"),
    case("pad", "$v", 2),
    case("pad", "$m", ((1, 2), (0, 3)), constant_values=((1, 2), (3, 4))),
    case("pad", "$m", (2, 1), "edge"),
    *(case("pad", "$m", ((3, 9), (8, 1)), mode) for mode in "edge reflect symmetric wrap".split()),
    *(
        case("pad", "$" + key, ((1, 2), (0, 3)), mode)
        for mode in "maximum mean minimum median linear_ramp".split()
        for key in ("m", "im")
    ),
    case("pad", "$m", {0: 1, 1: (0, 2)}),
    case("pad", "$m", 2, "mean", stat_length=2),
    case("pad", "$m", 2, "linear_ramp", end_values=5),
    case("pad", "$empty2", ((1, 1), (0, 0))),
    case("pad", "$one", 3, "reflect"),
    case("nan_to_num", "$nan"),
    case("nan_to_num", [np.inf, -np.inf, NAN, 1.0], nan=2.0, posinf=7.0, neginf=-7.0),
    case("angle", "$c", deg=True),
    case("angle", [1.0, -1.0], True),
    case("float_power", "$im", 2),
    case("float_power", "$c", 2),
    case("spacing", "$special"),
    case("packbits", "$b", axis=1),
    case("packbits", "$b", 0, bitorder="little"),
    case("unpackbits", "$u8", axis=0),
    case("unpackbits", "$u8", 1, 5),
    case("unpackbits", "$u8", count=-3, bitorder="little"),
    case("unpackbits", "$u8", 1, 50),
    case("array_equiv", [1, 2], [[1, 2], [1, 2]]),
    case("array_equiv", [1, 2], [1, 2, 3]),
    case("isscalar", 3),
    case("isscalar", "x"),
    case("iterable", 3),
    case("iterable", [1]),
    case("shares_memory", "$v", "$w"),
    case("partition_", "$v", 3),
    case("intersect1d", "$i", "$small"),
    case("intersect1d", "$i", "$small", return_indices=True),
    case("union1d", "$i", "$im"),
    case("setdiff1d", "$i", "$small"),
    case("setdiff1d", "$i", "$small", assume_unique=True),
    case("setxor1d", "$i", "$small"),
    case("union1d", "$nan", "$v"),
    case("setxor1d", "$nan", "$v"),
    case("unique", "$small", True, True, True),
    case("unique", "$im", return_inverse=True),
    case("unique", "$im2", axis=0),
    case("unique", "$im2", True, True, True, axis=0),
    case("unique", "$im2", True, True, True, axis=1),
    case("unique", "$nan", equal_nan=False),
    case("unique", "$nan", True, True, True),
    case("unique", "$nan2", axis=0),
    case("unique", "$empty2", axis=0),
    case("nanargmax", "$im"),
    case("atleast_1d", "$zero", "$m"),
    case("atleast_3d", 1, [2.0]),
    case("apply_over_axes", np.sum, "$t", [0, 2]),
    case("diff", "$v", prepend=0.0),
    case("diff", "$m", axis=0, append=1),
    case("diff", "$v", 0),
    case("common_type", "$m", "$f32"),
    case("common_type", "$c", "$f32"),
    case("promote_types", "int8", "int32"),
    case("promote_types", "float32", "float64"),
    case("copy", "$m"),
    case("trapezoid", [1, 2, 4]),
    case("conjugate", "$cm"),
]
METHODS = (
    "linear hazen weibull median_unbiased normal_unbiased interpolated_inverted_cdf inverted_cdf closest_observation"
)
for rule in METHODS.split() + "averaged_inverted_cdf lower higher midpoint nearest".split():
    CASES += [case("quantile", "$" + key, [0, 0.1, 0.25, 0.5, 2 / 3, 0.9, 1], method=rule) for key in ("v", "i", "m")]
    CASES += [
        case("nanquantile", "$nan", [0.2, 0.5, 0.75], axis=0, method=rule),
        case("nanpercentile", "$nan", 30, method=rule),
    ]
CASES += [
    case("quantile", "$t", 0.3, axis=(0, 2)),
    case("quantile", "$t", [[0.1], [0.7]], axis=1, keepdims=True),
    case("quantile", "$nan", 0.5),
    case("percentile", "$m", [10, 50, 99], axis=0),
    case("percentile", "$f32", 40),
    case("quantile", "$nan", 0.4, axis=1),
    case("quantile", "$v", [0.0, 0.3, 0.8, 1], weights="$weights", method="inverted_cdf"),
    case("nanmedian", "$nan", axis=1),
    case("quantile", "$m", 0.6, axis=1, weights="$wpos", method="inverted_cdf"),
    case("nanmedian", "$nan", axis=0, keepdims=True),
    case("nanquantile", "$nan", 0.6, axis=1, weights="$wm", method="inverted_cdf"),
]
DATA.update(
    im0_=DATA["im"][:, :2],
    rising3=np.array([1.0, 5, 2]),
    m3=RANDOM.standard_normal((3, 3)),
    vneg=DATA["v"] < 0,
    vpos=DATA["v"] >= 0.2,
    tw=RANDOM.uniform(1, 2, (2, 4)),
    v7=RANDOM.standard_normal((2, 7)),
    t3=RANDOM.standard_normal((8, 3)),
    empty_int=np.zeros((0,), int),
    falling=np.array([2.0, 1.0, 0.25, -0.5]),
    c4=DATA["c"][:4],
    t4=RANDOM.standard_normal((2, 4, 5)),
    symmetric=DATA["square"] + DATA["square"].T,
    one=np.ones((1, 1)),
    im2=RANDOM.integers(0, 2, (6, 2)),
    wpos=RANDOM.uniform(1, 2, 4),
    special=np.array([0.0, 1.0, -1.0, 1e300, np.inf, NAN]),
    wm=RANDOM.uniform(1, 2, (3, 4)),
    nan2=np.array([[1, NAN], [1, NAN], [0, 2]]),
)
CASES = [one for one in CASES if not one[0].endswith("_") or one[0] == "ix_"]
# Their results are the same sets or fulfil the same condition, in another order.
UNORDERED = {"roots"}
# Results of integers are float64 in numpy and float32 here.
LOOSE = {"rtol": 3e-5, "atol": 3e-6}


def bound(value, make):
    """The argument with arrays in place of names."""
    if isinstance(value, str) and value.startswith("$"):
        return make(DATA[value[1:]])
    if isinstance(value, (list, tuple)):
        return type(value)(bound(entry, make) for entry in value)
    return value


def call(module, make, one):
    name, args, kwargs = one
    args = [module.sum if arg is np.sum else arg for arg in bound(args, make)]
    return getattr(module, name)(*args, **{key: bound(value, make) for key, value in kwargs.items()})


def compare(ours, theirs, name="", is_strict=True):
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            compare(one, other, name, is_strict)
        return
    if isinstance(theirs, (type, np.dtype)):
        assert ours.name == np.dtype(theirs).name
        return
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    assert ours.dtype.kind == theirs.dtype.kind, (ours.dtype, theirs.dtype)
    if name in UNORDERED:
        ours, theirs = np.sort_complex(ours), np.sort_complex(theirs)
    same = {"rtol": 1e-9, "atol": 1e-10} if ours.dtype == theirs.dtype else LOOSE
    is_single = theirs.dtype in (np.float32, np.complex64)
    np.testing.assert_allclose(ours, theirs, **(LOOSE if is_single or not is_strict else same))


def label(one):
    name, args, kwargs = one
    return re.sub(" at 0x[0-9a-f]+", "", f"{name}-{args}{kwargs or ''}")[:80]  # the same in all processes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one", CASES, ids=label)
def test_results_are_numpys(one):
    compare(call(hr, hr.array, one), call(np, np.array, one), one[0])


def single(x):
    return x.astype({"f": np.float32, "c": np.complex64}.get(x.dtype.kind, x.dtype))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one", [one for one in CASES if one[0] not in ("polydiv", "histogramdd")][::3], ids=label)
def test_results_in_single_precision(one):
    ours, theirs = call(hr, lambda x: hr.array(single(x)), one), call(np, single, one)
    compare(ours, theirs, one[0], is_strict=False)
    if isinstance(ours, hr.Array) and np.asarray(theirs).dtype == np.float32:
        assert ours.dtype == hr.float32


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one", CASES[::4], ids=label)
def test_arguments_may_be_numpys_arrays(one):
    compare(call(hr, np.array, one), call(np, np.array, one), one[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes_of_16_bits(dtype):
    x, y = (hr.array(DATA[key]).astype(dtype) for key in ("v", "w"))
    for name in (
        "cumsum",
        "sort",
        "gradient",
        "trapezoid",
        "ravel",
        "std",
        "average",
        "unwrap",
        "nan_to_num",
        "vander",
    ):
        exact = np.asarray(getattr(hr, name)(x.astype("float32")))
        actual = getattr(hr, name)(x)
        assert actual.dtype.name == dtype
        np.testing.assert_allclose(np.asarray(actual.astype("float32")), exact, rtol=0.05, atol=0.2)
    exact = np.convolve(np.asarray(x.astype("float32")), np.asarray(y.astype("float32")))
    np.testing.assert_allclose(np.asarray(hr.convolve(x, y).astype("float32")), exact, rtol=0.02, atol=0.05)
    assert hr.quantile(x, 0.4).dtype.name == hr.pad(x, 1).dtype.name == dtype


# Shapes that depend on values; a wait for another reason.
WAITS = set(
    """argwhere flatnonzero trim_zeros bincount unique union1d intersect1d setdiff1d setxor1d compress extract roots
    polymul polydiv poly histogram_bin_edges real_if_close asarray_chkfinite where delete ix_ insert""".split()
)
NO_ARRAYS = set(
    "isscalar iterable shape size ndim frombuffer fromiter shares_memory common_type promote_types iscomplexobj".split()
)


def is_lazy(one):
    name, args, kwargs = one
    is_array = any(isinstance(arg, str) and arg.startswith("$") for arg in args)
    return (
        is_array and name not in WAITS | NO_ARRAYS | {"isrealobj", "apply_over_axes", "einsum"} and "full" not in kwargs
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one", [one for one in CASES if is_lazy(one)][::3], ids=label)
def test_functions_are_captured(one):
    name, args, kwargs = one
    places = [i for i, arg in enumerate(args) if isinstance(arg, str) and arg.startswith("$")]

    @hr.compile
    def captured(*arrays):
        values = list(bound(args, hr.array))
        for place, array in zip(places, arrays, strict=True):
            values[place] = array
        return getattr(hr, name)(*values, **{key: bound(value, hr.array) for key, value in kwargs.items()})

    arrays = [hr.array(DATA[args[place][1:]]) for place in places]
    expected = call(hr, hr.array, one)
    for _ in range(2):
        compare(captured(*arrays), expected if not isinstance(expected, hr.Array) else np.asarray(expected))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one", [one for one in CASES if is_lazy(one) and one[0] != "histogramdd"][::5], ids=label)
def test_functions_of_examples(one):
    name, args, kwargs = one
    places = [i for i, arg in enumerate(args) if isinstance(arg, str) and arg.startswith("$")]

    def of_example(*arrays):
        values = list(bound(args, hr.array))
        for place, array in zip(places, arrays, strict=True):
            values[place] = array
        result = getattr(hr, name)(*values, **{key: bound(value, hr.array) for key, value in kwargs.items()})
        return list(result) if isinstance(result, tuple) else result

    arrays = [DATA[args[place][1:]] for place in places]
    results = hr.vmap(of_example)(*(hr.array(np.stack([np.flip(array), array])) for array in arrays))
    second = [np.asarray(x)[1] for x in results] if isinstance(results, list) else np.asarray(results)[1]
    expected = of_example(*map(hr.array, arrays))
    compare(second, [np.asarray(x) for x in expected] if isinstance(expected, list) else np.asarray(expected))


# ---- names

LEFT_OUT = set(
    """array2string array_repr array_str asfortranarray asmatrix base_repr binary_repr bmat busday_count busday_offset
    copyto datetime_as_string datetime_data einsum_path fill_diagonal format_float_positional
    format_float_scientific fromfile fromregex fromstring frompyfunc genfromtxt get_printoptions getbufsize
    geterr geterrcall info is_busday isfortran isnat issubdtype loadtxt min_scalar_type mintypecode nested_iters
    place printoptions put putmask require savetxt set_printoptions setbufsize seterr seterrcall show_config
    show_runtime test typename""".split()
)


def test_every_function_of_numpy_is_there_or_on_the_list():
    functions = {
        name for name in np.__all__ if callable(getattr(np, name, None)) and not isinstance(getattr(np, name), type)
    }
    missing = {name for name in functions if not hasattr(hr, name)}
    assert missing == LEFT_OUT & functions


def test_every_name_has_a_test():
    tested = {name for name, _, _ in CASES} | set(hr._numpy.aliases.ALIASES)
    tested |= set(
        "apply_along_axis fromfunction mask_indices piecewise may_share_memory argpartition partition".split()
    )
    tested |= set("mgrid ogrid r_ c_ s_ index_exp ndindex ndenumerate".split())
    assert {*hr._names.FAMILY} - tested == set()


def test_the_page_lists_what_is_left_out():
    from pathlib import Path

    page = (Path(__file__).parents[3] / "docs" / "numpy.md").read_text(encoding="utf-8")
    assert {name for name in LEFT_OUT if f"`{name}`" not in page} == set()


def test_modules_are_loaded_when_their_names_are_used():
    code = """
import sys, headrace as hr
assert not [name for name in sys.modules if name.startswith("headrace.")], sys.modules
hr.ones(3).sum()
hr.sin(hr.ones(3))
assert "headrace._numpy.polynomials" not in sys.modules and "numpy" not in sys.modules
hr.polyval([1.0, 2.0], 3.0)
assert "headrace._numpy.polynomials" in sys.modules and "headrace._numpy.quantiles" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- functions of functions, methods


def test_functions_of_functions():
    m, t = DATA["m"], DATA["t"]
    for axis in (0, 1, 2):
        ours = hr.apply_along_axis(lambda x: x[:2] * x.sum(), axis, hr.array(t))
        compare(ours, np.apply_along_axis(lambda x: x[:2] * x.sum(), axis, t))
    compare(hr.apply_along_axis(hr.sum, 1, hr.array(m)), np.apply_along_axis(np.sum, 1, m))
    compare(hr.apply_along_axis(hr.diag, -1, hr.array(m)), np.apply_along_axis(np.diag, -1, m))
    compare(hr.fromfunction(lambda i, j: i + 2 * j, (3, 2)), np.fromfunction(lambda i, j: i + 2 * j, (3, 2)))
    compare(hr.fromfunction(lambda i: i == 1, (3,), dtype=int), np.fromfunction(lambda i: i == 1, (3,), dtype=int))
    compare(hr.mask_indices(4, hr.triu, 1), np.mask_indices(4, np.triu, 1))
    v = DATA["v"]
    functions = [lambda x, k: -k * x, lambda x, k: k * x * x, lambda x, k: x]
    ours = hr.piecewise(hr.array(v), [hr.array(v < 0), hr.array(v > 1)], functions, 3)
    compare(ours, np.piecewise(v, [v < 0, v > 1], functions, 3))


@pytest.mark.parametrize("kth", [3, -1, (1, 4)])
def test_partitions(kth):
    for x, axis in ((DATA["i"], -1), (DATA["square"], 0), (DATA["square"], None)):
        if isinstance(kth, tuple) and axis == 0:
            continue
        ours = np.asarray(hr.partition(hr.array(x), kth, axis=axis))
        places = np.asarray(hr.argpartition(hr.array(x), kth, axis=axis))
        flat = x if axis is not None else x.reshape(-1)
        expected = np.sort(flat, axis=0 if axis is None else axis)
        for one in kth if isinstance(kth, tuple) else (kth,):
            at = (one,) if axis != -1 or x.ndim == 1 else (..., one)
            np.testing.assert_array_equal(ours[at], expected[at])
        np.testing.assert_array_equal(np.take_along_axis(flat, places, 0 if axis is None else axis), ours)


MET = {
    "argpartition": (2,),
    "argsort": (0,),
    "sort": (),
    "diagonal": (1,),
    "take": ([0, 5],),
    "trace": (),
    "ravel": (),
    "cumprod": (),
    "cumsum": (1,),
    "std": (),
    "var": (0,),
    "nonzero": (),
    "repeat": (2,),
    "compress": ([True, False, True], 0),
    "conj": (),
    "conjugate": (),
    "flatten": ("F",),
    "swapaxes": (0, 1),
    "transpose": (),
    "dot": (np.arange(4.0),),
}


@pytest.mark.parametrize("name", MET)
def test_methods(name):
    m = DATA["m"]
    ours, theirs = (getattr(make(m), name)(*MET[name]) for make in (hr.array, np.array))
    if name == "argpartition":
        theirs = np.argsort(m)
    compare(ours if name != "sort" else ours, theirs if name != "sort" else np.sort(m))


def test_methods_with_arguments():
    x = hr.array(DATA["t"])
    compare(x.transpose(1, 0, 2), DATA["t"].transpose(1, 0, 2))
    compare(x.transpose((2, 0, 1)), DATA["t"].transpose((2, 0, 1)))
    compare(x.std(axis=1, ddof=1), DATA["t"].std(axis=1, ddof=1))
    compare(
        hr.array([3, 1]).choose([[1, 2], [3, 4], [5, 6], [7, 8]]),
        np.array([3, 1]).choose([[1, 2], [3, 4], [5, 6], [7, 8]]),
    )
    compare(hr.array([1, 3]).searchsorted(hr.array([2, 9])), np.array([1, 2]))
    assert x.tobytes() == DATA["t"].tobytes() and x.T.tobytes("F") == DATA["t"].T.tobytes("F")
    row = x[0]
    x.fill(2)
    compare(x, np.full((2, 3, 4), 2.0))
    compare(row, DATA["t"][0])


def test_an_array_shares_memory_with_itself_alone():
    x = hr.ones(3)
    assert hr.shares_memory(x, x) and not hr.shares_memory(x, x[:2]) and not hr.may_share_memory(x, hr.ones(3))


def test_functions_copy_what_numpy_may_change():
    x = np.arange(6.0)
    result = hr.flip(hr.roll(hr.ravel(x), 1))
    x[:] = -1
    assert result.tolist() == [4, 3, 2, 1, 0, 5]


# ---- derivatives, bad inputs

DIFFERENTIABLE = {
    "interp": lambda m, x: m.interp(m.array([0.2, 0.7, 1.4]), m.array([0.0, 0.5, 1.0, 2.0]), x),
    "gradient": lambda m, x: m.gradient(x, 0.5, edge_order=2),
    "convolve": lambda m, x: m.convolve(x, m.array([1.0, -2.0, 0.5]), "same"),
    "correlate": lambda m, x: m.correlate(x, x, "full"),
    "trapezoid": lambda m, x: m.trapezoid(x, m.array([0.0, 1.0, 3.0, 4.0])),
    "quantile": lambda m, x: m.quantile(x, m.array([0.3, 0.8])),
    "cov": lambda m, x: m.cov(x, x * x),
    "corrcoef": lambda m, x: m.corrcoef(x, x**3)[0, 1],
    "average": lambda m, x: m.average(x, weights=m.array([1.0, 2.0, 0.5, 1.0])),
    "pad": lambda m, x: m.pad(x, 3, "reflect") ** 2,
    "polyval": lambda m, x: m.polyval(x, m.array([0.5, 2.0])),
    "insert": lambda m, x: m.insert(x, 2, 7.0) ** 2,
    "cumsum": lambda m, x: m.cumsum(x) ** 2,
    "unwrap": lambda m, x: m.unwrap(4 * x) ** 2,
    "vander": lambda m, x: m.vander(x, 3),
    "dot": lambda m, x: m.dot(x, x),
    "rot90": lambda m, x: m.rot90(x.reshape(2, 2)) * m.array([[1.0, 2.0], [3.0, 4.0]]),
    "select": lambda m, x: m.select([x > 0, x < -0.5], [x**2, x**3], 1.0),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_differences(name):
    function = DIFFERENTIABLE[name]
    x = np.array([0.3, -0.8, 1.1, 0.6])
    gradient = np.asarray(hr.grad(lambda x: hr.sum(function(hr, x)))(hr.array(x)))
    for i, step in enumerate(1e-6 * np.eye(4)):
        difference = (np.sum(function(np, x + step)) - np.sum(function(np, x - step))) / 2e-6
        assert gradient[i] == pytest.approx(difference, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: hr.split(hr.arange(5), 2), ValueError, "5 elements do not divide into 2"),
        (lambda: hr.bincount(hr.array([1, -2])), ValueError, "bincount: -2 in x"),
        (lambda: hr.bincount(hr.array([1.5])), TypeError, "float32, expected integers"),
        (lambda: hr.bincount(hr.array([[1]])), ValueError, "2 dims, expected 1"),
        (lambda: hr.bincount(hr.array([1]), minlength=-1), ValueError, "minlength -1"),
        (lambda: hr.bincount(hr.array([1, 9]), length=4).tolist(), IndexError, "9"),
        (lambda: hr.quantile(hr.ones(3), 1.5), ValueError, "1.5 is out of range"),
        (lambda: hr.percentile(hr.ones(3), [50, 101]), ValueError, "101 is out of range"),
        (lambda: hr.quantile(hr.ones(3), 0.5, method="best"), ValueError, "'best'"),
        (lambda: hr.quantile(hr.ones((0, 2)), 0.5), ValueError, "no elements"),
        (lambda: hr.quantile(hr.array([1j]), 0.5), TypeError, "complex64"),
        (lambda: hr.rot90(hr.ones((2, 2)), axes=(0, 0)), ValueError, "twice"),
        (lambda: hr.broadcast_shapes((2,), (3,)), ValueError, r"\[2, 3\]"),
        (lambda: hr.delete(hr.arange(3), 3), IndexError, "index 3 is out of bounds for axis of size 3"),
        (lambda: hr.insert(hr.arange(3), -5, 1), IndexError, "index -5"),
        (lambda: hr.take(hr.arange(3), [1], mode="no"), ValueError, "no"),
        (lambda: hr.choose(hr.array([5]), [[1], [2]]).tolist(), ValueError, "index 5 is out of bounds"),
        (lambda: hr.unravel_index(9, (2, 3)), ValueError, "index 9"),
        (lambda: hr.ravel_multi_index(([2], [5]), (3, 4)), ValueError, "index 5"),
        (lambda: hr.convolve([], [1.0]), ValueError, "expected vectors with elements"),
        (lambda: hr.convolve([1.0], [1.0], "most"), ValueError, "most"),
        (lambda: hr.gradient(hr.ones(1)), ValueError, "1 elements along axis 0, expected at least 2"),
        (lambda: hr.gradient(hr.ones(5), hr.ones(4)), ValueError, r"\(4,\), expected \(5,\)"),
        (lambda: hr.interp(1.0, [1.0, 2.0], [1.0]), ValueError, "vectors of one size"),
        (lambda: hr.pad(hr.ones(3), -1), ValueError, "no negative"),
        (lambda: hr.pad(hr.ones(3), 1, "round"), ValueError, "round"),
        (lambda: hr.pad(hr.ones((3, 2)), ((1, 2), (1, 2), (1, 2))), ValueError, "2 axes"),
        (lambda: hr.pad(hr.ones((0,)), 1, "edge"), ValueError, "without elements"),
        (lambda: hr.dot(hr.ones((2, 3)), hr.ones((2, 3))), ValueError, "3 != 2"),
        (lambda: hr.diag(hr.ones((2, 2, 2))), ValueError, "3 dims"),
        (lambda: hr.histogram(hr.ones(3), 0), ValueError, "0 bins"),
        (lambda: hr.histogram(hr.ones(3), range=(2, 1)), ValueError, "2.0 to 1.0"),
        (lambda: hr.histogram(hr.ones(3), [2, 1]), ValueError, "not in order"),
        (lambda: hr.histogram(hr.ones(3), "best"), ValueError, "best"),
        (lambda: hr.select([hr.array([1])], [1]), TypeError, "int64, expected bool"),
        (lambda: hr.asarray_chkfinite([1.0, NAN]), ValueError, "NaN"),
        (lambda: hr.frombuffer(b"123", "int16"), ValueError, "3 bytes, expected a multiple of 2"),
        (lambda: hr.frombuffer(b"1234", "int16", 3), ValueError, "3 elements of 2 bytes in 4"),
        (lambda: hr.packbits(hr.ones(3)), TypeError, "float32"),
        (lambda: hr.unpackbits(hr.ones(3)), TypeError, "float32"),
        (lambda: hr.fabs(hr.array([1j])), TypeError, "complex64"),
        (lambda: hr.std(hr.ones(3), ddof=1, correction=2), ValueError, "ddof 1 and correction 2"),
        (lambda: hr.partition(hr.arange(3), 7), ValueError, "axis 7"),
        (lambda: hr.average(hr.ones((2, 3)), weights=hr.ones(3)), ValueError, r"\(3,\)"),
        (lambda: hr.polyfit([1.0, 2.0], [1.0], 1), ValueError, "polyfit"),
        (lambda: hr.block([[1, 2], 3]), ValueError, "one depth"),
        (lambda: hr.where(hr.array([True]), 1), ValueError, "both or neither"),
        (lambda: hr.geomspace(0, 1), ValueError, "0"),
        (lambda: hr.linspace([0, 1], 2, -1), ValueError, "-1 elements"),
        (lambda: hr.reshape(hr.ones(4), (2, 2), order="Z"), ValueError, "Z"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- numpy.linalg


def test_least_squares():
    a, b = RANDOM.standard_normal((6, 3)), RANDOM.standard_normal((6, 2))
    for left, right in ((a, b), (a, b[:, 0]), (a[:2], b[:2]), (a[:, [0, 0, 1]], b), (a + 1j * a[::-1], b)):
        ours, theirs = hr.linalg.lstsq(hr.array(left), hr.array(right)), np.linalg.lstsq(left, right)
        compare(list(ours), [np.asarray(one) for one in theirs], is_strict=False)
    with pytest.raises(ValueError, match="lstsq"):
        hr.linalg.lstsq(hr.ones((3, 2)), hr.ones(2))


def test_equations_of_tensors():
    a = RANDOM.standard_normal((4, 6, 8, 3))
    compare(hr.linalg.tensorinv(hr.array(a)), np.linalg.tensorinv(a), is_strict=False)
    b = RANDOM.standard_normal((4, 6))
    compare(hr.linalg.tensorsolve(hr.array(a), hr.array(b)), np.linalg.tensorsolve(a, b), is_strict=False)
    moved = np.moveaxis(a, 2, 0)
    ours = hr.linalg.tensorsolve(hr.array(moved), hr.array(b), axes=(0, 3))
    compare(ours, np.linalg.tensorsolve(moved, b, axes=(0, 3)), is_strict=False)
    with pytest.raises(ValueError, match="different numbers"):
        hr.linalg.tensorinv(hr.ones((2, 3, 4)))


# ---- objects that are indexed, and dtypes

GRIDS = [
    lambda m: m.mgrid[0:5],
    lambda m: m.mgrid[-1:1:5j],
    lambda m: m.mgrid[0:3, 1:9:3],
    lambda m: m.mgrid[0:3, -1:1:5j, 2:2],
    lambda m: m.mgrid[:3],
    lambda m: m.ogrid[5:0:-2],
    lambda m: m.ogrid[0:3, -1:1:5j],
    lambda m: m.r_[m.array([1, 2, 3]), 0, 0, m.array([4, 5])],
    lambda m: m.r_[1:4, 0, 7:2:-2],
    lambda m: m.r_[-1:1:6j, [0] * 3, 5, 6],
    lambda m: m.r_["-1", m.array([[0, 1, 2], [3, 4, 5]]), m.array([[6], [7]])],
    lambda m: m.r_["0,2", [1, 2, 3], [4, 5, 6]],
    lambda m: m.r_["0,2,0", [1, 2, 3], [4, 5, 6]],
    lambda m: m.r_["1,3,1", [1, 2, 3], [4, 5]],
    lambda m: m.r_["0,3", [[1, 2]], [3, 4]],
    lambda m: m.c_[m.array([1, 2, 3]), m.array([4, 5, 6])],
    lambda m: m.c_[m.array([[1, 2, 3]]), 0, 0, m.array([[4, 5, 6]])],
    lambda m: m.c_[1:4],
]


@pytest.mark.parametrize("case", range(len(GRIDS)))
def test_grids_and_joined_arrays(case):
    actual, expected = GRIDS[case](hr), GRIDS[case](np)
    pairs = zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    for a, e in pairs:
        a = np.asarray(a)
        assert a.shape == e.shape and a.dtype.kind == e.dtype.kind
        np.testing.assert_allclose(a, e, 1e-6)


def test_indices():
    x = hr.arange(12).reshape(3, 4)
    assert hr.s_[1:, ::2] == np.s_[1:, ::2] and hr.s_[3] == 3 and hr.index_exp[3] == (3,) == np.index_exp[3]
    assert x[hr.s_[1:, ::2]].tolist() == [[4, 6], [8, 10]]
    assert list(hr.ndindex(2, 0)) == [] and list(hr.ndindex((2, 2))) == list(np.ndindex(2, 2))
    assert list(hr.ndindex(3)) == list(np.ndindex(3)) and list(hr.ndindex(())) == [()]
    assert list(hr.ndenumerate(x[:2, 1:])) == [(i, v.item()) for i, v in np.ndenumerate(np.asarray(x[:2, 1:]))]
    with pytest.raises(ValueError, match="without an end"):
        hr.mgrid[1:]
    with pytest.raises(ValueError, match="one to three integers"):
        hr.r_["0,1,2,3", [1]]


@pytest.mark.parametrize(
    "name",
    "bool_ byte ubyte short ushort intc uintc int_ uint intp uintp long ulong longlong ulonglong half single double "
    "csingle cdouble".split(),
)
def test_dtypes_have_numpys_names(name):
    assert getattr(hr, name).name == np.dtype(getattr(np, name)).name
