"""Adam's steps over lists in one call: the bits of torch's dozen calls, and the cases left to torch's own step."""

import importlib
import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import headrace.torch  # noqa: F401

adam = importlib.import_module("torch.optim.adam")
OURS = adam._multi_tensor_adam
pytestmark = pytest.mark.skipif(not hasattr(OURS, "__wrapped__"), reason="this torch has another Adam")
SHAPES = [(2, 3), (), (0, 4), (7, 1, 2)]


class Counted:
    """Counts the calls of torch's own function."""

    def __init__(self):
        self.calls = 0

    def __call__(self, *arguments, **keywords):
        self.calls += 1
        return OURS.__wrapped__(*arguments, **keywords)


@pytest.fixture
def own(monkeypatch):
    """torch's own function, counted, called by ours."""
    counted = Counted()
    cell = next(c for name, c in zip(OURS.__code__.co_freevars, OURS.__closure__, strict=True) if name == "own")
    before = cell.cell_contents
    cell.cell_contents = counted
    yield counted
    cell.cell_contents = before


def parameters(dtype=torch.float32, shapes=SHAPES, device="headrace"):
    generator = torch.Generator().manual_seed(3)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype).to(device)) for shape in shapes]


def train(kind, dtype, options, steps=4):
    """Every other gradient is missing once: then parameters have made different numbers of steps."""
    generator = torch.Generator().manual_seed(4)
    parts = parameters(dtype)
    optimizer = kind([{"params": parts[:1], "lr": 0.1}, {"params": parts[1:]}], **options)
    for step in range(steps):
        for index, part in enumerate(parts):
            grad = torch.randn(part.shape, generator=generator).to(dtype).to("headrace")
            part.grad = None if step == 2 and index % 2 == 1 else grad
        optimizer.step()
    state = [optimizer.state[part][name].cpu() for part in parts for name in sorted(optimizer.state[part])]
    return [part.detach().cpu() for part in parts] + state


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_steps_have_the_bits_of_torchs_own(kind, dtype, own, monkeypatch):
    for amsgrad, maximize, decay in itertools.product((False, True), (False, True), (0, 0.05, 1)):
        options = {"lr": 3e-3, "amsgrad": amsgrad, "maximize": maximize, "weight_decay": decay, "betas": (0.8, 0.97)}
        ours = train(kind, dtype, options)
        assert own.calls == 0
        with monkeypatch.context() as patch:
            patch.setattr(adam, "_multi_tensor_adam", OURS.__wrapped__)
            torchs = train(kind, dtype, options)
        for mine, other in zip(ours, torchs, strict=True):
            assert torch.equal(mine, other), options


class Subclass(torch.Tensor):
    pass


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **kwargs or {})


def step_of(parts, grads, **options):
    for part, grad in zip(parts, grads, strict=True):
        part.grad = grad
    optimizer = torch.optim.Adam(parts, foreach=True, **options)
    optimizer.step()
    return [part.detach().cpu() for part in parts]


def test_what_is_out_of_the_ordinary_is_torchs(own):
    half = parameters(torch.float16, [(3,)])
    on_host = parameters(device="cpu")
    wrapped = torch.nn.Parameter(parameters()[0].detach().as_subclass(Subclass))
    one = parameters(shapes=[(3, 2)])
    turned = torch.ones(2, 3, device="headrace").t()
    cases = [
        (parameters() + half, [torch.ones_like(p) for p in parameters() + half], {}),  # two dtypes
        (on_host, [torch.ones_like(p) for p in on_host], {}),
        ([wrapped], [torch.ones_like(wrapped)], {}),
        (one, [turned], {"capturable": True}),
        (one, [turned], {"betas": (torch.tensor(0.9), torch.tensor(0.9)), "lr": torch.tensor(0.1), "capturable": True}),
    ]
    for index, (parts, grads, options) in enumerate(cases):
        step_of(parts, grads, **options)
        assert own.calls == index + 1, index
    with Seen() as seen:
        step_of(one, [turned])
    assert own.calls == len(cases) + 1 and any("foreach" in name for name in seen.names)
    step_of(one, [turned])
    assert own.calls == len(cases) + 1


def test_a_gradient_that_lies_otherwise():
    here, there = parameters(shapes=[(3, 2)]), parameters(shapes=[(3, 2)], device="cpu")
    grad = torch.arange(6.0).view(2, 3)
    ours = step_of(here, [grad.to("headrace").t()], lr=0.1)
    torchs = step_of(there, [grad.t()], lr=0.1)
    torch.testing.assert_close(ours, torchs)


def test_steps_that_python_can_not_count(own):
    """A step below 0 makes torch's arithmetic complex or divides by zero: its own function defines the result."""
    parts = parameters(shapes=[(3,)])
    parts[0].grad = torch.ones(3, device="headrace")
    optimizer = torch.optim.Adam(parts)
    optimizer.step()
    optimizer.state[parts[0]]["step"].fill_(-1)
    with pytest.raises(ZeroDivisionError):
        optimizer.step()
    assert own.calls == 1
