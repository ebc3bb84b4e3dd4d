"""Gradients with respect to the trainable parameters of a module."""

import contextlib
import functools

from headrace import transforms

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
        return transformed(model.trainable_parameters(), args, kwargs)

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
