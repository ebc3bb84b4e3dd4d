"""Calls of `tf.function`s with tensors of dtypes and dims that they have seen.

TensorFlow binds the arguments of each call to the function's signature several times, and makes types of them that it
compares with those of the traced functions. It takes as long in Python as the rest of a call. Here dtypes and dims find
the traced function of an earlier call.

The plug-in runs this file when it creates a device, as jit.py.
"""

from typing import Any

LITERALS = (bool, int, str, type(None))
CALLS_MAX = 256  # of one function


def shorten_calls() -> None:
    """Lets functions find what they have traced by dtypes and dims.

    An error (ImportError, AttributeError) means that TensorFlow's code is not the one that is known here.
    """
    from tensorflow.python.eager import context
    from tensorflow.python.eager.polymorphic_function import function_type_utils, polymorphic_function
    from tensorflow.python.eager.polymorphic_function import tracing_compilation
    from tensorflow.python.framework import dtypes, ops
    from tensorflow.python.saved_model import save_context

    call = polymorphic_function.Function._call
    if hasattr(call, "of_headrace"):
        return
    tensor = ops.EagerTensor
    handles = {dtypes.resource.as_datatype_enum, dtypes.variant.as_datatype_enum}

    def key_of(args: tuple, kwds: dict) -> Any:
        """None: other arguments than tensors of numbers and literals."""
        key = [len(args), *kwds]
        for value in (*args, *kwds.values()):
            if type(value) is tensor:
                dtype = value._datatype_enum()
                if dtype in handles:
                    return None
                key += (dtype, value._shape_tuple())
            elif type(value) in LITERALS:
                key += (type(value), value)
            else:
                return None
        return tuple(key)

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

    def learn(self: Any, options: Any, args: tuple, kwds: dict) -> Any:
        """The traced function, if its inputs are the tensors in order."""
        bound = function_type_utils.canonicalize_function_inputs(args, kwds, self._function_type, self._default_values)
        function = tracing_compilation.trace_function(bound.args, bound.kwargs, options)
        inputs = function.function_type.unpack_inputs(function.function_type.bind(*bound.args, **bound.kwargs))
        tensors = [value for value in (*args, *kwds.values()) if type(value) is tensor]
        is_same = len(inputs) == len(tensors) and all(a is b for a, b in zip(inputs, tensors, strict=True))
        return function if is_same else None

    def call_found(self: Any, *args: Any, **kwds: Any) -> Any:
        options = self._no_variable_creation_config if self._created_variables else self._variable_creation_config
        key = key_of(args, kwds) if is_usual(options) else None
        if key is None:
            return call(self, *args, **kwds)
        calls = vars(options).setdefault("_headrace_calls", {})
        function, traced = calls.get(key, (None, -1))
        if traced != len(options.function_cache):
            result = call(self, *args, **kwds)
            function = learn(self, options, args, kwds)
            if len(calls) == CALLS_MAX:
                calls.clear()
            calls[key] = function, len(options.function_cache)
            return result
        if function is None:
            return call(self, *args, **kwds)
        tensors = [value for value in (*args, *kwds.values()) if type(value) is tensor]
        return function._call_flat(tensors, function.captured_inputs)

    call_found.of_headrace = True
    polymorphic_function.Function._call = call_found
