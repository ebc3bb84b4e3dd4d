"""Adam's steps in one call, and gradients that are forgotten in one: the bits and effects of torch's own functions, and
the cases left to them."""

import importlib
import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import headrace.torch  # noqa: F401

torch.zeros(1, device="headrace")  # the first use of the device replaces torch's functions
adam, OPTIMIZER = (importlib.import_module(f"torch.optim.{name}") for name in ("adam", "optimizer"))
OURS, STEP = adam._multi_tensor_adam, torch.optim.Adam.step
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
    cell = cell_of(OURS, "own")
    before = cell.cell_contents
    cell.cell_contents = counted
    yield counted
    cell.cell_contents = before


def cell_of(function, name):
    return function.__closure__[function.__code__.co_freevars.index(name)]


@pytest.fixture
def quick():
    """The answers of the function that steps all groups."""
    cell = cell_of(STEP, "step_adam")
    before, answers = cell.cell_contents, []

    def step(*arguments):
        answers.append(before(*arguments))
        return answers[-1]

    cell.cell_contents = step
    yield answers
    cell.cell_contents = before


def parameters(dtype=torch.float32, shapes=SHAPES, device="headrace"):
    generator = torch.Generator().manual_seed(3)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype).to(device)) for shape in shapes]


def train(kind, dtype, options, steps=4, refuse=None):
    """Every other gradient is missing once: then parameters have made different numbers of steps. `refuse`: by torch's
    step."""
    if refuse is not None:
        refuse.setattr(cell_of(STEP, "step_adam"), "cell_contents", lambda *_: False)
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
def test_steps_have_the_bits_of_torchs_own(kind, dtype, own, quick, monkeypatch):
    for amsgrad, maximize, decay in itertools.product((False, True), (False, True), (0, 0.05, 1)):
        options = {"lr": 3e-3, "amsgrad": amsgrad, "maximize": maximize, "weight_decay": decay, "betas": (0.8, 0.97)}
        ours = train(kind, dtype, options)
        assert own.calls == 0 and quick == [False, True, True, True]  # torch makes the state
        quick.clear()
        with monkeypatch.context() as patch:
            lists = train(kind, dtype, options | {"foreach": True}, refuse=patch)
            patch.setattr(adam, "_multi_tensor_adam", OURS.__wrapped__)
            torchs = train(kind, dtype, options, refuse=patch)
        assert quick == []
        for mine, listed, other in zip(ours, lists, torchs, strict=True):
            assert torch.equal(mine, other) and torch.equal(listed, other), options


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


def trained(kind=torch.optim.Adam, **options):
    """An optimizer with a state, and a new gradient."""
    part, unused = parameters(shapes=[(3,), (2,)])
    optimizer = kind([{"params": [part]}, {"params": [unused]}], **options)
    part.grad = torch.ones(3, device="headrace")
    optimizer.step()
    part.grad = torch.ones(3, device="headrace")
    return optimizer, part


def test_steps_with_hooks_closures_and_options_are_torchs(quick):
    seen = []
    optimizer, part = trained()
    quick.clear()
    handle = optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.step()
    handle.remove()
    handle = optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.step()
    handle.remove()
    for place in ("pre", "post"):
        handle = getattr(OPTIMIZER, f"register_optimizer_step_{place}_hook")(lambda *_: seen.append("all"))
        optimizer.step()
        handle.remove()
    assert seen == ["before", "after", "all", "all"] and quick == []
    assert optimizer.step(lambda: 7) == 7 and quick == []
    optimizer.step()
    assert quick == [True] and torch.is_grad_enabled()
    assert optimizer.state[part]["step"] == 7
    for options in ({"foreach": False}, {"capturable": True}, {"lr": torch.tensor(0.1), "foreach": False}):
        other, _ = trained(**options)
        other.step()
        assert quick[-1] is False, options


def test_a_profiler_sees_torchs_names(quick):
    optimizer, _ = trained()
    with torch.profiler.profile() as profile:
        optimizer.step()
        optimizer.zero_grad()
    names = {event.name for event in profile.events()}
    assert {"Optimizer.step#Adam.step", "Optimizer.zero_grad#Adam.zero_grad"} <= names and quick[-1] is False


class Stepped(torch.optim.Adam):
    def step(self, closure=None):
        self.steps = getattr(self, "steps", 0) + 1
        return super().step(closure) if closure is not None else super().step()


class Grouped(torch.optim.AdamW):
    def _init_group(self, group, *lists):
        self.groups = getattr(self, "groups", 0) + 1
        return super()._init_group(group, *lists)


def test_subclasses_keep_their_methods(quick):
    optimizer, _ = trained(Stepped)
    optimizer.step()
    assert optimizer.steps == 2 and quick[-1] is True
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(1))
    optimizer.step()
    assert optimizer.steps == 3 and len(seen) >= 1
    quick.clear()
    optimizer, _ = trained(Grouped)
    optimizer.step()
    assert optimizer.groups == 4 and quick == []


def test_a_scheduler_counts_our_steps(quick):
    optimizer, part = trained(lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.0)
    before = part.detach().cpu()
    optimizer.step()
    assert optimizer._opt_called and quick[-1] is True and not torch.equal(before, part.detach().cpu())
    scheduler.step()
    before = part.detach().cpu()
    optimizer.step()
    assert quick[-1] is True and torch.equal(before, part.detach().cpu())


def test_a_damaged_state_is_torchs_error(quick):
    optimizer, part = trained()
    del optimizer.state[part]["exp_avg"]
    with pytest.raises(KeyError, match="exp_avg"):
        optimizer.step()
    assert quick[-1] is False


def test_a_gradient_of_a_subclass_is_torchs(quick, own):
    optimizer, part = trained()
    part.grad = torch.ones(3, device="headrace").as_subclass(Subclass)
    before = own.calls
    optimizer.step()
    assert quick[-1] is False and own.calls > before


class Functions(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **kwargs or {})


def test_gradients_are_forgotten():
    for device in ("headrace", "cpu"):
        first, second = parameters(shapes=[(3,), (2,)], device=device)
        optimizer = torch.optim.SGD([{"params": [first]}, {"params": [second]}])
        optimizer.zero_grad()
        for options in ({}, {"set_to_none": True}):
            first.grad = second.grad = None
            kept = first.grad = torch.ones(3, device=device)
            optimizer.zero_grad(**options)
            assert first.grad is None and second.grad is None and kept.sum().item() == 3
        first.grad = torch.ones(3, device=device)
        optimizer.zero_grad(set_to_none=False)
        assert first.grad.tolist() == [0, 0, 0] and second.grad is None
        with Functions() as functions:
            optimizer.zero_grad()
        assert first.grad is None and functions.count > 0


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_steps_count_as_writes(kind, amsgrad, own):
    """A gradient whose saved parameter has changed would be wrong: torch refuses it."""
    (part,) = parameters(shapes=[(3,)])
    loss = (part * part).sum()
    loss.backward(retain_graph=True)
    optimizer = kind([part], amsgrad=amsgrad)
    optimizer.step()
    written = [part, *optimizer.state[part].values()]
    before, of_gradient = [tensor._version for tensor in written], part.grad._version
    optimizer.step()
    assert own.calls == 0
    assert all(tensor._version > version for tensor, version in zip(written, before, strict=True))
    assert part.grad._version == of_gradient
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
