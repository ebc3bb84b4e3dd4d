"""vmap: a function of examples as a function of batches, on the core's records (headrace/transform.h)."""

import functools
import operator
import threading

from headrace import _arrays
from headrace._arrays import Array, Value
from headrace.utils import tree_flatten, tree_map


class _Open(threading.local):
    """The thread's transforms that are open, from the outermost on: vmaps, and None for each tape."""

    def __init__(self):
        self.stack = []


opened = _Open()


class _Batch:
    """Operations on examples; it is closed however the block ends."""

    def __init__(self, x, size):
        self.vmap = _arrays._vmap_begin(x, size)

    def __enter__(self):
        opened.stack.append(self.vmap)
        return self.vmap

    def __exit__(self, *exception):
        opened.stack.pop()
        _arrays._vmap_end(self.vmap)


# ---- axes for trees


def _keys(tree):
    return list(tree) if isinstance(tree, dict) else list(range(len(tree)))


def _spread(what, axes, tree):
    """A tree like `tree` with the axis of each leaf: one of `axes` is that of all leaves below its place."""
    if not isinstance(axes, (list, tuple, dict)):
        axis = None if axes is None else _integer(what, axes)
        return tree_map(lambda _: axis, tree)
    is_alike = isinstance(tree, (list, tuple, dict)) and isinstance(tree, dict) == isinstance(axes, dict)
    if not is_alike or set(_keys(tree)) != set(_keys(axes)):
        raise ValueError(f"vmap: {what} has {axes!r}, which does not fit the structure of {_outline(tree)}")
    children = {key: _spread(what, axes[key], tree[key]) for key in _keys(tree)}
    return children if isinstance(tree, dict) else list(children.values())


def _outline(tree):
    """The tree with shapes in place of arrays."""
    return tree_map(lambda x: x.shape if isinstance(x, (Array, Value)) else x, tree)


def _integer(what, axis):
    try:
        return operator.index(axis)
    except TypeError:
        raise ValueError(f"vmap: {what} has {axis!r}, expected integers, None, or trees of them") from None


def _checked(what, axis, rank, of):
    if not -rank <= axis < rank:
        raise ValueError(f"vmap: {what} has axis {axis}, which is out of range for {of}")
    return axis % rank


# ---- arguments and results


def _named(path):
    key, _, rest = path.partition(".")
    return f"argument {key}" + (f" at {rest!r}" if rest else "")


def _mapped_leaves(trees, axes):
    """The arrays that are mapped: names, arrays and axes, which fit."""
    for (path, x), (_, axis) in zip(tree_flatten(trees), tree_flatten(axes)):
        if axis is None or x is None:
            continue
        if not isinstance(x, (Array, Value)):
            raise ValueError(f"vmap: {_named(path)} is {x!r}, expected an array; in_axes None passes others on")
        yield _named(path), x, _checked(f"in_axes of {_named(path)}", axis, x.ndim, f"shape {x.shape}")


def _common_size(leaves):
    if not leaves:
        raise ValueError("vmap: no argument is mapped, expected an array and an axis in in_axes")
    sizes = [x.shape[axis] for _, x, axis in leaves]
    if len(set(sizes)) > 1:
        found = ", ".join(f"{name} has {size}" for (name, _, _), size in zip(leaves, sizes))
        raise ValueError(f"vmap: the sizes of the mapped axes differ: {found}")
    return sizes[0]


def _example(vmap, x, axis):
    if not isinstance(x, Array):
        return x
    return _arrays._vmap_split(vmap, x, axis % x.ndim) if axis is not None else x.copy()


def _joined(vmap, y, axis):
    """A result of all examples."""
    if isinstance(y, (bool, int, float, complex)):
        y = _arrays.asarray(y)
    if y is None:
        return None
    if not isinstance(y, Array):
        raise ValueError(f"vmap: the function returned {y!r}, expected arrays")
    if axis is not None:
        return _arrays._vmap_join(vmap, y, _checked("out_axes", axis, y.ndim + 1, f"a result of shape {y.shape}"))
    if _arrays._vmap_is_example(vmap, y):
        raise ValueError(f"vmap: out_axes has None for a result of shape {y.shape} that differs between examples")
    return y


def _argument_axes(in_axes, args, kwargs):
    if isinstance(in_axes, (list, tuple)) and len(in_axes) != len(args):
        raise ValueError(f"vmap: in_axes has {len(in_axes)} entries, but the function is called with {len(args)} positions")
    axes = {i: in_axes[i] if isinstance(in_axes, (list, tuple)) else in_axes for i in range(len(args))}
    trees = {**dict(enumerate(args)), **kwargs}
    return trees, {key: _spread("in_axes", axes.get(key, 0), tree) for key, tree in trees.items()}


# ---- values of a graph


def _map_values(graph, fun, position_count, trees, axes, out_axes):
    """The same for values of a graph: fun is a graph, of which one operation computes all examples."""
    from headrace import _inner  # imports this package

    leaves = [(x, axis) for (_, x), (_, axis) in zip(tree_flatten(trees), tree_flatten(axes))]
    given = [(x, axis) for x, axis in leaves if _is_given(x, axis)]
    found = []

    def inner(*inputs):
        rest = iter(inputs)
        examples = tree_map(lambda x, axis: next(rest) if _is_given(x, axis) else x, trees, axes)
        named = {name: examples[name] for name in examples if isinstance(name, str)}
        found.append(fun(*(examples[i] for i in range(position_count)), **named))
        return [y for _, y in tree_flatten(found[0]) if y is not None]

    arguments = [x for x, _ in given]
    into = [None if axis is None else axis % x.ndim for x, axis in given]
    callee = _inner.build_mapped(inner, arguments, into)
    outward = tree_flatten(_spread("out_axes", out_axes, found[0]))
    outward = [axis for (_, y), (_, axis) in zip(tree_flatten(found[0]), outward) if y is not None]
    results = iter(_inner.vmap(graph, callee, arguments, into, outward))
    return tree_map(lambda y: None if y is None else next(results), found[0])


def _is_given(x, axis):
    return isinstance(x, Value) or (isinstance(x, Array) and axis is not None)


def vmap(fun, in_axes=0, out_axes=0):
    """A function that applies fun to each slice of its arguments along an axis, and joins the results along another.

    fun is called once. Its arguments have the dims of a slice, and stand for all slices: their values can't be read.

    in_axes: the axis of each argument: an integer, None for one that is the same in all calls, or a tree of them. Named
    arguments are mapped along axis 0. out_axes: the new axis of each result, in the same way.
    """
    if not callable(fun):
        raise TypeError(f"vmap: {fun!r} is not a function")
    if isinstance(in_axes, dict):
        raise ValueError(f"vmap: in_axes is {in_axes!r}, expected an integer, or one entry for each argument")

    @functools.wraps(fun, updated=())
    def mapped(*args, **kwargs):
        trees, axes = _argument_axes(in_axes, args, kwargs)
        leaves = list(_mapped_leaves(trees, axes))
        values = [x for _, x in tree_flatten(trees) if isinstance(x, Value)]
        if values:
            return _map_values(values[0].graph, fun, len(args), trees, axes, out_axes)
        size = _common_size(leaves)
        with _Batch(leaves[0][1], size) as vmap:
            examples = tree_map(functools.partial(_example, vmap), trees, axes)
            result = fun(*(examples[i] for i in range(len(args))), **{name: examples[name] for name in kwargs})
            return tree_map(functools.partial(_joined, vmap), result, _spread("out_axes", out_axes, result))

    return mapped


# ---- functions with a vmap of their own


def vmap_of(arrays):
    """The innermost vmap of which one of the arrays is an example; None if a tape sees what happens in it."""
    for vmap in reversed(opened.stack):
        if vmap is None or any(_arrays._vmap_is_example(vmap, x) for x in arrays):
            return vmap
    return None


def call_batched(vmap, rule, args):
    """The function's result for an example, by its rule for all examples, which stand along axis 0."""

    def is_example(x):
        return isinstance(x, Array) and _arrays._vmap_is_example(vmap, x)

    inputs = tree_map(lambda x: _arrays._vmap_join(vmap, x, 0) if is_example(x) else x, args)
    axes = tree_map(lambda x: 0 if is_example(x) else None, args)
    result = rule(*((inputs[0], axes[0]) if len(args) == 1 else (inputs, axes)))
    if not isinstance(result, (list, tuple)) or len(result) != 2:
        raise ValueError(f"vmap: the function's vmap returned {result!r}, expected outputs and their axes")
    outputs, axes = result
    return tree_map(functools.partial(_checked_example, vmap), outputs, _spread("the function's vmap", axes, outputs))


def _checked_example(vmap, y, axis):
    if axis is None or not isinstance(y, Array):
        return y
    return _arrays._vmap_split(vmap, y, _checked("the function's vmap", axis, y.ndim, f"shape {y.shape}"))
