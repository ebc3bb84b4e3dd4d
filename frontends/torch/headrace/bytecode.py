"""Leaves out work of dynamo's bytecode in front of each graph call, if the graph does not use it.

On a device with streams, the bytecode looks up the current one and registers it for operations of the graph that name
streams by number. It also records for the profiler the time for fetching the graph's arguments. These are Python
functions: 3.9 us of the 9.2 that an empty compiled function takes with torch 2.13. Both are decided after the backend
has returned, by a table and a setting, which `simplify` changes until the compilation is over. Other compilations and
other backends are not affected.
"""

import threading

import torch
from torch._dynamo import config
from torch._dynamo.callback import callback_handler

try:
    from torch._dynamo import graph_bytecode_inputs as _objects
except ImportError:  # a torch without that table
    _objects = None

_SETTING = "record_runtime_overhead"
_thread = threading.local()  # .patch: the setting as this thread has changed it; settings belong to threads, too


def simplify(module):
    """To be called by the backend, with dynamo's FX graph."""
    if torch._guards.CompileContext.current_compile_id() is None:
        return  # nothing would restore it
    if _objects is not None and not _names_objects(module):
        _objects.reset_user_object_tracking()
    if getattr(config, _SETTING, False):
        if _restore not in callback_handler.end_callbacks:  # torch._dynamo.reset() forgets it
            callback_handler.register_end_callback(_restore)
        _thread.patch = config.patch({_SETTING: False})
        _thread.patch.__enter__()


def _restore(_):
    if getattr(_thread, "patch", None) is not None:
        _thread.patch.__exit__(None, None, None)
        _thread.patch = None


def _names_objects(module):
    """True if more than the current stream is registered, or an operation of the FX graph looks it up."""
    nodes = (node for part in module.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes)
    return len(_objects.index_to_bytecode_constructor) > 1 or any(
        node.target is _objects.get_external_object_by_index or str(node.target).startswith("streams") for node in nodes
    )
