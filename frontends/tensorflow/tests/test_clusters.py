"""Functions as clusters: the same bits as eagerly and as kernels, variables, results, errors, changing dims."""

import subprocess
import sys
import threading

import headrace_tensorflow
import numpy as np
import pytest
import tensorflow as tf


@pytest.fixture(autouse=True)
def with_clusters():
    yield
    headrace_tensorflow.use_clusters(True)


def counts(function, *arguments):
    """The result of a call, and what the counters of clusters gained."""
    before = headrace_tensorflow.cluster_stats()
    result = function(*arguments)
    return result, {name: value - before[name] for name, value in headrace_tensorflow.cluster_stats().items()}


def check_bits(body, *arguments, clusters=1):
    """Eager, as kernels, and as clusters."""
    eager = tf.nest.map_structure(lambda tensor: tensor.numpy().tobytes(), body(*arguments))
    headrace_tensorflow.use_clusters(False)
    kernels = tf.function(body)(*arguments)
    headrace_tensorflow.use_clusters(True)
    function = tf.function(body)
    clustered, gained = counts(function, *arguments)
    again = function(*arguments)
    assert gained["clusters"] == clusters and gained["runs"] == clusters
    for results in (kernels, clustered, again):
        assert tf.nest.map_structure(lambda tensor: tensor.numpy().tobytes(), results) == eager


def numbers(*dims, seed=0, dtype="float32"):
    return tf.constant(np.random.default_rng(seed).normal(size=dims).astype(dtype))


def test_a_hundred_operations():
    def body(x):
        for i in range(50):
            x = tf.minimum(tf.maximum(x, 0.25 + i * 0.01), 3.0)
        return x

    check_bits(body, numbers(2, 3))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_elementwise_and_reductions(dtype):
    def body(x, y):
        z = tf.exp(x) * tf.sqrt(tf.abs(y)) - tf.math.log1p(tf.abs(x)) / (y * y + 2)
        return z, tf.reduce_sum(z, 0), tf.reduce_mean(z, [0, 1]), tf.reduce_max(z, -1, keepdims=True), z > 0.5

    check_bits(body, numbers(37, 65, dtype=dtype), numbers(65, seed=1, dtype=dtype))


def test_paddings():
    def body(x):
        y = tf.pad(x, [[0, 1], [2, 0]])
        of_dims = tf.pad(y, [[1, 1], [0, tf.shape(x)[0]]], constant_values=2.0)
        return y, of_dims, tf.pad(y, [[1, 1], [0, 2]], "REFLECT")

    check_bits(body, numbers(4, 5))


def test_special_numbers():
    x = tf.constant([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-30])
    check_bits(lambda x: (tf.maximum(x, 0.0), tf.sqrt(x), -x, x / x, tf.nn.relu(x), tf.math.divide_no_nan(x, x * 0)), x)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "complex64", "bool"])
def test_other_dtypes(dtype):
    x = tf.constant(np.arange(-6, 6).reshape(3, 4).astype(dtype))
    if dtype == "bool":
        check_bits(lambda x: (tf.logical_and(x, ~x), tf.where(x, ~x, x)), x)
    else:
        check_bits(lambda x: ((x + x) * x - x, x[::-1] * x), x)


def test_constants_without_elements():
    """TensorFlow's own folding of constants is off, so that they are in the cluster."""
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.constant_folding = config.graph_options.rewrite_options.OFF
    config.graph_options.optimizer_options.opt_level = -1
    base, power = np.zeros((2, 3, 0), "float16"), np.ones((2, 3, 1), "float16")
    with tf.Graph().as_default() as graph:
        x, y, seed = map(tf.constant, (base, power, base))
        (gradient,) = tf.gradients(tf.pow(x, y), [y], grad_ys=seed)
        with tf.compat.v1.Session(config=config, graph=graph) as session:
            result = session.run(gradient, {y: power, seed: base})
    np.testing.assert_array_equal(result, np.zeros((2, 3, 1)))


def test_a_new_dim_of_a_number_on_the_host():
    def body(x):
        return tf.math.unsorted_segment_mean(x, [0, 2, 0, -1], tf.size(x)[...] - 7)

    check_bits(body, numbers(4, 3))


def test_empty_tensors():
    check_bits(lambda x: (tf.exp(x) + 1, tf.reduce_sum(x + 1, 0), tf.reshape(x * 2, [3, 0])), numbers(0, 3))


def test_views_and_results():
    """An input, a view, and one value twice are results, each in memory of its own."""

    def body(x):
        y = x * 2
        return y, y, tf.reshape(y, [-1]), tf.transpose(y), tf.squeeze(y[:1], 0), tf.expand_dims(y, -1), tf.identity(x)

    check_bits(body, numbers(3, 4))


def test_dims_change():
    function = tf.function(lambda x: tf.reduce_sum(tf.exp(x) * 2, -1), input_signature=[tf.TensorSpec([None, None])])
    function(numbers(2, 2))
    _, gained = counts(lambda: [function(numbers(rows, 3)) for rows in (1, 2, 3, 2, 1)])
    assert gained["captures"] == 3 and gained["runs"] == 5
    for rows in range(1, 90):
        assert function(numbers(rows, 2)).shape == [rows]
    np.testing.assert_allclose(function(tf.ones([2, 2])), [4 * np.e] * 2, rtol=1e-6)


def test_variables():
    """Reads before and after updates, swaps, and results that are variables."""

    def make():
        return [tf.Variable(numbers(3, seed=i)) for i in range(3)]

    def body(variables, x):
        a, b, c = variables
        before = a.read_value()
        a.assign_add(x)
        old_a, old_b = a.read_value(), b.read_value()
        a.assign(old_b)
        b.assign(old_a)
        c.assign_sub(a * b)
        return before, a.read_value(), b + 0.0, c.read_value()

    x, results = numbers(3, seed=9), []
    for uses, wrap in ((True, lambda f: f), (False, tf.function), (True, tf.function)):
        headrace_tensorflow.use_clusters(uses)
        variables = make()
        function = wrap(lambda x, variables=variables: body(variables, x))
        results.append([tensor.numpy().tobytes() for _ in range(3) for tensor in (*function(x), *variables)])
    assert results[0] == results[1] == results[2]


def test_results_do_not_change_with_the_variable():
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def function():
        before = variable.read_value()
        variable.assign_add(before)
        return before, variable.read_value(), variable * 1.0

    first, second, third = function()
    function()
    assert first.numpy().tolist() == [1, 2] and second.numpy().tolist() == [2, 4] == third.numpy().tolist()
    assert variable.numpy().tolist() == [4, 8]


def test_one_variable_twice():
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def function(a, b):
        a.assign_add([1.0, 1.0])
        b.assign(b * 10.0)
        a.assign_add([2.0, 2.0])
        return a + b

    assert function(variable, variable).numpy().tolist() == [44.0, 64.0]
    assert variable.numpy().tolist() == [22.0, 32.0]


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_gathers_of_variables(index):
    """Elements at indices that the cluster computes, a read of all of them, and updates between; out of range: 0."""
    places = tf.constant([[0, 4], [6, 9]], index)

    def body(table, places):
        first = tf.raw_ops.ResourceGather(resource=table.handle, indices=places // 2, dtype=tf.float32)
        tuples = tf.raw_ops.ResourceGatherNd(resource=table.handle, indices=places // 4, dtype=tf.float32)
        far = tf.raw_ops.ResourceGather(resource=table.handle, indices=places, dtype=tf.float32)
        before = table.read_value()
        table.assign_sub(table * 0.5)
        after = tf.raw_ops.ResourceGather(resource=table.handle, indices=places // 2, dtype=tf.float32)
        table.scatter_nd_add([[1], [1]], tf.ones((2, 3)))
        last = tf.raw_ops.ResourceGather(resource=table.handle, indices=places // 2, dtype=tf.float32)
        return first * 2, tuples + 1, far * 1, before, after * 3, last - first

    results = []
    for uses, wrap in ((True, lambda f: f), (False, tf.function), (True, tf.function)):
        headrace_tensorflow.use_clusters(uses)
        table = tf.Variable(numbers(5, 3))
        function = wrap(lambda places, table=table: body(table, places))
        results.append([tensor.numpy().tobytes() for _ in range(3) for tensor in (*function(places), table)])
    assert results[0] == results[1] == results[2]


SCATTERS = ["Update", "Add", "Sub", "Mul", "Max", "Min", "Div"]


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("kind", [*SCATTERS, *(f"Nd{kind}" for kind in ("Update", "Add", "Sub", "Max", "Min"))])
def test_scatters_into_variables(kind, updates):
    """Reads before stay, whole ones, of rows and by tuples of no indices; those behind see the scatter."""
    scatter = getattr(tf.raw_ops, f"ResourceScatter{kind}")
    is_tuple = kind.startswith("Nd")

    def body(table, other, places, x):
        handle = {"ref": table.handle} if is_tuple else {"resource": table.handle}
        before, rows = table.read_value(), tf.gather(table, places)
        whole = tf.raw_ops.ResourceGatherNd(resource=table.handle, indices=tf.zeros((1, 0), tf.int32), dtype=tf.float32)
        other.assign(before)
        if updates:
            table.assign_add(before * 0.5)
        middle = table.read_value()
        scatter(**handle, indices=places[:, None] if is_tuple else places, updates=x + 1)
        after, rows_after = table.read_value(), tf.gather(table, places)
        scatter(**handle, indices=places[:1, None] if is_tuple else places[:1], updates=x[:1] * 3)
        if updates:
            table.assign(table * 2.0)
        return before, rows, whole, middle, after, rows_after, before * 2 + after, table.read_value()

    results = []
    for uses, wrap in ((True, lambda f: f), (False, tf.function), (True, tf.function)):
        headrace_tensorflow.use_clusters(uses)
        table, other = tf.Variable(numbers(5, 3)), tf.Variable(tf.zeros((5, 3)))
        function = wrap(lambda places, x, table=table, other=other: body(table, other, places, x))
        found = [(*function(tf.constant([4, 1, 3]), numbers(3, 3, seed=7)), table, other) for _ in range(3)]
        results.append([tensor.numpy().tobytes() for call in found for tensor in call])
    assert results[0] == results[1] == results[2]


def test_scatters_are_in_clusters_in_place():
    table = tf.Variable(tf.ones((1 << 20, 4)))

    @tf.function
    def function(places, x):
        table.scatter_add(tf.IndexedSlices(x * 2 + 1, places))
        return tf.reduce_sum(x * 3)

    _, gained = counts(function, tf.constant([5, 5, 9]), tf.ones((3, 4)))
    assert gained["clusters"] == gained["runs"] == 1
    assert table[5].numpy().tolist() == [7] * 4 and table[9].numpy().tolist() == [4] * 4
    before = headrace_tensorflow.memory_stats()["allocated_bytes"]
    for _ in range(3):
        function(tf.constant([5, 5, 9]), tf.ones((3, 4))).numpy()
    assert headrace_tensorflow.memory_stats()["allocated_bytes"] - before < 1 << 20
    with pytest.raises(tf.errors.OpError, match="1048576"):
        function(tf.constant([5, 5, 1 << 20]), tf.ones((3, 4))).numpy()
    assert function(tf.constant([5, 5, 9]), tf.ones((3, 4))).numpy() == 36


def numbers_by_two_handles(function):
    """The results of three calls with one variable as both arguments, and the variable after each: the same without a
    function, by kernels and in clusters."""
    results = []
    for uses, wrap in ((True, lambda f: f), (False, tf.function), (True, tf.function)):
        headrace_tensorflow.use_clusters(uses)
        variable, wrapped = tf.Variable([1.0, 2.0, 3.0]), wrap(function)
        results.append(
            [tensor.numpy().tolist() for _ in range(3) for tensor in (*wrapped(variable, variable), variable)]
        )
    assert results[0] == results[1] == results[2]
    return results[0]


def test_scatters_into_a_variable_of_two_handles():
    def function(a, b):
        first = a.read_value()
        b.scatter_add(tf.IndexedSlices(first[:2] * 2, tf.constant([2, 0])))
        return first, a.read_value(), first + b

    assert numbers_by_two_handles(function)[:2] == [[1, 2, 3], [5, 2, 5]]


def test_gathers_are_in_clusters_without_a_copy_of_the_variable():
    table = tf.Variable(tf.ones((1 << 20, 4)))

    @tf.function
    def function(places):
        rows = tf.gather(table, tf.cast(places, tf.int64)) * 2
        return tf.reduce_sum(rows, 1)

    places = tf.constant([3.0, 1e6])
    result, gained = counts(function, places)
    assert result.numpy().tolist() == [8, 8]
    assert gained["clusters"] == gained["runs"] == 1
    held = table.read_value()
    assert held[3, 0].numpy() == 1  # its memory is there
    before = headrace_tensorflow.memory_stats()["allocated_bytes"]
    for _ in range(3):
        function(places).numpy()
    assert headrace_tensorflow.memory_stats()["allocated_bytes"] - before < 1 << 20
    table.scatter_update(tf.IndexedSlices(tf.zeros((1, 4)), [3]))
    assert function(places).numpy().tolist() == [0, 8] and held[3, 0].numpy() == 1


def test_gathers_of_a_variable_that_is_updated_by_another_handle():
    def function(a, b):
        first = tf.gather(a, [2, 0]) + 0.5
        b.assign(b * 10.0)
        second = tf.gather(a, [2, 0]) + 0.5
        return first, second, a.read_value()

    assert numbers_by_two_handles(function)[:2] == [[3.5, 1.5], [30.5, 10.5]]


def test_gathers_in_threads():
    """Some update the variable, and others gather from it: each row is of one update."""
    table, wrong = tf.Variable(tf.zeros((8, 64))), []
    gather = tf.function(lambda places: tf.gather(table, tf.cast(places, tf.int32)) * 1.0)
    update = tf.function(lambda x: table.assign_add(x * 1.0 + 0.0))
    sparse = tf.function(lambda x: table.scatter_add(tf.IndexedSlices(x[:2] * 1.0, tf.constant([1, 5]))))

    def work(which):
        for _ in range(30):
            if which == 0:
                update(tf.ones((8, 64)))
            elif which == 1:
                sparse(tf.ones((8, 64)))
            else:
                rows = gather(tf.constant([1.0, 5.0, 2.0])).numpy()
                wrong.extend(rows[rows != rows[:, :1]])

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    np.testing.assert_array_equal(table.numpy()[:, 0], [30, 60, 30, 30, 30, 60, 30, 30])


def test_failed_gathers():
    table, empty = tf.Variable(tf.ones((4, 2))), tf.Variable(tf.ones(()))

    @tf.function
    def function(variable, places):
        return tf.raw_ops.ResourceGather(resource=variable, indices=places * 2, dtype=tf.float32) + 1

    for uses in (False, True):
        headrace_tensorflow.use_clusters(uses)
        function = tf.function(function.python_function)
        with pytest.raises((tf.errors.OpError, ValueError)):
            function(empty.handle, tf.constant([1]))
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4, 2], shared_name=f"none{uses}")
        with pytest.raises(tf.errors.OpError):
            function(handle, tf.constant([1]))
        assert function(table.handle, tf.constant([1])).numpy().tolist() == [[2, 2]]


def test_held_values_of_variables_stay():
    variable = tf.Variable([1.0, 2.0])
    held = variable.read_value()
    tf.function(lambda: variable.assign_add(variable * 2.0))()
    assert held.numpy().tolist() == [1, 2] and variable.numpy().tolist() == [3, 6]


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_training_is_that_of_kernels(optimizer):
    import keras

    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(32, 20)).astype("float32"), rng.integers(0, 5, 32)
    losses = []
    for uses in (False, True):
        headrace_tensorflow.use_clusters(uses)
        keras.utils.set_random_seed(4)
        layers = [keras.layers.Dense(16, "gelu"), keras.layers.LayerNormalization(), keras.layers.Dense(5)]
        model = keras.Sequential([keras.layers.Input((20,)), *layers])
        model.compile(getattr(keras.optimizers, optimizer)(0.01),
                      keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)  # fmt: skip
        history = [model.train_on_batch(x[i % 4 * 8 :][:8], y[i % 4 * 8 :][:8]) for i in range(12)]
        losses.append((history, [weight.tobytes() for weight in model.get_weights()]))
    assert losses[0] == losses[1]


def test_control_dependencies_hold():
    variable = tf.Variable(1.0)

    @tf.function
    def function():
        first = variable.assign_add(1.0)
        with tf.control_dependencies([first]):
            second = variable * 10.0
        with tf.control_dependencies([second]):
            variable.assign(0.5)
        return second

    assert [function().numpy() for _ in range(2)] == [20.0, 15.0] and variable.numpy() == 0.5


def test_kernels_between_clusters():
    """tf.unique runs on the host: what is before and behind it are two clusters."""
    tf.config.set_soft_device_placement(True)
    try:

        @tf.function
        def function(x):
            y = tf.abs(x * 2) + 1
            unique = tf.unique(tf.reshape(y, [-1]))[0]
            return tf.reduce_sum(tf.exp(unique) * 2), y * 3

        (total, y), gained = counts(function, tf.constant([1.0, -1.0, 0.0]))
        assert gained["clusters"] == 2
        np.testing.assert_allclose(total, 2 * (np.e**3 + np.e), rtol=1e-6)
        np.testing.assert_array_equal(y, [9, 9, 3])
    finally:
        tf.config.set_soft_device_placement(False)


def test_errors_name_the_node():
    function = tf.function(lambda x, y: tf.matmul(x + 1, y * 2, name="product") * 2,
                           input_signature=[tf.TensorSpec([None, None])] * 2)  # fmt: skip
    with pytest.raises(tf.errors.InvalidArgumentError, match="node product: "):
        function(tf.ones([2, 3]), tf.ones([4, 5]))
    assert function(tf.ones([2, 3]), tf.ones([3, 5])).numpy().tolist() == [[24.0] * 5] * 2


def test_values_that_a_session_is_fed_with():
    """A program may feed any value of a graph, not placeholders alone."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.identity(tf.constant([1.0, 2.0, 3.0]))
        axis = tf.constant(0)
        doubled = tf.tanh(x) * 2.0
        total, joined = tf.reduce_sum(doubled + 1.0), tf.concat([doubled[None], doubled[None]], axis)
        assert session.run(doubled, {x: [0.0, 0.0, 0.0]}).tolist() == [0.0, 0.0, 0.0]
        assert session.run(total, {doubled: [1.0, 2.0, 4.0]}) == 10.0
        assert session.run(total, {x: [0.0, 0.0, 0.0]}) == 3.0
        assert session.run(joined, {doubled: [1.0, 2.0, 3.0], axis: 1}).shape == (1, 6)
        np.testing.assert_allclose(session.run(total), 3 + 2 * np.tanh([1, 2, 3]).sum(), rtol=1e-6)


def test_failed_calls_leave_variables():
    variable = tf.Variable([1.0, 2.0])

    @tf.function(input_signature=[tf.TensorSpec(None)])
    def function(x):
        variable.assign_add([1.0, 1.0])
        return tf.matmul(variable[None] * 2, x * 2)

    with pytest.raises(tf.errors.InvalidArgumentError):
        function(tf.ones([3, 1]))
    assert variable.numpy().tolist() == [1.0, 2.0]


def test_threads():
    function = tf.function(lambda x: tf.reduce_sum(tf.exp(x) - x, -1), input_signature=[tf.TensorSpec([None, 4])])
    wrong = []

    def work(seed):
        for rows in range(1, 20):
            x = numbers(rows, 4, seed=seed)
            if not np.allclose(function(x), np.sum(np.exp(x) - x, -1), rtol=1e-5):
                wrong.append((seed, rows))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_dims_are_computed_once():
    """Dims of a batch of any size: of what clusters compute, joined, sliced, multiplied, and gradients of broadcasts."""

    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([None])])
    def function(x, y):
        with tf.GradientTape() as tape:
            tape.watch(x)
            z = tf.exp(x) * y[:, None]
            rows = tf.shape(z)[0]
            flat = tf.reshape(z, [rows * 2, -1])
            joined = tf.concat([flat, flat[: rows // 2 + 1] * 2], 0)
            total = tf.reduce_mean(joined) * tf.cast(tf.size(joined), tf.float32) + tf.reduce_sum(z / tf.range(1.0, 5.0))
        steps = tf.range(tf.shape(z)[-1]) + 1
        return z, joined, tape.gradient(total, x), tf.broadcast_to(tf.cast(steps, tf.float32), tf.shape(z)), rows, steps

    for rows in (3, 5, 3, 1):
        x, y = numbers(rows, 4, seed=rows), numbers(rows, seed=9)
        results, gained = counts(function, x, y)
        assert gained["runs"] == 1
        for result, expected in zip(results, function.python_function(x, y), strict=True):
            assert result.numpy().tobytes() == expected.numpy().tobytes()


def test_small_integers_of_clusters_stay_on_the_device():
    def body(x):
        best = tf.argmax(x, -1, output_type=tf.int32)
        return tf.where(best < 2, best + 1, -best), tf.reduce_sum(tf.cast(best * best, tf.float32))

    check_bits(body, numbers(6, 4))


def test_random_numbers_are_those_of_kernels():
    def body(x, seed):
        kept = tf.random.stateless_uniform(tf.shape(x), seed=seed) < 0.5
        return tf.where(kept, x * 2, 0.0) + tf.random.stateless_normal(tf.shape(x), seed=seed + 1)

    check_bits(body, numbers(6, 4), tf.constant([3, 4], tf.int64))


def test_the_generator_of_a_kernel_goes_on():
    results = []
    for uses in (False, True):
        headrace_tensorflow.use_clusters(uses)
        tf.random.set_seed(5)
        function = tf.function(lambda x: tf.nn.dropout(x * 2, 0.5, seed=7) + x * 3)
        results.append([function(tf.ones([40])).numpy().tolist() for _ in range(3)])
    assert results[0] == results[1] and results[0][0] != results[0][1]


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_convolutional_training_is_that_of_kernels(policy):
    import keras

    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(16, 12, 12, 1)).astype("float32"), rng.integers(0, 5, 16)
    losses = []
    for uses in (False, True):
        headrace_tensorflow.use_clusters(uses)
        keras.utils.set_random_seed(4)
        keras.mixed_precision.set_global_policy(policy)
        layers = [
            keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.MaxPooling2D(), keras.layers.BatchNormalization(),
            keras.layers.Conv2D(8, 3), keras.layers.GlobalAveragePooling2D(), keras.layers.Dropout(0.3),
            keras.layers.Dense(5, dtype="float32"),
        ]  # fmt: skip
        model = keras.Sequential([keras.layers.Input((12, 12, 1)), *layers])
        keras.mixed_precision.set_global_policy("float32")
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        history = [model.train_on_batch(x[i % 2 * 8 :][:8], y[i % 2 * 8 :][:8]) for i in range(6)]
        losses.append((history, [weight.tobytes() for weight in model.get_weights()]))
    assert losses[0] == losses[1]


def check_control(function, *arguments):
    """A function with loops or conditions against eager execution; returns what the counters gained."""
    result, gained = counts(tf.function(function), *arguments)
    np.testing.assert_array_equal(result, function(*arguments))
    assert gained["clusters"] > 0
    return gained


def test_loops():
    def function(x, steps):
        total, scale = tf.zeros_like(x), tf.reduce_sum(x * x)
        for i in tf.range(steps):
            y = tf.sqrt(tf.abs(x) + tf.cast(i, tf.float32)) * scale
            total = total * 0.5 + tf.reduce_sum(y * 2, axis=0)
        return total * 2 + x

    for steps in (0, 1, 5):
        gained = check_control(function, numbers(3, 4), tf.constant(steps))
        assert gained["runs"] >= steps + 1 and gained["captures"] <= gained["clusters"]


def test_nested_loops_and_conditions():
    def function(x, steps):
        y = x * 2 + 1
        for i in tf.range(steps):
            for j in tf.range(i + 1):
                if tf.equal(j % 2, 0):
                    y = tf.abs(y * 1.5) - tf.cast(j, tf.float32)
                else:
                    y = tf.minimum(y, 3.0) * tf.reduce_mean(y)
            y = y * 0.5 + 1
        if tf.reduce_sum(y * 2) > 4.0:
            z = y * 2 + x
        else:
            z = y * x - 1
        return z * 2 + 1

    for seed in range(4):
        check_control(function, numbers(3, 4, seed=seed), tf.constant(4))


def test_conditions_in_a_row():
    def function(x, first, second):
        if first:
            a, b = x * 2 + 1, x - 1
        else:
            a, b = x * 3 - 1, x * x + 2
        c = a * b + a
        if second:
            c = c * c + b
        return c * 2 + a, c - 1

    for first in (True, False):
        for second in (True, False):
            check_control(lambda *a: tf.stack(function(*a)), numbers(5), tf.constant(first), tf.constant(second))


def test_variables_in_loops():
    results = []
    for wrap in (tf.function, lambda function: function):
        variable = tf.Variable([1.0, 2.0])

        def function(steps, variable=variable):
            for _ in tf.range(steps):
                before = variable.read_value()
                variable.assign(before * 2 + 1)
                if variable[0] > 10.0:
                    variable.assign_sub(before * 0.5 + 1)
            return variable.read_value() * 2 + 1

        wrapped = wrap(function)
        results.append([*(wrapped(tf.constant(n)).numpy().tolist() for n in (3, 0, 4)), variable.numpy().tolist()])
    assert results[0] == results[1]


def test_lists_in_loops_and_gradients():
    weights = tf.Variable(numbers(4, 4, seed=3))

    def function(x):
        with tf.GradientTape() as tape:
            state, states = tf.zeros([2, 4]), tf.TensorArray(tf.float32, size=0, dynamic_size=True)
            for i in tf.range(tf.shape(x)[0]):
                state = tf.tanh(tf.matmul(state, weights) + x[i] * 2)
                states = states.write(i, state * 2)
            loss = tf.reduce_sum(states.stack() ** 2)
        return tf.concat([tape.gradient(loss, weights), tf.fill([1, 4], loss)], 0)

    for steps in (1, 6):
        x = numbers(steps, 2, 4)
        result, gained = counts(tf.function(function), x)
        np.testing.assert_allclose(result, function(x), rtol=1e-5, atol=1e-5)
        assert gained["clusters"] > 0


def test_a_loop_reads_no_value():
    function = tf.function(lambda x, n: tf.while_loop(lambda i, _: i < n, lambda i, x: (i + 1, tf.abs(x * 0.5) + 1), [0, x])[1])
    function(numbers(8), tf.constant(3))
    headrace_tensorflow.reset_stats()
    result = function(numbers(8), tf.constant(100))
    assert headrace_tensorflow.stats()["commits_by_read"] == 0
    assert np.isfinite(result).all()


def test_results_with_dims_that_depend_on_numbers():
    """They cut the graph, and each call has dims of its own."""

    @tf.function
    def function(x):
        chosen = tf.boolean_mask(x * 2, x > 0)
        values, places, counts = tf.unique_with_counts(tf.floor(chosen))
        return chosen + 1, values * 2, places, counts, tf.where(x > 1) * 2

    for seed in range(4):
        x = numbers(200, seed=seed) * 3
        with tf.device("CPU"):
            want = function.python_function(x)
        for have, expected in zip(function(x), want, strict=True):
            np.testing.assert_array_equal(have.numpy(), expected.numpy())


def chain(x):
    """A list that a loop fills, values that change places, and the counter behind the loop."""
    steps = tf.shape(x)[0]
    rows = tf.TensorArray(tf.float32, size=steps)

    def body(i, y, z, rows):
        y, z = z * 0.5, tf.tanh(y * x[i]) + tf.cast(i, tf.float32)
        return i + 1, y, z, rows.write(i, y)

    i, y, z, rows = tf.while_loop(lambda i, *_: i < steps, body, (0, x[0], x[1], rows))
    return y, z, rows.stack(), tf.fill([i], y[0]), i


def test_a_list_that_is_longer_again_has_no_old_elements():
    kind = {"element_shape": [2], "element_dtype": tf.float32}

    def shorter(i, rows):
        return i + 1, tf.raw_ops.TensorListPopBack(input_handle=rows, **kind)[0]

    def body(x):
        rows = tf.raw_ops.TensorListReserve(num_elements=0, **kind)
        for k in range(4):
            rows = tf.raw_ops.TensorListPushBack(input_handle=rows, tensor=x[k] * 3)
        _, rows = tf.while_loop(lambda i, _: i < 3, shorter, (0, rows))
        rows = tf.raw_ops.TensorListSetItem(input_handle=rows, index=3, item=x[0] * 2, resize_if_index_out_of_bounds=True)
        return tf.raw_ops.TensorListStack(input_handle=rows, **kind)

    check_bits(body, numbers(4, 2))


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_values_of_a_loop_that_come_late(steps):
    """The merges of such values are behind the condition: they count after the last pass, too, and before the first."""

    def two_loops(x, y):
        late = tf.sin(tf.sin(y) + 1) + 1
        _, a, b = tf.while_loop(lambda i, *_: i < steps, lambda i, a, b: (i + 1, a + 1, b * 2), (0, x, late))
        _, c, d = tf.while_loop(lambda i, *_: i < steps, lambda i, c, d: (i + 1, c + d, d + a), (0, b, x))
        return a, b, c, d

    check_bits(two_loops, numbers(3), numbers(3, seed=1))


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_third_gradient_of_a_loop(steps):
    def gradient(function):
        def call(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x)

        return tf.function(call)

    def loop(x):
        return tf.while_loop(lambda i, _: i < steps, lambda i, x: (i + 1, tf.cos(x)), (0, x))[1]

    def third(uses_clusters):
        headrace_tensorflow.use_clusters(uses_clusters)
        return tf.function(gradient(gradient(gradient(loop))))(tf.constant(1.25)).numpy()

    np.testing.assert_allclose(third(True), third(False), rtol=1e-6, atol=1e-6)


def test_loops_of_known_length_are_inside():
    check_bits(chain, numbers(5, 7))
    check_bits(lambda x: tf.while_loop(lambda i, _: i < 0, lambda i, x: (i + 1, x * 2), (0, x)), numbers(3))


def test_long_loops_record_in_each_call():
    def body(x):
        return tf.while_loop(lambda i, _: i < 40000, lambda i, x: (i + 1, tf.minimum(x * 1.5 + 0.25, 9.0)), (0, x))[1]

    x = numbers(3)
    function = tf.function(body)
    result, gained = counts(function, x)
    assert gained["clusters"] == 1
    with tf.device("CPU"):
        expected = tf.function(body)(tf.identity(x)).numpy()
    np.testing.assert_allclose(result.numpy(), expected, 1e-6)
    np.testing.assert_allclose(function(x * 2).numpy(), expected, 1e-6)


def test_gradients_of_lists_in_loops():
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, _, rows, *_ = chain(x)
            loss = tf.reduce_sum(y) + tf.reduce_sum(rows**2)
        return tape.gradient(loss, x)

    x = numbers(6, 4)
    result, gained = counts(tf.function(gradient), x)
    assert gained["clusters"] == 1 and gained["runs"] == 1
    np.testing.assert_allclose(result.numpy(), gradient(x).numpy(), 1e-5, 1e-6)


def test_variables_that_loops_read():
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def step(x):
        variable.assign_add([1.0, 1.0])
        x = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * variable), (0, x))[1]
        variable.assign(variable * 2)
        return x

    np.testing.assert_array_equal(step(tf.ones(2)).numpy(), [8, 27])
    np.testing.assert_array_equal(variable.numpy(), [4, 6])
    np.testing.assert_array_equal(step(tf.ones(2)).numpy(), [125, 343])


def test_errors_in_loops_name_the_node():
    @tf.function
    def step(x, n):
        rows = tf.TensorArray(tf.float32, size=2)
        return tf.while_loop(lambda i, _: i < 3, lambda i, rows: (i + 1, rows.write(i, x * 2)), (0, rows))[1].stack()

    with pytest.raises(tf.errors.InvalidArgumentError, match="element 2 of a list of 2"):
        step(tf.ones(2), 3)


def test_loops_of_functions_that_ask_for_xla():
    """Keras' default."""
    import keras

    cells = [keras.layers.LSTM(8, return_sequences=True), keras.layers.GRU(8)]
    model = keras.Sequential([keras.layers.Input((20, 4)), *cells, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.random.default_rng(3).normal(size=(8, 20, 4)), np.ones((8, 1))
    _, gained = counts(model.train_on_batch, x, y)
    assert model.jit_compile and gained["nodes"] > 500 and gained["runs"] < 10


def test_only_results_of_the_function_are_results_of_its_cluster():
    """Functions preserve their reads of variables for the order of calls; nobody uses the values."""
    variable = tf.Variable(numbers(100))

    @tf.function
    def step(x):
        variable.assign(tf.tanh(variable.read_value()) * x)
        return tf.reduce_sum(variable * x)

    for _ in range(2):
        step(numbers(100)).numpy()
    before = headrace_tensorflow.stats()["operations"]
    step(numbers(100)).numpy()
    assert headrace_tensorflow.stats()["operations"] - before == 5  # tanh, mul, mul, reduce_sum, copy


@pytest.mark.parametrize("has_package", [True, False])
def test_the_plug_in_changes_tensorflow_without_importing_its_package(has_package):
    """The import is the program's decision. A plug-in without its package warns once, and leaves the loops of xla."""
    code = f"""
import sys
if not {has_package}:
    sys.modules["headrace_tensorflow"] = None
import tensorflow as tf
from tensorflow.python.framework import constant_op, ops
doubled = tf.function(lambda x: 2 * x, jit_compile=True)
x = tf.constant([1.0, 2.0]) + 1
assert not {has_package} or doubled(x).numpy().tolist() == [4, 6]
assert "HEADRACE" in x.device and x.numpy().tolist() == [2, 3]
print(bool(sys.modules.get("headrace_tensorflow")))
changed = ops.EagerTensor._numpy_internal, constant_op.convert_to_eager_tensor
print(*[function.__name__ for function in changed])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    originals = ["_numpy_internal", "convert_to_eager_tensor"]
    assert done.stdout.split() == ["False", *(["numpy_of", "tensor_from"] if has_package else originals)]
    assert done.stderr.count("the Python package headrace_tensorflow is missing") == int(not has_package)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [2, 16])
def test_products_of_a_list_with_one_matrix(rows, transposed):
    """Those of few rows are one product in front of the loop."""

    def body(x, weight, recurrent):
        rows = tf.TensorArray(tf.float32, size=6, clear_after_read=False).unstack(x)

        def step(i, y, z):
            y = tf.tanh(tf.matmul(rows.read(5 - i), weight, transpose_b=transposed) + tf.matmul(y, recurrent))
            return i + 1, y, z + tf.matmul(rows.read(i), recurrent)

        return tf.while_loop(lambda i, *_: i < 4, step, (0, x[0], x[1]))[1:]

    arguments = numbers(6, rows, 5), numbers(5, 5, seed=1), numbers(5, 5, seed=2)
    function = tf.function(body)
    results, gained = counts(function, *arguments)
    assert gained["clusters"] == 1
    for have, want in zip(results, body(*arguments), strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), 1e-5, 1e-5)


def test_an_element_outlives_its_list():
    """Long loops free lists that no value has."""

    def body(x, weight):
        def step(i, element, total):
            y = tf.tanh(tf.matmul(element, weight))
            rows = tf.TensorArray(tf.float32, size=4).unstack(tf.stack([y, y * 2, tf.cos(y), y + 1]))
            return i + 1, rows.read(i % 4), total * 0.5 + y

        return tf.while_loop(lambda i, *_: i < 12000, step, (0, x, tf.zeros_like(x)))[1:]

    arguments = numbers(2, 5), numbers(5, 5, seed=1) * 0.3
    with tf.device("CPU"):
        expected = tf.function(body)(*(tf.identity(x) for x in arguments))
    for have, want in zip(tf.function(body)(*arguments), expected, strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("dims, new", [((2, 0), (-1, 0)), ((2, 0, 3), (-1, 0)), ((0, 4), (-1, 2)), ((3, 0), (0, -1)), ((4, 0), (2, -1, 0))])
def test_reshape_without_elements(dims, new):
    function = tf.function(lambda x: tf.reshape(tf.math.sin(tf.math.cos(x)), new) + 1.0)
    with tf.device("HEADRACE"):
        here = function(tf.zeros(dims))
    with tf.device("CPU"):
        assert here.shape == tf.reshape(tf.zeros(dims), new).shape


def test_sums_of_large_tensors():
    """TensorFlow's pass that saves memory would make operations of them that have no kernel here."""
    x = tf.ones((1 << 22,))

    @tf.function
    def total(x):
        return tf.add_n([tf.sin(x * float(i)) for i in range(1, 21)])[:3]

    np.testing.assert_allclose(total(x).numpy(), [sum(np.sin(i) for i in range(1, 21))] * 3, rtol=1e-4)
