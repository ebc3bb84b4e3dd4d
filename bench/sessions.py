#!/usr/bin/env python3
"""What a run of a session costs besides its kernels: chains of sine on 4 floats, which are one record each.

    python bench/sessions.py [rounds]

The calls are timed alone: 8 in a row, whose work is waited for outside of the time. `a record` is the slope between the
shortest chain and the longest one, `a run` the rest. Then the time of an answer: a NumPy array in, a NumPy array out,
by headrace.onnxruntime and, if the packages onnxruntime and onnx are installed, by ONNX Runtime in turn. Best and
median of the rounds, because neighbours on the machine only add time.
"""

import statistics
import sys
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


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(f"{'us':44} {'best':>8} {'median':>8}")
    time_calls(rounds)
    time_answers(rounds)


if __name__ == "__main__":
    main()
