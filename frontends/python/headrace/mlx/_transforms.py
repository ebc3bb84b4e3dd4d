"""Evaluation and transforms of functions with MLX's names."""

import contextlib
import functools
import os

import headrace as _hr
from headrace import _arrays
from headrace._arrays import Array
from headrace._vmap import opened
from headrace.transforms import checkpoint, custom_function, grad, jvp, value_and_grad, vjp
from headrace.utils import tree_flatten, tree_map

__all__ = [
    "async_eval",
    "checkpoint",
    "compile",
    "custom_function",
    "depends",
    "disable_compile",
    "enable_compile",
    "eval",
    "export_to_dot",
    "grad",
    "jvp",
    "value_and_grad",
    "vjp",
    "vmap",
]


def _arrays_of(args):
    return [x for _, x in tree_flatten(list(args)) if isinstance(x, Array)]


def eval(*args):
    """Computes the arrays of these trees, and all other pending work."""
    _arrays.eval(*_arrays_of(args))


def async_eval(*args):
    """Submits all pending work without waiting for it. Inside a transform it raises ValueError."""
    if opened.stack:
        raise ValueError("async_eval inside a transform, expected it outside of grad, vjp, jvp and vmap")
    _arrays._submit()


def vmap(fun, in_axes=0, out_axes=0):
    """headrace.vmap; in_axes may be the dict of the only argument, out_axes a tuple of one result's axis."""
    in_axes = (in_axes,) if isinstance(in_axes, dict) else in_axes
    if not isinstance(out_axes, (list, tuple)) or len(out_axes) != 1:
        return _hr.vmap(fun, in_axes, out_axes)

    @functools.wraps(fun, updated=())
    def listed(*args, **kwargs):
        result = fun(*args, **kwargs)
        return [result] if isinstance(result, Array) else result

    mapped = _hr.vmap(listed, in_axes, out_axes)

    @functools.wraps(fun, updated=())
    def call(*args, **kwargs):
        result = mapped(*args, **kwargs)
        return result[0] if type(result) is list else result

    return call


class _Compiling:
    enabled = os.environ.get("MLX_DISABLE_COMPILE") is None


def enable_compile():
    """Compiled functions replay what they captured, which is the default."""
    _Compiling.enabled = True


def disable_compile():
    """Compiled functions run as if they were not compiled."""
    _Compiling.enabled = False


def compile(fun, inputs=None, outputs=None, shapeless=False):
    """A function with fun's results that captures its operations in the first call: see headrace.compile."""
    compiled = _hr.compile(fun, inputs, outputs, shapeless)

    @functools.wraps(fun, updated=())
    def call(*args, **kwargs):
        return (compiled if _Compiling.enabled else fun)(*args, **kwargs)

    return call


def depends(inputs, dependencies):
    """The inputs: operations run in the order in which they are recorded."""
    return tree_map(lambda x: x.copy(), inputs)


@contextlib.contextmanager
def _text_file(file):
    if hasattr(file, "write"):
        yield file
    else:
        with open(file, "w") as opened_file:
            yield opened_file


def export_to_dot(file, *args, **kwargs):
    """Writes the arrays as nodes of a graph in Graphviz's language: names, shapes and dtypes. Operations are recorded
    by the stream, not by arrays; docs/watching.md shows how to draw programs."""
    names = {id(x): name for name, x in kwargs.items()}
    with _text_file(file) as out:
        out.write("digraph {\n")
        for i, x in enumerate(args):
            out.write(f'  "{names.get(id(x), i)}" [label="{x.dtype.name}{list(x.shape)}"];\n')
        out.write("}\n")
