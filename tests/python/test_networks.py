"""Each network trains on the device as on torch's CPU, with every form of optimizer and its other requirements.

A comparison over 20 steps is meaningful if rounding alone doesn't change the result. A ReLU that switches because of
the last bit changes gradients by a percent. So `well_conditioned` searches a start from which torch's own float32 run
stays close to its float64 run, and only then runs the device.
"""

import copy
import functools
import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import networks
import pytest
import torch
import torch.nn.functional as F
from networks import CASES
from support import DEVICE, assert_same, assert_summed, norm_difference, synchronize, total_norm
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

STEPS = 20

# Learning rates at which the small networks move and stay well conditioned.
OPTIMIZERS = {
    "sgd": lambda name: lambda p: torch.optim.SGD(p, lr=1e-3 if name in ("resnet50", "dcgan") else 0.02, momentum=0.9),
    "adam": lambda name: lambda p: torch.optim.Adam(p, lr=1e-4 if name == "resnet50" else 1e-3),
}


def soften(model):
    """Batch norm around one, and residual branches at a quarter: most ReLUs then stay clear of zero."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.bias.fill_(1.0)
            if isinstance(module, networks.Bottleneck):
                module.bn3.weight.fill_(0.25)
    return model


def train(case, model, batches, make_optimizer, device, dtype=None):
    """Losses of each step, gradients after the last one, and the final state; reads back at the end alone."""
    model = copy.deepcopy(model).to(device=device, dtype=dtype)
    optimizers = case.optimizers(model, make_optimizer)
    losses = []
    for batch in batches:
        moved = tuple(t.to(device=device, dtype=dtype if t.is_floating_point() else None) for t in batch)
        losses.append(torch.stack(case.step(model, optimizers, moved)))
    losses = torch.stack(losses).cpu().double()
    gradients = {name: p.grad.detach().cpu().double() for name, p in model.named_parameters()}
    state = {name: t.detach().cpu() for name, t in model.state_dict().items()}
    return losses, gradients, state


def loss_difference(losses, expected):
    return ((losses - expected).abs() / expected.abs()).max().item()


def gradient_difference(gradients, expected):
    """The worst parameter: its difference relative to its norm, or to a hundredth of the whole gradient's norm if
    that is larger (a layer before a batch norm may have only rounding errors)."""
    floor = 0.01 * total_norm(expected.values())
    return max(norm_difference(gradients[name], g) / max(g.norm().item(), floor) for name, g in expected.items())


@functools.cache
def well_conditioned(name, optimizer):
    """A model, batches and torch CPU's results, whose losses and gradients float64 confirms to a tenth of the
    device's bound; and the final state in float64."""
    case, make = CASES[name], OPTIMIZERS[optimizer](name)
    tried = []
    for seed in range(8):
        torch.manual_seed(seed)
        model = soften(case.build(small=True, dropout=0.0))
        generator = torch.Generator().manual_seed(seed)
        batches = [case.batch(small=True, generator=generator) for _ in range(STEPS)]
        expected = train(case, model, batches, make, "cpu")
        exact = train(case, model, batches, make, "cpu", torch.float64)
        tried.append((loss_difference(expected[0], exact[0]), gradient_difference(expected[1], exact[1])))
        if max(tried[-1]) < 1e-5:
            return model, batches, make, expected, exact[2]
    raise AssertionError(f"{name} with {optimizer}: no well-conditioned start; losses, gradients: {tried}")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", CASES)
def test_training_matches_cpu(name, optimizer, device):
    model, batches, make, (losses, gradients, state), exact_state = well_conditioned(name, optimizer)
    actual_losses, actual_gradients, actual_state = train(CASES[name], model, batches, make, device)
    assert loss_difference(actual_losses, losses) < 1e-4
    assert gradient_difference(actual_gradients, gradients) < 1e-4
    for key, value in state.items():
        if "num_batches_tracked" in key:
            assert actual_state[key] == value, key
        elif "running" in key:
            # Adam divides by small numbers: torch's own running means may be 2e-4 from float64's, and the device's
            # may be as far from them, on another side.
            exact = exact_state[key]
            allowed = 10 * norm_difference(value, exact) + 1e-5 * exact.norm().item()
            assert norm_difference(actual_state[key], exact) <= allowed, key


@pytest.mark.parametrize("name", CASES)
def test_inference_matches_cpu(name, device):
    case = CASES[name]
    model = case.build(small=True).eval()
    batch = case.batch(small=True)
    moved = copy.deepcopy(model).to(device)
    with torch.no_grad():
        expected = case.infer(model, batch)
        for _ in range(3):
            actual = case.infer(moved, tuple(t.to(device) for t in batch))
    assert_summed(actual, expected, name, factor=5)


def test_training_with_dropout_learns(device):
    """Dropout draws different numbers on each device, so the test compares the level to which the loss falls."""
    case = CASES["cnn"]
    model = case.build(small=True, dropout=0.3)
    batch = case.batch(16, small=True)
    last = {}
    for where in (torch.device("cpu"), device):
        copied = copy.deepcopy(model).to(where)
        optimizers = case.optimizers(copied, lambda p: torch.optim.Adam(p, lr=1e-2))
        losses = [case.step(copied, optimizers, tuple(t.to(where) for t in batch))[0] for _ in range(150)]
        last[where.type] = torch.stack(losses[-20:]).mean().item(), losses[0].item()
    final, first = last[device.type]
    assert final < 0.6 * first
    assert abs(final - last["cpu"][0]) < 0.3 * first


# ---- optimizers


def forms(*names):
    every = {"default": {}, "foreach": {"foreach": True}, "forloop": {"foreach": False}, "fused": {"fused": True}}
    return [(name, every[name]) for name in names]


VARIANTS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05}, "default foreach forloop fused"),
    "sgd momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}, "default foreach forloop fused"),
    "sgd nesterov decay": (
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        "default foreach forloop fused",
    ),
    "adam": (torch.optim.Adam, {"lr": 2e-3}, "default foreach forloop fused"),
    "adam amsgrad decay": (
        torch.optim.Adam,
        {"lr": 2e-3, "amsgrad": True, "weight_decay": 0.01},
        "default foreach forloop fused",
    ),
    "adamw": (torch.optim.AdamW, {"lr": 2e-3, "weight_decay": 0.05}, "default foreach forloop fused"),
    "adamw maximize": (torch.optim.AdamW, {"lr": 2e-3, "maximize": True}, "default foreach forloop fused"),
    "rmsprop": (torch.optim.RMSprop, {"lr": 2e-3}, "default foreach forloop"),
    "rmsprop centered momentum": (
        torch.optim.RMSprop,
        {"lr": 2e-3, "centered": True, "momentum": 0.5, "weight_decay": 0.01},
        "default foreach forloop",
    ),
}


def small_mlp():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3))


def small_data(count=STEPS):
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(count, 12, 6, generator=generator)
    return inputs, inputs[..., :3].sin() * 2 + 0.5


def fit(model, make_optimizer, where, steps=STEPS, between=None, before_step=None):
    """Regression with the small network; returns losses, the model and its optimizer."""
    model = copy.deepcopy(model).to(where)
    optimizer = make_optimizer(model.parameters())
    between = between(optimizer) if between else lambda loss: None
    inputs, targets = small_data(steps)
    losses = []
    for x, y in zip(inputs, targets):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x.to(where)), y.to(where))
        loss.backward()
        if before_step:
            before_step(model)
        optimizer.step()
        between(loss)
        losses.append(loss.detach())
    return torch.stack(losses).cpu(), model, optimizer


def assert_parameters_match(actual, expected, bound=1e-4):
    for (name, a), (_, b) in zip(actual.named_parameters(), expected.named_parameters()):
        assert norm_difference(a, b) <= bound * b.detach().norm().item(), name


@pytest.mark.parametrize(
    ("name", "form"), [(name, form) for name, (_, _, names) in VARIANTS.items() for form in names.split()]
)
def test_optimizer_matches_cpu(name, form, device):
    kind, options, _ = VARIANTS[name]
    flags = dict(forms(form))[form]
    losses, model, optimizer = fit(small_mlp(), lambda p: kind(p, **options), "cpu")
    actual_losses, actual_model, actual_optimizer = fit(small_mlp(), lambda p: kind(p, **options, **flags), device)
    assert_same(actual_losses, losses, "losses", rtol=1e-4, atol=0)
    assert_parameters_match(actual_model, model)
    for p, q in zip(actual_model.parameters(), model.parameters()):
        state, expected = actual_optimizer.state[p], optimizer.state[q]
        assert state.keys() >= expected.keys()
        for key, value in expected.items():
            if isinstance(value, torch.Tensor):
                difference = norm_difference(state[key], value)
                assert difference <= 1e-4 * value.norm().item() + 1e-8, key


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize(("norm", "bound"), [(2.0, 0.1), (2.0, 1e6), (1.0, 0.5), (float("inf"), 0.05)])
def test_clip_grad_norm(norm, bound, foreach, device):
    results = []
    for where in ("cpu", device):
        norms = []

        def clip(model, where=where, norms=norms):
            flag = None if str(where) == "cpu" else foreach
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), bound, norm_type=norm, foreach=flag))

        losses, model, _ = fit(small_mlp(), lambda p: torch.optim.SGD(p, lr=0.05), where, 8, before_step=clip)
        results.append((losses, torch.stack(norms).cpu(), model))
    assert_same(results[1][0], results[0][0], "losses", rtol=1e-4)
    assert_same(results[1][1], results[0][1], "norms", rtol=1e-4)
    assert_parameters_match(results[1][2], results[0][2])


def test_clip_grad_norm_of_nan_raises(device):
    model = small_mlp().to(device)
    for p in model.parameters():
        p.grad = torch.full_like(p, float("nan"))
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("foreach", [None, True, False])
def test_clip_grad_value(foreach, device):
    def clip(model):
        nn.utils.clip_grad_value_(model.parameters(), 0.02, foreach=foreach)

    losses, model, _ = fit(small_mlp(), lambda p: torch.optim.SGD(p, lr=0.05), "cpu", 8, before_step=clip)
    actual_losses, actual, _ = fit(small_mlp(), lambda p: torch.optim.SGD(p, lr=0.05), device, 8, before_step=clip)
    assert_same(actual_losses, losses, "losses", rtol=1e-4)
    assert_parameters_match(actual, model)


def scheduled(make, metric=False):
    def between(optimizer):
        scheduler = make(optimizer)
        return (lambda loss: scheduler.step(loss.item())) if metric else (lambda loss: scheduler.step())

    return between


SCHEDULES = {
    "step": scheduled(lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5)),
    "cosine": scheduled(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10)),
    "one cycle": scheduled(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=25)),
    "exponential": scheduled(lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9)),
    "lambda": scheduled(lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step))),
    "plateau": scheduled(lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=1, factor=0.3), metric=True),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_learning_rate_schedule(name, device):
    def make(p):
        return torch.optim.Adam(p, lr=5e-3)

    losses, model, optimizer = fit(small_mlp(), make, "cpu", 12, SCHEDULES[name])
    actual_losses, actual, actual_optimizer = fit(small_mlp(), make, device, 12, SCHEDULES[name])
    assert_same(actual_losses, losses, "losses", rtol=1e-4)
    assert_parameters_match(actual, model)
    assert actual_optimizer.param_groups[0]["lr"] == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6)


def test_weight_averaging(device):
    """An exponential moving average of the weights, as torch.optim.swa_utils keeps it."""
    results = []
    for where in ("cpu", device):
        averaged = []

        def average(model, averaged=averaged):
            if not averaged:
                function = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
                averaged.append(torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=function))
            averaged[0].update_parameters(model)

        fit(small_mlp(), lambda p: torch.optim.SGD(p, lr=0.05), where, 8, before_step=average)
        results.append(averaged[0].module)
    assert_parameters_match(results[1], results[0])


# ---- data


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers, device):
    """Workers read on the CPU; batches are moved by the training process."""
    inputs, targets = (t.flatten(0, 1) for t in small_data(4))
    warm = torch.ones(3, device=device) + 1  # the device is in use before workers are forked
    timeout = 60 if workers else 0
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=10, num_workers=workers, timeout=timeout)
    model, moved = small_mlp(), small_mlp().to(device)
    count = 0
    for x, y in loader:
        expected = F.mse_loss(model(x), y)
        actual = F.mse_loss(moved(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
        assert_same(actual, expected, f"batch {count}", rtol=1e-5)
        count += 1
    assert count == 5
    assert_same(warm, torch.full((3,), 2.0))


def test_source_may_change_after_a_copy_to_the_device(device):
    source = torch.arange(1000.0)
    moved = source.to(device, non_blocking=True, copy=True)
    source.zero_()
    assert_same(moved, torch.arange(1000.0))


# ---- files


def trained(where):
    _, model, optimizer = fit(small_mlp(), lambda p: torch.optim.Adam(p, lr=5e-3), where, 5)
    return model, optimizer


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("direction", ["from device", "to device", "device"])
def test_checkpoint_files(direction, zipped, device, tmp_path):
    """A checkpoint crosses devices in both directions, and training goes on from it as if nothing had happened."""
    source = torch.device("cpu") if direction == "to device" else device
    target = torch.device("cpu") if direction == "from device" else device
    model, optimizer = trained(source)
    path = tmp_path / "checkpoint.pt"
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3},
        path,
        _use_new_zipfile_serialization=zipped,
    )
    loaded = torch.load(path, map_location=None if source == target else target, weights_only=True)
    assert loaded["epoch"] == 3
    for tensor in loaded["model"].values():
        assert tensor.device.type == target.type

    restored = small_mlp().to(target)
    restored.load_state_dict(loaded["model"])
    restored_optimizer = torch.optim.Adam(restored.parameters(), lr=1.0)
    restored_optimizer.load_state_dict(loaded["optimizer"])
    x, y = small_data(1)
    for network, chosen in ((model, optimizer), (restored, restored_optimizer)):
        where = next(network.parameters()).device
        for _ in range(3):
            chosen.zero_grad()
            F.mse_loss(network(x[0].to(where)), y[0].to(where)).backward()
            chosen.step()
    assert_parameters_match(restored, model, 1e-5)


def test_views_share_storage_after_loading(device, tmp_path):
    base = torch.arange(12.0, device=device)
    torch.save({"base": base, "view": base.view(3, 4).t()[1:3]}, tmp_path / "views.pt")
    loaded = torch.load(tmp_path / "views.pt")
    assert loaded["view"].stride() == (1, 4)
    loaded["base"].add_(100)
    assert_same(loaded["view"], torch.arange(100.0, 112.0).view(3, 4).t()[1:3])


def test_pickle_and_deepcopy(device):
    tensor = torch.arange(6.0, device=device).view(2, 3).t()
    for copied in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert copied.device.type == device.type
        assert copied.stride() == tensor.stride()
        assert_same(copied, tensor.cpu())
        copied.zero_()
    assert_same(tensor, torch.arange(6.0).view(2, 3).t())
    model, _ = trained(device)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    assert_parameters_match(torch.load(buffer, weights_only=False), model, 0)


# ---- random numbers


def draws(device):
    p = torch.full((50,), 0.3, device=device)
    return [
        torch.rand(40, device=device),
        torch.randn(3, 7, device=device),
        torch.randint(0, 100, (30,), device=device),
        torch.empty(20, device=device).uniform_(-2, 3),
        torch.empty(20, device=device).normal_(1, 2),
        torch.empty(20, device=device).exponential_(2.0),
        torch.bernoulli(p),
        F.dropout(torch.ones(60, device=device), 0.4),
    ]


def test_manual_seed_repeats(device):
    torch.manual_seed(11)
    first = draws(device)
    second = draws(device)
    torch.manual_seed(11)
    for again, before in zip(draws(device), first):
        assert_same(again, before.cpu())
    assert any(not torch.equal(a.cpu(), b.cpu()) for a, b in zip(first, second))


def test_generator_of_its_own(device):
    torch.manual_seed(1)
    generator = torch.Generator(device=device).manual_seed(123)
    first = torch.randn(25, device=device, generator=generator)
    state = generator.get_state()
    second = torch.rand(25, device=device, generator=generator)
    torch.rand(3, device=device)
    generator.set_state(state)
    assert_same(torch.rand(25, device=device, generator=generator), second.cpu())
    assert_same(torch.randn(25, device=device, generator=torch.Generator(device=device).manual_seed(123)), first.cpu())


@pytest.mark.device_only
def test_random_state_of_the_module(device):
    torch.headrace.manual_seed(5)
    state = torch.headrace.get_rng_state()
    first = torch.rand(10, device=device).cpu()
    torch.headrace.set_rng_state(state)
    assert_same(torch.rand(10, device=device), first)
    with torch.random.fork_rng(device_type="headrace"):
        torch.headrace.manual_seed(5)
        assert_same(torch.rand(10, device=device), first)
    assert not torch.equal(torch.rand(10, device=device).cpu(), first)


def test_training_repeats(device):
    """The same seed gives the same bits, dropout included."""
    case = CASES["cnn"]
    runs = []
    for _ in range(2):
        torch.manual_seed(4)
        model = case.build(small=True).to(device)
        optimizers = case.optimizers(model, lambda p: torch.optim.Adam(p, lr=1e-3))
        batch = tuple(t.to(device) for t in case.batch(small=True))
        runs.append(torch.stack([case.step(model, optimizers, batch)[0] for _ in range(5)]).cpu())
    assert torch.equal(runs[0], runs[1])


# ---- autograd's modes


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(reentrant, device):
    """A checkpointed network has the gradients of the plain one, with the same dropout drawn again."""
    torch.manual_seed(3)
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.3)) for _ in range(3)).to(device)
    x = torch.randn(5, 8).to(device).requires_grad_()

    def run(checkpointed):
        torch.manual_seed(9)
        blocks.zero_grad()
        y = x
        for block in blocks:
            y = checkpoint(block, y, use_reentrant=reentrant) if checkpointed else block(y)
        (gradient,) = torch.autograd.grad(y.square().sum(), x) if not reentrant else (None,)
        if reentrant:
            x.grad = None
            y.square().sum().backward()
            gradient = x.grad
        return y.detach().cpu(), gradient.cpu()

    for plain, again in zip(run(False), run(True)):
        assert_same(again, plain)


def test_no_grad_and_inference_mode(device):
    model, plain = small_mlp().to(device), small_mlp()
    x = small_data(1)[0][0]
    expected = plain(x).detach()
    with torch.no_grad():
        y = model(x.to(device))
        assert not y.requires_grad
        y.add_(0)
    assert_same(y, expected, rtol=1e-5)
    with torch.inference_mode():
        z = model(x.to(device))
        assert z.is_inference()
        z.mul_(2)
    assert_same(z, expected * 2, rtol=1e-5)
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        torch.ones(1, device=device, requires_grad=True) * z[0, 0]
    with torch.no_grad():
        next(model.parameters()).zero_()
    out = model(x.to(device))
    assert out.requires_grad
    out.sum().backward()


def test_hooks_retain_grad_and_accumulation(device):
    """Gradients gather over backward calls; hooks see and change them; non-leaf gradients can be kept."""
    results = []
    for where in ("cpu", device):
        w = torch.arange(1.0, 5.0).to(where).requires_grad_()
        handle = w.register_hook(lambda g: g * 0.5)
        for _ in range(2):
            h = w * w
            h.retain_grad()
            (h * torch.tensor([1.0, -1.0, 2.0, 0.0]).to(where)).sum().backward()
        handle.remove()
        results.append((w.grad.cpu(), h.grad.cpu()))
    for actual, expected in zip(results[1], results[0]):
        assert_same(actual, expected)


def test_double_backward(device):
    results = []
    for where in ("cpu", device):
        x = torch.tensor([0.3, -1.2, 2.0], device=where, requires_grad=True)
        (first,) = torch.autograd.grad((x.tanh() * x.exp()).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        results.append((first.detach().cpu(), second.cpu()))
    for actual, expected in zip(results[1], results[0]):
        assert_same(actual, expected, rtol=1e-5)


def test_autograd_from_several_threads(device):
    """Each thread trains a network of its own; the results are those of one after the other."""

    def work(index):
        torch_seeded = copy.deepcopy(start)
        with torch.no_grad():
            for p in torch_seeded.parameters():
                p.add_(0.01 * index)
        losses, model, _ = fit(torch_seeded, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), device, 12)
        return losses, [p.detach().cpu() for p in model.parameters()]

    start = small_mlp()
    serial = [work(index) for index in range(4)]
    with ThreadPoolExecutor(4) as pool:
        threaded = list(pool.map(work, range(4)))
    for (losses, parameters), (expected, expected_parameters) in zip(threaded, serial):
        assert torch.equal(losses, expected)
        for actual, wanted in zip(parameters, expected_parameters):
            assert torch.equal(actual, wanted)


def test_one_graph_from_several_threads(device):
    """Hogwild: threads share the parameters and gather gradients into them."""
    w = torch.ones(64, device=device, requires_grad=True)
    barrier = threading.Barrier(4)

    def work(index):
        barrier.wait()
        for _ in range(25):
            (w * (index + 1)).sum().backward()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    synchronize()
    assert_same(w.grad, torch.full((64,), 250.0))


def test_device_of_everything(device):
    """Nothing moves to the host by itself: outputs, gradients and optimizer state stay on the model's device."""
    model, optimizer = trained(device)
    for p in model.parameters():
        assert p.device.type == p.grad.device.type == DEVICE.type
        for key, value in optimizer.state[p].items():
            if isinstance(value, torch.Tensor) and key != "step":
                assert value.device.type == DEVICE.type
