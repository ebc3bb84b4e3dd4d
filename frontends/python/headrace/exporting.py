"""export_function, import_function, exporter: functions of arrays in files; import_program. docs/graphs.md has them.

A file is a package (docs/graphs.md) with one graph, which holds the operations of all examples. Its note `function`
lists the inputs and outputs of each example; the note `metadata` is a text of the caller's.
"""

import os

from headrace import _arrays
from headrace._arrays import Array, Graph, Session

__all__ = ["export_function", "exporter", "import_function", "import_program"]

# ---- arguments: arrays, or one list of arrays and one dict of arrays by name


def _are_arrays(values):
    return all(isinstance(value, Array) for value in values)


def _take_inputs(name, args, kwargs):
    """The arrays by position and by name."""
    if not args or isinstance(args[0], Array):
        positional, named = args, kwargs
    elif len(args) == 1 and not kwargs:
        positional, named = ((), args[0]) if isinstance(args[0], dict) else (args[0], {})
    else:
        positional, named = args if len(args) == 2 and not kwargs else (None, None)
    is_right = isinstance(positional, (tuple, list)) and isinstance(named, dict)
    if not is_right or not _are_arrays(positional) or not _are_arrays(named.values()):
        raise ValueError(f"{name}: inputs are arrays by position and by name, or one list and one dict of arrays")
    return list(positional), dict(named)


def _outputs(result):
    if isinstance(result, Array):
        return [result]
    if not isinstance(result, (tuple, list)) or not _are_arrays(result):
        raise ValueError("export_function: a function returns one array, or a tuple or list of arrays")
    return list(result)


# ---- names of inputs


def _parameter_names(fun, count):
    """The function's names of its first arguments."""
    import inspect  # here and below: they take longer than all of `import headrace`

    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        parameters = ()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [names[i] if i < len(names) else f"x{i}" for i in range(count)]


def _unique(name, known):
    """The name, or one with a number behind it."""
    number, made = 0, name
    while made in known:
        number += 1
        made = f"{name}.{number}"
    return made


# ---- one example


def _record(graph, fun, args, kwargs):
    """Adds the function's operations for an example to the graph. The example's inputs and outputs, and True if no
    size may change."""
    names = _parameter_names(fun, len(args)) + list(kwargs)
    examples = [*args, *kwargs.values()]
    values = []
    for name, example in zip(names, examples):
        values.append(graph.input(_unique(name, {*graph.inputs}), example.dtype, example.shape))
    # copies: an example that is given twice is two inputs, and one that the function holds is a constant there
    copies = [_arrays.astype(example, example.dtype, True) for example in examples]
    positional, named = copies[: len(args)], dict(zip(kwargs, copies[len(args) :]))
    found, is_fixed = _arrays._record(graph, copies, values, lambda: _outputs(fun(*positional, **named)))
    outputs = []
    for i, value in enumerate(found):
        outputs.append(_unique("y" if len(found) == 1 else f"y{i}", {*graph.outputs}))
        graph.output(outputs[-1], value)
    inputs = [value.name for value in values]
    trace = {"inputs": inputs[: len(args)], "keywords": dict(zip(kwargs, inputs[len(args) :])), "outputs": outputs}
    return trace, is_fixed


# ---- sizes that may change


def _candidates(dims, name, axis):
    """The places that may have one symbol: this one, those of the same axis and size, and all of the same size."""
    size = dims[name][axis]
    same = [(other, d) for other in dims for d, one in enumerate(dims[other]) if one == size]
    yield [(name, axis)]
    yield [(other, d) for other, d in same if d == axis]
    yield [(other, d) for other, d in same if d - len(dims[other]) == axis - len(dims[name])]
    yield same


def _with_symbols(graph, inputs):
    """The graph with symbols for all dims of these inputs that its operations allow to change."""
    dims = {name: list(graph.inputs[name].shape) for name in inputs}
    for name, sizes in dims.items():
        for axis in range(len(sizes)):
            if not isinstance(dims[name][axis], str):
                graph, dims = _with_symbol(graph, dims, name, axis)
    return graph


def _with_symbol(graph, dims, name, axis):
    """The same for one dim, and those that must be equal to it."""
    symbol = _unique_symbol(graph)
    for places in _candidates(dims, name, axis):
        tried = {other: list(sizes) for other, sizes in dims.items()}
        for other, d in places:
            tried[other][d] = symbol
        try:
            return graph.derive(inputs=tried), tried
        except (ValueError, TypeError):  # an operation does not allow it
            continue
    return graph, dims


def _unique_symbol(graph):
    return next(name for name in (f"d{i}" for i in range(len(graph.symbols) + 1)) if name not in graph.symbols)


# ---- files


class FunctionExporter:
    """Writes a function for several examples of its arguments: made by exporter()."""

    def __init__(self, file, fun, shapeless=False, metadata=""):
        if metadata is not None and not isinstance(metadata, str):
            raise TypeError(f"exporter: metadata is {type(metadata).__name__}, expected a text")
        if not callable(fun):
            raise TypeError(f"exporter: {fun!r} is not a function")
        self._file, self._fun, self._shapeless = os.fspath(file), fun, shapeless
        self._metadata, self._graph, self._traces = metadata or "", Graph(), []

    def __call__(self, *args, **kwargs):
        """Adds an example."""
        if self._graph is None:
            raise RuntimeError(f"exporter: {self._file!r} is closed, and takes no more examples")
        positional, named = _take_inputs("export_function", args, kwargs)
        self._traces.append(self._add(positional, named))

    def _add(self, positional, named):
        trace, is_fixed = _record(self._graph, self._fun, positional, named)
        trace["shapeless"] = bool(self._shapeless) and not is_fixed
        return trace

    def close(self):
        """Writes the file."""
        if self._graph is None:
            return
        graph, self._graph = self._graph, None
        import json

        notes = {"function": json.dumps({"version": 1, "traces": self._traces})}
        if self._metadata:
            notes["metadata"] = json.dumps(self._metadata)
        for trace in self._traces:
            if trace["shapeless"]:
                graph = _with_symbols(graph, [*trace["inputs"], *trace["keywords"].values()])
        graph.simplify(fold=False).save(self._file, notes=notes)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def exporter(file, fun, *, shapeless=False, metadata=None):
    """An object that is called with example arrays, for each of which it records the function; close() or the end of a
    with statement writes the file."""
    return FunctionExporter(file, fun, shapeless, metadata)


def export_function(file_or_callback, fun, *args, shapeless=False, metadata=None, **kwargs):
    """Writes a function of arrays to a file: its operations for example arrays, by position and by name, or as one list
    and one dict. shapeless: other sizes are allowed, if the operations allow them. metadata: a text for
    import_function."""
    if callable(file_or_callback):
        if metadata:
            raise ValueError("export_function: metadata needs a file, got a function")
        raise TypeError("export_function: a function in the place of the file is not supported: use Graph's text")
    with_file = exporter(file_or_callback, fun, shapeless=shapeless, metadata=metadata)
    with_file(*args, **kwargs)
    with_file.close()


class _Trace:
    """An imported example: its session is made when it is first called."""

    def __init__(self, graph, trace):
        self.positional, self.keywords = trace["inputs"], trace["keywords"]
        self.outputs, self.shapeless = trace["outputs"], trace["shapeless"]
        self._source, self._types = graph, graph.inputs
        self._session = None

    def fits(self, args, kwargs):
        """True if the arrays are like the example's."""
        if len(args) != len(self.positional) or {*kwargs} != {*self.keywords}:
            return False
        arrays = dict(zip(self.positional, args), **{self.keywords[name]: x for name, x in kwargs.items()})
        for name, x in arrays.items():
            like = self._types[name]
            if x.dtype != like.dtype or x.ndim != like.ndim or not (self.shapeless or x.shape == like.shape):
                return False
        return True

    def __call__(self, args, kwargs):
        if self._session is None:
            self._session = Session(self._source.derive(outputs=self.outputs))
        feeds = dict(zip(self.positional, args))
        feeds.update({self.keywords[name]: x for name, x in kwargs.items()})
        return tuple(self._session.run(self.outputs, {name: feeds[name] for name in self._session.inputs}))


class ImportedFunction:
    """A function of a file: made by import_function()."""

    def __init__(self, file, graph, traces):
        self._file, self._traces = file, [_Trace(graph, trace) for trace in traces]

    def __repr__(self):
        return f"<headrace.ImportedFunction {self._file!r}: {len(self._traces)} examples>"

    def __call__(self, *args, **kwargs):
        """The results as a tuple of arrays."""
        args, kwargs = _take_inputs("import_function", args, kwargs)
        for trace in self._traces:
            if trace.fits(args, kwargs):
                return trace(args, kwargs)
        given = [f"{x.dtype.name}{list(x.shape)}" for x in args]
        given += [f"{name}={x.dtype.name}{list(x.shape)}" for name, x in kwargs.items()]
        raise ValueError(f"{self._file}: no example fits ({', '.join(given)}); expected {self._examples()}")

    def _examples(self):
        return " or ".join(
            "("
            + ", ".join(
                [_described(trace, name) for name in trace.positional]
                + [f"{key}={_described(trace, name)}" for key, name in trace.keywords.items()]
            )
            + ")"
            for trace in self._traces
        )


def _described(trace, name):
    like = trace._types[name]
    return f"{like.dtype.name}{['*'] * like.ndim if trace.shapeless else list(like.shape)}".replace("'", "")


def import_function(file, return_metadata=False):
    """The function of a file that export_function wrote. It returns a tuple of arrays. With return_metadata a tuple of
    the function and the text that was written with it."""
    with _arrays.open_package(file) as package:
        notes, graph = package.notes, package.graph
    if "function" not in notes:
        raise ValueError(f"{file}: the package has no function, which export_function writes: open it by Session()")
    import json

    function = ImportedFunction(os.fspath(file), graph, json.loads(notes["function"])["traces"])
    return (function, json.loads(notes.get("metadata", '""'))) if return_metadata else function


# ---- programs of torch.export


def import_program(program, *, variables=False, symbols=None, outputs=None):
    """The graph of a program that torch.export.export returned.

    Inputs have the program's names; dims that may change are symbols. Parameters and buffers are constants, or with
    variables=True parameters are variables, by their names. Buffers that the program changes are variables in any case,
    which runs assign. symbols: other names of symbols, as {"s77": "batch"}. outputs: names of the results; without them
    they are "output", or "output_0", "output_1", ... ValueError names operators that have no translation.
    """
    from headrace import programs

    return programs.read(program, variables, symbols or {}, outputs)
