"""ATen's operators on elements at indices."""

from headrace import _arrays as A
from headrace._arrays import Value
from headrace.programs.table import cast, of, part, size, sizes

# ---- elements at indices


@of("embedding")
def embedding(c, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return A.take(weight, indices, 0)


@of("index_select")
def index_select(c, self, dim, index):
    return A.take(self, index, dim) if self.ndim else self


def _smaller_part(x, index, axis):
    """x without the elements that an index of fewer elements, along other dims than the axis, does not reach."""
    for d in range(x.ndim):
        if d != axis % x.ndim and x.shape[d] != index.shape[d]:
            x = part(x, d, 0, size(index, d))
    return x


@of("gather")
def gather(c, self, dim, index, sparse_grad=False):
    if self.ndim == 0:
        return self
    return A.take_along_axis(_smaller_part(self, index, dim), index, dim)


_MODES = {"sum": "add", "add": "add", "prod": "multiply", "multiply": "multiply", "amax": "max", "amin": "min"}


def _scatter(self, dim, index, source, mode):
    reached = _smaller_part(self, index, dim)
    source = _smaller_part(source, index, dim) if source.ndim else A.broadcast_to(source, sizes(index))
    source = part(source, dim, 0, size(index, dim)) if source.shape[dim] != index.shape[dim] else source
    found = A.put_along_axis(reached, index, source, dim, mode)
    if reached is self:
        return found
    return A.slice_update(self, found, [0] * self.ndim, sizes(found), [1] * self.ndim, "set")


@of("scatter", "scatter_add", "scatter_reduce")
def scatter(c, self, dim, index, src=None, value=None, reduce=None, include_self=True):
    source = (
        cast(src, c.dtype)
        if src is not None
        else cast(value, c.dtype)
        if isinstance(value, Value)
        else c.constant(value)
    )
    mode = "add" if c.name == "scatter_add" else _MODES.get(reduce, "set")
    if reduce == "mean":
        return _scatter_mean(c, self, dim, index, source, include_self)
    if not include_self and mode != "set":
        neutral = {"add": 0, "multiply": 1}.get(mode)
        if neutral is None:
            import torch

            limits = torch.finfo(c.type.dtype) if c.type.is_floating_point() else torch.iinfo(c.type.dtype)
            neutral = limits.min if mode == "max" else limits.max
            neutral = float("-inf" if mode == "max" else "inf") if c.type.is_floating_point() else neutral
        self = _scatter(self, dim, index, c.constant(neutral), "set")
    return _scatter(self, dim, index, source, mode)


def _scatter_mean(c, self, dim, index, source, include_self):
    zero, one = c.constant(0), c.constant(1)
    start = self if include_self else _scatter(self, dim, index, zero, "set")
    total = _scatter(start, dim, index, source, "add")
    ones = A.broadcast_to(one, sizes(self))
    count = _scatter(ones if include_self else _scatter(ones, dim, index, zero, "set"), dim, index, one, "add")
    count = A.where(count == 0, one, count)
    return A.divide(total, count) if c.type.is_floating_point() else A.floor_divide(total, count)


@of("index_add")
def index_add(c, self, dim, index, source, alpha=1):
    return A.index_add(self, index, cast(source, c.dtype), dim, alpha)


def _as_integers(index, x, axis):
    """Index arrays for one index: a mask becomes the places where it is true."""
    if index.dtype.name == "bool":
        return list(A.unstack(A.nonzero(index), 0))
    return [index]


def _indices(x, indices):
    axes, found = [], []
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
            continue
        for one in _as_integers(index, x, axis):
            axes.append(axis)
            found.append(one)
            axis += 1
    is_apart = axes != list(range(axes[0], axes[0] + len(axes)))
    return found, axes, is_apart


@of("index", "_unsafe_index")
def index(c, self, indices):
    found, axes, is_apart = _indices(self, indices)
    return A.index([self, *found], axes, is_apart)


@of("index_put", "_unsafe_index_put")
def index_put(c, self, indices, values, accumulate=False):
    found, axes, is_apart = _indices(self, indices)
    return A.index_put([self, cast(values, c.dtype), *found], axes, "add" if accumulate else "set", is_apart)


@of("nonzero")
def nonzero(c, self):
    return A.swapaxes(A.nonzero(self), 0, 1)


@of("masked_scatter")
def masked_scatter(c, self, mask, source):
    flat = [A.reshape(x, [-1]) for x in (self, A.broadcast_to(mask, sizes(self)), source)]
    return A.reshape(A.masked_scatter(*flat), sizes(self))


@of("searchsorted", "bucketize")
def searchsorted(
    c, sorted_sequence=None, self=None, boundaries=None, out_int32=False, right=False, side=None, sorter=None
):
    order = sorted_sequence if sorted_sequence is not None else boundaries
    return cast(A.searchsorted(order, self, "right" if right or side == "right" else "left"), c.dtype)
