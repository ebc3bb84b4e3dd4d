"""torch.headrace.elementwise: element-wise kernels from a C expression.

The core parses the expression and records it as rows of its table, like built-in operators (headrace/expression.h).
A call on plain tensors of the device is one call of a builtin function. All others go to the operator
torch.ops.headrace.elementwise: torch.compile, vmap, fake tensors, modes. On other devices the same rows run as
torch's operators, one by one.
"""

import functools
import numbers
import sys
import weakref

import torch

from headrace._library import _C

_DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "u16": torch.uint16,
    "i16": torch.int16,
    "u32": torch.uint32,
    "i32": torch.int32,
    "u64": torch.uint64,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def elementwise(text, signature, *, backward=None):
    """Makes an element-wise kernel from an expression in C.

    `shrink = elementwise("y = x > l ? x - l : (x < -l ? x + l : 0)", "float x, float l -> float y")` is called as
    `shrink(x, 0.5)`. docs/custom-kernels.md has the whole language.

    text: assignments to the outputs and to temporaries, separated by `;`. Operators, precedence and conversions are
    C's: integers below int compute in int, half and bfloat16 in float; `/` of integers truncates (0 for a divisor of
    0), `%` is for integers. A floating literal without `f` does not widen: in `x * 0.5` it has x's type. Functions
    have C's names for all floating types (exp, fabs, fmax, pow, erf, round, isnan, ...). `i` is the row-major number
    of the element, `index(d)` its index along dim d, `size(d)` the size of dim d. `&&`, `||` and `?:` compute all
    operands.

    signature: inputs and outputs with their types. bool, char, short, int, long, their unsigned forms, half, bfloat16,
    float and double are exact: a tensor of another dtype is an error. T is the promoted dtype of all arguments that
    are declared T, by torch's rules; use it under autocast.

    backward: the gradient of each input x as gx, from the gradient gy of each output y: "gx = gy * y". It may use all
    names of `text`. Default: it is derived; comparisons, conditions, rounding and integers have no gradient. Inputs
    without an assignment have a gradient of 0.

    The result is a function of the inputs, in order or by name, which returns a tensor, or a tuple of several outputs.
    Inputs are tensors, broadcast as in torch, or numbers; at least one is a tensor. An input may be unused: it still
    counts for shapes and for T. Another value of a number compiles nothing.
    """
    for name, given in (("text", text), ("signature", signature), ("backward", backward)):
        if not isinstance(given, str) and not (given is None and name == "backward"):
            raise TypeError(f"elementwise: expected {name} to be a str, found {type(given).__name__}")
    _C.open()  # whose operator is used for all that torch has to see
    _register()
    inputs, outputs, _ = _C.describe_elementwise(text, signature, backward, 0)
    names, count = tuple(name for name, _, _ in inputs), len(outputs)

    def call(*operands, **named):
        operands = operands + tuple(named[name] for name in names[len(operands) :])
        tensors, plain, places = [], [], 0
        for place, operand in enumerate(operands):
            if isinstance(operand, torch.Tensor):
                tensors.append(operand)
            else:
                plain.append(operand if isinstance(operand, (int, float)) else _number(names[place], operand))
                places |= 1 << place
        if not tensors:
            raise TypeError(f'elementwise: expected a tensor among the operands of "{text}", found numbers alone')
        results = torch.ops.headrace.elementwise(
            text, signature, backward, 0, tensors, plain, places, (1 << count) - 1
        )
        return results[0] if count == 1 else tuple(results)

    made = _C.make_elementwise(text, signature, backward, call)
    _made[made] = call
    if "torch._dynamo" in sys.modules:
        trace_made_kernels()
    return made


def _number(name, operand):
    if isinstance(operand, torch.SymInt | torch.SymFloat | torch.SymBool):
        return operand
    if isinstance(operand, numbers.Integral):
        return int(operand)
    if isinstance(operand, numbers.Real):
        return float(operand)
    raise TypeError(f"elementwise: input {name}: expected a tensor or a real number, found {type(operand).__name__}")


# ---- torch.compile: a call is traced as a call of the operator

_made = weakref.WeakKeyDictionary()  # kernels that Dynamo does not know yet


def trace_made_kernels():
    """Tells Dynamo how to trace the kernels that were made since the last call; called when Dynamo is in use."""
    while _made:
        made, call = _made.popitem()
        torch.compiler.substitute_in_graph(made, skip_signature_check=True)(call)


# ---- the operator where it does not run on the device


@functools.cache
def _register():
    torch.library.register_fake("headrace::elementwise")(_fake)
    torch.library.register_vmap("headrace::elementwise", _vmap)
    torch.library.impl("headrace::elementwise", "CPU")(_compose)


def _operands(inputs, tensors, plain, places):
    tensors, plain = iter(tensors), iter(plain)
    return [next(plain if places >> place & 1 else tensors) for place in range(len(inputs))]


def _promoted(inputs, operands):
    """The dtype of T, by torch's rules; None if there is no T. Checks the others."""
    chosen = []
    for (name, dtype, _), operand in zip(inputs, operands, strict=True):
        if dtype is None:
            chosen.append(operand)
        elif isinstance(operand, torch.Tensor) and operand.dtype != _DTYPES[dtype]:
            raise TypeError(f"elementwise: input {name}: expected a tensor of {_DTYPES[dtype]}, found {operand.dtype}")
    tensors = [operand for operand in chosen if isinstance(operand, torch.Tensor)]
    kinds = {bool: True, int: 1, torch.SymInt: 1, torch.SymBool: True}
    plain = [kinds.get(type(operand), 1.0) for operand in chosen if not isinstance(operand, torch.Tensor)]
    with_dims = [tensor.dtype for tensor in tensors if tensor.dim() > 0]
    without = [tensor.dtype for tensor in tensors if tensor.dim() == 0]
    dtype = functools.reduce(torch.promote_types, with_dims or without) if tensors else None
    if with_dims and without:
        other = torch.empty((), dtype=functools.reduce(torch.promote_types, without), device="meta")
        dtype = torch.result_type(torch.empty(1, dtype=dtype, device="meta"), other)
    for number in plain:
        before = number if dtype is None else torch.empty(1, dtype=dtype, device="meta")
        dtype = torch.result_type(before, number)
    return dtype


def _result_types(text, signature, backward, order, tensors, plain, places, wanted):
    inputs, outputs, _ = _C.describe_elementwise(text, signature, backward, order)
    t = _promoted(inputs, _operands(inputs, tensors, plain, places))
    return t, [
        t if dtype is None else _DTYPES[dtype] for place, (_, dtype, _) in enumerate(outputs) if wanted >> place & 1
    ]


def _fake(text, signature, backward, order, tensors, plain, places, wanted):
    _, dtypes = _result_types(text, signature, backward, order, tensors, plain, places, wanted)
    like = next((tensor for tensor in tensors if tensor.device.type != "cpu"), tensors[0])
    spread = torch.broadcast_tensors(*(tensor.to(like.device) for tensor in tensors))
    strides = torch._prims_common.compute_elementwise_output_strides(*spread)
    return [torch.empty_strided(spread[0].shape, strides, dtype=dtype, device=like.device) for dtype in dtypes]


def _vmap(info, dims, text, signature, backward, order, tensors, plain, places, wanted):
    inputs, _, has_index = _C.describe_elementwise(text, signature, backward, order)
    if has_index:
        raise NotImplementedError(f'elementwise: "{text}" depends on indices, which vmap changes')
    lists = dims[4]
    tensors = _as_promoted(inputs, tensors, lists, plain, places)
    rank = max(tensor.dim() - (dim is not None) for tensor, dim in zip(tensors, lists, strict=True))
    spread = []
    for tensor, dim in zip(tensors, lists, strict=True):
        if dim is not None:
            tensor = tensor.movedim(dim, 0)
            tensor = tensor.reshape(tensor.shape[:1] + (1,) * (rank + 1 - tensor.dim()) + tensor.shape[1:])
        spread.append(tensor)
    results = torch.ops.headrace.elementwise(text, signature, backward, order, spread, plain, places, wanted)
    return results, [0] * len(results)


def _as_promoted(inputs, tensors, dims, plain, places):
    """The tensors of type T in the dtype that they have without the dim of the batch: it would count in promotion."""
    without = [
        torch.empty(tensor.shape[:dim] + tensor.shape[dim + 1 :], dtype=tensor.dtype, device="meta")
        if dim is not None
        else tensor
        for tensor, dim in zip(tensors, dims, strict=True)
    ]
    t = _promoted(inputs, _operands(inputs, without, plain, places))
    declared = [dtype for place, (_, dtype, _) in enumerate(inputs) if not places >> place & 1]
    return [
        tensor.to(t) if dtype is None else tensor for tensor, dtype in zip(tensors, declared, strict=True)
    ]


# ---- the rows as torch's operators


def _divided(function):
    """Integers: 0 for a divisor of 0, as on the device."""

    def divide(a, b):
        if a.dtype.is_floating_point:
            return function(a, b)
        is_zero = b == 0
        return torch.where(is_zero, torch.zeros_like(a), function(a, torch.where(is_zero, torch.ones_like(b), b)))

    return divide


_FUNCTIONS = {
    "div_trunc": _divided(functools.partial(torch.div, rounding_mode="trunc")),
    "fmod": _divided(torch.fmod),
    "is_nan": torch.isnan,
    "is_inf": torch.isinf,
    "bit_and": torch.bitwise_and,
    "bit_or": torch.bitwise_or,
    "bit_xor": torch.bitwise_xor,
    "bit_not": torch.bitwise_not,
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "trigamma": functools.partial(torch.polygamma, 1),
}
_IN_BOOL = ("logical_and", "logical_or", "logical_not")
_COMPUTED_IN = {
    **dict.fromkeys((torch.float16, torch.bfloat16), torch.float32),
    **dict.fromkeys((torch.uint8, torch.int8, torch.uint16, torch.int16), torch.int32),
}


def _apply(row, dtype, operands, are_numbers):
    if row == "copy":
        return operands[0].to(dtype)
    function = _FUNCTIONS.get(row) or getattr(torch, row, None) or getattr(torch.special, row)
    if row == "where":
        return function(operands[0], operands[1].to(dtype), operands[2].to(dtype))
    if row in _IN_BOOL:
        return function(*operands)
    if dtype == torch.bool:  # a comparison, in the type of the tensors among its operands
        dtypes = [operand.dtype for operand, is_number in zip(operands, are_numbers, strict=True) if not is_number]
        dtype = functools.reduce(torch.promote_types, dtypes)
        dtype = _COMPUTED_IN.get(dtype, dtype)
    return function(*(operand.to(dtype) for operand in operands))


def _compose(text, signature, backward, order, tensors, plain, places, wanted):
    t, dtypes = _result_types(text, signature, backward, order, tensors, plain, places, wanted)
    inputs, outputs, _ = _C.describe_elementwise(text, signature, backward, order)
    operands = _operands(inputs, tensors, plain, places)
    sizes = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    device = tensors[0].device
    lines = _C.print_elementwise(text, signature, backward, order, t and _NAMES[t], places, tuple(sizes)).split("\n")
    values, are_numbers = [], []
    for line in lines[:-1]:
        kind, what, *rest = line.split()
        are_numbers.append(kind in ("number", "literal"))
        if kind == "input":
            values.append(operands[int(what)].to(_DTYPES[rest[0]]))
        elif kind == "number":
            value = torch.tensor(operands[int(what)], dtype=_DTYPES[rest[0]], device=device)
            values.append(-value if rest[1:] else value)
        elif kind == "literal":
            dtype = _DTYPES[rest[0]]
            values.append(torch.tensor(float(what) if dtype.is_floating_point else int(what), dtype=dtype))
        elif kind == "place":
            values.append(_place(int(what), sizes, device))
        else:
            places_of = [int(place) for place in rest[1:]]
            given = [values[place] for place in places_of], [are_numbers[place] for place in places_of]
            values.append(_apply(what, _DTYPES[rest[0]], *given))
    given = [int(place) for place in lines[-1].split()[1:]]
    chosen = [value for place, value in enumerate(given) if wanted >> place & 1]
    return [values[value].expand(sizes).to(dtype, copy=True) for value, dtype in zip(chosen, dtypes, strict=True)]


def _place(dim, sizes, device):
    if dim < 0:
        return torch.arange(sizes.numel(), device=device).reshape(sizes)
    return torch.arange(sizes[dim], device=device).reshape([-1] + [1] * (len(sizes) - dim - 1))
