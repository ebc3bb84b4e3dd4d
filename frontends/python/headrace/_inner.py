"""Inner graphs of control flow, made of functions of values."""

import headrace as hr


def _dims(shape, symbols):
    """The dims of an input like a value: other dims than sizes and symbols get symbols of their own."""
    dims = []
    for size in shape:
        is_known = isinstance(size, int) or size.isidentifier()
        dims.append(size if is_known else f"size_{len(symbols)}")
        symbols.append(dims[-1])
    return dims


def _graph(function, arguments, axes, is_counted):
    """A graph of function(*inputs), with inputs like the arguments, which lack the dim of their axis."""
    graph, symbols = hr.Graph(), []
    inputs = [graph.input("i", "int64", ())] if is_counted else []
    for k, (value, axis) in enumerate(zip(arguments, axes)):
        shape = value.shape if axis is None else value.shape[:axis] + value.shape[axis + 1 :]
        inputs.append(graph.input(f"x{k}", value.dtype, _dims(shape, symbols)))
    outputs = function(*inputs)
    for k, value in enumerate(outputs if isinstance(outputs, (tuple, list)) else [outputs]):
        graph.output(f"y{k}", value)
    return graph


def build(function, arguments, sliced, sliced_count, is_counted):
    """A graph of function(*inputs), with inputs like the arguments; those of the numbers sliced and following lack
    their first dim. is_counted: the first input is a number of type int64."""
    axes = [0 if sliced <= k < sliced + sliced_count else None for k in range(len(arguments))]
    return _graph(function, arguments, axes, is_counted)


# ---- vmap


def build_mapped(function, arguments, axes):
    """A graph of function(*inputs) for slices of the arguments along these axes; None: the whole."""
    return _graph(function, arguments, axes, False)


def _axis(what, axis, rank):
    """An axis counted from the front; -1 for None."""
    if axis is None:
        return -1
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(f"vmap: {what} is {axis!r}, expected an integer or None")
    if not -rank <= axis < rank:
        raise ValueError(f"vmap: {what} is {axis}, expected {-rank} to {rank - 1}")
    return axis % rank


def _axes(what, given, ranks):
    """One axis for each of some values."""
    each = list(given) if isinstance(given, (tuple, list)) else [given] * len(ranks)
    if len(each) != len(ranks):
        raise ValueError(f"vmap: {what} has {len(each)} entries, expected {len(ranks)}")
    return [_axis(f"{what}[{i}]", axis, rank) for i, (axis, rank) in enumerate(zip(each, ranks))]


def vmap(graph, callee, arguments, in_axes, out_axes):
    """Graph.vmap; the arguments are values."""
    into = _axes("in_axes", in_axes, [value.ndim for value in arguments])
    if not isinstance(callee, hr.Graph):
        callee = build_mapped(callee, arguments, [None if axis < 0 else axis for axis in into])
    ranks = [len(type_.shape) + 1 for type_ in callee.outputs.values()]
    return graph._vmap(callee, arguments, into, _axes("out_axes", out_axes, ranks))
