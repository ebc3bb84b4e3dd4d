"""Values of eager tensors on the host: `numpy()`, `float()` and what else reads them from Python.

TensorFlow copies through a callback of a thread of its own, which takes as long as a small function. The plug-in copies
in the thread that asks (reads.c), and runs this file when it creates a device, as lowering.py.
"""

import ctypes
from typing import Any


def read_directly(address: int) -> None:
    """Lets tensors of the device be read by the plug-in's function at this address.

    An error (ImportError, AttributeError) means that TensorFlow's code is not the one that is known here.
    """
    from tensorflow.python import _pywrap_tensorflow_internal as internal
    from tensorflow.python.framework import ops

    functions = ctypes.PyDLL(internal.__file__)
    handle_of = functions._Z18EagerTensor_HandlePK7_object
    handle_of.restype, handle_of.argtypes = ctypes.c_void_p, [ctypes.py_object]
    tensor_of = functions._Z21EagerTensorFromHandleP16TFE_TensorHandleb  # owns the handle
    tensor_of.restype, tensor_of.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_bool]
    read = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address)  # called without the interpreter's lock
    numpy = ops.EagerTensor._numpy_internal

    def numpy_of(self: Any) -> Any:
        """As the original, which serves the host's tensors and reports errors."""
        copy = read(handle_of(self)) if "HEADRACE" in self.backing_device else None
        return numpy(self if copy is None else tensor_of(copy, False))

    ops.EagerTensor._numpy_internal = numpy_of
