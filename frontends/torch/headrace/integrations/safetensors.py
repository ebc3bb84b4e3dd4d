"""safetensors reads files to the devices that it lists; for this one it reads to the host, and the tensors move."""

import functools

import torch


def _device_of(device):
    """The device of this package that a caller of safetensors means, or None."""
    if isinstance(device, int) and not isinstance(device, bool):
        device = torch.device(device) if torch.accelerator.is_available() else None
    elif isinstance(device, str):
        device = torch.device(device) if device.split(":")[0] == "headrace" else None
    return device if isinstance(device, torch.device) and device.type == "headrace" else None


class _Slice:
    def __init__(self, part, device):
        self._part, self._device = part, device

    def __getattr__(self, name):
        return getattr(self._part, name)

    def __getitem__(self, index):
        return self._part[index].to(self._device)


class _File:
    """What safe_open returns, with tensors of the device."""

    def __init__(self, file, device):
        self._file, self._device = file, device

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        self._file.__enter__()
        return self

    def __exit__(self, *error):
        return self._file.__exit__(*error)

    def get_tensor(self, name):
        return self._file.get_tensor(name).to(self._device)

    def get_tensors(self):
        return {name: tensor.to(self._device) for name, tensor in self._file.get_tensors().items()}

    def get_slice(self, name):
        return _Slice(self._file.get_slice(name), self._device)


def _opener(original):
    class Kind(type):
        def __instancecheck__(cls, value):
            return isinstance(value, (original, _File))

    @functools.wraps(original, updated=())
    class safe_open(metaclass=Kind):
        opens_headrace = True

        def __new__(cls, filename, framework, device="cpu", **names):
            chosen = _device_of(device) if framework in ("pt", "torch", "pytorch") else None
            if chosen is None:
                return original(filename, framework, device, **names)
            return _File(original(filename, framework, "cpu", **names), chosen)

    return safe_open


def register(module):
    if not hasattr(module.safe_open, "opens_headrace"):
        module.safe_open = _opener(module.safe_open)
