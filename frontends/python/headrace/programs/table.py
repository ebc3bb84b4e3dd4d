"""The table of ATen's operators as functions on values of a graph, and what these functions share.

Each function has the parameters of the operator's schema, behind a Context. Operators whose parameters mean the same
share a function. Sizes are integers, or values that the host computes.
"""

from headrace import _arrays as A
from headrace._arrays import Value

OPERATORS = {}  # by name, without the overload


def of(*names):
    def add(function):
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return add


class Context:
    """A node that becomes values."""

    def __init__(self, reader, node, arguments):
        self.reader, self.graph, self.node, self.arguments = reader, reader.graph, node, arguments

    @property
    def name(self):
        """The operator's name, without its overload."""
        return self.node.target.overloadpacket.__name__

    @property
    def type(self):
        """torch's type of the result, or of the first one."""
        value = self.node.meta["val"]
        return value[0] if isinstance(value, (tuple, list)) else value

    @property
    def dtype(self):
        """The dtype that the result has in torch."""
        return dtype_name(self.type.dtype)

    def constant(self, number, dtype=None):
        """A number as a value without dims."""
        return self.graph.constant(A.array(number, dtype=dtype or self.dtype))

    def common(self):
        """The dtype in which torch compares the first two arguments."""
        import torch

        given = [self.node.args[i] if i < len(self.node.args) else None for i in range(2)]
        metas = [one.meta["val"] if hasattr(one, "meta") else one for one in given if one is not None]
        return dtype_name(torch.result_type(*metas))


def cast(x, dtype):
    """A value in a dtype; numbers stay."""
    return A.astype(x, dtype) if isinstance(x, Value) and x.dtype.name != dtype else x


def size(x, axis):
    """A size of a value: an integer, or a value of the host."""
    found = x.shape[axis]
    return found if isinstance(found, int) else x.graph.shape(x)[axis % x.ndim]


def sizes(x):
    return [size(x, axis) for axis in range(x.ndim)]


def each(value, count):
    """A list of numbers for each of some dims."""
    numbers = list(value) if isinstance(value, (list, tuple)) else [value]
    return numbers * count if len(numbers) == 1 else numbers


def with_value(c, operands):
    """One of the operands must be a value."""
    if not any(isinstance(x, Value) for x in operands):
        operands[0] = c.constant(operands[0])
    return operands


def dtype_name(dtype):
    """The name of a torch dtype here."""
    return str(dtype).removeprefix("torch.")


def part(x, axis, begin, count):
    """So many elements of one axis from a place on; numbers or values."""
    return x[(slice(None),) * (axis % x.ndim) + (slice(begin, begin + count),)]


def smaller(a, b):
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else A.minimum(a, b)


def larger(a, b):
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else A.maximum(a, b)


def array_of(tensor):
    """A copy of a torch tensor of the CPU."""
    if type(tensor).__name__ == "FakeTensor":
        raise ValueError("import_program: a tensor without elements: export the program without a fake mode")
    return A.from_dlpack(tensor.detach().cpu().contiguous())
