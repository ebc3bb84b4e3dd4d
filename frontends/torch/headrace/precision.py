"""Which layers gain from float16 or bfloat16, and within what error."""

import contextlib
import dataclasses
import sys
import time

import torch

_GAIN = 1.1  # a layer that gains less stays in float32


@dataclasses.dataclass(frozen=True)
class LayerPrecision:
    """One layer's times in seconds and largest errors (relative to its largest result), by dtype."""

    name: str
    kind: str
    seconds: dict
    errors: dict
    proposal: torch.dtype


@dataclasses.dataclass(frozen=True)
class AutocastSuggestion:
    """What `suggest_autocast` found; printed, it is a table.

    `dtype` is the dtype to use under autocast, float32 if none is worth it. `error` and `speedup` are the whole model's
    with `autocast()`, against float32. `keep` are the names of layers whose own error is larger than the tolerance:
    `torch.autocast("headrace", enabled=False)` around them keeps them in float32.
    """

    layers: tuple
    dtype: torch.dtype
    keep: tuple
    error: float
    speedup: float

    def autocast(self):
        """The context in which to call the model."""
        return _autocast(self.dtype)

    def __str__(self):
        dtypes = list(self.layers[0].seconds)
        heads = [f"{_short(d)} us" for d in dtypes] + [f"{_short(d)} error" for d in dtypes[1:]]
        lines = [("layer", "kind", *heads, "proposal")]
        for layer in self.layers:
            times = [f"{layer.seconds[d] * 1e6:.1f}" for d in dtypes]
            errors = [f"{layer.errors[d]:.1e}" for d in dtypes[1:]]
            lines.append((layer.name, layer.kind, *times, *errors, _short(layer.proposal)))
        widths = [max(map(len, column)) for column in zip(*lines)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        return "\n".join([*table, "", self._verdict()])

    def _verdict(self):
        if self.dtype == torch.float32:
            return "Stay in float32: no dtype is faster within the tolerance."
        kept = f" Less exact by themselves: {', '.join(self.keep)}." if self.keep else ""
        return (
            f'torch.autocast("headrace", dtype={self.dtype}): {self.speedup:.2f}x as fast, '
            f"the result differs by {self.error:.1e} of its largest value.{kept}"
        )


def _short(dtype):
    return str(dtype).removeprefix("torch.")


def _autocast(dtype):
    is_low = dtype != torch.float32
    return torch.autocast("headrace", dtype=dtype) if is_low else contextlib.nullcontext()


def _tensors(result):
    leaves = torch.utils._pytree.tree_leaves(result)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def _error(result, reference):
    """The largest difference, relative to the largest value; infinity if values are not finite where they were."""
    worst = 0.0
    for x, y in zip(_tensors(result), _tensors(reference)):
        if y.numel() == 0:
            continue
        x, y = x.double().cpu(), y.double().cpu()
        is_finite = y.isfinite()
        if not torch.equal(x.isfinite(), is_finite):
            return float("inf")
        scale = y[is_finite].abs().max().item() if is_finite.any() else 0.0
        difference = (x - y)[is_finite].abs().max().item() if is_finite.any() else 0.0
        worst = max(worst, difference / scale if scale > 0 else difference)
    return worst


def _run(call, arguments, keywords, dtype, repeats):
    """A result, and the least seconds of a call that the device has ended."""
    least = float("inf")
    with _autocast(dtype):
        for _ in range(repeats + 1):  # the first one compiles
            torch.headrace.synchronize()
            begin = time.perf_counter()
            result = call(*arguments, **keywords)
            torch.headrace.synchronize()
            least = min(least, time.perf_counter() - begin)
    return result, least


def _record_calls(model, inputs):
    """The arguments of each layer's first call, in the order of the calls."""
    calls, hooks = {}, []
    for name, layer in model.named_modules():
        has_own = any(p.is_floating_point() for p in layer.parameters(recurse=False))
        if has_own and not any(layer.children()):

            def note(layer, arguments, keywords, name=name):
                calls.setdefault(name, (layer, arguments, keywords))

            hooks.append(layer.register_forward_pre_hook(note, with_kwargs=True))
    try:
        model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _measure_layer(name, call, dtypes, tolerance, repeats):
    layer, arguments, keywords = call
    reference, seconds = _run(layer, arguments, keywords, torch.float32, repeats)
    times, errors = {torch.float32: seconds}, {torch.float32: 0.0}
    for dtype in dtypes:
        result, times[dtype] = _run(layer, arguments, keywords, dtype, repeats)
        errors[dtype] = _error(result, reference)
    good = [d for d in dtypes if errors[d] <= tolerance and times[d] * _GAIN <= seconds]
    proposal = min(good, key=times.get, default=torch.float32)
    return LayerPrecision(name, type(layer).__name__, times, errors, proposal)


def _check(model, inputs, dtypes):
    tensors = [*model.parameters(), *_tensors(inputs)]
    for x in tensors:
        if x.device.type != "headrace":
            where = f"one tensor is on {x.device}"
            raise ValueError(f"suggest_autocast: the model and its inputs must be on headrace, {where}")
    for dtype in dtypes:
        if dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(f"suggest_autocast: dtypes are torch.float16 and torch.bfloat16, not {dtype}")


def suggest_autocast(model, *inputs, dtypes=(torch.bfloat16, torch.float16), tolerance=0.02, repeats=5):
    """Measures which layers of a model gain from a smaller dtype, and proposes a setting of autocast.

    `model` is a module on the device; it is called as it is (training or not), without gradients. `inputs` are its
    arguments, a batch as in real use. `dtypes` are tried beside float32. `tolerance` is the largest error of a layer and
    of the model, relative to the largest value of the result. The fastest of `repeats` calls counts.

    Each layer with parameters runs by itself on the arguments of its first call. A dtype is proposed for the model if
    layers gain at least a tenth by it, and the whole model is faster within the tolerance. Returns an
    `AutocastSuggestion`, which prints as a table. Random numbers (dropout) count as error: call `model.eval()` first.

    Errors: ValueError for a tensor on another device, another dtype, or a model that calls no layer with parameters.
    """
    _check(model, inputs, dtypes)
    with torch.no_grad():
        calls = _record_calls(model, inputs)
        if not calls:
            raise ValueError(f"suggest_autocast: {type(model).__name__} calls no layer with floating-point parameters")
        layers = []
        for i, (name, call) in enumerate(calls.items()):
            if sys.stderr.isatty():
                print(f"\rlayer {i + 1} of {len(calls)}", end="", file=sys.stderr, flush=True)
            layers.append(_measure_layer(name, call, dtypes, tolerance, repeats))
        if sys.stderr.isatty():
            print(file=sys.stderr)
        return _choose(model, inputs, layers, tolerance, repeats)


def _choose(model, inputs, layers, tolerance, repeats):
    reference, seconds = _run(model, inputs, {}, torch.float32, repeats)
    best = AutocastSuggestion(tuple(layers), torch.float32, (), 0.0, 1.0)
    for dtype in {layer.proposal for layer in layers} - {torch.float32}:
        result, own = _run(model, inputs, {}, dtype, repeats)
        error = _error(result, reference)
        if error <= tolerance and seconds / own > best.speedup:
            keep = tuple(layer.name for layer in layers if layer.errors[dtype] > tolerance)
            best = AutocastSuggestion(tuple(layers), dtype, keep, error, seconds / own)
    return best
