"""torch.compile(model, backend="headrace"): what repeats is captured once and appended to the stream from then on.

Dynamo and AOTAutograd give FX graphs. The first call of one runs it on placeholders while everything that it would
record goes into a graph of the core (headrace/graph.h); each later call is one call of an operator that makes the
outputs, without memory, and appends that graph to the stream. So a compiled part fuses with whatever stands
before and behind it, a forward pass with its backward pass and the optimizer, and gives the same bits as eager code.

What needs no gradients goes without AOTAutograd: operations in place and views are recorded as they are.

An FX graph that can't be captured (it needs a value, computes on the host, or its inputs share memory that it
writes) runs operation by operation, is counted in torch.headrace.stats()["graph_eager_runs"], and logs why, once.
"""

import ctypes
import logging
import operator
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from headrace.torch import _call, _library, _note_eager_run

_log = logging.getLogger("headrace.compile")
_library.headrace_torch_program_create.restype = ctypes.c_int64
_library.headrace_torch_program_release.argtypes = [ctypes.c_int64]
_run = torch.ops.headrace.graph_run.default._op
_end = torch.ops.headrace.graph_end.default._op

# An FX graph keeps this many geometries of its inputs (sizes are guarded by dynamo; offsets into storages are not), and
# this many sets of values of its integers.
_VARIANTS_MAX, _PROGRAMS_MAX, _FAILURES_MAX = 16, 64, 3
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class CannotCaptureError(RuntimeError):
    """The FX graph has to run operation by operation."""


def _is_on_device(value):
    return isinstance(value, torch.Tensor) and value.device.type == "headrace"


def _placeholder(tensor):
    """A tensor on the device with the geometry of `tensor`, in a storage that ends where it ends."""
    if type(tensor) not in _PLAIN or tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        raise CannotCaptureError(f"an input is a {type(tensor).__name__} that is not plain")
    if tensor.device.type not in ("headrace", "cpu"):
        raise CannotCaptureError(f"an input is on {tensor.device}")
    size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
    extent = offset + (1 + sum((n - 1) * s for n, s in zip(size, stride)) if tensor.numel() else 0)
    return torch.empty(extent, dtype=tensor.dtype, device="headrace").as_strided(size, stride, offset)


class _Watch(TorchDispatchMode):
    """Refuses to bake into a graph what the host computes from inputs or from chance; constants are fine."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default:
            dropout = args[4] if len(args) > 4 else (kwargs or {}).get("dropout_p", 0.0)
            if dropout == 0.0:  # then the place in the random sequence, on the host, means nothing
                return result
        on_host = any(isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" for leaf in tree_leaves(result))
        if on_host and (
            torch.Tag.nondeterministic_seeded in function.tags or any(map(_is_on_device, tree_leaves((args, kwargs))))
        ):
            raise CannotCaptureError(f"{function} gives a tensor of the host")
        return result


class _Program:
    """The captured variants of one FX graph for one set of values of its integers."""

    def __init__(self):
        self.handle = _library.headrace_torch_program_create()
        self.variants = self.failures = 0
        self.template = None  # what the FX graph gives besides tensors of the device: None in such a tensor's place
        weakref.finalize(self, _library.headrace_torch_program_release, self.handle)

    def capture(self, module, expected_devices, values, tensors):
        """Runs the FX graph once on placeholders, and keeps what it records."""
        placeholders = [_placeholder(tensor) for tensor in tensors]
        from_host = [i for i, tensor in enumerate(tensors) if tensor.device.type == "cpu"]
        given = iter(placeholders)
        inputs = [next(given) if isinstance(value, torch.Tensor) else value for value in values]
        _call("capture_begin")
        try:
            with torch.no_grad(), _Watch():
                outputs = module(*inputs)
            own = [_is_on_device(output) for output in outputs]
            if any(is_own and expected == "cpu" for is_own, expected in zip(own, expected_devices)):
                raise CannotCaptureError("a result belongs on the host")
            results = [output for output, is_own in zip(outputs, own) if is_own]
            self.variants = _end(self.handle, from_host, placeholders, results)
            if not all(own):
                self.template = [None if is_own else (output,) for output, is_own in zip(outputs, own)]
        finally:
            _library.headrace_torch_capture_end()

    def fill(self, results):
        """The FX graph's outputs: tensors of a run, numbers, and constants of the host."""
        if self.template is None:
            return results
        tensors = iter(results)
        rest = ((next(tensors),) if place is None else place for place in self.template)
        is_constant = lambda value: isinstance(value, torch.Tensor) and not _is_on_device(value)  # noqa: E731
        return [value.clone() if is_constant(value) else value for (value,) in rest]


class Graph:
    """An FX graph on its way to the stream. `module` is run as it is where it can't be captured."""

    def __init__(self, module):
        self.module = module
        self._programs = {}
        self._reasons = set()
        self._expected_devices = _output_devices(module)

    def function(self):
        """A callable of the FX graph's arguments; of graphs that take and give tensors alone, as direct as can be."""
        if not _is_tensors_alone(self.module):
            return self._call_mixed
        program = self._programs[()] = _Program()
        handle, run, missed = program.handle, _run, self._call_missed

        def call(*tensors):
            results = run(handle, tensors)
            if results and results[0] is None:
                return missed(program, tensors, tensors)
            return results if program.template is None else program.fill(results)

        return call

    def _call_mixed(self, *values):
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        numbers = tuple((type(value), value) for value in values if not isinstance(value, torch.Tensor))
        program = self._programs.get(numbers)
        if program is None:
            if len(self._programs) >= _PROGRAMS_MAX:
                self._programs.pop(next(iter(self._programs)))
            program = self._programs[numbers] = _Program()
        results = _run(program.handle, tensors) if program.variants else [None]
        if results and results[0] is None:
            return self._call_missed(program, values, tensors)
        return program.fill(results)

    def _call_missed(self, program, values, tensors):
        """No variant fits the inputs: captures one, or runs the FX graph as it is."""
        if program.variants < _VARIANTS_MAX and program.failures < _FAILURES_MAX:
            try:
                program.capture(self.module, self._expected_devices, values, tensors)
            except Exception as error:  # whatever it is, the FX graph itself says it better
                program.failures += 1
                return self._run_eagerly(values, str(error).splitlines()[0] if str(error) else repr(error))
            results = _run(program.handle, list(tensors))
            if not results or results[0] is not None:
                return program.fill(results)
            program.failures += 1
            return self._run_eagerly(values, "an input that it writes shares memory with another")
        return self._run_eagerly(values, "its inputs have too many geometries, or it failed before")

    def _run_eagerly(self, values, reason):
        _note_eager_run()
        if reason not in self._reasons:
            self._reasons.add(reason)
            _log.warning("headrace: a compiled graph runs operation by operation: %s", reason)
        return self.module(*values)


# ---- what FX says


def _value(node):
    return node.meta.get("val", node.meta.get("example_value")) if isinstance(node, torch.fx.Node) else node


def _outputs(module):
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    return output.args[0] if isinstance(output.args[0], (list, tuple)) else [output.args[0]]


def _is_tensors_alone(module):
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    return all(isinstance(_value(node), torch.Tensor) for node in [*inputs, *_outputs(module)])


def _output_devices(module):
    """Where torch would put each output; None for those that are no new tensor."""
    devices = []
    for node in _outputs(module):
        value = _value(node)
        is_new = isinstance(node, torch.fx.Node) and node.op not in ("placeholder", "get_attr")
        devices.append(value.device.type if is_new and isinstance(value, torch.Tensor) else None)
    return devices


def _touches_device(module, inputs):
    return any(map(_is_on_device, inputs)) or any(
        _is_on_device(leaf) for node in module.graph.nodes for leaf in tree_leaves(_value(node))
    )


_CHANGES_GRAD = (torch._C._set_grad_enabled, torch.enable_grad, torch.autograd.grad)


def _needs_autograd(module, inputs):
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if any(is_traceable_wrapper_subclass(tensor) for tensor in tensors):
        return True
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return True
    return any(
        node.target in _CHANGES_GRAD or node.target in ("requires_grad_", "backward") for node in module.graph.nodes
    )


# ---- rewriting

_aten = torch.ops.aten
_STRIDED = (_aten.as_strided.default, _aten.as_strided_scatter.default)


def _with_strides(tensor, strides):
    """The tensor with these strides: itself, or a copy."""
    if tensor.stride() == tuple(strides):
        return tensor
    return torch.empty_strided(tensor.size(), strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _trust_no_strides(module):
    """AOTAutograd traces with the strides that torch's meta kernels promise; the device's may differ. A view that fits
    the promised ones becomes a reshape, and what counts strides gets them."""
    for node in list(module.graph.nodes):
        if node.target in (_aten.view.default, _aten._unsafe_view.default):
            node.target = _aten.reshape.default
        elif node.target in _STRIDED and node.args[0].op != "placeholder":
            with module.graph.inserting_before(node):
                restrided = module.graph.call_function(_with_strides, (node.args[0], _value(node.args[0]).stride()))
            node.replace_input_with(node.args[0], restrided)


def _update_statistics_in_place(module):
    """Batch norm that gives new running statistics, and copies of them into the old ones, become the operator that
    updates the old ones."""
    for node in list(module.graph.nodes):
        if node.target is not _aten._native_batch_norm_legit_functional.default:
            continue
        given = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        copies = []
        for place, old in ((3, node.args[3]), (4, node.args[4])):
            users = list(given[place].users) if place in given else []
            last = users[0] if len(users) == 1 and users[0].target is _aten.copy_.default else None
            others = [user for user in old.users if user not in (node, last) and user.op != "output"]
            if last is None or last.users or last.args[0] is not old or old.op != "placeholder" or others:
                break
            copies.append(last)
        if len(copies) == 2:
            for dropped in (*copies, given[3], given[4]):
                module.graph.erase_node(dropped)
            node.target = _aten._native_batch_norm_legit.default


# ---- the backend


def _compile_boxed(module, inputs):
    _trust_no_strides(module)
    _update_statistics_in_place(module)
    module.recompile()
    function = Graph(module).function()

    def call(values):
        result = function(*values)
        values.clear()
        return result

    call._boxed_call = True
    return call


def _compile_with_autograd(module, inputs):
    from functorch.compile import default_partition
    from torch._dynamo.backends.common import aot_autograd

    compiler = aot_autograd(
        fw_compiler=_compile_boxed, partition_fn=default_partition, keep_inference_input_mutations=True
    )
    return compiler(module, inputs)


def headrace(module, inputs, *, mode=None, options=None):
    """The backend: dynamo calls it with each FX graph that it traced."""
    if options:
        raise ValueError(f"the headrace backend has no options, but got: {', '.join(map(str, options))}")
    if not _touches_device(module, inputs):
        return module.forward
    if _needs_autograd(module, inputs):
        return _compile_with_autograd(module, inputs)
    return Graph(module).function()
