"""mx.fast: functions of headrace.fast with MLX's arguments."""

from headrace import _arrays, fast

__all__ = [
    "cross_entropy",
    "cuda_kernel",
    "gated_delta_update",
    "layer_norm",
    "metal_kernel",
    "precompiled_cuda_kernel",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
]


def rms_norm(x, weight, eps, *, stream=None):
    """headrace.fast.rms_norm."""
    return fast.rms_norm(x, weight, eps)


def layer_norm(x, weight, bias, eps, *, stream=None):
    """headrace.fast.layer_norm."""
    return fast.layer_norm(x, weight, bias, eps)


def cross_entropy(logits, targets, *, stream=None):
    """headrace.fast.cross_entropy."""
    return fast.cross_entropy(logits, targets)


def rope(a, dims, *, traditional, base, scale, offset, freqs=None, stream=None):
    """headrace.fast.rope."""
    return fast.rope(a, dims, traditional=traditional, base=base, scale=scale, offset=offset, freqs=freqs)


def scaled_dot_product_attention(q, k, v, *, scale, mask=None, sinks=None, force_fused=False, stream=None):
    """headrace.fast.scaled_dot_product_attention."""
    return fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask, sinks=sinks)


def gated_delta_update(q, k, v, gamma, beta, initial_state=None, mask=None, stream=None):
    """The gated delta rule: for each step the state S [Hv, Dv, Dk] becomes gamma S + beta (v - gamma S k) k^T, and its
    output is S q. Steps whose mask is false keep the state. Output [B, T, Hv, Dv] and the last state."""
    batch, steps, heads, _ = k.shape
    repeats = v.shape[2] // heads
    q, k = (_arrays.repeat(x, repeats, 2) if repeats > 1 else x for x in (q, k))
    shape = (batch, v.shape[2], v.shape[3], k.shape[3])
    state = _arrays.zeros(shape, _arrays.float32) if initial_state is None else initial_state.astype(_arrays.float32)
    outputs = []
    for t in range(steps):
        now = [x[:, t].astype(_arrays.float32) for x in (q, k, v, gamma, beta)]
        after, output = _delta_step(state, *now)
        if mask is not None:
            keeps = _arrays.reshape(mask[:, t], (batch,) + (1,) * (state.ndim - 1))
            after = _arrays.where(keeps, after, state)
        state = after
        outputs.append(output)
    return [_arrays.stack(outputs, 1).astype(q.dtype), state]


def _delta_step(state, q, k, v, gamma, beta):
    key = _arrays.expand_dims(k, -2)
    state = state * _arrays.reshape(gamma, (*gamma.shape[:2], 1, -1) if gamma.ndim == 3 else (*gamma.shape, 1, 1))
    missing = (v - _arrays.sum(state * key, -1)) * _arrays.expand_dims(beta, -1)
    state = state + _arrays.expand_dims(missing, -1) * key
    return state, _arrays.sum(state * _arrays.expand_dims(q, -2), -1)


def metal_kernel(*args, **kwargs):
    """Raises: kernels of Apple's GPUs can't run here; docs/custom-kernels.md has those of Headrace."""
    raise RuntimeError("metal_kernel: Metal is not available; see docs/custom-kernels.md")


def cuda_kernel(*args, **kwargs):
    """Raises: docs/custom-kernels.md has Headrace's kernels."""
    raise RuntimeError("cuda_kernel: not supported; see docs/custom-kernels.md")


precompiled_cuda_kernel = cuda_kernel
