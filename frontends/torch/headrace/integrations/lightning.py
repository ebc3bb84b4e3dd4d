"""`accelerator="headrace"` of Lightning's Trainer and Fabric, in its registry of accelerators.

The packages lightning and pytorch_lightning have the same modules under different names.
"""

import torch

from headrace.integrations import add_device


def _accelerator_of(base):
    class HeadraceAccelerator(base):
        """The device of this package."""

        def setup_device(self, device):
            if device.type != "headrace":
                raise ValueError(f"HeadraceAccelerator: expected a device of headrace, got {device}")
            torch.headrace.set_device(device)

        def teardown(self):
            torch.headrace.empty_cache()

        def get_device_stats(self, device):
            return {name: value for name, value in torch.headrace.memory_stats(device).items()}

        @staticmethod
        def parse_devices(devices):
            if isinstance(devices, str):
                devices = -1 if devices.strip() == "-1" else [int(part) for part in devices.split(",") if part.strip()]
                devices = devices[0] if isinstance(devices, list) and len(devices) == 1 else devices
            if isinstance(devices, int):
                return list(range(torch.headrace.device_count() if devices == -1 else devices))
            return list(devices)

        @staticmethod
        def get_parallel_devices(devices):
            indices = HeadraceAccelerator.parse_devices(devices)
            return [torch.device("headrace", index) for index in indices]

        @staticmethod
        def auto_device_count():
            return torch.headrace.device_count()

        @staticmethod
        def is_available():
            return torch.headrace.is_available()

        @staticmethod
        def name():
            return "headrace"

    return HeadraceAccelerator


def register(module):
    if module.__name__.endswith(".accelerators"):
        registry = getattr(module, "AcceleratorRegistry", None)
        registry = module.ACCELERATOR_REGISTRY if registry is None else registry
        if "headrace" not in registry.available_accelerators():
            registry.register("headrace", _accelerator_of(module.Accelerator), description="HeadraceAccelerator")
        return
    name = "_AcceleratorConnector" if hasattr(module, "_AcceleratorConnector") else "_Connector"
    connector = getattr(module, name)
    add_device(connector._choose_strategy, beside="mps")  # one device: the root device, not the CPU
    add_device(connector._check_and_init_precision, beside="mps")  # autocast and its scaler
