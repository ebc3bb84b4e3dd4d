"""ATen's changes of shapes, and new tensors."""

from headrace import _arrays as A
from headrace._arrays import Value
from headrace.programs.table import array_of, cast, each, larger, of, part, size, sizes, smaller

# ---- shapes


@of("view", "reshape", "_unsafe_view", "_reshape_alias")
def reshape(c, self, size=None, shape=None, stride=None):
    return A.reshape(self, list(size if size is not None else shape))


@of("flatten")
def flatten(c, self, start_dim=0, end_dim=-1):
    if self.ndim == 0:
        return A.reshape(self, [1])
    first, last = start_dim % self.ndim, end_dim % self.ndim
    return A.reshape(self, [*sizes(self)[:first], -1, *sizes(self)[last + 1 :]])


@of("permute")
def permute(c, self, dims):
    return A.permute_dims(self, [axis % self.ndim for axis in dims])


@of("transpose", "swapaxes")
def transpose(c, self, dim0=None, dim1=None, axis0=None, axis1=None):
    return (
        A.swapaxes(self, dim0 if dim0 is not None else axis0, dim1 if dim1 is not None else axis1)
        if self.ndim
        else self
    )


@of("t", "numpy_T", "mT")
def transposed(c, self):
    return A.swapaxes(self, -2, -1) if self.ndim > 1 else self


@of("unsqueeze")
def unsqueeze(c, self, dim):
    return A.expand_dims(self, dim)


@of("squeeze")
def squeeze(c, self, dim=None):
    axes = range(self.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return A.squeeze(self, [axis for axis in axes if self.ndim and self.shape[axis] == 1])


@of("expand", "broadcast_to")
def expand(c, self, size, implicit=False):
    new = len(size) - self.ndim
    given = [_size_of(self, axis - new) if isinstance(one, int) and one == -1 else one for axis, one in enumerate(size)]
    return A.broadcast_to(self, given)


_size_of = size


@of("expand_as", "view_as", "reshape_as")
def like_other(c, self, other):
    is_view = c.name != "expand_as"
    return (A.reshape if is_view else A.broadcast_to)(self, sizes(other))


@of("repeat", "tile")
def repeat(c, self, repeats=None, dims=None):
    return A.tile(self, list(repeats if repeats is not None else dims))


@of("flip")
def flip(c, self, dims):
    return A.flip(self, list(dims))


@of("roll")
def roll(c, self, shifts, dims=()):
    if not dims:
        return A.reshape(A.roll(A.reshape(self, [-1]), each(shifts, 1)[0], 0), sizes(self))
    for shift, axis in zip(each(shifts, len(dims)), dims):
        self = A.roll(self, shift, axis)
    return self


@of("cat", "concat")
def cat(c, tensors, dim=0):
    parts = [cast(x, c.dtype) for x in tensors if x.shape != (0,) or len(c.type.shape) == 1]
    return A.concat(parts, dim) if len(parts) > 1 else parts[0]


@of("stack")
def stack(c, tensors, dim=0):
    return A.stack([cast(x, c.dtype) for x in tensors], dim)


@of("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "chunk", "unsafe_chunk")
def split(c, self, split_size=None, split_sizes=None, dim=0, chunks=None):
    results = c.node.meta["val"]
    begin, parts = 0, []
    for one in results:
        count = one.shape[dim]
        if not isinstance(count, int):
            if split_sizes is None:
                raise ValueError("parts of a size that depends on symbols")
            count = split_sizes[len(parts)]
        parts.append(part(self, dim, begin, count))
        begin = begin + count
    return tuple(parts)


@of("unbind")
def unbind(c, self, dim=0):
    return tuple(A.unstack(self, dim))


@of("slice")
def slice_(c, self, dim=0, start=None, end=None, step=1):
    end = None if isinstance(end, int) and end >= 2**62 else end
    return self[(slice(None),) * (dim % self.ndim) + (slice(start, end, step),)]


@of("narrow")
def narrow(c, self, dim, start, length):
    return part(self, dim, start, length)


@of("select")
def select(c, self, dim, index):
    return self[(slice(None),) * (dim % self.ndim) + (index,)]


def _range(x, axis, start, end, step):
    """Begin and number of the elements start to end: negative ones count from the end, others are bounded."""
    whole = size(x, axis)
    if all(isinstance(one, int) for one in (whole, start, end)):
        found = range(whole)[start:end:step]
        return found.start, len(found)
    begin, stop = (_bounded(one, whole) for one in (start, end))
    return begin, (larger(stop - begin, 0) + (step - 1)) // step


def _bounded(place, whole):
    if isinstance(place, int) and place >= 2**62:
        return whole
    place = place + whole if isinstance(place, int) and place < 0 else place
    return larger(smaller(place, whole), 0)


@of("slice_scatter", "select_scatter")
def slice_scatter(c, self, src, dim=0, start=None, end=None, step=1, index=None):
    axis = dim % self.ndim
    begin, counts, steps = [0] * self.ndim, sizes(self), [1] * self.ndim
    if index is not None:
        src, counts[axis] = A.expand_dims(src, axis), 1
        begin[axis] = index + size(self, axis) if isinstance(index, int) and index < 0 else index
    else:
        found = _range(self, axis, 0 if start is None else start, 2**63 - 1 if end is None else end, step)
        (begin[axis], counts[axis]), steps[axis] = found, step
    return A.slice_update(self, cast(src, c.dtype), begin, counts, steps, "set")


@of("unfold")
def unfold(c, self, dimension, size, step):
    axis, count = dimension % self.ndim, c.type.shape[dimension]
    places = A.array([[i * step + k for k in range(size)] for i in range(count)], dtype="int64")
    windows = A.take(self, c.graph.constant(A.reshape(places, [count, size])), axis)
    order = [*range(axis + 1), *range(axis + 2, self.ndim + 1), axis + 1]
    return A.permute_dims(windows, order)


@of("diagonal")
def diagonal(c, self, offset=0, dim1=0, dim2=1):
    return A.diagonal(self, offset, dim1, dim2)


@of("tril", "triu")
def triangle(c, self, diagonal=0):
    return getattr(A, c.name)(self, diagonal)


@of("as_strided")
def as_strided(c, self, size, stride, storage_offset=0):
    return A.as_strided(self, list(size), list(stride), storage_offset or 0)


@of("constant_pad_nd")
def constant_pad(c, self, pad, value=0):
    before, after = _sides(self.ndim, pad)
    return A.pad(self, before, after, value)


def _sides(rank, pad):
    """Pads of all dims, from torch's, which begin with the last dim."""
    before, after = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return before, after


@of("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
     "replication_pad3d")  # fmt: skip
def border_pad(c, self, padding):
    function = A.pad_reflect if "reflection" in c.name else A.pad_edge
    return function(self, *_sides(self.ndim, padding))


@of("pixel_shuffle")
def pixel_shuffle(c, self, upscale_factor):
    return A.depth_to_space(
        self, [upscale_factor] * 2, depth=self.ndim - 3, axes=[self.ndim - 2, self.ndim - 1], order="crd"
    )


# ---- new tensors


@of("full", "ones", "zeros", "empty", "new_full", "new_ones", "new_zeros", "new_empty", "full_like", "ones_like",
     "zeros_like", "empty_like", "empty_strided")  # fmt: skip
def full(c, size=None, fill_value=None, self=None, **_):
    name = c.name
    number = 1 if "ones" in name else fill_value if fill_value is not None else 0
    number = cast(number, c.dtype) if isinstance(number, Value) else c.constant(number)
    return A.broadcast_to(number, list(size) if size is not None else sizes(self))


@of("scalar_tensor")
def scalar_tensor(c, s, **_):
    return cast(s, c.dtype) if isinstance(s, Value) else c.constant(s)


@of("fill")
def fill(c, self, value):
    return A.broadcast_to(cast(value, c.dtype) if isinstance(value, Value) else c.constant(value), sizes(self))


@of("arange")
def arange(c, end, start=0, step=1, **_):
    if all(isinstance(one, (int, float)) for one in (start, end, step)) and "int" not in c.dtype:
        return c.graph.constant(A.arange(start, end, step, dtype=c.dtype))
    end = end if isinstance(end, Value) else c.constant(end, "int64")
    return A.arange(start, end, step, dtype=c.dtype)


@of("eye", "linspace", "logspace", "tril_indices", "triu_indices", "hann_window", "hamming_window", "bartlett_window",
    "blackman_window", "kaiser_window")  # fmt: skip
def made(c, **arguments):
    """A tensor without inputs, which torch makes."""
    if any(isinstance(one, Value) for one in arguments.values()):
        raise ValueError("its sizes depend on symbols, expected numbers")
    return c.graph.constant(array_of(c.node.target(*c.node.args, **c.node.kwargs)))


@of(
    "rand",
    "randn",
    "randint",
    "randperm",
    "rand_like",
    "randn_like",
    "bernoulli",
    "multinomial",
    "normal",
    "native_dropout",
)
def random(c, **_):
    raise ValueError("random numbers have no place in a graph: give them as an input, or export the model in eval mode")


@of("dropout", "feature_dropout", "alpha_dropout")
def dropout(c, input, p, train):
    return random(c) if train and p else input


# ---- copies and sizes


@of("_to_copy", "to", "clone", "alias", "contiguous", "detach", "detach_", "lift_fresh_copy", "lift_fresh", "type_as",
     "view_of", "_conj_physical", "resolve_conj", "resolve_neg")  # fmt: skip
def copy_of(c, self, *args, **_):
    return cast(self, c.dtype)


@of("copy")
def copy(c, self, src, non_blocking=False):
    return A.broadcast_to(cast(src, c.dtype), sizes(self))


@of("sym_size")
def sym_size(c, self, dim=None):
    found = size(self, dim)
    return found if isinstance(found, Value) else c.constant(found, "int64")


@of("sym_numel")
def sym_numel(c, self):
    return A.prod(c.graph.shape(self))


@of("_local_scalar_dense", "item")
def item(c, self):
    return c.graph.read(self)
