"""Times an ONNX model in another engine, for `headrace bench --against`.

    python -m headrace._engines onnxruntime model.onnx 1.0 f32 --batch 8 --input x f32 8,1,28,28 --batch 64 ...

Behind the seconds is the precision of products, which OpenVINO alone has. Each batch has its inputs behind it: name,
dtype, dims. The rows are those of `headrace bench`. HEADRACE_THREADS is the number of threads of these engines, too.
"""

import importlib.util
import os
import resource
import statistics
import sys
import time

RUNS_MIN, RUNS_MAX, BAR_CELLS = 3, 1 << 20, 20
DTYPES = {"bool": "bool", "c64": "complex64", "c128": "complex128"}
DTYPES |= {f"f{bits}": f"float{bits}" for bits in (16, 32, 64)}
DTYPES |= {f"{kind}{bits}": f"{word}int{bits}" for kind, word in (("i", ""), ("u", "u")) for bits in (8, 16, 32, 64)}


def thread_count() -> int:
    """0: the engine's own."""
    text = os.environ.get("HEADRACE_THREADS", "")
    return int(text) if text.isdecimal() else 0


def open_onnxruntime(path: str, precision: str):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = thread_count()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return onnxruntime.__version__, lambda inputs: session.run(None, inputs)


def open_openvino(path: str, precision: str):
    """Without a precision it would multiply in bfloat16, on processors that do."""
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
    if threads := thread_count():
        settings["INFERENCE_NUM_THREADS"] = threads
    request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()
    version = openvino.get_version().split("-")[0]
    return version, lambda inputs: request.infer(inputs, share_inputs=True)


ENGINES = {"onnxruntime": open_onnxruntime, "openvino": open_openvino}


def make_input(dtype: str, dims: str):
    """Random numbers between -1 and 1 for f32, zeros for other dtypes."""
    import numpy as np

    sizes = tuple(map(int, filter(None, dims.split(","))))
    if dtype == "f32":
        return np.random.default_rng(0).uniform(-1, 1, sizes).astype(np.float32)
    if dtype not in DTYPES:
        raise ValueError(f"an input of {dtype} can't be made for other engines; expected {', '.join(DTYPES)}")
    return np.zeros(sizes, DTYPES[dtype])


def parse_batches(words: list[str]) -> list[tuple[str, dict]]:
    batches, rest = [], iter(words)
    for word in rest:
        if word == "--batch":
            batches.append((next(rest), {}))
        else:
            name, dtype, dims = next(rest), next(rest), next(rest)
            batches[-1][1][name] = make_input(dtype, dims)
    return batches


def show_progress(batch: str, share: float) -> None:
    if sys.stderr.isatty():
        print(f"\r  batch {batch} [{'#' * int(min(share, 1) * BAR_CELLS):{BAR_CELLS}}]", end="", file=sys.stderr)


def measure(run, batch: str, inputs: dict, seconds: float) -> list[float]:
    """Milliseconds of the first run, then of those that fit into the seconds."""
    times, begin, passed, shown = [], 0.0, 0.0, 0.0
    while len(times) <= RUNS_MIN or (passed < seconds and len(times) < RUNS_MAX):
        start = time.perf_counter()
        run(inputs)
        end = time.perf_counter()
        times.append(1e3 * (end - start))
        begin = begin or end  # behind the first run
        passed = end - begin
        if passed >= shown:
            show_progress(batch, passed / seconds)
            shown = passed + seconds / BAR_CELLS
    return times


def main(words: list[str]) -> int:
    engine, path, seconds, precision, *rest = words
    if importlib.util.find_spec(engine) is None:
        print(f"{engine}: not installed; `pip install {engine}` brings it")
        return 0
    batches = parse_batches(rest)
    begin = time.perf_counter()
    version, run = ENGINES[engine](path, precision)
    print(f"{engine} {version}: opened in {1e3 * (time.perf_counter() - begin):.3f} ms")
    for batch, inputs in batches:
        first, *times = measure(run, batch, inputs, float(seconds))
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        figures = f"{first:12.3f} {statistics.median(times):12.4f} {min(times):12.4f} {len(times):8d} {peak:12.1f}"
        print(f"{batch:>8} {figures}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
