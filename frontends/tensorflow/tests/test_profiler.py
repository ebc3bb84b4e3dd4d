"""tf.profiler.experimental: the device's kernels in a trace, with their nodes, bytes and rates."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import headrace_tensorflow

KERNELS = "kernels and library calls"
HERE = "/device:HEADRACE:0"


def traced(folder, work):
    """{line: [(name, statistics, duration in ns)]} of the device."""
    xplane = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    with tf.profiler.experimental.Profile(str(folder)):
        work()
    (path,) = folder.glob("**/*.xplane.pb")
    lines = {}
    for plane in xplane.XSpace.FromString(path.read_bytes()).planes:
        if "HEADRACE" in plane.name:
            for line in plane.lines:
                lines[line.name] = [described(plane, event) for event in line.events]
    return lines


def described(plane, event):
    names = plane.stat_metadata
    stats = {names[stat.metadata_id].name: getattr(stat, stat.WhichOneof("value")) for stat in event.stats}
    return plane.event_metadata[event.metadata_id].name, stats, event.duration_ps / 1000


@tf.function
def network(x, w):
    return tf.reduce_sum(tf.tanh(x @ w, name="squashed") * 2)


def test_a_clusters_kernels_have_their_nodes_bytes_and_rates(tmp_path):
    with tf.device(HERE):
        x, w = tf.ones((64, 32)), tf.ones((32, 16))
        network(x, w).numpy()
        lines = traced(tmp_path, lambda: [network(x, w).numpy() for _ in range(3)])
    products = [(stats, ns) for name, stats, ns in lines[KERNELS] if "matmul" in name]
    assert len(products) == 3 and len(lines["programs"]) == 3
    for stats, ns in products:
        assert stats["tf_op"].endswith(":MatMul") and stats["flops"] == 2 * 64 * 32 * 16
        assert stats["bytes_accessed"] == 4 * (64 * 32 + 32 * 16 + 64 * 16)
        assert stats["GB/s"] == pytest.approx(stats["bytes_accessed"] / ns)
        assert stats["GFLOP/s"] == pytest.approx(stats["flops"] / ns)
    assert "f32[64,32]" in products[0][0]["shapes"]
    fused = [stats for name, stats, _ in lines[KERNELS] if "tanh" in name]
    assert len(fused) == 3 and all("squashed:Tanh" in stats["tf_op"] for stats in fused)


def test_eager_operations_and_copies_are_there(tmp_path):
    def work():
        with tf.device(HERE):
            tf.tanh(tf.constant(np.ones((33, 65), np.float32))).numpy()

    lines = traced(tmp_path, work)
    assert "Tanh:Tanh" in lines[KERNELS][0][1]["tf_op"]
    copies = {name: stats["bytes_accessed"] for name, stats, _ in lines["copies"]}
    assert copies == {"copy to the device": 33 * 65 * 4, "copy to the host": 33 * 65 * 4}


def test_work_that_nobody_has_waited_for_is_in_the_trace(tmp_path):
    held = []

    def work():
        with tf.device(HERE):
            held.append(tf.exp(tf.ones((9, 9))))

    assert any("Exp:Exp" in stats["tf_op"] for _, stats, _ in traced(tmp_path, work)[KERNELS])


def test_each_trace_has_its_own_names_and_work(tmp_path):
    with tf.device(HERE):
        x = tf.ones((5, 5))
        for i, f in enumerate((tf.sin, tf.cos, tf.sin)):
            kernels = traced(tmp_path / str(i), lambda f=f: f(x).numpy())[KERNELS]
            assert [stats["tf_op"].lower() for _, stats, _ in kernels] == [f"{f.__name__}:{f.__name__}"]
    assert KERNELS not in traced(tmp_path / "none", lambda: None)


def test_threads_are_traced_and_results_are_the_same(tmp_path):
    with tf.device(HERE):
        x, w = tf.random.stateless_normal((40, 50), (1, 2)), tf.ones((50, 3))
    before, inside = network(x, w).numpy(), []

    def work():
        threads = [threading.Thread(target=lambda: inside.append(network(x, w).numpy())) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]

    lines = traced(tmp_path, work)
    assert len([name for name, *_ in lines[KERNELS] if "matmul" in name]) == 4
    assert inside == [before] * 4
    assert headrace_tensorflow.stats()["fallbacks"] == {}
