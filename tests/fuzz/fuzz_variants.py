"""Variants of a program that tell why its bits differ between two modes.

If the difference is gone in a variant, then the variant excludes its cause: the sign and payload of NaN, or the layout
in which a convolution wants its tensors. A variant has two functions that a run calls around each step.
"""

import math

from fuzz_compare import plain
from fuzz_generate import overlaps


class OneNan:
    """Each NaN gets the same bits as soon as it is made."""

    def __init__(self, steps):
        self.is_needed = any(step.op == "view_dtype" for step in steps)

    def before(self, step, env):
        pass

    def after(self, step, env):
        for name in [*step.makes, *step.writes]:
            value = env[name]
            is_real = value.is_floating_point() and not overlaps(value.shape, value.stride())
            if self.is_needed and is_real:
                value.masked_fill_(value.isnan(), math.nan)


class FixedConvolutions:
    """A convolution's inputs are read before it, and its result is the one of the first run, in the default layout."""

    def __init__(self, steps):
        self.results = {}

    def before(self, step, env):
        if step.op in ("conv1d", "conv2d"):
            for value in [env[name] for name in env if name in step.line and name.startswith("v")]:
                plain(value)

    def after(self, step, env):
        for name in step.makes if step.op in ("conv1d", "conv2d") else ():
            device = env[name].device
            self.results.setdefault(name, plain(env[name]))
            env[name] = self.results[name].to(device)


VARIANTS = {"one_nan": OneNan, "fixed_convolutions": FixedConvolutions}
