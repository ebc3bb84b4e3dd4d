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


def build(function, arguments, sliced, sliced_count, is_counted):
    """A graph of function(*inputs), with inputs like the arguments; those of the numbers sliced and following lack their
    first dim. is_counted: the first input is a number of type int64."""
    graph, symbols = hr.Graph(), []
    inputs = [graph.input("i", "int64", ())] if is_counted else []
    for k, value in enumerate(arguments):
        shape = value.shape[1:] if sliced <= k < sliced + sliced_count else value.shape
        inputs.append(graph.input(f"x{k}", value.dtype, _dims(shape, symbols)))
    outputs = function(*inputs)
    for k, value in enumerate(outputs if isinstance(outputs, (tuple, list)) else [outputs]):
        graph.output(f"y{k}", value)
    return graph
