"""The Trainer of transformers takes the device that accelerate chooses, accepts `bf16=True` on it, and saves the states
of its generators."""

import functools
from pathlib import Path

from headrace.integrations import chosen_by_default, load_generators, save_generators


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


def _keep_generators(trainer):
    save, load = trainer._save_rng_state, trainer._load_rng_state

    def file_of(self, folder):
        return Path(folder, f"rng_state_headrace_{self.args.process_index}.pth")

    @functools.wraps(save)
    def _save_rng_state(self, output_dir):
        save(self, output_dir)
        save_generators(file_of(self, output_dir))

    @functools.wraps(load)
    def _load_rng_state(self, checkpoint):
        load(self, checkpoint)
        if checkpoint is not None:
            load_generators(file_of(self, checkpoint))

    trainer._save_rng_state, trainer._load_rng_state = _save_rng_state, _load_rng_state


def register(module):
    if module.__name__ == "transformers.trainer":
        _keep_generators(module.Trainer)
    elif module.__name__ == "transformers.training_args":
        _take_device(module.TrainingArguments)
    else:
        _accept_bf16(module)
