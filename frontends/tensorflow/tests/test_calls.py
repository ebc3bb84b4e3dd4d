"""Calls of functions that find what they traced by dtypes and dims (calls.py): values, traces and errors are those of
TensorFlow's own lookup."""

import weakref
from concurrent.futures import ThreadPoolExecutor

import headrace_tensorflow
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context, execute


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


def count_lookups(monkeypatch):
    """Counts TensorFlow's own."""
    from tensorflow.python.eager.polymorphic_function import tracing_compilation

    lookups, trace = [], tracing_compilation.trace_function
    monkeypatch.setattr(tracing_compilation, "trace_function", lambda *args, **kwds: lookups.append(1) or trace(*args, **kwds))
    return lookups


def test_nested_arguments_and_arrays(monkeypatch):
    traces = []

    @tf.function
    def f(data, scale=1, more=None):
        traces.append(1)
        (x, y), rest = data
        total = x - tf.cast(y, x.dtype) * tf.cast(scale, x.dtype)
        for name in sorted(rest):
            total = 2 * total + tf.cast(rest[name], x.dtype)
        return total if more is None else total + tf.cast(more[0], x.dtype)

    x, y = tf.constant([1.0, 2.0]), np.int32([3, 5])
    calls = [
        ((((x, y), {}),), {}, [-2, -3]),
        ((([x, y], {}),), {}, [-2, -3]),
        ((((np.float32([1, 2]), y), {}),), {"scale": 2}, [-5, -8]),
        ((((x, tf.constant([3, 5])), {"b": y, "a": x}),), {}, [-3, -3]),
        ((((x, x), {"a": y, "b": x}),), {}, [7, 12]),
        ((((x, x[::-1]), {"a": y[::-1]}),), {"more": [y]}, [6, 10]),
        ((((x, np.float64(y)), {}),), {}, [-2, -3]),
        ((((x, y.astype(">i4")), {}),), {}, [-2, -3]),
        ((((x, np.zeros((0, 1), "int32")), {}),), {}, []),
    ]
    for args, kwds, expected in calls + calls:
        assert np.asarray(call_often(f, *args, **kwds)).reshape(-1).tolist() == expected, (args, kwds)
    lookups = count_lookups(monkeypatch)
    assert f(((x, np.int32([1, 1])), {})).numpy().tolist() == [0, 1] and not lookups
    matrix = np.float32([[1, 2], [3, 4]])
    for part in (matrix, matrix.T, matrix[:, ::-1]):
        assert (call_often(f, ((part, np.float32(0.5) * part), {})) == part / 2).all()
    assert len(traces) == f.experimental_get_tracing_count()


def test_an_array_that_changes():
    f, x = tf.function(lambda x: x + 1), np.zeros(2, "float32")
    results = []
    for i in range(5):
        x[:] = i
        results.append(f(x))
    assert [float(result[1]) for result in results] == [1, 2, 3, 4, 5]


def test_a_signature_that_casts():
    @tf.function(input_signature=[tf.TensorSpec([None], "float32")])
    def f(x):
        return x / 2

    for _ in range(4):
        assert f(np.array([1.0, 2.0])).numpy().tolist() == f(np.array([1, 2])).numpy().tolist() == [0.5, 1]


def test_a_concrete_function_of_arrays():
    g = tf.function(lambda a, b: a - b).get_concrete_function(tf.TensorSpec([2]), tf.TensorSpec([2]))
    for _ in range(4):
        assert g(np.float32([3, 4]), tf.constant([1.0, 1.0])).numpy().tolist() == [2, 3]
        assert g(np.array([3, 4]), np.array([1.0, 1.0])).numpy().tolist() == [2, 3]
    f = tf.function(lambda data: data["a"] - data["b"]).get_concrete_function(
        {"b": tf.TensorSpec([2]), "a": tf.TensorSpec([2])}
    )
    a, b = np.float32([3, 4]), tf.constant([1.0, 1.0])
    for _ in range(4):
        assert f({"a": a, "b": b}).numpy().tolist() == f({"b": b, "a": a}).numpy().tolist() == [2, 3]


@pytest.mark.parametrize("method", ["train_on_batch", "test_on_batch", "predict_on_batch"])
def test_batches_of_keras(method, monkeypatch):
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.random.default_rng(2).standard_normal((8, 4), np.float32)
    arguments = (x,) if method == "predict_on_batch" else (x, x[:, :1])
    results = [np.array(getattr(model, method)(*arguments)) for _ in range(4)]
    lookups = count_lookups(monkeypatch)
    results += [np.array(getattr(model, method)(*arguments)) for _ in range(4)]
    assert not lookups
    if method == "train_on_batch":
        assert (np.diff(results) < 0).all()
    else:
        np.testing.assert_allclose(results, [results[0]] * 8, rtol=1e-6)


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


# ---- functions that are one cluster: calls are the operation HeadraceCall


class observed:
    """Notes what TensorFlow executes eagerly."""

    def __init__(self, names):
        self.names = names

    def __enter__(self):
        self.execute = execute.execute
        execute.execute = self.note

    def note(self, name, *args, **kwds):
        self.names.append(name)
        return self.execute(name, *args, **kwds)

    def __exit__(self, *error):
        execute.execute = self.execute


def is_operation(function, *args, **kwds):
    names = []
    with observed(names):
        function(*args, **kwds)
    return names == ["HeadraceCall"]


def warm(function, *args, **kwds):
    for _ in range(6):
        function(*args, **kwds)


def test_steps_of_an_optimizer():
    def train(uses_them):
        headrace_tensorflow.use_clusters(uses_them)
        try:
            w, velocity = tf.Variable(tf.ones((3, 2))), tf.Variable(tf.zeros((3, 2)))
            steps = tf.Variable(0, dtype=tf.int64)

            @tf.function
            def step(x, y, rate=0.1):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((x @ w - y) ** 2)
                velocity.assign(0.9 * velocity + tape.gradient(loss, w))
                w.assign_sub(rate * velocity)
                steps.assign_add(1)
                return {"loss": loss, "steps": steps + 0, "again": loss, "w": w * 1}

            numbers = np.random.default_rng(0)
            x, y = (tf.constant(numbers.standard_normal(dims, np.float32)) for dims in ((4, 3), (4, 2)))
            found = [tf.nest.map_structure(lambda value: value.numpy().tolist(), step(x, y)) for _ in range(12)]
            return found, is_operation(step, x, y)
        finally:
            headrace_tensorflow.use_clusters(True)

    (found, is_short), (expected, is_short_without) = train(True), train(False)
    assert found == expected and is_short and not is_short_without
    assert [step["steps"] for step in found] == list(range(1, 13))


def test_other_work_beside_the_cluster():
    """Such functions are no operation, and all of their work happens in each call."""
    count = tf.Variable(0, dtype=tf.int64)
    with tf.device("CPU"):
        on_host = tf.Variable(0.0)
    calls = []

    @tf.function(experimental_implements="inner", autograph=False)
    def inner(x, y):
        return tf.sqrt(x * y) + 1

    @tf.function
    def outer(x, y):
        count.assign_add(1)
        return inner(x, y)

    @tf.function
    def host(x, y):
        on_host.assign_add(1.0)
        return tf.sqrt(x * y) + 1

    @tf.function
    def python(x, y):
        tf.py_function(lambda: calls.append(1), [], [])
        return tf.sqrt(x * y) + 1

    @tf.function
    def passed(x, y):
        return tf.sqrt(x * y) + 1, x

    x, y = tf.constant([4.0]), tf.constant([1.0])
    tf.config.set_soft_device_placement(True)
    try:
        for _ in range(8):
            assert [f(x, y).numpy().tolist() for f in (inner, outer, host, python)] == [[3]] * 4
            assert [result.numpy().tolist() for result in passed(x, y)] == [[3], [4]]
    finally:
        tf.config.set_soft_device_placement(False)
    assert int(count) == 8 and float(on_host) == 8 and len(calls) == 8
    assert not any(is_operation(f, x, y) for f in (outer, host, python, passed))


def test_results_in_the_memory_of_another_function():
    """The cluster that wrote an argument is not that of a function which returns it."""

    @tf.function
    def make(x):
        return tf.sqrt(x) * 2 + 1

    x = tf.constant([4.0, 9.0])
    for made in [make(x) for _ in range(6)]:
        same = tf.function(lambda y: tf.identity(y), autograph=False)
        rows = tf.function(lambda y: tf.reshape(y, [2, 1]), autograph=False)
        for _ in range(6):
            assert same(made).numpy().tolist() == [5, 7] and rows(made).numpy().tolist() == [[5], [7]]
        assert not is_operation(same, made)
    assert is_operation(make, x)


def test_random_numbers_are_one_sequence():
    def draw(often):
        tf.random.set_seed(3)

        @tf.function
        def f(x):
            return x + tf.random.uniform([4], seed=7) * 2

        return [f(tf.zeros(4)).numpy().tolist() for _ in range(often)]

    found = draw(8)
    assert len({tuple(row) for row in found}) == 8
    assert found == draw(8)


def test_operations_in_other_places():
    @tf.function
    def f(x, y):
        return tf.sqrt(x * y) + 1

    x, y = tf.constant([4.0]), tf.constant([1.0])
    warm(f, x, y)
    assert is_operation(f, x, y) and is_operation(f, x, x)
    warm(f, x=x, y=y)
    assert is_operation(f, x=x, y=y) and f(x=tf.constant([9.0]), y=y).numpy().tolist() == [4]
    with tf.device("CPU"):
        assert not is_operation(f, x, y)
        host = tf.constant([16.0])
    assert f(host, y).numpy().tolist() == [5] and f(host, y).device.endswith("HEADRACE:0")
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = f(x, y)
    assert tape.gradient(result, x).numpy().tolist() == [0.25]

    @tf.function
    def outer(x, y):
        return f(x, y) * 2

    warm(outer, x, y)
    assert outer(x, y).numpy().tolist() == [6]


def test_a_function_that_is_gone():
    def make(factor):
        @tf.function
        def f(x):
            return tf.sqrt(x) * factor + 1

        return f

    x = tf.constant([4.0])
    for factor in range(1, 6):
        f = make(float(factor))
        warm(f, x)
        assert is_operation(f, x) and f(x).numpy().tolist() == [2 * factor + 1]
    context.context().clear_kernel_cache()
    for _ in range(6):
        assert f(x).numpy().tolist() == [11]
    assert is_operation(f, x)


def test_errors_of_operations_name_the_node():
    v = tf.Variable([1.0, 2.0], shape=tf.TensorShape(None))

    @tf.function
    def f(x):
        v.assign_add(x)
        return tf.sqrt(v * x) + 1

    x = tf.constant([1.0, 1.0])
    warm(f, x)
    assert is_operation(f, x)
    v.assign([1.0, 2.0, 3.0])
    for _ in range(4):
        with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)Graph execution error.*AssignAddVariableOp"):
            f(x)
        assert v.numpy().tolist() == [1, 2, 3]
    v.assign([3.0, 8.0])
    assert f(x).numpy().tolist() == [3, 4]


def test_calls_of_threads():
    v = tf.Variable(0.0)

    @tf.function
    def f(x):
        v.assign_add(x)
        return tf.sqrt(x * x) + 1

    def work(number):
        x = tf.constant(float(number))
        assert all(float(f(x)) == number + 1 for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    assert float(v) == 500


def test_concrete_functions():
    v = tf.Variable(1.0)

    @tf.function
    def f(x, y, scale=2):
        v.assign_add(1.0)
        return tf.sqrt(x * y) * scale + v

    x, y = tf.constant([4.0]), tf.constant([1.0])
    c = f.get_concrete_function(x, y)
    for step in range(4):
        for call in (lambda: c(x, y), lambda: c(x, y=y), lambda: c(y=y, x=x), lambda: c(x=x, y=tf.constant([1.0]))):
            before = float(v)
            assert call().numpy().tolist() == [5 + before]
        with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
            c(x)
        with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
            c(x, tf.constant([1.0, 2.0, 3.0], tf.float64))
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = c(x, y)
        assert tape.gradient(result, x).numpy().tolist() == [0.5]
    assert is_operation(c, x, y)
    reference = weakref.ref(c)
    del f, c, call
    assert reference() is None


def test_variables_that_are_only_read():
    start = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    w, b = tf.Variable(start), tf.Variable([1.0, -1.0])

    @tf.function
    def f(x):
        return tf.nn.relu(x @ w + b)

    x = tf.constant([[1.0, 1.0]])
    for step in range(8):
        assert f(x).numpy().tolist() == [[5 + 2 * step, 5 + 2 * step]]
        alias = w.read_value()
        assert f(x).numpy().tolist() == [[5 + 2 * step, 5 + 2 * step]]
        w.assign_add(tf.ones((2, 2)))
        assert alias.numpy().tolist() == [[1 + step, 2 + step], [3 + step, 4 + step]]
    assert start.numpy().tolist() == [[1, 2], [3, 4]] and is_operation(f, x)
