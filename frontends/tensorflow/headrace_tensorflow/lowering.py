"""Loops and conditions of functions that ask for XLA, which Keras' default does: TensorFlow's Python code does not mark
While and If in them for lowering, and the plug-in's optimizer gets their bodies as names.

The device is without XLA, so they are marked, too. XLA on the CPU device takes no notice of the mark. The plug-in runs
this file when it creates a device, without the package around it, which the program may import or not.
"""

from typing import Any


def mark_loops() -> None:
    """Lets TensorFlow mark all loops and conditions for lowering.

    An error (ImportError, AttributeError) means that TensorFlow's code is not the one that is known here.
    """
    from tensorflow.python.eager import context
    from tensorflow.python.ops import control_flow_util_v2 as util

    mark = util.maybe_set_lowering_attr

    def mark_all(op: Any, lower_using_switch_merge: bool | None = None) -> None:
        """As the original, without its exception for XLA."""
        executor = context.context().function_call_options.executor_type
        is_free = lower_using_switch_merge is None and not util._DISABLE_LOWER_USING_SWITCH_MERGE
        mark(op, True if is_free and executor != "SINGLE_THREADED_EXECUTOR" else lower_using_switch_merge)

    util.maybe_set_lowering_attr = mark_all
