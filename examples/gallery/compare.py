"""Trains a network on one device, times it, and measures the difference of two runs."""

import contextlib
import copy
import math
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

clock = time.perf_counter  # batch of the timed steps
COMPARED = 10  # steps whose losses must agree; later ones drift apart, as rounding errors grow
LOSS_BOUND = 2e-4  # relative
OUTPUT_BOUND = 1e-4  # of the largest output; integers must be equal
INFER_SECONDS = 2.0  # long enough for repeated kernels to be compiled


@dataclass
class Run:
    device: torch.device
    losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    infer_seconds: list[float] = field(default_factory=list)
    model: nn.Module | None = None
    fallbacks: int = 0

    @property
    def step_ms(self) -> float:
        """Median of the second half, when everything is compiled."""
        return 1e3 * median(self.step_seconds[len(self.step_seconds) // 2 :])

    @property
    def infer_ms(self) -> float:
        return 1e3 * median(self.infer_seconds[len(self.infer_seconds) // 2 :])


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else math.nan


def module_of(device: torch.device):
    return None if device.type == "cpu" else getattr(torch, device.type)


def synchronize(device: torch.device) -> None:
    if module_of(device):
        module_of(device).synchronize()


def moved(tensors, device) -> tuple[Tensor, ...]:
    return tuple(t.to(device) for t in tensors)


def train(network, model: nn.Module, steps: int, device, small=False, autocast=None, progress=None) -> Run:
    """A copy of `model` after `steps` steps of Adam, whose losses are read; `autocast` is a dtype of forward passes."""
    run = Run(torch.device(device), model=copy.deepcopy(model).to(device).train())
    if module_of(run.device):
        module_of(run.device).reset_stats()
    optimizer = torch.optim.Adam(run.model.parameters(), lr=network.RATE)
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        batch = network.batch(generator, small)
        started = clock()
        with torch.autocast(run.device.type, autocast) if autocast else contextlib.nullcontext():
            loss = network.loss(run.model, *moved(batch, device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.losses.append(loss.item())
        run.step_seconds.append(clock() - started)
        if progress:
            progress(step + 1, steps, run)
    run.model.eval()
    count_fallbacks(run)
    return run


@torch.no_grad()
def infer(network, model: nn.Module, run: Run, small=False, seconds=INFER_SECONDS) -> tuple[Tensor, ...]:
    """The last output of a copy of `model` on `run`'s device, on the CPU; the times go into `run`."""
    model = copy.deepcopy(model).to(run.device).eval()
    batch = moved(network.batch(torch.Generator().manual_seed(2), small), run.device)
    until = clock() + seconds
    while len(run.infer_seconds) < 8 or clock() < until:
        started = clock()
        answer = network.infer(model, *batch)
        synchronize(run.device)
        run.infer_seconds.append(clock() - started)
    count_fallbacks(run)
    return moved(answer if isinstance(answer, tuple) else (answer,), "cpu")


def count_fallbacks(run: Run) -> None:
    if run.device.type == "headrace":
        run.fallbacks = torch.headrace.stats()["fallbacks"]


def loss_difference(actual: list[float], expected: list[float]) -> float:
    """The largest relative difference of the first steps; NaN if a loss is not finite."""
    return largest(abs(a - e) / max(abs(e), 1e-6) for a, e in zip(actual[:COMPARED], expected[:COMPARED], strict=True))


def output_difference(actual, expected) -> float:
    """The largest difference relative to the largest output; for integers and bools, infinity if any differs."""
    return largest(tensor_difference(a, e) for a, e in zip(actual, expected, strict=True))


def tensor_difference(actual: Tensor, expected: Tensor) -> float:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return math.inf
    if not expected.is_floating_point():
        return 0.0 if torch.equal(actual, expected) else math.inf
    if not expected.numel():
        return 0.0
    return ((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()


def largest(values) -> float:
    """As max, but NaN wins."""
    values = list(values)
    return math.nan if any(math.isnan(v) for v in values) else max(values, default=0.0)
