"""Calls of `tf.function`s with tensors of dtypes and dims that they have seen.

TensorFlow binds the arguments of each call to the function's signature several times, and makes types of them that it
compares with those of the traced functions. It takes as long in Python as the rest of a call. Here dtypes and dims of
tensors and arrays, also in tuples, lists and dicts, find the traced function of an earlier call.

If the graph of the function is one cluster, a call is the eager operation HeadraceCall (direct.h). TensorFlow's
executor with its threads has no part in it.

The plug-in runs this file when it creates a device, as jit.py.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

LITERALS = (bool, int, str, type(None))
STRUCTURES = (tuple, list, dict)
CALLS_MAX = 256  # of one function
TRIES_MAX = 3  # to find its cluster
NUMBERS_MAX = 1 << 12  # that describe a cluster


class Found:
    """The traced function for dtypes and dims of arguments."""

    __slots__ = ("attributes", "count", "function", "is_same", "operands", "results", "traces", "tries")

    def __init__(self, function: Any, traces: int, is_same: bool, tries: int) -> None:
        self.function, self.traces = function, traces  # at so many traces
        self.is_same, self.tries = is_same, tries  # its inputs are the tensors in order
        self.operands: Any = None  # places of the cluster's operands among the arguments; None: not the operation

    def use_cluster(self, numbers: list, inputs: list) -> None:
        cluster, input_count, variable_count, self.count, *rest = numbers
        types, places = rest[: self.count], rest[self.count :]
        operands, self.results = places[: input_count + variable_count], places[input_count + variable_count :]
        if 0 not in types and max(operands, default=0) < len(inputs):
            of_inputs = [inputs[place]._datatype_enum() for place in operands[:input_count]]
            self.attributes = "Tin", of_inputs, "n", variable_count, "Tout", types, "cluster", cluster
            self.operands = operands  # the last one: other threads look at it


def shorten_calls(watch_address: int, find_address: int, devices: tuple) -> None:
    """Lets functions find what they have traced by dtypes and dims, and call clusters by the plug-in's functions, if
    one of these is the current device.

    An error (ImportError, AttributeError) means that TensorFlow's code is not the one that is known here.
    """
    import numpy as np
    from tensorflow.python import _pywrap_tensorflow_internal as internal
    from tensorflow.python.eager import cancellation, context, execute, record
    from tensorflow.python.eager.polymorphic_function import concrete_function, function_type_utils
    from tensorflow.python.eager.polymorphic_function import polymorphic_function, tracing_compilation
    from tensorflow.python.framework import dtypes, errors, ops
    from tensorflow.python.profiler import trace
    from tensorflow.python.saved_model import save_context

    call = polymorphic_function.Function._call
    if hasattr(call, "of_headrace"):
        return
    concrete, tensor, array = concrete_function.ConcreteFunction, ops.EagerTensor, np.ndarray
    call_concrete = concrete._call_impl
    handles = {dtypes.resource.as_datatype_enum, dtypes.variant.as_datatype_enum}
    handle_of = ctypes.PyDLL(internal.__file__)._Z18EagerTensor_HandlePK7_object
    handle_of.restype, handle_of.argtypes = ctypes.c_void_p, [ctypes.py_object]
    watch = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_bool)(watch_address)
    pointers = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]
    find = ctypes.CFUNCTYPE(ctypes.c_int, *pointers)(find_address)

    def describe(values: Any, key: list, inputs: list) -> bool:
        """Adds the values to the key, and tensors and arrays to the inputs. False: there are others than these and
        literals, also in tuples, lists and dicts."""
        for value in values:
            kind = type(value)
            if kind is tensor:
                dtype = value._datatype_enum()
                if dtype in handles:
                    return False
                key += (dtype, value._shape_tuple())
                inputs.append(value)
            elif kind in LITERALS:
                key += (kind, value)
            elif kind is array and value.dtype.kind in "biufc" and value.dtype.isnative:
                key += (dtypes.as_dtype(value.dtype).as_datatype_enum, value.shape)
                inputs.append(value)
            elif kind in STRUCTURES and (kind is not dict or all(type(name) is str for name in value)):
                key += (kind, len(value), *(sorted(value) if kind is dict else ()))
                if not describe(parts_of(value), key, inputs):
                    return False
            else:
                return False
        return True

    def parts_of(value: Any) -> Any:
        """In TensorFlow's order."""
        return [value[name] for name in sorted(value)] if type(value) is dict else value

    def key_of(args: tuple, kwds: dict) -> Any:
        """The key, None for other arguments, and the inputs."""
        key: list = [len(args), *kwds]
        inputs: list = []
        is_known = describe(args, key, inputs) and describe(kwds.values(), key, inputs)
        return tuple(key) if is_known else None, inputs

    def to_tensors(inputs: list) -> list:
        return [value if type(value) is tensor else ops.convert_to_tensor(value) for value in inputs]

    def with_tensors(value: Any, tensors: Iterator) -> Any:
        """The value with the tensors in place of its own, in order."""
        kind = type(value)
        if kind is dict:
            return {name: with_tensors(value[name], tensors) for name in sorted(value)}
        if kind in STRUCTURES:
            return kind(with_tensors(part, tensors) for part in value)
        return next(tensors) if kind in (tensor, array) else value

    def is_usual(options: Any) -> bool:
        """False if the traced function depends on more than the arguments."""
        return (
            options is not None
            and options.function_cache is not None
            and not options.is_pure
            and context.context().executing_eagerly()
            and not ops.get_default_graph()._distribution_strategy_stack
            and not save_context.in_save_context()
            and not (options.function_captures and options.function_captures.by_ref_external)
        )

    def arguments_of(args: tuple, kwds: dict, tensors: list) -> tuple:
        """The arguments with tensors in place of arrays."""
        rest = iter(tensors)
        return with_tensors(args, rest), {name: with_tensors(value, rest) for name, value in kwds.items()}

    def learn(function: Any, inputs: list, tensors: list, traces: int) -> Found:
        is_same = len(inputs) == len(tensors) and all(
            a is b and a.dtype == wanted.dtype for a, b, wanted in zip(inputs, tensors, function.inputs, strict=False)
        )
        body = function._inference_function
        calls_others = function.graph._functions or body.children or body._call_options.control_captures
        return Found(function, traces, is_same, 0 if calls_others or type(function) is not concrete else TRIES_MAX)

    def learn_trace(self: Any, options: Any, args: tuple, kwds: dict, tensors: list) -> Found:
        args, kwds = arguments_of(args, kwds, tensors)
        try:
            bound = function_type_utils.canonicalize_function_inputs(
                args, kwds, self._function_type, self._default_values
            )
        except TypeError:  # a signature to which arrays are cast, but no tensors
            return Found(None, len(options.function_cache), False, 0)
        function = tracing_compilation.trace_function(bound.args, bound.kwargs, options)
        inputs = function.function_type.unpack_inputs(function.function_type.bind(*bound.args, **bound.kwargs))
        return learn(function, inputs, tensors, len(options.function_cache))

    def learn_concrete(function: Any, args: tuple, kwds: dict, tensors: list) -> Found:
        args, kwds = arguments_of(args, kwds, tensors)
        try:
            bound = function_type_utils.canonicalize_function_inputs(args, kwds, function.function_type)
            inputs = function.function_type.unpack_inputs(bound)
        except TypeError:  # they are flat
            inputs = [] if kwds else list(args)
        found = learn(function, inputs, tensors, 0)
        found.function = None  # no cycle
        return found

    def may_be_operation() -> bool:
        """False if TensorFlow does more in a call than to run the function."""
        ctx = context.context()
        return (
            not record.could_possibly_record()
            and cancellation.context() is None
            and ctx.device_name in devices
            and not ctx.op_callbacks
            and not ctx.is_async()
        )

    def call_watched(function: Any, found: Found, inputs: list) -> Any:
        """A call of TensorFlow's, of which the cluster is found if it has written all results."""
        found.tries -= 1
        body = function._inference_function
        begin = watch(True)
        try:
            outputs = body.call_flat(*inputs)
        finally:
            watch(False)
        if outputs and all(type(output) is tensor for output in outputs):
            of_outputs = (ctypes.c_void_p * len(outputs))(*map(handle_of, outputs))
            numbers = (ctypes.c_int64 * NUMBERS_MAX)()
            count = find(of_outputs, len(outputs), begin, NUMBERS_MAX, numbers)
            if 0 < count <= NUMBERS_MAX:
                found.use_cluster(numbers[:count], inputs)
        return body.function_type.pack_output(outputs)

    def call_operation(function: Any, found: Found, places: list, inputs: list) -> Any:
        operands = [inputs[place] for place in places]
        outputs = execute.execute("HeadraceCall", found.count, operands, found.attributes, context.context())
        return function.function_type.pack_output([outputs[place] for place in found.results])

    def call_found(function: Any, found: Found, tensors: list) -> Any:
        captured, places = function.captured_inputs, found.operands
        if (places or found.tries) and may_be_operation():
            if not places:
                return call_watched(function, found, tensors + captured)
            try:
                return call_operation(function, found, places, tensors + captured)
            except errors.OpError:
                found.operands, found.tries = None, TRIES_MAX  # the function is gone, or names its node in the error
        return function._call_flat(tensors, captured)

    def call_shortly(self: Any, *args: Any, **kwds: Any) -> Any:
        options = self._no_variable_creation_config if self._created_variables else self._variable_creation_config
        key, inputs = key_of(args, kwds) if is_usual(options) else (None, [])
        if key is None:
            return call(self, *args, **kwds)
        calls = vars(options).setdefault("_headrace_calls", {})
        found = calls.get(key)
        if found is None or found.traces != len(options.function_cache):
            result = call(self, *args, **kwds)
            if len(calls) >= CALLS_MAX:
                calls.clear()
            calls[key] = learn_trace(self, options, args, kwds, to_tensors(inputs))
            return result
        return call_found(found.function, found, to_tensors(inputs)) if found.is_same else call(self, *args, **kwds)

    def call_concrete_shortly(self: Any, args: tuple, kwds: dict) -> Any:
        is_plain = type(self) is concrete and self.function_type is not None and context.context().executing_eagerly()
        key, inputs = key_of(args, kwds) if is_plain else (None, [])
        if key is None:
            return call_concrete(self, args, kwds)
        calls = vars(self).setdefault("_headrace_calls", {})
        found = calls.get(key)
        if found is None:
            result = call_concrete(self, args, kwds)
            if len(calls) >= CALLS_MAX:
                calls.clear()
            calls[key] = learn_concrete(self, args, kwds, to_tensors(inputs))
            return result
        if not found.is_same:
            return call_concrete(self, args, kwds)
        with trace.Trace(self._func_graph.name, tf_function_call="concrete"):
            return call_found(self, found, to_tensors(inputs))

    call_shortly.of_headrace = True
    polymorphic_function.Function._call = call_shortly
    concrete._call_impl = call_concrete_shortly
