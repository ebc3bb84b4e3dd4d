"""Eager steps of Keras that run as functions (eager_keras.py): values are those of the same steps without functions."""

import gc
import subprocess
import sys
import weakref

import headrace_tensorflow
import numpy as np
import pytest
import tensorflow as tf

keras = pytest.importorskip("keras")
STEPS = 6


def without_functions(run):
    tf.config.run_functions_eagerly(True)
    try:
        return run()
    finally:
        tf.config.run_functions_eagerly(False)


def steps_of(optimizer, change=None, taped=False):
    """Values of two variables after each step."""
    numbers = np.random.default_rng(1)
    variables = [keras.Variable(numbers.standard_normal(shape, np.float32)) for shape in ((3, 4), (4,))]
    values = []
    for step in range(STEPS):
        if change is not None and step == STEPS - 2:
            change(optimizer)
        grads = [tf.constant(numbers.standard_normal(v.shape, np.float32)) for v in variables]
        with tf.GradientTape() if taped else tf.name_scope("step"):
            optimizer.apply(grads, variables)
        values += [v.numpy() for v in variables]
    return values


def check_steps(make, **options):
    found, wanted = steps_of(make(), **options), without_functions(lambda: steps_of(make(), **options))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7)


OPTIMIZERS = {
    "SGD": {"momentum": 0.9, "nesterov": True},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "Adam": {"amsgrad": True, "clipnorm": 0.5},
    "AdamW": {"weight_decay": 0.1, "use_ema": True, "ema_overwrite_frequency": 2},
    "Adadelta": {"global_clipnorm": 1.0},
    "Adagrad": {},
    "Adamax": {"clipvalue": 0.3},
    "Adafactor": {},
    "Nadam": {},
    "Ftrl": {},
    "Lion": {},
    "Lamb": {"gradient_accumulation_steps": 2},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    check_steps(lambda: getattr(keras.optimizers, name)(0.01, **OPTIMIZERS[name]))


def test_a_scaled_loss():
    check_steps(lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)))


def test_an_update_is_traced_at_its_third_call(count_calls):
    calls = count_calls(keras.optimizers.Adam, "update_step")
    steps_of(keras.optimizers.Adam(0.01))
    assert calls == [True] * 4 + [False] * 2


def rate_of(value):
    def change(optimizer):
        optimizer.learning_rate = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        rate_of(0.5),
        rate_of(keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.5)),
        rate_of(lambda: 0.25),
        lambda optimizer: setattr(optimizer, "beta_1", 0.1),
        lambda optimizer: setattr(optimizer, "beta_1", np.float64(0.1)),
        lambda optimizer: setattr(optimizer, "beta_1", np.array(0.1)),
        lambda optimizer: setattr(optimizer, "beta_1", tf.constant(0.1)),
        lambda optimizer: setattr(optimizer, "clipvalue", 0.01),
        lambda optimizer: optimizer.iterations.assign(100),
    ],
)
def test_settings_that_change(change):
    check_steps(lambda: keras.optimizers.Adam(0.01), change=change)
    values = steps_of(keras.optimizers.Adam(0.01), change=change)
    assert not np.allclose(values[-1], steps_of(keras.optimizers.Adam(0.01))[-1], rtol=1e-5)


def test_a_number_of_numpy_in_each_step():
    def run():
        optimizer, variable = keras.optimizers.SGD(1.0, momentum=0.5), keras.Variable([0.0])
        for i in range(8):
            optimizer.momentum = np.interp(i, [0, 7], [0.1, 0.9])
            optimizer.apply([tf.constant([1.0])], [variable])
        return float(variable[0])

    assert run() == pytest.approx(without_functions(run), rel=1e-6)


def change_decay(optimizer):
    optimizer._learning_rate.decay_rate = 0.01


def change_values(optimizer):
    optimizer._learning_rate.values[0] = 0.01


@pytest.mark.parametrize("change", [change_decay, change_values])
def test_a_schedule_whose_settings_change(change):
    schedules = keras.optimizers.schedules
    make = {
        change_decay: lambda: schedules.ExponentialDecay(0.5, 2, 0.9),
        change_values: lambda: schedules.PiecewiseConstantDecay([100], [0.5, 0.1]),
    }[change]
    check_steps(lambda: keras.optimizers.Adam(make()), change=change)
    values = steps_of(keras.optimizers.Adam(make()), change=change)
    assert not np.allclose(values[-1], steps_of(keras.optimizers.Adam(make()))[-1], rtol=1e-5)


def test_optimizers_and_schedules_of_the_program_stay_eager():
    calls = []

    class Mine(keras.optimizers.SGD):
        def update_step(self, gradient, variable, learning_rate):
            calls.append(float(tf.reduce_sum(gradient)))
            super().update_step(gradient, variable, learning_rate)

    class Rate(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            calls.append(int(step))
            return 0.1

    steps_of(Mine(0.1))
    assert len(calls) == 2 * STEPS
    calls.clear()
    steps_of(keras.optimizers.SGD(Rate()))
    assert sorted(set(calls)) == list(range(STEPS))


def test_an_update_below_a_tape_stays_eager(count_calls):
    calls = count_calls(keras.optimizers.Adam, "update_step")
    check_steps(lambda: keras.optimizers.Adam(0.01), taped=True)
    assert all(calls) and len(calls) == 4 * STEPS


def test_rows_of_an_embedding(count_calls):
    layer, optimizer = keras.layers.Embedding(5, 2, embeddings_initializer="ones"), keras.optimizers.SGD(1.0)
    calls = count_calls(keras.optimizers.SGD, "update_step")
    for _ in range(4):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.constant([1, 3, 3])))
        optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
    assert layer.embeddings.numpy().tolist() == [[1, 1], [-3, -3], [1, 1], [-7, -7], [1, 1]]
    assert all(calls)


def test_one_optimizer_of_other_variables_each_time():
    optimizer = keras.optimizers.SGD(1.0)
    variables = [keras.Variable(np.float32([i])) for i in range(12)]
    optimizer.build(variables)
    for variable in variables:
        optimizer.apply([tf.constant([1.0])], [variable])
    assert [float(v[0]) for v in variables] == [i - 1 for i in range(12)]


def test_fit_without_functions(count_calls):
    calls = count_calls(keras.optimizers.Adam, "update_step")
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    x = np.random.default_rng(2).standard_normal((32, 4), np.float32)
    losses = model.fit(x, x[:, :1], batch_size=8, epochs=3, verbose=0, shuffle=False).history["loss"]
    assert calls == [True] * 8 + [False] * 4 and losses == sorted(losses, reverse=True)


# ---- recurrent layers


def make_layer(name, **options):
    keras.utils.set_random_seed(3)
    layer = getattr(keras.layers, name)(4, **options)
    layer.build((2, 5, 3))
    return layer


def results_of(layer, mask=None, training=False, batch=2, calls=5):
    """Results of some calls, and gradients of the last two."""
    x = tf.constant(np.random.default_rng(4).standard_normal((batch, 5, 3)), layer.compute_dtype)
    results = []
    for i in range(calls):
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = tf.nest.flatten(layer(x + i, mask=mask, training=training))
            total = tf.add_n([tf.reduce_sum(tf.cast(value, "float32") ** 2) for value in found])
        results += found
        if i >= calls - 2:
            values = [x, *(v.value for v in layer.trainable_variables)]
            results += tape.gradient(total, values, unconnected_gradients="zero")
    return [tf.cast(value, "float32").numpy() for value in results]


def check_layer(name, rtol=1e-5, **options):
    arguments = {key: options.pop(key) for key in ("mask", "training", "batch") if key in options}
    found = results_of(make_layer(name, **options), **arguments)
    wanted = without_functions(lambda: results_of(make_layer(name, **options), **arguments))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "SimpleRNN"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_sequences": True, "go_backwards": True, "return_state": True},
        {"unroll": True},
        {"mask": [[True, False, True, True, False], [False, True, True, False, True]], "zero_output_for_mask": True},
    ],
    ids=["plain", "backwards", "unrolled", "mask"],
)
def test_recurrent_layers(name, options, count_calls):
    calls = count_calls(getattr(keras.layers, f"{name}Cell"), "call")
    if "mask" in options:
        options = options | {"mask": tf.constant(options["mask"]), "return_sequences": True}
    check_layer(name, **options)
    assert False in calls


def test_more_dims_and_dtypes():
    for batch in (1, 3):
        check_layer("LSTM", batch=batch)
    check_layer("GRU", dtype="mixed_bfloat16", rtol=0.05)


def test_states_that_are_variables(count_calls):
    calls = count_calls(keras.layers.LSTMCell, "call")
    check_layer("LSTM", stateful=True)
    assert all(calls)


def test_a_mask_in_some_calls():
    layer, mask = make_layer("GRU"), tf.constant([[True, True, False, False, False]] * 2)
    for _ in range(2):
        results_of(layer)
        results_of(layer, mask)
    np.testing.assert_allclose(results_of(layer, mask)[0], without_functions(lambda: results_of(layer, mask))[0], 1e-5)


def test_dropout_stays_eager(count_calls):
    layer = make_layer("LSTM", dropout=0.5)
    results = [results_of(layer, training=True, calls=2)[0] for _ in range(4)]
    assert len({result.tobytes() for result in results}) == 4


def test_activations_of_the_program_stay_eager():
    calls = []

    def activation(x):
        calls.append(float(tf.reduce_sum(x)))  # fails in a function
        return tf.tanh(x)

    results_of(make_layer("SimpleRNN", activation=activation))
    assert len(calls) >= 5 * 5


def test_activations_that_are_layers_stay_eager():
    def run():
        layer = make_layer("SimpleRNN", activation=keras.layers.LeakyReLU(0.5))
        results = results_of(layer)
        layer.cell.activation.negative_slope = 0.0
        return results + results_of(layer)

    for a, b in zip(run(), without_functions(run), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_cells_that_add_losses_stay_eager():
    layer = keras.layers.RNN(keras.layers.LSTMCell(3, activity_regularizer=keras.regularizers.L2(1.0)))
    losses = [(layer(tf.ones((2, 5, 3))), float(sum(layer.losses)))[1] for _ in range(5)]
    assert losses[0] > 0 and losses == [losses[0]] * 5


def test_a_loop_is_traced_at_its_third_call(count_calls):
    layer, calls = make_layer("GRU"), count_calls(keras.layers.GRUCell, "call")
    without_functions(lambda: results_of(layer, calls=1))
    of_one = len(calls)
    calls.clear()
    results_of(layer)
    assert 2 * of_one <= calls.index(False) < 3 * of_one


def test_settings_of_a_cell_that_change():
    def run():
        layer = make_layer("LSTM")
        results = results_of(layer)
        layer.cell.activation = keras.activations.relu
        results += results_of(layer)
        layer.cell.use_bias = False
        results += results_of(layer)[:5]
        layer.cell.kernel.assign(2 * layer.cell.kernel)
        return results + results_of(layer)[:5]

    for a, b in zip(run(), without_functions(run), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_training_with_a_recurrent_layer():
    def run():
        layer, optimizer, losses = make_layer("LSTM"), keras.optimizers.Adam(0.05), []
        x = tf.constant(np.random.default_rng(5).standard_normal((2, 5, 3)), "float32")
        for _ in range(8):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((layer(x) - 0.5) ** 2)
            optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
            losses.append(float(loss))
        return losses

    losses = run()
    np.testing.assert_allclose(losses, without_functions(run), rtol=1e-5)
    assert losses == sorted(losses, reverse=True)


# ---- the change


def test_owners_are_released():
    layer, optimizer = make_layer("GRU"), keras.optimizers.Adam(0.01)
    results_of(layer)
    steps_of(optimizer)
    references = weakref.ref(layer), weakref.ref(optimizer)
    del layer, optimizer
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_callbacks_of_operations_see_each_one(count_calls):
    calls = count_calls(keras.optimizers.Adam, "update_step")
    headrace_tensorflow.set_fallback("warn")
    try:
        steps_of(keras.optimizers.Adam(0.01))
    finally:
        headrace_tensorflow.set_fallback("allow")
    assert all(calls)


ORDERS = {
    "keras first": "import keras, tensorflow as tf\ntf.zeros(1)\n",
    "the device first": "import tensorflow as tf\ntf.zeros(1)\nimport keras\n",
    "tf.keras": "import tensorflow as tf\ntf.zeros(1)\nkeras = tf.keras\n",
}
STEP = """
calls, update = [], keras.optimizers.SGD.update_step
keras.optimizers.SGD.update_step = lambda *args: calls.append(tf.executing_eagerly()) or update(*args)
optimizer, variable = keras.optimizers.SGD(1.0), keras.Variable([8.0])
for _ in range(5):
    optimizer.apply([tf.constant([1.0])], [variable])
assert calls == [True, True, False] and float(variable[0]) == 3, (calls, variable)
"""


@pytest.mark.parametrize("order", ORDERS)
def test_imports_in_any_order(order):
    done = subprocess.run([sys.executable, "-c", ORDERS[order] + STEP], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "headrace:" not in done.stderr, done.stderr


def test_another_keras_is_a_warning():
    code = "import keras.src.backend.tensorflow.optimizer as o\ndel o.TFOptimizer\nimport tensorflow as tf\n"
    code += "assert float(tf.zeros(1)[0] + 1) == 1\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr.count("eager steps of Keras take longer") == 1, done.stderr
