"""mx.distributed for one process: a group of size 1, in which sums are the arrays themselves.

Several processes are not supported here; the PyTorch device has them (docs/distributed.md).
"""

__all__ = [
    "Group",
    "all_gather",
    "all_max",
    "all_min",
    "all_sum",
    "init",
    "is_available",
    "recv",
    "recv_like",
    "send",
    "sum_scatter",
]


class Group:
    """The group of this process."""

    def rank(self):
        """0"""
        return 0

    def size(self):
        """1"""
        return 1

    def split(self, color, key=-1):
        """Raises: one process can't be split."""
        raise RuntimeError("split: a group of one process can't be split")


_group = Group()


def is_available(backend="any"):
    """False: there are no backends for several processes."""
    return False


def init(strict=False, backend="any"):
    """The group of this process; strict raises, since it is alone."""
    if strict:
        raise RuntimeError(f"init: no backend {backend!r} for several processes")
    return _group


def _alone(name, what):
    def call(x, *, group=None, stream=None):
        return x

    call.__name__, call.__doc__ = name, f"{what} over the group: x, whose group has one process."
    return call


all_sum = _alone("all_sum", "The sum")
all_max, all_min = _alone("all_max", "The maximum"), _alone("all_min", "The minimum")
all_gather = _alone("all_gather", "All arrays, one after the other,")
sum_scatter = _alone("sum_scatter", "This process's part of the sum")


def _refused(name):
    def call(*args, **kwargs):
        raise RuntimeError(f"{name}: the group has one process, expected another one")

    call.__name__, call.__doc__ = name, "Raises: there is no other process."
    return call


send, recv, recv_like = _refused("send"), _refused("recv"), _refused("recv_like")
