"""Eager steps of Keras: its optimizers' updates, its recurrent layers' loops and the results of its models run as
functions.

An update of Adam is 37 calls of Python code for each variable, a step of an LSTM 20, a dense layer 60, and each takes
longer than its work. They depend on nothing but tensors, variables and settings, which find the function that the third
such call traces.

Optimizers, schedules, layers, cells and activations of the program itself, which may do more than to compute, stay
eager. The plug-in runs this file when it creates a device, as jit.py.
"""

import contextlib
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

CALLS_BEFORE = 2  # a call is traced
KEYS_MAX = 64  # of one optimizer or layer
VALUES = ("DTypePolicy", "FloatDTypePolicy", "InputSpec")  # classes of Keras that are compared by their settings
PLAIN_LAYERS = ("activations", "convolutional", "merging", "normalization", "pooling", "regularization", "reshaping")
PLAIN_LAYERS += ("core.dense", "core.einsum_dense", "core.identity", "core.input_layer")


def shorten_keras(devices: tuple) -> None:
    """Changes Keras, which TensorFlow has imported if it is there, for steps while one of these is the device."""
    if "keras" in sys.modules:
        change_keras(devices)


@functools.lru_cache(1024)
def form_of(kind: type) -> Callable:
    """The form of values of a class in which they are compared."""
    if issubclass(kind, (bool, int, float, complex, str, bytes, type(None), np.generic)):
        return lambda value: (kind, value)
    if issubclass(kind, np.ndarray):
        return lambda value: (value.dtype.str, value.shape, value.tobytes())
    if issubclass(kind, (list, tuple)):
        return lambda value: tuple([form_of(type(item))(item) for item in value])
    if issubclass(kind, (set, frozenset)):
        return lambda value: frozenset([form_of(type(item))(item) for item in value])
    if issubclass(kind, dict):
        return lambda value: (tuple(value), tuple([form_of(type(item))(item) for item in value.values()]))
    return settings_of if kind.__name__ in VALUES else id  # the function holds it, if it is of use


def settings_of(thing: Any) -> Any:
    """The settings that a program may change between calls. Equal ones make the same function: numbers, names and lists
    of them are compared by value."""
    return form_of(dict)(vars(thing))


def is_of_keras(*things: Any) -> bool:
    return all(getattr(thing, "__module__", "").startswith("keras.src.") for thing in things)


def is_function(value: Any) -> bool:
    """True for functions of Keras' own code: not for the program's, which may wrap one of Keras, and not for layers,
    whose settings may change."""
    return type(value) is types.FunctionType and value.__globals__["__name__"].startswith("keras.src.")


def change_keras(devices: tuple) -> None:
    import keras

    if keras.config.backend() != "tensorflow":
        return
    functions = Functions(devices)
    change_optimizers(functions)
    change_loops(functions)
    change_models(functions)


class Functions:
    """The functions of owners: of optimizers, recurrent layers and models."""

    def __init__(self, devices: tuple) -> None:
        import tensorflow as tf
        from keras.src.backend.common.stateless_scope import in_stateless_scope
        from tensorflow.python.eager import context, record
        from tensorflow.python.framework import ops
        from tensorflow.python.ops.resource_variable_ops import ResourceVariable

        self.tf, self.context, self.in_stateless_scope = tf, context.context, in_stateless_scope
        self.may_record = record.could_possibly_record
        self.devices = devices
        self.tensor, self.variable = ops.EagerTensor, ResourceVariable
        self.known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # {key: calls so far or function}

    def are_usual(self) -> bool:
        """False if a call does more than its operations."""
        ctx = self.context()
        return (
            ctx.executing_eagerly()
            and ctx.device_name in self.devices
            and not ctx.op_callbacks
            and not self.tf.distribute.has_strategy()
            and not self.tf.config.functions_run_eagerly()
            and not self.in_stateless_scope()
        )

    def names_of(self, variables: Any) -> Any:
        """Names that no other variables have; None: one is not a plain one of the device."""
        values = [getattr(variable, "_value", variable) for variable in variables]
        are_ours = all(type(value) is self.variable and "HEADRACE" in value.device for value in values)
        return tuple(value._unique_id for value in values) if are_ours else None

    def kinds_of(self, tensors: Any) -> Any:
        """None: one is no tensor."""
        are_tensors = all(type(value) is self.tensor for value in tensors)
        return tuple((value._datatype_enum(), value._shape_tuple()) for value in tensors) if are_tensors else None

    def find(self, owner: Any, key: Any, tensors: list, body: Callable) -> Any:
        """The function of the body, from the third call with a key on. None: the body runs eagerly."""
        known = self.known.setdefault(owner, {})
        found = known.get(key, 0)
        if type(found) is int:
            if len(known) >= KEYS_MAX:
                known.clear()
            known[key] = found + 1 if found < CALLS_BEFORE else None
            if found < CALLS_BEFORE:
                return None
            specs = [self.tf.TensorSpec(value.shape, value.dtype) for value in tensors]
            known[key] = found = self.tf.function(body, autograph=False).get_concrete_function(*specs)
        return found


def change_optimizers(functions: Functions) -> None:
    from keras.src.backend.tensorflow.optimizer import TFOptimizer

    apply = TFOptimizer._backend_apply_gradients

    def apply_as_function(self: Any, grads: Any, trainable_variables: Any) -> Any:
        rate = self._learning_rate
        is_ours = functions.are_usual() and not functions.may_record() and is_of_keras(type(self), type(rate))
        kinds = functions.kinds_of(grads) if is_ours else None
        names = functions.names_of([*trainable_variables, *self._variables]) if kinds else None
        if not names:
            return apply(self, grads, trainable_variables)
        key = kinds, names, settings_of(self), settings_of(rate)
        function = functions.find(self, key, grads, lambda *grads: apply(self, list(grads), trainable_variables))
        if function is None:
            apply(self, grads, trainable_variables)
        else:
            function(*grads)

    TFOptimizer._backend_apply_gradients = apply_as_function


def change_loops(functions: Functions) -> None:
    """Of recurrent layers."""
    from keras.src.backend.common.variables import get_autocast_scope
    from keras.src.layers.rnn import gru, lstm, rnn, simple_rnn

    def functions_of(cell: Any) -> tuple:
        return cell.activation, getattr(cell, "recurrent_activation", cell.activation)

    def is_plain(cell: Any, state: Any, mask: Any) -> bool:
        """True if a loop computes its results from tensors and variables alone."""
        return (
            type(cell) in (lstm.LSTMCell, gru.GRUCell, simple_rnn.SimpleRNNCell)
            and type(state) is list
            and (mask is None or type(mask) is functions.tensor)
            and cell.dropout == cell.recurrent_dropout == 0
            and cell.activity_regularizer is None
            and all(is_function(value) for value in functions_of(cell))
        )

    def change_loop(layer: Any, *others: Any) -> None:
        """Of layers of these classes."""
        loop, layers = layer.inner_loop, (layer, *others)

        def loop_as_function(self: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> Any:
            is_ours = type(self) in layers and isinstance(training, (bool, int, type(None))) and functions.are_usual()
            is_ours = is_ours and is_plain(self.cell, initial_state, mask)
            inputs = [sequences, *initial_state, *([] if mask is None else [mask])] if is_ours else []
            kinds = functions.kinds_of(inputs)
            names = functions.names_of(self.cell.variables) if kinds else None
            if not names:
                return loop(self, sequences, initial_state, mask, training)
            cell, scope = self.cell, get_autocast_scope()
            policies = self.compute_dtype, cell.compute_dtype, scope and scope.dtype
            key = kinds, names, training, functions_of(cell), policies, settings_of(self), settings_of(cell)

            def body(sequences: Any, *rest: Any) -> Any:
                states = list(rest[: len(initial_state)])
                return loop(self, sequences, states, None if mask is None else rest[-1], training)

            return (functions.find(self, key, inputs, body) or body)(*inputs)

        layer.inner_loop = loop_as_function

    change_loop(rnn.RNN, simple_rnn.SimpleRNN)
    change_loop(lstm.LSTM)
    change_loop(gru.GRU)


def plain_layers() -> dict:
    """Keras' layers whose results in inference follow from tensors, variables and settings alone, with their calls."""
    import keras

    modules = tuple(f"keras.src.layers.{name}." for name in PLAIN_LAYERS)
    classes = [value for value in vars(keras.layers).values() if isinstance(value, type)]
    found = [c for c in classes if f"{c.__module__}.".startswith(modules) and not issubclass(c, keras.layers.Wrapper)]
    return {c: (c.__call__, c.call) for c in found if is_function(c.__call__) and is_function(c.call)}


def is_unchanged(kind: type) -> bool:
    """False if the program has replaced a method of the class."""
    methods = [value for base in kind.__mro__ for value in vars(base).values() if type(value) is types.FunctionType]
    return all(method.__globals__["__name__"].startswith(("keras.src.", "tensorflow.")) for method in methods)


def change_models(functions: Functions) -> None:
    """Of inference without tapes: models of inputs and outputs, and Sequential ones."""
    import keras
    from keras.src import tree
    from keras.src.backend.common.global_state import get_global_attribute
    from keras.src.backend.common.masking import get_keras_mask
    from keras.src.backend.common.variables import get_autocast_scope
    from keras.src.distribution.distribution_lib import distribution
    from keras.src.models.functional import Functional
    from keras.src.models.sequential import Sequential
    from tensorflow.python.framework import ops

    call, layers, models = Functional.call, plain_layers(), (Functional, Sequential)

    def parts_of(model: Any) -> Iterator:
        """The model, its layers and operations, and those of models in it."""
        yield model
        for part in model._operations if type(model) is Functional else [model._functional]:
            yield from parts_of(part) if type(part) in models else [part]

    def is_plain(part: Any) -> bool:
        """True if it computes its results from tensors, variables and settings alone."""
        kind = type(part)
        replaced = [name for name, value in vars(part).items() if callable(value) and hasattr(kind, name)]
        activation = getattr(part, "activation", None)
        nodes = [node for nodes in part._nodes_by_depth.values() for node in nodes] if kind is Functional else []
        return (
            (activation is None or is_function(activation))
            and part.built
            and part.activity_regularizer is None
            and part._remat_mode is None
            and type(part.dtype_policy).__name__ in VALUES
            and set(replaced) <= {"build", "quantize"}
            and (kind in models or (not part._layers and is_unchanged(kind)))
            and all(map(is_plain_node, nodes))
        )

    def is_plain_node(node: Any) -> bool:
        """False for numbers that the program may change, masks, and layers that train."""
        literals = (keras.KerasTensor, bool, int, float, str, type(None))
        arguments = node.arguments
        are_literals = all(isinstance(value, literals) for value in tree.flatten(arguments.args))
        return are_literals and all(value is None or value is False for value in arguments.kwargs.values())

    def tensors_of(model: Any, inputs: Any) -> list:
        """Empty: the inputs are not as the model's, on the device and without masks."""
        wanted, values = model._inputs_struct, inputs if type(inputs) in (list, tuple) else [inputs]
        is_single = type(inputs) is functions.tensor and isinstance(wanted, keras.KerasTensor)
        is_list = isinstance(wanted, (list, tuple)) and all(isinstance(value, keras.KerasTensor) for value in wanted)
        is_list = is_list and len(wanted) == len(values) and (type(wanted) is list or inputs is values)
        if not is_single and not is_list:
            return []
        are_ours = all(type(value) is functions.tensor and "HEADRACE" in value.device for value in values)
        return list(values) if are_ours and all(get_keras_mask(value) is None for value in values) else []

    def has_none(mask: Any) -> bool:
        return mask is None or (type(mask) in (list, tuple) and all(value is None for value in mask))

    def is_inference(model: Any) -> bool:
        """In a call of the model, or of one that has settled it that layers do not train."""
        ctx = get_global_attribute("current_call_ctx")
        if ctx is None or not vars(ctx).keys() <= {"entry_layer", "training"}:
            return False
        entry, of_call = ctx.entry_layer, ctx.get_value("training")
        is_alone = entry is model or (type(entry) is Sequential and entry._functional is model)
        return of_call is False or (of_call is None and is_alone)

    def function_of(model: Any, tensors: list, training: Any) -> Any:
        """None: the call is eager."""
        parts = list(parts_of(model))
        if not tensors or not all(layers.get(type(part)) == (type(part).__call__, type(part).call) for part in parts):
            return None
        variables = [v for part in parts for v in part._trainable_variables + part._non_trainable_variables]
        names = functions.names_of(variables)
        if names is None:
            return None
        config, scope, casts = keras.config, get_autocast_scope(), ops.get_dtype_conversion_mode()
        of_all = config.floatx(), config.epsilon(), config.image_data_format(), scope and scope.dtype, casts
        key = functions.kinds_of(tensors), names, training, of_all, tuple([(type(p), settings_of(p)) for p in parts])

        def body(*tensors: Any) -> Any:
            if not all(map(is_plain, parts_of(model))):
                raise NotImplementedError
            results = call(model, list(tensors) if len(tensors) > 1 else tensors[0], training)
            values = [*tensors, *(results if type(results) in (list, tuple) else [results])]
            if len(set(map(id, values))) < len(values):  # a function makes results of their own
                raise NotImplementedError
            return results

        return functions.find(model, key, tensors, body)

    @functools.wraps(call)
    def call_as_function(self: Any, inputs: Any, training: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        is_ours = type(self) is Functional and (training is None or training is False) and has_none(mask) and not kwargs
        is_ours = is_ours and functions.are_usual() and not functions.may_record() and distribution() is None
        if is_ours and is_inference(self):
            with contextlib.suppress(Exception):  # of a layer, which the eager call names
                tensors = tensors_of(self, inputs)
                function = function_of(self, tensors, training)
                if function is not None:
                    return function(*tensors)
        return call(self, inputs, training, mask, **kwargs)

    Functional.call = call_as_function
    layers |= {kind: (kind.__call__, kind.call) for kind in models}
