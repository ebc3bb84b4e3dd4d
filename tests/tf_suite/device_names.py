"""A plug-in of pytest: TensorFlow's tests see the device HEADRACE as the GPU. Names of GPUs become its name, and
is_gpu_available() is true, unless CUDA is meant. Operations that have no kernel on GPUs run on the CPU device.

With HEADRACE_SUITE_NAMED=cpu they see no GPU: for cases that leave themselves out beside one. TensorFlow places
operations on HEADRACE all the same."""

import functools
import os
import re

from absl import flags
from headrace_tensorflow import fallback
from tensorflow.python.eager import context
from tensorflow.python.framework import config, kernels, ops, test_util
from tensorflow.python.platform import test

NAME = "/device:HEADRACE:0"


def renamed(name):
    return re.sub(r"(?i)\bgpu(:\d+)?$", lambda found: f"HEADRACE{found[1] or ''}", name)


def rename(name):
    """A name, a spec or a function of operations."""
    if isinstance(name, str):
        return re.sub(r"/HEADRACE", "/device:HEADRACE", renamed(name))
    if callable(name):
        return lambda operation: rename(name(operation))
    return rename(name.to_string()) if hasattr(name, "to_string") else name


def with_renamed_device(function):
    @functools.wraps(function)
    def call(self, name, *args, **kwargs):
        return function(self, rename(name), *args, **kwargs)

    return call


def is_gpu_available(cuda_only=False, min_cuda_compute_capability=None):
    return not cuda_only and min_cuda_compute_capability is None


def name_of_type(function):
    """For list_physical_devices("GPU") and the like."""

    @functools.wraps(function)
    def call(device_type=None):
        return function("HEADRACE" if device_type == "GPU" else device_type)

    return call


def point_at_device():
    for module in (test_util, test):
        module.is_gpu_available, module.gpu_device_name = is_gpu_available, lambda: NAME
    ops.Graph._add_device_to_stack = with_renamed_device(ops.Graph._add_device_to_stack)
    context.Context.device = with_renamed_device(context.Context.device)
    for name in ("list_physical_devices", "list_logical_devices"):
        setattr(config, name, name_of_type(getattr(config, name)))


def let_host_operations_run():
    """No fallbacks: operations that TensorFlow has on its CPU device alone, and types that its GPU kernels lack."""
    may_fall_back = fallback._may_fall_back

    @functools.cache
    def types_on(device, name):
        """The types that kernels name; None: there is no kernel."""
        registered = kernels.get_registered_kernels_for_op(name).kernel
        found = [kernel for kernel in registered if kernel.device_type == device]
        types = {number for kernel in found for one in kernel.constraint for number in one.allowed_values.list.type}
        return types if found else None

    def is_on_gpus(name, tensors):
        types, alone = types_on("GPU", name), types_on("CPU", name) or set()
        return types is not None and not {tensor.dtype.as_datatype_enum for tensor in tensors} & (alone - types)

    fallback._may_fall_back = lambda name, tensors: may_fall_back(name, tensors) and is_on_gpus(name, tensors)


flags.FLAGS(["test"])  # TensorFlow's tests take the folder for their files from these
if os.environ["HEADRACE_SUITE_DEVICE"] == "HEADRACE" and os.environ.get("HEADRACE_SUITE_NAMED") != "cpu":
    point_at_device()
if os.environ.get("HEADRACE_FALLBACK"):
    let_host_operations_run()
