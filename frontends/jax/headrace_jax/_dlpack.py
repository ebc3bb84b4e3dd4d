"""DLPack: arrays of a device whose memory is the host's, for NumPy, PyTorch and others, and theirs as JAX's.

JAX's own functions know CPU and GPU by the names of its platforms. Arrays are exported by a capsule that is made here,
and memory of the host is imported on this platform if that is JAX's default, and unless it is an array of JAX's CPU
backend. Nothing is copied but what the caller wants to be, and elements that are dense in no order of their dims.
"""

import ctypes
import functools

import numpy as np
from headrace_jax import _capsules, _private

CPU = 1  # DLDeviceType
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
BFLOAT = 4


class _Tensor(ctypes.Structure):
    """DLManagedTensor, whose first fields are those of DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_exported = {}  # by address: the structure, its shape and strides, and the array whose memory it shows
_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@_Release
def _release(address):
    """The consumer needs the memory no longer."""
    _exported.pop(address, None)


@_Release
def _destroy(capsule):
    """A capsule ends; one that was consumed has another name."""
    if _capsules.is_valid(capsule, b"dltensor"):
        _exported.pop(_capsules.pointer_of(capsule, b"dltensor"), None)


def _code_of(dtype):
    code = BFLOAT if dtype.name == "bfloat16" else CODES.get(dtype.kind)
    if code is None:
        raise BufferError(f"headrace_jax: DLPack has no arrays of dtype {dtype}")
    return code


def _export(x):
    """A capsule with the memory of an array."""
    shown = np.asarray(x)  # shares the memory, and holds it even if the array is deleted
    numbers = ctypes.c_int64 * max(shown.ndim, 1)
    shape, strides = numbers(*shown.shape), numbers(*(stride // shown.dtype.itemsize for stride in shown.strides))
    tensor = _Tensor(
        data=shown.ctypes.data, device_type=CPU, ndim=shown.ndim, code=_code_of(shown.dtype),
        bits=8 * shown.dtype.itemsize, lanes=1, shape=ctypes.addressof(shape),
        strides=ctypes.addressof(strides),
        deleter=ctypes.cast(_release, ctypes.c_void_p).value,
    )
    address = ctypes.addressof(tensor)
    _exported[address] = tensor, shape, strides, shown
    return _capsules.new(address, b"dltensor", ctypes.cast(_destroy, ctypes.c_void_p))


class _Capsule:
    """A capsule as an array that NumPy reads."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (CPU, 0)


def _import(platform, original, capsule, device, stream, copy, *rest):
    """JAX's array of a capsule. The C API has no copy into a buffer of its own: NumPy reads what needs one."""
    import jax

    if device.platform != platform:
        return original(capsule, device, stream, copy, *rest)
    if not copy:
        try:
            return original(capsule, device, stream, copy, *rest)
        except jax.errors.JaxRuntimeError as error:
            if copy is False or "UNIMPLEMENTED" not in str(error) or not _capsules.is_valid(id(capsule), b"dltensor"):
                raise
    return jax.device_put(np.array(np.from_dlpack(_Capsule(capsule))), device, may_alias=False)


class _Place(int):
    """DLPack's type of the host's memory, with the platform of JAX that the array is on."""

    platform = "cpu"


def _platform_of(x):
    """The platform of an array on one device; None: it is on several."""
    return next(iter(x.devices())).platform if x.is_fully_addressable and len(x.devices()) == 1 else None


def _is_ours(x, platform):
    return _platform_of(x) == platform


def register(platform):
    """Lets arrays of a platform be exported and imported."""
    import jax

    def wrap_export(original):
        def export(x, **options):
            if not _is_ours(x, platform):
                return original(x, **options)
            wanted = options.get("dl_device")
            if wanted is not None and int(wanted[0]) != CPU:
                raise BufferError(f"headrace_jax: an array of the host for a device of DLPack's type {int(wanted[0])}")
            return _export(jax.numpy.array(x, copy=True) if options.get("copy") else x)

        return export

    def wrap_description(original):
        def describe(x):
            if _is_ours(x, platform):
                return (_private.dlpack_cpu(), 0)
            kind, number = original(x)
            return (_Place(kind) if kind == CPU and _platform_of(x) == "cpu" else kind, number)

        return describe

    def choose(kind):  # an array of JAX on its CPU backend, or memory of others
        return getattr(kind, "platform", platform if jax.devices()[0].platform == platform else "cpu")

    _private.wrap_array_method("__dlpack__", wrap_export)
    _private.wrap_array_method("__dlpack_device__", wrap_description)
    _private.import_dlpack(choose, functools.partial(_import, platform))
