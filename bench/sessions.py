#!/usr/bin/env python3
"""What a run of a session costs besides its kernels: chains of sine on 4 floats, which are one record each.

    python bench/sessions.py [rounds]
    python bench/sessions.py dynamic [model.hrpkg]

The calls are timed alone: 8 in a row, whose work is waited for outside of the time. `a record` is the slope between the
shortest chain and the longest one, `a run` the rest. Then the time of an answer: a NumPy array in, a NumPy array out,
by headrace.onnxruntime and, if the packages onnxruntime and onnx are installed, by ONNX Runtime in turn. Best and
median of the rounds, because neighbours on the machine only add time.

dynamic: one session and many sizes. A small transformer answers for 300 lengths and 3 batches, in random order, again
and again: memory of the process, and CPU time of a run. Small convolutional networks answer for batches: kernels that
are compiled, in a process with HEADRACE_JIT=wait and no cache. With a model, such as GPT-2, whose last symbol of the
first input is a length: the CPU time that a new length adds to a run, which is the first run less the better one of the
next two.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import headrace as hr
import headrace.onnxruntime as ort

RECORDS = (1, 9, 64, 192)
CALLS = 8


def make_graph(records):
    graph = hr.Graph()
    value = graph.input("x", "float32", ["n"])
    for _ in range(records):
        value = hr.sin(value)
    graph.output("y", value)
    return graph


def make_onnx(records):
    from onnx import TensorProto, helper

    names = ["x", *(f"v{i}" for i in range(1, records)), "y"]
    nodes = [helper.make_node("Sin", [names[i]], [names[i + 1]]) for i in range(records)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def call_seconds(call):
    """Of one call, whose results are dropped before they are computed."""
    hr.eval()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS


def answer_seconds(session, feeds):
    begin = time.perf_counter()
    for _ in range(CALLS):
        session.run(None, feeds)
    return (time.perf_counter() - begin) / CALLS


def show(name, samples):
    print(f"{name:44} {min(samples) * 1e6:8.2f} {statistics.median(samples) * 1e6:8.2f}", flush=True)


def time_calls(rounds):
    x = hr.array(np.ones(4, np.float32))
    feeds, found = {"x": x}, {}
    sessions = {count: hr.Session(make_graph(count)) for count in RECORDS}
    for _ in range(rounds):
        for count, session in sessions.items():
            assert session.graph.operations == count
            found.setdefault(("run", count), []).append(call_seconds(lambda: session.run(None, feeds)))
            found.setdefault(("call", count), []).append(call_seconds(lambda: session(x=x)))
    for (kind, count), samples in sorted(found.items(), key=lambda item: (item[0][0] == "call", item[0][1])):
        name = "session.run(None, feeds)" if kind == "run" else "session(x=x)"
        show(f"{name}, {count} records", samples)
    for best in (min, statistics.median):
        first, last = (best(found["run", count]) for count in (RECORDS[0], RECORDS[-1]))
        slope = (last - first) / (RECORDS[-1] - RECORDS[0])
        print(f"{best.__name__:8} a run {(first - slope * RECORDS[0]) * 1e6:.2f} us, a record {slope * 1e6:.3f} us")


def time_answers(rounds):
    feeds = {"x": np.ones(4, np.float32)}
    engines = {"headrace": lambda count: ort.InferenceSession(make_graph(count))}
    try:
        import onnx  # noqa: F401
        import onnxruntime

        engines["onnxruntime"] = lambda count: onnxruntime.InferenceSession(make_onnx(count))
    except ImportError:
        print("onnxruntime and onnx: not installed, not measured")
    sessions = {(name, count): make(count) for count in RECORDS for name, make in engines.items()}
    samples = {key: [] for key in sessions}
    for _ in range(rounds):
        for key, session in sessions.items():
            samples[key].append(answer_seconds(session, feeds))
    for (name, count), values in samples.items():
        show(f"{name}, an answer, {count} records", values)


# ---- many sizes ----


def cpu_ms(call):
    begin = time.process_time()
    call()
    return (time.process_time() - begin) * 1e3


def anonymous_mib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("RssAnon"))


def make_transformer(width=64, heads=4, layers=2, words=256):
    random = np.random.default_rng(0)
    graph = hr.Graph()

    def weights(*dims):
        return graph.constant((random.standard_normal(dims) / np.sqrt(dims[0])).astype(np.float32))

    ids = graph.input("ids", "int64", ["batch", "length"])
    x = hr.take(weights(words, width), ids, axis=0)
    for _ in range(layers):
        y = hr.layer_norm(x, None, None)
        q, k, v = (
            hr.permute_dims((y @ weights(width, width)).reshape("batch", "length", heads, -1), axes=(0, 2, 1, 3))
            for _ in range(3)
        )
        y = hr.permute_dims(hr.attention(q, k, v, None, causal=True), axes=(0, 2, 1, 3))
        x = x + y.reshape("batch", "length", width) @ weights(width, width)
        y = hr.gelu(hr.layer_norm(x, None, None) @ weights(width, 4 * width))
        x = x + y @ weights(4 * width, width)
    graph.output("scores", hr.layer_norm(x, None, None) @ weights(width, words))
    return graph


def make_network(has_classes):
    random = np.random.default_rng(0)
    graph = hr.Graph()
    x = graph.input("x", "float32", ["batch", 3, 32, 32])
    w = graph.constant(random.standard_normal((8, 3, 3, 3)).astype(np.float32))
    y = hr.relu(hr.conv(x, w, stride=[2, 2], before=[1, 1], after=[1, 1], dilation=[1, 1]))
    y = y * hr.sigmoid(y)
    graph.output("y", hr.softmax(hr.mean(y, axis=(2, 3)), axis=1) if has_classes else y)
    return graph


def time_lengths(passes=4, lengths=300, batches=(1, 2, 4)):
    """Rows of (pass, anonymous MiB, CPU ms of a run)."""
    random = np.random.default_rng(0)
    session = hr.Session(make_transformer())
    sizes = [(batch, length) for batch in batches for length in range(1, lengths + 1)]
    for number in range(passes):
        spent = 0
        for i in random.permutation(len(sizes)):
            ids = random.integers(0, 256, sizes[i])
            spent += cpu_ms(lambda: np.asarray(session.run(None, {"ids": ids})[0]))
        yield number + 1, anonymous_mib(), spent / len(sizes)


def count_kernels(batches=(64, 7, 100, 33, 3, 256, 16), runs=4, has_classes=False):
    """Rows of (batch, kernels compiled, programs compiled)."""
    session = hr.Session(make_network(has_classes))
    for batch in batches:
        before = hr.stats()
        for _ in range(runs):
            np.asarray(session.run(None, {"x": np.ones((batch, 3, 32, 32), np.float32)})[0])
        while hr.stats()["jit_waiting"] > 0:
            time.sleep(0.01)
        after = hr.stats()
        yield batch, *(after[name] - before[name] for name in ("jit_compiled", "compiles"))


def time_new_lengths(path, count=40, longest=64):
    random = np.random.default_rng(0)
    session = hr.Session(path)
    name, added = session.inputs[0], []
    for length in [8, 12, 16, *random.permutation(np.arange(1, longest + 1))[:count]]:
        ids = random.integers(0, 100, (1, length))
        first, *others = (cpu_ms(lambda: np.asarray(session.run(None, {name: ids})[0])) for _ in range(3))
        added.append(first - min(others))
    return added[3:]


def show_sizes(path=None):
    print(f"{'transformer':20} {'anonymous MiB':>14} {'CPU ms a run':>14}")
    for number, mib, ms in time_lengths():
        print(f"pass {number:15} {mib:14.1f} {ms:14.2f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HEADRACE_JIT": "wait", "HEADRACE_CACHE": folder}
        subprocess.run([sys.executable, __file__, "kernels"], env=environment, check=True)
    if path is not None:
        added = sorted(time_new_lengths(path))
        print(f"a new length of {path} adds {statistics.median(added):.1f} ms of CPU time, at most {added[-1]:.1f}")


def show_kernels():
    for has_classes in (False, True):
        name = "with softmax" if has_classes else "convolution"
        print(f"{name:20} {'kernels':>14} {'programs':>14}")
        for batch, kernels, programs in count_kernels(has_classes=has_classes):
            print(f"batch {batch:14} {kernels:14} {programs:14}", flush=True)


def main():
    if sys.argv[1:2] == ["dynamic"]:
        return show_sizes(*sys.argv[2:3])
    if sys.argv[1:2] == ["kernels"]:
        return show_kernels()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{'us':44} {'best':>8} {'median':>8}")
    time_calls(rounds)
    time_answers(rounds)


if __name__ == "__main__":
    main()
