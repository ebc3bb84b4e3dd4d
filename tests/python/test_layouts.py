"""Activations that outlive a program keep the layout that convolutions like; tensors look as they always did."""

import copy
import io

import pytest
import torch
from torch import nn

def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 5),
    )


def undone() -> int:
    return torch.headrace.stats()["layouts_undone"]


def train(device: str, steps: int) -> tuple[list[float], list[torch.Tensor]]:
    """Reads the loss in the middle of each step, so that forward and backward are programs of their own."""
    torch.manual_seed(1)
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        images, target = torch.randn(6, 3, 12, 12), torch.randint(0, 5, (6,))
        loss = nn.functional.cross_entropy(model(images.to(device)), target.to(device))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses, [p.detach().cpu() for p in model.parameters()]


def test_a_training_step_in_two_programs() -> None:
    before = undone()
    losses, parameters = train("headrace", 4)
    assert undone() == before  # the second program takes everything as the first left it
    expected_losses, expected = train("cpu", 4)
    torch.testing.assert_close(losses, expected_losses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(parameters, expected, rtol=1e-3, atol=1e-4)


def features(device: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    model = network()[:7].eval().to(device)
    with torch.no_grad():
        x = torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(2)).to(device)
        y = model(x)
        if device == "headrace":
            torch.headrace.synchronize()
    return model, x, y


LOOKS = {
    "all": lambda y: y,
    "numpy": lambda y: torch.from_numpy(y.cpu().numpy().copy()),
    "slice": lambda y: y[1:3, 2:20:3, 1:, ::2],
    "flat": lambda y: y.flatten(1),
    "other_view": lambda y: y.view(8, 12, 36)[:, 1:],
    "transposed": lambda y: y.transpose(1, 3).contiguous(),
    "reversed": lambda y: y.flip(1, 3),
    "unfolded": lambda y: y.as_strided((10, 7), (13, 5), 3),
    "bits": lambda y: y.view(torch.int32),
    "halves": lambda y: y.view(torch.int16),
    "sum": lambda y: y.sum((0, 2, 3)),
    "sorted": lambda y: y.sort(1).values,
    "in_place": lambda y: y.clone().mul_(2).add_(y),
    "part_in_place": lambda y: y.clone().index_fill_(1, torch.tensor([3], device=y.device), 7),
    "copy": copy.deepcopy,
    "reshaped": lambda y: y.reshape(-1)[5:].clone(),
    "shared": lambda y: torch.empty(0, device=y.device).set_(y.untyped_storage(), 6, (3, 5), (17, 2)),
    "resized": lambda y: y.clone().resize_(2, 5),
    "matmul": lambda y: y.flatten(2) @ y.flatten(2).transpose(1, 2),
    "gathered": lambda y: y.gather(2, torch.zeros(4, 24, 1, 6, dtype=torch.long, device=y.device)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_whatever_looks_at_an_activation_sees_it(look: str) -> None:
    before = undone()
    y = features("headrace")[2]
    seen = LOOKS[look](y).cpu()
    expected = features("cpu")[2]
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-4, atol=1e-5)
    # Convolutions as small as these are the device's own on a GPU, and in the order of the tensor.
    assert undone() > before or not torch.headrace.get_device_properties().is_host
    if seen.is_floating_point():
        torch.testing.assert_close(seen, LOOKS[look](expected), rtol=1e-4, atol=1e-4)
    else:
        assert torch.equal(seen, LOOKS[look](y.cpu()))


def test_writes_through_views() -> None:
    _, _, expected = features("cpu")
    _, _, y = features("headrace")
    for tensor in (expected, y):
        tensor[:, 3] = 5
        tensor[2].mul_(3)
        tensor[..., 1:4, 0].sub_(1)
        tensor.flatten()[17:900:7] = -2
        tensor.view(-1)[40:50].copy_(torch.arange(10.0))
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_an_activation_is_saved_and_loaded() -> None:
    _, _, expected = features("cpu")
    _, _, y = features("headrace")
    file = io.BytesIO()
    torch.save({"y": y, "view": y[1]}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    torch.testing.assert_close(loaded["y"].cpu(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loaded["view"].cpu(), expected[1], rtol=1e-4, atol=1e-5)


def test_gradients_of_activations_that_somebody_keeps() -> None:
    results = []
    for device in ("cpu", "headrace"):
        model = network().to(device)
        x = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(3)).to(device).requires_grad_()
        kept = []
        y = x
        for layer in model:
            y = layer(y)
            if y.requires_grad:
                y.retain_grad()
            kept.append(y)
        y.square().sum().backward()
        results.append([t.detach().cpu() for t in (x.grad, *kept, *(k.grad for k in kept))])
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4)


def test_a_state_goes_round() -> None:
    """Each step's result is the next one's input, read from time to time, with shapes that change."""
    conv = nn.Conv2d(4, 4, 3, padding=1)
    for size in (7, 9):
        states = []
        for device in ("cpu", "headrace"):
            layer = copy.deepcopy(conv).to(device)
            state = torch.linspace(-1, 1, 2 * 4 * size * size).reshape(2, 4, size, size).to(device)
            seen = []
            with torch.no_grad():
                for step in range(8):
                    state = torch.tanh(layer(state)) + state
                    if device == "headrace":
                        torch.headrace.synchronize()
                    if step % 3 == 2:
                        seen.append(state[:, 1].cpu())
            states.append([*seen, state.cpu()])
        torch.testing.assert_close(states[1], states[0], rtol=1e-4, atol=1e-4)
