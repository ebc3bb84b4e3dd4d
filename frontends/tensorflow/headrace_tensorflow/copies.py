"""Python's copies between the host and the device: `numpy()`, `float()` and others that read eager tensors, and
constants of arrays.

TensorFlow copies through a callback of a thread of its own, which takes as long as a small function. The plug-in copies
in the calling thread (copies.c), and runs this file when it creates a device, as jit.py.
"""

import ctypes
from typing import Any


def copy_directly(read_address: int, write_address: int) -> None:
    """Lets eager tensors be copied by the plug-in's functions at these addresses.

    An error (ImportError, AttributeError) means that TensorFlow's code is not the one that is known here.
    """
    from tensorflow.python import _pywrap_tensorflow_internal as internal

    functions = ctypes.PyDLL(internal.__file__)
    handle_of = functions._Z18EagerTensor_HandlePK7_object
    handle_of.restype, handle_of.argtypes = ctypes.c_void_p, [ctypes.py_object]
    tensor_of = functions._Z21EagerTensorFromHandleP16TFE_TensorHandleb  # owns the handle
    tensor_of.restype, tensor_of.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_bool]
    _copy_out(handle_of, tensor_of, read_address)
    _copy_in(handle_of, tensor_of, write_address)


def _copy_out(handle_of: Any, tensor_of: Any, address: int) -> None:
    from tensorflow.python.framework import errors, ops

    no_memory = ctypes.c_void_p(-1).value
    read = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)  # called without the interpreter's lock
    numpy = ops.EagerTensor._numpy_internal

    def numpy_of(self: Any) -> Any:
        """As the original, which serves the host's tensors and reports errors."""
        copy = read(handle_of(self)) if "HEADRACE" in self.backing_device else None
        if copy == no_memory:
            message = f"headrace: the host has no memory for a copy of {self.dtype.name} numbers of dims {self.shape}"
            raise errors.ResourceExhaustedError(None, None, message)
        return numpy(self if copy is None else tensor_of(copy, False))

    ops.EagerTensor._numpy_internal = numpy_of


def _copy_in(handle_of: Any, tensor_of: Any, address: int) -> None:
    import numpy as np
    from tensorflow.python.framework import constant_op, dtypes, ops

    pointers = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    write = ctypes.CFUNCTYPE(ctypes.c_void_p, *pointers)(address)
    context_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    convert = constant_op.convert_to_eager_tensor
    prefix = "/job:localhost/replica:0/task:0/device:"
    device = (prefix + "HEADRACE:0").encode()

    def tensor_from(value: Any, ctx: Any, dtype: Any = None) -> Any:
        """As the original, which serves other values than arrays of numbers, other devices, and errors."""
        is_ours = type(value) is np.ndarray and value.dtype.kind in "biufcV" and value.size > 0
        if is_ours and ctx.device_name in ("", device.decode()):
            ctx.ensure_initialized()
            wanted = None if dtype is None else dtypes.as_dtype(dtype).as_datatype_enum
            host = ops.EagerTensor(value, prefix + "CPU:0", wanted)
            copy = write(context_of(ctx._handle, None), device, handle_of(host))
            if copy is not None:
                return tensor_of(copy, False)
        return convert(value, ctx, dtype)

    constant_op.convert_to_eager_tensor = tensor_from
