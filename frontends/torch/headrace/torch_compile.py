"""torch.compile(model, backend="headrace"): a graph is captured once and appended to the stream in each call.

Dynamo and AOTAutograd produce FX graphs. The first call of one runs it on placeholders, and its records go into a
part of the core (headrace/part.h). Each later call is one call of an operator that makes the outputs, without memory,
and appends that part to the stream. So a compiled part fuses with its neighbours, a forward pass with its backward
pass and the optimizer, and gives the same bits as eager code.

A Python float that changes between calls is a number of the run, if the FX graph uses it in arithmetic with tensors
alone. Other numbers, and floats that an operation treats as special, are captured by value.

FX graphs without gradients bypass AOTAutograd: operations in place and views are recorded as they are.

An FX graph that can't be captured (it needs a value, computes on the host, or its inputs share memory that it writes)
runs operation by operation, is counted in torch.headrace.stats()["graph_eager_runs"], and logs why, once.
"""

import logging
import operator
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from headrace._library import _C
from headrace.bytecode import simplify
from headrace.counters import _note_eager_run

_log = logging.getLogger("headrace.torch_compile")
_C.open()  # whose operators are used below
_run = torch.ops.headrace.graph_run.default._op
_end = torch.ops.headrace.graph_end.default._op
_end_backward = torch.ops.headrace.graph_end_backward.default._op

# The first geometries of an FX graph's inputs, and the first values of its numbers, are captured at once; later ones
# when they come for the second time, since a capture costs more than eager code. So many programs, one for each set
# of numbers, are kept, and so many geometries are remembered as met once.
_AT_ONCE_MAX, _PROGRAMS_MAX, _MET_MAX, _FAILURES_MAX = 8, 64, 256, 3
# Two values of each float that becomes a number of the run. A scalar that is equal to both is that number.
_PROBES = (lambda place: 0.7312345678901234 + place / 1024, lambda place: 5.4398765432109876 + place / 512)
_NUMBER = "a number of the run"
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class CannotCaptureError(RuntimeError):
    """The FX graph has to run operation by operation."""


class _DependsOnNumbersError(RuntimeError):
    """The records depend on the value of a float by more than a scalar."""


class _NeedsAOTAutogradError(RuntimeError):
    """The FX graph's gradients depend on views or on changes in place, which AOTAutograd handles."""


def _is_on_device(value):
    return isinstance(value, torch.Tensor) and value.device.type == "headrace"


def _placeholder(tensor):
    """A tensor on the device with the geometry of `tensor`, in a storage that ends where it ends. Sizes may be
    symbols of a trace: their hints are used."""
    is_plain = type(tensor) in (*_PLAIN, FakeTensor) and tensor.layout == torch.strided
    if not is_plain or tensor.is_conj() or tensor.is_neg():
        raise CannotCaptureError(f"an input is a {type(tensor).__name__} that is not plain")
    if tensor.device.type not in ("headrace", "cpu"):
        raise CannotCaptureError(f"an input is on {tensor.device}")
    size, stride, offset = _hints(tensor.size()), _hints(tensor.stride()), _hint(tensor.storage_offset())
    extent = offset + (1 + sum((n - 1) * s for n, s in zip(size, stride)) if 0 not in size else 0)
    place = tensor.device if _is_on_device(tensor) else "headrace"
    storage = torch.empty(extent, dtype=tensor.dtype, device=place)
    return storage.as_strided(size, stride, offset).requires_grad_(tensor.requires_grad)


def _hint(number):
    return number.node.hint if isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool) else number


def _hints(numbers):
    return tuple(map(_hint, numbers))


class _Watch(TorchDispatchMode):
    """Refuses to bake host results of inputs or of random numbers into a graph; constants are allowed."""

    def __init__(self, keeps_places):
        super().__init__()
        self._keeps_places = keeps_places  # attention's position in the random sequence is on the host, and internal

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default:
            dropout = args[4] if len(args) > 4 else (kwargs or {}).get("dropout_p", 0.0)
            if self._keeps_places or dropout == 0.0:
                return result
        on_host = any(isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" for leaf in tree_leaves(result))
        if on_host and (
            torch.Tag.nondeterministic_seeded in function.tags or any(map(_is_on_device, tree_leaves((args, kwargs))))
        ):
            raise CannotCaptureError(f"{function} gives a tensor of the host")
        return result


class _Program:
    """The captured variants of one FX graph for one set of values of its integers."""

    def __init__(self, trains=False, by_aot=False):
        self.trains, self.by_aot = trains, by_aot
        self.handle = _C.program_create()
        self.variants = self.failures = 0
        self.template = None  # outputs other than tensors of the device; None stands for such a tensor
        weakref.finalize(self, _C.program_release, self.handle)

    def capture(self, module, expected_devices, values, tensors, number_places=()):
        """Runs the FX graph once on placeholders, and keeps its records, for the device of the first input. The floats
        at `number_places` become numbers of each run: then it runs twice, with other values."""
        with torch.headrace.device(next((tensor.device for tensor in tensors if _is_on_device(tensor)), None)):
            bind = _Binding(number_places) if number_places else None
            if bind is not None:
                self._capture(module, expected_devices, bind.probe(values), tensors, bind)
                values = bind.probe(values)
            self._capture(module, expected_devices, values, tensors, bind)

    def _capture(self, module, expected_devices, values, tensors, bind):
        with torch.inference_mode(False), torch.no_grad():  # tensors that count their changes
            placeholders = [_placeholder(tensor) for tensor in tensors]
        from_host = [i for i, tensor in enumerate(tensors) if tensor.device.type == "cpu"]
        given = iter(placeholders)
        inputs = [next(given) if isinstance(value, torch.Tensor) else _hint(value) for value in values]
        _C.capture_begin()
        try:
            with torch.set_grad_enabled(self.trains), _Watch(not self.by_aot):
                outputs = module(*inputs)
            own = [_is_on_device(output) for output in outputs]
            if any(is_own and expected == "cpu" for is_own, expected in zip(own, expected_devices)):
                raise CannotCaptureError("a result belongs on the host")
            results = [output for output, is_own in zip(outputs, own) if is_own]
            if self.trains and any(result.requires_grad for result in results):
                self._capture_backward(from_host, placeholders, results, bind)
            elif bind is None or bind.take((False,)):
                self.variants = _end(self.handle, from_host, placeholders, results)
            if not all(own):
                self.template = [None if is_own else (output,) for output, is_own in zip(outputs, own)]
                _C.program_mix(self.handle)
        finally:
            _C.capture_end()

    def _capture_backward(self, from_host, placeholders, results, bind):
        """The gradients of the differentiable results, as torch's autograd records them."""
        differentiable = [i for i, result in enumerate(results) if result.requires_grad]
        wanted = [i for i, placeholder in enumerate(placeholders) if placeholder.requires_grad]
        _C.capture_backward()
        roots = [results[i] for i in differentiable]
        tangents = [torch.empty_strided(r.size(), r.stride(), dtype=r.dtype, device=r.device) for r in roots]
        with torch.autograd.set_multithreading_enabled(False), _Watch(True):  # on this thread, whose work is captured
            gradients = torch.autograd.grad(roots, [placeholders[i] for i in wanted], tangents, allow_unused=True)
        wanted = [i for i, gradient in zip(wanted, gradients) if gradient is not None]
        gradients = [gradient for gradient in gradients if gradient is not None]
        if bind is not None and not bind.take((True, False)):
            return
        try:
            self.variants = _end_backward(
                self.handle, from_host, placeholders, results, differentiable, tangents, wanted, gradients
            )
        except RuntimeError as error:
            if "not differentiable here" in str(error):
                raise _NeedsAOTAutogradError(str(error)) from error
            raise

    def fill(self, results):
        """The FX graph's outputs: tensors of a run, numbers, and constants of the host."""
        if self.template is None:
            return results
        tensors = iter(results)
        rest = ((next(tensors),) if place is None else place for place in self.template)
        is_constant = lambda value: isinstance(value, torch.Tensor) and not _is_on_device(value)  # noqa: E731
        return [value.clone() if is_constant(value) else value for (value,) in rest]


class _Binding:
    """Finds the scalars of a capture that are numbers of the run, from two captures with other values of these."""

    def __init__(self, places):
        self._places, self._probes, self._scalars = places, [], []

    def probe(self, values):
        """The values with the next probe of each number."""
        probes = {place: _PROBES[len(self._probes)](place) for place in self._places}
        self._probes.append([probes[place] for place in self._places])
        return [probes.get(place, value) for place, value in enumerate(values)]

    def take(self, passes):
        """Takes the scalars of a capture's passes; binds those of the second capture, and is true then."""
        self._scalars.append([_C.capture_scalars(of_forward) for of_forward in passes])
        if len(self._scalars) == 2:
            for of_forward, first, second in zip(passes, *self._scalars):
                _C.capture_bind(of_forward, self._match(first, second))
        return len(self._scalars) == 2

    def _match(self, first, second):
        if len(first) != len(second):
            raise _DependsOnNumbersError(f"{len(first)} and {len(second)} scalars")
        bound = []
        for place, pair in enumerate(zip(first, second)):
            if repr(pair[0]) == repr(pair[1]):
                continue
            found = [(n, sign < 0) for n, probes in enumerate(zip(*self._probes)) for sign in (1, -1)
                     if pair == (sign * probes[0], sign * probes[1])]  # fmt: skip
            if not found:
                raise _DependsOnNumbersError(f"scalar {place}")
            bound.append((place, *found[0]))
        return bound


class Graph:
    """An FX graph and its captures. If it cannot be captured, `module` runs as it is."""

    def __init__(self, module, trains=False, by_aot=False):
        self._numbers = _take_numbers(module)  # places of inputs
        self._number_places = sorted(place for place in self._numbers if _is_arithmetic(module, place))
        self.module, self._attributes = _lift_attributes(module)
        self._kind = trains, by_aot
        self._programs, self._at_once, self._met = {}, 0, {}
        self._reasons = set()
        self._expected_devices = _output_devices(module)

    def function(self):
        """A callable of the FX graph's arguments; the direct C++ function if all inputs and outputs are tensors."""
        attributes = self._attributes
        if not _is_tensors_alone(self.module):
            return self._call_mixed if not attributes else lambda *values: self._call_mixed(*values, *attributes)
        program = self._programs.setdefault((), _Program(*self._kind))
        handle, run, missed = program.handle, _run, self._call_missed

        def call(*tensors):
            """The cases that the C++ function leaves to Python: new geometries, results that are not all on the
            device."""
            tensors += attributes
            results = run(handle, tensors)
            if results and results[0] is None:
                return missed(program, tensors, tensors)
            return results if program.template is None else program.fill(results)

        attributes = tuple(attributes)
        return _C.make_function(handle, call, list(attributes))

    def _call_mixed(self, *values):
        is_number = lambda place, value: place in self._numbers and isinstance(value, torch.Tensor)  # noqa: E731
        values = [value.item() if is_number(place, value) else value for place, value in enumerate(values)]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        given = self._numbers_of_run(values)
        numbers = _key(_NUMBER if given and place in self._number_places else v for place, v in enumerate(values))
        program = self._programs.pop(numbers, None)
        if program is not None:
            self._programs[numbers] = program  # now the last that would be dropped
            results = _run(program.handle, tensors, given) if program.variants else [None]
            if not results or results[0] is not None:
                return program.fill(results)
        return self._call_missed(program, values, tensors, numbers, given)

    def _numbers_of_run(self, values):
        """The floats that a run passes; none of them if one is special to an operation, or too large for a dtype."""
        given = [values[place] for place in self._number_places]
        is_usual = all(isinstance(number, float) and 0 < abs(number) < 6e4 and abs(number) != 1 for number in given)
        return given if is_usual else []

    def capture_ahead(self, values):
        """Captures for the inputs of a trace; raises the reason if that fails."""
        if self._numbers:
            return  # their values come with the first call
        values = [*values, *self._attributes]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        program = self._programs[_key(map(_hint, values))] = _Program(*self._kind)
        self._at_once += 1
        with _disable_current_modes():
            program.capture(self.module, self._expected_devices, values, tensors)

    def _call_missed(self, program, values, tensors, numbers=(), given=()):
        """No variant fits the inputs: captures one, or runs the FX graph as it is."""
        if program is not None and program.failures >= _FAILURES_MAX:
            return self._run_eagerly(values, "it failed before")
        if not self._is_worth_capturing(numbers, tensors):
            return self.module(*values)
        if program is None:
            if len(self._programs) >= _PROGRAMS_MAX:
                self._programs.pop(next(iter(self._programs)))
            program = self._programs[numbers] = _Program(*self._kind)
        try:
            program.capture(self.module, self._expected_devices, values, tensors, self._number_places if given else ())
        except _DependsOnNumbersError as error:
            _log.info("headrace: floats are captured by value: %s", error)
            self._number_places = []
            self._programs.pop(numbers, None)
            return self._call_mixed(*values)
        except Exception as error:  # any error: the FX graph itself raises a better one
            program.failures += 1
            return self._run_eagerly(values, str(error).splitlines()[0] if str(error) else repr(error))
        results = _run(program.handle, list(tensors), list(given))
        if not results or results[0] is not None:
            return program.fill(results)
        program.failures += 1
        return self._run_eagerly(values, "an input that it writes shares memory with another")

    def _is_worth_capturing(self, numbers, tensors):
        if self._at_once < _AT_ONCE_MAX:
            self._at_once += 1
            return True
        geometry = numbers, tuple((t.device, t.dtype, t.size(), t.stride(), t.storage_offset()) for t in tensors)
        if self._met.pop(geometry, False):
            return True
        if len(self._met) >= _MET_MAX:
            self._met.pop(next(iter(self._met)))
        self._met[geometry] = True
        return False

    def _run_eagerly(self, values, reason):
        _note_eager_run()
        if reason not in self._reasons:
            self._reasons.add(reason)
            _log.warning("headrace: a compiled graph runs operation by operation: %s", reason)
        return self.module(*values)


def _key(values):
    """The numbers among the values, so that equal keys are the same numbers: 0.0 is not -0.0, and not 0."""
    numbers = (value for value in values if not isinstance(value, torch.Tensor))
    return tuple((type(n), n.hex() if isinstance(n, float) else n) for n in numbers)


# ---- properties of FX graphs


def _value(node):
    return node.meta.get("val", node.meta.get("example_value")) if isinstance(node, torch.fx.Node) else node


def _outputs(module):
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    return output.args[0] if isinstance(output.args[0], (list, tuple)) else [output.args[0]]


def _is_tensors_alone(module):
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    return all(isinstance(_value(node), torch.Tensor) for node in [*inputs, *_outputs(module)])


def _output_devices(module):
    """The device of each output in torch; None for outputs that are not new tensors."""
    devices = []
    for node in _outputs(module):
        value = _value(node)
        is_new = isinstance(node, torch.fx.Node) and node.op not in ("placeholder", "get_attr")
        devices.append(value.device.type if is_new and isinstance(value, torch.Tensor) else None)
    return devices


def touches_device(module, inputs):
    """True if an input or an operation of the FX graph is on the device."""
    return any(map(_is_on_device, inputs)) or any(
        _is_on_device(leaf) for node in module.graph.nodes for leaf in tree_leaves(_value(node))
    )


_CHANGES_GRAD = (torch._C._set_grad_enabled, torch.enable_grad, torch.autograd.grad)


def _needs_autograd(module, inputs):
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return True
    return any(
        node.target in _CHANGES_GRAD or node.target in ("requires_grad_", "backward") for node in module.graph.nodes
    )


# ---- rewriting

# Operations, in torch's and in Python's names, whose records contain a number as a scalar, whatever its value is.
_ARITHMETIC = set(
    "add sub mul div iadd isub imul itruediv truediv true_divide multiply subtract divide rsub addcmul addcdiv lerp "
    "gt ge lt le _foreach_add _foreach_sub _foreach_mul _foreach_div _foreach_addcmul _foreach_addcdiv "
    "_foreach_lerp".split()
)


def _is_arithmetic(module, place):
    """True if the number at this place of the inputs goes into arithmetic with tensors, and nowhere else."""
    number = [node for node in module.graph.nodes if node.op == "placeholder"][place]
    for node in number.users:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        is_tensor = all(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(_value(node)))
        if node.op == "output" or name.split(".")[0].rstrip("_") not in _ARITHMETIC or not is_tensor:
            return False
    return True


_ITEM = ("item", torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


def _take_numbers(module):
    """Dynamo passes a Python float that has changed as a tensor of the host, whose item() the FX graph takes. Such an
    input becomes the number itself. Gives the places of these inputs."""
    places = set()
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    for place, node in enumerate(inputs):
        value, users = _value(node), list(node.users)
        is_number = isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() == 0 and users
        if is_number and all(user.op.startswith("call") and user.target in _ITEM for user in users):
            places.add(place)
            node.meta["val"] = _value(users[0])
            for user in users:
                user.replace_all_uses_with(node)
                module.graph.erase_node(user)
    if places:
        module.recompile()
    return places


def _lift_attributes(module):
    """Attributes of the FX graph that are tensors (an optimizer's state) become its last inputs: it may change them,
    but a capture must not. Returns the FX graph and those tensors; dynamo keeps its own."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    nodes = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            value = module
            for name in node.target.split("."):
                value = getattr(value, name)
            if isinstance(value, torch.Tensor):
                nodes.setdefault(id(value), (value, []))[1].append(node)
    last = [node for node in graph.nodes if node.op == "placeholder"][-1:]
    for number, (value, users) in enumerate(nodes.values()):
        with graph.inserting_after(last[0]) if last else graph.inserting_before(next(iter(graph.nodes))):
            lifted = graph.placeholder(f"attribute_{number}")
        lifted.meta["val"] = value
        last = [lifted]
        for node in users:
            node.replace_all_uses_with(lifted)
            graph.erase_node(node)
    return torch.fx.GraphModule(module, graph) if nodes else module, [value for value, _ in nodes.values()]


_aten = torch.ops.aten
_STRIDED = (_aten.as_strided.default, _aten.as_strided_scatter.default)


def _with_strides(tensor, strides):
    """The tensor with these strides: itself, or a copy."""
    if tensor.stride() == tuple(strides):
        return tensor
    return torch.empty_strided(tensor.size(), strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _trust_no_strides(module):
    """AOTAutograd traces with the strides that torch's meta kernels promise; the device's may differ. A view that fits
    the promised ones becomes a reshape, and operations that read strides get the promised ones."""
    for node in list(module.graph.nodes):
        if node.target in (_aten.view.default, _aten._unsafe_view.default):
            node.target = _aten.reshape.default
        elif node.target in _STRIDED and node.args[0].op != "placeholder":
            with module.graph.inserting_before(node):
                restrided = module.graph.call_function(_with_strides, (node.args[0], _value(node.args[0]).stride()))
            node.replace_input_with(node.args[0], restrided)


def _update_statistics_in_place(module):
    """Batch norm that returns new running statistics, and the copies of them into the old ones, become the operator
    that updates the old ones."""
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
    function = Graph(module, by_aot=True).function()

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
    if not touches_device(module, inputs):
        return module.forward
    simplify(module)
    if any(map(is_traceable_wrapper_subclass, inputs)):
        return _compile_with_autograd(module, inputs)
    graph = Graph(module, trains=_needs_autograd(module, inputs))
    try:
        graph.capture_ahead(inputs)
    except _NeedsAOTAutogradError:
        return _compile_with_autograd(module, inputs)
    except Exception as error:  # the first call reports it, and runs the FX graph
        _log.info("headrace: %s", error)
    return graph.function()
