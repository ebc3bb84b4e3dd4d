"""headrace.Session: inputs of all kinds, instances, traces and gradients through a session, and wrong inputs."""

import os
import subprocess
import sys
import threading

import headrace as hr
import numpy as np
import pytest


def make_graph():
    graph = hr.Graph()
    x, t = graph.input("x", "float32", ["n", 3]), graph.input("t", "int64", ["n"])
    graph.output("y", x * 2)
    graph.output("z", x.sum(axis=1) + t.astype("float32"))
    return graph


X, T = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2])


def check(y, z):
    np.testing.assert_array_equal(np.asarray(y), X * 2)
    np.testing.assert_array_equal(np.asarray(z), X.sum(axis=1) + T)


def test_calls_and_runs():
    session = hr.Session(make_graph())
    assert session.inputs == ("x", "t") and session.outputs == ("y", "z") and session.device == hr.device()
    for answer in (session(x=X, t=T), session(X, T), session(X, t=T), session(**{"t": T, "x": X})):
        assert list(answer) == ["y", "z"] and isinstance(answer["y"], hr.Array)
        check(answer["y"], answer["z"])
    check(*session.run(None, {"x": X, "t": T}))
    z, y = session.run(["z", "y"], {"t": hr.array(T), "x": hr.array(X)})
    check(y, z)
    assert session.run(["z"], {"x": X, "t": T})[0].shape == (2,)
    assert session.stats()["runs"] == 7 and session.stats()["instances"] == 1 and session.stats()["records"] > 0


def test_inputs_of_all_kinds():
    session = hr.Session(make_graph())

    class Exchanged:
        def __init__(self, x):
            self.x = hr.array(x)

        def __dlpack__(self, **options):
            return self.x.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    wide = np.zeros((3, 4), np.float32)
    wide[:, ::2] = X.T
    for x in (X, X.tolist(), hr.array(X), Exchanged(X), hr.array(wide)[:, ::2].T, np.asfortranarray(X)):
        check(*session.run(None, {"x": x, "t": T.tolist()}))


def test_memory_of_others_may_change_after_the_call():
    session = hr.Session(make_graph())
    x = X.copy()
    answer = session(x=x, t=T)
    x[:] = -1
    check(answer["y"], answer["z"])


def test_instances_by_dims():
    session = hr.Session(make_graph(), instances=2)
    for n in (1, 2, 3, 2, 0):
        answer = session(x=np.ones((n, 3), np.float32), t=np.zeros(n, np.int64))
        assert answer["y"].shape == (n, 3) and np.asarray(answer["z"]).tolist() == [3.0] * n
    assert session.stats()["kept"] == 2 and session.stats()["instances"] == 4


def test_warm_makes_the_instance():
    session = hr.Session(make_graph())
    session.warm(x=(2, 3), t=(2,))
    session.warm(x=X, t=hr.array(T))
    assert session.stats()["instances"] == 1 and session.stats()["runs"] == 0
    compiles = hr.stats()["compiles"]
    answers = session.run(None, {"x": X, "t": T})
    hr.eval(answers)
    assert session.stats()["instances"] == 1 and hr.stats()["compiles"] == compiles
    check(*answers)
    shapes = {"x": (2, 3), "t": (2,)}
    huge = {**shapes, "x": (1 << 62, 3)}
    for wrong in ({"x": (2, 3)}, {**shapes, "u": (1,)}, {**shapes, "t": (3,)}, {**shapes, "x": (-1, 3)}, huge):
        with pytest.raises(ValueError):
            session.warm(**wrong)


def test_many_inputs_and_outputs():
    graph = hr.Graph()
    for i in range(40):
        graph.output(f"y{i}", graph.input(f"x{i}", "float32", ["n"]) + i)
    answer = hr.Session(graph)(**{f"x{i}": np.full(2, i, np.float32) for i in range(40)})
    assert [np.asarray(answer[f"y{i}"]).tolist() for i in range(40)] == [[2.0 * i] * 2 for i in range(40)]


def test_a_graph_may_grow_after_the_session():
    graph = make_graph()
    session = hr.Session(graph)
    graph.output("more", graph["x"] + 1)
    check(*session.run(None, {"x": X, "t": T}))
    assert len(hr.Session(graph).outputs) == 3 and session.graph is graph


def test_wrong_names():
    session = hr.Session(make_graph())
    with pytest.raises(ValueError, match="input 't' is missing"):
        session(x=X)
    with pytest.raises(ValueError, match="input 'u' is not known; expected .'x', 't'"):
        session(x=X, t=T, u=X)
    with pytest.raises(ValueError, match="input 'u' is not known"):
        session(x=X, u=T)
    with pytest.raises(ValueError, match="input 'u' is not known"):
        session.run(None, {"x": X, "t": T, "u": X})
    with pytest.raises(ValueError, match="output 'u' is not known; expected .'y', 'z'"):
        session.run(["u"], {"x": X, "t": T})
    with pytest.raises(ValueError, match="twice"):
        session(X, T, x=X)
    with pytest.raises(TypeError, match="3 inputs"):
        session(X, T, X)
    with pytest.raises(ValueError, match="input 'x' is missing"):
        session()
    with pytest.raises(TypeError):
        session.run(None, [X, T])


def test_wrong_dims_and_dtypes():
    session = hr.Session(make_graph())
    with pytest.raises(ValueError, match='"x".*4'):
        session(x=np.zeros((2, 4), np.float32), t=T)
    with pytest.raises(ValueError, match='"t".*"x"|"x".*"t"'):  # symbols that disagree name both
        session(x=X, t=np.array([1, 2, 3]))
    with pytest.raises(ValueError, match='"x".*f64'):
        session(x=X.astype(np.float64), t=T)
    with pytest.raises(ValueError, match='"x"'):
        session(x=X[0], t=T)
    with pytest.raises((TypeError, ValueError)):
        session(x="text", t=T)
    with pytest.raises((TypeError, ValueError)):
        session(x=None, t=T)
    check(*session.run(None, {"x": X, "t": T}))


def test_wrong_sessions(tmp_path):
    graph = hr.Graph()
    graph.input("x", "float32", [2])
    with pytest.raises(ValueError, match="threads is -1, expected 1 to 1024, or 0 for all"):
        hr.Session(graph, threads=-1)
    with pytest.raises(ValueError, match="instances is 0"):
        hr.Session(graph, instances=0)
    with pytest.raises(TypeError):
        hr.Session(3.5)
    with pytest.raises((OSError, ValueError)):
        hr.Session(tmp_path)
    with pytest.raises((RuntimeError, ValueError)):
        hr.Session(make_graph(), device="no such device")


def test_gradients_go_through_a_session():
    session = hr.Session(make_graph())

    def loss(x):
        answer = session(x=x, t=T)
        return (answer["y"] ** 2).sum() + answer["z"].sum()

    np.testing.assert_allclose(np.asarray(hr.grad(loss)(hr.array(X))), 8 * X + 1, rtol=1e-6)


def test_compiled_functions_contain_a_session():
    session = hr.Session(make_graph())
    t = hr.array(T)

    @hr.compile
    def step(x):
        return session(x=x + 1, t=t)["z"] * 2

    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(step(hr.array(X))), 2 * ((X + 1).sum(axis=1) + T))


def test_vmap_of_a_session():
    graph = hr.Graph()
    graph.output("y", graph.input("x", "float32", [3]) * np.float32([1, 2, 3]))
    session = hr.Session(graph)
    got = hr.vmap(lambda x: session(x=x)["y"])(hr.array(X))
    np.testing.assert_array_equal(np.asarray(got), X * [1, 2, 3])


def test_gradients_of_other_threads_see_no_run():
    graph = hr.Graph()
    x = graph.input("x", "float32", ["n"])
    w = graph.variable("w", np.zeros(1, np.float32))
    graph.output("y", x * 2)
    graph.assign(w, w + 1)
    session, failures, interval = hr.Session(graph), [], sys.getswitchinterval()

    def work():
        for k in range(600):
            try:
                np.asarray(session(x=np.ones(1 + k % 5, np.float32))["y"])
            except Exception as failure:
                failures.append(failure)

    def differentiate():
        for i in range(400):
            (got,) = {*np.asarray(hr.grad(lambda x: (x * x).sum())(hr.full((3,), float(i)))).tolist()}
            failures.extend([got] if got != 2 * i else [])

    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=of) for of in (work, work, work, work, differentiate)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert failures == []
    assert session.variable("w").tolist() == [4 * 600]


def test_a_graph_with_variables_runs_while_another_thread_differentiates():
    graph = hr.Graph()
    x, w = graph.input("x", "float32", ["n"]), graph.variable("w", np.zeros(1, np.float32))
    graph.output("y", x * 2 + w)
    graph.assign(w, w + 1)
    session, results = hr.Session(graph), []

    def work():
        results.extend(np.asarray(session(x=np.ones(2, np.float32))["y"]).tolist() for _ in range(3))

    def loss(x):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        with pytest.raises(ValueError, match="can't be a part of a gradient"):
            session(x=x)
        return (x * x).sum()

    assert np.asarray(hr.grad(loss)(hr.full((2,), 3.0))).tolist() == [6, 6]
    assert results == [[2, 2], [3, 3], [4, 4]]
    assert session(x=np.ones(1, np.float32))["y"].tolist() == [5]


DEVICES = """
import headrace as hr, numpy as np
graph = hr.Graph()
x, w = graph.input("x", "float32", ["n", 3]), graph.variable("w", np.zeros(1, np.float32))
graph.output("y", hr.tanh(x @ graph.constant(np.arange(6, dtype=np.float32).reshape(3, 2))) + w)
graph.assign(w, w + 1)
a = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
first, second = (hr.Session(graph, device=name, buckets={"n": [8]}) for name in ("cpu", "cpu:1"))
before = [first(x=a)["y"] for _ in range(2)]
after = [second(x=hr.array(a, device="cpu:1"))["y"] for _ in range(2)]
print([y.device for y in before + after], first.device, second.device)
print(all(np.array_equal(x, y) for x, y in zip(map(np.asarray, before), map(np.asarray, after))))
print(first.variable("w").tolist(), second.variable("w").tolist())
for session, device in ((first, "cpu:1"), (second, "cpu")):
    try:
        session(x=hr.array(a, device=device))
    except ValueError as failure:
        print(failure)
"""


def test_sessions_of_two_devices_have_states_of_their_own():
    environment = {**os.environ, "HEADRACE_CPU_DEVICES": "2", "HEADRACE_DEVICE": "cpu"}
    command = [sys.executable, "-c", DEVICES]
    lines = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines[:3] == ["['cpu', 'cpu', 'cpu:1', 'cpu:1'] cpu cpu:1", "True", "[2.0] [2.0]"]
    assert lines[3:] == ["arrays of two devices in one operation"] * 2


def test_threads_share_a_session():
    session, failures = hr.Session(make_graph()), []

    def work(k):
        try:
            for n in range(1, 20):
                x = np.full((n, 3), k, np.float32)
                np.testing.assert_array_equal(np.asarray(session(x=x, t=np.zeros(n, np.int64))["y"]), 2 * x)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_limits_and_counters():
    session = hr.Session(make_graph(), instances=2, instance_bytes=1 << 20)
    for n in (1, 2, 3, 3, 1):
        session(x=np.zeros((n, 3), np.float32), t=np.zeros(n, np.int64))
    stats = session.stats()
    assert (stats["runs"], stats["instances"], stats["hits"], stats["kept"]) == (5, 4, 1, 2)
    assert 0 < stats["kept_bytes"] < 1 << 20
    with pytest.raises(ValueError, match="instance_bytes is 0"):
        hr.Session(make_graph(), instance_bytes=0)


def test_packages_without_kernels_are_trusted(tmp_path):
    path = tmp_path / "model.hrpkg"
    make_graph().save(path)
    with hr.open_package(path) as package:
        assert package.trust() == 0
    with pytest.raises(ValueError, match="closed"):
        package.trust()
    path.chmod(0o666)
    with pytest.raises(OSError, match="others may write"), hr.open_package(path) as package:
        package.trust()


def test_buckets_share_instances():
    session = hr.Session(make_graph(), buckets={"n": (8, 2)})
    for n in (0, 1, 2, 3, 5, 8, 9):
        x, t = np.arange(3 * n, dtype=np.float32).reshape(n, 3), np.arange(n)
        got = session(x=x, t=t)
        np.testing.assert_array_equal(np.asarray(got["y"]), x * 2)
        np.testing.assert_array_equal(np.asarray(got["z"]), x.sum(axis=1) + t.astype(np.float32))
        np.testing.assert_array_equal(np.asarray(got["y"] + 1)[:, ::-1], (x * 2 + 1)[:, ::-1])
    stats = session.stats()
    assert (stats["instances"], stats["padded"]) == (4, 3)
    graph = make_graph()
    graph.output("mean", hr.mean(graph.inputs["x"], axis=0))
    with pytest.raises(ValueError, match=r'buckets of "n": .*\(mean\) does not keep the rows of "n" apart'):
        hr.Session(graph, buckets={"n": [8]})
    for wrong, error in (({"n": 8}, TypeError), ({"n": [0]}, ValueError), ({"m": [8]}, ValueError), ([8], TypeError)):
        with pytest.raises(error):
            hr.Session(make_graph(), buckets=wrong)


ENDLESS = """
import os, signal, threading
import headrace as hr
graph = hr.Graph()
x, step = graph.input("x", "float32", []), graph.input("step", "float32", [])
(y,) = graph.while_loop(lambda x, step: x < 10, lambda x, step: x + step, [x], [step])
graph.output("y", y)
session = hr.Session(graph)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    session(x=0, step=0)
    print("no end")
except KeyboardInterrupt:
    print(float(session(x=0, step=4)["y"]))
"""


def test_an_interrupt_ends_a_loop():
    done = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True, timeout=60)
    assert done.stdout == "12.0\n", done.stderr
