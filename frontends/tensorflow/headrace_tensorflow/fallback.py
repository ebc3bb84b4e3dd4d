"""What runs on the host because the device has no kernel for it: names, counts, warnings or errors.

TensorFlow places such operations on its CPU device, copies their inputs and waits for the work before them. A callback
of TensorFlow's sees each eager operation, and each one of a function while it is traced. It belongs to the thread that
sets it, and slows eager operations down, so without a mode nothing is watched.
"""

import collections
import functools
import os
import warnings

__all__ = ["fallbacks", "reset_fallbacks", "set_fallback"]

MODES = ("allow", "warn", "error")
_counts = collections.Counter()
_state = {"mode": "allow", "warned": set()}
CALLS = ("PartitionedCall", "StatefulPartitionedCall")  # their bodies are looked at


@functools.cache
def _kernels(name):
    """Constraints of each kernel on the device: pairs of an attribute and the types it may have."""
    from tensorflow.python.framework import kernels

    found = kernels.get_registered_kernels_for_op(name).kernel
    return [
        [(constraint.name, set(constraint.allowed_values.list.type)) for constraint in kernel.constraint]
        for kernel in found
        if kernel.device_type in ("HEADRACE", "DEFAULT")
    ]


def _types(operation, name):
    value = operation.get_attr(name)
    values = value if isinstance(value, (list, tuple)) else [value]
    return {getattr(one, "as_datatype_enum", one) for one in values}


def _has_kernel(operation):
    return any(
        all(_types(operation, name) <= allowed for name, allowed in constraints if allowed)
        for constraints in _kernels(operation.type)
    )


def _is_of_device(tensor):
    """True of numbers, but those of int32, which TensorFlow keeps on the host."""
    dtype = tensor.dtype
    return dtype.is_floating or dtype.is_complex or dtype.is_integer and dtype.name != "int32"


def _may_fall_back(name, tensors):
    """Strings, datasets, iterators, their elements, and tables of tf.lookup are on the host by nature."""
    is_of_host = any(word in name for word in ("Dataset", "Iterator", "Optional", "LookupTable", "HashTable"))
    return name not in CALLS and not is_of_host and not any(tensor.dtype == "string" for tensor in tensors)


def _is_of_host(device):
    return "cpu" in (device or "").lower()


def _falls_back_in_graph(name, inputs, outputs, op_name, graph):
    """A function of tf.data runs on the host by intent, and so does what a program puts there."""
    operation = outputs[0].op if outputs else graph.get_operation_by_name(op_name)
    is_ours = not getattr(graph, "name", "").startswith("Dataset") and not _is_of_host(operation.device)
    uses_device = any(map(_is_of_device, [*inputs, *outputs]))
    return is_ours and _may_fall_back(name, [*inputs, *outputs]) and uses_device and not _has_kernel(operation)


def _falls_back(name, inputs, outputs):
    """Results of int32 and strings are on the host in any case."""
    from tensorflow.python.eager import context

    used = any("HEADRACE" in (getattr(tensor, "device", None) or "") for tensor in inputs)
    is_ours = used and _may_fall_back(name, [*inputs, *outputs]) and not _is_of_host(context.context().device_name)
    results = [tensor for tensor in outputs if _is_of_device(tensor)]
    return is_ours and bool(results) and all(_is_of_host(tensor.device) for tensor in results)


def _see(op_type, inputs, attrs, outputs, op_name=None, graph=None):
    name = op_type.decode() if isinstance(op_type, bytes) else op_type
    in_graph = graph is not None and _falls_back_in_graph(name, inputs, outputs, op_name, graph)
    if not in_graph and (graph is not None or not _falls_back(name, inputs, outputs)):
        return
    _counts[name] += 1
    types = sorted({tensor.dtype.name for tensor in [*inputs, *outputs]})
    message = f"headrace_tensorflow: no kernel for {name} of {', '.join(types)}: it runs on the host, with copies"
    if _state["mode"] == "error":
        from tensorflow.python.framework import errors

        raise errors.UnimplementedError(None, None, f"{message}. HEADRACE_FALLBACK=allow or warn lets it run.")
    if name not in _state["warned"]:
        _state["warned"].add(name)
        warnings.warn(message, stacklevel=2)


def set_fallback(mode):
    """For this thread: allow (the default), warn (once for each operation) or error, as HEADRACE_FALLBACK when this
    package is imported. With warn and error `fallbacks` counts."""
    if mode not in MODES:
        raise ValueError(f"headrace_tensorflow: fallback mode {mode!r}, expected one of {', '.join(MODES)}")
    from tensorflow.python.eager import context
    from tensorflow.python.framework import op_callbacks

    if _see in context.context().op_callbacks:
        op_callbacks.remove_op_callback(_see)
    _state["mode"] = mode
    if mode != "allow":
        op_callbacks.add_op_callback(_see)


def fallbacks():
    """How often each operation was seen to run on the host: a dict by name. Those of a function count once a trace."""
    return dict(_counts)


def reset_fallbacks():
    """Forgets the counts, and what was warned about."""
    _counts.clear()
    _state["warned"].clear()


if mode := os.environ.get("HEADRACE_FALLBACK"):
    set_fallback(mode)
