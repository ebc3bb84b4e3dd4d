"""Products of matrices and convolutions with MLX's names and arguments."""

import math

import headrace as _hr
from headrace import _arrays
from headrace.mlx._operations import as_array

_FLOATING = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def _floating(who, *arrays):
    arrays = [as_array(a) for a in arrays]
    if _hr.result_type(*arrays).name not in _FLOATING:
        raise ValueError(f"{who}: arrays of {', '.join(a.dtype.name for a in arrays)}, expected floating ones")
    return arrays


def matmul(a, b, /, *, stream=None):
    """The product of matrices, or of vectors; other dims are broadcast."""
    return _arrays.matmul(*_floating("matmul", a, b))


def addmm(c, a, b, /, alpha=1.0, beta=1.0, *, stream=None):
    """beta * c + alpha * a @ b"""
    a, b = _floating("addmm", a, b)
    product = _arrays.matmul(a, b)
    c = _arrays.broadcast_to(as_array(c), product.shape)
    return _scaled(product, alpha) + _scaled(c, beta).astype(product.dtype)


def _scaled(x, factor):
    return x if factor == 1.0 else x * factor


def inner(a, b, /, *, stream=None):
    """Sums of products over the last axes."""
    return _arrays.inner(a, b)


def outer(a, b, /, *, stream=None):
    """Products of all pairs of elements."""
    return _arrays.outer(a, b)


def vecdot(a, b, /, *, axis=-1, stream=None):
    """Sums of products along an axis."""
    return _arrays.vecdot(a, b, axis)


def kron(a, b, *, stream=None):
    """The Kronecker product."""
    if as_array(a).size == 0 or as_array(b).size == 0:
        raise ValueError("kron: an empty array, expected elements")
    return _arrays.kron(a, b)


def tensordot(a, b, /, axes=2, *, stream=None):
    """Sums of products over pairs of axes."""
    return _hr.tensordot(a, b, axes=axes)


def trace(a, /, offset=0, axis1=0, axis2=1, dtype=None, *, stream=None):
    """The sum of a diagonal of the matrices of two axes."""
    from headrace.mlx._operations import sum
    from headrace.mlx._shapes import diagonal

    result = sum(diagonal(a, offset, axis1, axis2), -1)
    return result if dtype is None else result.astype(dtype)


def einsum(subscripts, *operands, stream=None):
    """Einstein's summation; dims of one element are repeated."""
    operands = [as_array(x) for x in operands]
    terms, arrow, out = subscripts.replace(" ", "").partition("->")
    return _arrays.einsum(_repeated(terms.split(","), operands), terms + arrow + out)


def _labels(term, rank):
    """A label for each dim of an operand: those of an ellipsis are numbers, counted from the end."""
    head, dots, tail = term.partition("...")
    if not dots:
        return list(term)
    return [*head, *range(len(head) + len(tail) - rank, 0), *tail]


def _repeated(terms, operands):
    labels = [_labels(term, x.ndim) for term, x in zip(terms, operands)]
    if len(terms) != len(operands) or any(len(row) != x.ndim for row, x in zip(labels, operands)):
        return operands
    sizes = {}
    for row, x in zip(labels, operands):
        for label, size in zip(row, x.shape):
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    shapes = [[sizes[label] for label in row] for row in labels]
    return [x if list(x.shape) == to else _arrays.broadcast_to(x, to) for x, to in zip(operands, shapes)]


def einsum_path(subscripts, *operands):
    """The order in which operands are contracted, as numpy's greedy one: tuples of numbers, and a text. A result is put
    behind the operands that are left."""
    terms, arrow, out = subscripts.replace(" ", "").partition("->")
    terms = terms.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"einsum_path: {len(operands)} operands for {len(terms)} terms of {subscripts!r}")
    if not arrow:
        out = {letter for letter in "".join(terms) if "".join(terms).count(letter) == 1}
    sizes = {letter: size for term, x in zip(terms, operands) for letter, size in zip(term, x.shape)}
    path = _greedy([frozenset(term) for term in terms], frozenset(out), sizes)
    return path, f"{subscripts}: " + ", ".join(map(str, path))


def _contracted(i, j, sets, out):
    """The letters of the product of two operands, and those that remain afterwards."""
    rest = out.union(*(letters for k, letters in enumerate(sets) if k not in (i, j)))
    return sets[i] | sets[j], (sets[i] | sets[j]) & rest


def _cost(i, j, sets, out, sizes):
    """How many elements fewer there are (negative), and how many operations it takes."""

    def count(letters):
        return math.prod(sizes[letter] for letter in letters)

    letters, kept = _contracted(i, j, sets, out)
    work = count(letters) * (2 if letters - kept else 1)
    return count(kept) - count(sets[i]) - count(sets[j]), work


def _greedy(sets, out, sizes):
    path = []
    while len(sets) > 2:
        pairs = [(i, j) for i in range(len(sets)) for j in range(i + 1, len(sets))]
        pairs = [pair for pair in pairs if sets[pair[0]] & sets[pair[1]]] or pairs
        i, j = min(pairs, key=lambda pair: _cost(*pair, sets, out, sizes))
        path.append((i, j))
        kept = _contracted(i, j, sets, out)[1]
        sets = [letters for k, letters in enumerate(sets) if k not in (i, j)] + [kept]
    return path + [tuple(range(len(sets)))]


# ---- products of parts


def gather_mm(a, b, /, lhs_indices=None, rhs_indices=None, *, sorted_indices=False, stream=None):
    """Products of the matrices of a and b with these numbers in the flattened batch."""
    return _arrays.gather_mm(*_floating("gather_mm", a, b), lhs_indices, rhs_indices, sorted_indices)


def segmented_mm(a, b, /, segments, *, stream=None):
    """Products over ranges of the inner dim: segments [.., 2] has begin and end of each; the results are [.., M, N]."""
    a, b = _floating("segmented_mm", a, b)
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"segmented_mm: {a.ndim} and {b.ndim} dims, expected two matrices")
    inner = _arrays.arange(a.shape[1], dtype=_arrays.int64)
    begin, end = (_arrays.expand_dims(segments[..., i].astype(_arrays.int64), -1) for i in range(2))
    mask = _arrays.logical_and(inner >= begin, inner < end)
    return _arrays.matmul(_arrays.where(_arrays.expand_dims(mask, -2), a, 0), b)


def _blocks(mask, size, shape, dtype):
    """The mask of blocks as one of elements, in the matrix's dtype."""
    rows, columns = -(-shape[-2] // size), -(-shape[-1] // size)
    if tuple(mask.shape[-2:]) != (rows, columns):
        raise ValueError(f"block_masked_mm: mask of shape {mask.shape}, expected {rows} by {columns} blocks of {size}")
    mask = _arrays.where(mask, _arrays.ones((), dtype), 0) if mask.dtype == _arrays.bool else mask.astype(dtype)
    mask = _arrays.repeat(_arrays.repeat(mask, size, mask.ndim - 2), size, mask.ndim - 1)
    return mask[..., : shape[-2], : shape[-1]]


def block_masked_mm(a, b, /, block_size=64, mask_out=None, mask_lhs=None, mask_rhs=None, *, stream=None):
    """The product of matrices of which blocks are masked, or multiplied by numbers of a mask."""
    if block_size not in (32, 64):
        raise ValueError(f"block_masked_mm: block_size is {block_size}, expected 32 or 64")
    a, b = _floating("block_masked_mm", a, b)
    a = a if mask_lhs is None else a * _blocks(mask_lhs, block_size, a.shape, a.dtype)
    b = b if mask_rhs is None else b * _blocks(mask_rhs, block_size, b.shape, b.dtype)
    product = _arrays.matmul(a, b)
    return product if mask_out is None else product * _blocks(mask_out, block_size, product.shape, product.dtype)


def _quadratic(q):
    return {i * i % q for i in range(1, q)}


def hadamard_transform(a, scale=None, stream=None):
    """The Walsh-Hadamard transform of the last dim of m 2^k elements for m of 1, 12, 20 and 28, times scale, by default
    1 / sqrt(size)."""
    if a.ndim == 0:
        return a * (1.0 if scale is None else scale)
    size = a.shape[-1]
    m = next((m for m in (1, 12, 20, 28) if size % m == 0 and (size // m) & (size // m - 1) == 0), None)
    if m is None or size == 0:
        raise ValueError(f"hadamard_transform: {size} elements, expected m 2^k with m of 1, 12, 20 or 28")
    scale = 1 / math.sqrt(size) if scale is None else scale
    dtype = a.dtype if a.dtype.name in _FLOATING else _arrays.float32
    x = _arrays.reshape(a.astype(dtype), (-1, m, size // m))
    width = size // m
    while width > 1:
        width //= 2
        pairs = _arrays.reshape(x, (x.shape[0], m, -1, 2, width))
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        x = _arrays.reshape(_arrays.stack([first + second, first - second], -2), x.shape)
    if m > 1:
        x = _arrays.matmul(_arrays.array(_matrix(m), dtype=dtype), x)
    return _arrays.reshape(x * scale, a.shape)


_CIRCULANTS = {20: ("+----", "+----", "++--+", "+-++-"), 28: ("+------", "++----+", "+-+--+-", "+--++--")}


def _matrix(m):
    return _paley(5) if m == 12 else _williamson(*_CIRCULANTS[m])


def _williamson(*first_rows):
    """Hadamard's matrix of four symmetric circulants (Williamson, 1944), given by their first rows."""
    n = len(first_rows[0])
    signs = {"+": 1.0, "-": -1.0}
    a, b, c, d = ([[signs[row[(j - i) % n]] for j in range(n)] for i in range(n)] for row in first_rows)
    order = (((a, 1), (b, 1), (c, 1), (d, 1)), ((b, -1), (a, 1), (d, -1), (c, 1)))
    order += (((c, -1), (d, 1), (a, 1), (b, -1)), ((d, -1), (c, -1), (b, 1), (a, 1)))
    return [[sign * x for block, sign in blocks for x in block[i]] for blocks in order for i in range(n)]


def _paley(q):
    """Hadamard's matrix of 2 q + 2 rows, for primes q = 1 modulo 4 (Paley, 1933)."""
    squares = _quadratic(q)
    symmetric = [[0] + [1] * q]
    for i in range(q):
        symmetric.append([1] + [0 if i == j else 1 if (j - i) % q in squares else -1 for j in range(q)])
    blocks = {0: ((1, -1), (-1, -1)), 1: ((1, 1), (1, -1)), -1: ((-1, -1), (-1, 1))}
    return [[float(blocks[s][i][j]) for s in row for j in range(2)] for row in symmetric for i in range(2)]


# ---- convolutions of x [N, .., C] with weight [O, .., C / groups]


def _per_dim(who, name, value, n):
    values = (value,) * n if isinstance(value, int) else tuple(value)
    values = values * n if len(values) == 1 else values
    if len(values) != n:
        raise ValueError(f"{who}: {name} is {value!r}, expected an integer or {n} of them")
    return values


def _check_conv(who, x, weight, n, groups):
    if x.ndim != n + 2 or weight.ndim != n + 2:
        raise ValueError(f"{who}: input of {x.ndim} and weight of {weight.ndim} dims, expected {n + 2}")
    if groups < 1 or x.shape[-1] != weight.shape[-1] * groups or weight.shape[0] % groups:
        raise ValueError(
            f"{who}: {x.shape[-1]} channels of the input, weight of shape {weight.shape} and {groups} groups, expected "
            f"the weight to have {x.shape[-1]} / groups"
        )


def _conv(who, x, weight, stride, padding, dilation, groups):
    x, weight = _floating(who, x, weight)
    n = x.ndim - 2
    _check_conv(who, x, weight, n, groups)
    stride, padding, dilation = (
        _per_dim(who, name, value, n)
        for name, value in (("stride", stride), ("padding", padding), ("dilation", dilation))
    )
    return _convolved(x, weight, stride, padding, padding, dilation, groups)


def _convolved(x, weight, stride, before, after, dilation, groups):
    y = _arrays.conv(_hr.moveaxis(x, -1, 1), _hr.moveaxis(weight, -1, 1), None, stride, before, after, dilation, groups)
    return _hr.moveaxis(y, 1, -1)


def conv1d(input, weight, /, stride=1, padding=0, dilation=1, groups=1, *, stream=None):
    """The convolution, without flipping, of x [N, L, C] with weight [O, K, C / groups]."""
    return _conv("conv1d", input, weight, stride, padding, dilation, groups)


def conv2d(input, weight, /, stride=1, padding=0, dilation=1, groups=1, *, stream=None):
    """The convolution, without flipping, of x [N, H, W, C] with weight [O, KH, KW, C / groups]."""
    return _conv("conv2d", input, weight, stride, padding, dilation, groups)


def conv3d(input, weight, /, stride=1, padding=0, dilation=1, groups=1, *, stream=None):
    """The convolution, without flipping, of x [N, D, H, W, C] with weight [O, KD, KH, KW, C / groups]."""
    return _conv("conv3d", input, weight, stride, padding, dilation, groups)


def _grouped_weight(weight, groups):
    """[C, O / groups, ..] of weight [O, .., C / groups], as _arrays.conv_transpose has it."""
    out = weight.shape[0] // groups
    parts = [_arrays.swapaxes(_hr.moveaxis(weight[i * out : (i + 1) * out], -1, 1), 0, 1) for i in range(groups)]
    return parts[0] if groups == 1 else _arrays.concat(parts, 0)


def _conv_transpose(who, n, x, weight, stride, padding, dilation, output_padding, groups):
    x, weight = _floating(who, x, weight)
    _check_conv(who, x, weight, n, groups)
    stride, before, dilation, more = (
        _per_dim(who, name, value, n)
        for name, value in (
            ("stride", stride),
            ("padding", padding),
            ("dilation", dilation),
            ("output_padding", output_padding),
        )
    )
    after = [removed - added for removed, added in zip(before, more)]
    y = _arrays.conv_transpose(
        _hr.moveaxis(x, -1, 1), _grouped_weight(weight, groups), stride, before, after, dilation, groups
    )
    return _hr.moveaxis(y, 1, -1)


def conv_transpose1d(input, weight, /, stride=1, padding=0, dilation=1, output_padding=0, groups=1, *, stream=None):
    """The transposed convolution of x [N, L, C] with weight [O, K, C / groups]."""
    return _conv_transpose("conv_transpose1d", 1, input, weight, stride, padding, dilation, output_padding, groups)


def conv_transpose2d(input, weight, /, stride=1, padding=0, dilation=1, output_padding=0, groups=1, *, stream=None):
    """The transposed convolution of x [N, H, W, C] with weight [O, KH, KW, C / groups]."""
    return _conv_transpose("conv_transpose2d", 2, input, weight, stride, padding, dilation, output_padding, groups)


def conv_transpose3d(input, weight, /, stride=1, padding=0, dilation=1, output_padding=0, groups=1, *, stream=None):
    """The transposed convolution of x [N, D, H, W, C] with weight [O, KD, KH, KW, C / groups]."""
    return _conv_transpose("conv_transpose3d", 3, input, weight, stride, padding, dilation, output_padding, groups)


def _spread(x, dilation):
    """x [N, .., C] with dilation - 1 zeros between neighbours of each spatial dim."""
    for axis, step in enumerate(dilation, 1):
        if step > 1 and x.shape[axis] > 0:
            size = x.shape[axis]
            x = _arrays.expand_dims(x, axis + 1)
            widths = [0] * x.ndim
            widths[axis + 1] = step - 1
            x = _arrays.pad(x, [0] * x.ndim, widths)
            x = _arrays.reshape(x, (*x.shape[:axis], size * step, *x.shape[axis + 2 :]))
            x = x[(slice(None),) * axis + (slice(0, (size - 1) * step + 1),)]
    return x


def conv_general(
    input, weight, /, stride=1, padding=0, kernel_dilation=1, input_dilation=1, groups=1, flip=False, *, stream=None
):
    """A convolution with zeros between the elements of the input (input_dilation), other padding at both ends, or a
    flipped kernel."""
    x, weight = _floating("conv_general", input, weight)
    n = x.ndim - 2
    _check_conv("conv_general", x, weight, n, groups)
    is_pair = isinstance(padding, tuple) and len(padding) == 2 and not isinstance(padding[0], int)
    before, after = padding if is_pair else (padding, padding)
    stride, before, after, dilation, between = (
        _per_dim("conv_general", name, value, n)
        for name, value in (
            ("stride", stride),
            ("padding", before),
            ("padding", after),
            ("kernel_dilation", kernel_dilation),
            ("input_dilation", input_dilation),
        )
    )
    if flip:
        weight = _arrays.flip(weight, tuple(range(1, n + 1)))
    return _convolved(*_cut(_spread(x, between), weight, stride, before, after), dilation, groups)


def _cut(x, weight, stride, before, after):
    """Negative padding removes elements."""
    index = (slice(None), *(slice(max(-b, 0), n - max(-a, 0)) for n, b, a in zip(x.shape[1:-1], before, after)))
    x = x[index] if min(*before, *after, 0) < 0 else x
    return x, weight, stride, [max(b, 0) for b in before], [max(a, 0) for a in after]


def convolve(a, v, /, mode="full", *, stream=None):
    """The discrete convolution of two vectors; mode: full, same, valid."""
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError(f"convolve: {a.ndim} and {v.ndim} dims, expected two vectors")
    if a.size == 0 or v.size == 0:
        raise ValueError("convolve: an empty vector, expected elements")
    a, v = (v, a) if v.size > a.size else (a, v)
    a, v = (x if x.dtype.name in _FLOATING else x.astype(_arrays.float32) for x in (a, v))
    n = v.size
    if mode not in ("full", "same", "valid"):
        raise ValueError(f'convolve: mode is {mode!r}, expected "full", "same" or "valid"')
    before = {"full": n - 1, "same": n // 2, "valid": 0}[mode]
    after = {"full": n - 1, "same": n - 1 - n // 2, "valid": 0}[mode]
    x, weight = _arrays.reshape(a, (1, -1, 1)), _arrays.reshape(_arrays.flip(v, 0), (1, -1, 1))
    return _arrays.reshape(_convolved(x, weight, (1,), (before,), (after,), (1,), 1), -1)
