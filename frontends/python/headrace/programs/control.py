"""Python's operators on sizes, and control flow."""

import operator

from headrace._arrays import Value
from headrace.programs.table import OPERATORS, larger, of, smaller

# ---- Python's operators on sizes


def _python(function):
    return lambda c, args: function(*args)


for _name in ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg", "lt", "le", "gt", "ge", "eq", "ne"):
    OPERATORS[f"operator.{_name}"] = _python(getattr(operator, _name))


@of("sym_max", "sym_min")
def sym_best(c, args):
    return (larger if c.node.target.__name__ == "sym_max" else smaller)(*args)


@of("sym_float", "operator.truediv", "sym_not", "operator.and_", "operator.or_")
def host_only(c, args):
    raise ValueError("numbers that are no integers can't be computed on the host")


# ---- control flow


@of("cond")
def cond(c, args):
    condition, then, otherwise, operands = args
    then, otherwise = c.reader.function(then), c.reader.function(otherwise)
    if not operands:  # a function without arguments would not know its graph
        return tuple(c.graph.cond(condition, lambda _: then(_), lambda _: otherwise(_), condition))
    return tuple(c.graph.cond(condition, then, otherwise, *operands))


@of("while_loop")
def while_loop(c, args):
    condition, body, carried, others = args
    return tuple(c.graph.while_loop(c.reader.function(condition), c.reader.function(body), list(carried), list(others)))


@of("scan")
def scan(c, args):
    body, init, sequences, others = args
    return tuple(c.graph.scan(c.reader.function(body), list(init), list(sequences), list(others)))


@of("wrap_with_set_grad_enabled", "wrap_with_autocast")
def wrap(c, args):
    at = next(i for i, one in enumerate(args) if hasattr(one, "graph") and not isinstance(one, Value))
    return tuple(c.reader.function(args[at])(*args[at + 1 :]))
