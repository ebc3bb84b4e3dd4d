"""Optimizers: rules that compute new parameters from gradients and a state.

The state is a tree: arrays "step" (uint64) and "learning_rate", and for each parameter a dict of arrays, at the place
of the parameter. A learning rate may be a function of the step (headrace.optimizers.schedules).
"""

from headrace import _arrays
from headrace._arrays import sqrt, square, zeros_like
from headrace.utils import tree_map, tree_reduce


def _check(who, name, value, is_valid, expected):
    if not is_valid:
        raise ValueError(f"{who}: {name} is {value}, expected {expected}")


def _check_betas(who, betas):
    for i, beta in enumerate(betas):
        _check(who, f"beta{i + 1}", beta, 0 <= beta < 1, "a number in [0, 1)")


class Optimizer:
    """The base class. Others define `apply_single`, and `_SLOTS` or `init_single`."""

    _SLOTS = ()  # names of a parameter's arrays, which begin as zeros

    def __init__(self, schedulers=None):
        self._initialized = False
        self._state = {"step": _arrays.array(0, dtype=_arrays.uint64)}
        self._schedulers = dict(schedulers or {})

    # ---- state

    @property
    def state(self):
        """The state as a tree."""
        return self._state

    @state.setter
    def state(self, state):
        self._initialized = False
        self._state = state

    @property
    def step(self):
        """The number of updates, an array."""
        return self.state["step"]

    @property
    def learning_rate(self):
        """The learning rate, an array."""
        return self.state["learning_rate"]

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        self.state["learning_rate"] = _arrays.array(learning_rate)

    def _maybe_schedule(self, name, value):
        """Sets an entry of the state to a number, or to the results of a function of the step."""
        if callable(value):
            self._schedulers[name] = value
            value = value(self.step)
        self.state[name] = _arrays.array(value)

    def init(self, parameters):
        """Makes the states of a tree of parameters that have none."""
        self._state = self._grown(parameters, self._state)
        self._initialized = True

    def _grown(self, parameters, state):
        """The tree of states with one for each parameter; the given states, None or a tree, are kept."""
        if isinstance(parameters, dict):
            state = {} if state is None else state
            for key, value in parameters.items():
                state[key] = self._grown(value, state.get(key))
        elif isinstance(parameters, (list, tuple)):
            old = list(state or ())
            old += [None] * (len(parameters) - len(old))
            state = type(parameters)(self._grown(value, old[i]) for i, value in enumerate(parameters))
        elif not state:
            state = {}
            self.init_single(parameters, state)
        return state

    def init_single(self, parameter, state):
        """Puts a parameter's arrays into its state, a dict."""
        state.update({name: zeros_like(parameter) for name in self._SLOTS})

    # ---- updates

    def update(self, model, gradients):
        """Replaces the model's parameters by updated ones; gradients: a tree as nn.value_and_grad returns."""
        model.update(self.apply_gradients(gradients, model))

    def apply_gradients(self, gradients, parameters):
        """The tree of updated parameters. The tree of gradients may have only some of the parameters."""
        if not self._initialized:
            self.init(gradients)
        for name, schedule in self._schedulers.items():
            self.state[name] = schedule(self.step)
        self.state["step"] = self.step + 1
        self._begin()
        return tree_map(self.apply_single, gradients, parameters, self.state)

    def _begin(self):
        """Computes what an update has for all parameters in common."""

    def apply_single(self, gradient, parameter, state):
        """The updated parameter; its arrays in the state are replaced."""
        raise NotImplementedError(f"{type(self).__name__}.apply_single")

    def _rate(self, x):
        """The learning rate in the dtype of x."""
        return self.state["learning_rate"].astype(x.dtype)


class SGD(Optimizer):
    """v = momentum * v + (1 - dampening) * g; w = w - learning_rate * v; g includes weight_decay * w. nesterov: v is
    replaced by g + momentum * v in the second step."""

    def __init__(self, learning_rate, momentum=0.0, weight_decay=0.0, dampening=0.0, nesterov=False):
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(f"SGD: nesterov with momentum {momentum} and dampening {dampening}, expected > 0 and 0")
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.momentum, self.weight_decay, self.dampening, self.nesterov = momentum, weight_decay, dampening, nesterov
        self._SLOTS = ("v",) if momentum > 0 else ()

    def apply_single(self, gradient, parameter, state):
        if self.weight_decay != 0:
            gradient = gradient + self.weight_decay * parameter
        if self.momentum > 0:
            share = gradient * (1 - self.dampening) if self.dampening > 0 else gradient
            state["v"] = v = self.momentum * state["v"] + share
            gradient = gradient + self.momentum * v if self.nesterov else v
        return parameter - self._rate(gradient) * gradient


class Adam(Optimizer):
    """m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g^2; w = w - learning_rate * m / (sqrt(v) + eps).
    bias_correction: m and v are divided by 1 - b1^step and 1 - b2^step before."""

    _SLOTS = ("m", "v")

    def __init__(self, learning_rate, betas=(0.9, 0.999), eps=1e-8, bias_correction=False):
        who = type(self).__name__
        _check_betas(who, betas)
        _check(who, "eps", eps, eps >= 0, ">= 0")
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.betas, self.eps, self.bias_correction = betas, eps, bias_correction

    def _begin(self):
        if self.bias_correction:
            b1, b2 = self.betas
            self._factors = self.learning_rate / (1 - b1**self.step), _arrays.rsqrt(1 - b2**self.step)

    def _moments(self, gradient, state):
        b1, b2 = self.betas
        state["m"] = m = b1 * state["m"] + (1 - b1) * gradient
        state["v"] = v = b2 * state["v"] + (1 - b2) * square(gradient)
        return m, v

    def apply_single(self, gradient, parameter, state):
        m, v = self._moments(gradient, state)
        if not self.bias_correction:
            return parameter - self._rate(gradient) * m / (sqrt(v) + self.eps)
        rate, factor = self._factors
        return parameter - rate.astype(m.dtype) * m / (sqrt(v) * factor.astype(m.dtype) + self.eps)


class AdamW(Adam):
    """Adam, after w = w - learning_rate * weight_decay * w."""

    def __init__(self, learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, bias_correction=False):
        super().__init__(learning_rate, betas, eps, bias_correction)
        self.weight_decay = weight_decay

    def apply_single(self, gradient, parameter, state):
        decayed = parameter * (1 - self._rate(gradient) * self.weight_decay)
        return super().apply_single(gradient, decayed, state)


def clip_grad_norm(grads, max_norm):
    """The tree of gradients, scaled so that the norm of all of them together is at most max_norm, and that norm."""
    _check("clip_grad_norm", "max_norm", max_norm, max_norm >= 0, ">= 0")
    norm = sqrt(tree_reduce(lambda total, g: total + square(g).sum(), grads, _arrays.array(0.0)))
    factor = _arrays.minimum(max_norm / (norm + 1e-6), 1.0)
    return tree_map(lambda g: g * factor.astype(g.dtype), grads), norm
