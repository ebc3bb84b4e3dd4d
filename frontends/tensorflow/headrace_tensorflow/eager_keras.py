"""Eager steps of Keras: its optimizers' updates and its recurrent layers' loops run as functions.

An update of Adam is 37 calls of Python code for each variable, a step of an LSTM 20, and each takes longer than its
work. They depend on nothing but tensors, variables and settings, which find the function that the third such call
traces.

Optimizers, schedules, cells and activations of the program itself, which may do more than to compute, stay eager. The
plug-in runs this file when it creates a device, as jit.py.
"""

import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

CALLS_BEFORE = 2  # a call is traced
KEYS_MAX = 64  # of one optimizer or layer
DEVICES = ("", None, "/job:localhost/replica:0/task:0/device:HEADRACE:0")


def shorten_keras() -> None:
    """Changes Keras, which TensorFlow has imported if it is there."""
    if "keras" in sys.modules:
        change_keras()


def setting_of(value: Any) -> Any:
    """A value of which equal ones make the same function: numbers, names and lists of them are compared by value."""
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None), np.generic)):
        return type(value), value
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, (list, tuple)):
        return tuple(map(setting_of, value))
    if isinstance(value, (set, frozenset)):
        return frozenset(map(setting_of, value))
    if isinstance(value, dict):
        return tuple((name, setting_of(item)) for name, item in value.items())
    return id(value)  # the function holds it, if it is of use


def settings_of(thing: Any) -> Any:
    """The settings that a program may change between calls."""
    return setting_of(vars(thing))


def change_keras() -> None:
    import keras

    if keras.config.backend() != "tensorflow":
        return
    import tensorflow as tf
    from keras.src.backend.common.stateless_scope import in_stateless_scope
    from keras.src.backend.common.variables import get_autocast_scope
    from keras.src.backend.tensorflow.optimizer import TFOptimizer
    from keras.src.layers.rnn import gru, lstm, rnn, simple_rnn
    from tensorflow.python.eager import context, record
    from tensorflow.python.framework import ops
    from tensorflow.python.ops.resource_variable_ops import ResourceVariable

    tensor = ops.EagerTensor
    functions: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # of an owner: {key: calls so far or function}

    def is_usual() -> bool:
        """False if a call does more than its operations."""
        ctx = context.context()
        return (
            ctx.executing_eagerly()
            and ctx.device_name in DEVICES
            and not ctx.op_callbacks
            and not tf.distribute.has_strategy()
            and not tf.config.functions_run_eagerly()
            and not in_stateless_scope()
        )

    def names_of(variables: Any) -> Any:
        """Names that no other variables have; None: one is not a plain one of the device."""
        values = [getattr(variable, "_value", variable) for variable in variables]
        are_ours = all(type(value) is ResourceVariable and "HEADRACE" in value.device for value in values)
        return tuple(value._unique_id for value in values) if are_ours else None

    def kinds_of(tensors: Any) -> Any:
        """None: one is no tensor."""
        are_tensors = all(type(value) is tensor for value in tensors)
        return tuple((value._datatype_enum(), value._shape_tuple()) for value in tensors) if are_tensors else None

    def run(owner: Any, key: Any, tensors: list, body: Callable) -> Any:
        """The body's results for tensors, by a function from the third call with a key on."""
        known = functions.setdefault(owner, {})
        found = known.get(key, 0)
        if isinstance(found, int):
            if len(known) >= KEYS_MAX:
                known.clear()
            known[key] = found + 1
            if found < CALLS_BEFORE:
                return body(*tensors)
            specs = [tf.TensorSpec(value.shape, value.dtype) for value in tensors]
            known[key] = found = tf.function(body, autograph=False).get_concrete_function(*specs)
        return found(*tensors)

    def is_of_keras(*things: Any) -> bool:
        return all(getattr(thing, "__module__", "").startswith("keras.src.") for thing in things)

    apply = TFOptimizer._backend_apply_gradients

    def apply_as_function(self: Any, grads: Any, trainable_variables: Any) -> Any:
        rate = self._learning_rate
        is_ours = is_usual() and not record.could_possibly_record() and is_of_keras(type(self), type(rate))
        kinds = kinds_of(grads) if is_ours else None
        names = names_of([*trainable_variables, *self._variables]) if kinds else None
        if not names:
            return apply(self, grads, trainable_variables)
        key = kinds, names, settings_of(self), settings_of(rate)
        run(self, key, list(grads), lambda *grads: apply(self, list(grads), trainable_variables))

    TFOptimizer._backend_apply_gradients = apply_as_function

    def functions_of(cell: Any) -> tuple:
        return cell.activation, getattr(cell, "recurrent_activation", cell.activation)

    def is_function(value: Any) -> bool:
        """False for activations of the program, and for layers, whose settings may change."""
        return type(value) is types.FunctionType and is_of_keras(value)

    def is_plain(cell: Any, state: Any, mask: Any) -> bool:
        """True if a loop computes its results from tensors and variables alone."""
        return (
            type(cell) in (lstm.LSTMCell, gru.GRUCell, simple_rnn.SimpleRNNCell)
            and type(state) is list
            and (mask is None or type(mask) is tensor)
            and cell.dropout == cell.recurrent_dropout == 0
            and cell.activity_regularizer is None
            and all(is_function(value) for value in functions_of(cell))
        )

    def change_loop(layer: Any, *others: Any) -> None:
        """Of layers of these classes."""
        loop, layers = layer.inner_loop, (layer, *others)

        def loop_as_function(self: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False) -> Any:
            is_ours = type(self) in layers and isinstance(training, (bool, int, type(None))) and is_usual()
            is_ours = is_ours and is_plain(self.cell, initial_state, mask)
            inputs = [sequences, *initial_state, *([] if mask is None else [mask])] if is_ours else []
            kinds = kinds_of(inputs)
            names = names_of(self.cell.variables) if kinds else None
            if not names:
                return loop(self, sequences, initial_state, mask, training)
            cell, scope = self.cell, get_autocast_scope()
            policies = self.compute_dtype, cell.compute_dtype, scope and scope.dtype
            key = kinds, names, training, functions_of(cell), policies, settings_of(self), settings_of(cell)

            def body(sequences: Any, *rest: Any) -> Any:
                states = list(rest[: len(initial_state)])
                return loop(self, sequences, states, None if mask is None else rest[-1], training)

            return run(self, key, inputs, body)

        layer.inner_loop = loop_as_function

    change_loop(rnn.RNN, simple_rnn.SimpleRNN)
    change_loop(lstm.LSTM)
    change_loop(gru.GRU)
