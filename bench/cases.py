"""The cases of the benchmark: training and inference of networks, chains of element-wise operations, single
additions."""

import fnmatch
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import networks  # noqa: E402


def synchronizer(device: torch.device) -> Callable[[], None]:
    """The function that waits for the device, looked up once: small cases take microseconds."""
    return (lambda: None) if device.type == "cpu" else getattr(torch, device.type).synchronize


def synchronize(device: torch.device) -> None:
    synchronizer(device)()


def timed(sample: Callable, device: torch.device) -> float:
    begin = time.perf_counter()
    result = sample()
    synchronize(device)
    seconds = time.perf_counter() - begin
    del result
    return seconds


@dataclass(frozen=True)
class Case:
    """`prepare(device, compiled)` returns a function that runs one sample and returns the result that must exist when
    the clock is read. `compiled` is applied to the model or function of the case: the identity, or torch.compile."""

    name: str
    title: str
    prepare: Callable[..., Callable[[], object]]
    inner: int = 1  # operations in a sample: times are for one of them
    trains: bool = False
    is_network: bool = True
    counts: bool = True  # counts in the geometric mean, and is run with torch.compile
    reads_weights: int = 0  # bytes that must be read at least once


def chosen(cases: list, patterns: str) -> list:
    """The cases whose names match a pattern of the list, which has commas. Exits if a pattern matches none."""
    wanted = [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]
    for pattern in wanted:
        if not any(fnmatch.fnmatch(case.name, pattern) for case in cases):
            sys.exit(f"bench: no case is called {pattern}; there are {', '.join(case.name for case in cases)}")
    return [case for case in cases if any(fnmatch.fnmatch(case.name, pattern) for pattern in wanted)]


def model_of(network: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return networks.CASES[network].build()


def as_it_is(function: Callable) -> Callable:
    return function


def training(network: str, count: int) -> Callable:
    def prepare(device, compiled=as_it_is):
        case = networks.CASES[network]
        model = compiled(model_of(network).to(device).train())
        optimizers = case.optimizers(model, lambda parameters: torch.optim.Adam(parameters, lr=1e-4))
        batch = tuple(tensor.to(device) for tensor in case.batch(count))
        return lambda: case.step(model, optimizers, batch)

    return prepare


def inference(network: str, count: int, calls: int = 1, inputs: torch.Tensor | None = None) -> Callable:
    def prepare(device, compiled=as_it_is):
        model = compiled(model_of(network).eval().to(device))
        batch = (networks.CASES[network].batch(count)[0] if inputs is None else inputs).to(device)

        wait = synchronizer(device)

        def sample():
            with torch.no_grad():
                for _ in range(calls):
                    result = model(batch)
                    wait()
            return result

        return sample

    return prepare


def elementwise_chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((((x + y) * 0.5).tanh() - y).abs() * x + 1).sqrt().sigmoid()


def chain(size: int, calls: int) -> Callable:
    def prepare(device, compiled=as_it_is):
        function = compiled(elementwise_chain)
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.rand(size, generator=generator).to(device) for _ in range(2))

        wait = synchronizer(device)

        def sample():
            for _ in range(calls):
                result = function(x, y)
                wait()
            return result

        return sample

    return prepare


def additions(count: int, keep: bool) -> Callable:
    """Fresh results of x + y, kept until the end or dropped at once; nothing waits until all are issued."""

    def prepare(device, compiled=as_it_is):
        x, y = torch.rand(4).to(device), torch.rand(4).to(device)

        def kept():
            return [x + y for _ in range(count)]

        def dropped():
            for _ in range(count):
                result = x + y
            return result

        return kept if keep else dropped

    return prepare


TOKEN = torch.tensor([[464]])
CASES = [
    Case("cnn-train-512", "CNN 28x28, train, batch 512", training("cnn", 512), trains=True),
    Case("cnn-infer-512", "CNN 28x28, infer, batch 512", inference("cnn", 512)),
    Case("cnn-infer-1", "CNN 28x28, infer, batch 1", inference("cnn", 1, 20), inner=20),
    Case("mlp-train-64", "Softshrink MLP, train, batch 64", training("mlp", 64), trains=True),
    Case("mlp-infer-1", "Softshrink MLP, infer, batch 1", inference("mlp", 1, 100), inner=100),
    Case("resnet50-train-2", "ResNet-50, train, batch 2", training("resnet50", 2), trains=True),
    Case("resnet50-infer-2", "ResNet-50, infer, batch 2", inference("resnet50", 2)),
    Case("resnet50-infer-1", "ResNet-50, infer, batch 1", inference("resnet50", 1)),
    Case("gpt2-train-128", "GPT-2 small, train, 1 x 128 tokens", training("gpt2", 1), trains=True),
    Case("gpt2-infer-128", "GPT-2 small, infer, 1 x 128 tokens", inference("gpt2", 1)),
    Case(
        "gpt2-infer-1",
        "GPT-2 small, infer, 1 x 1 token",
        inference("gpt2", 1, inputs=TOKEN),
        reads_weights=4 * (12 * 12 * 768 * 768 + 50257 * 768),  # of its products
    ),
    Case("chain-4m", "element-wise chain, 4,194,304 floats", chain(1 << 22, 1), is_network=False),
    Case("chain-256k", "element-wise chain, 262,144 floats", chain(1 << 18, 10), inner=10, is_network=False),
    Case("chain-64", "element-wise chain, 64 floats", chain(64, 200), inner=200, is_network=False),
    Case("add-4", "x + y, 4 floats, results kept", additions(2000, True), inner=2000, is_network=False, counts=False),
    Case(
        "add-4-dropped",
        "x + y, 4 floats, results dropped",
        additions(2000, False),
        inner=2000,
        is_network=False,
        counts=False,
    ),
]
