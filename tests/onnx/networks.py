#!/usr/bin/env python3
"""Networks exported by torch, imported and run: the benchmarks' (examples/networks.py) and the gallery's, in small.

    python tests/onnx/networks.py [--only gpt2] [--library libheadrace.so]

Answers are compared with ONNX Runtime's, or with torch's if it is not installed: the root mean square of the
differences is at most 1e-5 of the answers' standard deviation. Then the same models run in processes of their own: with
1 and 2 threads the bits are the same, and in the modes eager and strict they differ by no more than that bound.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from library import LIBRARY, ROOT, Library

BOUND = 1e-5
SETTINGS = [("fuse", 1), ("fuse", 2), ("eager", 2), ("strict", 2)]


# ---- models


def hear(model, sound, notes) -> dict:
    import torch
    from gallery.whisper import spectrogram

    names = ("input_features", "decoder_input_ids", "decoder_attention_mask")
    return dict(zip(names, (spectrogram(model, sound), notes, torch.ones_like(notes))))


def read(model, tokens) -> dict:
    import torch

    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


# Inputs by name of networks whose `infer` writes token after token: torch's exporter by tracing refuses that loop. With
# a mask they do not look for several texts in a row, which it refuses as well.
LOGITS = {"whisper": hear, "llama": read}


def find_networks() -> dict:
    """Name: a function that gives a module without dropout and the inputs of a batch."""
    import torch
    from gallery import NETWORKS, network
    from networks import CASES

    class Answer(torch.nn.Module):
        def __init__(self, model, infer):
            super().__init__()
            self.model, self.infer = model, infer

        def forward(self, *batch):
            return self.infer(self.model, *batch)

    def of_case(case):
        torch.manual_seed(0)
        answer = Answer(case.build(small=True, dropout=0.0).eval(), lambda model, *batch: case.infer(model, batch))
        return answer, case.batch(small=True)

    def of_gallery(name):
        net = network(name)
        torch.manual_seed(0)
        model, batch = net.build(small=True).eval(), net.batch(torch.Generator().manual_seed(0), small=True)
        if name not in LOGITS:
            return Answer(model, net.infer), batch
        model.set_attn_implementation("eager")  # torch's exporter has no attention with groups of heads
        with torch.no_grad():
            inputs = LOGITS[name](model, *batch)
        names = tuple(inputs)
        return Answer(model, lambda model, *x: model(**dict(zip(names, x)), use_cache=False).logits), inputs.values()

    own = {name: lambda case=case: of_case(case) for name, case in CASES.items()}
    return own | {f"gallery {name}": lambda name=name: of_gallery(name) for name in NETWORKS}


def add_rows(g, x, dim, index, rows, alpha=None):
    """index_add, of which torch's exporter by tracing loses the sums."""
    import torch
    from torch.onnx import symbolic_helper as helper

    axis = helper._parse_arg(dim, "i")
    assert alpha is None or helper._parse_arg(alpha, "f") == 1
    others = [d for d in range(helper._get_tensor_rank(rows)) if d != axis]
    places = g.op("Unsqueeze", index, g.op("Constant", value_t=torch.tensor(others)))
    places = g.op("Expand", places, g.op("Shape", rows))
    return g.op("ScatterElements", x, places, rows, axis_i=axis, reduction_s="add")


def export(make, path: Path) -> None:
    """The model beside x.npz, its inputs, and torch.npz, its answers by their order."""
    import torch

    torch.onnx.register_custom_op_symbolic("aten::index_add", add_rows, 16)

    torch.backends.mha.set_fastpath_enabled(False)  # the exporter does not know that operator
    module, batch = make()
    batch = tuple(batch)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        answers = module(*batch)
        answers = answers if isinstance(answers, tuple) else (answers,)
        names = [f"x{i}" for i in range(len(batch))]
        outputs = [f"y{i}" for i in range(len(answers))]
        torch.onnx.export(module, batch, str(path), dynamo=False, input_names=names, output_names=outputs)
    np.savez(path.with_suffix(".x.npz"), **{name: x.numpy() for name, x in zip(names, batch)})
    np.savez(path.with_suffix(".torch.npz"), **{name: y.numpy() for name, y in zip(outputs, answers)})


def answer_of_onnxruntime(path: Path, inputs: dict) -> dict | None:
    """None if it refuses the model."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        print(f"{path.stem}: torch is the reference: ONNX Runtime says {str(error)[:200]}")
        return None
    taken = {x.name for x in session.get_inputs()}
    names = [y.name for y in session.get_outputs()]
    return dict(zip(names, session.run(None, {name: x for name, x in inputs.items() if name in taken})))


# ---- answers


def serve(library: str, folder: Path, ending: str) -> None:
    """Answers of all models of the folder, into files with this ending."""
    device = Library(library)
    for path in sorted(folder.glob("*.onnx")):
        graph = device.open(path, {})
        inputs = dict(np.load(path.with_suffix(".x.npz")))
        answers = [device.run(graph, inputs) for _ in range(3)]
        for again in answers[1:]:
            for name, y in again.items():
                assert y.tobytes() == answers[0][name].tobytes(), f"{path.stem}: {name} differs from run to run"
        np.savez(path.with_suffix(f".{ending}.npz"), **answers[0])


def distance(got: np.ndarray, wanted: np.ndarray) -> float:
    """Of the standard deviation, or of the size of numbers that hardly differ; integers are equal or not."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return float("inf")
    if wanted.dtype.kind != "f":
        return 0.0 if (got == wanted).all() else float("inf")
    if wanted.size == 0:
        return 0.0
    wanted = wanted.astype("f8")
    difference = np.sqrt(np.mean((got - wanted) ** 2))
    size = np.sqrt(np.mean(wanted**2))
    return float(difference / (wanted.std() if wanted.std() > size / 10 else size)) if difference > 0 else 0.0


def largest_distance(got: dict, wanted: dict) -> float:
    return max(distance(got[name], wanted[name]) for name in wanted)


def compare(path: Path, has_engine: bool) -> list[str]:
    """The words of a line, and the reasons why it is wrong."""
    inputs = dict(np.load(path.with_suffix(".x.npz")))
    wanted = answer_of_onnxruntime(path, inputs) if has_engine else None
    wanted = dict(np.load(path.with_suffix(".torch.npz"))) if wanted is None else wanted
    answers = {s: dict(np.load(path.with_suffix(f".{s[0]}{s[1]}.npz"))) for s in SETTINGS}
    first = answers[SETTINGS[0]]
    line = {"reference": largest_distance(first, wanted)}
    wrong = [] if line["reference"] <= BOUND else [f"{line['reference']:.1e} from the reference"]
    for setting in SETTINGS[1:]:
        name = " ".join(map(str, setting))
        line[name] = largest_distance(answers[setting], first)
        is_same = all(answers[setting][y].tobytes() == first[y].tobytes() for y in first)
        if line[name] > BOUND or (setting[0] == "fuse" and not is_same):
            wrong.append(f"{name}: {line[name]:.1e} from fuse 1, {'the same' if is_same else 'other'} bits")
    print(f"{path.stem:20s} " + ", ".join(f"{name} {x:.1e}" for name, x in line.items()), flush=True)
    return [f"{path.stem}: {reason}" for reason in wrong]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=LIBRARY, help="default: %(default)s")
    parser.add_argument("--only", default="", help="networks with this word in their name")
    parser.add_argument("--serve", nargs=2, metavar=("FOLDER", "ENDING"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.serve:
        serve(options.library, Path(options.serve[0]), options.serve[1])
        return 0
    sys.path[:0] = [str(ROOT / "examples")]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in find_networks().items():
            if options.only in name:
                try:
                    export(make, Path(folder) / f"{name}.onnx")
                except ImportError as error:
                    print(f"{name}: not run: {error}")
        for mode, threads in SETTINGS:
            environment = os.environ | {"HEADRACE_MODE": mode, "HEADRACE_THREADS": str(threads)}
            command = [sys.executable, __file__, "--library", options.library, "--serve", folder, f"{mode}{threads}"]
            subprocess.run(command, env=environment, check=True)
        has_engine = importlib.util.find_spec("onnxruntime") is not None
        print(f"reference: {'ONNX Runtime' if has_engine else 'torch'}")
        models = sorted(Path(folder).glob("*.onnx"))
        for path in models:
            wrong += compare(path, has_engine)
    print(*wrong, f"{len(models) - len({w.split(':')[0] for w in wrong})} of {len(models)} networks agree", sep="\n")
    return 1 if wrong or not models else 0


if __name__ == "__main__":
    sys.exit(main())
