"""Gradients of functions of arrays, on tapes of the core (headrace/transform.h). docs/arrays.md describes them.

A transform calls the function with copies of the arguments, which a tape watches. So an array that the function
captured is a constant, even if it is an argument, too.
"""

import copy
import functools
import operator

from headrace import _arrays
from headrace._arrays import Array, stop_gradient
from headrace._vmap import call_batched, opened, vmap, vmap_of
from headrace.utils import _like, tree_flatten, tree_map

__all__ = ["checkpoint", "custom_function", "grad", "jvp", "stop_gradient", "value_and_grad", "vjp", "vmap"]


class _Tape:
    """A tape that watches the arrays; it is closed however the block ends."""

    def __init__(self, arrays):
        self.tape = _arrays._tape_begin(arrays)

    def __enter__(self):
        opened.stack.append(None)
        return self.tape

    def __exit__(self, *exception):
        opened.stack.pop()
        _arrays._tape_close(self.tape)


class _Rules:
    """What headrace.mlx changes: integers are differentiated as float32, and what a function puts into its argument's
    lists and dicts stays there."""

    follows_mlx = False


_FLOATING = {"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}


def _is_floating(x):
    return x.dtype.name in _FLOATING


def _differentiable(x):
    """The array; under MLX's rules integers as float32."""
    if _Rules.follows_mlx and isinstance(x, Array) and not _is_floating(x):
        return x.astype(_arrays.float32)
    return x


def _check_argument(who, name, x):
    if not isinstance(x, Array):
        raise ValueError(f"{who}: {name} is {x!r}, expected an array")
    if not _is_floating(x):
        raise ValueError(f"{who}: {name} has dtype {x.dtype}, expected a floating or complex one")


# ---- what is differentiated


def _as_tuple(one_or_more, kind):
    return (one_or_more,) if isinstance(one_or_more, kind) else tuple(one_or_more)


def _positions(who, argnums):
    numbers = tuple(sorted(operator.index(i) for i in _as_tuple(argnums, int)))
    if numbers and numbers[0] < 0:
        raise ValueError(f"{who}: argnums has {numbers[0]}, expected positions from 0 on")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{who}: argnums is {argnums!r}, expected different positions")
    return numbers


def _wanted(who, argnums, argnames):
    """Positions, sorted, and names of the arguments that are differentiated: by default the first one."""
    names = _as_tuple(argnames if argnames is not None else (), str)
    if len(set(names)) < len(names):
        raise ValueError(f"{who}: argnames is {argnames!r}, expected different names")
    if argnums is None:
        argnums = () if names else (0,)
    positions = _positions(who, argnums)
    if not positions and not names:
        raise ValueError(f"{who}: argnums is {argnums!r} without argnames, expected at least one argument")
    return positions, names


def _chosen(who, positions, names, args, kwargs):
    """The chosen arguments by position or name."""
    if positions and positions[-1] >= len(args):
        raise ValueError(f"{who}: argnums has {positions[-1]}, but the function is called with {len(args)} positions")
    for name in names:
        if name not in kwargs:
            raise ValueError(f"{who}: argnames has {name!r}, but the function is called with {sorted(kwargs)}")
    return {**{i: args[i] for i in positions}, **{name: kwargs[name] for name in names}}


def _check_chosen(who, chosen):
    """Names the argument that can't be differentiated."""
    for path, x in tree_flatten(chosen):
        key, _, rest = path.partition(".")
        _check_argument(who, f"argument {key}" + (f" at {rest!r}" if rest else ""), x)


def _map_kept(fn, tree):
    """tree_map, but dicts of other classes keep them: a network is one."""
    if isinstance(tree, dict):
        children = {key: _map_kept(fn, child) for key, child in tree.items()}
        if type(tree) is dict:
            return children
        kept = copy.copy(tree)
        kept.update(children)
        return kept
    return _like(tree, [_map_kept(fn, child) for child in tree]) if isinstance(tree, (list, tuple)) else fn(tree)


def _copies(who, chosen):
    """Trees with copies of the arrays, and a list of these."""
    leaves = []

    def copied(x):
        x = _differentiable(x)
        if not isinstance(x, Array) or not _is_floating(x):
            _check_chosen(who, chosen)
        own = _arrays._tape_copy(x)
        leaves.append(own.copy())  # the function may write to its own
        return own

    trees = _map_kept(copied, chosen)
    if not leaves:
        raise ValueError(f"{who}: the arguments have no arrays, expected at least one")
    return trees, leaves


# ---- grad, value_and_grad


def _check_loss(who, loss):
    if not isinstance(loss, Array):
        raise ValueError(f"{who}: the function returned {loss!r}, expected an array without dims")
    if loss.ndim != 0:
        raise ValueError(f"{who}: the function returned an array of shape {loss.shape}, expected no dims")
    if not _is_floating(loss):
        raise ValueError(f"{who}: the function returned dtype {loss.dtype}, expected a floating or complex one")


def _loss_of(who, value):
    """What is differentiated: the result, or the first of several."""
    if isinstance(value, (list, tuple)):
        if not value:
            raise ValueError(f"{who}: the function returned {value!r}, expected a loss in it")
        value = value[0]
    _check_loss(who, value)
    return value


def _leave_changes(tree, copy, own):
    """What the function put into the copy's lists and dicts is put into the tree's."""
    if isinstance(copy, (list, dict)):
        for key, child in list(copy.items() if isinstance(copy, dict) else enumerate(copy)):
            is_new = key not in tree if isinstance(tree, dict) else key >= len(tree)
            if not is_new and isinstance(child, (list, tuple, dict)):
                _leave_changes(tree[key], child, own)
            elif id(child) not in own and not is_new:
                tree[key] = child


def _gradients_of(who, call, loss_of, chosen):
    """The result of call(copies of the chosen arguments), and trees of gradients like them."""
    trees, leaves = _copies(who, chosen)
    own = {id(x): x for _, x in tree_flatten(trees)} if _Rules.follows_mlx else None
    structure = tree_map(lambda x: x.dtype, chosen) if _Rules.follows_mlx else trees
    with _Tape(leaves) as tape:
        value = call(trees)
        _arrays._tape_end(tape)
        if own is not None:
            for key, tree in chosen.items():
                _leave_changes(tree, trees[key], own)
        found = iter(_arrays._tape_gradient(tape, [loss_of(who, value)], None, leaves))
    if own is not None:
        return value, tree_map(lambda dtype: next(found).astype(dtype), structure)
    return value, tree_map(lambda _: next(found), trees)


def _value_and_gradients(who, call, arrays):
    """The result of call(copies of the arrays), and the list of gradients of it, or of its first part."""
    copies, leaves = _arrays._tape_copies(arrays)  # the function may write to its own
    with _Tape(leaves) as tape:
        value = call(copies)
        _arrays._tape_end(tape)
        return value, _arrays._tape_gradient(tape, [_loss_of(who, value)], None, leaves)


def _arrange(positions, names, gradients):
    by_position = tuple(gradients[i] for i in positions)
    first = by_position if len(positions) > 1 else by_position[0] if positions else None
    return (first, {name: gradients[name] for name in names}) if names else first


def _transform(who, fun, argnums, argnames, loss_of):
    if not callable(fun):
        raise TypeError(f"{who}: {fun!r} is not a function")
    positions, names = _wanted(who, argnums, argnames)

    @functools.wraps(fun, updated=())
    def transformed(*args, **kwargs):
        def call(trees):
            rest = {name: trees.get(name, value) for name, value in kwargs.items()}
            return fun(*(trees.get(i, value) for i, value in enumerate(args)), **rest)

        chosen = _chosen(who, positions, names, args, kwargs)
        value, gradients = _gradients_of(who, call, loss_of, chosen)
        return value, _arrange(positions, names, gradients)

    return transformed


def value_and_grad(fun, argnums=None, argnames=()):
    """A function that returns fun's result and the gradient of it, or of its first part if it is a tuple or list.

    The gradient has the structure of the first argument, or of those of argnums and argnames:

        argnums=1             that of argument 1
        argnums=(0, 2)        a tuple, in the order of positions
        argnames=("w", "b")   a pair of the former (None without argnums) and a dict
    """
    return _transform("value_and_grad", fun, argnums, argnames, _loss_of)


def _only_loss(who, value):
    _check_loss(who, value)
    return value


def grad(fun, argnums=None, argnames=()):
    """A function that returns the gradient of fun, whose result is an array without dims; see value_and_grad."""
    transformed = _transform("grad", fun, argnums, argnames, _only_loss)

    @functools.wraps(fun, updated=())
    def gradient(*args, **kwargs):
        return transformed(*args, **kwargs)[1]

    return gradient


# ---- vjp, jvp


def _outputs_of(who, value):
    outputs = list(value) if isinstance(value, (list, tuple)) else [value]
    for i, output in enumerate(outputs):
        if not isinstance(output, Array):
            raise ValueError(f"{who}: output {i} of the function is {output!r}, expected an array")
    return outputs


def _check_pairs(who, arrays, what, others, other):
    """Each array has another one of its shape."""
    if len(arrays) != len(others):
        raise ValueError(f"{who}: {len(others)} {other}s, expected {len(arrays)}, one for each {what}")
    for i, (x, y) in enumerate(zip(arrays, others)):
        if not isinstance(y, Array):
            raise ValueError(f"{who}: {other} {i} is {y!r}, expected an array")
        if x.shape != y.shape:
            raise ValueError(f"{who}: {other} {i} has shape {y.shape}, expected {x.shape} as {what} {i}")


def _copied_primals(who, primals):
    """Copies for the function, and for the tape."""
    primals = [_differentiable(x) for x in primals]
    for i, x in enumerate(primals):
        _check_argument(who, f"primal {i}", x)
    if not primals:
        raise ValueError(f"{who}: no primals, expected at least one")
    copies = [_arrays._tape_copy(x) for x in primals]
    return copies, [x.copy() for x in copies]


def _seeded(outputs, seeds):
    """Outputs that have gradients, and seeds of their dtypes."""
    pairs = [(y, seed.astype(y.dtype)) for y, seed in zip(outputs, seeds) if _is_floating(y)]
    return [y for y, _ in pairs], [seed for _, seed in pairs]


def vjp(fun, primals, cotangents):
    """The outputs of fun(*primals), and for each primal the product of the cotangents and fun's Jacobian: two lists."""
    copies, watched = _copied_primals("vjp", list(primals))
    cotangents = list(cotangents)
    with _Tape(watched) as tape:
        outputs = _outputs_of("vjp", fun(*copies))
        _arrays._tape_end(tape)
        _check_pairs("vjp", outputs, "output", cotangents, "cotangent")
        return outputs, _arrays._tape_gradient(tape, *_seeded(outputs, cotangents), watched)


def jvp(fun, primals, tangents):
    """The outputs of fun(*primals), and for each the product of fun's Jacobian and the tangents: two lists.

    The products are found forwards, operation by operation, and cost about as much as the function. Of an operation
    without a formula for products the gradient is differentiated.
    """
    primals, tangents = list(primals), [_differentiable(x) for x in tangents]
    copies, watched = _copied_primals("jvp", primals)
    _check_pairs("jvp", primals, "primal", tangents, "tangent")
    with _Tape(watched) as tape:
        outputs = _outputs_of("jvp", fun(*copies))
        _arrays._tape_end(tape)
        return outputs, _products(tape, *_seeded(watched, tangents), outputs)


def _products(tape, inputs, tangents, outputs):
    """The products of floating outputs; others are zeros."""
    found = iter(_arrays._tape_product(tape, inputs, tangents, [y for y in outputs if _is_floating(y)]))
    other = tangents[0].dtype if _Rules.follows_mlx and tangents else None
    return [next(found) if _is_floating(y) else _arrays.zeros_like(y, dtype=other) for y in outputs]


# ---- functions with gradients of their own


_PLACE = object()  # of an array in a structure


def _split(tree):
    """The arrays of a tree, and the tree without them."""
    arrays = []

    def place(x):
        if not isinstance(x, Array):
            return x
        arrays.append(x)
        return _PLACE

    structure = tree_map(place, tree)
    return arrays, structure


def _join(structure, items):
    """The tree with these items in the places of its arrays."""
    items = iter(items)
    return tree_map(lambda x: next(items) if x is _PLACE else x, structure)


def _matched(who, what, arrays, structure, found):
    """An array or None for each of the arrays: those that `found` has, which is a tree like theirs or the arrays."""
    items = [x for _, x in tree_flatten(found)]
    if len(items) != len(arrays):
        places = [x is _PLACE for _, x in tree_flatten(structure)]
        items = [x for x, is_array in zip(items, places) if is_array] if len(items) == len(places) else items
    if len(items) != len(arrays):
        raise ValueError(f"{who}: {len(items)} {what}s, expected {len(arrays)}")
    for i, (x, item) in enumerate(zip(arrays, items)):
        if item is not None and not isinstance(item, Array):
            raise ValueError(f"{who}: {what} {i} is {item!r}, expected an array")
        if item is not None and item.shape != x.shape:
            raise ValueError(f"{who}: {what} {i} has shape {item.shape}, expected {x.shape}")
    return items


class _Call:
    """A call of a function: the structures of its arguments and result, and what finds its gradients."""

    def __init__(self, function, vjp, jvp, structure):
        self.function, self.vjp, self.jvp, self.structure = function, vjp, jvp, structure
        self.result = None

    def run(self, inputs):
        args, kwargs = _join(self.structure, inputs)
        outputs, self.result = _split(self.function(*args, **kwargs))
        return outputs

    def primals(self):
        """The structure of the positional arguments: of the only one, or of all."""
        args = self.structure[0]
        return args[0] if len(args) == 1 else args

    def gradients(self, inputs, cotangents, outputs):
        cotangents = [_arrays.zeros_like(y) if c is None else c for y, c in zip(outputs, cotangents)]
        if self.vjp is not None:
            return self.of_vjp(inputs, cotangents, outputs)

        def find(tape, watched, outputs):
            return _arrays._tape_gradient(tape, *_seeded(outputs, cotangents), watched)

        found = dict(zip(*self.of_function(inputs, find)))
        return [found.get(i) for i in range(len(inputs))]

    def products(self, inputs, tangents, outputs):
        tangents = [_arrays.zeros_like(x) if t is None and _is_floating(x) else t for x, t in zip(inputs, tangents)]
        if self.jvp is not None:
            return self.of_jvp(inputs, tangents, outputs)

        def find(tape, watched, outputs):
            return _products(tape, watched, [t for t in tangents if t is not None], outputs)

        return self.of_function(inputs, find)[1]

    def of_function(self, inputs, find):
        """The places of floating inputs, and find(tape, copies of them, outputs): the function runs again."""
        at = [i for i, x in enumerate(inputs) if _is_floating(x)]
        again = {i: _arrays._tape_copy(inputs[i]) for i in at}
        watched = [x.copy() for x in again.values()]
        with _Tape(watched) as tape:
            outputs = self.run([again.get(i, x) for i, x in enumerate(inputs)])
            _arrays._tape_end(tape)
            return at, find(tape, watched, outputs)

    def of_vjp(self, inputs, cotangents, outputs):
        args, kwargs = _join(self.structure, inputs)
        primals = args[0] if len(args) == 1 else args
        found = self.vjp(primals, _join(self.result, cotangents), _join(self.result, outputs), **kwargs)
        count = len(_split(primals)[0])
        found = _matched("vjp", "gradient", inputs[:count], self.primals(), found)
        return found + [None] * (len(inputs) - count)

    def of_jvp(self, inputs, tangents, outputs):
        if self.structure[1]:
            raise ValueError(f"jvp: the function is called with {sorted(self.structure[1])}, expected positions alone")
        found = self.jvp(_join(self.primals(), inputs), _join(self.tangents(), tangents))
        return _matched("jvp", "product", outputs, self.result, found)

    def tangents(self):
        """The structure of the primals, with None for what is no array."""
        return tree_map(lambda x: x if x is _PLACE else None, self.primals())


def _call(function, vjp, jvp, args, kwargs):
    """The function's result. Tapes see one record with the gradients of vjp or jvp; without them it runs again."""
    inputs, structure = _split((args, kwargs))
    if not inputs:
        return function(*args, **kwargs)
    custom = _arrays._custom_begin(inputs[0])
    if custom is None:
        return function(*args, **kwargs)
    try:
        call = _Call(function, vjp, jvp, structure)
        outputs = call.run([x.copy() for x in inputs])  # the function may write to its own
        return _join(call.result, _arrays._custom_end(custom, inputs, (call.gradients, call.products), outputs))
    finally:
        _arrays._custom_cancel(custom)


class custom_function:
    """A function with transforms of its own, set by decorators:

        @hr.custom_function
        def f(x, y):
            return hr.sin(x) * y

        @f.vjp
        def f_vjp(primals, cotangent, output):
            x, y = primals
            return cotangent * hr.cos(x) * y, cotangent * hr.sin(x)

    vjp and jvp get the argument itself if there is one, else a tuple. Tangents of arrays of integers are None. Without
    one of them the function's own derivative is used. Arrays that the function captured are constants.
    """

    def __init__(self, f):
        if not callable(f):
            raise TypeError(f"custom_function: {f!r} is not a function")
        functools.update_wrapper(self, f, updated=())
        self._function, self._vjp, self._jvp, self._vmap = f, None, None, None

    def __call__(self, *args, **kwargs):
        if self._vjp is None and self._jvp is None:
            return self._run(*args, **kwargs)
        return _call(self._run, self._vjp, self._jvp, args, kwargs)

    def _run(self, *args, **kwargs):
        """Without gradients."""
        vmap = None
        if self._vmap is not None and opened.stack and not kwargs:
            vmap = vmap_of(_split(args)[0])
        return self._function(*args, **kwargs) if vmap is None else call_batched(vmap, self._vmap, args)

    def vjp(self, f):
        """f(primals, cotangents, outputs) returns the gradients by the primals."""
        self._vjp = f
        return self

    def jvp(self, f):
        """f(primals, tangents) returns the products of the outputs: linear in the tangents."""
        self._jvp = f
        return self

    def vmap(self, f):
        """f(inputs, axes) returns the outputs and their axes. Inputs have the examples along axis 0, or axis None."""
        self._vmap = f
        return self


def checkpoint(fun):
    """A function whose gradients keep no values between its inputs and outputs: it runs again for them."""
    if not callable(fun):
        raise TypeError(f"checkpoint: {fun!r} is not a function")

    @functools.wraps(fun, updated=())
    def checkpointed(*args, **kwargs):
        return _call(fun, None, None, args, kwargs)

    return checkpointed
