"""ATen's reductions, norms, products and convolutions."""

from headrace import _arrays as A
from headrace._arrays import Value
from headrace.programs.table import cast, of, size, sizes

# ---- reductions


def _axes(dim):
    """Axes of a reduction; None: all."""
    return None if dim is None or (isinstance(dim, (list, tuple)) and not dim) else dim


@of("sum", "prod", "mean", "nansum", "nanmean")
def total(c, self, dim=None, keepdim=False, dtype=None):
    function = getattr(A, c.name)
    return cast(function(cast(self, c.dtype), _axes(dim), keepdim), c.dtype)


@of("amax", "amin")
def extreme(c, self, dim=(), keepdim=False):
    return getattr(A, c.name[1:])(self, _axes(dim), keepdim)


@of("any", "all")
def any_or_all(c, self, dim=None, keepdim=False):
    return getattr(A, c.name)(self, _axes(dim), keepdim)


@of("max", "min")
def best(c, self, dim=None, keepdim=False):
    name = c.name
    if dim is None:
        return getattr(A, name)(self)
    if isinstance(dim, Value):
        return getattr(A, name + "imum")(cast(self, c.dtype), cast(dim, c.dtype))
    return getattr(A, name)(self, dim, keepdim), getattr(A, "arg" + name)(self, dim, keepdim)


@of("argmax", "argmin")
def place(c, self, dim=None, keepdim=False):
    return getattr(A, c.name)(self, dim, keepdim)


@of("var", "std", "var_mean", "std_mean")
def variance(c, self, dim=None, correction=None, keepdim=False, unbiased=True):
    name = c.name
    correction = (1 if unbiased else 0) if correction is None else correction
    y = getattr(A, name.removesuffix("_mean"))(self, _axes(dim), keepdim, correction)
    return (y, A.mean(self, _axes(dim), keepdim)) if name.endswith("_mean") else y


@of("logsumexp")
def logsumexp(c, self, dim, keepdim=False):
    return A.logsumexp(self, _axes(dim), keepdim)


@of("linalg_vector_norm")
def vector_norm(c, self, ord=2, dim=None, keepdim=False, dtype=None):
    return A.vector_norm(cast(self, c.dtype), _axes(dim), keepdim, ord)


_RUNNING = {"cumsum": A.cumulative_sum, "cumprod": A.cumulative_prod, "logcumsumexp": A.logcumsumexp}


@of(*_RUNNING)
def running(c, self, dim, dtype=None):
    function = _RUNNING[c.name]
    return function(cast(self, c.dtype), dim) if self.ndim else cast(self, c.dtype)


@of("topk")
def topk(c, self, k, dim=-1, largest=True, sorted=True):
    return A.topk(self, k, dim, largest)


@of("sort")
def sort(c, self, dim=-1, descending=False, stable=False):
    places = A.argsort(self, dim, descending)
    return A.take_along_axis(self, places, dim), places


@of("argsort")
def argsort(c, self, dim=-1, descending=False, stable=False):
    return A.argsort(self, dim, descending)


# ---- products


@of("matmul", "mm", "bmm", "mv", "dot")
def matmul(c, self, other=None, mat2=None, vec=None, tensor=None):
    return A.matmul(self, next(x for x in (other, mat2, vec, tensor) if x is not None))


@of("addmm", "baddbmm", "addmv")
def addmm(c, self, mat1=None, mat2=None, batch1=None, batch2=None, mat=None, vec=None, beta=1, alpha=1):
    first, second = [x for x in (mat1, mat2, batch1, batch2, mat, vec) if x is not None]
    product = A.matmul(first, second)
    product = product * alpha if alpha != 1 else product
    return product if beta == 0 else product + (self * beta if beta != 1 else self)


@of("linear")
def linear(c, input, weight, bias=None):
    product = A.matmul(input, A.swapaxes(weight, 0, 1) if weight.ndim == 2 else weight)
    return product if bias is None else product + bias


@of("scaled_dot_product_attention")
def attention(c, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p:
        raise ValueError(f"dropout of {dropout_p}: export the model in eval mode")
    rank, front = query.ndim, sizes(query)[:-2]
    q, k, v = (_four_dims(x) for x in (query, key, value))
    mask = None if attn_mask is None else _four_dims(attn_mask)
    y = A.attention(q, k, v, mask, causal=is_causal, **({} if scale is None else {"scale": scale}))
    return y if rank == 4 else A.reshape(y, [*front, size(y, 2), size(y, 3)])


def _four_dims(x):
    """Batch dims as the first one, with 1 head beside them; masks may lack dims."""
    if x.ndim < 4:
        return (
            A.expand_dims(x, list(range(3 - x.ndim)) + [1])
            if x.ndim == 3
            else A.expand_dims(x, list(range(4 - x.ndim)))
        )
    return x if x.ndim == 4 else A.reshape(x, [-1, *sizes(x)[-3:]])


@of("_cdist_forward", "cdist")
def cdist(c, x1, x2, p=2, compute_mode=None):
    return A.vector_norm(A.expand_dims(x1, -2) - A.expand_dims(x2, -3), -1, False, p)


# ---- norms


@of("layer_norm", "native_layer_norm")
def layer_norm(c, input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    y = A.layer_norm(input, weight, bias, len(normalized_shape), eps)
    return (y, None, None) if "native" in c.name else y


@of("rms_norm")
def rms_norm(c, input, normalized_shape, weight=None, eps=None):
    if len(normalized_shape) != 1:
        raise ValueError(f"rms_norm over {len(normalized_shape)} dims, expected 1")
    import torch

    return A.rms_norm(input, weight, torch.finfo(c.type.dtype).eps if eps is None else eps)


@of("group_norm")
def group_norm(c, input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    return A.group_norm(input, weight, bias, num_groups, eps)


@of("native_group_norm")
def native_group_norm(c, input, weight, bias, N, C, HxW, group, eps):
    return A.group_norm(input, weight, bias, group, eps), None, None


@of("_native_batch_norm_legit_no_training")
def batch_norm(c, input, weight, bias, running_mean, running_var, momentum, eps):
    return A.batch_norm(input, running_mean, running_var, weight, bias, 1, eps), None, None


@of("_native_batch_norm_legit", "_native_batch_norm_legit_functional")
def batch_norm_training(
    c, input, weight, bias, running_mean=None, running_var=None, training=True, momentum=0.1, eps=1e-5
):
    if not training:
        return (
            A.batch_norm(input, running_mean, running_var, weight, bias, 1, eps),
            None,
            None,
            running_mean,
            running_var,
        )
    y, mean, var = A.batch_norm_training(input, weight, bias, 1, eps)
    if running_mean is None:
        return y, None, None
    count = A.divide(_count(input), cast(c.graph.shape(input)[1], "float32"))
    unbiased = var * cast(count / (count - 1), var.dtype.name)
    return (y, None, None, A.lerp(running_mean, cast(mean, running_mean.dtype.name), momentum),
            A.lerp(running_var, cast(unbiased, running_var.dtype.name), momentum))  # fmt: skip


def _count(x):
    """The number of elements, in f32."""
    return cast(A.prod(x.graph.shape(x)), "float32")


# ---- recurrent layers


@of("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrent(c, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    if dropout and train:
        raise ValueError(f"dropout of {dropout}: export the model in eval mode")
    name = c.name
    directions = 2 if bidirectional else 1
    state = list(hx) if isinstance(hx, (list, tuple)) else [hx]
    x = input if batch_first or input.ndim == 2 else A.swapaxes(input, 0, 1)
    each_cell = 4 if has_biases else 2
    if len(params) != each_cell * directions * num_layers:
        raise ValueError(f"{len(params)} weights, expected {each_cell * directions * num_layers}: no projections")
    last = [[] for _ in state]
    for layer in range(num_layers):
        found = []
        for direction in range(directions):
            at = layer * directions + direction
            weights = params[at * each_cell : (at + 1) * each_cell]
            steps = _cells(name, x, weights, [one[at] for one in state], direction == 1)
            found.append(steps[0])
            for one, ends in zip(steps, last):
                ends.append(one[..., 0, :] if direction == 1 else one[..., -1, :])
        x = A.concat(found, -1) if directions == 2 else found[0]
    output = x if batch_first or input.ndim == 2 else A.swapaxes(x, 0, 1)
    return (output, *[A.stack(ends, 0) for ends in last])


def _cells(name, x, weights, state, is_reversed):
    """All steps [N, L, H] of a layer in one direction: of h, and for lstm of c."""
    weight, recurrent_weight, *biases = weights
    if name == "gru":
        bias, other = biases if biases else (None, None)
        return [A.gru(x, weight, recurrent_weight, bias, other, state[0], reverse=is_reversed)]
    bias = biases[0] + biases[1] if biases else None
    if name == "lstm":
        return list(A.lstm(x, weight, recurrent_weight, bias, *state, reverse=is_reversed))
    return [A.rnn(x, weight, recurrent_weight, bias, state[0], activation=name[4:], reverse=is_reversed)]
