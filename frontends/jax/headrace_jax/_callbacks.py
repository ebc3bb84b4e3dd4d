"""Callbacks of Python in programs: jax.pure_callback, jax.experimental.io_callback, jax.debug.print and others.

A callback is a custom call of a name that the plug-in gives. The plug-in runs it as a step of the program, on the
thread that runs the device's work: it calls `_run` here, with the callback's number and the addresses of its operands.
"""

import atexit
import ctypes
import traceback
import weakref

import numpy as np
from headrace_jax import _private

_Caller = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
)
TYPED_FFI = 4  # StableHLO's version of custom calls whose backend_config is a dictionary
PREFIX = "headrace_python:"
_partitioned = {}  # by name: function and avals of a callback that each device calls with its parts, and its reference
# By number: call(addresses of the operands, addresses of the results), how many results there are, and None or a
# function that is called when no program has the callback and no call of it runs any more.
_callbacks = {}
_library = None


class _Reference:
    """The creator's reference of a callback, which the executable keeps."""

    def __init__(self, name, number):
        self.name, self.number, self.of_parts = name, number, []

    def __del__(self):
        _partitioned.pop(self.name, None)
        _library.headrace_jax_release_callback(self.number)
        _forget_dead()


def view_bytes(aval):
    """The bytes of an array's elements."""
    return int(np.prod(aval.shape, dtype=np.int64)) * np.dtype(aval.dtype).itemsize


def view(address, aval):
    """The elements at an address."""
    dtype, shape, size = np.dtype(aval.dtype), tuple(aval.shape), view_bytes(aval)
    if size == 0:
        return np.zeros(shape, dtype)
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(dtype).reshape(shape)


def finish(elements):
    """Makes integers of 2 and 4 bits, whose upper bits a callback may have left, whole bytes as on the device."""
    if elements.dtype.name in ("int2", "int4", "uint2", "uint4"):
        elements.view(np.uint8)[...] = elements.astype(np.int8).view(np.uint8)


def _with_values(function, operands, results):
    """A call of a function that has copies of its operands, and returns its results."""

    def call(inputs, outputs):
        given = [view(inputs[i], aval).copy() for i, aval in enumerate(operands)]
        for i, (value, aval) in enumerate(zip(function(*given), results)):
            elements = view(outputs[i], aval)
            elements[...] = value
            finish(elements)

    return call


def _call(number, input_count, inputs, output_count, outputs):
    call, result_count, _ = _callbacks[number]
    call(inputs, outputs)
    if output_count > result_count:  # the flag that orders effects
        ctypes.memset(outputs[result_count], 0, 1)


@_Caller
def _run(*arguments):
    try:
        _call(*arguments)
        return 0
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        _library.headrace_jax_set_failure(text.encode(errors="replace").replace(b"\0", b"?"))
        return 1


def _forget_dead():
    """Ends the callbacks that neither programs nor pending calls have any more."""
    dead = (ctypes.c_int64 * 64)()
    while count := _library.headrace_jax_dead_callbacks(dead, len(dead)):
        for number in dead[:count]:
            *_, at_end = _callbacks.pop(number)
            if at_end is not None:
                at_end()


def _create(call, result_count, at_end=None):
    """The name of a new callback's custom calls, and its reference."""
    _forget_dead()
    name = ctypes.create_string_buffer(64)
    number = _library.headrace_jax_create_callback(name, len(name))
    if number < 0:
        raise MemoryError("headrace_jax: no memory for a callback")
    _callbacks[number] = call, result_count, at_end
    return name.value.decode(), _Reference(name.value.decode(), number)


def is_name(name):
    """True for custom calls of callbacks."""
    return name.startswith(PREFIX)


def is_partitioned(name):
    """True for callbacks that each device calls with its parts."""
    return name in _partitioned


def create_for_parts(name, shapes):
    """The name of such a callback's calls with parts of these shapes."""
    function, avals, reference = _partitioned[name]
    parts = [aval.update(shape=shape) for aval, shape in zip(avals, shapes)]
    name, made = _create(_with_values(function, parts, ()), 0)
    reference().of_parts.append(made)
    return name


def _checked(callback, results):
    """The callback's values as arrays of the results' shapes and dtypes."""
    import jax

    def checked(*arguments):
        values = callback(*arguments)
        if len(values) != len(results):
            raise RuntimeError(
                "Mismatched number of outputs from callback. " f"Expected: {len(results)}, Actual: {len(values)}"
            )
        values = [np.asarray(value) for value in values]
        values = [value.astype(jax.dtypes.canonicalize_dtype(value.dtype), copy=False) for value in values]
        for i, (value, aval) in enumerate(zip(values, results)):
            for what, actual, expected in (("shape", value.shape, aval.shape), ("dtype", value.dtype, aval.dtype)):
                if actual != expected:
                    raise RuntimeError(
                        f"Incorrect output {what} for return value #{i}: Expected: {expected}, Actual: {actual}"
                    )
        return values

    return checked


def _device_of(context, sharding):
    """The number of the one device of several that runs a call; None: all do."""
    devices = ()
    if getattr(context.module_context.axis_context, "num_devices", 1) == 1:
        return None
    if hasattr(sharding, "shardings"):  # of Shardy, one for each result
        devices = sharding.shardings[0].logical_device_ids or ()
    elif sharding is not None:
        devices = sharding.tile_assignment_devices
    return devices[0] if len(devices) == 1 else None


def emit_call(context, call, operands, results, *, has_side_effect, token=None, sharding=None,
              at_end=None):
    """A custom call of call(addresses of the operands, addresses of the results), both without the token; `results` are
    their avals. Its values with the token first, if there is one, and the reference that keeps it. at_end() is called
    when the callback ends."""
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo
    from jax.interpreters import mlir

    _private.open_cpu()
    tokens = [token] if token else []
    name, reference = _create(call, len(results), at_end)
    context.module_context.add_keepalive(reference)
    device = _device_of(context, sharding)
    if device is not None:  # the others get its results, of so many bytes
        sizes = (view_bytes(aval) for aval in results)
        name = ":".join([f"{name}@{device}", *map(str, sizes)])
    types = [mlir.aval_to_ir_type(context.module_context, aval) for aval in results]
    call = stablehlo.CustomCallOp(
        [value.type for value in tokens] + types,
        tokens + list(operands),
        call_target_name=ir.StringAttr.get(name),
        has_side_effect=ir.BoolAttr.get(has_side_effect or device is not None),
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), TYPED_FFI),
        backend_config=ir.DictAttr.get({}),
    )
    if sharding is not None:
        _private.set_sharding(context, call, sharding, len(call.results))
    return list(call.results), reference


def _emit(
    context,
    callback,
    token,
    operands,
    operand_avals,
    result_avals,
    *,
    has_side_effect,
    returns_token=True,
    partitioned=False,
    sharding=None,
):
    """What JAX's emit_python_callback does: the operation; its results, the new token, and what must be kept."""
    sharding = None if partitioned else sharding
    call = _with_values(_checked(callback, result_avals), tuple(operand_avals), tuple(result_avals))
    values, reference = emit_call(
        context, call, operands, result_avals, has_side_effect=has_side_effect, token=token, sharding=sharding
    )
    if partitioned:
        _partitioned[reference.name] = callback, tuple(operand_avals), weakref.ref(reference)
    token = values.pop(0) if token else None
    return values, token, reference


def _end():
    """At exit: work that is pending runs no Python any more once the effects have been waited for."""
    import jax

    jax.effects_barrier()
    _library.headrace_jax_set_caller(_Caller())


def _load(path):
    global _library
    library = ctypes.PyDLL(path)  # its functions take no time
    library.headrace_jax_set_caller.argtypes = [_Caller]
    library.headrace_jax_set_caller.restype = None
    library.headrace_jax_set_failure.argtypes = [ctypes.c_char_p]
    library.headrace_jax_set_failure.restype = None
    library.headrace_jax_create_callback.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.headrace_jax_create_callback.restype = ctypes.c_int64
    library.headrace_jax_release_callback.argtypes = [ctypes.c_int64]
    library.headrace_jax_release_callback.restype = None
    library.headrace_jax_dead_callbacks.argtypes = [ctypes.POINTER(ctypes.c_int64), ctypes.c_int]
    library.headrace_jax_dead_callbacks.restype = ctypes.c_int
    library.headrace_jax_set_caller(_run)
    atexit.register(_end)
    _library = library


def register(platform, path):
    """Lets programs for a platform have callbacks; path: the plug-in's library, which JAX loads, too."""
    import jax.experimental.checkify  # noqa: F401 (its import registers the CPU's rules)

    if _library is None:
        _load(path)
    _private.replace_callbacks(platform, _emit)
    _private.copy_rules("cpu", platform, ("check", "debug_callback", "debug_print"))
