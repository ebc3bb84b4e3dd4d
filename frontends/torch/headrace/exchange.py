"""torch.headrace: tensors of the device and arrays of the host in the same memory, without a copy.

On a device whose memory is the host's (a CPU's), a tensor can lie in an array's memory, and an array in a tensor's.
Both see what the other writes. Operations are deferred, so call `torch.headrace.synchronize()`

- before the host reads what the device has computed since the last wait,
- before the host writes to memory that recorded operations still read or write.

`x.__dlpack__()` is such a view as well: `numpy.from_dlpack(x)` takes microseconds for any size.
"""

import functools
import sys

import torch

from headrace._library import _C


def host_view(tensor):
    """A CPU tensor in the memory of a device tensor, with its shape and strides.

    It waits for everything recorded. The memory lives as long as one of them, also if the device tensor is resized.
    The view needs no gradient. TypeError: the tensor is not a strided one of this device. RuntimeError: the device's
    memory is not the host's.
    """
    return _C.host_view(tensor)


def from_host(array, device=None):
    """A device tensor in the memory of a CPU tensor, a NumPy array or another object with `__dlpack__`.

    The array lives as long as the tensor. Its memory begins at a multiple of 16 bytes, as NumPy's and torch's own
    arrays do. ValueError: it begins elsewhere, is read-only or has negative strides. TypeError: the array is none of
    these. RuntimeError: the device's memory is not the host's.
    """
    return _C.from_host(_tensor_of(array), device)


def _tensor_of(array):
    if isinstance(array, torch.Tensor):
        if array.requires_grad:
            raise ValueError("from_host: the tensor requires a gradient; pass tensor.detach()")
        return array
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        if not array.flags.writeable:
            raise ValueError("from_host: the array is read-only; a tensor may be written to: pass array.copy()")
        return torch.from_numpy(array)
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"from_host: expected a tensor, an array or an object with __dlpack__, not {type(array)!r}")
    return torch.from_dlpack(array)


def _is_visible(tensor):
    """True if DLPack can name the tensor's memory: strided, on a device whose memory is the host's."""
    return (
        tensor.device.type == "headrace"
        and tensor.layout == torch.strided
        and _C.has_host_memory(tensor.device)
    )


def register():
    """Lets tensors of the device answer DLPack's two methods as tensors of the CPU, in the same memory."""
    capsule_of, device_of = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__

    @functools.wraps(capsule_of)
    def __dlpack__(self, *arguments, **names):
        if not _is_visible(self):
            return capsule_of(self, *arguments, **names)
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return capsule_of(host_view(self), *arguments, **names)

    @functools.wraps(device_of)
    def __dlpack_device__(self):
        return (torch.utils.dlpack.DLDeviceType.kDLCPU, 0) if _is_visible(self) else device_of(self)

    torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__ = __dlpack__, __dlpack_device__
