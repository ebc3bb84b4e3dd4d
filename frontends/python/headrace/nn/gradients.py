"""Gradients with respect to the trainable parameters of a module."""

import contextlib
import functools

from headrace import transforms
from headrace._arrays import Array
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


def _add_places(module, path, entries, tree, places):
    """Puts the trainable parameters of entries, those of a module or of a dict or list in it, into an empty tree, with
    None for arrays, whose places in both are appended: (entries, key, array, tree, key)."""
    for key, value in entries.items() if isinstance(entries, dict) else enumerate(entries):
        name = key if path is None else f"{path}.{key}"
        is_trainable = isinstance(value, (Array, dict, list)) and name not in module._no_grad and name[0:1] != "_"
        if type(value) is Array and is_trainable:
            child = None
            places.append((entries, key, value, tree, key))
        elif is_trainable:
            child = [] if isinstance(value, list) else {}
            owner, inner = (value, None) if isinstance(value, Module) else (module, name)
            _add_places(owner, inner, value, child, places)
        elif path is None:
            continue
        else:
            child = {}
        if isinstance(tree, dict):
            tree[key] = child
        else:
            tree.append(child)


def _places(model):
    """The tree of trainable parameters, with None for arrays, and their places; None if the model's class has another
    idea of them, or hr.value_and_grad is to refuse them."""
    kind = type(model)
    is_usual = (
        isinstance(model, Module)
        and kind.trainable_parameters is Module.trainable_parameters
        and kind.filter_and_map is Module.filter_and_map
        and kind.trainable_parameter_filter is Module.trainable_parameter_filter
        and kind.update is Module.update
    )
    if not is_usual:
        return None
    tree, places = {}, []
    _add_places(model, None, model, tree, places)
    is_usual = bool(places) and all(transforms._is_floating(x) for _, _, x, _, _ in places)
    return (tree, places) if is_usual else None


def _set(places, arrays):
    for (entries, key, _, _, _), x in zip(places, arrays):
        entries[key] = x


def _call_with(places, fn, args, kwargs):
    """A function that calls fn while the model has the given parameters."""

    def call(arrays):
        _set(places, arrays)
        try:
            return fn(*args, **kwargs)
        finally:
            _set(places, [x for _, _, x, _, _ in places])

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
        tree, places = found
        value, gradients = transforms._value_and_gradients(
            "value_and_grad", _call_with(places, fn, args, kwargs), [x for _, _, x, _, _ in places]
        )
        for (_, _, _, target, key), gradient in zip(places, gradients):
            target[key] = gradient
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
