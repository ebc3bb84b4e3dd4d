"""The Trainer of transformers takes the device that accelerate chooses, and accepts `bf16=True` on it."""

import functools

from headrace.integrations import chosen_by_default


def _accept_bf16(utils):
    accepts = utils.is_torch_bf16_gpu_available

    @functools.wraps(accepts)
    def is_torch_bf16_gpu_available():
        return accepts() or chosen_by_default()

    utils.is_torch_bf16_gpu_available = is_torch_bf16_gpu_available


def _take_device(arguments):
    prepare = arguments._setup_devices.func

    @functools.wraps(prepare)
    def _setup_devices(self):
        device = prepare(self)
        chosen = getattr(getattr(self, "distributed_state", None), "device", device)
        return chosen if device.type == "cpu" and chosen.type == "headrace" else device

    cached = type(arguments.__dict__["_setup_devices"])(_setup_devices)
    cached.__set_name__(arguments, "_setup_devices")
    arguments._setup_devices = cached


def register(module):
    if module.__name__ == "transformers.training_args":
        _take_device(module.TrainingArguments)
    else:
        _accept_bf16(module)
