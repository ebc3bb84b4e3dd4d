"""torch.headrace: tensors of the device and arrays of the host or of other GPU libraries in the same memory.

On a device whose memory is the host's (a CPU's), a tensor can lie in an array's memory, and an array in a tensor's.
Both see what the other writes. Operations are deferred, so call `torch.headrace.synchronize()`

- before the host reads what the device has computed since the last wait,
- before the host writes to memory that recorded operations still read or write.

`x.__dlpack__()` is such a view as well: `numpy.from_dlpack(x)` takes microseconds for any size. On a GPU it names CUDA's
memory: `torch.from_dlpack(x)`, `cupy.from_dlpack(x)` and `torch.headrace.from_dlpack(y)` copy nothing.
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


def from_dlpack(array):
    """A device tensor in the memory of an array of another library: of the host, or of the same GPU.

    An array of a GPU stays in order: the device waits for the work that its library has begun on it so far. Later work
    of either side is ordered by `torch.headrace.synchronize()` and the other's own waits. ValueError: the array's
    device is none of ours, or the memory does not fit. TypeError: it has no DLPack. Otherwise as `from_host`.
    """
    if not hasattr(array, "__dlpack_device__"):
        raise TypeError(f"from_dlpack: expected an object with __dlpack__, not {type(array)!r}")
    kind, index = array.__dlpack_device__()
    if kind in _HOST_KINDS:
        return from_host(array)
    queue = _cuda_queue(index) if kind == _CUDA else 0
    if queue == 0:
        raise ValueError(f"from_dlpack: memory of DLPack's kind {int(kind)}, device {index}, is none of this device's")
    return _C.from_dlpack(array.__dlpack__(stream=queue), torch.device("headrace", index))


_CUDA = 2  # DLPack's numbers of kinds
_HOST_KINDS = (1, 3)


def _cuda_queue(index):
    if index >= torch.headrace.device_count() or _C.describe_device(torch.device("headrace", index))["kind"] != "cuda":
        return 0
    return _C.device_queue(torch.device("headrace", index))


def _is_on_gpu(tensor):
    return tensor.device.type == "headrace" and _C.describe_device(tensor.device)["kind"] == "cuda"


def _is_visible(tensor):
    """True if DLPack can name the tensor's memory: strided, on a device whose memory is the host's."""
    return (
        tensor.device.type == "headrace"
        and tensor.layout == torch.strided
        and _C.has_host_memory(tensor.device)
    )


def _gpu_capsule(tensor, *, stream=None, max_version=None, dl_device=None, copy=None):
    """The work has run when the capsule exists, so no stream has to wait for it."""
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        raise BufferError("Can't export tensors that are not strided, or have the conjugate or negative bit set")
    if dl_device is not None and tuple(dl_device) != tuple(tensor.__dlpack_device__()):
        raise BufferError(f"Can't export a tensor of {tensor.device} to another device: {tuple(dl_device)}")
    if copy:
        tensor = tensor.clone()
    return _C.to_dlpack(tensor, max_version is not None and max_version[0] >= 1)


def register():
    """Lets tensors of the device answer DLPack's two methods as tensors of the CPU, in the same memory."""
    capsule_of, device_of = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__

    @functools.wraps(capsule_of)
    def __dlpack__(self, *arguments, **names):
        is_visible = _is_visible(self)
        if not is_visible and not _is_on_gpu(self):
            return capsule_of(self, *arguments, **names)
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if not is_visible:
            return _gpu_capsule(self, **names)
        return capsule_of(host_view(self), *arguments, **names)

    @functools.wraps(device_of)
    def __dlpack_device__(self):
        if _is_visible(self):
            return torch.utils.dlpack.DLDeviceType.kDLCPU, 0
        return (torch.utils.dlpack.DLDeviceType.kDLCUDA, self.device.index) if _is_on_gpu(self) else device_of(self)

    torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__ = __dlpack__, __dlpack_device__
