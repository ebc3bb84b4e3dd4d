"""Threads, data that arrives beside the work, cancelled calls and forked processes."""

import os
import subprocess
import sys
import threading

import headrace_tensorflow
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation


@pytest.fixture(autouse=True)
def soft_placement():
    """Keras' data are TensorFlow's, on the host."""
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)


def data(seed, rows=64):
    numbers = np.random.default_rng(seed)
    return numbers.standard_normal((rows, 12)).astype("float32"), numbers.integers(0, 5, rows)


def network(seed):
    numbers = np.random.default_rng(seed)
    layers = [tf.keras.layers.Input((12,)), tf.keras.layers.Dense(16, "tanh"), tf.keras.layers.Dense(5)]
    model = tf.keras.Sequential(layers)
    model.set_weights([numbers.standard_normal(weight.shape).astype("float32") * 0.3 for weight in model.weights])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(1e-2), loss)
    return model


def losses_of(seed, dataset=None):
    rows = tf.data.Dataset.from_tensor_slices(data(seed)).batch(16) if dataset is None else dataset
    return network(seed).fit(rows, epochs=4, verbose=0).history["loss"]


def in_threads(calls):
    found = [None] * len(calls)

    def work(i):
        found[i] = calls[i]()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_two_networks_train_at_once():
    alone = [losses_of(seed) for seed in (1, 2)]
    assert in_threads([lambda seed=seed: losses_of(seed) for seed in (1, 2)]) == alone


@pytest.mark.parametrize("by_clusters", [True, False])
def test_a_function_is_called_from_eight_threads(by_clusters):
    headrace_tensorflow.use_clusters(by_clusters)
    try:
        weights = tf.Variable(np.eye(12, dtype="float32") * 2)
        step = tf.function(lambda x: tf.reduce_sum(tf.nn.relu(x @ weights) - x, 1))
        rows = [data(seed)[0][: 8 + seed % 3] for seed in range(8)]
        wanted = [step(tf.constant(x)).numpy().tolist() for x in rows]
        found = in_threads([lambda x=x: [step(tf.constant(x)).numpy().tolist() for _ in range(20)] for x in rows])
        assert found == [[want] * 20 for want in wanted]
    finally:
        headrace_tensorflow.use_clusters(True)


def test_data_that_is_prefetched():
    def halve(x, y):
        return x * 0.5, y

    plain = tf.data.Dataset.from_tensor_slices(data(3)).map(halve).batch(16)
    ahead = tf.data.Dataset.from_tensor_slices(data(3)).map(halve, num_parallel_calls=4).batch(16).prefetch(3)
    assert losses_of(3, ahead) == losses_of(3, plain)
    total = sum(float(tf.reduce_sum(tf.sin(x))) for x, _ in ahead.repeat(3))
    assert total == pytest.approx(3 * np.sin(data(3)[0] * 0.5).sum(), rel=1e-4)


def test_a_cancelled_call_leaves_variables():
    with tf.device("CPU"):
        queue = tf.queue.FIFOQueue(1, tf.float32, [[]])
    first, second = tf.Variable([1.0, 2.0]), tf.Variable([3.0])

    @tf.function
    def step():
        factor = queue.dequeue()
        first.assign(first * factor)
        second.assign_add([factor])
        return tf.reduce_sum(first) + second[0]

    queue.enqueue(2.0)
    assert float(step()) == 2 + 4 + 5
    manager = cancellation.CancellationManager()
    cancelled = manager.get_cancelable_function(step.get_concrete_function())
    timer = threading.Timer(0.3, manager.start_cancel)
    timer.start()
    with pytest.raises(tf.errors.CancelledError):
        cancelled()
    timer.join()
    assert first.numpy().tolist() == [2.0, 4.0] and second.numpy().tolist() == [5.0]
    queue.enqueue(0.5)
    assert float(step()) == 1 + 2 + 5.5


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_forked_child_is_told():
    done = run("""
import os, signal, tensorflow as tf
with tf.device("HEADRACE"):
    x = tf.constant([1.0, 2.0]) * 2
print(x.numpy().tolist(), flush=True)
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        x + x
    except tf.errors.FailedPreconditionError as error:
        print("forked" in str(error), flush=True)
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x + x).numpy().tolist())
""")
    assert done.stdout.splitlines() == ["[2.0, 4.0]", "True", "3 [4.0, 8.0]"], done.stderr[-2000:]
    assert done.stderr.count("was forked from one that uses the device HEADRACE") == 1


def test_a_process_that_forks_before_the_first_use():
    done = run("""
import os, tensorflow as tf
child = os.fork()
os.write(1, f"{tf.reduce_sum(tf.ones(5) * 2).numpy()}\\n".encode())
if child == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert done.stdout.splitlines() == ["10.0", "10.0", "0"], done.stderr[-2000:]


def test_a_dump_has_the_programs_of_a_function(tmp_path):
    done = run("""
import tensorflow as tf
x = tf.random.stateless_normal((16, 24), (1, 2))
@tf.function
def f(x):
    return tf.reduce_sum(tf.tanh(x) * 3 + 1, 1)
print(f(x).numpy().shape)
""", HEADRACE_DUMP=str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    texts = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert any("tanh" in text for text in texts), sorted(path.name for path in tmp_path.rglob("*"))
