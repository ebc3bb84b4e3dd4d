"""Optimizers: rules that compute new parameters from gradients and a state.

The state is a tree: arrays "step" (uint64) and "learning_rate", and for each parameter a dict of arrays, at the place
of the parameter. A learning rate may be a function of the step (headrace.optimizers.schedulers).
"""

from headrace import _arrays
from headrace._arrays import zeros_like
from headrace.nn.module import Module, _is_floating
from headrace.optimizers._lists import All, maximum, sign, sqrt, square
from headrace.optimizers._lists import map_each as _map_each
from headrace.utils import tree_flatten, tree_map, tree_reduce, tree_unflatten


def _check(who, name, value, is_valid, expected):
    if not is_valid:
        raise ValueError(f"{who}: {name} is {value}, expected {expected}")


def _check_betas(who, betas):
    for i, beta in enumerate(betas):
        _check(who, f"beta{i + 1}", beta, 0 <= beta < 1, "a number in [0, 1)")


def _of_all(apply_single):
    """Marks an apply_single whose gradient, parameter and state may be those of all parameters at once (All)."""
    apply_single.is_of_all = True
    return apply_single


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
        is_plain = type(self).apply_gradients is Optimizer.apply_gradients and isinstance(model, Module)
        found = self._found(gradients, model) if is_plain and type(model).update is Module.update else None
        can_store, _, owners, keys, *_ = found or (False, None, None, None)
        if can_store:
            self._count_step(gradients)
            _arrays._store(owners, keys, self._apply_all(found))
        else:
            model.update(self.apply_gradients(gradients, model))

    def apply_gradients(self, gradients, parameters):
        """The tree of updated parameters. The tree of gradients may have only some of the parameters."""
        self._count_step(gradients)
        found = self._found(gradients, parameters)
        if found is None:
            return tree_map(self.apply_single, gradients, parameters, self.state)
        updated = iter(self._apply_all(found))
        return tree_map(lambda _: next(updated), gradients)

    def _count_step(self, gradients):
        if not self._initialized:
            self.init(gradients)
        for name, schedule in self._schedulers.items():
            self.state[name] = schedule(self.step)
        self.state["step"] = self.step + 1
        self._begin()

    def _found(self, gradients, parameters):
        """The tuple of _arrays._updates; None if parameters are updated one by one."""
        if not getattr(type(self).apply_single, "is_of_all", False) or not isinstance(gradients, (dict, list, tuple)):
            return None
        if not self._initialized:
            self.init(gradients)
        return _arrays._updates(gradients, parameters, self.state)

    def _apply_all(self, found):
        """The updated parameters: apply_single of all at once."""
        _, gradients, _, _, parameters, states = found
        state = {name: All(_arrays._load(states, name)) for name in self._SLOTS}
        updated = self.apply_single(All(gradients), All(parameters), state)
        for name in self._SLOTS:
            _arrays._store(states, name, state[name].arrays)
        return updated.arrays

    def _begin(self):
        """Computes what an update has for all parameters in common."""

    def apply_single(self, gradient, parameter, state):
        """The updated parameter; its arrays in the state are replaced."""
        raise NotImplementedError(f"{type(self).__name__}.apply_single")

    def _rate(self, x):
        """The learning rate in the dtype of x."""
        return self._as(x, self.state["learning_rate"])

    @staticmethod
    def _as(x, number):
        """An array without dims in the dtype of x."""
        return _map_each(lambda dtype: number.astype(dtype), x) if type(x) is All else number.astype(x.dtype)


class SGD(Optimizer):
    """v = momentum * v + (1 - dampening) * g; w = w - learning_rate * v; g includes weight_decay * w. nesterov: v is
    replaced by g + momentum * v in the second step."""

    _SLOTS = ("v",)

    def __init__(self, learning_rate, momentum=0.0, weight_decay=0.0, dampening=0.0, nesterov=False):
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(f"SGD: nesterov with momentum {momentum} and dampening {dampening}, expected > 0 and 0")
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.momentum, self.weight_decay, self.dampening, self.nesterov = momentum, weight_decay, dampening, nesterov

    @_of_all
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

    @_of_all
    def apply_single(self, gradient, parameter, state):
        m, v = self._moments(gradient, state)
        if not self.bias_correction:
            return parameter - self._rate(gradient) * m / (sqrt(v) + self.eps)
        rate, factor = self._factors
        return parameter - self._as(m, rate) * m / (sqrt(v) * self._as(m, factor) + self.eps)


class AdamW(Adam):
    """Adam, after w = w - learning_rate * weight_decay * w."""

    def __init__(self, learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, bias_correction=False):
        super().__init__(learning_rate, betas, eps, bias_correction)
        self.weight_decay = weight_decay

    @_of_all
    def apply_single(self, gradient, parameter, state):
        decayed = parameter * (1 - self._rate(gradient) * self.weight_decay)
        return super().apply_single(gradient, decayed, state)


class Adamax(Adam):
    """Adam with v = max(b2 * v, |g|) and w = w - learning_rate * m / (v + eps)."""

    def __init__(self, learning_rate, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(learning_rate, betas, eps)

    @_of_all
    def apply_single(self, gradient, parameter, state):
        b1, b2 = self.betas
        state["m"] = m = b1 * state["m"] + (1 - b1) * gradient
        state["v"] = v = maximum(b2 * state["v"], abs(gradient))
        return parameter - self._rate(gradient) * m / (v + self.eps)


class _Scaled(Optimizer):
    """Optimizers that divide a gradient by the square root of a sum v of squares."""

    _SLOTS = ("v",)

    def __init__(self, learning_rate, eps):
        _check(type(self).__name__, "eps", eps, eps > 0, ">0")
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.eps = eps

    def _sum(self, v, squares):
        raise NotImplementedError

    @_of_all
    def apply_single(self, gradient, parameter, state):
        state["v"] = v = self._sum(state["v"], square(gradient))
        return parameter - self._rate(gradient) * gradient / (sqrt(v) + self.eps)


class RMSprop(_Scaled):
    """v = alpha * v + (1 - alpha) * g^2; w = w - learning_rate * g / (sqrt(v) + eps)."""

    def __init__(self, learning_rate, alpha=0.99, eps=1e-8):
        _check("RMSprop", "alpha", alpha, alpha >= 0, ">= 0")
        super().__init__(learning_rate, eps)
        self.alpha = alpha

    def _sum(self, v, squares):
        return self.alpha * v + (1 - self.alpha) * squares


class Adagrad(_Scaled):
    """v = v + g^2; w = w - learning_rate * g / (sqrt(v) + eps)."""

    def __init__(self, learning_rate, eps=1e-8):
        super().__init__(learning_rate, eps)

    def _sum(self, v, squares):
        return v + squares


class AdaDelta(_Scaled):
    """v = rho * v + (1 - rho) * g^2; d = sqrt(u + eps) / sqrt(v + eps) * g; u = rho * u + (1 - rho) * d^2;
    w = w - learning_rate * d."""

    _SLOTS = ("v", "u")

    def __init__(self, learning_rate, rho=0.9, eps=1e-6):
        _check("AdaDelta", "rho", rho, rho >= 0, ">= 0")
        super().__init__(learning_rate, eps)
        self.rho = rho

    @_of_all
    def apply_single(self, gradient, parameter, state):
        rho, u = self.rho, state["u"]
        state["v"] = v = rho * state["v"] + (1 - rho) * square(gradient)
        d = sqrt(u + self.eps) / sqrt(v + self.eps) * gradient
        state["u"] = rho * u + (1 - rho) * square(d)
        return parameter - self._rate(gradient) * d


class Lion(Optimizer):
    """c = b1 * m + (1 - b1) * g; m = b2 * m + (1 - b2) * g; w = w - learning_rate * (sign(c) + weight_decay * w)."""

    _SLOTS = ("m",)

    def __init__(self, learning_rate, betas=(0.9, 0.99), weight_decay=0.0):
        _check_betas("Lion", betas)
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.betas, self.weight_decay = betas, weight_decay

    @_of_all
    def apply_single(self, gradient, parameter, state):
        (b1, b2), m, rate = self.betas, state["m"], self._rate(gradient)
        state["m"] = b2 * m + (1 - b2) * gradient
        if self.weight_decay > 0:
            parameter = (1 - rate * self.weight_decay) * parameter
        return parameter - rate * sign(b1 * m + (1 - b1) * gradient)


def _rms(x):
    """The square root of the mean square."""
    return sqrt(_arrays.mean(square(x)))


class Adafactor(Optimizer):
    """Mean squares of a gradient of 2 dims or more are kept as those of its rows and columns (the last two dims). The
    learning rate is min(1e-2, 1 / sqrt(step)) if relative_step, and times the parameter's root mean square, at least
    eps[1], if scale_parameter. https://arxiv.org/abs/1804.04235"""

    def __init__(
        self,
        learning_rate=None,
        eps=(1e-30, 1e-3),
        clip_threshold=1.0,
        decay_rate=-0.8,
        beta_1=None,
        weight_decay=0.0,
        scale_parameter=True,
        relative_step=True,
        warmup_init=False,
    ):
        super().__init__()
        _check("Adafactor", "learning_rate", learning_rate, relative_step or learning_rate is not None, "a number")
        if learning_rate is not None:
            self._maybe_schedule("learning_rate", learning_rate)
        self.eps, self.clip_threshold, self.decay_rate, self.beta_1 = eps, clip_threshold, decay_rate, beta_1
        self.weight_decay, self.scale_parameter = weight_decay, scale_parameter
        self.relative_step, self.warmup_init = relative_step, warmup_init

    def init_single(self, parameter, state):
        shape, dtype = parameter.shape, parameter.dtype
        if parameter.ndim >= 2:
            state["exp_avg_sq_row"] = _arrays.zeros(shape[:-1], dtype=dtype)
            state["exp_avg_sq_col"] = _arrays.zeros((*shape[:-2], shape[-1]), dtype=dtype)
        else:
            state["exp_avg_sq"] = zeros_like(parameter)
        if self.beta_1 is not None:
            state["exp_avg"] = zeros_like(parameter)

    def _begin(self):
        step = self.step.astype(_arrays.float32)
        self._decay = 1 - step**self.decay_rate
        if self.relative_step:
            bound = 1e-6 * step if self.warmup_init else 1e-2
            self._size = _arrays.minimum(_arrays.rsqrt(step), bound)
        else:
            self._size = self.learning_rate

    def _compute_learning_rate(self, parameter):
        size = self._size.astype(parameter.dtype)
        return _arrays.maximum(_rms(parameter), self.eps[1]) * size if self.scale_parameter else size

    def _approximate_exp_moving_avg(self, exp_avg_sq_row, exp_avg_sq_col):
        """1 / the square root of the mean squares."""
        rows = _arrays.rsqrt(exp_avg_sq_row / _arrays.mean(exp_avg_sq_row, axis=-1, keepdims=True))
        return rows[..., None] * _arrays.rsqrt(exp_avg_sq_col)[..., None, :]

    def _factors(self, squares, state):
        """What a gradient is multiplied by."""
        decay = self._decay.astype(squares.dtype)
        if squares.ndim < 2:
            state["exp_avg_sq"] = decay * state["exp_avg_sq"] + (1 - decay) * squares
            return _arrays.rsqrt(state["exp_avg_sq"])
        for name, axis in (("exp_avg_sq_row", -1), ("exp_avg_sq_col", -2)):
            state[name] = decay * state[name] + (1 - decay) * _arrays.mean(squares, axis=axis)
        return self._approximate_exp_moving_avg(state["exp_avg_sq_row"], state["exp_avg_sq_col"])

    def apply_single(self, gradient, parameter, state):
        rate = self._compute_learning_rate(parameter)
        update = self._factors(square(gradient) + self.eps[0], state) * gradient
        update = rate * (update / _arrays.maximum(_rms(update) / self.clip_threshold, 1.0))
        if self.beta_1 is not None:
            state["exp_avg"] = update = self.beta_1 * state["exp_avg"] + (1 - self.beta_1) * update
        if self.weight_decay != 0:
            parameter = parameter - parameter * (self.weight_decay * rate)
        return parameter - update


class Muon(Optimizer):
    """v = momentum * v + (1 - momentum) * g; w = w - learning_rate * u. u is v, or with nesterov momentum * v +
    (1 - momentum) * g. For parameters of 2 dims or more, as matrices of their first dim, u is made nearly orthogonal by
    ns_steps of Newton-Schulz's iteration, and multiplied by sqrt(max(1, rows / columns)) of its last two dims.
    g includes weight_decay * w. https://kellerjordan.github.io/posts/muon"""

    _SLOTS = ("v",)

    def __init__(self, learning_rate, momentum=0.95, weight_decay=0.01, nesterov=True, ns_steps=5):
        super().__init__()
        self._maybe_schedule("learning_rate", learning_rate)
        self.momentum, self.weight_decay, self.nesterov, self.ns_steps = momentum, weight_decay, nesterov, ns_steps

    def _zeropower_via_newtonschulz5(self, x, steps):
        """A matrix with the singular vectors of x, whose singular values are near to 1."""
        if x.ndim != 2:
            raise ValueError(f"Muon: shape {x.shape}, expected 2 dims")
        if x.shape[0] > x.shape[1]:
            return self._zeropower_via_newtonschulz5(x.T, steps).T
        x = x / (sqrt(square(x).sum()) + 1e-7)
        for _ in range(steps):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
        return x

    def apply_single(self, gradient, parameter, state):
        if self.weight_decay != 0:
            gradient = gradient + self.weight_decay * parameter
        state["v"] = update = self.momentum * state["v"] + (1 - self.momentum) * gradient
        if self.nesterov:
            update = gradient * (1 - self.momentum) + update * self.momentum
        rate = self._rate(gradient)
        if update.ndim >= 2:
            flat = update.reshape((update.shape[0], -1))
            update = self._zeropower_via_newtonschulz5(flat, self.ns_steps).reshape(update.shape)
            rate = rate * max(1, update.shape[-2] / update.shape[-1]) ** 0.5
        return parameter - rate * update


class MultiOptimizer(Optimizer):
    """Several optimizers, each for the parameters with filter(path, gradient) that none before has; the last one has
    no filter."""

    def __init__(self, optimizers, filters=()):
        if len(filters) != len(optimizers) - 1:
            raise ValueError(f"MultiOptimizer: {len(filters)} filters, expected {len(optimizers) - 1}")
        super().__init__()
        self.optimizers = list(optimizers)
        self.filters = [*filters, lambda path, gradient: True]

    def _split_dictionary(self, gradients):
        """A tree for each optimizer."""
        parts = [[] for _ in self.optimizers]
        for path, gradient in tree_flatten(gradients):
            if isinstance(gradient, _arrays.Array):
                parts[next(i for i, accepts in enumerate(self.filters) if accepts(path, gradient))].append(
                    (path, gradient)
                )
        return [tree_unflatten(part) for part in parts]

    def init(self, parameters):
        for optimizer, part in zip(self.optimizers, self._split_dictionary(parameters)):
            optimizer.init(part)

    def apply_gradients(self, gradients, parameters):
        updated = {}
        for optimizer, part in zip(self.optimizers, self._split_dictionary(gradients)):
            tree_flatten(optimizer.apply_gradients(part, parameters), destination=updated)
        return tree_unflatten({path: x for path, x in updated.items() if isinstance(x, _arrays.Array)})

    @property
    def state(self):
        """The states of all optimizers."""
        return {"states": [optimizer.state for optimizer in self.optimizers]}

    @state.setter
    def state(self, state):
        if len(state.get("states", ())) != len(self.optimizers):
            raise ValueError(f"MultiOptimizer: the state has no list of {len(self.optimizers)} states")
        for optimizer, own in zip(self.optimizers, state["states"]):
            optimizer.state = own

    @property
    def learning_rate(self):
        """The learning rate of the first optimizer; setting it sets those of all."""
        return self.optimizers[0].learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        for optimizer in self.optimizers:
            optimizer.learning_rate = learning_rate


def clip_grad_norm(grads, max_norm):
    """The tree of gradients, scaled so that the norm of all of them together is at most max_norm, and that norm."""
    _check("clip_grad_norm", "max_norm", max_norm, max_norm >= 0, ">= 0")
    norm = sqrt(tree_reduce(lambda total, g: total + square(g).sum(), grads, _arrays.array(0.0)))
    factor = _arrays.minimum(max_norm / (norm + 1e-6), 1.0)
    return tree_map(lambda g: g * (factor.astype(g.dtype) if _is_floating(g.dtype) else factor), grads), norm
