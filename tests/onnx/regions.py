#!/usr/bin/env python3
"""RoiAlign and DeformConv with random attributes, and sizes that are symbols, against onnx's reference.

    python tests/onnx/regions.py
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).parent))
from library import LIBRARY, Library  # noqa: E402

SAME_DIMS = {("batch", 0): "rois0", ("mask", 0): "offset0", ("mask", 2): "offset2", ("mask", 3): "offset3"}
FIXED = {("rois", 1), ("x", 1), ("w", 0), ("w", 1), ("w", 2), ("w", 3), ("offset", 1), ("mask", 1), ("bias", 0)}


def make_model(operator: str, feeds: dict, attributes: dict, has_symbols: bool) -> onnx.ModelProto:
    infos = []
    for name, x in feeds.items():
        symbols = [SAME_DIMS.get((name, i), f"{name}{i}") for i in range(x.ndim)]
        dims = [s if has_symbols and (name, i) not in FIXED else x.shape[i] for i, s in enumerate(symbols)]
        infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), dims))
    node = helper.make_node(operator, list(feeds), ["y"], **attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], operator, infos, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=8)


def draw_regions(random: np.random.Generator, number: int) -> tuple[dict, dict]:
    """Regions reach beyond the image, and some are empty, or none."""
    images, channels, height, width, count = (int(random.integers(1, n)) for n in (4, 4, 9, 9, 5))
    count = 0 if number % 11 == 10 else count
    first = random.uniform(-3, 12, (count, 2))
    last = first + (random.uniform(-0.5, 9, (count, 2)) if number % 7 else 0)
    feeds = {
        "x": random.standard_normal((images, channels, height, width)).astype(np.float32),
        "rois": np.concatenate([first, last], axis=1).astype(np.float32),
        "batch": random.integers(0, images, count),
    }
    return feeds, {
        "mode": ("avg", "max")[number % 2],
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel")[number // 2 % 2],
        "output_height": int(random.integers(1, 4)),
        "output_width": int(random.integers(1, 4)),
        "sampling_ratio": int(random.integers(0, 4)) if number % 3 else 0,
        "spatial_scale": float(random.choice([1, 0.5, 0.25])),
    }


def draw_offsets(random: np.random.Generator, number: int) -> tuple[dict, dict]:
    images, offset_groups, groups = (int(random.integers(1, 3)) for _ in range(3))
    channels, outputs = (int(n * random.integers(1, 3)) for n in (offset_groups * groups, groups))
    window, stride, dilation = random.integers(1, 4, 2), random.integers(1, 3, 2), random.integers(1, 3, 2)
    pads, planes = random.integers(0, 3, 4), random.integers(6, 10, 2)
    out = (planes + pads[:2] + pads[2:] - (window - 1) * dilation - 1) // stride + 1
    places = offset_groups * int(window.prod())
    feeds = {
        "x": random.standard_normal((images, channels, *planes)).astype(np.float32),
        "w": random.standard_normal((outputs, channels // groups, *window)).astype(np.float32),
        "offset": (2 * random.standard_normal((images, 2 * places, *out))).astype(np.float32),
    }
    if number % 3:
        feeds["bias"] = random.standard_normal(outputs).astype(np.float32)
    if number % 3 == 2:
        feeds["mask"] = random.uniform(0, 1, (images, places, *out)).astype(np.float32)
    lists = {"strides": stride, "dilations": dilation, "pads": pads, "kernel_shape": window}
    return feeds, {
        "group": groups,
        "offset_group": offset_groups,
        **{name: [int(n) for n in numbers] for name, numbers in lists.items()},
    }


def check(library: Library, path: Path, operator: str, feeds: dict, attributes: dict, has_symbols: bool) -> None:
    model = make_model(operator, feeds, attributes, has_symbols)
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    onnx.save(model, path)
    graph = library.open(path, feeds)
    actual = library.run(graph, feeds)["y"]
    library.c.hr_graph_release(graph)
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5, err_msg=f"{operator} {attributes}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=LIBRARY)
    library = Library(parser.parse_args().library)
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(60):
            for operator, draw in ("RoiAlign", draw_regions), ("DeformConv", draw_offsets):
                check(library, Path(folder) / "model.onnx", operator, *draw(random, number), has_symbols=number % 4 > 0)
    print("60 models of each operator agree with onnx's reference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
