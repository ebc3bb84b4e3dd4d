"""Gradients with respect to the trainable parameters of a module."""

import functools

from headrace import transforms

__all__ = ["value_and_grad"]


def value_and_grad(model, fn):
    """A function that returns fn's result and the tree of gradients of it, or of its first part if it is a tuple or
    list, with respect to the model's trainable parameters.

        step = nn.value_and_grad(model, lambda x, y: nn.losses.mse_loss(model(x), y))
        loss, gradients = step(x, y)
    """

    def call(parameters, args, kwargs):
        model.update(parameters)
        return fn(*args, **kwargs)

    transformed = transforms.value_and_grad(call)

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        parameters = model.trainable_parameters()
        try:
            return transformed(parameters, args, kwargs)
        finally:
            model.update(parameters)

    return wrapped
