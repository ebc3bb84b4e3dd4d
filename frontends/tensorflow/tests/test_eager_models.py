"""Models of Keras that run as functions in eager inference (eager_keras.py): a program sees no difference."""

import functools
import gc
import threading
import warnings
import weakref

import numpy as np
import pytest
import tensorflow as tf

keras = pytest.importorskip("keras")
layers = keras.layers
CALLS = 5


@pytest.fixture
def count(count_calls):
    """Calls of a function of keras.ops: True for those of eager layers."""
    from keras.src import ops

    return lambda name="matmul": count_calls(ops, name)


@pytest.fixture
def products(count):
    return count()


def without_functions(run):
    tf.config.run_functions_eagerly(True)
    try:
        return run()
    finally:
        tf.config.run_functions_eagerly(False)


def numbers_of(shape, seed=1, dtype="float32"):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), dtype)


def perceptron(*more, units=(4, 2), inputs=3, **options):
    keras.utils.set_random_seed(3)
    dense = [layers.Dense(count, "relu", bias_initializer="normal", **options) for count in units]
    return keras.Sequential([layers.Input((inputs,)), *dense, *more])


def images():
    keras.utils.set_random_seed(4)
    x = inputs = layers.Input((8, 8, 3))
    for stride in (1, 2):
        y = layers.Conv2D(4, 3, stride, "same", use_bias=False)(x)
        y = layers.BatchNormalization(moving_mean_initializer="normal")(y)
        x = layers.Add()([y, layers.Conv2D(4, 1, stride)(x)])
        x = layers.Dropout(0.5)(layers.Activation("relu")(x))
    x = layers.ReLU()(layers.DepthwiseConv2D(3)(layers.ZeroPadding2D()(x)))
    x = layers.LayerNormalization()(layers.Concatenate()([x, layers.PReLU()(x)]))
    pooled = [layers.Flatten()(layers.MaxPooling2D()(x)), layers.GlobalAveragePooling2D()(x)]
    return keras.Model(inputs, layers.Dense(5, "softmax")(layers.Concatenate()(pooled)))


def check_calls(run, wanted_of=None):
    """The results of each of some calls are those without functions."""
    found, wanted = [run() for _ in range(CALLS)], without_functions(lambda: (wanted_of or run)())
    for result in found:
        for a, b in zip(tf.nest.flatten(result), tf.nest.flatten(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    return found


@pytest.mark.parametrize("training", [{}, {"training": False}, {"training": None}])
def test_a_model_is_traced_at_its_third_call(training, products):
    model, x = perceptron(), numbers_of((2, 3))
    products.clear()
    for _ in range(CALLS):
        model(x, **training)
    assert products == [True] * 4 + [False] * 2


def mobile_net():
    return keras.applications.MobileNet((32, 32, 3), 0.25, weights=None, classes=5)


@pytest.mark.parametrize("make", [images, mobile_net])
def test_convolutional_networks(make, count):
    model = make()
    x, convolutions = numbers_of((2, *model.inputs[0].shape[1:])), count("conv")
    check_calls(lambda: model(x))
    assert convolutions.index(False) == 2 * convolutions.count(False)


def test_more_dims_and_dtypes(products):
    model = perceptron()
    for shape in ((1, 3), (4, 3), (0, 3)):
        check_calls(lambda shape=shape: model(numbers_of(shape)))
    check_calls(lambda: model(numbers_of((2, 3), dtype="float64")))
    check_calls(lambda: model(tf.constant([[1, 2, 3]])))
    check_calls(lambda: model(np.ones((2, 3), np.float32)))
    assert products.count(False) == 2 * 5


def test_a_rank_that_keras_adjusts():
    model = keras.Sequential([layers.Input((3, 1)), layers.Flatten(), layers.Dense(2)])
    check_calls(lambda: model(numbers_of((2, 3))))


def test_shapes_that_do_not_fit():
    model, other = perceptron(), perceptron(layers.Reshape((2, 1)))
    for _ in range(CALLS):
        model(numbers_of((2, 3)))
        with pytest.raises(ValueError, match="incompatible with the layer"):
            model(numbers_of((2, 5)))
        other.layers[-1].target_shape = (3, 1)
        with pytest.raises(ValueError, match="Reshape"):
            other(numbers_of((2, 3)))
        other.layers[-1].target_shape = (2, 1)
        other(numbers_of((2, 3)))


# ---- weights


def test_weights_that_change(products):
    def run():
        model, x, results = perceptron(), numbers_of((2, 3)), []
        results += [model(x).numpy() for _ in range(CALLS)]
        model.set_weights([value + 1 for value in model.get_weights()])
        results.append(model(x).numpy())
        model.layers[0].kernel.assign_add(tf.ones((3, 4)))
        results.append(model(x).numpy())
        model.layers[1].bias.value.assign([1.0, 2.0])
        results.append(model(x).numpy())
        return results

    found = run()
    assert products.count(False) == 2
    np.testing.assert_allclose(found, without_functions(run), rtol=1e-5)
    assert len({value.tobytes() for value in found}) == 4


def test_weights_that_are_replaced():
    def run():
        model, x, results = perceptron(), numbers_of((2, 3)), []
        for i in range(4):
            if i > 0:
                dense = model.layers[0]
                dense._tracker.unlock()
                dense.bias = keras.Variable(np.full(4, i, np.float32))
            results += [model(x).numpy() for _ in range(CALLS)]
        return results

    np.testing.assert_allclose(run(), without_functions(run), rtol=1e-5)


def test_training_between_calls():
    def run():
        model, x, results = perceptron(), numbers_of((8, 3)), []
        model.compile("sgd", "mse")
        for _ in range(CALLS):
            model.train_on_batch(x, tf.zeros((8, 2)))
            results.append(model(x).numpy())
        return results

    np.testing.assert_allclose(run(), without_functions(run), rtol=1e-4, atol=1e-6)


def test_low_rank_weights():
    def run():
        model, x = perceptron(), numbers_of((2, 3))
        results = [model(x).numpy() for _ in range(CALLS)]
        model.layers[0].enable_lora(2, b_initializer="ones")
        results += [model(x).numpy() for _ in range(CALLS)]
        model.layers[0].lora_alpha = 7
        return results + [model(x).numpy() for _ in range(CALLS)]

    np.testing.assert_allclose(run(), without_functions(run), rtol=1e-5)


def test_variables_that_are_not_built():
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Dense(4), layers.BatchNormalization(), layers.Dense(2)])
    check_calls(lambda: model(numbers_of((2, 3))))
    assert len(model.weights) == 8


# ---- settings


def set_policy(model):
    model.layers[0].dtype_policy = "mixed_bfloat16"


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.layers[0], "activation", keras.activations.tanh),
        lambda model: setattr(model.layers[0], "activation", lambda x: x * 2),
        lambda model: setattr(model.layers[0], "bias", None),
        lambda model: setattr(model.layers[2], "epsilon", 10.0),
        lambda model: setattr(model.layers[2], "moving_mean", keras.Variable([1.0, 2.0])),
        lambda model: setattr(model.layers[0], "call", lambda x: x[:, :1] * tf.ones((1, 4))),
        lambda model: model.add(layers.ReLU(negative_slope=0.5, threshold=2.0)),
        lambda model: model.pop(),
        set_policy,
    ],
)
def test_settings_that_change(change):
    def run():
        model, x = perceptron(layers.BatchNormalization()), numbers_of((2, 3))
        for layer in model.layers:
            layer._tracker.unlock()
        results = [model(x) for _ in range(CALLS)]
        change(model)
        return [tf.cast(value, "float32").numpy() for value in results + [model(x) for _ in range(CALLS)]]

    found = run()
    for a, b in zip(found, without_functions(run), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert found[0].shape != found[-1].shape or not np.allclose(found[0], found[-1])


def test_policies_that_follow_each_other():
    """Objects of which the last one may be where the first one was."""
    model, x, names = perceptron(), numbers_of((2, 3)), ("float32", "mixed_bfloat16", "mixed_float16") * 3
    for name in names:
        model.layers[0].dtype_policy = keras.DTypePolicy(name)
        gc.collect()
        check_calls(lambda: tf.cast(model(x), "float32"))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float64"])
def test_policies(policy, products):
    model = perceptron(dtype=policy)
    results = check_calls(lambda: tf.cast(model(numbers_of((2, 3))), "float32"))
    assert model(numbers_of((2, 3))).dtype == keras.DTypePolicy(policy).compute_dtype
    assert False in products and len(results) == CALLS


def test_settings_of_keras(products):
    model, x = keras.Sequential([layers.Input((3,)), layers.UnitNormalization(), layers.Dense(2)]), numbers_of((2, 3))
    for epsilon in (1e-7, 10.0):
        keras.config.set_epsilon(epsilon)
        try:
            check_calls(lambda: model(x))
        finally:
            keras.config.set_epsilon(1e-7)
    assert products.count(False) == 2


# ---- training, dropout, random numbers


def test_training_stays_eager(products):
    model = perceptron(layers.Dropout(0.5), units=(4, 64))
    state = model.layers[-1].seed_generator.state
    before = state.numpy()
    results = [model(numbers_of((2, 3)), training=True).numpy() for _ in range(CALLS)]
    assert len({value.tobytes() for value in results}) == CALLS and all(products)
    state.assign(before)
    again = [model(numbers_of((2, 3)), training=True).numpy() for _ in range(CALLS)]
    np.testing.assert_allclose(results, again, rtol=1e-6)


def test_dropout_that_trains_in_inference(products):
    x = layers.Input((3,))
    model = keras.Model(x, layers.Dropout(0.5)(layers.Dense(64)(x), training=True))
    results = [model(tf.ones((2, 3))).numpy() for _ in range(CALLS)]
    assert len({value.tobytes() for value in results}) == CALLS and all(products[1:])


def test_statistics_of_batches():
    def run():
        model, x, results = images(), numbers_of((2, 8, 8, 3)), []
        for training in (False, True, False, False, False, True, None, None, None):
            for layer in model.layers:
                if isinstance(layer, layers.Dropout):
                    layer.rate = 0.0
            results.append(model(x, training=training).numpy())
        return results

    np.testing.assert_allclose(run(), without_functions(run), rtol=1e-3, atol=1e-5)


def test_a_model_in_a_model_that_trains(products):
    inner = perceptron(layers.Dropout(0.5), units=(4, 64))

    class Outer(keras.Model):
        def call(self, x, training=None):
            return inner(x)

    outer, x = Outer(), numbers_of((2, 3))
    for _ in range(CALLS):
        outer(x)
    results = [outer(x, training=True).numpy() for _ in range(CALLS)]
    assert len({value.tobytes() for value in results}) == CALLS


def test_layers_behind_a_model(products):
    """They train as the last layer of the model has settled it."""
    inner, trains = perceptron(layers.Dropout(0.5)), []

    class Last(layers.Layer):
        def call(self, x, training="open"):
            trains.append(training)
            return x

    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = Last()

        def call(self, x, training=None):
            return self.last(inner(x))

    outer, x = Outer(), numbers_of((2, 3))
    outer(x)
    for training in (None, False):
        trains.clear()
        check_calls(lambda training=training: outer(x, training=training))
        assert trains == [False] * (CALLS + 1)
    assert False in products


# ---- code of the program


def test_layers_of_the_program_stay_eager(products):
    calls = []

    class Mine(layers.Layer):
        def call(self, x):
            calls.append(float(tf.reduce_sum(x)))
            return x * len(calls)

        def compute_output_shape(self, shape):
            return shape

    class Inherits(layers.Dense):
        pass

    for layer in (Mine(), layers.Lambda(lambda x: x * len(calls)), Inherits(2)):
        model = perceptron(layer)
        products.clear()
        for _ in range(CALLS):
            calls.append(0)
            model(numbers_of((2, 3)))
        assert all(products)
    assert len([call for call in calls if call != 0]) >= CALLS - 1


def test_models_of_the_program_stay_eager(products):
    seen = []

    class Mine(keras.Model):
        def call(self, inputs, training=None, mask=None):
            seen.append(inputs.numpy())
            return super().call(inputs, training=training, mask=mask)

    x = layers.Input((3,))
    model = Mine(x, layers.Dense(2)(x))
    for _ in range(CALLS):
        model(numbers_of((2, 3)))
    assert len(seen) == CALLS and all(products)


def test_activations_of_the_program_stay_eager(products):
    calls = []

    def activation(x):
        calls.append(x.numpy())
        return x

    @functools.wraps(keras.activations.relu)
    def wrapped(x):
        calls.append(x.numpy())
        return keras.activations.relu(x)

    for function in (activation, wrapped):
        model = perceptron()
        model.layers[0].activation = function
        calls.clear()
        for _ in range(CALLS):
            model(numbers_of((2, 3)))
        assert len(calls) == CALLS
    model = perceptron(layers.Activation(layers.LeakyReLU(0.5)))
    for slope in (0.5, 0.0):
        model.layers[-1].activation.negative_slope = slope
        check_calls(lambda: model(numbers_of((2, 3))))
    assert all(products)


def test_failures_of_the_program():
    calls = []

    def activation(x):
        calls.append(0)
        raise LookupError("of the program")

    model = perceptron()
    model.layers[0].activation = activation
    for _ in range(CALLS):
        with pytest.raises(LookupError, match="of the program"):
            model(numbers_of((2, 3)))
    assert len(calls) == CALLS


@pytest.mark.parametrize("name", ["call", "__call__", "compute_mask", "activation"])
def test_methods_that_are_replaced(name, monkeypatch, products):
    kind = {"__call__": layers.Layer, "compute_mask": layers.Layer}.get(name, layers.Dense)
    model, calls = perceptron(), []
    for layer in model.layers if name == "activation" else ():
        del layer.__dict__["activation"]
    method = getattr(kind, name, keras.activations.relu)

    def replaced(*args, **kwds):
        calls.append(0)
        return method(*args, **kwds)

    if name == "activation":
        replaced = property(lambda self: lambda x: calls.append(0) or x)
        monkeypatch.setattr(kind, name, replaced, raising=False)
    else:
        for _ in range(CALLS if name != "compute_mask" else 0):
            model(numbers_of((2, 3)))
        monkeypatch.setattr(kind, name, functools.wraps(method)(replaced))
    products.clear()
    for _ in range(CALLS):
        model(numbers_of((2, 3)))
    assert all(products) and len(products) == 2 * CALLS
    assert name == "compute_mask" or len(calls) >= 2 * CALLS


def test_regularizers_of_results_stay_eager():
    model = perceptron(activity_regularizer=keras.regularizers.L2(1.0))
    losses = [(model(numbers_of((2, 3))), float(sum(model.losses)))[1] for _ in range(CALLS)]
    assert losses[0] > 0 and losses == [losses[0]] * CALLS


def test_numbers_in_a_model_stay_eager():
    factors, x = np.ones(3, np.float32), layers.Input((3,))
    model = keras.Model(x, layers.Dense(2)(x * factors))
    first = [model(tf.ones((1, 3))).numpy() for _ in range(CALLS)]
    factors[:] = 2
    np.testing.assert_allclose(model(tf.ones((1, 3))), 2 * first[-1], rtol=1e-6)


# ---- masks


def test_masks():
    from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

    def run():
        model, x, masked = keras.Sequential([layers.Input((4, 3)), layers.Dense(2), layers.ReLU()]), [], []
        model.set_weights([np.ones((3, 2)), np.ones(2)])
        values = numbers_of((2, 4, 3))
        for i in range(2 * CALLS):
            value = tf.identity(values)
            if i % 2 == 1:
                set_keras_mask(value, tf.constant([[True, True, False, False]] * 2))
            x.append(model(value))
            masked.append(get_keras_mask(x[-1]) is not None)
        x += [model(values, mask=tf.ones((2, 4), bool)) for _ in range(CALLS)]
        return [value.numpy() for value in x], masked, get_keras_mask(x[-1]) is not None

    found, wanted = run(), without_functions(run)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    assert found[1:] == wanted[1:] and found[1] == [False, True] * CALLS


def test_layers_that_make_masks():
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Embedding(5, 3, mask_zero=True), layers.LSTM(4), layers.Dense(2)])
    check_calls(lambda: model(tf.constant([[1, 2, 0], [3, 0, 0]])))
    model = keras.Sequential([layers.Input((3, 2)), layers.Masking(), layers.GlobalAveragePooling1D()])
    x = numbers_of((2, 3, 2)) * np.float32([[[1], [1], [0]]] * 2)
    check_calls(lambda: model(x))


# ---- tapes


def test_calls_below_a_tape_stay_eager(products):
    model, x = perceptron(), numbers_of((2, 3))

    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(model(x) ** 2)
        return tape.gradient(total, [x, *model.trainable_variables])

    check_calls(gradients)
    assert all(products)

    def tangents():
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
            result = model(x)
        return accumulator.jvp(result)

    check_calls(tangents)
    assert all(products)

    def stopped():
        with tf.GradientTape() as tape, tape.stop_recording():
            return model(x)

    check_calls(stopped)
    assert products.count(False) == 2


def test_a_tape_after_calls():
    model, x = perceptron(), numbers_of((2, 3))
    for _ in range(CALLS):
        model(x)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(model(x))
    assert all(grad is not None for grad in tape.gradient(total, model.trainable_variables))


# ---- modes


def test_functions_that_run_eagerly(products):
    model = perceptron()
    without_functions(lambda: [model(numbers_of((2, 3))) for _ in range(CALLS)])
    assert all(products)


def test_numerics_that_are_checked():
    model = perceptron()
    for _ in range(CALLS):
        model(numbers_of((2, 3)))
    tf.debugging.enable_check_numerics()
    try:
        with pytest.raises(tf.errors.InvalidArgumentError, match="MatMul"):
            model(tf.fill((2, 3), np.float32("nan")))
    finally:
        tf.debugging.disable_check_numerics()
    assert np.isnan(model(tf.fill((2, 3), np.float32("nan"))).numpy()).all()


def test_another_device(products):
    model, x = perceptron(), numbers_of((2, 3))
    with tf.device("CPU"):
        for _ in range(CALLS):
            assert "CPU" in tf.identity(model(x)).device
        host = tf.identity(x)
    for _ in range(CALLS):
        model(host)
    assert all(products)


def test_calls_in_functions_and_scopes():
    model, x = perceptron(), numbers_of((2, 3))
    wanted = [model(x).numpy() for _ in range(CALLS)][-1]
    np.testing.assert_allclose(tf.function(lambda x: model(x))(x), wanted, rtol=1e-6)
    variables = [tf.constant(2 * v.numpy()) for v in model.trainable_variables]
    found, _ = model.stateless_call(variables, [], x)
    assert not np.allclose(found, wanted)
    assert model(layers.Input((3,))).shape == (None, 2)


def test_evaluation_without_functions(products):
    model, x = perceptron(), np.ones((8, 3), np.float32)
    model.compile("sgd", "mse", run_eagerly=True)
    results = [model.predict(x, batch_size=2, verbose=0) for _ in range(2)]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


# ---- structures


def test_inputs_and_outputs(products):
    def make():
        keras.utils.set_random_seed(3)
        a, b = layers.Input((3,), name="a"), layers.Input((2,), name="b")
        x, y = layers.Dense(2)(a), layers.Dense(2)(b)
        return a, b, x, y, layers.Add()([x, y])

    a, b, x, y, both = make()
    values = numbers_of((2, 3)), numbers_of((2, 2))
    model = keras.Model([a, b], [x, both])
    for inputs in (list(values), values, {"a": values[0], "b": values[1]}):
        results = check_calls(lambda inputs=inputs: model(inputs))
        assert all(type(result) is list for result in results)
    assert products.count(False) == 2
    model = keras.Model((a, b), {"z": x, "y": both})
    assert all(list(result) == ["z", "y"] for result in check_calls(lambda: model(values)))
    model = keras.Model({"a": a, "b": b}, both)
    check_calls(lambda: model({"a": values[0], "b": values[1]}))


def test_results_that_are_inputs():
    x = layers.Input((3,))
    y, value = layers.Dense(2)(x), numbers_of((2, 3))
    model = keras.Model(x, [layers.Dropout(0.5)(x), y, y])
    for _ in range(CALLS):
        results = model(value)
        assert results[0] is value and results[1] is results[2]


def test_warnings_of_each_call():
    a, b = layers.Input((3,)), layers.Input((3,))
    model, x = keras.Model({"a": a, "b": b}, layers.Add()([a, b])), numbers_of((2, 3))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(CALLS):
            model([x, x])
    assert len([w for w in seen if "structure of `inputs`" in str(w.message)]) == CALLS


def test_models_in_models(products):
    def run():
        inner = perceptron()
        x = layers.Input((3,))
        model = keras.Model(x, layers.Dense(1, kernel_initializer="ones")(inner(x)))
        results = [model(numbers_of((2, 3))).numpy() for _ in range(CALLS)]
        inner.layers[0].activation = keras.activations.tanh
        results += [model(numbers_of((2, 3))).numpy() for _ in range(CALLS)]
        inner.layers[0].kernel.assign(inner.layers[0].kernel * 2)
        return results + [model(numbers_of((2, 3))).numpy()]

    found = run()
    np.testing.assert_allclose(found, without_functions(run), rtol=1e-5)
    assert products.count(False) == 2 * 3 and len({value.tobytes() for value in found}) == 3


def test_threads():
    model, x, found = perceptron(), numbers_of((2, 3)), []
    wanted = without_functions(lambda: model(x).numpy())
    threads = [threading.Thread(target=lambda: found.extend(model(x).numpy() for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    np.testing.assert_allclose(found, [wanted] * 80, rtol=1e-5)


def test_models_are_released():
    model = perceptron()
    for _ in range(CALLS):
        model(numbers_of((2, 3)))
    references = [weakref.ref(thing) for thing in (model, model._functional, *model.layers)]
    del model
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)
