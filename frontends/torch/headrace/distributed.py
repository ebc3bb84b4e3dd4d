"""The backend `headrace` of torch.distributed.

`_register` is called when this device is registered, and only puts a function into torch's table. The first process
group that needs the backend calls it. Ranks with a GPU each communicate by NCCL, others of one machine through shared
memory, and the rest through gloo.
"""

import contextlib
import functools
import itertools
import os
import sys

import torch

_numbers = itertools.count()


def _gloo(c10d, options, prefix):
    store = c10d.PrefixStore(prefix, options.store)
    return c10d.ProcessGroupGloo(store, options.group_rank, options.group_size, options.timeout)


def _complete(group, backend, options, c10d):
    """Gives the process group that is being made what torch leaves out for backends of other packages.

    The default backend of a group is found by its type. torch sets none, or gloo if no backend was named, which then
    has to be there: DistributedDataParallel looks for it. So such a group gets gloo for tensors of the CPU.
    """
    types = c10d.ProcessGroup.BackendType
    if str(backend) == "undefined":
        group._register_backend(torch.device("cpu"), types.GLOO, _gloo(c10d, options, "cpu/"))
    group._set_default_backend(types.CUSTOM)


def _create(options, _=None):
    """The backend of a new process group. torch's C++ objects pass through a process group of a temporary name,
    because our library does not have torch's Python classes."""
    import torch.distributed.distributed_c10d as c10d
    from headrace._library import _C

    _end_coalescing_always(c10d)
    _allow_bfloat16_hooks()
    caller = sys._getframe(1).f_locals  # torch passes neither the group nor the name of its backend
    if isinstance(caller.get("pg"), c10d.ProcessGroup):
        _complete(caller["pg"], caller.get("backend"), options, c10d)
    group = c10d.ProcessGroup(options.store, options.group_rank, options.group_size)
    name = f"headrace-{options.group_id}-{next(_numbers)}"
    milliseconds = int(options.timeout.total_seconds() * 1000)
    c10d._register_process_group(name, group)
    try:
        chosen = os.environ.get("HEADRACE_TRANSPORT", "auto")
        has_met = chosen != "network" and (
            _C.meet_by_nccl(name, milliseconds, chosen == "nccl") or _C.meet_by_memory(name, milliseconds)
        )
        if not has_met:
            types = c10d.ProcessGroup.BackendType
            group._register_backend(torch.device("cpu"), types.GLOO, _gloo(c10d, options, "gloo/"))
            _C.meet_by_network(name, milliseconds)
    finally:
        c10d._unregister_process_group(name)
    return group._get_backend(torch.device("headrace"))


def transport(group=None):
    """How the ranks of a process group reach each other: "nccl", "shared memory" or "network"."""
    import torch.distributed as dist
    from headrace._library import _C

    return _C.transport_of((group or dist.group.WORLD).group_name)


def _end_coalescing_always(c10d):
    """torch keeps its state of coalescing if the block raises, and skips all later collectives of the group."""
    coalesce = c10d._coalescing_manager
    if getattr(coalesce, "ends_always", False):
        return

    @contextlib.contextmanager
    def manager(group=None, device=None, async_ops=False):
        group = group or c10d._get_default_group()
        coalescing = coalesce(group, device, async_ops)
        works = coalescing.__enter__()
        try:
            yield works
        except BaseException:
            collectives = c10d._world.pg_coalesce_state.pop(group, [])
            if device is not None and torch.device(device).type == "headrace":
                from headrace._library import _C

                _C.cancel_coalescing(group.group_name, bool(collectives))
            raise
        coalescing.__exit__(None, None, None)

    manager.ends_always = True
    c10d._coalescing_manager = sys.modules["torch.distributed"]._coalescing_manager = manager


def _allow_bfloat16_hooks():
    """DistributedDataParallel refuses torch's hooks that compress to bfloat16 without NCCL or XCCL."""
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    model = getattr(parallel, "DistributedDataParallel", None)
    check = getattr(model, "_check_comm_hook", None)
    if check is None or getattr(check, "allows_bfloat16", False):
        return

    @functools.wraps(check)
    def check_hook(self, hook):
        if self.device_type == "headrace" and getattr(hook, "__name__", "").startswith("bf16_compress_"):
            hook = functools.wraps(hook)(lambda *arguments: hook(*arguments))
            hook.__name__ = "hook"  # torch looks for the name; everything else is compared
        check(self, hook)

    check_hook.allows_bfloat16 = True
    model._check_comm_hook = check_hook


def _register():
    """Adds the backend to torch's table, if this torch has torch.distributed."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is not None and "HEADRACE" not in c10d.Backend._plugins:
        c10d.Backend.register_backend("headrace", _create, extended_api=True, devices=["headrace"])
