"""Optimizers that count their steps on the host can't be captured: each replay would repeat the captured step. The
library imports this module before the first capture of a graph; from then on they refuse while one is captured."""

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from headrace._library import _C

# Numbers of these optimizers depend on a count of steps, which they keep on the host.
_COUNTING = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD", "SparseAdam")


def _refuse_counted_steps(optimizer, args, kwargs):
    if not torch.compiler.is_compiling() and _C.is_capturing():
        counts = any(kind.__name__ in _COUNTING for kind in type(optimizer).__mro__)
        if counts or any(group.get("lr_decay") for group in optimizer.param_groups):
            raise RuntimeError(
                f"headrace: a step of {type(optimizer).__name__} can't be captured, since it counts its steps on the "
                "host: each replay would repeat the captured step. Capture up to backward() and call step() after the "
                "replay"
            )


register_optimizer_step_pre_hook(_refuse_counted_steps)
