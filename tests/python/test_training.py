"""Training around the operators: backward from threads, checkpoints, autocast, scaled gradients, optimizers, against
torch."""

import itertools
import threading

import pytest
import torch

D = "headrace"
pytestmark = pytest.mark.device_only


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    ).to(D)


def test_gradient_of_complex_abs():
    gradients = []
    for place in ("cpu", D):
        z = torch.tensor([3 + 4j, 0j, -2j]).to(place).requires_grad_()
        z.abs().sum().backward()
        gradients.append(z.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])


def test_backward_from_threads():
    def train(seed, losses):
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(6, 6, generator=generator).to(D).requires_grad_()
        for _ in range(10):
            loss = (w @ w.t()).tanh().square().mean()
            (gradient,) = torch.autograd.grad(loss, w)
            w = (w - 0.1 * gradient).detach().requires_grad_()
        losses[seed] = loss.item()

    alone, together = {}, {}
    for seed in range(3):
        train(seed, alone)
    threads = [threading.Thread(target=train, args=(seed, together)) for seed in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert alone == together


def test_checkpoint_repeats_dropout():
    from torch.utils.checkpoint import checkpoint

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8)).to(D)
    x = torch.randn(4, 8).to(D)

    def gradients(run):
        torch.manual_seed(1)
        model.zero_grad()
        run(x.requires_grad_()).sum().backward()
        return [p.grad.cpu() for p in model.parameters()]

    plain = gradients(model)
    again = gradients(lambda value: checkpoint(model, value, use_reentrant=False))
    assert all(torch.equal(a, b) for a, b in zip(plain, again))


def test_inference_mode_and_no_grad():
    model, x = make_model().eval(), torch.randn(3, 4).to(D)
    with torch.inference_mode():
        first = model(x)
    with torch.no_grad():
        assert torch.equal(first.cpu(), model(x).cpu())


def test_autocast_chooses_types():
    x = torch.ones(2, 3, device=D)
    with torch.autocast(D, dtype=torch.bfloat16):
        y = torch.nn.functional.linear(x, torch.ones(4, 3, device=D))
        assert (
            y.dtype == torch.bfloat16 and y.softmax(1).dtype == torch.float32 and torch.relu(x).dtype == torch.float32
        )
    assert y.float().sum().item() == 24


def test_autocast_follows_torchs_lists():
    """One operator of each list of torch's CUDA device."""
    x, weight = torch.ones(2, 3, device=D), torch.ones(3, 3, device=D)
    half = x.half()
    F = torch.nn.functional
    with torch.autocast(D, dtype=torch.float16):
        for y in (x @ weight, F.linear(x, weight), torch.bmm(x[None], weight[None]), torch.addmm(x, x, weight)):
            assert y.dtype == torch.float16
        assert F.conv1d(x[None].transpose(1, 2), torch.ones(4, 3, 1, device=D)).dtype == torch.float16
        for y in (half.exp(), half.log(), half.pow(2), F.layer_norm(half, (3,)), F.mse_loss(half, half), half.norm()):
            assert y.dtype == torch.float32
        assert half.sum().dtype == half.softmax(1).dtype == half.cumsum(0).dtype == torch.float32
        assert half.sum(dtype=torch.float16).dtype == torch.float16, "what the caller says counts"
        assert torch.cat([half, x]).dtype == torch.addcmul(half, x, half).dtype == torch.float32
        assert torch.relu(half).dtype == (half + half).dtype == torch.float16
        assert (x.double() @ weight.double()).dtype == torch.float64, "float64 is left as it is"
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x, x)
        with torch.autocast(D, enabled=False):
            assert (x @ weight).dtype == torch.float32
    assert (x @ weight).dtype == torch.float32


def test_autocast_casts_a_weight_once():
    """Inside one region a parameter is cast at its first use; outside the cast is gone, so that changes are seen."""
    x, weight = torch.ones(2, 8, device=D), torch.nn.Parameter(torch.ones(8, 8, device=D))

    def operations(uses, cache):
        torch.headrace.synchronize()
        before = torch.headrace.stats()["operations"]
        with torch.autocast(D, dtype=torch.bfloat16, cache_enabled=cache):
            for _ in range(uses):
                y = torch.nn.functional.linear(x, weight)
        assert y.dtype == torch.bfloat16
        return torch.headrace.stats()["operations"] - before, y

    one, four, uncached = (operations(uses, cache)[0] for uses, cache in ((1, True), (4, True), (4, False)))
    assert uncached - four == 3, "three casts of the weight less"
    assert four < 4 * one
    with torch.no_grad():
        weight.mul_(2)
    assert operations(2, True)[1].float().sum().item() == 2 * 8 * 16


def test_autocast_by_default_and_as_decorator():
    assert torch.get_autocast_dtype(D) in (torch.float16, torch.bfloat16)
    assert torch.amp.is_autocast_available(D)

    @torch.autocast(D, dtype=torch.bfloat16)
    def product(x):
        assert torch.is_autocast_enabled(D)
        return x @ x

    assert product(torch.ones(2, 2, device=D)).dtype == torch.bfloat16
    with pytest.warns(UserWarning, match="not supported|only supports|[Dd]isabling"):
        with torch.autocast(D, dtype=torch.int32):
            assert (torch.ones(2, 2, device=D) @ torch.ones(2, 2, device=D)).dtype == torch.float32


def train_with_scaler(place, dtype, optimizer, fused, steps=8):
    """Losses, scales and parameters of mixed-precision training; the gradients of one step overflow."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(144, 16),
        torch.nn.LayerNorm(16),
        torch.nn.GELU(),
        torch.nn.Linear(16, 3),
    ).to(place)
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler(place, growth_interval=3)
    x, target = torch.randn(8, 1, 8, 8).to(place), torch.arange(8).remainder(3).to(place)
    losses, scales = [], []
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast(place, dtype=dtype):
            logits = model(x)
            loss = torch.nn.functional.cross_entropy(logits, target)
        assert logits.dtype == dtype and loss.dtype == torch.float32
        (scaler.scale(loss) * (float("inf") if step == 4 else 1.0)).backward()
        if not fused:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    return losses, scales


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("optimizer, fused", [("Adam", False), ("Adam", True), ("SGD", True)])
def test_mixed_precision_training_follows_torch(dtype, optimizer, fused):
    (expected, expected_scales), (got, scales) = (
        train_with_scaler(place, dtype, optimizer, fused) for place in ("cpu", D)
    )
    assert scales == expected_scales == [65536.0] * 2 + [131072.0] * 2 + [65536.0] * 3 + [131072.0]
    assert got[4] == got[5] != got[6], "the step that overflowed is left out"
    # Each layer's output is rounded to 8 or 11 bits, in both devices' own order of sums.
    assert got == pytest.approx(expected, rel=2e-2 if dtype == torch.bfloat16 else 4e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [None, float("inf"), -float("inf"), float("nan")])
def test_unscaling_gradients(dtype, bad):
    results = []
    for place in ("cpu", D):
        generator = torch.Generator().manual_seed(0)
        gradients = [torch.randn(shape, generator=generator).to(dtype) for shape in ((5, 3), (), (4, 4), (0,))]
        if bad is not None:
            gradients[2][1, 3] = bad
        gradients = [gradient.to(place) for gradient in gradients]
        gradients[2] = gradients[2].t()
        found = torch.zeros((), device=place)
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, torch.full((), 0.3, device=place))
        results.append([found.cpu()] + [gradient.cpu() for gradient in gradients])
    for expected, got in zip(*results):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    assert results[1][0].item() == (bad is not None)


@pytest.mark.parametrize("growth, backoff", [(2.0, 0.5), (1.1, 0.3)])
def test_updating_the_scale(growth, backoff):
    for scale, tracker, found, interval in itertools.product((65536.0, 3e38, 1e-3), (0, 2, 5), (0.0, 2.0), (1, 3)):
        results = []
        for place in ("cpu", D):
            state = torch.full((), scale, device=place), torch.full((), tracker, dtype=torch.int32, device=place)
            returned = torch._amp_update_scale_(
                *state, torch.full((), found, device=place), growth, backoff, interval
            )
            assert returned is state[0]
            results.append([value.item() for value in state])
        assert results[0] == results[1], (scale, tracker, found, interval)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("form", ["default", "foreach", "for-loop", "fused"])
def test_optimizers_follow_torch(optimizer, form):
    names = {"default": {}, "foreach": {"foreach": True}, "for-loop": {"foreach": False}, "fused": {"fused": True}}[
        form
    ]
    if optimizer == "RMSprop" and form == "fused":
        pytest.skip("torch has no fused RMSprop")
    names = dict(names, lr=0.05, weight_decay=0.1)
    if optimizer in ("SGD", "RMSprop"):
        names["momentum"] = 0.9
    torch.manual_seed(2)
    start = [torch.randn(3, 4), torch.randn(5), torch.randn(())]
    result = []
    for place in ("cpu", D):
        parameters = [torch.nn.Parameter(p.clone().to(place)) for p in start]
        steps = getattr(torch.optim, optimizer)(parameters, **names)
        for _ in range(5):
            steps.zero_grad()
            sum((p.sin() * p).sum() for p in parameters).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.5)
            steps.step()
        result.append([p.detach().cpu() for p in parameters])
    for expected, got in zip(*result):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
