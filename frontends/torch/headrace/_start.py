"""The changes to torch at the first use of the device. The library imports this module then, once; a program that
only imports torch never does.

torch has no hook for the following, so its functions are replaced by ones that check the device first. Tensors of
other devices go to torch's own function.
"""

import atexit
import functools
import os
import sys

import torch

from headrace import _autoload, _multiprocessing, _nvtx, elementwise, exchange, optim
from headrace._library import _C


def _choose_as_for_the_host():
    """torch accumulates the chunked linear_cross_entropy of half precision in float32 on the devices that it lists,
    and in the narrow dtype elsewhere; ours gets the CPU's choices."""
    options = sys.modules.get("torch.nn.modules.linear_cross_entropy_options")
    if options is None:
        return  # an older torch
    cls = options.LinearCrossEntropyOptions
    if defaults := getattr(options, "_AUTO_DEFAULTS", None):  # up to torch 2.13; later a function
        defaults.update({("headrace", dtype): chosen for (kind, dtype), chosen in defaults.items() if kind == "cpu"})
    else:
        policy = options._auto_acc_policy
        options._auto_acc_policy = lambda kind, dtype: policy("cpu" if kind == "headrace" else kind, dtype)
    resolve = cls._resolve_auto_acc_dtype

    def resolve_as_for_the_host(dtype, device):
        return resolve(dtype, torch.device("cpu") if device is not None and device.type == "headrace" else device)

    cls._resolve_auto_acc_dtype = staticmethod(resolve_as_for_the_host)


def _print_from_the_host():
    """repr() formats one copy of a device tensor: formatting on the device would read it number by number."""
    plain_text = torch._tensor_str._str

    def tensor_text(tensor, *, tensor_contents=None):
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "headrace"
        if (
            plain
            and tensor.layout == torch.strided
            and tensor_contents is None
            and not tensor.is_nested
            and tensor.numel() > 0
            and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        ):
            with torch.no_grad():
                tensor_contents = torch._tensor_str._tensor_str(tensor.detach().cpu(), len("tensor("))
        return plain_text(tensor, tensor_contents=tensor_contents)

    torch._tensor_str._str = tensor_text


def _compile_by_our_backend():
    """torch.compile without a backend means inductor, which generates no code for this device: graphs that touch it
    go to ours, as with backend="headrace"."""
    wrapper = torch._TorchCompileInductorWrapper
    by_inductor, construct = wrapper.__call__, wrapper.__init__

    @functools.wraps(construct)
    def begin(self, *arguments, **names):  # torch.compile was called, and traces later
        elementwise.trace_made_kernels()
        construct(self, *arguments, **names)

    @functools.wraps(by_inductor)
    def compile_graph(self, module, inputs, **names):
        from headrace import torch_compile

        if torch_compile.touches_device(module, inputs):
            return torch_compile.headrace(module, inputs)
        return by_inductor(self, module, inputs, **names)

    wrapper.__call__ = compile_graph
    wrapper.__init__ = begin


def _attention_of_many(
    info, dims, query, key, value, bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):
    """torch.func.vmap of attention: the examples are a part of its batch."""
    if dropout_p > 0:
        raise RuntimeError("headrace: attention has no dropout under torch.func.vmap; set dropout_p to 0")

    def examples(tensor, dim):
        return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

    query, key, value = (examples(*one) for one in zip((query, key, value), dims[:3], strict=True))
    count = query.shape[:2]
    if bias is not None:
        bias = examples(bias, dims[3])
        bias = bias.reshape(count[0], *[1] * (5 - bias.dim()), *bias.shape[1:])
        bias = bias.expand(*query.shape[:4], key.shape[3]).flatten(0, 1)
    parts = (tensor.flatten(0, 1) for tensor in (query, key, value))
    run = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    out, logsumexp, *others = run(*parts, bias, dropout_p, is_causal, return_debug_mask, scale=scale)
    results = (out.unflatten(0, count), logsumexp.unflatten(0, count), *others)
    return results, (0, 0, *[None] * len(others))


def _finish():
    """Waits for the device before the interpreter ends, without holding the interpreter's lock.

    A thread of autograd that has just finished a backward pass releases Python objects; if it requests the lock while
    the interpreter is ending, the process aborts. (The core itself waits for its work when the process exits.)

    An interpreter that ends by Ctrl-C skips the core's own end, so HEADRACE_PROFILE's tables are printed here.
    """
    try:
        _C.synchronize_all()
        _C.profile_report()
    except Exception:
        pass  # the error can't be reported any more


def _start():
    chosen = os.environ.get("HEADRACE_DEVICE", "")
    _print_from_the_host()
    _multiprocessing.register()
    exchange.register()
    _compile_by_our_backend()
    _choose_as_for_the_host()
    optim.register(_C.adam, _C.step_adam, _C.forget_gradients)
    _nvtx.register()
    torch.library.register_vmap("aten::_scaled_dot_product_fused_attention_overrideable", _attention_of_many)
    if not _autoload.drives_a_gpu(torch) or chosen.startswith("cuda"):
        torch._C._set_multithreading_enabled(False)  # see docs/decisions.md: backward passes run on the calling thread
    atexit.register(_finish)


_start()
