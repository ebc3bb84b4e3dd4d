"""Operations without a kernel on the device: counted, warned about, or refused."""

import os
import subprocess
import sys
import warnings

import headrace_tensorflow
import pytest
import tensorflow as tf


@pytest.fixture(autouse=True)
def soft_placement():
    tf.config.set_soft_device_placement(True)
    with tf.device("HEADRACE"):
        tf.zeros([2])
    headrace_tensorflow.reset_stats()
    yield
    headrace_tensorflow.set_fallback("allow")
    headrace_tensorflow.reset_stats()
    tf.config.set_soft_device_placement(False)


def missing(x):
    return tf.raw_ops.Dawsn(x=x)


def test_eager_operations_are_counted():
    with tf.device("HEADRACE"):
        x = tf.constant([0.5]) + 0.0
    headrace_tensorflow.set_fallback("warn")
    with pytest.warns(UserWarning, match="no kernel for Dawsn of float32: it runs on the host"):
        missing(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        missing(x)
        tf.nn.relu(x + 1.0)
    assert headrace_tensorflow.stats()["fallbacks"] == {"Dawsn": 2}
    headrace_tensorflow.reset_stats()
    assert headrace_tensorflow.fallbacks() == {}


def test_functions_are_counted_when_they_are_traced():
    headrace_tensorflow.set_fallback("warn")

    def g(x):
        return missing(x) * tf.constant(2.0)

    with pytest.warns(UserWarning, match="Dawsn"):
        tf.function(g)(tf.constant([0.5]))
    for _ in range(3):
        tf.function(g)(tf.constant([0.5, 0.25]))
    assert headrace_tensorflow.fallbacks()["Dawsn"] == 4
    headrace_tensorflow.reset_stats()

    @tf.function
    def placed(x):
        with tf.device("CPU"):
            y = missing(x)
        return y + tf.reduce_sum(tf.cast(tf.range(tf.shape(x)[0]), x.dtype))

    placed(tf.constant([0.5]))
    assert headrace_tensorflow.fallbacks() == {}
    data = tf.data.Dataset.from_tensor_slices([0.5, 0.25]).map(missing).batch(2)
    assert len(list(data)) == 1
    assert "Dawsn" not in headrace_tensorflow.fallbacks()


def test_datasets_are_no_fallbacks():
    """Their sizes are eager numbers, which the device may hold."""
    headrace_tensorflow.set_fallback("error")
    with tf.device("HEADRACE"):
        size = tf.constant(4, tf.int64)
    data = tf.data.Dataset.range(size).batch(2)
    assert len(list(data)) == 2
    next_of = tf.function(lambda iterator: tf.cast(next(iterator), tf.float32) * 2.0)
    assert next_of(iter(data)).numpy().tolist() == [0.0, 2.0]


def test_results_on_the_host_are_no_fallbacks():
    """Those of int32, and those that the program wants there."""
    headrace_tensorflow.set_fallback("error")
    with tf.device("HEADRACE"):
        x, steps = tf.constant([0.5, 2.0]) + 0.0, tf.TensorArray(tf.int32, 2)
    steps = steps.write(0, 3).write(1, tf.size(x) * 5)
    assert steps.stack().numpy().tolist() == [3, 10] and int(tf.pow(tf.size(x), 3)) == 8
    for name in ("CPU:0", "/device:CPU:0", "/cpu:0"):
        with tf.device(name):
            assert tf.raw_ops.Dawsn(x=x).device.endswith("CPU:0")
    in_function = tf.function(lambda y: tf.pow(tf.shape(y)[0] + tf.size(y), 2))
    assert int(in_function(x)) == 16
    assert headrace_tensorflow.fallbacks() == {}


def test_errors():
    headrace_tensorflow.set_fallback("error")
    with tf.device("HEADRACE"):
        x = tf.constant([0.5]) + 0.0
    for call in (missing, tf.function(missing)):
        with pytest.raises(tf.errors.UnimplementedError, match="no kernel for Dawsn .* HEADRACE_FALLBACK=allow"):
            call(x)
    assert float(tf.reduce_sum(tf.matmul(x[:, None], x[None]))) == 0.25
    with pytest.raises(ValueError, match="fallback mode 'never', expected one of allow, warn, error"):
        headrace_tensorflow.set_fallback("never")


def test_the_environment_sets_the_mode():
    code = "import headrace_tensorflow, tensorflow as tf\nx = tf.constant([0.5]) + 0\ntf.math.special.dawsn(x)"
    environment = {**os.environ, "HEADRACE_FALLBACK": "error"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "no kernel for Dawsn" in result.stderr


def test_strings_tables_and_what_a_program_puts_on_the_host_do_not_count():
    with tf.device("HEADRACE"):
        x = tf.constant([1, 2, 3], tf.int64) + 0
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [10, 20], tf.int64, tf.int64), -1)
    headrace_tensorflow.set_fallback("error")
    assert table.lookup(x).numpy().tolist() == [10, 20, -1]
    assert tf.function(table.lookup)(x).numpy().tolist() == [10, 20, -1]
    assert tf.reshape(tf.strings.as_string(x), [3, 1]).shape == (3, 1)
    with tf.device("CPU"):
        missing(tf.cast(x, tf.float32))
    assert headrace_tensorflow.fallbacks() == {}


def test_functions_that_ask_for_xla_run():
    @tf.function(jit_compile=True)
    def function(x):
        return x * 2 + 1

    with tf.device("HEADRACE"):
        assert function(tf.constant([1.0, 2.0])).numpy().tolist() == [3, 5]
