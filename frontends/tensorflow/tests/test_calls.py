"""Calls of functions that find what they traced by dtypes and dims (calls.py): values, traces and errors are those of
TensorFlow's own lookup."""

import numpy as np
import pytest
import tensorflow as tf


def call_often(function, *args, **kwds):
    """The first call traces, the second one learns, others find."""
    results = [function(*args, **kwds) for _ in range(4)]
    for result in results[1:]:
        assert (np.asarray(result) == np.asarray(results[0])).all()
    return np.asarray(results[0])


def test_traces_by_dtypes_dims_and_literals():
    traces = []

    @tf.function
    def f(x, scale=2, *rest, shift=None, name="a"):
        traces.append((x.dtype, x.shape, scale, len(rest), shift, name))
        y = x * tf.cast(scale, x.dtype)
        for other in rest:
            y += tf.cast(other, x.dtype)
        return y if shift is None else y + tf.cast(shift, x.dtype)

    x = tf.constant([1.0, 2.0])
    calls = [
        (((x,), {}), [2, 4]),
        (((x, 3), {}), [3, 6]),
        (((x, True), {}), [1, 2]),
        (((x, 1), {}), [1, 2]),
        (((x, 1.5), {}), [1.5, 3]),
        (((x, x), {}), [1, 4]),
        (((tf.constant([1, 2]),), {}), [2, 4]),
        (((tf.zeros((0,)),), {}), []),
        (((tf.constant([[1.0, 2.0]]),), {}), [[2, 4]]),
        (((x, 2, x, 3), {}), [6, 9]),
        (((x,), {"shift": x}), [3, 6]),
        (((x,), {"shift": 1}), [3, 5]),
        (((x,), {"name": "b"}), [2, 4]),
        (((x,), {"name": "b", "shift": x}), [3, 6]),
        (((x,), {"shift": x, "name": "b"}), [3, 6]),
        (((np.float32([1, 2]),), {}), [2, 4]),
        (((), {"x": x}), [2, 4]),
        (((), {"scale": x, "x": tf.constant([5.0, 6.0])}), [5, 12]),
    ]
    for (args, kwds), expected in calls + calls:
        assert call_often(f, *args, **kwds).tolist() == expected, (args, kwds)
    assert len(traces) == f.experimental_get_tracing_count() == 13


def test_keywords_in_another_order():
    @tf.function
    def f(a, b):
        return a - b

    one, two = tf.constant(1.0), tf.constant(2.0)
    for _ in range(4):
        assert float(f(a=one, b=two)) == -1 and float(f(b=two, a=one)) == -1 and float(f(one, b=two)) == -1


def test_a_generalised_trace():
    @tf.function(reduce_retracing=True)
    def f(x):
        return x + 1

    for count in [2, 3, 4, 2, 5, 3]:
        assert call_often(f, tf.fill([count], 1.0)).tolist() == [2] * count
    assert f.experimental_get_tracing_count() == 2


def test_more_dims_than_are_kept():
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def f(x):
        return x * 2

    for _ in range(2):
        for count in range(300):
            assert f(tf.zeros([count])).shape == [count]
    assert f.experimental_get_tracing_count() == 1
    for _ in range(3):
        with pytest.raises(TypeError):
            f(tf.zeros([2, 2]))
        with pytest.raises(TypeError):
            f(tf.zeros([2]), 1)


def test_variables_and_gradients():
    class Model:
        def __init__(self):
            self.v = None

        @tf.function
        def __call__(self, x):
            if self.v is None:
                self.v = tf.Variable([1.0, 2.0])
            return tf.reduce_sum(self.v * x)

    model, other, x = Model(), Model(), tf.constant([3.0, 4.0])
    for step in range(4):
        assert float(model(x)) == 11 + 7 * step and float(other(x)) == 11
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x)
        gradients = tape.gradient(y, [x, model.v])
        assert gradients[0].numpy().tolist() == [1 + step, 2 + step] and gradients[1].numpy().tolist() == [3, 4]
        model.v.assign_add([1.0, 1.0])


def test_a_variable_as_an_argument():
    @tf.function
    def f(v, x):
        v.assign_add(x)
        return v * 1

    one, two, x = tf.Variable(1.0), tf.Variable(2.0), tf.constant(1.0)
    assert [float(f(v, x)) for v in (one, two, one, two, one)] == [2, 3, 3, 4, 4]


def test_inside_other_functions_and_eagerly():
    @tf.function
    def inner(x):
        return x * 2 if tf.inside_function() else x * 3

    @tf.function
    def outer(x):
        return inner(x) + 1

    x = tf.constant(2.0)
    for _ in range(4):
        assert float(inner(x)) == 4 and float(outer(x)) == 5
    tf.config.run_functions_eagerly(True)
    try:
        assert float(inner(x)) == 6
    finally:
        tf.config.run_functions_eagerly(False)
    with tf.Graph().as_default():
        assert inner(tf.constant(1.0)).graph is tf.compat.v1.get_default_graph()
    with tf.device("CPU"):
        assert float(inner(tf.constant(2.0))) == 4


def test_under_a_strategy():
    strategy = tf.distribute.OneDeviceStrategy("/device:HEADRACE:0")

    @tf.function
    def f(x):
        return x + (1 if tf.distribute.has_strategy() else 2)

    x = tf.constant(1.0)
    for _ in range(4):
        assert float(f(x)) == 3
        with strategy.scope():
            assert float(f(x)) == 2


def test_errors_and_nested_results():
    @tf.function
    def f(x, y):
        return {"product": x @ y, "none": None, "pair": (x, [y])}

    x, y = tf.ones((2, 3)), tf.ones((3, 2))
    for _ in range(4):
        result = f(x, y)
        assert result["none"] is None and result["product"].numpy().tolist() == [[3, 3], [3, 3]]
        assert result["pair"][0].shape == (2, 3) and result["pair"][1][0].shape == (3, 2)
        with pytest.raises(ValueError, match="Dimensions must be equal"):
            f(x, x)

    @tf.function
    def check(x):
        return tf.debugging.check_numerics(x, "bad number")

    good, bad = tf.constant([1.0]), tf.constant([np.nan])
    for _ in range(4):
        assert float(check(good)[0]) == 1
        with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)Graph execution error.*bad number"):
            check(bad)


def test_captured_values_that_change():
    value = tf.Variable(1.0)
    numbers = [tf.constant(float(i)) for i in range(3)]

    @tf.function
    def f(x):
        late = tf.compat.v1.get_default_graph()._experimental_capture_side_input_by_ref("late", lambda: numbers[-1])
        return x + value + late

    x = tf.constant(10.0)
    assert [float(f(x)) for _ in range(4)] == [13] * 4
    numbers.append(tf.constant(5.0))
    assert [float(f(x)) for _ in range(4)] == [16] * 4
    value.assign(2.0)
    assert [float(f(x)) for _ in range(4)] == [17] * 4
