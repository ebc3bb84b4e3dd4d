"""Changes to packages that list torch's devices by name, so that they find this one.

A module of this folder is imported after the package that it is for, never before, and imports nothing but torch. If
a version of the package lacks the changed name, the package stays as it is.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys

# An imported module, and the module of this folder whose `register` gets it.
_HOOKS = {
    "accelerate.accelerator": "accelerate",
    "accelerate.checkpointing": "accelerate",
    "accelerate.state": "accelerate",
    "accelerate.utils.memory": "accelerate",
    "accelerate.utils.modeling": "accelerate",
    "lightning.fabric.accelerators": "lightning",
    "lightning.fabric.connector": "lightning",
    "lightning.pytorch.accelerators": "lightning",
    "lightning.pytorch.trainer.connectors.accelerator_connector": "lightning",
    "lightning_fabric.accelerators": "lightning",
    "lightning_fabric.connector": "lightning",
    "pytorch_lightning.accelerators": "lightning",
    "pytorch_lightning.trainer.connectors.accelerator_connector": "lightning",
    "safetensors": "safetensors",
    "safetensors.torch": "safetensors",
    "torch.distributed.tensor": "dtensor",
    "torch.nested._internal.sdpa": "nested",
    "torch.nn.attention.flex_attention": "flex_attention",
    "torch.utils.benchmark.utils.timer": "timer",
    "transformers.trainer": "transformers",
    "transformers.training_args": "transformers",
    "transformers.utils.import_utils": "transformers",
}


def _register(module):
    hook = importlib.import_module(f"{__name__}.{_HOOKS[module.__name__]}")
    try:
        hook.register(module)
    except AttributeError:  # another version of the package
        pass


class _Loader(importlib.abc.Loader):
    """A module's own loader, and the hook after it."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _register(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the table as the finders behind it do."""

    def find_spec(self, name, path=None, target=None):
        if name not in _HOOKS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


def register():
    """Called once, when the device is registered."""
    sys.meta_path.insert(0, _Finder())
    for name in _HOOKS:
        if name in sys.modules:
            _register(sys.modules[name])


def chosen_by_default():
    """True if a package that chooses a device should choose this one: torch has no other accelerator."""
    import torch

    device = torch.accelerator.current_accelerator()
    return device is not None and device.type == "headrace" and torch.headrace.is_available()


def add_device(function, beside):
    """Adds this device to the names of devices that are constants of a function: those that contain `beside`."""
    code = function.__code__
    constants = tuple(
        type(value)((*value, "headrace"))
        if isinstance(value, (tuple, frozenset)) and beside in value and "headrace" not in value
        else value
        for value in code.co_consts
    )
    function.__code__ = code.replace(co_consts=constants)


def save_generators(path):
    """Writes the states of the generators of all devices, if the program has used one."""
    import torch

    if torch.headrace.is_initialized():
        torch.save(torch.headrace.get_rng_state_all(), path)


def load_generators(path):
    """Restores what `save_generators` wrote there, on the devices that exist. Older checkpoints have no such file."""
    import torch

    if path.is_file():
        states = torch.load(path, weights_only=True)
        torch.headrace.set_rng_state_all(states[: torch.headrace.device_count()])
