"""torch.headrace.compile_kernel: kernels in C that run as operations of the device (headrace/module.h).

A call on plain tensors goes to the core. While torch.compile traces, under a mode, and for fake tensors it goes to the
operator torch.ops.headrace.run_kernel, which changes the tensors that the kernel writes.
"""

import functools
from collections.abc import Sequence

import torch

from headrace._library import _C

_modules = {}  # by source; the core keeps them as long as the process


def compile_kernel(source):
    """Compiles kernels in C, as torch.mps.compile_shader does in Metal.

        library = torch.headrace.compile_kernel('''
            kernel void softshrink(in float *x, out float *y, float l) {
              y[i] = x[i] > l ? x[i] - l : (x[i] < -l ? x[i] + l : 0);
            }''')
        library.softshrink(x, y, 0.5)

    source: functions `kernel void name(...)`. Pointers are declared `in`, `out` (contents before: undefined) or
    `inout`, to dense, row-major elements of a tensor; other parameters are numbers. Types: float, double, bool, char,
    short, int, long, their unsigned forms, half, bfloat16. `i` is the thread's number along the first dim of the grid,
    `thread(d)` and `threads(d)` those of dim d. Functions are math.h's, and row_sum, row_max, row_min, row_dot.
    docs/custom-kernels.md has the whole language.

    Returns an object with the kernels as functions: `library.name(*arguments, threads=None, group_size=None,
    arg_casts=None)`. threads: the grid, a number or up to three; default: one thread for each element of the first
    tensor that is written. group_size: threads of a group on a GPU; it changes no result. arg_casts: accepted for
    compatibility; a number always has the type of its parameter.

    A call records one operation and waits for nothing. It returns None. Tensors of any strides are allowed; those that
    are written must not overlap. A kernel has no gradient of its own: use torch.autograd.Function.

    Errors: SyntaxError for a source that does not compile, with its lines; RuntimeError without a C compiler;
    TypeError and ValueError for arguments, with the kernel's and the parameter's name.
    """
    if not isinstance(source, str):
        raise TypeError(f"compile_kernel: expected a source of type str, found {type(source).__name__}")
    _C.open()
    _define_operator()
    return Library(source)


def _module_of(source):
    """The module of a source with its kernels: {name: (number, parameters)}."""
    if source not in _modules:
        module = _C.make_module(source)
        kernels = {name: (number, parameters) for number, (name, parameters) in enumerate(_C.describe_module(module))}
        _modules[source] = (module, kernels)
    return _modules[source]


class Library:
    """The kernels of a source as functions; made by compile_kernel."""

    def __init__(self, source):
        _, kernels = _module_of(source)
        self._names = tuple(kernels)
        for name, (number, parameters) in kernels.items():
            setattr(self, name, Kernel(source, name, number, parameters))

    def __dir__(self):
        return [*super().__dir__(), *self._names]

    def __getattr__(self, name):  # only for what is missing
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"the source has no kernel {name!r}, but {', '.join(self._names)}")

    def __repr__(self):
        return f"<headrace kernels: {', '.join(self._names)}>"


class Kernel:
    """A kernel of a source; see compile_kernel."""

    def __init__(self, source, name, number, parameters):
        self.source, self.name, self.parameters = source, name, parameters
        self._number, self._module = number, _module_of(source)[0]

    def __call__(self, *arguments, threads=None, group_size=None, arg_casts=None):
        grid, group = _sizes(self.name, "threads", threads), _sizes(self.name, "group_size", group_size)
        if torch.compiler.is_compiling() or _is_seen(arguments):
            _call_operator(self, arguments, grid, group)
        else:
            _C.run_module(self._module, self._number, arguments, grid, group)

    def __repr__(self):
        words = ", ".join(
            f"{dtype} {name}" if kind == "number" else f"{kind} {dtype} *{name}"
            for name, kind, dtype in self.parameters
        )
        return f"<headrace kernel {self.name}({words})>"


def _sizes(kernel, what, sizes):
    if sizes is None:
        return None
    sizes = tuple(sizes) if isinstance(sizes, Sequence) else (sizes,)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(size, int) for size in sizes):
        raise TypeError(f"kernel {kernel}: expected {what} to be one to three integers, found {sizes}")
    return sizes


# ---- the operator


def _is_seen(arguments):
    """True if a mode, a transform or a subclass has to see the call."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.maybe_current_level() is not None
        or any(type(x) not in (torch.Tensor, torch.nn.Parameter) for x in arguments if isinstance(x, torch.Tensor))
    )


def _call_operator(kernel, arguments, grid, group):
    if len(arguments) != len(kernel.parameters):
        raise TypeError(f"kernel {kernel.name}: expected {len(kernel.parameters)} arguments, found {len(arguments)}")
    reads, writes, numbers = [], [], []
    for (name, kind, dtype), argument in zip(kernel.parameters, arguments, strict=True):
        if kind == "number":
            numbers.append(argument)
        elif not isinstance(argument, torch.Tensor):
            raise TypeError(
                f"kernel {kernel.name}, parameter {name}: expected a tensor of {dtype}, found {type(argument).__name__}"
            )
        else:
            (reads if kind == "in" else writes).append(argument)
    torch.ops.headrace.run_kernel(kernel.source, kernel.name, writes, reads, numbers, grid or (), group or ())


def _run_kernel(
    source: str,
    name: str,
    writes: Sequence[torch.Tensor],
    reads: Sequence[torch.Tensor],
    numbers: Sequence[int | float | bool],
    threads: Sequence[int],
    group: Sequence[int],
) -> None:
    module, kernels = _module_of(source)
    number, parameters = kernels[name]
    queues = {"in": iter(reads), "out": iter(writes), "number": iter(numbers)}
    queues["inout"] = queues["out"]
    arguments = tuple(next(queues[kind]) for _, kind, _ in parameters)
    with torch.no_grad():
        _C.run_module(module, number, arguments, tuple(threads) or None, tuple(group) or None)


def _run_batch(info, in_dims, source, name, writes, reads, numbers, threads, group):
    """The rule of torch.vmap: one call for each place of the batch, since a kernel's source says nothing of batches."""
    _, _, write_dims, read_dims, *_ = in_dims
    if None in write_dims:
        raise RuntimeError(
            f"kernel {name}: output {write_dims.index(None)} has no dimension that vmap maps, but an input has: make it"
            " from that input, as by torch.empty_like"
        )

    def at(place, tensors, dims):
        return [x if dim is None else x.select(dim, place) for x, dim in zip(tensors, dims, strict=True)]

    for place in range(info.batch_size):
        torch.ops.headrace.run_kernel(
            source, name, at(place, writes, write_dims), at(place, reads, read_dims), numbers, threads, group
        )
    return None, None


@functools.cache
def _define_operator():  # not when the module is imported: it takes torch's custom operators with it
    torch.library.custom_op("headrace::run_kernel", _run_kernel, mutates_args=("writes",))
    torch.library.register_vmap("headrace::run_kernel", _run_batch)
