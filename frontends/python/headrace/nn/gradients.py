"""Gradients with respect to the trainable parameters of a module."""

import contextlib
import functools

from headrace import _arrays, transforms
from headrace.nn.module import Module

__all__ = ["checkpoint", "value_and_grad"]


@contextlib.contextmanager
def _parameters_of(module, parameters):
    """The module has these parameters inside of the block."""
    old = module.trainable_parameters()
    module.update(parameters)
    try:
        yield
    finally:
        module.update(old)


# ---- places of parameters: what filter_and_map, update and tree_map do, in one walk


def _places(model):
    """The tree of trainable parameters, with None for arrays, and lists: owners, keys and arrays of these, and owners
    and keys in the tree. None if the model's class has another idea of them, or hr.value_and_grad is to refuse them."""
    kind = type(model)
    is_usual = (
        isinstance(model, Module)
        and kind.trainable_parameters is Module.trainable_parameters
        and kind.filter_and_map is Module.filter_and_map
        and kind.trainable_parameter_filter is Module.trainable_parameter_filter
        and kind.update is Module.update
    )
    return _arrays._parameters(model, Module) if is_usual else None


def _call_with(owners, keys, old, fn, args, kwargs):
    """A function that calls fn while these places have the given arrays."""

    def call(arrays):
        _arrays._store(owners, keys, arrays)
        try:
            return fn(*args, **kwargs)
        finally:
            _arrays._store(owners, keys, old)

    return call


def value_and_grad(model, fn):
    """A function that returns fn's result and the tree of gradients of it, or of its first part if it is a tuple or
    list, with respect to the model's trainable parameters.

        step = nn.value_and_grad(model, lambda x, y: nn.losses.mse_loss(model(x), y))
        loss, gradients = step(x, y)
    """

    def call(parameters, args, kwargs):
        with _parameters_of(model, parameters):
            return fn(*args, **kwargs)

    transformed = transforms.value_and_grad(call)

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        found = _places(model)
        if found is None:
            return transformed(model.trainable_parameters(), args, kwargs)
        tree, owners, keys, arrays, targets, target_keys = found
        call_with = _call_with(owners, keys, arrays, fn, args, kwargs)
        value, gradients = transforms._value_and_gradients("value_and_grad", call_with, arrays)
        _arrays._store(targets, target_keys, gradients)
        return value, tree

    return wrapped


def checkpoint(module, fn=None):
    """fn, by default the module, as a function whose gradients keep no values between its inputs and outputs: it runs
    again for them. Inputs are the arguments and the module's trainable parameters."""
    fn = module if fn is None else fn

    def call(parameters, args, kwargs):
        with _parameters_of(module, parameters):
            return fn(*args, **kwargs)

    checkpointed = transforms.checkpoint(call)

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        return checkpointed(module.trainable_parameters(), args, kwargs)

    return wrapped
