#!/usr/bin/env python3
"""Models with control flow, in a session, against the same computation in NumPy.

    python tests/onnx/control.py --only scan

Each model runs for several inputs: other branches, other counts, other sizes of its symbols.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

sys.path.insert(0, str(Path(__file__).parent))
from library import LIBRARY, Failure, Library  # noqa: E402

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
RNG = np.random.default_rng(7)


def floats(*dims):
    return RNG.standard_normal(dims).astype(np.float32)


def flag(value):
    return np.array(value)


def whole(*values):
    return np.array(values, np.int64) if len(values) != 1 else np.array(values[0], np.int64)

def stack(rows, *dims):
    return np.stack(rows) if rows else np.empty((0, *dims), np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def if_in_if(x, c, d):
    first = np.exp(x) if not c else 2 * x if d else -x
    return [first, first + x if c else x]


def halves(x, count):
    rows = []
    for i in range(count):
        rows.append(x)
        x = x * np.float32(0.5) + np.float32(i)
    return [x, -stack(rows, *x.shape)]


def doubled(x, limit):
    sums, last = [], whole(0)
    while (x.sum() if not sums else sums[-1]) < limit:
        x = x * 2
        last = whole(len(sums))
        sums.append(x.sum())
    return [x, stack(sums), last]


def doubled_so_often(x, m, limit):
    steps = []
    while len(steps) < m and (not steps or x < limit):
        x = x + x
        steps.append(2 * len(steps))
    return [x, np.array(steps, np.int64)]


def add_or_negate(x, m):
    s = x
    for i in range(m):
        s = -s if i % 2 else s + x
    return [s]


def scan_two(x, z, u, v):
    rows, others = [], []
    for d, e in zip(u, v):
        x, z = x + d, z * e
        rows.append(-x)
        others.append(z + e)
    return [x, z, stack(rows), stack(others)]


def scan_axes(x, u, v):
    rows = []
    for b, c in zip(u.T[::-1], v):
        x = x * np.float32(0.5) + b
        rows.append(x - c)
    return [x, stack(rows).T, v[::-1]]


def recur(h, u, w):
    rows = []
    for x in u:
        h = np.tanh(h @ w + x)
        rows.append(h)
    return [h, stack(rows)]


# name: (graph, one set of inputs a run, the outputs for these inputs)
CASES = {
    "if_untaken_branch_has_no_such_index": (
        """agraph (float[n, 3] x, int64[k] i, bool c) => (float[m, 3] y) {
             y = If (c) <then_branch = g1 () => (float[m, 3] a) { a = Gather (x, i) },
                         else_branch = g2 () => (float[m, 3] b) { b = Relu (x) }>
           }""",
        [
            {"x": floats(4, 3), "i": np.array([3, 0], np.int64), "c": flag(True)},
            {"x": floats(2, 3), "i": np.array([7], np.int64), "c": flag(False)},
        ],
        lambda x, i, c: [x[i] if c else np.maximum(x, 0)],
    ),
    "if_untaken_branch_divides_by_zero": (
        """agraph (int64[n] x, int64 d) => (int64[n] y) {
             zero = Constant <value_int = 0> ()
             c = Equal (d, zero)
             y = If (c) <then_branch = g1 () => (int64[n] a) { a = Identity (x) },
                         else_branch = g2 () => (int64[n] b) { b = Div (x, d) }>
           }""",
        [{"x": np.array([7, -9], np.int64), "d": whole(d)} for d in (0, 2)],
        lambda x, d: [x if d == 0 else (x / d).astype(np.int64)],
    ),
    "if_untaken_branch_reshapes": (
        """agraph (float[n] x, bool c) => (float[m] y) {
             s = Constant <value_ints = [2, -1]> ()
             f = Constant <value_ints = [-1]> ()
             y = If (c) <
               then_branch = g1 () => (float[m] a) { t = Reshape (x, s) u = Transpose (t) a = Reshape (u, f) },
               else_branch = g2 () => (float[m] b) { b = Neg (x) }>
           }""",
        [{"x": floats(6), "c": flag(True)}, {"x": floats(5), "c": flag(False)}, {"x": floats(0), "c": flag(True)}],
        lambda x, c: [x.reshape(2, -1).T.reshape(-1) if c else -x],
    ),
    "if_branches_of_other_dims": (
        """agraph (float[n, 3] x, bool[1] c) => (float[m, k] y, int64[2] s) {
             z = If (c) <then_branch = g1 () => (float[m, k] a) { a = Transpose <perm = [1, 0]> (x) },
                         else_branch = g2 () => (float[m, k] b) { b = Concat <axis = 0> (x, x) }>
             y = Exp (z)
             s = Shape (z)
           }""",
        [{"x": floats(4, 3), "c": flag([True])}, {"x": floats(2, 3), "c": flag([False])}],
        lambda x, c: (lambda z: [np.exp(z), whole(*z.shape)])(x.T if c[0] else np.concatenate([x, x])),
    ),
    "if_sizes_computed_outside": (
        """agraph (float[n, 6] x, bool c) => (float[n, m] y) {
             zero = Constant <value_ints = [0]> ()
             rest = Constant <value_ints = [-1]> ()
             s = Shape (x)
             n = Gather (s, zero)
             d = Concat <axis = 0> (n, rest)
             z = Concat <axis = 1> (x, x)
             y = If (c) <then_branch = g1 () => (float[n, m] a) { r = Reshape (z, d) a = Add (r, z) },
                         else_branch = g2 () => (float[n, m] b) { b = Mul (z, z) }>
           }""",
        [{"x": floats(n, 6), "c": flag(c)} for n in (1, 3) for c in (True, False)],
        lambda x, c: [2 * np.hstack([x, x]) if c else np.hstack([x, x]) ** 2],
    ),
    "if_in_if": (
        """agraph (float[n] x, bool c, bool d) => (float[n] y, float[n] z) {
             w = Constant <value_floats = [2.0]> ()
             y, z = If (c) <
               then_branch = g1 () => (float[n] a, float[n] b) {
                 a = If (d) <then_branch = g3 () => (float[n] e) { e = Mul (x, w) },
                             else_branch = g4 () => (float[n] f) { f = Neg (x) }>
                 b = Add (a, x) },
               else_branch = g2 () => (float[n] g, float[n] h) { g = Exp (x) h = Identity (x) }>
           }""",
        [{"x": floats(3), "c": flag(c), "d": flag(d)} for c in (True, False) for d in (True, False)],
        if_in_if,
    ),
    "if_with_a_sequence_around": (
        """agraph (float[n] x, float[n] z, bool c) => (float[m] y) {
             q = SequenceConstruct (x, z)
             one = Constant <value_int = 1> ()
             y = If (c) <then_branch = g1 () => (float[m] a) { a = SequenceAt (q, one) },
                         else_branch = g2 () => (float[m] b) { b = ConcatFromSequence <axis = 0> (q) }>
           }""",
        [{"x": floats(3), "z": floats(3), "c": flag(c)} for c in (True, False)],
        lambda x, z, c: [z if c else np.concatenate([x, z])],
    ),
    "loop_of_a_count_that_is_an_input": (
        """agraph (float[n] x, int64 count) => (float[n] y, float[k, n] all) {
             t = Constant <value = bool {1}> ()
             h = Constant <value_floats = [0.5]> ()
             y, all = Loop (count, t, x) <body = g1 (int64 i, bool c, float[n] s) => (bool o, float[n] r, float[n] q) {
               o = Identity (c) f = Cast <to = 1> (i) p = Mul (s, h) r = Add (p, f) q = Neg (s) }>
           }""",
        [{"x": floats(3), "count": whole(n)} for n in (0, 1, 4)],
        halves,
    ),
    "loop_until_a_condition_fails": (
        """agraph (float[n] x, float limit) => (float[n] y, float[k] sums, int64 last) {
             start = Constant <value_int = 0> ()
             s0 = ReduceSum <keepdims = 0> (x)
             c0 = Less (s0, limit)
             y, last, sums = Loop (, c0, x, start) <body = g1 (int64 i, bool c, float[n] s, int64 l)
                 => (bool o, float[n] r, int64 j, float t) {
               two = Constant <value_float = 2.0> ()
               r = Mul (s, two)
               t = ReduceSum <keepdims = 0> (r)
               o = Less (t, limit)
               j = Identity (i) }>
           }""",
        [{"x": np.abs(floats(4)) + 0.1, "limit": np.array(limit, np.float32)} for limit in (100, 0.01, 20)],
        doubled,
    ),
    "loop_until_a_condition_or_a_count": (
        """agraph (float x, int64 m, float limit) => (float y, int64[k] steps) {
             t = Constant <value = bool {1}> ()
             y, steps = Loop (m, t, x) <body = g1 (int64 i, bool c, float s) => (bool o, float r, int64 j) {
               r = Add (s, s) o = Less (r, limit) j = Add (i, i) }>
           }""",
        [
            {"x": np.array(1, np.float32), "m": whole(m), "limit": np.array(limit, np.float32)}
            for m, limit in ((10, 9), (2, 1000), (0, 5), (5, 0))
        ],
        doubled_so_often,
    ),
    "loop_that_grows": (
        """agraph (float[n, 2] x, int64 m) => (float[k, 2] y) {
             t = Constant <value = bool {1}> ()
             y = Loop (m, t, x) <body = g1 (int64 i, bool c, float[k, 2] s) => (bool o, float[k, 2] r) {
               o = Identity (c) r = Concat <axis = 0> (s, x) }>
           }""",
        [{"x": floats(2, 2), "m": whole(m)} for m in (0, 3)],
        lambda x, m: [np.tile(x, (m + 1, 1))],
    ),
    "loop_with_an_if": (
        """agraph (float[n] x, int64 m) => (float[n] y) {
             t = Constant <value = bool {1}> ()
             two = Constant <value_int = 2> ()
             zero = Constant <value_int = 0> ()
             y = Loop (m, t, x) <body = g1 (int64 i, bool c, float[n] s) => (bool o, float[n] r) {
               o = Identity (c)
               k = Mod (i, two)
               even = Equal (k, zero)
               r = If (even) <then_branch = g2 () => (float[n] a) { a = Add (s, x) },
                              else_branch = g3 () => (float[n] b) { b = Neg (s) }> }>
           }""",
        [{"x": floats(3), "m": whole(m)} for m in (0, 1, 5)],
        add_or_negate,
    ),
    "loop_in_loop": (
        """agraph (float[n] x, int64 m) => (float[n] y, int64[k] counts) {
             t = Constant <value = bool {1}> ()
             y, counts = Loop (m, t, x) <body = g1 (int64 i, bool c, float[n] s) => (bool o, float[n] r, int64 k) {
               o = Identity (c)
               k = Identity (i)
               r = Loop (i, t, s) <body = g2 (int64 j, bool d, float[n] u) => (bool p, float[n] v) {
                 p = Identity (d) v = Add (u, x) }> }>
           }""",
        [{"x": floats(2), "m": whole(m)} for m in (0, 4)],
        lambda x, m: [x * np.float32(1 + m * (m - 1) // 2), np.arange(m)],
    ),
    "loop_that_reads_rows": (
        """agraph (float[n, 3] x) => (float[n, 3] y) {
             t = Constant <value = bool {1}> ()
             s = Shape <start = 0, end = 1> (x)
             m = Squeeze (s)
             y = Loop (m, t) <body = g1 (int64 i, bool c) => (bool o, float[3] r) {
               o = Identity (c) g = Gather (x, i) r = Softmax (g) }>
           }""",
        [{"x": floats(n, 3)} for n in (1, 5)],
        lambda x: [softmax(x)],
    ),
    "loop_of_a_known_count_that_slices": (
        """agraph (float[4, n] x) => (float[m, n] y) {
             t = Constant <value = bool {1}> ()
             m = Constant <value_int = 3> ()
             one = Constant <value_ints = [1]> ()
             top = Slice (x, zero, one)
             y = Loop (m, t, top) <body = g1 (int64 i, bool c, float[k, n] s) => (bool o, float[k, n] r) {
               o = Identity (c) b = Unsqueeze (i, zero) e = Add (b, one) p = Slice (x, b, e)
               r = Concat <axis = 0> (s, p) }>
           }""",
        [{"x": floats(4, n)} for n in (1, 3)],
        lambda x: [x[[0, 0, 1, 2]]],
    ),
    "scan_of_two_states": (
        """agraph (float[b] x, int64[b] z, float[n, b] u, int64[n, b] v)
             => (float[b] p, int64[b] q, float[n, b] r, int64[n, b] s) {
             p, q, r, s = Scan <num_scan_inputs = 2, body = g1 (float[b] a, int64[b] c, float[b] d, int64[b] e)
                 => (float[b] f, int64[b] g, float[b] h, int64[b] i) {
               f = Add (a, d) g = Mul (c, e) h = Neg (f) i = Add (g, e) }> (x, z, u, v)
           }""",
        [
            {"x": floats(3), "z": whole(1, 2, 3), "u": floats(n, 3), "v": RNG.integers(-3, 4, (n, 3))}
            for n in (1, 4)
        ],
        scan_two,
    ),
    "scan_of_axes_and_directions": (
        """agraph (float[2] x, float[2, n] u, float[n, 2] v) => (float[2] p, float[2, n] r, float[n, 2] s) {
             p, r, s = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                 scan_output_axes = [-1, 0], scan_output_directions = [0, 1],
                 body = g1 (float[2] a, float[2] b, float[2] c) => (float[2] d, float[2] e, float[2] f) {
               h = Constant <value_floats = [0.5]> () k = Mul (a, h) d = Add (k, b) e = Sub (d, c) f = Identity (c) }>
               (x, u, v)
           }""",
        [{"x": floats(2), "u": floats(2, n), "v": floats(n, 2)} for n in (1, 5)],
        scan_axes,
    ),
    "scan_with_weights_around": (
        """agraph (float[b, 3] h, float[n, b, 3] u, float[3, 3] w) => (float[b, 3] last, float[n, b, 3] all) {
             last, all = Scan <num_scan_inputs = 1, body = g1 (float[b, 3] a, float[b, 3] x)
                 => (float[b, 3] c, float[b, 3] d) { m = MatMul (a, w) s = Add (m, x) c = Tanh (s) d = Identity (c) }>
               (h, u)
           }""",
        [{"h": floats(2, 3), "u": floats(n, 2, 3), "w": floats(3, 3)} for n in (1, 6)],
        recur,
    ),
    "scan_without_states": (
        """agraph (float[n, 3] u) => (float[n] s) {
             s = Scan <num_scan_inputs = 1,
               body = g1 (float[3] a) => (float b) { b = ReduceMax <keepdims = 0> (a) }> (u)
           }""",
        [{"u": floats(n, 3)} for n in (1, 3)],
        lambda u: [u.max(1)],
    ),
}  # fmt: skip


def parse(text: str) -> onnx.ModelProto:
    zero = "zero = Constant <value_ints = [0]> ()\n top = Slice"  # the parser wants values in their order
    return onnx.parser.parse_model(HEAD + text.replace("top = Slice", zero))


def compare(name: str, actual: np.ndarray, wanted: np.ndarray) -> str:
    wanted = np.asarray(wanted)
    if actual.dtype != wanted.dtype or actual.shape != wanted.shape:
        return f"{name} is {actual.dtype}{list(actual.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    is_near = np.allclose(actual, wanted, rtol=1e-5, atol=1e-6, equal_nan=True)
    return "" if is_near else f"{name} is {actual}, expected {wanted}"


def run_case(library: Library, text: str, runs: list, compute, path: Path) -> list[str]:
    model, wrong = parse(text), []
    path.write_bytes(model.SerializeToString())
    graph = library.open(path, {})
    for inputs in runs:
        actual = library.run(graph, inputs)
        for output, wanted in zip(model.graph.output, compute(**inputs), strict=True):
            wrong.append(compare(output.name, actual[output.name], wanted))
    library.c.hr_graph_release(graph)
    return [text for text in wrong if text]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=LIBRARY)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    library, errors = Library(str(options.library)), []
    names = [name for name in CASES if options.only in name]
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            try:
                errors += [f"{name}: {text}" for text in run_case(library, *CASES[name], Path(scratch) / "model.onnx")]
            except Failure as failure:
                errors.append(f"{name}: {failure}")
    print(*errors, f"{len(names)} models, {len(errors)} errors", sep="\n")
    return 1 if errors or not names else 0


if __name__ == "__main__":
    sys.exit(main())
