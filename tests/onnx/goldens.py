#!/usr/bin/env python3
"""Small models against answers of ONNX Runtime that are kept in tests/data/onnx_goldens.npz.

    python tests/onnx/goldens.py [--only lstm] [--library libheadrace.so]
    python tests/onnx/goldens.py --write        makes the file anew; needs onnxruntime

Inputs are drawn with a seed, so the file has answers alone. Floats agree within 1e-5 of an answer's largest number,
integers are the same.
"""

import argparse
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

sys.path.insert(0, str(Path(__file__).parent))
from library import LIBRARY, ROOT, Library  # noqa: E402

FILE = ROOT / "tests/data/onnx_goldens.npz"
HEAD = '<ir_version: 9, opset_import: ["" : 20]>\n'
# Name: the model's text. Floats are normally distributed, bytes any, int64 inputs between 0 and 3.
MODELS = {
    "lstm": """g (float[6,2,3] x, float[2,20,3] w, float[2,20,5] r, float[2,40] b, float[2,2,5] h, float[2,2,5] c,
        float[2,15] p) => (float[6,2,2,5] y, float[2,2,5] yh, float[2,2,5] yc) {
        y, yh, yc = LSTM<hidden_size=5, direction="bidirectional">(x, w, r, b, , h, c, p) }""",
    "gru": """g (float[6,2,3] x, float[1,15,3] w, float[1,15,5] r, float[1,30] b)
        => (float[6,1,2,5] y, float[1,2,5] h) {
        y, h = GRU<hidden_size=5, direction="reverse", linear_before_reset=1>(x, w, r, b) }""",
    "rnn": """g (float[4,3,2] x, float[1,6,2] w, float[1,6,6] r) => (float[4,1,3,6] y) {
        y, h = RNN<hidden_size=6, activations=["Relu"], clip=2.0>(x, w, r) }""",
    "quantised matmul": """g (uint8[4,7] a, uint8[7,5] b) => (uint8[4,5] y) {
        s = Constant<value_float=0.02>()
        t = Constant<value_float=0.5>()
        i = Constant<value_int=131>()
        z = Cast<to=2>(i)
        y = QLinearMatMul(a, s, z, b, s, z, t, z) }""",
    "quantised convolution": """g (uint8[1,3,6,7] x, uint8[4,3,3,2] w) => (uint8[1,4,6,4] y) {
        s = Constant<value_float=0.05>()
        t = Constant<value_float=0.9>()
        i = Constant<value_int=120>()
        z = Cast<to=2>(i)
        y = QLinearConv<pads=[1,0,1,1], strides=[1,2]>(x, s, z, w, s, z, t, z) }""",
    "dynamic quantisation": """g (float[4,9] x, uint8[9,3] w) => (int32[4,3] y, float s) {
        q, s, z = DynamicQuantizeLinear(x)
        y = MatMulInteger(q, w, z) }""",
    "cubic": """g (float[1,2,5,6] x) => (float[1,2,8,13] y) {
        k = Constant<value_floats=[1.0, 1.0, 1.7, 2.3]>()
        y = Resize<mode="cubic", coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.5>(x, , k) }""",
    "smaller": """g (float[1,2,9,8] x) => (float[1,2,4,5] y) {
        k = Constant<value_ints=[1, 2, 4, 5]>()
        y = Resize<mode="linear", coordinate_transformation_mode="half_pixel", antialias=1>(x, , , k) }""",
    "nearest": """g (float[1,2,5,6] x) => (float[1,2,7,9] y) {
        k = Constant<value_floats=[1.0, 1.0, 1.5, 1.6]>()
        y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="ceil">(x, , k) }""",
    "transposed convolution": """g (float[2,3,5,4] x, float[3,4,3,3] w, float[4] b, float[4] s, float[4] a)
        => (float[2,4,10,7] y) {
        c = ConvTranspose<strides=[2,2], pads=[1,1,0,1], output_padding=[0,0]>(x, w, b)
        n = InstanceNormalization<epsilon=0.01>(c, s, a)
        i = Constant<value_ints=[0]>()
        k = Constant<value_ints=[1, 2]>()
        u = Unsqueeze(b, k)
        y = PRelu(n, u) }""",
    "suppression": """g (float[1,12,4] x, float[1,2,12] s) => (int64[k,3] y) {
        m = Constant<value_int=4>()
        o = Constant<value_float=0.3>()
        t = Constant<value_float=0.1>()
        y = NonMaxSuppression<center_point_box=1>(x, s, m, o, t) }""",
    "scatter": """g (float[4,5] x, int64[3,2] i, float[3] u, int64[4,3] j)
        => (float[4,5] y, float[4,3] z, int64[4,2] p) {
        y = ScatterND<reduction="max">(x, i, u)
        z = GatherElements<axis=1>(x, j)
        k = Constant<value_ints=[2]>()
        v, p = TopK<axis=1, largest=0>(y, k) }""",
    "block": """g (float[2,6,8] x, float[8,24] w, float[8] s, float[8] b, float[8,8] o) => (float[2,6,8] y) {
        n = LayerNormalization<axis=-1>(x, s, b)
        p = MatMul(n, w)
        q, k, v = Split<axis=2, num_outputs=3>(p)
        t = Transpose<perm=[0,2,1]>(k)
        a = MatMul(q, t)
        f = Softmax<axis=-1>(a)
        c = MatMul(f, v)
        h = Gelu<approximate="tanh">(c)
        m = MatMul(h, o)
        y = Add(x, m) }""",
    "einsum": """g (float[3,4,5] a, float[5,3,2] b, float[2,4] c) => (float[3,4] y) {
        t = Einsum<equation="ijk,kil->ijl">(a, b)
        y = Einsum<equation="ijl,lj->ij">(t, c) }""",
    "loop": """g (float[3] x) => (float[3] y, float[k,3] all) {
        n = Constant<value_int=5>()
        on = Constant<value = bool {1}>()
        y, all = Loop (n, on, x) <body = b (int64 i, bool c, float[3] s) => (bool go, float[3] next, float[3] out) {
            f = CastLike(i, s)
            next = Add(s, f)
            out = Tanh(next)
            most = ReduceMax<keepdims=0>(next)
            limit = Constant<value_float=4.0>()
            go = Less(most, limit)
        }> }""",
    "branch": """g (float[4] x) => (float[4] y) {
        s = ReduceSum<keepdims=0>(x)
        zero = Constant<value_float=0.0>()
        c = Greater(s, zero)
        y = If (c) <
            then_branch = t () => (float[4] a) { a = Exp(x) },
            else_branch = e () => (float[4] d) { d = Neg(x) }> }""",
    "pools": """g (float[1,2,7,8] x) => (float[1,2,4,4] a, float[1,2,3,4] m, float[1,2,1,1] g) {
        a = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], count_include_pad=1>(x)
        m = MaxPool<kernel_shape=[2,2], strides=[2,2], dilations=[2,1]>(x)
        g = GlobalAveragePool(x) }""",
    "regions": """g (float[4,2,9,11] x, int64[7,1] b, int64[7,4] r) => (float[7,2,3,2] y) {
        i = Concat<axis=1>(b, r)
        f = Cast<to=1>(i)
        y = MaxRoiPool<pooled_shape=[3,2], spatial_scale=2.7>(x, f) }""",
    "distinct rows": """g (int64[9,2] x) => (int64[k,2] y, int64[k] i, int64[9] j, int64[k] n) {
        y, i, j, n = Unique<axis=0>(x) }""",
    "distinct columns": """g (int64[2,3,8] x) => (int64[2,3,k] y, int64[k] i, int64[8] j, int64[k] n) {
        z = Constant<value_ints=[0, 1, 2, 0, 3, 1, 2, 2]>()
        t = Gather<axis=2>(x, z)
        y, i, j, n = Unique<axis=-1, sorted=0>(t) }""",
    "mel": """g (int64[1] x) => (float[k,10] y) {
        n = Constant<value_int=10>()
        l = Constant<value_int=64>()
        s = Constant<value_int=8000>()
        a = Constant<value_float=100.0>()
        b = Constant<value_float=3600.0>()
        y = MelWeightMatrix(n, l, s, a, b) }""",
    "grid": """g (float[1,2,5,6] x, float[1,3,4,2] p) => (float[1,2,3,4] y) {
        y = GridSample<mode="linear", padding_mode="border", align_corners=1>(x, p) }""",
}


def model_of(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + MODELS[name])


def make_inputs(name: str, model: onnx.ModelProto) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(zlib.crc32(name.encode()))
    made = {}
    for value in model.graph.input:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if kind == np.float32:
            made[value.name] = numbers.standard_normal(dims).astype(kind)
        else:
            made[value.name] = numbers.integers(0, 256 if kind == np.uint8 else 4, dims).astype(kind)
    if name == "suppression":  # boxes with positive sizes
        made["x"] = np.abs(made["x"])
    return made


def write() -> None:
    import onnxruntime

    answers = {}
    for name in MODELS:
        model = model_of(name)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for output, y in zip(session.get_outputs(), session.run(None, make_inputs(name, model))):
            answers[f"{name}/{output.name}"] = y
    np.savez_compressed(FILE, **answers)
    print(f"{FILE}: {len(answers)} answers of ONNX Runtime {onnxruntime.__version__}, {FILE.stat().st_size} bytes")


def difference(got: np.ndarray, wanted: np.ndarray) -> str:
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        return "" if (got == wanted).all() else f"{int((got != wanted).sum())} of {wanted.size} integers differ"
    far = np.abs(got.astype("f8") - wanted).max(initial=0) / max(np.abs(wanted).max(initial=0), 1e-30)
    return f"{far:.1e} of the largest number" if far > 1e-5 else ""


def check(library: str, only: str) -> int:
    device, kept, wrong, count = Library(library), dict(np.load(FILE)), 0, 0
    for name in (name for name in MODELS if only in name):
        model = model_of(name)
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            onnx.save(model, file.name)
            answers = device.run(device.open(Path(file.name), {}), make_inputs(name, model))
        for output, y in answers.items():
            count += 1
            if text := difference(y, kept[f"{name}/{output}"]):
                wrong += 1
                print(f"{name}: {output}: {text}")
    print(f"{count - wrong} of {count} answers are those of ONNX Runtime")
    return 1 if wrong or not count else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=LIBRARY, help="default: %(default)s")
    parser.add_argument("--only", default="", help="models with this word in their name")
    parser.add_argument("--write", action="store_true", help="makes the kept answers anew")
    options = parser.parse_args()
    return write() or 0 if options.write else check(options.library, options.only)


if __name__ == "__main__":
    sys.exit(main())
