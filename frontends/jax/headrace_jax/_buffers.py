"""jax.experimental.buffer_callback: callbacks that read and write the memory of arrays, without copies.

A callback has a context and a buffer for each result and each operand. Buffers are NumPy's view of the memory, valid
during the call. An operand that is aliased to a result is copied into the result's memory, which both buffers show.
"""

import ctypes

from headrace_jax import _callbacks, _private


class Buffer:
    """The elements of an operand, which can't be written, or of a result."""

    def __init__(self, elements, writeable):
        self._elements, self._shown = elements, elements.view()
        self._shown.flags.writeable = writeable

    dtype = property(lambda self: self._shown.dtype)
    ndim = property(lambda self: self._shown.ndim)
    shape = property(lambda self: self._shown.shape)
    writeable = property(lambda self: self._shown.flags.writeable)

    def __array__(self, dtype=None, copy=None):
        if copy or (dtype is not None and dtype != self.dtype):
            if copy is False:
                raise ValueError(f"headrace_jax: a buffer of {self.dtype} as {dtype} is a copy")
            return self._shown.astype(dtype or self.dtype)
        return self._shown

    def __dlpack__(self, **options):
        """Versions of DLPack before 1 can't mark memory that is read-only."""
        has_flag = (options.get("max_version") or (0,))[0] >= 1
        return (self._shown if has_flag else self._elements).__dlpack__(**options)

    def __dlpack_device__(self):
        return self._shown.__dlpack_device__()


class ExecutionContext:
    """Where a callback runs."""

    def __init__(self, stage):
        self.stage = stage

    @property
    def stream(self):
        import jax

        raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: headrace: XLA FFI GPU context is not available on the host")


def _with_buffers(function, operands, results, aliases):
    """A call of a function of a context, the operands' buffers, and the results' buffers. aliases: {operand: result}"""
    context = ExecutionContext(_private.execute_stage())

    def call(inputs, outputs):
        targets = [_callbacks.view(outputs[i], aval) for i, aval in enumerate(results)]
        sources = [_callbacks.view(inputs[i], aval) for i, aval in enumerate(operands)]
        for operand, result in aliases.items():
            ctypes.memmove(targets[result].ctypes.data, sources[operand].ctypes.data, sources[operand].nbytes)
            sources[operand] = targets[result]
        function(context, *(Buffer(x, False) for x in sources), *(Buffer(x, True) for x in targets))
        for elements in targets:
            _callbacks.finish(elements)

    return call


def _rule(context, *operands, callback, in_tree, out_tree, has_side_effect, input_output_aliases, **_):
    import jax

    def function(execution, *buffers):
        given, results = buffers[: in_tree.num_leaves], buffers[in_tree.num_leaves :]
        arguments, options = jax.tree.unflatten(in_tree, given)
        if callback(execution, jax.tree.unflatten(out_tree, results), *arguments, **options) is not None:
            raise ValueError("buffer_callback callback must not return any values.")

    call = _with_buffers(function, tuple(context.avals_in), tuple(context.avals_out), dict(input_output_aliases))
    return _callbacks.emit_call(context, call, operands, context.avals_out, has_side_effect=has_side_effect)[0]


def register(platform):
    """Lets programs for a platform have such callbacks."""
    from jax.interpreters import mlir

    primitive = _private.buffer_callback_primitive()
    if primitive is not None:
        mlir.register_lowering(primitive, _rule, platform=platform)
