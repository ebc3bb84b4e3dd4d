"""Recurrent layers of x [.., L, input_size], a step for each of the L places."""

import math

from headrace import _arrays
from headrace._arrays import broadcast_to, concat, stack, tanh, zeros_like
from headrace.nn.linear import uniform
from headrace.nn.module import Module


class _Recurrent(Module):
    """Layers with a hidden size, which bounds the initial weights."""

    def __init__(self, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self._bound = 1 / math.sqrt(hidden_size)

    def _weights(self, *shape):
        return uniform(self._bound, *shape)


def _affine(x, weight, bias):
    y = x @ weight.T
    return y if bias is None else y + bias


def _first(state, x, size):
    """The state before the first step of x, for each example."""
    return None if state is None else broadcast_to(state, (*x.shape[:-2], size))


def _steps(x, who):
    """The number of steps of x [.., L, size]."""
    if x.ndim < 2:
        raise ValueError(f"{who}: x has shape {x.shape}, expected 2 dims or more")
    if x.shape[-2] == 0:
        raise ValueError(f"{who}: x has shape {x.shape}, expected at least one step")
    return x.shape[-2]


class RNN(_Recurrent):
    """h = nonlinearity(x @ Wxh.T + h @ Whh.T + bias) for each step: [.., L, hidden_size]. By default nonlinearity is
    tanh; hidden is the first h, by default zeros."""

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity=None):
        super().__init__(hidden_size)
        self.nonlinearity = nonlinearity or tanh
        if not callable(self.nonlinearity):
            raise ValueError(f"RNN: nonlinearity is {nonlinearity!r}, expected a function")
        self.Wxh = self._weights(hidden_size, input_size)
        self.Whh = self._weights(hidden_size, hidden_size)
        self.bias = self._weights(hidden_size) if bias else None

    def _extra_repr(self):
        return (
            f"input_dims={self.Wxh.shape[1]}, hidden_size={self.hidden_size}, nonlinearity={self.nonlinearity}, "
            f"bias={self.bias is not None}"
        )

    def __call__(self, x, hidden=None):
        steps = _steps(x, "RNN")
        if self.nonlinearity is tanh:
            return _arrays.rnn(x, self.Wxh, self.Whh, self.bias, _first(hidden, x, self.hidden_size))
        sums, all_hidden = _affine(x, self.Wxh, self.bias), []
        for y in [sums[..., i, :] for i in range(steps)]:
            hidden = self.nonlinearity(y if hidden is None else y + hidden @ self.Whh.T)
            all_hidden.append(hidden)
        return stack(all_hidden, axis=-2)


class GRU(_Recurrent):
    """Gated recurrent units; x @ Wx.T + b and h @ Wh.T have the parts r, z, n, and n of h has the bias bhn:

        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        n = tanh(xn + r * (hn + bhn))
        h = (1 - z) * n + z * h

    The result is h of all steps: [.., L, hidden_size]; hidden is the first h, by default zeros."""

    def __init__(self, input_size, hidden_size, bias=True):
        super().__init__(hidden_size)
        self.Wx = self._weights(3 * hidden_size, input_size)
        self.Wh = self._weights(3 * hidden_size, hidden_size)
        self.b = self._weights(3 * hidden_size) if bias else None
        self.bhn = self._weights(hidden_size) if bias else None

    def _extra_repr(self):
        return f"input_dims={self.Wx.shape[1]}, hidden_size={self.hidden_size}, bias={self.b is not None}"

    def __call__(self, x, hidden=None):
        _steps(x, "GRU")
        bias = None if self.bhn is None else concat([zeros_like(self.bhn), zeros_like(self.bhn), self.bhn])
        return _arrays.gru(x, self.Wx, self.Wh, self.b, bias, _first(hidden, x, self.hidden_size))


class LSTM(_Recurrent):
    """Long short-term memory; x @ Wx.T + h @ Wh.T + bias has the parts i, f, g, o:

        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    The result is h and c of all steps: [.., L, hidden_size] each; hidden and cell are the first ones, by default zeros."""

    def __init__(self, input_size, hidden_size, bias=True):
        super().__init__(hidden_size)
        self.Wx = self._weights(4 * hidden_size, input_size)
        self.Wh = self._weights(4 * hidden_size, hidden_size)
        self.bias = self._weights(4 * hidden_size) if bias else None

    def _extra_repr(self):
        return f"input_dims={self.Wx.shape[1]}, hidden_size={self.hidden_size}, bias={self.bias is not None}"

    def __call__(self, x, hidden=None, cell=None):
        _steps(x, "LSTM")
        first = [_first(state, x, self.hidden_size) for state in (hidden, cell)]
        return _arrays.lstm(x, self.Wx, self.Wh, self.bias, *first)
