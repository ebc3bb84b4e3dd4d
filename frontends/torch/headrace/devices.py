"""torch.headrace: which devices there are, and which one is current. A device is given as torch.device, name, or
number."""

from headrace._library import _C


def is_available():
    """True if the device can be used: the driver finds one, and this process was not forked after its first use."""
    return not _is_in_bad_fork() and device_count() > 0


def is_initialized():
    """True if the device has been used, or `init` has been called."""
    return _C.is_open()


def init():
    """Opens the device now instead of at its first use; raises the reason if there is none."""
    if not is_initialized():
        _C.open()


def _lazy_init():
    """torch calls it in front of everything that may make tensors of the device, also where torch's optimizers ask for
    the accelerator's current stream. The first tensor opens the device by itself; other questions must not."""


_is_in_bad_fork = _C.is_in_bad_fork


def device_count():
    """The number of devices; 0 if HEADRACE_DEVICE names none. The first use of the device then raises the reason."""
    return _C.device_count()


def current_device():
    """The index of this thread's current device."""
    return _C.current_device()


def set_device(device):
    """Sets this thread's current device: new tensors of device="headrace" are made there."""
    _C.exchange_device(device)


class device:  # noqa: N801 (torch.cuda.device is lower case too)
    """Context manager that sets the current device."""

    def __init__(self, device):
        self.idx, self.prev_idx = _C.device_index(device), -1

    def __enter__(self):
        self.prev_idx = _C.exchange_device(self.idx)
        return self

    def __exit__(self, *error):
        _C.exchange_device(self.prev_idx)
        return False


class device_of(device):  # noqa: N801
    """Context manager that sets the current device to a tensor's; a tensor of another device type changes nothing."""

    def __init__(self, tensor):
        super().__init__(tensor.device if tensor.device.type == "headrace" else None)


def _exchange_device(index):
    """Chooses a device, unless the number is below 0; gives the one before."""
    return _C.exchange_device(index)


_maybe_exchange_device = _exchange_device


class _DeviceProperties:
    """The result of get_device_properties: kind ("cpu", "cuda"), name, ordinal among the kind's devices, total_memory
    in bytes, multi_processor_count (for a CPU: threads), is_host (its memory is the host's)."""

    def __init__(self, properties):
        vars(self).update(properties)

    def __repr__(self):
        return f"_DeviceProperties({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def get_device_properties(device=None):
    """A record of a device: kind, name, ordinal, total_memory in bytes, multi_processor_count, is_host."""
    return _DeviceProperties(_C.describe_device(device))


def get_device_name(device=None):
    """A device's description, such as the CPU's or GPU's model."""
    return get_device_properties(device).name


def get_device_capability(device=None):
    """None: there are no versions of capability."""
    _C.device_index(device)
    return None


def synchronize(device=None):
    """Commits everything pending and waits; raises the first error of that work."""
    _C.synchronize(device)


synchronize = _C.synchronize  # small steps wait after each call: no detours


def commit():
    """Commits everything pending without waiting."""
    _C.commit()


def get_amp_supported_dtype():
    """The dtypes that torch.autocast accepts: float16 and bfloat16."""
    import torch

    return [torch.float16, torch.bfloat16]


def is_bf16_supported():
    """True."""
    return True
