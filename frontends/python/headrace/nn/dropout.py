"""Dropout: in training, random elements or channels become 0, and the others are divided by the share that is kept."""

from headrace import _arrays, random
from headrace.nn.module import Module


class Dropout(Module):
    """Each element of x becomes 0 with probability p."""

    _WHOLE = ()  # dims that are dropped as a whole
    _RANKS = None  # of x; None: all

    def __init__(self, p=0.5):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"{type(self).__name__}: p is {p}, expected a number in [0, 1)")
        self._p_1 = 1 - p

    def _extra_repr(self):
        return f"p={1 - self._p_1}"

    def __call__(self, x):
        if self._RANKS is not None and x.ndim not in self._RANKS:
            raise ValueError(f"{type(self).__name__}: x has shape {x.shape}, expected {self._RANKS} dims")
        if self._p_1 == 1 or not self._training:
            return x
        shape = list(x.shape)
        for dim in self._WHOLE:
            shape[dim] = 1
        is_kept = random.bernoulli(random.next_key(), self._p_1, shape)
        return _arrays.where(is_kept, x * (1 / self._p_1), 0)


class Dropout2d(Dropout):
    """Each channel of x [N, H, W, C] or [H, W, C] becomes 0 with probability p."""

    _WHOLE, _RANKS = (-2, -3), (3, 4)


class Dropout3d(Dropout):
    """Each channel of x [N, D, H, W, C] or [D, H, W, C] becomes 0 with probability p."""

    _WHOLE, _RANKS = (-2, -3, -4), (4, 5)
