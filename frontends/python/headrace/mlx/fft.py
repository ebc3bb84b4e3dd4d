"""Fourier transforms with MLX's names."""

import headrace as _hr
from headrace import _arrays
from headrace import fft as _fft

__all__ = """fft fft2 fftfreq fftn fftshift ifft ifft2 ifftn ifftshift irfft irfft2 irfftn istft rfft rfft2 rfftfreq rfftn
stft""".split()


def _one(name):
    function = getattr(_fft, name)

    def call(a, n=None, axis=-1, norm="backward", stream=None):
        return function(a, n, axis, norm)

    call.__name__, call.__doc__ = name, function.__doc__
    return call


def _several(name, default):
    function = getattr(_fft, name)

    def call(a, s=None, axes=default, norm="backward", stream=None):
        if s is not None and axes is None:
            axes = tuple(range(-len(s), 0))
        axes = tuple(range(a.ndim)) if axes is None else tuple(axes)
        return function(a, None if s is None else tuple(s), axes, norm)

    call.__name__, call.__doc__ = name, function.__doc__
    return call


globals().update({name: _one(name) for name in ("fft", "ifft", "rfft", "irfft")})
globals().update({name: _several(name, None) for name in ("fftn", "ifftn", "rfftn", "irfftn")})
globals().update({name: _several(name, (-2, -1)) for name in ("fft2", "ifft2", "rfft2", "irfft2")})


def _check_distance(d):
    if d == 0:
        raise ValueError("fftfreq: d is 0, expected a distance")


def fftfreq(n, d=1.0, stream=None):
    """The frequencies of fft's n results, of samples at distance d."""
    _check_distance(d)
    return _fft.fftfreq(n, d)


def rfftfreq(n, d=1.0, stream=None):
    """The frequencies of rfft's results, of samples at distance d."""
    _check_distance(d)
    return _fft.rfftfreq(n, d)


def fftshift(a, axes=None, stream=None):
    """Frequency 0 in the middle."""
    return _fft.fftshift(a, axes)


def ifftshift(a, axes=None, stream=None):
    """Inverse of fftshift."""
    return _fft.ifftshift(a, axes)


# ---- short-time transforms


def _window(who, window, length, size):
    """The window in the middle of `size` elements, or ones."""
    length = size if length is None else length
    if not 0 < length <= size:
        raise ValueError(f"{who}: win_length is {length}, expected 1 to n_fft, {size}")
    window = _arrays.ones((length,)) if window is None else window
    if window.ndim != 1 or window.shape[0] != length:
        raise ValueError(f"{who}: window of shape {window.shape}, expected ({length},)")
    before = (size - length) // 2
    return _arrays.pad(window, (before,), (size - length - before,))


def _frames(size, hop, count):
    """Places [count, size] of the elements of frames."""
    starts = _arrays.arange(count, dtype=_arrays.int64) * hop
    return _arrays.expand_dims(starts, -1) + _arrays.arange(size, dtype=_arrays.int64)


def _padded(x, width, mode):
    before = [0] * (x.ndim - 1) + [width]
    pads = {"reflect": _arrays.pad_reflect, "edge": _arrays.pad_edge, "constant": _arrays.pad}
    if mode not in pads:
        raise ValueError(f'stft: pad_mode is {mode!r}, expected "reflect", "constant" or "edge"')
    return pads[mode](x, before, before)


def stft(
    x,
    n_fft=2048,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    pad_mode="reflect",
    norm="backward",
    onesided=None,
    stream=None,
):
    """Transforms of overlapping windows of the last dim: [.., frequencies, frames]."""
    hop = n_fft // 4 if hop_length is None else hop_length
    is_complex = x.dtype.name.startswith("complex")
    onesided = not is_complex if onesided is None else onesided
    if hop <= 0 or n_fft <= 0:
        raise ValueError(f"stft: hop_length is {hop}, n_fft {n_fft}, expected positive numbers")
    if onesided and is_complex:
        raise ValueError("stft: onesided of a complex array, expected a real one")
    weights = _window("stft", window, win_length, n_fft)
    x = _padded(x, n_fft // 2, pad_mode) if center else x
    if x.shape[-1] < n_fft:
        raise ValueError(f"stft: {x.shape[-1]} elements, expected at least n_fft, {n_fft}")
    places = _frames(n_fft, hop, 1 + (x.shape[-1] - n_fft) // hop)
    frames = _arrays.take(x, places, x.ndim - 1) * weights
    spectrum = (_fft.rfft if onesided else _fft.fft)(frames, n_fft, -1, norm)
    return _arrays.swapaxes(spectrum, -1, -2)


def _overlapped(frames, hop):
    """Sums of frames [.., count, size] at distance hop."""
    *batch, count, size = frames.shape
    length = (count - 1) * hop + size
    places = _arrays.reshape(_frames(size, hop, count), -1)
    flat = _arrays.reshape(frames, (-1, count * size))
    sums = _arrays.index_add(_arrays.zeros((flat.shape[0], length), flat.dtype), places, flat, 1)
    return _arrays.reshape(sums, (*batch, length))


def istft(
    stft_matrix,
    n_fft=None,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    norm="backward",
    onesided=None,
    length=None,
    stream=None,
):
    """The signal whose stft this is: windows are added, and divided by the sum of their squares."""
    onesided = True if onesided is None else onesided
    bins = stft_matrix.shape[-2]
    n_fft = (2 * (bins - 1) if onesided else bins) if n_fft is None else n_fft
    if bins != (n_fft // 2 + 1 if onesided else n_fft):
        raise ValueError(f"istft: {bins} frequencies, expected those of n_fft {n_fft}")
    hop = n_fft // 4 if hop_length is None else hop_length
    weights = _window("istft", window, win_length, n_fft)
    spectrum = _arrays.swapaxes(stft_matrix, -1, -2)
    frames = (_fft.irfft if onesided else _fft.ifft)(spectrum, n_fft, -1, norm)
    signal = _overlapped(frames * weights, hop)
    squares = _arrays.broadcast_to(weights * weights, (frames.shape[-2], n_fft))
    envelope = _overlapped(squares, hop)
    signal = signal / _arrays.where(envelope > 1e-11, envelope, 1)
    if center:
        signal = signal[..., n_fft // 2 :]
        signal = signal[..., : max(signal.shape[-1] - n_fft // 2, 0)] if length is None else signal
    if length is None:
        return signal
    rest = length - signal.shape[-1]
    return signal[..., :length] if rest <= 0 else _hr.pad(signal, [0] * signal.ndim, [0] * (signal.ndim - 1) + [rest])


